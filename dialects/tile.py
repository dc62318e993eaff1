"""The tile dialect: one block's program on tiles, and the contract of a kernel.

A tile is a `tensor` with static extents; an array in memory is a `memref` with a strided layout. Arithmetic is `arith`
and `math` on tensors, control is `scf`; `tile` adds what they lack. Scalars (indices, `f32` …) are the same for all
threads of a block.

    tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                      %C: memref<?x?xf32, strided<[?, 1]>> [M, N])
        dims(%M = M, %N = N, %K = K) grid(%bm = M ceildiv 128, %bn = N ceildiv 256) {
      …
    }

**The contract.** `[M, K]` states an array argument's shape in symbolic dimensions (or expressions of them). `dims`
binds those the body reads, `grid` declares the logical grid: one block for each point of it, independent and unordered.
From these follow the checks at launch and the shapes of outputs that the caller did not provide. Attributes of an array
argument: `align = N` (its base address, and all its strides but unit ones, are multiples of N bytes), `noalias`. A
dimension may be stated `M divisible 8`.

**Memory.** `tile.load` and `tile.store` take the array and the element index where the tile starts, one for each
dimension of the array. A tile of lower rank than the array covers the dimensions named by `dims` (the last ones unless
stated). Past the edges a load reads zero (or the value after `else`) and a store writes nothing. A block's own accesses
to one array keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float32Type,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from .dim_expr import DimExpr
from .op_text import (
    parse_operands,
    parse_permutation,
    parse_source_to_result,
    print_operands,
    print_permutation,
    print_source_to_result,
)
from .tile_assume import AssumeOp
from .tile_gather import GatherOp
from .tile_indexed import AtomicKind, AtomicKindAttr, AtomicOp, LoadIndexedOp, StoreIndexedOp
from .tile_inline import InlinePtxOp
from .tile_kernel import (
    CLUSTER_SHAPE,
    BlockCountOp,
    BlockIndexOp,
    GridExtentOp,
    KernelOp,
    ReturnOp,
    cluster_shape,
    walks_its_grid,
)
from .tile_memory import LoadOp, StoreOp
from .tile_messages import AssertOp, PrintOp
from .tile_pairs import HistogramOp, JoinOp, SplitOp
from .tile_parts import SumPartsOp
from .tile_scan import FoldOp, ScanOp, YieldOp
from .tile_types import (
    ELEMENT_TYPES,
    DimExprAttr,
    Predicate,
    PredicateAttr,
    ReduceKind,
    ReduceKindAttr,
    TargetAttr,
    check_element,
    element_type,
    int_attr,
    same_encoding,
    shape_of,
    tensor_like,
    ui8,
)

__all__ = [
    "CLUSTER_SHAPE",
    "AssertOp",
    "AssumeOp",
    "AtomicKind",
    "AtomicKindAttr",
    "AtomicOp",
    "BlockCountOp",
    "BlockIndexOp",
    "BroadcastOp",
    "CastOp",
    "CmpOp",
    "ConstantOp",
    "DimExpr",
    "DimExprAttr",
    "DotOp",
    "ELEMENT_TYPES",
    "PRECISION",
    "ExpandOp",
    "FoldOp",
    "FullOp",
    "GatherOp",
    "GridExtentOp",
    "HistogramOp",
    "InlinePtxOp",
    "IotaOp",
    "JoinOp",
    "KernelOp",
    "LoadIndexedOp",
    "LoadOp",
    "Predicate",
    "PredicateAttr",
    "PrintOp",
    "ReduceKind",
    "ReduceKindAttr",
    "ReduceOp",
    "ReshapeOp",
    "ReturnOp",
    "ScanOp",
    "SelectOp",
    "SplitOp",
    "StoreIndexedOp",
    "StoreOp",
    "SumPartsOp",
    "TargetAttr",
    "Tile",
    "TransposeOp",
    "YieldOp",
    "check_dot_operands",
    "cluster_shape",
    "element_type",
    "shape_of",
    "tensor_like",
    "ui8",
    "walks_its_grid",
]


PRECISION = "precision"
"""The attribute of a dot that says what its operands may be rounded to."""


def check_dot_operands(lhs: Attribute, rhs: Attribute, attributes: Mapping[str, Attribute]) -> None:
    """Raises VerifyException unless a dot may have operands of these element types, and the attribute `precision`."""
    kinds = {lhs, rhs}
    if len(kinds) > 1 and not any(kinds <= mixed for mixed in MIXED_OPERANDS):
        raise VerifyException(f"both operands must have one element type, found {lhs} and {rhs}")
    if (precision := attributes.get(PRECISION)) is not None:
        if precision != StringAttr("tf32") or not isinstance(lhs, Float32Type):
            raise VerifyException(f'precision is "tf32", for f32 operands, found {precision} for {lhs}')


MIXED_OPERANDS = ({Float8E4M3FNType(), Float8E5M2Type()}, {IntegerType(8), ui8})


@irdl_op_definition
class DotOp(IRDLOperation):
    """`tile.dot %a, %b, %c : tensor<MxKxbf16>, tensor<KxNxbf16> -> tensor<MxNxf32>`: c + a·b, products exact, summed in
    f32 (numbers.md). Leading dimensions, equal in all, are a batch. Operands of 8 bits may differ: f8E4M3FN and f8E5M2, i8 and
    ui8. `precision = "tf32"` lets f32 operands be taken as tf32."""

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
            raise VerifyException(
                f"dot takes tiles of equal rank, two at least, found ranks {len(a)}, {len(b)}, {len(c)}"
            )
        if a[:-2] != b[:-2] or a[:-2] != c[:-2]:
            raise VerifyException(f"the batch dimensions must be equal, found {a[:-2]}, {b[:-2]}, {c[:-2]}")
        if a[-1] != b[-2]:
            raise VerifyException(
                f"the inner dimensions must be equal, found {a[-1]} (columns of the lhs) and {b[-2]} (rows of the rhs)"
            )
        if (a[-2], b[-1]) != c[-2:]:
            raise VerifyException(f"the accumulator must be {a[-2]}x{b[-1]}, found {c[-2]}x{c[-1]}")
        if self.res.type != self.acc.type:
            raise VerifyException("the result has the accumulator's type")
        check_dot_operands(element_type(self.lhs.type), element_type(self.rhs.type), self.attributes)

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_list((self.lhs.type, self.rhs.type), printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> DotOp:
        operands, attributes = parse_operands(parser, 3, "tile.dot takes three operands (lhs, rhs, accumulator)")
        lhs = parser.parse_type()
        parser.parse_punctuation(",")
        rhs = parser.parse_type()
        parser.parse_punctuation("->")
        res = parser.parse_type()
        values = [parser.resolve_operand(operand, kind) for operand, kind in zip(operands, (lhs, rhs, res))]
        return cls.create(operands=values, result_types=[res], attributes=attributes)


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """`tile.reduce max %x axis 1 : tensor<8x16xf32> -> tensor<8xf32>`; a tile of one dimension gives a scalar.
    `argmax`/`argmin` give i32."""

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
            properties={"kind": ReduceKindAttr(kind), "axis": int_attr(axis)},
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
            raise VerifyException(
                f"{self.kind.data} over axis {axis} of {self.source.type} gives {wanted}, found {self.res.type}"
            )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" axis {self.axis.value.data}")
        print_source_to_result(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> ReduceOp:
        kind = ReduceKindAttr(parser.parse_str_enum(ReduceKind))
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("axis")
        axis = int_attr(parser.parse_integer(allow_boolean=False))
        attributes, source, result = parse_source_to_result(parser, operand)
        return cls.create(
            operands=[source], result_types=[result], properties={"kind": kind, "axis": axis}, attributes=attributes
        )


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """`tile.transpose %x [1, 0] : tensor<64x128xf32> -> tensor<128x64xf32>`: dimension i of the result is
    `permutation[i]` of the source."""

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
            raise VerifyException(
                f"the result must be {TensorType(element_type(self.source.type), wanted)}, found {self.res.type}"
            )

    def print(self, printer: Printer) -> None:
        print_permutation(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> TransposeOp:
        source, result, properties, attributes = parse_permutation(parser)
        return cls.create(operands=[source], result_types=[result], properties=properties, attributes=attributes)


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
            properties={"axis": int_attr(axis)},
        )

    def verify_(self) -> None:
        shape, axis = shape_of(self.source.type), self.axis.value.data
        if not 0 <= axis <= len(shape):
            raise VerifyException(f"axis {axis} is outside 0 … {len(shape)}")
        wanted = (*shape[:axis], 1, *shape[axis:])
        if shape_of(self.res.type) != wanted or element_type(self.res.type) != element_type(self.source.type):
            raise VerifyException(
                f"the result must be {TensorType(element_type(self.source.type), wanted)}, found {self.res.type}"
            )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" axis {self.axis.value.data}")
        print_source_to_result(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> ExpandOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("axis")
        axis = int_attr(parser.parse_integer(allow_boolean=False))
        attributes, source, result = parse_source_to_result(parser, operand)
        return cls.create(
            operands=[source], result_types=[result], properties={"axis": axis}, attributes=attributes
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
            raise VerifyException(
                f"{before} does not broadcast to {after}: each extent must be equal, or 1 in the source"
            )
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
        return IotaOp.create(result_types=[result], properties={"axis": int_attr(axis)})

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
        axis = int_attr(parser.parse_integer(allow_boolean=False))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(result_types=[parser.parse_type()], properties={"axis": axis}, attributes=attributes)


@irdl_op_definition
class CastOp(IRDLOperation):
    """`tile.cast %x : tensor<8xf32> -> tensor<8xbf16>`, tiles or scalars: to floats rounded once to nearest even (past
    the largest: infinity, or the largest with `saturate`); float to integer toward zero, saturating, NaN to 0; integer
    to narrower integer keeps the low bits; integers are signed, but i1 is 0 or 1 (numbers.md). Index may be cast to and
    from integers."""

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
            raise VerifyException(
                f"a cast keeps the shape, found {shape_of(self.source.type)} and {shape_of(self.res.type)}"
            )
        if not same_encoding(self.source.type, self.res.type):
            raise VerifyException("a cast keeps the layout")
        for kind in (element_type(self.source.type), element_type(self.res.type)):
            check_element(kind, "cast")
        if self.saturate is not None and not isinstance(element_type(self.res.type), AnyFloat):
            raise VerifyException("'saturate' is for casts to floats; casts to integers say it by their type")

    def print(self, printer: Printer) -> None:
        printer.print_string(" saturate " if self.saturate is not None else " ")
        printer.print_ssa_value(self.source)
        print_source_to_result(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> CastOp:
        properties: dict[str, Attribute] = {}
        if parser.parse_optional_keyword("saturate") is not None:
            properties["saturate"] = UnitAttr()
        operand = parser.parse_unresolved_operand()
        attributes, source, result = parse_source_to_result(parser, operand)
        return cls.create(
            operands=[source], result_types=[result], properties=properties, attributes=attributes
        )


@irdl_op_definition
class CmpOp(IRDLOperation):
    """`tile.cmp olt %a, %b : tensor<8xf32> -> tensor<8xi1>` (xDSL's arith.cmpf and arith.cmpi give a single i1 for
    tensors)."""

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
            raise VerifyException(
                f"the result must be {tensor_like(self.lhs.type, IntegerType(1))}, found {self.res.type}"
            )
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
            raise VerifyException(
                f"both values must have one type, found {self.true_value.type} and {self.false_value.type}"
            )
        if self.condition.type != tensor_like(self.res.type, IntegerType(1)):
            raise VerifyException(
                f"the condition must be {tensor_like(self.res.type, IntegerType(1))}, found {self.condition.type}"
            )

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_list((self.condition.type, self.res.type), printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> SelectOp:
        operands, attributes = parse_operands(parser, 3, "tile.select takes three operands")
        condition = parser.parse_type()
        parser.parse_punctuation(",")
        kind = parser.parse_type()
        values = [parser.resolve_operand(operand, t) for operand, t in zip(operands, (condition, kind, kind))]
        return cls.create(operands=values, result_types=[kind], attributes=attributes)


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """`tile.constant "-inf" : f32`: a scalar float constant that is not finite ("inf", "-inf" or "nan"). Finite ones
    are arith.constant; xDSL re-parses non-finite ones as other numbers."""

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
            raise VerifyException(
                f'tile.constant is "inf", "-inf" or "nan" (finite ones are arith.constant), found "{self.value.data}"'
            )
        if not isinstance(self.res.type, AnyFloat):
            raise VerifyException(f"tile.constant gives a float, found {self.res.type}")


Tile = Dialect(
    "tile",
    [
        KernelOp,
        ReturnOp,
        BlockIndexOp,
        BlockCountOp,
        GridExtentOp,
        LoadOp,
        StoreOp,
        SumPartsOp,
        LoadIndexedOp,
        StoreIndexedOp,
        AtomicOp,
        PrintOp,
        AssertOp,
        AssumeOp,
        InlinePtxOp,
        DotOp,
        ReduceOp,
        HistogramOp,
        GatherOp,
        ScanOp,
        FoldOp,
        YieldOp,
        JoinOp,
        SplitOp,
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
    [DimExprAttr, TargetAttr, ReduceKindAttr, PredicateAttr, AtomicKindAttr],
)
