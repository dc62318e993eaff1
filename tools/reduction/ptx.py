"""Smaller PTX programs: kernels, instructions, guards, immediates, line information and declarations taken out.

What is tried is always a program that reads back: `read_program` checks every instruction against its row, and that labels are defined and registers
declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...dialects.diagnostics import TeselaError
from ...dialects.ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    Label,
    LabelDef,
    Operand,
    Pair,
    Pragma,
    Program,
    Symbol,
    TensorAddr,
    Vec,
)
from ...dialects.ptx_text import print_program, read_program
from ...simulator.decode import names_in
from .search import Search


def check(text: str) -> None:
    """Raises TeselaError for text that is no PTX program."""
    read_program(text)


def _text(program: Program) -> str | None:
    """A program's text, if it reads back."""
    try:
        text = print_program(program)
        read_program(text)
    except TeselaError:
        return None
    return text


def _drop_kernels(search: Search) -> bool:
    program = read_program(search.text)
    names = [entry.name for entry in program.entries]

    def without(dropped: Sequence[str]) -> str | None:
        kept = [entry for entry in program.entries if entry.name not in dropped]
        return _text(replace(program, entries=kept)) if kept else None

    return search.subsets(names, without)


def _drop_items(search: Search) -> bool:
    """Instructions, unused labels, pragmas."""
    program = read_program(search.text)
    places = [(e, k) for e, entry in enumerate(program.entries) for k in range(len(entry.body))]

    def without(dropped: Sequence[tuple[int, int]]) -> str | None:
        gone = set(dropped)
        entries = [
            replace(entry, body=[item for k, item in enumerate(entry.body) if (e, k) not in gone])
            for e, entry in enumerate(program.entries)
        ]
        return _text(replace(program, entries=entries))

    return search.subsets(places, without)


def _declarations(search: Search) -> bool:
    """Registers that nothing names, source lines, shared variables that nothing names."""
    program = read_program(search.text)
    entries = []
    named: set[str] = set()
    for entry in program.entries:
        used = {name for item in entry.body if isinstance(item, Instr) for name in _names(item)}
        named |= {s for item in entry.body if isinstance(item, Instr) for operand in item.operands for s in _symbols(operand)}
        body: list[Instr | LabelDef | Pragma] = [replace(item, loc=None) if isinstance(item, Instr) else item for item in entry.body]
        entries.append(replace(entry, body=body, registers={n: c for n, c in entry.registers.items() if n in used}))
    shared = [variable for variable in program.shared if variable.name in named]
    smaller = replace(program, entries=entries, files=[])
    return search.each([_text(replace(smaller, shared=shared)), _text(smaller)])


def _names(instr: Instr) -> list[str]:
    found = [name for operand in instr.operands for name in names_in(operand)]
    return found if instr.guard is None else [*found, instr.guard]


def _symbols(operand: Operand) -> Iterator[str]:
    match operand:
        case Symbol(name):
            yield name
        case Addr(base) | TensorAddr(base):
            yield from _symbols(base)


def _each_instr(search: Search, change: Callable[[Instr], Iterator[Instr]]) -> bool:
    """Tries changes of single instructions."""
    any_taken = False
    for e, entry in enumerate(read_program(search.text).entries):
        for k in range(len(entry.body)):
            program = read_program(search.text)  # what was taken before is in it
            item = program.entries[e].body[k]
            if isinstance(item, Instr):
                any_taken |= any(search.attempt(_with(program, e, k, changed)) for changed in change(item))
    return any_taken


def _with(program: Program, e: int, k: int, item: Instr) -> str | None:
    entry: Entry = program.entries[e]
    body = [*entry.body[:k], item, *entry.body[k + 1 :]]
    return _text(replace(program, entries=[*program.entries[:e], replace(entry, body=body), *program.entries[e + 1 :]]))


def _drop_guards(search: Search) -> bool:
    def change(instr: Instr) -> Iterator[Instr]:
        if instr.guard is not None:
            yield replace(instr, guard=None, negated=False)

    return _each_instr(search, change)


def _smaller_numbers(search: Search) -> bool:
    """Immediates and offsets become 0, 1, or half as large."""

    def change(instr: Instr) -> Iterator[Instr]:
        for position, operand in enumerate(instr.operands):
            for smaller in _smaller(operand):
                yield replace(instr, operands=(*instr.operands[:position], smaller, *instr.operands[position + 1 :]))

    return _each_instr(search, change)


def _smaller(operand: Operand) -> Iterator[Operand]:
    match operand:
        case Imm(bits, "int"):
            yield from (Imm(value) for value in (0, 1, bits // 2) if 0 <= value < bits)
        case Addr(base, offset) if offset:
            yield Addr(base)
        case Symbol(name, offset) if offset:
            yield Symbol(name)
        case Vec() | Pair() | Label():
            return


PASSES = (_drop_kernels, _drop_items, _declarations, _drop_guards, _smaller_numbers)
