"""Pairs and counts: `tile.join` and `tile.split` put two tiles side by side and take them apart, `tile.histogram` counts values.

Joining makes a last dimension of extent 2, which every thread holds whole, so that join and split rename registers. With a reshape they interleave,
which is how packed elements of less than a byte are taken apart.
"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .tile_types import element_type, shape_of, tensor_like


@irdl_op_definition
class JoinOp(IRDLOperation):
    """`tile.join %a, %b : tensor<8x16xi8> -> tensor<8x16x2xi8>`: a[…] at […, 0], b[…] at […, 1]."""

    name = "tile.join"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    res = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($res)"

    @staticmethod
    def make(lhs: SSAValue, rhs: SSAValue) -> JoinOp:
        kind = TensorType(element_type(lhs.type), (*shape_of(lhs.type), 2))
        return JoinOp.create(operands=[lhs, rhs], result_types=[kind])

    def verify_(self) -> None:
        if self.lhs.type != self.rhs.type:
            raise VerifyException(f"both tiles must have one type, found {self.lhs.type} and {self.rhs.type}")
        _verify_pair(self.lhs.type, self.res.type)


@irdl_op_definition
class SplitOp(IRDLOperation):
    """`%a, %b = tile.split %x : tensor<8x16x2xi8> -> tensor<8x16xi8>, tensor<8x16xi8>`: x[…, 0] and x[…, 1]."""

    name = "tile.split"
    source = operand_def(TensorType)
    first = result_def(TensorType)
    second = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($first) `,` type($second)"

    @staticmethod
    def make(source: SSAValue) -> SplitOp:
        kind = tensor_like(source.type, element_type(source.type), shape_of(source.type)[:-1])
        return SplitOp.create(operands=[source], result_types=[kind, kind])

    def verify_(self) -> None:
        if self.first.type != self.second.type:
            raise VerifyException(f"both results must have one type, found {self.first.type} and {self.second.type}")
        _verify_pair(self.first.type, self.source.type)


def _verify_pair(part: Attribute, pair: Attribute) -> None:
    if shape_of(pair) != (*shape_of(part), 2):
        raise VerifyException(f"the pairs must have the shape {(*shape_of(part), 2)}, found {shape_of(pair)}")
    if element_type(pair) != element_type(part):
        raise VerifyException("pairs keep the element type")


@irdl_op_definition
class HistogramOp(IRDLOperation):
    """`tile.histogram %x : tensor<1024xi32> -> tensor<256xi32>`: how often each of 0 … 255 occurs in the tile; other values are not counted."""

    name = "tile.histogram"
    source = operand_def(TensorType)
    res = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($res)"

    @staticmethod
    def make(source: SSAValue, bins: int) -> HistogramOp:
        return HistogramOp.create(operands=[source], result_types=[TensorType(i32, (bins,))])

    def verify_(self) -> None:
        for kind, what in ((self.source.type, "the values"), (self.res.type, "the counts")):
            if element_type(kind) != i32:
                raise VerifyException(f"{what} must be i32, found {element_type(kind)}")
        if len(shape_of(self.res.type)) != 1:
            raise VerifyException(f"the counts are a tile of one dimension, found {self.res.type}")
