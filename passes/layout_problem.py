"""The layout problem of a kernel: candidates for every unknown, and the tables of what they cost, for `layout_solver`.

**Unknowns.** The layout of each class of tied values; for each load and store, whether it holds its tile as the class does or in a layout of its own, with
a conversion between; the layout of each channel's buffers; the way of each dot.

**Candidates.** Of a dot: all that `dot_candidates` offers (of several with equal layouts the cheapest). Of a class: what dots want of it, what is good
for its loads and stores, what the author has pinned, and everything that follows from its neighbours' candidates along reduce, expand,
broadcast, transpose and reshape, until nothing new follows. Of a buffer: each dimension contiguous, in rows of each span that TMA writes, as far as
its readers reach.

**Costs** are those of `layout_costs`, times how often the op is done. What cannot be is FORBIDDEN, and says why.

A softmax over a tile: one class for the tile, with candidates from its load and store; one for the row statistics, with what follows through reduce and
broadcast. Between the two stand the reductions' tables (shuffles, or shared memory where rows cross warps) and the broadcast's (a conversion
unless the statistics stay where they are).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Operation, SSAValue

from ..dialects import async_copy, pins, tile
from ..dialects.diagnostics import Diagnostic, TeselaError, nearest_location, value_name
from ..dialects.layout import LayoutError, Mode, SharedLayout, TVLayout
from ..dialects.layout_attrs import SharedLayoutAttr
from ..dialects.target import Target
from ..dialects.tile import shape_of
from ..dialects.tile_indexed import Indexed
from . import dot_candidates, dot_rules, layout_costs
from .access import argument_align, memory_bytes, update_width, vector_access
from .conversions import bits_of, shuffles_win
from .divisibility import Divisibility
from .dot_candidates import DotCandidate, Offer
from .dot_types import dot_kind
from .exchanges import EXCHANGED_BITS, plan_exchange
from .gathers import plan_gather
from .layout_rules import Dot, Memory, Pin, Relation, Statements, made_at, state, tile_of, trips, values_of
from .layout_solver import FORBIDDEN, Problem, Solution, Table, Variable
from .machine_costs import COPY_BYTES_PER_CLOCK
from .matrix_access import buffer_access
from .scan_layouts import scan_cost
from .shuffles import plan_shuffles

MOST_CANDIDATES = 96
"""Candidates of a class, at most: where reshapes go round in circles, what follows could be endless."""
ROW_LANES = (8, 16, 32)
"""Threads that a row may be given to, beside as many as it has work for."""


@dataclass
class BufferUse:
    """A channel's buffer as a dot or a read sees it. `dims`: for each dimension of what is read the channel's."""

    channel: async_copy.ChannelOp
    dims: tuple[int, ...]


@dataclass
class LayoutProblem:
    """A kernel's problem, and where everything in it is found again."""

    kernel: tile.KernelOp
    target: Target
    warps: int = 0
    ops: list[Operation] = field(default_factory=list)
    said: Statements = field(default_factory=Statements)
    problem: Problem = field(default_factory=Problem)
    classes: dict[SSAValue, Variable[TVLayout]] = field(default_factory=dict)
    memories: dict[Memory, Variable[TVLayout | None]] = field(default_factory=dict)
    channels: dict[async_copy.ChannelOp, Variable[SharedLayout]] = field(default_factory=dict)
    dots: dict[Dot, Variable[DotCandidate]] = field(default_factory=dict)
    offers: dict[Dot, Offer] = field(default_factory=dict)
    buffers: dict[tuple[Operation, int], BufferUse] = field(default_factory=dict)
    facts: Divisibility = field(default_factory=Divisibility)
    members: dict[SSAValue, list[SSAValue]] = field(default_factory=dict)

    lazy: dict[Table, Callable[[int, int], int]] = field(default_factory=dict)
    """What a table's entry lacks to be exact; asked once for each entry that an answer uses."""

    def pair(
        self,
        a: Variable[Any],
        b: Variable[Any],
        costs: Sequence[Sequence[int]],
        label: str,
        about: Operation,
        missing: Callable[[int, int], int],
    ) -> None:
        """Costs of two variables, lower bounds of some at first."""
        table = self.problem.pair(a, b, costs, label, about)
        if table is not None and a is not b:
            self.lazy[table] = missing

    def optimum(self, forbid: Iterable[tuple[Variable[Any], int]] = ()) -> Solution:
        """The best answer, without some candidates. Where it relies on lower bounds, they are made exact, and it is sought again: since
        all other entries are no larger than they should be, what stays best is the best."""
        forbid = list(forbid)
        while True:
            solution = self.problem.solve(forbid)
            if not solution.feasible:
                return solution
            changed = False
            for table, missing in self.lazy.items():
                i, j = (solution.choice[variable] for variable in table.variables)
                if more := missing(i, j):
                    table.costs[i, j] += more
                    changed = True
            if not changed:
                return solution

    # -- questions

    def layout_of(self, value: SSAValue) -> Variable[TVLayout]:
        """The variable of a value's class."""
        return self.classes[self.said.find(value)]

    def lhs_place(self, dot: Dot) -> str:
        """Where a dot's left operand is: as `dot_candidates.candidates` takes it."""
        if not isinstance(dot.lhs.type, TensorType):
            return "buffer"
        return "read" if isinstance(dot.lhs.owner, async_copy.ReadOp) else "registers"


