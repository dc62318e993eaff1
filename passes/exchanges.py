"""How a tile lies in shared memory while it goes from one layout to another: contiguous along one dimension, with a swizzle derived for both sides.

Both sides are known, so the buffer may be whatever suits them. For each dimension as the contiguous one, each side moves vectors as wide as its own layout
and the buffer have in common; then the swizzle is derived. In a wavefront a side's lanes move some bits of the element offset. Those below 128
bytes choose banks by themselves; each of those above, the side's *high* bits, needs a bank bit that no low bit of the same wavefront
has. A swizzle with shift s takes high bit h to h - s, so for each side h - s must be a bank bit, not inside the vector, and not one of its
own: the shifts that are right for every high bit of both sides are an intersection of sets, and any of them leaves no conflict. Narrower vectors leave more
bits free, and so are tried where the widest leave none.

    64×64 of bf16, rows of 128 bytes; one side writes 16 bytes a lane, 8 lanes a row: no high bits. The other reads single elements, 8 lanes that are 8 rows
    apart (bits 9, 10, 11 of the offset) and 4 side by side (bits 0, 1). Free bank bits: 3, 4, 5. So s = 6: swizzle<3, 3, 6>.

Where the intersection is empty, all swizzles that move bits onto bank bits are counted, and the least is taken: then it is the minimum of
this form of layout, not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..dialects.layout import LayoutError, SharedLayout, Swizzle, TVLayout
from ..dialects.linear_layout import BANKS, WORD, lanes_per_wavefront
from . import layout_costs
from .matrix_access import BufferAccess, buffer_access

MOST_LANES = 32
EXCHANGED_BITS = (8, 16, 32, 64)
"""Bits of the elements whose tiles are exchanged as a whole; others go element by element."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A buffer for one tile, and how it is written and read. `derived`: the swizzle follows from both sides, without trial."""

    shared: SharedLayout
    write: BufferAccess
    read: BufferAccess
    nbytes: int
    derived: bool

    @property
    def conflicts(self) -> int:
        """Wavefronts of a warp beyond the least, over all of the tile."""
        return self.write.count * self.write.conflicts + self.read.count * self.read.conflicts

    def cost(self, warps: int) -> int:
        """In slots: instructions, wavefronts, two barriers, and twice the latency of shared memory."""
        return 2 * (layout_costs.BARRIER + layout_costs.SHARED_LATENCY) + (self.write.slots + self.read.slots) * warps


@lru_cache(maxsize=1024)
def plan_exchange(source: TVLayout, result: TVLayout, shape: tuple[int, ...], size: int, stmatrix: bool) -> Exchange:
    """The cheapest buffer through which a tile of `shape`, of elements of `size` bytes, goes from `source` to `result`. `stmatrix`: whether the target has it."""
    best: tuple[int, Exchange] | None = None
    for inner in reversed(range(max(1, len(shape)))):
        order = (inner, *(d for d in reversed(range(len(shape))) if d != inner)) if shape else ()
        plain = SharedLayout.row_major(shape, order=order)
        derived, swizzles = _swizzles(source, result, plain, size)
        for swizzle in swizzles:
            found = _exchange(source, result, SharedLayout(plain.modes, swizzle), size, stmatrix, derived)
            if found is not None and (best is None or found.cost(1) < best[0]):
                best = (found.cost(1), found)
            if derived and found is not None and not found.conflicts:
                break
    assert best is not None, "rows without a swizzle can always be accessed element by element"
    return best[1]


def _exchange(
    source: TVLayout, result: TVLayout, shared: SharedLayout, size: int, stmatrix: bool, derived: bool
) -> Exchange | None:
    try:
        write, read = buffer_access(source, shared, size, False, stmatrix), buffer_access(result, shared, size, True, stmatrix)
    except LayoutError:
        return None
    return Exchange(shared, write, read, -(-shared.size() * size // 16) * 16, derived)


def _swizzles(source: TVLayout, result: TVLayout, plain: SharedLayout, size: int) -> tuple[bool, list[Swizzle | None]]:
    """(whether they are derived, swizzles worth a look): those right for all high bits of both sides, with vectors as wide as both have and then
    narrower, or, if there are none, all that move bits onto bank bits."""
    banks = (BANKS * WORD // size).bit_length() - 1
    own = [buffer_vector(side, plain, size) for side in (source, result)]
    top = (plain.size() - 1).bit_length()
    widest = max(own).bit_length() - 1
    for base in range(widest, -1, -1):
        high, taken = [], []
        for side, width in zip((source, result), own):
            vector = min(width, 1 << base)
            bits = list(_lane_bits(side, plain, lanes_per_wavefront(max(1, vector * size))))
            high.append({bit for bit in bits if bit >= banks})
            taken.append({bit for bit in bits if bit < banks} | set(range(vector.bit_length() - 1)))
        if not any(high):
            return True, [None]
        found: list[Swizzle | None] = []
        for shift in range(1, top):
            if all(base <= bit - shift < banks and bit - shift not in used for bits, used in zip(high, taken) for bit in bits):
                targets = [bit - shift for bits in high for bit in bits]
                count = max(targets) - min(targets) + 1
                if count <= shift:
                    found.append(Swizzle(count, min(targets), shift))
        if found:
            return True, found
    every = [
        Swizzle(count, base, shift) for base in range(widest + 1) for count in range(1, banks - base + 1) for shift in range(count, top - base)
    ]
    return False, [None, *every]


def buffer_vector(layout: TVLayout, plain: SharedLayout, size: int) -> int:
    """Elements that one access moves, in rows without a swizzle; a power of two."""
    try:
        access = buffer_access(layout, plain, size, False, False)
    except LayoutError:
        return 1
    return layout.num_values // access.count


def _lane_bits(layout: TVLayout, plain: SharedLayout, lanes: int) -> Iterator[int]:
    """The offset bits that the lanes of one wavefront move, each by itself. Digits that move several bits at once, or none, are not among them: what is
    derived is checked in any case."""
    weight = 1
    strides: Sequence[int] = [digits[0][1] if digits else 0 for digits in plain.normalized().modes]
    for mode in layout.thread:
        for i in range((mode.extent - 1).bit_length()):
            if weight << i >= min(lanes, MOST_LANES):
                return
            offset = sum((stride << i) * step for stride, step in zip(mode.stride, strides))
            if offset and offset & (offset - 1) == 0:
                yield offset.bit_length() - 1
        weight *= mode.extent
