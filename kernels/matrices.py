"""Matrix products: plain, in the three orders of operands, with bias and activation, and batched."""

from __future__ import annotations

import tesela
from tesela import Array, f32

from .elementwise import identity

M, N, K, BATCH = tesela.dims("M N K BATCH")
T = tesela.dtype("T")

TILES = [
    {"BM": 128, "BN": 256},
    {"BM": 128, "BN": 224},
    {"BM": 128, "BN": 192},
    {"BM": 128, "BN": 112, "warp_specialize": 1, "cluster": 1},
    {"BM": 128, "BN": 128},
    {"BM": 192, "BN": 176, "warps": 12},
    {"BM": 128, "BN": 80},
    {"BM": 128, "BN": 96, "warp_specialize": 1, "cluster": 1},
    {"BM": 128, "BN": 64, "warps": 4, "warp_specialize": 1, "cluster": 1},
    {"BM": 32, "BN": 64, "stages": 8},
    {"BM": 64, "BN": 96, "stages": 8},
    {"BM": 64, "BN": 112},
    {"BM": 64, "BN": 112, "warp_specialize": 1},
    {"BM": 64, "BN": 128, "warp_specialize": 1, "stages": 8},
    {"BM": 64, "BN": 80, "warp_specialize": 1, "stages": 8},
    {"BM": 64, "BN": 160, "warp_specialize": 1},
    {"BM": 64, "BN": 224, "warp_specialize": 1, "cluster": 1},
    {"BM": 64, "BN": 64, "warp_specialize": 1, "stages": 8},
    {"BM": 32, "BN": 112, "warp_specialize": 1},
    {"BM": 32, "BN": 224},
    {"BM": 16, "BN": 64, "stages": 8},
]
"""Extents of the tile of a product: each call takes the fastest for its own.
Where the grid is one round, tiles of 64 rows whose pairs load the columns together, by warps of their own, ask least of L2 and of shared memory. Results of few rows are
a matter of reading the other operand: narrow tiles give every multiprocessor a part of it, and many buffers keep enough of it under way."""


@tesela.kernel(variants=TILES, flops="2 * M * N * K")
def gemm(
    A: Array[T, M, K],
    B: Array[T, K, N],
    C: Array[T, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 64,
):
    """C = A·B: sums in f32, rounded once. `gemm_nt` and `gemm_tn` take B or A transposed, as rows of K."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[m : m + BM, k : k + BK] @ B[k : k + BK, n : n + BN]
    C[m : m + BM, n : n + BN] = acc.to(C.dtype)


@tesela.kernel(variants=TILES, flops="2 * M * N * K")
def gemm_nt(
    A: Array[T, M, K],
    B: Array[T, N, K],
    C: Array[T, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 64,
):
    """C = A·Bᵀ."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[m : m + BM, k : k + BK] @ B[n : n + BN, k : k + BK].T
    C[m : m + BM, n : n + BN] = acc.to(C.dtype)


@tesela.kernel(variants=TILES, flops="2 * M * N * K")
def gemm_tn(
    A: Array[T, K, M],
    B: Array[T, K, N],
    C: Array[T, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 64,
):
    """C = Aᵀ·B."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[k : k + BK, m : m + BM].T @ B[k : k + BK, n : n + BN]
    C[m : m + BM, n : n + BN] = acc.to(C.dtype)


@tesela.kernel(variants=TILES, flops="2 * M * N * K")
def linear(
    A: Array[T, M, K],
    W: Array[T, N, K],
    bias: Array[T, N],
    C: Array[T, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 64,
    ACTIVATION: tesela.constexpr = identity,
):
    """C = ACTIVATION(A·Wᵀ + bias): sums, bias and activation in f32, rounded once."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[m : m + BM, k : k + BK] @ W[n : n + BN, k : k + BK].T
    C[m : m + BM, n : n + BN] = ACTIVATION(acc + bias[n : n + BN].to(f32)).to(C.dtype)


@tesela.kernel(variants=TILES, flops="2 * BATCH * M * N * K")
def batched_gemm(
    A: Array[T, BATCH, M, K],
    B: Array[T, BATCH, K, N],
    C: Array[f32, BATCH, M, N],
    BM: tesela.constexpr,
    BN: tesela.constexpr,
    BK: tesela.constexpr = 64,
):
    """C[i] = A[i]·B[i]."""
    bm, bn, i = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN), BATCH)
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[i, m : m + BM, k : k + BK] @ B[i, k : k + BK, n : n + BN]
    C[i, m : m + BM, n : n + BN] = acc
