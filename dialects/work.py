"""What one block of a kernel does, as counts, and how long a launch takes by them: what programs for the same result are chosen by. Plain Python.

`Work` is counted once for each program (lowering/count_work.py), from the IR that the compiler has planned: bytes that move, clocks of
the tensor cores and of arithmetic, each times trip counts that are expressions of the symbolic dimensions. `estimate` evaluates it for the
extents of a call. Nothing here knows what a kernel computes.

**The model.** Blocks are dealt out evenly; the launch takes as long as the multiprocessor that has most of them. There, for each block,

    body   Σ over its loops: trips · max(clocks of dots and arithmetic, bytes through shared memory / its rate, bytes copied / rate)
    tail   bytes stored / rate

where the rate of copies is what one multiprocessor can stream, its share of what L2 gives all that run (PAIR), or what is under way at one time
over the latency, whichever is least. Through shared memory go what is copied there and what the tensor cores read of it, at its full rate (the limit of power slows the tensor cores,
not it): smaller tiles than 128×256 of 16 bits keep it busier than the tensor cores. L2 answers by lines of 128 bytes: rows that do not begin with one take two requests each, and what
a cluster loads together it asks for once; but its blocks begin and end together, which takes a while. One block at a time takes the sum of both, and of the latency before its first tile arrives, unless it
walks the grid and loads ahead. Several at a time hide each other's waits: all bodies, or all tails, whichever is longer, and the other once. Memory moves the
arguments once meanwhile, at best (OVERLAP), but for what is in L2 from a launch before (the choice is made for launches that are repeated), and slower for few multiprocessors (MEMORY_SHARE); what is loaded again, from L2, slows that down a little.

Split in `parts`, the loop of a point has so many trips less, and there are so many blocks more. Then, when nothing is left to hide it, each writes its sums, and one of
them reads those of all and does what is not in the loop (passes/split_reduction.py): through L2, with a fence and a counter, or as a cluster, through shared memory.

Example: two waves of 128×256 tiles beside 4 of 128×128 for 2048×4096×4096: 256 points on 132 multiprocessors are 2 each of 64·1024 clocks;
512 are 4 each of 64·512, and twice the bytes for a clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod
from typing import Any

from .dim_expr import DimExpr
from .launch_plan import clusters_suit


@dataclass(frozen=True, slots=True)
class Machine:
    """What the model knows of a device, in bytes for each clock of one multiprocessor (`memory`: of all), and clocks. `copies`: what one can stream; `l2`: what each
    gets when all stream; `shared`: what its shared memory takes in and gives; `stores`: what one writes; `start`: from one block to the next; `refill`: from a buffer that is read to the next copy
    into it; `arrival`: of a block with its sums at a point, `meeting`: of the blocks of a cluster; `pairing`: what a launch of clusters that load together takes more than one of blocks; `sums`: what one reads and writes of them; `l2_bytes`: arguments of fewer are in L2 when a launch is repeated."""

    copies: float
    l2: float
    shared: float
    stores: float
    memory: float
    start: int
    refill: int
    arrival: int
    meeting: int
    pairing: int
    sums: float
    l2_bytes: int
    megahertz: float


OVERLAP = 3.0
"""How what multiprocessors take and what memory takes add up: the longer one where they differ much, and a quarter more where they are equal, since neither is busy all the time then. (32×4096×14336 by
tiles of 32×64, whose loads alone would take 26 µs on 64 multiprocessors and 28 in memory, took 38; in two parts, 13 and 28, it took 31.)"""
PAIR = 2
"""Multiprocessors that share a way to L2: while a grid has a block for one of each two, its blocks get twice as much as when both have one. (64×6144×4096, on 132 multiprocessors: 48, 55 and 64 blocks take
15.3, 15.3 and 14.7 µs, 77 blocks 19.7, 96 blocks 16.7, 128 blocks 15.0, while what a block reads falls with their number.)"""
MEMORY_SHARE = 1.2
"""How much of what memory moves such a pair gets at most, relative to an equal share. (64×10240×8192, 170 MB, by 80, 92, 107 and 128 blocks took 52.4, 51.6, 46.6 and 42.7 µs: what each block gets is
the same for all.)"""
AGAIN = 10.0
"""How many times as fast as all multiprocessors together load from L2 what is loaded again comes, as far as it delays what comes from memory (fitted: with 4, tiles whose loads overlap with memory were expected to
take up to 28 % too long; 128×8192×28672 by 64×128 took 119 µs instead of 152)."""
LINE = 128
"""Bytes that L2 answers a request with (CUDA C++ Programming Guide, "Device Memory Accesses")."""


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes copied from L2 in rows. `nbytes`: by a block that is alone; `together`: by each block of a cluster; `row`: bytes of a row; `pitch`: bytes from one row
    to the next, where arrays are dense, as text of a DimExpr."""

    nbytes: int
    together: int
    row: int
    pitch: str

    def lines(self, dims: Mapping[str, int]) -> float:
        """Lines that a row lies in, for each that it would fill, over all places where rows begin.

        >>> Request(0, 0, 128, "2 * K").lines({"K": 4096}), Request(0, 0, 128, "2 * K").lines({"K": 4040})
        (1.0, 1.875)
        """
        row = min(self.row, LINE)
        starts = range(0, LINE, gcd(_parsed(self.pitch).evaluate(dims), LINE))
        return 1 + sum(start + row > LINE for start in starts) / len(starts)


