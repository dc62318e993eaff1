"""Meanings of atom and red (PTX ISA 9.0 §9.7.13.5, §9.7.13.6).

Threads that meet at one address take turns in the order of their numbers, so results, also of floating-point sums, are
the same in every run. Scopes and orderings change nothing: memory is sequentially consistent here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arithmetic import pack, round_half, unpack
from .data_movement import space_of, vector_of
from .decode import TYPE_SIZE, TYPE_VIEW, VIEWS, Action, Form, meaning
from .selection import Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]
Update = Callable[[Array, Array, Array], Array]

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")


def _add(old: Array, new: Array, _: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # sums that overflow are meant, as integers that wrap are
        return old + new


UPDATES: dict[str, Update] = {
    "add": _add,
    "min": lambda old, new, _: np.minimum(old, new),
    "max": lambda old, new, _: np.maximum(old, new),
    "inc": lambda old, limit, _: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit, _: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
    "and": lambda old, new, _: old & new,
    "or": lambda old, new, _: old | new,
    "xor": lambda old, new, _: old ^ new,
    "exch": lambda old, new, _: new,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
}


def update_function(operation: str, type: str) -> Update:
    """(old, operand, second operand) -> new, on arrays of the type's view."""
    function = UPDATES[operation]
    if type not in ("f16", "bf16", "f16x2", "bf16x2") or operation in ("exch", "cas"):
        return function

    def half(old: Array, new: Array, other: Array) -> Array:
        with np.errstate(all="ignore"):
            result = function(unpack(old, type), unpack(new, type), unpack(new, type))
        return pack(round_half(result, type), type)

    return half


def apply_in_turn(view: Array, index: NDArray[np.intp], operand: Array, other: Array, update: Update) -> Array:
    """Updates `view[index]` one after the other where indices repeat; gives what each found there."""
    old = np.empty(index.shape, view.dtype)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    start = np.r_[True, ordered[1:] != ordered[:-1]]
    turn = np.arange(len(index)) - np.maximum.accumulate(np.where(start, np.arange(len(index)), 0))
    if turn.max(initial=0) == 0:
        rounds = [order]
    else:
        by_turn = np.argsort(turn, kind="stable")
        rounds = np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1])
    for chosen in rounds:
        place = index[chosen]
        found = view[place]
        old[chosen] = found
        view[place] = update(found, operand[chosen], other[chosen])
    return old


@meaning("atom", fuse=False)
def atomic(form: Form) -> Action:
    return _atomic(form, returns=True)


@meaning("red", dests=(), fuse=False)
def reduction(form: Form) -> Action:
    return _atomic(form, returns=False)


def _atomic(form: Form, returns: bool) -> Action:
    if form.has("async"):
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    operation, type, space = form.pick(OPERATIONS), form.type, space_of(form)
    size, vector = TYPE_SIZE[type], vector_of(form)
    view = TYPE_VIEW[type]
    dtype = VIEWS[view][1]
    first = int(returns)
    address = form.address(first)
    operand = form.source(first + 1, view)
    other = form.source(first + 2, view) if operation == "cas" else operand
    put = form.target(0, view) if returns else None
    update = update_function(operation, type)

    def at(m: Machine, sel: Selection, addresses: Array, space: str, a: Array, b: Array) -> Array:
        """[vector, threads] of old values; `addresses` is [1, threads]."""
        old = np.empty((vector, sel.count), dtype)
        if space != "global":
            flat = m.flatten(
                addresses, sel, size * vector, size * vector, "atomic operation", space == "shared::cluster"
            )[0]
            m.observe("atomic", "shared", flat, size * vector, sel.threads)
            elements = m.shared.view(size).view(dtype)
            for v in range(vector):
                old[v] = apply_in_turn(elements, flat // size + v, a[v], b[v], update)
            return old
        m.observe("atomic", "global", addresses, size * vector, sel.threads)
        for raw, index, mask in m.memory.targets(addresses.astype(np.uint64), size, size * vector, sel.threads):
            where = slice(None) if mask is ... else mask[0]
            for v in range(vector):
                old[v, where] = apply_in_turn(raw.view(dtype), index.reshape(-1) + v, a[v, where], b[v, where], update)
        return old

    def run(m: Machine, sel: Selection) -> None:
        m.progress += 1
        addresses = np.broadcast_to(address(m, sel), (1, sel.count))
        a = np.broadcast_to(operand(m, sel), (vector, sel.count))
        b = np.broadcast_to(other(m, sel), (vector, sel.count))
        if space == "generic":
            old = m.generic(addresses, sel, lambda s, x, part, where: at(m, part, x, s, a[:, where], b[:, where]))
        else:
            old = at(m, sel, addresses, space, a, b)
        if put is not None:
            put(m, sel, old)

    return run
