"""Results that leave by TMA through shared memory: equal bit for bit to plain stores, inside the array only, and only where TMA can."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from test_specialize_warps import ORDERS, order

from tesela.dialects.layout import TVLayout
from tesela.dialects.parsing import parse_module
from tesela.lowering.tile_to_ptx.stores import _may_read
from tesela.passes.stage_stores import WarpRows, part_layout, warp_rows
from tesela.runtime import launch
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.compile import compile

DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
BF16 = "memref<?x?xbf16, strided<[?, 1]>>"


def gemm(tile: tuple[int, int, int], out: str, attributes: str = "", turned: bool = False) -> str:
    """C = A·Bᵀ, or Cᵀ into %C if `turned`, of element type `out`."""
    m, n, k = tile
    acc, result = f"tensor<{m}x{n}xf32>", f"tensor<{m}x{n}x{out}>"
    cast = f"%r = tile.cast %acc : {acc} -> {result}" if out != "f32" else ""
    array = f"memref<?x?x{out}, strided<[{'1, ?' if turned else '?, 1'}]>>"
    return f"""tile.kernel @gemm(%A: {BF16} [M, K], %B: {BF16} [N, K], %C: {array} [M, N])
    dims(%K = K) grid(%bm = M ceildiv {m}, %bn = N ceildiv {n}) attributes {{{attributes}}} {{
  %c0 = arith.constant 0 : index
  %tm = arith.constant {m} : index
  %tn = arith.constant {n} : index
  %tk = arith.constant {k} : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %tm : index
  %n = arith.muli %bn, %tn : index
  %zero = tile.full %f0 : f32 -> {acc}
  %acc = scf.for %k = %c0 to %K step %tk iter_args(%c = %zero) -> ({acc}) {{
    %a = tile.load %A[%m, %k] : {BF16} -> tensor<{m}x{k}xbf16>
    %b = tile.load %B[%n, %k] : {BF16} -> tensor<{n}x{k}xbf16>
    %t = tile.transpose %b [1, 0] : tensor<{n}x{k}xbf16> -> tensor<{k}x{n}xbf16>
    %d = tile.dot %a, %t, %c : tensor<{m}x{k}xbf16>, tensor<{k}x{n}xbf16> -> {acc}
    scf.yield %d : {acc}
  }}
  {cast}
  tile.store {"%r" if cast else "%acc"}, %C[%m, %n] : {result}, {array}
}}"""


def run(text: str, out: str, sizes: tuple[int, int, int], which: str | int = "latest", turned: bool = False):
    """(all of the memory that holds C, its rows padded to 16 bytes and one row more, and the PTX)."""
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    rows, columns = (n, m) if turned else (m, n)
    unit = 16 // np.dtype(DTYPES[out]).itemsize
    memory = np.full((rows + 1, -(-columns // unit) * unit), -7, DTYPES[out])
    c = memory[:rows, :columns]
    made = compile(text, "sm_90a")
    with order(which):
        made(a, b, c.T if turned else c, device="sim")
    return memory, made.ptx


SIZES = [(128, 128, 64), (8, 8, 8), (136, 72, 128), (392, 200, 136), (257, 104, 72)]


@pytest.mark.parametrize("out", DTYPES)
@pytest.mark.parametrize("tile", [(128, 64, 64), (128, 128, 32), (256, 128, 64), (128, 256, 64), (128, 112, 64)], ids=str)
def test_equal_to_plain_stores(tile, out, monkeypatch):
    for number, sizes in enumerate(SIZES):
        monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", (132, 1, 2)[number % 3])
        wanted, plain = run(gemm(tile, out, "stage_stores = false"), out, sizes)
        found, staged = run(gemm(tile, out), out, sizes, ORDERS[number])
        assert found.tobytes() == wanted.tobytes(), sizes
        assert "cp.async.bulk.tensor.2d.global" in staged and "cp.async.bulk.tensor.2d.global" not in plain


@pytest.mark.parametrize(
    ("tile", "out", "waits"),
    [((128, 112, 64), "bf16", [0]), ((128, 112, 64), "f32", [2, 2, 2, 6, 3, 3, 3]), ((128, 256, 64), "bf16", [1, 1, 1, 1])],
    ids=str,
)
def test_buffers(tile, out, waits):
    """Where parts take little each has a buffer, and nothing waits between them; else how much may still be read when one is written depends on where the last tile's parts ended."""
    _, ptx = run(gemm(tile, out), out, tile)
    assert list(map(int, re.findall(r"cp\.async\.bulk\.wait_group\.read (\d+)", ptx))) == [*waits, 0]


