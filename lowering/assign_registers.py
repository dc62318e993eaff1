"""Register assignment: names for the registers of every SSA value of a ptx kernel, and the moves that this needs.

Virtual registers are unlimited (ptxas colours them), so a value normally gets registers of its own. What takes
thought are the *ties*, where PTX wants two values in one register: an instruction's in-place operand and its result
(`wgmma`'s accumulator; `else %init` of a guarded instruction), and the values that control flow carries (a loop's
initial value, its argument, what the body yields, its result; what the branches of an `if` yield and its result).
Where a tie cannot be kept, a move is needed, and moves of `wgmma` accumulators are poison: ptxas serialises every
wgmma of the function if it sees one. So ties are kept wherever lifetimes allow; where not, the pass inserts visible
`ptx.inst "mov.b32"` ops.

    %r = ptx.for %i = %c0 to %n step %c1 : !ptx.reg<b32> carried(%a = %zero : !ptx.reg<b32 x 64>) {
      %b = ptx.inst "wgmma.mma_async…" %a, … : (…) -> !ptx.reg<b32 x 64>
      ptx.yield %b : !ptx.reg<b32 x 64>
    }

Here %zero, %a, %b and %r all get `%r0..%r63`. Were %zero used again after the loop, its 64 registers would be copied
before it; were %a read after the wgmma, they would be copied within.

**Method.** Everything happens at the grain of one register, an *atom*: `ptx.pick` and `ptx.concat` only list atoms of
other values. Each instruction gets a time to read, 2t, and one to write, 2t+1; an op that stands for n instructions
takes n of them, so that a result may take over the register of an operand that no later one of the n reads. The
lifetime of an atom is a list of time spans, exact over the structured control flow: one span in each block it is live
in; live through a whole loop when used in a loop and defined before it; not live in the branch of an `if` that does
not use it. Ties join atoms in a union-find structure as long as no two lifetimes in the joined set overlap; the ties
of instructions come first, then those of control flow, innermost loops first. (Compare Boissinot et al., "Revisiting
Out-of-SSA Translation for Correctness, Code Quality, and Efficiency", CGO 2009.)

What is left of the ties at one place (a loop's entry or back-edge, the end of a branch, an instruction) is one
parallel copy: it is put in order, each cycle broken through a temporary, and becomes move ops before the op of that
place.

**Result.** Attributes `regs` (of an op's results), `arg_regs` (of the arguments of its regions) and `temps`
(registers of its own: the predicate of a loop's test) name registers; `ptx.constant`s that occur only as immediates
have none. `check_registers` (its own module) proves the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ..dialects.diagnostics import TeselaError
from ..dialects.ptx import (
    ConcatOp,
    ConditionOp,
    ConstantOp,
    ForOp,
    IfOp,
    InstOp,
    KernelOp,
    PickOp,
    RegsAttr,
    RegType,
    WaitParityOp,
    WhileOp,
    YieldOp,
    reg,
    split_form,
)
from ..passes.base import Pass, PassContext

PREFIX = {"b32": "%r", "b64": "%rd", "b16": "%h", "pred": "%p"}
"""How register names of each class begin; a number follows."""

Atoms = tuple[int, ...]
Span = tuple[int, int]


@dataclass
class AssignRegisters(Pass):
    """Name the registers of every kernel of a module; see the module's docstring."""

    name: ClassVar[str] = "assign-registers"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for kernel in module.body.block.ops:
            if isinstance(kernel, KernelOp):
                assign_registers(kernel)


def assign_registers(kernel: KernelOp) -> None:
    """Set `regs`, `arg_regs` and `temps` on the ops of a kernel and insert the moves that ties need, in place. Raises
    TeselaError for a guarded in-place instruction whose `else` is another value than the one it works on."""
    lifetimes = _Lifetimes(kernel)
    registers = _Coalescing(lifetimes)
    for site in lifetimes.sites:
        _insert_moves(site, lifetimes, registers)
    _Naming(lifetimes, registers).name_block(kernel.body.block)


