"""Meanings of control flow: branches, exit, and instructions that only hint (PTX ISA 9.0 §9.7.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .control_flow import family
from .decode import Action, Control, Form, Outcome, meaning
from .faults import Fault
from .selection import WARP, Selection

if TYPE_CHECKING:
    from .machine import Machine

_POLLS = ("volatile", "acquire", "relaxed", "mmio", "test_wait")


def _is_poll(opcode: str) -> bool:
    """Whether a loop with this instruction may wait for what other threads do. (Not try_wait, which suspends the thread itself.)"""
    return family(opcode) in ("atom", "nanosleep") or any(word in _POLLS for word in opcode.split("."))


@meaning("bra", dests=(), control=True)
def bra(form: Form) -> Control:
    target = form.block.jump
    assert target is not None
    starts, code = form.code.starts, form.code
    polls: list[bool] = []

    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        to = starts[target]
        if to <= position:
            if not polls:
                polls.append(any(_is_poll(i.opcode) for s in code.steps[to:position] for i in s.instrs))
            if polls[0] or m.spins_too_long():
                m.yielded.append((to, sel))
                return []
        return [(to, sel)]

    return run


@meaning("ret", "exit", dests=(), control=True)
def exit_thread(form: Form) -> Control:
    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        m.exit(sel)
        return []

    return run


@meaning("trap", dests=(), control=True)
def trap(form: Form) -> Control:
    def run(m: Machine, sel: Selection, position: int) -> Outcome:
        raise Fault("trap", 0, sel.first)

    return run


@meaning("nanosleep", "prefetch", "cp.async.bulk.prefetch", dests=())
def hint(form: Form) -> Action:
    return lambda m, sel: None


@meaning("griddepcontrol", dests=(), unit=0, fuse=False)
def hint_once(form: Form) -> Action:
    """One grid runs at a time, so a dependent grid always finds the one before complete."""
    return lambda m, sel: None


@meaning("setmaxnreg", dests=(), unit=WARP, fuse=False)
def set_registers(form: Form) -> Action:
    """Register counts are not limited here; an observer may add them up. A whole warp must execute it, and the count be a multiple of 8 from 24 to 256
    (§9.7.19.5)."""
    count = form.immediate(0)
    if count % 8 or not 24 <= count <= 256:
        raise form.bad(f"'{form.opcode}' cannot give a thread {count} registers: a multiple of 8 from 24 to 256 is required")
    return lambda m, sel: None


@meaning("fence", "membar", dests=(), fuse=False)
def fence(form: Form) -> Action:
    """Memory is sequentially consistent here; an observer may judge what the fence orders (§9.7.13.4)."""
    instr = form.instrs[0]

    def run(m: Machine, sel: Selection) -> None:
        if m.observer is not None:
            m.observer.sync(m, instr, sel.threads)

    return run
