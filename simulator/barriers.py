"""Barriers: named barriers of a block, the cluster barrier, and mbarriers in shared memory.

**Named barriers** (PTX ISA 9.0 §9.7.13.1): 16 per block. `bar.sync` arrives and waits, `bar.arrive` only arrives; a barrier completes when the
given number of threads (all live threads of the block where none is given) has arrived, and is then ready for reuse. Arrivals count per
warp, as warps of 32.

**The cluster barrier** (§9.7.13.3): all live threads of all blocks of the cluster arrive, then `wait` lets through.

**mbarriers** (§9.7.13.15) live where the program puts them, as 64-bit words in shared memory. The ISA leaves their format open; ours is

    bits 0-19   arrivals still pending in the current phase
    bits 20-39  arrivals expected in each phase
    bits 40-60  transaction count (bytes expected and not yet complete) + 2^20
    bit  61     parity of the current phase
    bit  62     1: this word is an mbarrier

A phase completes when both counts are zero; then the expected arrivals are pending again and the parity flips. A wait on
parity p passes when the phase of parity p has completed, that is, when the current phase has the other parity; so a
fresh barrier, in its phase of parity 0, lets a wait on parity 1 through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import memory
from .faults import BarrierMisuse, ByteCountOverflow
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .machine import Machine, Parked

ALL = -1


@dataclass(slots=True)
class Waiting:
    """Threads of one block at a named barrier: where they go on, and how the reduction's result (bar.red) reaches them."""

    position: int
    selection: Selection
    deliver: Callable[[Selection, int], None] | None = None


