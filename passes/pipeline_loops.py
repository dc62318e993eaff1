"""pipeline-loops: loads of later trips, and the dots of this one, go on while a loop computes.

`plan-dataflow` leaves in a loop's body puts, gets, dots and releases of channels with one slot: load, wait, multiply, wait. This pass
overlaps them, within one stream of instructions, in two ways.

**Loads ahead.** A channel with S slots is filled S - 1 trips ahead: the first S - 1 puts come before the loop, and trip i issues the put of
trip i + S - 1 into the slot that trip i - 1 has given back. A put is made only if its trip exists, so that every slot that is filled is
got, and trip counts of 0, 1, 2, fewer than S are as good as any. What the put's indices need is computed again for the later trip: the scalar
operations that lead to them are cloned, with the loop's counter (and carried values that grow by a constant) moved on.

**Dots in flight.** An accumulator that the loop only adds to need not be awaited in each trip: it is carried as a pending tile, and
awaited after the loop. A buffer that such a dot reads is released one trip later, after the dot's token, when the next dot is under way
already. So the tensor cores never wait for a barrier.

    scf.for %k … iter_args(%c = %zero) {           scf.if %first { async.put %ch, %A[%m, %lb] }                  // S = 2
      async.put %ch, %A[%m, %k]                     %z = async.ready %zero
      %a = async.get %ch                     →      %none = async.token none
      %p, %read = async.dot %a, …, %c               %q, %last = scf.for %k … iter_args(%c = %z, %before = %none) {
      %d = async.await %p                             %a = async.get %ch
      async.release %ch after %read                   %p, %read = async.dot %a, …, %c
      scf.yield %d                                    async.release %ch after %before
    }                                                 scf.if %more { async.put %ch, %A[%m, %next] }
                                                      scf.yield %p, %read
                                                    }
                                                    %d = async.await %q
                                                    async.release %ch after %last

The release stands after the dot, and the put after the release, because the slot that is filled is the one that the dot before has read.
Where no asynchronous dot reads a channel (operands of `mma.sync`) the release of the trip before comes after this trip's get: the barrier that the get
needs is the release's too.

**Dots a trip late.** A dot that takes what another one's result became is issued beside that one in the next trip (delay_dots.py).

**What stays.** A put stays where it is, in a channel of one slot, if it copies through registers, if its indices depend on what the loop
computes in another way, or if the loop stores to what may be the same memory; a note says so. An accumulator that other code of the
loop reads is awaited in its trip: ptxas would serialise every dot of the kernel otherwise. So is one whose dot takes an operand from registers that
the loop writes.

**Which of it, and how many stages.** What is best by a model of the loop's time, within shared memory and registers, of all that is possible (schedule_problem.py).
`stages` and `dots`, options of the pass or attributes of a loop or of the kernel, override this, and are taken at their word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, ModuleOp, TensorType, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free

from ..dialects import async_copy, pins, tile
from ..dialects.array_effects import may_write
from ..dialects.async_roles import RolesOp
from ..dialects.diagnostics import Emitter, TeselaError
from ..dialects.inside import inside, kernels_in
from ..dialects.target import Target
from . import dot_rules
from .alloc_shared import ring_bytes
from .base import Pass, PassContext
from .delay_dots import Delay, delay_dot
from .divisibility import growth, is_inside
from .dot_types import dot_kind
from .new_ops import NewOps
from .schedule_problem import ScheduleProblem, decide, state
from .stages import constant_value, latency, stated_stages, trip_clocks, trip_count


@dataclass
class PipelineLoops(Pass):
    """Fill the channels of loops some trips ahead, and leave dots in flight from one trip to the next. `stages`: slots of each channel; `dots`: what becomes of
    dots, where it is possible."""

    name: ClassVar[str] = "pipeline-loops"
    stages: int | None = None
    dots: Literal["auto", "in-flight", "late", "awaited"] = "auto"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        target = context.require_target(self.name)
        if self.stages is not None and self.stages < 1:
            raise TeselaError.at(None, f"stages must be at least 1, found {self.stages}")
        for kernel in kernels_in(module):
            problem = self.problem(kernel, target)
            decide(problem)
            stated = stated_stages(kernel)
            if stated is not None and not problem.loops and not inside(kernel, RolesOp):
                context.emitter.note(kernel, f"stages = {stated} is not followed: no loop fills channels, whose slots it would number")
            for loop in reversed([each.loop for each in problem.loops]):  # inner ones first: an outer one may copy them
                if loop.stages > 1:
                    _Pipeliner(loop).run()
                _note_what_stays(loop, context.emitter)

    def problem(self, kernel: tile.KernelOp, target: Target) -> ScheduleProblem:
        """What is to be decided about a kernel's loops."""
        loops = [found for op in inside(kernel, scf.ForOp) if (found := analyse(op, kernel)) is not None]
        return state(kernel, loops, self.stages, None if self.dots == "auto" else self.dots, target)


