"""What is known of an index value: a number that divides it, and whether it is never negative.

An analysis, not a transformation; vector accesses and tensor maps ask it whether a tile's start is aligned. It follows constants, sums,
products, both ends of a conditional, loop counters, what loops carry and add to, grid coordinates and symbolic dimensions (as the kernel's `divisible` states them). It is computed on
demand, and what it does not know is 1 and False: slower code, never wrong code.

    %m = %bm * 128      divisor 128, not negative        %k of `scf.for %k = 0 to %K step 64`   divisor 64, not negative
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Block, BlockArgument, OpResult, SSAValue

from ..dialects import tile

ZERO_DIVISOR = 1 << 40  # stands for "every number divides zero", and is larger than any alignment that is asked for


@dataclass(frozen=True, slots=True)
class Fact:
    """`divisor` divides the value; `nonnegative`: it is at least zero."""

    divisor: int = 1
    nonnegative: bool = False


UNKNOWN = Fact()


class Divisibility:
    """The facts of one kernel's index values, memoised."""

    def __init__(self) -> None:
        self._facts: dict[SSAValue, Fact] = {}

    def fact(self, value: SSAValue) -> Fact:
        """What is known of `value`."""
        found = self._facts.get(value)
        if found is None:
            self._facts[value] = UNKNOWN  # a cycle through a loop-carried value ends here
            found = self._facts[value] = self._compute(value)
        return found

    def divisor(self, value: SSAValue) -> int:
        """A positive number that divides `value`."""
        return self.fact(value).divisor

    def nonnegative(self, value: SSAValue) -> bool:
        return self.fact(value).nonnegative

    def _compute(self, value: SSAValue) -> Fact:
        if isinstance(value, BlockArgument):
            return self._argument(value)
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, arith.ConstantOp):
            if not isinstance(op.value, IntegerAttr):
                return UNKNOWN
            number = op.value.value.data
            return Fact(abs(number) or ZERO_DIVISOR, number >= 0)
        if isinstance(op, tile.BlockIndexOp | tile.BlockCountOp | tile.GridExtentOp):
            return Fact(1, True)
        if isinstance(op, arith.IndexCastOp | tile.CastOp):
            return self.fact(op.operands[0])
        if isinstance(op, tile.AssumeOp):
            known, stated = self.fact(op.source), op.stated()
            return Fact(lcm(known.divisor, stated.get("divisor", 1)), known.nonnegative or stated.get("least", -1) >= 0)
        if isinstance(op, arith.SelectOp | tile.SelectOp):
            return _both(self.fact(op.operands[1]), self.fact(op.operands[2]))
        if isinstance(op, scf.IfOp):
            ends = [region.block.last_op for region in (op.true_region, op.false_region)]
            return _both(*(self.fact(end.operands[value.index]) for end in ends if end is not None))
        if len(op.operands) != 2:
            return UNKNOWN
        left, right = (self.fact(operand) for operand in op.operands)
        match op:
            case arith.MuliOp():
                return Fact(min(left.divisor * right.divisor, ZERO_DIVISOR), left.nonnegative and right.nonnegative)
            case arith.AddiOp() | arith.MinSIOp() | arith.MaxSIOp():
                both = _both(left, right)
                either = isinstance(op, arith.MaxSIOp) and (left.nonnegative or right.nonnegative)
                return Fact(both.divisor, both.nonnegative or either)
            case arith.SubiOp():
                return Fact(gcd(left.divisor, right.divisor), False)
            case arith.DivSIOp() | arith.DivUIOp() | arith.FloorDivSIOp() | arith.CeilDivSIOp():
                return Fact(1, left.nonnegative and right.nonnegative)
            case arith.RemSIOp() | arith.RemUIOp():
                return Fact(gcd(left.divisor, right.divisor), left.nonnegative)
            case _:
                return UNKNOWN

    def _argument(self, value: BlockArgument) -> Fact:
        parent = value.block.parent_op()
        if isinstance(parent, tile.KernelOp):
            position = value.index - len(parent.arg_names.data)
            if position < 0:
                return UNKNOWN
            if position < len(parent.dims.data):
                return Fact(parent.divisor(parent.dims.data[position].data), True)
            return Fact(1, True)
        if isinstance(parent, scf.ForOp) and value.index == 0:
            lower, step = self.fact(parent.lb), self.fact(parent.step)
            return Fact(gcd(lower.divisor, step.divisor), lower.nonnegative)
        if (step := growth(value)) is not None:
            assert isinstance(parent, scf.ForOp)
            return _both(self.fact(parent.iter_args[value.index - 1]), self.fact(step))
        return UNKNOWN


def growth(value: SSAValue) -> SSAValue | None:
    """What a scalar that a loop carries grows by in each trip, if that is the same value in all; None otherwise."""
    if not isinstance(value, BlockArgument) or value.index == 0 or isinstance(value.type, TensorType):
        return None
    loop, end = value.block.parent_op(), value.block.last_op
    if not isinstance(loop, scf.ForOp) or end is None:
        return None
    op = end.operands[value.index - 1].owner
    if not isinstance(op, arith.AddiOp):
        return None
    left, right = op.operands
    step = right if left is value else left if right is value else None
    return step if step is not None and not is_inside(step, value.block) else None


def is_inside(value: SSAValue, block: Block) -> bool:
    """Whether a value is defined in a block, or deeper inside."""
    at = value.block if isinstance(value, BlockArgument) else value.owner.parent_block()
    while at is not None and at is not block:
        parent = at.parent_op()
        at = parent.parent if parent is not None else None
    return at is block


def _both(left: Fact, right: Fact) -> Fact:
    return Fact(gcd(left.divisor, right.divisor), left.nonnegative and right.nonnegative)
