"""tesela reduce: shrinks a module of IR or a PTX program while a command says that it is still interesting (tools/reduction/).

    tesela reduce bad.mlir --when 'tesela-opt {} -p my-pass 2>&1 | grep -q "internal error"'
    tesela reduce bad.ptx --when './fails.sh'

The command is run by the shell with the path of a candidate in the place of `{}`, or at its end, where it has none. *It exits with 0 while the
candidate is interesting*, as for llvm-reduce and creduce: a test that fails is `! test {}`. A run that takes longer than --timeout is not
interesting. FILE itself is never written; the smallest module found so far is in FILE.reduced, or what -o names, at any time. If FILE verifies, so
do all candidates.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TextIO

from ..dialects.diagnostics import TeselaError
from .driver import Streams, positive, read_input

SECONDS = 600.0
TIMEOUT = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", help="an .mlir file with a module of any level, or a .ptx file")
    add("--when", required=True, metavar="COMMAND", help="the test: exits with 0 while the file {} is interesting")
    add("-o", dest="output", metavar="FILE", help="where to write the result (default: FILE.reduced)")
    add("--seconds", type=float, default=SECONDS, metavar="S", help=f"stop after this time (default: {SECONDS:g})")
    add("--timeout", type=float, default=TIMEOUT, metavar="S", help=f"for one run of the command (default: {TIMEOUT:g})")
    add("--max-tests", type=positive, metavar="N", help="stop after so many runs of the command")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    from .reduction import ir, ptx
    from .reduction.search import Search, reduce

    name, text = read_input(arguments.file, Streams.of(None, stdout, stderr))
    output = Path(arguments.output or f"{arguments.file}.reduced")
    if arguments.file == "-" or (output.exists() and os.path.samefile(output, arguments.file)):
        raise TeselaError.at(None, "tesela reduce never writes the file that it reads", "name another one with -o")
    is_ptx = arguments.file.endswith(".ptx")
    test = Test(arguments.when, Path(arguments.file).suffix, arguments.timeout)
    verified = True
    try:
        (ptx if is_ptx else ir).check(text)
    except TeselaError as error:
        verified = False
        if is_ptx:
            raise
        stderr.write(f"note: {name} does not verify, so neither need what is found: {error.diagnostics[0].message}\n")
    if not test(text):
        raise TeselaError.at(
            None,
            f"the command does not find {name} itself interesting",
            "it must exit with 0 while the file shows what is looked for; put a '!' before a command that fails",
        )

    search = Search(text, test, arguments.seconds, arguments.max_tests, lambda found: _replace(output, found))
    _replace(output, text)
    reduce(search, ptx.PASSES if is_ptx else ir.Reducer(verified).passes)
    before, after = (len(t.splitlines()) for t in (text, search.text))
    stdout.write(f"{output}: {after} lines, of {before}, after {search.tests} tests\n")
    return 0


class Test:
    """The command, as a function of a text."""

    def __init__(self, command: str, suffix: str, timeout: float):
        self._command, self._suffix, self._timeout = command, suffix, timeout

    def __call__(self, text: str) -> bool:
        with tempfile.TemporaryDirectory(prefix="tesela-reduce-") as folder:
            path = Path(folder) / f"candidate{self._suffix}"
            path.write_text(text, encoding="utf-8")
            quoted = shlex.quote(str(path))
            command = self._command.replace("{}", quoted) if "{}" in self._command else f"{self._command} {quoted}"
            process = subprocess.Popen(
                command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            try:
                return process.wait(self._timeout) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()


def _replace(path: Path, text: str) -> None:
    """Write a file at once: whoever reads it sees the old text or the new one."""
    try:
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise TeselaError.at(None, f"cannot write '{path}': {error.strerror}") from None
