"""The kernel of the tile level: its arguments, symbolic dimensions and logical grid, which together are its contract.

`tile.py` shows the syntax and says what follows from the contract; this file holds the operation, its checks and its
text.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    Pure,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from .diagnostics import Emitter, TeselaError
from .dim_expr import DimExpr, DimExprError
from .inside import inside
from .tile_types import (
    TOO_LARGE_HINT,
    DimExprAttr,
    check_element,
    int_attr,
    shape_of,
    too_large,
)


def _parse_dim_expr(parser: Parser) -> DimExprAttr:
    """A dimension expression as bare text: up to `,`, `)`, `]` or `divisible` at depth 0."""
    words: list[str] = []
    depth = 0
    position = parser.pos
    while True:
        if parser.parse_optional_punctuation("(") is not None:
            words.append("(")
            depth += 1
        elif depth and parser.parse_optional_punctuation(")") is not None:
            words.append(")")
            depth -= 1
        elif depth and parser.parse_optional_punctuation(",") is not None:
            words.append(",")
        elif parser.parse_optional_punctuation("+") is not None:
            words.append("+")
        elif parser.parse_optional_punctuation("-") is not None:
            words.append("-")
        elif parser.parse_optional_punctuation("*") is not None:
            words.append("*")
        elif (number := parser.parse_optional_integer(allow_boolean=False, allow_negative=False)) is not None:
            words.append(str(number))
        elif (name := parser.parse_optional_identifier()) is not None:
            words.append(name)
        else:
            break
        if not depth and words[-1] not in "+-*(" and words[-1] not in ("floordiv", "ceildiv", "mod", "min", "max"):
            # an operand is complete: an operator must follow, or the expression ends here
            ahead = parser._current_token.text
            if ahead not in ("+", "-", "*", "floordiv", "ceildiv", "mod"):
                break
    try:
        return DimExprAttr(DimExpr.parse(" ".join(words)))
    except DimExprError as error:
        parser.raise_error(str(error), position)


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel and its contract; see the module's docstring. The region's arguments are the kernel's arguments, then
    one index for each entry of `dims`, then one for each entry of `grid`."""

    name = "tile.kernel"

    sym_name = prop_def(SymbolNameConstraint())
    arg_shapes = prop_def(ArrayAttr)  # per argument: ArrayAttr of DimExprAttr for arrays, UnitAttr for scalars
    arg_attrs = prop_def(ArrayAttr)  # per argument: DictionaryAttr
    arg_names = prop_def(ArrayAttr)  # per argument: StringAttr, the name a caller uses
    dims = prop_def(ArrayAttr)  # StringAttr: the symbols bound in the body
    grid = prop_def(ArrayAttr)  # DimExprAttr
    divisors = opt_prop_def(DictionaryAttr)  # symbol -> i64: what the dimension is a multiple of
    body = region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    @property
    def args(self) -> tuple[SSAValue, ...]:
        """The region's arguments that are the kernel's."""
        return tuple(self.body.block.args[: len(self.arg_names.data)])

    @property
    def dim_args(self) -> tuple[SSAValue, ...]:
        n = len(self.arg_names.data)
        return tuple(self.body.block.args[n : n + len(self.dims.data)])

    @property
    def grid_args(self) -> tuple[SSAValue, ...]:
        return tuple(self.body.block.args[len(self.arg_names.data) + len(self.dims.data) :])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.data for name in self.arg_names.data)

    def shape_exprs(self, index: int) -> tuple[DimExpr, ...] | None:
        """The stated shape of argument `index`; None for a scalar."""
        entry = self.arg_shapes.data[index]
        return tuple(item.data for item in entry.data) if isinstance(entry, ArrayAttr) else None

    def arg_attr(self, index: int, key: str) -> Attribute | None:
        return self.arg_attrs.data[index].data.get(key)

    def divisor(self, symbol: str) -> int:
        """What the symbolic dimension is stated to be a multiple of; 1 if nothing is."""
        entry = self.divisors.data.get(symbol) if self.divisors is not None else None
        return entry.value.data if isinstance(entry, IntegerAttr) else 1

    def symbols(self) -> tuple[str, ...]:
        """All symbolic dimensions: of the arguments' shapes in order of appearance, then those bound by `dims` only."""
        found: dict[str, None] = {}
        for index in range(len(self.arg_names.data)):
            for expr in self.shape_exprs(index) or ():
                found.update(dict.fromkeys(expr.symbols()))
        found.update(dict.fromkeys(dim.data for dim in self.dims.data))
        return tuple(found)

    @staticmethod
    def make(
        name: str,
        args: Sequence[tuple[str, Attribute, Sequence[DimExpr] | None, dict[str, Attribute]]],
        dims: Sequence[str],
        grid: Sequence[DimExpr],
        body: Region,
        divisors: dict[str, int] | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> KernelOp:
        """`args`: (name, type, shape or None, attributes) each; `body`'s block has the arguments in the stated
        order."""
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "arg_names": ArrayAttr([StringAttr(arg[0]) for arg in args]),
            "arg_shapes": ArrayAttr(
                [UnitAttr() if arg[2] is None else ArrayAttr([DimExprAttr(expr) for expr in arg[2]]) for arg in args]
            ),
            "arg_attrs": ArrayAttr([DictionaryAttr(arg[3]) for arg in args]),
            "dims": ArrayAttr([StringAttr(dim) for dim in dims]),
            "grid": ArrayAttr([DimExprAttr(expr) for expr in grid]),
        }
        if divisors:
            properties["divisors"] = DictionaryAttr({key: int_attr(value) for key, value in divisors.items()})
        return KernelOp.create(properties=properties, attributes=attributes or {}, regions=[body])

    def verify_(self) -> None:
        if isinstance(outer := self.parent_op(), KernelOp):
            raise VerifyException(f"a kernel stands in a module, found one inside of @{outer.sym_name.data}")
        arguments = self.body.block.args
        names = self.names
        if len(arguments) != len(names) + len(self.dims.data) + len(self.grid.data):
            raise VerifyException("the body must take the arguments, the dims and the grid coordinates")
        if len(set(names)) != len(names):
            raise VerifyException(f"argument names must differ, found {', '.join(names)}")
        for index, (name, argument) in enumerate(zip(names, arguments)):
            exprs = self.shape_exprs(index)
            if isinstance(argument.type, MemRefType):
                if exprs is None or len(exprs) != argument.type.get_num_dims():
                    raise VerifyException(
                        f"argument %{name} has {argument.type.get_num_dims()} dimensions, its stated shape has "
                        f"{0 if exprs is None else len(exprs)}: state one dimension for each, as in [M, N]"
                    )
                if not isinstance(argument.type.layout, StridedLayoutAttr | NoneAttr):
                    raise VerifyException(f"argument %{name}: the memref's layout must be strided<[…]>")
                if isinstance(argument.type.layout, StridedLayoutAttr) and len(argument.type.layout.strides) != len(exprs):
                    raise VerifyException(
                        f"argument %{name} has {len(exprs)} dimensions, its type states {len(argument.type.layout.strides)} strides: "
                        "state one for each dimension, as in strided<[?, 1]>"
                    )
                check_element(argument.type.element_type, f"argument %{name}")
                for extent, expr in zip(argument.type.get_shape(), exprs):
                    if extent >= 0 and not (expr.op == "int" and expr.value == extent):
                        raise VerifyException(f"argument %{name}: extent {extent} of the type, but {expr} is stated")
            elif exprs is not None:
                raise VerifyException(f"argument %{name} of type {argument.type} is no array and has no shape")
            else:
                check_element(argument.type, f"argument %{name}")
            if (align := self.arg_attr(index, "align")) is not None:
                if not isinstance(align, IntegerAttr) or align.value.data not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
                    raise VerifyException(f"argument %{name}: align must be a power of two from 1 to 256")
            unknown = set(self.arg_attrs.data[index].data) - {"align", "noalias"}
            if unknown:
                raise VerifyException(
                    f"argument %{name}: unknown attribute '{sorted(unknown)[0]}', an argument may have: align, noalias"
                )
        shaped: set[str] = set()
        for index in range(len(names)):
            for expr in self.shape_exprs(index) or ():
                if expr.op == "sym":
                    shaped.add(str(expr.value))
        for symbol in self.symbols():
            if symbol not in shaped:
                raise VerifyException(
                    f"dimension {symbol} is the extent of no argument: its value cannot be known at launch"
                )
        for symbol in self.divisors.data if self.divisors is not None else ():
            if symbol not in shaped:
                raise VerifyException(f"dimension {symbol} is stated divisible but is the extent of no argument")
            if self.divisor(symbol) < 1:
                raise VerifyException(f"dimension {symbol}: a divisor must be positive")
        if not 1 <= len(self.grid.data) <= 3:
            raise VerifyException(f"a grid has one to three coordinates, found {len(self.grid.data)}")
        for entry in self.grid.data:
            for symbol in entry.data.symbols():
                if symbol not in shaped:
                    raise VerifyException(f"grid: dimension {symbol} is the extent of no argument")
            _check_divisions(entry.data)
        for argument in arguments[len(names) :]:
            if not isinstance(argument.type, IndexType):
                raise VerifyException("dims and grid coordinates are of type index")
        last = self.body.block.last_op
        if not isinstance(last, ReturnOp):
            raise VerifyException("the body must end with tile.return")
        emitter = Emitter()
        for op in self.body.walk():
            for result in op.results:
                if any(extent < 1 for extent in shape_of(result.type)):
                    hint = "dimensions that are known at launch only are those of arrays: load a tile of them"
                    emitter.error(
                        op, f"'{op.name}': the extents of a tile are known and positive, found {result.type}", hint
                    )
                elif reason := too_large(shape_of(result.type)):
                    emitter.error(op, f"'{op.name}': {reason}", TOO_LARGE_HINT)
        emitter.raise_if_errors()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string("(")

        def one(index: int) -> None:
            printer.print_block_argument(self.body.block.args[index])
            exprs = self.shape_exprs(index)
            if exprs is not None:
                printer.print_string(f" [{', '.join(map(str, exprs))}]")
            if self.arg_attrs.data[index].data:
                printer.print_string(" ")
                printer.print_attr_dict(self.arg_attrs.data[index].data)

        printer.print_list(range(len(self.arg_names.data)), one)
        printer.print_string(")")

        def bound(pair: tuple[SSAValue, str]) -> None:
            printer.print_ssa_value(pair[0])
            printer.print_string(f" = {pair[1]}")

        stated = (
            {} if self.divisors is None else {key: f"{key} divisible {self.divisor(key)}" for key in self.divisors.data}
        )
        if self.dims.data:
            printer.print_string(" dims(")
            pairs = [(arg, stated.pop(dim.data, dim.data)) for arg, dim in zip(self.dim_args, self.dims.data)]
            printer.print_list(pairs, bound)
            printer.print_string(")")
        if stated:
            printer.print_string(f" where({', '.join(stated.values())})")
        printer.print_string(" grid(")
        printer.print_list([(arg, str(expr.data)) for arg, expr in zip(self.grid_args, self.grid.data)], bound)
        printer.print_string(")")
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        names = [arg.name_hint for arg in self.args]
        if names != list(self.names):
            printer.print_string(" names ")
            printer.print_attribute(self.arg_names)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name = parser.parse_symbol_name()
        arguments, shapes, attrs, names = [], [], [], []

        def one() -> None:
            argument = parser.parse_argument()
            arguments.append(argument)
            names.append(argument.name.text[1:])
            exprs = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dim_expr(parser))
            shapes.append(UnitAttr() if exprs is None else ArrayAttr(exprs))
            attrs.append(DictionaryAttr(parser.parse_optional_attr_dict()))

        parser.parse_comma_separated_list(parser.Delimiter.PAREN, one)
        dims: list[str] = []
        divisors: dict[str, Attribute] = {}

        def divisible(symbol: str) -> None:
            if parser.parse_optional_keyword("divisible") is not None:
                divisors[symbol] = int_attr(parser.parse_integer(allow_boolean=False, allow_negative=False))

        def dim() -> None:
            arguments.append(parser.parse_argument(expect_type=False).resolve(IndexType()))
            parser.parse_punctuation("=")
            dims.append(parser.parse_identifier())
            divisible(dims[-1])

        if parser.parse_optional_keyword("dims") is not None:
            parser.parse_comma_separated_list(parser.Delimiter.PAREN, dim)
        if parser.parse_optional_keyword("where") is not None:
            parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: divisible(parser.parse_identifier()))
        grid: list[DimExprAttr] = []

        def coordinate() -> None:
            arguments.append(parser.parse_argument(expect_type=False).resolve(IndexType()))
            parser.parse_punctuation("=")
            grid.append(_parse_dim_expr(parser))

        parser.parse_keyword("grid")
        parser.parse_comma_separated_list(parser.Delimiter.PAREN, coordinate)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        body = parser.parse_region(arguments)
        if not isinstance(body.block.last_op, ReturnOp):
            body.block.add_op(ReturnOp.create())
        arg_names: Attribute = ArrayAttr([StringAttr(text) for text in names])
        if parser.parse_optional_keyword("names") is not None:
            arg_names = parser.parse_attribute()
        properties: dict[str, Attribute] = {
            "sym_name": name,
            "arg_names": arg_names,
            "arg_shapes": ArrayAttr(shapes),
            "arg_attrs": ArrayAttr(attrs),
            "dims": ArrayAttr([StringAttr(text) for text in dims]),
            "grid": ArrayAttr(grid),
        }
        if divisors:
            properties["divisors"] = DictionaryAttr(divisors)
        return cls.create(
            properties=properties, attributes=dict(attributes.data) if attributes is not None else {}, regions=[body]
        )


