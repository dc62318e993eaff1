"""Dots of every element type: a part of the table that bench/dot_table.py runs, and what is refused."""

from __future__ import annotations

import importlib
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import tesela
from tesela import Array, f8E4M3FN, f16, f32, i8, i32, ui8
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.verify import verify_module
from tesela.runtime.compile import compile
from tesela.simulator import settings
from tesela.simulator.bounds import allowed_results, check_results


@pytest.fixture(scope="module")
def table():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "bench"))
        yield importlib.import_module("dot_table")


def _thinned(table):
    """For each target and types a product that differs in orders, width and K tail from those of its neighbours, and batches."""
    cases = list(table.cases())
    plain, batched = ([case for case in cases if bool(case.batch) is kind] for kind in (False, True))
    per_types = len(table.ORDERS) * len(table.WIDTHS) * len(table.K_TAILS)
    for number, start in enumerate(range(0, len(plain), per_types)):
        group = [case for case in plain[start : start + per_types] if case.tile[1] < 192]
        yield group[(31 * number + 5) % len(group)]
    yield from islice(batched, 1, None, 9)


def test_part_of_the_table(table):
    wrong = [(str(case), row.get("error", row["excess"])) for case in _thinned(table) if not (row := table.run(case))["right"]]
    assert not wrong


@pytest.mark.parametrize("kind", [("f8E4M3FN", "f8E5M2", "f32", ""), ("f8E4M3FN", "f8E4M3FN", "f16", ""), ("f32", "f32", "f32", "tf32"), ("ui8", "i8", "i32", "")])
def test_races_and_interpreter(table, kind):
    """Transposed on the way into shared memory, in loops of 1 to 3 trips: no race, and what the interpreter allows."""
    for trips in (1, 2, 3):
        case = table.Case("sm_90a", *kind, "km", "kn", (64, 24, 32), 32 * trips)
        with settings(races=True):
            row = table.run(case)
        assert row["right"], row
        assert any("transposed" in note for note in row["notes"]), row["notes"]
        a, b = table.operands(case)
        arrays = {"A": a, "B": b, "C": np.zeros((60, 16), table.NUMPY[kind[2]])}
        allowed = allowed_results(parse_module(table.program(case)), arrays)
        found = compile(table.program(case), "sm_90a")(a, b, device="sim")
        check_results({"C": found}, {"C": allowed["C"]})


B, M, N, K = tesela.dims("B M N K")
T = tesela.dtype("T")


@tesela.kernel
def batched(A: Array[T, B, M, K], W: Array[T, B, K, N], C: Array[f32, B, M, N]):
    b, i = tesela.grid(tesela.ceildiv(B, 2), tesela.ceildiv(M, 32))
    C[2 * b : 2 * b + 2, 32 * i : 32 * i + 32, 0:16] = A[2 * b : 2 * b + 2, 32 * i : 32 * i + 32, 0:32] @ W[2 * b : 2 * b + 2, 0:32, 0:16]


@pytest.mark.parametrize("dtype", ["f16", "f8E5M2", "f32"])
def test_batches_from_python(table, dtype):
    rng = np.random.default_rng(1)
    a, w = (rng.standard_normal(shape).astype(table.NUMPY[dtype]) for shape in ((3, 40, 32), (3, 32, 16)))
    expected = a.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(batched(a, w, device="sim"), expected, atol=1e-4)


@tesela.kernel
def through_registers(A: Array[f32, M, K], B: Array[f8E4M3FN, N, K], C: Array[f16, M, N]):
    """A computed left operand of 8 bits, summed in f16."""
    a = (A[0:64, 0:64] * 2.0).to(f8E4M3FN)
    C[0:64, 0:32] = tesela.dot(a, B[0:32, 0:64].T, tesela.zeros((64, 32), f16))


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_computed_operand(table, target):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((64, 64)).astype(np.float32), rng.standard_normal((32, 64)).astype(table.NUMPY["f8E4M3FN"])
    left = (2 * a).astype(table.NUMPY["f8E4M3FN"]).astype(np.float64)
    expected = left @ b.astype(np.float64).T
    kernel = tesela.compile(through_registers, target=target)
    np.testing.assert_allclose(kernel(a, b, device="sim").astype(np.float64), expected, atol=0.25)


