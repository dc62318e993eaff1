"""How long loops take, about, by counting: trips, dots and copies, in clocks of one multiprocessor. What `schedule_problem` and `form-clusters` ask.

A loop inside another one runs as often as the outer one has trips; where bounds are not known, a guess stands for them. A trip takes at least as long as its dots,
or its copies where they take longer (machine_costs.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from ..dialects import async_copy, pins, tile
from ..dialects.diagnostics import TeselaError
from . import dot_rules
from .alloc_shared import ring_bytes
from .machine_costs import COPY_BYTES_PER_CLOCK, COPY_LATENCY, THREADS_LATENCY

if TYPE_CHECKING:
    from .pipeline_loops import Loop

MOST_STAGES = 8
"""The deepest pipeline that is chosen without being asked for."""
USUAL_TRIPS = 8
"""How many trips a loop is taken to have where its bounds are not known."""
LONG_TRIP = 4
"""A trip of as many latencies hides the last part of a copy that comes late, without a slot to spare."""


def stated_depth(loop: Loop) -> int | None:
    """The least depth that the author has given channels of the loop, if any."""
    return min((ring.channel.depth.value.data for ring in loop.rings if pins.DEPTH in ring.channel.attributes), default=None)


def stated_stages(op: Operation) -> int | None:
    """The slots that a loop's or a kernel's attribute `stages` states. Raises TeselaError for what is no positive number."""
    stated = op.attributes.get("stages")
    if stated is None:
        return None
    if not isinstance(stated, IntegerAttr) or stated.value.data < 1:
        raise TeselaError.at(op, f"stages must be a positive number, found {stated}", "write {stages = 3 : i64}, in Python pins={'stages': 3}")
    return stated.value.data


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


def latency(loop: Loop) -> int:
    """Clocks until a copy for the loop's channels has arrived, of the slowest."""
    return max((COPY_LATENCY.get(ring.via, THREADS_LATENCY) for ring in loop.rings if ring.stays is None), default=0)


def trip_clocks(loop: Loop) -> float:
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
            total += trips_of(op) * inside
    return total


def trips_of(op: Operation) -> int:
    """How often what is in an operation's regions runs each time."""
    if isinstance(op, scf.ForOp):
        trips = trip_count(op)
        return USUAL_TRIPS if trips is None else trips
    return USUAL_TRIPS if isinstance(op, scf.WhileOp) else 1


def runs_of(loop: Operation) -> int:
    """How often a loop begins, about, for each time that its kernel does."""
    runs, op = 1, loop.parent_op()
    while op is not None:
        runs *= trips_of(op)
        op = op.parent_op()
    return runs


def bytes_per_clock(puts: Sequence[async_copy.PutOp]) -> float:
    """Bytes that puts load for each clock of the dots in the loops round them, at least as long as the copies take: about, where trips are
    not known. What is loaded outside of loops counts by the point of the grid."""
    loaded = 0.0
    clocks = 1.0
    for put in puts:
        runs, op = 1, put.parent_op()
        while op is not None and not isinstance(op, tile.KernelOp):
            runs *= trips_of(op)
            op = op.parent_op()
        channel = put.channel.owner
        assert isinstance(channel, async_copy.ChannelOp)
        loaded += runs * ring_bytes(channel, 1)
        if op is not None:
            clocks = max(clocks, _clocks(op.body.block))
    return loaded / clocks
