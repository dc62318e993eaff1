"""What a pass is: a named class with options as dataclass fields and a `run` that changes a module in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..dialects.diagnostics import Emitter
from ..dialects.target import Target

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


@dataclass
class PassContext:
    """What a pass may know beside the module.

    `target` is None where the user named none; a pass that needs one calls `require_target`. Notes and warnings of a
    pass go to `emitter`; so do errors that should not hide later ones, and the driver raises them after the pass.
    """

    target: Target | None = None
    emitter: Emitter = field(default_factory=Emitter)


class Pass(ABC):
    """A transformation or check of a module.

    A subclass is a `@dataclass` whose fields, each with a default, are the pass's options; their annotations may be
    `int`, `bool`, `str`, `float`, an optional of these, or a tuple of ints (`sizes=1,2,3`). A pass keeps locations: what it
    creates, it creates at the location of what it replaces.
    """

    name: ClassVar[str]

    @abstractmethod
    def run(self, module: ModuleOp, context: PassContext) -> None:
        """Change the module in place. Raises TeselaError for what the user can understand and act on."""
