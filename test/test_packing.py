"""Pairs, elements of four bits, and counts of a tile, from Python to PTX, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from everywhere import everywhere

import tesela
from tesela import Array, bf16, f16, f32, i8, i16, i32, i64
from tesela.kernels import rows

M, N, K = tesela.dims("M N K")
T = tesela.dtype("T")
TYPES = {f32: np.float32, f16: np.float16, bf16: ml_dtypes.bfloat16, i8: np.int8, i16: np.int16, i32: np.int32, i64: np.int64}


@tesela.kernel
def interleave(a: Array[T, M, N], b: Array[T, M, N], y: Array[T, M, 2 * N], low: Array[T, M, N], high: Array[T, M, N]):
    i = tesela.grid(tesela.ceildiv(M, 8)) * 8
    both = tesela.join(a[i : i + 8, 0:32], b[i : i + 8, 0:32]).reshape(8, 64)
    y[i : i + 8, 0:64] = both
    first, second = tesela.split((both + both).reshape(8, 32, 2))
    low[i : i + 8, 0:32] = first
    high[i : i + 8, 0:32] = second


@pytest.mark.parametrize("dtype", TYPES)
def test_join_and_split(dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-50, 50, (11, 32)).astype(TYPES[dtype]) for _ in range(2))
    arrays = {"a": a, "b": b, "y": np.zeros((11, 64), a.dtype), "low": np.zeros_like(a), "high": np.zeros_like(a)}
    for found in everywhere(interleave, arrays, {"T": dtype}):
        np.testing.assert_array_equal(found["y"], np.stack([a, b], -1).reshape(11, 64))
        np.testing.assert_array_equal(found["low"], a + a)
        np.testing.assert_array_equal(found["high"], b + b)


@tesela.kernel
def single_values(x: Array[T, 3], y: Array[T, 6], z: Array[T, 3, 2]):
    """Tiles that do not fill a thread's vector, and pairs laid out for something else than a join."""
    t = x[0:3]
    y[0:6] = tesela.join(t, -t).reshape(6)
    first, second = tesela.split(z[0:3, 0:2])
    z[0:3, 0:2] = tesela.join(second, first)


@pytest.mark.parametrize("dtype", [f16, f32])
def test_short_tiles(dtype):
    x, z = np.arange(1, 4).astype(TYPES[dtype]), np.arange(6).reshape(3, 2).astype(TYPES[dtype])
    for found in everywhere(single_values, {"x": x, "y": np.zeros(6, x.dtype), "z": z}, {"T": dtype}):
        np.testing.assert_array_equal(found["y"], np.stack([x, -x], -1).reshape(6))
        np.testing.assert_array_equal(found["z"], z[:, ::-1])


@tesela.kernel
def nibbles(x: Array[i8, N], signed: Array[i8, 2 * N], unsigned: Array[i32, 2 * N], floats: Array[T, 2 * N], back: Array[i8, N]):
    i = tesela.grid(tesela.ceildiv(N, 64)) * 64
    packed = x[i : i + 64]
    numbers = tesela.unpack(packed, "i4")
    signed[2 * i : 2 * i + 128] = numbers
    unsigned[2 * i : 2 * i + 128] = tesela.unpack(packed, "u4", i32)
    floats[2 * i : 2 * i + 128] = tesela.unpack(packed, "e2m1", floats.dtype)
    back[i : i + 64] = tesela.pack(numbers, "i4")


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@pytest.mark.parametrize("dtype", [f16, bf16, f32])
def test_elements_of_four_bits(dtype):
    x = np.arange(-128, 128).astype(np.int8)
    codes = np.stack([x & 15, (x >> 4) & 15], -1).reshape(-1)
    arrays = {"x": x, "signed": np.zeros(512, np.int8), "unsigned": np.zeros(512, np.int32)}
    arrays |= {"floats": np.ones(512, TYPES[dtype]), "back": np.zeros_like(x)}
    for found in everywhere(nibbles, arrays, {"T": dtype}):
        np.testing.assert_array_equal(found["signed"], np.where(codes > 7, codes - 16, codes))
        np.testing.assert_array_equal(found["unsigned"], codes)
        expected = np.array([*E2M1, *(-x for x in E2M1)], np.float32)[codes]
        np.testing.assert_array_equal(found["floats"].astype(np.float32), expected)
        np.testing.assert_array_equal(np.signbit(found["floats"]), np.signbit(expected))
        np.testing.assert_array_equal(found["back"], x)


@tesela.kernel
def packs(x: Array[i32, N], y: Array[i8, K]):
    y[0:16] = tesela.pack(x[0:32], "u4")


def test_packing_keeps_the_low_bits():
    x = np.arange(-40, 24, 2, dtype=np.int32)
    expected = ((x[::2] & 15) | (x[1::2] & 15) << 4).astype(np.uint8).view(np.int8)
    for found in everywhere(packs, {"x": x, "y": np.zeros(16, np.int8)}):
        np.testing.assert_array_equal(found["y"], expected)


@tesela.kernel
def counted(x: Array[i32, M, N], y: Array[i32, M, K], BINS: tesela.constexpr):
    row = tesela.grid(M)
    total = tesela.zeros((BINS,), i32)
    for j in tesela.range(0, N, 48):
        piece = tesela.load(x, (row, j), 48, fill=-1)
        total += tesela.histogram(piece.reshape(3, 16), BINS)
    y[row, 0:BINS] = total


@pytest.mark.parametrize("bins", [1, 7, 128, 300])
def test_histogram_of_tiles(bins):
    x = np.random.default_rng(1).integers(-3, bins + 2, (3, 100), dtype=np.int32)
    x[0, 0], x[0, 1] = 2**31 - 1, -(2**31)
    expected = np.stack([np.bincount(row[(row >= 0) & (row < bins)], minlength=bins) for row in x])
    for found in everywhere(counted, {"x": x, "y": np.zeros((3, bins), np.int32)}, {"BINS": bins}):
        np.testing.assert_array_equal(found["y"], expected)


def test_histogram_kernel():
    x = np.random.default_rng(2).integers(-3, 12, 1000, dtype=np.int32)
    arrays = {"x": x, "counts": np.ones(10, np.int32)}
    for found in everywhere(rows.histogram, arrays, {"BINS": 10, "BLOCK": 256}):
        np.testing.assert_array_equal(found["counts"], 1 + np.bincount(x[(x >= 0) & (x < 10)], minlength=10))
