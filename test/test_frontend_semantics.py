"""Kernels in Python, traced, verified and run by the block interpreter, against NumPy: what each construct of the language means."""

from __future__ import annotations

import functools
import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import Array, bf16, f16, f32, f64, i1, i8, i32, i64, index
from tesela.dialects.parsing import parse_module, print_module
from tesela.dialects.verify import verify_module
from tesela.simulator.blocks import run_kernel

M, N, K = tesela.dims("M N K")
BF16 = ml_dtypes.bfloat16
LIMIT = 7
WEIGHTS = (0.5, 0.25, 0.125)
PAIR = [3, 4]


def run(kernel, scalars=None, /, **values):
    """Run a kernel on arrays; other keywords are compile-time values. Its text must also read back to the same text."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    module = kernel.trace(**{name: value for name, value in values.items() if name not in arrays})
    verify_module(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    run_kernel(module, arrays, scalars)


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# --- Memory: slices, edges, views ---


@tesela.kernel
def slices_at_loaded_places(places: Array[i32, M], x: Array[f32, N], y: Array[f32, M, 4], first: i32):
    row = tesela.grid(M)
    at = places[row]
    y[row, 0:4] = x[at : at + 4] + x[first + 2 * at : 2 * (at + 2) + first]


def test_a_slice_may_start_at_an_integer():
    places, x, y = np.array([0, 3, 5], np.int32), random(20), np.zeros((3, 4), np.float32)
    run(slices_at_loaded_places, {"first": 1}, places=places, x=x, y=y)
    np.testing.assert_array_equal(y, [x[at : at + 4] + x[1 + 2 * at : 5 + 2 * at] for at in places])


@tesela.kernel
def slices_at_the_same_expression_twice(x: Array[f32, N], y: Array[f32, M, 6, 4], places: Array[i32, M], first: i32):
    row = tesela.grid(M)
    at = places[row]
    y[row, 0, 0:4] = x[row // 2 : row // 2 + 4]
    y[row, 1, 0:4] = x[row % 3 * 2 : row % 3 * 2 + 4]
    y[row, 2, 0:4] = x[i32(row) : 4 + i32(row)]
    y[row, 3, 0:4] = x[max(row, 2) : max(row, 2) + 4]
    y[row, 4, 0:4] = x[(at * 3 + first) // 4 * 2 : (at * 3 + first) // 4 * 2 + 4]
    y[row, 5, 0:4] = x[min(at, first) + row % 2 : row % 2 + min(at, first) + 4]


def test_a_slice_may_start_at_any_expression():
    """Both ends compute it, which is seen from how they do."""
    places, x, y = np.array([0, 3, 5, 2], np.int32), random(20), np.zeros((4, 6, 4), np.float32)
    run(slices_at_the_same_expression_twice, {"first": 3}, places=places, x=x, y=y)
    for row, at in enumerate(places):
        starts = [row // 2, row % 3 * 2, row, max(row, 2), (at * 3 + 3) // 4 * 2, min(at, 3) + row % 2]
        np.testing.assert_array_equal(y[row], [x[start : start + 4] for start in starts])


@pytest.mark.parametrize("stop", ["(i + 1) // 2 + 4", "i % 2 + 4", "max(i, 2) + 4", "x[i].to(tesela.i32) + 4"])
def test_expressions_that_differ_are_no_slice(stop, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "import tesela\nfrom tesela import Array, f32\nN = tesela.dims('N')\n\n@tesela.kernel\ndef k(x: Array[f32, N], y: Array[f32, N]):\n"
        f"    i = tesela.grid(N)\n    y[i // 2 : {stop}] = 1.0\n"
    )
    from tesela.tools.sources import compile_source

    with pytest.raises(tesela.TeselaError, match=r"the extent of the slice i // 2"):
        compile_source(path, "sm_90a", None)


@tesela.kernel
def copy_slices(x: Array[f32, M, N], y: Array[f32, M, N], BM: tesela.constexpr, BN: tesela.constexpr):
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    y[bm * BM : (bm + 1) * BM, bn * BN : BN + bn * BN] = x[BM * bm : BM * bm + BM, bn * BN : BN * (bn + 1)]


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (16, 8), (17, 9)])
def test_slices_cover_an_array(shape):
    x = random(*shape)
    y = np.zeros_like(x)
    run(copy_slices, x=x, y=y, BM=4, BN=8)
    np.testing.assert_array_equal(x, y)


@tesela.kernel
def columns_and_rows(x: Array[f32, M, N], column: Array[f32, M], row: Array[f32, N], one: Array[f32, 1]):
    column[0:8] = x[0:8, 2]
    row[:16] = x[1, :16]
    one[0] = x[1, 2]


def test_an_index_drops_its_dimension():
    x = random(5, 9)
    column, row, one = np.zeros(5, np.float32), np.zeros(9, np.float32), np.zeros(1, np.float32)
    run(columns_and_rows, x=x, column=column, row=row, one=one)
    np.testing.assert_array_equal(column, x[:, 2])
    np.testing.assert_array_equal(row, x[1])
    assert one[0] == x[1, 2]


@tesela.kernel
def whole_static(x: Array[f32, 4, N], y: Array[f32, N, 4]):
    y[:8, :] = x[:, 0:8].T


def test_a_static_extent_needs_no_ends():
    x, y = random(4, 6), np.zeros((6, 4), np.float32)
    run(whole_static, x=x, y=y)
    np.testing.assert_array_equal(y, x.T)


@tesela.kernel
def filled_loads(x: Array[f32, N], y: Array[f32, 3, 8]):
    y[0, :] = tesela.load(x, -2, 8, fill=7)
    y[1, :] = tesela.load(x, (N - 1,), (8,), fill=-math.inf)
    y[2, :] = tesela.load(x, N + 5, (8,))


def test_loads_past_the_edges_read_the_fill():
    x, y = random(3), np.zeros((3, 8), np.float32)
    run(filled_loads, x=x, y=y)
    np.testing.assert_array_equal(y[0], [7, 7, *x, 7, 7, 7])
    np.testing.assert_array_equal(y[1], [x[2], *[-np.inf] * 7])
    assert not y[2].any()


@tesela.kernel
def chosen_dims(x: Array[f32, M, N, K], y: Array[f32, M, K]):
    tesela.store(y, (0, 0), tesela.load(x, (0, 1, 0), (4, 8), dims=(0, 2)))
    tesela.store(y, (4, 0), tesela.load(x, (4, 1, 0), (8, 4), dims=(2, 0)).T)


def test_a_tile_covers_the_dimensions_it_names():
    x, y = random(6, 3, 8), np.zeros((6, 8), np.float32)
    run(chosen_dims, x=x, y=y)
    np.testing.assert_array_equal(y, x[:, 1])


@tesela.kernel
def in_order(x: Array[f32, N], out: Array[f32, N]):
    first = x[0:4]
    x[0:4] = first + 1.0
    x[0:4] += x[0:4]
    out[0:4] = first * 100.0 + x[0:4]


def test_reads_and_writes_keep_their_order():
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    before = x.copy()
    run(in_order, x=x, out=out)
    np.testing.assert_array_equal(x, 2 * (before + 1))
    np.testing.assert_array_equal(out, before * 100 + x)


@tesela.kernel
def any_strides(x: Array[f32, M, N, tesela.strides(None, None)], y: Array[f32, M, N, tesela.strides(1, None)]):
    y[0:8, 0:8] = x[0:8, 0:8]


def test_stated_strides():
    x = random(10, 12)[::2, ::3]
    y = np.zeros((4, 5), np.float32).T
    run(any_strides, x=x[:5, :4], y=y)
    np.testing.assert_array_equal(y, x[:5, :4])


# --- Arithmetic ---


@tesela.kernel
def float_operators(x: Array[f32, N], y: Array[f32, N], out: Array[f32, 20, N]):
    a, b = x[0:16], y[0:16]
    results = (
        a + b, a - b, a * b, a / b, -a, +a, abs(a), a**2, a**3, a**0, abs(a) ** 0.5,
        tesela.maximum(a, b), tesela.minimum(a, 0.25), max(a, b, 0.5), tesela.fma(a, b, 2.0),
        tesela.floor(a), tesela.ceil(a), 2 * a - 1, 1.5 / b, tesela.where(a > b, a, 0),
    )
    for i in tesela.static_range(len(results)):
        out[i, 0:16] = results[i]


def test_float_operators():
    x, y = random(16), random(16, seed=1)
    out = np.zeros((20, 16), np.float32)
    run(float_operators, x=x, y=y, out=out)
    expected = [
        x + y, x - y, x * y, x / y, -x, x, abs(x), x * x, x * x * x, np.ones_like(x), np.sqrt(abs(x)),
        np.maximum(x, y), np.minimum(x, np.float32(0.25)), np.maximum(np.maximum(x, y), np.float32(0.5)), x * y + 2,
        np.floor(x), np.ceil(x), 2 * x - 1, np.float32(1.5) / y, np.where(x > y, x, 0),
    ]
    np.testing.assert_allclose(out, expected, rtol=3e-7)


@tesela.kernel
def functions(x: Array[f32, N], out: Array[f32, 9, N]):
    a = x[0:16]
    p = abs(a) + 0.1
    results = (tesela.exp(a), tesela.exp2(a), tesela.log(p), tesela.log2(p), tesela.sqrt(p), tesela.rsqrt(p), tesela.tanh(a),
               tesela.sin(a), tesela.cos(a))
    for i, r in ((0, results[0]), (1, results[1]), (2, results[2])):
        out[i, 0:16] = r
    for i in tesela.static_range(3, 9):
        out[i, 0:16] = results[i]


def test_functions():
    x = random(16)
    out = np.zeros((9, 16), np.float32)
    run(functions, x=x, out=out)
    p = abs(x) + np.float32(0.1)
    expected = [np.exp(x), np.exp2(x), np.log(p), np.log2(p), np.sqrt(p), 1 / np.sqrt(p), np.tanh(x), np.sin(x), np.cos(x)]
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-5)


@tesela.kernel
def integer_operators(x: Array[i32, N], y: Array[i32, N], out: Array[i32, 16, N]):
    a, b = x[0:64], y[0:64]
    results = (
        a + b, a - b, a * b, a // 7, a % 7, a % -5, a // -3, a & b, a | b, a ^ b, ~a, a << 2, a >> 1, -a, abs(a), max(a, 3),
    )
    for i in tesela.static_range(16):
        out[i, 0:64] = results[i]


def test_integer_operators():
    x, y = (np.random.default_rng(s).integers(-100, 100, 64).astype(np.int32) for s in (0, 1))
    out = np.zeros((16, 64), np.int32)
    run(integer_operators, x=x, y=y, out=out)
    expected = [x + y, x - y, x * y, x // 7, x % 7, x % -5, x // -3, x & y, x | y, x ^ y, ~x, x << 2, x >> 1, -x, abs(x), np.maximum(x, 3)]
    np.testing.assert_array_equal(out, expected)


@tesela.kernel
def comparisons(x: Array[f32, N], out: Array[i1, 9, N]):
    a = x[0:8]
    b = tesela.arange(8)
    results = (a < 0.5, a <= 0.5, a > 0.5, a >= 0.5, a == 0.5, a != 0.5, (a > 0) & (b < 4), (a > 0) | ~(b < 4), (a > 0) ^ (b == 2))
    for i in tesela.static_range(9):
        out[i, 0:8] = results[i]


def test_comparisons():
    x = np.array([0.5, -1, 2, np.nan, 0.5, -0.0, np.inf, -np.inf], np.float32)
    b = np.arange(8)
    out = np.zeros((9, 8), bool)
    run(comparisons, x=x, out=out)
    expected = [x < 0.5, x <= 0.5, x > 0.5, x >= 0.5, x == 0.5, x != 0.5, (x > 0) & (b < 4), (x > 0) | ~(b < 4), (x > 0) ^ (b == 2)]
    np.testing.assert_array_equal(out, expected)


@tesela.kernel
def casts(x: Array[f32, N], h: Array[bf16, N], i: Array[i32, N], d: Array[f64, N], s: Array[f16, N], j: Array[i8, N]):
    a = x[0:8]
    h[0:8] = a.to(bf16)
    i[0:8] = a.astype(i32)
    d[0:8] = f64(a)
    s[0:8] = tesela.cast(a * 1e6, f16, saturate=True)
    j[0:8] = (a > 0).to(i8)


def test_casts():
    x = np.array([0.1, -1.7, 2.5, 300.25, -0.3, 1e-9, 7, -8], np.float32)
    h, i, d = np.zeros(8, BF16), np.zeros(8, np.int32), np.zeros(8)
    s, j = np.zeros(8, np.float16), np.zeros(8, np.int8)
    run(casts, x=x, h=h, i=i, d=d, s=s, j=j)
    np.testing.assert_array_equal(h, x.astype(BF16))
    np.testing.assert_array_equal(i, x.astype(np.int32))
    np.testing.assert_array_equal(d, x)
    np.testing.assert_array_equal(s, np.clip(x * np.float32(1e6), -65504, 65504).astype(np.float16))
    np.testing.assert_array_equal(j, x > 0)


@tesela.kernel
def indices_with_tiles(out: Array[i64, M, N]):
    row = tesela.grid(M)
    out[row, 0:8] = row * 10 + tesela.arange(8)


def test_an_index_meets_an_integer_tile_as_i64():
    out = np.zeros((3, 8), np.int64)
    run(indices_with_tiles, out=out)
    np.testing.assert_array_equal(out, np.arange(3)[:, None] * 10 + np.arange(8))


@tesela.kernel
def chosen_numbers(x: Array[f32, N], out: Array[i64, 3, N]):
    t = x[0:8]
    out[0, 0:8] = tesela.where(t > 0, 1, 0)
    out[1, 0:8] = tesela.full((8,), N)
    out[2, 0:8] = tesela.where(tesela.arange(8) < N - 2, N, -1)


def test_integers_of_no_type_and_indices_become_i64_in_tiles():
    x, out = random(6), np.zeros((3, 6), np.int64)
    run(chosen_numbers, x=x, out=out)
    np.testing.assert_array_equal(out, [x > 0, [6] * 6, [6] * 4 + [-1] * 2])


@tesela.kernel
def means(x: Array[f32, M, N], y: Array[f32, M]):
    row = tesela.grid(M)
    y[row] = tesela.load(x, (row, 0), (16,)).sum() / N


def test_a_dimension_meets_a_float_as_a_number():
    x, y = random(3, 11), np.zeros(3, np.float32)
    run(means, x=x, y=y)
    np.testing.assert_allclose(y, x.mean(1), rtol=1e-5)


@tesela.kernel
def index_arithmetic(out: Array[i64, M, 8]):
    i = tesela.grid(M)
    results = (i // 4, i % 4, (i - 5) // 3, (i - 5) % 3, M - 1 - i, tesela.ceildiv(i, 3), min(i, 2), M // 2 + M % 3 - max(M, 4))
    for k in tesela.static_range(8):
        out[i, k] = results[k].to(i64) if k < 7 else i64(results[k])


def test_index_arithmetic_is_pythons():
    out = np.zeros((9, 8), np.int64)
    run(index_arithmetic, out=out)
    for i in range(9):
        assert list(out[i]) == [i // 4, i % 4, (i - 5) // 3, (i - 5) % 3, 8 - i, -(-i // 3), min(i, 2), 9 // 2 + 9 % 3 - 9]


# --- Shapes and reductions ---


@tesela.kernel
def shapes(x: Array[f32, 4, 8], y: Array[f32, 8], a: Array[f32, 4, 8], b: Array[f32, 8, 4], c: Array[f32, 2, 16], d: Array[f32, 4, 8]):
    t, v = x[:, :], y[:]
    a[:, :] = t + v
    b[:, :] = tesela.transpose(t, (1, 0)) + v[:, None]
    c[:, :] = t.reshape(2, -1)
    d[:, :] = tesela.broadcast_to(tesela.expand_dims(v, 0), t.shape) * tesela.iota((4, 8), axis=0).to(f32)


def test_shapes():
    x, y = random(4, 8), random(8, seed=1)
    a, b, c, d = (np.zeros(s, np.float32) for s in ((4, 8), (8, 4), (2, 16), (4, 8)))
    run(shapes, x=x, y=y, a=a, b=b, c=c, d=d)
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, x.T + y[:, None])
    np.testing.assert_array_equal(c, x.reshape(2, 16))
    np.testing.assert_array_equal(d, np.arange(4, dtype=np.float32)[:, None] * y)


@tesela.kernel
def reductions(x: Array[f32, 4, 8], rows: Array[f32, 4, 4], all_: Array[f32, 4], where_: Array[i32, 2, 8], kept: Array[f32, 4, 8]):
    t = x[:, :]
    for i, r in ((0, t.sum(1)), (1, t.max(axis=-1)), (2, tesela.min(t, axis=1)), (3, tesela.prod(t, 1))):
        rows[i, :] = r
    for i, r in ((0, t.sum()), (1, tesela.max(t)), (2, t.min((0, 1))), (3, t.prod(axis=(1, 0)))):
        all_[i] = r
    where_[0, :] = t.argmax(0)
    where_[1, :] = tesela.argmin(t, axis=0)
    kept[:, :] = t - t.sum(1, keepdims=True) + t.max(keepdims=True)


def test_reductions():
    x = random(4, 8)
    rows, all_, where_, kept = np.zeros((4, 4), np.float32), np.zeros(4, np.float32), np.zeros((2, 8), np.int32), np.zeros((4, 8), np.float32)
    run(reductions, x=x, rows=rows, all_=all_, where_=where_, kept=kept)
    np.testing.assert_allclose(rows, [x.sum(1), x.max(1), x.min(1), x.prod(1)], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(all_, [x.sum(), x.max(), x.min(), x.prod()], rtol=1e-5)
    np.testing.assert_array_equal(where_, [x.argmax(0), x.argmin(0)])
    np.testing.assert_allclose(kept, x - x.sum(1, keepdims=True) + x.max(), rtol=1e-5, atol=1e-6)


@tesela.kernel
def batched(a: Array[f16, 2, 4, 8], b: Array[f16, 2, 8, 4], c: Array[f32, 2, 4, 4], acc: Array[f32, 2, 4, 4]):
    t = a[:, :, :]
    start = acc[:, :, :]
    c[:, :, :] = start + t @ b[:, :, :]


def test_batched_dot():
    a, b = random(2, 4, 8, dtype=np.float16), random(2, 8, 4, dtype=np.float16, seed=1)
    acc, c = random(2, 4, 4, seed=2), np.zeros((2, 4, 4), np.float32)
    run(batched, a=a, b=b, c=c, acc=acc)
    np.testing.assert_allclose(c, acc + a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5)
    assert str(batched.trace()).count("tile.dot") == 1 and "arith.addf" not in str(batched.trace())


# --- Control flow ---


@tesela.kernel
def carried(x: Array[f32, N], out: Array[f32, 4]):
    total, count, best = 0.0, 0, (0.0, -1)
    for i in tesela.range(N):
        value = x[i]
        total += value
        count += 1
        best = (value, i) if value > best[0] else best
    out[0] = total
    out[1] = f32(count)
    out[2] = best[0]
    out[3] = f32(best[1])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_loops_carry_numbers_and_tuples(n):
    x = random(n)
    out = np.zeros(4, np.float32)
    run(carried, x=x, out=out)
    best = max(0.0, *x, 0.0)
    np.testing.assert_allclose(out, [x.sum(), n, best, x.argmax() if best > 0 else -1], rtol=1e-6)


@tesela.kernel
def nested(out: Array[i64, 3]):
    total, inner = 0, 0
    for i in range(5):
        inner = 0
        for j in range(i, 9, 2):
            inner += j
            total += inner
    out[0] = i64(total)
    out[1] = i64(inner)
    for i in tesela.range(2, 2):
        total = i
    out[2] = i64(total)


def test_nested_loops():
    out = np.zeros(3, np.int64)
    run(nested, out=out)
    total = inner = 0
    for i in range(5):
        inner = 0
        for j in range(i, 9, 2):
            inner += j
            total += inner
    assert list(out) == [total, inner, total]


@tesela.kernel
def collatz(x: Array[i32, N], steps: Array[i32, N]):
    i = tesela.grid(N)
    n = x[i]
    count: i32 = 0
    while n > 1 and count < 1000:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count += 1
    steps[i] = count


def test_while_with_conditionals():
    x = np.arange(1, 12, dtype=np.int32)
    steps = np.zeros_like(x)
    run(collatz, x=x, steps=steps)
    assert list(steps) == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14]


@tesela.kernel
def branches(x: Array[f32, N], out: Array[f32, 6, N], flag: tesela.constexpr = True):
    i = tesela.grid(N)
    v = x[i]
    if v < 0:
        kind = 1.0
        v = -v
    elif v == 0:
        kind = 2.0
    else:
        kind = 3
    if flag:
        static = 1.0
    else:
        static = undefined_name
    t = tesela.zeros((4,), f32)
    if v > 1:
        t += v
    elif not v > 0.5 or i == 0:
        t = t - 1
    out[0, i] = kind
    out[1, i] = v
    out[2, i] = static
    out[3, i] = t.sum()
    out[4, i] = 1.0 if v > 0.7 else (v if i > 2 else 0)
    out[5, i] = x[i + 1] if i + 1 < N and x[i + 1] > 0 else -1.0


def test_branches():
    x = np.array([0, -2, 0.6, 0.3, 5, -0.1], np.float32)
    out = np.zeros((6, 6), np.float32)
    run(branches, x=x, out=out)
    a = abs(x)
    np.testing.assert_array_equal(out[0], np.where(x < 0, 1, np.where(x == 0, 2, 3)))
    np.testing.assert_array_equal(out[1], a)
    assert (out[2] == 1).all()
    np.testing.assert_allclose(out[3], [4 * v if v > 1 else -4 if not v > 0.5 or i == 0 else 0 for i, v in enumerate(a)], rtol=1e-6)
    np.testing.assert_array_equal(out[4], [1 if v > np.float32(0.7) else (v if i > 2 else 0) for i, v in enumerate(a)])
    np.testing.assert_array_equal(out[5], [x[i + 1] if i + 1 < 6 and x[i + 1] > 0 else -1 for i in range(6)])


@tesela.kernel
def guarded_store(x: Array[f32, N]):
    i = tesela.grid(N)
    if 2 <= i < 4:
        x[i] = 9.0


def test_stores_under_a_condition():
    x = np.zeros(6, np.float32)
    run(guarded_store, x=x)
    assert list(x) == [0, 0, 9, 9, 0, 0]


# --- Compile-time Python ---


def polynomial(x, coefficients, *, scale=1.0):
    """A helper with defaults: Horner's rule."""
    result = coefficients[0]
    for c in coefficients[1:]:
        result = result * x + c
    return result * scale


