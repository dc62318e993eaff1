"""How long to wait for asynchronous dots: counted from what is issued after them.

A dot's completion cannot be asked for by name. The hardware counts: each `async.dot` closes a group, groups complete in order, and a wait
leaves at most N of them under way (PTX ISA 9.0 §9.7.16.7.3, wgmma.wait_group). So an `async.await` of a pending tile, or an
`async.release` after a token, waits with N = the number of dots that were issued after the one in question.

    %p, %t = async.dot …          age of %p, %t: 0
    %q, %u = async.dot …          age of %p, %t: 1; of %q, %u: 0
    async.release %ch after %t    waits with N = 1: the second dot goes on

(Joined dots, join_dots.py, are one group.)

The *age* of a value is the least such number over all ways to come to a place. It grows with every dot; where ways meet the lesser
one counts; a loop's carried value has, at the loop's head, the lesser of the ages of its initial value and of what the body hands on.
What needs no waiting (a tile that is there, the token of no operation, what a wait has covered) is infinitely old. An analysis, it
changes nothing; the walk follows the structured control flow, and ages only fall where it repeats, so that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from ..dialects import async_copy
from .join_dots import WITH_NEXT

MOST_GROUPS = 7
"""Groups that a wait leaves under way at most: a lesser N is always right, and the assembler's field for it is small."""

Ages = dict[SSAValue, float]


def wait_depths(root: Operation) -> dict[Operation, int]:
    """For each await, and each release after a token, of `root` that has something to wait for: how many groups of dots, at most, may
    still be under way after it."""
    analysis = _Analysis()
    for region in root.regions:
        for block in region.blocks:
            analysis.block(block, {})
    return {op: int(min(age, MOST_GROUPS)) for op, age in analysis.waits.items() if age < inf}


def is_asynchronous(value: SSAValue) -> bool:
    """Whether the value is a pending tile or a token."""
    return isinstance(value.type, async_copy.PendingType | async_copy.TokenType)


def never_waits(token: SSAValue) -> bool:
    """Whether the token is, on every way, that of no operation or of what was past where it was made."""
    seen: set[SSAValue] = set()
    work = [token]
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        sources = _sources(value)
        if sources is None:
            return False
        work += sources
    return True


def _sources(value: SSAValue) -> Sequence[SSAValue] | None:
    """What a value may be; None for one that an operation other than async.token makes."""
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        if isinstance(loop, scf.ForOp) and value.index > 0:
            end = value.block.last_op
            assert end is not None
            return loop.iter_args[value.index - 1], end.operands[value.index - 1]
        return None
    assert isinstance(value, OpResult)
    match value.op:
        case async_copy.TokenOp():
            return ()
        case scf.ForOp():
            return _sources(value.op.body.block.args[value.index + 1])
        case _:
            return None


def flagged_tokens(root: Operation) -> set[SSAValue]:
    """The carried and handed-on tokens of which only a run can tell whether they are those of an operation or of none, and on which it depends
    whether a role gives a slot back. (In a block of one role nothing depends on it.)"""
    flagged: set[SSAValue] = set()
    for op in root.walk():
        if isinstance(op, async_copy.ReleaseOp) and op.token is not None:
            channel = op.channel.owner
            if isinstance(channel, async_copy.ChannelOp) and channel.joins_roles():
                kinds, carried = _origins(op.token)
                if len(kinds) > 1:
                    flagged |= carried
    return flagged


def is_no_operation(token: SSAValue) -> bool:
    """Whether the token is that of no operation on every way."""
    return _origins(token)[0] == {"none"}


def _origins(token: SSAValue) -> tuple[set[str], set[SSAValue]]:
    """What a token may be, "none" or "event", and through which results and arguments of control flow it comes."""
    kinds: set[str] = set()
    carried: set[SSAValue] = set()
    work = [token]
    while work:
        value = work.pop()
        if value in carried:
            continue
        ways = _ways(value)
        if ways is None:
            owner = value.owner
            kinds.add("none" if isinstance(owner, async_copy.TokenOp) and owner.event.data == "none" else "event")
            continue
        same, sources = ways
        carried.update(same)
        work += sources
    return kinds, carried


