"""Variants by size: what is counted, what the model makes of it, and which program a call takes."""

from __future__ import annotations

import dataclasses
import logging
from math import ceil

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import Array, bf16, f32, i32
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.target import get_target
from tesela.dialects.work import Request, SplitLoop, Term, Work, estimate
from tesela.lowering.count_work import MACHINE, count_work
from tesela.passes.machine_costs import SUSTAINED
from tesela.runtime import launch
from tesela.runtime.specialize import contract_of, kernels_of, specialize, usual_facts
from tesela.runtime.variants import Choice

M, N, K = tesela.dims("M N K")
VARIANTS = [{"BM": 128, "BN": 256}, {"BM": 128, "BN": 128}, {"BM": 64, "BN": 64, "stages": 3}]


@tesela.kernel(variants=VARIANTS)
def gemm(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], BM: tesela.constexpr, BN: tesela.constexpr, BK: tesela.constexpr = 64):
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, BK):
        acc += A[m : m + BM, k : k + BK] @ B[n : n + BN, k : k + BK].T
    C[m : m + BM, n : n + BN] = acc


@tesela.kernel(variants={"ROWS": [8, 1]})
def scale(x: Array[f32, M, N], y: Array[f32, M, N], ROWS: tesela.constexpr):
    m = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    for n in tesela.range(0, N, 1024):
        y[m : m + ROWS, n : n + 1024] = tesela.exp2(x[m : m + ROWS, n : n + 1024]) * 2.0


def operands(m: int, n: int, k: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k))]


def shapes(m: int, n: int, k: int) -> tuple[tuple[int, int], ...]:
    return (m, k), (n, k), (m, n)


def counted(kernel: tesela.KernelFunction, target: str, **values) -> Work:
    module = kernel.trace(**values)
    contract = contract_of(kernels_of(module)[kernel.name])
    return count_work(specialize(module, kernel.name, usual_facts(contract)), get_target(target))


# ---- counts ---------------------------------------------------------------------------------------------------------


def test_counts_of_a_product():
    work = counted(gemm, "sm_90a", BM=128, BN=256)
    assert work.grid == ("M ceildiv 128", "N ceildiv 256")
    # 128·256·64 multiplications at 2048 a clock; (128 + 256)·64 elements of two bytes; 128·256 of four, once
    # and what wgmma reads of it: m64n256k16 (64 + 256)·16 elements, 8 times. Of two blocks each loads half of B, which are neighbours along M.
    a, b = Request(16384, 16384, 128, "2 * K"), Request(32768, 16384, 128, "2 * K")
    assert Term(("K ceildiv 64",), ceil(1024 / SUSTAINED), 49152, 0, True, 49152 + 8 * 320 * 16 * 2, (a, b)) in work.terms
    assert Term((), 0, 0, 131072) in work.terms and (work.cluster, work.axis) == (2, 0)
    assert work.split == SplitLoop("K ceildiv 64", 131072)
    assert work.persistent and work.resident == 1 and work.warps == 12
    assert Work.from_json(work.to_json()) == work


def test_narrow_instructions_wait_for_shared_memory():
    """m64n16k16: (64 + 16)·16 elements of two bytes at 128 a clock, 20, not 8."""
    work = counted(gemm, "sm_90a", BM=64, BN=16)
    (term,) = (term for term in work.terms if term.trips)
    assert (term.compute, term.copied, term.exchanged) == (ceil(80 / SUSTAINED), 10240, 10240 + 4 * 80 * 16 * 2)


def test_counts_of_loops_and_arithmetic():
    work = counted(scale, "sm_80", ROWS=1)
    (term,) = work.terms
    assert term.trips == ("N ceildiv 1024",) and (term.copied, term.stored) == (4096, 4096)
    assert 1024 / 16 <= term.compute <= 1024 / 15 + 1024 / 100 + 1  # exponentials, then products
    assert work.split is None and work.grid == ("M",) and work.resident > 8


def test_only_the_split_loop_is_shared():
    """Normalisation: a loop that adds up, and one that scales by what came of it."""

    @tesela.kernel
    def normalized(x: Array[f32, M, N], y: Array[f32, M, N]):
        m = tesela.grid(M)
        total = tesela.zeros((1024,), f32)
        for n in tesela.range(0, N, 1024):
            total += x[m, n : n + 1024]
        whole = total.sum()
        for n in tesela.range(0, N, 1024):
            y[m, n : n + 1024] = x[m, n : n + 1024] / whole

    work = counted(normalized, "sm_80")
    inside = [term for term in work.terms if term.trips]
    assert [term.shared for term in inside] == [True, False] and [term.stored for term in inside] == [0, 4096]


# ---- the model ------------------------------------------------------------------------------------------------------

