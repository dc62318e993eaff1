"""overlap-waits: computation that stands before a wait for tensor cores happens before it, as much of it as pays.

A loop that computes while a `wgmma` is under way states it by order: first the computation, then `wgmma.wait_group`. ptxas does not keep that order.
To it the computation neither touches memory nor what the wait is for, and its scheduler likes the wait early: of a softmax whose exponentials
stand before the wait it leaves a few above and moves the rest below, and the tensor cores run dry while the exponentials are computed. This pass

- decides how much of the computation should come before the wait (`percent`, or from the clocks that it and the wgmmas take),
- splits it there, registers of one operation on both sides if need be, and
- holds the first part above the wait: by a volatile store of a value in which all of that part ends up, under a predicate that is never true. The
  assembler cannot know that, and must have the value before the wait. It costs one issue slot;
- keeps the second part below: after the next branch, where there is one (ptxas moves instructions freely within a block, and not over branches).

    S = … wait_group 1                            S = … wait_group 1
    %e = ex2 %s              64 registers         %e0 = ex2 %s[0 … 31]
    %t = sum of %e                         →      %t0 = sum of %e0;   @never st.volatile.shared.v2 [0], %t0
    wait_group 0                                  wait_group 0
    … %t …                                        %e1 = ex2 %s[32 … 63];   %t = %t0 + sum of %e1

**What can be split.** The operations between the wait and the wait (or wgmma) before it that only compute. Each stands for n instructions on n
registers; which of them a value needs is followed register by register. The value that is held has at most four registers,
like the partial sums and maxima of a reduction; where no such value needs a good part of the computation, nothing is done.

**How much.** Were the tensor cores always busy it would not matter where a warpgroup waits; what stands after the wait is also what delays the next
wgmma. So: as large a part as the computation's clocks are of the clocks that the loop's wgmmas take. With as many clocks of exponentials as of
wgmmas, all come before the wait; with half as many, half. Where two warpgroups take turns at the
tensor cores and each computes about as long as it multiplies (BALANCED), nothing: one's dots are done when it has found its maximum, and run beside the other's exponentials. (Measured on an H200 with
attention: head dimension 128 is best at a quarter to a half. Of 64, three warpgroups are best with all, by 4 per cent; two with nothing, by 3 per cent to all, and by 5 to 11 where the scores are computed with before
their maximum is taken.) Only what may stand on either side counts: what has to come before the wait anyhow does not make up for it. (A bias that is converted and added before
the maximum took, by itself, the half that was wanted, and all exponentials came after the wait.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from ..dialects.async_roles import WARPGROUP_WARPS
from ..dialects.ptx import (
    ConcatOp,
    ConstantOp,
    ForOp,
    IfOp,
    InstOp,
    KernelOp,
    PickOp,
    SpecialOp,
    WhileOp,
    reg,
    split_form,
)
from ..dialects.ptx_isa import lookup
from ..passes.base import Pass, PassContext

WAIT = "wgmma.wait_group.sync.aligned"
HOLDS = {1: "st.volatile.shared.b32", 2: "st.volatile.shared.v2.b32", 4: "st.volatile.shared.v4.b32"}
"""What holds a value of so many registers above a wait."""
LEAST_CLOCKS = 64
"""Clocks of a warp's computation below which ptxas may do as it likes: the latency of a wait."""
BALANCED = 0.75
"""Clocks of the computation for each of the wgmmas from which on two warpgroups that take turns need nothing held."""
TOLERANCE = 0.15
"""How far, as a part of the whole computation, what is held may be from what is wanted."""
STEP = 0.05
"""What counts as equally far; then fewer registers are better."""

Atom = tuple[SSAValue, int]


@dataclass
class OverlapWaits(Pass):
    """Hold computation above the waits for wgmmas that it should overlap. `percent`: how much of it; -1: by cost; 0: nothing is held."""

    name: ClassVar[str] = "overlap-waits"
    percent: int = -1

    def run(self, module: ModuleOp, context: PassContext) -> None:
        if self.percent == 0:
            return
        for kernel in module.body.block.ops:
            if isinstance(kernel, KernelOp):
                never: SSAValue | None = None
                turns = _multiplying(kernel) == 2
                for op in list(kernel.walk()):
                    if isinstance(op, InstOp) and op.opcode.data == WAIT and _in_loop(op):
                        found = _Region(op)
                        held = found.choose(self.percent, turns)
                        if held is not None:
                            never = never or _never(kernel)
                            found.split(held, never)


