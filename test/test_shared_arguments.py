"""Arguments of a launch that share memory: in the simulator they do, too, so that a race through two of them is seen."""

from __future__ import annotations

import numpy as np
import pytest

import tesela
from tesela import Array, TeselaError, f32
from tesela.simulator import Memory, settings

N = tesela.dims("N")


@tesela.kernel
def one_further(x: Array[f32, N], y: Array[f32, N]):
    i = tesela.grid(tesela.ceildiv(N - 1, 128)) * 128
    y[i + 1 : i + 129] = x[i : i + 128]


def test_a_race_through_two_arguments():
    """A block reads by one name what another writes by the other."""
    z = np.arange(1024, dtype=np.float32)
    with settings(races=True):
        one_further(z.copy(), z, device="sim")
        with pytest.raises(TeselaError, match=r"race: warp 3 \(thread 127\) of block \(0, 0, 0\) writes x, y bytes 512..515"):
            one_further(z, z, device="sim")
        with pytest.raises(TeselaError, match=r"race: .* x, y bytes"):
            one_further(z[100:1000], z[:900], device="sim")


def test_neighbours_share_nothing():
    a = np.arange(2048, dtype=np.float32)
    with settings(races=True):
        one_further(a[:1024], a[1024:], device="sim")
    np.testing.assert_array_equal(a[1025:], np.arange(1023, dtype=np.float32))


def test_where_spans_lie():
    """In the order of the arrays, with a gap between what shares nothing; interleaved columns share their span."""
    a, b = np.zeros((8, 8), np.float32), np.zeros(16, np.float32)
    memory = Memory()
    places = memory.map_arrays([a[:, 4:], b[:0], b, a[2:, :4], a[::-1]], ["right", "none", "b", "left", "all"])
    assert [places[i] - places[0] for i in (3, 4)] == [2 * 32 - 16, 7 * 32 - 16]
    assert places[0] < places[1] < places[2] and len(memory.spans()) == 3
    assert memory.find(places[0]).label == "right, left, all" and memory.find(places[2]).label == "b"
    memory.bytes_at(places[3], 4)[:] = 1
    assert a[2, 0] != 0
