"""Inline PTX: for each element at every level, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from everywhere import everywhere

import tesela
from tesela import Array, TeselaError, bf16, f16, f32, i1, i8, i32, i64, ui8
from tesela.dialects.inline_ptx import InlineError, read_inline

M, N = tesela.dims("M N")
T = tesela.dtype("T")


@tesela.kernel
def products(x: Array[f32, N], y: Array[f32, N], z: Array[f32, N], w: Array[f32, N]):
    i = tesela.grid(tesela.ceildiv(N, 64)) * 64
    a, b = x[i : i + 64], y[i : i + 64]
    total, least = tesela.inline_ptx(
        """
        mul.rn.f32 %square, $2, $2;   // a register of its own
        fma.rn.f32 $0, %square, $3, 0f3F800000;
        min.f32 $1, $2, $3;
        """,
        a, b, result=(f32, f32),
    )  # fmt: skip
    z[i : i + 64], w[i : i + 64] = total, least


def test_several_instructions_and_results():
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(100).astype(np.float32) for _ in range(2))
    for found in everywhere(products, {"x": x, "y": y, "z": np.zeros_like(x), "w": np.zeros_like(x)}):
        np.testing.assert_allclose(found["z"], x * x * y + 1, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["w"], np.minimum(x, y))


@tesela.kernel
def of_any_type(x: Array[T, M, N], y: Array[T, M, N], TEXT: tesela.constexpr):
    y[0:5, 0:32] = tesela.inline_ptx(TEXT, x[0:5, 0:32], 3, result=x.dtype)


TEXTS = {
    f16: (np.float16, "add.rn.f16 $0, $1, $1;"),
    bf16: (ml_dtypes.bfloat16, "neg.bf16 $0, $1;"),
    i8: (np.int8, "add.s16 $0, $1, 1;"),
    i32: (np.int32, "popc.b32 $0, $1;"),
    i64: (np.int64, "not.b64 $0, $1;"),
    i1: (np.bool_, "not.pred $0, $1;"),
}
EXPECTED = {
    f16: lambda x: x + x,
    bf16: lambda x: -x,
    i8: lambda x: x + np.int8(1),
    i32: lambda x: np.bitwise_count(x) if hasattr(np, "bitwise_count") else np.array([[bin(v).count("1") for v in row] for row in x]),
    i64: lambda x: ~x,
    i1: lambda x: ~x,
}


@pytest.mark.parametrize("dtype", TEXTS)
def test_every_element_type(dtype):
    kind, text = TEXTS[dtype]
    x = np.random.default_rng(1).integers(0, 2 if dtype is i1 else 50, (5, 32)).astype(kind)
    if dtype is i8:
        x[0, :4] = -128, 127, -1, 0
    for found in everywhere(of_any_type, {"x": x, "y": np.zeros_like(x)}, {"T": dtype, "TEXT": text}):
        np.testing.assert_array_equal(found["y"], EXPECTED[dtype](x))


@tesela.kernel
def scalars(x: Array[i32, N], y: Array[i32, N]):
    i = tesela.grid(N)
    y[i] = tesela.inline_ptx("clz.b32 $0, $1;", x[i], result=i32)


def test_scalars():
    x = np.array([0, 1, 255, -1], np.int32)
    for found in everywhere(scalars, {"x": x, "y": np.zeros(4, np.int32)}):
        assert list(found["y"]) == [32, 31, 24, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ex2.approx.f33 $0, $1;", "unknown PTX instruction 'ex2.approx.f33': the table has no such form of 'ex2'; nearest: ..."),
        ("ld.global.b32 $0, [$1];", "'ld.global.b32' has effects (read:global)"),
        ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "'shfl.sync.bfly.b32' has effects (convergent)"),
        ("add.rn.f32 $0, $1;", "'add.rn.f32 $0, $1': 'add.rn.f32' takes d:b32, s:b32, s:b32, found 2 operands"),
        ("add.rn.f64 $0, $1, $1;", "'add.rn.f64 $0, $1, $1': $1 is b32, s:b64 is required"),
        ("cvt.s64.s32 $0, $1;", "'cvt.s64.s32 $0, $1': $0 is b32, d:b64 is required"),
        ("add.rn.f32 $0, $1, $7;", "'add.rn.f32 $0, $1, $7': there is no $7"),
        ("add.rn.f32 $0, $1, %t;", "'add.rn.f32 $0, $1, %t': %t is read before it is written"),
        ("add.rn.f32 $0, $1, $0;", "'add.rn.f32 $0, $1, $0': $0 is read before it is written"),
        ("add.rn.f32 $1, $1, $1;", "'add.rn.f32 $1, $1, $1': $1 cannot be written"),
        ("add.rn.f32 $0, $1, 1.0;", "'add.rn.f32 $0, $1, 1.0': 1.0 is no operand"),
        ("add.rn.f32 %t, $1, $1;", "the text never writes the result $0"),
        ("", "the text never writes the result $0"),
        ("@p add.rn.f32 $0, $1, $1;", "'@p add.rn.f32 $0, $1, $1' is no plain instruction"),
        (".reg .b32 t;", "'.reg .b32 t' is no plain instruction"),
    ],
)
def test_refused_texts(text, message):
    with pytest.raises(InlineError) as caught:
        read_inline(text, ["b32"], ["b32"])
    head, dots, _ = message.partition("...")
    assert caught.value.message == message if not dots else caught.value.message.startswith(head)


@tesela.kernel
def maxima(x: Array[f32, N], y: Array[f32, N]):
    y[0:32] = tesela.inline_ptx("tanh.approx.bf16x2 $0, $1;", x[0:32].to(f32), result=f32)


def test_instructions_of_a_later_target():
    x = np.zeros(32, np.float32)
    with pytest.raises(TeselaError, match="tanh.approx.bf16x2 needs sm_90, the kernel's target is sm_80"):
        maxima(x, x.copy(), target="sm_80", device="sim")


@tesela.kernel
def bytes_of(x: Array[T, 64, 64], y: Array[T, 64, 64], z: Array[i32, 64]):
    """Four elements in a register of a thread, and scalars."""
    y[0:64, 0:64] = tesela.inline_ptx("shr.s16 $0, $1, 1;", x[0:64, 0:64], result=x.dtype)
    z[0] = tesela.inline_ptx("shr.s16 $0, $1, 1;", x[0, 1], result=x.dtype).to(i32)


@pytest.mark.parametrize(("dtype", "kind"), [(i8, np.int8), (ui8, np.uint8)])
def test_elements_of_eight_bits(dtype, kind):
    x = np.arange(4096).astype(kind).reshape(64, 64)
    x[0, 1] = 200 if kind is np.uint8 else -56
    arrays = {"x": x, "y": np.zeros_like(x), "z": np.zeros(64, np.int32)}
    for found in everywhere(bytes_of, arrays, {"T": dtype}):
        np.testing.assert_array_equal(found["y"], x >> 1)
        assert found["z"][0] == int(x[0, 1]) >> 1


def larger_by_ptx(left, right):
    return tesela.inline_ptx("max.s32 $0, $1, $2;", left, right, result=i32)


@tesela.kernel
def largest_so_far(x: Array[i32, M, N], y: Array[i32, M, N], z: Array[i32, M]):
    t = x[0:4, 0:33]
    y[0:4, 0:33] = tesela.associative_scan(larger_by_ptx, t, 1, reverse=True)
    z[0:4] = tesela.reduce(larger_by_ptx, t, 1)


def test_in_a_function_that_combines():
    x = np.random.default_rng(0).integers(-99, 99, (4, 33)).astype(np.int32)
    for found in everywhere(largest_so_far, {"x": x, "y": np.zeros_like(x), "z": np.zeros(4, np.int32)}):
        np.testing.assert_array_equal(found["z"], x.max(axis=1))
        np.testing.assert_array_equal(found["y"], np.maximum.accumulate(x[:, ::-1], axis=1)[:, ::-1])