TERMS = (Term(("K ceildiv 64",), 512, 100, 0, True), Term((), 0, 0, 4096))
LONG = Work(("M ceildiv 64",), 4, 1024, 1, False, 1000, 10**6, TERMS, MACHINE, SplitLoop("K ceildiv 64", 4096))


def clocks(work: Work, m: int, k: int, parts: int = 1, nbytes: int = 0) -> float:
    return estimate(work, {"M": m, "K": k}, 100, nbytes, parts).clocks


def test_waves_count():
    whole = clocks(LONG, 100 * 64, 64 * 1000)
    assert clocks(LONG, 101 * 64, 64 * 1000) == pytest.approx(2 * whole, rel=0.05)
    assert clocks(LONG, 200 * 64, 64 * 1000) == pytest.approx(clocks(LONG, 101 * 64, 64 * 1000))
    assert estimate(LONG, {"M": 0, "K": 64}, 100).clocks == 0


def test_splitting_pays_for_long_loops_of_small_grids():
    assert clocks(LONG, 64, 64 * 1000, 8) < clocks(LONG, 64, 64 * 1000) / 6
    assert clocks(LONG, 64, 64 * 4, 4) > clocks(LONG, 64, 64 * 4)
    assert clocks(LONG, 100 * 64, 64 * 1000, 2) > clocks(LONG, 100 * 64, 64 * 1000)


def test_what_follows_a_split_loop_is_done_by_one_block():
    """A second loop of as many trips, which the last part does alone: splitting the first one saves half at most."""
    both = Work(("M ceildiv 64",), 4, 1024, 1, False, 1000, 10**6, (*TERMS, Term(("K ceildiv 64",), 512, 0, 0)), MACHINE, LONG.split)
    whole, split = clocks(both, 64, 64 * 1000), clocks(both, 64, 64 * 1000, 8)
    assert whole / 2 < split < whole


def test_nothing_is_faster_than_memory():
    assert clocks(LONG, 64, 64, nbytes=2150 * 10**6) > 10**6
    assert estimate(LONG, {"M": 64, "K": 64}, 100, 10**9).bound == "memory"


def test_pairs_of_multiprocessors_share_a_way_to_l2():
    """Blocks get twice as much of L2 while each pair has one; with one more, as little as with two for each. So do those that wait for memory: 1.2 equal shares for a pair."""
    term = Term(("K ceildiv 64",), 10, 10**5, 0, True)
    work = dataclasses.replace(LONG, terms=(term,), machine=dataclasses.replace(MACHINE, copies=10**6))
    half, more, all_of_them = (clocks(work, blocks * 64, 64 * 1000) for blocks in (50, 51, 100))
    assert more == pytest.approx(2 * half, rel=0.01) and more == pytest.approx(all_of_them, rel=0.01)
    few, half, more, all_of_them = (clocks(LONG, blocks * 64, 64, nbytes=2150 * 10**6) for blocks in (25, 50, 51, 100))
    assert half == pytest.approx(all_of_them, rel=0.01)
    assert few == pytest.approx(all_of_them / 0.6, rel=0.01) and more == pytest.approx(all_of_them / 0.612, rel=0.01)


