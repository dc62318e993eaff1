"""Whether a fault of data is one: whether the changed instruction does anything else than the right one, in at least one execution.

A constant of a clamp that never clamps, or a register that holds the same value as the one it replaces, is no fault on the arguments at hand ("weak
mutation", Howden 1982: the mutated component must compute another value at least once). Such places are passed over and counted. What the fault
does later on, and whether anybody notices, is not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...dialects.ptx_program import Instr
from ...simulator import Observer
from ...simulator.decode import CLASS_VIEW, VIEW_INDEX, Step
from ...simulator.faults import ProgramError
from ...simulator.machine import Machine
from ...simulator.selection import Selection
from .faults import KINDS, Mutant, instr_at, writes_of
from .launches import Recorded
from .trace import mixed

if TYPE_CHECKING:
    from .trial import Trial

Array = NDArray[Any]
ALWAYS = ("swap-ops", "change-swizzle")
"""Kinds that change more than one instruction, or the parameters."""


class Deeds(Observer):
    """Sums up what some instructions do, thread by thread: the values of the registers that they assign, and their accesses. `changes`: whether any
    of them ever changed the value of a register, or accessed memory."""

    def __init__(self, instrs: list[Instr]):
        self._instrs = instrs
        self.prints: list[Array] = []
        self.changes = False

    def begin(self, machine: Machine) -> None:
        self._print = np.zeros(machine.thread_count, np.uint64)
        self.prints.append(self._print)
        self._rows: dict[int, list[tuple[int, int]]] = {}
        for position, step in enumerate(machine.code.steps):
            for instr in step.instrs:
                if any(instr is i for i in self._instrs):
                    rows = self._rows.setdefault(position, [])
                    for name in writes_of(instr):
                        cls, row = machine.code.register(name, instr)
                        rows.append((VIEW_INDEX[CLASS_VIEW[cls]], row))
        machine.watched = [position in self._rows for position in range(len(machine.code.steps))]

    def _add(self, threads: Array, *values: Any) -> None:
        self._print[threads] = mixed(self._print[threads], *values)

    def _values(self, machine: Machine, sel: Selection) -> list[Array]:
        return [machine.regs[view][row, sel.threads].copy() for view, row in self._rows[machine.position]]

    def before(self, machine: Machine, step: Step, sel: Selection) -> None:
        self._old = self._values(machine, sel)
        if step.meaning.control:
            self._add(sel.threads, 1)
            self.changes = True

    def after(self, machine: Machine, step: Step, sel: Selection) -> None:
        new = self._values(machine, sel)
        self.changes |= any(not np.array_equal(a, b) for a, b in zip(self._old, new))
        self._add(sel.threads, 1, *new)

    def access(
        self, machine: Machine, kind: str, space: str, addresses: Array, size: int, threads: Array, values: Array | None = None
    ) -> None:
        if machine.position in self._rows and addresses.size:
            self.changes = True
            for row in addresses.reshape(-1, addresses.shape[-1]):
                self._add(threads, np.broadcast_to(row, len(threads)))

    def mbarrier_touch(self, machine: Machine, flat: Array, threads: Array) -> None:
        if machine.position in self._rows:
            self.changes = True
            self._add(threads, flat)

    def issued(self, machine: Machine, operation: Any) -> None:
        self.changes |= machine.position in self._rows


def is_live(trial: Trial, launch: Recorded, mutant: Mutant) -> bool:
    """Whether the fault makes the changed instruction do something else at least once, on the launch's arguments. Faults of order are."""
    if KINDS[mutant.kind].order or mutant.kind in ALWAYS:
        return True
    right = Deeds([instr_at(launch.kernel, mutant.index)])
    trial.run(right)
    planted = [item for items in mutant.change.items.values() for item in items if isinstance(item, Instr)]
    if not planted:
        return right.changes
    wrong = Deeds(planted[-1:])
    try:
        trial.run(wrong, mutant)
    except ProgramError:
        return True
    return len(right.prints) != len(wrong.prints) or any(not np.array_equal(a, b) for a, b in zip(right.prints, wrong.prints))
