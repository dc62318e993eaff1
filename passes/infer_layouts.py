"""infer-layouts: every tile gets a layout, every buffer too, every copy and dot its instruction; where two needs differ, elements are converted.

All of a kernel is one problem, loops, conditionals and several dots included: `layout_rules` says what each op requires, `layout_problem` makes unknowns,
candidates and costs of it, `layout_solver` finds the cheapest answer of all, and here it is written down:

- types carry the layouts, of tiles and of buffers;
- a dot has the attribute `instruction`, how it is computed; a put has `via`, how it copies, and `reason` where that is not the best way there is;
- `layout.convert` stands where an op's operand is held in another layout than the op takes; of what a loop does not change, before the loop.

    %x : tensor<64x256xf32> (blocked for its load)   %s = tile.reduce max %x axis 1   →   %s : the same layout without dimension 1
    %b = tile.broadcast (tile.expand %s axis 1)      the same layout again, so that x - b needs no conversion

What the author has fixed stays (dialects/pins.py): a layout in a type or in the attribute `layout` of an op, `instruction` (or some of its words) of a dot, a
channel's layout, a put's `via`. Choices that contradict each other are an error that names them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, NoneAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue, Use

from ..dialects import async_copy, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.inside import kernels_in
from ..dialects.layout import SharedLayout, TVLayout
from ..dialects.layout_attrs import ConvertOp, TVLayoutAttr, with_layout
from ..dialects.pins import COPY, INSTRUCTION, LAYOUT, SHARED, words_of
from ..dialects.tile import shape_of
from ..dialects.tile_indexed import Indexed
from .base import Pass, PassContext
from .layout_problem import LayoutProblem, build, put_choice, solve
from .layout_rules import Dot, flattened, index_tiles, joined, made_at, tile_of, trips
from .layout_solver import Solution


@dataclass
class InferLayouts(Pass):
    """Give every tile and every buffer a layout, every copy and dot an instruction, and insert conversions."""

    name: ClassVar[str] = "infer-layouts"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        self.solved: list[Solved] = []
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            split_free_values(kernel)
            made = build(kernel, target)
            self.solved.append(Solved(made, solve(made)))
            _Writer(self.solved[-1]).write()


@dataclass
class Solved:
    """A kernel's problem and its answer."""

    made: LayoutProblem
    solution: Solution
    converts: list[ConvertOp] = field(default_factory=list)
    pinned: dict[Operation, str] = field(default_factory=dict)
    """The words that were pinned for a dot, whose attribute names the whole way now."""


FREE = (tile.FullOp, tile.IotaOp)


def split_free_values(kernel: tile.KernelOp) -> None:
    """A copy of each tile.full, tile.iota and tile constant for each of its uses: they can have any layout."""
    for op in list(kernel.walk()):
        constant = isinstance(op, arith.ConstantOp) and isinstance(op.result.type, TensorType)
        if not (isinstance(op, FREE) or constant) or LAYOUT in op.attributes:
            continue
        for use in list(op.results[0].uses)[1:]:
            copy = op.clone()
            copy.location = op.location
            block = op.parent
            assert block is not None
            block.insert_op_before(copy, op)
            copy.results[0].name_hint = op.results[0].name_hint
            use.operation.operands[use.index] = copy.results[0]


def _retype(value: SSAValue, kind: Attribute) -> None:
    value._type = kind


