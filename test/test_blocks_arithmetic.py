"""The block interpreter's arithmetic against independent definitions (docs/numbers.md), through IR."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.verify import verify_module
from tesela.simulator.blocks import known_operations, run_kernel

DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64")
NAN, INF = math.nan, math.inf

# NumPy warns of overflow and NaN, which the tests make on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def evaluate(lines: str, operands: dict[str, tuple[str, object]], result: str, scalar: bool = False) -> np.ndarray:
    """`lines` compute %r from tiles named as `operands`, each (element type, values); gives %r's values.

    `@f32` in them stands for a tile of f32, or with `scalar`, where each element is a block's scalar, for f32 itself.
    """
    arrays = {name: np.asarray(values).astype(DTYPES[kind]) for name, (kind, values) in operands.items()}
    n = len(next(iter(arrays.values())))
    kinds = {name: kind for name, (kind, _) in operands.items()} | {"out": result}

    def typed(text: str) -> str:
        return re.sub(r"@(\w+)", r"\1" if scalar else rf"tensor<{n}x\1>", text)

    arguments = ", ".join(f"%{name}_p: memref<?x{kind}, strided<[1]>> [N]" for name, kind in kinds.items())
    start = "%i" if scalar else "%zero"
    loads = "\n".join(
        f"  %{name} = tile.load %{name}_p[{start}] : memref<?x{kind}, strided<[1]>> -> {typed('@' + kind)}"
        for name, kind in kinds.items()
        if name != "out"
    )
    module = parse_module(f"""
