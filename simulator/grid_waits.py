"""Whether kernels that may begin early wait for the grids before them (PTX ISA 9.0 §9.7.14.13, griddepcontrol).

A kernel that has `griddepcontrol` may be launched while the one before it in its stream still ends. A thread of it must not access global memory before it has executed
`griddepcontrol.wait`, and none may end without: a grid whose threads do not wait can be complete before the grids before it are, and who waits for it then waits for too little.
What counts is the thread itself. (One that another has told so would be in order too, but nothing would tell a reader of the program.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .reports import MISSING_WAIT

if TYPE_CHECKING:
    from .findings import Findings
    from .machine import Machine

WAIT = "griddepcontrol.wait"
HINT = "execute griddepcontrol.wait before, on every path"


def accesses_global(opcode: str) -> bool:
    """Whether an instruction names global memory as what it reads or writes. Prefetches do neither."""
    words = opcode.split(".")
    return words[0] in ("ld", "st", "atom", "red", "cp", "multimem") and "global" in words and "prefetch" not in words


class GridWaits:
    """Watches the threads of one machine. `watched`: for each step whether `before` wants to see it; none in programs without griddepcontrol."""

    def __init__(self, machine: Machine, findings: Findings):
        self.machine, self.findings = machine, findings
        opcodes = [[instr.opcode for instr in step.instrs] for step in machine.code.steps]
        self.early = any(opcode.startswith("griddepcontrol") for step in opcodes for opcode in step)
        self._waits = [WAIT in step for step in opcodes]
        self.watched = [self.early and (WAIT in step or any(map(accesses_global, step))) for step in opcodes]
        self._waited = np.zeros(machine.thread_count, bool)

    def before(self, position: int, threads: NDArray[np.intp]) -> None:
        """Threads are about to execute the step at `position`."""
        if self._waits[position]:
            self._waited[threads] = True
            return
        early = threads[~self._waited[threads]]
        if len(early):
            who = self.findings.threads(early)
            access = self.findings.access("accesses", who, "global memory")
            message = f"{who} access global memory, but have not waited for the grids before, which may still use it"
            self.findings.report(MISSING_WAIT, ("grid", position), message, access, None, HINT)

    def exit(self, threads: NDArray[np.intp]) -> None:
        """Threads end."""
        if not self.early:
            return
        early = threads[~self._waited[threads]]
        if len(early):
            who = self.findings.threads(early)
            access = self.findings.access("ends", who, "")
            message = f"{who} end, but have not waited for the grids before: the grid may be complete before they are"
            self.findings.report(MISSING_WAIT, "grid ends", message, access, None, HINT)
