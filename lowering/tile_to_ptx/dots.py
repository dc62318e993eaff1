"""Lowering of dots: `async.dot` to wgmma, `tile.dot` to mma.sync, or fma where tensor cores do not multiply its types.

**wgmma.** Each warpgroup computes `slabs` blocks of 64 rows by `pieces` of columns over K in steps of 32 bytes; the accumulators stay in their registers
from step to step. Of a transposed dot (dot_rules.py) the right operand takes the place of the left one, and the other way round. An operand in shared memory is named by a 64-bit descriptor (PTX ISA 9.0 §9.7.16.5.1): bits 0-13 its address, 16-29 the
*leading* and 32-45 the *stride* byte offset, all in units of 16 bytes, and 62-63 the swizzle. With rows of S bytes (S = 128, 64 or 32) or, without
swizzle, of 16, what they mean depends on what is contiguous (M or N: of 16-bit types only):

                     K contiguous (rows of M or N)              M or N contiguous (rows of K)
    swizzled         leading: not used; stride: 8 rows, 8·S     leading: next span of S bytes; stride: next 8 rows of K, 8·S
    not swizzled     leading: next 16 bytes of K; stride: 8     leading: next 8 rows of K, 128; stride: next 16 bytes of M or N
                     rows, 128

Spans follow one another, each with all rows. A step of K moves the start address by 32 bytes within a span, or by 16 rows; the swizzle works on
addresses, so that this is right inside a pattern too.

Dots that are joined (passes/join_dots.py) are one wgmma over the columns of all, whose right operands lie one after another and whose accumulators are
those of each; the last one issues it.

All of a dot's wgmmas are one group between one fence and one commit. ptxas serialises wgmmas where it cannot prove that registers are left alone;
so the fence comes after every wait and nothing stands inside the group. A wait lets as many groups go on as were issued after the one in
question (passes/async_waits.py).

**mma.sync.** All operands are in registers; each fragment of the layouts that dot_rules gives is consecutive registers. One fat op per step of
K multiplies all tiles of rows and columns (and batch). 8-bit floats are converted to f16 first, four of a register to two pairs: a step of 32
of K becomes two of 16, the first over the lower pairs, the second over the upper ones, of both operands alike, so that the same products are
summed. Operands taken as tf32 are rounded by cvt.rna here, and truncated by wgmma where it reads shared memory (numbers.md N37).

**fma.** One fat op for each position along K multiplies the thread's block of the accumulator.

**Padding of K.** Where K is no multiple of a step, what lies past it in registers is replaced by zeros; buffers hold zeros there (see channels.py).
"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from ...dialects import async_copy, tile
from ...dialects.layout import TVLayout
from ...dialects.ptx import reg
from ...passes import dot_rules, join_dots
from ...passes.descriptors import Operand, descriptor_form
from ...passes.dot_rules import WGMMA_ROWS, DotChoice
from ...passes.dot_types import EMULATED, DotKind, dot_kind, operand_elements
from .channels import buffer_of
from .context import Context, lowers
from .eight_bits import to_f16_pairs
from .shared_access import TileRead, plan_read

DESCRIPTOR_ADDRESS_MASK = 0x3FFFF
"""Addresses of shared memory carry the CTA's rank in its cluster higher up; a descriptor takes 18 bits."""
SWIZZLE_MODE = {128: 1, 64: 2, 32: 3, 0: 0}


def _check_layout(ctx: Context, op: tile.DotOp | async_copy.DotOp, what: str, found: TVLayout, wanted: TVLayout) -> None:
    if found != wanted:
        raise ctx.error(op, f"the {what} is held in {found}, the instruction wants {wanted}", "convert it with layout.convert")


def _choice(ctx: Context, op: tile.DotOp | async_copy.DotOp) -> DotChoice:
    """The op's instruction and layouts, once its operands have the layouts that it wants. With a dot, registers matter more than resident
    blocks: the assembler spills accumulators for a second block otherwise."""
    ctx.min_blocks = 1
    choice = dot_rules.dot_requirements(op, ctx.warps, ctx.target)
    _check_layout(ctx, op, "accumulator", ctx.layout(async_copy.pending_tile(op.acc.type)), choice.acc)
    for what, value, wanted in (("left operand", op.lhs, choice.lhs), ("right operand", op.rhs, choice.rhs)):
        if wanted is not None and isinstance(value.type, TensorType):
            _check_layout(ctx, op, what, ctx.layout(value), wanted)
    return choice


# ---- wgmma ----------------------------------------------------------------------------------------------------------


