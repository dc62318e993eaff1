"""Bounds of what atomic additions leave in an array, whatever their order: of floats (docs/numbers.md N42), and of integers known within bounds.

Of an element x₀ to which x₁ … xₙ are added one by one, each time rounded, the result is off by at most n·ε·Σ|xᵢ| to first order, in any order of the
additions; and by nothing where every partial sum is exact, as those of small integers are. So for each element the sums of magnitudes and the
number of additions are kept, over all updates of the kernel.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import tile_arithmetic as ta
from .tile_arithmetic import F64, Value

PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Significand bits by NumPy's name of the type (IEEE 754; bf16: 8)."""


def add_integers(low: Value, high: Value, positions: tuple[Any, ...], least: Value, most: Value) -> None:
    """Adds `least` to `most` at `positions` (which may repeat) to integers that are from `low` to `high`, in place. What is certain wraps; what is not, and might,
    may then be anything."""
    if not least.size:
        return
    unique, turn = np.unique(np.ravel_multi_index(positions, low.shape), return_inverse=True)
    at, turn = np.unravel_index(unique, low.shape), turn.reshape(-1)

    def summed(held: Value, added: Value, dtype: np.dtype) -> Value:
        total = held[at].astype(dtype)
        np.add.at(total, turn, added.astype(dtype))
        return total

    unsure = low[at] != high[at]
    np.logical_or.at(unsure, turn, least != most)
    ends = np.iinfo(low.dtype)
    margin = 1 - 2.0**-30 if low.dtype.itemsize == 8 else 1.0  # F64 rounds what has 64 bits
    wraps = unsure & ((summed(low, least, F64) < margin * ends.min) | (summed(high, most, F64) > margin * ends.max))
    low[at] = np.where(wraps, ends.min, summed(low, least, low.dtype))
    high[at] = np.where(wraps, ends.max, summed(high, most, high.dtype))


class AtomicSums:
    """What was added to the elements of one array. `low` and `high` bound what it held before."""

    def __init__(self, low: Value, high: Value, bit: float):
        self._low, self._high = low.astype(F64), high.astype(F64)
        self._size = np.maximum(np.abs(self._low), np.abs(self._high))
        self._finite = _finite_size(self._low, self._high)
        self._count = np.zeros(low.shape, F64)
        self._bit = bit
        """A power of two of which all that was added is a multiple."""

    def add(self, positions: tuple[Any, ...], low: Value, high: Value, bit: float) -> None:
        """`low` to `high` are added at `positions`."""
        self._bit = min(self._bit, bit)
        low, high = low.astype(F64), high.astype(F64)
        with np.errstate(invalid="ignore"):  # infinities of both signs: NaN, as the machine's sum
            np.add.at(self._low, positions, low)
            np.add.at(self._high, positions, high)
        np.add.at(self._size, positions, np.maximum(np.abs(low), np.abs(high)))
        np.add.at(self._finite, positions, _finite_size(low, high))
        np.add.at(self._count, positions, 1.0)

    def may_be_anything(self, positions: tuple[Any, ...], dtype: np.dtype) -> Value:
        """Where finite numbers may add up to an infinity on the way, in some order, which an infinity of the other sign then makes NaN; and where
        infinities of both signs meet at one of the bounds only (inf - inf), which then bounds nothing."""
        overflow = 1.01 * self._finite[positions] > float(ml_dtypes.finfo(dtype).max)
        one_bound = np.isnan(self._low[positions]) != np.isnan(self._high[positions])
        # What is NaN at both bounds is NaN in any order.
        return (overflow | one_bound) & ~(np.isnan(self._low[positions]) & np.isnan(self._high[positions]))

    def bounds(self, positions: tuple[Any, ...], dtype: np.dtype) -> tuple[Value, Value]:
        """The least and greatest that the elements at `positions` may hold."""
        precision = PRECISION[dtype.name]
        size = self._size[positions]
        exact = size <= self._bit * 2.0**precision
        rounded = ~exact & np.isfinite(size)  # infinities and NaN stay what they are in any order
        slack = np.where(rounded, 1.01 * (self._count[positions] + 1) * 2.0**-precision * np.where(rounded, size, 0.0), 0.0)
        low, high = self._low[positions] - slack, self._high[positions] + slack
        return ta.cast(np.asarray(low), dtype), ta.cast(np.asarray(high), dtype)


def _finite_size(low: Value, high: Value) -> Value:
    """The greatest magnitude that is no infinity and no NaN of what lies between the bounds."""
    return np.maximum(*(np.where(np.isfinite(end), np.abs(end), 0.0) for end in (low, high)))
