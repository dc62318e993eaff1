"""8-bit elements in registers: bytes apart and together; 8-bit floats to f16, which contains both of them, and from f32, rounded once and saturating (numbers.md N28).

From sm_90 on `cvt` does it. Below, integer instructions do (`cvt` of these types came with sm_89):

- e5m2 is the upper byte of an f16.
- e4m3, shifted so that its exponent and mantissa lie where f16 has its own, is 2⁻⁸ times the number, subnormals too, since both count in
  the same steps there: a product with 256. Only 0x7f, its NaN, must be put in by hand.
- A normal f32 is rounded by adding half a unit less one, and one if the last bit that stays is odd; a number below the smallest normal one by
  adding the power of two whose last bit is the smallest subnormal one.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import Float8E5M2Type
from xdsl.ir import Attribute, SSAValue

from ...dialects.ptx import reg
from .context import Context

NATIVE = (9, 0)
"""The compute capability from which the table has `cvt` of 8-bit floats."""


@dataclass(frozen=True, slots=True)
class _Format:
    """An 8-bit float for rounding: bits of the mantissa, exponent bias; as f32 bits its largest number, its smallest normal one, and the power of
    two whose unit in the last place is its smallest subnormal number (OCP 8-bit Floating Point Specification)."""

    mantissa: int
    bias: int
    largest: int
    least_normal: int
    magic: int


E4M3 = _Format(3, 7, 0x43E00000, 0x3C800000, 0x46800000)
E5M2 = _Format(2, 15, 0x47600000, 0x38800000, 0x43000000)
NAN = 0x7F


def _is_e5m2(kind: Attribute) -> bool:
    return isinstance(kind, Float8E5M2Type)


def _native(ctx: Context) -> bool:
    return ctx.target.compute_capability >= NATIVE


def eight_bits_to_f16(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n 8-bit floats, as a tile holds them, as f16 in b16."""
    if n % 4 == 0:
        return ctx.inst("mov.b32", [to_f16_pairs(ctx, regs, kind)], [reg("b16", n)])
    wide = ctx.inst("cvt.u32.u16", [regs], [reg("b32", n)])
    pairs = to_f16_pairs(ctx, wide, kind)
    return ctx.inst("cvt.u16.u32", [ctx.pick(pairs, range(0, 2 * n, 2))], [reg("b16", n)])


def to_f16_pairs(ctx: Context, regs: SSAValue, kind: Attribute) -> SSAValue:
    """Registers of four 8-bit floats as twice as many of two f16 each, in order."""
    count = regs.type.count
    if _native(ctx):
        name = "e5m2" if _is_e5m2(kind) else "e4m3"
        return ctx.inst(f"cvt.rn.f16x2.{name}x2", [ctx.inst("mov.b32", [regs], [reg("b16", 2 * count)])], [reg("b32", 2 * count)])
    many = [reg("b32", count)]
    pairs = [ctx.inst("prmt.b32", [regs, ctx.const(0), ctx.const(which)], many) for which in (0x1404, 0x3424)]  # each byte the upper one of 16 bits
    both = ctx.pick(ctx.concat(pairs), [i % 2 * count + i // 2 for i in range(2 * count)])
    if _is_e5m2(kind):
        return both
    many = [reg("b32", 2 * count)]
    sign = ctx.inst("and.b32", [both, ctx.const(-0x7FFF8000)], many)
    rest = ctx.inst("and.b32", [both, ctx.const(0x7F007F00)], many)
    rest = ctx.inst("shr.u32", [rest, ctx.const(1)], many)
    value = ctx.inst("mul.rn.f16x2", [rest, ctx.splat(ctx.const(0x5C005C00), 2 * count)], many)
    carry = ctx.inst("add.s32", [rest, ctx.const(0x00800080)], many)  # 0x7f alone carries into bit 14
    carry = ctx.inst("and.b32", [carry, ctx.const(0x40004000)], many)
    lower = ctx.inst("sub.s32", [carry, ctx.inst("shr.u32", [carry, ctx.const(5)], many)], many)
    nan = ctx.inst("or.b32", [carry, lower], many)
    return ctx.inst("or.b32", [ctx.inst("or.b32", [value, nan], many), sign], many)


def f32_to_eight_bits(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n f32 values as 8-bit floats, as a tile holds them."""
    if _native(ctx):
        opcode = f"cvt.rn.satfinite.{'e5m2' if _is_e5m2(kind) else 'e4m3'}x2.f32"
        if n % 4:
            return ctx.inst(opcode, [ctx.const(0), regs], [reg("b16", n)])
        low, high = ctx.pick(regs, range(0, n, 2)), ctx.pick(regs, range(1, n, 2))
        return ctx.inst("mov.b32", [ctx.inst(opcode, [high, low], [reg("b16", n // 2)])], [reg("b32", n // 4)])
    form = E5M2 if _is_e5m2(kind) else E4M3
    many, shift = [reg("b32", n)], ctx.const(23 - form.mantissa)
    size = ctx.inst("min.f32", [ctx.inst("abs.f32", [regs], many), ctx.const(form.largest)], many)
    odd = ctx.inst("and.b32", [ctx.inst("shr.u32", [size, shift], many), ctx.const(1)], many)
    normal = ctx.inst("add.s32", [ctx.inst("add.s32", [size, ctx.const((1 << 22 - form.mantissa) - 1)], many), odd], many)
    normal = ctx.inst("shr.u32", [normal, shift], many)
    normal = ctx.inst("sub.s32", [normal, ctx.const(127 - form.bias << form.mantissa)], many)
    small = ctx.inst("add.rn.f32", [size, ctx.const(form.magic)], many)
    small = ctx.inst("sub.s32", [small, ctx.const(form.magic)], many)
    preds = [reg("pred", n)]
    value = ctx.inst("selp.b32", [small, normal, ctx.inst("setp.lt.f32", [size, ctx.const(form.least_normal)], preds)], many)
    value = ctx.inst("selp.b32", [value, ctx.const(NAN), ctx.inst("setp.num.f32", [regs, regs], preds)], many)
    sign = ctx.inst("and.b32", [ctx.inst("shr.u32", [regs, ctx.const(24)], many), ctx.const(0x80)], many)
    return together_bytes(ctx, ctx.inst("or.b32", [value, sign], many), n)


def together_bytes(ctx: Context, regs: SSAValue, n: int) -> SSAValue:
    """The low bytes of n b32 registers, as a tile of 8-bit elements holds them."""
    if n % 4:
        return ctx.inst("cvt.u16.u32", [regs], [reg("b16", n)])
    first, second, third, fourth = (ctx.pick(regs, range(i, n, 4)) for i in range(4))
    quarter = [reg("b32", n // 4)]
    low = ctx.inst("prmt.b32", [first, second, ctx.const(0x0040)], quarter)
    high = ctx.inst("prmt.b32", [third, fourth, ctx.const(0x0040)], quarter)
    return ctx.inst("prmt.b32", [low, high, ctx.const(0x5410)], quarter)


def bytes_apart(ctx: Context, regs: SSAValue, n: int, signed: bool) -> SSAValue:
    """n 8-bit values extended to b32."""
    sign = "s" if signed else "u"
    if n % 4:
        return ctx.inst(f"cvt.{sign}32.{sign}8", [regs], [reg("b32", n)])
    quarter = [reg("b32", n // 4)]
    parts = [ctx.inst(f"bfe.{sign}32", [regs, ctx.const(8 * i), ctx.const(8)], quarter) for i in range(4)]
    return ctx.pick(ctx.concat(parts), [i % 4 * (n // 4) + i // 4 for i in range(n)])
