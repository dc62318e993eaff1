"""How long a trip of a scheduled loop takes, what limits it, and how far it is from the best that any order could reach.

The loop's operations become the steps of a *body* (loop_model.py): what stands between two places where a stream may wait is one stretch, since the assembler mixes
its instructions.

    warpgroup 0   S---------P----------------        S: dot issued, P: arithmetic
    warpgroup 1        S---------P-----------
    tensor cores  [S 0 ][S 1 ][O 0 ][O 1 ]           steady state: repeats every `interval` clocks

**Bound.** No order of the same operations takes less than the busiest unit's work in a trip, nor than a chain of operations of one warpgroup that each
need the one before, from a value carried into the trip to the same value carried out of it. Where the interval is within a hundredth of that the
schedule is optimal in this model, and said to be; where it is not, the gap is.

Costs are those of machine_costs.py, with what an element takes in instructions from `ELEMENT_COSTS`. What depends on them is speed, never a result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.async_roles import role_of
from ..dialects.inside import inside
from ..dialects.layout_attrs import ConvertOp, TVLayoutAttr
from ..dialects.tile import element_type, shape_of
from . import dot_rules
from .access import memory_bytes
from .alloc_shared import renames
from .gathers import gather_of
from .loop_model import COPIES, TENSOR, Body, Busy, Model, Step, merged
from .machine_costs import COPY_BYTES_PER_CLOCK, DOT_DRAIN, LANES_PER_CLOCK, USUAL_COPY_LATENCY

WARPGROUP_WARPS = 4
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


@dataclass(eq=False)
class LoopTiming:
    """The answer for one loop. Clocks are of one multiprocessor, for one trip."""

    loop: scf.ForOp
    body: Body
    interval: float
    work: dict[str, float]
    """By unit, of all streams together."""
    chain: float
    """The longest chain through what a trip carries to the next."""
    timeline: list[Busy]
    start: float
    """Where the steady state that `timeline` shows begins."""

    @property
    def steps(self) -> list[Step]:
        return self.body.steps

    @property
    def puts(self) -> list[Step]:
        return self.body.puts

    @property
    def groups(self) -> int:
        return self.body.groups

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
    loops = inside(module, scf.ForOp)
    return [op for op in loops if not computes(op) and not inside(op.body, scf.ForOp)]


def time_loops(module: ModuleOp) -> list[LoopTiming]:
    """The innermost loops of a scheduled module that take tiles from channels or multiply, each timed. Layouts must be known."""
    return [
        time_loop(op)
        for op in module.walk()
        if isinstance(op, scf.ForOp)
        and computes(op)
        and not any(isinstance(inner, scf.ForOp) and computes(inner) for inner in op.body.walk())
    ]


def computes(loop: scf.ForOp) -> bool:
    """Whether a loop takes tiles from channels or multiplies, itself or in what is inside."""
    return bool(inside(loop.body, async_copy.GetOp, async_copy.DotOp, tile.DotOp))


def time_loop(loop: scf.ForOp) -> LoopTiming:
    """Times one loop by running the model."""
    body = body_of(loop)
    model = Model(body)
    interval = model.run()
    return LoopTiming(loop, body, interval, body.work(), longest_chain(loop), model.timeline, model.start)


def warpgroups(loop: Operation) -> int:
    """Consumer warpgroups that do a loop, at least one."""
    return max(1, dot_rules.block_warps(loop) // WARPGROUP_WARPS)


def body_of(loop: scf.ForOp) -> Body:
    """One trip of a loop as it stands."""
    groups = warpgroups(loop)
    steps = merged(steps_of(loop.body.block, groups))
    channels = {step.channel for step in steps if step.kind == "get"}
    puts = puts_elsewhere(loop, channels)
    end = loop.body.block.last_op
    assert end is not None
    carried = list(zip(end.operands, loop.body.block.args[1:]))
    slots = {channel: slots_of(channel) for channel in dict.fromkeys(step.channel for step in (*steps, *puts)) if channel is not None}
    return Body(steps, puts, groups, slots, carried, parts={channel: parts_of(channel) for channel in slots})


def slots_of(channel: object) -> int:
    """The slots of a channel, as they are."""
    owner = channel.owner if isinstance(channel, SSAValue) else None
    return owner.depth.value.data if isinstance(owner, async_copy.ChannelOp) else 1


def parts_of(channel: object) -> int:
    """In how many parts a channel's slots are filled and given back, as they are."""
    owner = channel.owner if isinstance(channel, SSAValue) else None
    return owner.part_count if isinstance(owner, async_copy.ChannelOp) else 1


