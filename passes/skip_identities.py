"""skip-identities: what usually changes nothing is marked, so that a warp can leave it out: products with one, and extremes that are not new.

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

**Extremes.** Where a reduction to a maximum is for one purpose only, to take the place of something if it lies above a bound, the lanes of a warp need not tell one
another theirs as long as none has one above the bound: the comparison is false whichever of them is asked. Such a reduction is marked `only_beyond`; each warp
votes on its lanes' own extremes, and combines them only if that may matter. A NaN lies above nothing, alone or combined. Minima likewise.

    %peak = tile.reduce max %scores axis 1 {only_beyond}
    %high = tile.cmp ogt %peak, %bound
    %now = tile.select %high, %peak, %before
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, IntegerAttr, ModuleOp, TensorType, UnitAttr, i64
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from ..dialects import tile
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.tile import element_type
from .base import Pass, PassContext

UNLESS_ONE = "unless_one"
"""The attribute of a multiplication: the index of the operand that is usually one everywhere."""
ONLY_BEYOND = "only_beyond"
"""The attribute of a reduction to an extreme that is used only where it lies beyond a bound."""
RATIO = 8
"""Multiplications for each factor from which on asking first pays: a comparison, and its share of a vote and a branch."""


@dataclass
class SkipIdentities(Pass):
    """Mark multiplications by what is usually one. `ratio`: how many there must be for each factor (0: none is marked). `extremes`: whether
    to mark maxima and minima, too, that only matter beyond a bound."""

    name: ClassVar[str] = "skip-identities"
    ratio: int = RATIO
    extremes: bool = True

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for op in list(module.walk()):
            if self.extremes and isinstance(op, tile.ReduceOp) and (bound := bound_of(op)) is not None:
                op.attributes[ONLY_BEYOND] = UnitAttr()
                _place_after(op, bound)
            elif self.ratio > 0 and isinstance(op, arith.MulfOp) and isinstance(op.result.type, TensorType) and UNLESS_ONE not in op.attributes:
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


# ---- extremes -------------------------------------------------------------------------------------------------------


BEYOND = {tile.ReduceKind.MAX: ("ogt", "olt"), tile.ReduceKind.MIN: ("olt", "ogt")}
"""How an extreme on the left, or on the right, compares with a bound that it lies beyond."""


def bound_of(op: tile.ReduceOp) -> SSAValue | None:
    """What a reduction to an extreme is compared with, if all it is used for is to be selected where it lies beyond; None otherwise."""
    if op.kind.data not in BEYOND or not isinstance(op.res.type, TensorType) or not isinstance(element_type(op.res.type), Float32Type):
        return None
    users = {use.operation for use in op.res.uses}
    comparisons = [user for user in users if isinstance(user, tile.CmpOp)]
    if len(comparisons) != 1 or comparisons[0].parent is not op.parent:
        return None
    (comparison,) = comparisons
    left, right = BEYOND[op.kind.data]
    wanted, bound = (left, comparison.rhs) if comparison.lhs is op.res else (right, comparison.lhs)
    if comparison.predicate.data.value != wanted or bound is op.res:
        return None
    uses = [use for use in op.res.uses if use.operation is not comparison]
    selected = all(isinstance(use.operation, tile.SelectOp) and use.index == 1 and use.operation.operands[0] is comparison.res for use in uses)
    return bound if selected else None


def _place_after(op: tile.ReduceOp, bound: SSAValue) -> None:
    """Moves a reduction down to where its bound is known, if that is later."""
    block, other = op.parent, bound.owner
    if block is not None and isinstance(other, Operation) and other.parent is block and op.is_before_in_block(other):
        op.detach()
        block.insert_op_after(op, other)
