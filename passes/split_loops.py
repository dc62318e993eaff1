"""split-loops: the trips in which a comparison of places cannot fail run without it.

A kernel for arrays of any extents compares places with bounds: columns past the end, or past the diagonal, are masked. In most trips of
the loop nothing is masked, yet each pays for the comparison and the selection of every element. Where a comparison of affine functions of the loop's counter
can be proved true from one trip on, or up to one, for all elements of the tile, this pass splits the loop there (index set splitting; Wolfe 1996,
§9.2), and leaves the comparison out in the trips in which it is true:

    scf.for %j = %lb to %ub step 64 {                          scf.for %j = %lb to %m step 64 { …, %s }
      %in = tile.cmp slt %iota, splat(%L - %j)          →      scf.for %j = %m to %ub step 64 {
      … tile.select %in, %s, %low                                … tile.select %in, %s, %low
    }                                                          }
                                                               where %m = %lb + 64·ceil((%L - 63 - %lb) / 64), at least %lb

Elements of the tile are places 0 … 63, so all are below L - j while j < L - 63. What the first loop leaves the second one takes, pending tiles and
tokens too: the trips are those of the one loop, in its order. So the pass comes after loops are pipelined, and their pipelines run on across the split.

**What is proved.** Tile values are sums of scalars from outside the loop, the counter and an interval that covers all elements. Integers of 32 bits
wrap round; a place that was narrowed is compared as it should only if it fits. That is asked at run time, once, of the loop's first and last
trip (the function is affine); where it does not hold all trips are done with the comparison. Places of 64 bits do not overflow.

**When.** A loop without loops inside, where what can be left out are at least `values` elements of each thread and trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, ModuleOp, TensorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from ..dialects import tile
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.tile import element_type, shape_of
from .base import Pass, PassContext
from .delay_dots import clone_op
from .divisibility import is_inside
from .dot_rules import INDEPENDENT
from .stages import constant_value

WORTHWHILE_VALUES = 16
"""Comparisons and selections of a thread and trip from which on a second copy of the loop pays."""


@dataclass
class SplitLoops(Pass):
    """Split loops so that most trips need no masks. `values`: how many elements of a thread must be spared in each trip (0: never split)."""

    name: ClassVar[str] = "split-loops"
    values: int = WORTHWHILE_VALUES

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in [op for op in module.walk() if isinstance(op, tile.KernelOp)]:
            for loop in [op for op in kernel.walk() if isinstance(op, scf.ForOp)]:
                if self.values > 0 and (split := find_split(loop)) is not None and split.spared >= self.values:
                    _split(loop, split)


# ---- affine functions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Affine:
    """Σ factor·scalar + c with c in [low, high], whatever the element. `narrow`: functions that must fit 32 bits for this to hold."""

    terms: dict[SSAValue, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0
    narrow: tuple[Affine, ...] = ()

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        terms = dict(self.terms)
        for value, times in other.terms.items():
            terms[value] = terms.get(value, 0) + factor * times
        ends = (factor * other.low, factor * other.high)
        kept = {value: times for value, times in terms.items() if times}
        return Affine(kept, self.low + min(ends), self.high + max(ends), self.narrow + other.narrow)

    def times(self, factor: int) -> Affine:
        return Affine().plus(self, factor)

    def constant(self) -> int | None:
        return self.low if not self.terms and self.low == self.high else None


def affine(value: SSAValue) -> Affine | None:
    """The function that an integer, or all elements of a tile of integers, are of scalars; None if it is not affine."""
    found = _affine(value)
    if found is None:
        return None
    kind = element_type(value.type)
    if not isinstance(kind, IntegerType) or kind.width.data >= 64 or value in found.terms or not (found.terms or found.narrow):
        return found
    return Affine(found.terms, found.low, found.high, (*found.narrow, Affine(found.terms, found.low, found.high)))


def _affine(value: SSAValue) -> Affine | None:
    kind = element_type(value.type)
    if not isinstance(kind, IndexType) and not (isinstance(kind, IntegerType) and kind.width.data in (32, 64)):
        return None
    leaf = None if isinstance(value.type, TensorType) else Affine({value: 1})
    if not isinstance(value, OpResult):
        return leaf
    match op := value.op:
        case arith.ConstantOp():
            number = constant_value(value)
            return leaf if number is None else Affine({}, number, number)
        case tile.IotaOp():
            return Affine({}, 0, shape_of(value.type)[op.axis.value.data] - 1)
        case tile.FullOp() | tile.BroadcastOp() | tile.ExpandOp() | tile.ReshapeOp() | tile.TransposeOp():
            return affine(op.operands[0])
        case tile.CastOp() | arith.IndexCastOp():
            return affine(op.operands[0]) or leaf
        case arith.AddiOp() | arith.SubiOp():
            left, right = affine(op.lhs), affine(op.rhs)
            return leaf if left is None or right is None else left.plus(right, 1 if isinstance(op, arith.AddiOp) else -1)
        case arith.MuliOp():
            left, right = affine(op.lhs), affine(op.rhs)
            if left is None or right is None:
                return leaf
            if (factor := right.constant()) is not None:
                return left.times(factor)
            return right.times(factor) if (factor := left.constant()) is not None else leaf
        case _:
            return leaf


# ---- what can be left out -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """A comparison that is true for all elements where Σ terms + `most` < 0; `factor`: of the loop's counter in it, not zero."""

    op: tile.CmpOp
    terms: dict[SSAValue, int]
    most: int
    factor: int
    narrow: tuple[Affine, ...]


