"""Lowering of layout.convert where elements change threads: through shared memory, in a buffer whose layout suits both sides (`passes/exchanges.py`)."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from ...dialects.layout import TVLayout
from ...passes.access import memory_bytes
from ...passes.exchanges import EXCHANGED_BITS, plan_exchange
from .context import Context, element_bits
from .shared_access import plan_read, write_tile


def can_exchange(kind: Attribute) -> bool:
    """Whether tiles of these elements go this way; others go element by element."""
    return element_bits(kind) in EXCHANGED_BITS


def exchange_tile(
    ctx: Context, regs: SSAValue, kind: Attribute, source: TVLayout, result: TVLayout, shape: tuple[int, ...]
) -> SSAValue:
    """A tile from one layout to another. Every element is written by its first holder and read by all who need it; padding is neither written nor
    read, and zero."""
    size = memory_bytes(kind)
    plan = plan_exchange(source, result, shape, size, ctx.target.compute_capability >= (9, 0))
    base = ctx.shared_address(ctx.scratch(plan.nbytes))
    ctx.barrier()  # the scratch may still be read for something else
    write_tile(ctx, base, plan.shared, source, shape, regs, ctx.first_holder(source), size)
    ctx.barrier()
    return plan_read(ctx, base, plan.shared, result, size).emit(ctx)
