"""Measuring launches on a GPU: systems take turns, so that none profits from running first or suffers from a hot chip.

Back-to-back loops throttle on power and favour whoever runs first; the same kernels then differ by 15 %. So the systems of a case take
turns in rotating order. A turn rests, runs once, then times a number of launches with device events; the figure is the median
over the rounds. Where a launch is short the systems of a case are launched through CUDA graphs, so that the device and not the host is timed: a host that has rested takes
up to 0.6 ms for its first launches (H200, from Python, ours and others'), and the device waits for it. The tuner chooses by this method (`autotune.py`), and bench/ compares by it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import driver

ROUNDS = 9
REST_SECONDS = 0.1
LAUNCHES = 10
SMALL_LAUNCHES = 40
SMALL_MILLISECONDS = 0.1
"""A launch shorter than this is timed by SMALL_LAUNCHES at a time."""
GRAPH_MILLISECONDS = 1.0
"""Where a launch of the fastest system is shorter than this, launches go through a CUDA graph: ten of attention's of 0.12 ms took 0.125 to 0.19 ms each from the host, by how long
the first ones took it, and 0.119 each in every graph (H200)."""


@dataclass(frozen=True)
class System:
    """One contestant. `run(stream)` launches it once. `details`: what the results say of it beside its figures, as plain data: how it is configured, say."""

    name: str
    run: Callable[[int], object]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """What the systems are compared on. `flops`, `nbytes`: of one launch, for TFLOP/s and GB/s; `graph`: whether to launch through a CUDA graph; None: where
    launches are shorter than GRAPH_MILLISECONDS."""

    name: str
    systems: Sequence[System]
    flops: float = 0
    nbytes: float = 0
    graph: bool | None = None


@dataclass(frozen=True)
class Measured:
    """A system's figure: `samples` are the milliseconds of one launch, a sample for each round."""

    samples: tuple[float, ...]

    @property
    def milliseconds(self) -> float:
        """The median."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """The width of the samples' middle half, relative to the median."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / self.milliseconds


@dataclass
class Row:
    """The outcome of a case. `failed`: systems that raised, with what they said; `details` of those that did not."""

    case: str
    systems: dict[str, Measured]
    flops: float = 0
    nbytes: float = 0
    failed: dict[str, str] = field(default_factory=dict)
    details: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        systems: dict[str, Any] = {}
        for name, measured in self.systems.items():
            ms = measured.milliseconds
            entry: dict[str, Any] = {"ms": ms, "spread": round(measured.spread, 4), "samples": list(measured.samples)}
            if self.flops:
                entry["tflops"] = self.flops / ms / 1e9
            if self.nbytes:
                entry["gbps"] = self.nbytes / ms / 1e6
            systems[name] = entry | dict(self.details.get(name, {}))
        return {"case": self.case, "systems": systems, "failed": self.failed}


class Timer(Protocol):
    """Times launches. `prepare` gives a function that launches `count` times and returns the milliseconds of all of them."""

    def prepare(self, system: System, count: int, graph: bool) -> Callable[[], float]: ...

    def rest(self, seconds: float) -> None: ...


class GPU:
    """The Timer of the current GPU: a stream of its own, device events, graphs captured once for each system."""

    def __init__(self) -> None:
        self.device = driver.current_device()
        api = driver.api()
        with driver.activated(self.device):
            flags = int(api.CUstream_flags.CU_STREAM_NON_BLOCKING)
            self.stream = int(driver.check(api.cuStreamCreate(flags), "creating a stream"))
            self.begin, self.end = driver.Event(), driver.Event()

    def rest(self, seconds: float) -> None:
        driver.synchronize(self.stream)
        time.sleep(seconds)

    def prepare(self, system: System, count: int, graph: bool) -> Callable[[], float]:
        launch = self._captured(system, count) if graph else lambda: [system.run(self.stream) for _ in range(count)]

        def timed() -> float:
            self.begin.record(self.stream)
            launch()
            self.end.record(self.stream)
            return self.end.milliseconds_since(self.begin)

        return timed

    def _captured(self, system: System, count: int) -> Callable[[], object]:
        """A function that launches a graph of `count` launches."""
        api = driver.api()
        system.run(self.stream)  # what is compiled or allocated at the first call must not be captured
        driver.synchronize(self.stream)
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        driver.check(api.cuStreamBeginCapture(self.stream, mode), "capturing a graph")
        try:
            for _ in range(count):
                system.run(self.stream)
        finally:
            graph = driver.check(api.cuStreamEndCapture(self.stream), f"capturing a graph of {system.name}")
        executable = driver.check(api.cuGraphInstantiate(graph, 0), "instantiating a graph")
        return lambda: driver.check(api.cuGraphLaunch(executable, self.stream), "launching a graph")


def measure(
    case: Case,
    timer: Timer,
    rounds: int = ROUNDS,
    rest: float = REST_SECONDS,
    launches: int | None = None,
    deadline: float | None = None,
    turned: Callable[[], object] = lambda: None,
) -> Row:
    """Measure a case. `launches` in a turn: by default 10, or 40 where one is shorter than 0.1 ms. No round after the first begins past
    `deadline` (of time.monotonic). `turned` is called after each turn.

    A system that raises while it is tried out is left out and reported in `failed`; the others go on.
    """
    failed: dict[str, str] = {}

    def tried(system: System, count: int, graph: bool, runs: int) -> tuple[Callable[[], float], float] | None:
        """A turn that has been run so often, and what the last run took; None where it fails, and why in `failed`."""
        took = 0.0
        try:
            turn = timer.prepare(system, count, graph)
            for _ in range(runs):
                took = turn()
        except Exception as error:  # noqa: BLE001 - a contestant may fail in any way; the results say how
            failed[system.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return None
        return turn, took

    singles = {system.name: found for system in case.systems if (found := tried(system, 1, False, 2)) is not None}
    graph = case.graph if case.graph is not None else any(took < GRAPH_MILLISECONDS for _, took in singles.values())
    counts = {name: launches or (SMALL_LAUNCHES if took < SMALL_MILLISECONDS else LAUNCHES) for name, (_, took) in singles.items()}
    running = [system for system in case.systems if system.name in singles]
    turns = {system.name: found[0] for system in running if (found := tried(system, counts[system.name], graph, 1)) is not None}
    samples: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds):
        if number and deadline is not None and time.monotonic() >= deadline:
            break
        for name in rotated(list(turns), number):
            timer.rest(rest)
            singles[name][0]()
            samples[name].append(turns[name]() / counts[name])
            turned()
    details = {system.name: system.details for system in case.systems if system.details and system.name in turns}
    return Row(case.name, {name: Measured(tuple(s)) for name, s in samples.items()}, case.flops, case.nbytes, failed, details)


def rotated(items: Sequence[str], number: int) -> list[str]:
    """The order of one round: each starts one further, and every second one goes backwards, so that neighbours change too.

    >>> [rotated("abc", number) for number in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['c', 'a', 'b']]
    """
    if not items:
        return []
    start = number % len(items)
    order = [*items[start:], *items[:start]]
    return order[::-1] if number % 2 else order
