"""Meanings of instructions that a warp executes together: shuffles, votes, reductions, 8x8 matrix moves (PTX ISA 9.0 §9.7.9.6,
§9.7.13.8 to §9.7.13.12, §9.7.14.5.15 to .17).

The machine only lets a collective run when all lanes of its member mask that still live are there, so a value is what
the lanes hold at that moment. `sel.lanes` spreads a selection over whole warps, [..., warps, 32].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Pair
from .decode import Action, Form, Getter, meaning
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]

_LANE = np.arange(WARP)
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


def _dest_pair(form: Form, type: str) -> tuple[Any, Any]:
    """(writes d, writes p) of a destination `d` or `d|p`."""
    if not isinstance(form.operands[0], Pair):
        return form.target(0, type), None
    pairs = [op for op in form.column(0) if isinstance(op, Pair)]
    return form.target([p.first for p in pairs], type), form.target([p.second for p in pairs], "pred")


@meaning("shfl.sync", unit=WARP, mask=4)
def shuffle(form: Form) -> Action:
    """`shfl.sync.mode.b32 d|p, a, b, c, mask`: c holds a clamp value (bits 0-4) and a segment mask (bits 8-12). A lane whose source
    lies outside its segment's bounds keeps its own value, and p is false (§9.7.9.6)."""
    mode = form.pick(("up", "down", "bfly", "idx"))
    put, put_pred = _dest_pair(form, "b32")
    value, amount, clamp = form.source(1, "b32"), form.source(2, "b32"), form.source(3, "b32")

    def run(m: Machine, sel: Selection) -> None:
        lanes = sel.lanes
        a = lanes.spread(value(m, sel))
        b = lanes.spread(np.broadcast_to(amount(m, sel), (amount(m, sel).shape[0], sel.count))).astype(np.int64) & 31
        c = lanes.spread(np.broadcast_to(clamp(m, sel), (clamp(m, sel).shape[0], sel.count))).astype(np.int64)
        bound, segment = c & 31, (c >> 8) & 31
        highest = (_LANE & segment) | (bound & ~segment)
        lowest = _LANE & segment
        if mode == "up":
            source = _LANE - b
            inside = source >= highest
        elif mode == "down":
            source = _LANE + b
            inside = source <= highest
        elif mode == "bfly":
            source = _LANE ^ b
            inside = source <= highest
        else:
            source = lowest | (b & ~segment)
            inside = source <= highest
        source = np.where(inside, source, _LANE)
        shape = np.broadcast_shapes(a.shape, source.shape)
        result = np.take_along_axis(np.broadcast_to(a, shape), np.broadcast_to(source, shape), axis=-1)
        put(m, sel, lanes.gather(result))
        if put_pred is not None:
            put_pred(m, sel, lanes.gather(np.broadcast_to(inside, shape)))

    return run


def _members(m: Machine, sel: Selection, mask: Getter) -> NDArray[np.bool_]:
    """[warps, 32, 32]: whether lane j counts for lane i, as its member mask says and j takes part."""
    masks = sel.lanes.spread(np.broadcast_to(mask(m, sel), (1, sel.count)))[0]
    return ((masks[..., None] & _BIT) != 0) & sel.lanes.present[:, None, :]


@meaning("vote.sync", unit=WARP, mask=2, fuse=False)
def vote(form: Form) -> Action:
    mode = form.pick(("all", "any", "uni", "ballot"))
    put = form.target(0, "b32" if mode == "ballot" else "pred")
    predicate, mask = form.source(1, "pred"), form.source(2, "b32")

    def run(m: Machine, sel: Selection) -> None:
        lanes = sel.lanes
        holds = lanes.spread(np.broadcast_to(predicate(m, sel), (1, sel.count)))[0][:, None, :]
        members = _members(m, sel, mask)
        if mode == "ballot":
            result = ((members & holds) * _BIT).sum(-1, dtype=np.uint32)
        elif mode == "any":
            result = (members & holds).any(-1)
        elif mode == "all":
            result = (~members | holds).all(-1)
        else:
            result = (~members | holds).all(-1) | (~members | ~holds).all(-1)
        put(m, sel, lanes.gather(result[None]))

    return run


@meaning("activemask", fuse=False)
def active_mask(form: Form) -> Action:
    put = form.target(0, "b32")

    def run(m: Machine, sel: Selection) -> None:
        lanes = sel.lanes
        masks = (lanes.present * _BIT).sum(-1, dtype=np.uint32)
        put(m, sel, lanes.gather(np.repeat(masks[:, None], WARP, 1)[None]))

    return run


@meaning("match.any.sync", unit=WARP, mask=2, fuse=False)
def match(form: Form) -> Action:
    """Which members hold the same value."""
    put, value, mask = form.target(0, "b32"), form.source(1, form.type), form.source(2, "b32")

    def run(m: Machine, sel: Selection) -> None:
        lanes = sel.lanes
        a = lanes.spread(np.broadcast_to(value(m, sel), (1, sel.count)))[0]
        same = _members(m, sel, mask) & (a[:, None, :] == a[:, :, None])
        put(m, sel, lanes.gather((same * _BIT).sum(-1, dtype=np.uint32)[None]))

    return run


