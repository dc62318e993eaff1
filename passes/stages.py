"""How many slots the channels of loops get: as many as the latency of their copies asks for, and as shared memory allows. A part of `pipeline-loops`.

A loop that loads D trips ahead waits, in each trip, for what of a copy's latency D trips do not cover:

    stall = trips · max(0, latency - D · clocks of a trip)

with a clock count from the trip's dots and copies (machine_costs.py), and a guess of the trips where they are not known. A loop inside another
one runs, and stalls, as often as the outer one has trips; but a trip of the outer one takes as long as all of the inner one. So the tile that an outer loop
loads needs one slot to spare at most, and where memory is short it gives that up before the inner loop waits.

Each loop begins with as many stages as leave no stall, and one to spare where trips are short beside the latency, which varies. While the buffers do not
fit, the stage goes whose loss costs the fewest clocks for a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import TYPE_CHECKING

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from ..dialects import async_copy, pins, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.inside import inside
from ..dialects.target import Target
from . import dot_rules
from .alloc_shared import ring_bytes, scratch_bound
from .machine_costs import COPY_BYTES_PER_CLOCK, COPY_LATENCY

if TYPE_CHECKING:
    from .pipeline_loops import Loop

MOST_STAGES = 8
"""The deepest pipeline that is chosen without being asked for."""
USUAL_TRIPS = 8
"""How many trips a loop is taken to have where its bounds are not known."""
LONG_TRIP = 4
"""A trip of as many latencies hides the last part of a copy that comes late, without a slot to spare."""


def choose_stages(kernel: tile.KernelOp, loops: Sequence[Loop], stated: int | None, target: Target) -> None:
    """Sets `stages` of each loop: as stated, or what its latency asks for, as far as shared memory allows."""
    free: list[Loop] = []
    for loop in loops:
        wanted = _stated_depth(loop) or stated or _stated_stages(loop.op) or _stated_stages(kernel)
        if wanted is None:
            free.append(loop)
        loop.stages = _limit(loop, wanted or _useful_stages(loop))
    rings = {ring.channel for loop in loops for ring in loop.rings}
    others = [op for op in inside(kernel, async_copy.ChannelOp) if op not in rings]
    room = target.max_shared_bytes - scratch_bound(kernel) - sum(ring_bytes(op, op.depth.value.data) for op in others)
    while sum(loop.bytes(loop.stages) for loop in loops) > room:
        shallower = [loop for loop in free if loop.stages > 1]
        if not shallower:
            break
        cheapest = min(shallower, key=lambda loop: (_loss(loop), -loop.stages, -loop.bytes(1)))
        cheapest.stages -= 1


def _stated_depth(loop: Loop) -> int | None:
    """The least depth that the author has given channels of the loop, if any."""
    return min((ring.channel.depth.value.data for ring in loop.rings if pins.DEPTH in ring.channel.attributes), default=None)


def _stated_stages(op: Operation) -> int | None:
    stated = op.attributes.get("stages")
    if stated is None:
        return None
    if not isinstance(stated, IntegerAttr) or stated.value.data < 1:
        raise TeselaError.at(op, f"stages must be a positive number, found {stated}", "write {stages = 3 : i64}")
    return stated.value.data


def _limit(loop: Loop, stages: int) -> int:
    """No more stages than trips, and one where nothing would be gained."""
    trips = trip_count(loop.op)
    if all(ring.elsewhere for ring in loop.rings):
        return stages  # another role goes on to the next loop
    if all(ring.stays is not None for ring in loop.rings):
        stages = min(stages, 2) if loop.chains else 1
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


def _latency(loop: Loop) -> int:
    return max((COPY_LATENCY[ring.via] for ring in loop.rings if ring.stays is None), default=0)


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


def _useful_stages(loop: Loop) -> int:
    """As many trips as pass while a copy is under way, and the slot that is being read; one to spare, unless a trip is long."""
    latency, clocks = _latency(loop), _trip_clocks(loop)
    spare = 1 if clocks < LONG_TRIP * latency else 0
    return min(MOST_STAGES, ceil(latency / clocks) + 1 + spare)


def _stall(loop: Loop, stages: int) -> float:
    """Clocks that the whole kernel waits for the loop's copies, about."""
    runs, op = _trips(loop.op), loop.op.parent_op()
    while op is not None:
        runs *= _trips(op)
        op = op.parent_op()
    return runs * max(0.0, _latency(loop) - (stages - 1) * _trip_clocks(loop))


def _loss(loop: Loop) -> float:
    """Clocks lost for each byte saved by one stage less."""
    saved = loop.bytes(loop.stages) - loop.bytes(loop.stages - 1)
    return (_stall(loop, loop.stages - 1) - _stall(loop, loop.stages)) / max(1, saved)


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
