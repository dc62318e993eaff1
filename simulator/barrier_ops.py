"""Meanings of barriers: named, cluster and mbarrier instructions (PTX ISA 9.0 §9.7.13). Their state is in `barriers.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Imm, Operand, Sink
from .barriers import ALL, MBarriers
from .data_movement import space_of
from .decode import Action, Control, Form, Getter, Outcome, meaning
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]

EARLY_TIME_OUT = 0.25
"""How often, in a random schedule, an mbarrier wait returns at once although its phase is not complete."""


def per_thread(value: Array, sel: Selection) -> Array:
    """A [1, threads] or [1, 1] operand as [threads]."""
    return np.broadcast_to(value, (1, sel.count))[0]


@meaning("bar.warp.sync", dests=(), unit=WARP, mask=0)
def warp_sync(form: Form) -> Action:
    return lambda m, sel: None


def _sync(form: Form) -> Control:
    number = form.source([form.operands[0]], "u32")
    count = form.source([form.operands[1]], "u32") if form.arity > 1 else None
    constant = form.operands[0].bits if isinstance(form.operands[0], Imm) else None
    fixed = ALL
    if form.arity > 1:
        fixed = form.operands[1].bits if isinstance(form.operands[1], Imm) else -2

    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        if constant is not None and constant < 16 and fixed != -2 and m.named.whole_blocks_sync(sel, constant, fixed):
            m.progress += 1
            if m.observer is not None:
                m.observer.blocks_sync(m, sel)
            return None
        counts = None if count is None else per_thread(count(m, sel), sel)
        m.named.arrive(sel, per_thread(number(m, sel), sel), counts, position + 1)
        return []

    return run


@meaning("bar.sync", dests=(), unit=WARP, control=True)
def barrier_sync(form: Form) -> Control:
    return _sync(form)


@meaning("barrier.sync", dests=(), control=True)
def barrier_sync_any(form: Form) -> Control:
    """Without .aligned the threads of a warp may arrive one by one."""
    return _sync(form)


@meaning("bar.arrive", "barrier.arrive", dests=(), unit=WARP, fuse=False)
def barrier_arrive(form: Form) -> Action:
    number, count = form.source([form.operands[0]], "u32"), form.source([form.operands[1]], "u32")
    return lambda m, sel: m.named.arrive(sel, per_thread(number(m, sel), sel), per_thread(count(m, sel), sel), None)


@meaning("bar.red", unit=WARP, control=True)
def barrier_reduce(form: Form) -> Control:
    """Counts the threads whose predicate holds (popc), or tells whether all (and) or any (or) do."""
    kind = form.pick(("popc", "and", "or"))
    number = form.source([form.operands[1]], "u32")
    count = form.source([form.operands[2]], "u32") if form.arity > 3 else None
    predicate = form.source([form.operands[-1]], "pred")
    put = form.target(0, "u32" if kind == "popc" else "pred")

    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        numbers = per_thread(number(m, sel), sel)
        counts = None if count is None else per_thread(count(m, sel), sel)
        values = per_thread(predicate(m, sel), sel)
        if kind == "and":
            values = ~values

        def deliver(part: Selection, total: int) -> None:
            result = np.uint32(total) if kind == "popc" else np.bool_(total > 0 if kind == "or" else total == 0)
            put(m, part, np.full((1, 1), result))

        m.named.arrive(sel, numbers, counts, position + 1, values, deliver)
        return []

    return run


@meaning("barrier.cluster.arrive", dests=(), fuse=False)
def cluster_arrive(form: Form) -> Action:
    relaxed = form.has("relaxed")
    return lambda m, sel: m.cluster_barrier.arrive(sel, relaxed)


@meaning("barrier.cluster.wait", dests=(), control=True)
def cluster_wait(form: Form) -> Control:
    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        m.cluster_barrier.wait(sel, position + 1)
        return []

    return run


# mbarriers


def mbarrier_places(form: Form, k: int) -> Getter:
    """Reads the k-th operand, an mbarrier's address, as byte indices [threads] into the machine's shared memory."""
    address, space = form.address([form.operands[k]]), space_of(form)

    def get(m: Machine, sel: Selection) -> Array:
        addresses = np.broadcast_to(address(m, sel), (1, sel.count))
        if space == "generic":
            addresses, _ = m.resolve(addresses)
        return m.flatten(addresses, sel, 8, 8, "mbarrier access", space != "shared")[0]

    return get


def touch(m: Machine, flat: Array, sel: Selection) -> None:
    if m.observer is not None:
        m.observer.mbarrier_touch(m, flat, sel.threads)


def _passed(m: Machine, flat: Array, parity: Array, sel: Selection, done: Array) -> None:
    if m.observer is not None and done.any():
        m.observer.mbarrier_pass(m, flat[done], parity[done], sel.threads[done])


def _optional(form: Form, k: int, type: str) -> Getter | None:
    return form.source([form.operands[k]], type) if k < form.arity else None


def _has_dest(operand: Operand) -> bool:
    return not isinstance(operand, Sink)


@meaning("mbarrier.init", dests=(), fuse=False)
def mbarrier_init(form: Form) -> Action:
    place, count = mbarrier_places(form, 0), form.source([form.operands[1]], "u32")
    return lambda m, sel: m.mbarriers.init(place(m, sel), per_thread(count(m, sel), sel), sel.threads)


@meaning("mbarrier.inval", dests=(), fuse=False)
def mbarrier_inval(form: Form) -> Action:
    place = mbarrier_places(form, 0)
    return lambda m, sel: m.mbarriers.invalidate(place(m, sel))


@meaning("mbarrier.arrive", fuse=False)
def mbarrier_arrive(form: Form) -> Action:
    """With .expect_tx the bytes are expected before the arrival. The state returned tells the phase of the arrival."""
    place = mbarrier_places(form, 1)
    expects = form.has("expect_tx")
    amount = _optional(form, 2, "u32")
    if expects and amount is None:
        raise form.bad(f"'{form.opcode}' needs a byte count")
    put = form.target(0, "u64") if _has_dest(form.operands[0]) else None

    def run(m: Machine, sel: Selection) -> None:
        flat = place(m, sel)
        touch(m, flat, sel)
        given = np.ones(sel.count, np.int64) if amount is None else per_thread(amount(m, sel), sel).astype(np.int64)
        none = np.zeros(sel.count, np.int64)
        arrivals = np.ones(sel.count, np.int64) if expects else given
        if expects:
            before = m.mbarriers.update(flat, none, given)
            m.mbarriers.update(flat, arrivals, none, sel.threads)
        else:
            before = m.mbarriers.update(flat, arrivals, none, sel.threads)
        if put is not None:
            put(m, sel, before.astype(np.uint64)[None])

    return run


@meaning("mbarrier.expect_tx", "mbarrier.complete_tx", dests=(), fuse=False)
def mbarrier_expect(form: Form) -> Action:
    place, amount = mbarrier_places(form, 0), form.source([form.operands[1]], "u32")
    sign = 1 if form.words[1] == "expect_tx" else -1

    def run(m: Machine, sel: Selection) -> None:
        given = per_thread(amount(m, sel), sel).astype(np.int64)
        flat = place(m, sel)
        touch(m, flat, sel)
        m.mbarriers.update(flat, np.zeros(sel.count, np.int64), sign * given)

    return run


def _phase(form: Form) -> Getter:
    """The parity of the phase that a test or wait asks about: given, or the one in which the given state was returned."""
    if form.has("parity"):
        parity = form.source([form.operands[2]], "u32")
        return lambda m, sel: per_thread(parity(m, sel), sel).astype(np.uint64) & np.uint64(1)
    state = form.source([form.operands[2]], "u64")
    return lambda m, sel: MBarriers.parity_of(per_thread(state(m, sel), sel))


@meaning("mbarrier.test_wait", fuse=False)
def mbarrier_test(form: Form) -> Action:
    place, phase, put = mbarrier_places(form, 1), _phase(form), form.target(0, "pred")

    def run(m: Machine, sel: Selection) -> None:
        flat, parity = place(m, sel), phase(m, sel)
        touch(m, flat, sel)
        done = m.mbarriers.phase_done(flat, parity)
        _passed(m, flat, parity, sel, done)
        put(m, sel, done[None])

    return run


@meaning("mbarrier.try_wait", control=True)
def mbarrier_wait(form: Form) -> Control:
    """Threads whose phase is not complete are suspended; see machine.py for when the wait times out. The ISA leaves the time to the
    implementation, so a program must ask again; a random schedule now and then does not suspend at all."""
    place, phase, put = mbarrier_places(form, 1), _phase(form), form.target(0, "pred")
    yes, no = np.ones((1, 1), bool), np.zeros((1, 1), bool)

    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        flat, parity = place(m, sel), phase(m, sel)
        touch(m, flat, sel)
        done = m.mbarriers.phase_done(flat, parity)
        _passed(m, flat, parity, sel, done)
        if done.all():
            put(m, sel, yes)
            return None
        if m.rng is not None and m.rng.random() < EARLY_TIME_OUT:
            put(m, sel, done[None])
            return None
        late = ~done
        m.park(position, m.select(sel.threads[late]), flat[late], parity[late], lambda part: put(m, part, no))
        if not done.any():
            return []
        passed = m.select(sel.threads[done])
        put(m, passed, yes)
        return [(position + 1, passed)]

    return run
