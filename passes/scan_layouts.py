"""Which layouts a scan or fold can go through digit by digit, one that it can for those that are none of them, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..dialects import tile
from ..dialects.layout import TVLayout
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.ptx_isa import UNITS
from ..dialects.tile import element_type, shape_of
from . import layout_costs
from .access import memory_bytes

WARP = 32
SHUFFLES = ("up", "down", "bfly")
"""How a scan's lanes get the results of those before, of those behind in reverse, or all of them, of a fold, the total."""


def shuffle_opcode(how: str) -> str:
    return f"shfl.sync.{how}.b32"


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


WIDEST = 8
"""Bytes of the widest element that a scan works in."""


def combines_along(op: tile.ScanOp | tile.FoldOp) -> bool:
    """Whether it matters to a scan or fold that a layout holds elements past the tile's extent, which come last along the axis: they come first in
    reverse, and a fold takes all."""
    return isinstance(op, tile.FoldOp) or op.reverse is not None


def word_bytes(op: tile.ScanOp | tile.FoldOp) -> int:
    """Bytes, at most, of what is combined of one place: an element of each tile, in a register of its own, and whether it is one."""
    sizes = [WIDEST if memory_bytes(element_type(source.type)) == WIDEST else 4 for source in op.sources]
    return sum(sizes) + (4 if combines_along(op) else 0)


def scan_scratch(op: tile.ScanOp | tile.FoldOp) -> int:
    """Bytes, at most, of shared memory that a scan or fold in a known layout goes through: a tile on its way to another layout, or the totals of warps."""
    kind = op.sources[0].type
    if not isinstance(kind.encoding, TVLayoutAttr):
        return 0
    axis, held = op.axis.value.data, kind.encoding.data
    digits = axis_digits(held, axis)
    if digits is not None and all(digit.weight is None or digit.weight < WARP for digit in digits):
        return 0
    before = 1  # elements of which a thread holds the total when the first digit of warps comes
    for digit in digits or ():
        if digit.weight is not None and digit.weight >= WARP:
            break
        before *= digit.extent
    return -(-word_bytes(op) * prod(-(-extent // WARP) * WARP for extent in held.shape()) // before)


def scan_cost(op: tile.ScanOp | tile.FoldOp, held: TVLayout, warps: int) -> layout_costs.Cost:
    """A scan or fold of tiles in a layout: combining in the thread, shuffles among lanes, and across warps through shared memory."""
    axis, parts = op.axis.value.data, len(op.sources)
    layout = scan_layout(held, shape_of(op.sources[0].type), axis, WARP * warps)
    digits = axis_digits(layout, axis)
    assert digits is not None, "scan_layout has made it so"
    body = () if op.body is None else list(op.body.block.ops)[:-1]
    combine = max(UNITS["alu"].issue, sum(layout_costs.arithmetic(inner.name, 1, 1) for inner in body)) * warps
    choose, shuffle = parts * UNITS["alu"].issue * warps, parts * UNITS["shuffle"].issue * warps
    scans = isinstance(op, tile.ScanOp)
    blocks = values = layout.num_values
    cost = 0
    for number, digit in enumerate(digits):
        later = values if scans and number else 0  # results that take in what comes before their block; at first they are the totals themselves
        if digit.weight is None:
            blocks //= digit.extent
            cost += combine * (blocks + later // digit.extent) * (digit.extent - 1)
            continue
        if digit.weight < WARP:
            steps = (digit.extent - 1).bit_length()
            cost += steps * blocks * (combine + 2 * choose + shuffle) + (2 * shuffle * blocks if scans else 0)
        else:
            cost += 2 * layout_costs.BARRIER + parts * blocks * warps * (1 + digit.extent) * (1 + layout_costs.SLOTS) + combine * blocks * (digit.extent - 1)
        cost += (combine + choose) * (values if scans else 0)
    if layout is not held:
        moved = layout_costs.exchange(held.num_values + layout.num_values, warps)
        cost += moved * parts * (2 if scans else 1)
    return cost
