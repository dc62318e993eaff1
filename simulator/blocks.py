"""The block interpreter: runs a `tile.kernel` of the tile and async levels on NumPy arrays, block by block.

It is the meaning of these two levels that every later level is compared with; arithmetic is as docs/numbers.md says.
Encodings (layouts) are ignored, so a module may be run before and after any pass that keeps it at these levels.

    module = parse_module(text)
    out = np.zeros((3, 4), np.float32)
    run_kernel(module, {"x": x, "y": out})

How it works. A kernel is *decoded* once into a tree of steps, whose operands are slots of a list, the frame. A step calls the meaning of its
operation (`block_ops.py` for those that only compute; here for memory, control and channels) on the frame's values. Blocks of the grid are independent, so their order is
free: `seed` shuffles it, which shows a program that depends on it. Results that depend on the order of a sum are computed in
float64, so they differ from any machine's by its own error only.

**Roles** (`async.roles`) run as coroutines. A step that must wait, for a slot to be free or to be filled, *yields* until it need not; then the
next role goes on, round and round, each as far as it comes. So a step is a function that gives None when it is done, or an iterator of
the waits that it meets. Where all roles that have not ended wait, that is a deadlock, and the error names every one's place. A program
without roles is a single one: it must never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.diagnostics import TeselaError
from ..dialects.tile import element_type, shape_of
from . import tile_arithmetic as ta
from .block_calls import (
    array_arguments,
    bind_array,
    bind_scalar,
    check_names,
    find_kernel,
    infer_dims,
    written_arguments,
)
from .block_combining import combined
from .block_indexed import Place, atomic, atomic_at, load_at, load_indexed, store_at, store_indexed
from .block_inline import inline_ptx
from .block_messages import check, print_values
from .block_ops import MEANINGS, Refused, check_dot, dot_precision
from .channels import PAST, Buffer, Channel, Dots, Pending, Slot, Token
from .contract import grid_shape
from .tile_arithmetic import Value, dtype_of

MAX_TRIPS = 10_000_000
"""An scf.while that runs longer is taken for one that never ends."""


@dataclass(slots=True)
class Frame:
    """The run of one block: values by slot, the extents of the logical grid, which of how many blocks it is, its channels by the operation that
    makes each, its asynchronous dots."""

    values: list[Any]
    grid: tuple[int, ...] = ()
    block: int = 0
    blocks: int = 1
    channels: dict[Operation, Channel] = field(default_factory=dict)
    dots: Dots = field(default_factory=Dots)
    met: dict[int, dict[int, list[Any]]] = field(default_factory=dict)
    """Of all blocks: the tiles of the parts that have come to a point, as long as some are missing."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What an operation waits for before it can go on: `refuse` raises the error that says so, if it never can."""

    op: Operation
    over: Callable[[], bool]
    refuse: Callable[[], Any]


Step = Callable[[Frame], "Iterator[Wait] | None"]
Effect = Callable[..., Sequence[Any]]
"""(frame, operand values) -> result values"""


@contextmanager
def _at(op: Operation):
    """Gives a `Refused` the place of `op`."""
    try:
        yield
    except Refused as refused:
        raise TeselaError.at(op, refused.message, refused.hint) from None


