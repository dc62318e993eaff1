"""Comparisons of places with bounds: one subtraction for each bound, and constants for the places.

A thread holds elements at its own first place t plus constants c₀, c₁, …, the same for all threads (its layout's value part). So where a tile of
places (tile.iota, expanded and broadcast) is compared with bounds that are few (one, or one a row), the thread's part goes to the bound,

    t + cᵢ < y    ⇔    y - t > cᵢ

and each element takes one comparison with a constant, and no register for its place. Two upper bounds on the same places (past the end *and* past the
diagonal) are one: the lesser. Nothing overflows: places are from 0 to an extent, so a bound is first drawn into [-1, 2³⁰], which decides as it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import OpResult, SSAValue

from ...dialects import ptx, tile
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from .context import Context, element_bits

FARTHEST = 1 << 30
"""Above every place in a tile."""


@dataclass(frozen=True)
class Bounded:
    """Predicates pᵢ = (bounds[i] > places[i]), or with `below` (bounds[i] < places[i]). `start`: the thread's first place, which the bounds are
    relative to."""

    places: tuple[int, ...]
    start: SSAValue
    bounds: tuple[tuple[SSAValue, int], ...]
    below: bool


def place_comparison(ctx: Context, op: tile.CmpOp) -> SSAValue | None:
    """The predicates of a comparison of places with fewer bounds; None where it is none."""
    predicate = op.predicate.data.value
    if predicate not in ("slt", "sle", "sgt", "sge") or element_bits(element_type(op.lhs.type)) != 32:
        return None
    for value, other, swapped in ((op.lhs, op.rhs, False), (op.rhs, op.lhs, True)):
        axis = _places_along(value)
        if axis is None:
            continue
        bounds = _atoms(ctx.get(other))
        if 2 * len(set(bounds)) > len(bounds):
            continue
        layout = ctx.layout(value)
        places = tuple(layout.value_coords(i)[axis] for i in range(layout.num_values))
        start = ctx.thread_coord(layout, axis)
        less = (predicate[1] == "l") != swapped  # place < bound
        equal = predicate[2] == "e"
        distinct = list(dict.fromkeys(bounds))
        found = _relative(ctx, ctx.concat([ctx.pick(bound, [i]) for bound, i in distinct]), start, less, equal)
        relative = tuple((found, distinct.index(bound)) for bound in bounds)
        return _predicates(ctx, op.res, Bounded(places, start, relative, not less))
    return None


def _relative(ctx: Context, y: SSAValue, start: SSAValue, less: bool, equal: bool) -> SSAValue:
    """The bound, less the thread's place, so that strictly above it (or below) is what was asked."""
    many = y.type
    y = ctx.inst("max.s32", [y, ctx.const(-1)], [many])
    shift = int(equal) if less else -int(equal)
    if shift > 0:
        y = ctx.inst("min.s32", [y, ctx.const(FARTHEST)], [many])
    return ctx.inst("sub.s32", [y, ctx.sub(start, shift)], [many])


def both_bounds(ctx: Context, op: arith.AndIOp) -> SSAValue | None:
    """The conjunction of two comparisons of the same places with upper bounds, as one; None where it is none."""
    left, right = (ctx.bounded.get(operand) for operand in op.operands)
    if not isinstance(left, Bounded) or not isinstance(right, Bounded):
        return None
    if (left.places, left.start, left.below) != (right.places, right.start, right.below):
        return None
    pairs = list(zip(left.bounds, right.bounds))
    distinct = list(dict.fromkeys(pairs))
    first, second = (ctx.concat([ctx.pick(value, [i]) for value, i in side]) for side in zip(*distinct))
    merged = ctx.inst("max.s32" if left.below else "min.s32", [first, second], [reg("b32", len(distinct))])
    place = {pair: (merged, i) for i, pair in enumerate(distinct)}
    return _predicates(ctx, op.result, Bounded(left.places, left.start, tuple(place[pair] for pair in pairs), left.below))


def _predicates(ctx: Context, result: SSAValue, what: Bounded) -> SSAValue:
    ctx.bounded[result] = what
    bounds = ctx.concat([ctx.pick(value, [i]) for value, i in what.bounds])
    places = ctx.concat([ctx.const(place) for place in what.places])
    return ctx.inst(f"setp.{'lt' if what.below else 'gt'}.s32", [bounds, places], [reg("pred", len(what.places))])


def _places_along(value: SSAValue) -> int | None:
    """The dimension along which a tile's elements are their own coordinates; None if they are not."""
    if not isinstance(value, OpResult):
        return None
    match op := value.op:
        case tile.IotaOp():
            return op.axis.value.data
        case tile.ExpandOp():
            axis = _places_along(op.source)
            return None if axis is None else axis + (axis >= op.axis.value.data)
        case tile.BroadcastOp():
            axis = _places_along(op.source)
            same = axis is not None and shape_of(op.source.type)[axis] == shape_of(op.res.type)[axis]
            return axis if same else None
        case _:
            return None


def _atoms(value: SSAValue) -> list[tuple[SSAValue, int]]:
    """For each register, which of which value it is a name for."""
    op = value.owner
    if isinstance(op, ptx.PickOp):
        inner = _atoms(op.source)
        return [inner[i] for i in op.indices.get_values()]
    if isinstance(op, ptx.ConcatOp):
        return [atom for part in op.operands for atom in _atoms(part)]
    return [(value, i) for i in range(value.type.count)]
