"""specialize-warps: some warps load, the others compute.

A kernel whose loops load tiles by TMA for their dots is split in two roles. The *producer* has the puts, and of everything else a copy of just what
they need: the loops and conditions round them, and the scalars that say where the tiles start. The *consumer* has all the rest. The
channels in between keep both in step: a put waits for a free slot, a get for a filled one, so the producer is ahead by as many tiles as
there are slots, across the ends of loops too: while the consumer stores one result, the loads for the next are under way.

    scf.for %k … {                                   async.roles consumer(warps = 8, registers = 240) {
      async.put %ca, %A[%m, %k]                        scf.for %k … {
      %a = async.get %ca                                 %a = async.get %ca
      %p, %read = async.dot %a, …             →          %p, %read = async.dot %a, …
      …                                                  …
    }                                                  }
    tile.store …                                       tile.store …
                                                     }, producer(warps = 4, registers = 24) {
                                                       scf.for %k … { async.put %ca, %A[%m, %k] }
                                                     }

Nothing is scheduled here: order stays program order within each role, and slots are as many as before (one). That no role waits for ever follows
from that: a put comes, in the program as it was, after the release that makes room for it, and that release after no get of anything that
is put later.

**What goes to the producer.** A put by TMA if all that leads to its indices and round it is scalar, without effects, or a load from an array
that the kernel does not write. And only if all fills of its channel can go. What is copied by the threads themselves, or written from registers,
stays with the consumer.

**When.** Where the target has wgmma and a loop's dots read what goes to the producer, and it pays: with two consumer warpgroups or more, since a
multiprocessor then holds one block of them and the tensor cores are busy while one of them waits. The kernel's attribute `warp_specialize`
overrides that: `false` never, `true` wherever it is possible. So does the option `when`.

**Registers.** The producer needs few; the consumer gets what it gives up (async_roles.py). A block of 256 threads or fewer has enough for each thread as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, i1
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.traits import is_side_effect_free
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from ..dialects import async_copy, tile
from ..dialects.array_effects import may_write
from ..dialects.async_roles import (
    LEAST_REGISTERS,
    REGISTER_UNIT,
    WARP_THREADS,
    WARPGROUP_WARPS,
    RolesOp,
    entry_registers,
)
from ..dialects.diagnostics import TeselaError
from ..dialects.inside import inside, kernels_in
from ..dialects.target import Target
from . import dot_rules
from .base import Pass, PassContext

PRODUCER_WARPS = WARPGROUP_WARPS
"""Registers change hands by whole warpgroups: of four warps as many load as there are channels to fill."""
WORTHWHILE_WARPS = 2 * WARPGROUP_WARPS
"""Consumer warps from which on the split pays."""
ENOUGH_REGISTERS = 248
"""What a thread can use of registers: with as many at the start, none need change hands."""


@dataclass
class SpecializeWarps(Pass):
    """Split kernels into a role that loads by TMA and one that computes. `when`: as it pays, wherever it is possible, or not at all."""

    name: ClassVar[str] = "specialize-warps"
    when: Literal["auto", "always", "never"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for kernel in kernels_in(module):
            split = decide(kernel, target, self.when)
            if split.puts:
                _specialize(kernel, split)
            elif split.why_not is not None and stated(kernel, "warp_specialize"):
                context.emitter.note(kernel, f"the kernel's warps are not specialised: {split.why_not}")


# ---- whether, and what ----------------------------------------------------------------------------------------------


@dataclass
class Split:
    """What goes to the producer (nothing if the kernel stays as it is, `why_not` says why) and the slice that it needs."""

    puts: list[async_copy.PutOp]
    slice: Slice
    why_not: str | None = None


def stated(kernel: tile.KernelOp, name: str) -> bool | None:
    """A boolean attribute of the kernel; None if it is not stated. Raises TeselaError for one of another kind."""
    value = kernel.attributes.get(name)
    if value is None:
        return None
    if not isinstance(value, IntegerAttr) or value.type != i1:
        raise TeselaError.at(kernel, f"{name} must be true or false, found {value}", f"write attributes {{{name} = false}}")
    return value.value.data != 0


def decide(kernel: tile.KernelOp, target: Target, when: str = "auto") -> Split:
    """Whether the kernel is split, and how. Layouts must be known, and how puts copy."""
    wanted = stated(kernel, "warp_specialize")
    if when == "never" or wanted is False:
        return Split([], Slice(kernel), "it is not wanted")
    if not target.has_wgmma:
        return Split([], Slice(kernel), f"{target.name} has no wgmma")
    if any(isinstance(op, RolesOp) for op in kernel.body.block.ops):
        return Split([], Slice(kernel))
    split = _possible(kernel)
    if not split.puts:
        return split
    warps = dot_rules.block_warps(kernel)
    if warps % WARPGROUP_WARPS:
        return Split([], split.slice, f"it has {warps} warps, and roles have whole warpgroups of {WARPGROUP_WARPS}")
    consumer = budgets(warps)[0] or ENOUGH_REGISTERS
    for op in inside(kernel, async_copy.DotOp, tile.DotOp):
        used = dot_rules.dot_requirements(op, warps, target).acc.num_values
        if used > consumer - dot_rules.RESERVED_REGISTERS:
            return Split([], split.slice, f"an accumulator takes {used} registers of each thread, and a consumer's would have {consumer} in all")
    if not wanted and when == "auto" and warps < WORTHWHILE_WARPS:
        return Split([], split.slice, f"it has {warps} warps, and it pays from {WORTHWHILE_WARPS} on")
    return split


def budgets(consumer_warps: int) -> tuple[int | None, int | None]:
    """Registers of a thread of the consumer and of the producer; None where they stay as they are."""
    threads = WARP_THREADS * (consumer_warps + PRODUCER_WARPS)
    entry = entry_registers(threads)
    if entry >= ENOUGH_REGISTERS:
        return None, None
    left = entry * threads - LEAST_REGISTERS * WARP_THREADS * PRODUCER_WARPS
    return left // (WARP_THREADS * consumer_warps) // REGISTER_UNIT * REGISTER_UNIT, LEAST_REGISTERS


def _possible(kernel: tile.KernelOp) -> Split:
    """The puts that can go to a producer, if that is of use to a loop."""
    needed = Slice(kernel)
    channels = inside(kernel, async_copy.ChannelOp)
    if any(op.parent is not kernel.body.block for op in channels):
        return Split([], needed, "a channel is made inside of control flow")
    puts: list[async_copy.PutOp] = []
    reason = "no loop loads by TMA what its dots read"
    useful = False
    for channel in channels:
        fills = channel.fills()
        reasons = [_why_it_stays(fill) or needed.why_not(fill) for fill in fills]
        if any(why is not None for why in reasons):
            reason = next(why for why in reasons if why is not None)
            continue
        puts += [fill for fill in fills if isinstance(fill, async_copy.PutOp)]
        useful |= any(_in_loop(fill) for fill in fills) and any(
            isinstance(reader, async_copy.DotOp) for reader, _, _ in dot_rules.buffer_readers(channel.res)
        )
    if not useful:
        return Split([], needed, reason)
    for put in puts:
        needed.add(put)
    return Split(puts, needed)


def _why_it_stays(fill: Operation) -> str | None:
    if not isinstance(fill, async_copy.PutOp):
        return "what its dots read is computed"
    if fill.via is None:
        raise TeselaError.at(fill, "how the put copies is not chosen", "run infer-layouts before specialize-warps")
    return None if fill.via.data == "tma" else f"a tile is loaded by {fill.via.data}, not by TMA"


def _in_loop(op: Operation) -> bool:
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, scf.ForOp):
            return True
        parent = parent.parent_op()
    return False


# ---- slices ---------------------------------------------------------------------------------------------------------


class Slice:
    """What some ops of a kernel need to be where they are and to have their operands: `ops`, and of control flow `values` (which of what it
    carries or yields)."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.kernel = kernel
        self.ops: set[Operation] = set()
        self.values: set[SSAValue] = set()

    def why_not(self, op: Operation) -> str | None:
        """Why another role cannot compute what `op` needs; None if it can. Changes nothing."""
        trial = Slice(self.kernel)
        trial.add(op)
        return next((why for inner in trial.ops if inner is not op and (why := self._refusal(inner)) is not None), None)

    def _refusal(self, op: Operation) -> str | None:
        if isinstance(op, scf.ForOp | scf.IfOp | scf.WhileOp | async_copy.ChannelOp):
            return None
        if any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
            return "where a tile starts depends on the elements of one"
        if isinstance(op, tile.LoadOp):
            for store in self.kernel.walk():
                if may_write(store) and dot_rules.may_alias(self.kernel, store.array, op.array):
                    return "where a tile starts is loaded from memory that the kernel may write"
            return None
        if op.regions or not (is_side_effect_free(op) or op.name.startswith("arith.")):
            return f"where a tile starts depends on {op.name}"
        return None

    def add(self, op: Operation) -> None:
        """Adds an op with all that it needs."""
        work: list[Operation | SSAValue] = [op]
        while work:
            item = work.pop()
            if isinstance(item, Operation):
                if item in self.ops:
                    continue
                self.ops.add(item)
                work += _operands(item)
                parent = item.parent_op()
                if parent is not None and parent is not self.kernel:
                    work.append(parent)
            elif item not in self.values:
                self.values.add(item)
                work += _sources(item)

    def carried(self, results: Sequence[SSAValue], arguments: Sequence[SSAValue]) -> list[int]:
        """Which of the values that control flow hands on are needed, inside or after."""
        return [i for i, pair in enumerate(zip(results, arguments)) if not self.values.isdisjoint(pair)]


