"""Passes: the table of all passes by name, and pipelines of them as text.

`PASSES` is lazy: listing the passes imports none of them, and running one imports only that one.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
import types
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dialects.diagnostics import Location, TeselaError, source_text

if TYPE_CHECKING:
    from .base import Pass


class PassEntry(NamedTuple):
    """Where a pass is ('module:class') and what it does, in one line."""

    target: str
    summary: str


PASSES: dict[str, PassEntry] = {
    "split-reduction": PassEntry(
        "tesela.passes.split_reduction:SplitReduction", "let several blocks share the trips of a loop that only adds up"
    ),
    "plan-dataflow": PassEntry(
        "tesela.passes.plan_dataflow:PlanDataflow", "let the operands of dots travel through channels; choose the warps"
    ),
    "infer-layouts": PassEntry("tesela.passes.infer_layouts:InferLayouts", "give every tile and buffer a layout"),
    "load-early": PassEntry("tesela.passes.load_early:LoadEarly", "ask for small tiles that are used after a loop of dots before it"),
    "form-clusters": PassEntry(
        "tesela.passes.form_clusters:FormClusters", "let blocks at neighbouring points of the grid share loads, as clusters"
    ),
    "persist-grid": PassEntry(
        "tesela.passes.persist_grid:PersistGrid", "let one block for each multiprocessor walk the grid, in an order that shares loads"
    ),
    "stage-stores": PassEntry("tesela.passes.stage_stores:StageStores", "store results through shared memory, by TMA"),
    "specialize-warps": PassEntry(
        "tesela.passes.specialize_warps:SpecializeWarps", "split kernels into a role that loads by TMA and one that computes"
    ),
    "pipeline-loops": PassEntry(
        "tesela.passes.pipeline_loops:PipelineLoops", "fill channels some trips ahead; keep dots in flight between trips"
    ),
    "split-loops": PassEntry("tesela.passes.split_loops:SplitLoops", "leave masks out of the trips of loops that need none"),
    "skip-identities": PassEntry("tesela.passes.skip_identities:SkipIdentities", "let warps leave out multiplications by one"),
    "split-slots": PassEntry("tesela.passes.split_slots:SplitSlots", "let warpgroups wait for their own rows of a tile, and give them back, by themselves"),
    "join-channels": PassEntry(
        "tesela.passes.join_channels:JoinChannels", "let channels that are filled, taken and given back together share mbarriers"
    ),
    "alloc-shared": PassEntry("tesela.passes.alloc_shared:AllocShared", "place channels and mbarriers in shared memory"),
    "join-dots": PassEntry("tesela.passes.join_dots:JoinDots", "let dots with one left operand, and right ones side by side, be one instruction"),
    "check-async": PassEntry("tesela.passes.check_async:CheckAsync", "check the use of channels, tokens and pending tiles; change nothing"),
    "canonicalize": PassEntry("tesela.passes.canonicalize:Canonicalize", "fold constants and simplify operations"),
    "cse": PassEntry("tesela.passes.cse:EliminateCommonSubexpressions", "merge equal operations without effects"),
    "dce": PassEntry("tesela.passes.dce:EliminateDeadCode", "erase operations whose results nobody uses"),
    "verify": PassEntry("tesela.passes.verify:Verify", "check every operation's rules and dominance; change nothing"),
}


def add_passes(entries: dict[str, PassEntry]) -> None:
    """Adds the passes of a layer to the right, which names its own when it is imported."""
    PASSES.update(entries)


PIPELINE_NAME = "<pipeline>"
"""The file name under which diagnostics show the text of a pipeline."""


def get_pass(name: str) -> type[Pass]:
    """The class of a pass. Raises TeselaError that names the nearest passes for an unknown name."""
    return _lookup(name, None)


def _lookup(name: str, place: Location | None) -> type[Pass]:
    if (entry := PASSES.get(name)) is None:
        near = difflib.get_close_matches(name, PASSES, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known passes: {', '.join(PASSES)}"
        raise TeselaError.at(place, f"unknown pass '{name}'", hint)
    module, attribute = entry.target.split(":")
    return getattr(importlib.import_module(module), attribute)


def pass_options(pass_class: type[Pass]) -> dict[str, tuple[Any, Any]]:
    """The options of a pass: name -> (type, default value)."""
    hints = typing.get_type_hints(pass_class)
    options = {}
    for f in dataclasses.fields(pass_class):  # type: ignore[arg-type]
        default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        options[f.name] = (hints[f.name], default)
    return options


_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z_][\w.-]*)|(?P<mark>[,{}=]))")
_VALUE = re.compile(r"""\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s{}"=]+))""")


