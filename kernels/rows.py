"""Kernels along the rows of a matrix: softmax, layer norm, RMS norm, reductions, running sums; and sums of columns.

A block holds the first BLOCK columns of its ROWS rows in registers, reads them once, and does what lies beyond in pieces, twice where it must. So with a
BLOCK of at least the number of columns every element is read once; that is what pays on a GPU, up to some 16384 columns of 16 bits. Several ROWS share
the barriers of a block's reductions, which pays for short rows.
"""

from __future__ import annotations

import math

import tesela
from tesela import Array, f32, i32

M, N, P = tesela.dims("M N P")
T = tesela.dtype("T")

BLOCKS = [{"BLOCK": 8192}, {"BLOCK": 4096}, {"BLOCK": 2048}, {"BLOCK": 1024}]
"""What a call chooses from by the extents of its arrays: a longer piece than the row costs idle threads, a shorter one a second reading."""


@tesela.kernel(variants=BLOCKS)
def softmax(x: Array[T, M, N], y: Array[T, M, N], BLOCK: tesela.constexpr = 1024, ROWS: tesela.constexpr = 1):
    """y = softmax(x) along rows. Beyond the first BLOCK columns the maximum and the sum run together, the sum rescaled where the maximum grows
    (Milakov, Gimelshein 2018). A row of nothing but -inf gives zeros."""
    row = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    first = tesela.load(x, (row, 0), (ROWS, BLOCK), fill=-math.inf).to(f32)
    start = tesela.maximum(first.max(axis=1), -1e38)  # finite, so that exp(-inf - start) is 0 and not exp(NaN)
    weights = tesela.exp(first - start[:, None])
    top, total = start, weights.sum(axis=1)
    for j in tesela.range(BLOCK, N, BLOCK):
        piece = tesela.load(x, (row, j), (ROWS, BLOCK), fill=-math.inf).to(f32)
        new_top = tesela.maximum(top, piece.max(axis=1))
        total = total * tesela.exp(top - new_top) + tesela.exp(piece - new_top[:, None]).sum(axis=1)
        top = new_top
    scale = tesela.where(total > 0, 1 / total, 0)
    y[row : row + ROWS, 0:BLOCK] = (weights * (scale * tesela.exp(start - top))[:, None]).to(y.dtype)
    for j in tesela.range(BLOCK, N, BLOCK):
        piece = x[row : row + ROWS, j : j + BLOCK].to(f32)
        y[row : row + ROWS, j : j + BLOCK] = (tesela.exp(piece - top[:, None]) * scale[:, None]).to(y.dtype)


@tesela.function
def moments(piece, size):
    """(mean, sum of squared deviations) of the first `size` columns of each row, in two passes over registers."""
    mean = piece.sum(axis=1) / f32(size)
    inside = tesela.iota(piece.shape, axis=1) < size.to(i32)
    centred = tesela.where(inside, piece - mean[:, None], 0)
    return mean, (centred * centred).sum(axis=1)


@tesela.kernel(variants=[*BLOCKS[:-1], {"BLOCK": 1024, "ROWS": 2}, BLOCKS[-1]])  # two short rows share what is loaded of weight and bias
def layer_norm(
    x: Array[T, M, N],
    weight: Array[T, N],
    bias: Array[T, N],
    y: Array[T, M, N],
    epsilon: tesela.constexpr = 1e-5,
    BLOCK: tesela.constexpr = 1024,
    ROWS: tesela.constexpr = 1,
):
    """y = (x - mean)/√(variance + ε)·weight + bias along rows (Ba, Kiros, Hinton 2016). Mean and squared deviations of pieces are
    merged (Chan, Golub, LeVeque 1983), so that nothing cancels where the mean is large."""
    row = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    first = x[row : row + ROWS, 0:BLOCK].to(f32)
    mean, deviations = moments(first, min(N, BLOCK))
    for j in tesela.range(BLOCK, N, BLOCK):
        size = min(N - j, BLOCK)
        piece_mean, piece_deviations = moments(x[row : row + ROWS, j : j + BLOCK].to(f32), size)
        share = f32(size) / f32(j + size)
        step = piece_mean - mean
        deviations = deviations + piece_deviations + step * step * (f32(j) * share)
        mean = mean + step * share
    scale = tesela.rsqrt(deviations / N + epsilon)
    normal = (first - mean[:, None]) * scale[:, None]
    y[row : row + ROWS, 0:BLOCK] = (normal * weight[0:BLOCK].to(f32) + bias[0:BLOCK].to(f32)).to(y.dtype)
    for j in tesela.range(BLOCK, N, BLOCK):
        normal = (x[row : row + ROWS, j : j + BLOCK].to(f32) - mean[:, None]) * scale[:, None]
        y[row : row + ROWS, j : j + BLOCK] = (normal * weight[j : j + BLOCK].to(f32) + bias[j : j + BLOCK].to(f32)).to(
            y.dtype
        )


