"""Lowering of tile.reduce: within the thread, then among the lanes of a warp, then among warps through shared memory.

The source's layout decides: value digits that move along the axis are combined in the thread; lane digits that do are combined by butterfly
shuffles; warp digits that do meet in shared memory, where each warp leaves its part and every thread reads all of them, in one order. So
the result is the same bits in every thread that holds it, and in every run (numbers.md N5). Padding along the axis is replaced by the identity first.

16-bit floats are reduced in f32 and rounded once (N32). `argmax` and `argmin` carry a pair (value, index) through the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.layout import TVLayout
from ...dialects.ptx import reg
from ...dialects.tile import ReduceKind, element_type, shape_of
from ...passes.layout_costs import BUTTERFLY
from ...passes.skip_identities import ONLY_BEYOND, bound_of
from .context import Context, element_bits, lowers
from .elements import any_lane, check_lowered, from_int, is_double, is_float, to_int
from .elementwise import double_op, from_work, to_work
from .shapes import inside_tile

MOST_BYTES = 16
"""Of an access to shared memory."""

Parts = list[SSAValue]  # one register vector for each component: (value,) or (value, index)
Combine = Callable[[Parts, Parts], Parts]

MINUS_INF, PLUS_INF, ONE = 0xFF800000, 0x7F800000, 0x3F800000
MINUS_DOUBLE_INF, DOUBLE_INF = 0xFFF0000000000000 - (1 << 64), 0x7FF0000000000000
DOUBLE_IDENTITIES = {
    ReduceKind.SUM: 0, ReduceKind.PROD: 0x3FF0000000000000, ReduceKind.MAX: MINUS_DOUBLE_INF, ReduceKind.ARGMAX: MINUS_DOUBLE_INF,
    ReduceKind.MIN: DOUBLE_INF, ReduceKind.ARGMIN: DOUBLE_INF,
}  # fmt: skip


def identity_of(kind: ReduceKind, floats: bool, bits: int) -> int:
    """What changes nothing, as bits of the type that a reduction or scan of this element type is done in."""
    if floats and bits == 64:
        return DOUBLE_IDENTITIES[kind]
    low, high = (MINUS_INF, PLUS_INF) if floats else (-(1 << bits - 1), (1 << bits - 1) - 1)
    match kind:
        case ReduceKind.SUM:
            return 0
        case ReduceKind.PROD:
            return ONE if floats else 1
        case ReduceKind.MAX | ReduceKind.ARGMAX:
            return low
        case _:
            return high


def combiner(ctx: Context, kind: ReduceKind, floats: bool, cls: str) -> Combine:
    """How two parts of a reduction become one."""
    suffix = f"{'f' if floats else 's'}{cls[1:]}"
    names = {
        ReduceKind.SUM: "add.rn" if floats else "add",
        ReduceKind.PROD: "mul.rn" if floats else "mul.lo",
        ReduceKind.MAX: "max.NaN" if floats else "max",
        ReduceKind.MIN: "min.NaN" if floats else "min",
    }
    if kind in names:
        opcode = f"{names[kind]}.{suffix}"
        if suffix == "f64":
            return lambda a, b: [double_op(ctx, opcode, [a[0], b[0]], a[0].type.count)]
        return lambda a, b: [ctx.inst(opcode, [a[0], b[0]], [a[0].type])]
    return _arg_combiner(ctx, kind, floats, suffix)


def _arg_combiner(ctx: Context, kind: ReduceKind, floats: bool, suffix: str) -> Combine:
    """Of two (value, index) the more extreme value, NaN above all, and of equal ones the lower index (numbers.md N35)."""
    better = "gt" if kind is ReduceKind.ARGMAX else "lt"

    def combine(a: Parts, b: Parts) -> Parts:
        n = a[0].type.count
        preds = reg("pred", n)
        wins = ctx.inst(f"setp.{better}.{suffix}", [b[0], a[0]], [preds])
        ties = ctx.inst(f"setp.eq.{suffix}", [b[0], a[0]], [preds])
        if floats:
            a_nan = ctx.inst(f"setp.nan.{suffix}", [a[0], a[0]], [preds])
            b_nan = ctx.inst(f"setp.nan.{suffix}", [b[0], b[0]], [preds])
            a_number = ctx.inst("not.pred", [a_nan], [preds])
            wins = ctx.inst("or.pred", [wins, ctx.inst("and.pred", [b_nan, a_number], [preds])], [preds])
            ties = ctx.inst("or.pred", [ties, ctx.inst("and.pred", [b_nan, a_nan], [preds])], [preds])
        first = ctx.inst("setp.lt.s32", [b[1], a[1]], [preds])
        take = ctx.inst("or.pred", [wins, ctx.inst("and.pred", [ties, first], [preds])], [preds])
        return [ctx.inst(f"selp.{x.type.cls}", [y, x, take], [x.type]) for x, y in zip(a, b)]

    return combine


@lowers(tile.ReduceOp)
def _reduce(ctx: Context, op: tile.ReduceOp) -> None:
    kind, axis = op.kind.data, op.axis.value.data
    element = element_type(op.source.type)
    check_lowered(ctx, element, op)
    if element_bits(element) == 1:
        raise ctx.error(op, f"{kind.value} is not defined on i1", "cast to i32 first")
    source = ctx.layout(op.source)
    shape = shape_of(op.source.type)
    n = source.num_values
    floats = is_float(element) or is_double(element)
    bits = element_bits(element)
    values = ctx.get(op.source)
    wide = to_work(ctx, values, element, n) if floats else to_int(ctx, values, element, n)
    cls = wide.type.cls
    identity = ctx.const(identity_of(kind, floats, bits), cls)
    indexed = kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
    parts: Parts = [wide]
    inside = inside_tile(ctx, source, shape, [axis])
    if inside is not None:
        parts = [ctx.inst(f"selp.{cls}", [wide, identity, inside], [wide.type])]
    if indexed:
        start = ctx.thread_coord(source, axis)
        places = [source.value_coords(value)[axis] for value in range(n)]
        found = {c: ctx.add(start, c) for c in dict.fromkeys(places)}
        parts.append(ctx.concat([found[c] for c in places]))
    combine = combiner(ctx, kind, floats, cls)

    parts = _within_thread(ctx, source, axis, parts, combine)
    if ONLY_BEYOND in op.attributes and all(weight < 32 for weight, _ in _axis_digits(source, axis)):
        parts = [_if_beyond(ctx, op, source, axis, parts[0], combine)]
    else:
        parts = _within_warp(ctx, source, axis, parts, combine)
        parts = _among_warps(ctx, source, axis, parts, combine)
    _hand_on(ctx, op, axis, source, parts, indexed, floats)


def _if_beyond(ctx: Context, op: tile.ReduceOp, source: TVLayout, axis: int, part: SSAValue, combine: Combine) -> SSAValue:
    """The lanes' extremes combined, in warps of which a lane has one beyond the bound that it will be compared with; in others, where the comparison
    is false for each, as they are."""
    bound = bound_of(op)
    if bound is None:
        raise ctx.error(op, f"{ONLY_BEYOND} needs a comparison with a bound and selections by it as the only uses", "leave it to skip-identities")
    own = ctx.pick(part, _order(ctx, op, source, axis))
    beyond = ctx.compare("gt" if op.kind.data is ReduceKind.MAX else "lt", "f32", own, ctx.get(bound))
    some = any_lane(ctx, beyond)
    return ctx.if_(some, lambda: _within_warp(ctx, source, axis, [part], combine), lambda: [part], [part.type])[0]


def _order(ctx: Context, op: tile.ReduceOp, source: TVLayout, axis: int) -> list[int]:
    """For each value of the result which of the combined ones it is. Raises TeselaError where the result's layout is not the source's without
    the axis."""
    result, projected = ctx.layout(op.res), source.project(axis)
    held = {}
    for v in range(source.num_values):
        at = source.value_coords(v)
        held.setdefault(at[:axis] + at[axis + 1 :], source.value_index(axis, v))
    wanted = [held.get(result.value_coords(v)) for v in range(result.num_values)]
    threads = [[mode.stride for mode in layout.normalized().thread] for layout in (result, projected)]
    if None in wanted or threads[0] != threads[1]:
        raise ctx.error(op, f"the result's layout {result} is not the source's without axis {axis}", "run infer-layouts")
    return wanted


def _hand_on(
    ctx: Context, op: tile.ReduceOp, axis: int, source: TVLayout, parts: Parts, indexed: bool, floats: bool
) -> None:
    """Sets the result, in the order of the result's own layout, rounded or narrowed to its element type."""
    value = parts[-1]
    kind = element_type(op.res.type)
    if isinstance(op.res.type, TensorType):
        wanted = _order(ctx, op, source, axis)
        value, n = ctx.pick(value, wanted), len(wanted)
    else:
        n = 1
    if indexed:
        ctx.set(op.res, value)
    else:
        ctx.set(op.res, from_work(ctx, value, kind, n) if floats else from_int(ctx, value, kind, n))


