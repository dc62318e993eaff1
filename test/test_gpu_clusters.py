"""Clusters on a GPU: equal bit for bit to blocks alone, for grids with points outside of them, many points a block, and launch after launch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_specialize_warps import gemm

from tesela.runtime.compile import compile

pytestmark = pytest.mark.gpu

SHAPES = [
    (256, 256, 64),
    (128, 256, 64),  # one row: the other block of each pair is outside
    (392, 264, 136),
    (128, 512, 8),
    (3000, 2056, 1048),  # 24 rows by 9 columns: three points a pair
    (4096, 4096, 512),
]


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_to_blocks_alone(shape, blocks):
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    wanted = np.full((m, n), np.nan, np.float32)
    compile(gemm(128, 256), "sm_90a", pins={"cluster": 1})(a, b, wanted, device="cuda")
    np.testing.assert_allclose(wanted, a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-3, atol=1e-2 * max(1, k) ** 0.5)
    clustered = compile(gemm(128, 256), "sm_90a", pins={"cluster": blocks})
    for _ in range(20):
        found = np.full((m, n), np.nan, np.float32)
        clustered(a, b, found, device="cuda")
        assert clustered.last.plan.cluster == (blocks, 1, 1)
        assert found.tobytes() == wanted.tobytes()
