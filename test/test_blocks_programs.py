"""The block interpreter on programs: edges, strides, shapes, control flow, calls, the examples."""

from __future__ import annotations

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.verify import verify_module
from tesela.simulator.block_calls import array_shapes, find_kernel, infer_dims, written_arguments
from tesela.simulator.blocks import run_kernel

EXAMPLES = Path(__file__).parents[1] / "examples"
BF16 = ml_dtypes.bfloat16


def program(text: str, **arrays: np.ndarray) -> None:
    module = parse_module(text)
    verify_module(module)
    run_kernel(module, arrays)


# --- Loads and stores, against a definition by single elements ---


def load_by_elements(
    array: np.ndarray, starts: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...], fill: float
):
    out = np.empty(shape, array.dtype)
    for point in itertools.product(*map(range, shape)):
        index = list(starts)
        for dim, offset in zip(dims, point):
            index[dim] += offset
        inside = all(0 <= i < extent for i, extent in zip(index, array.shape))
        out[point] = array[tuple(index)] if inside else fill
    return out


def store_by_elements(
    array: np.ndarray, starts: tuple[int, ...], dims: tuple[int, ...], tile: np.ndarray
) -> np.ndarray:
    out = array.copy()
    for point in itertools.product(*map(range, tile.shape)):
        index = list(starts)
        for dim, offset in zip(dims, point):
            index[dim] += offset
        if all(0 <= i < extent for i, extent in zip(index, array.shape)):
            out[tuple(index)] = tile[point]
    return out


ACCESSES = [
    # array's shape, starts, dims of the tile, its shape
    ((10, 12), (0, 0), (0, 1), (4, 4)),
    ((10, 12), (8, 9), (0, 1), (4, 8)),
    ((10, 12), (-3, -1), (0, 1), (4, 8)),
    ((10, 12), (-2, 3), (0, 1), (16, 2)),
    ((10, 12), (20, 0), (0, 1), (4, 4)),
    ((10, 12), (-4, 0), (0, 1), (4, 4)),
    ((10, 12), (3, 5), (1, 0), (4, 8)),
    ((10, 12), (3, 1), (1,), (16,)),
    ((10, 12), (3, 1), (0,), (16,)),
    ((10, 12), (10, 1), (1,), (4,)),
    ((10, 12), (-1, 1), (1,), (4,)),
    ((10, 12), (3, 4), (), ()),
    ((10, 12), (3, 12), (), ()),
    ((4, 5, 6), (1, 3, 2), (2, 0), (8, 2)),
    ((4, 5, 6), (1, -1, -2), (0, 1, 2), (2, 3, 3)),
    ((1, 1), (0, 0), (0, 1), (3, 3)),
    ((0, 5), (0, 0), (0, 1), (2, 2)),
]


@pytest.mark.parametrize("with_fill", [False, True])
@pytest.mark.parametrize("kind, dtype", [("f32", np.float32), ("bf16", BF16), ("i8", np.int8)])
@pytest.mark.parametrize("shape, starts, dims, tile", ACCESSES)
def test_loads_and_stores_at_edges(shape, starts, dims, tile, kind, dtype, with_fill):
    rank = len(shape)
    memref = f"memref<{'?x' * rank}{kind}, strided<[{', '.join('?' * rank)}]>>"
    tensor = f"tensor<{'x'.join(map(str, tile))}x{kind}>" if tile else kind
    target = (
        f"memref<{'?x' * len(tile)}{kind}, strided<[{', '.join('?' * len(tile))}]>>" if tile else f"memref<?x{kind}>"
    )
    symbols = [f"D{axis}" for axis in range(rank)]
    constants = "\n".join(f"  %s{axis} = arith.constant {start} : index" for axis, start in enumerate(starts))
    at = ", ".join(f"%s{axis}" for axis in range(rank))
    fill = "7.0" if kind != "i8" else "7"
    text = f"""
tile.kernel @k(%x: {memref} [{", ".join(symbols)}], %y: {memref} [{", ".join(symbols)}],
               %t: {target} [{", ".join(f"T{axis}" for axis in range(max(len(tile), 1)))}]) grid(%i = 1) {{
  %zero = arith.constant 0 : index
  %fill = arith.constant {fill} : {kind}
{constants}
  %v = tile.load %x[{at}]{" else %fill" if with_fill else ""} dims {list(dims)} : {memref} -> {tensor}
  tile.store %v, %t[{", ".join(["%zero"] * max(len(tile), 1))}] : {tensor}, {target}
  tile.store %v, %y[{at}] dims {list(dims)} : {tensor}, {memref}
}}"""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-100, 100, shape).astype(dtype) for _ in "xy")
    t = np.zeros(tile or (1,), dtype)
    wanted = load_by_elements(x, starts, dims, tile, 7 if with_fill else 0)
    stored = store_by_elements(y, starts, dims, wanted)
    program(text, x=x, y=y, t=t)
    assert t.reshape(tile).tolist() == wanted.tolist()
    assert y.tolist() == stored.tolist()


