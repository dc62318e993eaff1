"""Choosing among programs that compute the same, by trying them: what `@tesela.autotune` does with the arrays of a call.

The cost model (`variants.py`) says first how long each candidate should take: from its lowered IR, before anything is assembled. On a GPU those
that should take more than PRUNE times as long as the best drop out, but for the KEPT best, and the others are compiled side by side, the most
promising first. Those that the compiler refuses drop out, with its reason, and those that are the code of an earlier one. Each is launched alone, twice;
those within SLACK of the fastest take turns by the method of `measure.py`, short ones in CUDA graphs. In the simulator, which has no time, the cost is
the number of instructions that threads executed. The first of equals wins, so that in the simulator the choice is the same each time.

Without tuning, `guess` takes the one that the cost model finds fastest.

Tuning writes to the arrays that the kernel writes; they get back what they held.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import ArrayArg
from ..dialects.target import get_target
from . import driver
from .arrays import HOST, ArrayView, host_array
from .kernel import DEFAULT_TARGET, Arrival, Kernel, placed
from .launch import SIMULATOR, Call, Staging, is_host, map_arrays, simulate
from .measure import GPU, Case, System, Timer, measure
from .parallel import attempt_all
from .progress import Progress
from .variants import TOLERANCE, Choice

SLACK = 1.5
"""How much slower than the fastest a candidate may be at first sight and still be measured with care."""
ROUNDS = 5
PRUNE = 2.5
"""How much slower than the best a candidate may be by the cost model and still be tried: the model counts, and does not know all that a machine does."""
KEPT = 4
"""How many are tried whatever the cost model says."""
SWITCH_VARIABLE = "TESELA_AUTOTUNE"
"""'0': no tuning, the candidate that the cost model finds fastest is taken."""

NOT_TRIED = "not tried: the time was up"

log = logging.getLogger("tesela")


@dataclass(frozen=True)
class Candidate:
    """One program: `label` says what it is, 'BM=128 warps=8'."""

    label: str
    make: Callable[[], Kernel]


@dataclass(frozen=True)
class Trial:
    """What became of a candidate. `cost` in the tuning's unit, None where it was not run; `spread`: of the samples, relative; `note`: why
    it was not run, or not measured with care; `expected`: microseconds by the cost model, None where it cannot tell."""

    label: str
    cost: float | None = None
    spread: float = 0.0
    note: str = ""
    expected: float | None = None


@dataclass(frozen=True)
class Tuning:
    """The outcome for one class of shapes on one device. `unit`: 'ms' or 'instructions'; `best`: the number of the trial that won."""

    kernel: str
    device: str
    shapes: str
    unit: str
    trials: tuple[Trial, ...]
    best: int
    seconds: float

    @property
    def title(self) -> str:
        """One line: what, where, and who won."""
        won = self.trials[self.best]
        cost = "" if won.cost is None else f", {_figure(won.cost, self.unit)}"
        return f"{self.kernel} on {self.device}, {self.shapes}: {won.label}{cost}"

    def table(self) -> str:
        """All candidates, the best first."""
        ranked = sorted(enumerate(self.trials), key=lambda pair: (pair[0] != self.best, pair[1].cost is None, pair[1].cost or 0, pair[0]))
        width = max(len(trial.label) for trial in self.trials)
        lines = [f"{self.kernel} on {self.device}, {self.shapes} ({len(self.trials)} candidates in {self.seconds:.1f} s)\n"]
        best = self.trials[self.best].cost
        told = any(trial.expected is not None for trial in self.trials)
        for number, trial in ranked:
            cost = relative = ""
            if trial.cost is not None:
                cost = _figure(trial.cost, self.unit)
                relative = f"{trial.cost / best:.2f}×" if best else ""
            mark = "*" if number == self.best else " "
            expected = "" if not told else " " * 22 if trial.expected is None else f"  expected {trial.expected:8.2f} µs"
            lines.append(f"{mark} {trial.label:{width}} {cost:>20} {relative:>7}{expected}  {trial.note}".rstrip() + "\n")
        return "".join(lines)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Tuning:
        """Raises KeyError or TypeError for what `to_json` did not make."""
        trials = tuple(Trial(**trial) for trial in data["trials"])
        return Tuning(**{**data, "trials": trials})


def _figure(cost: float, unit: str) -> str:
    return f"{cost:.4f} ms" if unit == "ms" else f"{cost:.0f} {unit}"


def shape_class(dims: Mapping[str, int]) -> str:
    """Calls that are tuned together: each dimension up to the same power of two.

    >>> shape_class({"M": 4096, "K": 100, "B": 1})
    'M≤4096 K≤128 B≤1'
    """
    return " ".join(f"{name}≤{1 << max(extent - 1, 0).bit_length()}" for name, extent in dims.items()) or "any shape"


def tune(
    candidates: Sequence[Candidate],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    device: str | None = None,
    budget: float = 60.0,
    timer: Timer | None = None,
) -> Tuning:
    """Try candidates on the arrays of a call. `budget`: seconds after which no further candidate, and no further round, begins.

    Raises what the first candidate raises if all are refused, and whatever is wrong with the call itself.
    """
    start = time.monotonic()
    deadline = start + budget
    progress = Progress("tuning", budget)
    try:
        return _tuned(candidates, args, kwargs, device, start, deadline, progress, timer)
    finally:
        progress.close()


def _tuned(
    candidates: Sequence[Candidate],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    device: str | None,
    start: float,
    deadline: float,
    progress: Progress,
    timer: Timer | None,
) -> Tuning:
    kernels = attempt_all([candidate.make for candidate in candidates])
    first = next((kernel for kernel in kernels if isinstance(kernel, Kernel)), None)
    if first is None:
        raise _error(kernels)
    arrived = first.arrive(args, kwargs, device)
    shapes = shape_class(first.contract.solve(arrived.views))
    where = device_name(arrived.place)
    log.info("tuning %s on %s, %s: %d candidates, at most %.0f s", first.name, where, shapes, len(candidates), deadline - start)
    progress.title = f"tuning {first.name}"
    labels = [candidate.label for candidate in candidates]
    run = _in_simulator if arrived.place == SIMULATOR else _on_gpu
    with _restored(first, arrived):
        expected = _expected(kernels, arrived, progress)
        if arrived.place != SIMULATOR:
            _prune(kernels, expected)
        order = sorted(range(len(labels)), key=lambda number: (expected[number] is None, expected[number] or 0.0))
        ordered = [kernels[number] for number in order]
        tried = run([labels[number] for number in order], ordered, arrived, deadline, progress, timer)
    trials = [replace(tried[order.index(number)], expected=us) for number, us in enumerate(expected)]
    costs = [(trial.cost, number) for number, trial in enumerate(trials) if trial.cost is not None]
    if not costs:
        raise _error([ordered[order.index(number)] for number in range(len(labels))])
    unit = "instructions" if arrived.place == SIMULATOR else "ms"
    tuning = Tuning(first.name, where, shapes, unit, tuple(trials), min(costs)[1], time.monotonic() - start)
    log.info("tuned %s in %.1f s", tuning.title, tuning.seconds)
    return tuning


def guess(candidates: Sequence[Candidate], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """The number of the candidate that the cost model finds fastest for these arrays; the first among equals, and where it cannot tell.

    Raises what the first candidate raises if all are refused.
    """
    kernels = attempt_all([candidate.make for candidate in candidates])
    expected = [None if isinstance(kernel, TeselaError) else _microseconds(kernel, args, kwargs) for kernel in kernels]
    known = [us for us in expected if us is not None]
    if not known:
        return next((number for number, kernel in enumerate(kernels) if isinstance(kernel, Kernel)), 0)
    return next(number for number, us in enumerate(expected) if us is not None and us <= TOLERANCE * min(known))


def _microseconds(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """What a call should take by the cost model; None where it cannot tell, or the program is refused."""
    found = next((row.expected for row in kernel.expected(*args, **kwargs) if row.choice == Choice()), None)
    return None if found is None else found.microseconds


def _expected(kernels: Sequence[Kernel | TeselaError], arrived: Arrival, progress: Progress) -> list[float | None]:
    """The same for each kernel of a call."""
    progress.stage("estimated", len(kernels))
    found: list[float | None] = []
    for kernel in kernels:
        found.append(None if isinstance(kernel, TeselaError) else _microseconds(kernel, arrived.values, {}))
        progress.step()
    return found


class Dropped(TeselaError):
    """What becomes of a candidate that is not tried: the message is why."""


def _prune(kernels: list[Kernel | TeselaError], expected: Sequence[float | None]) -> None:
    """Put an error in the place of kernels that the cost model finds too slow to try."""
    known = sorted((us, number) for number, us in enumerate(expected) if us is not None)
    for us, number in known[KEPT:]:
        if us > PRUNE * known[0][0]:
            kernels[number] = Dropped(f"expected to take {us / known[0][0]:.1f} times as long as the best")


def device_name(place: int) -> str:
    """A GPU's name, or 'simulator'."""
    return "simulator" if place == SIMULATOR else driver.device(place).name


