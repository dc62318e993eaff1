"""What a kernel printed and which of its assertions failed: read from the launch's buffer once the launch is done (`dialects/device_messages.py`).

A kernel with `print` or run-time `assert` is launched with a buffer of its own, and its call waits for it: prints go to Python's standard output, block by
block, and a failed assertion becomes a TeselaError at its line. Kernels without either have no buffer, no parameter, and do not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dialects.device_messages import (
    BUFFER_BYTES,
    FAILURES_AT,
    HEADER_BYTES,
    LAST_FAILURE,
    UNIT,
    MessageSite,
    block_text,
    failure_bit,
)
from ..dialects.diagnostics import Diagnostic, Location, TeselaError
from ..dialects.launch_plan import LaunchPlan
from . import driver
from .arrays import ELEMENT_TYPES


class AssertionsFailed(TeselaError):
    """Assertions of a kernel failed. The kernel has run to its end, so what it wrote is there."""



def new_buffer() -> np.ndarray:
    """A buffer without records."""
    return np.zeros(BUFFER_BYTES, np.uint8)


class DeviceBuffer:
    """A buffer on the current GPU for one launch."""

    def __init__(self) -> None:
        self.address = driver.allocate(BUFFER_BYTES)
        driver.fill_zeros(self.address, HEADER_BYTES)
        driver.synchronize()  # the launch may be on a stream that does not wait for the default one

    def read(self, stream: int) -> np.ndarray:
        """What the launch wrote, once it is done."""
        driver.synchronize(stream)
        data = new_buffer()
        driver.copy_to_host(data.ctypes.data, self.address, BUFFER_BYTES)
        return data

    def close(self) -> None:
        driver.free(self.address)


def deliver(plan: LaunchPlan, data: np.ndarray) -> None:
    """Print what was printed, the blocks in order of their coordinates. Raises TeselaError for assertions that failed."""
    written = int(data[:8].view(np.uint64)[0])
    room = BUFFER_BYTES - HEADER_BYTES
    records = []
    at = HEADER_BYTES
    end = HEADER_BYTES + min(written, room)
    while at + UNIT <= end:
        site = plan.messages[int(data[at : at + 4].view(np.int32)[0])]
        if at + site.record_bytes > end:  # it found no room
            break
        records.append((site, *_read(site, data[at : at + site.record_bytes])))
        at += site.record_bytes
    records.sort(key=lambda record: record[1])
    failed: dict[MessageSite, list[tuple[int, ...]]] = {}
    for site, coordinates, values in records:
        if site.kind == "print":
            print(site.line_of(coordinates, values))
        else:
            failed.setdefault(site, []).append(coordinates)
    if written > room:
        print(f"{plan.name}: {written - room} bytes of messages did not fit the buffer of {room}, and were lost")
    bits = int(data[FAILURES_AT:HEADER_BYTES].view(np.uint64)[0])
    for number, site in enumerate(plan.messages):
        if site.kind == "assert" and bits & failure_bit(number) and site not in failed and (number < LAST_FAILURE or not failed):
            failed[site] = []  # its message was lost
    if failed:
        raise AssertionsFailed([_failure(plan, site, blocks) for site, blocks in failed.items()])


def _read(site: MessageSite, record: np.ndarray) -> tuple[tuple[int, ...], list[Any]]:
    """The coordinates and the values of a record."""
    coordinates = tuple(int(c) for c in record[UNIT : UNIT * (1 + site.coordinates)].view(np.int64))
    values = []
    for (dtype, shape), (at, nbytes) in zip(site.values, site.parts()):
        array = record[at : at + nbytes].view(ELEMENT_TYPES[dtype]).reshape(shape)
        values.append(array if shape else array[()])
    return coordinates, values


def _failure(plan: LaunchPlan, site: MessageSite, blocks: Sequence[tuple[int, ...]]) -> Diagnostic:
    place = Location(site.file, site.line, site.column) if site.file else None
    where = f" in {block_text(blocks[0])}" if blocks and blocks[0] else ""
    more = f" and {len(blocks) - 1} more" if len(blocks) > 1 else ""
    return Diagnostic("error", f"{plan.name}: assertion failed{where}{more}: {site.text}", place)
