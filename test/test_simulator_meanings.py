"""Every meaning of an ordinary instruction against its definition, on values at which the rules differ."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from simulator_harness import FLOATS, evaluate, kernel, pairs, run, same_floats

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_program import Instr, Pair, Reg
from tesela.dialects.ptx_text import read_program
from tesela.simulator.numbers import FORMATS, decode

RNG = np.random.default_rng(7)
WORDS32 = np.concatenate(
    [
        RNG.integers(0, 1 << 32, 60, np.uint32),
        np.array([0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32),
    ]
)
WORDS64 = np.concatenate(
    [
        RNG.integers(0, 1 << 64, 40, np.uint64),
        np.array([0, 1, 63, 64, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0xFFFFFFFF], np.uint64),
    ]
)
WORDS16 = np.concatenate(
    [RNG.integers(0, 1 << 16, 30, np.uint16), np.array([0, 1, 15, 16, 0x7FFF, 0x8000, 0xFFFF], np.uint16)]
)
WORDS = {16: WORDS16, 32: WORDS32, 64: WORDS64}


def integer(value: Any, bits: int, signed: bool) -> int:
    """A word as a Python integer."""
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def check_integers(code: str, type: str, function: Callable[..., int], *inputs: Any, out: int | None = None) -> None:
    """Compares an instruction with a function on Python integers of the type."""
    bits, signed = int(type[1:]), type[0] == "s"
    width = out or bits
    got = evaluate(code, inputs, np.dtype(f"u{width // 8}"))
    for k, value in enumerate(got):
        operands = [integer(array[k], 8 * array.dtype.itemsize, signed) for array in inputs]
        want = function(*operands) & ((1 << width) - 1)
        assert int(value) == want, f"{code} of {operands}: {int(value):#x}, not {want:#x}"


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", list(BINARY))
def test_integer_arithmetic(name: str, type: str) -> None:
    a, b = pairs(WORDS[int(type[1:])])
    check_integers(f"{name}.{type} %d, %a, %b;", type, BINARY[name], a, b)


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_division(type: str) -> None:
    a, b = pairs(WORDS[int(type[1:])])
    check_integers(f"div.{type} %d, %a, %b;", type, lambda x, y: trunc_div(x, y) if y else -1, a, b)
    check_integers(f"rem.{type} %d, %a, %b;", type, lambda x, y: x - trunc_div(x, y) * y if y else -1, a, b)


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_multiplication_and_mad(type: str) -> None:
    bits = int(type[1:])
    a, b = pairs(WORDS[bits])
    c = a[::-1].copy()
    check_integers(f"mul.hi.{type} %d, %a, %b;", type, lambda x, y: (x * y) >> bits, a, b)
    check_integers(f"mad.lo.{type} %d, %a, %b, %c;", type, lambda x, y, z: x * y + z, a, b, c)
    check_integers(f"mad.hi.{type} %d, %a, %b, %c;", type, lambda x, y, z: ((x * y) >> bits) + z, a, b, c)


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32"])
def test_wide_multiplication(type: str) -> None:
    bits = int(type[1:])
    a, b = pairs(WORDS[bits])
    wide = np.resize(WORDS[2 * bits], len(a))
    check_integers(f"mul.wide.{type} %d, %a, %b;", type, lambda x, y: x * y, a, b, out=2 * bits)
    check_integers(f"mad.wide.{type} %d, %a, %b, %c;", type, lambda x, y, z: x * y + z, a, b, wide, out=2 * bits)


def test_saturating_and_unary_integers() -> None:
    a, b = pairs(WORDS32)

    def clamp(value: int) -> int:
        return max(-(1 << 31), min((1 << 31) - 1, value))

    check_integers("add.sat.s32 %d, %a, %b;", "s32", lambda x, y: clamp(x + y), a, b)
    check_integers("sub.sat.s32 %d, %a, %b;", "s32", lambda x, y: clamp(x - y), a, b)
    for type in ("s32", "s64"):
        check_integers(f"neg.{type} %d, %a;", type, lambda x: -x, WORDS[int(type[1:])])
        check_integers(f"abs.{type} %d, %a;", type, abs, WORDS[int(type[1:])])


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    a, b = pairs(WORDS[bits])
    for name, function in {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}.items():
        check_integers(f"{name}.b{bits} %d, %a, %b;", f"u{bits}", function, a, b)
    check_integers(f"not.b{bits} %d, %a;", f"u{bits}", lambda x: ~x, WORDS[bits])


def test_logic_on_predicates() -> None:
    p, q = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert evaluate("and.pred %d, %a, %b;", [p, q], bool).tolist() == [0, 0, 0, 1]
    assert evaluate("or.pred %d, %a, %b;", [p, q], bool).tolist() == [0, 1, 1, 1]
    assert evaluate("xor.pred %d, %a, %b;", [p, q], bool).tolist() == [0, 1, 1, 0]
    assert evaluate("not.pred %d, %a;", [p], bool).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp_their_amount(bits: int) -> None:
    amounts = np.array([0, 1, 5, bits - 1, bits, bits + 1, 255, 0xFFFFFFFF], np.uint32)
    words = WORDS[bits]
    a, n = np.repeat(words, len(amounts)), np.tile(amounts, len(words))
    check_integers(f"shl.b{bits} %d, %a, %b;", f"u{bits}", lambda x, k: x << min(k, bits), a, n)
    check_integers(f"shr.u{bits} %d, %a, %b;", f"u{bits}", lambda x, k: x >> min(k, bits), a, n)
    check_integers(f"shr.s{bits} %d, %a, %b;", f"s{bits}", lambda x, k: x >> min(k % (1 << 32), bits), a, n)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(mode: str) -> None:
    a, n = pairs(WORDS32)
    b = a[::-1].copy()

    def amount(k: int) -> int:
        return k & 31 if mode == "wrap" else min(k, 32)

    check_integers(
        f"shf.l.{mode}.b32 %d, %a, %b, %c;", "u32", lambda x, y, k: ((y << 32 | x) << amount(k)) >> 32, a, b, n
    )
    check_integers(f"shf.r.{mode}.b32 %d, %a, %b, %c;", "u32", lambda x, y, k: (y << 32 | x) >> amount(k), a, b, n)


def test_lop3_is_its_table() -> None:
    a = np.full(4, 0xF0F0F0F0, np.uint32)
    b, c = np.full(4, 0xCCCCCCCC, np.uint32), np.full(4, 0xAAAAAAAA, np.uint32)
    for table in (0x00, 0xEA, 0x96, 0x1B, 0xFF, 0x80):
        got = evaluate(f"lop3.b32 %d, %a, %b, %c, {table};", [a, b, c], np.uint32)
        assert got.tolist() == [table * 0x01010101] * 4


def test_prmt() -> None:
    a, b = np.uint32(0x33221100), np.uint32(0xF7665544)

    def want(selector: int) -> int:
        data = (int(b) << 32) | int(a)
        result = 0
        for byte in range(4):
            nibble = selector >> (4 * byte) & 15
            value = data >> (8 * (nibble & 7)) & 255
            if nibble & 8:
                value = 255 if value & 128 else 0
            result |= value << (8 * byte)
        return result

    selectors = np.array([0x3210, 0x7654, 0x4140, 0x4342, 0xFEDC, 0x0F7B], np.uint32)
    got = evaluate("prmt.b32 %d, %a, %b, %c;", [np.full(6, a), np.full(6, b), selectors], np.uint32)
    assert got.tolist() == [want(int(s)) for s in selectors]


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_bit_fields(type: str) -> None:
    bits = int(type[1:])
    places = np.array([0, 1, 7, 31, 32, 63, 64, 255], np.uint32)  # the ISA leaves larger ones open
    position, length = pairs(places)
    a = np.resize(WORDS[bits], len(position))
    b = np.resize(WORDS[bits][::-1], len(position))

    def extract(x: int, pos: int, size: int) -> int:
        pos, size = pos & 255, size & 255
        sign = 0 if type[0] == "u" or size == 0 else x >> min(pos + size - 1, bits - 1) & 1
        return sum((x >> (pos + i) & 1 if i < size and pos + i < bits else sign) << i for i in range(bits))

    def insert(x: int, y: int, pos: int, size: int) -> int:
        pos, size = pos & 255, size & 255
        for i in range(size):
            if pos + i < bits:
                y = y & ~(1 << (pos + i)) | (x >> i & 1) << (pos + i)
        return y

    check_integers(f"bfe.{type} %d, %a, %b, %c;", type, extract, a, position, length)
    check_integers(f"bfi.b{bits} %d, %a, %b, %c, %e;", f"u{bits}", insert, a, b, position, length)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counting(bits: int) -> None:
    words = WORDS[bits]
    check_integers(f"popc.b{bits} %d, %a;", f"u{bits}", lambda x: x.bit_count(), words, out=32)
    check_integers(f"clz.b{bits} %d, %a;", f"u{bits}", lambda x: bits - x.bit_length(), words, out=32)
    check_integers(f"brev.b{bits} %d, %a;", f"u{bits}", lambda x: int(f"{x:0{bits}b}"[::-1], 2), words)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_comparisons(type: str) -> None:
    bits = int(type[1:])
    a, b = pairs(WORDS[bits][-12:])
    for name, holds in COMPARISONS.items():
        got = evaluate(f"setp.{name}.{type} %d, %a, %b;", [a, b], bool)
        want = [holds(*(integer(v, bits, type[0] == "s") for v in p)) for p in zip(a, b)]
        assert got.tolist() == want, name


@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16"])
def test_float_comparisons(type: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[type]
    with np.errstate(over="ignore"):
        a, b = pairs(FLOATS.astype(dtype))
    nan = np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64))
    x, y = a.astype(np.float64), b.astype(np.float64)
    for name, holds in COMPARISONS.items():
        ordered = np.array([holds(p, q) for p, q in zip(x, y)]) & ~nan
        assert np.array_equal(evaluate(f"setp.{name}.{type} %d, %a, %b;", [a, b], bool), ordered), name
        assert np.array_equal(evaluate(f"setp.{name}u.{type} %d, %a, %b;", [a, b], bool), ordered | nan), name
    assert np.array_equal(evaluate(f"setp.num.{type} %d, %a, %b;", [a, b], bool), ~nan)
    assert np.array_equal(evaluate(f"setp.nan.{type} %d, %a, %b;", [a, b], bool), nan)


def test_setp_with_a_third_operand() -> None:
    a, b = pairs(np.arange(4, dtype=np.uint32))
    third = np.resize(np.array([True, False, False], bool), len(a))
    for joined, combine in (("and", np.logical_and), ("or", np.logical_or)):
        got = evaluate(f"setp.lt.{joined}.s32 %d, %a, %b, %c;", [a, b, third], bool)
        assert np.array_equal(got, combine(a < b, third))


def test_setp_with_two_results() -> None:
    """`p|q`: q is the comparison's negation, then joined. The text has no such form in the table, so the operands are built by hand."""
    text = kernel(
        """setp.gt.and.s32 %p0, %t, 3, %p2; selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 1, 0, %p1;
        mul.wide.u32 %d0, %t, 8; add.s64 %x, %x, %d0; st.global.v2.b32 [%x], {%r0, %r1};""",
        registers="setp.ne.s32 %p2, 1, 0;",
    )
    program = read_program(text)
    instr = next(i for i in program.entries[0].body if isinstance(i, Instr) and i.opcode == "setp.gt.and.s32")
    instr.operands = (Pair(instr.operands[0], Reg("%p1")), *instr.operands[1:])
    out = np.zeros((32, 2), np.uint32)
    run(program, out)
    assert out[:, 0].tolist() == [int(t > 3) for t in range(32)] and out[:, 1].tolist() == [
        int(t <= 3) for t in range(32)
    ]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_selp(bits: int) -> None:
    a = WORDS[bits]
    b, p = a[::-1].copy(), np.resize(np.array([True, False]), len(a))
    got = evaluate(f"selp.b{bits} %d, %a, %b, %c;", [a, b, p], a.dtype)
    assert np.array_equal(got, np.where(p, a, b))


