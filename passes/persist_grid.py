"""persist-grid: as many blocks as there are multiprocessors, each of which walks its share of the logical grid.

A kernel that has roles holds a whole multiprocessor, so one block is launched for each, and the loop over the grid's points moves
into the kernel: nothing has to be set up again for the next one, and the role that loads goes on to it while the others still store. A kernel's
blocks are independent and unordered, so that any order and any number of blocks is right.

    grid(%bm = M ceildiv 128, %bn = N ceildiv 256) {      %first = tile.block_index   %count = tile.block_count
      …                                              →    scf.for %t = %first to %tiles step %count {
    }                                                       %bm, %bn = the %t-th point
                                                            …
                                                          } {independent}

**Order.** Blocks that run at the same time should share what they load, and what they share shows in the places of the loads. A product's operands
depend on one axis each, so that points along the other share them: points are taken in panels of 8 along the first axis, all points of 8
rows, row by row fastest, then those of the next 8. So 132 neighbouring points are about 8 rows by 16 columns, and both operands are read from L2 by
many blocks. The last panel has as many rows as are left:

    t      0  1 …  7 | 8  9 … 15 | …        panel  = t / (8·columns)         rest = t mod (8·columns)
    row    0  1 …  7 | 0  1 …  7 | …        rows   = min(8, all rows - 8·panel)
    column 0  0 …  0 | 1  1 …  1 | …        column = rest / rows             row  = 8·panel + rest mod rows

Where only points along one axis share something (attention: the keys of a head, along its rows) that axis is the fastest, without panels. A third
axis is the slowest. The arithmetic is on 32 bits: the grid has less than 2³¹ points (the launcher checks).

**Uneven work.** Where the loops of a point have the more trips the further along one axis it is (causal attention: the rows further down; grid_work.py), an order that
is fair matters most. What points share should still be in L2, so they are taken in groups of as many places of the other axis as L2 holds the loads of
(attention: the keys and values of some heads; all groups as large as one another). The last group goes from the heaviest to the lightest points, the one before from
the lightest to the heaviest, and so on in turns: so neighbours in the order never differ much, also where one group ends and the next begins. Such an order is
dealt out forth and back: who gets the heavier one in a round gets the lighter one in the next. The last round, if it is not whole, goes to those who had the
lightest in the last whole one.

    t       0 1 2 | 3 4 5 | 6 7 …  27 28 29 | 30 31 32 …       two groups of 3 heads, 10 rows: the first from the first row down, the second from
    head    5 4 3 | 5 4 3 | 5 4 …   5  4  3 |  2  1  0 …       the last row up
    row     0 0 0 | 1 1 1 | 2 2 …   9  9  9 |  9  9  9 …
    4 blocks take   t = 0 1 2 3,  7 6 5 4,  8 9 10 11, …

Of causal attention's loops the longest a block walks is so within 3 % of the mean (132 blocks, 1000 to 5000 points; where every group starts from the heaviest, 9 to 74 % above:
rounds and groups then have unequal ends that repeat in step).

**What is the same at every point.** Scalars that take long (a division, a function) and depend on no coordinate are computed once, before the loop.

**Clusters.** Where blocks form clusters of n along an axis (form_clusters.py), the points of a cluster are walked as one: the loop counts clusters, over a grid that is n
times shorter along the axis, and each block adds its place in the cluster. Where the axis is no multiple of n, the last points are outside of the grid:
there, too, everything is loaded and computed, since the others wait for it, and nothing is stored.

**When.** With roles, by `specialize_warps.decide`; the kernel's attribute `persistent` overrides that: `false` never, `true` always. So does the
option `when`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import IndexType, ModuleOp, TensorType, UnitAttr, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import is_side_effect_free

from ..dialects import async_copy, tile
from ..dialects.async_roles import RolesOp
from ..dialects.inside import inside, kernels_in
from .base import Pass, PassContext
from .divisibility import is_inside
from .dot_rules import INDEPENDENT
from .form_clusters import outward_effects
from .grid_axes import GridAxes
from .grid_work import RISING, heavier_axis, shared_extents
from .machine_costs import L2_SHARED_BYTES
from .new_ops import NewOps
from .specialize_warps import decide, stated

PANEL = 8
"""Rows of a panel: with 132 blocks the panel of a wave is about twice as many columns wide, which is nearly square for tiles of 128×256."""


SLOW = (arith.DivfOp, arith.DivSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.RemSIOp, arith.RemUIOp, math.ExpOp, math.Exp2Op, math.LogOp, math.Log2Op,
        math.SqrtOp, math.RsqrtOp, math.TanhOp, math.SinOp, math.CosOp)  # fmt: skip
"""Operations that take many instructions, or one of a unit that is slow to answer. (Not unsigned divisions, of which the order of points is made: what it needs is computed
anew rather than kept.)"""


@dataclass
class PersistGrid(Pass):
    """Let a fixed number of blocks walk the grid. `when`: for kernels that will have roles, for all, or for none; `panel`: rows of a panel;
    `fair`: whether uneven points are dealt out from the heaviest to the lightest."""

    name: ClassVar[str] = "persist-grid"
    when: Literal["auto", "always", "never"] = "auto"
    panel: int = PANEL
    fair: bool = True

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            wanted = stated(kernel, "persistent")
            if self.when == "never" or wanted is False or tile.walks_its_grid(kernel):
                continue
            if any(isinstance(op, RolesOp) for op in kernel.body.block.ops):
                continue  # who writes roles writes their loops
            if wanted or self.when == "always" or decide(kernel, target).puts:
                _persist(kernel, self.panel, self.fair)


def _persist(kernel: tile.KernelOp, panel: int, fair: bool) -> None:
    """Moves the kernel's body, but for its channels, into a loop over its share of the grid."""
    body = kernel.body.block
    end = body.last_op
    assert end is not None
    inside = [op for op in body.ops if op is not end and not isinstance(op, async_copy.ChannelOp)]
    outer, inner = _Builder(kernel), _Builder(kernel)
    extents = [outer.add(tile.GridExtentOp.make(axis)) for axis in range(len(kernel.grid.data))]
    shape = tile.cluster_shape(kernel) or (1,) * len(extents)
    walked = [extent if n == 1 else outer.divided(extent, n, up=True) for extent, n in zip(extents, shape)]
    total = walked[0]
    for extent in walked[1:]:
        total = outer.add(arith.MuliOp(total, extent))
    first, step = outer.add(tile.BlockIndexOp.make()), outer.add(tile.BlockCountOp.make())
    blocks, place = prod(shape), None
    if blocks > 1:
        place = outer.add(arith.RemSIOp(first, outer.constant(blocks, IndexType())))
        first, step = (outer.divided(value, blocks) for value in (first, step))
    widths = [outer.to_i32(extent) for extent in walked]
    block = Block(arg_types=[IndexType()])
    block.args[0].name_hint = "point"
    if fair and (uneven := heavier_axis(kernel)) is not None:
        dealt = _dealt(inner, block.args[0], first, step, total)
        coordinates = _from_the_heaviest(kernel, outer, inner, dealt, total, widths, *uneven)
    elif len(extents) == 1:
        coordinates = [block.args[0]]
    else:
        rows = _rows_of_a_panel(kernel, panel)
        rows = None if rows is None else max(1, rows // shape[0])
        coordinates = _coordinates(outer, inner, inner.to_i32(block.args[0]), widths, rows)
    if place is not None:
        axis = next(axis for axis, n in enumerate(shape) if n > 1)
        start = inner.add(arith.MuliOp(coordinates[axis], inner.constant(blocks, IndexType())))
        coordinates[axis] = inner.add(arith.AddiOp(start, place))
        _store_inside(kernel, inner.add(arith.CmpiOp(coordinates[axis], extents[axis], "slt")))
        inside = [op for op in body.ops if op is not end and not isinstance(op, async_copy.ChannelOp)]
    for argument, coordinate in zip(kernel.grid_args, coordinates):
        coordinate.name_hint = argument.name_hint
        argument.replace_all_uses_with(coordinate)
    for op in inside:
        op.detach()
    yielded = scf.YieldOp()
    yielded.location = kernel.location
    block.add_ops([*inner.ops, *inside, yielded])
    common = _common_to_all(block)
    for op in common:
        op.detach()
    loop = scf.ForOp.create(operands=[first, total, step], regions=[Region(block)], attributes={INDEPENDENT: UnitAttr()})
    loop.location = kernel.location
    body.insert_ops_before([*outer.ops, *common, loop], end)


def _common_to_all(block: Block) -> list[Operation]:
    """Scalars that are the same at every point and take long to compute, with all that they need, in order."""
    fixed: set[Operation] = set()
    for op in block.ops:
        scalar = not op.regions and is_side_effect_free(op) and not any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))
        if scalar and all(value.owner in fixed if is_inside(value, block) else True for value in op.operands):
            fixed.add(op)
    needed = {op for op in fixed if isinstance(op, SLOW)}
    work = list(needed)
    while work:
        for value in work.pop().operands:
            maker = value.owner
            if isinstance(maker, Operation) and maker in fixed and maker not in needed:
                needed.add(maker)
                work.append(maker)
    return [op for op in block.ops if op in needed]


