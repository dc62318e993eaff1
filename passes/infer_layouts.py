"""infer-layouts: every tile gets a layout, every buffer too, and conversions appear where two needs differ.

A first inference, by propagation; its rules are those that a solver will want. In four steps:

1. **Groups.** Values that must have one layout are one group: operands and results of elementwise ops, what a loop carries, what the branches of a
   conditional yield. `tile.full` and `tile.iota` cost nothing wherever they are, so each use has its own.
2. **Anchors.** A dot fixes the layout of its accumulator's group, and of operands that it takes from registers (`dot_rules`).
3. **Propagation.** Where one side of a reduce, expand, broadcast, transpose or reshape is known, the other follows. What no anchor
   reaches is laid out for its loads and stores: consecutive threads along the dimension that is contiguous in memory, each with as many
   elements as one access may move. The largest tile first, then what follows from it, until all are known.
4. **Conversions.** Where an op needs another layout than its operand has, `layout.convert` comes between.

    %x : tensor<64x256xf32> (blocked for its load)   %s = tile.reduce max %x axis 1   →   %s : the same layout without dimension 1
    %b = tile.broadcast (tile.expand %s axis 1)      the same layout again, so that x - b needs no conversion

Layouts that the author wrote into a type are anchors before all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, NoneAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue, Use

from ..dialects import async_copy, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.layout import TVLayout
from ..dialects.layout_attrs import ConvertOp, TVLayoutAttr, with_layout
from ..dialects.target import Target
from ..dialects.tile import shape_of
from ..dialects.tile_parts import SumPartsOp
from . import dot_rules
from .access import argument_align, vector_access
from .base import Pass, PassContext
from .divisibility import Divisibility


@dataclass
class InferLayouts(Pass):
    """Give every tile and every buffer a layout, and insert conversions."""

    name: ClassVar[str] = "infer-layouts"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in [op for op in module.walk() if isinstance(op, tile.KernelOp)]:
            _split_free_values(kernel)
            _lay_out_channels(kernel, target)
            _Inference(kernel, target).run()


FREE = (tile.FullOp, tile.IotaOp)


def _split_free_values(kernel: tile.KernelOp) -> None:
    """A copy of each tile.full, tile.iota and tile constant for each of its uses: they can have any layout."""
    for op in list(kernel.walk()):
        constant = isinstance(op, arith.ConstantOp) and isinstance(op.result.type, TensorType)
        if not (isinstance(op, FREE) or constant):
            continue
        for use in list(op.results[0].uses)[1:]:
            copy = op.clone()
            copy.location = op.location
            block = op.parent
            assert block is not None
            block.insert_op_before(copy, op)
            copy.results[0].name_hint = op.results[0].name_hint
            use.operation.operands[use.index] = copy.results[0]


# ---- buffers --------------------------------------------------------------------------------------------------------


def _lay_out_channels(kernel: tile.KernelOp, target: Target) -> None:
    """Gives channels, and all views of their buffers, the layout that `dot_rules` derives from their users, and chooses how puts move."""
    facts = Divisibility()
    for op in [op for op in kernel.walk() if isinstance(op, async_copy.ChannelOp)]:
        users = [use.operation for use in op.res.uses]
        needs = dot_rules.channel_needs(op.res, target)
        if isinstance(op.res.type.layout, NoneAttr):
            layout = dot_rules.channel_layout(op, users, needs)
            _retype_channel(op, with_layout(op.res.type.tile, layout))
        layout = op.res.type.layout.data
        for put in users:
            if isinstance(put, async_copy.PutOp) and put.via is None:
                align = argument_align(kernel, put.array)
                choice = dot_rules.choose_put(put, layout, needs, target, facts.divisor, align)
                put.properties["via"] = StringAttr(choice.via)
                if choice.reason is not None:
                    put.attributes["reason"] = StringAttr(choice.reason)


def _retype_channel(op: async_copy.ChannelOp, kind: TensorType) -> None:
    _retype(op.res, async_copy.ChannelType(kind))
    for use in op.res.uses:
        if isinstance(use.operation, async_copy.GetOp):
            _retype(use.operation.res, async_copy.BufferType(kind))
            _retype_views(use.operation.res)


def _retype_views(buffer: SSAValue) -> None:
    for use in buffer.uses:
        if isinstance(use.operation, async_copy.TransposeOp):
            view = use.operation
            layout = buffer.type.layout.data.permute(view.order)
            _retype(view.res, async_copy.BufferType(with_layout(view.res.type.tile, layout)))
            _retype_views(view.res)


def _retype(value: SSAValue, kind: Attribute) -> None:
    value._type = kind


# ---- register tiles -------------------------------------------------------------------------------------------------


def _tile_of(value: SSAValue) -> TensorType | None:
    kind = value.type
    if isinstance(kind, async_copy.PendingType):
        return kind.tile
    return kind if isinstance(kind, TensorType) else None


Follow = Callable[[TVLayout], TVLayout | None]


@dataclass(frozen=True, slots=True)
class _Relation:
    """How the layouts of an op's operand and result determine each other; a function may be None, or give None: nothing follows."""

    op: Operation
    source: SSAValue
    result: SSAValue
    forward: Follow | None
    backward: Follow | None
    moves_memory: bool
    """Whether following it may spoil the order of memory accesses (transpose, reshape): values that are loaded or stored do not follow."""


