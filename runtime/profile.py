"""`with tesela.profile() as p:` what was launched within it, how long it took, and how near it came to what the device can do.

    with tesela.profile() as p:
        C = gemm(A, B)
        y = softmax(C)
    print(p)

    kernel                      launches     total    median  TFLOP/s    GB/s  of roofline
    gemm M=8192 N=8192 K=8192          1  1.480 ms  1.480 ms    742.9   272.1          75 %
    softmax M=8192 N=8192              1  0.140 ms  0.140 ms        -  3834.8          80 %

On a GPU each launch stands between two events on its stream, whose times are read when the block ends; the events themselves take a few
microseconds between launches. In the simulator, which has no time, thread-instructions are counted instead.

Bytes are those of the arguments, read or written once, in-place ones twice, and FLOPs are what the kernel states:
`@tesela.kernel(flops="2 * M * N * K")`, where `nbytes="…"` states bytes as well if the arguments do not tell (an index into a large table).
The roofline is the time that the larger of both would take at the device's peak: memory clock × bus width, and dense FLOPs per clock of a
multiprocessor for the narrowest type that the kernel reads.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..dialects.launch_plan import ArrayArg, ScalarArg
from . import driver, launch
from .arrays import ELEMENT_TYPES
from .launch import Call

FLOPS_PER_CLOCK = {(8, 0): 2048, (9, 0): 4096}
"""Dense FLOPs of 16-bit tensor cores per clock and multiprocessor, by compute capability (NVIDIA A100 and H100 Tensor Core GPU architecture
white papers: 312 and 989.4 TFLOP/s on 108 and 132 multiprocessors at 1.41 and 1.83 GHz)."""

RATES = {1: 2.0, 2: 1.0, 4: 0.5, 8: 1 / 16}
"""Dense FLOPs of the tensor cores beside those of 16-bit operands, by the operands' bytes; 4 is TF32 (the same white papers: 1979, 989, 495 and 67
TFLOP/s on an H100, and 624, 312, 156 and 19.5 on an A100)."""


def operand_bytes(args: Sequence[ArrayArg | ScalarArg]) -> int:
    """The bytes of an element of the narrowest floating-point arrays that are read; of integers where there are none; 2 where nothing is read."""
    read = [arg.dtype for arg in args if isinstance(arg, ArrayArg) and "r" in arg.access and arg.dtype in ELEMENT_TYPES]
    floats = [dtype for dtype in read if dtype.startswith(("f", "bf"))]
    return min((ELEMENT_TYPES[dtype].itemsize for dtype in floats or read), default=2)


@dataclass(frozen=True)
class Launched:
    """One launch. `milliseconds` on a GPU, `instructions` in the simulator; `flops` and `nbytes`: what it amounts to, None where that is not known."""

    kernel: str
    dims: dict[str, int]
    device: int
    flops: int | None
    nbytes: int
    milliseconds: float | None = None
    instructions: int | None = None
    operands: int = 2
    """Bytes of an element of what it multiplies (`operand_bytes`)."""

    @property
    def label(self) -> str:
        """'gemm M=8192 N=8192 K=64'."""
        return " ".join([self.kernel, *[f"{name}={value}" for name, value in self.dims.items()]])


@dataclass
class Profile:
    """What `profile()` gives: `launches` in order, complete when its block has ended; as text a table."""

    launches: list[Launched] = field(default_factory=list)
    _pending: list[tuple[Call, int, driver.Event, driver.Event]] = field(default_factory=list)

    def launched(self, call: Call, begin: driver.Event, end: driver.Event) -> None:
        """A launch on the current GPU, between two events."""
        self._pending.append((call, driver.current_device().ordinal, begin, end))

    def simulated(self, call: Call, result: Any) -> None:
        """A launch in the simulator, which gave this result."""
        self.launches.append(
            Launched(call.variant.plan.name, call.dims, launch.SIMULATOR, call.flops, call.nbytes, instructions=result.thread_instructions)
        )

    def close(self) -> None:
        """Wait for all launches, and read their times."""
        for call, device, begin, end in self._pending:
            with driver.activated(driver.device(device)):
                ms = end.milliseconds_since(begin)
                begin.close()
                end.close()
            plan = call.variant.plan
            self.launches.append(
                Launched(plan.name, call.dims, device, call.flops, call.nbytes, milliseconds=ms, operands=operand_bytes(plan.args))
            )
        self._pending.clear()

    def groups(self) -> dict[tuple[str, int], list[Launched]]:
        """Launches of the same kernel with the same dimensions on the same device, by label and device, in order."""
        found: dict[tuple[str, int], list[Launched]] = {}
        for one in self.launches:
            found.setdefault((one.label, one.device), []).append(one)
        return found

    def __str__(self) -> str:
        rows = [("kernel", "launches", "total", "median", "TFLOP/s", "GB/s", "of roofline")]
        rows += [_row(label, members) for (label, _), members in self.groups().items()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join([row[0].ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]]).rstrip() for row in rows]
        return "\n".join(lines)


def _row(label: str, members: list[Launched]) -> tuple[str, ...]:
    count = str(len(members))
    first = members[0]
    if first.milliseconds is None:
        counts = [one.instructions or 0 for one in members]
        return label, count, f"{sum(counts)} instr.", f"{statistics.median(counts):.0f} instr.", "-", "-", "-"
    times = [one.milliseconds or 0.0 for one in members]
    ms = statistics.median(times)
    tflops = f"{first.flops / ms / 1e9:.1f}" if first.flops and ms else "-"
    gbps = f"{first.nbytes / ms / 1e6:.1f}" if first.nbytes and ms else "-"
    bound = roofline(first, *peaks(first.device))
    share = f"{100 * bound / ms:.0f} %" if bound and ms else "-"
    return label, count, f"{sum(times):.3f} ms", f"{ms:.3f} ms", tflops, gbps, share


def roofline(one: Launched, flops: float | None, nbytes: float) -> float:
    """The milliseconds that a launch takes at least, at these peaks per second: FLOPs of 16-bit operands, and bytes."""
    compute = one.flops / (flops * RATES.get(one.operands, 1.0)) * 1e3 if one.flops and flops else 0.0
    return max(compute, one.nbytes / nbytes * 1e3 if nbytes else 0.0)


@cache
def peaks(ordinal: int) -> tuple[float | None, float]:
    """(FLOP/s of 16-bit operands, None where they are not known; bytes/s) of a GPU. Memory moves two words a clock (DDR)."""
    gpu = driver.device(ordinal)
    key = driver.api().CUdevice_attribute
    clock, memory_clock, bus = (
        driver.attribute(gpu, which)
        for which in (
            key.CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
            key.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
            key.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
        )
    )
    per_clock = FLOPS_PER_CLOCK.get(gpu.capability)
    flops = None if per_clock is None else per_clock * driver.multiprocessors(gpu) * clock * 1e3
    return flops, 2 * memory_clock * 1e3 * bus / 8


@contextmanager
def profile() -> Iterator[Profile]:
    """Watch all launches of this process within the block, of all threads; see the module's documentation."""
    watching = Profile()
    with launch.observed(watching):
        yield watching
    watching.close()
