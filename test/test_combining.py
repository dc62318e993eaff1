"""Scans and reductions by a function of the program: what it may be, over one and several tiles, all element types, layouts, directions; in the simulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import run_both, same

import tesela
from tesela import Array, bf16, f16, f32, f64, i1, i8, i32, i64
from tesela.dialects.diagnostics import TeselaError
from tesela.simulator import settings

M, N = tesela.dims("M N")
T = tesela.dtype("T")

LAYOUTS = {
    "values, lanes, warps": "thread [32:(0,4), 4:(0,128)], value [4:(0,1), 8:(1,0)]",
    "lanes, values, warps": "thread [4:(0,1), 8:(1,0), 4:(0,128)], value [32:(0,4)]",
    "values, warps, lanes": "thread [32:(0,16), 4:(0,4)], value [4:(0,1), 8:(1,0)]",
    "copies": "thread [16:(0,32), 2:(0,0), 4:(2,0)], value [32:(0,1), 2:(1,0)]",
    "lanes, warps, values": "thread [8:(1,0), 4:(0,1), 4:(0,4)], value [32:(0,16)]",
    "no digits": "thread [32:(0,4), 4:(0,128)], value [8:(0,1), 8:(1,0)]",
}
FORMS = ("fold", "", "reverse", "exclusive (%one, %zero)", "reverse exclusive (%one, %zero)")


def program(shape: tuple[int, ...], axis: int, form: str, layout: str = "", warps: int = 4) -> str:
    """(a, b) ∘ (c, d) = (a·c, c·b + d) on i32, which wraps: associative, not commutative, and exact in every order."""
    rest = tuple(extent for dim, extent in enumerate(shape) if dim != axis)
    names = "MNK"[: len(shape)]

    def types(extents: tuple[int, ...], letters: str) -> tuple[str, str, str]:
        array = f"memref<{'?x' * len(extents)}i32, strided<[{'?, ' * (len(extents) - 1)}1]>>"
        return f"tensor<{'x'.join(map(str, extents))}xi32>", array, ", ".join(letters)

    tile, array, dims = types(shape, names)
    out_shape, letters = (rest, names[:axis] + names[axis + 1 :]) if form == "fold" else (shape, names)
    out, out_array, out_dims = types(out_shape, letters)
    at, out_at = (", ".join(["%c0"] * len(extents)) for extents in (shape, out_shape))
    pin = f" {{layout = #layout.tv<{layout}>}}" if layout else ""
    what = f"tile.fold (%s, %t) axis {axis}" if form == "fold" else f"tile.scan (%s, %t) axis {axis} {form}"
    return f"""
    tile.kernel @k(%x: {array} [{dims}], %y: {array} [{dims}], %p: {out_array} [{out_dims}], %q: {out_array} [{out_dims}])
        grid(%block = 1) attributes {{warps = {warps} : i64}} {{
      %c0 = arith.constant 0 : index
      %one = arith.constant 1 : i32
      %zero = arith.constant 0 : i32
      %s = tile.load %x[{at}]{pin} : {array} -> {tile}
      %t = tile.load %y[{at}] : {array} -> {tile}
      %u, %v = {what} : ({tile}, {tile}) -> ({out}, {out}) {{
      ^bb0(%a: i32, %b: i32, %c: i32, %d: i32):
        %ac = arith.muli %a, %c : i32
        %cb = arith.muli %c, %b : i32
        %cbd = arith.addi %cb, %d : i32
        tile.yield %ac, %cbd : i32, i32
      }}
      tile.store %u, %p[{out_at}] : {out}, {out_array}
      tile.store %v, %q[{out_at}] : {out}, {out_array}
    }}"""


def check(shape: tuple[int, ...], axis: int, form: str, layout: str = "", warps: int = 4) -> None:
    rng = np.random.default_rng(len(shape) + axis)
    x, y = rng.integers(-3, 4, shape).astype(np.int32), rng.integers(-9, 9, shape).astype(np.int32)
    out = tuple(extent for dim, extent in enumerate(shape) if dim != axis) if form == "fold" else shape
    arrays = {"x": x, "y": y, "p": np.zeros(out, np.int32), "q": np.zeros(out, np.int32)}
    with settings(races=True):
        simulated, interpreted = run_both(program(shape, axis, form, layout, warps), arrays)
    for name in "pq":
        same(interpreted[name], simulated[name])
    # and against NumPy, so that both are not wrong alike
    lines = [np.moveaxis(z, axis, 0) for z in (x, y)]
    a, b = np.ones_like(lines[0][0]), np.zeros_like(lines[0][0])
    order = range(shape[axis])[::-1] if "reverse" in form else range(shape[axis])
    found = np.zeros_like(lines[0])
    with np.errstate(over="ignore"):
        for i in order:
            before, (a, b) = b, (a * lines[0][i], lines[0][i] * b + lines[1][i])
            found[i] = before if "exclusive" in form else b
    same(simulated["q"], b if form == "fold" else np.moveaxis(found, 0, axis))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, form):
    check((8, 512), 1, form, LAYOUTS[layout])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shape", "axis", "warps"), [((1000,), 0, 4), ((64, 40), 0, 8), ((3, 129), 1, 4), ((4, 50, 6), 1, 1), ((70, 3, 5), 0, 4), ((2, 1), 1, 4), ((5, 31), 1, 2)]
)
def test_shapes(shape, axis, warps, form):
    if len(shape) == 1 and form == "fold":
        pytest.skip("a scalar: test_scalar_results")
    check(shape, axis, form, warps=warps)


@pytest.mark.parametrize("seed", range(12))
def test_random(seed):
    """Shapes, axes, warps and forms that nobody chose."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(2, 4))
    shape = tuple(int(n) for n in rng.integers(1, 70 if rank == 2 else 14, rank))
    check(shape, int(rng.integers(rank)), FORMS[int(rng.integers(len(FORMS)))], warps=int(rng.choice([1, 2, 4, 8])))


