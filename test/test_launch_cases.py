"""Arrays that break other compilers, through the whole of ours in the simulator: odd rows, offset and reversed and repeated views, in place,
empty. Every result is right, and where a slower path was taken a note says so."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.runtime.compile import compile

EXAMPLES = Path(__file__).parent.parent / "examples"
BASE = np.random.default_rng(0).standard_normal((200, 1024)).astype(ml_dtypes.bfloat16)
TARGETS = ("sm_90a", "sm_80")

STRIDED = """
tile.kernel @copy(%x: memref<?x?xf32, strided<[?, ?]>> [M, N], %y: memref<?x?xf32, strided<[?, ?]>> [M, N])
    grid(%i = M ceildiv 16, %j = N ceildiv 32) {
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %m = arith.muli %i, %c16 : index
  %n = arith.muli %j, %c32 : index
  %t = tile.load %x[%m, %n] : memref<?x?xf32, strided<[?, ?]>> -> tensor<16x32xf32>
  tile.store %t, %y[%m, %n] : tensor<16x32xf32>, memref<?x?xf32, strided<[?, ?]>>
}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("a", "b", "slower"),
    [
        (BASE[:100, :511].copy(), BASE[:70, :511].copy(), "AB"),
        (BASE[:100, 1:512], BASE[:70, :511], "A"),
        (BASE[:100, 8:72], BASE[:70, 64:128], ""),
        (BASE[::-1, :64], BASE[:70, :64], "A"),
        (BASE[:70, :64], BASE[::-3, :64], "B"),
        (np.broadcast_to(BASE[0, :64], (50, 64)), BASE[:70, :64], "A"),
        (BASE[:1, :63], BASE[:1, :63], ""),
        (BASE[:130, :0], BASE[:70, :0], "AB"),
    ],
    ids=["odd rows", "offset base", "offset by 16 bytes", "reversed", "every third, reversed", "repeated", "one row", "empty"],
)
def test_gemm_on_views(target, a, b, slower):
    kernel = compile(EXAMPLES / "gemm.mlir", target)
    before = a.copy(), b.copy()
    c = kernel(a, b, device="sim")
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(c - a @ b.T) <= a.shape[1] * 2.0**-23 * (np.abs(a) @ np.abs(b).T)).all()
    if target == "sm_90a":
        assert [name for name in "AB" if any(f"%{name} is loaded by" in note for note in kernel.notes)] == list(slower)


@pytest.mark.parametrize("target", TARGETS)
def test_transposed_repeated_and_reversed_views(target):
    kernel = compile(STRIDED, target)
    base = np.random.default_rng(1).standard_normal((40, 50)).astype(np.float32)
    for x in (base, base.T, base[::-1, ::-2], base[3:, 5:].T, np.broadcast_to(base[:, :1], (40, 33)), np.broadcast_to(base[0], (19, 50))):
        np.testing.assert_array_equal(kernel(x, device="sim"), x)
        out = np.full((x.shape[1] + 1, 2 * x.shape[0]), 7, np.float32)
        kernel(x, out.T[1::2, 1:], device="sim")
        np.testing.assert_array_equal(out.T[1::2, 1:], x)
        assert (out[0] == 7).all() and (out.T[0::2] == 7).all()


@pytest.mark.parametrize("target", TARGETS)
def test_in_place(target):
    kernel = compile(EXAMPLES / "add.mlir", target)
    x = np.arange(5000, dtype=np.float32)
    kernel(x, x, x, device="sim")
    np.testing.assert_array_equal(x, 2 * np.arange(5000))
    assert kernel.last.facts.noalias == ()
    kernel = compile(EXAMPLES / "softmax.mlir", target)
    rows = np.random.default_rng(2).standard_normal((5, 1500)).astype(np.float32)
    wanted = kernel(rows, device="sim")
    kernel(rows, rows, device="sim")
    np.testing.assert_array_equal(rows, wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_no_blocks(target):
    kernel = compile(EXAMPLES / "gemm.mlir", target)
    assert kernel(BASE[:0], BASE[:5], device="sim").shape == (0, 5)
    assert kernel(BASE[:3, :0], BASE[:5, :0], device="sim").tolist() == [[0.0] * 5] * 3


def test_a_promise_that_a_call_breaks():
    text = (EXAMPLES / "add.mlir").read_text().replace("%z: memref<?xf32, strided<[1]>> [N]", "%z: memref<?xf32, strided<[1]>> [N] {noalias}")
    kernel = compile(text)
    x = np.zeros(64, np.float32)
    with pytest.raises(TeselaError, match="add: z overlaps x in memory, but the program states that it is noalias"):
        kernel(x, np.ones(64, np.float32), x, device="sim")


def test_stated_alignment_and_divisibility():
    text = (EXAMPLES / "softmax.mlir").read_text().replace("[M, N], %y", "[M, N] {align = 64}, %y").replace("%N = N", "%N = N divisible 8")
    kernel = compile(text)
    base = np.random.default_rng(3).standard_normal((6, 160)).astype(np.float32)
    assert kernel(base[:, :96], device="sim").shape == (6, 96)
    with pytest.raises(TeselaError, match="softmax: x starts at an address that is 16 modulo 64, but a multiple of 64 is required"):
        kernel(base[:, 4:100], device="sim")
    with pytest.raises(TeselaError, match=r"softmax: N = 97 \(of x\), but a multiple of 8 is required"):
        kernel(base[:, :97], device="sim")


def test_a_memref_without_strides_is_one_with_rows_anywhere():
    kernel = tesela.compile("""tile.kernel @k(%x: memref<?x?xf32> [M, N], %y: memref<?x?xf32> [M, N]) grid(%i = M) {
      %c0 = arith.constant 0 : index
      %0 = tile.load %x[%i, %c0] : memref<?x?xf32> -> tensor<64xf32>
      tile.store %0, %y[%i, %c0] : tensor<64xf32>, memref<?x?xf32>
      tile.return
    }""")
    x = np.arange(500, dtype=np.float32).reshape(5, 100)
    np.testing.assert_array_equal(kernel(x[:, 3:60], device="sim"), x[:, 3:60])
