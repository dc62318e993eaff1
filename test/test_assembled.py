"""No kernel spills registers or has its wgmma serialised: here those that come closest; `bench/assembled.py` tries all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tesela import bf16, f16, f32
from tesela.runtime.assemble import find_ptxas

sys.path.append(str(Path(__file__).parent.parent / "bench"))
import assembled

CLOSEST = [
    # 128 accumulators a thread, and operands that are copied through registers, each row at a stride that only the launch knows
    assembled.Case("gemm_nt", (("BM", 64), ("BN", 256), ("stages", 2), ("T", f16)), "sm_90a", "weakest"),
    assembled.Case("gemm", (("BM", 64), ("BN", 256), ("stages", 2), ("T", f16)), "sm_90a", "weakest"),
    assembled.Case("gemm_nt", (("BM", 128), ("BN", 256), ("T", f16)), "sm_90a", "usual"),
    # accumulators of f32 dots, which fma computes
    assembled.Case("gemm_nt", (("BM", 128), ("BN", 256), ("T", f32)), "sm_90a", "usual"),
    assembled.Case("attention", (("HEAD", 128), ("T", bf16)), "sm_90a", "usual"),
    assembled.Case("attention", (("HEAD", 128), ("CAUSAL", True), ("T", bf16)), "sm_80", "usual"),
    # sums of two dots beside one another: 192 rows by 12 warps of mma.sync, and 64 by 8 warps of fma
    assembled.Case("attention", (("HEAD", 64), ("T", f16)), "sm_80", "usual"),
    assembled.Case("attention", (("HEAD", 64), ("T", f32)), "sm_90a", "usual"),
    # rows of a block of 8192 elements in registers
    assembled.Case("layer_norm", (("BLOCK", 8192), ("T", f32)), "sm_90a", "usual"),
]


@pytest.mark.skipif(not find_ptxas(), reason="needs a ptxas")
@pytest.mark.parametrize("case", CLOSEST, ids=str)
def test_nothing_is_spilled(case):
    row = assembled.one(case)
    assert "refused" not in row and row["complaints"] == []


def test_all_kernels_are_tried():
    tried = {(case.kernel, case.target, case.facts) for case in assembled.cases()}
    assert {(name, target, facts) for name in assembled.functions() for target in assembled.TARGETS for facts in ("usual", "weakest")} <= tried
    assert {case.values[:2] for case in assembled.cases(["gemm"])} >= {(("BM", 128), ("BN", 256)), (("BM", 64), ("BN", 128))}
