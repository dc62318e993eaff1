"""Pipelined loops against the same loops unpipelined: equal bit for bit, whatever the trips, the stages, and the order of events."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import random_loops
from loop_coverage import REQUIRED
from pipelined_programs import ATTENTION, DUAL, GEMM, NESTED, ORDERS, PROGRAMS, WRITTEN, Program, order

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.compile import compile
from tesela.runtime.specialize import usual_facts
from tesela.simulator.blocks import run_kernel

MANY = 9
@cache
def kernel(program: Program, target: str, stages: int | None, dots: str = "in-flight"):
    """Tiles are small, so that nothing but copies takes time; the model would let dots be awaited. What is possible is stated, so that it is tested."""
    return compile(program.text(stages, f'dots = "{dots}"'), target)


@cache
def simulate(
    program: Program, target: str, stages: int | None, trips: int, which: str | int = "latest", pad: int = 0, races: bool = False
) -> dict[str, bytes]:
    """All arrays after a run in the simulator, as bytes."""
    arrays = program.arrays(trips, pad=pad)
    with order(which, races):
        kernel(program, target, stages)(**arrays, device="sim")
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("target", "stages"), [("sm_90a", 2), ("sm_90a", 3), ("sm_90a", 4), ("sm_90", 3), ("sm_80", 2), ("sm_80", 4)])
def test_equal_to_unpipelined(name, target, stages):
    """Loops of every form, channels in one stream of instructions: by TMA, or by cp.async; those of roles are in test_specialize_warps.py, and those of blocks that walk
    the grid in test_persist_grid.py."""
    program = PROGRAMS[name]
    interesting = {0, 1, 2, 3, stages - 1, stages, stages + 1, MANY} if stages == 4 else {0, stages - 1, stages, stages + 1}
    for number, trips in enumerate(sorted(interesting)):
        wanted = simulate(program, target, 1, trips)
        found = simulate(program, target, stages, trips, ORDERS[number % len(ORDERS)])
        assert found == wanted, f"{trips} trips"


@pytest.mark.parametrize("name", PROGRAMS)
def test_unpipelined_is_right(name):
    """What the others are compared with, against the meaning of the tile program."""
    program = PROGRAMS[name]
    for target in ("sm_90a", "sm_80"):
        simulated, interpreted = program.arrays(3), program.arrays(3)
        kernel(program, target, 1)(**simulated, device="sim")
        run_kernel(parse_module(program.text(1)), interpreted)
        for array, wanted in interpreted.items():
            found = simulated[array].astype(np.float64)
            np.testing.assert_allclose(found, wanted.astype(np.float64), rtol=1e-2, atol=1e-2, err_msg=array)


@pytest.mark.parametrize("program", [GEMM, DUAL, WRITTEN, ATTENTION, NESTED], ids=lambda program: program.name)
@pytest.mark.parametrize("target", ["sm_90a", "sm_90", "sm_80"])
@pytest.mark.parametrize(("pad", "align"), [(8, 2), (2, 4), (1, 2)])
def test_every_way_of_copying_in_any_order(program, target, pad, align):
    """The alignment of A decides whether it comes by TMA or cp.async of 16 bytes, by cp.async of 4, or through registers, while B comes
    the best way."""
    program = replace(program, align=align)
    wanted = simulate(program, target, 1, 7, pad=pad)
    for which in ORDERS:
        assert simulate(program, target, 3, 7, which, pad, races=True) == wanted, which


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_scheduled_program_has_the_same_meaning(name, target):
    """The block interpreter runs the IR after the schedule, and is strict about channels; the text reads back."""
    program = PROGRAMS[name]
    compiled = kernel(program, target, 4)
    module = parse_module(compiled.ir("schedule", facts=usual_facts(compiled.contract)))
    for trips in (0, 1, 3, 4, 6):
        wanted, found = program.arrays(trips), program.arrays(trips)
        run_kernel(parse_module(program.text(1)), wanted)
        run_kernel(module, found)
        for array in wanted:
            assert found[array].tobytes() == wanted[array].tobytes(), f"{array}, {trips} trips"


COVERING = (5, 9, 10, 11, 21, 64, 110, 129, 159, 174, 199, 205, 218, 221, 257, 391, 447, 452, 749, 907, 1029, 1275, 1367, 1657, 2016, 2509, 3108)
"""Programs that have each form of channel, role and loop between them (`covering` of bench/results/random_loops.json)."""


def test_random_loops():
    """The first programs, and few that cover every lowering of channels and every form of role: were a form not among them, the test would not see it break."""
    seen: Counter[str] = Counter()
    for seed in dict.fromkeys((*range(16), *COVERING)):
        outcome = random_loops.examine(seed)
        assert outcome.wrong is None
        seen.update(outcome.covered)
    missing = sorted(REQUIRED - set(seen))
    assert not missing, "python bench/fuzz_loops.py --json FILE says in `covering` which programs have all forms"


# ---- what is decided ------------------------------------------------------------------------------------------------


def scheduled(program: Program, target: str, stages: int | None) -> str:
    compiled = kernel(program, target, stages)
    return compiled.ir("schedule", facts=usual_facts(compiled.contract))


def depths(text: str) -> list[int]:
    return [int(depth) for depth in re.findall(r"async\.channel depth (\d+)", text)]


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_by_default_loops_are_pipelined(target):
    assert min(depths(scheduled(GEMM, target, None))) >= 3


def test_stages_are_taken_at_their_word():
    for stages in (1, 2, 5):
        assert depths(scheduled(GEMM, "sm_90a", stages)) == [stages, stages]


def test_stages_of_one_loop():
    text = GEMM.text(None).replace("    scf.yield", "scf.yield", 1)
    at = text.index("  }\n", text.index("scf.yield")) + len("  }")
    module = compile(text[:at] + " {stages = 3 : i64}" + text[at:], "sm_90a")
    assert depths(module.ir("schedule", facts=usual_facts(module.contract))) == [3, 3]


def test_no_more_stages_than_trips():
    text = GEMM.text(None).replace("to %K step", "to %c64 step")
    for target in ("sm_90a", "sm_80"):
        compiled = compile(text, target)
        ir = compiled.ir("schedule", facts=usual_facts(compiled.contract))
        assert max(depths(ir)) <= 4 and "scf.if" in ir
        arrays, wanted = GEMM.arrays(4), GEMM.arrays(4)
        compiled(**arrays, device="sim")
        kernel(GEMM, target, 1)(**wanted, device="sim")
        assert arrays["C"].tobytes() == wanted["C"].tobytes()


def test_one_batch_of_dots_stays_in_flight():
    compiled = kernel(GEMM, "sm_90a", 3)
    ptx = compiled.variant(facts=usual_facts(compiled.contract)).ptx
    assert re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", ptx) == ["1", "0"]


def test_groups_of_copies_stay_under_way():
    compiled = kernel(GEMM, "sm_80", 4)
    ptx = compiled.variant(facts=usual_facts(compiled.contract)).ptx
    # Two groups a trip, three trips ahead; while trip i waits, those of i + 1 and i + 2 may be under way, and its own second for the first.
    assert re.findall(r"cp\.async\.wait_group (\d)", ptx) == ["5", "4"]


def test_an_accumulator_that_the_loop_reads_is_awaited_in_its_trip():
    assert "-> (!async.pending" not in scheduled(PROGRAMS["rescaled"], "sm_90a", 3)
    assert "-> (!async.pending" in scheduled(GEMM, "sm_90a", 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("in_place", "the loop stores to %A"),
        ("doubling", "its place depends on a value that the loop carries"),
        ("indirect", "its place depends on the result of tile.load"),
    ],
)
def test_a_load_that_stays_says_why(name, reason):
    compiled = kernel(PROGRAMS[name], "sm_80", 3)
    facts = usual_facts(compiled.contract)
    assert any(reason in message.message for message in compiled.variant(facts=facts).messages)


def test_a_store_to_another_array_holds_loads_back_unless_noalias():
    program = PROGRAMS["stores"]
    held = replace(program, extra=program.extra.replace(" {noalias}", ""), noalias=False)
    compiled = kernel(held, "sm_80", 3)
    facts = replace(usual_facts(compiled.contract), noalias=())
    messages = [message.message for message in compiled.variant(facts=facts).messages]
    assert any("the loop stores to %Y, which may be the same memory: state noalias if it is not" in text for text in messages)
    assert simulate(held, "sm_80", 3, 5) == simulate(held, "sm_80", 1, 5)


LARGE = """tile.kernel @large(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K] {align = 16}, %B: memref<?x?xbf16, strided<[?, 1]>> [N, K] {align = 16},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
    dims(%K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 256) STATED {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %m = arith.muli %bm, %c128 : index
  %n = arith.muli %bn, %c256 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x256xf32>
  %acc = scf.for %k = %c0 to %K step %c128 iter_args(%c = %zero) -> (tensor<128x256xf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x128xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<256x128xbf16>
    %t = tile.transpose %b [1, 0] : tensor<256x128xbf16> -> tensor<128x256xbf16>
    %d = tile.dot %a, %t, %c : tensor<128x128xbf16>, tensor<128x256xbf16> -> tensor<128x256xf32>
    scf.yield %d : tensor<128x256xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<128x256xf32>, memref<?x?xf32, strided<[?, 1]>>
}"""


def test_as_many_stages_as_shared_memory_holds():
    """96 KiB a stage: two fit into 227 KiB."""
    compiled = compile(LARGE.replace("STATED", ""), "sm_90a")
    assert depths(compiled.ir("schedule", facts=usual_facts(compiled.contract))) == [2, 2]


SCORES = """tile.kernel @scores(%Q: memref<?x?xbf16, strided<[?, 1]>> [M, D] {align = 16}, %K: memref<?x?xbf16, strided<[?, 1]>> [N, D] {align = 16},
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, ROWS] {noalias})
    dims(%M = M, %N = N) grid(%g = 1) attributes {warp_specialize = false} {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %rows = arith.constant ROWS : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128xROWSxf32>
  scf.for %m = %c0 to %M step %c128 {
    %q = tile.load %Q[%m, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<128x256xbf16>
    %acc = scf.for %n = %c0 to %N step %rows iter_args(%c = %zero) -> (tensor<128xROWSxf32>) {
      %k = tile.load %K[%n, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<ROWSx256xbf16>
      %t = tile.transpose %k [1, 0] : tensor<ROWSx256xbf16> -> tensor<256xROWSxbf16>
      %s = tile.dot %q, %t, %zero : tensor<128x256xbf16>, tensor<256xROWSxbf16> -> tensor<128xROWSxf32>
      %d = arith.addf %c, %s : tensor<128xROWSxf32>
      scf.yield %d : tensor<128xROWSxf32>
    }
    tile.store %acc, %C[%m, %c0] : tensor<128xROWSxf32>, memref<?x?xf32, strided<[?, 1]>>
  }
}"""


@pytest.mark.parametrize(("rows", "wanted"), [(64, [2, 3]), (96, [2, 2]), (128, [1, 2])])
def test_an_outer_loop_gives_up_its_stage_before_the_inner_one_waits(rows, wanted):
    """A tile of Q takes 64 KiB, one of K half a KiB a row."""
    compiled = compile(SCORES.replace("ROWS", str(rows)), "sm_90a")
    assert depths(compiled.ir("schedule", facts=usual_facts(compiled.contract))) == wanted


def test_too_many_stages_name_every_buffer_and_what_fits():
    compiled = compile(LARGE.replace("STATED", "attributes {stages = 4 : i64}"), "sm_90a")
    with pytest.raises(TeselaError) as caught:
        compiled.variant(facts=usual_facts(compiled.contract))
    text = str(caught.value)
    assert "the buffers take 393280 bytes of shared memory, a block of sm_90a can have 232448" in text
    assert "at most 2 stages fit" in text
    assert "%a_channel: 128x128xbf16, 32768 bytes × 4 stages = 131072 bytes" in text
    assert "%b_channel: 256x128xbf16, 65536 bytes × 4 stages = 262144 bytes" in text
    assert "mbarriers: 64 bytes" in text


def test_a_number_of_stages_is_positive():
    compiled = compile(GEMM.text(0), "sm_90a")
    with pytest.raises(TeselaError, match="stages must be a positive number, found 0"):
        compiled.variant(facts=usual_facts(compiled.contract))


# ---- the assembler --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not find_ptxas(), reason="needs ptxas")
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_dot_is_serialised(name):
    """No ptxas says anything of C75xx, nor of spilled registers."""
    compiled = kernel(PROGRAMS[name], "sm_90a", 4)
    ptx = compiled.variant(facts=usual_facts(compiled.contract)).ptx
    for assembler in find_ptxas():
        messages = assemble(ptx, "sm_90a", assembler=assembler).messages
        assert not messages, [message.message for message in messages]
