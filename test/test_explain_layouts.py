"""passes/explain_layouts.py and `tesela explain`: choices, costs, runners-up and proofs, checked against the solver and the program."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

import tesela
from tesela import Array, f16, f32
from tesela.dialects import tile
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.passes.base import PassContext
from tesela.passes.explain_layouts import Choice, explain
from tesela.passes.infer_layouts import InferLayouts, Solved
from tesela.passes.plan_dataflow import PlanDataflow
from tesela.tools import cli

EXAMPLES = Path(__file__).parent.parent / "examples"


def solved(text: str, target: str) -> Solved:
    module = parse_module(text, "k.mlir")
    context = PassContext(get_target(target))
    PlanDataflow().run(module, context)
    inference = InferLayouts()
    inference.run(module, context)
    return inference.solved[0]


def choices(text: str, target: str) -> dict[str, Choice]:
    return {f"{choice.name} {choice.kind.split()[0]}": choice for choice in explain(solved(text, target))[1]}


def line(choice: Choice, heading: str) -> str:
    return next(text for found, text in choice.lines if found == heading)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_gemm(target):
    text = (EXAMPLES / "gemm.mlir").read_text()
    found = choices(text, target)
    dot = found["%d dot"]
    assert text.splitlines()[dot.place.line - 1].lstrip().startswith("%d = tile.dot")
    if target == "sm_90a":
        assert line(dot, "by").startswith("wgmma m64n256k16 2x1 shared; 128 registers")
        assert line(dot, "runner-up").startswith("wgmma m64n128k16 2x1 shared: +")
        assert any("accumulators take 256 registers" in text for heading, text in dot.lines if heading == "out")
    else:
        assert "sm_80 has no wgmma" in line(dot, "out")
    for name in ("%a_channel buffer", "%b_channel buffer"):
        banks = [text for heading, text in found[name].lines if heading == "banks"]
        assert len(banks) == 2 and all("0 conflicts" in text for text in banks)


def test_runners_up_are_the_best_of_the_rest():
    """The difference that is printed is the one between the optimum and the best answer without the choice."""
    found = solved((EXAMPLES / "gemm.mlir").read_text(), "sm_80")
    best = found.solution.cost
    shown = {choice.name: line(choice, "runner-up") for choice in explain(found)[1] if not choice.kind.startswith("dot")}
    checked = 0
    for variable in (*found.made.channels.values(), *found.made.classes.values()):
        if len(variable.candidates) > 1:
            again = found.made.optimum([(variable, found.solution.choice[variable])])
            match = re.search(r": \+(\d+) \(", shown[variable.name])
            difference = int(match[1]) if match else 0
            assert difference == again.cost - best or "as good" in shown[variable.name]
            checked += 1
    assert checked >= 2
    terms = found.made.problem.terms(found.solution)
    assert sum(cost for _, cost in terms) == best


def test_the_command_line():
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["explain", str(EXAMPLES / "gemm.mlir"), "--target", "sm_90a"], stdout=out, stderr=err) == 0, err.getvalue()
    text = out.getvalue()
    assert re.search(r"gemm.mlir:\d+:\d+  %d  dot 128x256x64", text)
    assert re.search(r"%b_channel  256x64xbf16, 32768 bytes × \d stages = \d+ bytes", text)
    assert re.search(r"total .* of 232448 bytes; \d stages of each would fit", text)


def test_a_python_kernel_has_its_own_lines():
    from tesela.kernels.rows import softmax

    text = tesela.compile(softmax, "sm_90a", T=tesela.bf16).explain()
    assert re.search(r"rows.py:\d+:\d+  %\w+  1x\d+x", text) and "ld.global of 16 bytes" in text


def test_attention_keeps_its_weights_where_they_are():
    """The first dot's accumulator is the second's left operand: no conversion in the whole kernel."""
    from tesela.kernels.attention import attention
    from tesela.runtime.specialize import contract_of, kernels_of, specialize, usual_facts

    for target in ("sm_90a", "sm_80"):
        traced = attention.trace(T=tesela.bf16)
        (name,) = kernels_of(traced)
        module = specialize(traced, name, usual_facts(contract_of(kernels_of(traced)[name])))
        context = PassContext(get_target(target))
        PlanDataflow().run(module, context)
        inference = InferLayouts()
        inference.run(module, context)
        found = inference.solved[0]
        assert not found.converts
        first, second = found.made.dots.values()
        assert found.solution.candidate(second).choice.lhs == found.solution.candidate(first).choice.acc
        assert any(isinstance(op, tile.KernelOp) for op in module.walk())


M, N, K = tesela.dims("M N K")


@tesela.kernel
def exchanged(A: Array[f16, K, M], B: Array[f16, K, N], C: Array[f16, M, N]):
    bm, bn = tesela.grid(tesela.ceildiv(M, 96), tesela.ceildiv(N, 64))
    m, n = bm * 96, bn * 64
    acc = tesela.zeros((96, 64), f16)
    for k in tesela.range(0, K, 64):
        acc = tesela.dot(A[k : k + 64, m : m + 96].T, B[k : k + 64, n : n + 64], acc)
    C[m : m + 96, n : n + 64] = acc


@tesela.kernel
def pinned_sums(X: Array[f32, M, N], S: Array[f32, M]):
    m = tesela.grid(tesela.ceildiv(M, 8)) * 8
    sums = X[m : m + 8, 0:64].sum(axis=1)
    S[m : m + 8] = tesela.pin(sums, layout="thread [2:(1), 2:(0), 2:(0), 2:(0), 2:(0), 2:(2), 2:(4)], value []")


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_conversions_are_told(target):
    """One goes through shared memory, with what each side costs there; the other feeds a store, whose layout is then the converted one."""
    text = exchanged.explain(target)
    assert re.search(r"by +shared memory, as .*bytes\n +banks +written by .*\n +banks +read by", text) or target == "sm_80"
    assert re.search(r"pinned|thread \[2:\(1\), 2:\(0\)", pinned_sums.explain(target)) and "st.global of 4 bytes" in pinned_sums.explain(target)
