"""Diagnostics: where something went wrong, what held, what was required and what to do.

Every failure that a user can cause reaches the user as a `TeselaError`, which carries one or more `Diagnostic`s. A
diagnostic has a place (file, line, column, all counted from 1), a message, and, where there is one, a hint that says
what to do about it. `render` turns diagnostics into text in the style of clang and rustc:

    gemm.mlir:12:10: error: operand 1 has type tensor<64x256xf32>, but tensor<64x256xbf16> is required
        %d = tile.dot %a, %t, %c : tensor<128x64xbf16>, tensor<64x256xf32> -> tensor<128x256xf32>
             ^
      hint: cast the operand with tile.cast

This module imports nothing of xDSL when it is loaded, so that a warm start of the runtime can raise errors without
paying for that import; `location_of` imports it only when it is handed an IR object.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
TRACEBACK_VARIABLE = "TESELA_TRACEBACK"
"""Environment variable; 1: errors keep the frames inside of this package."""

Severity = Literal["error", "warning", "note"]

MAX_SHOWN_COLUMNS = 160
"""Source lines longer than this are shown as a window round the caret."""


@dataclass(frozen=True)
class Location:
    """A place in a source text: file name as the user gave it, line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass
class Diagnostic:
    """One message to the user, with its place and, where there is one, what to do about it."""

    severity: Severity
    message: str
    location: Location | None = None
    hint: str | None = None
    notes: list[Diagnostic] = field(default_factory=list)


class TeselaError(Exception):
    """A failure that the user can understand and act on; `str()` gives the rendered diagnostics.

    `sources` maps file names to texts for places that no file on disk can show (text given as a string, standard
    input); whoever knows the text adds it, see `source_text`.
    """

    diagnostics: list[Diagnostic]
    sources: dict[str, str]

    def __init__(self, diagnostics: Iterable[Diagnostic] | str, sources: Mapping[str, str] | None = None):
        if isinstance(diagnostics, str):
            diagnostics = [Diagnostic("error", diagnostics)]
        self.diagnostics = list(diagnostics)
        self.sources = dict(sources or {})
        super().__init__(self.diagnostics)

    @classmethod
    def at(
        cls, at: Any, message: str, hint: str | None = None, notes: Iterable[Diagnostic] | None = None
    ) -> TeselaError:
        """One error at a `Location`, an operation, a value, a location attribute, or (None) at no place."""
        return cls([Diagnostic("error", message, nearest_location(at), hint, list(notes or ()))])

    def prefixed(self, text: str, notes: Iterable[Diagnostic] = ()) -> TeselaError:
        """The same with `text` before every message, and more notes."""
        more = list(notes)
        return type(self)(
            [Diagnostic(d.severity, text + d.message, d.location, d.hint, [*d.notes, *more]) for d in self.diagnostics], self.sources
        )

    def __str__(self) -> str:
        return render(self.diagnostics, self.sources).rstrip("\n")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.diagnostics, self.sources)


def short(error: TeselaError) -> TeselaError:
    """For `raise short(error) from None` where users call: the error without the frames between there and the place in the package that found the mistake, which
    is theirs and which its diagnostics tell."""
    return error if os.environ.get(TRACEBACK_VARIABLE) == "1" else error.with_traceback(None)