def _check_divisions(expr: DimExpr) -> None:
    if expr.op in ("floordiv", "ceildiv", "mod") and expr.args[1].op == "int" and int(expr.args[1].value) < 1:
        raise VerifyException(f"{expr}: the divisor must be positive")
    for part in expr.args:
        _check_divisions(part)


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a kernel."""

    name = "tile.return"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"


class _LaunchOp(IRDLOperation):
    """What the ops of a kernel that walks its logical grid itself have in common."""

    def verify_(self) -> None:
        if any(argument.uses for argument in kernel_of(self).grid_args):
            raise VerifyException("a kernel that asks which of the launched blocks it is walks its grid itself and has no grid coordinates")


@irdl_op_definition
class BlockIndexOp(_LaunchOp):
    """`tile.block_index : index`: which of the launched blocks this is, from 0. A kernel that asks is launched with any number of blocks up to
    that of its logical grid, and each does its share of it."""

    name = "tile.block_index"
    res = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($res)"

    @staticmethod
    def make() -> BlockIndexOp:
        return BlockIndexOp.create(result_types=[IndexType()])


@irdl_op_definition
class BlockCountOp(_LaunchOp):
    """`tile.block_count : index`: how many blocks are launched."""

    name = "tile.block_count"
    res = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($res)"

    @staticmethod
    def make() -> BlockCountOp:
        return BlockCountOp.create(result_types=[IndexType()])


@irdl_op_definition
class GridExtentOp(IRDLOperation):
    """`tile.grid_extent 1 : index`: how many coordinates the kernel's logical grid has along an axis."""

    name = "tile.grid_extent"
    axis = prop_def(IntegerAttr[I64])
    res = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict `:` type($res)"

    @staticmethod
    def make(axis: int) -> GridExtentOp:
        return GridExtentOp.create(result_types=[IndexType()], properties={"axis": int_attr(axis)})

    def verify_(self) -> None:
        axes = len(kernel_of(self).grid.data)
        if not 0 <= self.axis.value.data < axes:
            raise VerifyException(f"the grid has {axes} axes, found axis {self.axis.value.data}")


