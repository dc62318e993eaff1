"""The reason "copies that change nothing": a fault adds copies (cp.async) that are waited for as they must be, and the results are the same.

Example: a loop prefetches what its trip after the next will need, if there is one. With the condition reversed the last trips prefetch too, mostly
zeros, into buffers that are free; no trip is left to read them. Or: threads beyond the end of a row copy zeros over the zeros of its padding.

Decided from logs. In the mutant all threads do what they do in the program that is right, and other cp.async besides, and write the same to global
memory. Every other access to the bytes that these copies write lies, completed, before a barrier of the whole block that comes before the copy's issue, or
begins after one that comes after the wait that covers it; so what is read does not depend on the schedule. Nobody writes the bytes that they read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .trace import GENERIC, WRITES, Trace

if TYPE_CHECKING:
    from .equivalent import Run

Array = NDArray[Any]


def does_the_same(right: Trace, wrong: Trace) -> bool:
    """Whether threads synchronise alike, and global memory is written alike, but for the issue of cp.async."""
    return (
        len(right.plain) == len(wrong.plain)
        and all(np.array_equal(a, b) for a, b in zip(right.plain, wrong.plain))
        and np.array_equal(right.writes(), wrong.writes())
    )


def only_ordered_copies(right: Run, wrong: Run) -> bool:
    """Whether the mutant's cp.async are those of the program that is right and others that are ordered with all accesses to their bytes."""
    for writes in (False, True):
        theirs, mine = _rows(right, writes), _rows(wrong, writes)
        known, keys = _keys(theirs), _keys(mine)
        if not np.isin(known, keys).all():
            return False  # a copy is missing, or in another group
        extra = ~np.isin(keys, known)
        if not writes and _written(wrong, mine[2, extra]):
            return False
        if writes and not all(
            _ordered(wrong, flight.issued, flight.covered, np.unique(mine[2, extra & (mine[3] == flight.issued)]))
            for flight in wrong.flights
            if flight.kind == "cp.async"
        ):
            return False
    return True


def _rows(run: Run, writes: bool) -> Array:
    """[4, bytes] of all cp.async: thread, group, byte, when it was issued."""
    parts = [np.zeros((4, 0), np.int64)]
    for flight in run.flights:
        who = flight.writers if writes else flight.readers
        if flight.kind == "cp.async" and who:
            threads = np.concatenate(who)
            order = np.argsort(flight.owners)
            groups = flight.groups[order[np.searchsorted(flight.owners[order], threads)]]
            parts.append(np.stack([threads, groups, flight.bytes_of(writes), np.full(len(threads), flight.issued)]))
    return np.concatenate(parts, axis=1)


def _keys(rows: Array) -> Array:
    """One number for the first three of each column."""
    return np.ascontiguousarray(rows[:3].T).view([("", rows.dtype)] * 3).reshape(-1)


def _touches(run: Run) -> Iterator[tuple[int, int, Array]]:
    """(begin, end, bytes) of every access."""
    for event in run.log:
        if event.kind in GENERIC:
            yield event.time, event.time, event.where
    for flight in run.flights:
        for writes in (False, True):
            yield flight.issued, len(run.log) if len(flight.signals) else flight.covered, flight.bytes_of(writes)


def _ordered(run: Run, issued: int, covered: int, where: Array) -> bool:
    """Whether barriers of the whole block stand between a copy to bytes of shared memory and every other access to them."""
    if not len(where):
        return True
    stride = run.machine.shared.stride
    barriers = {
        block: [e.time for e in run.log if e.kind == "barrier" and e.who[0] // run.machine.block_stride == block]
        for block in np.unique(where // stride).tolist()
    }
    for begin, end, touched in _touches(run):
        if begin == issued:
            continue  # the copy itself
        for block in np.unique(touched[np.isin(touched, where)] // stride).tolist():
            if not any(end < time < issued or covered < time < begin for time in barriers[block]):
                return False
    return True


def _written(run: Run, where: Array) -> bool:
    """Whether anybody writes any of these bytes."""
    return bool(len(where)) and (
        any(event.kind in WRITES and np.isin(event.where, where).any() for event in run.log)
        or any(np.isin(flight.bytes_of(True), where).any() for flight in run.flights)
    )
