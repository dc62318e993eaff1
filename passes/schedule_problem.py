"""The scheduling problem of a kernel: for each loop its steps, units, latencies and carried events, and all the ways in which `pipeline-loops` can do it. For `schedule_solver`.

**Decisions.** Of each loop, jointly:

- its *structure*: accumulators in flight from one trip to the next; a dot that takes what another one's result became, issued a trip late; or each dot awaited where it stands.
  An accumulator that other code of the loop reads is never in flight over the back-edge: such a structure is not among the candidates (ptxas would serialise
  every wgmma, its message C7514);
- its *slots*: how many buffers its channels have, which is how many trips ahead they are filled, and one. Channels that another role fills and that are only read
  into registers are *light*: a slot is free as soon as it is read, so that they may have fewer than those that dots read.

**Limits.** Shared memory, of all channels of the kernel together; registers of a thread, for what a structure holds at one time; no more slots than trips.
Pins (`stages=`, `dots=`) leave only what was stated; where nothing is left, an error names the pin.

**Costs**, the first that differs decides:

1. clocks of the kernel above what its units need at least, in hundredths of that: the interval of each loop by the model (loop_model.py), and what it waits for
   copies when it begins anew, as often as it runs;
2. clocks that it would wait if every copy came a trip late: a slot to spare, unless a trip is long beside the latency, which varies;
3. the same as 1 for one warpgroup that has the units to itself, and whose copies are there: of two schedules that keep the tensor cores busy as long as two warpgroups take turns,
   the one that needs that less;
4. shared memory.

The steps of a structure are those that the transformations make (a test compares the interval foreseen with that of the loop as it then stands).

Example, a product: steps get, get, dot 1024 (512 of each warpgroup), await, release; in flight: get, get, dot, release of the trip before. Tensor cores 1024 clocks: the bound. With
4 slots a copy may take 3 trips: interval 1024, cost (0, …), which no other can beat: one model is run. Awaited, the same interval, but alone 567 instead of 512.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from xdsl.dialects import scf
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.async_roles import WARP_THREADS, RolesOp
from ..dialects.diagnostics import TeselaError
from ..dialects.inside import inside
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.target import Target
from . import dot_rules
from .alloc_shared import ring_bytes, scratch_bound
from .delay_dots import Delay, find_delays, registers_at_once
from .loop_model import Body, Key, Model, Step, merged
from .loop_timing import computes, longest_chain, puts_elsewhere, slots_of, steps_of, warpgroups
from .schedule_solver import Answer, Cost, Option, solve
from .split_loops import rarely_done
from .split_slots import parts_of
from .stages import (
    LONG_TRIP,
    MOST_STAGES,
    runs_of,
    stated_depth,
    stated_stages,
    trip_count,
    trips_of,
)

if TYPE_CHECKING:
    from .pipeline_loops import Loop, Ring

IN_FLIGHT, LATE, AWAITED = "in-flight", "late", "awaited"
NAMES = {IN_FLIGHT: "dots in flight", LATE: "a dot a trip late", AWAITED: "dots awaited"}
DOTS = "dots"
"""The attribute of a loop or of the kernel that states a structure."""
HUNDREDTHS = 100
"""In how many parts of the bound costs are counted: the model is no more exact than one of them."""
NOTHING: Cost = (0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Structure:
    """What becomes of a loop's dots. `pin`: the word for it that an author may state; `late`: the one that is issued a trip late; `registers`: of a thread, that it must hold at one time; `has_dots`: whether
    there are any in the loop's own block."""

    pin: str
    late: Delay | None = None
    registers: int = 0
    has_dots: bool = True

    @property
    def in_flight(self) -> bool:
        return self.pin == IN_FLIGHT

    @property
    def name(self) -> str:
        return NAMES[self.pin] if self.has_dots else ""


@dataclass(frozen=True, eq=False)
class Way:
    """A candidate for a loop."""

    structure: Structure
    stages: int
    light: int | None = None
    """Slots of light channels, where there are others too, and they have fewer."""

    def __str__(self) -> str:
        slots = f"{self.stages} slot{'s' if self.stages > 1 else ''}{f', {self.light} of what is read at once' if self.light else ''}"
        return f"{self.structure.name}, {slots}" if self.structure.name else slots


