"""Tiles of indices and atomic updates, from Python to PTX: gathers, scatters, counts, at every level against NumPy, judged for races."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from everywhere import TARGETS, everywhere

import tesela
from tesela import Array, TeselaError, bf16, f16, f32, f64, i32, i64
from tesela.dialects.parsing import parse_module
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.simulator import settings
from tesela.simulator.bounds import allowed_results, check_results, is_anything

M, N, K, L = tesela.dims("M N K L")
T = tesela.dtype("T")
TYPES = {f64: np.float64, f32: np.float32, f16: np.float16, bf16: ml_dtypes.bfloat16, i32: np.int32, i64: np.int64}


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# --- Tiles of indices ---


@tesela.kernel
def gather_rows(x: Array[T, M, N], rows: Array[i32, K], y: Array[T, K, N]):
    i, j = tesela.grid(tesela.ceildiv(K, 16), tesela.ceildiv(N, 64))
    y[i * 16 : i * 16 + 16, j * 64 : j * 64 + 64] = x[rows[i * 16 : i * 16 + 16], j * 64 : j * 64 + 64]


@pytest.mark.parametrize("dtype", [f32, bf16, i64])
@pytest.mark.parametrize("n", [64, 70])
def test_gathered_rows(dtype, n):
    x, rows = random(20, n).astype(TYPES[dtype]), np.array([3, 0, 19, 3, -1, 20, 2**31 - 1, -(2**31), *range(13)], np.int32)
    inside = (rows >= 0) & (rows < 20)
    expected = np.where(inside[:, None], x[np.where(inside, rows, 0)], np.zeros((), x.dtype))
    for found in everywhere(gather_rows, {"x": x, "rows": rows, "y": np.ones((21, n), x.dtype)}, {"T": dtype}):
        np.testing.assert_array_equal(found["y"], expected)


def test_gathered_rows_move_16_bytes_at_a_time():
    ptx = gather_rows.compile("sm_90a", T=bf16).variant((64, 128), (64,), (64, 128)).ptx
    assert "ld.global.v4.b32" in ptx


@tesela.kernel
def gather_points(x: Array[f32, M, N], rows: Array[i32, K], columns: Array[i64, L], y: Array[f32, K, L]):
    """Indices that broadcast together."""
    y[0:16, 0:8] = x[rows[0:16][:, None], columns[0:8]]


def test_gathered_points():
    x, rng = random(9, 7), np.random.default_rng(0)
    rows, columns = rng.integers(0, 9, 16, dtype=np.int32), rng.integers(0, 7, 8)
    for found in everywhere(gather_points, {"x": x, "rows": rows, "columns": columns, "y": np.zeros((16, 8), np.float32)}):
        np.testing.assert_array_equal(found["y"], x[rows[:, None], columns])


@tesela.kernel
def mixed(x: Array[f32, 4, 5, 6], index: Array[i32, 8], y: Array[f32, 8, 4], z: Array[f32, 4, 8, 4], w: Array[f32, 8, 4]):
    at = index[0:8]
    y[0:8, 0:4] = x[1, 0:4, at]  # the index and the 1 do not stand side by side: their dimension comes first
    z[0:4, 0:8, 0:4] = x[0:4, at, 1:5]
    w[0:8, 0:4] = x[2, at, 2:6]


def test_mixed_indices_go_by_numpys_rule():
    x, at = random(4, 5, 6), np.array([0, 4, 2, 2, 1, 3, 0, 4], np.int32)
    arrays = {"x": x, "index": at, "y": np.zeros((8, 4), np.float32), "z": np.zeros((4, 8, 4), np.float32), "w": np.zeros((8, 4), np.float32)}
    for found in everywhere(mixed, arrays):
        np.testing.assert_array_equal(found["y"], x[1, 0:4, at])
        np.testing.assert_array_equal(found["z"], x[0:4, at, 1:5])
        np.testing.assert_array_equal(found["w"], x[2, at, 2:6])


@tesela.kernel
def scatter_rows(y: Array[T, K, N], rows: Array[i32, K], x: Array[T, M, N]):
    i = tesela.grid(tesela.ceildiv(K, 16)) * 16
    inside = tesela.arange(16) < (K - i).to(i32)
    at = tesela.where(inside, rows[i : i + 16], -1)
    for j in tesela.range(0, N, 32):
        x[at, j : j + 32] = y[i : i + 16, j : j + 32]


@pytest.mark.parametrize("n", [32, 37])
def test_scattered_rows(n):
    y, rows = random(21, n), np.random.default_rng(1).permutation(30)[:21].astype(np.int32)
    expected = np.ones((30, n), np.float32)
    expected[rows] = y
    for found in everywhere(scatter_rows, {"y": y, "rows": rows, "x": np.ones((30, n), np.float32)}, {"T": f32}):
        np.testing.assert_array_equal(found["x"], expected)


@tesela.kernel
def twice(index: Array[i32, N], x: Array[i32, N], y: Array[i32, N]):
    """What one thread scatters another gathers: a barrier must come between."""
    at = index[0:128]
    x[at] = tesela.arange(128)
    y[0:128] = x[0:128] + x[at]


def test_a_scatter_is_done_before_a_later_load():
    at = np.random.default_rng(2).permutation(128).astype(np.int32)
    x = np.zeros(128, np.int32)
    x[at] = np.arange(128)
    for found in everywhere(twice, {"index": at, "x": np.zeros(128, np.int32), "y": np.zeros(128, np.int32)}):
        np.testing.assert_array_equal(found["y"], x + x[at])


# --- Atomic updates ---


@tesela.kernel
def counts(x: Array[i32, N], found: Array[T, K]):
    i = tesela.grid(tesela.ceildiv(N, 64)) * 64
    inside = tesela.arange(64) < (N - i).to(i32)
    tesela.atomic_add(found[tesela.where(inside, x[i : i + 64], -1)], 1)


@pytest.mark.parametrize("dtype", TYPES)
def test_counts(dtype):
    x = np.random.default_rng(3).integers(-2, 13, 200, dtype=np.int32)
    expected = np.bincount(x[(x >= 0) & (x < 11)], minlength=11)
    arrays = {"x": x, "found": np.zeros(11, TYPES[dtype])}
    for found in everywhere(counts, arrays, {"T": dtype}, TARGETS[:1] if dtype is bf16 else TARGETS):
        np.testing.assert_array_equal(found["found"].astype(np.int64), expected)


def test_bf16_needs_hopper():
    with pytest.raises(TeselaError, match="an atomic 'add' of bf16 needs sm_90, the target is sm_80"):
        counts.compile("sm_80", T=bf16).variant()


@tesela.kernel
def column_sums(x: Array[f32, M, N], sums: Array[f32, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 16), tesela.ceildiv(N, 32))
    tesela.atomic_add(sums[j * 32 : j * 32 + 32], x[i * 16 : i * 16 + 16, j * 32 : j * 32 + 32].sum(axis=0))


@pytest.mark.parametrize("shape", [(16, 32), (100, 45), (1, 1)])
def test_sums_of_floats_stay_within_their_bounds(shape):
    x = random(*shape)
    for found in everywhere(column_sums, {"x": x, "sums": np.ones(shape[1], np.float32)}):
        np.testing.assert_allclose(found["sums"], 1 + x.astype(np.float64).sum(0), rtol=1e-4, atol=1e-5)


def test_bounds_of_sums_are_no_wider_than_they_must_be():
    module = column_sums.trace()
    x, sums = random(64, 32), np.zeros(32, np.float32)
    allowed = allowed_results(module, {"x": x, "sums": sums})["sums"]
    assert np.all(allowed.low < allowed.high) and np.all(allowed.high - allowed.low < 5e-4)
    whole = np.round(x * 8)
    allowed = allowed_results(module, {"x": whole, "sums": np.zeros(32, np.float32)})
    wrong = {"sums": whole.sum(0) + np.float32(1)}
    with pytest.raises(TeselaError, match="array 'sums': 32 of 32 elements are wrong"):
        check_results(wrong, allowed)


@tesela.kernel
def extremes(x: Array[T, N], largest: Array[T, 1], smallest: Array[T, 1]):
    i = tesela.grid(tesela.ceildiv(N, 32)) * 32
    piece = x[i : i + 32]
    tesela.atomic_max(largest[tesela.zeros((32,), i32)], piece)
    tesela.atomic_min(smallest[0], piece.min())


@pytest.mark.parametrize("special", [None, np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sign", [-1, 1])
def test_extremes_of_floats(special, sign):
    x = np.abs(random(64)) * np.float32(sign)
    x[5] = 0.0 if special is None else special
    start = np.array([-0.0], np.float32)
    arrays = {"x": x, "largest": start, "smallest": start.copy()}
    for found in everywhere(extremes, arrays, {"T": f32}):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(found["largest"], np.max(np.append(x, start)))
            np.testing.assert_array_equal(found["smallest"], np.min(np.append(x, start)))


@pytest.mark.parametrize("dtype", [i32, i64])
def test_extremes_of_integers(dtype):
    limits = np.iinfo(TYPES[dtype])
    x = np.random.default_rng(4).integers(limits.min, limits.max, 64, dtype=TYPES[dtype])
    arrays = {"x": x, "largest": np.zeros(1, x.dtype), "smallest": np.zeros(1, x.dtype)}
    for found in everywhere(extremes, arrays, {"T": dtype}):
        assert found["largest"] == max(x.max(), 0) and found["smallest"] == min(x.min(), 0)


@tesela.kernel
def bits(x: Array[i64, N], masks: Array[i64, 3]):
    i = tesela.grid(tesela.ceildiv(N, 32)) * 32
    piece = x[i : i + 32]
    zero = tesela.zeros((32,), i32)
    tesela.atomic_and(masks[zero], piece)
    tesela.atomic_or(masks[zero + 1], piece)
    tesela.atomic_xor(masks[zero + 2], piece)


def test_bits():
    x = np.random.default_rng(5).integers(0, 2**62, 64)
    for found in everywhere(bits, {"x": x, "masks": np.array([-1, 0, 5])}):
        assert list(found["masks"]) == [np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), 5 ^ np.bitwise_xor.reduce(x)]


@tesela.kernel
def tickets(taken: Array[i32, 1], order: Array[i32, K], places: Array[i32, K, 40]):
    """Each block draws one number for all its threads, and its elements draw one each."""
    block = tesela.grid(K)
    order[block] = tesela.atomic_add(taken[0], 1)
    places[block, 0:40] = tesela.atomic_add(taken[tesela.zeros((40,), i32)], 1)


def test_what_was_found():
    arrays = {"taken": np.zeros(1, np.int32), "order": np.zeros(6, np.int32), "places": np.zeros((6, 40), np.int32)}
    for found in everywhere(tickets, arrays):
        drawn = np.concatenate([found["order"], found["places"].reshape(-1)])
        assert sorted(drawn) == list(range(6 * 41)) and found["taken"] == 6 * 41


@tesela.kernel
def locks(owner: Array[T, N], before: Array[T, N], won: Array[T, N]):
    i = tesela.grid(tesela.ceildiv(N, 32)) * 32
    before[i : i + 32] = tesela.atomic_exchange(owner[i : i + 32], 7)
    won[i : i + 32] = tesela.atomic_cas(owner[i : i + 32], 7, tesela.arange(32).to(owner.dtype))


@pytest.mark.parametrize("dtype", [i32, i64, f32])
def test_exchange_and_compare_and_swap(dtype):
    owner = np.arange(50).astype(TYPES[dtype])
    for found in everywhere(locks, {"owner": owner, "before": np.zeros_like(owner), "won": np.zeros_like(owner)}, {"T": dtype}):
        np.testing.assert_array_equal(found["before"], owner)
        assert (found["won"] == 7).all()
        np.testing.assert_array_equal(found["owner"], np.arange(50) % 32)


@tesela.kernel
def in_turn(x: Array[i32, N], y: Array[i32, N]):
    """Atomic updates and ordinary accesses of one block keep their order, also round a loop."""
    every = tesela.arange(64)
    for _k in tesela.range(3):
        x[0:64] = x[0:64] * 2
        tesela.atomic_add(x[63 - every], every)
        tesela.atomic_add(x[every], 1)
    y[0:64] = x[0:64]


def test_order_within_a_block():
    x = np.arange(64, dtype=np.int32)
    expected = x.copy()
    for _ in range(3):
        expected = expected * 2 + np.arange(64)[::-1] + 1
    for found in everywhere(in_turn, {"x": x, "y": np.zeros(64, np.int32)}):
        np.testing.assert_array_equal(found["y"], expected)


def test_updates_without_a_reader_return_nothing():
    ptx = column_sums.compile("sm_90a").ptx
    assert "red.relaxed.gpu.global.add.f32" in ptx and "atom." not in ptx


@pytest.mark.parametrize(
    ("values", "wanted"), [([np.inf, 1, -3], np.inf), ([np.inf, -np.inf, 1], np.nan), ([np.nan, np.inf, 0], np.nan), ([60000, 60000, -60000], "anything")]
)
def test_sums_that_are_no_finite_numbers(values, wanted):
    """Infinities and NaN are so in any order; finite f16 numbers may become infinite on the way."""
    x, sums = np.array([*values, 0, 0, 0, 0, 0], np.float16), np.zeros(1, np.float16)
    module = parse_module("""
        tile.kernel @add(%x: memref<?xf16, strided<[1]>> [M], %sums: memref<?xf16, strided<[1]>> [N]) grid(%i = 1) {
          %v = tile.load %x[%i] : memref<?xf16, strided<[1]>> -> tensor<8xf16>
          %0 = arith.constant 0 : i32
          %at = tile.full %0 : i32 -> tensor<8xi32>
          %old = tile.atomic add %v, %sums[%at] dims [-1] : tensor<8xf16>, memref<?xf16, strided<[1]>>[tensor<8xi32>] -> tensor<8xf16>
        }""")
    allowed = allowed_results(module, {"x": x, "sums": sums})["sums"]
    if wanted == "anything":
        assert is_anything(allowed).all()
        return
    check_results({"sums": np.array([wanted], np.float16)}, {"sums": allowed})
    with pytest.raises(TeselaError, match="1 of 1 elements are wrong"):
        check_results({"sums": np.array([5], np.float16)}, {"sums": allowed})


# ---- several neighbours in one update ---------------------------------------------------------------------------------


@tesela.kernel
def added_rows(x: Array[T, M, N], where: Array[i32, M], out: Array[T, K, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 16), tesela.ceildiv(N, 64))
    rows = where[i * 16 : i * 16 + 16]
    tesela.atomic_add(out[rows, j * 64 : j * 64 + 64], x[i * 16 : i * 16 + 16, j * 64 : j * 64 + 64])


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", [f32, f16, bf16])
@pytest.mark.parametrize(("m", "n"), [(32, 128), (16, 64), (21, 72), (5, 67), (7, 68)])
def test_rows_are_added_several_elements_at_a_time(target, dtype, m, n):
    """As wide as rows are aligned: 16 bytes where they are multiples of that, else 8 or one element; on sm_80 always one."""
    if dtype is bf16 and target == "sm_80":
        return
    rng = np.random.default_rng(m)
    x, where = rng.integers(-2, 3, (m, n)).astype(TYPES[dtype]), rng.integers(-1, 6, m, dtype=np.int32)
    out = rng.integers(-2, 3, (5, n)).astype(TYPES[dtype])
    expected = out.astype(np.float64)
    for row, place in enumerate(where):
        if 0 <= place < 5:
            expected[place] += x[row].astype(np.float64)
    kernel = added_rows.compile(target, T=dtype)
    with settings(races=True):
        kernel(x=x, where=where, out=out, device="sim")
    np.testing.assert_array_equal(out.astype(np.float64), expected)
    size = np.dtype(TYPES[dtype]).itemsize
    width = next(w for w in (16, 8, 4, 2) if n * size % w == 0)
    found = set(re.findall(r"\bred\S+", kernel.ptx))
    if target == "sm_80" or width <= size:
        assert found == {f"red.relaxed.gpu.global.add.{'f32' if dtype is f32 else 'noftz.f16' if dtype is f16 else 'noftz.bf16'}"}
    elif dtype is f32:
        assert found == {f"red.global.add.v{width // 4}.f32"}
    else:
        pair = f"{'f16' if dtype is f16 else 'bf16'}x2"
        assert found == {f"red.global.add.noftz.v{width // 4}.{pair}" if width > 4 else f"red.global.add.noftz.{pair}"}
    if find_ptxas():
        assemble(kernel.ptx)


@tesela.kernel
def asked_rows(x: Array[T, M, N], where: Array[i32, M], out: Array[T, K, N], found: Array[T, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 16), tesela.ceildiv(N, 64))
    rows = where[i * 16 : i * 16 + 16]
    found[i * 16 : i * 16 + 16, j * 64 : j * 64 + 64] = tesela.atomic_add(
        out[rows, j * 64 : j * 64 + 64], x[i * 16 : i * 16 + 16, j * 64 : j * 64 + 64]
    )


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", [f32, f16, bf16])
@pytest.mark.parametrize(("m", "n"), [(32, 128), (16, 64), (21, 72), (5, 67), (7, 68)])
def test_what_was_there_is_found_several_elements_at_a_time(target, dtype, m, n):
    """`atom` as wide as `red`. Rows outside of the array, and what is beyond its end, are left alone and found as 0."""
    if dtype is bf16 and target == "sm_80":
        return
    rng = np.random.default_rng(m)
    x = rng.integers(-2, 3, (m, n)).astype(TYPES[dtype])
    where = rng.permutation(m + 2)[:m].astype(np.int32) - 1  # each row once: what is found does not depend on an order
    out = rng.integers(-2, 3, (m, n)).astype(TYPES[dtype])
    expected, before = out.astype(np.float64), np.zeros((m, n))
    for row, place in enumerate(where):
        if 0 <= place < m:
            before[row] = expected[place]
            expected[place] += x[row].astype(np.float64)
    found = np.full((m, n), 7).astype(TYPES[dtype])
    kernel = asked_rows.compile(target, T=dtype)
    with settings(races=True):
        kernel(x=x, where=where, out=out, found=found, device="sim")
    np.testing.assert_array_equal(out.astype(np.float64), expected)
    np.testing.assert_array_equal(found.astype(np.float64), before)
    size = np.dtype(TYPES[dtype]).itemsize
    width = next(w for w in (16, 8, 4, 2) if n * size % w == 0)
    names = set(re.findall(r"\b(?:atom|red)\.\S+", kernel.ptx))
    if target == "sm_80" or width <= size:
        assert names == {f"atom.relaxed.gpu.global.add.{'f32' if dtype is f32 else 'noftz.f16' if dtype is f16 else 'noftz.bf16'}"}
    elif dtype is f32:
        assert names == {f"atom.global.add.v{width // 4}.f32"}
    else:
        pair = f"{'f16' if dtype is f16 else 'bf16'}x2"
        assert names == {f"atom.global.add.noftz.v{width // 4}.{pair}" if width > 4 else f"atom.global.add.noftz.{pair}"}
    if find_ptxas():
        assemble(kernel.ptx)


@pytest.mark.parametrize("size", [16, 256, 1024])  # fewer elements than threads: one adds, the others are told
def test_updates_that_are_asked_for_are_told_to_all_holders(size):
    @tesela.kernel
    def asked(x: Array[f32, N], out: Array[f32, N], found: Array[f32, N]):
        i = tesela.grid(tesela.ceildiv(N, size)) * size
        found[i : i + size] = tesela.atomic_add(out[i : i + size], x[i : i + size])

    out, found = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    kernel = asked.compile("sm_90a")
    kernel(x=np.full(size, 2, np.float32), out=out, found=found, device="sim")
    assert np.all(out == np.arange(size) + 2) and np.all(found == np.arange(size)) and not re.search(r"\bred\.", kernel.ptx)
