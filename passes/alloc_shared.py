"""alloc-shared: where each channel's buffers and mbarriers lie in the block's shared memory.

A channel has `depth` buffers, one after another, each at a multiple of what its layout's swizzle wants (the hardware swizzles addresses,
so the pattern must start where the buffer does). A channel that TMA fills has an mbarrier of 8 bytes for each buffer, which counts
its bytes (PTX ISA 9.0 §9.7.13.15); one between roles has a second for each, on which its readers arrive; where buffers have parts, each part has its own. Channels with the widest alignment come first, the mbarriers last, so that nothing is lost between.
Channels in lockstep have one set of mbarriers, and slot n of one lies beside slot n of the others, %a 0, %b 0, %a 1, %b 1, …, unless their alignment would
leave gaps.

Where the channels do not fit, those that are never in use at one time become one first (`share_channels`).
Sets `offset` and `barrier` of the channels, and the attribute `shared` of the kernel: the bytes used so far. Where they are more than a
block can have, the error lists every buffer and says how many stages would fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation, Region

from ..dialects import async_copy, tile
from ..dialects.diagnostics import Diagnostic, TeselaError, nearest_location, value_name
from ..dialects.inside import inside, kernels_in
from ..dialects.layout import TVLayout
from ..dialects.layout_attrs import ConvertOp, SharedLayoutAttr, TVLayoutAttr
from ..dialects.target import Target
from ..dialects.tile import element_type, shape_of
from ..dialects.tile_kernel import kernel_of
from .access import memory_bytes
from .base import Pass, PassContext
from .conversions import conversion_of
from .dot_rules import round_up
from .gathers import gather_of
from .join_channels import lockstep_group
from .scan_layouts import scan_scratch
from .share_channels import share_channels

MBARRIER_BYTES = 8
SCRATCH_ALIGNMENT = 128
"""A pass over the banks, so that the banks of an exchange are those of its offsets."""
WARP_THREADS = 32


@dataclass(frozen=True, slots=True)
class _Ring:
    """A channel's needs: bytes of one buffer (rounded up to `alignment`), and mbarriers for each buffer, of all its parts."""

    op: async_copy.ChannelOp
    slot_bytes: int
    alignment: int
    barriers: int

    @property
    def depth(self) -> int:
        return self.op.depth.value.data

    def bytes(self, depth: int) -> int:
        return depth * (self.slot_bytes + self.barriers * MBARRIER_BYTES)


@dataclass
class AllocShared(Pass):
    """Place the buffers and mbarriers of channels in shared memory."""

    name: ClassVar[str] = "alloc-shared"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            channels = inside(kernel, async_copy.ChannelOp)
            rings = [_ring(op) for op in channels]
            if _total_bytes(rings) + scratch_bound(kernel) > target.max_shared_bytes:
                for channel in channels:
                    if not channel.joins_roles():  # what one role fills and takes can rather be one ring with others than in step with them
                        channel.properties.pop("lockstep", None)
                rings = [_ring(op) for op in share_channels(kernel, channels)]
            _place(kernel, rings, target)


def shared_table(kernel: tile.KernelOp, target: Target, shared_bytes: int) -> list[str]:
    """Where the `shared_bytes` of a block went, of a kernel whose channels are placed: its buffers, a line each, what threads exchange through, the total, the
    limit and how many stages would fit; empty where there are none."""
    rings = [_ring(op) for op in inside(kernel, async_copy.ChannelOp)]
    stated = kernel.attributes.get("shared")
    placed = stated.value.data if isinstance(stated, IntegerAttr) else 0
    rows = [(_ring_name(ring), _ring_text(ring)) for ring in rings]
    if barriers := _total_bytes(rings) - sum(ring.slot_bytes * ring.depth for ring in rings):
        rows.append(("mbarriers", f"{barriers} bytes"))
    if shared_bytes > placed:
        rows.append(("exchanges", f"{shared_bytes - placed} bytes"))
    if not rows:
        return []
    fitting = f"; {most_stages(rings, target.max_shared_bytes - shared_bytes + placed)} stages of each would fit" if rings else ""
    rows.append(("total", f"{shared_bytes} of {target.max_shared_bytes} bytes{fitting}"))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def most_stages(rings: Sequence[_Ring], room: int) -> int:
    """The largest depth that all channels could have in `room` bytes."""
    depth = 0
    while depth < MOST_STAGES and _total_bytes(rings, depth + 1) <= room:
        depth += 1
    return depth


