"""docs/numbers.md on a GPU: every operation on all 16-bit patterns or many others, and random programs."""

from __future__ import annotations

import numpy as np
import pytest

from tesela.dialects.parsing import parse_module
from tesela.runtime import driver
from tesela.runtime.compile import compile
from tesela.simulator.bounds import allowed_results, check_results
from tesela.simulator.tile_arithmetic import dtype_named
from tesela.tools.fuzz.check import check, compiled
from tesela.tools.fuzz.generate import generate

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

N = 1 << 16
FLOATS = ("f16", "bf16", "f32")
INTEGERS = ("i8", "i16", "i32", "i64")
FLOAT_OPS = [
    *(f"arith.{op}f %a, %b : {{t}}" for op in ("add", "sub", "mul", "div", "maximum", "minimum", "maxnum", "minnum")),
    *(f"math.{op} %a : {{t}}" for op in ("absf", "ceil", "floor", "sqrt")),
    *(f"math.{op} %a : {{t}}" for op in ("exp", "exp2", "log", "log2", "rsqrt", "tanh", "sin", "cos")),
    "arith.negf %a : {t}",
    "math.fma %a, %b, %a : {t}",
]
INTEGER_OPS = [
    *(
        f"arith.{op} %a, %b : {{t}}"
        for op in ("addi", "subi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori")
    ),
    *(f"arith.{op} %a, %b : {{t}}" for op in ("shli", "shrui", "shrsi")),
    *(
        f"arith.{op} %a, %d : {{t}}"
        for op in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
    ),
    "math.absi %a : {t}",
]


def patterns(kind: str, seed: int) -> np.ndarray:
    """All patterns of a 16-bit type, in random order; otherwise random ones, half of them numbers of ordinary size."""
    dtype, rng = dtype_named(kind), np.random.default_rng(seed)
    if dtype.itemsize == 2:
        return rng.permutation(np.arange(N, dtype=np.uint16)).view(dtype)
    bits = rng.integers(0, 256, (N, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(-1)
    ordinary = (rng.standard_normal(N) * 20).astype(dtype)
    return np.where(rng.random(N) < 0.5, ordinary, bits)


def check_line(line: str, source: str, target: str) -> None:
    """`line` computes %r (a tile of `target`) from %a, %b and %d, tiles of `source`, the last without zeros."""
    kinds = {"a": source, "b": source, "d": source, "r": target}
    arguments = ", ".join(f"%{name}_p: memref<?x{kind}, strided<[1]>> [N]" for name, kind in kinds.items())
    loads = "\n".join(
        f"  %{name} = tile.load %{name}_p[%i] : memref<?x{source}, strided<[1]>> -> tensor<1024x{source}>"
        for name in "abd"
    )
    module = parse_module(f"""
tile.kernel @k({arguments}) grid(%g = N ceildiv 1024) {{
  %c1024 = arith.constant 1024 : index
  %i = arith.muli %g, %c1024 : index
{loads}
  %r = {line}
  tile.store %r, %r_p[%i] : tensor<1024x{target}>, memref<?x{target}, strided<[1]>>
}}""")
    a, b = patterns(source, 1), patterns(source, 2)
    arrays = {"a_p": a, "b_p": b, "d_p": np.where(b == 0, np.ones_like(b), b), "r_p": np.zeros(N, dtype_named(target))}
    results = arrays | {"r_p": arrays["r_p"].copy()}
    allowed = allowed_results(module, arrays)
    compile(module)(**results, device="cuda")
    check_results({"r_p": results["r_p"]}, allowed)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("line", FLOAT_OPS)
def test_float_operations(line, kind):
    check_line(line.format(t=f"tensor<1024x{kind}>"), kind, kind)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("line", INTEGER_OPS)
def test_integer_operations(line, kind):
    check_line(line.format(t=f"tensor<1024x{kind}>"), kind, kind)


@pytest.mark.parametrize("word", ["", "saturate "])
@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS])
def test_casts(source, target, word):
    if word and target in INTEGERS:
        pytest.skip("'saturate' is for casts to floats")
    check_line(f"tile.cast {word}%a : tensor<1024x{source}> -> tensor<1024x{target}>", source, target)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("predicate", ["oeq", "one", "olt", "oge", "ueq", "une", "ult", "uge"])
def test_float_predicates(kind, predicate):
    check_line(f"tile.cmp {predicate} %a, %b : tensor<1024x{kind}> -> tensor<1024xi1>", kind, "i1")


@pytest.mark.parametrize("seed", range(40, 80))
def test_random_programs(seed):
    target = driver.current_device().target
    outcome = check(generate(seed, 10), compiled(target, "cuda"), target)
    assert outcome.kind in ("ok", "undecided"), outcome.message
