"""Every way in which a dot can be computed: instruction × arrangement of warps × source of the left operand, and why the others are out.

A *candidate* is written as the instruction, how warps (for wgmma warpgroups) tile the block, rows × columns, and where the left operand is when the
instruction reads it:

    wgmma m64n256k16 2x1 shared        two warpgroups, one under the other; 256 columns an instruction
    mma m16n8k16 4x2 registers         eight warps, four down the rows and two along the columns; of a batch `2x4x2`
    fma m4n4k4 16x16 registers         256 threads, each with blocks of 4x4, four positions of K at a time
    wgmma m64n16k16 2x1 shared transposed      of the transposed dot: two warpgroups side by side, 64 columns of the result an instruction

This text is the attribute `instruction` of a dot once layouts are inferred. Before, an author may state some of its words, and only candidates that
have them all are considered: `instruction = "m64n128k16"`, or `"1x2"`.

`candidates` is total: what an instruction or the target does not allow comes back as a `Rejection` with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from ..dialects import async_copy, tile
from ..dialects.layout import TVLayout
from ..dialects.target import Target
from . import dot_rules, layout_costs
from .dot_rules import (
    MMA_COLUMNS,
    MMA_ROWS,
    WARPGROUP_WARPS,
    WGMMA_MAX_N,
    WGMMA_ROWS,
    DotChoice,
    DotShape,
)
from .dot_types import REGISTER_BYTES

SPAN_COLUMNS = 64
"""Where instructions may start in an operand that is contiguous along N, in whatever swizzle: a whole span of the widest, in 16-bit elements."""


@dataclass(frozen=True, slots=True)
class DotCandidate:
    """One way. `any_start`: whether every instruction starts where a descriptor can, even if the right operand is contiguous along N. `cost`: of
    doing the dot once, in the unit of `layout_costs`, without moving what is in registers."""

    text: str
    choice: DotChoice
    any_start: bool
    cost: int

    @property
    def layouts(self) -> tuple[TVLayout, TVLayout | None, TVLayout | None, bool]:
        """What the rest of the program sees of it."""
        return self.choice.acc, self.choice.lhs, self.choice.rhs, self.any_start


@dataclass(frozen=True, slots=True)
class Rejection:
    """A way that is out, or a group of ways, and the reason."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What `candidates` gives."""

    candidates: tuple[DotCandidate, ...]
    rejections: tuple[Rejection, ...]

    def named(self, words: str | None) -> tuple[DotCandidate, ...]:
        """The candidate that is written so, or all that have the words; all of them for None."""
        if whole := tuple(candidate for candidate in self.candidates if candidate.text == words):
            return whole
        wanted = set(words.split()) if words else set()
        return tuple(candidate for candidate in self.candidates if wanted <= set(candidate.text.split()))


def offer(op: tile.DotOp | async_copy.DotOp, warps: int, target: Target, lhs: str) -> Offer:
    """All ways of a dot op. Raises TeselaError for element types without an instruction, for an `async.dot` on a target without wgmma, and where
    no way's accumulator fits the registers."""
    unit = dot_rules.unit_of(op, warps, target)
    found = candidates(dot_rules.dot_shape(op), unit, warps, target, lhs)
    if not found.candidates:
        raise dot_rules.accumulator_error(op, warps, target)
    return found


