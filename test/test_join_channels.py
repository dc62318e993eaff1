"""Channels in lockstep: which are, that programs compute the same with them, and that a group which does not move in step is refused.

Every program of the other tests of roles goes through join-channels, too; here is what it decides.
"""

from __future__ import annotations

import re

import pytest
from pipelined_programs import PROGRAMS
from test_specialize_warps import ORDERS, SPLIT, WHOLE, kernel, order

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.passes import get_pass
from tesela.passes.base import PassContext
from tesela.passes.join_channels import JoinChannels, check_lockstep
from tesela.runtime.specialize import usual_facts


def scheduled(name: str, attributes: str = SPLIT) -> str:
    made = kernel(PROGRAMS[name], 4, attributes)
    return made.ir("schedule", facts=usual_facts(made.contract))


def groups(text: str) -> list[set[str]]:
    """The names of the channels in each lockstep group."""
    found: dict[str, set[str]] = {}
    for name, number in re.findall(r"%(\w+)_channel\w* = async.channel depth \d+ lockstep (\d+)", text):
        found.setdefault(number, set()).add(name)
    return list(found.values())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gemm", [{"a", "b"}]),
        ("dual", [{"a", "b", "b2"}]),  # the first dot is issued between the gets, and waits for nothing
        ("attention", []),  # keys are given back before values are needed
        ("written", []),  # what threads write has no mbarrier
        ("siblings", [{"a", "b"}, {"a", "b"}]),
        ("conditional", [{"a", "b"}]),
    ],
)
def test_who_moves_in_step(name, wanted):
    assert groups(scheduled(name)) == wanted


def test_one_role_as_well():
    assert groups(scheduled("gemm", WHOLE)) == [{"a", "b"}]


def test_not_wanted():
    assert groups(scheduled("gemm", f"{SPLIT}, join_channels = false")) == []
    module = parse_module(HAND.format(**PLAIN))
    JoinChannels("never").run(module, PassContext(get_target("sm_90a")))
    assert "lockstep" not in str(module)


def test_slots_lie_side_by_side():
    """64×16 and 16×64 elements of two bytes: 2048 bytes each, and the mbarriers are the same."""
    places = re.findall(r"lockstep 0 offset (\d+) barrier (\d+)", scheduled("gemm"))
    assert [int(offset) for offset, _ in places] == [0, 2048]
    assert len({barrier for _, barrier in places}) == 1


def joined(text: str):
    module = parse_module(text)
    JoinChannels().run(module, PassContext(get_target("sm_90a")))
    return module


HAND = """tile.kernel @k(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %out: memref<?xi64> [N]) dims(%K = K) grid(%i = M ceildiv 64) {{
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %a = async.channel depth 2 {a}: !async.channel<64x16xbf16>
  %b = async.channel depth {depth} {b}: !async.channel<64x16xbf16>
  %none = async.token none : !async.token
  %last, %other = scf.for %k = %c0 to %K step %c16 iter_args(%s = %none, %t = %none) -> (!async.token, !async.token) {{
    async.put %a, %A[%c0, %k] via "tma" : !async.channel<64x16xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    {between_puts}
    async.put %b, %A[%c0, %k] via "tma" : !async.channel<64x16xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    %x = async.get %a : !async.channel<64x16xbf16> -> !async.buffer<64x16xbf16>
    %y = async.get %b : !async.channel<64x16xbf16> -> !async.buffer<64x16xbf16>
    %here = async.token here : !async.token
    async.release %a after %s : !async.channel<64x16xbf16>
    async.release %b after {token} : !async.channel<64x16xbf16>
    scf.yield %here, {next} : !async.token, !async.token
  }}
  async.release %a after %last : !async.channel<64x16xbf16>
  async.release %b after {after} : !async.channel<64x16xbf16>
}}"""
PLAIN = {"a": "", "b": "", "depth": 2, "between_puts": "", "token": "%t", "next": "%here", "after": "%other"}


@pytest.mark.parametrize(
    ("change", "joins"),
    [
        ({}, True),
        ({"between_puts": "%n = arith.addi %k, %c16 : index"}, True),
        ({"token": "%s", "after": "%last"}, True),
        ({"depth": 3}, False),
        ({"next": "%none"}, False),  # %b is never given back in a trip, %a is in all but the first
        ({"token": "%here"}, False),  # %b is given back in the first trip, %a is not
        ({"between_puts": "%v = tile.load %out[%k] : memref<?xi64> -> i64"}, False),
    ],
    ids=str,
)
def test_releases_at_the_same_times(change, joins):
    module = joined(HAND.format(**{**PLAIN, **change}))
    assert ("lockstep 0" in str(module)) == joins


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"depth": 3}, "they have 2 and 3 slots"),
        ({"between_puts": "%v = tile.load %out[%k] : memref<?xi64> -> i64"}, "they are not put by TMA, got and released together"),
        ({"token": "%here"}, "their releases are after tokens that are not events at the same time"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_group_that_does_not_move_in_step(change, reason):
    module = parse_module(HAND.format(**{**PLAIN, "a": "lockstep 7 ", "b": "lockstep 7 ", **change}))
    channel = next(op for op in module.walk() if op.name == "async.channel")
    with pytest.raises(TeselaError, match=f"channels of lockstep group 7 do not move in step: {reason}"):
        check_lockstep(channel)


def test_the_compiler_asks():
    """A wrong group in a scheduled module is an error of tile-to-ptx."""
    text = scheduled("siblings").replace("lockstep 1", "lockstep 0")
    module = parse_module(text)
    with pytest.raises(TeselaError, match="do not move in step: they are not put by TMA, got and released together"):
        get_pass("tile-to-ptx")().run(module, PassContext(get_target("sm_90a")))


@pytest.mark.parametrize("name", ["dual", "sum_of_two"])
def test_three_in_step_compute_the_same(name):
    program = PROGRAMS[name]
    for number, trips in enumerate((0, 1, 2, 3, 4, 5, 9)):
        found = program.arrays(trips)
        with order(ORDERS[number % len(ORDERS)]):
            kernel(program, 4, SPLIT)(**found, device="sim")
        one_role = program.arrays(trips)
        kernel(program, 1, WHOLE)(**one_role, device="sim")
        assert {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in one_role.items()}, f"{trips} trips"
