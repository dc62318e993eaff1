"""Expected diagnostics: comments that say which errors a test file must cause, and the comparison with what happened.

    %0 = arith.addi %a, %b : i32       // expected-error {{use of undefined value %b}}
    // expected-error@+1 {{operand is used with type f32, ...}}
    %1 = arith.addi %a, %f : i32

`expected-error`, `expected-warning` and `expected-note` name the severity, `@+N` and `@-N` a line relative to the
comment's, `@unknown` a diagnostic without a place. The text in braces is the whole message (its first line), in which
`...` stands for anything. Every diagnostic must be expected, and every expectation met, exactly once. `expected-hint`
checks the hint of a diagnostic on that line; hints need not be stated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..dialects.diagnostics import Diagnostic, Location

_COMMENT = re.compile(r"expected-(error|warning|note|hint)(@[^\s{]+)?\s*\{\{(.*?)\}\}")
_LIKE_COMMENT = re.compile(r"expected-(error|warning|note|hint)\b")


@dataclass(frozen=True)
class Expectation:
    """One expected diagnostic: where it is stated, what kind, on which line (None: without a place), which message."""

    stated_at: Location
    kind: str
    line: int | None
    message: str

    def matches(self, kind: str, line: int | None, message: str) -> bool:
        """Whether a diagnostic of this kind, line and message is the expected one."""
        if kind != self.kind or line != self.line:
            return False
        pattern = ".*".join(re.escape(part) for part in self.message.split("..."))
        return re.fullmatch(pattern, message) is not None


def find_expectations(text: str, filename: str, first_line: int = 1) -> tuple[list[Expectation], list[Diagnostic]]:
    """The expectations in a text whose first line has the number `first_line`, and errors for malformed ones."""
    expectations: list[Expectation] = []
    errors: list[Diagnostic] = []
    for number, line in enumerate(text.split("\n"), first_line):
        found = list(_COMMENT.finditer(line))
        for match in found:
            place = Location(filename, number, match.start() + 1)
            kind, at, message = match.groups()
            if at == "@unknown":
                expectations.append(Expectation(place, kind, None, message))
            elif at is None or re.fullmatch(r"@[+-]\d+", at):
                expectations.append(Expectation(place, kind, number + int(at[1:] if at else 0), message))
            else:
                errors.append(Diagnostic("error", f"'{at}' is none of @+N, @-N and @unknown", place))
        starts = {match.start() for match in found}
        for match in _LIKE_COMMENT.finditer(line):
            if match.start() not in starts:
                message = f"expected-{match[1]} is not followed by {{{{message}}}}"
                errors.append(Diagnostic("error", message, Location(filename, number, match.start() + 1)))
    return expectations, errors


def compare(expectations: Iterable[Expectation], diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Errors for what was expected and did not come, and for what came and was not expected."""
    open_expectations = list(expectations)
    errors: list[Diagnostic] = []

    def meet(kind: str, diagnostic: Diagnostic, message: str) -> None:
        line = diagnostic.location.line if diagnostic.location else None
        first = message.split("\n")[0]
        for expectation in open_expectations:
            if expectation.matches(kind, line, first):
                open_expectations.remove(expectation)
                return
        if kind != "hint":
            errors.append(Diagnostic("error", f"unexpected {kind}: {first}", diagnostic.location))

    def visit(diagnostic: Diagnostic) -> None:
        meet(diagnostic.severity, diagnostic, diagnostic.message)
        if diagnostic.hint:
            meet("hint", diagnostic, diagnostic.hint)
        for note in diagnostic.notes:
            visit(note)

    for diagnostic in diagnostics:
        visit(diagnostic)
    for expectation in open_expectations:
        where = "without a place" if expectation.line is None else f"on line {expectation.line}"
        message = f"expected {expectation.kind} {where} did not come: {expectation.message}"
        errors.append(Diagnostic("error", message, expectation.stated_at))
    return errors
