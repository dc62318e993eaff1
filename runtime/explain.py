"""`kernel.explain()`: what the compiler chose for a variant, value by value, with the source line of each.

    softmax for sm_90a: 4 warps, 16 bytes of shared memory
    assumes: x aligned to 16, y aligned to 16, x noalias, y noalias

    Layouts: cost 2412 slots a block, the least of 72 combinations …
    examples/softmax.mlir:13:5  %v  1024xf32
      layout     thread [128:(4)], value [4:(1), 2:(512)]
      by         ld.global of 16 bytes, 2 a thread, %x at line 13
      cost       load 392 + arithmetic 96
      runner-up  thread [128:(2)], value [2:(1), 4:(256)]: +24 (load +24 at line 13)

    Shared memory
      %a_channel  128x64xbf16  16384 bytes × 4 stages  …

    examples/softmax.mlir:13:5  %v = tile.load : tensor<1024xf32>
      layout  thread [128:(4)], value [4:(1), 2:(512)]
      code    3 ld.param.b64, 2 ld.global.v4.b32, 8 ld.global.b32, 52 others

First the unknowns that infer-layouts solved for (`passes/explain_layouts.py`); then the buffers of the final program, what was chosen for its loops
(`passes/explain_schedules.py`) and their timelines; then, operation by operation, the code.
Layouts and channels of the last part are those of the 'schedule' level; the code is counted in the PTX that comes of it, by the source places that it carries: what
moves data, waits, or computes matrices and special functions by name, the rest as a number. Operations that stand at one place of the source are
shown together, above the code of all of them. docs/layouts.md says how layouts are read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..dialects.diagnostics import Location, location_of
from ..dialects.ptx_isa import TABLE
from ..dialects.ptx_program import Instr, Program

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Attribute, Operation, SSAValue

    from ..dialects.launch_plan import LaunchPlan
    from .launch import Variant

OF_GRID = ("tile.block_index", "tile.block_count", "tile.grid_extent")
"""Operations about the grid alone: shown only where nothing else stands at their place."""
COMMON_UNITS = ("alu", "fma", "branch")
"""Units whose instructions are in every kernel's arithmetic of addresses and loops."""


def explain(module: ModuleOp, variant: Variant, planned: ModuleOp) -> str:
    """The text, for a module at the 'schedule' level, the variant that was made of it, and the same program at the 'async' level, which is changed."""
    from ..dialects import async_copy, tile

    plan = variant.plan
    lines = [f"{plan.name} for {plan.target}: {plan.threads // 32} warps, {plan.shared_bytes} bytes of shared memory"]
    lines += [f"assumes: {variant.facts}", *[f"note: {note}" for note in variant.notes]]
    lines += ["", *_choices(planned, plan.target), *_clusters(planned, plan.target), *_shared_memory(module, plan), *_schedules(planned, plan.target), *_loops(module)]
    code = instructions(variant.program())
    places: dict[Location | None, list[Operation]] = {}
    for op in module.walk():
        if not isinstance(op, tile.KernelOp | tile.ReturnOp) and (_layouts(op) or op.name.startswith(("async.", "tile."))):
            places.setdefault(location_of(op), []).append(op)
    for place, ops in places.items():
        told = [op for op in ops if op.name not in OF_GRID] or ops
        found = {_headline(op): op for op in reversed(told)}
        lines.append("")
        for headline, op in reversed(found.items()):
            lines.append(f"{place or '?'}  {headline}")
            if isinstance(op, async_copy.ChannelOp):
                lines.append(f"  ring    {op.depth.value.data} buffers")
            lines += [f"  layout  {layout}" for layout in _layouts(op)]
        if place is not None and (counts := code.get(place)):
            lines.append(f"  code    {_counted(counts)}{f' (of all {len(found)} above)' if len(found) > 1 else ''}")
    return "\n".join(lines) + "\n"


def _loops(module: ModuleOp) -> list[str]:
    """The schedules of loops, as a model of their time shows them; of the others that there is none."""
    from ..passes.explain_loops import describe, describe_untimed
    from ..passes.loop_timing import time_loops, untimed_loops

    text = [describe(timing).rstrip("\n") for timing in time_loops(module)]
    text += [describe_untimed(loop) for loop in untimed_loops(module)]
    return ["", "Loops", *text] if text else []


def _schedules(planned: ModuleOp, target: str) -> list[str]:
    """What pipeline-loops chose, of a program that has its layouts, which is changed."""
    from ..dialects.target import get_target
    from ..lowering.pipeline import STAGES
    from ..passes import get_pass
    from ..passes.base import PassContext
    from ..passes.explain_schedules import explain as explain_schedules
    from ..passes.explain_schedules import other_roles
    from ..passes.specialize_warps import SpecializeWarps

    passes, machine = STAGES["schedule"], get_target(target)
    context = PassContext(machine)
    for name in passes[: passes.index("specialize-warps")]:
        get_pass(name)().run(planned, context)
    others = {when: planned.clone() for when in ("never", "always")}
    for when, module in others.items():
        SpecializeWarps(when=when).run(module, context)
    for name in passes[passes.index("specialize-warps") : passes.index("pipeline-loops")]:
        get_pass(name)().run(planned, context)
    lines = [line for module in others.values() for line in other_roles(planned, module, machine)]
    lines += explain_schedules(planned, machine)
    return ["", "Schedules", *lines] if lines else []


