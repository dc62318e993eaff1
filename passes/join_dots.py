"""join-dots: dots that multiply one left operand by right operands that lie side by side become one instruction.

`wgmma` reads both operands from shared memory, the left one again for each instruction. A kernel with two products of one tile (a gate and what it lets through; queries, keys and
values of one input) reads that tile twice, and with instructions of half the columns shared memory is busy longer than the tensor cores:

    m64n128k16, twice     2·(2 + 4) KiB in 2·64 clocks: 96 bytes a clock, of 128 that shared memory has, beside what TMA writes
    m64n256k16, once      2 + 8 KiB in 128 clocks: 80

The right operands of such dots are often slots of channels in lockstep, which lie one after another (alloc-shared), so that a descriptor of the first, with twice the
columns, names both; and the accumulator of the wider instruction is the two accumulators, one after the other. Nothing is copied, and every sum stays what it was:

    %p, %r = async.dot %a, %b, %c                  %p, %r = async.dot %a, %b, %c {with_next}
    %u = async.get %cu                       →     %u = async.get %cu
    %q, %s = async.dot %a, %u, %d                  %q, %s = async.dot %a, %u, %d           both are issued here

**When.** Dots of one block and one left operand with nothing between them that waits or is issued; one choice of instruction, with all its columns in one piece and one
warpgroup's; right operands of one layout whose buffers' distance is that of so many columns; at most 256 columns in all. The first joined dot then is no group of its own
(async_waits.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.traits import is_side_effect_free

from ..dialects import async_copy
from ..dialects.inside import inside, kernels_in
from ..dialects.layout_attrs import SharedLayoutAttr
from ..dialects.target import Target
from . import dot_rules
from .alloc_shared import slot_stride
from .base import Pass, PassContext
from .descriptors import descriptor_form
from .dot_types import dot_kind
from .join_channels import lockstep_group, standing_with

WITH_NEXT = "with_next"
"""The attribute of a dot that is issued with the next one of its block."""
MOST_COLUMNS = 256
"""Of a wgmma (PTX ISA 9.0 §9.7.16.2)."""


@dataclass
class JoinDots(Pass):
    """Let dots with one left operand be one instruction. `when`: wherever it is possible, or not at all."""

    name: ClassVar[str] = "join-dots"
    when: Literal["auto", "never"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        if self.when == "never":
            return
        for kernel in kernels_in(module):
            for op in inside(kernel, async_copy.DotOp):
                if can_join(op, next_dot(op), dot_rules.block_warps(op), target):
                    op.attributes[WITH_NEXT] = UnitAttr()


def joined_before(op: async_copy.DotOp) -> async_copy.DotOp | None:
    """The dot that is issued with `op`, and stands before it."""
    before = op.prev_op
    while before is not None and not isinstance(before, async_copy.DotOp):
        before = before.prev_op
    return before if before is not None and WITH_NEXT in before.attributes else None


def can_join(first: async_copy.DotOp, second: async_copy.DotOp | None, warps: int, target: Target) -> bool:
    """Whether two dots (the second is what `next_dot` gives), and those that are joined with the first already, can be one instruction."""
    if second is None or first.lhs is not second.lhs or second.acc is first.res:
        return False
    choice = dot_rules.dot_requirements(first, warps, target)
    if choice != dot_rules.dot_requirements(second, warps, target) or dot_kind(first) != dot_kind(second):
        return False
    if choice.unit != "wgmma" or choice.swapped or choice.groups[1] > 1 or len(choice.pieces) > 1 or choice.pieces[0] != dot_rules.dot_shape(first).n:
        return False
    columns, before = 2 * choice.pieces[0], joined_before(first)
    while before is not None:
        columns, before = columns + choice.pieces[0], joined_before(before)
    return columns <= MOST_COLUMNS and _follows(first, second, choice.pieces[0])


def next_dot(op: async_copy.DotOp) -> async_copy.DotOp | None:
    """The next dot of the block, if nothing waits in between."""
    following = op.next_op
    while following is not None and not isinstance(following, async_copy.DotOp):
        waits = not isinstance(following, async_copy.TransposeOp) and (following.regions or not is_side_effect_free(following))
        if waits and not (isinstance(following, async_copy.GetOp) and _waited_before(following, op)):
            return None
        following = following.next_op
    return following


def _waited_before(get: async_copy.GetOp, op: Operation) -> bool:
    """Whether a get of a channel in the same lockstep group, before `op`, has waited for what this one takes."""
    channel = get.channel.owner
    if not isinstance(channel, async_copy.ChannelOp):
        return False
    group = lockstep_group(channel)
    together = [other for other in standing_with(get) if other.channel.owner in group]
    return together[0] is not get and together[0].is_before_in_block(op)


def _follows(first: async_copy.DotOp, second: async_copy.DotOp, columns: int) -> bool:
    """Whether the second's right operand lies where the first's would go on, after so many columns."""
    one, other = _channel(first.rhs), _channel(second.rhs)
    if one is None or other is None or one is other or one.lockstep is None or one.lockstep != other.lockstep or one.offset is None or other.offset is None:
        return False
    layout = one.res.type.layout
    if not isinstance(layout, SharedLayoutAttr) or layout != other.res.type.layout or _turned(first.rhs) != _turned(second.rhs):
        return False
    if slot_stride(one) != slot_stride(other):
        return False
    mn = 0 if _turned(first.rhs) else 1
    form = descriptor_form(layout.data, mn, dot_kind(first).size)
    # (Where K takes several spans, each with all columns, the second operand does not begin there.)
    return form is not None and other.offset.value.data - one.offset.value.data == form.at(columns, 0)


def _channel(value: SSAValue) -> async_copy.ChannelOp | None:
    while isinstance(value, OpResult) and isinstance(value.op, async_copy.TransposeOp):
        value = value.op.source
    owner = value.op.channel.owner if isinstance(value, OpResult) and isinstance(value.op, async_copy.GetOp) else None
    return owner if isinstance(owner, async_copy.ChannelOp) else None


def _turned(value: SSAValue) -> bool:
    """Whether a right operand is the transpose of what its channel holds."""
    turned = False
    while isinstance(value, OpResult) and isinstance(value.op, async_copy.TransposeOp):
        turned ^= value.op.order == (1, 0)
        value = value.op.source
    return turned
