"""Memory accesses, shapes, reductions and control flow, compiled and simulated, against the block interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import FLOATS, close, run_both, same, values

import tesela
from tesela.simulator.launcher import settings

MATRIX = "memref<?x?x{}, strided<[?, 1]>>"
VECTOR = "memref<?x{}, strided<[1]>>"


def exact(text: str, arrays: dict[str, np.ndarray], target: str = "sm_80") -> None:
    simulated, interpreted = run_both(text, arrays, target)
    for name, array in interpreted.items():
        same(simulated[name], array)


# ---- loads and stores -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("f32", "bf16", "i8", "i64", "i1"))
@pytest.mark.parametrize(("start", "back"), [(0, 0), (-3, 1), (5, -2), (60, 3)])
def test_tiles_past_the_edges(dtype: str, start: int, back: int) -> None:
    """Starts before the array, inside it at any element, and past its end; loads read zeros there, stores write nothing."""
    kind = MATRIX.format(dtype)
    text = f"""
    tile.kernel @k(%x: {kind} [M, N], %y: {kind} [M, N]) grid(%i = M ceildiv 8, %j = N ceildiv 16) {{
      %c8 = arith.constant 8 : index
      %c16 = arith.constant 16 : index
      %s = arith.constant {start} : index
      %t = arith.constant {back} : index
      %m = arith.muli %i, %c8 : index
      %n = arith.muli %j, %c16 : index
      %mm = arith.addi %m, %t : index
      %nn = arith.addi %n, %s : index
      %v = tile.load %x[%mm, %nn] : {kind} -> tensor<8x16x{dtype}>
      tile.store %v, %y[%m, %n] : tensor<8x16x{dtype}>, {kind}
    }}"""
    exact(text, {"x": values(dtype, (21, 43), 1), "y": values(dtype, (21, 43), 2)})


def test_fill_value() -> None:
    kind = VECTOR.format("bf16")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [P], %f: bf16) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %v = tile.load %x[%c0] else %f : {kind} -> tensor<64xbf16>
      tile.store %v, %y[%c0] : tensor<64xbf16>, {kind}
    }}"""
    from compiled import compiled

    from tesela.dialects.parsing import parse_module
    from tesela.simulator.blocks import run_kernel

    x, y, z = values("bf16", (50,), 1), values("bf16", (64,), 2), values("bf16", (64,), 2)
    compiled(text, "sm_80")(x=x, y=y, f=2.5, device="sim")
    run_kernel(parse_module(text), {"x": x, "y": z}, {"f": 2.5})
    same(y, z)
    assert (y[50:].astype(float) == 2.5).all()


@pytest.mark.parametrize("dtype", ("f32", "f16"))
def test_rows_and_columns_of_a_matrix(dtype: str) -> None:
    """A tile of one dimension covers the array's last one, or the one that `dims` names."""
    kind = MATRIX.format(dtype)
    text = f"""
    tile.kernel @k(%x: {kind} [M, N], %y: {kind} [N, M]) grid(%i = M) {{
      %c0 = arith.constant 0 : index
      %v = tile.load %x[%i, %c0] : {kind} -> tensor<40x{dtype}>
      tile.store %v, %y[%c0, %i] dims [0] : tensor<40x{dtype}>, {kind}
    }}"""
    exact(text, {"x": values(dtype, (6, 33), 1), "y": values(dtype, (33, 6), 2)})


@pytest.mark.parametrize("how", ("transposed", "sliced", "broadcast", "reversed_order"))
def test_views(how: str) -> None:
    """Any strides, also 0, without a copy."""
    base = values("f32", (40, 56), 1)
    x = {
        "transposed": base.T[:30, :40],
        "sliced": base[::2, ::3][:20, :18],
        "broadcast": np.broadcast_to(base[0, :24], (31, 24)),
        "reversed_order": np.asfortranarray(base),
    }[how]
    text = """
    tile.kernel @k(%x: memref<?x?xf32, strided<[?, ?]>> [M, N], %y: memref<?x?xf32, strided<[?, 1]>> [M, N])
        grid(%i = M ceildiv 16, %j = N ceildiv 32) {
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %m = arith.muli %i, %c16 : index
      %n = arith.muli %j, %c32 : index
      %v = tile.load %x[%m, %n] : memref<?x?xf32, strided<[?, ?]>> -> tensor<16x32xf32>
      tile.store %v, %y[%m, %n] : tensor<16x32xf32>, memref<?x?xf32, strided<[?, 1]>>
    }"""
    from compiled import compiled

    y = np.zeros(x.shape, np.float32)
    compiled(text, "sm_80")(x=x, y=y, device="sim")
    same(y, np.ascontiguousarray(x))


