"""check-barriers: hand-made faulty ptx modules are refused, each with its message; what the compiler makes passes; and what it makes with one fault does not."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pipelined_programs import PROGRAMS

from tesela import f16
from tesela.dialects.diagnostics import Emitter, TeselaError
from tesela.dialects.parsing import parse_module
from tesela.lowering.check_barriers import CheckBarriers
from tesela.passes.base import PassContext
from tesela.runtime.compile import compile
from tesela.runtime.specialize import usual_facts

sys.path.append(str(Path(__file__).parent.parent / "bench"))
import assembled

HEAD = """ptx.kernel @ring target sm_90a threads 512 shared 4160 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %2 = ptx.constant 2 : !ptx.reg<b32>
  %3 = ptx.constant 3 : !ptx.reg<b32>
  %4 = ptx.constant 4 : !ptx.reg<b32>
  %5 = ptx.constant 5 : !ptx.reg<b32>
  %10 = ptx.constant 10 : !ptx.reg<b32>
  %all = ptx.constant 4294967295 : !ptx.reg<b32>
  %bytes = ptx.constant 1024 : !ptx.reg<b32>
  %zero = ptx.constant 0 : !ptx.reg<b64>
  %one = ptx.constant 1 : !ptx.reg<b64>
  %n = ptx.param "n" : !ptx.reg<b64>
  %x = ptx.param "x" : !ptx.reg<b64>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %warp = ptx.inst "shr.u32" %tid, %5 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
  %elected = ptx.inst "elect.sync" %all : (!ptx.reg<b32>) -> !ptx.reg<pred>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %consumes = ptx.inst "setp.lt.s32" %warp, %4 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %produces = ptx.inst "setp.eq.s32" %warp, %4 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %buffers = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 4096 : !ptx.reg<b32>
  %empty = ptx.shared_address 4112 : !ptx.reg<b32>
"""
INIT = """  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first {offsets = array<i64: 8>} : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "mbarrier.init.shared::cta.b64" %empty, %4 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "mbarrier.init.shared::cta.b64" %empty, %4 if %first {offsets = array<i64: 8>} : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
"""
MEET = """  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
"""


def slot(count: str) -> str:
    """The slot and the parity of a count, and the addresses of both mbarriers and of the buffer."""
    return f"""      %slot = ptx.inst "and.b32" {count}, %1 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %round = ptx.inst "shr.u32" {count}, %1 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %parity = ptx.inst "and.b32" %round, %1 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %other = ptx.inst "xor.b32" %parity, %1 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %place = ptx.inst "shl.b32" %slot, %3 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %at_full = ptx.inst "add.s32" %full, %place : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %at_empty = ptx.inst "add.s32" %empty, %place : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %start = ptx.inst "shl.b32" %slot, %10 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %buffer = ptx.inst "add.s32" %buffers, %start : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
"""


NEXT = """      %next = ptx.inst "add.s32" %count, %1 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      ptx.yield %next : !ptx.reg<b32>
    }
"""
WAIT_FULL = "      ptx.wait_parity %at_full, %parity : !ptx.reg<b32>, !ptx.reg<b32>\n"
READ = """      %lane = ptx.inst "shl.b32" %tid, %2 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %from = ptx.inst "add.s32" %buffer, %lane : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>
      %v = ptx.inst "ld.shared.b32" %from : (!ptx.reg<b32>) -> !ptx.reg<b32>
