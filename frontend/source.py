"""A Python function as the tracer reads it: its syntax tree with places in the file, what it captures, and what is live where.

Liveness decides which variables a loop carries and which a conditional merges. A variable is *live* at a point if a later read may see
the value it has there. The language has no break, continue or goto, so one backward walk over the statements does it, and a loop is
walked twice: what its body reads before writing is live at its end too.

    for k in range(n):     # live at the head: acc (read before written, and after the loop), n is not assigned
        t = f(k)           # t is written before it is read: local to a trip
        acc = acc + t
    return acc
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from tokenize import TokenError
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from ..dialects.diagnostics import Location, TeselaError


@dataclass(frozen=True)
class Capture:
    """A name that a function takes from outside, and what it stood for: a compiled kernel is stale when that has changed. Of a function as the scope,
    `name` is an attribute."""

    scope: dict[str, Any] | CellType | FunctionType
    name: str
    value: Any

    @staticmethod
    def of_defaults(function: FunctionType) -> list[Capture]:
        """The values that parameters of a helper have where a call leaves them out."""
        found = ((name, getattr(function, name)) for name in ("__defaults__", "__kwdefaults__"))
        return [Capture(function, name, snapshot(value)) for name, value in found if value]

    def is_current(self) -> bool:
        """Whether the name still stands for the same value."""
        try:
            if type(self.scope) is dict:
                now = self.scope[self.name]
            else:
                now = self.scope.cell_contents if type(self.scope) is CellType else getattr(self.scope, self.name)
        except (KeyError, ValueError):
            return False
        return now is self.value or (isinstance(self.value, tuple | list) and snapshot(now) == snapshot(self.value))


def snapshot(value: Any) -> Any:
    """A copy of a captured value that later changes of a list or a dictionary do not reach; these become tuples."""
    if isinstance(value, dict):
        value = tuple(value.items())
    return tuple(map(snapshot, value)) if isinstance(value, tuple | list) else value


@dataclass(frozen=True, eq=False)
class SourceText:
    """The text of one function definition."""

    file: str
    tree: ast.FunctionDef
    lines: list[str]
    first_line: int
    locals: frozenset[str]
    """Parameters and all names that the function assigns."""
    flow: Flow = field(repr=False)


class SourceFunction:
    """A function with its text and what it captures."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.name = function.__name__
        self.text = _read_text(function)
        self.file = self.text.file
        self.tree = self.text.tree
        self.flow = self.text.flow

    def place(self, node: ast.AST) -> Location:
        """Where a node stands in the file, as editors count: from 1, in characters."""
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        number = line - self.text.first_line
        text = self.text.lines[number] if 0 <= number < len(self.text.lines) else ""
        if not text.isascii():
            column = len(text.encode()[:column].decode(errors="replace"))
        return Location(self.file, line, column + 1)

    def captured(self, name: str) -> Capture | None:
        """A name of the enclosing functions or of the module, with its value now."""
        code = self.function.__code__
        if name in code.co_freevars and self.function.__closure__ is not None:
            cell = self.function.__closure__[code.co_freevars.index(name)]
            try:
                return Capture(cell, name, cell.cell_contents)
            except ValueError:  # an enclosing function assigns it later
                return None
        if name in self.function.__globals__:
            return Capture(self.function.__globals__, name, self.function.__globals__[name])
        return None

    def visible(self) -> set[str]:
        """All names that `captured` finds."""
        return {*self.function.__code__.co_freevars, *self.function.__globals__}


_TEXTS: WeakKeyDictionary[CodeType, SourceText] = WeakKeyDictionary()
"""Texts read before; functions made by one `def` share a code object."""


def _read_text(function: FunctionType) -> SourceText:
    """Read a function's source; TeselaError where there is none (a function typed into a prompt, or made by exec)."""
    code = function.__code__
    found = _TEXTS.get(code)
    if found is not None and found.file == code.co_filename:  # code objects of different files may be equal
        return found
    try:
        # Of the code, not of the function: a wrapper of functools.wraps would be passed over for what it wraps.
        lines, first = inspect.getsourcelines(code)
    except (TokenError, SyntaxError, IndexError):
        raise _changed(function) from None
    except (OSError, TypeError):
        raise TeselaError.at(
            Location(code.co_filename, code.co_firstlineno, 1),
            f"the source of {function.__name__} cannot be read",
            "define it in a file or a notebook cell: a kernel is compiled from its source text",
        ) from None
    if _is_of_a_file(function) and not _is_in(code.co_filename, code):
        raise _changed(function)
    text = "".join(lines)
    # An indented function stands under an `if`: no dedenting, so that columns and multi-line strings stay what they are.
    indented = lines[0][:1].isspace()
    try:
        tree = ast.parse("if 1:\n" + text if indented else text)
    except SyntaxError:
        raise TeselaError.at(
            Location(code.co_filename, first, 1), f"the source of {function.__name__} cannot be read on its own"
        ) from None
    body = tree.body[0].body if indented and isinstance(tree.body[0], ast.If) else tree.body
    if not isinstance(body[0], ast.FunctionDef):
        what = "an async function" if isinstance(body[0], ast.AsyncFunctionDef) else "a lambda"
        raise TeselaError.at(
            Location(code.co_filename, first, 1), f"{what} cannot be compiled", "write a function with def"
        )
    ast.increment_lineno(tree, first - 1 - indented)
    definition = body[0]
    flow = Flow(definition.body)
    parameters = {arg.arg for arg in ast.walk(definition.args) if isinstance(arg, ast.arg)}
    local_names = frozenset(parameters | flow.assigned_names)
    found = _TEXTS[code] = SourceText(code.co_filename, definition, lines, first, local_names, flow)
    return found


