"""Lowering of tile.gather: by selections and shuffles where the lines along the axis lie within warps, else through shared memory (`passes/gathers.py`)."""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from ...passes.access import memory_bytes
from ...passes.conversions import bits_of
from ...passes.gathers import Picks, plan_gather
from ...passes.shuffles import INDEXED, LANES
from .context import Context, element_bits, lowers
from .elements import check_lowered, from_one_each, one_each
from .exchanges import ALL_LANES
from .shapes import from_scratch, inside_tile, parts_of_exchange, read_scratch, row_major_strides, write_scratch


@lowers(tile.GatherOp)
def _gather(ctx: Context, op: tile.GatherOp) -> None:
    kind = element_type(op.source.type)
    check_lowered(ctx, kind, op)
    source, result = ctx.layout(op.source), ctx.layout(op.res)
    if ctx.layout(op.index) != result:
        raise ctx.error(op, f"the indices' layout {ctx.layout(op.index)} is not the result's, {result}", "run infer-layouts")
    index_bits = bits_of(element_type(op.index.type))
    plan = plan_gather(source, result, op.along, shape_of(op.source.type), element_bits(kind), index_bits, ctx.warps)
    ctx.set(op.res, _through_memory(ctx, op) if plan.shuffles is None else _within_warps(ctx, op, plan.shuffles))


def _index(ctx: Context, op: tile.GatherOp) -> tuple[SSAValue, SSAValue]:
    """The indices in b32, and whether each is of an element of the tile."""
    values, extent = ctx.get(op.index), shape_of(op.source.type)[op.along]
    cls, n = values.type.cls, values.type.count
    inside = ctx.inst(f"setp.lt.u{cls[1:]}", [values, ctx.const(extent, cls)], [reg("pred", n)])  # negative ones are huge
    return (ctx.inst("cvt.u32.u64", [values], [reg("b32", n)]) if cls == "b64" else values), inside


def _within_warps(ctx: Context, op: tile.GatherOp, plan: Picks) -> SSAValue:
    kind, n = element_type(op.source.type), ctx.layout(op.res).num_values
    index, inside = _index(ctx, op)
    words = _words(ctx, op)
    choices = [ctx.pick(words, [line[k] for line in plan.picks]) for k in range(len(plan.picks[0]))]
    if plan.lanes:
        mask = sum((digit.extent - 1) * digit.weight for digit in plan.lanes if digit.weight is not None)
        lane = ctx.splat(ctx.and_(ctx.lane(), LANES & ~mask), n)
        for digit in plan.lanes:
            assert digit.weight is not None
            lane = _each(ctx, "or.b32", lane, _scaled(ctx, _digit(ctx, index, digit.stride, digit.extent), digit.weight))
        choices = [_asked(ctx, choice, lane) for choice in choices]
    for digit in plan.values:
        choices = _chosen(ctx, choices, index, digit.stride, digit.extent)
    (picked,) = choices
    cls = picked.type.cls
    picked = ctx.inst(f"selp.{cls}", [picked, ctx.const(0, cls), inside], [picked.type])
    if cls == "b64" or element_bits(kind) == 32:
        return picked
    if element_bits(kind) == 1:
        return ctx.compare("ne", "s32", picked, 0)
    return from_one_each(ctx, ctx.inst("cvt.u16.u32", [picked], [reg("b16", n)]), kind, n)


def _words(ctx: Context, op: tile.GatherOp) -> SSAValue:
    """The source's values in words, b32 or b64, one each."""
    kind, n = element_type(op.source.type), ctx.layout(op.source).num_values
    regs, bits = ctx.get(op.source), element_bits(kind)
    if bits == 1:
        return ctx.inst("selp.b32", [ctx.const(1), ctx.const(0), regs], [reg("b32", n)])
    return regs if bits >= 32 else ctx.inst("cvt.u32.u16", [one_each(ctx, regs, kind, n)], [reg("b32", n)])


def _each(ctx: Context, opcode: str, a: SSAValue, b: SSAValue) -> SSAValue:
    return ctx.inst(opcode, [a, b], [reg("b32", a.type.count)])


