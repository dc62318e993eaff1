"""Why a mutant can do no harm: a closed list of reasons, each decided by code.

A mutant about which nothing was seen is *equivalent* if a row of `REASONS` holds, which looks at logs (`trace.py`) of the mutant and of the program
that is right, on the arguments of the launch:

* **same effects** (faults of data): the same values are written to the same global addresses (but for what the same block replaces after a
  barrier), and every thread issues, commits, waits and fences
  the same, in the same order, and arrives the same in all phases of mbarriers that somebody waits for. So memory holds the same whatever the schedule; what differs is dead, masked, the same value under another
  name, or which of several threads with the same value writes it.
* **copies that change nothing** (faults of data): all that differs are cp.async besides, ordered with everything else that touches their bytes
  (`added_copies.py`).
* **still waited for** (waits, commits, neighbours): between the issue of each asynchronous operation and the wait of each of its owners that covers it
  in the mutant, nobody touches the bytes (or registers) that it writes, nor writes what it reads. Another wait covers it in time.
* **still fenced** (fences, neighbours): between each generic write and each later access of the async proxy to its bytes there is another proxy fence
  of the thread that wrote; between ordinary accesses to registers of a wgmma and the wgmma another wgmma.fence; between the initialisation of an
  mbarrier and a copy that signals it another fence.
* **nothing shared** (barriers): no byte is accessed before the barrier and after it, one of the two writing, that something else in the log does not
  order too (`separates.py`), and all other barriers complete as often without it. For a barrier of a warp: with the barrier gone, between two
  instructions that converge the warp no byte is accessed by two lanes of which one writes.
* **nobody waits** (arrivals, counts, initialisations): no thread waits, at or after the place, for the phase of an mbarrier that it changes.
* **before the first phase** (waits for mbarriers): every wait at the place was for the phase before the first, which has always passed, and orders
  nothing.
* **another phase says the same** (waits for mbarriers): whoever arrived in the phase that is waited for arrived also in one of another mbarrier, and
  did nothing in between; and the waiter has waited for that one.
* **one of them does nothing** (neighbours): for one of two instructions that have changed places a reason above holds if it is left out altogether.

The reasons about order are checked in the mutant's logs of three schedules. They know nothing of the judge's clocks: they look at what came between
what, so a mutant that the judge wrongly passes is not excused by the judge's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dialects.ptx_program import Instr
from ...simulator.machine import Machine
from ...simulator.selection import WARP
from .added_copies import does_the_same, only_ordered_copies
from .faults import KINDS, Change, Mutant, instr_at, is_try_wait, role
from .separates import separates
from .trace import GENERIC, NEVER, REGISTERS, SHARED, SPACE_BITS, WRITES, Event, Flight, Trace, places

if TYPE_CHECKING:
    from .trial import Trial

Array = NDArray[Any]

SCHEDULES: tuple[dict[str, Any], ...] = ({"policy": "latest"}, {"policy": "earliest"}, {"seed": 7})


class Run(NamedTuple):
    """One machine's part of a run."""

    log: list[Event]
    flights: list[Flight]
    machine: Machine

    def at(self, instr: Instr) -> Iterator[Event]:
        """The events of an instruction."""
        positions = {k for k, step in enumerate(self.machine.code.steps) if any(i is instr for i in step.instrs)}
        return (event for event in self.log if event.position in positions)


class Case:
    """A mutant with its logs, made when they are first asked for."""

    def __init__(self, trial: Trial, mutant: Mutant):
        self.trial, self.mutant = trial, mutant
        self.instr = instr_at(trial.launch.kernel, mutant.index)
        self.planted = [item for items in mutant.change.items.values() for item in items if isinstance(item, Instr)]
        self._faulty: list[Run] = []
        self._right: list[Run] = []

    @property
    def faulty(self) -> list[Run]:
        """The mutant under all SCHEDULES."""
        if not self._faulty:
            self._faulty = [run for schedule in SCHEDULES for run in _runs(self.trial.trace(self.mutant, schedule))]
        return self._faulty

    @property
    def right(self) -> list[Run]:
        """The program that is right."""
        if not self._right:
            self._right = [run for schedule in SCHEDULES for run in _runs(self.trial.trace(None, schedule))]
        return self._right


def _runs(trace: Trace) -> list[Run]:
    return [Run(*parts) for parts in zip(trace.logs, trace.flights, trace.machines)]


# --- Faults of data ---