@dataclass(eq=False)
class LoopProblem:
    """One loop. `ways`: the candidates that its registers allow; `too_large`: structures that they do not; `bound`, `alone_bound`: the least clocks of a trip, and with one
    warpgroup, None where the loop is none that the model times; `blocks`: how many a multiprocessor does at a time, which is taken as given: slots are not given up for
    more of them (a pin does that, as in the variants of small tiles); `floors`: the least clocks of a trip in a structure, where they were asked for."""

    loop: Loop
    stated: int | None
    ways: list[Way]
    too_large: list[Structure]
    bound: float | None
    alone_bound: float
    runs: int
    trips: int
    blocks: int
    intervals: dict[Way, float] = field(default_factory=dict)
    own: dict[tuple[Structure, bool], float] = field(default_factory=dict)
    floors: dict[Structure, float] = field(default_factory=dict)

    def alone(self, way: Way) -> float:
        """Clocks of a trip of one warpgroup that has the units to itself and whose copies are there: how many slots there are makes no difference, unless nothing is moved
        for want of a second one."""
        key = (way.structure, way.stages > 1)
        if key not in self.own:
            self.own[key] = Model(arrange(self.loop, way).alone()).run()
        return self.own[key]

    def interval(self, way: Way) -> float:
        """Clocks of a trip, by the model; of several blocks that take turns, of each."""
        if way not in self.intervals:
            body = replace(arrange(self.loop, way), blocks=self.blocks)
            self.intervals[way] = Model(body).run() / body.blocks
        return self.intervals[way]

    def floor(self, way: Way) -> float:
        """What its clocks of a trip are at least. Where another way of the same structure is known to miss the bound, dependences, not units, limit it: then the interval
        with as many slots as there may be, which fewer do not beat, rules out nearly all other numbers of slots unseen."""
        assert self.bound is not None
        seen = [found for other, found in self.intervals.items() if other.structure is way.structure]
        if not seen or min(seen) <= self.bound:
            return self.bound
        if way.structure not in self.floors:
            ways = [other for other in self.ways if other.structure is way.structure]
            self.floors[way.structure] = self.interval(max(ways, key=lambda other: (other.stages, other.light is None)))
        return self.floors[way.structure]

    def room(self, way: Way) -> int:
        """Bytes of shared memory for its slots."""
        return self.loop.bytes(way.stages, way.structure.in_flight, way.light)


@dataclass(eq=False)
class ScheduleProblem:
    """A kernel's loops, and the shared memory that is left for their channels. `unit`: clocks that count as one hundredth."""

    kernel: tile.KernelOp
    loops: list[LoopProblem]
    room: int
    unit: float
    register_limit: int
    options: list[list[Option]] = field(default_factory=list)
    answer: Answer | None = None

    def chosen(self, number: int) -> Way:
        """The way of a loop."""
        assert self.answer is not None
        return self.options[number][self.answer.choice[number]].about

    def clocks(self) -> float:
        """What a block's loops take as they are decided, about: their trips, and, where the threads that compute issue the copies, too, the wait for the first ones each time that
        a loop begins, unless other blocks compute meanwhile."""
        total = 0.0
        for number, loop in enumerate(self.loops):
            way, own = self.chosen(number), not all(ring.elsewhere for ring in loop.loop.rings)
            if loop.bound is not None:
                total += loop.runs * loop.trips * loop.interval(way)
            else:
                total += _waits(loop, way.stages)
            total += loop.runs * loop.loop.pace[0] / loop.blocks if own else 0.0
        return total


# ---- the problem ----------------------------------------------------------------------------------------------------


def state(kernel: tile.KernelOp, loops: Sequence[Loop], stages: int | None, dots: str | None, target: Target) -> ScheduleProblem:
    """The problem of a kernel whose loops are analysed, innermost last. `stages`, `dots`: slots and a structure that are stated for all of them, the structure where it
    is possible. Layouts must be known. Raises TeselaError where a pin is wrong or leaves a loop nothing."""
    rings = {ring.channel for loop in loops for ring in loop.rings}
    others = [op for op in inside(kernel, async_copy.ChannelOp) if op not in rings]
    room = target.max_shared_bytes - scratch_bound(kernel) - sum(ring_bytes(op, op.depth.value.data) for op in others)
    limit = dot_rules.accumulator_limit(dot_rules.block_warps(kernel), target)
    dots = dots or stated_dots(kernel)
    registers = _registers(kernel)

    def blocks(nbytes: int) -> int:
        return _blocks(kernel, target, registers, target.max_shared_bytes - room + nbytes)

    problems = [_loop_problem(loop, stages, dots, limit, blocks) for loop in loops]
    total = sum(problem.runs * problem.trips * problem.bound for problem in problems if problem.bound is not None)
    problem = ScheduleProblem(kernel, problems, room, max(1.0, total / HUNDREDTHS), limit)
    problem.options = [[option_of(problem, loop, way) for way in loop.ways] for loop in problems]
    return problem


