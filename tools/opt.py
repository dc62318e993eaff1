"""tesela-opt: reads a module, runs a pipeline of passes on it, and prints the result.

    tesela-opt gemm.mlir -p canonicalize,cse
    tesela-opt gemm.mlir -p 'canonicalize,cse' --print-ir-after-all --target sm_90a -o out.mlir
    tesela-opt errors.mlir --split-input-file --verify-diagnostics
    tesela-opt kernel.mlir -p assign-registers --emit-ptx

The module is verified when it was read and after every pass (`--no-verify` leaves that out). Diagnostics go to standard
error with file, line and caret; the exit statuses are those of `tools/driver.py`.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from .. import lowering  # noqa: F401 -- adds its passes to the table
from ..dialects.diagnostics import Diagnostic, TeselaError, render, source_text
from ..passes import PASSES, PIPELINE_NAME, get_pass, parse_pipeline, pass_options
from .driver import Streams, guarded, natural, parse_arguments, read_input, write_output
from .expected import compare, find_expectations

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..passes.base import Pass
    from .checking import Reference

SPLIT_MARKER = re.compile(r"^// -----[ \t]*$", re.MULTILINE)


def main(
    argv: Sequence[str] | None = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Run the tool; returns its exit status. `argv` without the program's name; streams default to the process's."""
    streams = Streams.of(stdin, stdout, stderr)
    arguments = parse_arguments(make_parser(), argv, streams)
    if isinstance(arguments, int):
        return arguments
    return guarded("tesela-opt", lambda: _Run(arguments, streams).run(), streams)


def make_parser() -> argparse.ArgumentParser:
    """The command line of tesela-opt."""
    parser = argparse.ArgumentParser(prog="tesela-opt", description="Run passes on a module and print it.")
    add = parser.add_argument
    add("file", nargs="?", default="-", help="the module's text; '-' (default) reads standard input")
    add("-p", "--passes", default="", metavar="PIPELINE", help="passes to run, as in 'a,b{option=3},c'")
    add("-o", "--output", metavar="FILE", help="write the module there instead of to standard output")
    add("--target", metavar="TARGET", help="the GPU architecture that passes compile for, such as sm_90a")
    add("--verify-each", dest="verify", action="store_true", default=True, help="verify after each pass (default)")
    add("--no-verify", dest="verify", action="store_false", help="verify neither the input nor after passes")
    add("--print-ir-before-all", action="store_true", help="print the module to standard error before each pass")
    add("--print-ir-after-all", action="store_true", help="print the module to standard error after each pass")
    add("--print-debuginfo", action="store_true", help="print the location of every operation")
    add(
        "--split-input-file",
        action="store_true",
        help="treat the parts between lines '// -----' as modules of their own",
    )
    add(
        "--verify-diagnostics",
        action="store_true",
        help="check diagnostics against expected-error comments; print no IR",
    )
    add("--check-by-running", action="store_true", help="run the kernel before and after each pass, on made-up arguments, and name the pass that changes a result")
    add("--in", dest="inputs", action="append", default=[], metavar="NAME=FILE", help="with --check-by-running: an array from an .npy file; may be repeated")
    add("--seed", type=natural, default=0, help="with --check-by-running: what the made-up arguments depend on (default: 0)")
    add("--emit-ptx", action="store_true", help="print PTX text instead of the module, whose kernels must be at the ptx level")
    add("--allow-unregistered-dialect", action="store_true", help="accept operations of unknown dialects")
    add("--time-passes", action="store_true", help="print the time of each pass to standard error")
    add("--list-passes", action="store_true", help="list all passes and their options, and stop")
    add("--show", metavar="PASS", help="say what one pass does and what its options are, and stop")
    return parser


def describe_pass(name: str) -> str:
    """What a pass does and its options, as text; TeselaError for an unknown name."""
    pass_class = get_pass(name)
    lines = [f"{name}: {PASSES[name].summary}", ""]
    lines += textwrap.dedent("    " + (pass_class.__doc__ or "")).strip().split("\n")
    for option, (kind, default) in pass_options(pass_class).items():
        lines.append(f"  {option}: {getattr(kind, '__name__', kind)} = {default}")
    return "\n".join(lines) + "\n"


def list_passes() -> str:
    """All passes, one a line."""
    width = max(map(len, PASSES))
    return "".join(f"{name:{width}}  {entry.summary}\n" for name, entry in PASSES.items())