def _descriptor(ctx: Context, op: async_copy.DotOp, value: SSAValue, mn_dim: int, start: SSAValue) -> tuple[SSAValue, Operand]:
    """The descriptor of an operand's first block, `start` bytes (the warpgroup's own part) into the buffer; b64."""
    buffer = buffer_of(ctx, value)
    form = descriptor_form(buffer.layout, mn_dim, dot_kind(op).size)
    if form is None:
        hint = "use rows of 128, 64, 32 or 16 bytes as TMA writes them, along K unless elements have 16 bits"
        raise ctx.error(op, f"wgmma does not read a buffer laid out as {buffer.layout}", hint)
    high = (form.stride >> 4) | SWIZZLE_MODE[form.swizzle] << 30
    high -= (high >> 31) << 32

    def low() -> SSAValue:
        address = ctx.shr(ctx.and_(ctx.add(buffer.start, start), DESCRIPTOR_ADDRESS_MASK), 4)
        return ctx.or_(address, form.leading >> 4 << 16)

    def whole(low: SSAValue) -> SSAValue:
        return ctx.inst("mov.b64", [ctx.concat([low, ctx.const(high)])], [reg("b64")])

    first = ctx.once(("descriptor", buffer.start, form, start), low)  # of the channel's first slot; the others' are multiples of 16 bytes further
    if ctx.known(buffer.slot) == 0:
        return ctx.once_static(("whole descriptor", first, high), lambda: whole(first)), form
    return whole(ctx.add(first, ctx.mul(buffer.slot, buffer.stride >> 4))), form


@lowers(async_copy.DotOp)
def _async_dot(ctx: Context, op: async_copy.DotOp) -> None:
    choice, shape = _choice(ctx, op), dot_rules.dot_shape(op)
    if join_dots.WITH_NEXT in op.attributes:
        if not join_dots.can_join(op, join_dots.next_dot(op), ctx.warps, ctx.target):
            raise ctx.error(op, "the dot cannot be one instruction with the next one", f"leave {join_dots.WITH_NEXT} out")
        return  # the last of those that are joined issues all
    dots = [*_joined(op), op]
    (rows_of, row_dim), (columns_of, column_dim) = (op.lhs, 0), (op.rhs, 1)
    if choice.swapped:
        (rows_of, row_dim), (columns_of, column_dim), shape = (op.rhs, 1), (op.lhs, 0), shape.transposed()
    kind = shape.kind
    down, along = choice.groups
    columns = sum(choice.pieces)
    steps = choice.extents[2] // choice.step

    def start(form_of: SSAValue, mn_dim: int, weight: int, groups: int, step: int) -> SSAValue:
        """Where the warpgroup's part begins, bytes."""
        form = descriptor_form(buffer_of(ctx, form_of).layout, mn_dim, kind.size)
        if groups == 1 or form is None:
            return ctx.const(0)
        return ctx.once(("part", weight, groups, form.at(step, 0)), lambda: ctx.mul(_group(ctx, weight, groups), form.at(step, 0)))

    left = None
    if isinstance(op.lhs.type, TensorType):
        registers = _zero_past_k(ctx, ctx.get(op.lhs), ctx.layout(op.lhs), 1, shape.k, kind)
        if kind.lhs == "tf32":
            registers = ctx.inst("cvt.rna.tf32.f32", [registers], [registers.type])
    else:
        left = _descriptor(ctx, op, rows_of, row_dim, start(rows_of, row_dim, 1, down, WGMMA_ROWS * choice.slabs))
        registers = None
    right = _descriptor(ctx, op, dots[0].rhs if len(dots) > 1 else columns_of, column_dim, start(columns_of, column_dim, down, along, columns))

    ctx.inst("wgmma.fence.sync.aligned")
    accs = [ctx.get(dot.acc) for dot in dots]
    per_register = choice.acc.num_values // accs[0].type.count
    parts: list[list[SSAValue]] = [[] for _ in dots]
    at = 0
    for slab in range(choice.slabs):
        for piece, n in enumerate(choice.pieces):
            count = n // 2 // per_register
            part = ctx.concat([ctx.pick(acc, range(at, at + count)) for acc in accs])
            at += count
            opcode = kind.wgmma_opcode(n * len(dots))
            for step in range(steps):
                b, form = right
                b = _advance(ctx, b, form.at(piece * choice.pieces[0], step * choice.step))
                imms = [] if kind.integer else [1, 1]
                if left is not None:
                    a, left_form = left
                    a = _advance(ctx, a, left_form.at(slab * WGMMA_ROWS, step * choice.step))
                    transposes = [int(left_form.mn_contiguous)]
                else:
                    assert registers is not None
                    first = 4 * (slab * steps + step)
                    a = ctx.pick(registers, range(first, first + 4))
                    transposes = []
                if kind.size == 2:
                    imms += [*transposes, int(form.mn_contiguous)]
                part = ctx.inst(opcode, [part, a, b, ctx.const(1, "pred")], [part.type], imms=imms)
            for i, pieces in enumerate(parts):
                pieces.append(ctx.pick(part, range(i * count, i * count + count)))
    ctx.inst("wgmma.commit_group.sync.aligned")
    for dot, pieces in zip(dots, parts):
        ctx.set(dot.res, ctx.concat(pieces))
        ctx.set(dot.read, ctx.const(1, "pred"))


