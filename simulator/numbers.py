"""Number formats of PTX as bit patterns, and arithmetic that rounds once: conversions, fused multiply-add, directed rounding.

PTX registers hold bits; a meaning reads them as a format, computes, and writes bits again. Three facts carry this file:

* Every format here (f16, bf16, tf32, e4m3, e5m2, f32) is contained in f64, so decoding to f64 is exact, and rounding an f64 to
  a format with `encode` rounds once, whatever the source was.
* The product of two f32 is exact in f64 (24 + 24 <= 53 bits). A sum is not, but *rounding to odd* keeps what is needed:
  if the f64 sum is inexact, its last bit is made 1, after which a second rounding to any format of at most 51 bits gives
  what one rounding of the exact sum would (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
* f16 and bf16 sums, products, quotients and roots may be computed in f32 and rounded again: 24 >= 2p + 2 for p = 11 and 8
  (Figueroa, "When is double rounding innocuous?", 1995). Not so their fused multiply-adds.

NaN results are PTX's canonical ones: 0x7fffffff for f32, 0x7fff for f16 and bf16, 0x7f for e4m3 and e5m2 (PTX ISA 9.0 §9.7.3, §9.7.4,
§9.7.9.22); f64 keeps what NumPy gives.

Example: 1 + 2**-24 + 2**-60 lies just above a tie of f32, so one rounding goes up, while rounding by way of f64 loses the
2**-60 and then ties to even, down:

>>> a, b, c = (np.array([x], np.float32) for x in (1.0, 2.0**-24 * (1 + 2.0**-23), 1.0))
>>> float(fma32(a, b, c)[0] - 1), float(np.float32(np.float64(1) + np.float64(2.0**-24)) - 1)
(1.1920928955078125e-07, 0.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format of `1 + exponent + mantissa` bits. `largest`: the bits of the largest finite number; `inf`: the
    bits of infinity, None for e4m3, which has none; `nan`: PTX's canonical NaN; `padding`: zero bits below the mantissa (tf32)."""

    name: str
    exponent: int
    mantissa: int
    largest: int
    inf: int | None
    nan: int
    padding: int = 0

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa + self.padding

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << (self.exponent - 1))


F32 = FloatFormat("f32", 8, 23, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF)
F16 = FloatFormat("f16", 5, 10, 0x7BFF, 0x7C00, 0x7FFF)
BF16 = FloatFormat("bf16", 8, 7, 0x7F7F, 0x7F80, 0x7FFF)
TF32 = FloatFormat("tf32", 8, 10, 0x7F7FE000 >> 13, 0x7F800000 >> 13, 0x7FFFFFFF >> 13, padding=13)
E4M3 = FloatFormat("e4m3", 4, 3, 0x7E, None, 0x7F)
E5M2 = FloatFormat("e5m2", 5, 2, 0x7B, 0x7C, 0x7F)
FORMATS = {f.name: f for f in (F32, F16, BF16, TF32, E4M3, E5M2)}

_F32_NAN = np.uint32(0x7FFFFFFF)
_F32_MIN_NORMAL = np.float32(2.0**-126)


def encode(value: Array, fmt: FloatFormat, mode: str = "rn", saturate: bool = False) -> NDArray[np.uint32]:
    """The bits of f64 `value` rounded once to `fmt`. `mode`: 'rn' to nearest, ties to even; 'rna' ties away from zero; 'rz', 'rm', 'rp'
    towards zero, minus, plus infinity. `saturate` gives the largest finite number instead of an overflow or infinity
    (PTX ISA 9.0 §9.7.9.22, .satfinite)."""
    x = np.ascontiguousarray(value, np.float64)
    raw = x.view(np.int64)
    negative = raw < 0
    field = (raw >> 52) & 0x7FF
    mantissa = raw & ((1 << 52) - 1)
    special = field == 0x7FF
    significand = np.where(field > 0, mantissa | (1 << 52), mantissa)
    exponent = np.maximum(field, 1) - 1023
    at_least = np.maximum(exponent, fmt.min_exponent)
    shift = np.minimum(52 - fmt.mantissa + (at_least - exponent), 60)
    kept = significand >> shift
    rest = significand & ((np.int64(1) << shift) - 1)
    half = np.int64(1) << (shift - 1)
    if mode == "rn":
        up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
    elif mode == "rna":
        up = rest >= half
    elif mode == "rz":
        up = np.zeros(x.shape, bool)
    elif mode == "rp":
        up = (rest > 0) & ~negative
    else:
        up = (rest > 0) & negative
    bits = ((at_least - fmt.min_exponent) << fmt.mantissa) + kept + up
    overflow = bits > fmt.largest
    infinite = special & (mantissa == 0)
    if fmt.inf is None or saturate:
        bits = np.where(overflow | infinite, fmt.largest, bits)
    else:
        towards_zero = {"rz": np.ones(x.shape, bool), "rm": ~negative, "rp": negative}.get(mode)
        past = fmt.inf if towards_zero is None else np.where(towards_zero, fmt.largest, fmt.inf)
        bits = np.where(overflow, past, bits)
        bits = np.where(infinite, fmt.inf, bits)
    sign = np.int64(1 << (fmt.exponent + fmt.mantissa))
    bits = np.where(negative, bits | sign, bits)
    bits = np.where(special & (mantissa != 0), fmt.nan, bits)
    return (bits << fmt.padding).astype(np.uint32)


