"""tools/demo.py: the demonstration passes, and says FAIL with exit status 1 where a result is wrong."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest

from tesela.tools import demo


def run(*arguments: str) -> tuple[int, str]:
    stdout = io.StringIO()
    return demo.main(list(arguments), stdout=stdout, stderr=stdout), stdout.getvalue()


@pytest.mark.parametrize(("target", "instruction"), [("sm_90a", "wgmma.mma_async.sync.aligned"), ("sm_80", "mma.sync.aligned.m16n8k16")])
def test_gemm_from_ir_and_from_python(target, instruction):
    status, out = run("--device", "sim", "--only", "gemm", "--target", target)
    assert status == 0, out
    assert "gemm (257×321×200, bf16) from examples/gemm.mlir: PASS\n" in out
    assert "gemm (257×321×200, bf16) from examples/gemm.py: PASS\n" in out
    assert out.count(f"× {instruction}") == 2
    assert out.count(f"device        simulator, target {target};") == 2


@pytest.mark.parametrize("name", ["add", "softmax"])
def test_the_others(name):
    status, out = run("--device", "sim", "--only", name)
    assert status == 0 and out.count(": PASS\n") == 2, out


def test_a_wrong_result_fails(monkeypatch):
    add = demo.programs()[0]
    small = dataclasses.replace(
        add, inputs=lambda rng: {"x": np.ones(5, np.float32), "y": np.ones(5, np.float32)}, reference=lambda inputs: np.full(5, 2.5)
    )
    monkeypatch.setattr(demo, "programs", lambda: [small])
    status, out = run("--device", "sim")
    assert status == 1
    assert "from examples/add.mlir: FAIL\n" in out and "nearest to its bound: 0.5 of 1.49e-07" in out
    assert out.splitlines()[-1].startswith("FAIL: add (mlir), add (python) in ")


def test_an_error_fails_that_program_and_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "EXAMPLES", tmp_path)
    status, out = run("--device", "sim", "--only", "add")
    assert status == 1
    assert out.count(": FAIL\nerror: cannot read '") == 2


def test_without_the_examples(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "EXAMPLES", tmp_path / "examples")
    expected = "error: the example programs are not installed with the package\n  hint: run tools/demo in a checkout\n"
    assert run("--device", "sim") == (1, expected)