def test_in_place() -> None:
    """One array as input and output: each block reads before it writes, with a barrier between."""
    kind = VECTOR.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [N]) grid(%i = N ceildiv 256) {{
      %c256 = arith.constant 256 : index
      %m = arith.muli %i, %c256 : index
      %v = tile.load %x[%m] : {kind} -> tensor<256xf32>
      %w = arith.addf %v, %v : tensor<256xf32>
      tile.store %w, %y[%m] : tensor<256xf32>, {kind}
    }}"""
    from compiled import compiled

    x = values("f32", (1000,), 1, special=False)
    wanted = x + x
    compiled(text, "sm_80")(x=x, y=x, device="sim")
    same(x, wanted)


def test_stores_are_seen_by_later_loads() -> None:
    """A block's own accesses keep their order, through other threads too: a reversal by way of memory."""
    kind = VECTOR.format("i32")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [N]) grid(%b = 1) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      scf.for %i = %c0 to %c3 step %c1 {{
        %v = tile.load %x[%i] : {kind} -> tensor<200xi32>
        %w = arith.addi %v, %v : tensor<200xi32>
        tile.store %w, %x[%c0] : tensor<200xi32>, {kind}
      }}
      %r = tile.load %x[%c1] : {kind} -> tensor<200xi32>
      tile.store %r, %y[%c0] : tensor<200xi32>, {kind}
    }}"""
    exact(text, {"x": values("i32", (207,), 1), "y": values("i32", (207,), 2)})


@pytest.mark.parametrize("trips", [0, 1, 2])
def test_a_barrier_in_a_loop_of_no_trips_orders_nothing(trips: int) -> None:
    """The loop's reduction meets at barriers, but only if there is a trip: what was stored before it is seen after it anyhow."""
    kind = VECTOR.format("i32")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [N], %t: {kind} [T]) dims(%T = T) grid(%b = 1) attributes {{warps = 4 : i64}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %z = arith.constant 0 : i32
      %v = tile.load %x[%c0] : {kind} -> tensor<128xi32>
      tile.store %v, %y[%c0] : tensor<128xi32>, {kind}
      %sum = scf.for %i = %c0 to %T step %c1 iter_args(%s = %z) -> (i32) {{
        %p = tile.reduce sum %v axis 0 : tensor<128xi32> -> i32
        %q = arith.addi %s, %p : i32
        scf.yield %q : i32
      }}
      %w = tile.load %y[%c1] : {kind} -> tensor<100xi32>
      %all = tile.full %sum : i32 -> tensor<100xi32>
      %r = arith.addi %w, %all : tensor<100xi32>
      tile.store %r, %x[%c0] : tensor<100xi32>, {kind}
    }}"""
    arrays = {"x": values("i32", (128,), 1), "y": values("i32", (128,), 2), "t": values("i32", (trips,), 3)}
    with settings(races=True):
        exact(text, arrays)


def test_scalar_loads_and_stores() -> None:
    kind = VECTOR.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [N]) grid(%i = N) {{
      %v = tile.load %x[%i] : {kind} -> f32
      %w = arith.mulf %v, %v : f32
      tile.store %w, %y[%i] : f32, {kind}
    }}"""
    exact(text, {"x": values("f32", (9,), 1), "y": values("f32", (9,), 2)})


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("f32", "bf16", "i64", "i1", "i8"))
@pytest.mark.parametrize("warps", (1, 4))
def test_transpose(dtype: str, warps: int) -> None:
    kind = MATRIX.format(dtype)
    text = f"""
    tile.kernel @k(%x: {kind} [M, N], %y: {kind} [N, M]) grid(%i = M ceildiv 24, %j = N ceildiv 40) attributes {{warps = {warps} : i64}} {{
      %c24 = arith.constant 24 : index
      %c40 = arith.constant 40 : index
      %m = arith.muli %i, %c24 : index
      %n = arith.muli %j, %c40 : index
      %v = tile.load %x[%m, %n] : {kind} -> tensor<24x40x{dtype}>
      %t = tile.transpose %v [1, 0] : tensor<24x40x{dtype}> -> tensor<40x24x{dtype}>
      tile.store %t, %y[%n, %m] : tensor<40x24x{dtype}>, {kind}
    }}"""
    exact(text, {"x": values(dtype, (50, 90), 1), "y": values(dtype, (90, 50), 2)})


