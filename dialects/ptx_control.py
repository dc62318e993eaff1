"""Structured control of the ptx level: loops and conditions over carried vectors of registers."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from .ptx_types import RegType, reg


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a region of `ptx.for`, `ptx.if` or `ptx.while` with the values it hands on."""

    name = "ptx.yield"
    args = var_operand_def(RegType)
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "($args^ `:` type($args))? attr-dict"


@irdl_op_definition
class ConditionOp(IRDLOperation):
    """Ends the first region of `ptx.while`: goes on with `args` while `condition` holds, else leaves with them."""

    name = "ptx.condition"
    condition = operand_def(RegType)
    args = var_operand_def(RegType)
    traits = traits_def(IsTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> ConditionOp:
        condition = parser.resolve_operand(parser.parse_unresolved_operand(), reg("pred"))
        args: list[SSAValue] = []
        if parser.parse_optional_punctuation("(") is not None:
            unresolved = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
            parser.parse_punctuation(")")
            parser.parse_punctuation(":")
            position = parser.pos
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
            args = parser.resolve_operands(unresolved, types, position)
        attributes = parser.parse_optional_attr_dict()
        return cls.create(operands=[condition, *args], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.condition)
        if self.args:
            printer.print_string(" (")
            printer.print_list(self.args, printer.print_ssa_value)
            printer.print_string(") : ")
            printer.print_list(self.args, lambda value: printer.print_attribute(value.type))
        printer.print_op_attributes(self.attributes)


def _print_carried(printer: Printer, args: Sequence[SSAValue], init: Sequence[SSAValue]) -> None:
    if not args:
        return
    printer.print_string(" carried(")

    def one(pair: tuple[SSAValue, SSAValue]) -> None:
        printer.print_ssa_value(pair[0])
        printer.print_string(" = ")
        printer.print_ssa_value(pair[1])
        printer.print_string(" : ")
        printer.print_attribute(pair[0].type)

    printer.print_list(list(zip(args, init)), one)
    printer.print_string(")")


def _parse_carried(parser: Parser) -> tuple[list, list[SSAValue]]:
    arguments, init = [], []
    if parser.parse_optional_keyword("carried") is not None:

        def one() -> None:
            name = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            kind = parser.parse_type()
            arguments.append(name.resolve(kind))
            init.append(parser.resolve_operand(operand, kind))

        parser.parse_comma_separated_list(parser.Delimiter.PAREN, one)
    return arguments, init


def _check_yield(region: Region, types: Sequence[Attribute], what: str) -> None:
    last = region.block.last_op
    if not isinstance(last, YieldOp):
        raise VerifyException(f"{what} must end with ptx.yield")
    if [value.type for value in last.args] != list(types):
        raise VerifyException(f"ptx.yield of {what} must hand on {len(types)} values of the types of the results")


@irdl_op_definition
class ForOp(IRDLOperation):
    """`ptx.for %i = %lower to %upper step %step carried(%a = %init : type) {…}`: signed comparison, tested before each
    trip."""

    name = "ptx.for"
    lower = operand_def(RegType)
    upper = operand_def(RegType)
    step = operand_def(RegType)
    init = var_operand_def(RegType)
    res = var_result_def(RegType)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @staticmethod
    def make(lower: SSAValue, upper: SSAValue, step: SSAValue, init: Sequence[SSAValue], body: Region) -> ForOp:
        return ForOp.create(
            operands=[lower, upper, step, *init], result_types=[value.type for value in init], regions=[body]
        )

    def verify_(self) -> None:
        args = self.body.block.args
        kinds = {self.lower.type, self.upper.type, self.step.type}
        if len(kinds) != 1 or kinds.pop() not in (reg("b32"), reg("b64")):
            raise VerifyException("bounds and step are one register each, all b32 or all b64")
        types = [value.type for value in self.init]
        if [arg.type for arg in args] != [self.lower.type, *types]:
            raise VerifyException("the body takes the counter and then the carried values")
        if [value.type for value in self.res] != types:
            raise VerifyException("the results have the types of the carried values")
        _check_yield(self.body, types, "ptx.for")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.body.block.args[0])
        printer.print_string(" = ")
        printer.print_ssa_value(self.lower)
        printer.print_string(" to ")
        printer.print_ssa_value(self.upper)
        printer.print_string(" step ")
        printer.print_ssa_value(self.step)
        printer.print_string(" : ")
        printer.print_attribute(self.lower.type)
        _print_carried(printer, self.body.block.args[1:], self.init)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> ForOp:
        counter = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        bounds = [parser.parse_unresolved_operand()]
        for word in ("to", "step"):
            parser.parse_keyword(word)
            bounds.append(parser.parse_unresolved_operand())
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        lower, upper, step = (parser.resolve_operand(operand, kind) for operand in bounds)
        arguments, init = _parse_carried(parser)
        body = parser.parse_region([counter.resolve(kind), *arguments])
        attributes = parser.parse_optional_attr_dict()
        op = cls.make(lower, upper, step, init, body)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class IfOp(IRDLOperation):
    """`ptx.if %p -> (types) {…} else {…}`: the condition may differ from thread to thread."""

    name = "ptx.if"
    condition = operand_def(RegType)
    res = var_result_def(RegType)
    then_region = region_def("single_block")
    else_region = region_def()
    traits = traits_def(NoTerminator())

    @staticmethod
    def make(condition: SSAValue, results: Sequence[Attribute], then: Region, other: Region | None = None) -> IfOp:
        return IfOp.create(operands=[condition], result_types=results, regions=[then, other or Region()])

    def verify_(self) -> None:
        if self.condition.type != reg("pred"):
            raise VerifyException("the condition is one predicate")
        types = [value.type for value in self.res]
        _check_yield(self.then_region, types, "ptx.if")
        if self.else_region.blocks:
            _check_yield(self.else_region, types, "ptx.if's else")
        elif types:
            raise VerifyException("ptx.if with results needs an else region")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.condition)
        if self.res:
            printer.print_string(" -> (")
            printer.print_list(self.res, lambda value: printer.print_attribute(value.type))
            printer.print_string(")")
        printer.print_string(" ")
        printer.print_region(self.then_region)
        if self.else_region.blocks:
            printer.print_string(" else ")
            printer.print_region(self.else_region)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> IfOp:
        condition = parser.resolve_operand(parser.parse_unresolved_operand(), reg("pred"))
        types: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            types = list(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type))
        then = parser.parse_region()
        other = parser.parse_region() if parser.parse_optional_keyword("else") is not None else None
        attributes = parser.parse_optional_attr_dict()
        op = cls.make(condition, types, then, other)
        op.attributes.update(attributes)
        return op


