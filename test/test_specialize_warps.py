"""Kernels in roles against the same kernels of one role, unpipelined: equal bit for bit, whatever the trips, the stages, and the order of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from pipelined_programs import PROGRAMS, Program

from tesela.dialects.parsing import parse_module
from tesela.dialects.verify import verify_module
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.compile import compile
from tesela.runtime.disassemble import find_nvdisasm, read_sass
from tesela.runtime.specialize import usual_facts
from tesela.simulator.blocks import run_kernel
from tesela.simulator.launcher import settings

ORDERS = ("latest", "earliest", 1, 2, 3)
SPLIT = "warp_specialize = true"
WHOLE = "warp_specialize = false"


@cache
def kernel(program: Program, stages: int | None, attributes: str):
    return compile(program.text(stages, attributes), "sm_90a")


@contextmanager
def order(which: str | int) -> Iterator[None]:
    """Launches within run in this order of events, and are judged: a race, or a barrier that is not as the program left it, is an error."""
    with settings(races=True, **({"seed": which} if isinstance(which, int) else {"policy": which})):
        yield


def simulate(program: Program, stages: int | None, attributes: str, trips: int, which: str | int = "latest", pad: int = 0) -> dict[str, bytes]:
    """All arrays after a run in the simulator, as bytes."""
    arrays = program.arrays(trips, pad=pad)
    with order(which):
        kernel(program, stages, attributes)(**arrays, device="sim")
    return {name: array.tobytes() for name, array in arrays.items()}


def in_roles(program: Program, stages: int | None = 4) -> str:
    """The text of the scheduled level, for arrays as they usually are."""
    made = kernel(program, stages, SPLIT)
    return made.ir("schedule", facts=usual_facts(made.contract))


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_one_role(name, stages):
    program = PROGRAMS[name]
    for number, trips in enumerate(sorted({0, 1, 2, 3, stages - 1, stages, stages + 1, 9})):
        wanted = simulate(program, 1, WHOLE, trips)
        found = simulate(program, stages, SPLIT, trips, ORDERS[number % len(ORDERS)])
        assert found == wanted, f"{trips} trips"


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_of_them_split(name):
    """And what TMA cannot load ahead (what the loop stores, what is computed) stays with the consumer."""
    text = in_roles(PROGRAMS[name])
    consumer, producer = text[text.index("async.roles") :].split("}, producer(")
    assert "tensor<" not in producer and "async.put" in producer
    assert ("async.put" in consumer) == (name in ("in_place", "doubling"))  # stored to; at no multiple of 16 bytes
    assert ("async.write" in consumer) == (name == "written")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("stages", [1, 3])
def test_the_interpreter_agrees(name, stages):
    """Roles as coroutines at the scheduled level, against the program as it was written."""
    program = PROGRAMS[name]
    module = parse_module(in_roles(program, stages))
    verify_module(module)
    for trips in (0, 1, 2, 5):
        wanted = program.arrays(trips)
        run_kernel(parse_module(program.text(None)), wanted)
        for blocks in (1, 3):
            found = program.arrays(trips)
            run_kernel(module, found, blocks=blocks)
            for array, value in wanted.items():
                np.testing.assert_array_equal(found[array], value)


@pytest.mark.skipif(not find_ptxas(), reason="needs ptxas")
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_dot_is_serialised(name):
    """No ptxas says anything of C75xx, nor of spilled registers."""
    made = kernel(PROGRAMS[name], 4, SPLIT)
    ptx = made.variant(facts=usual_facts(made.contract)).ptx
    for assembler in find_ptxas():
        messages = assemble(ptx, "sm_90a", assembler=assembler).messages
        assert not messages, [message.message for message in messages]


def gemm(m: int, n: int) -> str:
    """A product in tiles of m×n, without attributes."""
    return LARGE_GEMM.replace("TM", str(m)).replace("TN", str(n))


LARGE_GEMM = """tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) dims(%K = K) grid(%bm = M ceildiv TM, %bn = N ceildiv TN) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %tm = arith.constant TM : index
  %tn = arith.constant TN : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %tm : index
  %n = arith.muli %bn, %tn : index
  %zero = tile.full %f0 : f32 -> tensor<TMxTNxf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<TMxTNxf32>) {
    %a = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<TMx64xbf16>
    %b = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<TNx64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<TNx64xbf16> -> tensor<64xTNxbf16>
    %d = tile.dot %a, %t, %c : tensor<TMx64xbf16>, tensor<64xTNxbf16> -> tensor<TMxTNxf32>
    scf.yield %d : tensor<TMxTNxf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<TMxTNxf32>, memref<?x?xf32, strided<[?, 1]>>
}"""


ONE = {"cluster": 1}
"""Blocks by themselves: clusters are the matter of test_form_clusters."""


def variant(text: str, pins: dict[str, int] | None = None):
    made = compile(text, "sm_90a", pins=pins)
    return made.variant(facts=usual_facts(made.contract))


def test_two_warpgroups_split_by_themselves_and_one_does_not():
    large, small = variant(gemm(128, 128)), variant(gemm(64, 64))
    assert large.plan.threads == 384 and large.plan.persistent
    assert small.plan.threads == 128 and not small.plan.persistent


def test_what_the_text_says():
    """Registers change hands, one warp issues, both operands' slots are announced at once, and given back by one thread of each of two warpgroups."""
    ptx = variant(gemm(128, 256), ONE).ptx
    assert ".maxntid 384" in ptx and ".minnctapersm 1" in ptx
    assert ptx.count("setmaxnreg.inc.sync.aligned.u32 240") == 1 and ptx.count("setmaxnreg.dec.sync.aligned.u32 24") == 1
    loads = ptx.count("cp.async.bulk.tensor.2d.shared::cta.global")
    announced = [line.strip() for line in ptx.splitlines() if "mbarrier.arrive.expect_tx" in line]
    assert loads == 2 and len(announced) == 1 and announced[0].endswith(", 49152;")
    assert ptx.count("wgmma.wait_group.sync.aligned 1;") == 1
    assert ptx.count("bar.sync 0;") == 1
    inits = [line for line in ptx.splitlines() if "mbarrier.init" in line]
    assert sum(line.endswith(", 1;") for line in inits) == sum(line.endswith(", 2;") for line in inits) == len(inits) // 2 == 4