def same_effects(case: Case) -> bool:
    usual = SCHEDULES[0]
    right, wrong = case.trial.trace(None, usual), case.trial.trace(case.mutant, usual)
    return (
        all(_arrive_alike(a, b) for a, b in zip(right.logs, wrong.logs))
        and len(right.fingerprints) == len(wrong.fingerprints)
        and all(np.array_equal(a, b) for a, b in zip(right.fingerprints, wrong.fingerprints))
        and np.array_equal(right.writes(), wrong.writes())
    )


def _arrive_alike(right: list[Event], wrong: list[Event]) -> bool:
    """Whether the same threads arrive in the same phases of the same mbarriers, of all phases that somebody waits for."""
    arrivals: tuple[dict[tuple[int, int], list[int]], ...] = ({}, {})
    last: dict[int, int] = {}  # the last phase of each mbarrier that is waited for
    for log, found in zip((right, wrong), arrivals):
        for event in log:
            if event.kind in ("arrive", "pass"):
                for who, barrier, phase in zip(event.who.tolist(), event.where.tolist(), event.detail):
                    if event.kind == "arrive":
                        found.setdefault((barrier, phase), []).append(who)
                    else:
                        last[barrier] = max(phase, last.get(barrier, -1))
    return all(
        sorted(arrivals[0].get(key, ())) == sorted(arrivals[1].get(key, ()))
        for key in arrivals[0].keys() | arrivals[1].keys()
        if key[1] <= last.get(key[0], -1)
    )


def copies_change_nothing(case: Case) -> bool:
    usual = SCHEDULES[0]
    right, wrong = case.trial.trace(None, usual), case.trial.trace(case.mutant, usual)
    return (
        all(_arrive_alike(a, b) for a, b in zip(right.logs, wrong.logs))
        and does_the_same(right, wrong)
        and len(case.right) == len(case.faulty)
        and all(only_ordered_copies(a, b) for a, b in zip(case.right, case.faulty))
    )


# --- Faults of order ---


def still_waited_for(case: Case) -> bool:
    return all(
        _waited(run, part) for run in case.faulty for flight in run.flights for part in flight.of_blocks(run.machine.block_stride)
    )


def swap_keeps_groups(case: Case) -> bool:
    """Still waited for, of neighbours of which one is a commit."""
    return "commit" in map(role, case.planted) and still_waited_for(case)


def _waited(run: Run, flight: Flight) -> bool:
    """Whether nothing conflicts with an operation before its owners have waited for it."""
    if len(flight.signals):
        return True  # it belongs to no group
    written, read = np.unique(flight.bytes_of(True)), np.unique(flight.bytes_of(False))
    for event in run.log[flight.issued + 1 : min(flight.covered, len(run.log))]:
        if event.kind == "issue":
            other: Flight = event.detail
            if other.kind != flight.kind and _meets(written, other.bytes_of(False), other.bytes_of(True)):
                return False
        elif event.kind in GENERIC:
            if _meets(written, event.where):
                return False
            if event.kind in WRITES and event.time < flight.reads_covered and _meets(read, event.where):
                return False
    return True


def _meets(places: Array, *others: Array) -> bool:
    """Whether any of the bytes are among the (ascending) places."""
    for other in others:
        if len(places) and len(other):
            at = np.minimum(np.searchsorted(places, other), len(places) - 1)
            if (places[at] == other).any():
                return True
    return False


def still_fenced(case: Case) -> bool:
    return all(_fenced(run) for run in case.faulty)


def swap_keeps_fences(case: Case) -> bool:
    """Still fenced, of neighbours of which one is a fence of proxies or registers, and the other what it may be for."""
    fences = [instr for instr in case.planted if role(instr) == "fence"]
    others = [role(instr) for instr in case.planted if role(instr) != "fence"]
    about = all(instr.opcode.startswith(("fence.proxy.async", "fence.mbarrier_init", "wgmma.fence")) for instr in fences)
    return len(fences) == 1 and about and others[0] in ("init", "access", "copy", "mma") and still_fenced(case)


