"""Registers that hold nothing yet, and registers that an asynchronous wgmma still reads or writes.

**Uninitialised.** A forward analysis over the control-flow graph finds registers that are assigned on every way to
each use (an instruction under a guard assigns nothing for sure). Only the others, usually none, are followed thread
by thread while the program runs.

**In flight** (PTX ISA 9.0 §9.7.15.7). From wgmma.mma_async until the wait_group that covers it, its accumulators may
be neither read nor written, and its A registers not be written, by anything but another wgmma of the same
accumulators. And wgmma.fence must stand between an ordinary access to any of these registers and the wgmma that
follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Instr
from .decode import Code, Step, find_meaning, names_in
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .machine import Machine
    from .matrix_ops import WarpgroupMma

Tell = Callable[[str, NDArray[np.intp], list[str], "tuple[int, int] | None"], None]
"""Is told: what is wrong ('uninitialised', 'read', 'write', 'fence'), the threads, the registers' names, and
(position, instruction) of the other side."""

GROUP = 4


def reads_and_writes(instr: Instr) -> tuple[list[str], list[str]]:
    """The registers that an instruction reads (its guard too) and those that it writes."""
    dests = find_meaning(instr.opcode).dests
    writes = [n for k in dests if k < len(instr.operands) for n in names_in(instr.operands[k])]
    # What a lane gives to a shuffle counts where it arrives, and often nobody takes it.
    unread = (*dests, 1) if instr.opcode.startswith("shfl.") else dests
    reads = [n for k, op in enumerate(instr.operands) if k not in unread for n in names_in(op)]
    if instr.guard is not None:
        reads.append(instr.guard)
    return reads, writes


def is_wgmma(instr: Instr) -> bool:
    return instr.opcode.startswith("wgmma.mma_async")


def maybe_unassigned(code: Code) -> set[str]:
    """Registers with a use that some way through the program reaches before any assignment. A wgmma's accumulators
    count as used."""
    everything = frozenset(code.entry.registers)
    before: dict[int, frozenset[str]] = dict.fromkeys((b.index for b in code.blocks), everything)
    before[0] = frozenset()
    work = [0]
    seen = {0}
    assigns = {
        b.index: frozenset(w for i in b.instrs if i.guard is None for w in reads_and_writes(i)[1]) for b in code.blocks
    }
    while work:
        index = work.pop()
        after = before[index] | assigns[index]
        for succ in code.blocks[index].successors():
            new = before[succ] & after
            if new != before[succ] or succ not in seen:
                before[succ] = new
                seen.add(succ)
                work.append(succ)
    found: set[str] = set()
    for index in seen:
        have = set(before[index])
        for instr in code.blocks[index].instrs:
            reads, writes = reads_and_writes(instr)
            found.update(r for r in [*reads, *(writes if is_wgmma(instr) else ())] if r not in have)
            if instr.guard is None:
                have.update(writes)
    return found


class RegisterWatch:
    """Follows the registers of one machine."""

    def __init__(self, machine: Machine, tell: Tell):
        self.machine, self.tell = machine, tell
        code = machine.code
        warps = machine.thread_count // WARP
        followed = sorted(maybe_unassigned(code))
        asynchronous: dict[str, None] = {}
        for step in code.steps:
            for instr in step.instrs:
                if is_wgmma(instr):
                    asynchronous.update(
                        dict.fromkeys(n for op in instr.operands[:2] for n in names_in(op) if _is_32(code, n))
                    )
        self.names = followed, list(asynchronous)
        self._followed = {name: k for k, name in enumerate(followed)}
        self._wgmma = {name: k for k, name in enumerate(asynchronous)}
        self.assigned = np.zeros((len(followed), machine.thread_count), bool)
        count = len(asynchronous)
        self.touched = np.zeros((count, warps), np.int64)
        """When an ordinary instruction last accessed a register of a warp."""
        self.touched_at: dict[int, int] = {}
        self.fence = np.zeros(warps, np.int64)
        self.written = np.zeros((count, warps // GROUP), np.int64)
        self.read = np.zeros((count, warps // GROUP), np.int64)
        """When a wgmma that writes (reads) a register of a warpgroup was issued."""
        self.done = np.zeros(warps // GROUP, np.int64)
        self.where: dict[int, tuple[int, int]] = {}
        self.latest = np.zeros(warps // GROUP, np.int64)
        self._steps = [self._decode(step) for step in code.steps]
        self.watched = [any(len(part) for part in parts) for parts in self._steps]

    def _decode(self, step: Step) -> tuple[NDArray[np.intp], ...]:
        reads: list[str] = []
        writes: list[str] = []
        wgmma = is_wgmma(step.instrs[0])
        for instr in step.instrs:
            r, w = reads_and_writes(instr)
            reads += r
            writes += w
        if step.instrs[0].guard is not None:
            reads = [r for r in reads if r != step.instrs[0].guard]  # the machine has read it already
        ordinary = ([], []) if wgmma else (reads, writes)
        return (
            _index(self._followed, reads),
            _index(self._followed, writes),
            _index(self._wgmma, ordinary[0]),
            _index(self._wgmma, ordinary[1]),
        )

    def before(self, position: int, sel: Selection, time: int) -> None:
        uses, _, reads, writes = self._steps[position]
        if len(uses):
            have = self.assigned[uses[:, None], sel.threads]
            if not have.all():
                at, thread = np.nonzero(~have)
                names = [self.names[0][uses[k]] for k in np.unique(at)]
                self.tell("uninitialised", sel.threads[np.unique(thread)], names, None)
                self.assigned[uses[:, None], sel.threads] = True  # said once
        if len(reads) or len(writes):
            warps = sel.lanes.warps
            both = np.union1d(reads, writes)
            groups = warps // GROUP
            if (self.latest[groups] > self.done[groups]).any():
                self._in_flight(reads, self.written, "read", sel)
                self._in_flight(writes, self.written, "write", sel)
                self._in_flight(writes, self.read, "write", sel)
            self.touched[both[:, None], warps] = time
            self.touched_at[time] = position

    def after(self, position: int, sel: Selection) -> None:
        assigned = self._steps[position][1]
        if len(assigned):
            self.assigned[assigned[:, None], sel.threads] = True

    def _in_flight(self, rows: NDArray[np.intp], times: NDArray[np.int64], what: str, sel: Selection) -> None:
        if not len(rows):
            return
        warps = sel.lanes.warps
        groups = warps // GROUP
        late = times[rows[:, None], groups] > self.done[groups]
        if late.any():
            row, column = np.nonzero(late)
            names = [self.names[1][rows[k]] for k in np.unique(row)]
            when = int(times[rows[row[0]], groups[column[0]]])
            threads = sel.threads[np.isin(sel.threads // WARP, warps[np.unique(column)])]
            self.tell(what, threads, names, self.where.get(when))

    def issued(self, operation: WarpgroupMma, position: int, time: int) -> None:
        """A wgmma was issued by warpgroups."""
        instr = self.machine.code.steps[position].instrs[0]
        d = _index(self._wgmma, names_in(instr.operands[0]))
        a = _index(self._wgmma, [n for n in names_in(instr.operands[1]) if n in self._wgmma])
        groups = operation.owners
        threads = (groups[:, None] * GROUP * WARP + np.arange(GROUP * WARP)).reshape(-1)
        used = _index(self._followed, names_in(instr.operands[0]))
        keep = np.repeat(operation.keep, GROUP * WARP)
        if len(used) and keep.any():
            have = self.assigned[used[:, None], threads[keep]]
            if not have.all():
                names = [self.names[0][used[k]] for k in np.unique(np.nonzero(~have)[0])]
                self.tell("uninitialised", threads[keep], names, None)
        warps = (groups[:, None] * GROUP + np.arange(GROUP)).reshape(-1)
        both = np.union1d(d, a)
        unfenced = self.touched[both[:, None], warps] > self.fence[warps]
        never = self.fence[warps] == 0
        if unfenced.any():
            row, column = np.nonzero(unfenced)
            late_row = int(np.argmax(self.touched[both[row], warps[column]]))
            names = [self.names[1][both[row[late_row]]]]
            when = int(self.touched[both[row[late_row]], warps[column[late_row]]])
            at = self.touched_at.get(when)
            self.tell("fence", threads, names, None if at is None else (at, self._row(at, names[0])))
        elif never.any():
            self.tell("fence", threads, [], None)
        late = self.written[a[:, None], groups] > self.done[groups]
        if late.any():
            row, column = np.nonzero(late)
            names = [self.names[1][a[k]] for k in np.unique(row)]
            self.tell("read", threads, names, self.where.get(int(self.written[a[row[0]], groups[column[0]]])))
        self.written[d[:, None], groups] = time
        self.read[a[:, None], groups] = time
        self.latest[groups] = time
        self.where[time] = (position, 0)

    def _row(self, position: int, name: str) -> int:
        """The last instruction of a step that mentions a register."""
        instrs = self.machine.code.steps[position].instrs
        rows = [k for k, instr in enumerate(instrs) if any(name in part for part in reads_and_writes(instr))]
        return rows[-1] if rows else 0

    def fenced(self, threads: NDArray[np.intp], time: int) -> None:
        self.fence[np.unique(threads // WARP)] = time

    def waited(self, groups: Sequence[int], times: Sequence[int]) -> None:
        """All wgmma of these warpgroups up to the times are complete."""
        for group, time in zip(groups, times):
            self.done[group] = max(self.done[group], time)


def _is_32(code: Code, name: str) -> bool:
    return code.entry.registers.get(name) == "b32"


def _index(rows: dict[str, int], names: Iterable[str]) -> NDArray[np.intp]:
    return np.array(sorted({rows[n] for n in names if n in rows}), np.intp)
