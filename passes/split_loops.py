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

**Elsewhere.** A selection by such comparisons that stands outside of the loops that were split (in the first trip that pipelining has peeled off, in a loop that was not
worth splitting) is made only if one of them may be false, which is asked of the block's scalars at run time:

    %y = scf.if %all { yield %s } else { %in = tile.cmp slt %iota, splat(%L);  yield tile.select %in, %s, %low }     with %all = (63 - %L < 0)

**When.** A loop without loops inside, where what can be left out are at least `values` elements of each thread and trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerType, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.traits import is_side_effect_free
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from ..dialects import tile
from ..dialects.inside import inside, kernels_in
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.tile import element_type, shape_of
from .base import Pass, PassContext
from .delay_dots import clone_op
from .divisibility import is_inside
from .dot_rules import INDEPENDENT
from .new_ops import NewOps
from .stages import constant_value

WORTHWHILE_VALUES = 16
"""Comparisons and selections of a thread and trip from which on a second copy of the loop pays."""


@dataclass
class SplitLoops(Pass):
    """Split loops so that most trips need no masks. `values`: how many elements of a thread must be spared in each trip (0: never split).
    `guard`: whether selections elsewhere are made only where a comparison may be false."""

    name: ClassVar[str] = "split-loops"
    values: int = WORTHWHILE_VALUES
    guard: bool = True

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in kernels_in(module):
            parts: set[Operation] = set()
            for loop in inside(kernel, scf.ForOp):
                if self.values > 0 and (split := find_split(loop)) is not None and split.spared >= self.values:
                    parts |= _split(loop, split)
            for op in inside(kernel, tile.SelectOp) if self.guard and self.values > 0 else ():
                if not _is_within(op, parts) and 2 * _values(op.res.type) >= self.values and (bounds := _bounds_of(op)) is not None:
                    _guard(op, bounds)


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
    """A comparison that is true for all elements where Σ terms + `most` < 0; `factor`: of the counter in it of the loop in question, not zero."""

    op: tile.CmpOp
    terms: dict[SSAValue, int]
    most: int
    factor: int
    narrow: tuple[Affine, ...]

    def scalars(self) -> set[SSAValue]:
        return {*self.terms, *(value for form in self.narrow for value in form.terms)}


@dataclass(frozen=True)
class Split:
    """Comparisons that are true up to some trip (`until`) and from some trip on (`since`); `spared`: elements of a thread that each trip saves."""

    until: list[Bound]
    since: list[Bound]
    spared: int


def find_split(loop: scf.ForOp) -> Split | None:
    """What can be left out of some trips of a loop; None where nothing can."""
    step = constant_value(loop.step)
    inner = bool(inside(loop.body, scf.ForOp, scf.WhileOp))
    if inner or INDEPENDENT in loop.attributes or step is None or step <= 0 or not isinstance(loop.lb.type, IndexType):
        return None
    bounds = [bound for op in loop.body.walk() if isinstance(op, tile.CmpOp) and (bound := _bound(op, loop)) is not None]
    spared = sum(_values(op.results[0].type) for op in _spared([bound.op for bound in bounds]))
    if not bounds:
        return None
    return Split([bound for bound in bounds if bound.factor > 0], [bound for bound in bounds if bound.factor < 0], spared)


def rarely_done(loop: scf.ForOp) -> set[Operation]:
    """What most trips of the loop will not do: what the pass, as it is by default, would leave out of one part, and what is only for that."""
    split = find_split(loop)
    if split is None or split.spared < WORTHWHILE_VALUES:
        return set()
    found = set(_spared([bound.op for bound in (*split.until, *split.since)]))
    work = list(found)
    while work:
        for operand in work.pop().operands:
            op = operand.owner
            if not isinstance(op, Operation) or op in found or op.regions or not is_inside(operand, loop.body.block) or not is_side_effect_free(op):
                continue
            # A selection that is left out still hands on one of the two values that it chose from.
            if all(use.operation in found and not (isinstance(use.operation, tile.SelectOp) and use.index) for use in operand.uses):
                found.add(op)
                work.append(op)
    return found


def _bound(op: tile.CmpOp, loop: scf.ForOp) -> Bound | None:
    """A comparison that is true up to some trip of a loop, or from one on."""
    counter = loop.body.block.args[0]
    bound = _comparison(op) if isinstance(op.res.type, TensorType) and _only_selects(op.res) else None
    if bound is None or counter not in bound.terms:
        return None
    if any(value is not counter and is_inside(value, loop.body.block) for value in bound.scalars()):
        return None
    return Bound(op, bound.terms, bound.most, bound.terms[counter], bound.narrow)


def _comparison(op: tile.CmpOp) -> Bound | None:
    """What a comparison of affine functions is true for; the factor is left open."""
    predicate = op.predicate.data.value
    if predicate not in ("slt", "sle", "sgt", "sge"):
        return None
    left, right = affine(op.lhs), affine(op.rhs)
    if left is None or right is None:
        return None
    less, more = (left, right) if predicate[1] == "l" else (right, left)
    difference = less.plus(more, -1)
    return Bound(op, difference.terms, difference.high - (predicate[2] == "e"), 0, difference.narrow)


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
    """Elements that a thread holds of a tile; 0 of a scalar, and where the layout is not known."""
    if not isinstance(kind, TensorType):
        return 0
    return kind.encoding.data.num_values if isinstance(kind.encoding, TVLayoutAttr) else 0


# ---- the transformation ---------------------------------------------------------------------------------------------


