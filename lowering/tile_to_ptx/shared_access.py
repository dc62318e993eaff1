"""Addresses in shared memory: where a thread's values of a register tile lie in a buffer with a layout.

An element at coordinates c lies at swizzle(Σ digit·stride) from the buffer's start. For a thread, c = t + v: t depends on the thread alone, v on
the value alone. Where t and v occupy different bits of every coordinate, nothing carries, and the offset before the swizzle is the sum of
the two parts, x + y. A swizzle XORs higher bits of an offset onto lower ones, within aligned blocks of its period P. Where the bits of
x and y below P are different too, it may be taken apart:

    swizzle(x + y) = (swizzle(x) ^ swizzle(y mod P)) + (y - y mod P)

So a thread computes swizzle(x) once; each distinct XOR constant costs two instructions (the XOR, and adding the buffer's address), and all the
rest is an immediate offset. Of the constant, bits that no thread's swizzle(x) has are added as an offset too. Example: rows of 64 bf16, swizzle
of 128 bytes, ldmatrix: x is the lane's row and chunk; steps along K are XORs of 32, 64, 96 bytes, steps of 16 rows offsets of 2048.

Where bits overlap (a tile of odd extents), each address is computed from its coordinates at run time: more instructions, the same values.

**Matrices.** What ldmatrix and stmatrix can move (`passes/matrix_access.py`) has a layout of *addresses*, in which a lane is a row of a matrix, and this
file treats it as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd
from operator import or_

from xdsl.ir import SSAValue

from ...dialects.layout import Mode, SharedLayout, TVLayout
from ...dialects.ptx import reg
from ...passes.access import vector_form
from ...passes.matrix_access import access_vector, buffer_access, matrix_form
from ...passes.traded_stores import Trade
from .context import Context
from .eight_bits import bytes_apart, together_bytes

Coords = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """Accesses of a thread to a buffer: at `address` (one register, or one for each access) plus `offsets` bytes, where `inside` holds (None:
    everywhere)."""

    address: SSAValue
    offsets: list[int]
    inside: SSAValue | None

    def part(self, ctx: Context, which: range) -> SharedAccess:
        """Those accesses alone."""
        address, inside = (
            ctx.pick(registers, which) if registers is not None and registers.type.count > 1 else registers
            for registers in (self.address, self.inside)
        )
        assert address is not None
        return SharedAccess(address, [self.offsets[i] for i in which], inside)


def plan_shared(
    ctx: Context,
    base: SSAValue,
    shared: SharedLayout,
    size: int,
    layout: TVLayout,
    vector: int,
    extents: Sequence[int],
) -> SharedAccess:
    """The accesses to the buffer at shared address `base`: `vector` values each of a tile held in `layout`, of `size` bytes an element. Values at
    or past `extents` are not inside."""
    coords = tuple(layout.value_coords(value) for value in range(0, layout.num_values, vector))
    plan = _linear_plan(shared, size, layout.thread, coords)
    addresses: list[SSAValue] = []
    offsets: list[int] = []
    if plan is not None:
        thread = ctx.once(("shared offset", shared, size, layout.thread), lambda: _thread_offset(ctx, plan))
        for flip, offset in plan.values:
            if ctx.target.has_wgmma:  # whose kernels read operands from shared memory without addresses, and need registers more
                addresses.append(ctx.add(base, ctx.xor(thread, flip)))
            else:
                addresses.append(_address(ctx, base, ctx.once(("flip", thread, flip), lambda: ctx.xor(thread, flip))))  # noqa: B023
            offsets.append(offset)
    else:
        for coord in coords:
            key = ("shared element", shared, size, layout.thread, coord)
            offset = ctx.once(key, lambda: _element_offset(ctx, shared, size, layout, coord))  # noqa: B023
            addresses.append(_address(ctx, base, offset))
            offsets.append(0)
    address = addresses[0] if len(set(addresses)) == 1 else ctx.concat(addresses)
    return SharedAccess(address, offsets, _inside(ctx, layout, coords, extents))


def _address(ctx: Context, base: SSAValue, offset: SSAValue) -> SSAValue:
    """base + offset; in the prologue if the base is a constant address, which is known there."""
    if ctx.is_static(base):
        return ctx.once_static(("shared sum", base, offset), lambda: ctx.add(base, offset))
    return ctx.add(base, offset)


def _inside(ctx: Context, layout: TVLayout, coords: Sequence[Coords], extents: Sequence[int]) -> SSAValue | None:
    """Predicates, one for each access, that hold where it is inside `extents`; None if all are for all threads."""
    parts: list[list[SSAValue]] = []
    for dim, (reach, extent) in enumerate(zip(layout.shape(), extents, strict=True)):
        if reach <= extent:
            continue
        at = ctx.thread_coord(layout, dim)
        found = {}
        for coord in coords:
            room = extent - coord[dim]
            if room not in found:
                found[room] = ctx.once(("inside", at, room), lambda: ctx.compare("lt", "s32", at, room))  # noqa: B023
        parts.append([found[extent - coord[dim]] for coord in coords])
    if not parts:
        return None
    each = [reduce(lambda a, b: ctx.both(a, b), row) for row in zip(*parts, strict=True)]
    return each[0] if len(set(each)) == 1 else ctx.concat(each)


# ---- the linear case ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """`digits`: (weight, extent, bytes) of the thread index whose sum, swizzled by `swizzle` = (shift, mask), is the thread's offset;
    `values`: for each access the XOR constant and the offset."""

    digits: tuple[tuple[int, int, int], ...]
    swizzle: tuple[int, int] | None
    values: tuple[tuple[int, int], ...]


@lru_cache(maxsize=1024)
def _linear_plan(shared: SharedLayout, size: int, thread: tuple[Mode, ...], coords: tuple[Coords, ...]) -> _Plan | None:
    """The plan where thread and value parts use different bits, as the module's docstring says; None otherwise."""
    shared = shared.normalized()
    for digits in shared.modes:
        if any(extent & (extent - 1) for extent, _ in digits[:-1]):
            return None
    bits: list[tuple[int, Coords]] = []
    weight = 1
    for mode in thread:
        if mode.extent & (mode.extent - 1) and mode is not thread[-1]:
            return None
        for i in range((mode.extent - 1).bit_length()):
            bits.append((weight << i, tuple(stride << i for stride in mode.stride)))
        weight *= mode.extent
    used = [0] * shared.rank
    for _, step in bits:
        for d, s in enumerate(step):
            if used[d] & s:
                return None
            used[d] |= s
    if any(used[d] & c for coord in coords for d, c in enumerate(coord)):
        return None

    swizzle = None
    period = size
    if shared.swizzle is not None:
        s = shared.swizzle
        if s.shift < 0:
            return None
        base = s.base + size.bit_length() - 1
        swizzle = (s.shift, ((1 << s.bits) - 1) << base)
        period = s.period * size

    def swizzled(offset: int) -> int:
        return offset ^ ((offset >> swizzle[0]) & swizzle[1]) if swizzle else offset

    offsets = [(w, _linear(shared, step) * size) for w, step in bits]
    low = 0
    for _, offset in offsets:
        if low & (offset % period):
            return None
        low |= offset % period
    have = reduce(or_, (swizzled(offset % period) for _, offset in offsets), 0)
    values = []
    for coord in coords:
        offset = _linear(shared, coord) * size
        if low & (offset % period):
            return None
        flip = swizzled(offset % period)
        values.append((flip & have, (flip & ~have) + offset - offset % period))

    merged: list[tuple[int, int, int]] = []
    for w, offset in offsets:
        if not offset:
            continue
        if merged and (last := merged[-1]) and w == last[0] * last[1] and offset == last[1] * last[2]:
            merged[-1] = (last[0], 2 * last[1], last[2])
        else:
            merged.append((w, 2, offset))
    return _Plan(tuple(merged), swizzle, tuple(values))


