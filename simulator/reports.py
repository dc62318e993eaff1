"""What the judge says of a program: reports as data, and as text.

A `Report` is one fault found: its kind (one of `KINDS`), a sentence, the accesses at fault with their places in the
source and in the PTX, and what order is missing. Equal faults (the same kind between the same two instructions) are
one report with a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..dialects.diagnostics import Diagnostic, Location, TeselaError

RACE = "race"
MISSING_WAIT = "missing wait"
MISSING_PROXY_FENCE = "missing proxy fence"
BARRIER = "barrier count/phase"
BYTE_COUNT = "byte count"
DEADLOCK = "deadlock"
UNINITIALISED = "uninitialised"
OUT_OF_BOUNDS = "out of bounds"
MISALIGNED = "misaligned"
IN_FLIGHT = "register in flight"
DIVERGENCE = "divergence"
BUDGET = "register budget"
EXIT = "exit while peer may touch shared memory"
FAULT = "fault"

KINDS = (
    RACE,
    MISSING_WAIT,
    MISSING_PROXY_FENCE,
    BARRIER,
    BYTE_COUNT,
    DEADLOCK,
    UNINITIALISED,
    OUT_OF_BOUNDS,
    MISALIGNED,
    IN_FLIGHT,
    DIVERGENCE,
    BUDGET,
    EXIT,
    FAULT,
)
"""All kinds of reports. 'fault' is what fits no other: an operand that the hardware refuses, a trap."""


@dataclass(frozen=True)
class Access:
    """One side of a report. `verb`: 'reads', 'writes', 'updates' (atomically), 'initialises' …; `who`: threads, or
    the asynchronous operation, in words; `where`: addresses or registers in words; `op`: the opcode; `location`: the
    source line (.loc); `line`: the line of the PTX text."""

    verb: str
    who: str
    where: str
    op: str
    location: Location | None = None
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.who} {self.verb} {self.where} ({self.place})"

    @property
    def place(self) -> str:
        """The place in the PTX, in words."""
        return f"'{self.op}'" if self.line is None else f"PTX line {self.line}, '{self.op}'"


@dataclass
class Report:
    """A fault. `first` is the access at which it was noticed, `second` the other one, where there are two; `missing`:
    what order or operation is missing, in words; `count`: how often it occurred; `notes`: more, one line each."""

    kind: str
    message: str
    first: Access | None = None
    second: Access | None = None
    missing: str = ""
    count: int = 1
    notes: tuple[Diagnostic, ...] = ()

    def diagnostic(self) -> Diagnostic:
        notes: list[Diagnostic] = []
        if self.second is not None:
            notes.append(Diagnostic("note", f"the other access: {self.second}", self.second.location))
        if self.missing:
            notes.append(Diagnostic("note", self.missing))
        if self.count > 1:
            notes.append(Diagnostic("note", f"the same {self.count} times"))
        location = self.first.location if self.first is not None else None
        return Diagnostic("error", f"{self.kind}: {self.message}", location, None, [*notes, *self.notes])

    def __str__(self) -> str:
        return str(TeselaError([self.diagnostic()]))


class JudgedError(TeselaError):
    """A program was judged and found wanting; `reports` say how."""

    reports: Sequence[Report] = ()

    @classmethod
    def of(cls, reports: Sequence[Report]) -> JudgedError:
        error = cls([report.diagnostic() for report in reports])
        error.reports = list(reports)
        return error

    def prefixed(self, text: str, notes: Iterable[Diagnostic] = ()) -> JudgedError:
        error = super().prefixed(text, notes)
        assert isinstance(error, JudgedError)
        error.reports = self.reports
        return error