def _error(outcomes: Sequence[object]) -> TeselaError:
    return next(outcome for outcome in outcomes if isinstance(outcome, TeselaError) and not isinstance(outcome, Dropped))


def _refused(label: str, error: TeselaError) -> Trial:
    reason = error.diagnostics[0].message.split("\n")[0]
    log.info("  %s: refused: %s", label, reason)
    return Trial(label, note=f"refused: {reason}")


def _in_simulator(
    labels: Sequence[str],
    kernels: list[Kernel | TeselaError],
    arrived: Arrival,
    deadline: float,
    progress: Progress,
    timer: Timer | None,
) -> list[Trial]:
    from ..simulator import Memory

    saved = _host_copies(kernels, arrived)
    trials: list[Trial] = []
    seen: dict[tuple[str, tuple[int, int, int]], str] = {}
    progress.stage("tried", len(labels))
    for number, (label, kernel) in enumerate(zip(labels, kernels)):
        progress.step()
        if isinstance(kernel, TeselaError):
            trials.append(_refused(label, kernel))
            continue
        if seen and time.monotonic() >= deadline:
            trials.append(Trial(label, note=NOT_TRIED))
            continue
        memory = Memory()
        addresses = map_arrays(kernel.contract.args, arrived.views, memory)
        try:
            call = kernel.prepare(SIMULATOR, arrived.views, addresses, arrived.overlaps, kernel.target or get_target(DEFAULT_TARGET))
            if call is None:
                trials.append(Trial(label, 0.0))
                continue
            if (twin := seen.setdefault((call.variant.ptx, call.grid), label)) != label:
                trials.append(Trial(label, note=f"the same code as {twin}"))
                continue
            for array, copy in saved:
                array[...] = copy
            result = simulate(call, placed(arrived.values, addresses), memory)
        except TeselaError as error:
            kernels[number] = error
            trials.append(_refused(label, error))
            continue
        trials.append(Trial(label, float(result.thread_instructions)))
        log.info("  %s: %.0f instructions", label, result.thread_instructions)
    return trials


