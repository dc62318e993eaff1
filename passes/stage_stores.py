"""stage-stores: results leave through shared memory and TMA, while the block goes on.

A dot leaves its result spread over the threads in the instruction's pattern: a warp's store covers 16 or 32 bytes of each of 8 rows, a fraction of what memory
moves at once, and takes an address and a bound for each. TMA stores whole rows, checks the bounds itself, and needs one thread for one
instruction. So `tile.store` becomes `async.store` through a channel of some buffers, each a part of the tile: as many rows, and 128 bytes of each, or as much less as divides
the tile's rows.

    tile.store %d, %C[%m, %n]     →     async.store %d, %C[%m, %n] through %out : tensor<128x256xbf16>, …, !async.channel<128x64xbf16>

**How many buffers.** One for every part, as long as they take no more than STAGED_BYTES: then all parts are written at once, and nothing waits. Of larger tiles as many as that, two at least: a part is
written while those before it are read.

**What can be staged.** What TMA can store (PTX ISA 9.0 §5.5, cuTensorMapEncodeTiled; the last two are measured): base and strides of multiples of 16 bytes,
a start that is one along the contiguous dimension, and never negative; an extent along it that is a multiple of 16 bytes, since a
store that ends inside of 16 bytes writes on to their end. Parts must be held by all threads alike. And since the store completes some time later,
nothing after it for the same point of the grid may access what may be the same memory.

**When.** In kernels that will have roles, whose others overlap the wait; the kernel's attribute `stage_stores` overrides that: `false` never, `true` always. So does
the option `when`. A layout that already covers whole rows of 128 bytes is stored as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import ClassVar, Literal

from xdsl.dialects.builtin import ModuleOp, TensorType

from ..dialects import async_copy, tile
from ..dialects.array_effects import array_access
from ..dialects.inside import inside, kernels_in
from ..dialects.layout import LayoutError, Mode, SharedLayout, TVLayout, split_modes
from ..dialects.layout_attrs import TVLayoutAttr, with_layout
from ..dialects.tile import shape_of
from . import dot_rules
from .access import argument_align, extent_divisor, memory_bytes
from .base import Pass, PassContext
from .divisibility import Divisibility
from .specialize_warps import decide, stated

ROW_BYTES = 128
"""The widest row that TMA swizzles, and what L2 moves at once."""
BUFFERS = 2
STAGED_BYTES = 32 * 2**10
"""What the buffers of a store may take beside those of loads: two parts of 128×64 elements of 16 bits, which leave room for four stages of tiles of 128×256."""
TMA_UNIT = 16
MOST_ROWS = 256
"""Of a TMA box in any dimension (CUDA driver API, cuTensorMapEncodeTiled)."""
WARP = 32
PATTERN_ROWS = 8
"""Rows after which a swizzle repeats: a box that starts there in a buffer is swizzled like one that starts with it."""


@dataclass
class StageStores(Pass):
    """Store the results of kernels that will have roles through shared memory, by TMA. `when`: for these, for all, or for none."""

    name: ClassVar[str] = "stage-stores"
    when: Literal["auto", "always", "never"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            wanted = stated(kernel, "stage_stores")
            if self.when == "never" or wanted is False or not target.has_tma:
                continue
            if wanted or self.when == "always" or decide(kernel, target).puts:
                for store in inside(kernel, tile.StoreOp):
                    _stage(kernel, store)


def _stage(kernel: tile.KernelOp, store: tile.StoreOp) -> None:
    part = part_of(kernel, store)
    if part is None:
        return
    shape, layout = part
    kind = store.value.type
    assert isinstance(kind, TensorType)
    count = prod(whole // extent for whole, extent in zip(shape_of(kind), shape))
    depth = min(count, max(BUFFERS, STAGED_BYTES // (prod(shape) * memory_bytes(kind.element_type))))
    channel = async_copy.ChannelOp.make(with_layout(TensorType(kind.element_type, shape), layout), depth)
    channel.location = store.location
    channel.res.name_hint = f"{store.array.name_hint}_parts" if store.array.name_hint else None
    first = kernel.body.block.first_op
    assert first is not None, "a kernel ends with tile.return"
    kernel.body.block.insert_op_before(channel, first)
    block = store.parent
    assert block is not None
    block.insert_op_before(async_copy.StoreOp.replacing(store, channel.res), store)
    store.detach()
    store.erase()


def part_of(kernel: tile.KernelOp, store: tile.StoreOp | async_copy.StoreOp) -> tuple[tuple[int, ...], SharedLayout] | None:
    """The extents of a part of the tile, and how it lies in its buffer; None if the store cannot or need not be staged."""
    kind, array = store.value.type, store.array
    if not isinstance(kind, TensorType) or not isinstance(kind.encoding, TVLayoutAttr):
        return None
    layout, shape, of = kind.encoding.data, tuple(kind.get_shape()), store.tile_dims()
    size = memory_bytes(kind.element_type)
    strides = dot_rules.static_strides(array.type)
    inner = next((d for d, dim in enumerate(of) if strides[dim] == 1), None)
    if inner is None or size not in (2, 4) or layout.shape() != shape or array.type.get_num_dims() > dot_rules.MOST_TMA_DIMS:
        return None
    row = shape[inner] * size
    span = next((span for span in (ROW_BYTES, ROW_BYTES // 2, ROW_BYTES // 4) if row % span == 0), None)
    if span is None or any(extent > MOST_ROWS for d, extent in enumerate(shape) if d != inner):
        return None
    if _row_bytes(layout, inner, size) >= span or not _tma_stores(kernel, store, of[inner], size, strides) or _accessed_later(kernel, store):
        return None
    width = span // size
    if (part := part_layout(layout, inner, width)) is None or part.shape()[inner] != width:
        return None
    extents = tuple(width if d == inner else extent for d, extent in enumerate(shape))
    order = (inner, *(d for d in reversed(range(len(shape))) if d != inner))
    return extents, SharedLayout.tma(extents, size, span, order)


def part_layout(layout: TVLayout, dim: int, width: int) -> TVLayout | None:
    """The layout of the part of a tile at coordinates 0 to `width` along `dim`, of the values that are there for all threads; the other parts are
    the same, further on. None if no values are there for all."""
    value: list[Mode] = []
    for mode in layout.value:
        stride = mode.stride[dim]
        if stride == 0 or (mode.extent - 1) * stride < width:
            value.append(mode)
        elif stride < width:
            if width % stride or mode.extent % (width // stride):
                return None
            value.append(Mode(width // stride, mode.stride))
        elif stride % width:
            return None
    part = TVLayout(layout.thread, tuple(value) or (Mode(1, (0,) * layout.rank),))
    return part if part.shape()[dim] <= width else None


@dataclass(frozen=True, slots=True)
class WarpRows:
    """Each warp holds whole rows of a part: `count` of them along dimension `dim`, the first of which is the sum of the warp's `digits`, each
    (weight, extent) of the warp's index times so many rows."""

    dim: int
    count: int
    digits: tuple[tuple[int, int, int], ...]


