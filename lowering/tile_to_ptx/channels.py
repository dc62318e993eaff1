"""Lowering of channels: buffers in shared memory, what fills them, and the waits and barriers in between.

A channel is filled in one of four ways, and each has its own way to tell the readers:

    put via tma        one thread announces the bytes on the slot's mbarrier and issues the copies; a reader waits for the phase
    put via cp.async   every thread copies a part and commits a group; it waits for its groups, then all meet at a barrier
    put via ld         every thread loads a part and stores it to shared memory; all meet at a barrier
    write              likewise, from the registers that hold the tile

What threads write themselves is written through the generic proxy; `wgmma` reads through the async proxy, so a `fence.proxy.async` comes before the
barrier where it is a reader (PTX ISA 9.0 §9.7.13.4). A release waits for the dot of its token, then it is a barrier: after it nobody still reads
the slot, and it may be filled again. Runs of gets, and of releases, share one barrier, at the end of the run; a release of what an earlier trip
of the loop has read needs none if there was one in this trip already.

**Between roles.** Where one role fills a channel and another takes it, nobody meets at barriers. Each slot has two mbarriers: *full*, on which
the copies by TMA complete, as above (threads that fill a slot themselves meet at a barrier of their role, and one of them arrives), and *empty*, on which the readers arrive when they give the slot back: one thread of each warpgroup, once its dots
have read it, or of each warp, where warps read for themselves. A put first waits for the phase of *empty* that the release of the slot's former
use completes; a fresh mbarrier lets the first one pass (a wait for the parity of the phase before the first). Releases have a counter of
their own; one after the token of no operation neither arrives nor counts.

**In lockstep.** Channels that join-channels has put in one group have one set of mbarriers and one counter for each side. Their puts become one wait for the
slots and one announcement of the sum of their bytes, at the last of them; the first of their gets waits, and one arrival gives all slots back.

**In parts.** Where warpgroups read rows of their own (split-slots), each part of a slot has a *full* and an *empty* mbarrier: a get waits for the one of its warpgroup, and a put
waits, announces and copies part after part.

**In clusters.** A multicast put writes into the same slot of every block of the cluster, each block a part, and what each writes counts on the full mbarrier of the
block that it arrives in. So a slot is free when the readers of all blocks have given it back: they arrive on the empty mbarriers of all, one lane for
each. An arrival without a scope orders what was read before it, which is all that freeing asks for (nothing is published by it; measured: values
stored before it are not seen). Blocks meet once before anything is sent, so that no mbarrier is used before it is there, and before they end, since shared
memory goes with them.

**Slots and phases.** Slot n mod depth is filled by put n and read by get n; an mbarrier completes its phase n div depth, whose parity the reader waits
for. A counter runs from 0 to 2·depth - 1 and gives both; where depth is a power of two, it need not be set back. Puts and gets count apart, in `ctx.counters`, which control flow carries round loops and
through conditionals like any other value. With one slot a put needs no counter, and a get one only for TMA.

**Padding.** Readers may reach past the tile: instructions take whole steps. Where a dot would sum what lies there, or where it is never written, the
buffers are set to zero once, at the kernel's start, and what fills them writes inside the tile only. TMA writes whole boxes, as wide as the readers
reach, and is not used where zeros are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialects import async_copy, ptx, tile
from ...dialects.async_roles import role_of
from ...dialects.launch_plan import Requirement, TensorMapSpec
from ...dialects.layout import Mode, SharedLayout, TmaForm, TVLayout
from ...dialects.layout_attrs import ConvertOp, SharedLayoutAttr
from ...dialects.ptx import reg
from ...passes import async_waits, dot_rules
from ...passes.access import extent_divisor, memory_bytes
from ...passes.alloc_shared import slot_stride
from ...passes.box_parts import Part, cut_boxes
from ...passes.join_channels import Access, check_lockstep, lockstep_group, standing_with
from ...passes.split_slots import warpgroups_apart
from .context import PROXY_FENCE, Context, lowers
from .elements import pick_values
from .memory import distances, fill_registers, load_registers, plan_access
from .shared_access import plan_read, plan_shared, write_tile

UNROLLED_ZERO_STORES = 16
"""Stores of zeros that stand one after another; more go into a loop."""
COORDINATE_LIMIT = 0x7FF00000
"""Starts of TMA boxes are clamped to this: a multiple of every vector, past every extent that TMA is used for, and far enough below 2³¹ that the
offset of a box in its tile still fits."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel and where it lies: `offset` and `barrier` in bytes of the block's shared memory, `stride` bytes from slot to slot. `group`: the
    channels in lockstep with it, itself included; they have one set of mbarriers and counters. `via`: how it
    is filled. `by_descriptor`: wgmma reads it; `by_threads`: something else does. `between_roles`: one role fills it, another takes it; then `by_warp` says whether every warp
    gives its slots back for itself, or one thread for a warpgroup. `senders`: how many blocks fill its slots, or
    those of its group. `needs`: what its readers need."""

    op: async_copy.ChannelOp
    group: tuple[async_copy.ChannelOp, ...]
    layout: SharedLayout
    offset: int
    stride: int
    barrier: int | None
    via: str
    by_descriptor: bool
    by_threads: bool
    between_roles: bool
    by_warp: bool
    senders: int
    parts: int
    needs: dot_rules.ChannelNeeds

    @property
    def waits(self) -> bool:
        """Whether its readers wait for an mbarrier: what fills it are copies by TMA, or another role's threads."""
        return self.via == "tma" or self.between_roles

    @property
    def read_before_copies(self) -> bool:
        """Whether threads read its slots through the generic proxy, and copies fill them again through the async proxy, which does not wait for reads
        that are under way: not even an arrival on an mbarrier does, which comes after them in the program."""
        return self.via == "tma" and self.by_threads

    @property
    def depth(self) -> int:
        return self.op.depth.value.data

    @property
    def counted_as(self) -> SSAValue:
        """The channel of its group whose counters count."""
        return self.group[0].res

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.res.type.shape

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return memory_bytes(self.op.res.type.element)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A slot that was got: its number (b32), the shared address of the channel's first slot, the bytes from one slot to the next, and where
    elements lie in it."""

    slot: SSAValue
    start: SSAValue
    stride: int
    layout: SharedLayout

    def address(self, ctx: Context) -> SSAValue:
        """Its shared address, b32."""
        return ctx.add(self.start, ctx.mul(self.slot, self.stride))


def buffer_of(ctx: Context, value: SSAValue) -> Buffer:
    """The lowered form of an `!async.buffer`."""
    buffer = ctx.state[value]
    assert isinstance(buffer, Buffer)
    return buffer


def counted_as(ctx: Context, put: async_copy.PutOp) -> SSAValue:
    """The channel whose counters count what a put fills."""
    return _channel_of(ctx, put.channel).counted_as


def _channel_of(ctx: Context, value: SSAValue) -> Channel:
    channel = ctx.state[value]
    assert isinstance(channel, Channel)
    return channel


# ---- the channel itself ---------------------------------------------------------------------------------------------


@lowers(async_copy.ChannelOp)
def _channel(ctx: Context, op: async_copy.ChannelOp) -> None:
    kind = op.res.type
    if not isinstance(kind.layout, SharedLayoutAttr) or op.offset is None:
        raise ctx.error(op, f"{kind} has no place in shared memory", "run infer-layouts and alloc-shared before tile-to-ptx")
    fills = {
        "write" if isinstance(user, async_copy.WriteOp) else _via(ctx, user)
        for use in op.res.uses
        if isinstance(user := use.operation, async_copy.WriteOp | async_copy.PutOp)
    }
    if len(fills) > 1:
        raise ctx.error(op, f"the channel is filled in several ways: {', '.join(sorted(fills))}", "fill it in one way only")
    barrier = op.barrier.value.data if isinstance(op.barrier, IntegerAttr) else None
    readers = [reader for reader, _, _ in dot_rules.buffer_readers(op.res)]
    group = tuple(lockstep_group(op))
    channel = Channel(
        op,
        group,
        kind.layout.data,
        op.offset.value.data,
        slot_stride(op),
        barrier,
        next(iter(fills), "write"),
        any(isinstance(reader, async_copy.DotOp) for reader in readers),
        not all(isinstance(reader, async_copy.DotOp) for reader in readers),
        op.joins_roles(),
        not all(isinstance(reader, async_copy.DotOp) for member in group for reader, _, _ in dot_rules.buffer_readers(member.res)),
        max((_senders(ctx, put) for member in group for put in member.fills() if isinstance(put, async_copy.PutOp)), default=1),
        op.part_count,
        dot_rules.channel_needs(op.res, ctx.target),
    )
    ctx.state[op.res] = channel
    if op is not group[0]:
        check_lockstep(op)
    elif channel.between_roles:
        _check_roles(ctx, channel)
        for side in ("put", "get", "release"):
            ctx.counters[(op.res, side)] = ctx.const(0)
    elif channel.depth > 1:
        ctx.counters[(op.res, "put")] = ctx.counters[(op.res, "get")] = ctx.const(0)
    elif channel.via == "tma":
        ctx.counters[(op.res, "get")] = ctx.const(0)
    if channel.waits:
        if channel.barrier is None:
            raise ctx.error(op, "the channel has no mbarrier, but TMA or another role fills it", "run alloc-shared after the puts are chosen")
        for number in range(channel.depth * channel.parts if op is group[0] else 0):
            address = ctx.shared_address(channel.barrier + 8 * number)
            ctx.inst("mbarrier.init.shared::cta.b64", [address, ctx.const(1)], guard=ctx.leader())
            if channel.between_roles:
                ctx.inst(
                    "mbarrier.init.shared::cta.b64",
                    [address, ctx.const(_arrivals(channel))],
                    offsets=[8 * channel.depth * channel.parts],
                    guard=ctx.leader(),
                )
    if channel.via != "tma" and channel.layout.shape() != channel.shape:
        _zero(ctx, channel.offset, channel.stride * channel.depth)
    if not isinstance(op.next_op, async_copy.ChannelOp):
        _publish(ctx)


def _check_roles(ctx: Context, channel: Channel) -> None:
    """Raises TeselaError unless a role fills it and a role takes it, each warpgroup a part of its own if it has parts, and the target's mbarriers can be waited for."""
    if not ctx.target.has_mbarrier:
        raise ctx.error(channel.op, f"{ctx.target.name} has no roles: they need what came with sm_90", "fill the channel where it is taken")
    if any(role_of(op) is None for op in (*channel.op.fills(), *channel.op.takers())):
        raise ctx.error(channel.op, "a channel that a role uses must be filled and taken in roles", "move all of its operations into roles")
    if channel.parts > 1 and channel.parts != (apart := warpgroups_apart(channel.op)):
        found = f"{apart} read parts of their own" if apart > 1 else "they do not read parts of their own"
        raise ctx.error(channel.op, f"the channel has a part for each of {channel.parts} warpgroups, but {found}", "leave parts out")


