"""Compiles a tile program, runs it in the simulator and compares with the block interpreter: what tests of the lowering share."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from tesela.dialects.parsing import parse_module
from tesela.runtime.compile import compile as compile_tile
from tesela.simulator.blocks import run_kernel

DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "ui8": np.dtype(np.uint8),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "i1": np.dtype(np.bool_),
}
FLOATS = ("f32", "f16", "bf16")
EXACT_FLOATS = (*FLOATS, "f64", "f8E4M3FN", "f8E5M2")
"""Floats on which arithmetic is defined; approximations are on FLOATS and 8-bit floats only."""
INTEGERS = ("i64", "i32", "i16", "i8")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 1e-40, -1e-40, 65504.0, 65536.0, 3e38, np.inf, -np.inf, np.nan)


def values(dtype: str, shape: tuple[int, ...], seed: int, special: bool = True) -> np.ndarray:
    """Random elements; with `special`, zeros of both signs, ties, extremes, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if dtype in EXACT_FLOATS:
        data = (rng.standard_normal(shape) * 4).astype(np.float32)
        if special:
            where = rng.random(shape) < 0.4
            data = np.where(where, rng.choice(np.array(SPECIAL, np.float32), shape), data)
        if dtype == "f64":  # more bits than f32 has
            return np.where(np.isfinite(data), data.astype(kind) * (1 + rng.random(shape)), data)
        with np.errstate(over="ignore"):
            return data.astype(kind)
    if dtype == "i1":
        return rng.random(shape) < 0.5
    info = np.iinfo(kind)
    data = rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    if special:
        data = np.where(rng.random(shape) < 0.4, rng.choice(np.array([info.min, info.max, 0, 1, 7, *([-1] if info.min else [])], kind), shape), data)
    return data.astype(kind)


@cache
def compiled(text: str, target: str):
    """The kernel of a module's text; compiled once for each target."""
    return compile_tile(text, target=target)


def run_both(text: str, arrays: dict[str, np.ndarray], target: str = "sm_80") -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(simulated, interpreted): copies of `arrays` after the compiled program and after the block interpreter ran on them."""
    simulated = {name: array.copy() for name, array in arrays.items()}
    interpreted = {name: array.copy() for name, array in arrays.items()}
    compiled(text, target)(**simulated, device="sim")
    run_kernel(parse_module(text), interpreted)
    return simulated, interpreted


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal bit for bit, but that any NaN equals any other."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if wanted.dtype.kind in "iub":
        differ = found != wanted
    else:
        bits = np.dtype(f"u{wanted.dtype.itemsize}")
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        differ = (found.view(bits) != wanted.view(bits)) & ~(np.isnan(a) & np.isnan(b))
    if differ.any():
        first = tuple(int(i) for i in np.argwhere(differ)[0])
        raise AssertionError(f"{int(differ.sum())} of {differ.size} differ, first at {first}: {found[first]} instead of {wanted[first]}")


def close(found: np.ndarray, wanted: np.ndarray, relative: float, absolute: float = 0.0) -> None:
    """Within bounds where both are finite; equal infinities and NaN elsewhere."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    assert (np.isnan(a) == np.isnan(b)).all(), f"NaN in {int((np.isnan(a) != np.isnan(b)).sum())} places of one only"
    wrong = ~finite & ~np.isnan(a) & (a != b)
    wrong |= finite & (np.abs(a - b) > relative * np.abs(b) + absolute)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{int(wrong.sum())} of {wrong.size} are off, first at {first}: {a[first]!r} instead of {b[first]!r}")
