"""Values of the ptx level without inputs: what each thread of a block has in a register, as far as it is known. For `check-barriers`.

A value is one of

    int, bool          a number that all threads have
    np.ndarray         a number for each thread of the block: what depends on thread indices alone
    Form, Condition    one unknown for all threads, by structure (passes/symbolic.py): parameters, block indices, what is computed of them
    None               not known, and not known to be the same for all threads: what is loaded, sums of products, ...

so that `%tid.x >> 5` is known thread by thread, `d_K - 64` is a linear form, and both roles' computations of one number of trips give one form. Numbers
are kept as signed ones of their register's width; forms do not wrap round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dialects.ptx_isa import Row
from ..passes.symbolic import Condition, Form, compare, negation, structure

Value = Any
"""int, bool, np.ndarray, Form, Condition or None; a tuple of these for several registers."""
WARP = 32
Ask = Callable[[Condition], bool]


def as_form(value: Value) -> Form | None:
    """The value as a linear form, None for what differs from thread to thread."""
    if isinstance(value, bool | int | np.bool_ | np.integer):
        return Form(int(value))
    if isinstance(value, Form):
        return value
    return Form.of(("truth", value)) if isinstance(value, Condition) else None


def is_known(value: Value) -> bool:
    """Whether it is a number, or one for each thread."""
    return isinstance(value, bool | int | np.ndarray | np.bool_ | np.integer)


def wrap(value: Value, bits: int) -> Value:
    """A number as a signed one of so many bits."""
    if isinstance(value, np.ndarray):
        if bits >= 64 or value.dtype == bool:
            return value
        half = 1 << (bits - 1)
        return ((value + half) & ((1 << bits) - 1)) - half
    half = 1 << (bits - 1)
    return ((int(value) + half) & ((1 << bits) - 1)) - half


def _unsigned(value: Value, bits: int) -> Value:
    if isinstance(value, np.ndarray):
        return value if bits >= 64 else value & ((1 << bits) - 1)
    return value & ((1 << bits) - 1)


def _bits(type_: str) -> int:
    digits = "".join(filter(str.isdigit, type_))
    return int(digits) if digits else 1


def _quotient(a: Value, b: Value) -> Value:
    """Division toward zero, as PTX's; 0 where the divisor is 0."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        safe = np.where(np.equal(b, 0), 1, b)
        return np.where(np.equal(b, 0), 0, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))
    return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def _shift_left(a: Value, b: Value) -> Value:
    return np.left_shift(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a << min(b, 64)


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
    "shl": _shift_left,
    "shr": lambda a, b: a >> b,
    "min": lambda a, b: np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b),
    "max": lambda a, b: np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b),
    "div": _quotient,
    "rem": lambda a, b: a - _quotient(a, b) * b,
    "cvt": lambda a: a,
}
"""Meanings of instructions on whole numbers, before they wrap round."""
LOGIC = {"and": "and", "or": "or", "xor": "xor"}


def evaluate(row: Row, args: Sequence[Value], ask: Ask) -> Value:
    """The result of one instruction; of several registers as a tuple. `ask`: the answer to a condition that decides what a thread has."""
    type_ = str(row.args.get("type", ""))
    if type_ == "pred" or (row.meaning == "setp"):
        return _predicate(row, args, type_, ask)
    if row.meaning == "mov":
        return _move(args[0], type_)
    if row.meaning == "selp":
        return _select(row, args, ask)
    if row.meaning == "mapa":
        return args[0]  # the blocks of a cluster do the same: what is sent to another's mbarrier, another sends to this one's
    if row.meaning == "shfl" and row.args.get("mode") == "idx" and all(is_known(arg) for arg in args[:2]):
        return _lane_of_each_warp(args[0], args[1])
    if "f" in type_ or row.meaning not in NUMBERS or "sat" in row.args:
        return _unknown(row, args)
    if row.meaning == "cvt":
        type_ = str(row.args.get("to", type_))
        if "f" in type_ or "f" in str(row.args.get("from", "")):
            return _unknown(row, args)
    bits = _bits(type_) * (2 if row.meaning.endswith("_wide") else 1)
    if all(is_known(arg) for arg in args):
        if type_.startswith(("u", "b")) and row.meaning in ("shr", "min", "max", "div", "rem"):
            args = [_unsigned(arg, bits) for arg in args]
        elif row.meaning == "cvt" and str(row.args.get("from", type_)).startswith("u"):
            args = [_unsigned(args[0], _bits(str(row.args["from"])))]
        return wrap(NUMBERS[row.meaning](*args), bits)
    return _linear(row.meaning, args) or _unknown(row, args)


