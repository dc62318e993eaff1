"""The instruction table is true: both assemblers take every row, for its target and its PTX version, in each of its
forms."""

from __future__ import annotations

import subprocess
import sys
from itertools import cycle, islice

import pytest
from ptx_programs import assemble, assemblers

from tesela.dialects import ptx_isa
from tesela.dialects.ptx_isa import CLASS_BITS, OLDEST_VERSION, TABLE, TARGETS, UNITS, Operand, Row, canonical, lookup
from tesela.dialects.ptx_program import (
    Addr,
    Entry,
    Imm,
    Instr,
    Label,
    LabelDef,
    Pair,
    ParamDecl,
    Program,
    Reg,
    SharedDecl,
    Sink,
    Special,
    Symbol,
    TensorAddr,
    Vec,
)
from tesela.dialects.ptx_text import print_program, read_program

PREFIX = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd"}
EFFECTS = {"async", "sync", "convergent", "branch", "volatile"}
NEWEST = (8, 6)


def _immediates(row: Row) -> list[int]:
    """Values for the immediates of a row, in order."""
    if row.meaning == "cp_async":
        return [16]
    if row.meaning == "setmaxnreg":
        return [40]
    if row.meaning in ("fence_proxy_tensormap", "tensormap_cp_fenceproxy"):
        return [128]
    if row.meaning == "wgmma":
        return [1, 1, 0, 0]
    return [1]


def example(row: Row, form: tuple[Operand, ...]) -> Instr:
    """An instruction of the given form."""
    numbers = {cls: cycle(range(256 if cls == "b32" else 16)) for cls in CLASS_BITS}
    immediates = iter(_immediates(row))

    def registers(operand: Operand):
        names = [Reg(f"{PREFIX[operand.cls]}{n}") for n in islice(numbers[operand.cls], operand.registers)]
        return Vec(tuple(names)) if operand.count else names[0]

    def address(space: str):
        if space == "param":
            return Addr(Symbol("map" if row.meaning == "prefetch" else "p"))
        wide = space in ("global", "generic")
        return Addr(Reg("%rd9" if wide else "%r9"), 0 if space == "generic" else 16)

    operands = []
    for operand in form:
        if operand.role == "addr":
            operands.append(address(operand.cls))
        elif operand.role == "tma":
            operands.append(TensorAddr(Reg("%rd9"), tuple(Reg(f"%r{i}") for i in range(operand.count))))
        elif operand.role == "imm":
            operands.append(Imm(next(immediates)))
        elif operand.role == "sym":
            operands.append(Symbol("p" if row.args.get("space") == "param" else "smem"))
        elif operand.role == "special":
            operands.append(Special("%clock64" if form[0].cls == "b64" else "%tid.x"))
        elif operand.role == "label":
            operands.append(Label("END"))
        elif operand.role == "sink":
            operands.append(Sink())
        else:
            value = registers(operand)
            operands.append(Pair(Sink(), value) if operand.after_sink else value)
    return Instr(row.opcode, tuple(operands))


def program_of_rows(rows: list[Row], target: str, version: tuple[int, int]) -> Program:
    """A kernel with one instruction for each form of each row."""
    registers = {f"%p{i}": "pred" for i in range(16)} | {f"%h{i}": "b16" for i in range(16)}
    registers |= {f"%r{i}": "b32" for i in range(256)} | {f"%rd{i}": "b64" for i in range(16)}
    body: list = [example(row, form) for row in rows for form in row.forms]
    body += [LabelDef("END"), Instr("ret")]
    params = [ParamDecl("p", "b64"), ParamDecl("map", "b8", 128, 64)]
    entry = Entry("k", params, registers, body=body, max_threads=(128, 1, 1), min_blocks=1)
    return Program(version, target, shared=[SharedDecl("smem", 0, 1024, True)], entries=[entry])


def rows_for(target: str, version: tuple[int, int]) -> list[Row]:
    return [row for row in TABLE.values() if row.supports(target) and row.version <= version]


VERSIONS = sorted({row.version for row in TABLE.values()})
CASES = [(target, version) for target in TARGETS for version in VERSIONS if target == "sm_80" or version >= (8, 0)]


@pytest.mark.parametrize("target,version", CASES, ids=lambda value: str(value))
def test_every_row_assembles(target: str, version: tuple[int, int]) -> None:
    """ptxas takes all rows that claim this target and PTX version, in all forms, without a warning."""
    if not assemblers():
        pytest.skip("no ptxas is installed")
    text = print_program(program_of_rows(rows_for(target, version), target, version))
    for ptxas in assemblers():
        output = assemble(ptxas, text, target, "-O1")
        assert "warning" not in output.lower() and "advisory" not in output.lower(), output


