"""Mutation: faults are planted where they should be, are what they say, and are judged right: reported, or excused for a reason that holds."""

from __future__ import annotations

import io
from collections import Counter
from functools import cache, partial

import pytest
from judged_programs import PROGRAMS
from test_judge_faults import FAULTS

from tesela.dialects.ptx_program import Instr
from tesela.dialects.ptx_text import print_program, read_program
from tesela.tools.cli import main
from tesela.tools.mutation.equivalent import REASONS, why_equivalent
from tesela.tools.mutation.faults import KINDS, Mutant, choose, instr_at, is_barrier, is_try_wait, is_wait, sites
from tesela.tools.mutation.launches import Recorded, record
from tesela.tools.mutation.live import is_live
from tesela.tools.mutation.tally import counts, rates, table, try_all
from tesela.tools.mutation.trial import Trial

SUBSET = (
    ("kernels/batched_gemm", "sm_90a"), ("kernels/attention", "sm_80"), ("dots/alias", "sm_90a"), ("kernels/softmax", "sm_80"), ("ptx/gemm_wgmma", "sm_90a"),
    ("examples/add.mlir", "sm_80"), ("kernels/transpose", "sm_90a"), ("ptx/gemm_mma", "sm_80"),
)  # fmt: skip
"""Programs that have places for every kind of fault between them."""
WHOLE = "ptx/gemm_wgmma"
"""The one in which every kind of fault is planted; of the others each gets a quarter."""


def _kinds(name: str, target: str) -> tuple[str, ...]:
    return tuple(KINDS) if name == WHOLE else tuple(KINDS)[SUBSET.index((name, target)) % 4 :: 4]


@cache
def recorded(name: str, target: str) -> Recorded:
    (launch,) = record(lambda: PROGRAMS[name](target))
    return launch


def test_a_subset_is_caught() -> None:
    """Some mutants of some programs; `bench/mutants.py` tries all programs."""
    rows = []
    for name, target in SUBSET:
        launch = recorded(name, target)
        trial = Trial(launch, ({"policy": "latest"}, {"policy": "earliest"}, {"seed": 0}))
        every = sites(launch)
        for mutant in choose(every, 1, f"test/{name}", _kinds(name, target), partial(is_live, trial, launch)):
            verdict = trial.judge(mutant)
            rows.append({"kind": mutant.kind, "outcome": verdict.outcome})
            assert verdict.outcome in ("reported", "equivalent"), f"{name} {target} {mutant.key}: {verdict}"
    total = sum(counts(rows).values(), Counter())
    assert sum(total.values()) >= 40
    assert rates(total)[0] >= 0.75 and rates(total)[1] == 1, table(rows)


def test_every_kind_has_places() -> None:
    found = {kind for name, target in SUBSET for kind, mutants in sites(recorded(name, target)).items() if mutants}
    assert found == set(KINDS)


def test_mutants_are_programs_that_differ() -> None:
    """Every mutant's text reads back, and is not the program's; the program itself stays as it is."""
    launch = recorded("ptx/gemm_wgmma", "sm_90a")
    right = print_program(launch.program)
    for mutants in sites(launch).values():
        for mutant in mutants[:20]:
            text = print_program(mutant.program(launch))
            assert text != right or mutant.params(launch) != launch.params, mutant
            if mutant.change.text.split()[0] != "0":
                read_program(text)
    assert print_program(launch.program) == right


def test_choices_depend_on_the_seed_alone() -> None:
    every = sites(recorded("kernels/batched_gemm", "sm_90a"))
    keys = [[m.key for m in choose(every, 2, seed)] for seed in ("a", "a", "b")]
    assert keys[0] == keys[1] != keys[2]
    chosen = Counter(m.kind for m in choose(every, 2, "a"))
    assert all(chosen[kind] <= 2 for kind in KINDS)
    assert {m.kind for m in choose(every, 2, "a", ["drop-wait"])} == {"drop-wait"}


def test_faults_that_change_nothing_are_passed_over() -> None:
    """A register for another that holds the same, and a constant that no clamp reaches."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .b64 y)
{
  .reg .b32 %t, %u, %a, %b; .reg .b64 %y, %o;
  ld.param.b64 %y, [y]; mov.b32 %t, %tid.x; add.s32 %u, %t, 0; min.s32 %a, %u, 100; add.s32 %b, %u, 1;
  mul.wide.u32 %o, %a, 4; add.s64 %y, %y, %o; st.global.b32 [%y], %b; ret;
}"""
    launch = one_launch(text)
    trial = Trial(launch)
    live = {m.key for mutants in sites(launch).values() for m in mutants if is_live(trial, launch, m)}
    body = launch.kernel.body
    at = {item.opcode: k for k, item in enumerate(body) if isinstance(item, Instr)}
    assert f"change-constant@{at['min.s32']}.0" not in live  # 200 for 100
    assert f"rename-register@{at['min.s32']}.0" not in live  # %t for %u
    assert f"change-constant@{at['add.s32']}.0" in live  # 2 for 1
    assert f"drop-op@{at['st.global.b32']}.0" in live


