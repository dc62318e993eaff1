"""Lowering of ops that only rename registers (or nearly): full, iota, expand, broadcast, transpose, reshape, layout.convert.

`infer-layouts` chooses layouts under which expand, transpose and most reshapes and broadcasts keep every element in its thread: then a value of the
result is a value of the source by another index, found by comparing the two layouts' value coordinates, and nothing is printed. A conversion
between layouts that put elements in different threads goes by shuffles or through shared memory (`exchanges.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile
from ...dialects.layout import TVLayout
from ...dialects.layout_attrs import ConvertOp
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from ...passes.access import memory_bytes
from ...passes.conversions import plan_conversion
from .context import Context, element_bits, lowers
from .elements import check_lowered, from_one_each, one_each, pick_values
from .exchanges import exchange_tile, shuffle_tile
from .memory import fill_registers


@lowers(tile.FullOp)
def _full(ctx: Context, op: tile.FullOp) -> None:
    kind = op.value.type
    check_lowered(ctx, kind, op)
    ctx.set(op.res, fill_registers(ctx, kind, ctx.layout(op.res).num_values, op.value))


@lowers(tile.IotaOp)
def _iota(ctx: Context, op: tile.IotaOp) -> None:
    layout = ctx.layout(op.res)
    axis = op.axis.value.data
    kind = element_type(op.res.type)
    coords = [layout.value_coords(value)[axis] for value in range(layout.num_values)]
    cls = "b64" if element_bits(kind) == 64 else "b32"
    start = ctx.thread_coord(layout, axis)
    if cls == "b64":
        start = ctx.widen(start)
    found = {c: ctx.add(start, c) for c in dict.fromkeys(coords)}
    ctx.set(op.res, ctx.concat([found[c] for c in coords]))


@lowers(tile.ExpandOp)
def _expand(ctx: Context, op: tile.ExpandOp) -> None:
    _rename(ctx, op, op.source, op.res, lambda at: at[: op.axis.value.data] + at[op.axis.value.data + 1 :])


@lowers(tile.TransposeOp)
def _transpose(ctx: Context, op: tile.TransposeOp) -> None:
    inverse = [op.order.index(dim) for dim in range(len(op.order))]
    _rename(ctx, op, op.source, op.res, lambda at: tuple(at[i] for i in inverse))


@lowers(tile.BroadcastOp)
def _broadcast(ctx: Context, op: tile.BroadcastOp) -> None:
    kept = shape_of(op.source.type)
    wide = shape_of(op.res.type)
    _rename(
        ctx, op, op.source, op.res, lambda at: tuple(c if kept[d] == wide[d] else 0 for d, c in enumerate(at))
    )


@lowers(tile.ReshapeOp)
def _reshape(ctx: Context, op: tile.ReshapeOp) -> None:
    source, result = ctx.layout(op.source), ctx.layout(op.res)
    before, after = shape_of(op.source.type), shape_of(op.res.type)
    check_lowered(ctx, element_type(op.source.type), op)
    through = source.reshape(before, after)
    if through is not None:
        ctx.set(op.res, convert_tile(ctx, ctx.get(op.source), element_type(op.source.type), through, result, after))
        return
    moved = exchange(
        ctx,
        ctx.get(op.source),
        element_type(op.source.type),
        (source, before, row_major_strides(before)),
        (result, after, row_major_strides(after)),
    )
    ctx.set(op.res, moved)


@lowers(ConvertOp)
def _convert(ctx: Context, op: ConvertOp) -> None:
    kind, shape = op.source.type, shape_of(op.source.type)
    assert isinstance(kind, TensorType)
    check_lowered(ctx, kind.element_type, op)
    ctx.set(op.result, convert_tile(ctx, ctx.get(op.source), kind.element_type, ctx.layout(op.source), ctx.layout(op.result), shape))


def convert_tile(ctx: Context, regs: SSAValue, kind: Attribute, source: TVLayout, result: TVLayout, shape: tuple[int, ...]) -> SSAValue:
    """A tile of `shape` from one layout to another, in the cheapest way (`passes/conversions.py`)."""
    same_thread = source.value_map(result)
    if same_thread is not None:
        return pick_values(ctx, regs, kind, source.num_values, same_thread)
    plan = plan_conversion(source, result, shape, element_bits(kind), ctx.warps, ctx.target.compute_capability >= (9, 0))
    if plan.shuffles is not None:
        return shuffle_tile(ctx, plan.shuffles, regs, kind, source, result)
    if plan.exchange is not None and plan.exchange.nbytes <= exchange_room(ctx):
        return exchange_tile(ctx, plan.exchange, regs, kind, source, result, shape)
    strides = row_major_strides(shape)
    return exchange(ctx, regs, kind, (source, shape, strides), (result, shape, strides))


def _rename(
    ctx: Context,
    op: tile.ExpandOp | tile.TransposeOp | tile.BroadcastOp,
    source: SSAValue,
    result: SSAValue,
    to_source: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> None:
    """Registers of `result` by the source coordinates that `to_source` gives for its own. Raises TeselaError where an element is held by
    another thread: infer-layouts converts the operand first."""
    kind = element_type(source.type)
    check_lowered(ctx, kind, op)
    before, after = ctx.layout(source), ctx.layout(result)
    held = {before.value_coords(value): value for value in range(before.num_values)}
    indices = []
    for value in range(after.num_values):
        found = held.get(to_source(after.value_coords(value)))
        if found is None:
            raise ctx.error(
                op, f"the layouts of operand and result differ by more than names: {before} and {after}", "run infer-layouts"
            )
        indices.append(found)
    if not _same_threads(before, after, to_source):
        raise ctx.error(op, f"the layouts put elements in different threads: {before} and {after}", "run infer-layouts")
    ctx.set(result, pick_values(ctx, ctx.get(source), kind, before.num_values, indices))


def _same_threads(before: TVLayout, after: TVLayout, to_source: Callable[[tuple[int, ...]], tuple[int, ...]]) -> bool:
    threads = max(before.num_threads, after.num_threads)
    weight = 1
    while weight < threads:  # both maps are sums of digits: powers of two decide
        here = before.thread_coords(weight % before.num_threads)
        if here != to_source(after.thread_coords(weight % after.num_threads)):
            return False
        weight *= 2
    return True


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


Side = tuple[TVLayout, Sequence[int], Sequence[int]]


def exchange(ctx: Context, regs: SSAValue, kind: Attribute, source: Side, result: Side) -> SSAValue:
    """A tile from one layout to another through shared memory: every element is written by its first holder at its linear index and read by
    all who need it. A side is (layout, extents of the tile, strides of the linear index). Padding is neither written nor read. A tile that shared memory does
    not hold goes in parts."""
    layout, shape, _ = result
    base, parts = parts_of_exchange(ctx, prod(source[1]), memory_bytes(kind))
    loaded: SSAValue | None = None
    for start, count in parts:
        write_scratch(ctx, base, regs, kind, source, start, count)
        address, offsets, inside = _linear(ctx, base, memory_bytes(kind), *result, start, count)
        loaded = read_scratch(ctx, kind, layout.num_values, address, offsets, inside, loaded)
    assert loaded is not None, "a tile has elements"
    return from_scratch(ctx, loaded, kind, layout.num_values)


def parts_of_exchange(ctx: Context, elements: int, size: int) -> tuple[int, list[tuple[int, int | None]]]:
    """Where so many elements of `size` bytes go in shared memory, and in which parts one after another: (first element, number; None for all)."""
    parts = -(-elements * size // exchange_room(ctx))
    if parts > MOST_PARTS:
        parts = 1  # what does not fit is said, by bytes, when all of the kernel is known
    step = -(-elements // parts)
    if parts > 1:
        ctx.note(f"a tile of {elements * size} bytes goes through shared memory in {parts} parts, one after another: it does not hold more at once")
    return ctx.scratch(step * size), [(start, None if parts == 1 else min(step, elements - start)) for start in range(0, elements, step)]


def write_scratch(ctx: Context, base: int, regs: SSAValue, kind: Attribute, side: Side, start: int, count: int | None) -> None:
    """The elements of a tile from linear index `start` on, `count` or all, to shared memory between two barriers, each by its first holder."""
    layout, n, bits = side[0], side[0].num_values, element_bits(kind)
    if bits == 1:
        regs = ctx.inst("selp.b16", [ctx.const(1, "b16"), ctx.const(0, "b16"), regs], [reg("b16", n)])
    else:
        regs = one_each(ctx, regs, kind, n)
    ctx.barrier()  # the scratch may still be read for something else
    address, offsets, inside = _linear(ctx, base, memory_bytes(kind), *side, start, count)
    ctx.inst(f"st.shared.b{max(8, bits)}", [address, regs], offsets=offsets, guard=ctx.both(inside, ctx.first_holder(layout)))
    ctx.barrier()


def read_scratch(
    ctx: Context, kind: Attribute, n: int, address: SSAValue, offsets: Sequence[int], inside: SSAValue | None, before: SSAValue | None
) -> SSAValue:
    """n elements from shared memory, where `inside` holds; elsewhere what `before` holds, or zero. `from_scratch` makes a tile's registers of them."""
    bits = element_bits(kind)
    form, many = f"ld.shared.b{max(8, bits)}", reg("b16" if bits <= 16 else f"b{bits}", n)
    if inside is None:
        return ctx.inst(form, [address], [many], offsets=offsets)
    before = before if before is not None else ctx.splat(ctx.const(0, many.cls), n)
    return ctx.inst(form, [address], [many], offsets=offsets, guard=inside, init=[before])