def decide(problem: ScheduleProblem) -> None:
    """Finds the answer, and sets what each loop becomes. Where nothing fits, loops get as few slots as they may, and `alloc-shared`, which can let channels share
    their buffers, has the last word."""
    problem.answer = solve(problem.options, problem.room, NOTHING)
    if problem.answer is None:
        smallest = _smallest(problem.options)
        found = solve(smallest, sum(_rooms(problem)), NOTHING)
        if found is None:
            return
        choice = tuple(options.index(few[number]) for options, few, number in zip(problem.options, smallest, found.choice, strict=True))
        problem.answer = replace(found, choice=choice)
    for number, loop in enumerate(problem.loops):
        way = problem.chosen(number)
        loop.loop.stages, loop.loop.light, loop.loop.late = way.stages, way.light, way.structure.late
        if not way.structure.in_flight:
            loop.loop.chains = []


def _smallest(options: Sequence[Sequence[Option]]) -> list[list[Option]]:
    return [[option for option in each if option.room == min(other.room for other in each)] for each in options]


def _rooms(problem: ScheduleProblem) -> Iterator[int]:
    return (max(option.room for option in options) for options in problem.options)


def stated_dots(op: Operation) -> str | None:
    """The structure that a loop's or a kernel's attribute `dots` states. Raises TeselaError for another word."""
    stated = op.attributes.get(DOTS)
    if stated is None:
        return None
    if not isinstance(stated, StringAttr) or stated.data not in NAMES:
        words = ", ".join(f'"{word}"' for word in NAMES)
        raise TeselaError.at(op, f"dots must be one of {words}, found {stated}", f'write attributes {{dots = "{IN_FLIGHT}"}}, or leave it out')
    return stated.data


WHY_NOT = {
    IN_FLIGHT: "none of its accumulators is only added to in the loop, by dots whose operands stay as they are until the next trip",
    LATE: "none of its dots takes what another one's result became, from registers, and adds to what nothing else of the loop reads",
}


def _impossible(loop: scf.ForOp, pin: str, too_large: Sequence[Structure], register_limit: int) -> TeselaError:
    """The error where a structure is stated that the loop cannot have."""
    large = [structure.registers for structure in too_large if structure.pin == pin]
    if large:
        why = f"that takes {min(large)} registers of each thread at one time, of {register_limit}"
        return TeselaError.at(loop, f'dots = "{pin}" is stated, but {why}', "leave the pin out, or make the tiles smaller")
    return TeselaError.at(loop, f'dots = "{pin}" is stated for this loop, but {WHY_NOT[pin]}', "leave the pin out")


def _loop_problem(loop: Loop, stages: int | None, dots: str | None, register_limit: int, blocks: Callable[[int], int]) -> LoopProblem:
    stated = stated_depth(loop) or stages or stated_stages(loop.op) or stated_stages(loop.kernel)
    counts = sorted({_limited(loop, count) for count in ([stated] if stated else range(1, MOST_STAGES + 1))})
    structures = list(_structures(loop))
    kept = [structure for structure in structures if structure.registers <= register_limit]
    too_large = [structure for structure in structures if structure not in kept]
    own = stated_dots(loop.op)
    pinned = [structure for structure in kept if structure.pin == (own or dots)]
    if own is not None and not pinned:
        raise _impossible(loop.op, own, too_large, register_limit)
    kept = pinned or kept
    ways = [
        Way(structure, count, light)
        for structure in kept
        for count in counts
        if count > 1 or structure is kept[-1]
        for light in (None, *(_fewer(loop, count) if stated is None else ()))
    ]
    wanted = next((count for count in counts if _late_copies(loop, count, runs_of(loop.op) * trips_of(loop.op)) == 0), counts[-1])
    together = blocks(loop.bytes(wanted))
    bound, alone_bound = None, 0.0
    if _is_timed(loop.op):
        chain = longest_chain(loop.op)
        body = arrange(loop, ways[-1])
        bound = max(chain / together, *body.work().values())
        alone_bound = max(chain, *body.alone().work().values())
    return LoopProblem(loop, stated, ways, too_large, bound, alone_bound, runs_of(loop.op), trips_of(loop.op), together)


def _fewer(loop: Loop, stages: int) -> range:
    """How many slots light channels may have where the others have so many."""
    light = [ring for ring in loop.rings if loop.is_light(ring)]
    return range(1, stages) if 0 < len(light) < len(loop.rings) else range(0)


