"""Why the layouts are what they are: for every unknown the choice, its cost, the runner-up and why it lost; for every buffer the proof about its banks.

The runner-up of an unknown is the best answer *with another choice for it*, everything else free to change: the problem is solved again without the choice. Why it
lost is the difference of the two answers, cost by cost:

    runner-up  wgmma m64n128k16 1x2 shared: +2048 (dot +2048)

A buffer's proof is two ranks over F₂ for each access: how many different words lie in how many different banks (`dialects.linear_layout`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from ..dialects import async_copy, tile
from ..dialects.diagnostics import Location, nearest_location, value_name
from ..dialects.layout import Mode, SharedLayout, TVLayout
from ..dialects.layout_attrs import ConvertOp, SharedLayoutAttr, tv_layout_of
from ..dialects.linear_layout import conflict_ranks
from ..dialects.target import Target
from . import dot_rules
from .access import argument_align, memory_bytes, vector_access
from .conversions import Conversion, conversion_of
from .dot_candidates import DotCandidate
from .dot_types import EMULATED
from .gathers import Gather, gather_of
from .infer_layouts import Solved
from .layout_problem import put_choice
from .layout_rules import Dot, tile_of, trips
from .layout_solver import Solution, Table, Variable
from .matrix_access import buffer_access, matrix_form
from .shuffles import Shuffles
from .stage_stores import part_layout


@dataclass
class Choice:
    """What was chosen for one unknown. `lines` are (heading, text)."""

    place: Location | None
    name: str
    kind: str
    lines: list[tuple[str, str]] = field(default_factory=list)


def explain(solved: Solved) -> tuple[str, list[Choice]]:
    """A line about the whole answer, and the choices in the order of the source. Ask before later passes change the kernel."""
    made, solution = solved.made, solved.solution
    combinations = prod(len(variable.candidates) for variable in made.problem.variables)
    head = (
        f"cost {solution.cost} slots a block, the least of {_power(combinations)} combinations of {len(made.problem.variables)} choices "
        f"(exact; passes/layout_costs.py says what a slot is)"
    )
    choices = [
        *(_channel(solved, op, variable) for op, variable in made.channels.items()),
        *(_dot(solved, op, variable) for op, variable in made.dots.items()),
        *(_value(solved, root, variable) for root, variable in made.classes.items()),
        *(_conversion(solved, op) for op in solved.converts),
        *(_gather(op) for op in made.ops if isinstance(op, tile.GatherOp)),
    ]
    return head, sorted(choices, key=lambda choice: _key(choice.place))


def _key(place: Location | None) -> tuple[str, int, int]:
    return (place.file, place.line, place.column) if place is not None else ("", 0, 0)


def _power(number: int) -> str:
    return f"{number}" if number < 10**6 else f"{number:.1e}"


# ---- values ---------------------------------------------------------------------------------------------------------


def _value(solved: Solved, root: SSAValue, variable: Variable[TVLayout]) -> Choice:
    made, layout = solved.made, solved.solution.candidate(variable)
    members = made.members[root]
    first = next((value for value in members if value.name_hint), members[0])
    kind = tile_of(first)
    assert kind is not None
    choice = Choice(nearest_location(first), variable.name, _tile_text(kind))
    choice.lines.append(("layout", str(layout)))
    names = list(dict.fromkeys(f"%{value.name_hint}" for value in members if value.name_hint and f"%{value.name_hint}" != variable.name))
    if names:
        choice.lines.append(("also", ", ".join(names)))
    for op, value in made.said.memories:
        if made.said.find(value) is root:
            choice.lines.append(("by", _memory(solved, op)))
    _costs(solved, variable, choice, [str(candidate) for candidate in variable.candidates])
    return choice


def _memory(solved: Solved, op: tile.LoadOp | tile.StoreOp) -> str:
    made = solved.made
    own = solved.solution.candidate(made.memories[op])
    value = op.res if isinstance(op, tile.LoadOp) else op.value
    kind = tile_of(value)
    assert kind is not None
    layout = own if own is not None else tv_layout_of(kind)
    assert layout is not None
    size = memory_bytes(kind.element_type)
    inner, width = vector_access(made.kernel, made.facts, op, whole=True)
    vector = 1 if inner is None else gcd(width, layout.contiguous(inner))
    name = f"{'ld' if isinstance(op, tile.LoadOp) else 'st'}.global of {vector * size} bytes, {layout.num_values // vector} a thread"
    held = f", held in {own} and converted" if own is not None else ""
    return f"{name}, {_array(op.array)} at {_at(op)}{held}"


def _array(array: SSAValue) -> str:
    return f"%{array.name_hint}" if array.name_hint else "an array"


def _at(op: Any) -> str:
    place = nearest_location(op)
    return f"line {place.line}" if place is not None else "an unknown place"


def _tile_text(kind: TensorType) -> str:
    return "x".join([*map(str, kind.get_shape()), str(kind.element_type)])


# ---- dots -----------------------------------------------------------------------------------------------------------


def _dot(solved: Solved, op: Dot, variable: Variable[DotCandidate]) -> Choice:
    made, way = solved.made, solved.solution.candidate(variable)
    offer = made.offers[op]
    acc = tile_of(op.operands[2])
    assert acc is not None
    shape = dot_rules.dot_shape(op)
    choice = Choice(nearest_location(op), variable.name, f"dot {'x'.join(map(str, (*shape.batch, shape.m, shape.n, shape.k)))}, {_tile_text(acc)}")
    registers = dot_rules.registers_of(way.choice.acc, acc.element_type)
    pieces = way.choice.pieces
    each = f", {len(pieces)} × {way.choice.slabs} instructions a step of K" if len(pieces) * way.choice.slabs > 1 else ""
    choice.lines.append(("by", f"{way.text}{each}; {registers} registers of a thread accumulate"))
    if way.choice.unit == "mma" and shape.kind.emulated:
        choice.lines.append(("emulated", f"{EMULATED}, at half the rate of f16"))
    count = f"{len(offer.candidates)} ways are possible"
    choice.lines.append(("ways", count))
    reasons: dict[str, list[str]] = {}
    for rejection in offer.rejections:
        reasons.setdefault(rejection.reason, []).append(rejection.text)
    for reason, texts in reasons.items():
        shown = texts[0] if len(texts) == 1 else f"{texts[0]} and {len(texts) - 1} more"
        choice.lines.append(("out", f"{shown}: {reason}"))
    words = solved.pinned.get(op)
    if words is not None:
        choice.lines.append(("pinned", words))
    same = [other for other in offer.named(words) if other.layouts == way.layouts and other is not way]
    choice.lines.append(("cost", _own_costs(solved, variable)))
    again = _without(solved, variable)
    nearest = min((other.cost - way.cost) * trips(op) for other in same) if same else None
    if again is not None and (nearest is None or again.cost - solved.solution.cost < nearest):
        choice.lines.append(("runner-up", f"{again.candidate(variable).text}: {_difference(solved, again)}"))
    elif nearest is not None:
        other = same[0]
        choice.lines.append(("runner-up", f"{other.text}: +{nearest} (dot +{nearest}), in the same layouts"))
    else:
        choice.lines.append(("runner-up", "none: no other way is possible here"))
    return choice


# ---- buffers --------------------------------------------------------------------------------------------------------


def _channel(solved: Solved, op: async_copy.ChannelOp, variable: Variable[SharedLayout]) -> Choice:
    layout = solved.solution.candidate(variable)
    kind = op.res.type
    size = memory_bytes(kind.element)
    text = "x".join([*map(str, kind.shape), str(kind.element)])
    choice = Choice(nearest_location(op), variable.name, f"buffer {text}, {layout.size() * size} bytes")
    choice.lines.append(("layout", str(layout)))
    choice.lines += [("banks", str(access)) for access in buffer_accesses(solved, op)]
    _costs(solved, variable, choice, [str(candidate) for candidate in variable.candidates])
    return choice


@dataclass(frozen=True)
class BankAccess:
    """One way in which a buffer is accessed, and what is known of its banks. `wavefronts` of one instruction of a warp, `least` without conflicts; `proof`:
    how that is known."""

    what: str
    place: Location | None
    wavefronts: int
    least: int
    proof: str

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.least

    def __str__(self) -> str:
        where = f" at line {self.place.line}" if self.place is not None else ""
        found = "0 conflicts" if not self.conflicts else f"{self.wavefronts} wavefronts instead of {self.least}"
        return f"{self.what}{where}: {found}{f'; {self.proof}' if self.proof else ''}"


def buffer_accesses(solved: Solved, channel: async_copy.ChannelOp) -> Iterator[BankAccess]:
    """Every access to a channel's buffers: puts and writes, then reads."""
    made = solved.made
    layout = solved.solution.candidate(made.channels[channel])
    size = memory_bytes(channel.res.type.element)
    stmatrix = made.target.compute_capability >= (9, 0)
    for use in channel.res.uses:
        user = use.operation
        if isinstance(user, async_copy.PutOp):
            yield _put_access(solved, user, layout, size)
        elif isinstance(user, async_copy.WriteOp):
            registers = solved.solution.candidate(made.layout_of(user.value))
            yield _register_access(registers, layout, size, False, stmatrix, user)
    for (user, index), buffer in made.buffers.items():
        if buffer.channel is not channel:
            continue
        seen = layout.permute(buffer.dims)
        if isinstance(user, async_copy.ReadOp):
            yield _register_access(solved.solution.candidate(made.layout_of(user.res)), seen, size, True, stmatrix, user)
        elif isinstance(user, async_copy.DotOp):
            yield _wgmma_access(seen, size, index, user)


