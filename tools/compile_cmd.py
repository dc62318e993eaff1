"""tesela compile: a program to one of its levels, to PTX, to its launch plan or to a cubin.

    tesela compile examples/gemm.mlir --target sm_90a --emit ptx
    tesela compile examples/gemm.mlir --emit cubin -o gemm.cubin
    tesela compile examples/gemm.mlir --emit layout --assume nothing

What a launch would find out from its arrays must be stated here: `--assume` takes `aligned` (all arrays to 16 bytes, strides
included), `noalias`, `NAME=16` (that dimension divisible, or that array aligned) or `nothing`; the default is `aligned,noalias`, which holds
for freshly allocated arrays with rows of a multiple of 16 bytes. Notes on slow paths and the assembler's warnings go to
standard error.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TextIO

from ..dialects.diagnostics import Diagnostic, TeselaError, render
from ..dialects.launch_plan import ArrayArg
from ..runtime.contract import Contract
from ..runtime.specialize import ALIGNMENT, Facts, usual_facts
from .sources import add_program_arguments, compile_source, read_constants

ALIGNMENTS = tuple(2**i for i in range(ALIGNMENT.bit_length()))
EMIT = ("tile", "async", "layout", "schedule", "ptx-ir", "ptx", "plan", "cubin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program_arguments(parser, "an .mlir file with a tile.kernel, or a .py file with a @tesela.kernel")
    parser.add_argument("--target", default=None, help="the architecture: sm_80, sm_90a (default: this machine's GPU, else sm_90a)")
    parser.add_argument("--emit", choices=EMIT, default="ptx", help="what to write (default: ptx)")
    parser.add_argument("--assume", default="aligned,noalias", metavar="FACTS", help="aligned, noalias, NAME=16, nothing (default: aligned,noalias)")
    parser.add_argument("--strict", action="store_true", help="the assembler's warnings are errors")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    values = read_constants(arguments.constants)
    kernel = compile_source(arguments.file, arguments.target, arguments.kernel, arguments.strict, **values)
    facts = read_facts(arguments.assume, kernel.contract)
    if arguments.emit in ("tile", "async", "layout", "schedule", "ptx-ir"):
        write(arguments.output, kernel.ir(arguments.emit, facts=facts), stdout)
        return 0
    variant = kernel.variant(facts=facts)
    notes = [Diagnostic("note", f"{kernel.name}: {text}") for text in variant.plan.notes]
    stderr.write(render(notes))
    if arguments.emit == "ptx":
        write(arguments.output, variant.ptx, stdout)
    elif arguments.emit == "plan":
        write(arguments.output, json.dumps(variant.plan.to_json(), indent=2) + "\n", stdout)
    else:
        if arguments.output in (None, "-"):
            raise TeselaError.at(None, "a cubin is not written to standard output", "name a file with -o")
        assembled = variant.assembled(quiet=True)
        stderr.write(render(assembled.messages))
        write(arguments.output, assembled.cubin, stdout)
    return 0


def read_facts(text: str, contract: Contract) -> Facts:
    """What `--assume` states. Raises TeselaError for a word or a name it does not know."""
    arrays = [arg.name for arg in contract.args if isinstance(arg, ArrayArg)]
    symbols = {symbol for exprs in contract.shapes for expr in exprs or () for symbol in expr.symbols()}
    usual = usual_facts(contract)
    aligned: dict[str, int] = {}
    noalias: set[str] = set()
    divisors: dict[str, int] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = word.partition("=")
        if word == "aligned":
            aligned.update(usual.aligned)
        elif word == "noalias":
            noalias.update(usual.noalias)
        elif word == "nothing":
            continue
        elif equals and not (number.isdigit() and int(number) > 0):
            raise TeselaError.at(None, f"--assume {word}: '{number}' is no positive integer")
        elif equals and name in symbols:
            divisors[name] = int(number)
        elif equals and name in arrays:
            if int(number) not in ALIGNMENTS:
                raise TeselaError.at(None, f"--assume {word}: an alignment is one of {', '.join(map(str, ALIGNMENTS))} bytes")
            aligned[name] = int(number)
        else:
            known = f"dimensions {', '.join(sorted(symbols))}; arrays {', '.join(arrays)}"
            raise TeselaError.at(None, f"--assume: '{word}' is not understood", f"write aligned, noalias, nothing or NAME=16; there are {known}")
    return Facts(tuple(sorted(aligned.items())), tuple(sorted(noalias)), tuple(sorted(divisors.items())))


def write(path: str | None, data: str | bytes, stdout: TextIO) -> None:
    """Write to a file, or text to standard output for None and '-'. Raises TeselaError if the file cannot be written."""
    if path is None or path == "-":
        assert isinstance(data, str)
        stdout.write(data)
        return
    try:
        Path(path).write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise TeselaError.at(None, f"cannot write '{path}': {error.strerror}") from None
