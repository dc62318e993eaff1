"""What the compiler asks of the process while it works: one thread at a time, and no garbage collection.

IR is one graph of cycles, of some thousand objects that live until the compilation is over. Python's collector would look through them again and again as they
are made, and now and then through everything that the process has; there is nothing for it to find.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

working = threading.RLock()
"""Held by whoever works on IR: the compiler is Python, threads would gain nothing, and xDSL promises them nothing."""

_counting = threading.Lock()
_depth = 0
_was_enabled = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Within it, on any thread, the collector rests."""
    global _depth, _was_enabled
    with _counting:
        if _depth == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _depth += 1
    try:
        yield
    finally:
        with _counting:
            _depth -= 1
            if _depth == 0 and _was_enabled:
                gc.enable()
