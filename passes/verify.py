"""The verifier as a pass: checks the module and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from ..dialects.verify import verify_module
from .base import Pass, PassContext


@dataclass
class Verify(Pass):
    """Raise TeselaError with every error of the module; see `dialects/verify.py` for what is checked."""

    name: ClassVar[str] = "verify"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        verify_module(module)