def kernel_of(op: Operation) -> KernelOp:
    """The kernel round an op. Raises VerifyException if there is none."""
    parent: Operation | None = op
    while parent is not None and not isinstance(parent, KernelOp):
        parent = parent.parent_op()
    if parent is None:
        raise VerifyException("stands in a kernel only")
    return parent


CLUSTER_SHAPE = "cluster_shape"
"""The attribute of a kernel whose blocks form clusters: how many points along each axis of the grid the blocks of a cluster take together."""


def cluster_shape(kernel: KernelOp) -> tuple[int, ...] | None:
    """Points of the grid, by axis, that a cluster of blocks takes together; None where blocks form none. Raises TeselaError for a shape
    that is none."""
    value = kernel.attributes.get(CLUSTER_SHAPE)
    if value is None:
        return None
    shape = tuple(value.get_values()) if isinstance(value, DenseArrayBase) else ()
    if len(shape) != len(kernel.grid.data) or any(n < 1 or n & (n - 1) for n in shape) or sum(n > 1 for n in shape) != 1:
        raise TeselaError.at(
            kernel,
            f"{CLUSTER_SHAPE} must have a power of two for one axis of the grid and 1 for the others, found {value}",
            f"write attributes {{{CLUSTER_SHAPE} = array<i64: 2, 1>}}",
        )
    return shape


def walks_its_grid(kernel: KernelOp) -> bool:
    """Whether the kernel is launched with fewer blocks than its logical grid has, each of which does several (or one)."""
    return bool(inside(kernel, BlockIndexOp))
