"""What of a program can be left open, and what a space of choices is: for variants by size and for tuning. Imports nothing, so that defining kernels does not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

PINS = ("warps", "stages", "split", "cluster", "pdl")
"""Choices of the compiler that a caller can make instead: warps of a block, buffers of each channel that loops fill ahead, blocks that share a
point of the grid (1: none), blocks of a cluster (1: none), and whether a launch may begin while the one before it in its stream ends (`pdl`: 0 or 1)."""
SWITCHES = ("pdl",)
"""Those that are 0 or 1."""

Space = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""The values of each name, all combinations of which are meant; or the configurations themselves."""


def configurations(space: Space) -> list[dict[str, Any]]:
    """The configurations of a space, in order.

    >>> configurations({"BM": [64, 128], "warps": [4]})
    [{'BM': 64, 'warps': 4}, {'BM': 128, 'warps': 4}]
    """
    if isinstance(space, Mapping):
        return [dict(zip(space, combination)) for combination in itertools.product(*space.values())]
    return [dict(config) for config in space]