def build(kernel: tile.KernelOp, target: Target) -> LayoutProblem:
    """States the problem. Raises TeselaError where an op is unknown, or a pin or a dot is impossible whatever the rest is."""
    made = LayoutProblem(kernel, target, dot_rules.block_warps(kernel))
    made.ops = list(kernel.walk())
    made.said = state(made.ops)
    _find_buffers(made)
    _add_dots(made)
    _add_classes(made)
    _add_memories(made)
    _add_channels(made)
    _price_classes(made)
    _price_relations(made)
    _price_dots(made)
    _price_buffers(made)
    return made


def solve(made: LayoutProblem) -> Solution:
    """The optimum. Raises TeselaError with an irreducible set of requirements where there is none."""
    solution = made.optimum()
    if not solution.feasible:
        raise _contradiction(made)
    return solution


# ---- unknowns and candidates ----------------------------------------------------------------------------------------


def _find_buffers(made: LayoutProblem) -> None:
    for op in made.ops:
        if isinstance(op, async_copy.ChannelOp):
            for user, index, dims in dot_rules.buffer_readers(op.res):
                made.buffers[user, index] = BufferUse(op, dims)


def _add_dots(made: LayoutProblem) -> None:
    for dot in made.said.dots:
        offer = made.offers[dot] = dot_candidates.offer(dot, made.warps, made.target, made.lhs_place(dot))
        words = pins.words_of(dot, pins.INSTRUCTION)
        named = offer.named(words)
        if not named:
            raise _no_way(dot, offer, words)
        chosen = dot_candidates.distinct(offer.candidates)
        chosen += tuple(way for way in dot_candidates.distinct(named) if way not in chosen)
        variable = made.dots[dot] = made.problem.add(_name(dot.res), chosen, dot)
        if words is not None:
            allowed = [0 if way in named else FORBIDDEN for way in chosen]
            made.problem.cost(variable, allowed, f'pinned: instruction = "{words}"', dot)


def _no_way(dot: Dot, offer: Offer, words: str | None) -> TeselaError:
    wanted, place = set((words or "").split()), nearest_location(dot)
    notes = [
        Diagnostic("note", f"{rejection.text}: {rejection.reason}", place) for rejection in offer.rejections if wanted & set(rejection.text.split())
    ]
    hint = f"the cheapest of {len(offer.candidates)} ways: {', '.join(way.text for way in offer.candidates[:3])}"
    return TeselaError.at(dot, f"no way to compute this dot has all of the words of instruction = \"{words}\"", hint, notes[:3])


def _name(value: SSAValue) -> str:
    """A value's name, that of what is awaited for a pending one."""
    if value.name_hint is None and isinstance(value.type, async_copy.PendingType):
        awaited = (use.operation.results[0] for use in value.uses if isinstance(use.operation, async_copy.AwaitOp))
        value = next(awaited, value)
    return value_name(value)


