"""Loops, roles and grids that broke schedules of other tile compilers, each for the whole kind: every trip count round the number of stages, roles that have
nothing to do, blocks that take several tiles, results whose rows end inside of what TMA writes at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from pipelined_programs import GEMM, IN_PLACE, LAST, ORDERS, STORES, Program, order

import tesela
from tesela import Array, TeselaError, bf16, f32, i32
from tesela.runtime import launch
from tesela.runtime.assemble import find_ptxas
from tesela.runtime.compile import compile
from tesela.simulator.blocks import run_kernel

M, N, K = tesela.dims("M N K")
needs_ptxas = pytest.mark.skipif(not find_ptxas(), reason="needs ptxas")


@cache
def compiled(program: Program, stages: int | None, attributes: str, target: str):
    return compile(program.text(stages, attributes), target)


def agree(
    program: Program,
    trips: int,
    stages: int,
    attributes: str = "",
    target: str = "sm_90a",
    pad: int = 0,
    which: str | int = "latest",
) -> None:
    """The pipelined program gives what the one with one stage gives, bit for bit, and nothing is reported."""
    found, wanted = (program.arrays(trips, pad=pad) for _ in range(2))
    with order(which, races=True):
        compiled(program, stages, attributes, target)(**found, device="sim")
    compiled(program, 1, "", target)(**wanted, device="sim")
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), (program.name, name, trips, stages)


@pytest.mark.parametrize("program", [IN_PLACE, STORES], ids=lambda program: program.name)
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_tile_is_read_and_then_overwritten(program, target):
    for number, stages in enumerate((2, 3, 4)):
        agree(program, 5, stages, target=target, which=ORDERS[number])


@pytest.mark.parametrize("trips", [0, 1])
@pytest.mark.parametrize("which", ORDERS)
def test_roles_with_one_trip_and_with_none(trips, which):
    agree(GEMM, trips, 4, "warp_specialize = true", which=which)


@tesela.kernel
def product(
    A: Array[bf16, M, K],
    B: Array[bf16, N, K],
    C: Array[f32, M, N],
    BM: tesela.constexpr = 128,
    BN: tesela.constexpr = 32,
):
    i, j = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = i * BM, j * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, 16):
        acc += A[m : m + BM, k : k + 16] @ B[n : n + BN, k : k + 16].T
    C[m : m + BM, n : n + BN] = acc


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("trips", [1, 3, 5])
def test_blocks_that_take_several_tiles(monkeypatch, blocks, trips):
    """Six tiles for one or two blocks; trips that are no multiple of the slots, so that each tile begins at another one."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
    a, b = operands(256, 96, 16 * trips)
    kernel = product.compile(pins={"warps": 8, "stages": 4}, target="sm_90a")
    with order("latest", races=True):
        c = kernel(a, b, device="sim")
    assert kernel.last.plan.persistent
    assert np.array_equal(c, a.astype(np.float64) @ b.astype(np.float64).T)


@pytest.mark.parametrize("trips", [0, 1, 2])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("roles", ["", "warp_specialize = true"])
def test_fewer_trips_than_stages(trips, target, roles):
    agree(GEMM, trips, 4, roles, target)


@pytest.mark.parametrize("trips", [0, 1, 2, 3])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_loaded_tile_is_used_after_the_loop(trips, target):
    agree(LAST, trips, 4, target=target)


@pytest.mark.parametrize("roles", ["", "warp_specialize = true"])
def test_one_operand_by_tma_and_one_by_loads(roles):
    """B's rows are no multiple of 16 bytes apart, so the threads themselves copy it."""
    program = replace(GEMM, name="mixed", align=2)
    kernel = compiled(program, 3, roles, "sm_90a")
    arrays = program.arrays(5)
    whole = np.zeros((arrays["B"].shape[0], arrays["B"].shape[1] + 1), arrays["B"].dtype)
    whole[:, :-1] = arrays["B"]
    arrays["B"] = whole[:, :-1]
    wanted = {name: array.copy() for name, array in arrays.items()}
    with order("latest", races=True):
        kernel(**arrays, device="sim")
    ways = kernel.ir("layout", facts=kernel.last.facts)
    assert 'via "tma"' in ways and ('via "ld"' in ways or 'via "cp.async"' in ways)
    run_kernel(kernel.module, wanted)
    assert np.array_equal(arrays["C"], wanted["C"])


@tesela.kernel
def visits(
    A: Array[bf16, M, K],
    B: Array[bf16, N, K],
    count: Array[i32, M, N],
    BM: tesela.constexpr = 16,
    BN: tesela.constexpr = 16,
):
    """Adds one to each element of the block's tile, and does what makes a kernel hold a multiprocessor."""
    i, j = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = i * BM, j * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, 16):
        acc += A[m : m + BM, k : k + 16] @ B[n : n + BN, k : k + 16].T
    count[m : m + BM, n : n + BN] = count[m : m + BM, n : n + BN] + 1 + (acc * 0).to(i32)


@pytest.mark.parametrize("grid", [(1, 1), (3, 2), (9, 3), (11, 5), (17, 1)])
@pytest.mark.parametrize("blocks", [1, 5])
def test_every_tile_once(monkeypatch, grid, blocks):
    """The order that shares loads goes by groups of eight rows of tiles, which the grid's need not be a multiple of."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
    rows, columns = grid
    a, b = operands(128 * rows, 16 * columns, 16)
    count = np.zeros((128 * rows, 16 * columns), np.int32)
    kernel = visits.compile(BM=128, pins={"warps": 8}, target="sm_90a")
    kernel(a, b, count, device="sim")
    assert kernel.last.plan.persistent
    assert (count == 1).all()


@pytest.mark.parametrize("n", [3, 11, 27, 35, 67])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_nothing_is_written_past_the_edge(n, target):
    """Rows of n elements in rows of 72: a store by TMA that ends inside of 16 bytes would write on to their end."""
    a, b = operands(40, n, 48)
    whole = np.full((40, 72), -7, np.float32)
    kernel = product.compile(BN=64, target=target)
    with order("latest", races=True):
        kernel(a, b, whole[:, :n], device="sim")
    assert np.array_equal(whole[:, :n], a.astype(np.float64) @ b.astype(np.float64).T)
    assert (whole[:, n:] == -7).all()


@tesela.kernel
def wide(x: Array[f32, M, N], y: Array[f32, M, N]):
    """More values for each thread than it has registers."""
    i = tesela.grid(tesela.ceildiv(M, 128)) * 128
    tile = x[i : i + 128, 0:320]
    total = tile.sum(axis=1)
    y[i : i + 128, 0:320] = tile - total[:, None]


@needs_ptxas
def test_spilled_registers_are_told():
    messages = wide.compile(target="sm_90a", pins={"warps": 4}).variant().assembled().messages
    assert [message.severity for message in messages] == ["warning"]
    assert messages[0].message.startswith("kernel wide: registers are spilled to local memory: ")
    strict = tesela.compile(wide, "sm_90a", pins={"warps": 4}, strict=True, cached=False)
    with pytest.raises(TeselaError, match="kernel wide: registers are spilled to local memory"):
        strict.variant().assembled()
