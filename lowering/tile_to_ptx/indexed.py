"""Lowering of indexed loads and stores, and of atomic updates: each access at an address of its own.

The part of an address that the block shares and the part of the thread are as in `memory.py`; a tile of indices adds, for each value, its index times
the stride. Values that lie side by side along a sliced dimension of stride 1 have one index and move together, up to 16 bytes.

An atomic update is `red` where nothing uses what it found, else `atom`. Where neighbours along a dimension of stride 1 have one index, `red` adds several of them
at once (`access.update_width`). PTX has no atomic maximum of floats; their bits, read as integers, have the
order of the numbers where the sign is clear and the reverse order where it is set (IEEE 754), so one of two integer updates does it, as the
operand's sign says (§9.7.13.5: `max.s32`, `min.u32`). NaN is replaced by one whose bits win in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects.builtin import BFloat16Type, Float32Type, Float64Type, IndexType, TensorType
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile
from ...dialects.layout import TVLayout
from ...dialects.ptx import reg
from ...dialects.tile import AtomicKind, shape_of
from ...dialects.tile_indexed import COMPUTED, Indexed
from ...passes.access import memory_bytes, update_width, vector_access, vector_update
from .context import Context, element_bits, lowers
from .elements import check_lowered, halves, pack_halves
from .memory import (
    Access,
    combined,
    fill_registers,
    index_inside,
    load_registers,
    slice_inside,
    store_registers,
    strided,
    thread_offset,
)
from .shapes import exchange, inside_tile, row_major_strides


def plan_indexed(ctx: Context, op: Indexed, layout: TVLayout | None, vector: int) -> Access:
    """Addresses and bounds of the accessed tile (of `layout`; None for a scalar), moved `vector` values at a time."""
    array, dims = op.array, op.tile_dims()
    kind = array.type
    size = memory_bytes(kind.element_type)
    shape = shape_of(op.accessed)
    coords = [()] if layout is None else [layout.value_coords(value) for value in range(0, layout.num_values, vector)]
    base = ctx.pointer(array)
    offset = ctx.const(0, "b64")
    whole: SSAValue | None = None
    parts: list[list[SSAValue]] = []
    computed: SSAValue | None = None
    for dim, index in enumerate(op.indices):
        if not isinstance(index.type, IndexType):
            places, inside = _computed(ctx, op, dim, index, coords)
            computed = places if computed is None else ctx.add(computed, places)
            parts.append([ctx.pick(inside, [k]) for k in range(len(coords))])
            continue
        offset = ctx.add(offset, ctx.mul(ctx.get(index), ctx.stride(array, dim)))
        if dim not in dims:
            whole = ctx.both(whole, index_inside(ctx, array, dim, index))
    base = ctx.add(base, ctx.mul(offset, size))
    sliced = [(position, dim) for position, dim in enumerate(dims) if dim != COMPUTED]
    for position, dim in sliced:
        assert layout is not None
        base = ctx.add(base, thread_offset(ctx, array, dim, layout, position, size))
        parts.append(slice_inside(ctx, array, dim, op.indices[dim], layout, position, shape[position], coords))
    addresses, offsets = strided(ctx, array, base, sliced, coords, size)
    address = addresses[0] if len(set(addresses)) == 1 else ctx.concat(addresses)
    if computed is not None:
        address = ctx.add(computed, address)
    if layout is not None:
        padding = inside_tile(ctx, layout, shape, [position for position, dim in enumerate(dims) if dim == COMPUTED])
        if padding is not None:
            parts.append([ctx.pick(padding, [k * vector]) for k in range(len(coords))])
    return Access(vector, address, offsets, combined(ctx, whole, parts))


def _computed(ctx: Context, op: Indexed, dim: int, index: SSAValue, coords: Sequence[tuple[int, ...]]) -> tuple[SSAValue, SSAValue]:
    """Bytes from the array's start that a tile of indices stands for, b64, and whether they are inside the array: one of each for each access."""
    layout, extents = ctx.layout(index), shape_of(index.type)
    held = {layout.value_coords(value): value for value in range(layout.num_values)}
    wanted = [held.get(tuple(c if extent > 1 else 0 for c, extent in zip(coord, extents))) for coord in coords]
    picks = [value for value in wanted if value is not None]
    if len(picks) != len(wanted):
        raise ctx.error(op, f"the layout of index {dim} is not that of the tile: {layout}", "run infer-layouts")
    values = ctx.get(index)
    if values.type.cls == "b32":
        values = ctx.inst("cvt.s64.s32", [values], [reg("b64", values.type.count)])
    extent = ctx.extent(op.array, dim)
    inside = ctx.inst("setp.lt.u64", [values, extent], [reg("pred", values.type.count)])  # negative ones are huge
    step = ctx.mul(ctx.stride(op.array, dim), memory_bytes(op.array.type.element_type))
    return ctx.pick(ctx.mul(values, step), picks), ctx.pick(inside, picks)


