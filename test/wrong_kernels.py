"""Kernels that are wrong in one place, and what tests of their errors share: the expected message stands in a comment under the place.

The line after the place holds a caret under the first character of the expression, the message, and (after ' -> ') the hint; `{line - 2}` in a message is
the number of the line that many above.
"""

from __future__ import annotations

import inspect
import re

import pytest

import tesela
from tesela import TeselaError
from tesela.lowering.pipeline import lower_to

MARK = re.compile(r"^\s*#[ ]*\^ (?P<text>.*)$")


class WrongKernels:
    """The wrong kernels of one file."""

    def __init__(self):
        self.kernels = []
        self._values = {}

    def wrong(self, function):
        """Register a kernel that must not get to the async level."""
        self.kernels.append(function)
        return function

    def values(self, **constants):
        """Compile-time values for the next kernel."""

        def register(function):
            self._values[function] = constants
            return function

        return register

    def check(self, function):
        """The kernel is refused with the expected message, hint and place."""
        line, column, message, hint = expected(function)
        kernel = tesela.kernel(function)
        with pytest.raises(TeselaError) as caught:
            lower_to(kernel.trace(**self._values.get(function, {})), "async", "sm_90a")
        (found,) = caught.value.diagnostics
        message = re.sub(r"\{line ([+-]) (\d+)\}", lambda m: str(line + int(m[1] + m[2])), message)
        assert (found.message, found.hint) == (message, hint)
        assert (found.location.file, found.location.line, found.location.column) == (inspect.getsourcefile(function), line, column)
        assert f"{line}:{column}: error:" in str(caught.value)


def expected(function):
    """(line, column, message, hint) of the caret in a function's source."""
    lines, first = inspect.getsourcelines(function)
    found = [(number, line) for number, line in enumerate(lines) if MARK.match(line)]
    assert len(found) == 1, f"{function.__name__}: one caret is needed"
    number, line = found[0]
    message, _, hint = MARK.match(line)["text"].partition(" -> ")
    return first + number - 1, line.index("^") + 1, message, hint or None
