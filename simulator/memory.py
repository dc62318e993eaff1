"""Memory of the simulated device: global allocations, the shared memory of resident blocks, parameters, generic addresses.

Global memory is a set of allocations with bounds; NumPy arrays are mapped, not copied, so that kernels read and write them
in place. Addresses are made up (they start at 64 GiB, so that a pointer cut to 32 bits is noticed) and deterministic, but
keep an array's alignment: a view that starts two bytes into its array gets an address that is 2 modulo 256.

A shared address is 32 bits wide: the offset in the block's window, whose first 1024 bytes are reserved (on sm_90 the
first variable of a kernel lies at 0x400), and in bits 24 and up the block's rank in its cluster, as seen on an H200.
Generic addresses hold the shared window and the parameters at fixed high bases; anything below is global (PTX ISA 9.0 §5.2 and
§9.7.9.20, cvta).
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.diagnostics import TeselaError
from .faults import Fault, Misaligned, OutOfBounds

GLOBAL_BASE = 1 << 36
SHARED_WINDOW = 0x7F10_0000_0000
PARAM_WINDOW = 0x7F20_0000_0000
WINDOW_SIZE = 1 << 32
RESERVED_SHARED = 1024
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
SHARED_LIMIT = 232448  # bytes a block may have, sm_90 (CUDA C++ Programming Guide, technical specifications)

_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Allocation:
    """`size` bytes at `address`, backed by `data` (uint8). `label` names it in errors."""

    def __init__(self, address: int, data: NDArray[np.uint8], label: str, owner: Any = None):
        self.address, self.size, self.data, self.label, self.owner = address, len(data), data, label, owner
        self._views: dict[int, tuple[int, NDArray[Any]]] = {}

    @property
    def end(self) -> int:
        return self.address + self.size

    def view(self, size: int) -> tuple[int, NDArray[Any]]:
        """(first, elements): its elements of `size` bytes at addresses that are multiples of `size`."""
        cached = self._views.get(size)
        if cached is None:
            first = -(-self.address // size) * size
            count = max(0, (self.end - first) // size)
            start = first - self.address
            cached = self._views[size] = (first, self.data[start : start + count * size].view(_UNSIGNED[size]))
        return cached


def _address(array: NDArray[Any]) -> int:
    """Of the first element, in the memory of this process."""
    found: int = array.__array_interface__["data"][0]
    return found


def _root(array: NDArray[Any]) -> NDArray[Any]:
    """The array that a view is of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """(first byte, end) of what an array's elements lie in."""
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides)]
    start = _address(array)
    return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + array.itemsize


def _sharing(arrays: Sequence[NDArray[Any]]) -> list[tuple[list[int], int, int]]:
    """(numbers of the arrays, first byte, end) of each run of memory in which spans of arrays overlap, in the order of the arrays; an empty one is by itself."""
    found: list[tuple[list[int], int, int]] = [([i], 0, 0) for i, array in enumerate(arrays) if not array.size]
    reached = -1
    for start, end, i in sorted((*_span(array), i) for i, array in enumerate(arrays) if array.size):
        if start < reached:
            shared, low, high = found.pop()
            found.append((sorted([*shared, i]), low, max(high, end)))
        else:
            found.append(([i], start, end))
        reached = found[-1][2]
    return sorted(found)


