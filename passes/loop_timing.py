"""How long a trip of a scheduled loop takes, what limits it, and how far it is from the best that any order could reach.

A model of one multiprocessor. Each warpgroup of the consumers is a *stream* that does the loop's operations in order, and so is each warp of the producer, one for each channel
that it fills. Streams share
*units*: tensor cores, special functions, arithmetic (which is issue slots), conversions, shuffles, shared memory, copies into channels (TMA, where it does them). Dots and copies go on by
themselves once issued; a stream stands still at an `async.await`, at a `get` of a slot that is not there yet, and at a `put` into a slot that is not free yet. What
stands between two such places is one *stretch*: the assembler mixes its instructions, so that it takes as long as its busiest unit.

    warpgroup 0   S---------P----------------        S: dot issued, P: arithmetic
    warpgroup 1        S---------P-----------
    tensor cores  [S 0 ][S 1 ][O 0 ][O 1 ]           steady state: repeats every `interval` clocks

**Interval.** The streams are run for some trips, the one that is behind first, until the state repeats; the interval is the mean of the last trips.

**Bound.** No order of the same operations takes less than the busiest unit's work in a trip, nor than a chain of operations of one warpgroup that each
need the one before, from a value carried into the trip to the same value carried out of it. Where the interval is within a hundredth of that the
schedule is optimal in this model, and said to be; where it is not, the gap is.

Costs are those of machine_costs.py, with what an element takes in instructions from `ELEMENT_COSTS`. What depends on them is speed, never a result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.async_roles import role_of
from ..dialects.layout_attrs import ConvertOp, TVLayoutAttr
from ..dialects.tile import element_type, shape_of
from . import dot_rules
from .access import memory_bytes
from .alloc_shared import renames
from .machine_costs import (
    BARRIER_CLOCKS,
    COPY_BYTES_PER_CLOCK,
    COPY_LATENCY,
    DOT_DRAIN,
    LANES_PER_CLOCK,
)

WARPGROUP_WARPS = 4
SETTLING_TRIPS, MEASURED_TRIPS = 8, 8
PIECES = 8
"""In how many parts a stretch asks for its units, so that two warpgroups that compute at one time share them."""
TENSOR, COPIES = "tensor", "copies"
CLOSE = 1.01
"""Times the bound, up to which an interval counts as optimal: the model is no more exact than that."""

UNITS = (TENSOR, "alu", "sfu", "convert", "shuffle", "shared", COPIES)
NAMES = {
    TENSOR: "tensor cores",
    "alu": "arithmetic",
    "sfu": "special functions",
    "convert": "conversions",
    "shuffle": "shuffles",
    "shared": "shared memory",
    COPIES: "copies",
}

ELEMENT_COSTS: dict[type[Operation], dict[str, float]] = {
    math.Exp2Op: {"sfu": 1},
    math.ExpOp: {"sfu": 1, "alu": 1},
    math.LogOp: {"sfu": 1, "alu": 1},
    math.Log2Op: {"sfu": 1},
    math.RsqrtOp: {"sfu": 1},
    math.SqrtOp: {"sfu": 1, "alu": 8},
    math.TanhOp: {"sfu": 1, "alu": 1},
    math.SinOp: {"sfu": 1, "alu": 8},
    math.CosOp: {"sfu": 1, "alu": 8},
    arith.DivfOp: {"sfu": 1, "alu": 8},
    tile.CastOp: {"convert": 0.5},
    tile.IotaOp: {},
    tile.FullOp: {},
    tile.ExpandOp: {},
    tile.BroadcastOp: {},
    async_copy.TransposeOp: {},
    async_copy.ReadyOp: {},
    async_copy.TokenOp: {},
}
"""Instructions of each unit for one element; any other operation on tiles takes one of arithmetic."""


# ---- what a loop does -----------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Step:
    """One thing that a stream does. `kind`: "stretch" (with `work`: clocks of each unit for one warpgroup), "dot" (`clocks` of the tensor cores
    for one warpgroup), "await", "get", "release", or "put" (`clocks` of the copies). `waits`: the pending tile or token that it waits for.
    `part`: which part of the slot a put fills."""

    kind: str
    ops: list[Operation]
    work: dict[str, float] = field(default_factory=dict)
    clocks: float = 0.0
    channel: SSAValue | None = None
    waits: SSAValue | None = None
    part: int = 0


@dataclass(eq=False, slots=True)
class Busy:
    """A piece of the timeline: `row` (a stream's name or a unit's), from `start` to `end`, in clocks, for `step` of trip `trip`."""

    row: str
    start: float
    end: float
    step: Step
    trip: int


@dataclass(eq=False)
class LoopTiming:
    """The answer for one loop. Clocks are of one multiprocessor, for one trip."""

    loop: scf.ForOp
    steps: list[Step]
    puts: list[Step]
    groups: int
    interval: float
    work: dict[str, float]
    """By unit, of all streams together."""
    chain: float
    """The longest chain through what a trip carries to the next."""
    timeline: list[Busy]
    start: float
    """Where the steady state that `timeline` shows begins."""

    def unit_name(self, unit: str) -> str:
        """What readers call a unit: copies are TMA's, or those that the threads issue."""
        puts = [op for step in (*self.steps, *self.puts) if step.kind == "put" for op in step.ops if isinstance(op, async_copy.PutOp)]
        by_tma = bool(puts) and all(put.via is not None and put.via.data == "tma" for put in puts)
        return "TMA" if unit == COPIES and by_tma else NAMES[unit]

    @property
    def bound(self) -> float:
        return max(self.chain, *self.work.values())

    @property
    def limit(self) -> str:
        """What sets the bound."""
        unit = max(self.work, key=self.work.__getitem__)
        return self.unit_name(unit) if self.work[unit] >= self.chain else "a chain of dependent operations"

    @property
    def optimal(self) -> bool:
        return self.interval <= self.bound * CLOSE