def _add_classes(made: LayoutProblem) -> None:
    said = made.said
    for op in made.ops:
        for value in values_of(op):
            made.members.setdefault(said.find(value), []).append(value)
    found: dict[SSAValue, list[TVLayout]] = {root: [] for root in made.members}

    def add(value: SSAValue, layout: TVLayout | None) -> bool:
        options = found[said.find(value)]
        if layout is None or layout in options or len(options) >= MOST_CANDIDATES:
            return False
        options.append(layout)
        return True

    pinned: dict[SSAValue, list[Pin]] = {}
    for pin in said.pins:
        _check_pin(made, pin)
        pinned.setdefault(said.find(pin.value), []).append(pin)
        add(pin.value, pin.layout.normalized())
    for dot, variable in made.dots.items():
        for way in variable.candidates:
            for value, layout in ((dot.acc, way.choice.acc), (dot.lhs, way.choice.lhs), (dot.rhs, way.choice.rhs)):
                if layout is not None and tile_of(value) is not None and not _only(pinned, said, value):
                    add(value, layout)
    for op, value in (*said.memories, *said.scattered):
        if not _only(pinned, said, value):
            for layout in memory_layouts(made, op, value):
                add(value, layout)
    _close(made, found, add, pinned)
    for root, options in found.items():
        if not options:
            for layout in _spread(shape_of(_kind(root)), made.warps, len(shape_of(_kind(root))) - 1, 1):
                add(root, layout)
            _close(made, found, add, pinned)
    for root, members in made.members.items():
        named = next((member for member in members if member.name_hint), members[0])
        variable = made.classes[root] = made.problem.add(_name(named), found[root], root)
        for pin in pinned.get(root, ()):
            allowed = [0 if layout == pin.layout.normalized() else FORBIDDEN for layout in found[root]]
            made.problem.cost(variable, allowed, f"pinned: {_name(pin.value)} has the layout {pin.layout}", pin.at)


def _only(pinned: dict[SSAValue, list[Pin]], said: Statements, value: SSAValue) -> bool:
    """Whether a class has no other candidates than the author's."""
    return said.find(value) in pinned


def _close(
    made: LayoutProblem,
    found: dict[SSAValue, list[TVLayout]],
    add: Callable[[SSAValue, TVLayout | None], bool],
    pinned: dict[SSAValue, list[Pin]],
) -> None:
    """Adds what follows from candidates along the relations, until nothing new does."""
    said = made.said
    changed = True
    seen: dict[Relation, tuple[int, int]] = {}
    while changed:
        changed = False
        for relation in said.relations:
            source, result = said.find(relation.source), said.find(relation.result)
            at = seen.get(relation, (0, 0))
            if relation.made is not None and not _only(pinned, said, result):
                for layout in found[source][at[0] :]:
                    changed |= add(result, relation.made(layout))
            if relation.need is not None and not _only(pinned, said, source):
                for layout in found[result][at[1] :]:
                    changed |= add(source, relation.need(layout))
            seen[relation] = (len(found[source]), len(found[result]))


def _check_pin(made: LayoutProblem, pin: Pin) -> None:
    shape, threads = shape_of(_kind(pin.value)), 32 * made.warps
    what = f"the layout pinned for {_name(pin.value)}, {pin.layout},"
    if pin.layout.rank != len(shape):
        raise TeselaError.at(pin.at, f"{what} has {pin.layout.rank} dimensions, the tile has {len(shape)}")
    if pin.layout.num_threads != threads:
        raise TeselaError.at(
            pin.at,
            f"{what} is for {pin.layout.num_threads} threads, the block has {threads}",
            "number all threads that hold the tile; threads with copies are a digit of stride 0",
        )
    used, limit = dot_rules.registers_of(pin.layout, _kind(pin.value).element_type), made.target.max_registers_per_thread
    if used > limit:
        raise TeselaError.at(pin.at, f"{what} needs {used} registers of a thread, at most {limit} are there", "let a thread hold fewer values")
    if not pin.layout.covers(shape):
        raise TeselaError.at(pin.at, f"{what} leaves elements of {'x'.join(map(str, shape))} without a holder: it reaches {'x'.join(map(str, pin.layout.shape()))}")


def _kind(value: SSAValue) -> TensorType:
    kind = tile_of(value)
    assert kind is not None
    return kind


def memory_layouts(made: LayoutProblem, op: Memory | Indexed, value: SSAValue) -> list[TVLayout]:
    """Layouts that are good for a load or store: neighbouring threads along the dimension that is contiguous in memory, with each width of access that
    is allowed, the widest that keeps all threads busy first."""
    shape = shape_of(_kind(value))
    inner, width = _width(made, op)
    return _spread(shape, made.warps, len(shape) - 1 if inner is None else inner, width)


def _width(made: LayoutProblem, op: Memory | Indexed) -> tuple[int | None, int]:
    """The dimension along which an access goes, and how many elements it may move or change at once."""
    if not isinstance(op, tile.AtomicOp):
        return vector_access(made.kernel, made.facts, op, whole=True)
    inner, width = update_width(made.kernel, made.facts, op, made.target)
    return (vector_access(made.kernel, made.facts, op)[0], 1) if width == 1 else (inner, width)