class Memory:
    """Global memory. `alloc` and `map_array` give addresses to pass as kernel parameters."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._allocations: list[Allocation] = []
        self._next = GLOBAL_BASE

    def _add(self, data: NDArray[np.uint8], low_bits: int, label: str, owner: Any = None) -> int:
        address = self._next + low_bits
        # A gap between allocations, so that running over the end of one does not reach the next.
        self._next = -(-(address + len(data) + 256) // 256) * 256
        self._starts.append(address)
        self._allocations.append(Allocation(address, data, label, owner))
        return address

    def alloc(self, nbytes: int, label: str = "") -> int:
        """The address (a multiple of 256) of `nbytes` zeroed bytes."""
        if nbytes < 0:
            raise TeselaError(f"cannot allocate {nbytes} bytes")
        return self._add(np.zeros(nbytes, np.uint8), 0, label or f"allocation of {nbytes} bytes")

    def map_array(self, array: NDArray[Any], label: str = "") -> int:
        """The address of `array`'s first element. Kernels work on the array itself; a read-only array faults when written.

        Strides may be anything: what is mapped is the span of bytes from the array's lowest to its highest element."""
        return self.map_arrays([array], [label])[0]

    def map_arrays(self, arrays: Sequence[NDArray[Any]], labels: Sequence[str]) -> list[int]:
        """The addresses of the first elements of several arrays. Those whose spans of bytes overlap are one allocation, which has the names of all: what a
        kernel writes to one it reads from the others, and is judged as an access to the same memory. (It faults only if all of them are read-only.)"""
        addresses = [0] * len(arrays)
        for shared, low, high in _sharing(arrays):
            first = arrays[shared[0]]
            raw = np.zeros(0, np.uint8) if low == high else np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
            raw.flags.writeable = any(arrays[i].flags.writeable for i in shared)
            label = ", ".join(labels[i] or f"{'' if first.size else 'empty '}array {arrays[i].shape} of {arrays[i].dtype}" for i in shared)
            address = self._add(raw, (low - _address(_root(first))) % 256 if first.size else 0, label, first if len(shared) == 1 else [arrays[i] for i in shared])
            for i in shared:
                addresses[i] = address + (_address(arrays[i]) - low if first.size else 0)
        return addresses

    def snapshot(self) -> list[NDArray[np.uint8]]:
        """A copy of what all allocations hold, for `restore`."""
        return [a.data.copy() for a in self._allocations]

    def restore(self, contents: list[NDArray[np.uint8]]) -> None:
        """Put back what `snapshot` gave."""
        for allocation, data in zip(self._allocations, contents):
            if allocation.data.flags.writeable:
                allocation.data[:] = data

    def spans(self) -> list[tuple[int, int]]:
        """(address, end) of all allocations."""
        return [(a.address, a.end) for a in self._allocations]

    def find(self, address: int, size: int = 1) -> Allocation | None:
        """The allocation that holds all of [address, address + size)."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address + size > self._allocations[at].end:
            return None
        return self._allocations[at]

    def bytes_at(self, address: int, size: int) -> NDArray[np.uint8]:
        """A view of `size` bytes. Raises TeselaError where they are not all in one allocation."""
        found = self.find(address, size)
        if found is None:
            raise TeselaError(f"global memory 0x{address:x}, {size} bytes: {self.describe(address)}")
        start = address - found.address
        return found.data[start : start + size]

    def describe(self, address: int) -> str:
        """Where an address lies, in words."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return "below every allocation"
        near = self._allocations[at]
        if address < near.end:
            return f"{address - near.address} bytes into {near.label}, which has {near.size}"
        return f"{address - near.end} bytes past the end of {near.label} ({near.size} bytes)"

    # Vectorised access. `addresses` is [n, threads] of uint64; `threads` the threads' numbers for errors.

    def _locate(
        self, addresses: NDArray[np.uint64], size: int, threads: NDArray[np.intp], verb: str, align: int | None = None
    ) -> list[tuple[Allocation, Any]]:
        """Allocations and the part of `addresses` in each (an index; Ellipsis for all of it)."""
        align = align or size
        if (addresses & np.uint64(align - 1)).any():
            at, thread = np.argwhere(addresses & np.uint64(align - 1))[0]
            address = int(addresses[at, thread])
            raise Misaligned(
                f"misaligned {verb} of {size} bytes at global address 0x{address:x}: the address must be a multiple of {align}",
                int(at),
                int(threads[thread]),
            )
        low, high = int(addresses.min()), int(addresses.max())
        found = self.find(low, size)
        if found is not None and high + size <= found.end:
            return [(found, ...)]
        starts = np.array(self._starts, np.uint64)
        which = np.searchsorted(starts, addresses, side="right").astype(np.intp) - 1
        ends = np.array([a.end for a in self._allocations], np.uint64)
        bad = which < 0
        if len(ends):
            bad |= addresses + np.uint64(size) > ends[np.maximum(which, 0)]
        if bad.any():
            at, thread = np.argwhere(bad)[0]
            address = int(addresses[at, thread])
            raise OutOfBounds(
                f"{verb} of {size} bytes out of bounds at global address 0x{address:x}: {self.describe(address)}",
                int(at),
                int(threads[thread]),
            )
        return [(self._allocations[k], which == k) for k in np.unique(which)]

    def load(
        self,
        addresses: NDArray[np.uint64],
        element: int,
        vector: int,
        threads: NDArray[np.intp],
        align: int | None = None,
    ) -> NDArray[Any]:
        """[n, vector, threads] unsigned integers of `element` bytes; `align` defaults to the whole access."""
        parts = self._locate(addresses, element * vector, threads, "load", align)
        if len(parts) == 1:
            first, view = parts[0][0].view(element)
            return view[_element_index(addresses, first, element, vector)]
        result = np.empty((addresses.shape[0], vector, addresses.shape[1]), _UNSIGNED[element])
        for allocation, mask in parts:
            first, view = allocation.view(element)
            index = (addresses[mask] - np.uint64(first)).astype(np.intp) >> _SHIFT[element]
            for v in range(vector):
                result[:, v, :][mask] = view[index + v]
        return result

    def store(
        self, addresses: NDArray[np.uint64], values: NDArray[Any], element: int, threads: NDArray[np.intp]
    ) -> None:
        """`values` [n, vector, threads] of unsigned integers; where two write one place, the later instruction, then the
        higher thread wins."""
        vector = values.shape[1]
        for allocation, mask in self._locate(addresses, element * vector, threads, "store"):
            self.check_writable(allocation, threads)
            first, view = allocation.view(element)
            if mask is ...:
                view[_element_index(addresses, first, element, vector)] = values
                continue
            index = (addresses[mask] - np.uint64(first)).astype(np.intp) >> _SHIFT[element]
            shape = addresses.shape[:1] + (vector,) + addresses.shape[1:]
            full = np.broadcast_to(values, shape)
            for v in range(vector):
                view[index + v] = full[:, v, :][mask]

    @staticmethod
    def check_writable(allocation: Allocation, threads: NDArray[np.intp]) -> None:
        if not allocation.data.flags.writeable:
            raise Fault(f"store to {allocation.label}, which is read-only", 0, int(threads[0]))

    def targets(
        self, addresses: NDArray[np.uint64], element: int, size: int, threads: NDArray[np.intp]
    ) -> list[tuple[NDArray[Any], NDArray[np.intp], Any]]:
        """For atomics of `size` bytes: (elements, indices into them, the part of `addresses` they stand for)."""
        result: list[tuple[NDArray[Any], NDArray[np.intp], Any]] = []
        for allocation, mask in self._locate(addresses, size, threads, "atomic operation"):
            self.check_writable(allocation, threads)
            first, view = allocation.view(element)
            result.append((view, (addresses[mask] - np.uint64(first)).astype(np.intp) >> _SHIFT[element], mask))
        return result


