"""Parts in which TMA can fill a buffer one by one: for the blocks of a cluster that share a load, or for the warpgroups that each read a part."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects.layout import SharedLayout


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts in which a buffer's boxes are loaded: `extent` elements along dimension `dim`, `nbytes` after the part before."""

    dim: int
    extent: int
    nbytes: int


def cut_boxes(layout: SharedLayout, element_bytes: int, parts: int) -> Part | None:
    """How each box of a buffer is cut into equal parts that TMA can write by themselves: along its slowest dimension, where whole periods of the
    swizzle fit. None if it cannot be.

    >>> cut_boxes(SharedLayout.tma((256, 64), 2, 128, (1, 0)), 2, 2)
    Part(dim=0, extent=128, nbytes=16384)
    >>> cut_boxes(SharedLayout.tma((8, 64), 2, 128, (1, 0)), 2, 2) is None
    True
    """
    form = layout.tma_form(element_bytes)
    if form is None:
        return None
    dim = next((d for d in reversed(form.order) if form.box[d] > 1), None)
    if dim is None or form.box[dim] % parts:
        return None
    extent = form.box[dim] // parts
    box_bytes = element_bytes
    for size in form.box:
        box_bytes *= size
    nbytes = box_bytes // parts
    if nbytes % layout.alignment(element_bytes) or dim == form.order[0] and extent * element_bytes % 16:
        return None
    return Part(dim, extent, nbytes)
