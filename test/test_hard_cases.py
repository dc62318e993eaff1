"""Inputs that broke other tile compilers, through Python kernels in the simulator: nothing to do, more than 2³¹ elements, too much shared memory,
very long programs, arrays passed twice, rows with nothing in them. (Odd rows, offset bases and other views: test_launch_cases.py.)"""

from __future__ import annotations

import re
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import TeselaError
from tesela.kernels import fused, rows
from tesela.kernels.matrices import batched_gemm, linear

EXAMPLES = Path(__file__).parent.parent / "examples"
BF16 = ml_dtypes.bfloat16
TARGETS = ("sm_90a", "sm_80")
F32, M, N, K = tesela.f32, *tesela.dims("M N K")


# Nothing to do


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 64), (5, 0, 64), (0, 0, 0), (5, 7, 0), (130, 129, 0)])
def test_matrices_without_elements(target, m, n, k):
    a, w, bias = np.ones((m, k), BF16), np.ones((n, k), BF16), np.full(n, 2, BF16)
    c = linear(a, w, bias, target=target, device="sim", BM=64, BN=64)
    assert c.shape == (m, n) and c.dtype == BF16
    assert (c == 2).all(), "a sum of no products is 0"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 3, 4, 0), (2, 0, 4, 5), (2, 3, 0, 5)])
def test_batches_without_elements(target, shape):
    batch, m, n, k = shape
    c = np.full((batch, m, n), 7, np.float32)
    batched_gemm(np.ones((batch, m, k), BF16), np.ones((batch, k, n), BF16), c, target=target, device="sim", BM=64, BN=64)
    assert (c == k).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n"), [(0, 5), (3, 0), (0, 0)])
def test_rows_without_elements(target, m, n):
    x = np.ones((m, n), np.float32)
    assert rows.softmax(x, target=target, device="sim").shape == (m, n)
    total = rows.row_sum(x, target=target, device="sim")
    assert total.shape == (m,) and (total == 0).all()


@tesela.kernel
def forgets_its_result(x: tesela.Array[F32, N], y: tesela.Array[F32, N]):
    i = tesela.grid(N)
    x[i : i + 128] * 2.0


@tesela.kernel
def says_its_result(x: tesela.Array[F32, N]):
    i = tesela.grid(N)
    tesela.print(i)


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_that_stores_nothing_is_noted(target):
    note = "kernel 'forgets_its_result' stores nothing: no call of it has any effect"
    assert note in tesela.compile(forgets_its_result, target).notes
    assert not any("stores nothing" in text for text in tesela.compile(says_its_result, target).notes)


# More than 2**31 elements, or bytes


@tesela.kernel
def copy_rows(x: tesela.Array[tesela.i8, M, N], y: tesela.Array[tesela.i8, M, N]):
    i = tesela.grid(M)
    y[i, 0:32] = x[i, 0:32]


@tesela.kernel
def copy_last(x: tesela.Array[tesela.i8, N], y: tesela.Array[tesela.i8, K]):
    y[0:32] = tesela.load(x, N - 32, 32)