def test_what_may_still_be_read():
    """As counted over two tiles, a group for each part."""
    for parts in range(2, 12):
        for depth in range(1, parts):
            buffers = [part % depth for part in range(parts)] * 2
            for part in range(parts):
                here = parts + part
                before = max(n for n in range(here) if buffers[n] == buffers[here])
                assert _may_read(part, parts, depth) == here - 1 - before


@pytest.mark.parametrize("n", [67, 71, 73, 100])
def test_rows_that_end_inside_of_16_bytes(n):
    """TMA would write to the end of the 16 bytes, so it is not used, and nothing past the edge is written."""
    memory, ptx = run(gemm((128, 64, 64), "bf16"), "bf16", (130, n, 64))
    assert "cp.async.bulk.tensor.2d.global" not in ptx
    assert (memory[:, n:] == -7).all() and (memory[130:] == -7).all() and not (memory[:130, :n] == -7).all()


def test_columns():
    """Where the columns lie side by side in memory, the parts are of columns."""
    for number, sizes in enumerate(SIZES):
        wanted, _ = run(gemm((128, 64, 64), "bf16", "stage_stores = false", True), "bf16", sizes, turned=True)
        found, ptx = run(gemm((128, 64, 64), "bf16", "stage_stores = true", True), "bf16", sizes, ORDERS[number], turned=True)
        assert found.tobytes() == wanted.tobytes(), sizes


def doubled(rows: int, warps: int, layout: str) -> None:
    """Tiles of `rows` × 128 in this layout, doubled and stored by parts, are right."""
    pinned = f"tensor<{rows}x128xbf16, #layout.tv<{layout}>>"
    array = "memref<?x?xbf16, strided<[?, 1]>>"
    text = f"""tile.kernel @double(%A: {array} [M, N], %C: {array} [M, N])
    grid(%bm = M ceildiv {rows}) attributes {{stage_stores = true, warps = {warps} : i64}} {{
  %c0 = arith.constant 0 : index
  %rows = arith.constant {rows} : index
  %m = arith.muli %bm, %rows : index
  %a = tile.load %A[%m, %c0] : {array} -> {pinned}
  %s = arith.addf %a, %a : {pinned}
  tile.store %s, %C[%m, %c0] : {pinned}, {array}
}}"""
    a = np.random.default_rng(0).standard_normal((30, 120)).astype(ml_dtypes.bfloat16)
    c = np.zeros_like(a)
    made = compile(text, "sm_90a")
    with order("latest"):
        made(a, c, device="sim")
    np.testing.assert_array_equal(c, a + a)
    assert "cp.async.bulk.tensor.2d.global" in made.ptx


@pytest.mark.parametrize(
    "value", ["4:(0,32), 12:(1,0)", "2:(0,64), 2:(0,32), 12:(1,0)", "12:(1,0), 4:(0,32)", "2:(0,32), 2:(0,64), 12:(1,0)"]
)
def test_parts_of_no_whole_swizzle_pattern(value):
    """A part of 12 rows: its buffer takes 1536 bytes, and the next begins where the pattern does, at 2048. Two values that share a
    register may be in different parts."""
    doubled(12, 1, f"thread [32:(0,1)], value [{value}]")


