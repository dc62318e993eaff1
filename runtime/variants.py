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
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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
TOLERANCE = 1.02
SPLIT_TOLERANCE = 1.02
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
    def pins(self) -> Mapping[str, int]: ...

    def __call__(self, facts: Facts, target: Target) -> Variant: ...

    def floor(self, facts: Facts, target: Target) -> Work:
        """What `work` is not below, by any estimate."""
        ...

    def work(self, facts: Facts, target: Target) -> Work: ...

    def forget(self) -> None:
        """Keep nothing that a compilation after `floor` or `work` could start from."""
        ...

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


@dataclass(frozen=True)
class Question:
    """What a choice depends on: of a call. `nbytes`: of its arguments."""

    facts: Facts
    target: Target
    dims: Mapping[str, int]
    multiprocessors: int
    nbytes: int

    @cached_property
    def counted(self) -> Facts:
        """The facts that programs are counted under. Of the dimensions' divisors only whether they are multiples of 16, which decides on what TMA can store: so
        there are few different ones."""
        return replace(self.facts, divisors=tuple((name, COUNTED_DIVISOR) for name, divisor in self.facts.divisors if divisor % COUNTED_DIVISOR == 0))


@dataclass
class Counts:
    """What is known of the programs of a kernel under some facts, by their numbers: floors, counts, and why some are refused."""

    floors: dict[int, Work] = field(default_factory=dict)
    works: dict[int, Work] = field(default_factory=dict)
    refused: dict[int, TeselaError] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """A number that grows with what is known."""
        return len(self.floors) + len(self.works) + len(self.refused)

    def to_json(self) -> dict[str, Any]:
        """Of a refusal only its first line is kept."""
        return {
            "floors": {str(program): work.to_json() for program, work in self.floors.items() if program not in self.works},
            "works": {str(program): work.to_json() for program, work in self.works.items()},
            "refused": {str(program): why_refused(error) for program, error in self.refused.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Counts:
        """Raises KeyError, TypeError or ValueError for what `to_json` did not make."""
        floors, works = ({int(program): Work.from_json(work) for program, work in data[kind].items()} for kind in ("floors", "works"))
        return Counts(floors, works, {int(program): TeselaError.at(None, why) for program, why in data["refused"].items()})


def why_refused(error: TeselaError) -> str:
    """An error's first line."""
    return error.diagnostics[0].message.split("\n")[0]


class Stored(Protocol):
    """Where counts are kept between processes."""

    def load(self, facts: Facts, target: Target) -> Counts: ...

    def save(self, facts: Facts, target: Target, counts: Counts) -> None: ...


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

    def __init__(self, name: str, programs: Sequence[tuple[str, Callable[[], Compiler]]], is_open: bool, stored: Stored | None = None):
        assert is_open or len(programs) == 1
        self.name, self.is_open = name, is_open
        self.labels = [label for label, _ in programs]
        self._make = [make for _, make in programs]
        self._compilers: dict[Choice, Compiler] = {}
        self._stored = stored
        self._counts: dict[tuple[Facts, str], Counts] = {}

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

    @property
    def pins(self) -> Mapping[str, int]:
        return self.compiler(Choice()).pins

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
        question = Question(facts, target, dims, multiprocessors, nbytes)
        with self._counting(question) as counts:
            able = [row for row in self._contenders(counts, question) if row.expected is not None]
        chosen = best(able).choice if able else Choice()
        for choice, compiler in self._compilers.items():
            if choice != chosen:
                compiler.forget()
        if not able:
            self.compiler(Choice())(facts, target)  # raises
        if len(self.labels) > 1 or chosen.parts > 1:
            log.debug("%s: %s for %s", self.name, self.label(chosen), dims)
        return chosen

    def _contenders(self, counts: Counts, question: Question) -> list[Row]:
        """The rows among which the best is, in their order. A program is counted only if it could be taken, by its floor, the most promising one first."""
        rows: dict[int, list[Row]] = {}
        floors: list[tuple[float, int]] = []
        for program in range(len(self.labels)):
            if program in counts.works or isinstance(floor := self._floor(program, counts, question), TeselaError):
                rows[program] = self._rows(program, self._work(program, counts, question), question)
            else:
                floors.append((min(row.cost for row in self._rows(program, floor, question)), program))
        for floor, program in sorted(floors):
            able = [row for known in sorted(rows) for row in rows[known] if row.expected is not None]
            if able:
                leader = best(able)
                # What comes after the one that is taken so far must be faster by more than TOLERANCE to be taken, or to have that one passed over.
                limit = leader.cost / TOLERANCE if program > leader.choice.program else TOLERANCE * min(row.cost for row in able)
                if floor > limit:
                    continue
            rows[program] = self._rows(program, self._work(program, counts, question), question)
        return [row for program in sorted(rows) for row in rows[program]]

    def rows(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> list[Row]:
        """All that there is to choose from."""
        question = Question(facts, target, dims, multiprocessors, nbytes)
        with self._counting(question) as counts:
            rows = [row for program in range(len(self.labels)) for row in self._rows(program, self._work(program, counts, question), question)]
        for compiler in self._compilers.values():
            compiler.forget()
        return rows

    def _rows(self, program: int, work: Work | TeselaError, question: Question) -> list[Row]:
        """What a program comes in, by what was counted, or why it is refused."""
        dims, multiprocessors, nbytes = question.dims, question.multiprocessors, question.nbytes
        label = self.label(Choice(program))
        if isinstance(work, TeselaError):
            return [Row(Choice(program), label, None, why_refused(work))]
        whole = estimate(work, dims, multiprocessors, nbytes)
        rows = [Row(Choice(program), label, whole)]
        if work.split is None or whole.points >= SMALL_GRID * multiprocessors:
            return rows
        trips = DimExpr.parse(work.split.trips).evaluate(dims)
        for parts in PARTS:
            if trips < LEAST_TRIPS * parts or whole.points * parts > SMALL_GRID * multiprocessors:
                break
            rows.append(Row(Choice(program, parts), self.label(Choice(program, parts)), estimate(work, dims, multiprocessors, nbytes, parts)))
        return rows

    def work(self, program: int, facts: Facts, target: Target) -> Work | TeselaError:
        """The counts of a program, or why it is refused."""
        question = Question(facts, target, {}, 0, 0)
        with self._counting(question) as counts:
            return self._work(program, counts, question)

    @contextmanager
    def _counting(self, question: Question) -> Iterator[Counts]:
        """What is known under these facts, and is kept if it becomes more."""
        key = question.counted, question.target.name
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counts() if self._stored is None else self._stored.load(question.counted, question.target)
        before = counts.size
        yield counts
        if counts.size > before and self._stored is not None:
            self._stored.save(question.counted, question.target, counts)

    def _floor(self, program: int, counts: Counts, question: Question) -> Work | TeselaError:
        return self._counted(program, counts, counts.floors, question, lambda compiler, *about: compiler.floor(*about))

    def _work(self, program: int, counts: Counts, question: Question) -> Work | TeselaError:
        return self._counted(program, counts, counts.works, question, lambda compiler, *about: compiler.work(*about))

    def _counted(
        self, program: int, counts: Counts, known: dict[int, Work], question: Question, count: Callable[[Compiler, Facts, Target], Work]
    ) -> Work | TeselaError:
        if (why := counts.refused.get(program)) is not None:
            return why
        if program not in known:
            try:
                known[program] = count(self.compiler(Choice(program)), question.counted, question.target)
            except TeselaError as error:
                log.info("%s, %s: refused: %s", self.name, self.labels[program], error.diagnostics[0].message)
                counts.refused[program] = error
                return error
        return known[program]

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
