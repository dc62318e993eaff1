"""Meanings of integer, logic, shift, bit and comparison instructions (PTX ISA 9.0 §9.7.1, §9.7.2, §9.7.6 to §9.7.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Pair
from .decode import TYPE_SIZE, TYPE_VIEW, VIEWS, Action, Form, meaning
from .numbers import decode, flush_f32
from .selection import Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]

_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def bits_of(type: str) -> int:
    return 8 * TYPE_SIZE[type]


def is_integer(type: str) -> bool:
    return type[0] in "usb" and type[1:].isdigit()


def saturated(value: Array, type: str) -> Array:
    """int64 values clamped to the range of a signed 32-bit type (.sat, §9.7.1.1)."""
    return np.clip(value, -(1 << 31), (1 << 31) - 1).astype(np.int32) if type == "s32" else value


def add(a: Array, b: Array) -> Array:
    return a + b


def sub(a: Array, b: Array) -> Array:
    return a - b


def multiply_high(a: Array, b: Array, type: str) -> Array:
    """The upper half of the full product."""
    bits = bits_of(type)
    if bits < 64:
        wide = np.int64 if type[0] == "s" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
    ua, ub = a.astype(np.uint64), b.astype(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = ua & low, ua >> half, ub & low, ub >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (other >> half)
    if type[0] == "s":
        zero = np.uint64(0)
        high = high - np.where(a < 0, ub, zero) - np.where(b < 0, ua, zero)
    return high.astype(a.dtype)


def multiply(form: Form, type: str) -> tuple[Callable[[Array, Array], Array], str]:
    """(function, result type) of mul and mad with .lo, .hi or .wide."""
    if form.has("wide"):
        wide = _WIDE[type]
        dtype = VIEWS[wide][1]
        return lambda a, b: a.astype(dtype) * b.astype(dtype), wide
    if form.has("hi"):
        return lambda a, b: multiply_high(a, b, type), type
    return lambda a, b: a * b, type


def divide(a: Array, b: Array) -> Array:
    """Quotient towards zero; by zero all ones, as on the hardware (the ISA leaves it open, §9.7.1.7)."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        result = a // safe
    else:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        magnitude = np.abs(a).astype(unsigned) // np.abs(safe).astype(unsigned)
        result = np.where((a < 0) != (safe < 0), unsigned.type(0) - magnitude, magnitude).astype(a.dtype)
    return np.where(zero, np.array(-1).astype(a.dtype), result)


def remainder(a: Array, b: Array) -> Array:
    """a - divide(a, b) * b, with the sign of the dividend; all ones for a zero divisor (measured on an H200; the ISA leaves it open)."""
    return np.where(b == 0, np.array(-1).astype(a.dtype), a - divide(a, b) * b)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "div": divide,
    "rem": remainder,
    "min": np.minimum,
    "max": np.maximum,
}


def integer_binary(form: Form) -> Action:
    """add, sub, mul, div, rem, min, max of an integer type."""
    name, type = form.words[0], form.type
    if name in ("add", "sub"):
        if form.has("sat"):
            sign = 1 if name == "add" else -1
            return form.elementwise(
                lambda a, b: saturated(a.astype(np.int64) + sign * b.astype(np.int64), type), type, type, type
            )
        return form.elementwise(add if name == "add" else sub, type, type, type)
    if name == "mul":
        function, result = multiply(form, type)
        return form.elementwise(function, result, type, type)
    return form.elementwise(_BINARY[name], type, type, type)


@meaning("rem")
def rem(form: Form) -> Action:
    return integer_binary(form)


@meaning("mad")
def mad(form: Form) -> Action:
    type = form.type
    function, result = multiply(form, type)
    if form.has("sat"):
        return form.elementwise(
            lambda a, b, c: saturated(multiply_high(a, b, type).astype(np.int64) + c, type), type, type, type, type
        )
    return form.elementwise(lambda a, b, c: function(a, b) + c, result, type, type, result)


def integer_unary(form: Form) -> Action:
    """abs, neg of a signed type; the most negative number stays."""
    function = np.abs if form.words[0] == "abs" else np.negative
    return form.elementwise(function, form.type, form.type)


# Logic and shifts

_LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@meaning("and", "or", "xor")
def logic(form: Form) -> Action:
    return form.elementwise(_LOGIC[form.words[0]], form.type, form.type, form.type)


@meaning("not")
def complement(form: Form) -> Action:
    return form.elementwise(np.invert, form.type, form.type)


@meaning("shl")
def shift_left(form: Form) -> Action:
    """Amounts past the width give zero (§9.7.8.7)."""
    bits = bits_of(form.type)

    def function(a: Array, n: Array) -> Array:
        return np.where(n >= bits, a.dtype.type(0), a << np.minimum(n, bits - 1).astype(a.dtype))

    return form.elementwise(function, form.type, form.type, "u32")