@tesela.kernel(variants=BLOCKS)
def rms_norm(
    x: Array[T, M, N],
    residual: Array[T, M, N],
    weight: Array[T, N],
    y: Array[T, M, N],
    total: Array[T, M, N],
    epsilon: tesela.constexpr = 1e-6,
    BLOCK: tesela.constexpr = 1024,
    ROWS: tesela.constexpr = 1,
):
    """total = x + residual, rounded; y = total/√(mean(total²) + ε)·weight along rows (Zhang, Sennrich 2019)."""
    row = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    first = (x[row : row + ROWS, 0:BLOCK].to(f32) + residual[row : row + ROWS, 0:BLOCK].to(f32)).to(total.dtype)
    total[row : row + ROWS, 0:BLOCK] = first
    squares = (first.to(f32) ** 2).sum(axis=1)
    for j in tesela.range(BLOCK, N, BLOCK):
        piece = (x[row : row + ROWS, j : j + BLOCK].to(f32) + residual[row : row + ROWS, j : j + BLOCK].to(f32)).to(
            total.dtype
        )
        total[row : row + ROWS, j : j + BLOCK] = piece
        squares += (piece.to(f32) ** 2).sum(axis=1)
    scale = tesela.rsqrt(squares / N + epsilon)[:, None]
    y[row : row + ROWS, 0:BLOCK] = (first.to(f32) * scale * weight[0:BLOCK].to(f32)).to(y.dtype)
    for j in tesela.range(BLOCK, N, BLOCK):
        piece = (x[row : row + ROWS, j : j + BLOCK].to(f32) + residual[row : row + ROWS, j : j + BLOCK].to(f32)).to(
            total.dtype
        )
        y[row : row + ROWS, j : j + BLOCK] = (piece.to(f32) * scale * weight[j : j + BLOCK].to(f32)).to(y.dtype)


@tesela.kernel(variants=BLOCKS)
def row_sum(x: Array[T, M, N], y: Array[f32, M], BLOCK: tesela.constexpr = 1024, ROWS: tesela.constexpr = 1):
    """The sum of each row, in f32."""
    row = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    total = x[row : row + ROWS, 0:BLOCK].to(f32).sum(axis=1)
    for j in tesela.range(BLOCK, N, BLOCK):
        total += x[row : row + ROWS, j : j + BLOCK].to(f32).sum(axis=1)
    y[row : row + ROWS] = total


@tesela.kernel(variants=BLOCKS)
def cumsum(x: Array[T, M, N], y: Array[T, M, N], BLOCK: tesela.constexpr = 1024, ROWS: tesela.constexpr = 1):
    """The running sums of each row, in f32, rounded once each. Each piece adds to the sum of those before it."""
    row = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    before = tesela.zeros((ROWS,), f32)
    for j in tesela.range(0, N, BLOCK):
        piece = x[row : row + ROWS, j : j + BLOCK].to(f32)
        y[row : row + ROWS, j : j + BLOCK] = (before[:, None] + tesela.cumsum(piece, 1)).to(y.dtype)
        before += piece.sum(axis=1)


@tesela.kernel
def column_sum(x: Array[T, M, N], y: Array[f32, P, N], BM: tesela.constexpr = 64, BN: tesela.constexpr = 128):
    """The sum of each column, in f32, in P parts of the rows: with P > 1 more blocks work at once, and a second call sums the parts."""
    j, part = tesela.grid(tesela.ceildiv(N, BN), P)
    j = j * BN
    many = tesela.ceildiv(M, P)
    end = min((part + 1) * many, M)
    total = tesela.zeros((BM, BN), f32)
    for i in tesela.range(part * many, end, BM):
        inside = tesela.arange(BM) < (end - i).to(i32)
        total += tesela.where(inside[:, None], x[i : i + BM, j : j + BN].to(f32), 0)
    y[part, j : j + BN] = total.sum(axis=0)


@tesela.kernel
def row_argmax(x: Array[T, M, N], y: Array[i32, M], BLOCK: tesela.constexpr = 1024):
    """The index of the first maximum of each row, NaN counting as the largest; -1 for rows of no elements."""
    row = tesela.grid(M)
    best, where = tesela.full((), -math.inf, x.dtype), -1
    for j in tesela.range(0, N, BLOCK):
        piece = tesela.load(x, (row, j), BLOCK, fill=-math.inf)
        top = piece.max()
        # the first piece counts even where all of it is -inf; a NaN that was found is never replaced
        if where < 0 or (best == best and not top <= best):
            best = top
            where = j + piece.argmax(0)
    y[row] = i32(where)


@tesela.kernel
def histogram(x: Array[i32, N], counts: Array[i32, P], BINS: tesela.constexpr = 256, BLOCK: tesela.constexpr = 4096):
    """How often each of 0 … BINS - 1 occurs, added to what `counts` holds (P is BINS): a block counts in shared memory, and adds what it has found
    to the array once."""
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    found = tesela.histogram(tesela.load(x, i, BLOCK, fill=-1), BINS)
    tesela.atomic_add(counts[0:BINS], found)
