"""Channels that are never in use at one time become one: what alloc-shared does where the buffers do not fit otherwise.

plan-dataflow gives each transfer a channel of its own. In a program of many dots one after another, as an unrolled loop is, these are more than
shared memory holds, though few hold anything at one time:

    %a = async.channel depth 1 : T                        %a = async.channel depth 1 : T
    %b = async.channel depth 1 : T                        async.put %a, …  async.get %a  async.release %a
    async.put %a, …  async.get %a  async.release %a   →   async.put %a, …  async.get %a  async.release %a
    async.put %b, …  async.get %b  async.release %b

A channel is in use from the first to the last of its operations in the innermost block round all of them: every slot that is filled there is got
and released there too. Two channels of one type, depth, role and way of being filled, of which one is out of use before the other's first operation in
the text, can be one ring: in it, too, a put finds every slot released. The price is the barrier of a release that another put follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, Operation

from ..dialects import async_copy

Span = tuple[int, int]
"""The places in the text of the first and the last operation during which a channel is in use."""


def share_channels(root: Operation, channels: Sequence[async_copy.ChannelOp]) -> list[async_copy.ChannelOp]:
    """Merges the channels of `root`, in the order of their first use each into the first that fits; gives those that remain."""
    places = {op: place for place, op in enumerate(root.walk())}
    last = {}  # an operation and, for its regions, the last place inside
    for op in reversed(places):
        last[op] = max(last.get(op, 0), places[op])
        if (parent := op.parent_op()) is not None:
            last[parent] = max(last.get(parent, 0), last[op])
    spans = {channel: span for channel in channels if (span := _span(channel, places, last)) is not None}
    remaining = [channel for channel in channels if channel not in spans]
    free: dict[tuple[Any, ...], list[tuple[int, async_copy.ChannelOp]]] = {}  # by kind: (last place of use, channel)
    for channel, (first, end) in sorted(spans.items(), key=lambda item: item[1]):
        kind = _kind(channel)
        rings = free.setdefault(kind, [])
        found = next((i for i, (used, _) in enumerate(rings) if used < first), None) if kind else None
        if found is None:
            rings.append((end, channel))
            remaining.append(channel)
            continue
        ring = rings[found][1]
        rings[found] = (end, ring)
        channel.res.replace_all_uses_with(ring.res)
        channel.detach()
        channel.erase()
    return remaining


def _kind(channel: async_copy.ChannelOp) -> tuple[Any, ...]:
    """What channels must have in common to be one; () for a channel that stays alone."""
    if channel.lockstep is not None:
        return ()  # its slots lie beside those of its group
    ways: set[Any] = set()
    for use in channel.res.uses:
        match use.operation:
            case async_copy.PutOp():
                ways.add(use.operation.via)
            case async_copy.WriteOp():
                ways.add("write")
            case async_copy.GetOp() if use.operation.later is not None:
                return ()  # how many groups are on their way was counted for this channel
            case async_copy.GetOp() | async_copy.ReleaseOp():
                pass
            case _:
                return ()  # filled and emptied by one operation, which has its own way of waiting
    roles = {async_copy.role_name(use.operation) for use in channel.res.uses}
    return (channel.res.type, channel.depth, *ways, *roles) if len(ways) == len(roles) == 1 else ()


def _span(channel: async_copy.ChannelOp, places: dict[Operation, int], last: dict[Operation, int]) -> Span | None:
    users = [use.operation for use in channel.res.uses]
    if not users:
        return None
    paths = [_blocks_round(op) for op in users]
    common = sum(1 for level in zip(*paths) if all(block is level[0] for block in level))
    home = paths[0][common - 1]
    inside = [_in_block(op, home) for op in users]
    return min(places[op] for op in inside), max(last[op] for op in inside)


def _blocks_round(op: Operation) -> list[Block]:
    """The blocks that the operation stands in, the outermost first."""
    found = []
    block = op.parent
    while block is not None:
        found.append(block)
        block = block.parent_block()
    return found[::-1]


def _in_block(op: Operation, block: Block) -> Operation:
    """The operation of `block` that is `op` or contains it."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None, "the block is round the operation"
        op = parent
    return op
