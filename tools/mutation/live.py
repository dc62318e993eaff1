"""Whether a fault is one at all on the arguments at hand: whether the changed instruction does anything else than the right one, in at least one
execution.

Of faults of data: a constant of a clamp that never clamps, or a register that holds the same value as the one it replaces, is none ("weak
mutation", Howden 1982: the mutated component must compute another value at least once). Such places are passed over and counted. Of faults of order: a wait
that never had anything to wait for, a wait for the phase before the first of an mbarrier, which has always passed, and the initialisation of, or an
arrival at, an mbarrier that nobody ever waits for do nothing that could be left out; and neither does a barrier on one side of which
(up to the barriers of the same threads, or of the whole block, next to it) nobody accesses a byte of memory that is accessed on the other, one of the
two writing. What a fault does later on, and whether anybody notices, is not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...dialects.ptx_program import Instr
from ...simulator import Observer
from ...simulator.asynchrony import NO_GROUP, Operation
from ...simulator.decode import CLASS_VIEW, VIEW_INDEX, Step
from ...simulator.faults import ProgramError
from ...simulator.machine import Machine
from ...simulator.selection import Selection
from .faults import KINDS, Mutant, instr_at, is_try_wait, is_wait, writes_of
from .launches import Recorded
from .trace import GENERIC, REGISTERS, SPACE_BITS, WRITES, Trace, mixed

if TYPE_CHECKING:
    from .trial import Trial

Array = NDArray[Any]
ALWAYS = ("swap-ops", "change-swizzle")
"""Kinds that change more than one instruction, or the parameters."""


class Deeds(Observer):
    """Sums up what some instructions do, thread by thread: the values of the registers that they assign, and their accesses; of
    stores what is stored where, by whichever thread. `changes`: whether any
    of them ever changed the value of a register, or accessed memory."""

    def __init__(self, instrs: list[Instr]):
        self._instrs = instrs
        self._stores = all(instr.opcode.startswith("st.") for instr in instrs)
        self.prints: list[Array] = []
        self.stored: set[int] = set()
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
        if new or not self._stores:
            self._add(sel.threads, 1, *new)

    def access(
        self, machine: Machine, kind: str, space: str, addresses: Array, size: int, threads: Array, values: Array | None = None
    ) -> None:
        if machine.position in self._rows and addresses.size:
            self.changes = True
            rows = addresses.reshape(-1, addresses.shape[-1])
            for k, row in enumerate(rows):
                row = np.broadcast_to(row, len(threads))
                if kind == "store" and values is not None:
                    self.stored.update(mixed(row, *np.broadcast_to(values, (len(rows), values.shape[1], len(threads)))[k]).tolist())
                else:
                    self._add(threads, row)

    def mbarrier_touch(self, machine: Machine, flat: Array, threads: Array) -> None:
        if machine.position in self._rows:
            self.changes = True
            self._add(threads, flat)

    def issued(self, machine: Machine, operation: Any) -> None:
        self.changes |= machine.position in self._rows


def is_live(trial: Trial, launch: Recorded, mutant: Mutant) -> bool:
    """Whether the fault makes the changed instruction do something else at least once, on the launch's arguments."""
    if KINDS[mutant.kind].order:
        return _orders_something(trial, launch, mutant)
    if mutant.kind in ALWAYS:
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
    return len(right.prints) != len(wrong.prints) or right.stored != wrong.stored or any(not np.array_equal(a, b) for a, b in zip(right.prints, wrong.prints))


def _orders_something(trial: Trial, launch: Recorded, mutant: Mutant) -> bool:
    instr = instr_at(launch.kernel, mutant.index)
    if mutant.kind in ("drop-wait", "weaken-wait") and is_wait(instr):
        waits = Waits(instr, 1 if mutant.kind == "weaken-wait" else None)
        trial.run(waits)
        return waits.needed
    if mutant.kind in ("drop-arrive", "drop-init", "change-count") or (mutant.kind == "drop-wait" and is_try_wait(instr)):
        trace = trial.right_trace()
        used: set[int] = set()
        waited: dict[int, int] = {}
        for log, machine in zip(trace.logs, trace.machines):
            positions = {k for k, step in enumerate(machine.code.steps) if any(i is instr for i in step.instrs)}
            for event in log:
                if event.kind == "pass":
                    if is_try_wait(instr) and event.position in positions and max(event.detail) >= 0:
                        return True
                    for barrier, phase in zip(event.where.tolist(), event.detail):
                        waited[barrier] = max(phase, waited.get(barrier, -1))
                elif event.position in positions and event.kind in ("arrive", "init"):
                    where = event.where if event.kind == "arrive" else event.where[::8] & ((1 << SPACE_BITS) - 1)
                    used.update(where.tolist())
        return any(waited.get(barrier, -1) >= 0 for barrier in used)
    if mutant.kind == "drop-barrier" and not instr.opcode.startswith("bar.warp"):
        return _separates(trial.right_trace(), instr)
    return True


