"""The judge over every program of the repository: no report may come, under many schedules; and how fast it runs.

    python bench/judge.py --json bench/results/judge.json       # goes on where the file ends
    python bench/judge.py --seeds 5 --only kernels/

Each program of `test/judged_programs.py` runs for each target under the policies 'latest' and 'earliest' and under
`--seeds` random schedules with races on, in a process of its own, whose largest resident memory is recorded. Speed is
measured on one core in this process, on a GEMM, a histogram and a row softmax, with races off and on (the fastest of
five runs). A results file is written after every program, so a run can be broken off; programs that it holds for the same
number of seeds and the same commit are not run again. Exit status 1 if anything is reported, or a program takes more than
MEMORY_MB or a speed is below LIMITS.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rounds import environment, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from judged_programs import PROGRAMS, TARGETS  # noqa: E402

from tesela.dialects.diagnostics import TeselaError  # noqa: E402
from tesela.runtime.compile import compile  # noqa: E402
from tesela.simulator import Memory, RunResult, launch, settings  # noqa: E402

TIMES = 5
MEMORY_MB = 2048
"""What a program may take, all of its process counted."""
LIMITS = {
    "gemm": {"plain_seconds": 2.0, "races_seconds": 6.0},
    "histogram": {"races_million_thread_instructions_per_second": 5.0},
    "softmax": {"races_million_thread_instructions_per_second": 5.0},
}
"""By the first word of a kernel's name in `speed`: seconds at most, rates at least."""

HISTOGRAM = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry histogram(.param .b64 x, .param .b64 y, .param .b32 n)
{
  .reg .b32 %s, %t, %n, %at, %step, %bin, %v, %place; .reg .b64 %x, %y, %a; .reg .pred %p;
  ld.param.b64 %x, [x]; ld.param.b64 %y, [y]; ld.param.b32 %n, [n]; mov.b32 %s, smem; mov.b32 %t, %tid.x;
  shl.b32 %place, %t, 2; add.s32 %place, %place, %s; mov.b32 %v, 0; st.shared.b32 [%place], %v; bar.sync 0;
  mov.b32 %at, %ctaid.x; mov.b32 %step, %ntid.x; mad.lo.s32 %at, %at, %step, %t; mov.b32 %v, %nctaid.x; mul.lo.s32 %step, %step, %v;
$NEXT:
  setp.ge.s32 %p, %at, %n; @%p bra $DONE;
  cvt.u64.u32 %a, %at; add.s64 %a, %a, %x; ld.global.u8 %v, [%a]; shl.b32 %bin, %v, 2; add.s32 %bin, %bin, %s;
  red.shared.add.u32 [%bin], 1; add.s32 %at, %at, %step; bra $NEXT;
$DONE:
  bar.sync 0; ld.shared.b32 %v, [%place]; mul.wide.u32 %a, %t, 4; add.s64 %a, %a, %y; red.global.add.u32 [%a], %v;
  ret;
}
"""


def judge_program(job: tuple[str, str, int]) -> dict[str, Any]:
    """One program for one target under all schedules, in a process of its own: runs, seconds, memory, and what was reported."""
    name, target, seeds = job
    schedules: list[dict[str, Any]] = [{"policy": "latest"}, {"policy": "earliest"}, *({"seed": s} for s in range(seeds))]
    reports: list[str] = []
    start = time.perf_counter()
    for options in schedules:
        try:
            with settings(races=True, **options):
                PROGRAMS[name](target)
        except TeselaError as error:
            reports.append(f"{options}: {error}")
    return {
        "program": name,
        "target": target,
        "runs": len(schedules),
        "seconds": round(time.perf_counter() - start, 3),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "reports": reports,
    }


def silence(seeds: int, only: str, jobs: int, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each program and target, as they are done; those known first."""
    yield from known
    done = {(row["program"], row["target"]) for row in known}
    pairs = [(name, target) for name in PROGRAMS for target in TARGETS if only in name]
    wanted = [(name, target, seeds) for name, target in pairs if (name, target) not in done]
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for row in pool.imap(judge_program, wanted, chunksize=1):
            print(
                f"{row['program']:32} {row['target']:7} {row['runs']} runs, {row['seconds']:6.2f} s, {row['peak_mb']} MB, "
                f"{len(row['reports'])} with reports",
                flush=True,
            )
            yield row


