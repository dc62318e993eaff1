"""The layout rules: what each operation says about the layouts of its operands and results. One small function an op, and nothing else knows ops.

A rule is total: it states facts to `Statements` and raises only for an operation that it does not know. It may say

- `tie(values)`: these have one layout. Tied values are one *class*, the solver's unknown.
- `relate(...)`: the layout of one class follows from that of another, as a function; where it is different, elements have to move.
- `work(op, value)`: the op computes this class's values, so that padding and copies cost.
- `memory(op, value)`: a load or store, which may hold the tile in a layout of its own.
- `scattered(op, value)`: an access through tiles of indices, or an atomic update: in the layout of the value.
- `reduction(op)`, `dot(op)`, `read(op)`, `write(op)`: demands that are priced by instruction and buffer.
- `pin(op, value, layout)`: the author's own choice.

Values of `tile.full`, `tile.iota` and constants cost nothing wherever they are: `infer-layouts` gives each use its own before it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from ..dialects import async_copy, pins, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.layout import LayoutError, Mode, TVLayout
from ..dialects.layout_attrs import ConvertOp, TVLayoutAttr
from ..dialects.tile import shape_of
from ..dialects.tile_indexed import Indexed
from .layout_costs import UNKNOWN_TRIPS
from .stages import trip_count

Follow = Callable[[TVLayout], TVLayout | None]
Memory = tile.LoadOp | tile.StoreOp
Dot = tile.DotOp | async_copy.DotOp


@dataclass(frozen=True, slots=True)
class Relation:
    """How the layouts of an op's operand and result determine each other. `need(result)`: the operand's layout under which nothing moves; `made(source)`:
    the result's. One of them says where a conversion goes: before the op (`converts` 'operand') or behind it ('result'). Both may be None
    or give None, where layouts express no such thing. 'nothing': the op itself moves elements where there is no such layout; 'gather': always, as
    `passes/gathers.py` says."""

    op: Operation
    source: SSAValue
    result: SSAValue
    made: Follow | None
    need: Follow | None
    converts: str


@dataclass(frozen=True, slots=True)
class Pin:
    """The author's choice for a class."""

    at: Operation | SSAValue
    value: SSAValue
    layout: TVLayout


@dataclass
class Statements:
    """What the rules of a kernel's ops say."""

    parent: dict[SSAValue, SSAValue] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    works: list[tuple[Operation, SSAValue]] = field(default_factory=list)
    memories: list[tuple[Memory, SSAValue]] = field(default_factory=list)
    scattered: list[tuple[Indexed, SSAValue]] = field(default_factory=list)
    reductions: list[tile.ReduceOp] = field(default_factory=list)
    scans: list[tile.ScanOp | tile.FoldOp] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    reads: list[async_copy.ReadOp] = field(default_factory=list)
    writes: list[async_copy.WriteOp] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)

    def find(self, value: SSAValue) -> SSAValue:
        """The representative of a value's class."""
        root = value
        while (up := self.parent.get(root)) is not None:
            root = up
        while value is not root:
            self.parent[value], value = root, self.parent[value]
        return root

    def tie(self, *values: SSAValue) -> None:
        tiles = [value for value in values if tile_of(value) is not None]
        for value in tiles[1:]:
            a, b = self.find(tiles[0]), self.find(value)
            if a is not b:
                self.parent[b] = a

    def relate(
        self, op: Operation, source: SSAValue, result: SSAValue, made: Follow | None, need: Follow | None, converts: str = "operand"
    ) -> None:
        self.relations.append(Relation(op, source, result, _total(made), _total(need), converts))


def _total(function: Follow | None) -> Follow | None:
    """The function, giving None where the layout algebra says that there is no answer."""
    if function is None:
        return None

    def total(layout: TVLayout) -> TVLayout | None:
        try:
            return function(layout)
        except LayoutError:
            return None

    return total


def state(ops: Iterable[Operation]) -> Statements:
    """What the rules say of a kernel's ops. Raises TeselaError at an operation from tiles to tiles that no rule knows."""
    said = Statements()
    for op in ops:
        rule = RULES.get(type(op))
        if rule is not None:
            rule(said, op)
        elif op.name.startswith(("arith.", "math.")):
            _elementwise(said, op)
        elif _has_tile(op.operands) and _has_tile(op.results):
            hint = "say in passes/layout_rules.py how the layouts of its operands and results go together"
            raise TeselaError.at(op, "infer-layouts has no rule for this operation, which takes tiles and gives tiles", hint)
        for value in values_of(op):
            pinned = pin_of(op, value)
            if pinned is not None:
                said.pins.append(Pin(op if value in op.results else value, value, pinned))
    return said


def values_of(op: Operation) -> Iterator[SSAValue]:
    """The tiles that an op defines: its results and its blocks' arguments."""
    yield from (value for value in op.results if tile_of(value) is not None)
    for region in op.regions:
        for block in region.blocks:
            yield from (value for value in block.args if tile_of(value) is not None)


