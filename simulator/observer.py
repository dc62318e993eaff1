"""What a machine tells those who watch it: memory accesses, synchronisation, asynchronous operations, threads that
end.

An `Observer` overrides what is of interest. The judge (`races.py`) and the profile (`profile.py`) are observers;
`Observers` passes everything on to several. Threads are numbers in the machine, as everywhere in the simulator;
shared addresses are byte indices into all shared memory of the machine (block * machine.shared.stride + offset).
`machine.position` is the step at work; while an asynchronous operation is executed it is the step that issued it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Instr

if TYPE_CHECKING:
    from .asynchrony import Operation
    from .decode import Step
    from .machine import Machine
    from .selection import Selection

Threads = NDArray[np.intp]
Places = NDArray[np.int64]


class Observer:
    """Sees what a machine does; every method may be left as it is."""

    def begin(self, machine: Machine) -> None:
        """A machine is about to run. `machine.watched` may be set here: the steps of which `before` and `after` are
        told."""

    def end(self, machine: Machine) -> None:
        """All threads of the machine have ended and all asynchronous operations have completed."""

    def before(self, machine: Machine, step: Step, sel: Selection) -> None:
        """Threads are about to execute a watched step."""

    def after(self, machine: Machine, step: Step, sel: Selection) -> None:
        """Threads have executed a watched step (which is not a control step)."""

    def access(
        self,
        machine: Machine,
        kind: str,
        space: str,
        addresses: NDArray[Any],
        size: int,
        threads: Threads,
        values: NDArray[Any] | None = None,
    ) -> None:
        """Accesses of `size` bytes each, before they happen. `kind`: 'load', 'store' or 'atomic' of the generic
        proxy, 'async load' or 'async store' of an asynchronous operation (when it is executed, not when it is
        issued), 'async atomic' of a reducing one; `space`: 'global', 'shared' or 'param'; `addresses`: global
        addresses, shared indices, or offsets into the parameters, in an array whose last axis goes with `threads`
        (one thread for async copies by a thread, a warpgroup's first thread for wgmma); `values`: what a store of the
        generic proxy writes, [n, vector, threads] unsigned integers."""

    def sync(self, machine: Machine, instr: Instr, threads: Threads) -> None:
        """A fence, which orders memory and otherwise does nothing."""

    def exit(self, machine: Machine, sel: Selection) -> None:
        """Threads end."""

    # Barriers of a block and of a cluster

    def blocks_sync(self, machine: Machine, sel: Selection) -> None:
        """In every block that `sel` touches, its threads there have met at a barrier which is complete with them."""

    def barrier_arrive(self, machine: Machine, block: int, number: int, threads: Threads) -> None:
        """Threads arrive at a named barrier (and may then wait there)."""

    def barrier_complete(self, machine: Machine, block: int, number: int, waiting: Sequence[Selection]) -> None:
        """A named barrier is complete and lets those through who wait there."""

    def cluster_arrive(self, machine: Machine, sel: Selection, relaxed: bool) -> None:
        """Threads arrive at their cluster's barrier."""

    def cluster_complete(self, machine: Machine, cluster: int) -> None:
        """All have arrived at a cluster's barrier."""

    def cluster_pass(self, machine: Machine, sel: Selection) -> None:
        """Threads go on after a complete cluster barrier."""

    # mbarriers. `flat` are their shared indices.

    def mbarrier_init(self, machine: Machine, flat: Places, threads: Threads) -> None:
        """Threads initialise mbarriers, [threads]."""

    def mbarrier_touch(self, machine: Machine, flat: Places, threads: Threads) -> None:
        """Threads look at mbarriers (test, wait, expect, arrive), [threads]."""

    def mbarrier_arrive(self, machine: Machine, flat: Places, threads: Threads) -> None:
        """Threads arrive, or one asynchronous operation at work completes bytes, at mbarriers; before it counts."""

    def mbarrier_phase(self, machine: Machine, flat: Places) -> None:
        """The current phases of these mbarriers are complete."""

    def mbarrier_pass(self, machine: Machine, flat: Places, parity: NDArray[Any], threads: Threads) -> None:
        """Threads have been told that a phase of the parity is complete."""

    # Asynchronous operations

    def issued(self, machine: Machine, operation: Operation) -> None:
        """An operation enters the queue."""

    def working(self, machine: Machine, operation: Operation | None) -> None:
        """The operation whose accesses and arrivals follow; None: threads again."""

    def committed(self, machine: Machine, kind: str, owners: Threads) -> None:
        """Owners close their current group."""

    def waited(self, machine: Machine, kind: str, owners: Threads, newest: int, read: bool) -> None:
        """All operations of the owners are complete (`read`: have read their sources) but those of their `newest`
        latest groups."""


class Observers(Observer):
    """Passes everything on to several observers, in order."""

    def __init__(self, observers: Sequence[Observer]):
        self.observers = list(observers)


def _forward(name: str) -> Any:
    def call(self: Observers, *args: Any, **kwargs: Any) -> None:
        for observer in self.observers:
            getattr(observer, name)(*args, **kwargs)

    call.__name__ = name
    return call


for _name in [name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_")]:
    setattr(Observers, _name, _forward(_name))
