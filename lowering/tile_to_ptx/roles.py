"""Lowering of async.roles: one branch by warp, and in each branch a program of its own.

The branch is on the warp's index, broadcast from a lane so that the assembler knows it to be the same in a whole warp. A role first gives up or
takes registers (`setmaxnreg`, which counts from what the block starts with: async_roles.py), then computes what its code needs of thread
coordinates and addresses (its own prologue), then runs. Its barrier is a named one, with its own number and number of threads, and its scratch in
shared memory is its own: roles do not know how far the others are.

A role that only issues copies is walked by whole warps, a warp for each channel that it fills (or group in lockstep), as far as there are warps: a channel whose
slots are free is filled though another one's are not. A single lane that loops by itself, or a comparison of thread indices,
would make the assembler wrap each TMA instruction into a loop over the lanes; so the elected lane of the warp issues. Warps of the role without a channel are there because
registers change hands by whole warpgroups; they end at once.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block

from ...dialects import async_copy, tile
from ...dialects.array_effects import may_write
from ...dialects.async_roles import WARPGROUP_WARPS, RolesOp, entry_registers
from ...dialects.inside import inside
from ...passes.alloc_shared import region_scratch
from .channels import counted_as
from .context import Context, lowers
from .control import lower_ops
from .stores import finish_stores


@lowers(RolesOp)
def _roles(ctx: Context, op: RolesOp) -> None:
    _check(ctx, op)
    _branch(ctx, op, 0, ctx.scratch_base)


def _check(ctx: Context, op: RolesOp) -> None:
    for number, region in enumerate(op.bodies):
        first = op.first_warp(number)
        if first % WARPGROUP_WARPS and inside(region, async_copy.DotOp):
            raise ctx.error(
                op,
                f"role {op.role_names[number]} computes by wgmma but starts at warp {first}, within a warpgroup",
                "write roles of whole warpgroups first",
            )
    if op.role_registers is not None and not ctx.target.has_wgmma:
        raise ctx.error(op, f"{ctx.target.name} cannot change a role's registers", "state no registers, or compile for sm_90a")
    before = op.prev_op
    while before is not None:
        if any(isinstance(value.type, TensorType) for value in before.results):
            raise ctx.error(before, "a tile outside of the roles is held by the threads of all of them", "move it into a role")
        before = before.prev_op


def _branch(ctx: Context, op: RolesOp, number: int, scratch: int) -> None:
    """The code of the roles from `number` on, the warps of the others being elsewhere."""

    def own() -> None:
        _role(ctx, op, number, scratch)

    if number == len(op.role_names) - 1:
        end = op.first_warp(number)
        mine = ctx.compare("ge", "s32", ctx.warp(), end)
        ctx.if_(mine, own)
        return
    mine = ctx.compare("lt", "s32", ctx.warp(), op.first_warp(number + 1))
    following = scratch + region_scratch(op.bodies[number])
    ctx.if_(mine, own, lambda: _branch(ctx, op, number + 1, following) or ())


def _role(ctx: Context, op: RolesOp, number: int, scratch: int) -> None:
    registers, block = op.role_registers, op.bodies[number].block
    entry = entry_registers(ctx.threads)
    with ctx.as_role(number, op.first_warp(number), op.role_warps[number], scratch):
        if registers is not None and registers[number] != entry:
            direction = "inc" if registers[number] > entry else "dec"
            with ctx.in_prologue():
                ctx.inst(f"setmaxnreg.{direction}.sync.aligned.u32", imms=[registers[number]])
        if not only_issues(block):
            lower_ops(ctx, block)
            finish_stores(ctx)
            return
        filled = list(dict.fromkeys(counted_as(ctx, inner) for inner in block.walk() if isinstance(inner, async_copy.PutOp)))
        walkers = max(1, min(len(filled), op.role_warps[number], ctx.most_walkers))
        ctx.one_warp = True
        ctx.issuers = {channel: i % walkers for i, channel in enumerate(filled)} if walkers > 1 else {}
        ctx.if_(ctx.compare("lt", "s32", ctx.warp(), walkers), lambda: lower_ops(ctx, block) and None)


def only_issues(block: Block) -> bool:
    """Whether a block only issues copies by TMA and computes scalars for them, so that one warp can do it."""
    for op in block.walk():
        if isinstance(op, async_copy.PutOp):
            if op.via is None or op.via.data != "tma":
                return False
        elif may_write(op) or isinstance(op, tile.PrintOp | tile.AssertOp | async_copy.WriteOp | async_copy.GetOp | async_copy.ReleaseOp):
            return False
        elif any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
            return False
        elif op.regions and not isinstance(op, scf.ForOp | scf.IfOp | scf.WhileOp):
            return False
    return True
