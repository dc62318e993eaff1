"""Loads and stores of tiles: where a tile lies in an array, and what happens past the array's edges."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    MemRefType,
    i32,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    MemoryReadEffect,
    MemoryWriteEffect,
)
from xdsl.utils.exceptions import VerifyException

from .tile_place import dims_property, parse_dims, parse_place, placed_dims, print_dims, print_place, verify_place
from .tile_types import (
    element_type,
    shape_of,
)


@irdl_op_definition
class LoadOp(IRDLOperation):
    """`tile.load %A[%m, %k] else %fill dims [0, 1] : memref<…> -> tensor<…>` (a scalar type for a single element)."""

    name = "tile.load"
    array = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    fill = opt_operand_def()
    dims = opt_prop_def(DenseArrayBase)
    res = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryReadEffect())

    @staticmethod
    def make(
        array: SSAValue,
        indices: Sequence[SSAValue],
        result: Attribute,
        fill: SSAValue | None = None,
        dims: Sequence[int] | None = None,
    ) -> LoadOp:
        segments = DenseArrayBase.from_list(i32, [1, len(indices), int(fill is not None)])
        properties = {"operandSegmentSizes": segments} | dims_property(dims)
        operands = [array, *indices, *([fill] if fill is not None else [])]
        return LoadOp.create(operands=operands, result_types=[result], properties=properties)

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's."""
        return placed_dims(self, len(shape_of(self.res.type)))

    def verify_(self) -> None:
        verify_place(self, element_type(self.res.type), len(shape_of(self.res.type)))
        if self.fill is not None and self.fill.type != element_type(self.res.type):
            raise VerifyException(
                f"the value past the edges must be {element_type(self.res.type)}, found {self.fill.type}"
            )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_place(printer, self)
        if self.fill is not None:
            printer.print_string(" else ")
            printer.print_ssa_value(self.fill)
        print_dims(printer, self)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.array.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        array, indices = parse_place(parser)
        fill = parser.parse_unresolved_operand() if parser.parse_optional_keyword("else") is not None else None
        properties = parse_dims(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        array_type = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        op = cls.make(
            parser.resolve_operand(array, array_type),
            [parser.resolve_operand(index, IndexType()) for index in indices],
            result,
            None if fill is None else parser.resolve_operand(fill, element_type(result)),
        )
        op.properties.update(properties)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class StoreOp(IRDLOperation):
    """`tile.store %x, %C[%m, %n] dims [0, 1] : tensor<…>, memref<…>`"""

    name = "tile.store"
    value = operand_def()
    array = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    dims = opt_prop_def(DenseArrayBase)
    traits = traits_def(MemoryWriteEffect())

    @staticmethod
    def make(
        value: SSAValue, array: SSAValue, indices: Sequence[SSAValue], dims: Sequence[int] | None = None
    ) -> StoreOp:
        return StoreOp.create(operands=[value, array, *indices], properties=dims_property(dims))

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's."""
        return placed_dims(self, len(shape_of(self.value.type)))

    def verify_(self) -> None:
        verify_place(self, element_type(self.value.type), len(shape_of(self.value.type)))

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        print_place(printer, self)
        print_dims(printer, self)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)
        printer.print_string(", ")
        printer.print_attribute(self.array.type)

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        array, indices = parse_place(parser)
        properties = parse_dims(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        parser.parse_punctuation(",")
        array_type = parser.parse_type()
        op = cls.make(
            parser.resolve_operand(value, kind),
            parser.resolve_operand(array, array_type),
            [parser.resolve_operand(index, IndexType()) for index in indices],
        )
        op.properties.update(properties)
        op.attributes.update(attributes)
        return op
