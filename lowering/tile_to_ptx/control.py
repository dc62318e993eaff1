"""Lowering of scf.for, scf.if and scf.while: the same structure over register vectors.

Conditions and bounds are scalars, the same in all threads of a block, so barriers may stand inside. What a region carries or yields
keeps its registers' type; an `async.pending` tile is carried as the registers it will be in, an `async.token` needs none: what it means
for a wait is known when the code is made (passes/async_waits.py). But where it depends on the run whether there is an operation to wait
for, and on that whether a role gives a slot back, the token is a predicate that says so.

Groups of cp.async are counted too (`async.get … later`), and a conditional must not disturb the count: the branch that copies less commits
as many groups, empty ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects import async_copy, ptx, tile
from ...dialects.array_effects import array_access
from ...passes.dot_rules import INDEPENDENT
from .context import HANDLERS, Context, lowers


def lower_block(ctx: Context, block: Block) -> Operation:
    """Lowers all ops of a block but its terminator, which is returned. Raises TeselaError for an op without a lowering."""
    end = lower_ops(ctx, block)
    if end is None:
        raise ctx.error(block.last_op, "the block must end with a terminator")
    return end


def lower_ops(ctx: Context, block: Block) -> Operation | None:
    """As `lower_block`, of a block that may have no terminator."""
    for op in block.ops:
        if op is block.last_op and isinstance(op, scf.YieldOp | scf.ConditionOp | tile.ReturnOp):
            return op
        handler = HANDLERS.get(type(op))
        if handler is None:
            raise ctx.error(op, f"{op.name} has no lowering to PTX", _alternative(op))
        ctx.location = op.location
        handler(ctx, op)
    return None


CASTS = frozenset(f"arith.{name}" for name in "extf truncf sitofp uitofp fptosi fptoui extsi extui trunci bitcast".split())


def _alternative(op: Operation) -> str:
    """What to write instead of an op without a lowering."""
    if op.name in CASTS:
        return "conversions between element types are tile.cast"
    return f"the ops that have one: {', '.join(sorted({kind.name for kind in HANDLERS}))}"


def _accesses(region: Region) -> dict[SSAValue, str]:
    """The arrays that ops inside access, and how."""
    found: dict[SSAValue, str] = {}
    for op in region.walk():
        if (access := array_access(op)) is not None:
            found[access[0]] = found.get(access[0], "") + access[1]
    return found


def _merge(ctx: Context, more: dict[SSAValue, str]) -> None:
    for array, access in more.items():
        ctx.add_access(array, access)


def _held(ctx: Context, values: Sequence[SSAValue]) -> list[int]:
    """Which of the values that control flow hands on are in registers: all but tokens whose meaning is known when the code is made."""
    return [i for i, value in enumerate(values) if not isinstance(value.type, async_copy.TokenType) or value in ctx.flagged]


def _values(ctx: Context, values: Sequence[SSAValue], held: Sequence[int]) -> list[SSAValue]:
    return [ctx.get(values[i]) for i in held]


def _set_values(ctx: Context, values: Sequence[SSAValue], held: Sequence[int], registers: Sequence[SSAValue]) -> None:
    """Sets those of `values` that registers hold to the first of `registers`."""
    for i, its in zip(held, registers):
        ctx.set(values[i], its)


def _copy_groups(region: Region) -> int:
    """How many groups of cp.async into channels deeper than one a region commits at least."""
    count = 0
    for op in region.block.ops if region.blocks else ():
        if isinstance(op, async_copy.PutOp) and op.via is not None and op.via.data == "cp.async":
            channel = op.channel.owner
            assert isinstance(channel, async_copy.ChannelOp)
            count += channel.depth.value.data > 1
        elif isinstance(op, scf.IfOp):
            count += max(map(_copy_groups, op.regions))
    return count


def _counted(ctx: Context, *regions: Region) -> list[tuple[SSAValue, str]]:
    """The counters of channels that ops inside advance: carried like the values that the program itself carries."""
    found: dict[tuple[SSAValue, str], None] = {}
    for region in regions:
        for op in region.walk():
            if isinstance(op, async_copy.PutOp | async_copy.WriteOp):
                found[(op.channel, "put")] = None
            elif isinstance(op, async_copy.GetOp):
                found[(op.channel, "get")] = None
            elif isinstance(op, async_copy.ReleaseOp):
                found[(op.channel, "release")] = None
    return [key for key in found if key in ctx.counters]


def _set_counters(ctx: Context, keys: Sequence[tuple[SSAValue, str]], values: Sequence[SSAValue]) -> None:
    ctx.counters.update(zip(keys, values, strict=True))


def _get_counters(ctx: Context, keys: Sequence[tuple[SSAValue, str]]) -> list[SSAValue]:
    return [ctx.counters[key] for key in keys]


@lowers(scf.ForOp)
def _for(ctx: Context, op: scf.ForOp) -> None:
    lower, upper, step = (ctx.get(value) for value in (op.lb, op.ub, op.step))
    if (known := ctx.known(step)) is not None and known <= 0:
        raise ctx.error(op, f"the loop's step is {known}", "a step must be positive")
    before = dict(ctx.unsynchronised)
    if INDEPENDENT not in op.attributes:
        _merge(ctx, _accesses(op.body))  # what the previous trip did
    counters, held = _counted(ctx, op.body), _held(ctx, op.results)
    n = len(held)

    def body(counter: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        ctx.set(op.body.block.args[0], counter)
        _set_values(ctx, op.body.block.args[1:], held, carried)
        _set_counters(ctx, counters, carried[n:])
        end = lower_block(ctx, op.body.block)
        return [*_values(ctx, end.operands, held), *_get_counters(ctx, counters)]

    location = op.location
    init = [*_values(ctx, op.iter_args, held), *_get_counters(ctx, counters)]
    results = ctx.for_(lower, upper, step, init, body)
    _set_counters(ctx, counters, results[n:])
    ctx.location = location
    _merge(ctx, _accesses(op.body))
    first, end = ctx.known(lower), ctx.known(upper)
    if first is None or end is None or first >= end:
        _merge(ctx, before)  # with no trips, no barrier of the body was met
    _set_values(ctx, op.results, held, results)


@lowers(scf.IfOp)
def _if(ctx: Context, op: scf.IfOp) -> None:
    before = dict(ctx.unsynchronised)
    after: list[dict[SSAValue, str]] = []

    counters, held = _counted(ctx, op.true_region, op.false_region), _held(ctx, op.results)
    groups = max(map(_copy_groups, op.regions))
    counts = _get_counters(ctx, counters)

    def fill(region: Region) -> list[SSAValue]:
        ctx.unsynchronised = dict(before)
        _set_counters(ctx, counters, counts)
        end = lower_block(ctx, region.block) if region.blocks else None
        for _ in range(groups - _copy_groups(region)):
            ctx.inst("cp.async.commit_group")
        after.append(ctx.unsynchronised)
        return [*(_values(ctx, end.operands, held) if end is not None else ()), *_get_counters(ctx, counters)]

    kinds = [*(ctx.registers_of(op.results[i].type) for i in held), *(value.type for value in counts)]
    has_else = bool(op.false_region.blocks) or bool(counters) or bool(groups)
    results = ctx.if_(
        ctx.get(op.cond),
        lambda: fill(op.true_region),
        (lambda: fill(op.false_region)) if has_else else None,
        kinds,
    )
    ctx.unsynchronised = {}
    for state in after if has_else else [*after, before]:
        _merge(ctx, state)
    _set_counters(ctx, counters, results[len(held) :])
    _set_values(ctx, op.results, held, results)


@lowers(scf.WhileOp)
def _while(ctx: Context, op: scf.WhileOp) -> None:
    _merge(ctx, _accesses(op.before_region))
    _merge(ctx, _accesses(op.after_region))
    counters = _counted(ctx, op.before_region, op.after_region)
    carried, left = _held(ctx, op.before_region.block.args), _held(ctx, op.results)
    init = [*_values(ctx, op.arguments, carried), *_get_counters(ctx, counters)]
    before = Block(arg_types=[value.type for value in init])
    with ctx.into(before):
        _set_values(ctx, op.before_region.block.args, carried, before.args)
        _set_counters(ctx, counters, before.args[len(carried) :])
        end = lower_block(ctx, op.before_region.block)
        assert isinstance(end, scf.ConditionOp)
        handed = [*_values(ctx, end.args, left), *_get_counters(ctx, counters)]
        ctx.add_op(ptx.ConditionOp.create(operands=[ctx.get(end.condition), *handed]))
    tested = dict(ctx.unsynchronised)
    after = Block(arg_types=[value.type for value in handed])
    with ctx.into(after):
        _set_values(ctx, op.after_region.block.args, left, after.args)
        _set_counters(ctx, counters, after.args[len(left) :])
        last = lower_block(ctx, op.after_region.block)
        ctx.add_op(ptx.YieldOp.create(operands=[*_values(ctx, last.operands, carried), *_get_counters(ctx, counters)]))
    loop = ptx.WhileOp.make(init, [value.type for value in handed], Region(before), Region(after))
    ctx.add_op(loop)
    _set_counters(ctx, counters, loop.results[len(left) :])
    _merge(ctx, _accesses(op.before_region))
    _merge(ctx, _accesses(op.after_region))
    _merge(ctx, tested)  # with no trips, no barrier of the body was met
    _set_values(ctx, op.results, left, loop.results)