def _linear(shared: SharedLayout, coords: Coords) -> int:
    """The offset before the swizzle, in elements; coordinates may go past the last digit's extent."""
    offset = 0
    for at, digits in zip(coords, shared.modes, strict=True):
        for extent, stride in digits[:-1]:
            at, digit = divmod(at, extent)
            offset += digit * stride
        if digits:
            offset += at * digits[-1][1]
    return offset


def _thread_offset(ctx: Context, plan: _Plan) -> SSAValue:
    total = ctx.const(0)
    for weight, extent, step in plan.digits:
        total = ctx.add(total, ctx.mul(ctx.thread_digit(weight, extent), step))
    return _swizzle(ctx, total, plan.swizzle)


def _swizzle(ctx: Context, offset: SSAValue, swizzle: tuple[int, int] | None) -> SSAValue:
    return ctx.xor(offset, ctx.and_(ctx.shr(offset, swizzle[0]), swizzle[1])) if swizzle else offset


# ---- the general case -----------------------------------------------------------------------------------------------


def _element_offset(ctx: Context, shared: SharedLayout, size: int, layout: TVLayout, coord: Coords) -> SSAValue:
    """Bytes from the buffer's start to the element `coord` away from the thread's first, computed digit by digit."""
    shared = shared.normalized()
    total = ctx.const(0)
    for dim, digits in enumerate(shared.modes):
        at = ctx.add(ctx.thread_coord(layout, dim), coord[dim])
        for i, (extent, stride) in enumerate(digits):
            if i == len(digits) - 1:
                digit = at
            elif extent & (extent - 1):
                raise ctx.error(None, f"the shared layout {shared} has a digit of extent {extent}, which is no power of two")
            else:
                digit, at = ctx.and_(at, extent - 1), ctx.shr(at, extent.bit_length() - 1)
            total = ctx.add(total, ctx.mul(digit, stride * size))
    if shared.swizzle is None:
        return total
    s = shared.swizzle
    if s.shift < 0:
        raise ctx.error(None, f"the shared layout {shared} swizzles upwards", "use a swizzle with a positive shift")
    return _swizzle(ctx, total, (s.shift, ((1 << s.bits) - 1) << (s.base + size.bit_length() - 1)))


