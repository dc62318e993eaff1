"""What all command-line tools share: reading and writing files, usage errors, and never a traceback at the user.

Exit statuses: 0 success, 1 an error that the user can act on (printed with place and caret), 2 wrong usage of the
command line, 70 an internal error (one line; the traceback with TESELA_DEBUG=1 in the environment).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from ..dialects.diagnostics import TeselaError

INTERNAL_ERROR = 70
"""EX_SOFTWARE of sysexits.h."""


@dataclass(frozen=True)
class Streams:
    """The three standard streams of a tool, so that a test can run it in process."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO

    @staticmethod
    def of(stdin: TextIO | None, stdout: TextIO | None, stderr: TextIO | None) -> Streams:
        """The given streams; the process's own for those that are None."""
        return Streams(stdin or sys.stdin, stdout or sys.stdout, stderr or sys.stderr)


def parse_arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, streams: Streams
) -> argparse.Namespace | int:
    """The parsed command line, or the exit status where argparse ends the program (usage errors, --help)."""
    try:
        with contextlib.redirect_stdout(streams.stdout), contextlib.redirect_stderr(streams.stderr):
            return parser.parse_args(argv)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def positive(text: str) -> int:
    """The `type` of an option that takes a positive integer."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no positive integer")
    return int(text)


def natural(text: str) -> int:
    """The `type` of an option that takes an integer from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no integer from 0 on")
    return int(text)


def guarded(tool: str, action: Callable[[], int], streams: Streams) -> int:
    """Run a tool's action; its exceptions become messages on stderr and an exit status."""
    try:
        return action()
    except TeselaError as error:
        streams.stderr.write(f"{error}\n")
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as in `tesela-opt ... | head`. Python would complain again at exit.
        if streams.stdout is sys.stdout:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the one place that may: what comes here is a bug of ours
        if os.environ.get("TESELA_DEBUG"):
            traceback.print_exc(file=streams.stderr)
        else:
            first_line = (str(error).splitlines() or [""])[0]
            streams.stderr.write(
                f"{tool}: internal error: {type(error).__name__}: {first_line} (set TESELA_DEBUG=1 for the traceback)\n"
            )
        return INTERNAL_ERROR


def read_input(path: str, streams: Streams) -> tuple[str, str]:
    """(name for diagnostics, text) of a file, or of standard input for `-`. Raises TeselaError if it cannot be read."""
    if path == "-":
        return "<stdin>", streams.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return path, file.read()
    except OSError as error:
        raise TeselaError.at(None, f"cannot read '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise TeselaError.at(None, f"cannot read '{path}': it is not UTF-8 text") from None


def write_output(path: str | None, text: str, streams: Streams) -> None:
    """Write text to a file, or to standard output for None and `-`. Raises TeselaError if it cannot be written."""
    if path is None or path == "-":
        streams.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TeselaError.at(None, f"cannot write '{path}': {error.strerror}") from None
