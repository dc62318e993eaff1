"""passes/layout_problem.py and dot_candidates.py: all candidates are there, and the solver's answer is the best of all combinations."""

from __future__ import annotations

import time
from itertools import product
from math import prod
from pathlib import Path

import pytest

from tesela.dialects import async_copy, tile
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.passes import dot_candidates, layout_problem
from tesela.passes.base import PassContext
from tesela.passes.dot_candidates import candidates
from tesela.passes.dot_rules import DotShape
from tesela.passes.infer_layouts import InferLayouts, Solved, split_free_values
from tesela.passes.layout_problem import LayoutProblem, build, solve
from tesela.passes.plan_dataflow import PlanDataflow

HERE = Path(__file__).parent
GEMM = (HERE.parent / "examples" / "gemm.mlir").read_text()


def problems(text: str, target: str) -> list[LayoutProblem]:
    module = parse_module(text, "k.mlir")
    PlanDataflow().run(module, PassContext(get_target(target)))
    found = []
    for kernel in [op for op in module.walk() if isinstance(op, tile.KernelOp)]:
        split_free_values(kernel)
        found.append(build(kernel, get_target(target)))
    return found


# ---- candidates of dots ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "k", "warps", "possible", "out"),
    [
        (128, 256, 64, 8, 96, 64),  # 2x1: 32 widths, 1x2: 16, each from shared memory and registers; 1x1: its accumulators do not fit
        (64, 256, 64, 4, 64, 0),  # 1x1: 32 widths
        (128, 128, 64, 8, 80, 0),  # 2x1 and 1x1: 16 widths, 1x2: 8
        (128, 40, 64, 4, 10, 0),  # 5 widths
        (192, 96, 32, 8, 64, 0),  # 2x1 (slabs of 128 + 64 rows): 12, 1x2: 64 columns each, so 8; 1x1: 12
        (16, 128, 64, 4, 32 + 2, 0),  # 1x1: 16 widths; transposed, 2 slabs: 2 widths, from shared memory only
        (32, 256, 64, 8, 2 * (32 + 32 + 16) + 4 + 4 + 8, 0),  # transposed 1x1 and 2x1: 4 widths each, 1x2: 64 columns for each, so 8
        (40, 72, 64, 4, 2 * 9, 0),  # 64×72 padded, 40×128 transposed: no less
    ],
)
def test_every_width_arrangement_and_source(m, n, k, warps, possible, out):
    offer = candidates(DotShape((), m, n, k), "wgmma", warps, get_target("sm_90a"), "buffer")
    ways = [rejection for rejection in offer.rejections if "accumulators" in rejection.reason]
    assert (len(offer.candidates), len(ways)) == (possible, out)
    texts = {way.text for way in offer.candidates}
    assert len(texts) == possible
    # all of them, written out
    groups, wanted = warps // 4, set()
    for down, along in product((1, 2, 4), repeat=2):
        if down * along <= groups:
            columns = n if along == 1 else -(-n // (64 * along)) * 64
            columns = -(-columns // 8) * 8
            for width, source in product(range(8, min(columns, 256) + 1, 8), ("shared", "registers")):
                wanted.add(f"wgmma m64n{width}k16 {down}x{along} {source}")
            if -(-m // 64) * 64 * -(-n // 8) * 8 > -(-n // 64) * 64 * -(-m // 8) * 8:
                columns = -(-m // 8) * 8 if along == 1 else -(-m // (64 * along)) * 64
                wanted |= {f"wgmma m64n{width}k16 {down}x{along} shared transposed" for width in range(8, min(columns, 256) + 1, 8)}
    assert texts | {way.text for way in ways} == wanted


def test_the_choice_of_a_hand_written_gemm_is_among_them():
    """128×256 tiles, two warpgroups one under the other, 256 columns an instruction, both operands from shared memory: and it is the best."""
    offer = candidates(DotShape((), 128, 256, 64), "wgmma", 8, get_target("sm_90a"), "buffer")
    assert "wgmma m64n256k16 2x1 shared" in {way.text for way in offer.candidates}
    (made,) = problems(GEMM, "sm_90a")
    (dot,) = made.dots.values()
    assert solve(made).candidate(dot).text == "wgmma m64n256k16 2x1 shared"


@pytest.mark.parametrize(("batch", "warps", "count"), [((), 4, 6), ((), 8, 10), ((2,), 8, 16), ((3,), 4, 6)])
def test_every_arrangement_of_warps(batch, warps, count):
    """The ways to deal a power of two out to rows and columns, and to a batch as far as it divides; the others compute copies."""
    offer = candidates(DotShape(batch, 64, 64, 32), "mma", warps, get_target("sm_80"), "read")
    too_large = [rejection for rejection in offer.rejections if "1x" in rejection.text]
    assert len(offer.candidates) + len(too_large) == len({way.text for way in (*offer.candidates, *too_large)}) == count
    assert all("accumulators" in rejection.reason for rejection in too_large)


@pytest.mark.parametrize(("m", "n", "turned"), [(8, 64, True), (16, 64, False), (24, 64, True), (64, 8, False), (3, 16, True), (8, 8, False)])
def test_mma_of_few_rows_comes_transposed_too(m, n, turned):
    """Where 16 rows are more padding than 8 columns are: the result's 8 rows are the instruction's columns."""
    offer = candidates(DotShape((), m, n, 32), "mma", 4, get_target("sm_80"), "read")
    texts = {way.text for way in offer.candidates}
    assert len(texts) == (12 if turned else 6)
    assert {f"{text} transposed" for text in texts if "transposed" not in text} & texts == {text for text in texts if "transposed" in text}
    for way in offer.candidates:
        assert way.choice.acc.covers((m, n)) and way.choice.lhs.covers((m, 32)) and way.choice.rhs.covers((32, n))
        assert offer.named(way.text) == (way,), "a whole text names one way"
    if turned:
        assert "transposed" in offer.candidates[0].text, "it multiplies less"


def test_what_is_out_has_a_reason():
    offer = candidates(DotShape((), 256, 256, 64), "wgmma", 8, get_target("sm_90a"), "registers")
    reasons = {rejection.reason for rejection in offer.rejections}
    assert any("accumulators take 256 registers" in reason for reason in reasons)
    assert any("the left operand is computed" in reason for reason in reasons)
    assert any("multiply as much padding" in reason for reason in reasons)
    few = candidates(DotShape((), 16, 256, 64), "wgmma", 8, get_target("sm_90a"), "registers")
    assert any("takes its right one from shared memory" in rejection.reason for rejection in few.rejections)


# ---- the optimum ----------------------------------------------------------------------------------------------------

CHAIN = """
tile.kernel @chain(%A: memref<?x?xbf16, strided<[?, 1]>> [M, N] {align = 16}, %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {noalias}) grid(%g = M ceildiv 64)
    attributes {warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %m = arith.muli %g, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<64x64xf32>
  %a = tile.load %A[%m, %c0] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
  %b = tile.load %A[%m, %c64] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
  %s = tile.dot %a, %b, %zero : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %r = tile.reduce max %s axis 1 : tensor<64x64xf32> -> tensor<64xf32>
  %e = tile.expand %r axis 1 : tensor<64xf32> -> tensor<64x1xf32>
  %w = tile.broadcast %e : tensor<64x1xf32> -> tensor<64x64xf32>
  %x = arith.subf %s, %w : tensor<64x64xf32>
  %p = tile.cast %x : tensor<64x64xf32> -> tensor<64x64xbf16>
  %d = tile.dot %p, %b, %zero : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  tile.store %d, %C[%m, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}"""
SOURCES = {
    "gemm": GEMM,
    "small": (HERE / "ir" / "infer_layouts" / "propagate.mlir").read_text(),
    "bias": (HERE / "ir" / "infer_layouts" / "dot.mlir").read_text(),
}
LIMIT = 300_000


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", SOURCES)
def test_no_combination_is_better(name, target):
    """Every combination of every candidate, by adding up the tables."""
    for made in problems(SOURCES[name], target):
        problem = made.problem
        sizes = [len(variable.candidates) for variable in problem.variables]
        if prod(sizes) > LIMIT:
            continue
        total = sum(
            table.costs.transpose(sorted(range(len(table.variables)), key=lambda axis: table.variables[axis].index)).reshape(
                [size if variable in table.variables else 1 for variable, size in zip(problem.variables, sizes)]
            )
            for table in problem.tables
        )
        assert int(total.min()) == problem.solve().cost <= made.optimum().cost


def test_what_is_left_out_as_dominated_could_not_win(monkeypatch):
    """With every way of a dot and every swizzle in the problem the optimum costs the same."""
    few = [problems(text, target)[0] for text in (GEMM, CHAIN) for target in ("sm_90a", "sm_80")]
    monkeypatch.setattr(dot_candidates, "distinct", tuple)
    monkeypatch.setattr(layout_problem, "_undominated", lambda made, op, group: group)
    many = [problems(text, target)[0] for text in (GEMM, CHAIN) for target in ("sm_90a", "sm_80")]
    more = 0
    for small, large in zip(few, many):
        more += sum(map(len, (v.candidates for v in large.problem.variables))) - sum(map(len, (v.candidates for v in small.problem.variables)))
        assert small.optimum().cost == large.optimum().cost
    assert more > 100


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_one_dot_after_another_without_conversion(target):
    """What lies between two dots stays in the registers in which the first has left it."""
    (made,) = problems(CHAIN, target)
    solution = solve(made)
    first, second = (solution.candidate(variable) for variable in made.dots.values())
    assert first.choice.acc == second.choice.lhs
    assert not [table for table, _ in made.problem.terms(solution) if table.label == "convert"]


def test_the_same_answer_again():
    def answer() -> list[str]:
        module = parse_module(CHAIN)
        context = PassContext(get_target("sm_90a"))
        PlanDataflow().run(module, context)
        InferLayouts().run(module, context)
        return [str(value.type) for op in module.walk() for value in op.results]

    assert answer() == answer()


def test_in_time():
    """Cold: the memos are emptied. A few milliseconds; the limit leaves room for slow machines."""
    memos = [getattr(module, name) for module in (dot_candidates, layout_problem, layout_problem.layout_costs, layout_problem.dot_rules)
             for name in dir(module) if hasattr(getattr(module, name), "cache_clear")]  # fmt: skip
    module = parse_module(GEMM)
    context = PassContext(get_target("sm_90a"))
    PlanDataflow().run(module, context)
    for memo in memos:
        memo.cache_clear()
    start = time.process_time()
    InferLayouts().run(module, context)
    assert time.process_time() - start < 0.2 and memos


def test_loads_of_two_orders_meet_by_a_conversion():
    """One array is contiguous along rows, the other along columns: each is loaded by whole lines, and one of the two is converted."""
    text = """tile.kernel @k(%x: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16}, %y: memref<?x?xf32, strided<[1, ?]>> [M, N] {align = 16},
        %z: memref<?x?xf32, strided<[?, 1]>> [M, N] {align = 16}) where(N divisible 4, M divisible 4) grid(%g = M ceildiv 64) attributes {warps = 4 : i64} {
      %c0 = arith.constant 0 : index
      %c64 = arith.constant 64 : index
      %m = arith.muli %g, %c64 : index
      %a = tile.load %x[%m, %c0] : memref<?x?xf32, strided<[?, 1]>> -> tensor<64x64xf32>
      %b = tile.load %y[%m, %c0] : memref<?x?xf32, strided<[1, ?]>> -> tensor<64x64xf32>
      %s = arith.addf %a, %b : tensor<64x64xf32>
      tile.store %s, %z[%m, %c0] : tensor<64x64xf32>, memref<?x?xf32, strided<[?, 1]>>
    }"""
    module = parse_module(text)
    context = PassContext(get_target("sm_80"))
    inference = InferLayouts()
    inference.run(module, context)
    (found,) = inference.solved
    assert isinstance(found, Solved) and len(found.converts) == 1
    first, second = [op.res.type.encoding.data for op in module.walk() if isinstance(op, tile.LoadOp)]
    assert first.contiguous(1) == 4 and second.contiguous(0) == 4
    assert not [op for op in module.walk() if isinstance(op, async_copy.ChannelOp)]


def test_a_tile_that_does_not_fit_is_not_exchanged():
    """256 KiB cannot go through shared memory: the transposed tile is stored as it is held. A quarter of it is exchanged."""
    text = """tile.kernel @k(%x: memref<?x?xf32, strided<[?, 1]>> [M, N] {{align = 16}}, %y: memref<?x?xf32, strided<[?, 1]>> [N, M] {{align = 16}})
        grid(%i = 1) attributes {{warps = 16 : i64}} {{
      %v = tile.load %x[%i, %i] : memref<?x?xf32, strided<[?, 1]>> -> tensor<{n}x{n}xf32>
      %w = tile.transpose %v [1, 0] : tensor<{n}x{n}xf32> -> tensor<{n}x{n}xf32>
      tile.store %w, %y[%i, %i] : tensor<{n}x{n}xf32>, memref<?x?xf32, strided<[?, 1]>>
    }}"""
    converts = []
    for n in (128, 256):
        inference = InferLayouts()
        inference.run(parse_module(text.format(n=n)), PassContext(get_target("sm_80")))
        converts.append(len(inference.solved[0].converts))
    assert converts == [1, 0]
