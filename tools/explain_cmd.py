"""tesela explain: what the compiler chose for a program, value by value: layout, instruction, cost, the runner-up and why it lost.

    tesela explain examples/gemm.mlir --target sm_90a
    tesela explain kernels/attention.py --kernel attention --constant T=bf16 --svg .

`docs/layouts.md` says how layouts are read, `passes/layout_costs.py` what costs mean. What a launch would find out from its arrays is stated with `--assume`,
as for `tesela compile`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from ..dialects.diagnostics import TeselaError
from ..passes.explain_loops import svg
from .compile_cmd import read_facts, write
from .sources import add_program_arguments, compile_source, read_constants


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program_arguments(parser, "an .mlir file with a tile.kernel, or a .py file with a @tesela.kernel")
    parser.add_argument("--target", default=None, help="the architecture: sm_80, sm_90a (default: this machine's GPU, else sm_90a)")
    parser.add_argument("--assume", default="aligned,noalias", metavar="FACTS", help="aligned, noalias, NAME=16, nothing (default: aligned,noalias)")
    parser.add_argument("--svg", metavar="FOLDER", help="also draw the timeline of each loop there, as KERNEL-NUMBER.svg; the folder is made")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    kernel = compile_source(arguments.file, arguments.target, arguments.kernel, **read_constants(arguments.constants))
    facts = read_facts(arguments.assume, kernel.contract)
    write(arguments.output, kernel.explain(facts=facts), stdout)
    if arguments.svg is not None:
        folder = Path(arguments.svg)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TeselaError.at(None, f"cannot make the folder '{folder}': {error.strerror}") from None
        timings = kernel.timings(facts=facts)
        for number, timing in enumerate(timings, 1):
            write(str(folder / f"{kernel.name}-{number}.svg"), svg(timing), stdout)
        if not timings:
            stderr.write(f"note: no loop of {kernel.name} takes tiles from channels or has dots, so there is no timeline to draw\n")
    return 0
