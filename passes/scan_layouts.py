"""Which layouts a scan can go through digit by digit, and one that it can for those that are none of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects.layout import TVLayout

WARP = 32
SHIFT = "shfl.sync.up.b32"
"""What brings a scan of a warp's lanes the results of those before."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of the coordinate along the axis: `weight` in the index of the thread, None of a thread's values."""

    stride: int
    extent: int
    weight: int | None


def axis_digits(layout: TVLayout, axis: int) -> list[Digit] | None:
    """The digits along the axis, smallest stride first, those of threads split where lanes end; None unless each stride is the product of the extents
    before it."""
    digits: list[Digit] = []
    weight = 1
    for mode in layout.thread:
        if mode.extent > 1 and mode.stride[axis]:
            if sum(map(bool, mode.stride)) > 1:
                return None
            inside = max(1, min(mode.extent, WARP // weight)) if weight < WARP else 1
            if inside > 1:
                digits.append(Digit(mode.stride[axis], inside, weight))
            if mode.extent > inside:
                digits.append(Digit(mode.stride[axis] * inside, mode.extent // inside, weight * inside))
        weight *= mode.extent
    digits += [Digit(mode.stride[axis], mode.extent, None) for mode in layout.value if mode.extent > 1 and mode.stride[axis]]
    digits.sort(key=lambda digit: digit.stride)
    reach = 1
    for digit in digits:
        if digit.stride != reach:
            return None
        reach *= digit.extent
    return digits


def scan_layout(layout: TVLayout, shape: tuple[int, ...], axis: int, threads: int) -> TVLayout:
    """`layout` if it can be scanned along the axis, else one that can."""
    if axis_digits(layout, axis) is not None:
        return layout
    order = (axis, *(d for d in reversed(range(len(shape))) if d != axis))
    return TVLayout.blocked(shape, threads, order, 1)
