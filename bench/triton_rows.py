"""Row kernels in Triton, for comparison: softmax, layer norm, RMS norm, sums; a row in registers. Importing this needs Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from triton import language as tl


@triton.jit
def softmax(x, y, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * columns + column, inside, -float("inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(y + row * columns + column, (weights / tl.sum(weights, 1)[:, None]).to(y.dtype.element_ty), inside)


@triton.jit
def layer_norm(x, weight, bias, y, rows, columns, epsilon, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    factor = tl.load(weight + column, column < columns, 0.0).to(tl.float32)
    added = tl.load(bias + column, column < columns, 0.0).to(tl.float32)
    values = tl.load(x + row * columns + column, inside, 0.0).to(tl.float32)
    centred = tl.where(inside, values - (tl.sum(values, 1) / columns)[:, None], 0.0)
    normal = centred * tl.rsqrt(tl.sum(centred * centred, 1) / columns + epsilon)[:, None]
    tl.store(y + row * columns + column, (normal * factor + added).to(y.dtype.element_ty), inside)


@triton.jit
def rms_norm(x, residual, weight, y, total, rows, columns, epsilon, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    place = row * columns + column
    factor = tl.load(weight + column, column < columns, 0.0).to(tl.float32)
    rounded = (tl.load(x + place, inside, 0.0).to(tl.float32) + tl.load(residual + place, inside, 0.0).to(tl.float32)).to(total.dtype.element_ty)
    tl.store(total + place, rounded, inside)
    values = rounded.to(tl.float32)
    normal = values * tl.rsqrt(tl.sum(values * values, 1) / columns + epsilon)[:, None]
    tl.store(y + place, (normal * factor).to(y.dtype.element_ty), inside)


@triton.jit
def row_sum(x, y, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (column < columns)
    tl.store(y + row, tl.sum(tl.load(x + row[:, None] * columns + column, inside, 0.0).to(tl.float32), 1), row < rows)


@triton.jit
def cumsum(x, y, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * columns + column, inside, 0.0).to(tl.float32)
    tl.store(y + row * columns + column, tl.cumsum(values, 1).to(y.dtype.element_ty), inside)


PROGRAMS = {"softmax": softmax, "layer_norm": layer_norm, "rms_norm": rms_norm, "row_sum": row_sum, "cumsum": cumsum}


def configurations(columns: int) -> list[dict[str, Any]]:
    """What is tried, by the length of a row."""
    if columns <= 2048:
        tried = ((1, 4), (1, 1), (2, 4), (4, 4), (4, 8), (1, 2))
    else:
        tried = ((1, 8), (1, 16), (1, 4), (1, 32), (2, 16))
    return [{"ROWS": rows, "num_warps": warps} for rows, warps in tried]


def launcher(name: str, arrays: tuple[torch.Tensor, ...], epsilon: float | None, config: dict[str, Any]) -> Callable[[], object]:
    """What launches a program of PROGRAMS on its arrays, the first of which is the matrix."""
    rows, columns = arrays[0].shape
    scalars = (rows, columns) if epsilon is None else (rows, columns, epsilon)
    grid = (triton.cdiv(rows, config["ROWS"]),)
    return lambda: PROGRAMS[name][grid](*arrays, *scalars, BLOCK=triton.next_power_of_2(columns), **config)
