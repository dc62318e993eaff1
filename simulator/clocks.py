"""Happens-before: who knows of what, as vector clocks over the threads of a cluster and its asynchronous operations.

**Time** is one counter for the whole machine, and it advances with every access and every synchronisation. What
happened can so be named by (agent, time): an *agent* is a thread (its accesses through the generic proxy), or
something that accesses memory beside the threads: the `cp.async` of a thread, the bulk copies of a thread that are
waited for by groups (their reads and their writes apart), the copies that signal one mbarrier, the `wgmma` of a
warpgroup.

**Knowledge** is a *row*: for every agent of the cluster, the time up to which its accesses are known to have happened
before. A later access of thread t is ordered after (agent, time) if t's row holds at least that time for that agent.
Rows are immutable and shared: after a `bar.sync` all threads of a block stand on one row, so that rows are as few as
warps and not as many as threads, and an access by a thousand threads is checked with one gather.

    time 5: thread 0 writes x            row of all: {}
    time 6: threads 0-63 meet at bar.sync: row of all: {thread 0: 6, thread 1: 6, ...}
    time 7: thread 9 reads x:            its row holds 6 for thread 0, and 5 <= 6: ordered

What a thread itself has done it knows without a row, so own columns are written only when it *publishes*: at a
barrier, an arrive, a release. A row has several columns for a thread, for what is known of it in different ways
(`docs/memory-order.md` has the rules):

    G  all its generic accesses
    R  its reads only
    F  those accesses that its own proxy fence has made visible to the async proxy in shared memory
    Q  its reads of those
    E  the same in global memory
    C  its cp.async that are complete
    D  those of them that its proxy fence has covered since
    I  its mbarrier initialisations that a fence has published

**Other clusters** have no columns. What a thread learns from one of them, by an atomic in global memory, goes into
its *log*: rows of that cluster, with the time at which they were learnt. The log is an agent too, of kind FAR, so
that a column says how far someone knows it, and it spreads through barriers like everything else.

A warp whose lanes stand on one row and meet (`bar.warp.sync`) is only noted with the time; the lanes' columns are
written when one of them publishes. So shuffles cost next to nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .selection import WARP

if TYPE_CHECKING:
    from .machine import Machine

Times = NDArray[np.int32]
Threads = NDArray[np.intp]

FOREVER = np.iinfo(np.int32).max
SEGMENTS = ("G", "F", "Q", "E", "R", "I", "C", "D")
Log = list[tuple[int, dict[int, NDArray[np.int32]]]]
"""What a FAR agent learnt: (time, all rows of other clusters known since then), in the order of time."""
DYNAMIC = 16
"""Columns for agents that are not threads, to begin with."""

BULK_READ, BULK_WRITE, MBARRIER, WGMMA, FAR = "bulk read", "bulk write", "mbarrier", "wgmma", "far"


def joined(a: NDArray[np.int32] | None, b: NDArray[np.int32]) -> NDArray[np.int32]:
    """The maximum of two rows, of which the shorter lacks columns that are 0."""
    if a is None:
        return b.copy()
    if len(a) < len(b):
        a, b = b, a
    result = a.copy()
    np.maximum(result[: len(b)], b, out=result[: len(b)])
    return result


class Agents:
    """Those who access memory beside the threads, found as they appear. `done[k]`: the time up to which the owner
    itself knows the operations of agent k to be complete. An agent's number is `first` + k."""

    def __init__(self, first: int):
        self.first = first
        self.kinds: list[str] = []
        self.keys: list[int] = []
        """The owner: a thread, the shared index of an mbarrier, or a warpgroup."""
        self.index: dict[tuple[str, int], int] = {}
        self.done = np.zeros(0, np.int32)
        self.told: dict[int, list[int]] = {}
        """Per warp: those whose owner is one of its lanes, or its warpgroup, and knows of operations that are complete."""
        self.cluster = np.zeros(0, np.intp)
        self.ordinal = np.zeros(0, np.intp)