class _Writer:
    """Writes a kernel's answer into it."""

    def __init__(self, solved: Solved):
        self.made, self.solution, self.converts, self.pinned = solved.made, solved.solution, solved.converts, solved.pinned
        self.made_once: dict[tuple[SSAValue, TVLayout], ConvertOp] = {}
        self.hoisted: set[tuple[SSAValue, TVLayout]] = set()

    def write(self) -> None:
        ops = list(self.made.kernel.walk())
        for channel, variable in self.made.channels.items():
            self._channel(channel, self.solution.candidate(variable))
        for root, variable in self.made.classes.items():
            layout = self.solution.candidate(variable)
            for value in self.made.members[root]:
                _apply(value, layout)
        for op in ops:
            self._operation(op)

    def _channel(self, op: async_copy.ChannelOp, layout: SharedLayout) -> None:
        if isinstance(op.res.type.layout, NoneAttr):
            _retype_channel(op, with_layout(op.res.type.tile, layout))
        for use in op.res.uses:
            put = use.operation
            if isinstance(put, async_copy.PutOp) and put.via is None:
                choice = put_choice(self.made, put, layout)
                put.properties["via"] = StringAttr(choice.via)
                if choice.reason is not None:
                    put.attributes["reason"] = StringAttr(choice.reason)

    def _operation(self, op: Operation) -> None:
        match op:
            case tile.DotOp() | async_copy.DotOp():
                self._dot(op)
            case tile.LoadOp() if op in self.made.memories:
                self._check_unused(op)
                own = self.solution.candidate(self.made.memories[op])
                if own is not None:
                    self._convert_result(op, own)
            case tile.StoreOp() if op in self.made.memories:
                own = self.solution.candidate(self.made.memories[op])
                if own is not None:
                    self._convert_operand(op, list(op.operands).index(op.value), own)
            case tile.ExpandOp():
                self._convert_operand(op, 0, _layout(op.res).project(op.axis.value.data))
            case tile.BroadcastOp():
                self._convert_operand(op, 0, flattened(shape_of(op.source.type), shape_of(op.res.type), _layout(op.res)))
            case Indexed():
                for index, place in index_tiles(op):
                    wanted = flattened(shape_of(index.type), shape_of(op.accessed), _layout(place))
                    self._convert_operand(op, list(op.operands).index(index), wanted)
            case tile.JoinOp():
                self._convert_result(op, joined(_layout(op.lhs)))
            case tile.SplitOp():
                self._convert_operand(op, 0, joined(_layout(op.first)))
            case tile.TransposeOp():
                inverse = tuple(op.order.index(dim) for dim in range(len(op.order)))
                self._convert_operand(op, 0, _layout(op.res).permute(inverse))
            case tile.ReduceOp() if isinstance(op.res.type, TensorType):
                self._convert_result(op, _layout(op.source).project(op.axis.value.data))
            case tile.FoldOp() if isinstance(op.res[0].type, TensorType):
                for result in op.res:
                    self._convert_result(op, _layout(op.sources[0]).project(op.axis.value.data), result)
            case _:
                pass

    def _check_unused(self, op: tile.LoadOp) -> None:
        """A pin that says how a tile passes through shared memory, of one that does not."""
        for name in (SHARED, COPY):
            if name in op.attributes:
                raise TeselaError.at(
                    op, f"'{name}' is pinned, but this tile does not come into shared memory: it is loaded into registers",
                    "only what dots alone read is loaded into a buffer; take the pin back",
                )

    def _dot(self, op: Dot) -> None:
        way = self.solution.candidate(self.made.dots[op])
        if (words := words_of(op, INSTRUCTION)) is not None:
            self.pinned[op] = words
        op.attributes[INSTRUCTION] = StringAttr(way.text)
        if way.choice.lhs is not None and isinstance(op.lhs.type, async_copy.BufferType):
            read = async_copy.ReadOp.make(op.lhs)
            read.location = op.location
            read.res.name_hint = op.lhs.name_hint
            _apply(read.res, way.choice.lhs)
            assert op.parent is not None
            op.parent.insert_op_before(read, op)
            op.operands[0] = read.res
        for index, wanted in enumerate((way.choice.lhs, way.choice.rhs, way.choice.acc)):
            if wanted is not None and isinstance(op.operands[index].type, TensorType):
                self._convert_operand(op, index, wanted)
        self._convert_result(op, way.choice.acc)

    def _convert_operand(self, op: Operation, index: int, wanted: TVLayout) -> None:
        """The operand in another layout: converted once for all who want it so, where it is made if that is outside of a loop round `op`."""
        operand = op.operands[index]
        wanted = wanted.normalized()
        if _layout(operand) == wanted:
            return
        assert isinstance(operand.type, TensorType) and op.parent is not None
        convert = self.made_once.get((operand, wanted))
        if convert is None or not (convert.parent is op.parent and convert.is_before_in_block(op) or (operand, wanted) in self.hoisted):
            convert = ConvertOp(operand, with_layout(operand.type, wanted))
            convert.location = op.location
            self.converts.append(convert)
            self.made_once[operand, wanted] = convert
            if made_at(operand) < trips(op):
                self.hoisted.add((operand, wanted))
                _insert_behind(operand, convert)
            else:
                op.parent.insert_op_before(convert, op)
        op.operands[index] = convert.result

    def _convert_result(self, op: Operation, made: TVLayout, result: SSAValue | None = None) -> None:
        """The op gives `made` (as `result`, its first unless stated); users go on with the class's layout."""
        result = op.results[0] if result is None else result
        wished = _layout(result)
        if wished == made.normalized():
            return
        if isinstance(result.type, async_copy.PendingType):  # only what is awaited can be converted
            for use in list(result.uses):
                if isinstance(use.operation, async_copy.AwaitOp):
                    self._convert_result(use.operation, made)
            _apply(result, made)
            return
        uses: list[Use] = list(result.uses)
        assert isinstance(result.type, TensorType)
        convert_type = with_layout(result.type, wished)
        _apply(result, made)
        convert = ConvertOp(result, convert_type)
        convert.location = op.location
        self.converts.append(convert)
        block, following = op.parent, op.next_op
        assert block is not None
        if following is None:
            block.add_op(convert)
        else:
            block.insert_op_before(convert, following)
        for use in uses:
            use.operation.operands[use.index] = convert.result


def _insert_behind(value: SSAValue, op: Operation) -> None:
    """Puts an op where a value is known from on."""
    owner = value.owner
    if isinstance(owner, Block):
        first = owner.first_op
        assert first is not None, "a block ends with a terminator"
        owner.insert_op_before(op, first)
        return
    assert owner.parent is not None
    owner.parent.insert_ops_after([op], owner)


def _layout(value: SSAValue) -> TVLayout:
    kind = tile_of(value)
    assert kind is not None and isinstance(kind.encoding, TVLayoutAttr)
    return kind.encoding.data


def _apply(value: SSAValue, layout: TVLayout) -> None:
    kind = tile_of(value)
    assert kind is not None
    typed = with_layout(kind, layout)
    _retype(value, async_copy.PendingType(typed) if isinstance(value.type, async_copy.PendingType) else typed)


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