def _joined(op: async_copy.DotOp) -> list[async_copy.DotOp]:
    """The dots that are issued with this one, in one instruction for all, in order."""
    found: list[async_copy.DotOp] = []
    while (before := join_dots.joined_before(found[0] if found else op)) is not None:
        found.insert(0, before)
    return found


def _group(ctx: Context, weight: int, extent: int) -> SSAValue:
    """(warpgroup / weight) % extent, as `Context.thread_digit`: the same for a whole warp, and known to be."""
    shifted = ctx.shr(ctx.warpgroup(), weight.bit_length() - 1)
    return shifted if weight * extent * 128 >= ctx.threads else ctx.and_(shifted, extent - 1)


def _advance(ctx: Context, descriptor: SSAValue, nbytes: int) -> SSAValue:
    """The descriptor of what lies `nbytes` further; the address does not carry out of its field."""
    if not nbytes:
        return descriptor
    if ctx.is_static(descriptor):
        return ctx.once(("descriptor at", descriptor, nbytes), lambda: ctx.add(descriptor, nbytes >> 4))
    return ctx.add(descriptor, nbytes >> 4)


@lowers(async_copy.AwaitOp)
def _await(ctx: Context, op: async_copy.AwaitOp) -> None:
    if (depth := ctx.waits.get(op)) is not None:
        ctx.inst("wgmma.wait_group.sync.aligned", imms=[depth])
    ctx.set(op.res, ctx.get(op.pending))


@lowers(async_copy.ReadyOp)
def _ready(ctx: Context, op: async_copy.ReadyOp) -> None:
    ctx.set(op.res, ctx.get(op.value))


@lowers(async_copy.TokenOp)
def _token(ctx: Context, op: async_copy.TokenOp) -> None:
    """No instruction: what a token means for a wait is known when the code is made. Its value: whether there is an operation."""
    ctx.set(op.res, ctx.const(int(op.event.data != "none"), "pred"))


# ---- mma.sync and fma ------------------------------------------------------------------------------------------------


@lowers(tile.DotOp)
def _dot(ctx: Context, op: tile.DotOp) -> None:
    choice, kind = _choice(ctx, op), dot_kind(op)
    assert choice.lhs is not None and choice.rhs is not None
    shape = dot_rules.dot_shape(op)
    depth = len(shape.batch)
    lhs = _Fragments(ctx, op.lhs, choice.lhs, depth + 1, shape.k, kind, choice.step)
    rhs = _Fragments(ctx, op.rhs, choice.rhs, depth, shape.k, kind, choice.step)
    if kind.emulated:
        ctx.note(EMULATED)
    if choice.unit == "fma":
        ctx.set(op.res, _fma_dot(ctx, op, choice, kind, lhs, rhs))
        return
    acc = ctx.get(op.acc)
    # The accumulator's values are in fours, one for each tile of 16x8, wherever the tile is.
    tiles = [choice.acc.value_coords(value) for value in range(0, choice.acc.num_values, 4)]
    half = 4 * kind.lanes
    of_rows, of_columns = ((0, 8), (0,)) if not choice.swapped else ((0,), (0, 8))  # the instruction's left operand has 16
    for k in range(0, choice.extents[2], choice.step):
        a = lhs.step(k, [(*at[:-2], at[-2] + m, k + j) for at in tiles for j in (0, half) for m in of_rows])
        b = rhs.step(k, [(*at[:-2], k + j, at[-1] + n) for at in tiles for j in (0, half) for n in of_columns])
        left, right, _ = operand_elements(op)
        if choice.swapped:
            a, b, left, right = b, a, right, left
        if kind.emulated:
            for low, high in zip(_f16_halves(ctx, a, left), _f16_halves(ctx, b, right)):
                acc = ctx.inst(kind.mma_opcode(), [low, high, acc], [acc.type])
            continue
        if kind.lhs == "tf32":
            a, b = (ctx.inst("cvt.rna.tf32.f32", [x], [x.type]) for x in (a, b))
        acc = ctx.inst(kind.mma_opcode(choice.swapped), [a, b, acc], [acc.type])
    ctx.set(op.res, acc)


def _f16_halves(ctx: Context, registers: SSAValue, element: Attribute) -> list[SSAValue]:
    """The lower pairs, and the upper ones, of registers of four 8-bit floats, as f16."""
    pairs = to_f16_pairs(ctx, registers, element)
    return [ctx.pick(pairs, range(i, pairs.type.count, 2)) for i in (0, 1)]


