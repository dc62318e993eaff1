"""Lowering of tile.join, tile.split and tile.assume, which rename registers, and of tile.histogram, which counts in shared memory.

A block's counts begin at zero in scratch memory; one of the threads that hold an element adds one at its place (`red.shared`), and after a barrier every
thread reads the counts that the result's layout gives it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from ...dialects import tile
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from .context import Context, lowers
from .elements import apart, check_lowered, together
from .shapes import inside_tile

COUNT_BYTES = 4


def _pick(ctx: Context, parts: Sequence[tuple[SSAValue, int]], kind: Attribute, indices: Sequence[int]) -> SSAValue:
    """The elements at `indices` of several vectors, one after another; a part is (registers, number of values)."""
    single = ctx.concat([apart(ctx, regs, kind, n) for regs, n in parts])
    return together(ctx, ctx.pick(single, indices), kind, len(indices))


@lowers(tile.JoinOp)
def _join(ctx: Context, op: tile.JoinOp) -> None:
    kind = element_type(op.res.type)
    check_lowered(ctx, kind, op)
    source, result = ctx.layout(op.lhs), ctx.layout(op.res)
    n = source.num_values
    held = {source.value_coords(value): value for value in range(n)}
    places = [result.value_coords(value) for value in range(result.num_values)]
    parts = [(ctx.get(op.lhs), n), (ctx.get(op.rhs), n)]
    ctx.set(op.res, _pick(ctx, parts, kind, [held[at[:-1]] + n * at[-1] for at in places]))


@lowers(tile.SplitOp)
def _split(ctx: Context, op: tile.SplitOp) -> None:
    kind = element_type(op.source.type)
    check_lowered(ctx, kind, op)
    source, result = ctx.layout(op.source), ctx.layout(op.first)
    held = {source.value_coords(value): value for value in range(source.num_values)}
    for which, part in enumerate((op.first, op.second)):
        indices = [held[(*result.value_coords(value), which)] for value in range(result.num_values)]
        ctx.set(part, _pick(ctx, [(ctx.get(op.source), source.num_values)], kind, indices))


@lowers(tile.AssumeOp)
def _assume(ctx: Context, op: tile.AssumeOp) -> None:
    ctx.set(op.res, ctx.get(op.source))


@lowers(tile.HistogramOp)
def _histogram(ctx: Context, op: tile.HistogramOp) -> None:
    source, result = ctx.layout(op.source), ctx.layout(op.res)
    (bins,) = shape_of(op.res.type)
    base = ctx.shared_address(ctx.scratch(bins * COUNT_BYTES))
    ctx.barrier()  # the scratch may still be read for something else
    own = ctx.add(base, ctx.mul(ctx.tid(), COUNT_BYTES))
    zero = ctx.const(0)
    for first in range(0, bins, ctx.threads):
        left = bins - first
        guard = None if left >= ctx.threads else ctx.compare("lt", "s32", ctx.tid(), left)
        ctx.inst("st.shared.b32", [own, zero], offsets=[first * COUNT_BYTES], guard=guard)
    ctx.barrier()
    values = ctx.get(op.source)
    counted = ctx.inst("setp.lt.u32", [values, ctx.const(bins)], [reg("pred", source.num_values)])  # negative ones are huge
    counted = ctx.both(counted, inside_tile(ctx, source, shape_of(op.source.type), range(source.rank)))
    counted = ctx.both(counted, ctx.first_holder(source))
    address = ctx.add(ctx.inst("shl.b32", [values, ctx.const(2)], [values.type]), base)
    ctx.inst("red.shared.add.u32", [address, ctx.const(1)], offsets=[0] * source.num_values, guard=counted)
    ctx.barrier()
    n = result.num_values
    address = ctx.add(base, ctx.mul(ctx.thread_coord(result, 0), COUNT_BYTES))
    offsets = [result.value_coords(value)[0] * COUNT_BYTES for value in range(n)]
    inside = inside_tile(ctx, result, (bins,), [0])
    if inside is None:
        ctx.set(op.res, ctx.inst("ld.shared.b32", [address], [reg("b32", n)], offsets=offsets))
    else:
        ctx.set(op.res, ctx.inst("ld.shared.b32", [address], [reg("b32", n)], offsets=offsets, guard=inside, init=[ctx.splat(zero, n)]))
