"""The simulator's number formats against exact fractions and against ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tesela.simulator import numbers
from tesela.simulator.directed import directed, to_odd

F32 = st.integers(0, 2**32 - 1).map(lambda b: float(np.uint32(b).view(np.float32)))
FINITE = F32.filter(math.isfinite)
# Numbers whose sums and products meet ties and cancellation: few bits, near exponents.
NEAR = st.builds(
    lambda m, e, s: float(np.float32(s * m * 2.0**e)),
    st.integers(0, 2**24),
    st.integers(-30, 6),
    st.sampled_from((1, -1)),
)
TINY = st.builds(lambda m, e: float(np.float32(m * 2.0**e)), st.integers(-(2**24), 2**24), st.integers(-149, -60))


def nearest(exact: Fraction, fmt: numbers.FloatFormat, mode: str = "rn") -> int:
    """The bits of an exact number rounded to a format, from the definition: the neighbours are found by bisection over bits."""
    magnitude = abs(exact)

    def value(code: int) -> Fraction:
        return Fraction(float(numbers.decode(np.array([code << fmt.padding], np.uint32), fmt.name)[0]))

    low, high = (
        0,
        fmt.largest + 1,
    )  # value(low) <= magnitude < value(high), where `high` past the largest stands for overflow
    if magnitude >= value(fmt.largest):
        low = fmt.largest
    while low < fmt.largest and high - low > 1:
        middle = (low + high) // 2
        if middle <= fmt.largest and value(middle) <= magnitude:
            low = middle
        else:
            high = middle
    below = value(low)
    above = value(low + 1) if low < fmt.largest else below + (below - value(low - 1))
    negative = exact < 0
    if magnitude == below:
        code = low
    elif mode == "rn":
        gap = (magnitude - below) - (above - magnitude)
        code = low + (gap > 0 or (gap == 0 and low % 2 == 1))
    elif mode == "rna":
        code = low + ((magnitude - below) >= (above - magnitude))
    else:
        code = low + ((mode == "rp" and not negative) or (mode == "rm" and negative))
    if code > fmt.largest:
        code = fmt.inf if fmt.inf is not None else fmt.largest
    return (code | (int(negative) << (fmt.exponent + fmt.mantissa))) << fmt.padding


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "f32"])
@pytest.mark.parametrize("mode", ["rn", "rna", "rz", "rm", "rp"])
@settings(max_examples=25, deadline=None)
@given(value=st.floats(-70000, 70000, allow_subnormal=True) | st.floats(-1e-4, 1e-4) | NEAR)
def test_encode_rounds_once(name: str, mode: str, value: float) -> None:
    fmt = numbers.FORMATS[name]
    if value == 0 or (abs(value) > 400 and name == "e4m3") or (abs(value) > 50000 and name in ("f16", "e5m2")):
        return
    got = int(numbers.encode(np.array([value]), fmt, mode)[0])
    assert got == nearest(Fraction(value), fmt, mode)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16),
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e5m2", ml_dtypes.float8_e5m2),
        ("f16", np.float16),
    ],
)
def test_formats_agree_with_ml_dtypes(name: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    codes = np.arange(1 << (8 * size), dtype=f"u{size}")
    want = codes.view(dtype).astype(np.float32)
    got = numbers.decode(codes, name)
    assert np.array_equal(got, want, equal_nan=True)
    fmt = numbers.FORMATS[name]
    back = numbers.encode(want[~np.isnan(want)].astype(np.float64), fmt)
    assert np.array_equal(back, codes[~np.isnan(want)])
    finite = want[np.isfinite(want)].astype(np.float64)
    ties = (finite[:-1] + finite[1:]) / 2
    assert np.array_equal(numbers.encode(ties, fmt), ties.astype(dtype).view(f"u{size}"))


def test_overflow_of_conversions() -> None:
    huge = np.array([1e39, -1e39, np.inf, np.nan])
    assert [hex(v) for v in numbers.encode(huge, numbers.E4M3, saturate=True)] == ["0x7e", "0xfe", "0x7e", "0x7f"]
    assert [hex(v) for v in numbers.encode(huge, numbers.E5M2)] == ["0x7c", "0xfc", "0x7c", "0x7f"]
    assert [hex(v) for v in numbers.encode(huge[:2], numbers.F16, "rz")] == ["0x7bff", "0xfbff"]
    assert [hex(v) for v in numbers.encode(huge[:2], numbers.F16, "rp")] == ["0x7c00", "0xfbff"]
    assert [hex(v) for v in numbers.encode(huge[:2], numbers.F16, "rm")] == ["0x7bff", "0xfc00"]


def exact_f32(value: Fraction) -> float:
    bits = nearest(value, numbers.F32)
    return float(np.uint32(bits).view(np.float32))


@settings(max_examples=500, deadline=None)
@given(a=FINITE | NEAR | TINY, b=FINITE | NEAR | TINY, c=FINITE | NEAR | TINY)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return
    got = float(numbers.fma32(*(np.array([v], np.float32) for v in (a, b, c)))[0])
    assert got == exact_f32(exact)


def test_fma_at_ties_in_bulk() -> None:
    """Sums that are a tie of f32 but for a tiny rest, of both signs, and subnormal results."""
    rng = np.random.default_rng(0)
    ulp = 2.0 ** rng.integers(-20, 20, 2000)
    a = (ulp * rng.choice([1 + 2.0**-23, 1 - 2.0**-24, 1.0], 2000)).astype(np.float32)
    b = np.full(2000, 2.0**-24, np.float32)
    c = (ulp * (1 + rng.integers(0, 4, 2000) * 2.0**-23)).astype(np.float32)
    tiny = np.float32(2.0**-100)
    cases = [(a, b, c), (-a, b, c), (a, b, -c), (a * tiny, b, c * np.float32(2.0**-126))]
    for x, y, z in cases:
        got = numbers.fma32(x, y, z)
        want = [exact_f32(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))) for p, q, r in zip(x, y, z)]
        assert np.array_equal(got, np.array(want, np.float32))


def test_fma_of_operands_of_different_shapes() -> None:
    """A product of constants may be one number for all lanes while the sum is not."""
    one, many = np.zeros(1, np.float32), np.zeros(3, np.float32)
    assert numbers.fma32(one, one, many).tolist() == [0, 0, 0]
    assert numbers.fma32(many, one, one).tolist() == [0, 0, 0]


def test_fma_special_values() -> None:
    a, b, c = np.array([[np.inf, np.inf, 0, -1, 3e38], [1, 0, np.inf, 0, 3e38], [-np.inf, 1, 1, 0, 0]], np.float32)
    got = numbers.fma32(a, b, c)
    assert got.view(np.uint32)[:3].tolist() == [0x7FFFFFFF] * 3
    assert got[3] == 0 and not np.signbit(got[3]) and got[4] == np.inf


@settings(max_examples=200, deadline=None)
@given(
    a=st.floats(allow_nan=False, allow_infinity=False),
    b=st.floats(allow_nan=False, allow_infinity=False),
    c=st.floats(-1e10, 1e10),
)
def test_fma64_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return
    try:
        want = exact.numerator / exact.denominator
    except OverflowError:
        want = math.inf if exact > 0 else -math.inf
    assert float(numbers.fma64(*(np.array([v]) for v in (a, b, c)))[0]) == want


OPERATIONS = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "div": (2, lambda a, b: a / b if b else None),
    "rcp": (1, lambda a: 1 / a if a else None),
    "fma": (3, lambda a, b, c: a * b + c),
}


@pytest.mark.parametrize("name", list(OPERATIONS))
@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(-1e100, 1e100), min_size=3, max_size=3))
def test_directed_rounding(name: str, values: list[float]) -> None:
    arity, function = OPERATIONS[name]
    operands = values[:arity]
    exact = function(*(Fraction(v) for v in operands))
    if exact is None or exact == 0 or abs(exact) > Fraction(10) ** 300:
        return
    arrays = [np.array([v]) for v in operands]
    low, high = (float(directed(name, m)(*arrays)[0]) for m in ("rm", "rp"))
    assert Fraction(low) <= exact <= Fraction(high)
    assert low == high or math.nextafter(low, math.inf) == high
    zero = float(directed(name, "rz")(*arrays)[0])
    assert zero == (low if exact > 0 else high)
    odd = to_odd(name)(*arrays)[0]
    if low != high:
        assert odd in (low, high) and int(odd.view(np.int64)) & 1


def test_directed_square_roots_and_special_values() -> None:
    a = np.array([2.0, 4.0, np.inf, -1.0, 0.0, -0.0])
    low, high = directed("sqrt", "rm")(a), directed("sqrt", "rp")(a)
    assert Fraction(low[0]) ** 2 < 2 < Fraction(high[0]) ** 2 and low[1] == high[1] == 2
    assert low[2] == np.inf and np.isnan(low[3]) and np.signbit(low[5])
    one = np.array([1.0])
    assert np.signbit(directed("add", "rm")(one, -one)) and not np.signbit(directed("add", "rp")(one, -one))
    assert np.isinf(directed("div", "rz")(one, 0 * one))


def test_overflow_and_nan_that_are_meant_warn_nobody() -> None:
    """NumPy's warnings would come out of a user's simulated kernel."""
    import warnings

    from tesela.simulator.atomics import UPDATES
    from tesela.simulator.matrix_ops import numbers

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        huge = np.full(1, 3e38, np.float32)
        assert UPDATES["add"](huge, huge, huge)[0] == np.inf
        assert UPDATES["add"](huge * 0 + np.float32(np.inf), -huge * 0 - np.float32(np.inf), huge)[0] != 0
        signalling = {"tf32": 0x7FA00000, "f16": 0x7D00, "bf16": 0x7FA0, "e4m3": 0x7F, "e5m2": 0x7D}
        for kind, bits in signalling.items():
            width = {"tf32": np.uint32, "f16": np.uint16, "bf16": np.uint16}.get(kind, np.uint8)
            assert np.isnan(numbers(np.full(1, bits, width), kind)).all(), kind
