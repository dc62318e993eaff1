"""The scan of the tile dialect: running sums, products, maxima and minima along a dimension."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, IntegerType, TensorType, UnitAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .op_text import parse_source_to_result, print_source_to_result
from .tile_types import ReduceKind, ReduceKindAttr, element_type, int_attr, shape_of

SCAN_KINDS = (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN)


@irdl_op_definition
class ScanOp(IRDLOperation):
    """`tile.scan sum %x axis 1 : tensor<8x16xf32> -> tensor<8x16xf32>`: element i along the axis is the sum (prod, max, min) of elements 0 … i; with
    `exclusive` after the axis, of those before i, and the identity of the kind where there are none (numbers.md)."""

    name = "tile.scan"
    kind = prop_def(ReduceKindAttr)
    source = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    exclusive = opt_prop_def(UnitAttr)
    res = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def make(kind: ReduceKind, source: SSAValue, axis: int, exclusive: bool = False) -> ScanOp:
        properties: dict[str, Attribute] = {"kind": ReduceKindAttr(kind), "axis": int_attr(axis)}
        if exclusive:
            properties["exclusive"] = UnitAttr()
        return ScanOp.create(operands=[source], result_types=[source.type], properties=properties)

    def verify_(self) -> None:
        if self.kind.data not in SCAN_KINDS:
            raise VerifyException(f"a scan is one of {', '.join(kind.value for kind in SCAN_KINDS)}, found {self.kind.data.value}")
        shape, axis = shape_of(self.source.type), self.axis.value.data
        if not 0 <= axis < len(shape):
            raise VerifyException(f"axis {axis} is outside the {len(shape)} dimensions of the tile")
        if shape_of(self.res.type) != shape or element_type(self.res.type) != element_type(self.source.type):
            raise VerifyException(f"a scan keeps the type, found {self.source.type} and {self.res.type}")
        if element_type(self.source.type) == IntegerType(1):
            raise VerifyException("a scan of i1 is not defined: cast to i32 first")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" axis {self.axis.value.data}" + (" exclusive" if self.exclusive is not None else ""))
        print_source_to_result(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> ScanOp:
        properties: dict[str, Attribute] = {"kind": ReduceKindAttr(parser.parse_str_enum(ReduceKind))}
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("axis")
        properties["axis"] = int_attr(parser.parse_integer(allow_boolean=False))
        if parser.parse_optional_keyword("exclusive") is not None:
            properties["exclusive"] = UnitAttr()
        attributes, source, result = parse_source_to_result(parser, operand)
        return cls.create(operands=[source], result_types=[result], properties=properties, attributes=attributes)
