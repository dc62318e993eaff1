"""Emission: from ptx kernels with assigned registers to a flat Program, and to PTX text.

Structured control becomes labels and branches; an op that stands for n instructions becomes n lines. A loop is tested
at its top and again at its end, so that a trip costs one branch:

      setp.ge.s32 %p0, %r1, %r0;         // not if the bounds are constants that leave no doubt
      @%p0 bra $END0;
    $LOOP0:
      .pragma "nounroll";                // ptxas unrolls loops of unknown trip count otherwise
      …
      add.s32 %r1, %r1, 1;
      setp.lt.s32 %p0, %r1, %r0;
      @%p0 bra $LOOP0;
    $END0:

An `if` whose branches hold a few unguarded instructions becomes guards instead of branches. A `ptx.wait_parity` is a
loop of two instructions. The counter of a loop must not overflow: upper bound plus step stay below 2^31 (2^63 for
b64).

Moves between registers are all in the IR already (`assign_registers`), so nothing here decides anything about
registers, but for constants: those without registers print as immediates, the others as a move where they are
defined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from xdsl.dialects.builtin import FileLineColLoc, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue

from ..dialects.diagnostics import TeselaError, location_of
from ..dialects.launch_plan import LaunchPlan, Param
from ..dialects.ptx import (
    ConcatOp,
    ConditionOp,
    ConstantOp,
    ForOp,
    IfOp,
    InstOp,
    KernelOp,
    ParamAddressOp,
    ParamOp,
    PickOp,
    RegsAttr,
    RegType,
    SharedAddressOp,
    SpecialOp,
    WaitParityOp,
    WhileOp,
    YieldOp,
)
from ..dialects.ptx_isa import CLASS_OF_TYPE, SPECIAL_REGISTERS, Row, lookup
from ..dialects.ptx_isa import Operand as Form
from ..dialects.ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    Label,
    LabelDef,
    Operand,
    Pair,
    ParamDecl,
    Pragma,
    Program,
    Reg,
    SharedDecl,
    Sink,
    Special,
    Symbol,
    TensorAddr,
    Vec,
)
from ..dialects.ptx_text import print_program
from ..dialects.target import get_target
from .assign_registers import PREFIX

SHARED = SharedDecl("smem", 0, 1024, extern=True)
"""The dynamic shared memory, aligned for TMA's widest swizzle."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
"""What may name an entry or a parameter (PTX ISA 9.0 §4.4); ptxas reads ASCII only."""

MAX_GUARDED = 2
"""A branch of an `if` with at most so many instructions is guarded instead of branched round."""

SCALAR_TYPES = {
    "index": "b64",
    "i64": "b64",
    "f64": "b64",
    "i32": "b32",
    "f32": "b32",
    "i16": "b16",
    "f16": "b16",
    "bf16": "b16",
}
SCALAR_TYPES |= {"i8": "b8", "i1": "b8", "ui8": "b8", "f8E4M3FN": "b8", "f8E5M2": "b8"}
"""The parameter type of a scalar argument (launch_plan.Param, 'scalar')."""


def emit(module: ModuleOp) -> Program:
    """The Program of all `ptx.kernel`s of a module, which must share a target. Raises TeselaError if there is none,
    if targets differ, or if registers are not assigned."""
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    if not kernels:
        raise TeselaError.at(module, "the module has no ptx.kernel", "lower the module to the ptx level first")
    target = get_target(kernels[0].target.data)
    program = Program(target.ptx_version, target.name)
    for kernel in kernels:
        if kernel.target.data != target.name:
            raise TeselaError.at(kernel, f"kernels for {target.name} and {kernel.target.data} in one module")
        program.entries.append(_KernelEmitter(kernel, program).emit())
    return program


def emit_text(module: ModuleOp) -> str:
    """The module as PTX text."""
    return print_program(emit(module))


@cache
def _reg(name: str) -> Reg:
    return Reg(name)


def _signed(value: int, cls: str) -> int:
    """A constant's bit pattern as a signed number, for comparing bounds."""
    bits = {"b16": 16, "b32": 32, "b64": 64}[cls]
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_FLOAT_KIND = {"f32": "f32", "f64": "f64"}


@cache
def _row_facts(opcode: str) -> tuple[Row, str]:
    """An opcode's row, and how it wants its immediates spelt ('int', 'f32' or 'f64')."""
    row = lookup(opcode)
    return row, _FLOAT_KIND.get(row.args.get("type", row.args.get("from", "")), "int")