def _spread(shape: Sequence[int], warps: int, inner: int, width: int) -> list[TVLayout]:
    shape, threads = tuple(shape), 32 * warps
    if not shape:
        return [TVLayout.blocked((), threads, (), 1).normalized()]
    order = (inner, *(dim for dim in reversed(range(len(shape))) if dim != inner))
    found: list[TVLayout] = []
    while True:
        busy = width == 1 or prod(shape) // width >= threads  # rather all threads busy than wide accesses of a few
        if busy:
            found.append(TVLayout.blocked(shape, threads, order, width).normalized())
            for lanes in ROW_LANES:
                if len(shape) > 1 and lanes < threads and lanes * width < 2 * shape[inner]:
                    found.append(_rows(shape, threads, order, width, lanes))
        if width == 1:
            return list(dict.fromkeys(found))
        width //= 2


def _rows(shape: tuple[int, ...], threads: int, order: tuple[int, ...], width: int, lanes: int) -> TVLayout:
    """A layout with `lanes` threads along order[0], and the others over the rest."""
    inner = order[0]
    rest = tuple(extent for dim, extent in enumerate(shape) if dim != inner)
    rest_order = tuple(dim - (dim > inner) for dim in order[1:])
    across = TVLayout.blocked(rest, threads // lanes, rest_order, 1).insert(inner)

    def along(extent: int, step: int) -> Mode:
        return Mode(extent, tuple(step if dim == inner else 0 for dim in range(len(shape))))

    thread = (along(lanes, width), *across.thread)
    value = (along(width, 1), along(-(-shape[inner] // (lanes * width)), lanes * width), *across.value)
    return TVLayout(thread, value).normalized()


def _add_memories(made: LayoutProblem) -> None:
    for op, value in made.said.memories:
        cls = made.layout_of(value)
        own = [] if _pinned(made, value) and isinstance(op, tile.LoadOp) else memory_layouts(made, op, value)
        variable = made.memories[op] = made.problem.add(_name(value), [None, *own], op)
        times = trips(op)
        inner, width = vector_access(made.kernel, made.facts, op, whole=True)
        size = memory_bytes(_kind(value).element_type)

        once = isinstance(op, tile.StoreOp)

        def price(layout: TVLayout) -> int:
            return layout_costs.global_access(layout, inner, width, size, made.warps, once) * times  # noqa: B023

        costs = [[price(layout) for layout in cls.candidates]]
        if isinstance(op, tile.StoreOp):
            moves = Moves(made, cls.candidates, own, value, times)
            moved = [list(row) for row in zip(*moves.costs())]
        else:
            moves = Moves(made, own, cls.candidates, value, times)
            moved = moves.costs()
        for mine, row in zip(own, moved):
            alone = price(mine)
            costs.append([alone + cost if cost else FORBIDDEN for cost in row])  # what needs no conversion is the class's own
        back = isinstance(op, tile.StoreOp)
        made.pair(variable, cls, costs, "store" if back else "load", op, lambda i, j, moves=moves, back=back: _own(moves, back, i, j))

    for op, value in made.said.scattered:
        cls = made.layout_of(value)
        inner, width = _width(made, op)
        size, times = memory_bytes(_kind(value).element_type), trips(op)
        costs = [layout_costs.global_access(layout, inner, width, size, made.warps) * times for layout in cls.candidates]
        made.problem.cost(cls, costs, op.name.removeprefix("tile."), op)


def _own(moves: Moves, back: bool, i: int, j: int) -> int:
    """What is missing where a load or store holds its tile in a layout of its own, the one before `i`."""
    if i == 0:
        return 0
    return moves.missing(j, i - 1) if back else moves.missing(i - 1, j)


def _pinned(made: LayoutProblem, value: SSAValue) -> bool:
    """Whether the value itself is pinned, not only one that is tied to it."""
    return any(pin.value is value for pin in made.said.pins)


def _bits(value: SSAValue) -> int:
    return bits_of(_kind(value).element_type)


NO_ROOM = 1 << 24
"""What an exchange of a tile costs that no shared memory holds: more than anything that is possible, but not forbidden, so that a program without a way round it
is told what does not fit, later, by bytes."""


@dataclass(eq=False)
class Moves:
    """Conversions of a value from each of `sources` to each of `targets` (None: there is no such layout), `times` times: by names, by shuffles, or through shared
    memory, the cheapest. The last is priced by a lower bound first; what an answer uses is then planned, and priced as it is."""

    made: LayoutProblem
    sources: Sequence[TVLayout | None]
    targets: Sequence[TVLayout | None]
    value: SSAValue
    times: int
    known: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bits, self.shape = _bits(self.value), tuple(shape_of(_kind(self.value)))
        self.room = layout_costs.scratch(self.shape, self.bits, bool(self.made.buffers))
        if prod(self.shape) * self.bits // 8 > self.made.target.max_shared_bytes:
            self.room = NO_ROOM
        self.planned = self.bits in EXCHANGED_BITS

    def costs(self) -> list[list[int]]:
        """A row for each source."""
        sizes = [0 if layout is None else layout.num_values for layout in self.targets]
        rows = []
        for source in self.sources:
            if source is None:
                rows.append([FORBIDDEN] * len(self.targets))
                continue
            count, row = source.num_values, []
            for target, size in zip(self.targets, sizes):
                if target is None:
                    row.append(FORBIDDEN)
                elif source is target or source == target:
                    row.append(0)
                elif (near := self._near(source, target)) is not None:
                    row.append(near * self.times)
                else:
                    row.append(self._moved(source, target, count + size) * self.times)
            rows.append(row)
        return rows

    def _moved(self, source: TVLayout, target: TVLayout, values: int) -> int:
        """No more than what it costs where threads lack elements, exactly that where shared memory is priced exactly."""
        least, shuffled = self._least(values), self._shuffled(source, target)
        if shuffled is None:
            return least
        if self.planned:
            return min(least, shuffled)
        return shuffled if shuffles_win(shuffled, least - self.room, self.shape, self.bits) else least

    def _shuffled(self, source: TVLayout, target: TVLayout) -> int | None:
        """The cost where each warp keeps what it has."""
        plan = plan_shuffles(source, target, self.bits)
        return None if plan is None else plan.cost(self.bits, self.made.warps)

    def _near(self, source: TVLayout, target: TVLayout) -> int | None:
        """The cost where each thread keeps what it has."""
        if source.thread != target.thread:
            return None
        return layout_costs.renaming(source, target, self.bits, self.made.warps)

    def _least(self, values: int) -> int:
        """No more than what going through shared memory costs, exactly that where elements go one by one. `values`: of a thread, on both sides."""
        if not self.planned:
            return layout_costs.exchange(values, self.made.warps) + self.room
        return layout_costs.least_exchange(values * self.bits // 32, self.made.warps) + self.room

    def missing(self, i: int, j: int) -> int:
        """What the lower bound lacks for a conversion; 0 if nothing, or if it has been asked for before."""
        source, target = self.sources[i], self.targets[j]
        if not self.planned or (i, j) in self.known or source is None or target is None or source == target:
            return 0
        if self._near(source, target) is not None:
            return 0
        shared = plan_exchange(source, target, self.shape, self.bits // 8, self.made.target.compute_capability >= (9, 0)).cost(self.made.warps)
        least, shuffled, exact = self._least(source.num_values + target.num_values), self._shuffled(source, target), shared + self.room
        if shuffled is not None:
            least = min(least, shuffled)
            if shuffles_win(shuffled, shared, self.shape, self.bits):
                exact = shuffled
        self.known[i, j] = (exact - least) * self.times
        return self.known[i, j]


def _add_channels(made: LayoutProblem) -> None:
    for op in [op for op in made.ops if isinstance(op, async_copy.ChannelOp)]:
        name = _name(op.res)
        options: list[SharedLayout] = []
        for extents in _reaches(made, op):
            for group in dot_rules.channel_layouts(op, extents):
                options += [layout for layout in _undominated(made, op, group) if layout not in options]
        pinned = None
        if not isinstance(op.res.type.layout, NoneAttr):
            assert isinstance(op.res.type.layout, SharedLayoutAttr)
            pinned = op.res.type.layout.data
            options = [pinned, *(layout for layout in options if layout != pinned)]
        made.channels[op] = made.problem.add(name, options, op)
        if pinned is not None and len(options) > 1:
            allowed = [0, *[FORBIDDEN] * (len(options) - 1)]
            made.problem.cost(made.channels[op], allowed, f"pinned: the buffers of {name} lie as {pinned}", op)


def _undominated(made: LayoutProblem, op: async_copy.ChannelOp, group: Sequence[SharedLayout]) -> Sequence[SharedLayout]:
    """Of layouts with one order, widest rows first: the widest alone if nobody who moves tiles between it and registers meets a conflict, in any layout that
    it may be held in. Narrower rows are copied no faster, and could only have fewer conflicts."""
    size, stmatrix = memory_bytes(op.res.type.element), made.target.compute_capability >= (9, 0)
    for value, dims, user in _accesses(made, op):
        for registers in made.layout_of(value).candidates:
            try:
                if buffer_access(registers, group[0].permute(dims), size, isinstance(user, async_copy.ReadOp), stmatrix).conflicts:
                    return group
            except LayoutError:
                return group
    return group[:1]


def _accesses(made: LayoutProblem, channel: async_copy.ChannelOp) -> list[tuple[SSAValue, tuple[int, ...], Operation]]:
    """Who moves tiles between a channel's buffers and registers: (the tile, dims, the op)."""
    found: list[tuple[SSAValue, tuple[int, ...], Operation]] = []
    for use in channel.res.uses:
        if isinstance(use.operation, async_copy.WriteOp):
            found.append((use.operation.value, tuple(range(len(channel.res.type.shape))), use.operation))
    for (user, _), buffer in made.buffers.items():
        if buffer.channel is channel and isinstance(user, async_copy.ReadOp):
            found.append((user.res, buffer.dims, user))
    return found


def _demands(made: LayoutProblem, channel: async_copy.ChannelOp) -> list[tuple[Dot, int, tuple[int, ...]]]:
    """The dots that read a channel's buffers, directly or through registers: (dot, which operand, dims)."""
    found: list[tuple[Dot, int, tuple[int, ...]]] = []
    for (user, index), use in made.buffers.items():
        if use.channel is not channel:
            continue
        if isinstance(user, async_copy.DotOp):
            found.append((user, index, use.dims))
        elif isinstance(user, async_copy.ReadOp):
            found += [
                (other.operation, other.index, use.dims) for other in user.res.uses if isinstance(other.operation, tile.DotOp) and other.index < 2
            ]
    return found


def _reaches(made: LayoutProblem, channel: async_copy.ChannelOp) -> list[tuple[int, ...]]:
    """The extents that a buffer may need to have, for every choice of its readers' ways."""
    shape = channel.res.type.shape
    each = []
    for dot, index, dims in _demands(made, channel):
        each.append(list(dict.fromkeys(dot_rules.reach(shape, way.choice, index, dims) for way in made.dots[dot].candidates)))
    combined = [tuple(map(max, zip(shape, *ways))) for ways in product(*each)]
    return list(dict.fromkeys(combined))


# ---- costs ----------------------------------------------------------------------------------------------------------


def _price_classes(made: LayoutProblem) -> None:
    slots: dict[SSAValue, int] = {}
    for op, value in made.said.works:
        root = made.said.find(value)
        slots[root] = slots.get(root, 0) + layout_costs.arithmetic(op.name, 1, made.warps) * trips(op)
    for root, variable in made.classes.items():
        bits = _bits(root)
        each = slots.get(root, 0)
        if each:
            made.problem.cost(variable, [each * layout.num_values for layout in variable.candidates], "arithmetic", root)
        made.problem.cost(variable, [layout_costs.registers(layout, bits, made.warps) for layout in variable.candidates], "registers", root)
    for op in made.said.reductions:
        variable = made.layout_of(op.source)
        costs = [layout_costs.reduction(layout, op.axis.value.data, made.warps) for layout in variable.candidates]
        times = trips(op)
        made.problem.cost(variable, [FORBIDDEN if cost is None else cost * times for cost in costs], "reduce", op)
    for op in made.said.scans:
        variable = made.layout_of(op.sources[0])
        made.problem.cost(variable, [scan_cost(op, layout, made.warps) * trips(op) for layout in variable.candidates], "scan", op)


def _price_relations(made: LayoutProblem) -> None:
    for relation in made.said.relations:
        source, result = made.layout_of(relation.source), made.layout_of(relation.result)
        times = trips(relation.op)
        if isinstance(relation.op, tile.GatherOp):
            made.pair(source, result, _gather_costs(made, relation.op, source.candidates, result.candidates), "gather", relation.op, lambda i, j: 0)
            continue
        if relation.converts == "operand":
            assert relation.need is not None
            needed = [relation.need(layout) for layout in result.candidates]
            moves = Moves(made, source.candidates, needed, relation.source, min(times, made_at(relation.source)))
            costs = moves.costs()
        else:
            assert relation.made is not None
            given = [relation.made(layout) for layout in source.candidates]
            moves = Moves(made, given, result.candidates, relation.result, times)
            costs = moves.costs()
            if relation.converts == "nothing":  # what no layout expresses goes through shared memory
                for row, layout, made_layout in zip(costs, source.candidates, given):
                    if made_layout is None:
                        row[:] = [(layout_costs.exchange(layout.num_values + to.num_values, made.warps) + moves.room) * times for to in result.candidates]
        made.pair(source, result, costs, "convert", relation.op, moves.missing)


def _gather_costs(made: LayoutProblem, op: tile.GatherOp, sources: Sequence[TVLayout], results: Sequence[TVLayout]) -> list[list[int]]:
    """A row for each layout of the source."""
    shape, bits, index_bits = shape_of(op.source.type), _bits(op.source), _bits(op.index)
    times = trips(op)
    return [[plan_gather(source, result, op.along, shape, bits, index_bits, made.warps).cost * times for result in results] for source in sources]


def _price_dots(made: LayoutProblem) -> None:
    for dot, variable in made.dots.items():
        times = trips(dot)
        made.problem.cost(variable, [way.cost * times for way in variable.candidates], "dot", dot)
        acc = made.layout_of(dot.acc)
        stuck = isinstance(dot.acc.type, async_copy.PendingType)  # only what is awaited can be converted
        wanted = [way.choice.acc for way in variable.candidates]
        there = Moves(made, wanted, acc.candidates, dot.acc, times)
        back = Moves(made, acc.candidates, wanted, dot.acc, times)
        costs = [[FORBIDDEN if stuck and x else x + y for x, y in zip(*rows)] for rows in zip(there.costs(), zip(*back.costs()))]
        made.pair(
            variable, acc, costs, "convert", dot, lambda i, j, there=there, back=back: there.missing(i, j) + back.missing(j, i)
        )
        for index, value in ((0, dot.lhs), (1, dot.rhs)):
            if tile_of(value) is not None:
                cls = made.layout_of(value)
                wants = [(way.choice.lhs, way.choice.rhs)[index] for way in variable.candidates]
                moves = Moves(made, cls.candidates, wants, value, min(times, made_at(value)))
                made.pair(cls, variable, moves.costs(), "convert", dot, moves.missing)


def _price_buffers(made: LayoutProblem) -> None:
    for op, variable in made.channels.items():
        size = memory_bytes(op.res.type.element)
        made.problem.cost(variable, [layout.size() * size // layout_costs.SHARED_BYTES_PER_CLOCK for layout in variable.candidates], "shared memory", op)
        for use in op.res.uses:
            if isinstance(use.operation, async_copy.PutOp):
                _price_put(made, use.operation, variable)
        for value, dims, user in _accesses(made, op):
            _price_access(made, variable, value, dims, user)
        for dot, index, dims in _demands(made, op):
            _fit(made, variable, dot, index, dims, size)


def _price_put(made: LayoutProblem, put: async_copy.PutOp, variable: Variable[SharedLayout]) -> None:
    costs: list[int] = []
    allowed: list[int] = []
    times = trips(put)
    for layout in variable.candidates:
        choice = put_choice(made, put, layout)
        via = put.via.data if put.via is not None else choice.via
        allowed.append(FORBIDDEN if via == "tma" != choice.via or (via == "cp.async" and choice.via == "ld") else 0)
        costs.append(_put_cost(made, put, layout, via) * times)
    made.problem.cost(variable, costs, "copy", put)
    if any(allowed):
        assert put.via is not None
        reason = put_choice(made, put, variable.candidates[allowed.index(FORBIDDEN)]).reason
        made.problem.cost(variable, allowed, f'pinned: via "{put.via.data}"' + (f", but {reason}" if reason else ""), put)


def put_choice(made: LayoutProblem, put: async_copy.PutOp, layout: SharedLayout) -> dot_rules.PutChoice:
    """How a put would fill a buffer of this layout."""
    align = argument_align(made.kernel, put.array)
    needs = dot_rules.ChannelNeeds(layout.shape(), _sums_padding(made, put.channel))
    return dot_rules.choose_put(put, layout, needs, made.target, made.facts.divisor, align)


def _sums_padding(made: LayoutProblem, channel: SSAValue) -> bool:
    """Whether some dot sums over what lies past the tile's own extents: the same for all of its ways."""
    owner = channel.owner
    assert isinstance(owner, async_copy.ChannelOp)
    shape = channel.type.shape
    return any(
        (choice := made.dots[dot].candidates[0].choice).sums_padding and choice.extents[2] > shape[dims[-1] if index == 0 else dims[-2]]
        for dot, index, dims in _demands(made, owner)
    )


def _put_cost(made: LayoutProblem, put: async_copy.PutOp, layout: SharedLayout, via: str) -> int:
    shape = put.channel.type.shape
    size = memory_bytes(put.channel.type.element)
    nbytes = prod(layout.shape()) * size
    if via == "tma":
        form = layout.tma_form(size)
        row = form.box[form.order[0]] * size if form is not None else size
        return layout_costs.SLOTS * max(nbytes // COPY_BYTES_PER_CLOCK, nbytes // row)
    width = size
    if via == "cp.async":
        width = dot_rules.copy_bytes(put, layout, made.facts.divisor, argument_align(made.kernel, put.array))
    inner = dot_rules.contiguous_dim(put)
    threads = dot_rules.copy_layout(layout, shape, 32 * made.warps, max(1, width // size), inner)
    moved = layout_costs.global_access(threads, inner, width // size, size, made.warps, once=True)
    if via == "cp.async":
        return moved
    # Through registers, what is loaded is waited for, and stored.
    return moved + layout_costs.GLOBAL_LATENCY + threads.num_values * made.warps * (1 + layout_costs.SLOTS)


def _fit(made: LayoutProblem, variable: Variable[SharedLayout], dot: Dot, index: int, dims: tuple[int, ...], size: int) -> None:
    """Which ways of a dot can read which layouts."""
    ways, kind = made.dots[dot], dot_kind(dot)
    shape = variable.about.res.type.shape
    costs = []
    for way in ways.candidates:
        reach = dot_rules.reach(shape, way.choice, index, dims)
        row = []
        for layout in variable.candidates:
            fits = layout.covers(reach)
            in_rows = index == int(way.choice.swapped)  # of the instruction, where slabs start at whole spans
            by_descriptor = way.choice.unit == "wgmma" and (not in_rows or way.choice.lhs is None)
            if fits and by_descriptor:
                inner = layout.core_order(size)
                fits = inner is not None and (in_rows or way.any_start or inner[0] != dims[index])
            if fits and kind.k_contiguous(by_descriptor):
                fits = layout.contiguous(dims[-1] if index == 0 else dims[-2]) > 1
            row.append(0 if fits else FORBIDDEN)
        costs.append(row)
    made.problem.pair(ways, variable, costs, f"{ways.candidates[0].choice.unit} reads its {'left' if index == 0 else 'right'} operand", dot)


def _price_access(
    made: LayoutProblem,
    variable: Variable[SharedLayout],
    value: SSAValue,
    dims: tuple[int, ...],
    op: Operation,
) -> None:
    """What moving a tile between registers and a buffer costs."""
    cls = made.layout_of(value)
    reads, stmatrix = isinstance(op, async_copy.ReadOp), made.target.compute_capability >= (9, 0)
    size, times = memory_bytes(_kind(value).element_type), trips(op)
    costs = []
    for layout in variable.candidates:
        seen = layout.permute(dims)
        row = []
        for registers in cls.candidates:
            try:
                access = buffer_access(registers, seen, size, reads, stmatrix)
                row.append(access.slots * made.warps * times)
            except LayoutError:
                row.append(FORBIDDEN)
        costs.append(row)
    made.problem.pair(variable, cls, costs, "read" if reads else "write", op)


# ---- contradictions -------------------------------------------------------------------------------------------------


def _contradiction(made: LayoutProblem) -> TeselaError:
    """The error of a problem without an answer: requirements of which none can be left out, each at its place."""
    needed = [table for table in made.problem.tables if int(table.costs.max()) >= FORBIDDEN]
    needed.sort(key=lambda table: table.label.startswith("pinned"))  # what can be left out is: the author's pins are kept as long as possible
    dropped: list[Table] = []
    for table in needed:
        if not made.problem.solve(without=[*dropped, table]).feasible:
            dropped.append(table)
    left = [table for table in needed if not any(table is other for other in dropped)]
    notes = [Diagnostic("note", table.label.removeprefix("pinned: "), nearest_location(table.about)) for table in left]
    at = next((table.about for table in left if table.label.startswith("pinned")), left[0].about if left else made.kernel)
    names = ", ".join(dict.fromkeys(variable.name for table in left for variable in table.variables))
    if len(left) == 1:
        return TeselaError.at(at, f"a requirement on the layouts of {names} cannot be met, whatever else is chosen", "take back the pin", notes)
    return TeselaError.at(
        at, f"these {len(left)} requirements on the layouts of {names} contradict each other; without any one of them there is an answer",
        "take back one of the pins", notes,
    )
