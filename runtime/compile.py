"""`tesela.compile`: a program as a file, as text, as a module or from Python, to a `Kernel`.

Compilation proper happens at the first launch, once for each variant (`specialize.py`); `Kernel.variant` does it ahead of time.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import LaunchPlan
from ..dialects.target import Target, get_target
from .kernel import Kernel
from .launch import Variant
from .specialize import Facts, contract_of, kernels_of, specialize

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


@runtime_checkable
class ModuleSource(Protocol):
    """What the Python frontend hands over: a function that states its tile-level module for given compile-time values."""

    def trace(self, **values: Any) -> ModuleOp: ...


DUMP_VARIABLE = "TESELA_DUMP"
"""Names a folder that gets every level of every variant, its PTX and its launch plan, as files."""

_compiling = threading.Lock()
log = logging.getLogger("tesela")


class ModuleCompiler:
    """Makes the variants of one kernel of a module, and prints its levels. One variant is compiled at a time, whatever the threads:
    the compiler is Python and would gain nothing."""

    def __init__(self, module: ModuleOp, name: str, strict: bool = False):
        self.module, self.name, self.strict = module, name, strict
        self._dumped = 0

    def __call__(self, facts: Facts, target: Target) -> Variant:
        from ..lowering.pipeline import compile_kernel

        with _compiling:
            done = compile_kernel(specialize(self.module, self.name, facts), self.name, target)
            log.info("compiled %s for %s in %.0f ms: %s", self.name, target.name, sum(done.times.values()), facts)
            if folder := os.environ.get(DUMP_VARIABLE):
                self._dump(Path(folder), facts, target, done.ptx, done.plan)
        return Variant(facts, done.plan, done.ptx, done.diagnostics, done.times, self.strict, done.program)

    def _dump(self, folder: Path, facts: Facts, target: Target, ptx: str, plan: LaunchPlan) -> None:
        from ..lowering.pipeline import STAGES

        stem = f"{self.name}.{target.name}.{self._dumped}"
        self._dumped += 1
        texts = {f"{number}-{level}.mlir": self.ir(level, facts, target) for number, level in enumerate(STAGES)}
        texts |= {"ptx": ptx, "plan.json": json.dumps(plan.to_json(), indent=2) + "\n", "facts.txt": f"{facts}\n"}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for ending, text in texts.items():
                (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")
        except OSError as error:
            raise TeselaError.at(None, f"{DUMP_VARIABLE}: cannot write to '{folder}': {error.strerror}") from None

    def ir(self, level: str, facts: Facts, target: Target) -> str:
        """The text of the module at a level of `lowering.pipeline.STAGES`. Raises TeselaError for an unknown level."""
        from ..dialects.parsing import print_module
        from ..lowering.pipeline import lower_to

        module = specialize(self.module, self.name, facts)
        lower_to(module, level, target)
        return print_module(module)


def compile(
    source: str | os.PathLike[str] | ModuleOp | ModuleSource | Any,
    target: str | Target | None = None,
    *,
    kernel: str | None = None,
    filename: str | None = None,
    strict: bool = False,
    **values: Any,
) -> Kernel:
    """A callable kernel.

    `source`: the path of an .mlir file, the text of a module (a string that holds 'tile.kernel'), a module, or a kernel
    function of the Python frontend. `target`: 'sm_90a', 'sm_80' …; None leaves it to the GPU of each launch. `kernel` names one of a
    module's kernels, `filename` what errors in a text call it. `strict`: what the assembler warns of, serialised tensor core
    instructions or spilled registers, is an error. `values`: compile-time parameters of a kernel function. Raises TeselaError
    with all errors of the program.
    """
    from ..lowering.pipeline import select_kernel

    chosen = get_target(target) if isinstance(target, str) else target
    module = load_module(source, filename, **values)
    name = select_kernel(module, kernel)
    return Kernel(contract_of(kernels_of(module)[name]), ModuleCompiler(module, name, strict), chosen, module)


def load_module(source: Any, filename: str | None = None, **values: Any) -> ModuleOp:
    """The module of any kind of source that `compile` takes, verified."""
    from xdsl.dialects.builtin import ModuleOp

    from ..dialects.diagnostics import source_text
    from ..dialects.parsing import parse_module
    from ..dialects.verify import verify_module

    if isinstance(source, ModuleSource):
        return source.trace(**values)
    if values:
        named = ", ".join(values)
        raise TeselaError.at(None, f"{named}: only kernels written in Python have compile-time parameters", "take it out")
    if isinstance(source, ModuleOp):
        verify_module(source)
        return source
    if not isinstance(source, str | os.PathLike):
        raise TeselaError.at(
            None,
            f"an object of type {type(source).__name__} cannot be compiled",
            "pass a path, the text of a module, a module, or a function decorated with @tesela.kernel",
        )
    if isinstance(source, str) and ("tile.kernel" in source or "\n" in source):
        name, text = filename or "<string>", source
    else:
        name = filename or os.fspath(source)
        if not name:
            raise TeselaError.at(None, "the text is empty", "pass a path, or the text of a module")
        if name.endswith(".py"):
            hint = "import its kernel and pass that; on the command line, `tesela compile` takes the file"
            raise TeselaError.at(None, f"'{name}' is a Python program, not a module's text", hint)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise TeselaError.at(None, f"cannot read '{name}': {error.strerror}") from None
        except UnicodeDecodeError:
            raise TeselaError.at(None, f"cannot read '{name}': it is not UTF-8 text") from None
    with source_text(name, text):
        module = parse_module(text, name)
        verify_module(module)
    return module
