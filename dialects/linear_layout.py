"""The power-of-two part of the layout algebra as matrices over F2: inverses, and bank conflicts by rank.

If every extent is a power of two and no two digits can carry into each other, a layout maps the *bits* of its index to
bits of its result so that addition and XOR are the same thing. It is then a matrix over F2 (arXiv 2505.23819), stored
as one integer per input bit: the image of that bit. A swizzle, itself an XOR of bits, is one more such matrix. What
would take trials on tables becomes elimination on a dozen integers:

  * to move a tile from buffer order to register order is a product with an inverse;
  * two layouts reach the same elements if their images span the same space;
  * a warp's bank conflicts are a rank. In one wavefront the lanes touch 2^rank(W) distinct words, W the matrix from
    lane and vector bits to word address; they fall on 2^rank(B) banks, B the five lowest rows of W. Every bank gets
    equally many words, 2^(rank W - rank B) of them, and each costs one pass.

Worked example: 8 lanes read 16 bytes each from one column of a bf16 tile with rows of 128 bytes (`ldmatrix`). Lane bits
move the word address by 32, 64, 128: all multiples of 32, so B sees only the two bits inside a 16-byte vector: rank W =
5, rank B = 2, 8 passes. The swizzle <3,3,3> adds 4, 8, 16 to those three columns: rank B = 5, one pass.

>>> from tesela.dialects.layout import SharedLayout, TVLayout
>>> rows = TVLayout.parse("thread [8:(1,0)], value [8:(0,1)]")
>>> bank_conflicts(rows, SharedLayout.row_major((8, 64)), 2, 16)
8
>>> bank_conflicts(rows, SharedLayout.tma((8, 64), 2, 128, (1, 0)), 2, 16)
1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .shared_layout import SharedLayout, Swizzle
from .tv_layout import WARP, LayoutError, Mode, TVLayout, split_modes, sumset

BANKS = 32
"""Banks of shared memory, each one 4-byte word wide (CUDA C++ programming guide, compute capability 9.0)."""
WORD = 4
"""Bytes of a bank's word."""


def _bits(extent: int, what: str) -> int:
    """log2 of a power of two."""
    if extent & (extent - 1):
        raise LayoutError(f"no matrix over F2: {what} is {extent}, and every extent must be a power of two")
    return extent.bit_length() - 1


def reduced_basis(vectors: Iterable[int]) -> list[int]:
    """Linearly independent vectors (bits of integers over F2) with the same span, each with a top bit of its own.

    >>> reduced_basis([0b110, 0b011, 0b101])
    [6, 3]
    """
    basis: list[int] = []
    for vector in vectors:
        for b in basis:
            vector = min(vector, vector ^ b)
        if vector:
            basis.append(vector)
            basis.sort(reverse=True)
    return basis


