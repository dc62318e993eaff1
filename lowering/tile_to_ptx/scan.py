"""Lowering of tile.scan and tile.fold: digit by digit of the coordinate along the axis, in the thread, among the lanes of a warp, among warps.

A layout takes the coordinate along the axis apart into digits, of a thread's values, of lanes, of warps, each of some stride. From the digit of the
smallest stride to that of the largest, blocks of elements grow: of each block every element's running result is known, and the block's total. A
digit of extent E joins E neighbouring blocks: the results of block e are combined with what the totals of blocks 0 … e - 1 give together.

    32 lanes of 4 values, 8 times: digits 4 (values), 32 (lanes), 8 (values): three steps

Between values that is done in order; between lanes totals are shuffled up, by 1, 2, 4 … lanes; between warps they meet in shared memory, and each
thread goes through them in order. So every thread, and every run, gets the same bits (numbers.md N5). In reverse the digits count down and shuffles
go down. A fold wants the totals only: between lanes they go to and fro by butterflies, the lower lane's on the left.

What is combined is a list of register vectors, one for each tile: of a kind of scan the element in the type that it is computed in; of a function each
element as it is, in a word of its own (`combining`). What lies past the tile's extent comes last along the axis, where no element of the tile depends on
it; but in reverse it comes first, and a fold takes in all. There a kind's identity is put in its place, and a function is passed over by a further
component, which says whether there is anything.

Where a layout's digits are not such that each stride is the product of the extents before it, the tile goes to a layout where they are, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.layout import TVLayout
from ...dialects.ptx import reg
from ...dialects.tile import element_type, shape_of
from ...passes.scan_layouts import WARP, Digit, axis_digits, combines_along, scan_layout, shuffle_opcode
from .combining import Function, from_words, skipping, to_words
from .context import Context, element_bits, lowers
from .elements import check_lowered, from_int, is_double, is_float, to_int
from .elementwise import from_work, to_work
from .reduce import Combine, Parts, combiner, identity_of, side_by_side
from .shapes import convert_tile, inside_tile

ALL_LANES = 0xFFFFFFFF


@lowers(tile.ScanOp)
def _scan(ctx: Context, op: tile.ScanOp) -> None:
    tiles = _Tiles(ctx, op)
    reverse, n = op.reverse is not None, tiles.layout.num_values
    if op.kind is None:
        parts, join = _by_function(ctx, op, tiles)
        identities = [ctx.splat(x, n) for x in _identity_words(ctx, op)]
        if op.exclusive is not None and len(parts) > len(identities):
            identities.append(ctx.splat(ctx.const(1), n))
        results = _Scan(ctx, tiles.layout, op.axis.value.data, reverse, join, parts, identities or parts).run().results
        assert results is not None
        for value, words in zip(op.res, results):
            tiles.hand_on(value, from_words(ctx, words, element_type(value.type), n))
        return
    kind, element = op.kind.data, element_type(op.sources[0].type)
    floats = is_float(element) or is_double(element)
    (values,) = tiles.registers
    wide = to_work(ctx, values, element, n) if floats else to_int(ctx, values, element, n)
    identity = ctx.const(identity_of(kind, floats, element_bits(element)), wide.type.cls)
    if tiles.inside is not None:
        wide = ctx.inst(f"selp.{wide.type.cls}", [wide, identity, tiles.inside], [wide.type])
    start = wide if op.exclusive is None else ctx.splat(identity, n)
    results = _Scan(ctx, tiles.layout, op.axis.value.data, reverse, combiner(ctx, kind, floats, wide.type.cls), [wide], [start]).run().results
    assert results is not None
    tiles.hand_on(op.res[0], from_work(ctx, results[0], element, n) if floats else from_int(ctx, results[0], element, n))


@lowers(tile.FoldOp)
def _fold(ctx: Context, op: tile.FoldOp) -> None:
    axis = op.axis.value.data
    tiles = _Tiles(ctx, op)
    parts, join = _by_function(ctx, op, tiles)
    done = _Scan(ctx, tiles.layout, axis, False, join, parts, None).run()
    for value, words in zip(op.res, done.totals):
        kind, shape = element_type(value.type), shape_of(value.type)
        if not isinstance(value.type, TensorType):
            ctx.set(value, from_words(ctx, words, kind, 1))
            continue
        made, wanted = tiles.layout.project(axis), ctx.layout(value)
        places = {at[:axis] + at[axis + 1 :]: i for at, i in done.blocks.items()}
        words = ctx.pick(words, [places[made.value_coords(v)] for v in range(made.num_values)])
        ctx.set(value, convert_tile(ctx, from_words(ctx, words, kind, made.num_values), kind, made, wanted, shape))


class _Tiles:
    """What a scan or fold goes through: its tiles in a layout that it can go through. `inside`: which values are no padding, where that matters."""

    def __init__(self, ctx: Context, op: tile.ScanOp | tile.FoldOp):
        self.ctx, self.op = ctx, op
        self.held, self.shape = ctx.layout(op.sources[0]), shape_of(op.sources[0].type)
        self.layout = scan_layout(self.held, self.shape, op.axis.value.data, ctx.threads)
        self.registers: list[SSAValue] = []
        for source in op.sources:
            check_lowered(ctx, element_type(source.type), op)
            self.registers.append(self._moved(ctx.get(source), source, self.held, self.layout))
        along = [op.axis.value.data] if combines_along(op) else []
        self.inside = inside_tile(ctx, self.layout, self.shape, along)

    def _moved(self, values: SSAValue, of: SSAValue, source: TVLayout, result: TVLayout) -> SSAValue:
        return values if source is result else convert_tile(self.ctx, values, element_type(of.type), source, result, self.shape)

    def hand_on(self, result: SSAValue, values: SSAValue) -> None:
        """Sets a result of the source's shape."""
        wanted = self.ctx.layout(result)
        if wanted != self.held:
            raise self.ctx.error(self.op, f"the result's layout {wanted} is not the source's, {self.held}", "run infer-layouts")
        self.ctx.set(result, self._moved(values, result, self.layout, self.held))


