"""Every elementwise op of every element type, compiled and simulated, against the block interpreter (docs/numbers.md)."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import DTYPES, EXACT_FLOATS, FLOATS, INTEGERS, close, run_both, same, values

N = 300  # not a multiple of the threads

EXACT_FLOAT = ("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
EXACT_UNARY = ("arith.negf", "math.absf", "math.ceil", "math.floor", "math.sqrt")
# op -> (relative, absolute) error against the exact value in f32 (numbers.md N14 to N20)
APPROXIMATE = {
    "math.exp2": (2**-22, 2**-126),
    "math.log2": (2**-21, 2**-21),
    "math.log": (2**-21, 2**-21),
    "math.rsqrt": (2**-22, 0.0),
    "math.tanh": (2**-10, 2**-16),
    "math.sin": (0.0, 2**-14),
    "math.cos": (0.0, 2**-14),
}
INT_BINARY = (
    "arith.addi", "arith.subi", "arith.muli", "arith.andi", "arith.ori", "arith.xori", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui",
    "arith.shli", "arith.shrsi", "arith.shrui",
)  # fmt: skip
DIVISIONS = ("arith.divsi", "arith.remsi", "arith.floordivsi", "arith.ceildivsi", "arith.divui", "arith.remui", "arith.ceildivui")
ROUNDING = {"f32": 2**-23, "f16": 2**-10, "bf16": 2**-7}


def program(body: str, arguments: dict[str, str], result: str, n: int = N) -> str:
    """A kernel that loads `arguments` (name -> element type) as tiles of n, runs `body` and stores %r."""
    array = "memref<?x{}, strided<[1]>>"
    names = ", ".join(f"%{name}: {array.format(kind)} [N]" for name, kind in {**arguments, "out": result}.items())
    loads = "\n".join(
        f"  %{name}_t = tile.load %{name}[%c0] : {array.format(kind)} -> tensor<{n}x{kind}>" for name, kind in arguments.items()
    )
    return (
        f"tile.kernel @k({names}) grid(%b = 1) {{\n  %c0 = arith.constant 0 : index\n{loads}\n  {body}\n"
        f"  tile.store %r, %out[%c0] : tensor<{n}x{result}>, {array.format(result)}\n}}\n"
    )


def check(text: str, arrays: dict[str, np.ndarray], exact: bool = True, relative: float = 0.0, absolute: float = 0.0) -> None:
    simulated, interpreted = run_both(text, arrays)
    if exact:
        same(simulated["out"], interpreted["out"])
    else:
        close(simulated["out"], interpreted["out"], relative, absolute)


@pytest.mark.parametrize("dtype", EXACT_FLOATS)
@pytest.mark.parametrize("op", EXACT_FLOAT)
def test_float_binary(op: str, dtype: str) -> None:
    text = program(f"%r = {op} %x_t, %y_t : tensor<{N}x{dtype}>", {"x": dtype, "y": dtype}, dtype)
    check(text, {"x": values(dtype, (N,), 1), "y": values(dtype, (N,), 2), "out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("dtype", EXACT_FLOATS)
@pytest.mark.parametrize("op", EXACT_UNARY)
def test_float_unary(op: str, dtype: str) -> None:
    text = program(f"%r = {op} %x_t : tensor<{N}x{dtype}>", {"x": dtype}, dtype)
    check(text, {"x": values(dtype, (N,), 1), "out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("dtype", EXACT_FLOATS)
def test_fma_rounds_once(dtype: str) -> None:
    text = program(f"%r = math.fma %x_t, %y_t, %z_t : tensor<{N}x{dtype}>", {"x": dtype, "y": dtype, "z": dtype}, dtype)
    arrays = {name: values(dtype, (N,), seed) for seed, name in enumerate(("x", "y", "z", "out"))}
    check(text, arrays)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", APPROXIMATE)
def test_approximate(op: str, dtype: str) -> None:
    relative, absolute = APPROXIMATE[op]
    text = program(f"%r = {op} %x_t : tensor<{N}x{dtype}>", {"x": dtype}, dtype)
    x = values(dtype, (N,), 4)
    if op in ("math.sin", "math.cos"):
        x = np.where(np.abs(x.astype(np.float64)) < 300, x, np.asarray(1, x.dtype))
    check(text, {"x": x, "out": values(dtype, (N,), 3)}, False, relative + ROUNDING[dtype], absolute + (2**-24 if dtype == "f16" else 0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp(dtype: str) -> None:
    text = program(f"%r = math.exp %x_t : tensor<{N}x{dtype}>", {"x": dtype}, dtype)
    x = values(dtype, (N,), 4)
    # |x| 2^-23.5 is at most 2^-17 where the result is neither zero nor infinite
    check(text, {"x": x, "out": values(dtype, (N,), 3)}, False, 2**-16 + ROUNDING[dtype], 2**-24 if dtype == "f16" else 2**-125)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", INT_BINARY)
def test_int_binary(op: str, dtype: str) -> None:
    text = program(f"%r = {op} %x_t, %y_t : tensor<{N}x{dtype}>", {"x": dtype, "y": dtype}, dtype)
    y = values(dtype, (N,), 2)
    if op.startswith("arith.sh"):
        y[::2] = np.arange(len(y[::2])) % 70
    check(text, {"x": values(dtype, (N,), 1), "y": y, "out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", DIVISIONS)
def test_division(op: str, dtype: str) -> None:
    text = program(f"%r = {op} %x_t, %y_t : tensor<{N}x{dtype}>", {"x": dtype, "y": dtype}, dtype)
    y = values(dtype, (N,), 2)
    y[y == 0] = 3
    check(text, {"x": values(dtype, (N,), 1), "y": y, "out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("dtype", INTEGERS)
def test_absi(dtype: str) -> None:
    text = program(f"%r = math.absi %x_t : tensor<{N}x{dtype}>", {"x": dtype}, dtype)
    check(text, {"x": values(dtype, (N,), 1), "out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("op", ("arith.andi", "arith.ori", "arith.xori"))
def test_logic(op: str) -> None:
    text = program(f"%r = {op} %x_t, %y_t : tensor<{N}xi1>", {"x": "i1", "y": "i1"}, "i1")
    check(text, {"x": values("i1", (N,), 1), "y": values("i1", (N,), 2), "out": values("i1", (N,), 3)})


FLOAT_PREDICATES = ("oeq", "one", "olt", "ole", "ogt", "oge", "ueq", "une", "ult", "ule", "ugt", "uge")
INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge")


@pytest.mark.parametrize(
    ("dtype", "predicate"),
    [*((d, p) for d in EXACT_FLOATS for p in FLOAT_PREDICATES), *((d, p) for d in INTEGERS for p in INT_PREDICATES), ("i1", "eq"), ("i1", "ne")],
)
def test_cmp(dtype: str, predicate: str) -> None:
    text = program(
        f"%r = tile.cmp {predicate} %x_t, %y_t : tensor<{N}x{dtype}> -> tensor<{N}xi1>", {"x": dtype, "y": dtype}, "i1"
    )
    x, y = values(dtype, (N,), 1), values(dtype, (N,), 2)
    y[::3] = x[::3]
    check(text, {"x": x, "y": y, "out": values("i1", (N,), 3)})


@pytest.mark.parametrize("dtype", (*EXACT_FLOATS, *INTEGERS, "i1", "ui8"))
def test_select(dtype: str) -> None:
    text = program(
        f"%r = tile.select %p_t, %x_t, %y_t : tensor<{N}xi1>, tensor<{N}x{dtype}>", {"p": "i1", "x": dtype, "y": dtype}, dtype
    )
    arrays = {"p": values("i1", (N,), 0), "x": values(dtype, (N,), 1), "y": values(dtype, (N,), 2), "out": values(dtype, (N,), 3)}
    check(text, arrays)


ALL = (*EXACT_FLOATS, *INTEGERS, "i1", "ui8")


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in ALL for b in ALL if a != b])
def test_cast(source: str, target: str) -> None:
    text = program(f"%r = tile.cast %x_t : tensor<{N}x{source}> -> tensor<{N}x{target}>", {"x": source}, target)
    check(text, {"x": values(source, (N,), 1), "out": values(target, (N,), 3)})


@pytest.mark.parametrize("target", ("f16", "bf16"))
def test_cast_ties_and_saturation(target: str) -> None:
    ties = np.array([1.00390625, 1.01171875, 1.0004883, 1.0014648, 65519.0, 65520.0, 3.3961775e38, np.inf, -np.inf, np.nan], np.float32)
    x = np.resize(ties, N).astype(np.float32)
    for word in ("", "saturate "):
        text = program(f"%r = tile.cast {word}%x_t : tensor<{N}xf32> -> tensor<{N}x{target}>", {"x": "f32"}, target)
        check(text, {"x": x, "out": values(target, (N,), 3)})


@pytest.mark.parametrize("source", (*EXACT_FLOATS, *INTEGERS))
@pytest.mark.parametrize("target", EXACT_FLOATS)
def test_saturating_cast(source: str, target: str) -> None:
    """Infinities saturate too, also where the target is wider or the same, and integers past f16's largest number."""
    text = program(f"%r = tile.cast saturate %x_t : tensor<{N}x{source}> -> tensor<{N}x{target}>", {"x": source}, target)
    check(text, {"x": values(source, (N,), 1), "out": values(target, (N,), 3)})