def _clusters(planned: ModuleOp, target: str) -> list[str]:
    """Which blocks load together, or why none do, of a program that has its layouts."""
    from ..dialects import tile
    from ..dialects.target import get_target
    from ..passes.form_clusters import describe

    kernels = [op for op in planned.walk() if isinstance(op, tile.KernelOp)]
    return [line for op in kernels if (line := describe(op, get_target(target))) is not None]


def _choices(planned: ModuleOp, target: str) -> list[str]:
    """What infer-layouts chose."""
    from ..dialects.target import get_target
    from ..passes.base import PassContext
    from ..passes.explain_layouts import explain as explain_layouts
    from ..passes.infer_layouts import InferLayouts

    inference = InferLayouts()
    inference.run(planned, PassContext(get_target(target)))
    lines: list[str] = []
    for solved in inference.solved:
        head, choices = explain_layouts(solved)
        lines.append(f"Layouts: {head}")
        for choice in choices:
            lines.append(f"{choice.place or '?'}  {choice.name}  {choice.kind}")
            lines += [f"  {heading:<9}  {text}" for heading, text in choice.lines]
    return lines


def _shared_memory(module: ModuleOp, plan: LaunchPlan) -> list[str]:
    """A table of the channels' buffers and of what else a block has, and how those are written that TMA stores from."""
    from ..dialects import tile
    from ..dialects.target import get_target
    from ..passes.alloc_shared import shared_table
    from ..passes.explain_layouts import staged_accesses

    target = get_target(plan.target)
    rows: list[str] = []
    for kernel in [op for op in module.walk() if isinstance(op, tile.KernelOp)]:
        rows += shared_table(kernel, target, plan.shared_bytes)
        rows += [str(access) for access, _ in staged_accesses(kernel, target)]
    return ["", "Shared memory", *(f"  {row}" for row in rows)] if rows else []


def instructions(program: Program) -> dict[Location, Counter[str]]:
    """How many instructions of each kind came from each place of the source."""
    found: dict[Location, Counter[str]] = {}
    for entry in program.entries:
        for item in entry.body:
            if isinstance(item, Instr) and item.loc is not None:
                file, line, column = item.loc
                place = Location(program.files[file - 1], line, column)
                found.setdefault(place, Counter())[item.opcode] += 1
    return found


def _counted(counts: Counter[str]) -> str:
    named = {opcode: count for opcode, count in counts.items() if (row := TABLE.get(opcode)) is None or row.unit not in COMMON_UNITS}
    others = sum(counts.values()) - sum(named.values())
    parts = [f"{count} {opcode}" for opcode, count in named.items()]
    return ", ".join([*parts, *([f"{others} others" if parts else f"{others} of arithmetic and control"] if others else [])])


def _headline(op: Operation) -> str:
    """`%v = tile.load : tensor<1024xf32>`, types without layouts."""
    names = ", ".join(f"%{value.name_hint or '…'}" for value in op.results)
    types = ", ".join(_plain(value.type) for value in op.results)
    return f"{names} = {op.name} : {types}" if names else f"{op.name} {', '.join(_operand(value) for value in op.operands)}"


def _operand(value: SSAValue) -> str:
    return f"%{value.name_hint}" if value.name_hint else _plain(value.type)


def _plain(kind: Attribute) -> str:
    from xdsl.dialects.builtin import TensorType

    from ..dialects.async_copy import PendingType

    if isinstance(kind, PendingType):
        return f"pending {_plain(kind.tile)}"
    tile = getattr(kind, "tile", kind)
    if not isinstance(tile, TensorType):
        return str(kind)
    text = "x".join([*map(str, tile.get_shape()), str(tile.element_type)])
    return f"tensor<{text}>" if tile is kind else f"{kind.name.removeprefix('async.')}<{text}>"


def _layouts(op: Operation) -> list[str]:
    """The layouts of an operation's results, each once."""
    from xdsl.dialects.builtin import TensorType

    from ..dialects.layout_attrs import SharedLayoutAttr, TVLayoutAttr

    found = []
    for value in op.results:
        tile = getattr(value.type, "tile", value.type)
        if isinstance(tile, TensorType) and isinstance(tile.encoding, TVLayoutAttr | SharedLayoutAttr):
            found.append(str(tile.encoding.data))
    return list(dict.fromkeys(found))