def test_what_is_in_l2_is_not_waited_for():
    """Arguments that fit L2 cost nothing to repeat a launch with, those of half as much again all that they take from memory."""
    of = MACHINE.l2_bytes
    none, fit, over, far = (clocks(LONG, 100 * 64, 64, nbytes=nbytes) for nbytes in (0, of, of * 3 // 2, 3 * of))
    assert fit == none and over > none + of / MACHINE.memory
    assert far - over == pytest.approx(1.5 * of / MACHINE.memory, rel=0.05)


def test_clusters_that_load_together_begin_later():
    works = [dataclasses.replace(LONG, cluster=cluster) for cluster in (1, 2)]
    alone, pairs = (estimate(work, {"M": 100 * 64, "K": 64 * 4}, 100).clocks for work in works)
    assert pairs - alone == MACHINE.pairing
    odd = [estimate(work, {"M": 101 * 64, "K": 64 * 4}, 101).clocks for work in works]  # where they do not suit there are none
    assert odd[0] == odd[1]


def test_rows_that_straddle_lines():
    """Rows of 128 bytes that begin anywhere at multiples of 16 lie in two lines in 7 of 8 cases; of 64 bytes in 3 of 8; a cluster asks for half."""
    assert [Request(0, 0, row, "2 * K").lines({"K": k}) for row, k in ((128, 4096), (128, 4040), (64, 4040), (64, 4000), (32, 4040))] == [1, 1.875, 1.375, 1, 1.125]
    term = Term(("K ceildiv 64",), 100, 49152, 0, True, 0, (Request(32768, 16384, 128, "2 * K"), Request(16384, 16384, 128, "2 * K")))
    works = [dataclasses.replace(LONG, terms=(term,), persistent=True, cluster=cluster) for cluster in (1, 2)]
    dims = {"M": 100 * 64, "K": 64 * 1000}
    straight, crooked = ([estimate(work, {**dims, "K": k}, 100).clocks for work in works] for k in (64 * 1000, 64 * 1000 - 8))
    assert crooked[0] == pytest.approx(1.875 * straight[0], rel=0.01) and crooked[1] == pytest.approx(2 / 3 * crooked[0], rel=0.01)
    alone = estimate(works[1], {"M": 101 * 64, "K": 64 * 1000 - 8}, 101).clocks  # 50 multiprocessors by twos would do two rounds
    assert alone == pytest.approx(crooked[0], rel=0.02)


def test_shared_memory_is_a_limit():
    term = Term(("K ceildiv 64",), 100, 100, 0, True, 1000 * 128)
    work = dataclasses.replace(LONG, terms=(term,))
    assert clocks(work, 64, 64 * 1000) == pytest.approx(1000 * 1000, rel=0.01)


# ---- choosing -------------------------------------------------------------------------------------------------------


def choice(kernel: tesela.Kernel, m: int, n: int, k: int) -> Choice:
    stated = kernel._stated(shapes(m, n, k), {})
    return kernel._choose(stated.facts, get_target("sm_90a"), stated.dims, 132, stated.nbytes)


def test_pins_are_integers_of_any_kind():
    """Those of NumPy have an attribute `data` of their own, which is not their value."""
    assert scale.compile("sm_90a", pins={"warps": np.int64(8)}, ROWS=1).variant((64, 64), (64, 64)).plan.threads == 256
    with pytest.raises(TeselaError, match="warps must be 1, 2, 4"):
        scale.compile("sm_90a", pins={"warps": np.int64(3)}, ROWS=1).variant((64, 64), (64, 64))


def test_extents_below_zero_state_no_array():
    with pytest.raises(TeselaError, match=r"gemm: A has the extents \(-128, 64\), but an extent is 0 or more"):
        gemm.compile("sm_90a").choices(*shapes(-128, 64, 64))


def test_large_tiles_for_large_arrays_and_parts_for_long_sums():
    kernel = gemm.compile("sm_90a")
    assert choice(kernel, 8192, 8192, 8192) == Choice(0)
    assert choice(kernel, 1024, 1024, 256) == Choice(2)
    found = choice(kernel, 64, 64, 2**16)
    assert found.parts > 4
    assert choice(gemm.compile("sm_90a", pins={"split": 1}), 64, 64, 2**16).parts == 1


def test_a_call_takes_its_choice_and_compiles_nothing_else(monkeypatch):
    made = []
    compiled = tesela.runtime.compile.ModuleCompiler._compile
    monkeypatch.setenv("TESELA_CACHE", "0")
    monkeypatch.setattr(
        tesela.runtime.compile.ModuleCompiler, "_compile", lambda self, *rest: made.append(self.pins) or compiled(self, *rest)
    )
    kernel = gemm.compile("sm_90a", BK=32)
    for m, n, k in ((130, 70, 96), (66, 130, 96), (130, 70, 96)):
        a, b = operands(m, n, k)
        c = kernel(a, b, device="sim")
        np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-4)
        assert kernel.last.plan.grid == ("M ceildiv 64", "N ceildiv 64")
    assert made == [{"stages": 3}]  # one program, for both sizes
    assert "* BM=64 BN=64 stages=3        6       1" in kernel.explain()


def test_a_split_choice_is_launched():
    kernel = gemm.compile("sm_90a", BM=64, BN=64)
    a, b = operands(8, 8, 4096)
    c = kernel(a, b, device="sim")
    assert kernel.last.choice.parts > 1 and kernel.last.plan.grid[2] == str(kernel.last.choice.parts)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-3)
    assert c.tobytes() == kernel(a, b, device="sim").tobytes()
    assert "tile.sum_parts" in kernel.ir("layout")


def test_values_that_are_given_are_no_choice():
    a, b = operands(130, 70, 96)
    whole = gemm.compile("sm_90a", BM=128)
    assert [row.split()[0] for row in whole.choices(*shapes(130, 70, 96)).splitlines() if "BM=" in row].count("BM=64") == 0
    gemm(a, b, BM=128, BN=128, target="sm_90a", device="sim")
    other = gemm.compile("sm_90a", BM=64, BN=128)  # no variant's: what it states, and defaults
    other(a, b, device="sim")
    assert other.last.plan.grid == ("M ceildiv 64", "N ceildiv 128")