@lru_cache(maxsize=512)
def candidates(shape: DotShape, unit: str, warps: int, target: Target, lhs: str) -> Offer:
    """All ways of `unit` ('wgmma', 'mma' or 'fma') for `warps` warps. `lhs`: where the left operand is: 'buffer', 'registers' (computed), or 'read' (read
    from a buffer for this dot). Ordered by cost, then text."""
    ways = _wgmma(shape, warps, lhs) if unit == "wgmma" else _mma(shape, warps) if unit == "mma" else _fma(shape, warps)
    limit = dot_rules.accumulator_limit(warps, target)
    fitting: list[DotCandidate] = []
    rejected = list(_other_units(shape, unit, warps, target, lhs))
    if unit == "wgmma" and lhs == "registers":
        rejected.append(Rejection("wgmma … shared", "the left operand is computed, and plan-dataflow has left it in registers"))
    for way in ways:
        if (used := -(-way.choice.acc.num_values * shape.kind.acc_size // REGISTER_BYTES)) > limit:
            rejected.append(Rejection(way.text, f"its accumulators take {used} registers of a thread, {limit} are free for them"))
        else:
            fitting.append(way)
    return Offer(tuple(sorted(fitting, key=lambda way: (way.cost, way.text))), tuple(rejected))


def _other_units(shape: DotShape, unit: str, warps: int, target: Target, lhs: str) -> Iterator[Rejection]:
    if unit == "wgmma":
        yield Rejection("mma m16n8k16 …", "the dot is asynchronous: plan-dataflow takes wgmma where it can, which has twice the rate")
    elif unit == "fma":
        yield Rejection("wgmma …, mma …", f"tensor cores do not multiply {shape.kind.lhs} exactly; f32 as tf32 where precision = \"tf32\" says so")
    elif not target.has_wgmma:
        yield Rejection("wgmma …", f"{target.name} has no wgmma, which needs sm_90a")
    elif shape.batch:
        yield Rejection("wgmma …", "wgmma multiplies no batches")
    elif warps % WARPGROUP_WARPS:
        yield Rejection("wgmma …", f"wgmma takes warpgroups of {WARPGROUP_WARPS} warps, the block has {warps} warps")
    else:
        yield Rejection("wgmma …", "the dot is not asynchronous: plan-dataflow has read its operands into registers")
    if unit == "fma" or not dot_rules.gains_transposed(shape, unit):
        yield Rejection(f"{unit} … {dot_rules.SWAPPED}", "of the transposed dot the instructions would multiply as much padding, or more")
    elif unit == "wgmma" and lhs != "buffer":
        yield Rejection(f"{unit} … {dot_rules.SWAPPED}", "the left operand is in registers, and wgmma takes its right one from shared memory")


def _wgmma(shape: DotShape, warps: int, lhs: str) -> Iterator[DotCandidate]:
    groups = warps // WARPGROUP_WARPS
    for way in _orientations(shape, "wgmma"):
        swapped = way is not shape
        for (down, along), in_registers in product(dot_rules.wgmma_arrangements(warps), (False, True)):
            # What is in registers can be the instruction's left operand only; of the transposed dot both come from shared memory.
            if (swapped and (lhs != "buffer" or in_registers)) or (lhs == "registers" and not in_registers):
                continue
            widest = min(dot_rules.wgmma_columns(way, down, along), WGMMA_MAX_N)
            for n in range(8, widest + 1, 8):
                choice = dot_rules.wgmma_way(way, groups, down, along, n, in_registers)
                if not all(dot_rules.wgmma_width(way.kind, piece) for piece in choice.pieces):
                    continue
                columns = sum(choice.pieces)
                any_start = n == columns or n % SPAN_COLUMNS == 0
                text = f"wgmma m{WGMMA_ROWS}n{n}k{choice.step} {down}x{along} {'registers' if in_registers else 'shared'}"
                yield _oriented(text, choice, any_start, _wgmma_cost(choice, shape.kind.size, groups, in_registers, lhs), swapped)


def _orientations(shape: DotShape, unit: str) -> tuple[DotShape, ...]:
    """The dot itself, and the transposed one where that may be better."""
    return (shape, shape.transposed()) if dot_rules.gains_transposed(shape, unit) else (shape,)


def _oriented(text: str, choice: DotChoice, any_start: bool, cost: int, swapped: bool) -> DotCandidate:
    if swapped:
        return DotCandidate(f"{text} {dot_rules.SWAPPED}", choice.transposed(), any_start, cost)
    return DotCandidate(text, choice, any_start, cost)


def _wgmma_cost(choice: DotChoice, size: int, groups: int, in_registers: bool, lhs: str) -> int:
    steps = choice.extents[2] // choice.step
    total = 0
    for n in choice.pieces:
        tensor, shared = layout_costs.wgmma_clocks(WGMMA_ROWS, n, not in_registers, size, choice.step)
        total += max(tensor, shared) + shared // 4 + WARPGROUP_WARPS
    total *= groups * choice.slabs * steps
    if in_registers and lhs == "buffer":
        # ldmatrix first: 64 rows of 32 bytes of each warpgroup and step are 4 instructions of 4 wavefronts, and stay in registers till the dot has read them
        assert choice.lhs is not None
        reads = groups * choice.slabs * steps * WARPGROUP_WARPS * (1 + 4 * layout_costs.SLOTS)
        total += reads + layout_costs.registers(choice.lhs, 8 * size, groups * WARPGROUP_WARPS)
    return total


def _mma(shape: DotShape, warps: int) -> Iterator[DotCandidate]:
    for way, (batches, down, along) in ((each, dealt) for each in _orientations(shape, "mma") for dealt in dot_rules.mma_arrangements(each, warps)):
        choice = dot_rules.mma_way(way, warps, batches, down, along)
        tiles = choice.acc.num_values // (MMA_ROWS * MMA_COLUMNS // 32)
        clocks = layout_costs.MMA_CLOCKS * (2 if shape.kind.emulated else 1)
        cost = clocks * tiles * (choice.extents[2] // choice.step) * warps
        text = f"mma m{MMA_ROWS}n{MMA_COLUMNS}k{choice.step} {_arrangement(shape, batches, down, along)} registers"
        yield _oriented(text, choice, True, cost, way is not shape)


def _fma(shape: DotShape, warps: int) -> Iterator[DotCandidate]:
    high, wide, step = dot_rules.fma_block(shape)
    for batches, down, along in dot_rules.fma_arrangements(shape, warps):
        choice = dot_rules.fma_way(shape, warps, batches, down, along)
        text = f"fma m{high}n{wide}k{step} {_arrangement(shape, batches, down, along)} registers"
        yield DotCandidate(text, choice, True, dot_rules.fma_clocks(shape, batches, down, along) * shape.k * warps)


def _arrangement(shape: DotShape, batches: int, down: int, along: int) -> str:
    return f"{batches}x{down}x{along}" if shape.batch else f"{down}x{along}"


def distinct(offered: Sequence[DotCandidate]) -> tuple[DotCandidate, ...]:
    """The cheapest candidate for each set of layouts: the others can be in no better answer. `offered` is ordered by cost."""
    best: dict[object, DotCandidate] = {}
    for candidate in offered:
        *layouts, any_start = candidate.layouts
        if (*layouts, True) not in best:
            best.setdefault((*layouts, any_start), candidate)
    return tuple(best.values())
