"""Elements in registers: narrow ones apart and together, and conversions between element types (numbers.md N28 to N31).

Functions here work on `n` values of a thread, in value order, of one element type, held as `context` describes; they do not know
tiles or layouts. A scalar is n = 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BFloat16Type, Float8E4M3FNType, Float8E5M2Type, Float16Type, Float32Type, Float64Type
from xdsl.ir import Attribute, SSAValue

from ...dialects.ptx import reg
from ...dialects.tile_types import is_element, ui8
from .context import Context, element_bits, packed, scalar_class
from .eight_bits import bytes_apart, eight_bits_to_f16, f32_to_eight_bits, together_bytes

SIGN_AND_ALL_BUT_QUIET = 0xFFFF0000
MAX_FINITE = {Float16Type: 0x477FE000, BFloat16Type: 0x7F7F0000, Float32Type: 0x7F7FFFFF}
"""The largest finite number of each type, as f32 bits."""
MAX_F16 = 65504
MAX_DOUBLE = 0x7FEFFFFFFFFFFFFF
"""The largest finite f64, as bits."""


def is_float(kind: Attribute) -> bool:
    """Whether the type is a float that f32 contains, in which its arithmetic is done."""
    return isinstance(kind, Float16Type | BFloat16Type | Float32Type | Float8E4M3FNType | Float8E5M2Type)


def is_double(kind: Attribute) -> bool:
    return isinstance(kind, Float64Type)


def is_eight_bit_float(kind: Attribute) -> bool:
    return isinstance(kind, Float8E4M3FNType | Float8E5M2Type)


def check_lowered(ctx: Context, kind: Attribute, at: object) -> None:
    """Raises TeselaError for an element type that has no lowering."""
    if not is_element(kind):
        raise ctx.error(at, f"elements of type {kind} have no lowering to PTX", "use f64, f32, f16, bf16, 8-bit floats or integers")


def _interleave(n: int) -> list[int]:
    return [index for pair in zip(range(n // 2), range(n // 2, n)) for index in pair]


def halves(ctx: Context, regs: SSAValue, n: int) -> SSAValue:
    """n 16-bit values as b16 registers, one each."""
    return regs if regs.type.cls == "b16" else ctx.inst("mov.b32", [regs], [reg("b16", n)])


def pack_halves(ctx: Context, regs: SSAValue, n: int) -> SSAValue:
    """n b16 registers as a tile holds them: pairs in b32, or a single b16."""
    return regs if n % 2 else ctx.inst("mov.b32", [regs], [reg("b32", n // 2)])


def apart(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n values, each in a register of its own: 16-bit ones in b16, 8-bit ones in b32 with zeros above, others as they are held."""
    bits = element_bits(kind)
    if bits == 16:
        return halves(ctx, regs, n)
    return bytes_apart(ctx, regs, n, signed=False) if bits == 8 else regs