def _on_gpu(
    labels: Sequence[str],
    kernels: list[Kernel | TeselaError],
    arrived: Arrival,
    deadline: float,
    progress: Progress,
    timer: Timer | None,
) -> list[Trial]:
    gpu = driver.device(arrived.place)
    staging: Staging | None = None
    with driver.activated(gpu):
        driver.synchronize()  # what the arrays hold may still be on its way
        kernel = next(kernel for kernel in kernels if isinstance(kernel, Kernel))
        if is_host(arrived.views):
            staging = Staging(kernel.contract.args, arrived.views)
        try:
            addresses = None if staging is None else staging.addresses
            own = [None if seen is None else seen.address for seen in arrived.views] if addresses is None else addresses
            calls = _loaded(kernels, arrived, gpu, addresses, deadline, progress)
            return _timed(labels, calls, kernels, placed(arrived.values, own), deadline, progress, timer or GPU())
        finally:
            if staging is not None:
                staging.close()


def _loaded(
    kernels: list[Kernel | TeselaError],
    arrived: Arrival,
    gpu: driver.Device,
    addresses: Sequence[int | None] | None,
    deadline: float,
    progress: Progress,
) -> list[tuple[Call, Any] | None]:
    """The call and the loaded function of each kernel that is not refused; whoever is refused now, or not compiled before the deadline, has its
    error put into `kernels`. The first is compiled in any case."""
    progress.stage("compiled", len(kernels))
    first = next(number for number, kernel in enumerate(kernels) if isinstance(kernel, Kernel))

    def job(number: int) -> tuple[Call, Any] | None:
        kernel = kernels[number]
        try:
            if isinstance(kernel, TeselaError):
                return None
            if number != first and time.monotonic() >= deadline:
                raise Dropped("the time was up")
            target = kernel.target or get_target(gpu.target)
            with driver.activated(gpu):
                call = kernel.prepare(gpu.ordinal, arrived.views, addresses, arrived.overlaps, target)
                return None if call is None else (call, call.variant.function(gpu))
        finally:
            progress.step()

    outcomes = attempt_all([lambda number=number: job(number) for number in range(len(kernels))])
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, TeselaError):
            kernels[number] = outcome
    return [None if isinstance(outcome, TeselaError) else outcome for outcome in outcomes]