def _by_function(ctx: Context, op: tile.ScanOp | tile.FoldOp, tiles: _Tiles) -> tuple[Parts, Combine]:
    """What a function of the program combines, and how."""
    n = tiles.layout.num_values
    parts = [to_words(ctx, values, element_type(source.type), n) for values, source in zip(tiles.registers, op.sources)]
    join: Combine = Function(ctx, op)
    if tiles.inside is None:
        return parts, join
    parts.append(ctx.inst("selp.b32", [ctx.const(1), ctx.const(0), tiles.inside], [reg("b32", n)]))
    return parts, skipping(ctx, join, isinstance(op, tile.ScanOp))


def _identity_words(ctx: Context, op: tile.ScanOp) -> Parts:
    return [to_words(ctx, ctx.get(value), value.type, 1) for value in op.identities]


class _Scan:
    """One scan under way. `results`: the running result of each value in its block, None of a fold. `totals`: of each block that the thread has values
    of, which `blocks` names: its coordinates without what the digits done so far moved."""

    def __init__(
        self, ctx: Context, layout: TVLayout, axis: int, reverse: bool, combine: Callable[[Parts, Parts], Parts], values: Parts, results: Parts | None
    ):  # fmt: skip
        self.ctx, self.layout, self.axis, self.reverse, self.combine = ctx, layout, axis, reverse, combine
        self.coords = [layout.value_coords(value) for value in range(layout.num_values)]
        self.blocks = {at: i for i, at in enumerate(dict.fromkeys(self.coords))}
        self.totals = self._pick(values, [self.coords.index(at) for at in self.blocks])
        self.results = results
        self.done: list[Digit] = []

    def run(self) -> _Scan:
        digits = axis_digits(self.layout, self.axis)
        assert digits is not None, "scan_layout has made it so"
        for digit in digits:
            if digit.weight is None:
                self._values(digit)
            elif digit.weight < WARP:
                (self._lanes if self.results is not None else self._butterfly)(digit, digit.weight)
            else:
                self._warps(digit, digit.weight)
            self.done.append(digit)
        return self

    def _block(self, at: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The block of `size` elements along the axis, as far as this thread's values tell, that has a value."""
        return (*at[: self.axis], at[self.axis] // size * size, *at[self.axis + 1 :])

    def _pick(self, parts: Parts, which: Sequence[int]) -> Parts:
        return [self.ctx.pick(part, which) for part in parts]

    def _choose(self, condition: SSAValue, new: Parts, old: Parts) -> Parts:
        return [self.ctx.inst(f"selp.{y.type.cls}", [x, y, condition], [reg(y.type.cls, y.type.count)]) for x, y in zip(new, old)]

    def _prefixed(self, prefixes: Parts, which: Sequence[int], stride: int, blocks: dict[tuple[int, ...], int]) -> Parts:
        """The results of the values `which`, each combined with its block's prefix."""
        assert self.results is not None
        own = self._pick(prefixes, [blocks[self._block(self.coords[v], stride)] for v in which])
        return self.combine(own, self._pick(self.results, which))

    def _turns(self, extent: int) -> Sequence[int]:
        """The places of a digit as they come."""
        return range(extent - 1, -1, -1) if self.reverse else range(extent)

    def _turn(self, digit: Digit, weight: int) -> SSAValue:
        """Which of a digit's places, as they come, the thread's is."""
        mine = self.ctx.thread_digit(weight, digit.extent)
        return self.ctx.sub(self.ctx.const(digit.extent - 1), mine) if self.reverse else mine

    def _values(self, digit: Digit) -> None:
        ctx, size = self.ctx, digit.stride * digit.extent
        joined = {at: i for i, at in enumerate(dict.fromkeys(self._block(at, size) for at in self.blocks))}

        def total(e: int) -> Parts:
            shifted = [(*at[: self.axis], at[self.axis] + e * digit.stride, *at[self.axis + 1 :]) for at in joined]
            return self._pick(self.totals, [self.blocks[at] for at in shifted])

        made: dict[int, Parts] = {}
        first, *later = self._turns(digit.extent)
        running = total(first)
        for e in later:
            if self.results is not None:
                which = [v for v, at in enumerate(self.coords) if at[self.axis] // digit.stride % digit.extent == e]
                prefixed = self._prefixed(running, which, size, joined)
                made |= {v: self._pick(prefixed, [i]) for i, v in enumerate(which)}
            running = self.combine(running, total(e))
        if self.results is not None:
            each = [made.get(v) or self._pick(self.results, [v]) for v in range(len(self.coords))]
            self.results = [ctx.concat([parts[k] for parts in each]) for k in range(len(self.results))]
        self.blocks, self.totals = joined, running

    def _lanes(self, digit: Digit, weight: int) -> None:
        ctx = self.ctx
        turn = self._turn(digit, weight)
        way, clamp = ("down", ctx.const(WARP - 1)) if self.reverse else ("up", ctx.const(0))
        running, step = self.totals, 1
        while step < digit.extent:
            before = [self._shuffle(way, part, ctx.const(weight * step), clamp) for part in running]
            running = self._choose(ctx.compare("ge", "s32", turn, step), self.combine(before, running), running)
            step *= 2
        before = [self._shuffle(way, part, ctx.const(weight), clamp) for part in running]
        self._join(ctx.compare("ge", "s32", turn, 1), before)
        lanes = weight * (digit.extent - 1)
        last = ctx.and_(ctx.lane(), WARP - 1 - lanes) if self.reverse else ctx.or_(ctx.lane(), lanes)
        self.totals = [self._shuffle("idx", part, last, ctx.const(WARP - 1)) for part in running]

    def _butterfly(self, digit: Digit, weight: int) -> None:
        """The totals of all lanes, in each of them, in order."""
        ctx, step = self.ctx, weight
        while step < weight * digit.extent:
            other = [self._shuffle("bfly", part, ctx.const(step), ctx.const(WARP - 1)) for part in self.totals]
            later = ctx.compare("ne", "s32", ctx.and_(ctx.lane(), step), 0)
            self.totals = self.combine(self._choose(later, other, self.totals), self._choose(later, self.totals, other))
            step *= 2

    def _join(self, later: SSAValue, before: Parts) -> None:
        """Combines `before`, one for each block, with the results of its values, where the thread's block is not the first (`later`)."""
        if self.results is None:
            return
        size = 1
        for digit in self.done:
            size *= digit.extent
        which = range(len(self.coords))
        self.results = self._choose(later, self._prefixed(before, which, size, self.blocks), self.results)

    def _shuffle(self, how: str, value: SSAValue, lane: SSAValue, clamp: SSAValue) -> SSAValue:
        ctx, n = self.ctx, value.type.count
        opcode, rest = shuffle_opcode(how), [lane, clamp, ctx.const(ALL_LANES)]
        if value.type.cls == "b64":
            words = ctx.inst("mov.b64", [value], [reg("b32", 2 * n)])
            return ctx.inst("mov.b64", [ctx.inst(opcode, [words, *rest], [reg("b32", 2 * n)])], [value.type])
        return ctx.inst(opcode, [value, *rest], [value.type])

    def _warps(self, digit: Digit, weight: int) -> None:
        """All totals lie in shared memory, of each part as [digit][block of a thread][threads that differ otherwise]."""
        ctx, count = self.ctx, self.totals[0].type.count
        sizes = [8 if part.type.cls == "b64" else 4 for part in self.totals]
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
        each = digit.extent * count * slots
        # the widest first, so that each part lies where its elements may
        starts, end = {}, 0
        for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
            starts[k], end = end, end + each * sizes[k]
        base = ctx.scratch(end)
        ctx.barrier()  # the scratch may still be read for something else
        mine = ctx.thread_digit(weight, digit.extent)
        own = [ctx.add(ctx.shared_address(base + starts[k]), ctx.mul(slot, size)) for k, size in enumerate(sizes)]
        first = [starts[k] for k in range(len(sizes))]
        for part, size, address, start in zip(self.totals, sizes, own, first):
            place = ctx.add(address, ctx.mul(mine, count * slots * size))
            form, offsets = side_by_side(part.type.cls, size, count, start) if slots == 1 else (part.type.cls, [i * slots * size for i in range(count)])
            ctx.inst(f"st.shared.{form}", [place, part], offsets=offsets, guard=writer)
        ctx.barrier()
        turn = self._turn(digit, weight)
        together = slots == count == 1  # then all warps' totals lie side by side
        loaded: Parts = []
        if together:
            for part, size, address, start in zip(self.totals, sizes, own, first):
                form, offsets = side_by_side(part.type.cls, size, digit.extent, start)
                loaded.append(ctx.inst(f"ld.shared.{form}", [address], [reg(part.type.cls, digit.extent)], offsets=offsets))
        running: Parts | None = None
        before = self.totals  # of no use in the first block
        for number, e in enumerate(self._turns(digit.extent)):
            read = [ctx.pick(part, [e]) for part in loaded]
            for part, size, address, start in [] if together else zip(self.totals, sizes, own, first):
                form, at = side_by_side(part.type.cls, size, count, start) if slots == 1 else (part.type.cls, [i * slots * size for i in range(count)])
                read.append(ctx.inst(f"ld.shared.{form}", [address], [part.type], offsets=[e * count * slots * size + offset for offset in at]))
            if running is not None and self.results is not None:
                before = self._choose(ctx.compare("eq", "s32", turn, number), running, before)
            running = read if running is None else self.combine(running, read)
        self._join(ctx.compare("ge", "s32", turn, 1), before)
        assert running is not None
        self.totals = running
