"""How elements of a tile are picked by a tile of indices (`tile.gather`): the cheapest of renaming, shuffles, and shared memory.

The line along the axis from which an element comes lies, in the source's layout, in some lanes and some of their values. If those lanes are of the warp that
holds the result's element, whichever element it is, and which they are does not depend on the index but for the digits of the axis, the lane is

    own lane, its digits of the axis replaced by the index's          and the value one of K that it holds of the line

`shfl.sync.idx` asks that lane for each of its K values, and selections by the remaining digits of the index keep one. With K values and no lanes along the axis,
nothing is shuffled. Else the source goes to shared memory, element by element, and each thread reads at its own indices.

>>> rows = TVLayout.parse("thread [32:(0,1), 4:(1,0)], value [2:(4,0)]")
>>> way = plan_gather(rows, rows, 1, (8, 32), 32, 32, 4)
>>> way.by, way.shuffles.digits, way.shuffles.picks
('shuffles', (Digit(stride=1, extent=32, weight=1),), ((0,), (1,)))
>>> plan_gather(rows, rows, 0, (8, 32), 32, 32, 4).by  # along the warps
'shared'
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import TensorType

from ..dialects import tile
from ..dialects.layout import TVLayout
from ..dialects.layout_attrs import tv_layout_of
from ..dialects.ptx_isa import UNITS
from ..dialects.tile import element_type, shape_of
from . import layout_costs
from .conversions import bits_of, shuffles_win
from .dot_rules import block_warps
from .scan_layouts import WARP, Digit, axis_digits
from .shuffles import MOST_REGISTERS


@dataclass(frozen=True, slots=True)
class Picks:
    """A gather within warps. `digits`: of the index, the smallest stride first: those of lanes say which lane is asked, those of values which of its values counts.
    `picks`: for each value of the result, the source's values on its line, in order along the axis."""

    digits: tuple[Digit, ...]
    picks: tuple[tuple[int, ...], ...]

    @property
    def lanes(self) -> tuple[Digit, ...]:
        return tuple(digit for digit in self.digits if digit.weight is not None)

    @property
    def values(self) -> tuple[Digit, ...]:
        return tuple(digit for digit in self.digits if digit.weight is None)

    def cost(self, bits: int, index_bits: int, warps: int) -> int:
        """In slots: the index taken apart, shuffles, selections, the check of the index, and the latency of one shuffle."""
        words, alu = (2 if bits == 64 else 1), UNITS["alu"].issue
        choices = len(self.picks[0])
        each = alu * (2 * len(self.digits) + index_bits // 32 + words * choices)
        if self.lanes:
            each += words * choices * UNITS["shuffle"].issue
        return (layout_costs.SLOTS * UNITS["shuffle"].latency if self.lanes else 0) + each * len(self.picks) * warps


@dataclass(frozen=True, slots=True)
class Gather:
    """The way of a gather: `by` 'names' (each thread has the whole lines), 'shuffles' or 'shared', and `costs` of each that is possible, in slots."""

    by: str
    costs: tuple[tuple[str, int], ...]
    shuffles: Picks | None = None

    @property
    def cost(self) -> int:
        return dict(self.costs)[self.by]


@lru_cache(maxsize=8192)
def plan_gather(source: TVLayout, result: TVLayout, axis: int, shape: tuple[int, ...], bits: int, index_bits: int, warps: int) -> Gather:
    """The cheapest way to pick, along `axis`, elements of `bits` bits (1: predicates) of a tile of `shape` in layout `source`, by indices in layout `result`."""
    room = layout_costs.scratch(shape, bits, False)
    shared = layout_costs.exchange(source.num_values + result.num_values, warps) + UNITS["alu"].issue * 2 * result.num_values * warps
    costs = (("shared", shared + room),)
    within = None
    if max(source.num_values, result.num_values) * (2 if bits == 64 else 1) <= MOST_REGISTERS:
        within = _within_warps(source, result, axis)
    if within is None:
        return Gather("shared", costs)
    by = "shuffles" if within.lanes else "names"
    costs = ((by, moved := within.cost(bits, index_bits, warps)), *costs)
    return Gather(by, costs, within) if shuffles_win(moved, shared, shape, bits) else Gather("shared", costs)


def _within_warps(source: TVLayout, result: TVLayout, axis: int) -> Picks | None:
    digits = axis_digits(source, axis)
    if digits is None or any(digit.weight is not None and digit.weight >= WARP for digit in digits):
        return None
    threads = max(source.num_threads, result.num_threads)
    if any(mode.extent & (mode.extent - 1) for layout in (source, result) for mode in layout.thread):
        return None
    if any(digit.extent & (digit.extent - 1) for digit in digits[:-1]):  # all but the last are masks
        return None

    def rest(at: tuple[int, ...]) -> tuple[int, ...]:
        return at[:axis] + at[axis + 1 :]

    weight = 1
    while weight < threads:  # both maps are sums of digits: powers of two decide
        here, there = source.thread_coords(weight % source.num_threads), result.thread_coords(weight % result.num_threads)
        if rest(here) != rest(there):
            return None
        weight *= 2
    lines: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for value in range(source.num_values):
        at = source.value_coords(value)
        lines.setdefault(rest(at), []).append((at[axis], value))
    expected = 1
    for digit in digits:
        expected *= digit.extent if digit.weight is None else 1
    picks = []
    for value in range(result.num_values):
        line = dict(lines.get(rest(result.value_coords(value)), ()))
        if len(line) != expected:  # no element is there, but padding of the result
            return None
        picks.append(tuple(line[at] for at in sorted(line)))
    return Picks(tuple(digits), tuple(picks))


def gather_of(op: tile.GatherOp) -> Gather:
    """How a `tile.gather` is done by the warps that do it. All layouts must be known."""
    kind = op.source.type
    assert isinstance(kind, TensorType)
    source, result = tv_layout_of(kind), tv_layout_of(op.res.type)
    assert source is not None and result is not None
    return plan_gather(source, result, op.along, shape_of(kind), bits_of(kind.element_type), bits_of(element_type(op.index.type)), block_warps(op))