# ---- what a loop holds ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Ring:
    """A channel whose fill, get and release stand in the loop's own block, each once, or whose fill is another role's. `stays`: why the fill
    cannot go ahead, None if it can. `elsewhere`: whether it is another role's, and goes ahead as far as there are slots by itself."""

    channel: async_copy.ChannelOp
    fill: async_copy.PutOp | async_copy.WriteOp
    get: async_copy.GetOp
    release: async_copy.ReleaseOp
    stays: str | None
    dots: list[async_copy.DotOp]
    """The dots of the loop's own block that read its buffers."""
    read_elsewhere: bool
    """Whether an asynchronous dot inside a nested region reads them."""
    elsewhere: bool = False

    @property
    def via(self) -> str:
        return self.fill.via.data if isinstance(self.fill, async_copy.PutOp) and self.fill.via is not None else "write"


@dataclass(eq=False)
class Chain:
    """The dots, in order, that add to the accumulator which the loop carries at `position`, and nothing else touches it."""

    position: int
    dots: list[async_copy.DotOp]
    awaits: list[async_copy.AwaitOp]


@dataclass(eq=False)
class Loop:
    """A loop with channels, and what is decided about it (schedule_problem.py): `stages`, and the dot that is issued a trip late. Of `chains` those stay that are left in flight."""

    op: scf.ForOp
    kernel: tile.KernelOp
    rings: list[Ring]
    chains: list[Chain]
    stages: int = 1
    late: Delay | None = None
    light: int | None = None
    """Slots of the channels that another role fills and that are only read into registers, where they have fewer."""

    @property
    def block(self) -> Block:
        return self.op.body.block

    @cached_property
    def pace(self) -> tuple[int, float]:
        """(latency of its copies, clocks of a trip), as it is before anything is moved."""
        return latency(self), trip_clocks(self)

    def carried_dots(self) -> set[Operation]:
        return {dot for chain in self.chains for dot in chain.dots}

    @staticmethod
    def is_light(ring: Ring) -> bool:
        """Whether a slot is free as soon as it has been read into registers: then one may do where dots need two."""
        return ring.elsewhere and not ring.dots and not ring.read_elsewhere

    def depth(self, ring: Ring, stages: int, in_flight: bool = True, light: int | None = None) -> int:
        """Slots that a ring gets: what its author gave it, one where it stays as it is, two where the dot of the trip before may still read what was not loaded
        ahead. `in_flight`: whether its dots are left so; `light`: slots of those that are light."""
        if pins.DEPTH in ring.channel.attributes:
            return ring.channel.depth.value.data
        if light is not None and self.is_light(ring):
            return light
        if ring.stays is None or stages == 1:
            return stages
        return 2 if in_flight and not self.carried_dots().isdisjoint(ring.dots) else 1

    def bytes(self, stages: int, in_flight: bool = True, light: int | None = None) -> int:
        """Shared memory of its rings."""
        return sum(ring_bytes(ring.channel, self.depth(ring, stages, in_flight, light)) for ring in self.rings)


def analyse(op: scf.ForOp, kernel: tile.KernelOp) -> Loop | None:
    """What of a loop can be overlapped; None if nothing can. Raises TeselaError where `infer-layouts` has not run."""
    rings = [ring for get in op.body.block.ops if isinstance(get, async_copy.GetOp) and (ring := _ring(get, op, kernel)) is not None]
    if not rings or not isinstance(op.lb.type, IndexType):
        return None
    loop = Loop(op, kernel, rings, [chain for position in range(len(op.iter_args)) if (chain := _chain(op, position)) is not None])
    # An accumulator stays in flight only if all that its dots read can be kept: in a ring, or written before the loop.
    known = {ring.get.res for ring in rings}
    loop.chains = [chain for chain in loop.chains if all(_kept(dot, known, op.body.block) for dot in chain.dots)]
    return loop


