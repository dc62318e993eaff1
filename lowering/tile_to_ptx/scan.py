"""Lowering of tile.scan: digit by digit of the coordinate along the axis, in the thread, among the lanes of a warp, among warps.

A layout takes the coordinate along the axis apart into digits, of a thread's values, of lanes, of warps, each of some stride. From the digit of the
smallest stride to that of the largest, blocks of elements grow: of each block every element's running result is known, and the block's total. A
digit of extent E joins E neighbouring blocks: the results of block e are combined with what the totals of blocks 0 … e - 1 give together.

    32 lanes of 4 values, 8 times: digits 4 (values), 32 (lanes), 8 (values): three steps

Between values that is done in order; between lanes totals are shuffled up, by 1, 2, 4 … lanes; between warps they meet in shared memory, and each
thread goes through them in order. So every thread, and every run, gets the same bits (numbers.md N5). What lies past the tile's extent comes last along
the axis, and no element of the tile depends on it.

Where a layout's digits are not such that each stride is the product of the extents before it, the tile goes to a layout where they are, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.layout import TVLayout
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from ...passes.scan_layouts import SHIFT, WARP, Digit, axis_digits, scan_layout
from .context import Context, element_bits, lowers
from .elements import check_lowered, from_int, is_double, is_float, to_int
from .elementwise import from_work, to_work
from .reduce import combiner, identity_of
from .shapes import convert_tile

ALL_LANES = 0xFFFFFFFF


@lowers(tile.ScanOp)
def _scan(ctx: Context, op: tile.ScanOp) -> None:
    kind, axis = op.kind.data, op.axis.value.data
    element = element_type(op.source.type)
    check_lowered(ctx, element, op)
    held = ctx.layout(op.source)
    shape = shape_of(op.source.type)
    layout = scan_layout(held, shape, axis, ctx.threads)
    values = ctx.get(op.source)
    if layout is not held:
        values = convert_tile(ctx, values, element, held, layout, shape)
    n = layout.num_values
    floats = is_float(element) or is_double(element)
    wide = to_work(ctx, values, element, n) if floats else to_int(ctx, values, element, n)
    join = combiner(ctx, kind, floats, wide.type.cls)
    exclusive = None
    if op.exclusive is not None:
        exclusive = ctx.splat(ctx.const(identity_of(kind, floats, element_bits(element)), wide.type.cls), n)
    scan = _Scan(ctx, layout, axis, lambda a, b: join([a], [b])[0], wide, exclusive)
    result = scan.run()
    result = from_work(ctx, result, element, n) if floats else from_int(ctx, result, element, n)
    if layout is not held:
        result = convert_tile(ctx, result, element, layout, held, shape)
    wanted = ctx.layout(op.res)
    if wanted != held:
        raise ctx.error(op, f"the result's layout {wanted} is not the source's, {held}", "run infer-layouts")
    ctx.set(op.res, result)


class _Scan:
    """One scan under way. `results`: the running result of each value in its block. `totals`: of each block that the thread has values of, which
    `blocks` names: its coordinates without what the digits done so far moved."""

    def __init__(
        self, ctx: Context, layout: TVLayout, axis: int, combine: Callable[[SSAValue, SSAValue], SSAValue], values: SSAValue, exclusive: SSAValue | None
    ):
        self.ctx, self.layout, self.axis, self.combine = ctx, layout, axis, combine
        self.coords = [layout.value_coords(value) for value in range(layout.num_values)]
        self.blocks = {at: i for i, at in enumerate(dict.fromkeys(self.coords))}
        self.totals = ctx.pick(values, [self.coords.index(at) for at in self.blocks])
        self.results = values if exclusive is None else exclusive
        self.cls = values.type.cls
        self.done: list[Digit] = []

    def run(self) -> SSAValue:
        digits = axis_digits(self.layout, self.axis)
        assert digits is not None, "scan_layout has made it so"
        for digit in digits:
            if digit.weight is None:
                self._values(digit)
            elif digit.weight < WARP:
                self._lanes(digit, digit.weight)
            else:
                self._warps(digit, digit.weight)
            self.done.append(digit)
        return self.results

    def _block(self, at: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The block of `size` elements along the axis, as far as this thread's values tell, that has a value."""
        return (*at[: self.axis], at[self.axis] // size * size, *at[self.axis + 1 :])

    def _many(self, count: int) -> list:
        return [reg(self.cls, count)]

    def _choose(self, condition: SSAValue, new: SSAValue, old: SSAValue) -> SSAValue:
        return self.ctx.inst(f"selp.{self.cls}", [new, old, condition], self._many(old.type.count))

    def _prefixed(self, prefixes: SSAValue, which: Sequence[int], stride: int, blocks: dict[tuple[int, ...], int]) -> SSAValue:
        """The results of the values `which`, each combined with its block's prefix."""
        own = self.ctx.pick(prefixes, [blocks[self._block(self.coords[v], stride)] for v in which])
        return self.combine(own, self.ctx.pick(self.results, which))

    def _values(self, digit: Digit) -> None:
        ctx, size = self.ctx, digit.stride * digit.extent
        joined = {at: i for i, at in enumerate(dict.fromkeys(self._block(at, size) for at in self.blocks))}

        def total(e: int) -> SSAValue:
            shifted = [(*at[: self.axis], at[self.axis] + e * digit.stride, *at[self.axis + 1 :]) for at in joined]
            return ctx.pick(self.totals, [self.blocks[at] for at in shifted])

        parts: dict[int, SSAValue] = {}
        running = total(0)
        for e in range(1, digit.extent):
            which = [v for v, at in enumerate(self.coords) if at[self.axis] // digit.stride % digit.extent == e]
            own = ctx.pick(running, [joined[self._block(self.coords[v], size)] for v in which])
            made = self.combine(own, ctx.pick(self.results, which))
            parts |= {v: ctx.pick(made, [i]) for i, v in enumerate(which)}
            running = self.combine(running, total(e))
        self.results = ctx.concat([parts.get(v) or ctx.pick(self.results, [v]) for v in range(len(self.coords))])
        self.blocks, self.totals = joined, running

    def _lanes(self, digit: Digit, weight: int) -> None:
        ctx = self.ctx
        mine = ctx.thread_digit(weight, digit.extent)
        running, step = self.totals, 1
        while step < digit.extent:
            before = self._shuffle(SHIFT, running, ctx.const(weight * step), ctx.const(0))
            running = self._choose(ctx.compare("ge", "s32", mine, step), self.combine(before, running), running)
            step *= 2
        before = self._shuffle(SHIFT, running, ctx.const(weight), ctx.const(0))
        self._join(ctx.compare("ge", "s32", mine, 1), before)
        last = ctx.or_(ctx.lane(), weight * (digit.extent - 1))
        self.totals = self._shuffle("shfl.sync.idx.b32", running, last, ctx.const(WARP - 1))

    def _join(self, later: SSAValue, before: SSAValue) -> None:
        """Combines `before`, one for each block, with the results of its values, where the thread's block is not the first (`later`)."""
        size = 1
        for digit in self.done:
            size *= digit.extent
        which = range(len(self.coords))
        self.results = self._choose(later, self._prefixed(before, which, size, self.blocks), self.results)

    def _shuffle(self, opcode: str, value: SSAValue, lane: SSAValue, clamp: SSAValue) -> SSAValue:
        ctx, n = self.ctx, value.type.count
        rest = [lane, clamp, ctx.const(ALL_LANES)]
        if self.cls == "b64":
            words = ctx.inst("mov.b64", [value], [reg("b32", 2 * n)])
            return ctx.inst("mov.b64", [ctx.inst(opcode, [words, *rest], [reg("b32", 2 * n)])], [value.type])
        return ctx.inst(opcode, [value, *rest], [value.type])

    def _warps(self, digit: Digit, weight: int) -> None:
        """All totals lie in shared memory as [digit][block of a thread][threads that differ otherwise]."""
        ctx, count = self.ctx, self.totals.type.count
        size = 8 if self.cls == "b64" else 4
        slot, slots, writer = ctx.const(0), 1, None
        at = 1
        for mode in self.layout.thread:
            pieces = [(at, mode.extent)]
            if at < WARP < at * mode.extent:
                pieces = [(at, WARP // at), (WARP, at * mode.extent // WARP)]
            for piece, extent in pieces:
                moved = any(mode.stride)
                if extent == 1 or piece == digit.weight:
                    continue
                if not moved or any(piece == other.weight for other in self.done):
                    writer = ctx.both(writer, ctx.compare("eq", "s32", ctx.thread_digit(piece, extent), 0))
                else:
                    slot = ctx.add(slot, ctx.mul(ctx.thread_digit(piece, extent), slots))
                    slots *= extent
            at *= mode.extent
        if at < ctx.threads:
            writer = ctx.both(writer, ctx.compare("lt", "s32", ctx.tid(), at))
        base = ctx.shared_address(ctx.scratch(digit.extent * count * slots * size))
        ctx.barrier()  # the scratch may still be read for something else
        mine = ctx.thread_digit(weight, digit.extent)
        own = ctx.add(base, ctx.mul(slot, size))
        place = ctx.add(own, ctx.mul(mine, count * slots * size))
        ctx.inst(f"st.shared.{self.cls}", [place, self.totals], offsets=[i * slots * size for i in range(count)], guard=writer)
        ctx.barrier()
        running: SSAValue | None = None
        before = self.totals  # of no use in the first block
        for e in range(digit.extent):
            offsets = [(e * count + i) * slots * size for i in range(count)]
            part = ctx.inst(f"ld.shared.{self.cls}", [own], [self.totals.type], offsets=offsets)
            if running is not None:
                before = self._choose(ctx.compare("eq", "s32", mine, e), running, before)
            running = part if running is None else self.combine(running, part)
        self._join(ctx.compare("ge", "s32", mine, 1), before)
        assert running is not None
        self.totals = running
