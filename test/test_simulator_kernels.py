"""Whole kernels in PTX text run in the simulator against NumPy, under every completion policy; and the table against the meanings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from simulator_harness import MapOf, run

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_isa import TABLE, Operand
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
from tesela.simulator.decode import MEANINGS, Code, find_meaning

PTX = Path(__file__).parent / "ptx"
POLICIES = [{"policy": "latest"}, {"policy": "earliest"}, {"seed": 0}, {"seed": 1}]


def source(name: str) -> str:
    return (PTX / f"{name}.ptx").read_text()


@pytest.mark.parametrize("n", [0, 1, 127, 128, 1000, 1_000_003])
def test_vector_add(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    z = np.zeros(n, np.float32)
    result = run(source("vector_add"), x, y, z, scalars=[n], grid=(-(-n // 128),), block=(128,))
    assert np.array_equal(z, x + y)
    assert result.executed.get("st.global.b32", 0) == n


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 100), (200, 781), (5, 2048)])
def test_row_softmax(rows: int, columns: int) -> None:
    x = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    y = np.zeros_like(x)
    run(source("row_softmax"), x, y, scalars=[columns], grid=(rows,), block=(128,))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.abs(y / (e / e.sum(1, keepdims=True)) - 1).max() < 2e-6


@pytest.mark.parametrize("options", POLICIES)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (100, 72, 200), (1, 7, 8), (130, 65, 328)])
def test_gemm_wgmma(m: int, n: int, k: int, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float32)
    program = read_program(print_program(read_program(source("gemm_wgmma"))))
    maps = [MapOf(x, (64, 64), swizzle=128) for x in (a, b)]
    grid = (-(-m // 64), -(-n // 64))
    run(program, *maps, c, scalars=[m, n, k], grid=grid, block=(160,), shared=32800, **options)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - want).max() < 1e-5 * np.sqrt(k) * 4


@pytest.mark.parametrize("options", POLICIES)
@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (50, 40, 72), (1, 7, 8), (33, 65, 104)])
def test_gemm_mma(m: int, n: int, k: int, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float32)
    run(
        source("gemm_mma"),
        a,
        b,
        c,
        scalars=[m, n, k],
        grid=(-(-m // 32), -(-n // 32)),
        block=(128,),
        shared=8192,
        **options,
    )
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - want).max() < 1e-5 * np.sqrt(k) * 4


LATE = [{"policy": "latest"}]
SEEDS = [{"seed": s} for s in range(12)]


@pytest.mark.parametrize(
    ("name", "removed", "schedules"),
    [
        # A consumer that does not wait for its stage, one that does not ask again when its wait times out, and one that does not wait for
        # the product.
        ("gemm_wgmma", "mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar+32768], %parity; @!%p bra $FULL;", LATE),
        ("gemm_wgmma", "@!%p bra $FULL;", SEEDS),
        ("gemm_wgmma", "wgmma.wait_group.sync.aligned 0;", LATE),
        # A round that multiplies what has not arrived, and one whose warps do not wait for each other.
        ("gemm_mma", "cp.async.wait_group 1;", LATE),
        ("gemm_mma", "cp.async.wait_group 1;\n  bar.sync 0;", SEEDS),
    ],
)
def test_missing_waits_show(name: str, removed: str, schedules: list[dict[str, Any]]) -> None:
    """Some schedule of those gives a wrong result, or a fault."""
    text = source(name)
    assert text.count(removed) == 1
    assert any(fails(name, text.replace(removed, ""), options) for options in schedules)
    assert not any(fails(name, text, options) for options in schedules)


def fails(name: str, text: str, options: dict[str, Any]) -> bool:
    tma = name == "gemm_wgmma"
    m, n, k = (64, 64, 256) if tma else (32, 32, 128)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16 if tma else np.float16) for rows in (m, n))
    c = np.zeros((m, n), np.float32)
    inputs = [MapOf(x, (64, 64), swizzle=128) if tma else x for x in (a, b)]
    try:
        run(text, *inputs, c, scalars=[m, n, k], block=(160 if tma else 128,), shared=32800, **options)
    except TeselaError:
        return True
    return bool(np.abs(c - a.astype(np.float64) @ b.astype(np.float64).T).max() > 0.1)


# Every row of the instruction table has a meaning that accepts its operands, and every meaning is tested.

WITHOUT_MEANING = re.compile(r"\.im2col\.|^tensormap\.replace\.tile\.rank\.")
"""What the simulator does not run; nothing in the compiler makes it."""


class _Builder:
    """Makes operands of the forms in the table, each register a new one."""

    def __init__(self, opcode: str):
        self.opcode = opcode
        self.registers: dict[str, str] = {}

    def register(self, cls: str) -> Reg:
        name = f"%r{len(self.registers)}"
        self.registers[name] = cls
        return Reg(name)

    def operand(self, form: Operand) -> Any:
        match form.role:
            case "addr":
                wide = form.cls in ("global", "generic")
                return Addr(Symbol("p") if form.cls == "param" else self.register("b64" if wide else "b32"))
            case "imm":
                values = {"tensormap": 128, "wgmma": 1, "setmaxnreg": 24}
                return Imm(values.get(self.opcode.split(".")[0], 16))
            case "label":
                return Label("L")
            case "sym":
                return Symbol("smem")
            case "special":
                return Special("%tid.x")
            case "sink":
                return Sink()
            case "tma":
                return TensorAddr(self.register("b64"), tuple(self.register("b32") for _ in range(form.count)))
        made: Any = (
            self.register(form.cls)
            if not form.count
            else Vec(tuple(self.register(form.cls) for _ in range(form.count)))
        )
        return Pair(Sink(), made) if form.after_sink else made


def decoded(opcode: str, form: tuple[Operand, ...]) -> Code:
    builder = _Builder(opcode)
    operands = tuple(builder.operand(f) for f in form)
    body = [LabelDef("L"), Instr(opcode, operands), Instr("ret")]
    entry = Entry("k", [ParamDecl("p", "b64")], builder.registers, [], body)
    return Code(Program((8, 6), "sm_90a", shared=[SharedDecl("smem", 0, 1024, True)], entries=[entry]), entry)


def test_every_row_of_the_table_decodes() -> None:
    failed = []
    for opcode, row in TABLE.items():
        for form in row.forms:
            try:
                decoded(opcode, form)
            except TeselaError as error:
                if not WITHOUT_MEANING.search(opcode):
                    failed.append(str(error))
            else:
                assert not WITHOUT_MEANING.search(opcode), f"{opcode} has a meaning after all"
    assert not failed, "\n".join(failed[:20])


def opcodes_in_tests() -> Iterator[str]:
    """Opcodes in the texts of the simulator's tests, as far as they are spelt out."""
    for path in [*Path(__file__).parent.glob("test_simulator_*.py"), *PTX.glob("*.ptx")]:
        yield from re.findall(r"[a-z_][a-z0-9_]*(?:\.[\w:]+)*", path.read_text())


def test_every_meaning_has_a_row_and_a_test() -> None:
    rows = {find_meaning(opcode).name for opcode in TABLE}
    assert set(MEANINGS) == rows
    seen = set(opcodes_in_tests())
    untested = [name for name in MEANINGS if not any(word == name or word.startswith(name + ".") for word in seen)]
    assert not untested, f"no test runs: {', '.join(sorted(untested))}"
