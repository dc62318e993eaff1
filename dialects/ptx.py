"""The ptx dialect: one thread's program over *vectors of registers*, with structured control.

An SSA value is a vector of virtual registers of one class, `!ptx.reg<b32 x 128>`: an accumulator is one value, and a
`fma` over 64 registers is one op that prints 64 lines. That keeps modules at hundreds of ops. `ptx.pick` and
`ptx.concat` only rename registers and print nothing. Control (`ptx.for`, `ptx.if`, `ptx.while`) stays structured until
text is printed.

**Fat instructions.** `ptx.inst` names a row of the instruction table; the row's operand forms say how many registers
*one* instruction takes of each operand. An operand that holds n times as many makes the op stand for n instructions; an
operand that holds just the number for one is used by all n. Example, with 64 registers of data and one scale:

    %y = ptx.inst "mul.rn.f32" %x, %scale : (!ptx.reg<b32 x 64>, !ptx.reg<b32>) -> !ptx.reg<b32 x 64>

prints 64 lines `mul.rn.f32 %r…, %r…, %scale;`. Operands stand in the order of the row's forms without destinations and
immediates; immediates (`imms`) fill the row's `imm` and `special` forms; an address operand is a base register (one, or
one for each of the n), to which `offsets` (one, or one for each, in bytes) are added. `if %p` guards (one predicate, or
one for each); a guarded instruction leaves its destination as it was where the predicate is false, so `else %init`
gives what the destination held before. `if not %p` negates.

Operands of class `s` may be `ptx.constant`s: those print as immediates.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from .diagnostics import Emitter
from .launch_plan import LaunchPlan
from .ptx_control import ConditionOp, ForOp, IfOp, WhileOp, YieldOp
from .ptx_isa import CLASS_BITS, SPECIAL_REGISTERS, TABLE, Operand, lookup
from .ptx_types import PlanAttr, RegsAttr, RegType, reg
from .target import get_target

__all__ = [
    "ConcatOp",
    "ConditionOp",
    "ConstantOp",
    "ForOp",
    "Form",
    "IfOp",
    "InstOp",
    "KernelOp",
    "ParamAddressOp",
    "ParamOp",
    "PickOp",
    "PlanAttr",
    "Ptx",
    "RegType",
    "RegsAttr",
    "SharedAddressOp",
    "SpecialOp",
    "WaitParityOp",
    "WhileOp",
    "YieldOp",
    "reg",
    "split_form",
]


def _print_types(printer: Printer, operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> None:
    printer.print_string(" : (")
    printer.print_list(operands, lambda value: printer.print_attribute(value.type))
    printer.print_string(") -> ")
    if len(results) == 1:
        printer.print_attribute(results[0].type)
    else:
        printer.print_string("(")
        printer.print_list(results, lambda value: printer.print_attribute(value.type))
        printer.print_string(")")


@irdl_op_definition
class InstOp(IRDLOperation):
    """One or n instructions of one table row; see the module's docstring."""

    name = "ptx.inst"

    opcode = prop_def(StringAttr)
    imms = opt_prop_def(ArrayAttr)
    offsets = opt_prop_def(DenseArrayBase)
    negated = opt_prop_def(UnitAttr)
    args = var_operand_def(RegType)
    guard = var_operand_def(RegType)
    init = var_operand_def(RegType)
    res = var_result_def(RegType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def make(
        opcode: str,
        args: Sequence[SSAValue],
        results: Sequence[RegType],
        imms: Sequence[int | str] = (),
        offsets: Sequence[int] | None = None,
        guard: SSAValue | None = None,
        negated: bool = False,
        init: Sequence[SSAValue] = (),
    ) -> InstOp:
        """The lean constructor: no checks (the verifier has them)."""
        properties: dict[str, Attribute] = {
            "opcode": _string(opcode),
            "operandSegmentSizes": _segments(len(args), guard is not None, len(init)),
        }
        if imms:
            properties["imms"] = ArrayAttr([_imm(value) for value in imms])
        if offsets is not None and any(offsets):
            properties["offsets"] = _offsets(tuple(offsets))
        if negated:
            properties["negated"] = UnitAttr()
        operands = [*args, *([guard] if guard is not None else []), *init]
        return InstOp.create(operands=operands, result_types=results, properties=properties)

    def segments(self) -> tuple[tuple[SSAValue, ...], SSAValue | None, tuple[SSAValue, ...]]:
        """`args`, the guard and `init`, at a tenth of the cost of the three accessors, which decode the sizes each time."""
        args, guard, _ = _segment_sizes(self.properties["operandSegmentSizes"].data.data)  # type: ignore[attr-defined]
        operands = tuple(self.operands)
        return operands[:args], operands[args] if guard else None, operands[args + guard :]

    def form(self) -> tuple[Form, int]:
        """The form of the row that the op's operands fit, and how many instructions the op stands for. Raises
        VerifyException, naming what the forms take, if none fits."""
        opcode, imms = self.properties["opcode"].data, self.properties.get("imms")  # type: ignore[attr-defined]
        count = len(imms.data) if imms is not None else 0  # type: ignore[attr-defined]
        results = tuple([value.type.data for value in self.results])  # type: ignore[attr-defined]
        sources = tuple([value.type.data for value in self.segments()[0]])  # type: ignore[attr-defined]
        found = _match(opcode, results, sources, count)
        if found is None:
            given = ", ".join([str(value.type) for value in (*self.results, *self.segments()[0])]) or "nothing"
            raise VerifyException(f"{opcode} does not take {given} and {count} immediates; its forms: {lookup(opcode)}")
        return found

    def repeats(self) -> int:
        """How many instructions the op stands for."""
        return self.form()[1]

    def verify_(self) -> None:
        try:
            _, n = self.form()
        except ValueError as error:
            raise VerifyException(str(error)) from None
        if len(self.guard) > 1:
            raise VerifyException("one guard at most")
        if self.negated is not None and not self.guard:
            raise VerifyException("'negated' without a guard")
        if self.guard and self.guard[0].type not in (reg("pred"), reg("pred", n)):
            raise VerifyException(f"the guard must be one predicate or {n} of them")
        if self.init and [value.type for value in self.init] != [value.type for value in self.res]:
            raise VerifyException("'else' gives one value of the same type for each result")
        if self.guard and self.res and not self.init:
            raise VerifyException(
                "a guarded instruction with results needs 'else': what they hold where the guard is false"
            )
        if self.offsets is not None and len(self.offsets.get_values()) not in (1, n):
            raise VerifyException(f"one offset or {n} of them, found {len(self.offsets.get_values())}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.opcode.data)
        if self.args:
            printer.print_string(" ")
            printer.print_list(self.args, printer.print_ssa_value)
        if self.guard:
            printer.print_string(" if not " if self.negated is not None else " if ")
            printer.print_ssa_value(self.guard[0])
        if self.init:
            printer.print_string(" else ")
            printer.print_list(self.init, printer.print_ssa_value)
        properties = {key: value for key in ("imms", "offsets") if (value := self.properties.get(key)) is not None}
        printer.print_op_attributes({**properties, **self.attributes})
        _print_types(printer, self.operands, self.res)

    @classmethod
    def parse(cls, parser: Parser) -> InstOp:
        opcode = parser.parse_str_literal()
        args = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        args = args or []
        guard = []
        negated = False
        if parser.parse_optional_keyword("if") is not None:
            negated = parser.parse_optional_keyword("not") is not None
            guard = [parser.parse_unresolved_operand()]
        init = []
        if parser.parse_optional_keyword("else") is not None:
            init = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = dict(parser.parse_optional_attr_dict())
        parser.parse_punctuation(":")
        position = parser.pos
        kinds = parser.parse_function_type()
        unresolved = [*args, *guard, *init]
        operands = parser.resolve_operands(unresolved, kinds.inputs.data, position)
        properties: dict[str, Attribute] = {
            "opcode": StringAttr(opcode),
            "operandSegmentSizes": _segments(len(args), bool(guard), len(init)),
        }
        for key in ("imms", "offsets"):
            if key in attributes:
                properties[key] = attributes.pop(key)
        if negated:
            properties["negated"] = UnitAttr()
        return cls.create(
            operands=operands, result_types=kinds.outputs.data, properties=properties, attributes=attributes
        )


Form = tuple[Operand, ...]


@cache
def split_form(form: Form) -> tuple[tuple[Operand, ...], tuple[Operand, ...], int]:
    """A row's operand form as an op has it: results ('d' and 'io'), register operands ('s', 'r', 'io', 'addr', and
    'tma' as two: a map's address, b64, and its coordinates, b32), and the number of immediates ('imm', 'special',
    'sym', 'label')."""
    results = tuple(operand for operand in form if operand.role in ("d", "io"))
    sources: list[Operand] = []
    for operand in form:
        if operand.role == "tma":
            sources += [Operand("r", "b64"), Operand("r", "b32", operand.count)]
        elif operand.role in ("s", "r", "io", "addr"):
            sources.append(operand)
    imms = sum(operand.role in ("imm", "special", "sym", "label") for operand in form)
    return results, tuple(sources), imms


def _classes(operand: Operand) -> tuple[str, ...]:
    """The register classes that an operand may have: a shared address is 32 bits wide, or 64."""
    if operand.role != "addr":
        return (operand.cls,)
    return ("b32", "b64") if operand.cls in ("shared", "cluster") else ("b64",)


@cache
def _match(opcode: str, results: tuple, sources: tuple, imms: int) -> tuple[Form, int] | None:
    """The first form of `opcode` that takes registers of these (class, count)s, and the number of instructions."""
    for form in lookup(opcode).forms:
        want_results, want_sources, want_imms = split_form(form)
        if (len(want_results), len(want_sources), want_imms) != (len(results), len(sources), imms):
            continue
        pairs = [*zip(want_results, results), *zip(want_sources, sources)]
        if any(cls not in _classes(operand) or count % operand.registers for operand, (cls, count) in pairs):
            continue
        n = max((count // operand.registers for operand, (_, count) in pairs), default=1)
        if any(count // operand.registers not in (1, n) for operand, (_, count) in pairs):
            continue
        if all(count == n * operand.registers for operand, (_, count) in zip(want_results, results)):
            return form, n
    return None


@lru_cache(maxsize=4096)
def _string(text: str) -> StringAttr:
    return StringAttr(text)


@cache
def _segment_sizes(data: bytes) -> tuple[int, int, int]:
    """What `_segments` packed: three 32-bit integers."""
    return struct.unpack("<3i", data)


@lru_cache(maxsize=4096)
def _imm(value: int | str) -> Attribute:
    return StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _indices(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i32, list(values))


@lru_cache(maxsize=4096)
def _offsets(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, list(values))


@cache
def _segments(args: int, guard: bool, init: int) -> DenseArrayBase:
    return DenseArrayBase.from_list(i32, [args, int(guard), init])


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A constant: the bit pattern `value` in one register's class. Prints as an immediate where an instruction takes
    one."""

    name = "ptx.constant"
    value = prop_def(IntegerAttr[I64])
    res = result_def(RegType)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($res)"

    @staticmethod
    def make(value: int, cls: str) -> ConstantOp:
        return ConstantOp.create(result_types=[reg(cls)], properties={"value": _imm(value)})

    def verify_(self) -> None:
        assert isinstance(self.res.type, RegType)
        bits = CLASS_BITS[self.res.type.cls]
        value = self.value.value.data
        if self.res.type.count != 1:
            raise VerifyException("a constant is one register")
        if not -(1 << (bits - 1)) <= value < (1 << bits):
            raise VerifyException(f"{value} does not fit in {bits} bits")


@irdl_op_definition
class SpecialOp(IRDLOperation):
    """A special register by its PTX name: `ptx.special "%tid.x"`."""

    name = "ptx.special"
    register = prop_def(StringAttr)
    res = result_def(RegType)
    traits = traits_def(Pure())
    assembly_format = "$register attr-dict `:` type($res)"

    @staticmethod
    def make(register: str) -> SpecialOp:
        return SpecialOp.create(result_types=[reg("b32")], properties={"register": _string(register)})

    def verify_(self) -> None:
        name = self.register.data
        if name not in SPECIAL_REGISTERS:
            raise VerifyException(f"there is no special register '{name}'")
        if self.res.type != reg(SPECIAL_REGISTERS[name]):
            raise VerifyException(f"'{name}' is {reg(SPECIAL_REGISTERS[name])}, found {self.res.type}")


@irdl_op_definition
class ParamOp(IRDLOperation):
    """The value of the kernel parameter named `param` (`ld.param`)."""

    name = "ptx.param"
    param = prop_def(StringAttr)
    res = result_def(RegType)
    traits = traits_def(Pure())
    assembly_format = "$param attr-dict `:` type($res)"

    @staticmethod
    def make(param: str, cls: str) -> ParamOp:
        return ParamOp.create(result_types=[reg(cls)], properties={"param": _string(param)})


@irdl_op_definition
class ParamAddressOp(IRDLOperation):
    """The generic address of the parameter named `param`, a tensor map (`mov.b64` and `cvta.param.u64`)."""

    name = "ptx.param_address"
    param = prop_def(StringAttr)
    res = result_def(RegType)
    traits = traits_def(Pure())
    assembly_format = "$param attr-dict `:` type($res)"

    @staticmethod
    def make(param: str) -> ParamAddressOp:
        return ParamAddressOp.create(result_types=[reg("b64")], properties={"param": _string(param)})


@irdl_op_definition
class SharedAddressOp(IRDLOperation):
    """The 32-bit shared-window address of byte `offset` of the kernel's dynamic shared memory."""

    name = "ptx.shared_address"
    offset = prop_def(IntegerAttr[I64])
    res = result_def(RegType)
    traits = traits_def(Pure())
    assembly_format = "$offset attr-dict `:` type($res)"

    @staticmethod
    def make(offset: int) -> SharedAddressOp:
        return SharedAddressOp.create(result_types=[reg("b32")], properties={"offset": _imm(offset)})


@irdl_op_definition
class PickOp(IRDLOperation):
    """Registers of `source` by index, in the order given (repetition allowed). Only renames."""

    name = "ptx.pick"
    source = operand_def(RegType)
    indices = prop_def(DenseArrayBase)
    res = result_def(RegType)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, indices: Sequence[int]) -> PickOp:
        assert isinstance(source.type, RegType)
        return PickOp.create(
            operands=[source],
            result_types=[reg(source.type.cls, len(indices))],
            properties={"indices": _indices(tuple(indices))},
        )

    def verify_(self) -> None:
        assert isinstance(self.source.type, RegType) and isinstance(self.res.type, RegType)
        indices = self.indices.get_values()
        if self.source.type.cls != self.res.type.cls or len(indices) != self.res.type.count:
            raise VerifyException("the result has one register of the source's class for each index")
        for index in indices:
            if not 0 <= index < self.source.type.count:
                raise VerifyException(f"index {index} is outside the {self.source.type.count} registers of the source")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" {list(self.indices.get_values())}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)

    @classmethod
    def parse(cls, parser: Parser) -> PickOp:
        operand = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        kind = parser.parse_type()
        if not isinstance(kind, RegType) or not indices:
            parser.raise_error("ptx.pick takes registers and at least one index", position)
        op = cls.make(parser.resolve_operand(operand, kind), indices)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class ConcatOp(IRDLOperation):
    """The registers of all operands, one after another. Only renames."""

    name = "ptx.concat"
    parts = var_operand_def(RegType)
    res = result_def(RegType)
    traits = traits_def(Pure())
    assembly_format = "$parts attr-dict `:` `(` type($parts) `)` `->` type($res)"

    @staticmethod
    def make(parts: Sequence[SSAValue]) -> ConcatOp:
        types = [part.type for part in parts]
        assert all(isinstance(kind, RegType) for kind in types)
        return ConcatOp.create(operands=parts, result_types=[reg(types[0].cls, sum(kind.count for kind in types))])

    def verify_(self) -> None:
        types = [part.type for part in self.parts]
        if not types:
            raise VerifyException("nothing to concatenate")
        if {kind.cls for kind in types} != {self.res.type.cls} or sum(k.count for k in types) != self.res.type.count:
            raise VerifyException("the result has all registers of the operands, of one class")


@irdl_op_definition
class WaitParityOp(IRDLOperation):
    """Waits until the mbarrier at shared address `barrier` (plus `offset` bytes) has completed the phase of parity
    `phase` (0 or 1): a loop round `mbarrier.try_wait.parity` (PTX ISA 9.0 §9.7.13.15)."""

    name = "ptx.wait_parity"
    barrier = operand_def(RegType)
    phase = operand_def(RegType)
    offset = opt_prop_def(IntegerAttr[I64])
    assembly_format = "$barrier `,` $phase (`offset` $offset^)? attr-dict `:` type($barrier) `,` type($phase)"

    @staticmethod
    def make(barrier: SSAValue, phase: SSAValue, offset: int = 0) -> WaitParityOp:
        properties: dict[str, Attribute] = {"offset": _imm(offset)} if offset else {}
        return WaitParityOp.create(operands=[barrier, phase], properties=properties)

    def verify_(self) -> None:
        if self.barrier.type != reg("b32") or self.phase.type != reg("b32"):
            raise VerifyException("the barrier's address and the phase are one b32 register each")


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel at the ptx level. `threads` a block, `shared` bytes of dynamic shared memory, and the plan its launcher
    needs."""

    name = "ptx.kernel"
    sym_name = prop_def(SymbolNameConstraint())
    target = prop_def(StringAttr)
    threads = prop_def(IntegerAttr)
    shared = prop_def(IntegerAttr)
    plan = opt_prop_def(PlanAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    @staticmethod
    def make(name: str, target: str, threads: int, shared: int, plan: LaunchPlan | None, body: Region) -> KernelOp:
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "target": StringAttr(target),
            "threads": _imm(threads),
            "shared": _imm(shared),
        }
        if plan is not None:
            properties["plan"] = PlanAttr(plan)
        return KernelOp.create(properties=properties, regions=[body])

    def verify_(self) -> None:
        if isinstance(outer := self.parent_op(), KernelOp):
            raise VerifyException(f"a kernel stands in a module, found one inside of @{outer.sym_name.data}")
        target = get_target(self.target.data)
        threads, shared = self.threads.value.data, self.shared.value.data
        if not (0 < threads <= 1024 and threads % 32 == 0):
            raise VerifyException(f"threads must be a positive multiple of 32 up to 1024, found {threads}")
        if not 0 <= shared <= target.max_shared_bytes:
            raise VerifyException(
                f"{shared} bytes of shared memory, {target.name} has {target.max_shared_bytes} a block"
            )
        emitter = Emitter()
        for op in self.body.walk():
            if (
                isinstance(op, InstOp)
                and (row := TABLE.get(op.opcode.data)) is not None
                and not row.supports(target.name)
            ):
                emitter.error(op, f"'{op.name}': {row.opcode} needs {row.since}, the kernel's target is {target.name}")
        emitter.raise_if_errors()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(
            f" target {self.target.data} threads {self.threads.value.data} shared {self.shared.value.data}"
        )
        if self.plan is not None:
            printer.print_string(" plan ")
            printer.print_attribute(self.plan)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name = parser.parse_symbol_name()
        parser.parse_keyword("target")
        target = parser.parse_identifier()
        parser.parse_keyword("threads")
        threads = parser.parse_integer()
        parser.parse_keyword("shared")
        shared = parser.parse_integer()
        plan = None
        if parser.parse_optional_keyword("plan") is not None:
            attribute = parser.parse_attribute()
            if not isinstance(attribute, PlanAttr):
                parser.raise_error("expected a #ptx.plan attribute")
            plan = attribute.data
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        attributes = parser.parse_optional_attr_dict()
        op = cls.make(name.data, target, threads, shared, plan, body)
        op.attributes.update(attributes)
        return op


Ptx = Dialect(
    "ptx",
    [
        InstOp,
        ConstantOp,
        SpecialOp,
        ParamOp,
        ParamAddressOp,
        SharedAddressOp,
        PickOp,
        ConcatOp,
        YieldOp,
        ConditionOp,
        ForOp,
        IfOp,
        WhileOp,
        WaitParityOp,
        KernelOp,
    ],
    [RegType, PlanAttr, RegsAttr],
)
