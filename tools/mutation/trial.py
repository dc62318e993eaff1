"""Mutants on trial: each runs under several schedules with the judge watching, and leaves arrays to be compared.

A verdict is the first of these that holds:

* *reported*: under some schedule one of the symptoms that its kind of fault must show was seen;
* *otherwise*: something was seen, but nothing of that set (for a fault of order a wrong result alone is such a case);
* *equivalent*: nothing was seen, and `equivalent.py` proves that nothing could be;
* *missed*: nothing was seen, and nothing is proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialects.diagnostics import TeselaError
from ...simulator import Observer, Report, judge, launch
from .faults import KINDS, WRONG_RESULT, Mutant
from .launches import Recorded
from .trace import Trace

SCHEDULES: tuple[dict[str, Any], ...] = ({"policy": "latest"}, {"policy": "earliest"}, {"seed": 0}, {"seed": 1})
PATIENCE = 20
"""A mutant is stopped after so many times the turns of the program that is right, and MIN_TURNS."""
MIN_TURNS = 4000


@dataclass(frozen=True)
class Verdict:
    """What was decided about a mutant, the symptoms seen, the first report that fits (or any), and the reason why it is equivalent."""

    outcome: str
    symptoms: tuple[str, ...] = ()
    message: str = ""
    reason: str = ""


class Trial:
    """Tries mutants of one recorded launch. Bytes of the results that depend on the schedule (the low bits of sums by atomic additions of floats) are
    not compared."""

    def __init__(self, recorded: Recorded, schedules: Sequence[dict[str, Any]] = SCHEDULES):
        self.launch, self.schedules = recorded, schedules
        self._right: Trace | None = None
        self._turns = max(MIN_TURNS, PATIENCE * recorded.steps)
        self._expected: list[np.ndarray[Any, Any]] = []
        self._stable: list[np.ndarray[Any, Any]] = []

    def _run_right(self) -> None:
        """What the program that is right leaves. Raises TeselaError where it is reported, or where most of what it writes depends on the schedule."""
        recorded = self.launch
        found: list[list[np.ndarray[Any, Any]]] = []
        for schedule in self.schedules:
            reports = self._judge(recorded.program, recorded.params, schedule)
            if reports:
                raise TeselaError(f"kernel {recorded.entry}, which should be right, is reported: {reports[0]}")
            found.append(recorded.memory.snapshot())
        self._expected = found[0]
        self._stable = [np.logical_and.reduce([run[k] == self._expected[k] for run in found]) for k in range(len(self._expected))]
        written = sum(int((a != b).sum()) for a, b in zip(self._expected, recorded.before))
        unstable = sum(int((~stable).sum()) for stable in self._stable)
        if 2 * unstable > written:
            raise TeselaError(f"kernel {recorded.entry} writes {written} bytes, of which {unstable} depend on the schedule")

    def _same(self) -> bool:
        """Whether memory holds what the program that is right leaves there."""
        now = self.launch.memory.snapshot()
        return all(np.array_equal(a[stable], b[stable]) for a, b, stable in zip(now, self._expected, self._stable))

    def _judge(self, program: Any, params: bytes, schedule: dict[str, Any]) -> list[Report]:
        it = self.launch
        it.memory.restore(list(it.before))
        return judge(
            program, it.entry, it.grid, it.block, params, it.memory, it.shared_bytes, it.cluster, max_turns=self._turns, **schedule
        )

    def run(self, observer: Observer, mutant: Mutant | None = None, schedule: dict[str, Any] = SCHEDULES[0]) -> None:
        """Runs the program that is right, or a mutant, with an observer in place of the judge. Raises ProgramError where it cannot go on."""
        it = self.launch
        it.memory.restore(list(it.before))
        program, params = (it.program, it.params) if mutant is None else (mutant.program(it), mutant.params(it))
        launch(
            program, it.entry, it.grid, it.block, params, it.memory, it.shared_bytes, it.cluster, observer=observer, races=False,
            max_turns=self._turns, **schedule,
        )  # fmt: skip

    def trace(self, mutant: Mutant | None, schedule: dict[str, Any]) -> Trace:
        """The log of the program that is right, or of a mutant."""
        trace = Trace()
        self.run(trace, mutant, schedule)
        return trace

    def right_trace(self) -> Trace:
        """The log of the program that is right under the usual schedule; kept."""
        if self._right is None:
            self._right = self.trace(None, SCHEDULES[0])
        return self._right

    def symptoms(self, mutant: Mutant, schedule: dict[str, Any]) -> dict[str, str]:
        """What is seen of a mutant under a schedule: symptoms with a message each."""
        it = self.launch
        try:
            reports = self._judge(mutant.program(it), mutant.params(it), schedule)
        except TeselaError as error:
            return {"refused": str(error)}
        seen = {report.kind: report.message for report in reversed(reports)}
        if not any(report.kind in ("fault", "deadlock") for report in reports) and not self._same():
            seen[WRONG_RESULT] = "arrays hold other values"
        return seen

    def judge(self, mutant: Mutant) -> Verdict:
        """Tries a mutant. Raises TeselaError where the program that is right is reported, or where most of what it writes depends on the schedule."""
        if not self._expected:
            self._run_right()
        wanted = KINDS[mutant.kind].symptoms
        seen: dict[str, str] = {}
        for schedule in self.schedules:
            for symptom, message in self.symptoms(mutant, schedule).items():
                seen.setdefault(symptom, message)
            right = [symptom for symptom in seen if symptom in wanted]
            if right:
                return Verdict("reported", tuple(seen), seen[right[0]])
        if seen:
            return Verdict("otherwise", tuple(seen), next(iter(seen.values())))
        from .equivalent import why_equivalent

        reason = why_equivalent(self, mutant)
        return Verdict("equivalent" if reason else "missed", reason=reason or "")

