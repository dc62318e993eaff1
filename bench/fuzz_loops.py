"""Random loops under every lowering of channels and every form of role: none may differ from the loop as it stands, and a run must cover all forms.

    python bench/fuzz_loops.py --json bench/results/random_loops.json                       # goes on where the file ends
    python bench/fuzz_loops.py --json FILE --programs 4000 --processes 16 --seconds 100     # as far as it comes in that time
    python bench/fuzz_loops.py --json FILE --part 1/4                                       # every fourth piece, beginning with the second

`test/random_loops.py` makes the programs, each from its number, so that every run of a piece gives the same; `test/loop_coverage.py` says what must be covered. Programs
are run in pieces of 50. The results file is written after each, so a run can be broken off; pieces that it holds for the same generator and the same
compiler (the sources of both) are not run again. Exit status 1 if a program differs, is reported or cannot be compiled, or, once all programs are done, if
something was covered less than LEAST times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rounds import environment, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from loop_coverage import REQUIRED  # noqa: E402
from random_loops import examine  # noqa: E402

from tesela.dialects.diagnostics import TeselaError  # noqa: E402

PIECE = 50
LEAST = 3
"""How often each form must come up in a whole run."""
COVERED_TIMES = 2
"""How often the programs that `covering` picks have each form."""
LAYERS = ("dialects", "passes", "lowering", "simulator", "runtime")


def sources() -> str:
    """A fingerprint of what makes the programs, compiles them and runs them."""
    digest = hashlib.sha256()
    files = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    for path in (*files, *(ROOT / "test" / f"{name}.py" for name in ("random_loops", "loop_coverage", "pipelined_programs"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def piece(number: int) -> dict[str, Any]:
    """What the programs of a piece covered, and which were wrong. `forms`: of each program, the bits of those of REQUIRED, in order, that it has."""
    start = time.perf_counter()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    masks: list[str] = []
    for seed in range(number * PIECE, (number + 1) * PIECE):
        try:
            outcome = examine(seed)
        except TeselaError as error:
            wrong.append(f"seed {seed}: {error}")
            masks.append("0")
            continue
        except Exception as error:
            error.add_note(f"in the random loop of seed {seed}")
            raise
        counts.update(outcome.covered)
        masks.append(f"{sum(1 << bit for bit, name in enumerate(sorted(REQUIRED)) if name in outcome.covered):x}")
        if outcome.wrong is not None:
            wrong.append(outcome.wrong)
    return {"piece": number, "seconds": round(time.perf_counter() - start, 1), "wrong": wrong, "covered": dict(counts), "forms": " ".join(masks)}


def covering(pieces: Iterable[dict[str, Any]]) -> list[int]:
    """Few programs that together have each form COVERED_TIMES times: always the next that has most of what is still wanted."""
    names = sorted(REQUIRED)
    masks = {row["piece"] * PIECE + place: int(mask, 16) for row in pieces for place, mask in enumerate(row["forms"].split())}
    having = {seed: {name for bit, name in enumerate(names) if mask >> bit & 1} for seed, mask in masks.items()}
    wanted = Counter({name: min(COVERED_TIMES, sum(name in names for names in having.values())) for name in REQUIRED})
    picked: list[int] = []
    while +wanted:
        best = max(having, key=lambda seed: (sum(wanted[name] > 0 for name in having[seed]), -seed))
        wanted.subtract(having.pop(best))
        picked.append(best)
    return sorted(picked)


def results(asked: dict[str, Any], pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """The results file's contents."""
    pieces = sorted(pieces, key=lambda row: row["piece"])
    total: Counter[str] = sum((Counter(row["covered"]) for row in pieces), Counter())
    return {
        "benchmark": "random_loops",
        **environment(),
        "asked": asked,
        "programs": PIECE * len(pieces),
        "wrong": [text for row in pieces for text in row["wrong"]],
        "covered": dict(sorted(total.items())),
        "missing": sorted(name for name in REQUIRED if total[name] < LEAST),
        "seconds": round(sum(row["seconds"] for row in pieces), 1),
        "covering": covering(pieces),
        "pieces": pieces,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=2000, help="how many, rounded up to pieces of 50 (default: %(default)s)")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="only pieces I, I + N, I + 2·N … (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no piece after as long")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results; go on with what is there")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    asked = {"sources": sources(), "piece": PIECE}
    done: list[dict[str, Any]] = []
    if arguments.json and arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        done = before["pieces"] if before["asked"] == asked else []
    end = time.monotonic() + arguments.seconds if arguments.seconds else None
    all_pieces = range(-(-arguments.programs // PIECE))
    left = [number for number in all_pieces if number % parts == part and number not in {row["piece"] for row in done}]
    with ProcessPoolExecutor(arguments.processes) as pool:
        jobs = [pool.submit(piece, number) for number in left]
        for finished in as_completed(jobs):
            if finished.cancelled():
                continue
            row = finished.result()
            done.append(row)
            print(f"programs {row['piece'] * PIECE} to {(row['piece'] + 1) * PIECE - 1}: {row['seconds']} s, {len(row['wrong'])} wrong", flush=True)
            for text in row["wrong"]:
                print(f"  {text}", flush=True)
            if arguments.json:
                write_json(arguments.json, results(asked, done))
            if end is not None and time.monotonic() > end:
                for job in jobs:
                    job.cancel()
    found = results(asked, done)
    whole = {row["piece"] for row in done} >= set(all_pieces)
    print(f"{found['programs']} programs, {len(found['wrong'])} wrong, {len(REQUIRED) - len(found['missing'])} of {len(REQUIRED)} forms covered {LEAST} times")
    if found["missing"]:
        print(f"not covered: {', '.join(found['missing'])}")
    return 1 if found["wrong"] or (whole and found["missing"]) else 0


if __name__ == "__main__":
    sys.exit(main())
