"""The block interpreter with error bounds: which results docs/numbers.md allows, for a whole program.

Most operations determine every bit of their result; some do not: sums (in an unspecified order), dots, approximated
functions. What a compiled program may answer therefore depends on all that happened before. `allowed_results` runs a
program on *intervals*: beside each value its least and its greatest allowed one, in its own element type. An operation
that is exact takes intervals of no width to such intervals, so the comparison stays bit for bit wherever it can be; a
bounded one widens them.

- An operation that is monotone in each operand, rounding included (as nearly all are: + − × √ casts, maximum), takes an
  interval to the hull of its values at the corners. That is sound because a machine computes with numbers of the same
  type inside the interval, and rounds as we do.
- Where a small change may change everything (a comparison of overlapping intervals, a quotient by an interval round
  zero), the result becomes *anything*: the whole type, NaN included.
- Where the program's course depends on an uncertain value (a branch, a trip count, an address), it has no single
  answer: `Undecided`.

Example: in f32, s = sum(x) of 1000 normal numbers may be off by 999·2⁻²⁴·Σ|x|; s > 0 is certain or anything; `select(s
> 0, 1, 2)` then is 1, 2 or either. But the sum of 1000 small integers is exact in every order, which is noticed: every
partial sum is a multiple of the least bit that occurs, and no larger than f32 holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Operation

from ..dialects import tile
from ..dialects.diagnostics import TeselaError
from ..dialects.tile import AtomicKind
from . import tile_arithmetic as ta
from .block_indexed import Place, atomic_at, load_at, store_at
from .block_ops import MEANINGS, Refused, dot_precision
from .blocks import Semantics, load_tile, run_kernel, store_tile
from .bounded_sums import AtomicSums, add_integers
from .tile_arithmetic import F32, F64, Value

Function = Callable[..., Any]


class Undecided(Refused):
    """What the program does depends on a value that is known within bounds only."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A tile (or scalar, or array) known within bounds: the interpreter's value, and the least and greatest allowed.
    Where both are NaN the value is NaN; where they are the type's whole range it is anything, NaN included."""

    value: Value
    low: Value
    high: Value

    @property
    def parts(self) -> tuple[Value, Value, Value]:
        return self.value, self.low, self.high

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def transpose(self, order: Sequence[int]) -> Interval:
        return Interval(*(part.transpose(order) for part in self.parts))


Bounded = Value | Interval


def parts(x: Bounded) -> tuple[Value, Value, Value]:
    return x.parts if isinstance(x, Interval) else (x, x, x)


def _extremes(dtype: np.dtype) -> tuple[Any, Any]:
    if dtype == ta.E4M3:  # which has no infinities
        return -448.0, 448.0
    if ta.is_float(dtype):
        return -np.inf, np.inf
    return (False, True) if dtype == ta.I1 else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def is_anything(x: Bounded) -> Value:
    """Where the value may be any of its type."""
    if not isinstance(x, Interval):
        return np.zeros(x.shape, np.bool_)
    return np.asarray(_holds(x.low, _extremes(x.dtype)[0]) & _holds(x.high, _extremes(x.dtype)[1]))


def _holds(x: Value, number: Any) -> Value:
    """Where `x` holds just this number (not zero). By its bits: a comparison of a signalling NaN is an invalid operation (IEEE 754, 7.2)."""
    bits = np.dtype(f"u{x.dtype.itemsize}")
    return x.view(bits) == np.asarray(number, x.dtype).view(bits)


def _quiet(x: Value) -> Value:
    """Floats with quiet NaNs in place of all others, whose conversion is an invalid operation."""
    bits = np.dtype(f"u{x.dtype.itemsize}")
    magnitude = x.view(bits) & bits.type((1 << 8 * bits.itemsize - 1) - 1)
    return np.where(magnitude > np.asarray(_extremes(x.dtype)[1], x.dtype).view(bits), np.asarray(np.nan, x.dtype), x)


def interval(value: Value, low: Value, high: Value, anything: Value | bool = False) -> Bounded:
    """An interval round `value`, or `value` itself where bounds leave nothing open; where `anything` holds, everything
    is open."""
    least, most = (np.asarray(end, value.dtype) for end in _extremes(value.dtype))
    low = np.where(anything, least, np.where(low > value, value, low)).astype(value.dtype)
    high = np.where(anything, most, np.where(high < value, value, high)).astype(value.dtype)
    if ta.is_float(value.dtype):
        # A bound that is NaN beside a value that is none, or the other way round, bounds nothing.
        broken = (np.isnan(low) | np.isnan(high)) != np.isnan(value)
        broken |= np.isnan(low) != np.isnan(high)
        low, high = np.where(broken, least, low), np.where(broken, most, high)
        low, high = low.astype(value.dtype), high.astype(value.dtype)
    if np.all((low == high) & _same_sign(low, high) | _both_nan(low, high)):
        return value
    return Interval(value, low, high)


