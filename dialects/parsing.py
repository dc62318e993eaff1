"""Text to module and back: positions on every operation, errors with a caret, layouts printed as aliases.

xDSL's parser knows file positions while it reads but leaves every operation at an unknown location, reports an
undefined value at the end of the file, and lets verification failures of attributes escape without a position.
`parse_module` closes these gaps by a subclass that overrides a few of the parser's methods; they are the only
private parts of xDSL that this file leans on (xDSL is pinned). `print_module` adds what the printer lacks: attributes
of the `layout` dialect that occur more than once are printed as aliases, `#tv = #layout.tv<...>` at the top.
"""

from __future__ import annotations

import difflib
import importlib
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute, Block, BlockArgument, Dialect, Operation, Region, SSAValue, TypeAttribute
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.utils.exceptions import MultipleSpansParseError, ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind

from . import DIALECTS
from .diagnostics import Diagnostic, Location, TeselaError, source_text
from .messages import explain
from .tile_types import MAX_NESTING

BUILD_FAILURES = (VerifyException, ValueError, OverflowError)
"""What constructors and verifiers of attributes, types and operations raise for values that the text can state."""


def make_context(allow_unregistered: bool = False) -> Context:
    """A context that knows every dialect of `DIALECTS`; each is imported when a text first names it."""
    context = Context(allow_unregistered=allow_unregistered)
    for name, target in DIALECTS.items():
        context.register_dialect(name, _dialect_factory(target))
    return context


def _dialect_factory(target: str) -> Callable[[], Dialect]:
    module, attribute = target.split(":")
    return lambda: getattr(importlib.import_module(module), attribute)


def parse_module(text: str, filename: str = "<string>", context: Context | None = None) -> ModuleOp:
    """Parse a module; every operation and block argument without a `loc(...)` of its own gets its file position.

    The module is not verified (`verify.verify_module` does that), but attributes and types are, as they are built.
    Raises TeselaError with position and source line for anything that is not a module's text.
    """
    with source_text(filename, text):
        try:
            parser = _LocatingParser(context or make_context(), text, filename)
        except ParseError as error:  # the first token is none
            raise TeselaError(_diagnostics(error)) from None
        try:
            module = parser.parse_module()
        except ParseError as error:
            raise TeselaError(parser.undefined_values() or _diagnostics(error)) from None
        except RecursionError:
            raise TeselaError.at(parser.place(), "the text is nested too deeply to be read", "some 120 regions in one another can be") from None
    if module.location is UNKNOWN_LOC:
        module.location = parser.location_attr(0)
    return module


def _diagnostics(error: ParseError) -> list[Diagnostic]:
    notes = []
    if isinstance(error, MultipleSpansParseError):
        if error.ref_text == "dangling block references:":
            return [Diagnostic("error", f"use of undefined block {s.text}", _place(s)) for s, _ in error.refs]
        text = error.ref_text or "see here"
        notes = [Diagnostic("note", message or text.rstrip(":"), _place(span)) for span, message in error.refs]
    message, hint = explain(error.msg, getattr(error, "op_name", None))
    hint = getattr(error, "hint", hint)
    if (number := _number_without_point(error.span)) is not None:
        if _before_integer_type(error.span):
            message, hint = float_as_integer(number[1], number[0])
        else:
            message, hint = f"'{number[0]}' is no constant: a float has a point", f"write {number[1]}"
    return [Diagnostic("error", message, _place(error.span), hint, notes)]


def _number_without_point(span: Span[Any]) -> tuple[str, str] | None:
    """(the number, how it is written) where an error is at the exponent of a number like 1e10, which the lexer takes for a number and a name."""
    content = span.input.content
    end = re.compile(r"[eE][+-]?\d+|[eE](?=[+-]\d)").match(content, span.start)
    start = re.compile(r"-?\b\d+\Z").search(content[max(0, span.start - 40) : span.start])
    if end is None or start is None:
        return None
    exponent = re.compile(r"[eE][+-]?\d+").match(content, span.start)
    text = exponent[0] if exponent is not None else end[0]
    return start[0] + text, f"{start[0]}.0{text}"


