"""What a kernel's signature is written in: element types, symbolic dimensions, array annotations, compile-time constants.

    M, N, K = tesela.dims("M N K")
    T = tesela.dtype("T")

    def gemm(A: Array[T, M, K],                          # rows anywhere, elements of a row side by side (the default)
             W: Array[T, N, K, strides(1, None)],        # elements of a column side by side
             C: Array[f32, M, N, align(16), noalias],
             alpha: f32,                                 # a scalar of the call
             BM: tesela.constexpr = 128): ...            # known when compiling

Plain Python: neither xDSL nor NumPy is loaded, so that a module of kernels imports in no time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ..dialects.diagnostics import Location, TeselaError
from ..dialects.dim_expr import DimExpr, DimExprError

__all__ = [
    "Array",
    "Channel",
    "DType",
    "Dim",
    "Tile",
    "align",
    "bf16",
    "constexpr",
    "dims",
    "dtype",
    "f16",
    "f32",
    "f64",
    "f8E4M3FN",
    "f8E5M2",
    "i1",
    "i16",
    "i32",
    "i64",
    "i8",
    "index",
    "noalias",
    "strides",
    "ui8",
]


class Tile:
    """A tile or a scalar of a kernel, for annotations of helper functions: `def relu(x: Tile) -> Tile`.

    Type checkers take array arguments and what words give for this class; the tracer reads no annotations of helpers.
    """

    if TYPE_CHECKING:
        shape: tuple[Any, ...]
        dtype: Any
        ndim: int

        @property
        def T(self) -> Tile: ...
        def __getitem__(self, item: Any) -> Tile: ...
        def __setitem__(self, item: Any, value: Any) -> None: ...
        def __bool__(self) -> bool: ...
        def __eq__(self, other: Any) -> Tile: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Tile: ...  # type: ignore[override]
        def to(self, dtype: Any, *, saturate: bool = False) -> Tile: ...
        def astype(self, dtype: Any, *, saturate: bool = False) -> Tile: ...
        def reshape(self, *shape: Any) -> Tile: ...
        def transpose(self, *axes: Any) -> Tile: ...
        def argmax(self, axis: int, *, keepdims: bool = False) -> Tile: ...
        def argmin(self, axis: int, *, keepdims: bool = False) -> Tile: ...
        def _reduce(self, axis: Any = None, *, keepdims: bool = False) -> Tile: ...
        def _unary(self) -> Tile: ...
        def _binary(self, other: Any) -> Tile: ...

        sum = prod = max = min = _reduce
        __neg__ = __pos__ = __invert__ = __abs__ = _unary
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _binary
        __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __lshift__ = __rshift__ = __and__ = __rand__ = __or__ = __ror__ = _binary
        __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = _binary


class Slot(Tile):
    """The tile of a channel's slot; `with` gives the slot back."""

    if TYPE_CHECKING:

        def __enter__(self) -> Tile: ...
        def __exit__(self, *reason: Any) -> None: ...


class Channel:
    """What `tesela.channel` makes in a kernel, for annotations of helper functions."""

    if TYPE_CHECKING:

        def put(self, tile: Any, *, copy: Literal["tma", "cp.async", "ld"] | None = None) -> None: ...
        def get(self) -> Slot: ...
        def release(self) -> None: ...


if TYPE_CHECKING:
    # To type checkers an element type is a class, so that it can annotate a scalar, and DType is the class of these classes.

    class DType(type):
        name: str
        kind: Literal["float", "int", "bool", "index"]
        bits: int

    class _Scalar(Tile, metaclass=DType):
        def __init__(self, value: Any) -> None: ...

    class f16(_Scalar): ...

    class bf16(_Scalar): ...

    class f32(_Scalar): ...

    class f64(_Scalar): ...

    class f8E4M3FN(_Scalar): ...

    class f8E5M2(_Scalar): ...

    class ui8(_Scalar): ...

    class i1(_Scalar): ...

    class i8(_Scalar): ...

    class i16(_Scalar): ...

    class i32(_Scalar): ...

    class i64(_Scalar): ...

    class index(_Scalar): ...

else:

    @dataclass(frozen=True, slots=True)
    class DType:
        """An element type. Called inside a kernel it casts: `f32(x)`. `kind`: float, int, bool or index; `bits`: its width."""

        name: str
        kind: str
        bits: int

        def __repr__(self) -> str:
            return f"tesela.{self.name}"

        def __reduce__(self) -> str:
            """Copies, and what another process unpickles, are the type itself: types are told apart by identity."""
            return self.name

        def __call__(self, value: Any) -> NoReturn:
            raise outside_kernel(self.name)

    f16 = DType("f16", "float", 16)
    bf16 = DType("bf16", "float", 16)
    f32 = DType("f32", "float", 32)
    f64 = DType("f64", "float", 64)
    f8E4M3FN = DType("f8E4M3FN", "float", 8)
    f8E5M2 = DType("f8E5M2", "float", 8)
    ui8 = DType("ui8", "int", 8)
    i1 = DType("i1", "bool", 1)
    i8 = DType("i8", "int", 8)
    i16 = DType("i16", "int", 16)
    i32 = DType("i32", "int", 32)
    i64 = DType("i64", "int", 64)
    index = DType("index", "index", 64)

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in (f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i1, i8, i16, i32, i64, ui8, index)}


