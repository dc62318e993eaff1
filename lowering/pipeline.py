"""The whole compiler on one screen: which passes, in which order, and why.

    tile  --check-async, split-reduction, plan-dataflow-->  tile + async  --infer-layouts-->  + layouts
          --load-early, form-clusters, persist-grid, stage-stores, specialize-warps, pipeline-loops, split-loops,
          skip-identities, split-slots, join-channels, alloc-shared, join-dots-->  scheduled
          --tile-to-ptx, overlap-waits, overlap-launches-->  ptx  --assign-registers-->  ptx with named registers  --emit-->  PTX text

`compile_kernel` runs it on a copy of a module. `STAGES` is what tools and tests iterate over: a name for each level that can be printed, and
the passes that lead to it from the level before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..dialects.diagnostics import Diagnostic, Emitter, TeselaError
from ..dialects.target import Target, get_target
from ..passes import get_pass
from ..passes.base import PassContext

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..dialects.launch_plan import LaunchPlan
    from ..dialects.ptx_program import Program

STAGES: dict[str, tuple[str, ...]] = {
    "tile": (),
    "async": ("check-async", "split-reduction", "plan-dataflow"),
    "layout": ("infer-layouts",),
    "schedule": (
        "load-early",
        "form-clusters",
        "persist-grid",
        "stage-stores",
        "specialize-warps",
        "pipeline-loops",
        "split-loops",
        "skip-identities",
        "split-slots",
        "join-channels",
        "alloc-shared",
        "join-dots",
    ),
    "ptx-ir": ("tile-to-ptx", "overlap-waits", "overlap-launches", "assign-registers"),
}

ORDER: tuple[tuple[str, str, str], ...] = (
    ("check-async", "plan-dataflow", "what an author's own channels lack is said of the program as it was written"),
    ("split-reduction", "plan-dataflow", "a loop is split while its loads, which no other block may see, are values"),
    ("plan-dataflow", "infer-layouts", "buffers must exist before they are laid out, and layouts depend on the number of warps"),
    ("infer-layouts", "specialize-warps", "what can be loaded by another role depends on how it is copied"),
    ("infer-layouts", "load-early", "how many registers a load fills depends on its layout"),
    ("load-early", "specialize-warps", "a load is moved within one stream of operations"),
    ("infer-layouts", "form-clusters", "what blocks can share depends on how it is copied and where it lies"),
    ("form-clusters", "persist-grid", "blocks of a cluster walk the grid side by side"),
    ("infer-layouts", "persist-grid", "whether a kernel will hold a multiprocessor depends on how its tiles are copied"),
    ("infer-layouts", "stage-stores", "what is worth staging depends on who holds which element"),
    ("stage-stores", "specialize-warps", "whether a kernel will have roles is asked of a kernel without"),
    ("stage-stores", "pipeline-loops", "stages share shared memory with the buffers of stores"),
    ("persist-grid", "specialize-warps", "every role walks the grid, and one may be at the next point before the other"),
    ("specialize-warps", "pipeline-loops", "a role that loads is ahead by itself, and what stays is scheduled without it"),
    ("infer-layouts", "pipeline-loops", "how far ahead a buffer can be filled depends on how it is copied and on how large it is"),
    ("pipeline-loops", "split-loops", "the parts of a split loop go on with one pipeline"),
    ("infer-layouts", "split-loops", "what a mask costs depends on how many elements a thread holds"),
    ("infer-layouts", "skip-identities", "whether asking pays depends on how many elements a thread holds"),
    ("pipeline-loops", "join-channels", "pipelining moves what stands together, and asks for channels one by one"),
    ("split-loops", "join-channels", "a loop that is split accesses its channels at more places"),
    ("specialize-warps", "split-slots", "only what one role fills and another reads is given back by parts"),
    ("split-slots", "join-channels", "channels with parts have mbarriers of their own"),
    ("split-slots", "alloc-shared", "each part has its mbarriers"),
    ("join-channels", "alloc-shared", "a group of channels has one set of mbarriers, and its slots lie side by side"),
    ("pipeline-loops", "alloc-shared", "a channel's place in shared memory depends on its depth"),
    ("infer-layouts", "alloc-shared", "a buffer's size and alignment follow from its layout"),
    ("alloc-shared", "join-dots", "operands lie side by side once they are placed"),
    ("join-dots", "tile-to-ptx", "the last of joined dots issues all"),
    ("alloc-shared", "tile-to-ptx", "addresses are constants in the code"),
    ("tile-to-ptx", "overlap-waits", "it works register by register"),
    ("tile-to-ptx", "overlap-launches", "which instructions access memory is known at the ptx level"),
    ("overlap-waits", "assign-registers", "what is computed before a wait, and what after it, are values of their own"),
    ("tile-to-ptx", "assign-registers", "only the ptx level has registers"),
)
"""(earlier, later, because): checked by `check_order`."""


def check_order(pipeline: tuple[str, ...]) -> None:
    """Raises ValueError, with the reason, if a pipeline runs a pass before one it depends on."""
    for earlier, later, reason in ORDER:
        if later in pipeline and (earlier not in pipeline or pipeline.index(earlier) > pipeline.index(later)):
            raise ValueError(f"{earlier} must run before {later}: {reason}")


PIPELINE: tuple[str, ...] = tuple(name for passes in STAGES.values() for name in passes)
check_order(PIPELINE)


@dataclass
class CompiledKernel:
    """What compiling one kernel gives: its launch plan, the PTX program and text, the ptx-level module, notes, and the milliseconds of each step."""

    plan: LaunchPlan
    program: Program
    ptx: str
    module: ModuleOp
    target: Target
    diagnostics: list[Diagnostic] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)


def select_kernel(module: ModuleOp, name: str | None) -> str:
    """The name of the module's kernel called `name`, or of its only one. Raises TeselaError if there is none, or several and no name."""
    from ..dialects import tile

    kernels = [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]
    names = [op.sym_name.data for op in kernels]
    if name is None:
        if len(kernels) == 1:
            return names[0]
        found = f"it has {len(names)}: {', '.join(names)}" if names else "it has none"
        raise TeselaError.at(module, f"the module must have one tile.kernel to compile, {found}", "name one" if names else None)
    if name not in names:
        raise TeselaError.at(module, f"the module has no kernel '{name}'", f"its kernels: {', '.join(names) or 'none'}")
    return name