def _before_integer_type(span: Span[Any]) -> bool:
    """Whether what stands here is said to be an integer."""
    return re.compile(r"[\w.+-]*\s*:\s*([su]?i\d+|index)\b").match(span.input.content, span.start) is not None


def float_as_integer(number: str, written: str | None = None) -> tuple[str, str]:
    """(message, hint) for the text of a float where an integer is required."""
    value = float(number)
    hint = f"write {int(value)}" if value.is_integer() else "round it, or take a float type"
    return f"'{written or number}' is a float, and the constant's type an integer type", hint


def _place(span: Span[Any]) -> Location:
    place = span.get_location()
    return Location(place.file, place.line, place.col)


class _DenseElement(AttrParser._TensorLiteralElement):
    """An element of a dense literal; a hexadecimal one of a float type states its bits, as in MLIR, not its value."""

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        if isinstance(type, AnyFloat) and self.span.text.startswith("0x"):
            try:
                return type.unpack(int(self.value).to_bytes(type.compile_time_size, "little"), 1)[0]
            except OverflowError:
                parser.raise_error(f"'{self.span.text}' has more bits than {type}", self.span)
        return super().to_type(parser, type)


class _Lexer(MLIRLexer):
    """xDSL's lexer, but that a string without its closing quote is noticed at once: xDSL's pattern tries every way to cut the rest of the line into
    pieces, 2ⁿ for n characters. And only the digits 0 to 9 begin a number."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def _lex_number(self, start_pos: int) -> MLIRToken:
        if not (digit := self.input.at(start_pos) or "").isascii():
            raise ParseError(Span(start_pos, start_pos + 1, self.input), f"Unexpected character: {digit}")
        return super()._lex_number(start_pos)


class _LocatingParser(Parser):
    """xDSL's parser, with a file position for everything it builds and everything it rejects."""

    _TensorLiteralElement = _DenseElement

    def __init__(self, context: Context, text: str, filename: str):
        self._filename = StringAttr(filename)
        self._line_starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._first_uses: dict[str, Span[str]] = {}
        self._placeholders: dict[SSAValue, Span[str]] = {}
        self._definitions: dict[str, Span[str]] = {}
        self._argument_locations: dict[int, LocationAttr] = {}
        self._consumed: Span[str] | None = None
        self._op_names: list[str] = []
        self._depth = 0
        super().__init__(context, "", filename)
        self._parser_state = ParserState(_Lexer(Input(text, filename)))

    def location_attr(self, position: int) -> FileLineColLoc:
        """The location attribute of an offset into the text."""
        line = bisect_right(self._line_starts, position)
        return FileLineColLoc(self._filename, IntAttr(line), IntAttr(position - self._line_starts[line - 1] + 1))

    def place(self) -> Location:
        """Where the parser stands."""
        return _place(self._current_token.span)

    def undefined_values(self) -> list[Diagnostic]:
        """One error per value that the text uses and never defines, once the text was read to its end."""
        if self._current_token.kind != MLIRTokenKind.EOF:
            return []
        diagnostics = []
        for name in sorted(self.forward_ssa_references, key=lambda name: self._first_uses[name].start):
            use = self._first_uses[name]
            diagnostics.append(Diagnostic("error", f"use of undefined value {use.text}", _place(use)))
            if definition := self._definitions.get(name):
                note = f"{use.text} is defined here, in a region that cannot be seen from the use"
                diagnostics[-1].notes.append(Diagnostic("note", note, _place(definition)))
        return diagnostics

    def _consume_token(self, expected_kind: MLIRTokenKind | None = None):
        if expected_kind is not None and self._current_token.kind is not expected_kind:
            self.raise_error(f"expected {expected_kind.value!r}")  # where xDSL asserts
        token = super()._consume_token(expected_kind)
        self._consumed = token.span
        return token

    def parse_operation(self) -> Operation:
        start = self._current_token.span
        depth = len(self._op_names)
        try:
            op = super().parse_operation()
        except BUILD_FAILURES as error:
            failure = ParseError(start, str(error))
            failure.op_name = self._op_names[depth] if len(self._op_names) > depth else None
            raise failure from None
        del self._op_names[depth:]
        self._check_placeholders(op)
        # An explicit `loc(unknown)` is an equal attribute but not this object, and stays as written.
        if op.location is UNKNOWN_LOC:
            op.location = self.location_attr(start.start)
        for region in op.regions:
            # A terminator that the text leaves out stands where its operation does.
            if (last := region.last_block and region.last_block.last_op) and last.location is UNKNOWN_LOC:
                last.location = op.location
        return op

    def parse_optional_argument(self, expect_type: bool = True) -> Any:
        argument = super().parse_optional_argument(expect_type)
        if isinstance(argument, self.Argument) and (location := self.parse_optional_location()) is not None:
            # Not on the argument itself: the formats of functions overwrite it.
            self._argument_locations[argument.name.start] = location
        return argument

    def parse_optional_region(self, arguments: Any = None) -> Region | None:
        if self._current_token.kind is not MLIRTokenKind.L_BRACE:
            return None
        self._depth += 1
        if self._depth > MAX_NESTING + 2:  # a module's own and a kernel's do not count
            failure = ParseError(self._current_token.span, f"regions are nested more than {MAX_NESTING} deep")
            failure.hint = "join conditions with arith.andi, or choose by arithmetic"
            raise failure
        region = super().parse_optional_region(arguments)
        self._depth -= 1
        return region

    def parse_optional_builtin_int_or_float_attr(self) -> Any:
        start = self._current_token.span
        try:
            return super().parse_optional_builtin_int_or_float_attr()
        except ParseError as error:
            if not error.msg.startswith("Floating point value is not valid for integer type"):
                raise
            text = re.compile(r"-?\s*[\w.]+(?:(?<=[eE])[+-]\d+)?").match(start.input.content, start.start)
            assert text is not None
            message, hint = float_as_integer(text[0].replace(" ", ""))
            failure = ParseError(start, message)
            failure.hint = hint
            raise failure from None

    def parse_optional_attribute(self) -> Attribute | None:
        start = self._current_token.span
        try:
            return super().parse_optional_attribute()
        except BUILD_FAILURES as error:
            raise ParseError(start, str(error)) from None

    def parse_optional_type(self) -> TypeAttribute | None:
        start = self._current_token.span
        try:
            return super().parse_optional_type()
        except BUILD_FAILURES as error:
            raise ParseError(start, str(error)) from None

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        start = self._consumed
        try:
            return super().parse_dense_int_or_fp_elements_attr(type)
        except ParseError as error:
            # Elements that do not fit the type are noticed behind the type; the literal is what is wrong.
            if error.msg.startswith(("Shape mismatch", "Expected at least one element", "Hex string")):
                error.span = start
            raise

    def resolve_operand(self, operand: UnresolvedOperand, type: Any) -> SSAValue[Any]:
        if operand.operand_name not in self.ssa_values:
            self._first_uses.setdefault(operand.operand_name, operand.span)
        value = super().resolve_operand(operand, type)
        if isinstance(value, ForwardDeclaredValue):
            self._placeholders.setdefault(value, operand.span)
        return value

    def _check_placeholders(self, op: Operation) -> None:
        """Reject an operand that stands for a value defined in a region of the operation itself, as in `scf.for %i = %a to %b step %i`: xDSL has
        put the definition in its place before there was an operation to put it into."""
        for operand in op.operands:
            if not isinstance(operand, ForwardDeclaredValue):
                continue
            use = self._placeholders[operand]
            if operand in self.forward_ssa_references.get(use.text[1:], {}).values():
                continue  # the definition may still come
            error = MultipleSpansParseError(use, f"use of undefined value {use.text}", "", [])
            if definition := self._definitions.get(use.text[1:]):
                note = f"{use.text} is defined here, in a region that cannot be seen from the use"
                error.refs.append((definition, note))
            raise error

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span[str]) -> None:
        self._definitions[name] = span
        for value in values:
            if isinstance(value, BlockArgument) and value.location is UNKNOWN_LOC:
                value.location = self._argument_locations.get(span.start) or self.location_attr(span.start)
        super()._register_ssa_definition(name, values, span)

    def _parse_block(self) -> Block:
        label = self._current_token
        block = super()._parse_block()
        # xDSL does not note the definition of a block that was branched to before, and fails on a second one.
        self.blocks[label.text[1:]] = (block, label.span)
        return block

    def _get_op_by_name(self, name: str) -> type[Operation]:
        if op_type := self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack):
            self._op_names.append(op_type.name)
            return op_type
        dialect, _, _ = name.partition(".")
        if "." in name and dialect not in self.ctx.registered_dialect_names:
            known = sorted(self.ctx.registered_dialect_names)
            error = ParseError(self._consumed, f"unknown dialect '{dialect}' of operation '{name}'")
            hint = f"known dialects: {', '.join(known)}"
        else:
            error = ParseError(self._consumed, f"unknown operation '{name}'")
            near = difflib.get_close_matches(name, [op.name for op in self.ctx.loaded_ops], 3)
            hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else None
        error.hint = hint
        raise error