def _store_inside(kernel: tile.KernelOp, condition: SSAValue) -> None:
    """Lets the kernel's stores, and what else can be seen from outside, happen under the condition only."""
    for op in outward_effects(kernel):
        block = op.parent
        assert block is not None
        branch = scf.IfOp(condition, [], Region(Block([scf.YieldOp()])), Region())
        branch.location = op.location
        block.insert_op_before(branch, op)
        op.detach()
        inside = branch.true_region.block
        assert inside.last_op is not None
        inside.insert_op_before(op, inside.last_op)


def _rows_of_a_panel(kernel: tile.KernelOp, wanted: int) -> int | None:
    """How many rows are walked together: as `wanted` where points along either of the first two axes share loads, one where only those
    along the second do, all (None) otherwise."""
    axes_of = GridAxes(kernel)
    loads = inside(kernel, tile.LoadOp, async_copy.PutOp)
    used = [axes_of.of(op.indices) for op in loads]
    shared_by_rows, shared_by_columns = any(0 not in axes for axes in used), any(1 not in axes for axes in used)
    if not shared_by_columns:
        return None
    return wanted if shared_by_rows else 1


def _coordinates(outer: _Builder, inner: _Builder, point: SSAValue, widths: list[SSAValue], panel: int | SSAValue | None) -> list[SSAValue]:
    """The coordinates of a point of a grid of two or three axes, in panels of so many rows (None: all); `outer` collects what all points have in
    common. All i32 but the result."""
    rows, columns = widths[:2]
    after: list[SSAValue] = []
    if len(widths) == 3:
        plane = outer.add(arith.MuliOp(rows, columns))
        third = inner.add(arith.DivUIOp(point, plane))
        point = inner.remainder(point, third, plane)
        after = [third]
    if panel is None:
        column = inner.add(arith.DivUIOp(point, rows))
        row = inner.remainder(point, column, rows)
        return [inner.add(arith.IndexCastOp(value, IndexType())) for value in (row, column, *after)]
    height = outer.constant(panel) if isinstance(panel, int) else panel
    size = outer.add(arith.MuliOp(height, columns))
    number = inner.add(arith.DivUIOp(point, size))
    rest = inner.remainder(point, number, size)
    top = inner.add(arith.MuliOp(number, height))
    left = inner.at_least(1, inner.add(arith.MinSIOp(inner.add(arith.SubiOp(rows, top)), height)))
    column = _divided_by_what_is_left(inner, rest, left, height)
    row = inner.add(arith.AddiOp(top, inner.remainder(rest, column, left)))
    return [inner.add(arith.IndexCastOp(value, IndexType())) for value in (row, column, *after)]