def _proof(registers: TVLayout, shared: SharedLayout, size: int, nbytes: int) -> str:
    ranks = conflict_ranks(registers, shared, size, nbytes)
    if ranks is None:
        return "counted over all wavefronts"
    return f"each wavefront's 2^{ranks.words} words lie in 2^{ranks.banks} banks"


def _register_access(registers: TVLayout, shared: SharedLayout, size: int, reads: bool, stmatrix: bool, op: Operation) -> BankAccess:
    access = buffer_access(registers, shared, size, reads, stmatrix)
    form = matrix_form(registers, shared, size) if access.opcode.split(".")[0] in ("ldmatrix", "stmatrix") else None
    nbytes = 16
    if form is not None:
        unit = tuple(int(d == form.along) for d in range(registers.rank))
        registers = TVLayout(form.layout.thread, (Mode(16 // size, unit), *form.layout.value))
    else:
        nbytes = int(access.opcode.split()[1])
    proof = _proof(registers, shared, size, nbytes)
    if access.trade is not None:
        proof = f"{proof}; all, since lanes with bit {access.trade.lanes} store values v and v ^ {access.trade.values} in the other order"
    return BankAccess(access.opcode, nearest_location(op), access.wavefronts, access.least, proof)


def _wgmma_access(seen: SharedLayout, size: int, index: int, op: Operation) -> BankAccess:
    """wgmma reads core matrices: eight rows of 16 bytes each (PTX ISA 9.0 §9.7.16.5.1), as a wavefront."""
    order = seen.core_order(size)
    assert order is not None, "wgmma reads nothing else"
    along, across = order[0], order[1]

    def mode(extent: int, dim: int) -> Mode:
        return Mode(extent, tuple(int(d == dim) for d in range(seen.rank)))

    core = TVLayout((mode(8, across),), (mode(16 // size, along),))
    ranks = conflict_ranks(core, seen, size, 16)
    assert ranks is not None
    side = "left" if index == 0 else "right"
    return BankAccess(f"wgmma ({side})", nearest_location(op), ranks.wavefronts, 1, _proof(core, seen, size, 16))


def _put_access(solved: Solved, put: async_copy.PutOp, layout: SharedLayout, size: int) -> BankAccess:
    via = put.via.data if put.via is not None else put_choice(solved.made, put, layout).via
    what = {"tma": "TMA", "cp.async": "cp.async", "ld": "ld.global, st.shared"}[via]
    if via == "tma":
        form = layout.tma_form(size)
        assert form is not None
        span = f"swizzle {form.swizzle_bytes} B" if form.swizzle_bytes else "no swizzle"
        box = "x".join(str(form.box[d]) for d in form.order)
        return BankAccess(f"{what} of {_array(put.array)}, boxes of {box}, {span}", nearest_location(put), 1, 1, "whole rows")
    width = size
    if via == "cp.async":
        width = dot_rules.copy_bytes(put, layout, solved.made.facts.divisor, argument_align(solved.made.kernel, put.array))
    vector = max(1, width // size) if via == "cp.async" else 2
    threads = dot_rules.copy_layout(layout, put.channel.type.shape, 32 * solved.made.warps, vector, dot_rules.contiguous_dim(put))
    access = buffer_access(threads, layout, size, False, False)
    return BankAccess(
        f"{what} of {_array(put.array)}, {vector * size} bytes", nearest_location(put), access.wavefronts, access.least,
        _proof(threads, layout, size, min(16, vector * size)),
    )  # fmt: skip


def staged_accesses(kernel: tile.KernelOp, target: Target) -> list[tuple[BankAccess, int]]:
    """How tiles are written into the buffers that TMA stores from, of a kernel whose stores are staged, and how many such accesses a warp makes."""
    found: list[tuple[BankAccess, int]] = []
    for op in kernel.walk():
        if not isinstance(op, async_copy.StoreOp) or not isinstance(op.channel.type.layout, SharedLayoutAttr):
            continue
        layout, shared = tv_layout_of(op.value.type), op.channel.type.layout.data
        size = memory_bytes(op.channel.type.element)
        form = shared.tma_form(size)
        assert layout is not None and form is not None, "stage-stores has made it so"
        inner = form.order[0]
        part = part_layout(layout, inner, op.channel.type.shape[inner])
        assert part is not None
        access = buffer_access(part, shared, size, False, target.compute_capability >= (9, 0))
        described = _register_access(part, shared, size, False, target.compute_capability >= (9, 0), op)
        found.append((replace(described, what=f"staged store: {described.what}"), access.count * op.parts()))
    return found


# ---- conversions ----------------------------------------------------------------------------------------------------


def _conversion(solved: Solved, op: ConvertOp) -> Choice:
    kind = op.source.type
    assert isinstance(kind, TensorType)
    choice = Choice(nearest_location(op), value_name(op.source), f"conversion {_tile_text(kind)}")
    source, result = tv_layout_of(kind), tv_layout_of(op.result.type)
    assert source is not None and result is not None
    choice.lines += [("from", str(source)), ("to", str(result))]
    found = conversion_of(op, solved.made.target.compute_capability >= (9, 0))
    plan = found.exchange
    if found.by == "names":
        choice.lines.append(("by", "names: every thread has what it needs"))
        return choice
    if found.shuffles is not None:
        choice.lines.append(("by", _shuffles_text(found.shuffles)))
    elif plan is None:
        choice.lines.append(("by", "shared memory, element by element"))
    if plan is None:
        choice.lines += _prices(found)
        return choice
    size = memory_bytes(kind.element_type)
    choice.lines.append(("by", f"shared memory, as {plan.shared}, {plan.nbytes} bytes"))
    sides = ((source, plan.write, "written"), (result, plan.read, "read"))
    for layout, access, verb in sides:
        cost = _register_access(layout, plan.shared, size, access is plan.read, solved.made.target.compute_capability >= (9, 0), op)
        choice.lines.append(("banks", f"{verb} by {access.count} × {cost}"))
    if plan.conflicts:
        choice.lines.append(("banks", "the least of all swizzles"))
    choice.lines += _prices(found)
    return choice


def _gather(op: tile.GatherOp) -> Choice:
    choice = Choice(nearest_location(op), value_name(op.res), f"gather {_tile_text(op.source.type)} by {_tile_text(op.index.type)} along {op.along}")
    found = gather_of(op)
    plan = found.shuffles
    if plan is None:
        text = "shared memory, element by element, in row-major order; what the indices are says how many banks are busy"
    else:
        each = len(plan.picks[0])
        text = f"{each * len(plan.picks)} shuffles of a thread, {each} for each element" if plan.lanes else f"names: every thread has its lines whole, {each} elements of each"
    choice.lines.append(("by", text))
    choice.lines += _prices(found)
    return choice


def _shuffles_text(plan: Shuffles) -> str:
    how = "butterflies" if plan.butterfly else "shuffles"
    stays = "" if plan.shuffles == plan.result_words else f", {max(0, plan.result_words - plan.shuffles)} stay or come twice"
    selected = f"; {plan.selections} selections" if plan.selections else ""
    return f"{how} in each warp: {plan.shuffles} of {plan.result_words} words of a thread{stays}{selected}"


def _prices(found: Conversion | Gather) -> list[tuple[str, str]]:
    """What the way costs, and what the others would."""
    others = [f"by {by.replace('shared', 'shared memory')} {cost}" for by, cost in found.costs if by != found.by]
    if found.by == "shared" and found.shuffles is None and len(found.costs) == 1:
        others = ["shuffles cannot: warps lack what they need, or the layouts have no matrix"]
    return [("cost", "; ".join([str(found.cost), *others]))]


# ---- costs ----------------------------------------------------------------------------------------------------------


def _costs(solved: Solved, variable: Variable[Any], choice: Choice, texts: list[str]) -> None:
    choice.lines.append(("cost", _own_costs(solved, variable)))
    if len(texts) == 1:
        choice.lines.append(("runner-up", "none: there is one candidate"))
        return
    again = _without(solved, variable)
    if again is None:
        choice.lines.append(("runner-up", f"none: none of the other {len(texts) - 1} is possible"))
    else:
        choice.lines.append(("runner-up", f"{texts[again.choice[variable]]}: {_difference(solved, again)}"))


def _own_costs(solved: Solved, variable: Variable[Any]) -> str:
    totals: dict[str, int] = {}
    for table, cost in solved.made.problem.terms(solved.solution):
        if variable in table.variables:
            totals[table.label] = totals.get(table.label, 0) + cost
    return " + ".join(f"{label} {cost}" for label, cost in sorted(totals.items(), key=lambda item: -item[1])) or "nothing"


def _without(solved: Solved, variable: Variable[Any]) -> Solution | None:
    again = solved.made.optimum([(variable, solved.solution.choice[variable])])
    return again if again.feasible else None


def _difference(solved: Solved, again: Solution) -> str:
    """`+512 (convert +640 at line 12, registers -128)`."""
    def totals(solution: Solution) -> dict[Table, int]:
        return dict(solved.made.problem.terms(solution))

    before, after = totals(solved.solution), totals(again)
    changes: dict[tuple[str, str], int] = {}
    for table in solved.made.problem.tables:
        change = after.get(table, 0) - before.get(table, 0)
        if change:
            where = "" if table.label in ("registers", "arithmetic") else f" at {_at(table.about)}"
            changes[table.label, where] = changes.get((table.label, where), 0) + change
    shown = sorted(((key, change) for key, change in changes.items() if change), key=lambda item: -abs(item[1]))
    parts = [f"{label} {change:+d}{where}" for (label, where), change in shown[:3]]
    more = f", {len(shown) - 3} more" if len(shown) > 3 else ""
    total = again.cost - solved.solution.cost
    return f"{total:+d} ({', '.join(parts)}{more})" if total else f"as good, and later in the order ({', '.join(parts) or 'nothing changes'}{more})"