def _both_nan(a: Value, b: Value) -> Value:
    return np.isnan(a) & np.isnan(b) if ta.is_float(a.dtype) else np.zeros(a.shape, np.bool_)


def _same_sign(a: Value, b: Value) -> Value | bool:
    return np.signbit(a) == np.signbit(b) if ta.is_float(a.dtype) else True


def _either_zero(value: Value, low: Value, high: Value) -> tuple[Value, Value]:
    """The bounds of a sum, whose zero may have either sign (N4)."""
    zero = np.zeros((), value.dtype)
    return np.where((value == 0) & (low == 0), -zero, low), np.where((value == 0) & (high == 0), zero, high)


def anything_like(value: Value) -> Bounded:
    return interval(value, value, value, True)


def _any_anything(operands: Iterable[Bounded]) -> Value | bool:
    found: Value | bool = False
    for x in operands:
        if isinstance(x, Interval):
            found = found | is_anything(x)
    return found


# --- Operations that are monotone in each operand ---


def corners(function: Function, operands: Sequence[Bounded]) -> list[Value]:
    """The function at all combinations of the operands' bounds."""
    ends = [(x.low, x.high) if isinstance(x, Interval) else (x,) for x in operands]
    return [np.asarray(function(*combination)) for combination in product(*ends)]


def hull(values: Sequence[Value]) -> tuple[Value, Value, Value]:
    """Least, greatest, and where some but not all values are NaN."""
    stack = np.stack([np.asarray(v.astype(F64) if ta.is_float(v.dtype) else v) for v in values])
    dtype = values[0].dtype
    if not ta.is_float(dtype):
        return stack.min(0), stack.max(0), np.zeros(values[0].shape, np.bool_)
    nan = np.isnan(stack)
    mixed = nan.any(0) & ~nan.all(0)
    low, high = np.fmin.reduce(stack), np.fmax.reduce(stack)
    zero, minus = stack == 0, np.signbit(stack)
    low = np.where((low == 0) & (zero & minus).any(0), -0.0, low)
    high = np.where((high == 0) & (zero & ~minus).any(0), 0.0, high)
    return low.astype(dtype), high.astype(dtype), mixed


def monotone(function: Function) -> Function:
    """A function that is monotone in each operand while the others stand still, on intervals."""

    def applied(*operands: Bounded) -> Bounded:
        if not any(isinstance(x, Interval) for x in operands):
            return function(*operands)
        value = np.asarray(function(*(parts(x)[0] for x in operands)))
        low, high, mixed = hull(corners(function, operands))
        return interval(value, low, high, mixed | _any_anything(operands))

    return applied


def exact_or_anything(function: Function) -> Function:
    """An elementwise function of which nothing is known where an operand is uncertain."""

    def applied(*operands: Bounded) -> Bounded:
        if not any(isinstance(x, Interval) for x in operands):
            return function(*operands)
        value = np.asarray(function(*(parts(x)[0] for x in operands)))
        return interval(value, value, value, _uncertain(operands, value.shape))

    return applied


def _counts(op: Operation) -> Function:
    """A histogram: a bin's least count is of the elements that are certainly in it, the greatest of those that may be."""
    (bins,) = tile.shape_of(op.results[0].type)

    def count(first: Value, last: Value) -> Value:
        """For each bin, how many of the ranges [first, last] it lies in."""
        begin, end = np.clip(first, 0, bins), np.clip(last, -1, bins - 1) + 1  # none of these sums can overflow
        edges = np.bincount(begin, minlength=bins + 1) - np.bincount(np.maximum(begin, end), minlength=bins + 1)
        return np.cumsum(edges)[:bins].astype(np.int32)

    def applied(x: Bounded) -> Bounded:
        value, low, high = (part.astype(np.int64).reshape(-1) for part in parts(x))
        sure = low == high
        return interval(count(value, value), count(low[sure], high[sure]), count(low, high))

    return applied


def _gather(op: Operation) -> Function:
    """Elements that certain indices pick keep their bounds; what an uncertain one picks may be anything."""
    pick = MEANINGS[op.name](op)

    def applied(x: Bounded, index: Bounded) -> Bounded:
        if not isinstance(x, Interval) and not isinstance(index, Interval):
            return pick(x, index)
        at, first, last = parts(index)
        return interval(*(pick(part, at) for part in parts(x)), first != last)

    return applied


def _uncertain(operands: Iterable[Bounded], shape: tuple[int, ...]) -> Value:
    """Where an elementwise function of `operands` has an uncertain operand."""
    found = np.zeros(shape, np.bool_)
    for x in operands:
        if isinstance(x, Interval):
            found = found | ((x.low != x.high) & ~_both_nan(x.low, x.high))
    return found


def structural(function: Function) -> Function:
    """A function that only moves elements."""

    def applied(*operands: Bounded) -> Bounded:
        if not any(isinstance(x, Interval) for x in operands):
            return function(*operands)
        split = [parts(x) for x in operands]
        return interval(*(np.asarray(function(*(part[i] for part in split))) for i in range(3)))

    return applied