def linear(left, right):
    a, b = left
    c, d = right
    return a * c, c * b + d


def not_smaller(left, right):
    take = right[0] > left[0]
    return tesela.where(take, right[0], left[0]), tesela.where(take, right[1], left[1])


def product(left, right):
    return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]


def welford(left, right):
    n, mean, m2 = left
    count, other, more = right
    total = n + count
    delta = other - mean
    return total, mean + delta * (count / total), m2 + more + delta * delta * (n * count / total)


def last(a, b):
    """The simplest function for which the order matters."""
    return b


@tesela.kernel
def recurrence(A: Array[f32, M, N], B: Array[f32, M, N], H: Array[f32, M, N], Back: Array[f32, M, N], End: Array[f32, M]):
    m = tesela.grid(tesela.ceildiv(M, 4)) * 4
    a, b = A[m : m + 4, 0:100], B[m : m + 4, 0:100]
    H[m : m + 4, 0:100] = tesela.associative_scan(linear, (a, b), axis=1)[1]
    Back[m : m + 4, 0:100] = tesela.associative_scan(linear, (a, b), -1, reverse=True, exclusive=True, identity=(1.0, 0.0))[1]
    End[m : m + 4] = tesela.reduce(linear, (a, b), 1)[1]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_linear_recurrence(target):
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 1, (6, 100)).astype(np.float32), rng.standard_normal((6, 100)).astype(np.float32)
    out = [np.zeros((6, 100), np.float32), np.zeros((6, 100), np.float32), np.zeros(6, np.float32)]
    recurrence.compile(target)(a, b, *out, device="sim")
    forward, back = np.zeros((6, 101)), np.zeros((6, 101))
    for i in range(100):
        forward[:, i + 1] = a[:, i] * forward[:, i] + b[:, i]
        j = 99 - i
        back[:, j] = a[:, j] * back[:, j + 1] + b[:, j]
    np.testing.assert_allclose(out[0], forward[:, 1:], atol=1e-5)
    np.testing.assert_allclose(out[1], back[:, 1:], atol=1e-5)
    np.testing.assert_allclose(out[2], forward[:, -1], atol=1e-5)


