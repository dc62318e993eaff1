"""What each thread of a block has in a register, for given sizes and without arrays. For `check-barriers`.

A value is a number that all threads have (int, bool), one for each thread (np.ndarray), or None: not known, since it depends on what arrays hold. So `%tid.x >> 5`
is known thread by thread, and so is a slot's number, its parity, and the address of its mbarrier. Numbers are kept as signed ones of their register's width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dialects.ptx_isa import Row

Value = Any
"""int, bool, np.ndarray or None; a tuple of these for several registers."""
WARP = 32


def wrap(value: Value, bits: int) -> Value:
    """A number as a signed one of so many bits."""
    if isinstance(value, np.ndarray):
        if bits >= 64 or value.dtype == bool:
            return value
    else:
        value = int(value)
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def _unsigned(value: Value, bits: int) -> Value:
    if isinstance(value, np.ndarray) and bits >= 64:
        return value
    return value & ((1 << bits) - 1)


def _bits(type_: str) -> int:
    digits = "".join(filter(str.isdigit, type_))
    return int(digits) if digits else 1


def _many(*args: Value) -> bool:
    return any(isinstance(arg, np.ndarray) for arg in args)


def _quotient(a: Value, b: Value) -> Value:
    """Division toward zero, as PTX's; 0 where the divisor is 0."""
    if _many(a, b):
        safe = np.where(np.equal(b, 0), 1, b)
        return np.where(np.equal(b, 0), 0, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))
    return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


NUMBERS: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul_lo": lambda a, b: a * b,
    "mul_wide": lambda a, b: a * b,
    "mad_lo": lambda a, b, c: a * b + c,
    "mad_wide": lambda a, b, c: a * b + c,
    "neg": lambda a: -a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "shl": lambda a, b: np.left_shift(a, b) if _many(a, b) else a << min(b, 64),
    "shr": lambda a, b: np.right_shift(a, b) if _many(a, b) else a >> b,
    "min": lambda a, b: np.minimum(a, b) if _many(a, b) else min(a, b),
    "max": lambda a, b: np.maximum(a, b) if _many(a, b) else max(a, b),
    "div": _quotient,
    "rem": lambda a, b: a - _quotient(a, b) * b,
    "cvt": lambda a: a,
}
"""Meanings of instructions on whole numbers, before they wrap round."""
UNSIGNED = frozenset({"shr", "min", "max", "div", "rem"})
"""Those that tell unsigned numbers from signed ones."""
COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
COMPARISONS |= {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not, "mov": lambda a: a}


def evaluate(row: Row, args: Sequence[Value]) -> Value:
    """The result of one instruction; of several registers as a tuple."""
    meaning, type_ = row.meaning, str(row.args.get("type", ""))
    if meaning == "selp":
        return _select(*args)
    if any(arg is None or (isinstance(arg, tuple) and any(part is None for part in arg)) for arg in args):
        return False if type_ == "pred" and meaning == "and" and any(arg is not None and not np.any(arg) for arg in args) else None
    if meaning == "setp":
        return _compare(row, args, type_)
    if type_ == "pred":
        return _plain(LOGIC[meaning](*args)) if meaning in LOGIC else None
    if meaning == "mov":
        return _move(args[0], type_)
    if meaning == "mapa":
        return args[0]  # the blocks of a cluster do the same: what is sent to another's mbarrier, another sends to this one's
    if meaning == "shfl":
        return _lane_of_each_warp(args[0], args[1]) if row.args.get("mode") == "idx" else None
    if (meaning not in NUMBERS and meaning != "mul_hi") or "sat" in row.args:
        return None
    source = type_ = str(row.args.get("from", type_)) if meaning == "cvt" else type_
    if meaning == "cvt":
        type_ = str(row.args["to"])
    if "f" in source or "f" in type_:
        return None
    if meaning == "mul_hi":
        return _high(*args, _bits(type_), type_.startswith("u"))
    bits = _bits(type_) * (2 if meaning.endswith("_wide") else 1)
    if source.startswith(("u", "b")) and (meaning in UNSIGNED or meaning == "cvt" or meaning.endswith("_wide")):
        args = [_unsigned(arg, _bits(source)) for arg in args]
    return wrap(NUMBERS[meaning](*args), bits)


def _high(a: Value, b: Value, bits: int, unsigned: bool) -> Value:
    """The upper half of a product."""
    if unsigned:
        a, b = _unsigned(a, bits), _unsigned(b, bits)
    if not _many(a, b):
        return wrap((a * b) >> bits, bits)
    if bits > 32:
        return None
    kind = np.uint64 if unsigned else np.int64
    return wrap((np.asarray(a, kind) * np.asarray(b, kind) >> kind(bits)).astype(np.int64), bits)


def _plain(found: Value) -> Value:
    return found if isinstance(found, np.ndarray) else bool(found)


def _compare(row: Row, args: Sequence[Value], type_: str) -> Value:
    predicate = str(row.args.get("cmp", ""))
    if "f" in type_ or predicate not in COMPARISONS:
        return None
    left, right, *combined = args
    if type_.startswith("u"):
        left, right = _unsigned(left, _bits(type_)), _unsigned(right, _bits(type_))
    found = COMPARISONS[predicate](left, right)
    return _plain(LOGIC[str(row.args["combine"])](found, combined[0]) if combined else found)


def _select(yes: Value, no: Value, predicate: Value) -> Value:
    """`selp d, a, b, p`."""
    if predicate is None:
        return yes if yes is not None and no is not None and np.array_equal(yes, no) else None
    if np.all(predicate):
        return yes
    if not np.any(predicate):
        return no
    return None if yes is None or no is None else np.where(predicate, yes, no)


def _move(value: Value, type_: str) -> Value:
    """A copy, or two registers in one."""
    if not isinstance(value, tuple):
        return value
    low, high = value
    half = _bits(type_) // 2
    return wrap(_unsigned(low, half) | (high << half), 2 * half)


def _lane_of_each_warp(value: Value, lane: Value) -> Value:
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(lane, np.ndarray):
        if len(np.unique(lane)) != 1:
            return None
        lane = int(lane[0])
    return np.repeat(value.reshape(-1, WARP)[:, lane % WARP], WARP)
