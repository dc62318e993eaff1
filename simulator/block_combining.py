"""Scans and folds by a function of the program's own: element after element along the axis, from left to right.

A compiled program may associate otherwise (docs/numbers.md N46); where the function rounds, that changes results, and an interpreter with bounds then
knows nothing of them (`Semantics.reassociated`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Operation

from ..dialects import tile

if TYPE_CHECKING:
    from .blocks import Frame, _Decoder

_EXACT = (
    arith.ConstantOp, arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp, arith.NegfOp, arith.SelectOp, math.AbsFOp, math.CeilOp, math.FloorOp,
    tile.SelectOp, tile.ConstantOp,
)  # fmt: skip
"""Operations that give floats without rounding."""


def rounds(function: Operation) -> bool:
    """Whether the combining function of a scan or fold rounds on the way: then how it is associated can be seen."""
    for region in function.regions:
        for op in region.walk():
            if any(isinstance(value.type, AnyFloat) for value in op.results) and not isinstance(op, _EXACT):
                return True
    return False


def combined(decoder: _Decoder, op: Operation) -> Callable[[Frame], Iterator[Any] | None]:
    """The step of a scan or fold."""
    assert isinstance(op, tile.ScanOp | tile.FoldOp)
    semantics = decoder.semantics
    if isinstance(op, tile.ScanOp) and op.kind is not None:
        meaning = semantics.meaning(op)
        assert meaning is not None
        return decoder.call(op, lambda frame, x: (meaning(x),))
    assert op.body is not None
    block, axis = op.body.block, op.axis.value.data
    end = block.last_op
    assert end is not None
    scans = isinstance(op, tile.ScanOp)
    exclusive, reverse = (scans and op.exclusive is not None), (scans and op.reverse is not None)
    sources, results = decoder.slots_of(op.sources), decoder.slots_of(op.res)
    identities = decoder.slots_of(op.identities) if scans else []
    arguments, yielded = decoder.slots_of(block.args), decoder.slots_of(end.operands)
    body, count, open_order = decoder.block(block), len(sources), rounds(op)

    def run(frame: Frame) -> Iterator[Any]:
        values = frame.values
        tiles = [values[slot] for slot in sources]
        running: Sequence[Any] | None = None
        kept: list[Sequence[Any]] = []
        extent = tiles[0].shape[axis]
        for i in reversed(range(extent)) if reverse else range(extent):
            lines = [semantics.line(x, axis, i) for x in tiles]
            if exclusive:
                before = [values[slot] for slot in identities] if running is None else running
                kept.append([semantics.spread(x, line.shape) for x, line in zip(before, lines)])
            if running is None:
                running = lines
            else:
                for slot, value in zip(arguments, (*running, *lines)):
                    values[slot] = value
                yield from body(frame) or ()
                running = [semantics.spread(values[slot], line.shape) for slot, line in zip(yielded, lines)]
            if scans and not exclusive:
                kept.append(running)
        assert running is not None, "a tile has an element"
        if scans:
            kept = kept[::-1] if reverse else kept
            found = [semantics.stacked([lines[k] for lines in kept], axis) for k in range(count)]
        else:
            found = list(running)
        for slot, value in zip(results, found):
            values[slot] = semantics.reassociated(value) if open_order and extent > 1 else value

    return run
