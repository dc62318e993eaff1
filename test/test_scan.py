"""Scans, compiled and simulated, against the block interpreter: kinds, types, axes, extents, layouts; and from Python."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import run_both, same, values

import tesela
from tesela import Array, f32, i32
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.layout import TVLayout
from tesela.dialects.parsing import parse_module
from tesela.passes.scan_layouts import axis_digits, scan_layout
from tesela.runtime.compile import compile
from tesela.simulator import settings
from tesela.simulator.bounds import allowed_results, check_results


def program(kind: str, dtype: str, shape: tuple[int, ...], axis: int, exclusive: bool = False, warps: int = 4, layout: str = "") -> str:
    tile = f"tensor<{'x'.join(map(str, shape))}x{dtype}>"
    array = f"memref<{'?x' * len(shape)}{dtype}, strided<[{'?, ' * (len(shape) - 1)}1]>>"
    names = ", ".join("MNK"[: len(shape)])
    at = ", ".join(["%c0"] * len(shape))
    pin = f" {{layout = #layout.tv<{layout}>}}" if layout else ""
    return f"""
    tile.kernel @k(%x: {array} [{names}], %out: {array} [{names}]) grid(%b = 1) attributes {{warps = {warps} : i64}} {{
      %c0 = arith.constant 0 : index
      %t = tile.load %x[{at}]{pin} : {array} -> {tile}
      %r = tile.scan {kind} %t axis {axis}{" exclusive" if exclusive else ""} : {tile} -> {tile}
      tile.store %r, %out[{at}] : {tile}, {array}
    }}"""


def check(text: str, x: np.ndarray) -> None:
    with settings(races=True):
        simulated, _ = run_both(text, {"x": x, "out": np.zeros_like(x)})
    arrays = {"x": x.copy(), "out": np.zeros_like(x)}
    check_results({"out": simulated["out"]}, {"out": allowed_results(parse_module(text), arrays)["out"]})


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_exclusive_beside_large_elements(dtype):
    """What is allowed is what the elements before leave open, not what would be left of a difference."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((64, 7)) * 10.0 ** rng.integers(-8, 9, (64, 7))
    check(program("sum", dtype, (64, 7), 1, True), x.astype(np.float64 if dtype == "f64" else np.float32))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "i8", "i64", "f16", "f64"])
def test_kinds(kind, dtype, exclusive):
    x = values(dtype, (5, 300), 1, special=kind in ("max", "min"))
    if dtype in ("f32", "f16", "f64") and kind == "sum":
        x = np.round(x * 4).astype(x.dtype)  # sums are exact in every order
    check(program(kind, dtype, (5, 300), 1, exclusive), x)


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize(("shape", "axis"), [((1000,), 0), ((64, 40), 0), ((3, 129), 1), ((4, 6, 50), 2), ((4, 50, 6), 1), ((70, 3, 5), 0), ((1, 1), 1)])
def test_shapes(shape, axis, warps):
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 9, shape).astype(np.int32)
    text = program("sum", "i32", shape, axis, warps=warps)
    with settings(races=True):
        simulated, interpreted = run_both(text, {"x": x, "out": np.zeros_like(x)})
    same(simulated["out"], np.cumsum(x, axis=axis, dtype=np.int32))
    same(interpreted["out"], simulated["out"])


LAYOUTS = [
    "thread [32:(0,4), 4:(0,128)], value [4:(0,1), 8:(1,0)]",  # values, lanes, warps
    "thread [4:(0,1), 8:(1,0), 4:(0,128)], value [32:(0,4)]",  # lanes, values, warps
    "thread [32:(0,16), 4:(0,4)], value [4:(0,1), 8:(1,0)]",  # values, warps, lanes
    "thread [16:(0,32), 2:(0,0), 4:(2,0)], value [32:(0,1), 2:(1,0)]",  # copies
    "thread [8:(1,0), 4:(0,1), 4:(0,4)], value [32:(0,16)]",  # lanes, warps, values
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x = np.random.default_rng(3).integers(-99, 99, (8, 512)).astype(np.int32)
    text = program("sum", "i32", (8, 512), 1, layout=layout)
    with settings(races=True):
        simulated, _ = run_both(text, {"x": x, "out": np.zeros_like(x)})
    same(simulated["out"], np.cumsum(x, axis=1, dtype=np.int32))


def test_layouts_that_are_no_digits_are_left():
    overlapping = TVLayout.parse("thread [32:(0,3)], value [4:(0,1)]")
    assert axis_digits(overlapping, 1) is None
    assert axis_digits(scan_layout(overlapping, (1, 97), 1, 32), 1) is not None


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_random_floats_within_bounds(target):
    x = np.random.default_rng(4).standard_normal((4, 700)).astype(np.float32)
    text = program("sum", "f32", (4, 700), 1)
    found = np.zeros_like(x)
    compile(text, target)(x, found, device="sim")
    allowed = allowed_results(parse_module(text), {"x": x.copy(), "out": np.zeros_like(x)})
    check_results({"out": found}, allowed)
    np.testing.assert_allclose(found, np.cumsum(x.astype(np.float64), axis=1), atol=1e-4)


M, N = tesela.dims("M N")


@tesela.kernel
def compact(X: Array[i32, N], Place: Array[i32, N], Running: Array[f32, N]):
    """Where the positive elements go when the others are left out."""
    x = X[0:512]
    keep = (x > 0).to(i32)
    Place[0:512] = tesela.cumsum(keep, 0, exclusive=True)
    Running[0:512] = tesela.cummax(x.to(f32), -1)


def test_from_python():
    x = np.random.default_rng(5).integers(-5, 6, 512).astype(np.int32)
    place, running = compact(x, device="sim")
    keep = (x > 0).astype(np.int32)
    np.testing.assert_array_equal(place, np.cumsum(keep) - keep)
    np.testing.assert_array_equal(running, np.maximum.accumulate(x).astype(np.float32))


REFUSED = {"argmax": "a scan is one of sum, prod, max, min", "sum": "axis 2 is outside"}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind):
    with pytest.raises(TeselaError, match=REFUSED[kind]):
        parse_module(program(kind, "f32", (4, 8), 2 if kind == "sum" else 1))
        from tesela.dialects.verify import verify_module

        verify_module(parse_module(program(kind, "f32", (4, 8), 2 if kind == "sum" else 1)))