def _vector(ctx: Context, op: tile.LoadIndexedOp | tile.StoreIndexedOp, layout: TVLayout) -> int:
    position, width = vector_access(ctx.kernel, ctx.facts, op)
    return 1 if position is None else gcd(width, layout.contiguous(position))


@lowers(tile.LoadIndexedOp)
def _load(ctx: Context, op: tile.LoadIndexedOp) -> None:
    kind = op.array.type.element_type
    check_lowered(ctx, kind, op)
    ctx.order_access(op.array, "r")
    layout = ctx.layout(op.res) if isinstance(op.res.type, TensorType) else None
    n = 1 if layout is None else layout.num_values
    access = plan_indexed(ctx, op, layout, 1 if layout is None else _vector(ctx, op, layout))
    ctx.set(op.res, load_registers(ctx, kind, n, access, fill_registers(ctx, kind, n, op.fill)))


@lowers(tile.StoreIndexedOp)
def _store(ctx: Context, op: tile.StoreIndexedOp) -> None:
    kind = op.array.type.element_type
    check_lowered(ctx, kind, op)
    ctx.order_access(op.array, "w")
    layout = ctx.layout(op.value) if isinstance(op.value.type, TensorType) else None
    access = plan_indexed(ctx, op, layout, 1 if layout is None else _vector(ctx, op, layout))
    access = Access(access.vector, access.address, access.offsets, ctx.both(access.inside, _holder(ctx, layout)))
    store_registers(ctx, kind, 1 if layout is None else layout.num_values, access, ctx.get(op.value))


def _holder(ctx: Context, layout: TVLayout | None) -> SSAValue | None:
    """A predicate that holds in one of the threads that hold an element."""
    return ctx.one_thread() if layout is None else ctx.first_holder(layout)


# ---- atomic updates ------------------------------------------------------------------------------------------------

ORDER = "relaxed.gpu"

NAMES = {AtomicKind.EXCHANGE: "exch"}
POSITIVE_NAN, NEGATIVE_NAN = 0x7FFFFFFF, 0xFFFFFFFF


def _suffix(kind: AtomicKind, element: Attribute) -> str:
    """The type that the instruction names."""
    bits = element_bits(element)
    match kind:
        case AtomicKind.ADD if isinstance(element, Float32Type | Float64Type):
            return f"f{bits}"
        case AtomicKind.ADD if bits == 16:
            return "noftz.bf16" if isinstance(element, BFloat16Type) else "noftz.f16"
        case AtomicKind.ADD:
            return "s32" if bits == 32 else "u64"
        case AtomicKind.MAX | AtomicKind.MIN:
            return f"s{bits}"
        case _:
            return f"b{bits}"


