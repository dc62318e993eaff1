"""Accesses whose places are computed: loads and stores at tiles of indices, and atomic updates.

**The place.** Each dimension of the array has one entry between the brackets: an `index`, or a tile of integers (i32, i64) whose rank is the
accessed tile's and whose extents are the tile's or 1. `dims` has one number for each dimension of the accessed tile: the dimension of the array
along which the tile is a slice, or -1 where only tiles of indices tell its elements apart. Element p of the tile lies, along dimension d of the array, at

    indices[d][p]  where that is a tile (p broadcast)        indices[d] + p[t]  where dims[t] = d        indices[d]  otherwise

    %y = tile.load_indexed %table[%rows, %j] dims [-1, 1] : memref<?x?xf32, strided<[?, 1]>>[tensor<64x1xi32>, index] -> tensor<64x32xf32>

gathers, for each of 64 row numbers, 32 elements from column %j on. Negative places and places past the edges are outside of the array: a load gives
zero (or the value after `else`) there, a store and an atomic update do nothing.

**Atomic updates** are relaxed, of the whole device's scope (PTX ISA 9.0 §9.7.13.5): they say nothing about the order of other accesses. Where several
elements of a tile have one place, each is applied, in some order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import AnyFloat, DenseArrayBase, IndexType, MemRefType, TensorType, i32, i64
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SpacedOpaqueSyntaxAttribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from .tile_types import element_type, shape_of

COMPUTED = -1
"""In `dims`: only tiles of indices tell the elements along this dimension of the tile apart."""


class AtomicKind(StrEnum):
    """What an atomic update makes of the old value and the operand."""

    ADD = "add"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    XOR = "xor"
    EXCHANGE = "exchange"
    CAS = "cas"


@irdl_attr_definition
class AtomicKindAttr(EnumAttribute[AtomicKind], SpacedOpaqueSyntaxAttribute):
    name = "tile.atomic_kind"


class Indexed(IRDLOperation):
    """What the operations of this file share: the place that they access."""

    if TYPE_CHECKING:  # each operation declares its own
        array: SSAValue
        indices: Sequence[SSAValue]
        dims: DenseArrayBase

    @property
    def place(self) -> SSAValue:
        """The tile, or scalar, that comes from the places or goes there."""
        return self.results[0] if self.results else self.operands[0]

    @property
    def accessed(self) -> Attribute:
        """Its type."""
        return self.place.type

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's that it is a slice along, or COMPUTED."""
        return tuple(self.dims.get_values())

    def verify_place(self) -> None:
        array, shape = self.array.type, shape_of(self.accessed)
        if not isinstance(array, MemRefType):
            raise VerifyException(f"the array must be a memref, found {array}")
        rank = array.get_num_dims()
        if len(self.indices) != rank:
            raise VerifyException(f"an array of rank {rank} takes as many indices, found {len(self.indices)}")
        if element_type(self.accessed) != array.element_type:
            raise VerifyException(f"the array's elements are {array.element_type}, the tile's are {element_type(self.accessed)}")
        dims = self.tile_dims()
        sliced = [dim for dim in dims if dim != COMPUTED]
        if len(dims) != len(shape) or len(set(sliced)) != len(sliced) or not all(0 <= dim < rank for dim in sliced):
            raise VerifyException(
                f"dims must name, for each of the {len(shape)} dimensions of the tile, a different dimension of the array or -1, found {list(dims)}"
            )
        for dim, index in enumerate(self.indices):
            if isinstance(index.type, IndexType):
                continue
            kind = index.type
            if not isinstance(kind, TensorType) or kind.element_type not in (i32, i64):
                raise VerifyException(f"index {dim} must be an index or a tile of i32 or i64, found {kind}")
            if dim in dims:
                raise VerifyException(f"index {dim} is a tile, so that the tile cannot be a slice along dimension {dim}")
            extents = shape_of(kind)
            if len(extents) != len(shape) or any(have not in (1, want) for have, want in zip(extents, shape)):
                raise VerifyException(f"index {dim} of shape {extents} does not broadcast to the tile's shape {shape} (of equal rank)")


