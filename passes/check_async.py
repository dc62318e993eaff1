"""check-async: channels, tokens and pending tiles are used as they must be, for every number of trips. Checks, and changes nothing.

The block interpreter finds misuse on the inputs it is given; this pass has no inputs. It walks each kernel's control flow once for every
*path*, with sizes that stay unknown (symbolic.py): whether a loop has another trip and whether a condition holds are questions, and each
combination of answers that do not contradict one another is a path. On each, channels, slots and dots are what they are when the
kernel runs, without their values:

- a slot is filled, got and released in this order, the oldest first; a put needs a free one. Roles wait for one another; where all that is
  left waits, and in a block without roles where anything waits, the kernel would wait for ever;
- at the end every slot that was filled was got, and every one that was got was released, and no dot is under way;
- a buffer is read between its get and its release, and a release comes after the dots that read the slot: their token, the result of one of them,
  or that of a later one, was waited for;
- `later N` of a get by cp.async counts no more puts than come after the one it waits for;
- channels that were given overlapping places in shared memory hold nothing at one time, and no two have one mbarrier, but for those in lockstep, which
  then must be put, got and released together.

**Why some trips stand for all.** A loop with unknown bounds is walked for 0, 1, 2, … trips, up to 2·d + 2 where its channels have at most d slots: d trips
until every slot was used once, two that must leave the channels as they found them, and d at the end of which the fills ahead
know. What is asked at the head of a trip is how many slots of each channel are filled and got; once it repeats, more trips in the middle are more of the
same, and a loop where it does not repeat is an error, since it would run out of slots or of what fills them. Where the program compares counters or sizes with numbers, what a trip
does may change there. So the numbers that conditions and bounds round channels are made of are collected, with their sums in pairs and their products with divisors; each is a number of
trips (divided by the loop's step; as it is beside quotients and values that loops carry) after which something may change. A loop is walked two trips past the last of these, up to
MOST_TRIPS, and ends on some path after each of few trips and after about as many as these; between them one trip is like another. Beyond MOST_TRIPS a note says that it was not looked at.
(What is made of three numbers or more, as i - 100 < L - 30 - 7, may change elsewhere.)

**Sizes instead of paths.** Where a path goes wrong, and the kernel has bounds that are no linear forms (min, max, quotients: the parts of a split loop, tiles of a grid), the path
may be one that no sizes lead to. Then the kernel is walked for drawn sizes, for which all is known: what goes wrong there is an error, and if nothing does,
a note says how far that was looked into.

What is not checked here: races between the threads of a role (barriers are derived below this level, and the simulator judges
them), and values. `mbarrier` phases, byte counts and arrivals cannot be written at this level; they follow from types and roles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import gcd, lcm
from typing import Any, ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.diagnostics import TeselaError, nearest_location
from ..dialects.inside import inside, kernels_in
from ..dialects.layout_attrs import SharedLayoutAttr
from .alloc_shared import MBARRIER_BYTES, slot_bytes, slot_stride
from .base import Pass, PassContext
from .divisibility import Divisibility
from .join_channels import check_lockstep, lockstep_group
from .path_answers import Answers, Sizes, explore
from .stages import constant_value
from .symbolic import Atom, Condition, Form, compare, negation, positive, structure

MOST_PATHS = 250
"""Paths of one kernel that are walked one after another. Where there are more (loops in loops whose trips differ), as many are drawn at random,
by a fixed seed, and the pass says that it has not seen all."""


MOST_WALKED = 12_000
"""Trips of loops on all paths together, and as many on paths that are drawn: some seconds. (A nest of two loops that compares with 1000 took a minute and a half by 40 000.)"""
MOST_WALKED_AT_ONCE = 6_000
"""Of these on one path, which is broken off then."""
MOST_BITS = 32
"""Of a shift that stands for a factor or a divisor."""
MOST_TRIPS = 500
"""Of one loop, on any path."""
MOST_SIZES = 40
"""Choices of sizes for which a kernel is walked whose paths cannot be told apart."""
MOST_FILLS = 300
"""Of all channels, in a walk with drawn sizes; it ends there."""


def _toward_zero(a: int, b: int) -> int:
    return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


WHOLE_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": _toward_zero,
    "arith.divui": _toward_zero,
    "arith.floordivsi": lambda a, b: a // b if b else 0,
    "arith.ceildivsi": lambda a, b: -(-a // b) if b else 0,
    "arith.ceildivui": lambda a, b: -(-a // b) if b else 0,
    "arith.remsi": lambda a, b: a - _toward_zero(a, b) * b,
    "arith.remui": lambda a, b: a - _toward_zero(a, b) * b,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.minui": min,
    "arith.maxui": max,
    "arith.shli": lambda a, b: a << min(b, 64),
    "arith.shrsi": lambda a, b: a >> b,
    "arith.shrui": lambda a, b: a >> b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
}
"""What is no linear form, of numbers."""


class _TooLong(Exception):
    """A walk with drawn sizes has filled MOST_FILLS slots, or one has made MOST_WALKED_AT_ONCE trips."""


@dataclass
class CheckAsync(Pass):
    """Check the use of channels, tokens and pending tiles on every path."""

    name: ClassVar[str] = "check-async"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in kernels_in(module):
            if inside(kernel, async_copy.ChannelOp, async_copy.DotOp) and (note := _Explorer(kernel).run()) is not None:
                context.emitter.note(kernel, note)


# ---- paths ----------------------------------------------------------------------------------------------------------


class _Explorer:
    """All paths of one kernel: depth first, each walked from its start with the answers that lead to it."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.kernel = kernel
        self.active = {parent for op in kernel.walk() if _is_async(op) for parent in _parents(op)}
        self.names: dict[Atom, Atom] = {}
        """Short names for what is not known, by its structure: structures of structures would be compared in full otherwise."""
        self.nonlinear = False
        """Whether a bound or condition was met that is no linear form of what is not known."""
        self.depths: dict[Operation, int] = {}
        """For each loop the slots of the deepest channel that its own block uses, inner loops apart."""
        for op in kernel.walk():
            if _is_async(op) and op.operands and isinstance(op.operands[0].owner, async_copy.ChannelOp):
                loop = next((parent for parent in _parents(op) if isinstance(parent, scf.ForOp | scf.WhileOp)), None)
                if loop is not None:
                    self.depths[loop] = max(self.depths.get(loop, 0), op.operands[0].owner.depth.value.data)

        self.numbers: list[int] = []
        """Numbers that conditions and bounds round channels are made of: what a trip does may change where a counter or a size passes one of them."""
        self.counts: set[int] = set()
        """Of these, what may be compared with a count of trips: beside a value that a loop carries, or a quotient."""
        self._turns: dict[Operation, set[int]] = {}
        self._find_numbers()
        self._spelled: dict[Operation, tuple[Atom, tuple[str, ...]]] = {}
        self.steps = sorted({step for op in self.active if isinstance(op, scf.ForOp) and (step := constant_value(op.step)) is not None})
        self._divisibility = Divisibility()
        self.multiples: dict[Atom, int] = {}
        """What each unknown is a multiple of."""

    def multiple(self, atom: Atom, value: SSAValue | None) -> int:
        """What an unknown, which `value` is, is known to be a multiple of, as far as that matters for the trips of loops."""
        if atom not in self.multiples:
            self.multiples[atom] = 1 if value is None else gcd(self._divisibility.divisor(value), lcm(*(step for step in self.steps if step > 0)))
        return self.multiples[atom]

    def spelled(self, op: Operation) -> tuple[Atom, tuple[str, ...]]:
        """An operation's name with its properties as text, and the types of its operands: spelled once, since each of its trips on each path asks."""
        found = self._spelled.get(op)
        if found is None:
            own = (op.name, *((name, str(value)) for name, value in sorted((op.properties | op.attributes).items())))
            found = self._spelled[op] = own, tuple(str(operand.type) for operand in op.operands)
        return found

    def _find_numbers(self) -> None:
        conditions = [op.cond for op in self.active if isinstance(op, scf.IfOp)]
        conditions += [
            op.before_region.block.last_op.operands[0]
            for op in self.active
            if isinstance(op, scf.WhileOp) and op.before_region.block.last_op is not None
        ]
        bounds = [bound for op in self.active if isinstance(op, scf.ForOp) for bound in (op.lb, op.ub)]
        every: set[int] = set()
        seen: dict[SSAValue, _Made] = {}
        for question in conditions + bounds:
            made = _made_of(question, seen)
            numbers = set(made.numbers)
            if question not in bounds:
                numbers |= {
                    one + other for one in made.numbers for other in made.numbers if one and other
                }  # i - 640 < 160 changes at 800
            if made.counts:
                self.counts |= numbers
            every |= numbers | made.near()
        self.numbers = sorted(every)

    def turns(self, loop: Operation) -> set[int]:
        """After how many trips of a loop what it does may change."""
        if loop not in self._turns:
            step = constant_value(loop.step) if isinstance(loop, scf.ForOp) else 1
            self._turns[loop] = (
                self.counts | {-(-number // step) for number in self.numbers}
                if step is not None and step > 0
                else set()
            )
        return self._turns[loop]

    def most_trips(self, loop: Operation) -> int:
        """How many trips of a loop are walked: until its slots were used and what it leaves behind repeats, and past the numbers that are compared."""
        return max(2 * self.depths.get(loop, 0) + 2, min(max(self.turns(loop), default=0) + 2, MOST_TRIPS))

    def may_end(self, loop: Operation, trips: int) -> bool:
        """Whether paths are walked on which a loop ends after so many trips: few, or about as many as when what it does may change. Between these one trip is like another."""
        depth = self.depths.get(loop, 0)
        return trips <= 2 * depth + 2 or any(abs(trips - turn) <= depth + 2 for turn in self.turns(loop))

    def _beyond(self) -> str | None:
        """What is not looked at, where a number is too large for it."""
        for loop in self.kernel.walk():
            if (
                loop in self.active
                and isinstance(loop, scf.ForOp | scf.WhileOp)
                and (late := [turn for turn in self.turns(loop) if turn + 2 > MOST_TRIPS])
            ):
                return (
                    f"check-async walks {MOST_TRIPS} trips of the loop{_line(loop)} at most, and by the numbers that conditions and bounds round its channels are made of, "
                    f"what it does may change after {min(late)}"
                )
        return None

    def run(self) -> str | None:
        """Walks the paths; gives a note where these were not all."""
        try:
            broken_off = 0

            def walk(answers: Answers) -> int:
                nonlocal broken_off
                try:
                    return _Path(self, answers).walk()
                except _TooLong:
                    broken_off += 1
                    return MOST_WALKED_AT_ONCE

            walked, every = explore(walk, MOST_PATHS, MOST_WALKED)
            return (
                self._beyond()
                if every and not broken_off
                else f"check-async walked {walked} of the kernel's paths and found nothing; there are more"
            )
        except TeselaError:
            if not self.nonlinear:
                raise
        for number in range(MOST_SIZES):
            sizes = Sizes(number, self.steps, max(self.depths.values(), default=1), self.numbers)
            try:
                _Path(self, Answers([], sizes.rng), sizes).walk()
            except _TooLong:
                continue
        return f"check-async walked the kernel for {MOST_SIZES} choices of sizes and found nothing; which of its paths others lead to it cannot tell"


@dataclass(frozen=True, slots=True)
class _Made:
    """What a scalar is computed from. `numbers`: that are added, subtracted, compared; in units of the quotient or product whose part they are. `divisors`: of quotients;
    `factors`: of products. `counts`: whether
    what may count trips is among it, a value that a loop carries, a quotient or a remainder."""

    numbers: frozenset[int] = frozenset()
    divisors: frozenset[int] = frozenset()
    factors: frozenset[int] = frozenset()
    counts: bool = False

    def near(self) -> set[int]:
        """Numbers where a question about the scalar may change its answer: i // 64 < 11 at 704, 64 * i < 704 at 11."""
        return {number * divisor for number in self.numbers for divisor in self.divisors} | {
            -(-number // factor) for number in self.numbers for factor in self.factors
        }


def _made_of(value: SSAValue, seen: dict[SSAValue, _Made]) -> _Made:
    """What a scalar is computed from; `seen`: of others, as far as that is known."""
    if value not in seen:
        seen[value] = _find_made_of(value, seen)
    return seen[value]


def _find_made_of(value: SSAValue, seen: dict[SSAValue, _Made]) -> _Made:
    owner = value.owner
    if (number := constant_value(value)) is not None:
        return _Made(frozenset({abs(number)}))
    if isinstance(owner, Block):
        loop = owner.parent_op()
        return _Made(
            counts=isinstance(loop, scf.WhileOp) or (isinstance(loop, scf.ForOp) and value is not owner.args[0])
        )
    if isinstance(owner, scf.IfOp | scf.ForOp | scf.WhileOp):
        return _all_of(
            [
                operand
                for region in owner.regions
                for block in region.blocks
                if block.last_op is not None
                for operand in block.last_op.operands
            ],
            seen,
        )
    if not owner.name.startswith(("arith.", "math.", "tile.")) or isinstance(value.type, TensorType):
        return _Made()
    both = _all_of(owner.operands, seen)
    by = constant_value(owner.operands[-1]) if owner.operands else None
    if "rem" in owner.name or (by is None and any(word in owner.name for word in ("div", "shr"))):
        return replace(both, counts=True)
    if by is None or by <= 0:
        return both
    of = _made_of(owner.operands[0], seen)
    if "shr" in owner.name or "shl" in owner.name:
        by = 1 << min(by, MOST_BITS)
    if any(word in owner.name for word in ("div", "shr")):
        return _Made(frozenset(-(-number // by) for number in of.numbers), of.divisors | {by}, of.factors, True)
    if any(word in owner.name for word in ("mul", "shl")):
        return _Made(frozenset(number * by for number in of.numbers), of.divisors, of.factors | {by}, of.counts)
    return both


def _all_of(values: Iterable[SSAValue], seen: dict[SSAValue, _Made]) -> _Made:
    parts = [_made_of(value, seen) for value in dict.fromkeys(values)]
    return _Made(
        frozenset[int]().union(*(part.numbers for part in parts)),
        frozenset[int]().union(*(part.divisors for part in parts)),
        frozenset[int]().union(*(part.factors for part in parts)),
        any(part.counts for part in parts),
    )


def _is_async(op: Operation) -> bool:
    return op.name.startswith("async.") and not isinstance(op, async_copy.ChannelOp)


def _parents(op: Operation) -> Iterator[Operation]:
    while (parent := op.parent_op()) is not None:
        yield parent
        op = parent


# ---- what the protocol knows ----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Slot:
    """`put_number`: of the copies by cp.async before it, itself included; `reader`: the last dot that reads it, -1 for none."""

    put_number: int
    reader: int = -1
    state: str = "filled"


@dataclass(eq=False, slots=True)
class _Ring:
    op: async_copy.ChannelOp
    depth: int
    filled: deque[_Slot] = field(default_factory=deque)
    got: deque[_Slot] = field(default_factory=deque)
    overlapping: list[_Ring] = field(default_factory=list)
    """Rings whose buffers share bytes with its own."""

    @property
    def name(self) -> str:
        return f"%{self.op.res.name_hint}" if self.op.res.name_hint else "the channel"

    @property
    def used(self) -> int:
        return len(self.filled) + len(self.got)


@dataclass(frozen=True, slots=True)
class _Event:
    """That dot `number` of role `role` is done; None: of no operation, -1: past."""

    number: int | None


@dataclass(frozen=True, slots=True)
class _Buffer:
    slot: _Slot
    ring: _Ring


@dataclass(slots=True)
class _Role:
    """One role on the way (or the block, where there are none). `waits`: the op it stands at."""

    name: str
    steps: Generator[Operation, None, None]
    waits: Operation | None = None
    issued: int = 0
    """Dots."""
    completed: int = -1
    copies: int = 0
    """Groups of copies by cp.async, also those a condition skipped."""
    trips: list[tuple[Operation, int]] = field(default_factory=list)
    """The loops it is in, with the number of the trip."""


Steps = Generator[Operation, None, Any]
"""A walk, which yields the operations it has to wait at."""


class _Path:
    """One walk through a kernel."""

    def __init__(self, explorer: _Explorer, answers: Answers, sizes: Sizes | None = None) -> None:
        """`sizes`: what is not known is drawn from these."""
        self.sizes = sizes
        self.drawn: dict[Atom, int] = {}
        self.fills = 0
        self.walked = 0
        self.explorer = explorer
        self.kernel = explorer.kernel
        self.answers = answers
        self.values: dict[SSAValue, Any] = {}
        self.rings: dict[SSAValue, _Ring] = {}
        self.role = _Role("", iter(()))  # type: ignore[arg-type]

    # -- roles

    def walk(self) -> int:
        """Raises TeselaError for what is wrong; gives how many trips of loops were walked."""
        block = self.kernel.body.block
        main = _Role("", self._block(block))
        self._run([main])
        for ring in self.rings.values():
            for what, slots in (("filled and never got", ring.filled), ("got and never released", ring.got)):
                if slots:
                    raise self._error(
                        ring.op,
                        f"{len(slots)} of its slots {'is' if len(slots) == 1 else 'are'} {what} when the kernel ends",
                    )
        return self.walked

    def _run(self, roles: list[_Role]) -> None:
        """Runs roles until all have ended; each goes on until it has to wait."""
        outer = self.role
        left = list(roles)
        while left:
            moved = False
            for role in list(left):
                if role.waits is not None and not self._can_go_on(role.waits):
                    continue
                moved, self.role = True, role
                role.waits = next(role.steps, None)
                if role.waits is None:
                    left.remove(role)
                    if role.completed < role.issued - 1:
                        raise self._error(
                            self.kernel,
                            f"a dot{_of(role)} is still under way when the kernel ends",
                            "await its result, or release its buffers after its token",
                        )
            if not moved:
                raise self._stuck(left)
        self.role = outer

    def _can_go_on(self, op: Operation) -> bool:
        if isinstance(op, async_copy.RolesOp):
            return True
        ring = self.rings[op.operands[0]]
        return bool(ring.filled) if isinstance(op, async_copy.GetOp) else ring.used < ring.depth

    def _stuck(self, left: list[_Role]) -> TeselaError:
        waits = []
        for role in left:
            assert role.waits is not None
            ring = self.rings[role.waits.operands[0]]
            why = (
                f"{ring.name} is empty"
                if isinstance(role.waits, async_copy.GetOp)
                else (
                    f"of {ring.name}'s {ring.depth} slots {len(ring.filled)} are filled and {len(ring.got)} got but not released"
                )
            )
            waits.append((role, why))
        (self.role, reason), *others = waits
        assert self.role.waits is not None
        also = "".join(
            f"; role {role.name} waits at {role.waits.name}{_line(role.waits)}: {why}"
            for role, why in others
            if role.waits is not None
        )
        return self._error(
            self.role.waits, f"{'role ' + self.role.name if self.role.name else 'this'} waits for ever: {reason}{also}"
        )

    def _error(self, op: Operation, problem: str, hint: str | None = None) -> TeselaError:
        """The error, with how the walk came there."""
        where = ", ".join(f"trip {trip} of the loop{_line(loop)}" for loop, trip in self.role.trips)
        error = TeselaError.at(op, problem + (f" (in {where})" if where else ""), hint)
        return error

    # -- blocks

    def _block(self, block: Block) -> Steps:
        """Walks a block; gives what its terminator hands on."""
        for op in block.ops:
            match op:
                case scf.YieldOp() | scf.ConditionOp():
                    return [self._get(value) for value in op.operands]
                case scf.ForOp():
                    yield from self._for(op)
                case scf.WhileOp():
                    yield from self._while(op)
                case scf.IfOp():
                    yield from self._if(op)
                case async_copy.RolesOp():
                    roles = [_Role(name, self._block(body.block)) for name, body in zip(op.role_names, op.bodies)]
                    self._run(roles)
                case _ if op.name.startswith("async."):
                    yield from self._async(op)
                case _:
                    self._scalar(op)
        return []

    def _for(self, op: scf.ForOp) -> Steps:
        lower, upper, step = (self._form(value) for value in (op.lb, op.ub, op.step))
        for atom, factor in step.terms:
            if step.constant == 0 and len(step.terms) == 1 and factor > 0:
                self.answers.facts.always_positive(atom)
        carried = [self._get(value) for value in op.iter_args]
        body = op.body.block
        if op not in self.explorer.active:
            self._forget(op)
            return
        self.answers.limit(upper - lower, step, self.explorer.most_trips(op))
        counter, heads = lower, [self._head()]
        while self._another(op, upper - counter, len(heads) - 1):
            self.values[body.args[0]] = counter
            self.values.update(zip(body.args[1:], carried))
            self._count_trip()
            self.role.trips.append((op, len(heads) - 1))
            carried = yield from self._block(body)
            self.role.trips.pop()
            counter = counter + step
            heads.append(self._head())
            self._check_repeats(op, heads)
        self.values.update(zip(op.results, carried))

    def _count_trip(self) -> None:
        self.walked += 1
        if self.walked > MOST_WALKED_AT_ONCE:
            raise _TooLong

    def _another(self, op: scf.ForOp, left: Form, trips: int) -> bool:
        """Whether there is another trip after so many; where no paths end there, there is if there may be."""
        if not self.explorer.may_end(op, trips):
            self.answers.suppose(left)
        return self.answers.holds(positive(left))

    def _check_repeats(self, op: scf.ForOp, heads: list[tuple[Any, ...]]) -> None:
        """In a role the channels' state is no matter of the loop alone: what there is too much of, or too little, is found at the end."""
        depth = self.explorer.depths.get(op, 0)
        if (
            len(heads) == 2 * depth + 2
            and heads[depth] != heads[depth + 1]
            and not any(isinstance(parent, async_copy.RolesOp) for parent in _parents(op))
        ):
            raise self._error(
                op,
                "every trip leaves the channels in another state than it found them, so that the loop runs out of slots or of what fills them",
                "release as many slots in a trip as it gets, and fill as many as are got",
            )

    def _head(self) -> tuple[Any, ...]:
        """What the protocol knows at the head of a trip."""
        return tuple((len(ring.filled), len(ring.got)) for ring in self.rings.values())

    def _while(self, op: scf.WhileOp) -> Steps:
        if op not in self.explorer.active:
            self._forget(op)
            return
        handed = [self._get(value) for value in op.arguments]
        before, after = op.before_region.block, op.after_region.block
        for trip in range((most := self.explorer.most_trips(op)) + 1):
            self.values.update(zip(before.args, handed))
            self._count_trip()
            self.role.trips.append((op, trip))
            test, *handed = yield from self._block(before)
            again = trip < most and self.answers.holds(self._condition(test, (op, trip)))
            if not again:
                self.role.trips.pop()
                break
            self.values.update(zip(after.args, handed))
            handed = yield from self._block(after)
            self.role.trips.pop()
        self.values.update(zip(op.results, handed))

    def _if(self, op: scf.IfOp) -> Steps:
        if op not in self.explorer.active and not any(_is_tracked(result.type) for result in op.results):
            self._forget(op)
            return
        taken, other = op.true_region, op.false_region
        if not self.answers.holds(self._condition(self._get(op.cond), op)):
            taken, other = other, taken
        results = (yield from self._block(taken.block)) if taken.blocks else []
        for skipped in other.walk():
            self._count_copy(skipped)
        self.values.update(zip(op.results, results))

    def _forget(self, op: Operation) -> None:
        """An op with regions in which nothing of interest happens: its results are what they are."""
        key = self._key(op)
        for index, result in enumerate(op.results):
            if _is_tracked(result.type):
                self.values[result] = self._unknown(structure((key, index)))

    # -- values

    def _get(self, value: SSAValue) -> Any:
        if value not in self.values:
            self.values[value] = (
                self._unknown(("value", value.name_hint, str(value.type), id(value)), value=value)
                if _is_tracked(value.type)
                else None
            )
        return self.values[value]

    def _unknown(self, atom: Atom, name: str = "", value: SSAValue | None = None) -> Form:
        """What is not known: itself, or the number drawn for it; a multiple of what `value` is known to be a multiple of. `name`: of the operation that gives it."""
        atom = self.explorer.names.setdefault(atom, ("unknown", len(self.explorer.names)))
        multiple = self.explorer.multiple(atom, value)
        if self.sizes is None:
            return Form.of(atom).scaled(multiple)
        if atom not in self.drawn:
            match name:
                case "tile.block_count":
                    self.drawn[atom] = self.sizes.blocks
                case "tile.block_index":
                    self.drawn[atom] = self.sizes.rng.randrange(self.sizes.blocks)
                case _:
                    self.drawn[atom] = -(-self.sizes.extent() // multiple) * multiple
        return Form(self.drawn[atom])

    def _form(self, value: SSAValue) -> Form:
        found = self._get(value)
        return (
            found
            if isinstance(found, Form)
            else Form.of(("truth", found) if isinstance(found, Condition) else ("opaque", id(value)))
        )

    def _condition(self, value: Any, where: Atom) -> Condition:
        if isinstance(value, Condition):
            return value
        if isinstance(value, Form):
            return negation(Condition("and", parts=(positive(Form(1) - value), positive(value + Form(1)))))
        return Condition("atom", atom=("at", where, self.answers.asked))

    def _key(self, op: Operation) -> Atom:
        """What makes the operation's results what they are: its name, properties and operands, and those of what is in its regions."""
        own, types = self.explorer.spelled(op)
        operands = tuple(self.values.get(operand) or (operand.name_hint, kind) for operand, kind in zip(op.operands, types))
        inside = tuple(self._key(inner) for region in op.regions for block in region.blocks for inner in block.ops)
        return (own, operands, inside)

    def _scalar(self, op: Operation) -> None:
        if not op.results or not any(_is_tracked(result.type) for result in op.results):
            return
        self.values[op.results[0]] = self._computed(op)
        for index, result in enumerate(op.results[1:], 1):
            self.values[result] = self._unknown(structure((self._key(op), index)))

    def _computed(self, op: Operation) -> Form | Condition:
        match op:
            case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
                return Form(op.value.value.data)
            case arith.AddiOp() | arith.SubiOp() if not _is_bool(op.results[0].type):
                left, right = self._form(op.operands[0]), self._form(op.operands[1])
                return left + right if isinstance(op, arith.AddiOp) else left - right
            case arith.MuliOp():
                left, right = self._form(op.operands[0]), self._form(op.operands[1])
                if right.is_constant:
                    return left.scaled(right.constant)
                if left.is_constant:
                    return right.scaled(left.constant)
            case arith.IndexCastOp():
                return self._form(op.operands[0])
            case arith.CmpiOp() if not _is_bool(op.operands[0].type):
                predicate = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")[
                    op.predicate.value.data
                ]
                return compare(predicate, self._form(op.operands[0]), self._form(op.operands[1]))
            case tile.CmpOp() if isinstance(op.lhs.type, IndexType | IntegerType) and not _is_bool(op.lhs.type):
                return compare(op.predicate.data.value, self._form(op.lhs), self._form(op.rhs))
            case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp() if _is_bool(op.results[0].type):
                kind = {"arith.andi": "and", "arith.ori": "or", "arith.xori": "xor"}[op.name]
                return Condition(kind, parts=tuple(self._condition(self._get(value), value) for value in op.operands))
            case arith.MinSIOp() | arith.MaxSIOp():
                left, right = self._form(op.operands[0]), self._form(op.operands[1])
                if (above := self.answers.known(positive(left - right))) is not None:
                    return right if above == isinstance(op, arith.MinSIOp) else left
            case tile.CastOp() if (
                _is_tracked(op.source.type) and not _is_bool(op.source.type) and not _is_bool(op.res.type)
            ):
                return self._form(op.source)
            case arith.SelectOp() | tile.SelectOp():
                condition = self._condition(self._get(op.operands[0]), op.operands[0])
                if _is_bool(op.results[0].type):  # also what `a and b`, `a or b` and chained comparisons are
                    yes, no = (self._condition(self._get(value), value) for value in op.operands[1:])
                    taken, other = (
                        Condition("and", parts=(condition, yes)),
                        Condition("and", parts=(negation(condition), no)),
                    )
                    return Condition("or", parts=(taken, other))
                chosen = self.answers.known(condition) if self.sizes is None else self.answers.holds(condition)
                if chosen is not None:
                    return self._form(op.operands[1 if chosen else 2])
                self.explorer.nonlinear = True
            case _:
                pass
        if op.name in WHOLE_NUMBERS and not _is_bool(op.results[0].type):
            forms = [self._form(operand) for operand in op.operands]
            if all(form.is_constant for form in forms):
                return Form(WHOLE_NUMBERS[op.name](*(form.constant for form in forms)))
            self.explorer.nonlinear = True
        return self._unknown(structure((self._key(op), 0)), op.name, op.results[0])

    # -- the protocol

    def _async(self, op: Operation) -> Steps:
        match op:
            case async_copy.ChannelOp():
                self._open(op)
            case async_copy.PutOp() | async_copy.WriteOp():
                ring = self.rings[op.channel]
                if ring.used >= ring.depth:
                    yield op
                for other in ring.overlapping:
                    if other.used:
                        raise self._error(
                            op,
                            f"fills a buffer of {ring.name}, whose bytes are also {other.name}'s, which is in use",
                            "let alloc-shared place the channels",
                        )
                self._count_fill()
                self._count_copy(op)
                ring.filled.append(_Slot(self.role.copies))
            case async_copy.GetOp():
                ring = self.rings[op.channel]
                if not ring.filled:
                    yield op
                slot = ring.filled.popleft()
                self._check_later(op, slot)
                slot.state = "got"
                ring.got.append(slot)
                self.values[op.res] = _Buffer(slot, ring)
            case async_copy.ReleaseOp():
                self._release(op)
            case async_copy.TransposeOp():
                self.values[op.res] = self._get(op.source)
            case async_copy.ReadOp():
                self._read(op, op.source, -1)
            case async_copy.DotOp():
                number, self.role.issued = self.role.issued, self.role.issued + 1
                for operand in (op.lhs, op.rhs):
                    self._read(op, operand, number)
                self.values[op.res] = self.values[op.read] = _Event(number)
            case async_copy.AwaitOp():
                self._wait(self._get(op.pending))
            case async_copy.ReadyOp():
                self.values[op.res] = _Event(-1)
            case async_copy.TokenOp():
                self.values[op.res] = _Event(None if op.event.data == "none" else -1)
            case _:
                pass  # async.store: its channel is its own

    def _open(self, op: async_copy.ChannelOp) -> None:
        ring = self.rings[op.res] = _Ring(op, op.depth.value.data)
        check_lockstep(op)
        places, barriers = _places(op), _barriers(op)
        for other in self.rings.values():
            if other is ring:
                continue
            together = op.lockstep is not None and other.op in lockstep_group(op)
            if _overlap(barriers, _barriers(other.op)) and not together:
                raise self._error(
                    op,
                    f"its mbarriers at {barriers.start} to {barriers.stop} are also {other.name}'s",
                    "let alloc-shared place the channels",
                )
            if any(_overlap(mine, its) for mine in places for its in _places(other.op)):
                ring.overlapping.append(other)
                other.overlapping.append(ring)

    def _count_fill(self) -> None:
        self.fills += 1
        if self.sizes is not None and self.fills > MOST_FILLS:
            raise _TooLong

    def _count_copy(self, op: Operation) -> None:
        if (
            isinstance(op, async_copy.PutOp)
            and op.via is not None
            and op.via.data == "cp.async"
            and self.rings[op.channel].depth > 1
        ):
            self.role.copies += 1

    def _check_later(self, op: async_copy.GetOp, slot: _Slot) -> None:
        stated = op.later.value.data if op.later is not None else 0
        if stated > (later := self.role.copies - slot.put_number):
            raise self._error(
                op,
                f"counts on {stated} later groups of copies, but only {later} come after the put of this slot: it may not be filled yet",
            )

    def _read(self, op: Operation, operand: SSAValue, reader: int) -> None:
        buffer = self._get(operand)
        if not isinstance(buffer, _Buffer):
            return
        if buffer.slot.state != "got":
            raise self._error(
                op,
                f"reads a buffer of {buffer.ring.name} after its slot was released",
                "release the slot after its last reader",
            )
        buffer.slot.reader = max(buffer.slot.reader, reader)

    def _wait(self, event: Any) -> None:
        if isinstance(event, _Event) and event.number is not None:
            self.role.completed = max(self.role.completed, event.number)

    def _release(self, op: async_copy.ReleaseOp) -> None:
        ring = self.rings[op.channel]
        event = self._get(op.token) if op.token is not None else None
        if isinstance(event, _Event) and event.number is None:
            return
        if not ring.got:
            raise self._error(op, f"no slot of {ring.name} was got and not yet released", "release each slot once")
        self._wait(event)
        slot = ring.got.popleft()
        if slot.reader > self.role.completed:
            raise self._error(
                op,
                f"the slot of {ring.name} is released while a dot may still read it, and the next put overwrites it",
                "release it after that dot's token, or await the dot's result before",
            )
        slot.state = "free"


def _of(role: _Role) -> str:
    return f" of role {role.name}" if role.name else ""


def _line(op: Operation) -> str:
    location = nearest_location(op)
    return f" at line {location.line}" if location is not None else ""


def _is_bool(kind: Attribute) -> bool:
    return isinstance(kind, IntegerType) and kind.width.data == 1


def _is_tracked(kind: Attribute) -> bool:
    return isinstance(kind, IndexType | IntegerType)


def _places(op: async_copy.ChannelOp) -> list[range]:
    """The bytes of each of its buffers, once it is placed."""
    if op.offset is None or not isinstance(op.res.type.layout, SharedLayoutAttr):
        return []
    starts = [op.offset.value.data + slot * slot_stride(op) for slot in range(op.depth.value.data)]
    return [range(start, start + slot_bytes(op)) for start in starts]


def _barriers(op: async_copy.ChannelOp) -> range:
    if op.barrier is None:
        return range(0)
    return range(
        op.barrier.value.data,
        op.barrier.value.data + MBARRIER_BYTES * op.depth.value.data * (2 if op.joins_roles() else 1),
    )


def _overlap(a: range, b: range) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)
