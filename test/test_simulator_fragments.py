"""The simulator's fragment, swizzle and descriptor maps against the compiler's, which were written apart from each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tesela.dialects.layout import SharedLayout, TVLayout
from tesela.lowering.tile_to_ptx.dots import descriptor_form
from tesela.passes.dot_rules import DotShape, mma_choice, wgmma_choice
from tesela.simulator import fragments, tensor_maps


def coordinates(layout: TVLayout) -> Any:
    """[2, values, threads]"""
    return np.array(
        [[layout.coords(t, v) for t in range(layout.num_threads)] for v in range(layout.num_values)]
    ).transpose(2, 0, 1)


@pytest.mark.parametrize("n", [8, 64, 96, 256])
def test_wgmma_accumulators(n: int) -> None:
    found = wgmma_choice(DotShape((), 64, n, 16), 4, False).acc
    assert np.array_equal(coordinates(found), fragments.warpgroup("d", 32, n))


def test_wgmma_operands_in_registers() -> None:
    found = wgmma_choice(DotShape((), 64, 64, 16), 4, True).lhs
    assert found is not None
    assert np.array_equal(coordinates(found), fragments.warpgroup("a", 16, 16))


def test_mma_fragments() -> None:
    choice = mma_choice(DotShape((), 16, 8, 16), 1, False)
    assert choice.lhs is not None and choice.rhs is not None
    assert np.array_equal(coordinates(choice.acc), fragments.accumulator(8))
    assert np.array_equal(coordinates(choice.lhs), fragments.operand_a(16, 16))
    assert np.array_equal(coordinates(choice.rhs), fragments.operand_b(16, 16))


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_tensor_boxes(span: int) -> None:
    """Where a copy of a box puts 16-byte chunks, against the layout of a buffer as the compiler wants it written."""
    columns = span // 2 or 8
    layout = SharedLayout.tma((32, columns), 2, span, (1, 0))
    chunks = tensor_maps.chunk_places(32 * columns // 8, span, 0).reshape(32, columns // 8)
    for row in range(32):
        for column in range(0, columns, 8):
            assert layout.offset((row, column)) * 2 == chunks[row, column // 8] * 16


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("contiguous", ["k", "mn"])
def test_descriptors(contiguous: str, span: int) -> None:
    """Every element that wgmma reads by the compiler's descriptor, for each step of K, is the one that the layout puts there."""
    extent, k = 64, 64
    order = (1, 0) if contiguous == "k" else (0, 1)
    layout = SharedLayout.tma((extent, k), 2, span, order)
    form = descriptor_form(layout, 0)
    assert form is not None and form.swizzle == span
    for step in range(0, k, 16):
        start = form.at(0, step)
        got = fragments.descriptor_bytes(start, form.leading, form.stride, span, extent, 16, 2, contiguous == "k")
        want = [[2 * layout.offset((row, step + kk)) for kk in range(16)] for row in range(extent)]
        assert np.array_equal(got + (start & ~1023), want)