def _element_index(addresses: NDArray[np.uint64], first: int, element: int, vector: int) -> NDArray[np.intp]:
    index = (addresses - np.uint64(first)).view(np.int64) >> _SHIFT[element]
    index = index[:, None, :]
    return index if vector == 1 else index + np.arange(vector)[:, None]


class SharedMemory:
    """The shared memory of all resident blocks: `stride` bytes each, of which the first 1024 are reserved and the next `size`
    are the kernel's. `data` is uint8; flat index = block * stride + offset."""

    def __init__(self, blocks: int, size: int):
        self.size = size
        self.limit = RESERVED_SHARED + size
        self.stride = -(-self.limit // 1024) * 1024
        self.data = np.zeros(blocks * self.stride, np.uint8)
        self._views = {1: self.data, **{s: self.data.view(_UNSIGNED[s]) for s in (2, 4, 8)}}

    def view(self, element: int) -> NDArray[Any]:
        return self._views[element]

    def check(self, offsets: NDArray[np.int64], size: int, align: int, threads: NDArray[np.intp], verb: str) -> None:
        """Faults unless all accesses of `size` bytes at `offsets` [n, threads] lie in the kernel's part and are aligned."""
        if ((offsets & (align - 1)) != 0).any():
            at, thread = np.argwhere(offsets & (align - 1))[0]
            raise Misaligned(
                f"misaligned {verb} of {size} bytes at shared address 0x{int(offsets[at, thread]):x}: the address must be "
                f"a multiple of {align}",
                int(at),
                int(threads[thread]),
            )
        if int(offsets.min()) < RESERVED_SHARED or int(offsets.max()) + size > self.limit:
            at, thread = np.argwhere((offsets < RESERVED_SHARED) | (offsets + size > self.limit))[0]
            raise OutOfBounds(
                f"{verb} of {size} bytes out of bounds at shared address 0x{int(offsets[at, thread]):x}: the kernel's shared "
                f"memory is 0x{RESERVED_SHARED:x} to 0x{self.limit:x} ({self.size} bytes)",
                int(at),
                int(threads[thread]),
            )

    def load(self, flat: NDArray[np.int64], element: int, vector: int) -> NDArray[Any]:
        index = (flat >> _SHIFT[element])[:, None, :]
        return self._views[element][index if vector == 1 else index + np.arange(vector)[:, None]]

    def store(self, flat: NDArray[np.int64], values: NDArray[Any], element: int) -> None:
        vector = values.shape[1]
        index = (flat >> _SHIFT[element])[:, None, :]
        self._views[element][index if vector == 1 else index + np.arange(vector)[:, None]] = values
