"""The kernels of `tesela.kernels` against NumPy: by the block interpreter over awkward sizes, and compiled, on the default device."""

from __future__ import annotations

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela import bf16, f8E4M3FN, f16, f32
from tesela.dialects.verify import verify_module
from tesela.kernels import attention, elementwise, fused, matrices, recurrent, rows
from tesela.simulator.blocks import run_kernel
from tesela.simulator.launcher import settings

TYPES = {f32: np.float32, f16: np.float16, bf16: ml_dtypes.bfloat16}
EPSILON = {f32: 2.0**-23, f16: 2.0**-10, bf16: 2.0**-7}
"""The spacing of numbers at 1; a result rounded once is off by half of it."""


def random(*shape, T=f32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[T])


def run(kernel, arrays, scalars=None, **constants):
    module = kernel.trace(**constants)
    verify_module(module)
    run_kernel(module, arrays, scalars)


def close(found, exact, T, factor=2.0):
    """Whether results of type T are the exact ones, but for rounding."""
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=factor * EPSILON[T], atol=factor * EPSILON[T])


def exact(array):
    return array.astype(np.float64)


@pytest.mark.parametrize("T", TYPES)
@pytest.mark.parametrize("n", [0, 1, 63, 200])
def test_add(T, n):
    x, y = random(n, T=T), random(n, T=T, seed=1)
    z = np.zeros_like(x)
    run(elementwise.add, {"x": x, "y": y, "z": z}, T=T, BLOCK=64)
    np.testing.assert_array_equal(z, x + y)


@pytest.mark.parametrize("T", TYPES)
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", "sigmoid"])
def test_gated(T, activation):
    gate, up = random(3, 70, T=T), random(3, 70, T=T, seed=1)
    y = np.zeros_like(gate)
    run(elementwise.gated, {"gate": gate, "up": up, "y": y}, T=T, ACTIVATION=getattr(elementwise, activation), BLOCK=64)
    close(y, ACTIVATIONS[activation](exact(gate)) * exact(up), T, 8)


ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("half", [16, 40])
def test_rotary(half):
    x = random(5, 2, 2, half)
    angles = np.arange(5)[:, None] * 100.0 ** (-np.arange(half) / half)
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    y = np.zeros_like(x)
    run(elementwise.rotary, {"x": x, "cosine": cosine, "sine": sine, "y": y}, T=f32, BLOCK=32)
    turned = (x[:, :, 0] + 1j * x[:, :, 1]) * (cosine + 1j * sine)[:, None]
    close(y, np.stack([turned.real, turned.imag], axis=2), f32, 4)


@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (17, 33)])
def test_transpose(shape):
    x = random(*shape, T=bf16)
    y = np.zeros(shape[::-1], TYPES[bf16])
    run(elementwise.transpose, {"x": x, "y": y}, T=bf16, BM=16, BN=32)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("T", TYPES)
