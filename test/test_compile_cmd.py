"""tesela compile: every level, launch plans and cubins as files, what may be assumed, and wrong command lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tesela.dialects.launch_plan import LaunchPlan
from tesela.dialects.parsing import parse_module, print_module
from tesela.runtime.assemble import find_ptxas
from tesela.tools.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"
ADD = str(EXAMPLES / "add.mlir")


def tesela(*arguments: str) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    status = main(list(arguments), stdout=stdout, stderr=stderr)
    return status, stdout.getvalue(), stderr.getvalue()


@pytest.mark.parametrize("level", ["tile", "async", "layout", "schedule", "ptx-ir"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_every_level_prints_and_reads_back(level, target):
    status, out, err = tesela("compile", ADD, "--target", target, "--emit", level)
    assert (status, err) == (0, "")
    assert ("tile.kernel" in out) == (level != "ptx-ir")
    assert print_module(parse_module(out)) == out


def test_what_is_assumed_shows_in_the_module_and_in_the_plan():
    _, usual, _ = tesela("compile", ADD, "--emit", "tile")
    assert usual.count("align = 16") == 3 and usual.count("noalias") == 3
    _, bare, _ = tesela("compile", ADD, "--emit", "tile", "--assume", "nothing")
    assert "align" not in bare and "noalias" not in bare
    _, some, _ = tesela("compile", ADD, "--emit", "tile", "--assume", "x=16, N=8")
    assert some.count("align = 16") == 1 and "N divisible 8" in some
    _, text, _ = tesela("compile", ADD, "--emit", "plan", "--assume", "N=8,noalias")
    plan = LaunchPlan.from_json(json.loads(text))
    assert {(need.kind, need.arg, need.value) for need in plan.requirements} >= {("divisible", "N", 8), ("noalias", "x", 1)}


def test_ptx_for_both_targets():
    for target in ("sm_80", "sm_90a"):
        status, out, _ = tesela("compile", ADD, "--target", target)
        assert status == 0 and f".target {target}\n" in out and ".entry add" in out


@pytest.mark.skipif(not find_ptxas(), reason="needs a ptxas")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_cubins_assemble_without_a_warning(target, tmp_path):
    path = tmp_path / "add.cubin"
    status, out, err = tesela("compile", ADD, "--target", target, "--emit", "cubin", "--strict", "-o", str(path))
    assert (status, out, err) == (0, "", "")
    assert path.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--emit", "cubin"], 1, "error: a cubin is not written to standard output\n  hint: name a file with -o\n"),
        (["--assume", "fast"], 1, "error: --assume: 'fast' is not understood\n  hint: write aligned, noalias, nothing or NAME=16; there are "
            "dimensions N; arrays x, y, z\n"),
        (["--assume", "N=0"], 1, "error: --assume N=0: '0' is no positive integer\n"),
        (["--assume", "x=32"], 1, "error: --assume x=32: an alignment is one of 1, 2, 4, 8, 16 bytes\n"),
        (["--target", "sm_9"], 1, "error: unknown target 'sm_9'\n"),
        (["-o", "/no/such/folder/k.ptx"], 1, "error: cannot write '/no/such/folder/k.ptx': No such file or directory\n"),
        (["--emit", "sass"], 2, "usage: "),
    ],
)  # fmt: skip
def test_wrong_command_lines(arguments, status, message):
    found, out, err = tesela("compile", ADD, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(message), err
