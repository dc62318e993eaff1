"""Asynchronous operations: issued now, done later, at the latest when somebody waits for them.

Copies (`cp.async`, `cp.async.bulk`, tensor copies) and `wgmma` only enter a queue when they are executed. When an operation in the
queue reads its operands and writes its results is the machine's choice, and a correct program computes the same whatever
it chooses:

* 'latest': when a wait demands it, or when nobody can go on without it. A result read before the wait is the old value, and an
  operand that was overwritten before the wait is read overwritten;
* 'earliest': at once. A buffer refilled while others still read it is caught by this;
* 'random': at any time in between, by the machine's generator.

An operation belongs to *owners*, which wait for it by counting groups (PTX ISA 9.0 §9.7.9.25.3.2, cp.async.commit_group, and the same for
bulk copies and wgmma): each carries the number of the owner's group it was issued in, and `wait_group N` completes every one
whose group is not among the owner's N latest. Owners are threads, or warpgroups for `wgmma`. One execution of an instruction by
many threads is one Operation with many pieces, one per owner.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .machine import Machine

NO_GROUP = 1 << 62
"""The group of an operation that signals an mbarrier and belongs to none."""

EAGERNESS = (1 / 32, 1 / 8, 1 / 2)
"""Chances that an operation completes at a scheduling point of a random schedule."""

KINDS = ("cp.async", "bulk", "wgmma")


class Operation:
    """What one execution of an asynchronous instruction leaves to be done, piece by piece. Subclasses say how."""

    signals = False
    """Whether completion arrives at an mbarrier, so that it may let somebody go on."""

    def __init__(self, kind: str, owners: NDArray[np.intp]):
        self.kind, self.owners = kind, owners
        self.groups = np.full(len(owners), NO_GROUP, np.int64)
        self.todo = np.ones(len(owners), bool)
        self.position = 0
        self.note: Any = None
        """What an observer keeps with the operation."""

    def execute(self, pieces: NDArray[np.intp]) -> None:
        """Do the pieces with these indices."""
        raise NotImplementedError

    def capture(self, pieces: NDArray[np.intp]) -> None:
        """Read the source of the pieces, so that it may be overwritten (`wait_group.read`)."""
        raise NotImplementedError


class Pending:
    """The queue of one machine."""

    def __init__(self, machine: Machine, policy: str):
        self.machine, self.policy = machine, policy
        warpgroups = -(-machine.thread_count // 128)
        self.groups = {
            kind: np.zeros(warpgroups if kind == "wgmma" else machine.thread_count, np.int64) for kind in KINDS
        }
        self.queue: list[Operation] = []
        self.working: Operation | None = None
        self.signalled = 0
        """The mbarrier that the write at work will signal."""
        self._eagerness: float | None = None

    def issue(self, operation: Operation, grouped: bool = True) -> None:
        """Queue an operation of the current step; `grouped`: it belongs to its owners' current groups."""
        self.machine.progress += 1
        operation.position = self.machine.position
        if grouped:
            operation.groups = self.groups[operation.kind][operation.owners]
        if self.machine.observer is not None:
            self.machine.observer.issued(self.machine, operation)
        if self.policy == "earliest":
            self._do(operation, operation.todo.copy())
        else:
            self.queue.append(operation)

    def commit(self, kind: str, owners: NDArray[np.intp]) -> None:
        """Close the owners' current groups."""
        self.groups[kind][owners] += 1
        if self.machine.observer is not None:
            self.machine.observer.committed(self.machine, kind, owners)

    def wait(self, kind: str, owners: NDArray[np.intp], newest: int, read: bool = False) -> None:
        """Complete all operations of the owners but those of their `newest` latest groups and of the open one. `read`: only as far
        as their sources are concerned."""
        if self.queue:
            self._complete_groups(kind, owners, newest, read)
        if self.machine.observer is not None:
            self.machine.observer.waited(self.machine, kind, owners, newest, read)

    def _complete_groups(self, kind: str, owners: NDArray[np.intp], newest: int, read: bool) -> None:
        limit = np.full(len(self.groups[kind]), -1, np.int64)
        limit[owners] = self.groups[kind][owners] - newest
        for operation in list(self.queue):
            if operation.kind != kind:
                continue
            due = operation.todo & (operation.groups < limit[operation.owners])
            if not due.any():
                continue
            if read:
                self._at(operation, operation.capture, due)
            else:
                self._do(operation, due)

    def flush(self, kind: str, owners: NDArray[np.intp]) -> None:
        """Complete everything these owners have issued, committed or not."""
        mine = np.zeros(len(self.groups[kind]), bool)
        mine[owners] = True
        for operation in list(self.queue):
            if operation.kind == kind:
                due = operation.todo & mine[operation.owners]
                if due.any():
                    self._do(operation, due)

    def complete_one(self) -> bool:
        """Complete one operation, if there is any: the oldest that signals a barrier, else the oldest; a random one under 'random'."""
        if not self.queue:
            return False
        rng = self.machine.rng
        if self.policy == "random" and rng is not None:
            chosen = rng.choice(self.queue)
        else:
            chosen = next((op for op in self.queue if op.signals), self.queue[0])
        if chosen.kind == "wgmma":  # they complete in order
            chosen = next(op for op in self.queue if op.kind == "wgmma")
        self._do(chosen, chosen.todo.copy())
        return True

    def complete_at_random(self, rng: random.Random) -> None:
        """Under 'random': perhaps complete one. How eagerly is itself drawn, once per machine."""
        if self.policy != "random" or not self.queue:
            return
        if self._eagerness is None:
            self._eagerness = rng.choice(EAGERNESS)
        if rng.random() < self._eagerness:
            self.complete_one()

    def complete_all(self) -> None:
        """Complete what is left at the end of the grid."""
        while self.queue:
            self._do(self.queue[0], self.queue[0].todo.copy())

    def _do(self, operation: Operation, due: NDArray[np.bool_]) -> None:
        operation.todo &= ~due
        if not operation.todo.any() and self.policy != "earliest":
            self.queue.remove(operation)
        self._at(operation, operation.execute, due)

    def _at(self, operation: Operation, what: Callable[[NDArray[np.intp]], None], due: NDArray[np.bool_]) -> None:
        """Run it as at the step that issued it, so that its faults are reported there."""
        machine, observer = self.machine, self.machine.observer
        here, machine.position = machine.position, operation.position
        before, self.working = self.working, operation
        if observer is not None:
            observer.working(machine, operation)
        what(np.nonzero(due)[0])
        self.working = before
        if observer is not None:
            observer.working(machine, before)
        machine.position = here
