"""Which program a call takes, where several compute the same: the one that the cost model says is fastest for the extents of its arrays.

A kernel comes as one program or several, which differ in what its author left open (`@tesela.kernel(variants=…)`: extents of tiles, warps, stages); and each
such program whose loop only adds up comes in versions in which several blocks share a point of the grid (`split`). Each is counted once (`dialects/work.py`), from its
lowered IR; for the extents of a call the counts say how long it would take. That costs some tens of microseconds, and is done once for each combination of
shapes: the choice is remembered with the prepared call. Only what is chosen is compiled.

    gemm on 132 multiprocessors, M = 128, N = 7168, K = 2048
      variant                 points  rounds        µs  bound by
      BM=128 BN=256                28       1     20.00  compute
      BM=128 BN=128 split=2       112       1      9.88  compute
    * BM=64 BN=128                112       1      9.11  memory
      …

The order of the programs is an order of preference: a later one is taken only if it is faster by more than TOLERANCE, and a split one by more than
SPLIT_TOLERANCE, since its sums depend on how many parts there are: `pins={"split": 1}`, or "split" among what a variant states, rules that out. A kernel whose author left
nothing open is taken as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..dialects.diagnostics import TeselaError
from ..dialects.dim_expr import DimExpr
from ..dialects.target import Target
from ..dialects.work import Estimate, Work, estimate
from .specialize import Facts

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from .launch import Variant

PARTS = (2, 3, 4, 6, 8, 12, 16)
"""Numbers of parts that are tried."""
LEAST_TRIPS = 4
"""Trips that a part should have: with fewer, filling its buffers takes longer than what it does."""
SMALL_GRID = 4
"""A grid of as many points for each multiprocessor is large, and its loops are not split."""
TOLERANCE = 1.01
SPLIT_TOLERANCE = 1.24
"""How many times as long the best choice without a split must be expected to take: what different rounding is worth, and the model's error."""

log = logging.getLogger("tesela")

COUNTED_DIVISOR = 16
"""Elements of one byte in what TMA stores at least (PTX ISA 9.0 §5.5)."""


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """Which program, by its number, and in how many parts."""

    program: int = 0
    parts: int = 1