def _in_loop(op: Operation) -> bool:
    return isinstance(op.parent_op(), ForOp | WhileOp)


def _multiplying(kernel: KernelOp) -> int:
    """Warpgroups that multiply: all of them, but for one that only loads, which gives up registers for the others."""
    loads = any(isinstance(op, InstOp) and op.opcode.data.startswith("setmaxnreg.dec") for op in kernel.walk())
    return kernel.threads.value.data // (32 * WARPGROUP_WARPS) - loads


def _never(kernel: KernelOp) -> SSAValue:
    """A predicate that is false in every thread, which no compiler can know: a grid has at least one block."""
    blocks = SpecialOp.make("%nctaid.x")
    zero = ConstantOp.make(0, "b32")
    test = InstOp.make("setp.eq.s32", [blocks.res, zero.res], [reg("pred")])
    first = kernel.body.block.first_op
    assert first is not None
    for op in (blocks, zero, test):
        op.location = kernel.location
    kernel.body.block.insert_ops_before([blocks, zero, test], first)
    return test.results[0]


# ---- register by register -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """How an operation is made of `count` instructions: the registers of each result and of each operand that one takes (0: all take the same)."""

    count: int
    results: tuple[int, ...]
    args: tuple[int, ...]


def _shape(op: Operation) -> _Shape | None:
    """None for what does anything but compute its results, or works in place."""
    if isinstance(op, PickOp | ConcatOp):
        return _Shape(op.results[0].type.count, (1,), ())
    if not isinstance(op, InstOp) or lookup(op.opcode.data).effects - {"convergent"}:
        return None
    args, guard, init = op.segments()
    if guard is not None or init or op.properties.get("offsets") is not None:
        return None
    form, count = op.form()
    results, sources, _ = split_form(form)
    if any(operand.role == "io" for operand in sources):
        return None
    widths = tuple(
        operand.registers if count > 1 and value.type.count == count * operand.registers else 0 for operand, value in zip(sources, args)
    )
    return _Shape(count, tuple(operand.registers for operand in results), widths)


