"""Kernels that take one row of a matrix in a block: softmax, layer norm, RMS norm, reductions."""

from __future__ import annotations

import math

import tesela
from tesela import Array, f32, i32

M, N = tesela.dims("M N")
T = tesela.dtype("T")


@tesela.kernel
def softmax(x: Array[T, M, N], y: Array[T, M, N], BLOCK: tesela.constexpr = 1024):
    """y = softmax(x) along rows, reading x twice: the maximum and the sum run together, the sum rescaled where the maximum
    grows (Milakov, Gimelshein 2018). A row of nothing but -inf gives zeros."""
    row = tesela.grid(M)
    top, total = -math.inf, 0.0
    for j in tesela.range(0, N, BLOCK):
        piece = tesela.load(x, (row, j), BLOCK, fill=-math.inf).to(f32)
        new_top = max(top, piece.max())
        shift = max(new_top, -1e38)  # finite, so that exp(-inf - shift) is 0 and not exp(NaN)
        total = total * tesela.exp(top - shift) + tesela.exp(piece - shift).sum()
        top = new_top
    shift = max(top, -1e38)
    scale = 1 / total if total > 0 else 0.0
    for j in tesela.range(0, N, BLOCK):
        y[row, j : j + BLOCK] = (tesela.exp(x[row, j : j + BLOCK].to(f32) - shift) * scale).to(y.dtype)


@tesela.kernel
def layer_norm(
    x: Array[T, M, N],
    weight: Array[T, N],
    bias: Array[T, N],
    y: Array[T, M, N],
    epsilon: tesela.constexpr = 1e-5,
    BLOCK: tesela.constexpr = 1024,
):
    """y = (x - mean)/√(variance + ε)·weight + bias along rows (Ba, Kiros, Hinton 2016). Mean and squared deviations of pieces are
    merged (Chan, Golub, LeVeque 1983), so that nothing cancels where the mean is large."""
    row = tesela.grid(M)
    mean, deviations, count = 0.0, 0.0, 0.0
    for j in tesela.range(0, N, BLOCK):
        piece = x[row, j : j + BLOCK].to(f32)
        size = min(N - j, BLOCK)
        inside = tesela.arange(BLOCK) < size.to(i32)
        piece_mean = piece.sum() / f32(size)
        centred = tesela.where(inside, piece - piece_mean, 0)
        new_count = count + f32(size)
        step = piece_mean - mean
        deviations = deviations + (centred * centred).sum() + step * step * (count * f32(size) / new_count)
        mean = mean + step * (f32(size) / new_count)
        count = new_count
    scale = tesela.rsqrt(deviations / N + epsilon)
    for j in tesela.range(0, N, BLOCK):
        normal = (x[row, j : j + BLOCK].to(f32) - mean) * scale
        result = normal * weight[j : j + BLOCK].to(f32) + bias[j : j + BLOCK].to(f32)
        y[row, j : j + BLOCK] = result.to(y.dtype)


@tesela.kernel
def rms_norm(
    x: Array[T, M, N],
    residual: Array[T, M, N],
    weight: Array[T, N],
    y: Array[T, M, N],
    total: Array[T, M, N],
    epsilon: tesela.constexpr = 1e-6,
    BLOCK: tesela.constexpr = 1024,
):
    """total = x + residual, rounded; y = total/√(mean(total²) + ε)·weight along rows (Zhang, Sennrich 2019)."""
    row = tesela.grid(M)
    squares = 0.0
    for j in tesela.range(0, N, BLOCK):
        piece = (x[row, j : j + BLOCK].to(f32) + residual[row, j : j + BLOCK].to(f32)).to(total.dtype)
        total[row, j : j + BLOCK] = piece
        squares += (piece.to(f32) ** 2).sum()
    scale = tesela.rsqrt(squares / N + epsilon)
    for j in tesela.range(0, N, BLOCK):
        piece = x[row, j : j + BLOCK].to(f32) + residual[row, j : j + BLOCK].to(f32)
        rounded = piece.to(total.dtype).to(f32)
        y[row, j : j + BLOCK] = (rounded * scale * weight[j : j + BLOCK].to(f32)).to(y.dtype)


@tesela.kernel
def row_sum(x: Array[T, M, N], y: Array[f32, M], BLOCK: tesela.constexpr = 1024):
    """The sum of each row, in f32."""
    row = tesela.grid(M)
    total = 0.0
    for j in tesela.range(0, N, BLOCK):
        total += x[row, j : j + BLOCK].to(f32).sum()
    y[row] = total


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
