"""Attention, forward: softmax(Q·Kᵀ·scale)·V, one block for some rows of Q, with the softmax running along K (Dao et al. 2022)."""

from __future__ import annotations

import math

import tesela
from tesela import Array, f32, i32

HEADS, S, L, D = tesela.dims("HEADS S L D")
T = tesela.dtype("T")


@tesela.kernel
def attention(
    q: Array[T, HEADS, S, D],
    k: Array[T, HEADS, L, D],
    v: Array[T, HEADS, L, D],
    out: Array[T, HEADS, S, D],
    scale: f32,
    HEAD: tesela.constexpr = 128,
    CAUSAL: tesela.constexpr = False,
    BM: tesela.constexpr = 64,
    BN: tesela.constexpr = 64,
):
    """HEADS counts batches times heads; D is at most HEAD. With CAUSAL, row i sees columns up to i + L - S. Rows that see nothing
    give zeros."""
    block, head = tesela.grid(tesela.ceildiv(S, BM), HEADS)
    row = block * BM
    queries = q[head, row : row + BM, 0:HEAD]
    # Scores are kept in units of log 2: exp2 is one instruction.
    unit = scale * math.log2(math.e)
    top = tesela.full((BM,), -1e30, f32)  # finite, so that a row without a column gets exp2(-inf) = 0 and not NaN
    total = tesela.zeros((BM,), f32)
    acc = tesela.zeros((BM, HEAD), f32)
    end = min(L, row + BM + L - S) if CAUSAL else L
    for j in tesela.range(0, end, BN):
        scores = (queries @ k[head, j : j + BN, 0:HEAD].T) * unit
        seen = tesela.iota((BM, BN), axis=1) < (L - j).to(i32)
        if CAUSAL:
            last = (row - j + L - S).to(i32) + tesela.arange(BM)
            seen = seen & (tesela.arange(BN) <= last[:, None])
        scores = tesela.where(seen, scores, -math.inf)
        new_top = tesela.maximum(top, scores.max(axis=1))
        weights = tesela.exp2(scores - new_top[:, None])
        rescale = tesela.exp2(top - new_top)
        total = total * rescale + weights.sum(axis=1)
        acc = acc * rescale[:, None] + weights.to(v.dtype) @ v[head, j : j + BN, 0:HEAD]
        top = new_top
    result = acc / tesela.where(total > 0, total, 1)[:, None]
    out[head, row : row + BM, 0:HEAD] = result.to(out.dtype)
