"""One line on a terminal that says how far something has come, and how long it may still take.

    tuning gemm  measured  [##########··········]  12/24   8.1 s of 60 s   best so far: BM=128 BN=256, 0.7431 ms

The line is rewritten in place, at most twenty times a second, on standard error, and only where that is a terminal; it is erased at the end.
Everything else that is to be known goes to the logger `tesela`. Threads may report at the same time.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

WIDTH = 20
INTERVAL_SECONDS = 0.05


class Progress:
    """`title`: what is going on; `budget`: the seconds it may take. `stream` None: standard error."""

    def __init__(self, title: str, budget: float, stream: TextIO | None = None):
        self.note = ""
        """What else there is to say; shown with the next step."""
        self.title, self._budget = title, budget
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream is not None and self._stream.isatty()
        self._start = time.monotonic()
        self._written = 0.0
        self._stage, self._done, self._total = "", 0, 0
        self._lock = threading.Lock()

    def stage(self, name: str, total: int) -> None:
        """Begin something that takes `total` steps."""
        with self._lock:
            self._stage, self._done, self._total = name, 0, total
            self._write(True)

    def step(self) -> None:
        """One of them is done."""
        with self._lock:
            self._done += 1
            self._write(self._done == self._total)

    def line(self, columns: int) -> str:
        """The line as it is now, of at most so many columns."""
        filled = WIDTH * self._done // max(self._total, 1)
        elapsed = time.monotonic() - self._start
        text = f"{self.title}  {self._stage:10} [{'#' * filled}{'·' * (WIDTH - filled)}] {self._done:3}/{self._total} {elapsed:6.1f} s of {self._budget:.0f} s"
        return f"{text}   {self.note}"[: columns - 1].rstrip()

    def close(self) -> None:
        """Erase the line."""
        with self._lock:
            if self._shown:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
                self._shown = False

    def _write(self, at_once: bool) -> None:
        now = time.monotonic()
        if self._shown and (at_once or now - self._written >= INTERVAL_SECONDS):
            self._written = now
            self._stream.write("\r\x1b[K" + self.line(shutil.get_terminal_size().columns))
            self._stream.flush()
