"""Where the ops of a prologue go: to the top, but behind a loop what only code behind it needs.

A prologue (context.py) holds what depends on the thread and on parameters alone, so that loops find it ready. What stores after a loop need, such
as a thread's place in the layout that results are stored in, is of no use to the loop, and would take registers from it: ptxas spilled such
values round loops whose accumulators take half of the registers. So an op whose users all come after some loop goes to the first of them.

    %at = shl %tid, 3                                       …
    ptx.for … { … }                                ⟶       ptx.for … { … }
    st.global [%at], %acc                                   %at = shl %tid, 3
                                                            st.global [%at], %acc
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation
from xdsl.traits import Pure

from ...dialects import ptx
from ...dialects.ptx_control import ForOp, WhileOp
from ...dialects.ptx_isa import lookup

LOOPS = (ForOp, WhileOp)


def place_prologue(block: Block, ops: Sequence[Operation], start: Operation | None) -> None:
    """Inserts `ops`, which depend on one another in order, into the block at `start` (its end if None) or behind."""
    if start is None:
        block.add_ops(ops)
        return
    block.insert_ops_before(ops, start)
    number: dict[Operation, int] = {}
    place: list[Operation] = []
    """Before which op goes what has to be there before number i: it, or what has gone there already, which comes later in `ops`."""
    first_loop: int | None = None
    following: Operation | None = start
    while following is not None:
        if first_loop is None and any(isinstance(inner, LOOPS) for inner in following.walk()):
            first_loop = len(place)
        number[following] = len(place)
        place.append(following)
        following = following.next_op
    if first_loop is None:
        return
    for op in reversed(ops):
        users = {block.find_ancestor_op_in_block(use.operation) for result in op.results for use in result.uses}
        if not users or not _movable(op) or not all(user in number for user in users):
            continue
        first = min(number[user] for user in users if user is not None)
        if first > first_loop:
            op.detach()
            block.insert_op_before(op, place[first])
            place[first], number[op] = op, first


def _movable(op: Operation) -> bool:
    return not lookup(op.opcode.data).effects if isinstance(op, ptx.InstOp) else op.has_trait(Pure)
