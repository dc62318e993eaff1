"""What a kernel says while it runs: `print`, and `assert` of what is known only at run time."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ..dialects import tile
from ..dialects.tile import ReduceKind
from .operations import builds
from .types import Dim, DType, i1, i32
from .values import Value, describe, is_number

if TYPE_CHECKING:
    from .trace import Tracer


@builds("print")
def print_values(t: Tracer, *values: Any) -> None:
    words: list[str] = []
    shown: list[Value] = []
    for value in values:
        if isinstance(value, Dim):
            value = t.b.dim(value)
        if isinstance(value, Value):
            words.append("{}")
            shown.append(value)
        elif isinstance(value, str | tuple | DType) or value is None or is_number(value):
            words.append(str(value).replace("{", "{{").replace("}", "}}"))
        else:
            raise t.error(f"tesela.print takes texts, numbers, scalars and tiles, found {describe(value)}")
    t.b.add(tile.PrintOp.make(" ".join(words), [value.ssa for value in shown], [c.ssa for c in t.coordinates]))


def run_time_assert(t: Tracer, fact: Value, text: Any, at: ast.AST | None) -> None:
    """Check a condition where the program runs, of a tile that it holds for every element."""
    if fact.dtype is not i1:
        raise t.error(f"a condition must be i1, found {describe(fact)}", "compare it: x != 0")
    if not isinstance(text, str):
        raise t.error(f"the message of an assert must be a text known when compiling, found {describe(text)}", "print values with tesela.print", at)
    if fact.shape:
        fact = t.b.cast(fact, i32)
        while fact.shape:
            fact = t.b.emit(tile.ReduceOp.make(ReduceKind.MIN, fact.ssa, len(fact.shape) - 1), i32, fact.shape[:-1])
        fact = t.b.compare("!=", fact, t.b.constant(0, i32))
    t.b.add(tile.AssertOp.make(fact.ssa, text, [c.ssa for c in t.coordinates]))
