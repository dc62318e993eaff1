"""On a GPU: functions that combine, and channels and roles by hand, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import test_combining
import test_explicit
from compiled import same

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("k", [0, 8, 64, 128, 192, 256, 264, 70, 1000])
@pytest.mark.parametrize("name", test_explicit.KERNELS)
def test_products(name, k):
    kernel, values = test_explicit.KERNELS[name]
    a, b = test_explicit.operands(700, 400, k)
    c = np.full((700, 400), np.nan, np.float32)
    kernel.compile(**values)(a, b, c, device="cuda")
    same(c, a.astype(np.float32) @ b.astype(np.float32).T * (2 if kernel is test_explicit.three_roles else 1))


def test_linear_recurrence():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 1, (60, 100)).astype(np.float32), rng.standard_normal((60, 100)).astype(np.float32)
    h, back, end = (np.zeros((60, 100), np.float32), np.zeros((60, 100), np.float32), np.zeros(60, np.float32))
    test_combining.recurrence(a, b, h, back, end, device="cuda")
    forward, after = np.zeros((60, 101)), np.zeros((60, 101))
    for i in range(100):
        forward[:, i + 1] = a[:, i] * forward[:, i] + b[:, i]
        after[:, 99 - i] = a[:, 99 - i] * after[:, 100 - i] + b[:, 99 - i]
    np.testing.assert_allclose(h, forward[:, 1:], atol=1e-5)
    np.testing.assert_allclose(back, after[:, 1:], atol=1e-5)
    np.testing.assert_allclose(end, forward[:, -1], atol=1e-5)


@pytest.mark.parametrize("name", test_combining.TYPES)
def test_elements_of_every_type(name):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2 if name == "i1" else 120, (50, 150)).astype(test_combining.TYPES[name][1])
    pick = rng.random((50, 150)) < 0.2
    pick[:, 0] = True
    y, end = test_combining.latest(x, pick, device="cuda")
    same(y, np.take_along_axis(x, np.maximum.accumulate(np.where(pick, np.arange(150), 0), axis=1), 1))
    same(end, x[:, -1].copy())


def test_the_best_and_where():
    x = np.random.default_rng(2).integers(-20, 20, (90, 77)).astype(np.float32)
    key, place, running = test_combining.best(x, device="cuda")
    same(key, x.max(1))
    same(place, x.argmax(1).astype(np.int32))
    same(running, np.stack([x[:, : i + 1].argmax(1) for i in range(77)], 1).astype(np.int32))
