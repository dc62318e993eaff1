"""The fuzzer: programs are the same for a seed and varied; faults are found and shrunk; a corpus passes."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.simulator.blocks import known_operations, run_kernel
from tesela.tools.cli import main
from tesela.tools.fuzz.check import Coverage, check, compiled, make_arrays
from tesela.tools.fuzz.generate import generate
from tesela.tools.fuzz.program import render
from tesela.tools.fuzz.shrink import shrink

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CORPUS = range(12)


def test_a_seed_gives_one_program_and_one_call():
    first, second = (generate(5, 12) for _ in range(2))
    assert render(first).text == render(second).text
    arrays = [make_arrays(program, render(program)) for program in (first, second)]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays[0].values(), arrays[1].values()))
    assert render(generate(6, 12)).text != render(first).text


def test_programs_are_well_typed_and_varied():
    coverage = Coverage()
    kinds = []
    for seed in range(130):
        outcome = check(generate(seed, 12), None)
        assert not outcome.failed, (seed, outcome.message)
        kinds.append(outcome.kind)
        coverage.add(outcome.coverage)
    assert kinds.count("ok") > 117
    assert "tile.return" in coverage.operations
    rare = {"arith.cmpi", "arith.cmpf", "arith.select", "arith.index_cast", "layout.convert"}
    made_by_passes = {"tile.block_index", "tile.block_count", "tile.grid_extent", "tile.sum_parts"}
    said = {"tile.print", "tile.assert"}  # what a program says is not compared
    missed = {op for op in known_operations() if not op.startswith("async.")} - rare - made_by_passes - said - set(coverage.operations)
    assert not missed, f"no program has {', '.join(sorted(missed))}"


@pytest.mark.parametrize("seed", CORPUS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_corpus(seed, target):
    outcome = check(generate(seed, 10), compiled(target), target)
    assert outcome.kind in ("ok", "undecided"), outcome.message


def wrong_floor(module, arrays: Mapping[str, np.ndarray], coverage: Coverage) -> None:
    """A subject that is wrong wherever the program has a floor."""
    run_kernel(module, arrays)
    if any(op.name == "math.floor" for op in module.walk()):
        for name, array in arrays.items():
            if name.startswith("out") and array.size and array.dtype.kind != "b":
                array.view(np.uint8).reshape(-1)[:] ^= 0x41


def test_a_wrong_answer_is_found_and_shrunk():
    for seed in range(1000):
        program = generate(seed, 12)
        stored = {node.args[0] for _, _, node in program.nodes() if node.op == "tile.store"}
        if any(node.op == "math.floor" and node.results[0] in stored for _, _, node in program.nodes()):
            outcome = check(program, wrong_floor)
            if outcome.kind == "wrong":
                break
    assert outcome.kind == "wrong" and "elements are wrong" in outcome.message
    smaller = shrink(program, lambda candidate: check(candidate, wrong_floor).signature == outcome.signature, 60)
    nodes = [node.op for _, _, node in smaller.nodes()]
    assert "math.floor" in nodes and len(nodes) <= 6, nodes
    assert sum(smaller.grid) == len(smaller.grid)


def test_faults_and_crashes_are_told_apart():
    def fault(module, arrays, coverage):
        raise TeselaError("a race at line 3")

    def crash(module, arrays, coverage):
        raise IndexError("index 7 is out of range")

    program = generate(1, 8)
    assert check(program, fault).signature == ("fault", "ptx", "error: a race at line #")
    assert check(program, crash).kind == "crash"
    assert check(program, crash).signature == check(generate(2, 8), crash).signature


def test_the_command():
    out = io.StringIO()
    assert (
        main(["fuzz", "--seed", "3", "--count", "4", "--against", "interpreter", "--coverage"], stdout=out, stderr=out)
        == 0
    )
    text = out.getvalue()
    assert text.startswith("seed 3, target sm_90a\n4 ok\n") and "tile.load" in text
