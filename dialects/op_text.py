"""What the texts of several operations have in common: operands, attributes, types."""

from __future__ import annotations

from typing import Protocol

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer


class SourceToResult(Protocol):
    """An operation that makes `res` of `source`."""

    attributes: dict[str, Attribute]

    @property
    def source(self) -> SSAValue: ...

    @property
    def res(self) -> SSAValue: ...


def print_source_to_result(printer: Printer, op: SourceToResult) -> None:
    """Prints the op's attributes and the types of its source and its result."""
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.source.type)
    printer.print_string(" -> ")
    printer.print_attribute(op.res.type)


def parse_source_to_result(parser: Parser, operand: UnresolvedOperand) -> tuple[dict[str, Attribute], SSAValue, Attribute]:
    """Reads what `print_source_to_result` prints: the attributes, the source (named `operand`), the result's type."""
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    source = parser.resolve_operand(operand, parser.parse_type())
    parser.parse_punctuation("->")
    return attributes, source, parser.parse_type()


class Permutation(SourceToResult, Protocol):
    """An operation that makes `res` of `source` by permuting its dimensions."""

    @property
    def order(self) -> tuple[int, ...]: ...


def print_permutation(printer: Printer, op: Permutation) -> None:
    """Prints ` %x [1, 0] {attributes} : source type -> result type`."""
    printer.print_string(" ")
    printer.print_ssa_value(op.source)
    printer.print_string(f" {list(op.order)}")
    print_source_to_result(printer, op)


def parse_permutation(parser: Parser) -> tuple[SSAValue, Attribute, dict[str, Attribute], dict[str, Attribute]]:
    """Reads what `print_permutation` prints: the source, the result's type, the properties, the attributes."""
    operand = parser.parse_unresolved_operand()
    order = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    attributes, source, result = parse_source_to_result(parser, operand)
    return source, result, {"permutation": DenseArrayBase.from_list(i64, order)}, attributes


def print_operands(printer: Printer, op: Operation) -> None:
    """Prints ` %x, %y {attributes} : `; the types follow."""
    printer.print_string(" ")
    printer.print_list(op.operands, printer.print_ssa_value)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")


def parse_operands(parser: Parser, count: int, wanted: str) -> tuple[list[UnresolvedOperand], dict[str, Attribute]]:
    """Reads what `print_operands` prints: the operands, of which there must be `count`, and the attributes. `wanted` says so."""
    operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    if len(operands) != count:
        parser.raise_error(f"{wanted}, found {len(operands)}")
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    return operands, attributes


def print_operand(printer: Printer, op: Operation) -> None:
    """Prints ` %x {attributes} : type`."""
    print_operands(printer, op)
    printer.print_attribute(op.operands[0].type)


def parse_operand(parser: Parser, kind: type[Attribute], wanted: str) -> tuple[SSAValue, dict[str, Attribute]]:
    """Reads what `print_operand` prints: the operand, whose type must be a `kind`, and the attributes. `wanted` says so."""
    operand = parser.parse_unresolved_operand()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    position = parser.pos
    found = parser.parse_type()
    if not isinstance(found, kind):
        parser.raise_error(f"{wanted}, found {found}", position)
    return parser.resolve_operand(operand, found), attributes
