"""Inputs that broke other tile compilers, where layouts, instructions and copies are chosen: each kind varied, on both targets, against NumPy or the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import run_both, same

import tesela
from tesela import Array, bf16, f32

TARGETS = ("sm_90a", "sm_80")
BF16 = ml_dtypes.bfloat16
M, N, K = tesela.dims("M N K")


def product(a, b) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


def random(shape, seed=0, dtype=BF16) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ---- steps of K that are no multiple of the instruction's -----------------------------------------------------------


@tesela.kernel
def steps(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], BK: tesela.constexpr = 24):
    i, j = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, BK):
        acc += A[i * 64 : i * 64 + 64, k : k + BK] @ B[j * 64 : j * 64 + 64, k : k + BK].T
    C[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = acc


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("block", "k"), [(24, 24), (24, 40), (24, 56), (8, 24), (40, 8), (72, 200), (24, 23)])
def test_the_tail_of_k_counts(target, block, k):
    a, b = random((64, k)), random((40, k), 1)
    c = np.zeros((64, 40), np.float32)
    tesela.compile(steps, target, BK=block)(a, b, c, device="sim")
    np.testing.assert_allclose(c, product(a, b.T), rtol=1e-5, atol=1e-4)


# ---- reductions over rows of any length -----------------------------------------------------------------------------

ROWS = """tile.kernel @k(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %s: memref<?xf32, strided<[1]>> [M], %t: memref<?xf32, strided<[1]>> [M])
    grid(%i = M ceildiv {rows}) attributes {{warps = 4 : i64}} {{
  %c0 = arith.constant 0 : index
  %r = arith.constant {rows} : index
  %m = arith.muli %i, %r : index
  %v = tile.load %x[%m, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<{rows}x{n}xf32>
  %a = tile.reduce sum %v axis 1 : tensor<{rows}x{n}xf32> -> tensor<{rows}xf32>
  %b = tile.reduce max %v axis 1 : tensor<{rows}x{n}xf32> -> tensor<{rows}xf32>
  tile.store %a, %s[%m] : tensor<{rows}xf32>, memref<?xf32, strided<[1]>>
  tile.store %b, %t[%m] : tensor<{rows}xf32>, memref<?xf32, strided<[1]>>
}}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 96, 100, 127, 2047])
def test_rows_of_any_length(target, rows, n):
    """Whole numbers, so that sums are exact in any order; all negative, so that padding would win as a maximum."""
    x = -np.random.default_rng(n).integers(1, 100, (5, n)).astype(np.float32)
    arrays = {"x": x, "s": np.zeros(5, np.float32), "t": np.zeros(5, np.float32)}
    simulated, _ = run_both(ROWS.format(rows=rows, n=n), arrays, target)
    same(simulated["s"], x.sum(axis=1))
    same(simulated["t"], x.max(axis=1))


# ---- NaN ------------------------------------------------------------------------------------------------------------

