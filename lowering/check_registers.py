"""A checker of register assignment: it executes a kernel's structured IR symbolically and proves that each use reads
what it should.

In the spirit of regalloc2's checker: nothing is shared with `assign_registers` but the attributes it leaves (`regs`,
`arg_regs`, `temps`). The state maps each register to the *symbol* it holds, a definition (value, index), or to
nothing where paths disagree. An instruction is right if the registers of each operand hold just the symbols that the
operand names; then it writes its results' symbols. One op that stands for n instructions is executed as n, in order.
Control flow hands values on by name only: where a value flows into a loop's argument, an `if`'s result or an
instruction's in-place operand, it must lie in that very register. Loops are repeated until the state at their top no
longer changes; the state only ever loses symbols, so that takes few rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from ..dialects.diagnostics import Emitter
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
    WaitParityOp,
    WhileOp,
    YieldOp,
    split_form,
)
from ..passes.base import Pass, PassContext

Symbol = tuple[SSAValue, int]
State = dict[str, Symbol]
Names = tuple[str, ...]


@dataclass
class CheckRegisters(Pass):
    """Prove the register assignment of every kernel of a module; see the module's docstring."""

    name = "check-registers"

    def run(self, module: ModuleOp, context: PassContext) -> None:
        for op in module.body.block.ops:
            if isinstance(op, KernelOp):
                check_registers(op)


def check_registers(kernel: KernelOp) -> None:
    """Raise TeselaError with every use that reads a register which does not, on all paths, hold its value."""
    checker = _Checker()
    checker.block(kernel.body.block, {})
    checker.emitter.raise_if_errors()


def _attribute(op: Operation, name: str) -> tuple[Names, ...]:
    found = op.attributes.get(name)
    return found.data if isinstance(found, RegsAttr) else ()


def _meet(a: State, b: State) -> State:
    """What both states agree on."""
    return {name: symbol for name, symbol in a.items() if b.get(name) == symbol}


