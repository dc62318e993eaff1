"""Lowering of tile.inline_ptx: each instruction of the text once, for all the elements that a thread holds."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile
from ...dialects.inline_ptx import InlineError
from ...dialects.ptx import reg
from ...dialects.tile import element_type
from ...dialects.tile_types import ui8
from .context import Context, element_bits, lowers
from .elements import check_lowered, from_one_each, one_each


@lowers(tile.InlinePtxOp)
def _inline(ctx: Context, op: tile.InlinePtxOp) -> None:
    try:
        instructions = op.instructions()
    except InlineError as error:
        raise ctx.error(op, error.message, error.hint) from None
    first = op.results[0]
    tiles = isinstance(first.type, TensorType)
    n = ctx.layout(first).num_values if tiles else 1
    registers: dict[str, SSAValue] = {}
    for number, value in enumerate(op.args):
        kind = element_type(value.type)
        check_lowered(ctx, kind, op)
        registers[f"${len(op.results) + number}"] = _extended(ctx, one_each(ctx, ctx.get(value), kind, n), kind)
    for instruction in instructions:
        row = instruction.row
        if not row.supports(ctx.target.name):
            raise ctx.error(op, f"{row.opcode} needs {row.since}, the kernel's target is {ctx.target.name}")
        sources = [registers[source] if isinstance(source, str) else ctx.const(*source) for source in instruction.sources]
        made = ctx.inst(row.opcode, sources, [reg(cls, n) for _, cls in instruction.results], instruction.immediates)
        for (name, _), value in zip(instruction.results, [made] if len(instruction.results) == 1 else made):
            registers[name] = value
    for number, value in enumerate(op.results):
        kind = element_type(value.type)
        regs = _extended(ctx, registers[f"${number}"], kind)
        ctx.set(value, from_one_each(ctx, regs, kind, n) if tiles else regs)


def _extended(ctx: Context, regs: SSAValue, kind: Attribute) -> SSAValue:
    """Elements of 8 bits as 16: i8 by its sign, others with zeros."""
    if element_bits(kind) != 8:
        return regs
    if isinstance(kind, IntegerType) and kind != ui8:
        return ctx.inst("cvt.s16.s8", [regs], [regs.type])
    return ctx.inst("and.b16", [regs, ctx.const(255, "b16")], [regs.type])