@tesela.kernel
def bytes_without_a_sign(X: Array[ui8, N], Y: Array[ui8, N], Z: Array[i32, N]):
    x = X[0:128]
    Y[0:128] = tesela.where(x == tesela.full((128,), 200, ui8), tesela.zeros((128,), ui8), x)
    Z[0:128] = x.to(i32) - x.to(i8).to(i32)


def test_bytes_without_a_sign():
    x = np.arange(100, 228).astype(np.uint8)
    y, z = bytes_without_a_sign(x, device="sim")
    np.testing.assert_array_equal(y, np.where(x == 200, 0, x))
    np.testing.assert_array_equal(z, np.where(x < 128, 0, 256))


REFUSED = {
    "tensor<16x16xf16>, tensor<16x16xbf16> -> tensor<16x16xf32>": "one element type",
    "tensor<16x16xf16>, tensor<16x16xf16> -> tensor<16x16xf64>": "a dot of f16 sums in f32 or f16",
    "tensor<16x16xi16>, tensor<16x16xi16> -> tensor<16x16xi32>": "no operands of i16",
    '{precision = "tf32"} tensor<16x16xf64>, tensor<16x16xf64> -> tensor<16x16xf64>': 'precision is "tf32"',
    '{precision = "bf16"} tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>': 'precision is "tf32"',
}


@pytest.mark.parametrize("types", REFUSED)
def test_refused(types):
    attributes, _, rest = types.rpartition("} ")
    operand, _, acc = rest.rpartition(" -> ")
    first, second = operand.split(", ")
    body = f"""tile.kernel @k(%x: {first.split("x")[-1][:-1]}, %y: {second.split("x")[-1][:-1]}, %z: {acc.split("x")[-1][:-1]},
      %C: memref<{acc[7:-1]}> [16, 16]) grid(%b = 1) {{
      %c0 = arith.constant 0 : index
      %a = tile.full %x : {first.split("x")[-1][:-1]} -> {first}
      %c = tile.full %y : {second.split("x")[-1][:-1]} -> {second}
      %s = tile.full %z : {acc.split("x")[-1][:-1]} -> {acc}
      %d = tile.dot %a, %c, %s {attributes + "}" if attributes else ""} : {first}, {second} -> {acc}
      tile.store %d, %C[%c0, %c0] : {acc}, memref<{acc[7:-1]}>
    }}"""
    with pytest.raises(TeselaError, match=REFUSED[types]):
        module = parse_module(body)
        verify_module(module)
        _ = compile(module, "sm_90a").ptx


def test_refused_in_python():
    @tesela.kernel
    def wrong(A: Array[f16, M, K], C: Array[f16, M, M]):
        C[0:16, 0:16] = tesela.dot(A[0:16, 0:16], A[0:16, 0:16], precision="tf32").to(f16)

    with pytest.raises(TeselaError, match='precision is "tf32", for f32 operands'):
        _ = tesela.compile(wrong, target="sm_90a").ptx


def test_8_bit_floats_without_an_instruction_are_said_to_be_emulated(table):
    """On sm_80 in the kernel's notes and in what `explain` says; with wgmma nothing is emulated, and nothing said."""
    for target, emulated in (("sm_80", True), ("sm_90a", False)):
        case = next(case for case in table.cases() if case.target == target and case.lhs == "f8E4M3FN" and case.tile == (64, 64, 64))
        row = table.run(case)
        assert row["right"] and any("converted to f16" in note for note in row["notes"]) == emulated
        kernel = compile(table.program(case), target)
        a, b = table.operands(case)
        kernel(a, b, device="sim")
        assert ("emulated" in kernel.explain()) == emulated