def rank(vectors: Iterable[int]) -> int:
    """Dimension of the span of bit vectors over F2.

    >>> rank([0b110, 0b011, 0b101])
    2
    """
    return len(reduced_basis(vectors))


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """A linear map over F2 from bit vectors to bit vectors.

    `columns[i]` is the image of input bit i; results have `out_bits` bits. The image of an index is the XOR of the
    columns of its set bits.

    >>> LinearLayout((2, 1), 2).apply(0b01), LinearLayout((2, 1), 2).apply(0b11)
    (2, 3)

    Raises LayoutError if a column does not fit in `out_bits` bits.
    """

    columns: tuple[int, ...]
    out_bits: int

    def __post_init__(self) -> None:
        if any(not 0 <= column < 1 << self.out_bits for column in self.columns):
            raise LayoutError(f"columns {self.columns} do not fit in {self.out_bits} bits")

    @property
    def in_bits(self) -> int:
        """Bits of the index."""
        return len(self.columns)

    def apply(self, index: int) -> int:
        """The image of `index`. Raises LayoutError if it has more than `in_bits` bits."""
        if not 0 <= index < 1 << self.in_bits:
            raise LayoutError(f"index {index} is out of range: the layout takes {self.in_bits} bits")
        out = 0
        for i, column in enumerate(self.columns):
            if index >> i & 1:
                out ^= column
        return out

    def compose(self, inner: LinearLayout) -> LinearLayout:
        """The layout index -> self(inner(index)).

        >>> LinearLayout((2, 1), 2).compose(LinearLayout((3,), 2)).columns
        (3,)

        Raises LayoutError if `inner` produces more bits than this layout takes.
        """
        if inner.out_bits > self.in_bits:
            raise LayoutError(
                f"cannot compose: the inner layout gives {inner.out_bits} bits, the outer takes {self.in_bits}"
            )
        return LinearLayout(tuple(map(self.apply, inner.columns)), self.out_bits)

    @property
    def rank(self) -> int:
        """log2 of the number of different results."""
        return rank(self.columns)

    def kernel(self) -> tuple[int, ...]:
        """Independent indices with image 0: steps of the index that stay on the same element (its broadcasts).

        >>> LinearLayout((1, 2, 3), 2).kernel()
        (7,)
        """
        basis: list[tuple[int, int]] = []  # (image, index), images with distinct top bits, highest first
        kernel: list[int] = []
        for i, image in enumerate(self.columns):
            index = 1 << i
            for b, at in basis:
                if image ^ b < image:
                    image, index = image ^ b, index ^ at
            if image:
                basis.append((image, index))
                basis.sort(reverse=True)
            else:
                kernel.append(index)
        return tuple(kernel)

    def solve(self, result: int) -> int | None:
        """One index whose image is `result`, or None if there is none.

        >>> LinearLayout((1, 3), 2).solve(2), LinearLayout((1,), 2).solve(2)
        (3, None)
        """
        basis: list[tuple[int, int]] = []
        for i, image in enumerate(self.columns):
            image, index = _reduce(image, 1 << i, basis)
            if image:
                basis.append((image, index))
                basis.sort(reverse=True)
        image, index = _reduce(result, 0, basis)
        return None if image else index

    def right_inverse(self) -> LinearLayout:
        """A layout R with self(R(result)) == result for every result.

        >>> LinearLayout((1, 1, 2), 2).right_inverse().columns
        (1, 4)

        Raises LayoutError if some result has no index (rank below `out_bits`).
        """
        columns = [self.solve(1 << bit) for bit in range(self.out_bits)]
        if None in columns:
            raise LayoutError(f"not invertible: rank {self.rank} does not reach all {self.out_bits} bits of the result")
        return LinearLayout(tuple(column for column in columns if column is not None), self.in_bits)

    def invert(self) -> LinearLayout:
        """The inverse. Raises LayoutError unless the layout is a bijection (it then has no broadcast).

        >>> LinearLayout((1, 3), 2).invert().columns
        (1, 3)
        """
        if self.in_bits != self.out_bits:
            raise LayoutError(f"not invertible: {self.in_bits} bits go to {self.out_bits}")
        return self.right_inverse()

    def __str__(self) -> str:
        """The matrix, highest result bit first, highest input bit left.

        >>> print(LinearLayout((1, 3), 2))
        1 0
        1 1
        """
        rows = range(self.out_bits - 1, -1, -1)
        return "\n".join(" ".join(str(column >> row & 1) for column in reversed(self.columns)) for row in rows)

    # ---- from the other forms -----------------------------------------------------------------------------------

    @staticmethod
    def of_registers(layout: TVLayout, shape: Sequence[int] | None = None) -> LinearLayout:
        """The matrix of a thread-value layout: (thread bits, then value bits) -> packed coordinates.

        Packed: the last dimension's coordinate in the lowest bits, each dimension as many bits as its extent in `shape`
        (default: the layout's own, which must be powers of two) takes.

        >>> layout = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]")
        >>> LinearLayout.of_registers(layout).columns
        (2, 4, 8, 16, 32, 1)

        Raises LayoutError if an extent is no power of two or digits can carry into each other.
        """
        shape = layout.shape() if shape is None else shape
        widths = [_bits(extent, f"the extent of dimension {d}") for d, extent in enumerate(shape)]
        if any(n > m for n, m in zip(layout.shape(), shape, strict=True)):
            raise LayoutError(f"no matrix over F2: the layout reaches {layout.shape()}, beyond {tuple(shape)}")
        columns: list[int] = []
        for mode in (*layout.thread, *layout.value):
            for i in range(_bits(mode.extent, f"the extent of {mode}")):
                packed = 0
                for stride, width in zip(mode.stride, widths, strict=True):
                    packed = packed << width | stride << i
                columns.append(packed)
        _check_disjoint(columns)
        return LinearLayout(tuple(columns), sum(widths))

    @staticmethod
    def of_shared(layout: SharedLayout) -> LinearLayout:
        """The matrix of a shared layout: packed coordinates (as in `of_registers`) -> element offset.

        >>> LinearLayout.of_shared(SharedLayout.tma((4, 64), 2, 128, (1, 0))).columns
        (1, 2, 4, 8, 16, 32, 72, 144)

        Raises LayoutError if an extent is no power of two or digits can carry into each other.
        """
        columns: list[int] = []
        for digits in reversed(layout.modes):
            for extent, stride in digits:
                columns += [stride << i for i in range(_bits(extent, f"the extent of {extent}:{stride}"))]
        _check_disjoint(columns)
        if layout.swizzle:
            columns = [layout.swizzle.apply(column) for column in columns]
        return LinearLayout(tuple(columns), max([1, *columns]).bit_length())


