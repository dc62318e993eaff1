"""On which axes of its grid a kernel's scalars depend: what points along an axis have in common.

An analysis of a kernel whose body is one point's program. A value that does not depend on an axis is the same at all points along it: loads from there can be
shared, and loops up to there have equally many trips. Control counts, too: what a loop or a conditional hands on depends on what decides how it goes.

    %m = %bm * 128                                  axis 0
    %k of `scf.for %k = 0 to %K step 64`            none
    %x of `scf.for … to %m iter_args(%x = …)`       none inside the loop, trip by trip; its result axis 0
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from ..dialects import tile


class GridAxes:
    """The analysis of one kernel, memoised; call it with a value."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.kernel = kernel
        self.found: dict[SSAValue, frozenset[int]] = {argument: frozenset({axis}) for axis, argument in enumerate(kernel.grid_args)}

    def __call__(self, value: SSAValue) -> frozenset[int]:
        """The axes that a value depends on."""
        if value not in self.found:
            self._compute(value)
        return self.found[value]

    def of(self, values: Sequence[SSAValue]) -> frozenset[int]:
        """The axes that any of the values depends on."""
        return frozenset().union(*map(self, values))

    def of_control(self, op: Operation) -> frozenset[int]:
        """The axes on which it depends how often an op is executed at a point."""
        axes: frozenset[int] = frozenset()
        parent = op.parent_op()
        while parent is not None and parent is not self.kernel:
            axes |= self.of(_deciding(parent))
            parent = parent.parent_op()
        return axes

    def _compute(self, value: SSAValue) -> None:
        """All values that `value` depends on, and what they depend on: a loop's values depend on one another, so the union is taken over what
        can be reached."""
        reached: dict[SSAValue, None] = {value: None}
        work = [value]
        axes: frozenset[int] = frozenset()
        while work:
            for source in _sources(work.pop()):
                if source in self.found:
                    axes |= self.found[source]
                elif source not in reached:
                    reached[source] = None
                    work.append(source)
        self.found[value] = axes


def _deciding(op: Operation) -> Sequence[SSAValue]:
    """What decides how control flow goes: the bounds of a loop, the condition of a branch."""
    match op:
        case scf.ForOp():
            return op.lb, op.ub, op.step
        case scf.IfOp():
            return (op.cond,)
        case scf.WhileOp():
            end = op.before_region.block.last_op
            assert isinstance(end, scf.ConditionOp)
            return (end.condition,)
        case _:
            return ()


def _sources(value: SSAValue) -> Sequence[SSAValue]:
    """What a value is computed from, in the same trip of the loops round it or in the trip before."""
    op = value.block.parent_op() if isinstance(value, BlockArgument) else value.owner
    match op:
        case scf.ForOp():
            if isinstance(value, BlockArgument) and value.index == 0:
                return op.lb, op.step  # how far it goes does not change where it has been
            index = value.index - 1 if isinstance(value, BlockArgument) else value.index
            end = op.body.block.last_op
            assert end is not None
            trips = () if isinstance(value, BlockArgument) else (op.lb, op.ub, op.step)
            return (op.iter_args[index], end.operands[index], *trips)
        case tile.KernelOp():
            return ()
        case Operation():
            inside = [operand for region in op.regions for inner in region.walk() for operand in inner.operands]
            return [*op.operands, *inside]
        case _:
            return ()
