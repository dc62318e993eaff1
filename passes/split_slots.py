"""split-slots: warpgroups wait for their own rows of a tile, and give them back, by themselves.

A tile that dots read is read whole by every warpgroup. One that is read into registers is not: of a tile that is added to a dot's result, or that is a
left operand, each warpgroup reads the rows that it computes. With one pair of mbarriers for the slot, none can go on before the rows of all have come, and the slot
is filled again when the last has read its own. Warpgroups take turns at the tensor cores, so that one is half a trip ahead of the other; a slot that both must give back
costs half a trip of the time in which the next tile can come, or brings them into step. So the slot is split:

    %b = async.channel depth 1            part 0: rows 0 … 63,    filled for warpgroup 0, and given back by it
    128x128, two warpgroups        →      part 1: rows 64 … 127,  filled for warpgroup 1, and given back by it

Each part of each slot has its own pair of mbarriers, and a put is a copy for each part, which waits for that part only. Order, slots and values are those of
the channel as it was: number n of a part goes with number n of the others.

**Which.** Channels between roles, filled by TMA and not by multicast, of which all readers are reads into registers, in layouts that give warpgroup w the w-th part
of the slowest dimension, where boxes can be cut (whole periods of the swizzle). The kernel's attribute `split_slots = false` rules it out, as the
pass's option `when=never` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, i64

from ..dialects import async_copy
from ..dialects.async_roles import WARP_THREADS, WARPGROUP_WARPS
from ..dialects.inside import inside, kernels_in
from ..dialects.layout import LayoutError, TVLayout, split_modes
from ..dialects.layout_attrs import SharedLayoutAttr, TVLayoutAttr
from ..dialects.tile_kernel import kernel_of
from . import dot_rules
from .access import memory_bytes
from .base import Pass, PassContext
from .box_parts import Part, cut_boxes
from .specialize_warps import stated


@dataclass
class SplitSlots(Pass):
    """Split the slots of channels by the warpgroups that read them. `when`: wherever it is possible, or not at all."""

    name: ClassVar[str] = "split-slots"
    when: Literal["auto", "never"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in kernels_in(module):
            for channel in inside(kernel, async_copy.ChannelOp) if self.when == "auto" else ():
                if channel.parts is None and (groups := parts_of(channel)) > 1:
                    channel.properties["parts"] = IntegerAttr(groups, i64)


def parts_of(channel: async_copy.ChannelOp) -> int:
    """In how many parts the slots of a channel will be filled."""
    return 1 if stated(kernel_of(channel), "split_slots") is False else warpgroups_apart(channel)


def warpgroups_apart(channel: async_copy.ChannelOp) -> int:
    """How many warpgroups read a part of each slot that no other reads; 1 where they do not."""
    kind, takers = channel.res.type, channel.takers()
    if channel.lockstep is not None or not takers or not channel.joins_roles() or not isinstance(kind.layout, SharedLayoutAttr):
        return 1
    groups, left = divmod(dot_rules.block_warps(takers[0]), WARPGROUP_WARPS)
    if left or groups < 2:
        return 1
    for fill in channel.fills():
        if not isinstance(fill, async_copy.PutOp) or fill.via is None or fill.via.data != "tma" or fill.multicast is not None:
            return 1
    part = cut_boxes(kind.layout.data, memory_bytes(kind.element), groups)
    if part is None or part.extent * groups != kind.shape[part.dim]:
        return 1
    for reader, _, dims in dot_rules.buffer_readers(channel.res):
        if not isinstance(reader, async_copy.ReadOp) or not isinstance(reader.res.type, TensorType):
            return 1
        encoding = reader.res.type.encoding
        if not isinstance(encoding, TVLayoutAttr) or not _reads_its_part(encoding.data, dims.index(part.dim), part, groups):
            return 1
    return groups


def _reads_its_part(layout: TVLayout, dim: int, part: Part, groups: int) -> bool:
    """Whether warpgroup w holds elements of the w-th part along `dim` only."""
    try:
        inside, across = split_modes(layout.thread, WARP_THREADS * WARPGROUP_WARPS)
    except LayoutError:
        return False
    weight = 1
    for mode in across:
        if mode.extent > 1 and mode.stride[dim] != weight * part.extent:
            return False
        weight *= mode.extent
    return weight == groups and TVLayout(inside, layout.value).shape()[dim] <= part.extent
