"""Locations survive: after every pass of the compiler each operation still has a place in the source it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tesela.dialects.diagnostics import location_of
from tesela.dialects.parsing import parse_module, print_module
from tesela.dialects.target import get_target
from tesela.dialects.verify import verify_module
from tesela.lowering.pipeline import PIPELINE
from tesela.passes import parse_pipeline
from tesela.passes.base import PassContext, run_passes

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("example", ["add", "softmax", "gemm"])
def test_every_operation_keeps_a_place_through_every_pass(example: str, target: str) -> None:
    """And every level verifies, prints and reads back to the same text."""
    path = EXAMPLES / f"{example}.mlir"
    lines = path.read_text().count("\n")
    module = parse_module(path.read_text(), path.name)
    context = PassContext(target=get_target(target))
    for step in parse_pipeline(",".join(("canonicalize", "cse", *PIPELINE))):
        run_passes(module, [step], context)
        verify_module(module)
        for op in module.walk():
            place = location_of(op)
            assert place is not None, f"after {step.name}: '{op.name}' has no location"
            assert place.file == path.name and 1 <= place.line <= lines
        for debuginfo in (False, True):
            text = print_module(module, debuginfo)
            assert print_module(parse_module(text, "printed"), debuginfo) == text, f"after {step.name}"
