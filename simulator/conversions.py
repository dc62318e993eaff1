"""The meaning of cvt: every pair of types, rounded once (PTX ISA 9.0 §9.7.9.22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decode import NARROW, VIEWS, Action, Form, meaning
from .numbers import (
    F32,
    FORMATS,
    canonical_f32,
    decode,
    encode,
    f32_to_bf16,
    f32_to_f16,
    flush_f32,
    saturate,
    sum_to_odd,
)

Array = NDArray[Any]
Convert = Callable[[Array], Array]

_PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}
_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _is_integer(type: str) -> bool:
    return type[0] in "us"


def _dtype(type: str) -> np.dtype[Any]:
    return np.dtype(NARROW[type] if type in NARROW else VIEWS[type][1])


def _integer_to_integer(to: str, saturating: bool) -> Convert:
    dtype = _dtype(to)
    info = np.iinfo(dtype)

    def convert(a: Array) -> Array:
        if saturating:
            low, high = max(info.min, np.iinfo(a.dtype).min), min(info.max, np.iinfo(a.dtype).max)
            a = np.clip(a, a.dtype.type(low), a.dtype.type(high))
        return a.astype(dtype)

    return convert


def _float_to_integer(to: str, source: str, rounding: str) -> Convert:
    """Clamped to the type's range; NaN gives 0, or the lowest number (2^63 unsigned) where f64 or a 64-bit type takes part."""
    dtype = _dtype(to)
    info = np.iinfo(dtype)
    integral = _INTEGRAL[rounding]
    nan = 0 if source != "f64" and info.bits < 64 else (info.min if dtype.kind == "i" else 1 << (info.bits - 1))
    above = float(info.max) + 1 if info.bits < 64 else 2.0 ** (63 if dtype.kind == "i" else 64)

    def convert(a: Array) -> Array:
        value = integral(np.where(np.isnan(a), np.asarray(np.nan, a.dtype), a).astype(np.float64))  # a signalling NaN cannot be converted
        bad = np.isnan(value)
        over, under = value >= above, value < info.min
        with np.errstate(invalid="ignore"):
            result = np.where(bad | over | under, 0.0, value).astype(dtype)
        result = np.where(over, dtype.type(info.max), np.where(under, dtype.type(info.min), result))
        return np.where(bad, dtype.type(nan), result)

    return convert


def exact_f64(a: Array) -> NDArray[np.float64]:
    """An integer as f64; 64-bit integers that do not fit are rounded to odd, so that one more rounding is right."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    return sum_to_odd(high, low)


def _integer_to_float(to: str, mode: str) -> Convert:
    if to == "f64":
        return lambda a: a.astype(np.float64)
    if to == "f32" and mode == "rn":
        return lambda a: a.astype(np.float32)
    fmt = FORMATS[to]
    if to == "f32":
        return lambda a: encode(exact_f64(a), fmt, mode).view(np.float32)
    return lambda a: encode(exact_f64(a), fmt, mode).astype(np.uint16)


def _float_to_float(to: str, source: str, form: Form) -> Convert:
    """From numbers (f32 or f64 arrays) to the bits, or the numbers, of `to`."""
    mode = form.pick(("rn", "rna", "rz", "rm", "rp"), "rn")
    integral = form.pick(tuple(_INTEGRAL))
    finite, sat, relu, ftz = form.has("satfinite"), form.has("sat"), form.has("relu"), form.has("ftz")
    fmt = FORMATS.get(to)

    def convert(a: Array) -> Array:
        if ftz and a.dtype == np.float32:
            a = flush_f32(a)
        if integral:
            a = _INTEGRAL[integral](a)
        if sat:
            a = saturate(a)
        if relu:
            a = np.where(np.isnan(a) | (a > 0), a, a.dtype.type(0))
        if to == "f64":
            return a.astype(np.float64)
        if to == "f32":
            if a.dtype == np.float32:
                result = canonical_f32(a.copy()) if source != "bf16" else a
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    result = (
                        canonical_f32(a.astype(np.float32)) if mode == "rn" else encode(a, F32, mode).view(np.float32)
                    )
            return flush_f32(result) if ftz else result
        if a.dtype == np.float32 and mode == "rn" and not finite:
            if to == "bf16":
                return f32_to_bf16(a)
            if to == "f16":
                return f32_to_f16(a)
        assert fmt is not None
        return encode(a.astype(np.float64), fmt, mode, finite)

    return convert


@meaning("cvt")
def convert(form: Form) -> Action:
    """`cvt.rn.bf16x2.f32 d, a, b` puts a into the upper half. Sources narrower than their register count by their low bits,
    destinations are extended."""
    to, source = form.words[-2], form.words[-1]
    if to in _PAIRS:
        return _to_pair(form, to, source)
    function = _conversion(form, to, source)
    put, get = form.target(0, to, loose=True), form.source(1, source, loose=True)
    if source in ("f16", "bf16"):
        return lambda m, sel: put(m, sel, function(decode(get(m, sel), source)))
    return lambda m, sel: put(m, sel, function(get(m, sel)))


def _conversion(form: Form, to: str, source: str) -> Convert:
    """Between single values; those of f16 and bf16 come as f32."""
    if _is_integer(to) and _is_integer(source):
        return _integer_to_integer(to, form.has("sat"))
    if _is_integer(to):
        round_off = _float_to_integer(to, source, form.pick(tuple(_INTEGRAL), "rzi"))
        return (lambda a: round_off(flush_f32(a))) if form.has("ftz") else round_off
    if _is_integer(source):
        to_float = _integer_to_float(to, form.pick(("rn", "rz", "rm", "rp"), "rn"))
        return (lambda a: to_float(np.clip(a, 0, 1))) if form.has("sat") else to_float
    return _float_to_float(to, source, form)


def _to_pair(form: Form, to: str, source: str) -> Action:
    element = _PAIRS[to]
    bits = 8 if element in ("e4m3", "e5m2") else 16
    word = np.uint16 if bits == 8 else np.uint32
    function = _float_to_float(element, source, form)

    def join(high: Array, low: Array) -> Array:
        return (high.astype(word) << word(bits)) | low.astype(word)

    if source == "f32":
        return form.elementwise(lambda a, b: join(function(a), function(b)), to, "f32", "f32")
    if source not in _PAIRS:
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    inner = _PAIRS[source]
    shift = 8 if inner in ("e4m3", "e5m2") else 16
    mask = (1 << shift) - 1

    def split(raw: Array) -> Array:
        low = decode(raw & raw.dtype.type(mask), inner)
        high = decode(raw >> raw.dtype.type(shift), inner)
        return join(function(high), function(low))

    return form.elementwise(split, to, source)
