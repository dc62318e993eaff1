"""What dot_rules chooses, against the instructions' fragment maps written out, and against brute force."""

from __future__ import annotations

import pytest

from tesela.dialects import async_copy, tile
from tesela.dialects.layout import SharedLayout
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.passes import dot_rules
from tesela.passes.base import PassContext
from tesela.passes.descriptors import descriptor_form
from tesela.passes.divisibility import Divisibility
from tesela.passes.dot_rules import DotShape, mma_choice, wgmma_choice
from tesela.passes.infer_layouts import InferLayouts
from tesela.passes.plan_dataflow import PlanDataflow, choose_warps

SHAPES = [(64, 8, 16), (128, 256, 64), (100, 72, 40), (16, 8, 8), (256, 128, 16), (200, 320, 24), (1, 1, 1), (65, 257, 33)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("warps", [4, 8, 12, 16])
def test_wgmma_fragments(shape, warps):
    """PTX ISA 9.0 §9.7.16.5.1: register i of D, element e of A; each instruction's registers are consecutive."""
    m, n, k = shape
    choice = wgmma_choice(DotShape((), m, n, k), warps, True)
    down, along = choice.groups
    columns = choice.extents[1] // along
    assert sum(choice.pieces) == columns and all(piece % 8 == 0 and piece <= 256 for piece in choice.pieces)
    assert choice.extents[0] == 64 * choice.slabs * down and choice.extents[2] % 16 == 0
    assert all(a >= b and a % c == 0 for a, b, c in zip(choice.extents, shape, (64, 8, 16)))
    assert choice.acc.num_threads == 32 * warps and choice.acc.num_values == choice.slabs * columns // 2
    for thread in range(0, 32 * warps, 7):
        group, w, g, q = thread // 128, thread % 128 // 32, thread % 32 // 4, thread % 4
        first_row = 64 * choice.slabs * (group % down)
        first_column = columns * (group // down % along)
        at = 0
        for slab in range(choice.slabs):
            start = 0
            for piece in choice.pieces:
                for i in range(piece // 2):
                    row = first_row + 64 * slab + 16 * w + g + 8 * (i // 2 % 2)
                    assert choice.acc.coords(thread, at + i) == (row, first_column + start + 8 * (i // 4) + 2 * q + i % 2)
                start += piece
                at += piece // 2
        steps = choice.extents[2] // 16
        for slab in range(choice.slabs):
            for step in range(steps):
                for e in range(8):
                    row = first_row + 64 * slab + 16 * w + g + 8 * (e // 2 % 2)
                    value = 8 * (slab * steps + step) + e
                    assert choice.lhs.coords(thread, value) == (row, 16 * step + 2 * q + e % 2 + 8 * (e // 4))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("warps", [4, 8])
def test_wgmma_covers_once(shape, warps):
    m, n, k = shape
    choice = wgmma_choice(DotShape((), m, n, k), warps, False)
    assert choice.acc.covers((m, n)) and choice.acc.is_injective()
    groups = warps // 4
    fewest = -(-m // (64 * groups)) * 64 * groups * -(-n // 8) * 8 // (32 * warps)
    assert choice.acc.num_values <= fewest, "no more than all warpgroups down the rows"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (4, 2)], ids=str)
@pytest.mark.parametrize("warps", [1, 4, 8, 12])
@pytest.mark.parametrize("rows_only", [False, True])
def test_mma_fragments(shape, batch, warps, rows_only):
    """PTX ISA 9.0 §9.7.15.5.8: in every tile of 16x8, c0 … c3, a0 … a3 and b0, b1 are where the instruction has them."""
    m, n, k = shape
    choice = mma_choice(DotShape(batch, m, n, k), warps, rows_only)
    assert choice.acc.covers((*batch, m, n)) and choice.lhs.covers((*batch, m, k)) and choice.rhs.covers((*batch, k, n))
    assert choice.acc.is_injective()
    depth = len(batch)
    a_at = {choice.lhs.value_coords(2 * i) for i in range(choice.lhs.num_values // 2)}
    b_at = {choice.rhs.value_coords(2 * i) for i in range(choice.rhs.num_values // 2)}
    for value in range(0, choice.acc.num_values, 4):
        *where, row, column = choice.acc.value_coords(value)
        assert row % 16 == 0 and column % 8 == 0
        offsets = [(0, 0), (0, 1), (8, 0), (8, 1)]
        assert [choice.acc.value_coords(value + i)[depth:] for i in range(4)] == [(row + r, column + c) for r, c in offsets]
        for step in range(0, choice.extents[2], 16):
            for j in (0, 8):
                assert {(*where, row, step + j), (*where, row + 8, step + j)} <= a_at
                assert (*where, step + j, column) in b_at
    for thread in range(0, 32 * warps, 5):
        g, q = thread % 32 // 4, thread % 4
        *where, row, column = choice.acc.thread_coords(thread)
        assert (row % 16, column % 8) == (g, 2 * q)
        # the operands' parts of a thread lie in the same rows, columns and batch as its accumulators
        assert choice.lhs.thread_coords(thread) == (*where, row, 2 * q)
        assert choice.rhs.thread_coords(thread) == (*where, 2 * q, column - 2 * q + g)
    for layout in (choice.lhs, choice.rhs):
        for i in range(layout.num_values // 2):
            k_dim = depth + (1 if layout is choice.lhs else 0)
            low, high = layout.value_coords(2 * i), layout.value_coords(2 * i + 1)
            assert [b - a for a, b in zip(low, high)] == [int(d == k_dim) for d in range(depth + 2)]


def test_an_accumulator_is_the_next_left_operand():
    """The identity that spares a conversion between two dots, by both instructions."""
    for warps in (4, 8):
        first = wgmma_choice(DotShape((), 128, 64, 32), warps, False)
        second = wgmma_choice(DotShape((), 128, 96, 64), warps, True)
        if first.slabs == 1:
            assert first.acc == second.lhs
        first, second = (mma_choice(DotShape((), 128, n, k), warps, True) for n, k in ((64, 32), (96, 64)))
        if 128 // 16 == warps:
            assert first.acc == second.lhs


@pytest.mark.parametrize("swizzle", [128, 64, 32, 0])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("shape", [(128, 128), (64, 64), (192, 64)], ids=str)
def test_descriptors_point_at_blocks(swizzle, order, shape):
    """The start of every block of 8 rows and of every step of K lies where the descriptor says, and so do the next ones."""
    layout = SharedLayout.tma(shape, 2, swizzle, order)
    form = descriptor_form(layout, 0)
    assert form is not None and form.mn_contiguous == (order[0] == 0) and form.swizzle == swizzle

    def where(mn, k):
        return 2 * layout.linear((mn, k))

    span = (swizzle or 16) // 2
    step = max(span, 8) if form.mn_contiguous else 8
    for mn in range(0, shape[0], step):
        for k in range(0, shape[1], 16):
            assert form.at(mn, k) == where(mn, k)
    if form.mn_contiguous:
        if swizzle:
            assert form.stride == where(0, 8) and (shape[0] == span or form.leading == where(span, 0))
        else:
            assert form.leading == where(0, 8) and form.stride == where(8, 0)
    else:
        assert form.stride == where(8, 0)
        if not swizzle:
            assert form.leading == where(0, 8)


def test_foreign_layouts_have_no_descriptor():
    assert descriptor_form(SharedLayout.row_major((64, 64)), 0) is None
    assert descriptor_form(SharedLayout.row_major((64, 64), pad=8), 0) is None


# ---- puts -----------------------------------------------------------------------------------------------------------

PUT = """
tile.kernel @k(%A: memref<{memref}> [{shape}] {attrs}, %C: memref<?x?xf32, strided<[?, 1]>> [M, M]) dims(%M = M) grid(%g = M) {{
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %far = arith.muli %g, %c64 : index
  %near = arith.addi %far, %c4 : index
  %odd = arith.addi %far, %c3 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  {before}
  %a = tile.load %A[{start}] : memref<{memref}> -> tensor<64x{k}xbf16>
  %t = tile.transpose %a [1, 0] : tensor<64x{k}xbf16> -> tensor<{k}x64xbf16>
  %d = tile.dot %a, %t, %zero : tensor<64x{k}xbf16>, tensor<{k}x64xbf16> -> tensor<64x64xf32>
  {after}
}}"""
ROWS = "?x?xbf16, strided<[?, 1]>"


def planned(target, memref=ROWS, shape="M, K", attrs="{align = 16 : i64}", start="%g, %far", k=64, before="", after=""):
    text = PUT.format(memref=memref, shape=shape, attrs=attrs, start=start, k=k, before=before, after=after)
    module = parse_module(text)
    context = PassContext(get_target(target))
    PlanDataflow().run(module, context)
    InferLayouts().run(module, context)
    put = next(op for op in module.walk() if isinstance(op, async_copy.PutOp))
    layout = put.channel.type.layout.data
    align = int(attrs.split("=")[1].split(":")[0]) if "align" in attrs else 2
    facts = Divisibility()
    needs = dot_rules.channel_needs(put.channel, get_target(target))
    choice = dot_rules.choose_put(put, layout, needs, get_target(target), facts.divisor, align)
    assert choice.via == put.via.data
    return choice.via, choice.reason or "", dot_rules.copy_bytes(put, layout, facts.divisor, align)


STORE = "tile.store %zero, %C[%c0, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>"


@pytest.mark.parametrize(
    ("options", "ways", "bytes_", "reason"),
    [
        ({}, ("tma", "cp.async"), 16, ""),
        ({"start": "%g, %near"}, ("cp.async", "cp.async"), 8, "only known to be a multiple of 8 bytes"),
        ({"start": "%g, %odd"}, ("ld", "ld"), 2, "only known to be a multiple of 2 bytes"),
        ({"attrs": "{align = 4 : i64}"}, ("cp.async", "cp.async"), 4, "multiples of 4 bytes"),
        ({"attrs": ""}, ("ld", "ld"), 2, "state align = 16"),
        ({"k": 24}, ("cp.async", "cp.async"), 16, "the rest must be zero"),
        ({"k": 20}, ("cp.async", "cp.async"), 8, "the rest must be zero"),
        ({"memref": "?x?xbf16, strided<[?, ?]>"}, ("ld", "ld"), 2, "no dimension of the tile is known to have stride 1"),
        ({"memref": "?x?xbf16, strided<[100, 1]>"}, ("cp.async", "cp.async"), 8, "multiples of 8 bytes"),
        ({"memref": "?x?xbf16, strided<[1, ?]>", "start": "%far, %g"}, ("tma", "cp.async"), 16, ""),
        ({"before": STORE}, ("cp.async", "cp.async"), 16, "may have stored"),
        ({"before": STORE, "attrs": "{align = 16 : i64, noalias}"}, ("tma", "cp.async"), 16, ""),
        ({"after": STORE}, ("tma", "cp.async"), 16, ""),
        ({"memref": "?x?x?x?x?x?xbf16, strided<[?, ?, ?, ?, ?, 1]>", "shape": "B, B, B, B, M, K", "start": "%c0, %c0, %c0, %c0, %g, %far"},
         ("cp.async", "cp.async"), 16, "TMA takes 5"),
    ],
)  # fmt: skip
def test_how_a_put_copies(options, ways, bytes_, reason):
    """The best way that is right; where it is not TMA, the reason says what was missing."""
    via, why, width = planned("sm_90a", **options)
    assert (via, width) == (ways[0], bytes_) and reason in why and bool(why) == (ways[0] != "tma")
    via, why, width = planned("sm_80", **options)
    assert (via, width) == (ways[1], bytes_) and bool(why) == (via == "ld")


def test_a_store_in_a_loop_comes_before_too():
    loop = "scf.for %i = %c0 to %M step %c64 {"
    body = "\n".join([loop, "  scf.yield", "}"])
    assert planned("sm_90a", before=body)[0] == "tma"
    text = PUT.format(memref=ROWS, shape="M, K", attrs="{align = 16 : i64}", start="%g, %far", k=64, before=loop, after=STORE + "}")
    module = parse_module(text)
    context = PassContext(get_target("sm_90a"))
    PlanDataflow().run(module, context)
    InferLayouts().run(module, context)
    put = next(op for op in module.walk() if isinstance(op, async_copy.PutOp))
    assert put.via.data == "cp.async" and "may have stored" in put.attributes["reason"].data


# ---- warps ----------------------------------------------------------------------------------------------------------

DOT = """
tile.kernel @k(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K]) grid(%g = M) {{
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<{m}x{n}xf32>
  %a = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<{m}x64xbf16>
  %b = tile.load %A[%c0, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x{n}xbf16>
  %d = tile.dot %a, %b, %zero : tensor<{m}x64xbf16>, tensor<64x{n}xbf16> -> tensor<{m}x{n}xf32>
}}"""


@pytest.mark.parametrize(
    ("target", "m", "n", "warps"),
    [
        ("sm_90a", 64, 256, 4),
        ("sm_90a", 128, 128, 8),
        ("sm_90a", 128, 256, 8),
        ("sm_90a", 192, 128, 12),
        ("sm_90a", 64, 64, 4),
        ("sm_90a", 16, 8, 4),
        ("sm_80", 64, 64, 4),
        ("sm_80", 128, 128, 8),
        ("sm_80", 16, 16, 4),
        ("sm_80", 128, 256, 8),
        ("sm_80", 256, 256, 16),
    ],
)
def test_chosen_warps(target, m, n, warps):
    """A warpgroup for each 64 rows, up to two (three for 192), and accumulators of at most 128 registers a thread."""
    module = parse_module(DOT.format(m=m, n=n))
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    dots = [op for op in kernel.walk() if isinstance(op, tile.DotOp)]
    assert choose_warps(kernel, dots, get_target(target)) == warps