@cache
def _decode_table(name: str) -> NDArray[np.float32]:
    fmt = FORMATS[name]
    codes = np.arange(1 << (1 + fmt.exponent + fmt.mantissa), dtype=np.int64)
    field = (codes >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    mantissa = codes & ((1 << fmt.mantissa) - 1)
    magnitude = np.where(field > 0, mantissa + (1 << fmt.mantissa), mantissa).astype(np.float64)
    magnitude *= 2.0 ** (np.maximum(field, 1) - 1 + fmt.min_exponent - fmt.mantissa).astype(np.float64)
    absolute = codes & ((1 << (fmt.exponent + fmt.mantissa)) - 1)
    magnitude = np.where(absolute > fmt.largest, np.nan, magnitude)
    if fmt.inf is not None:
        magnitude = np.where(absolute == fmt.inf, np.inf, magnitude)
    return np.where(codes != absolute, -magnitude, magnitude).astype(np.float32)


def decode(bits: Array, name: str) -> NDArray[np.float32]:
    """The numbers of f16, bf16, tf32, e4m3, e5m2 or f32 bit patterns, as f32 (exact)."""
    if name == "f32":
        return np.ascontiguousarray(bits, np.uint32).view(np.float32)
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name == "tf32":  # the tensor core reads the upper 19 bits
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return _decode_table(name)[bits]


def canonical_f32(value: NDArray[np.float32]) -> NDArray[np.float32]:
    """`value` with every NaN replaced by PTX's canonical one, in place."""
    nan = np.isnan(value)
    if nan.any():
        if not value.flags.c_contiguous:
            value = np.ascontiguousarray(value)
        value.view(np.uint32)[nan] = _F32_NAN
    return value


def f32_to_bf16(value: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even; NaN becomes 0x7fff."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = np.isnan(value)
    if nan.any():
        result[nan] = 0x7FFF
    return result


def f32_to_f16(value: Array) -> NDArray[np.uint16]:
    """f32 or f64 to f16. Round to nearest even; NaN becomes 0x7fff."""
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(value.astype(np.float16)).view(np.uint16)
    nan = np.isnan(value)
    if nan.any():
        result[nan] = 0x7FFF
    return result


def flush_f32(value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Subnormals to zeros of the same sign (.ftz)."""
    tiny = np.abs(value) < _F32_MIN_NORMAL
    if tiny.any():
        return np.where(tiny, np.copysign(np.float32(0), value), value)
    return value


def saturate(value: Array) -> Array:
    """Clamp to [0, 1], NaN to +0 (.sat, PTX ISA 9.0 §9.7.3)."""
    return np.where(value > 0, np.minimum(value, value.dtype.type(1)), value.dtype.type(0))


def _to_odd(total: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """`total` rounded to odd, where `total + error` is the exact value and |error| at most half a unit in the last place."""
    total = np.ascontiguousarray(total)
    bits = total.view(np.int64)
    inexact = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
    away = (error > 0) == (total > 0)
    return (bits + np.where(inexact, np.where(away, 1, -1), 0)).view(np.float64)


def sum_to_odd(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """a + b rounded to odd in f64. The error is Knuth's TwoSum."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
    return _to_odd(total, error)


def fma32(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """a*b + c rounded once to f32, to nearest even.

    The f64 sum of the exact product and c, rounded to f32, differs from that only where the f64 sum is a tie of f32, or
    where the result is subnormal; those few go through `sum_to_odd`."""
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b
        total = product + c
        result = total.astype(np.float32)
    tie = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    suspect = tie | (np.abs(result) <= _F32_MIN_NORMAL)
    if suspect.any():
        where = np.nonzero(suspect)
        addend = np.broadcast_to(c, total.shape)[where].astype(np.float64)
        result[where] = sum_to_odd(np.broadcast_to(product, total.shape)[where], addend).astype(np.float32)
    return canonical_f32(result)


def fma64(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """a*b + c rounded once to f64, to nearest even, element by element in integers."""
    with np.errstate(invalid="ignore"):  # a product of infinity and zero, and infinities of both signs: NaN, as the machine's
        return np.asarray(_fma64(a, b, c), np.float64)


def _fma64_one(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    (an, ad), (bn, bd), (cn, cd) = (float(v).as_integer_ratio() for v in (a, b, c))
    numerator, denominator = an * bn * cd + cn * ad * bd, ad * bd * cd
    if numerator == 0:
        return a * b + c  # the sign of zero
    try:
        return numerator / denominator  # Python rounds the quotient of two integers once
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


_fma64 = np.frompyfunc(_fma64_one, 3, 1)


def round_f32(value: NDArray[np.float64], mode: str) -> NDArray[np.float32]:
    """f64 (or a sum rounded to odd) to f32 in a stated mode."""
    if mode == "rn":
        with np.errstate(over="ignore"):
            return canonical_f32(value.astype(np.float32))
    return encode(value, F32, mode).view(np.float32)