def _fenced(run: Run) -> bool:
    """Whether every access of the async proxy comes after a fence of those who wrote before."""
    every = _places(run)
    wrote, writer = np.zeros(len(every), np.int64), np.zeros(len(every), np.int64)  # by byte: when (from 1) and who
    fenced = np.zeros(run.machine.thread_count, np.int64)
    register_fenced = np.zeros(run.machine.thread_count, np.int64)
    copies: dict[int, list[Flight]] = {}
    for flight in run.flights:
        if flight.kind == "cp.async":
            copies.setdefault(flight.covered, []).append(flight)
    for event in run.log:
        now = event.time + 1
        for flight in copies.get(event.time, ()):
            at = np.searchsorted(every, flight.bytes_of(True))
            wrote[at], writer[at] = now, np.concatenate(flight.writers)
        if event.kind == "fence":
            if event.detail[0] == "wgmma":
                register_fenced[event.who] = now
            elif "async" in event.detail or "mbarrier_init" in event.detail:
                fenced[event.who] = now
        elif event.kind in WRITES or (event.kind == "load" and len(event.where) and event.where[0] >> SPACE_BITS == REGISTERS):
            at = np.searchsorted(every, event.where)
            wrote[at], writer[at] = now, event.who
        elif event.kind == "issue" and event.detail.kind != "cp.async":
            flight = event.detail
            touched = np.concatenate([flight.bytes_of(False), flight.bytes_of(True), *(places(SHARED, b, 1) for b in flight.signals)])
            at = np.searchsorted(every, touched)
            known = np.where(touched >> SPACE_BITS == REGISTERS, register_fenced[writer[at]], fenced[writer[at]])
            if (known < wrote[at]).any():
                return False
            wrote[np.searchsorted(every, flight.bytes_of(True))] = 0
    return True


def _places(run: Run) -> Array:
    """All bytes that are touched, ascending."""
    parts = [event.where for event in run.log if event.kind in GENERIC]
    for flight in run.flights:
        parts += [*flight.read, *flight.written, places(SHARED, flight.signals, 1)]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def nothing_shared(case: Case) -> bool:
    if case.instr.opcode.startswith("bar.warp"):
        return all(_separate(run) for run in case.faulty)
    met = [[_meetings(run, case.instr) for run in runs] for runs in (case.right, case.faulty)]
    return met[0] == met[1] and not any(separates(run.log, run.machine, case.instr) for run in case.right)


