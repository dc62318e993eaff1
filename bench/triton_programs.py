"""Programs in Triton that benchmarks compare with. Importing this needs Triton."""

from __future__ import annotations

from typing import Any

import triton
from triton import language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BM, BN, BK = 128, 128, 64


def add(x, y, z, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(z + offsets, tl.load(x + offsets, inside) + tl.load(y + offsets, inside), inside)


def gemm(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A·Bᵀ by tensor maps."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc)


class Program:
    """A function above, not compiled yet."""

    def __init__(self, function: Any):
        self.kernel = triton.jit(function)

    def add(self, x: Any, y: Any, z: Any) -> None:
        self.kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)

    def gemm(self, a: Any, b: Any, c: Any) -> None:
        """As users call it: the descriptors are made at each call."""
        grid = (triton.cdiv(a.shape[0], BM), triton.cdiv(b.shape[0], BN))
        maps = (
            TensorDescriptor.from_tensor(a, [BM, BK]),
            TensorDescriptor.from_tensor(b, [BN, BK]),
            TensorDescriptor.from_tensor(c, [BM, BN]),
        )
        self.kernel[grid](*maps, a.shape[1], BM=BM, BN=BN, BK=BK, num_warps=8, num_stages=3)