def _quotient(function: Function) -> Function:
    plain = monotone(function)

    def applied(a: Bounded, b: Bounded) -> Bounded:
        out = plain(a, b)
        if not isinstance(b, Interval):
            return out
        value, low, high = parts(out)
        return interval(value, low, high, (b.low <= 0) & (b.high >= 0))

    return applied


def _absolute(function: Function) -> Function:
    plain = monotone(function)

    def applied(x: Bounded) -> Bounded:
        out = plain(x)
        if not isinstance(x, Interval) or not isinstance(out, Interval):
            return out
        straddles = (x.low < 0) & (x.high > 0) & ~is_anything(x)  # which may be NaN
        return interval(out.value, np.where(straddles, np.zeros_like(out.low), out.low), out.high)

    return applied


def _wrapping(function: Function) -> Function:
    """Integer sums, differences and products: monotone where nothing wraps."""
    plain = monotone(function)

    def applied(*operands: Bounded) -> Bounded:
        if not any(isinstance(x, Interval) for x in operands):
            return function(*operands)
        out = plain(*operands)
        least, most = _extremes(out.dtype)
        wide = [
            np.asarray(function(*combination))
            for combination in product(*[[part.astype(F64) for part in parts(x)[1:]] for x in operands])
        ]
        wraps = np.any([(w <= 0.99 * least) | (w >= 0.99 * most) for w in wide], axis=0)
        value, low, high = parts(out)
        return interval(value, low, high, wraps)

    return applied


def _dividing(function: Function) -> Function:
    plain = exact_or_anything(function)

    def applied(a: Bounded, b: Bounded) -> Bounded:
        if isinstance(b, Interval) and np.any((b.low <= 0) & (b.high >= 0)):
            raise Undecided("a divisor that may be zero is known within bounds only")
        return plain(a, b)

    return applied


# --- Approximated functions (N14 to N20) ---

_LEAST = 2.0**-126


def _relative(bound: float) -> Callable[[Value, Value], Value]:
    return lambda x, y: np.where(np.isfinite(y), bound * np.abs(y), 0.0)


def _logarithm(bound: float) -> Callable[[Value, Value], Value]:
    return lambda x, y: np.where(np.isfinite(y), np.where((x > 0.5) & (x < 2), 2.0**-22, bound * np.abs(y)), 0.0)


def _periodic(x: Value, y: Value) -> Value:
    size = np.abs(x)
    return np.where(size <= 2 * np.pi, 2.0**-20, np.where(size <= 100 * np.pi, 2.0**-14, 2.0))


_EXP = _relative(2.0**-22)

ERRORS: dict[str, Callable[[Value, Value], Value]] = {
    math.Exp2Op.name: _EXP,
    math.ExpOp.name: lambda x, y: (
        _EXP(x, y) + np.where(np.isfinite(x) & np.isfinite(y), np.abs(y) * np.abs(x) * 2.0**-23.5, 0.0)
    ),
    math.Log2Op.name: _logarithm(2.0**-22),
    math.LogOp.name: _logarithm(2.0**-21.5),
    math.RsqrtOp.name: _relative(2.0**-22),
    math.TanhOp.name: _relative(2.0**-11),
    math.SinOp.name: _periodic,
    math.CosOp.name: _periodic,
}
"""Per approximated function: the error that docs/numbers.md allows, from argument and value."""


def _approximated(name: str, function: Function) -> Function:
    error = ERRORS[name]
    periodic = error is _periodic

    def applied(x: Bounded) -> Bounded:
        dtype = x.dtype
        value, low, high = (part.astype(F32) for part in parts(x))
        y = function(value)
        if periodic:
            spread = error(value, y) + (np.asarray(high, F64) - low)
            ends = [(value, y, np.minimum(spread, 2.0))]
        else:
            ends = [(end, f, np.asarray(error(end, f))) for end in (low, high) for f in (function(end),)]
        # The interpreter's own rounding, and the machine's last one, come on top.
        lower = [f.astype(F64) - e * 1.01 - np.where(e > 0, np.abs(f.astype(F64)) * 2.0**-23, 0) for _, f, e in ends]
        upper = [f.astype(F64) + e * 1.01 + np.where(e > 0, np.abs(f.astype(F64)) * 2.0**-23, 0) for _, f, e in ends]
        least, most = np.min(lower, 0), np.max(upper, 0)
        if name in (math.ExpOp.name, math.Exp2Op.name):
            # Close to 2**-126 either side of the flush, close to overflow either infinity or the largest number.
            least = np.where(least < 1.01 * _LEAST, 0.0, least)
            most = np.where((most > 0) & (most < 1.01 * _LEAST), 1.01 * _LEAST, most)
            most = np.where(y == 0, np.where(value < -1e3, 0.0, most), most)
            finite = np.isfinite(value)
            least = np.where(finite & np.isinf(least), 3.3e38, least)
        low32, high32 = _down(least), _up(most)
        fixed = np.min([e for _, _, e in ends], 0) == 0
        low32, high32 = np.where(fixed, least, low32).astype(F32), np.where(fixed, most, high32).astype(F32)
        nan = np.isnan(np.stack([f for _, f, _ in ends]))
        anything = (nan.any(0) & ~nan.all(0)) | _any_anything([x])
        return interval(y.astype(dtype), low32.astype(dtype), high32.astype(dtype), anything)

    return applied