@tesela.kernel
def best(X: Array[f32, M, N], Key: Array[f32, M], Place: Array[i32, M], Running: Array[i32, M, N]):
    m = tesela.grid(tesela.ceildiv(M, 8)) * 8
    x = X[m : m + 8, 0:77]
    key, place = tesela.reduce(larger, (x, tesela.arange(77)), axis=1)
    Key[m : m + 8] = key
    Place[m : m + 8] = place
    Running[m : m + 8, 0:77] = tesela.associative_scan(larger, (x, tesela.arange(77)), 1)[1]


def test_the_best_and_where():
    x = np.random.default_rng(2).integers(-20, 20, (9, 77)).astype(np.float32)
    key, place, running = best(x, device="sim")
    same(key, x.max(1))
    same(place, x.argmax(1).astype(np.int32))
    same(running, np.stack([x[:, : i + 1].argmax(1) for i in range(77)], 1).astype(np.int32))


@tesela.kernel
def statistics(X: Array[f32, M, N], Mean: Array[f32, M], Variance: Array[f32, M], Real: Array[f32, M], Imaginary: Array[f32, M]):
    m = tesela.grid(tesela.ceildiv(M, 2)) * 2
    x = X[m : m + 2, 0:300]
    count, mean, m2 = tesela.reduce(welford, (tesela.full((2, 300), 1.0, f32), x, tesela.zeros((2, 300), f32)), 1)
    Mean[m : m + 2] = mean
    Variance[m : m + 2] = m2 / count
    real, imaginary = tesela.reduce(product, (tesela.cos(x), tesela.sin(x)), 1, keepdims=True)
    Real[m : m + 2] = real.reshape(2)
    Imaginary[m : m + 2] = imaginary.reshape(2)


def test_welford_and_complex_products():
    x = np.random.default_rng(3).uniform(-3, 3, (3, 300)).astype(np.float32) + 100 * np.arange(3, dtype=np.float32)[:, None] / 50
    mean, variance, real, imaginary = statistics(x, device="sim")
    np.testing.assert_allclose(mean, x.mean(1, dtype=np.float64), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(variance, x.var(1, dtype=np.float64), rtol=1e-5)
    turn = np.exp(1j * x.astype(np.float64)).prod(1)
    np.testing.assert_allclose(real + 1j * imaginary, turn, atol=2e-3)


TYPES = {
    "f16": (f16, np.float16), "bf16": (bf16, ml_dtypes.bfloat16), "f32": (f32, np.float32), "f64": (f64, np.float64), "i8": (i8, np.int8), "i32": (i32, np.int32),
    "i64": (i64, np.int64), "i1": (i1, np.bool_), "f8E4M3FN": (tesela.f8E4M3FN, ml_dtypes.float8_e4m3fn), "ui8": (tesela.ui8, np.uint8),
    "i16": (tesela.i16, np.int16),
}  # fmt: skip


@tesela.kernel
def latest(X: Array[T, M, N], Pick: Array[i1, M, N], Y: Array[T, M, N], Last: Array[T, M]):
    """Of each element the nearest one to the left that is picked; the elements go through words, shuffles and shared memory untouched."""
    m = tesela.grid(tesela.ceildiv(M, 3)) * 3
    x, pick = X[m : m + 3, 0:150], Pick[m : m + 3, 0:150]
    Y[m : m + 3, 0:150] = tesela.associative_scan(keep, (pick, x), 1)[1]
    Last[m : m + 3] = tesela.reduce(last, x, 1)


def keep(left, right):
    return left[0] | right[0], tesela.where(right[0], right[1], left[1])


@pytest.mark.parametrize("name", TYPES)
def test_types(name):
    dtype = TYPES[name][1]
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2 if name == "i1" else 120, (4, 150)).astype(dtype)
    pick = rng.random((4, 150)) < 0.2
    pick[:, 0] = True
    y, end = latest(x, pick, device="sim")
    places = np.maximum.accumulate(np.where(pick, np.arange(150), 0), axis=1)
    same(y, np.take_along_axis(x, places, 1))
    same(end, x[:, -1].copy())


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_floats_round_at_each_step(name):
    """What a function computes in 16 bits is rounded as elsewhere: sums of small integers are exact."""
    x = np.random.default_rng(5).integers(-2, 3, (4, 100)).astype(TYPES[name][1])
    y = np.zeros_like(x)

    running_sum(x, y, device="sim")
    same(y, np.cumsum(x.astype(np.float32), 1).astype(x.dtype))


