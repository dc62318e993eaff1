"""Lowering of tile.print and tile.assert: records in the launch's buffer (`dialects/device_messages.py`).

One thread of the block reserves the bytes of a record by an atomic addition to the buffer's count and tells the others its place through shared
memory; then each value is written by those who hold it. A record that finds no room is counted, not written; that an assertion failed is
said by a bit, too. Blocks never wait for the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.device_messages import BUFFER_BYTES, FAILURES_AT, HEADER_BYTES, UNIT, failure_bit
from ...dialects.launch_plan import Param
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from ...dialects.tile_messages import site_of
from ...passes.access import memory_bytes
from .context import Context, lowers
from .elements import check_lowered
from .memory import Access, store_registers
from .shapes import inside_tile, row_major_strides

PLACE_BYTES = 8
"""Shared memory through which a record's place is told."""


@lowers(tile.PrintOp)
def _print(ctx: Context, op: tile.PrintOp) -> None:
    for value in op.values:
        check_lowered(ctx, element_type(value.type), op)
    _record(ctx, op, op.values)


@lowers(tile.AssertOp)
def _assert(ctx: Context, op: tile.AssertOp) -> None:
    failed = ctx.inst("not.pred", [ctx.get(op.condition)], [reg("pred")])
    before = dict(ctx.unsynchronised)

    def record() -> None:
        number, buffer = _record(ctx, op, ())
        bit = failure_bit(number)
        mask = ctx.const(bit - (1 << 64) if bit >> 63 else bit, "b64")
        ctx.inst("red.relaxed.gpu.global.or.b64", [buffer, mask], offsets=[FAILURES_AT], guard=ctx.one_thread())

    ctx.if_(failed, record)
    ctx.unsynchronised = before  # the barriers inside are met by blocks that fail only


def _record(ctx: Context, op: tile.PrintOp | tile.AssertOp, values: Sequence[SSAValue]) -> tuple[int, SSAValue]:
    """Gives the site's number and the buffer's address."""
    site = site_of(op)
    number = ctx.messages.setdefault(site, len(ctx.messages))
    buffer = ctx.once("messages", lambda: ctx.inst("cvta.to.global.u64", [ctx.param(Param("messages", "p_messages", ""), "b64")], [reg("b64")]))
    leader = ctx.one_thread()
    size = ctx.const(site.record_bytes, "b64")
    place = ctx.shared_address(ctx.scratch(PLACE_BYTES))
    ctx.barrier()  # the scratch may still be read for something else
    reserved = ctx.inst("atom.relaxed.gpu.global.add.u64", [buffer, size], [reg("b64")], offsets=[0], guard=leader, init=[ctx.const(0, "b64")])
    ctx.inst("st.shared.b64", [place, reserved], guard=leader)
    ctx.barrier()
    start = ctx.inst("ld.shared.b64", [place], [reg("b64")])
    fits = ctx.compare("le", "u64", start, BUFFER_BYTES - HEADER_BYTES - site.record_bytes)

    def write() -> None:
        at = ctx.add(ctx.add(buffer, start), HEADER_BYTES)
        ctx.inst("st.global.b32", [at, ctx.const(number)], offsets=[0], guard=leader)
        for position, coordinate in enumerate(op.coordinates):
            ctx.inst("st.global.b64", [at, ctx.get(coordinate)], offsets=[UNIT * (1 + position)], guard=leader)
        for value, (offset, _) in zip(values, site.parts()):
            _write(ctx, value, ctx.add(at, offset))

    ctx.if_(fits, write)
    return number, buffer


def _write(ctx: Context, value: SSAValue, address: SSAValue) -> None:
    """A value's elements in row-major order from `address` on."""
    kind = element_type(value.type)
    if not isinstance(value.type, TensorType):
        store_registers(ctx, kind, 1, Access(1, address, [0], ctx.one_thread()), ctx.get(value))
        return
    layout, shape, size = ctx.layout(value), shape_of(value.type), memory_bytes(kind)
    strides = row_major_strides(shape)
    own = ctx.const(0)
    for dim, stride in enumerate(strides):
        own = ctx.add(own, ctx.mul(ctx.thread_coord(layout, dim), stride * size))
    coords = [layout.value_coords(number) for number in range(layout.num_values)]
    offsets = [sum(c * stride for c, stride in zip(coord, strides)) * size for coord in coords]
    guard = ctx.both(inside_tile(ctx, layout, shape, range(layout.rank)), ctx.first_holder(layout))
    store_registers(ctx, kind, layout.num_values, Access(1, ctx.add(address, ctx.widen(own)), offsets, guard), ctx.get(value))
