"""Dead code elimination: erases operations without effects whose results nobody uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import dce

from .base import Pass, PassContext


@dataclass
class EliminateDeadCode(Pass):
    """xDSL's `dce`: an operation goes if its effects are known and none can be seen. It creates nothing."""

    name: ClassVar[str] = "dce"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        dce(module)
