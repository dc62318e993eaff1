"""The tile-level program that a kernel becomes, as text; where its operations come from; and what loading the language loads."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import tesela
from tesela import Array, bf16, f32, i1, i32, index
from tesela.dialects.diagnostics import location_of
from tesela.dialects.parsing import parse_module, print_module

ROOT = Path(__file__).parents[1]
M, N, K = tesela.dims("M N K")
T = tesela.dtype("T")


def body(kernel, **values):
    """The operations of a kernel's body, and its head on the first line."""
    lines = kernel.ir(**values).splitlines()
    return "\n".join(line[2:] for line in lines[1:-1]).removesuffix("\n  tile.return\n}")


def same(kernel, text, **values):
    assert body(kernel, **values) == textwrap.dedent(text).strip()


@tesela.kernel
def gemm(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], BM: tesela.constexpr = 128):
    """Documentation is no operation."""
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, 256))
    m, n = bm * BM, bn * 256
    acc = tesela.zeros((BM, 256), f32)
    for k in tesela.range(0, K, 64):
        acc += A[m : m + BM, k : k + 64] @ B[n : n + 256, k : k + 64].T
    C[m : m + BM, n : n + 256] = acc


def test_gemm():
    same(
        gemm,
        """
        tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K], %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) dims(%K = K) grid(%bm = M ceildiv 64, %bn = N ceildiv 256) {
          %c64 = arith.constant 64 : index
          %c256 = arith.constant 256 : index
          %0 = arith.constant 0.000000e+00 : f32
          %c0 = arith.constant 0 : index
          %m = arith.muli %bm, %c64 : index
          %n = arith.muli %bn, %c256 : index
          %acc = tile.full %0 : f32 -> tensor<64x256xf32>
          %acc_1 = scf.for %k = %c0 to %K step %c64 iter_args(%acc_2 = %acc) -> (tensor<64x256xf32>) {
            %1 = tile.load %A[%m, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<64x64xbf16>
            %2 = tile.load %B[%n, %k] : memref<?x?xbf16, strided<[?, 1]>> -> tensor<256x64xbf16>
            %3 = tile.transpose %2 [1, 0] : tensor<256x64xbf16> -> tensor<64x256xbf16>
            %acc_3 = tile.dot %1, %3, %acc_2 : tensor<64x64xbf16>, tensor<64x256xbf16> -> tensor<64x256xf32>
            scf.yield %acc_3 : tensor<64x256xf32>
          }
          tile.store %acc_1, %C[%m, %n] : tensor<64x256xf32>, memref<?x?xf32, strided<[?, 1]>>
        """,
        BM=64,
    )


