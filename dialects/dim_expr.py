"""Expressions over a kernel's symbolic dimensions: `M ceildiv 128`, `N + 1`, `min(K, 64) * 2`.

A kernel's contract names symbolic dimensions (M, N, K) of its array arguments; its logical grid, and the shapes of its
outputs, are expressions of them. They are evaluated at launch, without xDSL, so this module is plain Python.

The grammar, in order of binding: `+ -`, then `* floordiv ceildiv mod`, then integers, names, parentheses and
`min(a, b)`, `max(a, b)`.

>>> e = DimExpr.parse("M ceildiv 128 * 2")
>>> str(e), e.symbols(), e.evaluate({"M": 257})
('M ceildiv 128 * 2', ('M',), 6)
>>> DimExpr.parse("(M + 1) * 4").evaluate({"M": 2})
12
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([()+*,-]))")
_TIGHT = ("*", "floordiv", "ceildiv", "mod")
_CALLS = ("min", "max")
WORDS = ("floordiv", "ceildiv", "mod", "min", "max")


class DimExprError(ValueError):
    """A dimension expression that cannot be read or evaluated."""


@dataclass(frozen=True, slots=True)
class DimExpr:
    """One node: `op` is 'int', 'sym', or an operator; leaves carry `value`, others two `args`."""

    op: str
    value: int | str = 0
    args: tuple[DimExpr, ...] = ()

    @staticmethod
    def parse(text: str) -> DimExpr:
        """Read an expression. Raises DimExprError naming what was not understood."""
        tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise DimExprError(f"cannot read {text[position:].strip()!r} in dimension expression {text!r}")
            tokens.append(match.group().strip())
            position = match.end()
        parser = _Parser(tokens, text)
        result = parser.sum()
        parser.end()
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for given dimensions. Raises DimExprError for an unknown symbol or a division by a non-positive."""
        if self.op == "int":
            return int(self.value)
        if self.op == "sym":
            if self.value not in values:
                raise DimExprError(f"dimension {self.value!r} has no value")
            return values[str(self.value)]
        left, right = (arg.evaluate(values) for arg in self.args)
        if self.op in ("floordiv", "ceildiv", "mod") and right <= 0:
            raise DimExprError(f"{self}: the divisor is {right}, it must be positive")
        match self.op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "floordiv":
                return left // right
            case "ceildiv":
                return -(-left // right)
            case "mod":
                return left % right
            case "min":
                return min(left, right)
            case _:
                return max(left, right)

    def symbols(self) -> tuple[str, ...]:
        """The names it depends on, in order of first appearance."""
        if self.op == "sym":
            return (str(self.value),)
        return tuple(dict.fromkeys(name for arg in self.args for name in arg.symbols()))

    def __str__(self) -> str:
        if not self.args:
            return str(self.value)
        left, right = self.args
        if self.op in _CALLS:
            return f"{self.op}({left}, {right})"
        if self.op in _TIGHT:
            left_text = f"({left})" if left.op in "+-" and left.args else str(left)
            right_text = f"({right})" if right.args and right.op not in _CALLS else str(right)
            return f"{left_text} {self.op} {right_text}"
        right_text = f"({right})" if right.op in "+-" and right.args else str(right)
        return f"{left} {self.op} {right_text}"


class _Parser:
    def __init__(self, tokens: list[str], text: str):
        self.tokens, self.text, self.at = tokens, text, 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise DimExprError(f"dimension expression {self.text!r} ends too early")
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise DimExprError(f"expected {token!r} but found {found!r} in dimension expression {self.text!r}")

    def end(self) -> None:
        if self.peek() is not None:
            raise DimExprError(f"unexpected {self.peek()!r} in dimension expression {self.text!r}")

    def sum(self) -> DimExpr:
        result = self.product()
        while self.peek() in ("+", "-"):
            op = self.take()
            result = DimExpr(op, 0, (result, self.product()))
        return result

    def product(self) -> DimExpr:
        result = self.atom()
        while self.peek() in _TIGHT:
            op = self.take()
            result = DimExpr(op, 0, (result, self.atom()))
        return result

    def atom(self) -> DimExpr:
        token = self.take()
        if token.isdigit():
            return DimExpr("int", int(token))
        if token == "(":
            result = self.sum()
            self.expect(")")
            return result
        if token in _CALLS:
            self.expect("(")
            left = self.sum()
            self.expect(",")
            right = self.sum()
            self.expect(")")
            return DimExpr(token, 0, (left, right))
        if token.isidentifier() and token not in WORDS:
            return DimExpr("sym", token)
        raise DimExprError(f"unexpected {token!r} in dimension expression {self.text!r}")
