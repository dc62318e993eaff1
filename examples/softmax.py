"""y = softmax(x) along each row; a block takes one row, in pieces; a row of nothing but -inf gives zeros. `python examples/softmax.py` runs it and checks it."""

import math

import tesela
from tesela import Array, f32

M, N = tesela.dims("M N")


@tesela.kernel
def softmax(x: Array[f32, M, N], y: Array[f32, M, N], BLOCK: tesela.constexpr = 1024):
    row = tesela.grid(M)
    top, total = -math.inf, 0.0  # the running maximum, and the running sum of exp(x - top)
    for j in tesela.range(0, N, BLOCK):
        piece = tesela.load(x, (row, j), (BLOCK,), fill=-math.inf)
        new_top = max(top, piece.max(), -1e38)  # finite, so that exp(-inf - new_top) is 0
        total = total * tesela.exp(top - new_top) + tesela.exp(piece - new_top).sum()
        top = new_top
    total = max(total, 1e-30)  # it is at least 1, but for a row of nothing but -inf
    for j in tesela.range(0, N, BLOCK):
        y[row, j : j + BLOCK] = tesela.exp(x[row, j : j + BLOCK] - top) / total


if __name__ == "__main__":
    import numpy as np

    x = np.random.default_rng(0).standard_normal((1823, 781)).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    error = abs(softmax(x) - exact / exact.sum(axis=1, keepdims=True)).max()
    assert error < 1e-6
    print(f"softmax of {x.shape[0]} rows of {x.shape[1]}: error {error:.1e}")
