"""Loops split where masks end: the same results as in one loop, for every bound, direction and number of trips; and only where it can be proved."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

import tesela
from tesela import Array, f32, i32
from tesela.dialects import tile
from tesela.dialects.target import get_target
from tesela.dialects.verify import verify_module
from tesela.passes.base import PassContext
from tesela.passes.infer_layouts import InferLayouts
from tesela.passes.plan_dataflow import PlanDataflow
from tesela.passes.split_loops import SplitLoops, affine, find_split
from tesela.simulator.blocks import run_kernel

N, R = tesela.dims("N R")
WIDE = 64


@tesela.kernel
def window(x: Array[f32, N], y: Array[f32, R], low: i32, high: i32, FACTOR: tesela.constexpr = 1, STEP: tesela.constexpr = 64):
    """Row r sums the elements i with FACTOR·r + low <= i < N - r + high, a comparison of 32-bit places each."""
    r = tesela.grid(R)
    total = tesela.zeros((64,), f32)
    for j in tesela.range(0, N, STEP):
        place = tesela.arange(64) + j.to(i32)
        seen = (place >= (FACTOR * r).to(i32) + low) & (place < (N - r).to(i32) + high)
        total = total + tesela.where(seen, x[j : j + 64] * 2, 1.0)
    y[r] = total.sum()


def lowered(values: int, **constants):
    module = window.trace(**constants)
    context = PassContext(get_target("sm_80"))
    for step in (PlanDataflow(), InferLayouts(), SplitLoops(values)):
        step.run(module, context)
    verify_module(module)
    return module


def count(module, kind) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


@pytest.mark.parametrize("step", [64, 48])
@pytest.mark.parametrize("factor", [0, 3])
def test_every_bound(factor, step):
    whole, split = lowered(0, FACTOR=factor, STEP=step), lowered(1, FACTOR=factor, STEP=step)
    assert count(whole, scf.ForOp) == 1 and count(split, scf.ForOp) == 3
    assert count(split, tile.SelectOp) == 2  # none in the middle
    rng = np.random.default_rng(0)
    for n in (0, 1, 63, 64, 65, 200, 700):
        for low, high in ((0, 0), (-100, 50), (70, -70), (300, -300), (10_000, 0), (0, -10_000), (2**31 - 5, 7), (5, -(2**31) + 5)):
            x = rng.standard_normal(n).astype(np.float32)
            results = []
            for module in (whole, split):
                y = np.full(40, np.nan, np.float32)
                with np.errstate(over="ignore"):
                    run_kernel(module, {"x": x, "y": y}, {"low": low, "high": high})
                results.append(y)
            np.testing.assert_array_equal(*results)


def test_places_that_wrap_are_compared():
    """The end of row r lies at N - r + high, which wraps round to a negative place: nothing is seen, and no trip does without the comparison."""
    module = lowered(1)
    x, y = np.ones(500, np.float32), np.zeros(3, np.float32)
    run_kernel(module, {"x": x, "y": y}, {"low": 0, "high": 2**31 - 100})
    assert (y == 512).all()


@tesela.kernel
def refused(x: Array[f32, N], bounds: Array[i32, N], y: Array[f32, N]):
    for j in tesela.range(0, N, 64):
        loaded = tesela.arange(64) < bounds[j]
        squared = tesela.arange(64) < i32(j) * i32(j)
        fixed = tesela.arange(64) < 7
        y[j : j + 64] = tesela.where(loaded & squared & fixed, x[j : j + 64], 0.0)


def test_what_is_not_affine_stays():
    module = refused.trace()
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    assert find_split(loop) is None


def test_affine_functions():
    module = window.trace(FACTOR=3)
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    above = next(op for op in module.walk() if isinstance(op, tile.CmpOp))
    place = affine(above.lhs)
    assert place is not None and place.terms == {loop.body.block.args[0]: 1} and (place.low, place.high) == (0, 63)
    assert place.narrow, "the place was narrowed to 32 bits"
    bound = affine(above.rhs)
    assert bound is not None and sorted(bound.terms.values()) == [1, 3] and (bound.low, bound.high) == (0, 0)


@tesela.kernel
def edge(x: Array[f32, N], y: Array[f32, R, 512], low: i32, high: i32):
    r = tesela.grid(R)
    place = tesela.arange(512) + (r * 512).to(i32)
    seen = (place >= low) & (place < i32(N) + high)
    y[r, 0:512] = tesela.where(seen, x[r * 512 : r * 512 + 512], -1.0)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_selections_are_made_where_a_comparison_may_be_false(target):
    module = edge.trace()
    context = PassContext(get_target(target))
    for step in (PlanDataflow(), InferLayouts(), SplitLoops(2)):
        step.run(module, context)
    verify_module(module)
    (branch,) = [op for op in module.walk() if isinstance(op, scf.IfOp)]
    then, other = ([inner.name for inner in region.block.ops] for region in branch.regions)
    assert then == ["scf.yield"] and "tile.cmp" in other and "tile.select" in other
    assert not any(isinstance(op, tile.CmpOp) for op in branch.parent.ops), "the comparison is made in the branch only"
    x = np.arange(1300, dtype=np.float32)
    places = np.arange(1536)
    for low, high in ((0, 0), (0, 300), (512, 0), (513, -1), (2**31 - 1, 0), (0, 2**31 - 1400), (-(2**31), 2**31 - 1301)):
        y = np.zeros((3, 512), np.float32)
        run_kernel(module, {"x": x, "y": y}, {"low": low, "high": high})
        padded = np.zeros(1536, np.float32)
        padded[:1300] = x
        expected = np.where((places >= low) & (places < 1300 + high), padded, -1)
        np.testing.assert_array_equal(y.ravel(), expected)
        compiled = np.zeros((3, 512), np.float32)
        edge(x, compiled, low=low, high=high, device="sim", target=target)
        np.testing.assert_array_equal(compiled.ravel(), expected)
