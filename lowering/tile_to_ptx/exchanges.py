"""Lowering of layout.convert where elements change threads: by shuffles, or through shared memory in a buffer whose layout suits both sides, whichever is
cheaper (`passes/conversions.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from ...dialects.layout import TVLayout
from ...dialects.ptx import reg
from ...passes.access import memory_bytes
from ...passes.exchanges import Exchange
from ...passes.shuffles import BUTTERFLY, INDEXED, LANES, Shuffles
from ...passes.shuffles import Exchange as WordExchange
from .context import Context, element_bits
from .elements import from_one_each, one_each
from .shared_access import plan_read, write_tile

ALL_LANES = 0xFFFFFFFF


def exchange_tile(
    ctx: Context, plan: Exchange, regs: SSAValue, kind: Attribute, source: TVLayout, result: TVLayout, shape: tuple[int, ...]
) -> SSAValue:
    """A tile from one layout to another through shared memory. Every element is written by its first holder and read by all who need it; padding is neither
    written nor read, and zero."""
    size = memory_bytes(kind)
    base = ctx.shared_address(ctx.scratch(plan.nbytes))
    ctx.barrier()  # the scratch may still be read for something else
    write_tile(ctx, base, plan.shared, source, shape, regs, ctx.first_holder(source), size)
    ctx.barrier()
    return plan_read(ctx, base, plan.shared, result, size).emit(ctx)


def shuffle_tile(ctx: Context, plan: Shuffles, regs: SSAValue, kind: Attribute, source: TVLayout, result: TVLayout) -> SSAValue:
    """A tile from one layout to another by shuffles; what is padding in the source is so in the result."""
    words = _swapped(ctx, plan.before, _words(ctx, plan, regs, kind, source.num_values))
    many, wanted = 1 << len(plan.source_weights), 1 << len(plan.result_weights)
    parts: list[SSAValue] = []
    place: dict[tuple[int, int, int], int] = {}
    at = 0
    lanes: dict[int, list[int]] = {}
    for one in plan.rounds:
        offered = lanes.setdefault(one.lanes, [])
        if one.offered not in offered:
            offered.append(one.offered)
    for mask, offered in lanes.items():
        chosen = ctx.pick(words, [copy * many + word for copy in range(plan.copies) for word in offered])
        parts.append(chosen if plan.butterfly and mask == 0 else _shuffled(ctx, plan, chosen, mask))
        for copy in range(plan.copies):
            for i, word in enumerate(offered):
                place[copy, mask, word] = at + copy * len(offered) + i
        at += plan.copies * len(offered)
    got = ctx.pick(ctx.concat(parts), [place[copy, one.lanes, one.offered] for copy in range(plan.copies) for one in plan.rounds])
    got = _swapped(ctx, plan.after, got)
    order = [0] * plan.result_words
    for copy, digits in enumerate(plan.asides()):
        for word in range(wanted):
            order[plan.result_place(word, digits)] = copy * wanted + word
    return _from_words(ctx, plan, ctx.pick(got, order), kind, result.num_values)


def _words(ctx: Context, plan: Shuffles, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """A thread's words by their numbers, b32 or b64, for one combination of the digits aside after another."""
    bits = element_bits(kind)
    if bits == 1:
        regs = ctx.inst("selp.b32", [ctx.const(1), ctx.const(0), regs], [reg("b32", n)])
    elif bits < 32 and plan.per_word * bits < 32:
        regs = ctx.inst("cvt.u32.u16", [one_each(ctx, regs, kind, n)], [reg("b32", n)])
    return ctx.pick(regs, [plan.source_place(word, at) for at in plan.asides() for word in range(1 << len(plan.source_weights))])


def _from_words(ctx: Context, plan: Shuffles, words: SSAValue, kind: Attribute, n: int) -> SSAValue:
    bits = element_bits(kind)
    if bits == 1:
        return ctx.compare("ne", "s32", words, 0)
    if bits < 32 and plan.per_word * bits < 32:
        return from_one_each(ctx, ctx.inst("cvt.u16.u32", [words], [reg("b16", n)]), kind, n)
    return words


def _swapped(ctx: Context, exchanges: Sequence[WordExchange], words: SSAValue) -> SSAValue:
    for exchange in exchanges:
        others = ctx.pick(words, [i ^ exchange.words for i in range(words.type.count)])  # the words of one combination are a power of two in number
        words = ctx.inst(f"selp.{words.type.cls}", [others, words, _odd(ctx, exchange.threads)], [words.type])
    return words


def _odd(ctx: Context, threads: int) -> SSAValue:
    """A predicate: whether an odd number of these bits of the thread's number are set."""

    def make() -> SSAValue:
        bits = ctx.and_(ctx.tid(), threads)
        if threads & (threads - 1):
            bits = ctx.and_(ctx.inst("popc.b32", [bits], [bits.type]), 1)
        return ctx.compare("ne", "s32", bits, 0)

    return ctx.once(("odd", threads), make)


def _shuffled(ctx: Context, plan: Shuffles, words: SSAValue, mask: int) -> SSAValue:
    """Words of the lanes that the plan names, XOR `mask`."""
    if plan.butterfly:
        opcode, lane = BUTTERFLY, ctx.const(mask)
    else:
        opcode, lane = INDEXED, ctx.once(("read from", plan.lane_of, mask), lambda: ctx.xor(_lane_of(ctx, plan.lane_of), mask))
    rest = [lane, ctx.const(LANES), ctx.const(ALL_LANES)]
    if words.type.cls == "b32":
        return ctx.inst(opcode, [words, *rest], [words.type])
    halves = reg("b32", 2 * words.type.count)
    return ctx.inst("mov.b64", [ctx.inst(opcode, [ctx.inst("mov.b64", [words], [halves]), *rest], [halves])], [words.type])


def _lane_of(ctx: Context, columns: tuple[int, ...]) -> SSAValue:
    """The XOR of the columns of the bits of the thread's number that are set: bits that move alike together."""

    def make() -> SSAValue:
        total, i = ctx.const(0), 0
        while i < len(columns):
            column, count = columns[i], 1
            single = column and column & (column - 1) == 0
            while single and i + count < len(columns) and columns[i + count] == column << count:
                count += 1
            if column:
                digit = ctx.and_(ctx.shr(ctx.tid(), i), (1 << count) - 1)
                total = ctx.xor(ctx.mul(digit, column), total)
            i += count
        return total

    return ctx.once(("lane of", columns), make)
