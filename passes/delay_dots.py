"""Dots that are issued one trip late, so that the tensor cores work while the rest of the loop computes. A part of `pipeline-loops`.

Where a loop's second dot takes what was computed from its first one (attention: scores, softmax, weighted sum), each waits for the other and
the tensor cores stand still in between. Issued one trip late, beside the first dot of the next trip, the second has that trip's
computation to hide behind:

    for each trip j                                  first trip:  S = …;  await S;  P = f(S)
      S = dot …                                      for each other trip j
      await S                                          S = dot …
      P = f(S)                                  →      O = dot P, V(j - 1), O'        the trip before's, from what is carried
      O' = g(O, S)                                     await S                        leaves O under way
      O = dot P, V(j), O'                              … f(S) but for its last step …
      await O                                          await O;  O' = g(O, S);  P = the last step
                                                     last:  O = dot P, V, O'

Both dots are awaited in the trip that issues them: an accumulator that other code of the loop reads must not be in flight over the
back-edge (ptxas would serialise all dots). The registers of P are read while the dot is under way, so the operation that writes them (a cast)
stands after the wait; so does what reads O. The first trip is a copy of the body without the late dot, and the last late dot
follows the loop; with no trips there is neither. Values, and the order of every sum, stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.traits import is_side_effect_free

from ..dialects import async_copy
from ..dialects.layout_attrs import TVLayoutAttr
from ..dialects.tile import element_type
from . import dot_rules


@dataclass(eq=False)
class Delay:
    """A dot that can come a trip late: it adds to what the loop carries at `position`. `views`: the get and the transposes between its
    channel and its right operand. `convert`: what makes its left operand. `rescale`: what becomes of the accumulator before it."""

    dot: async_copy.DotOp
    wait: async_copy.AwaitOp
    position: int
    views: list[Operation]
    release: async_copy.ReleaseOp
    convert: Operation
    rescale: list[Operation]
    before: async_copy.AwaitOp
    """The first wait for a dot that its operands come from: the late dot is issued just before."""


def find_delays(loop: scf.ForOp, released: dict[async_copy.GetOp, async_copy.ReleaseOp]) -> Iterator[Delay]:
    """The dots of the loop's own block that can come a trip late. `released`: the gets of channels that the loop itself releases."""
    for dot in loop.body.block.ops:
        if isinstance(dot, async_copy.DotOp) and (delay := _delay(dot, loop.body.block, released)) is not None:
            yield delay


def _delay(
    dot: async_copy.DotOp, block: Block, released: dict[async_copy.GetOp, async_copy.ReleaseOp]
) -> Delay | None:
    wait = dot.res.get_user_of_unique_use()
    if not isinstance(wait, async_copy.AwaitOp) or wait.parent is not block:
        return None
    use = next(iter(wait.res.uses), None)
    if use is None or len(list(wait.res.uses)) != 1 or use.operation is not block.last_op:
        return None
    convert = dot.lhs.owner
    if not isinstance(dot.lhs.type, TensorType) or not isinstance(convert, Operation) or not _moves(convert, block):
        return None
    if dot.lhs.get_user_of_unique_use() is not dot:
        return None
    views = _views(dot)
    get = views[0] if views else None
    if not isinstance(get, async_copy.GetOp) or get not in released or get.parent is not block:
        return None
    rescale = _rescale(block.args[use.index + 1], dot, block)
    if rescale is None or convert in rescale:
        return None
    needs = _needs([dot.lhs, dot.acc], block)
    before = next((op for op in block.ops if isinstance(op, async_copy.AwaitOp) and op in needs), None)
    if before is None:
        return None
    return Delay(dot, wait, use.index, views, released[get], convert, rescale, before)


def _moves(op: Operation, block: Block) -> bool:
    return op.parent is block and not op.regions and is_side_effect_free(op)


def _views(dot: async_copy.DotOp) -> list[Operation]:
    """The get and the transposes, in order, that lead to the right operand, if nothing else reads the buffer."""
    views: list[Operation] = []
    value = dot.rhs
    while isinstance(value, OpResult) and isinstance(value.op, async_copy.TransposeOp | async_copy.GetOp):
        if len(list(value.uses)) != 1:
            return []
        views.insert(0, value.op)
        if isinstance(value.op, async_copy.GetOp):
            break
        value = value.op.source
    return views


def _rescale(argument: SSAValue, dot: async_copy.DotOp, block: Block) -> list[Operation] | None:
    """What is computed from the carried accumulator, in order, if it is for the dot's accumulator only; None otherwise."""
    found: set[Operation] = set()
    work = [argument]
    while work:
        for use in work.pop().uses:
            user = use.operation
            if user is dot and use.index == 2:
                continue
            if not _moves(user, block):
                return None
            if user not in found:
                found.add(user)
                work += user.results
    return [op for op in block.ops if op in found]