@pytest.mark.parametrize("source", ("i32", "i64"))
@pytest.mark.parametrize("target", ("f16", "bf16", "f32"))
def test_large_integers_round_once(source: str, target: str) -> None:
    """2^24 + 1 and its like are ties, or just above them, only if they are rounded in one step."""
    base = np.array([2**24 + 1, 2**24 + 3, 33554433, 16842753, 16842752, 2049, 4098, 65520, 65519, 257, 513, 2**31 - 1, -(2**31)], np.int64)
    x = np.resize(np.concatenate([base, -base]), N)
    if source == "i64":
        x = np.where(np.arange(N) % 2 == 0, x, x * (2**29 + 1))
    else:
        x = np.clip(x, -(2**31), 2**31 - 1)
    text = program(f"%r = tile.cast %x_t : tensor<{N}x{source}> -> tensor<{N}x{target}>", {"x": source}, target)
    check(text, {"x": x.astype(np.int32 if source == "i32" else np.int64), "out": values(target, (N,), 3)})


@pytest.mark.parametrize("dtype", (*EXACT_FLOATS, "i32", "i64", "i1"))
def test_constants(dtype: str) -> None:
    value = "true" if dtype == "i1" else ("-1.5" if dtype in EXACT_FLOATS else "-3")
    kind = "" if dtype == "i1" else f" : {dtype}"
    text = program(f"%c = arith.constant {value}{kind}\n  %r = tile.full %c : {dtype} -> tensor<{N}x{dtype}>", {}, dtype)
    check(text, {"out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("word", ("inf", "-inf", "nan"))
@pytest.mark.parametrize("dtype", FLOATS)
def test_special_constants(word: str, dtype: str) -> None:
    text = program(f'%c = tile.constant "{word}" : {dtype}\n  %r = tile.full %c : {dtype} -> tensor<{N}x{dtype}>', {}, dtype)
    check(text, {"out": values(dtype, (N,), 3)})


@pytest.mark.parametrize("n", (N, 129))
@pytest.mark.parametrize("kind", ("f8E4M3FN", "f8E5M2"))
@pytest.mark.parametrize("target", ("sm_80", "sm_90a"))
def test_every_8_bit_float_and_every_tie_between_two(kind: str, target: str, n: int) -> None:
    """Emulated and by cvt: all numbers to f32 and back, and what lies between two neighbours, near them and past the largest."""
    every = np.arange(256, dtype=np.uint8).view(DTYPES[kind])
    wide = np.sort(every.astype(np.float32)[np.isfinite(every.astype(np.float32))])
    ties = (wide[1:] + wide[:-1]) / 2
    largest = wide[-1]
    some = np.concatenate([wide, ties, np.nextafter(ties, -np.inf), np.nextafter(ties, np.inf), [1e9, largest * 1.07, -np.inf, np.inf, np.nan, 1e-30]])
    for start in range(0, len(some), n):
        x = np.zeros(n, np.float32)
        x[: len(some[start : start + n])] = some[start : start + n]
        text = program(f"%r = tile.cast %x_t : tensor<{n}xf32> -> tensor<{n}x{kind}>", {"x": "f32"}, kind, n)
        simulated, interpreted = run_both(text, {"x": x, "out": np.zeros(n, DTYPES[kind])}, target)
        same(simulated["out"], interpreted["out"])
    x = np.resize(every, n)
    text = program(f"%r = tile.cast %x_t : tensor<{n}x{kind}> -> tensor<{n}xf32>", {"x": kind}, "f32", n)
    simulated, interpreted = run_both(text, {"x": x, "out": np.zeros(n, np.float32)}, target)
    same(simulated["out"], interpreted["out"])