@tesela.kernel
def copy_columns(x: tesela.Array[tesela.i8, M, N, tesela.strides(1, None)], y: tesela.Array[tesela.i8, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 32), N)
    tesela.store(y, (i * 32, j), tesela.load(x, (i * 32, j), (32, 1)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stride", [(1 << 31) - 64, (1 << 31) + 64, (1 << 32) + 16])
def test_index_times_stride_past_31_bits(target, stride):
    base = np.zeros(stride + 32, np.int8)  # memory that nobody touches takes no room
    x = np.lib.stride_tricks.as_strided(base, (2, 32), (stride, 1))
    x[1] = np.arange(32)
    np.testing.assert_array_equal(copy_rows(x, target=target, device="sim"), x)
    y = np.lib.stride_tricks.as_strided(np.zeros(stride + 32, np.int8), (2, 32), (stride, 1))
    copy_rows(x, y, target=target, device="sim")
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(copy_columns(x.T[:, :2], target=target, device="sim"), x.T)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [(1 << 31) - 1, (1 << 31) + 33, (1 << 32) + 7])
def test_indices_past_31_bits(target, count):
    x = np.zeros(count, np.int8)
    x[-32:] = np.arange(32)
    y = np.zeros(32, np.int8)
    copy_last(x, y, target=target, device="sim")
    np.testing.assert_array_equal(y, np.arange(32))


# Shared memory


@pytest.mark.parametrize(("target", "limit"), [("sm_90a", 232448), ("sm_80", 166912)])
def test_more_stages_than_fit(target, limit):
    """Said before anything is launched: each buffer, its stages, the total, the limit, and how many would fit; and just so many do."""
    kernel = tesela.compile(EXAMPLES / "gemm.mlir", target, pins={"stages": 9})
    a = np.ones((128, 64), BF16)
    with pytest.raises(TeselaError) as caught:
        kernel(a, a, device="sim")
    (error,) = caught.value.diagnostics
    assert f"bytes of shared memory, a block of {target} can have {limit}" in error.message
    fit = int(re.fullmatch(r"stages = 9 is stated, and at most (\d+) stages fit", error.hint)[1])
    lines = (EXAMPLES / "gemm.mlir").read_text().splitlines()
    for name in "ab":
        (note,) = [note for note in error.notes if note.message.startswith(f"%{name}_channel: ")]
        assert re.fullmatch(rf"%{name}_channel: \d+x64xbf16, (\d+) bytes × 9 stages = (\d+) bytes", note.message)
        assert lines[note.location.line - 1].strip().startswith(f"%{name} = tile.load")
    fitting = tesela.compile(EXAMPLES / "gemm.mlir", target, pins={"stages": fit})
    np.testing.assert_array_equal(fitting(a, a, device="sim"), np.full((128, 128), 64))
    assert fitting.last.plan.shared_bytes <= limit
    with pytest.raises(TeselaError, match=f"at most {fit} stages fit"):
        tesela.compile(EXAMPLES / "gemm.mlir", target, pins={"stages": fit + 1})(a, a, device="sim")


# Long programs


@tesela.kernel
def long_program(x: tesela.Array[F32, N], y: tesela.Array[F32, N], COUNT: tesela.constexpr):
    i = tesela.grid(tesela.ceildiv(N, 128)) * 128
    v = x[i : i + 128]
    for k in tesela.static_range(COUNT):
        v = v * 0.5 + float(k % 7)
    y[i : i + 128] = v


def seconds(count: int) -> float:
    start = time.process_time()
    kernel = long_program.compile("sm_90a", COUNT=count)
    kernel.variant()
    return time.process_time() - start


def test_a_program_of_thousands_of_operations_takes_time_in_proportion():
    """1000 statements of two operations each against 125: eight times the work, and not nearly its square."""
    seconds(20)
    small, large = min(seconds(125), seconds(126)), min(seconds(1000), seconds(1001))
    assert large < 20 * small + 0.2
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    wanted = x
    for k in range(1000):
        wanted = wanted * np.float32(0.5) + np.float32(k % 7)
    np.testing.assert_array_equal(long_program.compile("sm_90a", COUNT=1000)(x, device="sim"), wanted)


@tesela.kernel
def long_copy(x: tesela.Array[F32, N], y: tesela.Array[F32, N], COUNT: tesela.constexpr):
    for k in tesela.static_range(COUNT):
        y[k * 128 : k * 128 + 128] = x[k * 128 : k * 128 + 128] + 1.0


@tesela.kernel
def long_reductions(x: tesela.Array[F32, N], y: tesela.Array[F32, N], COUNT: tesela.constexpr):
    v = x[0:128]
    for _ in tesela.static_range(COUNT):
        v = v - v.max(0) * 0.5
    y[0:128] = v


@pytest.mark.parametrize("kernel", [long_copy, long_reductions], ids=["copies", "reductions"])
def test_long_programs_of_other_kinds(kernel):
    """Loads and stores, which may depend on one another; reductions, which meet in shared memory."""
    def seconds(count: int) -> float:
        start = time.process_time()
        kernel.compile("sm_90a", COUNT=count).variant()
        return time.process_time() - start

    seconds(5)
    small, large = min(seconds(40), seconds(41)), seconds(320)
    assert large < 20 * small + 0.2


# In place


@tesela.kernel
def residual(x: tesela.Array[F32, M, N, tesela.strides(None, None)], y: tesela.Array[F32, M, N, tesela.strides(None, None)]):
    i = tesela.grid(M)
    v = y[i, 0:64] + x[i, 0:64]
    y[i, 0:64] = v - tesela.max(v, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_array_as_input_and_output(target):
    """Right where each block reads what it writes before it writes it, however the array is laid out; other overlaps as well if no
    block writes what another reads."""
    start = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    wanted = 2 * start - (2 * start).max(1, keepdims=True)
    for make in (lambda: start.copy(), lambda: start.T.copy().T, lambda: start[::-1].copy()[::-1]):
        x = make()
        residual(x, x, target=target, device="sim")
        np.testing.assert_array_equal(x, wanted)
    base = np.concatenate([start, start])
    residual(base[:5], base[5:], target=target, device="sim")
    np.testing.assert_array_equal(base[5:], wanted)
    interleaved = np.stack([start, start], 1)  # rows that lie between each other's
    residual(interleaved[:, 0], interleaved[:, 1], target=target, device="sim")
    np.testing.assert_array_equal(interleaved[:, 1], wanted)
    np.testing.assert_array_equal(interleaved[:, 0], start)
    assert residual.compile(target).last.facts.noalias == (), "their spans overlap, so that nothing is assumed"


# Rows with nothing in them


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 5, 1024, 1500])
def test_softmax_of_a_fully_masked_row_is_zero(target, n):
    x = np.full((4, n), -np.inf, np.float32)
    x[1, n // 2] = -3.0
    x[2] = np.linspace(-1, 1, n)
    for kernel in (lambda: rows.softmax(x, target=target, device="sim"), lambda: tesela.compile(EXAMPLES / "softmax.mlir", target)(x, device="sim")):
        y = kernel()
        assert (y[[0, 3]] == 0).all()
        assert y[1, n // 2] == 1 and y[1].sum() == 1
        e = np.exp(x[2].astype(np.float64) - x[2].max())
        np.testing.assert_allclose(y[2], e / e.sum(), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("masked", [[0], [3, 79], list(range(80))], ids=["one", "two", "all"])
def test_attention_of_fully_masked_rows_is_zero(target, masked):
    """Rows of scores that a bias of -inf leaves nothing of, beside rows of which it leaves something."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 80, 64)).astype(np.float16) for _ in range(3))
    bias = np.zeros((1, 80, 80), np.float16)
    bias[0, 5, :70] = -np.inf
    bias[0, masked] = -np.inf
    found = fused.biased_attention(q, k, v, bias, scale=0.1, HEAD=64, target=target, device="sim")
    assert (found[0, masked] == 0).all() and np.isfinite(found).all()
    kept = [row for row in range(80) if row not in masked]
    scores = q[0].astype(np.float64) @ k[0].astype(np.float64).T * 0.1 + bias[0]
    weights = np.exp(scores[kept] - scores[kept].max(1, keepdims=True)) if kept else np.zeros((0, 80))
    np.testing.assert_allclose(found[0, kept], weights / weights.sum(1, keepdims=True) @ v[0].astype(np.float64), atol=5e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_of_nan_is_nan(target):
    x = np.zeros((2, 5), np.float32)
    x[0, 3] = np.nan
    y = rows.softmax(x, target=target, device="sim")
    assert np.isnan(y[0]).all() and (y[1] == np.float32(0.2)).all()