def parse_pipeline(text: str) -> list[Pass]:
    """The passes of a pipeline such as `a,b{stages=3 fast=true},c`, with their options set.

    Options stand in braces, separated by spaces; a bare name sets a bool option. Dashes and underscores in option names
    are the same. Raises TeselaError, with a caret into the text, for unknown passes, unknown options and bad values.
    """
    with source_text(PIPELINE_NAME, text):
        return _PipelineParser(text).parse()


class _PipelineParser:
    def __init__(self, text: str):
        self.text = text
        self.pos = 0

    def place(self, pos: int) -> Location:
        line = self.text.count("\n", 0, pos) + 1
        return Location(PIPELINE_NAME, line, pos - self.text.rfind("\n", 0, pos))

    def skip_space(self) -> int:
        while self.pos < len(self.text) and self.text[self.pos].isspace():
            self.pos += 1
        return self.pos

    def peek(self) -> str:
        """The next token, or the next character where no token starts, or '' at the end."""
        start = self.skip_space()
        match = _TOKEN.match(self.text, start)
        return match.group().strip() if match else self.text[start : start + 1]

    def take(self) -> str:
        token = self.peek()
        self.pos += len(token)
        return token

    def word(self, what: str) -> tuple[str, Location]:
        start = self.skip_space()
        match = _TOKEN.match(self.text, start)
        if match is None or match["word"] is None:
            found = f"found '{self.peek()}'" if self.peek() else "the pipeline ends"
            raise TeselaError.at(self.place(start), f"expected {what}, but {found}")
        self.pos = match.end()
        return match["word"], self.place(start)

    def parse(self) -> list[Pass]:
        passes: list[Pass] = []
        if not self.peek():
            return passes
        while True:
            name, place = self.word("the name of a pass")
            pass_class = _lookup(name, place)
            passes.append(pass_class(**(self.options(pass_class) if self.peek() == "{" else {})))
            match self.peek():
                case "":
                    return passes
                case ",":
                    self.take()
                case other:
                    raise TeselaError.at(self.place(self.pos), f"expected ',' between passes, but found '{other}'")

    def options(self, pass_class: type[Pass]) -> dict[str, Any]:
        opening = self.place(self.skip_space())
        self.take()
        known = pass_options(pass_class)
        values: dict[str, Any] = {}
        while (token := self.peek()) != "}":
            if not token:
                raise TeselaError.at(opening, "'{' is never closed", "write the options as {name=value name=value}")
            word, place = self.word("the name of an option or '}'")
            name = word.replace("-", "_")
            if name not in known:
                listed = f"its options: {', '.join(known)}" if known else "it has no options"
                raise TeselaError.at(place, f"pass '{pass_class.name}' has no option '{word}'", listed)
            if name in values:
                raise TeselaError.at(place, f"option '{word}' is given twice")
            text = "true"
            if self.peek() == "=":
                self.take()
                place = self.place(self.skip_space())
                match = _VALUE.match(self.text, self.pos)
                if match is None:
                    raise TeselaError.at(place, f"option '{word}' has no value after '='")
                self.pos = match.end()
                text = match["quoted"] if match["quoted"] is not None else match["plain"]
            values[name] = _convert(text, known[name][0], f"option '{word}' of pass '{pass_class.name}'", place)
        self.take()
        return values


def _convert(text: str, kind: Any, what: str, place: Location) -> Any:
    """The value of an option from its text, by the option's annotation."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kinds = [k for k in typing.get_args(kind) if k is not type(None)]
        return None if text == "none" else _convert(text, kinds[0], what, place)
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return tuple(_convert(part, element, what, place) for part in text.split(",") if part)
    if typing.get_origin(kind) is typing.Literal:
        if text not in typing.get_args(kind):
            raise TeselaError.at(
                place, f"{what} cannot be '{text}'", f"it is one of: {', '.join(typing.get_args(kind))}"
            )
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise TeselaError.at(place, f"{what} is true or false, not '{text}'")
        return text == "true"
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "an integer", float: "a number"}[kind]
        hint = "a blank, not a comma, stands between options" if "," in text else None
        raise TeselaError.at(place, f"{what} takes {wanted}, not '{text}'", hint) from None
