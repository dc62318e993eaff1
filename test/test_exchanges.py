"""passes/exchanges.py: the derived swizzles are as good as trial finds, and what goes through them arrives."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import DTYPES, compiled, run_both, same, values

from tesela.dialects.layout import SharedLayout, TVLayout, best_swizzle
from tesela.passes import exchanges
from tesela.passes.exchanges import plan_exchange
from tesela.passes.matrix_access import buffer_access
from tesela.passes.traded_stores import find_trade
from tesela.simulator import settings

ROWS, COLUMNS = (1, 0), (0, 1)


def blocked(shape: tuple[int, ...], order: tuple[int, ...], vector: int, warps: int = 4) -> TVLayout:
    return TVLayout.blocked(shape, 32 * warps, order, vector).normalized()


PAIRS = [
    ((64, 64), 2, 8, 8), ((64, 64), 4, 4, 1), ((128, 64), 2, 8, 4), ((64, 128), 2, 4, 8), ((32, 64), 4, 1, 1), ((32, 32), 4, 4, 4), ((32, 32), 4, 4, 1),
    ((64, 64), 2, 2, 8), ((256, 32), 2, 8, 8),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "size", "a", "b"), PAIRS, ids=str)
def test_transpositions_have_no_conflicts(shape, size, a, b):
    """Rows to columns and back, with the widths that global memory likes: zero, and known without trial."""
    for source, result in ((blocked(shape, ROWS, a), blocked(shape, COLUMNS, b)), (blocked(shape, COLUMNS, b), blocked(shape, ROWS, a))):
        plan = plan_exchange(source, result, shape, size, True)
        assert plan.conflicts == 0 and plan.derived
        assert plan.shared.is_injective() and plan.nbytes == np.prod(shape) * size


def test_where_no_swizzle_will_do():
    """16 lanes a row of 64 f32 on both sides: each wavefront has more high bits than there are bank bits free. So lanes trade stores; or, which the solver
    finds cheaper, there are eight lanes a row, as good for global memory."""
    wide, down = blocked((64, 64), ROWS, 4), blocked((64, 64), COLUMNS, 4)
    plan = plan_exchange(wide, down, (64, 64), 4, True)
    assert plan.conflicts == 0 and plan.write.trade is not None and not plan.derived
    narrow = TVLayout.parse("thread [8:(0,4), 16:(1,0)], value [4:(0,1), 2:(0,32), 4:(16,0)]")
    better = plan_exchange(narrow, down, (64, 64), 4, True)
    assert better.conflicts == 0 and better.write.trade is None and better.cost(4) < plan.cost(4)


def test_the_example_of_the_docstring():
    plan = plan_exchange(blocked((64, 64), ROWS, 8), blocked((64, 64), COLUMNS, 8), (64, 64), 2, True)
    assert str(plan.shared) == "[64:64], [64:1], swizzle<3, 3, 6>" and plan.write.count == 4


@pytest.mark.parametrize("seed", range(12))
def test_as_good_as_all_swizzles(seed):
    """Against trying every swizzle of the same rows, for random layouts of registers."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([16, 32, 64, 128], 2))
    size = int(rng.choice([2, 4]))
    sides = [blocked(shape, (ROWS, COLUMNS)[int(rng.integers(2))], int(rng.choice([1, 2, 4]))) for _ in range(2)]
    plan = plan_exchange(sides[0], sides[1], shape, size, False)
    order = ROWS if plan.shared.normalized().modes[1][0][1] == 1 else COLUMNS
    plain = SharedLayout.row_major(shape, order=order)
    accesses = [(side, size * exchanges.buffer_vector(side, plain, size)) for side in sides]
    _, wavefronts = best_swizzle(plain, accesses, size)
    assert plan.write.count * plan.write.wavefronts + plan.read.count * plan.read.wavefronts <= wavefronts


