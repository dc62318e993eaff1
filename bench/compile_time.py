"""How long compiling takes, from a Python function to PTX, part by part: trace, each pass, emit, and then the assembler.

    python bench/compile_time.py                       # the examples, for both targets
    python bench/compile_time.py --repeat 30 --json bench/results/compile_time.json

Medians over warm repetitions in one process: modules are imported and attributes interned, but every repetition traces, solves and
emits anew. `total` is the time to PTX text; `assemble` comes on top.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rounds import environment, write_json

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.specialize import contract_of, kernels_of, specialize, usual_facts
from tesela.tools.demo import example
from tesela.tools.sources import python_kernel

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
PROGRAMS: dict[str, tuple[Path, dict[str, Any]]] = {
    **{name: (example(name, "python"), {}) for name in ("add", "softmax", "gemm")},
    "attention": (KERNELS / "attention.py", {"T": tesela.bf16}),
}
"""Where each kernel is, and its compile-time values."""
BUDGETS = {"add": 30, "softmax": 60, "gemm": 150, "attention": 300}
"""Milliseconds to PTX that each may take."""
TARGETS = ("sm_90a", "sm_80")


def parts(name: str, target: str, with_assembler: bool) -> dict[str, float]:
    """The milliseconds of one compilation, by part, in order; `total` is up to the PTX text."""
    from tesela.lowering.pipeline import Lowering, finish

    path, values = PROGRAMS[name]
    function = python_kernel(path, name)
    times: dict[str, float] = {}
    start = time.perf_counter()
    module = function.trace(**values)
    traced = time.perf_counter()
    special = specialize(module, name, usual_facts(contract_of(kernels_of(module)[name])))
    specialized = time.perf_counter()
    compiled = finish(Lowering(special, target))
    total = time.perf_counter() - start
    times["trace"] = (traced - start) * 1e3
    times["specialize"] = (specialized - traced) * 1e3
    times |= compiled.times
    times["total"] = total * 1e3
    if with_assembler:
        start = time.perf_counter()
        assemble(compiled.ptx, target)
        times["assemble"] = (time.perf_counter() - start) * 1e3
    return times


def medians(name: str, target: str, repeat: int) -> dict[str, float]:
    """The median of each part over `repeat` compilations, after two that do not count."""
    ptxas = bool(find_ptxas())
    for _ in range(2):
        parts(name, target, False)
    runs: list[dict[str, float]] = []
    for _ in range(repeat):
        gc.collect()
        runs.append(parts(name, target, ptxas))
    return {part: statistics.median(run[part] for run in runs) for part in runs[0]}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--only", choices=tuple(PROGRAMS))
    arguments = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    for name in PROGRAMS:
        for target in TARGETS:
            if arguments.only not in (None, name):
                continue
            try:
                times = medians(name, target, arguments.repeat)
            except TeselaError as error:
                sys.stderr.write(f"{name} for {target}: {error}\n")
                return 1
            rows.append({"kernel": name, "target": target, "budget": BUDGETS[name], "ms": times})
            listed = ", ".join(f"{part} {ms:.1f}" for part, ms in times.items() if part not in ("total", "assemble"))
            tail = f"; assemble {times['assemble']:.0f} ms" if "assemble" in times else ""
            sys.stdout.write(f"{name:9} {target:6} {times['total']:6.1f} ms to PTX, of {BUDGETS[name]} ({listed}){tail}\n")
            sys.stdout.flush()
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "compile time", **environment(), "repeat": arguments.repeat, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