def _ring(get: async_copy.GetOp, loop: scf.ForOp, kernel: tile.KernelOp) -> Ring | None:
    channel = get.channel.owner
    users = [use.operation for use in get.channel.uses]
    fills = [user for user in users if isinstance(user, async_copy.PutOp | async_copy.WriteOp)]
    releases = [user for user in users if isinstance(user, async_copy.ReleaseOp)]
    if not isinstance(channel, async_copy.ChannelOp) or (channel.depth.value.data != 1 and pins.DEPTH not in channel.attributes):
        return None
    elsewhere = channel.joins_roles()
    here = [user for user in users if not (elsewhere and user in fills)]
    if len(users) != 3 or len(fills) != 1 or len(releases) != 1 or any(user.parent is not get.parent for user in here):
        return None
    fill, release = fills[0], releases[0]
    if isinstance(fill, async_copy.PutOp) and fill.via is None:
        raise TeselaError.at(fill, "how the put copies is not chosen", "run infer-layouts before pipeline-loops")
    token = release.token
    if token is not None and not (isinstance(token, OpResult) and token.op.parent is get.parent):
        return None
    dots, read_elsewhere = [], False
    for reader, _, _ in dot_rules.buffer_readers(channel.res):
        if isinstance(reader, async_copy.DotOp) and reader.parent is get.parent:
            dots.append(reader)
        else:
            read_elsewhere |= isinstance(reader, async_copy.DotOp)
    stays = None if elsewhere else _why_it_stays(fill, loop, kernel)
    return Ring(channel, fill, get, release, stays, dots, read_elsewhere, elsewhere)


def _kept(dot: async_copy.DotOp, buffers: set[SSAValue], block: Block) -> bool:
    """Whether what a dot reads stays as it is until the next trip: buffers of rings, or of channels outside the loop; registers that the
    loop does not write."""
    for operand in (dot.lhs, dot.rhs):
        value = operand
        while isinstance(value, OpResult) and isinstance(value.op, async_copy.TransposeOp):
            value = value.op.source
        if is_inside(value, block):
            if value not in buffers:
                return False
        elif isinstance(value.type, TensorType) and dot_rules.dot_shape(dot).k % dot_kind(dot).step:
            return False  # what pads it is written where it is used
    return True


def _chain(loop: scf.ForOp, position: int) -> Chain | None:
    block = loop.body.block
    value: SSAValue = block.args[position + 1]
    chain = Chain(position, [], [])
    while True:
        use = value.get_user_of_unique_use()
        if use is None or use.parent is not block:
            return None
        if isinstance(use, scf.YieldOp):
            return chain if chain.dots and use.operands[position] is value else None
        if not isinstance(use, async_copy.DotOp) or use.acc is not value:
            return None
        wait = use.res.get_user_of_unique_use()
        if not isinstance(wait, async_copy.AwaitOp) or wait.parent is not block:
            return None
        chain.dots.append(use)
        chain.awaits.append(wait)
        value = wait.res


# ---- what can go ahead ----------------------------------------------------------------------------------------------


def _why_it_stays(fill: Operation, loop: scf.ForOp, kernel: tile.KernelOp) -> str | None:
    """Why a fill cannot be made some trips earlier; None if it can."""
    if not isinstance(fill, async_copy.PutOp):
        return "it is computed in the loop"
    for op in loop.body.walk():
        for array in _written_by(op):
            if dot_rules.may_alias(kernel, array, fill.array):
                name = f"%{array.name_hint}" if array.name_hint else "an array"
                return f"the loop stores to %{fill.array.name_hint or 'it'}" if array is fill.array else (
                    f"the loop stores to {name}, which may be the same memory: state noalias if it is not"
                )
    for index in fill.indices:
        if (reason := _why_not_known_ahead(index, loop)) is not None:
            return reason
    return "it is copied through registers" if fill.via is not None and fill.via.data == "ld" else None


def _written_by(op: Operation) -> Iterator[SSAValue]:
    """The arrays that an operation may write."""
    if may_write(op):
        yield from (value for value in op.operands if isinstance(value.type, MemRefType))


