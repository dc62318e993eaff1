"""plan-dataflow: the operands of dots travel through channels, and dots that the target computes asynchronously become async.

An operand comes to a dot in one of three ways:

- A `tile.load` that only dots read (as it is or transposed) becomes an `async.put` where the load stood. The put stays there: moved
  over a store, it could read other values. The `async.get` comes before the first dot, but not after a store either, since the array may be
  the one that is written.
- A tile that is computed, or loaded and used elsewhere too, or loaded with a value other than zero past the edges, is written into
  a channel from registers (`async.write`), before the first dot.
- A left operand of `wgmma` that was loaded outside of the loop that multiplies by it is read into registers before the loop, if there are
  registers for it beside all that the loop's dots hold: then its buffer is free at once, and the tensor cores read only the right one from shared memory.
- A tile that is loaded beside a dot of `wgmma`, in a loop, for other purposes (a bias that is added to its result, a left operand that is scaled first) comes through a
  channel too, and is read into registers before its first use: so it is loaded ahead, like the operands.
- A computed left operand stays in registers where the instruction takes it so: `mma.sync` always does, `wgmma` if there are registers
  for it. After a dot and elementwise ops it already has the layout that the next dot wants.

    %b = tile.load %B[%n, %k]                     async.put %ch, %B[%n, %k]
    %t = tile.transpose %b [1, 0]          →      %b = async.get %ch
    %d = tile.dot %a, %t, %c                      %t = async.transpose %b [1, 0]
                                                  %p, %read = async.dot %a, %t, %c
                                                  %d = async.await %p
                                                  async.release %ch after %read

A channel's put, get and release stand in one block, the one where the operand is defined; the dots may stand in loops and
conditionals inside. So each slot that is filled is got and released once on every path. Nothing is scheduled here: depths are 1.

The pass also chooses the kernel's number of warps where the author gave none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import copysign, prod
from typing import ClassVar, TypeVar

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr, TensorType, i64
from xdsl.ir import Block, Operation, OpResult, SSAValue

from ..dialects import async_copy, pins, tile
from ..dialects.array_effects import may_write
from ..dialects.async_roles import RolesOp, role_of
from ..dialects.diagnostics import TeselaError
from ..dialects.inside import inside, kernels_in
from ..dialects.layout_attrs import with_layout
from ..dialects.target import Target
from ..dialects.tile import element_type, shape_of
from ..dialects.tile_types import memory_bytes
from . import dot_rules
from .base import Pass, PassContext
from .dot_types import dot_kind
from .specialize_warps import budgets

OpT = TypeVar("OpT", bound=Operation)

REGISTER_OPERAND_LIMIT = 64
"""Registers of a thread that a left operand of wgmma may take; a larger one goes through shared memory."""
ACCUMULATOR_TARGET = 128
"""Registers of a thread that an accumulator should take at most: half of what a thread can have."""
TILE_REGISTERS = 64
"""Elements of tiles that a thread of a kernel without dots should hold at most: of the largest, and of what loops carry. With twice as many, sums of columns took twice as
long (an H200: a multiprocessor held half as many warps, and each waited for its loads)."""
STREAMED_BYTES = 4096
"""From which on a tile is worth a channel: below, a load by each thread is a few instructions and as soon there as its barrier."""
MAX_CHOSEN_WARPS = 16
THREE_GROUPS_ROWS = 3 * dot_rules.WGMMA_ROWS
"""Rows that three warpgroups share evenly, and two do not."""


@dataclass
class PlanDataflow(Pass):
    """Turn the operands of dots into channels, dots into async.dot where the target has it, and choose the number of warps. `hold`:
    whether left operands that a loop does not change are read into registers before it; `stream`: whether tiles that are loaded beside a dot, for other purposes,
    come through channels."""

    name: ClassVar[str] = "plan-dataflow"
    hold: bool = True
    stream: bool = True

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            dots = inside(kernel, tile.DotOp)
            for dot in dots:
                dot_kind(dot)
            roles = next((op for op in kernel.body.block.ops if isinstance(op, RolesOp)), None)
            if roles is not None:
                _note_what_roles_settle(kernel, roles, context)
                kernel.attributes["warps"] = IntegerAttr(working_warps(roles), i64)
                for role, warps in enumerate(roles.role_warps):
                    mine = [dot for dot in dots if role_of(dot) == (roles, role)]
                    _Planner(kernel, warps, target, self.hold, self.stream).plan(mine)
                continue
            warps = _stated_warps(kernel)
            if warps is None:
                warps = choose_warps(kernel, dots, target)
                kernel.attributes["warps"] = IntegerAttr(warps, i64)
            _Planner(kernel, warps, target, self.hold, self.stream).plan(dots)


def _note_what_roles_settle(kernel: tile.KernelOp, roles: RolesOp, context: PassContext) -> None:
    """What is stated of a kernel whose roles are written out is theirs to say: warps, slots of channels, and whether some warps only load or blocks walk the grid."""
    for name in ("warps", "stages", "warp_specialize", "persistent"):
        if (value := kernel.attributes.get(name)) is not None and not (name == "warps" and value == IntegerAttr(working_warps(roles), i64)):
            number = abs(value.value.data) if isinstance(value, IntegerAttr) else value  # (true is -1)
            context.emitter.note(kernel, f"{name} = {number} is not followed: the kernel's roles are written out, with their warps and the slots of their channels")


# ---- warps ----------------------------------------------------------------------------------------------------------


def _stated_warps(kernel: tile.KernelOp) -> int | None:
    stated = kernel.attributes.get("warps")
    if stated is None:
        return None
    if not isinstance(stated, IntegerAttr) or stated.value.data not in (1, 2, 4, 8, 12, 16, 32):
        raise TeselaError.at(kernel, f"warps must be 1, 2, 4, 8, 12, 16 or 32, found {stated}", "state one of these, as in warps = 4 : i64, in Python pins={'warps': 4}, or leave it out")
    return stated.value.data


def working_warps(roles: RolesOp) -> int:
    """The warps of the roles that hold tiles: equal in all, since one layout says who holds which element of a tile. Raises TeselaError where they are not."""
    holding = {}
    for name, warps, body in zip(roles.role_names, roles.role_warps, roles.bodies):
        if any(isinstance(value.type, TensorType) for op in body.walk() for value in (*op.results, *op.operands)):
            holding[name] = warps
    if len(set(holding.values())) > 1:
        found = ", ".join(f"{name} {warps}" for name, warps in holding.items())
        raise TeselaError.at(roles, f"roles that hold tiles must have equally many warps, found {found}", "give them the same number; a role that only puts slices of arrays may have another")
    return next(iter(holding.values()), roles.role_warps[0])


def choose_warps(kernel: tile.KernelOp, dots: Sequence[tile.DotOp], target: Target) -> int:
    """The number of warps of a block: with dots, 4, or 8 where a second warpgroup has rows of its own or sums, and what loops carry beside them, would fill the registers that
    mma.sync and fma leave, 12 where a third has the last of 192 rows, or as many more as the accumulators need; without, as many as keep what a thread holds of tiles small: the largest
    one, and what the loops round it carry along."""
    warps = 4
    if not dots:
        largest = max((prod(shape_of(value.type)) + _carried(op) for op in kernel.walk() for value in op.results), default=1)
        while warps < MAX_CHOSEN_WARPS and largest // (32 * warps) > TILE_REGISTERS:
            warps *= 2
        return warps

    by_wgmma = [dot for dot in dots if dot_rules.takes_wgmma(dot, warps, target)]

    def most(warps: int) -> int:
        return max(dot_rules.accumulator_registers(dot, warps, target) for dot in dots)

    def held(warps: int) -> int:
        return max(dot_rules.accumulator_registers(dot, warps, target) + _carried_beside(dot) // (32 * warps) for dot in dots)

    # mma.sync and fma have their operands in registers, too.
    if any(dot_rules.dot_shape(dot).m > 64 for dot in by_wgmma) or not by_wgmma and held(warps) > ACCUMULATOR_TARGET // 2:
        warps = 8
        groups = 3 * dot_rules.WARPGROUP_WARPS
        if all(dot_rules.dot_shape(dot).m == THREE_GROUPS_ROWS for dot in dots) and most(groups) <= ACCUMULATOR_TARGET // 2:
            return groups
    while warps < MAX_CHOSEN_WARPS and most(warps) > ACCUMULATOR_TARGET:
        warps *= 2
    # More warps have fewer registers each: what did not get better is not worth them.
    while warps > 4 and all(
        dot_rules.accumulator_registers(dot, warps // 2, target) <= dot_rules.accumulator_registers(dot, warps, target)
        for dot in dots
    ):
        warps //= 2
    return warps


def _carried_beside(dot: tile.DotOp) -> int:
    """Elements of the tiles that the loops round a dot carry beside its own sums, where these are carried too."""
    own = any(isinstance(use.operation, scf.YieldOp) for use in dot.res.uses)
    return _carried(dot) - (prod(shape_of(dot.res.type)) if own else 0)


def _carried(op: Operation) -> int:
    """Elements of the tiles that the loops round an op carry from trip to trip: registers hold them while the op's result is computed."""
    total = 0
    while (parent := op.parent_op()) is not None and not isinstance(parent, tile.KernelOp):
        if isinstance(parent, scf.ForOp | scf.WhileOp):
            total += sum(prod(shape_of(value.type)) for value in parent.results if isinstance(value.type, TensorType))
        op = parent
    return total


