"""Error bounds: what any machine that follows the rules may answer lies inside; the rest stays exact."""

from __future__ import annotations

import math
import warnings
from itertools import permutations
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects import tile
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.simulator import tile_arithmetic as ta
from tesela.simulator.bounded_sums import AtomicSums
from tesela.simulator.bounds import (
    BoundedSemantics,
    Interval,
    allowed_results,
    check_results,
    interval,
    is_anything,
    mismatches,
    parts,
)

EXAMPLES = Path(__file__).parents[1] / "examples"
DTYPES = {
    "f16": ta.F16,
    "bf16": ta.BF16,
    "f32": ta.F32,
    "f64": ta.F64,
    "i32": np.dtype(np.int32),
    "i8": np.dtype(np.int8),
}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ONE_LINE = """
tile.kernel @k({arguments}) grid(%i = 1) {{
  {line}
}}"""


def meaning_of(line: str, types: dict[str, str]):
    """The bounded function of the operation in `line`, whose operands are the arguments named in `types`."""
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in types.items())
    module = parse_module(ONE_LINE.format(arguments=arguments, line=line))
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    return BoundedSemantics().meaning(kernel.body.block.first_op)


def random_interval(rng: np.random.Generator, kind: str, count: int, scale: float) -> Interval:
    """Intervals of all widths, some of none, some round zero."""
    dtype = DTYPES[kind]
    middle = rng.standard_normal(count) * scale
    width = np.abs(rng.standard_normal(count)) * 10.0 ** rng.integers(-4, 1, count) * (rng.random(count) < 0.8)
    if not ta.is_float(dtype):
        low, high = (np.clip(np.round(middle + sign * width * 3), -120, 120).astype(dtype) for sign in (-1, 1))
    else:
        low, high = (middle - width).astype(dtype), (middle + width).astype(dtype)
    value = sample(rng, Interval(low, low, high))
    return Interval(value, low, high)


def sample(rng: np.random.Generator, x: Interval) -> np.ndarray:
    """Some value inside, in its type."""
    low, high = x.low.astype(float), x.high.astype(float)
    inside = np.clip((low + rng.random(low.shape) * (high - low)), low, high)
    if not ta.is_float(x.dtype):
        inside = np.round(inside)
    return np.clip(inside.astype(x.dtype).astype(float), low, high).astype(x.dtype)


ELEMENTWISE = [
    *(f"arith.{op}f %a, %b : {{t}}" for op in ("add", "sub", "mul", "div", "maximum", "minimum", "maxnum", "minnum")),
    *(f"math.{op} %a : {{t}}" for op in ("absf", "ceil", "floor", "sqrt")),
    "arith.negf %a : {t}",
    "math.fma %a, %b, %c : {t}",
    *(f"tile.cmp {p} %a, %b : {{t}} -> {{i1}}" for p in ("olt", "ule", "oeq", "une", "oge", "ugt")),
]
APPROXIMATED = [f"math.{op} %a : {{t}}" for op in ("exp", "exp2", "log", "log2", "rsqrt", "tanh", "sin", "cos")]
CASTS = [f"tile.cast %a : {{t}} -> tensor<400x{kind}>" for kind in ("f16", "bf16", "f32", "f64", "i8", "i32")]
INTEGERS = [
    *(
        f"arith.{op} %a, %b : {{t}}"
        for op in ("addi", "subi", "muli", "maxsi", "minsi", "andi", "ori", "xori", "maxui", "shli")
    ),
    "math.absi %a : {t}",
    *(f"tile.cmp {p} %a, %b : {{t}} -> {{i1}}" for p in ("slt", "sge", "eq", "ne")),
]


