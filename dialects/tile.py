"""The tile dialect: one block's program on tiles, and the contract of a kernel.

A tile is a `tensor` with static extents; an array in memory is a `memref` with a strided layout. Arithmetic is `arith` and `math` on
tensors, control is `scf`; `tile` adds what they lack. Scalars (indices, `f32` …) are the same for all threads of a block.

    tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                      %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
        dims(%M = M, %N = N, %K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 256) {
      …
    }

**The contract.** `[M, K]` states an array argument's shape in symbolic dimensions (or expressions of them). `dims` binds those the body
reads, `grid` declares the logical grid: one block for each point of it, independent and unordered. From these follow the checks at
launch and the shapes of outputs that the caller did not provide. Attributes of an array argument: `align = N` (its base address, and
all its strides but unit ones, are multiples of N bytes), `noalias`. A dimension may be stated `M divisible 8`.

**Memory.** `tile.load` and `tile.store` take the array and the element index where the tile starts, one for each dimension of the array. A tile
of lower rank than the array covers the dimensions named by `dims` (the last ones unless stated). Past the edges a load reads zero (or
the value after `else`) and a store writes nothing. A block's own accesses to one array keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    DenseArrayBase,
    DictionaryAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    SymbolNameConstraint,
    TensorType,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Data, Dialect, EnumAttribute, Region, SpacedOpaqueSyntaxAttribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, MemoryReadEffect, MemoryWriteEffect, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from .diagnostics import Emitter
from .dim_expr import DimExpr, DimExprError

ELEMENT_TYPES = (
    Float16Type,
    BFloat16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    IndexType,
)


def element_type(kind: Attribute) -> Attribute:
    """The element type of a tensor, or a scalar type itself."""
    return kind.element_type if isinstance(kind, TensorType) else kind


def shape_of(kind: Attribute) -> tuple[int, ...]:
    """The extents of a tensor; () for a scalar."""
    return kind.get_shape() if isinstance(kind, TensorType) else ()


def tensor_like(kind: Attribute, element: Attribute, shape: Sequence[int] | None = None, encoding: Attribute | None = None) -> Attribute:
    """`kind` with another element type (and shape): a tensor stays one with its encoding (unless given), a scalar becomes `element`."""
    if shape is None and not isinstance(kind, TensorType):
        return element
    shape = shape_of(kind) if shape is None else shape
    if encoding is None:
        encoding = kind.encoding if isinstance(kind, TensorType) else NoneAttr()
    return TensorType(element, shape, encoding)


@irdl_attr_definition
class DimExprAttr(Data[DimExpr]):
    """`#tile.dim<"M ceildiv 128">`: an expression over symbolic dimensions."""

    name = "tile.dim"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> DimExpr:
        with parser.in_angle_brackets():
            try:
                return DimExpr.parse(parser.parse_str_literal())
            except DimExprError as error:
                parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(str(self.data))


@irdl_attr_definition
class TargetAttr(Data[str]):
    """`#tile.target<sm_90a>`: the architecture a module is compiled for."""

    name = "tile.target"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            return parser.parse_identifier()

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data)


class ReduceKind(StrEnum):
    """`argmax` and `argmin` give the index (i32) of the first extreme element; numbers.md says how NaN compares."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ARGMAX = "argmax"
    ARGMIN = "argmin"


class Predicate(StrEnum):
    """Comparisons: o.. and u.. for floats (ordered: false where an operand is NaN; unordered: true there), the rest for integers."""

    OEQ = "oeq"
    ONE = "one"
    OLT = "olt"
    OLE = "ole"
    OGT = "ogt"
    OGE = "oge"
    UEQ = "ueq"
    UNE = "une"
    ULT = "ult"
    ULE = "ule"
    UGT = "ugt"
    UGE = "uge"
    EQ = "eq"
    NE = "ne"
    SLT = "slt"
    SLE = "sle"
    SGT = "sgt"
    SGE = "sge"


@irdl_attr_definition
class ReduceKindAttr(EnumAttribute[ReduceKind], SpacedOpaqueSyntaxAttribute):
    name = "tile.kind"