def _in_use(loop: Loop, rings: Sequence[Ring]) -> float:
    """For how many trips a slot of these channels is in use: one that dots read for a trip; a light one not at all where each warpgroup gives its part back (split_slots.py), or else until the last
    warpgroup has come to it: they take turns, so that of G of them the last is (G - 1)/G trips behind the first."""
    if not all(loop.is_light(ring) for ring in rings):
        return 1.0
    groups = warpgroups(loop.op)
    return 0.0 if all(parts_of(ring.channel) > 1 for ring in rings) else (groups - 1) / groups


OTHER_REGISTERS = 40
"""Registers of a thread for addresses and counters (estimate)."""
MOST_BLOCKS = 4
"""Blocks of a multiprocessor that are looked at: more take turns no better."""


def _registers(kernel: tile.KernelOp) -> int:
    """Registers of a thread, about: what its largest tile takes, and others."""
    kinds = [getattr(value.type, "tile", value.type) for op in kernel.walk() for value in op.results]
    held = [dot_rules.registers_of(kind.encoding.data, kind.element_type) for kind in kinds if isinstance(kind, TensorType) and isinstance(kind.encoding, TVLayoutAttr)]
    return OTHER_REGISTERS + max(held, default=0)


def _blocks(kernel: tile.KernelOp, target: Target, registers: int, nbytes: int) -> int:
    """Blocks that a multiprocessor holds at a time; roles take all registers."""
    if any(isinstance(op, RolesOp) for op in kernel.body.block.ops):
        return 1
    warps = dot_rules.block_warps(kernel)
    by_registers = target.registers_per_sm // (WARP_THREADS * warps * min(registers, target.max_registers_per_thread))
    by_memory = target.shared_bytes_per_sm // (nbytes + target.reserved_shared_bytes)
    return max(1, min(target.max_blocks_per_sm, target.max_warps_per_sm // warps, by_registers, by_memory, MOST_BLOCKS))


def _is_timed(op: scf.ForOp) -> bool:
    return computes(op) and not any(computes(inner) for inner in inside(op.body, scf.ForOp))


def _limited(loop: Loop, stages: int) -> int:
    """No more slots than trips, and one where nothing would be gained."""
    trips = trip_count(loop.op)
    if all(ring.elsewhere for ring in loop.rings):
        return stages  # another role goes on to the next loop
    if all(ring.stays is not None for ring in loop.rings):
        stages = min(stages, 2) if loop.chains else 1
    return max(1, min(stages, trips)) if trips is not None else stages


def _structures(loop: Loop) -> Iterator[Structure]:
    """All that can be made of a loop's dots, what leaves most of them under way first."""
    if loop.chains:
        yield Structure(IN_FLIGHT)
    released = {ring.get: ring.release for ring in loop.rings if ring.stays is None}
    for delay in find_delays(loop.op, released):
        yield Structure(LATE, delay, registers_at_once(delay))
    yield Structure(AWAITED, has_dots=any(isinstance(op, async_copy.DotOp | tile.DotOp) for op in loop.block.ops))


# ---- costs ----------------------------------------------------------------------------------------------------------


def option_of(problem: ScheduleProblem, loop: LoopProblem, way: Way) -> Option:
    """A way as the solver takes it."""
    room = loop.room(way)
    spare = round(_late_copies(loop.loop, way.stages, loop.runs * loop.trips, way.light))
    if loop.bound is None:
        known = (int(_waits(loop, way.stages) / problem.unit), spare, 0, room)
        return Option(str(way), room, known, lambda: known, way, known)
    times = loop.runs * loop.trips
    own = max(0, int(times * (loop.alone(way) - loop.alone_bound) / problem.unit))
    bound = loop.bound

    def late(interval: float) -> int:
        return max(0, int(times * (interval - bound) / problem.unit))

    def cost() -> Cost:
        return (late(loop.interval(way)), spare, own, room)

    return Option(str(way), room, (0, spare, own, room), cost, way, floor=lambda: (late(loop.floor(way)), spare, own, room))


def _waits(loop: LoopProblem, stages: int) -> float:
    """Clocks that the whole kernel waits for a loop's copies, about."""
    late, clocks = loop.loop.pace
    return loop.runs * loop.trips * max(0.0, late - (stages - _in_use(loop.loop, loop.loop.rings)) * clocks)


def _late_copies(loop: Loop, stages: int, times: int, light: int | None = None) -> float:
    """Clocks that all trips, `times` of them, wait for copies if these take a trip longer, unless a trip is long."""
    late, clocks = loop.pace
    spare = clocks if clocks < LONG_TRIP * late else 0.0
    found = times * max(0.0, late + spare - (stages - _in_use(loop, loop.rings)) * clocks)
    if light is not None:
        rings = [ring for ring in loop.rings if loop.is_light(ring)]
        found += times * max(0.0, late + spare - (light - _in_use(loop, rings)) * clocks)
    return found


# ---- what a trip is, done in a way ----------------------------------------------------------------------------------


def arrange(loop: Loop, way: Way) -> Body:
    """A trip of a loop that is not transformed yet, as `pipeline-loops` would make it: the steady state, without first and last trips, and without the masks that
    `split-loops` will leave out of most trips."""
    groups = warpgroups(loop.op)
    rare = rarely_done(loop.op)
    steps = [Step("stretch", step.ops) if step.kind == "stretch" and rare.issuperset(step.ops) else step for step in steps_of(loop.block, groups)]
    trip = _Trip(loop, steps)
    if way.stages > 1:
        trip.move(way.structure)
    steps = merged(trip.steps)
    puts = puts_elsewhere(loop.op, {step.channel for step in steps if step.kind == "get"}, _parts)
    slots: dict[Key, int] = {step.channel: slots_of(step.channel) for step in (*steps, *puts) if step.channel is not None}
    slots |= {ring.channel.res: loop.depth(ring, way.stages, way.structure.in_flight, way.light) for ring in loop.rings}
    return Body(steps, puts, groups, slots, trip.carried, parts={channel: _parts(channel) for channel in slots})


def _parts(channel: object) -> int:
    """In how many parts `split-slots` will have a channel filled."""
    owner = channel.owner if isinstance(channel, SSAValue) else None
    return parts_of(owner) if isinstance(owner, async_copy.ChannelOp) else 1


class _Trip:
    """The steps of a trip, in order, an operation each, while they are moved."""

    def __init__(self, loop: Loop, steps: Sequence[Step]) -> None:
        self.loop = loop
        self.steps = list(steps)
        self.place = {step.ops[0]: index for index, step in enumerate(steps)}
        end = loop.block.last_op
        assert end is not None
        self.carried: list[tuple[Key, Key]] = list(zip(end.operands, loop.block.args[1:]))

    def move(self, structure: Structure) -> None:
        """Does to the steps what the transformations do to the operations."""
        rings = self.loop.rings
        dots = self.loop.carried_dots() if structure.in_flight else set()
        in_flight = [ring for ring in rings if not dots.isdisjoint(ring.dots)]
        if in_flight:
            last = max(dots, key=self.place.__getitem__)
            tokens = {ring: max(ring.dots, key=self.place.__getitem__).read for ring in in_flight}
            for ring in in_flight:
                self._step(ring.release).waits = ("before", tokens[ring])
            self.carried += [(token, ("before", token)) for token in dict.fromkeys(tokens.values())]
            self._put_after(last, [*(ring.release for ring in in_flight), *self._fills(in_flight)])
        if structure.in_flight:
            awaited = {wait for chain in self.loop.chains for wait in chain.awaits}
            self.steps = [step for step in self.steps if step.ops[0] not in awaited]
        for ring in rings:
            if ring.stays is None and not ring.elsewhere and ring not in in_flight and not ring.dots and not ring.read_elsewhere:
                at: Operation = ring.get
                while isinstance(at.next_op, async_copy.GetOp):
                    at = at.next_op
                self._step(ring.release).waits = None
                self._put_after(at, [ring.release, *self._fills([ring])])
        if (late := structure.late) is not None:
            refill = self._fills([ring for ring in rings if ring.release is late.release])
            self._put_before(late.before, [*late.views, late.dot])
            self._put_last([late.wait, late.release, *refill, *late.rescale, late.convert])

    def _fills(self, rings: Sequence[Ring]) -> list[Operation]:
        return [ring.fill for ring in rings if ring.stays is None and not ring.elsewhere]

    def _step(self, op: Operation) -> Step:
        return next(step for step in self.steps if step.ops[0] is op)

    def _take(self, ops: Sequence[Operation]) -> list[Step]:
        """The steps of these operations, in their order, which are not in the trip any more."""
        found = {step.ops[0]: step for step in self.steps if step.ops[0] in set(ops)}
        self.steps = [step for step in self.steps if step.ops[0] not in found]
        return [found[op] for op in ops if op in found]

    def _put_after(self, at: Operation, ops: Sequence[Operation]) -> None:
        moved = self._take(ops)
        index = next(i for i, step in enumerate(self.steps) if step.ops[0] is at) + 1
        self.steps[index:index] = moved

    def _put_before(self, at: Operation, ops: Sequence[Operation]) -> None:
        moved = self._take(ops)
        index = next(i for i, step in enumerate(self.steps) if step.ops[0] is at)
        self.steps[index:index] = moved

    def _put_last(self, ops: Sequence[Operation]) -> None:
        self.steps += self._take(ops)
