"""Arithmetic on NumPy arrays as docs/numbers.md states it: what the block interpreter computes with.

Values are NumPy arrays (of no dimensions for scalars) of the types that `dtype_of` gives: a bf16 tile is an array of
`ml_dtypes.bfloat16`, an `index` is an int64. Nothing here is shared with the PTX simulator's arithmetic, which it is
compared with.

The one delicate thing is to round *once*. Where NumPy would go through another format, the value is first *rounded to
odd* (truncated, and the last bit set if anything was lost): a second rounding to nearest, to a format at least two bits
shorter, then gives what one rounding of the exact value would (Boldo and Melquiond, "Emulation of FMA and correctly
rounded sums", 2008). Example: 1 + 2**-8 + 2**-40 lies just above the tie between two bf16 numbers; by way of f32 it
becomes the tie, which goes to even, down:

>>> x = np.array(1 + 2.0**-8 + 2.0**-40)
>>> float(x.astype(np.float32).astype(ml_dtypes.bfloat16)), float(cast(x, dtype_named("bf16")))
(1.0, 1.0078125)
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
)
from xdsl.ir import Attribute

Value = np.ndarray
"""A tile or, with no dimensions, a scalar."""

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
I1, I64 = np.dtype(np.bool_), np.dtype(np.int64)

_NAMED = {
    "f16": F16, "bf16": BF16, "f8E4M3FN": E4M3, "f8E5M2": E5M2, "ui8": np.dtype(np.uint8), "f32": F32, "f64": F64,
    "i1": I1, "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": I64, "index": I64,
}  # fmt: skip


def dtype_named(name: str) -> np.dtype:
    """The NumPy type of an element type's name, as 'bf16'. Raises KeyError for an unknown name."""
    return _NAMED[name]


def dtype_of(element: Attribute) -> np.dtype:
    """The NumPy type that holds an element type's values. Raises ValueError for a type that tiles cannot have."""
    match element:
        case Float16Type():
            return F16
        case BFloat16Type():
            return BF16
        case Float8E4M3FNType():
            return E4M3
        case Float8E5M2Type():
            return E5M2
        case Float32Type():
            return F32
        case Float64Type():
            return F64
        case IndexType():
            return I64
        case IntegerType() if str(element) in _NAMED:
            return _NAMED[str(element)]
    raise ValueError(f"{element} is no element type of tiles")


def is_float(dtype: np.dtype) -> bool:
    return dtype in (F16, BF16, F32, F64, E4M3, E5M2)


def is_narrow(dtype: np.dtype) -> bool:
    """Whether arithmetic on it is done in f32 and rounded (N8)."""
    return dtype in (F16, BF16, E4M3, E5M2)


# --- Rounding and casts (N28 to N31) ---


def _to_odd(x: Value) -> Value:
    """f64 values as f32, rounded to odd; NaN and infinities stay."""
    near = np.asarray(x.astype(F32))
    inexact = (near.astype(F64) != x) & ~np.isnan(x)
    bits = np.asarray(near.view(np.int32))
    # Sign and magnitude: one less is one step toward zero, also from infinity to the largest number.
    cut = np.where(np.abs(near.astype(F64)) > np.abs(x), bits - 1, bits)
    return np.asarray(np.where(inexact, cut | 1, bits)).astype(np.int32).view(F32)


def _exact_in_f64(x: Value) -> Value:
    """int64 values as f64; what does not fit its 53 bits is rounded to odd on 52 bits."""
    small = np.abs(x) < 2**52  # false for the least integer, whose absolute value wraps; it is treated below
    negative = x < 0
    magnitude = np.where(negative, -x, x).view(np.uint64)
    lost = (magnitude & np.uint64(0x7FF)) != 0
    odd = (magnitude & ~np.uint64(0x7FF)) | np.where(lost, np.uint64(0x800), np.uint64(0))
    large = np.where(negative, -1.0, 1.0) * odd.astype(F64)
    return np.where(small & (x != np.iinfo(np.int64).min), x.astype(F64), large)


