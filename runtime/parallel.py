"""Several kernels compiled at the same time.

    tesela.compile_all([
        lambda: gemm.warmup((8192, 8192), (8192, 8192)),
        lambda: softmax.warmup((16384, 8192)),
    ])

The compiler proper is Python and takes turns; assemblers are processes of their own and run side by side, which is where most of the time of
large kernels goes. Threads do for that: the same kernel asked for twice is compiled once.

For many kernels on a machine of many cores, `compile_all(jobs, processes=8)`: copies of this process, made by `os.fork`, compile a share of the jobs each, into the
disk cache; then the jobs are done here, and find it all there. Where there is no `fork`, or no cache, threads do it all. Fork while no other thread holds a lock
that compiling needs: best before a program starts threads of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from ..dialects.diagnostics import TeselaError
from . import driver
from .cache import get_cache
from .compiling import working

T = TypeVar("T")


def compile_all(jobs: Sequence[Callable[[], T]], threads: int | None = None, processes: int = 1) -> list[T]:
    """What each job gives, in order; `threads`: how many at a time, by default as many as there are processors; `processes`: how many compile ahead, into the disk
    cache.

    Raises one TeselaError with the diagnostics of all jobs that raised one, when all have ended.
    """
    if processes > 1 and len(jobs) > 1 and hasattr(os, "fork") and get_cache() is not None:
        _compile_ahead(jobs, min(processes, len(jobs)))
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


def _compile_ahead(jobs: Sequence[Callable[[], object]], processes: int) -> None:
    """Do each job in one of so many copies of this process, for what that leaves in the disk cache. What goes wrong there goes wrong here again."""
    known = None
    if driver.device_available():
        gpu = driver.current_device()
        known = gpu, driver.multiprocessors(gpu)
    children = []
    for number in range(processes):
        with working:  # so that no other thread is
            child = os.fork()
        if child == 0:
            try:
                if known is not None:
                    driver.leave(*known)
                _attempt_each(jobs[number::processes])
            finally:
                os._exit(0)  # nothing of what the program does at its end
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _attempt_each(jobs: Sequence[Callable[[], object]]) -> None:
    """All jobs, one after another, whatever becomes of them."""
    for job in jobs:
        with suppress(TeselaError):
            job()
