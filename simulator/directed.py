"""Directed rounding (rz, rm, rp) where no wider format gives it: all of f64, and quotients, reciprocals and square roots of f32.

Element by element with exact fractions: slow, and rare in programs. Every function here gives, in f64, the exact result rounded to nearest
and which side of it the exact result lies on; from that follow the result rounded to odd (for one more rounding to f32) and
the neighbours that the directed modes choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _nearest(exact: Fraction) -> tuple[float, int]:
    try:
        value = exact.numerator / exact.denominator  # Python rounds the quotient of two integers once
    except OverflowError:
        return (math.inf, -1) if exact > 0 else (-math.inf, 1)
    approximate = Fraction(value)
    return value, (exact > approximate) - (exact < approximate)


def _root(a: Fraction) -> tuple[float, int]:
    value = math.sqrt(a)
    square = Fraction(value) ** 2
    return value, (a > square) - (a < square)


_EXACT: dict[str, Callable[..., tuple[float, int]]] = {
    "add": lambda a, b: _nearest(a + b),
    "sub": lambda a, b: _nearest(a - b),
    "mul": lambda a, b: _nearest(a * b),
    "div": lambda a, b: _nearest(a / b),
    "fma": lambda a, b, c: _nearest(a * b + c),
    "rcp": lambda a: _nearest(1 / a),
    "sqrt": _root,
}

_IEEE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
}


def _evaluate(name: str, *operands: np.float64) -> tuple[float, int]:
    """(nearest, side) for one element; zeros, infinities and NaN as in IEEE 754, exactly."""
    with np.errstate(all="ignore"):
        plain = float(_IEEE[name](*operands))
    if (
        not all(math.isfinite(x) for x in operands)
        or math.isnan(plain)
        or (name in ("div", "rcp") and operands[-1] == 0)
    ):
        return plain, 0
    nearest, side = _EXACT[name](*(Fraction(float(x)) for x in operands))
    return (plain, 0) if nearest == 0 and side == 0 else (nearest, side)


def _each(function: Callable[..., float], *arrays: Array) -> NDArray[np.float64]:
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    flat = [np.broadcast_to(a, shape).astype(np.float64).reshape(-1) for a in arrays]
    return np.array([function(*row) for row in zip(*flat)], np.float64).reshape(shape)


def to_odd(name: str) -> Callable[..., NDArray[np.float64]]:
    """The operation on f64 arrays, rounded to odd."""

    def one(*operands: np.float64) -> float:
        nearest, side = _evaluate(name, *operands)
        if side == 0 or int(np.float64(nearest).view(np.int64)) & 1:
            return nearest
        return math.nextafter(nearest, math.inf * side)

    return lambda *arrays: _each(one, *arrays)


def directed(name: str, mode: str) -> Callable[..., NDArray[np.float64]]:
    """The operation on f64 arrays in a directed mode."""

    def one(*operands: np.float64) -> float:
        nearest, side = _evaluate(name, *operands)
        if side == 0:
            cancelled = (
                nearest == 0 and name in ("add", "sub", "fma") and mode == "rm" and any(x != 0 for x in operands)
            )
            return -0.0 if cancelled else nearest
        up = side > 0
        if mode == "rp" and up:
            return math.nextafter(nearest, math.inf)
        if mode == "rm" and not up:
            return math.nextafter(nearest, -math.inf)
        negative = nearest < 0 or (nearest == 0 and not up)
        if mode == "rz" and up == negative:
            return math.nextafter(nearest, 0.0)
        return nearest

    return lambda *arrays: _each(one, *arrays)