@dataclass
class _Site:
    """A place where values must be in given registers: the op that has them as operands, and for each operand (by its
    index) the atoms whose registers it must be in when the op is reached. `depth`: of loops round the op. `early`:
    the time at which moves before it write."""

    op: Operation
    ties: list[tuple[int, Atoms]]
    depth: int
    early: int


class _Lifetimes:
    """Numbers the instructions of a kernel and finds, for every atom, when it is written and read, and what ties it
    to others."""

    def __init__(self, kernel: KernelOp) -> None:
        self.atoms: dict[SSAValue, Atoms] = {}
        self.origin: list[tuple[SSAValue, int]] = []
        self.def_time: list[int] = []
        self.def_block: list[int] = []
        self.uses: list[list[tuple[int, int]]] = []
        # Further times at which an atom's register is written, with no read of its own between: see _while.
        self.also_written: dict[int, int] = {}
        # By block: its first time, the block round it, and the time at which it counts as read there what is read
        # within.
        self.block_start: list[int] = []
        self.block_parent: list[int] = []
        self.block_outer: list[int] = []
        self.sites: list[_Site] = []
        self.phis: list[tuple[Atoms, Atoms]] = []
        self.materialised: set[SSAValue] = set()
        self._time = 0
        self._depth = 0
        self._block = -1
        self._walk(kernel.body.block)

    # -- atoms

    def define(self, value: SSAValue, time: int, block: int | None = None, step: int = 0, group: int = 1) -> Atoms:
        """New atoms for a value, register i written at `time`, plus `step` for each `group` of registers before it."""
        kind = value.type
        if not isinstance(kind, RegType):
            owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
            raise TeselaError.at(owner, f"{kind} is no register: '{owner.name if owner else 'the block'}' is not of the ptx level", "lower the kernel to it first (tile-to-ptx)")
        first = len(self.origin)
        atoms = tuple(range(first, first + kind.count))
        self.atoms[value] = atoms
        self.origin += [(value, i) for i in range(kind.count)]
        self.def_time += [time + step * (i // group) for i in range(kind.count)] if step else [time] * kind.count
        self.def_block += [self._block if block is None else block] * kind.count
        self.uses += [[] for _ in atoms]
        return atoms

    def use(self, value: SSAValue, time: int, step: int = 0, group: int = 1) -> None:
        """Record that a value is read, register i at `time` plus `step` for each `group` before it. The value needs
        registers."""
        if isinstance(value.owner, ConstantOp):
            self.materialised.add(value)
        uses, block = self.uses, self._block
        if step:
            for i, atom in enumerate(self.atoms[value]):
                uses[atom].append((time + step * (i // group), block))
        else:
            event = (time, block)
            for atom in self.atoms[value]:
                uses[atom].append(event)

    def use_unless_immediate(self, value: SSAValue, time: int, step: int = 0, group: int = 1) -> None:
        if not isinstance(value.owner, ConstantOp):
            self.use(value, time, step, group)

    def spans(self, atom: int) -> list[Span]:
        """When an atom is live: from its definition to its last read in each block, in order."""
        def_block, def_time = self.def_block[atom], self.def_time[atom]
        times = [time for time, block in self.uses[atom] if block == def_block]
        if len(times) == len(self.uses[atom]) and atom not in self.also_written:
            return [(def_time, max(times, default=def_time))]
        last: dict[int, int] = {def_block: def_time}
        for time, block in self.uses[atom]:
            while last.get(block, -1) < time:
                last[block] = time
                if block == def_block:
                    break
                time, block = self.block_outer[block], self.block_parent[block]
        spans = [(def_time if block == def_block else self.block_start[block], end) for block, end in last.items()]
        if atom in self.also_written:
            spans.append((self.also_written[atom], self.also_written[atom]))
        spans.sort()
        return spans

    # -- the walk

    def _tick(self, count: int = 1) -> int:
        """The reading time of the next of `count` new instructions."""
        time = self._time
        self._time += 2 * count
        return time

    def _open(self) -> int:
        """Begin a block inside the current one."""
        self.block_start.append(self._tick())
        self.block_parent.append(self._block)
        self.block_outer.append(-1)
        self._block = len(self.block_start) - 1
        return self._block

    def _close(self, outer: int | None = None) -> None:
        block, self._block = self._block, self.block_parent[self._block]
        if outer is not None:
            self.block_outer[block] = outer

    def _walk(self, block: Block) -> None:
        self._open()
        for op in block.ops:
            self._visit(op)
        self._close()

    def _visit(self, op: Operation) -> None:
        handler = _VISIT.get(type(op))
        if handler is not None:
            handler(self, op)
            return
        # ptx.constant, ptx.special, ptx.param and addresses: one write.
        time = self._tick()
        for result in op.results:
            self.define(result, time + 1)

    def _pick(self, op: PickOp) -> None:
        if isinstance(op.source.owner, ConstantOp):
            self.materialised.add(op.source)
        source = self.atoms[op.source]
        self.atoms[op.res] = tuple([source[i] for i in op.indices.get_values()])  # type: ignore[misc]

    def _concat(self, op: ConcatOp) -> None:
        atoms: list[int] = []
        for part in op.parts:
            if isinstance(part.owner, ConstantOp):
                self.materialised.add(part)
            atoms += self.atoms[part]
        self.atoms[op.res] = tuple(atoms)

    def _inst(self, op: InstOp) -> None:
        form, n = op.form()
        args, guard, init = op.segments()
        early = self._tick() + 1
        base = self._tick(n)
        last = base + 2 * (n - 1)
        wanted_results, wanted, _ = split_form(form)
        # An operand with the registers of one instruction is read by all n, the last time by the last.
        for value, operand in zip(args, wanted):
            if isinstance(value.owner, ConstantOp):
                if operand.role == "s" and operand.count == 0:
                    continue  # an immediate
                self.materialised.add(value)
            if n == 1 or len(self.atoms[value]) == operand.registers:
                self.use(value, last)
            else:
                self.use(value, base, 2, operand.registers)
        if guard is not None:
            if len(self.atoms[guard]) > 1:
                self.use(guard, base, 2)
            else:
                self.use(guard, last)
        results = [self.define(v, base + 1, step=2, group=w.registers) for v, w in zip(op.results, wanted_results)]
        ties = []
        if wanted_results and wanted_results[0].role == "io":
            # Of the instructions that work in place, wgmma, the first operand becomes the only result.
            if init and init[0] is not args[0]:
                raise TeselaError.at(
                    op,
                    f"the guarded {op.opcode.data} works in place, but its 'else' is another value than its operand 1",
                    "give the same value to both: where the guard is false the registers stay as they are",
                )
            ties.append((0, results[0]))
        in_place, first = bool(ties), len(args) + (guard is not None)
        for place, value in enumerate(init):
            if not in_place:
                self.use_unless_immediate(value, base, 2, wanted_results[place].registers)
            ties.append((first + place, results[place]))
        if ties:
            self.sites.append(_Site(op, ties, self._depth, early))

    def _wait(self, op: WaitParityOp) -> None:
        time = self._tick()
        self.use(op.barrier, time)
        self.use_unless_immediate(op.phase, time)

    def _yields(self, op: Operation, values: Sequence[SSAValue], first: int, targets: Sequence[Atoms]) -> None:
        """A place where control flow hands values on to `targets`."""
        time = self._tick()
        for value in values:
            self.use_unless_immediate(value, time)
        ties = [(first + index, target) for index, target in enumerate(targets)]
        if ties:
            self.sites.append(_Site(op, ties, self._depth, time + 1))

    def _for(self, op: ForOp) -> None:
        body = op.body.block
        # The targets of the entry's copies are numbered inside the loop; the site is filled in once they are.
        entry_time = self._tick()
        for value in (op.lower, *op.init):
            self.use_unless_immediate(value, entry_time)
        entry = _Site(op, [], self._depth, entry_time + 1)
        self.sites.append(entry)
        self._depth += 1
        block = self._open()
        targets = [self.define(argument, self.block_start[block] + 1) for argument in body.args]
        for inner in body.ops:
            if isinstance(inner, YieldOp):
                self._yields(inner, inner.args, 0, targets[1:])
            else:
                self._visit(inner)
        # The back-edge: the counter moves on and is tested.
        edge = self._tick()
        self.use(body.args[0], edge)
        self.use_unless_immediate(op.upper, edge)
        self.use_unless_immediate(op.step, edge)
        end = self._tick()
        self._close(end)
        self._depth -= 1
        entry.ties = [(0, targets[0]), *((3 + index, target) for index, target in enumerate(targets[1:]))]
        results = [self.define(result, end + 1) for result in op.res]
        self.phis += zip(targets[1:], results)

    def _if(self, op: IfOp) -> None:
        start = self._tick()
        self.use(op.condition, start)
        open_sites: list[tuple[YieldOp, int]] = []
        for region in (op.then_region, op.else_region):
            if not region.blocks:
                continue
            self._open()
            for inner in region.block.ops:
                if isinstance(inner, YieldOp):
                    time = self._tick()
                    for value in inner.operands:
                        self.use_unless_immediate(value, time)
                    open_sites.append((inner, time + 1))
                else:
                    self._visit(inner)
            self._close(start)
        end = self._tick()
        results = [self.define(result, end + 1) for result in op.res]
        if results:
            ties = list(enumerate(results))
            self.sites += [_Site(inner, list(ties), self._depth, early) for inner, early in open_sites]

    def _while(self, op: WhileOp) -> None:
        entry_time = self._tick()
        for value in op.init:
            self.use_unless_immediate(value, entry_time)
        entry = _Site(op, [], self._depth, entry_time + 1)
        self.sites.append(entry)
        self._depth += 1
        before = self._open()
        carried = [self.define(argument, self.block_start[before] + 1) for argument in op.before.block.args]
        entry.ties = list(enumerate(carried))
        condition = op.before.block.last_op
        assert isinstance(condition, ConditionOp)
        for inner in op.before.block.ops:
            if inner is not condition:
                self._visit(inner)
        # The values are handed on before the branch reads the condition, so their registers are written earlier than
        # that.
        handed_on = self._tick()
        for value in condition.args:
            self.use_unless_immediate(value, handed_on)
        self.use(condition.condition, self._tick())
        self._close()
        after = self._open()
        arguments = [self.define(argument, self.block_start[after] + 1) for argument in op.after.block.args]
        ties = [(1 + index, target) for index, target in enumerate(arguments)]
        self.sites.append(_Site(condition, ties, self._depth, handed_on + 1))
        self.also_written |= {atom: handed_on + 1 for target in arguments for atom in target}
        for inner in op.after.block.ops:
            if isinstance(inner, YieldOp):
                self._yields(inner, inner.args, 0, carried)
            else:
                self._visit(inner)
        end = self._tick()
        self._close(end)
        self.block_outer[before] = end
        self._depth -= 1
        results = [self.define(result, end + 1) for result in op.res]
        self.phis += zip(arguments, results)


_VISIT = {
    PickOp: _Lifetimes._pick,
    ConcatOp: _Lifetimes._concat,
    InstOp: _Lifetimes._inst,
    WaitParityOp: _Lifetimes._wait,
    ForOp: _Lifetimes._for,
    IfOp: _Lifetimes._if,
    WhileOp: _Lifetimes._while,
}


class _Coalescing:
    """Which atoms share a register: a union-find structure that knows the lifetimes of each set."""

    def __init__(self, lifetimes: _Lifetimes) -> None:
        self.lifetimes = lifetimes
        self.parent = list(range(len(lifetimes.origin)))
        self._spans: dict[int, list[Span]] = {}
        for arguments, results in lifetimes.phis:
            # A loop leaves its argument in place as the result.
            for argument, result in zip(arguments, results):
                self._join(argument, result)
        instructions = [site for site in lifetimes.sites if isinstance(site.op, InstOp)]
        edges = [site for site in lifetimes.sites if not isinstance(site.op, InstOp)]
        for site in instructions:
            self._keep_ties(site)
        for site in sorted(edges, key=lambda site: -site.depth):
            self._keep_ties(site)

    def root(self, atom: int) -> int:
        """The atom that stands for the register of `atom`."""
        parent = self.parent
        while parent[atom] != atom:
            parent[atom] = parent[parent[atom]]
            atom = parent[atom]
        return atom

    def fresh(self, like: int | None = None) -> int:
        """A new atom, in the register of `like` or in a register of its own."""
        atom = len(self.parent)
        self.parent.append(atom if like is None else self.root(like))
        return atom

    def spans(self, root: int) -> list[Span]:
        found = self._spans.get(root)
        if found is None:
            own = self.lifetimes.spans(root)
            found = own[:1]  # in order, but those that meet are not one yet
            for span in own[1:]:
                _add_span(found, span)
            self._spans[root] = found
        return found

    def _keep_ties(self, site: _Site) -> None:
        atoms = self.lifetimes.atoms
        for index, target in site.ties:
            value = site.op.operands[index]
            if isinstance(value.owner, ConstantOp):
                failed: Iterable[int] = target
            else:
                failed = [want for have, want in zip(atoms[value], target) if not self._try_join(have, want)]
            if isinstance(site.op, InstOp):
                # The move that stands in for the tie writes the result's register before the instruction reads its
                # operands.
                for atom in failed:
                    _add_span(self.spans(self.root(atom)), (site.early, self.lifetimes.def_time[atom]))

    def _try_join(self, a: int, b: int) -> bool:
        a, b = self.root(a), self.root(b)
        if a == b:
            return True
        spans, others = self.spans(a), self.spans(b)
        if _overlap(spans, others):
            return False
        self._merge(a, b, spans, others)
        return True

    def _join(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self._merge(a, b, self.spans(a), self.spans(b))

    def _merge(self, a: int, b: int, spans: list[Span], added: list[Span]) -> None:
        """Makes one register of two roots, whose lives are given."""
        if len(spans) < len(added):
            spans, added = added, spans
        for span in added:
            _add_span(spans, span)
        self._spans[a] = spans
        self.parent[b] = a


def _add_span(spans: list[Span], span: Span) -> None:
    """Add a span to others that are ordered and apart from each other, which they stay: what meets the new one becomes one with it. A
    register that a thousand instructions in a row work on so keeps a single span."""
    start, end = span
    if spans[-1][1] < start - 1:
        spans.append(span)
        return
    first = bisect_left(spans, (start,))
    if first and spans[first - 1][1] >= start - 1:
        first -= 1
        start = spans[first][0]
    after = first
    while after < len(spans) and spans[after][0] <= end + 1:
        end = max(end, spans[after][1])
        after += 1
    spans[first:after] = [(start, end)]


def _overlap(first: list[Span], second: list[Span]) -> bool:
    """Whether two lists of spans (ends included), each ordered and apart from each other, have a time in common."""
    if first[0][0] > second[-1][1] or second[0][0] > first[-1][1]:
        return False
    if len(first) > len(second):
        first, second = second, first
    for start, end in first:
        before = bisect_left(second, (end + 1,))  # those that begin by `end`; the last of them ends last
        if before and second[before - 1][1] >= start:
            return True
    return False


def _insert_moves(site: _Site, lifetimes: _Lifetimes, registers: _Coalescing) -> None:
    """Put moves before the op of a site so that each tied operand is in the registers it must be in."""
    root, atoms, op = registers.root, lifetimes.atoms, site.op
    copies: dict[int, int] = {}  # register to be written -> atom
    constants: dict[int, SSAValue] = {}
    for index, target in site.ties:
        value = op.operands[index]
        if isinstance(value.owner, ConstantOp):
            constants |= {root(want): value for want in target}
            continue
        for have, want in zip(atoms[value], target):
            if root(have) != root(want):
                copies[root(want)] = have
    if not copies and not constants:
        return
    before = op.prev_op
    builder = _MoveBuilder(op, lifetimes, registers)
    moved = builder.parallel_copy(copies)
    moved |= builder.load_constants(constants)
    if isinstance(op, InstOp) and op.opcode.data.startswith("wgmma.mma_async"):
        _fence_again(op, before)
    for index, target in site.ties:
        if any(root(want) in moved for want in target):
            value = op.operands[index]
            kept = atoms[value]
            wanted = [moved.get(root(want)) for want in target]
            op.operands[index] = builder.gather([new if new is not None else kept[i] for i, new in enumerate(wanted)])


def _fence_again(op: InstOp, before: Operation | None) -> None:
    """Moves were put before a wgmma: wgmma.fence must come after them, since they write registers that it uses (PTX ISA 9.0 §9.7.15.7.1).
    `before`: the op that came before the moves."""
    while isinstance(before, ConstantOp | PickOp | ConcatOp):
        before = before.prev_op
    block = op.parent
    assert block is not None
    if isinstance(before, InstOp) and before.opcode.data.startswith("wgmma.fence"):
        before.detach()
        fence = before
    else:
        fence = InstOp.make("wgmma.fence.sync.aligned", [], [])
        fence.location = op.location
    block.insert_op_before(fence, op)


class _MoveBuilder:
    """Makes move ops, and the picks and concats that gather their operands, before an op."""

    def __init__(self, before: Operation, lifetimes: _Lifetimes, registers: _Coalescing) -> None:
        self.before, self.lifetimes, self.registers = before, lifetimes, registers
        block = before.parent
        assert block is not None
        self.block = block

    def _insert(self, op: Operation) -> None:
        op.location = self.before.location
        self.block.insert_op_before(op, self.before)

    def class_of(self, atom: int) -> str:
        kind = self.lifetimes.origin[atom][0].type
        assert isinstance(kind, RegType)
        return kind.cls

    def move(self, source: SSAValue, cls: str, targets: Sequence[int | None]) -> Atoms:
        """One op that moves `source` to the registers of `targets` (None: new ones), in this order."""
        op = InstOp.make(f"mov.{cls}", [source], [reg(cls, len(targets))])
        self._insert(op)
        result = op.res[0]
        atoms = tuple([self.registers.fresh(target) for target in targets])
        self.lifetimes.origin += [(result, i) for i in range(len(targets))]
        self.lifetimes.atoms[result] = atoms
        return atoms

    def gather(self, atoms: Sequence[int]) -> SSAValue:
        """A value that consists of these atoms."""
        parts: list[tuple[SSAValue, list[int]]] = []
        for atom in atoms:
            value, index = self.lifetimes.origin[atom]
            if parts and parts[-1][0] is value:
                parts[-1][1].append(index)
            else:
                parts.append((value, [index]))
        values = [self._pick(value, indices) for value, indices in parts]
        if len(values) == 1:
            return values[0]
        op = ConcatOp.make(values)
        self._insert(op)
        self.lifetimes.atoms[op.res] = tuple(atoms)
        return op.res

    def _pick(self, value: SSAValue, indices: list[int]) -> SSAValue:
        atoms = self.lifetimes.atoms[value]
        if indices == list(range(len(atoms))):
            return value
        op = PickOp.make(value, indices)
        self._insert(op)
        self.lifetimes.atoms[op.res] = tuple([atoms[i] for i in indices])
        return op.res

    def parallel_copy(self, copies: dict[int, int]) -> dict[int, int]:
        """Moves that copy each atom to its register as if all at once; gives the new atom in each register."""
        root = self.registers.root
        order, saved = _sequence({target: root(source) for target, source in copies.items()})
        by_register = {root(source): source for source in copies.values()}
        temporaries: dict[int, int] = {}
        for cls, group in self._by_class(saved, saved):
            sources = [by_register[register] for register in group]
            temporaries |= zip(group, self.move(self.gather(sources), cls, [None] * len(group)))
        moved: dict[int, int] = {}
        steps = {target: temporaries[source] if from_saved else copies[target] for target, source, from_saved in order}
        for cls, group in self._by_class(list(steps), list(steps)):
            moved |= zip(group, self.move(self.gather([steps[target] for target in group]), cls, group))
        return moved

    def load_constants(self, constants: dict[int, SSAValue]) -> dict[int, int]:
        """Moves of immediates to registers, one op for each constant; gives the new atom in each register."""
        targets: dict[SSAValue, list[int]] = {}
        for register, constant in constants.items():
            targets.setdefault(constant, []).append(register)
        moved: dict[int, int] = {}
        for constant, group in targets.items():
            moved |= zip(group, self.move(constant, self.class_of(group[0]), group))
        return moved

    def _by_class(self, registers: Sequence[int], items: Sequence[int]) -> list[tuple[str, list[int]]]:
        groups: dict[str, list[int]] = {}
        for register, item in zip(registers, items):
            groups.setdefault(self.class_of(register), []).append(item)
        return list(groups.items())


def _sequence(copies: dict[int, int]) -> tuple[list[tuple[int, int, bool]], list[int]]:
    """A parallel copy, target -> source, in an order in which nothing is overwritten before it is read.

    Returns (target, source, whether to read the source from its saved value) in order, and the registers to be saved
    first, one for each cycle.

    >>> _sequence({1: 2, 2: 3})
    ([(1, 2, False), (2, 3, False)], [])
    >>> _sequence({1: 2, 2: 1, 3: 1})
    ([(3, 1, False), (1, 2, False), (2, 1, True)], [1])
    """
    readers: dict[int, int] = {}
    for source in copies.values():
        readers[source] = readers.get(source, 0) + 1
    pending = dict(copies)
    ready = [target for target in pending if not readers.get(target)]
    order: list[tuple[int, int, bool]] = []
    saved: list[int] = []
    while pending:
        if not ready:
            # All that is left are cycles: save one register, after which it may be overwritten.
            register = next(iter(pending))
            saved.append(register)
            readers[register] = 0
            ready.append(register)
        target = ready.pop()
        source = pending.pop(target)
        order.append((target, source, source in saved))
        if source not in saved:
            readers[source] -= 1
            if not readers[source] and source in pending:
                ready.append(source)
    return order, saved


class _Naming:
    """Numbers the registers of each class in program order and writes the attributes."""

    def __init__(self, lifetimes: _Lifetimes, registers: _Coalescing) -> None:
        self.lifetimes, self.registers = lifetimes, registers
        self.names: dict[int, str] = {}
        self.next = dict.fromkeys(PREFIX, 0)

    def _new(self, cls: str) -> str:
        number = self.next[cls]
        self.next[cls] = number + 1
        return f"{PREFIX[cls]}{number}"

    def _names(self, value: SSAValue) -> tuple[str, ...]:
        names, parent, root = self.names, self.registers.parent, self.registers.root
        kind = value.type
        assert isinstance(kind, RegType)
        result = []
        for atom in self.lifetimes.atoms[value]:
            register = atom if parent[atom] == atom else root(atom)
            name = names.get(register)
            if name is None:
                name = names[register] = self._new(kind.cls)
            result.append(name)
        return tuple(result)

    def name_block(self, block: Block) -> None:
        """Name everything in a block and in the regions of its ops."""
        for op in block.ops:
            if isinstance(op, ConstantOp) and op.res not in self.lifetimes.materialised:
                op.attributes.pop("regs", None)
                continue
            if isinstance(op, ForOp | WaitParityOp):
                op.attributes["temps"] = RegsAttr(((self._new("pred"),),))
            if op.regions:
                self._name_regions(op, op.regions)
            if op.results:
                op.attributes["regs"] = RegsAttr(tuple([self._names(result) for result in op.results]))

    def _name_regions(self, op: Operation, regions: Sequence[Region]) -> None:
        blocks = [region.block for region in regions if region.blocks]
        arguments = [self._names(argument) for block in blocks for argument in block.args]
        if arguments:
            op.attributes["arg_regs"] = RegsAttr(tuple(arguments))
        for block in blocks:
            self.name_block(block)
