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