class _KernelEmitter:
    """Flattens one kernel. `guard` is set while a branch is written as guarded instructions."""

    def __init__(self, kernel: KernelOp, program: Program) -> None:
        self.kernel, self.program = kernel, program
        self.entry = Entry(kernel.sym_name.data)
        self.body = self.entry.body
        self.names: dict[SSAValue, tuple[str, ...]] = {}
        self.labels = 0
        self.guard: tuple[str, bool] | None = None
        self.loc: tuple[int, int, int] | None = None
        self.locations: dict[int, tuple[int, int, int] | None] = {}
        self.uses_shared = kernel.shared.value.data > 0
        self.sets_registers = False

    def emit(self) -> Entry:
        kernel, entry = self.kernel, self.entry
        plan = self.plan
        entry.params = _params(kernel, plan)
        for name in (entry.name, *(param.name for param in entry.params)):
            if not _IDENTIFIER.fullmatch(name):
                raise TeselaError.at(
                    kernel, f"'{name}' is no name in PTX", "use letters, digits and underscores of ASCII"
                )
        self.block(kernel.body.block)
        self.put("ret")
        entry.max_threads = (kernel.threads.value.data, 1, 1)
        asked = kernel.attributes.get("min_blocks")
        if isinstance(asked, IntegerAttr):
            entry.min_blocks = asked.value.data
        elif self.sets_registers:
            # Without it ptxas does not know the register count at entry and drops setmaxnreg in small blocks.
            entry.min_blocks = 1
        if plan is not None and plan.cluster != (1, 1, 1):
            entry.cluster = plan.cluster
        if self.uses_shared and SHARED not in self.program.shared:
            self.program.shared.append(SHARED)
        entry.registers = _used_registers(self.body)
        opcodes = {item.opcode for item in self.body if type(item) is Instr}
        self.program.version = max(self.program.version, *(_row_facts(opcode)[0].version for opcode in opcodes))
        return entry

    # -- registers, operands and lines

    def regs(self, value: SSAValue) -> tuple[str, ...]:
        """The names of a value's registers. Raises TeselaError if none were assigned."""
        names = self.names.get(value)
        if names is None:
            raise TeselaError.at(
                value, f"no registers are assigned to %{value.name_hint or '?'}", "run the pass assign-registers first"
            )
        return names

    def bind(self, op: Operation, values: Iterable[SSAValue], attribute: str) -> None:
        found = op.attributes.get(attribute)
        if isinstance(found, RegsAttr):
            self.names.update(zip(values, found.data))

    def temp(self, op: Operation) -> Reg:
        """The predicate that an op was given for itself."""
        found = op.attributes.get("temps")
        if not isinstance(found, RegsAttr):
            raise TeselaError.at(op, f"'{op.name}' has no register for its test", "run the pass assign-registers first")
        return _reg(found.data[0][0])

    def scalar(self, value: SSAValue, kind: str = "int") -> Reg | Imm:
        """A single register, or an immediate for a constant. One that has registers for another use is an immediate here too: its
        lifetime does not count this use, so its registers may hold something else by now."""
        if isinstance(value.owner, ConstantOp):
            return Imm(value.owner.value.value.data, kind)
        return _reg(self.regs(value)[0])

    def put(self, opcode: str, *operands: Operand, guard: str | None = None, negated: bool = False) -> None:
        if guard is None and self.guard is not None:
            guard, negated = self.guard
        self.body.append(Instr(opcode, operands, guard, negated, self.loc))

    def label(self, name: str) -> None:
        self.body.append(LabelDef(name))

    def new_label(self) -> int:
        self.labels += 1
        return self.labels - 1

    def locate(self, op: Operation) -> None:
        """`.loc` of what follows: the op's source position, if it has one."""
        attribute = op.location
        key = id(attribute)
        if key not in self.locations:
            self.locations[key] = self._location(attribute)
        found = self.locations[key]
        if found is not None:
            self.loc = found

    def _location(self, attribute: Any) -> tuple[int, int, int] | None:
        if isinstance(attribute, FileLineColLoc):
            file, line, column = attribute.filename.data, attribute.line.data, attribute.column.data
        else:
            place = location_of(attribute)
            if place is None:
                return None
            file, line, column = place.file, place.line, place.column
        if not file.isascii() or '"' in file:  # ptxas reads ASCII only
            return None
        files = self.program.files
        if file not in files:
            files.append(file)
        return files.index(file) + 1, line, column

    # -- ops

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.locate(op)
            handler = _EMIT.get(type(op))
            if handler is None:
                raise TeselaError.at(op, f"'{op.name}' cannot be written as PTX", "lower it to the ptx dialect first")
            handler(self, op)

    def rename(self, op: PickOp | ConcatOp) -> None:
        self.bind(op, op.results, "regs")

    def constant(self, op: ConstantOp) -> None:
        self.bind(op, op.results, "regs")
        if op.res in self.names:
            self.put(f"mov.{op.res.type.cls}", _reg(self.names[op.res][0]), Imm(op.value.value.data))  # type: ignore[attr-defined]

    def special(self, op: SpecialOp) -> None:
        self.bind(op, op.results, "regs")
        cls = SPECIAL_REGISTERS[op.register.data]
        self.put(f"mov.{cls}", _reg(self.regs(op.res)[0]), Special(op.register.data))

    def param(self, op: ParamOp) -> None:
        self.bind(op, op.results, "regs")
        declared = next((param.type for param in self.entry.params if param.name == op.param.data), None)
        if declared is None:
            raise TeselaError.at(op, f"the kernel's plan has no parameter '{op.param.data}'")
        self.put(f"ld.param.{declared}", _reg(self.regs(op.res)[0]), Addr(Symbol(op.param.data)))

    @property
    def plan(self) -> LaunchPlan | None:
        return self.kernel.plan.data if self.kernel.plan is not None else None

    def param_address(self, op: ParamAddressOp) -> None:
        self.bind(op, op.results, "regs")
        register = _reg(self.regs(op.res)[0])
        self.put("mov.b64", register, Symbol(op.param.data))
        self.put("cvta.param.u64", register, register)

    def shared_address(self, op: SharedAddressOp) -> None:
        self.bind(op, op.results, "regs")
        self.uses_shared = True
        offset = op.offset.value.data
        self.put("mov.b32", _reg(self.regs(op.res)[0]), Symbol(SHARED.name, offset))

    def inst(self, op: InstOp) -> None:
        self.bind(op, op.results, "regs")
        opcode, negated = op.opcode.data, "negated" in op.properties
        row, kind = _row_facts(opcode)
        form, n = op.form()
        args, guard, _ = op.segments()
        columns = self.columns(op, args, form, n, kind)
        if row.meaning == "setmaxnreg":
            self.sets_registers = True
        guards: Sequence[str | None] = [None] * n
        if guard is not None:
            names = self.regs(guard)
            guards = names if len(names) == n else names * n
        elif self.guard is not None:
            guards, negated = [self.guard[0]] * n, self.guard[1]
        loc, append = self.loc, self.body.append
        if not columns:
            for name in guards:
                append(Instr(opcode, (), name, negated, loc))
            return
        for operands, name in zip(zip(*columns), guards):
            append(Instr(opcode, operands, name, negated, loc))

    def columns(
        self, op: InstOp, sources: Sequence[SSAValue], form: Sequence[Form], n: int, kind: str
    ) -> list[list[Operand]]:
        """For each operand of the form, its n occurrences."""
        args, results = iter(sources), iter(op.results)
        imms = iter(op.imms.data) if "imms" in op.properties else iter(())  # type: ignore[union-attr]
        offsets: Sequence[int] = (0,)
        if "offsets" in op.properties:
            offsets = op.offsets.get_values()  # type: ignore[union-attr, assignment]
        if len(offsets) != n:
            offsets = [offsets[0]] * n
        columns: list[list[Operand]] = []
        for operand in form:
            role = operand.role
            if role == "d":
                column = self.grouped(next(results), operand.count, n)
                columns.append([Pair(Sink(), register) for register in column] if operand.after_sink else column)
            elif role == "io":
                source, result = next(args), next(results)
                if self.regs(source) != self.regs(result):
                    raise TeselaError.at(
                        op, f"{op.opcode.data} works in place, but its operand and result differ in registers"
                    )
                columns.append(self.grouped(result, operand.count, n))
            elif role in ("s", "r"):
                columns.append(self.source(next(args), operand, n, kind))
            elif role == "addr":
                bases = self.grouped(next(args), 0, n)
                columns.append([Addr(base, offset) for base, offset in zip(bases, offsets)])  # type: ignore[arg-type]
            elif role == "tma":
                maps, coords = self.grouped(next(args), 0, n), self.grouped(next(args), operand.count, n)
                columns.append([TensorAddr(m, c.items) for m, c in zip(maps, coords)])  # type: ignore[arg-type, union-attr]
            elif role == "sink":
                columns.append([Sink()] * n)
            else:
                columns.append([_immediate(next(imms), role)] * n)
        return columns

    def source(self, value: SSAValue, operand: Form, n: int, kind: str) -> list[Operand]:
        if operand.role == "s" and isinstance(value.owner, ConstantOp):
            wants_float = kind in ("f32", "f64") and CLASS_OF_TYPE[kind] == operand.cls
            bits = value.owner.value.value.data
            if wants_float:
                bits &= (1 << int(kind[1:])) - 1
            return [Imm(bits, kind if wants_float else "int")] * n
        return self.grouped(value, operand.count, n)

    def grouped(self, value: SSAValue, count: int, n: int) -> list[Operand]:
        """A value's registers as n operands of `count` registers in braces (0: one, without braces); one alone serves
        all n."""
        names = self.regs(value)
        if count == 0:
            registers: list[Operand] = [_reg(name) for name in names]
            return registers if len(registers) == n else registers * n
        vectors: list[Operand] = [
            Vec(tuple([_reg(name) for name in names[i : i + count]])) for i in range(0, len(names), count)
        ]
        return vectors if len(vectors) == n else vectors * n

    def for_(self, op: ForOp) -> None:
        body = op.body.block
        self.bind(op, body.args, "arg_regs")
        self.bind(op, op.res, "regs")
        counter = _reg(self.regs(body.args[0])[0])
        kind = op.lower.type
        assert isinstance(kind, RegType)
        suffix = f"s{kind.cls[1:]}"
        upper, step, test = self.scalar(op.upper), self.scalar(op.step), self.temp(op)
        number = self.new_label()
        skippable = not self.surely_runs(op, kind.cls)
        if skippable:
            self.put(f"setp.ge.{suffix}", test, counter, upper)
            self.put("bra", Label(f"END{number}"), guard=test.name)
        self.label(f"LOOP{number}")
        self.body.append(Pragma("nounroll"))
        self.block(body)
        self.locate(op)
        self.put(f"add.{suffix}", counter, counter, step)
        self.put(f"setp.lt.{suffix}", test, counter, upper)
        self.put("bra", Label(f"LOOP{number}"), guard=test.name)
        if skippable:
            self.label(f"END{number}")

    def surely_runs(self, op: ForOp, cls: str) -> bool:
        """Whether both bounds are constants with room for a trip between them."""
        lower, upper = _constant_behind(op.lower), _constant_behind(op.upper)
        return lower is not None and upper is not None and _signed(lower, cls) < _signed(upper, cls)

    def if_(self, op: IfOp) -> None:
        self.bind(op, op.res, "regs")
        condition = self.regs(op.condition)[0]
        branches = [region.block for region in (op.then_region, op.else_region) if region.blocks]
        if self.guard is None and all(self.can_guard(block, condition) for block in branches):
            for block, negated in zip(branches, (False, True)):
                self.guard = (condition, negated)
                self.block(block)
                self.guard = None
            return
        number = self.new_label()
        then, other = (None if _is_empty(block) else block for block in (branches + [Block()])[:2])
        if then is None and other is None:
            return
        skip = f"ENDIF{number}" if then is None or other is None else f"ELSE{number}"
        self.put("bra", Label(skip), guard=condition, negated=then is not None)
        if then is not None:
            self.block(then)
        if then is not None and other is not None:
            self.put("bra", Label(f"ENDIF{number}"))
            self.label(f"ELSE{number}")
        if other is not None:
            self.block(other)
        self.label(f"ENDIF{number}")

    def can_guard(self, block: Block, condition: str) -> bool:
        """Whether a branch is a few instructions without guards that leave the condition's register alone."""
        lines = 0
        for op in block.ops:
            if isinstance(op, YieldOp | PickOp | ConcatOp):
                continue
            if isinstance(op, ConstantOp) and "regs" not in op.attributes:
                continue
            if not isinstance(op, InstOp | ConstantOp | SpecialOp) or isinstance(op, InstOp) and op.guard:
                return False
            if isinstance(op, InstOp) and "convergent" in _row_facts(op.opcode.data)[0].effects:
                return False
            lines += op.repeats() if isinstance(op, InstOp) else 1
            found = op.attributes.get("regs")
            if lines > MAX_GUARDED or isinstance(found, RegsAttr) and any(condition in names for names in found.data):
                return False
        return True

    def while_(self, op: WhileOp) -> None:
        before, after = op.before.block, op.after.block
        self.bind(op, (*before.args, *after.args), "arg_regs")
        self.bind(op, op.res, "regs")
        number = self.new_label()
        condition = before.last_op
        assert isinstance(condition, ConditionOp)
        self.label(f"LOOP{number}")
        self.body.append(Pragma("nounroll"))
        self.block(before)
        holds = self.regs(condition.condition)[0]
        if _is_empty(after):
            self.put("bra", Label(f"LOOP{number}"), guard=holds)
            return
        self.put("bra", Label(f"END{number}"), guard=holds, negated=True)
        self.block(after)
        self.put("bra", Label(f"LOOP{number}"))
        self.label(f"END{number}")

    def wait(self, op: WaitParityOp) -> None:
        number, test = self.new_label(), self.temp(op)
        offset = op.offset.value.data if op.offset is not None else 0
        barrier = Addr(_reg(self.regs(op.barrier)[0]), offset)
        self.label(f"WAIT{number}")
        self.put("mbarrier.try_wait.parity.shared::cta.b64", test, barrier, self.scalar(op.phase))
        self.put("bra", Label(f"WAIT{number}"), guard=test.name, negated=True)

    def terminator(self, op: Operation) -> None:
        """What a terminator hands on lies in place already."""


