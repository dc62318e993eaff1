"""Tensor maps and boxes: what a tensor copy reads and writes (PTX ISA 9.0 §5.5; CUDA driver API, cuTensorMapEncodeTiled).

A tensor map is 128 opaque bytes for a program. Ours, little endian: "TMAP", rank, dtype, log2 of the swizzle span (0: none),
fill; address; 5 dimensions less one; 4 strides in bytes; 5 box extents; 5 element strides. So a kernel may copy a map and edit
it (tensormap.replace) as it may on the hardware.

**Loads.** A box starts at signed coordinates, innermost first. Elements outside the tensor read as zeros, or as a NaN
pattern; the byte count is that of the whole box. In dimensions 1 and up an element stride e takes every e-th element, ceil(box / e) of
them; dimension 0 ignores it. In shared memory the box is dense, innermost first, its 16-byte chunks swizzled by address.

**Stores** write the part of the box inside the tensor, but whole 16-byte units in the innermost dimension: an extent that ends inside a
unit is overwritten to the unit's end, with what shared memory holds there (measured on an H200: 67 bf16 in rows of 72 overwrote
columns 67 to 71).

Measured too, and a fault here: the innermost start must be a multiple of 16 bytes, and a store's start not negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import TensorMap
from .faults import Fault, Misaligned, OutOfBounds
from .fragments import swizzle
from .memory import Allocation, Memory

Array = NDArray[Any]

_LAYOUT = struct.Struct("<4sBBBBQ5I4Q5H5B")
_MAGIC = b"TMAP"
MAP_BYTES = 128

_ELEMENT_BYTES = {
    **dict.fromkeys(("i8", "u8", "s8", "e4m3", "e5m2", "i1", "f8E4M3FN", "f8E5M2", "ui8"), 1),
    **dict.fromkeys(("i16", "u16", "s16", "f16", "bf16"), 2),
    **dict.fromkeys(("i32", "u32", "s32", "f32", "tf32"), 4),
    **dict.fromkeys(("i64", "u64", "s64", "f64"), 8),
}
_DTYPES = tuple(_ELEMENT_BYTES)
_UPDATE_TYPES = {"i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64", "tf32": "f32"}
_NAN_FILL = {2: 0x7FF7, 4: 0x7FF77FF7, 8: 0x7FF77FF77FF77FF7}


def element_bytes(dtype: str) -> int:
    size = _ELEMENT_BYTES.get(dtype)
    if size is None:
        raise TeselaError(f"a tensor map cannot have elements of type {dtype!r}")
    return size


def update_type(dtype: str) -> str:
    """The PTX type in which reductions on a map's elements are computed."""
    return _UPDATE_TYPES.get(dtype, dtype)


def encode_tensor_map(tensor_map: TensorMap) -> bytes:
    """The 128 bytes of a map. Raises TeselaError for what cuTensorMapEncodeTiled refuses."""
    t = tensor_map
    rank, size = len(t.dims), element_bytes(t.dtype)
    problems: list[str] = []
    if not 1 <= rank <= 5 or len(t.strides) != rank - 1 or len(t.box) != rank or len(t.element_strides) != rank:
        problems.append(
            f"{rank} dimensions, {len(t.strides)} strides, {len(t.box)} box extents, {len(t.element_strides)} element strides"
        )
    if t.address % 16:
        problems.append(f"the address 0x{t.address:x} must be a multiple of 16")
    if any(s % 16 or not 0 <= s < 1 << 40 for s in t.strides):
        problems.append(f"the strides {t.strides} must be multiples of 16 bytes below 2^40")
    if any(not 1 <= d <= 1 << 32 for d in t.dims):
        problems.append(f"the dimensions {t.dims} must be 1 to 2^32")
    if any(not 1 <= b <= 256 for b in t.box):
        problems.append(f"the box {t.box} must have extents of 1 to 256")
    if any(not 1 <= e <= 8 for e in t.element_strides):
        problems.append(f"the element strides {t.element_strides} must be 1 to 8")
    inner = t.box[0] * size if t.box else 0
    if inner % 16:
        problems.append(f"the box's innermost extent has {inner} bytes, which must be a multiple of 16")
    if t.swizzle not in (0, 32, 64, 128):
        problems.append(f"the swizzle span is {t.swizzle}, which must be 0, 32, 64 or 128 bytes")
    elif t.swizzle and inner > t.swizzle:
        problems.append(f"the box's innermost extent has {inner} bytes, more than the swizzle span of {t.swizzle}")
    if problems:
        raise TeselaError("tensor map: " + "; ".join(problems))
    pad = 5 - rank
    packed = _LAYOUT.pack(
        _MAGIC,
        rank,
        _DTYPES.index(t.dtype),
        t.swizzle.bit_length(),
        int(t.fill == "nan"),
        t.address,
        *(d - 1 for d in t.dims),
        *[0] * pad,
        *t.strides,
        *[0] * (4 - len(t.strides)),
        *t.box,
        *[1] * pad,
        *t.element_strides,
        *[1] * pad,
    )
    return packed.ljust(MAP_BYTES, b"\0")


