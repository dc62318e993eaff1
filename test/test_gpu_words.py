"""Single words of the language on a GPU: tiles of indices, gathers from tiles, tensor copies, atomic updates, pairs, packed elements, counts, inline PTX, assumptions."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
import test_assume
import test_atomics
import test_gather
import test_inline_ptx
import test_packing
import test_tensor_copies
from everywhere import on_gpu

from tesela import bf16, f16, f32, f64, i8, i32, i64
from tesela.dialects.layout import SharedLayout
from tesela.kernels import rows

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(0)
ROWS = np.array([3, 0, 19, 3, -1, 20, 2**31 - 1, -(2**31), *range(13)], np.int32)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def integers(low, high, *shape, dtype=np.int32):
    return RNG.integers(low, high, shape, dtype=dtype)


def cases():
    """(name, kernel, arrays, compile-time values)."""
    for dtype, kind in ((f32, np.float32), (bf16, ml_dtypes.bfloat16), (i64, np.int64)):
        arrays = {"x": (floats(20, 70) * 9).astype(kind), "rows": ROWS, "y": np.ones((21, 70), kind)}
        yield f"gather {dtype.name}", test_atomics.gather_rows, arrays, {"T": dtype}
    arrays = {"y": floats(21, 37), "rows": RNG.permutation(30)[:21].astype(np.int32), "x": np.ones((30, 37), np.float32)}
    yield "scatter", test_atomics.scatter_rows, arrays, {"T": f32}
    arrays = {"index": RNG.permutation(128).astype(np.int32), "x": np.zeros(128, np.int32), "y": np.zeros(128, np.int32)}
    yield "scatter and load", test_atomics.twice, arrays, {}
    for dtype, kind in test_atomics.TYPES.items():
        yield f"counts {dtype.name}", test_atomics.counts, {"x": integers(-2, 13, 200), "found": np.zeros(11, kind)}, {"T": dtype}
    yield "sums", test_atomics.column_sums, {"x": floats(1000, 45), "sums": np.ones(45, np.float32)}, {}
    for dtype, kind in ((f32, np.float32), (f16, np.float16), (bf16, ml_dtypes.bfloat16)):
        for n in (128, 68, 67):  # 16 bytes, 8, and one element at a time
            arrays = {"x": integers(-2, 3, 64, n).astype(kind), "where": integers(-1, 6, 64), "out": integers(-2, 3, 5, n).astype(kind)}
            yield f"added rows {dtype.name} {n}", test_atomics.added_rows, arrays, {"T": dtype}
    for special in (0.0, np.nan, -np.nan, np.inf, -np.inf):
        x = -np.abs(floats(64))
        x[5] = special
        start = np.array([-0.0], np.float32)
        yield f"extremes {special}", test_atomics.extremes, {"x": x, "largest": start, "smallest": start.copy()}, {"T": f32}
    yield "bits", test_atomics.bits, {"x": integers(0, 2**62, 64, dtype=np.int64), "masks": np.array([-1, 0, 5])}, {}
    yield "in turn", test_atomics.in_turn, {"x": np.arange(64, dtype=np.int32), "y": np.zeros(64, np.int32)}, {}
    for dtype, kind in test_packing.TYPES.items():
        a, b = (integers(-50, 50, 11, 32).astype(kind) for _ in range(2))
        arrays = {"a": a, "b": b, "y": np.zeros((11, 64), kind), "low": np.zeros_like(a), "high": np.zeros_like(a)}
        yield f"pairs {dtype.name}", test_packing.interleave, arrays, {"T": dtype}
    x = np.arange(-128, 128).astype(np.int8)
    arrays = {"x": x, "signed": np.zeros(512, np.int8), "unsigned": np.zeros(512, np.int32), "floats": np.ones(512, np.float16), "back": np.zeros_like(x)}
    yield "packed", test_packing.nibbles, arrays, {"T": f16}
    for bins in (1, 7, 300):
        yield f"histogram {bins}", test_packing.counted, {"x": integers(-3, bins + 2, 3, 100), "y": np.zeros((3, bins), np.int32)}, {"BINS": bins}
    yield "histogram kernel", rows.histogram, {"x": integers(0, 256, 100_000), "counts": np.zeros(256, np.int32)}, {}
    for dtype in (f16, i8, i32):
        kind, text = test_inline_ptx.TEXTS[dtype]
        arrays = {"x": integers(0, 50, 5, 32).astype(kind), "y": np.zeros((5, 32), kind)}
        yield f"inline {dtype.name}", test_inline_ptx.of_any_type, arrays, {"T": dtype, "TEXT": text}
    arrays = {"starts": np.array([0, 8, 52, 96], np.int32), "x": np.arange(100, dtype=np.float32), "y": np.zeros((4, 64), np.float32)}
    yield "assumed places", test_assume.windows, arrays, {}
    for dtype, kind in test_gather.TYPES.items():
        for axis, shape in ((0, (8, 64)), (1, (16, 32))):
            x, index = integers(1, 100, 16, 64).astype(kind), test_gather.indices(RNG, (16, 64)[axis], shape)
            constants = {"X": x.shape, "Y": shape, "AXIS": axis, "T": dtype, "P": i32}
            yield f"taken {dtype.name} {axis}", test_gather.planes, {"x": x, "index": index, "y": np.zeros(shape, kind)}, constants
    x, index = integers(1, 100, 3, 5, 7), integers(-1, 8, 3, 5, 4)
    yield "taken of three dimensions", test_gather.cubes, {"x": x, "index": index, "y": np.ones((3, 5, 4), np.int32)}, {"X": x.shape, "COUNT": 4, "T": i32, "P": i32}
    for width in (32, 256, 1024):
        x = floats(3000)
        yield f"tensor copies of a line {width}", test_tensor_copies.line, {"x": x, "y": np.zeros_like(x)}, {"T": f32, "S": None, "W": width}
    for rank, swizzle in product((2, 3, 4, 5), (0, 32, 64, 128)):
        x, width = floats(*test_tensor_copies.SHAPE[5 - rank :]), (swizzle or 64) // 4
        shared = str(SharedLayout.tma((16, width), 4, swizzle, (1, 0)))
        yield f"tensor copies {rank} {swizzle}", test_tensor_copies.RANKS[rank], {"x": x, "y": np.zeros_like(x)}, {"T": f32, "S": shared, "W": width}
    x, index = floats(128, 256, dtype=np.float64), integers(-1, 129, 128, 256)
    yield "taken in parts", test_gather.in_parts, {"x": x, "index": index, "y": np.zeros_like(x)}, {"T": f64}
    arrays = {"w": integers(0, 16, 40, 100).astype(np.int8), "book": integers(-8, 8, 16).astype(np.float16), "x": integers(-4, 4, 33, 100).astype(np.float16)}
    yield "taken from a code book", test_gather.by_codes, {**arrays, "y": np.ones((33, 40), np.float32)}, {}


CASES = {name: case for name, *case in cases()}


@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name):
    kernel, arrays, constants = CASES[name]
    on_gpu(kernel, arrays, constants)


def test_what_blocks_draw():
    taken, order, places = np.zeros(1, np.int32), np.zeros(600, np.int32), np.zeros((600, 40), np.int32)
    test_atomics.tickets(taken, order, places, device="cuda")
    assert sorted(np.concatenate([order, places.reshape(-1)])) == list(range(600 * 41))


def test_locks():
    owner = np.arange(50, dtype=np.int32)
    before, won = np.zeros_like(owner), np.zeros_like(owner)
    test_atomics.locks(owner, before, won, device="cuda")
    assert (before == np.arange(50)).all() and (won == 7).all() and (owner == np.arange(50) % 32).all()
