"""Elements of tiles picked by tiles of indices: `tesela.take_along_axis`, against NumPy, by the interpreter and compiled for both targets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from everywhere import everywhere

import tesela
from tesela import Array, bf16, f8E4M3FN, f8E5M2, f16, f32, f64, i8, i16, i32, i64, ui8
from tesela.dialects.layout import TVLayout
from tesela.passes.gathers import plan_gather

M, N, K, L = tesela.dims("M N K L")
T, INDEX = tesela.dtype("T"), tesela.dtype("I")
TYPES = {
    f64: np.float64, f32: np.float32, f16: np.float16, bf16: ml_dtypes.bfloat16, f8E4M3FN: ml_dtypes.float8_e4m3fn, f8E5M2: ml_dtypes.float8_e5m2,
    i64: np.int64, i32: np.int32, i16: np.int16, i8: np.int8, ui8: np.uint8,
}  # fmt: skip


def taken(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    """NumPy's, but for zeros where an index is outside."""
    inside = (index >= 0) & (index < x.shape[axis])
    return np.where(inside, np.take_along_axis(x, np.where(inside, index, 0), axis), np.zeros((), x.dtype))


def indices(rng: np.random.Generator, extent: int, shape: tuple[int, ...], dtype: type = np.int32) -> np.ndarray:
    """Some of them outside: below zero, one past the end, and far off."""
    index = rng.integers(-2, extent + 2, shape).astype(dtype)
    index.flat[0], index.flat[-1] = np.iinfo(dtype).max, np.iinfo(dtype).min
    return index


@tesela.kernel
def lines(x: Array[T, M], index: Array[INDEX, N], y: Array[T, N], X: tesela.constexpr, Y: tesela.constexpr):
    y[0:Y] = tesela.take_along_axis(x[0:X], index[0:Y], 0)


@tesela.kernel
def planes(x: Array[T, M, N], index: Array[INDEX, K, L], y: Array[T, K, L], X: tesela.constexpr, Y: tesela.constexpr, AXIS: tesela.constexpr):
    y[0 : Y[0], 0 : Y[1]] = tesela.take_along_axis(x[0 : X[0], 0 : X[1]], index[0 : Y[0], 0 : Y[1]], AXIS)


@tesela.kernel
def cubes(x: Array[T, M, N, K], index: Array[INDEX, M, N, L], y: Array[T, M, N, L], X: tesela.constexpr, COUNT: tesela.constexpr):
    """Along the last axis, and along the others by permutations of both."""
    t, i = x[0 : X[0], 0 : X[1], 0 : X[2]], index[0 : X[0], 0 : X[1], 0:COUNT]
    last = tesela.take_along_axis(t, i)
    middle = tesela.take_along_axis(t.transpose(0, 2, 1), i.transpose(0, 2, 1), 1).transpose(0, 2, 1)
    first = tesela.take_along_axis(t.transpose(2, 0, 1), i.transpose(2, 0, 1), -3).transpose(1, 2, 0)
    y[0 : X[0], 0 : X[1], 0:COUNT] = tesela.where(tesela.take_along_axis(t == t, i) & (middle == first) & (last == first), last, last + last)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_element_types(dtype, axis):
    rng = np.random.default_rng(axis)
    x = rng.integers(1, 100, (16, 64)).astype(TYPES[dtype])
    shape = (16, 32) if axis else (8, 64)
    index = indices(rng, x.shape[axis], shape, np.int64 if axis else np.int32)
    constants = {"X": x.shape, "Y": shape, "AXIS": axis, "T": dtype, "I": i64 if axis else i32}
    for found in everywhere(planes, {"x": x, "index": index, "y": np.zeros(shape, x.dtype)}, constants):
        np.testing.assert_array_equal(found["y"], taken(x, index, axis))


@pytest.mark.parametrize("x, y, axis", [((7, 33), (7, 5), -1), ((5, 12), (19, 12), 0), ((1, 3), (1, 100), 1), ((64, 3), (64, 3), 1), ((3, 128), (3, 128), -2), ((96, 40), (96, 1), 1)])
@pytest.mark.parametrize("dtype", [f32, f16, i8])
def test_extents(x, y, axis, dtype):
    rng = np.random.default_rng(sum(x))
    data = rng.integers(1, 100, x).astype(TYPES[dtype])
    index = indices(rng, x[axis], y)
    for found in everywhere(planes, {"x": data, "index": index, "y": np.zeros(y, data.dtype)}, {"X": x, "Y": y, "AXIS": axis, "T": dtype, "I": i32}):
        np.testing.assert_array_equal(found["y"], taken(data, index, axis))


@pytest.mark.parametrize("extent, count", [(1, 1), (7, 300), (32, 32), (128, 128), (500, 77)])
def test_one_dimension(extent, count):
    rng = np.random.default_rng(extent)
    x = rng.integers(1, 100, extent).astype(np.float32)
    index = indices(rng, extent, (count,)) if count > 1 else np.zeros(1, np.int32)
    for found in everywhere(lines, {"x": x, "index": index, "y": np.zeros(count, x.dtype)}, {"X": extent, "Y": count, "T": f32, "I": i32}):
        np.testing.assert_array_equal(found["y"], taken(x, index, 0))