@pytest.mark.parametrize("n", [1, 64, 150])
def test_softmax(T, n):
    x = random(4, n, T=T) * TYPES[T](3)
    x[1] = -np.inf
    x[2, : n // 2] = -np.inf
    y = np.full_like(x, np.nan)
    run(rows.softmax, {"x": x, "y": y}, T=T, BLOCK=64)
    assert not y[1].any()
    e = np.exp(exact(np.delete(x, 1, 0)))
    close(np.delete(y, 1, 0), e / e.sum(1, keepdims=True), T, 4)


@pytest.mark.parametrize("T", TYPES)
@pytest.mark.parametrize("n", [1, 63, 64, 150])
def test_layer_norm(T, n):
    x = random(3, n, T=T) + TYPES[T](20)
    weight, bias = random(n, T=T, seed=1), random(n, T=T, seed=2)
    y = np.zeros_like(x)
    run(rows.layer_norm, {"x": x, "weight": weight, "bias": bias, "y": y}, T=T, BLOCK=64)
    centred = exact(x) - exact(x).mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    close(y, normal * exact(weight) + exact(bias), T, 64 if T is f32 else 4)


@pytest.mark.parametrize("T", TYPES)
@pytest.mark.parametrize("n", [1, 64, 150])
def test_rms_norm(T, n):
    x, residual, weight = random(3, n, T=T), random(3, n, T=T, seed=1), random(n, T=T, seed=2)
    y, total = np.zeros_like(x), np.zeros_like(x)
    run(rows.rms_norm, {"x": x, "residual": residual, "weight": weight, "y": y, "total": total}, T=T, BLOCK=64)
    np.testing.assert_array_equal(total, (x.astype(np.float32) + residual.astype(np.float32)).astype(TYPES[T]))
    close(y, exact(total) / np.sqrt((exact(total) ** 2).mean(1, keepdims=True) + 1e-6) * exact(weight), T, 8)


@pytest.mark.parametrize("n", [0, 1, 64, 150])
def test_row_reductions(n):
    x = random(5, n)
    if n > 64:
        x[0, 100] = x[0, 120] = 9
        x[1, 70] = np.nan
        x[2] = -np.inf
    total, where = np.zeros(5, np.float32), np.zeros(5, np.int32)
    run(rows.row_argmax, {"x": x, "y": where}, T=f32, BLOCK=64)
    assert list(where) == ([-1] * 5 if n == 0 else list(x.argmax(1)))
    finite = np.nan_to_num(x, nan=0, neginf=0)
    run(rows.row_sum, {"x": finite, "y": total}, T=f32, BLOCK=64)
    close(total, exact(finite).sum(1), f32, 200)


@pytest.mark.parametrize("rows_of_a_block", [2, 4])
def test_several_rows_of_a_block(rows_of_a_block):
    x = random(5, 150)
    weight, bias = random(150, seed=1), random(150, seed=2)
    y, total, sums = np.zeros_like(x), np.zeros_like(x), np.zeros(5, np.float32)
    sizes = {"T": f32, "BLOCK": 64, "ROWS": rows_of_a_block}
    run(rows.softmax, {"x": x, "y": y}, **sizes)
    close(y, softmax_by_numpy(x), f32, 4)
    run(rows.layer_norm, {"x": x, "weight": weight, "bias": bias, "y": y}, **sizes)
    close(y, normalised(x) * weight + bias, f32, 16)
    run(rows.rms_norm, {"x": x, "residual": x, "weight": weight, "y": y, "total": total}, **sizes)
    close(y, 2 * exact(x) / np.sqrt((4 * exact(x) ** 2).mean(1, keepdims=True) + 1e-6) * weight, f32, 8)
    run(rows.row_sum, {"x": x, "y": sums}, **sizes)
    close(sums, exact(x).sum(1), f32, 200)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (40, 33), (17, 64)])
@pytest.mark.parametrize("parts", [1, 3])
def test_column_sum(shape, parts):
    x = random(*shape, T=bf16)
    y, total = np.full((parts, shape[1]), np.nan, np.float32), np.full((1, shape[1]), np.nan, np.float32)
    run(rows.column_sum, {"x": x, "y": y}, T=bf16, BM=8, BN=32)
    run(rows.column_sum, {"x": y, "y": total}, T=f32, BM=8, BN=32)
    close(total[0], exact(x).sum(0), f32, 200)


@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (5, 200), (2, 0)])
@pytest.mark.parametrize("sizes", [{"BLOCK": 64}, {"BLOCK": 64, "ROWS": 2}, {"BLOCK": 256}], ids=str)
def test_cumsum(shape, sizes):
    x = random(*shape, T=f32)
    y = np.full(shape, np.nan, np.float32)
    run(rows.cumsum, {"x": x, "y": y}, T=f32, **sizes)
    np.testing.assert_allclose(y, exact(x).cumsum(1), rtol=1e-5, atol=1e-5)


def recurrence_by_numpy(a, b):
    h = np.zeros_like(exact(b))
    for t in range(b.shape[1]):
        h[:, t] = exact(b)[:, t] + (exact(a)[:, t] * h[:, t - 1] if t else 0)
    return h