class Compiler(Protocol):
    """One program."""

    @property
    def module(self) -> ModuleOp: ...

    @property
    def can_split(self) -> bool:
        """Whether a number of parts can be chosen: its loop only adds up, and nobody pinned it."""
        ...

    def __call__(self, facts: Facts, target: Target) -> Variant: ...

    def work(self, facts: Facts, target: Target) -> Work: ...

    def split(self, parts: int) -> Compiler:
        """The same program, split."""
        ...

    def ir(self, level: str, facts: Facts, target: Target) -> str: ...

    def lowered(self, level: str, facts: Facts, target: Target) -> ModuleOp: ...


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: a choice, what it is expected to take, or why it cannot be taken."""

    choice: Choice
    label: str
    expected: Estimate | None
    refused: str = ""

    @property
    def cost(self) -> float:
        """Clocks, with what speaks against splitting."""
        assert self.expected is not None
        return self.expected.clocks * (SPLIT_TOLERANCE if self.choice.parts > 1 else 1.0)


def best(rows: Sequence[Row]) -> Row:
    """The one to take, of rows in order of preference that can be taken."""
    limit = TOLERANCE * min(row.cost for row in rows)
    return next(row for row in rows if row.cost <= limit)


@runtime_checkable
class Chooser(Protocol):
    """Programs among which calls choose."""

    @property
    def is_open(self) -> bool: ...

    def choose(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> Choice: ...

    def __call__(self, facts: Facts, target: Target, choice: Choice = ...) -> Variant: ...


class Programs:
    """The programs of one kernel, in order of preference: (label, function that makes its compiler), which is called when it is first needed.

    `is_open`: whether its author left open what each call takes; otherwise there is one program, which is taken as it is.
    """

    def __init__(self, name: str, programs: Sequence[tuple[str, Callable[[], Compiler]]], is_open: bool):
        assert is_open or len(programs) == 1
        self.name, self.is_open = name, is_open
        self.labels = [label for label, _ in programs]
        self._make = [make for _, make in programs]
        self._compilers: dict[Choice, Compiler] = {}
        self._works: dict[tuple[int, Facts, str], Work | TeselaError] = {}

    def compiler(self, choice: Choice) -> Compiler:
        """The compiler of a choice."""
        found = self._compilers.get(choice)
        if found is None:
            made = self._make[choice.program]() if choice.parts == 1 else self.compiler(Choice(choice.program)).split(choice.parts)
            found = self._compilers.setdefault(choice, made)
        return found

    def label(self, choice: Choice) -> str:
        """A choice in words: 'BM=64 BN=128 split=2'."""
        return " ".join([*([self.labels[choice.program]] if self.labels[choice.program] else []), *([f"split={choice.parts}"] if choice.parts > 1 else [])])

    @property
    def module(self) -> ModuleOp:
        return self.compiler(Choice()).module

    def __call__(self, facts: Facts, target: Target, choice: Choice = Choice()) -> Variant:
        variant = self.compiler(choice)(facts, target)
        variant.choice, variant.label = choice, self.label(choice)
        return variant

    def ir(self, level: str, facts: Facts, target: Target, choice: Choice = Choice()) -> str:
        return self.compiler(choice).ir(level, facts, target)

    def lowered(self, level: str, facts: Facts, target: Target, choice: Choice = Choice()) -> ModuleOp:
        return self.compiler(choice).lowered(level, facts, target)

    # ---- choosing -----------------------------------------------------------------------------------------------

    def choose(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> Choice:
        """The choice for these extents. `nbytes`: of the arguments.

        Raises what the first program raises if all are refused.
        """
        if not self.is_open:
            return Choice()
        rows = self.rows(facts, target, dims, multiprocessors, nbytes)
        able = [row for row in rows if row.expected is not None]
        if not able:
            self.compiler(Choice())(facts, target)  # raises
            return Choice()
        chosen = best(able)
        if len(able) > 1:
            log.debug("%s: %s for %s", self.name, self.label(chosen.choice), dims)
        return chosen.choice

    def rows(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> list[Row]:
        """All that there is to choose from."""
        return list(self._rows(facts, target, dims, multiprocessors, nbytes))

    def _rows(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> Iterator[Row]:
        for program in range(len(self.labels)):
            label = self.label(Choice(program))
            work = self.work(program, facts, target)
            if isinstance(work, TeselaError):
                yield Row(Choice(program), label, None, work.diagnostics[0].message.split("\n")[0])
                continue
            whole = estimate(work, dims, multiprocessors, nbytes)
            yield Row(Choice(program), label, whole)
            if work.split is None or not self.compiler(Choice(program)).can_split or whole.points >= SMALL_GRID * multiprocessors:
                continue
            trips = DimExpr.parse(work.split.trips).evaluate(dims)
            for parts in PARTS:
                if trips < LEAST_TRIPS * parts or whole.points * parts > SMALL_GRID * multiprocessors:
                    break
                yield Row(Choice(program, parts), self.label(Choice(program, parts)), estimate(work, dims, multiprocessors, nbytes, parts))

    def work(self, program: int, facts: Facts, target: Target) -> Work | TeselaError:
        """The counts of a program, or why it is refused. Of the dimensions' divisors only whether they are multiples of 16 is told, which decides on what TMA can
        store: so there are few different facts."""
        facts = replace(facts, divisors=tuple((name, COUNTED_DIVISOR) for name, divisor in facts.divisors if divisor % COUNTED_DIVISOR == 0))
        key = (program, facts, target.name)
        found = self._works.get(key)
        if found is None:
            try:
                found = self.compiler(Choice(program)).work(facts, target)
            except TeselaError as error:
                log.info("%s, %s: refused: %s", self.name, self.labels[program], error.diagnostics[0].message)
                found = error
            self._works[key] = found
        return found

    def table(self, rows: Sequence[Row], chosen: Choice, dims: Mapping[str, int], multiprocessors: int) -> str:
        """The rows as text, in their order; of splits only those that are no worse than half as fast as the best."""
        extents = ", ".join(f"{name} = {value}" for name, value in dims.items())
        best = min((row.cost for row in rows if row.expected is not None), default=0.0)
        shown = [row for row in rows if row.expected is None or row.choice.parts == 1 or row.choice == chosen or row.cost <= 2 * best]
        width = max(len("variant"), *(len(row.label) for row in shown))
        lines = [
            f"{self.name} on {multiprocessors} multiprocessors{', ' if extents else ''}{extents}",
            f"  {'variant':{width}} {'points':>8} {'rounds':>7} {'µs':>9}  bound by",
        ]
        for row in shown:
            mark = "*" if row.choice == chosen else " "
            if (e := row.expected) is None:
                lines.append(f"{mark} {row.label:{width}} refused: {row.refused}")
            else:
                lines.append(f"{mark} {row.label:{width}} {e.points:>8} {e.rounds:>7} {e.microseconds:>9.2f}  {e.bound}")
        return "\n".join(lines) + "\n"