@pytest.mark.parametrize("shape, count", [((2, 4, 32), 32), ((3, 5, 7), 4)])
def test_three_dimensions_and_comparisons(shape, count):
    rng = np.random.default_rng(count)
    x, index = rng.integers(1, 100, shape).astype(np.int32), indices(rng, shape[2], (*shape[:2], count))
    for found in everywhere(cubes, {"x": x, "index": index, "y": np.ones(index.shape, np.int32)}, {"X": shape, "COUNT": count, "T": i32, "I": i32}):
        expected = taken(x, index, 2)
        np.testing.assert_array_equal(found["y"], expected)  # of indices outside, zero twice


@tesela.kernel
def narrow(x: Array[f32, M, N], index: Array[T, N], y: Array[f32, M, N]):
    """Indices of 8 and 16 bits, and of one row for all."""
    y[0:4, 0:32] = tesela.take_along_axis(x[0:4, 0:32], index[0:32][None, :], 1)


@pytest.mark.parametrize("dtype", [i8, i16, ui8])
def test_narrow_indices_broadcast(dtype):
    rng = np.random.default_rng(3)
    x, index = rng.standard_normal((4, 32)).astype(np.float32), rng.integers(0, 40, 32).astype(TYPES[dtype])
    for found in everywhere(narrow, {"x": x, "index": index, "y": np.zeros_like(x)}, {"T": dtype}):
        np.testing.assert_array_equal(found["y"], taken(x, np.broadcast_to(index, (4, 32)).astype(int), 1))


@tesela.kernel
def by_codes(w: Array[i8, M, N], book: Array[f16, K], x: Array[f16, L, N], y: Array[f32, L, M]):
    """A product by a matrix whose elements are places in a code book: what gathers from tiles are for."""
    m, n = tesela.grid(tesela.ceildiv(L, 32), tesela.ceildiv(M, 32))
    table = tesela.load(book, 0, 16)[None, :]
    acc = tesela.zeros((32, 32), f32)
    for k in tesela.range(0, N, 32):
        codes = w[n * 32 : n * 32 + 32, k : k + 32]
        weights = tesela.take_along_axis(table, codes, 1)
        acc = tesela.dot(x[m * 32 : m * 32 + 32, k : k + 32], weights.T, acc)
    y[m * 32 : m * 32 + 32, n * 32 : n * 32 + 32] = acc


@pytest.mark.parametrize("n", [0, 32, 100])
def test_product_by_a_code_book(n):
    rng = np.random.default_rng(n)
    w, book = rng.integers(0, 16, (40, n)).astype(np.int8), rng.integers(-8, 8, 16).astype(np.float16)
    x = rng.integers(-4, 4, (33, n)).astype(np.float16)
    for found in everywhere(by_codes, {"w": w, "book": book, "x": x, "y": np.ones((33, 40), np.float32)}):
        np.testing.assert_array_equal(found["y"], x.astype(np.float32) @ book[w].astype(np.float32).T)


@tesela.kernel
def in_parts(x: Array[T, M, N], index: Array[i32, M, N], y: Array[T, M, N]):
    y[0:128, 0:256] = tesela.take_along_axis(x[0:128, 0:256], index[0:128, 0:256], 0)


def test_a_tile_larger_than_shared_memory():
    """262144 bytes, of which sm_80 holds 166912 and sm_90a 232448: two parts."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((128, 256))
    index = indices(rng, 128, x.shape)
    for found in everywhere(in_parts, {"x": x, "index": index, "y": np.zeros_like(x)}, {"T": f64}):
        np.testing.assert_array_equal(found["y"], taken(x, index, 0))


ROWS = "thread [32:(0,1), 4:(1,0)], value [2:(4,0)]"
COLUMNS = "thread [32:(1,0), 4:(0,2)], value [2:(0,1), 2:(0,8)]"


@pytest.mark.parametrize(
    "source, result, axis, shape, by",
    [
        (ROWS, ROWS, 1, (8, 32), "shuffles"),
        (ROWS, ROWS, 0, (8, 32), "shared"),  # along the warps
        (COLUMNS, COLUMNS, 0, (32, 16), "shuffles"),
        (ROWS, "thread [32:(0,1), 4:(2,0)], value [2:(1,0)]", 1, (8, 32), "shared"),  # other rows in a warp
        ("thread [32:(1,0)], value [4:(0,1)]", "thread [32:(1,0)], value [2:(0,1)]", 1, (32, 4), "names"),
        ("thread [32:(1,0)], value [3:(0,1)]", "thread [32:(1,0)], value [2:(0,1)]", 1, (32, 3), "names"),
        ("thread [8:(1,0), 4:(0,2)], value [2:(0,1)]", "thread [8:(1,0), 4:(0,1)], value []", 1, (8, 8), "shuffles"),
    ],
)
def test_ways(source, result, axis, shape, by):
    layouts = [TVLayout.parse(text) for text in (source, result)]
    warps = layouts[0].num_threads // 32
    plan = plan_gather(*layouts, axis, shape, 32, 32, warps)
    assert plan.by == by, plan.costs
    assert plan.cost == min(dict(plan.costs).values())
