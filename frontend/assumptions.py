"""`tesela.assume`: divisors of dimensions become part of the contract, facts about a variable of the kernel are known from there on."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from ..dialects import tile
from .types import Dim
from .values import Value, describe

if TYPE_CHECKING:
    from .trace import Tracer

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


def assume(t: Tracer, node: ast.Call) -> None:
    """`tesela.assume(K % 64 == 0)`, `tesela.assume(start % 8 == 0)`, `tesela.assume(0 <= start < 4096)`."""
    if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.Compare):
        fact = node.args[0]
        match fact:
            case ast.Compare(left=ast.BinOp(left=left, op=ast.Mod(), right=right), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
                divisor = t.eval(right)
                if isinstance(divisor, int) and not isinstance(divisor, bool) and divisor > 0:
                    _state(t, left, divisor=divisor)
                    return
            case _ if (bounds := _bounds(t, fact)) is not None:
                _state(t, *bounds[:1], **bounds[1])
                return
    t.b.node = node
    raise t.error(
        "tesela.assume states what a dimension or a variable is a multiple of, or the range of a variable",
        "write tesela.assume(K % 64 == 0), or tesela.assume(0 <= start < 4096)",
    )


def _bounds(t: Tracer, fact: ast.Compare) -> tuple[ast.expr, dict[str, int]] | None:
    """(the variable, its bounds) of a chain of comparisons of one variable with integers known when compiling."""
    sides = [fact.left, *fact.comparators]
    names = [side for side in sides if isinstance(side, ast.Name) and isinstance(t.eval(side), Value | Dim)]
    if len(names) != 1:
        return None
    bounds: dict[str, int] = {}
    for op, left, right in zip(fact.ops, sides, sides[1:]):
        if left is names[0]:
            kind, other = type(op), right
        elif right is names[0]:
            kind, other = FLIPPED.get(type(op), ast.Eq), left
        else:
            return None
        number = t.eval(other)
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        if kind in (ast.Gt, ast.GtE):
            bounds["least"] = number + (kind is ast.Gt)
        elif kind in (ast.Lt, ast.LtE):
            bounds["most"] = number - (kind is ast.Lt)
        else:
            return None
    return names[0], bounds


def _state(t: Tracer, at: ast.expr, **facts: int) -> None:
    subject: Any = t.eval(at)
    t.b.node = at
    if isinstance(subject, Dim) and subject.expr.op == "sym" and "divisor" in facts:
        t.b.check_symbols(subject.expr)
        name = str(subject.expr.value)
        t.divisors[name] = math.lcm(facts["divisor"], t.divisors.get(name, 1))
        return
    if isinstance(subject, Dim):
        raise t.error(f"of {describe(subject)} a divisor can be assumed, and nothing else", "for a range write assert, or an if")
    if not isinstance(at, ast.Name):
        raise t.error("an assumption is about a variable or a dimension", "assign the value to a variable first")
    if not isinstance(subject, Value) or subject.shape or subject.dtype.kind not in ("int", "index"):
        raise t.error(f"an assumption is about a dimension or an integer scalar, found {describe(subject)}")
    op = tile.AssumeOp.make(subject.ssa, **facts)
    nonneg = subject.nonneg or facts.get("least", -1) >= 0
    t.frame.names[at.id] = t.b.emit(op, subject.dtype, nonneg=nonneg)
