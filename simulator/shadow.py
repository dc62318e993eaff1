"""Who touched memory last: for every granule of shared or global memory the last write, the last atomic, and the
reads since.

A *granule* is the smallest access of a program to that memory (1 to 16 bytes): accesses are aligned to their size, so
each covers whole granules, and nothing is lost by looking no closer.

A *record* packs (time, agent) into one integer, the time above the agent's 32 bits (`clocks.py` says what both are);
0 is nobody. Times of agents that are not threads carry ASYNC, which is above all times: so that one comparison of the
record with (least time that the thread knows of all threads) + 1 tells nearly always that an access is in order, and
only the others are looked at one by one.

**Reads of shared memory** are kept apart per warp, with a mask of the lanes: a write must come after all of them.
Reads by asynchronous operations are kept per agent. **Reads of global memory** are kept in two records, the second
preferably of another cluster than the first; of more than two unordered readers of one granule in one cluster some
are forgotten, so that a write might not be compared with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .clocks import Clocks
from .selection import WARP

Granules = NDArray[np.intp]
Records = NDArray[np.int64]

AGENT_BITS = 32
AGENT_MASK = (1 << AGENT_BITS) - 1
ASYNC = 1 << 62
TIME_MASK = (1 << 30) - 1


def time_of(records: Any) -> Any:
    return (records >> AGENT_BITS) & TIME_MASK


def agent_of(records: Any) -> Any:
    return records & AGENT_MASK


class SharedShadow:
    """Shared memory of one machine. `slots`: warps of a cluster, which is how many may read a granule apart."""

    def __init__(self, size: int, granule: int, clocks: Clocks, atomics: bool):
        self.granule, self.clocks = granule, clocks
        self.count = -(-size // granule)
        self.slots = clocks.width // WARP
        self.written: Records = np.zeros(self.count, np.int64)
        self.atomic: Records | None = np.zeros(self.count, np.int64) if atomics else None
        self.last_read = np.zeros(self.count, np.int32)
        self.last_atomic = np.zeros(self.count, np.int32) if atomics else self.last_read
        self.readers = np.zeros((self.slots, self.count), np.int64)
        self.updaters = np.zeros((self.slots, self.count), np.int64) if atomics else self.readers
        self.clusters = clocks.clusters
        self.per_cluster = self.count // self.clusters
        self.async_times: list[NDArray[np.int32]] = []
        self.async_agents: list[Records] = []

    def mark(
        self,
        masks: NDArray[np.int64],
        last: NDArray[np.int32],
        threads: NDArray[np.intp],
        granules: Granules,
        time: NDArray[np.int64],
    ) -> None:
        """Threads [t] read (or update atomically) granules [..., n, t] at `time` [n, 1]: `masks` and `last` are
        `readers` and `last_read`, or those of atomics."""
        clocks = self.clocks
        last[granules] = time
        flat = masks.reshape(-1)
        slot = threads % clocks.width // WARP
        keys = (granules + slot * self.count).reshape(-1)
        bits = np.broadcast_to(np.int64(1) << (threads % WARP).astype(np.int64), granules.shape).reshape(-1)
        old = flat[keys]
        keep = (old >> AGENT_BITS) > np.broadcast_to(clocks.released[threads // WARP], granules.shape).reshape(-1)
        shifted = np.broadcast_to(time << AGENT_BITS, granules.shape).reshape(-1)
        new = np.where(keep, old & AGENT_MASK, 0) | bits | shifted
        flat[keys] = new
        lost = flat[keys] != new
        if lost.any():
            # Several lanes of a warp at one granule: their bits are put together.
            touched = np.isin(keys, keys[lost])
            k, b = keys[touched], new[touched]
            order = np.argsort(k, kind="stable")
            k, b = k[order], b[order]
            starts = np.nonzero(np.r_[True, k[1:] != k[:-1]])[0]
            lanes = np.bitwise_or.reduceat(b & AGENT_MASK, starts)
            flat[k[starts]] = lanes | (np.maximum.reduceat(b, starts) & ~AGENT_MASK)

    def mark_async(self, agent: int, cluster: int, ordinal: int, granules: Granules, time: int) -> None:
        """An agent that is no thread reads granules; it is the `ordinal`-th such agent of its cluster."""
        while ordinal >= len(self.async_times):
            self.async_times.append(np.zeros(self.count, np.int32))
            self.async_agents.append(np.zeros(self.clusters, np.int64))
        times = self.async_times[ordinal]
        times[granules] = np.maximum(times[granules], time)
        self.async_agents[ordinal][cluster] = agent

    def async_reads(self, granules: Granules) -> Iterator[Records]:
        """Records of the last reads of granules by such agents, of each in its own array."""
        for times, agents in zip(self.async_times, self.async_agents):
            found = times[granules].astype(np.int64)
            if found.any():
                yield np.where(found > 0, (found << AGENT_BITS) | ASYNC | agents[granules // self.per_cluster], 0)

    def entries(self, masks: NDArray[np.int64], granules: Granules, after: NDArray[Any]) -> tuple[Any, Any, Any, Any]:
        """Reads of granules [n] that are later than `after` [n]: (index into granules, first thread of the warp
        relative to its cluster, mask of lanes, time)."""
        found = masks[:, granules]
        slot, index = np.nonzero((found >> AGENT_BITS) > after)
        value = found[slot, index]
        return index, slot * WARP, value & AGENT_MASK, value >> AGENT_BITS


class GlobalShadow:
    """Global memory of a launch, over all machines. `first`: the lowest address, `size`: bytes from there."""

    def __init__(self, first: int, size: int, granule: int):
        self.first, self.granule = first, granule
        self.count = -(-size // granule)
        self.written: Records = np.zeros(self.count, np.int64)
        self.atomic: Records = np.zeros(self.count, np.int64)
        self.read: tuple[Records, Records] = (np.zeros(self.count, np.int64), np.zeros(self.count, np.int64))
