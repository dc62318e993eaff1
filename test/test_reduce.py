"""tesela reduce: smaller modules and programs for which a command still holds, always valid, and the input untouched."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path

import pytest

from tesela.dialects.parsing import parse_module
from tesela.dialects.ptx_text import read_program
from tesela.dialects.verify import verify_module
from tesela.tools.cli import main
from tesela.tools.reduction import ir, ptx
from tesela.tools.reduction.search import Search, reduce

ROOT = Path(__file__).parent.parent
GEMM = (ROOT / "examples" / "gemm.mlir").read_text()


def reduced(text: str, holds, passes, seconds: float = 60.0) -> str:
    """The smallest text found; every text that is tried must be valid."""
    valid = ptx.check if passes is ptx.PASSES else ir.check

    def checked(candidate: str) -> bool:
        valid(candidate)
        return holds(candidate)

    search = Search(text, checked, seconds)
    reduce(search, passes)
    return search.text


def operations(text: str) -> list[str]:
    return [op.name for op in parse_module(text).walk()]


def test_a_dot_is_left() -> None:
    """Of a whole GEMM what a dot needs: the loop is opened, the loads become zeros, the shapes shrink, the store goes."""
    found = reduced(GEMM, lambda text: "tile.dot" in operations(text), ir.Reducer(True).passes)
    names = operations(found)
    assert names.count("tile.dot") == 1
    assert not {"scf.for", "tile.load", "tile.store", "tile.transpose"} & set(names)
    assert "tensor<1x1xf32>" in found and len(names) <= 10


def test_a_loop_is_left() -> None:
    found = reduced(GEMM, lambda text: "scf.for" in operations(text), ir.Reducer(True).passes)
    assert operations(found).count("scf.for") == 1 and "tile.dot" not in operations(found)


def test_kernels_are_dropped() -> None:
    two = GEMM + GEMM.replace("@gemm", "@other")
    found = reduced(two, lambda text: "@other" in text, ir.Reducer(True).passes)
    assert "@gemm" not in found and operations(found).count("tile.kernel") == 1


def test_levels_below_the_tile_level_reduce() -> None:
    from tesela.runtime.compile import compile

    schedule = compile(GEMM, "sm_80").ir("schedule")
    found = reduced(schedule, lambda text: "scf.for" in operations(text), ir.Reducer(True).passes)
    assert "scf.for" in operations(found) and len(operations(found)) <= 12
    ptx_ir = compile(ROOT / "examples" / "add.mlir", "sm_80").ir("ptx-ir")
    found = reduced(ptx_ir, lambda text: "st.global" in text, ir.Reducer(True).passes)
    assert "st.global" in found and len(operations(found)) < len(operations(ptx_ir)) / 2


PTX = (ROOT / "test" / "ptx" / "gemm_mma.ptx").read_text()


def test_an_instruction_is_left() -> None:
    found = read_program(reduced(PTX, lambda text: "mma.sync" in text, ptx.PASSES))
    (entry,) = found.entries
    assert [item.opcode.split(".")[0] for item in entry.body] == ["mma"]
    assert len(entry.registers) <= 14


def test_a_fault_stays_the_same_fault() -> None:
    """What the judge reports of a faulty program it reports of the reduced one."""
    from test_judge_faults import reports

    text = (ROOT / "test" / "ptx" / "faults" / "missing_bar_sync.ptx").read_text()

    def faulty(candidate: str) -> bool:
        try:
            return any(report.kind == "race" for report in reports(head + candidate))
        except Exception as error:  # noqa: BLE001 - a candidate may be any program
            assert "tesela" in type(error).__module__, error
            return False

    head = re.search(r"// launch:.*\n", text)[0]
    found = reduced(text, faulty, ptx.PASSES)
    count = sum(len(entry.body) for entry in read_program(found).entries)
    assert faulty(found) and count < sum(len(entry.body) for entry in read_program(text).entries)


@pytest.mark.parametrize("seed", range(20))
def test_search_takes_out_all_but_what_is_needed(seed: int) -> None:
    """Delta debugging, against random needs."""
    rng = random.Random(seed)
    items = list(range(40))
    needed = set(rng.sample(items, rng.randrange(5)))
    search = Search(repr(items), lambda text: needed <= set(json.loads(text)), 60.0)
    search.subsets(items, lambda out: repr([i for i in items if i not in out]))
    assert set(json.loads(search.text)) == needed


def command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    status = main(["reduce", *arguments], stdout=out, stderr=err)
    return status, out.getvalue(), err.getvalue()


def test_the_tool(tmp_path: Path) -> None:
    file = tmp_path / "a file.mlir"
    file.write_text(GEMM)
    status, out, _ = command(str(file), "--when", "grep -q tile.dot", "--max-tests", "60")
    assert status == 0 and file.read_text() == GEMM
    result = (tmp_path / "a file.mlir.reduced").read_text()
    verify_module(parse_module(result))
    assert "tile.dot" in result and f"{len(result.splitlines())} lines, of {len(GEMM.splitlines())}" in out
    status, _, _ = command(str(file), "--when", "grep -q tile.store {} && true", "-o", str(tmp_path / "other"))
    assert status == 0 and "tile.store" in (tmp_path / "other").read_text()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    file = tmp_path / "k.mlir"
    file.write_text(GEMM)
    status, _, err = command(str(file), "--when", "false")
    assert status == 1 and "interesting" in err and not (tmp_path / "k.mlir.reduced").exists()
    status, _, err = command(str(file), "--when", "true", "-o", str(file))
    assert status == 1 and "never writes the file that it reads" in err and file.read_text() == GEMM
    status, _, err = command(str(tmp_path / "none.mlir"), "--when", "true")
    assert status == 1 and "cannot read" in err


def test_a_module_that_does_not_verify_reduces(tmp_path: Path) -> None:
    file = tmp_path / "k.mlir"
    file.write_text(GEMM.replace("    scf.yield %d : tensor<128x256xf32>", "    scf.yield"))
    status, _, err = command(str(file), "--when", "grep -q scf.for")
    assert status == 0 and "does not verify" in err
    assert "tile.dot" not in (tmp_path / "k.mlir.reduced").read_text()


def test_a_command_that_hangs_is_not_interesting(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(PTX)
    status, _, err = command(str(file), "--when", "sleep 100; true", "--timeout", "0.2")
    assert status == 1 and "interesting" in err


@pytest.mark.parametrize("limit", [1, 3])
def test_the_number_of_tests_is_limited(tmp_path: Path, limit: int) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(PTX)
    status, out, _ = command(str(file), "--when", "true", "--max-tests", str(limit))
    assert status == 0 and f"after {limit} tests" in out
