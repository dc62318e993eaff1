"""What a compiled kernel asks of its launcher: arguments, parameters, grid, requirements. Plain Python, no xDSL.

The lowering writes a LaunchPlan beside the PTX; the runtime reads it (from memory or from the cache, as JSON), checks the
call against the kernel's contract, packs the parameters and launches, on a GPU or in the simulator. Nothing else about a
kernel needs to be known to launch it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .device_messages import MessageSite
from .target import get_target


@dataclass(frozen=True, slots=True)
class ArrayArg:
    """An array argument. `shape`: one dimension expression (text of a DimExpr) per dimension; `strides`: in elements, None
    where any will do; `access`: 'r', 'w' or 'rw'; `noalias`: the caller promises that no other written array overlaps it."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    strides: tuple[int | None, ...]
    access: str
    noalias: bool = False


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A scalar argument of `dtype` ('f32', 'i64', 'index' …)."""

    name: str
    dtype: str


def arg_from_json(entry: dict[str, Any]) -> ArrayArg | ScalarArg:
    """The argument that `dataclasses.asdict` made a dictionary of."""
    if "access" in entry:
        return ArrayArg(**{**entry, "shape": tuple(entry["shape"]), "strides": tuple(entry["strides"])})
    return ScalarArg(**entry)


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A tensor map over an array argument. `dims`: the array's dimensions, innermost (stride 1) first; `box`: elements per
    dimension in the same order; `swizzle`: span in bytes, 0, 32, 64 or 128; `fill`: 'zero' or 'nan' past the edges."""

    arg: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    fill: str = "zero"


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter, in PTX order. `kind`:
    'pointer' (arg: an array, b64) · 'dim' (arg: a symbolic dimension's name, b64) · 'stride' (arg, index: in elements, b64)
    · 'messages' (the address of a launch's buffer, device_messages.py, b64) · 'scalar' (arg; type by its dtype: index and i64 b64, i32/f32 b32, f16/bf16 b16, i1 b8 in memory) · 'tensormap' (128 bytes, align 64)
    · 'workspace', 'counters' (no arg; b64: memory of the launch, see LaunchPlan)."""

    kind: str
    name: str
    arg: str
    index: int = 0
    tensormap: TensorMapSpec | None = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """What this variant was compiled under; the launcher takes another variant where it fails. `kind`:
    'align' (arg: array; its base address and every stride but unit ones, in bytes, are multiples of `value`) ·
    'divisible' (arg: a symbolic dimension, a multiple of `value`) · 'noalias' (written arrays overlap no other) ·
    'max_dim' (arg: a dimension, at most `value`)."""

    kind: str
    arg: str
    value: int


MOST_OUTSIDE = 1 / 8
"""Points outside of a grid, for each inside, that clusters may cover: they load, compute, and store nothing."""


FEW_BLOCKS = 4
"""Blocks that a multiprocessor holds at a time, of which one more or less on some of them matters to how long a launch takes."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The whole contract of one compiled kernel. `grid`: one dimension expression per logical grid coordinate, fastest
    first (up to 3); the physical grid is the same unless the kernel is `persistent`: then any number of blocks up to that of the logical
    grid does, one for each multiprocessor, and each walks its share. `cluster`: blocks of a cluster, which walk the grid as one, side by side along
    `cluster_axis` of the logical grid; of a kernel that does not walk, neighbours there, whose number divides that axis. `shared_bytes`: dynamic shared memory.
    `workspace_bytes`: for each point of the logical grid, of memory that holds nothing before the launch and nothing after it; a plan that asks for some also
    asks for a counter of 32 bits for each point, which is zero before the launch and after it.
    `programmatic`: whether a launch may begin while the one before it in its stream ends, since the kernel itself waits for that (PTX ISA 9.0
    §9.7.14.13, griddepcontrol).
    `dims`: the symbolic dimensions' names in order. `notes`: what a reader should know (slow paths taken and why)."""

    name: str
    target: str
    args: tuple[ArrayArg | ScalarArg, ...]
    dims: tuple[str, ...]
    grid: tuple[str, ...]
    params: tuple[Param, ...]
    threads: int
    shared_bytes: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    cluster_axis: int = 0
    requirements: tuple[Requirement, ...] = ()
    notes: tuple[str, ...] = ()
    persistent: bool = False
    workspace_bytes: int = 0
    programmatic: bool = False
    messages: tuple[MessageSite, ...] = ()
    """Where the program may print, or an assertion fail; with any, there is a parameter of kind 'messages'."""

    def physical_grid(self, logical: tuple[int, int, int], multiprocessors: int) -> tuple[int, int, int]:
        """The blocks to launch for a logical grid on a device with so many multiprocessors."""
        if not self.persistent:
            return logical
        blocks = prod(self.cluster)
        return (blocks * max(1, min(multiprocessors // blocks, self._clusters(logical))), 1, 1)

    def _clusters(self, logical: tuple[int, int, int]) -> int:
        """Clusters that cover a logical grid."""
        return _covering(prod(self.cluster), self.cluster_axis, logical)

    def suits(self, logical: tuple[int, int, int], multiprocessors: int) -> bool:
        """Whether the clusters fit a grid: not so where many of their blocks would be at points outside of it, or some would have to do more
        points one after another than blocks by themselves. Blocks that do one point each are a cluster wherever they are launched."""
        return not self.persistent or clusters_suit(prod(self.cluster), self.cluster_axis, logical, multiprocessors)

    def begins_early(self, blocks: int, multiprocessors: int) -> bool:
        """Whether a launch of so many blocks is to begin while the one before it ends. Not where a multiprocessor holds a few blocks, and the grid fills them by more than half
        but not all: the blocks that come early take what room is left beside the kernel before, the others what it leaves when it ends, and so some multiprocessors
        get all that they hold and others nothing. (Products of 32×6144×4096 on an H200 by blocks of which a multiprocessor holds two: 192 take 18.0 µs so, and 16.1 in turn; 96, for all of which there
        is room, 15.2 and 16.1, and 288, which come in two rounds, 18.9 and 20.5.)"""
        if not self.programmatic or self.persistent:
            return self.programmatic
        target = get_target(self.target)
        resident = min(target.max_warps_per_sm * target.warp_size // self.threads, target.shared_bytes_per_sm // (self.shared_bytes + target.reserved_shared_bytes))
        room = resident * multiprocessors
        return resident > FEW_BLOCKS or blocks <= multiprocessors or not blocks <= room < 2 * blocks

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and integers; `from_json` restores an equal plan."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> LaunchPlan:
        """Raises KeyError or TypeError for data that `to_json` did not make."""

        def param(entry: dict[str, Any]) -> Param:
            spec = entry.get("tensormap")
            if spec is not None:
                spec = TensorMapSpec(**{**spec, "dims": tuple(spec["dims"]), "box": tuple(spec["box"])})
            return Param(**{**entry, "tensormap": spec})

        return LaunchPlan(
            **{
                **data,
                "args": tuple(map(arg_from_json, data["args"])),
                "dims": tuple(data["dims"]),
                "grid": tuple(data["grid"]),
                "params": tuple(param(entry) for entry in data["params"]),
                "cluster": tuple(data["cluster"]),
                "requirements": tuple(Requirement(**entry) for entry in data["requirements"]),
                "notes": tuple(data["notes"]),
                "messages": tuple(map(MessageSite.from_json, data["messages"])),
            }
        )


def _covering(blocks: int, axis: int, logical: Sequence[int]) -> int:
    """Clusters of so many blocks along an axis that cover a logical grid."""
    return prod(-(-extent // blocks) if at == axis else extent for at, extent in enumerate(logical))


def clusters_suit(blocks: int, axis: int, logical: Sequence[int], multiprocessors: int) -> bool:
    """`LaunchPlan.suits` for clusters of `blocks` along `axis`."""
    if blocks == 1:
        return True
    outside = -(-logical[axis] // blocks) * blocks - logical[axis]
    one_after_another = -(-_covering(blocks, axis, logical) // max(1, multiprocessors // blocks))
    return outside <= MOST_OUTSIDE * logical[axis] and one_after_another <= -(-prod(logical) // multiprocessors)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map with everything `cuTensorMapEncodeTiled` wants (CUDA driver API, "Tensor Map Object Management"): the
    runtime encodes it for a GPU, the simulator interprets it as it is. All tuples innermost first; `strides` in bytes, for
    dimensions 1 and up; `dtype` as 'bf16'."""

    dtype: str
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int
    fill: str = "zero"
