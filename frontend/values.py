"""What a name can stand for while a kernel is traced, and how messages speak of it.

Compile-time things are plain Python: numbers, strings, None, tuples, dtypes, dimensions, words, functions. Run-time things are
`Value` (a tile or a scalar) and `ArrayRef` (an array argument). `Undefined` is a variable that has no value on some path; reading it is the error.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue

from ..dialects.tile_types import ui8 as UI8
from .types import Array, Dim, DType, bf16, f8E4M3FN, f8E5M2, f16, f32, f64, i1, i8, i16, i32, i64, index, ui8
from .words import Word

MOST_UNROLLED = 10_000
"""Trips of all unrolled loops of a program, and items of a tuple: about a second of compiling for a statement each."""

ATTRIBUTES: dict[DType, Attribute] = {
    f16: Float16Type(),
    bf16: BFloat16Type(),
    f32: Float32Type(),
    f64: Float64Type(),
    f8E4M3FN: Float8E4M3FNType(),
    f8E5M2: Float8E5M2Type(),
    i1: IntegerType(1),
    i8: IntegerType(8),
    ui8: UI8,
    i16: IntegerType(16),
    i32: IntegerType(32),
    i64: IntegerType(64),
    index: IndexType(),
}


@cache
def type_attribute(dtype: DType, shape: tuple[int, ...]) -> Attribute:
    """The IR type of a tile, or of a scalar where the shape is ()."""
    return TensorType(ATTRIBUTES[dtype], shape) if shape else ATTRIBUTES[dtype]


class Value:
    """A tile or (shape ()) a scalar of the kernel. `weak`: it stands for a Python number whose type is still being found.
    `nonneg`: an index that is known not to be negative."""

    __slots__ = ("dtype", "nonneg", "shape", "ssa", "weak")

    def __init__(self, ssa: SSAValue, dtype: DType, shape: tuple[int, ...] = (), weak: bool = False, nonneg: bool = False):
        self.ssa = ssa
        self.dtype = dtype
        self.shape = shape
        self.weak = weak
        self.nonneg = nonneg

    @property
    def type(self) -> Attribute:
        return type_attribute(self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class ArrayRef:
    """An array argument."""

    name: str
    ssa: SSAValue
    dtype: DType
    annotation: Array

    @property
    def shape(self) -> tuple[Dim | int, ...]:
        return tuple(int(e.value) if e.op == "int" else Dim(e) for e in self.annotation.shape)


@dataclass(frozen=True, eq=False)
class ChannelRef:
    """A channel: a ring of buffers in shared memory."""

    ssa: SSAValue
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Undefined:
    """Why a variable has no value here, and what to do."""

    message: str
    hint: str


@dataclass(frozen=True, eq=False)
class Method:
    """`x.sum`, or `ch.get`, before it is called."""

    owner: Value | ChannelRef
    name: str


@dataclass(frozen=True)
class Tracing:
    """A loop's `tesela.range(…)`; it has no other use than to be looped over."""

    word: Word
    args: tuple[Any, ...]


Number = (int, float)
"""The types of Python numbers; bool is an int."""


def is_number(value: Any) -> bool:
    """Whether it is a Python number or bool."""
    return isinstance(value, int | float)


def leaves(value: Any) -> Iterator[Any]:
    """The parts of a value that is a tuple of tuples of … ; anything else is its own only part."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def rebuild(like: Any, parts: Iterator[Any]) -> Any:
    """The inverse of `leaves`: a value of the form of `like` with these parts."""
    if isinstance(like, tuple):
        return tuple(rebuild(item, parts) for item in like)
    return next(parts)


def type_text(dtype: DType, shape: tuple[int, ...]) -> str:
    """`bf16[128, 64]`, or `bf16` for a scalar."""
    return f"{dtype.name}[{', '.join(map(str, shape))}]" if shape else dtype.name


LONGEST_INTEGER = 128
"""The bits up to which messages spell an integer; Python itself refuses to spell one of more than 4300 digits."""


def number_text(number: int | float) -> str:
    """A Python number in messages, after the word "number": its digits, or how long it is."""
    long = isinstance(number, int) and number.bit_length() > LONGEST_INTEGER
    return f"of {number.bit_length()} bits" if long else str(number)


def describe(value: Any) -> str:
    """A noun phrase for a value, for messages."""
    match value:
        case Value():
            kind = "the tile" if value.shape else "the scalar"
            return f"{kind} {type_text(value.dtype, value.shape)}"
        case ArrayRef():
            return f"the array {value.name}"
        case ChannelRef():
            return f"a channel of {type_text(value.dtype, value.shape)}"
        case Undefined():
            return "undefined"
        case bool() | None:
            return f"{value}"
        case int() | float():
            return f"the Python number {number_text(value)}"
        case str():
            return f"the string {value!r}"
        case tuple():
            return f"a tuple of {len(value)}"
        case Dim():
            return f"the dimension {value}"
        case DType():
            return f"the element type {value.name}"
        case Word():
            return f"the function tesela.{value.name}"
        case Method():
            return f"the method {value.name}"
        case Tracing():
            return f"a tesela.{value.word.name}"
        case ModuleType():
            return f"the module {value.__name__}"
        case FunctionType():
            return f"the function {value.__name__}"
        case _:
            return f"an object of type {type(value).__name__}"


Build = Callable[..., Any]
"""What builds a word: takes the tracer and the word's arguments."""

Node = ast.AST