CUBE = "memref<?x?x?x{}, strided<[?, ?, 1]>>"


@pytest.mark.parametrize("order", ([0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]))
def test_transpose_of_three_dimensions(order: list[int]) -> None:
    shape = (5, 12, 33)
    out = [shape[i] for i in order]
    kind = CUBE.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [A, B, C], %y: {kind} [D, E, F]) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %v = tile.load %x[%c0, %c0, %c0] : {kind} -> tensor<5x12x33xf32>
      %t = tile.transpose %v {order} : tensor<5x12x33xf32> -> tensor<{out[0]}x{out[1]}x{out[2]}xf32>
      tile.store %t, %y[%c0, %c0, %c0] : tensor<{out[0]}x{out[1]}x{out[2]}xf32>, {kind}
    }}"""
    exact(text, {"x": values("f32", shape, 1), "y": values("f32", tuple(out), 2)})


@pytest.mark.parametrize("dtype", ("f32", "f16"))
@pytest.mark.parametrize(
    ("before", "after"),
    [((8, 16), (128,)), ((128,), (8, 16)), ((6, 10), (60,)), ((6, 10), (4, 15)), ((3, 4, 5), (12, 5)), ((7, 6), (2, 3, 7))],
)
def test_reshape(before: tuple[int, ...], after: tuple[int, ...], dtype: str) -> None:
    def array(shape: tuple[int, ...]) -> str:
        return {1: VECTOR, 2: MATRIX, 3: CUBE}[len(shape)].format(dtype)

    def tile(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"

    zeros_in, zeros_out = (", ".join(["%c0"] * len(shape)) for shape in (before, after))
    dims_in, dims_out = (", ".join(f"{letter}{i}" for i in range(len(shape))) for letter, shape in (("A", before), ("B", after)))
    text = f"""
    tile.kernel @k(%x: {array(before)} [{dims_in}], %y: {array(after)} [{dims_out}]) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %v = tile.load %x[{zeros_in}] : {array(before)} -> {tile(before)}
      %t = tile.reshape %v : {tile(before)} -> {tile(after)}
      tile.store %t, %y[{zeros_out}] : {tile(after)}, {array(after)}
    }}"""
    exact(text, {"x": values(dtype, before, 1), "y": values(dtype, after, 2)})


@pytest.mark.parametrize("dtype", ("i32", "i64"))
def test_iota(dtype: str) -> None:
    kind = MATRIX.format(dtype)
    text = f"""
    tile.kernel @k(%y: {kind} [M, N]) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %a = tile.iota axis 0 : tensor<13x50x{dtype}>
      %b = tile.iota axis 1 : tensor<13x50x{dtype}>
      %c = arith.muli %a, %b : tensor<13x50x{dtype}>
      %d = arith.addi %c, %a : tensor<13x50x{dtype}>
      tile.store %d, %y[%c0, %c0] : tensor<13x50x{dtype}>, {kind}
    }}"""
    exact(text, {"y": values(dtype, (13, 50), 1)})


@pytest.mark.parametrize("dtype", ("f32", "bf16", "i1"))
def test_outer_combination_of_rows_and_columns(dtype: str) -> None:
    """Two vectors expanded along different axes and broadcast to one tile."""
    op = "arith.xori" if dtype == "i1" else "arith.addf"
    row, matrix = VECTOR.format(dtype), MATRIX.format(dtype)
    text = f"""
    tile.kernel @k(%x: {row} [M], %y: {row} [N], %z: {matrix} [M, N]) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %a = tile.load %x[%c0] : {row} -> tensor<20x{dtype}>
      %b = tile.load %y[%c0] : {row} -> tensor<70x{dtype}>
      %ae = tile.expand %a axis 1 : tensor<20x{dtype}> -> tensor<20x1x{dtype}>
      %be = tile.expand %b axis 0 : tensor<70x{dtype}> -> tensor<1x70x{dtype}>
      %aw = tile.broadcast %ae : tensor<20x1x{dtype}> -> tensor<20x70x{dtype}>
      %bw = tile.broadcast %be : tensor<1x70x{dtype}> -> tensor<20x70x{dtype}>
      %r = {op} %aw, %bw : tensor<20x70x{dtype}>
      tile.store %r, %z[%c0, %c0] : tensor<20x70x{dtype}>, {matrix}
    }}"""
    exact(text, {"x": values(dtype, (20,), 1), "y": values(dtype, (70,), 2), "z": values(dtype, (20, 70), 3)})


# ---- reductions -----------------------------------------------------------------------------------------------------

KINDS = ("sum", "prod", "max", "min", "argmax", "argmin")


def reduction(kind: str, dtype: str, shape: tuple[int, ...], axis: int, warps: int) -> tuple[str, tuple[int, ...]]:
    rest = shape[:axis] + shape[axis + 1 :]
    out = "i32" if kind.startswith("arg") else dtype
    array_in = {1: VECTOR, 2: MATRIX, 3: CUBE}[len(shape)].format(dtype)
    array_out = {0: VECTOR, 1: VECTOR, 2: MATRIX}[len(rest)].format(out)
    tile_in = f"tensor<{'x'.join(map(str, shape))}x{dtype}>"
    tile_out = f"tensor<{'x'.join(map(str, rest))}x{out}>" if rest else out
    dims_in = ", ".join(f"A{i}" for i in range(len(shape)))
    dims_out = ", ".join(f"B{i}" for i in range(max(1, len(rest))))
    text = f"""
    tile.kernel @k(%x: {array_in} [{dims_in}], %y: {array_out} [{dims_out}]) grid(%i = 1) attributes {{warps = {warps} : i64}} {{
      %c0 = arith.constant 0 : index
      %v = tile.load %x[{", ".join(["%c0"] * len(shape))}] : {array_in} -> {tile_in}
      %r = tile.reduce {kind} %v axis {axis} : {tile_in} -> {tile_out}
      tile.store %r, %y[{", ".join(["%c0"] * max(1, len(rest)))}] : {tile_out}, {array_out}
    }}"""
    return text, rest or (1,)


def check_reduction(kind: str, dtype: str, shape: tuple[int, ...], axis: int, warps: int, special: bool) -> None:
    text, out = reduction(kind, dtype, shape, axis, warps)
    x = values(dtype, shape, 1, special)
    if kind == "prod" and dtype in FLOATS:
        x = (1 + x.astype(np.float32) / 64).astype(x.dtype)
    y = values("i32" if kind.startswith("arg") else dtype, out, 2)
    simulated, interpreted = run_both(text, {"x": x, "y": y})
    if dtype in FLOATS and kind in ("sum", "prod"):
        rounding = {"f32": 2**-22, "f16": 2**-10, "bf16": 2**-7}[dtype]
        scale = np.abs(x.astype(np.float64)).sum(axis).max() if kind == "sum" else 1.0
        absolute = float(scale) * x.shape[axis] * 2**-24 if np.isfinite(scale) else 0.0
        close(simulated["y"], interpreted["y"], rounding * (x.shape[axis] if kind == "prod" else 2), absolute)
    else:
        same(simulated["y"], interpreted["y"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", (1, 2, 31, 96, 100, 127, 128, 2047))
def test_reduce_one_dimension(kind: str, n: int) -> None:
    check_reduction(kind, "f32", (n,), 0, 4, special=kind not in ("sum", "prod"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ("f32", "f16", "bf16", "i32", "i64", "i8"))
@pytest.mark.parametrize("axis", (0, 1))
def test_reduce_two_dimensions(kind: str, dtype: str, axis: int) -> None:
    check_reduction(kind, dtype, (12, 65), axis, 4, special=kind not in ("sum", "prod"))


@pytest.mark.parametrize("axis", (0, 1, 2))
@pytest.mark.parametrize("shape", ((4, 6, 40), (33, 2, 3), (1, 1, 256)))
@pytest.mark.parametrize("warps", (1, 8))
def test_reduce_three_dimensions(shape: tuple[int, ...], axis: int, warps: int) -> None:
    check_reduction("max", "f32", shape, axis, warps, special=True)
    check_reduction("sum", "i32", shape, axis, warps, special=True)


@pytest.mark.parametrize("kind", ("max", "min", "argmax", "argmin"))
@pytest.mark.parametrize("place", (0, 5, 99))
def test_nan_wins_from_anywhere(kind: str, place: int) -> None:
    text, out = reduction(kind, "f32", (100,), 0, 4)
    x = values("f32", (100,), 7, special=False)
    x[place] = np.nan
    x[(place + 50) % 100] = np.nan
    y = values("i32" if kind.startswith("arg") else "f32", out, 2)
    simulated, _ = run_both(text, {"x": x, "y": y})
    if kind.startswith("arg"):
        assert simulated["y"][0] == min(place, (place + 50) % 100)
    else:
        assert np.isnan(simulated["y"][0])


# ---- control --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trips", (0, 1, 2, 5))
def test_loop_with_dynamic_bounds_and_a_carried_tile(trips: int) -> None:
    kind = MATRIX.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [T, N], %y: {VECTOR.format("f32")} [N], %last: {VECTOR.format("i64")} [ONE]) dims(%T = T) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %f = arith.constant 1.0 : f32
      %init = tile.full %f : f32 -> tensor<50xf32>
      %r, %l = scf.for %t = %c0 to %T step %c1 iter_args(%acc = %init, %seen = %c0) -> (tensor<50xf32>, index) {{
        %v = tile.load %x[%t, %c0] : {kind} -> tensor<50xf32>
        %a = arith.mulf %acc, %v : tensor<50xf32>
        %n = arith.addi %seen, %t : index
        scf.yield %a, %n : tensor<50xf32>, index
      }}
      tile.store %r, %y[%c0] : tensor<50xf32>, {VECTOR.format("f32")}
      %l64 = tile.cast %l : index -> i64
      tile.store %l64, %last[%c0] : i64, {VECTOR.format("i64")}
    }}"""
    exact(text, {"x": values("f32", (trips, 50), 1), "y": values("f32", (50,), 2), "last": values("i64", (1,), 3)})


