"""check-async: hand-made faulty programs are refused, each with its message; what the compiler makes passes; and what it makes less one operation does not."""

from __future__ import annotations

import re

import pytest
from pipelined_programs import PROGRAMS
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tesela import f16
from tesela.dialects import async_copy
from tesela.dialects.diagnostics import Emitter, TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.dialects.verify import verify_module
from tesela.kernels.attention import attention
from tesela.lowering.pipeline import lower_to
from tesela.passes.base import PassContext
from tesela.passes.check_async import CheckAsync
from tesela.runtime.compile import compile
from tesela.runtime.specialize import specialize, usual_facts

HEAD = """tile.kernel @k(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%bm = M ceildiv 64) attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
"""
PUT = "async.put %ch, %A[%bm, %k] : !async.channel<64x64xbf16>, memref<?x?xbf16, strided<[?, 1]>>"
GET = "%a = async.get %ch : !async.channel<64x64xbf16> -> !async.buffer<64x64xbf16>"
DOT = "%p, %t = async.dot %a, %a, %c : !async.buffer<64x64xbf16>, !async.buffer<64x64xbf16>, tensor<64x64xf32>"
AWAIT = "%d = async.await %p : !async.pending<tensor<64x64xf32>>"
RELEASE = "async.release %ch : !async.channel<64x64xbf16>"
AFTER = "async.release %ch after %t : !async.channel<64x64xbf16>"
READ = "%x = async.read %a : !async.buffer<64x64xbf16> -> tensor<64x64xbf16>"


def channel(depth: int = 1, name: str = "ch") -> str:
    return f"%{name} = async.channel depth {depth} : !async.channel<64x64xbf16>"


def loop(*body: str, carried: str = "%c = %zero", handed: str = "%d", kind: str = "tensor<64x64xf32>") -> str:
    inside = "\n    ".join(body)
    return f"%r = scf.for %k = %c0 to %K step %c64 iter_args({carried}) -> ({kind}) {{\n    {inside}\n    scf.yield {handed} : {kind}\n  }}"


def plain(*body: str) -> str:
    inside = "\n    ".join(body)
    return f"scf.for %k = %c0 to %K step %c64 {{\n    {inside}\n  }}"


def kernel(*lines: str) -> str:
    return HEAD + "".join(f"  {line}\n" for line in lines) + "}\n"


def check(text: str) -> Emitter:
    emitter = Emitter()
    CheckAsync().run(parse_module(text), PassContext(get_target("sm_90a"), emitter))
    return emitter


def test_right_programs_pass():
    assert not check(kernel(channel(), loop(PUT, GET, DOT, AWAIT, RELEASE))).diagnostics
    assert not check(kernel(channel(), loop(PUT, GET, DOT, AFTER, AWAIT))).diagnostics


