"""passes/shuffles.py: plans by brute force over every thread and word, and as kernels in the simulator, judged."""

from __future__ import annotations

import random

import numpy as np
import pytest
from compiled import DTYPES, compiled, run_both, same, values

from tesela.dialects.layout import Mode, TVLayout, conversion_scope
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.passes.base import PassContext
from tesela.passes.conversions import conversion_of
from tesela.passes.explain_layouts import explain
from tesela.passes.infer_layouts import InferLayouts
from tesela.passes.shuffles import MOST_REGISTERS, Shuffles, plan_shuffles
from tesela.simulator import settings


def run_plan(plan: Shuffles, source: TVLayout, result: TVLayout) -> None:
    """Carries out a plan on the coordinates of the elements, as the code does on registers."""
    threads = source.num_threads

    def held(layout: TVLayout, thread: int) -> list[tuple[tuple[int, ...], ...]]:
        base = layout.thread_coords(thread)
        at = [tuple(a + b for a, b in zip(base, layout.value_coords(v))) for v in range(layout.num_values)]
        return [tuple(at[i : i + plan.per_word]) for i in range(0, len(at), plan.per_word)]

    def swapped(words, exchanges, thread):
        for exchange in exchanges:
            if (thread & exchange.threads).bit_count() % 2:
                words = [words[i ^ exchange.words] for i in range(len(words))]
        return words

    got = [[None] * plan.result_words for _ in range(threads)]
    for at in plan.asides():
        offered = []
        for thread in range(threads):
            have = held(source, thread)
            mine = [have[plan.source_place(i, at)] for i in range(1 << len(plan.source_weights))]
            offered.append(swapped(mine, plan.before, thread))
        for thread in range(threads):
            lane = 0
            for i, column in enumerate(plan.lane_of):
                lane ^= column if thread >> i & 1 else 0
            came = [None] * (1 << len(plan.result_weights))
            for one in plan.rounds:
                read_from = thread & ~31 | (lane ^ one.lanes)
                assert not plan.local(one) or read_from == thread
                came[one.word] = offered[read_from][one.offered]
            for i, word in enumerate(swapped(came, plan.after, thread)):
                got[thread][plan.result_place(i, at)] = word
    for thread in range(threads):
        assert got[thread] == held(result, thread), thread


def dealt(rng: random.Random, shape: tuple[int, ...], warps: int, odd: Mode | None = None, warp_digits: list[Mode] | None = None) -> TVLayout:
    """The digits of a tile's coordinates dealt to lanes, warps and words; `warp_digits`: those of the warps, already taken."""
    rank = len(shape)
    digits = [Mode(2, tuple(1 << i if d == dim else 0 for d in range(rank))) for dim, extent in enumerate(shape) for i in range((extent - 1).bit_length())]
    taken = list(warp_digits or [])
    digits = [digit for digit in digits if digit not in taken]
    rng.shuffle(digits)
    count = min(5, len(digits))
    lanes = digits[:count] + [Mode(2, (0,) * rank)] * (5 - count)
    rest = digits[count:]
    rng.shuffle(lanes)
    if warp_digits is None:
        taken = (rest[: warps.bit_length() - 1] + [Mode(2, (0,) * rank)] * 8)[: warps.bit_length() - 1]
        rest = rest[warps.bit_length() - 1 :]
    if odd is not None:
        rest.insert(rng.randrange(len(rest) + 1), odd)
    return TVLayout((*lanes, *taken), tuple(rest) or (Mode(1, (0,) * rank),))


