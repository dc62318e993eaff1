"""Lowering of async.store: registers to a buffer, the buffer to memory by TMA, one part of the tile after another.

    one thread        waits until the store that read this buffer before has read it (cp.async.bulk.wait_group.read, which all execute, to save the
                      branch: the others have nothing to wait for)
    all               meet; write their values of the part (stmatrix where it fits); fence.proxy.async; meet
    the same thread   issues the store and commits a group

Where there is a buffer for every part, all parts are written at once, between one wait and one fence.

Who *all* are depends on the layout. Where each warp holds whole rows of a part (as wgmma leaves them, 16 to a warp), a warp stores its own rows and
meets nobody else: 32 lanes meet at a fraction of what a barrier costs, and the warps need not be in step. Otherwise all threads of the role
meet, and the first warp issues.

Groups of bulk stores belong to the thread that issues them, so it is always the same, the elected one. A group is all that has read a buffer, and
groups complete their reads in order, so with d buffers at most d - 1 may still be reading when one is written; fewer at the start of a tile, if the parts of the one before
did not end with the last buffer (`_may_read`). Groups of other stores in between make a wait longer than it must be, never shorter. Before the threads end, everything must have been
read: shared memory goes with them. That it is also written then, nobody waits for: the grid is not complete before it is, and what a kernel after it or the host
reads is ordered after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from xdsl.ir import SSAValue

from ...dialects import async_copy
from ...dialects.launch_plan import Requirement, TensorMapSpec
from ...passes.access import memory_bytes
from ...passes.alloc_shared import slot_stride
from ...passes.dot_rules import tma_store_opcode
from ...passes.stage_stores import WarpRows, part_layout, part_of, warp_rows
from .channels import coordinate, require_coordinates
from .context import PROXY_FENCE, Context, lowers
from .elements import check_lowered, halves, pack_halves
from .shared_access import write_tile


@lowers(async_copy.StoreOp)
def _store(ctx: Context, op: async_copy.StoreOp) -> None:
    channel = op.channel.owner
    kind = op.value.type
    check_lowered(ctx, kind.element_type, op)
    found = part_of(ctx.kernel, op)
    if not isinstance(channel, async_copy.ChannelOp) or found is None or found[0] != channel.res.type.shape or channel.offset is None:
        raise ctx.error(op, "TMA cannot store this tile through these buffers", "write tile.store, or let stage-stores choose")
    extents, shared = found
    size = memory_bytes(kind.element_type)
    depth, offset = channel.depth.value.data, channel.offset.value.data
    nbytes = slot_stride(channel)
    form = shared.tma_form(size)
    assert form is not None, "part_of has made it so"
    of = op.tile_dims()
    tile_dims = [of[d] for d in form.order]
    others = [d for d in range(op.array.type.get_num_dims()) if d not in of]
    layout, registers = ctx.layout(op.value), ctx.get(op.value)
    inner = form.order[0]
    part = part_layout(layout, inner, extents[inner])
    assert part is not None, "part_of has made it so"
    own = warp_rows(part, inner) if len(form.starts) == 1 else None
    rows = {} if own is None else {own.dim: own.count}
    box = (*(rows.get(d, form.box[d]) for d in form.order), *(1 for _ in others))
    spec = TensorMapSpec(ctx.argument_name(op.array), (*tile_dims, *others), box, form.swizzle_bytes)
    tensormap = ctx.tensormap(op.array, spec)
    first_row = ctx.const(0) if own is None else _first_row(ctx, own)
    issuer = ctx.leader() if own is None else ctx.elected()
    ctx.require(Requirement("align", spec.arg, 16))
    require_coordinates(ctx, op.array)
    ctx.order_access(op.array, "w")

    rank = len(spec.dims)
    at = [coordinate(ctx, index) for index in op.indices]
    if own is not None:
        at[of[own.dim]] = ctx.add(at[of[own.dim]], first_row)
    starts = [range(0, whole, extent) for whole, extent in zip(kind.get_shape(), extents)]
    corners = list(product(*starts))
    at_once = depth if depth == len(corners) else 1  # else one part is written while another is read
    for number in range(0, len(corners), at_once):
        ctx.inst("cp.async.bulk.wait_group.read", imms=[_may_read(number, len(corners), depth) if at_once == 1 else 0])
        _meet(ctx, own)
        sources = []
        for i, corner in enumerate(corners[number : number + at_once], number):
            inside = [v for v in range(layout.num_values) if layout.value_coords(v)[inner] // extents[inner] * extents[inner] == corner[inner]]
            buffer = ctx.shared_address(offset + i % depth * nbytes)
            values = _picked(ctx, registers, inside, layout.num_values // registers.type.count)
            write_tile(ctx, buffer, shared, part, extents, values, ctx.first_holder(part), size)
            sources.append((corner, buffer))
        ctx.inst(PROXY_FENCE)
        _meet(ctx, own)

        def issue() -> None:
            for corner, buffer in sources:  # noqa: B023
                for start in form.starts:
                    coords = [ctx.add(at[of[d]], corner[d] + start[d]) for d in form.order] + [at[d] for d in others]
                    source = ctx.add(ctx.add(buffer, shared.offset(start) * size), ctx.mul(first_row, extents[inner] * size))
                    ctx.inst(tma_store_opcode(rank), [tensormap, ctx.concat(coords), source])
            ctx.inst("cp.async.bulk.commit_group")

        ctx.if_(issuer, issue)
    ctx.stores_under_way = True


def _may_read(part: int, parts: int, depth: int) -> int:
    """How many groups, the last ones, may still be reading their buffers when a part is written to its own: those after the group that read this buffer last, for this tile or the one before it.

    >>> [_may_read(part, 7, 4) for part in range(7)], [_may_read(part, 4, 2) for part in range(4)]
    ([2, 2, 2, 6, 3, 3, 3], [1, 1, 1, 1])
    """
    return depth - 1 if part >= depth else (parts - 1 - part) % depth + part


def _meet(ctx: Context, own: WarpRows | None) -> None:
    if own is None:
        ctx.barrier()
    else:
        ctx.inst("bar.warp.sync", [ctx.const(0xFFFFFFFF)])


def _first_row(ctx: Context, own: WarpRows) -> SSAValue:
    """The first of the rows of a part that the warp holds, b32, known to be the same for the whole warp."""

    def make() -> SSAValue:
        row = ctx.const(0)
        for weight, extent, step in own.digits:
            digit = ctx.shr(ctx.warp(), weight.bit_length() - 1)
            if weight * extent < ctx.warps:
                digit = ctx.and_(digit, extent - 1)
            row = ctx.add(row, ctx.mul(digit, step))
        return row

    return ctx.once(("first row", own), make)


def _picked(ctx: Context, registers: SSAValue, which: Sequence[int], per_register: int) -> SSAValue:
    """Some of the values of a tile's registers, held as those of a tile are."""
    firsts = which[::per_register]
    if list(which) == [first + i for first in firsts for i in range(per_register)] and all(first % per_register == 0 for first in firsts):
        return ctx.pick(registers, [first // per_register for first in firsts])
    # The two halves of a register go to different parts.
    return pack_halves(ctx, ctx.pick(halves(ctx, registers, registers.type.count * per_register), which), len(which))


def finish_stores(ctx: Context) -> None:
    """Before the threads of a role, or block, end: what they store has left shared memory."""
    if ctx.stores_under_way:
        ctx.inst("cp.async.bulk.wait_group.read", imms=[0])
