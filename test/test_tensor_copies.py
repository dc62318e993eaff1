"""Tensor copies of arrays of one to five dimensions, with every swizzle, as an author pins it: what is read back is what was there."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import Array, bf16, f32
from tesela.dialects.layout import SharedLayout
from tesela.simulator.launcher import settings

A, B, C, D, E = tesela.dims("A B C D E")
T = tesela.dtype("T")


@tesela.kernel
def line(x: Array[T, A], y: Array[T, A], S: tesela.constexpr, W: tesela.constexpr):
    i = tesela.grid(tesela.ceildiv(A, W)) * W
    ring = tesela.channel((W,), T, depth=2, shared=S)
    ring.put(x[i : i + W])
    with ring.get() as tile:
        y[i : i + W] = tile


@tesela.kernel
def plane(x: Array[T, D, E], y: Array[T, D, E], S: tesela.constexpr, W: tesela.constexpr):
    i, j = tesela.grid(tesela.ceildiv(D, 16), tesela.ceildiv(E, W))
    ring = tesela.channel((16, W), T, depth=2, shared=S)
    ring.put(x[i * 16 : i * 16 + 16, j * W : j * W + W])
    with ring.get() as tile:
        y[i * 16 : i * 16 + 16, j * W : j * W + W] = tile


@tesela.kernel
def cube(x: Array[T, C, D, E], y: Array[T, C, D, E], S: tesela.constexpr, W: tesela.constexpr):
    c, i, j = tesela.grid(C, tesela.ceildiv(D, 16), tesela.ceildiv(E, W))
    ring = tesela.channel((16, W), T, depth=2, shared=S)
    ring.put(x[c, i * 16 : i * 16 + 16, j * W : j * W + W])
    with ring.get() as tile:
        y[c, i * 16 : i * 16 + 16, j * W : j * W + W] = tile


@tesela.kernel
def four(x: Array[T, B, C, D, E], y: Array[T, B, C, D, E], S: tesela.constexpr, W: tesela.constexpr):
    c, i, j = tesela.grid(C, tesela.ceildiv(D, 16), tesela.ceildiv(E, W))
    ring = tesela.channel((16, W), T, depth=2, shared=S)
    for b in tesela.range(0, B):
        ring.put(x[b, c, i * 16 : i * 16 + 16, j * W : j * W + W])
        with ring.get() as tile:
            y[b, c, i * 16 : i * 16 + 16, j * W : j * W + W] = tile


@tesela.kernel
def five(x: Array[T, A, B, C, D, E], y: Array[T, A, B, C, D, E], S: tesela.constexpr, W: tesela.constexpr):
    a, i, j = tesela.grid(A, tesela.ceildiv(D, 16), tesela.ceildiv(E, W))
    ring = tesela.channel((16, W), T, depth=2, shared=S)
    for b in tesela.range(0, B):
        for c in tesela.range(0, C):
            ring.put(x[a, b, c, i * 16 : i * 16 + 16, j * W : j * W + W])
            with ring.get() as tile:
                y[a, b, c, i * 16 : i * 16 + 16, j * W : j * W + W] = tile


RANKS = {1: line, 2: plane, 3: cube, 4: four, 5: five}
SHAPE = (2, 3, 2, 20, 72)


def copied(kernel, x: np.ndarray, **constants) -> tuple[np.ndarray, object]:
    compiled = tesela.compile(kernel, "sm_90a", **constants)
    y = np.zeros_like(x)
    with settings(races=True):
        compiled(x, y, device="sim")
    return y, compiled


@pytest.mark.parametrize("dtype", [f32, bf16])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_every_rank_and_swizzle(rank, swizzle, dtype):
    kind = {f32: np.float32, bf16: ml_dtypes.bfloat16}[dtype]
    x = np.random.default_rng(rank).standard_normal(SHAPE[5 - rank :]).astype(kind)
    width = (swizzle or 64) // x.itemsize
    shared = str(SharedLayout.tma((16, width), x.itemsize, swizzle, (1, 0)))
    y, compiled = copied(RANKS[rank], x, T=dtype, S=shared, W=width)
    np.testing.assert_array_equal(x, y)
    assert f"cp.async.bulk.tensor.{rank}d.shared" in compiled.last.ptx and not compiled.notes


@pytest.mark.parametrize(("width", "boxes"), [(32, 1), (256, 1), (96, 1), (512, 2), (1024, 4), (768, 3)])
def test_a_line_lies_as_it_is(width, boxes):
    """The compiler's own layout: boxes of 256 elements at most, one after another (CUDA Driver API, cuTensorMapEncodeTiled: boxDim)."""
    x = np.random.default_rng(width).standard_normal(3000).astype(np.float32)
    y, compiled = copied(line, x, T=f32, S=None, W=width)
    np.testing.assert_array_equal(x, y)
    assert compiled.last.ptx.count("cp.async.bulk.tensor.1d.shared") == boxes and not compiled.notes


def test_a_line_that_no_boxes_fill():
    """260 elements are no multiple of a box of whole 128 bytes: by cp.async, which is said."""
    x = np.random.default_rng(1).standard_normal(3000).astype(np.float32)
    y, compiled = copied(line, x, T=f32, S=None, W=260)
    np.testing.assert_array_equal(x, y)
    assert "tensor.1d" not in compiled.last.ptx and any("TMA does not write the layout" in note for note in compiled.notes)