def selective_scan_by_numpy(x, delta, rates, enter, leave, skip):
    x, delta, rates, enter, leave = (exact(part) for part in (x, delta, rates, enter, leave))
    decay = np.exp(delta[..., None] * rates)
    drive = (delta * x)[..., None] * enter[:, :, None, :]
    h = recurrence_by_numpy(decay, drive)
    return (h * leave[:, :, None, :]).sum(-1) + skip * x


def selective_scan_inputs(batch, time, channels, states, T=f32):
    rng = np.random.default_rng(7)
    delta = rng.uniform(0.01, 0.3, (batch, time, channels)).astype(TYPES[T])
    rates = -rng.uniform(0.5, 2, (channels, states)).astype(np.float32)
    enter, leave = (random(batch, time, states, T=T, seed=seed) for seed in (1, 2))
    return random(batch, time, channels, T=T), delta, rates, enter, leave, random(channels, seed=3)


@pytest.mark.parametrize("T", TYPES)
@pytest.mark.parametrize("time", [0, 1, 15, 16, 17, 50])
def test_selective_scan(T, time):
    arrays = selective_scan_inputs(2, time, 11, 5, T)
    y = np.full((2, time, 11), np.nan, TYPES[T])
    names = ("x", "delta", "A", "input", "output", "skip")
    run(recurrent.selective_scan, {**dict(zip(names, arrays)), "y": y}, T=T, STATES=8, BD=4)
    close(y, selective_scan_by_numpy(*arrays), T, 60 if T is f32 else 4)


@pytest.mark.parametrize("time", [0, 1, 31, 32, 33, 100])
def test_linear_recurrence(time):
    a, b = np.random.default_rng(8).uniform(0.5, 1, (2, time, 9)).astype(np.float32), random(2, time, 9)
    h = np.full_like(b, np.nan)
    run(recurrent.linear_recurrence, {"a": a, "b": b, "h": h}, T=f32, TIME=32, BD=8)
    close(h, recurrence_by_numpy(a, b), f32, 60)


@pytest.mark.parametrize("shape", list(itertools.product((1, 33), (16, 20), (0, 8, 50))))
@pytest.mark.parametrize("activation", ["identity", "gelu"])
def test_linear(shape, activation):
    m, n, k = shape
    a, w, bias = random(m, k, T=bf16), random(n, k, T=bf16, seed=1), random(n, T=bf16, seed=2)
    c = np.zeros((m, n), TYPES[bf16])
    run(matrices.linear, {"A": a, "W": w, "bias": bias, "C": c}, T=bf16, ACTIVATION=getattr(elementwise, activation), BM=16, BN=16, BK=16)
    close(c, ACTIVATIONS[activation](exact(a) @ exact(w).T + exact(bias)), bf16)


@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
def test_gemm(order):
    a, b = random(33, 50, T=bf16), random(50, 20, T=bf16, seed=1)
    kernel = {"nn": matrices.gemm, "nt": matrices.gemm_nt, "tn": matrices.gemm_tn}[order]
    stored = {"A": a if order != "tn" else np.ascontiguousarray(a.T), "B": b if order != "nt" else np.ascontiguousarray(b.T)}
    c = np.zeros((33, 20), TYPES[bf16])
    run(kernel, {**stored, "C": c}, T=bf16, BM=16, BN=16, BK=16)
    close(c, exact(a) @ exact(b), bf16)


def test_batched_gemm():
    a, b = random(3, 20, 40, T=f16), random(3, 40, 24, T=f16, seed=1)
    c = np.zeros((3, 20, 24), np.float32)
    run(matrices.batched_gemm, {"A": a, "B": b, "C": c}, T=f16, BM=16, BN=16, BK=16)
    np.testing.assert_allclose(c, exact(a) @ exact(b), rtol=1e-5, atol=1e-5)