def plus(a, b):
    return a + b


@tesela.kernel
def running_sum(X: Array[T, M, N], Y: Array[T, M, N]):
    m = tesela.grid(tesela.ceildiv(M, 4)) * 4
    Y[m : m + 4, 0:100] = tesela.associative_scan(plus, X[m : m + 4, 0:100], 1)


@tesela.kernel
def scalars(X: Array[f32, 50], Y: Array[f32, 4], FN: tesela.constexpr = plus):
    x = X[0:50]
    Y[0] = tesela.reduce(FN, x)
    Y[1] = tesela.reduce(tesela.maximum, tesela.reshape(x, (5, 10)))
    pairs = tesela.reduce(last, tesela.reshape(x, (5, 10)), (0, 1), keepdims=True)
    Y[2] = tesela.sum(pairs)
    Y[3] = tesela.reduce(last, tesela.cumsum(x, 0, reverse=True))


def test_scalar_results():
    """A word of the language, a constexpr, all axes in row-major order."""
    x = np.random.default_rng(6).integers(-9, 9, 50).astype(np.float32)
    same(scalars(x, device="sim"), np.array([x.sum(), x.max(), x[-1], x[-1]], np.float32))


@pytest.mark.parametrize("word", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_kinds_in_reverse(word, exclusive):
    x = np.random.default_rng(7).integers(-2, 3, (3, 70)).astype(np.int32)
    found = backwards(x, WORD=word, EXCLUSIVE=exclusive, device="sim")
    function, identity = {
        "cumsum": (np.add, 0), "cumprod": (np.multiply, 1), "cummax": (np.maximum, -(2**31)), "cummin": (np.minimum, 2**31 - 1),
    }[word]  # fmt: skip
    want = function.accumulate(x[:, ::-1], axis=1)[:, ::-1].astype(np.int32)
    if exclusive:
        want = np.concatenate([want[:, 1:], np.full((3, 1), identity, np.int32)], 1)
    same(found, np.ascontiguousarray(want))


@tesela.kernel
def backwards(X: Array[i32, M, 70], Y: Array[i32, M, 70], WORD: tesela.constexpr = "cumsum", EXCLUSIVE: tesela.constexpr = False):
    m = tesela.grid(M)
    x = X[m : m + 1, :]
    if WORD == "cumsum":
        Y[m : m + 1, :] = tesela.cumsum(x, 1, exclusive=EXCLUSIVE, reverse=True)
    elif WORD == "cumprod":
        Y[m : m + 1, :] = tesela.cumprod(x, 1, exclusive=EXCLUSIVE, reverse=True)
    elif WORD == "cummax":
        Y[m : m + 1, :] = tesela.cummax(x, 1, exclusive=EXCLUSIVE, reverse=True)
    else:
        Y[m : m + 1, :] = tesela.cummin(x, 1, exclusive=EXCLUSIVE, reverse=True)


@tesela.kernel
def in_a_loop(X: Array[f32, M, N], Y: Array[f32, M, N]):
    """A running maximum of rows of any length: a scan of each piece, and what is carried to the next."""
    m = tesela.grid(M)
    most = -1e30
    for j in tesela.range(0, N, 64):
        x = tesela.load(X, (m, j), (64,), fill=-1e30)
        Y[m, j : j + 64] = tesela.maximum(tesela.associative_scan(tesela.maximum, x, 0), most)
        most = tesela.maximum(most, tesela.reduce(tesela.maximum, x))


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 200])
def test_in_a_loop(n):
    x = np.random.default_rng(8).standard_normal((2, n)).astype(np.float32)
    same(in_a_loop(x, device="sim"), np.maximum.accumulate(x, axis=1) if n else x)