# ---- operands -------------------------------------------------------------------------------------------------------


@dataclass
class _Transfer:
    """A tile on its way through a channel to `dots`; `load`, if it need not pass through registers."""

    source: SSAValue
    load: tile.LoadOp | None
    dots: list[tile.DotOp] = field(default_factory=list)

    @property
    def block(self) -> Block:
        owner = self.source.owner
        block = owner if isinstance(owner, Block) else owner.parent
        assert block is not None, "a tile is defined in a block"
        return block

    def users(self) -> list[Operation]:
        """The ops of the defining block that are, or contain, the dots; in order."""
        found = {_ancestor_in(dot, self.block) for dot in self.dots}
        return list(found) if len(found) == 1 else [op for op in self.block.ops if op in found]


def _ancestor_in(op: Operation, block: Block) -> Operation:
    """The op of `block` that is `op` or contains it."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None, "a use is dominated by its definition"
        op = parent
    return op


def _trace(value: SSAValue) -> tuple[SSAValue, tuple[int, ...]]:
    """The tile that `value` is a transpose of (through any number of them), and for each dimension of `value` that of the tile."""
    dims = tuple(range(len(shape_of(value.type))))
    while isinstance(value, OpResult) and isinstance(value.op, tile.TransposeOp):
        order = value.op.order
        dims = tuple(order[d] for d in dims)
        value = value.op.source
    return value, dims


def _lies_there(read: async_copy.ReadOp, dot: Operation) -> bool:
    """Whether a tile that an author has read from a slot still lies in it at a dot: the slot is given back later, in the same block."""
    get = read.source.owner
    if not isinstance(get, async_copy.GetOp) or get.parent is None:
        return False
    inner: Operation | None = dot
    while inner is not None and inner.parent is not get.parent:
        inner = inner.parent_op()
    if inner is None:
        return False
    taken = [use.operation for use in get.channel.uses if use.operation.parent is get.parent and isinstance(use.operation, async_copy.GetOp | async_copy.ReleaseOp)]
    between = [op for op in taken if op is not get and get.is_before_in_block(op) and op.is_before_in_block(inner)]
    return not between


def _only_dots_read(value: SSAValue) -> bool:
    """Whether every use, also of its transposes, is an operand of a dot."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, tile.TransposeOp):
            if not _only_dots_read(user.res):
                return False
        elif not isinstance(user, tile.DotOp) or use.index == 2:
            return False
    return True


