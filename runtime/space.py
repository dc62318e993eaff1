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
    if not hasattr(value, "__index__") or isinstance(value, bool) or value < 1:
        return f"{name} is pinned to {value!r}, but a positive integer is required", None
    return None


def pins_fault(pins: Any) -> tuple[str, str | None] | None:
    """(message, hint) for what are no choices by name, or choices that cannot be pinned."""
    if not isinstance(pins, Mapping):
        return f"pins are choices by name, found {pins!r}", "write pins={'warps': 8, 'stages': 3}"
    return next((fault for name, value in pins.items() if (fault := pin_fault(name, value)) is not None), None)


def space_fault(space: Any) -> tuple[str, str] | None:
    """(message, hint) for what is no space of choices."""
    hint = "write {'BM': [64, 128], 'warps': [4, 8]}, or a list of configurations, [{'BM': 64, 'warps': 4}]"
    if isinstance(space, Mapping):
        odd = next((item for item in space.items() if not isinstance(item[1], Sequence) or isinstance(item[1], str | bytes)), None)
        return None if odd is None else (f"the values of {odd[0]} in a space of choices must be a list, found {odd[1]!r}", hint)
    if not isinstance(space, Sequence) or isinstance(space, str | bytes):
        return f"a space of choices is a dict of lists, or a list of configurations, found {space!r}", hint
    odd = next((config for config in space if not isinstance(config, Mapping)), None)
    return None if odd is None else (f"a configuration is a dict of values by name, found {odd!r}", hint)


def configurations(space: Space) -> list[dict[str, Any]]:
    """The configurations of a space, in order.

    >>> configurations({"BM": [64, 128], "warps": [4]})
    [{'BM': 64, 'warps': 4}, {'BM': 128, 'warps': 4}]
    """
    if isinstance(space, Mapping):
        return [dict(zip(space, combination)) for combination in itertools.product(*space.values())]
    return [dict(config) for config in space]
