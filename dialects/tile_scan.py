"""Scans and folds of the tile dialect: running and final results, along a dimension, of combining neighbours by an associative function.

The function is one of four kinds, or a region that says how an element of the left and one of the right become one. It may combine several tiles at once:

    %p, %q = tile.scan (%a, %b) axis 1 : (tensor<8x64xf32>, tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>) {
    ^bb0(%a0: f32, %b0: f32, %a1: f32, %b1: f32):           // of the left, of the right
      %a2 = arith.mulf %a0, %a1 : f32
      %t = arith.mulf %a1, %b0 : f32
      %b2 = arith.addf %t, %b1 : f32
      tile.yield %a2, %b2 : f32, f32                        // h ↦ a₁(a₀h + b₀) + b₁
    }

`tile.fold` is what a scan ends with. Both keep the order of the elements, so that the function need not be commutative; how it is associated is left
open (numbers.md N46). `tile.reduce` has kinds for which the order does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, TensorType, UnitAttr, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from .tile_types import ReduceKind, ReduceKindAttr, element_type, int_attr, same_encoding, shape_of

SCAN_KINDS = (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN)
ELEMENTWISE = ("tile.cast", "tile.cmp", "tile.select", "tile.constant", "tile.inline_ptx")
"""What a combining function may hold beside arith and math."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """`tile.yield %a, %b : f32, i32`: what a combining function gives, for each tile one element."""

    name = "tile.yield"
    args = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "attr-dict ($args^ `:` type($args))?"


def combines(op: Operation) -> bool:
    """Whether an operation may stand in a combining function: of elements only, and without effects."""
    return op.name.startswith(("arith.", "math.")) or op.name in ELEMENTWISE


def _verify_function(body: Region, sources: Sequence[SSAValue]) -> None:
    """Raises VerifyException unless a region takes two elements of each source and gives one."""
    if len(body.blocks) != 1:
        raise VerifyException("a combining function is one block")
    elements = [element_type(source.type) for source in sources]
    block = body.block
    found = [argument.type for argument in block.args]
    if found != [*elements, *elements]:
        wanted = ", ".join(map(str, [*elements, *elements]))
        raise VerifyException(f"the combining function takes an element of each tile, of the left and of the right: {wanted}; found {', '.join(map(str, found))}")
    end = block.last_op
    if not isinstance(end, YieldOp):
        raise VerifyException("the combining function ends with tile.yield")
    given = [value.type for value in end.args]
    if given != elements:
        raise VerifyException(f"the combining function gives {', '.join(map(str, elements))}, found {', '.join(map(str, given))}")
    for op in block.ops:
        if op is not end and (not combines(op) or any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))):
            raise VerifyException(f"the combining function computes with elements only, found '{op.name}'")


def _verify_sources(sources: Sequence[SSAValue], axis: int) -> None:
    first = sources[0].type
    for source in sources:
        if not isinstance(source.type, TensorType) or shape_of(source.type) != shape_of(first) or not same_encoding(source.type, first):
            raise VerifyException(f"the tiles must have one shape, found {', '.join(str(source.type) for source in sources)}")
    if not 0 <= axis < len(shape_of(first)):
        raise VerifyException(f"axis {axis} is outside the {len(shape_of(first))} dimensions of the tile")


@irdl_op_definition
class ScanOp(IRDLOperation):
    """`tile.scan sum %x axis 1 : tensor<8x16xf32> -> tensor<8x16xf32>`: element i along the axis is the sum (prod, max, min) of elements 0 … i; with
    `exclusive` after the axis, of those before i, and the identity of the kind where there are none; with `reverse`, from the last element to the
    first (numbers.md). With a region in place of the kind, `tile.scan (%a, %b) axis 1 …`, combined by that; `exclusive (%one, %zero)` then names what
    stands where there are none, which must change nothing."""

    name = "tile.scan"
    kind = opt_prop_def(ReduceKindAttr)
    sources = var_operand_def(TensorType)
    identities = var_operand_def()
    axis = prop_def(IntegerAttr)
    exclusive = opt_prop_def(UnitAttr)
    reverse = opt_prop_def(UnitAttr)
    res = var_result_def(TensorType)
    body = opt_region_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    @staticmethod
    def make(kind: ReduceKind, source: SSAValue, axis: int, exclusive: bool = False, reverse: bool = False) -> ScanOp:
        return ScanOp._make([source], [], [source.type], axis, exclusive, reverse, ReduceKindAttr(kind), None)

    @staticmethod
    def by(body: Region, sources: Sequence[SSAValue], axis: int, reverse: bool = False, identities: Sequence[SSAValue] | None = None) -> ScanOp:
        """A scan by a combining function; exclusive where identities are given."""
        types = [source.type for source in sources]
        return ScanOp._make(sources, identities or (), types, axis, identities is not None, reverse, None, body)

    @staticmethod
    def _make(
        sources: Sequence[SSAValue], identities: Sequence[SSAValue], results: Sequence[Attribute], axis: int, exclusive: bool, reverse: bool,
        kind: ReduceKindAttr | None, body: Region | None,
    ) -> ScanOp:  # fmt: skip
        properties: dict[str, Attribute] = {"axis": int_attr(axis)}
        properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [len(sources), len(identities)])
        if kind is not None:
            properties["kind"] = kind
        properties |= {name: UnitAttr() for name, held in (("exclusive", exclusive), ("reverse", reverse)) if held}
        regions = [body] if body is not None else []
        return ScanOp.create(operands=[*sources, *identities], result_types=list(results), properties=properties, regions=regions)

    def verify_(self) -> None:
        if not self.sources or len(self.sources) != len(self.res):
            raise VerifyException(f"a scan gives a tile for each, found {len(self.sources)} and {len(self.res)}")
        _verify_sources(self.sources, self.axis.value.data)
        for source, result in zip(self.sources, self.res):
            if shape_of(result.type) != shape_of(source.type) or element_type(result.type) != element_type(source.type):
                raise VerifyException(f"a scan keeps the type, found {source.type} and {result.type}")
        if (self.kind is None) == (self.body is None):
            raise VerifyException("a scan has a kind, or a combining function")
        if self.body is not None:
            _verify_function(self.body, self.sources)
            wanted = [element_type(source.type) for source in self.sources] if self.exclusive is not None else []
            if [value.type for value in self.identities] != wanted:
                raise VerifyException("an exclusive scan by a function takes an identity of each element type, another scan takes none")
            return
        assert self.kind is not None
        if self.kind.data not in SCAN_KINDS:
            raise VerifyException(f"a scan is one of {', '.join(kind.value for kind in SCAN_KINDS)}, found {self.kind.data.value}")
        if len(self.sources) != 1 or self.identities:
            raise VerifyException(f"a scan by {self.kind.data.value} takes one tile")
        if element_type(self.sources[0].type) == IntegerType(1):
            raise VerifyException("a scan of i1 is not defined: cast to i32 first")

    def print(self, printer: Printer) -> None:
        if self.kind is not None:
            printer.print_string(f" {self.kind.data} ")
            printer.print_ssa_value(self.sources[0])
        else:
            _print_tuple(printer, self.sources)
        printer.print_string(f" axis {self.axis.value.data}")
        printer.print_string(" reverse" if self.reverse is not None else "")
        printer.print_string(" exclusive" if self.exclusive is not None else "")
        if self.identities:
            _print_tuple(printer, self.identities)
        printer.print_op_attributes(self.attributes)
        if self.kind is not None:
            printer.print_string(" : ")
            printer.print_attribute(self.sources[0].type)
            printer.print_string(" -> ")
            printer.print_attribute(self.res[0].type)
        else:
            assert self.body is not None
            _print_function(printer, self.sources, self.res, self.body)

    @classmethod
    def parse(cls, parser: Parser) -> ScanOp:
        names = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        kind = None
        if names is None:
            kind = ReduceKindAttr(parser.parse_str_enum(ReduceKind))
            names = [parser.parse_unresolved_operand()]
        parser.parse_keyword("axis")
        axis = parser.parse_integer(allow_boolean=False)
        reverse = parser.parse_optional_keyword("reverse") is not None
        exclusive = parser.parse_optional_keyword("exclusive") is not None
        absent: list[UnresolvedOperand] = []
        if exclusive:
            absent = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand) or []
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        if kind is not None:
            sources = [parser.resolve_operand(names[0], parser.parse_type())]
            parser.parse_punctuation("->")
            results, body = [parser.parse_type()], None
        else:
            sources, results, body = _parse_function(parser, names)
        if len(absent) > len(sources):
            parser.raise_error(f"{len(sources)} tiles have as many identities, found {len(absent)}")
        identities = [parser.resolve_operand(name, element_type(source.type)) for name, source in zip(absent, sources)]
        op = cls._make(sources, identities, results, axis, exclusive, reverse, kind, body)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class FoldOp(IRDLOperation):
    """`%k, %v = tile.fold (%key, %value) axis 1 : (tensor<8x64xf32>, tensor<8x64xi32>) -> (tensor<8xf32>, tensor<8xi32>) { … }`: all elements along the axis,
    combined in their order by the function (see the module). Of tiles of one dimension it gives scalars."""

    name = "tile.fold"
    sources = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    res = var_result_def()
    body = region_def("single_block")
    traits = traits_def(Pure())

    @staticmethod
    def by(body: Region, sources: Sequence[SSAValue], axis: int) -> FoldOp:
        """All of `sources` along `axis`, by a combining function."""
        return FoldOp.create(
            operands=list(sources), result_types=[folded(source.type, axis) for source in sources], properties={"axis": int_attr(axis)}, regions=[body]
        )

    def verify_(self) -> None:
        if not self.sources or len(self.sources) != len(self.res):
            raise VerifyException(f"a fold gives a result for each tile, found {len(self.sources)} and {len(self.res)}")
        axis = self.axis.value.data
        _verify_sources(self.sources, axis)
        for source, result in zip(self.sources, self.res):
            wanted = folded(source.type, axis)
            if shape_of(result.type) != shape_of(wanted) or element_type(result.type) != element_type(wanted):
                raise VerifyException(f"a fold over axis {axis} of {source.type} gives {wanted}, found {result.type}")
        _verify_function(self.body, self.sources)

    def print(self, printer: Printer) -> None:
        _print_tuple(printer, self.sources)
        printer.print_string(f" axis {self.axis.value.data}")
        printer.print_op_attributes(self.attributes)
        _print_function(printer, self.sources, self.res, self.body)

    @classmethod
    def parse(cls, parser: Parser) -> FoldOp:
        names = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        parser.parse_keyword("axis")
        axis = int_attr(parser.parse_integer(allow_boolean=False))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        sources, results, body = _parse_function(parser, names)
        return cls.create(operands=sources, result_types=results, properties={"axis": axis}, attributes=attributes, regions=[body])


def folded(kind: Attribute, axis: int) -> Attribute:
    """The type of a tile without one of its dimensions, and without a layout."""
    shape = shape_of(kind)
    rest = shape[:axis] + shape[axis + 1 :]
    return TensorType(element_type(kind), rest) if rest else element_type(kind)


def function_body(elements: Sequence[Attribute]) -> Block:
    """An empty block for a combining function of tiles with these element types."""
    return Block(arg_types=[*elements, *elements])


def _print_tuple(printer: Printer, values: Sequence[SSAValue]) -> None:
    printer.print_string(" (")
    printer.print_list(values, printer.print_ssa_value)
    printer.print_string(")")


def _print_function(printer: Printer, sources: Sequence[SSAValue], results: Sequence[SSAValue], body: Region) -> None:
    printer.print_string(" : (")
    printer.print_list([value.type for value in sources], printer.print_attribute)
    printer.print_string(") -> (")
    printer.print_list([value.type for value in results], printer.print_attribute)
    printer.print_string(") ")
    printer.print_region(body)


def _parse_function(parser: Parser, names: Sequence[UnresolvedOperand]) -> tuple[list[SSAValue], list[Attribute], Region]:
    """What `_print_function` prints: the operands `names`, the result types, the body."""
    kinds = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    parser.parse_punctuation("->")
    results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    if len(kinds) != len(names):
        parser.raise_error(f"{len(names)} tiles need as many types, found {len(kinds)}")
    sources = [parser.resolve_operand(name, kind) for name, kind in zip(names, kinds)]
    return sources, results, parser.parse_region()
