"""Slots in parts: which channels have them, how many slots that saves, that warpgroups do not wait for one another's rows, and what is refused.

The programs of test_kernels (judged, with every kind of trip count) go through split-slots, too; here is what it decides.
"""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i1

from tesela import bf16
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.dim_expr import DimExpr
from tesela.dialects.launch_plan import ArrayArg
from tesela.dialects.parsing import parse_module
from tesela.dialects.ptx import IfOp, WaitParityOp
from tesela.dialects.target import get_target
from tesela.kernels import fused, matrices
from tesela.lowering.pipeline import PIPELINE
from tesela.passes import get_pass
from tesela.passes.base import PassContext
from tesela.passes.loop_timing import time_loops
from tesela.runtime.compile import compile
from tesela.runtime.kernel import Kernel
from tesela.runtime.specialize import specialize, usual_facts
from tesela.simulator.launcher import settings

PASSES = PIPELINE[: PIPELINE.index("split-slots")]


def scheduled(kernel: Kernel, wanted: bool = True, **split: str) -> ModuleOp:
    """The module after split-slots with these options, and what follows it up to the layout of shared memory. `wanted`: the attribute `split_slots`."""
    facts = usual_facts(kernel.contract)
    symbols = {symbol for arg in kernel.contract.args if isinstance(arg, ArrayArg) for text in arg.shape for symbol in DimExpr.parse(text).symbols()}
    module = specialize(kernel.module, kernel.name, replace(facts, divisors=tuple((symbol, 16) for symbol in sorted(symbols))))
    module.body.block.first_op.attributes["split_slots"] = IntegerAttr(wanted, i1)
    context = PassContext(get_target("sm_90a"))
    for name in PASSES:
        get_pass(name)().run(module, context)
    get_pass("split-slots")(**split).run(module, context)
    for name in ("join-channels", "alloc-shared"):
        get_pass(name)().run(module, context)
    return module


def channels(module: ModuleOp) -> list[tuple[str, int, int]]:
    """(tile, slots, parts) of the channels that TMA fills, in order."""
    found = re.findall(r"async\.channel depth (\d+)(?: lockstep \d+)?(?: parts (\d+))? offset \d+ barrier \d+ : !async\.channel<(\w+)", str(module))
    return [(tile, int(depth), int(parts or 1)) for depth, parts, tile in found]


def biased(**values) -> Kernel:
    return fused.biased_attention.compile("sm_90a", T=bf16, **values)


def test_who_has_parts_and_how_many_slots():
    """Queries and bias are read into registers, each warpgroup's own rows; keys and values by dots, which read all. Where three tiles of 32 KiB want two slots
    each, and 227 KiB must do, the one that nobody has to share makes do with one."""
    assert sorted(channels(scheduled(biased(HEAD=128)))) == [("128x128xbf16", 1, 2)] * 2 + [("128x128xbf16", 2, 1)] * 2
    small = channels(scheduled(biased(HEAD=64)))
    assert ("128x128xbf16", 3, 2) in small and [slots for tile, slots, parts in small if parts == 1] == [3, 3]


def test_three_warpgroups():
    assert ("192x128xbf16", 1, 3) in channels(scheduled(biased(HEAD=64, BM=192)))


def test_operands_of_dots_have_one_part():
    assert {parts for _, _, parts in channels(scheduled(matrices.gemm_nt.compile("sm_90a", T=bf16)))} == {1}


def test_not_wanted():
    assert {parts for _, _, parts in channels(scheduled(biased(HEAD=128), when="never"))} == {1}
    assert {parts for _, _, parts in channels(scheduled(biased(HEAD=128), wanted=False))} == {1}


def test_the_model_sees_what_parts_bring():
    """One slot that both warpgroups must give back brings them into step: neither multiplies while the other computes."""
    whole, split = ([timing.interval for timing in time_loops(scheduled(biased(HEAD=128), **options))] for options in ({"when": "never"}, {}))
    assert split[0] == pytest.approx(2048, rel=0.01)  # the tensor cores' work: four halves of 64·128·128 multiplications
    assert whole[0] > 1.01 * split[0]


@pytest.mark.parametrize("policy", ["latest", "earliest"])
def test_results_are_the_same(policy):
    """Rows past the end in the second part, and a bias that ends within a tile."""
    rng = np.random.default_rng(0)
    shapes = ((1, 100, 64), (1, 200, 64), (1, 200, 64), (1, 100, 200))
    arrays = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    found = []
    for wanted in (True, False):
        module = fused.biased_attention.trace(T=bf16, HEAD=64, BN=64)
        module.body.block.first_op.attributes["split_slots"] = IntegerAttr(wanted, i1)
        with settings(races=True, policy=policy):
            found.append(np.asarray(compile(module, "sm_90a")(*arrays, scale=0.125, device="sim")).tobytes())
    assert found[0] == found[1]


def test_warps_of_their_own():
    """The producer's warps: queries, keys, bias, values. With one, keys of the next trip wait behind the bias of this one."""
    module = scheduled(biased(HEAD=128))
    tested = []
    for walkers in (4, 1):
        lowered = module.clone()
        get_pass("tile-to-ptx")(walkers=walkers).run(lowered, PassContext(get_target("sm_90a")))
        tested.append(len([op for op in lowered.walk() if isinstance(op, IfOp) and any(isinstance(inner, WaitParityOp) for inner in op.regions[0].block.ops)]))
    assert tested[0] == tested[1] + 4


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("depth 2 offset", "depth 2 parts 2 offset", "the channel has a part for each of 2 warpgroups, but they do not read parts of their own"),
        ("parts 2", "parts 4", "the channel has a part for each of 4 warpgroups, but 2 read parts of their own"),
    ],
)
def test_the_compiler_asks(before, after, reason):
    text = str(scheduled(biased(HEAD=128)))
    assert before in text
    with pytest.raises(TeselaError, match=reason):
        get_pass("tile-to-ptx")().run(parse_module(text.replace(before, after)), PassContext(get_target("sm_90a")))


@pytest.mark.parametrize("wrong", ["lockstep 0 parts 2", "parts 0"])
def test_parts_that_cannot_be(wrong):
    module = parse_module(f"tile.kernel @k() grid(%i = 1) {{ %c = async.channel depth 1 {wrong} : !async.channel<64x16xbf16> }}")
    with pytest.raises(TeselaError, match="slots have at least one part, and only one where channels are in lockstep"):
        get_pass("verify")().run(module, PassContext())
