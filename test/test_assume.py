"""Assumptions about variables: what the compiler makes of them, and what the interpreter says where they do not hold."""

from __future__ import annotations

import numpy as np
import pytest
from everywhere import everywhere

import tesela
from tesela import Array, TeselaError, bf16, f32, i32
from tesela.simulator.blocks import run_kernel

M, N, K = tesela.dims("M N K")


@tesela.kernel
def windows(starts: Array[i32, M], x: Array[f32, N], y: Array[f32, M, 64], KNOWN: tesela.constexpr = True):
    i = tesela.grid(M)
    start = starts[i]
    if KNOWN:
        tesela.assume(start % 4 == 0)
        tesela.assume(0 <= start < 1000)
    y[i, 0:64] = x[start : start + 64]


def test_the_same_results_and_wider_accesses():
    starts, x = np.array([0, 8, 52, 96], np.int32), np.arange(100, dtype=np.float32)
    expected = np.zeros((4, 64), np.float32)
    for row, start in enumerate(starts):
        expected[row, : 100 - start] = x[start : start + 64]
    for found in everywhere(windows, {"starts": starts, "x": x, "y": np.zeros((4, 64), np.float32)}):
        np.testing.assert_array_equal(found["y"], expected)
    loads = {known: windows.compile("sm_80", KNOWN=known, pins={"warps": 1}).variant((4,), (4096,), (4, 64)).ptx for known in (True, False)}
    assert "ld.global.v2.b32" in loads[True] and "ld.global.v2.b32" not in loads[False]


@pytest.mark.parametrize(("start", "reason"), [(6, "6 is no multiple of 4"), (-4, "-4 is less than 0"), (1000, "1000 is more than 999")])
def test_the_interpreter_checks(start, reason):
    arrays = {"starts": np.array([start], np.int32), "x": np.zeros(10, np.float32), "y": np.zeros((1, 64), np.float32)}
    with pytest.raises(TeselaError, match=f"an assumption does not hold: {reason}"):
        run_kernel(windows.trace(), arrays)


@tesela.kernel
def grouped(offsets: Array[i32, M], a: Array[bf16, N, K], b: Array[bf16, 64, K], c: Array[f32, M, 64, 64], KNOWN: tesela.constexpr):
    i = tesela.grid(M)
    column = offsets[i]
    if KNOWN:
        tesela.assume(column % 64 == 0)
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, 128, 64):
        acc += a[0:64, column + k : column + k + 64] @ b[0:64, k : k + 64].T
    tesela.store(c, (i, 0, 0), acc)


def test_tma_from_a_loaded_place():
    def maps(known):
        plan = grouped.compile("sm_90a", KNOWN=known).variant((4,), (64, 1024), (64, 1024), (4, 64, 64)).plan
        return {param.arg for param in plan.params if param.kind == "tensormap"}

    assert "a" in maps(True) and "a" not in maps(False)
