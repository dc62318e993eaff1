"""Lowering of tile.inline_ptx: each instruction of the text once, for all the elements that a thread holds."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.inline_ptx import InlineError
from ...dialects.ptx import reg
from ...dialects.tile import element_type
from .context import Context, lowers
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
        regs = ctx.get(value)
        registers[f"${len(op.results) + number}"] = one_each(ctx, regs, kind, n)
    for instruction in instructions:
        row = instruction.row
        if not row.supports(ctx.target.name):
            raise ctx.error(op, f"{row.opcode} needs {row.since}, the kernel's target is {ctx.target.name}")
        sources = [registers[source] if isinstance(source, str) else ctx.const(*source) for source in instruction.sources]
        made = ctx.inst(row.opcode, sources, [reg(cls, n) for _, cls in instruction.results], instruction.immediates)
        for (name, _), value in zip(instruction.results, [made] if len(instruction.results) == 1 else made):
            registers[name] = value
    for number, value in enumerate(op.results):
        regs = registers[f"${number}"]
        ctx.set(value, from_one_each(ctx, regs, element_type(value.type), n) if tiles else regs)
