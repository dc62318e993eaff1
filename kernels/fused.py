"""Products fused with what stands beside them: two products and a gate, scales of tensors and of rows of A, attention with a bias added to its scores."""

from __future__ import annotations

import math

import tesela
from tesela import Array, f32, i32

from .elementwise import silu
from .matrices import TILES

M, N, K, HEADS, S, L, D = tesela.dims("M N K HEADS S L D")
T, U = tesela.dtype("T"), tesela.dtype("U")


@tesela.kernel(flops="4 * M * N * K")
def dual_gemm(
    A: Array[T, M, K],
    GATE: Array[T, N, K],
    UP: Array[T, N, K],
    C: Array[T, M, N],
    BM: tesela.constexpr = 128,
    BN: tesela.constexpr = 128,
    BK: tesela.constexpr = 64,
    ACTIVATION: tesela.constexpr = silu,
):
    """C = ACTIVATION(A·GATEᵀ)·(A·UPᵀ): the first half of a gated layer, SwiGLU with silu (Shazeer 2020). Sums in f32, rounded once."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    gate = tesela.zeros((BM, BN), f32)
    up = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        a = A[m : m + BM, k : k + BK]
        gate += a @ GATE[n : n + BN, k : k + BK].T
        up += a @ UP[n : n + BN, k : k + BK].T
    C[m : m + BM, n : n + BN] = (ACTIVATION(gate) * up).to(C.dtype)


@tesela.kernel(flops="2 * M * N * K")
def scaled_gemm(
    A: Array[T, M, K],
    B: Array[T, N, K],
    scale: Array[f32, M],
    C: Array[T, M, N],
    BM: tesela.constexpr = 128,
    BN: tesela.constexpr = 256,
    BK: tesela.constexpr = 64,
):
    """C = (A, each row times its scale, rounded to A's type)·Bᵀ."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    factors = scale[m : m + BM]
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        a = (A[m : m + BM, k : k + BK].to(f32) * factors[:, None]).to(A.dtype)
        acc += a @ B[n : n + BN, k : k + BK].T
    C[m : m + BM, n : n + BN] = acc.to(C.dtype)


@tesela.kernel(variants=TILES, flops="2 * M * N * K")
def tensor_scaled_gemm(
    A: Array[T, M, K],
    B: Array[T, N, K],
    scale_a: Array[f32, 1],
    scale_b: Array[f32, 1],
    C: Array[U, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 128,
):
    """C = (A·Bᵀ)·scale_a·scale_b of 8-bit floats with a scale for each tensor. The tensor cores of sm_90 add up in f32 registers, but keep
    13 bits below the largest term of each addition (docs/numbers.md N37); `tensor_scaled_gemm_f32` adds in f32."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[m : m + BM, k : k + BK] @ B[n : n + BN, k : k + BK].T
    C[m : m + BM, n : n + BN] = (acc * (scale_a[0] * scale_b[0])).to(C.dtype)


@tesela.kernel(variants=[{"BM": 128, "BN": 192}, {"BM": 128, "BN": 128}], flops="2 * M * N * K")
def tensor_scaled_gemm_f32(
    A: Array[T, M, K],
    B: Array[T, N, K],
    scale_a: Array[f32, 1],
    scale_b: Array[f32, 1],
    C: Array[U, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 128,
):
    """As `tensor_scaled_gemm`, but what the tensor cores sum over BK elements is added to the rest in f32, rounded to nearest."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        part = A[m : m + BM, k : k + BK] @ B[n : n + BN, k : k + BK].T
        acc = acc + part
    C[m : m + BM, n : n + BN] = (acc * (scale_a[0] * scale_b[0])).to(C.dtype)


@tesela.kernel
def biased_attention(
    q: Array[T, HEADS, S, D],
    k: Array[T, HEADS, L, D],
    v: Array[T, HEADS, L, D],
    bias: Array[T, HEADS, S, L],
    out: Array[T, HEADS, S, D],
    scale: f32,
    HEAD: tesela.constexpr = 128,
    BM: tesela.constexpr = 128,
    BN: tesela.constexpr = None,
):
    """softmax(Q·Kᵀ·scale + bias)·V, as `attention.attention` computes it. HEADS counts batches times heads; D is at most HEAD. Rows that see nothing give zeros."""
    BN = BN or (64 if q.dtype == f32 or HEAD > 128 else 128)
    block, head = tesela.grid(tesela.ceildiv(S, BM), HEADS)
    row = block * BM
    queries = q[head, row : row + BM, 0:HEAD]
    unit = math.log2(math.e)  # weights are powers of two, as in `attention`
    slack = 8 / unit
    top = tesela.full((BM,), -1e30, f32)
    totals = tesela.zeros((BM, 8), f32)
    acc = tesela.zeros((BM, HEAD), f32)
    for j in tesela.range(0, L, BN):
        scores = queries @ k[head, j : j + BN, 0:HEAD].T
        scores = tesela.fma(scores, scale, bias[head, row : row + BM, j : j + BN].to(f32))
        seen = tesela.iota((BM, BN), axis=1) < (L - j).to(i32)
        scores = tesela.where(seen, scores, -math.inf)
        peak = scores.max(axis=1)
        new_top = tesela.where(peak > top + slack, peak, top)
        weights = tesela.exp2(tesela.fma(scores, unit, -(new_top * unit)[:, None]))
        rescale = tesela.exp2((top - new_top) * unit)
        totals = totals * rescale[:, None] + weights.reshape(BM, BN // 8, 8).sum(axis=1)
        acc = acc * rescale[:, None] + weights.to(v.dtype) @ v[head, j : j + BN, 0:HEAD]
        top = new_top
    total = totals.sum(axis=1)
    share = 1 / tesela.where(total > 0, total, 1)
    out[head, row : row + BM, 0:HEAD] = (acc * share[:, None]).to(out.dtype)