SMALL_TILES = [config for config in matrices.TILES if config["BM"] * config["BN"] <= 64 * 128]


@pytest.mark.parametrize(("tile", "split"), [(tile, 1 + number % 3) for number, tile in enumerate(SMALL_TILES)] + [(SMALL_TILES[-1], 2)], ids=str)
def test_products_of_few_rows(tile, split):
    """Results of 1 to 65 rows by each of the small tiles, in one part, as a cluster of parts, and by way of the workspace; sums over tails of K, and over one trip. Nothing to report."""
    extents, chosen = ({key: value for key, value in tile.items() if (key in ("BM", "BN")) == is_extent} for is_extent in (True, False))
    for kernel, order in ((matrices.gemm_nt, "nt"), (matrices.gemm, "nn"), (matrices.gemm_tn, "tn")):
        compiled = kernel.compile("sm_90a", T=bf16, pins={**chosen, "split": split}, **extents)
        for m, n, k in ((1, 72, 200), (17, 64, 64), (65, 136, 416)) if order == "nt" else ((33, 72, 136),):
            a, b = random(m, k, T=bf16), random(k, n, T=bf16, seed=1)
            c = np.full((m, n), np.nan).astype(ml_dtypes.bfloat16)
            stored = (np.ascontiguousarray(a.T) if order == "tn" else a, np.ascontiguousarray(b.T) if order == "nt" else b)
            with settings(races=True, seed=m):
                compiled(*stored, c, device="sim")
            close(c, exact(a) @ exact(b), bf16, 4)


def attention_by_numpy(q, k, v, scale, causal):
    scores = exact(q) @ exact(k).transpose(0, 2, 1) * scale
    rows, columns = scores.shape[1:]
    if causal:
        scores[:, np.arange(columns)[None, :] > np.arange(rows)[:, None] + columns - rows] = -np.inf
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=2, keepdims=True, initial=-1e30))
    total = weights.sum(axis=2, keepdims=True)
    return weights @ exact(v) / np.where(total > 0, total, 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("s", "length", "d"), [(1, 1, 16), (20, 20, 16), (33, 50, 12), (20, 7, 16), (5, 0, 16)])
def test_attention(causal, s, length, d):
    q, k, v = random(2, s, d, T=f16), random(2, length, d, T=f16, seed=1), random(2, length, d, T=f16, seed=2)
    out = np.full_like(q, np.nan)
    arrays = {"q": q, "k": k, "v": v, "out": out}
    run(attention.attention, arrays, {"scale": 0.3}, T=f16, HEAD=16, CAUSAL=causal, BM=16, BN=16)
    close(out, attention_by_numpy(q, k, v, 0.3, causal), f16, 4)


@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan])
def test_attention_takes_positive_scales_only(scale):
    q, k, v = (random(1, 20, 16, T=f16, seed=seed) for seed in range(3))
    out = np.zeros_like(q)
    run(attention.attention, {"q": q, "k": k, "v": v, "out": out}, {"scale": scale}, T=f16, HEAD=16, BM=16, BN=16)
    assert np.isnan(out).all()