def _linear(meaning: str, args: Sequence[Value]) -> Form | None:
    """The result as a linear form, where it is one."""
    forms = [as_form(arg) for arg in args]
    if any(form is None for form in forms):
        return None
    first, *others = forms
    assert first is not None
    match meaning:
        case "add" | "sub":
            assert others[0] is not None
            return first + others[0] if meaning == "add" else first - others[0]
        case "mul_lo" | "mul_wide" | "mad_lo" | "mad_wide":
            second, *more = others
            assert second is not None
            if not second.is_constant:
                first, second = second, first
            if not second.is_constant:
                return None
            product = first.scaled(second.constant)
            return product + more[0] if more and more[0] is not None else product
        case "shl":
            assert others[0] is not None
            return first.scaled(1 << others[0].constant) if others[0].is_constant and 0 <= others[0].constant < 64 else None
        case "cvt":
            return first
        case _:
            return None


def _unknown(row: Row, args: Sequence[Value]) -> Value:
    """What is computed from unknowns that all threads share is one, by its structure; and otherwise not known at all."""
    if "volatile" in row.effects or any(effect.startswith("read") for effect in row.effects) or row.meaning == "shfl":
        return None
    forms = [as_form(arg) for arg in args]
    return None if any(form is None for form in forms) else Form.of(structure((row.opcode, *forms)))


def _condition(value: Value) -> Condition:
    if isinstance(value, Condition):
        return value
    if isinstance(value, Form):
        return Condition("atom", atom=("nonzero", value))
    return Condition("and" if bool(value) else "or")  # of nothing: true, and false


def _predicate(row: Row, args: Sequence[Value], type_: str, ask: Ask) -> Value:
    if row.meaning == "setp":
        return _compare(row, args, type_)
    if any(arg is None for arg in args):
        false = row.meaning == "and" and any(is_known(arg) and not np.any(arg) for arg in args)
        return False if false else None
    if row.meaning == "mov":
        return args[0]
    if row.meaning == "not":
        return np.logical_not(args[0]) if is_known(args[0]) else negation(_condition(args[0]))
    if row.meaning not in LOGIC:
        return None
    if not all(is_known(arg) for arg in args):
        if not any(isinstance(arg, np.ndarray) for arg in args):
            return Condition(LOGIC[row.meaning], parts=tuple(map(_condition, args)))
        args = [arg if is_known(arg) else ask(_condition(arg)) for arg in args]
    function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[row.meaning]
    found = function(*args)
    return found if isinstance(found, np.ndarray) else bool(found)


def _compare(row: Row, args: Sequence[Value], type_: str) -> Value:
    predicate = str(row.args.get("cmp", ""))
    if len(args) != 2 or "f" in type_ or predicate not in ("lt", "le", "gt", "ge", "eq", "ne"):
        return _as_condition(_unknown(row, args))
    left, right = args
    if is_known(left) and is_known(right):
        if type_.startswith("u"):
            left, right = _unsigned(left, _bits(type_)), _unsigned(right, _bits(type_))
        found = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}[predicate](left, right)
        return found if isinstance(found, np.ndarray) else bool(found)
    forms = as_form(left), as_form(right)
    if forms[0] is None or forms[1] is None:
        return None
    return compare(predicate if predicate in ("eq", "ne") else f"s{predicate}", forms[0], forms[1])


def _as_condition(value: Value) -> Value:
    return Condition("atom", atom=("nonzero", value)) if isinstance(value, Form) else value


def _select(row: Row, args: Sequence[Value], ask: Ask) -> Value:
    """`selp d, a, b, p`. What of two different numbers it is, is asked."""
    yes, no, predicate = args
    if predicate is None:
        return yes if is_known(yes) and is_known(no) and np.array_equal(yes, no) else None
    if isinstance(predicate, Condition | Form):
        if is_known(yes) and is_known(no):
            return yes if np.array_equal(yes, no) or ask(_condition(predicate)) else no
        return _unknown(row, args)
    if not isinstance(predicate, np.ndarray):
        return yes if predicate else no
    if predicate.all():
        return yes
    if not predicate.any():
        return no
    return np.where(predicate, yes, no) if is_known(yes) and is_known(no) else None


def _move(value: Value, type_: str) -> Value:
    """A copy, or two registers in one, or one in two."""
    if not isinstance(value, tuple):
        return value
    low, high = value
    if not (is_known(low) and is_known(high)):
        return None
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
