"""`tile.assume`: what an author knows of an integer that the compiler cannot see, such as a place that was loaded from memory."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .tile_types import int_attr

FACTS = {"divisible": "divisor", "at_least": "least", "at_most": "most"}
"""Keyword of the text -> property."""


@irdl_op_definition
class AssumeOp(IRDLOperation):
    """`%j = tile.assume %i divisible 64 at_least 0 at_most 4096 : index`: the same number. The interpreter checks it; compiled code relies on it, and accesses that are
    misaligned where it does not hold fault."""

    name = "tile.assume"
    source = operand_def()
    res = result_def()
    divisor = opt_prop_def(IntegerAttr)
    least = opt_prop_def(IntegerAttr)
    most = opt_prop_def(IntegerAttr)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, divisor: int | None = None, least: int | None = None, most: int | None = None) -> AssumeOp:
        stated = {"divisor": divisor, "least": least, "most": most}
        properties: dict[str, Attribute] = {name: int_attr(value) for name, value in stated.items() if value is not None}
        return AssumeOp.create(operands=[source], result_types=[source.type], properties=properties)

    def stated(self) -> dict[str, int]:
        """What is assumed, by property."""
        return {name: entry.value.data for name in FACTS.values() if isinstance(entry := self.properties.get(name), IntegerAttr)}

    def violated_by(self, number: int) -> str | None:
        """What does not hold of a number; None if all does."""
        stated = self.stated()
        if number % stated.get("divisor", 1):
            return f"{number} is no multiple of {stated['divisor']}"
        if number < stated.get("least", number):
            return f"{number} is less than {stated['least']}"
        return f"{number} is more than {stated['most']}" if number > stated.get("most", number) else None

    def verify_(self) -> None:
        if not isinstance(self.source.type, IndexType | IntegerType) or self.res.type != self.source.type:
            raise VerifyException(f"assume takes an index or an integer to itself, found {self.source.type} and {self.res.type}")
        stated = self.stated()
        if not stated:
            raise VerifyException("state what is assumed: divisible, at_least, at_most")
        if stated.get("divisor", 1) < 1:
            raise VerifyException(f"a divisor must be positive, found {stated['divisor']}")
        if stated.get("least", 0) > stated.get("most", stated.get("least", 0)):
            raise VerifyException(f"no number is at least {stated['least']} and at most {stated['most']}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        stated = self.stated()
        for word, name in FACTS.items():
            if name in stated:
                printer.print_string(f" {word} {stated[name]}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> AssumeOp:
        name = parser.parse_unresolved_operand()
        facts = {fact: parser.parse_integer(allow_boolean=False) for word, fact in FACTS.items() if parser.parse_optional_keyword(word) is not None}
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls.make(parser.resolve_operand(name, parser.parse_type()), **facts)
        op.attributes.update(attributes)
        return op