def test_values_that_swap_round_a_loop() -> None:
    kind = VECTOR.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [N], %z: {kind} [N]) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      %a0 = tile.load %x[%c0] : {kind} -> tensor<40xf32>
      %b0 = arith.addf %a0, %a0 : tensor<40xf32>
      %a, %b = scf.for %t = %c0 to %c3 step %c1 iter_args(%p = %a0, %q = %b0) -> (tensor<40xf32>, tensor<40xf32>) {{
        scf.yield %q, %p : tensor<40xf32>, tensor<40xf32>
      }}
      tile.store %a, %y[%c0] : tensor<40xf32>, {kind}
      tile.store %b, %z[%c0] : tensor<40xf32>, {kind}
    }}"""
    exact(text, {"x": values("f32", (40,), 1), "y": values("f32", (40,), 2), "z": values("f32", (40,), 3)})


def test_conditional_with_tiles() -> None:
    kind = MATRIX.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [M, N], %y: {kind} [M, N]) grid(%i = M) {{
      %c0 = arith.constant 0 : index
      %c2 = arith.constant 2 : index
      %v = tile.load %x[%i, %c0] : {kind} -> tensor<64xf32>
      %s = tile.reduce sum %v axis 0 : tensor<64xf32> -> f32
      %z = arith.constant 0.0 : f32
      %p = tile.cmp ogt %s, %z : f32 -> i1
      %r = scf.if %p -> (tensor<64xf32>) {{
        %d = arith.mulf %v, %v : tensor<64xf32>
        scf.yield %d : tensor<64xf32>
      }} else {{
        %q = arith.cmpi sge, %i, %c2 : index
        %e = scf.if %q -> (tensor<64xf32>) {{
          %n = arith.negf %v : tensor<64xf32>
          scf.yield %n : tensor<64xf32>
        }} else {{
          scf.yield %v : tensor<64xf32>
        }}
        scf.yield %e : tensor<64xf32>
      }}
      tile.store %r, %y[%i, %c0] : tensor<64xf32>, {kind}
    }}"""
    exact(text, {"x": np.round(values("f32", (6, 64), 1, special=False)), "y": values("f32", (6, 64), 2)})


