"""The judge: runs a program in the simulator and says what is wrong with it. `docs/memory-order.md` is the law it applies.

    reports = judge(text, grid=(4,), block=(128,), params=(x, y, n), memory=memory, shared_bytes=4096, seed=7)
    for report in reports:
        print(report)

**The API, which stays as it is.**

* `judge(program, …, policy=, seed=, strict_isa=) -> list[Report]` takes what `launch` takes, runs the program once, and never raises for a fault of the
  program: whatever ends it early (a deadlock, an access out of bounds) is a report too. No report: nothing wrong was found.
* `launch(…, races=True, …)` does the same and raises `JudgedError`, whose `.reports` are these, if there are any.
* `with settings(races=True, seed=, policy=, strict_isa=):` (launcher.py) judges every launch within, also one by `Kernel(device="sim")`, which raises.
* `Report` (`reports.py`): `.kind` (one of `KINDS`), `.message`, `.first` and `.second` (`Access`: verb, who, where, op, location, line), `.missing`, `.count`.
* `Judge` is the `Observer` that does it: `launch(…, observer=Judge())`, then `.reports`.

**How.** `clocks.py` keeps what every thread knows to have happened before (happens-before, as vector clocks), `shadow.py` who touched each granule of
memory last. An access that conflicts with an earlier one which its thread does not know is a race, whatever the order in which the
simulator happened to run them: so one run finds what many runs by luck would not. Schedules still matter where control flow depends
on them, and adversarial ones (`policy`) run the same program in other orders.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Imm, Instr, Program
from . import memory
from .asynchrony import NO_GROUP
from .clocks import BULK_READ, BULK_WRITE, MBARRIER, WGMMA, Clocks
from .copies import BulkOperation, CopiesArrive, ThreadCopy
from .decode import TYPE_SIZE
from .faults import ProgramError
from .machine import place
from .matrix_ops import WarpgroupMma
from .observer import Observer
from .reports import EXIT, MISSING_PROXY_FENCE, MISSING_WAIT, RACE, UNINITIALISED, Access, Report
from .selection import WARP
from .shadow import AGENT_BITS, ASYNC, GlobalShadow, SharedShadow, agent_of, time_of

if TYPE_CHECKING:
    from .asynchrony import Operation
    from .machine import Machine
    from .selection import Selection

Array = NDArray[Any]
Threads = NDArray[np.intp]

MAX_SHOWN = 4096
"""Conflicting elements of one access that are looked at; more of the same would say the same."""


def joined(a: Array | None, b: Array) -> Array:
    """The maximum of two rows, of which the shorter lacks columns that are 0."""
    if a is None:
        return b.copy()
    if len(a) < len(b):
        a, b = b, a
    result = a.copy()
    np.maximum(result[: len(b)], b, out=result[: len(b)])
    return result


class _Phases:
    """What those who arrived at an mbarrier in its current phase published, and in the last complete phase of each parity."""

    def __init__(self) -> None:
        self.current: Array | None = None
        self.done: list[Array | None] = [None, None]
        self.parity = 0
        self.count = 0


class _Note:
    """What the judge keeps with an asynchronous operation: its time of issue, and what its issuer knew then: one row per piece of `rows`."""

    def __init__(self, time: int, rows: Array, piece: dict[int, int]):
        self.time, self.rows, self.piece = time, rows, piece


class Judge(Observer):
    """Watches a launch; `reports` is what it found. `strict`: by the letter of the ISA (docs/memory-order.md)."""

    def __init__(self, strict: bool = False):
        self.strict = strict
        self.reports: list[Report] = []
        self._index: dict[tuple[Any, ...], Report] = {}
        self._global: GlobalShadow | None = None
        self._base = 0
        self._now = 1
        self._times: list[int] = []
        self._steps: list[tuple[int, int]] = []
        """Of the access at the time of the same index: (position, instructions in the step)."""

    # The machine

    def begin(self, machine: Machine) -> None:
        code = machine.code
        instrs = [i for s in code.steps for i in s.instrs]
        newest = [
            int(op.bits) for i in instrs if ".wait_group" in i.opcode for op in i.operands[:1] if isinstance(op, Imm)
        ]
        self.clocks = Clocks(machine, max([1, *newest]))
        self.clocks.now = self._now
        self.machine = machine
        shared, everywhere, atomics = _granules(instrs)
        self.shared = SharedShadow(len(machine.shared.data), shared, self.clocks, atomics)
        if self._global is None:
            spans = machine.memory.spans()
            first = min((low for low, _ in spans), default=memory.GLOBAL_BASE) // 256 * 256
            last = max((high for _, high in spans), default=first)
            self._global = GlobalShadow(first, last - first, everywhere)
        self._phases: dict[int, _Phases] = {}
        self._named: dict[tuple[int, int], Array] = {}
        self._cluster: dict[int, Array] = {}
        self._cluster_done: dict[int, Array] = {}
        self._touched: dict[int, dict[int, int]] = {}
        self._exit_rows: dict[int, Array] = {}
        self._exited: set[int] = set()
        self._op: Operation | None = None
        collective = [s.meaning.unit == WARP and not s.meaning.control for s in code.steps]
        machine.watched = collective

    def end(self, machine: Machine) -> None:
        self._now = self.clocks.now
        self._base += 1 << 22

    def stopped(self, error: ProgramError) -> None:
        """The program could not go on; its end becomes reports, the causes of a deadlock first."""
        diagnostic = error.diagnostics[0]
        for kind, message in error.also:
            self._report(kind, message, message, None, None, "")
        first = Access("fails", "", "", error.opcode, diagnostic.location, error.line) if error.opcode else None
        self._report(error.kind, diagnostic.message, diagnostic.message, first, None, diagnostic.hint or "")
        self.reports[-1].notes = tuple(diagnostic.notes)

    def before(self, machine: Machine, step: Any, sel: Selection) -> None:
        pass

    def after(self, machine: Machine, step: Any, sel: Selection) -> None:
        opcode = step.instrs[0].opcode
        if not self.strict or opcode.startswith("bar.warp"):
            self.clocks.meet_in_warps(sel.threads)

    # Memory

    def access(
        self,
        machine: Machine,
        kind: str,
        space: str,
        addresses: Array,
        size: int,
        threads: Threads,
        values: Array | None = None,
    ) -> None:
        if space == "param" or not addresses.size:
            return
        shadow: Any = self.shared if space == "shared" else self._global
        granule = shadow.granule
        base = addresses if addresses.ndim > 1 else addresses[None]
        if space == "global":
            base = base - shadow.first
            if int(base.min()) < 0 or int(base.max()) + size > shadow.count * granule:
                return  # out of bounds, which the machine is about to say
        granules = (base // granule).astype(np.intp)
        per = size // granule
        if not per:
            return  # a part of a granule: the tail of a cp.async
        if per > 1:
            granules = granules[None] + np.arange(per).reshape(-1, *[1] * granules.ndim)
        if self._op is None:
            rows = base.shape[0]
            time = self._event(machine, rows)
            times = (time + np.arange(rows))[:, None]
            if space == "shared":
                self._shared_access(kind, granules, times, threads, values, size)
            else:
                self._global_access(kind, granules, times, threads, values, size)
        else:
            self._async_access(kind, space, granules, threads)

    def _event(self, machine: Machine, rows: int) -> int:
        time = self.clocks.tick(rows)
        self._times.append(time)
        self._steps.append((machine.position, rows))
        return time

    def _shared_access(
        self, kind: str, granules: Array, times: Array, threads: Threads, values: Array | None, size: int
    ) -> None:
        s, clocks = self.shared, self.clocks
        least = clocks.least[clocks.row_of[threads]].astype(np.int64)
        limit = (least + 1) << AGENT_BITS
        record = s.written[granules]
        suspect = record >= limit
        if suspect.any():
            self._judge(kind, "shared", granules, threads, record, suspect, False, values)
        if kind == "load":
            empty = record == 0
            if empty.any():
                if s.atomic is not None:
                    empty &= s.atomic[granules] == 0
                if empty.any():
                    self._uninitialised(granules, threads, empty)
        if s.atomic is not None and kind != "atomic":
            late = s.last_atomic[granules] > least
            if late.any():
                self._against_masks(kind, s.updaters, granules, threads, late, least, "updates")
        if kind != "load":
            late = s.last_read[granules] > least
            if late.any():
                self._against_masks(kind, s.readers, granules, threads, late, least, "reads")
            for agent, read_times in s.async_readers.items():
                found = read_times[granules].astype(np.int64)
                if found.any():
                    record = np.where(found > 0, (found << AGENT_BITS) | ASYNC | agent, 0)
                    self._judge(kind, "shared", granules, threads, record, record > 0, True, None)
        if machine_remote(self.machine, granules, s.granule, threads):
            self._touch_remote(granules, threads, times)
        if kind == "load":
            s.mark(s.readers, s.last_read, threads, granules, times)
        elif kind == "atomic":
            assert s.atomic is not None
            s.atomic[granules] = (times << AGENT_BITS) | threads
            s.mark(s.updaters, s.last_atomic, threads, granules, times)
        else:
            new = np.broadcast_to((times << AGENT_BITS) | threads, granules.shape)
            s.written[granules] = new
            self._same_moment(s.written, granules, new, threads, "shared", values)

    def _global_access(
        self, kind: str, granules: Array, times: Array, threads: Threads, values: Array | None, size: int
    ) -> None:
        g, clocks = self._global, self.clocks
        assert g is not None
        width = clocks.width
        least = clocks.least[clocks.row_of[threads]].astype(np.int64)
        limit = (least + 1) << AGENT_BITS
        cluster = (threads + self._base) // width if not self._base else threads // width
        weak = not _strong(self._instr(0).opcode)

        def suspects(record: Array) -> Array:
            found = record != 0
            if found.any():
                agent = agent_of(record) - self._base
                found &= ~((record < limit) & (agent >= 0) & (agent // width == cluster)) & (agent != threads)
            return found

        record = g.written[granules]
        suspect = suspects(record)
        if suspect.any():
            self._judge(kind, "global", granules, threads, record, suspect, False, values)
        if kind != "atomic" and weak:
            record = g.atomic[granules]
            suspect = suspects(record)
            if suspect.any():
                self._judge(kind, "global", granules, threads, record, suspect, False, None, "updates")
        if kind != "load":
            for part in g.read:
                record = part[granules]
                suspect = suspects(record)
                if suspect.any():
                    self._judge(kind, "global", granules, threads, record, suspect, True, None)
        new = np.broadcast_to((times << AGENT_BITS) | (threads + self._base), granules.shape)
        if kind == "atomic" or not weak:
            g.atomic[granules] = new
        elif kind == "load":
            self._read_global(granules, new)
        else:
            g.written[granules] = new
            self._same_moment(g.written, granules, new, threads, "global", values)

    def _read_global(self, granules: Array, new: Array) -> None:
        """Enter reads into the two records of each granule; see shadow.py."""
        g, clocks = self._global, self.clocks
        assert g is not None
        first, second = g.read
        old = first[granules]
        keep = old != 0
        if keep.any():
            agent, now = agent_of(old) - self._base, agent_of(new) - self._base
            keep &= agent != now
            if keep.any():
                # A thread that knows the earlier read speaks for it; an asynchronous operation does not.
                index = np.nonzero(keep & (now < self.machine.thread_count))
                p, t, e = agent[index], now[index], time_of(old[index])
                keep[index] = ~self._knows(t, p, e, True)
        if keep.any():
            both = granules[keep]
            late, other = second[both], new[keep]
            width = clocks.width
            replace = (late == 0) | (agent_of(other) // width != agent_of(first[both]) // width)
            replace |= agent_of(late) // width == agent_of(first[both]) // width
            second[both[replace]] = other[replace]
            alone = ~keep
            first[granules[alone]] = new[alone]
        else:
            first[granules] = new

    def _knows(self, threads: Array, agents: Array, times: Array, read: bool) -> Array:
        """Clocks.knows for agents that may belong to an earlier machine (negative)."""
        present = agents >= 0
        if present.all():
            return self.clocks.knows(threads, agents, times, read)
        result = np.zeros(len(threads), bool)
        result[present] = self.clocks.knows(threads[present], agents[present], times[present], read)
        return result

    def _judge(
        self,
        kind: str,
        space: str,
        granules: Array,
        threads: Threads,
        record: Array,
        suspect: Array,
        read: bool,
        values: Array | None,
        verb: str = "",
    ) -> None:
        """Compare accesses of threads with the records of earlier ones, where `suspect`. `read`: the earlier ones were reads."""
        index = np.nonzero(suspect)
        found = record[index]
        who = threads[index[-1]]
        base = self._base if space == "global" else 0
        agents, times = agent_of(found) - base, time_of(found)
        bad = ~self._knows(who, agents, times, read)
        if not bad.any():
            return
        if not self.strict and values is not None and kind == "store" and not read:
            equal = self._same_values(space, granules, values, index)
            bad &= ~equal
            if not bad.any():
                return
        at = tuple(i[bad][:MAX_SHOWN] for i in index)
        self._conflict(
            kind,
            space,
            granules[at],
            at,
            who[bad][:MAX_SHOWN],
            agents[bad][:MAX_SHOWN],
            times[bad][:MAX_SHOWN],
            verb or ("reads" if read else "writes"),
        )

    def _same_values(self, space: str, granules: Array, values: Array, index: Any) -> Array:
        """Whether a store writes what is there already: rule equal-writes."""
        m = self.machine
        shadow: Any = self.shared if space == "shared" else self._global
        g = shadow.granule
        n, vector, count = values.shape
        full = np.broadcast_to(values, (n, vector, granules.shape[-1]))
        raw = np.ascontiguousarray(np.moveaxis(full, 1, 2)).view(np.uint8).reshape(n, granules.shape[-1], -1)
        raw = raw.reshape(n, granules.shape[-1], -1, g)  # [n, threads, granules of an access, bytes]
        if granules.ndim == 3:
            k, i, t = index
        else:
            i, t = index
            k = np.zeros_like(i)
        new = raw[np.broadcast_to(i, t.shape) if n > 1 else 0, t, k]
        places = granules[index]
        if space == "shared":
            old = m.shared.data[places[:, None] * g + np.arange(g)]
        else:
            old = np.stack([m.memory.bytes_at(int(p) * g + shadow.first, g) for p in places])
        return (old == new).all(1)

    def _against_masks(
        self, kind: str, masks: Array, granules: Array, threads: Threads, late: Array, least: Array, verb: str
    ) -> None:
        """Compare writes with the reads (or atomics) of all warps."""
        s, clocks = self.shared, self.clocks
        index = np.nonzero(late)
        where, who = granules[index], threads[index[-1]]
        entry, slot, mask, time = s.entries(masks, where, least[index[-1]])
        if not len(entry):
            return
        t = who[entry]
        first = t // clocks.width * clocks.width + slot
        lanes = np.arange(WARP)
        present = (mask[:, None] >> lanes) & 1 == 1
        e, lane = np.nonzero(present)
        known = clocks.knows(t[e], first[e] + lane, time[e], verb == "reads")
        if known.all():
            return
        e, lane = e[~known][:MAX_SHOWN], lane[~known][:MAX_SHOWN]
        at = tuple(i[entry[e]] for i in index)
        self._conflict(kind, "shared", where[entry[e]], at, t[e], first[e] + lane, time[e], verb)

    def _same_moment(
        self, written: Array, granules: Array, new: Array, threads: Threads, space: str, values: Array | None
    ) -> None:
        """Stores of one step that met at a granule."""
        left = written[granules]
        lost = agent_of(left) != agent_of(new)
        if not lost.any():
            return
        index = np.nonzero(lost)
        bad = np.ones(len(index[0]), bool)
        if values is not None and not self.strict:
            # The machine has not stored yet: compare with the value of the thread that comes last.
            bad &= ~self._equal_to_last(granules, values, index, written, space)
        if not bad.any():
            return
        at = tuple(i[bad][:MAX_SHOWN] for i in index)
        base = self._base if space == "global" else 0
        other = left[at]
        self._conflict(
            "store", space, granules[at], at, threads[at[-1]], agent_of(other) - base, time_of(other), "writes"
        )

    def _equal_to_last(self, granules: Array, values: Array, index: Any, written: Array, space: str) -> Array:
        shadow: Any = self.shared if space == "shared" else self._global
        g = shadow.granule
        n, vector, _ = values.shape
        count = granules.shape[-1]
        full = np.broadcast_to(values, (n, vector, count))
        raw = np.ascontiguousarray(np.moveaxis(full, 1, 2)).view(np.uint8).reshape(n, count, -1, g)
        raw = np.moveaxis(raw, 2, 0)  # [granules of an access, n, threads, bytes]
        flat = np.broadcast_to(raw, (granules.shape[0] if granules.ndim == 3 else 1, *raw.shape[1:])).reshape(-1, g)
        order = granules.reshape(-1)
        last = {}
        wanted = np.isin(order, granules[index])
        for at in np.nonzero(wanted)[0].tolist():
            last[int(order[at])] = at
        shape = granules.shape
        return np.array(
            [(flat[np.ravel_multi_index(i, shape)] == flat[last[int(granules[i])]]).all() for i in zip(*index)], bool
        )

    def _uninitialised(self, granules: Array, threads: Threads, empty: Array) -> None:
        index = np.nonzero(empty)
        row = int(index[-2][0]) if len(index) > 1 else 0
        who = threads[index[-1]]
        first = self._access("reads", row, who, granules[index], "shared")
        self._report(
            UNINITIALISED,
            (self.machine.position, row),
            f"{first.who} {first.verb} {first.where}, which nobody has written",
            first,
            None,
            "",
            len(who),
        )

    # Asynchronous operations

    def issued(self, machine: Machine, operation: Operation) -> None:
        clocks = self.clocks
        time = self._event(machine, 1)
        owners = operation.owners
        piece: dict[int, int] = {}
        rows: list[Array] = []
        if isinstance(operation, CopiesArrive):
            operation.note = _Note(time, np.zeros((0, 0), np.int32), piece)
            return
        if isinstance(operation, WarpgroupMma):
            for k, group in enumerate(owners.tolist()):
                warps = [np.arange(w, w + WARP) for w in range(group * 4 * WARP, (group + 1) * 4 * WARP, WARP)]
                known = [clocks.publish(warp, time, tell=False) for warp in warps]
                rows.append(np.minimum.reduce(known))
                piece[group * 4 * WARP] = k
        elif isinstance(operation, ThreadCopy):
            # What a thread did itself it knows without its row.
            clocks.settle(np.unique(owners // WARP))
            distinct, inverse = np.unique(clocks.row_of[owners], return_inverse=True)
            rows = list(clocks.rows[distinct])
            operation.note = _Note(time, np.array(rows), dict(zip(owners.tolist(), inverse.tolist())))
            return
        else:
            for k, thread in enumerate(owners.tolist()):
                rows.append(clocks.publish(np.array([thread]), time, tell=False))
                piece[thread] = k
        operation.note = _Note(time, np.array(rows), piece)

    def working(self, machine: Machine, operation: Operation | None) -> None:
        self._op = operation

    def _async_access(self, kind: str, space: str, granules: Array, threads: Threads) -> None:
        op = self._op
        assert op is not None
        note: _Note = op.note
        clocks, m = self.clocks, self.machine
        count = m.thread_count
        copy = isinstance(op, ThreadCopy)
        flat = granules.reshape(-1, granules.shape[-1])
        for column, thread in enumerate(threads.tolist()) if not copy else ():
            where = np.unique(flat[:, column])
            cluster = thread // clocks.width
            if isinstance(op, WarpgroupMma):
                agent, time = clocks.agent(WGMMA, thread // (4 * WARP), cluster), note.time
            elif op.groups[note.piece[thread]] == NO_GROUP:
                assert isinstance(op, BulkOperation)
                barrier = m.pending.signalled if kind != "async load" else op.barriers[note.piece[thread]]
                agent, time = clocks.agent(MBARRIER, barrier, cluster), self._event(m, 1)
            else:
                agent, time = (
                    clocks.agent(BULK_READ if kind == "async load" else BULK_WRITE, thread, cluster),
                    note.time,
                )
            self._async_check(kind, space, where, thread, note.rows[note.piece[thread]], agent, time, "F", "D")
        if copy:
            pieces = np.array([note.piece[t] for t in threads.tolist()])
            for k in np.unique(pieces):
                mine = np.nonzero(pieces == k)[0]
                self._copy_check(kind, space, flat[:, mine], threads[mine], note, int(k), count)

    def _async_check(
        self,
        kind: str,
        space: str,
        where: Array,
        thread: int,
        row: Array,
        agent: int,
        time: int,
        segment: str,
        copies: str,
    ) -> None:
        clocks = self.clocks
        shadow: Any = self.shared if space == "shared" else self._global
        base = self._base if space == "global" else 0
        cluster = thread // clocks.width

        def check(record: Array, verb: str, seg: str, cop: str) -> None:
            present = np.nonzero(record)[0]
            if not len(present):
                return
            agents, times = agent_of(record[present]) - base, time_of(record[present])
            bad = ~clocks.row_knows(row, cluster, agents, times, seg, cop) & (agents != agent)
            if bad.any():
                at = present[bad]
                fenced = bool(clocks.row_knows(row, cluster, agents[bad], times[bad], "G", "C").all()) and seg != "G"
                self._async_conflict(kind, space, where[at], thread, agent, agents[bad], times[bad], verb, fenced)

        segment = segment if space == "shared" else "G"
        copies = copies if space == "shared" else "C"
        check(shadow.written[where], "writes", segment, copies)
        if kind != "async atomic" and shadow.atomic is not None:
            check(shadow.atomic[where], "updates", segment, copies)
        reads = segment if self.strict else "R"
        if kind != "async load":
            if space == "shared":
                entry, slot, mask, when = self.shared.entries(
                    self.shared.readers, where, np.zeros(len(where), np.int64)
                )
                if len(entry):
                    e, lane = np.nonzero((mask[:, None] >> np.arange(WARP)) & 1 == 1)
                    p = cluster * clocks.width + slot[e] + lane
                    bad = ~clocks.row_knows(row, cluster, p, when[e], reads, copies)
                    if bad.any():
                        self._async_conflict(
                            kind, space, where[entry[e[bad]]], thread, agent, p[bad], when[e[bad]], "reads", False
                        )
                for reader, times in self.shared.async_readers.items():
                    found = times[where].astype(np.int64)
                    check(np.where(found > 0, (found << AGENT_BITS) | reader, 0), "reads", segment, copies)
            else:
                for part in shadow.read:
                    check(part[where], "reads", "R", copies)
        record = (time << AGENT_BITS) | ASYNC | (agent + base)
        if kind == "async load":
            if space == "shared":
                self.shared.mark_async(agent, where, time)
            else:
                self._read_global(where[None], np.full((1, len(where)), record))
        elif kind == "async atomic":
            shadow.atomic[where] = record
        else:
            shadow.written[where] = record
        if space == "shared":
            self._touch(where, agent, time)

    def _copy_check(
        self, kind: str, space: str, granules: Array, threads: Threads, note: _Note, piece: int, count: int
    ) -> None:
        """cp.async by threads whose rows were the same."""
        clocks = self.clocks
        shadow: Any = self.shared if space == "shared" else self._global
        base = self._base if space == "global" else 0
        row = note.rows[piece]
        who = np.broadcast_to(threads, granules.shape).reshape(-1)
        where = granules.reshape(-1)
        cluster = int(threads[0]) // clocks.width

        def check(record: Array, index: Array, verb: str, segment: str) -> None:
            present = np.nonzero(record)[0]
            if not len(present):
                return
            agents, times, t = agent_of(record[present]) - base, time_of(record[present]), who[index[present]]
            bad = ~clocks.row_knows(row, cluster, agents, times, segment, "C")
            bad &= ~((agents == t) & (times <= note.time)) & (agents != t + count)
            if bad.any():
                at = index[present][bad]
                self._async_conflict(
                    kind, space, where[at], int(t[bad][0]), int(t[bad][0]) + count, agents[bad], times[bad], verb, False
                )

        every = np.arange(len(where))
        check(shadow.written[where], every, "writes", "G")
        if shadow.atomic is not None:
            check(shadow.atomic[where], every, "updates", "G")
        record = (note.time << AGENT_BITS) | ASYNC | (who + count + base)
        if kind == "async load":
            if space == "global":
                self._read_global(where[None], record[None])
            return
        entry, slot, mask, when = self.shared.entries(self.shared.readers, where, np.zeros(len(where), np.int64))
        if len(entry):
            e, lane = np.nonzero((mask[:, None] >> np.arange(WARP)) & 1 == 1)
            p = cluster * clocks.width + slot[e] + lane
            check((when[e] << AGENT_BITS) | p, entry[e], "reads", "R")
        for reader, times in self.shared.async_readers.items():
            found = times[where].astype(np.int64)
            check(np.where(found > 0, (found << AGENT_BITS) | reader, 0), every, "reads", "R")
        shadow.written[where] = record

    def committed(self, machine: Machine, kind: str, owners: Threads) -> None:
        clocks = self.clocks
        time = clocks.tick()
        if kind == "cp.async":
            commits = clocks.copy_commits
            commits[1:, owners] = commits[:-1, owners]
            commits[0, owners] = time
            return
        for owner in owners.tolist():
            clocks.commits.setdefault((kind, owner), []).append(time)

    def waited(self, machine: Machine, kind: str, owners: Threads, newest: int, read: bool) -> None:
        clocks = self.clocks
        if kind == "cp.async":
            clocks.settle(np.unique(owners // WARP))
            clocks.copied[owners] = np.maximum(clocks.copied[owners], clocks.copy_commits[newest, owners])
            return
        a = clocks.agents
        names = (WGMMA,) if kind == "wgmma" else (BULK_READ,) if read else (BULK_READ, BULK_WRITE)
        for owner in owners.tolist():
            commits = clocks.commits.get((kind, owner), [])
            if len(commits) <= newest:
                continue
            time = commits[-1 - newest]
            for name in names:
                k = a.index.get((name, owner))
                if k is not None:
                    a.done[k] = max(a.done[k], time)

    # Fences and barriers

    def sync(self, machine: Machine, instr: Instr, threads: Threads) -> None:
        clocks = self.clocks
        words = instr.opcode.split(".")
        if words[0] == "wgmma":
            return
        clocks.settle(np.unique(threads // WARP))
        time = clocks.tick()
        if "proxy" in words and "async" in words:
            place_ = words[words.index("async") + 1 :]
            if not place_ or place_[0].startswith("shared"):
                clocks.fenced[threads] = time
                clocks.copied_fenced[threads] = clocks.copied[threads]
            if not place_ or place_[0] == "global":
                clocks.fenced_global[threads] = time
            clocks.init_fenced[threads] = time
        elif "mbarrier_init" in words or "proxy" not in words:
            clocks.init_fenced[threads] = time

    def blocks_sync(self, machine: Machine, sel: Selection) -> None:
        clocks = self.clocks
        time = clocks.tick()
        blocks, counts = sel.blocks
        if (counts == machine.block_threads).all() and clocks.whole_blocks(blocks, time):
            return
        threads = sel.threads
        for block in blocks:
            clocks.meet(threads[threads // machine.block_stride == block], time)

    def barrier_arrive(self, machine: Machine, block: int, number: int, threads: Threads) -> None:
        row = self.clocks.publish(threads, self.clocks.tick())
        self._named[block, number] = joined(self._named.get((block, number)), row)

    def barrier_complete(self, machine: Machine, block: int, number: int, waiting: Sequence[Selection]) -> None:
        row = self._named.pop((block, number))
        for sel in waiting:
            self.clocks.acquire(sel.threads, row)

    def cluster_arrive(self, machine: Machine, sel: Selection, relaxed: bool) -> None:
        clocks = self.clocks
        time = clocks.tick()
        clusters = sel.threads // clocks.width
        for cluster in np.unique(clusters).tolist():
            row = clocks.publish(sel.threads[clusters == cluster], time)
            if relaxed:
                self._reads_only(row)
            self._cluster[cluster] = joined(self._cluster.get(cluster), row)

    def _reads_only(self, row: Array) -> None:
        """Takes from a row what is known of generic writes."""
        width, at = self.clocks.width, self.clocks.at
        for name in "GFCD":
            row[at[name] : at[name] + width] = 0

    def cluster_complete(self, machine: Machine, cluster: int) -> None:
        self._cluster_done[cluster] = self._cluster.pop(cluster)

    def cluster_pass(self, machine: Machine, sel: Selection) -> None:
        clusters = sel.threads // self.clocks.width
        for cluster in np.unique(clusters).tolist():
            self.clocks.acquire(sel.threads[clusters == cluster], self._cluster_done[cluster])

    def mbarrier_init(self, machine: Machine, flat: Array, threads: Threads) -> None:
        granules = self._word(flat)
        time = self._event(machine, 1)
        self._shared_access("store", granules, np.array([[time]]), threads, None, 8)
        for barrier in flat.tolist():
            self._phases[barrier] = _Phases()

    def _word(self, flat: Array) -> Array:
        granule = self.shared.granule
        return flat[None] // granule + np.arange(max(1, 8 // granule))[:, None]

    def mbarrier_touch(self, machine: Machine, flat: Array, threads: Threads) -> None:
        where = flat // self.shared.granule
        record = self.shared.written[where]
        clocks = self.clocks
        limit = (clocks.least[clocks.row_of[threads]].astype(np.int64) + 1) << AGENT_BITS
        suspect = record >= limit
        if machine_remote(machine, where[None], self.shared.granule, threads):
            time = self._event(machine, 1)
            self._touch_remote(where[None], threads, np.array([[time]]))
        if not suspect.any():
            return
        index = np.nonzero(suspect)[0]
        agents, times, who = agent_of(record[index]), time_of(record[index]), threads[index]
        bad = ~clocks.knows(who, agents, times)
        if bad.any() and (agents < machine.thread_count).all():
            # An initialisation that its fence has published.
            rows = clocks.rows[clocks.row_of[who]]
            bad &= rows[np.arange(len(who)), agents % clocks.width + clocks.at["I"]] < times
        if bad.any():
            at = (np.zeros(int(bad.sum()), np.intp), index[bad])
            self._event(machine, 1)
            self._conflict(
                "mbarrier", "shared", where[index[bad]], at, who[bad], agents[bad], times[bad], "initialises"
            )

    def mbarrier_arrive(self, machine: Machine, flat: Array, threads: Threads) -> None:
        clocks = self.clocks
        if self._op is not None:
            self._async_arrive(machine, flat, self._op)
            return
        opcode = self._instr(0).opcode
        if ".relaxed" in opcode:
            return
        time = clocks.tick()
        for barrier in np.unique(flat).tolist():
            who = threads[flat == barrier]
            phases = self._phases.get(barrier)
            if phases is None:
                continue
            block = barrier // machine.shared.stride
            for cluster_threads in _by(who, who // machine.block_stride):
                row = clocks.publish(cluster_threads, time)
                remote = int(cluster_threads[0]) // machine.block_stride != block
                if remote and ".cluster" not in opcode.replace("shared::cluster", "").replace("multicast::cluster", ""):
                    if self.strict:
                        continue
                    self._reads_only(row)
                phases.current = joined(phases.current, row)

    def _async_arrive(self, machine: Machine, flat: Array, op: Operation) -> None:
        clocks = self.clocks
        time = clocks.tick()
        if isinstance(op, CopiesArrive):
            for barrier in np.unique(flat).tolist():
                phases = self._phases.get(barrier)
                if phases is None:
                    continue
                owners = op.owners[np.isin(op.places, [barrier])]
                row = np.zeros(clocks.fixed, np.int32)
                row[owners % clocks.width + clocks.at["C"]] = op.note.time
                phases.current = joined(phases.current, row)
            return
        for barrier in flat.tolist():
            phases = self._phases.get(barrier)
            if phases is None:
                continue
            cluster = barrier // machine.shared.stride // machine.cluster_size
            agent = clocks.agent(MBARRIER, barrier, cluster)
            column = clocks.column(agent)
            row = np.zeros(clocks.fixed + clocks.room, np.int32)
            row[column] = time
            phases.current = joined(phases.current, row)

    def mbarrier_phase(self, machine: Machine, flat: Array) -> None:
        for barrier in flat.tolist():
            phases = self._phases.get(barrier)
            if phases is not None:
                phases.done[phases.parity] = phases.current
                phases.current = None
                phases.parity ^= 1
                phases.count += 1

    def mbarrier_pass(self, machine: Machine, flat: Array, parity: Array, threads: Threads) -> None:
        opcode = self._instr(0).opcode
        if ".relaxed" in opcode:
            return
        for barrier in np.unique(flat).tolist():
            phases = self._phases.get(barrier)
            if phases is None:
                continue
            mine = flat == barrier
            for p in np.unique(parity[mine]).tolist():
                row = phases.done[int(p)]
                if row is not None:
                    who = threads[mine & (parity == p)]
                    self.clocks.acquire(who, row)

    # Exit

    def exit(self, machine: Machine, sel: Selection) -> None:
        if not self._touched and machine.cluster_size == 1:
            return
        clocks = self.clocks
        time = clocks.tick()
        blocks, counts = sel.blocks
        for block, count in zip(blocks.tolist(), counts.tolist()):
            base = block * machine.block_stride
            threads = sel.threads[sel.threads // machine.block_stride == block]
            self._exit_rows[block] = joined(self._exit_rows.get(block), clocks.publish(threads, time))
            if int(machine.alive[base : base + machine.block_stride].sum()) == count:
                self._exited.add(block)
                self._check_exit(machine, block, threads)

    def _check_exit(self, machine: Machine, block: int, threads: Threads) -> None:
        clocks = self.clocks
        touched = self._touched.get(block, {})
        agents = np.array([a for a in touched if not self._ends_by_itself(a)], np.int64)
        if not len(agents):
            return
        times = np.array([touched[int(a)] for a in agents], np.int64)
        bad = ~clocks.row_knows(self._exit_rows[block], block // machine.cluster_size, agents, times, "R", "C")
        for agent, time in zip(agents[bad].tolist(), times[bad].tolist()):
            self._exit_report(machine, block, agent, time, threads)

    def _ends_by_itself(self, agent: int) -> bool:
        a = self.clocks.agents
        return agent >= a.first and a.kinds[agent - a.first] == WGMMA

    def _exit_report(self, machine: Machine, block: int, agent: int, time: int, threads: Threads) -> None:
        position, row = self._locate(time)
        other = self._access_at(
            position, row, "touches", self._agent_text(agent), f"shared memory of block {machine.block_id(block)}"
        )
        instr = machine.code.steps[machine.position].instrs[0]
        location, _ = place(machine.code.program, instr)
        first = Access("ends", f"block {machine.block_id(block)}", "", instr.opcode, location, instr.line)
        remote = agent < machine.thread_count
        self._report(
            EXIT if remote or machine.cluster_size > 1 else MISSING_WAIT,
            (machine.position, position),
            f"block {machine.block_id(block)} ends, but nothing orders that after {other.who} touched its shared memory",
            first,
            other,
            "let all blocks of the cluster meet at barrier.cluster (arrive, then wait) before they end"
            if remote
            else "wait for the operation before the block ends",
        )

    def _touch(self, granules: Array, agent: int, time: int) -> None:
        """An asynchronous operation touches shared memory."""
        blocks = np.unique(granules * self.shared.granule // self.machine.shared.stride)
        for block in blocks.tolist():
            if block in self._exited:
                self._exit_report(self.machine, block, agent, time, np.zeros(0, np.intp))
            self._touched.setdefault(block, {})[agent] = time

    def _touch_remote(self, granules: Array, threads: Threads, times: Array) -> None:
        m = self.machine
        blocks = granules * self.shared.granule // m.shared.stride
        remote = blocks != threads // m.block_stride
        for block in np.unique(blocks[remote]).tolist():
            who = np.unique(np.broadcast_to(threads, blocks.shape)[remote & (blocks == block)])
            time = int(times.reshape(-1)[-1])
            touched = self._touched.setdefault(block, {})
            touched.update(dict.fromkeys(who.tolist(), time))
            if block in self._exited:
                self._exit_report(m, block, int(who[0]), time, who)

    # Words

    def _instr(self, row: int) -> Instr:
        instrs = self.machine.code.steps[self.machine.position].instrs
        return instrs[min(row, len(instrs) - 1)]

    def _locate(self, time: int) -> tuple[int, int]:
        """(position, instruction within the step) of the access at a time."""
        at = bisect_right(self._times, time) - 1
        position, rows = self._steps[at]
        return position, min(time - self._times[at], rows - 1)

    def _access_at(self, position: int, row: int, verb: str, who: str, where: str) -> Access:
        instrs = self.machine.code.steps[position].instrs
        instr = instrs[min(row, len(instrs) - 1)]
        location, _ = place(self.machine.code.program, instr)
        return Access(verb, who, where, instr.opcode, location, instr.line)

    def _access(self, verb: str, row: int, threads: Threads, granules: Array, space: str) -> Access:
        return self._access_at(
            self.machine.position, row, verb, self._threads_text(threads), self._where(granules, space)
        )

    def _threads_text(self, threads: Threads) -> str:
        m = self.machine
        first = int(threads[0])
        block = first // m.block_stride
        mine = np.unique(threads[threads // m.block_stride == block]) % m.block_stride
        warps = np.unique(mine // WARP)
        named = f"warp {warps[0]}" if len(warps) == 1 else f"warps {_ranges(warps)}"
        noun = "thread" if len(mine) == 1 else "threads"
        return f"{named} ({noun} {_ranges(mine)}) of block {m.block_id(block)}"

    def _agent_text(self, agent: int) -> str:
        m = self.machine
        if agent < 0:
            return "a thread of an earlier block"
        if agent < m.thread_count:
            return self._threads_text(np.array([agent]))
        if agent < 2 * m.thread_count:
            return f"the cp.async of {self._threads_text(np.array([agent - m.thread_count]))}"
        a = self.clocks.agents
        k = agent - a.first
        kind, key = a.kinds[k], a.keys[k]
        if kind == MBARRIER:
            return f"the copy that signals the mbarrier {self._where(np.array([key // self.shared.granule]), 'shared', False)}"
        if kind == WGMMA:
            return f"the wgmma of {self._threads_text(np.arange(key * 4 * WARP, (key + 1) * 4 * WARP))}"
        return f"the bulk copy of {self._threads_text(np.array([key]))}"

    def _where(self, granules: Array, space: str, span: bool = True) -> str:
        """Addresses in words."""
        if space == "global":
            g = self._global
            assert g is not None
            low = int(granules.min()) * g.granule + g.first
            found = self.machine.memory.find(low)
            if found is None:
                return f"global 0x{low:x}"
            high = min(int(granules.max()) * g.granule + g.first, found.end - g.granule)
            return f"{found.label} bytes {low - found.address}..{high - found.address + g.granule - 1}"
        size = self.shared.granule
        stride = self.machine.shared.stride
        low = int(granules.min()) * size
        block = low // stride
        mine = granules[granules * size // stride == block]
        low, high = low % stride, int(mine.max()) * size % stride + size - 1
        name, base = "shared", 0
        for variable, at in self.machine.code.shared_offsets.items():
            if base <= at <= low:
                name, base = variable, at
        text = f"{name}+{low - base}..{high - base}" if span else f"{name}+{low - base}"
        return text if self.machine.cluster_size == 1 else f"{text} of block {self.machine.block_id(block)}"

    # Findings

    def _conflict(
        self, kind: str, space: str, granules: Array, at: Any, threads: Threads, agents: Array, times: Array, verb: str
    ) -> None:
        """Accesses of threads (now) with earlier ones that they do not know."""
        mine = {"load": "reads", "store": "writes", "atomic": "updates", "mbarrier": "uses the mbarrier at"}[kind]
        rows = at[-2] if len(at) > 1 else np.zeros(len(threads), np.intp)
        places = [self._locate(int(t)) for t in times]
        groups: dict[Any, list[int]] = {}
        for i, where in enumerate(places):
            groups.setdefault((where, int(rows[i])), []).append(i)
        for (where, row), chosen in groups.items():
            index = np.array(chosen)
            agent = int(agents[index[0]])
            # One warp and one other warp make the example.
            index = index[
                (threads[index] // WARP == threads[index[0]] // WARP) & (agents[index] // WARP == agent // WARP)
            ]
            first = self._access(mine, row, threads[index], granules[index], space)
            text = (
                self._agent_text(agent)
                if not 0 <= agent < self.machine.thread_count
                else self._threads_text(agents[index])
            )
            second = self._access_at(*where, verb, text, self._where(granules[index], space))
            what, missing = self._missing(agent, int(times[index[0]]), int(threads[index[0]]), space)
            done = {"reads": "read", "writes": "wrote", "updates": "updated", "initialises": "initialised"}[verb]
            self._report(
                what,
                (self.machine.position, row, where, verb),
                f"{first.who} {mine} {first.where}; {text} {done} it, and {missing}",
                first,
                second,
                "",
                len(chosen),
            )

    def _missing(self, agent: int, time: int, thread: int, space: str) -> tuple[str, str]:
        """(kind, the missing order in words) for a thread that comes after an agent's access."""
        m = self.machine
        warp = f"warp {thread % m.block_stride // WARP}"
        if agent < m.thread_count:
            return RACE, f"nothing orders that before what {warp} does"
        if agent < 2 * m.thread_count:
            owner = agent - m.thread_count
            if owner == thread:
                return MISSING_WAIT, f"{warp} has not waited for it with cp.async.wait_group"
            return MISSING_WAIT if self.clocks.copied[owner] < time else RACE, (
                f"{warp} does not know it to be complete: its thread must wait for it, and a barrier must follow"
            )
        a = self.clocks.agents
        kind, key = a.kinds[agent - a.first], a.keys[agent - a.first]
        if kind == MBARRIER:
            phases = self._phases.get(key)
            phase = phases.parity if phases is not None else 0
            name = self._where(np.array([key // self.shared.granule]), "shared", False)
            return (
                MISSING_WAIT,
                f"{warp} has not waited for the phase of mbarrier {name} in which it completes (parity now {phase})",
            )
        if kind == WGMMA:
            if thread // (4 * WARP) == key:
                return MISSING_WAIT, f"{warp} has not waited for it with wgmma.wait_group"
            return RACE, f"nothing orders its completion before what {warp} does"
        wait = "cp.async.bulk.wait_group.read" if kind == BULK_READ else "cp.async.bulk.wait_group"
        if key == thread:
            return MISSING_WAIT, f"{warp} has not waited for it with {wait}"
        return (
            MISSING_WAIT,
            f"{warp} does not know it to be complete: its thread must wait with {wait}, and a barrier must follow",
        )

    def _async_conflict(
        self,
        kind: str,
        space: str,
        granules: Array,
        thread: int,
        agent: int,
        agents: Array,
        times: Array,
        verb: str,
        fence: bool,
    ) -> None:
        """An asynchronous operation with earlier accesses that its issuer did not know when it issued it."""
        m = self.machine
        mine = {"async load": "reads", "async store": "writes", "async atomic": "updates"}[kind]
        done = {"reads": "read", "writes": "wrote", "updates": "updated"}[verb]
        position = m.position
        groups: dict[Any, list[int]] = {}
        for i, time in enumerate(times[:MAX_SHOWN].tolist()):
            groups.setdefault(self._locate(time), []).append(i)
        for where, chosen in groups.items():
            index = np.array(chosen)
            who = self._agent_text(agent)
            first = self._access_at(
                position,
                0,
                mine,
                f"{who}, issued by {self._threads_text(np.array([thread]))},",
                self._where(granules[index], space),
            )
            other = int(agents[index[0]])
            text = self._agent_text(other) if not 0 <= other < m.thread_count else self._threads_text(agents[index])
            second = self._access_at(*where, verb, text, self._where(granules[index], space))
            if fence:
                what, missing = (
                    MISSING_PROXY_FENCE,
                    "no fence.proxy.async of the writer comes between, so that the async proxy may not see it",
                )
            elif other >= m.thread_count and not isinstance(self._op, ThreadCopy):
                what = self._missing(other, int(times[index[0]]), thread, space)[0]
                missing = "its completion was not waited for before the operation was issued"
            else:
                issued = int(times[index[0]]) > self._op.note.time if self._op is not None else False
                what = (
                    MISSING_WAIT
                    if issued and 0 <= other < m.thread_count and other // m.block_stride == thread // m.block_stride
                    else RACE
                )
                missing = (
                    "the operation was not known to be complete"
                    if issued
                    else "nothing orders that before the operation was issued"
                )
            self._report(
                what,
                (position, 0, where, verb),
                f"{first.who} {mine} {first.where}; {text} {done} it, and {missing}",
                first,
                second,
                "",
                len(index),
            )

    def _report(
        self,
        kind: str,
        key: Any,
        message: str,
        first: Access | None,
        second: Access | None,
        missing: str,
        count: int = 1,
    ) -> None:
        found = self._index.get((kind, key))
        if found is not None:
            found.count += count
            return
        report = Report(kind, message, first, second, missing, count)
        self._index[kind, key] = report
        self.reports.append(report)


def judge(
    program: Program | str,
    *args: Any,
    seed: int | None = None,
    policy: str | None = None,
    strict_isa: bool = False,
    **options: Any,
) -> list[Report]:
    """Runs a program once, as `launch` does with the same arguments, and gives what was found. Raises TeselaError only for a launch that does not fit the
    kernel and for text that is no PTX."""
    from .launcher import launch

    watcher = Judge(strict_isa)
    try:
        launch(program, *args, seed=seed, policy=policy, observer=watcher, **options)
    except ProgramError as error:
        watcher.stopped(error)
    return watcher.reports


def machine_remote(m: Machine, granules: Array, granule: int, threads: Threads) -> bool:
    """Whether an access reaches another block of the cluster."""
    return m.cluster_size > 1 and bool((granules * granule // m.shared.stride != threads // m.block_stride).any())


def _by(values: Array, keys: Array) -> list[Array]:
    return [values[keys == key] for key in np.unique(keys)]


def _ranges(numbers: Array) -> str:
    breaks = np.nonzero(np.diff(numbers) != 1)[0] + 1
    runs = [(int(r[0]), int(r[-1])) for r in np.split(numbers, breaks)]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:6]) + (", …" if len(runs) > 6 else "")


def _strong(opcode: str) -> bool:
    """Whether an access is one that does not race with other such: volatile, relaxed, acquire, release (PTX ISA 9.0 §8.2.2)."""
    words = opcode.split(".")
    return any(w in ("volatile", "relaxed", "acquire", "release", "mmio") for w in words)


def _granules(instrs: Sequence[Instr]) -> tuple[int, int, bool]:
    """(granule of shared memory, of global memory, whether shared memory is updated atomically) of a program."""
    shared, everywhere, atomics = 16, 16, False
    for instr in instrs:
        words = instr.opcode.split(".")
        if words[0] == "mbarrier":
            shared = min(shared, 8)
        if words[0] not in ("ld", "st", "atom", "red", "cp"):
            continue
        vector = next((int(w[1]) for w in words if w in ("v2", "v4")), 1)
        size = TYPE_SIZE.get(words[-1], 1) * vector
        if words[0] == "cp":
            size = 16
            if words[1:3] in (["async", "ca"], ["async", "cg"]):
                size = next((int(op.bits) for op in instr.operands[2:3] if isinstance(op, Imm)), 4)
                if len(instr.operands) > 3:
                    everywhere = min(everywhere, 2)  # a register may ask for less of the source
            if "tensor" in words:
                everywhere = 1
        generic = not any(w.startswith(("shared", "global", "param")) for w in words)
        if generic or any(w.startswith("shared") for w in words):
            shared = min(shared, size)
            atomics = atomics or words[0] in ("atom", "red")
        if generic or "global" in words:
            everywhere = min(everywhere, size)
    return shared, everywhere, atomics
