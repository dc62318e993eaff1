"""What a pass is: a named class with options as dataclass fields and a `run` that changes a module in place."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..dialects.diagnostics import Diagnostic, Emitter, TeselaError
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

    def require_target(self, pass_name: str) -> Target:
        """The target; TeselaError where there is none."""
        if self.target is None:
            raise TeselaError.at(None, f"pass '{pass_name}' needs a target", "name one, as in --target sm_90a")
        return self.target


class Pass(ABC):
    """A transformation or check of a module.

    A subclass is a `@dataclass` whose fields, each with a default, are the pass's options; their annotations may be
    `int`, `bool`, `str`, `float`, a `Literal` of strings, an optional of these, or a tuple of ints (`sizes=1,2,3`). A
    pass keeps locations: what it creates, it creates at the location of what it replaces.
    """

    name: ClassVar[str]

    @abstractmethod
    def run(self, module: ModuleOp, context: PassContext) -> None:
        """Change the module in place. Raises TeselaError for what the user can understand and act on."""


def run_passes(
    module: ModuleOp,
    passes: Iterable[Pass],
    context: PassContext,
    *,
    verify_each: bool = False,
    before: Callable[[Pass], None] | None = None,
    after: Callable[[Pass, float], None] | None = None,
) -> None:
    """Run passes in order on `module`, in place.

    `before(pass)` and `after(pass, seconds)` are called round each one. With `verify_each` the module is verified
    before the first pass and after each; a failure after a pass says which pass it was. Raises TeselaError of a pass,
    of the verifier, and, after the pass that recorded them, with the errors in `context.emitter`.
    """
    if verify_each:
        _verify(module, None)
    for step in passes:
        if before is not None:
            before(step)
        start = time.perf_counter()
        step.run(module, context)
        seconds = time.perf_counter() - start
        context.emitter.raise_if_errors()
        if after is not None:
            after(step, seconds)
        if verify_each:
            _verify(module, step)


def _verify(module: ModuleOp, after: Pass | None) -> None:
    from ..dialects.verify import verify_module

    try:
        verify_module(module)
    except TeselaError as error:
        if after is not None:
            error.diagnostics.append(Diagnostic("note", f"found after pass '{after.name}'"))
        raise
