"""Meanings of floating-point arithmetic (PTX ISA 9.0 §9.7.3 to §9.7.5), and of the mnemonics that integers share with it.

f32 results are rounded once, in the stated mode, and subnormal numbers count, unless `.ftz` flushes operands and results. Packed
types are pairs of f16 or bf16, the first in the low half. The approximate functions (`ex2.approx` …) give the exact value rounded
to f32 here, so they lie within the ISA's error bounds, but are not what the hardware's tables give bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decode import Action, Form, meaning
from .directed import directed, to_odd
from .integers import integer_binary, integer_unary, is_integer
from .numbers import (
    BF16,
    F16,
    canonical_f32,
    decode,
    encode,
    f32_to_bf16,
    f32_to_f16,
    flush_f32,
    fma32,
    fma64,
    round_f32,
    saturate,
    sum_to_odd,
)

Array = NDArray[Any]
Function = Callable[..., Array]

_MODES = ("rn", "rz", "rm", "rp")


def unpack(raw: Array, type: str) -> NDArray[np.float32]:
    """Register bits of f16, bf16 or a packed pair as f32; pairs get an axis of two, low half first."""
    if type.endswith("x2"):
        halves = np.ascontiguousarray(raw)[..., None].view(np.uint16)
        return decode(halves, type[:-2])
    return decode(raw, type)


def pack(bits: NDArray[np.uint16], type: str) -> Array:
    """The inverse of `unpack`, from bits."""
    return np.ascontiguousarray(bits).view(np.uint32)[..., 0] if type.endswith("x2") else bits


def round_half(value: Array, type: str) -> NDArray[np.uint16]:
    """f32 or f64 to the bits of f16 or bf16, to nearest even."""
    if value.dtype == np.float64 and type.startswith("bf16"):
        return encode(value, BF16).astype(np.uint16)
    return f32_to_bf16(value) if type.startswith("bf16") else f32_to_f16(value)


def _relu(value: Array) -> Array:
    return np.where(np.isnan(value) | (value > 0), value, value.dtype.type(0))


def float_operation(form: Form, arity: int, function: Function, mode: str = "rn") -> Action:
    """An operation on floats by a function that is exact up to one rounding in the arrays' own type. In f32 with a directed `mode`, the
    function is given f64 operands and must return the result rounded to odd."""
    type = form.type
    ftz, sat, relu = form.has("ftz"), form.has("sat"), form.has("relu")
    if type in ("f16", "bf16", "f16x2", "bf16x2"):

        def half(*raws: Array) -> Array:
            values = [unpack(raw, type) for raw in raws]
            if ftz and type.startswith("f16"):
                values = [np.where(np.abs(v) < np.float32(2.0**-14), np.copysign(np.float32(0), v), v) for v in values]
            with np.errstate(all="ignore"):
                result = function(*values)
            if sat:
                result = saturate(result)
            if relu:
                result = _relu(result)
            if ftz and type.startswith("f16"):
                result = np.where(np.abs(result) < np.float32(2.0**-14), np.copysign(np.float32(0), result), result)
            return pack(round_half(result, type), type)

        return form.elementwise(half, type, *[type] * arity)

    def full(*values: Array) -> Array:
        if ftz:
            values = tuple(flush_f32(v) for v in values)
        with np.errstate(all="ignore"):
            if mode != "rn":
                result = round_f32(function(*(v.astype(np.float64) for v in values)), mode)
            else:
                result = function(*values)
        if ftz:
            result = flush_f32(result)
        if sat:
            result = saturate(result)
        return canonical_f32(result) if type == "f32" else result

    return form.elementwise(full, type, *[type] * arity)


def _plus(a: Array, b: Array) -> Array:
    return a + b


def _minus(a: Array, b: Array) -> Array:
    return a - b


def _times(a: Array, b: Array) -> Array:
    return a * b


def _quotient(a: Array, b: Array) -> Array:
    return a / b


_NEAREST: dict[str, Function] = {"add": _plus, "sub": _minus, "mul": _times, "div": _quotient}
_ODD: dict[str, Function] = {
    "add": sum_to_odd,
    "sub": lambda a, b: sum_to_odd(a, -b),
    "mul": _times,
    "fma": lambda a, b, c: sum_to_odd(a * b, c),
    "div": to_odd("div"),
    "rcp": to_odd("rcp"),
    "sqrt": to_odd("sqrt"),
}
"""Operations on f32 operands given in f64, rounded to odd there."""


def _directed(form: Form, arity: int) -> Action | None:
    """The action of an operation in a directed mode; None for one that rounds to nearest."""
    name, mode = form.words[0], form.pick(_MODES, "rn")
    if mode == "rn":
        return None
    if form.type == "f64":
        return form.elementwise(directed(name, mode), "f64", *["f64"] * arity)
    if form.type != "f32" or name not in _ODD:
        raise form.bad(f"the simulator rounds '{form.opcode}' to nearest only")
    return float_operation(form, arity, _ODD[name], mode)


@meaning("add", "sub", "mul", "div")
def binary(form: Form) -> Action:
    """div.approx and div.full give the correctly rounded quotient, which lies within their error bounds."""
    if is_integer(form.type):
        return integer_binary(form)
    name = form.words[0]
    if name == "mul" and form.type.startswith("bf16"):
        # The one product that f32 may round: of bf16, below its smallest normal number.
        return float_operation(form, 2, lambda a, b: a.astype(np.float64) * b)
    return _directed(form, 2) or float_operation(form, 2, _NEAREST[name])


@meaning("fma")
def fused_multiply_add(form: Form) -> Action:
    type = form.type
    action = _directed(form, 3)
    if action is not None:
        return action
    if type == "f64":
        return form.elementwise(fma64, type, type, type, type)
    if type == "f32":
        return float_operation(form, 3, fma32)
    fmt = BF16 if type.startswith("bf16") else F16
    relu, sat = form.has("relu"), form.has("sat")

    def half(*raws: Array) -> Array:
        a, b, c = (unpack(raw, type).astype(np.float64) for raw in raws)
        with np.errstate(all="ignore"):
            result = sum_to_odd(a * b, c)
        if sat:
            result = saturate(result)
        if relu:
            result = _relu(result)
        return pack(encode(result, fmt).astype(np.uint16), type)

    return form.elementwise(half, type, type, type, type)


# Minimum and maximum


def _extreme(form: Form) -> Function:
    """min or max: a NaN operand is ignored, or with .NaN wins; -0 is less than +0 (§9.7.3.11, §9.7.4.6)."""
    largest, any_nan = form.words[0] == "max", form.has("NaN")
    pick = np.fmax if largest else np.fmin
    by_sign = form.has("xorsign")

    def function(a: Array, b: Array) -> Array:
        sign = np.signbit(a) ^ np.signbit(b)
        if by_sign:
            a, b = np.abs(a), np.abs(b)
        result = pick(a, b)
        zeros = (a == 0) & (b == 0)
        if zeros.any():
            negative = (np.signbit(a) & np.signbit(b)) if largest else (np.signbit(a) | np.signbit(b))
            result = np.where(zeros, np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), result)
        if by_sign:
            result = np.where(sign, -result, result)
        if any_nan:
            nan = np.isnan(a) | np.isnan(b)
            result = np.where(nan, a.dtype.type(np.nan), result)
        return result

    return function


@meaning("min", "max")
def extreme(form: Form) -> Action:
    if is_integer(form.type):
        return integer_binary(form)
    return float_operation(form, 2, _extreme(form))


# Sign


@meaning("abs", "neg")
def sign_bit(form: Form) -> Action:
    """Only the sign bit changes, also of NaN."""
    type = form.type
    if is_integer(type):
        return integer_unary(form)
    masks = {"f16": 0x8000, "bf16": 0x8000, "f16x2": 0x80008000, "bf16x2": 0x80008000, "f32": 1 << 31, "f64": 1 << 63}
    view = {"f32": "u32", "f64": "u64"}.get(type, type)
    clear, flush = form.words[0] == "abs", form.has("ftz") and type == "f32"

    def function(raw: Array) -> Array:
        if flush:
            raw = flush_f32(np.ascontiguousarray(raw).view(np.float32)).view(np.uint32)
        mask = raw.dtype.type(masks[type])
        return raw & ~mask if clear else raw ^ mask

    return form.elementwise(function, view, view)


@meaning("copysign")
def copy_sign(form: Form) -> Action:
    """The sign of the first operand on the second (§9.7.3.5)."""
    return form.elementwise(lambda a, b: np.copysign(b, a), form.type, form.type, form.type)


# Functions of one operand

_FUNCTIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1.0 / a,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}


@meaning(*_FUNCTIONS)
def unary_function(form: Form) -> Action:
    """Computed in f64 and rounded to the type: for sqrt and rcp that is the correctly rounded result (53 >= 2*24 + 2)."""
    action = _directed(form, 1)
    if action is not None:
        return action
    exact = _FUNCTIONS[form.words[0]]
    if form.type == "f64":
        return float_operation(form, 1, exact)
    return float_operation(form, 1, lambda a: np.asarray(exact(a.astype(np.float64))).astype(np.float32))