def _down(x: Value) -> Value:
    near = np.asarray(x.astype(F32))
    return np.where(near > x, np.nextafter(near, np.float32(-np.inf)), near)


def _up(x: Value) -> Value:
    near = np.asarray(x.astype(F32))
    return np.where(near < x, np.nextafter(near, np.float32(np.inf)), near)


# --- Comparison and selection ---


def _compare(op: Operation) -> Function:
    assert isinstance(op, tile.CmpOp)
    function = MEANINGS[op.name](op)
    equality = op.predicate.data.value[-2:] in ("eq", "ne")

    def applied(a: Bounded, b: Bounded) -> Bounded:
        if not isinstance(a, Interval) and not isinstance(b, Interval):
            return function(a, b)
        (va, la, ha), (vb, lb, hb) = parts(a), parts(b)
        value = function(va, vb)
        uncertain = _any_anything((a, b)) | np.zeros(value.shape, np.bool_)
        if equality:
            uncertain = uncertain | ((la <= hb) & (lb <= ha) & _uncertain((a, b), value.shape))
        else:
            uncertain = uncertain | np.any([c != value for c in corners(function, (a, b))], axis=0)
        return interval(value, value, value, uncertain)

    return applied


def _select(condition: Bounded, a: Bounded, b: Bounded) -> Bounded:
    if not any(isinstance(x, Interval) for x in (condition, a, b)):
        return np.where(condition, a, b)
    c = parts(condition)[0]
    (va, la, ha), (vb, lb, hb) = parts(a), parts(b)
    value, low, high = np.where(c, va, vb), np.where(c, la, lb), np.where(c, ha, hb)
    if isinstance(condition, Interval):
        either = is_anything(condition)
        least, most, mixed = hull([la, ha, lb, hb])
        low, high = np.where(either, least, low), np.where(either, most, high)
        return interval(value, low, high, either & mixed)
    return interval(value, low, high)


def _cast(op: Operation) -> Function:
    function = MEANINGS[op.name](op)

    def applied(x: Bounded) -> Bounded:
        if not isinstance(x, Interval):
            return function(x)
        value = function(x.value)
        if ta.is_float(x.dtype) or ta.is_float(value.dtype):
            return monotone(function)(x)
        least, most = _extremes(value.dtype)
        wraps = (x.low.astype(object) < int(least)) | (x.high.astype(object) > int(most))
        out = interval(value, np.minimum(*map(function, x.parts[1:])), np.maximum(*map(function, x.parts[1:])))
        return interval(*parts(out), np.asarray(wraps, np.bool_) | _any_anything([x]))

    return applied


# --- Reductions and dots (N32 to N37) ---


def least_bit(x: Value) -> float:
    """The largest power of two of which all (finite) elements are multiples; infinity if all are zero."""
    mantissa, exponent = np.frexp(x.astype(F64))
    whole = (mantissa * 2.0**53).astype(np.int64)
    used = whole != 0
    if not used.any():
        return np.inf
    low = (whole & -whole)[used].astype(F64)
    return float(np.ldexp(low, exponent[used] - 53).min())


def _finite(x: Value) -> Value:
    """Absolute values, 0 for what is not finite."""
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def _sum(x: Bounded, axis: int) -> Bounded:
    value, low, high = (part.astype(F64) for part in parts(x))
    dtype = x.dtype
    size = np.sum(np.maximum(np.abs(low), np.abs(high)), axis=axis)
    n = value.shape[axis]
    precision, largest = (53, np.finfo(F64).max) if dtype == F64 else (24, np.finfo(F32).max)
    finite = np.isfinite(size)
    certain = not isinstance(x, Interval) and bool(
        np.all(size[finite] <= least_bit(value[np.isfinite(value)]) * 2.0**precision)
    )
    slack = (
        0.0
        if certain
        else (n - 1) * 1.01 * 2.0**-precision * size + (0.0 if n == 1 else np.abs(size) * 2.0**-precision)
    )
    # An element that is NaN or infinite decides the sum in every order, unless the rest may overflow.
    special = ~finite & (not isinstance(x, Interval))
    slack = np.where(special, 0.0, slack)
    total, bottom, top = (np.sum(part, axis=axis) for part in (value, low, high))
    rest = np.sum(_finite(value), axis=axis)
    overflow = special & ~np.isnan(total) & (rest > 0.99 * largest)
    if not certain:
        overflow = overflow | ((size > 0.99 * largest) & ~special)

    def rounded(total: Value) -> Value:
        return ta.cast(np.asarray(total if dtype == F64 else np.asarray(total).astype(F32)), dtype)

    ends = _either_zero(rounded(total), rounded(bottom - slack), rounded(top + slack))
    return interval(rounded(total), *ends, overflow | np.any(np.asarray(is_anything(x)), axis=axis))