@irdl_op_definition
class WhileOp(IRDLOperation):
    """`ptx.while carried(%a = %init : type) {… ptx.condition %p (%x)} do(%y : type) {… ptx.yield %z}`, as
    `scf.while`."""

    name = "ptx.while"
    init = var_operand_def(RegType)
    res = var_result_def(RegType)
    before = region_def("single_block")
    after = region_def("single_block")
    traits = traits_def(NoTerminator())

    @staticmethod
    def make(init: Sequence[SSAValue], results: Sequence[Attribute], before: Region, after: Region) -> WhileOp:
        return WhileOp.create(operands=init, result_types=results, regions=[before, after])

    def verify_(self) -> None:
        types = [value.type for value in self.init]
        results = [value.type for value in self.res]
        if [arg.type for arg in self.before.block.args] != types:
            raise VerifyException("the first region takes the carried values")
        if [arg.type for arg in self.after.block.args] != results:
            raise VerifyException("the second region takes the values of ptx.condition, which are the results")
        last = self.before.block.last_op
        if not isinstance(last, ConditionOp):
            raise VerifyException("the first region must end with ptx.condition")
        if last.condition.type != reg("pred") or [value.type for value in last.args] != results:
            raise VerifyException("ptx.condition takes one predicate and values of the types of the results")
        _check_yield(self.after, types, "ptx.while")

    def print(self, printer: Printer) -> None:
        _print_carried(printer, self.before.block.args, self.init)
        printer.print_string(" ")
        printer.print_region(self.before, print_entry_block_args=False)
        printer.print_string(" do ")
        if self.after.block.args:
            printer.print_string("(")
            printer.print_list(self.after.block.args, printer.print_block_argument)
            printer.print_string(") ")
        printer.print_region(self.after, print_entry_block_args=False)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> WhileOp:
        arguments, init = _parse_carried(parser)
        before = parser.parse_region(arguments)
        parser.parse_keyword("do")
        after_args = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument) or []
        after = parser.parse_region(after_args)
        attributes = parser.parse_optional_attr_dict()
        op = cls.make(init, [arg.type for arg in after_args], before, after)
        op.attributes.update(attributes)
        return op
