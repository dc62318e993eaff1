"""Channels, buffers and asynchronous dots of the block interpreter: first in first out, strict about misuse.

A channel of depth d is a ring of d slots, each in one of three states, in this cycle:

    free --put, write--> filled --get--> got --release--> free

`put` needs a free slot, `get` takes the oldest filled one, `release` frees the oldest that was got. Program order is the only order within a
role, and in a block without roles, where an operation that would have to wait for a later one is a deadlock and an error. Roles wait for one
another; where all wait, that is a deadlock. What is asynchronous is checked:

- a put reads its array at some time before its get, so the array must not change in between there;
- a buffer is read only between its get and its release;
- a dot that reads buffers has read them when its token, or its result, or those of a later dot, were waited for (dots
  complete in the order in which they were issued); a slot must not be released, and so refilled, before.

Example: with depth 1, `put, get, put` is refused, since the second put waits for a release that comes after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .block_ops import Refused
from .tile_arithmetic import Value

PAST = -1
"""The number that stands for an event before every asynchronous dot."""


@dataclass(eq=False, slots=True)
class Slot:
    """What one filled slot holds. `unchanged`: whether the array that it was filled from still holds the same (None:
    filled from registers). `last_reader`: the number of the last dot that reads it, -1 for none."""

    value: Value
    unchanged: Callable[[], bool] | None = None
    state: str = "filled"
    last_reader: int = -1


@dataclass(frozen=True, slots=True)
class Buffer:
    """A slot that was got, seen with its dimensions permuted (None: as it is)."""

    slot: Slot
    order: tuple[int, ...] | None = None

    def read(self, reader: int = -1) -> Value:
        """The tile; `reader`: the number of the asynchronous dot that reads it. Refused after the release."""
        if self.slot.state != "got":
            raise Refused("the buffer is read after its slot was released", "release the slot after the last read")
        self.slot.last_reader = max(self.slot.last_reader, reader)
        return self.slot.value if self.order is None else self.slot.value.transpose(self.order)

    def transposed(self, order: tuple[int, ...]) -> Buffer:
        return Buffer(self.slot, order if self.order is None else tuple(self.order[i] for i in order))


@dataclass(frozen=True, slots=True)
class Pending:
    """The result of asynchronous dot `number`, not to be seen before it is waited for."""

    value: Value
    number: int


@dataclass(frozen=True, slots=True)
class Token:
    """The event that asynchronous dot `number` has read its buffers (or PAST); None: no event at all."""

    number: int | None


@dataclass(eq=False, slots=True)
class Dots:
    """The asynchronous dots of a block: how many were issued, and up to which they are known to have completed."""

    issued: int = 0
    completed: int = -1

    def issue(self) -> int:
        self.issued += 1
        return self.issued - 1

    def wait(self, number: int) -> None:
        self.completed = max(self.completed, number)


@dataclass(eq=False, slots=True)
class Channel:
    """A ring of `depth` slots; `filled` and `got` hold those not free, oldest first."""

    depth: int
    filled: deque[Slot] = field(default_factory=deque)
    got: deque[Slot] = field(default_factory=deque)

    @property
    def full(self) -> bool:
        """Whether a put has to wait."""
        return len(self.filled) + len(self.got) >= self.depth

    def put(self, slot: Slot) -> None:
        if self.full:
            raise Refused(
                f"the channel is full: of its {self.depth} slots {len(self.filled)} are filled and {len(self.got)} got but not released, "
                "so this waits forever",
                "release a slot before, or make the channel deeper",
            )
        self.filled.append(slot)

    def get(self) -> Buffer:
        if not self.filled:
            raise Refused("the channel is empty: nothing was put that was not got already, so this waits forever")
        slot = self.filled.popleft()
        if slot.unchanged is not None and not slot.unchanged():
            raise Refused(
                "the array changed between the put that filled this slot and this get, so what the put read is not determined",
                "store to the array after the get, or put after the store",
            )
        slot.state = "got"
        self.got.append(slot)
        return Buffer(slot)

    def release(self, dots: Dots, token: Token | None) -> None:
        if token is not None and token.number is None:
            return
        if not self.got:
            raise Refused("no slot of the channel was got and not yet released")
        if token is not None:
            dots.wait(token.number)
        slot = self.got.popleft()
        if slot.last_reader > dots.completed:
            raise Refused(
                "the slot is released while an asynchronous dot may still read it",
                "release it after that dot's token, or await the dot's result before",
            )
        slot.state = "free"

    def check_drained(self) -> None:
        """Refused unless every slot that was filled was got, and released."""
        if self.filled:
            raise Refused(f"{len(self.filled)} slots of the channel were filled and never got when the block ended")
        if self.got:
            raise Refused(f"{len(self.got)} slots of the channel were got and never released when the block ended")