class Clocks:
    """The knowledge of all threads of a machine. `time`: the counter, shared by the machines of a launch; `groups`:
    how many groups an owner may have pending at a wait."""

    def __init__(self, machine: Machine, groups: int, now: int):
        self.machine = machine
        self.width = machine.block_stride * machine.cluster_size
        self.clusters = machine.thread_count // self.width
        count = machine.thread_count
        self.fixed = len(SEGMENTS) * self.width
        self.room = DYNAMIC
        self.at = {name: k * self.width for k, name in enumerate(SEGMENTS)}
        self.row_of = np.zeros(count, np.int32)
        self.rows = np.zeros((max(64, 4 * self.clusters), self.fixed + self.room), np.int32)
        self.least = np.zeros(len(self.rows), np.int32)
        """Per row: the time up to which every generic access of the cluster is known."""
        self.used = 1
        self.now = now
        # Lanes that will never run hold nobody back.
        padding = np.nonzero(~machine.alive[: self.width])[0]
        self.padding = np.concatenate([padding + base for base in self.at.values()]) if len(padding) else padding
        self.rows[0, self.padding] = FOREVER
        self.met = np.zeros(count // WARP, np.int32)
        """Per warp: when all its lanes last met, while that is not written into rows."""
        self.released = np.zeros(count // WARP, np.int32)
        """Per warp: when one of its lanes last published anything, or its lanes met."""
        self.fenced = np.zeros(count, np.int32)
        self.fenced_global = np.zeros(count, np.int32)
        self.init_fenced = np.zeros(count, np.int32)
        self.copied = np.zeros(count, np.int32)
        self.copied_fenced = np.zeros(count, np.int32)
        self.groups = groups + 1
        self.copy_commits = np.zeros((self.groups, count), np.int32)
        self.agents = Agents(2 * count)
        self.commits: dict[tuple[str, int], list[int]] = {}
        self.logs: dict[int, dict[int, Log]] = {}
        """Per cluster, per FAR agent of it."""
        self.teachers: set[int] = set()
        """Warps of which a lane knows of bulk copies what others may learn when they meet."""

    # Time and agents

    def tick(self, count: int = 1) -> int:
        """The first of `count` new times."""
        time = self.now
        self.now += count
        return time

    def agent(self, kind: str, key: int, cluster: int) -> int:
        """The number of an agent, which is made if there is none. `key`: its owner; see Agents."""
        a = self.agents
        found = a.index.get((kind, key))
        if found is not None:
            return a.first + found
        k = a.index[kind, key] = len(a.kinds)
        a.kinds.append(kind)
        a.keys.append(key)
        ordinal = int((a.cluster == cluster).sum())
        a.cluster = np.append(a.cluster, cluster)
        a.ordinal = np.append(a.ordinal, ordinal)
        a.done = np.append(a.done, np.int32(0))
        if ordinal >= self.room:
            more = self.room
            self.rows = np.pad(self.rows, ((0, 0), (0, more)))
            self.room += more
        return a.first + k

    def column(self, agent: int) -> int:
        """The column of an agent that is not a thread."""
        return self.fixed + int(self.agents.ordinal[agent - self.agents.first])

    def kind(self, agent: int) -> str:
        """What kind an agent is: 'thread', 'cp.async', or one of Agents.kinds."""
        if agent < self.machine.thread_count:
            return "thread"
        return "cp.async" if agent < self.agents.first else self.agents.kinds[agent - self.agents.first]

    def complete(self, kind: str, key: int, time: int) -> None:
        """The owner of an agent learns that its operations up to a time are complete."""
        k = self.agents.index.get((kind, key))
        if k is not None:
            if not self.agents.done[k]:
                for warp in range(4 * key, 4 * key + 4) if kind == WGMMA else (key // WARP,):
                    self.agents.told.setdefault(warp, []).append(k)
            self.agents.done[k] = max(self.agents.done[k], time)
            if kind != WGMMA:
                self.teachers.add(key // WARP)

    # Rows

    def _new_rows(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Adds rows [n, columns]; gives their numbers."""
        n = len(values)
        if self.used + n > len(self.rows):
            self._collect(n)
        rows = np.arange(self.used, self.used + n, dtype=np.int32)
        self.rows[rows, : values.shape[1]] = values
        self.rows[rows, values.shape[1] :] = 0
        self.least[rows] = values[:, : self.width].min(1)
        self.used += n
        return rows

    def _collect(self, n: int) -> None:
        """Drop rows on which nobody stands."""
        live, self.row_of = np.unique(self.row_of, return_inverse=True)
        self.row_of = self.row_of.astype(np.int32)
        kept, least = self.rows[live], self.least[live]
        if len(live) + n > len(self.rows) // 2:
            size = 2 * (len(live) + n)
            self.rows = np.zeros((size, self.rows.shape[1]), np.int32)
            self.least = np.zeros(size, np.int32)
        self.rows[: len(live)], self.least[: len(live)] = kept, least
        self.used = len(live)

    def publish(self, threads: Threads, time: int, tell: bool = True) -> NDArray[np.int32]:
        """What threads of one cluster know together at `time`, with what they have done themselves: a row. `tell`:
        they release it, so that what they do from now on is later than what the row holds."""
        rows = np.unique(self.row_of[threads])
        row = self.rows[rows[0]].copy() if len(rows) == 1 else self.rows[rows].max(0)
        warps = np.unique(threads // WARP)
        met = self.met[warps]
        if met.any() and len(threads) != WARP * len(warps):
            for warp, time_met in zip(warps[met > 0], met[met > 0]):
                lanes = np.arange(warp * WARP, warp * WARP + WARP)
                self._own(row, lanes, time_met)
        self._own(row, threads, np.int32(time))
        a = self.agents
        if a.told:
            for warp in warps.tolist():
                for k in a.told.get(warp, ()):
                    if a.kinds[k] == WGMMA or a.keys[k] in threads:
                        column = self.fixed + int(a.ordinal[k])
                        row[column] = max(row[column], a.done[k])
        if tell:
            self.released[warps] = time
        return row

    def _own(self, row: NDArray[np.int32], threads: Threads, time: Any) -> None:
        columns = threads % self.width
        at = self.at
        for name, values in (
            ("G", time),
            ("R", time),
            ("F", self.fenced[threads]),
            ("Q", self.fenced[threads]),
            ("E", self.fenced_global[threads]),
            ("I", self.init_fenced[threads]),
            ("C", self.copied[threads]),
            ("D", self.copied_fenced[threads]),
        ):
            place = columns + at[name]
            row[place] = np.maximum(row[place], values)

    def acquire(self, threads: Threads, row: NDArray[np.int32]) -> None:
        """Threads of one cluster learn what a row holds."""
        old, where = np.unique(self.row_of[threads], return_inverse=True)
        before = self.rows[old]
        new = before.copy()
        np.maximum(new[:, : len(row)], row, out=new[:, : len(row)])
        if not (new == before).all():
            self.row_of[threads] = self._new_rows(new)[where]

    def learn(self, threads: Threads, columns: NDArray[np.intp], times: NDArray[np.int32]) -> None:
        """Threads of one cluster learn times of single columns."""
        row = np.zeros(self.rows.shape[1], np.int32)
        row[columns] = times
        self.acquire(threads, row)

    def whole_blocks(self, blocks: NDArray[np.intp], time: int) -> bool:
        """All threads of these blocks meet, where each block's threads stand on one row already; else False and
        nothing done."""
        m = self.machine
        size = m.block_stride
        rows = self.row_of.reshape(-1, size)[blocks]
        if len(self.agents.kinds) or (rows != rows[:, :1]).any():
            return False
        new = self.rows[rows[:, 0]]
        first = blocks % m.cluster_size * size
        threads = (blocks * size)[:, None] + np.arange(size)
        values = {
            "G": np.int32(time),
            "R": np.int32(time),
            "F": self.fenced[threads],
            "Q": self.fenced[threads],
            "E": self.fenced_global[threads],
            "I": self.init_fenced[threads],
            "C": self.copied[threads],
            "D": self.copied_fenced[threads],
        }
        if m.cluster_size == 1:
            for name, value in values.items():
                part = new[:, self.at[name] : self.at[name] + size]
                np.maximum(part, value, out=part)
        else:
            index = np.arange(len(blocks))[:, None], first[:, None] + np.arange(size)
            for name, value in values.items():
                place = index[0], index[1] + self.at[name]
                new[place] = np.maximum(new[place], value)
        self.row_of.reshape(-1, size)[blocks] = self._new_rows(new)[:, None]
        warps = (threads // WARP)[:, ::WARP]
        self.met[warps] = 0
        self.released[warps] = time
        return True

    def meet(self, threads: Threads, time: int) -> None:
        """Threads of one cluster meet: each learns what all know and have done."""
        self.acquire(threads, self.publish(threads, time))
        warps, counts = np.unique(threads // WARP, return_counts=True)
        self.met[warps[counts == WARP]] = 0

    def meet_in_warps(self, threads: Threads) -> None:
        """The threads of each warp meet."""
        time = self.tick()
        if len(threads) % WARP == 0 and threads[0] % WARP == 0:
            grid = threads.reshape(-1, WARP)
            rows = self.row_of[grid]
            warps = grid[:, 0] // WARP
            plain = not self.teachers or self.teachers.isdisjoint(warps.tolist())
            if plain and (grid[:, -1] - grid[:, 0] == WARP - 1).all() and (rows == rows[:, :1]).all():
                self.met[warps] = time
                self.released[warps] = time
                return
        for warp in np.unique(threads // WARP):
            self.settle(np.array([warp]))
            self.meet(threads[threads // WARP == warp], time)

    def settle(self, warps: NDArray[np.intp]) -> None:
        """Write into rows that the lanes of these warps have met; before any of them changes what it alone knows."""
        for warp in warps[self.met[warps] > 0]:
            lanes = np.arange(warp * WARP, warp * WARP + WARP)
            row = np.zeros(self.rows.shape[1], np.int32)
            self._own(row, lanes, self.met[warp])
            self.acquire(lanes, row)
            self.met[warp] = 0

    # Questions

    def knows(
        self, threads: Threads, agents: NDArray[np.int64], times: NDArray[np.int64], read: bool = False
    ) -> NDArray[np.bool_]:
        """Whether each thread's generic accesses are ordered after (agent, time): 1-d arrays. `read`: the earlier
        access was a read."""
        count = self.machine.thread_count
        result = np.zeros(len(threads), bool)
        rows = self.row_of[threads]
        generic = agents < count
        if generic.any():
            t, p, e = threads[generic], agents[generic], times[generic]
            known = self.rows[rows[generic], p % self.width + self.at["R" if read else "G"]] >= e
            known &= t // self.width == p // self.width
            known |= t == p
            known |= (t // WARP == p // WARP) & (self.met[p // WARP] >= e)
            result[generic] = known
        copies = (agents >= count) & (agents < 2 * count)
        if copies.any():
            t, p, e = threads[copies], agents[copies] - count, times[copies]
            known = (self.rows[rows[copies], p % self.width + self.at["C"]] >= e) & (t // self.width == p // self.width)
            known |= (t == p) & (self.copied[t] >= e)
            known |= (t // WARP == p // WARP) & (self.met[p // WARP] > 0) & (self.copied[p] >= e)
            result[copies] = known
        rest = np.nonzero(agents >= 2 * count)[0]
        if len(rest):
            a = self.agents
            k = (agents[rest] - a.first).astype(np.intp)
            t, e = threads[rest], times[rest]
            known = self.rows[rows[rest], self.fixed + a.ordinal[k]] >= e
            known &= t // self.width == a.cluster[k]
            own = np.array(
                [
                    t_ // (4 * WARP) == a.keys[i] if a.kinds[i] == WGMMA else a.kinds[i] != MBARRIER and a.keys[i] == t_
                    for t_, i in zip(t, k)
                ],
                bool,
            )
            result[rest] = known | (own & (a.done[k] >= e))
        if self.logs:
            far = np.nonzero(~result & (self._cluster_of(agents) != threads // self.width))[0]
            if len(far):
                result[far] = self._knows_far(threads[far], agents[far], times[far], "R" if read else "G")
        return result

    def _cluster_of(self, agents: NDArray[np.int64]) -> NDArray[np.int64]:
        count = self.machine.thread_count
        result = agents % count // self.width
        rest = agents >= 2 * count
        if rest.any():
            result[rest] = self.agents.cluster[agents[rest] - self.agents.first]
        return result

    def far_rows(self, row: NDArray[np.int32], cluster: int) -> dict[int, NDArray[np.int32]]:
        """The rows of other clusters that someone of `cluster` with this row knows."""
        known: dict[int, NDArray[np.int32]] = {}
        for agent, log in self.logs.get(cluster, {}).items():
            column = self.column(agent)
            if column >= len(row):
                continue
            entries = bisect_right(log, int(row[column]), key=itemgetter(0))
            for other, far in (log[entries - 1][1] if entries else {}).items():
                known[other] = joined(known.get(other), far)
        return known

    def learn_far(self, thread: int, rows: dict[int, NDArray[np.int32]]) -> None:
        """A thread learns rows of other clusters."""
        cluster = thread // self.width
        agent = self.agent(FAR, thread, cluster)
        time = self.tick()
        log = self.logs.setdefault(cluster, {}).setdefault(agent, [])
        new = dict(log[-1][1]) if log else {}
        for other, row in rows.items():
            new[other] = joined(new.get(other), row)
        log.append((time, new))
        self.settle(np.array([thread // WARP]))
        self.complete(FAR, thread, time)

    def _knows_far(
        self, threads: Threads, agents: NDArray[np.int64], times: NDArray[np.int64], segment: str
    ) -> NDArray[np.bool_]:
        result = np.zeros(len(threads), bool)
        clusters = self._cluster_of(agents)
        # Threads of a cluster on one row know the same of other clusters, but for what one of them learnt itself.
        itself = np.array([(FAR, thread) in self.agents.index for thread in threads.tolist()], bool)
        groups = np.stack([threads // self.width, self.row_of[threads], np.where(itself, threads, -1)], 1)
        _, group = np.unique(groups, axis=0, return_inverse=True)
        group = group.reshape(-1)
        order = np.argsort(group, kind="stable")
        for mine in np.split(order, np.cumsum(np.bincount(group))[:-1]):
            thread = int(threads[mine[0]])
            known = self.far_rows(self.publish(np.array([thread]), self.now, tell=False), thread // self.width)
            for other, row in known.items():
                part = mine[clusters[mine] == other]
                if len(part):
                    result[part] = self.row_knows(row, other, agents[part], times[part], segment, "C")
        return result

    def row_knows(
        self,
        row: NDArray[np.int32],
        cluster: int,
        agents: NDArray[np.int64],
        times: NDArray[np.int64],
        segment: str,
        copies: str,
    ) -> NDArray[np.bool_]:
        """The same for a row: what threads did is looked up in `segment`, their cp.async in `copies`."""
        count = self.machine.thread_count
        generic, copied = agents < count, (agents >= count) & (agents < 2 * count)
        columns = np.where(
            generic, agents % self.width + self.at[segment], (agents - count) % self.width + self.at[copies]
        )
        owner = np.where(generic, agents, agents - count) // self.width
        rest = ~(generic | copied)
        if rest.any():
            a = self.agents
            k = (agents[rest] - a.first).astype(np.intp)
            columns[rest] = self.fixed + a.ordinal[k]
            owner[rest] = a.cluster[k]
        inside = columns < len(row)
        known = (row[np.where(inside, columns, 0)] >= times) & inside & (owner == cluster)
        if self.logs and (owner != cluster).any():
            for other, far in self.far_rows(row, cluster).items():
                there = inside & (owner == other) & (columns < len(far))
                known |= there & (far[np.where(there, columns, 0)] >= times)
        return known