def test_while_until_a_tile_is_small() -> None:
    kind = VECTOR.format("f32")
    text = f"""
    tile.kernel @k(%x: {kind} [N], %y: {kind} [N], %count: {VECTOR.format("i32")} [ONE]) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %limit = arith.constant 1.0 : f32
      %half = arith.constant 0.5 : f32
      %halves = tile.full %half : f32 -> tensor<90xf32>
      %v = tile.load %x[%c0] : {kind} -> tensor<90xf32>
      %r, %n = scf.while (%a = %v, %k = %zero) : (tensor<90xf32>, i32) -> (tensor<90xf32>, i32) {{
        %abs = math.absf %a : tensor<90xf32>
        %m = tile.reduce max %abs axis 0 : tensor<90xf32> -> f32
        %go = tile.cmp ogt %m, %limit : f32 -> i1
        scf.condition(%go) %a, %k : tensor<90xf32>, i32
      }} do {{
      ^bb0(%b: tensor<90xf32>, %j: i32):
        %h = arith.mulf %b, %halves : tensor<90xf32>
        %j1 = arith.addi %j, %one : i32
        scf.yield %h, %j1 : tensor<90xf32>, i32
      }}
      tile.store %r, %y[%c0] : tensor<90xf32>, {kind}
      tile.store %n, %count[%c0] : i32, {VECTOR.format("i32")}
    }}"""
    arrays = {"x": values("f32", (90,), 1, special=False), "y": values("f32", (90,), 2), "count": values("i32", (1,), 3)}
    exact(text, arrays)