class _Region:
    """What stands between a wait and the wait or wgmma before it. Every instruction that may move has a number, a bit in masks."""

    def __init__(self, wait: InstOp) -> None:
        self.wait = wait
        self.ops: list[Operation] = []
        at = wait.prev_op
        while at is not None and not (isinstance(at, InstOp) and at.opcode.data.startswith("wgmma.")):
            self.ops.insert(0, at)
            at = at.prev_op
        self.shapes = {op: shape for op in self.ops if (shape := _shape(op)) is not None}
        self.slices: dict[SSAValue, list[int]] = {}  # for each register of a value all instructions of the region that it needs
        self.bits: dict[Operation, list[int]] = {}
        self.units: dict[str, dict[int, int]] = {}  # unit -> issue clocks -> the instructions that take them
        self.needed = 0  # by what stays before the wait
        number = 0
        for op in self.ops:
            shape = self.shapes.get(op)
            if shape is None:
                self._need(op)
                continue
            if isinstance(op, PickOp):
                if (source := self.slices.get(op.source)) is not None:
                    self.slices[op.res] = [source[i] for i in op.indices.get_values()]
                continue
            if isinstance(op, ConcatOp):
                self.slices[op.res] = [mask for part in op.parts for mask in self.slices.get(part) or [0] * part.type.count]
                continue
            args, _, _ = op.segments()
            row = lookup(op.opcode.data)
            unit = self.units.setdefault(row.unit, {})
            own = self.bits[op] = [1 << bit for bit in range(number, number + shape.count)]
            number += shape.count
            unit[row.issue] = unit.get(row.issue, 0) | sum(own)
            # What all instructions need, and of the others the masks of each one's registers.
            always, columns = 0, []
            for value, width in zip(args, shape.args):
                if width and (masks := self.slices.get(value)) is not None:
                    columns.append((masks, width))
                elif not width:
                    always |= self._slice_of(value)
            needs = [always | bit for bit in own]
            for masks, width in columns:
                for lane in range(shape.count):
                    for mask in masks[lane * width : lane * width + width]:
                        needs[lane] |= mask
            for result, width in zip(op.results, shape.results):
                self.slices[result] = needs if width == 1 else [mask for mask in needs for _ in range(width)]

        self.end = self._find_end()

    def _find_end(self) -> Operation:
        """What the second part of the computation comes after: the next branch, if there is one, else the wait."""
        at = self.wait.next_op
        between: list[Operation] = []
        while at is not None and not (isinstance(at, InstOp) and at.opcode.data.startswith("wgmma.")):
            between.append(at)
            if isinstance(at, IfOp):
                for op in between:
                    self._need(op)
                return at
            at = at.next_op
        return self.wait

    def _need(self, op: Operation) -> None:
        for value in _reads(op):
            self.needed |= self._slice_of(value)

    def _slice_of(self, value: SSAValue) -> int:
        found = 0
        for mask in self.slices.get(value, ()):
            found |= mask
        return found

    def clocks(self, mask: int) -> int:
        """Clocks of a warp for a set of instructions: of the unit that is busy longest, and one to issue each."""
        busy = [sum(issue * (mask & those).bit_count() for issue, those in unit.items()) for unit in self.units.values()]
        return max([mask.bit_count(), *busy])

    # -- how much

    def choose(self, percent: int, turns: bool) -> SSAValue | None:
        """The value to hold; None where nothing is to be gained. `turns`: whether two warpgroups take turns at the tensor cores."""
        free = (1 << sum(map(len, self.bits.values()))) - 1 & ~self.needed
        total = self.clocks(free)
        if total < LEAST_CLOCKS:
            return None
        ratio = total / max(1, self._dot_clocks())
        if percent < 0 and turns and ratio >= BALANCED:
            return None
        wanted = percent / 100 if percent > 0 else min(1.0, ratio)
        best: tuple[float, int] | None = None
        found: SSAValue | None = None
        for op in self.ops:
            value = op.results[0] if op in self.shapes else None
            if value is None or value.type.cls != "b32" or value.type.count not in HOLDS:
                continue
            off = abs(self.clocks(self._slice_of(value) & free) / total - wanted)
            if off <= TOLERANCE and (best is None or (round(off / STEP), value.type.count) < best):
                best, found = (round(off / STEP), value.type.count), value
        return found

    def _dot_clocks(self) -> int:
        """Clocks that the wgmmas of a trip take."""
        block = self.wait.parent
        assert block is not None
        rows = [lookup(op.opcode.data) for op in block.ops if isinstance(op, InstOp)]
        return sum(row.issue for row in rows if row.unit == "wgmma")

    # -- the split

    def split(self, held: SSAValue, never: SSAValue) -> None:
        """Moves all that `held` does not need, nor what stays, after the wait."""
        early = self._slice_of(held) | self.needed
        block = self.wait.parent
        assert block is not None
        places = _Places()
        late: list[Operation] = []
        following = self.end.next_op
        assert following is not None, "a loop's last op is its yield"
        for op in self.ops:
            shape = self.shapes.get(op)
            if shape is None:
                places.read(op, block, op)
                continue
            if isinstance(op, PickOp | ConcatOp):
                places.renamed(op)
                late.append(op)
                continue
            lanes = [lane for lane, bit in enumerate(self.bits[op]) if bit & early]
            if len(lanes) < shape.count:
                late.append(op)
            if len(lanes) == shape.count:
                places.read(op, block, op)
            elif lanes:
                places.part(op, shape, lanes, block, op)
        at: Operation | None = self.wait.next_op
        while at is not None and at is not following:
            places.read(at, block, at)
            at = at.next_op
        address = ConstantOp.make(0, "b32")
        value = places.gather([(held, i) for i in range(held.type.count)], block, self.wait)
        store = InstOp.make(HOLDS[held.type.count], [address.res, value], [], guard=never)
        for added in (address, store):
            added.location = self.wait.location
            block.insert_op_before(added, self.wait)
        for op in late:
            op.detach()
            block.insert_op_before(op, following)
            places.rest(op, self.shapes[op], block)


def _reads(op: Operation) -> list[SSAValue]:
    return [value for inner in op.walk() for value in inner.operands] if op.regions else list(op.operands)


def _renamed(op: Operation) -> list[Atom]:
    """What register each register of a pick's or concat's result is."""
    if isinstance(op, PickOp):
        return [(op.source, i) for i in op.indices.get_values()]
    return [(part, i) for part in op.operands for i in range(part.type.count)]