# Floating point


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_float_arithmetic(type: str) -> None:
    dtype = np.float32 if type == "f32" else np.float64
    a, b = pairs(np.concatenate([FLOATS.astype(dtype), RNG.standard_normal(20).astype(dtype)]))
    with np.errstate(all="ignore"):
        wants = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}
    for name, want in wants.items():
        got = evaluate(f"{name}.rn.{type} %d, %a, %b;", [a, b], dtype)
        assert same_floats(got, want), name
        if type == "f32":
            assert (got.view(np.uint32)[np.isnan(got)] == 0x7FFFFFFF).all(), "NaN is not canonical"


def test_fma() -> None:
    a, b = pairs(RNG.standard_normal(24).astype(np.float32))
    c = (-a * b).astype(np.float32)  # cancels all but the rounding of the product
    got = evaluate("fma.rn.f32 %d, %a, %b, %c;", [a, b, c], np.float32)
    want = [float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c)]
    assert np.array_equal(got, np.array(want, np.float32)) and np.count_nonzero(got)
    d, e = pairs(RNG.standard_normal(12))
    f = -d * e
    got = evaluate("fma.rn.f64 %d, %a, %b, %c;", [d, e, f], np.float64)
    assert np.array_equal(got, [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(d, e, f)])


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_modes(mode: str) -> None:
    a, b = pairs(RNG.standard_normal(12).astype(np.float32))
    exacts: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
        "add": lambda x, y: x + y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
    }
    for name, function in exacts.items():
        got = evaluate(f"{name}.{mode}.f32 %d, %a, %b;", [a, b], np.float32)
        for x, y, value in zip(a, b, got):
            exact = function(Fraction(float(x)), Fraction(float(y)))
            side = {"rm": -1, "rp": 1}.get(mode, -1 if exact > 0 else 1)
            error = Fraction(float(value)) - exact
            assert error * side >= 0, f"{name}.{mode} of {x}, {y}"
            assert abs(error) < Fraction(float(np.spacing(np.abs(value)))) * 2


