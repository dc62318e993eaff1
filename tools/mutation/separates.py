"""Whether a barrier of a block is what orders two accesses: the reason "nothing shared" of `equivalent.py` for barriers.

A barrier matters if some thread accesses a byte before it that another accesses after it, one of the two writing, and nothing else that can be seen
in the log orders the two. What can be seen, of an access by thread t and a later one by thread u:

* a later barrier in which the warps of both took part, or, within a warp, an instruction that all its lanes execute together;
* of an asynchronous operation, that its owner has waited for its group, or that all lanes of a warp have passed the phase of the mbarrier that it
  completes; and then one of these between that warp and u's.

Chains over a third thread are not followed: what is ordered only so counts as ordered by the barrier. So the answer no can be relied on: were the
barrier left out, every pair of accesses that it orders would be ordered still. Example: of

    a: copy to smem[0:64], which signals mbarrier m      b: wait for m      c: bar.sync 0      d: load smem[0:64]

c separates nothing if all lanes of d's warp execute b; it does if another warp executes b, and d's relies on c to hear of it. One log is enough: whatever
is before the barrier in the order of the program is before it in every log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dialects.ptx_program import Instr
from ...simulator.machine import Machine
from ...simulator.selection import WARP
from .trace import GENERIC, NEVER, REGISTERS, SPACE_BITS, WRITES, Event, Flight

Array = NDArray[Any]
SEVERAL = -2


@dataclass
class _Access:
    """What a warp did at a time; of an asynchronous operation, `known`: since when which warps know that it is done."""

    warp: int
    block: int
    time: int
    flight: Flight | None = None
    known: list[tuple[int, int]] = field(default_factory=list)


class _Walk:
    """Goes through a log. `places`: all bytes of memory that are touched, ascending."""

    def __init__(self, log: list[Event], machine: Machine, instr: Instr):
        self.machine, self.log = machine, log
        self.warps = machine.block_stride // WARP
        self.positions = {k for k, step in enumerate(machine.code.steps) if any(i is instr for i in step.instrs)}
        parts = [e.where for e in log if e.kind in GENERIC and _in_memory(e.where)]
        parts += [_memory(e.detail.bytes_of(w))[0] for e in log if e.kind == "issue" for w in (True, False)]
        self.places = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        size = len(self.places)
        self.accesses: list[_Access] = []
        self.written, self.writer = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
        self.read, self.reader = np.full((self.warps, size), -1, np.int64), np.full((self.warps, size), -1, np.int64)
        self.seen = np.full((machine.thread_count // WARP, self.warps), -1, np.int64)  # up to when the second warp's deeds are known to the first
        self.here: dict[int, int] = {}  # the barrier's last execution in each block
        self.signalled: dict[tuple[int, int], list[_Access]] = {}

    def needs_the_barrier(self) -> bool:
        for event in self.log:
            if event.kind in ("barrier", "part"):
                for block in np.unique(event.who // self.machine.block_stride).tolist():
                    if event.position in self.positions:
                        self.here[block] = event.time
                    else:
                        self._meet(event.who[event.who // self.machine.block_stride == block], event.time)
            elif event.kind == "meet":
                for warp in _whole_warps(event.who):
                    self.seen[warp, warp % self.warps] = event.time
            elif event.kind == "pass":
                for barrier, phase in set(zip(event.where.tolist(), event.detail)):
                    who = event.who[(event.where == barrier) & (np.array(event.detail) == phase)]
                    for access in self.signalled.get((barrier, phase), ()):
                        access.known += [(warp, event.time) for warp in _whole_warps(who)]
            elif event.kind in GENERIC and _in_memory(event.where):
                if self._access(event.where, event.who, event.kind in WRITES, event.time):
                    return True
            elif event.kind == "issue":
                for writes, who in ((False, event.detail.readers), (True, event.detail.writers)):
                    where, kept = _memory(event.detail.bytes_of(writes))
                    if len(where) and self._access(where, np.concatenate(who)[kept], writes, event.time, event.detail):
                        return True
        return False

    def _meet(self, who: Array, time: int) -> None:
        warps = _whole_warps(who)
        self.seen[np.ix_(warps, [warp % self.warps for warp in warps])] = time

    def _access(self, where: Array, who: Array, writes: bool, time: int, flight: Flight | None = None) -> bool:
        """Adds accesses of threads to bytes; whether one is ordered after an earlier one by the barrier alone."""
        at = np.searchsorted(self.places, where)
        warps = who // WARP
        if self._any_needed(self.written[at], self.writer[at], who, time):
            return True
        numbers = np.zeros(len(at), np.int64)
        for warp in np.unique(warps).tolist():
            numbers[warps == warp] = len(self.accesses)
            self.accesses.append(self._made(warp, time, flight, writes))
        if writes:
            for of in range(self.warps):
                if self._any_needed(self.read[of, at], self.reader[of, at], who, time):
                    return True
            self.written[at], self.writer[at] = numbers, who
            self.writer[at[self.writer[at] != who]] = SEVERAL
        else:
            of = warps % self.warps
            self.read[of, at], self.reader[of, at] = numbers, who
            several = self.reader[of, at] != who
            self.reader[of[several], at[several]] = SEVERAL
        return False

    def _made(self, warp: int, time: int, flight: Flight | None, writes: bool) -> _Access:
        block = warp // self.warps
        access = _Access(warp, block, time, flight)
        if flight is not None:
            mine = flight.signals // self.machine.shared.stride == block
            for barrier, phase in zip(flight.signals[mine].tolist(), flight.phases[mine].tolist()):
                self.signalled.setdefault((barrier, phase), []).append(access)
            if not len(flight.signals):
                ends = flight.waited if writes else np.minimum(flight.waited, flight.reads_waited)
                width = 4 if flight.kind == "wgmma" else 1
                for owner, end in zip(flight.owners.tolist(), ends.tolist()):
                    first = owner * width if width == 4 else owner // WARP
                    if end != NEVER and first <= warp < first + width:
                        access.known += [(other, end) for other in range(first, first + width)]
        return access

    def _any_needed(self, numbers: Array, others: Array, who: Array, time: int) -> bool:
        there = numbers >= 0
        if not there.any():
            return False
        rows = np.unique(np.stack([numbers[there], who[there] // WARP, others[there] == who[there]]), axis=1)
        return any(self._needed(self.accesses[number], warp, bool(same), time) for number, warp, same in rows.T.tolist())

    def _needed(self, access: _Access, warp: int, same: bool, time: int) -> bool:
        """Whether of an access and one by `warp` now (`same`: by the same thread) the barrier came between, and nothing else that orders them."""
        if warp // self.warps != access.block or self.here.get(access.block, -1) < access.time:
            return False
        if access.flight is None:
            return not same and self.seen[warp, access.warp % self.warps] < access.time
        return not any((other == warp and end < time) or self.seen[warp, other % self.warps] >= end for other, end in access.known)


def separates(log: list[Event], machine: Machine, instr: Instr) -> bool:
    """Whether a barrier of a block, `instr`, may be what orders two accesses of a run."""
    return _Walk(log, machine, instr).needs_the_barrier()


def _in_memory(where: Array) -> bool:
    return bool(len(where)) and where[0] >> SPACE_BITS != REGISTERS


def _memory(where: Array) -> tuple[Array, Array]:
    """The bytes that are no registers, and which these are."""
    kept = where >> SPACE_BITS != REGISTERS
    return where[kept], kept


def _whole_warps(who: Array) -> list[int]:
    """The warps of which all lanes are among these threads."""
    warps, counts = np.unique(np.unique(who) // WARP, return_counts=True)
    return warps[counts == WARP].tolist()
