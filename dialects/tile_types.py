"""Types and attributes of the tile level: extents, element types, kinds of reductions and comparisons, targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    Signedness,
    StridedLayoutAttr,
    TensorType,
    i64,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Data, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import (
    irdl_attr_definition,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from .dim_expr import DimExpr, DimExprError

ELEMENT_TYPES = (
    Float16Type,
    BFloat16Type,
    Float32Type,
    Float64Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    IntegerType,
    IndexType,
)

ui8 = IntegerType(8, Signedness.UNSIGNED)
"""Bytes read without a sign. They are loaded, stored, moved, cast and multiplied by dots; arithmetic is on signless integers (i8 …), as in MLIR."""

MAX_TILE_ELEMENTS = 2**20
"""More than a block's registers hold of any element type (64 Ki of 32 bits on every target, CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability"): larger tiles would only spill, and take long to compile."""

MAX_NESTING = 100
"""Regions within one another that a program may have: passes, verifiers and printers descend into them, and Python's own stack has an end
(`sys.getrecursionlimit()`, 1000 calls by default; reading takes the most, 8 for a region)."""

TOO_LARGE_HINT = "a block holds its tiles in registers, 256 KiB in all: take a smaller tile, in a loop"


def too_large(shape: Sequence[int]) -> str | None:
    """Why a tile cannot have this shape, if it has too many elements."""
    count = prod(shape)
    found = str(count) if count < 1 << 63 else "2^63 or more"  # Python refuses to spell some numbers
    return f"a tile has at most {MAX_TILE_ELEMENTS} elements, found {found}" if count > MAX_TILE_ELEMENTS else None


def element_type(kind: Attribute) -> Attribute:
    """The element type of a tensor, or a scalar type itself."""
    return kind.element_type if isinstance(kind, TensorType) else kind


def shape_of(kind: Attribute) -> tuple[int, ...]:
    """The extents of a tensor; () for a scalar."""
    return kind.get_shape() if isinstance(kind, TensorType) else ()


def tensor_like(
    kind: Attribute, element: Attribute, shape: Sequence[int] | None = None, encoding: Attribute | None = None
) -> Attribute:
    """`kind` with another element type (and shape): a tensor stays one with its encoding (unless given), a scalar
    becomes `element`."""
    if shape is None and not isinstance(kind, TensorType):
        return element
    shape = shape_of(kind) if shape is None else shape
    if encoding is None:
        encoding = kind.encoding if isinstance(kind, TensorType) else NoneAttr()
    return TensorType(element, shape, encoding)


def static_strides(kind: MemRefType) -> tuple[int | None, ...]:
    """The strides that a memref type states, in elements; None where it leaves one open. A type without `strided` states those of rows that lie
    side by side, as far as its extents are known: `memref<?x?xf32>` is as `memref<?x?xf32, strided<[?, 1]>>`."""
    if isinstance(kind.layout, StridedLayoutAttr):
        return tuple(None if isinstance(entry, NoneAttr) else entry.data for entry in kind.layout.strides.data)
    strides: list[int | None] = []
    stride: int | None = 1
    for extent in reversed(kind.get_shape()):
        strides.append(stride)
        stride = None if stride is None or extent < 0 else stride * extent
    return tuple(reversed(strides))


@irdl_attr_definition
class DimExprAttr(Data[DimExpr]):
    """`#tile.dim<"M ceildiv 128">`: an expression over symbolic dimensions."""

    name = "tile.dim"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> DimExpr:
        with parser.in_angle_brackets():
            try:
                return DimExpr.parse(parser.parse_str_literal())
            except DimExprError as error:
                parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(str(self.data))


@irdl_attr_definition
class TargetAttr(Data[str]):
    """`#tile.target<sm_90a>`: the architecture a module is compiled for."""

    name = "tile.target"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            return parser.parse_identifier()

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data)


class ReduceKind(StrEnum):
    """`argmax` and `argmin` give the index (i32) of the first extreme element; numbers.md says how NaN compares."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ARGMAX = "argmax"
    ARGMIN = "argmin"


class Predicate(StrEnum):
    """Comparisons: o.. and u.. for floats (ordered: false where an operand is NaN; unordered: true there), the rest for
    integers."""

    OEQ = "oeq"
    ONE = "one"
    OLT = "olt"
    OLE = "ole"
    OGT = "ogt"
    OGE = "oge"
    UEQ = "ueq"
    UNE = "une"
    ULT = "ult"
    ULE = "ule"
    UGT = "ugt"
    UGE = "uge"
    EQ = "eq"
    NE = "ne"
    SLT = "slt"
    SLE = "sle"
    SGT = "sgt"
    SGE = "sge"


@irdl_attr_definition
class ReduceKindAttr(EnumAttribute[ReduceKind], SpacedOpaqueSyntaxAttribute):
    name = "tile.kind"


@irdl_attr_definition
class PredicateAttr(EnumAttribute[Predicate], SpacedOpaqueSyntaxAttribute):
    name = "tile.predicate"


@cache
def int_attr(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def check_element(kind: Attribute, what: str) -> None:
    if not is_element(kind):
        raise VerifyException(
            f"{what}: {kind} is no element type; known: f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i1, i8, i16, i32, i64, ui8, index"
        )


def memory_bytes(kind: Attribute) -> int:
    """Bytes of an element in memory; i1 takes one, index eight."""
    return max(1, getattr(kind, "bitwidth", 64) // 8)


def is_element(kind: Attribute) -> bool:
    """Whether tiles may have elements of this type."""
    if isinstance(kind, IntegerType):
        return kind == ui8 or (kind.signedness.data is Signedness.SIGNLESS and kind.width.data in (1, 8, 16, 32, 64))
    return isinstance(kind, ELEMENT_TYPES)


def same_encoding(*kinds: Attribute) -> bool:
    """Whether layouts, where they are stated at all, are stated for every tensor and are equal."""
    return len({kind.encoding for kind in kinds if isinstance(kind, TensorType)}) <= 1
