"""Layouts of tiles in shared memory: tile coordinates to element offset, through strided digits and an XOR swizzle.

The essay that introduces them opens `tesela.dialects.layout`, which re-exports every name here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from math import gcd, prod

from .tv_layout import LayoutError, Mode, TVLayout, merge_modes

SWIZZLE_SPANS = (128, 64, 32)
"""Widths in bytes of a row in TMA's and wgmma's swizzle modes (PTX ISA 9.0 §5.5.7, §9.7.15.5.1)."""
CORE_ROW = 16
"""Bytes of a core-matrix row: the width of a row without swizzle, and the unit that a swizzle moves (same source)."""
TMA_BOX_LIMIT = 256
"""Largest extent of a TMA box along any dimension, in elements (CUDA driver API, cuTensorMapEncodeTiled)."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """CuTe's Swizzle<B, M, S>: XORs the `bits` bits at base + shift of an offset onto those at `base`.

    With a negative shift the bits at `base` go onto those at base - shift. |shift| must be at least `bits`, so applying
    it twice gives the offset back.

    >>> Swizzle(3, 3, 3).apply(64)          # row 1, chunk 0 of rows of 64 elements: to chunk 1
    72
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise LayoutError(f"{self}: bits and base must not be negative, and |shift| must be at least bits")

    def apply(self, offset: int) -> int:
        """The offset after the XOR."""
        mask = ((1 << self.bits) - 1) << self.base
        if self.shift >= 0:
            return offset ^ ((offset >> self.shift) & mask)
        return offset ^ ((offset & mask) << -self.shift)

    @property
    def period(self) -> int:
        """The swizzle looks at offsets modulo this power of two only: what a buffer's start must be a multiple of."""
        return 1 << (self.bits + self.base + abs(self.shift)) if self.bits else 1

    @property
    def block(self) -> int:
        """Offsets are permuted within aligned blocks of this size."""
        return 1 << (self.bits + self.base + max(-self.shift, 0)) if self.bits else 1

    def __str__(self) -> str:
        return f"swizzle<{self.bits}, {self.base}, {self.shift}>"


Digits = tuple[tuple[int, int], ...]
"""The mixed-radix digits of one coordinate, fastest first: (extent, stride in elements)."""


@dataclass(frozen=True, slots=True)
class TmaForm:
    """How TMA fills (or drains) a buffer: boxes one after another, each `span` elements wide along order[0].

    `swizzle_bytes` is 128, 64, 32 or 0 as in the tensor map; `order` lists the dimensions from the contiguous one on;
    `box` is the box's extent per tile dimension, none above 256. Box k of the tile starts at coordinates c (multiples
    of `box`) and lies at the buffer's `offset(c)`; `starts` lists these coordinates.
    """

    swizzle_bytes: int
    order: tuple[int, ...]
    box: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)
