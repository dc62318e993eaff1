"""Where a tile lies in an array, as loads, stores and copies write it: `%A[%m, %k] dims [0, 1]`. Text and checks.

The indices are where the tile begins, one for each dimension of the array. `dims` names, for each dimension of the tile, the array's; without it they are the
array's last ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdsl.dialects.builtin import DenseArrayBase, MemRefType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


class Placed(Protocol):
    """An operation on a tile that lies in an array."""

    @property
    def array(self) -> SSAValue: ...

    @property
    def indices(self) -> Sequence[SSAValue]: ...

    @property
    def dims(self) -> DenseArrayBase | None: ...


def placed_dims(op: Placed, rank: int) -> tuple[int, ...]:
    """For each of a tile's `rank` dimensions, the array's."""
    if op.dims is not None:
        return tuple(op.dims.get_values())
    assert isinstance(op.array.type, MemRefType)
    of = op.array.type.get_num_dims()
    return tuple(range(of - rank, of))


def dims_property(dims: Sequence[int] | None) -> dict[str, Attribute]:
    """The properties of an operation whose dims are given, or left to be the array's last ones."""
    return {} if dims is None else {"dims": DenseArrayBase.from_list(i64, list(dims))}


def verify_place(op: Placed, element: Attribute, rank: int) -> None:
    """Raises VerifyException where a tile of `rank` dimensions of `element` does not lie in the op's array."""
    array = op.array.type
    if not isinstance(array, MemRefType):
        raise VerifyException(f"the array must be a memref, found {array}")
    if len(op.indices) != array.get_num_dims():
        raise VerifyException(f"an array of rank {array.get_num_dims()} takes as many indices, found {len(op.indices)}")
    if element != array.element_type:
        raise VerifyException(f"the array's elements are {array.element_type}, the tile's are {element}")
    if rank > array.get_num_dims():
        raise VerifyException(f"a tile of {rank} dimensions does not fit an array of {array.get_num_dims()}")
    dims = placed_dims(op, rank)
    if len(dims) != rank or len(set(dims)) != rank or not all(0 <= dim < array.get_num_dims() for dim in dims):
        raise VerifyException(
            f"dims must name {rank} different dimensions of the array, one for each of the tile, found {list(dims)}"
        )


def print_place(printer: Printer, op: Placed) -> None:
    """Prints `%A[%m, %k]`."""
    printer.print_ssa_value(op.array)
    printer.print_string("[")
    printer.print_list(op.indices, printer.print_ssa_value)
    printer.print_string("]")


def parse_place(parser: Parser) -> tuple[UnresolvedOperand, list[UnresolvedOperand]]:
    """Reads what `print_place` prints: the array and the indices."""
    array = parser.parse_unresolved_operand()
    return array, parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)


def print_dims(printer: Printer, op: Placed) -> None:
    """Prints ` dims [0, 1]` where the op states them."""
    if op.dims is not None:
        printer.print_string(f" dims {list(op.dims.get_values())}")


def parse_dims(parser: Parser) -> dict[str, Attribute]:
    """Reads what `print_dims` prints, as properties."""
    if parser.parse_optional_keyword("dims") is None:
        return {}
    return dims_property(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))
