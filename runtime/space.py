"""What of a program can be left open, and what a space of choices is: for variants by size and for tuning. Imports nothing, so that defining kernels does not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

PINS = ("warps", "stages", "split", "cluster", "persistent", "warp_specialize", "pdl")
"""Choices of the compiler that a caller can make instead: warps of a block, buffers of each channel that loops fill ahead, blocks that share a
point of the grid (1: none), blocks of a cluster (1: none), whether blocks walk the grid (`persistent`), whether a role of their own loads (`warp_specialize`), and whether a launch may begin
while the one before it in its stream ends (`pdl`)."""
SWITCHES = ("persistent", "warp_specialize", "pdl")
"""Those that are 0 or 1."""
TRUTHS = ("persistent", "warp_specialize")
"""Those that kernels state as true or false."""

Space = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""The values of each name, all combinations of which are meant; or the configurations themselves."""


def pin_fault(name: str, value: Any) -> tuple[str, str | None] | None:
    """(message, hint) for a choice that cannot be pinned, or not to this value."""
    if name not in PINS:
        return f"'{name}' cannot be pinned", f"what can: {', '.join(PINS)}"
    if name in SWITCHES:
        return None if value in (0, 1) else (f"{name} is pinned to {value!r}, but 0 or 1 is required", None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return f"{name} is pinned to {value!r}, but a positive integer is required", None
    return None


def configurations(space: Space) -> list[dict[str, Any]]:
    """The configurations of a space, in order.

    >>> configurations({"BM": [64, 128], "warps": [4]})
    [{'BM': 64, 'warps': 4}, {'BM': 128, 'warps': 4}]
    """
    if isinstance(space, Mapping):
        return [dict(zip(space, combination)) for combination in itertools.product(*space.values())]
    return [dict(config) for config in space]