def _print_place(printer: Printer, op: Indexed) -> None:
    printer.print_ssa_value(op.array)
    printer.print_string("[")
    printer.print_list(op.indices, printer.print_ssa_value)
    printer.print_string("]")


def _print_dims(printer: Printer, op: Indexed) -> None:
    printer.print_string(f" dims {list(op.tile_dims())}")
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")


def _print_place_type(printer: Printer, op: Indexed) -> None:
    printer.print_attribute(op.array.type)
    printer.print_string("[")
    printer.print_list([index.type for index in op.indices], printer.print_attribute)
    printer.print_string("]")


def _parse_place(parser: Parser) -> tuple:
    array = parser.parse_unresolved_operand()
    return array, parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)


def _parse_dims(parser: Parser) -> tuple[list[int], dict[str, Attribute]]:
    parser.parse_keyword("dims")
    dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    return dims, attributes


def _parse_place_type(parser: Parser, array: object, indices: Sequence[object]) -> tuple[SSAValue, list[SSAValue]]:
    kind = parser.parse_type()
    kinds = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_type)
    if len(kinds) != len(indices):
        parser.raise_error(f"{len(indices)} indices need as many types, found {len(kinds)}")
    resolved = [parser.resolve_operand(index, index_type) for index, index_type in zip(indices, kinds)]  # type: ignore[arg-type]
    return parser.resolve_operand(array, kind), resolved  # type: ignore[arg-type]


def _properties(dims: Sequence[int], segments: Sequence[int] | None = None) -> dict[str, Attribute]:
    properties: dict[str, Attribute] = {"dims": DenseArrayBase.from_list(i64, list(dims))}
    if segments is not None:
        properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, list(segments))
    return properties


