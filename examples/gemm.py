"""C = A·Bᵀ: bf16 operands, f32 sums, one block for each tile of C. `python examples/gemm.py` runs it and checks it.

The extents of a tile are left open: each call takes those that are fastest for its arrays.
"""

import tesela
from tesela import Array, bf16, f32

M, N, K = tesela.dims("M N K")

TILES = [(128, 256, None), (256, 128, None), (128, 128, None), (64, 256, 2), (64, 128, 4), (64, 128, None), (64, 64, None)]
"""Rows, columns, and for small tiles how many buffers, so that a multiprocessor holds two blocks."""


@tesela.kernel(variants=[{"BM": rows, "BN": columns} | ({"stages": stages} if stages else {}) for rows, columns, stages in TILES])
def gemm(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], BM: tesela.constexpr, BN: tesela.constexpr):
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, 64):
        acc += A[m : m + BM, k : k + 64] @ B[n : n + BN, k : k + 64].T
    C[m : m + BM, n : n + BN] = acc


if __name__ == "__main__":
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((257, 200), (321, 200)))
    error = abs(gemm(a, b) - a.astype(np.float64) @ b.astype(np.float64).T).max()
    assert error < 1e-3
    print(f"gemm 257×321×200: error {error:.1e}")
