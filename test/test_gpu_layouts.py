"""Conversions between layouts on a GPU: by shuffles and through shared memory, between layouts drawn at random."""

from __future__ import annotations

import random

import numpy as np
import pytest
import test_shuffles
from compiled import DTYPES, same, values

from tesela.runtime.compile import compile

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("across", [False, True], ids=["within warps", "across warps"])
def test_conversions(dtype, seed, across):
    rng = random.Random(seed)
    m, n, warps = rng.choice((16, 32, 29)), rng.choice((16, 32, 31)), rng.choice((2, 4))
    full = tuple(1 << (extent - 1).bit_length() for extent in (m, n))
    source = test_shuffles.dealt(rng, full, warps)
    result = test_shuffles.dealt(rng, full, warps, warp_digits=None if across else list(source.thread[5:]))
    first, second = source.permute((1, 0)).normalized(), result.normalized()
    text = test_shuffles.PINNED.format(t=dtype, m=m, n=n, warps=warps, first=first, second=second)
    x = values(dtype, (5 * m - 3, n), 3)
    y = np.zeros(x.shape, DTYPES[dtype])
    compile(text, "sm_90a")(x=x, y=y, device="cuda")
    same(y, x)
