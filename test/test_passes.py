"""Pipelines as text, options of passes, and what running passes promises."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from xdsl.dialects.builtin import UNKNOWN_LOC

from tesela import passes
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module, print_module
from tesela.passes import PASSES, PassEntry, get_pass, parse_pipeline, pass_options
from tesela.passes.base import Pass, PassContext, run_passes


@dataclass
class Probe(Pass):
    """A pass with an option of every kind."""

    name: ClassVar[str] = "probe"
    stages: int = 2
    fast: bool = False
    label: str = "none"
    share: float = 0.5
    limit: int | None = None
    sizes: tuple[int, ...] = ()
    mode: Literal["auto", "off"] = "auto"
    fail: bool = False
    breaks: bool = False

    def run(self, module, context) -> None:
        if self.fail:
            context.emitter.error(module, "probe failed")
            context.emitter.error(module.body.block.first_op, "twice")
        if self.breaks:
            block = module.body.block.first_op.body.block
            block.first_op.detach()
            block.add_op(parse_module("%0 = arith.constant 1 : i32").body.block.first_op.clone())


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enters the probe into the table of passes."""
    monkeypatch.setitem(sys.modules, "probe_pass", types.SimpleNamespace(Probe=Probe))
    monkeypatch.setitem(passes.PASSES, "probe", PassEntry("probe_pass:Probe", "a pass for these tests"))


def test_pipeline_text(probe) -> None:
    text = ' cse , probe{stages=3 fast limit=7 label="a b" sizes=1,2 share=1e-3 mode=off},'
    text += "probe { limit=none fast=false },dce "
    steps = parse_pipeline(text)
    assert [s.name for s in steps] == ["cse", "probe", "probe", "dce"]
    assert steps[1] == Probe(3, True, "a b", 1e-3, 7, (1, 2), "off")
    assert steps[2] == Probe()
    assert parse_pipeline("") == parse_pipeline("  \n") == []
    assert pass_options(Probe)["sizes"] == (tuple[int, ...], ())
    assert get_pass("cse").name == "cse"


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "cse,\n  canonicalise",
            ":2:3: error: unknown pass 'canonicalise'\n    canonicalise\n    ^\n  hint: did you mean canonicalize?",
        ),
        ("zzz", "<pipeline>:1:1: error: unknown pass 'zzz'\n  zzz\n  ^\n  hint: known passes: "),
        (
            "cse{x=1}",
            "<pipeline>:1:5: error: pass 'cse' has no option 'x'\n  cse{x=1}\n      ^\n  hint: it has no options",
        ),
        ("probe{stage=1}", ":7: error: pass 'probe' has no option 'stage'"),
        ("probe{stages=two}", ":14: error: option 'stages' of pass 'probe' takes an integer, not 'two'"),
        ("probe{share=x}", ":13: error: option 'share' of pass 'probe' takes a number, not 'x'"),
        ("probe{fast=1}", ":12: error: option 'fast' of pass 'probe' is true or false, not '1'"),
        ("probe{mode=on}", ":12: error: option 'mode' of pass 'probe' cannot be 'on'"),
        ("probe{sizes=1,x}", "takes an integer, not 'x'"),
        ("probe{stages=2,sizes=1}", "  hint: a blank, not a comma, stands between options"),
        ("probe{stages=1 stages=2}", ":16: error: option 'stages' is given twice"),
        ("probe{stages=}", ":14: error: option 'stages' has no value after '='"),
        ("probe{stages=1", ":6: error: '{' is never closed"),
        ("probe{=}", ":7: error: expected the name of an option or '}', but found '='"),
        ("cse,", ":5: error: expected the name of a pass, but the pipeline ends"),
        ("cse dce", ":5: error: expected ',' between passes, but found 'dce'"),
        ("cse,,dce", ":5: error: expected the name of a pass, but found ','"),
        ("cse}", ":4: error: expected ',' between passes, but found '}'"),
        ("?", ":1: error: expected the name of a pass, but found '?'"),
    ],
)
def test_wrong_pipelines(probe, text: str, message: str) -> None:
    with pytest.raises(TeselaError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)


TEXT = "func.func @f(%a: i32) -> i32 {\n  %0 = arith.addi %a, %a : i32\n  func.return %0 : i32\n}\n"


def test_errors_of_a_pass_are_raised_together(probe) -> None:
    with pytest.raises(TeselaError) as caught:
        run_passes(parse_module(TEXT, "t"), [Probe(fail=True)], PassContext())
    assert [d.message for d in caught.value.diagnostics] == ["probe failed", "twice"]


def test_verify_each_names_the_pass_that_broke_the_module(probe) -> None:
    module = parse_module(TEXT, "t")
    with pytest.raises(TeselaError) as caught:
        run_passes(module, parse_pipeline("cse,probe{breaks},dce"), PassContext(), verify_each=True)
    assert str(caught.value).endswith("note: found after pass 'probe'")
    run_passes(parse_module(TEXT), [Probe(breaks=True)], PassContext())  # without verification nothing looks


def test_hooks_see_every_pass() -> None:
    seen: list[str] = []
    run_passes(
        parse_module(TEXT),
        parse_pipeline("cse,dce"),
        PassContext(),
        before=lambda step: seen.append("before " + step.name),
        after=lambda step, seconds: seen.append("after " + step.name) if seconds >= 0 else None,
    )
    assert seen == ["before cse", "after cse", "before dce", "after dce"]


def test_cleanups_leave_no_operation_without_a_place() -> None:
    text = """func.func @f(%a: i32, %c: i1) -> (i32, i1) {
  %1 = arith.constant 1 : i32
  %2 = arith.constant 2 : i32
  %3 = arith.addi %1, %2 : i32
  %4 = arith.addi %3, %a : i32
  %t = arith.constant true
  %u = arith.constant false
  %s = arith.select %c, %u, %t : i1
  %q = arith.cmpi slt, %a, %a : i32
  %r = arith.select %q, %s, %c : i1
  func.return %4, %r : i32, i1
}
"""
    module = parse_module(text)
    before = print_module(module)
    run_passes(module, parse_pipeline("canonicalize,cse,dce"), PassContext(), verify_each=True)
    assert print_module(module) != before
    assert not [op for op in module.walk() if op.location == UNKNOWN_LOC]


def test_a_pass_that_needs_a_target_says_so() -> None:
    with pytest.raises(TeselaError, match="pass 'p' needs a target"):
        PassContext().require_target("p")


def test_every_pass_and_option_has_an_ir_test():
    """tesela-opt shows what each does: some RUN line under test/ir states it."""
    folder = Path(__file__).parent / "ir"
    runs = "\n".join(line for path in folder.rglob("*.mlir") for line in path.read_text().splitlines() if "RUN:" in line)
    missing = []
    for name in PASSES:
        stated = {word.split("=")[0] for inside in re.findall(rf"\b{name}\{{([^}}]*)\}}", runs) for word in inside.split()}
        missing += [f"{name}{{{option}}}" for option in pass_options(get_pass(name)) if option not in stated]
        missing += [] if re.search(rf"[ ,\"']{name}\b", runs) else [name]
    assert not missing