"""
FENCE = """      ptx.inst "fence.proxy.async.shared::cta" : () -> ()
"""
ARRIVE = """      ptx.inst "mbarrier.arrive.shared::cta.b64" %at_empty if %elected : (!ptx.reg<b32>, !ptx.reg<pred>) -> ()
"""
WAIT_EMPTY = "      ptx.wait_parity %at_empty, %other : !ptx.reg<b32>, !ptx.reg<b32>\n"
ANNOUNCE = """      ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %at_full, %bytes if %elected : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
"""
COPY = """      ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %bytes, %at_full if %elected : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
"""
LOOP = "    %last{0} = ptx.for %i{0} = %zero to %n step %one : !ptx.reg<b64> carried(%count = %0 : !ptx.reg<b32>) {{\n"
CONSUMER = LOOP.format(0) + slot("%count") + WAIT_FULL + READ + FENCE + ARRIVE + NEXT
PRODUCER = LOOP.format(1) + slot("%count") + WAIT_EMPTY + ANNOUNCE + COPY + NEXT


def ring(consumer: str = CONSUMER, producer: str = PRODUCER, init: str = INIT, meet: str = MEET, before: tuple[str, str] = ("", "")) -> str:
    """A ring of two slots: warp 4 copies, warps 0 to 3 read."""
    return (
        HEAD + init + meet + "  ptx.if %consumes {\n" + before[0] + consumer + "    ptx.yield\n  } else {\n" + before[1] + "    ptx.if %produces {\n"
        + producer + "    ptx.yield\n    }\n    ptx.yield\n  }\n}\n"
    )


def registers(direction: str, count: int) -> str:
    return f'    ptx.inst "setmaxnreg.{direction}.sync.aligned.u32" {{imms = [{count} : i64]}} : () -> ()\n'


def check(text: str, walks: int = 40) -> Emitter:
    emitter = Emitter()
    CheckBarriers(walks).run(parse_module(text), PassContext(emitter=emitter))
    return emitter


def test_a_right_ring_passes():
    assert not check(ring()).diagnostics
    assert not check(ring(before=(registers("inc", 240), registers("dec", 40)))).diagnostics


WRONG = {
    "a missing wait for what was copied": (
        ring(consumer=CONSUMER.replace(WAIT_FULL, "")),
        "reads bytes 0 to 1024, which the copy at line … may not have written yet: warp 0 has not waited for phase 0 of the mbarrier at 4096",
        "ld.shared",
    ),
    "a missing wait, and nobody reads": (
        ring(consumer=CONSUMER.replace(WAIT_FULL, "").replace(READ, "")),
        "completes phase 1 of the mbarrier at 4112 before phase 0 was waited for by all who wait: a wait tells phases apart by their parity alone",
        "mbarrier.arrive",
    ),
    "a missing wait for a free slot": (
        ring(producer=PRODUCER.replace(WAIT_EMPTY, "")),
        "overwrites bytes 0 to 1024, which the copy at line … may be writing: nobody that this warp has met since has waited for phase 0 of the mbarrier at 4096",
        "cp.async.bulk",
    ),
    "a slot filled again when it is full, not when it is free": (
        ring(producer=PRODUCER.replace(WAIT_EMPTY, WAIT_EMPTY.replace("%at_empty, %other", "%at_full, %other"))),
        "reads bytes 0 to 1024, which the copy at line … may not have written yet: warp 0 has not waited for phase 6 of the mbarrier at 4096",
        "ld.shared",
    ),
    "given back without a proxy fence": (
        ring(consumer=CONSUMER.replace(FENCE, "")),
        "overwrites bytes 0 to 1024, which warp 0 read through the generic proxy: it has told this warp so, but not the async proxy",
        "cp.async.bulk",
    ),
    "a proxy fence before the read": (
        ring(consumer=CONSUMER.replace(FENCE, "").replace(READ, FENCE + READ)),
        "overwrites bytes 0 to 1024, which warp 0 read through the generic proxy",
        "cp.async.bulk",
    ),
    "a proxy fence after the slot is given back": (
        ring(consumer=CONSUMER.replace(FENCE + ARRIVE, ARRIVE + FENCE)),
        "overwrites bytes 0 to 1024, which warp 0 read through the generic proxy",
        "cp.async.bulk",
    ),
    "given back before it is read": (
        ring(consumer=CONSUMER.replace(ARRIVE, "").replace(READ, ARRIVE + READ)),
        "overwrites bytes 0 to 1024, which warp 0 may be reading: it has not told this warp that it is done",
        "cp.async.bulk",
    ),
    "a wrong phase at the start": (
        ring(consumer=CONSUMER.replace("%at_full, %parity", "%at_full, %other")),
        "reads bytes 0 to 1024, which the copy at line … may not have written yet: warp 0 has not waited for phase 0 of the mbarrier at 4096",
        "ld.shared",
    ),
    "a phase that never changes": (
        ring(consumer=CONSUMER.replace("%at_full, %parity", "%at_full, %0")),
        "waits for a phase of parity 0 of the mbarrier at 4096, but after phase 0 warp 0 has to wait for phase 1, of parity 1",
        "ptx.wait_parity",
    ),
    "the wrong phase of a free slot": (
        ring(producer=PRODUCER.replace("%at_empty, %other", "%at_empty, %parity")),
        "warps 0 to 3 wait for ever: phase 0 of the mbarrier at 4096 has 0 of 1 arrivals; warp 4 at line …: phase 0 of the mbarrier at 4112 has 0 of 4 arrivals",
        "ptx.wait_parity %at_full",
    ),
    "too many bytes announced": (
        ring(producer=PRODUCER.replace(ANNOUNCE, '      %more = ptx.constant 2048 : !ptx.reg<b32>\n' + ANNOUNCE.replace("%bytes", "%more"))),
        "announces 2048 bytes for phase 0 of the mbarrier at 4096, and the copies that complete on it bring 1024: whoever waits for the phase waits for ever",
        "expect_tx",
    ),
    "too few bytes announced": (
        ring(producer=PRODUCER.replace(ANNOUNCE, '      %less = ptx.constant 512 : !ptx.reg<b32>\n' + ANNOUNCE.replace("%bytes", "%less"))),
        "the copies that complete on the mbarrier at 4096 bring 1024 bytes to its phase 0, for which 512 were announced",
        "cp.async.bulk",
    ),
    "a missing release": (
        ring(consumer=CONSUMER.replace(ARRIVE, "")),
        "phase 0 of the mbarrier at 4112 has 0 of 4 arrivals",
        "ptx.wait_parity %at_full",
    ),
    "a double release": (
        ring(consumer=CONSUMER.replace(ARRIVE, ARRIVE + ARRIVE)),
        "completes phase 1 of the mbarrier at 4112 before phase 0 was waited for by all who wait",
        "mbarrier.arrive",
    ),
    "every thread of a warp arrives": (
        ring(consumer=CONSUMER.replace(ARRIVE, ARRIVE.replace(" if %elected", "").replace(", !ptx.reg<pred>", ""))),
        "128 threads arrive on the mbarrier at 4112, whose phase 0 has 0 of its 4 arrivals already",
        "mbarrier.arrive",
    ),
    "a role that never arrives": (
        ring(producer="    %unused = ptx.constant 0 : !ptx.reg<b32>\n"),
        "warps 0 to 3 wait for ever: phase 0 of the mbarrier at 4096 has 0 of 1 arrivals",
        "ptx.wait_parity",
    ),
    "a count of arrivals that nobody makes": (
        ring(init=INIT.replace("%empty, %4", "%empty, %5")),
        "phase 0 of the mbarrier at 4112 has 4 of 5 arrivals",
        "ptx.wait_parity",
    ),
    "a count of arrivals that nobody makes, and a slot that is used once": (
        ring(init=INIT.replace("%empty, %4", "%empty, %5")).replace("%zero to %n", "%zero to %one"),
        "the mbarrier at 4112 counts 5 arrivals, and its phase 0 has 4 when the kernel ends",
        "mbarrier.init",
    ),
    "a copy that nobody waits for": (
        ring(consumer="    %unused = ptx.constant 0 : !ptx.reg<b32>\n").replace("%zero to %n", "%zero to %one"),
        "nobody waits for phase 0 of the mbarrier at 4096, on which this copy completes",
        "cp.async.bulk",
    ),
    "an mbarrier that all threads initialise": (
        ring(init=INIT.replace(" if %first :", " :", 1).replace(", !ptx.reg<pred>", "", 1)),
        "512 threads initialise the mbarrier at 4096",
        "mbarrier.init",
    ),
    "an mbarrier that nobody initialises": (
        ring(init="".join(line for line in INIT.splitlines(True)[:-1])),
        "no mbarrier was initialised at 4120",
        "ptx.wait_parity %at_empty",
    ),
    "roles whose trips differ": (
        ring(producer=PRODUCER.replace("%zero to %n", "%one to %n")),
        "warps 0 to 3 wait for ever",
        "ptx.wait_parity",
    ),
    "a copy that a whole warp issues": (
        ring(producer=PRODUCER.replace(COPY, COPY.replace(" if %elected", "").replace(", !ptx.reg<pred>)", ")"))),
        "32 threads issue the copy, each for itself",
        "cp.async.bulk",
    ),
    "more registers than there are": (
        ring(before=(registers("inc", 240), registers("dec", 120))),
        "warps 0 to 3 wait for ever: with 240 registers for each of their threads the block's sum to 76800, and it starts with 65536 (512 threads of 128)",
        "setmaxnreg.inc",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_modules(name):
    text, message, place = WRONG[name]
    with pytest.raises(TeselaError) as caught:
        check(text)
    first = caught.value.diagnostics[0]
    assert message in re.sub(r"line \d+", "line …", first.message)
    assert first.location is not None and place in text.splitlines()[first.location.line - 1]


# ---- what the compiler makes ----------------------------------------------------------------------------------------

STATED = ("warp_specialize = true", "warp_specialize = false", "warp_specialize = true, cluster = 1 : i64", "persistent = true")


@cache
def lowered(name: str, attributes: str, stages: int = 3) -> str:
    made = compile(PROGRAMS[name].text(stages, attributes), "sm_90a")
    return made.ir("ptx-ir", facts=usual_facts(made.contract))


@pytest.mark.parametrize("name", PROGRAMS)
def test_schedules_pass(name):
    for number, attributes in enumerate(STATED):
        assert not check(lowered(name, attributes, 1 + (number + len(name)) % 4), walks=4).diagnostics


def _faults(text: str) -> Iterator[tuple[str, str]]:
    """The module with one fault, for each place that has it: an operation left out, a parity turned round, a number that is one off."""
    lines = text.splitlines(True)
    for at, line in enumerate(lines):
        without = "".join(lines[:at] + lines[at + 1 :])
        if "ptx.wait_parity" in line:
            yield "drop wait", without
            turned = re.sub(r"(ptx\.wait_parity %\w+, )(%\w+)", r"\1%turned", line)
            phase = re.search(r"ptx\.wait_parity %\w+, (%\w+)", line)
            assert phase is not None
            turn = f'%turn = ptx.constant 1 : !ptx.reg<b32>\n%turned = ptx.inst "xor.b32" {phase[1]}, %turn : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32>\n'
            yield "turn parity", "".join(lines[:at]) + turn + turned + "".join(lines[at + 1 :])
        elif "fence.proxy.async" in line:
            yield "drop fence", without
        elif "mbarrier.init" in line:
            yield "drop init", without
            yield "change count", "".join(lines[:at]) + "%odd = ptx.constant 7 : !ptx.reg<b32>\n" + re.sub(r"(b64\" %\w+, )%\w+", r"\1%odd", line) + "".join(lines[at + 1 :])
        elif "expect_tx" in line:
            yield "drop announcement", without
            yield "change bytes", "".join(lines[:at]) + "%odd = ptx.constant 48 : !ptx.reg<b32>\n" + re.sub(r"(b64\" %\w+, )%\w+", r"\1%odd", line) + "".join(lines[at + 1 :])
        elif "mbarrier.arrive" in line or "cp.async.bulk.tensor" in line and "shared::c" in line.split(".global")[0]:
            yield "drop " + ("arrival" if "arrive" in line else "copy"), without
            yield "repeat " + ("arrival" if "arrive" in line else "copy"), "".join(lines[:at]) + line + "".join(lines[at:])


@pytest.mark.parametrize("attributes", STATED[:2])
@pytest.mark.parametrize("name", ["gemm"])
def test_with_one_fault(name, attributes):
    text = lowered(name, attributes)
    found: Counter[str] = Counter()
    for what, faulty in _faults(text):
        found[what] += 1
        with pytest.raises(TeselaError):
            check(faulty, walks=10)
            pytest.fail(f"{name} passes: {what} {found[what]}")
    roles = "true" in attributes
    assert {"drop wait", "turn parity", "drop init", "change count", "drop announcement", "change bytes", "drop copy", "repeat copy"} <= set(found)
    assert ({"drop arrival", "repeat arrival"} <= set(found)) == roles


def test_without_a_proxy_fence():
    """Queries are read into registers, and TMA brings the next ones."""
    text = lowered("attention", "persistent = true")
    faulty = [faulty for what, faulty in _faults(text) if what == "drop fence"]
    assert faulty
    for one in faulty:
        with pytest.raises(TeselaError, match="read through the generic proxy"):
            check(one, walks=10)


KERNELS = {case.kernel: case for case in reversed(list(assembled.cases())) if (case.target, case.facts) == ("sm_90a", "usual") and dict(case.values).get("T") in (None, f16)}
"""Each kernel of the repository, in its first variant."""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_the_repository_pass(name):
    values = dict(KERNELS[name].values)
    pins = {pin: values.pop(pin) for pin in assembled.PINS if pin in values}
    made = assembled.functions()[name].compile("sm_90a", pins=pins or None, **values)
    assert not check(made.ir("ptx-ir", facts=assembled.facts_of(made.contract, "usual")), walks=3).diagnostics


def test_what_is_not_followed_is_said():
    text = ring().replace("  %full = ", '  %probe = ptx.shared_address 4096 : !ptx.reg<b32>\n  %p = ptx.inst "mbarrier.test_wait.parity.shared::cta.b64" %probe, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>\n  %full = ')
    (note,) = check(text).diagnostics
    assert note.message == "check-barriers does not follow mbarrier.test_wait.parity.shared::cta.b64, and passes the kernel over"


# ---- barriers that tell what threads know ---------------------------------------------------------------------------

REDUCE = '  %told = ptx.inst "bar.red.{}" %0, {} : (!ptx.reg<b32>, !ptx.reg<pred>) -> !ptx.reg<{}>\n'
LOADED = '  %loaded = ptx.inst "ld.global.b32" %x : (!ptx.reg<b64>) -> !ptx.reg<b32>\n  %drawn = ptx.inst "setp.eq.s32" %loaded, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>\n'
ASKED = '  %asked = ptx.inst "setp.eq.s32" %told, {} : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>\n'
ENDLESS = "  ptx.if {} {{\n    ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>\n    ptx.yield\n  }}\n"
"""A wait for a phase on which nobody arrives before."""


@pytest.mark.parametrize("operation", ["and.pred", "or.pred", "popc.u32"])
def test_a_reduction_is_a_barrier(operation):
    kind = "b32" if operation == "popc.u32" else "pred"
    reduce = REDUCE.format(operation, "%first", kind)
    assert not check(ring(meet=reduce)).diagnostics
    few = reduce.replace("%0, %first : (", "%1, %threads, %first : (!ptx.reg<b32>, ")
    with pytest.raises(TeselaError, match="of barrier 1's 544 threads 512 have come"):
        check(ring(meet="  %threads = ptx.constant 544 : !ptx.reg<b32>\n" + few))


@pytest.mark.parametrize(
    ("operation", "predicate", "after", "asked", "taken"),
    [
        ("or.pred", "%first", "", "%told", True),
        ("and.pred", "%first", "", "%told", False),
        ("or.pred", "%never", "", "%told", False),
        ("and.pred", "%always", "", "%told", True),
        ("popc.u32", "%consumes", ASKED.format("%128"), "%asked", True),
        ("popc.u32", "%consumes", ASKED.format("%1"), "%asked", False),
    ],
)
def test_what_a_reduction_tells(operation, predicate, after, asked, taken):
    """Where the predicate is known in each thread, so is what the barrier tells, on every walk: what stands under it is walked, or not."""
    known = "  %128 = ptx.constant 128 : !ptx.reg<b32>\n"
    known += "".join(f'  %{name} = ptx.inst "setp.{relation}.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>\n' for name, relation in (("never", "lt"), ("always", "ge")))
    text = ring(meet=known + REDUCE.format(operation, predicate, "b32" if after else "pred") + after + ENDLESS.format(asked))
    if taken:
        with pytest.raises(TeselaError, match="wait for ever: phase 0 of the mbarrier at 4096 has 0 of 1 arrivals"):
            check(text, walks=1)
    else:
        assert not check(text).diagnostics


def test_what_is_drawn_is_told_to_all_at_all_places():
    """Both roles ask for it, and go round their rings or not, together."""
    meet = LOADED + REDUCE.format("or.pred", "%drawn", "pred")
    both = ring(consumer="    ptx.if %told {\n" + CONSUMER + "    ptx.yield\n    }\n", producer="    ptx.if %told {\n" + PRODUCER + "    ptx.yield\n    }\n", meet=meet)
    assert not check(both).diagnostics
    for alone in (ring(consumer="    ptx.if %told {\n" + CONSUMER + "    ptx.yield\n    }\n", meet=meet), ring(meet=meet + ENDLESS.format("%told"))):
        with pytest.raises(TeselaError):
            check(alone)


@pytest.mark.parametrize("roles", [0, 1])
def test_split_sums_are_looked_at(roles):
    """Whose last part is told so by a reduction."""
    text = assembled.functions()["gemm"].compile("sm_90a", pins={"split": 3, "warp_specialize": roles}, T=f16).ir("ptx-ir")
    assert "bar.red.or.pred" in text
    assert not check(text, walks=10).diagnostics
    for what, faulty in list(_faults(text))[::5]:
        with pytest.raises(TeselaError):
            check(faulty, walks=10)
            pytest.fail(f"passes: {what}")