def one_launch(text: str, threads: int = 64, shared: int = 1024) -> Recorded:
    """A program's launch of one block with one array."""
    import numpy as np

    from tesela.simulator import Memory, launch

    memory = Memory()
    y = memory.map_array(np.zeros(4 * threads, np.uint32), "y")
    (found,) = record(lambda: launch(text, block=(threads,), params=(y,), memory=memory, shared_bytes=shared))
    return found


BARRIERS = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .b64 y)
{
  .reg .b32 %t, %s, %u, %v; .reg .b64 %y, %o;
  ld.param.b64 %y, [y]; mov.b32 %t, %tid.x; mov.b32 %s, smem; shl.b32 %u, %t, 2; add.s32 %s, %s, %u;
  st.shared.b32 [%s], %t;
  bar.sync 0;
  xor.b32 %u, %u, 128; mov.b32 %s, smem; add.s32 %s, %s, %u; ld.shared.b32 %v, [%s];
  bar.sync 0;
  mul.wide.u32 %o, %t, 4; add.s64 %y, %y, %o; st.global.b32 [%y], %v; ret;
}"""


def test_the_needed_barrier_is_reported_and_the_other_excused() -> None:
    launch = one_launch(BARRIERS)
    trial = Trial(launch)
    first, second = sites(launch)["drop-barrier"]
    assert trial.judge(first).outcome == "reported" and "race" in trial.judge(first).symptoms
    assert why_equivalent(trial, first) is None  # the reasons do not rest on the judge
    assert trial.judge(second).reason == "nothing shared"


def test_a_result_that_is_wrong_is_not_enough_for_a_fault_of_order() -> None:
    assert all(("wrong result" in kind.symptoms) != kind.order for kind in KINDS.values())


@pytest.mark.parametrize("name", ("ptx/gemm_wgmma", "ptx/gemm_mma"))
def test_no_reason_excuses_what_is_reported(name: str) -> None:
    """Mutants of order that the judge reports, all waits and barriers of a kernel: none could have been excused. (A reason that excused too much would
    hide what the judge misses.)"""
    launch = recorded(name, "sm_80")
    trial = Trial(launch, ({"policy": "latest"}, {"seed": 0}))
    tried = 0
    for kind in ("drop-wait", "drop-barrier", "drop-commit"):
        for mutant in choose(sites(launch), 2, "excuses", [kind]):
            if trial.judge(mutant).outcome == "reported":
                tried += 1
                assert why_equivalent(trial, mutant) is None, mutant
    assert tried >= 3


def test_reasons_are_for_kinds_that_exist() -> None:
    assert {kind for reason in REASONS for kind in reason.kinds} <= set(KINDS)
    assert len({reason.holds for reason in REASONS}) == len(REASONS)


def test_a_program_without_an_end_is_stopped() -> None:
    text = BARRIERS.replace("bar.sync 0;\n  xor", "$L:\n  st.shared.b32 [%s], %t;\n  bra $L;\n  xor")
    from tesela.simulator import judge

    (report, *_) = judge(text, block=(64,), params=(0,), shared_bytes=1024, max_turns=50)
    assert report.kind == "deadlock" and "no end" in report.message


def test_the_tool() -> None:
    out = io.StringIO()
    path = str(FAULTS[0].parent.parent.parent.parent / "examples" / "softmax.mlir")
    status = main(["mutate", path, "--target", "sm_80", "--kind", "drop-barrier", "--each", "1", "--dim", "M=4", "--verbose"], stdout=out)
    assert status == 0, out.getvalue()
    assert "drop-barrier@" in out.getvalue() and "reported as the right kind" in out.getvalue()


def test_the_table_counts() -> None:
    rows = [{"kind": "drop-wait", "outcome": o} for o in ("reported", "reported", "equivalent", "missed")]
    assert "50.0% of all, 66.7% of those" in table(rows)
    assert rates(counts(rows)["drop-wait"]) == (0.5, 2 / 3)


def test_instructions_are_told_apart() -> None:
    launch = recorded("ptx/gemm_wgmma", "sm_90a")
    for mutant in sites(launch)["drop-wait"]:
        instr = instr_at(launch.kernel, mutant.index)
        assert is_wait(instr) or is_try_wait(instr)
    assert all(is_barrier(instr_at(launch.kernel, m.index)) for m in sites(launch)["drop-barrier"])
    assert isinstance(sites(launch)["drop-wait"][0], Mutant)
    assert len(list(try_all(launch, 1, "x", ["weaken-wait"]))) >= 1


def test_results_that_depend_on_the_schedule_are_not_compared() -> None:
    """A sum by atomic additions of floats, whose order the seed changes: its low bytes vary, its high bytes are still compared."""
    import numpy as np

    from tesela.simulator import Memory, launch

    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .b64 x, .param .b64 y)
{
  .reg .b32 %t, %b, %v; .reg .b64 %x, %y, %o;
  ld.param.b64 %x, [x]; ld.param.b64 %y, [y]; mov.b32 %t, %tid.x; mov.b32 %b, %ctaid.x; mad.lo.s32 %b, %b, 32, %t;
  mul.wide.u32 %o, %b, 4; add.s64 %x, %x, %o; ld.global.b32 %v, [%x]; mul.wide.u32 %o, %t, 4; add.s64 %y, %y, %o;
  red.global.add.f32 [%y], %v;
  ret;
}"""
    memory = Memory()
    x = np.random.default_rng(0).standard_normal(32 * 16).astype(np.float32)
    y = np.zeros(32, np.float32)
    params = (memory.map_array(x), memory.map_array(y))
    (launched,) = record(lambda: launch(text, grid=(16,), block=(32,), params=params, memory=memory))
    trial = Trial(launched)
    (dropped,) = [m for m in sites(launched)["drop-op"] if m.opcode.startswith("red.")]
    assert trial.judge(dropped).outcome == "reported"