def _fma_dot(
    ctx: Context, op: tile.DotOp, choice: DotChoice, kind: DotKind, lhs: _Fragments, rhs: _Fragments
) -> SSAValue:
    acc = ctx.get(op.acc)
    k = dot_rules.dot_shape(op).k
    where = [choice.acc.value_coords(value) for value in range(choice.acc.num_values)]
    rows = list(dict.fromkeys(at[:-1] for at in where))
    columns = list(dict.fromkeys((*at[:-2], at[-1]) for at in where))
    row_of, column_of = ({at: i for i, at in enumerate(found)} for found in (rows, columns))
    left = [row_of[at[:-1]] for at in where]
    right = [column_of[(*at[:-2], at[-1])] for at in where]
    for start in range(0, k, choice.step):
        positions = range(start, min(start + choice.step, k))
        a = lhs.step(start, [(*at, p) for p in positions for at in rows])
        b = rhs.step(start, [(*at[:-1], p, at[-1]) for p in positions for at in columns])
        for i in range(len(positions)):
            x = ctx.pick(a, [i * len(rows) + j for j in left])
            y = ctx.pick(b, [i * len(columns) + j for j in right])
            acc = ctx.inst(kind.fma_opcode, [x, y, acc], [acc.type])
    return acc


class _Fragments:
    """An operand of mma.sync or fma, step of K by step: from registers, or read from its buffer (which holds zeros past K, if they are summed)
    as it is needed."""

    def __init__(self, ctx: Context, value: SSAValue, layout: TVLayout, k_dim: int, k: int, kind: DotKind, k_step: int):
        self.ctx = ctx
        lanes = kind.lanes
        self.places = {layout.value_coords(lanes * i): i for i in range(layout.num_values // lanes)}  # coordinates -> register
        self.read: TileRead | None = None
        if ctx.has(value):
            self.registers = ctx.get(value) if not kind.tensor_core else _zero_past_k(ctx, ctx.get(value), layout, k_dim, k, kind)
            return
        buffer = buffer_of(ctx, value)
        self.read = plan_read(ctx, buffer.address(ctx), buffer.layout, layout, kind.size)
        self.steps: dict[int, list[int]] = {}
        self.width = self.read.values // lanes
        for i in range(self.read.count):
            values = range(i * self.read.values, (i + 1) * self.read.values)
            for step in {layout.value_coords(value)[k_dim] // k_step * k_step for value in values}:
                self.steps.setdefault(step, []).append(i)
        # Where registers are put together from several reads, or a read is for several steps, all is read at once.
        if not self.read.whole_registers or sum(map(len, self.steps.values())) > self.read.count:
            self.registers = self.read.emit(ctx)
            self.read = None

    def step(self, k: int, coords: list[tuple[int, ...]]) -> SSAValue:
        """The registers whose first elements are at `coords`, all of the step of K that starts at `k`."""
        if self.read is None:
            return self.ctx.pick(self.registers, [self.places[at] for at in coords])
        which = self.steps[k]
        place = {i * self.width + j: n * self.width + j for n, i in enumerate(which) for j in range(self.width)}
        return self.ctx.pick(self.read.emit(self.ctx, which), [place[self.places[at]] for at in coords])


def _zero_past_k(ctx: Context, registers: SSAValue, layout: TVLayout, dim: int, k: int, kind: DotKind) -> SSAValue:
    """Operand registers with zeros wherever the coordinate along `dim` is k or more."""
    if k % kind.step == 0:
        return registers
    lanes = kind.lanes
    reach = 1 + sum((mode.extent - 1) * mode.stride[dim] for mode in layout.thread)
    at = ctx.thread_coord(layout, dim)
    parts: list[SSAValue] = []
    for i in range(registers.type.count):
        one = ctx.pick(registers, [i])
        room = k - layout.value_coords(lanes * i)[dim]  # the lowest element is inside where the thread's coordinate is below
        if room <= 0:
            one = ctx.const(0)
        elif room < reach + lanes - 1:
            one = ctx.and_(one, _mask(ctx, at, room, lanes))
        parts.append(one)
    return ctx.concat(parts)


def _mask(ctx: Context, at: SSAValue, room: int, lanes: int) -> SSAValue:
    """Ones over the elements of a register that are inside: element i where at + i < room. Shifts by 32 and more leave nothing (PTX ISA 9.0
    §9.7.8.7)."""

    def make() -> SSAValue:
        inside = ctx.max_(ctx.sub(ctx.const(room), at), 0)
        past = ctx.inst("shl.b32", [ctx.const(-1), ctx.mul(inside, 32 // lanes)], [reg("b32")])
        return ctx.xor(past, -1)

    return ctx.once(("mask", at, room, lanes), make)
