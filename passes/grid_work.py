"""How the work of a kernel's points differs along an axis of its logical grid, and what its points share. For the order in which points are taken.

A causal attention's rows see the more columns the further down they are: the loop over columns goes to an end that grows with the block's row. `slope`
finds that: whether the trips of a kernel's loops grow or fall with one grid coordinate, the others being as they are.

    %end = arith.minsi %L, (%row + 128 + %L - %S)        with %row = %block · 128: grows (or stays) with %block, so slope +1
    scf.for %j = %c0 to %end step %c128 { … }

`shared_extents` says how large what some points share is, by the extents of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith, scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.tile import shape_of
from .access import memory_bytes
from .divisibility import Divisibility

RISING, FALLING, LEVEL = 1, -1, 0
MONOTONE = (arith.MinSIOp, arith.MaxSIOp, arith.AddiOp)
SAME = (arith.IndexCastOp, tile.CastOp)
DIVISIONS = (arith.DivSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp)


def slope(kernel: tile.KernelOp, axis: int) -> int | None:
    """RISING or FALLING where the loops of a kernel have more, or fewer, trips at greater coordinates along an axis of its grid; LEVEL where it makes no
    difference; None where there is no saying."""
    slopes = _Slopes(kernel, axis)
    found: int | None = LEVEL
    for op in kernel.body.walk():
        if isinstance(op, scf.ForOp):
            found = _sum(found, _difference(slopes(op.ub), slopes(op.lb)))
        elif isinstance(op, scf.WhileOp):
            return None
    return found


def heavier_axis(kernel: tile.KernelOp) -> tuple[int, int] | None:
    """(axis, slope) of the one axis of a grid of one or two along which the work differs; None where there is none, or no saying."""
    axes = len(kernel.grid.data)
    if axes > 2:
        return None
    slopes = [slope(kernel, axis) for axis in range(axes)]
    uneven = [(axis, its) for axis, its in enumerate(slopes) if its is not None and its != LEVEL]
    return uneven[0] if len(uneven) == 1 and None not in slopes else None


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None or right is None or left * right < 0:
        return None
    return left or right


def _difference(left: int | None, right: int | None) -> int | None:
    return _sum(left, None if right is None else -right)


class _Slopes:
    """The slopes of a kernel's scalars along one axis."""

    def __init__(self, kernel: tile.KernelOp, axis: int) -> None:
        self.found: dict[SSAValue, int | None] = dict.fromkeys(kernel.body.block.args, LEVEL)
        self.found[kernel.grid_args[axis]] = RISING
        self.facts = Divisibility()

    def __call__(self, value: SSAValue) -> int | None:
        if value not in self.found:
            self.found[value] = None  # what comes back to itself is not followed
            self.found[value] = self._slope(value)
        return self.found[value]

    def _slope(self, value: SSAValue) -> int | None:
        op = value.owner
        if isinstance(value, BlockArgument) or not isinstance(op, Operation) or op.regions:
            return None
        slopes = [self(operand) for operand in op.operands]
        if all(its == LEVEL for its in slopes):
            return LEVEL
        if isinstance(op, MONOTONE):
            return _sum(slopes[0], slopes[1])
        if isinstance(op, arith.SubiOp):
            return _difference(slopes[0], slopes[1])
        if isinstance(op, SAME):
            return slopes[0]
        if isinstance(op, arith.MuliOp):
            for mine, other in ((0, 1), (1, 0)):
                if slopes[other] == LEVEL and self.facts.nonnegative(op.operands[other]):
                    return slopes[mine]
        if isinstance(op, DIVISIONS) and slopes[1] == LEVEL and self.facts.nonnegative(op.operands[1]):
            return slopes[0]
        return None


def shared_extents(kernel: tile.KernelOp, shared: Iterable[tile.LoadOp | async_copy.PutOp]) -> list[tuple[list[SSAValue | int], int]]:
    """For each array that these load from: how far their tiles may walk along each dimension (a value, or where the kernel does not know the array's extent
    the tile's own), and the bytes of an element."""
    symbols = dict(zip((symbol.data for symbol in kernel.dims.data), kernel.dim_args))
    found: dict[SSAValue, tuple[list[SSAValue | int], int]] = {}
    for op in shared:
        exprs = kernel.shape_exprs(kernel.args.index(op.array))
        own = op.channel.type.shape if isinstance(op, async_copy.PutOp) else shape_of(op.res.type)
        if exprs is not None:
            named = [symbols.get(str(exprs[dim].value)) if exprs[dim].op == "sym" else None for dim in op.tile_dims()]
            extents = [value if value is not None else extent for value, extent in zip(named, own)]
            found[op.array] = (extents, memory_bytes(op.array.type.element_type))
    return list(found.values())
