"""Meanings of data movement: mov, ld, st, address conversion (PTX ISA 9.0 §9.7.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Operand, Sink, Vec
from . import memory
from .decode import NARROW, TYPE_SIZE, TYPE_VIEW, VIEWS, Action, Form, meaning
from .faults import Fault
from .selection import Selection

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]

SPACES = ("global", "shared", "shared::cta", "shared::cluster", "param", "local", "const")


def space_of(form: Form) -> str:
    """The state space an instruction names; 'generic' for none."""
    space = form.pick(SPACES, "generic")
    if space in ("local", "const"):
        raise form.bad(f"the simulator has no .{space} memory")
    return "shared" if space == "shared::cta" else space


def vector_of(form: Form) -> int:
    return int(form.pick(("v2", "v4"), "v1")[1:])


@meaning("ld")
def load(form: Form) -> Action:
    """Values narrower than their register are extended by their type. Caching, ordering and scope words change nothing here: memory is
    sequentially consistent."""
    size, vector, space = TYPE_SIZE[form.type], vector_of(form), space_of(form)
    address = form.address(1)
    dests = form.flat(0)
    if len(dests) != vector * form.count:
        raise form.bad(f"'{form.opcode}' loads {vector} values, but {form.parts(0)} registers are given")
    kept = [i for i, op in enumerate(dests) if not isinstance(op, Sink)]
    if len(kept) < len(dests):
        put = form.target([dests[i] for i in kept], form.type, loose=True)
    else:
        put = form.target(dests, form.type, loose=True)
    signed = np.dtype(NARROW[form.type] if form.type in NARROW else f"{'i' if form.type[0] == 's' else 'u'}{size}")
    view = TYPE_VIEW.get(form.type)
    final = signed if view is None else np.dtype(VIEWS[view][1])

    def run(m: Machine, sel: Selection) -> None:
        values = m.load(space, address(m, sel), size, vector, sel)
        rows = values.reshape(len(dests), -1).view(final)
        put(m, sel, rows if len(kept) == len(dests) else rows[kept])

    return run


@meaning("st", dests=())
def store(form: Form) -> Action:
    size, vector, space = TYPE_SIZE[form.type], vector_of(form), space_of(form)
    address = form.address(0)
    if form.parts(1) != vector:
        raise form.bad(f"'{form.opcode}' stores {vector} values, but {form.parts(1)} are given")
    get = form.source(1, form.type, loose=True) if _uniform(form.flat(1)) else _mixed(form, form.flat(1))
    unsigned = np.dtype(f"u{size}")
    count = form.count

    def run(m: Machine, sel: Selection) -> None:
        values = get(m, sel)
        if values.shape[0] != count * vector:
            values = np.broadcast_to(values, (count * vector, values.shape[1]))
        if values.dtype != unsigned:
            values = np.ascontiguousarray(values).view(unsigned)
        m.store(space, address(m, sel), values.reshape(count, vector, -1), size, sel)

    return run


def _uniform(operands: list[Operand]) -> bool:
    return len({type(op) for op in operands}) == 1


def _mixed(form: Form, operands: list[Operand]) -> Any:
    """A vector of registers and immediates."""
    gets = [form.source([op], form.type, loose=True) for op in operands]
    return lambda m, sel: np.concatenate([np.broadcast_to(get(m, sel), (1, sel.count)) for get in gets])


@meaning("mov")
def move(form: Form) -> Action:
    """Also packs `mov.b32 d, {a, b}` and unpacks `mov.b32 {a, b}, d` (first element lowest), and takes the address of a variable."""
    dest, source = form.operands[0], form.operands[1]
    if isinstance(source, Vec):
        return _pack(form, len(source.items))
    if isinstance(dest, Vec):
        return _unpack(form, len(dest.items))
    view = TYPE_VIEW[form.type]
    put, get = form.target(0, view), form.source(1, view)
    return lambda m, sel: put(m, sel, get(m, sel))


_HALF_VIEW = {2: {4: "u16", 8: "u32"}, 4: {8: "u16"}}


def _part_view(form: Form, parts: int) -> str:
    view = _HALF_VIEW.get(parts, {}).get(TYPE_SIZE[form.type])
    if view is None:
        raise form.bad(f"the simulator has no meaning for '{form.opcode}' with {parts} parts")
    return view


def _pack(form: Form, parts: int) -> Action:
    part = _part_view(form, parts)
    whole = np.dtype(f"u{TYPE_SIZE[form.type]}")
    bits = 8 * whole.itemsize // parts
    vectors = [op for op in form.column(1) if isinstance(op, Vec)]
    gets = [form.source([v.items[k] for v in vectors], part) for k in range(parts)]
    put = form.target(0, TYPE_VIEW[f"b{8 * whole.itemsize}"])

    def run(m: Machine, sel: Selection) -> None:
        result = gets[0](m, sel).astype(whole)
        for k in range(1, parts):
            result = result | (gets[k](m, sel).astype(whole) << whole.type(bits * k))
        put(m, sel, result)

    return run


def _unpack(form: Form, parts: int) -> Action:
    part = _part_view(form, parts)
    whole = np.dtype(f"u{TYPE_SIZE[form.type]}")
    bits = 8 * whole.itemsize // parts
    vectors = [op for op in form.column(0) if isinstance(op, Vec)]
    puts = [form.target([v.items[k] for v in vectors], part) for k in range(parts)]
    get = form.source(1, TYPE_VIEW[f"b{8 * whole.itemsize}"])
    dtype = VIEWS[part][1]

    def run(m: Machine, sel: Selection) -> None:
        value = np.array(get(m, sel))
        for k in range(parts):
            puts[k](m, sel, (value >> whole.type(bits * k)).astype(dtype))

    return run


@meaning("cvta")
def convert_address(form: Form) -> Action:
    """Between a state space and generic addressing (§9.7.9.20). Global addresses are their own generic addresses."""
    view = TYPE_VIEW[form.type]
    dtype = VIEWS[view][1]
    space = form.pick(SPACES)
    window = {"global": 0, "param": memory.PARAM_WINDOW}.get(space, memory.SHARED_WINDOW)
    put = form.target(0, view)
    get = form.source(1, view, loose=True)
    if window == 0:
        return lambda m, sel: put(m, sel, get(m, sel))
    if view != "u64":
        raise form.bad("generic addresses have 64 bits", "use cvta….u64")
    offset = dtype(window)
    if form.has("to"):

        def back(m: Machine, sel: Selection) -> None:
            value = get(m, sel)
            if (value < offset).any() or (value >= offset + dtype(memory.WINDOW_SIZE)).any():
                raise Fault(f"cvta.to.{space} of a generic address that lies in another state space", 0, sel.first)
            put(m, sel, value - offset)

        return back
    return lambda m, sel: put(m, sel, get(m, sel) + offset)


@meaning("mapa")
def map_address(form: Form) -> Action:
    """The address that corresponds, in the shared memory of the cluster's block of a given rank (§9.7.9.24). A rank that the cluster
    does not have gives an address that faults when it is used."""
    view = TYPE_VIEW[form.type]
    dtype = VIEWS[view][1]
    put, get, rank = form.target(0, view), form.source(1, view), form.source(2, "u32")
    low = dtype(memory.OFFSET_MASK)

    def run(m: Machine, sel: Selection) -> None:
        wanted = rank(m, sel).astype(dtype) & dtype(0xFF)
        result = (get(m, sel) & low) | (wanted << dtype(memory.RANK_SHIFT))
        put(m, sel, result)

    return run


@meaning("createpolicy")
def create_policy(form: Form) -> Action:
    """Cache policies are opaque and change nothing here; any value will do."""
    put = form.target(0, "u64")
    value = np.zeros((1, 1), np.uint64)
    return lambda m, sel: put(m, sel, value)
