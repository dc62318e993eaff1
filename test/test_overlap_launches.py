"""overlap-launches: where the waits for the grids before stand, and that nothing is accessed before."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx import InstOp, KernelOp
from tesela.kernels import matrices, rows
from tesela.lowering.overlap_launches import LAUNCH, WAIT, accesses_memory, check_waits
from tesela.lowering.pipeline import compile_kernel
from tesela.runtime.specialize import contract_of, kernels_of, specialize, usual_facts

GEMM = matrices.gemm_nt
TILES = [{"BM": 128, "BN": 256}, {"BM": 64, "BN": 64}]


def lowered(source: object, target: str = "sm_90a", pdl: int | None = None, **constants: object) -> tuple[KernelOp, bool, str]:
    """The kernel at the ptx level, whether its plan says `programmatic`, and its PTX."""
    module = source.trace(**constants)
    facts = usual_facts(contract_of(kernels_of(module)[source.name]))
    module = specialize(module, source.name, facts, {} if pdl is None else {"pdl": pdl})
    made = compile_kernel(module, target=target)
    kernel = next(op for op in made.module.walk() if isinstance(op, KernelOp))
    return kernel, made.plan.programmatic, made.ptx


@pytest.mark.parametrize("constants", [*TILES, {"BM": 128, "BN": 128, "BK": 32}])
def test_everything_waits(constants):
    kernel, programmatic, ptx = lowered(GEMM, T=tesela.bf16, **constants)
    assert programmatic and check_waits(kernel) == []
    assert ptx.index("mbarrier.init") < ptx.index(WAIT) < ptx.index("cp.async.bulk.tensor.2d.shared")
    assert ptx.count(LAUNCH) == ptx.count(WAIT) - 1  # the last is for threads that access nothing


@pytest.mark.parametrize("target", ["sm_90a", "sm_90"])
def test_kernels_of_rows_wait(target):
    kernel, programmatic, _ = lowered(rows.softmax, target, T=tesela.f32, **({} if "BLOCK" not in rows.softmax.constants else {"BLOCK": 1024}))
    assert programmatic and check_waits(kernel) == []


def test_roles_wait_by_themselves():
    """The producer before its loads, within the walk over the grid, after it knows where its tile lies; the consumer before its store."""
    kernel, _, ptx = lowered(GEMM, T=tesela.bf16, **TILES[0])
    waits = [op for op in kernel.walk() if isinstance(op, InstOp) and op.opcode.data == WAIT]
    assert len(waits) == 3 and waits[-1].parent is kernel.body.block and waits[-1].next_op is None
    assert ptx.index("st.global") > ptx.index(WAIT) > ptx.rindex("wgmma.mma_async")
    producer = ptx[ptx.index("setmaxnreg.dec") :]
    assert producer.index("div.u32") < producer.index(WAIT) < producer.index("mbarrier.try_wait")


def test_a_missing_wait_is_found():
    kernel, _, _ = lowered(GEMM, T=tesela.bf16, **TILES[0])
    waits = [op for op in kernel.walk() if isinstance(op, InstOp) and op.opcode.data == WAIT]
    for wait in waits[:2]:
        parent, following = wait.parent, wait.next_op
        wait.detach()
        early = check_waits(kernel)
        assert early and all(accesses_memory(op) for op in early)
        parent.insert_op_before(wait, following)
        assert check_waits(kernel) == []
    waits[-1].detach()
    assert check_waits(kernel) == [kernel]  # a block of no tiles would end, and with all blocks the grid, before the grids before it


@pytest.mark.parametrize(("target", "pdl"), [("sm_80", None), ("sm_90a", 0)])
def test_not_there_or_not_wanted(target, pdl):
    _, programmatic, ptx = lowered(GEMM, target, pdl, T=tesela.bf16, **TILES[1])
    assert not programmatic and "griddepcontrol" not in ptx


@pytest.mark.parametrize(
    ("shared", "blocks", "early"),
    [
        (98_368, 96, True), (98_368, 132, True), (98_368, 133, False), (98_368, 264, False), (98_368, 265, True),  # a multiprocessor holds two
        (60_000, 198, True), (60_000, 199, False), (60_000, 397, True),  # three
        (200_000, 100, True), (200_000, 1000, True),  # one
        (1_000, 3000, True),  # many
    ],
)  # fmt: skip
def test_not_where_early_blocks_would_crowd(shared, blocks, early):
    kernel = GEMM.compile("sm_90a", T=tesela.bf16, BM=32, BN=64)
    plan = dataclasses.replace(kernel.variant(facts=usual_facts(kernel.contract)).plan, shared_bytes=shared, threads=128)
    assert plan.programmatic and plan.begins_early(blocks, 132) == early
    assert not dataclasses.replace(plan, programmatic=False).begins_early(blocks, 132)
    assert dataclasses.replace(plan, persistent=True).begins_early(blocks, 132)


def test_pins():
    options = {"BM": 64, "BN": 64, "T": tesela.bf16, "target": "sm_90a"}
    a, b = (np.ones((64, 64), ml_dtypes.bfloat16) for _ in range(2))
    for pdl in (0, 1):
        kernel = GEMM.compile(pins={"pdl": pdl}, **options)
        c = kernel(a, b, device="sim")
        assert float(c[0, 0]) == 64
        assert kernel.last.plan.programmatic == bool(pdl)
    with pytest.raises(TeselaError, match="pdl is pinned to 2, but 0 or 1 is required"):
        GEMM.compile(pins={"pdl": 2}, **options)
