"""How long a trip of a loop takes: streams that share units, run until their state repeats. What `loop_timing` and `schedule_problem` ask; nothing here knows the IR.

A *body* is what one trip does; several blocks that share a multiprocessor do one each. Each warpgroup of the consumers is a stream that does the body's steps in order; so does each warp of the
producer the puts of its channels. Units
(tensor cores, special functions, arithmetic, …) serve whoever comes first. Dots and copies go on by themselves once issued; a stream stands still at an await,
at a get of a slot that is not filled yet, at a put into a slot that is not free yet, and, where no role fills the channel, at the barrier by which all warpgroups give
a slot back. What stands between two such places is one stretch, as long as its busiest unit.

    body of one warpgroup: dot S (512 clocks) · await S · stretch (500 of special functions) · dot O (512) · await O
    1 warpgroup:   S 512 + 55, stretch 500, O 512 + 55: 1634 clocks a trip; the tensor cores are busy for 1024 of them
    2 warpgroups:  while one computes, the other's dots run: 2048 clocks a trip, and no order could do with less

**Interval.** The mean of the last trips, after some in which the streams settle. **Bound.** No order of the same steps takes less than the busiest unit's work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from .machine_costs import BARRIER_CLOCKS, DOT_DRAIN

if TYPE_CHECKING:
    from xdsl.ir import Operation

SETTLING_TRIPS, MEASURED_TRIPS = 8, 8
PIECES = 8
"""In how many parts a stretch asks for its units, so that two warpgroups that compute at one time share them."""
TENSOR, COPIES = "tensor", "copies"

Key = Hashable
"""What names a channel or an event: a value of the IR, or a pair of one and a word."""


@dataclass(eq=False, slots=True)
class Step:
    """One thing that a stream does. `kind`: "stretch" (with `work`: clocks of each unit for one warpgroup), "dot" (`clocks` of the tensor cores for one
    warpgroup; `gives`: the events that are past with it; `blocks`: whether the stream waits for its end, as for mma.sync), "await" and "release" (`waits`: the event that
    they are for; None: at once), "get", or "put" (`clocks` of the copies, and `latency` until the last of it has arrived; `part`: which part of a slot it fills; `issuer`: what puts of one
    warp have in common). `ops`: what it stands for."""

    kind: str
    ops: list[Operation] = field(default_factory=list)
    work: dict[str, float] = field(default_factory=dict)
    clocks: float = 0.0
    channel: Key = None
    waits: Key = None
    gives: tuple[Key, ...] = ()
    latency: float = 0.0
    blocks: bool = False
    part: int = 0
    issuer: Key = None


@dataclass(eq=False, slots=True)
class Busy:
    """A piece of the timeline: `row` (a stream's name or a unit's), from `start` to `end`, in clocks, for `step` of trip `trip`."""

    row: str
    start: float
    end: float
    step: Step
    trip: int


@dataclass(eq=False)
class Body:
    """One trip. `puts`: those of the producer, if there is one; `groups`: consumer warpgroups; `slots`: of each channel; `parts`: of the slots of channels of which each warpgroup reads, and gives back, a part of its own; `blocks`: how many of
    them a multiprocessor does at a time, each with channels of its own; `carried`: (name in this trip, name in the
    next) of events."""

    steps: list[Step]
    puts: list[Step] = field(default_factory=list)
    groups: int = 1
    slots: Mapping[Key, int] = field(default_factory=dict)
    carried: Sequence[tuple[Key, Key]] = ()
    blocks: int = 1
    parts: Mapping[Key, int] = field(default_factory=dict)

    def work(self) -> dict[str, float]:
        """Clocks of each unit in a trip, of all streams together."""
        found: dict[str, float] = defaultdict(float)
        for step in self.steps:
            if step.kind == "dot":
                found[TENSOR] += self.blocks * self.groups * step.clocks
            for unit, clocks in step.work.items():
                found[unit] += self.blocks * self.groups * clocks
        for step in (*self.steps, *self.puts):
            if step.kind == "put":
                found[COPIES] += self.blocks * step.clocks
        return dict(found) or {"alu": 1.0}

    def alone(self) -> Body:
        """The same with one warpgroup, that has all units to itself, and whose copies are always there: what is left is the order of its own steps."""
        steps = [step for step in self.steps if step.kind not in ("put", "get")]
        return Body([Step("await", step.ops, waits=step.waits) if step.kind == "release" else step for step in steps], carried=self.carried)


def merged(steps: Sequence[Step]) -> list[Step]:
    """Neighbours that never wait as one stretch; stretches without work are left out."""
    found: list[Step] = []
    stretch: Step | None = None
    for step in steps:
        if step.kind != "stretch":
            stretch = None
            found.append(step)
            continue
        if stretch is None:
            stretch = Step("stretch")
            found.append(stretch)
        stretch.ops += step.ops
        for unit, clocks in step.work.items():
            stretch.work[unit] = stretch.work.get(unit, 0.0) + clocks
    return [step for step in found if step.kind != "stretch" or step.work]


@dataclass(eq=False)
class _Stream:
    """A warpgroup or the producer: where it is, and when it gets there."""

    name: str
    steps: list[Step]
    block: int
    group: int = 0
    first: bool = False
    produces: bool = False
    now: float = 0.0
    at: int = 0
    trip: int = 0
    piece: int = 0
    """Of a stretch, how many are done; of a release by barrier, whether it has arrived."""
    values: dict[Key, float] = field(default_factory=dict)
    """When events are past."""
    got: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    gave: dict[Key, int] = field(default_factory=lambda: defaultdict(int))


_Ring = tuple[Key, int, int]
"""A channel, a block, and the part of each slot that is meant."""


class Model:
    """Streams, units and channels; `run` gives the interval."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.free: dict[str, float] = defaultdict(float)
        self.streams: list[_Stream] = []
        for block in range(body.blocks):
            named = f" of block {block}" if block else ""
            self.streams += [_Stream(f"warpgroup {index}{named}", body.steps, block, index, index == 0) for index in range(body.groups)]
            issued: dict[Key, list[Step]] = {}
            for step in body.puts:
                issued.setdefault(step.issuer, []).append(step)
            self.streams += [_Stream(f"producer{named}", its, block, produces=True) for its in issued.values()]
        self.filled: dict[_Ring, list[float]] = defaultdict(list)
        """When slots, in the order of their filling, hold their data."""
        self.released: dict[_Ring, list[list[float]]] = defaultdict(list)
        """By slot, when each warpgroup gave it back."""
        self.put_count: dict[_Ring, int] = defaultdict(int)
        self.own = {step.channel for step in body.steps if step.kind == "put"}
        """Channels that the consumers fill themselves."""
        filled = self.own | {step.channel for step in body.puts}
        self.ahead = {step.channel for step in body.steps if step.kind == "get"} - filled
        """Channels that nothing of the body fills: what is in them counts as there."""
        self.timeline: list[Busy] = []
        self.start = 0.0

    def run(self) -> float:
        """Clocks of a trip. 0 for a body without steps."""
        total = SETTLING_TRIPS + MEASURED_TRIPS
        for channel, block in product(self.own, range(self.body.blocks)):
            # Filled ahead before the loop, by as many slots as stay free of the one in use.
            self.filled[channel, block, 0] = [0.0] * (self._depth(channel) - 1)
            self.put_count[channel, block, 0] = len(self.filled[channel, block, 0])
        ends: list[float] = []
        while (stream := self._earliest(total)) is not None:
            before = stream.trip
            if not self._advance(stream):  # it waits for another one
                others = [other for other in self.streams if other is not stream and (other.produces or other.trip < total)]
                for stream in sorted(others, key=lambda other: other.now):
                    before = stream.trip
                    if self._advance(stream):
                        break
                else:
                    break  # a loop that the model cannot follow: what it waits for is not among its streams
            if stream is self.streams[0] and stream.trip > before:
                ends.append(stream.now)
        if len(ends) <= SETTLING_TRIPS:
            return ends[-1] / len(ends) if ends else 0.0
        self.start = ends[-2]
        return (ends[-1] - ends[SETTLING_TRIPS - 1]) / (len(ends) - SETTLING_TRIPS)

    def _ring(self, stream: _Stream, step: Step) -> _Ring:
        """What a warpgroup reads of a channel's slots."""
        return step.channel, stream.block, stream.group % self.body.parts.get(step.channel, 1)

    def _earliest(self, total: int) -> _Stream | None:
        """The stream that is least far, the first of equals; None when all consumers have done so many trips."""
        found, consumes = None, False
        for stream in self.streams:
            if stream.produces or stream.trip < total:
                consumes |= not stream.produces
                if found is None or stream.now < found.now:
                    found = stream
        return found if consumes else None

    def _depth(self, channel: Key) -> int:
        return self.body.slots.get(channel, 1)

    def _advance(self, stream: _Stream) -> bool:
        """Does the stream's next step, or a piece of it; False if it has to wait for another stream first."""
        if not stream.steps:
            return False
        step = stream.steps[stream.at]
        match step.kind:
            case "stretch":
                self._piece(stream, step)
                if stream.piece:
                    return True
            case "dot":
                start = max(stream.now, self.free[TENSOR])
                end = self.free[TENSOR] = start + step.clocks
                self._busy(TENSOR, start, end, step, stream)
                if step.blocks:
                    stream.now = end
                for event in step.gives:
                    stream.values[event] = end + DOT_DRAIN
            case "await":
                stream.now = max(stream.now, self._past(stream, step.waits))
            case "get":
                if step.channel not in self.ahead:
                    number = stream.got[step.channel]
                    filled = self.filled[self._ring(stream, step)]
                    if number >= len(filled):
                        return False
                    stream.now = max(stream.now, filled[number])
                stream.got[step.channel] += 1
                stream.now += BARRIER_CLOCKS / PIECES
            case "release":
                if not self._release(stream, step):
                    return False
                if stream.piece:
                    return True
            case _:
                if not self._put(stream, step):
                    return False
        stream.at += 1
        if stream.at == len(stream.steps):
            stream.at, stream.trip = 0, stream.trip + 1
            handed = {later: stream.values.get(now, 0.0) for now, later in self.body.carried}
            stream.values.update(handed)
        return True

    def _piece(self, stream: _Stream, step: Step) -> None:
        ends = [stream.now]
        for unit, clocks in step.work.items():
            start = max(stream.now, self.free[unit])
            self.free[unit] = start + clocks / PIECES
            ends.append(self.free[unit])
        self._busy(stream.name, stream.now, max(ends), step, stream)
        stream.now = max(ends)
        stream.piece = (stream.piece + 1) % PIECES

    def _release(self, stream: _Stream, step: Step) -> bool:
        """Gives a slot back. A slot that the consumers fill themselves is free after a barrier of all of them; of one that a producer fills each
        warpgroup says so, and goes on."""
        number, slots = stream.gave[step.channel], self.released[self._ring(stream, step)]
        while len(slots) <= number:
            slots.append([])
        if not stream.piece:
            stream.now = max(stream.now, self._past(stream, step.waits))
            slots[number].append(stream.now)
            if step.channel in self.own and len(slots[number]) < self.body.groups:
                stream.piece = 1  # it has arrived, and waits for the others
                return True
        elif len(slots[number]) < self.body.groups:
            return False
        if step.channel in self.own:
            stream.now = max(slots[number])
        stream.piece = 0
        stream.gave[step.channel] += 1
        return True

    def _put(self, stream: _Stream, step: Step) -> bool:
        """In the consumers' own stream the first of them issues it for all; elsewhere the producer does."""
        if not (stream.produces or stream.first):
            return True
        ring = (step.channel, stream.block, step.part)
        when = stream.now
        if (over := self.put_count[ring] - self._depth(step.channel)) >= 0:
            slots = self.released[ring]
            if over >= len(slots) or len(slots[over]) < self.body.groups // self.body.parts.get(step.channel, 1):
                if stream.produces:
                    return False
            else:
                when = max(when, *slots[over])
        self.put_count[ring] += 1
        start = max(when, self.free[COPIES])
        self.free[COPIES] = start + step.clocks
        self._busy(COPIES, start, self.free[COPIES], step, stream)
        self.filled[ring].append(self.free[COPIES] + step.latency)
        if stream.produces:
            stream.now = when
        return True

    def _past(self, stream: _Stream, event: Key) -> float:
        """When an event is past; what came before the loop is."""
        return stream.values.get(event, 0.0) if event is not None else 0.0

    def _busy(self, row: str, start: float, end: float, step: Step, stream: _Stream) -> None:
        self.timeline.append(Busy(row, start, end, step, stream.trip))
