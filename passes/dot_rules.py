"""How a dot is computed: which instruction, which registers hold what, and how its operands lie in shared memory.

Pure functions from extents, element types, a number of warps and a target; nothing here knows a kernel or changes one.

**Instructions** (which types: dot_types.py). `wgmma` (sm_90a) multiplies 64 rows by n columns (a multiple of 8, at most 256; of integers 8, 16, 24 or
a multiple of 16) over 32 bytes of K for one warpgroup; both operands lie in shared memory, or the left one in registers. `mma.sync`
multiplies 16 rows by 8 columns over 32 bytes of K for one warp, all in registers. Extents that are no multiples of these are rounded up:
padding along M and N computes what nobody reads; padding along K would be summed, so it holds zeros in both operands.

What tensor cores do not multiply (f32 and f64 as they are), each thread multiplies by `fma`: it has a block of the accumulator, and reads the
rows and columns that meet there from shared memory, 16 bytes of K at a time. Nothing past K is multiplied.

**Registers** (PTX ISA 9.0 §9.7.16.5.1 and §9.7.15.5.8). Both instructions spread an accumulator alike: with g = lane / 4 and q = lane % 4,
a warp's 16 rows hold value i of a lane at row g + 8·((i / 2) % 2), column 8·(i / 4) + 2q + i % 2. So 64 rows of `wgmma` for two warpgroups
down the rows and 256 columns are

    thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(64,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]

A register of the left operand holds E = 4 / bytes elements of K, from k = E·q on, of row g; so that for 16-bit types

    thread [4:(0,2), 8:(1,0), …], value [2:(0,1), 2:(8,0), 2:(0,8), steps:(0,16)]          in general 4:(0,E), E:(0,1), 2:(0,4E), (0,8E)

and the left operand of the next dot over those 256 columns is the very same layout, found as 2:(0,8), 16:(0,16) and merged to 32:(0,8).

**Transposed.** Dᵀ = Bᵀ·Aᵀ: the right operand's columns take the instruction's rows, the left one's rows its columns. A dot of 16 rows fills a quarter of an m64n256,
but all of m64n16, four times as often. The layouts are those of the transposed dot with rows and columns exchanged, and each sum adds the same products in the same order.
Such ways are considered where fewer products of padding are multiplied.

**Several.** Warps (warpgroups) are dealt out down the rows and along the columns; what one does not reach in one instruction it
repeats: slabs of 64 (tiles of 16) rows, pieces of at most 256 (tiles of 8) columns. Where there are more warps than work, several compute
the same.

**Shared memory.** An operand's buffer is laid out as TMA writes and `wgmma`'s descriptors describe: rows of 128, 64, 32 or 16 bytes
along the contiguous dimension, swizzled so that eight rows of a column of 16-byte chunks fall into different banks; which also is what
`ldmatrix` wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd, prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    MemRefType,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.array_effects import may_write
from ..dialects.async_roles import role_of
from ..dialects.diagnostics import TeselaError
from ..dialects.layout import Mode, SharedLayout, TVLayout
from ..dialects.target import Target
from ..dialects.tile import element_type, shape_of
from ..dialects.tile_types import memory_bytes, static_strides
from .dot_types import REGISTER_BYTES, STEP_BYTES, DotKind, dot_kind

WGMMA_ROWS, WGMMA_MAX_N = 64, 256
MMA_ROWS, MMA_COLUMNS = 16, 8
WARPGROUP_WARPS = 4
RESERVED_REGISTERS = 40
"""Registers of a thread that addresses, loop counters and operand fragments take beside an accumulator (estimate; ptxas wants
26 beside a wgmma's accumulators)."""


@dataclass(frozen=True, slots=True)
class DotShape:
    """Extents of a dot, batch × M × K times batch × K × N, and its types."""

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    kind: DotKind = DotKind("bf16", "bf16", "f32", 2)

    def transposed(self) -> DotShape:
        """Of Dᵀ = Bᵀ·Aᵀ."""
        return replace(self, m=self.n, n=self.m, kind=replace(self.kind, lhs=self.kind.rhs, rhs=self.kind.lhs))


@dataclass(frozen=True, slots=True)
class DotChoice:
    """The instruction and the register layouts of a dot.

    `unit`: 'wgmma', 'mma' or 'fma'. `lhs`, `rhs`: None where the instruction reads the operand from shared memory. `extents`: what the
    layouts cover of M, N and K, at least the dot's own. For wgmma, `groups`: warpgroups down the rows and along the columns, `slabs`: blocks of
    64 rows of a warpgroup, one under another, `pieces`: the instructions' n along a warpgroup's columns.
    `step`: elements of K that are read together. `sums_padding`: what lies past K, up to a whole step, is multiplied, too. `swapped`: the instruction computes
    the transposed dot; what is said of rows and columns of instructions and warps is then of the transposed one, layouts and extents are of the dot as it is.
    """

    unit: str
    acc: TVLayout
    lhs: TVLayout | None
    rhs: TVLayout | None
    extents: tuple[int, int, int]
    groups: tuple[int, int] = (1, 1)
    slabs: int = 1
    pieces: tuple[int, ...] = ()
    step: int = 16
    sums_padding: bool = True
    swapped: bool = False

    def transposed(self) -> DotChoice:
        """The way of a dot that computes its transpose by this one. A left operand in registers becomes a right one there."""

        def turned(layout: TVLayout | None) -> TVLayout | None:
            return None if layout is None else layout.permute((*range(layout.rank - 2), layout.rank - 1, layout.rank - 2))

        acc, (m, n, k) = turned(self.acc), self.extents
        assert acc is not None
        return replace(self, acc=acc, lhs=turned(self.rhs), rhs=turned(self.lhs), extents=(n, m, k), swapped=not self.swapped)


def round_up(value: int, to: int) -> int:
    return -(-value // to) * to


def _powers_of_two(limit: int) -> Iterator[int]:
    n = 1
    while n <= limit:
        yield n
        n *= 2


# ---- wgmma ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def wgmma_choice(shape: DotShape, warps: int, lhs_in_registers: bool) -> DotChoice:
    """How `warps` warps (a multiple of 4) compute a dot without batch by wgmma, where nothing else is known. Deals the warpgroups out for the
    fewest accumulators a thread, and among those for most warpgroups down the rows, which read the right operand together."""
    groups = warps // WARPGROUP_WARPS
    ways: list[tuple[int, int, int]] = []
    for down, along in wgmma_arrangements(warps):
        slabs, columns = _wgmma_part(shape, down, along)
        ways.append((slabs * columns, -down, along))
    _, down, along = min(ways)
    return wgmma_way(shape, groups, -down, along, WGMMA_MAX_N, lhs_in_registers)


def wgmma_arrangements(warps: int) -> Iterator[tuple[int, int]]:
    """(warpgroups down the rows, along the columns): every divisor of the number of warpgroups down, every power of two that is left
    for it along."""
    groups = warps // WARPGROUP_WARPS
    for down in (down for down in range(1, groups + 1) if groups % down == 0):
        for along in _powers_of_two(groups // down):
            yield down, along


WGMMA_NARROW = 24
"""Wgmmas of integers that are wider have a multiple of 16 columns (PTX ISA 9.0 §9.7.16.2)."""


def wgmma_width(kind: DotKind, n: int) -> bool:
    """Whether there is a wgmma of `n` columns."""
    return n % 8 == 0 and 0 < n <= WGMMA_MAX_N and (not kind.integer or n <= WGMMA_NARROW or n % 16 == 0)


def _wgmma_part(shape: DotShape, down: int, along: int) -> tuple[int, int]:
    """(blocks of 64 rows, columns) of one warpgroup. A descriptor may start in the middle of N only at a whole span of the widest swizzle: 64
    elements of 16 bits."""
    slabs = -(-shape.m // (WGMMA_ROWS * down))
    unit = 16 if shape.kind.integer and shape.n > WGMMA_NARROW else 8
    return slabs, round_up(shape.n, unit) if along == 1 else round_up(-(-shape.n // along), 64)


def wgmma_columns(shape: DotShape, down: int, along: int) -> int:
    """Columns that each warpgroup computes."""
    return _wgmma_part(shape, down, along)[1]


def wgmma_way(shape: DotShape, groups: int, down: int, along: int, n: int, lhs_in_registers: bool) -> DotChoice:
    """A dot without batch by wgmma of at most `n` columns an instruction: `down` x `along` of `groups` warpgroups have parts of their own, the
    others compute the same."""
    whole = _wgmma_layouts(shape, groups, down, along, lhs_in_registers)
    columns = whole.extents[1] // along
    n = min(n, columns)
    return replace(whole, pieces=(n,) * (columns // n) + ((columns % n,) if columns % n else ()))


@lru_cache(maxsize=1024)
def _wgmma_layouts(shape: DotShape, groups: int, down: int, along: int, lhs_in_registers: bool) -> DotChoice:
    """`wgmma_way` but for the instructions' columns, which change no layout."""
    slabs, columns = _wgmma_part(shape, down, along)
    copies = groups // (down * along)
    thread = [Mode(4, (0, 2)), Mode(8, (1, 0)), Mode(4, (16, 0)), Mode(down, (WGMMA_ROWS * slabs, 0))]
    value = [Mode(2, (0, 1)), Mode(2, (8, 0)), Mode(columns // 8, (0, 8)), Mode(slabs, (WGMMA_ROWS, 0))]
    acc = TVLayout((*thread, Mode(along, (0, columns)), Mode(copies, (0, 0))), tuple(value))
    lanes, step = shape.kind.lanes, shape.kind.step
    k = round_up(shape.k, step)
    lhs = None
    if lhs_in_registers:
        steps = (Mode(lanes, (0, 1)), Mode(2, (8, 0)), Mode(2, (0, 4 * lanes)), Mode(k // step, (0, step)), value[3])
        lhs = TVLayout((Mode(4, (0, lanes)), *thread[1:], Mode(along * copies, (0, 0))), steps)
    extents = (WGMMA_ROWS * slabs * down, columns * along, k)
    return DotChoice("wgmma", acc.normalized(), lhs.normalized() if lhs else None, None, extents, (down, along), slabs, step=step)


# ---- mma.sync -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def mma_choice(shape: DotShape, warps: int, rows_only: bool) -> DotChoice:
    """How `warps` warps compute a dot by mma.sync m16n8, where nothing else is known. With `rows_only` all warps go down the rows if there are
    rows enough: then an accumulator has the layout of a left operand of as many rows."""
    rows_only = rows_only and -(-shape.m // MMA_ROWS) >= warps
    ways: list[tuple[int, int, int, int]] = []
    for batches, down, along in mma_arrangements(shape, warps):
        if not rows_only or down == warps:
            ways.append((mma_clocks(shape, batches, down, along), -batches, -down, along))
    _, batches, down, along = min(ways)
    return mma_way(shape, warps, -batches, -down, along)


def mma_arrangements(shape: DotShape, warps: int) -> Iterator[tuple[int, int, int]]:
    """(warps along the first batch dimension, down the rows, along the columns) that `warps` can be dealt out to: powers of two, but down the rows, of which three parts are as good as four."""
    first = shape.batch[0] if shape.batch else 1
    divisors = [down for down in range(1, warps + 1) if warps % down == 0]
    for batches, down, along in product(_powers_of_two(warps), divisors, _powers_of_two(warps)):
        if not (warps % (batches * down * along) or first % batches):
            yield batches, down, along


def _mma_part(shape: DotShape, batches: int, down: int, along: int) -> tuple[int, int, int]:
    """(matrices of the batch, tiles of 16 rows, tiles of 8 columns) of one warp."""
    per_batch = (shape.batch[0] if shape.batch else 1) // batches * prod(shape.batch[1:])
    return per_batch, -(-shape.m // (MMA_ROWS * down)), -(-shape.n // (MMA_COLUMNS * along))


def mma_clocks(shape: DotShape, batches: int, down: int, along: int) -> int:
    """Clocks of a warp for one step of K: a 16x8x16 multiplication takes about 8 clocks of a quarter SM; reading 16x16 (16x8) elements by ldmatrix
    takes 16 (8), since four quarters share the 128 bytes a clock."""
    per_batch, rows, columns = _mma_part(shape, batches, down, along)
    return per_batch * (8 * rows * columns + 16 * rows + 8 * columns)


@lru_cache(maxsize=4096)
def mma_way(shape: DotShape, warps: int, batches: int, down: int, along: int) -> DotChoice:
    """A dot by mma.sync m16n8 of `batches` x `down` x `along` of `warps` warps; the others compute the same."""
    first = shape.batch[0] if shape.batch else 1
    copies = warps // (batches * down * along)
    _, rows, columns = _mma_part(shape, batches, down, along)
    lanes, step = shape.kind.lanes, shape.kind.step
    k = round_up(shape.k, step)
    depth = len(shape.batch)

    def mode(extent: int, m: int = 0, n: int = 0, batch: int | None = None, step: int = 1) -> Mode:
        return Mode(extent, (*(step if d == batch else 0 for d in range(depth)), m, n))

    first_per_warp = first // batches
    spread = mode(batches, batch=0, step=first_per_warp) if depth else mode(1)
    outer = [mode(shape.batch[d] if d else first_per_warp, batch=d) for d in reversed(range(depth))]
    acc = TVLayout(
        (mode(4, n=2), mode(8, m=1), mode(down, m=MMA_ROWS * rows), mode(along, n=MMA_COLUMNS * columns), spread, mode(copies)),
        (mode(2, n=1), mode(2, m=8), mode(columns, n=MMA_COLUMNS), mode(rows, m=MMA_ROWS), *outer),
    )
    lhs = TVLayout(
        (mode(4, n=lanes), mode(8, m=1), mode(down, m=MMA_ROWS * rows), mode(along), spread, mode(copies)),
        (mode(lanes, n=1), mode(2, m=8), mode(2, n=4 * lanes), mode(k // step, n=step), mode(rows, m=MMA_ROWS), *outer),
    )
    rhs = TVLayout(
        (mode(4, m=lanes), mode(8, n=1), mode(down), mode(along, n=MMA_COLUMNS * columns), spread, mode(copies)),
        (mode(lanes, m=1), mode(2, m=4 * lanes), mode(columns, n=MMA_COLUMNS), mode(k // step, m=step), *outer),
    )
    extents = (MMA_ROWS * rows * down, MMA_COLUMNS * columns * along, k)
    return DotChoice("mma", acc.normalized(), lhs.normalized(), rhs.normalized(), extents, (down, along), step=step)


# ---- fma ------------------------------------------------------------------------------------------------------------

FMA_BLOCK = 4
"""Rows and columns of the accumulator that lie side by side in a thread: 16 bytes of a row of f32."""


@lru_cache(maxsize=1024)
def fma_choice(shape: DotShape, warps: int) -> DotChoice:
    """How `warps` warps compute a dot by fma, where nothing else is known: reading the fewest elements for their multiplications."""
    ways = [(fma_clocks(shape, *way), way) for way in fma_arrangements(shape, warps)]
    return fma_way(shape, warps, *min(ways)[1])


def fma_block(shape: DotShape) -> tuple[int, int, int]:
    """(rows and columns side by side in a thread, elements of K that are read together)."""
    high, wide = (min(FMA_BLOCK, 1 << (extent - 1).bit_length()) for extent in (shape.m, shape.n))
    return high, wide, min(16 // shape.kind.size, 1 << (shape.k - 1).bit_length())


def _fma_part(shape: DotShape, batches: int, down: int, along: int) -> tuple[int, int, int]:
    """(matrices of the batch, blocks down the rows, blocks along the columns) of one thread."""
    per_batch = (shape.batch[0] if shape.batch else 1) // batches * prod(shape.batch[1:])
    high, wide, _ = fma_block(shape)
    return per_batch, -(-shape.m // (high * down)), -(-shape.n // (wide * along))


def fma_arrangements(shape: DotShape, warps: int) -> Iterator[tuple[int, int, int]]:
    """(threads along the first batch dimension, down the rows, along the columns), powers of two: as many threads as there is work for."""
    high, wide, _ = fma_block(shape)
    first = shape.batch[0] if shape.batch else 1
    most = [1 << (-(-extent // block) - 1).bit_length() for extent, block in ((shape.m, high), (shape.n, wide))]
    ways = [
        (batches, down, along)
        for batches, down, along in product(_powers_of_two(32 * warps), repeat=3)
        if 32 * warps % (batches * down * along) == 0 and first % batches == 0 and down <= most[0] and along <= most[1]
    ]
    busiest = max(prod(way) for way in ways)
    return (way for way in ways if prod(way) == busiest)


def fma_clocks(shape: DotShape, batches: int, down: int, along: int) -> int:
    """Clocks of a warp for one position along K: a quarter SM multiplies 32 pairs a clock, and its part of shared memory is 32 bytes a clock, so that
    an element of an operand takes as long as as many multiplications as it has bytes."""
    per_batch, rows, columns = _fma_part(shape, batches, down, along)
    high, wide, _ = fma_block(shape)
    return per_batch * (high * rows * wide * columns + shape.kind.size * (high * rows + wide * columns))


@lru_cache(maxsize=4096)
def fma_way(shape: DotShape, warps: int, batches: int, down: int, along: int) -> DotChoice:
    """A dot by fma of `batches` x `down` x `along` of the threads of `warps` warps; the others compute the same."""
    high, wide, step = fma_block(shape)
    first = shape.batch[0] if shape.batch else 1
    copies = 32 * warps // (batches * down * along)
    _, rows, columns = _fma_part(shape, batches, down, along)
    k = round_up(shape.k, step)
    depth = len(shape.batch)

    def mode(extent: int, m: int = 0, n: int = 0, batch: int | None = None, stride: int = 1) -> Mode:
        return Mode(extent, (*(stride if d == batch else 0 for d in range(depth)), m, n))

    first_per_thread = first // batches
    spread = mode(batches, batch=0, stride=first_per_thread) if depth else mode(1)
    outer = [mode(shape.batch[d] if d else first_per_thread, batch=d) for d in reversed(range(depth))]
    row_values = (mode(high, m=1), mode(rows, m=high * down))
    column_values = (mode(wide, n=1), mode(columns, n=wide * along))
    acc = TVLayout(
        (mode(along, n=wide), mode(down, m=high), spread, mode(copies)),
        (column_values[0], row_values[0], column_values[1], row_values[1], *outer),
    )
    lhs = TVLayout(
        (mode(along), mode(down, m=high), spread, mode(copies)), (mode(step, n=1), *row_values, mode(k // step, n=step), *outer)
    )
    rhs = TVLayout(
        (mode(along, n=wide), mode(down), spread, mode(copies)), (*column_values, mode(step, m=1), mode(k // step, m=step), *outer)
    )
    extents = (high * rows * down, wide * columns * along, k)
    return DotChoice(
        "fma", acc.normalized(), lhs.normalized(), rhs.normalized(), extents, (down, along), step=step, sums_padding=False
    )


# ---- choosing for an op ---------------------------------------------------------------------------------------------


def operand_tile(kind: Attribute) -> TensorType:
    """The tile of a tensor, a buffer or a channel."""
    return kind if isinstance(kind, TensorType) else kind.tile


def dot_shape(op: tile.DotOp | async_copy.DotOp) -> DotShape:
    """The extents and types of a dot op. Raises TeselaError for types that nothing multiplies."""
    lhs, rhs, *_ = op.operands  # by their names they take ten times as long
    return _shape_of(lhs.type, rhs.type, dot_kind(op))


@lru_cache(maxsize=1024)
def _shape_of(lhs: Attribute, rhs: Attribute, kind: DotKind) -> DotShape:
    a, b = operand_tile(lhs).get_shape(), operand_tile(rhs).get_shape()
    return DotShape(tuple(a[:-2]), a[-2], b[-1], a[-1], kind)


def takes_wgmma(op: tile.DotOp | async_copy.DotOp, warps: int, target: Target) -> bool:
    """Whether wgmma can compute the dot: the target has it, whole warpgroups, types that tensor cores multiply, and no batch."""
    shape = dot_shape(op)
    return target.has_wgmma and warps % WARPGROUP_WARPS == 0 and not shape.batch and shape.kind.tensor_core


def unit_of(op: tile.DotOp | async_copy.DotOp, warps: int, target: Target) -> str:
    """'wgmma' for an `async.dot`, 'mma' or 'fma' for a `tile.dot`. Raises TeselaError for element types without an instruction, and for an
    `async.dot` that wgmma cannot compute."""
    if not isinstance(op, async_copy.DotOp):
        return "mma" if dot_kind(op).tensor_core else "fma"
    if not takes_wgmma(op, warps, target):
        raise TeselaError.at(
            op,
            f"async.dot is wgmma: it needs sm_90a, whole warpgroups and types that it multiplies, found {target.name}, {warps} warps and "
            f"{operand_tile(op.lhs.type).element_type}",
            "compute it with tile.dot on tiles read by async.read, or let plan-dataflow choose",
        )
    return "wgmma"


def _best(shape: DotShape, unit: str, warps: int, lhs_in_registers: bool, chain: bool) -> DotChoice:
    """The way by `unit` that is best where nothing else is known."""
    if unit == "wgmma":
        return wgmma_choice(shape, warps, lhs_in_registers)
    return mma_choice(shape, warps, chain) if unit == "mma" else fma_choice(shape, warps)


def register_operand(op: tile.DotOp, warps: int, target: Target) -> TVLayout | None:
    """How the instruction takes the left operand from registers; None if it is read from a buffer always."""
    shape = dot_shape(op)
    if not shape.kind.tensor_core:
        return None
    return _best(shape, "wgmma" if takes_wgmma(op, warps, target) else "mma", warps, True, in_chain(op)).lhs


def dot_requirements(op: tile.DotOp | async_copy.DotOp, warps: int, target: Target) -> DotChoice:
    """The way of a dot: the one that its attribute `instruction` names (infer-layouts has put it there), else the one that is best where nothing else is
    known, of an `async.dot` by wgmma, of a `tile.dot` by mma.sync.

    Raises TeselaError for element types without an instruction, for an `async.dot` on a target without wgmma, and where
    the accumulator does not fit the registers of `warps` warps.
    """
    unit, shape = unit_of(op, warps, target), dot_shape(op)
    stated = op.attributes.get("instruction")
    choice = named_way(stated.data, shape, warps, isinstance(op.lhs.type, TensorType)) if isinstance(stated, StringAttr) else None
    if choice is None:
        choice = _best(shape, unit, warps, isinstance(op.lhs.type, TensorType), in_chain(op))
    if registers_of(choice.acc, element_type(async_copy.pending_tile(op.acc.type))) > accumulator_limit(warps, target):
        raise accumulator_error(op, warps, target, choice)
    return choice


SWAPPED = "transposed"
"""The word for ways that compute the transposed dot."""
_WAY = re.compile(rf"(wgmma|mma|fma) m\d+n(\d+)k\d+ (?:(\d+)x)?(\d+)x(\d+) (shared|registers)( {SWAPPED})?")


def gains_transposed(shape: DotShape, unit: str) -> bool:
    """Whether the instructions of the transposed dot multiply less padding."""
    rows, columns = {"wgmma": (WGMMA_ROWS, 8), "mma": (MMA_ROWS, MMA_COLUMNS)}[unit]
    return round_up(shape.n, rows) * round_up(shape.m, columns) < round_up(shape.m, rows) * round_up(shape.n, columns)


def named_way(text: str, shape: DotShape, warps: int, lhs_in_registers: bool) -> DotChoice | None:
    """The way that a whole `instruction` names (`dot_candidates` says how they are written), None for only some words of one."""
    match = _WAY.fullmatch(text)
    if match is None:
        return None
    n, down, along = int(match[2]), int(match[4]), int(match[5])
    if match[7]:
        shape = shape.transposed()
    if match[1] == "wgmma":
        choice = wgmma_way(shape, warps // WARPGROUP_WARPS, down, along, n, lhs_in_registers)
    else:
        choice = (mma_way if match[1] == "mma" else fma_way)(shape, warps, int(match[3] or 1), down, along)
    return choice.transposed() if match[7] else choice


def accumulator_error(
    op: tile.DotOp | async_copy.DotOp, warps: int, target: Target, choice: DotChoice | None = None
) -> TeselaError:
    """That no way's accumulator (or that of `choice`) fits the registers."""
    if choice is None:
        choice = _best(dot_shape(op), unit_of(op, warps, target), warps, False, False)
    acc = async_copy.pending_tile(op.acc.type)
    used, limit = registers_of(choice.acc, element_type(acc)), accumulator_limit(warps, target)
    return TeselaError.at(
        op,
        f"the accumulator {_plain(acc)} takes {used} registers of each of {32 * warps} threads, {limit} are free for it",
        "make the tile smaller, or give the kernel more warps (attributes {warps = …})",
    )


def accumulator_limit(warps: int, target: Target) -> int:
    """Registers of a thread that an accumulator may take: ptxas gives a thread 1/threads of the register file, in units of 8
    (CUDA C++ Programming Guide, "Compute Capabilities")."""
    entry = min(target.max_registers_per_thread, target.registers_per_sm // (32 * warps) // 8 * 8)
    return entry - RESERVED_REGISTERS


def accumulator_registers(op: tile.DotOp, warps: int, target: Target) -> int:
    """Registers of a thread that the op's accumulator takes with `warps` warps."""
    unit = "wgmma" if takes_wgmma(op, warps, target) else unit_of(op, warps, target)
    return registers_of(_best(dot_shape(op), unit, warps, False, in_chain(op)).acc, element_type(op.acc.type))


def _plain(kind: Attribute) -> str:
    return f"tensor<{'x'.join(map(str, shape_of(kind)))}x{element_type(kind)}>"


CHAIN_LIMIT = 64
"""Ops that the search for a neighbouring dot looks at; beyond, none is assumed."""


def in_chain(op: tile.DotOp | async_copy.DotOp) -> bool:
    """Whether the result becomes, element by element, the left operand of another dot, or the left operand came so from one."""
    shape = async_copy.pending_tile(op.acc.type).get_shape()
    seen: set[Operation] = set()
    work: list[SSAValue] = list(op.results)
    while work and len(seen) < CHAIN_LIMIT:
        for use in work.pop().uses:
            user = use.operation
            if isinstance(user, tile.DotOp | async_copy.DotOp) and use.index == 0:
                return True
            if user not in seen and _elementwise(user, shape):
                seen.add(user)
                work += user.results
    work, seen = [op.lhs], set()
    shape = operand_tile(op.lhs.type).get_shape()
    while work and len(seen) < CHAIN_LIMIT:
        source = work.pop().owner
        if isinstance(source, tile.DotOp | async_copy.DotOp):
            return True
        if isinstance(source, Operation) and source not in seen and _elementwise(source, shape):
            seen.add(source)
            work += source.operands
    return False


def _elementwise(op: Operation, shape: tuple[int, ...]) -> bool:
    """Whether all results are tiles of this shape, made without control flow: their elements stay where they are."""
    if op.regions or isinstance(op, tile.TransposeOp | tile.ReshapeOp | tile.GatherOp | scf.YieldOp):
        return False
    return bool(op.results) and all(_tile_shape(value.type) == shape for value in op.results)


def _tile_shape(kind: Attribute) -> tuple[int, ...]:
    return kind.tile.get_shape() if isinstance(kind, async_copy.PendingType) else shape_of(kind)


# ---- channels -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChannelNeeds:
    """What the readers of a channel need of its buffers: `extents`, at least the tile's, and whether what lies past the
    tile's own extents must be zeros (`zeros`: some reader sums over it)."""

    extents: tuple[int, ...]
    zeros: bool


def buffer_readers(channel: SSAValue) -> Iterator[tuple[Operation, int, tuple[int, ...]]]:
    """The ops that read a channel's buffers: (op, index of the operand, for each dimension of what it reads the channel's)."""
    work: list[tuple[SSAValue, tuple[int, ...]]] = []
    for use in channel.uses:
        if isinstance(use.operation, async_copy.GetOp):
            work.append((use.operation.res, tuple(range(len(channel.type.shape)))))
    while work:
        buffer, dims = work.pop()
        for use in buffer.uses:
            user = use.operation
            if isinstance(user, async_copy.TransposeOp):
                work.append((user.res, tuple(dims[d] for d in user.order)))
            else:
                yield user, use.index, dims


def channel_needs(channel: SSAValue, target: Target) -> ChannelNeeds:
    """The extents that the channel's readers reach, and whether they need zeros there."""
    shape = channel.type.shape
    extents: Sequence[int] = shape
    zeros = False

    def need(dot: tile.DotOp | async_copy.DotOp, index: int, dims: tuple[int, ...]) -> None:
        nonlocal extents, zeros
        choice = dot_requirements(dot, block_warps(dot), target)
        extents = reach(extents, choice, index, dims)
        zeros |= choice.sums_padding and choice.extents[2] > shape[dims[-1] if index == 0 else dims[-2]]

    for user, index, dims in buffer_readers(channel):
        if isinstance(user, async_copy.DotOp):
            need(user, index, dims)
        elif isinstance(user, async_copy.ReadOp):
            for use in user.res.uses:
                if isinstance(use.operation, tile.DotOp) and use.index < 2:
                    need(use.operation, use.index, dims)
    return ChannelNeeds(tuple(extents), zeros)


def contiguous_dim(put: async_copy.PutOp) -> int | None:
    """The tile's dimension along which the array's elements lie side by side; None if none is known to be."""
    kind = put.array.type
    strides = static_strides(kind)
    return next((d for d, of in enumerate(put.tile_dims()) if strides[of] == 1), None)


def channel_layouts(channel: async_copy.ChannelOp, reach: Sequence[int]) -> list[list[SharedLayout]]:
    """The layouts that a channel's buffers may have where they must reach `reach`: for each dimension, those contiguous along it, in rows of each span
    that TMA writes and that divides the extent. First along the dimension that is contiguous in the array it is filled from (from registers: the
    last one), so that whole vectors or boxes can be copied; wide rows first."""
    size = memory_bytes(channel.res.type.element)
    puts = [use.operation for use in channel.res.uses if isinstance(use.operation, async_copy.PutOp)]
    first = contiguous_dim(puts[0]) if puts else None
    rank = len(reach)
    if rank == 1:  # there is one row, which lies as it is: nobody reads across
        return [[SharedLayout.row_major((round_up(reach[0], 16 // size),))]]
    first = rank - 1 if first is None else first
    found = []
    for inner in (first, *(d for d in reversed(range(rank)) if d != first)):
        extents = list(reach)
        # A row is 16 bytes at least. What is added here is read by nobody.
        extents[inner] = round_up(extents[inner], 16 // size)
        order = (inner, *(d for d in reversed(range(rank)) if d != inner))
        spans = [span for span in (128, 64, 32, 0) if extents[inner] * size % (span or 16) == 0]
        found.append([SharedLayout.tma(tuple(extents), size, span, order) for span in spans])
    return found


def copy_layout(layout: SharedLayout, shape: Sequence[int], threads: int, vector: int, array_inner: int | None) -> TVLayout:
    """How threads share a copy into a buffer: along its contiguous dimension first, `vector` elements each; of single elements, along the one that is
    contiguous in the array (`array_inner`)."""
    inner = contiguous_of(layout, len(shape) - 1)
    if vector == 1 and array_inner is not None:
        inner = array_inner
    order = (inner, *(d for d in reversed(range(len(shape))) if d != inner))
    return TVLayout.blocked(tuple(shape), threads, order, vector)


def contiguous_of(layout: SharedLayout, otherwise: int) -> int:
    """The dimension along which a buffer's elements lie side by side."""
    return next((d for d, digits in enumerate(layout.normalized().modes) if digits and digits[0][1] == 1), otherwise)


def registers_of(layout: TVLayout, element: Attribute) -> int:
    """32-bit registers of a thread that a tile of this layout takes."""
    return -(-layout.num_values * memory_bytes(element) // REGISTER_BYTES)


def reach(shape: Sequence[int], choice: DotChoice, index: int, dims: Sequence[int]) -> tuple[int, ...]:
    """How far a dot reads an operand's buffer of a tile of `shape`; `dims`: for each of the operand's dimensions the buffer's."""
    m, n, k = choice.extents
    extents = list(shape)
    rows, columns = (m, k) if index == 0 else (k, n)
    for d, extent in ((dims[-2], rows), (dims[-1], columns)):
        extents[d] = max(extents[d], extent)
    return tuple(extents)


def block_warps(op: Operation) -> int:
    """The number of warps that do what an op does: of the role round it, or the `warps` of the kernel. Raises TeselaError where
    `plan-dataflow` has not set it."""
    if (found := role_of(op)) is not None:
        return found[0].role_warps[found[1]]
    parent: Operation | None = op
    while parent is not None and not isinstance(parent, tile.KernelOp):
        parent = parent.parent_op()
    warps = parent.attributes.get("warps") if parent is not None else None
    if warps is None:
        raise TeselaError.at(op, "the kernel's number of warps is not known", "run plan-dataflow first, or state attributes {warps = 8 : i64}")
    return warps.value.data


# ---- how a channel is filled ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutChoice:
    """How a put is done, and, where it is not the best way that the target has, why not."""

    via: str
    reason: str | None = None


def choose_put(
    put: async_copy.PutOp,
    layout: SharedLayout,
    needs: ChannelNeeds,
    target: Target,
    divisor: Callable[[SSAValue], int],
    align: int,
) -> PutChoice:
    """'tma', 'cp.async' or 'ld' for a put. `needs`: of its channel; `divisor(index)` divides an index value; `align`: bytes that the
    array's base address and all its strides but unit ones are multiples of.

    TMA wants (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA 9.0 §5.5): base and strides of multiples of 16 bytes, a unit stride, at most
    5 dimensions, a start that is a multiple of 16 bytes along the contiguous one (measured: an illegal instruction otherwise), and writes
    the whole box, so that padding that must be zero rules it out. It reads through the async proxy, which does not see the
    block's own earlier stores.
    """
    inner = contiguous_dim(put)
    of = put.tile_dims()
    size = memory_bytes(put.channel.type.element)
    align = known_align(put, align)
    start = divisor(put.indices[of[inner]]) * size if inner is not None else 1
    width = copy_bytes(put, layout, divisor, align)
    if target.has_tma:
        reason = None
        if inner is None:
            reason = "no dimension of the tile is known to have stride 1"
        elif _transposes(layout, inner):
            reason = TRANSPOSED
        elif align % 16:
            reason = f"base and strides are only known to be multiples of {align} bytes, TMA needs 16: state align = 16"
        elif start % 16:
            reason = f"its start along the contiguous dimension is only known to be a multiple of {start} bytes, TMA needs 16"
        elif put.array.type.get_num_dims() > MOST_TMA_DIMS:
            reason = f"the array has {put.array.type.get_num_dims()} dimensions, TMA takes {MOST_TMA_DIMS}"
        elif needs.zeros:
            reason = f"a dot sums over K in steps of {STEP_BYTES} bytes, and the tile's K is no multiple: the rest must be zero"
        elif layout.tma_form(size) is None:
            reason = f"TMA does not write the layout {layout}"
        elif (store := earlier_store(put)) is not None:
            name = store.array.name_hint or "an array"
            reason = f"the block may have stored to the same memory before, through %{name}: state noalias if it has not"
        if reason is None:
            return PutChoice("tma")
        return PutChoice("cp.async" if inner is not None and width in CP_ASYNC_BYTES else "ld", reason)
    if inner is not None and width in CP_ASYNC_BYTES:
        return PutChoice("cp.async")
    if inner is not None and _transposes(layout, inner):
        return PutChoice("ld", TRANSPOSED)
    return PutChoice(
        "ld", "cp.async copies 4 bytes at least, and " + (
            "no dimension of the tile is known to have stride 1" if inner is None
            else f"base, strides and start are only known to be multiples of {width} bytes: state align = 16"
        )
    )


MOST_TMA_DIMS = 5
"""Of an array (CUDA driver API, cuTensorMapEncodeTiled)."""


def tma_load_opcode(rank: int, cluster: bool) -> str:
    """The copy of a box of an array of `rank` dimensions into shared memory, of one block, or by addresses of its cluster."""
    return f"cp.async.bulk.tensor.{rank}d.shared::{'cluster' if cluster else 'cta'}.global.tile.mbarrier::complete_tx::bytes"


def tma_store_opcode(rank: int) -> str:
    return f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"


def cp_async_opcode(width: int) -> str:
    """The copy of `width` bytes: 16 past the first-level cache, fewer through it (PTX ISA 9.0 §9.7.9.25.3)."""
    return f"cp.async.{'cg' if width == 16 else 'ca'}.shared.global"


CP_ASYNC_BYTES = (4, 8, 16)

TRANSPOSED = "its readers want it contiguous along another dimension than the array is: it is transposed on the way"


def _transposes(layout: SharedLayout, array_inner: int) -> bool:
    return layout.contiguous(array_inner) == 1 and layout.shape()[array_inner] > 1


def copy_bytes(
    put: async_copy.PutOp, layout: SharedLayout, divisor: Callable[[SSAValue], int], align: int
) -> int:
    """Bytes of the widest vector, 16 at most, that a put may copy: aligned in the array and whole in the buffer."""
    inner = contiguous_dim(put)
    size = memory_bytes(put.channel.type.element)
    if inner is None:
        return size
    align = known_align(put, align)
    start = divisor(put.indices[put.tile_dims()[inner]]) * size
    width = 16
    tile_row = put.channel.type.shape[inner] * size
    while width > size and any(n % width for n in (align, start, tile_row, layout.contiguous(inner) * size)):
        width //= 2
    return width


def known_align(put: async_copy.PutOp, align: int) -> int:
    """`align`, and what divides the strides that the array's type states."""
    for stride in static_strides(put.array.type):
        if stride is not None and stride != 1:
            align = gcd(align, stride * memory_bytes(put.channel.type.element))
    return align


def earlier_store(put: async_copy.PutOp) -> Operation | None:
    """A store of the kernel that may come before the put and may write the memory it reads; None if there is none."""
    kernel: Operation = put
    while not isinstance(kernel, tile.KernelOp):
        parent = kernel.parent_op()
        assert parent is not None, "a put stands in a kernel"
        kernel = parent
    for array in kernel.args:
        if isinstance(array.type, MemRefType) and may_alias(kernel, array, put.array):
            for use in array.uses:
                if may_write(use.operation) and may_precede(use.operation, put, across_tiles=False):
                    return use.operation
    return None


def may_alias(kernel: tile.KernelOp, a: SSAValue, b: SSAValue) -> bool:
    return a is b or not any(kernel.arg_attr(kernel.args.index(array), "noalias") is not None for array in (a, b))


def may_precede(first: Operation, second: Operation, across_tiles: bool = True) -> bool:
    """Whether `first` may be executed before `second`: it stands before it, or a loop round both comes back. Not `across_tiles`: for the same point
    of the logical grid; others are independent, whichever block does them."""
    chain: dict[Operation, Operation] = {}  # each op round `first` -> the op in it that holds `first`
    op: Operation | None = first
    while op is not None and (parent := op.parent_op()) is not None:
        chain[parent] = op
        op = parent
    op = second
    while op is not None and (parent := op.parent_op()) is not None:
        if parent in chain:
            if _loops_round(parent, across_tiles):
                return True
            mine = chain[parent]
            return mine is not op and mine.parent is op.parent and mine.is_before_in_block(op)
        op = parent
    return False


INDEPENDENT = "independent"
"""The attribute of a loop whose trips are points of the kernel's logical grid, which do not depend on one another."""


def _loops_round(op: Operation, across_tiles: bool) -> bool:
    parent: Operation | None = op
    while parent is not None:
        if isinstance(parent, scf.ForOp | scf.WhileOp) and (across_tiles or INDEPENDENT not in parent.attributes):
            return True
        parent = parent.parent_op()
    return False
