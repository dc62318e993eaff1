"""tesela: the command-line tool, a table of subcommands that are imported only when they are run.

A subcommand is a module with `add_arguments(parser)` and `run(arguments, stdout, stderr) -> int`; it raises TeselaError
for what the user can act on. Adding one is its module and a row of `COMMANDS`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from .driver import Streams, guarded, parse_arguments


class Command(NamedTuple):
    """Where a subcommand is, and what it does, in one line."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "compile": Command("tesela.tools.compile_cmd", "compile a program to one of its levels, PTX or a cubin"),
    "explain": Command("tesela.tools.explain_cmd", "say what the compiler chose for a program, at what cost, and what came second"),
    "run": Command("tesela.tools.run_cmd", "run a program on arrays from .npy files, on a GPU or in the simulator"),
    "check": Command("tesela.tools.check_cmd", "run a program at every level of the compiler and compare"),
    "fuzz": Command("tesela.tools.fuzz_cmd", "run random programs through the compiler and compare with the interpreter"),
    "mutate": Command("tesela.tools.mutate_cmd", "plant faults in a compiled kernel and count how many the simulator catches"),
    "reduce": Command("tesela.tools.reduce_cmd", "shrink a failing module of IR or PTX while a command finds it interesting"),
    "layout": Command("tesela.tools.layout_cmd", "draw a layout: threads over elements, banks over addresses"),
    "cache": Command("tesela.tools.cache_cmd", "list, show or clear what the disk cache holds"),
    "passes": Command("tesela.tools.passes_cmd", "list the passes, or say what one does"),
}


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The command line: every subcommand by name, the arguments of `only` (of all, without it)."""
    parser = argparse.ArgumentParser(prog="tesela", description="Compile tile programs for GPUs, and run them.")
    from .. import __version__

    parser.add_argument("--version", action="version", version=f"tesela {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.summary, description=command.summary)
        if only is None or only == name:
            importlib.import_module(command.module).add_arguments(subparser)
    return parser


def main(
    argv: Sequence[str] | None = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Run the tool; returns its exit status. `argv` without the program's name; streams default to the process's."""
    streams = Streams.of(stdin, stdout, stderr)
    argv = list(sys.argv[1:] if argv is None else argv)
    # The first word that is no option names the subcommand; '' is none, so that `tesela --help` imports nothing.
    only = next((word for word in argv if not word.startswith("-")), "")

    def action() -> int:
        arguments = parse_arguments(make_parser(only), argv, streams)
        if isinstance(arguments, int):
            return arguments
        module = importlib.import_module(COMMANDS[arguments.command].module)
        return module.run(arguments, streams.stdout, streams.stderr)

    return guarded("tesela", action, streams)


if __name__ == "__main__":
    raise SystemExit(main())