def steps_of(block: Block, groups: int) -> list[Step]:
    """The block's operations in order, a step each; of a condition what it guards."""
    return [_step(op, groups) for op in _flat(block)]


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
            return Step("dot", [op], clocks=clocks, gives=tuple(op.results), blocks=isinstance(op, tile.DotOp))
        case async_copy.AwaitOp():
            return Step("await", [op], waits=op.pending)
        case async_copy.GetOp():
            return Step("get", [op], channel=op.channel)
        case async_copy.ReleaseOp():
            return Step("release", [op], channel=op.channel, waits=op.token)
        case async_copy.PutOp():
            tile_bytes = memory_bytes(op.channel.type.element) * prod(op.channel.type.shape)
            latency = USUAL_COPY_LATENCY.get(op.via.data if op.via is not None else "", 0)
            return Step("put", [op], clocks=tile_bytes / COPY_BYTES_PER_CLOCK, channel=op.channel, latency=latency)
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
    elif isinstance(op, tile.GatherOp):
        lanes = _gathered(op)
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


def _gathered(op: tile.GatherOp) -> dict[str, float]:
    """Of a gather: each element is chosen, and asked for, as often as its lane has values on its line; or it is written, and read, by itself."""
    kind = op.source.type
    plan = gather_of(op) if isinstance(kind, TensorType) and isinstance(kind.encoding, TVLayoutAttr) else None
    if plan is None or plan.shuffles is None:
        return {"shared": (_held(kind) + _held(op.res.type)) / 4}
    each = len(plan.shuffles.picks[0]) * _held(op.res.type)
    return {"alu": each, "shuffle": each} if plan.shuffles.lanes else {"alu": each}


def _held(kind: Attribute) -> int:
    """Elements that all threads of the block hold of a tile, those that several hold counted as often; 1 of a scalar."""
    if isinstance(kind, TensorType) and isinstance(kind.encoding, TVLayoutAttr):
        layout = kind.encoding.data
        return layout.num_threads * layout.num_values
    return prod(shape_of(kind))


def puts_elsewhere(loop: scf.ForOp, channels: set[Hashable], parts: Callable[[object], int] = parts_of) -> list[Step]:
    """The puts of another role that fill the channels, in order. `parts`: in how many parts each is filled."""
    found = {
        use.operation: channel
        for channel in channels
        if isinstance(channel, SSAValue)
        for use in channel.uses
        if isinstance(use.operation, async_copy.PutOp)
        and not role_of(use.operation) == role_of(loop)
    }
    if not found:
        return []
    root = loop
    while (parent := root.parent_op()) is not None:
        root = parent
    return [part for op in root.walk() if op in found for part in _parts(_step(op, 1), parts(found[op]))]


def _parts(step: Step, count: int) -> list[Step]:
    """A put of another role, part by part."""
    channel = step.channel.owner if isinstance(step.channel, SSAValue) else None
    lockstep = channel.lockstep if isinstance(channel, async_copy.ChannelOp) else None
    return [replace(step, clocks=step.clocks / count, part=part, issuer=lockstep or step.channel) for part in range(count)]


# ---- the bound ------------------------------------------------------------------------------------------------------


def _duration(step: Step) -> float:
    return step.clocks + DOT_DRAIN if step.kind == "dot" else max(step.work.values(), default=0.0)


def longest_chain(loop: scf.ForOp) -> float:
    """The longest way, in clocks of one warpgroup, from a carried value through operations that each take a result of the one before to the value that
    takes its place. Single operations count, not stretches. A dot that adds to what is pending only follows the tensor cores' order."""
    body = loop.body.block
    groups = warpgroups(loop)
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