def pin_of(op: Operation, value: SSAValue) -> TVLayout | None:
    """The layout that the author has fixed for a value that `op` defines: in its type, or by the op's attribute `layout`."""
    kind = tile_of(value)
    assert kind is not None
    if isinstance(kind.encoding, TVLayoutAttr):
        return kind.encoding.data
    return pins.layout_of(op) if value in op.results else None


def tile_of(value: SSAValue) -> TensorType | None:
    """The tile type of a value, also of a pending one; None if it is no tile in registers."""
    kind = value.type
    if isinstance(kind, async_copy.PendingType):
        return kind.tile
    return kind if isinstance(kind, TensorType) else None


def trips(op: Operation) -> int:
    """How often an op is done, as far as is known: loops of unknown length count UNKNOWN_TRIPS."""
    total = 1
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, tile.KernelOp):
        total *= _runs(parent)
        parent = parent.parent_op()
    return min(total, MOST_TRIPS)


def made_at(value: SSAValue) -> int:
    """How often a value is made."""
    owner = value.owner
    if isinstance(owner, Operation):
        return trips(owner)
    loop = owner.parent_op()
    if loop is None or isinstance(loop, tile.KernelOp):
        return 1
    return min(trips(loop) * _runs(loop), MOST_TRIPS)


def _runs(op: Operation) -> int:
    """How often what is in an op's regions is counted each time."""
    if isinstance(op, scf.WhileOp):
        return UNKNOWN_TRIPS
    if not isinstance(op, scf.ForOp):
        return 1
    known = trip_count(op)
    return UNKNOWN_TRIPS if known is None else max(1, known)


MOST_TRIPS = 1 << 16
"""Nested loops count no more than that: what is inside weighs enough, and sums stay exact."""


def flattened(before: Sequence[int], after: Sequence[int], layout: TVLayout) -> TVLayout:
    """The layout of a tile that is broadcast from the extents `before` to `after`: the result's, standing still along the repeated dimensions."""
    for dim, (old, new) in enumerate(zip(before, after)):
        if old != new:
            layout = layout.flatten_dim(dim)
    return layout


def joined(layout: TVLayout) -> TVLayout:
    """The layout of pairs of two tiles with this layout: each thread holds both of a pair, one beside the other."""
    wide = layout.insert(layout.rank)
    return TVLayout(wide.thread, (Mode(2, (0,) * layout.rank + (1,)), *wide.value)).normalized()


def taken_apart(layout: TVLayout) -> TVLayout | None:
    """The layout of one of two tiles whose pairs have this layout; None where a thread does not hold both of a pair."""
    pair = layout.rank - 1
    return None if any(mode.stride[pair] for mode in layout.thread) else layout.project(pair)


def index_tiles(op: Indexed) -> Iterator[tuple[SSAValue, SSAValue]]:
    """The tiles of indices, each with the tile that is accessed."""
    yield from ((index, op.place) for index in op.indices if isinstance(index.type, TensorType))


# ---- the rules ------------------------------------------------------------------------------------------------------


def _elementwise(said: Statements, op: Operation) -> None:
    said.tie(*op.operands, *op.results)
    tiles = [value for value in (*op.results, *op.operands) if tile_of(value) is not None]
    if tiles:
        said.works.append((op, tiles[0]))


def _for(said: Statements, op: scf.ForOp) -> None:
    end = op.body.block.last_op
    assert end is not None
    for init, arg, out, res in zip(op.iter_args, op.body.block.args[1:], end.operands, op.results):
        said.tie(init, arg, out, res)


def _if(said: Statements, op: scf.IfOp) -> None:
    for region in op.regions:
        if region.blocks:
            assert region.block.last_op is not None
            for out, res in zip(region.block.last_op.operands, op.results):
                said.tie(res, out)


def _while(said: Statements, op: scf.WhileOp) -> None:
    condition, end = op.before_region.block.last_op, op.after_region.block.last_op
    assert condition is not None and end is not None
    for init, arg, out in zip(op.arguments, op.before_region.block.args, end.operands):
        said.tie(init, arg, out)
    for out, arg, res in zip(condition.operands[1:], op.after_region.block.args, op.results):
        said.tie(out, arg, res)


def _dot(said: Statements, op: Dot) -> None:
    said.tie(op.acc, op.res)
    said.dots.append(op)


def _same(said: Statements, op: Operation) -> None:
    said.tie(op.operands[0], op.results[0])


def _sum_parts(said: Statements, op: tile.SumPartsOp) -> None:
    for part, total in zip(op.tiles, op.sums):
        said.tie(part, total)


def _reduce(said: Statements, op: tile.ReduceOp) -> None:
    axis = op.axis.value.data
    said.reductions.append(op)
    if isinstance(op.res.type, TensorType):
        said.relate(op, op.source, op.res, lambda layout: layout.project(axis), None, "result")


def _scan(said: Statements, op: tile.ScanOp) -> None:
    """In any layout: what cannot be scanned where it is goes to one that can, and back."""
    said.tie(*op.sources, *op.res)
    said.scans.append(op)


