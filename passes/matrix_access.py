"""How a tile moves between registers and a buffer: by 8×8 matrices (ldmatrix, stmatrix) or by vectors, decided from the two layouts alone.

ldmatrix and stmatrix move 8×8 matrices of 16-bit elements, or 8 rows of 16 bytes of any; lane l holds row l / 4, columns 2(l % 4) and one more, and lanes 8j … 8j+7 give
the addresses of the rows of matrix j (PTX ISA 9.0 §9.7.15.5.15). A register layout that starts so can be read through them: `matrix_form`
gives the layout of *addresses*, in which a lane is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from ..dialects.layout import LayoutError, Mode, SharedLayout, TVLayout, bank_conflicts, common_vector, split_modes
from ..dialects.ptx_isa import UNITS
from .access import VECTOR_BYTES
from .dot_types import REGISTER_BYTES
from .layout_costs import SLOTS
from .traded_stores import Trade, find_trade

Coords = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """`count` matrices an instruction (1, 2 or 4), transposed or not; `layout`: lanes are rows, values are instructions. `along`: the dimension that a
    row of a matrix runs along."""

    count: int
    transposed: bool
    layout: TVLayout
    along: int

    def opcode(self, name: str) -> str:
        """`name`: ldmatrix or stmatrix."""
        return matrix_opcode(name, self.count, self.transposed)


MATRIX_COUNTS = (4, 2, 1)
"""Matrices that one instruction may move, the most first."""


def matrix_opcode(name: str, count: int, transposed: bool) -> str:
    return f"{name}.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"


@lru_cache(maxsize=1024)
def matrix_form(registers: TVLayout, shared: SharedLayout, size: int) -> MatrixForm | None:
    """How ldmatrix (stmatrix) moves a tile of elements of `size` bytes between a buffer and registers; None if it cannot. Transposed it moves
    16-bit elements only; as they lie, a row is 16 bytes of any."""
    if size > 4:
        return None
    lanes, row_elements = 4 // size, 16 // size
    try:
        quad, rest = split_modes(registers.thread, 4)
        eight, others = split_modes(rest, 8)
        held, more = split_modes(registers.value, lanes) if lanes > 1 else ((), registers.value)
    except LayoutError:
        return None
    if len(quad) != 1 or len(eight) != 1 or (quad[0].extent, eight[0].extent) != (4, 8):
        return None
    rank = registers.rank
    column = next((d for d in range(rank) if quad[0].stride == _unit(d, rank, lanes)), None)
    row = next((d for d in range(rank) if eight[0].stride == _unit(d, rank)), None)
    if column is None or row is None or row == column:
        return None
    if lanes > 1 and (len(held) != 1 or held[0] != Mode(lanes, _unit(column, rank))):
        return None
    if any(reach > extent for reach, extent in zip(registers.shape(), shared.shape(), strict=True)):
        return None
    if shared.contiguous(column) % row_elements == 0:
        along, across = column, row
    elif size == 2 and shared.contiguous(row) % 8 == 0:
        along, across = row, column
    else:
        return None
    if any(mode.stride[along] % row_elements for mode in (*others, *more)):  # a row of a matrix is 16 aligned bytes
        return None
    for count in MATRIX_COUNTS:
        try:
            matrices, values = split_modes(more, count)
        except LayoutError:
            continue
        if _product(matrices) != count:
            continue
        idle = Mode(4 // count, (0,) * rank)  # lanes whose addresses the instruction does not use
        thread = (Mode(8, _unit(across, rank)), *matrices, idle, *others)
        return MatrixForm(count, along == row, TVLayout(thread, values or (Mode(1, (0,) * rank),)), along)
    return None


def _unit(dim: int, rank: int, step: int = 1) -> Coords:
    return tuple(step if d == dim else 0 for d in range(rank))


def _product(modes: Sequence[Mode]) -> int:
    total = 1
    for mode in modes:
        total *= mode.extent
    return total


def access_vector(layout: TVLayout, shared: SharedLayout, extents: Sequence[int], size: int) -> int:
    """How many elements of `size` bytes one access may move: side by side in both, inside `extents` as a whole, whole registers or one, at most 16
    bytes."""
    dim, width = common_vector(layout, shared)
    width = gcd(width, layout.num_values, VECTOR_BYTES // size)
    if layout.shape()[dim] > extents[dim]:
        width = gcd(width, extents[dim])
    return width if width in access_widths(size) else 1


def access_widths(size: int) -> list[int]:
    """How many elements of `size` bytes one access to a buffer may move: one, or whole registers."""
    return [vector for vector in (1, 2, 4, 8, 16) if vector == 1 or REGISTER_BYTES <= vector * size <= VECTOR_BYTES]


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """How a tile moves: `opcode` (without state space and type where several are meant), the number of instructions of a thread, wavefronts of each for a
    warp, and how many it would take at least. `trade`: of stores, which lanes take which accesses in the other order (`traded_stores`), for `selects`
    more instructions."""

    opcode: str
    count: int
    wavefronts: int
    least: int
    trade: Trade | None = None
    selects: int = 0

    @property
    def conflicts(self) -> int:
        """Wavefronts of one instruction beyond the least."""
        return self.wavefronts - self.least

    @property
    def slots(self) -> int:
        """What moving the tile costs each warp (`layout_costs`)."""
        return self.count * (1 + SLOTS * self.wavefronts) + UNITS["alu"].issue * self.selects


@lru_cache(maxsize=8192)
def buffer_access(layout: TVLayout, shared: SharedLayout, size: int, reads: bool, stmatrix: bool) -> BufferAccess:
    """How a tile of elements of `size` bytes moves from a buffer (`reads`) or to it. `stmatrix`: whether the target has it."""
    if (reads or stmatrix) and (form := matrix_form(layout, shared, size)) is not None:
        unit = tuple(int(d == form.along) for d in range(layout.rank))
        rows = TVLayout(form.layout.thread, (Mode(16 // size, unit), *form.layout.value))
        name = f"{'ldmatrix' if reads else 'stmatrix'}.x{form.count}{'.trans' if form.transposed else ''}"
        count = layout.num_values * size // (4 * form.count)
        # lanes whose addresses are not used stand still in the layout, and share another's words
        return BufferAccess(name, count, bank_conflicts(rows, shared, size, 16) * form.count // 4 or 1, form.count)
    vector = access_vector(layout, shared, shared.shape(), size)
    nbytes = vector * size
    least = max(1, nbytes // 4)
    found = BufferAccess(
        f"{'ld' if reads else 'st'}.shared {nbytes} B", layout.num_values // vector, bank_conflicts(layout, shared, size, nbytes), least
    )
    if reads or not found.conflicts or (trade := find_trade(layout, shared, size, vector)) is None:
        return found
    traded = replace(found, wavefronts=least, trade=trade, selects=layout.num_values * size // 4)
    return min(found, traded, key=lambda access: access.slots)