def _product(x: Bounded, axis: int) -> Bounded:
    value = ta.reduce("prod", parts(x)[0], axis)
    if isinstance(x, Interval):
        return anything_like(value)
    wide = x.astype(F64)
    n = x.shape[axis]
    magnitude = np.abs(wide)
    precision, largest, least = (53, 1e300, 1e-300) if x.dtype == F64 else (24, 3e38, 2.0**-125)
    above = np.prod(np.where(magnitude > 1, magnitude, 1.0), axis=axis)
    below = np.prod(np.where((magnitude < 1) & (magnitude > 0), magnitude, 1.0), axis=axis)
    total = np.prod(wide, axis=axis)
    special = ~np.isfinite(magnitude).all(axis=axis) | (magnitude == 0).any(axis=axis)
    risky = (above > largest) | (below < least)
    # Exact where all elements together have no more significant bits than fit.
    mantissa = np.frexp(wide)[0]
    bits = 53 - np.log2(np.maximum((lambda w: w & -w)((mantissa * 2.0**53).astype(np.int64)), 1).astype(F64))
    exact = np.sum(np.where(magnitude == 0, 0, bits), axis=axis) <= precision
    slack = np.where(special | exact, 0.0, n * 1.01 * 2.0**-precision * np.abs(total))
    rounded = [
        ta.cast(np.asarray(end if x.dtype == F64 else np.asarray(end).astype(F32)), x.dtype)
        for end in (total - slack, total + slack)
    ]
    return interval(value, *rounded, risky)


def _first_extreme(kind: str, x: Bounded, axis: int) -> Bounded:
    value = ta.reduce(kind, parts(x)[0], axis)
    if not isinstance(x, Interval):
        return value
    low, high = (part.astype(F64) if ta.is_float(x.dtype) else part for part in x.parts[1:])
    if kind == "argmax":
        candidate = high >= low.max(axis=axis, keepdims=True)
    else:
        candidate = low <= high.min(axis=axis, keepdims=True)
    first = np.argmax(candidate, axis=axis).astype(np.int32)
    last = (x.shape[axis] - 1 - np.argmax(np.flip(candidate, axis), axis=axis)).astype(np.int32)
    nan = np.isnan(low).any(axis=axis) if ta.is_float(x.dtype) else np.zeros(value.shape, np.bool_)
    open_ = np.any(is_anything(x), axis=axis) & ~nan
    return interval(
        value, np.where(nan, value, first).astype(np.int32), np.where(nan, value, last).astype(np.int32), open_
    )


def _reduce(op: Operation) -> Function:
    assert isinstance(op, tile.ReduceOp)
    kind, axis = op.kind.data.value, op.axis.value.data

    def applied(x: Bounded) -> Bounded:
        if kind in ("argmax", "argmin"):
            return _first_extreme(kind, x, axis)
        if ta.is_float(x.dtype) and kind in ("sum", "prod"):
            return (_sum if kind == "sum" else _product)(x, axis)
        value = ta.reduce(kind, parts(x)[0], axis)
        if not isinstance(x, Interval):
            return value
        if kind in ("sum", "prod"):
            return interval(value, value, value, np.any(_uncertain([x], x.shape), axis=axis))
        ends = [ta.reduce(kind, part, axis) for part in x.parts[1:]]
        return interval(value, *ends, np.any(is_anything(x), axis=axis))

    return applied


def _scan(op: Operation) -> Function:
    """Sums of floats: within the bound of N46 of the nominal value, or exact where every partial sum is; products of floats are bounded alike. What is
    exact takes bounds to bounds if it grows with each element; of integers that wrap nothing is known."""
    assert isinstance(op, tile.ScanOp) and op.kind is not None
    kind, axis, exclusive = op.kind.data.value, op.axis.value.data, op.exclusive is not None

    def forward(x: Bounded) -> Bounded:
        value = ta.scan(kind, parts(x)[0], axis, exclusive)
        if kind in ("max", "min"):
            if not isinstance(x, Interval):
                return value
            ends = [ta.scan(kind, part, axis, exclusive) for part in x.parts[1:]]
            return interval(value, *ends, np.logical_or.accumulate(np.broadcast_to(is_anything(x), x.shape), axis=axis))
        if not ta.is_float(x.dtype):
            return anything_like(value) if isinstance(x, Interval) else value
        if isinstance(x, Interval) or kind == "prod":
            return anything_like(value)
        wide = x.astype(F64)
        if not np.isfinite(wide).all():
            return anything_like(value)
        bits, largest = (53, 1e300) if x.dtype == F64 else (24, 3e38)
        if np.abs(wide).sum(axis=axis).max(initial=0.0) <= least_bit(wide) * 2.0**bits:
            return value
        if exclusive:  # not by subtraction: beside a large element nothing would be left of what comes before it
            first = np.zeros_like(np.take(wide, [0], axis))
            wide = np.concatenate([first, np.delete(wide, -1, axis)], axis)
        size, total = np.cumsum(np.abs(wide), axis=axis), np.cumsum(wide, axis=axis)
        slack = (wide.shape[axis] + 1) * 1.01 * 2.0**-bits * size

        def rounded(ends: Value) -> Value:
            return ta.cast(np.asarray(ends if x.dtype == F64 else ends.astype(F32)), x.dtype)

        return interval(value, *_either_zero(value, rounded(total - slack), rounded(total + slack)), size > 0.99 * largest)

    def flipped(x: Bounded) -> Bounded:
        return interval(*(np.flip(part, axis) for part in x.parts)) if isinstance(x, Interval) else np.flip(x, axis)

    return forward if op.reverse is None else lambda x: flipped(forward(flipped(x)))


