"""The programs that the judge must find nothing wrong with: the examples, `tesela.kernels`, the tile programs of the
tests of dots, and whole kernels in PTX (which are the same for every target).

`PROGRAMS` maps names to functions of a target that run the program once in the simulator, on random arrays. Compiled
kernels are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import test_dots
import test_kernels
import test_simulator_kernels

from tesela.runtime.kernel import Kernel
from tesela.simulator.block_calls import find_kernel
from tesela.tools.checking import make_arrays
from tesela.tools.sources import compile_source

TARGETS = ("sm_90a", "sm_80")
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.*"))
EXTENT = 136
"""The value of every symbolic dimension, rounded up to what the kernel states it to be a multiple of."""
SMALLER = {"batch": 24, "slices": 40}
"""The same for programs that would otherwise have very many blocks."""


def _call(kernel: Kernel, extent: int = EXTENT) -> None:
    tile = find_kernel(kernel.module, kernel.name)
    rng = np.random.default_rng(0)
    dims = {symbol: -(-extent // tile.divisor(symbol)) * tile.divisor(symbol) for symbol in tile.symbols()}
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
    _call(_example(path, target))


def _run_tile_program(name: str, target: str) -> None:
    _call(_tile_program(name, target), SMALLER.get(name, EXTENT))


def _run_kernel(name: str, target: str) -> None:
    with patch("tesela.runtime.kernel.DEFAULT_TARGET", target):
        test_kernels.CASES[name][0]("sim")


PROGRAMS: dict[str, Callable[[str], None]] = {
    **{f"examples/{path.name}": partial(_run_example, path) for path in EXAMPLES if path.suffix in (".py", ".mlir")},
    **{f"kernels/{name}": partial(_run_kernel, name) for name in test_kernels.CASES},
    **{f"dots/{name}": partial(_run_tile_program, name) for name in test_dots.PROGRAMS},
    "ptx/vector_add": lambda target: test_simulator_kernels.test_vector_add(1000),
    "ptx/row_softmax": lambda target: test_simulator_kernels.test_row_softmax(20, 781),
    "ptx/gemm_wgmma": lambda target: test_simulator_kernels.test_gemm_wgmma(100, 72, 200, {}),
    "ptx/gemm_mma": lambda target: test_simulator_kernels.test_gemm_mma(50, 40, 72, {}),
}