@lru_cache(maxsize=256)
def decode_tensor_map(data: bytes) -> TensorMap:
    """The map in 128 bytes. Raises Fault for bytes that are none."""
    magic, rank, dtype, span, nan, address, *rest = _LAYOUT.unpack(data[: _LAYOUT.size])
    if magic != _MAGIC or not 1 <= rank <= 5:
        raise Fault("there is no tensor map at this address")
    dims, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:19]
    return TensorMap(
        _DTYPES[dtype],
        address,
        tuple(d + 1 for d in dims[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
        tuple(steps[:rank]),
        1 << (span - 1) if span else 0,
        "nan" if nan else "zero",
    )


def box_shape(t: TensorMap) -> tuple[int, ...]:
    """The extents of a box in shared memory, innermost first."""
    return (t.box[0], *(-(-b // e) for b, e in zip(t.box[1:], t.element_strides[1:])))


def box_bytes(t: TensorMap) -> int:
    count = element_bytes(t.dtype)
    for extent in box_shape(t):
        count *= extent
    return count


@lru_cache(maxsize=256)
def chunk_places(chunks: int, span: int, start: int) -> NDArray[np.intp]:
    """Indices of 16-byte chunks, relative to the 1024-byte boundary below a box at `start` (taken modulo 1024), in the order of the
    dense box."""
    return (swizzle(start + 16 * np.arange(chunks), span) >> 4).astype(np.intp)


def _check_start(t: TensorMap, coords: tuple[int, ...], store: bool) -> None:
    size = element_bytes(t.dtype)
    if len(coords) != len(t.dims):
        raise Fault(f"{len(coords)} coordinates for a tensor map of {len(t.dims)} dimensions")
    if coords[0] * size % 16:
        raise Misaligned(
            f"the innermost coordinate {coords[0]} is {coords[0] * size} bytes into a row, which is not a multiple of 16",
            hint="the hardware traps here; start at a multiple of 16 bytes or take another path",
        )
    if store and min(coords) < 0:
        raise OutOfBounds(f"a tensor store at coordinates {coords}: negative starts are possible in loads only")
    if t.swizzle and t.box[0] * size != t.swizzle:
        raise Fault(
            f"a box row of {t.box[0] * size} bytes under a swizzle of {t.swizzle}: the simulator takes equal spans only"
        )


class Window:
    """The part of a box that lies in the tensor: `where` slices the box (outermost first), `elements` is a strided view of global
    memory. None where nothing lies inside."""

    def __init__(self, memory: Memory, t: TensorMap, coords: tuple[int, ...], store: bool):
        _check_start(t, coords, store)
        size = element_bytes(t.dtype)
        unit = 16 // size
        shape = box_shape(t)
        strides = (size, *t.strides)
        where: list[slice] = []
        first, last = t.address, t.address
        steps: list[int] = []
        self.elements: Array | None = None
        for d, (extent, dim, at, stride) in enumerate(zip(shape, t.dims, coords, strides)):
            step = t.element_strides[d] if d else 1
            low = -(at // step) if at < 0 else 0
            high = min(extent, -(-(dim - at) // step)) if at < dim else 0
            if d == 0 and store and high > 0:
                high = min(extent, -(-high // unit) * unit)
            if high <= low:
                self.where = ()
                return
            where.append(slice(low, high))
            first += (at + low * step) * stride
            last += (at + (high - 1) * step) * stride
            steps.append(step * stride)
        self.where = tuple(reversed(where))
        allocation = memory.find(first, last + size - first)
        if allocation is None:
            raise OutOfBounds(
                f"the tensor map reaches global addresses 0x{first:x} to 0x{last + size:x}: {memory.describe(last)}"
            )
        self.allocation: Allocation = allocation
        base, view = allocation.view(size)
        counts = [s.stop - s.start for s in reversed(where)]
        self.first, self.run_bytes, self._outer = first, counts[-1] * size, list(zip(counts, reversed(steps)))[:-1]
        self.elements = np.lib.stride_tricks.as_strided(
            view[(first - base) // size :], counts, list(reversed(steps)), writeable=view.flags.writeable
        )

    def runs(self) -> NDArray[np.int64]:
        """The global addresses of its contiguous runs of `run_bytes` bytes."""
        addresses = np.array([self.first], np.int64)
        for count, step in self._outer:
            addresses = (addresses[:, None] + step * np.arange(count)).reshape(-1)
        return addresses


Seen = Callable[[NDArray[np.int64], int], None]
"""Is told the addresses of runs of bytes, and how many bytes each has."""


def read_box(memory: Memory, t: TensorMap, coords: tuple[int, ...], seen: Seen | None = None) -> NDArray[np.uint8]:
    """The bytes of a box in dense order, filled where it lies outside. `seen` is told what is read."""
    window = Window(memory, t, coords, store=False)
    if seen is not None and window.elements is not None:
        seen(window.runs(), window.run_bytes)
    size = element_bytes(t.dtype)
    fill = _NAN_FILL.get(size, 0) if t.fill == "nan" else 0
    box = np.full(box_shape(t)[::-1], fill, f"u{size}")
    if window.elements is not None:
        box[window.where] = window.elements
    return box.reshape(-1).view(np.uint8)


def write_box(
    memory: Memory,
    t: TensorMap,
    coords: tuple[int, ...],
    data: NDArray[np.uint8],
    update: Any = None,
    seen: Seen | None = None,
) -> None:
    """Writes a dense box, clipped; with `update(old, new)` it combines elements (given as unsigned integers) instead. `seen` is told what is
    written."""
    window = Window(memory, t, coords, store=True)
    if window.elements is None:
        return
    if seen is not None:
        seen(window.runs(), window.run_bytes)
    if not window.allocation.data.flags.writeable:
        raise Fault(f"tensor store to {window.allocation.label}, which is read-only")
    box = data.view(f"u{element_bytes(t.dtype)}").reshape(box_shape(t)[::-1])[window.where]
    window.elements[...] = box if update is None else update(window.elements.copy(), box)