class NamedBarriers:
    """The named barriers of all resident blocks."""

    COUNT = 16

    def __init__(self, machine: Machine):
        self.machine = machine
        self.arrived = np.zeros((machine.block_count, self.COUNT), np.int64)
        self.expected = np.zeros((machine.block_count, self.COUNT), np.int64)
        self.waiting: dict[tuple[int, int], list[Waiting]] = {}
        self._popc: dict[tuple[int, int], list[int]] = {}

    def _live(self, block: int) -> int:
        m = self.machine
        return int(m.alive[block * m.block_stride : (block + 1) * m.block_stride].sum())

    def _weight(self, threads: NDArray[np.intp]) -> int:
        """Arrivals that `threads` of one block stand for: 32 for every warp that is there with all its live threads."""
        warps, counts = np.unique(threads // WARP, return_counts=True)
        alive = self.machine.alive.reshape(-1, WARP)[warps].sum(1)
        return int(np.where(counts == alive, WARP, counts).sum())

    def whole_blocks_sync(self, sel: Selection, number: int, count: int) -> bool:
        """Whether `bar.sync` by all of `sel` completes at once in every block it touches, which needs no bookkeeping."""
        blocks, counts = sel.blocks
        if self.arrived[blocks, number].any():
            return False
        m = self.machine
        if count != ALL:
            return m.block_threads % WARP == 0 and bool((counts == count).all())
        alive = m.alive.reshape(m.block_count, -1)[blocks].sum(1)
        return bool((alive == counts).all())

    def arrive(
        self,
        sel: Selection,
        numbers: NDArray[Any],
        counts: NDArray[Any] | None,
        position: int | None,
        values: NDArray[np.bool_] | None = None,
        deliver: Callable[[Selection, int], None] | None = None,
    ) -> None:
        """`sel` arrives at barriers `numbers` [threads]; `counts` [threads] is None for all threads of the block; `position` is where
        waiting threads go on, None for `bar.arrive`. `values` and `deliver` belong to bar.red."""
        m = self.machine
        m.progress += 1
        threads = sel.threads
        keys = m.block_of[threads] * self.COUNT + numbers.astype(np.int64)
        if (numbers >= self.COUNT).any():
            raise BarrierMisuse(f"barrier {int(numbers.max())}: a block has barriers 0 to {self.COUNT - 1}", 0, sel.first)
        for key in np.unique(keys):
            mine = keys == key
            block, number = divmod(int(key), self.COUNT)
            want = ALL if counts is None else int(counts[mine][0])
            if want != ALL and (want % WARP or want <= 0):
                raise BarrierMisuse(f"barrier {number}: a count of {want} is not a positive multiple of {WARP}", 0, sel.first)
            if self.arrived[block, number] == 0:
                self.expected[block, number] = want
            elif self.expected[block, number] != want:
                was = int(self.expected[block, number])
                raise BarrierMisuse(
                    f"barrier {number} is entered with a count of {self._words(want)} while others wait with {self._words(was)}",
                    0,
                    int(threads[mine][0]),
                )
            part = m.select(threads[mine])
            self.arrived[block, number] += self._weight(part.threads) if want != ALL else part.count
            if m.observer is not None:
                m.observer.barrier_arrive(m, block, number, part.threads)
            if position is not None:
                self.waiting.setdefault((block, number), []).append(Waiting(position, part, deliver))
            if values is not None:
                self._popc.setdefault((block, number), []).append(int(values[mine].sum()))
            self._check(block, number)

    @staticmethod
    def _words(count: int) -> str:
        return "all threads" if count == ALL else str(count)

    def _check(self, block: int, number: int) -> None:
        want = int(self.expected[block, number])
        have = int(self.arrived[block, number])
        if have == 0 or have < (self._live(block) if want == ALL else want):
            return
        if want != ALL and have > want:
            raise BarrierMisuse(f"barrier {number} expects {want} threads, but {have} have arrived")
        self.arrived[block, number] = 0
        total = sum(self._popc.pop((block, number), []))
        entries = self.waiting.pop((block, number), [])
        if self.machine.observer is not None:
            self.machine.observer.barrier_complete(self.machine, block, number, [e.selection for e in entries])
        for entry in entries:
            if entry.deliver is not None:
                entry.deliver(entry.selection, total)
            self.machine.push(entry.position, entry.selection)

    def on_exit(self, sel: Selection) -> None:
        if not self.waiting:
            return
        for block in sel.blocks[0]:
            for number in range(self.COUNT):
                if self.expected[block, number] == ALL and (int(block), number) in self.waiting:
                    self._check(int(block), number)

    def describe(self) -> Iterator[tuple[int, Selection, str]]:
        """(position, threads, what they wait for) of all who wait."""
        for (block, number), entries in self.waiting.items():
            want = int(self.expected[block, number])
            have = int(self.arrived[block, number])
            need = self._live(block) if want == ALL else want
            for entry in entries:
                yield (
                    entry.position - 1,
                    entry.selection,
                    f"waiting at barrier {number}, where {have} of {need} have arrived",
                )


class ClusterBarrier:
    """The barrier of every resident cluster."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.clusters = machine.block_count // machine.cluster_size
        self.cluster_of = machine.block_of // machine.cluster_size
        self.phase = np.zeros(self.clusters, np.int64)
        self.arrived = np.zeros(machine.thread_count, bool)
        self.arrival_phase = np.full(machine.thread_count, -1, np.int64)
        self.waiting: list[tuple[int, Selection]] = []

    def arrive(self, sel: Selection, relaxed: bool = False) -> None:
        if self.arrived[sel.key].any():
            raise BarrierMisuse("barrier.cluster.arrive a second time without barrier.cluster.wait in between", 0, sel.first)
        self.machine.progress += 1
        if self.machine.observer is not None:
            self.machine.observer.cluster_arrive(self.machine, sel, relaxed)
        self.arrived[sel.key] = True
        self.arrival_phase[sel.key] = self.phase[self.cluster_of[sel.key]]
        self._check()

    def _missing(self) -> NDArray[np.intp]:
        missing = self.machine.alive & ~self.arrived
        return np.bincount(self.cluster_of[missing], minlength=self.clusters)

    def _check(self) -> None:
        started = np.bincount(self.cluster_of[self.arrived], minlength=self.clusters) > 0
        done = started & (self._missing() == 0)
        if not done.any():
            return
        self.phase[done] += 1
        if self.machine.observer is not None:
            for cluster in np.nonzero(done)[0]:
                self.machine.observer.cluster_complete(self.machine, int(cluster))
        self.arrived[done[self.cluster_of]] = False
        waiting, self.waiting = self.waiting, []
        for position, sel in waiting:
            self.wait(sel, position)

    def wait(self, sel: Selection, position: int) -> None:
        """Threads whose phase has completed go on at `position`; the others wait."""
        if (self.arrival_phase[sel.key] < 0).any():
            raise BarrierMisuse("barrier.cluster.wait without barrier.cluster.arrive before it", 0, sel.first)
        done = self.phase[self.cluster_of[sel.key]] > self.arrival_phase[sel.key]
        passed = sel if done.all() else self.machine.select(sel.threads[done]) if done.any() else None
        if passed is not None:
            if self.machine.observer is not None:
                self.machine.observer.cluster_pass(self.machine, passed)
            self.machine.push(position, passed)
        if passed is sel:
            return
        self.waiting.append((position, self.machine.select(sel.threads[~done])))

    def on_exit(self) -> None:
        if self.arrived.any():
            self._check()

    def describe(self) -> Iterator[tuple[int, Selection, str]]:
        missing = self._missing()
        for position, sel in self.waiting:
            count = int(missing[self.cluster_of[sel.first]])
            yield position - 1, sel, f"waiting at the cluster barrier, where {count} threads have not arrived"


_COUNT_BITS = 20
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_TX_SHIFT = 2 * _COUNT_BITS
_TX_BIAS = 1 << 20
_PARITY_SHIFT = 61
_VALID = 1 << 62
_NOBODY = np.zeros(0, np.intp)


class MBarriers:
    """Operations on mbarriers, vectorised over barriers; `flat` are byte indices into the machine's shared memory."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.flipped = False

    @property
    def _words(self) -> NDArray[np.uint64]:
        return self.machine.shared.view(8)  # type: ignore[return-value]

    def init(self, flat: NDArray[np.int64], counts: NDArray[Any], threads: NDArray[np.intp]) -> None:
        counts = counts.astype(np.int64)
        if (counts < 1).any() or (counts > _COUNT_MASK).any():
            raise BarrierMisuse(f"an mbarrier cannot expect {int(counts.min())} arrivals: 1 to {_COUNT_MASK} are possible")
        if self.machine.observer is not None:
            self.machine.observer.mbarrier_init(self.machine, flat, threads)
        word = _VALID | (_TX_BIAS << _TX_SHIFT) | (counts << _COUNT_BITS) | counts
        self._words[flat >> 3] = word.astype(np.uint64)
        self.machine.progress += 1

    def invalidate(self, flat: NDArray[np.int64]) -> None:
        self.read(flat)
        self._words[flat >> 3] = 0

    def read(self, flat: NDArray[np.int64]) -> NDArray[np.int64]:
        """The words, checked to be mbarriers."""
        words = self._words[flat >> 3].astype(np.int64)
        if not (words & _VALID).all() or (words < 0).any():
            bad = int(flat[np.nonzero((words & _VALID == 0) | (words < 0))[0][0]])
            block, offset = divmod(bad, self.machine.shared.stride)
            raise BarrierMisuse(
                f"there is no mbarrier at shared address 0x{offset:x} of block {self.machine.block_id(block)}",
                hint="initialise it with mbarrier.init, and let a barrier order that before its use",
            )
        return words

    def update(
        self,
        flat: NDArray[np.int64],
        arrivals: NDArray[np.int64],
        bytes_: NDArray[np.int64],
        threads: NDArray[np.intp] | None = None,
    ) -> NDArray[np.int64]:
        """Applies `arrivals` and adds `bytes_` to the transaction counts, barrier by barrier; gives the words before. `threads`: who
        arrives, None where nobody does or an asynchronous operation does."""
        self.machine.progress += 1
        before = self.read(flat)
        places, index = np.unique(flat, return_inverse=True)
        if len(places) == len(flat):
            self._apply(flat, before, arrivals, bytes_, flat, threads)
            return before
        total = np.bincount(index, arrivals, len(places)).astype(np.int64)
        moved = np.bincount(index, bytes_, len(places)).astype(np.int64)
        words = self.read(places)
        if (total <= (words & _COUNT_MASK)).all():
            self._apply(places, words, total, moved, flat, threads)
            return before
        # Arrivals that reach over the end of a phase: one after the other.
        for i in range(len(flat)):
            one = slice(i, i + 1)
            before[one] = self.read(flat[one])
            who = None if threads is None else threads[one]
            self._apply(flat[one], before[one], arrivals[one], bytes_[one], flat[one], who)
        return before

    def _apply(
        self,
        flat: NDArray[np.int64],
        words: NDArray[np.int64],
        arrivals: NDArray[np.int64],
        bytes_: NDArray[np.int64],
        each: NDArray[np.int64],
        threads: NDArray[np.intp] | None,
    ) -> None:
        """`flat` are distinct; `each` are the places of the single arrivals of `threads`."""
        pending = (words & _COUNT_MASK) - arrivals
        expected = (words >> _COUNT_BITS) & _COUNT_MASK
        tx = ((words >> _TX_SHIFT) & (2 * _TX_BIAS - 1)) - _TX_BIAS + bytes_
        if (pending < 0).any():
            k = int(np.nonzero(pending < 0)[0][0])
            raise BarrierMisuse(
                f"{int(arrivals[k])} arrivals at {self._name(int(flat[k]))}, which expects {int(pending[k] + arrivals[k])} more"
            )
        if (np.abs(tx) >= _TX_BIAS).any():
            k = int(np.nonzero(np.abs(tx) >= _TX_BIAS)[0][0])
            raise ByteCountOverflow(
                f"the transaction count of {self._name(int(flat[k]))} would be {int(tx[k])}: at most {_TX_BIAS - 1} are possible"
            )
        observer = self.machine.observer
        if observer is not None and (threads is not None or self.machine.pending.working is not None):
            observer.mbarrier_arrive(self.machine, each, threads if threads is not None else _NOBODY)
        done = (pending == 0) & (tx == 0)
        if observer is not None and done.any():
            observer.mbarrier_phase(self.machine, flat[done])
        parity = ((words >> _PARITY_SHIFT) & 1) ^ done
        pending = np.where(done, expected, pending)
        word = _VALID | (parity << _PARITY_SHIFT) | ((tx + _TX_BIAS) << _TX_SHIFT) | (expected << _COUNT_BITS) | pending
        self._words[flat >> 3] = word.astype(np.uint64)
        if done.any():
            self.flipped = True

    def _name(self, flat: int) -> str:
        return f"the mbarrier at shared address 0x{flat % self.machine.shared.stride:x}"

    @staticmethod
    def parity_of(state: NDArray[Any]) -> NDArray[np.uint64]:
        """The parity of the phase in which an arrival that returned `state` took place."""
        return (state.astype(np.uint64) >> np.uint64(_PARITY_SHIFT)) & np.uint64(1)

    def phase_done(self, flat: NDArray[np.int64], parity: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the phase of `parity` has completed."""
        return ((self.read(flat) >> _PARITY_SHIFT) & 1) != parity.astype(np.int64)

    def state(self, flat: int) -> tuple[int, int, int] | None:
        """(arrivals pending, arrivals expected, bytes outstanding) of an mbarrier; None where there is none any more."""
        word = int(self._words[flat >> 3])
        if not word & _VALID:
            return None
        tx = ((word >> _TX_SHIFT) & (2 * _TX_BIAS - 1)) - _TX_BIAS
        return word & _COUNT_MASK, (word >> _COUNT_BITS) & _COUNT_MASK, tx

    def describe(self, entry: Parked) -> Iterator[tuple[str, NDArray[np.intp], str]]:
        """Per barrier that threads are parked at: what they wait for, the threads, and which kind of fault it would be."""
        stride = self.machine.shared.stride
        threads = entry.selection.threads
        for flat in np.unique(entry.flat):
            mine = entry.flat == flat
            block, offset = divmod(int(flat), stride)
            word = int(self._words[flat >> 3])
            pending, expected = word & _COUNT_MASK, (word >> _COUNT_BITS) & _COUNT_MASK
            tx = ((word >> _TX_SHIFT) & (2 * _TX_BIAS - 1)) - _TX_BIAS
            where = f"0x{offset & memory.OFFSET_MASK:x} of block {self.machine.block_id(block)}"
            bytes_text = f" and {tx} bytes outstanding" if tx else ""
            yield (
                f"waiting on the mbarrier at shared address {where} for the phase of parity {int(entry.parity[mine][0])}; "
                f"{pending} of {expected} arrivals are missing{bytes_text}",
                threads[mine],
                "byte count" if tx and not pending else "barrier count/phase",
            )