def from_scratch(ctx: Context, loaded: SSAValue, kind: Attribute, n: int) -> SSAValue:
    if element_bits(kind) == 1:
        return ctx.inst("setp.ne.s16", [loaded, ctx.const(0, "b16")], [reg("pred", n)])
    return from_one_each(ctx, loaded, kind, n)


MOST_PARTS = 16


def exchange_room(ctx: Context) -> int:
    """Bytes that an exchange may take, behind the kernel's buffers; at least one element's."""
    return max(16, ctx.target.max_shared_bytes - ctx.scratch_base)


def _linear(
    ctx: Context, base: int, size: int, layout: TVLayout, shape: Sequence[int], strides: Sequence[int], start: int, count: int | None
) -> tuple[SSAValue, list[int], SSAValue | None]:
    """Shared address of the thread's first value, byte offsets of all, and where they are inside the tile, and among the `count` elements from `start` on (None:
    everywhere)."""
    own = ctx.const(0)
    for dim, stride in enumerate(strides):
        own = ctx.add(own, ctx.mul(ctx.thread_coord(layout, dim), stride * size))
    coords = [layout.value_coords(value) for value in range(layout.num_values)]
    offsets = [sum(c * stride for c, stride in zip(coord, strides)) * size - start * size for coord in coords]
    inside = inside_tile(ctx, layout, shape, range(layout.rank))
    if count is not None:
        among = {offset: ctx.compare("lt", "u32", ctx.add(own, offset), count * size) for offset in dict.fromkeys(offsets)}  # before `start` is huge
        inside = ctx.both(inside, ctx.concat([among[offset] for offset in offsets]))
    return ctx.add(ctx.shared_address(base), own), offsets, inside


def inside_tile(ctx: Context, layout: TVLayout, shape: Sequence[int], dims: Sequence[int]) -> SSAValue | None:
    """One predicate for each value: whether it is no padding along `dims`; None where there is no padding there."""
    reach = layout.shape()
    coords = [layout.value_coords(value) for value in range(layout.num_values)]
    result: SSAValue | None = None
    for dim in dims:
        if reach[dim] <= shape[dim]:
            continue
        thread = ctx.thread_coord(layout, dim)
        found = {c: ctx.compare("lt", "s32", thread, shape[dim] - c) for c in dict.fromkeys(at[dim] for at in coords)}
        result = ctx.both(result, ctx.concat([found[at[dim]] for at in coords]))
    return result
