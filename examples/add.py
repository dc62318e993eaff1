"""z = x + y, elementwise, 1024 elements a block. `python examples/add.py` runs it and checks it."""

import tesela
from tesela import Array, f32

N = tesela.dims("N")


@tesela.kernel
def add(x: Array[f32, N], y: Array[f32, N], z: Array[f32, N], BLOCK: tesela.constexpr = 1024):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    z[i : i + BLOCK] = x[i : i + BLOCK] + y[i : i + BLOCK]


if __name__ == "__main__":
    import numpy as np

    x, y = np.random.default_rng(0).standard_normal((2, 1_000_003)).astype(np.float32)
    z = add(x, y)
    assert (z == x + y).all()
    print(f"add of {x.size} elements: equal to NumPy's")