tile.kernel @k({arguments}) grid(%i = {"N" if scalar else "1"}) {{
  %zero = arith.constant 0 : index
{loads}
  {typed(lines)}
  tile.store %r, %out_p[{start}] : {typed("@" + result)}, memref<?x{result}, strided<[1]>>
}}""")
    verify_module(module)
    out = np.zeros(n, DTYPES[result])
    run_kernel(module, {f"{name}_p": array for name, array in arrays.items()} | {"out_p": out})
    return out


def binary(op: str, kind: str, a: object, b: object) -> np.ndarray:
    return evaluate(f"%r = {op} %a, %b : @{kind}", {"a": (kind, a), "b": (kind, b)}, kind)


def unary(op: str, kind: str, a: object) -> np.ndarray:
    return evaluate(f"%r = {op} %a : @{kind}", {"a": (kind, a)}, kind)


def cast(source: str, target: str, a: object, saturate: bool = False) -> np.ndarray:
    word = "saturate " if saturate else ""
    return evaluate(f"%r = tile.cast {word}%a : @{source} -> @{target}", {"a": (source, a)}, target)


def same_floats(found: object, wanted: object) -> None:
    """Equal bit for bit but for NaN, which is one value (N2)."""
    wide, wanted = np.asarray(found).astype(np.float64), np.asarray(wanted).astype(np.float64)
    np.testing.assert_array_equal(wide, wanted)
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(np.signbit(wide)[numbers], np.signbit(wanted)[numbers])


def random_floats(kind: str, count: int, seed: int) -> np.ndarray:
    """Any bit patterns of the type: all exponents, subnormals, infinities and NaNs."""
    bits = np.random.default_rng(seed).integers(0, 256, count * np.dtype(DTYPES[kind]).itemsize, dtype=np.uint8)
    return bits.view(DTYPES[kind])


# --- Rounding, once, against exact rational arithmetic ---

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def round_exactly(value: Fraction, kind: str) -> float:
    """The nearest number of the format, ties to even, infinity on overflow: the definition (IEEE 754-2019 §4.3.1)."""
    if value == 0:
        return 0.0
    precision, least, most = FORMATS[kind]
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, least) - precision + 1)
    rounded = round(magnitude / quantum) * quantum  # Python rounds a Fraction's tie to even
    if rounded >= Fraction(2) ** (most + 1):
        return INF if value > 0 else -INF
    return float(rounded) if value > 0 else -float(rounded)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_float_arithmetic_rounds_once_to_even(op, kind):
    a, b = random_floats(kind, 500, 1), random_floats(kind, 500, 2)
    found = binary(f"arith.{op}f", kind, a, b)
    exact = {"add": Fraction.__add__, "sub": Fraction.__sub__, "mul": Fraction.__mul__, "div": Fraction.__truediv__}[op]
    checked = 0
    for x, y, got in zip(a.astype(float), b.astype(float), found.astype(float)):
        if not (np.isfinite(x) and np.isfinite(y)) or (op == "div" and y == 0):
            continue
        value = exact(Fraction(x), Fraction(y))
        if kind == "bf16" and abs(value) < Fraction(2) ** -126:
            continue  # N8: may be rounded twice
        assert got == round_exactly(value, kind), (x, y)
        checked += 1
    assert checked > 250


@pytest.mark.parametrize("kind", FLOATS)
def test_infinities_and_nan_in_float_arithmetic(kind):
    same_floats(binary("arith.addf", kind, [INF, INF, NAN, 1], [INF, -INF, 1, NAN]), [INF, NAN, NAN, NAN])
    same_floats(binary("arith.mulf", kind, [0, INF, -0.0], [INF, -2, 5]), [NAN, -INF, -0.0])
    same_floats(binary("arith.divf", kind, [1, -1, 0, INF, 1], [0, 0, 0, INF, INF]), [INF, -INF, NAN, NAN, 0])
    same_floats(binary("arith.subf", kind, [-INF, 1], [-INF, 1]), [NAN, 0])


@pytest.mark.parametrize("kind", FLOATS)
def test_fma_rounds_once(kind):
    a, b, c = (random_floats(kind, 400, seed) for seed in (3, 4, 5))
    # Cancellation, where a second rounding shows: c close to -a·b.
    near = np.random.default_rng(6).standard_normal(200).astype(DTYPES[kind])
    a[:200], b[:200] = near, near[::-1]
    c[:200] = -(a[:200].astype(float) * b[:200].astype(float))
    line = f"%r = math.fma %a, %b, %c : @{kind}"
    found = evaluate(line, {"a": (kind, a), "b": (kind, b), "c": (kind, c)}, kind).astype(float)
    first = "f32" if kind in ("f16", "bf16") else kind
    checked = 0
    for x, y, z, got in zip(a.astype(float), b.astype(float), c.astype(float), found):
        if np.isfinite([x, y, z]).all():
            once = round_exactly(Fraction(x) * Fraction(y) + Fraction(z), first)
            wanted = once if kind == first or not math.isfinite(once) else round_exactly(Fraction(once), kind)
            assert got == wanted, (x, y, z)
            checked += 1
    assert checked > 300


def test_fma_of_f32_that_rounding_twice_gets_wrong():
    # Exactly 1 + 2**-23 + 2**-24 - 2**-70: just below a tie, which f64 cannot tell from the tie, and that would go up.
    values = {"a": 2.0**-12 * (1 + 2.0**-23), "b": 2.0**-12 * (1 - 2.0**-23), "c": 1 + 2.0**-23}
    assert np.float32(values["a"] * values["b"] + values["c"]) == 1 + 2.0**-22
    found = evaluate(
        "%r = math.fma %a, %b, %c : @f32", {name: ("f32", [value]) for name, value in values.items()}, "f32"
    )
    assert found[0] == 1 + 2.0**-23


@pytest.mark.parametrize("kind", FLOATS)
def test_sign_operations_and_roots(kind):
    x = [0.0, -0.0, 1.5, -2.5, INF, -INF, NAN]
    same_floats(unary("arith.negf", kind, x), [-0.0, 0.0, -1.5, 2.5, -INF, INF, NAN])
    same_floats(unary("math.absf", kind, x), [0.0, 0.0, 1.5, 2.5, INF, INF, NAN])
    same_floats(unary("math.floor", kind, [-0.5, 0.5, -1.0, 2.5, -0.0, INF]), [-1, 0.0, -1, 2, -0.0, INF])
    same_floats(unary("math.ceil", kind, [-0.5, 0.5, -1.0, 2.5, -0.0, -INF]), [-0.0, 1, -1, 3, -0.0, -INF])
    same_floats(unary("math.sqrt", kind, [4, 0.0, -0.0, -1, INF]), [2, 0.0, -0.0, NAN, INF])
    values = np.abs(random_floats(kind, 300, 7))
    for x, got in zip(values.astype(float), unary("math.sqrt", kind, values)):
        if np.isfinite(x) and x > 0:
            # Nearest, tested without a root: x lies between the squares of the midpoints to the neighbours.
            below, above = (float(np.nextafter(got, np.asarray(end, got.dtype))) for end in (0, INF))
            low, high = ((Fraction(float(got)) + Fraction(other)) / 2 for other in (below, above))
            assert low**2 <= Fraction(x) <= high**2


@pytest.mark.parametrize("kind", FLOATS)
def test_maximum_and_minimum(kind):
    a = [NAN, 1, NAN, 0.0, -0.0, 0.0, -0.0, INF, 2]
    b = [1, NAN, NAN, -0.0, 0.0, 0.0, -0.0, -INF, 3]
    same_floats(binary("arith.maximumf", kind, a, b), [NAN, NAN, NAN, 0.0, 0.0, 0.0, -0.0, INF, 3])
    same_floats(binary("arith.minimumf", kind, a, b), [NAN, NAN, NAN, -0.0, -0.0, 0.0, -0.0, -INF, 2])
    same_floats(binary("arith.maxnumf", kind, a, b), [1, 1, NAN, 0.0, 0.0, 0.0, -0.0, INF, 3])
    same_floats(binary("arith.minnumf", kind, a, b), [1, 1, NAN, -0.0, -0.0, 0.0, -0.0, -INF, 2])


@pytest.mark.parametrize("kind, bits", [("f16", 0x7D01), ("bf16", 0xFFA1), ("f32", 0x7FA12345), ("f64", 0x7FF0000000000123)])
def test_signalling_nans_are_nans_like_others(kind, bits):
    size = np.dtype(DTYPES[kind]).itemsize
    nan = np.full(19, bits, np.dtype(f"u{size}")).view(DTYPES[kind])  # many: vectors and the rest of a loop
    ones = np.ones(19)
    for op in ("maxnumf", "minnumf"):
        assert np.all(binary(f"arith.{op}", kind, nan, ones) == 1) and np.all(binary(f"arith.{op}", kind, ones, nan) == 1)
    for op in ("maximumf", "minimumf", "addf"):
        assert np.all(np.isnan(binary(f"arith.{op}", kind, nan, ones).astype(float)))


# --- Approximated functions: the interpreter gives the rounded f32 value of the exact function ---

REFERENCES = {
    "exp": math.exp, "exp2": lambda x: 2.0**x, "log": math.log, "log2": math.log2,
    "rsqrt": lambda x: 1 / math.sqrt(x), "tanh": math.tanh, "sin": math.sin, "cos": math.cos,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", REFERENCES)
def test_approximated_functions(name, kind):
    positive = name in ("log", "log2", "rsqrt")
    x = np.random.default_rng(8).uniform(1e-3 if positive else -8, 8, 200).astype(DTYPES[kind])
    found = unary(f"math.{name}", kind, x)
    # N8: the f32 result is rounded again.
    wanted = np.array([REFERENCES[name](float(v)) for v in x]).astype(np.float32).astype(DTYPES[kind])
    np.testing.assert_array_equal(found, wanted)


def test_special_values_of_approximated_functions():
    tiny = 2.0**-126
    same_floats(unary("math.exp2", "f32", [-INF, INF, -0.0, -126, -126.5, 128, NAN]), [0, INF, 1, tiny, 0, INF, NAN])
    same_floats(unary("math.exp", "f32", [-INF, INF, 0, -88, NAN, 89]), [0, INF, 1, 0, NAN, INF])
    same_floats(unary("math.log2", "f32", [0, -0.0, -1, INF, 1, NAN, 2.0**-140]), [-INF, -INF, NAN, INF, 0, NAN, -140])
    same_floats(unary("math.log", "f32", [0, -1, INF, 1]), [-INF, NAN, INF, 0])
    same_floats(unary("math.rsqrt", "f32", [0, -0.0, -1, INF, 4]), [INF, -INF, NAN, 0, 0.5])
    same_floats(unary("math.tanh", "f32", [0, -0.0, INF, -INF, NAN]), [0, -0.0, 1, -1, NAN])
    same_floats(unary("math.sin", "f32", [0, -0.0, INF]), [0, -0.0, NAN])
    same_floats(unary("math.cos", "f32", [0, -INF]), [1, NAN])
    with pytest.raises(TeselaError, match="not defined on f64"):
        unary("math.exp", "f64", [1.0])


# --- Integers, against Python's unbounded ones ---


def wrap(value: int, kind: str) -> int:
    bits = int(kind[1:])
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def integer_pairs(kind: str) -> tuple[list[int], list[int]]:
    bits = int(kind[1:])
    edge = [0, 1, -1, 2, -3, 7, (1 << bits - 1) - 1, -(1 << bits - 1), 1 - (1 << bits - 1)]
    pairs = [(a, b) for a in edge for b in edge]
    return [a for a, _ in pairs], [b for _, b in pairs]


SIGNED = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": toward_zero,
    "remsi": lambda a, b: a - b * toward_zero(a, b),
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "maxsi": max,
    "minsi": min,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
}
UNSIGNED = {
    "divui": lambda a, b: a // b,
    "remui": lambda a, b: a % b,
    "ceildivui": lambda a, b: -(-a // b),
    "maxui": max,
    "minui": min,
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("op", [*SIGNED, *UNSIGNED])
def test_integer_arithmetic(op, kind):
    a, b = integer_pairs(kind)
    if "div" in op or "rem" in op:
        a, b = zip(*((x, y) for x, y in zip(a, b) if y != 0))
    mask = (1 << int(kind[1:])) - 1
    if op in UNSIGNED:
        wanted = [wrap(UNSIGNED[op](x & mask, y & mask), kind) for x, y in zip(a, b)]
    else:
        wanted = [wrap(SIGNED[op](x, y), kind) for x, y in zip(a, b)]
    assert binary(f"arith.{op}", kind, a, b).tolist() == wanted


@pytest.mark.parametrize("kind", INTEGERS)
def test_shifts_past_the_width(kind):
    bits = int(kind[1:])
    amounts = (0, 1, bits - 1, bits, bits + 1, -1)
    a, b = zip(*((value, amount) for value in (1, -1, 5, -(1 << bits - 1)) for amount in amounts))
    mask = (1 << bits) - 1
    unsigned = [amount & mask for amount in b]
    left = [wrap(x << n, kind) if n < bits else 0 for x, n in zip(a, unsigned)]
    right = [wrap((x & mask) >> n, kind) if n < bits else 0 for x, n in zip(a, unsigned)]
    signed = [x >> min(n, bits) for x, n in zip(a, unsigned)]
    assert binary("arith.shli", kind, a, b).tolist() == left
    assert binary("arith.shrui", kind, a, b).tolist() == right
    assert binary("arith.shrsi", kind, a, b).tolist() == signed


@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"])
def test_division_by_zero_is_reported_at_its_line(op):
    with pytest.raises(TeselaError, match=r"<string>:\d+:\d+: error: .* by zero"):
        binary(f"arith.{op}", "i32", [1, 2], [1, 0])


def test_absolute_value_of_the_least_integer_is_itself():
    assert unary("math.absi", "i8", [-128, -1, 5]).tolist() == [-128, 1, 5]


def test_i1_takes_logic_only():
    a, b = [False, False, True, True], [False, True, False, True]
    assert binary("arith.andi", "i1", a, b).tolist() == [False, False, False, True]
    assert binary("arith.ori", "i1", a, b).tolist() == [False, True, True, True]
    assert binary("arith.xori", "i1", a, b).tolist() == [False, True, True, False]
    with pytest.raises(TeselaError, match="not defined on i1"):
        binary("arith.addi", "i1", a, b)


# --- Comparison, selection, casts ---


@pytest.mark.parametrize("kind", FLOATS)
def test_float_predicates(kind):
    a, b = [1, 2, 2, NAN, 1, NAN, -0.0], [2, 1, 2, 1, NAN, NAN, 0.0]
    ordered = {
        "oeq": [0, 0, 1, 0, 0, 0, 1], "one": [1, 1, 0, 0, 0, 0, 0], "olt": [1, 0, 0, 0, 0, 0, 0],
        "ole": [1, 0, 1, 0, 0, 0, 1], "ogt": [0, 1, 0, 0, 0, 0, 0], "oge": [0, 1, 1, 0, 0, 0, 1],
    }  # fmt: skip
    for name, wanted in ordered.items():
        for predicate, unordered in ((name, 0), ("u" + name[1:], 1)):
            line = f"%r = tile.cmp {predicate} %a, %b : @{kind} -> @i1"
            found = evaluate(line, {"a": (kind, a), "b": (kind, b)}, "i1")
            assert found.tolist() == [bool(w | (unordered and i in (3, 4, 5))) for i, w in enumerate(wanted)], predicate


ORDERS = {
    "eq": int.__eq__, "ne": int.__ne__, "slt": int.__lt__, "sle": int.__le__, "sgt": int.__gt__, "sge": int.__ge__,
}  # fmt: skip


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", ORDERS)
def test_integer_predicates(kind, name):
    a, b = integer_pairs(kind)
    found = evaluate(f"%r = tile.cmp {name} %a, %b : @{kind} -> @i1", {"a": (kind, a), "b": (kind, b)}, "i1")
    assert found.tolist() == [ORDERS[name](x, y) for x, y in zip(a, b)]


@pytest.mark.parametrize(
    "op, kind, predicate, a, b, wanted",
    [
        ("cmpi", "i32", "ult", [1, -1], [-1, 1], [True, False]),
        ("cmpi", "i32", "slt", [1, -1], [-1, 1], [False, True]),
        ("cmpi", "i8", "uge", [-128], [127], [True]),
        ("cmpf", "f32", "ord", [1, NAN], [2, 2], [True, False]),
        ("cmpf", "f32", "uno", [1, NAN], [2, 2], [False, True]),
        ("cmpf", "f32", "une", [1, NAN], [1, 2], [False, True]),
        ("cmpf", "f32", "true", [1, NAN], [1, 2], [True, True]),
    ],
)
def test_comparisons_of_arith_on_scalars(op, kind, predicate, a, b, wanted):
    line = f"%r = arith.{op} {predicate}, %a, %b : @{kind}"
    assert evaluate(line, {"a": (kind, a), "b": (kind, b)}, "i1", scalar=True).tolist() == wanted


def test_select_passes_bits_on():
    operands = {"p": ("i1", [1, 0, 1]), "a": ("f32", [-0.0, NAN, 1]), "b": ("f32", [1, 2, NAN])}
    same_floats(evaluate("%r = tile.select %p, %a, %b : @i1, @f32", operands, "f32"), [-0.0, 2, 1])
    same_floats(evaluate("%r = arith.select %p, %a, %b : @f32", operands, "f32", scalar=True), [-0.0, 2, 1])


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_float_casts_round_once(source, target):
    values = np.concatenate([random_floats(source, 400, 9), np.linspace(-70000, 70000, 101).astype(DTYPES[source])])
    found = cast(source, target, values)
    for x, got in zip(values.astype(float), found.astype(float)):
        if np.isfinite(x):
            assert got == round_exactly(Fraction(x), target), x
        else:
            same_floats(got, x)


def test_ties_and_values_just_beside_them():
    # bf16 has 8 bits: 1 + 2**-8 is a tie; the neighbours of ties in f32 and in f64 decide the direction.
    tie, up = 1 + 2.0**-8, 1 + 2.0**-7
    same_floats(cast("f32", "bf16", [tie, tie + 2**-23, 1 + 3 * 2.0**-8]), [1, up, 1 + 2.0**-6])
    same_floats(cast("f64", "bf16", [tie, tie + 2.0**-40, tie - 2.0**-40]), [1, up, 1])
    same_floats(cast("f64", "f16", [1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-45]), [1, 1 + 2.0**-10])
    same_floats(cast("f32", "f16", [65519.996, 65520, -65520, 2.0**-25, 2.0**-24]), [65504, INF, -INF, 0, 2.0**-24])


def test_saturating_casts():
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    same_floats(cast("f32", "f16", [1e6, -1e6, INF, -INF, NAN, 1], True), [65504, -65504, 65504, -65504, NAN, 1])
    same_floats(cast("f32", "bf16", [3.4e38, -3.4e38, INF, 0], True), [largest, -largest, largest, 0])
    same_floats(cast("i32", "f16", [70000, -70000, 3], True), [65504, -65504, 3])
    same_floats(cast("i32", "f16", [70000, -70000, 65519]), [INF, -INF, 65504])


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", [*INTEGERS, "i1"])
def test_float_to_integer_truncates_and_saturates(source, target):
    least, most = (0, 1) if target == "i1" else (-(1 << int(target[1:]) - 1), (1 << int(target[1:]) - 1) - 1)
    magnitudes = np.array([0.0, 0.99, 1.5, 2.5, 127.5, 128.9, 1e3, 4e4, 1e10, 1e19, INF, NAN])
    values = np.concatenate([magnitudes, -magnitudes, [2.0**31, -(2.0**31), 2.0**63, -(2.0**63)]])
    values = values.astype(DTYPES[source])
    found = cast(source, target, values)
    for x, got in zip(values.astype(float), found.tolist()):
        if math.isnan(x):
            wanted = 0
        elif math.isinf(x):
            wanted = most if x > 0 else least
        else:
            wanted = min(max(math.trunc(x), least), most)
        assert int(got) == wanted, x


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", FLOATS)
def test_integer_to_float_rounds_once(source, target):
    bits = int(source[1:])
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    values = [0, 1, -1, least, least + 1, most, most - 1]
    for k in range(bits - 1):
        one = 1 << k
        # Beside a power of two, at a tie of bf16, of f32, and just above them.
        near = [one + 1, one + (one >> 8), one + (one >> 8) + 1, one + (one >> 24), one + (one >> 24) + 1]
        values += [v for w in near for v in (w, -w) if least <= v <= most]
    found = cast(source, target, np.array(values, DTYPES[source]))
    assert found.astype(float).tolist() == [round_exactly(Fraction(v), target) for v in values]


def test_integer_to_bf16_does_not_go_through_f32():
    # 2**24 + 2**16 is a tie between bf16 numbers; one more is above it, but f32 cannot hold the one.
    assert cast("i32", "bf16", [2**24 + 2**16, 2**24 + 2**16 + 1]).astype(int).tolist() == [2**24, 2**24 + 2**17]


def test_integer_casts():
    assert cast("i32", "i8", [127, 128, -129, 256, -1]).tolist() == [127, -128, 127, 0, -1]
    assert cast("i8", "i64", [-1, 127, -128]).tolist() == [-1, 127, -128]
    assert cast("i32", "i1", [0, 1, 2, 3, -1]).tolist() == [False, True, False, True, True]
    assert cast("i1", "i32", [False, True]).tolist() == [0, 1]
    assert cast("i1", "bf16", [False, True]).astype(float).tolist() == [0, 1]


def test_index_casts():
    lines = "%x = arith.index_cast %a : i32 to index\n  %r = arith.index_cast %x : index to i64"
    assert evaluate(lines, {"a": ("i32", [-5, 7])}, "i64", scalar=True).tolist() == [-5, 7]
    lines = "%x = tile.cast %a : i64 -> index\n  %r = tile.cast %x : index -> i32"
    assert evaluate(lines, {"a": ("i64", [2**32 + 5, -1])}, "i32", scalar=True).tolist() == [5, -1]


# --- Constants ---


def constant(text: str, kind: str) -> float | int:
    return evaluate(f"%c = {text}\n  %r = tile.full %c : {kind} -> @{kind}", {"a": ("f32", [0, 0])}, kind)[1].item()


def test_constants():
    assert constant("arith.constant 0.1 : f32", "f32") == float(np.float32(0.1))
    assert constant("arith.constant 1.5 : bf16", "bf16") == 1.5
    assert constant("arith.constant -3 : i8", "i8") == -3
    assert constant("arith.constant 255 : i8", "i8") == -1
    assert constant("arith.constant true", "i1") is True
    assert constant('tile.constant "-inf" : f16', "f16") == -INF
    assert math.isnan(constant('tile.constant "nan" : f32', "f32"))


@pytest.mark.parametrize("value", range(-8, 8))
def test_small_integers_fill_an_i8_tile_exactly(value):
    assert constant(f"arith.constant {value} : i8", "i8") == value


@pytest.mark.parametrize("text, wanted", [("dense<2.5>", [2.5, 2.5]), ("dense<[1.0, -2.0]>", [1, -2])])
def test_dense_constants(text, wanted):
    assert evaluate(f"%r = arith.constant {text} : @f32", {"a": ("f32", [0, 0])}, "f32").tolist() == wanted


# --- Reductions and dots ---


def reduce(kind: str, element: str, values: object) -> float:
    result = "i32" if kind.startswith("arg") else element
    lines = f"%s = tile.reduce {kind} %a axis 0 : @{element} -> {result}\n  %r = tile.full %s : {result} -> @{result}"
    return evaluate(lines, {"a": (element, values)}, result)[-1].item()


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    "values, largest, smallest",
    [
        ([1, 3, 3, 2], 1, 0),
        ([3, 1, 1, 2], 0, 1),
        ([2, NAN, 5, NAN], 1, 1),
        ([NAN, INF, -INF], 0, 0),
        ([INF, NAN], 1, 1),
        ([-0.0, 0.0], 0, 0),
        ([0.0, -0.0], 0, 0),
        ([-INF, -INF], 0, 0),
    ],
)
def test_argmax_and_argmin(kind, values, largest, smallest):
    assert reduce("argmax", kind, values) == largest
    assert reduce("argmin", kind, values) == smallest


def test_argmax_of_integers_takes_the_first():
    assert reduce("argmax", "i32", [5, 9, 9, -3]) == 1
    assert reduce("argmin", "i8", [5, -9, -9, 3]) == 1


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    "op, values, wanted",
    [
        ("max", [1, NAN, 3], NAN),
        ("min", [NAN, 1], NAN),
        ("max", [-0.0, 0.0], 0.0),
        ("max", [0.0, -0.0], 0.0),
        ("min", [-0.0, 0.0], -0.0),
        ("min", [0.0, -0.0], -0.0),
        ("max", [-0.0, -0.0], -0.0),
        ("min", [0.0, 0.0], 0.0),
        ("max", [-INF, -INF], -INF),
        ("min", [3, -2], -2),
    ],
)
def test_max_and_min_reductions(kind, op, values, wanted):
    same_floats(reduce(op, kind, values), wanted)


def test_sums_of_16_bit_floats_accumulate_in_f32_and_round_once():
    # In bf16, 256 + 1 is 256: rounding after each addition would never leave 256.
    assert reduce("sum", "bf16", [256] + [1] * 8) == 264
    assert reduce("sum", "f16", [2048] + [1] * 5) == 2052  # 2053 is a tie
    assert reduce("sum", "f16", [60000, 60000]) == INF
    assert reduce("sum", "f16", [60000, 60000, -60000]) == 60000
    assert reduce("prod", "f16", [300, 300, 2.0**-5]) == 2812
    same_floats([reduce("sum", "f32", [INF, -INF]), reduce("sum", "f32", [NAN, 1])], [NAN, NAN])


def test_integer_reductions_wrap():
    assert reduce("sum", "i8", [100, 100, 100]) == wrap(300, "i8")
    assert reduce("prod", "i32", [65536, 65536, 3]) == 0
    assert reduce("prod", "i16", [1000, 1000]) == wrap(10**6, "i16")
    assert reduce("max", "i16", [-5, 3]) == 3
    assert reduce("min", "i64", [-5, 3]) == -5


def dot(element: str, accumulator: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One block's dot of whole arrays."""
    arrays = {"a": a.astype(DTYPES[element]), "b": b.astype(DTYPES[element]), "c": c.astype(DTYPES[accumulator])}
    arrays["d"] = np.zeros_like(arrays["c"])
    rank = a.ndim
    strided = f"strided<[{', '.join(['?'] * (rank - 1) + ['1'])}]>"
    kinds = {"a": element, "b": element, "c": accumulator, "d": accumulator}
    memrefs = {name: f"memref<{'?x' * rank}{kinds[name]}, {strided}>" for name in arrays}
    tiles = {name: f"tensor<{'x'.join(map(str, array.shape))}x{kinds[name]}>" for name, array in arrays.items()}
    symbols = {name: ", ".join(f"{name}{axis}" for axis in range(rank)) for name in arrays}
    arguments = ", ".join(f"%{name}: {memrefs[name]} [{symbols[name]}]" for name in arrays)
    zeros = ", ".join(["%zero"] * rank)
    loads = "\n".join(f"  %t{name} = tile.load %{name}[{zeros}] : {memrefs[name]} -> {tiles[name]}" for name in "abc")
    module = parse_module(f"""
tile.kernel @dot({arguments}) grid(%i = 1) {{
  %zero = arith.constant 0 : index
{loads}
  %r = tile.dot %ta, %tb, %tc : {tiles["a"]}, {tiles["b"]} -> {tiles["d"]}
  tile.store %r, %d[{zeros}] : {tiles["d"]}, {memrefs["d"]}
}}""")
    verify_module(module)
    run_kernel(module, arrays)
    return arrays["d"]


