"""How many slots the channels of loops get: as many as the latency of their copies asks for, and as shared memory allows. A part of `pipeline-loops`.

A loop that loads D trips ahead waits, in each trip, for what of a copy's latency D trips do not cover:

    stall = trips · max(0, latency - D · clocks of a trip)

with a clock count from the trip's dots and copies (machine_costs.py), and a guess of the trips where they are not known. A loop inside another
one runs, and stalls, as often as the outer one has trips; but a trip of the outer one takes as long as all of the inner one. So the tile that an outer loop
loads needs one slot to spare at most, and where memory is short it gives that up before the inner loop waits.

**What is decided together.** What a loop's own stream fills ahead has one number of slots: it is filled as many trips ahead. What another role fills is ahead by
itself, each channel by its own slots; only channels that are got at one place have as many as one another, so that they can move in step (join_channels.py).

**How far ahead slots are.** A slot that dots read is in use for a trip: D is one less than the slots. One that is read into registers is free at once, where each warpgroup
gives its part back (split_slots.py), or else when the last has come to it: warpgroups take turns at the tensor cores, so that of G of them the last is (G - 1)/G trips
behind the first.

Each loop begins with as many stages as leave no stall, and one to spare where trips are short beside the latency, which varies. While the buffers do not
fit, the stage goes whose loss costs the fewest clocks for a byte. A loop whose dots overlap one another needs two slots of what they read; where there is
no room for these, nothing of it is overlapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.target import Target
from . import dot_rules
from .alloc_shared import ring_bytes, scratch_bound
from .join_channels import standing_with
from .machine_costs import COPY_BYTES_PER_CLOCK, COPY_LATENCY
from .split_slots import warpgroups_apart

if TYPE_CHECKING:
    from .pipeline_loops import Loop, Ring

MOST_STAGES = 8
"""The deepest pipeline that is chosen without being asked for."""
USUAL_TRIPS = 8
"""How many trips a loop is taken to have where its bounds are not known."""
LONG_TRIP = 4
"""A trip of as many latencies hides the last part of a copy that comes late, without a slot to spare."""


@dataclass(eq=False)
class _Unit:
    """Rings of a loop that have one number of slots, and that number. `fixed`: whether it was asked for."""

    loop: Loop
    rings: list[Ring]
    stages: int = 1
    fixed: bool = False

    @property
    def elsewhere(self) -> bool:
        return self.rings[0].elsewhere

    @property
    def least(self) -> int:
        """Slots without which the loop's dots cannot overlap: the next trip's dot is issued before this trip's has given its slot back."""
        return 2 if not self.elsewhere or any(ring.dots for ring in self.rings) else 1

    def bytes(self, stages: int) -> int:
        return sum(ring_bytes(ring.channel, self.loop.depth(ring, stages)) for ring in self.rings)

    @property
    def latency(self) -> int:
        return max((COPY_LATENCY[ring.via] for ring in self.rings if ring.stays is None), default=0)

    @property
    def busy(self) -> float:
        """For how many trips a slot is in use."""
        if not self.elsewhere or any(ring.dots or ring.read_elsewhere for ring in self.rings):
            return 1.0
        groups = max(1, dot_rules.block_warps(self.rings[0].get) // dot_rules.WARPGROUP_WARPS)
        return 0.0 if all(warpgroups_apart(ring.channel) > 1 for ring in self.rings) else (groups - 1) / groups


def choose_stages(kernel: tile.KernelOp, loops: Sequence[Loop], stated: int | None, target: Target) -> None:
    """Sets `stages` of the rings of each loop: as stated, or what their latency asks for, as far as shared memory allows."""
    units = [unit for loop in loops for unit in _units(loop)]
    for unit in units:
        wanted = stated or _stated_stages(unit.loop.op) or _stated_stages(kernel)
        unit.fixed = wanted is not None
        unit.stages = _limit(unit, wanted or _useful_stages(unit))
    rings = {ring.channel for loop in loops for ring in loop.rings}
    others = [op for op in kernel.walk() if isinstance(op, async_copy.ChannelOp) and op not in rings]
    room = target.max_shared_bytes - scratch_bound(kernel) - sum(ring_bytes(op, op.depth.value.data) for op in others)
    while sum(unit.bytes(unit.stages) for unit in units) > room:
        free = [unit for unit in units if not unit.fixed]
        shallower = [unit for unit in free if unit.stages > unit.least]
        if shallower:
            cheapest = min(shallower, key=lambda unit: (_loss(unit), -unit.stages, -unit.bytes(1)))
            cheapest.stages -= 1
        elif left := [unit for unit in free if unit.stages > 1]:
            cheapest = min(left, key=lambda unit: (_loss(unit), -unit.bytes(1)))
            for unit in free:
                if unit.loop is cheapest.loop:
                    unit.stages = 1
        else:
            break
    for unit in units:
        for ring in unit.rings:
            ring.stages = unit.stages


def _units(loop: Loop) -> list[_Unit]:
    """The rings that the loop's own stream fills, and those that another role does by the places where they are got."""
    own = [ring for ring in loop.rings if not ring.elsewhere]
    places: dict[Operation, list[Ring]] = {}
    for ring in loop.rings:
        if ring.elsewhere:
            places.setdefault(standing_with(ring.get)[0], []).append(ring)
    return [_Unit(loop, rings) for rings in (own, *places.values()) if rings]


def _stated_stages(op: Operation) -> int | None:
    stated = op.attributes.get("stages")
    if stated is None:
        return None
    if not isinstance(stated, IntegerAttr) or stated.value.data < 1:
        raise TeselaError.at(op, f"stages must be a positive number, found {stated}", "write {stages = 3 : i64}")
    return stated.value.data


def _limit(unit: _Unit, stages: int) -> int:
    """No more stages than trips, and one where nothing would be gained."""
    trips = trip_count(unit.loop.op)
    if unit.elsewhere:
        return stages  # another role goes on to the next loop
    if all(ring.stays is not None for ring in unit.rings):
        stages = min(stages, 2) if unit.loop.chains else 1
    return max(1, min(stages, trips)) if trips is not None else stages


def trip_count(loop: scf.ForOp) -> int | None:
    """The number of trips, if the loop's bounds and step are constants."""
    lower, upper, step = (constant_value(value) for value in (loop.lb, loop.ub, loop.step))
    if lower is None or upper is None or step is None or step <= 0:
        return None
    return max(0, -(-(upper - lower) // step))


def constant_value(value: SSAValue) -> int | None:
    """The integer that a value is, where it is a constant."""
    op = value.owner
    return op.value.value.data if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) else None


# ---- clocks ---------------------------------------------------------------------------------------------------------


def _trip_clocks(loop: Loop) -> float:
    """Clocks of one trip, at least: of its dots, or of its copies where they take longer."""
    copies = sum(ring_bytes(ring.channel, 1) for ring in loop.rings) / COPY_BYTES_PER_CLOCK
    return max(1.0, _clocks(loop.op.body.block), copies)


def _clocks(block: Block) -> float:
    """Clocks that the dots of a block take, those of inner loops as often as they run; of two branches the longer one."""
    total = 0.0
    for op in block.ops:
        if isinstance(op, tile.DotOp | async_copy.DotOp):
            shape = dot_rules.dot_shape(op)
            total += prod(shape.batch) * shape.m * shape.n * shape.k / shape.kind.macs_per_clock(isinstance(op, async_copy.DotOp))
        elif op.regions:
            inside = max((_clocks(region.block) for region in op.regions if region.blocks), default=0.0)
            total += _trips(op) * inside
    return total


def _trips(op: Operation) -> int:
    """How often what is in an operation's regions runs each time."""
    if isinstance(op, scf.ForOp):
        trips = trip_count(op)
        return USUAL_TRIPS if trips is None else trips
    return USUAL_TRIPS if isinstance(op, scf.WhileOp) else 1


def _useful_stages(unit: _Unit) -> int:
    """As many trips as pass while a copy is under way, and the slot that is being read; one to spare, unless a trip is long."""
    clocks = _trip_clocks(unit.loop)
    spare = 1 if clocks < LONG_TRIP * unit.latency else 0
    return min(MOST_STAGES, ceil(unit.latency / clocks) + 1 + spare)


def _stall(unit: _Unit, stages: int) -> float:
    """Clocks that the whole kernel waits for the unit's copies, about."""
    runs, op = _trips(unit.loop.op), unit.loop.op.parent_op()
    while op is not None:
        runs *= _trips(op)
        op = op.parent_op()
    return runs * max(0.0, unit.latency - (stages - unit.busy) * _trip_clocks(unit.loop))


def _loss(unit: _Unit) -> float:
    """Clocks lost for each byte saved by one stage less."""
    saved = unit.bytes(unit.stages) - unit.bytes(unit.stages - 1)
    return (_stall(unit, unit.stages - 1) - _stall(unit, unit.stages)) / max(1, saved)


def bytes_per_clock(puts: Sequence[async_copy.PutOp]) -> float:
    """Bytes that puts load for each clock of the dots in the loops round them, at least as long as the copies take: about, where trips are
    not known. What is loaded outside of loops counts by the point of the grid."""
    loaded = 0.0
    clocks = 1.0
    for put in puts:
        runs, op = 1, put.parent_op()
        while op is not None and not isinstance(op, tile.KernelOp):
            runs *= _trips(op)
            op = op.parent_op()
        channel = put.channel.owner
        assert isinstance(channel, async_copy.ChannelOp)
        loaded += runs * ring_bytes(channel, 1)
        if op is not None:
            clocks = max(clocks, _clocks(op.body.block))
    return loaded / clocks