class Semantics:
    """What the interpreter asks of values; `bounds.py` has another one, whose values know how far they may be off."""

    def meaning(self, op: Operation) -> Callable[..., Any] | None:
        """The function from operand values to the result of an operation that only computes; None if it does not."""
        found = MEANINGS.get(op.name)
        return None if found is None else found(op)

    def array(self, name: str, array: np.ndarray, written: bool) -> Any:
        """What stands for an array argument."""
        return array

    def load(self, array: Any, starts: Sequence[int], dims: Sequence[int], shape: Sequence[int], *fill: Any) -> Any:
        return load_tile(array, starts, dims, shape, *fill)

    def store(self, array: Any, starts: Sequence[int], dims: Sequence[int], value: Any) -> None:
        store_tile(array, starts, dims, value)

    def load_at(self, array: Any, place: Place, *fill: Any) -> Any:
        return load_at(array, place, *fill)

    def store_at(self, array: Any, place: Place, value: Any) -> None:
        store_at(array, place, value)

    def atomic(self, kind: tile.AtomicKind, array: Any, place: Place, value: Any, *expected: Any) -> Any:
        return atomic_at(kind, array, place, value, *expected)

    def item(self, x: Any, which: int) -> Any:
        """One of the pairs along the last dimension."""
        return x[..., which]

    def line(self, x: Any, axis: int, which: int) -> Any:
        """What stands at one place along an axis."""
        return np.asarray(np.take(x, which, axis))

    def stacked(self, lines: Sequence[Any], axis: int) -> Any:
        """The inverse of `line`: all of them along the axis."""
        return np.stack(lines, axis)

    def spread(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A value repeated to a shape."""
        return np.broadcast_to(x, shape)

    def reassociated(self, x: Any) -> Any:
        """What a value may be that comes of rounding operations which may have been associated in another order."""
        return x

    def dot(self, a: Any, b: Any, acc: Any, precision: str | None) -> Any:
        return ta.dot(a, b, acc, precision)

    def integer(self, value: Any) -> int:
        """An index or a condition that decides what the program does."""
        return int(value)

    def inline(self, function: Callable[..., Sequence[Any]], operands: Sequence[Any], dtypes: Sequence[np.dtype]) -> Sequence[Any]:
        """The results, of these types, of a function from operand values that is not known to be anything but a function."""
        return function(*operands)

    def shown(self, value: Any) -> Any:
        """A value as it is printed."""
        return value

    def integers(self, value: Any) -> Any:
        """A tile of indices."""
        return value

    def same(self, a: Any, b: Any) -> bool:
        return a.tobytes() == b.tobytes()


class _Decoder:
    """Turns operations into steps; one for each kernel."""

    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.slots: dict[SSAValue, int] = {}

    def slot(self, value: SSAValue) -> int:
        return self.slots.setdefault(value, len(self.slots))

    def slots_of(self, values: Iterable[SSAValue]) -> list[int]:
        return [self.slot(value) for value in values]

    def block(self, block: Block) -> Step:
        """The steps of a block without its terminator."""
        steps = [self.step(op) for op in block.ops if op.name not in _TERMINATORS]

        def run(frame: Frame) -> Iterator[Wait]:
            for step in steps:
                if (waits := step(frame)) is not None:
                    yield from waits

        return run

    def step(self, op: Operation) -> Step:
        with _at(op):
            if (control := _CONTROL.get(op.name)) is not None:
                return control(self, op)
            if (effect := _EFFECTS.get(op.name)) is not None:
                step = self.call(op, effect(self.semantics, op))
                ready = _WAITS.get(op.name)
                return step if ready is None else self.when(op, ready, step)
            if (function := self.semantics.meaning(op)) is not None:
                return self.call(op, lambda frame, *operands: (function(*operands),))
            raise Refused(
                f"the block interpreter knows no operation '{op.name}'", "run a module of the tile or async level"
            )

    def when(self, op: Operation, ready: Callable[[Channel], bool], step: Step) -> Step:
        """`step`, an operation on the channel that is its first operand, once the channel is `ready`."""
        slot = self.slot(op.operands[0])

        def wait(frame: Frame, channel: Channel) -> Iterator[Wait]:
            yield Wait(op, lambda: ready(channel), lambda: step(frame))
            step(frame)

        def run(frame: Frame) -> Iterator[Wait] | None:
            channel = frame.values[slot]
            return step(frame) if ready(channel) else wait(frame, channel)

        return run

    def call(self, op: Operation, function: Callable[..., Sequence[Any]]) -> Step:
        """A step that calls `function(frame, *operands)` for the results' values."""
        sources, targets = self.slots_of(op.operands), self.slots_of(op.results)

        def run(frame: Frame) -> None:
            values = frame.values
            try:
                results = function(frame, *[values[slot] for slot in sources])
            except Refused as refused:
                raise TeselaError.at(op, refused.message, refused.hint) from None
            for slot, result in zip(targets, results):
                values[slot] = result

        return run


# --- Memory ---


def _window(array: Value, starts: Sequence[int], dims: Sequence[int], shape: Sequence[int]) -> tuple[Any, Any] | None:
    """Where a tile that starts at `starts` meets the array: the array's part, with the tile's dimensions in order, and
    the tile's slices; None where they do not meet."""
    index: list[Any] = list(starts)
    inside: list[slice] = []
    for dim, extent in zip(dims, shape):
        start, end = index[dim], min(index[dim] + extent, array.shape[dim])
        first = max(start, 0)
        if first >= end:
            return None
        index[dim] = slice(first, end)
        inside.append(slice(first - start, end - start))
    for dim, position in enumerate(index):
        if isinstance(position, int) and not 0 <= position < array.shape[dim]:
            return None
    part = array[(*index, ...)]  # the ellipsis keeps a view, also of a single element
    kept = sorted(dims)
    return part.transpose([kept.index(dim) for dim in dims]), tuple(inside)


def load_tile(
    array: Value, starts: Sequence[int], dims: Sequence[int], shape: Sequence[int], fill: Value | None = None
) -> Value:
    """`tile.load`: `fill` (or zero) past the edges (N39)."""
    out = np.full(shape, np.zeros((), array.dtype) if fill is None else fill, array.dtype)
    if (met := _window(array, starts, dims, shape)) is not None:
        part, inside = met
        out[(*inside, ...)] = part
    return out


def store_tile(array: Value, starts: Sequence[int], dims: Sequence[int], tile_value: Value) -> None:
    """`tile.store`: nothing past the edges."""
    if (met := _window(array, starts, dims, tile_value.shape)) is not None:
        part, inside = met
        part[...] = tile_value[(*inside, ...)]


def _load(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.LoadOp)
    dims, shape, count = op.tile_dims(), shape_of(op.res.type), len(op.indices)

    def run(frame: Frame, array: Any, *rest: Any) -> Sequence[Any]:
        starts = [semantics.integer(start) for start in rest[:count]]
        return (semantics.load(array, starts, dims, shape, *rest[count:]),)

    return run


def _store(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.StoreOp)
    dims = op.tile_dims()

    def run(frame: Frame, value: Any, array: Any, *starts: Any) -> Sequence[Any]:
        semantics.store(array, [semantics.integer(start) for start in starts], dims, value)
        return ()

    return run


# --- Channels ---


def _channel(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, async_copy.ChannelOp)
    depth = op.depth.value.data

    def run(frame: Frame) -> Sequence[Any]:
        if (old := frame.channels.get(op)) is not None:
            old.check_drained()
        frame.channels[op] = Channel(depth)
        return (frame.channels[op],)

    return run


def _put(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, async_copy.PutOp)
    dims, shape = op.tile_dims(), op.channel.type.shape

    def run(frame: Frame, channel: Channel, array: Any, *starts: Any) -> Sequence[Any]:
        at = [semantics.integer(start) for start in starts]
        value = semantics.load(array, at, dims, shape)
        channel.put(Slot(value, lambda: semantics.same(value, semantics.load(array, at, dims, shape))))
        return ()

    return run


def _write(semantics: Semantics, op: Operation) -> Effect:
    def run(frame: Frame, channel: Channel, value: Any) -> Sequence[Any]:
        channel.put(Slot(value))
        return ()

    return run


def _get(semantics: Semantics, op: Operation) -> Effect:
    return lambda frame, channel: (channel.get(),)


def _release(semantics: Semantics, op: Operation) -> Effect:
    def run(frame: Frame, channel: Channel, token: Token | None = None) -> Sequence[Any]:
        channel.release(frame.dots, token)
        return ()

    return run


def _transpose_buffer(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, async_copy.TransposeOp)
    order = op.order
    return lambda frame, buffer: (buffer.transposed(order),)


def _read(semantics: Semantics, op: Operation) -> Effect:
    return lambda frame, buffer: (buffer.read(),)


def _async_dot(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, async_copy.DotOp)
    precision = dot_precision(op)
    check_dot(op, op.rhs.type.element, element_type(async_copy.pending_tile(op.acc.type)))

    def run(frame: Frame, lhs: Any, rhs: Buffer, acc: Any) -> Sequence[Any]:
        number = frame.dots.issue()
        a = lhs.read(number) if isinstance(lhs, Buffer) else lhs
        sum_so_far = acc.value if isinstance(acc, Pending) else acc  # earlier dots complete before this one
        return Pending(semantics.dot(a, rhs.read(number), sum_so_far, precision), number), Token(number)

    return run


def _await(semantics: Semantics, op: Operation) -> Effect:
    def run(frame: Frame, pending: Pending) -> Sequence[Any]:
        frame.dots.wait(pending.number)
        return (pending.value,)

    return run


def _ready(semantics: Semantics, op: Operation) -> Effect:
    return lambda frame, value: (Pending(value, PAST),)


def _async_store(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, async_copy.StoreOp)
    dims = op.tile_dims()

    def run(frame: Frame, value: Any, array: Any, channel: Channel, *starts: Any) -> Sequence[Any]:
        semantics.store(array, [semantics.integer(start) for start in starts], dims, value)
        return ()

    return run


def _token(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, async_copy.TokenOp)
    token = Token(None if op.event.data == "none" else PAST)
    return lambda frame: (token,)


def _split(semantics: Semantics, op: Operation) -> Effect:
    return lambda frame, source: (semantics.item(source, 0), semantics.item(source, 1))


# --- The grid of a kernel that walks it itself ---


def _block_index(semantics: Semantics, op: Operation) -> Effect:
    return lambda frame: (np.asarray(frame.block, ta.I64),)


def _block_count(semantics: Semantics, op: Operation) -> Effect:
    return lambda frame: (np.asarray(frame.blocks, ta.I64),)


def _grid_extent(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.GridExtentOp)
    axis = op.axis.value.data
    return lambda frame: (np.asarray(frame.grid[axis], ta.I64),)


# --- Blocks that share a point of the grid ---


def _addition(semantics: Semantics, kind: Attribute) -> Callable[[Any, Any], Any]:
    """The meaning of the addition of two tiles."""
    left, right = Block(arg_types=[kind, kind]).args
    function = semantics.meaning((arith.AddiOp if isinstance(element_type(kind), IntegerType) else arith.AddfOp)(left, right))
    assert function is not None
    return function


def _sum_parts(semantics: Semantics, op: Operation) -> Effect:
    assert isinstance(op, tile.SumPartsOp)
    count, parts = len(op.tiles), op.parts.value.data
    add = [_addition(semantics, value.type) for value in op.tiles]

    def run(frame: Frame, *operands: Any) -> Sequence[Any]:
        tiles = list(operands[:count])
        point, part = (semantics.integer(value) for value in operands[count:])
        met = frame.met.setdefault(point, {})
        if part in met or not 0 <= part < parts:
            raise Refused(f"part {part} of point {point} came twice, or is none of {parts}", "each block of a point has a part of its own")
        met[part] = tiles
        if len(met) < parts:
            return (*tiles, np.asarray(False))
        frame.met.pop(point)
        sums = met[0]
        for number in range(1, parts):
            sums = [function(total, value) for function, total, value in zip(add, sums, met[number])]
        return (*sums, np.asarray(True))

    return run


_EFFECTS: dict[str, Callable[[Semantics, Operation], Effect]] = {
    tile.LoadOp.name: _load,
    tile.StoreOp.name: _store,
    tile.LoadIndexedOp.name: load_indexed,
    tile.StoreIndexedOp.name: store_indexed,
    tile.AtomicOp.name: atomic,
    tile.SplitOp.name: _split,
    tile.InlinePtxOp.name: inline_ptx,
    tile.PrintOp.name: print_values,
    tile.AssertOp.name: check,
    async_copy.ChannelOp.name: _channel,
    async_copy.PutOp.name: _put,
    async_copy.WriteOp.name: _write,
    async_copy.GetOp.name: _get,
    async_copy.ReleaseOp.name: _release,
    async_copy.TransposeOp.name: _transpose_buffer,
    async_copy.ReadOp.name: _read,
    async_copy.DotOp.name: _async_dot,
    async_copy.AwaitOp.name: _await,
    async_copy.ReadyOp.name: _ready,
    async_copy.TokenOp.name: _token,
    async_copy.StoreOp.name: _async_store,
    tile.BlockIndexOp.name: _block_index,
    tile.BlockCountOp.name: _block_count,
    tile.GridExtentOp.name: _grid_extent,
    tile.SumPartsOp.name: _sum_parts,
}
"""Operations that touch memory, channels or the launch: name -> decoded operation -> (frame, operands) -> results."""

_WAITS: dict[str, Callable[[Channel], bool]] = {
    async_copy.PutOp.name: lambda channel: not channel.full,
    async_copy.WriteOp.name: lambda channel: not channel.full,
    async_copy.GetOp.name: lambda channel: bool(channel.filled),
}
"""Operations that may have to wait for another role: whether they need not."""


# --- Control ---


def _move(frame: Frame, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Assign all at once: targets may be sources."""
    for slot, value in zip(targets, [frame.values[source] for source in sources]):
        frame.values[slot] = value


def _for(decoder: _Decoder, op: Operation) -> Step:
    assert isinstance(op, scf.ForOp)
    lower, upper, step = decoder.slots_of((op.lb, op.ub, op.step))
    counter, *carried = decoder.slots_of(op.body.block.args)
    initial, results = decoder.slots_of(op.iter_args), decoder.slots_of(op.results)
    body = decoder.block(op.body.block)
    yielded = decoder.slots_of(op.body.block.last_op.operands if op.body.block.last_op is not None else ())
    dtype = dtype_of(op.lb.type)

    def run(frame: Frame) -> Iterator[Wait]:
        with _at(op):
            first, end, stride = (decoder.semantics.integer(frame.values[slot]) for slot in (lower, upper, step))
        if stride <= 0:
            raise TeselaError.at(op, f"the step of a loop must be positive, found {stride}")
        _move(frame, initial, carried)
        for position in range(first, end, stride):
            frame.values[counter] = np.asarray(position, dtype)
            yield from body(frame)
            _move(frame, yielded, carried)
        _move(frame, carried, results)

    return run


def _if(decoder: _Decoder, op: Operation) -> Step:
    assert isinstance(op, scf.IfOp)
    condition, results = decoder.slot(op.cond), decoder.slots_of(op.results)
    branches = []
    for region in (op.true_region, op.false_region):
        if region.first_block is None:
            branches.append((lambda frame: iter(()), []))
            continue
        body = decoder.block(region.block)
        last = region.block.last_op
        branches.append((body, decoder.slots_of(last.operands) if isinstance(last, scf.YieldOp) else []))

    def run(frame: Frame) -> Iterator[Wait]:
        with _at(op):
            body, yielded = branches[0 if decoder.semantics.integer(frame.values[condition]) else 1]
        yield from body(frame)
        _move(frame, yielded, results)

    return run


def _while(decoder: _Decoder, op: Operation) -> Step:
    assert isinstance(op, scf.WhileOp)
    before_block, after_block = op.before_region.block, op.after_region.block
    initial, results = decoder.slots_of(op.arguments), decoder.slots_of(op.results)
    before_args, after_args = decoder.slots_of(before_block.args), decoder.slots_of(after_block.args)
    before, after = decoder.block(before_block), decoder.block(after_block)
    end = before_block.last_op
    assert isinstance(end, scf.ConditionOp) and after_block.last_op is not None
    condition, *passed = decoder.slots_of(end.operands)
    yielded = decoder.slots_of(after_block.last_op.operands)

    def run(frame: Frame) -> Iterator[Wait]:
        _move(frame, initial, before_args)
        for _ in range(MAX_TRIPS):
            yield from before(frame)
            with _at(op):
                more = decoder.semantics.integer(frame.values[condition])
            if not more:
                _move(frame, passed, results)
                return
            _move(frame, passed, after_args)
            yield from after(frame)
            _move(frame, yielded, before_args)
        raise TeselaError.at(op, f"the loop did not end within {MAX_TRIPS} trips")

    return run


def _roles(decoder: _Decoder, op: Operation) -> Step:
    assert isinstance(op, async_copy.RolesOp)
    bodies = [decoder.block(region.block) for region in op.bodies]
    names = op.role_names

    def run(frame: Frame) -> None:
        running = [(name, body(frame)) for name, body in zip(names, bodies)]
        waiting: dict[str, Wait] = {}
        while running:
            moved, left = False, []
            for name, role in running:
                wait = waiting.get(name)
                if wait is None or wait.over():
                    moved = True
                    wait = next(role, None)
                    if wait is None:
                        continue
                    waiting[name] = wait
                left.append((name, role))
            if not moved:
                raise _deadlock(op, [(name, waiting[name]) for name, _ in left])
            running = left

    return run


def _deadlock(op: Operation, waits: Sequence[tuple[str, Wait]]) -> TeselaError:
    """The error of roles that all wait; its notes say where each of them is."""
    notes = []
    for name, wait in waits:
        try:
            wait.refuse()
        except TeselaError as error:
            notes += [replace(d, severity="note", message=f"role {name}: {d.message}", hint=None) for d in error.diagnostics]
    names = " and ".join(name for name, _ in waits)
    return TeselaError.at(op, f"deadlock: {names} wait{'s' if len(waits) == 1 else ''} for ever", notes=notes)


def _run_alone(body: Step, frame: Frame) -> None:
    """Runs steps that are the only role: whatever they would wait for never comes."""
    for wait in body(frame) or ():
        wait.refuse()


_CONTROL: dict[str, Callable[[_Decoder, Operation], Step]] = {
    scf.ForOp.name: _for,
    scf.IfOp.name: _if,
    scf.WhileOp.name: _while,
    async_copy.RolesOp.name: _roles,
    tile.ScanOp.name: combined,
    tile.FoldOp.name: combined,
}
_TERMINATORS = {scf.YieldOp.name, scf.ConditionOp.name, tile.ReturnOp.name, tile.YieldOp.name}


def known_operations() -> frozenset[str]:
    """The names of all operations that the interpreter runs."""
    return frozenset((*MEANINGS, *_EFFECTS, *_CONTROL, *_TERMINATORS))


# --- Running a kernel ---


def run_kernel(
    module: Operation,
    arrays: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any] | None = None,
    kernel: str | None = None,
    seed: int | None = None,
    semantics: Semantics | None = None,
    blocks: int = 2,
) -> None:
    """Run a kernel for its whole logical grid; its stores change `arrays` in place.

    `module`: a module with a kernel (`kernel` names it if there are several), or a `tile.kernel` itself. `arrays`: by argument name, with
    the argument's element type (bf16 as `ml_dtypes.bfloat16`, or as `V2` as NumPy's files hold it) and any strides that its type allows;
    every array argument must be there. `scalars`: by argument name. `seed` shuffles the order of the blocks, which must not matter.
    `semantics`: another meaning of values. `blocks`: how many blocks, at most, run a kernel that walks its grid itself; whole clusters of
    them.

    Raises TeselaError, with the place in the program, for a call against the contract and for a program that does what
    has no meaning.
    """
    op = find_kernel(module, kernel)
    scalars = scalars or {}
    stated = array_arguments(op)
    check_names(op, "scalar", scalars, [name for name in op.names if name not in stated])
    if missing := [name for name in stated if name not in arrays]:
        raise TeselaError.at(op, f"array argument '{missing[0]}' of kernel @{op.sym_name.data} is missing")
    dims = infer_dims(op, arrays)
    written = written_arguments(op)
    semantics = semantics or Semantics()
    decoder = _Decoder(semantics)
    arguments: list[Any] = []
    for name, arg in zip(op.names, op.args):
        decoder.slot(arg)
        if name in stated:
            array = bind_array(op, name, stated[name][1], arrays[name], name in written)
            arguments.append(semantics.array(name, array, name in written))
        else:
            arguments.append(bind_scalar(op, name, arg, scalars))
    for arg, symbol in zip(op.dim_args, op.dims.data):
        decoder.slot(arg)
        arguments.append(np.asarray(dims[symbol.data], ta.I64))
    coordinates = decoder.slots_of(op.grid_args)
    body = decoder.block(op.body.block)
    grid = grid_shape([entry.data for entry in op.grid.data], dims)
    points = list(product(*map(range, grid)))
    if tile.walks_its_grid(op):
        cluster = prod(tile.cluster_shape(op) or (1,))
        points = [(block,) for block in range(-(-min(blocks, len(points)) // cluster) * cluster)]
    if seed is not None:
        np.random.default_rng(seed).shuffle(points)
    size = len(decoder.slots)
    # Overflow, NaN and division of floats by zero are values, not mistakes (docs/numbers.md).
    met: dict[int, dict[int, list[Any]]] = {}
    with np.errstate(all="ignore"):
        for point in points:
            frame = Frame([*arguments, *[None] * (size - len(arguments))], tuple(grid), point[0], len(points), met=met)
            for slot, coordinate in zip(coordinates, point):
                frame.values[slot] = np.asarray(coordinate, ta.I64)
            _run_alone(body, frame)
            for channel_op, channel in frame.channels.items():
                with _at(channel_op):
                    channel.check_drained()