def _divided_by_what_is_left(inner: _Builder, value: SSAValue, left: SSAValue, height: SSAValue) -> SSAValue:
    """A quotient by `left`: `height`, but in the last group what remains. It is quick to divide by what is the same at all points."""
    quotients = [_Builder(inner.at), _Builder(inner.at)]
    regions = []
    for build, divisor in zip(quotients, (height, left)):
        end = scf.YieldOp(build.add(arith.DivUIOp(value, divisor)))
        end.location = inner.at.location
        regions.append(Region(Block([*build.ops, end])))
    return inner.add(scf.IfOp(inner.add(arith.CmpiOp(left, height, "eq")), [i32], *regions))


def _dealt(build: _Builder, point: SSAValue, first: SSAValue, count: SSAValue, total: SSAValue) -> SSAValue:
    """The number, i32, of a block's point where every other round is dealt out backwards: the last whole one is, and one after it that is not whole is not.
    All of it for each point anew: a few scalars more to compute, and fewer to keep."""
    mine, blocks, points = (build.to_i32(value) for value in (first, count, total))
    last = build.add(arith.SubiOp(blocks, build.constant(1)))
    turn = build.add(arith.SubiOp(last, build.add(arith.AddiOp(mine, mine))))  # from a block's place in a round to the mirrored one
    at = build.to_i32(point)
    left = build.add(arith.SubiOp(build.add(arith.DivUIOp(points, blocks)), build.add(arith.DivUIOp(at, blocks))))
    backwards = build.odd(left)  # 0 in a round that is not whole
    return build.at_least(0, build.add(arith.SelectOp(backwards, build.add(arith.AddiOp(at, turn)), at)))


