"""load-early: what is loaded only after a loop of products is asked for before it, and arrives meanwhile.

A bias, a row of factors, a zero point: small arrays that an epilogue reads once. Loaded where they are used, each thread waits for memory, a thousand clocks, while
the tensor cores stand still. Nothing they depend on is computed in the loop, so they can be asked for before it:

    %acc = scf.for … { … async.dot … }              %v = tile.load %bias[%n]
    %v = tile.load %bias[%n]               →        %acc = scf.for … { … async.dot … }
    … arith.addf %acc, %v …                         … arith.addf %acc, %v …

**Which.** Loads that stand after a loop with dots, in the same block, from arrays that nothing between there and here may write, at places that are known before the loop
(the scalar operations that lead there move along). Where several such loops stand in a row, before all that can be passed.

**Registers.** What is loaded is held through the loop, beside what that carries. So only what takes few registers of a thread, EARLY_REGISTERS in all before a loop and
fewer where it leaves fewer; the others stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from ..dialects import async_copy, tile
from ..dialects.array_effects import READ, accesses_inside
from ..dialects.inside import kernels_in
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.tile_inline import InlinePtxOp
from . import dot_rules
from .base import Pass, PassContext

EARLY_REGISTERS = 16
"""Registers of a thread that may be held through a loop for what follows it."""


@dataclass
class LoadEarly(Pass):
    """Ask for small tiles that are used after a loop of dots before it."""

    name: ClassVar[str] = "load-early"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.DotOp | async_copy.DotOp) for inner in op.walk())]
            if not loops:
                continue
            limit = dot_rules.accumulator_limit(dot_rules.block_warps(kernel), target)
            room: dict[Operation, int] = {loop: min(EARLY_REGISTERS, limit - sum(_registers(value) or 0 for value in loop.results)) for loop in loops}
            for load in [op for op in kernel.walk() if isinstance(op, tile.LoadOp)]:
                _move(kernel, load, room)


def _move(kernel: tile.KernelOp, load: tile.LoadOp, room: dict[Operation, int]) -> None:
    """Moves a load before the first loop of dots that it may pass. `room`: registers that each of these loops leaves."""
    registers = _registers(load.res)
    block = load.parent
    if registers is None or block is None:
        return
    needed = _needed(load, block)
    if needed is None:
        return
    place: Operation | None = None
    op = load.prev_op
    while op is not None:
        if op not in needed and (_may_write(kernel, op, load.array) or any(value.owner is op for inner in (load, *needed) for value in inner.operands)):
            break
        if op in room:
            if room[op] < registers:
                break
            place = op
        op = op.prev_op
    if place is None:
        return
    passed = place
    while passed is not load and passed is not None:
        if passed in room:
            room[passed] -= registers
        passed = passed.next_op
    moved = [op for op in needed if place.is_before_in_block(op)]
    for op in (*sorted(moved, key=list(block.ops).index), load):
        op.detach()
        block.insert_op_before(op, place)


def _registers(value: SSAValue) -> int | None:
    """Registers of a thread that a value fills; None if its layout is not known."""
    kind = value.type
    if not isinstance(kind, TensorType):
        return 1
    if not isinstance(kind.encoding, TVLayoutAttr):
        return None
    return dot_rules.registers_of(kind.encoding.data, kind.element_type)


def _needed(load: tile.LoadOp, block: Block) -> set[Operation] | None:
    """The scalar operations of its block that lead to where a load reads; None if it depends on anything else there, such as what is loaded."""
    found: set[Operation] = set()
    work: list[SSAValue] = [value for value in load.operands if value is not load.array]
    while work:
        op = work.pop().owner
        if not isinstance(op, Operation) or op.parent is not block or op in found:
            continue
        if op.regions or not is_side_effect_free(op) or any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
            return None
        found.add(op)
        work += op.operands
    return found


def _may_write(kernel: tile.KernelOp, op: Operation, array: SSAValue) -> bool:
    """Whether an operation may change what is loaded: it writes to an array that may be the same, or is inline PTX with effects."""
    if any(isinstance(inner, InlinePtxOp) and not is_side_effect_free(inner) for inner in op.walk()):
        return True
    return any(access != READ and dot_rules.may_alias(kernel, other, array) for other, access in accesses_inside(op))
