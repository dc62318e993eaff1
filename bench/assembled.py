"""Whether any kernel of `tesela.kernels` spills registers or has its wgmma serialised, in any variant, for any facts, by any ptxas that there is.

    python bench/assembled.py                     # all: some 20 minutes of one core
    python bench/assembled.py gemm layer_norm     # these kernels
    python bench/assembled.py --processes 16 --json bench/results/assembled.json     # goes on where the file ends

Prints a line for each program about which an assembler has something to say (C75xx, spills, warnings), and ends with status 1 if there was one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rounds import environment, write_json

import tesela
from tesela import kernels
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.dim_expr import DimExpr
from tesela.dialects.launch_plan import ArrayArg
from tesela.frontend.kernel import KernelFunction
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.contract import Contract
from tesela.runtime.space import PINS
from tesela.runtime.specialize import Facts, usual_facts, weakest_facts

TARGETS = ("sm_90a", "sm_80")
TYPES = ("f16", "f32")
MORE: dict[str, list[dict[str, Any]]] = {
    "attention": [{"HEAD": head, "CAUSAL": causal} for head in (64, 128) for causal in (False, True)],
}
"""Compile-time values of kernels that do not name their variants."""


@dataclass(frozen=True)
class Case:
    """A program to assemble: a kernel's compile-time values, the target, and which facts."""

    kernel: str
    values: tuple[tuple[str, Any], ...]
    target: str
    facts: str

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values)
        return f"{self.kernel}({values}) {self.target} {self.facts}"


def functions() -> dict[str, KernelFunction]:
    """The kernels by name."""
    modules = [importlib.import_module(f"tesela.kernels.{module.name}") for module in pkgutil.iter_modules(kernels.__path__)]
    return {name: found for module in modules for name, found in vars(module).items() if isinstance(found, KernelFunction)}


def cases(names: Sequence[str] = ()) -> Iterator[Case]:
    """Every kernel's variants, element types, targets and facts."""
    for name, function in functions().items():
        if names and name not in names:
            continue
        for values in MORE.get(name) or function.variants or [{}]:
            for T in TYPES if function.type_variables else [None]:
                types = {name: getattr(tesela, T if name == "T" and T else "f32") for name in function.type_variables}
                for target in TARGETS:
                    for facts in ("usual", "divisible", "weakest"):
                        yield Case(name, tuple((values | types).items()), target, facts)


def facts_of(contract: Contract, which: str) -> Facts:
    """'usual', 'divisible' (and every dimension a multiple of 16), or 'weakest'."""
    if which == "weakest":
        return weakest_facts(contract)
    shapes = [DimExpr.parse(text) for arg in contract.args if isinstance(arg, ArrayArg) for text in arg.shape]
    symbols = sorted({symbol for expr in shapes for symbol in expr.symbols()})
    return replace(usual_facts(contract), divisors=tuple((symbol, 16) for symbol in symbols) if which == "divisible" else ())


def complaints(ptx: str, target: str) -> list[str]:
    """What assemblers say about a program."""
    return [f"ptxas {assembler.version()}: {message.message}" for assembler in find_ptxas() for message in assemble(ptx, target, assembler=assembler).messages]


def commit() -> str:
    """The commit that is compiled; results of another are not gone on with."""
    return subprocess.run(("git", "rev-parse", "--short=12", "HEAD"), cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()


def one(case: Case) -> dict[str, Any]:
    """A row of the results; `refused` is the compiler's first error where it makes no program of the case, as where no registers or no shared memory hold its tiles."""
    values = dict(case.values)
    pins = {name: values.pop(name) for name in PINS if name in values}
    compiled = functions()[case.kernel].compile(case.target, pins=pins or None, **values)
    try:
        ptx = compiled.variant(facts=facts_of(compiled.contract, case.facts)).ptx
    except TeselaError as error:
        return {"program": str(case), "refused": error.diagnostics[0].message, "complaints": []}
    return {"program": str(case), "complaints": complaints(ptx, case.target)}


def results(done: dict[str, dict[str, Any]], commit: str) -> dict[str, Any]:
    """The results file's contents."""
    rows = list(done.values())
    return {
        "benchmark": "assembled",
        **environment(),
        "asked": commit,
        "assemblers": [f"ptxas {assembler.version()}" for assembler in find_ptxas()],
        "programs": len(rows),
        "refused": sum("refused" in row for row in rows),
        "with_complaints": sum(bool(row["complaints"]) for row in rows),
        "rows": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="which kernels (default: all)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results; go on with what is there of the same commit")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin nothing after as long")
    arguments = parser.parse_args()
    done: dict[str, dict[str, Any]] = {}
    at = commit()
    if arguments.json and arguments.json.exists() and (before := json.loads(arguments.json.read_text()))["asked"] == at:
        done = {row["program"]: row for row in before["rows"]}
    end = time.monotonic() + arguments.seconds if arguments.seconds else None
    with ProcessPoolExecutor(arguments.processes) as pool:
        jobs = [pool.submit(one, case) for case in cases(arguments.kernels) if str(case) not in done]
        for number, finished in enumerate(as_completed(jobs), 1):
            if finished.cancelled():
                continue
            row = finished.result()
            done[row["program"]] = row
            for message in row["complaints"]:
                print(f"{row['program']}: {message}", flush=True)
            if end is not None and time.monotonic() > end:
                for job in jobs:
                    job.cancel()
            if arguments.json and (number % 20 == 0 or number == len(jobs) or end is not None):
                write_json(arguments.json, results(done, at))
    wrong = sum(len(row["complaints"]) for row in done.values())
    print(f"{len(done)} programs, {sum('refused' in row for row in done.values())} of them refused by the compiler, {wrong} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
