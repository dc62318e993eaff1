"""Lowering of arithmetic on scalars and tiles: arith, math, tile.cmp, tile.select, tile.cast and constants.

A tile's elementwise op is one fat instruction (or a few) over the thread's registers; a scalar's is the same with one register. The rules
are those of docs/numbers.md: f32 operations round to nearest even and are never contracted, 16-bit floats compute in f32 and round
after each operation, narrow integers compute in 32 bits and keep the low bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import ml_dtypes
import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    BFloat16Type,
    DenseIntOrFPElementsAttr,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects import ptx, tile
from ...dialects.ptx import reg
from ...dialects.tile import element_type
from ...passes.skip_identities import UNLESS_ONE, repeated
from .bounds import both_bounds, place_comparison
from .context import Context, element_bits, lowers
from .elements import (
    any_lane,
    apart,
    check_lowered,
    constant,
    convert,
    from_f32,
    from_int,
    is_double,
    is_float,
    to_f32,
    to_int,
    together,
)

LOG2_E = 0x3FB8AA3B  # f32(log2 e)
LN_2 = 0x3F317218  # f32(ln 2)
CANONICAL_NAN = 0x7FF8000000000000

FLOAT_BINARY: dict[type[Operation], str] = {
    arith.AddfOp: "add.rn.f32",
    arith.SubfOp: "sub.rn.f32",
    arith.MulfOp: "mul.rn.f32",
    arith.DivfOp: "div.rn.f32",
    arith.MaximumfOp: "max.NaN.f32",
    arith.MinimumfOp: "min.NaN.f32",
    arith.MaxnumfOp: "max.f32",
    arith.MinnumfOp: "min.f32",
}
FLOAT_UNARY: dict[type[Operation], tuple[str, ...]] = {
    arith.NegfOp: ("neg.f32",),
    math.AbsFOp: ("abs.f32",),
    math.CeilOp: ("cvt.rpi.f32.f32",),
    math.FloorOp: ("cvt.rmi.f32.f32",),
    math.SqrtOp: ("sqrt.rn.f32",),
    math.RsqrtOp: ("rsqrt.approx.f32",),
    math.Exp2Op: ("ex2.approx.ftz.f32",),
    math.ExpOp: (f"mul.rn.f32 {LOG2_E}", "ex2.approx.ftz.f32"),
    math.Log2Op: ("lg2.approx.f32",),
    math.LogOp: ("lg2.approx.f32", f"mul.rn.f32 {LN_2}"),
    math.TanhOp: ("tanh.approx.f32",),
    math.SinOp: ("sin.approx.f32",),
    math.CosOp: ("cos.approx.f32",),
}
# (mnemonic with {} for the width, whether narrow operands are read as signed)
INT_BINARY: dict[type[Operation], tuple[str, bool]] = {
    arith.AddiOp: ("add.s{}", True),
    arith.SubiOp: ("sub.s{}", True),
    arith.MuliOp: ("mul.lo.s{}", True),
    arith.MaxSIOp: ("max.s{}", True),
    arith.MinSIOp: ("min.s{}", True),
    arith.MaxUIOp: ("max.u{}", False),
    arith.MinUIOp: ("min.u{}", False),
    arith.DivUIOp: ("div.u{}", False),
    arith.RemUIOp: ("rem.u{}", False),
    arith.AndIOp: ("and.b{}", True),
    arith.OrIOp: ("or.b{}", True),
    arith.XOrIOp: ("xor.b{}", True),
}
LOGIC = (arith.AndIOp, arith.OrIOp, arith.XOrIOp)
SHIFTS: dict[type[Operation], tuple[str, bool]] = {
    arith.ShLIOp: ("shl.b{}", True),
    arith.ShRSIOp: ("shr.s{}", True),
    arith.ShRUIOp: ("shr.u{}", False),
}
SIGNED_DIVISIONS = (arith.DivSIOp, arith.RemSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp)
# xDSL's numbering of arith.cmpi and arith.cmpf predicates is MLIR's
CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def count_values(ctx: Context, kind: Attribute) -> int:
    """How many elements of a value of this type a thread holds."""
    return ctx.layout(kind).num_values if isinstance(kind, TensorType) else 1


def _facts(ctx: Context, op: Operation, value: SSAValue) -> tuple[Attribute, int]:
    kind = element_type(value.type)
    check_lowered(ctx, kind, op)
    return kind, count_values(ctx, value.type)


def float_op(ctx: Context, opcode: str, operands: list[SSAValue], n: int) -> SSAValue:
    """One f32 instruction over n values; an opcode may carry a constant second operand, as in "mul.rn.f32 1065353216". Of f64 operands, the
    instruction on f64."""
    opcode, _, extra = opcode.partition(" ")
    if extra:
        operands = [*operands, ctx.const(int(extra))]
    if operands[0].type.cls == "b64":
        return double_op(ctx, opcode.replace(".f32", ".f64"), operands, n)
    return ctx.inst(opcode, operands, [reg("b32", n)])


def double_op(ctx: Context, opcode: str, operands: list[SSAValue], n: int) -> SSAValue:
    """One f64 operation over n values; `max.NaN` and `min.NaN`, which f64 has not, by `max`, `min` and a choice."""
    many = [reg("b64", n)]
    if ".NaN" not in opcode:
        return ctx.inst(opcode, operands, many)
    result = ctx.inst(opcode.replace(".NaN", ""), operands, many)
    numbers = ctx.inst("setp.num.f64", operands, [reg("pred", n)])
    return ctx.inst("selp.b64", [result, ctx.const(CANONICAL_NAN, "b64"), numbers], many)


def to_work(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n floats in the type that their arithmetic is done in: f64, or f32 for all others."""
    return regs if is_double(kind) else to_f32(ctx, regs, kind, n)