_DOT_PRECISION = {F64: (53, 1e300), F32: (24, 3e38), ta.E4M3: (13, 3e38), ta.E5M2: (13, 3e38)}
"""Of sums of products, by operands: bits that each addition keeps (22 where not stated), and what may overflow (numbers.md N37)."""


def _dot(a: Bounded, b: Bounded, acc: Bounded, precision: str | None = None) -> Bounded:
    va, vb, vc = (parts(x)[0] for x in (a, b, acc))
    value = ta.dot(va, vb, vc, precision)
    certain = not any(isinstance(x, Interval) for x in (a, b, acc))
    if not ta.is_float(va.dtype):
        return value if certain else anything_like(value)
    wide = [x.astype(F64) for x in (va, vb, vc)]
    spread = [
        np.where(np.isnan(x), 0.0, np.maximum(parts(y)[2].astype(F64) - x, x - parts(y)[1].astype(F64)))
        for x, y in zip(wide, (a, b, acc))
    ]
    if precision == "tf32":  # an operand may be either of the tf32 numbers beside it
        rounded = [ta.to_tf32(np.ascontiguousarray(x)).astype(F64) for x in (va, vb)]
        ulps = [np.where((x == y) | ~np.isfinite(x), 0.0, np.abs(x) * 2.0**-9.9 + 2.0**-136) for x, y in zip(wide, rounded)]
        certain = certain and not any(ulp.any() for ulp in ulps)
        spread = [*(s + ulp for s, ulp in zip(spread, ulps)), spread[2]]
        wide = [*rounded, wide[2]]
    size = np.abs(wide[2]) + np.matmul(np.abs(wide[0]), np.abs(wide[1]))
    wander = spread[2] + (
        0.0
        if certain
        else np.matmul(np.abs(wide[0]), spread[1]) + np.matmul(spread[0], np.abs(wide[1])) + np.matmul(*spread[:2])
    )
    bits, largest = _DOT_PRECISION.get(va.dtype, (22, 3e38))
    k = va.shape[-1]
    quantum = min(
        least_bit(wide[0][np.isfinite(wide[0])]) * least_bit(wide[1][np.isfinite(wide[1])]), least_bit(wide[2][np.isfinite(wide[2])])
    )
    exact_bits, steps = min(bits, 23) if va.dtype != F64 else bits, 0.0
    if vc.dtype == ta.F16:  # and once more after each instruction, of 8 products at least
        exact_bits, largest, steps = min(bits, 11), 65504.0, k / 8 + 2
    exact = size + wander <= quantum * 2.0**exact_bits
    slack = ((k + 1) * 1.01 * 2.0**-bits + steps * 2.0**-10) * (size + wander) + steps * 2.0**-24
    slack = np.where(exact, 0.0, slack) + wander
    special = ~np.isfinite(size) & certain
    slack = np.where(special, 0.0, slack)
    middle = value.astype(F64)
    # Where operands are infinite or NaN the nominal value holds, unless the finite products may overflow to the other infinity, which makes a NaN of an
    # infinity in some orders, and in others, as where a product is not rounded before it is added, does not; where finite products overflow, or what is infinite is not known exactly, anything may.
    rest = _finite(wide[2]) + np.matmul(_finite(wide[0]), _finite(wide[1]))
    finite_operands = np.isfinite(np.matmul(np.isinf(wide[0]) | np.isnan(wide[0]), np.ones_like(wide[1])) * 0.0)
    overflow = (size + wander > 0.99 * largest) & finite_operands & ~(special & ~np.isfinite(middle))
    overflow = overflow | (special & (rest > 0.99 * largest)) | (~np.isfinite(size) & ~(wander == 0))
    # What may be anything is no width round its nominal value, which may be NaN where the machine's is none.
    open_a, open_b = (is_anything(x).any(axis, keepdims=True) for x, axis in ((a, -1), (b, -2)))
    overflow = overflow | open_a | open_b | is_anything(acc)
    ends = _either_zero(value, (middle - slack).astype(value.dtype), (middle + slack).astype(value.dtype))
    return interval(value, *ends, overflow)


# --- The table, and running with it ---