def untimed_loops(module: ModuleOp) -> list[scf.ForOp]:
    """The innermost loops that `time_loops` has nothing to say of."""
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    return [op for op in loops if not _computes(op) and not any(isinstance(inner, scf.ForOp) for inner in op.body.walk())]


def time_loops(module: ModuleOp) -> list[LoopTiming]:
    """The innermost loops of a scheduled module that take tiles from channels or multiply, each timed. Layouts must be known."""
    return [
        time_loop(op)
        for op in module.walk()
        if isinstance(op, scf.ForOp)
        and _computes(op)
        and not any(isinstance(inner, scf.ForOp) and _computes(inner) for inner in op.body.walk())
    ]


def _computes(loop: scf.ForOp) -> bool:
    return any(isinstance(op, async_copy.GetOp | async_copy.DotOp | tile.DotOp) for op in loop.body.walk())


def time_loop(loop: scf.ForOp) -> LoopTiming:
    """Times one loop by running the model."""
    groups = max(1, dot_rules.block_warps(loop) // WARPGROUP_WARPS)
    steps = list(_steps(loop.body.block, groups))
    channels = {step.channel for step in steps if step.kind == "get" and step.channel is not None}
    puts = _puts_elsewhere(loop, channels)
    model = _Model(loop, steps, puts, groups)
    interval = model.run()
    work: dict[str, float] = defaultdict(float)
    for step in steps:
        if step.kind == "dot":
            work[TENSOR] += groups * step.clocks
        for unit, clocks in step.work.items():
            work[unit] += groups * clocks
        if step.kind == "put":
            work[COPIES] += step.clocks
    for step in puts:
        work[COPIES] += step.clocks
    return LoopTiming(
        loop,
        steps,
        puts,
        groups,
        interval,
        dict(work) or {"alu": 1.0},
        _chain(loop, steps),
        model.timeline,
        model.start,
    )


def _steps(block: Block, groups: int) -> Iterator[Step]:
    """The block's operations in order, with neighbours that never wait as one stretch; of a condition what it guards."""
    stretch = Step("stretch", [])
    for op in _flat(block):
        step = _step(op, groups)
        if step.kind == "stretch":
            stretch.ops.append(op)
            for unit, clocks in step.work.items():
                stretch.work[unit] = stretch.work.get(unit, 0.0) + clocks
            continue
        if stretch.work:
            yield stretch
            stretch = Step("stretch", [])
        yield step
    if stretch.work:
        yield stretch


def _flat(block: Block) -> Iterator[Operation]:
    for op in block.ops:
        if isinstance(op, scf.IfOp) and op.true_region.blocks:
            yield from _flat(op.true_region.block)
        elif not isinstance(op, scf.YieldOp):
            yield op


def _step(op: Operation, groups: int) -> Step:
    match op:
        case async_copy.DotOp() | tile.DotOp():
            shape = dot_rules.dot_shape(op)
            rate = shape.kind.macs_per_clock(isinstance(op, async_copy.DotOp))
            clocks = prod(shape.batch) * shape.m * shape.n * shape.k / rate / groups
            return Step("dot", [op], clocks=clocks)
        case async_copy.AwaitOp():
            return Step("await", [op], waits=op.pending)
        case async_copy.GetOp():
            return Step("get", [op], channel=op.channel)
        case async_copy.ReleaseOp():
            return Step("release", [op], channel=op.channel, waits=op.token)
        case async_copy.PutOp():
            tile_bytes = memory_bytes(op.channel.type.element) * prod(op.channel.type.shape)
            return Step("put", [op], clocks=tile_bytes / COPY_BYTES_PER_CLOCK, channel=op.channel)
        case _:
            return Step("stretch", [op], work=_work(op, groups))


def _work(op: Operation, groups: int) -> dict[str, float]:
    """Clocks of each unit that one warpgroup's share of an operation takes, if the unit does nothing else."""
    counted = next((value for value in (*op.results, *op.operands) if isinstance(value.type, TensorType)), None)
    if counted is None or isinstance(op, scf.ForOp | scf.WhileOp):
        return {}
    lanes: dict[str, float]
    if isinstance(op, tile.ReduceOp):
        lanes = {"alu": _held(op.source.type), "shuffle": 2 * _held(op.res.type)}
    elif isinstance(op, tile.ReshapeOp) and renames(op):
        return {}
    elif isinstance(op, ConvertOp | async_copy.ReadOp | async_copy.WriteOp | tile.TransposeOp | tile.ReshapeOp):
        ways = 1 if isinstance(op, async_copy.ReadOp | async_copy.WriteOp) else 2
        lanes = {"shared": ways * _held(counted.type) * memory_bytes(element_type(counted.type)) / 16}
    elif isinstance(op, tile.LoadOp | tile.StoreOp | async_copy.StoreOp):
        lanes = {"shared": _held(counted.type) * memory_bytes(element_type(counted.type)) / 16}
    else:
        lanes = {unit: count * _held(counted.type) for unit, count in ELEMENT_COSTS.get(type(op), {"alu": 1}).items()}
    if "sfu" in lanes:
        lanes["alu"] = (
            lanes.get("alu", 0.0) + lanes["sfu"] / 4
        )  # an issue slot, for a quarter as long as the unit takes
    return {unit: count / LANES_PER_CLOCK[unit] / groups for unit, count in lanes.items() if count}


def _held(kind: TensorType) -> int:
    """Elements that all threads of the block hold of a tile, those that several hold counted as often."""
    if isinstance(kind.encoding, TVLayoutAttr):
        layout = kind.encoding.data
        return layout.num_threads * layout.num_values
    return prod(shape_of(kind))


def _puts_elsewhere(loop: scf.ForOp, channels: set[SSAValue]) -> list[Step]:
    """The puts of another role that fill the channels, in order."""
    found = {
        use.operation: channel
        for channel in channels
        for use in channel.uses
        if isinstance(use.operation, async_copy.PutOp)
        and not role_of(use.operation) == role_of(loop)
    }
    if not found:
        return []
    root = loop
    while (parent := root.parent_op()) is not None:
        root = parent
    return [part for op in root.walk() if op in found for part in _part_steps(_step(op, 1))]


def _parts(channel: SSAValue) -> int:
    return channel.owner.part_count if isinstance(channel.owner, async_copy.ChannelOp) else 1


def _part_steps(step: Step) -> list[Step]:
    """A put, part by part."""
    assert step.channel is not None
    parts = _parts(step.channel)
    return [replace(step, clocks=step.clocks / parts, part=part) for part in range(parts)]


def _issuer(step: Step) -> object:
    """What the puts of one warp of the producer have in common: their channel, or the group in lockstep that it is of."""
    channel = step.channel.owner if step.channel is not None else None
    return channel.lockstep if isinstance(channel, async_copy.ChannelOp) and channel.lockstep is not None else channel


# ---- the bound ------------------------------------------------------------------------------------------------------


def _duration(step: Step) -> float:
    return step.clocks + DOT_DRAIN if step.kind == "dot" else max(step.work.values(), default=0.0)


def _chain(loop: scf.ForOp, steps: list[Step]) -> float:
    """The longest way, in clocks of one warpgroup, from a carried value through operations that each take a result of the one before to the value that
    takes its place. Single operations count, not stretches. A dot that adds to what is pending only follows the tensor cores' order."""
    body = loop.body.block
    groups = max(1, dot_rules.block_warps(loop) // WARPGROUP_WARPS)
    end = body.last_op
    assert end is not None
    longest = 0.0
    for index, argument in enumerate(body.args[1:]):
        reach: dict[SSAValue, float] = {argument: 0.0}
        for op in _flat(body):
            taken = [reach[value] for value in op.operands if value in reach]
            if not taken:
                continue
            step = _step(op, groups)
            clocks = _duration(step)
            if step.kind == "dot" and all(value not in reach for value in op.operands[:2]):
                clocks = step.clocks
            for result in op.results:
                reach[result] = max(taken) + clocks
        longest = max(longest, reach.get(end.operands[index], 0.0))
    return longest


# ---- the model ------------------------------------------------------------------------------------------------------


_Slots = tuple[SSAValue, int]
"""The slots of a channel, or one part of each."""


@dataclass(eq=False)
class _Stream:
    """A warpgroup or a warp of the producer: where it is, and when it gets there."""

    name: str
    steps: list[Step]
    group: int | None = None
    """The warpgroup's number; None of a producer's warp."""
    now: float = 0.0
    at: int = 0
    trip: int = 0
    piece: int = 0
    values: dict[SSAValue, float] = field(default_factory=dict)
    """When pending tiles and tokens are there."""


class _Model:
    """Streams, units and channels; `run` gives the interval."""

    def __init__(self, loop: scf.ForOp, steps: list[Step], puts: list[Step], groups: int) -> None:
        self.loop = loop
        self.groups = groups
        self.free: dict[str, float] = defaultdict(float)
        self.streams = [_Stream(f"warpgroup {index}", steps, index) for index in range(groups)]
        issued: dict[object, list[Step]] = {}
        for step in puts:
            issued.setdefault(_issuer(step), []).append(step)
        self.streams += [_Stream("producer", its) for its in issued.values()]
        self.filled: dict[_Slots, list[float]] = defaultdict(list)
        """When slots, in the order of their filling, hold their data."""
        self.released: dict[_Slots, list[list[float]]] = defaultdict(list)
        """By slot, when each warpgroup gave it back."""
        self.got: dict[tuple[str, SSAValue], int] = defaultdict(int)
        self.gave: dict[tuple[str, SSAValue], int] = defaultdict(int)
        self.put_count: dict[_Slots, int] = defaultdict(int)
        self.ahead = self._ahead(steps, puts)
        self.timeline: list[Busy] = []
        self.start = 0.0

    def _ahead(self, steps: list[Step], puts: list[Step]) -> set[SSAValue]:
        """The channels that nothing of the model fills: what is in them counts as there."""
        filled = {step.channel for step in (*steps, *puts) if step.kind == "put"}
        return {
            step.channel
            for step in steps
            if step.kind == "get" and step.channel is not None and step.channel not in filled
        }

    def run(self) -> float:
        total = SETTLING_TRIPS + MEASURED_TRIPS
        for channel in {step.channel for stream in self.streams for step in stream.steps if step.kind == "put"}:
            assert channel is not None
            if not any(stream.group is None for stream in self.streams):
                # Filled ahead before the loop, by as many slots as stay free of the one in use.
                self.filled[channel, 0] = [0.0] * (self._depth(channel) - 1)
                self.put_count[channel, 0] = len(self.filled[channel, 0])
        ends: list[float] = []
        while True:
            running = [stream for stream in self.streams if stream.group is None or stream.trip < total]
            if all(stream.group is None for stream in running):
                break
            moved = False
            for stream in sorted(running, key=lambda stream: stream.now):
                before = stream.trip
                if self._advance(stream):
                    moved = True
                    if stream.name == "warpgroup 0" and stream.trip > before:
                        ends.append(stream.now)
                    break
            if not moved:
                break  # a loop that the model cannot follow: what it waits for is not among its streams
        if len(ends) <= SETTLING_TRIPS:
            return ends[-1] / len(ends) if ends else 0.0
        self.start = ends[-2]
        return (ends[-1] - ends[SETTLING_TRIPS - 1]) / (len(ends) - SETTLING_TRIPS)

    def _own(self, stream: _Stream, channel: SSAValue) -> _Slots:
        """What a warpgroup reads of a channel's slots."""
        return channel, (stream.group or 0) % _parts(channel)

    def _depth(self, channel: SSAValue) -> int:
        owner = channel.owner
        return owner.depth.value.data if isinstance(owner, async_copy.ChannelOp) else 1

    def _advance(self, stream: _Stream) -> bool:
        """Does the stream's next step, or a piece of it; False if it has to wait for another stream first."""
        if not stream.steps:
            return False
        step = stream.steps[stream.at]
        key = (stream.name, step.channel) if step.channel is not None else None
        match step.kind:
            case "stretch":
                self._piece(stream, step)
                if stream.piece:
                    return True
            case "dot":
                op = step.ops[0]
                start = max(stream.now, self.free[TENSOR])
                end = self.free[TENSOR] = start + step.clocks
                self._busy(TENSOR, start, end, step, stream)
                if isinstance(op, tile.DotOp):
                    stream.now = end
                for result in op.results:
                    stream.values[result] = end + DOT_DRAIN
            case "await":
                stream.now = max(stream.now, self._value(stream, step.waits))
            case "get":
                assert key is not None and step.channel is not None
                number = self.got[key]
                if step.channel not in self.ahead:
                    filled = self.filled[self._own(stream, step.channel)]
                    if number >= len(filled):
                        return False
                    stream.now = max(stream.now, filled[number])
                self.got[key] += 1
                stream.now += BARRIER_CLOCKS / PIECES
            case "release":
                assert key is not None and step.channel is not None
                when = max(stream.now, self._value(stream, step.waits))
                stream.now = when
                number, self.gave[key] = self.gave[key], self.gave[key] + 1
                slots = self.released[self._own(stream, step.channel)]
                while len(slots) <= number:
                    slots.append([])
                slots[number].append(when)
            case _:
                if not self._put(stream, step):
                    return False
        stream.at += 1
        if stream.at == len(stream.steps):
            stream.at, stream.trip = 0, stream.trip + 1
            self._carry(stream)
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

    def _put(self, stream: _Stream, step: Step) -> bool:
        """In the consumers' own stream the first of them issues it for all; elsewhere the producer does."""
        channel = step.channel
        assert channel is not None
        if stream.group:
            return True
        slots = channel, step.part
        number = self.put_count[slots]
        when = stream.now
        if (over := number - self._depth(channel)) >= 0:
            released = self.released[slots]
            if over >= len(released) or len(released[over]) < self.groups // _parts(channel):
                if stream.group is None:
                    return False
            else:
                when = max(when, *released[over])
        self.put_count[slots] += 1
        put = step.ops[0]
        assert isinstance(put, async_copy.PutOp)
        start = max(when, self.free[COPIES])
        self.free[COPIES] = start + step.clocks
        self._busy(COPIES, start, self.free[COPIES], step, stream)
        latency = COPY_LATENCY.get(put.via.data if put.via is not None else "", 0)
        self.filled[slots].append(self.free[COPIES] + latency)
        if stream.group is None:
            stream.now = when
        return True

    def _value(self, stream: _Stream, value: SSAValue | None) -> float:
        """When an event is past; what came before the loop is."""
        return stream.values.get(value, 0.0) if value is not None else 0.0

    def _carry(self, stream: _Stream) -> None:
        """What the trip hands on, at the names under which the next one finds it."""
        body = self.loop.body.block
        end = body.last_op
        assert end is not None
        handed = {argument: stream.values.get(value, 0.0) for argument, value in zip(body.args[1:], end.operands)}
        stream.values.update(handed)

    def _busy(self, row: str, start: float, end: float, step: Step, stream: _Stream) -> None:
        self.timeline.append(Busy(row, start, end, step, stream.trip))