@dataclass(frozen=True, slots=True)
class DTypeVariable:
    """An element type that the arrays of a call decide; inside a kernel it is the element type."""

    name: str

    def __repr__(self) -> str:
        return self.name

    def __call__(self, value: Any) -> NoReturn:
        raise outside_kernel(self.name)


def dtype(name: str) -> Any:
    """A type variable: with `T = tesela.dtype("T")`, all arrays stated as `Array[T, …]` must have one element type, T in the kernel."""
    return DTypeVariable(name)


def outside_kernel(name: str) -> TeselaError:
    """The error for a word of the language that ordinary Python calls; its place is the call."""
    return TeselaError.at(
        caller_place(sys._getframe(2)),
        f"tesela.{name} has a meaning inside a kernel only",
        "call it in a function decorated with @tesela.kernel, or in one that such a function calls",
    )


def caller_place(frame: FrameType) -> Location:
    """Where `frame` stands, with the column of the expression that it is evaluating."""
    positions = list(frame.f_code.co_positions())
    line, _, column, _ = positions[frame.f_lasti // 2] if frame.f_lasti >= 0 else (None,) * 4
    return Location(frame.f_code.co_filename, line or frame.f_lineno, (column or 0) + 1)


if TYPE_CHECKING:
    constexpr = Any
else:

    class constexpr:
        """Annotation of a parameter whose value is known when compiling: `BM: tesela.constexpr = 128`.

        Each combination of values is a program of its own. A value is a Python number, a string,
        an element type, a function (a helper that the kernel calls), None, or a tuple of those.
        """


class Dim:
    """A symbolic dimension, or an expression of some: an integer that is known at launch.

    `+ - * // %` with integers and dimensions give dimensions; inside a kernel a dimension is an index like any other, and where it
    meets a float it is converted, as a Python integer would be.
    """

    __slots__ = ("expr",)

    def __init__(self, name: str | DimExpr):
        if isinstance(name, str):
            try:
                name = DimExpr.parse(name)
            except DimExprError as error:
                raise TeselaError.at(caller_place(sys._getframe(1)), str(error)) from None
        self.expr = name

    def __repr__(self) -> str:
        return str(self.expr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and other.expr == self.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __add__(self, other: Dim | int) -> Dim:
        return combine("+", self, other)

    def __radd__(self, other: Dim | int) -> Dim:
        return combine("+", other, self)

    def __sub__(self, other: Dim | int) -> Dim:
        return combine("-", self, other)

    def __rsub__(self, other: Dim | int) -> Dim:
        return combine("-", other, self)

    def __mul__(self, other: Dim | int) -> Dim:
        return combine("*", self, other)

    def __rmul__(self, other: Dim | int) -> Dim:
        return combine("*", other, self)

    def __floordiv__(self, other: Dim | int) -> Dim:
        return combine("floordiv", self, other)

    def __rfloordiv__(self, other: Dim | int) -> Dim:
        return combine("floordiv", other, self)

    def __mod__(self, other: Dim | int) -> Dim:
        return combine("mod", self, other)

    def __rmod__(self, other: Dim | int) -> Dim:
        return combine("mod", other, self)


    def __truediv__(self, other: object) -> Any:
        raise _no_extent(f"{self} / {other}")

    def __rtruediv__(self, other: object) -> Any:
        raise _no_extent(f"{other} / {self}")


def _no_extent(text: str) -> TeselaError:
    """The error of a division that gives a float."""
    hint = "write //, or tesela.ceildiv (arrays of elements smaller than a byte have their extents in elements, not in bytes)"
    return TeselaError.at(caller_place(sys._getframe(2)), f"{text} is no dimension: / gives a float, and an extent is an integer", hint)


_IDENTITY = {"+": 0, "-": 0, "*": 1, "floordiv": 1, "ceildiv": 1}


def combine(op: str, left: Dim | int, right: Dim | int) -> Any:
    """`left op right` as a dimension, or as an int where both are; `op` is one of DimExpr's. Identities are dropped."""
    first, second = (side.expr if isinstance(side, Dim) else _int_expr(side) for side in (left, right))
    if first is None or second is None:
        return NotImplemented
    if second.op == "int" and _IDENTITY.get(op) == second.value:
        return left
    expr = DimExpr(op, 0, (first, second))
    return expr.evaluate({}) if first.op == second.op == "int" else Dim(expr)


def _int_expr(value: Any) -> DimExpr | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    # The grammar of dimension expressions has no negative literals.
    return DimExpr("int", value) if value >= 0 else DimExpr("-", 0, (DimExpr("int", 0), DimExpr("int", -value)))


def dims(names: str) -> Any:
    """The dimensions of these names, `M, N = tesela.dims("M N")`; a single one for a single name."""
    found = tuple(Dim(name) for name in names.replace(",", " ").split())
    if not found:
        raise TeselaError.at(caller_place(sys._getframe(1)), "tesela.dims needs at least one name")
    return found[0] if len(found) == 1 else found


@dataclass(frozen=True, slots=True)
class strides:
    """Qualifier of an array annotation: its strides in elements, `None` where any will do: `strides(1, None)`.

    Without it the last dimension has stride 1 and the others any.
    """

    values: tuple[int | None, ...]

    def __init__(self, *values: int | None):
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, slots=True)
class align:
    """Qualifier of an array annotation: its address, and its strides but unit ones, are multiples of so many bytes."""

    nbytes: int


class _NoAlias:
    def __repr__(self) -> str:
        return "tesela.noalias"


noalias = _NoAlias()
"""Qualifier of an array annotation: it overlaps no array that the kernel writes (and, if written, no other array)."""


@dataclass(frozen=True, slots=True)
class Array:
    """`Array[dtype, *shape, *qualifiers]`: annotation of an array argument.

    `shape` has an integer, a dimension, an expression of dimensions, or the text of one ("M", "M + 1") for each dimension of the
    array; names in texts can be used in the kernel. The dtype may be a type variable, `tesela.dtype("T")` or "T". Qualifiers: `strides(…)`, `align(n)`, `noalias`.
    """

    dtype: Any  # a DType, or the name of a type variable
    shape: tuple[DimExpr, ...]
    strides: tuple[int | None, ...]
    align: int | None = None
    noalias: bool = False

    if TYPE_CHECKING:
        @property
        def ndim(self) -> int: ...
        def __getitem__(self, item: Any) -> Tile: ...
        def __setitem__(self, item: Any, value: Any) -> None: ...

    def __class_getitem__(cls, items: Any) -> Array:
        try:
            return cls._read(items if isinstance(items, tuple) else (items,))
        except DimExprError as error:
            raise TeselaError.at(caller_place(sys._getframe(1)), str(error)) from None
        except ArrayError as error:
            raise TeselaError.at(caller_place(sys._getframe(1)), str(error), error.hint) from None

    @classmethod
    def _read(cls, items: tuple[Any, ...]) -> Array:
        dtype = next(iter(items), None)
        if isinstance(dtype, DTypeVariable):
            dtype = dtype.name
        if not isinstance(dtype, DType) and not (isinstance(dtype, str) and dtype.isidentifier()):
            raise ArrayError(
                f"an array's annotation starts with its element type, found {dtype!r}",
                f"write Array[f32, M, N]; element types: {', '.join(name for name in DTYPES if name != 'index')}",
            )
        if dtype is index:
            raise ArrayError("an array in memory has no index elements", "use i64")
        shape: list[DimExpr] = []
        stated: tuple[int | None, ...] | None = None
        alignment: int | None = None
        unaliased = False
        for item in items[1:]:
            match item:
                case strides(values):
                    stated = values
                case align(nbytes):
                    alignment = nbytes
                case _NoAlias():
                    unaliased = True
                case Dim():
                    shape.append(item.expr)
                case str():
                    shape.append(DimExpr.parse(item))
                case int() if not isinstance(item, bool) and item >= 0:
                    shape.append(DimExpr("int", item))
                case _:
                    raise ArrayError(
                        f"an array's extent is an integer, a dimension or the text of one, found {item!r}",
                        'write Array[f32, M, N] with M, N = tesela.dims("M N"), or Array[f32, "M", "N"]',
                    )
        if not shape:
            raise ArrayError("an array's annotation states one extent for each dimension", "write Array[f32, M, N]")
        if stated is None:
            stated = (*[None] * (len(shape) - 1), 1)
        if len(stated) != len(shape) or not all(s is None or (isinstance(s, int) and s >= 0) for s in stated):
            raise ArrayError(f"strides({', '.join(map(str, stated))}) must state one stride, a number or None, for each of "
                             f"the {len(shape)} dimensions")
        if alignment is not None and alignment not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            raise ArrayError(f"align({alignment!r}): the alignment must be a power of two from 1 to 256")
        return cls(dtype, tuple(shape), stated, alignment, unaliased)

    def bind(self, types: Mapping[str, DType]) -> DType:
        """The element type, where type variables have these values."""
        return self.dtype if isinstance(self.dtype, DType) else types[self.dtype]

    @property
    def rank(self) -> int:
        return len(self.shape)


class ArrayError(ValueError):
    """An array annotation that cannot be read; its place is filled in by whoever knows it."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.hint = hint


def ceildiv(a: Any, b: Any) -> Any:
    """The quotient rounded up, of integers, dimensions or (inside a kernel) index values: `tesela.ceildiv(M, 128)`."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return combine("ceildiv", a, b)