_MONOTONE = (
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp,
    arith.MaxSIOp, arith.MinSIOp, math.SqrtOp, math.CeilOp, math.FloorOp, math.FmaOp,
)  # fmt: skip
_STRUCTURAL = (
    tile.JoinOp, tile.TransposeOp, tile.ReshapeOp, tile.ExpandOp, tile.BroadcastOp, tile.FullOp, tile.IotaOp, tile.ConstantOp, arith.ConstantOp,
)  # fmt: skip
_DIVIDING = (
    arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.CeilDivUIOp,
)  # fmt: skip

_LIFTED: dict[str, Callable[[Function], Function]] = {
    **{op.name: monotone for op in _MONOTONE},
    **{op.name: structural for op in _STRUCTURAL},
    **{op.name: _dividing for op in _DIVIDING},
    **{op.name: _wrapping for op in (arith.AddiOp, arith.SubiOp, arith.MuliOp)},
    **{op.name: _absolute for op in (math.AbsFOp,)},
    arith.DivfOp.name: _quotient,
    "layout.convert": structural,
}
"""How an operation's function extends to intervals; what is not here and has no rule of its own below knows nothing of
uncertain operands."""

_OWN: dict[str, Callable[[Operation], Function]] = {
    tile.CmpOp.name: _compare,
    tile.SelectOp.name: lambda op: _select,
    arith.SelectOp.name: lambda op: _select,
    tile.CastOp.name: _cast,
    arith.IndexCastOp.name: _cast,
    tile.ReduceOp.name: _reduce,
    tile.ScanOp.name: _scan,
    tile.HistogramOp.name: _counts,
    tile.GatherOp.name: _gather,
}


REPLACING = (AtomicKind.EXCHANGE, AtomicKind.CAS)
"""Atomic updates after which the last one's value stands, whichever that was."""


