"""Stores in which half of the lanes take two accesses in the other order, where that avoids bank conflicts.

A fragment of wgmma or mma.sync gives a lane two neighbouring f32 of a row; 16 lanes of a store of 8 bytes cover 4 rows of 32 bytes. In rows of 128 bytes with
TMA's swizzle two of these rows share their banks: 2 wavefronts too many in 4. But a lane has other columns to store, too. If half of the lanes store what
lies 64 bytes further first, and the others last, each wavefront has all of the banks.

In terms of F₂ (`dialects.linear_layout`): an access's words are spanned by the columns of its lane and vector bits. Letting lane bit p choose between access a
and a ^ d adds the column of value bit d to that of p. So the question is whether some such sum makes the columns' bank parts independent: a rank
for each pair (p, d), and no trial of addresses.

>>> from tesela.dialects.layout import SharedLayout, TVLayout
>>> fragment = TVLayout.parse("thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 4:(0,8)]")
>>> find_trade(fragment, SharedLayout.tma((128, 32), 4, 128, (1, 0)), 4, 2)
Trade(lanes=2, values=8)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..dialects.layout import LayoutError, SharedLayout, TVLayout
from ..dialects.linear_layout import BANKS, WORD, LinearLayout, lanes_per_wavefront, rank


@dataclass(frozen=True, slots=True)
class Trade:
    """Lanes whose number has the bit `lanes` take each value v and v ^ `values` in the other order."""

    lanes: int
    values: int


@lru_cache(maxsize=1024)
def find_trade(layout: TVLayout, shared: SharedLayout, size: int, vector: int) -> Trade | None:
    """A trade under which accesses of `vector` elements of `size` bytes, whole words, between registers and a buffer have no conflicts; None if there is none, if
    none is needed, or if the layouts have no matrix over F₂."""
    if vector * size % WORD or layout.is_replicated:
        return None
    try:
        elements = LinearLayout.of_registers(layout, shared.shape())
        places = LinearLayout.of_shared(shared)
    except LayoutError:
        return None
    words = [places.apply(column) * size // WORD for column in elements.columns]
    threads = layout.num_threads.bit_length() - 1
    lanes = lanes_per_wavefront(vector * size).bit_length() - 1
    first = vector.bit_length() - 1
    near, inside = words[:lanes], words[threads : threads + first]
    inside = [word for word in inside if word]

    def free(columns: list[int]) -> bool:
        return rank(column % BANKS for column in columns) == rank(columns)

    if free([*near, *inside]):
        return None
    for p in range(lanes):
        for d in range(first, len(words) - threads):
            if free([*near[:p], near[p] ^ words[threads + d], *near[p + 1 :], *inside]):
                return Trade(1 << p, 1 << d)
    return None
