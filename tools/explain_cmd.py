"""tesela explain: what the compiler chose for a program, value by value: layout, instruction, cost, the runner-up and why it lost.

    tesela explain examples/gemm.mlir --target sm_90a
    tesela explain kernels/attention.py --kernel attention

`docs/layouts.md` says how layouts are read, `passes/layout_costs.py` what costs mean. What a launch would find out from its arrays is stated with `--assume`,
as for `tesela compile`.
"""

from __future__ import annotations

import argparse
from typing import TextIO

from .compile_cmd import read_facts, write
from .sources import add_program_arguments, compile_source, read_constants


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program_arguments(parser, "an .mlir file with a tile.kernel, or a .py file with a @tesela.kernel")
    parser.add_argument("--target", default=None, help="the architecture: sm_80, sm_90a (default: this machine's GPU, else sm_90a)")
    parser.add_argument("--assume", default="aligned,noalias", metavar="FACTS", help="aligned, noalias, NAME=16, nothing (default: aligned,noalias)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    del stderr
    kernel = compile_source(arguments.file, arguments.target, arguments.kernel, **read_constants(arguments.constants))
    write(arguments.output, kernel.explain(facts=read_facts(arguments.assume, kernel.contract)), stdout)
    return 0