def _reduce(image: int, index: int, basis: Sequence[tuple[int, int]]) -> tuple[int, int]:
    for b, at in basis:
        if image ^ b < image:
            image, index = image ^ b, index ^ at
    return image, index


def _disjoint(columns: Sequence[int]) -> bool:
    """True if no bit is set in two columns. Exactly then their sums are XORs: else adding both carries."""
    return sum(columns).bit_count() == sum(column.bit_count() for column in columns)


def _check_disjoint(columns: Sequence[int]) -> None:
    if not _disjoint(columns):
        raise LayoutError("no matrix over F2: two digits move the same bit, so their sum would carry")


# ---- bank conflicts --------------------------------------------------------------------------------------------------


def lanes_per_wavefront(vector_bytes: int) -> int:
    """Lanes of a warp whose accesses shared memory serves together: 32 up to 4 bytes each, 16 at 8, 8 at 16.

    Source: 32 banks of 4 bytes serve 128 bytes a clock (measured: ld.shared.v4 at 128 B per clock and SM).
    Raises LayoutError for a width that no load or store has.
    """
    if vector_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError(f"no shared-memory access is {vector_bytes} bytes wide: use 1, 2, 4, 8 or 16")
    return min(WARP, BANKS * WORD // vector_bytes)


@lru_cache(maxsize=8192)
def bank_conflicts(registers: TVLayout, shared: SharedLayout, element_bytes: int, vector_bytes: int) -> int:
    """Wavefronts that one warp-wide access of `vector_bytes` per lane takes between a register tile and a buffer.

    Without conflicts that is 1 up to 4 bytes a lane, 2 at 8, 4 at 16 (fewer for layouts of fewer than 32 threads);
    divide by that for the ways. Where warps or values differ, the worst access counts. Exact: a rank for layouts that
    have a matrix over F2, else a count of the words that wavefronts touch. Lanes that want the same word share it.
    Elements past the buffer's extents are not accessed.

    >>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]")
    >>> bank_conflicts(acc, SharedLayout.row_major((8, 64)), 2, 4)             # 8 rows, each 32 banks apart
    8
    >>> bank_conflicts(acc, SharedLayout.row_major((8, 64), pad=8), 2, 4)
    1

    Raises LayoutError if a vector is not consecutive and aligned on both sides, or its width does not exist.
    """
    lanes = lanes_per_wavefront(vector_bytes)
    if vector_bytes % element_bytes:
        raise LayoutError(f"an access of {vector_bytes} bytes holds no whole number of {element_bytes}-byte elements")
    if registers.rank != shared.rank:
        raise LayoutError(f"the register tile has {registers.rank} dimensions and the buffer {shared.rank}")
    width = vector_bytes // element_bytes
    dims = range(shared.rank)
    if width > 1 and not any(registers.contiguous(d) % width == 0 == shared.contiguous(d) % width for d in dims):
        raise LayoutError(
            f"{width} elements do not lie consecutive and aligned both in each thread of {registers} and in the buffer "
            f"{shared}"
        )
    found = _wavefronts_by_digits(registers, shared, element_bytes, width, lanes)
    return found or _wavefronts_by_count(registers, shared, element_bytes, width, lanes)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Why an access takes as many wavefronts as it does: in each of `groups` of lanes served together, 2^words different words lie in 2^banks
    different banks, every bank with equally many."""

    groups: int
    words: int
    banks: int

    @property
    def wavefronts(self) -> int:
        return self.groups << (self.words - self.banks)


@lru_cache(maxsize=1024)
def conflict_ranks(registers: TVLayout, shared: SharedLayout, element_bytes: int, vector_bytes: int) -> Ranks | None:
    """The ranks behind `bank_conflicts`; None for layouts whose wavefronts are counted instead.

    >>> rows = TVLayout.parse("thread [8:(1,0)], value [8:(0,1)]")
    >>> conflict_ranks(rows, SharedLayout.row_major((8, 64)), 2, 16)
    Ranks(groups=1, words=5, banks=2)
    >>> conflict_ranks(rows, SharedLayout.tma((8, 64), 2, 128, (1, 0)), 2, 16)
    Ranks(groups=1, words=5, banks=5)
    """
    lanes, width = lanes_per_wavefront(vector_bytes), vector_bytes // element_bytes
    near = _near_digits(registers, shared, width, lanes)
    return _ranks(registers, shared, element_bytes, near[0], near[1], lanes) if near is not None else None


def _near_digits(
    registers: TVLayout, shared: SharedLayout, width: int, lanes: int
) -> tuple[tuple[Mode, ...], tuple[Mode, ...]] | None:
    """The digits of an access's offsets that are *near*, within one wavefront (lanes and vector), and *far*, those that lead from one to the next; None where
    digits do not tell, or some lanes of the first wavefront idle, so that it is not the fullest."""
    offsets = _offset_digits(registers, shared)
    if offsets is None:
        return None
    thread, value = offsets
    try:
        lane_group, groups = split_modes(thread, lanes)
        in_vector, vectors = split_modes(value, width)
        near_shape = TVLayout(split_modes(registers.thread, lanes)[0], split_modes(registers.value, width)[0]).shape()
    except LayoutError:
        return None
    if any(n > m for n, m in zip(near_shape, shared.shape(), strict=False)):
        return None
    return (*lane_group, *in_vector), (*groups, *vectors)


def _ranks(
    registers: TVLayout, shared: SharedLayout, element_bytes: int, near: tuple[Mode, ...], far: tuple[Mode, ...], lanes: int
) -> Ranks | None:
    """If near and far move different bits, all wavefronts are images of the first under an XOR, which permutes banks: ranks answer."""
    columns = [mode.stride[0] << i for mode in near for i in range(mode.extent.bit_length() - 1)]
    powers = all(mode.extent & (mode.extent - 1) == 0 for mode in near)
    if not (powers and element_bytes & (element_bytes - 1) == 0 and _disjoint(columns) and _apart(columns, far)):
        return None
    if shared.swizzle:
        columns = [shared.swizzle.apply(column) for column in columns]
    # An element of several words adds its own bits to both ranks alike, so they are left out.
    words = [column * element_bytes // WORD for column in columns]
    return Ranks(-(-min(registers.num_threads, WARP) // lanes), rank(words), rank(word % BANKS for word in words))


def _wavefronts_by_digits(
    registers: TVLayout, shared: SharedLayout, element_bytes: int, width: int, lanes: int
) -> int | None:
    """The wavefronts of a warp-wide access from the digits of its offsets, or None where they do not tell: by `_ranks`, or, if there is no swizzle and all
    wavefronts are translates of the first by whole words, which rotate banks, by counting that one."""
    digits = _near_digits(registers, shared, width, lanes)
    if digits is None:
        return None
    near, far = digits
    found = _ranks(registers, shared, element_bytes, near, far, lanes)
    if found is not None:
        return found.wavefronts
    if shared.swizzle or any(mode.stride[0] * element_bytes % WORD for mode in far):
        return None
    count = -(-min(registers.num_threads, WARP) // lanes)
    sums = sumset((mode.extent, mode.stride[0]) for mode in near)
    return (
        count * _ways(at * element_bytes for at in range(sums.bit_length()) if sums >> at & 1)
        if element_bytes <= WORD
        else None
    )


def _offset_digits(registers: TVLayout, shared: SharedLayout) -> tuple[tuple[Mode, ...], tuple[Mode, ...]] | None:
    """Thread and value digits of the element offset before the swizzle, if digits express it.

    Each digit of the register layout is cut where a coordinate of the buffer carries from one of its digits to the
    next; None if a cut falls inside a digit, or digits carry together.
    """
    radices = [digits or ((1, 0),) for digits in shared.normalized().modes]
    most = [[0] * (len(digits) - 1) for digits in radices]

    def through(modes: Sequence[Mode]) -> tuple[Mode, ...] | None:
        out: list[Mode] = []
        for mode in modes:
            extent, stride = mode.extent, mode.stride
            while extent > 1:
                run, offset = extent, 0
                steps: list[tuple[list[int], int, int]] = []
                for rest, digits, total in zip(stride, radices, most, strict=True):
                    for i, (limit, step) in enumerate(digits[:-1]):
                        rest, digit = divmod(rest, limit)
                        offset += digit * step
                        if digit:
                            run = min(run, -(-limit // digit))
                            steps.append((total, i, digit))
                    offset += rest * digits[-1][1]
                if extent % run:
                    return None
                for total, i, digit in steps:
                    total[i] += (run - 1) * digit
                out.append(Mode(run, (offset,)))
                extent //= run
                stride = tuple(run * s for s in stride)
        return tuple(out)

    thread, value = through(registers.thread), through(registers.value)
    for digits, total in zip(radices, most, strict=True):
        if any(reached >= limit for (limit, _), reached in zip(digits, total, strict=False)):
            return None
    return None if thread is None or value is None else (thread, value)


def _apart(columns: Sequence[int], far: Sequence[Mode]) -> bool:
    """True if no sum of far digits ever sets a bit of `columns`, so that adding it is an XOR."""
    used = 0
    for column in columns:
        used |= column
    exact: list[int] = []
    floor = 0  # far digits that are no powers of two may set any bit from their lowest on
    for mode in far:
        (stride,) = mode.stride
        if stride and mode.extent & (mode.extent - 1) == 0:
            exact += [stride << i for i in range(mode.extent.bit_length() - 1)]
        elif stride:
            low = stride & -stride
            floor = min(floor, low) if floor else low
    if not _disjoint(exact) or (floor and any(column >= floor for column in exact)):
        # They carry among themselves: from the lowest bit of any on, all bits are in doubt.
        floor = min([column & -column for column in exact] + ([floor] if floor else []))
        exact = []
    return not any(column & used for column in exact) and (not floor or used < floor)


def _ways(byte_addresses: Iterable[int]) -> int:
    """Passes for accesses within one word each at these addresses: the most different words in one bank."""
    banks = [0] * BANKS
    for word in {at // WORD for at in byte_addresses}:
        banks[word % BANKS] += 1
    return max(banks)


def _wavefronts_by_count(registers: TVLayout, shared: SharedLayout, element_bytes: int, width: int, lanes: int) -> int:
    """The wavefronts of the worst warp-wide access, by listing the words of each."""
    import numpy as np

    warps = -(-registers.num_threads // WARP)
    threads = np.array([registers.thread_coords(t) for t in range(registers.num_threads)], np.int64).reshape(-1, registers.rank)
    values = np.array([registers.value_coords(v) for v in range(0, registers.num_values, width)], np.int64).reshape(-1, registers.rank)
    coords = threads[None] + values[:, None]
    here = np.ones(coords.shape[:2], bool)
    offsets = np.zeros(coords.shape[:2], np.int64)
    for dim, (digits, extent) in enumerate(zip(shared.modes, shared.shape(), strict=True)):
        rest = coords[..., dim]
        here &= rest < extent
        for limit, stride in digits:
            rest, digit = np.divmod(rest, limit)
            offsets += digit * stride
    start = (shared.swizzle.apply(offsets) if shared.swizzle else offsets) * element_bytes
    first, last = start // WORD, (start + width * element_bytes - 1) // WORD
    words = first[..., None] + np.arange((width * element_bytes - 1) // WORD + 2)
    words = np.where(here[..., None] & (words <= last[..., None]), words, -1)
    # [access, wavefront's lanes, their words], each word once: of a warp that is not whole the rest has none.
    whole = np.full((len(values), warps * WARP, words.shape[-1]), -1, np.int64)
    whole[:, : registers.num_threads] = words
    groups = np.sort(whole.reshape(-1, lanes * words.shape[-1]), axis=1)
    once = groups >= 0
    once[:, 1:] &= groups[:, 1:] != groups[:, :-1]
    banks = np.arange(len(groups))[:, None] * BANKS + groups % BANKS
    counts = np.bincount(banks[once], minlength=len(groups) * BANKS).reshape(-1, BANKS)
    return int(counts.max(axis=1).reshape(-1, WARP // lanes).sum(axis=1).max(initial=0))


def best_swizzle(
    buffer: SharedLayout, accesses: Sequence[tuple[TVLayout, int]], element_bytes: int
) -> tuple[SharedLayout, int]:
    """`buffer` with the swizzle under which its accesses take the fewest wavefronts, and that number.

    `accesses` are (register layout, vector bytes), readers and writers together; each counts as many wavefronts as a
    thread has vectors times `bank_conflicts`. The buffer's own swizzle is ignored. All swizzles are tried that keep the
    widest vector whole, move bits within the 128 bytes of one pass over the banks, and take them from within the
    buffer; among equals the one with the fewest bits, then the smallest shift, wins.

    >>> column = TVLayout.parse("thread [8:(1,0), 4:(0,8)], value [8:(0,1)]")
    >>> buffer, wavefronts = best_swizzle(SharedLayout.row_major((8, 64)), [(column, 16)], 2)
    >>> str(buffer), wavefronts
    ('[8:64], [64:1], swizzle<3, 3, 3>', 4)

    Raises LayoutError as `bank_conflicts` does.
    """
    base = (max([vector for _, vector in accesses], default=element_bytes) // element_bytes).bit_length() - 1
    plain = SharedLayout(buffer.modes)
    top = (plain.size() - 1).bit_length()
    swizzles: list[Swizzle | None] = [None]
    for bits in range(1, (BANKS * WORD // element_bytes).bit_length() - base):
        swizzles += [Swizzle(bits, base, shift) for shift in range(bits, top - base)]
    best: tuple[int, SharedLayout] | None = None
    for swizzle in swizzles:
        candidate = SharedLayout(plain.modes, swizzle)
        cost = 0
        for registers, vector in accesses:
            vectors = registers.num_values * element_bytes // vector
            cost += vectors * bank_conflicts(registers, candidate, element_bytes, vector)
        if best is None or cost < best[0]:
            best = (cost, candidate)
    assert best is not None
    return best[1], best[0]