def _clash(modes: tuple[Digits, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """What `SharedLayout.clash` gives."""
    reach = 0
    for stride, extent in sorted((stride, extent) for digits in modes for extent, stride in digits if extent > 1):
        if stride <= reach:
            break
        reach += (extent - 1) * stride
    else:
        return None  # each digit steps past all that the smaller ones reach
    ways: list[list[int]] = []
    for digits in modes:
        way = [0]
        for extent, stride in digits:
            way = [at + digit * stride for digit in range(extent) for at in way]
        ways.append(way)
    seen: dict[int, tuple[int, ...]] = {}
    for coords in product(*map(range, map(len, ways))):
        offset = sum(way[at] for way, at in zip(ways, coords, strict=True))
        if (other := seen.setdefault(offset, coords)) is not coords:
            return other, coords
    return None


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A shared buffer's layout: tile coordinates -> element offset = swizzle(sum of digit * stride).

    `modes` has for each dimension the mixed-radix digits of its coordinate, fastest first, as (extent, stride); the
    product of the extents is how far that coordinate may go.

    >>> tile = SharedLayout.parse("[128:64], [64:1], swizzle<3, 3, 3>")
    >>> tile.offset((1, 0)), tile.offset((1, 8)), tile.offset((9, 3)), tile.size()
    (72, 64, 587, 8192)

    Raises LayoutError for an extent below 1 or a negative stride.
    """

    modes: tuple[Digits, ...]
    swizzle: Swizzle | None = None

    def __post_init__(self) -> None:
        if any(extent < 1 or stride < 0 for digits in self.modes for extent, stride in digits):
            raise LayoutError(f"shared layout {self}: extents must be at least 1 and strides must not be negative")

    # ---- the function -------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of tile dimensions."""
        return len(self.modes)

    def shape(self) -> tuple[int, ...]:
        """Extents that the layout has offsets for, per dimension."""
        return tuple(prod(extent for extent, _ in digits) for digits in self.modes)

    def covers(self, shape: Sequence[int]) -> bool:
        """True if every element of a tile of `shape` has an offset.

        >>> SharedLayout.row_major((8, 4)).covers((7, 4)), SharedLayout.row_major((8, 4)).covers((8, 5))
        (True, False)
        """
        return len(shape) == self.rank and all(n <= m for n, m in zip(shape, self.shape(), strict=True))

    def linear(self, coords: Sequence[int]) -> int:
        """The offset before the swizzle, in elements. Raises LayoutError if a coordinate is out of range."""
        if len(coords) != self.rank:
            raise LayoutError(f"{tuple(coords)} has {len(coords)} coordinates, the layout has {self.rank} dimensions")
        offset = 0
        for at, digits in zip(coords, self.modes, strict=True):
            rest = at
            for extent, stride in digits:
                rest, digit = divmod(rest, extent)
                offset += digit * stride
            if rest or at < 0:
                raise LayoutError(f"element {tuple(coords)} is outside the buffer's extents {self.shape()}")
        return offset

    def offset(self, coords: Sequence[int]) -> int:
        """The element's offset from the buffer's start, in elements. Raises LayoutError if it is out of range."""
        at = self.linear(coords)
        return self.swizzle.apply(at) if self.swizzle else at

    def size(self) -> int:
        """Elements that the buffer needs: past the largest offset, whole blocks of the swizzle."""
        last = sum((extent - 1) * stride for digits in self.modes for extent, stride in digits)
        block = self.swizzle.block if self.swizzle else 1
        return -(-(last + 1) // block) * block

    def alignment(self, element_bytes: int) -> int:
        """What the buffer's start address must be a multiple of, in bytes: the swizzle's period, and at least 128.

        The hardware swizzles the address, not the offset, so offset 0 must lie where the pattern starts; 128 is what
        TMA wants of every buffer (CUDA programming guide, tensor copies) and keeps 16-byte accesses aligned.

        >>> SharedLayout.tma((64, 64), 2, 128, (1, 0)).alignment(2), SharedLayout.row_major((64, 64)).alignment(2)
        (1024, 128)
        """
        return max(128, self.swizzle.period * element_bytes if self.swizzle else 1)

    def contiguous(self, dim: int) -> int:
        """Elements that lie consecutive in memory along `dim`, from every multiple of that number on.

        The largest w such that c, c+1, .. c+w-1 have offsets o, o+1, .. o+w-1 with o a multiple of w, for each multiple
        c of w and any other coordinates: the widest vector along `dim` that an access can use. Not always a power of
        two.

        >>> SharedLayout.tma((64, 64), 2, 128, (1, 0)).contiguous(1)
        8
        >>> SharedLayout.row_major((64, 64), pad=4).contiguous(1)
        4
        """
        if not 0 <= dim < self.rank:
            raise LayoutError(f"there is no dimension {dim}: expected one of 0 .. {self.rank - 1}")
        layout = self.normalized()
        if not layout.modes[dim] or layout.modes[dim][0][1] != 1:
            return 1
        others = [stride for d, digits in enumerate(layout.modes) for _, stride in digits[1 if d == dim else 0 :]]
        width = gcd(layout.modes[dim][0][0], *others)
        return gcd(width, 1 << layout.swizzle.base) if layout.swizzle else width

    def is_injective(self) -> bool:
        """True if no two elements share an offset."""
        box = self.shape()
        seen: set[int] = {0}
        for digits in self.modes:
            for extent, stride in digits:
                seen = {at + digit * stride for at in seen for digit in range(extent)}
        return len(seen) == prod(box)

    def clash(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Two elements that share an offset, the first such pair in row-major order; None if there are none. (A swizzle only permutes offsets.)

        >>> SharedLayout.parse("[4:2], [4:1]").clash(), SharedLayout.parse("[4:4], [4:1]").clash()
        (((0, 2), (1, 0)), None)
        """
        return _clash(self.modes)

    def normalized(self) -> SharedLayout:
        """The shortest writing: neighbouring digits merged where one continues the other, empty swizzles dropped.

        >>> str(SharedLayout.parse("[4:8, 2:32], [8:1], swizzle<0, 4, 3>").normalized())
        '[8:8], [8:1]'
        """
        modes = tuple(
            tuple(
                (mode.extent, mode.stride[0]) for mode in merge_modes(Mode(extent, (stride,)) for extent, stride in d)
            )
            for d in self.modes
        )
        return SharedLayout(modes, self.swizzle if self.swizzle and self.swizzle.bits else None)

    def permute(self, perm: Sequence[int]) -> SharedLayout:
        """The same bytes seen as the transposed tile: its dimension i is dimension perm[i] of this one.

        >>> str(SharedLayout.row_major((4, 8)).permute((1, 0)))
        '[8:1], [4:8]'
        """
        if sorted(perm) != list(range(self.rank)):
            raise LayoutError(f"{tuple(perm)} is not a permutation of the {self.rank} dimensions")
        return SharedLayout(tuple(self.modes[d] for d in perm), self.swizzle)

    # ---- text ---------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        dims = [f"[{', '.join(f'{extent}:{stride}' for extent, stride in digits)}]" for digits in self.modes]
        return ", ".join([*dims, str(self.swizzle)] if self.swizzle else dims)

    @staticmethod
    def parse(text: str) -> SharedLayout:
        """The layout that `str` wrote; spaces do not matter. Raises LayoutError on anything else.

        >>> text = "[128:64], [64:1, 4:8192], swizzle<3, 3, 3>"
        >>> str(SharedLayout.parse(text)) == text
        True
        """
        packed = re.sub(r"\s+", "", text)
        dim = r"\[(?:\d+:\d+(?:,\d+:\d+)*)?\]"
        match = re.fullmatch(rf"((?:{dim}(?:,{dim})*)?),?(?:swizzle<(\d+),(\d+),(-?\d+)>)?", packed)
        if not match or packed.startswith(",") or packed.endswith(","):
            raise LayoutError(
                f"not a shared layout: {text!r}; write `[extent:stride, ...], ..., swizzle<bits, base, shift>`"
            )
        modes = tuple(
            tuple((int(extent), int(stride)) for extent, stride in re.findall(r"(\d+):(\d+)", digits))
            for digits in re.findall(r"\[([^\]]*)\]", match[1])
        )
        return SharedLayout(modes, Swizzle(int(match[2]), int(match[3]), int(match[4])) if match[2] else None)

    # ---- construction -------------------------------------------------------------------------------------------

    @staticmethod
    def row_major(shape: Sequence[int], pad: int = 0, order: Sequence[int] | None = None) -> SharedLayout:
        """Dense rows, the last dimension contiguous (or order[0]), with `pad` unused elements after each row.

        >>> str(SharedLayout.row_major((32, 64), pad=8))
        '[32:72], [64:1]'
        >>> str(SharedLayout.row_major((32, 64), order=(0, 1)))
        '[32:1], [64:32]'
        """
        order = _check_order(len(shape), order if order is not None else range(len(shape) - 1, -1, -1))
        strides = [0] * len(shape)
        stride = 1
        for i, d in enumerate(order):
            strides[d] = stride
            stride *= shape[d] + (pad if i == 0 else 0)
        return SharedLayout(tuple(((n, s),) for n, s in zip(shape, strides, strict=True))).normalized()

    @staticmethod
    @lru_cache(maxsize=1024)
    def tma(shape: tuple[int, ...], element_bytes: int, swizzle_bytes: int, order: tuple[int, ...]) -> SharedLayout:
        """What TMA loads leave in shared memory, and what wgmma's descriptors describe.

        Along order[0], the contiguous dimension, the tile is cut into spans of `swizzle_bytes` (128, 64 or 32); each
        span is one box (or several, stacked along the rows: a box has at most 256 of them), and boxes follow one
        another. So a row of a box is a span, rows follow in the order of order[1:], and the hardware XORs bits 7.. of
        the byte address onto bits 4..: in the 128-byte mode the 16-byte chunk c of row r lies at c ^ (r % 8).

        `swizzle_bytes` 0 is the mode without swizzle that wgmma reads: spans of 16 bytes, so that 8 rows are one core
        matrix of 128 contiguous bytes. (A dense tile that no wgmma reads is `row_major`: also one TMA box.)

        >>> str(SharedLayout.tma((128, 128), 2, 128, (1, 0)))
        '[128:64], [64:1, 2:8192], swizzle<3, 3, 3>'
        >>> str(SharedLayout.tma((64, 32), 2, 0, (1, 0)))
        '[64:8], [8:1, 4:512]'

        Raises LayoutError if the extent along order[0] is no multiple of the span, or the mode does not exist.
        """
        order = _check_order(len(shape), order)
        if swizzle_bytes not in (*SWIZZLE_SPANS, 0) or not order:
            raise LayoutError(f"no TMA swizzle of {swizzle_bytes} bytes: there are 128, 64, 32 and 0 (none)")
        if element_bytes < 1 or CORE_ROW % element_bytes:
            raise LayoutError(f"elements of {element_bytes} bytes do not fill a 16-byte chunk: use 1, 2, 4, 8 or 16")
        span = (swizzle_bytes or CORE_ROW) // element_bytes
        inner = order[0]
        if shape[inner] % span:
            raise LayoutError(
                f"{shape[inner]} elements of {element_bytes} bytes along dimension {inner} are no whole number of "
                f"{span * element_bytes}-byte spans: a multiple of {span} is needed, or a narrower swizzle"
            )
        modes: list[Digits] = [()] * len(shape)
        stride = span
        for d in order[1:]:
            modes[d] = ((shape[d], stride),)
            stride *= shape[d]
        modes[inner] = ((span, 1), (shape[inner] // span, stride))
        bits = {128: 3, 64: 2, 32: 1, 0: 0}[swizzle_bytes]
        # The pattern on byte addresses is <bits, 4, 3>; an element of 2^k bytes takes k off the base.
        swizzle = Swizzle(bits, 4 - (element_bytes.bit_length() - 1), 3) if bits else None
        return SharedLayout(tuple(modes), swizzle).normalized()

    def tma_form(self, element_bytes: int) -> TmaForm | None:
        """How TMA can fill this buffer, or None if it cannot (padding, a foreign swizzle, or a row TMA cannot write).

        The inverse of `tma`, and of `row_major` where a whole row fits one box. The box's inner extent must be a
        multiple of 16 bytes; which global arrays are eligible is checked elsewhere.

        >>> form = SharedLayout.tma((128, 128), 2, 128, (1, 0)).tma_form(2)
        >>> form.swizzle_bytes, form.box, form.starts
        (128, (128, 64), ((0, 0), (0, 64)))
        >>> SharedLayout.row_major((128, 128), pad=8).tma_form(2) is None
        True
        """
        return _tma_form(self.normalized(), element_bytes)

    def core_order(self, element_bytes: int) -> tuple[int, ...] | None:
        """The dimensions from the contiguous one on, if this is a layout that `tma` makes (and so one that wgmma's descriptors describe); else None.

        >>> SharedLayout.tma((128, 128), 2, 128, (0, 1)).core_order(2), SharedLayout.row_major((128, 128)).core_order(2)
        ((0, 1), None)
        """
        return _core_order(self.normalized(), element_bytes)


@lru_cache(maxsize=1024)
def _core_order(layout: SharedLayout, element_bytes: int) -> tuple[int, ...] | None:
    shape = layout.shape()
    for order in permutations(reversed(range(layout.rank))):
        for mode in (*SWIZZLE_SPANS, 0):
            span = (mode or CORE_ROW) // element_bytes
            if shape[order[0]] % span == 0 and SharedLayout.tma(shape, element_bytes, mode, order) == layout:
                return order
    return None


@lru_cache(maxsize=1024)
def _tma_form(layout: SharedLayout, element_bytes: int) -> TmaForm | None:
    shape = layout.shape()
    if element_bytes < 1 or CORE_ROW % element_bytes:
        return None
    for order in permutations(reversed(range(layout.rank))):
        inner = shape[order[0]]
        spans = [
            (mode, (mode or CORE_ROW) // element_bytes)
            for mode in (*SWIZZLE_SPANS, 0)
            if inner % ((mode or CORE_ROW) // element_bytes) == 0
        ]
        for mode, span in spans:
            if SharedLayout.tma(shape, element_bytes, mode, order) == layout:
                form = _boxes(shape, order, mode, span)
                if _can_start(form, layout, element_bytes):
                    return form
        if layout.rank == 1 and inner > TMA_BOX_LIMIT and layout == SharedLayout.row_major(shape):  # one row, in boxes one after another
            row = layout.alignment(element_bytes)
            span = next((n for n in range(TMA_BOX_LIMIT, 0, -1) if inner % n == 0 and n * element_bytes % max(row, CORE_ROW) == 0), 0)
            return _boxes(shape, order, 0, span) if span else None
        dense = inner <= TMA_BOX_LIMIT and inner * element_bytes % CORE_ROW == 0
        if dense and SharedLayout.row_major(shape, order=order) == layout:
            form = _boxes(shape, order, 0, inner)
            if _can_start(form, layout, element_bytes):
                return form
    return None


def _can_start(form: TmaForm, layout: SharedLayout, element_bytes: int) -> bool:
    """Whether every box, which lie one after another in the buffer, starts where a buffer of its own could."""
    return len(form.starts) == 1 or prod(form.box) * element_bytes % layout.alignment(element_bytes) == 0


def _boxes(shape: Sequence[int], order: tuple[int, ...], swizzle_bytes: int, span: int) -> TmaForm:
    box = list(shape)
    box[order[0]] = span
    for i, d in enumerate(order[1:], start=1):
        if box[d] > TMA_BOX_LIMIT:
            # A box must be contiguous in the buffer: it may be cut along one dimension only if the slower ones are 1.
            box[d] = max(n for n in range(1, TMA_BOX_LIMIT + 1) if shape[d] % n == 0)
            for slower in order[i + 1 :]:
                box[slower] = 1
            break
    starts: list[tuple[int, ...]] = [()]
    for n, step in zip(shape, box, strict=True):
        starts = [(*at, c) for at in starts for c in range(0, n, step)]
    return TmaForm(swizzle_bytes, order, tuple(box), tuple(starts))


def _check_order(rank: int, order: Iterable[int]) -> tuple[int, ...]:
    order = tuple(order)
    if sorted(order) != list(range(rank)):
        raise LayoutError(f"order {order} must name each of the {rank} dimensions once, the contiguous one first")
    return order


def common_vector(registers: TVLayout, shared: SharedLayout) -> tuple[int, int]:
    """The widest vector that a copy between a register tile and a buffer can use: (dimension, elements).

    Elements that are consecutive both in a thread's values and in the buffer, and aligned in both. (0, 1) if there are
    none. The width may be no power of two: an access takes the largest one that divides it.

    >>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0)]")
    >>> common_vector(acc, SharedLayout.row_major((16, 8)))
    (1, 2)
    """
    widths = [gcd(registers.contiguous(d), shared.contiguous(d)) for d in range(shared.rank)]
    best = max(widths, default=1)
    return (widths.index(best), best) if best > 1 else (0, 1)
