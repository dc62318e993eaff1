"""The pass `tile-to-ptx`: every tile.kernel becomes a ptx.kernel with its launch plan.

The kernel's body is walked once, in program order (`control.lower_block`); the handlers of the other files do the work. Around them this file
sets up the block's coordinates and collects what the launcher must know: parameters in the order they were first needed,
requirements under which the code is right, notes on slow paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp, i64
from xdsl.ir import Region

from ...dialects import ptx, tile
from ...dialects.array_effects import ATOMIC, WRITE, array_access
from ...dialects.async_roles import WARPGROUP_WARPS, RolesOp
from ...dialects.diagnostics import TeselaError
from ...dialects.dim_expr import DimExpr
from ...dialects.launch_plan import ArrayArg, LaunchPlan, Param, Requirement, ScalarArg
from ...dialects.ptx import reg
from ...dialects.target import Target
from ...passes.access import memory_bytes
from ...passes.alloc_shared import SCRATCH_ALIGNMENT
from ...passes.base import Pass, PassContext
from ...passes.dot_rules import round_up
from . import (  # noqa: F401 -- they register their handlers
    channels,
    dots,
    elementwise,
    gathers,
    indexed,
    inline,
    memory,
    messages,
    pairs,
    parts,
    reduce,
    roles,
    scan,
    shapes,
)
from .context import Context, lowers, scalar_class
from .control import lower_block
from .prologue import place_prologue
from .stores import finish_stores

DEFAULT_WARPS = 4
PDL = "pdl"
"""The attribute that says whether the kernel may begin while another still ends (overlap_launches.py)."""


def kernel_warps(kernel: tile.KernelOp) -> int:
    """The number of warps of the kernel's blocks: those of its roles, or its attribute `warps`, or 4."""
    for op in kernel.body.block.ops:
        if isinstance(op, RolesOp):
            return op.total_warps
    stated = kernel.attributes.get("warps")
    if stated is None:
        return DEFAULT_WARPS
    if not isinstance(stated, IntegerAttr) or stated.value.data not in (1, 2, 4, 8, 12, 16, 32):
        raise TeselaError.at(kernel, f"warps must be 1, 2, 4, 8, 12, 16 or 32, found {stated}")
    return stated.value.data


def dtype_name(kind: object) -> str:
    """The name of an element type as the launch plan has it: 'bf16', 'i32', 'index'."""
    return str(kind)


def _scalar_argument(ctx: Context, name: str, kind: object) -> ptx.SSAValue:
    param = Param("scalar", f"a_{name}", name)
    cls = scalar_class(kind)
    if cls != "pred":
        return ctx.param(param, cls)
    byte = ctx.param(param, "b16")  # a bool is one byte in memory
    return ctx.once(("bool", name), lambda: ctx.inst("setp.ne.s16", [byte, ctx.const(0, "b16")], [reg("pred")]))


def lower_kernel(kernel: tile.KernelOp, target: Target, walkers: int = WARPGROUP_WARPS) -> ptx.KernelOp:
    """The ptx kernel of a tile kernel that has layouts. `walkers`: warps, at most, of a role that only issues copies. Raises TeselaError at the op that
    cannot be lowered."""
    ctx = Context(kernel, target, kernel_warps(kernel))
    ctx.most_walkers = walkers
    shared = kernel.attributes.get("shared")
    ctx.scratch_base = round_up(shared.value.data, SCRATCH_ALIGNMENT) if isinstance(shared, IntegerAttr) else 0
    for name, argument in zip(kernel.names, kernel.args):
        if not isinstance(argument.type, MemRefType):
            ctx.set(argument, _scalar_argument(ctx, name, argument.type))
    for symbol, argument in zip(kernel.dims.data, kernel.dim_args):
        ctx.set(argument, ctx.dim_expr(DimExpr("sym", symbol.data)))
    for axis, argument in zip("xyz", kernel.grid_args):
        block_id = ctx.special(f"%ctaid.{axis}")
        ctx.set(argument, ctx.once(("grid", axis), lambda block_id=block_id: ctx.widen(block_id)))
    lower_block(ctx, kernel.body.block)
    finish_stores(ctx)
    _prefetch_maps(ctx)
    if tile.cluster_shape(kernel) is not None:  # shared memory goes with its block, and others may still send to it
        ctx.inst("barrier.cluster.arrive")
        ctx.inst("barrier.cluster.wait")

    entry = ctx.entry
    place_prologue(entry, ctx.prologue, entry.first_op)
    placed = shared.value.data if isinstance(shared, IntegerAttr) else 0
    shared_bytes = ctx.scratch_base + ctx.scratch_bytes if ctx.scratch_bytes else placed
    if shared_bytes > target.max_shared_bytes:
        raise ctx.error(
            kernel,
            f"the block needs {shared_bytes} bytes of shared memory ({ctx.scratch_base} for buffers, {ctx.scratch_bytes} to exchange "
            f"elements between threads), {target.name} has {target.max_shared_bytes}",
            "use smaller tiles",
        )
    result = ptx.KernelOp.make(
        kernel.sym_name.data, target.name, ctx.threads, shared_bytes, _plan(ctx, shared_bytes), Region(entry)
    )
    if ctx.min_blocks is not None:
        result.attributes["min_blocks"] = IntegerAttr(ctx.min_blocks, i64)
    if (pdl := kernel.attributes.get(PDL)) is not None:
        result.attributes[PDL] = pdl
    result.location = kernel.location
    return result


