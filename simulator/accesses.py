"""Memory accesses judged: each against what was done to the same granules before, by `shadow.py`, as far as its
thread knows, by `clocks.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .asynchrony import NO_GROUP
from .clocks import BULK_READ, BULK_WRITE, MBARRIER, WGMMA, Clocks
from .copies import BulkOperation, CopiesArrive, ThreadCopy
from .findings import MAX_SHOWN, Findings
from .matrix_ops import WarpgroupMma
from .order import Order
from .selection import WARP
from .shadow import AGENT_BITS, ASYNC, GlobalShadow, SharedShadow, agent_of, time_of

if TYPE_CHECKING:
    from .asynchrony import Operation
    from .machine import Machine

Array = NDArray[Any]
Threads = NDArray[np.intp]

_LANES = np.arange(WARP)


class Note:
    """What the judge keeps with an asynchronous operation: its time of issue, and what its issuers knew then, as
    `rows`; `piece` gives the row of an owner's (first) thread."""

    def __init__(self, time: int, rows: Array, piece: dict[int, int]):
        self.time, self.rows, self.piece = time, rows, piece


class Accesses:
    """Judges the accesses of one machine. `base`: what agents' numbers are raised by in the global shadow, which
    outlives the machine."""

    def __init__(
        self,
        machine: Machine,
        clocks: Clocks,
        findings: Findings,
        shared: SharedShadow,
        everywhere: GlobalShadow,
        order: Order,
        base: int,
    ):
        self.machine, self.clocks, self.findings, self.order = machine, clocks, findings, order
        self.shared, self.everywhere, self.base, self.strict = shared, everywhere, base, order.strict
        self.touched: dict[int, dict[int, int]] = {}
        """Per block: when agents that are not its threads last touched its shared memory."""
        self.exited: set[int] = set()

    def access(
        self, op: Operation | None, kind: str, space: str, addresses: Array, size: int, threads: Threads, values: Any
    ) -> None:
        """See Observer.access. `op`: the asynchronous operation at work."""
        shadow: Any = self.shared if space == "shared" else self.everywhere
        granule = shadow.granule
        base = addresses if addresses.ndim > 1 else addresses[None]
        if space == "global":
            base = base - shadow.first
            if int(base.min()) < 0 or int(base.max()) + size > shadow.count * granule:
                return  # out of bounds, which the machine is about to say
        per = size // granule
        if not per and isinstance(op, ThreadCopy):
            return  # a part of a granule: the tail of a cp.async
        granules = (base // granule).astype(np.intp)
        if per > 1:
            granules = granules[None] + np.arange(per).reshape(-1, *[1] * granules.ndim)
        if op is not None:
            self._async(op, kind, space, granules, threads)
            return
        times = (self.findings.event(len(base)) + np.arange(len(base)))[:, None]
        strong = kind == "atomic" or is_strong(self.findings.instr().opcode)
        if space == "shared":
            self.shared_access(kind, granules, times, threads, values, strong)
        else:
            self._global_access(kind, granules, times, threads, values, strong)
        if strong and self.order.synchronises:
            for row in np.broadcast_to(addresses, (len(base), len(threads))):
                self.order.strong(kind, row, threads)

    # Threads

    def shared_access(
        self, kind: str, granules: Array, times: Array, threads: Threads, values: Array | None, strong: bool
    ) -> None:
        """Threads [t] access granules [(k,) n, t] at times [n, 1]. Strong accesses do not race with each other."""
        s, clocks = self.shared, self.clocks
        least = clocks.least[clocks.row_of[threads]].astype(np.int64)
        record = s.written[granules]
        suspect = record >= (least + 1) << AGENT_BITS
        if suspect.any():
            self._judge(kind, "shared", granules, threads, record, suspect, "writes", values)
        if kind == "load":
            empty = record == 0
            if empty.any():
                if s.atomic is not None:
                    empty &= s.atomic[granules] == 0
                if empty.any():
                    index = np.nonzero(empty)
                    who = threads[index[-1]]
                    self.findings.uninitialised(
                        granules, index, self.findings.threads(who[who // WARP == who[0] // WARP])
                    )
        if s.atomic is not None and not strong:
            late = s.last_atomic[granules] > least
            if late.any():
                self._against_masks(kind, s.updaters, granules, threads, late, least, "updates")
        if kind != "load":
            late = s.last_read[granules] > least
            if late.any():
                self._against_masks(kind, s.readers, granules, threads, late, least, "reads")
            for record in s.async_reads(granules):
                self._judge(kind, "shared", granules, threads, record, record > 0, "reads", None)
        self.touch_remote(granules, threads, times)
        if kind == "load":
            if not strong:
                s.mark(s.readers, s.last_read, threads, granules, times)
        elif strong:
            assert s.atomic is not None
            s.atomic[granules] = (times << AGENT_BITS) | threads
            s.mark(s.updaters, s.last_atomic, threads, granules, times)
        else:
            new = np.broadcast_to((times << AGENT_BITS) | threads, granules.shape)
            s.written[granules] = new
            self._same_moment(s.written, granules, new, threads, "shared", values)

    def _global_access(
        self, kind: str, granules: Array, times: Array, threads: Threads, values: Array | None, strong: bool
    ) -> None:
        g, clocks = self.everywhere, self.clocks
        limit = (clocks.least[clocks.row_of[threads]].astype(np.int64) + 1) << AGENT_BITS
        cluster = threads // clocks.width

        def check(record: Array, verb: str, values: Array | None = None) -> None:
            suspect = record != 0
            if suspect.any():
                agent = agent_of(record) - self.base
                suspect &= ~((record < limit) & (agent >= 0) & (agent // clocks.width == cluster)) & (agent != threads)
                if suspect.any():
                    self._judge(kind, "global", granules, threads, record, suspect, verb, values)

        check(g.written[granules], "writes", values)
        if not strong:
            check(g.atomic[granules], "updates")
        if kind != "load":
            for part in g.read:
                check(part[granules], "reads")
        new = np.broadcast_to((times << AGENT_BITS) | (threads + self.base), granules.shape)
        if kind == "load":
            if not strong:
                self._read_global(granules, new)
        elif strong:
            g.atomic[granules] = new
        else:
            g.written[granules] = new
            self._same_moment(g.written, granules, new, threads, "global", values)

    def _read_global(self, granules: Array, new: Array) -> None:
        """Enter reads into the two records of each granule; see shadow.py."""
        clocks = self.clocks
        first, second = self.everywhere.read
        old = first[granules]
        keep = old != 0
        if keep.any():
            agent, now = agent_of(old) - self.base, agent_of(new) - self.base
            keep &= agent != now
            # A thread that knows the earlier read speaks for it; an asynchronous operation does not.
            index = np.nonzero(keep & (now < self.machine.thread_count))
            if len(index[0]):
                keep[index] = ~self._knows(now[index], agent[index], time_of(old[index]), True)
        if not keep.any():
            first[granules] = new
            return
        both, late = granules[keep], new[keep]
        width = clocks.width
        mine = agent_of(first[both]) // width
        replace = (second[both] == 0) | (agent_of(late) // width != mine) | (agent_of(second[both]) // width == mine)
        second[both[replace]] = late[replace]
        first[granules[~keep]] = new[~keep]

    def _knows(self, threads: Array, agents: Array, times: Array, read: bool) -> Array:
        """Clocks.knows, for agents that may belong to an earlier machine (negative)."""
        present = agents >= 0
        if present.all():
            return self.clocks.knows(threads, agents, times, read)
        # The rule 'earlier-blocks'.
        result = np.full(len(threads), bool(self.clocks.logs))
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
        verb: str,
        values: Array | None,
    ) -> None:
        """Compare accesses of threads with the records of earlier ones, where `suspect`. `verb`: what the earlier
        ones did."""
        index = np.nonzero(suspect)
        found, who = record[index], threads[index[-1]]
        agents, times = agent_of(found) - (self.base if space == "global" else 0), time_of(found)
        bad = ~self._knows(who, agents, times, verb == "reads")
        if bad.any() and values is not None and kind == "store" and not self.strict:
            bad &= ~self._writes_the_same(space, granules, values, index)
        if bad.any():
            at = tuple(i[bad][:MAX_SHOWN] for i in index)
            self.findings.conflict(kind, space, granules[at], at[-2], threads[at[-1]], agents[bad], times[bad], verb)

    def _against_masks(
        self, kind: str, masks: Array, granules: Array, threads: Threads, late: Array, least: Array, verb: str
    ) -> None:
        """Compare accesses with the reads (or atomics) of all warps."""
        clocks = self.clocks
        index = np.nonzero(late)
        where, who = granules[index], threads[index[-1]]
        entry, slot, mask, time = self.shared.entries(masks, where, least[index[-1]])
        if not len(entry):
            return
        first = who[entry] // clocks.width * clocks.width + slot
        e, lane = np.nonzero((mask[:, None] >> _LANES) & 1 == 1)
        bad = ~clocks.knows(who[entry[e]], first[e] + lane, time[e], verb == "reads")
        if bad.any():
            e, lane = e[bad][:MAX_SHOWN], lane[bad][:MAX_SHOWN]
            at = entry[e]
            self.findings.conflict(kind, "shared", where[at], index[-2][at], who[at], first[e] + lane, time[e], verb)

    # The rule 'equal-writes'

    def _stored(self, space: str, granules: Array, values: Array) -> Array:
        """The bytes that a store writes: [granules' shape, bytes of a granule]."""
        g = (self.shared if space == "shared" else self.everywhere).granule
        rows, count = granules.shape[-2:]
        full = np.broadcast_to(values, (rows, values.shape[1], count))
        raw = np.ascontiguousarray(np.moveaxis(full, 1, 2)).view(np.uint8).reshape(rows, count, -1, g)
        return np.moveaxis(raw, 2, 0).reshape(*granules.shape, g)

    def _writes_the_same(self, space: str, granules: Array, values: Array, index: Any) -> Array:
        """Whether a store writes what is there already."""
        m = self.machine
        new = self._stored(space, granules, values)[index]
        g = new.shape[-1]
        places = granules[index]
        if space == "shared":
            return (m.shared.data[places[:, None] * g + np.arange(g)] == new).all(1)
        first = self.everywhere.first
        return np.array(
            [np.array_equal(m.memory.bytes_at(int(p) * g + first, g), v) for p, v in zip(places, new)], bool
        )

    def _same_moment(
        self, written: Array, granules: Array, new: Array, threads: Threads, space: str, values: Array | None
    ) -> None:
        """Stores of one step that meet at a granule: of these one, whose record is left, comes last."""
        left = written[granules]
        lost = agent_of(left) != agent_of(new)
        if not lost.any():
            return
        index = np.nonzero(lost)
        if values is not None and not self.strict:
            stored = self._stored(space, granules, values)
            winners = np.nonzero(left == new)
            order = np.argsort(granules[winners], kind="stable")
            at = np.searchsorted(granules[winners][order], granules[index])
            bad = (stored[winners][order][at] != stored[index]).any(1)
            index = tuple(i[bad] for i in index)
            if not len(index[0]):
                return
        index = tuple(i[:MAX_SHOWN] for i in index)
        other = left[index]
        agents = agent_of(other) - (self.base if space == "global" else 0)
        self.findings.conflict(
            "store", space, granules[index], index[-2], threads[index[-1]], agents, time_of(other), "writes"
        )

    # mbarriers

    def mbarrier_words(self, flat: Array) -> Array:
        """The granules of mbarriers, [granules, threads]."""
        g = self.shared.granule
        return flat[None] // g + np.arange(8 // g)[:, None]

    def mbarrier_touch(self, flat: Array, threads: Threads) -> None:
        """Threads use mbarriers: whoever initialised them must have done so before."""
        clocks = self.clocks
        where = flat // self.shared.granule
        record = self.shared.written[where]
        if self.machine.cluster_size > 1:
            self.touch_remote(where[None], threads, np.array([[clocks.now]]))
        index = np.nonzero(record >= (clocks.least[clocks.row_of[threads]].astype(np.int64) + 1) << AGENT_BITS)[0]
        if not len(index):
            return
        agents, times, who = agent_of(record[index]), time_of(record[index]), threads[index]
        bad = ~clocks.knows(who, agents, times)
        if bad.any() and (agents < self.machine.thread_count).all():
            # An initialisation that its fence has published.
            rows = clocks.rows[clocks.row_of[who]]
            bad &= rows[np.arange(len(who)), agents % clocks.width + clocks.at["I"]] < times
        if bad.any():
            at = index[bad]
            self.findings.event()
            rows = np.zeros(len(at), np.intp)
            self.findings.conflict(
                "mbarrier", "shared", where[at], rows, who[bad], agents[bad], times[bad], "initialises"
            )

    def async_signal(self, flat: Array, op: Operation) -> None:
        """An operation signals mbarriers, whose initialisation must be visible to it."""
        if not isinstance(op, BulkOperation):
            return
        clocks = self.clocks
        row, thread = op.note.rows[op.piece], int(op.owners[op.piece])
        cluster = thread // clocks.width
        for barrier in flat.tolist():
            where = np.array([barrier // self.shared.granule])
            record = self.shared.written[where]
            agents, times = agent_of(record), time_of(record)
            if not record[0] or agents[0] >= self.machine.thread_count:
                continue
            if any(clocks.row_knows(row, cluster, agents, times, segment, "C")[0] for segment in "IF"):
                continue
            known = bool(clocks.row_knows(row, cluster, agents, times, "G", "C")[0])
            agent = clocks.agent(MBARRIER, barrier, cluster)
            self.findings.async_conflict(
                op, "async atomic", "shared", where, thread, agent, agents, times, "initialises", known
            )

    # Asynchronous operations

    def issued(self, operation: Operation) -> None:
        """Note what the issuers of an operation know."""
        clocks = self.clocks
        time = self.findings.event()
        owners = operation.owners
        piece: dict[int, int] = {}
        rows: list[Array] = []
        if isinstance(operation, ThreadCopy):
            # What a thread did itself it knows without its row; what its warp did it knows by its row then.
            clocks.settle(np.unique(owners // WARP))
            distinct, inverse = np.unique(clocks.row_of[owners], return_inverse=True)
            rows = list(clocks.rows[distinct])
            piece = dict(zip(owners.tolist(), inverse.tolist()))
        elif isinstance(operation, WarpgroupMma):
            for k, group in enumerate(owners.tolist()):
                first = group * 4 * WARP
                warps = [np.arange(w, w + WARP) for w in range(first, first + 4 * WARP, WARP)]
                rows.append(np.minimum.reduce([clocks.publish(warp, time, tell=False) for warp in warps]))
                piece[first] = k
        elif not isinstance(operation, CopiesArrive):
            for k, thread in enumerate(owners.tolist()):
                rows.append(clocks.publish(np.array([thread]), time, tell=False))
                piece[thread] = k
        operation.note = Note(time, np.array(rows), piece)

    def _async(self, op: Operation, kind: str, space: str, granules: Array, threads: Threads) -> None:
        note: Note = op.note
        clocks, m = self.clocks, self.machine
        flat = granules.reshape(-1, granules.shape[-1])
        if isinstance(op, ThreadCopy):
            pieces = np.array([note.piece[t] for t in threads.tolist()])
            for k in np.unique(pieces):
                mine = np.nonzero(pieces == k)[0]
                self._copy(op, kind, space, flat[:, mine], threads[mine], int(k))
            return
        for column, thread in enumerate(threads.tolist()):
            piece = note.piece[thread]
            cluster, time = thread // clocks.width, note.time
            if isinstance(op, WarpgroupMma):
                agent = clocks.agent(WGMMA, thread // (4 * WARP), cluster)
            elif op.groups[piece] == NO_GROUP:
                assert isinstance(op, BulkOperation)
                barrier = m.pending.signalled if kind != "async load" else op.barriers[piece]
                agent, time = clocks.agent(MBARRIER, barrier, cluster), self.findings.event()
            else:
                agent = clocks.agent(BULK_READ if kind == "async load" else BULK_WRITE, thread, cluster)
            self._bulk(op, kind, space, np.unique(flat[:, column]), thread, note.rows[piece], agent, time)

    def _bulk(
        self, op: Operation, kind: str, space: str, where: Array, thread: int, row: Array, agent: int, time: int
    ) -> None:
        """An operation of the async proxy, issued by `thread` who then knew `row`, accesses granules as `agent`."""
        clocks, shadow = self.clocks, (self.shared if space == "shared" else self.everywhere)
        base = self.base if space == "global" else 0
        cluster = thread // clocks.width
        fenced = ("F", "D") if space == "shared" else ("E", "C")

        def check(record: Array, index: Array, verb: str, segment: str, copies: str) -> None:
            present = np.nonzero(record)[0]
            if not len(present):
                return
            agents, times = agent_of(record[present]) - base, time_of(record[present])
            bad = ~clocks.row_knows(row, cluster, agents, times, segment, copies)
            bad &= (agents != agent) | (times != time)
            if bad.any():
                a, t = agents[bad], times[bad]
                known = clocks.row_knows(row, cluster, a, t, "R" if verb == "reads" else "G", "C")
                for part, only_fence in ((known, True), (~known, False)):
                    if part.any():
                        at = where[index[present[bad][part]]]
                        self.findings.async_conflict(
                            op, kind, space, at, thread, agent, a[part], t[part], verb, only_fence
                        )

        every = np.arange(len(where))
        record = shadow.written[where]
        check(record, every, "writes", *fenced)
        if kind == "async load" and space == "shared":
            empty = record == 0
            if self.shared.atomic is not None:
                empty &= self.shared.atomic[where] == 0
            if empty.any():
                self.findings.uninitialised(where, np.nonzero(empty), self.findings.agent(agent))
        if kind != "async atomic" and shadow.atomic is not None:
            check(shadow.atomic[where], every, "updates", *fenced)
        reads = ("Q", "D") if space == "shared" else fenced
        if kind == "async load":
            record = np.full(len(where), (time << AGENT_BITS) | ASYNC | (agent + base))
            if space == "shared":
                self.shared.mark_async(agent, cluster, clocks.column(agent) - clocks.fixed, where, time)
            else:
                self._read_global(where[None], record[None])
        else:
            if space == "shared":
                check(*self._thread_reads(where, cluster), "reads", *reads)
                for record in self.shared.async_reads(where):
                    check(record, every, "reads", *reads)
            else:
                for part in self.everywhere.read:
                    check(part[where], every, "reads", *reads)
            target = shadow.written if kind == "async store" else shadow.atomic
            if target is not None:
                target[where] = (time << AGENT_BITS) | ASYNC | (agent + base)
        if space == "shared":
            self._touch(where, agent, time)

    def _thread_reads(self, where: Array, cluster: int) -> tuple[Array, Array]:
        """(records of reads of granules by threads of a cluster, which granule each read)."""
        entry, slot, mask, when = self.shared.entries(self.shared.readers, where, np.zeros(len(where), np.int64))
        e, lane = np.nonzero((mask[:, None] >> _LANES) & 1 == 1)
        return (when[e] << AGENT_BITS) | (cluster * self.clocks.width + slot[e] + lane), entry[e]

    def _copy(self, op: ThreadCopy, kind: str, space: str, granules: Array, threads: Threads, piece: int) -> None:
        """cp.async by threads whose rows were the same; it is of the generic proxy."""
        clocks, count, note = self.clocks, self.machine.thread_count, op.note
        shadow = self.shared if space == "shared" else self.everywhere
        base = self.base if space == "global" else 0
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
                at, thread = where[index[present][bad]], int(t[bad][0])
                self.findings.async_conflict(
                    op, kind, space, at, thread, thread + count, agents[bad], times[bad], verb, False
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
        check(*self._thread_reads(where, cluster), "reads", "R")
        for reads in self.shared.async_reads(where):
            check(reads, every, "reads", "R")
        shadow.written[where] = record

    # Blocks that end

    def touch_remote(self, granules: Array, threads: Threads, times: Array) -> None:
        """Threads touch the shared memory of other blocks of their cluster, if they do."""
        m = self.machine
        if m.cluster_size == 1:
            return
        blocks = granules * self.shared.granule // m.shared.stride
        remote = blocks != threads // m.block_stride
        if not remote.any():
            return
        time = int(times.max())
        for block in np.unique(blocks[remote]).tolist():
            who = np.unique(np.broadcast_to(threads, blocks.shape)[remote & (blocks == block)])
            self.touched.setdefault(block, {}).update(dict.fromkeys(who.tolist(), time))
            if block in self.exited:
                self.findings.left_behind(block, int(who[0]), time)

    def _touch(self, granules: Array, agent: int, time: int) -> None:
        """An asynchronous operation touches shared memory."""
        for block in np.unique(granules * self.shared.granule // self.machine.shared.stride).tolist():
            self.touched.setdefault(block, {})[agent] = time
            if block in self.exited:
                self.findings.left_behind(block, agent, time)

    def block_ends(self, block: int, row: Array) -> None:
        """All threads of a block have ended; `row` is what they knew."""
        clocks = self.clocks
        self.exited.add(block)
        # A wgmma whose result nobody waits for does no harm: the multiprocessor waits for it.
        touched = {a: t for a, t in self.touched.get(block, {}).items() if clocks.kind(a) != WGMMA}
        if touched:
            agents, times = np.array(list(touched), np.int64), np.array(list(touched.values()), np.int64)
            bad = ~clocks.row_knows(row, block // self.machine.cluster_size, agents, times, "R", "C")
            for agent, time in zip(agents[bad].tolist(), times[bad].tolist()):
                self.findings.left_behind(block, agent, time)


def is_strong(opcode: str) -> bool:
    """Whether an access does not race with other such: volatile, relaxed, acquire, release (PTX ISA 9.0 §8.2.2)."""
    return any(w in ("volatile", "relaxed", "acquire", "release", "mmio") for w in opcode.split("."))