@irdl_op_definition
class LoadIndexedOp(Indexed):
    """`tile.load_indexed %x[%rows, %j] else %fill dims [-1, 1] : memref<…>[tensor<64x1xi32>, index] -> tensor<64x32xf32>`: a gather."""

    name = "tile.load_indexed"
    array = operand_def(MemRefType)
    indices = var_operand_def()
    fill = opt_operand_def()
    dims = prop_def(DenseArrayBase)
    res = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect())

    @staticmethod
    def make(
        array: SSAValue, indices: Sequence[SSAValue], dims: Sequence[int], result: Attribute, fill: SSAValue | None = None
    ) -> LoadIndexedOp:
        operands = [array, *indices, *([fill] if fill is not None else [])]
        properties = _properties(dims, [1, len(indices), int(fill is not None)])
        return LoadIndexedOp.create(operands=operands, result_types=[result], properties=properties)

    def verify_(self) -> None:
        self.verify_place()
        if self.fill is not None and self.fill.type != element_type(self.res.type):
            raise VerifyException(f"the value past the edges must be {element_type(self.res.type)}, found {self.fill.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_place(printer, self)
        if self.fill is not None:
            printer.print_string(" else ")
            printer.print_ssa_value(self.fill)
        _print_dims(printer, self)
        _print_place_type(printer, self)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> LoadIndexedOp:
        array, indices = _parse_place(parser)
        fill = parser.parse_unresolved_operand() if parser.parse_optional_keyword("else") is not None else None
        dims, attributes = _parse_dims(parser)
        array, indices = _parse_place_type(parser, array, indices)
        parser.parse_punctuation("->")
        result = parser.parse_type()
        value = None if fill is None else parser.resolve_operand(fill, element_type(result))
        op = cls.make(array, indices, dims, result, value)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class StoreIndexedOp(Indexed):
    """`tile.store_indexed %v, %x[%rows, %j] dims [-1, 1] : tensor<64x32xf32>, memref<…>[tensor<64x1xi32>, index]`: a scatter. Of several elements with one
    place one is stored."""

    name = "tile.store_indexed"
    value = operand_def()
    array = operand_def(MemRefType)
    indices = var_operand_def()
    dims = prop_def(DenseArrayBase)
    traits = traits_def(MemoryWriteEffect())

    @staticmethod
    def make(value: SSAValue, array: SSAValue, indices: Sequence[SSAValue], dims: Sequence[int]) -> StoreIndexedOp:
        return StoreIndexedOp.create(operands=[value, array, *indices], properties=_properties(dims))

    def verify_(self) -> None:
        self.verify_place()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        _print_place(printer, self)
        _print_dims(printer, self)
        printer.print_attribute(self.value.type)
        printer.print_string(", ")
        _print_place_type(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> StoreIndexedOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        array, indices = _parse_place(parser)
        dims, attributes = _parse_dims(parser)
        kind = parser.parse_type()
        parser.parse_punctuation(",")
        array, indices = _parse_place_type(parser, array, indices)
        op = cls.make(parser.resolve_operand(value, kind), array, indices, dims)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class AtomicOp(Indexed):
    """`%old = tile.atomic add %v, %x[%i] dims [0] : tensor<64xf32>, memref<?xf32>[index] -> tensor<64xf32>`: what stood at each place before; zero
    outside of the array. `cas %v expecting %e` stores %v where the old value is %e, bit for bit."""

    name = "tile.atomic"
    kind = prop_def(AtomicKindAttr)
    value = operand_def()
    array = operand_def(MemRefType)
    indices = var_operand_def()
    expected = opt_operand_def()
    dims = prop_def(DenseArrayBase)
    res = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def make(
        kind: AtomicKind, value: SSAValue, array: SSAValue, indices: Sequence[SSAValue], dims: Sequence[int], expected: SSAValue | None = None
    ) -> AtomicOp:
        operands = [value, array, *indices, *([expected] if expected is not None else [])]
        properties = _properties(dims, [1, 1, len(indices), int(expected is not None)])
        properties["kind"] = AtomicKindAttr(kind)
        return AtomicOp.create(operands=operands, result_types=[value.type], properties=properties)

    def verify_(self) -> None:
        if self.res.type != self.value.type:
            raise VerifyException(f"the result has the operand's type, {self.value.type}, found {self.res.type}")
        self.verify_place()
        kind, element = self.kind.data, element_type(self.value.type)
        if (self.expected is not None) != (kind is AtomicKind.CAS):
            raise VerifyException("'cas' takes an expected value, and nothing else does")
        if self.expected is not None and self.expected.type != self.value.type:
            raise VerifyException(f"the expected value must be {self.value.type}, found {self.expected.type}")
        if (reason := atomic_refusal(kind, element)) is not None:
            raise VerifyException(reason)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_ssa_value(self.value)
        if self.expected is not None:
            printer.print_string(" expecting ")
            printer.print_ssa_value(self.expected)
        printer.print_string(", ")
        _print_place(printer, self)
        _print_dims(printer, self)
        printer.print_attribute(self.value.type)
        printer.print_string(", ")
        _print_place_type(printer, self)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> AtomicOp:
        kind = parser.parse_str_enum(AtomicKind)
        value = parser.parse_unresolved_operand()
        expected = parser.parse_unresolved_operand() if parser.parse_optional_keyword("expecting") is not None else None
        parser.parse_punctuation(",")
        array, indices = _parse_place(parser)
        dims, attributes = _parse_dims(parser)
        value_type = parser.parse_type()
        parser.parse_punctuation(",")
        array, indices = _parse_place_type(parser, array, indices)
        parser.parse_punctuation("->")
        result = parser.parse_type()
        op = cls.make(
            kind,
            parser.resolve_operand(value, value_type),
            array,
            indices,
            dims,
            None if expected is None else parser.resolve_operand(expected, value_type),
        )
        op.results[0]._type = result
        op.attributes.update(attributes)
        return op


def atomic_refusal(kind: AtomicKind, element: Attribute) -> str | None:
    """Why there is no such atomic update of elements of a type; None if there is."""
    floats = isinstance(element, AnyFloat)
    width = getattr(element, "bitwidth", 64)
    if kind in (AtomicKind.AND, AtomicKind.OR, AtomicKind.XOR) and floats:
        return f"'{kind}' is for integers, found {element}"
    if kind is AtomicKind.ADD and floats and width >= 16:
        return None
    if floats and width != 32:
        return f"'{kind}' of {element} has no atomic form: f32 has, and for f16, bf16 and f64 only 'add'"
    if width not in (32, 64):
        return f"'{kind}' of {element} has no atomic form: i32 and i64 have"
    return None
