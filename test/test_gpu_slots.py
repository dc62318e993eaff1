"""Slots that threads read and TMA fills again, on a GPU: a copy that does not wait for the reads is seen in large products only, and in some of their rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr

import tesela
from tesela.kernels import fused
from tesela.runtime.compile import compile

pytestmark = pytest.mark.gpu

WAYS = [(True, True), (True, False), (False, True), (False, False)]
"""(slots in parts, results staged)"""


def test_rows_of_a_scaled_product():
    """Every step of K reads a tile of A into registers. Results are equal bit for bit in every way, launch after launch."""
    m, n, k = 4096, 8192, 8192
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, k), np.float32).astype(ml_dtypes.bfloat16) for rows in (m, n))
    scale = rng.random(m, np.float32) + 0.5
    wanted = None
    for parts, staged in WAYS:
        module = fused.scaled_gemm.trace(T=tesela.bf16)
        attributes = module.body.block.first_op.attributes
        attributes["split_slots"], attributes["stage_stores"] = BoolAttr.from_bool(parts), BoolAttr.from_bool(staged)
        kernel = compile(module, "sm_90a")
        for _ in range(3):
            found = np.full((m, n), np.nan, ml_dtypes.bfloat16)
            kernel(a, b, scale, found, device="cuda")
            if wanted is None:
                wanted = found
                some = (a[::64].astype(np.float32) * scale[::64, None]).astype(ml_dtypes.bfloat16).astype(np.float32) @ b.astype(np.float32).T
                np.testing.assert_allclose(wanted[::64].astype(np.float32), some, rtol=1e-2, atol=1)
            assert found.tobytes() == wanted.tobytes(), f"slots {'in parts' if parts else 'whole'}, results {'staged' if staged else 'from registers'}"
