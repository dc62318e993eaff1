"""`tesela check` and `tesela-opt --check-by-running`: agreement on right programs, and the name of the pass that breaks one."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp

from tesela.dialects import ptx
from tesela.lowering import pipeline as lowering
from tesela.passes import PASSES, PassEntry, add_passes
from tesela.passes.base import Pass, PassContext
from tesela.tools import cli, opt

EXAMPLES = Path(__file__).parent.parent / "examples"
PIPELINE = ",".join(lowering.PIPELINE)


def run(main, *arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    status = main(list(arguments), stdout=out, stderr=err)
    return status, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", ("add", "softmax", "gemm"))
def test_examples_agree_at_every_level(name: str) -> None:
    status, out, err = run(cli.main, "check", str(EXAMPLES / f"{name}.mlir"), "--seeds", "1")
    assert (status, err) == (0, "")
    assert f"{4 * (len(lowering.PIPELINE) + 1)} runs, all as the tile program allows" in out  # two targets, two variants


def test_arrays_of_eight_bits(tmp_path: Path) -> None:
    path = tmp_path / "eight.py"
    path.write_text(
        "import tesela\nfrom tesela import Array, f8E4M3FN, f8E5M2\nM, N = tesela.dims('M N')\n\n@tesela.kernel\n"
        "def narrow(x: Array[f8E4M3FN, M, N], y: Array[f8E5M2, M, N, tesela.strides(None, 1)]):\n"
        "    i = tesela.grid(M)\n    y[i, 0:64] = x[i, 0:64].to(tesela.f32).to(f8E5M2)\n"
    )
    status, out, err = run(cli.main, "check", str(path), "--seeds", "1", "--target", "sm_80")
    assert (status, err) == (0, "") and "all as the tile program allows" in out


@pytest.mark.parametrize("seeds", ("0", "-1", "few"))
def test_at_least_one_set_of_arguments(seeds: str) -> None:
    status, out, err = run(cli.main, "check", str(EXAMPLES / "add.mlir"), "--seeds", seeds)
    assert (status, out) == (2, "") and f"argument --seeds: '{seeds}' is no positive integer" in err


PROGRAM = """import tesela
from tesela import Array, bf16, f32, strides
M, N, B, H = tesela.dims("M N B H")

@tesela.kernel
def strided(x: Array[f32, M, N, strides(None, None)], y: Array[f32, M, N]):
    y[0:16, 0:16] = x[0:16, 0:16] * 2

@tesela.kernel
def batched(x: Array[f32, B, H, N], y: Array[f32, B, H, N]):
    n, b, h = tesela.grid(tesela.ceildiv(N, 64), B, H)
    y[b, h, n * 64 : n * 64 + 64] = x[b, h, n * 64 : n * 64 + 64]

@tesela.kernel
def roles(A: Array[bf16, M, N], B: Array[bf16, M, N]):
    m = tesela.grid(tesela.ceildiv(M, 64)) * 64
    tiles = tesela.channel((64, 64), bf16, depth=2)
    with tesela.role("load", warps=4):
        for n in tesela.range(0, N, 64):
            tiles.put(A[m : m + 64, n : n + 64])
    with tesela.role("store", warps=4):
        for n in tesela.range(0, N, 64):
            with tiles.get() as tile:
                B[m : m + 64, n : n + 64] = tile
"""


@pytest.mark.parametrize(
    ("kernel", "lines"),
    [
        ("strided", 5),  # every stride is open, and a multiple of 16 bytes where that is assumed
        ("batched", 5),  # as few blocks as show something
        ("roles", 4),  # on the target that has them
    ],
)
def test_arguments_that_a_program_can_take(tmp_path: Path, kernel: str, lines: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    status, out, err = run(cli.main, "check", str(tmp_path / "program.py"), "--kernel", kernel, "--seeds", "2")
    assert status == 0, err
    assert len(out.splitlines()) == lines and out.endswith("as the tile program allows\n")
    assert ("sm_80: passed over, since it has no roles" in out) == (kernel == "roles")


def test_a_file_of_a_package(tmp_path: Path) -> None:
    """What it imports from its neighbours is found, as when the package is imported; so it is for the kernels of this one."""
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "__init__.py").write_text("")
    (tmp_path / "things" / "sizes.py").write_text("WIDTH = 64\n")
    text = "import tesela\nfrom tesela import Array, f32\nfrom .sizes import WIDTH\n\n@tesela.kernel\ndef k(x: Array[f32, 'N']):\n    tesela.grid(1)\n    x[0:WIDTH] = 1.0\n"
    (tmp_path / "things" / "program.py").write_text(text)
    for path, more in ((tmp_path / "things" / "program.py", ()), (Path(__file__).parent.parent / "kernels" / "fused.py", ("--kernel", "dual_gemm", "--constant", "T=bf16"))):
        status, out, err = run(cli.main, "compile", str(path), "--target", "sm_90a", "--emit", "ptx", *more)
        assert status == 0 and ".visible .entry" in out, err


def test_pins_of_the_decorator_are_followed(tmp_path: Path) -> None:
    """More buffers than fit are an error, as when the kernel is compiled."""
    path = tmp_path / "pinned.py"
    path.write_text("""
