"""Comparisons of places with bounds, compiled: every predicate, either side, bounds at the ends of 32 bits, and two bounds that become one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tesela
from tesela import Array, i32

R, C = 32, 64
EDGES = np.array([-(2**31), -(2**31) + 1, -65, -64, -1, 0, 1, 2, 31, 32, 62, 63, 64, 65, 2**30, 2**31 - 1], np.int32)


@tesela.kernel
def compare(bounds: Array[i32, 32], seen: Array[i32, 32, 64], single: i32, KIND: tesela.constexpr = "<", AXIS: tesela.constexpr = 1):
    """Places along AXIS beside bounds one a row and beside one bound."""
    tesela.grid(1)
    place = tesela.iota((32, 64), axis=AXIS)
    rows = bounds[0:32][:, None]
    if KIND == "<":
        found = (place < rows).to(i32) + 2 * (single > place).to(i32) + 4 * ((place < rows) & (place < single)).to(i32)
    elif KIND == "<=":
        found = (place <= rows).to(i32) + 2 * (single >= place).to(i32) + 4 * ((place <= rows) & (place < single)).to(i32)
    elif KIND == ">":
        found = (place > rows).to(i32) + 2 * (single < place).to(i32) + 4 * ((place > rows) & (place > single)).to(i32)
    else:
        found = (place >= rows).to(i32) + 2 * (single <= place).to(i32) + 4 * ((place >= rows) & (place < single)).to(i32)
    seen[0:32, 0:64] = found


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("device", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_comparisons_with_bounds(kind, axis, device):
    bounds = np.concatenate([EDGES, EDGES[::-1]])
    place = np.broadcast_to(np.arange((R, C)[axis])[(slice(None), None) if axis == 0 else (None, slice(None))], (R, C)).astype(np.int64)
    rows = bounds.astype(np.int64)[:, None]
    operator = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[kind]
    for single in EDGES:
        seen = np.full((R, C), -1, np.int32)
        compare(bounds, seen, single=int(single), KIND=kind, AXIS=axis, device=device)
        one, other = operator(place, rows), operator(place, int(single))
        second = other if kind in ("<", ">") else place < int(single)
        np.testing.assert_array_equal(seen, one + 2 * other + 4 * (one & second))


def test_places_are_constants():
    """What each element's bound is compared with is a number, whatever the thread."""
    ptx = compare.compile("sm_90a", KIND="<").variant().ptx
    numbers = set(re.findall(r"mov\.b32 (%r\d+), -?\d+;", ptx))
    places = [line.rstrip(";").split(", ")[-1] for line in ptx.splitlines() if "setp.gt.s32" in line]
    assert len(places) > 64 and all(place.isdigit() or place in numbers for place in places)
