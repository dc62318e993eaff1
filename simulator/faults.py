"""Faults of the simulated program, raised where they are noticed; the machine turns them into a ProgramError with its
place."""

from __future__ import annotations

from collections.abc import Sequence

from ..dialects.diagnostics import Diagnostic, TeselaError


class Fault(Exception):
    """`at`: which instruction of the fused step is at fault; `thread`: its thread's number in the machine, or None.
    `kind` is one of `reports.KINDS`."""

    kind = "fault"

    def __init__(self, message: str, at: int = 0, thread: int | None = None, hint: str | None = None):
        super().__init__(message)
        self.message, self.at, self.thread, self.hint = message, at, thread, hint


class OutOfBounds(Fault):
    kind = "out of bounds"


class Misaligned(Fault):
    kind = "misaligned"


class BarrierMisuse(Fault):
    kind = "barrier count/phase"


class ByteCountOverflow(Fault):
    kind = "byte count"


class Divergent(Fault):
    kind = "divergence"


class ProgramError(TeselaError):
    """The simulated program cannot go on. `kind` is one of `reports.KINDS`; `opcode` and `line` name the instruction;
    `also`: kinds and messages of what else was wrong then."""

    kind = "fault"
    opcode = ""
    line: int | None = None
    also: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, diagnostic: Diagnostic, kind: str, opcode: str = "", line: int | None = None) -> ProgramError:
        error = cls([diagnostic])
        error.kind, error.opcode, error.line = kind, opcode, line
        return error
