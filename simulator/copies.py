"""Meanings of asynchronous copies without tensor maps: cp.async and cp.async.bulk (PTX ISA 9.0 §9.7.9.25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Reg
from . import memory
from .asynchrony import Operation
from .atomics import OPERATIONS, update_function
from .barrier_ops import mbarrier_places, per_thread, touch
from .data_movement import vector_of
from .decode import TYPE_SIZE, TYPE_VIEW, VIEWS, Action, Form, meaning
from .faults import Fault, Misaligned, OutOfBounds
from .selection import Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]


class ThreadCopy(Operation):
    """cp.async: every thread copies `size` bytes of which the first `valid` come from global memory and the rest are zeros.
    `sources` and `places` are [n, threads]."""

    def __init__(self, m: Machine, threads: Array, sources: Array, places: Array, valid: Array, size: int):
        super().__init__("cp.async", threads)
        self.machine, self.sources, self.places, self.valid, self.size = m, sources, places, valid, size

    def execute(self, pieces: NDArray[np.intp]) -> None:
        m, size = self.machine, self.size
        whole = len(pieces) == len(self.owners)
        pick: Any = slice(None) if whole else pieces
        sources, places, valid = self.sources[:, pick], self.places[:, pick], self.valid[:, pick]
        threads = self.owners[pick]
        m.observe("async store", "shared", places, size, threads)
        element = min(size, 8)
        if (valid == size).all():
            m.observe("async load", "global", sources, size, threads)
            m.shared.store(places, m.memory.load(sources, element, size // element, threads), element)
            return
        for row in range(len(sources)):
            for count in np.unique(valid[row]):
                chosen = np.nonzero(valid[row] == count)[0]
                data = np.zeros((1, size, len(chosen)), np.uint8)
                if count:
                    m.observe("async load", "global", sources[row : row + 1, chosen], int(count), threads[chosen])
                    data[:, :count] = m.memory.load(sources[row : row + 1, chosen], 1, int(count), threads[chosen], 1)
                m.shared.store(places[row : row + 1, chosen], data, 1)


class CopiesArrive(Operation):
    """cp.async.mbarrier.arrive: arrives once the thread's earlier cp.async have completed."""

    signals = True

    def __init__(self, m: Machine, threads: Array, places: Array):
        super().__init__("cp.async", threads)
        self.machine, self.places = m, places

    def execute(self, pieces: NDArray[np.intp]) -> None:
        m = self.machine
        m.pending.flush("cp.async", self.owners[pieces])
        one = np.ones(len(pieces), np.int64)
        m.mbarriers.update(self.places[pieces], one, 0 * one)


@meaning("cp.async.ca", "cp.async.cg", dests=(), same=(2,))
def copy_async(form: Form) -> Action:
    """`[dst], [src], size {, src-size | ignore-src} {, policy}`"""
    size = form.immediate(2)
    if size not in ((16,) if form.has("cg") else (4, 8, 16)):
        raise form.bad(f"'{form.opcode}' cannot copy {size} bytes")
    dst, src = form.address(0), form.address(1)
    given = None
    ignore = False
    last = form.arity - (1 if form.has("L2::cache_hint") else 0)
    if last > 3:
        operand = form.operands[3]
        ignore = isinstance(operand, Reg) and form.reg_class(operand) == "pred"
        given = form.source(3, "pred" if ignore else "u32")

    def run(m: Machine, sel: Selection) -> None:
        shape = (form.count, sel.count)
        places = m.flatten(np.broadcast_to(dst(m, sel), shape), sel, size, size, "cp.async", False)
        sources = np.broadcast_to(src(m, sel), shape).astype(np.uint64)
        if (sources & np.uint64(size - 1)).any():
            at, thread = np.argwhere(sources & np.uint64(size - 1))[0]
            raise Misaligned(
                f"cp.async of {size} bytes from the misaligned global address 0x{int(sources[at, thread]):x}",
                int(at),
                int(sel.threads[thread]),
            )
        if given is None:
            valid = np.full(shape, size)
        elif ignore:
            valid = np.where(np.broadcast_to(given(m, sel), shape), 0, size)
        else:
            valid = np.broadcast_to(given(m, sel), shape).astype(np.int64)
            if (valid > size).any():
                raise Fault(f"cp.async of {size} bytes with a source size of {int(valid.max())}", 0, sel.first)
        m.pending.issue(ThreadCopy(m, sel.threads, sources, places, valid, size))

    return run


@meaning("cp.async.commit_group", dests=(), fuse=False)
def commit_copies(form: Form) -> Action:
    return lambda m, sel: m.pending.commit("cp.async", sel.threads)


@meaning("cp.async.wait_group", dests=(), fuse=False)
def wait_copies(form: Form) -> Action:
    newest = form.immediate(0)
    return lambda m, sel: m.pending.wait("cp.async", sel.threads, newest)