@dataclass(frozen=True)
class Split:
    """Comparisons that are true up to some trip (`until`) and from some trip on (`since`); `spared`: elements of a thread that each trip saves."""

    until: list[Bound]
    since: list[Bound]
    spared: int


def find_split(loop: scf.ForOp) -> Split | None:
    """What can be left out of some trips of a loop; None where nothing can."""
    step = constant_value(loop.step)
    inner = any(isinstance(op, scf.ForOp | scf.WhileOp) for op in loop.body.walk())
    if inner or INDEPENDENT in loop.attributes or step is None or step <= 0 or not isinstance(loop.lb.type, IndexType):
        return None
    bounds = [bound for op in loop.body.walk() if isinstance(op, tile.CmpOp) and (bound := _bound(op, loop)) is not None]
    spared = sum(_values(op.results[0].type) for op in _spared([bound.op for bound in bounds]))
    if not bounds:
        return None
    return Split([bound for bound in bounds if bound.factor > 0], [bound for bound in bounds if bound.factor < 0], spared)


def _bound(op: tile.CmpOp, loop: scf.ForOp) -> Bound | None:
    predicate = op.predicate.data.value
    if predicate not in ("slt", "sle", "sgt", "sge") or not isinstance(op.res.type, TensorType) or not _only_selects(op.res):
        return None
    left, right = affine(op.lhs), affine(op.rhs)
    if left is None or right is None:
        return None
    less, more = (left, right) if predicate[1] == "l" else (right, left)
    difference = less.plus(more, -1)
    counter = loop.body.block.args[0]
    factor = difference.terms.get(counter, 0)
    known = {counter, *(value for form in (difference, *difference.narrow) for value in form.terms)}
    if factor == 0 or any(value is not counter and is_inside(value, loop.body.block) for value in known):
        return None
    return Bound(op, difference.terms, difference.high - (predicate[2] == "e"), factor, difference.narrow)


def _only_selects(condition: SSAValue) -> bool:
    """Whether the condition, true, simplifies all its users."""
    for use in condition.uses:
        user = use.operation
        if isinstance(user, arith.AndIOp | arith.OrIOp):
            continue
        if not (isinstance(user, tile.SelectOp) and use.index == 0):
            return False
    return bool(condition.uses)


def _spared(comparisons: Sequence[Operation]) -> Iterator[Operation]:
    """The comparisons, and the selections by them alone."""
    seen: set[Operation] = set(comparisons)
    yield from seen
    for op in comparisons:
        for use in op.results[0].uses:
            user = use.operation
            if user not in seen and all(operand.owner in seen for operand in user.operands[:1 if isinstance(user, tile.SelectOp) else 2]):
                seen.add(user)
                yield user
                yield from (use.operation for use in user.results[0].uses if isinstance(use.operation, tile.SelectOp))


def _values(kind: Attribute) -> int:
    assert isinstance(kind, TensorType)
    return kind.encoding.data.num_values if isinstance(kind.encoding, TVLayoutAttr) else 0


# ---- the transformation ---------------------------------------------------------------------------------------------


class _Builder:
    """Scalar ops at the location of the loop, before it."""

    def __init__(self, loop: scf.ForOp) -> None:
        self.loop = loop
        self.ops: list[Operation] = []

    def add(self, op: Operation) -> SSAValue:
        op.location = self.loop.location
        self.ops.append(op)
        return op.results[0]

    def number(self, value: int) -> SSAValue:
        return self.add(arith.ConstantOp(IntegerAttr(value, IndexType())))

    def divided(self, division: type[arith.FloorDivSIOp | arith.CeilDivSIOp], value: SSAValue, by: int) -> SSAValue:
        return value if by == 1 else self.add(division(value, self.number(by)))

    def sum(self, terms: dict[SSAValue, int], constant: int, values: dict[SSAValue, SSAValue]) -> SSAValue:
        """Σ factor·scalar + constant as an index, a scalar being what `values` says."""
        total = self.number(constant)
        for value, factor in terms.items():
            part = values.get(value, value)
            if not isinstance(part.type, IndexType):
                part = self.add(arith.IndexCastOp(part, IndexType()))
            if abs(factor) != 1:
                part = self.add(arith.MuliOp(part, self.number(abs(factor))))
            total = self.add(arith.AddiOp(total, part) if factor > 0 else arith.SubiOp(total, part))
        return total


