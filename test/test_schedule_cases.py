"""Loops, roles and grids that broke schedules of other tile compilers, each for the whole kind: every trip count round the number of stages, roles that have
nothing to do, blocks that take several tiles, results whose rows end inside of what TMA writes at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from pipelined_programs import (
    ATTENTION,
    DUAL,
    GEMM,
    IN_PLACE,
    LAST,
    NESTED,
    ORDERS,
    STORES,
    TRIANGLE,
    WRITTEN,
    Program,
    order,
)

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


IN_ROLES = "warp_specialize = true"


def in_roles(program: Program, stages: int = 4) -> bool:
    """Whether the arrays' TMA lets the program be split in roles: one with K = 0 is not, since no tensor map has an extent of 0."""
    made = compiled(program, stages, IN_ROLES, "sm_90a")
    return "async.roles" in made.ir("schedule", facts=made.last.facts)


@pytest.mark.parametrize("program", [IN_PLACE, STORES, WRITTEN], ids=lambda program: program.name)
@pytest.mark.parametrize(("target", "roles"), [("sm_90a", ""), ("sm_90a", IN_ROLES), ("sm_80", "")])
def test_a_tile_is_read_and_then_overwritten(program, target, roles):
    """In the array it comes from, in another one, and in shared memory by the threads themselves."""
    for number, stages in enumerate((2, 3, 4)):
        for trips in (1, stages, 5):
            agree(program, trips, stages, roles, target, which=ORDERS[number])


@pytest.mark.parametrize("program", [GEMM, DUAL, ATTENTION, WRITTEN, LAST], ids=lambda program: program.name)
@pytest.mark.parametrize("which", ORDERS)
def test_roles_with_one_trip(program, which):
    agree(program, 1, 4, IN_ROLES, which=which)
    assert in_roles(program)


@pytest.mark.parametrize("which", ORDERS)
@pytest.mark.parametrize("rows", [40, 72, 264])
def test_roles_without_trips(rows, which):
    """The first tile has none although its operands are there; the second has one, the fifth four. And operands of no elements."""
    program = replace(TRIANGLE, name="none", rows=rows)
    for stages in (1, 4):
        agree(program, 5, stages, IN_ROLES, which=which)
    assert in_roles(program)
    agree(GEMM, 0, 4, IN_ROLES, which=which)


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
@pytest.mark.parametrize(("trips", "stages"), [(1, 4), (3, 4), (5, 4), (5, 3), (3, 2), (7, 5)])
def test_blocks_that_take_several_tiles(monkeypatch, blocks, trips, stages):
    """Six tiles for one or two blocks; trips that are no multiple of the slots, so that each tile begins at another one."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
    a, b = operands(256, 96, 16 * trips)
    kernel = product.compile(pins={"warps": 8, "stages": stages}, target="sm_90a")
    with order("latest", races=True):
        c = kernel(a, b, device="sim")
    assert kernel.last.plan.persistent
    assert np.array_equal(c, a.astype(np.float64) @ b.astype(np.float64).T)


@pytest.mark.parametrize(("trips", "stages"), [(0, 4), (1, 4), (2, 4), (3, 4), (1, 3), (2, 3), (1, 2), (4, 6)])
@pytest.mark.parametrize(("target", "roles"), [("sm_90a", ""), ("sm_90a", IN_ROLES), ("sm_80", "")])
def test_fewer_trips_than_stages(trips, stages, target, roles):
    for program in (GEMM, ATTENTION, NESTED):
        agree(program, trips, stages, roles, target)


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
@pytest.mark.parametrize(("target", "roles"), [("sm_90a", ""), ("sm_90a", IN_ROLES), ("sm_80", "")])
def test_a_loaded_tile_is_used_after_the_loop(trips, target, roles):
    for stages in (2, 4):
        agree(LAST, trips, stages, roles, target)


@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("roles", ["", IN_ROLES])
def test_one_operand_by_tma_and_one_by_loads(roles, trips, operand):
    """The operand's rows are no multiple of 16 bytes apart, so the threads themselves copy it."""
    program = replace(GEMM, name="mixed", align=2)
    kernel = compiled(program, 3, roles, "sm_90a")
    arrays = program.arrays(trips)
    whole = np.zeros((arrays[operand].shape[0], arrays[operand].shape[1] + 1), arrays[operand].dtype)
    whole[:, :-1] = arrays[operand]
    arrays[operand] = whole[:, :-1]
    wanted = {name: array.copy() for name, array in arrays.items()}
    with order("latest", races=True):
        kernel(**arrays, device="sim")
    ways = kernel.ir("layout", facts=kernel.last.facts)
    assert 'via "tma"' in ways and ('via "ld"' in ways or 'via "cp.async"' in ways)
    if roles:
        assert "async.roles" in kernel.ir("schedule", facts=kernel.last.facts)
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
@pytest.mark.parametrize(("target", "warps"), [("sm_90a", 4), ("sm_90a", 8), ("sm_80", 4)])
def test_nothing_is_written_past_the_edge(n, target, warps):
    """Rows of n elements in rows of 72: a store by TMA that ends inside of 16 bytes would write on to their end."""
    a, b = operands(40, n, 48)
    whole = np.full((40, 72), -7, np.float32)
    kernel = product.compile(BN=64, target=target, pins={"warps": warps})  # of 8 warps, results leave by TMA where they can
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
