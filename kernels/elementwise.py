"""Elementwise kernels, the functions they apply, and rotary position embedding."""

from __future__ import annotations

import tesela
from tesela import Array, bf16, f16, f32

M, N, S, H, HALF = tesela.dims("M N S H HALF")
T = tesela.dtype("T")


@tesela.function
def identity(x):
    return x


@tesela.function
def relu(x):
    return tesela.maximum(x, 0)


@tesela.function
def sigmoid(x):
    return 1 / (1 + tesela.exp(-x))


@tesela.function
def silu(x):
    """x·sigmoid(x) (Elfwing, Uchibe, Doya 2017). Divided by the square of a root: a correctly rounded division has a branch for each element, which costs the
    epilogue of a product more than all else, for the last bit or two."""
    root = tesela.rsqrt(1 + tesela.exp(-x))
    return x * root * root


@tesela.function
def gelu(x):
    """The tanh form of GELU (Hendrycks, Gimpel 2016): ½x(1 + tanh(√(2/π)(x + 0.044715x³))), in five instructions beside tanh."""
    inner = x * tesela.fma(x * x, 0.7978845608028654 * 0.044715, 0.7978845608028654)
    half = 0.5 * x
    return tesela.fma(half, tesela.tanh(inner), half)


@tesela.kernel
def add(x: Array[T, N], y: Array[T, N], z: Array[T, N], BLOCK: tesela.constexpr = 1024):
    """z = x + y."""
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    z[i : i + BLOCK] = x[i : i + BLOCK] + y[i : i + BLOCK]


@tesela.kernel
def gated(
    gate: Array[T, M, N],
    up: Array[T, M, N],
    y: Array[T, M, N],
    ACTIVATION: tesela.constexpr = silu,
    BLOCK: tesela.constexpr = 2048,
):
    """y = ACTIVATION(gate)·up: SwiGLU with silu (Shazeer 2020)."""
    j, row = tesela.grid(tesela.ceildiv(N, BLOCK), M)
    j = j * BLOCK
    activated = ACTIVATION(gate[row, j : j + BLOCK].to(f32))
    y[row, j : j + BLOCK] = (activated * up[row, j : j + BLOCK].to(f32)).to(y.dtype)


@tesela.kernel
def rotary(
    x: Array[T, S, H, 2, HALF],
    cosine: Array[f32, S, HALF],
    sine: Array[f32, S, HALF],
    y: Array[T, S, H, 2, HALF],
    HEADS: tesela.constexpr = 16,
    BLOCK: tesela.constexpr = 64,
):
    """Rotary position embedding (Su et al. 2021) of heads whose two halves are a dimension of their own: each pair of elements
    (x[…, 0, i], x[…, 1, i]) is turned by the angle of its position. A block takes HEADS heads of one position."""
    head, position = tesela.grid(tesela.ceildiv(H, HEADS), S)
    h = head * HEADS
    for i in tesela.range(0, HALF, BLOCK):
        a = x[position, h : h + HEADS, 0, i : i + BLOCK].to(f32)
        b = x[position, h : h + HEADS, 1, i : i + BLOCK].to(f32)
        c, s = cosine[position, i : i + BLOCK], sine[position, i : i + BLOCK]
        y[position, h : h + HEADS, 0, i : i + BLOCK] = (a * c - b * s).to(y.dtype)
        y[position, h : h + HEADS, 1, i : i + BLOCK] = (b * c + a * s).to(y.dtype)


@tesela.kernel
def transpose(x: Array[T, M, N], y: Array[T, N, M], BM: tesela.constexpr = None, BN: tesela.constexpr = None):
    """y = xᵀ. Tiles of 16 or 32 bits have 256 bytes a row either way, where nothing else is stated: shorter ones were read and written more slowly."""
    side = 128 if x.dtype == f16 or x.dtype == bf16 else 64
    BM, BN = BM or side, BN or side
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    y[n : n + BN, m : m + BM] = x[m : m + BM, n : n + BN].T