def _operands(op: Operation) -> list[SSAValue]:
    """What an op needs for itself: of control flow, what decides how it goes."""
    match op:
        case scf.ForOp():
            return [op.lb, op.ub, op.step]
        case scf.IfOp():
            return [op.cond]
        case scf.WhileOp():
            end = op.before_region.block.last_op
            assert end is not None
            return [end.operands[0]]
        case _:
            return list(op.operands)


def _sources(value: SSAValue) -> list[Operation | SSAValue]:
    """What a value needs, beside the ops round it."""
    op = value.block.parent_op() if isinstance(value, BlockArgument) else value.owner
    index = value.index if isinstance(value, BlockArgument | OpResult) else 0
    match op:
        case scf.ForOp():
            if isinstance(value, BlockArgument):
                if index == 0:
                    return [op]
                index -= 1
            return [op, op.iter_args[index], op.body.block.last_op.operands[index], op.body.block.args[index + 1]]
        case scf.IfOp():
            return [op, *(region.block.last_op.operands[index] for region in op.regions)]
        case scf.WhileOp():
            before, after = op.before_region.block, op.after_region.block
            if isinstance(value, BlockArgument) and value.block is before:
                return [op, op.arguments[index], after.last_op.operands[index]]
            return [op, before.last_op.operands[index + 1]]
        case tile.KernelOp():
            return []
        case Operation():
            return [op]
        case _:
            return []


