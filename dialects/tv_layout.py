"""Thread-value layouts: which thread holds which element of a tile, in which of its registers.

The essay that introduces them, with worked examples, opens `tesela.dialects.layout`, which re-exports every name here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Literal

WARP = 32
"""Threads of a warp, the unit of issue (PTX ISA 9.0 §2.1)."""


class LayoutError(ValueError):
    """A layout cannot be built, or an operation on it has no answer; the message says what held and what was needed."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One digit of an index: it takes `extent` values, and each step moves `stride` (one int per tile dimension).

    >>> str(Mode(8, (0, 2)))
    '8:(0,2)'
    """

    extent: int
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.extent < 1 or any(s < 0 for s in self.stride):
            raise LayoutError(f"mode {self}: the extent must be at least 1 and no stride may be negative")

    @property
    def is_broadcast(self) -> bool:
        """True if the digit moves nowhere: all its values name the same elements."""
        return not any(self.stride)

    def __str__(self) -> str:
        return f"{self.extent}:({','.join(map(str, self.stride))})"


def split_modes(modes: Sequence[Mode], at: int) -> tuple[tuple[Mode, ...], tuple[Mode, ...]]:
    """The digits that count below `at`, and those that count multiples of it: index = low + at * high.

    >>> low, high = split_modes((Mode(8, (1, 0)), Mode(8, (16, 0))), 32)
    >>> print(*low, "|", *high)
    8:(1,0) 4:(16,0) | 2:(64,0)

    Raises LayoutError if no digit boundary can be put at `at` (a digit of extent 3 has none at 2).
    """
    low: list[Mode] = []
    for i, mode in enumerate(modes):
        if at == 1:
            return tuple(low), tuple(modes[i:])
        if at % mode.extent == 0:
            low.append(mode)
            at //= mode.extent
        elif mode.extent % at == 0:
            rest = Mode(mode.extent // at, tuple(at * s for s in mode.stride))
            return (*low, Mode(at, mode.stride)), (rest, *modes[i + 1 :])
        else:
            raise LayoutError(f"digit {mode} has no boundary at {at}: one of the two numbers must divide the other")
    return tuple(low), ()


def merge_modes(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    """The shortest list of digits with the same function of the index: unique, so equal functions give equal lists.

    Two neighbours merge when the second continues the first (its stride is extent times the first's stride); digits of
    extent 1 go. Why unique: in a list without such neighbours the first extent is the smallest k with f(k) != k f(1),
    and the rest is the list of k -> f(extent * k), so f alone determines every digit.

    >>> print(*merge_modes([Mode(2, (0, 8)), Mode(1, (5, 5)), Mode(4, (0, 16))]))
    8:(0,8)
    """
    out: list[Mode] = []
    for mode in modes:
        if mode.extent == 1:
            continue
        if out:
            last = out[-1]
            if all(b == last.extent * a for a, b in zip(last.stride, mode.stride, strict=True)):
                out[-1] = Mode(last.extent * mode.extent, last.stride)
                continue
        out.append(mode)
    return tuple(out)


def sumset(digits: Iterable[tuple[int, int]]) -> int:
    """The set of all sums of digit * stride, as a bit mask: bit n is set if n is such a sum. Digits: (extent, stride).

    >>> bin(sumset([(2, 1), (2, 4)]))
    '0b110011'
    """
    reach = 1
    for extent, stride in digits:
        if stride == 0:
            continue
        count = 1
        while 2 * count <= extent:
            reach |= reach << (stride * count)
            count *= 2
        if count < extent:  # the copies overlap, which a set does not mind
            reach |= reach << (stride * (extent - count))
    return reach


def _row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of the row-major order of `shape`: the last dimension has 1."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _walk(modes: Sequence[Mode], index: int, rank: int, what: str) -> tuple[int, ...]:
    """The coordinates that `index` moves to, digit by digit."""
    rest = index
    at = [0] * rank
    for mode in modes:
        rest, digit = divmod(rest, mode.extent)
        if digit:
            for d, stride in enumerate(mode.stride):
                at[d] += digit * stride
    if rest or index < 0:
        raise LayoutError(f"{what} {index} is out of range: the layout has {prod(m.extent for m in modes)}")
    return tuple(at)


@dataclass(frozen=True, slots=True)
class TVLayout:
    """A register tile's layout: the function (thread, value) -> tile coordinates.

    `thread` and `value` are digits, fastest first. Value v of a thread is the v-th element that it holds; thread t
    counts the threads of the role that holds the tensor. A digit of all-zero stride is a broadcast: its threads (or
    values) hold the same elements. Coordinates past the tile's own extents are *padding*.

    >>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]")
    >>> acc.num_threads, acc.num_values, acc.shape()
    (128, 128, (64, 256))
    >>> acc.coords(37, 2)          # lane 5 of warp 1, its third value
    (25, 2)

    Raises LayoutError if strides differ in rank.
    """

    thread: tuple[Mode, ...]
    value: tuple[Mode, ...]

    def __post_init__(self) -> None:
        if len({len(mode.stride) for mode in (*self.thread, *self.value)}) > 1:
            raise LayoutError(
                f"layout {self}: every stride must have one entry per dimension, but their lengths differ"
            )

    # ---- the function -------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of tile dimensions. (A layout of rank above 0 has at least one mode, if only `1:(0,0)`.)"""
        for mode in (*self.thread, *self.value):
            return len(mode.stride)
        return 0

    @property
    def num_threads(self) -> int:
        """Threads that the layout is written for, those that hold copies included."""
        return prod(mode.extent for mode in self.thread)

    @property
    def num_values(self) -> int:
        """Values that each thread holds."""
        return prod(mode.extent for mode in self.value)

    def coords(self, thread: int, value: int) -> tuple[int, ...]:
        """Tile coordinates of `value` of `thread`. Raises LayoutError if either is out of range."""
        at = self.thread_coords(thread)
        return tuple(a + b for a, b in zip(at, self.value_coords(value), strict=True))

    def thread_coords(self, thread: int) -> tuple[int, ...]:
        """Coordinates of value 0 of `thread`. The coordinates of value v are these plus `value_coords(v)`.

        >>> TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]").thread_coords(5)
        (1, 2)
        """
        return _walk(self.thread, thread, self.rank, "thread")

    def value_coords(self, value: int) -> tuple[int, ...]:
        """Coordinates of `value` relative to value 0, the same for every thread.

        >>> TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]").value_coords(1)
        (0, 1)
        """
        return _walk(self.value, value, self.rank, "value")

    def shape(self) -> tuple[int, ...]:
        """Extents that the layout reaches, per dimension: 1 + the largest coordinate."""
        extents = [1] * self.rank
        for mode in (*self.thread, *self.value):
            for d, stride in enumerate(mode.stride):
                extents[d] += (mode.extent - 1) * stride
        return tuple(extents)

    # ---- text ---------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        thread = ", ".join(map(str, self.thread))
        value = ", ".join(map(str, self.value))
        return f"thread [{thread}], value [{value}]"

    @staticmethod
    def parse(text: str) -> TVLayout:
        """The layout that `str` wrote; spaces do not matter. Raises LayoutError on anything else.

        >>> text = "thread [4:(0,2), 8:(1,0)], value []"
        >>> str(TVLayout.parse(text)) == text
        True
        """
        match = re.fullmatch(r"thread\[(.*)\],value\[(.*)\]", re.sub(r"\s+", "", text))
        if not match:
            raise LayoutError(f"not a layout: {text!r}; write `thread [extent:(strides), ...], value [...]`")
        return TVLayout(_parse_modes(match[1]), _parse_modes(match[2]))

    # ---- normal form and predicates -----------------------------------------------------------------------------

    def normalized(self) -> TVLayout:
        """The canonical writing of the same function: two layouts are equal functions iff these are equal objects.

        >>> split = TVLayout.parse("thread [4:(1)], value [2:(4), 1:(9), 2:(8)]")
        >>> str(split.normalized())
        'thread [4:(1)], value [4:(4)]'
        """
        thread, value = merge_modes(self.thread), merge_modes(self.value)
        if not thread and not value and self.rank:
            thread = (Mode(1, (0,) * self.rank),)  # nothing else would tell the rank
        return TVLayout(thread, value)

    @property
    def replication(self) -> int:
        """How many threads hold each element, counting broadcast digits.

        >>> TVLayout.parse("thread [4:(0,0), 8:(1,0)], value [2:(0,1)]").replication
        4
        """
        return prod(mode.extent for mode in self.thread if mode.is_broadcast)

    @property
    def is_replicated(self) -> bool:
        """True if several threads hold each element through a broadcast digit."""
        return self.replication > 1

    def is_injective(self) -> bool:
        """True if no element has two holders, apart from the copies that broadcast digits make.

        >>> TVLayout.parse("thread [4:(1)], value [2:(4)]").is_injective()
        True
        >>> TVLayout.parse("thread [4:(1)], value [2:(2)]").is_injective()
        False
        """
        moving = [mode for mode in (*self.thread, *self.value) if not mode.is_broadcast]
        return self._reach(self.shape()).bit_count() == prod(mode.extent for mode in moving)

    def covers(self, shape: Sequence[int]) -> bool:
        """True if every element of a tile of `shape` has a holder.

        >>> layout = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]")
        >>> layout.covers((8, 8)), layout.covers((7, 5)), layout.covers((8, 9))
        (True, True, False)
        """
        box = self.shape()
        if len(shape) != len(box) or any(n > b for n, b in zip(shape, box, strict=True)):
            return False
        wanted = sumset(zip(shape, _row_strides(box), strict=True))
        return wanted & ~self._reach(box) == 0

    def _reach(self, box: Sequence[int]) -> int:
        """Bit mask of the elements that have a holder, in the row-major order of `box` (at least `shape()`)."""
        strides = _row_strides(box)
        return sumset((mode.extent, _dot(mode.stride, strides)) for mode in (*self.thread, *self.value))

    def contiguous(self, dim: int) -> int:
        """Width of the widest vector along `dim` that a copy can use, in elements.

        The largest w such that in every thread each aligned group of w values (w*i .. w*i+w-1) lies consecutive along
        `dim`, in order, and starts at a multiple of w. Need not be a power of two.

        >>> TVLayout.parse("thread [4:(0,4)], value [4:(0,1), 2:(1,0)]").contiguous(1)
        4
        >>> TVLayout.parse("thread [4:(0,6)], value [4:(0,1), 2:(1,0)]").contiguous(1)   # groups start at 6, 12, ..
        2
        """
        dim = self._dim(dim)
        layout = self.normalized()
        unit = tuple(int(d == dim) for d in range(layout.rank))
        if not layout.value or layout.value[0].stride != unit:
            return 1
        run, *others = layout.value
        return gcd(run.extent, *(mode.stride[dim] for mode in (*others, *layout.thread)))

    # ---- derived layouts ----------------------------------------------------------------------------------------

    def project(self, dim: int) -> TVLayout:
        """The layout without dimension `dim`: what is left after a reduction along it.

        Thread modes that moved only along `dim` become broadcast (after the reduction all their threads hold the
        result), value modes that moved only along it vanish. `value_index(dim, v)` says where value v went.

        >>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]")
        >>> str(acc.project(1))
        'thread [4:(0), 8:(1)], value [2:(8)]'
        """
        dim = self._dim(dim)

        def drop(mode: Mode) -> Mode:
            return Mode(mode.extent, mode.stride[:dim] + mode.stride[dim + 1 :])

        thread = tuple(map(drop, self.thread))
        value = tuple(drop(mode) for mode in self.value if _moves_beside(mode, dim))
        return TVLayout(thread, value)._with_rank(self.rank - 1).normalized()

    def insert(self, dim: int) -> TVLayout:
        """The layout with a new dimension of extent 1 in front of dimension `dim` (0 .. rank): an expand.

        >>> str(TVLayout.parse("thread [8:(1)], value [2:(8)]").insert(1))
        'thread [8:(1,0)], value [2:(8,0)]'
        """
        dim = self._dim(dim, self.rank + 1)

        def add(mode: Mode) -> Mode:
            return Mode(mode.extent, (*mode.stride[:dim], 0, *mode.stride[dim:]))

        layout = TVLayout(tuple(map(add, self.thread)), tuple(map(add, self.value)))
        return layout._with_rank(self.rank + 1).normalized()

    def flatten_dim(self, dim: int) -> TVLayout:
        """The layout of a source of extent 1 along `dim` whose broadcast along `dim` has this layout at no cost.

        Strides along `dim` become zero, and value modes that then move nowhere vanish. Value v of the broadcast is
        value `value_index(dim, v)` of the source, in the same thread.

        >>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]")
        >>> str(acc.flatten_dim(1))
        'thread [4:(0,0), 8:(1,0)], value [2:(8,0)]'
        >>> [acc.value_index(1, v) for v in range(6)]
        [0, 0, 1, 1, 0, 0]
        """
        dim = self._dim(dim)

        def zero(mode: Mode) -> Mode:
            return Mode(mode.extent, (*mode.stride[:dim], 0, *mode.stride[dim + 1 :]))

        value = tuple(zero(mode) for mode in self.value if _moves_beside(mode, dim))
        return TVLayout(tuple(map(zero, self.thread)), value)._with_rank(self.rank).normalized()

    def value_index(self, dim: int, value: int) -> int:
        """The value of `project(dim)`, and of `flatten_dim(dim)`, that `value` of this layout falls on.

        A reduction combines the values of one index; a broadcast copies the source's value of that index.
        Raises LayoutError if `value` is out of range.
        """
        dim = self._dim(dim)
        rest, index, weight = value, 0, 1
        for mode in self.value:
            rest, digit = divmod(rest, mode.extent)
            if _moves_beside(mode, dim):
                index += weight * digit
                weight *= mode.extent
        if rest or value < 0:
            raise LayoutError(f"value {value} is out of range: the layout has {self.num_values}")
        return index

    def permute(self, perm: Sequence[int]) -> TVLayout:
        """The layout of the transposed tile: its dimension i is dimension perm[i] of this one (as numpy.transpose).

        >>> str(TVLayout.parse("thread [4:(0,2)], value [2:(1,0)]").permute((1, 0)))
        'thread [4:(2,0)], value [2:(0,1)]'
        """
        if sorted(perm) != list(range(self.rank)):
            raise LayoutError(f"{tuple(perm)} is not a permutation of the {self.rank} dimensions")

        def move(mode: Mode) -> Mode:
            return Mode(mode.extent, tuple(mode.stride[d] for d in perm))

        return TVLayout(tuple(map(move, self.thread)), tuple(map(move, self.value))).normalized()

    def reshape(self, old_shape: Sequence[int], new_shape: Sequence[int]) -> TVLayout | None:
        """The layout of the same elements after a row-major reshape of the tile, or None if no modes express it.

        Every thread keeps its values in their places, so the reshape costs nothing. None also when padding of
        `old_shape` would land on an element of `new_shape`.

        >>> rows = TVLayout.parse("thread [32:(1,0)], value [16:(0,1)]")
        >>> str(rows.reshape((32, 16), (4, 8, 16)))
        'thread [8:(0,1,0), 4:(1,0,0)], value [16:(0,0,1)]'
        >>> str(rows.reshape((32, 16), (512,)))
        'thread [32:(16)], value [16:(1)]'
        >>> rows.reshape((32, 16), (16, 32)) == TVLayout.parse("thread [2:(0,16), 16:(1,0)], value [16:(0,1)]")
        True
        >>> print(TVLayout.parse("thread [3:(1)], value [2:(3)]").reshape((6,), (3, 2)))
        None

        Raises LayoutError if the two shapes have different numbers of elements, or `old_shape` has another rank.
        """
        if len(old_shape) != self.rank or prod(old_shape) != prod(new_shape) or prod(old_shape) < 1:
            raise LayoutError(f"cannot reshape {tuple(old_shape)} (layout rank {self.rank}) to {tuple(new_shape)}")
        groups = _reshape_groups(old_shape, new_shape)
        reached = self.shape()
        # Linear index of a mode within each group of dimensions that are reshaped among themselves.
        weights: list[tuple[int, ...]] = []
        inner: list[tuple[int, int]] = []  # (dimension of the result, extent) whose overflow would be a carry
        unlinear: list[tuple[int, ...]] = []
        for old, new in groups:
            if any(reached[d] > old_shape[d] for d in (old[1:] if new else old)):
                return None
            row = [0] * self.rank
            for d, stride in zip(old, _row_strides([old_shape[d] for d in old]), strict=True):
                row[d] = stride
            weights.append(tuple(row))
            inner.extend((d, new_shape[d]) for d in new[1:])
            unlinear.append(_row_strides([new_shape[d] for d in new]))

        def strides_of(linear: Sequence[int]) -> tuple[int, ...]:
            out = [0] * len(new_shape)
            for (_, new), at, rows in zip(groups, linear, unlinear, strict=True):
                for d, row in zip(new, rows, strict=True):
                    out[d], at = divmod(at, row)
            return tuple(out)

        def convert(modes: tuple[Mode, ...]) -> tuple[Mode, ...] | None:
            out: list[Mode] = []
            # Merging by linear index first: digits of different dimensions may be one digit of the result.
            for mode in merge_modes(Mode(m.extent, tuple(_dot(m.stride, row) for row in weights)) for m in modes):
                extent, linear = mode.extent, mode.stride
                while extent > 1:
                    # A digit may run until one inner coordinate would carry; there a new digit has to start.
                    stride = strides_of(linear)
                    run = min([extent, *(-(-size // stride[d]) for d, size in inner if stride[d])])
                    if extent % run:
                        return None
                    out.append(Mode(run, stride))
                    extent //= run
                    linear = tuple(run * at for at in linear)
            return tuple(out)

        thread, value = convert(self.thread), convert(self.value)
        if thread is None or value is None:
            return None
        result = TVLayout(thread, value)._with_rank(len(new_shape)).normalized()
        shape = result.shape()
        return None if any(shape[d] > size for d, size in inner) else result

    def split_threads(self, at: int = WARP) -> TVLayout:
        """The same function with a thread digit boundary at `at`: digits within a warp, then digits across warps.

        >>> str(TVLayout.parse("thread [4:(0), 64:(1)], value []").split_threads())
        'thread [4:(0), 8:(1), 8:(8)], value []'
        """
        low, high = split_modes(self.thread, at)
        return TVLayout(low + high, self.value)

    def thread_steps(self, dim: int) -> tuple[tuple[int, int], ...]:
        """The thread digits that move along `dim` and nowhere else, as (distance between threads, extent).

        These are the threads that a reduction along `dim` combines: thread t with t + distance * k. Digits are split at
        the warp boundary, so a distance below 32 is a shuffle within one warp.

        >>> TVLayout.parse("thread [4:(0,2), 8:(1,0), 2:(0,64)], value [2:(0,1)]").thread_steps(1)
        ((1, 4), (32, 2))

        Raises LayoutError if a digit moves along `dim` and another dimension at once, or has no boundary at a warp.
        """
        dim = self._dim(dim)
        steps: list[tuple[int, int]] = []
        distance = 1
        for mode in self.split_threads().thread if self.num_threads > WARP else self.thread:
            if mode.stride[dim] and mode.extent > 1:
                if _moves_beside(mode, dim):
                    raise LayoutError(f"thread digit {mode} moves along dimension {dim} and another one at once")
                steps.append((distance, mode.extent))
            distance *= mode.extent
        return tuple(steps)

    # ---- inverse and comparison ---------------------------------------------------------------------------------

    def owner(self, coords: Sequence[int]) -> tuple[int, int]:
        """The first (thread, value) that holds the element at `coords`: the lowest thread, then its lowest value.

        >>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0)]")
        >>> acc.owner((9, 3)), acc.coords(5, 3)
        ((5, 3), (9, 3))

        Raises LayoutError if no thread holds it.
        """
        coords = tuple(coords)
        if len(coords) == self.rank:
            found = _find(_search_plan(self), 0, coords)
            if found is not None:
                return found
        raise LayoutError(f"no thread holds element {coords} of a layout that reaches {self.shape()}")

    def holds(self, coords: Sequence[int]) -> bool:
        """True if some thread holds the element at `coords`.

        >>> TVLayout.parse("thread [4:(2)], value []").holds((3,))
        False
        """
        return len(coords) == self.rank and _find(_search_plan(self), 0, tuple(coords)) is not None

    def value_map(self, target: TVLayout) -> tuple[int, ...] | None:
        """For each value of `target`, the value of this layout that the same thread can copy, or None.

        Not None means: converting from this layout to `target` only renames registers.

        >>> a = TVLayout.parse("thread [4:(0,2)], value [2:(0,1), 2:(1,0)]")
        >>> b = TVLayout.parse("thread [4:(0,2)], value [2:(1,0), 2:(0,1)]")
        >>> a.value_map(b)
        (0, 2, 1, 3)
        """
        if merge_modes(self.thread) != merge_modes(target.thread) or self.rank != target.rank:
            return None
        held: dict[tuple[int, ...], int] = {}
        for v in range(self.num_values):
            held.setdefault(self.value_coords(v), v)
        try:
            return tuple(held[target.value_coords(v)] for v in range(target.num_values))
        except KeyError:
            return None

    def __iter__(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """All (thread, value, coordinates), thread by thread: the function's table."""
        offsets = [self.value_coords(v) for v in range(self.num_values)]
        for t in range(self.num_threads):
            base = self.thread_coords(t)
            for v, offset in enumerate(offsets):
                yield t, v, tuple(a + b for a, b in zip(base, offset, strict=True))

    # ---- construction -------------------------------------------------------------------------------------------

    @staticmethod
    @lru_cache(maxsize=1024)
    def blocked(shape: tuple[int, ...], threads: int, order: tuple[int, ...], vector: int) -> TVLayout:
        """A coalesced layout of a tile of any `shape`, for `threads` threads (any number; usually a power of two).

        Each thread holds groups of `vector` consecutive elements along order[0], the fastest dimension in memory.
        Threads go along order[0] first, then order[1], and so on; what they do not reach in one pass, value digits
        repeat. The extents are rounded up as needed, and surplus threads get a broadcast digit.

        Among the ways to spread the threads, at most 5/4 of the fewest possible values a thread are allowed, and of
        those the one with most threads along order[0] (the longest contiguous runs) is taken. For powers of two that is
        "all along order[0], then the next"; 80 columns in groups of 8 go to 4 threads, 3 groups each, and not to 16
        threads of which 6 idle. `vector` is halved until it is no wider than the extent needs.

        >>> str(TVLayout.blocked((64, 64), 128, (1, 0), 8))
        'thread [8:(0,8), 16:(1,0)], value [8:(0,1), 4:(16,0)]'
        >>> str(TVLayout.blocked((4, 8), 32, (1, 0), 2))
        'thread [4:(0,2), 4:(1,0), 2:(0,0)], value [2:(0,1)]'

        Raises LayoutError for an extent, thread count or vector below 1, or an `order` that is no permutation.
        """
        rank = len(shape)
        if sorted(order) != list(range(rank)) or min([threads, vector, *shape]) < 1:
            raise LayoutError(
                f"blocked({shape}, {threads} threads, order {order}, vector {vector}): `order` must name each "
                "dimension once, and extents, threads and vector must be at least 1"
            )
        while rank and vector > 1 and vector // 2 >= shape[order[0]]:
            vector //= 2
        units = [-(-shape[d] // (vector if i == 0 else 1)) for i, d in enumerate(order)]
        spread = _spread(tuple(units), threads)

        def along(d: int, extent: int, step: int) -> Mode:
            return Mode(extent, tuple(step if i == d else 0 for i in range(rank)))

        thread = [along(d, n, vector if i == 0 else 1) for i, (d, n) in enumerate(zip(order, spread, strict=True))]
        thread.append(Mode(threads // prod(spread), (0,) * rank))
        value = [along(order[0], vector, 1)] if rank else []
        for i, (d, n, unit) in enumerate(zip(order, spread, units, strict=True)):
            value.append(along(d, -(-unit // n), n * (vector if i == 0 else 1)))
        return TVLayout(tuple(thread), tuple(value)).normalized()

    # ---- helpers ------------------------------------------------------------------------------------------------

    def _dim(self, dim: int, rank: int | None = None) -> int:
        rank = self.rank if rank is None else rank
        if not 0 <= dim < rank:
            raise LayoutError(f"there is no dimension {dim}: expected one of 0 .. {rank - 1}")
        return dim

    def _with_rank(self, rank: int) -> TVLayout:
        """This layout, or if it has no mode left, one that still tells its rank."""
        return self if self.thread or self.value else TVLayout((Mode(1, (0,) * rank),), ())


def _moves_beside(mode: Mode, dim: int) -> bool:
    """True if the digit moves along a dimension other than `dim`."""
    return any(stride for d, stride in enumerate(mode.stride) if d != dim)


def _parse_modes(text: str) -> tuple[Mode, ...]:
    if not text:
        return ()
    if not re.fullmatch(r"\d+:\((\d+(,\d+)*)?\)(,\d+:\((\d+(,\d+)*)?\))*", text):
        raise LayoutError(f"not a list of modes: {text!r}; write `extent:(stride, ...)`, separated by commas")
    return tuple(
        Mode(int(extent), tuple(map(int, strides.split(","))) if strides else ())
        for extent, strides in re.findall(r"(\d+):\(([\d,]*)\)", text)
    )


def _reshape_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Consecutive dimensions of both shapes with equal products: a reshape happens within each group on its own."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = list(range(i, min(i + 1, len(old)))), list(range(j, min(j + 1, len(new))))
        i, j = i + len(a), j + len(b)
        while (m := prod(old[d] for d in a)) != (n := prod(new[d] for d in b)):
            if m < n:
                a.append(i)
                i += 1
            else:
                b.append(j)
                j += 1
        groups.append((a, b))
    return groups


def _spread(units: tuple[int, ...], threads: int) -> tuple[int, ...]:
    """How many threads go along each dimension of `units` groups (fastest first); `blocked` states the rule."""
    divisors = [n for n in range(1, threads + 1) if threads % n == 0]
    # More threads than the first divisor that covers an extent would only idle.
    useful = [[n for n in divisors if not any(m < n and m >= unit for m in divisors)] for unit in units]
    ways = [way for way in product(*useful) if threads % prod(way) == 0]
    passes = {way: prod(-(-unit // n) for unit, n in zip(units, way, strict=True)) for way in ways}
    fewest = min(passes.values())
    return max(way for way in ways if 4 * passes[way] <= 5 * fewest)


@lru_cache(maxsize=4096)
def _search_plan(layout: TVLayout) -> tuple[tuple[Mode, int, bool, tuple[int, ...]], ...]:
    """The digits from the most significant on, thread before value, each with its weight, whether it is a thread digit,
    and for each dimension the set (bit mask) of what all later digits can still add to the coordinate."""
    digits: list[tuple[Mode, int, bool]] = []
    for modes, is_thread in ((layout.value, False), (layout.thread, True)):
        weight = 1
        for mode in modes:
            digits.append((mode, weight, is_thread))
            weight *= mode.extent
    plan: list[tuple[Mode, int, bool, tuple[int, ...]]] = []
    reach = [1] * layout.rank
    for mode, weight, is_thread in digits:  # least significant first: `reach` is what the digits so far can add
        plan.append((mode, weight, is_thread, tuple(reach)))
        for d, stride in enumerate(mode.stride):
            shifted = 0
            for digit in range(mode.extent if stride else 1):
                shifted |= reach[d] << (digit * stride)
            reach[d] = shifted
    return tuple(reversed(plan))


def _find(
    plan: Sequence[tuple[Mode, int, bool, tuple[int, ...]]], step: int, rest: tuple[int, ...]
) -> tuple[int, int] | None:
    """The first (thread, value) whose digits from `step` on add up to `rest`, or None."""
    if step == len(plan):
        return None if any(rest) else (0, 0)
    mode, weight, is_thread, reach = plan[step]
    for digit in range(1 if mode.is_broadcast else mode.extent):
        left = tuple(at - digit * stride for at, stride in zip(rest, mode.stride, strict=True))
        if min(left, default=0) < 0:
            return None
        if all(mask >> at & 1 for mask, at in zip(reach, left, strict=True)):
            found = _find(plan, step + 1, left)
            if found is not None:
                thread, value = found
                return (thread + digit * weight, value) if is_thread else (thread, value + digit * weight)
    return None


Scope = Literal["same", "registers", "warp", "block"]


@lru_cache(maxsize=4096)
def conversion_scope(source: TVLayout, target: TVLayout) -> Scope:
    """How far elements travel when a tile goes from `source` to `target`: what a conversion needs, and so its cost.

    "same": the functions are equal, nothing happens. "registers": each thread renames its own registers. "warp": each
    warp holds what it needs, so shuffles do. "block": elements cross warps, so they go through shared memory.

    >>> a = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]")
    >>> conversion_scope(a, TVLayout.parse("thread [8:(0,1), 4:(1,0)], value [2:(4,0)]"))
    'warp'

    Raises LayoutError if thread counts or ranks differ.
    """
    source, target = source.normalized(), target.normalized()
    if source.num_threads != target.num_threads or source.rank != target.rank:
        raise LayoutError(
            f"cannot convert {source} to {target}: both must have the same number of threads "
            f"({source.num_threads}, {target.num_threads}) and of dimensions ({source.rank}, {target.rank})"
        )
    if source == target:
        return "same"
    if source.value_map(target) is not None:
        return "registers"
    box = tuple(map(max, source.shape(), target.shape())) if source.rank else ()
    held, wanted = _warp_sets(source, box), _warp_sets(target, box)
    return "warp" if all(want & ~have == 0 for have, want in zip(held, wanted, strict=True)) else "block"


def _warp_sets(layout: TVLayout, box: Sequence[int]) -> list[int]:
    """For each warp, the set of elements its threads hold, as a bit mask over the row-major order of `box`."""
    strides = _row_strides(box)
    values = sumset((mode.extent, _dot(mode.stride, strides)) for mode in layout.value)
    sets: list[int] = []
    for t in range(layout.num_threads):
        if t % WARP == 0:
            sets.append(0)
        sets[-1] |= values << _dot(layout.thread_coords(t), strides)
    return sets
