"""Lowering of tile.sum_parts: a part's tiles go to a workspace in memory, and the block that comes last reads those of all.

    all threads    st.global of their registers, 16 bytes at a time, to the place of (point, part)
    all            meet
    thread 0       atom.acq_rel.gpu.inc of the point's counter: after the last of s parts it is 0 again, ready for the next launch
    all            bar.red: was the counter s - 1?
    if so          for each piece of the registers, and each part in order: ld.global, add

**Order** (PTX ISA 9.0 §8.8). The first barrier puts the stores of all threads before the atomic operation, which releases them, and acquires what the other
blocks' have released; the second puts the loads of all threads after it. So the last block sees the stores of all.

**The workspace.** Registers are written and read by the same threads of blocks of the same kernel, so a thread's place is its index: part (point · s + part)
holds, one after another, vectors of all threads, and each access of a warp covers 512 bytes in a row. Nothing in it needs to be initialised; the counters
must be zero before the first launch, and are after each.

**In a cluster** the parts need neither memory nor a counter: each but the first block writes its registers to its own shared memory, all meet at the cluster's barrier, and the
first block, whose own part they begin with, reads the others' from theirs. They stay until it has: the kernel ends with such a barrier, too. What this saves is a
fence and three trips to L2, one after another, each of them a microsecond or so while memory is busy.

**Pieces.** Few registers of all parts at a time, so that as many loads are under way as registers allow.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from ...dialects import tile
from ...dialects.launch_plan import Param
from ...dialects.ptx import reg
from ...passes.alloc_shared import PARTS_VECTOR as VECTOR
from .context import Context, lowers

PIECE = 16
"""Registers of a tile that are added up at a time."""
AT_A_TIME = 4
"""Parts whose loads are issued before the first is added."""
COUNTER_BYTES = 4


@lowers(tile.SumPartsOp)
def _sum_parts(ctx: Context, op: tile.SumPartsOp) -> None:
    tiles = [ctx.get(value) for value in op.tiles]
    parts = op.parts.value.data
    if tile.cluster_shape(ctx.kernel) is not None and not tile.walks_its_grid(ctx.kernel):
        _sum_in_cluster(ctx, op, tiles, parts)
        return
    if ctx.workspace_bytes:
        raise ctx.error(op, "a kernel meets its other parts once", "take one of the tile.sum_parts out")
    places, part_bytes = _places(tiles, ctx.threads)
    ctx.workspace_bytes = part_bytes
    point = ctx.get(op.point)
    first = _address(ctx, ctx.mul(ctx.mul(point, parts), part_bytes))
    own = ctx.add(first, ctx.mul(ctx.get(op.part), part_bytes))
    for registers, at in zip(tiles, places):
        for start, count, offset in at:
            ctx.inst(f"st.global.{_form(count)}", [own, ctx.pick(registers, range(start, start + count))], offsets=[offset])
    ctx.barrier()
    counter = ctx.add(_base(ctx, "counters"), ctx.mul(point, COUNTER_BYTES))
    limit = ctx.const(parts - 1)
    before = ctx.inst(
        "atom.acq_rel.gpu.global.inc.u32", [counter, limit], [reg("b32")], guard=ctx.one_thread(), init=[ctx.const(0)], offsets=[0]
    )
    came_last = ctx.compare("eq", "s32", before, limit)  # in the other threads it is 0, and there are two parts or more
    number = ctx.const(ctx.barrier_number)
    threads = [number, ctx.const(ctx.threads)] if ctx.barrier_number else [number]
    last = ctx.inst("bar.red.or.pred", [*threads, came_last], [reg("pred")])

    def add_up() -> list[SSAValue]:
        return [
            _total(ctx, first, at, parts, part_bytes, _addition(value))
            for at, value in zip(places, op.tiles)
        ]

    sums = ctx.if_(last, add_up, lambda: tiles, [value.type for value in tiles])
    for value, registers in zip(op.sums, sums):
        ctx.set(value, registers)
    ctx.set(op.last, last)


def _sum_in_cluster(ctx: Context, op: tile.SumPartsOp, tiles: Sequence[SSAValue], parts: int) -> None:
    """The same where the parts are the blocks of a cluster: part 0 adds."""
    places, part_bytes = _places(tiles, ctx.threads)
    offset = ctx.scratch(part_bytes)
    rank = ctx.special("%cluster_ctarank")
    first = ctx.compare("eq", "s32", rank, 0)
    own = ctx.add(ctx.shared_address(offset), ctx.mul(ctx.tid(), VECTOR * 4))
    ctx.barrier()  # the scratch may still be read for something else

    def write() -> None:
        for registers, at in zip(tiles, places):
            for start, count, further in at:
                ctx.inst(f"st.shared.{_form(count)}", [own, ctx.pick(registers, range(start, start + count))], offsets=[further])

    ctx.if_(ctx.compare("ne", "s32", rank, 0), write)
    ctx.inst("barrier.cluster.arrive.aligned")
    ctx.inst("barrier.cluster.wait.aligned")

    def add_up() -> list[SSAValue]:
        others = [ctx.inst("mapa.shared::cluster.u32", [own, ctx.const(part)], [reg("b32")]) for part in range(1, parts)]
        sums: list[SSAValue] = []
        for registers, at, value in zip(tiles, places, op.tiles):
            pieces = []
            for begin in range(0, len(at), PIECE // VECTOR):
                piece = at[begin : begin + PIECE // VECTOR]
                total = ctx.pick(registers, range(piece[0][0], piece[-1][0] + piece[-1][1]))
                for loaded in [_load(ctx, other, piece, 0, "shared::cluster") for other in others]:
                    total = ctx.inst(_addition(value), [total, loaded], [loaded.type])
                pieces.append(total)
            sums.append(ctx.concat(pieces))
        return sums

    sums = ctx.if_(first, add_up, lambda: tiles, [value.type for value in tiles])
    for value, registers in zip(op.sums, sums):
        ctx.set(value, registers)
    ctx.set(op.last, first)


Place = tuple[int, int, int]
"""(first register, how many, bytes from the thread's place) of a vector."""


def _places(tiles: Sequence[SSAValue], threads: int) -> tuple[list[list[Place]], int]:
    """Where each tile's registers go, as vectors; and the bytes of all."""
    found: list[list[Place]] = []
    offset = 0
    for registers in tiles:
        at: list[Place] = []
        start, left = 0, registers.type.count
        while left:
            count = min(VECTOR, 1 << (left.bit_length() - 1))
            at.append((start, count, offset))
            start, left = start + count, left - count
            offset += threads * VECTOR * 4  # narrower vectors leave gaps, so that a thread's place is the same for all
        found.append(at)
    return found, offset


def _base(ctx: Context, kind: str) -> SSAValue:
    """The workspace, or the counters, as a global address, b64."""

    def make() -> SSAValue:
        return ctx.inst("cvta.to.global.u64", [ctx.param(Param(kind, kind, ""), "b64")], [reg("b64")])

    return ctx.once(kind, make)


def _address(ctx: Context, offset: SSAValue) -> SSAValue:
    """The thread's place in the workspace, `offset` bytes on."""
    place = ctx.once("place in workspace", lambda: ctx.add(_base(ctx, "workspace"), ctx.widen(ctx.mul(ctx.tid(), VECTOR * 4))))
    return ctx.add(place, offset)


def _form(count: int) -> str:
    return "b32" if count == 1 else f"v{count}.b32"


def _addition(value: SSAValue) -> str:
    return "add.s32" if isinstance(tile.element_type(value.type), IntegerType) else "add.rn.f32"


def _total(ctx: Context, first: SSAValue, places: Sequence[Place], parts: int, part_bytes: int, addition: str) -> SSAValue:
    """The sum of a tile's registers over all parts, in their order."""
    pieces: list[SSAValue] = []
    for begin in range(0, len(places), PIECE // VECTOR):
        piece = places[begin : begin + PIECE // VECTOR]
        total: SSAValue | None = None
        for group in range(0, parts, AT_A_TIME):
            loaded = [_load(ctx, first, piece, number * part_bytes) for number in range(group, min(parts, group + AT_A_TIME))]
            for value in loaded:
                total = value if total is None else ctx.inst(addition, [total, value], [value.type])
        assert total is not None
        pieces.append(total)
    return ctx.concat(pieces)


def _load(ctx: Context, first: SSAValue, piece: Sequence[Place], further: int, space: str = "global") -> SSAValue:
    return ctx.concat(
        [ctx.inst(f"ld.{space}.{_form(count)}", [first], [reg("b32", count)], offsets=[offset + further]) for _, count, offset in piece]
    )
