"""Types and attributes of the ptx level: vectors of registers, named registers, launch plans."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

from xdsl.ir import Data, TypeAttribute
from xdsl.irdl import (
    irdl_attr_definition,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from .launch_plan import LaunchPlan
from .ptx_isa import CLASS_BITS


@irdl_attr_definition
class RegType(Data[tuple[str, int]], TypeAttribute):
    """`!ptx.reg<b32 x 64>`: a vector of `count` registers of class `cls` (pred, b16, b32, b64); `!ptx.reg<b32>` is
    one."""

    name = "ptx.reg"

    @property
    def cls(self) -> str:
        return self.data[0]

    @property
    def count(self) -> int:
        return self.data[1]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, int]:
        with parser.in_angle_brackets():
            kind = parser.parse_identifier()
            if kind not in CLASS_BITS:
                parser.raise_error(f"unknown register class '{kind}', expected one of {', '.join(CLASS_BITS)}")
            count = 1
            if parser.parse_optional_keyword("x") is not None:
                count = parser.parse_integer(allow_boolean=False, allow_negative=False)
                if count < 1:
                    parser.raise_error("a register vector has at least one register")
            return kind, count

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.cls}>" if self.count == 1 else f"<{self.cls} x {self.count}>")


@cache
def reg(cls: str, count: int = 1) -> RegType:
    """The interned type of `count` registers of class `cls`."""
    return RegType((cls, count))


@irdl_attr_definition
class PlanAttr(Data[LaunchPlan]):
    """`#ptx.plan<"…">`: the kernel's LaunchPlan as JSON text."""

    name = "ptx.plan"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> LaunchPlan:
        with parser.in_angle_brackets():
            text = parser.parse_str_literal()
            try:
                return LaunchPlan.from_json(json.loads(text))
            except (ValueError, KeyError, TypeError) as error:
                parser.raise_error(f"not a launch plan: {error}")

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(json.dumps(self.data.to_json(), separators=(",", ":")))


@irdl_attr_definition
class RegsAttr(Data[tuple[tuple[str, ...], ...]]):
    """`#ptx.regs<"%r0..%r127", "%p3">`: the names of the registers of several values, as assign-registers gives them:
    the attribute `regs` of an op names its results, `arg_regs` the arguments of its regions, `temps` registers of the
    op's own."""

    name = "ptx.regs"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, ...], ...]:
        texts = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_str_literal)
        values = []
        for text in texts:
            names: list[str] = []
            for word in text.split():
                match = _REGISTER_RANGE.fullmatch(word)
                if match is None:
                    parser.raise_error(f"'{word}' is no register such as %r7 and no range such as %r0..%r127")
                first, last = int(match[2]), int(match[3] or match[2])
                names += [f"{match[1]}{number}" for number in range(first, last + 1)]
            values.append(tuple(names))
        return tuple(values)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_list(self.data, lambda names: printer.print_string_literal(" ".join(_ranges(names))))


_REGISTER_RANGE = re.compile(r"(%[a-z]+)(\d+)(?:\.\.\1(\d+))?")


def _ranges(names: Sequence[str]) -> list[str]:
    """Names with runs of successive numbers written as ranges."""
    words: list[str] = []
    start = 0
    for end in range(1, len(names) + 1):
        prefix = names[start].rstrip("0123456789")
        number = int(names[start][len(prefix) :])
        if end < len(names) and names[end] == f"{prefix}{number + end - start}":
            continue
        words.append(names[start] if end == start + 1 else f"{names[start]}..{names[end - 1]}")
        start = end
    return words