def _from_the_heaviest(
    kernel: tile.KernelOp, outer: _Builder, build: _Builder, point: SSAValue, total: SSAValue, widths: list[SSAValue], axis: int, direction: int
) -> list[SSAValue]:
    """The coordinates of a point of a grid of one or two axes where the work differs along `axis`: together those that lie at so many places of the other
    axis as L2 holds the loads of; of the last group heavy ones first, and in turns the other way round in those before."""
    along: SSAValue = point
    others: list[SSAValue] = []
    upwards: SSAValue | None = None
    if len(widths) == 2:
        width = widths[1 - axis]
        fitting = outer.at_least(1, _places_in_l2(kernel, outer, axis, width))
        groups = outer.at_least(1, outer.rounded_up(width, fitting))
        height = outer.at_least(1, outer.rounded_up(width, groups))
        size = build.at_least(1, build.add(arith.MuliOp(height, widths[axis])))
        # Counted from the end, the last group has number 0 and is whole.
        point = build.at_least(0, build.add(arith.SubiOp(build.add(arith.SubiOp(build.to_i32(total), build.constant(1))), point)))
        number = build.add(arith.DivUIOp(point, size))
        rest = build.remainder(point, number, size)
        top = build.add(arith.MuliOp(number, height))
        left = build.at_least(1, build.add(arith.MinSIOp(build.add(arith.SubiOp(width, top)), height)))
        along = _divided_by_what_is_left(build, rest, left, height)
        others = [build.add(arith.AddiOp(top, build.remainder(rest, along, left)))]
        upwards = build.odd(number)
    last = build.add(arith.SubiOp(widths[axis], build.constant(1)))
    mirrored = build.at_least(0, build.add(arith.SubiOp(last, along)))
    heavy, light = (mirrored, along) if direction == RISING else (along, mirrored)
    # `heavy` starts from the heaviest as `along` grows; counted from the end, that is upwards.
    chosen = heavy if upwards is None else build.add(arith.SelectOp(upwards, heavy, light))
    result = [build.add(arith.IndexCastOp(value, IndexType())) for value in (chosen, *others)]
    return result if axis == 0 else result[::-1]


def _places_in_l2(kernel: tile.KernelOp, build: _Builder, axis: int, width: SSAValue) -> SSAValue:
    """How many places of the other axis, i32, to take together: L2 holds what their points share. At most `width`."""
    axes_of = GridAxes(kernel)
    loads = inside(kernel, tile.LoadOp, async_copy.PutOp)
    shared = [op for op in loads if axis not in axes_of.of(op.indices)]
    total: SSAValue | None = None
    for extents, nbytes in shared_extents(kernel, shared):
        size = build.constant(nbytes, IndexType())
        for extent in extents:
            value = build.constant(extent, IndexType()) if isinstance(extent, int) else extent
            size = build.add(arith.MuliOp(size, value))
        total = size if total is None else build.add(arith.AddiOp(total, size))
    if total is None:
        return width
    least = build.add(arith.MaxSIOp(total, build.constant(1, IndexType())))
    fitting = build.add(arith.DivUIOp(build.constant(L2_SHARED_BYTES, IndexType()), least))
    return build.add(arith.MinSIOp(width, build.to_i32(fitting)))


class _Builder(NewOps):
    """What the walk of a grid computes. Numbers are i32 where they are not indices."""

    def constant(self, value: int, kind: Attribute = i32) -> SSAValue:
        return super().constant(value, kind)

    def divided(self, value: SSAValue, by: int, up: bool = False) -> SSAValue:
        """An index divided by a constant, rounded down or up."""
        if up:
            value = self.add(arith.AddiOp(value, self.constant(by - 1, IndexType())))
        return self.add(arith.FloorDivSIOp(value, self.constant(by, IndexType())))

    def rounded_up(self, value: SSAValue, by: SSAValue) -> SSAValue:
        """value / by, both i32 and positive, rounded up."""
        return self.add(arith.DivUIOp(self.add(arith.AddiOp(value, self.add(arith.SubiOp(by, self.constant(1))))), by))

    def odd(self, value: SSAValue) -> SSAValue:
        """Whether an i32 is odd."""
        return self.add(arith.CmpiOp(self.add(arith.AndIOp(value, self.constant(1))), self.constant(0), "ne"))

    def to_i32(self, value: SSAValue) -> SSAValue:
        return self.add(arith.IndexCastOp(value, i32))

    def remainder(self, value: SSAValue, quotient: SSAValue, divisor: SSAValue) -> SSAValue:
        """value - quotient·divisor."""
        return self.at_least(0, self.add(arith.SubiOp(value, self.add(arith.MuliOp(quotient, divisor)))))

    def at_least(self, least: int, value: SSAValue) -> SSAValue:
        """`value`, which is that anyhow: stated as a maximum, since the analyses of index values cannot know."""
        return self.add(arith.MaxSIOp(value, self.constant(least)))
