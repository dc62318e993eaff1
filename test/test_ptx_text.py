"""PTX text: printing and reading are inverse, hand-written programs are read, and errors say where and what."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_programs import assemble, assemblers
from test_ptx_isa import example

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_isa import TABLE
from tesela.dialects.ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    Label,
    LabelDef,
    ParamDecl,
    Pragma,
    Program,
    Reg,
    SharedDecl,
    Symbol,
)
from tesela.dialects.ptx_text import print_program, read_program

PROGRAMS = sorted((Path(__file__).parent / "ptx").glob("*.ptx"))


def read(text: str) -> Program:
    """Read without line numbers, which are no part of what is printed."""
    program = read_program(text)
    for entry in program.entries:
        for item in entry.body:
            if isinstance(item, Instr):
                item.line = None
    return program


# ---- round trips


@st.composite
def programs(draw) -> Program:
    """Programs out of random rows of the table, with guards, labels, pragmas, locations and immediates."""
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    rows = rng.sample(list(TABLE.values()), draw(st.integers(1, 12)))
    registers = {f"%p{i}": "pred" for i in range(16)} | {f"%h{i}": "b16" for i in range(16)}
    registers |= {f"%r{i}": "b32" for i in range(256)} | {f"%rd{i}": "b64" for i in range(16)}
    registers |= {"%odd7": "b32", "pred": "pred", "%x_01": "b64"}
    files = ["kernel.py", "lib/ops.py"][: draw(st.integers(0, 2))]
    body: list = []
    for row in rows:
        instr = example(row, rng.choice(row.forms))
        immediates = {
            "int": st.integers(-(1 << 63), (1 << 64) - 1),
            "f32": st.integers(0, (1 << 32) - 1),
            "f64": st.integers(0, (1 << 64) - 1),
        }
        operands = list(instr.operands)
        for index, operand in enumerate(operands):
            if isinstance(operand, Imm):
                operands[index] = Imm(draw(immediates["int"]))
            elif isinstance(operand, Addr) and isinstance(operand.base, Reg):
                operands[index] = Addr(operand.base, draw(st.integers(-64, 64)))
        instr.operands = tuple(operands)
        if rng.random() < 0.3:
            instr.guard, instr.negated = f"%p{rng.randrange(16)}", rng.random() < 0.5
        body.append(instr)
        if rng.random() < 0.2:
            body.append(rng.choice([LabelDef(f"L{len(body)}"), Pragma("nounroll")]))
    if rng.random() < 0.5:
        kind = draw(st.sampled_from(["f32", "f64"]))
        cls, register = ("b32", "%r1") if kind == "f32" else ("b64", "%rd1")
        bits = draw(st.integers(0, (1 << int(kind[1:])) - 1))
        body.append(Instr(f"mov.{cls}", (Reg(register), Imm(bits, kind))))
    place = None
    for item in body:
        if isinstance(item, Instr):
            if files and rng.random() < 0.4:
                place = (rng.randint(1, len(files)), rng.randint(1, 99), rng.randint(0, 80))
            item.loc = place
    body += [LabelDef("END"), Instr("ret", loc=place)]
    entry = Entry("k", [ParamDecl("p", "b64"), ParamDecl("map", "b8", 128, 64)], registers, body=body)
    entry.max_threads = draw(st.sampled_from([None, (128, 1, 1)]))
    entry.required_threads = draw(st.sampled_from([None, (16, 8, 1)]))
    entry.min_blocks = draw(st.sampled_from([None, 1, 2]))
    entry.max_registers = draw(st.sampled_from([None, 64, 168]))
    entry.cluster = draw(st.sampled_from([None, (2, 1, 1)]))
    if draw(st.booleans()):
        entry.shared.append(SharedDecl("own", 256, 16))
    shared = [SharedDecl("smem", 0, 1024, True)]
    return Program((8, draw(st.integers(0, 6))), "sm_90a", files, shared, [entry])


@settings(max_examples=60, deadline=None)
@given(programs())
def test_printed_programs_read_back(program: Program) -> None:
    text = print_program(program)
    again = read(text)
    assert again == program
    assert print_program(again) == text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_hand_written_programs(path: Path) -> None:
    """Each reads; what is printed of it reads back as the same program and assembles like the original."""
    program = read(path.read_text())
    text = print_program(program)
    assert read(text) == program
    for ptxas in assemblers():
        for source in (path.read_text(), text):
            assert "warning" not in assemble(ptxas, source, program.target)


def test_there_are_hand_written_programs() -> None:
    assert len(PROGRAMS) >= 6


def test_line_numbers_and_locations() -> None:
    text = (
        HEAD + '.file 1 "k.py"\n.entry k()\n{ .reg .b32 %r;\n .loc 1 10 3\n mov.u32 %r, 1; add.u32 %r, %r, 2;\n ret; }'
    )
    first, second, ret = read_program(text).entries[0].body
    assert (first.line, second.line, ret.line) == (8, 8, 9)
    assert first.loc == second.loc == (1, 10, 3)


HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def body(text: str, registers: str = ".reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p; .reg .b16 %h;") -> str:
    return f"{HEAD}.entry k(.param .b64 a)\n{{\n{registers}\n{text}\n}}\n"


def instructions(text: str, **more) -> list:
    return read(body(text, **more)).entries[0].body


def test_scopes_have_their_own_registers_and_labels() -> None:
    text = """
    L: mov.b32 %r0, 1;
    { .reg .b32 %r0; mov.b32 %r0, 2; L: bra L; bra OUT; }
    mov.b32 %r1, %r0;
    bra L;
    OUT: ret;"""
    entry = read(body(text)).entries[0]
    shown = [print_line(item) for item in entry.body]
    assert shown == [
        "L:",
        "mov.b32 %r0 1",
        "mov.b32 %r0__2 2",
        "L__2:",
        "bra L__2",
        "bra OUT",
        "mov.b32 %r1 %r0",
        "bra L",
        "OUT:",
        "ret",
    ]
    assert entry.registers["%r0__2"] == "b32"


def print_line(item) -> str:
    if isinstance(item, LabelDef):
        return f"{item.name}:"
    words = [getattr(operand, "name", None) or str(getattr(operand, "bits", operand)) for operand in item.operands]
    return " ".join([item.opcode, *words])


def test_numbers() -> None:
    items = instructions(
        "mov.u32 %r0, 0x1F; mov.u32 %r0, 017; mov.u32 %r0, 0b11; mov.u32 %r0, 7U; mov.u32 %r0, -1; mov.f32 %r0, 0f3F800000;"
        "add.f32 %r0, %r1, 1.5; add.f64 %rd0, %rd1, -2.0; mov.b64 %rd0, 18446744073709551615;"
    )
    assert [item.operands[-1] for item in items] == [
        Imm(31),
        Imm(15),
        Imm(3),
        Imm(7),
        Imm(-1),
        Imm(0x3F800000, "f32"),
        Imm(0x3FC00000, "f32"),
        Imm(0xC000000000000000, "f64"),
        Imm(2**64 - 1),
    ]


def test_addresses_and_variables() -> None:
    text = (
        "ld.param.u64 %rd0, [a]; ld.global.b32 %r0, [%rd0-8]; ld.global.b32 %r0, [%rd0+-8]; ld.shared.b32 %r0, [s+4];"
    )
    text += "mov.u32 %r1, s; mov.b32 %r1, s+16;"
    items = instructions(text, registers=".reg .b32 %r<4>; .reg .b64 %rd<2>; .shared .align 4 .b8 s[64];")
    assert [item.operands[1] for item in items] == [
        Addr(Symbol("a")),
        Addr(Reg("%rd0"), -8),
        Addr(Reg("%rd0"), -8),
        Addr(Symbol("s"), 4),
        Symbol("s"),
        Symbol("s", 16),
    ]


def test_guards_and_branches() -> None:
    items = instructions("@%p bra $L; @!%p bra.uni L; $L: ret;")
    assert [(item.guard, item.negated, item.operands) for item in items[:2]] == [
        ("%p", False, (Label("L"),)),
        ("%p", True, (Label("L"),)),
    ]


# ---- errors

ERRORS = [
    (
        "addd.s32 %r0, %r1, %r2;",
        (7, 1),
        "unknown PTX instruction 'addd.s32': the table has no 'addd'; did you mean 'add'",
    ),
    ("add.s31 %r0, %r1, %r2;", (7, 1), "no such form of 'add'; nearest: add.s32"),
    ("add.s32 %r0, %r1;", (7, 1), "add.s32 takes 3 operands, found 2"),
    ("add.s32 %r0, %rd0, %r2;", (7, 14), "operand 2 of add.s32 must be of class b32, but %rd0 is b64"),
    ("add.s32 3, %r1, %r2;", (7, 9), "operand 1 of add.s32 must be a register to write, found the number 3"),
    ("add.s32 %r0, %r1, %r9;", (7, 19), "unknown register '%r9'"),
    ("mov.b32 %q, 1;", (7, 9), "unknown register '%q'"),
    ("bra $NOWHERE;", (7, 5), "unknown label '$NOWHERE'"),
    ("LOOP: bra LOP;", (7, 11), "unknown label '$LOP'"),
    ("ld.global.b32 %r0, [%r1];", (7, 20), "needs a b64 register as its base, but %r1 is b32"),
    (
        "ld.global.b32 %r0, %rd0;",
        (7, 20),
        "operand 2 of ld.global.b32 must be an address in brackets, found the register %rd0",
    ),
    (
        "ld.global.b32 %r0, [a];",
        (7, 20),
        "operand 2 of ld.global.b32 is an address in global memory, but a lies in param",
    ),
    ("elect.sync 3|%p, -1;", (7, 12), "must be two destinations, as in _|%p, found the pair 3|%p"),
    ("ld.global.v2.b32 {%r0, %r1, %r2}, [%rd0];", (7, 18), "must be 2 registers in braces, found a list of 3"),
    ("ld.global.v2.b32 {%r0, %h}, [%rd0];", (7, 18), "must hold registers of class b32, but %h is b16"),
    ("@%r0 mov.b32 %r0, 1;", (7, 2), "the guard '%r0' is of class b32, not pred"),
    ("elect.sync %p, -1;", (7, 12), "must be two destinations, as in _|%p, found the register %p"),
    ("cp.async.wait_group %r0;", (7, 21), "must be a number, found the register %r0"),
    ("mov.b32 %r0, 1", (8, 1), "expected ',' or ';' after an operand of mov.b32, found '}'"),
    ("L: L: ret;", (7, 4), "label 'L' is defined twice"),
    (".reg .b32 %r0;", (7, 11), "register '%r0' is declared twice"),
    (".reg .b32 %laneid;", (7, 11), "'%laneid' is a special register"),
    (".reg .b8 %c;", (7, 6), "expected a register type such as .b32, found '.b8'"),
    (".loc 3 1 1", (7, 6), ".loc names file 3, which no .file declares"),
    (".branchtargets L;", (7, 1), "unknown directive '.branchtargets'"),
    ("mov.b32 %r0, `1`;", (7, 14), "unexpected character '`'"),
    ("{ ret;", (9, 1), "a '{' is not closed before the end of the text"),
    ("add.f32 %r0, %r1, 1e300;", (7, 19), "does not fit in an f32"),
]


@pytest.mark.parametrize("text,place,message", ERRORS, ids=[text for text, _, _ in ERRORS])
def test_errors_say_where_and_what(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(TeselaError) as error:
        read_program(body(text), "k.ptx")
    (diagnostic,) = error.value.diagnostics
    assert message in diagnostic.message
    assert (diagnostic.location.file, diagnostic.location.line, diagnostic.location.column) == ("k.ptx", *place)
    assert "^" in str(error.value) or place[0] == 9


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "expected '.version', found 'the end of the text'"),
        (".version 8", "expected a version such as 8.0, found '8'"),
        (HEAD, "no .entry in this text"),
        (HEAD.replace("64\n", "32\n"), ".address_size 32: only 64-bit addresses are known here"),
        (HEAD + ".func f() { }", "expected .entry, .shared or .file, found '.func'"),
        (HEAD + ".entry k() .maxclusterrank 4 { ret; }", "unknown directive '.maxclusterrank' of an entry"),
        (HEAD + ".entry k(.param .b31 x) { ret; }", "expected a parameter's type such as .b64, found '.b31'"),
        (HEAD + '.file 2 "a.py"', "file 2 stands where file 1 is due"),
    ],
)
def test_errors_of_a_module(text: str, message: str) -> None:
    with pytest.raises(TeselaError) as error:
        read_program(text)
    assert message in str(error.value)