def _prefetch_maps(ctx: Context) -> None:
    """Has the tensor maps fetched as the first thing that the block does: that takes as long as setting up barriers, and telling roles apart. Those of
    loads first."""
    accesses = _accesses(ctx.kernel)
    written = {ctx.argument_name(array) for array, access in accesses.items() if access == "w"}
    maps = [param for param in ctx.params.values() if param.tensormap is not None]
    for param in sorted(maps, key=lambda param: param.arg in written):
        assert param.tensormap is not None
        address = ctx.tensormap_address(param.name, param.tensormap)
        with ctx.in_prologue():
            ctx.inst("prefetch.tensormap", [address], guard=ctx.leader())


def _accesses(kernel: tile.KernelOp) -> dict[object, str]:
    found: dict[object, str] = {}
    for op in kernel.body.walk():
        for value in op.operands:
            if isinstance(value.type, MemRefType):
                access = array_access(op)
                mode = {WRITE: "w", ATOMIC: "rw"}.get(access[1], "r") if access is not None else "r"
                found[value] = mode if found.get(value, mode) == mode else "rw"
    return found


def _plan(ctx: Context, shared_bytes: int) -> LaunchPlan:
    kernel = ctx.kernel
    accesses = _accesses(kernel)
    args: list[ArrayArg | ScalarArg] = []
    requirements: dict[Requirement, None] = dict(ctx.requirements)
    for index, (name, argument) in enumerate(zip(kernel.names, kernel.args)):
        kind = argument.type
        if not isinstance(kind, MemRefType):
            args.append(ScalarArg(name, dtype_name(kind)))
            continue
        exprs = kernel.shape_exprs(index) or ()
        noalias = kernel.arg_attr(index, "noalias") is not None
        strides = tuple(ctx.static_stride(argument, dim) for dim in range(kind.get_num_dims()))
        args.append(
            ArrayArg(
                name,
                dtype_name(kind.element_type),
                tuple(map(str, exprs)),
                strides,
                accesses.get(argument, "r"),
                noalias,
            )
        )
        align = kernel.arg_attr(index, "align")
        if isinstance(align, IntegerAttr) and align.value.data > memory_bytes(kind.element_type):
            requirements[Requirement("align", name, align.value.data)] = None
        if noalias:
            requirements[Requirement("noalias", name, 1)] = None
    if not (ctx.messages or ctx.workspace_bytes or set(accesses.values()) & {"w", "rw"}):
        ctx.note(f"kernel '{kernel.sym_name.data}' stores nothing: no call of it has any effect")
    for symbol in kernel.divisors.data if kernel.divisors is not None else ():
        requirements[Requirement("divisible", symbol, kernel.divisor(symbol))] = None
    return LaunchPlan(
        kernel.sym_name.data,
        ctx.target.name,
        tuple(args),
        kernel.symbols(),
        tuple(str(expr.data) for expr in kernel.grid.data),
        tuple(ctx.params.values()),
        ctx.threads,
        shared_bytes,
        *_cluster(kernel),
        requirements=tuple(requirements),
        notes=tuple(ctx.notes),
        persistent=tile.walks_its_grid(kernel),
        workspace_bytes=ctx.workspace_bytes,
        messages=tuple(ctx.messages),
    )


def _cluster(kernel: tile.KernelOp) -> tuple[tuple[int, int, int], int]:
    """The blocks of a cluster as they are launched, and the axis of the logical grid along which they stand."""
    shape = tile.cluster_shape(kernel)
    if shape is None:
        return (1, 1, 1), 0
    axis = next(axis for axis, n in enumerate(shape) if n > 1)
    if tile.walks_its_grid(kernel):
        return (prod(shape), 1, 1), axis
    x, y, z = (*shape, 1, 1)[:3]
    return (x, y, z), axis


@lowers(tile.BlockIndexOp)
def _block_index(ctx: Context, op: tile.BlockIndexOp) -> None:
    ctx.set(op.res, ctx.once("block index", lambda: ctx.widen(ctx.special("%ctaid.x"))))


@lowers(tile.BlockCountOp)
def _block_count(ctx: Context, op: tile.BlockCountOp) -> None:
    ctx.set(op.res, ctx.once("block count", lambda: ctx.widen(ctx.special("%nctaid.x"))))


@lowers(tile.GridExtentOp)
def _grid_extent(ctx: Context, op: tile.GridExtentOp) -> None:
    ctx.set(op.res, ctx.dim_expr(ctx.kernel.grid.data[op.axis.value.data].data))


@dataclass
class TileToPtx(Pass):
    """Rebuilds each tile.kernel, with its layouts, as a ptx.kernel. `walkers`: how many warps, at most, issue the copies of a role that does nothing
    else, each for channels of its own."""

    name: ClassVar[str] = "tile-to-ptx"
    walkers: int = WARPGROUP_WARPS

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        for op in list(module.body.block.ops):
            if isinstance(op, tile.KernelOp):
                lowered = lower_kernel(op, target, self.walkers)
                module.body.block.insert_op_before(lowered, op)
                op.detach()
                op.erase()
