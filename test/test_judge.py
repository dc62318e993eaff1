"""The judge's interface, the named rules of docs/memory-order.md, systematic schedules, and the profile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulator_harness import kernel

from tesela.dialects.diagnostics import TeselaError
from tesela.simulator import JudgedError, Memory, judge, launch, settings
from tesela.simulator.profile import Profile, bank_wavefronts, sectors
from tesela.simulator.reports import KINDS
from tesela.simulator.schedules import Decisions, explore

ROOT = Path(__file__).parent.parent
EXCHANGE = """shl.b32 %r0, %t, 2; add.s32 %r1, %r0, %s; st.shared.b32 [%r1], %t; {barrier}
    xor.b32 %r2, %r0, 128; add.s32 %r2, %r2, %s; ld.shared.b32 %r3, [%r2]; cvt.u64.u32 %d0, %r0; add.s64 %x, %x, %d0; st.global.b32 [%x], %r3;"""


def options(memory: Memory, words: int = 1024, **more: Any) -> dict[str, Any]:
    params = [memory.map_array(np.zeros(words, np.uint32), "x")]
    return {"block": (64,), "params": params, "memory": memory, "shared_bytes": 4096, **more}


def kinds(body: str, strict: bool, **more: Any) -> set[str]:
    attributes = more.pop("attributes", "")
    reports = judge(kernel(body, attributes=attributes), strict_isa=strict, **options(Memory(), **more))
    return {r.kind for r in reports}


# The interface


def test_judge_gives_reports_as_data() -> None:
    (report,) = judge(kernel(EXCHANGE.format(barrier="")), **options(Memory()))
    assert report.kind == "race" and report.kind in KINDS and report.count == 64
    assert report.first is not None and report.second is not None
    assert (report.first.verb, report.first.op) == ("reads", "ld.shared.b32")
    assert (report.second.verb, report.second.op) == ("writes", "st.shared.b32")
    assert report.first.who == "warp 0 (threads 0-31) of block (0, 0, 0)" and report.first.where == "smem+128..255"
    assert "nothing orders that" in str(report)


def test_launch_raises_them() -> None:
    with pytest.raises(JudgedError) as caught:
        launch(kernel(EXCHANGE.format(barrier="")), races=True, **options(Memory()))
    assert [r.kind for r in caught.value.reports] == ["race"]
    assert isinstance(caught.value, TeselaError) and "race: warp 0" in str(caught.value)
    assert [r.kind for r in caught.value.prefixed("here: ").reports] == ["race"]
    result = launch(kernel(EXCHANGE.format(barrier="bar.sync 0;")), races=True, **options(Memory()))
    assert result.executed["bar.sync"] == 64


def test_settings_judge_launches_that_say_nothing() -> None:
    text = kernel(EXCHANGE.format(barrier=""))
    with settings(races=True), pytest.raises(JudgedError):
        launch(text, **options(Memory()))
    with settings(races=True):
        launch(text, races=False, **options(Memory()))
    launch(text, **options(Memory()))


@pytest.mark.parametrize("wrong", [{"races": "no"}, {"strict_isa": None}, {"seed": "x"}, {"seed": 1.5}, {"seed": True}], ids=str)
def test_settings_that_are_none(wrong: dict[str, object]) -> None:
    """An error where they are written, and not a program that is judged, or not, against what was meant."""
    (name, value), = wrong.items()
    with pytest.raises(TeselaError, match=f"{name} is {value!r}, but .* is required"), settings(**wrong):  # type: ignore[arg-type]
        pass


def test_what_ends_a_program_is_a_report() -> None:
    deadlock = judge(kernel("setp.lt.s32 %p0, %t, 32; @%p0 bar.sync 1, 64;"), **options(Memory()))
    assert [r.kind for r in deadlock] == ["barrier count/phase", "deadlock"]
    assert "waiting at barrier 1, where 32 of 64 have arrived" in str(deadlock[-1])
    (fault,) = judge(kernel("st.global.b32 [%x+4], %t; ld.global.b32 %r0, [%x+40000];"), **options(Memory(), block=(1,)))
    assert fault.kind == "out of bounds" and fault.first is not None and fault.first.op == "ld.global.b32"


def test_source_lines_are_named() -> None:
    text = (ROOT / "test/ptx/faults/missing_bar_sync.ptx").read_text()
    memory = Memory()
    (report,) = judge(text, **options(memory, words=8129))
    assert report.first is not None and report.second is not None
    assert (str(report.first.location), str(report.second.location)) == ("exchange.py:6:9", "exchange.py:4:5")


def test_blocks_of_different_batches_race_too() -> None:
    """They run one after the other here, and at once on a device."""
    text = kernel("mov.b32 %r0, %ctaid.x; setp.eq.s32 %p0, %t, 0; @%p0 st.global.b32 [%x], %r0;")
    for batch in (64, 1 << 14):
        found = judge(text, batch_threads=batch, **options(Memory(), grid=(2,)))
        assert [r.kind for r in found] == ["race"]


# The named rules: each is right by default and reported by the letter of the ISA

REMOTE = """.reg .b32 %peer, %remote, %rbar; mov.u32 %peer, %cluster_ctarank; xor.b32 %peer, %peer, 1; setp.ne.s32 %p0, %t, 0; @%p0 bra $READY;
    mbarrier.init.shared::cta.b64 [%s+1024], 64; fence.mbarrier_init.release.cluster; $READY: barrier.cluster.arrive.{order}.aligned; barrier.cluster.wait.aligned;
    """
CLUSTER = ".explicitcluster\n.reqnctapercluster 2, 1, 1"

RULES = {
    "convergence-orders": (
        """shl.b32 %r0, %t, 2; add.s32 %r1, %r0, %s; st.shared.b32 [%r1], %t; shfl.sync.idx.b32 %r4, %t, 0, 31, -1;
        xor.b32 %r2, %r1, 4; ld.shared.b32 %r3, [%r2];""",
        {},
    ),
    "equal-writes": ("mov.b32 %r0, 7; st.shared.b32 [%s], %r0;", {}),
    "remote-arrive-frees": (
        REMOTE.format(order="release")
        + """shl.b32 %r0, %t, 2; add.s32 %r1, %r0, %s; st.shared.b32 [%r1], %t; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mapa.shared::cluster.u32 %remote, %r1, %peer; add.s32 %r2, %s, 1024; mapa.shared::cluster.u32 %rbar, %r2, %peer;
        ld.shared::cluster.b32 %r3, [%remote]; mbarrier.arrive.shared::cluster.b64 _, [%rbar];
        $FREE: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s+1024], 0; @!%p1 bra $FREE;
        st.shared.b32 [%r1], %r3; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;""",
        {"attributes": CLUSTER, "grid": (2,)},
    ),
    "relaxed-cluster-barrier": (
        """.reg .b32 %peer, %remote; mov.u32 %peer, %cluster_ctarank; xor.b32 %peer, %peer, 1; shl.b32 %r0, %t, 2;
        add.s32 %r1, %r0, %s; st.shared.b32 [%r1], %t; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mapa.shared::cluster.u32 %remote, %r1, %peer; ld.shared::cluster.b32 %r3, [%remote];
        barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;""",
        {"attributes": CLUSTER, "grid": (2,)},
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_relaxed_rules(rule: str) -> None:
    body, more = RULES[rule]
    assert kinds(body, False, **more) == set()
    assert kinds(body, True, **more) <= {"race", "exit while peer may touch shared memory"} and kinds(body, True, **more)


def test_every_named_rule_is_tested() -> None:
    page = (ROOT / "docs/memory-order.md").read_text()
    relaxed = page[page.index("**Relaxed**") : page.index("**Stricter**")]
    assert set(re.findall(r"\*\*([a-z-]+)\.\*\*", relaxed)) == {*RULES}


# Schedules


def test_exploration_bounds_preemptions() -> None:
    seen: list[tuple[int, ...]] = []

    def run(decisions: Decisions) -> None:
        seen.append(tuple(decisions.choose(3) for _ in range(3)))

    assert explore(run, bound=1) == 1 + 3 * 2
    assert seen[0] == (0, 0, 0) and len(set(seen)) == 7 and all(sum(map(bool, s)) <= 1 for s in seen)
    seen.clear()
    assert explore(run, bound=3, limit=1000) == 27 and len(set(seen)) == 27
    seen.clear()
    assert explore(run, bound=1, limit=4) == 4 and len(set(seen)) == 4


def test_systematic_schedules_find_what_the_usual_one_does_not() -> None:
    """One warp stores out of bounds if it looks at the flag before the other, which runs first in the usual schedule,
    has raised it."""
    text = kernel(
        """setp.ge.s32 %p0, %t, 32; @%p0 bra $FIRST; ld.volatile.shared.b32 %r1, [%s]; setp.eq.s32 %p1, %r1, 0; @%p1
        st.global.b32 [%x+40000], %r1; bra $END; $FIRST: mov.b32 %r0, 1; st.volatile.shared.b32 [%s], %r0; $END:"""
    )
    launch(text, **options(Memory()))
    with pytest.raises(TeselaError, match="out of bounds"):
        launch(text, policy="systematic", **options(Memory()))


def test_systematic_runs_start_from_the_same_memory() -> None:
    x = np.zeros(64, np.uint32)
    memory = Memory()
    text = kernel("mul.wide.u32 %d0, %t, 4; add.s64 %x, %x, %d0; ld.global.b32 %r0, [%x]; add.s32 %r0, %r0, 1; setp.lt.s32 %p0, %t, 32; @%p0 bra $A; bar.sync 1, 32; $A: st.global.b32 [%x], %r0;")
    launch(text, block=(64,), params=[memory.map_array(x)], memory=memory, policy="systematic", races=True)
    assert (x == 1).all()


# The profile


def test_wavefronts_and_sectors() -> None:
    lanes, warps = np.arange(32), np.zeros(32, int)
    assert bank_wavefronts(lanes * 4, 4, warps, lanes) == (1, 1, 1)
    assert bank_wavefronts(lanes * 8, 4, warps, lanes) == (1, 2, 1)
    assert bank_wavefronts(lanes * 128, 4, warps, lanes) == (1, 32, 1)
    assert bank_wavefronts(lanes * 0, 4, warps, lanes) == (1, 1, 1)
    assert bank_wavefronts(lanes * 16, 16, warps, lanes) == (1, 4, 4)
    assert bank_wavefronts(lanes * 128, 16, warps, lanes) == (1, 32, 4)
    assert bank_wavefronts(lanes * 2, 2, warps, lanes) == (1, 1, 1)
    assert sectors(lanes * 4, 4, warps) == (1, 4, 4)
    assert sectors(4 + lanes * 4, 4, warps) == (1, 5, 4)
    assert sectors(lanes * 128, 4, warps) == (1, 32, 4)
    assert sectors(np.tile(lanes[:16] * 4, 2), 4, np.repeat([0, 1], 16)) == (2, 4, 4)


def test_profile_by_line() -> None:
    profile = Profile()
    text = (ROOT / "test/ptx/faults/missing_bar_sync.ptx").read_text()
    launch(text, observer=profile, **options(Memory(), words=8129))
    lines = {line.name: line for line in profile.lines}
    assert lines["exchange.py:4"].shared_bytes == 256 and lines["exchange.py:4"].wavefronts == 2
    assert lines["exchange.py:4"].warps == 2 * 3 and lines["exchange.py:4"].conflicts == 0
    assert lines["exchange.py:6"].global_bytes == 256 and lines["exchange.py:6"].sectors == 8
    assert lines["exchange.py:6"].opcodes["st.global.b32"] == 64
    assert "exchange.py:4" in profile.table() and lines["exchange.py:4"].to_json()["wavefronts"] == 2


def test_the_command_line_judges_and_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tesela.runtime import driver
    from tesela.tools.cli import main

    text = (ROOT / "test/ptx/faults/missing_bar_sync.ptx").read_text()
    faulty, right = tmp_path / "faulty.ptx", tmp_path / "right.ptx"
    faulty.write_text(text)
    right.write_text(text.replace("//+ ", ""))
    launched = ["--grid", "1", "--block", "64", "--shared", "1024", "--param", "x=zeros:i32:64", "--device", "sim", "--races", "--seeds", "2"]
    assert main(["run", str(faulty), *launched]) == 1
    assert "race: warp 0" in capsys.readouterr().err
    assert main(["run", str(right), *launched, "--profile", "--out", f"x={tmp_path}/x.npy"]) == 0
    said = capsys.readouterr().out
    assert "nothing to report in 3 runs" in said and "wavefronts" in said and "exchange.py:4" in said
    assert np.load(tmp_path / "x.npy").tolist() == [t ^ 32 for t in range(64)]
    usual = [option for option in launched if option not in ("--device", "sim")]
    assert main(["run", str(right), *usual[:-2], "--device", "cuda"]) == 1
    assert "and this would run on a GPU" in (err := capsys.readouterr().err) and "add --device sim" in err
    monkeypatch.setenv("TESELA_DEVICE", "cuda")
    assert main(["run", str(right), *usual]) == 1 and "add --device sim" in capsys.readouterr().err
    monkeypatch.setenv("TESELA_DEVICE", "sim")
    assert main(["run", str(right), *usual]) == 0 and "nothing to report in 3 runs" in capsys.readouterr().out
    monkeypatch.delenv("TESELA_DEVICE")
    monkeypatch.setattr(driver, "device_available", lambda: False)
    assert main(["run", str(right), *usual]) == 0 and "nothing to report in 3 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("griddepcontrol.wait; griddepcontrol.launch_dependents; st.global.b32 [%x], %r1;", []),
        ("setp.eq.s32 %p0, %r1, 7; @%p0 bra $A; griddepcontrol.wait; bra $B; $A: griddepcontrol.wait; $B: st.global.b32 [%x], %r1;", []),
        ("st.global.b32 [%x], %r1; griddepcontrol.wait;", ["access global memory, but have not waited"]),
        ("griddepcontrol.launch_dependents; ld.global.b32 %r1, [%x];", ["access global memory", "end, but have not waited"]),
        ("mov.b32 %r2, %tid.x; setp.eq.s32 %p0, %r2, 5; @%p0 bra $A; griddepcontrol.wait; $A: mov.b32 %r3, 0;", ["thread 5) of block (0, 0, 0) end"]),
    ],
)
def test_grids_that_begin_early_wait(body: str, found: list[str]) -> None:
    """Before the first access, and before the end; a program without griddepcontrol is none of them (all other tests)."""
    memory = Memory()
    reports = judge(kernel("mov.b32 %r1, 0; " + body), **options(memory))
    said = [report for report in reports if "the grids before" in report.message]
    assert len(said) == len(found) and all(part in report.message for part, report in zip(found, said))
    assert all(report.kind == "missing wait" for report in said)