def _meetings(run: Run, besides: Instr) -> dict[tuple[int, int], int]:
    """How often each other barrier of a block completes, by the instruction that completes it and the block."""
    found: dict[tuple[int, int], int] = {}
    for event in run.log:
        if event.kind in ("barrier", "part"):
            (*_, instr) = run.machine.code.steps[event.position].instrs
            if instr is not besides:
                for block in np.unique(event.who // run.machine.block_stride).tolist():
                    found[id(instr), block] = found.get((id(instr), block), 0) + 1
    return found


def _separate(run: Run) -> bool:
    """Whether between two meetings of its lanes no byte is accessed by two lanes of a warp of which one writes."""
    machine = run.machine
    every = _places(run)
    scope = WARP
    now = np.zeros(machine.thread_count // scope, np.int64)  # the present segment of each scope, by numbers that never come again
    segments = len(now)
    now[:] = np.arange(segments)
    wrote, writer, read, reader = (np.full(len(every), -1, np.int64) for _ in range(4))

    def conflict(where: Array, who: Array, writes: bool) -> bool:
        at, mine = np.searchsorted(every, where), who
        segment = now[who // scope]
        if ((wrote[at] == segment) & (writer[at] != mine)).any():
            return True
        if writes:
            if ((read[at] == segment) & (reader[at] != mine)).any():
                return True
            wrote[at], writer[at] = segment, mine
            return bool((writer[at] != mine).any())
        several = (read[at] == segment) & (reader[at] != mine)
        read[at], reader[at] = segment, mine
        several |= reader[at] != mine
        reader[at[several]] = -2
        return False

    def touches(flight: Flight) -> bool:
        owner = int(flight.owners[0]) * (128 if flight.kind == "wgmma" else 1)
        source = flight.bytes_of(False)
        who = np.concatenate(flight.writers) if flight.writers else np.zeros(0, np.int64)
        return conflict(flight.bytes_of(True), who, True) or conflict(source, np.full(len(source), owner), False)

    ends: dict[int, list[Flight]] = {}
    for flight in run.flights:
        if len(flight.signals):
            passes = [e.time for e in run.log[flight.issued :] if e.kind == "pass" and np.isin(e.where, flight.signals).any()]
            ends.setdefault(min(passes, default=len(run.log) - 1), []).append(flight)
        else:
            ends.setdefault(min(flight.covered, len(run.log) - 1), []).append(flight)
    for event in run.log:
        if any(touches(flight) for flight in ends.get(event.time, ())):
            return False
        if event.kind in ("barrier", "meet"):
            for part in np.unique(event.who // scope).tolist():
                now[part] = segments
                segments += 1
        elif event.kind in GENERIC:
            space = event.where >> SPACE_BITS
            memory = space != REGISTERS
            if memory.any() and conflict(event.where[memory], event.who[memory], event.kind in WRITES):
                return False
        elif event.kind == "issue" and touches(event.detail):
            return False
    return True


def nobody_waits(case: Case) -> bool:
    """In every run of the right program: of the mbarriers that the instruction initialises or arrives at, no thread waits for a phase that it counts
    for."""
    for run in case.right:
        first: dict[int, int] = {}
        for event in run.at(case.instr):
            if event.kind == "init":
                first.update(dict.fromkeys((event.where[::8] & ((1 << SPACE_BITS) - 1)).tolist(), 0))
            elif event.kind == "arrive":
                for barrier, phase in zip(event.where.tolist(), event.detail):
                    first[barrier] = min(phase, first.get(barrier, phase))
        for event in run.log:
            if event.kind == "pass":
                for barrier, phase in zip(event.where.tolist(), event.detail):
                    if phase >= first.get(barrier, NEVER):
                        return False
    return True


def before_the_first_phase(case: Case) -> bool:
    return all(
        phase < 0 for run in case.right for event in run.at(case.instr) if event.kind == "pass" for phase in event.detail
    )


def another_phase(case: Case) -> bool:
    return all(_said_elsewhere(run, event) for run in case.right for event in run.at(case.instr) if event.kind == "pass")


def _said_elsewhere(run: Run, wait: Event) -> bool:
    """Whether other waits told each of these threads what this one tells."""
    arrivals: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in run.log[: wait.time]:
        if event.kind == "arrive":
            for who, barrier, phase in zip(event.who.tolist(), event.where.tolist(), event.detail):
                arrivals.setdefault((barrier, phase), []).append((event.time, who))
    passed: dict[int, set[tuple[int, int]]] = {}
    for event in run.log[: wait.time]:
        if event.kind == "pass":
            for who, barrier, phase in zip(event.who.tolist(), event.where.tolist(), event.detail):
                passed.setdefault(who, set()).add((barrier, phase))
    for waiter, barrier, phase in zip(wait.who.tolist(), wait.where.tolist(), wait.detail):
        if phase < 0:
            continue
        here = arrivals.get((barrier, phase), [])
        if not here:
            return False  # copies alone complete it
        for time, who in here:
            others = [
                when
                for other in passed.get(waiter, ())
                if other != (barrier, phase)
                for when, someone in arrivals.get(other, ())
                if someone == who
            ]
            if not any(_idle(run, who, min(time, when), max(time, when)) for when in others):
                return False
    return True


def _idle(run: Run, thread: int, first: int, last: int) -> bool:
    """Whether a thread's warp does nothing between two events."""
    return not any(
        event.kind in (*GENERIC, "issue", "wait", "pass", "barrier") and event.kind != "touch" and (event.who // WARP == thread // WARP).any()
        for event in run.log[first + 1 : last]
    )


class Reason(NamedTuple):
    """A reason, its test, and the kinds of faults that it can excuse."""

    text: str
    holds: Callable[[Case], bool]
    kinds: tuple[str, ...]


_DATA = tuple(name for name, kind in KINDS.items() if not kind.order)

REASONS = (
    Reason("same effects", same_effects, _DATA),
    Reason("copies that change nothing", copies_change_nothing, _DATA),
    Reason("still waited for", still_waited_for, ("drop-wait", "weaken-wait", "drop-commit")),
    Reason("still waited for", swap_keeps_groups, ("swap-order",)),
    Reason("still fenced", still_fenced, ("drop-fence",)),
    Reason("still fenced", swap_keeps_fences, ("swap-order",)),
    Reason("nothing shared", nothing_shared, ("drop-barrier",)),
    Reason("nobody waits", nobody_waits, ("drop-arrive", "change-count", "drop-init")),
    Reason("before the first phase", before_the_first_phase, ("drop-wait",)),
    Reason("another phase says the same", another_phase, ("drop-wait",)),
)
OF_PHASES = (before_the_first_phase, another_phase)


def why_equivalent(trial: Trial, mutant: Mutant) -> str | None:
    """The reason why a mutant can do no harm, or None."""
    case = Case(trial, mutant)
    for reason in REASONS:
        # Waits for groups and for phases have reasons of their own.
        fits = mutant.kind != "drop-wait" or is_try_wait(case.instr) == (reason.holds in OF_PHASES)
        if mutant.kind in reason.kinds and fits and reason.holds(case):
            return reason.text
    if mutant.kind == "swap-order":
        for index, (instr,) in mutant.change.items.items():
            assert isinstance(instr, Instr)
            for kind in ("drop-wait", "drop-fence", "drop-barrier", "drop-arrive"):
                if list(KINDS[kind].plant(trial.launch, trial.launch.kernel, index)):
                    alone = Mutant(kind, index, 0, Change("left out", {index: ()}), instr.opcode)
                    if why_equivalent(trial, alone):
                        return "one of them does nothing"
    return None