def _total_bytes(rings: Sequence[_Ring], depth: int | None = None) -> int:
    """Bytes of all rings, at this depth or each at its own; those in lockstep have one set of mbarriers."""
    buffers = sum(ring.slot_bytes * (depth or ring.depth) for ring in rings)
    return buffers + sum(MBARRIER_BYTES * group[0].barriers * (depth or group[0].depth) for group in _in_groups(rings))


MOST_STAGES = 64
"""Where counting how many stages fit ends."""


def _ring_name(ring: _Ring) -> str:
    return value_name(ring.op.res)


def _ring_text(ring: _Ring) -> str:
    tile_text = f"{'x'.join(map(str, ring.op.res.type.shape))}x{ring.op.res.type.element}"
    return f"{tile_text}, {ring.slot_bytes} bytes × {ring.depth} stages = {ring.slot_bytes * ring.depth} bytes"


def slot_bytes(channel: async_copy.ChannelOp) -> int:
    """Bytes of one buffer of the channel. Raises TeselaError where the channel has no layout."""
    return _ring(channel).slot_bytes


def slot_stride(channel: async_copy.ChannelOp) -> int:
    """Bytes from one buffer of the channel to the next: in a lockstep group those of the others lie between. Raises TeselaError where the
    channel has no layout."""
    group = [_ring(op) for op in lockstep_group(channel)]
    return sum(ring.slot_bytes for ring in group) if _lie_together(group) else _ring(channel).slot_bytes


def _lie_together(group: Sequence[_Ring]) -> bool:
    """Whether slots of a lockstep group can lie side by side, without gaps."""
    return sum(ring.slot_bytes for ring in group) % max(ring.alignment for ring in group) == 0


def ring_bytes(channel: async_copy.ChannelOp, depth: int) -> int:
    """Bytes that a channel of `depth` buffers takes, mbarriers included. Raises TeselaError where it has no layout."""
    return _ring(channel).bytes(depth)


def scratch_bound(kernel: tile.KernelOp) -> int:
    """Bytes, at most, of the region through which threads exchange elements: whole tiles where layouts change, a part of the result from
    each warp where a reduction crosses warps. Of a kernel with roles the sum of theirs. Layouts must be known."""
    roles = next((op for op in kernel.body.block.ops if isinstance(op, async_copy.RolesOp)), None)
    bound = region_scratch(kernel.body) if roles is None else sum(region_scratch(body) for body in roles.bodies)
    return bound + SCRATCH_ALIGNMENT if bound else 0  # it starts at a multiple of that, somewhere behind the channels


def region_scratch(region: Region) -> int:
    """`scratch_bound` of what a region holds."""
    bound = 0
    for op in region.walk():
        if isinstance(op, ConvertOp | tile.TransposeOp | tile.ReshapeOp) and not renames(op):
            bound = max(bound, memory_bytes(element_type(op.operands[0].type)) * prod(shape_of(op.operands[0].type)))
        elif isinstance(op, tile.GatherOp):
            if gather_of(op).by == "shared":
                bound = max(bound, memory_bytes(element_type(op.source.type)) * prod(shape_of(op.source.type)))
        elif isinstance(op, tile.AtomicOp | tile.HistogramOp):
            bound = max(bound, memory_bytes(element_type(op.res.type)) * prod(shape_of(op.res.type)))
        elif isinstance(op, tile.ScanOp | tile.FoldOp):
            bound = max(bound, scan_scratch(op))
        elif isinstance(op, tile.SumPartsOp) and tile.cluster_shape(kernel_of(op)) is not None:
            bound = max(bound, sum(parts_bytes(value.type.encoding.data) for value in op.tiles if isinstance(value.type.encoding, TVLayoutAttr)))
        elif isinstance(op, tile.PrintOp | tile.AssertOp):
            bound = max(bound, SCRATCH_ALIGNMENT)
        elif isinstance(op, tile.ReduceOp) and isinstance(encoding := op.source.type.encoding, TVLayoutAttr):
            axis = op.axis.value.data
            ways = _warps_along(encoding.data, axis)
            if ways > 1:
                held = prod(extent for dim, extent in enumerate(encoding.data.shape()) if dim != axis)
                bound = max(bound, ways * held * LARGEST_PARTS)
    return round_up(bound, SCRATCH_ALIGNMENT)


PARTS_VECTOR = 4
"""Registers of a thread that are written together where parts of a sum are exchanged: 16 bytes."""


