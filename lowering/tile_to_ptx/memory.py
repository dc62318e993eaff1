"""Lowering of tile.load and tile.store: global memory to and from a thread's registers.

**Addresses.** A tile's element at coordinate c of array dimension d lies at base + Σ (start_d + c_d)·stride_d. The starts are the same for the whole
block; the thread's own coordinates are known in the prologue; what differs between the values of one thread is a constant along each
dimension. So an address is one 64-bit base for the thread, plus, for each distinct position along dimensions whose stride is only known at
launch, a multiple of that stride, plus an immediate offset along the others. Only multiples by powers of two are held for the whole kernel: the address of a
position follows from that of the position with one binary digit less. Offsets are 64 bits wide throughout.

**Bounds.** Along each dimension the thread computes how far its own position is from the edge, once; a value at constant distance c from it is inside
where that exceeds c: one comparison with an immediate for each distinct position along each dimension, combined for each access.

**Vectors.** Neighbouring values that lie next to each other in memory move together, up to 16 bytes, when the layout has them consecutive and the
alignment is known: of the base and strides from the argument's `align`, of the start from the divisibility analysis. A masked access must also be inside or
outside as a whole, which `divisible` extents tell. Where they do not, a block whose tile is wholly inside takes wide accesses without masks, and
one at an edge narrow ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from xdsl.dialects.builtin import MemRefType, TensorType
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile
from ...dialects.layout import TVLayout
from ...dialects.ptx import RegType, reg
from ...passes.access import memory_bytes, vector_access, vector_form
from .context import Context, element_bits, lowers, packed
from .elements import check_lowered, from_one_each, halves, one_each, pack_halves, repeated


@dataclass(frozen=True, slots=True)
class Access:
    """The accesses of one thread to a tile of an array: `vector` elements each, at `address` registers (one for each access) plus `offsets` bytes,
    where `inside` holds (None: everywhere)."""

    vector: int
    address: SSAValue
    offsets: list[int]
    inside: SSAValue | None

    def part(self, ctx: Context, which: range) -> Access:
        """Those accesses alone."""
        address, inside = (
            ctx.pick(registers, which) if registers is not None and registers.type.count > 1 else registers
            for registers in (self.address, self.inside)
        )
        assert address is not None
        return Access(self.vector, address, [self.offsets[i] for i in which], inside)


def plan_access(
    ctx: Context,
    array: SSAValue,
    indices: tuple[SSAValue, ...],
    dims: tuple[int, ...],
    layout: TVLayout,
    extents: tuple[int, ...],
    vector: int,
    masked: bool = True,
) -> Access:
    """Addresses and bounds of a tile (`extents`, `layout`) that starts at `indices` of `array` and covers its `dims`, moved `vector` values
    at a time. Where a vector need not be inside the array as a whole, `inside` speaks of its first element.
    Not `masked`: the tile is known to be inside."""
    kind = array.type
    assert isinstance(kind, MemRefType)
    size = memory_bytes(kind.element_type)
    coords = [layout.value_coords(value) for value in range(0, layout.num_values, vector)]

    # the thread's base address
    base = ctx.pointer(array)
    offset = ctx.const(0, "b64")
    for dim, index in enumerate(indices):
        offset = ctx.add(offset, ctx.mul(ctx.get(index), ctx.stride(array, dim)))
    base = ctx.add(base, ctx.mul(offset, size))
    for position, dim in enumerate(dims):
        base = ctx.add(base, thread_offset(ctx, array, dim, layout, position, size))
    addresses, offsets = strided(ctx, array, base, list(enumerate(dims)), coords, size)
    address = addresses[0] if len(set(addresses)) == 1 else ctx.concat(addresses)

    inside = _inside(ctx, array, indices, dims, layout, extents, coords) if masked else None
    return Access(vector, address, offsets, inside)


def strided(
    ctx: Context, array: SSAValue, base: SSAValue, sliced: Sequence[tuple[int, int]], coords: Sequence[tuple[int, ...]], size: int
) -> tuple[list[SSAValue], list[int]]:
    """For each access its address register and its offset in bytes, from the thread's own `base`; `sliced`: (dimension of the tile, of the array).
    There is one register for each distinct position along the dimensions of unknown stride."""
    fixed = [(position, stride) for position, dim in sliced if (stride := ctx.static_stride(array, dim)) is not None]
    loose = [(position, dim) for position, dim in sliced if ctx.static_stride(array, dim) is None]
    wanted = dict.fromkeys(tuple(coord[position] for position, _ in loose) for coord in coords)
    units = [gcd(*(key[i] for key in wanted)) or 1 for i in range(len(loose))]
    registers: dict[tuple[int, ...], SSAValue] = {}

    def made(key: tuple[int, ...]) -> SSAValue:
        if key not in registers:
            # The address of a place that has one power of two less, if there is one, so that few multiples of a stride are held for the whole kernel
            # (as many as the count of places has digits, not as many as there are places), and no sum waits for many others.
            address, rest = base, key
            if any(key):
                dim = max(i for i, c in enumerate(key) if c)
                steps = key[dim] // units[dim]
                before = (*key[:dim], (steps & (steps - 1)) * units[dim], *key[dim + 1 :])
                if before in wanted:
                    address, rest = made(before), tuple(a - b for a, b in zip(key, before))
            for (_, dim), c in zip(loose, rest):
                address = ctx.add(address, _multiple(ctx, array, dim, c * size))
            registers[key] = address
        return registers[key]

    addresses: list[SSAValue] = []
    offsets: list[int] = []
    for coord in coords:
        addresses.append(made(tuple(coord[position] for position, _ in loose)))
        offsets.append(sum(coord[position] * stride * size for position, stride in fixed))
    return addresses, offsets


def thread_offset(ctx: Context, array: SSAValue, dim: int, layout: TVLayout, position: int, size: int) -> SSAValue:
    """Bytes from the tile's start to the thread's first value along one dimension, b64, in the prologue."""
    coord = ctx.thread_coord(layout, position)
    key = ("offset", coord, ctx.argument_name(array), dim)
    return ctx.once(key, lambda: ctx.mul(ctx.mul(ctx.widen(coord), ctx.stride(array, dim)), size))


def _multiple(ctx: Context, array: SSAValue, dim: int, times: int) -> SSAValue:
    """`times` strides of the array, b64, in the prologue."""
    key = ("strides", ctx.argument_name(array), dim, times)
    return ctx.once(key, lambda: ctx.mul(ctx.stride(array, dim), times))


def _inside(
    ctx: Context,
    array: SSAValue,
    indices: tuple[SSAValue, ...],
    dims: tuple[int, ...],
    layout: TVLayout,
    extents: tuple[int, ...],
    coords: list[tuple[int, ...]],
) -> SSAValue | None:
    """Predicates, one or one for each access, that hold inside the array and the tile."""
    whole: SSAValue | None = None  # what holds for all accesses alike
    for dim, index in enumerate(indices):
        if dim not in dims:
            whole = ctx.both(whole, index_inside(ctx, array, dim, index))
    parts = [
        slice_inside(ctx, array, dim, indices[dim], layout, position, extents[position], coords) for position, dim in enumerate(dims)
    ]
    return combined(ctx, whole, parts)


def slice_inside(
    ctx: Context,
    array: SSAValue,
    dim: int,
    index: SSAValue,
    layout: TVLayout,
    position: int,
    extent: int,
    coords: Sequence[tuple[int, ...]],
) -> list[SSAValue]:
    """For each access, whether it is inside along one dimension that the tile slices."""
    before, after = distances(ctx, array, dim, index, layout, position, extent)
    found: dict[int, SSAValue] = {}
    for coord in coords:
        c = coord[position]
        if c not in found:
            inside = ctx.compare("gt", "s32", after, c)
            found[c] = inside if before is None else ctx.both(inside, ctx.compare("le", "s32", before, c))
    return [found[coord[position]] for coord in coords]


def combined(ctx: Context, whole: SSAValue | None, parts: Sequence[Sequence[SSAValue]]) -> SSAValue | None:
    """What holds for all accesses and for each: one predicate, or one for each access; None where nothing is required."""
    for part in [part for part in parts if len(set(part)) == 1]:
        whole = ctx.both(whole, part[0])
    parts = [part for part in parts if len(set(part)) > 1]
    result = whole
    made: dict[tuple[SSAValue, ...], SSAValue] = {}
    if parts:
        each = []
        for row in zip(*parts):
            if row not in made:
                value = whole
                for predicate in row:
                    value = ctx.both(value, predicate)
                assert value is not None
                made[row] = value
            each.append(made[row])
        result = ctx.concat(each)
    return result


def index_inside(ctx: Context, array: SSAValue, dim: int, index: SSAValue) -> SSAValue | None:
    """Whether an index that the whole block shares is inside the array."""
    value, extent = ctx.get(index), ctx.extent(array, dim)
    inside = ctx.compare("lt", "s64", value, extent)
    return inside if ctx.facts.nonnegative(index) else ctx.both(inside, ctx.compare("ge", "s64", value, 0))


def distances(
    ctx: Context, array: SSAValue, dim: int, index: SSAValue, layout: TVLayout, position: int, extent: int
) -> tuple[SSAValue | None, SSAValue]:
    """(before, after): a value at constant c from the thread's position is inside where before <= c < after; before is None where
    the start cannot be negative. Both are clamped to the tile, so that 32 bits hold them."""
    value = ctx.get(index)
    room = ctx.min_(ctx.sub(ctx.extent(array, dim), value), extent)
    coord = ctx.thread_coord(layout, position)
    after = ctx.sub(ctx.narrow(ctx.max_(room, 0)), coord)
    if ctx.facts.nonnegative(index):
        return None, after
    missing = ctx.narrow(ctx.min_(ctx.max_(ctx.sub(ctx.const(0, "b64"), value), 0), extent))
    return ctx.sub(missing, coord), after


def _scalar_access(ctx: Context, array: SSAValue, indices: tuple[SSAValue, ...]) -> tuple[SSAValue, SSAValue | None]:
    """Address and bound of a single element, the same for all threads."""
    kind = array.type
    assert isinstance(kind, MemRefType)
    offset = ctx.const(0, "b64")
    inside: SSAValue | None = None
    for dim, index in enumerate(indices):
        offset = ctx.add(offset, ctx.mul(ctx.get(index), ctx.stride(array, dim)))
        inside = ctx.both(inside, index_inside(ctx, array, dim, index))
    return ctx.add(ctx.pointer(array), ctx.mul(offset, memory_bytes(kind.element_type))), inside


def load_registers(ctx: Context, kind: Attribute, n: int, access: Access, fill: SSAValue) -> SSAValue:
    """n elements of `kind` (as a tile holds them), `fill` (likewise) where the access is outside."""
    bits = element_bits(kind)
    form = vector_form(bits, access.vector)
    if bits == 1:  # bytes in memory, predicates in registers
        init = ctx.inst("selp.b16", [ctx.const(1, "b16"), ctx.const(0, "b16"), fill], [reg("b16", n)])
        loaded = _load(ctx, form, reg("b16", n), access, init)
        return ctx.inst("setp.ne.s16", [loaded, ctx.const(0, "b16")], [reg("pred", n)])
    if bits == 8 and access.vector < 4:
        return from_one_each(ctx, _load(ctx, form, reg("b16", n), access, one_each(ctx, fill, kind, n)), kind, n)
    if bits == 16 and access.vector == 1:
        loaded = _load(ctx, form, reg("b16", n), access, halves(ctx, fill, n))
        return pack_halves(ctx, loaded, n)
    return _load(ctx, form, fill.type, access, fill)


def _load(ctx: Context, form: str, kind: Attribute, access: Access, init: SSAValue) -> SSAValue:
    if access.inside is None:
        return ctx.inst(f"ld.global.{form}", [access.address], [kind], offsets=access.offsets)
    return ctx.inst(
        f"ld.global.{form}", [access.address], [kind], offsets=access.offsets, guard=access.inside, init=[init]
    )


def store_registers(ctx: Context, kind: Attribute, n: int, access: Access, value: SSAValue) -> None:
    """Writes n elements of `kind` (as a tile holds them) where the access is inside."""
    bits = element_bits(kind)
    form = vector_form(bits, access.vector)
    if bits == 1:
        value = ctx.inst("selp.b16", [ctx.const(1, "b16"), ctx.const(0, "b16"), value], [reg("b16", n)])
    elif bits == 16 and access.vector == 1:
        value = halves(ctx, value, n)
    elif bits == 8 and access.vector < 4:
        value = one_each(ctx, value, kind, n)
    ctx.inst(f"st.global.{form}", [access.address, value], offsets=access.offsets, guard=access.inside)


Tile = tuple[SSAValue, tuple[SSAValue, ...], tuple[int, ...], TVLayout, tuple[int, ...]]
"""(array, starts, the array's dimensions that the tile covers, layout, extents)"""


def _vector(ctx: Context, op: tile.LoadOp | tile.StoreOp, layout: TVLayout, whole: bool) -> int:
    """How many consecutive values one access moves: what memory allows and the layout has side by side."""
    position, width = vector_access(ctx.kernel, ctx.facts, op, whole)
    return 1 if position is None else gcd(width, layout.contiguous(position))


def _tile_inside(ctx: Context, tile_: Tile) -> SSAValue:
    """Whether the whole tile is inside the array: the same for all threads."""
    array, indices, dims, _, extents = tile_
    covered = dict(zip(dims, extents))
    result: SSAValue | None = None
    for dim, index in enumerate(indices):
        end = ctx.add(ctx.get(index), covered.get(dim, 1))
        result = ctx.both(result, ctx.compare("le", "s64", end, ctx.extent(array, dim)))
        if not ctx.facts.nonnegative(index):
            result = ctx.both(result, ctx.compare("ge", "s64", ctx.get(index), 0))
    assert result is not None
    return result


def _accesses(
    ctx: Context,
    op: tile.LoadOp | tile.StoreOp,
    tile_: Tile,
    results: Sequence[RegType],
    move: Callable[[Access], Sequence[SSAValue]],
) -> list[SSAValue]:
    """Lets `move` access the tile. Where a tile that is wholly inside the array allows wider accesses than one that may reach past its edges, both are
    there, and the block decides: inside, wide ones without masks; at an edge, narrow ones under masks."""
    layout, extents = tile_[3], tile_[4]
    narrow, wide = _vector(ctx, op, layout, whole=False), _vector(ctx, op, layout, whole=True)
    if wide <= narrow or layout.shape() != tuple(extents):
        return list(move(plan_access(ctx, *tile_, narrow)))
    return ctx.if_(
        _tile_inside(ctx, tile_),
        lambda: move(plan_access(ctx, *tile_, wide, masked=False)),
        lambda: move(plan_access(ctx, *tile_, narrow)),
        results,
    )


@lowers(tile.LoadOp)
def _load_op(ctx: Context, op: tile.LoadOp) -> None:
    array, indices = op.array, tuple(op.indices)
    kind = array.type.element_type
    check_lowered(ctx, kind, op)
    ctx.order_access(array, "r")
    if not isinstance(op.res.type, TensorType):
        address, inside = _scalar_access(ctx, array, indices)
        fill = ctx.get(op.fill) if op.fill is not None else ctx.const(0, ctx.registers_of(kind).cls)
        ctx.set(op.res, load_registers(ctx, kind, 1, Access(1, address, [0], inside), fill))
        return
    layout = ctx.layout(op.res)
    n = layout.num_values
    tile_ = (array, indices, op.tile_dims(), layout, op.res.type.get_shape())

    def move(access: Access) -> Sequence[SSAValue]:
        return [load_registers(ctx, kind, n, access, fill_registers(ctx, kind, n, op.fill))]

    ctx.set(op.res, _accesses(ctx, op, tile_, [ctx.registers_of(op.res.type)], move)[0])


def fill_registers(ctx: Context, kind: Attribute, n: int, fill: SSAValue | None) -> SSAValue:
    """n copies of a scalar (zero if None), as a tile holds them."""
    per_register = packed(kind, n)
    if fill is None:
        cls = "b32" if per_register > 1 else ctx.registers_of(kind).cls
        return ctx.splat(ctx.const(0, cls), n // per_register)
    value = ctx.get(fill)
    if per_register > 1:
        if (known := ctx.known(value)) is not None:
            several = ctx.const(repeated(known, kind))
        elif per_register == 2:
            several = ctx.inst("mov.b32", [ctx.splat(value, 2)], [reg("b32")])
        else:
            several = ctx.inst("prmt.b32", [ctx.inst("cvt.u32.u16", [value], [reg("b32")]), ctx.const(0), ctx.const(0)], [reg("b32")])
        return ctx.splat(several, n // per_register)
    return ctx.splat(value, n)


@lowers(tile.StoreOp)
def _store_op(ctx: Context, op: tile.StoreOp) -> None:
    array, indices = op.array, tuple(op.indices)
    kind = array.type.element_type
    check_lowered(ctx, kind, op)
    ctx.order_access(array, "w")
    value = ctx.get(op.value)
    if not isinstance(op.value.type, TensorType):
        address, inside = _scalar_access(ctx, array, indices)
        access = Access(1, address, [0], ctx.both(inside, ctx.one_thread()))
        store_registers(ctx, kind, 1, access, value)
        return
    layout = ctx.layout(op.value)
    tile_ = (array, indices, op.tile_dims(), layout, op.value.type.get_shape())

    def move(access: Access) -> Sequence[SSAValue]:
        holder = ctx.first_holder(layout)
        if holder is not None:  # copies are written once
            access = Access(access.vector, access.address, access.offsets, ctx.both(access.inside, holder))
        store_registers(ctx, kind, layout.num_values, access, value)
        return ()

    _accesses(ctx, op, tile_, (), move)