def together(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """What `apart` took apart, as a tile holds it; of 8-bit values in b32 the low byte counts."""
    bits = element_bits(kind)
    if bits == 16:
        return pack_halves(ctx, regs, n)
    if bits != 8:
        return regs
    return together_bytes(ctx, regs, n)


def one_each(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n values, each in a register of the class that a scalar of the type has."""
    if element_bits(kind) == 8:
        return regs if regs.type.cls == "b16" else ctx.inst("cvt.u16.u32", [apart(ctx, regs, kind, n)], [reg("b16", n)])
    return apart(ctx, regs, kind, n)


def from_one_each(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """What `one_each` took apart, as a tile holds it."""
    if element_bits(kind) == 8:
        return together(ctx, ctx.inst("cvt.u32.u8", [regs], [reg("b32", n)]), kind, n) if packed(kind, n) > 1 else regs
    return together(ctx, regs, kind, n)


def pick_values(ctx: Context, regs: SSAValue, kind: Attribute, n: int, indices: Sequence[int]) -> SSAValue:
    """The elements of n values at `indices`, as a tile of `len(indices)` values holds them."""
    width = packed(kind, n)
    if width == packed(kind, len(indices)):
        firsts = indices[::width]
        if all(first % width == 0 for first in firsts) and list(indices) == [first + i for first in firsts for i in range(width)]:
            return ctx.pick(regs, [first // width for first in firsts])
    return together(ctx, ctx.pick(apart(ctx, regs, kind, n), indices), kind, len(indices))


def any_lane(ctx: Context, predicates: SSAValue) -> SSAValue:
    """One predicate, the same in all lanes of a warp: whether any of these holds in any of them."""
    some = ctx.pick(predicates, [0])
    for i in range(1, predicates.type.count):
        some = ctx.inst("or.pred", [some, ctx.pick(predicates, [i])], [reg("pred")])
    return ctx.inst("vote.sync.any.pred", [some, ctx.const(0xFFFFFFFF)], [reg("pred")])


def to_f32(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n floats that f32 contains as f32 in b32, exactly."""
    if isinstance(kind, Float32Type):
        return regs
    if is_eight_bit_float(kind):
        return ctx.inst("cvt.f32.f16", [eight_bits_to_f16(ctx, regs, kind, n)], [reg("b32", n)])
    if isinstance(kind, Float16Type):
        return ctx.inst("cvt.f32.f16", [halves(ctx, regs, n)], [reg("b32", n)])
    assert isinstance(kind, BFloat16Type), "f64 does not go through f32"
    if regs.type.cls == "b16":
        wide = ctx.inst("cvt.u32.u16", [regs], [reg("b32", n)])
        return ctx.inst("shl.b32", [wide, ctx.const(16)], [reg("b32", n)])
    # bf16 is the upper half of an f32: a shift and a mask, no conversion
    low = ctx.inst("shl.b32", [regs, ctx.const(16)], [reg("b32", n // 2)])
    high = ctx.inst("and.b32", [regs, ctx.const(SIGN_AND_ALL_BUT_QUIET)], [reg("b32", n // 2)])
    return ctx.pick(ctx.concat([low, high]), _interleave(n))


def from_f32(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n f32 values rounded once to `kind`, to nearest even."""
    if isinstance(kind, Float32Type):
        return regs
    if is_eight_bit_float(kind):
        return f32_to_eight_bits(ctx, regs, kind, n)
    name = "f16" if isinstance(kind, Float16Type) else "bf16"
    if n % 2:
        return ctx.inst(f"cvt.rn.{name}.f32", [regs], [reg("b16", n)])
    low, high = ctx.pick(regs, range(0, n, 2)), ctx.pick(regs, range(1, n, 2))
    return ctx.inst(f"cvt.rn.{name}x2.f32", [high, low], [reg("b32", n // 2)])


def to_int(ctx: Context, regs: SSAValue, kind: Attribute, n: int, signed: bool = True) -> SSAValue:
    """n integers as 32- or 64-bit ones in b32 or b64; narrower ones are extended."""
    bits = element_bits(kind)
    if bits >= 32:
        return regs
    sign = "s" if signed else "u"
    if bits == 1:
        return ctx.inst("selp.b32", [ctx.const(1), ctx.const(0), regs], [reg("b32", n)])
    if bits == 8:
        return bytes_apart(ctx, regs, n, signed and kind != ui8)
    return ctx.inst(f"cvt.{sign}32.{sign}16", [halves(ctx, regs, n)], [reg("b32", n)])


def from_int(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n integers in b32 or b64 as `kind`: narrowed to the low bits, or with the sign extended to 64 bits."""
    bits = element_bits(kind)
    wide = regs.type.cls == "b64"
    if bits == 64:
        return regs if wide else ctx.inst("cvt.s64.s32", [regs], [reg("b64", n)])
    if wide:
        regs = ctx.inst("cvt.u32.u64", [regs], [reg("b32", n)])
    if bits == 32:
        return regs
    if bits == 1:
        low = ctx.inst("and.b32", [regs, ctx.const(1)], [reg("b32", n)])
        return ctx.inst("setp.ne.s32", [low, ctx.const(0)], [reg("pred", n)])
    if bits == 8:
        return together(ctx, regs, kind, n)
    return pack_halves(ctx, ctx.inst("cvt.u16.u32", [regs], [reg("b16", n)]), n)


def convert(
    ctx: Context, regs: SSAValue, source: Attribute, target: Attribute, n: int, saturate: bool = False
) -> SSAValue:
    """n values of `source` as `target`, by the rules of numbers.md N28 to N31."""
    if source == target and not saturate:
        return regs
    if is_double(source):
        return _from_double(ctx, regs, target, n, saturate)
    if is_float(source):
        wide = to_f32(ctx, regs, source, n)
        if is_double(target):
            double = ctx.inst("cvt.f64.f32", [wide], [reg("b64", n)])
            return _from_double(ctx, double, target, n, saturate) if saturate else double
        if is_float(target):
            return _rounded(ctx, wide, target, n, saturate)
        return _float_to_int(ctx, wide, target, n)
    if is_double(target):
        extended = to_int(ctx, regs, source, n)
        return ctx.inst(f"cvt.rn.f64.s{extended.type.cls[1:]}", [extended], [reg("b64", n)])
    if is_float(target):
        extended = to_int(ctx, regs, source, n)
        if saturate and isinstance(target, Float16Type) and element_bits(source) > 16:
            # The other types reach past the largest integer.
            kind, wide = extended.type.cls, f"s{extended.type.cls[1:]}"
            extended = ctx.inst(f"min.{wide}", [extended, ctx.const(MAX_F16, kind)], [reg(kind, n)])
            extended = ctx.inst(f"max.{wide}", [extended, ctx.const(-MAX_F16, kind)], [reg(kind, n)])
        return _int_to_float(ctx, extended, target, n)
    extended = to_int(ctx, regs, source, n)
    if element_bits(target) == 64 and extended.type.cls == "b32":
        kinds = "cvt.s64.s32" if element_bits(source) != 1 else "cvt.u64.u32"
        return ctx.inst(kinds, [extended], [reg("b64", n)])
    return from_int(ctx, extended, target, n)


def _rounded(ctx: Context, wide: SSAValue, target: Attribute, n: int, saturate: bool) -> SSAValue:
    """f32 values as a float type; the 8-bit ones saturate by themselves."""
    if saturate and not is_eight_bit_float(target):
        limit = MAX_FINITE[type(target)]
        wide = ctx.inst("min.NaN.f32", [wide, ctx.const(limit)], [reg("b32", n)])
        wide = ctx.inst("max.NaN.f32", [wide, ctx.const(limit | 1 << 31)], [reg("b32", n)])
    return from_f32(ctx, wide, target, n)


def _from_double(ctx: Context, regs: SSAValue, target: Attribute, n: int, saturate: bool) -> SSAValue:
    """f64 values as another type; to narrower floats than f32 by way of f32 rounded to odd (see `_int_to_float`)."""
    if is_double(target):
        low = ctx.inst("min.f64", [regs, ctx.const(MAX_DOUBLE, "b64")], [regs.type])
        low = ctx.inst("max.f64", [low, ctx.const(MAX_DOUBLE - (1 << 63), "b64")], [regs.type])
        number = ctx.inst("setp.num.f64", [regs, regs], [reg("pred", n)])
        return ctx.inst("selp.b64", [low, regs, number], [regs.type])
    if is_float(target):
        if isinstance(target, Float32Type):
            return _rounded(ctx, ctx.inst("cvt.rn.f32.f64", [regs], [reg("b32", n)]), target, n, saturate)
        short = ctx.inst("cvt.rz.f32.f64", [regs], [reg("b32", n)])
        back = ctx.inst("cvt.f64.f32", [short], [reg("b64", n)])
        lost = ctx.inst("setp.ne.f64", [back, regs], [reg("pred", n)])
        return _rounded(ctx, _last_bit_set(ctx, short, lost, n), target, n, saturate)
    bits = element_bits(target)
    if bits == 1:
        return ctx.inst("setp.ge.f64", [regs, ctx.const(0x3FF0000000000000, "b64")], [reg("pred", n)])
    width = 64 if bits == 64 else 32
    cls = f"b{width}"
    value = ctx.inst(f"cvt.rzi.s{width}.f64", [regs], [reg(cls, n)])
    number = ctx.inst("setp.num.f64", [regs, regs], [reg("pred", n)])
    value = ctx.inst(f"selp.{cls}", [value, ctx.const(0, cls), number], [reg(cls, n)])
    return value if bits == 64 else _clamped(ctx, value, target, n)


def _clamped(ctx: Context, value: SSAValue, target: Attribute, n: int) -> SSAValue:
    """32-bit integers as ones of at most so many bits, the nearest end where they do not fit."""
    bits = element_bits(target)
    if bits < 32:
        low, high = (0, 255) if target == ui8 else (-(1 << bits - 1), (1 << bits - 1) - 1)
        value = ctx.inst("min.s32", [value, ctx.const(high)], [reg("b32", n)])
        value = ctx.inst("max.s32", [value, ctx.const(low)], [reg("b32", n)])
    return from_int(ctx, value, target, n)


def _float_to_int(ctx: Context, wide: SSAValue, target: Attribute, n: int) -> SSAValue:
    bits = element_bits(target)
    if bits == 1:
        return ctx.inst("setp.ge.f32", [wide, ctx.const(0x3F800000)], [reg("pred", n)])
    if bits == 64:
        value = ctx.inst("cvt.rzi.s64.f32", [wide], [reg("b64", n)])
        number = ctx.inst("setp.num.f32", [wide, wide], [reg("pred", n)])
        return ctx.inst("selp.b64", [value, ctx.const(0, "b64"), number], [reg("b64", n)])
    return _clamped(ctx, ctx.inst("cvt.rzi.s32.f32", [wide], [reg("b32", n)]), target, n)


def _int_to_float(ctx: Context, value: SSAValue, target: Attribute, n: int) -> SSAValue:
    """To floats narrower than f32 through f32 rounded to odd: truncate, and set the last bit where that lost something. A second rounding, to
    nearest, of a number that was rounded to odd with at least two more bits is as one rounding (Boldo and Melquiond 2008)."""
    width = "64" if value.type.cls == "b64" else "32"
    if isinstance(target, Float32Type):
        return ctx.inst(f"cvt.rn.f32.s{width}", [value], [reg("b32", n)])
    short = ctx.inst(f"cvt.rz.f32.s{width}", [value], [reg("b32", n)])
    back = ctx.inst(f"cvt.rzi.s{width}.f32", [short], [reg(value.type.cls, n)])
    lost = ctx.inst(f"setp.ne.s{width}", [back, value], [reg("pred", n)])
    return from_f32(ctx, _last_bit_set(ctx, short, lost, n), target, n)


def _last_bit_set(ctx: Context, value: SSAValue, where: SSAValue, n: int) -> SSAValue:
    last = ctx.inst("selp.b32", [ctx.const(1), ctx.const(0), where], [reg("b32", n)])
    return ctx.inst("or.b32", [value, last], [reg("b32", n)])


def constant(ctx: Context, bits: int, kind: Attribute, n: int) -> SSAValue:
    """n copies of a constant given by its bit pattern in the element type."""
    cls = scalar_class(kind)
    if cls == "pred":
        return ctx.splat(ctx.const(bits & 1, "pred"), n)
    per_register = packed(kind, n)
    if per_register > 1:
        return ctx.splat(ctx.const(repeated(bits, kind)), n // per_register)
    return ctx.splat(ctx.const(bits, cls), n)


def repeated(bits: int, kind: Attribute) -> int:
    """The bit pattern of a register that holds one element of 8 or 16 bits several times, as a signed number."""
    width = element_bits(kind)
    pattern = sum((bits & (1 << width) - 1) << at for at in range(0, 32, width))
    return pattern - (pattern >> 31 << 32)