def _fold(said: Statements, op: tile.FoldOp) -> None:
    """As a scan, of which the last results stay."""
    axis = op.axis.value.data
    said.tie(*op.sources)
    said.scans.append(op)
    if isinstance(op.res[0].type, TensorType):
        said.tie(*op.res)
        said.relate(op, op.sources[0], op.res[0], lambda layout: layout.project(axis), None, "result")


def _expand(said: Statements, op: tile.ExpandOp) -> None:
    axis = op.axis.value.data
    said.relate(op, op.source, op.res, lambda layout: layout.insert(axis), lambda layout: layout.project(axis))


def _broadcast(said: Statements, op: tile.BroadcastOp) -> None:
    said.relate(op, op.source, op.res, None, lambda layout: flattened(shape_of(op.source.type), shape_of(op.res.type), layout))


def _transpose(said: Statements, op: tile.TransposeOp) -> None:
    order = op.order
    inverse = tuple(order.index(dim) for dim in range(len(order)))
    said.relate(op, op.source, op.res, lambda layout: layout.permute(order), lambda layout: layout.permute(inverse))


def _reshape(said: Statements, op: tile.ReshapeOp) -> None:
    before, after = shape_of(op.source.type), shape_of(op.res.type)
    said.relate(
        op, op.source, op.res, lambda layout: layout.reshape(before, after), lambda layout: layout.reshape(after, before), "nothing"
    )


def _convert(said: Statements, op: ConvertOp) -> None:
    """The author's: both layouts stand in its types, as pins."""
    del said, op


def _load(said: Statements, op: tile.LoadOp) -> None:
    if isinstance(op.res.type, TensorType):
        said.memories.append((op, op.res))


def _store(said: Statements, op: tile.StoreOp) -> None:
    if isinstance(op.value.type, TensorType):
        said.memories.append((op, op.value))


def _indexed(said: Statements, op: Indexed) -> None:
    """A tile of indices is where the tile that it places is."""
    if isinstance(op, tile.AtomicOp):
        said.tie(op.value, op.res, *([op.expected] if op.expected is not None else []))
    for index, place in index_tiles(op):
        before, after = shape_of(index.type), shape_of(op.accessed)
        made = (lambda layout: layout) if before == after else None
        said.relate(op, index, place, made, lambda layout, before=before, after=after: flattened(before, after, layout))
    if isinstance(op.accessed, TensorType):
        said.scattered.append((op, op.place))


def _join(said: Statements, op: tile.JoinOp) -> None:
    said.tie(op.lhs, op.rhs)
    said.relate(op, op.lhs, op.res, joined, taken_apart, "result")


def _split(said: Statements, op: tile.SplitOp) -> None:
    said.tie(op.first, op.second)
    said.relate(op, op.source, op.first, taken_apart, joined)


def _gather(said: Statements, op: tile.GatherOp) -> None:
    """The indices are where the result is. In which layouts the source and the result are says how elements get there; one layout is worth trying."""
    said.tie(op.index, op.res)
    same = (lambda layout: layout) if shape_of(op.source.type) == shape_of(op.res.type) else None
    said.relate(op, op.source, op.res, same, same, "gather")


def _anywhere(said: Statements, op: Operation) -> None:
    """It goes through shared memory: any layouts will do."""
    del said, op


def _read(said: Statements, op: async_copy.ReadOp) -> None:
    said.reads.append(op)


def _write(said: Statements, op: async_copy.WriteOp) -> None:
    said.writes.append(op)


RULES: dict[type[Operation], Callable[[Statements, Any], None]] = {
    scf.ForOp: _for,
    scf.IfOp: _if,
    scf.WhileOp: _while,
    tile.DotOp: _dot,
    async_copy.DotOp: _dot,
    async_copy.AwaitOp: _same,
    async_copy.ReadyOp: _same,
    tile.SumPartsOp: _sum_parts,
    tile.ReduceOp: _reduce,
    tile.ScanOp: _scan,
    tile.FoldOp: _fold,
    tile.ExpandOp: _expand,
    tile.BroadcastOp: _broadcast,
    tile.TransposeOp: _transpose,
    tile.ReshapeOp: _reshape,
    tile.SelectOp: _elementwise,
    tile.CmpOp: _elementwise,
    tile.CastOp: _elementwise,
    tile.InlinePtxOp: _elementwise,
    tile.LoadOp: _load,
    tile.StoreOp: _store,
    tile.LoadIndexedOp: _indexed,
    tile.StoreIndexedOp: _indexed,
    tile.AtomicOp: _indexed,
    tile.JoinOp: _join,
    tile.SplitOp: _split,
    tile.HistogramOp: _anywhere,
    tile.GatherOp: _gather,
    async_copy.ReadOp: _read,
    async_copy.WriteOp: _write,
    ConvertOp: _convert,
}
"""The rule of each op; arith and math ops are elementwise."""


def _has_tile(values: Sequence[SSAValue]) -> bool:
    return any(isinstance(value.type, TensorType) for value in values)

