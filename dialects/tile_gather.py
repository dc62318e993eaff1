"""Elements of a tile in registers, picked by a tile of indices: `tile.gather` (`tile_indexed.py` has the accesses to arrays)."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType, i32, i64
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .tile_types import element_type, int_attr, shape_of, tensor_like


@irdl_op_definition
class GatherOp(IRDLOperation):
    """`tile.gather %x[%i] axis 1 : tensor<8x16xf32>[tensor<8x4xi32>] -> tensor<8x4xf32>`: element [r, c] is x[r, i[r, c]]. An index outside of the tile, below
    zero or past its extent, gives zero, as one outside of an array does. Along all other dimensions the two tiles have one extent."""

    name = "tile.gather"
    source = operand_def(TensorType)
    index = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    res = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, index: SSAValue, axis: int) -> GatherOp:
        kind = tensor_like(index.type, element_type(source.type), shape_of(index.type))
        return GatherOp.create(operands=[source, index], result_types=[kind], properties={"axis": int_attr(axis)})

    @property
    def along(self) -> int:
        """The axis along which elements are picked."""
        return self.axis.value.data

    def verify_(self) -> None:
        source, index, axis = shape_of(self.source.type), shape_of(self.index.type), self.along
        if not source or not 0 <= axis < len(source):
            raise VerifyException(f"axis {axis} is outside the {len(source)} dimensions of the tile")
        if element_type(self.index.type) not in (i32, i64):
            raise VerifyException(f"the indices must be i32 or i64, found {element_type(self.index.type)}")
        if len(index) != len(source) or any(a != b for dim, (a, b) in enumerate(zip(source, index)) if dim != axis):
            raise VerifyException(f"the indices' shape must be that of the tile, {source}, but along axis {axis}, found {index}")
        if shape_of(self.res.type) != index or element_type(self.res.type) != element_type(self.source.type):
            raise VerifyException(f"the result must be {TensorType(element_type(self.source.type), index)}, found {self.res.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string("[")
        printer.print_ssa_value(self.index)
        printer.print_string(f"] axis {self.along}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string("[")
        printer.print_attribute(self.index.type)
        printer.print_string("] -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> GatherOp:
        source = parser.parse_unresolved_operand()
        parser.parse_punctuation("[")
        index = parser.parse_unresolved_operand()
        parser.parse_punctuation("]")
        parser.parse_keyword("axis")
        axis = int_attr(parser.parse_integer(allow_boolean=False))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_punctuation("[")
        index_type = parser.parse_type()
        parser.parse_punctuation("]")
        parser.parse_punctuation("->")
        operands = [parser.resolve_operand(source, source_type), parser.resolve_operand(index, index_type)]
        return cls.create(operands=operands, result_types=[parser.parse_type()], properties={"axis": axis}, attributes=attributes)