@pytest.mark.parametrize("element, accumulator", [("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64")])
def test_dot_of_floats(element, accumulator):
    rng = np.random.default_rng(10)
    a, b, c = rng.standard_normal((3, 5, 7)), rng.standard_normal((3, 7, 2)), rng.standard_normal((3, 5, 2))
    found = dot(element, accumulator, a, b, c)
    a, b = a.astype(DTYPES[element]).astype(float), b.astype(DTYPES[element]).astype(float)
    c = c.astype(DTYPES[accumulator]).astype(float)
    wanted = np.einsum("bik,bkj->bij", a, b) + c
    epsilon = float(np.finfo(DTYPES[accumulator]).eps)
    bound = 8 * epsilon * (np.abs(c) + np.einsum("bik,bkj->bij", np.abs(a), np.abs(b)))
    assert np.all(np.abs(found.astype(float) - wanted) <= bound)


def test_dot_of_integers_is_exact_and_wraps():
    a = np.full((2, 3), -128)
    found = dot("i8", "i32", a, a.T.copy(), np.full((2, 2), 2**31 - 1))
    assert found.tolist() == [[wrap(2**31 - 1 + 3 * 16384, "i32")] * 2] * 2


def test_dot_of_types_that_have_no_rule_is_refused():
    with pytest.raises(TeselaError, match="accumulator of f64 is not defined"):
        dot("f16", "f64", np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)))