@pytest.mark.parametrize(
    "kind, dtype, bits", [("f32", np.float32, 0x7FA12345), ("bf16", BF16, 0x7F93), ("f16", np.float16, 0x7D01)]
)
def test_memory_moves_bits(kind, dtype, bits):
    x = np.array([bits, 1], np.uint32 if kind == "f32" else np.uint16).view(dtype)
    y = np.zeros(2, dtype)
    program(
        f"""
tile.kernel @k(%x: memref<?x{kind}> [N], %y: memref<?x{kind}> [N]) grid(%i = 1) {{
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero] : memref<?x{kind}> -> tensor<4x{kind}>
  tile.store %v, %y[%zero] : tensor<4x{kind}>, memref<?x{kind}>
}}""",
        x=x,
        y=y,
    )
    assert y.tobytes() == x.tobytes()


COPY = """
tile.kernel @copy(%x: memref<?x?xf32, strided<[?, ?]>> [M, N], %y: memref<?x?xf32, strided<[?, ?]>> [M, N])
    grid(%i = M ceildiv 4, %j = N ceildiv 8) {
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %m = arith.muli %i, %c4 : index
  %n = arith.muli %j, %c8 : index
  %v = tile.load %x[%m, %n] : memref<?x?xf32, strided<[?, ?]>> -> tensor<4x8xf32>
  tile.store %v, %y[%m, %n] : tensor<4x8xf32>, memref<?x?xf32, strided<[?, ?]>>
}"""


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::2, 1::3],
        lambda a: a[::-1, ::-1],
        lambda a: np.broadcast_to(a[3:4], (9, a.shape[1])),
        lambda a: np.broadcast_to(a[:, 3:4], (a.shape[0], 9)),
        lambda a: a[:0],
    ],
)
def test_strided_transposed_and_broadcast_arrays(view):
    x = view(np.arange(13 * 21, dtype=np.float32).reshape(13, 21))
    for y in (np.full(x.shape, -1, np.float32), np.full(x.shape[::-1], -1, np.float32).T):
        program(COPY, x=x, y=y)
        assert y.tolist() == x.tolist()


def test_the_order_of_blocks_does_not_matter_and_can_be_shuffled():
    x = np.arange(200, dtype=np.float32).reshape(10, 20)
    results = []
    for seed in (None, 1, 2):
        y = np.zeros_like(x)
        run_kernel(parse_module(COPY), {"x": x, "y": y}, seed=seed)
        results.append(y.tolist())
    assert results == [x.tolist()] * 3
    # A program whose result is the block that ran last shows the order.
    last = """
tile.kernel @last(%x: memref<?xi64> [N], %y: memref<?xi64> [one]) grid(%i = N) {
  %zero = arith.constant 0 : index
  %v = tile.cast %i : index -> i64
  tile.store %v, %y[%zero] : i64, memref<?xi64>
}"""
    found = set()
    for seed in range(8):
        y = np.zeros(1, np.int64)
        run_kernel(parse_module(last), {"x": np.zeros(50, np.int64), "y": y}, seed=seed)
        found.add(int(y[0]))
    assert len(found) > 1


