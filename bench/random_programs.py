"""Random tile programs on both targets: what the compiled code leaves, in the simulator, against the block interpreter.

    python bench/random_programs.py --json bench/results/random_programs.json --processes 16      # goes on where the file ends
    python bench/random_programs.py --only 4242                                                   # one program: its text and how it went

The programs are those of `tools/fuzz/mix.py`: loads, elementwise, casts, transposes, reshapes, reductions, scans, dots of every type, computed places,
atomic updates, loops, conditionals, odd extents, one to three dimensions; and some directed at rows of the instruction table that such programs rarely
use. Exit status 1 if a program went wrong, or if, once all have run, a row that layouts choose between (`passes/offered_rows.py`) was used
by fewer than `--least` programs that were right. `refused` are clear errors for a stated limit, and are listed.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rounds import environment, write_json

from tesela.tools.fuzz import mix
from tesela.tools.fuzz.program import render

COUNT, CHUNK = 5000, 10
LEAST = 10
SAVE_SECONDS = 10.0


def chunk(first: int, count: int, seed: int) -> dict[str, Any]:
    """The results of `count` programs from number `first` on."""
    outcomes: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failures = []
    before = time.perf_counter()
    gc.disable()  # a third of the time otherwise; a chunk's garbage is some 100 MB
    for number in range(first, first + count):
        target, outcome, used = mix.run(number, seed)
        outcomes[f"{target} {outcome.kind}"] += 1
        rows.update(used)
        if outcome.kind == "refused":
            refused[outcome.signature[2]] += 1
        if outcome.failed:
            failures.append({"number": number, "target": target, "kind": outcome.kind, "stage": outcome.stage, "message": outcome.message})
    gc.collect()
    seconds = time.perf_counter() - before
    return {"first": first, "outcomes": outcomes, "rows": rows, "refused": refused, "failures": failures, "seconds": seconds}


def merged(total: dict[str, Any], part: dict[str, Any]) -> None:
    """Adds a chunk's results to those of a run."""
    for key in ("outcomes", "rows", "refused"):
        for name, count in part[key].items():
            total[key][name] = total[key].get(name, 0) + count
    total["failures"] += part["failures"]
    total["seconds"] = round(total["seconds"] + part["seconds"], 1)
    total["chunks_done"].append(part["first"] // CHUNK)


def rare(total: dict[str, Any], least: int) -> dict[str, int]:
    """The rows that fewer programs used, and how many did."""
    return {opcode: total["rows"].get(opcode, 0) for opcode in sorted(mix.all_rows()) if total["rows"].get(opcode, 0) < least}


def results(total: dict[str, Any], least: int) -> dict[str, Any]:
    """The results file's contents."""
    counts = total["outcomes"]
    ordered = {key: dict(sorted(total[key].items())) for key in ("outcomes", "refused", "rows")}
    return {
        "benchmark": "random programs",
        **environment(),
        "asked": total["asked"],
        "programs": sum(counts.values()),
        "failed": len(total["failures"]),
        "rows_that_layouts_choose": len(mix.all_rows()),
        "least": least,
        "rows_used_by_fewer": rare(total, least),
        **ordered,
        "failures": sorted(total["failures"], key=lambda failure: failure["number"]),
        "seconds": total["seconds"],
        "chunks_done": sorted(total["chunks_done"]),
    }


def one(number: int, seed: int) -> int:
    """Shows one program and how it goes."""
    found = mix.mixed(number, seed)
    print(render(found.program).text)
    _, outcome, used = mix.run(number, seed)
    print(f"program {number}, {found.target}: {outcome.kind} {outcome.stage}\n{outcome.message}")
    print(f"aimed at {', '.join(row.opcode for row in found.aims) or 'nothing'}; used {', '.join(sorted(used))}")
    return int(outcome.failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--count", type=int, default=COUNT, help="how many programs (default: %(default)s)")
    add("--seed", type=int, default=0, help="of all of them (default: %(default)s)")
    add("--processes", type=int, default=1, metavar="N", help="default: %(default)s")
    add("--seconds", type=float, default=float("inf"), help="start no more after this time; a later run goes on (default: no limit)")
    add("--least", type=int, default=LEAST, help="programs that use each row (default: %(default)s)")
    add("--json", metavar="FILE", type=Path, help="write the results; go on with what is there")
    add("--only", type=int, metavar="NUMBER", help="show and run one program")
    arguments = parser.parse_args()
    if arguments.only is not None:
        return one(arguments.only, arguments.seed)
    asked = {"seed": arguments.seed, "count": arguments.count}
    total: dict[str, Any] = {"asked": asked, "outcomes": {}, "rows": {}, "refused": {}, "failures": [], "seconds": 0.0, "chunks_done": []}
    if arguments.json and arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        if before["asked"] == asked:
            total = {key: before[key] for key in total}
    chunks = [i for i in range(-(-arguments.count // CHUNK)) if i not in set(total["chunks_done"])]
    end, saved = time.monotonic() + arguments.seconds, time.monotonic()
    with ProcessPoolExecutor(arguments.processes) as pool:
        waiting = iter(chunks)
        running = {pool.submit(chunk, *_chunk(i, arguments)) for _, i in zip(range(arguments.processes), waiting)}
        while running:
            finished = next(as_completed(running))
            running.remove(finished)
            part = finished.result()
            merged(total, part)
            for failure in part["failures"]:
                print(f"program {failure['number']}, {failure['target']}: {failure['kind']} at {failure['stage']}\n{failure['message']}", flush=True)
            if time.monotonic() < end and (following := next(waiting, None)) is not None:
                running.add(pool.submit(chunk, *_chunk(following, arguments)))
            if arguments.json and time.monotonic() > saved + SAVE_SECONDS:
                write_json(arguments.json, results(total, arguments.least))
                saved = time.monotonic()
    if arguments.json:
        write_json(arguments.json, results(total, arguments.least))
    done = sum(total["outcomes"].values())
    print(f"{done} of {arguments.count} programs, {len(total['failures'])} failed, {total['seconds']} s of processes")
    print(", ".join(f"{count} {name}" for name, count in sorted(total["outcomes"].items())))
    for message, count in sorted(total["refused"].items()):
        print(f"  refused {count}: {message}")
    missing = rare(total, arguments.least)
    print(f"{len(missing)} of {len(mix.all_rows())} rows that layouts choose were used by fewer than {arguments.least} programs")
    for opcode, count in list(missing.items())[:40]:
        print(f"  {count:4} {opcode}")
    return int(bool(total["failures"]) or done < arguments.count or bool(missing))


def _chunk(number: int, arguments: argparse.Namespace) -> tuple[int, int, int]:
    first = number * CHUNK
    return first, min(CHUNK, arguments.count - first), arguments.seed


if __name__ == "__main__":
    sys.exit(main())