@meaning("elect.sync", unit=WARP, mask=1, fuse=False)
def elect(form: Form) -> Action:
    """The lowest member is elected (the ISA leaves the choice open, §9.7.13.13; the hardware takes the lowest)."""
    put, put_pred = _dest_pair(form, "b32")
    mask = form.source(1, "b32")

    def run(m: Machine, sel: Selection) -> None:
        lanes = sel.lanes
        leader = _members(m, sel, mask).argmax(-1)
        put(m, sel, lanes.gather(leader[None].astype(np.uint32)))
        if put_pred is not None:
            put_pred(m, sel, lanes.gather((leader == _LANE)[None]))

    return run


_REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@meaning("redux.sync", unit=WARP, mask=2, fuse=False)
def reduce_warp(form: Form) -> Action:
    operation = form.pick(tuple(_REDUCE))
    function = _REDUCE[operation]
    type = form.type
    put, value, mask = form.target(0, type), form.source(1, type), form.source(2, "b32")
    dtype = np.int32 if type == "s32" else np.uint32
    info = np.iinfo(dtype)
    neutral = {
        "add": 0,
        "or": 0,
        "xor": 0,
        "and": -1 if dtype is np.int32 else info.max,
        "min": info.max,
        "max": info.min,
    }

    def run(m: Machine, sel: Selection) -> None:
        lanes = sel.lanes
        a = lanes.spread(np.broadcast_to(value(m, sel), (1, sel.count)))[0]
        counted = np.where(_members(m, sel, mask), a[:, None, :], dtype(neutral[operation]))
        put(m, sel, lanes.gather(function.reduce(counted, axis=-1, dtype=dtype)[None]))

    return run


# 8x8 matrices of 16-bit elements. Lanes 8j to 8j+7 give the row addresses of matrix j; register j of lane l holds row l/4, columns 2(l%4)
# and 2(l%4)+1 of matrix j (transposed: column l/4 and those rows).


def _matrices(form: Form) -> int:
    return int(form.pick(("x1", "x2", "x4"))[1:])


def _row_addresses(m: Machine, sel: Selection, address: Getter, count: int, kind: str) -> Array:
    """[warps, count, 8] byte indices into shared memory of the matrices' rows."""
    lanes = sel.lanes
    addresses = np.broadcast_to(address(m, sel), (1, sel.count))
    wanted = (sel.threads % WARP) < 8 * count
    chosen = m.select(sel.threads[wanted])
    flat = m.flatten(addresses[:, wanted], chosen, 16, 16, f"matrix row {kind}", False)
    m.observe(kind, "shared", flat, 16, chosen.threads)
    return chosen.lanes.spread(flat)[0, :, : 8 * count].reshape(len(lanes.warps), count, 8)


@meaning("ldmatrix", unit=WARP, fuse=False)
def load_matrix(form: Form) -> Action:
    count, transposed = _matrices(form), form.has("trans")
    if form.type != "b16" or not form.has("m8n8"):
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    put, address = form.target(0, "b32"), form.address(1)

    def run(m: Machine, sel: Selection) -> None:
        rows = _row_addresses(m, sel, address, count, "load")
        tiles = m.shared.view(2)[(rows[..., None] >> 1) + np.arange(8)]  # [warps, matrix, row, column]
        if transposed:
            tiles = tiles.swapaxes(-1, -2)
        pairs = np.ascontiguousarray(tiles).view(np.uint32)  # [warps, matrix, 8, 4]
        put(m, sel, sel.lanes.gather(pairs.reshape(-1, count, WARP).swapaxes(0, 1)))

    return run


@meaning("stmatrix", dests=(), unit=WARP, fuse=False)
def store_matrix(form: Form) -> Action:
    count, transposed = _matrices(form), form.has("trans")
    if form.type != "b16" or not form.has("m8n8"):
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    address, value = form.address(0), form.source(1, "b32")

    def run(m: Machine, sel: Selection) -> None:
        rows = _row_addresses(m, sel, address, count, "store")
        pairs = sel.lanes.spread(value(m, sel)).swapaxes(0, 1)  # [warps, matrix, lane]
        tiles = np.ascontiguousarray(pairs).view(np.uint16).reshape(-1, count, 8, 8)
        if transposed:
            tiles = tiles.swapaxes(-1, -2)
        m.progress += 1
        m.shared.view(2)[(rows[..., None] >> 1) + np.arange(8)] = tiles

    return run


@meaning("movmatrix", unit=WARP)
def transpose_matrix(form: Form) -> Action:
    put, value = form.target(0, "b32"), form.source(1, "b32")

    def run(m: Machine, sel: Selection) -> None:
        grid = np.ascontiguousarray(sel.lanes.spread(value(m, sel)))
        tiles = grid.view(np.uint16).reshape(*grid.shape[:-1], 8, 8).swapaxes(-1, -2)
        pairs = np.ascontiguousarray(tiles).view(np.uint32).reshape(grid.shape)
        put(m, sel, sel.lanes.gather(pairs))

    return run