def called_by_users(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: errors out of the function have short tracebacks."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TeselaError as error:
            raise short(error) from None

    return call


@contextmanager
def source_text(filename: str, text: str) -> Iterator[None]:
    """Within it, a TeselaError learns the text of `filename`, so that its lines can be shown."""
    try:
        yield
    except TeselaError as error:
        error.sources.setdefault(filename, text)
        raise


def location_of(at: Any) -> Location | None:
    """The source position of an operation, of a value (its definition), or that a location attribute names.

    Of compound location attributes the first position counts: the callee of a call site, the first of a fused one.
    """
    if at is None or isinstance(at, Location):
        return at
    from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc
    from xdsl.ir import BlockArgument, OpResult

    if isinstance(at, OpResult):
        at = at.op
    if not isinstance(at, FileLineColLoc | FusedLoc | NameLoc | CallSiteLoc):
        at = getattr(at, "location", None)
    if isinstance(at, BlockArgument):
        at = at.location
    match at:
        case FileLineColLoc():
            return Location(at.filename.data, at.line.data, at.column.data)
        case NameLoc():
            return location_of(at.location)
        case CallSiteLoc():
            return location_of(at.callee)
        case FusedLoc(locations=ArrayAttr() as parts):
            return next((place for part in parts if (place := location_of(part)) is not None), None)
        case _:
            return None


def nearest_location(at: Any) -> Location | None:
    """`location_of(at)`, or the position of the nearest enclosing operation that has one."""
    if at is None or isinstance(at, Location):
        return at
    from xdsl.ir import Block, Operation, Region, SSAValue

    place = location_of(at)
    if isinstance(at, SSAValue):
        at = at.owner
    while place is None and isinstance(at, Operation | Block | Region):
        place = location_of(at) if isinstance(at, Operation) else None
        at = at.parent_node
    return place


def value_name(value: Any) -> str:
    """What messages call a value: its name, or what made it and where: '%acc', 'the load at 12:16'."""
    from xdsl.ir import OpResult

    if value.name_hint:
        return f"%{value.name_hint}"
    maker = value.op.name.rsplit(".", 1)[-1] if isinstance(value, OpResult) else "value"
    place = location_of(value) or nearest_location(value.owner)
    return f"the {maker} at {place.line}:{place.column}" if place is not None else f"a {maker}"


def location_attr(at: Any) -> Any:
    """The location attribute for a place: of an operation, value, `Location`, or unknown. The inverse of `location_of`.

    Passes give it to the operations they create: `Op.create(..., location=location_attr(old_op))`.
    """
    from xdsl.dialects.builtin import UNKNOWN_LOC, FileLineColLoc, IntAttr, StringAttr
    from xdsl.ir import BlockArgument, Operation, OpResult

    if isinstance(at, OpResult):
        at = at.op
    if isinstance(at, Operation | BlockArgument):
        return at.location
    if isinstance(at, Location):
        return FileLineColLoc(StringAttr(at.file), IntAttr(at.line), IntAttr(at.column))
    return UNKNOWN_LOC if at is None else at


class Emitter:
    """Collects diagnostics, so that a pass or a verifier reports everything it finds and not only the first thing."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def _add(self, severity: Severity, at: Any, message: str, hint: str | None) -> Diagnostic:
        self.diagnostics.append(Diagnostic(severity, message, nearest_location(at), hint))
        return self.diagnostics[-1]

    def error(self, at: Any, message: str, hint: str | None = None) -> Diagnostic:
        """Record an error at a `Location`, operation or value; returns it, so that notes can be appended."""
        return self._add("error", at, message, hint)

    def warning(self, at: Any, message: str, hint: str | None = None) -> Diagnostic:
        """Record a warning."""
        return self._add("warning", at, message, hint)

    def note(self, at: Any, message: str, hint: str | None = None) -> Diagnostic:
        """Record a note of its own: something the user may want to know about what was done."""
        return self._add("note", at, message, hint)

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self.diagnostics)

    def raise_if_errors(self) -> None:
        """Raise one TeselaError with all diagnostics if any of them is an error, and forget them."""
        if self.has_errors:
            diagnostics, self.diagnostics = self.diagnostics, []
            raise TeselaError(diagnostics)


def render(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> str:
    """The diagnostics as text, one block each, every line ended by a newline.

    Source lines come from `sources` (file name -> text) or from the file itself; where neither has the line, the block
    has no excerpt.
    """
    return "".join(_render_one(d, sources or {}) for d in diagnostics)


def _render_one(diagnostic: Diagnostic, sources: Mapping[str, str]) -> str:
    place = diagnostic.location
    head, *rest = diagnostic.message.split("\n")
    lines = [f"{place}: {diagnostic.severity}: {head}" if place else f"{diagnostic.severity}: {head}"]
    lines += ["  " + line for line in rest]
    if place is not None and (source := _source_line(place, sources)) is not None:
        lines += _excerpt(source, place.column)
    if diagnostic.hint:
        lines += ["  hint: " + diagnostic.hint.replace("\n", "\n        ")]
    return "\n".join(lines) + "\n" + "".join(_render_one(note, sources) for note in diagnostic.notes)


def _source_line(place: Location, sources: Mapping[str, str]) -> str | None:
    if (text := sources.get(place.file)) is not None:
        lines = text.split("\n")
        # A column one past the last line is where a parser stands at the end of the text.
        return lines[place.line - 1].rstrip("\r") if 0 < place.line <= len(lines) else None
    linecache.checkcache(place.file)
    line = linecache.getline(place.file, place.line)
    return line.rstrip("\r\n") if line else None


def _excerpt(source: str, column: int) -> list[str]:
    """The source line and a caret under `column`; tabs are kept in the padding so that the caret stays in place."""
    start = 0
    if len(source) > MAX_SHOWN_COLUMNS:
        start = min(max(0, column - 1 - MAX_SHOWN_COLUMNS // 2), len(source) - MAX_SHOWN_COLUMNS)
    shown = source[start : start + MAX_SHOWN_COLUMNS]
    before = "..." if start else ""
    after = "..." if start + MAX_SHOWN_COLUMNS < len(source) else ""
    padding = "".join("\t" if c == "\t" else " " for c in before + shown[: max(column - 1 - start, 0)])
    return [f"  {before}{shown}{after}", f"  {padding}^"]