_EMIT: dict[type[Operation], Any] = {
    InstOp: _KernelEmitter.inst,
    PickOp: _KernelEmitter.rename,
    ConcatOp: _KernelEmitter.rename,
    ConstantOp: _KernelEmitter.constant,
    SpecialOp: _KernelEmitter.special,
    ParamOp: _KernelEmitter.param,
    ParamAddressOp: _KernelEmitter.param_address,
    SharedAddressOp: _KernelEmitter.shared_address,
    ForOp: _KernelEmitter.for_,
    IfOp: _KernelEmitter.if_,
    WhileOp: _KernelEmitter.while_,
    WaitParityOp: _KernelEmitter.wait,
    YieldOp: _KernelEmitter.terminator,
    ConditionOp: _KernelEmitter.terminator,
}


def _is_empty(block: Block) -> bool:
    """Whether a block prints nothing."""
    return all(
        isinstance(op, YieldOp | PickOp | ConcatOp) or isinstance(op, ConstantOp) and "regs" not in op.attributes
        for op in block.ops
    )


def _immediate(attribute: Any, role: str) -> Operand:
    if isinstance(attribute, StringAttr):
        return {"special": Special, "sym": Symbol, "label": Label}[role](attribute.data)
    return Imm(attribute.value.data)


def _constant_behind(value: SSAValue) -> int | None:
    """The constant that a value is, or that a move of assign-registers put into its register."""
    owner = value.owner
    if (
        isinstance(owner, InstOp)
        and owner.opcode.data in ("mov.b32", "mov.b64")
        and not owner.guard
        and len(owner.args) == 1
    ):
        owner = owner.args[0].owner
    return owner.value.value.data if isinstance(owner, ConstantOp) else None


