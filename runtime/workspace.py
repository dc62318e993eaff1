"""Memory that launches of kernels need for themselves: for the blocks that share a point of the grid (lowering/tile_to_ptx/parts.py).

A launch has a workspace, whose contents mean nothing before and after it, and counters, which are zero before and after it. Launches that may run at the same
time must not share either. So:

- Launches on one stream, which access memory one after another (lowering/overlap_launches.py), share; each stream has its own. Streams are told apart by their number, which, unlike their
  handle, is used only once in a process (CUDA driver API, cuStreamGetId).
- What a CUDA graph captures has its own, for each capture and each stream that it was captured on: a graph may be launched on any stream, beside anything but
  itself (which CUDA does not allow either: launches of one graph run one after another).
- Nothing is given back. Where more is needed than a stream has, it gets a block of at least twice the size; what was launched before keeps the old one.

Memory is allocated at the first launch that needs it, also while a graph is captured: allocating and clearing are no part of the graph.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from . import driver

LEAST_BYTES = 1 << 20
COUNTER_BYTES = 4
FRESH = 0xFF
"""What a workspace of the simulator holds: NaNs, where someone reads what nobody wrote."""


@dataclass(frozen=True, slots=True)
class Block:
    """Memory of the device: address and size in bytes."""

    address: int = 0
    nbytes: int = 0


_lock = threading.Lock()
_workspaces: dict[driver.StreamKey, Block] = {}
_counters: dict[driver.StreamKey, Block] = {}


def lend(stream: int, nbytes: int, counters: int) -> tuple[int, ...]:
    """(workspace, counters) for a launch on a stream of the current context: addresses of `nbytes`, and of so many zeros of 32 bits. Nothing if no
    context is current, or another one than the stream's."""
    key = driver.stream_key(stream)
    if key is None:
        return ()
    workspace, zeros = _workspaces.get(key), _counters.get(key)
    wanted = counters * COUNTER_BYTES
    if workspace is None or zeros is None or workspace.nbytes < nbytes or zeros.nbytes < wanted:
        with _lock:
            workspace = _grown(_workspaces, key, nbytes, False)
            zeros = _grown(_counters, key, wanted, True)
    return workspace.address, zeros.address


def _grown(blocks: dict[driver.StreamKey, Block], key: driver.StreamKey, nbytes: int, cleared: bool) -> Block:
    """The stream's block, of at least so many bytes."""
    found = blocks.get(key, Block())
    if found.nbytes >= nbytes and found.address:
        return found
    size = max(LEAST_BYTES, 2 * found.nbytes, 1 << max(nbytes - 1, 0).bit_length())
    blocks[key] = made = Block(driver.allocate_while_capturing(size, cleared), size)
    return made