def test_scalar_arguments_of_every_type() -> None:
    from compiled import compiled

    from tesela.dialects.parsing import parse_module
    from tesela.simulator.blocks import run_kernel

    kind = VECTOR.format("f32")
    text = f"""
    tile.kernel @k(%y: {kind} [N], %a: f32, %b: bf16, %c: i32, %d: i64, %e: index, %f: i1, %h: f16) grid(%i = 1) {{
      %c0 = arith.constant 0 : index
      %b32 = tile.cast %b : bf16 -> f32
      %h32 = tile.cast %h : f16 -> f32
      %cf = tile.cast %c : i32 -> f32
      %df = tile.cast %d : i64 -> f32
      %ei = tile.cast %e : index -> i64
      %ef = tile.cast %ei : i64 -> f32
      %s1 = arith.addf %a, %b32 : f32
      %s2 = arith.addf %s1, %cf : f32
      %s3 = arith.addf %s2, %df : f32
      %s4 = arith.addf %s3, %ef : f32
      %s5 = arith.addf %s4, %h32 : f32
      %r = tile.select %f, %s5, %a : i1, f32
      %t = tile.full %r : f32 -> tensor<4xf32>
      tile.store %t, %y[%c0] : tensor<4xf32>, {kind}
    }}"""
    for flag in (True, False):
        scalars = {"a": 1.25, "b": 2.5, "c": -3, "d": 1 << 40, "e": 7, "f": flag, "h": 0.125}
        y, z = np.zeros(4, np.float32), np.zeros(4, np.float32)
        compiled(text, "sm_80")(y=y, **scalars, device="sim")
        run_kernel(parse_module(text), {"y": z}, scalars)
        same(y, z)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("extent", [16, 12])
def test_an_index_that_differs_along_the_contiguous_dimension(target: str, extent: int) -> None:
    """Neighbours in a row of the tile are in different rows of the array, so none of them can be loaded together."""
    text = """
tile.kernel @diagonal(%x: memref<?x?xf16, strided<[?, 1]>> [R, N], %y: memref<?x?xf16, strided<[?, 1]>> [P, Q]) grid(%g = 1) {
  %v = tile.iota axis 1 : tensor<16x16xi64>
  %c = arith.constant 0 : index
  %t = tile.load_indexed %x[%v, %c] dims [-1, 1] : memref<?x?xf16, strided<[?, 1]>>[tensor<16x16xi64>, index] -> tensor<16x16xf16>
  tile.store %t, %y[%c, %c] : tensor<16x16xf16>, memref<?x?xf16, strided<[?, 1]>>
}"""
    x = np.arange(1, extent * 16 + 1, dtype=np.float16).reshape(extent, 16)
    y = np.full((16, 16), np.nan, np.float16)
    tesela.compile(text, target)(x, y, device="sim")
    assert np.array_equal(y, np.tile(np.append(np.diag(x), np.zeros(16 - extent, np.float16)), (16, 1)))