def print_module(module: Operation, debuginfo: bool = False) -> str:
    """The module's text, with a newline at its end; parsing it and printing again gives the same text.

    With `debuginfo` every operation and labelled block argument is followed by its `loc(...)`.
    """
    printer = _AliasPrinter(debuginfo)
    printer.print_op(module)
    return printer.finish()


class _AliasPrinter(Printer):
    """A printer that leaves a mark where a layout attribute stands, and decides on aliases when all uses are known."""

    ALIASED_DIALECT = "layout."

    def __init__(self, debuginfo: bool):
        self._buffer = StringIO()
        super().__init__(self._buffer, print_debuginfo=debuginfo)
        self._marks: dict[Attribute, int] = {}
        self._bodies: list[str] = []

    def print_attribute(self, attribute: Attribute) -> None:
        if isinstance(attribute, TypeAttribute) or not attribute.name.startswith(self.ALIASED_DIALECT):
            super().print_attribute(attribute)
            return
        if (number := self._marks.get(attribute)) is None:
            outer, self.stream = self.stream, StringIO()
            super().print_attribute(attribute)
            body, self.stream = self.stream.getvalue(), outer
            number = self._marks[attribute] = len(self._bodies)
            self._bodies.append(body)
        self.print_string(f"\0{number}\0")

    def finish(self) -> str:
        """The whole text: alias definitions, an attribute that others use before them, then the module."""
        text = self._buffer.getvalue() + "\n"
        if not self._bodies:
            return text
        names: dict[int, str] = {}
        taken: dict[str, int] = {}
        for attribute, number in self._marks.items():
            mark = f"\0{number}\0"
            if text.count(mark) + sum(body.count(mark) for body in self._bodies) > 1:
                base = attribute.name.removeprefix(self.ALIASED_DIALECT).replace(".", "_")
                count = taken[base] = taken.get(base, 0) + 1
                names[number] = f"#{base}" if count == 1 else f"#{base}_{count}"

        def expand(piece: str) -> str:
            parts = piece.split("\0")
            for i in range(1, len(parts), 2):
                number = int(parts[i])
                parts[i] = names.get(number) or expand(self._bodies[number])
            return "".join(parts)

        # A nested attribute is numbered before the one that holds it, so that definitions come before uses.
        aliases = "".join(f"{name} = {expand(self._bodies[number])}\n" for number, name in names.items())
        return aliases + expand(text)