def from_work(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n results of arithmetic, rounded once to their type."""
    return regs if is_double(kind) else from_f32(ctx, regs, kind, n)


@lowers(*FLOAT_BINARY)
def _float_binary(ctx: Context, op: Operation) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    operands = [to_work(ctx, ctx.get(operand), kind, n) for operand in op.operands]

    def compute() -> SSAValue:
        return from_work(ctx, float_op(ctx, FLOAT_BINARY[type(op)], operands, n), kind, n)

    usual = op.attributes.get(UNLESS_ONE)
    if isinstance(op, arith.MulfOp) and isinstance(usual, IntegerAttr) and isinstance(kind, Float32Type):
        factors = ctx.get(repeated(op.operands[usual.value.data]))
        ctx.set(op.results[0], _unless_one(ctx, factors, operands[1 - usual.value.data], compute))
        return
    ctx.set(op.results[0], compute())


def _unless_one(ctx: Context, factors: SSAValue, otherwise: SSAValue, compute: Callable[[], SSAValue]) -> SSAValue:
    """`otherwise` in warps in which all factors are one, what `compute` makes in others. (A NaN is unequal to one.)"""
    differs = ctx.compare("neu", "f32", factors, 0x3F800000)
    return ctx.if_(any_lane(ctx, differs), lambda: [compute()], lambda: [otherwise], [otherwise.type])[0]


@lowers(*FLOAT_UNARY)
def _float_unary(ctx: Context, op: Operation) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    value = to_work(ctx, ctx.get(op.operands[0]), kind, n)
    if is_double(kind) and any("approx" in opcode for opcode in FLOAT_UNARY[type(op)]):
        raise ctx.error(op, f"'{op.name}' is not defined on f64", "cast the operand to f32")
    for opcode in FLOAT_UNARY[type(op)]:
        value = float_op(ctx, opcode, [value], n)
    ctx.set(op.results[0], from_work(ctx, value, kind, n))


@lowers(math.FmaOp)
def _fma(ctx: Context, op: math.FmaOp) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    operands = [to_work(ctx, ctx.get(operand), kind, n) for operand in op.operands]
    ctx.set(op.results[0], from_work(ctx, float_op(ctx, "fma.rn.f32", operands, n), kind, n))


def _width(kind: Attribute) -> tuple[int, str]:
    width = 64 if element_bits(kind) == 64 else 32
    return width, f"b{width}"


@lowers(*INT_BINARY)
def _int_binary(ctx: Context, op: Operation) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    mnemonic, signed = INT_BINARY[type(op)]
    left, right = (ctx.get(operand) for operand in op.operands)
    if element_bits(kind) == 1:
        if not isinstance(op, LOGIC):
            raise ctx.error(op, f"{op.name} is not defined on i1", "i1 takes andi, ori, xori, comparison by eq and ne, and select")
        if isinstance(op, arith.AndIOp) and (found := both_bounds(ctx, op)) is not None:
            ctx.set(op.results[0], found)
            return
        ctx.set(op.results[0], ctx.inst(mnemonic.partition(".")[0] + ".pred", [left, right], [reg("pred", n)]))
        return
    if n == 1 and not isinstance(op.results[0].type, TensorType) and (folded := _fold(ctx, op, left, right) or _quotient(ctx, op, left, right)) is not None:
        ctx.set(op.results[0], folded)
        return
    width, cls = _width(kind)
    left, right = (to_int(ctx, value, kind, n, signed) for value in (left, right))
    ctx.set(op.results[0], from_int(ctx, ctx.inst(mnemonic.format(width), [left, right], [reg(cls, n)]), kind, n))


def _quotient(ctx: Context, op: Operation, left: SSAValue, right: SSAValue) -> SSAValue | None:
    """An unsigned quotient of 32 bits whose divisor was there before the block that is being made, as a loop over a grid's points divides by its extents: a multiplication by
    m = ⌊(2³² - 1) / d⌋, computed once where d is, and a correction. (x·m / 2³² lies above x/d - 1, since m·d > 2³² - 1 - d; so its floor is the quotient or one less.) None for
    other operations."""
    maker = right.owner
    if not isinstance(op, arith.DivUIOp) or element_bits(element_type(op.results[0].type)) != 32 or not isinstance(maker, Operation):
        return None
    home = maker.parent
    if home is None or home is ctx.block or ctx.known(right) is not None:
        return None
    inverse = ctx.reciprocals.get(right)
    if inverse is None:
        division = ptx.InstOp.make("div.u32", [ctx.const(-1), right], [reg("b32")])
        division.location = maker.location
        home.insert_op_after(division, maker)
        inverse = ctx.reciprocals[right] = division.results[0]
    low = ctx.inst("mul.hi.u32", [left, inverse], [reg("b32")])
    rest = ctx.sub(left, ctx.mul(low, right))
    return ctx.inst("selp.b32", [ctx.add(low, 1), low, ctx.compare("ge", "u32", rest, right)], [reg("b32")])


def _fold(ctx: Context, op: Operation, left: SSAValue, right: SSAValue) -> SSAValue | None:
    """Scalar sums and products through the context's folding arithmetic."""
    if left.type.cls not in ("b32", "b64"):
        return None
    match op:
        case arith.AddiOp():
            return ctx.add(left, right)
        case arith.SubiOp():
            return ctx.sub(left, right)
        case arith.MuliOp():
            return ctx.mul(left, right)
        case _:
            return None


@lowers(*SHIFTS)
def _shift(ctx: Context, op: Operation) -> None:
    """PTX clamps amounts to the register's width, read as unsigned 32 bits (PTX ISA 9.0 §9.7.8.7): numbers.md N24 for 32 bits; 64-bit amounts are
    clamped here first, and narrow types extend their operands so that what is shifted out is what would be."""
    kind, n = _facts(ctx, op, op.results[0])
    mnemonic, signed = SHIFTS[type(op)]
    width, cls = _width(kind)
    value = to_int(ctx, ctx.get(op.operands[0]), kind, n, signed)
    amount = to_int(ctx, ctx.get(op.operands[1]), kind, n, signed=False)
    if width == 64:
        amount = ctx.inst("min.u64", [amount, ctx.const(64, "b64")], [reg("b64", n)])
        amount = ctx.inst("cvt.u32.u64", [amount], [reg("b32", n)])
    ctx.set(op.results[0], from_int(ctx, ctx.inst(mnemonic.format(width), [value, amount], [reg(cls, n)]), kind, n))


@lowers(*SIGNED_DIVISIONS)
def _signed_division(ctx: Context, op: Operation) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    width, cls = _width(kind)
    many = reg(cls, n)
    left, right = (to_int(ctx, ctx.get(operand), kind, n) for operand in op.operands)
    known = ctx.known(right)
    if known is not None and known > 0 and known & (known - 1) == 0 and n == 1 and width >= 32:
        # ptxas has no strength reduction of divisions: a shift or a mask where they are the same
        nonnegative = not isinstance(op.results[0].type, TensorType) and ctx.facts.nonnegative(op.operands[0])
        shift = ctx.const(known.bit_length() - 1)
        if isinstance(op, arith.FloorDivSIOp) or (nonnegative and isinstance(op, arith.DivSIOp)):
            ctx.set(op.results[0], from_int(ctx, ctx.inst(f"shr.s{width}", [left, shift], [many]), kind, n))
            return
        if isinstance(op, arith.CeilDivSIOp):
            above = ctx.add(left, known - 1)
            ctx.set(op.results[0], from_int(ctx, ctx.inst(f"shr.s{width}", [above, shift], [many]), kind, n))
            return
        if nonnegative and isinstance(op, arith.RemSIOp):
            ctx.set(op.results[0], from_int(ctx, ctx.and_(left, known - 1), kind, n))
            return
    if isinstance(op, arith.RemSIOp):
        result = ctx.inst(f"rem.s{width}", [left, right], [many])
    else:
        result = ctx.inst(f"div.s{width}", [left, right], [many])
        if not isinstance(op, arith.DivSIOp):
            result = _round_division(ctx, op, left, right, result, n)
    ctx.set(op.results[0], from_int(ctx, result, kind, n))


def _round_division(ctx: Context, op: Operation, left: SSAValue, right: SSAValue, quotient: SSAValue, n: int) -> SSAValue:
    """Corrects a quotient that was rounded toward zero: down by one where there is a remainder and the signs differ (floor), or up by one where
    they agree (ceiling)."""
    cls = left.type.cls
    kind, many, zero = f"s{cls[1:]}", reg(cls, n), ctx.const(0, cls)
    product = ctx.inst(f"mul.lo.{kind}", [quotient, right], [many])
    inexact = ctx.inst(f"setp.ne.{kind}", [product, left], [reg("pred", n)])
    signs = ctx.inst(f"xor.{cls}", [left, right], [many])
    floor = isinstance(op, arith.FloorDivSIOp)
    wrong_way = ctx.inst(f"setp.{'lt' if floor else 'ge'}.{kind}", [signs, zero], [reg("pred", n)])
    adjust = ctx.inst("and.pred", [inexact, wrong_way], [reg("pred", n)])
    step = ctx.inst(f"selp.{cls}", [ctx.const(-1 if floor else 1, cls), zero, adjust], [many])
    return ctx.inst(f"add.{kind}", [quotient, step], [many])


@lowers(arith.CeilDivUIOp)
def _ceil_div_unsigned(ctx: Context, op: arith.CeilDivUIOp) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    width, cls = _width(kind)
    many = reg(cls, n)
    left, right = (to_int(ctx, ctx.get(operand), kind, n, signed=False) for operand in op.operands)
    quotient = ctx.inst(f"div.u{width}", [left, right], [many])
    product = ctx.inst(f"mul.lo.u{width}", [quotient, right], [many])
    inexact = ctx.inst(f"setp.ne.s{width}", [product, left], [reg("pred", n)])
    step = ctx.inst(f"selp.{cls}", [ctx.const(1, cls), ctx.const(0, cls), inexact], [many])
    ctx.set(op.results[0], from_int(ctx, ctx.inst(f"add.s{width}", [quotient, step], [many]), kind, n))


@lowers(math.AbsIOp)
def _absi(ctx: Context, op: math.AbsIOp) -> None:
    kind, n = _facts(ctx, op, op.results[0])
    width, cls = _width(kind)
    value = ctx.inst(f"abs.s{width}", [to_int(ctx, ctx.get(op.operands[0]), kind, n)], [reg(cls, n)])
    ctx.set(op.results[0], from_int(ctx, value, kind, n))


def _compare(ctx: Context, op: Operation, predicate: str, lhs: SSAValue, rhs: SSAValue, result: SSAValue) -> None:
    kind, n = _facts(ctx, op, lhs)
    left, right = ctx.get(lhs), ctx.get(rhs)
    many = reg("pred", n)
    if is_float(kind) or is_double(kind):
        left, right = to_work(ctx, left, kind, n), to_work(ctx, right, kind, n)
        special = {"ord": "num", "uno": "nan"}
        name = special.get(predicate) or (predicate[1:] if predicate[0] == "o" else predicate[1:] + "u")
        ctx.set(result, ctx.inst(f"setp.{name}.f{left.type.cls[1:]}", [left, right], [many]))
        return
    if element_bits(kind) == 1:
        if predicate not in ("eq", "ne"):
            raise ctx.error(op, f"{predicate} is not defined on i1", "i1 compares by eq and ne")
        differ = ctx.inst("xor.pred", [left, right], [many])
        ctx.set(result, differ if predicate == "ne" else ctx.inst("not.pred", [differ], [many]))
        return
    signed = predicate[0] != "u"
    width, _ = _width(kind)
    left, right = to_int(ctx, left, kind, n, signed), to_int(ctx, right, kind, n, signed)
    name = predicate if predicate in ("eq", "ne") else predicate[1:]
    ctx.set(result, ctx.inst(f"setp.{name}.{'s' if signed else 'u'}{width}", [left, right], [many]))


@lowers(tile.CmpOp)
def _cmp(ctx: Context, op: tile.CmpOp) -> None:
    if isinstance(op.res.type, TensorType) and (found := place_comparison(ctx, op)) is not None:
        ctx.set(op.res, found)
        return
    _compare(ctx, op, op.predicate.data.value, op.lhs, op.rhs, op.res)


@lowers(arith.CmpiOp)
def _cmpi(ctx: Context, op: arith.CmpiOp) -> None:
    _compare(ctx, op, CMPI[op.predicate.value.data], op.lhs, op.rhs, op.result)


@lowers(arith.CmpfOp)
def _cmpf(ctx: Context, op: arith.CmpfOp) -> None:
    predicate = CMPF[op.predicate.value.data]
    if predicate in ("true", "false"):
        ctx.set(op.result, ctx.const(int(predicate == "true"), "pred"))
    else:
        _compare(ctx, op, predicate, op.lhs, op.rhs, op.result)


@lowers(tile.SelectOp, arith.SelectOp)
def _select(ctx: Context, op: Operation) -> None:
    result = op.results[0]
    kind, n = _facts(ctx, op, result)
    condition, left, right = (ctx.get(operand) for operand in op.operands)
    bits = element_bits(kind)
    if bits == 1:
        many = reg("pred", n)
        chosen = ctx.inst("and.pred", [condition, left], [many])
        inverse = ctx.inst("not.pred", [condition], [many])
        other = ctx.inst("and.pred", [inverse, right], [many])
        ctx.set(result, ctx.inst("or.pred", [chosen, other], [many]))
    else:
        left, right = apart(ctx, left, kind, n), apart(ctx, right, kind, n)
        cls = left.type.cls
        ctx.set(result, together(ctx, ctx.inst(f"selp.{cls}", [left, right, condition], [reg(cls, n)]), kind, n))


@lowers(tile.CastOp)
def _cast(ctx: Context, op: tile.CastOp) -> None:
    source, n = _facts(ctx, op, op.source)
    target, _ = _facts(ctx, op, op.res)
    ctx.set(op.res, convert(ctx, ctx.get(op.source), source, target, n, op.saturate is not None))


@lowers(arith.IndexCastOp)
def _index_cast(ctx: Context, op: arith.IndexCastOp) -> None:
    source, n = _facts(ctx, op, op.operands[0])
    target, _ = _facts(ctx, op, op.results[0])
    ctx.set(op.results[0], convert(ctx, ctx.get(op.operands[0]), source, target, n))


def float_bits(value: float, kind: Attribute) -> int:
    """The bit pattern of a float in its type. `value` is exactly representable there, as xDSL's constants are, or is rounded to nearest even."""
    match kind:
        case Float32Type():
            return struct.unpack("<I", struct.pack("<f", value))[0]
        case Float16Type():
            return struct.unpack("<H", struct.pack("<e", value))[0]
        case Float64Type():
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            return bits - (bits >> 63 << 64)
        case Float8E4M3FNType() | Float8E5M2Type():
            dtype = ml_dtypes.float8_e5m2 if isinstance(kind, Float8E5M2Type) else ml_dtypes.float8_e4m3fn
            largest = float(ml_dtypes.finfo(dtype).max)
            finite = min(max(value, -largest), largest) if np.isfinite(value) else value
            return int(np.asarray(finite, np.float32).astype(dtype).view(np.uint8))
        case BFloat16Type():
            bits = struct.unpack("<I", struct.pack("<f", value))[0]
            if value != value:
                return 0x7FC0
            return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        case _:
            raise TypeError(f"no float type: {kind}")


@lowers(arith.ConstantOp)
def _constant(ctx: Context, op: arith.ConstantOp) -> None:
    value = op.value
    result = op.result
    kind, n = _facts(ctx, op, result)
    match value:
        case IntegerAttr():
            number: float = value.value.data
        case FloatAttr():
            number = value.value.data
        case DenseIntOrFPElementsAttr() if value.is_splat():
            number = value.get_values()[0]
        case _:
            raise ctx.error(op, "a tile constant must have one value everywhere", "build it from tile.iota, or load it from an array")
    bits = float_bits(number, kind) if is_float(kind) or is_double(kind) else int(number)
    if element_bits(kind) == 1:
        bits &= 1
    ctx.set(result, constant(ctx, bits, kind, n))


@lowers(tile.ConstantOp)
def _special_constant(ctx: Context, op: tile.ConstantOp) -> None:
    kind, n = _facts(ctx, op, op.res)
    ctx.set(op.res, constant(ctx, float_bits(op.number, kind), kind, n))