def test_the_table_in_documents() -> None:
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
    from tables import mutants_table

    found = {"drop-wait": {"reported": 2, "equivalent": 1, "missed": 1}}
    rows = {"kinds": found, "outcomes": found["drop-wait"], "reported_of_all": 0.5, "reported_of_those_not_equivalent": 2 / 3}
    over = {"passed_over": {"drop-wait": 7}, "programs_with_passed_over_counted": 1}
    text = mutants_table({**rows, **over, "programs": [{}, {}], "date": "2026-01-01"})
    assert "| drop-wait | 4 | 2 | 1 | 1 | 7 |" in text and "counted in 1 of the programs" in text and "50.0% of all" in text and "66.7% of those that can matter" in text


COPIES = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .b64 y)
{
  .reg .b32 %t, %s, %u, %v; .reg .b64 %y, %o, %a; .reg .pred %p;
  ld.param.b64 %y, [y]; mov.b32 %t, %tid.x; mov.b32 %s, smem; shl.b32 %u, %t, 2; add.s32 %s, %s, %u; cvt.u64.u32 %o, %u; add.s64 %a, %y, %o;
  cp.async.ca.shared.global [%s], [%a], 4; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
  mov.b32 %u, smem; ld.shared.b32 %v, [%u+4]; bar.sync 0;
  setp.lt.s32 %p, %t, 0;
  @%p cp.async.ca.shared.global [%s], [%a], 4; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
  st.global.b32 [%a+512], %v; ret;
}"""


def test_copies_besides_are_excused_only_if_they_are_ordered() -> None:
    """The second copies, of no thread as it is: with barriers on both sides they change nothing; without the barrier before them, they race with the
    load."""
    for text, reason in ((COPIES, "copies that change nothing"), (COPIES.replace("[%u+4]; bar.sync 0;", "[%u+4];"), None)):
        launch = one_launch(text)
        trial = Trial(launch)
        (all_of_them,) = sites(launch)["change-comparison"]
        assert why_equivalent(trial, all_of_them) == reason
        assert trial.judge(all_of_them).outcome == ("equivalent" if reason else "reported")


def test_wide_stores_and_narrow_ones_have_the_same_effects() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .b64 y)
{
  .reg .b32 %t, %u; .reg .b64 %y, %o; .reg .pred %p;
  ld.param.b64 %y, [y]; mov.b32 %t, %tid.x; mul.wide.u32 %o, %t, 8; add.s64 %y, %y, %o; add.s32 %u, %t, 1;
  setp.ge.s32 %p, %t, 0;
  @!%p bra $NARROW;
  st.global.v2.b32 [%y], {%t, %u}; ret;
$NARROW:
  st.global.b32 [%y], %t; st.global.b32 [%y+4], %u; ret;
}"""
    launch = one_launch(text)
    trial = Trial(launch)
    (other,) = sites(launch)["change-comparison"]
    assert trial.judge(other).reason == "same effects"


def test_a_barrier_separates_what_nothing_else_orders() -> None:
    """Between the copy and the load all lanes wait for the mbarrier: the barrier after it separates nothing, until only one warp waits."""
    text = """.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .b64 y)
{
  .reg .b32 %t, %s, %m, %v; .reg .b64 %y, %o, %a; .reg .pred %p, %q, %w;
  ld.param.b64 %y, [y]; mov.b32 %t, %tid.x; mov.b32 %s, smem; add.s32 %m, %s, 512; setp.eq.s32 %q, %t, 0; setp.lt.s32 %w, %t, 64;
  @%q mbarrier.init.shared::cta.b64 [%m], 1; fence.proxy.async.shared::cta; bar.sync 0;
  @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], 256;
  @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%y], 256, [%m];
  @!%w bra $ON;
$WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], 0; @!%p bra $WAIT;
$ON:
  bar.sync 0;
  mad.lo.s32 %s, %t, 4, %s; ld.shared.b32 %v, [%s]; mul.wide.u32 %o, %t, 4; add.s64 %a, %y, %o; st.global.b32 [%a+512], %v; ret;
}"""
    for waiting, needed in ((64, False), (32, True)):
        launch = one_launch(text.replace("%t, 64", f"%t, {waiting}"))
        trial = Trial(launch)
        second = sites(launch)["drop-barrier"][1]
        assert why_equivalent(trial, second) == (None if needed else "nothing shared")
        assert trial.judge(second).outcome == ("reported" if needed else "equivalent")
