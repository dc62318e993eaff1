"""PTX that an author writes for single elements: read, and checked against the instruction table. No xDSL.

    fma.rn.f32 %t, $2, $3, $2;  ex2.approx.ftz.f32 $0, %t;  add.rn.f32 $1, %t, $3;

`$0` … are the results, then the operands; `%name` is a register of the text's own, whose class follows from the instruction that first writes it.
Every instruction must be in the table and have no effects: what it does to memory, to other threads or to the course of the program the compiler could
not know, and which thread holds which element is the compiler's choice. So there is nothing to declare about effects, and nothing that can be declared wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .ptx_isa import Operand, Row, UnknownInstruction, canonical, lookup

NAME = re.compile(r"\$\d+|%[A-Za-z_]\w*")
INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)U?")
FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")


class InlineError(ValueError):
    """What is wrong with a text: `message`, and what to do, `hint`."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class InlineInstruction:
    """One instruction: the row, the registers it writes and the class of each, its sources (a name, or the bits of an immediate with its class), and
    the immediates that are part of its spelling."""

    row: Row
    results: tuple[tuple[str, str], ...]
    sources: tuple[str | tuple[int, str], ...]
    immediates: tuple[int, ...]


def read_inline(text: str, results: Sequence[str], operands: Sequence[str]) -> tuple[InlineInstruction, ...]:
    """The instructions of a text whose results and operands are registers of these classes ('pred', 'b16', 'b32', 'b64'). Raises InlineError."""
    classes = {f"${number}": cls for number, cls in enumerate((*results, *operands))}
    outputs = {f"${number}" for number in range(len(results))}
    written: set[str] = set()
    instructions = []
    for statement in (part.strip() for part in re.sub(r"//[^\n]*", "", text).split(";")):
        if statement:
            instructions.append(_instruction(statement, classes, outputs, written))
    if missing := sorted(outputs - written):
        raise InlineError(f"the text never writes the result {missing[0]}", "results come first: $0 is the first result, operands follow")
    return tuple(instructions)


def _instruction(statement: str, classes: dict[str, str], outputs: set[str], written: set[str]) -> InlineInstruction:
    opcode, _, rest = statement.partition(" ")
    if opcode.startswith("@") or opcode.endswith(":") or opcode[:1] in ".{}":
        raise InlineError(f"'{statement}' is no plain instruction", "write instructions only: predicates select with selp, registers need no declaration")
    try:
        row = lookup(canonical(opcode))
    except UnknownInstruction as unknown:
        raise InlineError(str(unknown)) from None
    if row.effects:
        effects = ", ".join(sorted(row.effects))
        raise InlineError(f"'{opcode}' has effects ({effects})", "inline PTX computes values of single elements from others; memory is loads and stores of arrays")
    given = [word.strip() for word in rest.split(",")] if rest.strip() else []
    for form in row.forms:
        if len(form) == len(given) and all(operand.role in ("d", "s", "r", "imm") and not operand.count for operand in form):
            return _matched(statement, row, form, given, classes, outputs, written)
    forms = " or ".join(", ".join(map(str, form)) for form in row.forms)
    raise InlineError(f"'{statement}': '{row.opcode}' takes {forms}, found {len(given)} operands")


def _matched(
    statement: str, row: Row, form: Sequence[Operand], given: Sequence[str], classes: dict[str, str], outputs: set[str], written: set[str]
) -> InlineInstruction:
    results: list[tuple[str, str]] = []
    sources: list[str | tuple[int, str]] = []
    immediates: list[int] = []
    for operand, word in zip(form, given):
        if operand.role == "d":
            continue
        if NAME.fullmatch(word):
            cls = classes.get(word)
            if cls is None or (word in outputs | written or word.startswith("%")) and word not in written:
                raise InlineError(f"'{statement}': {word} is read before it is written" if cls or word.startswith("%") else f"'{statement}': there is no {word}")
            if operand.role == "imm" or cls != operand.cls:
                raise InlineError(f"'{statement}': {word} is {cls}, {operand} is required")
            sources.append(word)
            continue
        value = _immediate(statement, word)
        if operand.role == "r":
            raise InlineError(f"'{statement}': a register is required, found {word}", "move it into one first: mov.b32 %t, …")
        if operand.role == "imm":
            immediates.append(value)
        else:
            sources.append((value, operand.cls))
    for operand, word in zip(form, given):
        if operand.role != "d":
            continue
        if not NAME.fullmatch(word) or word.startswith("$") and word not in outputs:
            raise InlineError(f"'{statement}': {word} cannot be written", "results are $0 …, registers of the text's own are %name")
        if classes.setdefault(word, operand.cls) != operand.cls:
            raise InlineError(f"'{statement}': {word} is {classes[word]}, {operand} is required")
        written.add(word)
        results.append((word, operand.cls))
    return InlineInstruction(row, tuple(results), tuple(sources), tuple(immediates))


def _immediate(statement: str, word: str) -> int:
    if INTEGER.fullmatch(word):
        return int(word.rstrip("U"), 0)
    if match := FLOAT.fullmatch(word):
        return int(match[1] or match[2], 16)
    hint = "operands are $0 …, %name, integers, and floats by their bits, as in 0f3F800000"
    raise InlineError(f"'{statement}': {word or 'nothing'} is no operand", hint)
