"""Tuning of what is written in Triton: the configuration that is fastest in a few quick measurements takes part in the turns.

A configuration that does not compile, or asks for more than the GPU has, is passed over; where none is left the contestant has failed, with what the first one said.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

MEASUREMENTS = 3
LAUNCHES = 5


def quick(launch: Callable[[], object]) -> float:
    """Milliseconds of a launch: the median of a few measurements of a few launches one after another."""
    import torch

    launch()
    times = []
    for _ in range(MEASUREMENTS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(LAUNCHES):
            launch()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / LAUNCHES)
    return statistics.median(times)


def tuned(
    configurations: Sequence[dict[str, Any]], make: Callable[[dict[str, Any]], Callable[[], object]], time: Callable[[Callable[[], object]], float] = quick
) -> tuple[Callable[[], object], str]:
    """The launch of the fastest configuration, and the configuration in words. `make` gives the launch of one. Raises what the first one raised if none can run."""
    best: tuple[float, Callable[[], object], str] | None = None
    problem: Exception | None = None
    for config in configurations:
        try:
            launch = make(config)
            taken = time(launch)
        except Exception as error:  # noqa: BLE001 - a configuration may fail in any way
            problem = problem or error
            continue
        if best is None or taken < best[0]:
            best = taken, launch, words(config)
    if best is None:
        raise problem or ValueError("there is no configuration to try")
    return best[1:]


def words(config: dict[str, Any]) -> str:
    """A configuration in words.

    >>> words({"program": "maps", "BM": 128, "HALVES": True, "FLATTEN": False})
    'maps BM=128 HALVES=1 FLATTEN=0'
    """
    return " ".join(str(value) if name == "program" else f"{name}={int(value)}" for name, value in config.items())
