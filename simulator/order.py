"""The edges of happens-before: what barriers, fences, waits and atomics let threads know. `docs/memory-order.md` has
each rule by name.

Every method here turns one synchronisation into `publish` (what someone knows goes into a barrier's or a variable's
row) and `acquire` (someone learns that row) on `Clocks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .clocks import BULK_READ, BULK_WRITE, MBARRIER, WGMMA, Clocks, joined
from .copies import CopiesArrive
from .findings import Findings
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .asynchrony import Operation
    from .machine import Machine

Array = NDArray[Any]
Threads = NDArray[np.intp]


class Phases:
    """What those who arrived at an mbarrier in its current phase published, and in the last complete phase of each
    parity."""

    def __init__(self) -> None:
        self.current: Array | None = None
        self.done: list[Array | None] = [None, None]
        self.parity = 0


class Order:
    """The synchronisation of one machine. `strict`: by the letter of the ISA."""

    def __init__(self, machine: Machine, clocks: Clocks, findings: Findings, strict: bool):
        self.machine, self.clocks, self.findings, self.strict = machine, clocks, findings, strict
        self.synchronises = any(_synchronises(i.opcode) for s in machine.code.steps for i in s.instrs)
        """Whether strong accesses may order anything in this program."""
        self._fences: dict[int, tuple[int, bool]] = {}
        self._pending: dict[int, list[dict[int, Array]]] = {}
        self._variables: dict[int, dict[tuple[int, int], Array]] = {}
        self.phases: dict[int, Phases] = {}
        self._named: dict[tuple[int, int], Array] = {}
        self._cluster: dict[int, Array] = {}
        self._cluster_done: dict[int, Array] = {}

    # Fences and groups

    def fence(self, words: Sequence[str], threads: Threads) -> None:
        clocks = self.clocks
        clocks.settle(np.unique(threads // WARP))
        time = clocks.tick()
        if "proxy" in words and "async" in words:
            space = "".join(words[words.index("async") + 1 :][:1])
            if not space or space.startswith("shared"):
                clocks.fenced[threads] = time
                clocks.copied_fenced[threads] = clocks.copied[threads]
            if not space or space == "global":
                clocks.fenced_global[threads] = time
            clocks.init_fenced[threads] = time
        elif "mbarrier_init" in words:
            clocks.init_fenced[threads] = time
        elif "proxy" not in words:
            clocks.init_fenced[threads] = time
            self._thread_fence(words, threads, time)

    def committed(self, kind: str, owners: Threads) -> None:
        clocks = self.clocks
        time = clocks.tick()
        if kind == "cp.async":
            commits = clocks.copy_commits
            commits[1:, owners] = commits[:-1, owners]
            commits[0, owners] = time
            return
        for owner in owners.tolist():
            clocks.commits.setdefault((kind, owner), []).append(time)

    def waited(self, kind: str, owners: Threads, newest: int, read: bool) -> dict[int, int]:
        """Owners learn what they have waited for; gives {warpgroup: the time up to which its wgmma are complete}."""
        clocks = self.clocks
        if kind == "cp.async":
            clocks.settle(np.unique(owners // WARP))
            clocks.copied[owners] = np.maximum(clocks.copied[owners], clocks.copy_commits[newest, owners])
            return {}
        complete: dict[int, int] = {}
        names = (WGMMA,) if kind == "wgmma" else (BULK_READ,) if read else (BULK_READ, BULK_WRITE)
        for owner in owners.tolist():
            commits = clocks.commits.get((kind, owner), [])
            if len(commits) <= newest:
                continue
            for name in names:
                clocks.complete(name, owner, commits[-1 - newest])
            complete[owner] = commits[-1 - newest]
        return complete if kind == "wgmma" else {}

    # Atomics and fences between threads (PTX ISA 9.0 §8.8, release and acquire patterns)

    def _thread_fence(self, words: Sequence[str], threads: Threads, time: int) -> None:
        """fence.acq_rel, fence.sc, membar: what a thread did before is released by its next strong write, and what
        its strong reads saw before is acquired now."""
        if not self.synchronises:
            return
        for thread in threads.tolist():
            self._fences[thread] = (time, "cta" in words)
            for rows in self._pending.pop(thread, []):
                self._acquire(thread, rows)

    def strong(self, kind: str, addresses: Array, threads: Threads) -> None:
        """Strong accesses of global or shared memory, [threads] addresses, in the order of the threads. A variable
        keeps what was released by the writes that make up its value: a store replaces it, an atomic operation adds to
        it."""
        words = self.findings.instr().opcode.split(".")
        near = "cta" in words
        release = kind != "load" and ("release" in words or "acq_rel" in words)
        acquire = kind != "store" and ("acquire" in words or "acq_rel" in words)
        for address, thread in zip(addresses.tolist(), threads.tolist()):
            held = self._variables.get(address)
            if kind != "store" and held:
                if acquire:
                    self._acquire(thread, self._in_scope(held, thread, near))
                else:
                    self._pending.setdefault(thread, []).append(self._in_scope(held, thread, False))
            if kind == "load":
                continue
            fence = self._fences.get(thread)
            if release:
                row, narrow = self.clocks.publish(np.array([thread]), self.clocks.tick()), near
            elif fence is not None:
                row, narrow = self.clocks.publish(np.array([thread]), fence[0]), fence[1]
            else:
                if kind == "store":
                    self._variables.pop(address, None)
                continue
            entry = self._variables.setdefault(address, {}) if kind != "store" else {}
            self._variables[address] = entry
            cluster = thread // self.clocks.width
            block = thread // self.machine.block_stride if narrow else -1
            for other, far in {**self.clocks.far_rows(row, cluster), cluster: row}.items():
                entry[other, block] = joined(entry.get((other, block)), far)

    def _in_scope(self, held: dict[tuple[int, int], Array], thread: int, near: bool) -> dict[int, Array]:
        """The rows, by cluster, that an access of a thread may acquire; `near`: it has the scope of its block."""
        mine = thread // self.machine.block_stride
        cluster = thread // self.clocks.width
        rows: dict[int, Array] = {}
        for (other, block), row in held.items():
            if block in (-1, mine) and not (near and other != cluster):
                rows[other] = joined(rows.get(other), row)
        return rows

    def _acquire(self, thread: int, rows: dict[int, Array]) -> None:
        cluster = thread // self.clocks.width
        if cluster in rows:
            self.clocks.acquire(np.array([thread]), rows[cluster])
        far = {other: row for other, row in rows.items() if other != cluster}
        if far:
            self.clocks.learn_far(thread, far)

    # Barriers

    def blocks_sync(self, sel: Selection) -> None:
        clocks, m = self.clocks, self.machine
        time = clocks.tick()
        blocks, counts = sel.blocks
        if (counts == m.block_threads).all() and clocks.whole_blocks(blocks, time):
            return
        threads = sel.threads
        for block in blocks:
            clocks.meet(threads[threads // m.block_stride == block], time)

    def barrier_arrive(self, block: int, number: int, threads: Threads) -> None:
        row = self.clocks.publish(threads, self.clocks.tick())
        self._named[block, number] = joined(self._named.get((block, number)), row)

    def barrier_complete(self, block: int, number: int, waiting: Sequence[Selection]) -> None:
        row = self._named.pop((block, number))
        for sel in waiting:
            self.clocks.acquire(sel.threads, row)

    def cluster_arrive(self, sel: Selection, relaxed: bool) -> None:
        clocks = self.clocks
        time = clocks.tick()
        clusters = sel.threads // clocks.width
        for cluster in np.unique(clusters).tolist():
            row = clocks.publish(sel.threads[clusters == cluster], time)
            if relaxed:
                self._reads_only(row)
            self._cluster[cluster] = joined(self._cluster.get(cluster), row)

    def _reads_only(self, row: Array) -> None:
        """Takes from a row what is known of generic writes. The rules 'remote-arrive-frees' and
        'relaxed-cluster-barrier'."""
        width, at = self.clocks.width, self.clocks.at
        for name in "GFECD":
            row[at[name] : at[name] + width] = 0
        if self.strict:
            kept = row[at["I"] : at["I"] + width].copy()
            row[:] = 0
            row[at["I"] : at["I"] + width] = kept

    def cluster_complete(self, cluster: int) -> None:
        self._cluster_done[cluster] = self._cluster.pop(cluster)

    def cluster_pass(self, sel: Selection) -> None:
        clusters = sel.threads // self.clocks.width
        for cluster in np.unique(clusters).tolist():
            self.clocks.acquire(sel.threads[clusters == cluster], self._cluster_done[cluster])

    # mbarriers

    def mbarrier_init(self, flat: Array) -> None:
        for barrier in flat.tolist():
            self.phases[barrier] = Phases()

    def mbarrier_arrive(self, flat: Array, threads: Threads) -> None:
        clocks, m = self.clocks, self.machine
        opcode = self.findings.instr().opcode
        if ".relaxed" in opcode:
            return
        wide = ".cluster" in opcode.replace("shared::cluster", "")
        time = clocks.tick()
        for barrier in np.unique(flat).tolist():
            phases = self.phases.get(barrier)
            if phases is None:
                continue
            who = threads[flat == barrier]
            blocks = who // m.block_stride
            for block in np.unique(blocks).tolist():
                row = clocks.publish(who[blocks == block], time)
                if block != barrier // m.shared.stride and not wide:
                    if self.strict:
                        continue
                    self._reads_only(row)
                phases.current = joined(phases.current, row)

    def async_arrive(self, flat: Array, op: Operation) -> None:
        """An operation signals mbarriers: its bytes are there, or the thread's cp.async are."""
        clocks, m = self.clocks, self.machine
        time = clocks.tick()
        row = np.zeros(clocks.fixed + clocks.room, np.int32)
        for barrier in np.unique(flat).tolist():
            phases = self.phases.get(barrier)
            if phases is None:
                continue
            row[:] = 0
            if isinstance(op, CopiesArrive):
                owners = op.owners[op.places == barrier]
                row[owners % clocks.width + clocks.at["C"]] = op.note.time
            else:
                agent = clocks.agent(MBARRIER, barrier, barrier // m.shared.stride // m.cluster_size)
                if len(row) < clocks.fixed + clocks.room:
                    row = np.zeros(clocks.fixed + clocks.room, np.int32)
                row[clocks.column(agent)] = time
            phases.current = joined(phases.current, row)

    def mbarrier_phase(self, flat: Array) -> None:
        for barrier in flat.tolist():
            phases = self.phases.get(barrier)
            if phases is not None:
                phases.done[phases.parity] = phases.current
                phases.current = None
                phases.parity ^= 1

    def mbarrier_pass(self, flat: Array, parity: Array, threads: Threads) -> None:
        if ".relaxed" in self.findings.instr().opcode:
            return
        for barrier in np.unique(flat).tolist():
            phases = self.phases.get(barrier)
            if phases is None:
                continue
            mine = flat == barrier
            for p in np.unique(parity[mine]).tolist():
                row = phases.done[int(p)]
                if row is not None:
                    self.clocks.acquire(threads[mine & (parity == p)], row)


def _synchronises(opcode: str) -> bool:
    words = opcode.split(".")
    if words[0] in ("fence", "membar"):
        return "proxy" not in words and "mbarrier_init" not in words
    return words[0] in ("atom", "red", "ld", "st") and any(w in ("acquire", "release", "acq_rel") for w in words)