class Lowering:
    """A module on its way down, pass by pass, in place. `emitter`: what the passes said; `times`: the milliseconds of each that has run."""

    def __init__(self, module: ModuleOp, target: Target | str, emitter: Emitter | None = None):
        self.module, self.emitter = module, emitter or Emitter()
        self.target = get_target(target) if isinstance(target, str) else target
        self.times: dict[str, float] = {}
        self._context = PassContext(self.target, self.emitter)
        self._next = 0

    def to(self, level: str) -> None:
        """Runs what is left of the passes that lead to a level. Raises TeselaError for an unknown level, and what the passes find."""
        if level not in STAGES:
            text = "; the text of the PTX is .ptx, and --emit ptx on the command line" if level == "ptx" else ""
            raise TeselaError.at(None, f"unknown level '{level}'", f"levels: {', '.join(STAGES)}{text}")
        self._run_until(sum(len(STAGES[name]) for name in list(STAGES)[: list(STAGES).index(level) + 1]))

    def after(self, name: str) -> None:
        """The same, up to and with a pass."""
        self._run_until(PIPELINE.index(name) + 1)

    def _run_until(self, end: int) -> None:
        while self._next < end:
            name = PIPELINE[self._next]
            self._next += 1
            start = time.perf_counter()
            get_pass(name)().run(self.module, self._context)
            self.emitter.raise_if_errors()
            self.times[name] = (time.perf_counter() - start) * 1e3


def lower_to(module: ModuleOp, level: str, target: Target | str) -> None:
    """Runs the passes up to and with those of a level on the module, in place."""
    Lowering(module, target).to(level)


def compile_kernel(module: ModuleOp, kernel: str | None = None, target: Target | str = "sm_90a") -> CompiledKernel:
    """Compiles one kernel of a tile-level module, which stays as it is.

    Raises TeselaError for a program that cannot be compiled, at the op in question.
    """
    from ..dialects import tile

    name = select_kernel(module, kernel)
    copy = module.clone()
    for op in list(copy.body.block.ops):
        if isinstance(op, tile.KernelOp) and op.sym_name.data != name:
            op.detach()
            op.erase()
    return finish(Lowering(copy, target))


def finish(lowering: Lowering) -> CompiledKernel:
    """Compiles a module's only kernel, from wherever it stands."""
    from ..dialects import ptx
    from ..dialects.ptx_text import print_program
    from .emit_ptx import emit

    lowering.to("ptx-ir")
    module = lowering.module
    lowered = next(op for op in module.body.block.ops if isinstance(op, ptx.KernelOp))
    assert lowered.plan is not None
    start = time.perf_counter()
    program = emit(module)
    text = print_program(program)
    times = lowering.times | {"emit": (time.perf_counter() - start) * 1e3}
    return CompiledKernel(lowered.plan.data, program, text, module, lowering.target, list(lowering.emitter.diagnostics), times)