def check_soundness(line: str, kind: str, shape: str = "400", seed: int = 0, scale: float = 3.0) -> float:
    """Functions of samples lie inside the interval's image; gives the share of results that are not anything."""
    rng = np.random.default_rng(seed)
    t, i1 = f"tensor<{shape}x{kind}>", f"tensor<{shape}xi1>"
    dims = [int(d) for d in shape.split("x")]
    function = meaning_of(f"%r = {line.format(t=t, i1=i1)}", dict.fromkeys("abc", t))
    operands = [random_interval(rng, kind, math.prod(dims), scale) for name in "abc" if f"%{name}" in line]
    operands = [Interval(*(part.reshape(dims) for part in x.parts)) for x in operands]
    image = function(*operands)
    image = image if isinstance(image, Interval) else Interval(image, image, image)
    assert len(mismatches(image.value, image)) == 0
    for _ in range(20):
        found = function(*(sample(rng, x) for x in operands))
        wrong = mismatches(parts(found)[0], image)
        assert len(wrong) == 0, (wrong[0], [x.parts for x in operands])
    return 1 - float(np.mean(is_anything(image)))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("line", [*ELEMENTWISE, *CASTS])
def test_float_operations_are_sound(line, kind):
    assert check_soundness(line, kind) > 0.2


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("line", APPROXIMATED)
def test_approximated_functions_are_sound(line, kind):
    assert check_soundness(line, kind) > 0.2
    check_soundness(line, kind, scale=60.0, seed=1)


@pytest.mark.parametrize("kind", ["i8", "i32"])
@pytest.mark.parametrize("line", INTEGERS)
def test_integer_operations_are_sound(line, kind):
    check_soundness(line, kind)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64", "i32"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_reductions_are_sound(op, kind):
    element = "i32" if op.startswith("arg") else kind
    check_soundness(f"tile.reduce {op} %a axis 1 : {{t}} -> tensor<20x{element}>", kind, "20x20")


@pytest.mark.parametrize("kind, acc", [("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"), ("i8", "i32")])
def test_dots_are_sound(kind, acc):
    rng = np.random.default_rng(0)
    line = f"%r = tile.dot %a, %b, %c : tensor<4x6x{kind}>, tensor<6x5x{kind}> -> tensor<4x5x{acc}>"
    function = meaning_of(line, {"a": f"tensor<4x6x{kind}>", "b": f"tensor<6x5x{kind}>", "c": f"tensor<4x5x{acc}>"})
    operands = [
        random_interval(rng, element, n * m, 2.0) for element, n, m in [(kind, 4, 6), (kind, 6, 5), (acc, 4, 5)]
    ]
    shapes = [(4, 6), (6, 5), (4, 5)]
    operands = [Interval(*(part.reshape(shape) for part in x.parts)) for x, shape in zip(operands, shapes)]
    image = function(*operands)
    for _ in range(50):
        assert len(mismatches(parts(function(*(sample(rng, x) for x in operands)))[0], image)) == 0


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_sums_in_any_order_lie_inside(kind):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300).astype(DTYPES[kind])
    image = meaning_of(f"%r = tile.reduce sum %a axis 0 : tensor<300x{kind}> -> {kind}", {"a": f"tensor<300x{kind}>"})(
        x
    )
    image = image if isinstance(image, Interval) else Interval(image, image, image)
    for _ in range(50):
        total = np.float32(0)
        for element in rng.permutation(x):
            total = np.float32(total + np.float32(element))
        assert len(mismatches(np.asarray(total).astype(x.dtype), image)) == 0
    assert float(image.high) - float(image.low) < 0.01 * max(1, abs(float(image.value)))


