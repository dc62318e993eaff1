"""PTX as data: a flat program of instructions over named registers. Plain Python, no xDSL.

Two roads lead here: `lowering/emit_ptx.py` flattens the ptx dialect's structured IR, and `dialects/ptx_text.py` reads
PTX text back. Two lead away: `ptx_text.print_program` writes the text that is assembled, and the simulator runs it.
So what is simulated is what is assembled.

An instruction's opcode is its whole spelling with all modifiers (`ld.global.nc.v4.b32`), the key of a row in the
instruction table (`dialects/ptx_isa.py`); its operands stand in the order of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reg:
    """A register by name, `%r12`; its class is in `Entry.registers`."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate. `bits` is its value as an integer (a float's bit pattern for `kind` f32/f64, printed 0f…/0d…)."""

    bits: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A parameter or shared-memory variable by name (plus a byte offset), as in `ld.param.b64 %x, [name+8]`."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Addr:
    """`[base + offset]`, offset in bytes."""

    base: Reg | Symbol | Imm
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorAddr:
    """`[map, {x, y}]`: a tensor map's address and the coordinates of a box, innermost first, in elements."""

    base: Reg | Symbol
    coords: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Vec:
    """`{a, b, c, d}`"""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target's name, without the leading `$`."""

    name: str


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations of one instruction (`setp`'s and `elect.sync`'s); either may be the Sink."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a destination nobody reads."""


Operand = Reg | Special | Imm | Symbol | Addr | TensorAddr | Vec | Label | Pair | Sink


@dataclass(slots=True)
class Instr:
    """One instruction. `guard` is a predicate register's name, `negated` prints `@!`. `loc` is (file index, line,
    column)."""

    opcode: str
    operands: tuple[Operand, ...] = ()
    guard: str | None = None
    negated: bool = False
    loc: tuple[int, int, int] | None = None
    line: int | None = None  # of the PTX text, when it was read from text


@dataclass(slots=True)
class LabelDef:
    name: str


@dataclass(slots=True)
class Pragma:
    text: str


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """An entry's parameter: `type` 'b64', 'b32', 'f32' …, or an aligned byte array (`size` bytes) for a tensor map."""

    name: str
    type: str
    size: int = 0
    align: int = 0


@dataclass(frozen=True, slots=True)
class SharedDecl:
    """A shared-memory variable; `size` 0 and `extern` for the dynamic one."""

    name: str
    size: int
    align: int
    extern: bool = False


@dataclass(slots=True)
class Entry:
    """One kernel. `registers` maps a name to its class: pred, b16, b32 or b64."""

    name: str
    params: list[ParamDecl] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    shared: list[SharedDecl] = field(default_factory=list)
    body: list[Instr | LabelDef | Pragma] = field(default_factory=list)
    max_threads: tuple[int, int, int] | None = None  # .maxntid
    required_threads: tuple[int, int, int] | None = None  # .reqntid
    min_blocks: int | None = None  # .minnctapersm
    max_registers: int | None = None  # .maxnreg, per thread
    cluster: tuple[int, int, int] | None = None  # .reqnctapercluster


@dataclass(slots=True)
class Program:
    """A PTX module: header, source files (for `.loc`, numbered from 1), module-scope shared variables, entries."""

    version: tuple[int, int]
    target: str
    files: list[str] = field(default_factory=list)
    shared: list[SharedDecl] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
