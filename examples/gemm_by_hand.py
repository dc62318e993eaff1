"""C = A·Bᵀ with its channels and roles written by hand; examples/gemm.py leaves them to the compiler. `python examples/gemm_by_hand.py` runs it and checks it.

One role asks for tiles, by TMA where the arrays allow it, as far ahead as there are slots; the other multiplies them where they lie. Roles need sm_90.
"""

import tesela
from tesela import Array, bf16, f32

M, N, K = tesela.dims("M N K")


@tesela.kernel
def gemm_by_hand(
    A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N],
    BM: tesela.constexpr = 128, BN: tesela.constexpr = 256, DEPTH: tesela.constexpr = 4,
):  # fmt: skip
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    left = tesela.channel((BM, 64), bf16, depth=DEPTH)
    right = tesela.channel((BN, 64), bf16, depth=DEPTH)
    with tesela.role("multiply", warps=8, registers=240):
        acc = tesela.zeros((BM, BN), f32)
        for _ in tesela.range(0, K, 64):
            with left.get() as a, right.get() as b:
                acc += a @ b.T
        C[m : m + BM, n : n + BN] = acc
    with tesela.role("load", warps=4, registers=24):
        for k in tesela.range(0, K, 64):
            left.put(A[m : m + BM, k : k + 64])
            right.put(B[n : n + BN, k : k + 64])


if __name__ == "__main__":
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((257, 200), (321, 200)))
    c = gemm_by_hand(a, b, target="sm_90a")
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    print("largest error:", np.abs(c - wanted).max())
    assert np.allclose(c, wanted, atol=1e-3)
