"""Faults planted in every kernel of the repository, and how many of them the simulator catches.

    python bench/mutants.py --json bench/results/mutants.json        # goes on where the file ends
    python bench/mutants.py --only deep/ --kind drop-wait --each 3
    python bench/mutants.py --table bench/results/mutants.json       # what a run found

`tools/mutation` plants and judges; the programs are those of `test/judged_programs.py`, for each target. Of every kind of fault at most `--each` are
planted in each program, at places that the seed chooses. Faults that change nothing at their own place on the arguments at hand (`live.py`) are passed over
and counted. A results file is written after every program, so a run can be broken off; programs that it holds for the same seed and number are not run
again, but for those of which it lacks the faults that are passed over (and then mutants that were not missed, and are the same, are not tried again). Exit status 1 if fewer than 98 % of the mutants that are not equivalent, or fewer than 90 % of
all, are reported as the right kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rounds import environment, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from judged_programs import PROGRAMS, TARGETS  # noqa: E402

from tesela.tools.mutation.faults import KINDS, Mutant  # noqa: E402
from tesela.tools.mutation.launches import record  # noqa: E402
from tesela.tools.mutation.tally import counts, rates, table, try_all  # noqa: E402
from tesela.tools.mutation.trial import Verdict  # noqa: E402

LEAST_RAW, LEAST = 0.90, 0.98


SUPERSEDED = {f"kernels/{name.removeprefix('deep/')}" for name in PROGRAMS if name.startswith("deep/")}
"""Kernels that are there with long loops too: in short ones many faults of order cannot matter."""


def mutate(name: str, target: str, arguments: argparse.Namespace, before: list[dict[str, Any]]) -> dict[str, Any]:
    """The verdicts on one program's mutants, as a part of the results. `before`: rows of an earlier run."""
    rows = []
    passed_over: Counter[str] = Counter()
    told = {(row["launch"], row["mutant"], row["op"], row["fault"]): row for row in before if row["outcome"] in ("reported", "equivalent")}
    start = time.perf_counter()
    for number, launch in enumerate(record(lambda: PROGRAMS[name](target))):

        def known(mutant: Mutant, number: int = number) -> Verdict | None:
            row = told.get((number, mutant.key, mutant.opcode, mutant.change.text))
            return None if row is None else Verdict(row["outcome"], tuple(row.get("symptoms", ())), reason=row.get("reason", ""))

        seed = f"{arguments.seed}/{name}/{target}/{number}"
        for tried in try_all(launch, arguments.each, seed, arguments.kind, passed_over, known):
            rows.append({"launch": number, **tried.to_json()})
            if tried.verdict.outcome not in ("reported", "equivalent"):
                print(f"  {name} {target}: {tried}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{name:32} {target:7} {len(rows):3} mutants, {passed_over.total():3} passed over, {seconds:6.1f} s", flush=True)
    return {"program": name, "target": target, "seconds": round(seconds, 1), "passed_over": dict(passed_over), "mutants": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose names contain it")
    parser.add_argument("--kind", action="append", default=[], choices=tuple(KINDS), help="a kind of fault; may be repeated")
    parser.add_argument("--each", type=int, default=1, help="faults of each kind in each program (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of places (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results; go on with what is there")
    parser.add_argument("--table", metavar="FILE", type=Path, help="print the table of a results file, and run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(row for part in json.loads(arguments.table.read_text())["programs"] for row in part["mutants"]), end="")
        return 0
    asked = {"seed": arguments.seed, "each": arguments.each}
    done: list[dict[str, Any]] = []
    if arguments.json and arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        if before["asked"] == asked:
            done = before["programs"]
    known = {(part["program"], part["target"]): part for part in done}
    wanted = [(n, t) for n in PROGRAMS for t in TARGETS if arguments.only in n and n not in SUPERSEDED]
    wanted = [pair for pair in wanted if "passed_over" not in known.get(pair, {})]
    wanted.sort(key=lambda pair: pair in known)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(mutate, *pair, arguments, known.get(pair, {}).get("mutants", [])) for pair in wanted]
        for finished in as_completed(jobs):
            part = finished.result()
            known[part["program"], part["target"]] = part
            done = list(known.values())
            if arguments.json:
                write_json(arguments.json, results(asked, done))
    rows = [row for part in done for row in part["mutants"]]
    print(table(rows, sum(sum(part.get("passed_over", {}).values()) for part in done)), end="")
    raw, matter = rates(sum(counts(rows).values(), Counter()))
    return 0 if raw >= LEAST_RAW and matter >= LEAST else 1


def results(asked: dict[str, Any], done: list[dict[str, Any]]) -> dict[str, Any]:
    """The results file's contents."""
    order = list(PROGRAMS)
    done = sorted(done, key=lambda part: (order.index(part["program"]), TARGETS.index(part["target"])))
    by_kind = counts(row for part in done for row in part["mutants"])
    total: Counter[str] = sum(by_kind.values(), Counter())
    raw, matter = rates(total)
    return {
        "benchmark": "mutants",
        **environment(),
        "asked": asked,
        "mutants": sum(total.values()),
        "outcomes": dict(total),
        "reported_of_all": round(raw, 4),
        "reported_of_those_not_equivalent": round(matter, 4),
        "passed_over": dict(sum((Counter(part.get("passed_over", {})) for part in done), Counter())),
        "programs_with_passed_over_counted": sum("passed_over" in part for part in done),
        "kinds": {kind: dict(found) for kind, found in by_kind.items()},
        "programs": done,
    }


if __name__ == "__main__":
    sys.exit(main())
