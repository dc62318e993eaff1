"""Helpers of the ptx tests: random structured ptx kernels, two interpreters to compare, and the assemblers at hand.

The interpreters know only what the generator makes: 32-bit integer arithmetic, comparisons and selection, one thread.
`run_structured` executes the IR by its SSA meaning and never looks at registers; `run_flat` executes a Program by its
registers and never looks at the IR.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue

from tesela.dialects.ptx import (
    ConcatOp,
    ConditionOp,
    ConstantOp,
    ForOp,
    IfOp,
    InstOp,
    KernelOp,
    ParamOp,
    PickOp,
    SpecialOp,
    WhileOp,
    YieldOp,
    reg,
)
from tesela.dialects.ptx_program import Addr, Imm, Instr, Label, LabelDef, Program, Reg

MASK = 0xFFFFFFFF
Word = int | bool


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


COMPARE: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: _signed(a) < _signed(b),
    "ge": lambda a, b: _signed(a) >= _signed(b),
    "eq": lambda a, b: a == b,
}
ARITHMETIC: dict[str, Callable[..., Word]] = {
    "add.s32": lambda a, b: (a + b) & MASK,
    "sub.s32": lambda a, b: (a - b) & MASK,
    "xor.b32": lambda a, b: a ^ b,
    "mul.lo.s32": lambda a, b: (a * b) & MASK,
    "mad.lo.s32": lambda a, b, c: (a * b + c) & MASK,
    "selp.b32": lambda a, b, p: a if p else b,
    "mov.b32": lambda a: a,
    "mov.pred": lambda a: bool(a),
    "xor.pred": lambda a, b: a != b,
    "not.pred": lambda a: not a,
    **{f"setp.{name}.s32": compare for name, compare in COMPARE.items()},
}


# ---- random kernels ---------------------------------------------------------------------------------------------------


class RandomKernel:
    """Builds one random kernel. It stores values as it goes, and some of those in scope at its end, at the address in
    `out`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.budget = self.random.randint(8, 40)
        block = Block()
        self.block = block
        self.out = self.add(ParamOp.make("out", "b64"))
        self.stored = 0
        scope: list[SSAValue] = [self.add(ParamOp.make(f"x{i}", "b32")) for i in range(3)]
        scope += [self.inst("setp.lt.s32", [scope[0], scope[1]], "pred", 1)]
        self.fill(scope, 0)
        words = [v for v in scope if v.type.cls == "b32" and self.random.random() < 0.5] or [scope[0]]
        words += [self.inst("selp.b32", [scope[0], scope[1], p], "b32", 1) for p in scope if p.type == reg("pred")]
        self.store(self.add(ConcatOp.make(words)))
        self.kernel = KernelOp.make("k", "sm_80", 32, 0, None, Region(block))
        self.module = ModuleOp([self.kernel])

    def add_op(self, op):
        self.block.add_op(op)
        return op

    def add(self, op) -> SSAValue:
        return self.add_op(op).results[0]

    def inst(self, opcode: str, args: list[SSAValue], cls: str, count: int, **more) -> SSAValue:
        return self.add(InstOp.make(opcode, args, [reg(cls, count)], **more))

    def store(self, value: SSAValue) -> None:
        offsets = [4 * (self.stored + i) for i in range(value.type.count)]
        self.stored += value.type.count
        self.add_op(InstOp.make("st.global.b32", [self.out, value], [], offsets=offsets))

    def pick_value(self, scope: list[SSAValue], cls: str, count: int | None = None) -> SSAValue:
        """A value of a class (and count), out of the scope, made if there is none."""
        fitting = [v for v in scope if v.type.cls == cls and (count is None or v.type.count == count)]
        if fitting and self.random.random() < 0.85:
            # Recent values more often: chains that are used up make the interesting ties.
            return fitting[-1] if self.random.random() < 0.4 else self.random.choice(fitting)
        if cls == "pred":
            a, b = (self.pick_value(scope, "b32", 1) for _ in range(2))
            return self.inst("setp.ge.s32", [a, b], "pred", 1)
        if count is None:
            return self.random.choice([v for v in scope if v.type.cls == "b32"])
        if self.random.random() < 0.3 and count == 1:
            return self.add(ConstantOp.make(self.random.randint(-4, 9), "b32"))
        sources = [v for v in scope if v.type.cls == "b32"]
        source = self.random.choice(sources)
        return self.add(PickOp.make(source, [self.random.randrange(source.type.count) for _ in range(count)]))

    def fill(self, scope: list[SSAValue], depth: int) -> None:
        for _ in range(self.random.randint(1, 6)):
            if self.budget <= 0:
                return
            self.budget -= 1
            kinds = [self.arithmetic] * 4 + [self.rename] * 2 + [self.guarded, self.predicate] + [self.observe] * 3
            kinds += [self.for_, self.if_, self.if_, self.while_] if depth < 3 else []
            self.random.choice(kinds)(scope, depth)

    def arithmetic(self, scope: list[SSAValue], depth: int) -> None:
        opcode = self.random.choice(["add.s32", "sub.s32", "xor.b32", "mul.lo.s32", "mad.lo.s32"])
        first = self.pick_value(scope, "b32")
        count = first.type.count
        others = [self.operand(scope, count) for _ in range(2 if opcode == "mad.lo.s32" else 1)]
        args = [first, *others]
        self.random.shuffle(args)
        scope.append(self.inst(opcode, args, "b32", count))

    def observe(self, scope: list[SSAValue], depth: int) -> None:
        """Store a value where no other is stored, so that its last value shows at the end."""
        self.store(self.pick_value(scope, "b32"))

    def operand(self, scope: list[SSAValue], count: int) -> SSAValue:
        """One register for all, or one for each instruction."""
        return self.pick_value(scope, "b32", self.random.choice([1, count]))

    def predicate(self, scope: list[SSAValue], depth: int) -> None:
        a, b = (self.pick_value(scope, "b32", 1) for _ in range(2))
        scope.append(self.inst(self.random.choice(["setp.lt.s32", "setp.eq.s32"]), [a, b], "pred", 1))
        if self.random.random() < 0.3:
            a, b = (self.pick_value(scope, "pred", 1) for _ in range(2))
            scope.append(self.inst("xor.pred", [a, b], "pred", 1))

    def rename(self, scope: list[SSAValue], depth: int) -> None:
        if self.random.random() < 0.5:
            parts = [self.pick_value(scope, "b32") for _ in range(self.random.randint(1, 3))]
            if sum(part.type.count for part in parts) <= 6:
                scope.append(self.add(ConcatOp.make(parts)))
                return
        source = self.pick_value(scope, "b32")
        indices = list(range(source.type.count))
        self.random.shuffle(indices)
        scope.append(self.add(PickOp.make(source, indices[: self.random.randint(1, len(indices))])))

    def guarded(self, scope: list[SSAValue], depth: int) -> None:
        first = self.pick_value(scope, "b32")
        count = first.type.count
        init = self.pick_value(scope, "b32", count) if self.random.random() < 0.7 else first
        guard = self.pick_value(scope, "pred", 1)
        args = [first, self.operand(scope, count)]
        negated = self.random.random() < 0.4
        scope.append(self.inst("add.s32", args, "b32", count, guard=guard, negated=negated, init=[init]))

    # -- control

    def region(self, types, build: Callable[[list[SSAValue]], None]) -> Region:
        outer, self.block = self.block, Block(arg_types=types)
        build(list(self.block.args))
        inner, self.block = self.block, outer
        return Region(inner)

    def handed_on(self, scope: list[SSAValue], types, arguments=()) -> list[SSAValue]:
        """Values of the given types out of the scope; often the loop's own arguments, permuted."""
        values = []
        for kind in types:
            candidates = [v for v in arguments if v.type == kind]
            if candidates and self.random.random() < 0.35:
                values.append(self.random.choice(candidates))
            else:
                values.append(self.pick_value(scope, kind.cls, kind.count))
        return values

    def carried(self, scope: list[SSAValue]) -> list[SSAValue]:
        values = []
        for _ in range(self.random.randint(0, 4)):
            cls = "pred" if self.random.random() < 0.15 else "b32"
            values.append(self.pick_value(scope, cls, 1 if cls == "pred" else None))
        return values

    def for_(self, scope: list[SSAValue], depth: int) -> None:
        init = self.carried(scope)
        lower = self.pick_value(scope, "b32", 1)
        trips = self.random.randint(0, 3)
        if self.random.random() < 0.5:
            lower = self.add(ConstantOp.make(self.random.randint(-2, 3), "b32"))
            upper = self.add(ConstantOp.make(lower.owner.value.value.data + trips, "b32"))
        else:
            upper = self.inst("add.s32", [lower, self.add(ConstantOp.make(trips, "b32"))], "b32", 1)
        step = self.add(ConstantOp.make(1, "b32"))
        types = [value.type for value in init]

        def body(arguments: list[SSAValue]) -> None:
            inner = [*scope, *arguments]
            self.fill(inner, depth + 1)
            self.add_op(YieldOp.create(operands=self.handed_on(inner, types, arguments[1:])))

        region = self.region([reg("b32"), *types], body)
        scope += self.add_op(ForOp.make(lower, upper, step, init, region)).results

    def if_(self, scope: list[SSAValue], depth: int) -> None:
        condition = self.pick_value(scope, "pred", 1)
        types = [value.type for value in self.carried(scope)]

        def branch(_: list[SSAValue]) -> None:
            inner = list(scope)
            self.fill(inner, depth + 1)
            self.add_op(YieldOp.create(operands=self.handed_on(inner, types)))

        then = self.region([], branch)
        other = self.region([], branch) if types or self.random.random() < 0.5 else None
        scope += self.add_op(IfOp.make(condition, types, then, other)).results

    def while_(self, scope: list[SSAValue], depth: int) -> None:
        one, limit = self.add(ConstantOp.make(1, "b32")), self.add(ConstantOp.make(self.random.randint(0, 3), "b32"))
        init = [self.inst("mov.b32", [self.add(ConstantOp.make(0, "b32"))], "b32", 1), *self.carried(scope)]
        types = [value.type for value in init]
        handed: list = []

        def before(arguments: list[SSAValue]) -> None:
            inner = [*scope, *arguments]
            self.fill(inner, depth + 1)
            counter = self.inst("add.s32", [arguments[0], one], "b32", 1)
            condition = self.inst("setp.lt.s32", [arguments[0], limit], "pred", 1)
            extra = self.carried(inner)
            values = [counter, *self.handed_on(inner, [v.type for v in extra], arguments[1:])]
            handed.extend(value.type for value in values)
            self.add_op(ConditionOp.create(operands=[condition, *values]))

        first = self.region(types, before)

        def after(arguments: list[SSAValue]) -> None:
            inner = [*scope, *arguments]
            self.fill(inner, depth + 1)
            values = [arguments[0], *self.handed_on(inner, types[1:], arguments[1:])]
            self.add_op(YieldOp.create(operands=values))

        second = self.region(handed, after)
        scope += self.add_op(WhileOp.make(init, handed, first, second)).results


