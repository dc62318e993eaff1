"""tools/sources.py: kernels from Python files on the command line, and NAME=VALUE options."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.frontend.types import DTYPES
from tesela.tools.cli import main
from tesela.tools.sources import python_kernels, read_constants

EXAMPLES = Path(__file__).parent.parent / "examples"

TWO = """
import tesela
from tesela import Array, f32

N = tesela.dims("N")


@tesela.kernel
def double(x: Array[f32, N], y: Array[f32, N], BLOCK: tesela.constexpr = 128):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    y[i : i + BLOCK] = x[i : i + BLOCK] * 2.0


@tesela.kernel
def triple(x: Array[f32, N], y: Array[f32, N], BLOCK: tesela.constexpr = 128):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    y[i : i + BLOCK] = x[i : i + BLOCK] * 3.0
"""


def tesela(*arguments: str) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    status = main(list(arguments), stdout=stdout, stderr=stderr)
    return status, stdout.getvalue(), stderr.getvalue()


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(TWO)
    np.save(tmp_path / "x.npy", np.arange(300, dtype=np.float32))
    return path


def test_runs_a_kernel_of_a_python_file(program):
    folder = program.parent
    status, out, err = tesela(
        "run", str(program), "--kernel", "triple", "--constant", "BLOCK=64", "--in", f"x={folder}/x.npy", "--out", f"y={folder}/y.npy",
        "--device", "sim",
    )  # fmt: skip
    assert (status, err) == (0, "")
    np.testing.assert_array_equal(np.load(folder / "y.npy"), 3 * np.arange(300))


def test_compiles_a_kernel_of_a_python_file():
    status, out, _ = tesela("compile", str(EXAMPLES / "gemm.py"), "--emit", "tile", "--constant", "BM=64")
    assert status == 0
    assert "tile.kernel @gemm(" in out and "M ceildiv 64" in out


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (TWO, [], "error: '@' has 2 kernels\n  hint: name one, on the command line with --kernel: double, triple\n"),
        (TWO, ["--kernel", "half"], "error: '@' has no kernel 'half'\n  hint: it has: double, triple\n"),
        ("x = 1\n", [], "error: '@' has no kernel\n  hint: decorate a function with @tesela.kernel\n"),
        ("x = (\n", [], "@:1:5: error: '@' is no Python program: '(' was never closed\n  x = (\n      ^\n"),
        ("def f():\n    return 1 / 0\n\nf()\n", [], "@:2:1: error: '@' raised ZeroDivisionError: division by zero\n      return 1 / 0\n  ^\n"),
        ("import sys\n\nsys.exit(3)\n", [], "@:3:1: error: '@' raised SystemExit: 3\n  sys.exit(3)\n  ^\n"),
        (None, [], "error: cannot read '@': No such file or directory\n"),
        (TWO, ["--kernel", "double", "--constant", "BLOCK"], "error: --constant BLOCK: NAME=… is required\n"),
        (TWO, ["--kernel", "double", "--constant", "BLOCK=8q"], "error: --constant BLOCK: '8q' is no number\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled(program, text, arguments, message):
    if text is None:
        program.unlink()
    else:
        program.write_text(text)
    status, out, err = tesela("compile", str(program), *arguments)
    assert (status, out, err) == (1, "", message.replace("@t", "\0").replace("@", str(program)).replace("\0", "@t"))


def test_kernels_of_a_file_are_those_it_defines(program):
    (program.parent / "other.py").write_text(TWO.replace("def triple", "def half") + "\nimport sys\nsys.modules['tesela_program_other']\n")
    assert list(python_kernels(program)) == ["double", "triple"]
    assert list(python_kernels(program.parent / "other.py")) == ["double", "half"]


def test_constants():
    assert read_constants(["A=3", "B=0x10", "C=-1.5", "D=True", "E=bf16", "F=fast", "G=None"]) == {
        "A": 3, "B": 16, "C": -1.5, "D": True, "E": DTYPES["bf16"], "F": "fast", "G": None,
    }  # fmt: skip
    with pytest.raises(TeselaError, match="--constant A was given twice"):
        read_constants(["A=1", "A=2"])


def test_compile_time_parameters_are_for_python_only(program):
    status, _, err = tesela("compile", str(EXAMPLES / "add.mlir"), "--constant", "BLOCK=64")
    assert status == 1 and err.startswith("error: BLOCK: only kernels written in Python have compile-time parameters")


def test_a_file_named_from_its_folder_has_its_lines_in_errors(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text("x = 1\ny = x / 0\n")
    monkeypatch.chdir(tmp_path)
    assert tesela("compile", "wrong.py") == (1, "", "wrong.py:2:1: error: 'wrong.py' raised ZeroDivisionError: division by zero\n  y = x / 0\n  ^\n")