def _within_thread(ctx: Context, source: TVLayout, axis: int, parts: Parts, combine: Combine) -> Parts:
    """Combines the values that share all coordinates but the axis, neighbours first: the tree is log₂ deep, so that independent work
    overlaps, and each branch needs consecutive values only, so that a part of the tile is a part of the work (overlap-waits)."""
    groups: dict[int, list[int]] = {}
    for value in range(source.num_values):
        groups.setdefault(source.value_index(axis, value), []).append(value)
    rows = [groups[index] for index in range(len(groups))]
    length = len(rows[0])
    columns = [[ctx.pick(part, [row[i] for row in rows]) for part in parts] for i in range(length)]
    while len(columns) > 1:
        half = len(columns) // 2
        # one fat instruction for the whole level
        width = len(rows)
        left = [ctx.concat([columns[2 * i][k] for i in range(half)]) for k in range(len(parts))]
        right = [ctx.concat([columns[2 * i + 1][k] for i in range(half)]) for k in range(len(parts))]
        level = combine(left, right)
        merged = [[ctx.pick(part, range(i * width, (i + 1) * width)) for part in level] for i in range(half)]
        columns = merged + columns[2 * half :]
    return columns[0]


def _axis_digits(source: TVLayout, axis: int) -> list[tuple[int, int]]:
    """(weight, extent) of the thread digits that move along the axis, split at the warp's 32 lanes."""
    digits = []
    weight = 1
    for mode in source.thread:
        if mode.stride[axis] and mode.extent > 1:
            inside = max(1, min(mode.extent, 32 // weight)) if weight < 32 else 1
            if inside > 1:
                digits.append((weight, inside))
            if mode.extent > inside:
                digits.append((weight * inside, mode.extent // inside))
        weight *= mode.extent
    return digits


def _shuffle(ctx: Context, value: SSAValue, distance: int) -> SSAValue:
    mask = ctx.const(0xFFFFFFFF)
    if value.type.cls == "b64":
        n = value.type.count
        words = ctx.inst("mov.b64", [value], [reg("b32", 2 * n)])
        moved = ctx.inst(BUTTERFLY, [words, ctx.const(distance), ctx.const(31), mask], [reg("b32", 2 * n)])
        return ctx.inst("mov.b64", [moved], [value.type])
    return ctx.inst(BUTTERFLY, [value, ctx.const(distance), ctx.const(31), mask], [value.type])


def _within_warp(ctx: Context, source: TVLayout, axis: int, parts: Parts, combine: Combine) -> Parts:
    for weight, extent in _axis_digits(source, axis):
        if weight >= 32:
            continue
        step = 1
        while step < extent:
            parts = combine(parts, [_shuffle(ctx, part, weight * step) for part in parts])
            step *= 2
    return parts


def _among_warps(ctx: Context, source: TVLayout, axis: int, parts: Parts, combine: Combine) -> Parts:
    """Every warp's part through shared memory, laid out as [component][place along the axis][element of the result]."""
    digits = [(weight, extent) for weight, extent in _axis_digits(source, axis) if weight >= 32]
    if not digits:
        return parts
    count = parts[0].type.count
    projected = source.project(axis)
    holders = max(1, projected.num_threads // max(1, projected.replication))
    ways = 1
    place = ctx.const(0)
    for weight, extent in digits:
        place = ctx.add(place, ctx.mul(ctx.thread_digit(weight, extent), ways))
        ways *= extent
    slot = ctx.const(0)  # which of the threads that hold different elements this one is
    scale, weight = 1, 1
    for mode in projected.thread:
        if mode.extent > 1 and not mode.is_broadcast:
            slot = ctx.add(slot, ctx.mul(ctx.thread_digit(weight, mode.extent), scale))
            scale *= mode.extent
        weight *= mode.extent
    writer = _writer(ctx, source, axis)
    size = [4 if part.type.cls == "b32" else 8 for part in parts]
    total = sum(ways * holders * count * nbytes for nbytes in size)
    base = ctx.scratch(total)
    ctx.barrier()
    offset = 0
    for part, nbytes in zip(parts, size):
        address = ctx.add(ctx.shared_address(base + offset), ctx.mul(slot, count * nbytes))
        mine = ctx.add(address, ctx.mul(place, holders * count * nbytes))
        form, offsets = side_by_side(part.type.cls, nbytes, count, offset)
        ctx.inst(f"st.shared.{form}", [mine, part], offsets=offsets, guard=writer)
        offset += ways * holders * count * nbytes
    ctx.barrier()
    offset = 0
    columns: list[Parts] = [[] for _ in range(ways)]
    for part, nbytes in zip(parts, size):
        address = ctx.add(ctx.shared_address(base + offset), ctx.mul(slot, count * nbytes))
        if holders * count == 1:  # the parts lie side by side
            form, offsets = side_by_side(part.type.cls, nbytes, ways, offset)
            loaded = ctx.inst(f"ld.shared.{form}", [address], [reg(part.type.cls, ways)], offsets=offsets)
            for way in range(ways):
                columns[way].append(ctx.pick(loaded, [way]))
        else:
            form, offsets = side_by_side(part.type.cls, nbytes, count, offset)
            for way in range(ways):
                start = way * holders * count * nbytes
                columns[way].append(ctx.inst(f"ld.shared.{form}", [address], [part.type], offsets=[start + at for at in offsets]))
        offset += ways * holders * count * nbytes
    result = columns[0]
    for column in columns[1:]:
        result = combine(result, column)
    return result


def side_by_side(cls: str, nbytes: int, count: int, start: int = 0) -> tuple[str, list[int]]:
    """How `count` elements of `nbytes` bytes that lie side by side are accessed: the form of an access, and the offset of each. They begin at `start`, and a multiple
    of their size after it, in memory that is aligned to MOST_BYTES.

    >>> side_by_side("b32", 4, 8), side_by_side("b32", 4, 6), side_by_side("b32", 4, 4, 4)
    (('v4.b32', [0, 16]), ('v2.b32', [0, 8, 16]), ('b32', [0, 4, 8, 12]))
    """
    width = gcd(MOST_BYTES, count * nbytes, start) // nbytes
    return f"v{width}.{cls}" if width > 1 else cls, [i * nbytes for i in range(0, count, width)]


def _writer(ctx: Context, source: TVLayout, axis: int) -> SSAValue | None:
    """Holds in one thread of those that hold the same part: the digits that neither move along another dimension nor tell warps along the axis are 0."""
    result: SSAValue | None = None
    weight = 1
    for mode in source.thread:
        others = any(stride for dim, stride in enumerate(mode.stride) if dim != axis)
        if not others and mode.extent > 1:
            inside = max(1, min(mode.extent, 32 // weight)) if weight < 32 else 1
            idle = inside if mode.stride[axis] else mode.extent  # of an axis digit, the lanes; of a broadcast digit, all
            if idle > 1:
                result = ctx.both(result, ctx.compare("eq", "s32", ctx.thread_digit(weight, idle), 0))
        weight *= mode.extent
    if weight < ctx.threads:
        result = ctx.both(result, ctx.compare("lt", "s32", ctx.tid(), weight))
    return result