# ---- the structured interpreter ---------------------------------------------------------------------------------------


def run_structured(kernel: KernelOp, params: dict[str, int]) -> dict[int, int]:
    """Execute a kernel by the meaning of its SSA values; gives memory after it (address -> word)."""
    values: dict[SSAValue, list[Word]] = {}
    memory: dict[int, int] = {}

    def inst(op: InstOp) -> None:
        n = op.repeats()

        def part(value: SSAValue, k: int) -> Word:
            words = values[value]
            return words[k] if len(words) == n else words[0]

        results = []
        for k in range(n):
            args = [part(value, k) for value in op.args]
            if op.opcode.data.startswith("st."):
                offsets = op.offsets.get_values() if op.offsets is not None else [0]
                memory[args[0] + (offsets[k] if len(offsets) == n else offsets[0])] = args[1]
                continue
            if op.guard and bool(part(op.guard[0], k)) == (op.negated is not None):
                results.append(part(op.init[0], k))
            else:
                results.append(ARITHMETIC[op.opcode.data](*args))
        if op.res:
            values[op.res[0]] = results

    def block(body: Block) -> list[SSAValue]:
        for op in body.ops:
            match op:
                case InstOp():
                    inst(op)
                case ConstantOp():
                    values[op.res] = [op.value.value.data & MASK]
                case ParamOp():
                    values[op.res] = [params[op.param.data]]
                case SpecialOp():
                    values[op.res] = [0]
                case PickOp():
                    values[op.res] = [values[op.source][i] for i in op.indices.get_values()]
                case ConcatOp():
                    values[op.res] = [word for part in op.parts for word in values[part]]
                case ForOp():
                    for_(op)
                case IfOp():
                    region = op.then_region if values[op.condition][0] else op.else_region
                    if region.blocks:
                        bind(op.res, block(region.block))
                case WhileOp():
                    while_(op)
                case YieldOp() | ConditionOp():
                    return list(op.operands)
        return []

    def bind(targets, sources) -> None:
        for target, words in zip(targets, [values[source] for source in sources]):
            values[target] = words

    def for_(op: ForOp) -> None:
        counter, upper, step = (_signed(values[v][0]) for v in (op.lower, op.upper, op.step))
        carried = list(op.init)
        while counter < upper:
            bind(op.body.block.args[1:], carried)
            values[op.body.block.args[0]] = [counter & MASK]
            carried = block(op.body.block)
            words = [values[value] for value in carried]
            counter += step
            for result, word in zip(op.res, words):
                values[result] = word
            carried = list(op.res)
        bind(op.res, carried)

    def while_(op: WhileOp) -> None:
        carried = list(op.init)
        while True:
            bind(op.before.block.args, carried)
            condition, *handed = block(op.before.block)
            holds = values[condition][0]
            bind(op.res, handed)
            if not holds:
                return
            bind(op.after.block.args, list(op.res))
            carried = block(op.after.block)

    block(kernel.body.block)
    return memory