def _timed(
    labels: Sequence[str],
    calls: Sequence[tuple[Call, Any] | None],
    kernels: Sequence[Kernel | TeselaError],
    values: Sequence[float],
    deadline: float,
    progress: Progress,
    timer: Timer,
) -> list[Trial]:
    trials: list[Trial] = []
    systems: dict[int, System] = {}
    seen: dict[tuple[str, tuple[int, int, int]], str] = {}
    progress.stage("tried", len(labels))
    for number, (label, loaded, kernel) in enumerate(zip(labels, calls, kernels)):
        progress.step()
        if isinstance(kernel, Dropped):
            trials.append(Trial(label, note=f"not tried: {kernel.diagnostics[0].message}"))
        elif isinstance(kernel, TeselaError):
            trials.append(_refused(label, kernel))
        elif loaded is None:
            trials.append(Trial(label, 0.0, note="a grid of no blocks"))
        elif (twin := seen.setdefault((loaded[0].variant.ptx, loaded[0].grid), label)) != label:
            trials.append(Trial(label, note=f"the same code as {twin}"))
        elif systems and time.monotonic() >= deadline:
            trials.append(Trial(label, note=NOT_TRIED))
        else:
            call, function = loaded
            system = System(label, call.bound(function, values))
            single = timer.prepare(system, 1, False)
            single()
            trials.append(Trial(label, single(), note="launched once"))
            systems[number] = system
            log.info("  %s: %.4f ms at first sight", label, trials[-1].cost)
    if systems:
        fastest, ahead = min((trials[number].cost or 0.0, number) for number in systems)
        progress.note = f"best so far: {labels[ahead]}, {_figure(fastest, 'ms')}"
        limit = SLACK * fastest
        close = [number for number in systems if (trials[number].cost or 0.0) <= limit]
        progress.stage("measured", ROUNDS * len(close))
        case = Case("tuning", [systems[number] for number in close])
        row = measure(case, timer, ROUNDS, deadline=deadline, turned=progress.step)
        for number in close:
            label = labels[number]
            if (measured := row.systems.get(label)) is not None:
                trials[number] = Trial(label, measured.milliseconds, measured.spread)
            else:
                trials[number] = Trial(label, note=f"failed: {row.failed[label]}")
    return trials


@contextmanager
def _restored(kernel: Kernel, arrived: Arrival) -> Iterator[None]:
    """Afterwards all arrays that the kernel writes hold what they held before."""
    saved_host = _host_copies([kernel], arrived)
    saved_device: list[tuple[int, int, int]] = []
    if arrived.place != SIMULATOR and not is_host(arrived.views):
        with driver.activated(driver.device(arrived.place)):
            for seen in _written(kernel, arrived):
                low, high = seen.span()
                if low < high:
                    copy = driver.allocate(high - low)
                    saved_device.append((low, copy, high - low))
                    driver.copy_on_device(copy, low, high - low)
    try:
        yield
    finally:
        for array, copy in saved_host:
            array[...] = copy
        if saved_device:
            with driver.activated(driver.device(arrived.place)):
                for low, copy, nbytes in saved_device:
                    driver.copy_on_device(low, copy, nbytes)
                    driver.free(copy)


def _written(kernel: Kernel, arrived: Arrival) -> Iterator[ArrayView]:
    for arg, seen in zip(kernel.contract.args, arrived.views):
        if isinstance(arg, ArrayArg) and "w" in arg.access and seen is not None:
            yield seen


def _host_copies(kernels: Sequence[Kernel | TeselaError], arrived: Arrival) -> list[tuple[Any, Any]]:
    """The written arrays that are in host memory, with copies."""
    kernel = next(kernel for kernel in kernels if isinstance(kernel, Kernel))
    arrays = [host_array(seen) for seen in _written(kernel, arrived) if seen.device == HOST]
    return [(array, array.copy()) for array in arrays]
