"""What random loops have covered: every lowering of channels and every form of role by name, read from what the compiler made of a program.

Names are of the scheduled level and of the launch plan, not of what was asked for: a program that asks for roles, and is refused them, covers none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation

    from tesela.dialects import async_copy

MANY = 9


def trips_class(trips: int, stages: int) -> set[str]:
    """What a number of trips is beside the number of stages."""
    found = {str(trips)} if trips <= 3 else set()
    found |= {name for name, value in (("stages - 1", stages - 1), ("stages", stages), ("stages + 1", stages + 1)) if trips == value}
    return {f"trips {name}" for name in found | ({"many"} if trips >= MANY else set())}


def covered(module: ModuleOp, plan: Any, points: int, multiprocessors: int) -> set[str]:
    """The names of what a scheduled module and its launch plan have. `points` of the grid are there for each column, and blocks for `multiprocessors`."""
    from xdsl.dialects import scf
    from xdsl.dialects.builtin import TensorType
    from xdsl.ir import BlockArgument

    from tesela.dialects import async_copy, tile
    from tesela.dialects.async_roles import RolesOp
    from tesela.dialects.async_store import StoreOp
    from tesela.dialects.tile_parts import SumPartsOp

    ops = list(module.walk())
    roles = next((op for op in ops if isinstance(op, RolesOp)), None)
    how = "roles" if roles is not None else "one stream"
    seen = {f"{how}: early launch" if plan.programmatic else f"{how}: no early launch"}
    if roles is not None:
        seen.add(f"roles: {roles.role_warps[0]} warps consume")
        if roles.role_registers is not None:
            seen.add("roles: registers change hands")
    if plan.persistent:
        blocks = max(1, min(points, multiprocessors))
        most = -(-points // blocks)
        seen.add(f"{how}: {'one tile' if most == 1 else 'two tiles' if most == 2 else 'many tiles'} a block")
    else:
        seen.add(f"{how}: a block for each tile")
    for op in ops:
        if isinstance(op, async_copy.ChannelOp):
            seen |= _channel(op)
        elif isinstance(op, StoreOp):
            seen.add(f"{how}: result staged")
        elif isinstance(op, SumPartsOp):
            seen.add(f"{how}: {op.parts.value.data} parts")
        elif isinstance(op, async_copy.PutOp) and op.multicast is not None:
            seen.add(f"multicast to {op.multicast.value.data}")
        elif isinstance(op, async_copy.DotOp):
            late = isinstance(op.lhs, BlockArgument) and isinstance(op.lhs.type, TensorType)
            seen |= {f"{how}: dot a trip late"} if late else set()
            seen.add(f"{how}: {'dot in a conditional' if isinstance(op.parent_op(), scf.IfOp) and _in_loop(op) else 'asynchronous dot'}")
        elif isinstance(op, tile.DotOp):
            seen.add("one stream: dot of registers" if roles is None else "roles: dot of registers")
        elif isinstance(op, scf.ForOp):
            seen |= {f"{how}: {name}" for name in _loop(op)}
    return seen


def _channel(op: async_copy.ChannelOp) -> set[str]:
    """How a channel is lowered: how it is filled, how deep it is, between whom it goes; and who reads it."""
    from tesela.dialects import async_copy
    from tesela.dialects.async_roles import role_of

    fills = op.fills()
    vias = {"write" if isinstance(fill, async_copy.WriteOp) else fill.via.data if fill.via else "?" for fill in fills}
    place = "between roles" if op.joins_roles() else "within a role" if any(role_of(fill) for fill in fills) else "one stream"
    depth = "one slot" if op.depth.value.data == 1 else "a ring"
    found = {f"{place}: {depth} by {via}" for via in vias}
    if op.lockstep is not None:
        found.add(f"{place}: joined channels")
    gets = [taker for taker in op.takers() if isinstance(taker, async_copy.GetOp)]
    for get in gets:
        readers = [use.operation for use in get.res.uses]
        dots = sum(isinstance(reader, async_copy.DotOp) for reader in readers)
        if dots > 1:
            found.add("a buffer that several dots read")
        if any(isinstance(reader, async_copy.ReadOp) for reader in readers):
            found.add(f"{place}: read into registers")
    return found


def _in_loop(op: Operation) -> bool:
    from xdsl.dialects import scf

    while (parent := op.parent_op()) is not None:
        if isinstance(parent, scf.ForOp):
            return True
        op = parent
    return False


def _loop(op: Operation) -> set[str]:
    """What a loop over channels carries, and where it stands."""
    from xdsl.dialects import scf
    from xdsl.dialects.builtin import IndexType, TensorType

    from tesela.dialects import async_copy

    assert isinstance(op, scf.ForOp)
    own = list(op.body.block.ops)
    if not any(isinstance(inner, async_copy.GetOp) for inner in own):
        return set()
    found = set()
    kinds = [value.type for value in op.iter_args]
    if any(kind.name == "async.pending" for kind in kinds):
        found.add("dots in flight between trips")
    if any(isinstance(kind, IndexType) for kind in kinds):
        found.add("carried place")
    if any(isinstance(kind, TensorType) and kind.element_type.name == "bf16" for kind in kinds):
        found.add("a loaded tile read after the loop")
    parent = op.parent_op()
    while parent is not None and parent.name != "tile.kernel":
        if isinstance(parent, scf.ForOp) and "independent" not in parent.attributes:
            found.add("loop in a loop")
        if isinstance(parent, scf.IfOp):
            found.add("loop in a conditional")
        parent = parent.parent_op()
    assert op.parent is not None
    if sum(isinstance(other, scf.ForOp) for other in op.parent.ops) > 1:
        found.add("loops one after another")
    return found


def _each(hows: Iterable[str], names: Iterable[str]) -> set[str]:
    return {f"{how}: {name}" for how in hows for name in names}


BOTH = ("one stream", "roles")
TRIPS = [f"trips {name}" for name in ("0", "1", "2", "3", "stages - 1", "stages", "stages + 1", "many")]
VIAS = ("tma", "cp.async", "ld", "write")
DEPTHS = ("one slot", "a ring")
REQUIRED = frozenset(
    # lowerings of channels: who fills them and how, how deep they are, who reads them
    _each(("one stream",), [f"{depth} by {via}" for depth in DEPTHS for via in VIAS])
    | _each(("within a role",), [f"{depth} by {via}" for depth in DEPTHS for via in VIAS[1:]] + ["a ring by tma"])
    | _each(("between roles",), ["one slot by tma", "a ring by tma", "joined channels", "read into registers"])
    | _each(("one stream",), ["joined channels", "read into registers"])
    | {"a buffer that several dots read", "multicast to 2", "multicast to 4"}
    # forms of role, and what the grid does
    | _each(("roles",), ["4 warps consume", "8 warps consume", "registers change hands"])
    | _each(BOTH, [f"{count} a block" for count in ("one tile", "two tiles", "many tiles")] + ["a block for each tile"])
    | _each(BOTH, ["2 parts", "3 parts", "early launch", "no early launch", "result staged"])
    # loops and dots
    | _each(BOTH, ["asynchronous dot", "dot in a conditional", "dots in flight between trips", "dot a trip late", "carried place"])
    | _each(BOTH, ["a loaded tile read after the loop", "loop in a loop", "loop in a conditional", "loops one after another"])
    | {"one stream: dot of registers"}
    | _each(BOTH, TRIPS)
    | {f"{stages} stages" for stages in range(1, 6)}
    | {f"target {name}" for name in ("sm_90a", "sm_90", "sm_80")}
    | {f"order {name}" for name in ("latest", "earliest", "random")}
)
"""What a run must have covered."""