class _Run:
    """One run of the tool on one file."""

    def __init__(self, arguments: argparse.Namespace, streams: Streams):
        self.arguments = arguments
        self.streams = streams
        self.seconds: dict[str, float] = {}
        self.reference: Reference | None = None

    def run(self) -> int:
        arguments = self.arguments
        if arguments.list_passes:
            self.streams.stdout.write(list_passes())
            return 0
        if arguments.show is not None:
            self.streams.stdout.write(describe_pass(arguments.show))
            return 0
        parse_pipeline(arguments.passes)  # so that a mistake in it is reported once, before any input is read
        if arguments.file.endswith(".py"):
            hint = f"`tesela compile {arguments.file} --emit tile` writes the module of its kernel"
            raise TeselaError.at(None, f"'{arguments.file}' is a Python program, not a module's text", hint)
        name, text = read_input(arguments.file, self.streams)
        parts = split_input(text) if arguments.split_input_file else [(1, text)]
        outputs: list[str] = []
        status = 0
        for first_line, part in parts:
            # Leading newlines give every line of the part the number it has in the file.
            output, diagnostics = self.process("\n" * (first_line - 1) + part, name)
            if arguments.verify_diagnostics:
                expectations, errors = find_expectations(part, name, first_line)
                diagnostics = errors + compare(expectations, diagnostics)
            self.streams.stderr.write(render(diagnostics, {name: text, PIPELINE_NAME: arguments.passes}))
            if any(d.severity == "error" for d in diagnostics):
                status = 1
            elif output is not None:
                outputs.append(output)
        if outputs and not arguments.verify_diagnostics:
            write_output(arguments.output, "// -----\n".join(outputs), self.streams)
        if arguments.time_passes:
            self.print_times()
        return status

    def process(self, text: str, name: str) -> tuple[str | None, list[Diagnostic]]:
        """The printed module after all passes (None where an error came), and all diagnostics."""
        from ..dialects.parsing import make_context, parse_module, print_module
        from ..dialects.target import get_target
        from ..passes.base import PassContext, run_passes

        arguments = self.arguments
        context = PassContext(target=get_target(arguments.target) if arguments.target else None)
        try:
            with source_text(name, text):
                module = parse_module(text, name, make_context(arguments.allow_unregistered_dialect))
                self.reference = self.make_reference(module) if arguments.check_by_running else None
                run_passes(
                    module,
                    parse_pipeline(arguments.passes),
                    context,
                    verify_each=arguments.verify,
                    before=lambda step: self.before(module, step),
                    after=lambda step, seconds: self.after(module, step, seconds),
                )
                if arguments.emit_ptx:
                    from ..lowering.emit_ptx import emit_text

                    return emit_text(module), context.emitter.diagnostics
        except TeselaError as error:
            return None, context.emitter.diagnostics + error.diagnostics
        return print_module(module, arguments.print_debuginfo), context.emitter.diagnostics

    def before(self, module: ModuleOp, step: Pass) -> None:
        if self.arguments.print_ir_before_all:
            self.dump(module, f"before {step.name}")

    def after(self, module: ModuleOp, step: Pass, seconds: float) -> None:
        self.seconds[step.name] = self.seconds.get(step.name, 0.0) + seconds
        if self.arguments.print_ir_after_all:
            self.dump(module, f"after {step.name}")
        if self.reference is not None:
            try:
                self.reference.check(module)
            except TeselaError as error:
                note = Diagnostic("note", f"with {self.reference.describe()} (--seed {self.arguments.seed})")
                raise error.prefixed(f"after pass '{step.name}': ", [note]) from None

    def make_reference(self, module: ModuleOp) -> Reference:
        """What --check-by-running compares with: the module as it was read, verified first."""
        from ..dialects.verify import verify_module
        from .checking import Reference
        from .sources import pairs, read_array

        verify_module(module)
        given = {name: read_array(path) for name, path in pairs("--in", self.arguments.inputs)}
        return Reference(module, seed=self.arguments.seed, given=given)

    def dump(self, module: ModuleOp, when: str) -> None:
        from ..dialects.parsing import print_module

        text = print_module(module, self.arguments.print_debuginfo)
        self.streams.stderr.write(f"// -----// IR {when} //----- //\n{text}\n")

    def print_times(self) -> None:
        total = sum(self.seconds.values())
        width = max(map(len, [*self.seconds, "total"]))
        for name, seconds in [*self.seconds.items(), ("total", total)]:
            self.streams.stderr.write(f"{name:{width}} {seconds * 1e3:9.3f} ms\n")


def split_input(text: str) -> list[tuple[int, str]]:
    """The parts of a text between lines `// -----`, each with the number of its first line, counted from 1."""
    parts: list[tuple[int, str]] = []
    start = 0
    for match in [*SPLIT_MARKER.finditer(text), None]:
        end = match.start() if match else len(text)
        parts.append((text.count("\n", 0, start) + 1, text[start:end]))
        start = match.end() if match else end
    return parts


if __name__ == "__main__":
    raise SystemExit(main())