# --- Shape operations ---


def test_shape_operations():
    text = """
tile.kernel @k(%x: memref<?x?xi32> [M, N], %t: memref<?x?x?xi32> [N, one, M], %r: memref<?xi32> [R], %b: memref<?x?xi32> [M, N],
               %i0: memref<?x?xi64> [M, N], %i1: memref<?x?xi32> [M, N]) grid(%i = 1) {
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero, %zero] : memref<?x?xi32> -> tensor<3x5xi32>
  %vt = tile.transpose %v [1, 0] : tensor<3x5xi32> -> tensor<5x3xi32>
  %ve = tile.expand %vt axis 1 : tensor<5x3xi32> -> tensor<5x1x3xi32>
  tile.store %ve, %t[%zero, %zero, %zero] : tensor<5x1x3xi32>, memref<?x?x?xi32>
  %vr = tile.reshape %v : tensor<3x5xi32> -> tensor<15xi32>
  tile.store %vr, %r[%zero] : tensor<15xi32>, memref<?xi32>
  %s = tile.reduce sum %v axis 1 : tensor<3x5xi32> -> tensor<3xi32>
  %se = tile.expand %s axis 1 : tensor<3xi32> -> tensor<3x1xi32>
  %sb = tile.broadcast %se : tensor<3x1xi32> -> tensor<3x5xi32>
  tile.store %sb, %b[%zero, %zero] : tensor<3x5xi32>, memref<?x?xi32>
  %a0 = tile.iota axis 0 : tensor<3x5xi64>
  tile.store %a0, %i0[%zero, %zero] : tensor<3x5xi64>, memref<?x?xi64>
  %a1 = tile.iota axis 1 : tensor<3x5xi32>
  tile.store %a1, %i1[%zero, %zero] : tensor<3x5xi32>, memref<?x?xi32>
}"""
    x = np.arange(15, dtype=np.int32).reshape(3, 5) ** 2
    t, r, b = np.zeros((5, 1, 3), np.int32), np.zeros(15, np.int32), np.zeros_like(x)
    i0, i1 = np.zeros((3, 5), np.int64), np.zeros((3, 5), np.int32)
    program(text, x=x, t=t, r=r, b=b, i0=i0, i1=i1)
    assert t[:, 0].tolist() == x.T.tolist()
    assert r.tolist() == x.ravel().tolist()
    assert b.tolist() == np.repeat(x.sum(1, keepdims=True), 5, 1).tolist()
    assert i0.tolist() == [[row] * 5 for row in range(3)] and i1.tolist() == [list(range(5))] * 3


def test_a_transpose_of_three_dimensions_names_the_sources():
    text = """
tile.kernel @k(%x: memref<?x?x?xi32> [A, B, C], %y: memref<?x?x?xi32> [C, A, B]) grid(%i = 1) {
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero, %zero, %zero] : memref<?x?x?xi32> -> tensor<2x3x4xi32>
  %t = tile.transpose %v [2, 0, 1] : tensor<2x3x4xi32> -> tensor<4x2x3xi32>
  tile.store %t, %y[%zero, %zero, %zero] : tensor<4x2x3xi32>, memref<?x?x?xi32>
}"""
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    y = np.zeros((4, 2, 3), np.int32)
    program(text, x=x, y=y)
    assert all(y[c, a, b] == x[a, b, c] for a in range(2) for b in range(3) for c in range(4))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["sum", "max", "argmin"])
