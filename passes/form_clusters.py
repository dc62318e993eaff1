"""form-clusters: neighbouring points of the grid share what they load, as a cluster of blocks.

In a product, all blocks of a column of the grid load the same tiles of one operand, each for itself. Blocks of a *cluster* run at the same time, side by
side, and TMA can write what it loads into the shared memory of several of them at once (multicast). So n blocks at neighbouring points along an
axis that a load's place does not depend on each load 1/n of its tile and send it to all n:

    async.put %ca, %A[%m, %k] via "tma"          async.put %ca, %A[%m, %k] via "tma"                  each block its own rows of A
    async.put %cb, %B[%n, %k] via "tma"    →     async.put %cb, %B[%n, %k] via "tma" multicast 2      half of the tile of B each, to both
                                                 … attributes {cluster_shape = array<i64: 2, 1>}      points (2i, j) and (2i + 1, j)

What leaves L2 for a 128×256 tile of the result falls from 48 to 32 KB a trip. The price is that the blocks keep step: a slot can be filled when it is free in
all of them, so whoever gives a slot back tells all of them.

**What must hold.** The kernel has roles and walks its grid itself (specialize_warps, persist_grid), which then goes from pair to pair; where the axis has
an odd number of points, the last pair has one point outside of the grid, which loads like any other and stores nothing. So that it
reads nothing that others write, no array that is written may be one that is read. A put by TMA (which rules out that the block
has stored there before: it could not tell the others when) can be shared if

- its place does not depend on the axis: then all blocks ask for the same tile;
- how often it is executed does not either, neither by loop bounds nor by conditions: otherwise one block would wait for a part that nobody sends, so
  causal loops that end at different places are left alone;
- its buffer can be cut into parts that TMA can write: whole periods of the swizzle.

**When.** Where loads ask for more than L2 gives all multiprocessors at once (machine_costs), for each clock of the dots: a product in tiles of 128×256 asks for 48 bytes, and
gets 39. Attention, with tiles of 128 rows, asks for 32 at most, and gains nothing (measured with programs by hand). Along the axis that saves most.
**Parts of one sum.** Blocks that share a point of the grid (split_reduction.py) form a cluster as well, where a cluster holds that many and the kernel has no roles:
they exchange their sums through shared memory, instead of by way of L2 and a counter there.

The kernel's attribute `cluster = N` (as the pass's option, and the pin of `tesela.compile`) states the number of blocks, 1 for none. A note says why
not, where it was asked for and cannot be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, i1, i64
from xdsl.ir import Operation
from xdsl.traits import MemoryWriteEffect

from ..dialects import async_copy, tile
from ..dialects.array_effects import READ, accesses_inside
from ..dialects.diagnostics import TeselaError
from ..dialects.dim_expr import DimExpr
from ..dialects.inside import inside, kernels_in
from ..dialects.layout_attrs import SharedLayoutAttr
from ..dialects.target import Target
from . import dot_rules
from .base import Pass, PassContext
from .box_parts import cut_boxes
from .grid_axes import GridAxes
from .machine_costs import L2_SHARE_BYTES_PER_CLOCK
from .specialize_warps import decide, stated
from .stages import bytes_per_clock

USUAL_CLUSTER = 2
"""Blocks of a cluster that is formed without being asked for: more must be placed on as many multiprocessors that share a part of the chip. (64×4096×14336 in four parts, 128 blocks in clusters of
four, took 52 µs on an H200, as if a second round were needed.)"""
MOST_BLOCKS = 8
"""Of a cluster on every GPU that has them (CUDA C++ Programming Guide, "Thread Block Clusters")."""


@dataclass
class FormClusters(Pass):
    """Let blocks at neighbouring points of the grid share loads. `cluster`: blocks of a cluster; 1 for none."""

    name: ClassVar[str] = "form-clusters"
    cluster: int | None = None

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            wanted = self.cluster if self.cluster is not None else stated_size(kernel)
            if wanted == 1 or tile.cluster_shape(kernel) is not None:
                continue
            _check_size(kernel, wanted)
            if wanted is None and (parts := _parts_together(kernel, target)) is not None:
                kernel.attributes[tile.CLUSTER_SHAPE] = DenseArrayBase.from_list(i64, [*(1 for _ in kernel.grid.data[:-1]), parts])
                continue
            found = _decide(kernel, target, wanted)
            if isinstance(found, Shared):
                shape = [found.blocks if axis == found.axis else 1 for axis in range(len(kernel.grid.data))]
                kernel.attributes[tile.CLUSTER_SHAPE] = DenseArrayBase.from_list(i64, shape)
                for put in found.puts:
                    put.properties["multicast"] = IntegerAttr(found.blocks, i64)
            elif wanted is not None:
                context.emitter.note(kernel, f"no clusters of {wanted} blocks are formed: {found}")


def _parts_together(kernel: tile.KernelOp, target: Target) -> int | None:
    """The parts of a point of the grid, if they are the grid's last axis, their blocks can be a cluster, and these do one point each."""
    sums = next((op for op in kernel.walk() if isinstance(op, tile.SumPartsOp)), None)
    if sums is None or not target.has_clusters or stated(kernel, "persistent") or tile.walks_its_grid(kernel) or decide(kernel, target).puts:
        return None
    parts = sums.parts.value.data
    last = kernel.grid.data[-1].data
    return parts if parts <= USUAL_CLUSTER and last == DimExpr("int", parts) and sums.part is kernel.grid_args[-1] else None