@meaning("cp.async.wait_all", dests=(), fuse=False)
def wait_all_copies(form: Form) -> Action:
    def run(m: Machine, sel: Selection) -> None:
        m.pending.commit("cp.async", sel.threads)
        m.pending.wait("cp.async", sel.threads, 0)

    return run


@meaning("cp.async.mbarrier.arrive", dests=(), fuse=False)
def copies_arrive(form: Form) -> Action:
    """Without .noinc the barrier expects one arrival more in this phase, which makes it neutral (§9.7.13.15.14)."""
    place, extra = mbarrier_places(form, 0), not form.has("noinc")

    def run(m: Machine, sel: Selection) -> None:
        flat = place(m, sel)
        touch(m, flat, sel)
        if extra:
            one = np.ones(sel.count, np.int64)
            m.mbarriers.update(flat, -one, 0 * one)
        m.pending.issue(CopiesArrive(m, sel.threads, flat), grouped=False)

    return run


class BulkOperation(Operation):
    """Bulk and tensor copies: a piece is one thread's copy, `reads[k]` gives its data, `writes[k]` takes them."""

    def __init__(self, threads: Array, signals: bool):
        super().__init__("bulk", threads)
        self.signals = signals
        self.barriers: list[int] = []
        """Where a piece signals its (first) completion; empty where bulk groups are waited for."""
        self.reads: list[Callable[[], Array]] = []
        self.writes: list[Callable[[Array], None]] = []
        self._held: dict[int, Array] = {}
        self.piece = 0
        """The piece at work."""

    def capture(self, pieces: NDArray[np.intp]) -> None:
        for k in pieces.tolist():
            if k not in self._held:
                self.piece = k
                self._held[k] = self.reads[k]().copy()

    def execute(self, pieces: NDArray[np.intp]) -> None:
        for k in pieces.tolist():
            self.piece = k
            data = self._held.pop(k, None)
            self.writes[k](self.reads[k]() if data is None else data)


def destinations(m: Machine, thread: int, place: int, barrier: int, mask: int | None) -> list[tuple[int, int]]:
    """(place, barrier) per block that a copy to shared memory reaches; with a multicast `mask`, at the same offsets in every block of the
    cluster that it names."""
    if mask is None:
        return [(place, barrier)]
    stride = m.shared.stride
    base = int(m.cluster_base[thread])
    if mask >> m.cluster_size:
        raise OutOfBounds(f"multicast to blocks 0x{mask:x} of a cluster of {m.cluster_size}", 0, thread)
    return [
        (base + rank * stride + place % stride, base + rank * stride + barrier % stride)
        for rank in range(m.cluster_size)
        if mask >> rank & 1
    ]


def deliver(
    m: Machine, thread: int, targets: list[tuple[int, int]], data: Array, scatter: Callable[[int, Array], None]
) -> None:
    """Writes `data` (bytes) at every target for a thread and completes that many bytes at its barrier."""
    for place, barrier in targets:
        m.pending.signalled = barrier
        m.observe("async store", "shared", np.array([[place]]), len(data), np.array([thread]))
        scatter(place, data)
    barriers = np.array([barrier for _, barrier in targets], np.int64)
    m.mbarriers.update(barriers, 0 * barriers, np.full(len(targets), -len(data), np.int64))


def _check_bulk(size: int, addresses: tuple[int, ...], thread: int) -> None:
    if size % 16 or any(a % 16 for a in addresses):
        shown = ", ".join(f"0x{a:x}" for a in addresses)
        raise Misaligned(
            f"a bulk copy of {size} bytes between {shown}: size and addresses must be multiples of 16", 0, thread
        )