@pytest.mark.parametrize(
    "op, kind, values",
    [
        ("sum", "f32", np.arange(-40, 90)),
        ("sum", "bf16", np.arange(-40, 90) / 8),
        ("sum", "f32", [np.inf, 1, 2.5]),
        ("sum", "f32", [np.inf, -np.inf]),
        ("sum", "f16", [np.nan, 1]),
        ("prod", "f32", [2, 3, 4, -5, 7]),
        ("prod", "f16", [0.0, 3, 2.5]),
        ("max", "f32", np.linspace(0, 1, 9)),
        ("argmin", "f32", np.linspace(0, 1, 9)),
        ("sum", "i32", [1, 2, 3]),
    ],
)
def test_what_no_order_changes_is_exact(op, kind, values):
    x = np.asarray(values).astype(DTYPES[kind])
    result = "i32" if op == "argmin" else kind
    line = f"%r = tile.reduce {op} %a axis 0 : tensor<{len(x)}x{kind}> -> {result}"
    assert not isinstance(meaning_of(line, {"a": f"tensor<{len(x)}x{kind}>"})(x), Interval)


def test_the_zero_of_a_sum_has_either_sign():
    x = np.array([1, -1, -0.0], np.float32)
    image = meaning_of("%r = tile.reduce sum %a axis 0 : tensor<3xf32> -> f32", {"a": "tensor<3xf32>"})(x)
    assert isinstance(image, Interval) and np.signbit(image.low) and not np.signbit(image.high)
    inverse = meaning_of("%r = math.rsqrt %a : f32", {"a": "f32"})(image)
    assert is_anything(inverse)
    same = meaning_of("%r = tile.cmp oeq %a, %b : f32 -> i1", {"a": "f32", "b": "f32"})(image, np.zeros((), np.float32))
    assert not isinstance(same, Interval) and bool(same)


def test_finite_parts_may_overflow_to_the_other_infinity():
    # In one order the sum is -inf; in another 2e38 + 2e38 is +inf first, and +inf - inf is NaN.
    line = "%r = tile.reduce sum %a axis 0 : tensor<3xf32> -> f32"
    total = meaning_of(line, {"a": "tensor<3xf32>"})
    assert is_anything(total(np.array([-np.inf, 2e38, 2e38], np.float32)))
    assert not isinstance(total(np.array([-np.inf, 2e38, 1e38], np.float32)), Interval)
    line = "%r = tile.dot %a, %b, %c : tensor<1x3xbf16>, tensor<3x1xbf16> -> tensor<1x1xf32>"
    dot = meaning_of(line, {"a": "tensor<1x3xbf16>", "b": "tensor<3x1xbf16>", "c": "tensor<1x1xf32>"})
    column, zero = np.ones((3, 1), ta.BF16), np.zeros((1, 1), np.float32)
    assert is_anything(dot(np.array([[-np.inf, 2e38, 2e38]], ta.BF16), column, zero))
    assert not isinstance(dot(np.array([[-np.inf, 2e38, 5e37]], ta.BF16), column, zero), Interval)


ANYTHING = Interval(np.array(np.nan, np.float32), np.array(-np.inf, np.float32), np.array(np.inf, np.float32))


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("number", [0.0, 1.0, -np.inf, np.inf, np.nan])
def test_an_operand_of_a_dot_that_may_be_anything_is_not_its_nominal_nan(which, number):
    """In a product with zeros its width says nothing either."""
    kinds = ["tensor<2x3xf32>", "tensor<3x4xf32>", "tensor<2x4xf32>"]
    dot = meaning_of(f"%r = tile.dot %a, %b, %c : {', '.join(kinds[:2])} -> {kinds[2]}", dict(zip("abc", kinds)))
    certain = [np.zeros(shape, np.float32) for shape in ((2, 3), (3, 4), (2, 4))]
    operands: list = list(certain)
    operands[which] = Interval(*(certain[which].copy() for _ in range(3)))
    for part, end in zip(operands[which].parts, ANYTHING.parts):
        part[0, 0] = end
    image = dot(*operands)
    certain[which][0, 0] = number
    assert len(mismatches(parts(dot(*certain))[0], image)) == 0
    reached = {0: [[1, 1, 1, 1], [0] * 4], 1: [[1, 0, 0, 0]] * 2, 2: [[1, 0, 0, 0], [0] * 4]}[which]
    assert is_anything(image).astype(int).tolist() == reached


