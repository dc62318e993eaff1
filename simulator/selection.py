"""Sets of threads that execute an instruction together.

A machine numbers the threads of all its resident blocks along one axis: block after block, warp after warp, lane after
lane (blocks are padded to whole warps; the padding never runs). A `Selection` is an ascending set of them. Regular sets are
slices, so that register accesses are views and not copies: all threads, a few whole warps, one lane of every warp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .machine import Machine

WARP = 32


class Lanes:
    """A selection spread over whole warps: `present[w, l]` says whether lane l of its w-th warp takes part."""

    def __init__(self, warps: NDArray[np.intp], slots: NDArray[np.intp] | None, count: int):
        self.warps, self.slots, self.count = warps, slots, count
        if slots is None:
            self.present = np.ones((len(warps), WARP), bool)
        else:
            present = np.zeros(len(warps) * WARP, bool)
            present[slots] = True
            self.present = present.reshape(-1, WARP)

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """[..., threads] -> [..., warps, 32]; absent lanes hold zeros."""
        if values.shape[-1] != self.count:
            values = np.broadcast_to(values, values.shape[:-1] + (self.count,))
        shape = values.shape[:-1] + (len(self.warps), WARP)
        if self.slots is None:
            return values.reshape(shape)
        grid = np.zeros(values.shape[:-1] + (len(self.warps) * WARP,), values.dtype)
        grid[..., self.slots] = values
        return grid.reshape(shape)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """[..., warps, 32] -> [..., threads]."""
        flat = grid.reshape(grid.shape[:-2] + (-1,))
        return flat if self.slots is None else flat[..., self.slots]


class Selection:
    """`key` indexes the thread axis of a register array (a slice where the set is regular); `count` is its size."""

    __slots__ = ("machine", "key", "count", "is_slice", "_threads", "_lanes", "_full", "_blocks")

    def __init__(self, machine: Machine, key: slice | NDArray[np.intp], count: int):
        self.machine, self.key, self.count = machine, key, count
        self.is_slice = isinstance(key, slice)
        self._threads: NDArray[np.intp] | None = None if self.is_slice else key  # type: ignore[assignment]
        self._lanes: Lanes | None = None
        self._full: dict[int, tuple[int, bool]] = {}
        self._blocks: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None

    @property
    def threads(self) -> NDArray[np.intp]:
        """The threads' numbers, ascending."""
        if self._threads is None:
            key = self.key
            assert isinstance(key, slice)
            self._threads = np.arange(key.start, key.stop, key.step or 1)
        assert self._threads is not None
        return self._threads

    @property
    def first(self) -> int:
        key = self.key
        return key.start if isinstance(key, slice) else int(key[0])

    @property
    def blocks(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(resident blocks with a thread in it, ascending, by position in the machine; how many threads of each)."""
        if self._blocks is None:
            counts = np.bincount(self.machine.block_of[self.key])
            blocks = np.nonzero(counts)[0]
            self._blocks = blocks, counts[blocks]
        return self._blocks

    @property
    def lanes(self) -> Lanes:
        if self._lanes is None:
            key = self.key
            if isinstance(key, slice) and key.step == 1 and key.start % WARP == 0 and key.stop % WARP == 0:
                self._lanes = Lanes(np.arange(key.start // WARP, key.stop // WARP), None, self.count)
            else:
                threads = self.threads
                warps, slot = np.unique(threads // WARP, return_inverse=True)
                self._lanes = Lanes(warps, slot * WARP + threads % WARP, self.count)
        return self._lanes

    def is_full(self, unit: int) -> bool:
        """Whether it holds every live thread of each group of `unit` threads (32: warp, 128: warpgroup) that it touches."""
        cached = self._full.get(unit)
        if cached is None or cached[0] != self.machine.epoch:
            key = self.key
            if isinstance(key, slice) and key.step == 1 and key.start % unit == 0 and key.stop % unit == 0:
                full = True
            else:
                full = bool(self.complete(unit).all())
            cached = self._full[unit] = (self.machine.epoch, full)
        return cached[1]

    def complete(self, unit: int) -> NDArray[np.bool_]:
        """Per thread: whether all live threads of its group of `unit` threads are in the selection."""
        groups = self.threads // unit
        alive = self.machine.alive
        total = np.add.reduceat(alive, np.arange(0, len(alive), unit), dtype=np.intp)
        return np.bincount(groups, minlength=len(total))[groups] == total[groups]


def regular(threads: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """The slice with the same members, where there is one."""
    count = len(threads)
    first = int(threads[0])
    if count == 1:
        return slice(first, first + 1, 1)
    last = int(threads[-1])
    step, rest = divmod(last - first, count - 1)
    if rest or (step > 1 and not (np.diff(threads) == step).all()):
        return threads
    return slice(first, last + 1, step)
