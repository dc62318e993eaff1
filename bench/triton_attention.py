"""Attention forward in Triton, for comparison: tensor maps, the softmax running along the keys (Dao 2023), masks in the last trips only. Importing this needs Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from triton import language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def trips(acc, total, top, queries, k, v, head_row, row, begin, end, unit, BM: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr):
    """The keys from `begin` to `end`: what a row has summed, its weights' total and the maximum that both are relative to."""
    for j in range(begin, end, BN):
        j = tl.multiple_of(j, BN)
        scores = tl.dot(queries, k.load([head_row + j, 0]).T)
        if MASKED:
            seen = row + tl.arange(0, BM)[:, None] >= j + tl.arange(0, BN)[None, :]
            scores = tl.where(seen, scores * unit, -1.0e6)
            higher = tl.maximum(top, tl.max(scores, 1))
            scores -= higher[:, None]
        else:
            higher = tl.maximum(top, tl.max(scores, 1) * unit)
            scores = scores * unit - higher[:, None]
        weights = tl.math.exp2(scores)
        factor = tl.math.exp2(top - higher)
        total = total * factor + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v.load([head_row + j, 0]), acc * factor[:, None])
        top = higher
    return acc, total, top


@triton.jit
def attention(q, k, v, out, scale, LENGTH, HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """softmax(Q·Kᵀ·scale)·V of heads that lie one under another, LENGTH rows each (a multiple of BM and BN)."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block  # the longest first
    row, head_row = block * BM, tl.program_id(1) * LENGTH
    queries = q.load([head_row + row, 0])
    acc, total, top = tl.zeros((BM, HEAD), tl.float32), tl.zeros((BM,), tl.float32), tl.full((BM,), -float("inf"), tl.float32)
    unit = scale * 1.4426950408889634
    end = row if CAUSAL else LENGTH
    acc, total, top = trips(acc, total, top, queries, k, v, head_row, row, 0, end, unit, BM, BN, False)
    if CAUSAL:
        acc, total, top = trips(acc, total, top, queries, k, v, head_row, row, row, row + BM, unit, BM, BN, True)
    out.store([head_row + row, 0], (acc / total[:, None]).to(out.dtype))


def configurations(head: int) -> list[dict[str, Any]]:
    """What is tried, by the head dimension."""
    tried = {
        64: ((128, 128, 3, 8), (128, 64, 4, 4), (128, 128, 2, 8), (128, 64, 3, 4), (128, 128, 3, 4), (64, 64, 4, 4)),
        128: ((128, 128, 2, 8), (128, 64, 3, 8), (128, 64, 4, 8), (128, 128, 3, 8), (128, 64, 3, 4), (64, 64, 3, 4)),
        256: ((128, 64, 2, 8), (128, 32, 3, 8), (64, 64, 2, 4), (64, 32, 3, 4), (128, 32, 2, 8), (64, 64, 3, 8)),
    }[head]
    return [{"program": "maps", "BM": bm, "BN": bn, "num_stages": stages, "num_warps": warps} for bm, bn, stages, warps in tried]


def launcher(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, scale: float, causal: bool, config: dict[str, Any]) -> Callable[[], object]:
    """What launches it on [heads, length, head dimension] in a configuration."""
    heads, length, head = q.shape
    bm, bn = config["BM"], config["BN"]
    if length % bm or length % bn or bm % bn:
        raise ValueError(f"blocks of {bm} rows and {bn} keys do not divide a length of {length}")
    maps = [TensorDescriptor.from_tensor(x.reshape(heads * length, head), [rows, head]) for x, rows in ((q, bm), (k, bn), (v, bn), (out, bm))]
    options = {name: config[name] for name in ("num_stages", "num_warps")}
    return lambda: attention[(length // bm, heads)](*maps, scale, length, HEAD=head, BM=bm, BN=bn, CAUSAL=causal, **options)