def test_rows_claim_no_more_than_they_need() -> None:
    """Rows of sm_90 and sm_90a fail for the target before: the column `since` is not just cautious."""
    if not assemblers():
        pytest.skip("no ptxas is installed")
    for before, since, version in (("sm_80", "sm_90", NEWEST), ("sm_90", "sm_90a", NEWEST)):
        rows = [row for row in TABLE.values() if row.since == since and "multicast" not in row.opcode]
        families = {}
        for row in rows:
            families.setdefault((row.opcode.partition(".")[0], row.meaning), row)
        for row in families.values():
            text = print_program(program_of_rows([row], before, version))
            with pytest.raises(AssertionError, match="rejects"):
                assemble(assemblers()[0], text, before, "-O1")


def test_every_row_reads_back() -> None:
    program = program_of_rows(list(TABLE.values()), "sm_90a", NEWEST)
    text = print_program(program)
    again = read_program(text)
    for item in again.entries[0].body:
        if isinstance(item, Instr):
            item.line = None
    assert again == program
    assert print_program(again) == text


def test_rows_are_consistent() -> None:
    for opcode, row in TABLE.items():
        assert row.opcode == opcode and row.forms[0] == row.operands
        assert row.since in TARGETS and row.version >= OLDEST_VERSION and row.unit in UNITS
        assert row.latency > 0 and row.issue > 0
        for effect in row.effects:
            assert effect in EFFECTS or effect.partition(":")[0] in ("read", "write"), effect
        for form in row.forms:
            assert {operand.cls for operand in form if operand.role in "dsr"} <= set(CLASS_BITS)
            if any(operand.role == "io" for operand in form):
                assert [operand.role for operand in form].count("d") == 0 and form[0].role == "io"
        if row.meaning in ("ld", "st"):
            assert any(effect.startswith(("read:", "write:")) for effect in row.effects)


def test_table_is_lazy() -> None:
    """Importing the table makes no row, and a look-up only those of one family."""
    script = (
        "import sys; from tesela.dialects import ptx_isa as t; assert not t.TABLE._rows; t.lookup('add.s32');"
        "assert {k.split('.')[0] for k in t.TABLE._rows} == {'add'} and 'tesela.dialects.ptx_rows_async' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize(
    "opcode,message",
    [
        ("ad.f32", "the table has no 'ad'; did you mean 'mad' or 'and' or 'add'?"),
        ("add.rm.f16", "the table has no such form of 'add'; nearest: add.rn.f16"),
        (
            "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16",
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
        ),
        ("zzz", "unknown PTX instruction 'zzz': the table has no 'zzz'"),
    ],
)
def test_unknown_instruction(opcode: str, message: str) -> None:
    with pytest.raises(ptx_isa.UnknownInstruction) as error:
        lookup(opcode)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "written,canonically",
    [
        ("ld.global.v4.f32", "ld.global.v4.b32"),
        ("ld.shared::cta.u16", "ld.shared.b16"),
        ("mov.u64", "mov.b64"),
        ("selp.f32", "selp.b32"),
        ("st.shared.s8", "st.shared.b8"),
        ("bra.uni", "bra"),
        ("barrier.cta.sync.aligned", "bar.sync"),
        ("ld.global.s16", "ld.global.s16"),
        ("no.such", "no.such"),
    ],
)
def test_canonical_spelling(written: str, canonically: str) -> None:
    assert canonical(written) == canonically


def test_wgmma_rows() -> None:
    row = lookup("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16")
    accumulator, a, b, scale = row.operands[:4]
    assert (accumulator.role, accumulator.count, a.cls, b.cls, scale.cls) == ("io", 128, "b64", "b64", "pred")
    assert [len(form) for form in row.forms] == [8, 7] and row.forms[1][1].count == 4
    assert row.issue == 128 and row.args["shape"] == (64, 256, 16)
    assert lookup("wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16").operands[0].count == 16
    assert "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8" not in TABLE


def test_the_order_of_the_rows_is_that_of_the_families():
    """It does not depend on what was looked up first: the reference page is made from it."""
    late = type(TABLE)()
    assert "wgmma.fence.sync.aligned" in late and "st.global.b32" in late
    assert list(late) == list(type(TABLE)()) == list(TABLE)
