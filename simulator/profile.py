"""A profile of a run: what each source line executes and moves, and how well its accesses use the hardware.

Per instruction, warp by warp, as an sm_80 or sm_90 multiprocessor would serve it (CUDA C++ Programming Guide, global
memory and shared memory):

* **Shared memory** has 32 banks of 4 bytes; word w lies in bank w % 32. A request of a warp takes as many
  *wavefronts* as the fullest bank has distinct words. Requests of 8 (16) bytes a lane are served in 2 (4) parts of
  half (quarter) warps, but the two halves, or two neighbouring quarters, as one where all of their words lie in
  different banks (measured: a word of 16 bytes that all lanes read takes 2 wavefronts). *Conflicts* are the wavefronts
  beyond those of a request without: its distinct words / 32, rounded up, and one for each part.
* **Global memory** moves sectors of 32 bytes: a request costs as many as it touches; *needed* is how many its bytes
  would fill.
* **Asynchronous copies** count bytes only.

Thread t of 32 reading float t * 2 of shared memory takes 2 wavefronts, of which 1 is a conflict: words 0 and 32 share
bank 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.diagnostics import Location
from .machine import place
from .observer import Observer
from .selection import WARP

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]

BANKS = 32
BANK_BYTES = 4
SECTOR = 32


@dataclass
class Line:
    """What a source line (or, without .loc, a PTX line) did, over all threads. `instructions`: thread-instructions;
    `warps`: warp-instructions; requests, wavefronts and sectors are per warp; bytes are what threads and copies asked
    for."""

    location: Location | None
    ptx_line: int | None
    opcodes: dict[str, int] = field(default_factory=dict)
    instructions: int = 0
    warps: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    shared_bytes: int = 0
    global_requests: int = 0
    sectors: int = 0
    sectors_needed: int = 0
    global_bytes: int = 0
    async_shared_bytes: int = 0
    async_global_bytes: int = 0

    @property
    def name(self) -> str:
        if self.location is not None:
            return f"{self.location.file}:{self.location.line}"
        return "(generated)" if self.ptx_line is None else f"PTX line {self.ptx_line}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, by name of the field."""
        numbers = {k: v for k, v in vars(self).items() if isinstance(v, int) and k != "ptx_line"}
        return {"line": self.name, **numbers, "opcodes": dict(self.opcodes)}


class Profile(Observer):
    """Watches launches; `lines` holds what they did, by place."""

    def __init__(self) -> None:
        self._lines: dict[Any, Line] = {}

    @property
    def lines(self) -> list[Line]:
        """In the order of the source."""
        return sorted(
            self._lines.values(),
            key=lambda line: (
                line.location is None,
                str(line.location and line.location.file),
                line.location.line if line.location else line.ptx_line or 0,
            ),
        )

    def _line(self, machine: Machine, position: int, row: int = 0) -> Line:
        instrs = machine.code.steps[position].instrs
        instr = instrs[min(row, len(instrs) - 1)]
        location, _ = place(machine.code.program, instr)
        key = (location.file, location.line) if location is not None else instr.line
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = Line(location, instr.line)
        return found

    def end(self, machine: Machine) -> None:
        assert machine.warp_counts is not None
        for position, (threads, warps) in enumerate(zip(machine.counts, machine.warp_counts)):
            for row, instr in enumerate(machine.code.steps[position].instrs):
                line = self._line(machine, position, row)
                line.instructions += threads
                line.warps += warps
                line.opcodes[instr.opcode] = line.opcodes.get(instr.opcode, 0) + threads

    def begin(self, machine: Machine) -> None:
        machine.warp_counts = [0] * len(machine.code.steps)

    def access(
        self,
        machine: Machine,
        kind: str,
        space: str,
        addresses: Array,
        size: int,
        threads: NDArray[np.intp],
        values: Array | None = None,
    ) -> None:
        if space == "param" or not addresses.size:
            return
        if kind.startswith("async"):
            line = self._line(machine, machine.position)
            if space == "shared":
                line.async_shared_bytes += addresses.size * size
            else:
                line.async_global_bytes += addresses.size * size
            return
        rows = addresses if addresses.ndim > 1 else addresses[None]
        warps = threads // WARP
        for row, places in enumerate(np.broadcast_to(rows, (len(rows), len(threads)))):
            line = self._line(machine, machine.position, row)
            if space == "shared":
                offsets = places % machine.shared.stride
                requests, wavefronts, ideal = bank_wavefronts(offsets, size, warps, threads % WARP)
                line.shared_requests += requests
                line.wavefronts += wavefronts
                line.conflicts += wavefronts - ideal
                line.shared_bytes += len(threads) * size
            else:
                requests, touched, needed = sectors(places, size, warps)
                line.global_requests += requests
                line.sectors += touched
                line.sectors_needed += needed
                line.global_bytes += len(threads) * size

    def table(self) -> str:
        """The profile as text: one row for each line that executed anything."""
        head = (
            "line",
            "instructions",
            "warps",
            "shared B",
            "wavefronts",
            "conflicts",
            "global B",
            "sectors",
            "needed",
            "async shared B",
            "async global B",
        )
        rows: list[Sequence[str]] = [head]
        for line in self.lines:
            if line.instructions or line.async_shared_bytes or line.async_global_bytes:
                numbers = (
                    line.instructions,
                    line.warps,
                    line.shared_bytes,
                    line.wavefronts,
                    line.conflicts,
                    line.global_bytes,
                    line.sectors,
                    line.sectors_needed,
                    line.async_shared_bytes,
                    line.async_global_bytes,
                )
                rows.append([line.name, *(f"{n:,}" if n else "" for n in numbers)])
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        )