def test_attention_with_growing_scores():
    """Each key's score outgrows those before it, by less than what is tolerated and by more: rows are rescaled, and some warps' are not."""
    q, v = np.ones((1, 32, 16), np.float32), random(1, 96, 16, seed=1)
    q[0, 16:] /= 64
    k = np.linspace(0, 12, 96, dtype=np.float32)[None, :, None] * np.ones((1, 1, 16), np.float32)
    q, k, v = (x.astype(np.float16) for x in (q, k, v))
    expected = attention_by_numpy(q, k, v, 0.3, False)
    out = np.zeros_like(q)
    run(attention.attention, {"q": q, "k": k, "v": v, "out": out}, {"scale": 0.3}, T=f16, HEAD=16, BM=16, BN=16)
    close(out, expected, f16, 4)
    for target in ("sm_80", "sm_90a"):
        out[:] = 0
        attention.attention(q, k, v, out, scale=0.3, HEAD=16, BM=32, BN=16, device="sim", target=target)
        close(out, expected, f16, 4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d", "rows", "columns"), [(61, 192, 64), (64, 192, 128), (64, 128, 64)])
def test_attention_by_warpgroups_is_judged(d, rows, columns, causal):
    """Two and three warpgroups, with a producer (rows of 64) and without (of 61, which TMA does not load): trips of every kind, and no report."""

    for s, length in ((70, 0), (rows + 8, columns), (70, 3 * columns + 5)):
        q, k, v = (random(1, n, d, T=bf16, seed=n) for n in (s, length, length))
        out = np.full_like(q, np.nan)
        with settings(races=True):
            attention.attention(q, k, v, out, scale=0.2, HEAD=64, CAUSAL=causal, BM=rows, BN=columns, device="sim", target="sm_90a")
        close(out, attention_by_numpy(q, k, v, 0.2, causal), bf16, 4)


def bias_by_numpy(q, k, v, scale, bias):
    scores = exact(q) @ exact(k).transpose(0, 2, 1) * scale + exact(bias)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True, initial=-1e30))
    return weights @ exact(v) / np.maximum(weights.sum(axis=2, keepdims=True), 1e-30)


@pytest.mark.parametrize("kernel", ["dual_gemm", "scaled_gemm", "biased_attention"])
def test_fused_kernels_are_judged(kernel):
    """Two warpgroups and a producer, through which also go what is scaled and what is added: trips of every kind, and no report."""

    with settings(races=True):
        for k in (0, 64, 200, 328):
            a, b, c = random(130, k, T=bf16), random(136, k, T=bf16, seed=1), random(136, k, T=bf16, seed=2)
            if kernel == "dual_gemm":
                found = fused.dual_gemm(a, b, c, BN=64, device="sim", target="sm_90a")
                close(found, ACTIVATIONS["silu"](exact(a) @ exact(b).T) * (exact(a) @ exact(c).T), bf16, 8)
            elif kernel == "scaled_gemm":
                factors = random(130, seed=3)
                found = fused.scaled_gemm(a, b, factors, BN=128, device="sim", target="sm_90a")
                scaled = (exact(a) * exact(factors)[:, None]).astype(np.float32).astype(a.dtype)
                close(found, exact(scaled) @ exact(b).T, bf16, 8)
            else:
                q, keys, values = random(2, 70, 64, T=bf16), random(2, k, 64, T=bf16, seed=1), random(2, k, 64, T=bf16, seed=2)
                bias = random(2, 70, k, T=bf16, seed=3)
                found = fused.biased_attention(q, keys, values, bias, scale=0.2, HEAD=64, BN=64, device="sim", target="sm_90a")
                close(found, bias_by_numpy(q, keys, values, 0.2, bias), bf16, 8)


@pytest.mark.parametrize("kernel", [fused.tensor_scaled_gemm, fused.tensor_scaled_gemm_f32], ids=lambda kernel: kernel.name)
def test_products_of_8_bit_floats_with_scales_are_judged(kernel):
    """Trips of every kind, and no report; the sum within what N37 allows, of whole numbers exactly."""

    scales = np.float32([0.5]), np.float32([0.25])
    with settings(races=True):
        for k in (0, 128, 400, 656):
            a, b = (np.random.default_rng(seed).integers(-4, 5, (rows, k)).astype(ml_dtypes.float8_e4m3fn) for seed, rows in ((0, 130), (1, 144)))
            c = np.full((130, 144), np.nan, ml_dtypes.bfloat16)
            kernel(a, b, *scales, c, BM=128, BN=128, device="sim", target="sm_90a")
            expected = (exact(a) @ exact(b).T * 0.125).astype(np.float32).astype(c.dtype)
            np.testing.assert_array_equal(c.astype(np.float32), expected.astype(np.float32))