class BoundedSemantics(Semantics):
    """Values with bounds. After a run, `arrays` holds the written arrays as intervals, by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Interval] = {}
        self._added: dict[int, AtomicSums] = {}  # by the identity of the array

    def meaning(self, op: Operation) -> Function | None:
        function = super().meaning(op)
        if function is None:
            return None
        if op.name in ERRORS:
            return _approximated(op.name, function)
        if op.name == tile.DotOp.name:
            precision = dot_precision(op)
            return lambda a, b, acc: _dot(a, b, acc, precision)
        if (own := _OWN.get(op.name)) is not None:
            return own(op)
        return _LIFTED.get(op.name, exact_or_anything)(function)

    def array(self, name: str, array: np.ndarray, written: bool) -> Bounded:
        if not written:
            return array
        self.arrays[name] = Interval(array, array.copy(), array.copy())
        return self.arrays[name]

    def load(
        self, array: Bounded, starts: Sequence[int], dims: Sequence[int], shape: Sequence[int], *fill: Bounded
    ) -> Bounded:
        if not isinstance(array, Interval) and not any(isinstance(x, Interval) for x in fill):
            return load_tile(array, starts, dims, shape, *fill)
        fills = [parts(x) for x in fill]
        return interval(*(load_tile(parts(array)[i], starts, dims, shape, *(x[i] for x in fills)) for i in range(3)))

    def store(self, array: Bounded, starts: Sequence[int], dims: Sequence[int], value: Bounded) -> None:
        self._added.pop(id(array), None)
        for target, part in zip(parts(array), parts(value)):
            store_tile(target, starts, dims, part)

    def load_at(self, array: Bounded, place: Place, *fill: Bounded) -> Bounded:
        if not isinstance(array, Interval) and not any(isinstance(x, Interval) for x in fill):
            return load_at(array, place, *fill)  # type: ignore[arg-type]
        return interval(*(load_at(parts(array)[i], place, *(parts(x)[i] for x in fill)) for i in range(3)))

    def store_at(self, array: Bounded, place: Place, value: Bounded) -> None:
        self._added.pop(id(array), None)
        for target, part in zip(parts(array), parts(value)):
            store_at(target, place, part)

    def atomic(self, kind: AtomicKind, array: Bounded, place: Place, value: Bounded, *expected: Bounded) -> Bounded:
        """What each element finds depends on the order of all updates of the grid; what stays behind does for sums of floats (docs/numbers.md N42), and where values
        replace one another."""
        assert isinstance(array, Interval), "the kernel writes it"
        positions, inside = place
        value_parts = parts(value)
        sums = self._sums(array) if kind is AtomicKind.ADD and ta.is_float(array.dtype) else None
        old = atomic_at(kind, array.value, place, value_parts[0], *(parts(x)[0] for x in expected))
        if sums is not None:
            bit = 0.0 if isinstance(value, Interval) else least_bit(_finite(value_parts[0][inside]))
            sums.add(positions, value_parts[1][inside], value_parts[2][inside], bit)
            anything = sums.may_be_anything(positions, array.dtype)
            bounds = zip(sums.bounds(positions, array.dtype), _extremes(array.dtype))
            array.low[positions], array.high[positions] = (np.where(anything, extreme, bound) for bound, extreme in bounds)
        elif kind is AtomicKind.ADD:
            add_integers(array.low, array.high, positions, value_parts[1][inside], value_parts[2][inside])
        elif kind in (AtomicKind.MAX, AtomicKind.MIN) or (kind not in REPLACING and not isinstance(value, Interval)):
            unsure = (array.low[positions] != array.high[positions]) & (kind not in (AtomicKind.MAX, AtomicKind.MIN))
            for target, part, extreme in zip(array.parts[1:], value_parts[1:], _extremes(array.dtype)):
                atomic_at(kind, target, place, part)
                target[positions] = np.where(unsure, extreme, target[positions])  # of bits, bounds say nothing
        else:
            array.low[positions], array.high[positions] = _extremes(array.dtype)
        return anything_like(old)

    def _sums(self, array: Interval) -> AtomicSums:
        if id(array) not in self._added:
            self._added[id(array)] = AtomicSums(array.low, array.high, least_bit(_finite(array.value)))
        return self._added[id(array)]

    def inline(self, function: Callable[..., Sequence[Value]], operands: Sequence[Bounded], dtypes: Sequence[np.dtype]) -> Sequence[Bounded]:
        results = function(*(parts(x)[0] for x in operands))
        return [anything_like(result) for result in results] if any(isinstance(x, Interval) for x in operands) else results

    def shown(self, value: Bounded) -> Value:
        return parts(value)[0]

    def integers(self, value: Bounded) -> Value:
        if isinstance(value, Interval):
            raise Undecided("what the program does here depends on a value that is known within bounds only")
        return value

    def item(self, x: Bounded, which: int) -> Bounded:
        return interval(*(part[..., which] for part in x.parts)) if isinstance(x, Interval) else x[..., which]

    def line(self, x: Bounded, axis: int, which: int) -> Bounded:
        return interval(*(np.asarray(np.take(part, which, axis)) for part in x.parts)) if isinstance(x, Interval) else np.asarray(np.take(x, which, axis))

    def stacked(self, lines: Sequence[Bounded], axis: int) -> Bounded:
        if not any(isinstance(x, Interval) for x in lines):
            return np.stack(lines, axis)  # type: ignore[arg-type]
        return interval(*(np.stack([parts(x)[i] for x in lines], axis) for i in range(3)))

    def spread(self, x: Bounded, shape: tuple[int, ...]) -> Bounded:
        return interval(*(np.broadcast_to(part, shape) for part in x.parts)) if isinstance(x, Interval) else np.broadcast_to(x, shape)

    def reassociated(self, x: Bounded) -> Bounded:
        return anything_like(parts(x)[0])

    def dot(self, a: Bounded, b: Bounded, acc: Bounded, precision: str | None) -> Bounded:
        return _dot(a, b, acc, precision)

    def integer(self, value: Bounded) -> int:
        if isinstance(value, Interval):
            raise Undecided("what the program does here depends on a value that is known within bounds only")
        return int(value)

    def same(self, a: Bounded, b: Bounded) -> bool:
        return parts(a)[0].tobytes() == parts(b)[0].tobytes()


def allowed_results(
    module: Operation,
    arrays: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any] | None = None,
    kernel: str | None = None,
) -> dict[str, Interval]:
    """Run a kernel as `run_kernel` does (stores change `arrays`), and give, for each array it writes, what it may hold
    afterwards. Raises TeselaError as `run_kernel` does, and where the program's course depends on a value that is known
    within bounds only."""
    semantics = BoundedSemantics()
    run_kernel(module, arrays, scalars, kernel, semantics=semantics)
    return semantics.arrays


def mismatches(found: np.ndarray, allowed: Interval) -> np.ndarray:
    """Where `found` holds what `allowed` does not: the indices, one row each. +0 and -0 count as equal, since sums may
    be either (N4)."""
    value, low, high = allowed.parts
    if not ta.is_float(value.dtype):
        return np.argwhere((found < low) | (found > high))
    wide, bottom, top = (_quiet(x).astype(F64) for x in (found, low, high))
    fine = ((wide >= bottom) & (wide <= top)) | (np.isnan(wide) & np.isnan(bottom)) | is_anything(allowed)
    return np.argwhere(~fine)


def check_results(found: Mapping[str, np.ndarray], allowed: Mapping[str, Interval]) -> None:
    """Raise TeselaError, one message for each array, where `found` holds what `allowed` does not."""
    messages = []
    for name, bounds in allowed.items():
        wrong = mismatches(found[name], bounds)
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            value, low, high = (part[at] for part in bounds.parts)
            wanted = f"{value}" if str(value) == str(low) == str(high) else f"{value} (from {low} to {high})"
            messages.append(
                f"array '{name}': {len(wrong)} of {found[name].size} elements are wrong; the first, {list(at)}, is {found[name][at]}, not {wanted}"
            )
    if messages:
        raise TeselaError("\n".join(messages))