def test_compile_takes_variants_and_leaves_other_kernels_as_they_are():
    kernel = tesela.compile(gemm, "sm_90a", BK=32)
    assert kernel.variant(*shapes(130, 70, 96)).plan.grid == ("M ceildiv 64", "N ceildiv 64")
    assert tesela.compile(gemm, "sm_90a", BM=64, BN=64, pins={"split": 1}).variant(*shapes(64, 64, 2**16)).choice == Choice()
    closed = tesela.compile(tesela.kernel(gemm.function), "sm_90a", BM=128, BN=64)
    assert closed.variant(*shapes(64, 64, 2**16)).plan.grid == ("M ceildiv 128", "N ceildiv 64")


def test_exported_programs_are_chosen_among(tmp_path):
    """What was compiled is shipped, and a loaded kernel takes the fastest of that, in one of the numbers of parts that there are."""
    kernel = gemm.compile("sm_90a", BK=32)
    small, long = shapes(130, 70, 96), shapes(64, 64, 2**16)
    wanted = [kernel.variant(*shape) for shape in (small, long)]
    assert wanted[1].choice.parts > 1
    kernel.export(tmp_path / "gemm")
    loaded = tesela.load_kernel(tmp_path / "gemm")
    for shape, variant in zip((small, long, small), (*wanted, wanted[0])):
        assert loaded.variant(*shape, target="sm_90a").plan == variant.plan
    a, b = operands(130, 70, 96)
    np.testing.assert_allclose(loaded(a, b, device="sim"), a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-4)


def test_memory_bound_kernels_choose_too():
    """A few rows: a block for each; many: several rows a block, where that saves nothing the first listed."""
    kernel = scale.compile("sm_80")
    assert kernel.variant((64, 4096), (64, 4096)).plan.grid == ("M",)
    x = np.random.default_rng(0).standard_normal((9, 70)).astype(np.float32)
    np.testing.assert_allclose(kernel(x, device="sim"), 2 * np.exp2(x), rtol=1e-5)


def test_scalars_that_are_stored_and_updated_are_counted():
    """A sum in one place, and how many were above one, also asked for its old value and by compare-and-swap."""

    @tesela.kernel(variants={"R": [64, 32]})
    def total(x: Array[f32, N], y: Array[f32, 2], c: Array[i32, 3], R: tesela.constexpr):
        s, many = tesela.zeros((R,), f32), tesela.zeros((R,), i32)
        for j in tesela.range(0, N, R):
            s += x[j : j + R]
            many += (x[j : j + R] > 1.0).to(i32)
        y[0] = s.sum()
        tesela.atomic_add(c[1], many.sum())
        tesela.atomic_cas(c[2], 0, 7)

    x = np.arange(300, dtype=np.float32)
    y, c = np.zeros(2, np.float32), np.zeros(3, np.int32)
    total(x, y, c, device="sim")
    assert y.tolist() == [x.sum(), 0] and c.tolist() == [0, 298, 7]
    assert counted(total, "sm_90a", R=32).terms[0].stored == 12


def test_a_variant_that_is_refused_drops_out(caplog):
    @tesela.kernel(variants=[{"BM": 128, "warps": 3}, {"BM": 64}])
    def add(x: Array[f32, N], y: Array[f32, N], BM: tesela.constexpr):
        i = tesela.grid(tesela.ceildiv(N, BM)) * BM
        y[i : i + BM] = x[i : i + BM] + 1.0

    kernel = add.compile("sm_80")
    with caplog.at_level(logging.INFO, "tesela"):
        assert kernel(np.zeros(70, np.float32), device="sim").tolist() == [1.0] * 70
    assert "refused: warps must be" in caplog.text
    assert "refused: warps must be" in kernel.choices((70,), (70,))


def test_multiprocessors_decide(monkeypatch):
    kernel = gemm.compile("sm_90a")
    seen = set()
    for many in (1, 132):
        monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", many)
        seen.add(kernel.variant(*shapes(256, 256, 512)).choice)
    assert len(seen) == 2


def test_values_that_no_variant_has_need_the_others_too():
    a = np.zeros((64, 64), ml_dtypes.bfloat16)
    with pytest.raises(TeselaError, match=r"gemm: none of its variants has BM = 32\n(.*\n)*  hint: they have BM: .*; or give the others too: BN=…"):
        gemm(a, a, BM=32, target="sm_90a", device="sim")
    assert gemm(a, a, BM=32, BN=64, target="sm_90a", device="sim").shape == (64, 64)


def test_wrong_variants():
    with pytest.raises(TeselaError, match=r"copy: TILE cannot be left open(\n.*)+hint: what can: BLOCK, warps, stages, split"):

        @tesela.kernel(variants={"TILE": [1]})
        def copy(x: Array[f32, N], BLOCK: tesela.constexpr):
            pass

    with pytest.raises(TeselaError, match="copy_none: there are no variants"):

        @tesela.kernel(variants=[])
        def copy_none(x: Array[f32, N], BLOCK: tesela.constexpr):
            pass
