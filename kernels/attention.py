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
    BM: tesela.constexpr = None,
    BN: tesela.constexpr = None,
):
    """HEADS counts batches times heads; D is at most HEAD. With CAUSAL, row i sees columns up to i + L - S. Rows that see nothing
    give zeros. `scale` must be positive, and gives NaN otherwise. BM rows of queries and BN of keys
    make a tile; left out, they are what keeps the tensor cores of an H200 busiest with elements of 16 bits, by HEAD and CAUSAL."""
    wide = q.dtype == f32
    BM = BM or (64 if wide or HEAD > 256 else 192 if HEAD <= 64 and not CAUSAL else 128)
    BN = BN or (64 if wide or HEAD > 128 else 128)
    block, head = tesela.grid(tesela.ceildiv(S, BM), HEADS)
    row = block * BM
    queries = q[head, row : row + BM, 0:HEAD]
    # Weights are powers of two, exp2(score·unit - top·unit): one fma and one instruction each. A row's `top` is not quite its maximum: what was
    # summed is rescaled only when the maximum has outgrown it by a factor of 2⁸, which f32 and 16-bit weights have room for.
    unit = scale * math.log2(math.e)
    slack = 8 / unit
    top = tesela.full((BM,), -1e30, f32)  # finite, so that a row without a column gets exp2(-inf) = 0 and not NaN
    totals = tesela.zeros((BM, 8), f32)  # of every eighth column: partial sums are added up after the loop
    acc = tesela.zeros((BM, HEAD), f32)
    end = min(L, row + BM + L - S) if CAUSAL else L
    for j in tesela.range(0, end, BN):
        scores = queries @ k[head, j : j + BN, 0:HEAD].T
        seen = tesela.iota((BM, BN), axis=1) < (L - j).to(i32)
        if CAUSAL:
            last = (row - j + L - S).to(i32) + tesela.arange(BM)
            seen = seen & (tesela.arange(BN) <= last[:, None])
        scores = tesela.where(seen, scores, -math.inf)
        peak = scores.max(axis=1)
        new_top = tesela.where(peak > top + slack, peak, top)
        weights = tesela.exp2(tesela.fma(scores, unit, -(new_top * unit)[:, None]))
        rescale = tesela.exp2((top - new_top) * unit)
        totals = totals * rescale[:, None] + weights.reshape(BM, BN // 8, 8).sum(axis=1)
        acc = acc * rescale[:, None] + weights.to(v.dtype) @ v[head, j : j + BN, 0:HEAD]
        top = new_top
    total = totals.sum(axis=1)
    share = tesela.where(unit > 0, 1 / tesela.where(total > 0, total, 1), math.nan)
    out[head, row : row + BM, 0:HEAD] = (acc * share[:, None]).to(out.dtype)