def test_reductions_along_each_axis(axis, kind):
    shape = [3, 4, 5]
    rest = [extent for i, extent in enumerate(shape) if i != axis]
    result = "i32" if kind == "argmin" else "f32"
    out = f"tensor<{'x'.join(map(str, rest))}x{result}>"
    text = f"""
tile.kernel @k(%x: memref<?x?x?xf32> [A, B, C], %y: memref<?x?x{result}> [M, N]) grid(%i = 1) {{
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero, %zero, %zero] : memref<?x?x?xf32> -> tensor<3x4x5xf32>
  %r = tile.reduce {kind} %v axis {axis} : tensor<3x4x5xf32> -> {out}
  tile.store %r, %y[%zero, %zero] : {out}, memref<?x?x{result}>
}}"""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    y = np.zeros(rest, np.int32 if kind == "argmin" else np.float32)
    program(text, x=x, y=y)
    assert y.tolist() == getattr(np, kind)(x, axis=axis).tolist()


# --- Control ---

FIBONACCI = """
tile.kernel @fib(%x: memref<?xi32> [N], %y: memref<?xi32> [two], %z: memref<?xi32> [N]) dims(%N = N) grid(%i = 1) {
  %zero = arith.constant 0 : index
  %step = arith.constant STEP : index
  %one = arith.constant 1 : index
  %a0 = arith.constant 0 : i32
  %b0 = arith.constant 1 : i32
  %a, %b = scf.for %k = %zero to %N step %step iter_args(%p = %a0, %q = %b0) -> (i32, i32) {
    %v = tile.cast %k : index -> i32
    tile.store %v, %z[%k] : i32, memref<?xi32>
    %s = arith.addi %p, %q : i32
    scf.yield %q, %s : i32, i32
  }
  tile.store %a, %y[%zero] : i32, memref<?xi32>
  tile.store %b, %y[%one] : i32, memref<?xi32>
}"""


@pytest.mark.parametrize("trips, pair", [(0, [0, 1]), (1, [1, 1]), (2, [1, 2]), (10, [55, 89])])
def test_loops_carry_values_all_at_once(trips, pair):
    y, z = np.zeros(2, np.int32), np.full(trips, -1, np.int32)
    program(FIBONACCI.replace("STEP", "1"), x=np.zeros(trips, np.int32), y=y, z=z)
    assert y.tolist() == pair and z.tolist() == list(range(trips))


def test_a_loop_whose_extent_is_no_multiple_of_its_step():
    y, z = np.zeros(2, np.int32), np.full(7, -1, np.int32)
    program(FIBONACCI.replace("STEP", "3"), x=np.zeros(7, np.int32), y=y, z=z)
    assert y.tolist() == [2, 3] and z.tolist() == [0, -1, -1, 3, -1, -1, 6]


def test_a_loop_with_a_step_that_is_not_positive_is_refused():
    with pytest.raises(TeselaError, match=r"<string>:8:3: error: the step of a loop must be positive, found 0"):
        program(
            FIBONACCI.replace("STEP", "0"), x=np.zeros(1, np.int32), y=np.zeros(2, np.int32), z=np.zeros(1, np.int32)
        )


COLLATZ = """
tile.kernel @collatz(%x: memref<?xi64> [N], %y: memref<?xi64> [N]) grid(%i = N) {
  %n = tile.load %x[%i] : memref<?xi64> -> i64
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %c2 = arith.constant 2 : i64
  %c3 = arith.constant 3 : i64
  %steps, %end = scf.while (%m = %n, %s = %c0) : (i64, i64) -> (i64, i64) {
    %more = tile.cmp ne %m, %c1 : i64 -> i1
    scf.condition(%more) %s, %m : i64, i64
  } do {
  ^bb0(%s: i64, %m: i64):
    %rest = arith.remsi %m, %c2 : i64
    %odd = tile.cmp eq %rest, %c1 : i64 -> i1
    %next = scf.if %odd -> (i64) {
      %t = arith.muli %m, %c3 : i64
      %u = arith.addi %t, %c1 : i64
      scf.yield %u : i64
    } else {
      %h = arith.divsi %m, %c2 : i64
      scf.yield %h : i64
    }
    %s1 = arith.addi %s, %c1 : i64
    scf.yield %next, %s1 : i64, i64
  }
  tile.store %steps, %y[%i] : i64, memref<?xi64>
}"""