@dataclass
class _Places:
    """Where registers are to be found before the wait: of those that only a part of an operation computes, or that are renamed."""

    found: dict[Atom, Atom] = field(default_factory=dict)
    parts: dict[Operation, tuple[InstOp, list[int]]] = field(default_factory=dict)

    def at(self, atom: Atom) -> Atom:
        while atom in self.found:
            atom = self.found[atom]
        return atom

    def renamed(self, op: Operation) -> None:
        for i, atom in enumerate(_renamed(op)):
            self.found[(op.results[0], i)] = self.at(atom)

    def gather(self, atoms: Sequence[Atom], block: Block, before: Operation) -> SSAValue:
        """A value of these registers."""
        runs: list[tuple[SSAValue, list[int]]] = []
        for value, i in map(self.at, atoms):
            if runs and runs[-1][0] is value:
                runs[-1][1].append(i)
            else:
                runs.append((value, [i]))
        picked: list[SSAValue] = []
        for value, indices in runs:
            if indices == list(range(value.type.count)):
                picked.append(value)
                continue
            pick = PickOp.make(value, indices)
            pick.location = before.location
            block.insert_op_before(pick, before)
            picked.append(pick.res)
        if len(picked) == 1:
            return picked[0]
        concat = ConcatOp.make(picked)
        concat.location = before.location
        block.insert_op_before(concat, before)
        return concat.res

    def read(self, op: Operation, block: Block, before: Operation) -> None:
        """Lets an operation that stays read what is there before the wait."""
        for inner in op.walk():
            for index, value in enumerate(inner.operands):
                atoms = [(value, i) for i in range(value.type.count)]
                if any(atom in self.found for atom in atoms):
                    inner.operands[index] = self.gather(atoms, block, before)

    def part(self, op: Operation, shape: _Shape, lanes: list[int], block: Block, before: Operation) -> None:
        """Computes some registers of an operation before the wait."""
        assert isinstance(op, InstOp)
        early = _instructions(op, shape, lanes, lambda atoms: self.gather(atoms, block, before))
        block.insert_op_before(early, before)
        self.parts[op] = early, lanes
        for result, width, new in zip(op.results, shape.results, early.results):
            for place, lane in enumerate(lanes):
                for i in range(width):
                    self.found[(result, lane * width + i)] = (new, place * width + i)

    def rest(self, op: Operation, shape: _Shape, block: Block) -> None:
        """Replaces an operation, which stands after the wait now, by the registers that were not computed before it."""
        if op not in self.parts:
            return
        assert isinstance(op, InstOp)
        early, lanes = self.parts[op]
        others = [lane for lane in range(shape.count) if lane not in lanes]
        late = _instructions(op, shape, others, lambda atoms: _picked(atoms, block, op))
        block.insert_op_before(late, op)
        order = {lane: place for place, lane in enumerate([*lanes, *others])}
        for result, width, first, second in zip(op.results, shape.results, early.results, late.results):
            both = ConcatOp.make([first, second])
            whole = PickOp.make(both.res, [order[lane] * width + i for lane in range(shape.count) for i in range(width)])
            for added in (both, whole):
                added.location = op.location
                block.insert_op_before(added, op)
            whole.res.name_hint = result.name_hint
            result.replace_all_uses_with(whole.res)
        op.detach()
        op.erase()


def _instructions(op: InstOp, shape: _Shape, lanes: list[int], gather: Callable[[list[Atom]], SSAValue]) -> InstOp:
    """Some of the instructions that an operation stands for."""
    args, _, _ = op.segments()
    operands = [
        gather([(value, lane * width + i) for lane in lanes for i in range(width)]) if width else gather([(value, i) for i in range(value.type.count)])
        for value, width in zip(args, shape.args)
    ]
    results = [reg(result.type.cls, len(lanes) * width) for result, width in zip(op.results, shape.results)]
    imms = op.properties.get("imms")
    new = InstOp.make(op.opcode.data, operands, results)
    if imms is not None:
        new.properties["imms"] = imms
    new.location = op.location
    return new


def _picked(atoms: list[Atom], block: Block, before: Operation) -> SSAValue:
    """Registers of one value."""
    value = atoms[0][0]
    indices = [i for _, i in atoms]
    if indices == list(range(value.type.count)):
        return value
    pick = PickOp.make(value, indices)
    pick.location = before.location
    block.insert_op_before(pick, before)
    return pick.res