TRANSPOSE = """tile.kernel @k(%x: memref<?x?x{t}, strided<[?, 1]>> [M, N] {{align = 16}}, %y: memref<?x?x{t}, strided<[?, 1]>> [N, M] {{align = 16}})
    grid(%i = M ceildiv {m}, %j = N ceildiv {n}) attributes {{warps = 4 : i64}} {{
  %m = arith.constant {m} : index
  %n = arith.constant {n} : index
  %a = arith.muli %i, %m : index
  %b = arith.muli %j, %n : index
  %v = tile.load %x[%a, %b] : memref<?x?x{t}, strided<[?, 1]>> -> tensor<{m}x{n}x{t}>
  %w = tile.transpose %v [1, 0] : tensor<{m}x{n}x{t}> -> tensor<{n}x{m}x{t}>
  tile.store %w, %y[%b, %a] : tensor<{n}x{m}x{t}>, memref<?x?x{t}, strided<[?, 1]>>
}}"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "i8", "f16"])
@pytest.mark.parametrize(("m", "n"), [(64, 64), (32, 64), (24, 40), (33, 17)])
def test_transposes_are_right(dtype, m, n):
    text = TRANSPOSE.format(t=dtype, m=m, n=n)
    x = values(dtype, (m // 16 * 16 + 32, n // 16 * 16 + 32), 3)
    y = np.zeros(x.shape[::-1], DTYPES[dtype])
    simulated, interpreted = run_both(text, {"x": x, "y": y}, "sm_90a")
    same(simulated["y"], interpreted["y"])
    same(simulated["y"], np.ascontiguousarray(x.T))


# ---- stores that lanes take in another order ------------------------------------------------------------------------

TRADES = [
    ("thread [4:(0,2), 8:(1,0), 4:(16,0)], value [2:(0,1), 2:(8,0), 4:(0,8)]", SharedLayout.tma((64, 32), 4, 128, (1, 0)), 4),
    ("thread [4:(0,2), 8:(1,0), 8:(16,0)], value [2:(0,1), 2:(8,0), 4:(0,8)]", SharedLayout.tma((128, 32), 4, 128, (1, 0)), 4),
    ("thread [16:(0,4), 8:(1,0)], value [4:(0,1), 8:(8,0)]", SharedLayout.parse("[64:64], [64:1], swizzle<4, 1, 7>"), 4),
]


@pytest.mark.parametrize(("text", "shared", "size"), TRADES)
def test_trades_leave_no_conflict(text, shared, size):
    """Counted by the words of every wavefront, and every element is stored once."""
    layout = TVLayout.parse(text)
    access = buffer_access(layout, shared, size, False, True)
    trade = access.trade
    assert trade is not None and access.conflicts == 0
    vector = layout.num_values // access.count
    lanes = 32 // (vector * size // 4)
    stored = set()
    for first in range(0, layout.num_values, vector):
        for wavefront in range(0, layout.num_threads, lanes):
            words = []
            for thread in range(wavefront, wavefront + lanes):
                value = first ^ (trade.values if thread & trade.lanes else 0)
                for i in range(vector):
                    stored.add((thread, value + i))
                    words.append(shared.offset(layout.coords(thread, value + i)) * size // 4)
            assert len({word % 32 for word in words}) == len(words) == 32
    assert len(stored) == layout.num_threads * layout.num_values


def test_no_trade_where_none_is_needed():
    fragment = TVLayout.parse(TRADES[0][0])
    assert find_trade(fragment, SharedLayout.row_major((64, 32), pad=8), 4, 2) is None
    assert find_trade(fragment, SharedLayout.tma((64, 32), 2, 64, (1, 0)), 2, 1) is None, "halves of words are not traded"


# ---- tiles that shared memory does not hold ---------------------------------------------------------------------------

TURNED = """tile.kernel @k(%x: memref<?x?x{t}, strided<[?, 1]>> [M, N], %y: memref<?x?x{t}, strided<[?, 1]>> [N, M])
    grid(%i = M ceildiv {m}) attributes {{warps = 16 : i64}} {{
  %m = arith.constant {m} : index
  %c0 = arith.constant 0 : index
  %a = arith.muli %i, %m : index
  %v = tile.load %x[%a, %c0] {{layout = #layout.tv<thread [32:(0,1), 16:(1,0)], value [{rows}:(16,0), {columns}:(0,32)]>}} : memref<?x?x{t}, strided<[?, 1]>> -> tensor<{m}x{n}x{t}>
  %w = tile.transpose %v [1, 0] {{layout = #layout.tv<thread [32:(0,1), 16:(1,0)], value [{turned}:(16,0), {across}:(0,32)]>}} : tensor<{m}x{n}x{t}> -> tensor<{n}x{m}x{t}>
  tile.store %w, %y[%c0, %a] : tensor<{n}x{m}x{t}>, memref<?x?x{t}, strided<[?, 1]>>
}}"""


@pytest.mark.parametrize(("dtype", "m", "n", "target", "parts"), [("f32", 256, 192, "sm_80", 2), ("f32", 250, 256, "sm_90a", 2), ("f64", 128, 190, "sm_80", 2)])
def test_tiles_larger_than_shared_memory_go_in_parts(dtype, m, n, target, parts):
    """Right, without races, and said."""
    text = TURNED.format(t=dtype, m=m, n=n, rows=-(-m // 16), columns=-(-n // 32), turned=-(-n // 16), across=-(-m // 32))
    x = values(dtype, (m + 5, n), 3)
    y = np.zeros(x.shape[::-1], DTYPES[dtype])
    with settings(races=True):
        simulated, interpreted = run_both(text, {"x": x, "y": y}, target)
    same(simulated["y"], interpreted["y"])
    same(simulated["y"], np.ascontiguousarray(x.T))
    assert any(f"in {parts} parts" in note for note in compiled(text, target).notes)
