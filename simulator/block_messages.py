"""The meaning of tile.print and tile.assert in the block interpreter: printed, or raised, as the block comes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation

from ..dialects import tile
from ..dialects.device_messages import block_text
from ..dialects.tile_messages import site_of
from .block_ops import Refused

if TYPE_CHECKING:
    from .blocks import Effect, Frame, Semantics


def print_values(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.PrintOp)
    site, count = site_of(op), len(op.values)

    def run(frame: Frame, *operands: Any) -> Sequence[Any]:
        values = [semantics.shown(value) for value in operands[:count]]
        print(site.line_of([semantics.integer(c) for c in operands[count:]], [value if value.ndim else value[()] for value in values]))
        return ()

    return run


def check(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.AssertOp)
    text = op.text.data

    def run(frame: Frame, condition: Any, *coordinates: Any) -> Sequence[Any]:
        if not semantics.integer(condition):
            where = block_text([semantics.integer(c) for c in coordinates])
            raise Refused(f"assertion failed{f' in {where}' if where else ''}: {text}")
        return ()

    return run
