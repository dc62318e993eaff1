"""Common subexpression elimination: of equal operations without effects, the first to dominate the others stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import cse

from .base import Pass, PassContext


@dataclass
class EliminateCommonSubexpressions(Pass):
    """xDSL's `cse`. The operation that stays keeps its own location; nothing is created."""

    name: ClassVar[str] = "cse"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        cse(module)