def describe(kernel: tile.KernelOp, target: Target) -> str | None:
    """Which clusters are formed, or why none, in a line; None for a kernel without roles, of which nobody would expect any. Layouts must be known."""
    if stated_size(kernel) is None and (parts := _parts_together(kernel, target)) is not None:
        return f"clusters of {parts} blocks add the parts of a point of the grid"
    if not decide(kernel, target).puts:
        return None
    wanted = stated_size(kernel)
    found = "it is stated so" if wanted == 1 else _decide(kernel, target, wanted)
    if not isinstance(found, Shared):
        return f"no clusters: {found}"
    names = dict.fromkeys(f"%{put.array.name_hint}" if put.array.name_hint else "an array" for put in found.puts)
    return f"clusters of {found.blocks} blocks along axis {found.axis} of the grid load the tiles of {' and '.join(names)} together"


def stated_size(kernel: tile.KernelOp) -> int | None:
    """Blocks of a cluster, as the kernel states it. Raises TeselaError for what is no number."""
    value = kernel.attributes.get("cluster")
    if value is None:
        return None
    if not isinstance(value, IntegerAttr) or value.type == i1:
        raise TeselaError.at(kernel, f"cluster must be a number of blocks, found {value}", "write attributes {cluster = 2 : i64}, in Python pins={'cluster': 2}")
    return value.value.data


def _check_size(kernel: tile.KernelOp, wanted: int | None) -> None:
    if wanted is not None and (wanted < 1 or wanted > MOST_BLOCKS or wanted & (wanted - 1)):
        raise TeselaError.at(kernel, f"a cluster has 1, 2, 4 or 8 blocks, found {wanted}", "write attributes {cluster = 2 : i64}, in Python pins={'cluster': 2}")


def outward_effects(kernel: tile.KernelOp) -> list[Operation]:
    """What can be seen from outside of a kernel: stores, atomics, messages."""
    return [op for op in kernel.walk() if op.name.startswith("tile.") and op.has_trait(MemoryWriteEffect)]


def _read_and_written(kernel: tile.KernelOp) -> str | None:
    """An array that the kernel reads and that may be what it writes, as text."""
    accesses = list(accesses_inside(kernel))
    read = [array for array, access in accesses if access == READ]
    read += [op.array for op in inside(kernel, async_copy.PutOp)]
    for array in read:
        if any(access != READ and dot_rules.may_alias(kernel, array, other) for other, access in accesses):
            return f"%{array.name_hint}" if array.name_hint else "an array"
    return None


@dataclass(frozen=True)
class Shared:
    """Clusters of `blocks` points along `axis`, which share what `puts` load."""

    axis: int
    blocks: int
    puts: tuple[async_copy.PutOp, ...]


def _decide(kernel: tile.KernelOp, target: Target, wanted: int | None) -> Shared | str:
    """The clusters to form, or why none."""
    blocks = wanted or USUAL_CLUSTER
    if not target.has_clusters:
        return f"{target.name} has none"
    if tile.walks_its_grid(kernel):
        return "the kernel walks its grid already"
    if stated(kernel, "persistent") is False:
        return "its blocks are not persistent"
    for op in outward_effects(kernel):
        if any(value.uses for value in op.results):
            return f"the kernel goes on with a result of {op.name}, which a point outside of the grid has none of"
    if (array := _read_and_written(kernel)) is not None:
        return f"a point outside of the grid would read {array} while another writes it"
    split = decide(kernel, target)
    if not split.puts:
        return split.why_not or "it has roles already"
    axes_of = GridAxes(kernel)
    best: Shared | None = None
    best_saved = 0.0
    reasons: list[str] = []
    for axis in range(len(kernel.grid.data)):
        puts = []
        for put in split.puts:
            reason = _why_not(put, axis, blocks, axes_of)
            if reason is None:
                puts.append(put)
            else:
                reasons.append(reason)
        saved = bytes_per_clock(puts) * (1 - 1 / blocks)
        if puts and (best is None or saved > best_saved):
            best, best_saved = Shared(axis, blocks, tuple(puts)), saved
    if best is None:
        return "; ".join(dict.fromkeys(reasons)) or "its grid has no axes"
    if wanted is None and bytes_per_clock(split.puts) <= L2_SHARE_BYTES_PER_CLOCK:
        return "L2 gives what its loads ask for"
    return best


def _why_not(put: async_copy.PutOp, axis: int, blocks: int, axes_of: GridAxes) -> str | None:
    """Why blocks along an axis cannot share what a put loads; None if they can."""
    name = f"%{put.array.name_hint}" if put.array.name_hint else "an array"
    if axis in axes_of.of(put.indices):
        return f"the tile of {name} is another one at each point along axis {axis}"
    channel = put.channel.owner
    assert isinstance(channel, async_copy.ChannelOp), "specialize-warps has found it"
    uses: Sequence[Operation] = (*channel.fills(), *channel.takers())
    if any(axis in axes_of.of_control(op) for op in uses):
        return f"how often the tile of {name} is loaded depends on the point along axis {axis}"
    if not isinstance(layout := channel.res.type.layout, SharedLayoutAttr) or cut_boxes(layout.data, channel.res.type.element.size, blocks) is None:
        return f"the tile of {name} cannot be loaded in {blocks} parts"
    return None