def test_sums_in_f32_are_added_outside_of_the_tensor_cores():
    """By an addition in each trip; the other kernel has none."""
    module = fused.tensor_scaled_gemm_f32.compile("sm_90a", T=f8E4M3FN, U=bf16).ir("schedule")
    loop = module[module.index("scf.for %k") :]
    assert "arith.addf" in loop[: loop.index("scf.yield")]
    module = fused.tensor_scaled_gemm.compile("sm_90a", T=f8E4M3FN, U=bf16, BM=128, BN=256).ir("schedule")
    loop = module[module.index("scf.for %k") :]
    assert "arith.addf" not in loop[: loop.index("scf.yield")]


def test_what_stands_beside_a_dot_is_loaded_ahead():
    """By the producer, like operands: no load but of the factors is left to the threads that compute."""
    for kernel, loads in ((fused.scaled_gemm, 1), (fused.biased_attention, 0)):
        text = kernel.compile("sm_90a", T=bf16).ir("schedule")
        assert text.count("tile.load") == loads and text.count("async.read") > 0


# --- Compiled, on a device ---


def softmax_by_numpy(x):
    e = np.exp(exact(x) - exact(x).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def normalised(x):
    centred = exact(x) - exact(x).mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)


def tensor_scaled(kernel, a, b, device):
    """With scales whose product is one."""
    c = np.zeros((len(a), len(b)), ml_dtypes.bfloat16)
    kernel(a, b, np.float32([0.5]), np.float32([2.0]), c, device=device)
    return c


def sums_of_columns(x, device):
    parts, total = np.zeros((2, x.shape[1]), np.float32), np.zeros((1, x.shape[1]), np.float32)
    rows.column_sum(x, parts, device=device)
    rows.column_sum(parts, total, device=device)
    return total


