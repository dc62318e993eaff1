"""Meanings of tensor copies and of edits to tensor maps (PTX ISA 9.0 §9.7.9.27, §9.7.9.28). Boxes are in `tensor_maps.py`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.launch_plan import TensorMap
from ..dialects.ptx_program import TensorAddr
from .atomics import OPERATIONS, update_function
from .barrier_ops import mbarrier_places, per_thread
from .copies import BulkOperation, deliver, destinations
from .data_movement import space_of
from .decode import TYPE_VIEW, VIEWS, Action, Form, meaning
from .faults import Fault, Misaligned
from .selection import WARP, Selection
from .tensor_maps import (
    MAP_BYTES,
    Seen,
    box_bytes,
    chunk_places,
    decode_tensor_map,
    encode_tensor_map,
    read_box,
    update_type,
    write_box,
)

if TYPE_CHECKING:
    from .machine import Machine

Array = NDArray[Any]


def fetch_map(m: Machine, space: str, address: int, thread: int) -> TensorMap:
    """The tensor map at an address of the thread."""
    one = m.select(np.array([thread]))
    words = m.load(space, np.array([[address]]) + 16 * np.arange(8)[:, None], 8, 2, one)
    return decode_tensor_map(np.ascontiguousarray(words[..., 0]).tobytes())


class _TensorOperand:
    """`[map, {x, y}]`: gives (map, coordinates) of each thread."""

    def __init__(self, form: Form, k: int):
        operand = form.operands[k]
        if not isinstance(operand, TensorAddr):
            raise form.bad(f"operand {k + 1} of '{form.opcode}' must be a tensor map with coordinates")
        self.map = form.address([operand.base])
        self.coords = [form.source([c], "s32") for c in operand.coords]

    def get(self, m: Machine, sel: Selection) -> list[tuple[TensorMap, tuple[int, ...]]]:
        addresses = np.broadcast_to(self.map(m, sel), (1, sel.count))[0]
        columns = [per_thread(c(m, sel), sel) for c in self.coords]
        return [
            (fetch_map(m, "generic", int(addresses[k]), thread), tuple(int(c[k]) for c in columns))
            for k, thread in enumerate(sel.threads.tolist())
        ]


def _place(m: Machine, one: Selection, address: int, t: TensorMap, cluster: bool) -> int:
    if address % 128:
        raise Misaligned(f"a tensor copy at shared address 0x{address:x}, which is not a multiple of 128", 0, one.first)
    return int(m.flatten(np.array([[address]]), one, box_bytes(t), 128, "tensor copy", cluster)[0, 0])


def _chunks(m: Machine, place: int, count: int, span: int) -> tuple[Array, Array]:
    """(all shared memory as 16-byte chunks, indices of those of a box of `count` bytes at `place`)."""
    chunks = m.shared.view(8).reshape(-1, 2)
    return chunks, chunk_places(count // 16, span, place % 1024) + (place - place % 1024) // 16


@meaning("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", dests=(), fuse=False)
def tensor_copy(form: Form) -> Action:
    if any("im2col" in w or "gather" in w or "scatter" in w for w in form.words):
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    spaces = [w for w in form.words if w in ("global", "shared::cta", "shared::cluster")]
    return _tensor_store(form) if spaces[0] == "global" else _tensor_load(form, spaces[0] == "shared::cluster")


def _tensor_load(form: Form, cluster: bool) -> Action:
    dst, operand, barrier = form.address(0), _TensorOperand(form, 1), mbarrier_places(form, 2)
    mask = form.source([form.operands[3]], "u16") if form.has("multicast::cluster") else None

    def run(m: Machine, sel: Selection) -> None:
        to_at, barriers = per_thread(dst(m, sel), sel), barrier(m, sel)
        masks = None if mask is None else per_thread(mask(m, sel), sel)
        op = BulkOperation(sel.threads, True)
        for k, (t, coords) in enumerate(operand.get(m, sel)):
            one = m.select(sel.threads[k : k + 1])
            place = _place(m, one, int(to_at[k]), t, cluster)
            targets = destinations(m, one.first, place, int(barriers[k]), None if masks is None else int(masks[k]))
            op.barriers.append(targets[0][1] if targets else int(barriers[k]))

            def scatter(at: int, data: Array, span: int = t.swizzle) -> None:
                chunks, index = _chunks(m, at, len(data), span)
                chunks[index] = data.view(np.uint64).reshape(-1, 2)

            seen = _seen(m, "async load", one.first)
            op.reads.append(lambda t=t, coords=coords, seen=seen: read_box(m.memory, t, coords, seen))
            op.writes.append(
                lambda data, thread=one.first, targets=targets, scatter=scatter: deliver(
                    m, thread, targets, data, scatter
                )
            )
        m.pending.issue(op, grouped=False)

    return run


def _tensor_store(form: Form) -> Action:
    operand, src = _TensorOperand(form, 0), form.address(1)
    operation = form.pick(OPERATIONS) if form.words[1] == "reduce" else ""

    def run(m: Machine, sel: Selection) -> None:
        from_at = per_thread(src(m, sel), sel)
        op = BulkOperation(sel.threads, False)
        for k, (t, coords) in enumerate(operand.get(m, sel)):
            one = m.select(sel.threads[k : k + 1])
            place = _place(m, one, int(from_at[k]), t, False)
            combine = _combine(operation, t.dtype) if operation else None
            seen = _seen(m, "async atomic" if operation else "async store", one.first)

            def gather(place: int = place, t: TensorMap = t, one: Selection = one) -> Array:
                m.observe("async load", "shared", np.array([[place]]), box_bytes(t), one.threads)
                chunks, index = _chunks(m, place, box_bytes(t), t.swizzle)
                return chunks[index].reshape(-1).view(np.uint8)

            op.reads.append(gather)
            op.writes.append(
                lambda data, t=t, coords=coords, combine=combine, seen=seen: write_box(
                    m.memory, t, coords, data, combine, seen
                )
            )
        m.pending.issue(op)

    return run


def _seen(m: Machine, kind: str, thread: int) -> Seen | None:
    """Tells the observer of the runs of bytes in global memory that a copy of the thread touches."""
    if m.observer is None:
        return None
    threads = np.array([thread])
    return lambda addresses, size: m.observe(kind, "global", addresses[:, None], size, threads)


def _combine(operation: str, dtype: str) -> Any:
    type = update_type(dtype)
    update, element = update_function(operation, type), VIEWS[TYPE_VIEW[type]][1]

    def combine(old: Array, new: Array) -> Array:
        values = np.ascontiguousarray(new).view(element)
        return np.ascontiguousarray(update(old.view(element), values, values)).view(old.dtype)

    return combine


@meaning("tensormap.replace", dests=(), fuse=False)
def replace_field(form: Form) -> Action:
    """`tensormap.replace.tile.FIELD.SPACE.b1024.TYPE [addr] {, index}, value`; strides are in bytes."""
    name, space = form.words[3], space_of(form)
    fields = {
        "global_address": "address",
        "global_dim": "dims",
        "global_stride": "strides",
        "box_dim": "box",
        "element_stride": "element_strides",
    }
    if name not in fields:  # rank, element type, interleave, swizzle and fill
        raise form.bad(f"the simulator has no meaning for '{form.opcode}'")
    address, value = form.address(0), form.source([form.operands[-1]], "u64" if form.type == "b64" else "u32")
    index = form.immediate(1) if form.arity == 3 else None

    def run(m: Machine, sel: Selection) -> None:
        addresses, values = per_thread(address(m, sel), sel), per_thread(value(m, sel), sel)
        for k, thread in enumerate(sel.threads.tolist()):
            t = fetch_map(m, space, int(addresses[k]), thread)
            new: Any = int(values[k])
            if index is not None:
                entries = list(getattr(t, fields[name]))
                if index >= len(entries):
                    raise Fault(f"tensormap.replace of {name} {index} in a map of {len(t.dims)} dimensions", 0, thread)
                entries[index] = new
                new = tuple(entries)
            data = encode_tensor_map(dataclasses.replace(t, **{fields[name]: new}))
            _write_map(m, space, int(addresses[k]), thread, data)

    return run


def _write_map(m: Machine, space: str, address: int, thread: int, data: bytes) -> None:
    words = np.frombuffer(data, np.uint64).reshape(8, 2, 1)
    m.store(space, np.array([[address]]) + 16 * np.arange(8)[:, None], words, 8, m.select(np.array([thread])))


@meaning("tensormap.cp_fenceproxy", dests=(), unit=WARP, fuse=False)
def publish_map(form: Form) -> Action:
    """The warp copies a map from shared to global memory and orders it for the tensor proxy."""
    dst, src = form.address(0), form.address(1)
    if form.immediate(2) != MAP_BYTES:
        raise form.bad(f"a tensor map has {MAP_BYTES} bytes")

    def run(m: Machine, sel: Selection) -> None:
        to_at, from_at = per_thread(dst(m, sel), sel), per_thread(src(m, sel), sel)
        firsts = np.unique(sel.threads // WARP, return_index=True)[1]
        for k in firsts.tolist():
            thread = int(sel.threads[k])
            data = encode_tensor_map(fetch_map(m, "shared", int(from_at[k]), thread))
            _write_map(m, "global", int(to_at[k]), thread, data)

    return run