def _separates(trace: Trace, instr: Instr) -> bool:
    """Whether a barrier ever stands between two accesses of its block to one byte of which one writes: after the barrier before it, and before the
    next."""
    for log, machine in zip(trace.logs, trace.machines):
        positions = {k for k, step in enumerate(machine.code.steps) if any(i is instr for i in step.instrs)}
        before: dict[int, Sides] = {}
        now: dict[int, Sides] = {}
        here: dict[int, bool] = {}
        met = {tuple(np.unique(event.who).tolist()) for event in log if event.position in positions and event.kind in ("barrier", "part")}
        for event in log:
            if event.kind == "barrier" or (event.kind == "part" and tuple(np.unique(event.who).tolist()) in met):
                for block in np.unique(event.who // machine.block_stride).tolist():
                    if here.get(block) and before[block].meet(now.get(block, Sides())):
                        return True
                    before[block], now[block] = now.get(block, Sides()), Sides()
                    here[block] = event.position in positions
            elif event.kind in GENERIC and len(event.where) and event.where[0] >> SPACE_BITS != REGISTERS:
                blocks = event.who // machine.block_stride
                for block in np.unique(blocks).tolist():
                    now.setdefault(block, Sides()).add(event.where[blocks == block], event.kind in WRITES)
            elif event.kind == "issue":
                flight = event.detail
                for block in np.unique(flight.owners * (128 if flight.kind == "wgmma" else 1) // machine.block_stride).tolist():
                    side = now.setdefault(block, Sides())  # an operation of several blocks counts whole for each
                    for writes in (True, False):
                        where = flight.bytes_of(writes)
                        side.add(where[where >> SPACE_BITS != REGISTERS], writes)
        if any(there and before[block].meet(now.get(block, Sides())) for block, there in here.items()):
            return True
    return False


class Sides:
    """The bytes that are read and written on one side of a barrier."""

    def __init__(self) -> None:
        self.read: list[Array] = []
        self.written: list[Array] = []

    def add(self, where: Array, writes: bool) -> None:
        (self.written if writes else self.read).append(where)

    def meet(self, other: Sides) -> bool:
        """Whether one side writes what the other accesses."""
        mine, theirs = (tuple(np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in (s.read, s.written)) for s in (self, other))
        pairs = ((mine[1], theirs[0]), (mine[1], theirs[1]), (mine[0], theirs[1]))
        return any(len(np.intersect1d(a, b)) for a, b in pairs)


class Waits(Observer):
    """Whether an instruction that waits for groups ever covers an operation that no wait has covered before (`weaker`: that would be left to one of
    so many groups less)."""

    def __init__(self, instr: Instr, weaker: int | None):
        self._instr, self._weaker = instr, weaker
        self.needed = False

    def begin(self, machine: Machine) -> None:
        self._open: list[tuple[Operation, Array]] = []
        self._positions = {k for k, step in enumerate(machine.code.steps) if any(i is self._instr for i in step.instrs)}

    def issued(self, machine: Machine, operation: Operation) -> None:
        if (operation.groups != NO_GROUP).all():
            self._open.append((operation, np.ones((2, len(operation.owners)), bool)))

    def waited(self, machine: Machine, kind: str, owners: Array, newest: int, read: bool) -> None:
        here = machine.position in self._positions
        groups = machine.pending.groups[kind]
        limit = np.full(len(groups), -1, np.int64)
        limit[owners] = groups[owners] - newest
        for operation, still in self._open:
            if operation.kind == kind:
                due = operation.groups < limit[operation.owners]
                rows = still[1:] if read else still
                if here:
                    only = due if self._weaker is None else due & (operation.groups >= limit[operation.owners] - self._weaker)
                    self.needed |= bool((rows & only).any())
                rows[:, due] = False
        self._open = [(operation, still) for operation, still in self._open if still.any()]
