"""What mbarriers, named barriers and the bytes that bulk copies fill are on one path through a kernel, and what is wrong with their use. For `check-barriers`.

**An mbarrier** (PTX ISA 9.0 §9.7.13.15) counts arrivals down from what it was initialised with, and the bytes that were announced and have not come. When both are
zero the phase is complete, and the next begins. A wait names a phase by its parity alone: it goes on where the phase that is under way has the other
one. So phase p+1 must not complete before everybody who waits has waited for phase p, and the waits of a warp for one mbarrier are for
phases 0, 1, 2, …, or, where the first is to go on at once (a slot that is free at the start), for -1, 0, 1, ….

**Clocks.** Each warp has a clock, and knows others' as of the last time they met: at a barrier, or where one waited for a phase on which another arrived. A *fill* is what
the copies of one phase write. A read of it comes after a wait for its phase, by the same warp or by one it has met since; and the next copy to the
same bytes comes after all its reads, as far as the warp that issues it can know. A wgmma has read what it reads once its group was waited for; a thread that read by
itself, through the generic proxy, tells the async proxy by a `fence.proxy.async` (PTX ISA 9.0 §8.9.5).

Copies complete here as soon as they are issued: what matters is what a program may rely on, and that does not depend on when they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import Operation

from ..dialects.async_roles import WARPGROUP_WARPS
from ..dialects.diagnostics import TeselaError, nearest_location

WARP = 32
FRESH = -2
"""Of a warp that has not waited for an mbarrier yet."""


def line_of(op: Operation) -> str:
    location = nearest_location(op)
    return f" at line {location.line}" if location is not None else ""


def warps_of(mask: np.ndarray) -> np.ndarray:
    """The warps that have a thread in the mask."""
    return np.flatnonzero(mask.reshape(-1, WARP).any(axis=1))


def named(mask: np.ndarray) -> str:
    """The warps of a mask, as a text."""
    warps = warps_of(mask)
    if len(warps) == 1:
        return f"warp {warps[0]}"
    return f"warps {warps[0]} to {warps[-1]}"


@dataclass(eq=False)
class Fill:
    """What the copies of one phase of an mbarrier write: `start` to `stop`, in bytes of shared memory. `reads`: the clock at which each warp has last
    read it, 0 for never; `fenced`: the clock of its first proxy fence since; `dots`: the last wgmma of each warpgroup that reads it."""

    barrier: Mbarrier
    phase: int
    start: int
    stop: int
    op: Operation
    reads: np.ndarray
    fenced: np.ndarray
    dots: dict[int, Dot] = field(default_factory=dict)


@dataclass(eq=False)
class Dot:
    """A wgmma, which four warps do together. `seen`: warps that have waited for its group, and at which time of their clocks: all of it is done then."""

    op: Operation
    seen: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Mbarrier:
    """One mbarrier. `pending` arrivals and `bytes` of the phase under way, whose number is `phase`; `waited`: for each warp the phase after the last it
    waited for (FRESH: none); `clock`: what those who arrived for complete phases knew, `arriving`: those of the phase under way."""

    address: int
    count: int
    op: Operation
    pending: int
    waited: np.ndarray
    clock: np.ndarray
    arriving: np.ndarray
    bytes: int = 0
    announced: int = 0
    phase: int = 0
    announce: Operation | None = None
    """The last announcement of bytes."""
    copied: bool = False
    fresh_wait: Operation | None = None
    """A wait that went on at once, before phase 0."""
    epochs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By phase: which warps have waited for it, and at which time of their clocks."""