def _needs(values: Iterable[SSAValue], block: Block) -> set[Operation]:
    """The operations of the block from which the values are computed in this trip."""
    found: set[Operation] = set()
    work = list(values)
    while work:
        op = work.pop().owner
        if isinstance(op, Operation) and op.parent is block and op not in found:
            found.add(op)
            for inner in op.walk():
                work += inner.operands
    return found


def registers_at_once(delay: Delay) -> int:
    """Registers of a thread that are busy at one time: both accumulators, and the left operands under way."""
    first = delay.before.pending.owner
    operands = [first.lhs.type] if isinstance(first, async_copy.DotOp) and isinstance(first.lhs.type, TensorType) else []
    return sum(_held(kind) for kind in (delay.wait.res.type, delay.before.res.type, delay.dot.lhs.type, *operands))


def _held(kind: TensorType) -> int:
    assert isinstance(kind.encoding, TVLayoutAttr)
    return dot_rules.registers_of(kind.encoding.data, element_type(kind))


# ---- the transformation ---------------------------------------------------------------------------------------------


def delay_dot(loop: scf.ForOp, delay: Delay, refill: Sequence[Operation], certain: bool) -> None:
    """Rewrites the loop; it and what belongs to it take its place. `refill`: the operations of its block that fill the slot which the late
    dot's release gives back. `certain`: whether there is a first trip for sure."""
    block, parent = loop.body.block, loop.parent
    assert parent is not None
    inits, position = list(loop.iter_args), delay.position
    late = [*delay.views, delay.dot, delay.wait, delay.release]
    lhs, acc = delay.dot.lhs, delay.dot.acc

    # The first trip, without the late dot.
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, (loop.lb, *inits)))
    ops = [clone_op(op, values) for op in block.ops if op is not block.last_op and op not in late]
    end = block.last_op
    assert end is not None
    handed = [*end.operands, lhs]
    handed[position] = acc
    first = [values.get(value, value) for value in handed]
    start = arith.AddiOp(loop.lb, loop.step)
    ops.append(start)

    _rotate(block, delay, refill)
    new = scf.ForOp.create(
        operands=[start.result, loop.ub, loop.step, *first],
        result_types=[value.type for value in first],
        regions=[loop.detach_region(loop.body)],
        attributes=loop.attributes,
        properties=loop.properties,
    )
    ops.append(new)

    # The last late dot.
    *results, left = new.results
    values = {delay.dot.lhs: left, delay.dot.acc: results[position]}
    ops += [clone_op(op, values) for op in late]
    results[position] = values[delay.wait.res]
    for op in (start, new):
        op.location = loop.location
    if not certain:
        condition = arith.CmpiOp(loop.lb, loop.ub, "slt")
        then, other = Block([*ops, scf.YieldOp(*results)]), Block([scf.YieldOp(*inits)])
        branch = scf.IfOp(condition, [value.type for value in inits], Region(then), Region(other))
        for op in (condition, branch, then.last_op, other.last_op):
            op.location = loop.location
        ops, results = [condition, branch], list(branch.results)
    parent.insert_ops_before(ops, loop)
    for value, replacement in zip(loop.results, results):
        replacement.name_hint = value.name_hint
        value.replace_all_uses_with(replacement)
    loop.detach()
    loop.erase()


def _rotate(block: Block, delay: Delay, refill: Sequence[Operation]) -> None:
    """The body of the trips but the first: the late dot takes what the trip before has left."""
    dot, position, end = delay.dot, delay.position, block.last_op
    assert end is not None
    carried = block.args[position + 1]
    left = block.insert_arg(dot.lhs.type, len(block.args))
    left.name_hint = dot.lhs.name_hint
    handed = list(end.operands)
    handed[position] = delay.wait.res if dot.acc is carried else dot.acc
    end.operands = [*handed, dot.lhs]
    carried.replace_uses_with_if(delay.wait.res, lambda use: use.operation is not dot)
    dot.operands = [left, dot.rhs, carried]
    _move([*delay.views, dot], delay.before)
    _move([delay.wait, delay.release, *refill, *delay.rescale, delay.convert], end)


def _move(ops: Sequence[Operation], before: Operation) -> None:
    for op in ops:
        op.detach()
    assert before.parent is not None
    before.parent.insert_ops_before(list(ops), before)


def clone_op(op: Operation, values: dict[SSAValue, SSAValue]) -> Operation:
    """A copy, at the same source location, with operands as `values` says; its results are added there."""
    copy = op.clone(values)
    for old, new in zip(op.walk(), copy.walk()):
        new.location = old.location
    values.update(zip(op.results, copy.results))
    return copy
