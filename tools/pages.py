"""Runs the Python blocks of a documentation page, in order, in one namespace, and compares what they print with what the page shows.

A block ```python is run. A block ```text that follows it (with nothing but blank lines between) is what it must print. The blocks run with the page's own
line numbers, so that an error names the line of the page; kernels in them find their source as they would in a file.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of Python: its first line on the page, its text, and what the page says it prints (None: nothing is said)."""

    line: int
    code: str
    shown: str | None


def blocks(text: str) -> Iterator[Block]:
    """The Python blocks of a page."""
    found = list(FENCE.finditer(text))
    for match, after in zip(found, [*found[1:], None]):
        if match[1] != "python":
            continue
        beside = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        yield Block(text.count("\n", 0, match.start()) + 2, match[2], after[2] if beside else None)


def run_page(path: Path) -> list[str]:
    """Run a page's blocks; what differs from the page, a message each. Exceptions of the blocks are passed on."""
    text = path.read_text()
    name = str(path)
    namespace: dict[str, Any] = {"__name__": "page", "__file__": name}
    # As the blocks stand on the page, so that lines agree.
    lines = [""] * (text.count("\n") + 1)
    for block in blocks(text):
        for number, line in enumerate(block.code.splitlines()):
            lines[block.line - 1 + number] = line
    source = "\n".join(lines) + "\n"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    wrong = []
    try:
        for block in blocks(text):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), namespace)
            if block.shown is not None and said.getvalue() != block.shown:
                wrong.append(f"{path.name}:{block.line}: the block prints\n{said.getvalue()}but the page shows\n{block.shown}")
    finally:
        linecache.cache.pop(name, None)
    return wrong