class Protocol:
    """The state of one block."""

    def __init__(self, threads: int) -> None:
        warps = threads // WARP
        self.threads = threads
        self.clocks = np.zeros((warps, warps), np.int64)
        np.fill_diagonal(self.clocks, 1)
        self.barriers: dict[int, Mbarrier] = {}
        self.fills: list[Fill] = []
        self.groups: dict[int, list[list[Dot]]] = {}
        """By warp: committed groups of wgmmas that it has not waited for, the oldest first."""
        self.uncommitted: dict[int, list[Dot]] = {}

    # -- mbarriers

    def init(self, op: Operation, address: int, count: int, mask: np.ndarray) -> None:
        if (threads := int(mask.sum())) > 1:
            raise TeselaError.at(op, f"{threads} threads initialise the mbarrier at {address}", "let one thread do it")
        if address in self.barriers:
            raise TeselaError.at(op, f"the mbarrier at {address} is initialised again, after{line_of(self.barriers[address].op)}")
        if count < 1:
            raise TeselaError.at(op, f"the mbarrier at {address} counts {count} arrivals, at least one is required")
        warps = len(self.clocks)
        fresh = np.full(warps, FRESH)
        self.barriers[address] = Mbarrier(address, count, op, count, fresh, np.zeros(warps, np.int64), np.zeros(warps, np.int64))

    def at(self, op: Operation, address: int) -> Mbarrier:
        """The mbarrier at an address. Raises TeselaError where none was initialised."""
        if address not in self.barriers:
            known = ", ".join(map(str, sorted(self.barriers))) or "none"
            raise TeselaError.at(op, f"no mbarrier was initialised at {address}", f"initialised: {known}")
        return self.barriers[address]

    def announce(self, op: Operation, address: int, nbytes: int) -> None:
        barrier = self.at(op, address)
        barrier.bytes += nbytes
        barrier.announced += nbytes
        barrier.announce = op

    def arrive(self, op: Operation, address: int, count: int, mask: np.ndarray) -> None:
        """`count` arrivals by the threads of the mask."""
        barrier = self.at(op, address)
        if count > barrier.pending:
            raise TeselaError.at(
                op,
                f"{'one thread arrives' if count == 1 else f'{count} threads arrive'} on the mbarrier at {address}, whose phase {barrier.phase} has {barrier.count - barrier.pending} of "
                f"its {barrier.count} arrivals already",
                "arrive once for each that the mbarrier counts",
            )
        barrier.pending -= count
        for warp in warps_of(mask):
            barrier.arriving = np.maximum(barrier.arriving, self.clocks[warp])
            self.clocks[warp, warp] += 1
        self._advance(op, barrier)

    def copy(self, op: Operation, start: int, nbytes: int, copies: int, address: int, mask: np.ndarray) -> None:
        """A bulk copy of `nbytes` to `start`, one of `copies` like it (those of a cluster's other blocks write the bytes after it), which completes
        on the mbarrier at `address`."""
        barrier = self.at(op, address)
        barrier.copied = True
        stop = start + copies * nbytes
        warp = int(warps_of(mask)[0])
        for old in [fill for fill in self.fills if fill.start < stop and start < fill.stop]:
            self._check_free(op, old, warp, start, stop)
            self.fills.remove(old)
        self.fills.append(Fill(barrier, barrier.phase, start, stop, op, *np.zeros((2, len(self.clocks)), np.int64)))
        barrier.bytes -= copies * nbytes
        if barrier.pending == 0 and barrier.bytes < 0:
            raise TeselaError.at(
                op,
                f"the copies that complete on the mbarrier at {address} bring {barrier.announced - barrier.bytes} bytes to its phase {barrier.phase}, for which "
                f"{barrier.announced} were announced{line_of(barrier.announce) if barrier.announce else ''}",
                "announce as many bytes as come",
            )
        self._advance(op, barrier)

    def _check_free(self, op: Operation, old: Fill, warp: int, start: int, stop: int) -> None:
        """Raises TeselaError if a copy by `warp` may overwrite what is still read, or still written."""
        what = f"overwrites bytes {max(start, old.start)} to {min(stop, old.stop)}, "
        if old.barrier.phase == old.phase and (old.barrier.bytes or old.barrier.pending):
            raise TeselaError.at(op, what + f"which the copy{line_of(old.op)} may be writing", "wait for its phase first")
        if not any(self.clocks[warp, other] >= time for other, time in old.barrier.epochs.get(old.phase, ())):
            raise TeselaError.at(
                op,
                what + f"which the copy{line_of(old.op)} may be writing: nobody that this warp has met since has waited for phase {old.phase} of the mbarrier "
                f"at {old.barrier.address}",
                "wait for its phase first",
            )
        for dot in old.dots.values():
            if not any(self.clocks[warp, other] >= time for other, time in dot.seen):
                raise TeselaError.at(
                    op,
                    what + f"which the wgmma{line_of(dot.op)} may be reading: nobody has waited for its group and told warp {warp}",
                    "wait for the group before the bytes are given back",
                )
        late = np.flatnonzero(old.reads > self.clocks[warp])
        if len(late):
            raise TeselaError.at(op, what + f"which warp {late[0]} may be reading: it has not told this warp that it is done", "wait for what its readers arrive on")
        unfenced = np.flatnonzero((old.reads > old.fenced) | (old.fenced >= self.clocks[warp]) & (old.reads > 0))
        if len(unfenced):
            raise TeselaError.at(
                op,
                what + f"which warp {unfenced[0]} read through the generic proxy: it has told this warp so, but not the async proxy, which does not wait for such reads",
                "fence.proxy.async.shared::cta after the reads, before its threads arrive or meet",
            )

    def _advance(self, op: Operation, barrier: Mbarrier) -> None:
        """Begins the next phase where this one is complete."""
        if barrier.pending or barrier.bytes:
            return
        waiting = barrier.waited[barrier.waited != FRESH]
        if barrier.phase > 0 and (not len(waiting) or waiting.min() < barrier.phase):
            raise TeselaError.at(
                op,
                f"completes phase {barrier.phase} of the mbarrier at {barrier.address} before phase {barrier.phase - 1} was waited for by all who wait: a wait tells "
                "phases apart by their parity alone",
                "arrive once for each wait",
            )
        barrier.phase += 1
        barrier.pending, barrier.announced = barrier.count, 0
        barrier.clock = np.maximum(barrier.clock, barrier.arriving)

    def begin_wait(self, op: Operation, address: int, parity: int, mask: np.ndarray) -> int:
        """The phase that the warps of the mask wait for. Raises TeselaError if the parity is another's."""
        barrier = self.at(op, address)
        phases = set()
        for warp in warps_of(mask):
            expected = int(barrier.waited[warp])
            if expected == FRESH:
                expected = -(parity & 1)
                if expected < 0:
                    barrier.fresh_wait = barrier.fresh_wait or op
            if expected & 1 != parity & 1:
                raise TeselaError.at(
                    op,
                    f"waits for a phase of parity {parity} of the mbarrier at {address}, but after phase {expected - 1} warp {warp} has to wait for phase {expected}, of "
                    f"parity {expected & 1}",
                    "let the parity change each time the ring of slots has been gone round",
                )
            phases.add(expected)
        if len(phases) > 1:
            raise TeselaError.at(op, f"{named(mask)} wait together for different phases of the mbarrier at {address}: {', '.join(map(str, sorted(phases)))}")
        return phases.pop()

    def end_wait(self, address: int, phase: int, mask: np.ndarray) -> None:
        """The warps of the mask have seen the phase complete."""
        barrier = self.barriers[address]
        for warp in warps_of(mask):
            barrier.waited[warp] = phase + 1
            self.clocks[warp] = np.maximum(self.clocks[warp], barrier.clock)
            barrier.epochs.setdefault(phase, []).append((int(warp), int(self.clocks[warp, warp])))

    def meet(self, masks: Iterable[np.ndarray]) -> None:
        """All warps of the masks have come to one barrier."""
        warps = np.unique(np.concatenate([warps_of(mask) for mask in masks]))
        self.clocks[warps] = self.clocks[warps].max(axis=0)
        self.clocks[warps, warps] += 1

    # -- reads

    def read(self, op: Operation, addresses: Iterable[int], mask: np.ndarray, asynchronous: bool) -> None:
        """The threads of the mask read at shared addresses; `asynchronous`: by wgmma."""
        found = {id(fill): fill for address in addresses for fill in self.fills if fill.start <= address < fill.stop}
        warps = list(map(int, warps_of(mask)))
        for fill in found.values():
            barrier = fill.barrier
            for warp in warps:
                if not any(self.clocks[warp, other] >= time for other, time in barrier.epochs.get(fill.phase, ())):
                    raise TeselaError.at(
                        op,
                        f"reads bytes {fill.start} to {fill.stop}, which the copy{line_of(fill.op)} may not have written yet: warp {warp} has not waited for phase {fill.phase} of "
                        f"the mbarrier at {barrier.address}",
                        "wait for the phase before the read",
                    )
                if not asynchronous:
                    fill.reads[warp] = self.clocks[warp, warp]
        if asynchronous:
            for group in range(0, len(warps), WARPGROUP_WARPS):
                dot = Dot(op)
                for fill in found.values():
                    fill.dots[warps[group]] = dot
                for warp in warps[group : group + WARPGROUP_WARPS]:
                    self.uncommitted.setdefault(warp, []).append(dot)

    def fence(self, mask: np.ndarray) -> None:
        """A proxy fence: what the threads of the mask have read is done before what copies write that learn of the fence."""
        for warp in map(int, warps_of(mask)):
            for fill in self.fills:
                if fill.reads[warp] > fill.fenced[warp]:
                    fill.fenced[warp] = self.clocks[warp, warp]
            self.clocks[warp, warp] += 1

    def commit(self, mask: np.ndarray) -> None:
        for warp in map(int, warps_of(mask)):
            self.groups.setdefault(warp, []).append(self.uncommitted.pop(warp, []))

    def wait_groups(self, left: int, mask: np.ndarray) -> None:
        """All but the last `left` groups of wgmmas are done."""
        for warp in map(int, warps_of(mask)):
            groups = self.groups.setdefault(warp, [])
            while len(groups) > left:
                for dot in groups.pop(0):
                    dot.seen.append((warp, int(self.clocks[warp, warp])))

    # -- the end

    def finish(self) -> None:
        """Raises TeselaError for what is left undone when the kernel ends."""
        for barrier in self.barriers.values():
            where = f"the mbarrier at {barrier.address}"
            if barrier.copied and barrier.fresh_wait is not None:
                raise TeselaError.at(
                    barrier.fresh_wait, f"waits for a phase of parity 1 of {where}, on which copies complete: before the first of them it goes on at once", "wait for parity 0 first"
                )
            if barrier.pending != barrier.count:
                raise TeselaError.at(
                    barrier.op, f"{where} counts {barrier.count} arrivals, and its phase {barrier.phase} has {barrier.count - barrier.pending} when the kernel ends"
                )
            if barrier.bytes:
                raise self.bytes_wrong(barrier)
            if barrier.copied and (missed := set(range(barrier.phase)) - set(barrier.epochs)):
                at = min(missed)
                copies = [fill for fill in self.fills if fill.barrier is barrier and fill.phase == at]
                raise TeselaError.at(
                    copies[0].op if copies else barrier.op, f"nobody waits for phase {at} of {where}, on which this copy completes", "wait for it before the bytes are read, and before the kernel ends"
                )

    def bytes_wrong(self, barrier: Mbarrier) -> TeselaError:
        """The error of a phase for which more, or fewer, bytes were announced than copies bring."""
        assert barrier.announce is not None or barrier.bytes < 0
        op = barrier.announce or barrier.op
        return TeselaError.at(
            op,
            f"announces {barrier.announced} bytes for phase {barrier.phase} of the mbarrier at {barrier.address}, and the copies that complete on it bring "
            f"{barrier.announced - barrier.bytes}: whoever waits for the phase waits for ever",
            "announce as many bytes as come",
        )
