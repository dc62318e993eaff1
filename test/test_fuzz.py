"""The fuzzer: programs are the same for a seed and varied; faults are found and shrunk; a corpus passes."""

from __future__ import annotations

import importlib
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_isa import lookup
from tesela.dialects.target import get_target
from tesela.passes.dot_candidates import candidates
from tesela.passes.dot_rules import DotShape
from tesela.passes.dot_types import all_dot_types
from tesela.passes.offered_rows import offered_rows
from tesela.simulator.blocks import known_operations, run_kernel
from tesela.tools.cli import main
from tesela.tools.fuzz import mix
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

    program = generate(2, 8)
    assert check(program, fault).signature == ("fault", "ptx", "error: a race at line #")
    assert check(program, crash).kind == "crash"
    assert check(program, crash).signature == check(generate(3, 8), crash).signature


def test_the_command():
    out = io.StringIO()
    assert (
        main(["fuzz", "--seed", "3", "--count", "4", "--against", "interpreter", "--coverage"], stdout=out, stderr=out)
        == 0
    )
    text = out.getvalue()
    assert text.startswith("seed 3, target sm_90a\n4 ok\n") and "tile.load" in text


# ---- the mix of random and directed programs (a minute's worth on one core; bench/random_programs.py runs 5000) ------


MIXED, CHUNK = 44, 4


@pytest.mark.parametrize("first", range(0, MIXED, CHUNK))
def test_the_mix(first):
    for number in range(first, first + CHUNK):
        target, outcome, used = mix.run(number, seed=3)
        assert not outcome.failed, f"python bench/random_programs.py --seed 3 --only {number}\n{outcome.message}"
        assert outcome.kind != "ok" or used, (target, number)


def test_directed_programs_use_what_they_aim_at():
    aimed, hit = 0, 0
    for number in (7, 8, 18):
        found = mix.mixed(number, seed=2)
        _, outcome, used = mix.run(number, seed=2)
        assert outcome.kind == "ok", outcome.message
        assert all(row.columns for row in found.aims)
        aimed += len(found.aims)
        hit += sum(row.opcode in used for row in found.aims)
    assert hit > 0.9 * aimed


def test_rows_that_layouts_choose_are_rows_of_the_table():
    for name in ("sm_80", "sm_90a"):
        target = get_target(name)
        rows = offered_rows(target)
        assert all(lookup(opcode).supports(name) for opcode in rows)
        assert any("wgmma" in opcode for opcode in rows) == target.has_wgmma
    widths = Counter((row.types.lhs, row.types.rhs, row.types.acc, row.types.precision) for row in rows.values() if row.columns)
    assert widths["bf16", "bf16", "f32", ""] == widths["f8E4M3FN", "f8E5M2", "f16", ""] == widths["f32", "f32", "f32", "tf32"] == 32
    assert widths["i8", "ui8", "i32", ""] == 18, "8, 16, 24, and multiples of 16 from 32 to 256 (PTX ISA 9.0 §9.7.16.2)"


def test_what_a_dot_offers_is_among_the_rows():
    """Every candidate of a dot of each type names instructions that the gathered rows have."""
    for name in ("sm_80", "sm_90a"):
        target, rows = get_target(name), offered_rows(get_target(name))
        for types in all_dot_types():
            for unit in ("wgmma", "mma") if types.kind.tensor_core else ("fma",):
                if unit == "wgmma" and not target.has_wgmma:
                    continue
                shape = DotShape((), 64, 200, 64, types.kind)
                for way in candidates(shape, unit, 4, target, "buffer").candidates:
                    opcodes = [types.kind.wgmma_opcode(n) for n in way.choice.pieces] or [types.kind.mma_opcode(way.choice.swapped) if unit == "mma" else types.kind.fma_opcode]
                    assert set(opcodes) <= set(rows), way.text


def test_a_run_that_misses_a_row_fails(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "bench"))
    bench = importlib.import_module("random_programs")
    rows = dict.fromkeys(mix.all_rows(), 10)
    assert bench.rare({"rows": rows}, 10) == {}
    rows["shfl.sync.bfly.b32"] = 9
    assert bench.rare({"rows": rows}, 10) == {"shfl.sync.bfly.b32": 9}