@tesela.function
def swap(a, b):
    return b, a


@tesela.function
def absolute(x):
    if x.dtype == i32:
        return abs(x)
    y = -x
    if x.ndim == 0:
        z = y if y > x else x
    else:
        z = tesela.where(y > x, y, x)
    return z


@tesela.kernel
def helpers(x: Array[f32, N], out: Array[f32, 4, N]):
    a, b = swap(x[0:8], tesela.zeros(8, f32))
    out[0, 0:8] = polynomial(b, WEIGHTS)
    out[1, 0:8] = polynomial(x=b, coefficients=(1, 2), scale=0.5) + a
    out[2, 0:8] = absolute(b)
    out[3, 0] = absolute(x[0]) + math.pi + LIMIT + PAIR[1] + len(WEIGHTS)


def test_helpers_and_captured_constants():
    x, out = random(8), np.zeros((4, 8), np.float32)
    run(helpers, x=x, out=out)
    np.testing.assert_allclose(out[0], (0.5 * x + 0.25) * x + 0.125, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(out[1], (x + 2) / 2, rtol=1e-6)
    np.testing.assert_array_equal(out[2], abs(x))
    assert out[3, 0] == pytest.approx(abs(x[0]) + math.pi + 7 + 4 + 3, rel=1e-6)


def test_defaults_of_a_helper_that_change_are_seen():
    def shifted(x, by=2.0, *, factor=1.0):
        return x * factor + by

    @tesela.kernel
    def shift(x: Array[f32, N], y: Array[f32, N]):
        y[0:8] = shifted(x[0:8])

    x, y = random(8), np.zeros(8, np.float32)
    for defaults, factor in (((2.0,), 1.0), ((3.0,), 1.0), ((3.0,), 0.5), ((2.0,), 1.0)):
        shifted.__defaults__ = defaults
        shifted.__kwdefaults__["factor"] = factor
        shift(x, y, device="sim")
        np.testing.assert_allclose(y, x * factor + defaults[0], rtol=1e-6)


def test_what_is_explained_has_the_element_types_of_the_calls():
    @tesela.kernel
    def copied(x: Array["T", "N"], y: Array["T", "N"]):
        y[0:8] = x[0:8]

    with pytest.raises(tesela.TeselaError, match="the type variable T needs an element type"):
        copied.explain("sm_90a")
    copied(random(8), np.zeros(8, np.float32), device="sim")
    assert "memref<?xf32" in copied.ir() and copied.explain("sm_90a").startswith("copied for sm_90a")
    copied(random(8).astype(np.float64), np.zeros(8), device="sim")
    with pytest.raises(tesela.TeselaError, match="the type variable T needs an element type"):
        copied.explain("sm_90a")
    assert "memref<?xf64" in copied.ir(T=tesela.f64)


def make_scale(factor):
    @tesela.kernel
    def scale(x: Array[f32, N], y: Array[f32, N]):
        assert factor > 0, "the factor must be positive"
        y[0:8] = x[0:8] * factor

    return scale


def test_closures():
    x = random(8)
    for factor in (2, 0.5):
        y = np.zeros_like(x)
        run(make_scale(factor), x=x, y=y)
        np.testing.assert_array_equal(y, x * np.float32(factor))


# Names as text, which linters take for forward references.
@tesela.kernel
def generic(x: Array["T", "N"], y: Array["T", "N"], alpha: f32, n: i32, power: tesela.constexpr = 2):
    i = tesela.grid(N // 4) * 4
    wide = x[i : i + 4].to(f32) ** power * alpha
    if i < n:
        y[i : i + 4] = wide.to(T)


@pytest.mark.parametrize(("dtype", "numpy_dtype"), [(f32, np.float32), (bf16, BF16), (f64, np.float64)])
def test_type_variables_and_scalars(dtype, numpy_dtype):
    x = random(12, dtype=numpy_dtype)
    y = np.zeros_like(x)
    run(generic, {"alpha": 0.5, "n": 8}, x=x, y=y, T=dtype, power=3)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(y[:8], (wide * wide * wide * np.float32(0.5)).astype(numpy_dtype)[:8])
    assert not y[8:].astype(np.float32).any()


@tesela.kernel
def index_scalar(x: Array[f32, N], start: index):
    x[start : start + 2] = 1.0


def test_index_scalars():
    x = np.zeros(5, np.float32)
    run(index_scalar, {"start": 3}, x=x)
    assert list(x) == [0, 0, 0, 1, 1]


@tesela.kernel
def gemm(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], BM: tesela.constexpr = 16, BN: tesela.constexpr = 8):
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, 16):
        a = tesela.load(A, (bm * BM, k), (BM, 16))
        b = tesela.load(B, (bn * BN, k), (BN, 16))
        acc = tesela.dot(a, b.T, acc)
    tesela.store(C, (bm * BM, bn * BN), acc)