def cast(x: Value, to: np.dtype, saturate: bool = False) -> Value:
    """`tile.cast`: `x` in another type, by N28 to N31."""
    if is_float(to):
        out = _float_to_float(x, to) if is_float(x.dtype) else _integer_to_float(x, to)
        if saturate:
            largest = np.asarray(ml_dtypes.finfo(to).max, to)
            out = np.where(np.isinf(out), np.copysign(largest.astype(F64), out.astype(F64)).astype(to), out)
        return np.asarray(out, to)
    if is_float(x.dtype):
        return _float_to_integer(x, to)
    if to == I1:
        return np.asarray((x & 1) != 0)
    return np.asarray(x.astype(to))


def _float_to_float(x: Value, to: np.dtype) -> Value:
    # NumPy and ml_dtypes round once between all pairs but f64 -> bf16 and from f64 to 8 bits.
    if to in (E4M3, E5M2):
        return _to_eight_bits(_to_odd(x) if x.dtype == F64 else x.astype(F32), to)
    return _to_odd(x).astype(to) if (x.dtype, to) == (F64, BF16) else x.astype(to)


def _to_eight_bits(x: Value, to: np.dtype) -> Value:
    """f32 values as 8-bit floats, which saturate (N28)."""
    largest = F32.type(ml_dtypes.finfo(to).max)
    return np.clip(x, -largest, largest).astype(to)


def _integer_to_float(x: Value, to: np.dtype) -> Value:
    if to == F64 or to == F32:
        return x.astype(to)
    if to == F16:
        # Integers that f32 cannot hold are past f16's largest number anyway.
        return x.astype(F32).astype(F16)
    wide = _to_odd(_exact_in_f64(x.astype(I64)))
    return _to_eight_bits(wide, to) if to in (E4M3, E5M2) else wide.astype(to)


def _float_to_integer(x: Value, to: np.dtype) -> Value:
    least, most = (0, 1) if to == I1 else (int(np.iinfo(to).min), int(np.iinfo(to).max))
    whole = np.trunc(np.nan_to_num(x.astype(F64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    # most may not be an f64; most + 1 always is.
    inside = np.where((whole >= least) & (whole < float(most + 1)), whole, 0.0).astype(I64)
    return np.asarray(np.where(whole >= float(most + 1), most, np.where(whole < least, least, inside)).astype(to))


# --- Float arithmetic (N6 to N13) ---


def in_f32(operation: Callable[..., Value]) -> Callable[..., Value]:
    """`operation` on f32 or f64 operands, extended to narrower floats by N8: computed in f32, rounded once."""

    def applied(*operands: Value) -> Value:
        dtype = operands[0].dtype
        if is_narrow(dtype):
            return cast(np.asarray(operation(*(x.astype(F32) for x in operands))), dtype)
        return np.asarray(operation(*operands))

    return applied


def _pick_zero(out: Value, a: Value, b: Value, zero: Value) -> Value:
    return np.where((a == 0) & (b == 0), zero, out)


def _prefer_numbers(out: Value, a: Value, b: Value) -> Value:
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, out))


def maximum(a: Value, b: Value) -> Value:
    """N10, N12: NaN wins, +0 is above -0."""
    return _pick_zero(np.maximum(a, b), a, b, a + b)


def minimum(a: Value, b: Value) -> Value:
    """N10, N12."""
    return _pick_zero(np.minimum(a, b), a, b, -((-a) + (-b)))


def maximum_number(a: Value, b: Value) -> Value:
    """N11, N12: a NaN loses. (np.fmax gives NaN for signalling ones, depending on the C library.)"""
    return _pick_zero(_prefer_numbers(np.maximum(a, b), a, b), a, b, a + b)


def minimum_number(a: Value, b: Value) -> Value:
    """N11, N12."""
    return _pick_zero(_prefer_numbers(np.minimum(a, b), a, b), a, b, -((-a) + (-b)))


def fma(a: Value, b: Value, c: Value) -> Value:
    """a·b + c, rounded once (N6)."""
    if a.dtype == F64:
        return np.vectorize(_fma64, otypes=[F64])(a, b, c)
    product, addend = a.astype(F64) * b.astype(F64), c.astype(F64)  # exact: 24 + 24 bits
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)  # Knuth's two-sum: total + error is exact
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(np.isfinite(total) & (error != 0) & even, odd, total).astype(F32)


