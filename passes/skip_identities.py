"""skip-identities: multiplications by what is usually one are marked, so that a warp can leave them out.

A running maximum that seldom changes is typical of sums that are kept in scale (softmax along a loop): what was summed is multiplied by
exp(before - now), which is exactly one wherever the maximum stayed. For a wide tile that has one such factor for each row, asking is cheaper than multiplying:

    %now = tile.select %grown, %new, %before                    two registers of a thread hold the factors of its rows,
    %d = arith.subf %before, %now                          →    64 registers the accumulator: two comparisons, a vote and a branch
    %f = math.exp2 %d                                           stand before 64 multiplications, and usually instead of them
    %y = arith.mulf %acc, (broadcast %f)                        %y = arith.mulf %acc, (broadcast %f) {unless_one = 1}

`unless_one` names the operand that is usually one. It changes no value: x·1 is x, for every x (a NaN stays a NaN). Whether the factor
*is* one is asked at run time, by every warp for its own rows; here it is only guessed that it often is. The guess: an exponential of a difference
of which one side is a selection, or a maximum or minimum, of the other (times anything).

Only tiles of f32 are marked, whose factor has at least `ratio` times fewer registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, IntegerAttr, ModuleOp, TensorType, i64
from xdsl.ir import Attribute, OpResult, SSAValue

from ..dialects import tile
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.tile import element_type
from .base import Pass, PassContext

UNLESS_ONE = "unless_one"
"""The attribute of a multiplication: the index of the operand that is usually one everywhere."""
RATIO = 8
"""Multiplications for each factor from which on asking first pays: a comparison, and its share of a vote and a branch."""


@dataclass
class SkipIdentities(Pass):
    """Mark multiplications by what is usually one. `ratio`: how many there must be for each factor (0: none is marked)."""

    name: ClassVar[str] = "skip-identities"
    ratio: int = RATIO

    def run(self, module: ModuleOp, context: PassContext) -> None:
        if self.ratio <= 0:
            return
        for op in module.walk():
            if isinstance(op, arith.MulfOp) and isinstance(op.result.type, TensorType) and UNLESS_ONE not in op.attributes:
                for index, operand in enumerate(op.operands):
                    factors = repeated(operand)
                    wide, narrow = _registers(op.result.type), _registers(factors.type)
                    if factors is not operand and 0 < self.ratio * narrow <= wide and _often_one(factors):
                        op.attributes[UNLESS_ONE] = IntegerAttr(index, i64)
                        break


def repeated(value: SSAValue) -> SSAValue:
    """The smallest tile whose elements `value` repeats."""
    while isinstance(value, OpResult) and isinstance(value.op, tile.BroadcastOp | tile.ExpandOp):
        value = value.op.source
    return value


def _registers(kind: Attribute) -> int:
    """Registers of a thread that hold a tile of f32; 0 where there is no saying."""
    known = isinstance(kind, TensorType) and isinstance(kind.encoding, TVLayoutAttr) and isinstance(element_type(kind), Float32Type)
    return kind.encoding.data.num_values if known else 0


def _often_one(value: SSAValue) -> bool:
    return isinstance(value, OpResult) and isinstance(value.op, math.ExpOp | math.Exp2Op) and _often_zero(value.op.operands[0])


def _often_zero(value: SSAValue) -> bool:
    if not isinstance(value, OpResult):
        return False
    match op := value.op:
        case arith.SubfOp():
            return _may_be(op.lhs, op.rhs) or _may_be(op.rhs, op.lhs)
        case arith.MulfOp():
            return _often_zero(op.lhs) or _often_zero(op.rhs)
        case arith.NegfOp() | tile.BroadcastOp() | tile.ExpandOp():
            return _often_zero(op.operands[0])
        case _:
            return False


def _may_be(chosen: SSAValue, value: SSAValue) -> bool:
    """Whether `chosen` is, depending on the run, `value` itself."""
    if not isinstance(chosen, OpResult):
        return False
    match op := chosen.op:
        case tile.SelectOp():
            return value in op.operands[1:]
        case arith.MaximumfOp() | arith.MinimumfOp() | arith.MaxnumfOp() | arith.MinnumfOp():
            return value in op.operands
        case _:
            return False
