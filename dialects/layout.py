"""The layout algebra: who holds which element of a tile, and where it lies in shared memory.

A tile is a small array that a group of threads works on together. Two questions decide how fast that goes: which thread
holds which element in which register, and at which address of shared memory an element lies. Both answers are functions
of a few integers, both are dictated in part by the hardware (tensor cores, TMA, the 32 banks), and a compiler has to
compare, compose and invert them all day. This package writes them down so that it can.

Modes
-----
A *mode* is one digit of an index: `extent:(stride per dimension)`. An index is taken apart into digits, fastest first,
as a clock takes seconds apart, and each digit moves its stride. A `TVLayout` has one list of digits for the thread and
one for the value, that is, for the register of the thread:

>>> layout = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1)]")
>>> print(draw_text(layout, (3, 8)))
0:0   0:1   1:0   1:1   2:0   2:1   3:0   3:1
4:0   4:1   5:0   5:1   6:0   6:1   7:0   7:1
8:0   8:1   9:0   9:1   10:0  10:1  11:0  11:1

Thread 6 is digits (2, 1): it starts at column 2·2, row 1·1, and its value 1 lies a column further. This is the
accumulator of every `mma` instruction, and unlike a picture it says so in one line. For `wgmma` m64n256k16 (PTX ISA 9.0
§9.7.15.5.1), two warpgroups down the rows, digits are lane % 4, lane / 4, warp, warpgroup:

>>> acc = TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(64,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]")
>>> acc.num_threads, acc.num_values, acc.shape()
(256, 128, (128, 256))
>>> t, i = 200, 77
>>> row = 64 * (t // 128) + 16 * (t % 128 // 32) + t % 32 // 4 + 8 * (i // 2 % 2)
>>> acc.coords(t, i) == (row, 8 * (i // 4) + 2 * (t % 4) + i % 2)
True

A stride of zero in all dimensions is a *broadcast*: the digit's threads hold copies. A layout may reach beyond its
tile; what lies there is padding. Extents need not be powers of two.

Normal form
-----------
`4:(0,16)` after `2:(0,8)` continues it: both together are `8:(0,8)`. Merging all such neighbours gives one writing per
function (`merge_modes` says why), so equal layouts are equal objects, equal text and equal types. That is how the
compiler sees that an accumulator 64 columns wide already *is* the A operand of the next matrix product, whose manual
page counts its registers 4 K-steps of 16 at a time. Attention's second product needs no shuffle because of it:

>>> threads = "thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(64,0)]"
>>> accumulator = TVLayout.parse(f"{threads}, value [2:(0,1), 2:(8,0), 8:(0,8)]")
>>> a_operand = TVLayout.parse(f"{threads}, value [2:(0,1), 2:(8,0), 2:(0,8), 4:(0,16)]")
>>> accumulator == a_operand, accumulator.normalized() == a_operand.normalized()
(False, True)
>>> conversion_scope(accumulator, a_operand)
'same'

Operations follow programs
--------------------------
Each operation on tiles has one on layouts that says where values are afterwards, without moving any: a reduction
`project`s, an expand `insert`s, the source of a broadcast is `flatten_dim`, then there are `permute` and `reshape`. The
softmax of that accumulator reduces along columns: a row's maximum is in the four threads of a quad, twice (rows g and g
+ 8), and they combine by shuffles over the distances that `thread_steps` lists:

>>> str(accumulator.project(1)), accumulator.thread_steps(1)
('thread [4:(0), 8:(1), 8:(16)], value [2:(8)]', ((1, 4),))
>>> accumulator.project(1).replication
4

Dividing by the row sum broadcasts it back: the source has layout `flatten_dim(1)`, which is what `project` and
`insert` give, so no element moves, and value v of the tile needs value `value_index(1, v)` of the sum:

>>> accumulator.flatten_dim(1) == accumulator.project(1).insert(1)
True

Shared memory
-------------
A `SharedLayout` sends coordinates to an element offset: digits per dimension, then a `Swizzle`. TMA writes a tile of
bf16 in rows of 128 bytes, 64 elements, and puts 16-byte chunk c of row r at c ^ (r % 8):

>>> tile = SharedLayout.tma((128, 64), 2, 128, (1, 0))
>>> str(tile)
'[128:64], [64:1], swizzle<3, 3, 3>'
>>> [tile.offset((5, 8 * c)) // 8 - 5 * 8 for c in range(8)]       # chunks of row 5
[5, 4, 7, 6, 1, 0, 3, 2]

Why: eight lanes that read 16 bytes of one column each would all use the same four banks. With the swizzle they use all
32. `bank_conflicts` computes that exactly, as a difference of two ranks (`tesela.dialects.linear_layout` explains):

>>> column = TVLayout.parse("thread [8:(1,0), 4:(0,8)], value [8:(0,1)]")
>>> bank_conflicts(column, SharedLayout.row_major((128, 64)), 2, 16), bank_conflicts(column, tile, 2, 16)
(32, 4)

CuTe's `(shape):(stride)` is read, printed and computed with in `tesela.dialects.cute`:

>>> str(registers_to_cute(layout, (8, 8)))
'((4,8),2):((16,1),8)'

Where things are: `tv_layout` (TVLayout), `shared_layout` (SharedLayout, Swizzle), `linear_layout` (matrices over F2,
bank conflicts), `cute` (CuteLayout). All of it is pure integers; import it from here. `layout_attrs` makes attributes
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .cute import CuteLayout, registers_from_cute, registers_to_cute, shared_from_cute, shared_to_cute
from .linear_layout import LinearLayout, bank_conflicts, best_swizzle, lanes_per_wavefront
from .shared_layout import SharedLayout, Swizzle, TmaForm, common_vector
from .tv_layout import (
    WARP,
    LayoutError,
    Mode,
    Scope,
    TVLayout,
    conversion_scope,
    merge_modes,
    split_modes,
    sumset,
)

__all__ = [
    "WARP",
    "CuteLayout",
    "LayoutError",
    "LinearLayout",
    "Mode",
    "Scope",
    "SharedLayout",
    "Swizzle",
    "TVLayout",
    "TmaForm",
    "bank_conflicts",
    "best_swizzle",
    "common_vector",
    "conversion_scope",
    "draw_text",
    "lanes_per_wavefront",
    "merge_modes",
    "registers_from_cute",
    "registers_to_cute",
    "shared_from_cute",
    "shared_to_cute",
    "split_modes",
    "sumset",
]


def draw_text(layout: TVLayout | SharedLayout, shape: Sequence[int]) -> str:
    """A picture of the layout over the elements of a tile of `shape`, or over the leading corner that `shape` names.

    A row of text per index of the next-to-last dimension, a column per index of the last; planes of further dimensions
    are headed by their indices. For registers each element shows `thread:value` of its first holder, with `*` if other
    threads hold copies, and `-` where there is none; for shared memory its element offset.

    >>> print(draw_text(TVLayout.parse("thread [2:(1), 2:(0)], value [2:(2)]"), (5,)))
    0:0*  1:0*  0:1*  1:1*  -
    >>> print(draw_text(SharedLayout.parse("[2:4], [4:1], swizzle<1, 1, 1>"), (2, 4)))
    0  1  2  3
    6  7  4  5

    Raises LayoutError if `shape` has another rank, or names elements outside a shared buffer.
    """
    if len(shape) != layout.rank:
        raise LayoutError(f"shape {tuple(shape)} has {len(shape)} dimensions, the layout has {layout.rank}")

    def cell(at: tuple[int, ...]) -> str:
        if isinstance(layout, SharedLayout):
            return str(layout.offset(at))
        if not layout.holds(at):
            return "-"
        thread, value = layout.owner(at)
        return f"{thread}:{value}{'*' if layout.is_replicated else ''}"

    *planes, rows, columns = [1, 1, *shape][-max(len(shape), 2) :]
    table = {at: cell(at[len(at) - len(shape) :]) for at in product(*map(range, (*planes, rows, columns)))}
    width = max(map(len, table.values()))
    text: list[str] = []
    for plane in product(*map(range, planes)):
        if planes:
            text.append(f"[{', '.join(map(str, plane))}, :, :]")
        for r in range(rows):
            text.append("  ".join(table[*plane, r, c].ljust(width) for c in range(columns)).rstrip())
    return "\n".join(text)
