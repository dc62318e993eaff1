"""What each word of the language builds: one function for each entry of words.py, found by its name.

A builder takes the tracer and the word's arguments in the order of its declaration. Errors about one argument stand at that argument:
`t.at("shape")` is its expression in the call that is being traced.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from ..dialects import pins, tile
from ..dialects.layout import LayoutError, SharedLayout, TVLayout
from ..dialects.layout_attrs import SharedLayoutAttr, TVLayoutAttr, check_size, shared_layout_fault
from ..dialects.tile import ReduceKind
from ..passes import dot_types
from . import builder as b
from .hints import conversion
from .types import DTYPES, Dim, DType, f8E4M3FN, f8E5M2, f32, i1, i8, i32, i64, index, ui8
from .types import ceildiv as static_ceildiv
from .values import (
    MOST_UNROLLED,
    ArrayRef,
    Build,
    Tracing,
    Value,
    describe,
    is_number,
    number_text,
    type_attribute,
    type_text,
)
from .words import WORDS

if TYPE_CHECKING:
    from .trace import Tracer

BUILDERS: dict[str, Build] = {}
"""Word name -> what builds it."""


def builds(name: str) -> Callable[[Build], Build]:
    """Register the builder of a word."""

    def register(build: Build) -> Build:
        BUILDERS[name] = build
        return build

    return register


# The grid and loops


@builds("grid")
def grid(t: Tracer, *extents: Any) -> Any:
    return t.declare_grid(extents)


@builds("range")
def range_(t: Tracer, start: Any, stop: Any, step: Any) -> Tracing:
    return Tracing(WORDS["range"], (0, start, step) if stop is None else (start, stop, step))


def _length(start: int, stop: int, step: int) -> int:
    """How many numbers a range has, 0 or fewer for none. (`len` refuses ranges of more than 64 bits.)"""
    return -((start - stop) // step)


@builds("static_range")
def static_range(t: Tracer, start: Any, stop: Any, step: Any) -> tuple[int, ...]:
    bounds = (0, start, step) if stop is None else (start, stop, step)
    for bound in bounds:
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise t.error(
                f"the bounds of tesela.static_range must be known when compiling, found {describe(bound)}", "use tesela.range"
            )
    if bounds[2] == 0:
        raise t.error("the step of tesela.static_range is 0")
    if _length(*bounds) > MOST_UNROLLED:
        raise t.error(f"tesela.static_range of more than {MOST_UNROLLED} trips, each of which would be compiled for itself", "use tesela.range")
    return tuple(range(*bounds))


@builds("ceildiv")
def ceildiv(t: Tracer, x: Any, y: Any) -> Any:
    if all(isinstance(v, Dim) or (isinstance(v, int) and not isinstance(v, bool)) for v in (x, y)):
        if y == 0:
            raise t.error("ceildiv by zero", at=t.at("b"))
        return static_ceildiv(x, y)
    return t.b.ceildiv(*t.b.unify(x, y, "ceildiv"))


@builds("assume")
def assume(t: Tracer, fact: Any) -> None:
    raise AssertionError("the tracer reads the fact's syntax")  # see assumptions.py


# Memory


def array_argument(t: Tracer, array: Any, word: str) -> ArrayRef:
    if not isinstance(array, ArrayRef):
        raise t.error(f"tesela.{word} takes an array argument of the kernel, found {describe(array)}", at=t.at("array"))
    return array


def start_indices(t: Tracer, array: ArrayRef, starts: Any) -> list[SSAValue]:
    items = starts if isinstance(starts, tuple) else (starts,)
    rank = array.annotation.rank
    if len(items) != rank:
        raise t.error(
            f"the array {array.name} has {rank} dimension{'s' * (rank > 1)}, found {len(items)} start{'s' * (len(items) != 1)}",
            "give the element index where the tile starts for each dimension of the array",
            t.at("starts"),
        )
    return [t.b.index(item, "a start").ssa for item in items]


def tile_dims(t: Tracer, array: ArrayRef, rank: int, dims: Any) -> tuple[int, ...] | None:
    """The dimensions of the array that the tile covers; None for the last ones."""
    if rank > array.annotation.rank:
        raise t.error(f"a tile of {rank} dimensions does not fit the array {array.name}, which has {array.annotation.rank}")
    if dims is None:
        return None
    items = dims if isinstance(dims, tuple) else (dims,)
    in_range = all(isinstance(d, int) and 0 <= d < array.annotation.rank for d in items)
    if not in_range or len(items) != rank or len(set(items)) != rank:
        raise t.error(
            f"dims must name {rank} different dimensions of the array {array.name}, one for each of the tile, found {dims}",
            at=t.at("dims"),
        )
    last = tuple(range(array.annotation.rank - rank, array.annotation.rank))
    return None if items == last else items


@builds("load")
def load(t: Tracer, array: Any, starts: Any, shape: Any, fill: Any, dims: Any) -> Value:
    array = array_argument(t, array, "load")
    extents = t.b.extents(shape, t.at("shape"))
    return emit_load(t, array, start_indices(t, array, starts), extents, fill, tile_dims(t, array, len(extents), dims))


def emit_load(
    t: Tracer, array: ArrayRef, starts: list[SSAValue], shape: tuple[int, ...], fill: Any, dims: tuple[int, ...] | None
) -> Value:
    value = None
    if fill is not None:
        if isinstance(fill, Value) and fill.shape:
            raise t.error(f"the value past the edges must be a scalar, found {describe(fill)}", at=t.at("fill"))
        value = t.b.of_dtype(fill, array.dtype).ssa
    op = tile.LoadOp.make(array.ssa, starts, type_attribute(array.dtype, shape), value, dims)
    return t.b.emit(op, array.dtype, shape)


@builds("store")
def store(t: Tracer, array: Any, starts: Any, value: Any, dims: Any) -> None:
    array = array_argument(t, array, "store")
    value = store_value(t, array, value, t.at("value"))
    indices = start_indices(t, array, starts)
    t.b.add(tile.StoreOp.make(value.ssa, array.ssa, indices, tile_dims(t, array, len(value.shape), dims)))


def store_value(t: Tracer, array: ArrayRef, value: Any, at: ast.AST | None) -> Value:
    """`value` as elements of the array."""
    if isinstance(value, Value) and not value.weak and value.dtype is not array.dtype:
        raise t.error(
            f"the array {array.name} holds {array.dtype.name}, the value is {describe(value)}",
            f"convert it: x.to({array.dtype.name})",
            at,
        )
    if not isinstance(value, Value | Dim) and not is_number(value):
        raise t.error(f"a tile, a scalar or a number can be stored, found {describe(value)}", at=at)
    outer = t.b.node
    t.b.node = at if at is not None else outer
    stored = t.b.of_dtype(value, array.dtype)
    t.b.node = outer
    return stored


# Making tiles


def dtype_argument(t: Tracer, dtype: Any, name: str = "dtype") -> DType:
    if not isinstance(dtype, DType):
        raise t.error(f"an element type is required, found {describe(dtype)}", "write tesela.f32, tesela.bf16, …", t.at(name))
    return dtype


def tile_dtype(t: Tracer, dtype: Any, shape: tuple[int, ...]) -> DType:
    """The element type of a tile, or of a scalar where the shape is ()."""
    if dtype is index and shape:
        raise t.error("a tile of index is not in the language", "use i64", t.at("dtype"))
    return dtype_argument(t, dtype)


@builds("zeros")
def zeros(t: Tracer, shape: Any, dtype: Any) -> Value:
    extents = t.b.extents(shape, t.at("shape"))
    dtype = tile_dtype(t, dtype, extents)
    return t.b.broadcast(t.b.constant(False if dtype is i1 else 0, dtype), extents)


@builds("full")
def full(t: Tracer, shape: Any, value: Any, dtype: Any) -> Value:
    extents = t.b.extents(shape, t.at("shape"))
    if isinstance(value, Dim):
        value = t.b.dim(value)
    if dtype is None and not isinstance(value, Value):
        raise t.error(f"tesela.full needs the element type of {describe(value)}", "write tesela.full(shape, value, f32)")
    if isinstance(value, Value) and value.shape:
        raise t.error(f"tesela.full takes a scalar, found {describe(value)}", "use tesela.broadcast_to", t.at("value"))
    scalar = value if dtype is None else t.b.of_dtype(value, tile_dtype(t, dtype, extents))
    return t.b.broadcast(scalar, extents) if extents else scalar


def integer_dtype(t: Tracer, dtype: Any) -> DType:
    if dtype is None:
        return i32
    if dtype not in (i32, i64):
        raise t.error(f"the element type must be i32 or i64, found {describe(dtype)}", "convert the result: x.to(…)", t.at("dtype"))
    return dtype


@builds("arange")
def arange(t: Tracer, start: Any, stop: Any, step: Any, dtype: Any) -> Value:
    dtype = integer_dtype(t, dtype)
    bounds = (0, start, step) if stop is None else (start, stop, step)
    for bound in bounds:
        if not isinstance(bound, int) or isinstance(bound, bool):
            hint = "write start + tesela.arange(size)"
            raise t.error(f"the bounds of tesela.arange must be known when compiling, found {describe(bound)}", hint)
    start, stop, step = bounds
    count = _length(start, stop, step) if step else 0
    if count < 1:
        raise t.error(f"tesela.arange({', '.join(map(number_text, bounds))}) has no elements")
    t.b.extents(count)
    result = t.b.emit(tile.IotaOp.make(type_attribute(dtype, (count,))), dtype, (count,))
    if step != 1:
        result = t.b.binary("*", result, step)
    return t.b.binary("+", result, start) if start else result


@builds("iota")
def iota(t: Tracer, shape: Any, axis: Any, dtype: Any) -> Value:
    extents = t.b.extents(shape, t.at("shape"))
    dtype = integer_dtype(t, dtype)
    op = tile.IotaOp.make(type_attribute(dtype, extents), axis_argument(t, axis, len(extents)))
    return t.b.emit(op, dtype, extents)


# Shapes


def tile_argument(t: Tracer, x: Any, word: str, name: str = "x") -> Value:
    if not isinstance(x, Value) or not x.shape:
        hint = "load a tile of it first" if isinstance(x, ArrayRef) else None
        raise t.error(f"tesela.{word} takes a tile, found {describe(x)}", hint, t.at(name))
    return x


def axis_argument(t: Tracer, axis: Any, rank: int) -> int:
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise t.error(f"an axis must be an integer known when compiling, found {describe(axis)}", at=t.at("axis"))
    if not -rank <= axis < rank:
        raise t.error(f"axis {axis} is outside the {rank} dimension{'s' * (rank != 1)} of the tile", at=t.at("axis"))
    return axis % rank


@builds("reshape")
def reshape(t: Tracer, x: Any, shape: Any) -> Value:
    x = tile_argument(t, x, "reshape")
    items = list(shape) if isinstance(shape, tuple) else [shape]
    total = math.prod(x.shape)
    if items.count(-1) == 1:
        known = math.prod(item for item in items if isinstance(item, int) and item != -1)
        if known > 0 and total % known == 0:
            items[items.index(-1)] = total // known
    extents = t.b.extents(tuple(items), t.at("shape"))
    if math.prod(extents) != total:
        raise t.error(
            f"a tile of shape {x.shape} has {total} elements, {tuple(shape) if isinstance(shape, tuple) else shape} "
            f"has {math.prod(extents)}",
            at=t.at("shape"),
        )
    return x if extents == x.shape else t.b.emit(tile.ReshapeOp.make(x.ssa, extents), x.dtype, extents)


@builds("transpose")
def transpose(t: Tracer, x: Any, axes: Any) -> Value:
    x = tile_argument(t, x, "transpose")
    rank = len(x.shape)
    if axes is None:
        if rank < 2:
            return x
        axes = (*range(rank - 2), rank - 1, rank - 2)
    if not isinstance(axes, tuple) or sorted(axes, key=repr) != sorted(range(rank), key=repr):
        raise t.error(f"axes must be a permutation of 0 … {rank - 1}, found {axes}", at=t.at("axes"))
    shape = tuple(x.shape[axis] for axis in axes)
    return t.b.emit(tile.TransposeOp.make(x.ssa, axes), x.dtype, shape)


@builds("expand_dims")
def expand_dims(t: Tracer, x: Any, axis: Any) -> Value:
    x = t.b.value(x)
    return t.b.expand(x, axis_argument(t, axis, len(x.shape) + 1))


@builds("broadcast_to")
def broadcast_to(t: Tracer, x: Any, shape: Any) -> Value:
    x = t.b.value(x)
    extents = t.b.extents(shape, t.at("shape"))
    aligned = (1,) * (len(extents) - len(x.shape)) + x.shape
    if len(aligned) != len(extents) or any(have not in (1, want) for have, want in zip(aligned, extents)):
        raise t.error(f"the shape {x.shape} does not broadcast to {extents}", at=t.at("shape"))
    return t.b.broadcast(x, extents)


# Elementwise


@builds("where")
def where(t: Tracer, condition: Any, x: Any, y: Any) -> Any:
    if isinstance(condition, bool):
        return x if condition else y
    condition = t.b.value(condition)
    if condition.dtype is not i1:
        raise t.error(f"the condition must be i1, found {describe(condition)}", "compare: x != 0", t.at("condition"))
    x, y = t.b.unify_dtypes(x, y, "tesela.where")
    shape = t.b.common_shape([condition, x, y], "tesela.where")
    return t.b.select(*(t.b.broadcast(v, shape) for v in (condition, x, y)))


@builds("cast")
def cast(t: Tracer, x: Any, dtype: Any, saturate: Any) -> Value:
    dtype = dtype_argument(t, dtype)
    if not isinstance(saturate, bool):
        raise t.error(f"saturate must be True or False, found {describe(saturate)}", at=t.at("saturate"))
    if saturate and dtype.kind != "float":
        raise t.error("saturate is for casts to floats; casts from floats to integers always saturate", at=t.at("saturate"))
    if is_number(x):
        return t.b.constant(x if dtype.kind == "float" or isinstance(x, int) else int(x), dtype)
    return t.b.cast(t.b.value(x), dtype, saturate)


def _elementwise(op: str) -> Build:
    def build(t: Tracer, x: Any, y: Any) -> Any:
        return t.b.binary(op, x, y)

    return build


def _function(name: str) -> Build:
    python = {"rsqrt": lambda x: 1 / math.sqrt(x), "abs": abs}.get(name) or getattr(math, name)

    def build(t: Tracer, x: Any) -> Any:
        if is_number(x):
            try:
                return python(x)
            except (ArithmeticError, ValueError) as error:
                raise t.error(f"tesela.{name} of {describe(x)}: {error}") from None
        return t.b.unary(name, x)

    return build


for _name in ("maximum", "minimum"):
    BUILDERS[_name] = _elementwise(_name)
for _name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sin", "cos", "abs", "floor", "ceil"):
    BUILDERS[_name] = _function(_name)


@builds("fma")
def fma(t: Tracer, x: Any, y: Any, z: Any) -> Value:
    x, y = t.b.unify(x, y, "tesela.fma")
    x, z = t.b.unify(x, z, "tesela.fma")
    y = t.b.broadcast(t.b.of_dtype(y, x.dtype), x.shape)
    if x.dtype.kind != "float":
        raise t.error(f"tesela.fma takes floats, found {describe(x)}", "write x * y + z")
    op = math_dialect.FmaOp.create(operands=[x.ssa, y.ssa, z.ssa], result_types=[x.type], properties=b.NO_FASTMATH)
    return t.b.emit(op, x.dtype, x.shape)


# Reductions


def _reduction(kind: ReduceKind) -> Build:
    index_kind = kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)

    def build(t: Tracer, x: Any, axis: Any, keepdims: Any) -> Value:
        x = tile_argument(t, x, kind.value)
        rank = len(x.shape)
        if x.dtype is i1:
            raise t.error(f"tesela.{kind.value} of {describe(x)}", "convert first: x.to(i32)", t.at("x"))
        axes = tuple(range(rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(axis_argument(t, a, rank) for a in axes)
        if len(set(axes)) != len(axes):
            raise t.error(f"the axes {axes} name a dimension twice", at=t.at("axis"))
        if index_kind and len(axes) != 1:
            raise t.error(f"tesela.{kind.value} takes one axis, found {axes}", "reshape to one dimension first", t.at("axis"))
        shape = x.shape
        for a in sorted(axes, reverse=True):
            op = tile.ReduceOp.make(kind, x.ssa, a)
            x = t.b.emit(op, i32 if index_kind else x.dtype, x.shape[:a] + x.shape[a + 1 :])
        if keepdims:
            kept = tuple(1 if a in axes else extent for a, extent in enumerate(shape))
            if not x.shape:
                return t.b.broadcast(x, kept)
            for a in sorted(axes):
                x = t.b.expand(x, a)
        return x

    return build


for _kind in ReduceKind:
    BUILDERS[_kind.value] = _reduction(_kind)


def _scan(word: str, kind: ReduceKind) -> Build:
    def build(t: Tracer, x: Any, axis: Any, exclusive: Any, reverse: Any) -> Value:
        x = tile_argument(t, x, word)
        if x.dtype is i1 or x.dtype is ui8:
            raise t.error(f"tesela.{word} of {describe(x)}", "convert first: x.to(i32)", t.at("x"))
        for name, flag in (("exclusive", exclusive), ("reverse", reverse)):
            if not isinstance(flag, bool):
                raise t.error(f"{name} must be True or False, found {describe(flag)}", at=t.at(name))
        op = tile.ScanOp.make(kind, x.ssa, axis_argument(t, axis, len(x.shape)), exclusive, reverse)
        return t.b.emit(op, x.dtype, x.shape)

    return build


for _name, _kind in (("cumsum", ReduceKind.SUM), ("cumprod", ReduceKind.PROD), ("cummax", ReduceKind.MAX), ("cummin", ReduceKind.MIN)):
    BUILDERS[_name] = _scan(_name, _kind)


@builds("histogram")
def histogram(t: Tracer, x: Any, bins: Any) -> Value:
    x = tile_argument(t, x, "histogram")
    if x.dtype is not i32:
        raise t.error(f"tesela.histogram takes a tile of i32, found {describe(x)}", "convert it: x.to(tesela.i32)", t.at("x"))
    if isinstance(bins, tuple):
        raise t.error(f"tesela.histogram takes one number of bins, found {describe(bins)}", at=t.at("bins"))
    shape = t.b.extents(bins, t.at("bins"))
    return t.b.emit(tile.HistogramOp.make(x.ssa, *shape), i32, shape)


# Matrices

ACCUMULATORS = {DTYPES[operand]: tuple(DTYPES[name] for name in sums) for operand, sums in dot_types.ACCUMULATORS.items()}
"""The types in which products of an operand type may be summed, the default first."""
MIXED_OPERANDS = ({f8E4M3FN, f8E5M2}, {i8, ui8})


@builds("dot")
def dot(t: Tracer, a: Any, b_: Any, acc: Any, precision: Any = None) -> Value:
    a, b_ = tile_argument(t, a, "dot", "a"), tile_argument(t, b_, "dot", "b")
    if a.dtype is not b_.dtype and {a.dtype, b_.dtype} not in MIXED_OPERANDS:
        raise t.error(
            f"the operands of a dot must have one element type, found {a.dtype.name} and {b_.dtype.name}",
            conversion(a.dtype, b_.dtype, ACCUMULATORS),
        )
    sums = ACCUMULATORS.get(a.dtype)
    if sums is None:
        raise t.error(f"a dot of {a.dtype.name} is not in the language", f"convert to one of {', '.join(d.name for d in ACCUMULATORS)}")
    rank = len(a.shape)
    if rank < 2 or rank != len(b_.shape) or a.shape[:-2] != b_.shape[:-2] or a.shape[-1] != b_.shape[-2]:
        hint = "the columns of the left operand and the rows of the right one must be equal"
        if rank >= 2 and a.shape[:-2] == b_.shape[:-2] and a.shape[-1] == b_.shape[-1]:
            hint += "; transpose the right one: b.T"
        raise t.error(f"a dot of shapes {a.shape} and {b_.shape}: M×K and K×N are required", hint)
    shape = (*a.shape[:-1], b_.shape[-1])
    if acc is None:
        acc = t.b.broadcast(t.b.constant(0, sums[0]), shape)
    elif not isinstance(acc, Value) or acc.shape != shape or acc.dtype not in sums:
        raise t.error(
            f"the accumulator must be {' or '.join(type_text(wide, shape) for wide in sums)}, found {describe(acc)}",
            f"start with tesela.zeros({shape}, tesela.{sums[0].name})",
            t.at("acc"),
        )
    op = tile.DotOp.make(a.ssa, b_.ssa, acc.ssa)
    if precision is not None:
        if precision != "tf32" or a.dtype is not f32:
            raise t.error(f'precision is "tf32", for f32 operands, found {describe(precision)} for {a.dtype.name}', at=t.at("precision"))
        op.attributes[tile.PRECISION] = StringAttr(precision)
    return t.b.emit(op, acc.dtype, shape)


# Choices of the compiler

COPIES = ("tma", "cp.async", "ld")


@builds("pin")
def pin(t: Tracer, x: Any, layout: Any = None, shared: Any = None, copy: Any = None, instruction: Any = None) -> Value:
    x = tile_argument(t, x, "pin", "x")
    owner = x.ssa.owner
    if not isinstance(owner, Operation) or len(owner.results) != 1:
        raise t.error("pin fixes what is computed here, and this value comes from a loop or a conditional", "pin it where it is computed")
    if layout is not None:
        _fix(t, owner, pins.LAYOUT, TVLayoutAttr(parsed_layout(t, "layout", layout, TVLayout, len(x.shape))))
    if shared is not None:
        found = parsed_layout(t, "shared", shared, SharedLayout, len(x.shape))
        if (fault := shared_layout_fault(found, x.shape)) is not None:
            raise t.error(f"shared, {found}: {fault}", at=t.at("shared"))
        _fix(t, owner, pins.SHARED, SharedLayoutAttr(found))
    if copy is not None:
        if copy not in COPIES or not isinstance(owner, tile.LoadOp):
            raise t.error(f"copy is one of {', '.join(COPIES)}, of a tile that is loaded, found {describe(copy)}", at=t.at("copy"))
        _fix(t, owner, pins.COPY, StringAttr(copy))
    if instruction is not None:
        if not isinstance(instruction, str) or not instruction.strip() or not isinstance(owner, tile.DotOp):
            hint = 'tesela.pin(acc + a @ b, instruction="m64n128k16")'
            raise t.error(f"instruction is a text, for the result of a dot, found {describe(instruction)}", hint, t.at("instruction"))
        _fix(t, owner, pins.INSTRUCTION, StringAttr(instruction))
    return x


def _fix(t: Tracer, owner: Operation, name: str, choice: StringAttr | TVLayoutAttr | SharedLayoutAttr) -> None:
    """Fixes one choice of what `owner` computes; TeselaError if it is fixed otherwise."""
    before = owner.attributes.setdefault(name, choice)
    if before != choice:
        assert isinstance(before, StringAttr | TVLayoutAttr | SharedLayoutAttr)
        raise t.error(
            f"{name} is pinned twice: as {before.data} and as {choice.data}", "pin it once, with all that it must have", t.at(name)
        )


Layout = TypeVar("Layout", TVLayout, SharedLayout)


def parsed_layout(t: Tracer, name: str, text: Any, kind: type[Layout], rank: int) -> Layout:
    """A layout from its text, or as it is."""
    try:
        found = kind.parse(text) if isinstance(text, str) else text
        if not isinstance(found, kind):
            raise t.error(f"{name} is a layout or the text of one, found {describe(text)}", at=t.at(name))
        check_size(found)
    except LayoutError as error:
        raise t.error(f"{name}: {error}", at=t.at(name)) from None
    if found.rank != rank:
        raise t.error(f"{name} has {found.rank} dimensions, the tile has {rank}", at=t.at(name))
    return found
