"""What the texts of several operations have in common: `… {attributes} : source type -> result type`."""

from __future__ import annotations

from typing import Protocol

from xdsl.ir import Attribute, SSAValue
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