@pytest.mark.parametrize("line", [*ELEMENTWISE, *APPROXIMATED, "tile.reduce sum %a axis 1 : {t} -> tensor<4xf32>", "tile.reduce prod %a axis 1 : {t} -> tensor<4xf32>",
                                  "tile.reduce max %a axis 1 : {t} -> tensor<4xf32>", "tile.reduce argmin %a axis 1 : {t} -> tensor<4xi32>",
                                  "tile.scan sum %a axis 1 : {t} -> {t}", "tile.scan max %a axis 1 : {t} -> {t}"])
def test_what_may_be_anything_is_not_its_nominal_nan(line):
    t = "tensor<4x6xf32>"
    function = meaning_of(f"%r = {line.format(t=t, i1='tensor<4x6xi1>')}", dict.fromkeys("abc", t))
    names = [name for name in "abc" if f"%{name}" in line]
    certain = [np.full((4, 6), 0.5, np.float32) for _ in names]
    for position in range(len(names)):
        operands: list = list(certain)
        operands[position] = Interval(*(np.full((4, 6), end, np.float32) for end in ANYTHING.parts))
        image = function(*operands)
        for number in (0.0, 2.0, -np.inf, np.inf, np.nan):
            given = list(certain)
            given[position] = np.full((4, 6), number, np.float32)
            image_parts = image if isinstance(image, Interval) else Interval(image, image, image)
            assert len(mismatches(parts(function(*given))[0], image_parts)) == 0, (position, number)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_signalling_nans_are_compared_without_an_invalid_operation(kind):
    dtype = DTYPES[kind]
    signalling = {"f16": 0x7D01, "bf16": 0x7F81, "f32": 0x7F800001, "f64": 0x7FF0000000000001}[kind]
    x = np.array([signalling], np.dtype(f"u{np.dtype(dtype).itemsize}")).view(dtype)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(mismatches(x, Interval(x, x, x))) == 0
        assert not is_anything(Interval(x, x, x)).any()
        assert len(mismatches(x, Interval(np.ones_like(x), np.ones_like(x), np.ones_like(x)))) == 1


@pytest.mark.parametrize("kind", ["i1", "f32", "i64"])
def test_gathers_are_sound_and_keep_bounds(kind):
    rng = np.random.default_rng(4)
    types = {"a": f"tensor<4x6x{kind}>", "b": "tensor<4x9xi32>"}
    gather = meaning_of(f"%r = tile.gather %a[%b] axis 1 : {types['a']}[{types['b']}] -> tensor<4x9x{kind}>", types)
    low = np.zeros((4, 6), np.bool_) if kind == "i1" else (rng.standard_normal((4, 6)) * 10).astype({"f32": np.float32, "i64": np.int64}[kind])
    x = Interval(low, low, ~low if kind == "i1" else low + 2)
    first = rng.integers(-2, 8, (4, 9)).astype(np.int32)
    last = first + (rng.random((4, 9)) < 0.3)
    image = gather(x, Interval(first, first, last.astype(np.int32)))
    assert (is_anything(image) == (first != last)).all() or kind == "i1"
    inside = (first >= 0) & (first < 6) & (first == last)
    assert ((image.high != image.low) == (np.take_along_axis(x.high != x.low, np.clip(first, 0, 5), 1)))[inside].all()
    assert not image.high[(first == last) & ~inside].any()


def test_a_dot_of_small_integers_is_exact_and_one_of_fractions_is_not():
    rng = np.random.default_rng(0)
    line = "%r = tile.dot %a, %b, %c : tensor<4x64xbf16>, tensor<64x4xbf16> -> tensor<4x4xf32>"
    function = meaning_of(line, {"a": "tensor<4x64xbf16>", "b": "tensor<64x4xbf16>", "c": "tensor<4x4xf32>"})
    zero = np.zeros((4, 4), np.float32)
    small = [rng.integers(-8, 8, shape).astype(ta.BF16) for shape in ((4, 64), (64, 4))]
    assert not isinstance(function(*small, zero), Interval)
    other = [rng.standard_normal(shape).astype(ta.BF16) for shape in ((4, 64), (64, 4))]
    image = function(*other, zero)
    assert isinstance(image, Interval) and float(np.max(image.high - image.low)) < 1e-2