@pytest.mark.parametrize("shape", list(itertools.product((0, 7, 16), (1, 9), (0, 5, 33))))
def test_gemm(shape):
    m, n, k = shape
    a, b = random(m, k, dtype=BF16), random(n, k, dtype=BF16, seed=1)
    c = np.full((m, n), np.nan, np.float32)
    run(gemm, A=a, B=b, C=c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-5, atol=1e-5)


def test_new_dimensions_in_the_slices_of_an_array():
    """NumPy's rule: a None is a dimension of extent 1 where it stands, and an integer drops its own."""

    @tesela.kernel
    def outer(x: Array[f32, N], y: Array[f32, M, N], out: Array[f32, N, N], rows: Array[f32, N, N]):
        tesela.grid(1)
        out[0:4, 0:4] = x[0:4, None] * x[None, 0:4]
        rows[0:4, 0:4] = y[1, None, 0:4] + y[0, 0:4, None]

    x, y = np.arange(4, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(2, 4)
    out, rows = np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32)
    outer(x, y, out, rows, device="sim")
    np.testing.assert_array_equal(out, x[:, None] * x[None, :])
    np.testing.assert_array_equal(rows, y[1, None, :] + y[0, :, None])


def scaled_after(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * factor

        return wrapper

    return decorate


@scaled_after(10.0)
def plus_one(x):
    return x + 1.0


@tesela.kernel
def calls_what_is_wrapped(x: Array[f32, M], y: Array[f32, M]):
    tesela.grid(1)
    y[0:8] = plus_one(x[0:8])


def test_a_wrapper_of_functools_is_what_is_called():
    x, y = random(8), np.zeros(8, np.float32)
    run(calls_what_is_wrapped, {}, x=x, y=y)
    np.testing.assert_array_equal(y, (x + np.float32(1)) * np.float32(10))


@tesela.kernel
def unrolled_within(x: Array[f32, N], y: Array[f32, N]):
    tesela.grid(1)
    total = 0.0
    for i in tesela.range(2):
        for j in tesela.static_range(6000):
            pass
        total = total + x[i]
    y[0] = total


def test_trips_of_unrolled_loops_are_counted_once():
    """`total` has no type at first, and the body of the loop is traced once to find it and once with it: 6000 trips, not 12 000."""
    x, y = random(12), np.zeros(12, np.float32)
    run(unrolled_within, x=x, y=y)
    assert y[0] == x[0] + x[1]


@tesela.kernel
def strided_by(x: Array[f32, N], y: Array[f32, N], step: i32):
    tesela.grid(1)
    for i in tesela.range(0, 10, step):
        y[i] = x[i]


@pytest.mark.parametrize("step", [0, -1, -3, 1, 3, 10, 2**31 - 1])
def test_steps_known_at_run_time(step):
    """One that is not positive makes no trips: not trips without end, and none before the start."""
    x, y = random(12), np.zeros(12, np.float32)
    run(strided_by, {"step": step}, x=x, y=y)
    wanted = np.zeros(12, np.float32)
    if step > 0:
        wanted[:10:step] = x[:10:step]
    np.testing.assert_array_equal(y, wanted)