def test_ftz_flushes_operands_and_results() -> None:
    tiny, small = np.float32(1e-40), np.float32(2.0**-126)
    a = np.array([tiny, -tiny, small, small], np.float32)
    b = np.array([tiny, -tiny, -small * np.float32(0.5), small], np.float32)
    with_ftz = evaluate("add.rn.ftz.f32 %d, %a, %b;", [a, b], np.float32)
    assert same_floats(with_ftz, np.array([0, -0.0, small, 2 * small], np.float32))
    half = np.full(4, 0.5, np.float32)
    assert same_floats(
        evaluate("mul.rn.ftz.f32 %d, %a, %b;", [a, half], np.float32), np.array([0, -0.0, 0, 0], np.float32)
    )
    assert evaluate("add.rn.f32 %d, %a, %b;", [a, b], np.float32)[0] == tiny + tiny


def test_saturation_to_the_unit_interval() -> None:
    a = np.array([-1, 0.25, 2, np.nan, -0.0, np.inf], np.float32)
    got = evaluate("add.rn.sat.f32 %d, %a, %b;", [a, np.zeros(6, np.float32)], np.float32)
    assert same_floats(got, np.array([0, 0.25, 1, 0, 0, 1], np.float32))


@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16"])
def test_min_and_max(type: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[type]
    with np.errstate(over="ignore"):
        a, b = pairs(FLOATS.astype(dtype))

    def choose(x: Any, y: Any, largest: bool, any_nan: bool) -> Any:
        p, q = float(x), float(y)
        if p != p or q != q:
            return dtype(np.nan) if any_nan or (p != p and q != q) else (y if p != p else x)
        if p == q == 0:
            negative = np.signbit(p) and np.signbit(q) if largest else np.signbit(p) or np.signbit(q)
            return dtype(-0.0 if negative else 0.0)
        return (max if largest else min)(x, y)

    for largest, name in ((True, "max"), (False, "min")):
        for modifier in ("", ".NaN") if type != "f64" else ("",):
            got = evaluate(f"{name}{modifier}.{type} %d, %a, %b;", [a, b], dtype)
            want = np.array([choose(x, y, largest, bool(modifier)) for x, y in zip(a, b)], dtype)
            assert same_floats(got, want), name + modifier


@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16"])
def test_sign_operations(type: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[type]
    with np.errstate(over="ignore"):
        a = FLOATS.astype(dtype)
    assert same_floats(evaluate(f"abs.{type} %d, %a;", [a], dtype), np.abs(a))
    assert same_floats(evaluate(f"neg.{type} %d, %a;", [a], dtype), -a)
    if type in ("f32", "f64"):
        b = a[::-1].copy()
        assert same_floats(evaluate(f"copysign.{type} %d, %a, %b;", [a, b], dtype), np.copysign(b, a))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "ex2.approx.ftz": np.exp2,
    "ex2.approx": np.exp2,
    "lg2.approx.ftz": np.log2,
    "rcp.approx.ftz": np.reciprocal,
    "rsqrt.approx.ftz": lambda x: 1 / np.sqrt(x),
    "sqrt.approx.ftz": np.sqrt,
    "sqrt.rn": np.sqrt,
    "rcp.rn": np.reciprocal,
    "tanh.approx": np.tanh,
    "sin.approx.ftz": np.sin,
    "cos.approx.ftz": np.cos,
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions(name: str) -> None:
    """The exact value rounded to f32 (inputs are such that f64 functions of NumPy decide the rounding)."""
    a = np.concatenate(
        [
            np.array([0.0, -0.0, 1, 4, np.inf, np.nan, -1, -np.inf], np.float32),
            RNG.standard_normal(200).astype(np.float32) * 8,
        ]
    )
    if name.startswith(("sin", "cos")):
        a = a[np.isfinite(a)]
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](a.astype(np.float64)).astype(np.float32)
    assert same_floats(evaluate(f"{name}.f32 %d, %a;", [a], np.float32), want)


def test_flushed_functions_of_subnormals() -> None:
    a = np.array([1e-40, -1e-40], np.float32)
    assert evaluate("rcp.approx.ftz.f32 %d, %a;", [a], np.float32).tolist() == [np.inf, -np.inf]
    assert evaluate("lg2.approx.ftz.f32 %d, %a;", [np.abs(a)], np.float32)[0] == -np.inf
    low = np.array([-126.0, -127.0, -140.0], np.float32)
    assert evaluate("ex2.approx.ftz.f32 %d, %a;", [low], np.float32).tolist() == [2.0**-126, 0, 0]
    assert evaluate("ex2.approx.f32 %d, %a;", [low], np.float32)[2] == 2.0**-140


# Half precision, alone and in pairs

HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def half_values(type: str) -> Any:
    with np.errstate(over="ignore"):
        return np.concatenate([FLOATS, RNG.standard_normal(12).astype(np.float32)]).astype(HALVES[type])


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_half_arithmetic(type: str) -> None:
    """Rounded once, also where f32 would round already: bf16 products that are subnormal."""
    from test_simulator_numbers import nearest

    dtype = HALVES[type]
    a, b = pairs(half_values(type))
    tiny = RNG.standard_normal((2, 200)).astype(np.float32) * np.float32(2.0**-65 if type == "bf16" else 2.0**-9)
    a, b = np.concatenate([a, tiny[0].astype(dtype)]), np.concatenate([b, tiny[1].astype(dtype)])
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        wants = {"add": x + y, "sub": x - y, "mul": x * y}
    exact = {"add": lambda p, q: p + q, "sub": lambda p, q: p - q, "mul": lambda p, q: p * q}
    for name, want in wants.items():
        got = evaluate(f"{name}.rn.{type} %d, %a, %b;", [a, b], np.uint16)
        for k, value in enumerate(got):
            if not np.isfinite(want[k]) or want[k] == 0:
                assert same_floats(np.array([value]).view(dtype), want[k : k + 1].astype(np.float32).astype(dtype)), (
                    name
                )
            else:
                fraction = exact[name](Fraction(float(x[k])), Fraction(float(y[k])))
                assert int(value) == nearest(fraction, FORMATS[type]), f"{name} of {x[k]}, {y[k]}"


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_half_fma_rounds_once(type: str) -> None:
    from test_simulator_numbers import nearest

    dtype = HALVES[type]
    a, b = pairs(RNG.standard_normal(10).astype(np.float32).astype(dtype))
    c = (-(a.astype(np.float32) * b.astype(np.float32))).astype(dtype)
    got = evaluate(f"fma.rn.{type} %d, %a, %b, %c;", [a, b, c], np.uint16)
    for x, y, z, value in zip(a, b, c, got):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert exact == 0 or int(value) == nearest(exact, FORMATS[type])


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_packed_halves_are_two_halves(type: str) -> None:
    dtype = HALVES[type]
    values = half_values(type)
    a, b = pairs(values)
    c = a[::-1].copy()
    packed = [np.ascontiguousarray(v).view(np.uint32) for v in (a, b, c)]
    for code, arity in (
        ("add.rn", 2), ("sub.rn", 2), ("mul.rn", 2), ("fma.rn", 3), ("fma.rn.relu", 3), ("min", 2), ("max", 2),
        ("max.NaN", 2), ("abs", 1), ("neg", 1), ("ex2.approx" if type == "f16" else "ex2.approx.ftz", 1), ("tanh.approx", 1),
    ):  # fmt: skip
        operands = ", ".join(["%d", "%a", "%b", "%c"][: arity + 1])
        one = evaluate(f"{code}.{type} {operands};", [a, b, c][:arity], dtype)
        two = evaluate(f"{code}.{type}x2 {operands};", packed[:arity], np.uint32)
        assert np.array_equal(two.view(np.uint16), one.view(np.uint16)), code


def test_xorsign_minimum() -> None:
    a, b = pairs(np.array([1, -2, 3, -4], np.float16))
    two = evaluate(
        "min.xorsign.abs.f16x2 %d, %a, %b;", [np.ascontiguousarray(v).view(np.uint32) for v in (a, b)], np.uint32
    )
    want = np.minimum(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b)
    assert np.array_equal(two.view(np.float16), want)


# Conversions

CVT_INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("source", CVT_INTEGERS)
@pytest.mark.parametrize("to", CVT_INTEGERS)
def test_integer_conversions(to: str, source: str) -> None:
    if to == source:
        return
    bits, wide = int(source[1:]), max(16, int(source[1:]))
    words = WORDS[wide]
    out = max(16, int(to[1:]))
    got = evaluate(f"cvt.{to}.{source} %d, %a;", [words], np.dtype(f"u{out // 8}"))
    for word, value in zip(words, got):
        number = integer(word, bits, source[0] == "s")
        narrowed = integer(number, int(to[1:]), to[0] == "s")
        assert int(value) == narrowed & ((1 << out) - 1)


@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", ["f32", "f64", "f16", "bf16"])
def test_integers_to_floats(to: str, source: str) -> None:
    from test_simulator_numbers import nearest

    bits = int(source[1:])
    words = WORDS[bits]
    size = {"f32": 4, "f64": 8}.get(to, 2)
    got = evaluate(f"cvt.rn.{to}.{source} %d, %a;", [words], np.dtype(f"u{size}"))
    for word, value in zip(words, got):
        number = integer(word, bits, source[0] == "s")
        if to == "f64":
            assert float(np.uint64(value).view(np.float64)) == float(number)
        else:
            assert int(value) == (nearest(Fraction(number), FORMATS[to]) if number else 0), number


@pytest.mark.parametrize("source", ["f32", "f64", "f16"])
@pytest.mark.parametrize("to", ["s32", "u32", "s64", "u64", "s16", "u8"])
@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers(rounding: str, to: str, source: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[source]
    numbers = np.array(
        [0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 2.7, -2.7, 300, -300, 1e10, -1e10, 1e20, -1e20, np.inf, -np.inf, np.nan]
    )
    with np.errstate(over="ignore"):
        a = numbers.astype(dtype)
    bits, signed = int(to[1:]), to[0] == "s"
    out = max(16, bits)
    got = evaluate(f"cvt.{rounding}.{to}.{source} %d, %a;", [a], np.dtype(f"u{out // 8}"))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    exact = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](a.astype(np.float64))
    for value, number in zip(got, exact):
        if np.isnan(number):
            special = source == "f64" or bits == 64
            want = (low if signed else 1 << (bits - 1)) if special else 0
        else:
            want = high if number > high else low if number < low else int(number)
        assert int(value) == want & ((1 << out) - 1), number


@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_to_floats(to: str, source: str) -> None:
    from test_simulator_numbers import nearest

    from tesela.dialects.ptx_isa import TABLE

    size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
    rounding = ".rn" if size[to] < size[source] or {to, source} == {"f16", "bf16"} else ""
    opcode = f"cvt{rounding}.{to}.{source}"
    if opcode not in TABLE:
        return
    words = WORDS[8 * size[source]]
    got = evaluate(f"{opcode} %d, %a;", [words], np.dtype(f"u{size[to]}"))
    numbers = words.view(np.float64) if source == "f64" else decode(words, source).astype(np.float64)
    for value, number in zip(got, numbers):
        if to == "f64":
            assert np.array_equal(np.uint64(value).view(np.float64), number, equal_nan=True)
        elif np.isfinite(number) and number != 0:
            assert int(value) == nearest(Fraction(float(number)), FORMATS[to]), number
        else:
            back = decode(np.array([value], got.dtype), to)[0]
            assert np.array_equal(back, np.float32(number), equal_nan=True) and (
                np.isnan(number) or np.signbit(back) == np.signbit(number)
            )


def test_rounding_to_integral_values() -> None:
    a = np.array([0.5, 1.5, -1.5, 2.7, -0.2], np.float32)
    for mode, function in {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.items():
        assert same_floats(evaluate(f"cvt.{mode}.f32.f32 %d, %a;", [a], np.float32), function(a)), mode


def test_conversion_to_pairs() -> None:
    a, b = np.array([1.0, -2.5, 1e6, np.nan], np.float32), np.array([0.1, 3.0, -1e6, 1.0], np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for type, dtype in HALVES.items():
            got = evaluate(f"cvt.rn.{type}x2.f32 %d, %a, %b;", [a, b], np.uint32).view(dtype)
            assert same_floats(got[1::2].copy(), a.astype(dtype)), "the first source goes to the upper half"
            assert same_floats(got[0::2].copy(), b.astype(dtype))
            relu = evaluate(f"cvt.rn.relu.{type}x2.f32 %d, %a, %b;", [a, b], np.uint32).view(dtype)
            assert same_floats(relu[1::2].copy(), np.where(np.isnan(a) | (a > 0), a, np.float32(0)).astype(dtype))


@pytest.mark.parametrize(("type", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_conversion_to_eight_bits(type: str, dtype: Any) -> None:
    a = np.array([1.0625001, 1.0625, 1.1875, 449, 464, 1e9, -np.inf, np.nan, 2.0**-10, 0.3], np.float32)
    b = a[::-1].copy()
    got = evaluate(f"cvt.rn.satfinite.{type}x2.f32 %d, %a, %b;", [a, b], np.uint16).view(np.uint8).reshape(-1, 2)
    largest = float(ml_dtypes.finfo(dtype).max)

    def want(values: Any) -> Any:
        clamped = np.clip(values, -largest, largest).astype(dtype).view(np.uint8)
        return np.where(np.isnan(values), 0x7F, clamped)

    assert np.array_equal(got[:, 1], want(a)) and np.array_equal(got[:, 0], want(b))
    codes = np.arange(0, 1 << 16, 257, dtype=np.uint16)
    halves = evaluate(f"cvt.rn.f16x2.{type}x2 %d, %a;", [codes], np.uint32).view(np.float16)
    assert np.array_equal(
        halves.astype(np.float32), codes.view(np.uint8).view(dtype).astype(np.float32), equal_nan=True
    )
    back = evaluate(f"cvt.rn.satfinite.{type}x2.f16x2 %d, %a;", [halves.view(np.uint32)], np.uint16)
    finite = np.isfinite(codes.view(np.uint8).view(dtype).astype(np.float32)).reshape(-1, 2).all(1)
    assert np.array_equal(back[finite], codes[finite])


def test_conversion_to_tf32() -> None:
    a = np.array([1 + 2.0**-11, 1 + 2.0**-10 + 2.0**-11, 1 + 2.0**-11 + 2.0**-20, -(1 + 2.0**-11)], np.float32)
    even, away = (evaluate(f"cvt.{m}.tf32.f32 %d, %a;", [a], np.float32) for m in ("rn", "rna"))
    step = 2.0**-10
    assert even.tolist() == [1, 1 + 2 * step, 1 + step, -1]
    assert away.tolist() == [1 + step, 1 + 2 * step, 1 + step, -(1 + step)]


# Moves


def test_moves_pack_and_unpack() -> None:
    a, b = np.array([0x1234, 0xFFFF], np.uint16), np.array([0xABCD, 0x8000], np.uint16)
    assert evaluate("mov.b32 %d, {%a, %b};", [a, b], np.uint32).tolist() == [0xABCD1234, 0x8000FFFF]
    words = np.array([0xABCD1234], np.uint32)
    assert evaluate("mov.b32 {%x, %d}, %a;", [words], np.uint16, ".reg .b16 %x;").tolist() == [0xABCD]
    low, high = np.array([1], np.uint32), np.array([2], np.uint32)
    assert evaluate("mov.b64 %d, {%a, %b};", [low, high], np.uint64).tolist() == [(2 << 32) | 1]
    pair = np.array([(7 << 32) | 5], np.uint64)
    assert evaluate("mov.b64 {%d, %x}, %a;", [pair], np.uint32, ".reg .b32 %x;").tolist() == [5]
    assert evaluate("mov.b32 %d, %a;", [words], np.uint32).tolist() == words.tolist()
    assert evaluate("mov.pred %d, %a;", [np.array([True, False])], bool).tolist() == [True, False]


def test_immediates() -> None:
    one = np.zeros(1, np.uint32)
    assert evaluate("mov.b32 %d, -1;", [one], np.uint32).tolist() == [0xFFFFFFFF]
    assert evaluate("mov.b32 %d, 0f3FC00000;", [one], np.float32).tolist() == [1.5]
    assert evaluate("mov.b64 %d, 0d4000000000000000;", [one], np.float64).tolist() == [2.0]
    assert evaluate("add.rn.f32 %d, 0f3F800000, 0f40000000;", [one], np.float32).tolist() == [3.0]


def test_a_missing_meaning_is_an_error_at_its_place() -> None:
    text = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 m[128])\n{\n  .reg .b64 %d; .reg .b32 %s; .reg .b16 %h;\n"
    text += "cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%s], [%d, {%s, %s, %s, %s}], [%s], {%h, %h};\n}\n"
    from tesela.simulator import launch

    with pytest.raises(TeselaError, match=r"no meaning for 'cp.async.bulk.tensor.4d.shared::cta.global.im2col"):
        launch(text, params=[0], block=(32,))