def _fills_zero(load: tile.LoadOp) -> bool:
    """Whether the load reads +0 past the edges."""
    if load.fill is None:
        return True
    owner = load.fill.owner
    if not isinstance(owner, arith.ConstantOp):
        return False
    if isinstance(owner.value, IntegerAttr):
        return owner.value.value.data == 0
    if not isinstance(owner.value, FloatAttr):
        return False
    value = owner.value.value.data
    return value == 0 and copysign(1, value) > 0


def _stores(op: Operation) -> bool:
    return any(may_write(inner) for inner in op.walk())


def _beside_stores(op: Operation) -> bool:
    """Whether the block that an op stands in may write memory."""
    assert op.parent is not None
    return any(_stores(other) for other in op.parent.ops)


_Key = tuple[SSAValue, int | None]
"""A tile that goes through a channel, and the dimension of it that must lie contiguous there, if one must."""


@dataclass
class _Done:
    """What a dot has become: its last op, and its read token if it is asynchronous."""

    last: Operation
    token: SSAValue | None


class _Planner:
    """Plans one kernel."""

    def __init__(self, kernel: tile.KernelOp, warps: int, target: Target, hold: bool, stream: bool):
        self.kernel = kernel
        self.hold = hold
        self.stream = stream
        self.warps = warps
        self.target = target
        self.channels: list[async_copy.ChannelOp] = []
        self.buffers: dict[_Key, SSAValue] = {}  # a tile -> the buffer that holds it
        self.held: dict[_Key, SSAValue] = {}  # a tile -> the registers that hold it

    def plan(self, dots: Sequence[tile.DotOp]) -> None:
        transfers: dict[_Key, _Transfer] = {}
        operands: dict[tile.DotOp, dict[int, tuple[_Key, tuple[int, ...]]]] = {dot: {} for dot in dots}
        for dot in dots:
            for index in (0, 1):
                source, dims = _trace(dot.operands[index])
                if isinstance(source, OpResult) and isinstance(source.op, async_copy.ReadOp):  # the author has planned this one
                    if _lies_there(source.op, dot):
                        self.buffers[source, None] = source.op.source
                        operands[dot][index] = ((source, None), dims)
                        continue
                    if not dot_rules.takes_wgmma(dot, self.warps, self.target):
                        continue
                load = source.op if isinstance(source, OpResult) and isinstance(source.op, tile.LoadOp) else None
                if load is not None and not (_fills_zero(load) and _only_dots_read(source) and pins.layout_of(load) is None):
                    load = None
                if load is None and index == 0 and self._stays_in_registers(dot):
                    continue
                # Dots that want one tile contiguous along different dimensions have a buffer each.
                k_contiguous = dot_kind(dot).k_contiguous(dot_rules.takes_wgmma(dot, self.warps, self.target))
                key = (source, (dims[-1] if index == 0 else dims[-2]) if k_contiguous else None)
                transfers.setdefault(key, _Transfer(source, load)).dots.append(dot)
                operands[dot][index] = (key, dims)
        held = {key for key, transfer in transfers.items() if self._is_held(key, transfer, operands)} if self.hold else set()
        last_users = [self._transfer(key, transfer, key in held) for key, transfer in transfers.items()]
        taken = {transfer.load for transfer in transfers.values()}
        streams = [self._stream(load) for load in self._streamed(dots) if load not in taken] if self.stream else []
        done = {dot: self._rewrite(dot, operands[dot]) for dot in dots}
        after: dict[Operation, Operation] = {}  # where several channels are released at one place, in their order
        for channel, last in zip(self.channels, last_users):
            end = done.get(last, _Done(last, None)) if isinstance(last, tile.DotOp) else _Done(last, None)
            release = _place(async_copy.ReleaseOp.make(channel.res, end.token), end.last)
            at = after.get(end.last, end.last)
            assert at.parent is not None, "the last user stands in a block"
            at.parent.insert_ops_after([release], at)
            after[end.last] = release
        first = self.kernel.body.block.first_op
        assert first is not None, "a kernel ends with tile.return"
        self.kernel.body.block.insert_ops_before([*self.channels, *streams], first)
        for transfer in transfers.values():
            if transfer.load is not None and transfer.load.parent is not None:
                _erase_with_transposes(transfer.load)
        for source in {source for found in operands.values() for (source, _), _ in found.values()}:
            if isinstance(source, OpResult) and isinstance(source.op, async_copy.ReadOp) and not source.uses:
                source.op.detach()
                source.op.erase()

    def _stays_in_registers(self, dot: tile.DotOp) -> bool:
        """Whether a computed left operand is best given to the instruction as it is."""
        if isinstance(dot.lhs, OpResult) and isinstance(dot.lhs.op, tile.TransposeOp):
            return False
        lhs = dot_rules.register_operand(dot, self.warps, self.target)
        if lhs is None:
            return False
        if not dot_rules.takes_wgmma(dot, self.warps, self.target):
            return True
        return dot_rules.registers_of(lhs, element_type(dot.lhs.type)) <= REGISTER_OPERAND_LIMIT

    def _is_held(
        self, key: _Key, transfer: _Transfer, through: dict[tile.DotOp, dict[int, tuple[_Key, tuple[int, ...]]]]
    ) -> bool:
        """Whether a loaded tile is best read into registers where it is defined: it is the left operand, as it is, of wgmmas in a loop
        that does not contain it, and beside it the loop's dots fit the registers."""
        first = transfer.dots[0]
        shape = dot_rules.dot_shape(first)
        if transfer.load is None or shape.k % shape.kind.step:
            return False
        loops: set[Operation] = set()
        for dot in transfer.dots:
            same = dot_rules.dot_shape(dot).m == shape.m and dot_rules.takes_wgmma(dot, self.warps, self.target)
            loop = _loop_round(dot, transfer.block)
            if not same or loop is None or through[dot].get(0, (None,))[0] != key or through[dot].get(1, (None,))[0] == key:
                return False
            if through[dot][0][1] != (0, 1):
                return False
            loops.add(loop)
        choice = dot_rules.wgmma_choice(shape, self.warps, True)
        assert choice.lhs is not None
        mine = dot_rules.registers_of(choice.lhs, element_type(first.lhs.type))
        limit = dot_rules.accumulator_limit(self.warps, self.target)
        budget = budgets(self.warps)[0]
        if budget is not None:
            limit = min(limit, budget - dot_rules.RESERVED_REGISTERS)
        busy = max(sum(self._registers(dot, through[dot]) for dot in inside(loop, tile.DotOp)) for loop in loops)
        return mine <= REGISTER_OPERAND_LIMIT and busy + mine <= limit

    def _streamed(self, dots: Sequence[tile.DotOp]) -> list[tile.LoadOp]:
        """Loads of tiles in loops, beside dots by wgmma, that are worth a channel."""
        blocks = {dot.parent: None for dot in dots if dot_rules.takes_wgmma(dot, self.warps, self.target) and isinstance(dot.parent_op(), scf.ForOp)}
        found: list[tile.LoadOp] = []
        for block in blocks:
            assert block is not None
            for op in block.ops:
                if not isinstance(op, tile.LoadOp) or not isinstance(op.res.type, TensorType) or not _fills_zero(op) or pins.layout_of(op) is not None:
                    continue
                if pins.shared_of(op) is None and op.res.uses and not _beside_stores(op) and self._is_wide(op):
                    found.append(op)
        return found

    def _is_wide(self, load: tile.LoadOp) -> bool:
        """Whether a tile has rows enough for a copy by TMA to be worth its barrier."""
        shape, nbytes = shape_of(load.res.type), memory_bytes(element_type(load.res.type))
        return len(shape) == 2 and nbytes in (2, 4) and prod(shape) * nbytes >= STREAMED_BYTES

    def _stream(self, load: tile.LoadOp) -> async_copy.ChannelOp:
        """Lets a load come through a channel of its own, and its users read registers; gives the channel."""
        assert isinstance(load.res.type, TensorType)
        block = load.parent
        assert block is not None
        users = {_ancestor_in(use.operation, block) for use in load.res.uses}
        first = next(op for op in block.ops if op in users)
        channel = async_copy.ChannelOp.make(TensorType(load.res.type.element_type, load.res.type.get_shape()))
        put = async_copy.PutOp.make(channel.res, load.array, list(load.indices), None if load.dims is None else load.tile_dims())
        get = async_copy.GetOp.make(channel.res)
        read = async_copy.ReadOp.make(get.res)
        release = async_copy.ReleaseOp.make(channel.res, None)
        for op in (channel, put, get, read, release):
            _place(op, load)
        if (via := pins.words_of(load, pins.COPY)) is not None:
            put.properties["via"] = StringAttr(via)
        if load.res.name_hint:
            channel.res.name_hint, get.res.name_hint, read.res.name_hint = f"{load.res.name_hint}_channel", load.res.name_hint, load.res.name_hint
        block.insert_ops_before([put], load)
        block.insert_ops_before([get, read, release], first)
        load.res.replace_all_uses_with(read.res)
        load.detach()
        load.erase()
        return channel

    def _registers(self, dot: tile.DotOp, through: dict[int, tuple[_Key, tuple[int, ...]]]) -> int:
        """What a dot holds: its accumulator, and a left operand that does not come through shared memory."""
        choice = dot_rules.wgmma_choice(dot_rules.dot_shape(dot), self.warps, True)
        assert choice.lhs is not None
        acc = dot_rules.registers_of(choice.acc, element_type(dot.acc.type))
        return acc + (0 if 0 in through else dot_rules.registers_of(choice.lhs, element_type(dot.lhs.type)))

    def _transfer(self, key: _Key, transfer: _Transfer, held: bool) -> Operation:
        """Adds the channel, what fills it, and the get; of a tile that is `held` in registers the read, too. Gives the last op of the
        block that uses the buffer."""
        source, load = transfer.source, transfer.load
        assert isinstance(source.type, TensorType)
        users = transfer.users()
        at = load if load is not None else users[0]
        maker = source.owner
        pinned = pins.shared_of(maker) if isinstance(maker, Operation) else None
        kind = TensorType(source.type.element_type, source.type.get_shape())
        channel = async_copy.ChannelOp.make(kind if pinned is None else with_layout(kind, pinned))
        get = async_copy.GetOp.make(channel.res)
        if source.name_hint:
            channel.res.name_hint = f"{source.name_hint}_channel"
            get.res.name_hint = source.name_hint
        if load is not None:
            dims = None if load.dims is None else load.tile_dims()
            fill: Operation = async_copy.PutOp.make(channel.res, load.array, list(load.indices), dims)
            if (via := pins.words_of(load, pins.COPY)) is not None:
                fill.properties["via"] = StringAttr(via)
            transfer.block.insert_ops_before([fill], load)
            before = load.next_op
            while before is not users[0] and before is not None and not _stores(before):
                before = before.next_op
            assert before is not None, "the uses come after the load"
        else:
            fill = async_copy.WriteOp.make(channel.res, source)
            before = users[0]
            first_get = before  # writes stand together, and so do the gets, which then share a barrier
            while isinstance(first_get.prev_op, async_copy.GetOp):
                first_get = first_get.prev_op
            transfer.block.insert_ops_before([fill], first_get)
        transfer.block.insert_ops_before([get], before)
        for op in (channel, fill, get):
            _place(op, at)
        self.channels.append(channel)
        self.buffers[key] = get.res
        if not held:
            return users[-1]
        read = _place(async_copy.ReadOp.make(get.res), at)
        transfer.block.insert_ops_before([read], before)
        read.res.name_hint = source.name_hint
        self.held[key] = read.res
        return read

    def _rewrite(self, dot: tile.DotOp, through: dict[int, tuple[_Key, tuple[int, ...]]]) -> _Done:
        """Replaces the dot by one that reads the buffers of its operands `through` channels."""
        block = dot.parent
        assert block is not None
        wgmma = dot_rules.takes_wgmma(dot, self.warps, self.target)
        before = [dot.lhs, dot.rhs]
        operands = list(before)
        added: list[Operation] = []
        for index, (key, dims) in through.items():
            if key in self.held:
                operands[index] = self.held[key]
                continue
            buffer = self.buffers[key]
            if dims != tuple(range(len(dims))):
                added.append(async_copy.TransposeOp.make(buffer, dims))
                buffer = added[-1].results[0]
                buffer.name_hint = before[index].name_hint
            if not wgmma:
                added.append(async_copy.ReadOp.make(buffer))
                buffer = added[-1].results[0]
                buffer.name_hint = before[index].name_hint
            operands[index] = buffer
        token = None
        if wgmma:
            new: Operation = async_copy.DotOp.make(operands[0], operands[1], dot.acc)
            token = new.results[1]
            added += [new, async_copy.AwaitOp.make(new.results[0])]
        else:
            new = tile.DotOp.make(operands[0], operands[1], dot.acc)
            added.append(new)
        new.attributes.update(dot.attributes)
        block.insert_ops_before([_place(op, dot) for op in added], dot)
        result = added[-1].results[0]
        result.name_hint = dot.res.name_hint
        dot.res.replace_all_uses_with(result)
        dot.detach()
        dot.erase()
        for value in before:
            _erase_dead_transposes(value)
        return _Done(added[-1], token)


def _loop_round(op: Operation, block: Block) -> Operation | None:
    """The outermost loop round an op that stands in `block`."""
    op = _ancestor_in(op, block)
    return op if isinstance(op, scf.ForOp | scf.WhileOp) else None


def _place(op: OpT, at: Operation) -> OpT:
    """`op`, at the source location of `at`."""
    op.location = at.location
    return op


def _erase_with_transposes(op: Operation) -> None:
    """Erase a load whose dots read buffers now, and the transposes of it that nobody uses."""
    for use in list(op.results[0].uses):
        _erase_with_transposes(use.operation)
    op.detach()
    op.erase()


def _erase_dead_transposes(value: SSAValue) -> None:
    while isinstance(value, OpResult) and isinstance(value.op, tile.TransposeOp) and not value.uses:
        op = value.op
        value = op.source
        op.detach()
        op.erase()