def commit() -> str:
    """The commit that is judged, with `+` where files have changed since; results of another are not gone on with."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return git("rev-parse", "--short=12", "HEAD") + "+" * bool(changed)


def fastest(run: Callable[[], RunResult | None]) -> tuple[float, RunResult | None]:
    times = []
    result = None
    for _ in range(TIMES):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def histogram() -> RunResult:
    x = np.random.default_rng(0).integers(0, 256, 1 << 20).astype(np.uint8)
    y = np.zeros(256, np.uint32)
    memory = Memory()
    params = (memory.map_array(x), memory.map_array(y), len(x))
    result = launch(HISTOGRAM, grid=(64,), block=(256,), params=params, memory=memory, shared_bytes=1024)
    assert (y == np.bincount(x, minlength=256)).all()
    return result


def softmax() -> RunResult:
    x = np.random.default_rng(0).standard_normal((400, 781)).astype(np.float32)
    memory = Memory()
    params = (memory.map_array(x), memory.map_array(np.zeros_like(x)), x.shape[1])
    text = (ROOT / "test" / "ptx" / "row_softmax.ptx").read_text()
    return launch(text, grid=(len(x),), block=(128,), params=params, memory=memory)


def gemm() -> Callable[[], None]:
    import test_dots

    kernel = compile(test_dots.gemm((128, 256, 64), "mk", "nk"), "sm_90a")
    a, b = test_dots.random((256, 256)), test_dots.random((256, 256), seed=1)
    kernel(a, b, device="sim")
    return lambda: kernel(a, b, device="sim")


def speed() -> list[dict[str, Any]]:
    """Seconds, and where thread-instructions can be counted millions of them a second, with races off and on."""
    rows = []
    multiply = gemm()
    for name, run in (
        ("gemm 256x256x256, tiles 128x256x64, sm_90a", multiply),
        ("histogram of 2^20 bytes", histogram),
        ("softmax of 400 rows of 781", softmax),
    ):
        row: dict[str, Any] = {"kernel": name}
        for races in (False, True):
            with settings(races=races):
                seconds, result = fastest(run)
            label = "races" if races else "plain"
            row[f"{label}_seconds"] = round(seconds, 4)
            if isinstance(result, RunResult):
                row[f"{label}_million_thread_instructions_per_second"] = round(
                    result.thread_instructions / seconds / 1e6, 1
                )
        rows.append(row)
        print(row, flush=True)
    return rows


def too_slow(row: dict[str, Any]) -> list[str]:
    """What of a row of `speed` misses its limit, in words."""
    limits = LIMITS[row["kernel"].split()[0]]
    return [
        f"{row['kernel']}: {key} is {row[key]}, the limit {limit}"
        for key, limit in limits.items()
        if (row[key] > limit if key.endswith("_seconds") else row[key] < limit)
    ]


def results(asked: dict[str, Any], rows: list[dict[str, Any]], speeds: list[dict[str, Any]]) -> dict[str, Any]:
    """The results file's contents; `speeds` is empty as long as the run has not ended."""
    return {
        "benchmark": "judge",
        **environment(),
        "asked": asked,
        "runs": sum(row["runs"] for row in rows),
        "runs_with_reports": sum(len(row["reports"]) for row in rows),
        "peak_mb": max((row["peak_mb"] for row in rows), default=0),
        "programs": rows,
        "speed": speeds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--seeds", type=int, default=20, help="random schedules for each program (default: %(default)s)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose names contain it")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results; go on with what is there")
    arguments = parser.parse_args()
    asked = {"seeds": arguments.seeds, "commit": commit()}
    known: list[dict[str, Any]] = []
    if arguments.json and arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        if before.get("asked") == asked and not asked["commit"].endswith("+"):
            known = before["programs"]
    rows: list[dict[str, Any]] = []
    for row in silence(arguments.seeds, arguments.only, arguments.jobs, known):
        rows.append(row)
        if arguments.json:
            write_json(arguments.json, results(asked, rows, []))
    found = sum(len(row["reports"]) for row in rows)
    peak = max((row["peak_mb"] for row in rows), default=0)
    print(f"{sum(row['runs'] for row in rows)} runs of {len(rows)} programs, {found} with reports, at most {peak} MB")
    speeds = speed()
    slow = [text for row in speeds for text in too_slow(row)]
    print("\n".join(slow))
    if arguments.json:
        write_json(arguments.json, results(asked, rows, speeds))
    return 1 if found or slow or peak > MEMORY_MB else 0


if __name__ == "__main__":
    sys.exit(main())
