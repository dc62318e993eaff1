"""`tile.sum_parts`: where the blocks that share one point of the grid meet, and one of them goes on with the sums of all."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, IntegerAttr, TensorType, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .tile_types import int_attr

MOST_PARTS = 16


@irdl_op_definition
class SumPartsOp(IRDLOperation):
    """`%all, %last = tile.sum_parts %acc at %point part %part of 4 : tensor<…>`: meets the other parts of a point.

    Each of the 4 blocks of a point comes once, with another part from 0 to 3. All but one get false, and tiles that mean nothing. One, whichever comes
    last, gets true and for each tile the sum ((part 0 + part 1) + part 2) + part 3, the same whoever that is. Nobody waits. Points count from 0, fewer
    than the kernel's grid has; one operation of a kernel at most meets others.
    """

    name = "tile.sum_parts"
    tiles = var_operand_def(TensorType)
    point = operand_def(IndexType)
    part = operand_def(IndexType)
    parts = prop_def(IntegerAttr)
    sums = var_result_def(TensorType)
    last = result_def(i1)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def make(tiles: Sequence[SSAValue], point: SSAValue, part: SSAValue, parts: int) -> SumPartsOp:
        return SumPartsOp.create(
            operands=[*tiles, point, part], result_types=[*(tile.type for tile in tiles), i1], properties={"parts": int_attr(parts)}
        )

    def verify_(self) -> None:
        if not 2 <= self.parts.value.data <= MOST_PARTS:
            raise VerifyException(f"there must be 2 to {MOST_PARTS} parts, found {self.parts.value.data}")
        if not self.tiles:
            raise VerifyException("there must be a tile to add up")
        for tile, total in zip(self.tiles, self.sums, strict=True):
            kind = tile.type
            assert isinstance(kind, TensorType)
            if kind != total.type:
                raise VerifyException(f"a sum has the type of its parts, {kind}, found {total.type}")
            if getattr(kind.element_type, "bitwidth", 0) != 32:
                raise VerifyException(f"what is added up has elements of 32 bits, found {kind.element_type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.tiles, printer.print_ssa_value)
        printer.print_string(" at ")
        printer.print_ssa_value(self.point)
        printer.print_string(" part ")
        printer.print_ssa_value(self.part)
        printer.print_string(f" of {self.parts.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list([tile.type for tile in self.tiles], printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> SumPartsOp:
        tiles = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_keyword("at")
        point = parser.parse_unresolved_operand()
        parser.parse_keyword("part")
        part = parser.parse_unresolved_operand()
        parser.parse_keyword("of")
        parts = parser.parse_integer(allow_boolean=False)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds: list[Attribute] = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        op = cls.make(
            parser.resolve_operands(tiles, kinds, parser.pos),
            parser.resolve_operand(point, IndexType()),
            parser.resolve_operand(part, IndexType()),
            parts,
        )
        op.attributes.update(attributes)
        return op
