"""Blocks that walk the grid themselves: every point once, whatever the grid, the panels and the number of blocks; and equal to one block a point."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from pipelined_programs import GEMM, PROGRAMS
from test_specialize_warps import ORDERS, SPLIT, WHOLE, kernel, simulate

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.dialects.verify import verify_module
from tesela.passes import persist_grid
from tesela.passes.base import PassContext
from tesela.passes.persist_grid import PersistGrid
from tesela.runtime import launch
from tesela.runtime.compile import compile
from tesela.runtime.specialize import usual_facts
from tesela.simulator.blocks import run_kernel

ONES = np.ones(20, np.int32)
GRIDS = {
    1: "%i = X",
    2: "%i = X, %j = Y",
    3: "%i = X, %j = Y, %k = Z",
}


def visitor(axes: int, shared: str = "both") -> str:
    """A kernel that stores into %seen, at each point, 1 + what stood there: the number of visits. It loads from %rows and %columns what points
    of a row and of a column share, so that it walks in panels."""
    names = "ijk"[:axes]
    indices = ", ".join(f"%{name}" for name in names)
    shape = ", ".join("XYZ"[:axes])
    memref = f"memref<{'x'.join('?' * axes)}xi32, strided<[{', '.join(['?'] * (axes - 1) + ['1'])}]>>"
    return f"""tile.kernel @visit(%seen: {memref} [{shape}], %ones: memref<?xi32> [N]) grid({GRIDS[axes]}) {{
  %one = tile.load %ones[{"%i" if shared != "columns" else "%j"}] : memref<?xi32> -> i32
  %other = tile.load %ones[{"%j" if axes > 1 and shared != "rows" else "%i"}] : memref<?xi32> -> i32
  %same = arith.andi %one, %other : i32
  %v = tile.load %seen[{indices}] : {memref} -> i32
  %w = arith.addi %v, %same : i32
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
    for shared in ("both", "rows", "columns") if len(shape) > 1 else ("both",):
        module = persistent(visitor(len(shape), shared), panel)
        for blocks in (1, 2, 5, 1000):
            seen = np.zeros(shape, np.int32)
            run_kernel(module, {"seen": seen, "ones": ONES}, blocks=blocks)
            assert (seen == 1).all(), blocks


def test_every_point_once_in_the_simulator(monkeypatch):
    for axes, shapes in ((1, [(7,), (13,)]), (2, [(9, 5), (17, 2), (1, 8)]), (3, [(9, 2, 3)])):
        made = compile(visitor(axes).replace(") {", ") attributes {persistent = true} {", 1), "sm_90a")
        for shape, blocks in product(shapes, (1, 2, 5, 132)):
            monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
            made = compile(visitor(axes).replace(") {", ") attributes {persistent = true} {", 1), "sm_90a")
            seen = np.zeros(shape, np.int32)
            made(seen, ONES, device="sim")
            assert (seen == 1).all(), (shape, blocks)
            assert made.last.plan.persistent


def order_of_points(row: str, column: str) -> np.ndarray:
    """When one block visits each of 10 rows by 3 columns, if it loads from places that depend on `row` and on `column`."""
    # The counter's place is written so that it depends on both axes: only the two loads of %x say what is shared.
    module = persistent(
        f"""tile.kernel @order(%at: memref<?x?xi64, strided<[?, 1]>> [X, Y], %next: memref<?xi64> [N], %x: memref<?xi64> [L]) grid(%i = X, %j = Y) {{
  %both = arith.addi %i, %j : index
  %zero = arith.subi %both, %both : index
  %r = tile.load %x[{row}] : memref<?xi64> -> i64
  %c = tile.load %x[{column}] : memref<?xi64> -> i64
  %n = tile.load %next[%zero] : memref<?xi64> -> i64
  %s = arith.addi %r, %c : i64
  %m = arith.addi %n, %s : i64
  tile.store %n, %at[%i, %j] : i64, memref<?x?xi64, strided<[?, 1]>>
  tile.store %m, %next[%zero] : i64, memref<?xi64>
}}""",
        8,
    )
    at, following, ones = np.zeros((10, 3), np.int64), np.zeros(1, np.int64), np.ones(20, np.int64)
    run_kernel(module, {"at": at, "next": following, "x": ones}, blocks=1)
    return at // 2


def test_points_come_in_panels():
    """Loads that depend on one axis each: the first 8 rows column by column, then the last 2."""
    at = order_of_points("%i", "%j")
    assert at[:8].tolist() == [[row, 8 + row, 16 + row] for row in range(8)]
    assert at[8:].tolist() == [[24, 26, 28], [25, 27, 29]]


def test_what_one_axis_shares_is_walked_along_it():
    """Along rows all share what depends on the column, along columns what depends on the row; if nothing is shared, rows are fastest."""
    by_rows = [[row + 10 * column for column in range(3)] for row in range(10)]
    assert order_of_points("%both", "%j").tolist() == by_rows
    assert order_of_points("%both", "%i").tolist() == [[3 * row + column for column in range(3)] for row in range(10)]
    assert order_of_points("%both", "%both").tolist() == by_rows


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


@pytest.mark.parametrize("roles", [SPLIT, WHOLE], ids=["roles", "one stream"])
@pytest.mark.parametrize(("tiles", "blocks"), [(1, 5), (2, 3), (5, 1)])
def test_several_tiles_a_block(tiles, blocks, roles, monkeypatch):
    """Five tiles, of which a block takes one, two, or all; trips that are fewer than the slots, as many, and one more, so that tiles begin at different ones."""
    for number, name in enumerate(("gemm", "attention", "written", "last", "inner_dot", "conditional")):
        program = replace(PROGRAMS[name], rows=5 * 64 - 8)
        assert -(-5 // blocks) == tiles
        for trips in (1, 3, 4) if number else (0, 1, 2, 3, 4, 9):
            wanted = simulate(program, 1, f"{WHOLE}, persistent = false, warps = 4 : i64", trips)
            monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
            found = simulate(program, 3, f"{roles}, persistent = true, cluster = 1 : i64, shares = {blocks} : i64", trips, ORDERS[(number + trips) % len(ORDERS)])
            assert found == wanted, f"{name}, {trips} trips"


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


def test_a_grid_of_too_many_points():
    text = """tile.kernel @sums(%a: memref<?xi32> [X], %b: memref<?xi32> [Y], %c: memref<?xi32> [Z]) grid(%i = X, %j = Y)
    attributes {persistent = true} {
  %u = tile.load %a[%i] : memref<?xi32> -> i32
  %w = tile.load %b[%j] : memref<?xi32> -> i32
  %v = arith.addi %u, %w : i32
  tile.store %v, %c[%i] : i32, memref<?xi32>
}"""
    a, b, c = np.zeros(65536, np.int32), np.zeros(32768, np.int32), np.zeros(1, np.int32)
    with pytest.raises(TeselaError, match="the grid has 2147483648 points, but this variant takes at most 2147483647"):
        compile(text, "sm_90a")(a, b, c, device="sim")


UNEVEN = """tile.kernel @uneven(%seen: memref<?x?xi32, strided<[?, 1]>> [X, Y], %x: memref<?x?xi32, strided<[?, 1]>> [Y, N], %order: memref<?xi32> [T], %next: memref<?xi32> [U])
    dims(%N = N) grid(%i = X, %j = Y) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %more = arith.addi %i, %c1 : index
  %end = arith.minsi %N, %more : index
  %sum = scf.for %k = %c0 to %end step %c1 iter_args(%s = %zero) -> (i32) {
    %v = tile.load %x[%j, %k] : memref<?x?xi32, strided<[?, 1]>> -> i32
    %u = arith.addi %s, %v : i32
    scf.yield %u : i32
  }
  %old = tile.load %seen[%i, %j] : memref<?x?xi32, strided<[?, 1]>> -> i32
  %new = arith.addi %old, %one : i32
  tile.store %new, %seen[%i, %j] : i32, memref<?x?xi32, strided<[?, 1]>>
  %place = tile.load %next[%c0] : memref<?xi32> -> i32
  %at = arith.index_cast %place : i32 to index
  %row = arith.index_cast %i : index to i32
  tile.store %row, %order[%at] : i32, memref<?xi32>
  %following = arith.addi %place, %one : i32
  tile.store %following, %next[%c0] : i32, memref<?xi32>
}"""
"""Row i does min(N, i + 1) trips. %order lists the rows in the order in which one block takes the points."""


@pytest.mark.parametrize("shape", [(1, 1), (8, 3), (9, 5), (17, 1), (3, 40), (0, 4), (4, 0)], ids=str)
def test_uneven_points_once_and_the_heaviest_first(shape):
    module = persistent(UNEVEN, 8)
    points = shape[0] * shape[1]
    for blocks in (1, 2, 5, 1000):
        seen, order = np.zeros(shape, np.int32), np.zeros(points + 1, np.int32)
        run_kernel(module, {"seen": seen, "x": np.ones((shape[1], 4), np.int32), "order": order, "next": np.zeros(1, np.int32)}, blocks=blocks)
        assert (seen == 1).all()
        if blocks == 1:
            assert (np.diff(order[:points]) <= 0).all()


def test_blocks_get_equal_shares_of_uneven_points():
    """32 rows of 5 columns, dealt out to 4 blocks: forth and back, so that none has the heaviest of each round. (Block after block is run.)"""
    order = np.full(161, -1, np.int32)
    arrays = {"seen": np.zeros((32, 5), np.int32), "x": np.ones((5, 64), np.int32), "order": order, "next": np.zeros(1, np.int32)}
    run_kernel(persistent(UNEVEN, 8), arrays, blocks=4)
    work = order[:160].reshape(4, 40).sum(axis=1)
    assert work.sum() == 5 * sum(range(32)) and work.max() - work.min() <= 4


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 6, 7])
def test_groups_in_turns_up_and_down(columns, monkeypatch):
    """L2 holds what two columns share: an element of %x, and one of %next. The points of a group are taken together, neighbours never differ by more than a row, also where a group ends, and the
    last group ends with the lightest."""
    monkeypatch.setattr(persist_grid, "L2_SHARED_BYTES", 2 * 8)
    order, seen = np.full(32 * columns + 1, -1, np.int32), np.zeros((32, columns), np.int32)
    arrays = {"seen": seen, "x": np.ones((columns, 64), np.int32), "order": order, "next": np.zeros(1, np.int32)}
    run_kernel(persistent(UNEVEN, 8), arrays, blocks=1)
    rows = order[:-1]
    assert (seen == 1).all() and (np.abs(np.diff(rows)) <= 1).all() and rows[-1] == 0
    turns = np.count_nonzero(np.diff(np.sign(np.diff(rows)[np.diff(rows) != 0])))
    assert turns == -(-columns // 2) - 1


@pytest.mark.parametrize("blocks", [4, 7, 11])
def test_equal_shares_where_groups_and_rounds_do_not_match(blocks, monkeypatch):
    monkeypatch.setattr(persist_grid, "L2_SHARED_BYTES", 2 * 8)
    order = np.full(32 * 6 + 1, -1, np.int32)
    arrays = {"seen": np.zeros((32, 6), np.int32), "x": np.ones((6, 64), np.int32), "order": order, "next": np.zeros(1, np.int32)}
    run_kernel(persistent(UNEVEN, 8), arrays, blocks=blocks)
    shares: list[int] = []
    at = 0
    for block in range(blocks):
        count = len(range(block, 32 * 6, blocks))
        shares.append(int((order[at : at + count] + 1).sum()))
        at += count
    assert at == 32 * 6 and max(shares) <= 1.04 * sum(shares) / blocks


def test_what_differs_along_an_axis():
    from tesela.passes.grid_work import FALLING, LEVEL, RISING, heavier_axis, slope

    def axes(text: str) -> list[int | None]:
        (kernel,) = parse_module(text).body.block.ops
        return [slope(kernel, axis) for axis in range(2)]

    assert axes(UNEVEN) == [RISING, LEVEL]
    (kernel,) = parse_module(UNEVEN).body.block.ops
    assert heavier_axis(kernel) == (0, RISING)
    assert axes(UNEVEN.replace("arith.addi %i, %c1", "arith.subi %c1, %i")) == [FALLING, LEVEL]
    assert axes(UNEVEN.replace("arith.addi %i, %c1", "arith.addi %i, %j")) == [RISING, RISING]
    assert axes(UNEVEN.replace("arith.addi %i, %c1", "arith.remsi %i, %N")) == [None, LEVEL]
    assert axes(UNEVEN.replace("%c0 to %end", "%i to %end")) == [None, LEVEL]
