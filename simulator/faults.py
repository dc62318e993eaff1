"""A fault of the simulated program, raised where it is noticed; the machine turns it into a TeselaError with its place."""

from __future__ import annotations


class Fault(Exception):
    """`at`: which instruction of the fused step is at fault; `thread`: its thread's number in the machine, or None."""

    def __init__(self, message: str, at: int = 0, thread: int | None = None, hint: str | None = None):
        super().__init__(message)
        self.message, self.at, self.thread, self.hint = message, at, thread, hint