def _digit(ctx: Context, index: SSAValue, stride: int, extent: int) -> SSAValue:
    """(index / stride) % extent, both powers of two."""
    if stride > 1:
        index = _each(ctx, "shr.u32", index, ctx.const(stride.bit_length() - 1))
    return _each(ctx, "and.b32", index, ctx.const(extent - 1))


def _scaled(ctx: Context, digit: SSAValue, weight: int) -> SSAValue:
    return digit if weight == 1 else _each(ctx, "shl.b32", digit, ctx.const(weight.bit_length() - 1))


def _asked(ctx: Context, words: SSAValue, lane: SSAValue) -> SSAValue:
    """Each word of the lane that its index names."""
    rest = [ctx.const(LANES), ctx.const(ALL_LANES)]
    if words.type.cls == "b32":
        return ctx.inst(INDEXED, [words, lane, *rest], [words.type])
    n = words.type.count
    halves = ctx.inst("mov.b64", [words], [reg("b32", 2 * n)])
    twice = ctx.pick(lane, [value for value in range(n) for _ in range(2)])
    return ctx.inst("mov.b64", [ctx.inst(INDEXED, [halves, twice, *rest], [halves.type])], [words.type])


def _chosen(ctx: Context, choices: list[SSAValue], index: SSAValue, stride: int, extent: int) -> list[SSAValue]:
    """One of each `extent` neighbours, by the index's digit: pairs by its lowest bit, pairs of those by the next."""
    groups = [choices[i : i + extent] for i in range(0, len(choices), extent)]
    bit = stride
    while len(groups[0]) > 1:
        odd = ctx.inst("setp.ne.u32", [_each(ctx, "and.b32", index, ctx.const(1)) if bit == 1 else _digit(ctx, index, bit, 2), ctx.const(0)], [reg("pred", index.type.count)])
        groups = [
            [
                group[i] if i + 1 == len(group) else ctx.inst(f"selp.{group[i].type.cls}", [group[i + 1], group[i], odd], [group[i].type])
                for i in range(0, len(group), 2)
            ]
            for group in groups
        ]
        bit *= 2
    return [group[0] for group in groups]


def _through_memory(ctx: Context, op: tile.GatherOp) -> SSAValue:
    """The source lies in shared memory in row-major order, whole or one part after another."""
    kind, axis = element_type(op.source.type), op.along
    source, result, shape = ctx.layout(op.source), ctx.layout(op.res), shape_of(op.source.type)
    strides, size, n = row_major_strides(shape), memory_bytes(kind), result.num_values
    index, inside = _index(ctx, op)
    inside = ctx.both(inside, inside_tile(ctx, result, shape_of(op.res.type), range(result.rank)))
    own = ctx.const(0)
    for dim, stride in enumerate(strides):
        if dim != axis:
            own = ctx.add(own, ctx.mul(ctx.thread_coord(result, dim), stride * size))
    picked = _each(ctx, "add.s32", _each(ctx, "mul.lo.s32", index, ctx.const(strides[axis] * size)), own)
    coords = [result.value_coords(value) for value in range(n)]
    offsets = [sum(c * stride for dim, (c, stride) in enumerate(zip(coord, strides)) if dim != axis) * size for coord in coords]
    loaded: SSAValue | None = None
    base, parts = parts_of_exchange(ctx, prod(shape), size)
    for start, count in parts:
        write_scratch(ctx, base, ctx.get(op.source), kind, (source, shape, strides), start, count)
        among = inside
        if count is not None:
            linear = [_each(ctx, "add.s32", ctx.pick(picked, [v]), ctx.const(offsets[v] - start * size)) for v in range(n)]
            among = ctx.both(inside, ctx.inst("setp.lt.u32", [ctx.concat(linear), ctx.const(count * size)], [reg("pred", n)]))  # before `start` is huge
        address = _each(ctx, "add.s32", picked, ctx.shared_address(base))
        loaded = read_scratch(ctx, kind, n, address, [offset - start * size for offset in offsets], among, loaded)
    assert loaded is not None, "a tile has elements"
    return from_scratch(ctx, loaded, kind, n)