ROLES = "async.roles consumer(warps = 4) {{\n {0}\n }}, producer(warps = 4) {{\n {1}\n }}"
CONSUMER = plain(GET, READ, RELEASE)
WRONG = {
    "a dot's buffer is given back too early": (
        kernel(channel(), loop(PUT, GET, DOT, RELEASE, AWAIT)),
        "the slot of %ch is released while a dot may still read it, and the next put overwrites it (in trip 0 of the loop at line 8)",
        "async.release",
    ),
    "a slot is never released": (
        kernel(channel(), plain(PUT, GET, READ)),
        "this waits for ever: of %ch's 1 slots 0 are filled and 1 got but not released (in trip 1 of the loop at line 8)",
        "async.put",
    ),
    "a slot is never released, and the ring is deep": (
        kernel(channel(8), plain(PUT, GET, READ)),
        "this waits for ever: of %ch's 8 slots 0 are filled and 8 got but not released (in trip 8 of the loop at line 8)",
        "async.put",
    ),
    "a slot is released twice": (
        kernel(channel(2), plain(PUT, GET, READ, RELEASE, RELEASE)),
        "no slot of %ch was got and not yet released (in trip 0 of the loop at line 8)",
        "async.release",
    ),
    "nothing is put": (
        kernel(channel(), plain(GET, READ, RELEASE)),
        "this waits for ever: %ch is empty (in trip 0 of the loop at line 8)",
        "%a = async.get",
    ),
    "what is put is not got": (
        kernel(channel(2), "%k = arith.constant 0 : index", PUT),
        "1 of its slots is filled and never got when the kernel ends",
        "%ch = async.channel",
    ),
    "the last slot is not released": (
        kernel(channel(2), "%k = arith.constant 0 : index", PUT, GET, READ),
        "1 of its slots is got and never released when the kernel ends",
        "%ch = async.channel",
    ),
    "each trip fills one too many": (
        kernel(channel(8), plain(PUT, PUT, GET, READ, RELEASE)),
        "this waits for ever: of %ch's 8 slots 8 are filled and 0 got but not released (in trip 7 of the loop at line 8)",
        "async.put",
    ),
    "a buffer is read after its release": (
        kernel(channel(), plain(PUT, GET, RELEASE, READ)),
        "reads a buffer of %ch after its slot was released (in trip 0 of the loop at line 8)",
        "%x = async.read",
    ),
    "a dot is never awaited": (
        kernel(
            channel(),
            "%c = tile.full %f0 : f32 -> tensor<64x64xf32>",
            "%k = arith.constant 0 : index",
            PUT,
            GET,
            DOT,
            RELEASE,
        ),
        "the slot of %ch is released while a dot may still read it, and the next put overwrites it",
        "async.release",
    ),
    "a dot is under way at the end": (
        kernel(
            channel(),
            "%k = arith.constant 0 : index",
            PUT,
            GET,
            READ,
            RELEASE,
            channel(1, "o"),
            PUT.replace("%ch", "%o"),
            GET.replace("%ch", "%o").replace("%a", "%b"),
            "%p, %t = async.dot %x, %b, %zero : tensor<64x64xbf16>, !async.buffer<64x64xbf16>, tensor<64x64xf32>",
        ),
        "a dot is still under way when the kernel ends",
        "tile.kernel",
    ),
    "a producer that never comes": (
        kernel(channel(2), ROLES.format(CONSUMER, "%k = arith.constant 0 : index")),
        "role consumer waits for ever: %ch is empty (in trip 0 of the loop at line 9)",
        "%a = async.get",
    ),
    "a consumer that gives nothing back": (
        kernel(channel(2), ROLES.format(plain(GET, READ), plain(PUT))),
        "role consumer waits for ever: %ch is empty; role producer waits at async.put at line 15: "
        "of %ch's 2 slots 0 are filled and 2 got but not released (in trip 2 of the loop at line 9)",
        "%a = async.get",
    ),
    "roles whose trips differ": (
        kernel(
            channel(2),
            "%half = arith.muli %K, %c64 : index",
            ROLES.format(CONSUMER, plain(PUT).replace("to %K", "to %half")),
        ),
        "role producer waits for ever: of %ch's 2 slots 2 are filled and 0 got but not released",
        "async.put %ch",
    ),
    "roles that wait crosswise": (
        kernel(
            channel(1),
            channel(1, "o"),
            ROLES.format(
                plain(GET.replace("%ch", "%o"), RELEASE.replace("%ch", "%o"), GET.replace("%a", "%b"), RELEASE),
                plain(PUT, PUT.replace("%bm", "%k"), PUT.replace("%ch", "%o"), PUT.replace("%ch", "%o")),
            ),
        ),
        "role consumer waits for ever: %o is empty",
        "%a = async.get",
    ),
    "a copy that may be on its way": (
        kernel(
            channel(2),
            plain(PUT.replace(" :", ' via "cp.async" :', 1), GET.replace("%ch", "%ch later 1", 1), READ, RELEASE),
        ),
        "counts on 1 later groups of copies, but only 0 come after the put of this slot: it may not be filled yet",
        "%a = async.get",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs(name):
    text, message, place = WRONG[name]
    with pytest.raises(TeselaError) as caught:
        check(text)
    first = caught.value.diagnostics[0]
    assert message in first.message
    assert first.location is not None and text.splitlines()[first.location.line - 1].strip().startswith(place)


SHARED = "#layout.shared<[64:64], [64:1], swizzle<0, 0, 0>>"


def placed(name: str, offset: int, barrier: str = "") -> str:
    return f"%{name} = async.channel depth 1 offset {offset}{barrier} : !async.channel<64x64xbf16, {SHARED}>"


def test_overlapping_places():
    def with_layout(line: str, name: str) -> str:
        return line.replace("64x64xbf16>", f"64x64xbf16, {SHARED}>").replace("%ch", f"%{name}")

    lines = [
        with_layout(line, name) for name in ("p", "q") for line in (PUT, GET.replace("%a", f"%{name}_buffer"), RELEASE)
    ]
    in_turns = plain(*lines)
    at_once = plain(lines[0], lines[3], lines[1], lines[4], lines[2], lines[5])
    both = [placed("p", 0), placed("q", 4096)]
    assert not check(kernel(*both, in_turns)).diagnostics
    with pytest.raises(TeselaError, match="fills a buffer of %q, whose bytes are also %p's, which is in use"):
        check(kernel(*both, at_once))
    assert not check(kernel(placed("p", 0), placed("q", 8192), at_once)).diagnostics
    with pytest.raises(TeselaError, match="its mbarriers at 20004 to 20012 are also %p's"):
        check(kernel(placed("p", 0, " barrier 20000"), placed("q", 8192, " barrier 20004"), at_once))


def test_register_budgets_are_the_verifiers():
    text = kernel(channel(2), ROLES.format(CONSUMER, plain(PUT))).replace(
        "consumer(warps = 4)", "consumer(warps = 8, registers = 240)"
    )
    with pytest.raises(
        TeselaError, match=r"the roles' registers sum to 66560, but the block starts with 64512 \(384 threads of 168\)"
    ):
        verify_module(parse_module(text.replace("producer(warps = 4)", "producer(warps = 4, registers = 40)")))


# ---- what the compiler makes ----------------------------------------------------------------------------------------

FEW = ("gemm", "attention", "dual", "conditional", "last", "moving", "nested")


def scheduled(name: str, target: str, stages: int) -> ModuleOp:
    made = compile(PROGRAMS[name].text(stages), target)
    module = specialize(made.module, made.name, usual_facts(made.contract))
    lower_to(module, "schedule", target)
    return module


def run(module: ModuleOp) -> None:
    CheckAsync().run(module, PassContext(get_target("sm_90a"), Emitter()))


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("triangle", "inner_dot")])
def test_schedules_pass(name, target):
    for stages in (1, 2, 3):
        run(scheduled(name, target, stages))


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_less_one_operation(name, target):
    """Without any one of its puts, gets and releases, or with a release that no longer waits, every schedule is refused."""
    module = scheduled(name, target, 3)
    count = len(_protocol(module))
    assert count >= 4
    for index in range(count):
        copy = module.clone()
        op = _protocol(copy)[index]
        what = f"{op.name} {index}"
        if isinstance(op, async_copy.GetOp):
            again = async_copy.GetOp.make(op.channel)
            op.parent.insert_op_before(again, op)
        else:
            op.detach()
            op.erase()
        with pytest.raises(TeselaError):
            run(copy)
            pytest.fail(f"{name} without {what} passes")


