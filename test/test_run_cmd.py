"""tesela run: programs and PTX text on .npy files, in the simulator; every wrong command line has its message."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela.tools.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"
ADD = str(EXAMPLES / "add.mlir")

COPY = """
tile.kernel @twice(%x: memref<?x?xbf16, strided<[?, 1]>> [M, N], %y: memref<?x?xbf16, strided<[?, 1]>> [N, M], %n: i32, %s: f32)
    grid(%i = M) {
  %c0 = arith.constant 0 : index
  %t = tile.load %x[%i, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<8xbf16>
  %f = tile.cast %t : tensor<8xbf16> -> tensor<8xf32>
  %m = tile.cast %n : i32 -> f32
  %a = arith.mulf %s, %m : f32
  %g = tile.full %a : f32 -> tensor<8xf32>
  %p = arith.mulf %f, %g : tensor<8xf32>
  %r = tile.cast %p : tensor<8xf32> -> tensor<8xbf16>
  %c = tile.expand %r axis 1 : tensor<8xbf16> -> tensor<8x1xbf16>
  tile.store %c, %y[%c0, %i] : tensor<8x1xbf16>, memref<?x?xbf16, strided<[?, 1]>>
}
"""


def tesela(*arguments: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of a run of the tool in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    status = main(list(arguments), stdout=stdout, stderr=stderr)
    return status, stdout.getvalue(), stderr.getvalue()


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for name, n in (("x", 1500), ("y", 1500), ("short", 1499)):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(n).astype(np.float32))
    np.save(tmp_path / "double.npy", np.zeros(1500))
    np.save(tmp_path / "matrix.npy", rng.standard_normal((3, 8)).astype(ml_dtypes.bfloat16))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "twice.mlir").write_text(COPY)
    return tmp_path


def test_runs_a_program(files):
    z = files / "z.npy"
    status, out, err = tesela(
        "run", ADD, "--in", f"x={files}/x.npy", "--in", f"y={files}/y.npy", "--out", f"z={z}", "--device", "sim"
    )
    assert (status, out, err) == (0, f"z: f32 (1500,) -> {z}\n", "")
    np.testing.assert_array_equal(np.load(z), np.load(files / "x.npy") + np.load(files / "y.npy"))


def test_a_run_that_saves_nothing_says_so(files):
    status, out, err = tesela("run", ADD, "--in", f"x={files}/x.npy", "--in", f"y={files}/y.npy", "--device", "sim")
    assert (status, out, err) == (0, "", "note: nothing was saved; name what to save, as in --out z=FILE\n")


def test_scalars_and_bfloat16_files(files):
    out = files / "out.npy"
    status, _, err = tesela(
        "run", f"{files}/twice.mlir", "--in", f"x={files}/matrix.npy", "--out", f"y={out}", "--scalar", "n=-0x3", "--scalar", "s=0.5",
        "--device", "sim", "--target", "sm_80",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert np.load(out).dtype == np.dtype("V2")
    x = np.load(files / "matrix.npy").view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(np.load(out).view(ml_dtypes.bfloat16), (x * -1.5).T.astype(ml_dtypes.bfloat16))


def test_runs_ptx_text_by_its_plan(files):
    assert tesela("compile", ADD, "--target", "sm_80", "-o", f"{files}/add.ptx")[0] == 0
    assert tesela("compile", ADD, "--target", "sm_80", "--emit", "plan", "-o", f"{files}/add.json")[0] == 0
    status, out, err = tesela(
        "run", f"{files}/add.ptx", "--plan", f"{files}/add.json", "--in", f"x={files}/x.npy", "--in", f"y={files}/y.npy", "--out",
        f"z={files}/z.npy", "--device", "sim",
    )  # fmt: skip
    assert (status, err) == (0, "")
    np.testing.assert_array_equal(np.load(files / "z.npy"), np.load(files / "x.npy") + np.load(files / "y.npy"))


INCREMENT = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry increment(.param .b64 x, .param .b64 y, .param .b32 n)
{
  .reg .b32 %r<4>; .reg .b64 %d<4>;
  mov.u32 %r1, %tid.x;
  ld.param.b64 %d1, [x]; ld.param.b64 %d2, [y]; ld.param.b32 %r2, [n];
  mul.wide.u32 %d3, %r1, 4;
  add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
  ld.global.b32 %r3, [%d1];
  add.s32 %r3, %r3, %r2;
  st.global.b32 [%d2], %r3;
  ret;
}
"""


def test_runs_ptx_text_with_the_launch_spelled_out(files):
    (files / "k.ptx").write_text(INCREMENT)
    np.save(files / "i.npy", np.arange(32, dtype=np.int32))
    status, out, err = tesela(
        "run", f"{files}/k.ptx", "--grid", "1", "--block", "32", "--param", f"x={files}/i.npy", "--param", "y=zeros:i32:4x8",
        "--param", "n=i32:-7", "--out", f"y={files}/o.npy", "--device", "sim",
    )  # fmt: skip
    assert (status, out, err) == (0, f"y: i32 (4, 8) -> {files}/o.npy\n", "")
    np.testing.assert_array_equal(np.load(files / "o.npy"), np.arange(32).reshape(4, 8) - 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.mlir"], "error: cannot read 'nothing.mlir': No such file or directory"),
        ([ADD, "--in", "x=none.npy"], "error: cannot read 'none.npy': No such file or directory"),
        ([ADD, "--in", "x=@text.npy"], "error: cannot read '@text.npy': it is no .npy file ("),
        ([ADD, "--in", "x"], "error: --in x: NAME=… is required"),
        ([ADD, "--in", "x=@x.npy", "--in", "x=@x.npy"], "error: --in x was given twice"),
        ([ADD, "--in", "x=@x.npy"], "error: add: argument 'y' is missing\n  hint: it is add(x: f32[N], y: f32[N], z: f32[N]); "),
        ([ADD, "--in", "x=@x.npy", "--in", "q=@x.npy"], "error: add: there is no argument 'q'\n"),
        ([ADD, "--in", "x=@x.npy", "--in", "y=@short.npy"], "error: add: y has N = 1499, but x has N = 1500\n"),
        ([ADD, "--in", "x=@x.npy", "--in", "y=@double.npy"], "error: add: y has element type f64, but f32 is required\n"),
        ([ADD, "--in", "x=@x.npy", "--in", "y=@matrix.npy"], "error: add: y has element type raw 16-bit, but f32 is required\n"),
        ([ADD, "--out", "x=@o.npy"], "error: add: --out x: the kernel writes no array of that name\n  hint: it writes z"),
        ([ADD, "--scalar", "n=three"], "error: --scalar n: 'three' is no number"),
        ([ADD, "--target", "sm_70"], "error: unknown target 'sm_70'"),
        ([ADD, "--kernel", "sub"], f"{ADD}:1:1: error: the module has no kernel 'sub'"),
        ([ADD, "--grid", "4"], "error: --grid is for PTX text; a kernel states its launch itself"),
        ([ADD, "--param", "n=i32:3"], "error: --param is for PTX text; a kernel states its launch itself"),
        ([ADD, "--shared", "64"], "error: --shared is for PTX text; a kernel states its launch itself"),
        (["@k.ptx", "--constant", "N=1"], "error: --constant is for kernels written in Python, and the program is PTX"),
        (["@k.ptx"], "error: @k.ptx is PTX text, which does not say how to launch it\n  hint: give --plan, or --grid, --block and"),
        (["@k.ptx", "--plan", "@x.npy"], "error: '@x.npy' is no launch plan\n"),
        (["@k.ptx", "--plan", "@list.json"], "error: '@list.json' is no launch plan\n"),
        (["@k.ptx", "--grid", "1", "--block", "32", "--kernel", "dec"], "error: @k.ptx has the kernels increment\n"),
        (["@k.ptx", "--grid", "a,b", "--block", "32"], "error: --grid a,b: one to three integers are required, as in 4,2,1"),
        (["@k.ptx", "--grid", "1", "--block", "32", "--param", "n=u9:3"], "error: --param n: unknown type 'u9'\n"),
        (["@k.ptx", "--grid", "1", "--block", "32", "--param", "n=zeros:f32"], "error: --param n: zeros:TYPE:SHAPE is required"),
    ],
)  # fmt: skip
def test_wrong_command_lines(files, arguments, message):
    (files / "k.ptx").write_text(INCREMENT)
    (files / "list.json").write_text(json.dumps([1, 2]))
    arguments = [argument.replace("@", f"{files}/") for argument in arguments]
    status, out, err = tesela("run", *arguments, "--device", "sim")
    assert (status, out) == (1, "")
    assert err.startswith(message.replace("@", f"{files}/")), err


def test_an_output_file_that_cannot_be_written(files):
    status, _, err = tesela(
        "run", ADD, "--in", f"x={files}/x.npy", "--in", f"y={files}/y.npy", "--out", f"z={files}/no/z.npy", "--device", "sim"
    )
    assert (status, err) == (1, f"error: cannot write '{files}/no/z.npy': No such file or directory\n")


def test_the_package_is_the_command_line() -> None:
    import subprocess
    import sys

    import tesela

    done = subprocess.run([sys.executable, "-m", "tesela", "--version"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (done.returncode, done.stdout) == (0, f"tesela {tesela.__version__}\n")
