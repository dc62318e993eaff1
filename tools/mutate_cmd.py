"""tesela mutate: plants faults in a compiled kernel and counts how many the simulator catches (tools/mutation/).

    tesela mutate examples/gemm.mlir --target sm_90a           # some faults of every kind
    tesela mutate kernel.py --kind drop-wait --kind drop-fence --each 1000   # every wait, every fence
    tesela mutate kernel.py --dim K=512 --seed 7

Each mutant runs under several schedules with the judge watching; what it leaves in arrays is compared with what the kernel leaves. It is *reported*
if it shows a symptom of its kind of fault, *otherwise* if it shows another, *equivalent* if code proves that it can do no harm, else *missed*. Faults
that change nothing at their own place on the arguments at hand are passed over, and counted apart. The exit status is 1 if a mutant is missed or
reported otherwise.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TextIO

from ..dialects.diagnostics import TeselaError
from .driver import natural, positive
from .sources import add_program_arguments, compile_source, pairs, read_constants

EACH = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from .mutation.faults import KINDS

    add = parser.add_argument
    add_program_arguments(parser, "an .mlir file with a tile.kernel, or a .py file with a @tesela.kernel")
    add("--target", default="sm_90a", help="the architecture to compile for (default: sm_90a)")
    add("--kind", dest="kinds", action="append", default=[], choices=tuple(KINDS), help="a kind of fault; may be repeated (default: all)")
    add("--each", type=positive, default=EACH, metavar="N", help=f"at most so many faults of each kind (default: {EACH})")
    add("--seed", type=natural, default=0, help="of the choice of places, and of the arguments (default: 0)")
    add("--dim", action="append", default=[], metavar="NAME=N", help="the value of a symbolic dimension; may be repeated")
    add("--verbose", action="store_true", help="print every mutant, not only those that are missed")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    from .checking import Reference
    from .mutation.launches import record
    from .mutation.tally import table, try_all

    kernel = compile_source(arguments.file, arguments.target, arguments.kernel, **read_constants(arguments.constants))
    assert kernel.module is not None  # what is compiled from a source has one
    dims = {}
    for name, value in pairs("--dim", arguments.dim):
        if not value.isdigit():
            raise TeselaError.at(None, f"--dim {name}: '{value}' is no extent", "as in --dim M=128")
        dims[name] = int(value)
    made = Reference(kernel.module, kernel.name, arguments.seed, dims)
    launches = record(lambda: kernel(**made.arrays, **made.scalars, device="sim"))
    rows = []
    passed_over: Counter[str] = Counter()
    stdout.write(f"{kernel.name} for {arguments.target}, with {made.describe()}\n")
    for launch in launches:
        for tried in try_all(launch, arguments.each, str(arguments.seed), arguments.kinds, passed_over):
            rows.append(tried.to_json())
            if arguments.verbose or tried.verdict.outcome not in ("reported", "equivalent"):
                stdout.write(f"{tried}\n")
    if not rows:
        stdout.write("no place for a fault: nothing is launched, or nothing of these kinds is executed\n")
        return 0
    stdout.write(table(rows, passed_over.total()))
    return 1 if any(row["outcome"] in ("otherwise", "missed") for row in rows) else 0
