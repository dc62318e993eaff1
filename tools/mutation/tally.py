"""The verdicts of many mutants, counted by kind of fault, and what `tesela mutate` and `bench/mutants.py` say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .faults import KINDS, Mutant, choose, sites
from .launches import Recorded
from .live import is_live
from .trial import Trial, Verdict

OUTCOMES = ("reported", "otherwise", "equivalent", "missed")


@dataclass(frozen=True)
class Tried:
    """A mutant and what was decided about it."""

    mutant: Mutant
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        m, v = self.mutant, self.verdict
        row: dict[str, Any] = {"mutant": m.key, "kind": m.kind, "op": m.opcode, "fault": m.change.text, "outcome": v.outcome}
        if v.symptoms:
            row["symptoms"] = list(v.symptoms)
        if v.reason:
            row["reason"] = v.reason
        return row

    def __str__(self) -> str:
        v = self.verdict
        why = f": {v.reason}" if v.reason else f": {', '.join(v.symptoms)}: {v.message}" if v.symptoms else ""
        return f"{v.outcome}: {self.mutant.key} '{self.mutant.opcode}', {self.mutant.change.text}{why}"


def try_all(
    launch: Recorded,
    each: int,
    seed: str,
    kinds: Iterable[str] = (),
    passed_over: Counter[str] | None = None,
    known: Callable[[Mutant], Verdict | None] = lambda mutant: None,
) -> Iterator[Tried]:
    """Plants faults in a launch, as `choose` does, and tries them one after the other. Faults that change nothing at their own place are passed over
    (`live.py`), and counted by kind in `passed_over`. A mutant whose verdict is `known` is not tried again."""
    trial = Trial(launch)

    def fits(mutant: Mutant) -> bool:
        live = is_live(trial, launch, mutant)
        if not live and passed_over is not None:
            passed_over[mutant.kind] += 1
        return live

    for mutant in choose(sites(launch), each, seed, tuple(kinds), fits):
        yield Tried(mutant, known(mutant) or trial.judge(mutant))


def counts(rows: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Outcomes by kind of fault, of rows as `Tried.to_json` gives them."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["kind"], Counter())[row["outcome"]] += 1
    return {kind: found[kind] for kind in KINDS if kind in found}


def rates(total: Counter[str]) -> tuple[float, float]:
    """(of all mutants, of those that are not equivalent): the parts that are reported as the right kind."""
    everything = sum(total.values())
    matter = everything - total["equivalent"]
    return total["reported"] / max(1, everything), total["reported"] / max(1, matter)


def table(rows: Iterable[dict[str, Any]], passed_over: int = 0) -> str:
    """Counts and rates as a table of text. `passed_over`: faults besides that do nothing at their own place."""
    by_kind = counts(rows)
    total: Counter[str] = Counter()
    lines = [f"{'':18}{'mutants':>9}" + "".join(f"{name:>12}" for name in OUTCOMES)]
    for kind, found in by_kind.items():
        total += found
        lines.append(f"{kind:18}{sum(found.values()):9}" + "".join(f"{found[name]:12}" for name in OUTCOMES))
    lines.append(f"{'all':18}{sum(total.values()):9}" + "".join(f"{total[name]:12}" for name in OUTCOMES))
    raw, matter = rates(total)
    lines.append(f"reported as the right kind: {raw:.1%} of all, {matter:.1%} of those that are not equivalent")
    if passed_over:
        lines.append(f"{passed_over} faults more change nothing at their own place on these arguments, and are not counted")
    return "\n".join(lines) + "\n"