@pytest.mark.parametrize(
    ("rows", "warps", "layout"),
    [(12, 1, "thread [32:(0,1)], value [2:(0,64), 2:(0,32), 12:(1,0)]"), (4, 8, "thread [64:(0,1), 4:(1,0)], value [2:(0,64)]")],
)
def test_parts_that_share_registers(rows, warps, layout):
    """The two halves of a register go to different parts of 64 columns."""
    doubled(rows, warps, layout)


def test_without_roles():
    """Asked for in a kernel of one role: its threads wait for the store before they end."""
    wanted, _ = run(gemm((64, 64, 32), "bf16", "stage_stores = false"), "bf16", (72, 72, 64))
    found, ptx = run(gemm((64, 64, 32), "bf16", "stage_stores = true, warp_specialize = false"), "bf16", (72, 72, 64))
    assert found.tobytes() == wanted.tobytes()
    assert "cp.async.bulk.tensor.2d.global" in ptx and "setmaxnreg" not in ptx
    assert ptx.rindex("cp.async.bulk.wait_group.read 0") > ptx.rindex("cp.async.bulk.commit_group")


def test_parts_of_layouts():
    acc = TVLayout.parse("thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 32:(0,8)]")
    assert str(part_layout(acc, 1, 64)) == "thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]"
    assert part_layout(acc, 1, 24) is None  # 32 is no multiple of 3
    side_by_side = TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(0,64)], value [2:(0,1), 2:(8,0), 8:(0,8)]")
    assert part_layout(side_by_side, 1, 32) is None  # half of the threads have their values elsewhere
    assert part_layout(side_by_side, 1, 128) == side_by_side


def test_rows_of_warps():
    """Eight warps of 16 rows each; with two blocks of 64 rows a warp's rows are apart; with rows in two warps they are not whole."""
    wgmma = TVLayout.parse("thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]")
    assert warp_rows(wgmma, 1) == WarpRows(0, 16, ((1, 8, 16),))
    assert warp_rows(TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(128,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]"), 1) == WarpRows(
        0, 16, ((1, 4, 16), (4, 2, 128))
    )
    assert warp_rows(TVLayout.parse("thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8), 2:(128,0)]"), 1) is None
    assert warp_rows(TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(0,32)], value [2:(0,1), 2:(8,0), 4:(0,8)]"), 1) is None
    assert warp_rows(TVLayout.parse("thread [4:(0,2), 8:(1,0), 4:(16,0), 2:(0,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]"), 1) is None


@pytest.mark.skipif(not find_ptxas(), reason="needs ptxas")
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_machine_code(out):
    """No dot is serialised, nothing spilled; each warp stores its rows of each part, and meets no other."""
    _, ptx = run(gemm((128, 256, 64), out), out, (128, 256, 64))
    parts = 256 * np.dtype(DTYPES[out]).itemsize // 128
    assert ptx.count("cp.async.bulk.tensor.2d.global") == parts
    assert ptx.count("bar.sync") == 1 and ptx.count("bar.warp.sync") == 2 * parts
    for assembler in find_ptxas():
        done = assemble(ptx, "sm_90a", assembler=assembler)
        assert not done.messages and done.resources["gemm"].spill_stores == 0


def test_coordinates_of_a_conditional_are_known():
    """Where points of the grid come of a conditional, as divisions that are quick for most of them, starts are aligned and not negative all the same."""
    from tesela.passes.divisibility import Divisibility

    text = """
      builtin.module {
        func.func @f(%c : i1) {
          %a = arith.constant 256 : index
          %b = arith.constant 96 : index
          %n = arith.constant -64 : index
          %x = scf.if %c -> (index) { scf.yield %a : index } else { scf.yield %b : index }
          %y = scf.if %c -> (index) { scf.yield %a : index } else { scf.yield %n : index }
          func.return
        }
      }"""
    found = [op.results[0] for op in parse_module(text).walk() if op.name == "scf.if"]
    facts = Divisibility()
    assert [(facts.divisor(value), facts.nonnegative(value)) for value in found] == [(32, True), (64, False)]
