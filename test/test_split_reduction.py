"""split-reduction: parts of a loop that only adds up, met in tile.sum_parts: right, the same in each run, in any order of blocks, and judged."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import Array, bf16, f32
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_text import read_program
from tesela.passes import parse_pipeline
from tesela.passes.base import PassContext, run_passes
from tesela.runtime import launch
from tesela.runtime.specialize import usual_facts
from tesela.simulator import settings
from tesela.simulator.blocks import run_kernel

M, N, K = tesela.dims("M N K")
SHAPES = ((70, 40), (1, 1), (64, 48))


@tesela.kernel
def gemm(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], BM: tesela.constexpr = 64, BN: tesela.constexpr = 32):
    bm, bn = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    m, n = bm * BM, bn * BN
    acc = tesela.zeros((BM, BN), f32)
    for k in tesela.range(0, K, 32):
        acc += A[m : m + BM, k : k + 32] @ B[n : n + BN, k : k + 32].T
    C[m : m + BM, n : n + BN] = acc


@tesela.kernel
def dual(A: Array[bf16, M, K], B: Array[bf16, K, N], D: Array[bf16, K, N], bias: Array[f32, N], C: Array[f32, M, N]):
    """Two sums, one of which begins with a bias; what follows needs both."""
    bm, bn = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 32))
    m, n = bm * 64, bn * 32
    first = tesela.zeros((64, 32), f32) + bias[n : n + 32]
    second = tesela.zeros((64, 32), f32)
    for k in tesela.range(0, K, 32):
        a = A[m : m + 64, k : k + 32]
        first += a @ B[k : k + 32, n : n + 32]
        second += a @ D[k : k + 32, n : n + 32]
    C[m : m + 64, n : n + 32] = first * second


@tesela.kernel
def column_sums(x: Array[f32, M, N], y: Array[f32, N]):
    """A loop without dots, in a grid of one axis."""
    n = tesela.grid(tesela.ceildiv(N, 64)) * 64
    total = tesela.zeros((64,), f32)
    for m in tesela.range(0, M, 1):
        total += x[m, n : n + 64]
    y[n : n + 64] = total


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng((m, n, k))
    return tuple(random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))


def in_parts(a: np.ndarray, b: np.ndarray, parts: int, step: int) -> np.ndarray:
    """The same in the interpreter: of each range of trips the unsplit program's result, added in order."""
    trips = -(-a.shape[1] // step)
    module, total = gemm.trace(), None
    for part in range(parts):
        first, end = (number * trips // parts * step for number in (part, part + 1))
        c = np.zeros((len(a), len(b)), np.float32)
        run_kernel(module, {"A": np.ascontiguousarray(a[:, first:end]), "B": np.ascontiguousarray(b[:, first:end]), "C": c})
        total = c if total is None else total + c
    return total


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_the_interpreter_adds_parts_in_their_order(parts):
    """Bit for bit, whatever the order of blocks; with fewer trips than parts, and with none."""
    module = gemm.trace()
    run_passes(module, parse_pipeline(f"split-reduction{{parts={parts}}},verify"), PassContext())
    for number, k in enumerate((0, 1, 32, 33, 64, 160, 500)):
        a, b = operands(*SHAPES[number % 3], k)
        c = np.full((len(a), len(b)), np.nan, np.float32)
        run_kernel(module, {"A": a, "B": b, "C": c}, seed=number)
        assert c.tobytes() == in_parts(a, b, parts, 32).tobytes(), k


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("parts", [2, 5])
def test_the_same_in_every_run_and_nothing_to_report(target, parts):
    kernel = gemm.compile(target, pins={"split": parts})
    for number, k in enumerate((0, 16, 32, 96, 160, 416)):
        a, b = operands(*SHAPES[number % 3], k)
        found = []
        for seed in (None, number):
            with settings(races=True, seed=seed):
                found.append(kernel(a, b, device="sim"))
        assert found[0].tobytes() == found[1].tobytes()
        np.testing.assert_allclose(found[0], a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-4)
        plan = kernel.last.plan
        assert plan.grid[2] == str(parts)
        assert (plan.cluster, bool(plan.workspace_bytes)) == (((1, 1, 2), False) if (target, parts) == ("sm_90a", 2) else ((1, 1, 1), True))


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("shape", [(64, 96, 520), (33, 40, 64), (70, 33, 1)])
def test_parts_in_a_cluster_add_up_the_same(parts, shape):
    """Through shared memory bit for bit what they do through the workspace: the order of additions is one."""
    a, b = operands(*shape)
    found = []
    for pins in ({}, {"cluster": 1}):
        kernel = gemm.compile("sm_90a", pins={"split": parts, **pins})
        with settings(races=True, seed=parts):
            found.append(kernel(a, b, device="sim"))
        assert kernel.last.plan.cluster == ((1, 1, 2) if not pins and parts == 2 else (1, 1, 1))
    assert found[0].tobytes() == found[1].tobytes()


def with_a_fault(kernel, before, after):
    """A kernel with one place of its PTX replaced, and operands for it."""
    variant = kernel.variant(facts=usual_facts(kernel.contract))
    assert variant.ptx.count(before) == 1
    variant.parsed = read_program(variant.ptx.replace(before, after))
    broken = tesela.Kernel(kernel.contract, lambda facts, target: variant, kernel.target)
    a, b = operands(64, 32, 200)
    return broken, a, b


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("barrier.cluster.arrive.aligned", "barrier.cluster.arrive.relaxed.aligned"),
        # The last of the two pairs of barriers keeps a block until its shared memory has been read.
        ("  barrier.cluster.arrive;\n  barrier.cluster.wait;\n", ""),
    ],
)
def test_the_judge_sees_a_missing_order_in_a_cluster(before, after):
    broken, a, b = with_a_fault(gemm.compile("sm_90a", pins={"split": 2}), before, after)
    with settings(races=True, seed=3), pytest.raises(TeselaError, match="race|exit while peer may touch"):
        broken(a, b, device="sim")


