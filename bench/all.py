"""Records all results of a GPU again, in parts of a few minutes, the most important first: one command with a time limit, which goes on where it ended.

    python bench/all.py --seconds 560 --tar results.tgz       # as many parts as there is time for; once more for the others
    python bench/all.py --part gemm attention --again
    python bench/all.py --list                                # the parts, what each takes about, and which are done

Results go to bench/results (`--folder`), one file a part, with parts.json, which says of each how it ended, how long it took and which code it measured: what is
done of the same code is not done again. A part that runs out of time keeps the cases it has, and those with `--resume` go on after them. `--tar` packs all results and
the log after every part. Exit status 1 if a part failed, 2 if something is left to do. `python bench/tables.py README.md` then makes the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rounds import code, write_json

BENCH = Path(__file__).resolve().parent
STATES = "parts.json"
LOG = "log.txt"
LEAST_SECONDS = 20
"""A part that cannot end in the time that is left is begun only if it keeps what it has done, and has so much."""
PATIENCE = 2.5
"""How many times as long as estimated a part may take."""


@dataclass(frozen=True)
class Part:
    """A script with its arguments; `{json}` stands for its results file, `{seconds}` for what it may take, `{budget}` for that or the estimate. `estimate`: seconds on an H200 with 16 cores."""

    name: str
    command: tuple[str, ...]
    estimate: float
    resumes: bool = False


def _peers(name: str, estimate: float, rounds: int = 5) -> Part:
    return Part(name, ("peers.py", name, "--rounds", str(rounds), "--resume", "--seconds", "{seconds}", "--json", "{json}"), estimate, resumes=True)


PARTS = (
    _peers("gemm", 110),
    _peers("orders", 130),
    _peers("attention", 130),
    _peers("rows", 110),
    _peers("fused", 40),
    _peers("epilogue", 15),
    _peers("fp8", 35),
    _peers("decode", 190, 3),
    Part("launch_overhead", ("launch_overhead.py", "--json", "{json}"), 25),
    Part("first_call", ("first_call.py", "--json", "{json}"), 45),
    Part("warm_start", ("warm_start.py", "--json", "{json}"), 35),
    Part("counters", ("counters.py", "--json", "{json}"), 70),
    Part("agreement", ("agree.py", "--seconds", "{budget}", "--json", "{json}"), 170),
    Part("dots_cuda", ("dot_table.py", "--device", "cuda", "--processes", "14", "--json", "{json}"), 200),
    Part("layout_choices", ("layout_choices.py", "--json", "{json}"), 60),
    Part("overlapping", ("overlapping.py", "--json", "{json}"), 60),
    Part("row_choices", ("row_choices.py", "--json", "{json}"), 90),
    Part("gpu_check", ("gpu_check.py", "--budget", "{budget}", "--json", "{json}"), 120),
)
"""In the order of importance. Nothing runs beside a part, so that host times are those of a quiet machine."""


def run(part: Part, folder: Path, limit: float, log: Any) -> dict[str, Any]:
    """Runs a part for at most so many seconds, and says how it ended."""
    result = folder / f"{part.name}.json"
    filled = [text.format(json=result, seconds=round(limit - 5), budget=round(min(limit - 5, part.estimate))) for text in part.command]
    start = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, str(BENCH / filled[0]), *filled[1:]], stdout=log, stderr=subprocess.STDOUT, cwd=BENCH.parent, start_new_session=True
    )
    try:
        ended: int | str = child.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # the session that was started for it: its own children too
        child.wait()
        ended = "out of time"
    return {"code": code(), "ended": ended, "seconds": round(time.monotonic() - start, 1), "results": result.name if result.exists() else None}


def pack(folder: Path, target: Path) -> None:
    """All results and the log in one file; makes its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz") as tar:
        for path in sorted((*folder.glob("*.json"), folder / LOG)):
            if path.exists():
                tar.add(path, path.name)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--part", nargs="+", choices=[part.name for part in PARTS], metavar="NAME", help="these only")
    parser.add_argument("--folder", type=Path, default=BENCH / "results")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument("--list", action="store_true", help="print the parts and run none")
    parser.add_argument("--tar", type=Path, metavar="FILE", help="pack the results there")
    arguments = parser.parse_args(argv)
    end = time.monotonic() + arguments.seconds
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    states: dict[str, Any] = json.loads((folder / STATES).read_text()) if (folder / STATES).exists() else {}

    def done(part: Part) -> bool:
        state = states.get(part.name, {})
        return state.get("code") == code() and state.get("ended") == 0

    parts = [part for part in PARTS if arguments.part is None or part.name in arguments.part]
    if arguments.list:
        sys.stdout.writelines(f"{part.name:16} {part.estimate:5.0f} s  {'done' if done(part) else ''}\n" for part in parts)
        return 0
    with (folder / LOG).open("a") as log:
        for part in parts:
            left = end - time.monotonic()
            if done(part) and not arguments.again:
                sys.stdout.write(f"{part.name}: done before\n")
                continue
            if left < (LEAST_SECONDS if part.resumes else part.estimate):
                continue
            log.write(f"==== {part.name}\n")
            log.flush()
            states[part.name] = state = run(part, folder, min(left, PATIENCE * part.estimate), log)
            write_json(folder / STATES, states)
            log.flush()
            sys.stdout.write(f"{part.name}: {'ended with ' if state['ended'] != 'out of time' else ''}{state['ended']} after {state['seconds']:.0f} s\n")
            sys.stdout.flush()
            if arguments.tar is not None:
                pack(folder, arguments.tar)
    left_over = [part.name for part in parts if not done(part)]
    if left_over:
        sys.stdout.write(f"left to do: {', '.join(left_over)}\n")
    failed = any(states.get(part.name, {}).get("ended") == 1 for part in parts)
    return 1 if failed else 2 if left_over else 0


if __name__ == "__main__":
    raise SystemExit(main())