# --- Completeness ---


def test_what_the_interpreter_does_not_know_it_says():
    with pytest.raises(
        TeselaError, match=r"<string>:\d+:\d+: error: the block interpreter knows no operation 'math.erf'"
    ):
        unary("math.erf", "f32", [1.0])
    assert "math.exp" in known_operations() and "math.erf" not in known_operations()


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_infinities_of_eight_bits_saturate_in_reductions(kind, target):
    """As they do in all arithmetic (N28), in the interpreter and in the code."""
    text = f"""
tile.kernel @k(%x: memref<?xf8E5M2, strided<[1]>> [N], %y: memref<?xf8E5M2, strided<[1]>> [P]) grid(%g = 1) {{
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero] : memref<?xf8E5M2, strided<[1]>> -> tensor<8xf8E5M2>
  %r = tile.reduce {kind} %v axis 0 : tensor<8xf8E5M2> -> f8E5M2
  tile.store %r, %y[%zero] : f8E5M2, memref<?xf8E5M2, strided<[1]>>
}}"""
    sign = 1 if kind == "max" else -1
    x = np.array([1, 2, sign * np.inf, 3, 4, 5, 6, 7], ml_dtypes.float8_e5m2)
    interpreted, simulated = (np.zeros(1, ml_dtypes.float8_e5m2) for _ in range(2))
    run_kernel(parse_module(text), {"x": x, "y": interpreted})
    tesela.compile(text, target)(x, simulated, device="sim")
    assert float(interpreted[0]) == float(simulated[0]) == sign * 57344