def _senders(ctx: Context, put: async_copy.PutOp) -> int:
    """How many blocks a put's tile comes from. Raises TeselaError where the blocks form no such cluster."""
    if put.multicast is None:
        return 1
    blocks, shape = put.multicast.value.data, tile.cluster_shape(ctx.kernel)
    if shape is None or prod(shape) != blocks or not tile.walks_its_grid(ctx.kernel):
        raise ctx.error(put, f"the put is for clusters of {blocks} blocks, but the kernel's blocks do not walk the grid in such", "run form-clusters, then persist-grid")
    if role_of(put) is None:
        raise ctx.error(put, "a multicast put stands outside of roles", "let one role fill the channel and another take what it holds")
    return blocks


def _arrivals(channel: Channel) -> int:
    """How many threads arrive to give a slot, or a part of it, back."""
    warps = dot_rules.block_warps(channel.op.takers()[0]) // channel.parts
    return channel.senders * (warps if channel.by_warp else warps // dot_rules.WARPGROUP_WARPS)


def _via(ctx: Context, put: async_copy.PutOp) -> str:
    if put.via is None:
        raise ctx.error(put, "how the put copies is not chosen", "run infer-layouts before tile-to-ptx")
    return put.via.data


def _zero(ctx: Context, offset: int, nbytes: int) -> None:
    """Zeros over `nbytes` (a multiple of 16) of shared memory, by all threads."""
    zero = ctx.splat(ctx.const(0), 4)
    start = ctx.add(ctx.shared_address(offset), ctx.shl(ctx.tid(), 4))
    step = 16 * ctx.threads
    whole, rest = divmod(nbytes, step)
    if whole <= UNROLLED_ZERO_STORES:
        for i in range(whole):
            ctx.inst("st.shared.v4.b32", [start, zero], offsets=[i * step])
    else:

        def body(counter: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            ctx.inst("st.shared.v4.b32", [ctx.add(start, counter), zero])
            return carried

        ctx.for_(ctx.const(0), ctx.const(whole * step), ctx.const(step), [], body)
    if rest:
        guard = ctx.compare("lt", "s32", ctx.tid(), rest // 16)
        ctx.inst("st.shared.v4.b32", [start, zero], offsets=[whole * step], guard=guard)


def _publish(ctx: Context) -> None:
    """After the last channel: all threads, and TMA, see the mbarriers and the zeros."""
    channels = [channel for channel in ctx.state.values() if isinstance(channel, Channel)]
    barriers = any(channel.waits for channel in channels)
    zeroed = [channel for channel in channels if channel.via != "tma" and channel.layout.shape() != channel.shape]
    ctx.location = ctx.kernel.location  # it is for all channels, not for the last
    if barriers:
        ctx.inst("fence.mbarrier_init.release.cluster", guard=ctx.leader())
    if any(channel.by_descriptor for channel in zeroed):
        ctx.inst(PROXY_FENCE)
    if any(channel.senders > 1 for channel in channels):
        if zeroed:
            ctx.barrier()
        ctx.inst("barrier.cluster.arrive.relaxed.aligned")
        ctx.inst("barrier.cluster.wait.aligned")
    elif barriers or zeroed:
        ctx.barrier()


# ---- slots and phases -----------------------------------------------------------------------------------------------


def _advance(ctx: Context, channel: Channel, side: str) -> tuple[SSAValue, SSAValue]:
    """(slot, parity) of the next put or get, both b32; counts it."""
    key = (channel.counted_as, side)
    if key not in ctx.counters:
        return ctx.const(0), ctx.const(0)
    count = ctx.counters[key]
    if channel.depth == 1:
        ctx.counters[key] = ctx.xor(count, 1)
        return ctx.const(0), count
    if channel.depth & (channel.depth - 1) == 0:
        ctx.counters[key] = ctx.add(count, 1)
        return ctx.and_(count, channel.depth - 1), ctx.and_(ctx.shr(count, channel.depth.bit_length() - 1), 1)
    second = ctx.compare("ge", "s32", count, channel.depth)
    slot = ctx.inst("selp.b32", [ctx.sub(count, channel.depth), count, second], [reg("b32")])
    parity = ctx.inst("selp.b32", [ctx.const(1), ctx.const(0), second], [reg("b32")])
    following = ctx.add(count, 1)
    wraps = ctx.compare("eq", "s32", following, 2 * channel.depth)
    ctx.counters[key] = ctx.inst("selp.b32", [ctx.const(0), following, wraps], [reg("b32")])
    return slot, parity


def _slot_address(ctx: Context, channel: Channel, slot: SSAValue) -> SSAValue:
    return ctx.add(ctx.shared_address(channel.offset), ctx.mul(slot, channel.stride))


def _in_lockstep(ctx: Context, op: Access) -> list[Access]:
    """The accesses of the channels of its group that stand together with `op`, in order."""
    channel = _channel_of(ctx, op.channel)
    if len(channel.group) == 1:
        return [op]
    return [other for other in standing_with(op) if other.channel.owner in channel.group]


def _barrier_address(ctx: Context, channel: Channel, slot: SSAValue, empty: bool = False, part: SSAValue | None = None) -> SSAValue:
    """The address of a slot's mbarrier, or of a part of it: the one that its copies complete on, or that its readers arrive on."""
    assert channel.barrier is not None
    if part is not None:
        slot = ctx.add(ctx.mul(slot, channel.parts), part)
    return ctx.add(ctx.shared_address(channel.barrier + 8 * channel.depth * channel.parts * empty), ctx.shl(slot, 3))


def _own_part(ctx: Context, channel: Channel) -> SSAValue | None:
    """The part of slots that a warpgroup reads; None where they have one part."""
    return ctx.warpgroup() if channel.parts > 1 else None


# ---- filling --------------------------------------------------------------------------------------------------------


MOST_UNDER_WAY = 16
"""Elements that a thread copies through registers at a time: enough to hide most of the latency of memory where several warps do so (estimate); each takes a
register, beside the accumulators of dots that are under way."""


@lowers(async_copy.PutOp)
def _put(ctx: Context, op: async_copy.PutOp) -> None:
    channel = _channel_of(ctx, op.channel)
    via = _via(ctx, op)
    align = ctx.stride_align(op.array)
    choice = dot_rules.choose_put(op, channel.layout, channel.needs, ctx.target, ctx.divisor, align)
    name = ctx.argument_name(op.array)
    if choice.reason is not None:
        if via == "tma":
            raise ctx.error(op, f"TMA cannot load this tile of %{name}: {choice.reason}", f'write via "{choice.via}"')
        ctx.note(f"%{name} is loaded by {via}: {choice.reason}")
    if via == "tma":
        together = _in_lockstep(ctx, op)
        if op is together[-1]:
            _put_tma(ctx, together)
        return
    slot = _free_slot(ctx, channel)
    address = _slot_address(ctx, channel, slot)
    ctx.order_access(op.array, "r")
    if via == "cp.async":
        width = dot_rules.copy_bytes(op, channel.layout, ctx.divisor, align)
        if width not in dot_rules.CP_ASYNC_BYTES:
            raise ctx.error(op, f"cp.async cannot load this tile of %{name}: {choice.reason}", 'write via "ld"')
        _put_cp_async(ctx, op, channel, address, width)
    else:
        _put_ld(ctx, op, channel, address)
    _hand_over(ctx, channel, slot)


def _free_slot(ctx: Context, channel: Channel) -> SSAValue:
    """The slot that the threads fill next; between roles, once the other has given it back."""
    slot, parity = _advance(ctx, channel, "put")
    if channel.between_roles:
        ctx.add_op(ptx.WaitParityOp.make(_barrier_address(ctx, channel, slot, empty=True), ctx.xor(parity, 1)))
    return slot


def _hand_over(ctx: Context, channel: Channel, slot: SSAValue) -> None:
    """Between roles: tells the readers of a slot that all threads have filled it."""
    if not channel.between_roles:
        return
    if channel.via == "cp.async":
        ctx.inst("cp.async.wait_group", imms=[0])
    if channel.by_descriptor:
        ctx.inst(PROXY_FENCE)
    ctx.barrier()
    ctx.inst("mbarrier.arrive.shared::cta.b64", [_barrier_address(ctx, channel, slot)], guard=ctx.leader())


def _put_tma(ctx: Context, puts: Sequence[Access]) -> None:
    """Puts by TMA of channels in lockstep, with one wait for their slots and one announcement of all their bytes; of one in parts, part after part."""
    first = _channel_of(ctx, puts[0].channel)
    slot, parity = _advance(ctx, first, "put")

    def fill() -> None:
        copies = [_TmaCopy.of(ctx, put, slot) for put in puts if isinstance(put, async_copy.PutOp)]
        for number in range(first.parts):
            _fill_part(ctx, first, copies, slot, parity, ctx.const(number) if first.parts > 1 else None)

    if (issuer := ctx.issuers.get(first.counted_as)) is None:
        fill()
    else:
        ctx.if_(ctx.compare("eq", "s32", ctx.warp(), issuer), fill)


def _fill_part(ctx: Context, channel: Channel, copies: Sequence[_TmaCopy], slot: SSAValue, parity: SSAValue, part: SSAValue | None) -> None:
    """Waits until a slot, or a part of it, is free, and issues the copies into it."""
    barrier = _barrier_address(ctx, channel, slot, part=part)
    if channel.between_roles:
        ctx.add_op(ptx.WaitParityOp.make(_barrier_address(ctx, channel, slot, empty=True, part=part), ctx.xor(parity, 1)))

    def issue() -> None:
        nbytes = sum(copy.nbytes for copy in copies) // channel.parts
        ctx.inst("mbarrier.arrive.expect_tx.shared::cta.b64", [barrier, ctx.const(nbytes)])
        for copy in copies:
            copy.issue(ctx, barrier, part)

    ctx.if_(ctx.leader(), issue)


@dataclass(frozen=True, slots=True)
class _TmaCopy:
    """A put by TMA into the slot at `address`: a copy for each box of the buffer, or, if it is multicast or its channel has parts, of a `part` of each."""

    put: async_copy.PutOp
    layout: SharedLayout
    form: TmaForm
    part: Part | None
    tensormap: SSAValue
    address: SSAValue

    @staticmethod
    def of(ctx: Context, put: async_copy.PutOp, slot: SSAValue) -> _TmaCopy:
        channel = _channel_of(ctx, put.channel)
        form = channel.layout.tma_form(channel.size)
        assert form is not None, "choose_put has checked it"
        of, others = put.tile_dims(), _other_dims(put)
        blocks = _senders(ctx, put)
        pieces = max(blocks, channel.parts)
        part = cut_boxes(channel.layout, channel.size, pieces) if pieces > 1 else None
        if pieces > 1 and part is None:
            raise ctx.error(put, f"the tile cannot be loaded in {pieces} parts", f"leave {'multicast' if blocks > 1 else 'parts'} out")
        extents = {} if part is None else {part.dim: part.extent}
        box = (*(extents.get(d, form.box[d]) for d in form.order), *(1 for _ in others))
        spec = TensorMapSpec(ctx.argument_name(put.array), (*(of[d] for d in form.order), *others), box, form.swizzle_bytes)
        tensormap = ctx.tensormap(put.array, spec)
        ctx.require(Requirement("align", spec.arg, 16))
        require_coordinates(ctx, put.array)
        return _TmaCopy(put, channel.layout, form, part, tensormap, _slot_address(ctx, channel, slot))

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return memory_bytes(self.put.array.type.element_type)

    @property
    def nbytes(self) -> int:
        """What the copies of all blocks that send write into one of them, past the array's edges too."""
        return self.size * len(self.form.starts) * prod(self.form.box)

    def issue(self, ctx: Context, barrier: SSAValue, number: SSAValue | None) -> None:
        """The copies, which complete on `barrier`, of all of the tile or of part `number` of it; by one thread."""
        of, others = self.put.tile_dims(), _other_dims(self.put)
        starts = [coordinate(ctx, index) for index in self.put.indices]
        rank = len(of) + len(others)
        opcode = dot_rules.tma_load_opcode(rank, cluster=self.put.multicast is not None)
        address, mask = self.address, []
        if self.put.multicast is not None:
            opcode += ".multicast::cluster"
            number = ctx.special("%cluster_ctarank")
            mask = [ctx.const((1 << self.put.multicast.value.data) - 1, "b16")]
        if self.part is not None and number is not None:
            starts[of[self.part.dim]] = ctx.add(starts[of[self.part.dim]], ctx.mul(number, self.part.extent))
            address = ctx.add(address, ctx.mul(number, self.part.nbytes))
        for start in self.form.starts:
            coords = [ctx.add(starts[of[d]], start[d]) for d in self.form.order] + [starts[d] for d in others]
            target = ctx.add(address, self.layout.offset(start) * self.size)
            ctx.inst(opcode, [target, self.tensormap, ctx.concat(coords), barrier, *mask])


def _other_dims(put: async_copy.PutOp) -> list[int]:
    """The array's dimensions of which the tile has one place."""
    of = put.tile_dims()
    return [d for d in range(put.array.type.get_num_dims()) if d not in of]


def require_coordinates(ctx: Context, array: SSAValue) -> None:
    """What the launcher must check: that TMA coordinates reach all of the array."""
    for expr in ctx.shape_of_array(array):
        for symbol in expr.symbols():
            ctx.require(Requirement("max_dim", symbol, COORDINATE_LIMIT))


def coordinate(ctx: Context, index: SSAValue) -> SSAValue:
    """An index as a TMA coordinate, b32: what does not fit 32 bits is past every edge."""
    value = ctx.min_(ctx.get(index), COORDINATE_LIMIT)
    if not ctx.facts.nonnegative(index):
        value = ctx.max_(value, -COORDINATE_LIMIT)
    return ctx.narrow(value)


def _put_cp_async(ctx: Context, op: async_copy.PutOp, channel: Channel, address: SSAValue, width: int) -> None:
    vector = width // channel.size
    layout = dot_rules.copy_layout(channel.layout, channel.shape, ctx.threads, vector, dot_rules.contiguous_dim(op))
    indices, of = tuple(op.indices), op.tile_dims()
    source = plan_access(ctx, op.array, indices, of, layout, channel.shape, vector)
    target = plan_shared(ctx, address, channel.layout, channel.size, layout, vector, channel.shape)
    coords = [layout.value_coords(value) for value in range(0, layout.num_values, vector)]
    inner = dot_rules.contiguous_dim(op)
    assert inner is not None, "copies of several elements are along a unit stride"
    inside = source.inside
    whole = extent_divisor(ctx.kernel, op.array, of[inner]) % vector == 0
    holder = ctx.first_holder(layout)
    _, after = distances(ctx, op.array, of[inner], indices[of[inner]], layout, inner, channel.shape[inner])
    opcode = dot_rules.cp_async_opcode(width)
    sizes: dict[int, SSAValue] = {}
    for i, coord in enumerate(coords):
        destination = ctx.add(_one(ctx, target.address, i), target.offsets[i])
        origin = ctx.add(_one(ctx, source.address, i), source.offsets[i])
        guard = ctx.both(_maybe_one(ctx, target.inside, i), holder)
        predicate = _maybe_one(ctx, inside, i)
        if predicate is None:
            ctx.inst(opcode, [destination, origin], imms=[width], guard=guard)
            continue
        if whole:
            nbytes = ctx.const(width)
        else:
            at = coord[inner]
            if at not in sizes:
                sizes[at] = ctx.mul(ctx.min_(ctx.sub(after, at), vector), channel.size)
            nbytes = sizes[at]
        size = ctx.inst("selp.b32", [nbytes, ctx.const(0), predicate], [reg("b32")])
        ctx.inst(opcode, [destination, origin, size], imms=[width], guard=guard)
    ctx.inst("cp.async.commit_group")


def _one(ctx: Context, registers: SSAValue, index: int) -> SSAValue:
    return ctx.pick(registers, [index]) if registers.type.count > 1 else registers


def _maybe_one(ctx: Context, registers: SSAValue | None, index: int) -> SSAValue | None:
    return None if registers is None else _one(ctx, registers, index)


def _put_ld(ctx: Context, op: async_copy.PutOp, channel: Channel, address: SSAValue) -> None:
    kind, size = op.array.type.element_type, channel.size
    words = max(1, 4 // size)  # so that shared memory is written by words
    inner, rows = dot_rules.contiguous_of(channel.layout, len(channel.shape) - 1), dot_rules.contiguous_dim(op)
    if rows is not None and rows != inner and words > 1:
        _put_transposed(ctx, op, channel, address, inner, rows)
        return
    layout = dot_rules.copy_layout(channel.layout, channel.shape, ctx.threads, words, rows)
    n = layout.num_values
    access = plan_access(ctx, op.array, tuple(op.indices), op.tile_dims(), layout, channel.shape, 1)
    for part in _parts(n):
        value = load_registers(ctx, kind, len(part), access.part(ctx, part), fill_registers(ctx, kind, len(part), None))
        write_tile(ctx, address, channel.layout, layout, channel.shape, value, ctx.first_holder(layout), size, part if len(part) < n else None)


def _parts(n: int) -> list[range]:
    """A thread's values in the parts in which they are copied through registers."""
    return [range(start, min(start + MOST_UNDER_WAY, n)) for start in range(0, n, MOST_UNDER_WAY)]


def _put_transposed(ctx: Context, op: async_copy.PutOp, channel: Channel, address: SSAValue, inner: int, rows: int) -> None:
    """A tile contiguous along `rows` in the array, along `inner` in the buffer. Each thread takes square blocks of as many elements a side as fill a word:
    neighbouring threads load neighbouring words of the array, if its alignment is known, and what a thread stores are words, too."""
    kind, size, shape = op.array.type.element_type, channel.size, channel.shape
    side = 4 // size
    order = (rows, *(d for d in reversed(range(len(shape))) if d != rows))
    blocks = tuple(-(-extent // side) if d in (inner, rows) else extent for d, extent in enumerate(shape))
    over = TVLayout.blocked(blocks, ctx.threads, order, 1)

    def scaled(mode: Mode) -> Mode:
        return Mode(mode.extent, tuple(step * side if d in (inner, rows) else step for d, step in enumerate(mode.stride)))

    def along(dim: int) -> Mode:
        return Mode(side, tuple(int(d == dim) for d in range(len(shape))))

    thread, more = tuple(map(scaled, over.thread)), tuple(map(scaled, over.value))
    loaded, stored = TVLayout(thread, (along(rows), along(inner), *more)), TVLayout(thread, (along(inner), along(rows), *more))
    n = loaded.num_values
    align, of = ctx.stride_align(op.array), op.tile_dims()
    whole = all(known % side == 0 for known in (ctx.divisor(op.indices[of[rows]]), extent_divisor(ctx.kernel, op.array, of[rows]), shape[rows]))
    vector = side if whole and dot_rules.known_align(op, align) % 4 == 0 else 1
    access = plan_access(ctx, op.array, tuple(op.indices), of, loaded, shape, vector)
    value = load_registers(ctx, kind, n, access, fill_registers(ctx, kind, n, None))
    order_of = {loaded.value_coords(v): v for v in range(n)}
    turned = pick_values(ctx, value, kind, n, [order_of[stored.value_coords(v)] for v in range(n)])
    write_tile(ctx, address, channel.layout, stored, shape, turned, ctx.first_holder(stored), size)


@lowers(async_copy.WriteOp)
def _write(ctx: Context, op: async_copy.WriteOp) -> None:
    channel = _channel_of(ctx, op.channel)
    slot = _free_slot(ctx, channel)
    layout = ctx.layout(op.value)
    write_tile(
        ctx,
        _slot_address(ctx, channel, slot),
        channel.layout,
        layout,
        channel.shape,
        ctx.get(op.value),
        ctx.first_holder(layout),
        channel.size,
    )
    _hand_over(ctx, channel, slot)


# ---- reading --------------------------------------------------------------------------------------------------------


def _run(op: Operation) -> Iterator[Operation]:
    """The ops of the same kind that follow `op` without another in between."""
    following = op.next_op
    while following is not None and type(following) is type(op):
        yield following
        following = following.next_op


@lowers(async_copy.GetOp)
def _get(ctx: Context, op: async_copy.GetOp) -> None:
    channel = _channel_of(ctx, op.channel)
    first = _in_lockstep(ctx, op)[0]
    if op is first:
        slot, parity = _advance(ctx, channel, "get")
        ctx.slots[channel.counted_as] = slot
    else:
        slot, parity = ctx.slots[channel.counted_as], None
    ctx.state[op.res] = Buffer(slot, ctx.shared_address(channel.offset), channel.stride, channel.layout)
    if channel.waits:
        if parity is not None:
            ctx.add_op(ptx.WaitParityOp.make(_barrier_address(ctx, channel, slot, part=_own_part(ctx, channel)), parity))
        return
    if channel.via == "cp.async":
        later = op.later.value.data if op.later is not None else _later_groups(ctx, op)
        ctx.inst("cp.async.wait_group", imms=[later])
    later = [_channel_of(ctx, other.channel) for other in _run(op) if isinstance(other, async_copy.GetOp)]
    later = [other for other in later if not other.waits]
    if channel.by_descriptor and not any(other.by_descriptor for other in later):
        ctx.inst(PROXY_FENCE)
    if not later:
        ctx.barrier()


def _later_groups(ctx: Context, get: async_copy.GetOp) -> int:
    """How many groups of cp.async are committed, on the straight way from the put to its get, after the put's; 0 where they are not in one
    block."""
    if _channel_of(ctx, get.channel).depth > 1:
        return 0
    count = 0
    op = get.prev_op
    while op is not None:
        if isinstance(op, async_copy.PutOp):
            if op.channel is get.channel:
                return count
            count += _via(ctx, op) == "cp.async"
        elif op.regions:
            return 0
        op = op.prev_op
    return 0


@lowers(async_copy.TransposeOp)
def _transpose(ctx: Context, op: async_copy.TransposeOp) -> None:
    source = buffer_of(ctx, op.source)
    ctx.state[op.res] = replace(source, layout=source.layout.permute(op.order))


@lowers(async_copy.ReadOp)
def _read(ctx: Context, op: async_copy.ReadOp) -> None:
    buffer = buffer_of(ctx, op.source)
    if _feeds_the_next_dot(op):  # the dot reads step by step, which takes fewer registers
        ctx.state[op.res] = buffer
    else:
        ctx.set(op.res, plan_read(ctx, buffer.address(ctx), buffer.layout, ctx.layout(op.res), memory_bytes(op.res.type.element_type)).emit(ctx))


def _feeds_the_next_dot(op: async_copy.ReadOp) -> bool:
    """Whether the tile's only use is as an operand of a dot, with nothing but reads in between."""
    uses = list(op.res.uses)
    if len(uses) != 1 or not isinstance(uses[0].operation, tile.DotOp) or uses[0].index == 2:
        return False
    following = op.next_op
    while isinstance(following, async_copy.ReadOp | async_copy.TransposeOp | ConvertOp):
        following = following.next_op
    return following is uses[0].operation


@lowers(async_copy.ReleaseOp)
def _release(ctx: Context, op: async_copy.ReleaseOp) -> None:
    if any(True for _ in _run(op)):
        return
    releases = [op, *_released_before(op)]
    depths = [ctx.waits[release] for release in releases if release in ctx.waits]
    if depths:
        ctx.inst("wgmma.wait_group.sync.aligned", imms=[min(depths)])
    between = [release for release in releases if _channel_of(ctx, release.channel).between_roles]
    refilled = [release for release in releases if release not in between and _refilled(release)]
    met = [release for release in refilled if _met_since(ctx, release)]
    meeting = [release for release in refilled if release not in met]
    if any(_channel_of(ctx, release.channel).read_before_copies for release in met):
        ctx.fence_reads(before=ctx.last_barrier)
    if any(_channel_of(ctx, release.channel).read_before_copies for release in (*between, *meeting)):
        ctx.fence_reads()
    if meeting:
        ctx.barrier()
    if any(_channel_of(ctx, release.channel).by_warp for release in between):
        ctx.inst("bar.warp.sync", [ctx.const(0xFFFFFFFF)])
    given_back = {_channel_of(ctx, release.channel).counted_as: release for release in between}
    for release in reversed(given_back.values()):
        _arrive(ctx, release)


def _arrive(ctx: Context, release: async_copy.ReleaseOp) -> None:
    """Gives a slot, and those of the channels in lockstep, back to the role that fills them."""
    if release.token is not None and async_waits.is_no_operation(release.token):
        return
    channel = _channel_of(ctx, release.channel)
    key = (channel.counted_as, "release")
    before = ctx.counters[key]
    slot, _ = _advance(ctx, channel, "release")
    if channel.senders > 1:
        one = _first_lanes(ctx, channel)
    else:
        one = ctx.elected() if channel.by_warp else ctx.warpgroup_leader()
    if release.token in ctx.flagged:
        happened = ctx.get(release.token)
        one = ctx.both(one, happened)
        ctx.counters[key] = ctx.inst("selp.b32", [ctx.counters[key], before, happened], [reg("b32")])
    if channel.senders > 1:
        ctx.inst("mbarrier.arrive.shared::cluster.b64", [ctx.add(_barriers_of_lane(ctx, channel), ctx.shl(slot, 3))], guard=one)
    else:
        ctx.inst("mbarrier.arrive.shared::cta.b64", [_barrier_address(ctx, channel, slot, empty=True, part=_own_part(ctx, channel))], guard=one)


def _first_lanes(ctx: Context, channel: Channel) -> SSAValue:
    """A predicate that holds in as many lanes as blocks are to be told: of each warp, or of the first of each warpgroup."""

    def make() -> SSAValue:
        few = ctx.compare("lt", "s32", ctx.lane(), channel.senders)
        found = few if channel.by_warp else ctx.both(few, ctx.compare("eq", "s32", ctx.and_(ctx.warp(), 3), 0))
        assert found is not None
        return found

    return ctx.once(("first lanes", channel.senders, channel.by_warp), make)


def _barriers_of_lane(ctx: Context, channel: Channel) -> SSAValue:
    """The address, in the cluster's window, of the channel's empty mbarriers in the block whose number in the cluster is the lane's."""
    assert channel.barrier is not None
    offset = channel.barrier + 8 * channel.depth

    def make() -> SSAValue:
        return ctx.inst("mapa.shared::cluster.u32", [ctx.shared_address(offset), ctx.and_(ctx.lane(), channel.senders - 1)], [reg("b32")])

    return ctx.once(("barriers of the lane", offset), make)


def _released_before(op: Operation) -> Iterator[async_copy.ReleaseOp]:
    before = op.prev_op
    while isinstance(before, async_copy.ReleaseOp):
        yield before
        before = before.prev_op


def _met_since(ctx: Context, release: async_copy.ReleaseOp) -> bool:
    """Whether all threads have met at a barrier since the slot was read: in an earlier trip, with a barrier in this trip already."""
    token = release.token
    carried = isinstance(token, BlockArgument) and token.block is release.parent and async_waits.never_waits(token)
    return carried and ctx.last_barrier is not None and ctx.last_barrier.parent is ctx.block


def _refilled(release: Operation) -> bool:
    """Whether the channel may be filled again after the release."""
    assert isinstance(release, async_copy.ReleaseOp)
    fills = [use.operation for use in release.channel.uses]
    return any(
        dot_rules.may_precede(release, fill) for fill in fills if isinstance(fill, async_copy.PutOp | async_copy.WriteOp)
    )