class _Checker:
    def __init__(self) -> None:
        self.emitter = Emitter()
        self.quiet = 0  # rounds of a loop that are not its last report nothing
        self.names: dict[SSAValue, Names] = {}

    # -- reading and writing

    def error(self, op: Operation, message: str) -> None:
        if not self.quiet:
            self.emitter.error(op, message)

    def symbols(self, value: SSAValue) -> Iterator[Symbol]:
        """The definitions behind a value, through the ops that only rename."""
        owner = value.owner
        if isinstance(owner, PickOp):
            source = list(self.symbols(owner.source))
            yield from (source[index] for index in owner.indices.get_values())  # type: ignore[misc]
        elif isinstance(owner, ConcatOp):
            for part in owner.parts:
                yield from self.symbols(part)
        else:
            count = value.type.count  # type: ignore[attr-defined]
            yield from ((value, index) for index in range(count))

    def bind(self, op: Operation, values: Sequence[SSAValue], names: tuple[Names, ...]) -> None:
        """Take the names that an attribute gives to values."""
        if len(values) != len(names) or any(len(n) != value.type.count for n, value in zip(names, values)):  # type: ignore[attr-defined]
            self.error(
                op, f"'{op.name}' names registers for {len(names)} values and has {len(values)}, or of other counts"
            )
            names = tuple(("",) * value.type.count for value in values)  # type: ignore[attr-defined]
        self.names |= zip(values, names)

    def read(self, op: Operation, value: SSAValue, state: State, at: Sequence[int] | None = None) -> None:
        """The registers of a value (those at the given indices) must hold it."""
        symbols = list(self.symbols(value))
        names = self.names.get(value, ())
        for index in range(len(symbols)) if at is None else at:
            held = state.get(names[index])
            if held != symbols[index]:
                holds = "nothing known" if held is None else f"register {held[1]} of %{held[0].name_hint or '?'}"
                wanted, number = symbols[index]
                self.error(
                    op,
                    f"'{op.name}' reads register {number} of %{wanted.name_hint or '?'} in {names[index]}, which holds {holds}",
                )

    def read_scalar(self, op: Operation, value: SSAValue, state: State) -> None:
        """A register, where a constant would be printed as an immediate."""
        if not isinstance(value.owner, ConstantOp):
            self.read(op, value, state)

    def write(self, value: SSAValue, state: State, at: Sequence[int] | None = None) -> None:
        names = self.names[value]
        for index in range(len(names)) if at is None else at:
            state[names[index]] = (value, index)

    def hand_on(self, op: Operation, value: SSAValue, target: SSAValue, state: State) -> None:
        """A value becomes another by name: it must lie in the other's registers."""
        if value not in self.names or self.names[value] != self.names[target]:
            self.error(op, f"'{op.name}' hands on a value that is not in the registers of the one it becomes")
        else:
            self.read(op, value, state)

    # -- ops

    def block(self, block: Block, state: State) -> None:
        """Execute a block, changing the state; its terminator is the caller's."""
        for op in block.ops:
            if isinstance(op, YieldOp | ConditionOp):
                continue
            if isinstance(op, InstOp):
                self.inst(op, state)
            elif isinstance(op, ForOp):
                self.for_(op, state)
            elif isinstance(op, IfOp):
                self.if_(op, state)
            elif isinstance(op, WhileOp):
                self.while_(op, state)
            elif isinstance(op, WaitParityOp):
                self.read(op, op.barrier, state)
                self.read_scalar(op, op.phase, state)
                self.clobber(op, state)
            elif isinstance(op, PickOp | ConcatOp):
                self.bind(op, op.results, _attribute(op, "regs"))
            elif not isinstance(op, ConstantOp) or "regs" in op.attributes:
                self.bind(op, op.results, _attribute(op, "regs"))
                for result in op.results:
                    self.write(result, state)

    def clobber(self, op: Operation, state: State) -> None:
        for names in _attribute(op, "temps"):
            for name in names:
                state.pop(name, None)

    def inst(self, op: InstOp, state: State) -> None:
        form, n = op.form()
        results, sources, _ = split_form(form)
        self.bind(op, op.res, _attribute(op, "regs"))
        in_place = [operand for operand in results if operand.role == "io"]
        for index, operand in enumerate(sources):
            if operand.role == "io":
                target = op.res[results.index(in_place.pop(0))]
                if self.names.get(op.args[index]) != self.names[target]:
                    self.error(
                        op, f"operand {index + 1} of {op.opcode.data} and the result it becomes differ in registers"
                    )
        for value, target in zip(op.init, op.res):
            if self.names.get(value) != self.names[target]:
                self.error(op, f"a result of the guarded {op.opcode.data} and its 'else' differ in registers")
        for k in range(n):
            for value, operand in zip(op.args, sources):
                if operand.role == "s" and isinstance(value.owner, ConstantOp):
                    continue  # an immediate
                self.read_part(op, value, operand.registers, k, state)
            for value in op.guard:
                self.read_part(op, value, 1, k, state)
            for value, operand in zip(op.init, results):
                self.read_part(op, value, operand.registers, k, state)
            for value, operand in zip(op.res, results):
                self.write(value, state, range(k * operand.registers, (k + 1) * operand.registers))

    def read_part(self, op: Operation, value: SSAValue, size: int, k: int, state: State) -> None:
        """What the k-th of n instructions reads of an operand: its own part, or all if there is only one."""
        count = value.type.count  # type: ignore[attr-defined]
        self.read(op, value, state, range(size) if count == size else range(k * size, (k + 1) * size))

    def for_(self, op: ForOp, state: State) -> None:
        arguments = op.body.block.args
        self.bind(op, arguments, _attribute(op, "arg_regs"))
        self.bind(op, op.res, _attribute(op, "regs"))
        for value, argument in zip((op.lower, *op.init), arguments):
            self.hand_on(op, value, argument, state)
        for argument in arguments:
            self.write(argument, state)

        def test(current: State) -> None:
            self.read_scalar(op, op.upper, current)
            self.clobber(op, current)

        def trip(current: State) -> None:
            self.block(op.body.block, current)
            last = op.body.block.last_op
            assert isinstance(last, YieldOp)
            for value, argument in zip(last.args, arguments[1:]):
                self.hand_on(last, value, argument, current)
            self.read(op, arguments[0], current)
            self.read_scalar(op, op.step, current)
            for argument in arguments:
                self.write(argument, current)
            test(current)

        test(state)
        self.repeat(trip, state)
        for result, argument in zip(op.res, arguments[1:]):
            self.hand_on(op, argument, result, state)
            self.write(result, state)

    def repeat(self, trip: Callable[[State], None], state: State) -> None:
        """Run `trip` from the state at a loop's top until it no longer loses symbols; then once more, reporting."""
        self.quiet += 1
        while True:
            after = dict(state)
            trip(after)
            met = _meet(state, after)
            if met == state:
                break
            state.clear()
            state.update(met)
        self.quiet -= 1
        trip(dict(state))

    def if_(self, op: IfOp, state: State) -> None:
        self.read(op, op.condition, state)
        self.bind(op, op.res, _attribute(op, "regs"))
        ends = []
        for region in (op.then_region, op.else_region):
            current = dict(state)
            if region.blocks:
                self.block(region.block, current)
                last = region.block.last_op
                assert isinstance(last, YieldOp)
                for value, result in zip(last.args, op.res):
                    self.hand_on(last, value, result, current)
            for result in op.res:
                self.write(result, current)
            ends.append(current)
        state.clear()
        state.update(_meet(*ends))

    def while_(self, op: WhileOp, state: State) -> None:
        carried, arguments = op.before.block.args, op.after.block.args
        self.bind(op, (*carried, *arguments), _attribute(op, "arg_regs"))
        self.bind(op, op.res, _attribute(op, "regs"))
        for value, argument in zip(op.init, carried):
            self.hand_on(op, value, argument, state)
        for argument in carried:
            self.write(argument, state)
        condition = op.before.block.last_op
        assert isinstance(condition, ConditionOp)

        def first_half(current: State) -> None:
            self.block(op.before.block, current)
            self.read(condition, condition.condition, current)
            for value, argument in zip(condition.args, arguments):
                self.hand_on(condition, value, argument, current)
            for argument in arguments:
                self.write(argument, current)

        def trip(current: State) -> None:
            first_half(current)
            self.block(op.after.block, current)
            last = op.after.block.last_op
            assert isinstance(last, YieldOp)
            for value, argument in zip(last.args, carried):
                self.hand_on(last, value, argument, current)
            for argument in carried:
                self.write(argument, current)

        self.repeat(trip, state)
        self.quiet += 1  # reported by `trip` already
        first_half(state)
        self.quiet -= 1
        for result, argument in zip(op.res, arguments):
            self.hand_on(op, argument, result, state)
            self.write(result, state)
