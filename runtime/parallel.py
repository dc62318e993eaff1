"""Several kernels compiled at the same time.

    tesela.compile_all([
        lambda: gemm.warmup((8192, 8192), (8192, 8192)),
        lambda: softmax.warmup((16384, 8192)),
    ])

The compiler proper is Python and takes turns; assemblers are processes of their own and run side by side, which is where most of the time of
large kernels goes. Threads do: the same kernel asked for twice is compiled once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..dialects.diagnostics import TeselaError

T = TypeVar("T")


def compile_all(jobs: Sequence[Callable[[], T]], threads: int | None = None) -> list[T]:
    """What each job gives, in order; `threads`: how many at a time, by default as many as there are processors.

    Raises one TeselaError with the diagnostics of all jobs that raised one, when all have ended.
    """
    outcomes = attempt_all(jobs, threads)
    errors = [outcome for outcome in outcomes if isinstance(outcome, TeselaError)]
    if errors:
        sources = {name: text for error in errors for name, text in error.sources.items()}
        raise TeselaError([diagnostic for error in errors for diagnostic in error.diagnostics], sources)
    return [outcome for outcome in outcomes if not isinstance(outcome, TeselaError)]


def attempt_all(jobs: Sequence[Callable[[], T]], threads: int | None = None) -> list[T | TeselaError]:
    """The same, with the error of a job in the place of its result."""

    def attempt(job: Callable[[], T]) -> T | TeselaError:
        try:
            return job()
        except TeselaError as error:
            return error

    if not jobs:
        return []
    with ThreadPoolExecutor(max(1, min(threads or os.cpu_count() or 1, len(jobs)))) as pool:
        return list(pool.map(attempt, jobs))