@lowers(tile.AtomicOp)
def _atomic(ctx: Context, op: tile.AtomicOp) -> None:
    kind, element = op.kind.data, op.array.type.element_type
    check_lowered(ctx, element, op)
    if kind is AtomicKind.ADD and isinstance(element, BFloat16Type) and not ctx.target.has_clusters:
        raise ctx.error(op, f"an atomic 'add' of bf16 needs sm_90, the target is {ctx.target.name}", "add to an array of f32")
    ctx.order_access(op.array, "a")
    layout = ctx.layout(op.value) if isinstance(op.value.type, TensorType) else None
    n = 1 if layout is None else layout.num_values
    position, width = update_width(ctx.kernel, ctx.facts, op, ctx.target)
    if layout is not None and position is not None and (vector := gcd(width, layout.contiguous(position))) > 1:
        access = plan_indexed(ctx, op, layout, vector)
        used, value, guard = any(True for _ in op.res.uses), ctx.get(op.value), ctx.both(access.inside, _holder(ctx, layout))
        opcode = vector_update(element, vector, used)
        if not used:
            ctx.inst(opcode, [access.address, value], offsets=access.offsets, guard=guard)
            return
        init = [] if guard is None else [ctx.splat(ctx.const(0, value.type.cls), value.type.count)]
        old = ctx.inst(opcode, [access.address, value], [value.type], offsets=access.offsets, guard=guard, init=init)
        ctx.set(op.res, _shared_result(ctx, op, old, layout))
        return
    access = plan_indexed(ctx, op, layout, 1)
    guard = ctx.both(access.inside, _holder(ctx, layout))
    narrow = element_bits(element) == 16
    operands = [halves(ctx, ctx.get(value), n) if narrow else ctx.get(value) for value in (op.expected, op.value) if value is not None]
    used = any(True for _ in op.res.uses) or kind in (AtomicKind.EXCHANGE, AtomicKind.CAS)  # which have no form without a result
    updates = [(f"{NAMES.get(kind, kind.value)}.{_suffix(kind, element)}", guard)]
    if kind in (AtomicKind.MAX, AtomicKind.MIN) and isinstance(element, Float32Type):
        operands, updates = _float_extreme(ctx, kind, operands[0], guard)
    cls = operands[0].type.cls
    old = ctx.splat(ctx.const(0, cls), n)
    for opcode, where in updates:
        if not used:
            ctx.inst(f"red.{ORDER}.global.{opcode}", [access.address, *operands], offsets=access.offsets, guard=where)
        elif where is None:
            old = ctx.inst(f"atom.{ORDER}.global.{opcode}", [access.address, *operands], [reg(cls, n)], offsets=access.offsets)
        else:
            old = ctx.inst(f"atom.{ORDER}.global.{opcode}", [access.address, *operands], [reg(cls, n)], offsets=access.offsets, guard=where, init=[old])
    if any(True for _ in op.res.uses):
        ctx.set(op.res, _shared_result(ctx, op, pack_halves(ctx, old, n) if narrow and layout is not None else old, layout))


def _float_extreme(ctx: Context, kind: AtomicKind, value: SSAValue, guard: SSAValue | None) -> tuple[list[SSAValue], list[tuple[str, SSAValue | None]]]:
    """(operand, integer updates and where each is made) for a maximum or minimum of f32."""
    n = value.type.count
    number = ctx.inst("setp.num.f32", [value, value], [reg("pred", n)])
    maximum = kind is AtomicKind.MAX
    nan = ctx.const(POSITIVE_NAN if maximum else NEGATIVE_NAN)
    bits = ctx.inst("selp.b32", [value, nan, number], [value.type])
    clear = ctx.compare("ge", "s32", bits, 0)
    signed = ctx.compare("lt", "s32", bits, 0)
    names = ("max.s32", "min.u32") if maximum else ("min.s32", "max.u32")
    return [bits], [(names[0], ctx.both(guard, clear)), (names[1], ctx.both(guard, signed))]


def _shared_result(ctx: Context, op: tile.AtomicOp, old: SSAValue, layout: TVLayout | None) -> SSAValue:
    """What was found, in all threads that hold the element: one of them made the update, the others are told through shared memory."""
    element = op.array.type.element_type
    if layout is not None:
        if ctx.first_holder(layout) is None:
            return old
        shape = shape_of(op.value.type)
        side = (layout, shape, row_major_strides(shape))
        return exchange(ctx, old, element, side, side)
    form = f"b{element_bits(element)}"
    address = ctx.shared_address(ctx.scratch(memory_bytes(element)))
    ctx.barrier()
    ctx.inst(f"st.shared.{form}", [address, old], guard=ctx.one_thread())
    ctx.barrier()
    return ctx.inst(f"ld.shared.{form}", [address], [old.type])