NANS = """tile.kernel @k(%x: memref<?x?xf32, strided<[?, 1]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N], %a: memref<?x?xf32, strided<[?, 1]>> [M, N],
    %b: memref<?x?xf32, strided<[?, 1]>> [M, N], %s: memref<?xf32, strided<[1]>> [M], %w: memref<?xi32, strided<[1]>> [M]) grid(%i = 1) attributes {{warps = 4 : i64}} {{
  %u = tile.load %x[%i, %i] : memref<?x?xf32, strided<[?, 1]>> -> tensor<4x{n}xf32>
  %v = tile.load %y[%i, %i] : memref<?x?xf32, strided<[?, 1]>> -> tensor<4x{n}xf32>
  %p = arith.maximumf %u, %v : tensor<4x{n}xf32>
  %q = arith.minimumf %v, %u : tensor<4x{n}xf32>
  %r = tile.reduce max %u axis 1 : tensor<4x{n}xf32> -> tensor<4xf32>
  %k = tile.reduce argmax %u axis 1 : tensor<4x{n}xf32> -> tensor<4xi32>
  tile.store %p, %a[%i, %i] : tensor<4x{n}xf32>, memref<?x?xf32, strided<[?, 1]>>
  tile.store %q, %b[%i, %i] : tensor<4x{n}xf32>, memref<?x?xf32, strided<[?, 1]>>
  tile.store %r, %s[%i] : tensor<4xf32>, memref<?xf32, strided<[1]>>
  tile.store %k, %w[%i] : tensor<4xi32>, memref<?xi32, strided<[1]>>
}}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [5, 64, 300])
def test_nan_wins_in_both_orders(target, n):
    rng = np.random.default_rng(n)
    x, y = (np.where(rng.random((4, n)) < 0.3, np.nan, rng.standard_normal((4, n))).astype(np.float32) for _ in range(2))
    x[0] = 1.0
    x[1, n - 1] = np.nan
    arrays = {"x": x, "y": y, "a": np.zeros_like(x), "b": np.zeros_like(x), "s": np.zeros(4, np.float32), "w": np.zeros(4, np.int32)}
    simulated, interpreted = run_both(NANS.format(n=n), arrays, target)
    for name in ("a", "b", "s", "w"):
        same(simulated[name], interpreted[name])
    assert np.isnan(simulated["a"]).sum() == np.isnan(simulated["b"]).sum() == (np.isnan(x) | np.isnan(y)).sum()
    assert simulated["s"][0] == 1 and simulated["w"][0] == 0 and np.isnan(simulated["s"][1])
    assert simulated["w"][1] == np.flatnonzero(np.isnan(x[1]))[0]


# ---- views: transposed, broadcast, every other row ------------------------------------------------------------------


def transposed(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.T).T


VIEWS = {
    "as it is": lambda x: x,
    "transposed": transposed,
    "broadcast rows": lambda x: np.broadcast_to(x[:1], x.shape),
    "broadcast columns": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "every third column": lambda x: np.repeat(x, 3, axis=1)[:, ::3],
}


ANY = tesela.strides(None, None)


@tesela.kernel
def add(x: Array[f32, M, N, ANY], y: Array[f32, M, N, ANY], z: Array[f32, M, N, ANY]):
    i, j = tesela.grid(tesela.ceildiv(M, 32), tesela.ceildiv(N, 64))
    z[i * 32 : i * 32 + 32, j * 64 : j * 64 + 64] = x[i * 32 : i * 32 + 32, j * 64 : j * 64 + 64] + y[i * 32 : i * 32 + 32, j * 64 : j * 64 + 64]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_operands(target, view):
    x, y = random((40, 72), 0, np.float32), random((40, 72), 1, np.float32)
    z = np.zeros_like(x)
    tesela.compile(add, target)(VIEWS[view](x), y, z, device="sim")
    same(z, VIEWS[view](x) + y)
    out = transposed(np.zeros_like(x))
    tesela.compile(add, target)(y, VIEWS[view](x), out, device="sim")
    same(out, VIEWS[view](x) + y)


@tesela.kernel
def viewed(A: Array[bf16, M, K, ANY], B: Array[bf16, N, K, ANY], C: Array[f32, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, 64):
        acc += A[i * 64 : i * 64 + 64, k : k + 64] @ B[j * 64 : j * 64 + 64, k : k + 64].T
    C[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = acc


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("view", VIEWS)
def test_views_in_products(target, view):
    a, b = random((64, 72)), random((64, 72), 1)
    kernel = tesela.compile(viewed, target)
    for left, right in ((VIEWS[view](a), b), (a, VIEWS[view](b))):
        c = np.zeros((64, 64), np.float32)
        kernel(left, right, c, device="sim")
        np.testing.assert_allclose(c, product(left, right.T), rtol=1e-5, atol=1e-4)


# ---- tiles that start anywhere --------------------------------------------------------------------------------------


@tesela.kernel
def shifted(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], S: tesela.constexpr = 1):
    acc = tesela.zeros((64, 64), f32)
    tesela.grid(1)
    for k in tesela.range(0, K, 64):
        acc += A[0:64, k + S : k + S + 64] @ B[0:64, k : k + 64].T
    C[0:64, 0:64] = acc


@tesela.kernel
def moved(x: Array[f32, M, N], y: Array[f32, M, N], S: tesela.constexpr = 1):
    i = tesela.grid(tesela.ceildiv(N, 64))
    y[0:8, i * 64 : i * 64 + 64] = x[0:8, i * 64 + S : i * 64 + S + 64]


def shift(x: np.ndarray, by: int) -> np.ndarray:
    """x[:, j + by] at j; zeros past the edges."""
    out = np.zeros_like(x)
    columns = np.arange(x.shape[1]) + by
    inside = (columns >= 0) & (columns < x.shape[1])
    out[:, inside] = x[:, columns[inside]]
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("by", [1, -1, 3, 8, -64, 70])
def test_starts_anywhere(target, by):
    a, b = random((64, 136)), random((64, 136), 1)
    c = np.zeros((64, 64), np.float32)
    kernel = tesela.compile(shifted, target, S=by)
    kernel(a, b, c, device="sim")
    np.testing.assert_allclose(c, product(shift(a, by), b.T), rtol=1e-5, atol=1e-4)
    if target == "sm_90a":  # TMA only where every start is a multiple of 16 bytes
        assert ("TMA of %A" in kernel.explain()) == (by % 8 == 0)
    x = random((8, 100), 2, np.float32)
    y = np.zeros_like(x)
    tesela.compile(moved, target, S=by)(x, y, device="sim")
    same(y, shift(x, by))


# ---- too many stages ------------------------------------------------------------------------------------------------


def test_the_table_of_shared_memory_says_what_would_fit():
    """As many stages as `explain` says fit, and one more does not."""
    kernel = tesela.compile(steps, "sm_90a", BK=64)
    text = kernel.explain()
    total = next(line for line in text.splitlines() if line.startswith("  total"))
    fitting = int(total.split(";")[1].split()[0])
    assert fitting == 232448 // (2 * (64 * 64 * 2 + 8)), total


# ---- casts and narrow integers --------------------------------------------------------------------------------------

CAST = """tile.kernel @k(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?x{t}, strided<[1]>> [N]) grid(%i = N ceildiv 64) attributes {{warps = 4 : i64}} {{
  %c64 = arith.constant 64 : index
  %m = arith.muli %i, %c64 : index
  %v = tile.load %x[%m] : memref<?xf32, strided<[1]>> -> tensor<64xf32>
  %w = tile.cast %v : tensor<64xf32> -> tensor<64x{t}>
  tile.store %w, %y[%m] : tensor<64x{t}>, memref<?x{t}, strided<[1]>>
}}"""
EDGES = [1.0625001, 1.0625, 1.1875, 448.0, 449.0, 463.9, 464.0, 465.0, 2.0**-10, 2.0**-9 * 1.5, np.inf, -np.inf, np.nan, 1.00390625, 1.01171875, -0.0, 1e-40]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["f8E4M3FN", "bf16"])
def test_casts_round_once(target, kind):
    """To nearest even from the source, in whatever layout and however packed; what overflows is as the interpreter has it."""
    x = np.array(EDGES + [-value for value in EDGES], np.float32)
    dtype = np.dtype({"f8E4M3FN": ml_dtypes.float8_e4m3fn, "bf16": BF16}[kind])
    simulated, interpreted = run_both(CAST.format(t=kind), {"x": x, "y": np.zeros(x.shape, dtype)}, target)
    found, wanted = simulated["y"].astype(np.float32), interpreted["y"].astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    finite = np.abs(x) <= 448
    np.testing.assert_array_equal(found[finite], x[finite].astype(dtype).astype(np.float32))
    assert found[0] == (1.125 if kind == "f8E4M3FN" else 1.0625)


@tesela.kernel
def negative(y: Array[tesela.i8, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 16), tesela.ceildiv(N, 32))
    y[i * 16 : i * 16 + 16, j * 32 : j * 32 + 32] = tesela.full((16, 32), -3, tesela.i8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(16, 32), (5, 37), (33, 1)])
def test_bytes_are_filled(target, shape):
    y = np.zeros(shape, np.int8)
    tesela.compile(negative, target)(y, device="sim")
    assert (y == -3).all()
