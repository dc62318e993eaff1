"""Products with what is usually one: the same bits whether the factors are one or not, NaN and infinities included."""

from __future__ import annotations

import numpy as np
import pytest

import tesela
from tesela import Array, f32

M, N = tesela.dims("M N")


@tesela.kernel
def rescale(x: Array[f32, M, N], before: Array[f32, M], new: Array[f32, M], y: Array[f32, M, N], LAZY: tesela.constexpr = False):
    row = tesela.grid(tesela.ceildiv(M, 4)) * 4
    old, fresh = before[row : row + 4], new[row : row + 4]
    now = tesela.where(fresh > old + 3, fresh, old) if LAZY else tesela.maximum(old, fresh)
    y[row : row + 4, 0:2048] = x[row : row + 4, 0:2048] * tesela.exp2((old - now) * 0.5)[:, None]


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3.0, 7.5], np.float32)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_same_bits(target, lazy):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 2048)).astype(np.float32)
    x[:, : len(SPECIAL)] = SPECIAL
    before = np.zeros(12, np.float32)
    new = np.array([-1, -2, -3, -4, -1, 8, -1, 2, np.nan, np.inf, -np.inf, 4], np.float32)  # no row of the first block grows
    y = np.full_like(x, 9)
    rescale(x, before, new, y, LAZY=lazy, device="sim", target=target)
    with np.errstate(invalid="ignore"):
        now = np.where(new > before + 3, new, before) if lazy else np.maximum(before, new)
        factor = np.exp2((before - now) * np.float32(0.5)).astype(np.float32)
        expected = x * factor[:, None]
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    np.testing.assert_array_equal(np.signbit(y)[~np.isnan(y)], np.signbit(expected)[~np.isnan(y)])
    np.testing.assert_allclose(y, expected, rtol=2.0**-21)
    np.testing.assert_array_equal(y[:4], x[:4])  # left out: bit for bit


@pytest.mark.parametrize("lazy", [False, True])
def test_it_is_asked(lazy):
    kernel = rescale.compile("sm_90a", LAZY=lazy)
    assert "vote.sync.any.pred" in kernel.variant().ptx


@tesela.kernel
def running(x: Array[f32, M, 64], before: Array[f32, M], now: Array[f32, M], SLACK: tesela.constexpr = 3.0, LEAST: tesela.constexpr = False):
    row = tesela.grid(tesela.ceildiv(M, 8)) * 8
    old, tile = before[row : row + 8], x[row : row + 8, 0:64]
    if LEAST:
        peak = tile.min(axis=1)
        now[row : row + 8] = tesela.where(old - SLACK > peak, peak, old)
    else:
        peak = tile.max(axis=1)
        now[row : row + 8] = tesela.where(peak > old + SLACK, peak, old)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_extremes_that_only_matter_beyond_a_bound(target, least):
    """Warps with none, with some and with all rows beyond; on the bound; NaN, which lies beyond nothing; infinities."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 64)).astype(np.float32)
    before = np.zeros(40, np.float32)
    for row, column, value in ((9, 3, 5), (12, 63, 3), (13, 0, 3.5), (17, 40, np.nan), (18, 1, np.inf), (19, 7, -np.inf), (20, 5, 9), (20, 6, np.nan)):
        x[row, column] = -value if least else value
    x[32:, 30] = -7 if least else 7
    before[24:32] = np.nan
    now = np.full(40, 99, np.float32)
    kernel = running.compile(target, LEAST=least)
    assert "vote.sync.any.pred" in kernel.variant().ptx
    kernel(x, before, now, device="sim")
    with np.errstate(invalid="ignore"):
        peak = x.min(axis=1) if least else x.max(axis=1)
        expected = np.where(peak < before - 3 if least else peak > before + 3, peak, before)
    np.testing.assert_array_equal(now, expected)


@tesela.kernel
def used_otherwise(x: Array[f32, M, 64], before: Array[f32, M], now: Array[f32, M], peaks: Array[f32, M], KIND: tesela.constexpr = "stored"):
    row = tesela.grid(tesela.ceildiv(M, 8)) * 8
    old = before[row : row + 8]
    peak = x[row : row + 8, 0:64].max(axis=1)
    now[row : row + 8] = tesela.where(peak > old, old, peak) if KIND == "turned" else tesela.where(peak < old, peak, old) if KIND == "below" else tesela.where(peak > old, peak, old)
    peaks[row : row + 8] = peak if KIND == "stored" else old


@pytest.mark.parametrize("kind", ["stored", "turned", "below"])
def test_extremes_that_matter_otherwise_are_combined(kind):
    x = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    before, now, peaks = np.full(16, 2, np.float32), np.zeros(16, np.float32), np.zeros(16, np.float32)
    kernel = used_otherwise.compile("sm_90a", KIND=kind)
    assert "vote.sync.any.pred" not in kernel.variant().ptx
    kernel(x, before, now, peaks, device="sim")
    peak = x.max(axis=1)
    np.testing.assert_array_equal(peaks, peak if kind == "stored" else before)
    np.testing.assert_array_equal(now, np.minimum(peak, before) if kind != "stored" else np.maximum(peak, before))
