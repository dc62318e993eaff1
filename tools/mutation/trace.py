"""A run as a log: what threads accessed, issued, waited for and fenced, in the order in which it happened, and a fingerprint of what each thread did.

`equivalent.py` reads these. It is no second judge: it knows nothing of who knows what, only what came between what in one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dialects.ptx_program import Instr
from ...simulator import Observer
from ...simulator.asynchrony import NO_GROUP, Operation
from ...simulator.copies import BulkOperation
from ...simulator.decode import Step
from ...simulator.machine import Machine
from ...simulator.matrix_ops import WarpgroupMma
from ...simulator.register_watch import is_wgmma, reads_and_writes
from ...simulator.selection import WARP, Selection

Array = NDArray[Any]
GENERIC = ("load", "store", "atomic", "touch", "init")
WRITES = ("store", "atomic", "init")
SHARED, GLOBAL, REGISTERS = 0, 1, 2
SPACE_BITS = 44
NEVER = 1 << 60


def places(space: int, start: Array, size: int) -> Array:
    """The bytes of accesses as numbers that are different for every space."""
    return ((np.asarray(start, np.int64).reshape(-1, 1) + np.arange(size)) | (space << SPACE_BITS)).reshape(-1)


@dataclass
class Event:
    """Something that happened at `time`, by the step at `position`. `kind`: one of GENERIC with `where` (bytes) and `who` (the thread of each byte); 'fence' (`detail`: its words),
    'barrier' (a whole block met; `detail`: its number), 'meet' (a warp's lanes together), 'wait', 'pass' (a phase of `where` mbarriers; `detail`: how
    many phases had completed), 'arrive' (the same), 'issue' (`detail`: the Flight)."""

    time: int
    kind: str
    position: int
    who: Array
    where: Array
    detail: Any = None


@dataclass
class Flight:
    """An asynchronous operation: who issued it when (per owner), the bytes that it read and wrote (with the thread that asked
    for each), the mbarriers that it signals with the phase of each, and when each owner's wait covered it (all of it, or
    what it reads)."""

    kind: str
    owners: Array
    groups: Array
    issued: int
    waited: Array
    reads_waited: Array
    signals: Array
    phases: Array
    read: list[Array] = field(default_factory=list)
    written: list[Array] = field(default_factory=list)
    readers: list[Array] = field(default_factory=list)
    writers: list[Array] = field(default_factory=list)

    def bytes_of(self, written: bool) -> Array:
        parts = self.written if written else self.read
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @property
    def covered(self) -> int:
        """When the last owner's wait covered it."""
        return int(self.waited.max())

    def of_blocks(self, stride: int) -> Iterator[Flight]:
        """The parts that threads of one block each have issued, of `stride` threads: blocks run side by side, and wait each for itself."""
        first = self.owners * (128 if self.kind == "wgmma" else 1)
        blocks = np.unique(first // stride).tolist()
        if len(blocks) == 1:
            yield self
            return
        for block in blocks:
            mine = first // stride == block
            parts = [
                [data[who // stride == block] for data, who in zip(bytes_, threads)]
                for bytes_, threads in ((self.read, self.readers), (self.written, self.writers))
            ]
            yield replace(
                self, owners=self.owners[mine], groups=self.groups[mine], waited=self.waited[mine], reads_waited=self.reads_waited[mine],
                read=parts[0], written=parts[1],
                readers=[who[who // stride == block] for who in self.readers], writers=[who[who // stride == block] for who in self.writers],
            )  # fmt: skip

    @property
    def reads_covered(self) -> int:
        """The same for a wait that says only that it has read."""
        return int(np.minimum(self.waited, self.reads_waited).max())


class Trace(Observer):
    """Keeps the log of each machine of a launch. `fingerprints`: of how each thread synchronised, but for its arrivals at mbarriers, by machine;
    `plain`: the same without the issue of cp.async, whoever waits for them."""

    def __init__(self) -> None:
        self.logs: list[list[Event]] = []
        self.flights: list[list[Flight]] = []
        self.machines: list[Machine] = []
        self.fingerprints: list[Array] = []
        self.plain: list[Array] = []
        self._writes: list[tuple[Array, Array, Array, Array]] = []
        self._op: Operation | None = None

    # The machine

    def begin(self, machine: Machine) -> None:
        self._machine = machine
        self.log: list[Event] = []
        self.logs.append(self.log)
        self.flights.append([])
        self.machines.append(machine)
        self.print = np.zeros(machine.thread_count, np.uint64)
        self.fingerprints.append(self.print)
        self.plain.append(np.zeros(machine.thread_count, np.uint64))
        self._phases: dict[int, int] = {}
        self._barriers = np.zeros(machine.block_count, np.int64)  # how often each block has met
        names: dict[str, None] = {}
        for step in machine.code.steps:
            for instr in step.instrs:
                if is_wgmma(instr):
                    names.update(dict.fromkeys(n for part in reads_and_writes(instr) for n in part))
        self._registers = {name: k for k, name in enumerate(names) if machine.code.entry.registers[name] == "b32"}
        self._touched = [self._of_step(step) for step in machine.code.steps]
        collective = [step.meaning.unit == WARP for step in machine.code.steps]
        machine.watched = [bool(r or w) or c for (r, w), c in zip(self._touched, collective)]
        self._collective = collective

    def _of_step(self, step: Step) -> tuple[list[int], list[int]]:
        if is_wgmma(step.instrs[0]):
            return [], []
        reads = [self._registers[n] for i in step.instrs for n in reads_and_writes(i)[0] if n in self._registers]
        writes = [self._registers[n] for i in step.instrs for n in reads_and_writes(i)[1] if n in self._registers]
        return reads, writes

    def _add(self, kind: str, who: Any, where: Any = (), detail: Any = None) -> Event:
        event = Event(len(self.log), kind, self._machine.position, np.asarray(who, np.int64), np.asarray(where, np.int64), detail)
        self.log.append(event)
        return event

    def _stamp(self, threads: Array, *values: Any) -> None:
        """Mix values, [threads] or one for all, into both of the threads' fingerprints."""
        for prints in (self.print, self.plain[-1]):
            prints[threads] = mixed(prints[threads], *values)

    def _wrote(self, machine: Machine, addresses: Array, values: Array, threads: Array) -> None:
        blocks = threads // machine.block_stride
        count = (len(threads),)
        self._writes.append(
            (
                np.broadcast_to(addresses, count).astype(np.int64),
                np.broadcast_to(values, count),
                blocks + (len(self.logs) << 32),
                self._barriers[blocks],
            )
        )

    def writes(self) -> Array:
        """Numbers that stand each for a write to global memory, its address and value; without those that a thread of the same block replaces after
        a barrier of the whole block."""
        if not self._writes:
            return np.zeros(0, np.uint64)
        addresses, values, blocks, times = (np.concatenate(part) for part in zip(*self._writes))
        _, place = np.unique(np.stack([addresses, blocks]), axis=1, return_inverse=True)
        last = np.full(place.max() + 1, -1, np.int64)
        np.maximum.at(last, place.reshape(-1), times)
        return np.unique(values[times == last[place.reshape(-1)]])

    def before(self, machine: Machine, step: Step, sel: Selection) -> None:
        reads, writes = self._touched[machine.position]
        for kind, rows in (("load", reads), ("store", writes)):
            if rows:
                starts = np.array(rows)[:, None] * machine.thread_count + sel.threads
                self._add(kind, np.broadcast_to(sel.threads, starts.shape).reshape(-1), places(REGISTERS, starts, 1))

    def after(self, machine: Machine, step: Step, sel: Selection) -> None:
        if self._collective[machine.position]:
            self._add("meet", sel.threads)

    # Memory

    def access(
        self, machine: Machine, kind: str, space: str, addresses: Array, size: int, threads: Array, values: Array | None = None
    ) -> None:
        if space == "param" or not addresses.size:
            return
        where = places(SHARED if space == "shared" else GLOBAL, addresses, size)
        rows = addresses.reshape(-1, addresses.shape[-1])
        if self._op is not None:
            flight = self._op.note
            bytes_, who = (flight.read, flight.readers) if kind == "async load" else (flight.written, flight.writers)
            bytes_.append(where)
            who.append(np.broadcast_to(threads[:, None], (*rows.shape, size)).reshape(-1))
            if kind != "async load" and space == "global":
                for row in rows:
                    self._wrote(machine, row, mixed(row, size), threads)
            return
        self._add(kind, np.broadcast_to(threads[:, None], (*rows.shape, size)).reshape(-1), where)
        if space == "global" and kind != "load":
            for k, row in enumerate(rows):
                if values is None:
                    self._wrote(machine, row, mixed(row), threads)
                    continue
                # Byte by byte: wide stores and narrow ones may write the same.
                elements = np.broadcast_to(values, (len(rows), values.shape[1], len(threads)))[k]
                for offset, data in enumerate(np.ascontiguousarray(elements.T).view(np.uint8).T):
                    self._wrote(machine, row + offset, mixed(row + offset, data), threads)

    def sync(self, machine: Machine, instr: Instr, threads: Array) -> None:
        self._add("fence", threads, (), instr.opcode.split("."))
        self._stamp(threads, hash_of(instr.opcode))

    def issued(self, machine: Machine, operation: Operation) -> None:
        never = np.full(len(operation.owners), NEVER)
        signals = np.zeros(0, np.int64)
        if isinstance(operation, BulkOperation) and (operation.groups == NO_GROUP).all():
            signals = np.asarray(operation.barriers, np.int64)
        phases = np.array([self._phases.get(b, 0) for b in signals.tolist()], np.int64)
        flight = Flight(operation.kind, operation.owners, operation.groups.copy(), len(self.log), never, never.copy(), signals, phases)
        operation.note = flight
        if isinstance(operation, WarpgroupMma):
            threads = (operation.owners[:, None] * 128 + np.arange(128)).reshape(-1)
            reads, writes = reads_and_writes(machine.code.steps[machine.position].instrs[0])
            for names, bytes_, who in ((reads, flight.read, flight.readers), (writes, flight.written, flight.writers)):
                rows = [self._registers[n] for n in names if n in self._registers]
                if rows:
                    who.append(np.tile(threads, len(rows)))
                    bytes_.append(places(REGISTERS, np.array(rows)[:, None] * machine.thread_count + threads, 1))
            self._stamp(threads, hash_of("wgmma"))
        elif operation.kind == "cp.async":
            self.print[operation.owners] = mixed(self.print[operation.owners], hash_of(operation.kind))
        else:
            self._stamp(operation.owners, hash_of(operation.kind))
        self.flights[-1].append(flight)
        self._add("issue", operation.owners, (), flight)

    def working(self, machine: Machine, operation: Operation | None) -> None:
        self._op = operation

    def committed(self, machine: Machine, kind: str, owners: Array) -> None:
        self._stamp(self._threads(kind, owners), hash_of("commit"))

    def waited(self, machine: Machine, kind: str, owners: Array, newest: int, read: bool) -> None:
        limit = np.full(len(machine.pending.groups[kind]), -1, np.int64)
        limit[owners] = machine.pending.groups[kind][owners] - newest
        now = len(self.log)
        told: list[Array] = []
        for flight in self.flights[-1]:
            if flight.kind == kind:
                seen = flight.reads_waited if read else flight.waited
                due = (flight.groups != NO_GROUP) & (flight.groups < limit[flight.owners]) & (seen == NEVER)
                seen[due] = now
                told.append(flight.owners[due])
        threads, plain = self._threads(kind, owners), self.plain[-1]
        self._add("wait", threads)
        plain[threads] = mixed(plain[threads], hash_of("wait"), newest)
        if told:  # a wait for nothing is nothing
            threads = self._threads(kind, np.unique(np.concatenate(told)))
            self.print[threads] = mixed(self.print[threads], hash_of("wait"), newest)

    @staticmethod
    def _threads(kind: str, owners: Array) -> Array:
        return (owners[:, None] * 128 + np.arange(128)).reshape(-1) if kind == "wgmma" else owners

    # Barriers

    def blocks_sync(self, machine: Machine, sel: Selection) -> None:
        self._barriers[sel.blocks[0]] += 1
        for block in sel.blocks[0].tolist():
            self._add("barrier", sel.threads[sel.threads // machine.block_stride == block], (), 0)
        self._stamp(sel.threads, hash_of("barrier"), 0)

    def barrier_arrive(self, machine: Machine, block: int, number: int, threads: Array) -> None:
        self._stamp(threads, hash_of("barrier"), number)

    def barrier_complete(self, machine: Machine, block: int, number: int, waiting: Sequence[Selection]) -> None:
        who = np.concatenate([sel.threads for sel in waiting]) if waiting else np.zeros(0, np.int64)
        alive = machine.alive[block * machine.block_stride : (block + 1) * machine.block_stride].sum()
        whole = len(who) == alive
        self._barriers[block] += whole
        self._add("barrier" if whole else "part", who, (), number)

    def cluster_arrive(self, machine: Machine, sel: Selection, relaxed: bool) -> None:
        self._stamp(sel.threads, hash_of("cluster"), relaxed)

    def mbarrier_init(self, machine: Machine, flat: Array, threads: Array) -> None:
        self._add("init", np.repeat(threads, 8), places(SHARED, flat, 8))
        self._stamp(threads, hash_of("init"), flat)
        for barrier in flat.tolist():
            self._phases[barrier] = 0

    def mbarrier_touch(self, machine: Machine, flat: Array, threads: Array) -> None:
        self._add("touch", np.repeat(threads, 8), places(SHARED, flat, 8))

    def mbarrier_arrive(self, machine: Machine, flat: Array, threads: Array) -> None:
        if self._op is None:
            self._add("arrive", threads, flat, [self._phases.get(b, 0) for b in flat.tolist()])

    def mbarrier_phase(self, machine: Machine, flat: Array) -> None:
        for barrier in flat.tolist():
            self._phases[barrier] = self._phases.get(barrier, 0) + 1

    def mbarrier_pass(self, machine: Machine, flat: Array, parity: Array, threads: Array) -> None:
        done = [self._phases.get(b, 0) for b in flat.tolist()]
        # The phase passed is the last complete one of this parity: phase n has the parity n & 1.
        passed = [n - 1 if (n - 1) & 1 == int(p) else n - 2 for n, p in zip(done, parity.tolist())]
        self._add("pass", threads, flat, passed)
        self._stamp(threads, hash_of("pass"), flat, parity)


def mixed(start: Array, *values: Any) -> Array:
    """Numbers that depend on all of several, elementwise."""
    mixed = np.asarray(start).astype(np.uint64)
    for value in values:
        mixed = (mixed ^ np.asarray(value).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (mixed >> np.uint64(29))
    return mixed


def hash_of(text: str) -> int:
    """A number for a word, the same in every run."""
    value = 0
    for byte in text.encode():
        value = (value * 131 + byte) & 0xFFFFFFFFFFFF
    return value
