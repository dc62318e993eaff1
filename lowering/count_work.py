"""Counts what one block of a kernel does (`dialects/work.py`): from the IR with layouts, where it is still one stream of operations, and from the scheduled
one, where buffers, roles and shared memory are known.

Trip counts become expressions of the symbolic dimensions where the bounds are such; a bound that depends on the block's place in the grid
counts with half of the grid's extent, and one that is only known at run time as USUAL_TRIPS.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, TensorType, UnitAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.array_effects import may_write
from ..dialects.async_roles import RolesOp
from ..dialects.dim_expr import DimExpr
from ..dialects.inside import inside
from ..dialects.layout_attrs import ConvertOp, TVLayoutAttr
from ..dialects.target import Target
from ..dialects.tile import shape_of
from ..dialects.work import Machine, Request, SplitLoop, Term, Work
from ..passes import dot_rules
from ..passes.access import memory_bytes
from ..passes.alloc_shared import ring_bytes, scratch_bound
from ..passes.dot_types import STEP_BYTES
from ..passes.form_clusters import USUAL_CLUSTER, stated_size
from ..passes.layout_costs import SECTOR, SHARED_BYTES_PER_CLOCK, SLOTS, wgmma_clocks
from ..passes.machine_costs import (
    ARRIVAL_CLOCKS,
    BLOCK_START_CLOCKS,
    COPY_BYTES_PER_CLOCK,
    COPY_LATENCY,
    L2_BYTES_PER_CLOCK,
    L2_SHARED_BYTES,
    LANES_PER_CLOCK,
    MEETING_CLOCKS,
    MEGAHERTZ,
    MEMORY_BYTES_PER_CLOCK,
    PAIRING_CLOCKS,
    PARTIAL_SECTOR_COST,
    REFILL_CLOCKS,
    STORE_BYTES_PER_CLOCK,
    SUM_BYTES_PER_CLOCK,
    SUSTAINED,
)
from ..passes.split_reduction import find_loop
from ..passes.stages import USUAL_TRIPS
from .pipeline import Lowering
from .tile_to_ptx.kernel import kernel_warps

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

MACHINE = Machine(
    COPY_BYTES_PER_CLOCK, L2_BYTES_PER_CLOCK, SHARED_BYTES_PER_CLOCK, STORE_BYTES_PER_CLOCK, MEMORY_BYTES_PER_CLOCK, BLOCK_START_CLOCKS,
    REFILL_CLOCKS, ARRIVAL_CLOCKS, MEETING_CLOCKS, PAIRING_CLOCKS, SUM_BYTES_PER_CLOCK, L2_SHARED_BYTES, MEGAHERTZ,
)  # fmt: skip
LOAD_LATENCY = 800
"""Clocks of a load from memory by a thread (estimate)."""


class Count:
    """The counts of a module's only kernel, in two steps, each of which lowers the module further, in place: `floor`, then `work`."""

    def __init__(self, module: ModuleOp, target: Target):
        self._lowering = Lowering(module, target)
        self._floor: Work | None = None
        self._work: Work | None = None

    def uncounted(self) -> Lowering:
        """What is lowered so far, as it would be had nobody counted; to be compiled, and counted no more."""
        if self._floor is not None and self._work is None:
            _unmark(self._kernel)
        return self._lowering

    @property
    def _kernel(self) -> tile.KernelOp:
        return next(op for op in self._lowering.module.body.block.ops if isinstance(op, tile.KernelOp))

    def floor(self) -> Work:
        """What no plan of the program does with less: counts from before layouts are chosen, and otherwise the best that could come of them, so that `estimate`
        of it is never above that of `work`. Raises TeselaError where the program cannot be compiled, as far as that is known here."""
        if self._floor is None:
            split = _split_loop(self._kernel, self._lowering.target)
            self._lowering.to("async")
            kernel, target = self._kernel, self._lowering.target
            counter = _Counter(kernel, target)
            counter.block(kernel.body.block, ())
            terms = tuple(replace(counter.term(trips, shared), requests=()) for (trips, shared), found in counter.terms.items() if any(found))
            together = (stated_size(kernel) or USUAL_CLUSTER) if target.has_clusters else 1
            machine = replace(MACHINE, l2=MACHINE.l2 * together)
            latency = min(LOAD_LATENCY, *COPY_LATENCY.values())
            warps = dot_rules.block_warps(kernel)
            self._floor = Work(_grid(kernel), warps, 0, target.max_blocks_per_sm, True, latency, target.shared_bytes_per_sm, terms, machine, split)
        return self._floor

    def work(self) -> Work:
        """The counts. Raises TeselaError where the program cannot be compiled."""
        if self._work is None:
            self._work = self._count(self.floor().split)
        return self._work

    def _count(self, split: SplitLoop | None) -> Work:
        target = self._lowering.target
        self._lowering.after("form-clusters")  # which says what is loaded together
        kernel = self._kernel
        shape = tile.cluster_shape(kernel) or (1,)
        grid = _grid(kernel)
        counter = _Counter(kernel, target)
        counter.block(kernel.body.block, ())
        registers = 40 + max((_registers(value) for op in kernel.walk() for value in op.results), default=0)
        _unmark(kernel)
        self._lowering.to("schedule")
        kernel = self._kernel
        warps = kernel_warps(kernel)
        channels = inside(kernel, async_copy.ChannelOp)
        stated = kernel.attributes.get("shared")
        shared = (stated.value.data if isinstance(stated, IntegerAttr) else 0) + scratch_bound(kernel)
        resident = min(
            target.max_blocks_per_sm,
            target.max_warps_per_sm // warps,
            target.registers_per_sm // (32 * warps * min(registers, target.max_registers_per_thread)),
            target.shared_bytes_per_sm // (shared + target.reserved_shared_bytes),
        )
        persistent = tile.walks_its_grid(kernel)
        puts = inside(kernel, async_copy.PutOp)
        filled = {op.channel: op for op in puts}
        ahead = sum(ring_bytes(op, 1) * max(1, op.depth.value.data - 1) for op in channels if op.res in filled)
        latency = max((COPY_LATENCY.get(op.via.data, LOAD_LATENCY) if op.via is not None else LOAD_LATENCY for op in puts), default=LOAD_LATENCY)
        counter.staged = bool(inside(kernel, async_copy.StoreOp))
        terms = tuple(counter.term(trips, shared) for (trips, shared), found in counter.terms.items() if any(found))
        in_flight = ahead + (0 if ahead else counter.loaded)
        axis = max(range(len(shape)), key=lambda axis: shape[axis])
        if split is not None and persistent:
            split = replace(split, cluster=1)  # parts are a cluster of blocks that do one point each
        return Work(
            grid, warps, shared, 1 if persistent else max(1, resident), persistent, latency, max(1, in_flight), terms, MACHINE, split, prod(shape), axis
        )


