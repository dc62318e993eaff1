"""split-reduction: several blocks share one point of the grid, where a loop only adds up; the last of them to come adds their sums and goes on.

A small grid leaves multiprocessors idle while each block has a long loop. If all that such a loop carries are sums, its trips can be dealt out: each of
`parts` blocks does a range of them, and what comes after the loop is done once, by whichever block arrives last.

    grid(%bm, %bn) {                                     grid(%bm, %bn, %part = 4) {
      %acc = scf.for %k = %lo to %hi step %s               %first, %end = the range of part %part
               iter_args(%c = %zero) {            →        %acc = scf.for %k = %first to %end step %s iter_args(%c = %zero) {
        %d = tile.dot %a, %b, %c                             …
        scf.yield %d                                       }
      }                                                    %all, %last = tile.sum_parts %acc at %point part %part of 4
      tile.store %acc, %C                                  scf.if %last { tile.store %all, %C }
    }                                                    }

`tile.sum_parts` adds the parts in their order, whoever comes last, so that results are the same in each run; they differ from those of another number of
parts as sums in another order do (docs/numbers.md). Nobody waits for another block, so nothing depends on which blocks run at the same time.

**Which loops.** One that stands directly in the kernel and carries tiles only, each a sum: it reaches the loop's end through accumulators of dots and operands of
additions alone, and nothing else reads it. Inside, nothing may be stored; before it neither, since every part does that again. Of several the first.

**Messages.** What stands before the loop is done by each part; but each `tile.print` and `tile.assert` there by part 0 alone, so that a point of the grid says it
once. (Those inside the loop belong to a trip, and those after it to the last part: both are done once as it is.)

**An initial value** other than zero is added to the sum of all: parts begin with zero.

**Ranges.** Of T trips, part p of s does those from ⌊p·T/s⌋ to ⌊(p+1)·T/s⌋: none has two more than another, and a part of none adds zero.

**Where the part stands in the grid.** It is the slowest coordinate, so that blocks that run at the same time still share loads; in a grid of three axes
it is dealt out along the third: of its coordinate z, the point's is z mod n, and the part z / n.

**When.** Only where asked: by the kernel's attribute `split`, which `pins={"split": 4}` sets and the runtime's choice by size (runtime/variants.py), or by the
option `parts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign
from typing import ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IndexType, IntegerAttr, IntegerType, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ..dialects import async_copy, tile
from ..dialects.array_effects import may_write
from ..dialects.async_roles import RolesOp
from ..dialects.diagnostics import TeselaError
from ..dialects.dim_expr import DimExpr
from ..dialects.inside import inside, kernels_in
from ..dialects.tile_parts import MOST_PARTS, SumPartsOp
from ..dialects.tile_types import DimExprAttr
from .base import Pass, PassContext


@dataclass
class SplitReduction(Pass):
    """Let several blocks share the trips of a loop that only adds up. `parts`: how many, for kernels that do not state it; 0: none."""

    name: ClassVar[str] = "split-reduction"
    parts: int = 0

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in kernels_in(module):
            if inside(kernel, SumPartsOp):
                continue
            stated = kernel.attributes.get("split")
            parts = self.parts or 1
            if stated is not None:
                if not isinstance(stated, IntegerAttr) or not 1 <= stated.value.data <= MOST_PARTS:
                    raise TeselaError.at(kernel, f"split must be a number from 1 to {MOST_PARTS}, found {stated}", "write {split = 4 : i64}, in Python pins={'split': 4}")
                parts = stated.value.data
            if parts == 1:
                continue
            found = find_loop(kernel)
            if found.loop is None:
                context.emitter.note(kernel, f"the kernel is not split: {found.why_not}")
                continue
            _split(kernel, found.loop, parts)


@dataclass(frozen=True)
class Found:
    """The loop that can be split; or None, and why not."""

    loop: scf.ForOp | None
    why_not: str = ""


def find_loop(kernel: tile.KernelOp) -> Found:
    """The first loop of a tile-level kernel that can be split."""
    if tile.walks_its_grid(kernel):
        return Found(None, "it walks its grid itself")
    why_not = ""
    for op in kernel.body.block.ops:
        if isinstance(op, scf.ForOp) and op.results:
            reason = _why_not(op)
            if reason is None:
                return Found(op)
            why_not = reason
        if _has_effects(op):
            return Found(None, why_not or "before such a loop it stores, or plans its own copies")
    return Found(None, why_not or "it has no loop that carries tiles")


PLANNED = (async_copy.PutOp, async_copy.WriteOp, async_copy.ChannelOp, RolesOp)


def _has_effects(op: Operation) -> bool:
    """Whether an operation does what may be done only once. (A release or a get is where a put is.)"""
    return any(isinstance(inner, PLANNED) or may_write(inner) for inner in op.walk())


def _why_not(loop: scf.ForOp) -> str | None:
    """Why a loop cannot be split; None if it can."""
    if _has_effects(loop):
        return "its loop stores, or plans its own copies"
    block = loop.body.block
    end = block.last_op
    assert end is not None
    for argument, result in zip(block.args[1:], end.operands):
        kind = argument.type
        if not isinstance(kind, TensorType) or not _adds(kind):
            return f"its loop carries {kind}, which is no tile of numbers to add up"
        if not _is_sum(argument, result, block):
            return "what its loop carries is no sum alone"
    return None


def _adds(kind: TensorType) -> bool:
    """Whether tiles of this type are summed in parts: where elements have 32 bits. Sums of fewer bits would be rounded once more for each part."""
    return getattr(kind.element_type, "bitwidth", 0) == 32


def _is_sum(argument: SSAValue, result: SSAValue, block: Block) -> bool:
    """Whether `result` is `argument` plus what does not depend on it."""
    value = argument
    while value is not result:
        uses = list(value.uses)
        if len(uses) != 1 or uses[0].operation.parent is not block:
            return False
        op, index = uses[0].operation, uses[0].index
        if not (isinstance(op, arith.AddfOp | arith.AddiOp) or (isinstance(op, tile.DotOp) and index == 2)):
            return False
        value = op.results[0]
    return all(use.operation is block.last_op for use in value.uses) and len(list(value.uses)) == 1


# ---- the change -----------------------------------------------------------------------------------------------------


def _split(kernel: tile.KernelOp, loop: scf.ForOp, parts: int) -> None:
    body = kernel.body.block
    add = _Inserter(loop)
    part, own = _part_of_grid(kernel, parts)
    point = own[-1]
    for axis in reversed(range(len(own) - 1)):
        point = add(arith.AddiOp(add(arith.MuliOp(point, add(tile.GridExtentOp.make(axis)))), own[axis]))
    _say_once(loop, part)
    first, end = _range(loop, add, part, parts)
    inits = list(loop.iter_args)
    begins = [init if _is_zero(init) else _zeros(init.type, add) for init in inits]
    loop.operands = [first, end, loop.step, *begins]
    results = list(loop.results)
    following: list[Operation] = []
    op = loop.next_op
    while op is not None and not isinstance(op, tile.ReturnOp):
        following.append(op)
        op = op.next_op
    total = SumPartsOp.make(results, point, part, parts)
    total.location = loop.location
    inside: list[Operation] = []
    for result, init, begin, whole in zip(results, inits, begins, total.sums):
        whole.name_hint = result.name_hint
        value: SSAValue = whole
        if begin is not init:
            kind = init.type
            assert isinstance(kind, TensorType)
            sum_op = (arith.AddiOp if isinstance(kind.element_type, IntegerType) else arith.AddfOp)(init, whole)
            sum_op.location = loop.location
            inside.append(sum_op)
            value = sum_op.results[0]
        for use in list(result.uses):
            if use.operation is not total:
                use.operation.operands[use.index] = value
    for op in following:
        op.detach()
    yielded = scf.YieldOp()
    yielded.location = loop.location
    then = Block()
    then.add_ops([*inside, *following, yielded])
    last = scf.IfOp(total.last, [], Region(then))
    last.location = loop.location
    body.insert_ops_after([total, last], loop)


def _say_once(loop: scf.ForOp, part: SSAValue) -> None:
    """Leaves the messages before the loop to part 0."""
    block = loop.parent
    assert block is not None
    before = [op for op in block.ops if op is not loop and op.is_before_in_block(loop)]
    for op in [inner for outer in before for inner in inside(outer, tile.PrintOp, tile.AssertOp)]:
        add = _Inserter(op)
        is_first = add(arith.CmpiOp(part, add.constant(0), "eq"))
        yielded = scf.YieldOp()
        then = Block()
        only = scf.IfOp(is_first, [], Region(then))
        yielded.location = only.location = op.location
        home = op.parent
        assert home is not None
        home.insert_op_before(only, op)
        op.detach()
        then.add_ops([op, yielded])


class _Inserter:
    """Puts operations before another one, at its source location; gives their result."""

    def __init__(self, before: Operation) -> None:
        self.before = before

    def __call__(self, op: Operation) -> SSAValue:
        op.location = self.before.location
        block = self.before.parent
        assert block is not None
        block.insert_op_before(op, self.before)
        return op.results[0]

    def constant(self, value: int) -> SSAValue:
        return self(arith.ConstantOp.create(result_types=[IndexType()], properties={"value": IntegerAttr(value, IndexType())}))


def _part_of_grid(kernel: tile.KernelOp, parts: int) -> tuple[SSAValue, list[SSAValue]]:
    """Adds the parts to the grid; gives which of them a block is, and the coordinates of its point."""
    body = kernel.body.block
    grid = [entry.data for entry in kernel.grid.data]
    count = DimExpr("int", parts)
    if len(grid) < 3:
        kernel.properties["grid"] = ArrayAttr([DimExprAttr(expr) for expr in (*grid, count)])
        part = body.insert_arg(IndexType(), len(body.args))
        part.name_hint = "part"
        return part, list(kernel.grid_args[:-1])
    kernel.properties["grid"] = ArrayAttr([DimExprAttr(expr) for expr in (*grid[:2], DimExpr("*", 0, (grid[2], count)))])
    whole = kernel.grid_args[2]
    assert body.first_op is not None
    top = _Inserter(body.first_op)  # the coordinate may be read anywhere
    readers = list(whole.uses)
    extent = top(arith.MaxSIOp(top(arith.DivSIOp(top(tile.GridExtentOp.make(2)), top.constant(parts))), top.constant(1)))
    part = top(arith.DivSIOp(whole, extent))
    # That neither is negative is stated as a maximum, since the analyses of index values cannot know.
    own = top(arith.MaxSIOp(top(arith.SubiOp(whole, top(arith.MuliOp(part, extent)))), top.constant(0)))
    own.name_hint, part.name_hint = whole.name_hint, "part"
    for use in readers:
        use.operation.operands[use.index] = own
    return part, [*kernel.grid_args[:2], own]


def _range(loop: scf.ForOp, add: _Inserter, part: SSAValue, parts: int) -> tuple[SSAValue, SSAValue]:
    """Where the loop begins and ends for a part."""
    zero, one, count = add.constant(0), add.constant(1), add.constant(parts)
    trips = add(arith.CeilDivSIOp(add(arith.MaxSIOp(add(arith.SubiOp(loop.ub, loop.lb)), zero)), loop.step))

    def bound(number: SSAValue) -> SSAValue:
        at = add(arith.DivSIOp(add(arith.MuliOp(number, trips)), count))
        return add(arith.AddiOp(loop.lb, add(arith.MuliOp(at, loop.step))))

    first = bound(part)
    end = bound(add(arith.AddiOp(part, one)))
    return first, add(arith.MinSIOp(end, loop.ub))


def _is_zero(value: SSAValue) -> bool:
    """Whether a tile is +0 everywhere."""
    op = value.owner
    if not isinstance(op, tile.FullOp):
        return False
    fill = op.operands[0].owner
    if not isinstance(fill, arith.ConstantOp):
        return False
    if isinstance(fill.value, FloatAttr):
        number = fill.value.value.data
        return number == 0 and copysign(1, number) > 0
    return isinstance(fill.value, IntegerAttr) and fill.value.value.data == 0


def _zeros(kind: Attribute, add: _Inserter) -> SSAValue:
    """A tile of zeros."""
    assert isinstance(kind, TensorType)
    element = kind.element_type
    value = IntegerAttr(0, element) if isinstance(element, IntegerType) else FloatAttr(0.0, element)
    zero = add(arith.ConstantOp.create(result_types=[element], properties={"value": value}))
    return add(tile.FullOp.make(zero, kind.get_shape()))