def _fma64(a: float, b: float, c: float) -> float:
    plain = a * b + c
    if not np.isfinite([a, b, c]).all():
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        # The sign of an exact zero is that of the sum of a signed zero product and c, or + where they cancel.
        return plain if a * b == 0 or c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


# --- Approximated functions (N14 to N20): float64, rounded once to f32 ---

_LEAST_NORMAL = np.float32(2.0**-126)


def through_f64(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """A function of f32, computed in float64; of 16-bit floats by N8. Not defined on f64."""

    def applied(x: Value) -> Value:
        out = np.asarray(function(x.astype(F64)).astype(F32))
        return cast(out, x.dtype)

    return applied


def _flushed(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def applied(x: Value) -> Value:
        out = function(x)
        return np.where(out < _LEAST_NORMAL, 0.0, out)

    return applied


exp, exp2 = through_f64(_flushed(np.exp)), through_f64(_flushed(np.exp2))
log, log2 = through_f64(np.log), through_f64(np.log2)
rsqrt = through_f64(lambda x: 1.0 / np.sqrt(x))
tanh, sin, cos = through_f64(np.tanh), through_f64(np.sin), through_f64(np.cos)


# --- Integer arithmetic (N21 to N25) ---

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def unsigned(x: Value) -> Value:
    """The same bits, read without a sign."""
    return np.asarray(x).view(_UNSIGNED[x.dtype.itemsize])


def on_unsigned(operation: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """`operation` on operands read as unsigned, the result's bits in the operands' type."""
    return lambda a, b: np.asarray(operation(unsigned(a), unsigned(b))).view(a.dtype)


def divide(a: Value, b: Value) -> Value:
    """`arith.divsi`: toward zero (N22)."""
    return np.asarray((a - np.fmod(a, b)) // b)


def divide_up(a: Value, b: Value) -> Value:
    """`arith.ceildivsi`: toward plus infinity (N22)."""
    rest = np.fmod(a, b)
    return np.asarray((a - rest) // b + ((rest != 0) & ((a < 0) == (b < 0))).astype(a.dtype))


def divide_up_unsigned(a: Value, b: Value) -> Value:
    return np.asarray(a // b + (a % b != 0).astype(a.dtype))


def shift_left(a: Value, amount: Value) -> Value:
    """N24; the bits beyond the width are lost."""
    return _shift(np.left_shift, a, amount, np.zeros_like(a))


def shift_right(a: Value, amount: Value) -> Value:
    """N24, with zeros."""
    return _shift(np.right_shift, unsigned(a), amount, np.zeros_like(unsigned(a))).view(a.dtype)


def shift_right_signed(a: Value, amount: Value) -> Value:
    """N24, with copies of the sign."""
    return _shift(np.right_shift, a, amount, -(a < 0).astype(a.dtype))


def _shift(shift: Callable[[Value, Value], Value], a: Value, amount: Value, beyond: Value) -> Value:
    width = 8 * a.dtype.itemsize
    count = unsigned(amount)
    safe = np.minimum(count, count.dtype.type(width - 1)).astype(a.dtype)
    return np.asarray(np.where(count < width, shift(a, safe), beyond))


# --- Comparisons (N26) ---

_ORDERS: dict[str, Callable[[Value, Value], Value]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def compare(predicate: str, a: Value, b: Value) -> Value:
    """`tile.cmp` with one of its predicates."""
    if predicate in _ORDERS:
        return np.asarray(_ORDERS[predicate](a, b))
    order = _ORDERS[predicate[1:]]
    if predicate[0] == "s":
        return np.asarray(order(a, b))
    neither = np.isnan(a) | np.isnan(b)
    holds = order(a, b)
    return np.asarray(~neither & holds if predicate[0] == "o" else neither | holds)


# --- Reductions and dots (N32 to N38) ---


def reduce(kind: str, x: Value, axis: int) -> Value:
    """`tile.reduce`: one of sum, prod, max, min, argmax, argmin along `axis`."""
    if kind in ("argmax", "argmin"):
        wide = x.astype(F32) if is_narrow(x.dtype) else x
        # NumPy too lets the first NaN win and takes the first of equals.
        return np.asarray((np.argmax if kind == "argmax" else np.argmin)(wide, axis=axis).astype(np.int32))
    if kind in ("sum", "prod"):
        function = np.sum if kind == "sum" else np.prod
        if not is_float(x.dtype):
            return np.asarray(function(x, axis=axis, dtype=x.dtype))
        total = np.asarray(function(x.astype(F64), axis=axis))
        return cast(total if x.dtype == F64 else total.astype(F32), x.dtype)
    function = np.maximum if kind == "max" else np.minimum
    if not is_float(x.dtype):
        return np.asarray(function.reduce(x, axis=axis))
    wide = x.astype(F32) if is_narrow(x.dtype) else x
    out = function.reduce(wide, axis=axis)
    zero = np.where(np.any((wide == 0) & (np.signbit(wide) == (kind == "min")), axis=axis), 1.0, -1.0)
    zero = np.copysign(0.0, zero if kind == "max" else -zero).astype(out.dtype)
    return np.asarray(cast(np.where(out == 0, zero, out).astype(out.dtype), x.dtype))  # an infinity of eight bits saturates (N28)


def scan(kind: str, x: Value, axis: int, exclusive: bool) -> Value:
    """`tile.scan`: running sum, prod, max or min along `axis`; sums and products of floats in float64 (N46)."""
    floats = is_float(x.dtype)
    if kind in ("sum", "prod"):
        function = np.add if kind == "sum" else np.multiply
        wide = x.astype(F64) if floats else x
        identity = np.asarray(0 if kind == "sum" else 1, wide.dtype)
    else:
        function = maximum if kind == "max" else minimum
        wide = x.astype(F32) if is_narrow(x.dtype) else x
        if floats:
            identity = np.asarray(-np.inf if kind == "max" else np.inf, wide.dtype)
        else:
            info = np.iinfo(x.dtype)
            identity = np.asarray(info.min if kind == "max" else info.max, wide.dtype)
    lines = np.moveaxis(wide, axis, 0)
    out = np.empty_like(lines)
    running = np.broadcast_to(identity, lines.shape[1:]).astype(wide.dtype)
    for i, line in enumerate(lines):
        if exclusive:
            out[i] = running
        running = line.astype(wide.dtype) if i == 0 else np.asarray(function(running, line)).astype(wide.dtype)
        if not exclusive:
            out[i] = running
    out = np.moveaxis(out, 0, axis)
    if not floats:
        return np.asarray(out.astype(x.dtype))
    return cast(out if x.dtype == F64 else out.astype(F32), x.dtype)


def to_tf32(x: Value) -> Value:
    """f32 values rounded to the 10 bits of tf32's mantissa, to nearest, ties away from zero; NaN and infinities stay."""
    rounded = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(F32)
    return np.where(np.isfinite(x), rounded, x)


def dot(a: Value, b: Value, acc: Value, precision: str | None = None) -> Value:
    """`tile.dot`: acc + a·b over the last two dimensions, leading ones a batch (N37). `precision`: its attribute."""
    if precision == "tf32":
        a, b = to_tf32(np.ascontiguousarray(a)), to_tf32(np.ascontiguousarray(b))
    if is_float(a.dtype):
        return np.asarray((acc.astype(F64) + np.matmul(a.astype(F64), b.astype(F64))).astype(acc.dtype))
    return np.asarray(acc + np.matmul(a.astype(acc.dtype), b.astype(acc.dtype)))