import tesela
from tesela import Array, bf16, f32

M, N, K = tesela.dims("M N K")

@tesela.kernel(pins={"stages": 40})
def product(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, 64):
        acc += A[i * 64 : i * 64 + 64, k : k + 64] @ B[j * 64 : j * 64 + 64, k : k + 64].T
    C[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = acc
""")
    code, _, err = run(cli.main, "check", str(path), "--target", "sm_90a")
    assert code == 1 and "stages = 40 is stated" in err


def test_given_dimensions() -> None:
    status, out, _ = run(cli.main, "check", str(EXAMPLES / "gemm.mlir"), "--seeds", "1", "--target", "sm_80", "--dim", "K=0")
    assert status == 0 and out.count("agree") == 2
    status, _, err = run(cli.main, "check", str(EXAMPLES / "gemm.mlir"), "--dim", "L=3")
    assert status == 1 and "the kernel has no dimension 'L'" in err
    status, _, err = run(cli.main, "check", str(EXAMPLES / "gemm.mlir"), "--dim", "K=few")
    assert status == 1 and "--dim K: 'few' is no extent" in err


@dataclass
class SubtractInstead(Pass):
    """A pass with a fault: additions of tiles become subtractions."""

    name: ClassVar[str] = "subtract-instead"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for op in list(module.walk()):
            if isinstance(op, arith.AddfOp):
                other = arith.SubfOp(op.lhs, op.rhs)
                op.parent.insert_op_before(other, op)
                op.result.replace_all_uses_with(other.result)
                op.detach()
                op.erase()


@dataclass
class LoseAStore(Pass):
    """A pass with a fault at the ptx level: the last store is gone."""

    name: ClassVar[str] = "lose-a-store"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        stores = [op for op in module.walk() if isinstance(op, ptx.InstOp) and op.opcode.data.startswith("st.global")]
        stores[-1].detach()
        stores[-1].erase()


@pytest.fixture
def faulty_passes():
    """The faulty passes in the table, for one test."""
    before = dict(PASSES)
    add_passes({kind.name: PassEntry(f"{kind.__module__}:{kind.__name__}", "plants a fault") for kind in (SubtractInstead, LoseAStore)})
    yield
    PASSES.clear()
    PASSES.update(before)


def test_the_pass_that_changes_a_result_is_named(faulty_passes: None) -> None:
    status, _, err = run(
        opt.main, str(EXAMPLES / "add.mlir"), "--target", "sm_80", "-p", f"canonicalize,subtract-instead,{PIPELINE}", "--check-by-running"
    )
    assert status == 1
    assert "after pass 'subtract-instead': array 'z':" in err and "the first, [0], is" in err
    assert "note: with N = " in err


def test_a_fault_below_the_tile_level_is_found_in_the_simulator(faulty_passes: None) -> None:
    status, _, err = run(
        opt.main, str(EXAMPLES / "add.mlir"), "--target", "sm_80", "-p", "plan-dataflow,infer-layouts,alloc-shared,tile-to-ptx,lose-a-store",
        "--check-by-running",
    )  # fmt: skip
    assert status == 1 and "after pass 'lose-a-store': array 'z':" in err


def test_a_right_pipeline_prints_what_it_prints_without_checks() -> None:
    arguments = (str(EXAMPLES / "gemm.mlir"), "--target", "sm_90a", "-p", PIPELINE)
    checked = run(opt.main, *arguments, "--check-by-running")
    assert checked == run(opt.main, *arguments) and checked[0] == 0


def test_arrays_from_files(tmp_path: Path, faulty_passes: None) -> None:
    np.save(tmp_path / "x.npy", np.arange(7, dtype=np.float32))
    arguments = (str(EXAMPLES / "add.mlir"), "--target", "sm_80", "--check-by-running", "--in", f"x={tmp_path / 'x.npy'}")
    assert run(opt.main, *arguments, "-p", "canonicalize")[0] == 0
    status, _, err = run(opt.main, *arguments, "-p", "subtract-instead")
    assert status == 1 and "with N = 7" in err
    status, _, err = run(opt.main, *arguments[:-1], f"x={tmp_path / 'none.npy'}", "-p", "canonicalize")
    assert status == 1 and "cannot read" in err

RACE = """
import tesela
from tesela import Array, f32

M, N = tesela.dims("M N")

@tesela.kernel
def column_sums(x: Array[f32, M, N], y: Array[f32, N]):
    i, j = tesela.grid(M, tesela.ceildiv(N, 64))
    n = j * 64
    y[n : n + 64] += x[i, n : n + 64]
"""


def test_a_race_of_the_program_is_reported_and_no_pass_blamed(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(RACE)
    status, _, err = run(cli.main, "check", str(tmp_path / "sums.py"), "--seeds", "1", "--target", "sm_80")
    assert status == 1 and "error: race: " in err and "sums.py:11:" in err
    assert "error: after" not in err and "note: after tile-to-ptx: array 'y': " in err