# ---- the transformation ---------------------------------------------------------------------------------------------


def _specialize(kernel: tile.KernelOp, split: Split) -> None:
    body = kernel.body.block
    end = body.last_op
    assert end is not None
    producer = Block(_copy(body, {}, split.slice))
    consumer = Block()
    for op in list(body.ops):
        if op is not end and not isinstance(op, async_copy.ChannelOp):
            op.detach()
            consumer.add_op(op)
    for put in split.puts:
        put.detach()
        put.erase()
    _erase_dead(consumer)
    warps = dot_rules.block_warps(kernel)
    mine, its = budgets(warps)
    roles = RolesOp.make([("consumer", warps, mine, consumer), ("producer", PRODUCER_WARPS, its, producer)])
    roles.location = kernel.location
    body.insert_op_before(roles, end)


def _copy(block: Block, values: dict[SSAValue, SSAValue], needed: Slice) -> list[Operation]:
    """Copies of a block's ops that are needed, without its terminator; `values`: what stands for what, which grows."""
    copies: list[Operation] = []
    for op in block.ops:
        if op not in needed.ops or isinstance(op, async_copy.ChannelOp):
            continue
        match op:
            case scf.ForOp():
                copy, results = _copy_for(op, values, needed)
            case scf.IfOp():
                copy, results = _copy_if(op, values, needed)
            case scf.WhileOp():
                copy, results = _copy_while(op, values, needed)
            case _:
                copy, results = op.clone(values), op.results
        values.update(zip(results, copy.results))
        copy.location = op.location
        copies.append(copy)
    return copies


