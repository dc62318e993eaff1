"""`tile.print` and `tile.assert`: what a block says while it runs. `device_messages.py` has the form in which it reaches the host."""

from __future__ import annotations

import string
from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerType, StringAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .device_messages import BUFFER_BYTES, HEADER_BYTES, MessageSite
from .diagnostics import location_of
from .tile_types import check_element, element_type, shape_of


def _print_coordinates(printer: Printer, coordinates: Sequence[SSAValue]) -> None:
    if coordinates:
        printer.print_string(" at [")
        printer.print_list(coordinates, printer.print_ssa_value)
        printer.print_string("]")


def _parse_coordinates(parser: Parser) -> list[SSAValue]:
    if parser.parse_optional_keyword("at") is None:
        return []
    names = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
    return [parser.resolve_operand(name, IndexType()) for name in names]


def site_of(op: PrintOp | AssertOp) -> MessageSite:
    """The site that an operation is, with its place in the source."""
    place = location_of(op)
    where = (place.file, place.line, place.column) if place is not None else ("", 0, 0)
    values = tuple((str(element_type(value.type)), shape_of(value.type)) for value in (op.values if isinstance(op, PrintOp) else ()))
    kind = "print" if isinstance(op, PrintOp) else "assert"
    return MessageSite(kind, op.text.data, values, len(op.coordinates), *where)


@irdl_op_definition
class PrintOp(IRDLOperation):
    """`tile.print "x = {}" (%x) at [%i, %j] : tensor<4xf32>`: a line for each block that comes here, with the values in place of the `{}`. `at`: the block's
    coordinates."""

    name = "tile.print"
    text = prop_def(StringAttr)
    values = var_operand_def()
    coordinates = var_operand_def(IndexType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(MemoryWriteEffect())

    @staticmethod
    def make(text: str, values: Sequence[SSAValue], coordinates: Sequence[SSAValue]) -> PrintOp:
        segments = DenseArrayBase.from_list(i32, [len(values), len(coordinates)])
        properties: dict[str, Attribute] = {"text": StringAttr(text), "operandSegmentSizes": segments}
        return PrintOp.create(operands=[*values, *coordinates], properties=properties)

    def verify_(self) -> None:
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(self.text.data) if field is not None]
        except ValueError as error:
            raise VerifyException(f"the text is no format: {error}") from None
        if any(fields) or len(fields) != len(self.values):
            raise VerifyException(f"the text must have one {{}} for each of the {len(self.values)} values, found {self.text.data!r}")
        for value in self.values:
            check_element(element_type(value.type), "print")
        if (nbytes := site_of(self).record_bytes) > BUFFER_BYTES - HEADER_BYTES:
            raise VerifyException(f"one message has at most {BUFFER_BYTES - HEADER_BYTES} bytes, found {nbytes}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.text.data)
        printer.print_string(" (")
        printer.print_list(self.values, printer.print_ssa_value)
        printer.print_string(")")
        _print_coordinates(printer, self.coordinates)
        printer.print_op_attributes(self.attributes)
        if self.values:
            printer.print_string(" : ")
            printer.print_list([value.type for value in self.values], printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> PrintOp:
        text = parser.parse_str_literal()
        names = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        coordinates = _parse_coordinates(parser)
        attributes = parser.parse_optional_attr_dict()
        kinds: list[Attribute] = []
        if names:
            parser.parse_punctuation(":")
            kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(kinds) != len(names):
            parser.raise_error(f"{len(names)} values need as many types, found {len(kinds)}")
        op = cls.make(text, [parser.resolve_operand(name, kind) for name, kind in zip(names, kinds)], coordinates)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class AssertOp(IRDLOperation):
    """`tile.assert %holds, "message" at [%i, %j]`: where it does not hold, the launch ends with an error that says the message, the place and the block.
    The block itself goes on."""

    name = "tile.assert"
    text = prop_def(StringAttr)
    condition = operand_def(IntegerType(1))
    coordinates = var_operand_def(IndexType)
    traits = traits_def(MemoryWriteEffect())

    @staticmethod
    def make(condition: SSAValue, text: str, coordinates: Sequence[SSAValue]) -> AssertOp:
        return AssertOp.create(operands=[condition, *coordinates], properties={"text": StringAttr(text)})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.condition)
        printer.print_string(", ")
        printer.print_string_literal(self.text.data)
        _print_coordinates(printer, self.coordinates)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> AssertOp:
        condition = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        text = parser.parse_str_literal()
        coordinates = _parse_coordinates(parser)
        attributes = parser.parse_optional_attr_dict()
        op = cls.make(parser.resolve_operand(condition, IntegerType(1)), text, coordinates)
        op.attributes.update(attributes)
        return op
