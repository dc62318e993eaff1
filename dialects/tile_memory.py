"""Loads and stores of tiles: where a tile lies in an array, and what happens past the array's edges."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    MemRefType,
    i32,
    i64,
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

from .tile_types import (
    element_type,
    shape_of,
)


def _tile_dims(op: LoadOp | StoreOp, rank: int, array_rank: int) -> tuple[int, ...]:
    if op.dims is None:
        return tuple(range(array_rank - rank, array_rank))
    return tuple(op.dims.get_values())


def _verify_access(op: LoadOp | StoreOp, tile: Attribute) -> None:
    array = op.array.type
    if not isinstance(array, MemRefType):
        raise VerifyException(f"the array must be a memref, found {array}")
    if len(op.indices) != array.get_num_dims():
        raise VerifyException(f"an array of rank {array.get_num_dims()} takes as many indices, found {len(op.indices)}")
    if element_type(tile) != array.element_type:
        raise VerifyException(f"the array's elements are {array.element_type}, the tile's are {element_type(tile)}")
    rank = len(shape_of(tile))
    if rank > array.get_num_dims():
        raise VerifyException(f"a tile of {rank} dimensions does not fit an array of {array.get_num_dims()}")
    dims = _tile_dims(op, rank, array.get_num_dims())
    if len(dims) != rank or len(set(dims)) != rank or not all(0 <= dim < array.get_num_dims() for dim in dims):
        raise VerifyException(
            f"dims must name {rank} different dimensions of the array, one for each of the tile, found {list(dims)}"
        )


def _print_access(printer: Printer, op: LoadOp | StoreOp) -> None:
    printer.print_ssa_value(op.array)
    printer.print_string("[")
    printer.print_list(op.indices, printer.print_ssa_value)
    printer.print_string("]")


def _print_dims(printer: Printer, op: LoadOp | StoreOp) -> None:
    if op.dims is not None:
        printer.print_string(" dims ")
        printer.print_string(str(list(op.dims.get_values())))


def _parse_access(parser: Parser) -> tuple:
    array = parser.parse_unresolved_operand()
    indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
    return array, indices


def _parse_dims(parser: Parser) -> dict[str, Attribute]:
    if parser.parse_optional_keyword("dims") is None:
        return {}
    values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    return {"dims": DenseArrayBase.from_list(i64, values)}


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
        properties: dict[str, Attribute] = {
            "operandSegmentSizes": DenseArrayBase.from_list(i32, [1, len(indices), int(fill is not None)])
        }
        if dims is not None:
            properties["dims"] = DenseArrayBase.from_list(i64, list(dims))
        operands = [array, *indices, *([fill] if fill is not None else [])]
        return LoadOp.create(operands=operands, result_types=[result], properties=properties)

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's."""
        assert isinstance(self.array.type, MemRefType)
        return _tile_dims(self, len(shape_of(self.res.type)), self.array.type.get_num_dims())

    def verify_(self) -> None:
        _verify_access(self, self.res.type)
        if self.fill is not None and self.fill.type != element_type(self.res.type):
            raise VerifyException(
                f"the value past the edges must be {element_type(self.res.type)}, found {self.fill.type}"
            )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_access(printer, self)
        if self.fill is not None:
            printer.print_string(" else ")
            printer.print_ssa_value(self.fill)
        _print_dims(printer, self)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.array.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        array, indices = _parse_access(parser)
        fill = parser.parse_unresolved_operand() if parser.parse_optional_keyword("else") is not None else None
        properties = _parse_dims(parser)
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
        properties = {} if dims is None else {"dims": DenseArrayBase.from_list(i64, list(dims))}
        return StoreOp.create(operands=[value, array, *indices], properties=properties)

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's."""
        assert isinstance(self.array.type, MemRefType)
        return _tile_dims(self, len(shape_of(self.value.type)), self.array.type.get_num_dims())

    def verify_(self) -> None:
        _verify_access(self, self.value.type)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        _print_access(printer, self)
        _print_dims(printer, self)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)
        printer.print_string(", ")
        printer.print_attribute(self.array.type)

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        array, indices = _parse_access(parser)
        properties = _parse_dims(parser)
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