@meaning("shr")
def shift_right(form: Form) -> Action:
    """Amounts past the width count as the width: zero, or the sign for signed types (§9.7.8.8)."""
    bits = bits_of(form.type)

    def function(a: Array, n: Array) -> Array:
        if a.dtype.kind == "i":
            return a >> np.minimum(n, bits - 1).astype(a.dtype)
        return np.where(n >= bits, a.dtype.type(0), a >> np.minimum(n, bits - 1).astype(a.dtype))

    return form.elementwise(function, form.type, form.type, "u32")


@meaning("shf")
def funnel_shift(form: Form) -> Action:
    left, wrap = form.has("l"), form.has("wrap")

    def function(a: Array, b: Array, c: Array) -> Array:
        n = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        if left:
            return np.where(n == 32, a, ((both << n) >> np.uint64(32)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        return ((both >> n) & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return form.elementwise(function, "b32", "b32", "b32", "b32")


@meaning("lop3", same=(4,))
def lop3(form: Form) -> Action:
    """Any function of three bits: bit 4a + 2b + c of the table is its value (§9.7.8.6)."""
    table = form.immediate(4)

    def function(a: Array, b: Array, c: Array) -> Array:
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
        result = np.zeros(shape, np.uint32)
        for term in range(8):
            if table >> term & 1:
                result |= (a if term & 4 else ~a) & (b if term & 2 else ~b) & (c if term & 1 else ~c)
        return result

    put, gets = form.target(0, "b32"), [form.source(k, "b32") for k in (1, 2, 3)]
    return lambda m, sel: put(m, sel, function(*(get(m, sel) for get in gets)))


_PRMT_MODES = {
    "f4e": [0x3210, 0x4321, 0x5432, 0x6543],
    "b4e": [0x5670, 0x6701, 0x7012, 0x0123],
    "rc8": [0x0000, 0x1111, 0x2222, 0x3333],
    "ecl": [0x3210, 0x3211, 0x3222, 0x3333],
    "ecr": [0x0000, 0x1110, 0x2210, 0x3210],
    "rc16": [0x1010, 0x3232, 0x1010, 0x3232],
}


@meaning("prmt")
def permute_bytes(form: Form) -> Action:
    """Each nibble of the selector names one of the eight bytes {b, a}; its bit 3 replicates that byte's sign (§9.7.9.7)."""
    mode = form.pick(tuple(_PRMT_MODES))
    selectors = np.array(_PRMT_MODES[mode], np.uint32) if mode else None

    def function(a: Array, b: Array, c: Array) -> Array:
        if selectors is not None:
            c = selectors[c & np.uint32(3)]
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        result = np.zeros(np.broadcast_shapes(both.shape, c.shape), np.uint32)
        for byte in range(4):
            nibble = (c >> np.uint32(4 * byte)) & np.uint32(15)
            picked = ((both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)).astype(
                np.uint32
            )
            sign = np.where(picked & np.uint32(128), np.uint32(255), np.uint32(0))
            result |= np.where(nibble & np.uint32(8), sign, picked) << np.uint32(8 * byte)
        return result

    return form.elementwise(function, "b32", "b32", "b32", "b32")


def _field_mask(length: Array) -> Array:
    """The lowest `length` bits of a 64-bit word."""
    full = np.uint64(0xFFFFFFFFFFFFFFFF)
    return np.where(length >= 64, full, (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1))


@meaning("bfe")
def extract_field(form: Form) -> Action:
    bits, signed = np.uint64(bits_of(form.type)), form.type[0] == "s"
    dtype = VIEWS[form.type][1]

    def function(a: Array, b: Array, c: Array) -> Array:
        word = a.astype(np.dtype(f"u{a.dtype.itemsize}")).astype(np.uint64)
        position, length = (b & np.uint32(255)).astype(np.uint64), (c & np.uint32(255)).astype(np.uint64)
        there = np.minimum(length, np.where(position < bits, bits - position, np.uint64(0)))
        mask = _field_mask(there)
        shifted = np.where(position < bits, word >> np.minimum(position, np.uint64(63)), np.uint64(0))
        field = shifted & mask
        if signed:
            last = np.minimum(position + length - np.uint64(1), bits - np.uint64(1))
            sign = (word >> np.where(length == 0, np.uint64(0), last)) & np.uint64(1)
            field = np.where((sign == 1) & (length > 0), field | ~mask, field)
        return field.astype(np.dtype(f"u{a.dtype.itemsize}")).view(dtype)

    return form.elementwise(function, form.type, form.type, "u32", "u32")


@meaning("bfi")
def insert_field(form: Form) -> Action:
    bits = np.uint64(bits_of(form.type))

    def function(a: Array, b: Array, c: Array, d: Array) -> Array:
        position, length = (c & np.uint32(255)).astype(np.uint64), (d & np.uint32(255)).astype(np.uint64)
        inside = position < bits
        mask = np.where(inside, _field_mask(length) << np.minimum(position, np.uint64(63)), np.uint64(0))
        value = np.where(inside, a.astype(np.uint64) << np.minimum(position, np.uint64(63)), np.uint64(0))
        return ((b.astype(np.uint64) & ~mask) | (value & mask)).astype(b.dtype)

    return form.elementwise(function, form.type, form.type, form.type, "u32", "u32")


def popcount(a: Array) -> NDArray[np.uint32]:
    x = a.astype(np.uint64)
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((x * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint32)


@meaning("popc")
def population_count(form: Form) -> Action:
    return form.elementwise(popcount, "u32", form.type)


@meaning("clz")
def count_leading_zeros(form: Form) -> Action:
    bits = bits_of(form.type)

    def function(a: Array) -> Array:
        x = a.copy()
        for shift in (1, 2, 4, 8, 16, 32)[: bits.bit_length() - 1]:
            x |= x >> x.dtype.type(shift)  # ones from the highest set bit down
        return np.uint32(bits) - popcount(x)

    return form.elementwise(function, "u32", form.type)


@meaning("brev")
def reverse_bits(form: Form) -> Action:
    bits = bits_of(form.type)

    def function(a: Array) -> Array:
        x = a.astype(np.uint64)
        for shift, mask in (
            (1, 0x5555555555555555),
            (2, 0x3333333333333333),
            (4, 0x0F0F0F0F0F0F0F0F),
            (8, 0x00FF00FF00FF00FF),
            (16, 0x0000FFFF0000FFFF),
        ):
            x = ((x >> np.uint64(shift)) & np.uint64(mask)) | ((x & np.uint64(mask)) << np.uint64(shift))
        x = (x >> np.uint64(32)) | (x << np.uint64(32))
        return (x >> np.uint64(64 - bits)).astype(a.dtype)

    return form.elementwise(function, form.type, form.type)


# Comparison and selection

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def comparison(operator: str, type: str) -> Callable[[Array, Array], Array]:
    """A PTX comparison (§9.7.6.2): lo, ls, hi, hs are unsigned; the float forms with a trailing u hold for NaN, those without
    do not, not even ne."""
    if operator == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if operator == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if type[0] in "usb" and not type.startswith("bf"):
        return np.not_equal if operator == "ne" else _COMPARE[operator]
    if operator == "ne":
        return lambda a, b: (a < b) | (a > b)
    if operator == "neu":
        return np.not_equal
    if operator.endswith("u"):
        ordered = _COMPARE[operator[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    return _COMPARE[operator]


_OPERATORS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan".split()


@meaning("setp")
def set_predicate(form: Form) -> Action:
    """`setp.lt.and.f32 p|q, a, b, c`: p = (a < b) and c, q = not (a < b) and c."""
    type = form.type
    compare = comparison(form.pick(_OPERATORS), type)
    joined = form.pick(("and", "or", "xor"))
    combine = _LOGIC[joined] if joined else None
    if isinstance(form.operands[0], Pair):
        pairs = [op for op in form.column(0) if isinstance(op, Pair)]
        puts = form.target([p.first for p in pairs], "pred"), form.target([p.second for p in pairs], "pred")
    else:
        puts = form.target(0, "pred"), None
    if type in ("f16x2", "bf16x2"):
        raise form.bad(f"the simulator has no meaning for '{form.opcode}': compare the halves")
    read = type if not type.startswith("b") or type == "bf16" else f"u{type[1:]}"
    one, two = form.source(1, read), form.source(2, read)
    third = form.source(3, "pred") if combine is not None else None
    flush = form.has("ftz")

    def convert(value: Array) -> Array:
        if type in ("f16", "bf16"):
            return decode(value, type)
        return flush_f32(value) if flush else value

    def run(m: Machine, sel: Selection) -> None:
        result = compare(convert(one(m, sel)), convert(two(m, sel)))
        put, put_not = puts
        if combine is None or third is None:
            put(m, sel, result)
            if put_not is not None:
                put_not(m, sel, ~result)
            return
        other = third(m, sel)
        put(m, sel, combine(result, other))
        if put_not is not None:
            put_not(m, sel, combine(~result, other))

    return run


@meaning("selp")
def select(form: Form) -> Action:
    view = TYPE_VIEW[form.type]
    put, one, two, which = form.target(0, view), form.source(1, view), form.source(2, view), form.source(3, "pred")
    return lambda m, sel: put(m, sel, np.where(which(m, sel), one(m, sel), two(m, sel)))
