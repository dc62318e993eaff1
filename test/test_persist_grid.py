"""Blocks that walk the grid themselves: every point once, whatever the grid, the panels and the number of blocks; and equal to one block a point."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from pipelined_programs import GEMM, PROGRAMS
from test_specialize_warps import ORDERS, SPLIT, WHOLE, kernel, simulate

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.dialects.verify import verify_module
from tesela.passes.base import PassContext
from tesela.passes.persist_grid import PersistGrid
from tesela.runtime import launch
from tesela.runtime.compile import compile
from tesela.runtime.specialize import usual_facts
from tesela.simulator.blocks import run_kernel

GRIDS = {
    1: "%i = X",
    2: "%i = X, %j = Y",
    3: "%i = X, %j = Y, %k = Z",
}


def visitor(axes: int) -> str:
    """A kernel that stores into %seen, at each point, 1 + what stood there: the number of visits."""
    names = "ijk"[:axes]
    indices = ", ".join(f"%{name}" for name in names)
    shape = ", ".join("XYZ"[:axes])
    memref = f"memref<{'x'.join('?' * axes)}xi32, strided<[{', '.join(['?'] * (axes - 1) + ['1'])}]>>"
    return f"""tile.kernel @visit(%seen: {memref} [{shape}]) grid({GRIDS[axes]}) {{
  %one = arith.constant 1 : i32
  %v = tile.load %seen[{indices}] : {memref} -> i32
  %w = arith.addi %v, %one : i32
  tile.store %w, %seen[{indices}] : i32, {memref}
}}"""


def persistent(text: str, panel: int):
    module = parse_module(text)
    PersistGrid("always", panel).run(module, PassContext(get_target("sm_90a")))
    verify_module(module)
    return module


@pytest.mark.parametrize("panel", [1, 3, 8])
@pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (8, 3), (9, 5), (15, 2), (17, 1), (3, 4), (5, 3, 2), (11, 1, 3), (0, 4), (4, 0)], ids=str)
def test_every_point_once(shape, panel):
    module = persistent(visitor(len(shape)), panel)
    for blocks in (1, 2, 5, 1000):
        seen = np.zeros(shape, np.int32)
        run_kernel(module, {"seen": seen}, blocks=blocks)
        assert (seen == 1).all(), blocks


def test_every_point_once_in_the_simulator(monkeypatch):
    for axes, shapes in ((1, [(7,), (13,)]), (2, [(9, 5), (17, 2), (1, 8)]), (3, [(9, 2, 3)])):
        made = compile(visitor(axes).replace(") {", ") attributes {persistent = true} {", 1), "sm_90a")
        for shape, blocks in product(shapes, (1, 2, 5, 132)):
            monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
            made = compile(visitor(axes).replace(") {", ") attributes {persistent = true} {", 1), "sm_90a")
            seen = np.zeros(shape, np.int32)
            made(seen, device="sim")
            assert (seen == 1).all(), (shape, blocks)
            assert made.last.plan.persistent


def test_points_come_in_panels():
    """One block visits 10 rows by 3 columns: the first 8 rows column by column, then the last 2."""
    text = """tile.kernel @order(%at: memref<?x?xi64, strided<[?, 1]>> [X, Y], %next: memref<?xi64> [N]) grid(%i = X, %j = Y) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : i64
  %n = tile.load %next[%c0] : memref<?xi64> -> i64
  %m = arith.addi %n, %one : i64
  tile.store %n, %at[%i, %j] : i64, memref<?x?xi64, strided<[?, 1]>>
  tile.store %m, %next[%c0] : i64, memref<?xi64>
}"""
    at, following = np.zeros((10, 3), np.int64), np.zeros(1, np.int64)
    run_kernel(persistent(text, 8), {"at": at, "next": following}, blocks=1)
    assert at[:8].tolist() == [[row, 8 + row, 16 + row] for row in range(8)]
    assert at[8:].tolist() == [[24, 26, 28], [25, 27, 29]]


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_a_block_for_each_point(name, blocks, monkeypatch):
    """In roles; several points a block, with trips that are no multiple of the stages, fewer, and none."""
    program = PROGRAMS[name]
    for number, trips in enumerate((0, 1, 2, 3, 5, 9)):
        wanted = simulate(program, 1, f"{WHOLE}, persistent = false", trips)
        monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
        found = simulate(program, 4, f"{SPLIT}, persistent = true, shares = {blocks} : i64", trips, ORDERS[(number + blocks) % len(ORDERS)])
        assert found == wanted, f"{trips} trips"


@pytest.mark.parametrize("blocks", [1, 3])
def test_without_roles(blocks, monkeypatch):
    """The same in one stream of instructions, whose own pipeline starts again at each point."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
    for name in ("gemm", "written", "stores", "in_place", "siblings"):
        for trips in (0, 1, 4, 7):
            wanted = simulate(PROGRAMS[name], 1, f"{WHOLE}, persistent = false", trips)
            found = simulate(PROGRAMS[name], 3, f"{WHOLE}, persistent = true, shares = {blocks} : i64", trips)
            assert found == wanted, f"{name}, {trips} trips"


def test_attributes_are_booleans():
    made = kernel(GEMM, None, "persistent = 3 : i64")
    with pytest.raises(TeselaError, match="persistent must be true or false, found 3 : i64"):
        made.variant(facts=usual_facts(made.contract))