def test_while_and_if():
    x = np.array([1, 2, 3, 6, 7, 27], np.int64)
    y = np.zeros_like(x)
    program(COLLATZ, x=x, y=y)
    assert y.tolist() == [0, 1, 7, 8, 16, 111]


def test_an_if_without_else_and_without_results():
    text = """
tile.kernel @k(%x: memref<?xi1> [N], %y: memref<?xi32> [N]) grid(%i = N) {
  %c = arith.constant 5 : i32
  %p = tile.load %x[%i] : memref<?xi1> -> i1
  scf.if %p {
    tile.store %c, %y[%i] : i32, memref<?xi32>
  }
}"""
    y = np.zeros(3, np.int32)
    program(text, x=np.array([True, False, True]), y=y)
    assert y.tolist() == [5, 0, 5]


def test_a_block_reads_what_it_wrote():
    text = """
tile.kernel @k(%x: memref<?xf32> [N]) grid(%i = 1) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %a = tile.load %x[%zero] : memref<?xf32> -> tensor<4xf32>
  tile.store %a, %x[%one] : tensor<4xf32>, memref<?xf32>
  %b = tile.load %x[%zero] : memref<?xf32> -> tensor<4xf32>
  tile.store %b, %x[%one] : tensor<4xf32>, memref<?xf32>
}"""
    x = np.arange(6, dtype=np.float32)
    program(text, x=x)
    assert x.tolist() == [0, 0, 0, 1, 2, 5]


# --- The contract ---

GEMM = (EXAMPLES / "gemm.mlir").read_text()


def gemm_arrays(m: int, n: int, k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(BF16), rng.standard_normal((n, k)).astype(BF16)
    return {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float32)}


def test_dimensions_and_output_shapes_from_the_contract():
    kernel = find_kernel(parse_module(GEMM))
    arrays = gemm_arrays(5, 7, 3)
    del arrays["C"]
    dims = infer_dims(kernel, arrays)
    assert dims == {"M": 5, "N": 7, "K": 3}
    assert array_shapes(kernel, dims)["C"] == (5, 7)
    assert written_arguments(kernel) == {"C"}


def call_error(
    text: str, arrays: dict[str, np.ndarray], scalars: dict[str, object] | None = None, **options: object
) -> str:
    with pytest.raises(TeselaError) as caught:
        run_kernel(parse_module(text), arrays, scalars, **options)
    return str(caught.value)


def test_calls_against_the_contract():
    good = gemm_arrays(4, 4, 4)
    assert "dimension 1 of 'B' is 3, but K is 4 by dimension 1 of 'A'" in call_error(
        GEMM, good | {"B": good["B"][:, :3]}
    )
    assert "argument 'A' has 1 dimensions, but the kernel states [M, K]" in call_error(GEMM, good | {"A": good["A"][0]})
    assert "array 'C' holds float64, but f32 is required" in call_error(GEMM, good | {"C": np.zeros((4, 4))})
    assert "has no array argument 'D'" in call_error(GEMM, good | {"D": good["C"]})
    assert "array argument 'B' of kernel @gemm is missing" in call_error(GEMM, {"A": good["A"], "C": good["C"]})
    transposed = good | {"A": np.asfortranarray(good["A"])}
    assert "has a stride of 4 elements" in call_error(GEMM, transposed)
    repeated = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (4, 4), (0, 4))
    assert "repeats its elements" in call_error(GEMM, good | {"C": repeated})
    constant = np.zeros((4, 4), np.float32)
    constant.flags.writeable = False
    assert "is read-only" in call_error(GEMM, good | {"C": constant})
    assert "has no kernel @other; its kernels: @gemm" in call_error(GEMM, good, kernel="other")
    assert "must have one kernel to run, found @copy, @gemm" in call_error(COPY + GEMM, good)