class _Inference:
    """The layouts of one kernel's tiles."""

    def __init__(self, kernel: tile.KernelOp, target: Target):
        self.kernel, self.target = kernel, target
        self.warps = dot_rules.block_warps(kernel)
        self.facts = Divisibility()
        self.parent: dict[SSAValue, SSAValue] = {}
        self.layouts: dict[SSAValue, TVLayout] = {}  # by group
        self.relations: list[_Relation] = []
        self.memory: dict[SSAValue, list[tile.LoadOp | tile.StoreOp]] = {}  # by group
        self.choices: dict[Operation, dot_rules.DotChoice] = {}

    def run(self) -> None:
        values = list(self._values())
        ops = list(self.kernel.walk())
        for op in ops:
            self._group(op)
        for op in ops:
            if isinstance(op, tile.LoadOp) and isinstance(op.res.type, TensorType):
                self.memory.setdefault(self.find(op.res), []).append(op)
            elif isinstance(op, tile.StoreOp) and isinstance(op.value.type, TensorType):
                self.memory.setdefault(self.find(op.value), []).append(op)
        self._anchor_pins(values)
        for op in ops:
            if isinstance(op, tile.DotOp | async_copy.DotOp):
                self._anchor_dot(op)
        self._propagate()
        for value in sorted(values, key=lambda value: -prod(shape_of(_tile_of(value)))):
            if self.find(value) not in self.layouts:
                self.layouts[self.find(value)] = self._default(value)
                self._propagate()
        for value in values:
            self._apply(value, self.layouts[self.find(value)])
        for op in ops:
            self._convert_operands(op)

    # -- groups

    def _values(self) -> Iterator[SSAValue]:
        for op in self.kernel.walk():
            yield from (value for value in op.results if _tile_of(value) is not None)
            for region in op.regions:
                for block in region.blocks:
                    yield from (value for value in block.args if _tile_of(value) is not None)

    def find(self, value: SSAValue) -> SSAValue:
        """The representative of a value's group."""
        root = value
        while (up := self.parent.get(root)) is not None:
            root = up
        while value is not root:
            self.parent[value], value = root, self.parent[value]
        return root

    def _unite(self, *values: SSAValue) -> None:
        tiles = [value for value in values if _tile_of(value) is not None]
        for value in tiles[1:]:
            a, b = self.find(tiles[0]), self.find(value)
            if a is not b:
                self.parent[b] = a

    def _group(self, op: Operation) -> None:
        match op:
            case scf.ForOp():
                end = op.body.block.last_op
                for init, arg, out, res in zip(op.iter_args, op.body.block.args[1:], end.operands, op.results):
                    self._unite(init, arg, out, res)
            case scf.IfOp():
                for region in op.regions:
                    if region.blocks:
                        for out, res in zip(region.block.last_op.operands, op.results):
                            self._unite(res, out)
            case scf.WhileOp():
                condition, end = op.before_region.block.last_op, op.after_region.block.last_op
                for init, arg, out in zip(op.arguments, op.before_region.block.args, end.operands):
                    self._unite(init, arg, out)
                for out, arg, res in zip(condition.operands[1:], op.after_region.block.args, op.results):
                    self._unite(out, arg, res)
            case async_copy.DotOp() | tile.DotOp():
                self._unite(op.acc, op.res)
            case async_copy.AwaitOp() | async_copy.ReadyOp():
                self._unite(op.operands[0], op.results[0])
            case SumPartsOp():
                for part, total in zip(op.tiles, op.sums):
                    self._unite(part, total)
            case tile.ReduceOp():
                axis = op.axis.value.data
                if isinstance(op.res.type, TensorType):
                    self._relate(op, op.source, op.res, lambda layout: layout.project(axis), None)
            case tile.ExpandOp():
                axis = op.axis.value.data
                self._relate(op, op.source, op.res, lambda layout: layout.insert(axis), lambda layout: layout.project(axis))
            case tile.BroadcastOp():
                self._relate(op, op.source, op.res, None, lambda layout: _flattened(op, layout))
            case tile.TransposeOp():
                order = op.order
                inverse = tuple(order.index(dim) for dim in range(len(order)))
                self._relate(
                    op, op.source, op.res, lambda layout: layout.permute(order), lambda layout: layout.permute(inverse), True
                )
            case tile.ReshapeOp():
                before, after = shape_of(op.source.type), shape_of(op.res.type)
                self._relate(
                    op,
                    op.source,
                    op.res,
                    lambda layout: layout.reshape(before, after),
                    lambda layout: layout.reshape(after, before),
                    True,
                )
            case tile.SelectOp() | tile.CmpOp() | tile.CastOp():
                self._unite(*op.operands, *op.results)
            case _ if op.name.startswith(("arith.", "math.")):
                self._unite(*op.operands, *op.results)
            case _ if not isinstance(op, ConvertOp) and _has_tile(op.operands) and _has_tile(op.results):
                hint = "say in passes/infer_layouts.py how the layouts of its operands and results go together"
                raise TeselaError.at(op, "infer-layouts has no rule for this operation, which takes tiles and gives tiles", hint)
            case _:
                pass  # loads, stores, full, iota, reads and writes of buffers take any layout

    def _relate(
        self,
        op: Operation,
        source: SSAValue,
        result: SSAValue,
        forward: Follow | None,
        backward: Follow | None,
        moves_memory: bool = False,
    ) -> None:
        self.relations.append(_Relation(op, source, result, forward, backward, moves_memory))

    # -- what is fixed

    def _anchor_pins(self, values: list[SSAValue]) -> None:
        for value in values:
            kind = _tile_of(value)
            if isinstance(kind.encoding, TVLayoutAttr):
                self.layouts.setdefault(self.find(value), kind.encoding.data)

    def _anchor_dot(self, op: tile.DotOp | async_copy.DotOp) -> None:
        choice = self.choices[op] = dot_rules.dot_requirements(op, self.warps, self.target)
        self.layouts.setdefault(self.find(op.acc), choice.acc)
        for operand, wanted in ((op.lhs, choice.lhs), (op.rhs, choice.rhs)):
            # what is read from a buffer for this dot has no other wish; a computed operand has its own layout and is converted
            if wanted is not None and isinstance(operand.owner, async_copy.ReadOp):
                self.layouts.setdefault(self.find(operand), wanted)

    def _propagate(self) -> None:
        changed = True
        while changed:
            changed = False
            for relation in self.relations:
                source, result = self.find(relation.source), self.find(relation.result)
                if source in self.layouts and result not in self.layouts:
                    changed |= self._follow(relation, relation.forward, source, result)
                elif result in self.layouts and source not in self.layouts:
                    changed |= self._follow(relation, relation.backward, result, source)

    def _follow(self, relation: _Relation, function: Follow | None, known: SSAValue, unknown: SSAValue) -> bool:
        if function is None or (relation.moves_memory and unknown in self.memory):
            return False
        layout = function(self.layouts[known])
        if layout is None:
            return False
        self.layouts[unknown] = layout
        return True

    def _default(self, value: SSAValue) -> TVLayout:
        """Coalesced for the group's first load or store; along the last dimension where there is none."""
        kind = _tile_of(value)
        shape = kind.get_shape()
        inner, width = len(shape) - 1, 1
        for op in self.memory.get(self.find(value), ()):
            position, vector = vector_access(self.kernel, self.facts, op, whole=True)
            if position is not None:
                inner, width = position, vector
                break
        threads = 32 * self.warps
        while width > 1 and prod(shape) // width < threads:
            width //= 2  # rather all threads busy than wide accesses of a few
        order = (inner, *(dim for dim in reversed(range(len(shape))) if dim != inner))
        return TVLayout.blocked(tuple(shape), threads, order, width).normalized()

    # -- writing it down

    def _apply(self, value: SSAValue, layout: TVLayout) -> None:
        kind = _tile_of(value)
        typed = with_layout(kind, layout)
        _retype(value, async_copy.PendingType(typed) if isinstance(value.type, async_copy.PendingType) else typed)

    def _convert_operands(self, op: Operation) -> None:
        match op:
            case tile.DotOp() | async_copy.DotOp():
                choice = self.choices[op]
                for index, wanted in enumerate((choice.lhs, choice.rhs, choice.acc)):
                    if wanted is not None and isinstance(op.operands[index].type, TensorType):
                        self._convert_operand(op, index, wanted)
                self._convert_result(op, choice.acc)
            case tile.ExpandOp():
                self._convert_operand(op, 0, self._layout(op.res).project(op.axis.value.data))
            case tile.BroadcastOp():
                self._convert_operand(op, 0, _flattened(op, self._layout(op.res)))
            case tile.TransposeOp():
                inverse = tuple(op.order.index(dim) for dim in range(len(op.order)))
                self._convert_operand(op, 0, self._layout(op.res).permute(inverse))
            case tile.ReduceOp() if isinstance(op.res.type, TensorType):
                self._convert_result(op, self._layout(op.source).project(op.axis.value.data))
            case _:
                pass

    def _layout(self, value: SSAValue) -> TVLayout:
        kind = _tile_of(value)
        assert isinstance(kind.encoding, TVLayoutAttr)
        return kind.encoding.data

    def _convert_operand(self, op: Operation, index: int, wanted: TVLayout) -> None:
        operand = op.operands[index]
        if self._layout(operand) == wanted.normalized():
            return
        convert = ConvertOp(operand, with_layout(operand.type, wanted))
        convert.location = op.location
        op.parent.insert_op_before(convert, op)
        op.operands[index] = convert.result

    def _convert_result(self, op: Operation, made: TVLayout) -> None:
        """The op gives `made`; its users go on with the group's layout."""
        result = op.results[0]
        wished = self._layout(result)
        if wished == made.normalized():
            return
        if isinstance(result.type, async_copy.PendingType):  # only what is awaited can be converted
            for use in list(result.uses):
                if isinstance(use.operation, async_copy.AwaitOp):
                    self._convert_result(use.operation, made)
            self._apply(result, made)
            return
        uses: list[Use] = list(result.uses)
        self._apply(result, made)
        convert = ConvertOp(result, with_layout(result.type, wished))
        convert.location = op.location
        block = op.parent
        following = op.next_op
        if following is None:
            block.add_op(convert)
        else:
            block.insert_op_before(convert, following)
        for use in uses:
            use.operation.operands[use.index] = convert.result


def _has_tile(values: Sequence[SSAValue]) -> bool:
    return any(isinstance(value.type, TensorType) for value in values)


def _flattened(op: tile.BroadcastOp, layout: TVLayout) -> TVLayout:
    """The layout of a broadcast's operand: the result's, standing still along the repeated dimensions."""
    for dim, (before, after) in enumerate(zip(shape_of(op.source.type), shape_of(op.res.type))):
        if before != after:
            layout = layout.flatten_dim(dim)
    return layout