def _protocol(module: ModuleOp) -> list[Operation]:
    return [
        op
        for op in module.walk()
        if isinstance(op, async_copy.PutOp | async_copy.WriteOp | async_copy.GetOp | async_copy.ReleaseOp)
    ]


def test_many_paths_are_said():
    module = scheduled("triangle", "sm_90a", 2)
    emitter = Emitter()
    CheckAsync().run(module, PassContext(get_target("sm_90a"), emitter))
    (note,) = emitter.diagnostics
    assert re.fullmatch(r"check-async walked \d+ of the kernel's paths and found nothing; there are more", note.message)


@pytest.mark.parametrize("causal", [False, True])
def test_bounds_that_are_no_linear_forms(causal):
    """Attention, whose loop over keys is split where masks begin: there are paths that no sizes lead to. What is wrong is found all the same."""
    made = attention.compile("sm_90a", HEAD=64, CAUSAL=causal, T=f16)
    module = specialize(made.module, made.name, usual_facts(made.contract))
    lower_to(module, "schedule", "sm_90a")
    emitter = Emitter()
    CheckAsync().run(module, PassContext(get_target("sm_90a"), emitter))
    assert [diagnostic.message for diagnostic in emitter.diagnostics] == [
        "check-async walked the kernel for 40 choices of sizes and found nothing; which of its paths others lead to it cannot tell"
    ]
    for index in range(0, len(_protocol(module)), 4):
        copy = module.clone()
        op = _protocol(copy)[index]
        if isinstance(op, async_copy.GetOp):
            op.parent.insert_op_before(async_copy.GetOp.make(op.channel), op)
        else:
            op.detach()
            op.erase()
        with pytest.raises(TeselaError):
            run(copy)
            pytest.fail(f"attention without {op.name} {index} passes")


def test_long_paths_are_broken_off(monkeypatch):
    """And said to be; a path is walked no further than so many trips, all together no further than some times as many."""
    from tesela.passes import check_async

    walked = []
    count = check_async._Path._count_trip
    monkeypatch.setattr(check_async._Path, "_count_trip", lambda self: (walked.append(1), count(self))[1])
    monkeypatch.setattr(check_async, "MOST_WALKED_AT_ONCE", 5)
    monkeypatch.setattr(check_async, "MOST_WALKED", 10)
    emitter = Emitter()
    CheckAsync().run(scheduled("triangle", "sm_90a", 2), PassContext(get_target("sm_90a"), emitter))
    (note,) = emitter.diagnostics
    assert "paths and found nothing; there are more" in note.message and len(walked) < 40
