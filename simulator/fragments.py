"""Who holds which matrix element: register fragments of mma and wgmma, shared-memory descriptors, swizzles.

Everything is written down from the PTX ISA (9.0 §9.7.14.5 for mma, §9.7.15 for wgmma and its descriptors, §5.5.7 for swizzles) and was checked
there against an H200; nothing is taken from the compiler, which this file judges.

**Fragments.** In a warp, g = lane / 4 and q = lane % 4; an operand element has b bits, so that p = 32 / b of them share a
register. One rule gives every operand fragment of mma.sync and of wgmma:

    A, element e of a lane: row g + 8 ((e / p) % 2),  k = p q + e % p + 4 p (e / 2p)
    B, element e of a lane: n = g,                    k = p q + e % p + 4 p (e / p)
    accumulator, element i: row g + 8 ((i / 2) % 2),  column 2 q + i % 2 + 8 (i / 4)

wgmma's four warps hold rows 16 w and up. For b = 16 lane 5 (g = 1, q = 1) holds in its first register A[1, 2..3]:

>>> [int(x[0, 5]) for x in operand_a(16, 16)], [int(x[1, 5]) for x in operand_a(16, 16)]
([1, 2], [1, 3])

**Descriptors.** 64 bits: start address (bits 0-13), leading byte offset LBO (16-29), stride byte offset SBO (32-45), all
in units of 16 bytes; base offset (49-51); swizzle mode (62-63: 0 none, 1 128 B, 2 64 B, 3 32 B). With a swizzle of S bytes,
before swizzling,

    K-major:   byte(row, kb) = (row / 8) SBO + (row % 8) S + kb                       kb: byte along K, LBO is ignored
    MN-major:  byte(mn, k)   = (mn / s) LBO + (k / 8) SBO + (k % 8) S + 2 (mn % s)    s = S / 2 elements of 16 bits

and without one, in core matrices of 8 rows of 16 bytes,

    K-major:   byte(row, kb) = (kb / 16) LBO + (row / 8) SBO + 16 (row % 8) + kb % 16
    MN-major:  byte(mn, k)   = (k / 8) LBO + (mn / 8) SBO + 16 (k % 8) + 2 (mn % 8)

**Swizzles** act on the final address: bits 4-6 (128 B), 4-5 (64 B) or 4 (32 B) are XORed with bits 7 and up.

>>> [int(swizzle(np.array(a), 128)) for a in (0, 128, 144, 1024 + 128)]
[0, 144, 128, 1168]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import Fault

Array = NDArray[Any]

_LANES = np.arange(32)
_G, _Q = _LANES // 4, _LANES % 4
SWIZZLE_BYTES = {0: 0, 1: 128, 2: 64, 3: 32}
"""A descriptor's swizzle mode -> span in bytes."""


def swizzle(address: Array, span: int) -> Array:
    """The address at which a byte is found that would lie at `address` without the swizzle; its own inverse."""
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[span]
    return address ^ (((address >> 7) & mask) << 4)


@cache
def operand_a(bits: int, k: int) -> tuple[Array, Array]:
    """(row, k) [elements, 32] of a 16 x k A operand with elements of `bits` bits."""
    per = 32 // bits
    e = np.arange(16 * k // 32)[:, None]
    return _G + 8 * ((e // per) % 2), per * _Q + e % per + 4 * per * (e // (2 * per))


@cache
def operand_b(bits: int, k: int) -> tuple[Array, Array]:
    """(k, n) [elements, 32] of a k x 8 B operand."""
    per = 32 // bits
    e = np.arange(8 * k // 32)[:, None]
    return per * _Q + e % per + 4 * per * (e // per), np.broadcast_to(_G, (len(e), 32))


@cache
def accumulator(n: int) -> tuple[Array, Array]:
    """(row, column) [elements, 32] of a 16 x n accumulator."""
    i = np.arange(16 * n // 32)[:, None]
    return _G + 8 * ((i // 2) % 2), 2 * _Q + i % 2 + 8 * (i // 4)


@cache
def warpgroup(fragment: str, bits: int, extent: int) -> tuple[Array, Array]:
    """`operand_a` (extent k) or `accumulator` (extent n) of the four warps of a warpgroup: [elements, 128], rows 0 to 63."""
    rows, columns = operand_a(bits, extent) if fragment == "a" else accumulator(extent)
    warps = np.arange(4)[:, None]
    all_rows = rows[:, None, :] + 16 * warps
    all_columns = np.broadcast_to(columns[:, None, :], all_rows.shape)
    return all_rows.reshape(len(rows), 128), all_columns.reshape(len(rows), 128)


@cache
def flat_maps(rows: int, columns: int, kind: str, bits: int) -> tuple[Array, Array]:
    """(scatter, gather) between a fragment's registers-by-threads order and a row-major matrix: `matrix.flat[scatter]` are the elements in
    [element, thread] order, `elements.flat[gather]` the matrix."""
    row, column = {
        "wgmma a": lambda: warpgroup("a", bits, columns),
        "wgmma d": lambda: warpgroup("d", bits, columns),
        "mma a": lambda: operand_a(bits, columns),
        "mma b": lambda: operand_b(bits, rows),
        "mma d": lambda: accumulator(columns),
    }[kind]()
    scatter = (row * columns + column).reshape(-1)
    gather = np.empty(rows * columns, np.intp)
    gather[scatter] = np.arange(rows * columns)
    return scatter, gather


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A wgmma matrix descriptor, decoded; offsets and the start in bytes."""

    start: int
    leading: int
    stride: int
    span: int

    @staticmethod
    def decode(word: int) -> Descriptor:
        if (word >> 49) & 7:
            raise Fault(
                f"the matrix descriptor 0x{word:016x} has base offset {(word >> 49) & 7}; the simulator takes only 0",
                hint="align the swizzled tile to 1024, 512 or 256 bytes (128-, 64-, 32-byte mode)",
            )
        return Descriptor(
            (word & 0x3FFF) << 4, ((word >> 16) & 0x3FFF) << 4, ((word >> 32) & 0x3FFF) << 4, SWIZZLE_BYTES[word >> 62]
        )


@lru_cache(maxsize=256)
def descriptor_bytes(
    start: int, leading: int, stride: int, span: int, extent: int, k: int, size: int, k_major: bool
) -> NDArray[np.int64]:
    """[extent, k]: the byte addresses, relative to `start` rounded down to 1024, of an operand's elements of `size` bytes. Only
    start % 1024 is looked at."""
    mn, kk = np.arange(extent)[:, None], np.arange(k)[None, :]
    if k_major:
        kb = kk * size
        if span:
            offset = (mn // 8) * stride + (mn % 8) * span + kb
        else:
            offset = (kb // 16) * leading + (mn // 8) * stride + 16 * (mn % 8) + kb % 16
    elif span:
        per = span // size
        offset = (mn // per) * leading + (kk // 8) * stride + (kk % 8) * span + size * (mn % per)
    else:
        offset = (kk // 8) * leading + (mn // 8) * stride + 16 * (kk % 8) + size * (mn % 8)
    return swizzle(start % 1024 + offset, span).astype(np.int64)