def _ways(value: SSAValue) -> tuple[list[SSAValue], list[SSAValue]] | None:
    """The values of control flow at the same place as `value`, and what each of them may be; None where an operation makes it."""
    op = value.block.parent_op() if isinstance(value, BlockArgument) else value.owner
    match op:
        case scf.ForOp():
            index = value.index - 1 if isinstance(value, BlockArgument) else value.index
            end = op.body.block.last_op
            assert end is not None
            return [op.body.block.args[index + 1], op.results[index]], [op.iter_args[index], end.operands[index]]
        case scf.IfOp():
            ends = [region.block.last_op for region in op.regions if region.blocks]
            return [value], [end.operands[value.index] for end in ends if end is not None]
        case scf.WhileOp():
            before, after = op.before_region.block, op.after_region.block
            test, end = before.last_op, after.last_op
            assert test is not None and end is not None
            if isinstance(value, BlockArgument) and value.block is before:
                return [value], [op.arguments[value.index], end.operands[value.index]]
            return [after.args[value.index], op.results[value.index]], [test.operands[value.index + 1]]
        case _:
            return None


class _Analysis:
    """The walk over one kernel. `waits`: the least age met at each op that waits."""

    def __init__(self) -> None:
        self.waits: dict[Operation, float] = {}

    def block(self, block: Block, ages: Ages) -> list[float]:
        """Walks a block from the state `ages`, which becomes that after it; gives the ages of the terminator's operands."""
        for op in block.ops:
            if op is block.last_op and isinstance(op, scf.YieldOp | scf.ConditionOp):
                return [ages.get(value, inf) for value in op.operands]
            self._visit(op, ages)
        return []

    def _visit(self, op: Operation, ages: Ages) -> None:
        match op:
            case async_copy.DotOp() if WITH_NEXT in op.attributes:
                ages[op.res] = ages[op.read] = -1  # of the group that the next dot closes
            case async_copy.DotOp():
                for value in ages:
                    ages[value] += 1
                ages[op.res] = ages[op.read] = 0
            case async_copy.AwaitOp():
                self._wait(op, op.pending, ages)
            case async_copy.ReleaseOp() if op.token is not None:
                self._wait(op, op.token, ages)
            case scf.ForOp():
                self._for(op, ages)
            case scf.WhileOp():
                self._while(op, ages)
            case _ if op.regions:
                self._branches(op, ages)
            case _:
                pass

    def _wait(self, op: Operation, value: SSAValue, ages: Ages) -> None:
        age = min(ages.get(value, inf), self.waits.get(op, inf))
        self.waits[op] = age
        if age == inf:
            return
        for other, its in ages.items():
            if its >= min(age, MOST_GROUPS):
                ages[other] = inf

    def _for(self, op: scf.ForOp, ages: Ages) -> None:
        body = op.body.block
        entry, head = self._at_the_start(ages, body.args[1:], op.iter_args, lambda state: self.block(body, state))
        ages.clear()
        ages.update(entry)
        ages.update(zip(op.results, head))

    def _while(self, op: scf.WhileOp, ages: Ages) -> None:
        test, body = op.before_region.block, op.after_region.block
        left: Ages = {}
        handed: list[float] = []

        def trip(state: Ages) -> list[float]:
            handed[:] = self.block(test, state)[1:]
            left.clear()
            left.update(state)
            state |= dict(zip(body.args, handed))
            return self.block(body, state)

        self._at_the_start(ages, test.args, op.arguments, trip)
        ages.clear()
        ages.update(left)
        ages.update(zip(op.results, handed))

    def _at_the_start(
        self, ages: Ages, carried: Sequence[SSAValue], given: Sequence[SSAValue], trip: Callable[[Ages], list[float]]
    ) -> tuple[Ages, list[float]]:
        """The least ages, over all trips of a loop, at the start of one: of what stands before the loop, and of what the trips hand on as `carried`, at first `given`.
        `trip` walks one trip from there, changes the ages that it is given, and says those of what it hands on."""
        head = [ages.get(value, inf) for value in given]
        entry = dict(ages)
        while True:
            state = entry | dict(zip(carried, head))
            end = trip(state)
            lower = [min(pair) for pair in zip(head, end)]
            before = {value: min(age, state[value]) for value, age in entry.items()}
            if lower == head and before == entry:
                return entry, head
            head, entry = lower, before

    def _branches(self, op: Operation, ages: Ages) -> None:
        """Any other op with regions: one of them runs, or none."""
        after: list[Ages] = []
        yields: list[list[float]] = []
        for region in op.regions:
            state = dict(ages)
            for block in region.blocks:
                yields.append(self.block(block, state))
            after.append(state)
        if not all(region.blocks for region in op.regions):
            after.append(dict(ages))
        for value in ages:
            ages[value] = min(state.get(value, inf) for state in after)
        for index, result in enumerate(op.results):
            if is_asynchronous(result):
                ages[result] = min((handed[index] for handed in yields if index < len(handed)), default=inf)
