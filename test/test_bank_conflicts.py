"""No shared access of these kernels has a bank conflict: as the compiler proves it, and as the simulator counts them, which knows nothing of layouts."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import Array, bf16, f32
from tesela.dialects import async_copy
from tesela.dialects.target import get_target
from tesela.lowering.pipeline import lower_to
from tesela.passes.base import PassContext
from tesela.passes.conversions import conversion_of
from tesela.passes.explain_layouts import BankAccess, buffer_accesses, staged_accesses
from tesela.passes.infer_layouts import InferLayouts, Solved
from tesela.passes.plan_dataflow import PlanDataflow
from tesela.runtime.specialize import Facts, contract_of, kernels_of, specialize, usual_facts
from tesela.simulator import settings
from tesela.simulator.profile import Profile, bank_wavefronts

M, N, K = tesela.dims("M N K")
BF16 = ml_dtypes.bfloat16


def gemm(a_rows: bool, b_rows: bool):
    """C = A·B with either operand contiguous along either dimension."""

    @tesela.kernel
    def nn(A: Array[bf16, M, K], B: Array[bf16, K, N], C: Array[f32, M, N]):
        i, j = tesela.grid(tesela.ceildiv(M, 128), tesela.ceildiv(N, 128))
        acc = tesela.zeros((128, 128), f32)
        for k in tesela.range(0, K, 64):
            acc += A[i * 128 : i * 128 + 128, k : k + 64] @ B[k : k + 64, j * 128 : j * 128 + 128]
        C[i * 128 : i * 128 + 128, j * 128 : j * 128 + 128] = acc

    @tesela.kernel
    def nt(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
        i, j = tesela.grid(tesela.ceildiv(M, 128), tesela.ceildiv(N, 128))
        acc = tesela.zeros((128, 128), f32)
        for k in tesela.range(0, K, 64):
            acc += A[i * 128 : i * 128 + 128, k : k + 64] @ B[j * 128 : j * 128 + 128, k : k + 64].T
        C[i * 128 : i * 128 + 128, j * 128 : j * 128 + 128] = acc

    @tesela.kernel
    def tn(A: Array[bf16, K, M], B: Array[bf16, K, N], C: Array[f32, M, N]):
        i, j = tesela.grid(tesela.ceildiv(M, 128), tesela.ceildiv(N, 128))
        acc = tesela.zeros((128, 128), f32)
        for k in tesela.range(0, K, 64):
            acc += A[k : k + 64, i * 128 : i * 128 + 128].T @ B[k : k + 64, j * 128 : j * 128 + 128]
        C[i * 128 : i * 128 + 128, j * 128 : j * 128 + 128] = acc

    @tesela.kernel
    def tt(A: Array[bf16, K, M], B: Array[bf16, N, K], C: Array[f32, M, N]):
        i, j = tesela.grid(tesela.ceildiv(M, 128), tesela.ceildiv(N, 128))
        acc = tesela.zeros((128, 128), f32)
        for k in tesela.range(0, K, 64):
            acc += A[k : k + 64, i * 128 : i * 128 + 128].T @ B[j * 128 : j * 128 + 128, k : k + 64].T
        C[i * 128 : i * 128 + 128, j * 128 : j * 128 + 128] = acc

    kernel = {(True, True): nn, (True, False): nt, (False, True): tn, (False, False): tt}[a_rows, b_rows]
    a = np.ones((128, 64) if a_rows else (64, 128), BF16)
    b = np.ones((64, 128) if b_rows else (128, 64), BF16)
    return kernel, {"A": a, "B": b, "C": np.zeros((128, 128), np.float32)}, {}


def kernels() -> Iterator[tuple[str, object]]:
    for a_rows in (True, False):
        for b_rows in (True, False):
            yield f"gemm {'rows' if a_rows else 'columns'} {'rows' if b_rows else 'columns'}", lambda a=a_rows, b=b_rows: gemm(a, b)
    yield "attention", attention
    yield "transpose f32", lambda: transpose(np.float32, f32)
    yield "transpose bf16", lambda: transpose(BF16, bf16)
    yield "softmax", lambda: rows("softmax")
    yield "layer norm", lambda: rows("layer_norm")


def attention():
    from tesela.kernels.attention import attention

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 64, 128)).astype(BF16) for _ in range(3))
    return attention, {"q": q, "k": k, "v": v, "out": np.zeros_like(q), "scale": 0.1}, {"T": bf16}


def transpose(dtype: type, element):
    from tesela.kernels.elementwise import transpose

    x = np.arange(64 * 64).reshape(64, 64).astype(dtype)
    return transpose, {"x": x, "y": np.zeros_like(x)}, {"T": element}


def rows(name: str):
    from tesela.kernels import rows

    x = np.random.default_rng(0).standard_normal((2, 1024)).astype(BF16)
    arguments = {"x": x, "y": np.zeros_like(x)}
    if name == "layer_norm":
        arguments |= {"weight": np.ones(1024, BF16), "bias": np.zeros(1024, BF16)}
    return getattr(rows, name), arguments, {"T": bf16}


KERNELS = dict(kernels())


def solved(function, constants, target: str) -> Solved:
    module = function.trace(**constants)
    (name,) = kernels_of(module)
    module = specialize(module, name, usual_facts(contract_of(kernels_of(module)[name])))
    context = PassContext(get_target(target))
    PlanDataflow().run(module, context)
    inference = InferLayouts()
    inference.run(module, context)
    return inference.solved[0]


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", KERNELS)
def test_no_bank_conflicts(name, target):
    function, arguments, constants = KERNELS[name]()
    found = solved(function, constants, target)
    accesses = [access for op in found.made.channels for access in buffer_accesses(found, op)]
    assert [str(access) for access in accesses if access.conflicts] == []
    exchanged = [plan for op in found.converts if (plan := conversion_of(op, target == "sm_90a")).by == "shared"]
    assert all(plan.exchange is None or plan.exchange.conflicts == 0 for plan in exchanged)
    profile = Profile()
    with settings(observer=profile):
        kernel = tesela.compile(function, target, **constants)
        kernel(**arguments, device="sim")
    counted = [line for line in profile.lines if line.shared_requests or line.async_shared_bytes]
    staged = staged_stores(function, constants, target, kernel.last.facts)
    assert [str(access) for access in staged if access.conflicts] == []
    assert bool(staged) == (target == "sm_90a" and name.startswith(("gemm", "attention")))
    assert [(line.name, line.conflicts, line.opcodes) for line in counted if line.conflicts] == []
    if accesses or exchanged:
        assert counted


def staged_stores(function, constants, target: str, facts: Facts) -> list[BankAccess]:
    """How the kernel writes into the buffers that TMA stores from."""
    module = function.trace(**constants)
    (name,) = kernels_of(module)
    module = specialize(module, name, facts)
    lower_to(module, "schedule", target)
    return [access for access, _ in staged_accesses(kernels_of(module)[name], get_target(target))]


def test_the_count_sees_what_the_compiler_predicts():
    """With a buffer pinned to rows without a swizzle, both find conflicts, and the same number."""

    @tesela.kernel
    def plain(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
        i, j = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
        acc = tesela.zeros((64, 64), f32)
        for k in tesela.range(0, K, 64):
            a = tesela.pin(A[i * 64 : i * 64 + 64, k : k + 64], shared="[64:64], [64:1]")
            acc += a @ B[j * 64 : j * 64 + 64, k : k + 64].T
        C[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = acc

    found = solved(plain, {}, "sm_80")
    (first, _) = found.made.channels
    assert isinstance(first, async_copy.ChannelOp)
    read = next(access for access in buffer_accesses(found, first) if access.what.startswith("ldmatrix"))
    assert read.conflicts == 28 and "2^5 words lie in 2^2 banks" in read.proof
    profile = Profile()
    arrays = {"A": np.ones((64, 64), BF16), "B": np.ones((64, 64), BF16), "C": np.zeros((64, 64), np.float32)}
    with settings(observer=profile):
        tesela.compile(plain, "sm_80")(**arrays, device="sim")
    (line,) = [line for line in profile.lines if line.conflicts]
    # four warps read 64x64 elements each by ldmatrix.x4, or 16 rows of them, in instructions of 256 elements
    a_reads = line.conflicts // 28
    assert line.conflicts % 28 == 0 and a_reads in (16, 32, 64)


@pytest.mark.parametrize(
    ("size", "place", "wavefronts", "least"),
    [
        (16, lambda lane: 16 * lane, 4, 4),  # all banks in each quarter
        (16, lambda lane: 0 * lane, 2, 2),  # a word that all want: pairs of quarters
        (16, lambda lane: lane // 4 * 16, 2, 2),  # 2 words of 16 bytes in a quarter, 4 in a pair
        (16, lambda lane: lane // 8 * 128, 4, 4),  # quarters that want other words of the same banks
        (8, lambda lane: 8 * lane, 2, 2),
        (8, lambda lane: lane // 2 * 8, 1, 1),  # 16 words in all
        (8, lambda lane: lane % 16 * 8, 1, 1),  # both halves want the same
        (8, lambda lane: lane // 16 * 128, 2, 2),
        (8, lambda lane: 16 * lane, 4, 2),  # every second pair of banks: 2 ways
        (4, lambda lane: 8 * lane, 2, 1),
    ],
)
def test_wide_accesses_join_parts(size, place, wavefronts, least):
    """Halves, or pairs of quarters, pass together where all of their words lie in different banks."""
    lanes = np.arange(32)
    assert bank_wavefronts(place(lanes), size, lanes // 32, lanes) == (1, wavefronts, least)
