"""y = softmax(x) along each row; a block takes one row, in pieces. `python examples/softmax.py` runs it and checks it."""

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
        new_top = max(top, piece.max())
        total = total * tesela.exp(top - new_top) + tesela.exp(piece - new_top).sum()
        top = new_top
    for j in tesela.range(0, N, BLOCK):
        y[row, j : j + BLOCK] = tesela.exp(x[row, j : j + BLOCK] - top) / total
