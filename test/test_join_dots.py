"""Joined dots: which are, that they compute the same bits, and that others are refused."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, UnitAttr

from tesela import Array, bf16, ceildiv, constexpr, dims, dtype, f32, grid, kernel, zeros
from tesela import range as trange
from tesela.dialects import async_copy
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.dim_expr import DimExpr
from tesela.dialects.launch_plan import ArrayArg
from tesela.dialects.target import get_target
from tesela.kernels import fused, matrices
from tesela.lowering.pipeline import PIPELINE
from tesela.passes import get_pass
from tesela.passes.base import PassContext
from tesela.passes.join_dots import WITH_NEXT, JoinDots
from tesela.runtime.compile import compile
from tesela.runtime.kernel import Kernel
from tesela.runtime.specialize import specialize, usual_facts
from tesela.simulator.launcher import settings

M, N, K = dims("M N K")
T = dtype("T")


@kernel
def three(A: Array[T, M, K], B: Array[T, K, N], C: Array[T, K, N], D: Array[T, K, N], out: Array[f32, M, N], BN: constexpr = 64, BK: constexpr = 64):
    """Three products of one left operand, with right operands that are contiguous along N."""
    bm, bn = grid(ceildiv(M, 128), ceildiv(N, BN))
    m, n = bm * 128, bn * BN
    x, y, z = zeros((128, BN), f32), zeros((128, BN), f32), zeros((128, BN), f32)
    for k in trange(0, K, BK):
        a = A[m : m + 128, k : k + BK]
        x += a @ B[k : k + BK, n : n + BN]
        y += a @ C[k : k + BK, n : n + BN]
        z += a @ D[k : k + BK, n : n + BN]
    out[m : m + 128, n : n + BN] = x + y * z


def scheduled(compiled: Kernel) -> ModuleOp:
    contract = compiled.contract
    symbols = {symbol for arg in contract.args if isinstance(arg, ArrayArg) for text in arg.shape for symbol in DimExpr.parse(text).symbols()}
    facts = replace(usual_facts(contract), divisors=tuple((symbol, 16) for symbol in sorted(symbols)))
    module = specialize(compiled.module, compiled.name, facts)
    for name in PIPELINE[: PIPELINE.index("join-dots") + 1]:
        get_pass(name)().run(module, PassContext(get_target("sm_90a")))
    return module


def joined(module: ModuleOp) -> list[bool]:
    return [WITH_NEXT in op.attributes for op in module.walk() if isinstance(op, async_copy.DotOp)]


@pytest.mark.parametrize(
    ("function", "values", "wanted"),
    [
        (fused.dual_gemm, {}, [True, False]),
        (fused.dual_gemm, {"BK": 128, "BN": 64}, [False, False]),  # rows of two spans: the second operand begins after both
        (three, {}, [True, True, False]),
        (three, {"BN": 128}, [True, False, False]),  # three times 128 columns are more than an instruction has
        (matrices.gemm_nt, {}, [False]),
    ],
    ids=str,
)
def test_which(function, values, wanted):
    assert joined(scheduled(function.compile("sm_90a", T=bf16, **values))) == wanted


@pytest.mark.parametrize("k", [0, 64, 128, 200, 456])
def test_the_same_bits(k, monkeypatch):
    """As products one after another, for trips of every kind; judged."""
    rng = np.random.default_rng(k)
    arrays = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((136, k), (k, 72), (k, 72), (k, 72))]
    found = []
    for when in ("auto", "never"):
        monkeypatch.setattr(JoinDots.__init__, "__defaults__", (when,))
        compiled = compile(three.trace(T=bf16), "sm_90a")
        with settings(races=True):
            found.append(np.asarray(compiled(*arrays, device="sim")))
    assert found[0].tobytes() == found[1].tobytes()
    x, y, z = (arrays[0].astype(np.float64) @ b.astype(np.float64) for b in arrays[1:])
    np.testing.assert_allclose(found[0], x + y * z, rtol=1e-4, atol=1e-3 * max(k, 1) ** 0.5)


def test_the_compiler_asks():
    """Two dots of which the second multiplies what the first one's result became."""
    module = scheduled(fused.biased_attention.compile("sm_90a", T=bf16, HEAD=128))
    next(op for op in module.walk() if isinstance(op, async_copy.DotOp)).attributes[WITH_NEXT] = UnitAttr()
    with pytest.raises(TeselaError, match="the dot cannot be one instruction with the next one"):
        get_pass("tile-to-ptx")().run(module, PassContext(get_target("sm_90a")))