def test_anything_passes_through_and_is_not_lost():
    x = interval(np.ones(3, np.float32), np.ones(3, np.float32), np.ones(3, np.float32), np.array([True, False, False]))
    types = dict.fromkeys("ab", "tensor<3xf32>")
    for line in ("arith.maximumf %a, %b", "arith.mulf %a, %b", "arith.maxnumf %a, %b"):
        out = meaning_of(f"%r = {line} : tensor<3xf32>", types)(x, np.zeros(3, np.float32))
        assert is_anything(out).tolist() == [True, False, False]
    out = meaning_of("%r = math.exp %a : tensor<3xf32>", types)(x)
    assert is_anything(out).tolist() == [True, False, False]


@pytest.mark.parametrize("kind", ["i8", "i32"])
def test_histograms_are_sound(kind):
    share = check_soundness("tile.histogram %a : {t} -> tensor<16xi32>", kind)
    assert share == 1.0  # every bin has bounds


def test_a_histogram_counts_what_is_certain_and_what_may_be():
    """Elements 1, 1, 2 and two that are not known: one of 0 … 2, one of -5 … 0; and one that may be anything."""
    histogram = meaning_of("%r = tile.histogram %a : tensor<5xi32> -> tensor<4xi32>", {"a": "tensor<5xi32>"})
    x = np.array([1, 1, 2, 1, -5], np.int32)
    out = histogram(Interval(x, np.array([1, 1, 2, 0, -5], np.int32), np.array([1, 1, 2, 2, 0], np.int32)))
    assert [part.tolist() for part in parts(out)] == [[0, 3, 1, 0], [0, 2, 1, 0], [2, 3, 2, 0]]
    assert histogram(x).tolist() == [0, 3, 1, 0]
    out = histogram(interval(x, x, x, np.array([False] * 4 + [True])))
    assert [part.tolist() for part in parts(out)] == [[0, 3, 1, 0], [0, 3, 1, 0], [1, 4, 2, 1]]


def test_uncertain_conditions_and_divisors_are_undecided():
    text = """
tile.kernel @k(%x: memref<?xf32> [N]) grid(%i = 1) {
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero] : memref<?xf32> -> tensor<64xf32>
  %s = tile.reduce sum %v axis 0 : tensor<64xf32> -> f32
  %p = tile.cmp ogt %s, %s : f32 -> i1
  scf.if %p {
    tile.store %v, %x[%zero] : tensor<64xf32>, memref<?xf32>
  }
}"""
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    with pytest.raises(TeselaError, match=r"<string>:7:3: error: what the program does here depends on a value"):
        allowed_results(parse_module(text), {"x": x})
    allowed_results(parse_module(text), {"x": np.arange(64, dtype=np.float32)})  # an exact sum decides


