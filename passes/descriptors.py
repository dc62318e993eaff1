"""How wgmma finds an operand in shared memory: what a descriptor says of a buffer's layout (PTX ISA 9.0 §9.7.16.5.1; lowering/tile_to_ptx/dots.py has the table)."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects.layout import SharedLayout

CORE_BYTES = 16
"""A row of a core matrix, which is what lies together where nothing is swizzled."""


@dataclass(frozen=True, slots=True)
class Operand:
    """How wgmma finds an operand in a buffer. Bytes; `row`: from one position of M or N to the next, `leading` and `stride` as in the
    descriptor, `swizzle`: the span. `mn_contiguous`: M or N lies contiguously, K does not."""

    mn_contiguous: bool
    swizzle: int
    leading: int
    stride: int
    rows: int
    size: int

    def at(self, mn: int, k: int) -> int:
        """Offset of the block that starts at row (column) `mn`, a multiple of 8 or of a whole span, and at `k`, a whole step."""
        span = self.swizzle or CORE_BYTES
        along, across = (mn, k) if self.mn_contiguous else (k, mn)
        spans, rest = divmod(along * self.size, span)
        return spans * self.rows * span + rest + across * span


def descriptor_form(layout: SharedLayout, mn_dim: int, size: int = 2) -> Operand | None:
    """How wgmma reads a buffer of elements of `size` bytes whose dimension `mn_dim` is M or N and whose other is K; None if it cannot."""
    shape = layout.shape()
    for order in ((0, 1), (1, 0)):
        inner, rows = shape[order[0]], shape[order[1]]
        for swizzle in (128, 64, 32, 0):
            span = swizzle or CORE_BYTES
            if inner * size % span or SharedLayout.tma(shape, size, swizzle, order) != layout.normalized():
                continue
            mn_contiguous = order[0] == mn_dim
            if mn_contiguous and size != 2:
                continue
            next_span, eight_rows = rows * span, 8 * span
            if swizzle:
                return Operand(mn_contiguous, swizzle, next_span if mn_contiguous else CORE_BYTES, eight_rows, rows, size)
            if mn_contiguous:
                return Operand(True, 0, eight_rows, next_span, rows, size)
            return Operand(False, 0, next_span, eight_rows, rows, size)
    return None