def _why_not_known_ahead(value: SSAValue, loop: scf.ForOp) -> str | None:
    if not is_inside(value, loop.body.block) or value is loop.body.block.args[0]:
        return None
    if isinstance(value, BlockArgument):
        return None if growth(value) is not None else "its place depends on a value that the loop carries"
    op = value.owner
    assert isinstance(op, Operation)
    if op.regions or op.parent is not loop.body.block or not (is_side_effect_free(op) or op.name.startswith("arith.")):
        return f"its place depends on the result of {op.name}"
    return next((reason for operand in op.operands if (reason := _why_not_known_ahead(operand, loop)) is not None), None)


# ---- the transformation ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Site:
    """A place in the body, after `after` or before `before`, for releases of what the trip before has read, and for puts after them."""

    before: Operation | None = None
    after: Operation | None = None
    puts: list[Ring] = field(default_factory=list)
    releases: list[Ring] = field(default_factory=list)
    ops: list[Operation] = field(default_factory=list)
    """What was put there."""


class _Pipeliner:
    """Rewrites one loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.ahead = loop.stages - 1
        self.place = {op: index for index, op in enumerate(loop.block.ops)}
        carried = loop.carried_dots()
        self.moved = [ring for ring in loop.rings if ring.stays is None and not ring.elsewhere]
        self.in_flight = [ring for ring in loop.rings if not carried.isdisjoint(ring.dots)]
        """Rings that a dot still reads when the next trip begins."""
        self.read_at_once = [ring for ring in self.moved if not ring.dots and not ring.read_elsewhere]
        """Rings that no asynchronous dot reads: released with the next trip's get."""
        self.delay = loop.late
        self.last_dot = max(carried, key=self.place.__getitem__, default=None)

    def run(self) -> None:
        for ring in self.loop.rings:
            ring.channel.properties["depth"] = IntegerAttr(self.loop.depth(ring, self.loop.stages, light=self.loop.light), i64)
        sites = self._sites()
        self._count_later(sites)
        tokens = self._tokens()
        self._ahead_of_the_loop(sites)
        self._insert_sites(sites)
        self._rebuild(tokens)
        if self.delay is not None:
            refill = [op for site in sites if site.after is self.delay.release for op in site.ops]
            delay_dot(self.loop.op, self.delay, refill, (trip_count(self.loop.op) or 0) > 0)

    # -- where things go

    def _sites(self) -> list[_Site]:
        """In the order of the body."""
        sites: dict[Operation, _Site] = {}
        for ring in self.loop.rings:
            if ring in self.in_flight:
                at = self.last_dot
                site = sites.setdefault(at, _Site(after=at))
                site.releases.append(ring)
            elif ring in self.read_at_once:
                at = ring.get
                while isinstance(at.next_op, async_copy.GetOp):
                    at = at.next_op
                site = sites.setdefault(at, _Site(after=at))
                site.releases.append(ring)
            elif self.delay is not None and ring.release is self.delay.release and ring in self.moved:
                at = ring.release
                site = sites.setdefault(at, _Site(after=at))
            elif ring in self.moved:
                at = _first_of_run(ring.fill)
                site = sites.setdefault(at, _Site(before=at))
            else:
                continue
            if ring in self.moved:
                site.puts.append(ring)
        for site in sites.values():
            site.puts.sort(key=lambda ring: self.place[ring.fill])
            site.releases.sort(key=lambda ring: self.place[ring.release])
        return sorted(sites.values(), key=self._position)

    def _position(self, site: _Site) -> float:
        return self.place[site.after] + 0.5 if site.after is not None else self.place[site.before] - 0.5

    def _count_later(self, sites: Sequence[_Site]) -> None:
        """States for each get of a cp.async channel how many groups are committed, at least, after the one that it waits for."""
        places: dict[Ring, tuple[float, int]] = {}
        for site in sites:
            for number, ring in enumerate(site.puts):
                places[ring] = (self._position(site), number)
        for ring in self.loop.rings:
            copied = isinstance(ring.fill, async_copy.PutOp) and not ring.elsewhere
            if ring not in places and copied and ring.channel.depth.value.data > 1:
                places[ring] = (self.place[ring.fill], 0)
        places = {ring: place for ring, place in places.items() if ring.via == "cp.async"}
        for ring, place in places.items():
            got = (self.place[ring.get], 0)
            later = 0
            for other, its in places.items():
                if ring in self.moved and other in self.moved:
                    later += self.ahead - 1 + (its < got) + (its > place)
                elif ring in self.moved:
                    later += its < got
                else:
                    later += place < its < got
            ring.get.properties["later"] = IntegerAttr(later, i64)

    # -- tokens and pending tiles

    def _tokens(self) -> dict[Ring, SSAValue]:
        """For each ring that is released a trip later: the event after which it may be."""
        tokens: dict[Ring, SSAValue] = {ring: max(ring.dots, key=self.place.__getitem__).read for ring in self.in_flight}
        here: dict[Operation, SSAValue] = {}
        for ring in self.read_at_once:
            last: Operation = ring.release
            while isinstance(last.next_op, async_copy.ReleaseOp):
                last = last.next_op
            if last not in here:
                token = async_copy.TokenOp.make("here")
                token.location = last.location
                self.loop.block.insert_op_after(token, last)
                here[last] = token.res
            tokens[ring] = here[last]
        return tokens

    # -- puts

    def _ahead_of_the_loop(self, sites: Sequence[_Site]) -> None:
        """The puts of the first trips."""
        loop, block = self.loop.op, self.loop.op.parent
        puts = [ring for site in sites for ring in site.puts]
        assert block is not None
        if not puts:
            return
        exists = trip_count(loop) is not None  # then there are as many trips as stages, or more
        for trip in range(self.ahead):
            build = _Builder(loop)
            start = build.moved_on(loop.lb, loop.step, trip)
            values = {self.loop.block.args[0]: start}
            if exists:
                self._put(build, puts, values, trip)
                block.insert_ops_before(build.ops, loop)
                continue
            condition = build.compare(start, loop.ub)
            inside = _Builder(loop)
            self._put(inside, puts, values, trip)
            block.insert_ops_before([*build.ops, build.branch(condition, inside.ops)], loop)

    def _insert_sites(self, sites: Sequence[_Site]) -> None:
        """The puts of the body, and the releases that go before them."""
        loop, block = self.loop.op, self.loop.block
        before = _Builder(loop)
        step = before.times(loop.step, self.ahead) if any(site.puts for site in sites) else None
        loop.parent.insert_ops_before(before.ops, loop)
        for site in sites:
            build = _Builder(site.puts[0].fill if site.puts else site.releases[0].release)
            for ring in site.releases:
                ring.release.detach()
                build.ops.append(ring.release)
            if site.puts:
                counter = block.args[0]
                assert step is not None
                later = build.add(arith.AddiOp(counter, step))
                condition = build.compare(later, loop.ub)
                inside = _Builder(site.puts[0].fill)
                self._put(inside, site.puts, {counter: later}, None)
                build.branch(condition, inside.ops)
            site.ops = list(build.ops)
            if site.after is not None:
                block.insert_ops_after(build.ops, site.after)
            else:
                block.insert_ops_before(build.ops, site.before)
        for ring in self.moved:
            ring.fill.detach()
            ring.fill.erase()

    def _put(self, build: _Builder, rings: Sequence[Ring], values: dict[SSAValue, SSAValue], trip: int | None) -> None:
        """Puts of another trip: number `trip`, or `ahead` trips after this one. `values`: the loop's counter in that trip."""
        values = dict(values)
        for ring in rings:
            fill = ring.fill
            for operand in fill.operands:
                self._recompute(build, operand, values, trip)
            copy = fill.clone(values)
            copy.location = fill.location
            build.ops.append(copy)

    def _recompute(self, build: _Builder, value: SSAValue, values: dict[SSAValue, SSAValue], trip: int | None) -> None:
        loop, block = self.loop.op, self.loop.block
        if value in values or not is_inside(value, block):
            return
        if isinstance(value, BlockArgument):
            step = growth(value)
            assert step is not None, "_why_it_stays has asked"
            now = value if trip is None else loop.iter_args[value.index - 1]
            values[value] = build.moved_on(now, step, self.ahead if trip is None else trip)
            return
        op = value.owner
        assert isinstance(op, Operation)
        for operand in op.operands:
            self._recompute(build, operand, values, trip)
        copy = op.clone(values)
        copy.location = op.location
        build.ops.append(copy)
        values.update(zip(op.results, copy.results))

    # -- the loop itself

    def _rebuild(self, tokens: dict[Ring, SSAValue]) -> None:
        """The loop with pending tiles and tokens carried, and what awaits and releases them after it."""
        old, block = self.loop.op, self.loop.block
        parent = old.parent
        assert parent is not None
        inits = list(old.iter_args)
        kinds: list[Attribute] = [value.type for value in old.results]
        before = _Builder(old)
        for chain in self.loop.chains:
            ready = async_copy.ReadyOp.make(inits[chain.position])
            inits[chain.position] = before.add(ready)
            kinds[chain.position] = ready.res.type
            Rewriter.replace_value_with_new_type(block.args[chain.position + 1], ready.res.type)
            for wait in chain.awaits:
                wait.res.replace_all_uses_with(wait.pending)
                wait.detach()
                wait.erase()
        distinct = list(dict.fromkeys(tokens.values()))
        if distinct:
            none = before.add(async_copy.TokenOp.make("none"))
            inits += [none] * len(distinct)
            kinds += [none.type] * len(distinct)
        arguments = {token: block.insert_arg(token.type, len(block.args)) for token in distinct}
        end = block.last_op
        assert end is not None
        end.operands = [*end.operands, *distinct]
        for ring, token in tokens.items():
            ring.release.operands = [ring.release.channel, arguments[token]]
        parent.insert_ops_before(before.ops, old)
        new = scf.ForOp.create(
            operands=[old.lb, old.ub, old.step, *inits],
            result_types=kinds,
            regions=[old.detach_region(old.body)],
            attributes=old.attributes,
            properties=old.properties,
        )
        new.location = old.location
        after = _Builder(old)
        count = len(old.results)
        carried = {chain.position for chain in self.loop.chains}
        for position, value in enumerate(old.results):
            result = new.results[position]
            result.name_hint = value.name_hint
            if position in carried:
                result = after.add(async_copy.AwaitOp.make(result))
                result.name_hint = value.name_hint
            value.replace_all_uses_with(result)
        last = {token: new.results[count + index] for index, token in enumerate(distinct)}
        for ring in sorted(tokens, key=lambda ring: self.place[ring.release]):
            after.put(async_copy.ReleaseOp.make(ring.channel.res, last[tokens[ring]]))
        parent.insert_ops_before([new, *after.ops], old)
        old.detach()
        old.erase()
        self.loop.op = new