def test_expressions_in_shapes_and_divisors():
    text = """
tile.kernel @k(%x: memref<?xf32> [N], %y: memref<?xf32> [N + 1], %z: memref<?xf32> [N * 2]) where(N divisible 4) grid(%i = N) {
}"""

    def arrays(n: int, y: int, z: int) -> dict[str, np.ndarray]:
        return {"x": np.zeros(n, np.float32), "y": np.zeros(y, np.float32), "z": np.zeros(z, np.float32)}

    run_kernel(parse_module(text), arrays(4, 5, 8))
    assert "dimension 0 of 'y' is 4, but N + 1 = 5 is required" in call_error(text, arrays(4, 4, 8))
    assert "N = 6 must be a multiple of 4" in call_error(text, arrays(6, 7, 12))
    kernel = find_kernel(parse_module(text))
    assert array_shapes(kernel, infer_dims(kernel, {"x": arrays(8, 0, 0)["x"]})) == {"x": (8,), "y": (9,), "z": (16,)}
    with pytest.raises(TeselaError, match="dimension N is not known\n.*pass one of the arrays that have it: x"):
        infer_dims(kernel, {"y": arrays(0, 9, 0)["y"]})


SCALE = """
tile.kernel @scale(%x: memref<?xf32> [N], %s: f32, %n: i8, %on: i1) grid(%i = N) {
  %v = tile.load %x[%i] : memref<?xf32> -> f32
  %f = tile.cast %n : i8 -> f32
  %p = arith.mulf %v, %s : f32
  %q = arith.addf %p, %f : f32
  %r = tile.select %on, %q, %v : i1, f32
  tile.store %r, %x[%i] : f32, memref<?xf32>
}"""


def test_scalar_arguments():
    x = np.array([1, 2], np.float32)
    run_kernel(parse_module(SCALE), {"x": x}, {"s": 0.5, "n": -3, "on": True})
    assert x.tolist() == [-2.5, -2]
    scalars = {"s": 1.0, "n": 1, "on": True}
    assert "scalar argument 'n' must be i8, but 200 is outside -128 … 127" in call_error(
        SCALE, {"x": x}, scalars | {"n": 200}
    )
    assert "scalar argument 'n' must be i8, found 1.5" in call_error(SCALE, {"x": x}, scalars | {"n": 1.5})
    assert "scalar argument 'on' of kernel @scale is missing" in call_error(SCALE, {"x": x}, {"s": 1.0, "n": 1})
    assert "has no scalar argument 't'" in call_error(SCALE, {"x": x}, scalars | {"t": 1})


def test_arrays_of_bf16_as_files_hold_them():
    arrays = gemm_arrays(3, 4, 5)
    wanted = arrays["A"].astype(float) @ arrays["B"].astype(float).T
    run_kernel(parse_module(GEMM), arrays | {"A": arrays["A"].view("V2"), "B": arrays["B"].view("V2")})
    np.testing.assert_allclose(arrays["C"], wanted, rtol=1e-6, atol=1e-6)


# --- Examples ---


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 1025, 3000])
def test_add(n):
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    z = np.full(n, np.nan, np.float32)
    program((EXAMPLES / "add.mlir").read_text(), x=x, y=y, z=z)
    assert z.tolist() == (x + y).tolist()


@pytest.mark.parametrize("m, n, k", [(128, 128, 64), (257, 321, 200), (1, 1, 1), (130, 5, 0), (0, 8, 8), (8, 0, 8)])
def test_gemm(m, n, k):
    arrays = gemm_arrays(m, n, k)
    program(GEMM, **arrays)
    wanted = arrays["A"].astype(float) @ arrays["B"].astype(float).T
    np.testing.assert_allclose(arrays["C"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m, n", [(1823, 781), (3, 2049), (2, 1), (1, 1024)])
def test_softmax(m, n):
    x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32) * 5
    y = np.full((m, n), np.nan, np.float32)
    program((EXAMPLES / "softmax.mlir").read_text(), x=x, y=y)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    # The difference to the maximum is rounded (by up to 50·2**-24) before its exponential is taken.
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=50 * 2.0**-24 + 1e-6)