def test_bounds_know_when_rounding_depends_on_the_order():
    """Sums of floats by a function are not checked bit for bit, maxima are."""
    from tesela.dialects.parsing import parse_module
    from tesela.simulator.bounds import allowed_results

    def allowed(op: str):
        text = f"""tile.kernel @k(%x: memref<64xf32> [64], %y: memref<64xf32> [64]) grid(%b = 1) {{
          %c0 = arith.constant 0 : index
          %t = tile.load %x[%c0] : memref<64xf32> -> tensor<64xf32>
          %r = tile.scan (%t) axis 0 : (tensor<64xf32>) -> (tensor<64xf32>) {{
          ^bb0(%p: f32, %q: f32):
            %s = arith.{op} %p, %q : f32
            tile.yield %s : f32
          }}
          tile.store %r, %y[%c0] : tensor<64xf32>, memref<64xf32>
        }}"""
        x = np.random.default_rng(9).standard_normal(64).astype(np.float32)
        return allowed_results(parse_module(text), {"x": x, "y": np.zeros(64, np.float32)})["y"]

    sums, maxima = allowed("addf"), allowed("maximumf")
    assert np.all(sums.low < sums.high)
    same(maxima.low, maxima.high)


def test_a_wrong_order_would_be_seen():
    """The function of these tests is not commutative: a fold from the right gives something else."""
    x = np.array([[2, 3, 1, 3]], np.int64)
    y = np.array([[1, 2, 3, 4]], np.int64)
    b = c = 0
    for i in range(4):
        b, c = x[0, i] * b + y[0, i], x[0, 3 - i] * c + y[0, 3 - i]
    assert b != c


def test_a_fold_goes_by_butterflies_alone():
    """Its totals are in all lanes at once; a scan's go up, and from the last lane to all."""
    folded = folds.compile("sm_90a").variant((4, 100), (4,)).ptx
    assert "shfl.sync.bfly" in folded and "shfl.sync.up" not in folded and "shfl.sync.down" not in folded
    scanned = running_sum.compile("sm_90a", T=f32).variant((4, 100), (4, 100)).ptx
    assert "shfl.sync.up" in scanned and "shfl.sync.bfly" not in scanned


@tesela.kernel
def folds(X: Array[f32, M, N], Y: Array[f32, M]):
    m = tesela.grid(tesela.ceildiv(M, 4)) * 4
    Y[m : m + 4] = tesela.reduce(plus, X[m : m + 4, 0:100], 1)


def test_wrong_texts_are_refused():
    with pytest.raises(TeselaError, match="an exclusive scan by a function takes an identity of each element type"):
        run_both(program((4, 8), 1, "exclusive (%one)"), {})


def not_smaller(left, right):
    return tesela.where(right >= left, right, left)


def larger_key(left, right):
    (key, at), (other, there) = left, right
    other_wins = other > key
    return tesela.where(other_wins, other, key), tesela.where(other_wins, there, at)


@tesela.kernel
def largest_keys(keys: Array[i32, M, N], best: Array[i32, M], at: Array[i32, M], top: Array[i32, M, N]):
    i = tesela.grid(tesela.ceildiv(M, 4)) * 4
    best[i : i + 4], at[i : i + 4] = tesela.reduce(larger_key, (keys[i : i + 4, 0:64], tesela.arange(64)), axis=1)
    top[i : i + 4, 0:64] = tesela.associative_scan(not_smaller, keys[i : i + 4, 0:64], axis=1)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_integers_that_are_compared(target):
    """What a function is given are no positions, though they are integers of a tile (bounds.py looks for comparisons of those)."""
    keys = np.random.default_rng(0).integers(-100, 100, (9, 64)).astype(np.int32)
    best, at, top = np.zeros(9, np.int32), np.zeros(9, np.int32), np.zeros_like(keys)
    with settings(races=True):
        largest_keys(keys, best, at, top, target=target, device="sim")
    np.testing.assert_array_equal(best, keys.max(axis=1))
    np.testing.assert_array_equal(at, keys.argmax(axis=1))
    np.testing.assert_array_equal(top, np.maximum.accumulate(keys, axis=1))