def _copy_for(op: scf.ForOp, values: dict[SSAValue, SSAValue], needed: Slice) -> tuple[Operation, list[SSAValue]]:
    old = op.body.block
    kept = needed.carried(op.results, old.args[1:])
    block = _block([old.args[0], *(old.args[i + 1] for i in kept)], values)
    block.add_ops(_copy(old, values, needed))
    block.add_op(_end(old, kept, values))
    operands = [values.get(value, value) for value in (op.lb, op.ub, op.step, *(op.iter_args[i] for i in kept))]
    copy = scf.ForOp.create(
        operands=operands,
        result_types=[op.results[i].type for i in kept],
        regions=[Region(block)],
        attributes=op.attributes,
        properties=op.properties,
    )
    return copy, [op.results[i] for i in kept]


def _copy_if(op: scf.IfOp, values: dict[SSAValue, SSAValue], needed: Slice) -> tuple[Operation, list[SSAValue]]:
    kept = needed.carried(op.results, op.results)
    regions = []
    for region in op.regions:
        if not region.blocks:
            regions.append(Region())
            continue
        block = Block(_copy(region.block, values, needed))
        block.add_op(_end(region.block, kept, values))
        regions.append(Region(block))
    kinds = [op.results[i].type for i in kept]
    copy = scf.IfOp.create(operands=[values.get(op.cond, op.cond)], result_types=kinds, regions=regions, attributes=op.attributes)
    return copy, [op.results[i] for i in kept]


def _copy_while(op: scf.WhileOp, values: dict[SSAValue, SSAValue], needed: Slice) -> tuple[Operation, list[SSAValue]]:
    before, after = op.before_region.block, op.after_region.block
    inside = needed.carried(before.args, before.args)
    kept = needed.carried(op.results, after.args)
    test, end = before.last_op, after.last_op
    assert test is not None and end is not None
    first = _block([before.args[i] for i in inside], values)
    first.add_ops(_copy(before, values, needed))
    handed = [values.get(value, value) for value in (test.operands[0], *(test.operands[i + 1] for i in kept))]
    first.add_op(scf.ConditionOp.create(operands=handed))
    second = _block([after.args[i] for i in kept], values)
    second.add_ops(_copy(after, values, needed))
    second.add_op(_end(after, inside, values))
    operands = [values.get(op.arguments[i], op.arguments[i]) for i in inside]
    kinds = [op.results[i].type for i in kept]
    copy = scf.WhileOp.create(operands=operands, result_types=kinds, regions=[Region(first), Region(second)], attributes=op.attributes)
    return copy, [op.results[i] for i in kept]


def _block(arguments: Sequence[SSAValue], values: dict[SSAValue, SSAValue]) -> Block:
    """A block with arguments that stand for these."""
    block = Block(arg_types=[argument.type for argument in arguments])
    for old, new in zip(arguments, block.args):
        new.name_hint = old.name_hint
        values[old] = new
    return block


def _end(block: Block, kept: Sequence[int], values: dict[SSAValue, SSAValue]) -> Operation:
    end = block.last_op
    assert end is not None
    copy = scf.YieldOp.create(operands=[values.get(end.operands[i], end.operands[i]) for i in kept])
    copy.location = end.location
    return copy


def _erase_dead(block: Block) -> None:
    """Erases scalar computations that were for the puts only."""
    for op in reversed(list(_all_ops(block))):
        if op.regions or not op.results or any(value.uses for value in op.results):
            continue
        if op.name.startswith("arith.") or is_trivially_dead(op):
            op.detach()
            op.erase()


def _all_ops(block: Block) -> Iterator[Operation]:
    """All ops of a block, each after those inside it."""
    for op in block.ops:
        yield from (inner for region in op.regions for inside in region.blocks for inner in _all_ops(inside))
        yield op