def warp_rows(part: TVLayout, inner: int) -> WarpRows | None:
    """The rows of a part that each warp holds, if they are whole, lie one under another, and nobody else has them: then a warp can store them by
    itself. None otherwise. `inner`: the dimension along a row; there is one other."""
    if part.rank != 2:
        return None
    try:
        lanes, warps = split_modes(part.thread, WARP)
    except LayoutError:
        return None
    held, across = TVLayout(lanes, part.value), 1 - inner
    rows, width = held.shape()[across], part.shape()[inner]
    if held.num_threads != WARP or held.is_replicated or not held.is_injective() or held.shape()[inner] != width:
        return None
    if WARP * held.num_values != rows * width or rows % PATTERN_ROWS:
        return None
    digits, weight = [], 1
    for mode in warps:
        if mode.extent > 1 and (mode.stride[inner] or not mode.stride[across] or mode.stride[across] % rows):
            return None
        digits.append((weight, mode.extent, mode.stride[across]))
        weight *= mode.extent
    return WarpRows(across, rows, tuple(digit for digit in digits if digit[1] > 1))


def _row_bytes(layout: TVLayout, inner: int, size: int) -> int:
    """Bytes side by side that one access of a warp covers."""
    covered, weight = min(layout.contiguous(inner) * size, 16), 1
    for mode in layout.thread:
        if weight < WARP and mode.stride[inner] * size == covered:
            covered *= min(mode.extent, WARP // weight)
        weight *= mode.extent
    return covered


def _tma_stores(
    kernel: tile.KernelOp, store: tile.StoreOp | async_copy.StoreOp, dim: int, size: int, strides: tuple[int | None, ...]
) -> bool:
    """Whether TMA can store there, as the module's docstring says. `dim`: the array's contiguous dimension."""
    facts = Divisibility()
    align = argument_align(kernel, store.array)
    for stride in strides:
        if stride is not None and stride != 1:
            align = gcd(align, stride * size)
    return (
        align % TMA_UNIT == 0
        and facts.divisor(store.indices[dim]) * size % TMA_UNIT == 0
        and extent_divisor(kernel, store.array, dim) * size % TMA_UNIT == 0
        and all(facts.nonnegative(index) for index in store.indices)
    )


def _accessed_later(kernel: tile.KernelOp, store: tile.StoreOp | async_copy.StoreOp) -> bool:
    """Whether what may be the same memory is accessed after the store, for the same point of the grid."""
    for op in kernel.walk():
        if array_access(op) is not None or isinstance(op, async_copy.PutOp):
            if dot_rules.may_alias(kernel, store.array, op.array) and dot_rules.may_precede(store, op, across_tiles=False):
                return True
    return False