@pytest.mark.parametrize("blocks", [1, 3, 132])
def test_in_roles_that_walk_the_grid(blocks, monkeypatch):
    """A producer, results staged for TMA; a block comes to several parts of one point, or of several."""
    monkeypatch.setattr(launch, "SIMULATED_MULTIPROCESSORS", blocks)
    kernel = gemm.compile("sm_90a", BM=128, BN=64, pins={"split": 3})
    a, b = operands(130, 72, 328)
    with settings(races=True, seed=blocks):
        c = kernel(a, b, device="sim")
    assert kernel.last.plan.persistent and kernel.last.plan.threads == 384
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-4)


def test_several_sums_and_an_initial_value():
    random = np.random.default_rng(0)
    a, b, d = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((70, 136), (136, 40), (136, 40)))
    bias = random.standard_normal(40).astype(np.float32)
    kernel = dual.compile("sm_90a", pins={"split": 4})
    with settings(races=True, seed=1):
        c = kernel(a, b, d, bias, device="sim")
    a, b, d = (x.astype(np.float64) for x in (a, b, d))
    np.testing.assert_allclose(c, (a @ b + bias) * (a @ d), rtol=1e-4, atol=1e-3)


def test_a_loop_without_dots():
    x = np.random.default_rng(0).standard_normal((37, 100)).astype(np.float32)
    kernel = column_sums.compile("sm_80", pins={"split": 7})
    with settings(races=True):
        y = kernel(x, device="sim")
    np.testing.assert_allclose(y, x.astype(np.float64).sum(0), atol=1e-4)
    assert kernel.last.plan.grid == ("N ceildiv 64", "7")


def test_counters_are_zero_again():
    """Two launches share a workspace and counters, as launches on one stream do: what the first leaves must do for the second."""
    from tesela.simulator import Memory
    from tesela.simulator import launch as run

    variant = gemm.compile("sm_80", pins={"split": 3}).variant(facts=None)
    a, b = operands(70, 40, 200)
    memory = Memory()
    c, counters = np.zeros((70, 40), np.float32), np.zeros(2 * 2 * 3, np.uint32)
    arrays = {"A": a, "B": b, "C": c, "workspace": np.full(12 * variant.plan.workspace_bytes, 0xFF, np.uint8), "counters": counters}
    at = {name: memory.map_array(array, name) for name, array in arrays.items()}
    dims, strides = {"M": 70, "N": 40, "K": 200}, {"A": 200, "B": 200, "C": 40}
    params = [
        {"dim": dims.get(p.arg), "stride": strides.get(p.arg), "pointer": at.get(p.arg)}.get(p.kind, at.get(p.kind)) for p in variant.plan.params
    ]
    for _ in range(2):
        c[...] = np.nan
        run(variant.program(), "gemm", (2, 2, 3), (variant.plan.threads, 1, 1), params, memory, shared_bytes=variant.plan.shared_bytes)
        assert not counters.any()
        np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-4)


@pytest.mark.parametrize(
    "before, after",
    [
        ("atom.acq_rel.gpu.global.inc.u32", "atom.relaxed.gpu.global.inc.u32"),
        ("atom.acq_rel.gpu.global.inc.u32", "atom.release.gpu.global.inc.u32"),
    ],
)
def test_the_judge_sees_a_missing_order(before, after):
    """What publishes the sums, and what acquires them, is needed."""
    broken, a, b = with_a_fault(gemm.compile("sm_80", pins={"split": 3}), before, after)
    with settings(races=True), pytest.raises(TeselaError, match="race"):
        broken(a, b, device="sim")


def test_what_cannot_be_split_says_why():
    from tesela.kernels import rows

    kernel = rows.softmax.compile("sm_80", T=f32, pins={"split": 4})
    x = np.zeros((2, 8), np.float32)
    kernel(x, device="sim")
    assert any("not split" in message.message for message in kernel.last.messages)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("rank", [1, 3])
def test_what_is_said_before_the_loop_is_said_once(target, rank, capsys):
    """Prints and assertions before the loop, also in a conditional and in a loop of their own; inside the loop; and after it."""

    @tesela.kernel
    def talk(x: Array[f32, N], y: Array[f32, M], R: tesela.constexpr):
        i = tesela.grid(M) if R == 1 else tesela.grid(M, 1, 1)[0]
        print("begin", i)
        if i > 0:
            print("later", i)
        for j in tesela.range(0, 2):
            print("twice", i, j)
        assert i < 1, "one row only"
        total = tesela.zeros((64,), f32)
        for k in tesela.range(0, N, 64):
            print("trip", i, k)
            total += x[k : k + 64]
        s = total.sum()
        print("end", i, s)
        y[i] = s

    x = np.arange(300, dtype=np.float32)
    said = []
    for parts in (1, 4):
        y = np.zeros(2, np.float32)
        kernel = talk.compile(target, pins={"split": parts}, R=rank)
        with settings(races=True, seed=parts), pytest.raises(TeselaError, match="one row only") as caught:
            kernel(x, y, device="sim")
        said.append((sorted(capsys.readouterr().out.splitlines()), str(caught.value).count("one row only"), y.tolist()))
    assert said[0] == said[1] and len(said[0][0]) == 2 + 1 + 4 + 10 + 2
    assert said[0][2] == [x.sum()] * 2