def compiled_cases():
    """(name, call on a device, exact result, type of the result, error in units of its spacing at 1)."""
    x, wide = random(3, 150), random(3, 1500, T=bf16)
    weight, bias = random(150, seed=1), random(150, seed=2)
    a, w, c = random(130, 72, T=bf16), random(40, 72, T=bf16, seed=1), random(40, T=bf16, seed=2)
    p, q = random(2, 70, 40, T=f16), random(2, 40, 24, T=f16, seed=1)
    queries, keys, values = (random(2, 80, 64, T=f16, seed=s) for s in range(3))
    half = random(5, 40)
    turned = (half + 0j)[:, None] * (half + 1j * half)[:, None]
    total = exact(x) + exact(x)
    rms = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + 1e-6) * weight
    yield "add", lambda d: elementwise.add(wide[0], wide[1], device=d), exact(wide[0] + wide[1]), bf16, 0
    yield "gated", lambda d: elementwise.gated(wide, wide, device=d), ACTIVATIONS["silu"](exact(wide)) * exact(wide), bf16, 2
    pairs = np.stack([half, np.zeros_like(half)], axis=1)[:, None]
    yield "rotary", lambda d: elementwise.rotary(pairs, half, half, device=d), np.stack([turned.real, turned.imag], 2), f32, 4
    yield "transpose", lambda d: elementwise.transpose(wide, device=d), exact(wide).T, bf16, 0
    yield "softmax", lambda d: rows.softmax(wide, device=d), softmax_by_numpy(wide), bf16, 4
    yield "layer_norm", lambda d: rows.layer_norm(x, weight, bias, device=d), normalised(x) * weight + bias, f32, 64
    yield "rms_norm", lambda d: rows.rms_norm(x, x, weight, device=d)[0], rms, f32, 16
    yield "cumsum", lambda d: rows.cumsum(x, device=d), exact(x).cumsum(1), f32, 200
    kept = np.random.default_rng(8).uniform(0.5, 1, (2, 100, 40)).astype(np.float32)
    added = random(2, 100, 40, seed=4)
    yield "linear_recurrence", lambda d: recurrent.linear_recurrence(kept, added, device=d), recurrence_by_numpy(kept, added), f32, 60
    states = selective_scan_inputs(2, 37, 20, 13, bf16)
    yield "selective_scan", lambda d: recurrent.selective_scan(*states, device=d), selective_scan_by_numpy(*states), bf16, 4
    yield "row_sum", lambda d: rows.row_sum(x, device=d), exact(x).sum(1), f32, 200
    yield "column_sum", lambda d: sums_of_columns(x, d), exact(x).sum(0)[None], f32, 200
    yield "row_argmax", lambda d: rows.row_argmax(wide, device=d), wide.argmax(1), f32, 0
    product = exact(a) @ exact(w).T
    yield "gemm_nt", lambda d: matrices.gemm_nt(a, w, device=d), product, bf16, 2
    yield "gemm", lambda d: matrices.gemm(a, np.ascontiguousarray(w.T), device=d), product, bf16, 2
    yield "gemm_tn", lambda d: matrices.gemm_tn(np.ascontiguousarray(a.T), np.ascontiguousarray(w.T), device=d), product, bf16, 2
    product = product + exact(c)
    yield "linear", lambda d: matrices.linear(a, w, c, device=d), product, bf16, 2
    gelu = lambda d: matrices.linear(a, w, c, ACTIVATION=elementwise.gelu, device=d)  # noqa: E731
    yield "linear_gelu", gelu, ACTIVATIONS["gelu"](product), bf16, 4
    yield "batched_gemm", lambda d: matrices.batched_gemm(p, q, device=d), exact(p) @ exact(q), f32, 200
    gates = ACTIVATIONS["silu"](exact(a) @ exact(w).T) * (exact(a) @ exact(w).T)
    yield "dual_gemm", lambda d: fused.dual_gemm(a, w, w, device=d), gates, bf16, 8
    factors = random(130, seed=3)
    scaled = (exact(a) * exact(factors)[:, None]).astype(np.float32).astype(a.dtype)
    yield "scaled_gemm", lambda d: fused.scaled_gemm(a, w, factors, device=d), exact(scaled) @ exact(w).T, bf16, 4
    narrow = [random(*shape, seed=seed).astype(ml_dtypes.float8_e4m3fn) for shape, seed in (((130, 208), 5), ((96, 208), 6))]
    for kernel in (fused.tensor_scaled_gemm, fused.tensor_scaled_gemm_f32):
        yield kernel.name, lambda d, kernel=kernel: tensor_scaled(kernel, *narrow, d), exact(narrow[0]) @ exact(narrow[1]).T, bf16, 16
    beside = random(2, 80, 80, T=f16, seed=4)
    biased = lambda d: fused.biased_attention(queries, keys, values, beside, scale=0.1, HEAD=64, device=d)  # noqa: E731
    yield "biased_attention", biased, bias_by_numpy(queries, keys, values, 0.1, beside), f16, 4
    for causal in (False, True):
        attend = lambda d, causal=causal: attention.attention(queries, keys, values, scale=0.1, HEAD=64, CAUSAL=causal, device=d)  # noqa: E731
        yield f"attention{'_causal' * causal}", attend, attention_by_numpy(queries, keys, values, 0.1, causal), f16, 4


CASES = {name: case for name, *case in compiled_cases()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_compiled(name, device):
    call, expected, T, factor = CASES[name]
    close(call(device), expected, T, factor)


@pytest.mark.parametrize("source", ("softmax.mlir", "softmax.py"))
def test_example_softmax_of_masked_rows(source: str) -> None:
    """Rows that are masked altogether, or up to the second piece: zeros, and no NaN."""
    from tesela.tools.sources import compile_source

    x = np.full((3, 1500), -np.inf, np.float32)
    x[1, 1200:] = np.arange(300) / 64
    x[2, :7] = 1
    path = Path(__file__).parent.parent / "examples" / source
    found = compile_source(path, "sm_80", None)(x, device="sim")
    assert (found[0] == 0).all()
    exact = np.exp(x[1:].astype(np.float64))
    np.testing.assert_allclose(found[1:], exact / exact.sum(1, keepdims=True), rtol=1e-5)