@dataclass(frozen=True, slots=True)
class Term:
    """What runs once for each combination of trips. `trips`: a factor for each loop round it, as text of a DimExpr; `compute`: clocks of dots and of
    arithmetic; `copied`: bytes to shared memory or to registers; `stored`: bytes to arrays; `shared`: whether it is in the loop that can be split, which is
    the first factor then; `exchanged`: bytes that go through shared memory; `requests`: what is known of the bytes copied."""

    trips: tuple[str, ...]
    compute: float
    copied: int
    stored: int
    shared: bool = False
    exchanged: int = 0
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class SplitLoop:
    """The loop that can be split. `trips`: its trip count; `nbytes`: of the sums that it carries; `cluster`: into how many parts at most, a power of two, so that their blocks
    are a cluster."""

    trips: str
    nbytes: int
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """One block of a program. `grid`: the points; `resident`: blocks that a multiprocessor holds at a time; `persistent`: whether they walk the
    grid; `latency`: clocks until a first tile is there; `in_flight`: bytes that are under way at a time; `split`: None if no loop can be;
    `cluster`: blocks of one, along `axis` of the grid, where the grid suits that."""

    grid: tuple[str, ...]
    warps: int
    shared_bytes: int
    resident: int
    persistent: bool
    latency: int
    in_flight: int
    terms: tuple[Term, ...]
    machine: Machine
    split: SplitLoop | None = None
    cluster: int = 1
    axis: int = 0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Work:
        """Raises KeyError or TypeError for what `to_json` did not make."""
        terms = tuple(
            Term(**{**term, "trips": tuple(term["trips"]), "requests": tuple(Request(**request) for request in term["requests"])}) for term in data["terms"]
        )
        split = None if data["split"] is None else SplitLoop(**data["split"])
        return Work(**{**data, "grid": tuple(data["grid"]), "terms": terms, "machine": Machine(**data["machine"]), "split": split})


@dataclass(frozen=True, slots=True)
class Estimate:
    """A launch, by the model. `points`: of the grid, times parts; `rounds`: of the busiest multiprocessor; `bound`: what takes longest: 'compute',
    'copies', 'stores', 'memory' or 'latency'."""

    clocks: float
    microseconds: float
    points: int
    rounds: int
    bound: str


def estimate(work: Work, dims: Mapping[str, int], multiprocessors: int, nbytes: int = 0, parts: int = 1) -> Estimate:
    """How long a launch takes for these extents on so many multiprocessors. `nbytes`: of the arguments; `parts`: of the split loop, which
    there must be if there are several."""
    extents = [max(0, _parsed(text).evaluate(dims)) for text in work.grid]
    points = prod(extents) * parts
    if points == 0:
        return Estimate(0.0, 0.0, 0, 0, "latency")
    machine = work.machine
    active = min(multiprocessors, points)
    rounds = ceil(points / multiprocessors)
    together = min(work.resident, rounds)
    share = PAIR / min(PAIR, ceil(PAIR * active / multiprocessors))
    rate = min(machine.copies, max(1.0, work.in_flight * together / (work.latency + machine.refill)))
    clustered = work.cluster > 1 and clusters_suit(work.cluster, work.axis, extents, multiprocessors)
    stores = min(machine.stores, machine.memory / active)
    ends = ceil(rounds / parts)  # of the busiest multiprocessor's blocks, those that end a point
    compute = copies = tails = bodies = loaded = 0.0
    for term in work.terms:
        counts = [max(0, _parsed(text).evaluate(dims)) for text in term.trips]
        if term.shared:
            counts[0] = ceil(counts[0] / parts)
        trips = prod(counts) * (rounds if term.shared else ends)
        asked = float(term.copied)
        for request in term.requests:
            asked += (request.together if clustered else request.nbytes) * request.lines(dims) - request.nbytes
        inside = max(term.compute, term.exchanged / machine.shared)
        moved = max(term.copied / rate, asked / (machine.l2 * share))
        loaded += prod(counts) * term.copied * (points if term.shared else points // parts)
        compute += trips * inside
        copies += trips * moved
        bodies += trips * max(inside, moved)
        tails += trips * term.stored / stores
    exchange = 0.0
    if parts > 1:
        assert work.split is not None
        if parts <= work.split.cluster and parts & (parts - 1) == 0:
            exchange = ends * (machine.meeting + work.split.nbytes * parts / machine.sums)
        else:
            exchange = rounds * (work.split.nbytes / machine.sums + machine.arrival) + ends * work.split.nbytes * parts / machine.sums
    start = machine.start + work.latency + (machine.pairing if clustered else 0)
    if together == 1:
        clocks = (1 if work.persistent else rounds) * start + bodies + tails
    else:
        clocks = start + max(bodies, tails) + min(bodies, tails) / rounds
    again = max(0.0, loaded - nbytes) / (AGAIN * machine.l2 * multiprocessors) if nbytes else 0.0
    memory = _from_memory(nbytes, machine.l2_bytes) / min(machine.memory, MEMORY_SHARE * machine.memory / multiprocessors * share * active) + again + start
    parts_of_time = {
        "compute": compute, "copies": copies, "stores": tails, "latency": start + exchange, "memory": memory,
    }
    bound = "memory" if memory > clocks else max(("compute", "copies", "stores", "latency"), key=lambda name: parts_of_time[name])
    clocks = start + ((clocks - start) ** OVERLAP + (memory - start) ** OVERLAP) ** (1 / OVERLAP) + exchange
    return Estimate(clocks, clocks / machine.megahertz, points, rounds, bound)


def _from_memory(nbytes: int, l2_bytes: int) -> float:
    """Of the bytes of the arguments, those that are not in L2 from a launch before.

    >>> [_from_memory(nbytes, 100) for nbytes in (80, 100, 120, 150, 400)]
    [0.0, 0.0, 48.0, 150.0, 400.0]
    """
    return nbytes * min(1.0, max(0, nbytes - l2_bytes) / (l2_bytes / 2))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> DimExpr:
    return DimExpr.parse(text)