@irdl_attr_definition
class PredicateAttr(EnumAttribute[Predicate], SpacedOpaqueSyntaxAttribute):
    name = "tile.predicate"


@lru_cache(maxsize=None)
def _int(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


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
            ahead = parser._current_token.text  # noqa: SLF001 -- xDSL has no public one-token lookahead
            if ahead not in ("+", "-", "*", "floordiv", "ceildiv", "mod"):
                break
    try:
        return DimExprAttr(DimExpr.parse(" ".join(words)))
    except DimExprError as error:
        parser.raise_error(str(error), position)


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel and its contract; see the module's docstring. The region's arguments are the kernel's arguments, then one index for each
    entry of `dims`, then one for each entry of `grid`."""

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
        """`args`: (name, type, shape or None, attributes) each; `body`'s block has the arguments in the stated order."""
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
            properties["divisors"] = DictionaryAttr({key: _int(value) for key, value in divisors.items()})
        return KernelOp.create(properties=properties, attributes=attributes or {}, regions=[body])

    def verify_(self) -> None:
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
                _check_element(argument.type.element_type, f"argument %{name}")
                for extent, expr in zip(argument.type.get_shape(), exprs):
                    if extent >= 0 and not (expr.op == "int" and expr.value == extent):
                        raise VerifyException(f"argument %{name}: extent {extent} of the type, but {expr} is stated")
            elif exprs is not None:
                raise VerifyException(f"argument %{name} of type {argument.type} is no array and has no shape")
            else:
                _check_element(argument.type, f"argument %{name}")
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
                raise VerifyException(f"dimension {symbol} is the extent of no argument: its value cannot be known at launch")
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
                    emitter.error(op, f"'{op.name}': the extents of a tile are known and positive, found {result.type}", hint)
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

        stated = {} if self.divisors is None else {key: f"{key} divisible {self.divisor(key)}" for key in self.divisors.data}
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
                divisors[symbol] = _int(parser.parse_integer(allow_boolean=False, allow_negative=False))

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


def _check_element(kind: Attribute, what: str) -> None:
    if not isinstance(kind, ELEMENT_TYPES) or (
        isinstance(kind, IntegerType) and kind.width.data not in (1, 8, 16, 32, 64)
    ):
        raise VerifyException(f"{what}: {kind} is no element type; known: f16, bf16, f32, f64, i1, i8, i16, i32, i64, index")


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a kernel."""

    name = "tile.return"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"


def _tile_dims(op: LoadOp | StoreOp, rank: int, array_rank: int) -> tuple[int, ...]:
    if op.dims is None:
        return tuple(range(array_rank - rank, array_rank))
    return tuple(op.dims.get_values())


def _verify_access(op: LoadOp | StoreOp, tile: Attribute) -> None:
    array = op.array.type
    if not isinstance(array, MemRefType):
        raise VerifyException(f"the array must be a memref, found {array}")
    if len(op.indices) != array.get_num_dims():
        raise VerifyException(f"the array has {array.get_num_dims()} dimensions, found {len(op.indices)} indices")
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
            raise VerifyException(f"the value past the edges must be {element_type(self.res.type)}, found {self.fill.type}")

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


def _same_encoding(*kinds: Attribute) -> bool:
    """Whether layouts, where they are stated at all, are stated for every tensor and are equal."""
    return len({kind.encoding for kind in kinds if isinstance(kind, TensorType)}) <= 1


@irdl_op_definition
class DotOp(IRDLOperation):
    """`tile.dot %a, %b, %c : tensor<MxKxbf16>, tensor<KxNxbf16> -> tensor<MxNxf32>`: c + a·b, products exact, summed in f32 (numbers.md).
    Leading dimensions, equal in all, are a batch."""

    name = "tile.dot"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    acc = operand_def(TensorType)
    res = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def make(lhs: SSAValue, rhs: SSAValue, acc: SSAValue) -> DotOp:
        return DotOp.create(operands=[lhs, rhs, acc], result_types=[acc.type])

    def verify_(self) -> None:
        a, b, c = (shape_of(value.type) for value in (self.lhs, self.rhs, self.acc))
        if len(a) < 2 or len(a) != len(b) or len(a) != len(c):
            raise VerifyException(f"dot takes tiles of equal rank, two at least, found ranks {len(a)}, {len(b)}, {len(c)}")
        if a[:-2] != b[:-2] or a[:-2] != c[:-2]:
            raise VerifyException(f"the batch dimensions must be equal, found {a[:-2]}, {b[:-2]}, {c[:-2]}")
        if a[-1] != b[-2]:
            raise VerifyException(f"the inner dimensions must be equal, found {a[-1]} (columns of the lhs) and {b[-2]} (rows of the rhs)")
        if (a[-2], b[-1]) != c[-2:]:
            raise VerifyException(f"the accumulator must be {a[-2]}x{b[-1]}, found {c[-2]}x{c[-1]}")
        if self.res.type != self.acc.type:
            raise VerifyException("the result has the accumulator's type")
        left, right = element_type(self.lhs.type), element_type(self.rhs.type)
        if left != right:
            raise VerifyException(f"both operands must have one element type, found {left} and {right}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.lhs.type, self.rhs.type), printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> DotOp:
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        if len(operands) != 3:
            parser.raise_error(f"tile.dot takes three operands (lhs, rhs, accumulator), found {len(operands)}")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        lhs = parser.parse_type()
        parser.parse_punctuation(",")
        rhs = parser.parse_type()
        parser.parse_punctuation("->")
        res = parser.parse_type()
        values = [parser.resolve_operand(operand, kind) for operand, kind in zip(operands, (lhs, rhs, res))]
        return cls.create(operands=values, result_types=[res], attributes=attributes)


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """`tile.reduce max %x axis 1 : tensor<8x16xf32> -> tensor<8xf32>`; a tile of one dimension gives a scalar. `argmax`/`argmin` give i32."""

    name = "tile.reduce"
    kind = prop_def(ReduceKindAttr)
    source = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    res = result_def()
    traits = traits_def(Pure())

    @staticmethod
    def make(kind: ReduceKind, source: SSAValue, axis: int) -> ReduceOp:
        shape = shape_of(source.type)
        rest = shape[:axis] + shape[axis + 1 :]
        element = i32 if kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN) else element_type(source.type)
        result = TensorType(element, rest) if rest else element
        return ReduceOp.create(
            operands=[source],
            result_types=[result],
            properties={"kind": ReduceKindAttr(kind), "axis": _int(axis)},
        )

    def verify_(self) -> None:
        shape = shape_of(self.source.type)
        axis = self.axis.value.data
        if not 0 <= axis < len(shape):
            raise VerifyException(f"axis {axis} is outside the {len(shape)} dimensions of the tile")
        index = self.kind.data in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
        element = i32 if index else element_type(self.source.type)
        rest = shape[:axis] + shape[axis + 1 :]
        if shape_of(self.res.type) != rest or element_type(self.res.type) != element:
            wanted = TensorType(element, rest) if rest else element
            raise VerifyException(f"{self.kind.data} over axis {axis} of {self.source.type} gives {wanted}, found {self.res.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" axis {self.axis.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> ReduceOp:
        kind = ReduceKindAttr(parser.parse_str_enum(ReduceKind))
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("axis")
        axis = _int(parser.parse_integer(allow_boolean=False))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.resolve_operand(operand, parser.parse_type())
        parser.parse_punctuation("->")
        result = parser.parse_type()
        return cls.create(
            operands=[source], result_types=[result], properties={"kind": kind, "axis": axis}, attributes=attributes
        )


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """`tile.transpose %x [1, 0] : tensor<64x128xf32> -> tensor<128x64xf32>`: dimension i of the result is `permutation[i]` of the source."""

    name = "tile.transpose"
    source = operand_def(TensorType)
    permutation = prop_def(DenseArrayBase)
    res = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, permutation: Sequence[int]) -> TransposeOp:
        shape = shape_of(source.type)
        return TransposeOp.create(
            operands=[source],
            result_types=[TensorType(element_type(source.type), [shape[i] for i in permutation])],
            properties={"permutation": DenseArrayBase.from_list(i64, list(permutation))},
        )

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(self.permutation.get_values())

    def verify_(self) -> None:
        shape = shape_of(self.source.type)
        if sorted(self.order) != list(range(len(shape))):
            raise VerifyException(f"{list(self.order)} is no permutation of the {len(shape)} dimensions")
        wanted = tuple(shape[i] for i in self.order)
        if shape_of(self.res.type) != wanted or element_type(self.res.type) != element_type(self.source.type):
            raise VerifyException(f"the result must be {TensorType(element_type(self.source.type), wanted)}, found {self.res.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" {list(self.order)}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> TransposeOp:
        operand = parser.parse_unresolved_operand()
        order = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.resolve_operand(operand, parser.parse_type())
        parser.parse_punctuation("->")
        return cls.create(
            operands=[source],
            result_types=[parser.parse_type()],
            properties={"permutation": DenseArrayBase.from_list(i64, order)},
            attributes=attributes,
        )


@irdl_op_definition
class ReshapeOp(IRDLOperation):
    """`tile.reshape %x : tensor<8x16xf32> -> tensor<128xf32>`: the same elements in row-major order."""

    name = "tile.reshape"
    source = operand_def(TensorType)
    res = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($res)"

    @staticmethod
    def make(source: SSAValue, shape: Sequence[int]) -> ReshapeOp:
        return ReshapeOp.create(operands=[source], result_types=[TensorType(element_type(source.type), shape)])

    def verify_(self) -> None:
        before, after = 1, 1
        for extent in shape_of(self.source.type):
            before *= extent
        for extent in shape_of(self.res.type):
            after *= extent
        if before != after:
            raise VerifyException(f"a tile of {before} elements cannot be reshaped to one of {after}")
        if element_type(self.source.type) != element_type(self.res.type):
            raise VerifyException("a reshape keeps the element type")


@irdl_op_definition
class ExpandOp(IRDLOperation):
    """`tile.expand %x axis 1 : tensor<128xf32> -> tensor<128x1xf32>`: a new dimension of extent 1."""

    name = "tile.expand"
    source = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    res = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, axis: int) -> ExpandOp:
        shape = shape_of(source.type)
        return ExpandOp.create(
            operands=[source],
            result_types=[TensorType(element_type(source.type), [*shape[:axis], 1, *shape[axis:]])],
            properties={"axis": _int(axis)},
        )

    def verify_(self) -> None:
        shape, axis = shape_of(self.source.type), self.axis.value.data
        if not 0 <= axis <= len(shape):
            raise VerifyException(f"axis {axis} is outside 0 … {len(shape)}")
        wanted = (*shape[:axis], 1, *shape[axis:])
        if shape_of(self.res.type) != wanted or element_type(self.res.type) != element_type(self.source.type):
            raise VerifyException(f"the result must be {TensorType(element_type(self.source.type), wanted)}, found {self.res.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" axis {self.axis.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> ExpandOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("axis")
        axis = _int(parser.parse_integer(allow_boolean=False))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.resolve_operand(operand, parser.parse_type())
        parser.parse_punctuation("->")
        return cls.create(
            operands=[source], result_types=[parser.parse_type()], properties={"axis": axis}, attributes=attributes
        )


@irdl_op_definition
class BroadcastOp(IRDLOperation):
    """`tile.broadcast %x : tensor<128x1xf32> -> tensor<128x64xf32>`: extents of 1 are repeated."""

    name = "tile.broadcast"
    source = operand_def(TensorType)
    res = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($res)"

    @staticmethod
    def make(source: SSAValue, shape: Sequence[int]) -> BroadcastOp:
        return BroadcastOp.create(operands=[source], result_types=[TensorType(element_type(source.type), shape)])

    def verify_(self) -> None:
        before, after = shape_of(self.source.type), shape_of(self.res.type)
        if len(before) != len(after) or any(a not in (1, b) for a, b in zip(before, after)):
            raise VerifyException(f"{before} does not broadcast to {after}: each extent must be equal, or 1 in the source")
        if element_type(self.source.type) != element_type(self.res.type):
            raise VerifyException("a broadcast keeps the element type")


@irdl_op_definition
class FullOp(IRDLOperation):
    """`tile.full %x : f32 -> tensor<8x16xf32>`: a tile of one value."""

    name = "tile.full"
    value = operand_def()
    res = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($res)"

    @staticmethod
    def make(value: SSAValue, shape: Sequence[int]) -> FullOp:
        return FullOp.create(operands=[value], result_types=[TensorType(value.type, shape)])

    def verify_(self) -> None:
        if self.value.type != element_type(self.res.type):
            raise VerifyException(f"the value must be {element_type(self.res.type)}, found {self.value.type}")


@irdl_op_definition
class IotaOp(IRDLOperation):
    """`tile.iota axis 0 : tensor<128x64xi32>`: each element's coordinate along `axis` (i32 or i64)."""

    name = "tile.iota"
    axis = prop_def(IntegerAttr)
    res = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def make(result: Attribute, axis: int = 0) -> IotaOp:
        return IotaOp.create(result_types=[result], properties={"axis": _int(axis)})

    def verify_(self) -> None:
        if not 0 <= self.axis.value.data < len(shape_of(self.res.type)):
            raise VerifyException(f"axis {self.axis.value.data} is outside the dimensions of {self.res.type}")
        if element_type(self.res.type) not in (i32, i64):
            raise VerifyException(f"iota gives i32 or i64, found {element_type(self.res.type)}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" axis {self.axis.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> IotaOp:
        parser.parse_keyword("axis")
        axis = _int(parser.parse_integer(allow_boolean=False))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(result_types=[parser.parse_type()], properties={"axis": axis}, attributes=attributes)


@irdl_op_definition
class CastOp(IRDLOperation):
    """`tile.cast %x : tensor<8xf32> -> tensor<8xbf16>`, tiles or scalars: to floats rounded once to nearest even (past the largest: infinity, or
    the largest with `saturate`); float to integer toward zero, saturating, NaN to 0; integer to narrower integer keeps the low bits; integers are
    signed, but i1 is 0 or 1 (numbers.md). Index may be cast to and from integers."""

    name = "tile.cast"
    source = operand_def()
    res = result_def()
    saturate = opt_prop_def(UnitAttr)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, element: Attribute, saturate: bool = False) -> CastOp:
        return CastOp.create(
            operands=[source],
            result_types=[tensor_like(source.type, element)],
            properties={"saturate": UnitAttr()} if saturate else {},
        )

    def verify_(self) -> None:
        if isinstance(self.source.type, TensorType) != isinstance(self.res.type, TensorType):
            raise VerifyException("a cast takes a tile to a tile or a scalar to a scalar")
        if shape_of(self.source.type) != shape_of(self.res.type):
            raise VerifyException(f"a cast keeps the shape, found {shape_of(self.source.type)} and {shape_of(self.res.type)}")
        if not _same_encoding(self.source.type, self.res.type):
            raise VerifyException("a cast keeps the layout")
        for kind in (element_type(self.source.type), element_type(self.res.type)):
            _check_element(kind, "cast")
        if self.saturate is not None and not isinstance(element_type(self.res.type), AnyFloat):
            raise VerifyException("'saturate' is for casts to floats; casts to integers say it by their type")

    def print(self, printer: Printer) -> None:
        printer.print_string(" saturate " if self.saturate is not None else " ")
        printer.print_ssa_value(self.source)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> CastOp:
        properties: dict[str, Attribute] = {}
        if parser.parse_optional_keyword("saturate") is not None:
            properties["saturate"] = UnitAttr()
        operand = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.resolve_operand(operand, parser.parse_type())
        parser.parse_punctuation("->")
        return cls.create(
            operands=[source], result_types=[parser.parse_type()], properties=properties, attributes=attributes
        )


@irdl_op_definition
class CmpOp(IRDLOperation):
    """`tile.cmp olt %a, %b : tensor<8xf32> -> tensor<8xi1>` (xDSL's arith.cmpf and arith.cmpi give a single i1 for tensors)."""

    name = "tile.cmp"
    predicate = prop_def(PredicateAttr)
    lhs = operand_def()
    rhs = operand_def()
    res = result_def()
    traits = traits_def(Pure())

    @staticmethod
    def make(predicate: Predicate, lhs: SSAValue, rhs: SSAValue) -> CmpOp:
        return CmpOp.create(
            operands=[lhs, rhs],
            result_types=[tensor_like(lhs.type, IntegerType(1))],
            properties={"predicate": PredicateAttr(predicate)},
        )

    def verify_(self) -> None:
        if self.lhs.type != self.rhs.type:
            raise VerifyException(f"both operands must have one type, found {self.lhs.type} and {self.rhs.type}")
        if self.res.type != tensor_like(self.lhs.type, IntegerType(1)):
            raise VerifyException(f"the result must be {tensor_like(self.lhs.type, IntegerType(1))}, found {self.res.type}")
        floats = isinstance(element_type(self.lhs.type), AnyFloat)
        name = self.predicate.data.value
        if floats != (len(name) == 3 and name[0] in "ou"):
            known = "oeq, one, olt … une, ult … for floats; eq, ne, slt, sle, sgt, sge for integers"
            raise VerifyException(f"{name} does not compare {element_type(self.lhs.type)}: {known}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.predicate.data} ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.lhs.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> CmpOp:
        predicate = PredicateAttr(parser.parse_str_enum(Predicate))
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(lhs, kind), parser.resolve_operand(rhs, kind)],
            result_types=[result],
            properties={"predicate": predicate},
            attributes=attributes,
        )


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`tile.select %p, %a, %b : tensor<8xi1>, tensor<8xf32>`: a where p, else b."""

    name = "tile.select"
    condition = operand_def()
    true_value = operand_def()
    false_value = operand_def()
    res = result_def()
    traits = traits_def(Pure())

    @staticmethod
    def make(condition: SSAValue, true_value: SSAValue, false_value: SSAValue) -> SelectOp:
        return SelectOp.create(operands=[condition, true_value, false_value], result_types=[true_value.type])

    def verify_(self) -> None:
        if self.true_value.type != self.false_value.type or self.true_value.type != self.res.type:
            raise VerifyException(f"both values must have one type, found {self.true_value.type} and {self.false_value.type}")
        if self.condition.type != tensor_like(self.res.type, IntegerType(1)):
            raise VerifyException(f"the condition must be {tensor_like(self.res.type, IntegerType(1))}, found {self.condition.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.condition.type, self.res.type), printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> SelectOp:
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        if len(operands) != 3:
            parser.raise_error(f"tile.select takes three operands, found {len(operands)}")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        condition = parser.parse_type()
        parser.parse_punctuation(",")
        kind = parser.parse_type()
        values = [parser.resolve_operand(operand, t) for operand, t in zip(operands, (condition, kind, kind))]
        return cls.create(operands=values, result_types=[kind], attributes=attributes)


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """`tile.constant "-inf" : f32`: a scalar float constant that is not finite ("inf", "-inf" or "nan"). Finite ones are arith.constant;
    xDSL re-parses non-finite ones as other numbers."""

    name = "tile.constant"
    value = prop_def(StringAttr)
    res = result_def()
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($res)"

    @staticmethod
    def make(value: float, kind: Attribute) -> ConstantOp:
        text = "nan" if value != value else ("inf" if value > 0 else "-inf")
        return ConstantOp.create(result_types=[kind], properties={"value": StringAttr(text)})

    @property
    def number(self) -> float:
        return float(self.value.data)

    def verify_(self) -> None:
        if self.value.data not in ("inf", "-inf", "nan"):
            raise VerifyException(f'tile.constant is "inf", "-inf" or "nan" (finite ones are arith.constant), found "{self.value.data}"')
        if not isinstance(self.res.type, AnyFloat):
            raise VerifyException(f"tile.constant gives a float, found {self.res.type}")


Tile = Dialect(
    "tile",
    [
        KernelOp,
        ReturnOp,
        LoadOp,
        StoreOp,
        DotOp,
        ReduceOp,
        TransposeOp,
        ReshapeOp,
        ExpandOp,
        BroadcastOp,
        FullOp,
        IotaOp,
        CastOp,
        CmpOp,
        SelectOp,
        ConstantOp,
    ],
    [DimExprAttr, TargetAttr, ReduceKindAttr, PredicateAttr],
)