def _param_decl(param: Param, plan: LaunchPlan) -> ParamDecl:
    if param.kind == "tensormap":
        return ParamDecl(param.name, "b8", 128, 64)
    if param.kind == "scalar":
        dtype = next(arg.dtype for arg in plan.args if arg.name == param.arg)
        return ParamDecl(param.name, SCALAR_TYPES[dtype])
    return ParamDecl(param.name, "b64")


def _params(kernel: KernelOp, plan: LaunchPlan | None) -> list[ParamDecl]:
    """The entry's parameters: the plan's, or without a plan those the body reads, in the order of their first use."""
    if plan is not None:
        return [_param_decl(param, plan) for param in plan.params]
    found: dict[str, ParamDecl] = {}
    for op in kernel.walk():
        if isinstance(op, ParamOp):
            assert isinstance(op.res.type, RegType)
            found.setdefault(op.param.data, ParamDecl(op.param.data, op.res.type.cls))
        elif isinstance(op, ParamAddressOp):
            found.setdefault(op.param.data, ParamDecl(op.param.data, "b8", 128, 64))
    return list(found.values())


_CLASS_OF_PREFIX = {prefix: cls for cls, prefix in PREFIX.items()}


def _used_registers(body: Iterable[Instr | LabelDef | Pragma]) -> dict[str, str]:
    """The registers that occur, by class and number."""
    names: set[str] = set()

    def visit(operand: Operand) -> None:
        if type(operand) is Reg:
            names.add(operand.name)
        elif type(operand) is Vec:
            for item in operand.items:
                visit(item)
        elif type(operand) is Addr:
            visit(operand.base)
        elif type(operand) is TensorAddr:
            visit(operand.base)
            for item in operand.coords:
                visit(item)
        elif type(operand) is Pair:
            visit(operand.first)
            visit(operand.second)

    for item in body:
        if type(item) is Instr:
            if item.guard is not None:
                names.add(item.guard)
            for operand in item.operands:
                if type(operand) is Reg:
                    names.add(operand.name)
                else:
                    visit(operand)
    split = [(name.rstrip("0123456789"), name) for name in names]
    split.sort(key=lambda pair: (pair[0], int(pair[1][len(pair[0]) :])))
    return {name: _CLASS_OF_PREFIX[prefix] for prefix, name in split}