def _first_of_run(fill: Operation) -> Operation:
    """The first of the puts that stand together with `fill`: between them are only scalar computations."""
    first, op = fill, fill.prev_op
    while op is not None and (isinstance(op, async_copy.PutOp) or is_side_effect_free(op)):
        if isinstance(op, async_copy.PutOp):
            first = op
        op = op.prev_op
    return first


class _Builder(NewOps):
    """What the trips of a pipelined loop compute. Constants are folded, as schedules are read by people."""

    def times(self, value: SSAValue, by: int) -> SSAValue:
        if by == 1:
            return value
        if (known := constant_value(value)) is not None:
            return self.constant(known * by, value.type)
        return self.add(arith.MuliOp(value, self.constant(by, value.type)))

    def moved_on(self, start: SSAValue, step: SSAValue, trips: int) -> SSAValue:
        """start + trips·step."""
        if trips == 0:
            return start
        first, by = constant_value(start), constant_value(step)
        if first is not None and by is not None:
            return self.constant(first + trips * by, start.type)
        moved = self.times(step, trips)
        return moved if first == 0 else self.add(arith.AddiOp(start, moved))

    def compare(self, value: SSAValue, upper: SSAValue) -> SSAValue:
        """value < upper."""
        return self.add(arith.CmpiOp(value, upper, "slt"))

    def branch(self, condition: SSAValue, inside: Sequence[Operation]) -> Operation:
        """The `scf.if` that does `inside`."""
        block = Block([*inside, scf.YieldOp()])
        op = scf.IfOp(condition, [], Region(block), Region())
        self.put(op)
        return op


def _note_what_stays(loop: Loop, emitter: Emitter) -> None:
    for ring in loop.rings:
        if isinstance(ring.fill, async_copy.PutOp) and ring.stays is not None:
            name = f"%{ring.fill.array.name_hint}" if ring.fill.array.name_hint else "an array"
            emitter.note(ring.fill, f"the load of {name} is not made ahead of its trip: {ring.stays}")
