"""join-channels: channels that move in step share their mbarriers, and the counting of slots.

A channel between roles costs each trip a wait for its slot, an announcement of bytes, an arrival to give the slot back, and for each of these the
address of an mbarrier and a step of a counter. A loop that loads two operands for one dot fills both slots at one place, waits for both, and gives
both back at one place, so that one wait says what two do. Such channels form a *lockstep* group:

    %a = async.channel depth 4              %a = async.channel depth 4 lockstep 0          put a, b    one announcement of the sum of their bytes
    %b = async.channel depth 4       →      %b = async.channel depth 4 lockstep 0          get a, b    one wait
    %c = async.channel depth 2              %c = async.channel depth 2                     release     one arrival

**Which.** Channels that TMA fills, in one part, of one depth, in the same roles, whose operations stand together: wherever one is put, got or released, each of the
others is too, once, with nothing between that waits: scalar computations, and between gets also dots that are issued. Then number n of one is filled with number n of the other, and the slots of both are
free from the same place on, so that a wait for both is over when the later of two waits would be; no role waits for what it did not wait for
before. Releases must also agree on *whether* they give a slot back: of tokens that control flow carries, the initial ones and those handed on
must be events at the same places.

The kernel's attribute `join_channels = false` rules groups out, as the pass's option `when=never` does. A group is named by a number; it shares the mbarriers, and alloc-shared lays its slots one beside the other, so that one offset finds all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.traits import is_side_effect_free

from ..dialects import async_copy
from ..dialects.diagnostics import TeselaError
from ..dialects.inside import inside, kernels_in
from .base import Pass, PassContext
from .specialize_warps import stated

Access = async_copy.PutOp | async_copy.GetOp | async_copy.ReleaseOp
KINDS = (async_copy.PutOp, async_copy.GetOp, async_copy.ReleaseOp)


@dataclass
class JoinChannels(Pass):
    """Let channels that are filled, taken and given back together share mbarriers. `when`: wherever it is possible, or not at all."""

    name: ClassVar[str] = "join-channels"
    when: Literal["auto", "never"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in kernels_in(module):
            if self.when == "never" or stated(kernel, "join_channels") is False:
                continue
            channels = [op for op in inside(kernel, async_copy.ChannelOp) if op.lockstep is None and op.parts is None]
            taken = {op.lockstep.value.data for op in inside(kernel, async_copy.ChannelOp) if op.lockstep is not None}
            number = max(taken, default=-1) + 1
            for group in _groups(channels):
                for channel in group:
                    channel.properties["lockstep"] = IntegerAttr(number, i64)
                number += 1


def _groups(channels: Sequence[async_copy.ChannelOp]) -> Iterator[list[async_copy.ChannelOp]]:
    """The channels that move in step, two or more together."""
    by_places: dict[object, list[list[async_copy.ChannelOp]]] = {}
    for channel in channels:
        places = _places(channel)
        if places is None:
            continue
        groups = by_places.setdefault((channel.parent, channel.depth.value.data, places), [])
        mine = next((group for group in groups if _release_alike(group[0], channel)), None)
        if mine is None:
            groups.append([channel])
        else:
            mine.append(channel)
    for groups in by_places.values():
        yield from (group for group in groups if len(group) > 1)


def lockstep_group(channel: async_copy.ChannelOp) -> list[async_copy.ChannelOp]:
    """The channels that share mbarriers with one, itself included, in the order of the text."""
    block = channel.parent
    if channel.lockstep is None or block is None:
        return [channel]
    return [op for op in block.ops if isinstance(op, async_copy.ChannelOp) and op.lockstep == channel.lockstep]


def check_lockstep(channel: async_copy.ChannelOp) -> None:
    """Raises TeselaError unless the channels of its group do move in step."""
    places = _places(channel)
    for other in lockstep_group(channel):
        if other is channel:
            continue
        reason = None
        if other.depth != channel.depth:
            reason = f"they have {channel.depth.value.data} and {other.depth.value.data} slots"
        elif places is None or _places(other) != places:
            reason = "they are not put by TMA, got and released together wherever one of them is"
        elif not _release_alike(channel, other):
            reason = "their releases are after tokens that are not events at the same time"
        if reason is not None:
            raise TeselaError.at(other, f"channels of lockstep group {channel.lockstep.value.data} do not move in step: {reason}", "leave lockstep out")


def standing_with(op: Access) -> list[Access]:
    """The accesses of its kind that stand together with `op`, itself included, in order: between them is nothing that waits."""
    before: list[Access] = []
    other = op.prev_op
    while other is not None and _continues(op, other):
        if type(other) is type(op):
            before.append(other)
        other = other.prev_op
    after: list[Access] = []
    other = op.next_op
    while other is not None and _continues(op, other):
        if type(other) is type(op):
            after.append(other)
        other = other.next_op
    return [*reversed(before), op, *after]


def _continues(op: Access, other: Operation) -> bool:
    """Whether accesses stand together across `other`. Releases are one after another, since they wait; a dot is only issued."""
    if type(other) is type(op):
        return True
    match op:
        case async_copy.PutOp():
            return _is_scalar(other)
        case async_copy.GetOp():
            return _is_scalar(other) or isinstance(other, async_copy.DotOp)
        case _:
            return False


def _is_scalar(op: Operation) -> bool:
    return not op.regions and (is_side_effect_free(op) or op.name.startswith("arith."))


def _places(channel: async_copy.ChannelOp) -> tuple[tuple[Operation, ...], ...] | None:
    """For each kind of access the first of those that stand together, in no order of its own; None where the channel cannot be in a group."""
    users = [use.operation for use in channel.res.uses]
    if not users or any(not isinstance(user, KINDS) for user in users):
        return None
    if any(isinstance(user, async_copy.PutOp) and (user.via is None or user.via.data != "tma") for user in users):
        return None
    if any(isinstance(user, async_copy.GetOp) and user.later is not None for user in users):
        return None
    found = []
    for kind in KINDS:
        firsts = [standing_with(user)[0] for user in users if isinstance(user, kind)]
        if len(set(firsts)) != len(firsts):
            return None  # filled or taken twice at one place: the others would have to be, too
        found.append(tuple(sorted(firsts, key=id)))
    return tuple(found)


def _release_alike(one: async_copy.ChannelOp, other: async_copy.ChannelOp) -> bool:
    """Whether the releases of two channels that stand at the same places give slots back at the same times."""
    for user in [use.operation for use in one.res.uses]:
        if isinstance(user, async_copy.ReleaseOp):
            its = next(op for op in standing_with(user) if op.channel is other.res)
            if not _same_event(user.token, its.token, set()):
                return False
    return True


def _same_event(one: SSAValue | None, other: SSAValue | None, assumed: set[tuple[SSAValue, SSAValue]]) -> bool:
    """Whether two tokens are always those of an operation, or of none, at the same time. `assumed`: pairs being asked about further out."""
    if one is None or other is None:
        return (one is None or _is_event(one)) and (other is None or _is_event(other))
    if one is other or (one, other) in assumed:
        return True
    if _is_event(one) or _is_event(other):
        return _is_event(one) and _is_event(other)
    if _is_none(one) or _is_none(other):
        return _is_none(one) and _is_none(other)
    mine, its = _carried(one), _carried(other)
    if mine is None or its is None or mine[0] is not its[0]:
        return False
    loop, index = mine
    end = loop.body.block.last_op
    assert end is not None
    assumed = {*assumed, (one, other), (loop.body.block.args[index + 1], loop.body.block.args[its[1] + 1])}
    return _same_event(loop.iter_args[index], loop.iter_args[its[1]], assumed) and _same_event(end.operands[index], end.operands[its[1]], assumed)


def _is_event(token: SSAValue) -> bool:
    op = token.owner
    return isinstance(op, async_copy.DotOp) or isinstance(op, async_copy.TokenOp) and op.event.data == "here"


def _is_none(token: SSAValue) -> bool:
    return isinstance(token.owner, async_copy.TokenOp) and token.owner.event.data == "none"


def _carried(token: SSAValue) -> tuple[scf.ForOp, int] | None:
    """The loop that carries a token, and at which position; None for what no loop carries."""
    if isinstance(token, BlockArgument):
        loop = token.block.parent_op()
        return (loop, token.index - 1) if isinstance(loop, scf.ForOp) and token.index > 0 else None
    return (token.op, token.index) if isinstance(token, OpResult) and isinstance(token.op, scf.ForOp) else None
