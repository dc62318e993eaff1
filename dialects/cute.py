"""CuTe's layouts, `(shape):(stride)`: read, printed, computed with, and converted to and from ours.

A CuTe layout is a function from an index to an integer. Its shape is an int or a nested tuple; an index counts through
it colexicographically, leftmost digit fastest, and each digit counts its stride. (4,(2,2)):(2,(1,8)) sends index 5 to
digits (1,(1,0)) and so to 2 + 1 = 3. Terms are those of the layout algebra in CuTe's documentation
(github.com/NVIDIA/cutlass); the algorithms here are our own and are tested against the definitions that each docstring
states.

>>> CuteLayout.parse("(4,(2,2)):(2,(1,8))")(5)
3
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from .shared_layout import SharedLayout, Swizzle
from .tv_layout import LayoutError, Mode, TVLayout, merge_modes

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
"""An int, or a tuple of such: CuTe's shapes, strides and coordinates."""


def flatten(tree: IntTuple) -> tuple[int, ...]:
    """The ints of a nested tuple, left to right.

    >>> flatten((4, (2, (), 2)))
    (4, 2, 2)
    """
    return (tree,) if isinstance(tree, int) else tuple(leaf for branch in tree for leaf in flatten(branch))


def _congruent(a: IntTuple, b: IntTuple) -> bool:
    """True if both are ints, or tuples of congruent elements."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int)
    return len(a) == len(b) and all(map(_congruent, a, b))


def _text(tree: IntTuple) -> str:
    return str(tree) if isinstance(tree, int) else f"({','.join(map(_text, tree))})"


def _parse_tree(text: str) -> IntTuple:
    """The nested tuple that `_text` wrote."""
    tokens = re.findall(r"\d+|[(),]|.", text)
    tree, end = _parse_from(tokens, 0)
    if end != len(tokens):
        raise LayoutError(f"not a nested tuple of ints: {text!r}")
    return tree


def _parse_from(tokens: Sequence[str], at: int) -> tuple[IntTuple, int]:
    if at < len(tokens) and tokens[at].isdigit():
        return int(tokens[at]), at + 1
    if at >= len(tokens) or tokens[at] != "(":
        raise LayoutError(f"not a nested tuple of ints: {''.join(tokens)!r}")
    branches: list[IntTuple] = []
    at += 1
    while tokens[at : at + 1] != [")"]:
        if branches:
            if tokens[at : at + 1] != [","]:
                raise LayoutError(f"not a nested tuple of ints: {''.join(tokens)!r}")
            at += 1
        branch, at = _parse_from(tokens, at)
        branches.append(branch)
    return tuple(branches), at + 1


@dataclass(frozen=True, slots=True)
class CuteLayout:
    """The function of an index whose digits run through `shape` and count `stride`, two congruent nested tuples.

    Raises LayoutError if they are not congruent, an extent is below 1 or a stride below 0.
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        if not _congruent(self.shape, self.stride):
            raise LayoutError(f"shape {_text(self.shape)} and stride {_text(self.stride)} are not nested alike")
        if min(flatten(self.shape), default=1) < 1 or min(flatten(self.stride), default=0) < 0:
            raise LayoutError(f"layout {self}: extents must be at least 1 and strides must not be negative")

    # ---- the function -------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Number of indices.

        >>> CuteLayout((4, (2, 2)), (2, (1, 8))).size()
        16
        """
        return prod(flatten(self.shape))

    def cosize(self) -> int:
        """1 + the largest result.

        >>> CuteLayout((4, (2, 2)), (2, (1, 8))).cosize()
        16
        >>> CuteLayout((4, 2), (1, 8)).cosize()
        12
        """
        return 1 + sum((extent - 1) * stride for extent, stride in self.digits())

    def __call__(self, at: IntTuple) -> int:
        """The result for an index, or for a coordinate: a tuple with an index or coordinate per mode.

        >>> layout = CuteLayout((4, (2, 2)), (2, (1, 8)))
        >>> layout(5), layout((1, 1)), layout((1, (1, 0)))
        (3, 3, 3)

        Raises LayoutError if it is out of range or does not fit the shape.
        """
        if isinstance(at, int):
            index, result = at, 0
            for extent, stride in self.digits():
                index, digit = divmod(index, extent)
                result += digit * stride
            if index or at < 0:
                raise LayoutError(f"index {at} is out of range for {self}, which has {self.size()}")
            return result
        if isinstance(self.shape, int) or len(at) != len(self.shape):
            raise LayoutError(f"coordinate {_text(at)} does not fit the shape {_text(self.shape)}")
        return sum(mode(c) for mode, c in zip(self.modes(), at, strict=True))

    def digits(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of every digit, fastest first."""
        return tuple(zip(flatten(self.shape), flatten(self.stride), strict=True))

    def modes(self) -> tuple[CuteLayout, ...]:
        """The layouts of the top-level modes (the layout itself, if its shape is an int).

        >>> [str(mode) for mode in CuteLayout.parse("(4,(2,2)):(2,(1,8))").modes()]
        ['4:2', '(2,2):(1,8)']
        """
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(CuteLayout(shape, stride) for shape, stride in zip(self.shape, self.stride, strict=True))

    def __iter__(self) -> Iterator[int]:
        """The results of all indices in order: the function's table."""
        return map(self, range(self.size()))

    # ---- text and construction ----------------------------------------------------------------------------------

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    @staticmethod
    def parse(text: str) -> CuteLayout:
        """The layout that `str` wrote; spaces do not matter, and `_` before a number (a static extent in CuTe) neither.

        >>> str(CuteLayout.parse("(_4,(_2,_2)) : (_2,(_1,_8))"))
        '(4,(2,2)):(2,(1,8))'

        Raises LayoutError on anything else.
        """
        shape, colon, stride = re.sub(r"\s+|_(?=\d)", "", text).partition(":")
        if not colon:
            raise LayoutError(f"not a layout: {text!r}; write `(shape):(stride)`")
        return CuteLayout(_parse_tree(shape), _parse_tree(stride))

    @staticmethod
    def of_modes(*modes: CuteLayout) -> CuteLayout:
        """The layout with these top-level modes.

        >>> str(CuteLayout.of_modes(CuteLayout(4, 1), CuteLayout((2, 2), (4, 8))))
        '(4,(2,2)):(1,(4,8))'
        """
        return CuteLayout(tuple(mode.shape for mode in modes), tuple(mode.stride for mode in modes))

    @staticmethod
    def of_digits(digits: Sequence[tuple[int, int]]) -> CuteLayout:
        """The flat layout of these digits: an int each if there is one, 1:0 if there is none.

        >>> str(CuteLayout.of_digits([(4, 2)])), str(CuteLayout.of_digits([(4, 1), (2, 8)]))
        ('4:2', '(4,2):(1,8)')
        """
        if not digits:
            return CuteLayout(1, 0)
        if len(digits) == 1:
            return CuteLayout(*digits[0])
        return CuteLayout(tuple(extent for extent, _ in digits), tuple(stride for _, stride in digits))

    @staticmethod
    def compact(shape: IntTuple) -> CuteLayout:
        """The layout that counts through `shape`: leftmost fastest, no gaps.

        >>> str(CuteLayout.compact((4, (2, 3))))
        '(4,(2,3)):(1,(4,8))'
        """
        step = 1

        def count(tree: IntTuple) -> IntTuple:
            nonlocal step
            if isinstance(tree, int):
                step, here = step * tree, step
                return here
            return tuple(map(count, tree))

        return CuteLayout(shape, count(shape))

    # ---- the algebra --------------------------------------------------------------------------------------------

    def flatten(self) -> CuteLayout:
        """The same function without nesting.

        >>> str(CuteLayout.parse("(4,(2,2)):(2,(1,8))").flatten())
        '(4,2,2):(2,1,8)'
        """
        return CuteLayout(flatten(self.shape), flatten(self.stride))

    def coalesce(self) -> CuteLayout:
        """The same function with the fewest digits: equal functions coalesce to equal layouts.

        >>> str(CuteLayout.parse("(2,(1,6)):(1,(6,2))").coalesce())
        '12:1'
        """
        merged = merge_modes(Mode(extent, (stride,)) for extent, stride in self.digits())
        return CuteLayout.of_digits([(mode.extent, mode.stride[0]) for mode in merged])

    def compose(self, inner: CuteLayout) -> CuteLayout:
        """The layout index -> self(inner(index)), nested like `inner`.

        Results of `inner` may run past `size()`: the last digit counts on.

        >>> str(CuteLayout.parse("(6,2):(8,2)").compose(CuteLayout.parse("(4,3):(3,1)")))
        '((2,2),3):((24,2),8)'

        Raises LayoutError if no layout expresses the result.
        """
        outer = self.coalesce().digits()
        *limits, _ = [extent for extent, _ in outer]

        def through(extent: int, stride: int) -> tuple[IntTuple, IntTuple, list[int]]:
            """One digit of `inner` as digits of the result, and the most that it adds to each digit of `outer`."""
            found: list[tuple[int, int]] = []
            most = [0] * len(limits)
            while True:
                steps, rest = [], stride
                for limit in limits:
                    rest, digit = divmod(rest, limit)
                    steps.append(digit)
                # Up to the first carry in `outer`, counting is linear; a new digit starts there.
                run = min([extent, *(-(-limit // step) for limit, step in zip(limits, steps, strict=True) if step)])
                if extent % run:
                    raise LayoutError(f"no layout is {self} after {inner}: a carry falls inside a digit")
                found.append((run, sum(s * d for s, (_, d) in zip([*steps, rest], outer, strict=True))))
                most = [m + (run - 1) * step for m, step in zip(most, steps, strict=True)]
                extent //= run
                stride *= run
                if extent == 1:
                    break
            result = CuteLayout.of_digits(found)
            return result.shape, result.stride, most

        total = [0] * len(limits)

        def walk(shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
            if isinstance(shape, int) or isinstance(stride, int):
                assert isinstance(shape, int) and isinstance(stride, int)
                new_shape, new_stride, most = through(shape, stride)
                for i, m in enumerate(most):
                    total[i] += m
                return new_shape, new_stride
            pairs = [walk(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in pairs), tuple(d for _, d in pairs)

        shape, stride = walk(inner.shape, inner.stride)
        if any(most >= limit for most, limit in zip(total, limits, strict=True)):
            raise LayoutError(f"no layout is {self} after {inner}: digits of the inner layout carry into each other")
        return CuteLayout(shape, stride)

    def complement(self, size: int | None = None) -> CuteLayout:
        """The layout that repeats this one to fill 0 .. size-1 (default: its cosize).

        Each result of this plus each result of the complement is a different number, and together they are at least
        `size` numbers, without gaps.

        >>> str(CuteLayout.parse("4:2").complement(24))
        '(2,3):(1,8)'

        Raises LayoutError if none exists (results that repeat, or strides that do not divide).
        """
        size = self.cosize() if size is None else size
        digits: list[tuple[int, int]] = []
        filled = 1
        for stride, extent in sorted((stride, extent) for extent, stride in self.digits() if extent > 1):
            if stride < filled or stride % filled:
                raise LayoutError(
                    f"{self} has no complement: stride {stride} is no multiple of {filled}, what lies below it"
                )
            digits.append((stride // filled, filled))
            filled = stride * extent
        digits.append((-(-size // filled), filled))
        return CuteLayout.of_digits([(extent, stride) for extent, stride in digits]).coalesce()

    def right_inverse(self) -> CuteLayout:
        """The longest layout R that starts at 0 with self(R(i)) == i for all its indices.

        >>> layout = CuteLayout.parse("(4,2):(2,1)")
        >>> str(layout.right_inverse()), [layout(layout.right_inverse()(i)) for i in range(8)]
        ('(2,4):(4,1)', [0, 1, 2, 3, 4, 5, 6, 7])
        """
        weight = 1
        digits: list[tuple[int, int, int]] = []  # (stride, extent, weight in the index)
        for extent, stride in self.coalesce().digits():
            digits.append((stride, extent, weight))
            weight *= extent
        found: list[tuple[int, int]] = []
        reached = 1
        for stride, extent, weight in sorted(digits):
            if stride == reached:
                found.append((extent, weight))
                reached *= extent
        return CuteLayout.of_digits(found).coalesce()

    def left_inverse(self) -> CuteLayout:
        """A layout L with L(self(i)) == i for all indices.

        >>> layout = CuteLayout.parse("4:2")
        >>> [layout.left_inverse()(layout(i)) for i in range(4)]
        [0, 1, 2, 3]

        Raises LayoutError if two indices have the same result, or strides do not divide (as `complement`).
        """
        return CuteLayout.of_modes(self, self.complement()).right_inverse()

    def logical_divide(self, tile: CuteLayout) -> CuteLayout:
        """Two modes: the elements that `tile` picks out, and how the tile repeats over the rest.

        Definition: self after (tile, complement of tile up to size()).

        >>> str(CuteLayout.parse("(4,2,3):(2,1,8)").logical_divide(CuteLayout.parse("4:2")))
        '((2,2),(2,3)):((4,1),(2,8))'

        Raises LayoutError where the complement or the composition does.
        """
        return self.compose(CuteLayout.of_modes(tile, tile.complement(self.size())))

    def zipped_divide(self, tiles: Sequence[CuteLayout]) -> CuteLayout:
        """Each top-level mode divided by its own tile; all tiles in the first mode, all rests in the second.

        >>> matrix = CuteLayout.compact((8, 6))
        >>> str(matrix.zipped_divide([CuteLayout(4, 1), CuteLayout(2, 1)]))
        '((4,2),(2,3)):((1,8),(4,16))'

        Raises LayoutError if there is not one tile per mode, and where `logical_divide` does.
        """
        if len(tiles) != len(self.modes()):
            raise LayoutError(f"{len(tiles)} tiles for the {len(self.modes())} modes of {self}")
        divided = [mode.logical_divide(tile).modes() for mode, tile in zip(self.modes(), tiles, strict=True)]
        return CuteLayout.of_modes(
            CuteLayout.of_modes(*[inside for inside, _ in divided]), CuteLayout.of_modes(*[rest for _, rest in divided])
        )

    def logical_product(self, tiler: CuteLayout) -> CuteLayout:
        """Two modes: this layout, and its copies laid out as `tiler` counts them.

        Definition: (self, complement of self up to size() * tiler.cosize(), after it tiler).

        >>> str(CuteLayout.parse("(2,2):(4,1)").logical_product(CuteLayout.parse("6:1")))
        '((2,2),(2,3)):((4,1),(2,8))'

        Raises LayoutError where the complement or the composition does.
        """
        return CuteLayout.of_modes(self, self.complement(self.size() * tiler.cosize()).compose(tiler))


# ---- to and from our layouts ---------------------------------------------------------------------------------------


def _weights(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[:d]) for d in range(len(shape)))


def registers_to_cute(layout: TVLayout, shape: Sequence[int]) -> CuteLayout:
    """The thread-value layout as CuTe writes it: (thread, value) -> index of the element in `shape`.

    The index counts the first dimension fastest.

    >>> mma = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0)]")
    >>> str(registers_to_cute(mma, (16, 8)))
    '((4,8),(2,2)):((32,1),(16,8))'

    Raises LayoutError if the layout reaches beyond `shape`: the index could not tell padding from elements.
    """
    if layout.rank != len(shape) or any(n > m for n, m in zip(layout.shape(), shape, strict=True)):
        raise LayoutError(f"the layout reaches {layout.shape()}, beyond the tile's shape {tuple(shape)}")
    weights = _weights(shape)

    def convert(modes: Sequence[Mode]) -> CuteLayout:
        return CuteLayout.of_digits(
            [(mode.extent, sum(s * w for s, w in zip(mode.stride, weights, strict=True))) for mode in modes]
        )

    return CuteLayout.of_modes(convert(layout.thread), convert(layout.value))


def registers_from_cute(layout: CuteLayout, shape: Sequence[int]) -> TVLayout:
    """The inverse of `registers_to_cute`: two modes, thread and value, with results that are indices of `shape`.

    >>> text = "((4,8),(2,2)):((32,1),(16,8))"
    >>> str(registers_from_cute(CuteLayout.parse(text), (16, 8)))
    'thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(8,0)]'

    Raises LayoutError if there are not two modes, or the index function is not one of coordinates (it would carry).
    """
    if len(layout.modes()) != 2:
        raise LayoutError(f"{layout} has {len(layout.modes())} modes: a thread-value layout has two, thread and value")

    def convert(part: CuteLayout) -> tuple[Mode, ...]:
        modes: list[Mode] = []
        for extent, stride in part.digits():
            at: list[int] = []
            for n in shape[:-1]:
                stride, c = divmod(stride, n)
                at.append(c)
            modes.append(Mode(extent, (*at, stride) if shape else ()))
        return tuple(modes)

    thread, value = map(convert, layout.modes())
    result = TVLayout(thread, value)
    if any(n > m for n, m in zip(result.shape(), shape, strict=True)):
        raise LayoutError(f"{layout} is no layout of a tile {tuple(shape)}: its digits would carry between dimensions")
    return result.normalized()


def shared_to_cute(layout: SharedLayout) -> tuple[CuteLayout, Swizzle | None]:
    """The buffer's layout as CuTe writes it, a mode per dimension, and the swizzle that is composed with it.

    >>> cute, swizzle = shared_to_cute(SharedLayout.tma((128, 128), 2, 128, (1, 0)))
    >>> str(cute), str(swizzle)
    ('(128,(64,2)):(64,(1,8192))', 'swizzle<3, 3, 3>')
    """
    return CuteLayout.of_modes(*map(CuteLayout.of_digits, layout.modes)), layout.swizzle


def shared_from_cute(layout: CuteLayout, swizzle: Swizzle | None = None) -> SharedLayout:
    """The inverse of `shared_to_cute`.

    >>> str(shared_from_cute(CuteLayout.parse("(128,(64,2)):(64,(1,8192))"), Swizzle(3, 3, 3)))
    '[128:64], [64:1, 2:8192], swizzle<3, 3, 3>'
    """
    return SharedLayout(tuple(mode.digits() for mode in layout.modes()), swizzle).normalized()