def count_work(module: ModuleOp, target: Target) -> Work:
    """The work of the module's only kernel. Lowers the module to the schedule level, in place; raises TeselaError where that cannot be done."""
    return Count(module, target).work()


def _grid(kernel: tile.KernelOp) -> tuple[str, ...]:
    return tuple(str(expr.data) for expr in kernel.grid.data)


SHARED = "shared_by_parts"
"""Marks the loop that can be split, from where that is known to where it is counted."""


def _split_loop(kernel: tile.KernelOp, target: Target) -> SplitLoop | None:
    """The loop that can be split, unless into how many parts is stated, marked."""
    loop = find_loop(kernel).loop if "split" not in kernel.attributes else None
    if loop is None:
        return None
    loop.attributes[SHARED] = UnitAttr()
    nbytes = sum(prod(shape_of(value.type)) * memory_bytes(tile.element_type(value.type)) for value in loop.results)
    together = USUAL_CLUSTER if target.has_clusters and len(kernel.grid.data) < 3 else 1
    return SplitLoop(str(trips(loop, kernel)), nbytes, together)


def _unmark(kernel: tile.KernelOp) -> None:
    for op in kernel.walk():
        op.attributes.pop(SHARED, None)


class _Counter:
    """Adds up what the blocks of a kernel do, by the trips of the loops round it and whether one of these can be split: [clocks of compute, bytes copied,
    bytes stored, bytes through shared memory]."""

    def __init__(self, kernel: tile.KernelOp, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.terms: dict[tuple[tuple[str, ...], bool], list[float]] = {}
        self.requests: dict[tuple[tuple[str, ...], bool], list[Request]] = {}
        self.by_halves: dict[tuple[tuple[str, ...], bool], float] = {}
        """Bytes that threads store into parts of sectors, unless the stores are staged."""
        self.staged = False
        self.loaded = 0
        """Bytes that threads load, at most, in one block of operations: those that are under way together."""

    def term(self, trips: tuple[str, ...], shared: bool) -> Term:
        """What was counted for these trips."""
        compute, copied, stored, exchanged = map(ceil, self.terms[trips, shared])
        if not self.staged:
            stored += ceil(self.by_halves.get((trips, shared), 0.0) * (PARTIAL_SECTOR_COST - 1))
        return Term(trips, compute, copied, stored, shared, exchanged, tuple(self.requests.get((trips, shared), ())))

    def block(self, block: Block, loops: tuple[str, ...], shared: bool = False) -> None:
        here = self.terms.setdefault((loops, shared), [0.0, 0.0, 0.0, 0.0])
        loaded = 0
        for op in block.ops:
            if isinstance(op, scf.ForOp):
                self.block(op.body.block, (*loops, str(trips(op, self.kernel))), shared or SHARED in op.attributes)
            elif isinstance(op, scf.WhileOp):
                for region in op.regions:
                    self.block(region.block, (*loops, str(USUAL_TRIPS)), shared)
            elif isinstance(op, scf.IfOp | RolesOp):
                for region in op.regions:
                    if region.blocks:
                        self.block(region.block, loops, shared)
            elif isinstance(op, tile.LoadOp | tile.LoadIndexedOp):
                loaded += _bytes(op.res)
                here[1] += _bytes(op.res)
            elif isinstance(op, async_copy.PutOp):
                here[1] += _bytes(op.channel)
                here[3] += _bytes(op.channel)
                request = _request(op, self.kernel)
                if request is not None:
                    self.requests.setdefault((loops, shared), []).append(request)
            elif may_write(op):
                here[2] += _bytes(op.value)
                if isinstance(op, tile.StoreOp) and _row_piece(op) < SECTOR:
                    self.by_halves[loops, shared] = self.by_halves.get((loops, shared), 0.0) + _bytes(op.value)
            elif isinstance(op, tile.DotOp | async_copy.DotOp):
                wgmma = isinstance(op, async_copy.DotOp)
                here[0] += dot_clocks(op, self.target) / (SUSTAINED if wgmma else 1)
                if wgmma:
                    here[3] += _operand_bytes(op, self.target)
            else:
                here[0] += _arithmetic(op)
        self.loaded = max(self.loaded, loaded)


def _row_piece(op: tile.StoreOp) -> int:
    """Bytes side by side in memory that a warp stores at once, where its layout says; a whole sector where it does not."""
    kind = op.value.type
    if not isinstance(kind, TensorType) or not isinstance(kind.encoding, TVLayoutAttr):
        return SECTOR
    strides = dot_rules.static_strides(op.array.type)
    inner = next((d for d, dim in enumerate(op.tile_dims()) if strides[dim] == 1), None)
    if inner is None:
        return SECTOR
    layout, piece = kind.encoding.data, 1
    for mode in (*layout.value[:1], *layout.thread):
        if mode.stride[inner] == piece and not any(stride for dim, stride in enumerate(mode.stride) if dim != inner):
            piece *= mode.extent
    return piece * memory_bytes(kind.element_type)


def dot_clocks(op: tile.DotOp | async_copy.DotOp, target: Target) -> float:
    """Clocks that the tensor cores of a multiprocessor take for a dot, rows and columns that the instruction adds included. Before its way is chosen, no way takes less."""
    if isinstance(op, tile.DotOp):
        shape = dot_rules.dot_shape(op)
        return prod(shape.batch) * shape.m * shape.n * shape.k / shape.kind.macs_per_clock(False)
    return min(sum(map(max, pieces)) for pieces in _wgmmas(op, target))


def _wgmmas(op: async_copy.DotOp, target: Target) -> list[list[tuple[float, float]]]:
    """For each way that a dot may be computed, (clocks of the tensor cores, clocks of shared memory) of each piece that it is done in. Once it is chosen there is one; before, there are the dot
    as it is and transposed, with the operand that may be in registers taken to be there."""
    warps, shape = dot_rules.block_warps(op), dot_rules.dot_shape(op)
    chosen = "instruction" in op.attributes
    ways = [dot_rules.dot_requirements(op, warps, target)] if chosen else [dot_rules.wgmma_choice(shape, warps, True)]
    if not chosen and dot_rules.gains_transposed(shape, "wgmma"):
        ways.append(dot_rules.wgmma_choice(shape.transposed(), warps, True))
    found = []
    for way in ways:
        times = prod(way.groups) * way.slabs * (way.extents[2] // way.step) / SLOTS
        clocks = [wgmma_clocks(dot_rules.WGMMA_ROWS, n, way.lhs is None, STEP_BYTES // way.step, way.step) for n in way.pieces]
        found.append([(times * cores, times * reads) for cores, reads in clocks])
    return found


def _operand_bytes(op: async_copy.DotOp, target: Target) -> float:
    """Bytes that the tensor cores read from shared memory for a dot; before its way is chosen, no way reads less."""
    return SHARED_BYTES_PER_CLOCK * min(sum(reads for _, reads in pieces) for pieces in _wgmmas(op, target))


def _request(op: async_copy.PutOp, kernel: tile.KernelOp) -> Request | None:
    """How L2 is asked for a tile; None if its rows do not lie side by side."""
    strides, dims = dot_rules.static_strides(op.array.type), op.tile_dims()
    inner = next((d for d, dim in enumerate(dims) if strides[dim] == 1), None)
    exprs = kernel.shape_exprs(kernel.args.index(op.array)) if op.array in kernel.args else None
    if inner is None or exprs is None:
        return None
    kind = dot_rules.operand_tile(op.channel.type)
    size = memory_bytes(kind.element_type)
    nbytes = _bytes(op.channel)
    blocks = op.multicast.value.data if op.multicast is not None else 1
    pitch = DimExpr("*", 0, (DimExpr("int", size), exprs[dims[inner]]))
    return Request(nbytes, nbytes // blocks, shape_of(kind)[inner] * size, str(pitch))


def _arithmetic(op: Operation) -> float:
    """Clocks of a multiprocessor for an operation on tiles that is done in registers, or by way of shared memory."""
    tiles = [value for value in (*op.results, *op.operands) if isinstance(value.type, TensorType)]
    if not tiles:
        return 0.0
    if isinstance(op, ConvertOp):
        return 2 * _bytes(op.result) / SHARED_BYTES_PER_CLOCK
    if not isinstance(op, tile.ReduceOp | tile.CastOp | tile.SelectOp | tile.CmpOp) and not op.name.startswith(("arith.", "math.")):
        return 0.0
    elements = max(prod(shape_of(value.type)) for value in tiles)
    heavy = isinstance(op, arith.DivfOp) or op.name.startswith("math.")
    return elements / (LANES_PER_CLOCK["sfu" if heavy else "alu"])


def _bytes(value: SSAValue) -> int:
    """Bytes of a tile, of a scalar, or of a channel's buffer."""
    kind = value.type.tile if isinstance(value.type, async_copy.ChannelType) else value.type
    return prod(shape_of(kind)) * memory_bytes(tile.element_type(kind))


def _registers(value: SSAValue) -> int:
    """Registers of 32 bits that a thread holds a tile in."""
    kind = value.type
    if isinstance(kind, async_copy.PendingType):
        kind = kind.tile
    if not isinstance(kind, TensorType) or not isinstance(kind.encoding, TVLayoutAttr):
        return 0
    return -(-kind.encoding.data.num_values * memory_bytes(kind.element_type) // 4)


# ---- trip counts ----------------------------------------------------------------------------------------------------


def trips(loop: scf.ForOp, kernel: tile.KernelOp) -> DimExpr:
    """The trip count as an expression of the kernel's dimensions; never negative where it is evaluated with `max(0, …)`."""
    lower, upper, step = (_expression(value, kernel) for value in (loop.lb, loop.ub, loop.step))
    if lower is None or upper is None or step is None:
        return DimExpr("int", USUAL_TRIPS)
    span = upper if lower == DimExpr("int", 0) else DimExpr("-", 0, (upper, lower))
    if step == DimExpr("int", 1):
        return span
    return DimExpr("ceildiv", 0, (span, step))


_OPERATORS = {
    arith.AddiOp: "+", arith.SubiOp: "-", arith.MuliOp: "*", arith.DivUIOp: "floordiv", arith.DivSIOp: "floordiv",
    arith.FloorDivSIOp: "floordiv", arith.CeilDivSIOp: "ceildiv", arith.CeilDivUIOp: "ceildiv", arith.MinSIOp: "min", arith.MaxSIOp: "max",
    arith.RemSIOp: "mod", arith.RemUIOp: "mod",
}  # fmt: skip


def _expression(value: SSAValue, kernel: tile.KernelOp) -> DimExpr | None:
    """A scalar as an expression of the dimensions; None where it depends on anything else but the place in the grid."""
    if isinstance(value, BlockArgument):
        if value in kernel.dim_args:
            return DimExpr("sym", kernel.dims.data[kernel.dim_args.index(value)].data)
        if value in kernel.grid_args:
            extent = kernel.grid.data[kernel.grid_args.index(value)].data
            return DimExpr("floordiv", 0, (extent, DimExpr("int", 2)))
        return None
    op = value.owner
    assert isinstance(op, Operation)
    if isinstance(op, arith.ConstantOp):
        return DimExpr("int", op.value.value.data) if isinstance(op.value, IntegerAttr) and op.value.value.data >= 0 else None
    if isinstance(op, arith.IndexCastOp | arith.ExtSIOp | arith.TruncIOp):
        return _expression(op.operands[0], kernel)
    symbol = _OPERATORS.get(type(op))
    if symbol is None:
        return None
    left, right = (_expression(operand, kernel) for operand in op.operands)
    return None if left is None or right is None else DimExpr(symbol, 0, (left, right))