def _split(loop: scf.ForOp, split: Split) -> None:
    """Replaces the loop by two or three."""
    build = _Builder(loop)
    counter = loop.body.block.args[0]
    zero = build.number(0)
    span = build.add(arith.SubiOp(loop.ub, loop.lb))
    trips = build.add(arith.MaxSIOp(zero, build.add(arith.CeilDivSIOp(span, loop.step))))
    first, last = zero, trips
    for bound in split.since:  # |factor|·j > Σ the rest + most
        rest = {value: factor for value, factor in bound.terms.items() if value is not counter}
        limit = build.divided(arith.FloorDivSIOp, build.sum(rest, bound.most, {}), -bound.factor)
        gone = build.add(arith.FloorDivSIOp(build.add(arith.SubiOp(limit, loop.lb)), loop.step))
        first = build.add(arith.MaxSIOp(first, build.add(arith.AddiOp(gone, build.number(1)))))
    for bound in split.until:  # factor·j < -(Σ the rest + most)
        rest = {value: -factor for value, factor in bound.terms.items() if value is not counter}
        limit = build.divided(arith.CeilDivSIOp, build.sum(rest, -bound.most, {}), bound.factor)
        left = build.add(arith.CeilDivSIOp(build.add(arith.SubiOp(limit, loop.lb)), loop.step))
        last = build.add(arith.MinSIOp(last, left))
    first = build.add(arith.MinSIOp(first, trips))
    last = build.add(arith.MaxSIOp(last, first))
    if (fits := _fits(build, loop, [form for bound in (*split.since, *split.until) for form in bound.narrow])) is not None:
        if split.until:
            last = build.add(arith.SelectOp(fits, last, first))
        else:
            first = build.add(arith.SelectOp(fits, first, trips))
    starts = [build.add(arith.AddiOp(loop.lb, build.add(arith.MuliOp(at, loop.step)))) for at in (first, last)]
    block = loop.parent
    assert block is not None
    block.insert_ops_before(build.ops, loop)
    lower, upper, carried = loop.lb, loop.ub, list(loop.iter_args)
    if split.since:
        before = _copy(loop, lower, starts[0], carried)
        block.insert_op_before(before, loop)
        lower, carried = starts[0], list(before.results)
    if split.until:
        after = _copy(loop, starts[1], upper, loop.results)
        block.insert_op_after(after, loop)
        for result, replacement in zip(loop.results, after.results):
            replacement.name_hint = result.name_hint
            result.replace_uses_with_if(replacement, lambda use: use.operation is not after)
        upper = starts[1]
    loop.operands = [lower, upper, loop.step, *carried]
    _leave_out([bound.op for bound in (*split.since, *split.until)])
    _erase_dead(loop)


def _copy(loop: scf.ForOp, lower: SSAValue, upper: SSAValue, carried: Sequence[SSAValue]) -> scf.ForOp:
    copy = clone_op(loop, {})
    assert isinstance(copy, scf.ForOp)
    copy.operands = [lower, upper, loop.step, *carried]
    return copy


def _fits(build: _Builder, loop: scf.ForOp, forms: Sequence[Affine]) -> SSAValue | None:
    """Whether functions fit 32 bits in all trips; None if there are none."""
    merged: dict[tuple[tuple[SSAValue, int], ...], tuple[int, int]] = {}
    for form in forms:
        key = tuple(form.terms.items())
        low, high = merged.get(key, (form.low, form.high))
        merged[key] = min(low, form.low), max(high, form.high)
    result: SSAValue | None = None
    counter = loop.body.block.args[0]
    for key, (low, high) in merged.items():
        terms = dict(key)
        for end in (loop.lb, loop.ub) if counter in terms else (loop.lb,):
            value = build.sum(terms, 0, {counter: end})
            above = build.add(arith.CmpiOp(value, build.number(-(1 << 31) - low), "sge"))
            below = build.add(arith.CmpiOp(value, build.number((1 << 31) - 1 - high), "sle"))
            for test in (above, below):
                result = test if result is None else build.add(arith.AndIOp(result, test))
    return result


def _leave_out(comparisons: Sequence[tile.CmpOp]) -> None:
    """Takes comparisons for true."""
    true: list[SSAValue] = [op.res for op in comparisons]
    while true:
        condition = true.pop()
        for use in list(condition.uses):
            user = use.operation
            if isinstance(user, arith.AndIOp):
                user.results[0].replace_all_uses_with(user.operands[1 - use.index])
            elif isinstance(user, arith.OrIOp):
                true.append(user.results[0])
            else:
                assert isinstance(user, tile.SelectOp)
                user.res.replace_all_uses_with(user.operands[1])


def _erase_dead(loop: scf.ForOp) -> None:
    for op in reversed(list(loop.body.block.ops)):
        if is_trivially_dead(op) and not any(value.uses for value in op.results):
            op.detach()
            op.erase()
