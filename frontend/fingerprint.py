"""What a kernel depends on outside of its own text, found without tracing it: the key under which the disk cache knows it.

A kernel is stale when its text, a function that it calls, or a global or closed-over value that any of these read has changed. The
tracer sees exactly what is read, but it needs xDSL; so here the syntax trees are searched for names, and whatever a name of the
surroundings stands for is digested, functions with all that they name in turn. That is at least what the tracer reads; where
it is not (`covers` compares), nothing is cached.

    SCALE = 2.0                      # a kernel that calls act: digest of its text, of act's text, and of "SCALE = 2.0"
    def act(x): return x * SCALE     # a change of any of them is another key

Text counts with its place: files and lines stand in the code that is made, for profilers, and in messages.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..dialects.diagnostics import TeselaError
from .kernel import InlineFunction, KernelFunction
from .source import Capture, SourceFunction, snapshot
from .types import Array, Dim, DType, DTypeVariable
from .words import Word


class Unknown(Exception):
    """A value of which it cannot be told what a kernel would read."""


@dataclass
class Dependencies:
    """What a kernel depends on. `key`: a digest of it, or None where it cannot be told; `captures`: values from outside, by scope and name."""

    key: str | None
    captures: dict[tuple[int, str], Capture] = field(default_factory=dict)

    def covers(self, captures: Iterable[Capture]) -> bool:
        """Whether all that a tracer captured is among it, with the same values."""
        for seen in captures:
            mine = self.captures.get((id(seen.scope), seen.name))
            if mine is None or not (mine.value is seen.value or snapshot(mine.value) == snapshot(seen.value)):
                return False
        return True

    def changeable(self) -> tuple[Capture, ...]:
        """What a launch must find unchanged. Words, types and modules do not count."""
        return tuple(c for c in self.captures.values() if not isinstance(c.value, Word | DType | ModuleType | BuiltinFunctionType | type))


MAX_FUNCTIONS = 1000
"""A kernel that reaches more functions than this names something that is no helper of it."""


def dependencies(kernel: KernelFunction, bound: Mapping[str, Any]) -> Dependencies:
    """What a kernel depends on, with these compile-time values."""
    search = _Search()
    try:
        source = kernel.source
        search.add(repr(sorted(kernel.amounts.items())))
        for param in kernel.params:
            annotation = repr(param.annotation) if isinstance(param.annotation, Array | DType) else "constexpr"
            search.add(param.name, annotation)
        for name, value in bound.items():
            search.add(name)
            search.value(value)
        dims = {n for p in kernel.arguments if isinstance(p.annotation, Array) for e in p.annotation.shape for n in e.symbols()}
        search.function(source, dims | set(kernel.type_variables))
    except (Unknown, TeselaError):  # without its source it cannot be traced either, which says so
        return Dependencies(None, search.captures)
    return Dependencies(search.state.hexdigest(), search.captures)


class _Search:
    """Digests functions and all that they name."""

    def __init__(self) -> None:
        self.state = hashlib.sha256()
        self.captures: dict[tuple[int, str], Capture] = {}
        self._functions: dict[FunctionType, int] = {}

    def add(self, *texts: str) -> None:
        for text in texts:
            data = text.encode(errors="surrogatepass")
            self.state.update(b"%d:" % len(data))
            self.state.update(data)

    def value(self, value: Any) -> None:
        """Digest a value of the Python world. What a kernel cannot use counts by its type: a program that uses it is never made."""
        match value:
            case InlineFunction():
                self.value(value.function)
            case FunctionType():
                if value in self._functions:
                    self.add("again", str(self._functions[value]))
                    return
                if len(self._functions) >= MAX_FUNCTIONS:
                    raise Unknown
                self._functions[value] = len(self._functions)
                try:
                    source = SourceFunction(value)
                except TeselaError:
                    self.add("unreadable", value.__module__, value.__qualname__)
                else:
                    for capture in Capture.of_defaults(value):
                        self.captures[id(value), capture.name] = capture
                    self.function(source, set())
            case tuple() | list():
                self.add("items", str(len(value)))
                for item in value:
                    self.value(item)
            case int():  # Python refuses to spell the decimal digits of a long one
                self.add(type(value).__name__, hex(value))
            case None | float() | str() | DType() | DTypeVariable() | Dim() | Word():
                self.add(type(value).__name__, repr(value))
            case type() | BuiltinFunctionType():
                self.add("name", str(value.__module__), value.__qualname__)
            case ModuleType():
                raise Unknown  # an attribute of it could be read through any variable
            case _ if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a NumPy scalar
                self.value(value.item())
            case _:
                self.add("other", type(value).__module__, type(value).__qualname__)

    def function(self, source: SourceFunction, symbols: set[str]) -> None:
        """Digest a function's text, its defaults and what it names; `symbols` are names that mean something else in it."""
        function = source.function
        self.add("def", source.file, str(source.text.first_line), *source.text.lines)
        self.value(function.__defaults__)
        for name, value in (function.__kwdefaults__ or {}).items():
            self.add(name)
            self.value(value)
        own = source.text.locals | symbols
        for statement in source.tree.body:
            self._names(source, statement, own)

    def _names(self, source: SourceFunction, node: ast.AST, own: frozenset[str] | set[str]) -> None:
        """Digest what the names in a node stand for, `module.name` as one."""
        path: list[str] = []
        base = node
        while isinstance(base, ast.Attribute):
            path.append(base.attr)
            base = base.value
        if not isinstance(base, ast.Name):
            for child in ast.iter_child_nodes(node):
                self._names(source, child, own)
            return
        if base.id in own or (capture := source.captured(base.id)) is None:
            return
        while path and isinstance(capture.value, ModuleType):
            scope, name = vars(capture.value), path.pop()
            try:
                capture = Capture(scope, name, getattr(capture.value, name))
            except AttributeError:
                self.add("no attribute", name)
                return
        key = id(capture.scope), capture.name
        self.add(capture.name)
        if key not in self.captures:
            self.captures[key] = Capture(capture.scope, capture.name, snapshot(capture.value))
        self.value(capture.value)
