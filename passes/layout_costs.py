"""What layouts cost: the numbers that `layout_solver` minimises, for the whole block, from the instruction table's figures.

The unit is a *slot*: the chance to issue one instruction of one warp. A multiprocessor has four schedulers, so four slots pass in a clock, and a unit
that all four share is charged four for each of its clocks. Costs add up as if nothing ran beside anything else; what is compared are
two ways to do the same work, where that is fair.

    arithmetic      values of a thread × warps × clocks of the unit (`ptx_isa.UNITS`: fma 1, alu and cvt 2, mufu 8)
    global memory   for each access of a warp 1 to issue it, a clock for each line of 128 bytes, and half a clock for each sector of 32 bytes that
                    it touches (64 bytes a clock from L2: measured on an H200, 106 with TMA)
    shared memory   for each access of a warp 1 to issue it, and a clock for each wavefront (`dialects.linear_layout.bank_conflicts`)
    barriers        their latency, for all four schedulers
    wgmma           n/2 clocks for m64nN of 32 bytes of K, or what reading its operands takes at 128 bytes a clock if that is longer; and a quarter of the clocks of
                    reading on top, since others want shared memory too; 1 for each warp to issue it
    mma.sync        8 clocks of a quarter for m16n8 of 32 bytes of K
    registers       1 for each register of each warp that a value occupies

Nothing here changes what a program computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ..dialects.layout import LayoutError, TVLayout
from ..dialects.ptx_isa import UNITS

Cost = int
SLOTS = 4
"""Slots of a clock: schedulers of a multiprocessor (CUDA C++ Programming Guide, compute capability 8.0 and 9.0)."""
WARP = 32
LINE, SECTOR = 128, 32
SECTOR_SLOTS = 2
BARRIER = SLOTS * UNITS["barrier"].latency
GLOBAL_LATENCY = SLOTS * UNITS["global"].latency
"""What a copy through registers costs beside its instructions: the block waits for it, and none is under way from one trip to the next."""
SHARED_LATENCY = SLOTS * UNITS["shared"].latency
SHARED_BYTES_PER_CLOCK = 128
"""Source: 32 banks of 4 bytes (CUDA C++ Programming Guide)."""
MMA_CLOCKS = 8
"""Of a quarter of a multiprocessor for mma.m16n8k16 of 16-bit operands: 256 multiplications a clock (as `machine_costs.DOT_MACS_PER_CLOCK`)."""
UNKNOWN_TRIPS = 16
"""Trips that a loop of unknown length is taken for: an estimate, which only says that what is in a loop counts more."""
DIVISION = 10
"""Slots of a division: a reciprocal and its corrections (estimate)."""


def arithmetic(op_name: str, values: int, warps: int) -> Cost:
    """An elementwise op on `values` elements of each thread."""
    return values * warps * _op_slots(op_name)


def _op_slots(name: str) -> int:
    family, _, what = name.partition(".")
    if what in ("divf", "divsi", "divui", "remsi", "remui", "remf"):
        return DIVISION
    if family == "math":
        return UNITS["mufu"].issue
    if what == "cast":
        return UNITS["cvt"].issue
    return UNITS["fma" if what in ("addf", "subf", "mulf") else "alu"].issue


def registers(layout: TVLayout, bits: int, warps: int) -> Cost:
    """What holding a tile costs: its registers, 32 bits each."""
    return -(-layout.num_values * max(bits, 8) // 32) * warps


# ---- global memory --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def global_access(layout: TVLayout, inner: int | None, vector: int, size: int, warps: int, once: bool = False) -> Cost:
    """A load or store (`once`: warps that hold copies do nothing) of a tile whose elements of `size` bytes lie side by side along dimension `inner` (None: nowhere), up to `vector` of them an
    access. Different positions along the other dimensions count as different lines."""
    if inner is None:
        vector = 1
    else:
        while vector > 1 and layout.contiguous(inner) % vector:
            vector //= 2
    lines: set[tuple[int, ...]] = set()
    sectors: set[tuple[int, ...]] = set()
    for at in _lane_coords(layout):
        if inner is None:
            lines.add(at)
            sectors.add(at)
            continue
        rest = at[:inner] + at[inner + 1 :]
        first = at[inner] * size
        for byte in range(first, first + vector * size, SECTOR):
            lines.add((*rest, byte // LINE))
            sectors.add((*rest, byte // SECTOR))
    moved = SLOTS * len(lines) + SECTOR_SLOTS * len(sectors)
    busy = max(1, warps // _warp_copies(layout)) if once else warps
    return -(-layout.num_values // vector) * (warps + busy * moved)


def _warp_copies(layout: TVLayout) -> int:
    """How many warps hold the same."""
    copies = weight = 1
    for mode in layout.thread:
        if mode.is_broadcast and weight * mode.extent > WARP:
            copies *= mode.extent if weight >= WARP else weight * mode.extent // WARP
        weight *= mode.extent
    return copies


def _lane_coords(layout: TVLayout) -> list[tuple[int, ...]]:
    """The coordinates of the first value of each lane of the first warp."""
    found: list[tuple[int, ...]] = [(0,) * layout.rank]
    for mode in layout.thread:
        extent = min(mode.extent, WARP // len(found))
        if extent <= 1:
            break
        found = [tuple(c + digit * s for c, s in zip(at, mode.stride)) for digit in range(extent) for at in found]
    return found


# ---- shared memory --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def renaming(source: TVLayout, target: TVLayout, bits: int, warps: int) -> Cost | None:
    """`layout.convert` where each thread has what it needs: nothing, but for parts of registers that change places. None where threads have not."""
    where = source.value_map(target)
    if where is None:
        return None
    lanes = max(1, 32 // max(bits, 8))
    whole = all(where[i] % lanes == 0 and where[i : i + lanes] == tuple(range(where[i], where[i] + lanes)) for i in range(0, len(where) - lanes + 1, lanes))
    return 0 if bits == 1 or whole else UNITS["alu"].issue * target.num_values * warps


def exchange(values: int, warps: int) -> Cost:
    """`layout.convert` through shared memory, element by element, `values` of each thread there and back: the instructions, two barriers, and twice the
    latency of shared memory."""
    return 2 * (BARRIER + SHARED_LATENCY) + values * warps * (1 + SLOTS)


def least_exchange(words: int, warps: int) -> Cost:
    """What an exchange of `words` registers of each thread costs at least: with the widest accesses and without bank conflicts."""
    return 2 * (BARRIER + SHARED_LATENCY) + (words * SLOTS + words // 4) * warps


def scratch(shape: Sequence[int], bits: int, stages: bool) -> Cost:
    """What it costs to hold a tile in shared memory for an exchange (estimates): in a kernel with channels it is missing for their stages, a slot for 4
    bytes; else for other blocks of the multiprocessor, a slot for 16."""
    return prod(shape) * max(1, bits // 8) // (4 if stages else 16)


BUTTERFLY = "shfl.sync.bfly.b32"
"""What combines lanes of a warp in a reduction."""


@lru_cache(maxsize=8192)
def reduction(source: TVLayout, axis: int, warps: int) -> Cost | None:
    """`tile.reduce`: in the thread, by butterfly shuffles, and across warps through shared memory; None where a digit of the threads moves along the
    axis and another dimension at once."""
    try:
        steps = source.thread_steps(axis)
    except LayoutError:
        return None
    kept = source.project(axis).num_values
    fma, shuffle = UNITS["fma"].issue, UNITS["shuffle"].issue
    cost = (source.num_values - kept) * warps * fma
    ways = 1
    for distance, extent in steps:
        if distance < WARP:
            cost += (extent - 1).bit_length() * kept * warps * (shuffle + fma)
        else:
            ways *= extent
    if ways > 1:
        cost += 2 * BARRIER + kept * warps * (1 + ways) * (1 + SLOTS)
    return cost


# ---- dots -----------------------------------------------------------------------------------------------------------


def wgmma_clocks(rows: int, columns: int, from_shared: bool, operand_bytes: int, k_step: int) -> tuple[int, int]:
    """(clocks of the tensor cores, clocks of shared memory) for one wgmma of rows × columns × k_step elements of `operand_bytes`, times 4."""
    read = (columns + (rows if from_shared else 0)) * k_step * operand_bytes
    return SLOTS * columns // 2, SLOTS * read // SHARED_BYTES_PER_CLOCK
