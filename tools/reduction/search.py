"""The search for a smaller text for which a test still holds.

A *pass* over a text proposes edits; `Search` keeps every edit after which the test holds. Edits that come in lists (operations to take out, kernels to
drop) are tried many at a time, halves first, then quarters, down to single ones (delta debugging: Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", 2002). Passes repeat until none of them helps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class OutOfTime(Exception):
    """The time for the search, or the number of tests, is over."""


class Search:
    """`text` is the smallest found yet. `holds` is asked once for a text, never after `seconds`, and at most `limit` times; `found` is told of each
    success."""

    def __init__(
        self, text: str, holds: Callable[[str], bool], seconds: float, limit: int | None = None, found: Callable[[str], None] = lambda text: None
    ):
        self.text, self._holds, self._found = text, holds, found
        self._limit = limit
        self._end = time.monotonic() + seconds
        self._seen = {text}
        self.tests = 0

    def attempt(self, candidate: str | None) -> bool:
        """Whether the test holds for a text that was not tried before; if so it is the new best. Raises OutOfTime."""
        if candidate is None or candidate in self._seen:
            return False
        if time.monotonic() > self._end or self.tests == self._limit:
            raise OutOfTime
        self._seen.add(candidate)
        self.tests += 1
        if not self._holds(candidate):
            return False
        self.text = candidate
        self._found(candidate)
        return True

    def subsets(self, items: Sequence[Item], without: Callable[[Sequence[Item]], str | None]) -> bool:
        """Takes as many of the items out as it can, many at a time first; `without` gives the text without some of them all, or None. The items stay
        those of the text at the start: what is out already is passed with what is tried. Whether anything came out."""
        out: list[Item] = []
        left = list(items)
        size = len(left)
        while size >= 1 and left:
            at = 0
            while at < len(left):
                chosen = left[at : at + size]
                if self.attempt(without([*out, *chosen])):
                    out.extend(chosen)
                    del left[at : at + size]
                else:
                    at += size
            size //= 2
        return bool(out)

    def each(self, candidates: Iterable[str | None]) -> bool:
        """Tries all texts one by one; whether one was taken."""
        return sum(self.attempt(candidate) for candidate in candidates) > 0


def reduce(search: Search, passes: Sequence[Callable[[Search], bool]]) -> None:
    """Runs passes over the text until none of them helps, or time is over."""
    try:
        while sum(run(search) for run in passes):  # all of them, also after one that helps
            pass
    except OutOfTime:
        return
