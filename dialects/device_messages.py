"""What kernels say while they run, `print` and failed `assert`s: the sites that the program has, and the buffer that they write records to. No xDSL.

The launcher passes the address of a buffer. Its first 8 bytes count the bytes of all records, also of those that found no room; the next 8 have a bit for each assertion that failed, which prints
cannot crowd out (`failure_bit`); from HEADER_BYTES on the records follow one another, each a multiple of 8 bytes:

    site (4 bytes, the rest of 8 unused) · the block's coordinates (8 bytes each) · each value, its elements in row-major order, padded to 8 bytes

A block's records come in the order in which it wrote them; those of different blocks in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

HEADER_BYTES = 16
BUFFER_BYTES = 1 << 20
UNIT = 8
"""Records and their parts begin at multiples of so many bytes."""

ELEMENT_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8, "ui8": 1, "f8E4M3FN": 1, "f8E5M2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


FAILURES_AT = 8
"""Where the bits of failed assertions are, in bytes from the start of the buffer."""


LAST_FAILURE = 63
"""The number of the bit that all sites from it on share."""


def failure_bit(site: int) -> int:
    """The bit that says that an assertion, given by its number among the program's sites, failed."""
    return 1 << min(site, LAST_FAILURE)


def padded(nbytes: int) -> int:
    """The next multiple of UNIT."""
    return -(-nbytes // UNIT) * UNIT


@dataclass(frozen=True, slots=True)
class MessageSite:
    """One `print` or `assert` of a program. `kind`: 'print' or 'assert'; `text`: with `{}` for each value (`{{` and `}}` for braces); `values`: element type
    and shape of each; `coordinates`: how many a block has; `file`, `line` and `column` of the source, '' and 0 where it is not known."""

    kind: str
    text: str
    values: tuple[tuple[str, tuple[int, ...]], ...]
    coordinates: int
    file: str = ""
    line: int = 0
    column: int = 0

    def parts(self) -> Iterator[tuple[int, int]]:
        """(offset in the record, bytes) of each value."""
        at = UNIT * (1 + self.coordinates)
        for dtype, shape in self.values:
            nbytes = prod(shape) * ELEMENT_BYTES[dtype]
            yield at, nbytes
            at += padded(nbytes)

    @property
    def record_bytes(self) -> int:
        end = UNIT * (1 + self.coordinates)
        return max([end, *(at + padded(nbytes) for at, nbytes in self.parts())])

    def place(self) -> str:
        """`norms.py:12` where that is known."""
        return f"{self.file}:{self.line}" if self.file else ""

    def line_of(self, coordinates: Sequence[int], values: Sequence[Any]) -> str:
        """What a print shows: the place, the block, the text with its values."""
        where = " ".join(part for part in (self.place(), block_text(coordinates)) if part)
        return f"{where}: {self.text.format(*values)}"

    @staticmethod
    def from_json(data: dict[str, Any]) -> MessageSite:
        return MessageSite(**{**data, "values": tuple((dtype, tuple(shape)) for dtype, shape in data["values"])})


def block_text(coordinates: Sequence[int]) -> str:
    """`block (3, 0)`, `block 3`, or nothing for a kernel of one block."""
    if not coordinates:
        return ""
    return f"block {coordinates[0]}" if len(coordinates) == 1 else f"block ({', '.join(map(str, coordinates))})"