@pytest.mark.parametrize("seed", range(60))
def test_plans_carry_every_element(seed):
    rng = random.Random(seed)
    shape = tuple(rng.choice((2, 4, 8, 16)) for _ in range(rng.choice((1, 2, 2, 3))))
    warps = rng.choice((1, 1, 2, 4))
    source = dealt(rng, shape, warps)
    result = dealt(rng, shape, warps, warp_digits=list(source.thread[5:]) if rng.random() < 0.8 else None)
    if seed % 3 == 0:
        odd = Mode(rng.choice((3, 5)), tuple(16 if d == 0 else 0 for d in range(len(shape))))
        source, result = (TVLayout(side.thread, (*side.value, odd)) for side in (source, result))
    for bits in (8, 16, 32, 64, 1):
        for a, b in ((source, result), (source.normalized(), result.normalized())):
            plan = plan_shuffles(a, b, bits)
            if plan is None and max(a.num_values, b.num_values) * max(1, bits // 32) > MOST_REGISTERS:
                continue
            assert (plan is not None) == (conversion_scope(a, b) != "block"), "a plan wherever warps have what they need"
            if plan is not None:
                run_plan(plan, a, b)
                assert plan.shuffles <= plan.result_words and plan.cost(bits, warps) > 0


def test_neighbours_of_16_bits_travel_together():
    """Pairs that both sides hold in one register are one word; pairs that come apart are two."""
    source = TVLayout.parse("thread [8:(0,2), 4:(1,0)], value [2:(0,1), 2:(4,0)]")
    result = TVLayout.parse("thread [4:(1,0), 8:(0,2)], value [2:(0,1), 2:(4,0)]")
    plan = plan_shuffles(source, result, 16)
    assert plan is not None and plan.per_word == 2 and plan.shuffles == 2 and not plan.before and not plan.after
    apart = TVLayout.parse("thread [4:(1,0), 8:(0,2)], value [2:(4,0), 2:(0,1)]")
    plan = plan_shuffles(source, apart, 16)
    assert plan is not None and plan.per_word == 1 and plan.shuffles == 4


def test_where_there_is_no_plan():
    rows = TVLayout.parse("thread [8:(0,1), 4:(1,0), 2:(4,0)], value [3:(8,0)]")
    assert plan_shuffles(rows, TVLayout.parse("thread [8:(0,1), 4:(2,0), 2:(1,0)], value [3:(8,0)]"), 32) is None, "it crosses warps"
    assert plan_shuffles(rows, TVLayout.parse("thread [8:(0,1), 2:(2,0), 2:(1,0), 2:(4,0)], value [3:(8,0)]"), 32) is not None
    assert plan_shuffles(rows, TVLayout.parse("thread [8:(0,1), 8:(3,0)], value [3:(1,0)]"), 32) is None, "24 rows in another order: no matrix"


def test_what_a_fragment_becomes():
    """The accumulator of m16n8 as rows of four neighbours: one exchange on either side, and half of the words stay."""
    fragment = TVLayout.parse("thread [4:(0,2), 8:(1,0)], value [2:(0,1), 2:(0,8)]")
    rows = TVLayout.parse("thread [4:(0,4), 8:(1,0)], value [4:(0,1)]")
    plan = plan_shuffles(fragment, rows, 32)
    assert plan is not None
    run_plan(plan, fragment, rows)
    assert plan.shuffles <= 4 and len(plan.before) == len(plan.after) == 1


PINNED = """tile.kernel @k(%x: memref<?x?x{t}, strided<[?, 1]>> [M, N], %y: memref<?x?x{t}, strided<[?, 1]>> [M, N])
    grid(%i = M ceildiv {m}) attributes {{warps = {warps} : i64}} {{
  %m = arith.constant {m} : index
  %c0 = arith.constant 0 : index
  %a = arith.muli %i, %m : index
  %v = tile.load %x[%a, %c0] : memref<?x?x{t}, strided<[?, 1]>> -> tensor<{m}x{n}x{t}>
  %w = tile.transpose %v [1, 0] {{layout = #layout.tv<{first}>}} : tensor<{m}x{n}x{t}> -> tensor<{n}x{m}x{t}>
  %z = tile.transpose %w [1, 0] {{layout = #layout.tv<{second}>}} : tensor<{n}x{m}x{t}> -> tensor<{m}x{n}x{t}>
  tile.store %z, %y[%a, %c0] : tensor<{m}x{n}x{t}>, memref<?x?x{t}, strided<[?, 1]>>
}}"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64", "i16"])
@pytest.mark.parametrize("seed", range(6))
def test_kernels_that_shuffle_are_right(dtype, seed):
    """Between two pinned layouts of random digits; the judge watches."""
    rng = random.Random(seed)
    m, n, warps = rng.choice((8, 16, 13)), rng.choice((8, 16, 32, 15)), rng.choice((1, 2, 4))
    full = tuple(1 << (extent - 1).bit_length() for extent in (m, n))
    source = dealt(rng, full, warps)
    result = dealt(rng, full, warps, warp_digits=list(source.thread[5:]))
    text = PINNED.format(t=dtype, m=m, n=n, warps=warps, first=source.permute((1, 0)).normalized(), second=result.normalized())
    assert plan_shuffles(source, result, 32) is not None
    x = values(dtype, (2 * m - 3, n), 3)
    y = np.zeros(x.shape, DTYPES[dtype])
    with settings(races=True):
        simulated, interpreted = run_both(text, {"x": x, "y": y}, "sm_90a")
    same(simulated["y"], interpreted["y"])
    same(simulated["y"], x)


def test_predicates_are_shuffled_as_words():
    """Tiles of i1 have no bytes to exchange, but words to shuffle."""
    first, second = "thread [8:(0,1), 4:(1,0)], value [2:(4,0)]", "thread [4:(1,0), 8:(0,1)], value [2:(4,0)]"
    text = PINNED.format(t="i1", m=8, n=8, warps=1, first=TVLayout.parse(first).permute((1, 0)), second=second)
    x = np.random.default_rng(0).random((13, 8)) < 0.5
    simulated, interpreted = run_both(text, {"x": x, "y": np.zeros_like(x)}, "sm_80")
    same(simulated["y"], interpreted["y"])
    same(simulated["y"], x)
    code = compiled(text, "sm_80").ptx
    assert "shfl.sync" in code and "st.shared" not in code


def test_the_cheapest_way_is_chosen_and_the_others_are_shown():
    text = PINNED.format(t="f32", m=16, n=16, warps=1, first="thread [4:(2,0), 8:(0,1)], value [2:(1,0), 2:(0,8), 2:(8,0)]", second="thread [4:(0,4), 8:(1,0)], value [4:(0,1), 2:(8,0)]")
    module = parse_module(text)
    inference = InferLayouts()
    context = PassContext(get_target("sm_90a"))
    inference.run(module, context)
    found = next(found for op in inference.solved[0].converts if (found := conversion_of(op, True)).by != "names")
    prices = dict(found.costs)
    assert found.by == "shuffles" and found.cost == prices["shuffles"] <= prices["shared"]
    lines = [text for choice in explain(inference.solved[0])[1] if choice.kind.startswith("conversion") for _, text in choice.lines]
    assert any("in each warp" in line for line in lines)
    assert f"{prices['shuffles']}; by shared memory {prices['shared']}" in lines
