"""Functions of the program that combine elements: the region of a tile.scan or tile.fold over register vectors of any length.

A combining function is written for two elements of each tile and used on many at once. Each use makes its operations anew, on tiles of one dimension
of which every thread has all n values; so they go through the lowerings that tiles' operations have. Between uses an element stands in a word of its own:
b64 for 64 bits, else b32, with zeros above what is narrower, so that words can be shuffled, stored and chosen among alike.
"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType, UnrealizedConversionCastOp
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects import tile
from ...dialects.layout import Mode, TVLayout
from ...dialects.layout_attrs import TVLayoutAttr
from ...dialects.ptx import reg
from .context import HANDLERS, Context, element_bits
from .elements import apart, from_int, to_int, together
from .reduce import Combine, Parts


def to_words(ctx: Context, regs: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """n elements, as a tile or a scalar holds them, in a word each."""
    bits = element_bits(kind)
    if bits == 1:
        return to_int(ctx, regs, kind, n)
    words = apart(ctx, regs, kind, n)
    return ctx.inst("cvt.u32.u16", [words], [reg("b32", n)]) if bits == 16 else words


def from_words(ctx: Context, words: SSAValue, kind: Attribute, n: int) -> SSAValue:
    """The inverse of `to_words`."""
    bits = element_bits(kind)
    if bits == 1:
        return from_int(ctx, words, kind, n)
    if bits == 16:
        words = ctx.inst("cvt.u16.u32", [words], [reg("b16", n)])
    return together(ctx, words, kind, n)


class Function:
    """The combining function of a scan or fold: of the parts of n places on the left and of n on the right makes those of n."""

    def __init__(self, ctx: Context, op: tile.ScanOp | tile.FoldOp):
        assert op.body is not None
        self.ctx, self.block = ctx, op.body.block
        self.elements = [argument.type for argument in self.block.args]
        self.varying = set(self.block.args)
        self.repeated: list[Operation] = []
        for inner in self.block.ops:
            if self.varying.intersection(inner.operands):
                self.varying.update(inner.results)
                self.repeated.append(inner)
            elif not isinstance(inner, tile.YieldOp):
                self._lower(inner)  # a scalar, the same whatever is combined

    def __call__(self, left: Parts, right: Parts) -> Parts:
        n = left[0].type.count
        layout = TVLayoutAttr(TVLayout((Mode(self.ctx.threads, (0,)),), (Mode(n, (1,)),)))

        def tiled(kind: Attribute) -> TensorType:
            return TensorType(kind, (n,), layout)

        values: dict[SSAValue, SSAValue] = {}
        for argument, kind, words in zip(self.block.args, self.elements, (*left, *right)):
            holder = UnrealizedConversionCastOp.get([], [tiled(kind)]).results[0]  # no operation of ours, which might be read for what it says
            self.ctx.set(holder, from_words(self.ctx, words, kind, n))
            values[argument] = holder

        def tile_of(value: SSAValue) -> SSAValue:
            if value not in values:
                full = tile.FullOp.create(operands=[value], result_types=[tiled(value.type)])
                self._lower(full)
                values[value] = full.res
            return values[value]

        for op in self.repeated:
            operands = [tile_of(operand) for operand in op.operands]
            if isinstance(op, tile.YieldOp):
                break
            made = type(op).create(
                operands=operands, result_types=[tiled(value.type) for value in op.results], properties=dict(op.properties), attributes=dict(op.attributes)
            )
            made.location = op.location
            self._lower(made)
            values.update(zip(op.results, made.results))
        end = self.block.last_op
        assert end is not None
        return [to_words(self.ctx, self.ctx.get(tile_of(value)), value.type, n) for value in end.operands]

    def _lower(self, op: Operation) -> None:
        handler = HANDLERS.get(type(op))
        if handler is None:
            raise self.ctx.error(op, f"{op.name} has no lowering to PTX in a combining function")
        outer, self.ctx.location = self.ctx.location, op.location
        handler(self.ctx, op)
        self.ctx.location = outer


def skipping(ctx: Context, combine: Combine, reverse: bool) -> Combine:
    """`combine` of parts whose last says whether there is anything: 1, or 0 in padding. All there is comes before the padding; in reverse, after it."""

    def combined(left: Parts, right: Parts) -> Parts:
        made = combine(left[:-1], right[:-1])
        asked, otherwise = (left, right) if reverse else (right, left)
        there = ctx.compare("ne", "s32", asked[-1], 0)
        chosen = [ctx.inst(f"selp.{x.type.cls}", [x, y, there], [x.type]) for x, y in zip(made, otherwise)]
        return [*chosen, otherwise[-1]]

    return combined