@tesela.kernel
def contract(
    x: Array[f32, M, 4, tesela.strides(None, None), tesela.align(16), tesela.noalias],
    y: Array[f32, M * 4, K // 2, tesela.strides(1, None)],
    z: Array[f32, K],
    n: i32,
    start: index,
):
    tesela.assume(M % 8 == 0)
    tesela.assume(K % 4 == 0)
    tesela.assume(K % 6 == 0)
    i, j = tesela.grid(M // 8 + 1, 3)
    if n > 2:
        z[start + K] = 0.0


def test_the_contract():
    same(
        contract,
        """
        tile.kernel @contract(%x: memref<?x4xf32, strided<[?, ?]>> [M, 4] {align = 16 : i64, noalias}, %y: memref<?x?xf32, strided<[1, ?]>> [M * 4, K floordiv 2], %z: memref<?xf32, strided<[1]>> [K], %n: i32, %start: index) dims(%K = K divisible 12) where(M divisible 8) grid(%i = M floordiv 8 + 1, %j = 3) {
          %0 = arith.constant 2 : i32
          %1 = arith.constant 0.000000e+00 : f32
          %2 = tile.cmp sgt %n, %0 : i32 -> i1
          scf.if %2 {
            %3 = arith.addi %start, %K : index
            tile.store %1, %z[%3] : f32, memref<?xf32, strided<[1]>>
          }
        """,
    )


@tesela.kernel
def merges(x: Array[f32, N], flag: i1):
    a, b, c, dead = 1.0, 2.0, x[0], 0
    if flag:
        a, b = 3.0, 2.0
        dead = 5
        t = x[1]
    else:
        c = 4
        t = 0
    x[2] = a + b + c + t


def test_a_conditional_merges_what_differs_and_lives():
    same(
        merges,
        """
        tile.kernel @merges(%x: memref<?xf32, strided<[1]>> [N], %flag: i1) grid(%0 = 1) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %1 = arith.constant 3.000000e+00 : f32
          %2 = arith.constant 1.000000e+00 : f32
          %3 = arith.constant 0.000000e+00 : f32
          %4 = arith.constant 4.000000e+00 : f32
          %5 = arith.constant 2.000000e+00 : f32
          %c2 = arith.constant 2 : index
          %c = tile.load %x[%c0] : memref<?xf32, strided<[1]>> -> f32
          %a, %t, %c_1 = scf.if %flag -> (f32, f32, f32) {
            %t_1 = tile.load %x[%c1] : memref<?xf32, strided<[1]>> -> f32
            scf.yield %1, %t_1, %c : f32, f32, f32
          } else {
            scf.yield %2, %3, %4 : f32, f32, f32
          }
          %6 = arith.addf %a, %5 : f32
          %7 = arith.addf %6, %c_1 : f32
          %8 = arith.addf %7, %t : f32
          tile.store %8, %x[%c2] : f32, memref<?xf32, strided<[1]>>
        """,
    )


@tesela.kernel
def carries(x: Array[bf16, N]):
    total, local, count, i = 0.0, 1.0, 0, 3
    while count < 4:
        local = x[count]
        total = total + local
        count = count + 1
    x[i] = total


def test_a_loop_carries_what_the_next_trip_reads_in_the_type_it_gets():
    same(
        carries,
        """
        tile.kernel @carries(%x: memref<?xbf16, strided<[1]>> [N]) grid(%0 = 1) {
          %c4 = arith.constant 4 : index
          %c1 = arith.constant 1 : index
          %1 = arith.constant 0.000000e+00 : bf16
          %c0 = arith.constant 0 : index
          %c3 = arith.constant 3 : index
          %total, %count = scf.while (%total_1 = %1, %count_1 = %c0) : (bf16, index) -> (bf16, index) {
            %2 = tile.cmp slt %count_1, %c4 : index -> i1
            scf.condition(%2) %total_1, %count_1 : bf16, index
          } do {
          ^bb0(%total_2: bf16, %count_2: index):
            %local = tile.load %x[%count_2] : memref<?xbf16, strided<[1]>> -> bf16
            %total_3 = arith.addf %total_2, %local : bf16
            %count_3 = arith.addi %count_2, %c1 : index
            scf.yield %total_3, %count_3 : bf16, index
          }
          tile.store %total, %x[%c3] : bf16, memref<?xbf16, strided<[1]>>
        """,
    )


@tesela.kernel
def choices(x: Array[f32, N], flag: i1):
    i = tesela.grid(N)
    x[i] = 1.0 if flag and i > 2 else 2.0
    x[i] = x[0] if flag or i > 2 else 2.0


def test_expressions_that_only_compute_become_selects():
    text = body(choices)
    assert text.count("tile.select") == 3
    assert text.count("scf.if") == 1, "a load is made only where its branch is taken"


@tesela.kernel
def unrolled(x: Array[f32, N], COUNT: tesela.constexpr):
    total = 0.0
    for i in tesela.static_range(COUNT):
        total = total + x[i] * i
    x[0] = total


def test_static_loops_are_unrolled():
    assert body(unrolled, COUNT=5).count("tile.load") == 5
    assert "tile.load" not in body(unrolled, COUNT=0)


def test_long_programs_trace_in_time_proportional_to_their_size():
    """Counted in operations looked at, not in seconds: tracing must not go back over what it has built."""
    counts = {}
    for size in (100, 400):
        seen = 0

        def count(frame, event, argument):
            nonlocal seen
            seen += event == "call"

        unrolled.trace(COUNT=size)
        sys.setprofile(count)
        try:
            unrolled.trace(COUNT=size)
        finally:
            sys.setprofile(None)
        counts[size] = seen
    assert counts[400] < 4.5 * counts[100]


def helper(v):
    return v + 1.0


@tesela.kernel
def places(x: Array[f32, N]):
    v = x[0:4]
    for _ in tesela.range(4):
        v = helper(v) * tesela.exp(
            v
        )
    x[0:4] = v


def test_every_operation_has_the_place_of_its_expression():
    module = places.trace()
    first = places.function.__code__.co_firstlineno
    found = {op.name: location_of(op) for op in module.walk()}
    assert all(place.file == __file__ for place in found.values())
    lines = {name: (place.line - first, place.column) for name, place in found.items()}
    assert lines["tile.kernel"] == (1, 1)
    assert lines["tile.load"] == (2, 9)
    assert lines["scf.for"] == (3, 5)
    assert lines["math.exp"] == (4, 25)
    assert lines["arith.mulf"] == (4, 13)
    assert lines["tile.store"] == (7, 5)
    assert found["arith.addf"].line == helper.__code__.co_firstlineno + 1


def test_text_reads_back_to_the_same_text():
    for kernel in (gemm, contract, merges, carries, choices, places):
        text = kernel.ir()
        assert print_module(parse_module(text)) == text


def test_each_trace_is_a_module_of_its_own():
    first, second = gemm.trace(), gemm.trace()
    assert first is not second and print_module(first) == print_module(second)


# --- Kernels as objects ---


@tesela.kernel
def scaled(x: Array[T, N], y: Array[T, N], factor: f32, BLOCK: tesela.constexpr = 64):
    """y = x·factor."""
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    y[i : i + BLOCK] = (x[i : i + BLOCK].to(f32) * factor).to(T)


def test_a_kernel_describes_itself():
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "y = x·factor.")
    assert [p.name for p in scaled.arguments] == ["x", "y", "factor"]
    assert list(scaled.constants) == ["BLOCK"] and scaled.type_variables == ("T",)


def test_calls_compile_once_for_each_set_of_compile_time_values():
    numpy = pytest.importorskip("numpy")
    x = numpy.arange(100, dtype=numpy.float32)
    assert (scaled(x, factor=2.0, device="sim") == 2 * x).all()
    y = numpy.zeros_like(x)
    assert scaled(x, y, 0.5, 32, device="sim") is None and (y == x / 2).all()
    half = x.astype(numpy.float16)
    assert scaled(half, factor=2.0, device="sim").dtype == numpy.float16
    assert scaled.compile(T=f32) is scaled.compile(T=f32, BLOCK=64)
    assert scaled.compile(T=f32, BLOCK=32) is not scaled.compile(T=f32)
    assert scaled.compile(T=f32, BLOCK=32) is scaled.compile(T=f32, BLOCK=32)


@tesela.kernel
def filled(x: Array[f32, N], value: tesela.constexpr):
    x[0:4] = tesela.full((4,), value[0], f32)


def test_compile_time_values_are_told_apart():
    values = [(1,), (1.0,), (0.0,), (-0.0,), (float("nan"),)]
    assert len({id(filled.compile(value=value)) for value in values * 2}) == 5


FACTOR, TABLE = 2.0, [1.0, 2.0]


def add_constant(v):
    return v + 1.0


@tesela.kernel
def captures(x: Array[f32, N], y: Array[f32, N], scale: f32 = 3.0):
    y[0:4] = add_constant(x[0:4]) * FACTOR * scale + TABLE[1]


def test_a_changed_capture_compiles_anew(monkeypatch):
    numpy = pytest.importorskip("numpy")
    x = numpy.arange(4, dtype=numpy.float32)
    assert (captures(x, device="sim") == (x + 1) * 6 + 2).all()
    first = captures.compile()
    assert captures.compile() is first
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert captures.compile() is not first
    assert (captures(x, scale=1.0, device="sim") == (x + 1) * 5 + 2).all()
    TABLE[1] = 4.0
    assert (captures(x, scale=1.0, device="sim") == (x + 1) * 5 + 4).all()
    TABLE[1] = 2.0
    monkeypatch.setitem(globals(), "add_constant", lambda v: v)
    with pytest.raises(tesela.TeselaError):
        captures(x, device="sim")


def test_calls_that_do_not_fit_the_signature():
    numpy = pytest.importorskip("numpy")
    x = numpy.zeros(4, numpy.float32)
    with pytest.raises(tesela.TeselaError, match="scaled has 4 parameters, found 5 arguments"):
        scaled(x, x, 1.0, 64, 3)
    with pytest.raises(tesela.TeselaError, match="scaled: BLOCK is given twice"):
        scaled(x, x, 1.0, 64, BLOCK=64)
    with pytest.raises(tesela.TeselaError, match="scaled: y has elements of type f16, but x has f32"):
        scaled(x, x.astype(numpy.float16), 1.0)


def test_threads_compile_once():
    made = []
    threads = [threading.Thread(target=lambda: made.append(scaled.compile(T=bf16, BLOCK=128))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8 and len({id(kernel) for kernel in made}) == 1


# --- The package ---


def run_python(code):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools" / "typecheck")}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_defining_kernels_loads_neither_xdsl_nor_numpy(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import tesela\n@tesela.kernel\ndef f(x: tesela.Array[tesela.f32, 'N']):\n    x[0] = 1.0\n")
    result = run_python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mine; print({{'xdsl', 'numpy'}} & set(sys.modules))")
    assert result.stdout == "set()\n", result.stderr


def test_public_names():
    assert all(getattr(tesela, name) is not None for name in tesela.__all__)
    assert {"kernel", "load", "dot", "bf16", "TeselaError"} < set(tesela.__all__)
    assert "range" not in tesela.__all__ and tesela.range is not range and tesela.compile is not compile
    with pytest.raises(AttributeError, match="module 'tesela' has no attribute 'lod'"):
        _ = tesela.lod


def test_every_word_is_built_and_documented():
    from tesela.frontend.operations import BUILDERS
    from tesela.frontend.words import WORDS

    assert set(BUILDERS) | {"assume"} == set(WORDS)
    assert not [name for name, word in WORDS.items() if not word.__doc__]


@pytest.mark.parametrize("name", ["add", "softmax", "gemm"])
def test_examples(name, capsys, monkeypatch):
    monkeypatch.setenv("TESELA_DEVICE", "sim")
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith(name)