def parts_bytes(layout: TVLayout) -> int:
    """Bytes that the threads' registers of a tile take there; narrower vectors leave gaps, so that a thread's place is the same for all."""
    return -(-layout.num_values // PARTS_VECTOR) * PARTS_VECTOR * 4 * layout.num_threads


def renames(op: Operation) -> bool:
    """Whether a reshape leaves every element with the thread that has it, or a conversion on any target does without shared memory."""
    if isinstance(op, ConvertOp):
        return all(conversion_of(op, stmatrix).by != "shared" for stmatrix in (False, True))
    if not isinstance(op, tile.ReshapeOp):
        return False
    before, after = op.source.type, op.res.type
    if not isinstance(before.encoding, TVLayoutAttr) or not isinstance(after.encoding, TVLayoutAttr):
        return False
    through = before.encoding.data.reshape(shape_of(before), shape_of(after))
    return through is not None and through.normalized() == after.encoding.data.normalized()


LARGEST_PARTS = 16
"""Bytes of one element on its way through a reduction, at most: a value and an index of eight each."""


def _warps_along(layout: TVLayout, axis: int) -> int:
    """Over how many warps (or more) the layout spreads a dimension."""
    ways = weight = 1
    for mode in layout.thread:
        weight *= mode.extent
        if mode.stride[axis] and weight > WARP_THREADS:
            ways *= mode.extent
    return ways


def _ring(channel: async_copy.ChannelOp) -> _Ring:
    kind = channel.res.type
    if not isinstance(kind.layout, SharedLayoutAttr):
        raise TeselaError.at(channel, f"{kind} has no layout", "run infer-layouts before alloc-shared")
    layout = kind.layout.data
    element_bytes = kind.element.size
    alignment = layout.alignment(element_bytes)
    puts = [use.operation for use in channel.res.uses if isinstance(use.operation, async_copy.PutOp)]
    barriers = int(channel.joins_roles() or any(put.via is not None and put.via.data == "tma" for put in puts)) + int(channel.joins_roles())
    return _Ring(channel, round_up(layout.size() * element_bytes, alignment), alignment, barriers * channel.part_count)


def _place(kernel: tile.KernelOp, rings: Sequence[_Ring], target: Target) -> None:
    total = _total_bytes(rings)
    if total > target.max_shared_bytes:
        raise _too_much(kernel, rings, total, target)
    at = 0
    # Whatever lies in one piece is a multiple of its alignment, so that what needs less of it may follow without a gap.
    pieces: list[list[_Ring]] = []
    for group in _in_groups(sorted(rings, key=lambda ring: -ring.alignment)):
        pieces += [group] if _lie_together(group) else [[ring] for ring in group]
    for piece in sorted(pieces, key=lambda piece: -piece[0].alignment):
        start = at
        for ring in piece:
            assert start % ring.alignment == 0, "the hardware swizzles addresses"
            ring.op.properties["offset"] = IntegerAttr(start, i64)
            start += ring.slot_bytes
        at += sum(ring.slot_bytes * ring.depth for ring in piece)
    for group in _in_groups(rings):
        if group[0].barriers:
            for ring in group:
                ring.op.properties["barrier"] = IntegerAttr(at, i64)
            at += MBARRIER_BYTES * group[0].barriers * group[0].depth
    kernel.attributes["shared"] = IntegerAttr(at, i64)


def _in_groups(rings: Sequence[_Ring]) -> list[list[_Ring]]:
    """The rings with those that are in lockstep with them, groups and members in the order given."""
    groups: dict[object, list[_Ring]] = {}
    for ring in rings:
        groups.setdefault(ring.op if ring.op.lockstep is None else (ring.op.parent, ring.op.lockstep), []).append(ring)
    return list(groups.values())


def _too_much(kernel: tile.KernelOp, rings: Sequence[_Ring], total: int, target: Target) -> TeselaError:
    notes = []
    for ring in rings:
        notes.append(Diagnostic("note", f"{_ring_name(ring)}: {_ring_text(ring)}", nearest_location(ring.op)))
    if barriers := total - sum(ring.slot_bytes * ring.depth for ring in rings):
        notes.append(Diagnostic("note", f"mbarriers: {barriers} bytes", nearest_location(kernel)))

    def needed(depth: int) -> int:
        return sum(ring.bytes(min(depth, ring.depth)) for ring in rings)  # at most

    deepest = max((ring.depth for ring in rings), default=1)
    fitting = bisect_right(range(1, deepest + 1), target.max_shared_bytes, key=needed)
    stated = next((op.attributes["stages"] for op in (kernel, *inside(kernel, scf.ForOp)) if "stages" in op.attributes), None)
    pinned = f"stages = {stated.value.data} is stated, and " if isinstance(stated, IntegerAttr) else ""
    hint = f"{pinned}at most {fitting} stages fit" if fitting else "not even one stage fits: make the tiles smaller"
    return TeselaError.at(
        kernel,
        f"the buffers take {total} bytes of shared memory, a block of {target.name} can have {target.max_shared_bytes}",
        hint,
        notes,
    )