# ---- the flat interpreter ---------------------------------------------------------------------------------------------


def run_flat(program: Program, params: dict[str, int]) -> dict[int, int]:
    """Execute a Program's entry in one thread by its registers; gives memory after it. Registers start undefined."""
    body = program.entries[0].body
    labels = {item.name: index for index, item in enumerate(body) if isinstance(item, LabelDef)}
    registers: dict[str, Word] = {}
    memory: dict[int, int] = {}
    index = 0

    def read(operand) -> Word:
        return operand.bits & MASK if isinstance(operand, Imm) else registers[operand.name]

    for _ in range(1_000_000):
        item = body[index]
        index += 1
        if not isinstance(item, Instr):
            continue
        if item.guard is not None and bool(registers[item.guard]) == item.negated:
            continue
        operands = item.operands
        if item.opcode == "ret":
            return memory
        if item.opcode == "bra":
            assert isinstance(operands[0], Label)
            index = labels[operands[0].name]
        elif item.opcode.startswith("ld.param"):
            registers[operands[0].name] = params[operands[1].base.name]
        elif item.opcode.startswith("st.global"):
            assert isinstance(operands[0], Addr) and isinstance(operands[0].base, Reg)
            memory[registers[operands[0].base.name] + operands[0].offset] = read(operands[1])
        else:
            registers[operands[0].name] = ARITHMETIC[item.opcode](*map(read, operands[1:]))
    raise AssertionError("the program does not end")


# ---- assemblers -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def assemblers() -> tuple[str, ...]:
    """ptxas of the nvidia-cuda-nvcc wheel and on PATH, those that are there."""
    wheel = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "bin" / "ptxas"
    found = [str(wheel)] if wheel.exists() else []
    on_path = shutil.which("ptxas")
    return (*found, *([on_path] if on_path else []))


def assemble(ptxas: str, text: str, target: str, *options: str) -> str:
    """Assemble PTX text; gives all that ptxas printed, and fails the test if it rejects the text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(text)
        command = [ptxas, f"-arch={target}", "-o", str(source.with_suffix(".cubin")), str(source), *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    output = result.stdout + result.stderr
    assert result.returncode == 0, f"{ptxas} rejects the text:\n{output}"
    return output
