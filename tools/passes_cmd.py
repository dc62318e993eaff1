"""`tesela passes`: lists the passes, or says what one of them does."""

from __future__ import annotations

import argparse
from typing import TextIO

from .opt import describe_pass, list_passes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand's command line."""
    parser.add_argument("name", nargs="?", help="the pass to describe; all are listed without it")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    """Print the list or the description; returns the exit status."""
    stdout.write(list_passes() if arguments.name is None else describe_pass(arguments.name))
    return 0
