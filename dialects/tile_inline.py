"""`tile.inline_ptx`: instructions that an author names, applied to every element; `inline_ptx.py` says what they may be."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, traits_def, var_operand_def, var_result_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .inline_ptx import InlineError, InlineInstruction, read_inline
from .tile_types import check_element, element_type, same_encoding, shape_of


def register_class(kind: Attribute) -> str:
    """The class of the register that holds an element."""
    bits = getattr(kind, "bitwidth", 64)
    return "pred" if bits == 1 else f"b{max(16, bits)}"


@irdl_op_definition
class InlinePtxOp(IRDLOperation):
    """`%y = tile.inline_ptx "lg2.approx.f32 $0, $1;" (%x) : (tensor<8xf32>) -> (tensor<8xf32>)`: for each element, the results $0 … of the operands that
    follow them. Elements of 8 bits stand in 16, i8 by its sign and others with zeros above; i1 in a predicate."""

    name = "tile.inline_ptx"
    text = prop_def(StringAttr)
    args = var_operand_def()
    res = var_result_def()
    traits = traits_def(Pure())

    @staticmethod
    def make(text: str, args: Sequence[SSAValue], results: Sequence[Attribute]) -> InlinePtxOp:
        return InlinePtxOp.create(operands=list(args), result_types=list(results), properties={"text": StringAttr(text)})

    def instructions(self) -> tuple[InlineInstruction, ...]:
        """The text, read. Raises InlineError."""
        kinds = [[register_class(element_type(value.type)) for value in values] for values in (self.res, self.args)]
        return read_inline(self.text.data, *kinds)

    def verify_(self) -> None:
        values = [*self.res, *self.args]
        if not self.res:
            raise VerifyException("inline PTX gives one result at least: without one it would do nothing")
        for value in values:
            check_element(element_type(value.type), "inline_ptx")
            if shape_of(value.type) != shape_of(values[0].type) or not same_encoding(value.type, values[0].type):
                raise VerifyException(f"operands and results must have one shape, found {values[0].type} and {value.type}")
        try:
            self.instructions()
        except InlineError as error:
            raise VerifyException(error.message) from None

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.text.data)
        printer.print_string(" (")
        printer.print_list(self.args, printer.print_ssa_value)
        printer.print_string(")")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : (")
        printer.print_list([value.type for value in self.args], printer.print_attribute)
        printer.print_string(") -> (")
        printer.print_list([value.type for value in self.res], printer.print_attribute)
        printer.print_string(")")

    @classmethod
    def parse(cls, parser: Parser) -> InlinePtxOp:
        text = parser.parse_str_literal()
        names = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation("->")
        results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        if len(kinds) != len(names):
            parser.raise_error(f"{len(names)} operands need as many types, found {len(kinds)}")
        op = cls.make(text, [parser.resolve_operand(name, kind) for name, kind in zip(names, kinds)], results)
        op.attributes.update(attributes)
        return op