class _Builder(NewOps):
    """What the ends of a split loop are computed by, in indices."""

    def number(self, value: int) -> SSAValue:
        return self.constant(value, IndexType())

    def both(self, left: SSAValue | None, right: Operation) -> SSAValue:
        test = self.add(right)
        return test if left is None else self.add(arith.AndIOp(left, test))

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


def _split(loop: scf.ForOp, split: Split) -> set[Operation]:
    """Replaces the loop by two or three; gives those."""
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
    ends = {counter: (loop.lb, loop.ub)}
    if (fits := _fits(build, ends, [form for bound in (*split.since, *split.until) for form in bound.narrow])) is not None:
        if split.until:
            last = build.add(arith.SelectOp(fits, last, first))
        else:
            first = build.add(arith.SelectOp(fits, first, trips))
    starts = [build.add(arith.AddiOp(loop.lb, build.add(arith.MuliOp(at, loop.step)))) for at in (first, last)]
    block = loop.parent
    assert block is not None
    block.insert_ops_before(build.ops, loop)
    lower, upper, carried = loop.lb, loop.ub, list(loop.iter_args)
    parts: set[Operation] = {loop}
    if split.since:
        before = _copy(loop, lower, starts[0], carried)
        block.insert_op_before(before, loop)
        parts.add(before)
        lower, carried = starts[0], list(before.results)
    if split.until:
        after = _copy(loop, starts[1], upper, loop.results)
        block.insert_op_after(after, loop)
        parts.add(after)
        for result, replacement in zip(loop.results, after.results):
            replacement.name_hint = result.name_hint
            result.replace_uses_with_if(replacement, lambda use: use.operation is not after)
        upper = starts[1]
    loop.operands = [lower, upper, loop.step, *carried]
    _leave_out([bound.op for bound in (*split.since, *split.until)])
    _erase_dead(loop.body.block)
    return parts


def _copy(loop: scf.ForOp, lower: SSAValue, upper: SSAValue, carried: Sequence[SSAValue]) -> scf.ForOp:
    copy = clone_op(loop, {})
    assert isinstance(copy, scf.ForOp)
    copy.operands = [lower, upper, loop.step, *carried]
    return copy


def _fits(build: _Builder, ends: dict[SSAValue, tuple[SSAValue, SSAValue]], forms: Sequence[Affine]) -> SSAValue | None:
    """Whether functions fit 32 bits, at both ends of the scalar in `ends`; None if there are none."""
    merged: dict[tuple[tuple[SSAValue, int], ...], tuple[int, int]] = {}
    for form in forms:
        key = tuple(form.terms.items())
        low, high = merged.get(key, (form.low, form.high))
        merged[key] = min(low, form.low), max(high, form.high)
    result: SSAValue | None = None
    for key, (low, high) in merged.items():
        terms = dict(key)
        counter = next((value for value in ends if value in terms), None)
        for places in ({},) if counter is None else ({counter: end} for end in ends[counter]):
            value = build.sum(terms, 0, places)
            result = build.both(result, arith.CmpiOp(value, build.number(-(1 << 31) - low), "sge"))
            result = build.both(result, arith.CmpiOp(value, build.number((1 << 31) - 1 - high), "sle"))
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


def _erase_dead(block: Block) -> None:
    for op in reversed(list(block.ops)):
        if is_trivially_dead(op) and not any(value.uses for value in op.results):
            op.detach()
            op.erase()


# ---- selections elsewhere -------------------------------------------------------------------------------------------


def _is_within(op: Operation, parts: set[Operation]) -> bool:
    parent = op.parent_op()
    while parent is not None and parent not in parts:
        parent = parent.parent_op()
    return parent is not None


def _bounds_of(op: tile.SelectOp) -> list[Bound] | None:
    """The comparisons of places that a selection is by, all together; None if it is by anything else."""
    bounds: list[Bound] = []
    work = [op.operands[0]]
    while work:
        value = work.pop()
        made = value.owner
        if isinstance(made, arith.AndIOp):
            work += made.operands
            continue
        bound = _comparison(made) if isinstance(made, tile.CmpOp) else None
        if bound is None or not bound.terms:
            return None
        bounds.append(bound)
    return bounds


def _guard(op: tile.SelectOp, bounds: Sequence[Bound]) -> None:
    """Makes a selection only where a comparison may be false."""
    build = _Builder(op)
    true = _fits(build, {}, [form for bound in bounds for form in bound.narrow])
    for bound in bounds:
        true = build.both(true, arith.CmpiOp(build.sum(bound.terms, bound.most, {}), build.number(0), "slt"))
    assert true is not None
    values: dict[SSAValue, SSAValue] = {}
    inside = [clone_op(made, values) for made in _mask(op.operands[0])]
    inside.append(clone_op(op, values))
    then, other = Block([scf.YieldOp(op.operands[1])]), Block([*inside, scf.YieldOp(inside[-1].results[0])])
    branch = scf.IfOp(true, [op.res.type], Region(then), Region(other))
    for made in (branch, then.last_op, other.last_op):
        made.location = op.location
    block = op.parent
    assert block is not None
    block.insert_ops_before([*build.ops, branch], op)
    branch.results[0].name_hint = op.res.name_hint
    op.res.replace_all_uses_with(branch.results[0])
    _erase_dead(block)


def _mask(condition: SSAValue) -> list[Operation]:
    """The operations on tiles that compute a condition from scalars, in order. (All of them are without effects: `affine` knows them.)"""
    found: dict[Operation, None] = {}

    def visit(value: SSAValue) -> None:
        made = value.owner
        if isinstance(made, Operation) and isinstance(value.type, TensorType) and made not in found:
            for operand in made.operands:
                visit(operand)
            found[made] = None

    visit(condition)
    return list(found)
