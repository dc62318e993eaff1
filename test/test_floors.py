"""Choosing among variants without counting all of them: what a program is not below, by any estimate, and that nothing else comes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from math import prod

import pytest

import tesela
from tesela import Array, bf16, f32
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.dim_expr import DimExpr
from tesela.dialects.target import get_target
from tesela.dialects.work import estimate
from tesela.kernels import matrices, rows
from tesela.lowering.count_work import Count
from tesela.lowering.pipeline import compile_kernel
from tesela.runtime.cache import Entry, get_cache
from tesela.runtime.compile import ModuleCompiler
from tesela.runtime.contract import Contract
from tesela.runtime.specialize import Facts, specialize, usual_facts, weakest_facts
from tesela.runtime.variants import PARTS, Choice, Counts, Programs, best
from tesela.tools.demo import example
from tesela.tools.sources import python_kernel

M, N, K = tesela.dims("M N K")
GEMM = python_kernel(example("gemm", "python"), "gemm")
OPEN = {"gemm of the examples": GEMM} | {
    name: found
    for module in (matrices, rows)
    for name, found in vars(module).items()
    if isinstance(found, tesela.KernelFunction) and found.is_open and found.function.__module__ == module.__name__
}
MULTIPROCESSORS = 132


def opened(function: tesela.KernelFunction, target: str) -> tuple[tesela.Kernel, Programs]:
    kernel = tesela.compile(function, target, cached=False, **dict.fromkeys(function.type_variables, bf16))
    assert isinstance(kernel._compiler, Programs)
    return kernel, kernel._compiler


def cases(kernel: tesela.Kernel, many: int) -> list[tuple[dict[str, int], int]]:
    """(extents of the dimensions, bytes of the arrays), from very small to very large."""
    chance = random.Random(kernel.name)
    exprs = [[DimExpr.parse(extent) for extent in arg.shape] for arg in kernel.contract.args if hasattr(arg, "shape")]
    symbols = sorted({symbol for shape in exprs for expr in shape for symbol in expr.symbols()})
    found = []
    for _ in range(many):
        dims = {symbol: chance.choice((1, 16, 33, 64, 128, 256, 1000, 1024, 2048, 4040, 4096, 7168, 8192, 14336)) for symbol in symbols}
        found.append((dims, sum(2 * prod(expr.evaluate(dims) for expr in shape) for shape in exprs)))
    return found


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("facts_of", [usual_facts, weakest_facts])
@pytest.mark.parametrize("name", ["gemm of the examples", "linear", "softmax"])
def test_a_floor_is_never_above_the_count_and_the_choice_is_that_among_all(name, facts_of, target):
    check_floors(OPEN[name], facts_of, target, 12)


@pytest.mark.parametrize("name", OPEN)
def test_floors_of_every_kernel_with_variants(name):
    check_floors(OPEN[name], usual_facts, "sm_90a", 3)


def check_floors(function: tesela.KernelFunction, facts_of: Callable[[Contract], Facts], target: str, many: int) -> None:
    kernel, programs = opened(function, target)
    facts, chip = facts_of(kernel.contract), get_target(target)
    pairs = [(programs.compiler(Choice(program)).floor(facts, chip), programs.work(program, facts, chip)) for program in range(len(programs.labels))]
    floors = {program: floor for program, (floor, _) in enumerate(pairs)}
    for dims, nbytes in cases(kernel, many):
        for floor, work in pairs:
            if isinstance(work, TeselaError):
                continue  # tiles that this target has no registers for
            for parts in (1, PARTS[0], PARTS[-1]) if work.split is not None else (1,):
                least, expected = (estimate(counted, dims, MULTIPROCESSORS, nbytes, parts) for counted in (floor, work))
                assert least.points == expected.points and least.clocks <= expected.clocks, (dims, parts)
        every = [row for row in programs.rows(facts, chip, dims, MULTIPROCESSORS, nbytes) if row.expected is not None]
        fresh = Programs(kernel.name, [(label, partial(programs.compiler, Choice(program))) for program, label in enumerate(programs.labels)], True)
        fresh._counts = {(facts, target): Counts(dict(floors))}
        assert fresh.choose(facts, chip, dims, MULTIPROCESSORS, nbytes) == best(every).choice, dims


def test_few_programs_are_counted(monkeypatch):
    counted = []
    work = Count.work
    monkeypatch.setattr(Count, "work", lambda self: counted.append(self) or work(self))
    for function, shape, most in (
        (GEMM, (256, 256, 256), 3),
        (GEMM, (16, 7168, 7168), 3),
        (matrices.gemm_nt, (4096, 4096, 4096), 5),  # by floors, which know nothing of L2, large tiles are alike
        (matrices.gemm_nt, (16, 7168, 7168), 4),
    ):
        kernel, programs = opened(function, "sm_90a")
        m, n, k = shape
        counted.clear()
        kernel.variant((m, k), (n, k), (m, n))
        assert len(counted) <= most < len(programs.labels) / 2


def test_a_program_that_was_counted_compiles_to_the_same():
    """By what was lowered for that, and from the start."""
    for name in ("gemm of the examples", "linear", "softmax"):
        kernel, programs = opened(OPEN[name], "sm_90a")
        facts, target = usual_facts(kernel.contract), get_target("sm_90a")
        for count in (ModuleCompiler.floor, ModuleCompiler.work):
            compiler = programs.compiler(Choice())
            assert isinstance(compiler, ModuleCompiler)
            count(compiler, facts, target)
            made = compiler(facts, target)
            fresh = compile_kernel(specialize(compiler.module, kernel.name, facts, compiler.pins), target=target)
            assert made.ptx == fresh.ptx and made.plan == fresh.plan and made.messages == fresh.diagnostics
            assert compiler._count is None


def test_nothing_goes_on_from_what_failed_half_way(monkeypatch):
    @tesela.kernel(variants=[{"BM": 64, "warps": 4}, {"BM": 64, "warps": 8}])
    def add(x: Array[f32, N], y: Array[f32, N], BM: tesela.constexpr):
        i = tesela.grid(tesela.ceildiv(N, BM)) * BM
        y[i : i + BM] = x[i : i + BM] + 1.0

    kernel, programs = opened(add, "sm_80")
    compiler, target = programs.compiler(Choice()), get_target("sm_80")
    assert isinstance(compiler, ModuleCompiler)
    with monkeypatch.context() as patched:
        patched.setattr("tesela.lowering.count_work.kernel_warps", lambda kernel: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compiler.work(Facts(), target)
    assert compiler._count is None and compiler(Facts(), target).ptx == compile_kernel(specialize(compiler.module, "add", Facts(), compiler.pins), target=target).ptx


def test_a_program_that_is_refused_late_gives_way_to_the_next(monkeypatch):
    """It is the most promising by its floor, and turns out not to compile."""
    kernel, programs = opened(GEMM, "sm_90a")
    work = ModuleCompiler.work
    refused = []

    def refuse_the_first(self, facts, target):
        if not refused:
            refused.append(self)
            raise TeselaError.at(None, "no room")
        return work(self, facts, target)

    monkeypatch.setattr(ModuleCompiler, "work", refuse_the_first)
    variant = kernel.variant((256, 256), (256, 256), (256, 256))
    assert "BM=64 BN=128" in variant.label and refused[0] is programs.compiler(Choice(6))


# ---- between processes ----------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path))


def test_counts_are_kept(store, monkeypatch):
    """Who finds them asks for no module: neither what was counted nor what was not worth it."""
    shape = (256, 256), (256, 256), (256, 256)
    label = tesela.compile(GEMM, "sm_90a").variant(*shape).label
    counted = []
    for step in ("floor", "work"):
        made = getattr(Count, step)
        monkeypatch.setattr(Count, step, lambda self, step=step, made=made: counted.append(step) or made(self))
    again = tesela.compile(GEMM, "sm_90a")
    assert again.variant(*shape).label == label and counted == []
    assert all(compiler.source._module is None for compiler in again._compiler._compilers.values())
    again.variant((2048, 4096), (1024, 4096), (2048, 1024))  # others are the promising ones here: they are counted now
    assert "work" in counted
    counted.clear()
    tesela.compile(GEMM, "sm_90a").choices((2048, 4096), (1024, 4096), (2048, 1024))
    assert 0 < counted.count("work") < len(again._compiler.labels)


def test_refusals_are_kept(store, monkeypatch):
    @tesela.kernel(variants=[{"BM": 128, "warps": 3}, {"BM": 64}])
    def add(x: Array[f32, N], y: Array[f32, N], BM: tesela.constexpr):
        i = tesela.grid(tesela.ceildiv(N, BM)) * BM
        y[i : i + BM] = x[i : i + BM] + 1.0

    first, again = (tesela.compile(add, "sm_80").choices((70,), (70,)) for _ in range(2))
    assert "refused: warps must be" in again and again == first


def test_counts_of_another_program_are_not_taken(store):
    def kernel(size):
        @tesela.kernel(variants=[{"BM": 128}, {"BM": 64}])
        def add(x: Array[f32, N], y: Array[f32, N], BM: tesela.constexpr):
            i = tesela.grid(tesela.ceildiv(N, BM)) * BM
            y[i : i + BM] = x[i : i + BM] + size

        return tesela.compile(add, "sm_80")

    kernels = kernel(1.0), kernel(2.0), kernel(1.0)
    for made in kernels:
        made.variant((70,), (70,))
    keys = [made._compiler._stored._find_key(usual_facts(made.contract), get_target("sm_80")) for made in kernels]
    assert keys[0] == keys[2] != keys[1] and None not in keys


def test_a_damaged_entry_of_counts_is_made_anew(store, caplog):
    kernel = tesela.compile(GEMM, "sm_90a")
    label = kernel.variant((256, 256), (256, 256), (256, 256)).label
    cache = get_cache()
    (entry,) = [entry for entry in cache.entries() if entry.kind == "work"]
    stored = cache.peek("work", entry.key)
    cache.store("work", entry.key, Entry(stored.title, {**stored.info, "works": {"0": {}}}, {}))
    assert tesela.compile(GEMM, "sm_90a").variant((256, 256), (256, 256), (256, 256)).label == label
    assert "damaged" in caplog.text
