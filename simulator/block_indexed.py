"""The meaning of indexed loads and stores and of atomic updates in the block interpreter (`dialects/tile_indexed.py`).

Elements of a tile that meet at one place take turns in row-major order. That order is one of those allowed; `BoundedSemantics` knows what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Operation

from ..dialects import tile
from ..dialects.tile import AtomicKind, shape_of
from . import tile_arithmetic as ta
from .atomics import apply_in_turn
from .tile_arithmetic import Value

if TYPE_CHECKING:
    from .blocks import Effect, Frame, Semantics

Place = tuple[tuple[Any, ...], Value]
"""(positions along each dimension of the array of those elements of the tile that lie inside it, which those are)"""


def place_of(array: Any, indices: Sequence[Any], dims: Sequence[int], shape: Sequence[int]) -> Place:
    """Where the elements of a tile lie: `indices` has an integer or an array of integers for each dimension of the array."""
    inside = np.ones(shape, np.bool_)
    positions = []
    for dim, index in enumerate(indices):
        position = np.asarray(index, np.int64)
        if dim in dims:
            axis = list(dims).index(dim)
            steps = np.arange(shape[axis], dtype=np.int64)
            position = position + steps.reshape([-1 if d == axis else 1 for d in range(len(shape))])
        position = np.broadcast_to(position, shape)
        inside = inside & (position >= 0) & (position < array.shape[dim])
        positions.append(position)
    return tuple(position[inside] for position in positions), inside


def load_at(array: Value, place: Place, fill: Value | None = None) -> Value:
    """`fill` (or zero) where the place is outside of the array."""
    positions, inside = place
    out = np.full(inside.shape, np.zeros((), array.dtype) if fill is None else fill, array.dtype)
    out[inside] = array[positions]
    return out


def store_at(array: Value, place: Place, value: Value) -> None:
    """Nothing where the place is outside of the array."""
    positions, inside = place
    array[positions] = value[inside]


UPDATES: dict[AtomicKind, Callable[[Any, Any, Any], Any]] = {
    AtomicKind.ADD: lambda old, value, _: old + value,
    AtomicKind.MAX: lambda old, value, _: ta.maximum(old, value) if ta.is_float(old.dtype) else np.maximum(old, value),
    AtomicKind.MIN: lambda old, value, _: ta.minimum(old, value) if ta.is_float(old.dtype) else np.minimum(old, value),
    AtomicKind.AND: lambda old, value, _: old & value,
    AtomicKind.OR: lambda old, value, _: old | value,
    AtomicKind.XOR: lambda old, value, _: old ^ value,
    AtomicKind.EXCHANGE: lambda old, value, _: value,
}
"""(old, operand, expected) -> new"""


def _compare_and_swap(old: Value, value: Value, expected: Value) -> Value:
    bits = np.dtype(f"u{old.dtype.itemsize}")
    return np.where(old.view(bits) == expected.view(bits), value, old)


UPDATES[AtomicKind.CAS] = _compare_and_swap


def atomic_at(kind: AtomicKind, array: Value, place: Place, value: Value, expected: Value | None = None) -> Value:
    """Update the array; what each element found, zero outside of the array."""
    positions, inside = place
    old = np.zeros(inside.shape, array.dtype)
    linear = np.ravel_multi_index(positions, array.shape) if positions[0].size else np.zeros(0, np.int64)
    unique, turn = np.unique(linear, return_inverse=True)
    at = np.unravel_index(unique, array.shape) if unique.size else tuple(p[:0] for p in positions)
    held = array[at]
    operand = value[inside]
    old[inside] = apply_in_turn(held, turn.reshape(-1), operand, operand if expected is None else expected[inside], UPDATES[kind])
    array[at] = held
    return old


def place_operands(semantics: Semantics, indices: Sequence[Any]) -> list[Any]:
    """Index operands as integers or arrays of them."""
    return [semantics.integers(index) if np.ndim(getattr(index, "value", index)) else semantics.integer(index) for index in indices]


def load_indexed(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.LoadIndexedOp)
    dims, shape, count = op.tile_dims(), shape_of(op.res.type), len(op.indices)

    def run(frame: Frame, array: Any, *rest: Any) -> Sequence[Any]:
        place = place_of(array, place_operands(semantics, rest[:count]), dims, shape)
        return (semantics.load_at(array, place, *rest[count:]),)

    return run


def store_indexed(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.StoreIndexedOp)
    dims, shape = op.tile_dims(), shape_of(op.value.type)

    def run(frame: Frame, value: Any, array: Any, *indices: Any) -> Sequence[Any]:
        semantics.store_at(array, place_of(array, place_operands(semantics, indices), dims, shape), value)
        return ()

    return run


def atomic(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.AtomicOp)
    kind, dims, shape, count = op.kind.data, op.tile_dims(), shape_of(op.value.type), len(op.indices)

    def run(frame: Frame, value: Any, array: Any, *rest: Any) -> Sequence[Any]:
        place = place_of(array, place_operands(semantics, rest[:count]), dims, shape)
        return (semantics.atomic(kind, array, place, value, *rest[count:]),)

    return run