def _changed(function: FunctionType) -> TeselaError:
    code = function.__code__
    return TeselaError.at(
        Location(code.co_filename, code.co_firstlineno, 1),
        f"the file has changed since {function.__name__} was imported from it: what stands there now is not what it was made from",
        "import it again (importlib.reload), or start the process again",
    )


def _is_of_a_file(function: FunctionType) -> bool:
    """Whether its code is what Python's own compiler made of the text in a file: a loader of another kind may have rewritten it (pytest's rewrites assertions)."""
    return type(function.__globals__.get("__loader__")) is SourceFileLoader and not function.__code__.co_filename.startswith("<")


def _is_in(path: str, code: CodeType) -> bool:
    """Whether the text of a file, compiled, has this code at its line. (Compiled as a whole: what a definition becomes depends on what the module imports.)"""
    lines = tuple(linecache.getlines(path))
    try:
        return any(_is_same(found, code) for found in _codes_at(lines, path).get((code.co_firstlineno, code.co_name), ()))
    except SyntaxError:
        return False


@functools.lru_cache(16)
def _codes_at(lines: tuple[str, ...], path: str) -> dict[tuple[int, str], list[CodeType]]:
    """All codes of a module, by line and name."""
    found: dict[tuple[int, str], list[CodeType]] = {}
    left = [compile("".join(lines), path, "exec", dont_inherit=True)]
    while left:
        code = left.pop()
        found.setdefault((code.co_firstlineno, code.co_name), []).append(code)
        left += _codes(code)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _is_same(a: CodeType, b: CodeType) -> bool:
    """Whether two codes do the same: all but the places of their lines."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars, a.co_cellvars) != (b.co_code, b.co_names, b.co_varnames, b.co_freevars, b.co_cellvars):
        return False
    return len(a.co_consts) == len(b.co_consts) and all(
        _is_same(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType) else repr(x) == repr(y) for x, y in zip(a.co_consts, b.co_consts, strict=True)
    )


class Flow:
    """Liveness of a function's variables."""

    def __init__(self, body: list[ast.stmt]):
        self.after: dict[ast.stmt, frozenset[str]] = {}
        """Of an if or a loop: what is live after it."""
        self.head: dict[ast.stmt, frozenset[str]] = {}
        """Of a loop: what is live before each trip, its own variable aside."""
        self.assigned: dict[ast.stmt, tuple[str, ...]] = {}
        """Of an if or a loop: the names that anything in it assigns, in order of appearance."""
        self._block(body, frozenset())
        self.assigned_names = frozenset(stored_names(body))

    def _block(self, statements: list[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        for statement in reversed(statements):
            live = self._statement(statement, live)
        return live

    def _statement(self, node: ast.stmt, live: frozenset[str]) -> frozenset[str]:
        match node:
            case ast.If():
                self.after[node] = live
                self.assigned[node] = stored_names([*node.body, *node.orelse])
                return self._block(node.body, live) | self._block(node.orelse, live) | read_names(node.test)
            case ast.For() | ast.While():
                self.after[node] = live
                self.assigned[node] = stored_names(node.body)
                is_for = isinstance(node, ast.For)
                target = frozenset(stored_names([node.target])) if is_for else frozenset()
                tested = frozenset() if is_for else read_names(node.test)
                head = live | tested
                for _ in range(2):
                    head = head | (self._block(node.body, head) - target)
                self.head[node] = head
                return head | (read_names(node.iter) if is_for else frozenset())
            case ast.With():
                bound = frozenset(stored_names(item.optional_vars for item in node.items if item.optional_vars is not None))
                live = self._block(node.body, live) - bound
                return live.union(*(read_names(item.context_expr) for item in node.items))
            case ast.AugAssign(target=ast.Name(id=name)):
                return live | read_names(node.value) | {name}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                return (live - frozenset(stored_names(targets))) | read_names(node)
            case _:
                return live | read_names(node)


def stored_names(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """The names that these nodes, or anything in them, assign; in order of first appearance in the text."""
    places: dict[str, tuple[int, int]] = {}
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                place = (inner.lineno, inner.col_offset)
                places[inner.id] = min(place, places.get(inner.id, place))
    return tuple(sorted(places, key=places.__getitem__))


def read_names(node: ast.AST) -> frozenset[str]:
    """The names that a node, or anything in it, reads."""
    return frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load))