def test_a_whole_program_and_the_message_for_a_wrong_answer():
    module = parse_module((EXAMPLES / "softmax.mlir").read_text())
    x = np.random.default_rng(0).standard_normal((3, 1500)).astype(np.float32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    allowed = allowed_results(module, arrays)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    other = (e / e.sum(1, keepdims=True)).astype(np.float32)
    check_results({"y": other}, allowed)
    width = (allowed["y"].high - allowed["y"].low) / other
    assert 0 < width.max() < 1e-3
    other[1, 2] *= 1.01
    with pytest.raises(
        TeselaError,
        match=r"array 'y': 1 of 4500 elements are wrong; the first, \[1, 2\], is .*, not .* \(from .* to .*\)",
    ):
        check_results({"y": other}, allowed)


def test_a_block_reads_its_uncertain_results_back():
    text = """
tile.kernel @k(%x: memref<?xf32> [N], %y: memref<?xf32> [N]) grid(%i = 1) {
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero] : memref<?xf32> -> tensor<8xf32>
  %e = math.exp %v : tensor<8xf32>
  tile.store %e, %y[%zero] : tensor<8xf32>, memref<?xf32>
  %w = tile.load %y[%zero] : memref<?xf32> -> tensor<8xf32>
  %d = arith.subf %w, %e : tensor<8xf32>
  tile.store %d, %y[%zero] : tensor<8xf32>, memref<?xf32>
}"""
    arrays = {"x": np.linspace(0, 1, 8).astype(np.float32), "y": np.zeros(8, np.float32)}
    allowed = allowed_results(parse_module(text), arrays)["y"]
    assert np.all(allowed.low <= 0) and np.all(allowed.high >= 0) and np.any(allowed.high > 1e-8)


def test_bf16_results_are_bounded_in_bf16():
    x = np.linspace(-3, 3, 50).astype(ml_dtypes.bfloat16)
    image = meaning_of("%r = math.tanh %a : tensor<50xbf16>", {"a": "tensor<50xbf16>"})(x)
    assert isinstance(image, Interval) and image.dtype == ta.BF16
    steps = image.high.view(np.int16).astype(int) - image.low.view(np.int16).astype(int)
    assert np.abs(steps).max() <= 2


def test_sine_of_a_huge_number_may_be_anything_from_minus_one_to_one() -> None:
    """The ISA bounds sin.approx up to 100π only; an H200 gives -0 for 1e38."""
    module = parse_module("""tile.kernel @k(%a: memref<?xf32, strided<[1]>> [N], %r: memref<?xf32, strided<[1]>> [N]) grid(%g = 1) {
      %i = arith.constant 0 : index
      %x = tile.load %a[%i] : memref<?xf32, strided<[1]>> -> tensor<2xf32>
      %s = math.sin %x : tensor<2xf32>
      tile.store %s, %r[%i] : tensor<2xf32>, memref<?xf32, strided<[1]>>
    }""")
    arrays = {"a": np.array([1e38, 1], np.float32), "r": np.zeros(2, np.float32)}
    _, low, high = allowed_results(module, arrays)["r"].parts
    assert low[0] <= -1 and high[0] >= 1
    assert high[1] - low[1] < 2**-18


def test_the_size_of_what_may_be_nan_may_be_nan():
    """A product of zeros and of numbers that overflow is NaN in some orders."""
    x = np.array([0.0, 3e38, 3e38, 1.0], np.float32)
    out = np.zeros(1, np.float32)
    text = """tile.kernel @k(%x: memref<?xf32> [N], %y: memref<?xf32> [M]) grid(%i = 1) {
      %c0 = arith.constant 0 : index
      %v = tile.load %x[%c0] : memref<?xf32> -> tensor<4xf32>
      %p = tile.reduce prod %v axis 0 : tensor<4xf32> -> f32
      %a = math.absf %p : f32
      tile.store %a, %y[%c0] : f32, memref<?xf32>
      tile.return
    }"""
    allowed = allowed_results(parse_module(text), {"x": x, "y": out})
    check_results({"y": np.array([np.nan], np.float32)}, allowed)


def test_atomic_sums_that_overflow_in_some_order_may_be_anything_and_infinities_stay():
    """Numbers within bounds, infinities and numbers near the largest among them, added in every order and rounded each time: all sums are allowed."""
    rng = np.random.default_rng(0)
    choices = np.float32([1, -2, 3e38, -3e38, np.inf, -np.inf])
    for _ in range(300):
        ends = rng.choice(choices, (4, 2))
        low, high = ends.min(1), ends.max(1)
        sums = AtomicSums(np.zeros(1, np.float32), np.zeros(1, np.float32), np.inf)
        for a, b in zip(low, high):
            sums.add((np.array([0]),), a[None], b[None], 0.0)
        bottom, top = sums.bounds((np.array([0]),), np.dtype(np.float32))
        anything = sums.may_be_anything((np.array([0]),), np.dtype(np.float32))
        allowed = interval(bottom, bottom, top, anything)
        for order in permutations(range(4)):
            total = np.float32(0)
            for i in order:
                total = total + rng.choice((low[i], high[i]))
            assert not len(mismatches(np.array([total]), allowed if isinstance(allowed, Interval) else Interval(bottom, bottom, top))), (ends, total)


def test_the_sum_of_an_infinity_is_an_infinity_and_nothing_else():
    sums = AtomicSums(np.zeros(1, np.float32), np.zeros(1, np.float32), np.inf)
    at = (np.array([0]),)
    sums.add(at, np.float32([np.inf]), np.float32([np.inf]), 0.0)
    sums.add(at, np.float32([5]), np.float32([5]), 1.0)
    low, high = sums.bounds(at, np.dtype(np.float32))
    assert low == high == np.inf and not sums.may_be_anything(at, np.dtype(np.float32))
    bounds = Interval(np.float32([2]), np.float32([1]), np.float32([np.inf]))
    with pytest.raises(TeselaError, match=r"is nan, not 2.0 \(from 1.0 to inf\)"):
        check_results({"y": np.float32([np.nan])}, {"y": bounds})
def test_atomic_updates_by_integers_that_are_not_known():
    """Sums stay within bounds, those that might wrap may be anything and stay so, and of bits nothing is known once one is open."""
    text = """
tile.kernel @k(%x: memref<?xf32> [N], %h: memref<?xi32> [H], %b: memref<?xi32> [B]) grid(%i = 2) {
  %zero = arith.constant 0 : index
  %v = tile.load %x[%zero] : memref<?xf32> -> tensor<64xf32>
  %s = tile.reduce sum %v axis 0 : tensor<64xf32> -> f32
  %n = tile.cast %s : f32 -> i32
  %one = arith.constant 1 : i32
  %big = arith.constant 2147483647 : i32
  %at1 = arith.constant 1 : index
  %at2 = arith.constant 2 : index
  %o0 = tile.atomic add %n, %h[%zero] dims [] : i32, memref<?xi32>[index] -> i32
  %o1 = tile.atomic add %n, %h[%at1] dims [] : i32, memref<?xi32>[index] -> i32
  %o2 = tile.atomic add %big, %h[%at1] dims [] : i32, memref<?xi32>[index] -> i32
  %o3 = tile.atomic add %big, %h[%at2] dims [] : i32, memref<?xi32>[index] -> i32
  %o4 = tile.atomic add %one, %h[%at1] dims [] : i32, memref<?xi32>[index] -> i32
  %o5 = tile.atomic xor %n, %b[%zero] dims [] : i32, memref<?xi32>[index] -> i32
  %o6 = tile.atomic and %one, %b[%zero] dims [] : i32, memref<?xi32>[index] -> i32
  %o7 = tile.atomic or %one, %b[%at1] dims [] : i32, memref<?xi32>[index] -> i32
}"""
    x = (np.random.default_rng(0).random(64) * 1e6).astype(np.float32)
    allowed = allowed_results(parse_module(text), {"x": x, "h": np.full(3, 5, np.int32), "b": np.full(2, 4, np.int32)})
    h, b = allowed["h"], allowed["b"]
    total = 2 * int(x.astype(np.float64).sum()) + 5
    assert h.low[0] <= total <= h.high[0] and 0 < int(h.high[0]) - int(h.low[0]) < total // 1000
    assert is_anything(h).tolist() == [False, True, False] and h.low[2] == h.high[2] == 3
    assert is_anything(b).tolist() == [True, False] and b.low[1] == b.high[1] == 5