@pytest.mark.skipif(not find_ptxas(), reason="needs ptxas")
@pytest.mark.parametrize("tile", [(128, 128), (128, 256), (256, 128)], ids=str)
def test_machine_code_of_large_tiles(tile):
    """Nothing is serialised or spilled, and no TMA instruction stands in a loop over the lanes."""
    made = variant(gemm(*tile), ONE)
    for assembler in find_ptxas():
        done = assemble(made.ptx, "sm_90a", assembler=assembler)
        assert not done.messages and done.resources["gemm"].spill_stores == 0 and done.resources["gemm"].registers == 168


@pytest.mark.skipif(find_nvdisasm() is None or not find_ptxas(), reason="needs nvdisasm and ptxas")
def test_machine_code_of_the_loops():
    """In the consumer's loop a trip's four dots stand between one fence and one wait; the producer's two loads are in no loop over lanes."""
    code = read_sass(variant(gemm(128, 256), ONE).sass())["gemm"]
    names = [[instruction.name for instruction in loop] for loop in code.loops()]
    computing = min((loop for loop in names if "HGMMA" in loop), key=len)
    assert computing.count("HGMMA") == 4
    opcodes = next([i.opcode for i in loop] for loop in code.loops() if [i.name for i in loop] == computing)
    assert opcodes.count("WARPGROUP.ARRIVE") == 1 and opcodes.count("WARPGROUP.DEPBAR.LE") == 1
    assert opcodes.count("SYNCS.ARRIVE.TRANS64.A1T0") == opcodes.count("SYNCS.PHASECHK.TRANS64.TRYWAIT") == 1
    assert len(opcodes) <= 42
    assert sum(instruction.name == "UTMALDG" for instruction in code.instructions) == 2
    assert not any(i.opcode.startswith("BRA.U.ANY") for i in code.instructions)