@meaning("cp.async.bulk", "cp.reduce.async.bulk", dests=(), fuse=False)
def bulk_copy(form: Form) -> Action:
    """global -> shared and shared -> shared of the cluster (signal an mbarrier), shared -> global (bulk groups)."""
    words = form.words
    spaces = [w for w in words if w in ("global", "shared::cta", "shared::cluster")]
    to, source = spaces[0], spaces[1]
    dst, src = form.address(0), form.address(1)
    size = form.source([form.operands[2]], "u32")
    operation = form.pick(OPERATIONS) if words[1] == "reduce" else ""
    element = form.type if operation else ""
    if operation and to != "global":
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    update = update_function(operation, element) if operation else None
    signals = to != "global"
    barrier = mbarrier_places(form, 3) if signals else None
    mask = form.source([form.operands[4]], "u16") if form.has("multicast::cluster") else None

    def run(m: Machine, sel: Selection) -> None:
        shape = (1, sel.count)
        to_at, from_at = np.broadcast_to(dst(m, sel), shape)[0], np.broadcast_to(src(m, sel), shape)[0]
        sizes = per_thread(size(m, sel), sel).astype(np.int64)
        op = BulkOperation(sel.threads, signals)
        barriers = None if barrier is None else barrier(m, sel)
        masks = None if mask is None else per_thread(mask(m, sel), sel)
        for k, thread in enumerate(sel.threads.tolist()):
            count, here, there = int(sizes[k]), int(from_at[k]), int(to_at[k])
            _check_bulk(count, (here, there), thread)
            one = m.select(sel.threads[k : k + 1])
            op.reads.append(_reader(m, one, source, here, count))
            if barriers is None:
                op.writes.append(_global_writer(m, thread, there, element, update))
                continue
            place = int(
                m.flatten(np.array([[there]]), one, max(count, 16), 16, "bulk copy", to == "shared::cluster")[0, 0]
            )
            targets = destinations(m, thread, place, int(barriers[k]), None if masks is None else int(masks[k]))
            op.barriers.append(targets[0][1] if targets else int(barriers[k]))
            op.writes.append(
                lambda data, thread=thread, targets=targets: deliver(
                    m, thread, targets, data, lambda at, d: _put(m, at, d)
                )
            )
        m.pending.issue(op, grouped=not signals)

    return run


def _put(m: Machine, place: int, data: Array) -> None:
    m.shared.data[place : place + len(data)] = data


def _reader(m: Machine, one: Selection, space: str, address: int, count: int) -> Callable[[], Array]:
    if space == "global":

        def read_global() -> Array:
            found = m.memory.find(address, count)
            if found is None:
                raise OutOfBounds(
                    f"bulk copy of {count} bytes out of bounds at 0x{address:x}: {m.memory.describe(address + count - 1)}",
                    0,
                    one.first,
                )
            m.observe("async load", "global", np.array([[address]]), count, one.threads)
            return found.data[address - found.address :][:count]

        return read_global
    place = int(m.flatten(np.array([[address]]), one, max(count, 16), 16, "bulk copy", False)[0, 0])

    def read_shared() -> Array:
        m.observe("async load", "shared", np.array([[place]]), count, one.threads)
        return m.shared.data[place : place + count]

    return read_shared


def _global_writer(m: Machine, thread: int, address: int, type: str, update: Any) -> Callable[[Array], None]:
    def write(data: Array) -> None:
        found = m.memory.find(address, len(data))
        if found is None:
            raise OutOfBounds(
                f"bulk copy of {len(data)} bytes out of bounds at 0x{address:x}: {m.memory.describe(address + len(data) - 1)}",
                0,
                thread,
            )
        memory.Memory.check_writable(found, np.array([thread]))
        kind = "async store" if update is None else "async atomic"
        m.observe(kind, "global", np.array([[address]]), len(data), np.array([thread]))
        place = found.data[address - found.address :][: len(data)]
        if update is None:
            place[:] = data
            return
        dtype = VIEWS[TYPE_VIEW[type]][1]
        new = np.ascontiguousarray(data).view(dtype)
        place[:] = np.ascontiguousarray(update(place.copy().view(dtype), new, new)).view(np.uint8)

    return write


@meaning("st.async", dests=(), fuse=False)
def store_async(form: Form) -> Action:
    """`st.async … [addr], value, [mbar]`: stores to a block of the cluster and completes the bytes at its barrier (§9.7.9.12)."""
    size, vector = TYPE_SIZE[form.type], vector_of(form)
    address, value, barrier = form.address(0), form.source(1, form.type), mbarrier_places(form, 2)

    def run(m: Machine, sel: Selection) -> None:
        addresses = np.broadcast_to(address(m, sel), (1, sel.count))
        places = m.flatten(addresses, sel, size * vector, size * vector, "st.async", True)[0]
        values = np.array(np.broadcast_to(value(m, sel), (vector, sel.count)).T).view(np.uint8)
        barriers = barrier(m, sel)
        op = BulkOperation(sel.threads, True)
        for k in range(sel.count):
            target = [(int(places[k]), int(barriers[k]))]
            op.barriers.append(int(barriers[k]))
            op.reads.append(lambda k=k: values[k])
            thread = int(sel.threads[k])
            op.writes.append(
                lambda data, thread=thread, target=target: deliver(
                    m, thread, target, data, lambda at, d: _put(m, at, d)
                )
            )
        m.pending.issue(op, grouped=False)

    return run


@meaning("cp.async.bulk.commit_group", dests=(), fuse=False)
def commit_bulk(form: Form) -> Action:
    return lambda m, sel: m.pending.commit("bulk", sel.threads)


@meaning("cp.async.bulk.wait_group", dests=(), fuse=False)
def wait_bulk(form: Form) -> Action:
    newest, read = form.immediate(0), form.has("read")
    return lambda m, sel: m.pending.wait("bulk", sel.threads, newest, read)