# ---- moving tiles ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TileRead:
    """How a tile of elements of `size` bytes is read from a buffer: `count` instructions of `values` consecutive values each."""

    access: SharedAccess
    opcode: str
    count: int
    values: int
    size: int

    @property
    def whole_registers(self) -> bool:
        """Whether an instruction fills whole registers."""
        return self.values * self.size >= 4

    def emit(self, ctx: Context, which: Sequence[int] | None = None) -> SSAValue:
        """The registers of some of the instructions (all by default), in the order given, as a tile holds them; zeros where an access is outside."""
        access = self.access
        chosen = range(self.count) if which is None else which
        n = len(chosen) * self.values
        address = access.address
        if which is not None and address.type.count > 1:
            address = ctx.pick(address, which)
        offsets = [access.offsets[i] for i in chosen]
        kind = reg("b64", n) if self.size == 8 else reg("b32", n * self.size // 4) if self.whole_registers else reg("b16", n)
        if access.inside is None:
            result = ctx.inst(self.opcode, [address], [kind], offsets=offsets)
        else:
            inside = ctx.pick(access.inside, which) if which is not None and access.inside.type.count > 1 else access.inside
            zero = ctx.splat(ctx.const(0, kind.cls), kind.count)
            result = ctx.inst(self.opcode, [address], [kind], offsets=offsets, guard=inside, init=[zero])
        if self.whole_registers or n * self.size % 4:
            return result
        if self.size == 2:
            return ctx.inst("mov.b32", [result], [reg("b32", n // 2)])
        return together_bytes(ctx, ctx.inst("cvt.u32.u8", [result], [reg("b32", n)]), n)


def plan_read(ctx: Context, base: SSAValue, shared: SharedLayout, layout: TVLayout, size: int) -> TileRead:
    """How a tile of elements of `size` bytes is read from the buffer at shared address `base` into registers held in `layout`; zeros past the
    buffer's extents."""
    n = layout.num_values
    form = matrix_form(layout, shared, size)
    if form is not None:
        access = plan_shared(ctx, base, shared, size, form.layout, 1, form.layout.shape())
        values = 4 // size * form.count
        return TileRead(access, form.opcode("ldmatrix"), n // values, values, size)
    vector = access_vector(layout, shared, shared.shape(), size)
    access = plan_shared(ctx, base, shared, size, layout, vector, shared.shape())
    return TileRead(access, f"ld.shared.{vector_form(8 * size, vector)}", n // vector, vector, size)


def write_tile(
    ctx: Context,
    base: SSAValue,
    shared: SharedLayout,
    layout: TVLayout,
    extents: Sequence[int],
    value: SSAValue,
    guard: SSAValue | None = None,
    size: int = 2,
    part: range | None = None,
) -> None:
    """A tile of elements of `size` bytes from registers into a buffer, without what lies at or past `extents`; where `guard` holds. Of a `part` of the
    thread's values, whole words each, `value` holds no others."""
    if part is not None:
        vector = gcd(access_vector(layout, shared, extents, size), len(part), part.start or len(part))
        access = plan_shared(ctx, base, shared, size, layout, vector, extents)
        _store_values(ctx, access.part(ctx, range(part.start // vector, part.stop // vector)), value, len(part), vector, size, guard)
        return
    n = layout.num_values
    form = matrix_form(layout, shared, size) if ctx.target.compute_capability >= (9, 0) else None
    if form is not None and all(reach <= extent for reach, extent in zip(layout.shape(), extents, strict=True)):
        access = plan_shared(ctx, base, shared, size, form.layout, 1, form.layout.shape())
        ctx.inst(form.opcode("stmatrix"), [access.address, value], offsets=access.offsets, guard=guard)
        return
    vector = access_vector(layout, shared, extents, size)
    access = plan_shared(ctx, base, shared, size, layout, vector, extents)
    planned = buffer_access(layout, shared, size, False, False)
    if planned.trade is not None and access.inside is None and planned.count == len(access.offsets):
        access, value = _traded(ctx, access, value, planned.trade, vector)
    _store_values(ctx, access, value, n, vector, size, guard)


def _store_values(ctx: Context, access: SharedAccess, value: SSAValue, n: int, vector: int, size: int, guard: SSAValue | None) -> None:
    if vector * size < 4 and value.type.cls == "b32":
        if size == 2:
            value = ctx.inst("mov.b32", [value], [reg("b16", n)])
        else:
            value = ctx.inst("cvt.u16.u32", [bytes_apart(ctx, value, n, signed=False)], [reg("b16", n)])
    ctx.inst(f"st.shared.{vector_form(8 * size, vector)}", [access.address, value], offsets=access.offsets, guard=ctx.both(access.inside, guard))


def _traded(ctx: Context, access: SharedAccess, value: SSAValue, trade: Trade, vector: int) -> tuple[SharedAccess, SSAValue]:
    """The same stores, some lanes taking two of them in the other order: addresses and registers are selected by the lane."""
    count = len(access.offsets)
    step, width = trade.values // vector, value.type.count // count
    pairs = [(a, a + step) for a in range(count) if not a & step]
    swaps = ctx.once(("trade", trade.lanes), lambda: ctx.compare("ne", "s32", ctx.thread_digit(trade.lanes, 2), 0))

    def registers(which: Sequence[int]) -> SSAValue:
        return ctx.pick(value, [a * width + i for a in which for i in range(width)])

    def address(which: int) -> SSAValue:
        return ctx.pick(access.address, [which]) if access.address.type.count > 1 else access.address

    lower, upper = (registers([pair[end] for pair in pairs]) for end in (0, 1))
    first = ctx.inst(f"selp.{value.type.cls}", [upper, lower, swaps], [lower.type])
    second = ctx.inst(f"selp.{value.type.cls}", [lower, upper, swaps], [upper.type])
    known: dict[tuple[SSAValue, SSAValue, int], SSAValue] = {}

    def chosen(own: int, other: int) -> SSAValue:
        """The address that, with `own`'s offset, is `other`'s in lanes that swap."""
        mine, theirs, more = address(own), address(other), access.offsets[other] - access.offsets[own]
        if (mine, theirs, more) not in known:
            known[mine, theirs, more] = ctx.inst("selp.b32", [ctx.add(theirs, more), mine, swaps], [reg("b32")])
        return known[mine, theirs, more]

    addresses = [chosen(a, b) for a, b in pairs] + [chosen(b, a) for a, b in pairs]
    offsets = [access.offsets[pair[end]] for end in (0, 1) for pair in pairs]
    return SharedAccess(ctx.concat(addresses), offsets, None), ctx.concat([first, second])
