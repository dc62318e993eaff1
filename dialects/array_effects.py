"""Which arrays an operation's threads read, write or update atomically: the one answer for all passes that order accesses.

Copies into channels (`async.put`) are not among them: channels order those.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from . import async_copy, tile

READ, WRITE, ATOMIC = "r", "w", "a"

ACCESSES: dict[type[Operation], str] = {
    tile.LoadOp: READ,
    tile.LoadIndexedOp: READ,
    tile.StoreOp: WRITE,
    tile.StoreIndexedOp: WRITE,
    async_copy.StoreOp: WRITE,
    tile.AtomicOp: ATOMIC,
}
"""Operations on the array that is their operand `array`, and how they access it."""


def array_access(op: Operation) -> tuple[SSAValue, str] | None:
    """(the array that an operation accesses, READ, WRITE or ATOMIC); None for other operations."""
    access = ACCESSES.get(type(op))
    return None if access is None else (op.array, access)  # type: ignore[attr-defined]


def may_write(op: Operation) -> bool:
    """Whether an operation changes an array."""
    return ACCESSES.get(type(op), READ) != READ


def accesses_inside(op: Operation) -> Iterator[tuple[SSAValue, str]]:
    """All accesses of an operation and of what is in its regions."""
    for inner in op.walk():
        if (found := array_access(inner)) is not None:
            yield found


def conflict(first: str, second: str) -> bool:
    """Whether accesses of two threads, each some of READ, WRITE and ATOMIC, need an order: two reads do not, and two atomic updates do not."""
    return any(a != b or a == WRITE for a in first for b in second)
