"""Wait depths counted from tokens, on small programs whose answer is known."""

from __future__ import annotations

import pytest

from tesela.dialects.async_copy import AwaitOp, ReleaseOp
from tesela.dialects.parsing import parse_module
from tesela.passes.async_waits import MOST_GROUPS, never_waits, wait_depths

TILE = "tensor<64x64xf32>"
PENDING = f"!async.pending<{TILE}>"
BUFFER = "!async.buffer<64x64xbf16>"
CHANNEL = "!async.channel<64x64xbf16>"


def dot(results: str, acc: str = "%zero", kind: str = TILE) -> str:
    return f"{results} = async.dot %a, %a, {acc} : {BUFFER}, {BUFFER}, {kind}\n"


def wait(value: str) -> str:
    return f"%w{value[1:]} = async.await {value} : {PENDING}\n"


def release(token: str) -> str:
    return f"async.release %ch after {token} : {CHANNEL}\n"


def depths(body: str) -> list[int | None]:
    """For each await and each release of the program, in order, the wait's depth; None for no wait."""
    module = parse_module(f"""
tile.kernel @k(%n: index, %flag: i1) grid(%g = 1) {{
  %ch = async.channel depth 4 : {CHANNEL}
  %a = async.get %ch : {CHANNEL} -> {BUFFER}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> {TILE}
{body}
}}""")
    kernel = next(iter(module.body.block.ops))
    found = wait_depths(kernel)
    return [found.get(op) for op in kernel.walk() if isinstance(op, AwaitOp | ReleaseOp)]


def test_dots_issued_after_the_one_in_question_go_on():
    assert depths(dot("%p, %t") + dot("%q, %u") + dot("%r, %v") + release("%t") + release("%u") + wait("%r")) == [2, 1, 0]


def test_a_wait_covers_what_is_older():
    assert depths(dot("%p, %t") + dot("%q, %u") + wait("%q") + wait("%p") + release("%t")) == [0, None, None]


def test_no_wait_for_what_is_there():
    text = f"%p = async.ready %zero : {TILE}\n%t = async.token none : !async.token\n%u = async.token here : !async.token\n"
    assert depths(text + dot("%q, %v") + wait("%p") + release("%t") + release("%u")) == [None, None, None]


def test_no_more_than_the_hardware_counts():
    text = "".join(dot(f"%p{i}, %t{i}") for i in range(12))
    assert depths(text + release("%t0") + release("%t6")) == [MOST_GROUPS, 5]


CARRIED = f"""
%z = async.ready %zero : {TILE}
%none = async.token none : !async.token
%r, %last = scf.for %i = %c0 to %n step %c1 iter_args(%p = %z, %before = %none) -> ({PENDING}, !async.token) {{
{dot("%q, %t", "%p", PENDING)}
MORE
{release("%before")}
scf.yield %q, %t : {PENDING}, !async.token
}}
{wait("%r")}{release("%last")}"""


def test_a_token_of_the_trip_before():
    assert depths(CARRIED.replace("MORE", "")) == [1, 0, None]


def test_every_dot_of_a_trip_counts():
    """After the trip before's: two more of that trip, and three of this one."""
    more = dot("%x, %y") + dot("%x2, %y2")
    assert depths(CARRIED.replace("MORE", more)) == [5, 2, None]


def test_a_wait_inside_the_loop_covers_the_trip_before():
    assert depths(CARRIED.replace("MORE", dot("%x, %y") + wait("%x"))) == [0, None, None, None]


def test_the_lesser_of_two_branches():
    """One branch issues a dot, the other two: at least one came after."""
    branch = f"scf.if %flag {{\n{dot('%x, %y')}}} else {{\n{dot('%x1, %y1')}{dot('%x2, %y2')}}}\n"
    assert depths(dot("%p, %t") + branch + release("%t")) == [1]
    skipped = f"scf.if %flag {{\n{dot('%x, %y')}}}\n"
    assert depths(dot("%p, %t") + skipped + release("%t")) == [0]


def test_a_token_from_either_branch():
    text = dot("%p, %t") + f"%u = scf.if %flag -> (!async.token) {{\n{dot('%x, %y')}scf.yield %y : !async.token\n}} else {{\n"
    text += f"scf.yield %t : !async.token\n}}\n{dot('%q, %v')}"
    assert depths(text + release("%u")) == [1]


def test_trips_between_may_be_none():
    """A dot before a loop: the loop's dots came after it, if there were any."""
    loop = f"scf.for %i = %c0 to %n step %c1 {{\n{dot('%x, %y')}}}\n"
    assert depths(dot("%p, %t") + loop + release("%t")) == [0]


def test_a_token_handed_from_trip_to_trip_gets_old_slowly():
    """Carried through unchanged, it may have been made just before the loop."""
    text = dot("%p, %t") + "%u = scf.for %i = %c0 to %n step %c1 iter_args(%v = %t) -> (!async.token) {\n" + release("%v")
    assert depths(text + dot("%x, %y") + "scf.yield %v : !async.token\n}\n" + release("%u")) == [0, 0]


def test_while_loops_carry_tokens_too():
    text = f"""
%none = async.token none : !async.token
%i, %t = scf.while (%j = %c0, %b = %none) : (index, !async.token) -> (index, !async.token) {{
  %more = arith.cmpi slt, %j, %n : index
  scf.condition(%more) %j, %b : index, !async.token
}} do {{
^bb0(%j: index, %b: !async.token):
  {dot("%x, %y")}{release("%b")}
  %next = arith.addi %j, %c1 : index
  scf.yield %next, %y : index, !async.token
}}
"""
    assert depths(text + release("%t")) == [1, 0]


@pytest.mark.parametrize(("event", "made"), [("none", True), ("here", True), ("dot", False)])
def test_whether_a_carried_token_ever_waits(event, made):
    last = dot("%x, %y") if event == "dot" else f"%y = async.token {event} : !async.token\n"
    text = "%none = async.token none : !async.token\n%u = scf.for %i = %c0 to %n step %c1 iter_args(%v = %none) -> (!async.token) {\n"
    module = parse_module(f"""
tile.kernel @k(%n: index) grid(%g = 1) {{
  %ch = async.channel depth 4 : {CHANNEL}
  %a = async.get %ch : {CHANNEL} -> {BUFFER}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> {TILE}
  {text}{last}{release("%v")}scf.yield %y : !async.token
  }}
  {release("%u")}
}}""")
    tokens = [op.token for op in module.walk() if isinstance(op, ReleaseOp)]
    assert [never_waits(token) for token in tokens] == [made, made]