def _distinct(groups: Array, items: Array) -> tuple[Array, Array]:
    """The distinct (group, item) pairs, as two arrays."""
    span = int(items.max()) + 1
    keys = np.unique(groups.astype(np.int64) * span + items)
    return keys // span, keys % span


def bank_wavefronts(offsets: Array, size: int, warps: Array, lanes: Array) -> tuple[int, int, int]:
    """(requests, wavefronts, wavefronts without conflicts) of accesses of `size` bytes at shared offsets [threads]."""
    words = max(1, size // BANK_BYTES)
    parts = max(1, size // BANK_BYTES)
    part = warps * parts + lanes * parts // WARP
    each = ((offsets // BANK_BYTES)[:, None] + np.arange(words)).reshape(-1)
    owner, fullest, distinct = _fullest_banks(np.repeat(part, words), each)
    requests, least = len(np.unique(warps)), -(-distinct // BANKS)
    if parts == 1:
        return requests, int(fullest.sum()), int(least.sum())
    pair, together, _ = _fullest_banks(np.repeat(part // 2, words), each)
    one = np.isin(owner // 2, pair[together == 1])
    pairs = int((together == 1).sum())
    return requests, int(fullest[~one].sum()) + pairs, int(least[~one].sum()) + pairs


def _fullest_banks(groups: Array, words: Array) -> tuple[Array, Array, Array]:
    """For each group of accesses: which it is, how many distinct words its fullest bank has, and how many all have."""
    groups, distinct = _distinct(groups, words)
    bank, count = np.unique(groups * BANKS + distinct % BANKS, return_counts=True)
    owner = bank // BANKS
    starts = np.nonzero(np.r_[True, owner[1:] != owner[:-1]])[0]
    return owner[starts], np.maximum.reduceat(count, starts), np.add.reduceat(count, starts)


def sectors(addresses: Array, size: int, warps: Array) -> tuple[int, int, int]:
    """(requests, sectors touched, sectors that the distinct bytes would fill) of accesses of `size` bytes at global
    addresses [threads]."""
    base = addresses - int(addresses.min()) // SECTOR * SECTOR
    unit = min(size, SECTOR)
    groups, _ = _distinct(warps, base // SECTOR)
    owners, _ = _distinct(warps, base // unit)
    counts = np.unique(owners, return_counts=True)[1]
    return len(np.unique(warps)), len(groups), int((-(-counts * unit // SECTOR)).sum())
