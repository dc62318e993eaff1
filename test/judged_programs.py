"""The programs that the judge must find nothing wrong with: the examples, `tesela.kernels` (also with long
loops), the tile programs of the
tests of dots, and whole kernels in PTX (which are the same for every target).

`PROGRAMS` maps names to functions of a target that run the program once in the simulator, on random arrays. Compiled
kernels are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import test_dots
import test_kernels
import test_simulator_kernels

from tesela import f16
from tesela.frontend.kernel import KernelFunction
from tesela.kernels import attention, elementwise, matrices
from tesela.runtime.kernel import Kernel
from tesela.simulator.block_calls import find_kernel
from tesela.tools.checking import make_arrays
from tesela.tools.sources import compile_source

TARGETS = ("sm_90a", "sm_80")
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.*"))
WITH_ROLES = ("gemm_by_hand",)
"""Examples whose author writes roles: sm_80 has none, so there is nothing to run."""
EXTENT = 136
"""The value of every symbolic dimension, rounded up to what the kernel states it to be a multiple of."""
SMALLER = {"batch": 24, "slices": 8}
"""The same for programs that would otherwise have very many blocks."""
DEEP = 712
"""The extent that dots sum over, where it is symbolic: enough trips to go round every ring of buffers."""


def _call(kernel: Kernel, extent: int = EXTENT) -> None:
    tile = find_kernel(kernel.module, kernel.name)
    rng = np.random.default_rng(0)
    extents = {symbol: DEEP if symbol == "K" else extent for symbol in tile.symbols()}
    dims = {symbol: -(-value // tile.divisor(symbol)) * tile.divisor(symbol) for symbol, value in extents.items()}
    arrays = make_arrays(tile, dims, rng)
    scalars = {name: 1 for name in tile.names if name not in arrays}
    kernel(**arrays, **scalars, device="sim")


@cache
def _example(path: Path, target: str) -> Kernel:
    return compile_source(path, target, None)


@cache
def _tile_program(name: str, target: str) -> Kernel:
    return test_dots.compile(test_dots.PROGRAMS[name], target)


def _run_example(path: Path, target: str) -> None:
    if path.stem not in WITH_ROLES or target != "sm_80":
        _call(_example(path, target))


def _run_tile_program(name: str, target: str) -> None:
    _call(_tile_program(name, target), SMALLER.get(name, EXTENT))


def _run_kernel(call: Callable[[str], object], target: str) -> None:
    """`call(device)` calls kernel functions; they are compiled for the target."""
    usual = KernelFunction.__call__

    def for_the_target(self: KernelFunction, *args: Any, **kwargs: Any) -> Any:
        return usual(self, *args, target=target, **kwargs)

    with patch.object(KernelFunction, "__call__", for_the_target):
        call("sim")


def _deep() -> dict[str, Callable[[str], object]]:
    """Kernels with dots whose loops have many trips; those of `test_kernels` have few."""
    random, long = test_kernels.random, DEEP
    a, w, c = random(130, long, T=f16), random(40, long, T=f16, seed=1), random(40, T=f16, seed=2)
    p, q = random(2, 70, long, T=f16), random(2, long, 24, T=f16, seed=1)
    queries, keys, values = random(1, 80, 64, T=f16), random(1, long, 64, T=f16, seed=1), random(1, long, 64, T=f16, seed=2)
    return {
        "linear": lambda d: matrices.linear(a, w, c, device=d),
        "linear_gelu": lambda d: matrices.linear(a, w, c, ACTIVATION=elementwise.gelu, device=d),
        "batched_gemm": lambda d: matrices.batched_gemm(p, q, device=d),
        **{
            f"attention{'_causal' * causal}": lambda d, causal=causal: attention.attention(
                queries, keys, values, scale=0.1, HEAD=64, CAUSAL=causal, BM=64, BN=64, device=d
            )
            for causal in (False, True)
        },
    }


PROGRAMS: dict[str, Callable[[str], None]] = {
    **{f"examples/{path.name}": partial(_run_example, path) for path in EXAMPLES if path.suffix in (".py", ".mlir")},
    **{f"kernels/{name}": partial(_run_kernel, case[0]) for name, case in test_kernels.CASES.items()},
    **{f"deep/{name}": partial(_run_kernel, call) for name, call in _deep().items()},
    **{f"dots/{name}": partial(_run_tile_program, name) for name in test_dots.PROGRAMS},
    "ptx/vector_add": lambda target: test_simulator_kernels.test_vector_add(1000),
    "ptx/row_softmax": lambda target: test_simulator_kernels.test_row_softmax(20, 781),
    "ptx/gemm_wgmma": lambda target: test_simulator_kernels.test_gemm_wgmma(100, 72, 200, {}),
    "ptx/gemm_mma": lambda target: test_simulator_kernels.test_gemm_mma(50, 40, 72, {}),
}
