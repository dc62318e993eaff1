"""Programs with loops of loads and dots, for tests of schedules: each with arrays for a given number of trips.

Every loop takes K in steps of 16, so that `trips` steps are K = 16·trips; the tiles are small, so that the simulator is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

ORDERS = ("latest", "earliest", 1, 2, 3)
"""When asynchronous operations complete: as late or as early as they may, or at random by a seed."""

BF16 = "memref<?x?xbf16, strided<[?, 1]>>"
F32 = "memref<?x?xf32, strided<[?, 1]>>"
ACC = "tensor<64x16xf32>"

PRELUDE = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %f0 = arith.constant 0.0 : f32
  %m = arith.muli %bm, %c64 : index
  %n = arith.muli %bn, %c16 : index
  %zero = tile.full %f0 : f32 -> tensor<64x16xf32>
"""


def load_a(name: str, row: str, column: str, array: str = "%A") -> str:
    return f"{name} = tile.load {array}[{row}, {column}] : {BF16} -> tensor<64x16xbf16>\n"


def load_b(name: str, row: str, column: str, array: str = "%B") -> str:
    return f"{name} = tile.load {array}[{row}, {column}] : {BF16} -> tensor<16x16xbf16>\n"


def dot(name: str, a: str, b: str, c: str) -> str:
    return f"{name} = tile.dot {a}, {b}, {c} : tensor<64x16xbf16>, tensor<16x16xbf16> -> {ACC}\n"


def store(value: str, array: str = "%C", row: str = "%m", column: str = "%n", kind: str = ACC) -> str:
    return f"tile.store {value}, {array}[{row}, {column}] : {kind}, {F32}\n"


def matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Program:
    """`body` is that of a kernel with operands %A (M×K), %B (K×N), the `extra` arguments, and the result %C (M×N); its
    grid is M ceildiv 64 × N ceildiv 16. `more(rng, m, n, k)`: arrays of the extra arguments. `align`: of A, as stated."""

    name: str
    body: str
    extra: str = ""
    more: Callable[[np.random.Generator, int, int, int], dict[str, np.ndarray]] = lambda rng, m, n, k: {}
    grid: str = "%bm = M ceildiv 64, %bn = N ceildiv 16"
    noalias: bool = True
    rows: int = 72
    align: int = 2

    def text(self, stages: int | None, attributes: str = "") -> str:
        listed = ", ".join(filter(None, (f"stages = {stages} : i64" if stages is not None else "", attributes)))
        stated = f"attributes {{{listed}}}" if listed else ""
        noalias = " {noalias}" if self.noalias else ""
        return f"""tile.kernel @{self.name}(%A: {BF16} [M, K] {{align = {self.align}}}, %B: {BF16} [K, N]{self.extra}, %C: {F32} [M, N]{noalias})
    dims(%M = M, %N = N, %K = K) grid({self.grid}) {stated} {{
{PRELUDE}{self.body}}}"""

    def arrays(self, trips: int, seed: int = 0, pad: int = 0) -> dict[str, np.ndarray]:
        """Random operands and a result of NaN; `pad`: unused elements after each row of A, which rule TMA out."""
        rng = np.random.default_rng(seed)
        m, n, k = self.rows, 16, 16 * trips
        return {
            "A": matrix(rng, m, k + pad)[:, :k],
            "B": matrix(rng, k, n),
            **self.more(rng, m, n, k),
            "C": np.full((m, n), np.nan, np.float32),
        }


def order(which: str | int, races: bool = False):
    """Within it, launches in the simulator complete asynchronous operations in this order; with `races` they are judged too."""
    from tesela.simulator import settings

    return settings(races, which if isinstance(which, int) else None, None if isinstance(which, int) else which)


def loop(carried: str, kinds: str, inside: str, result: str = "%acc", upper: str = "%K") -> str:
    return f"  {result} = scf.for %k = %c0 to {upper} step %c16 iter_args({carried}) -> ({kinds}) {{\n{inside}  }}\n"


GEMM = Program(
    "gemm",
    loop("%c = %zero", ACC, load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n")
    + store("%acc"),
)

SUM_OF_TWO = Program(
    "sum_of_two",
    loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c")
        + load_a("%a2", "%m", "%k", "%A2") + dot("%e", "%a2", "%b", "%d") + f"scf.yield %e : {ACC}\n",
    )
    + store("%acc"),
    f", %A2: {BF16} [M, K]",
    lambda rng, m, n, k: {"A2": matrix(rng, m, k)},
)

DUAL = Program(
    "dual",
    loop(
        "%c = %zero, %c2 = %zero",
        f"{ACC}, {ACC}",
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + load_b("%b2", "%k", "%n", "%B2")
        + dot("%d", "%a", "%b", "%c") + dot("%d2", "%a", "%b2", "%c2") + f"scf.yield %d, %d2 : {ACC}, {ACC}\n",
        "%acc, %gate",
    )
    + f"  %r = arith.mulf %acc, %gate : {ACC}\n" + store("%r"),
    f", %B2: {BF16} [K, N]",
    lambda rng, m, n, k: {"B2": matrix(rng, k, n)},
)

RESCALED = Program(
    "rescaled",
    """  %half = arith.constant 0.5 : f32
  %h = tile.full %half : f32 -> tensor<64x16xf32>
"""
    + loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + f"%s = arith.mulf %c, %h : {ACC}\n"
        + dot("%d", "%a", "%b", "%s") + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
)
"""The accumulator is read by other code in the loop."""

CHAINED = Program(
    "chained",
    loop(
        "%c = %zero",
        ACC,
        load_b("%b", "%k", "%n") + load_a("%a", "%m", "%k") + dot("%s", "%a", "%b", "%zero")
        + f"%p = tile.cast %s : {ACC} -> tensor<64x16xbf16>\n" + load_b("%v", "%k", "%c0", "%V")
        + dot("%d", "%p", "%v", "%c") + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
    f", %V: {BF16} [K, N]",
    lambda rng, m, n, k: {"V": matrix(rng, k, n)},
)
"""Two dots, the second's left operand computed from the first's result."""

ROWS = "tensor<64xf32>"
ATTENTION = Program(
    "attention",
    f"""  %low = tile.constant "-inf" : f32
  %m0 = tile.full %low : f32 -> {ROWS}
  %l0 = tile.full %f0 : f32 -> {ROWS}
"""
    + loop(
        "%c = %zero, %mx = %m0, %l = %l0",
        f"{ACC}, {ROWS}, {ROWS}",
        load_b("%b", "%k", "%n") + load_b("%v", "%k", "%c0", "%V") + dot("%s", "%q", "%b", "%zero")
        + f"""%rm = tile.reduce max %s axis 1 : {ACC} -> {ROWS}
%new = arith.maximumf %mx, %rm : {ROWS}
%e1 = tile.expand %new axis 1 : {ROWS} -> tensor<64x1xf32>
%e2 = tile.broadcast %e1 : tensor<64x1xf32> -> {ACC}
%x = arith.subf %s, %e2 : {ACC}
%e = math.exp %x : {ACC}
%change = arith.subf %mx, %new : {ROWS}
%alpha = math.exp %change : {ROWS}
%a1 = tile.expand %alpha axis 1 : {ROWS} -> tensor<64x1xf32>
%a2 = tile.broadcast %a1 : tensor<64x1xf32> -> {ACC}
%scaled = arith.mulf %c, %a2 : {ACC}
%p = tile.cast %e : {ACC} -> tensor<64x16xbf16>
"""
        + dot("%d", "%p", "%v", "%scaled")
        + f"""%sum = tile.reduce sum %e axis 1 : {ACC} -> {ROWS}
%l1 = arith.mulf %l, %alpha : {ROWS}
%l2 = arith.addf %l1, %sum : {ROWS}
scf.yield %d, %new, %l2 : {ACC}, {ROWS}, {ROWS}
""",
        "%acc, %max, %total",
    ).replace("  %acc, %max", "  " + load_a("%q", "%m", "%c0") + "  %acc, %max")
    + f"""  %t1 = tile.expand %total axis 1 : {ROWS} -> tensor<64x1xf32>
  %t2 = tile.broadcast %t1 : tensor<64x1xf32> -> {ACC}
  %r = arith.divf %acc, %t2 : {ACC}
"""
    + store("%r"),
    f", %V: {BF16} [K, N]",
    lambda rng, m, n, k: {"V": matrix(rng, k, n)},
)
"""Two dots with a softmax between them; what the second adds to is scaled by what the first gave."""

WRITTEN = Program(
    "written",
    """  %two = arith.constant 2.0 : bf16
  %t = tile.full %two : bf16 -> tensor<16x16xbf16>
"""
    + loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + "%x = arith.mulf %b, %t : tensor<16x16xbf16>\n"
        + dot("%d", "%a", "%x", "%c") + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
)
"""One operand loaded ahead, the other computed in the loop and written to its channel from registers."""

LAST = Program(
    "last",
    """  %h0 = arith.constant 0.0 : bf16
  %none = tile.full %h0 : bf16 -> tensor<64x16xbf16>
"""
    + loop(
        "%c = %zero, %before = %none",
        f"{ACC}, tensor<64x16xbf16>",
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c")
        + f"scf.yield %d, %a : {ACC}, tensor<64x16xbf16>\n",
        "%acc, %last",
    )
    + f"  %l = tile.cast %last : tensor<64x16xbf16> -> {ACC}\n  %r = arith.addf %acc, %l : {ACC}\n" + store("%r"),
)
"""A tile that the loop loads is used after it."""

STORES = Program(
    "stores",
    loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n")
        + f"%x = tile.load %X[%m, %k] : {F32} -> {ACC}\n" + dot("%d", "%a", "%b", "%c")
        + f"%y = arith.addf %x, %x : {ACC}\n" + store("%y", "%Y", "%m", "%k") + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
    f", %X: {F32} [M, K], %Y: {F32} [M, K] {{noalias}}",
    lambda rng, m, n, k: {
        "X": rng.standard_normal((m, k)).astype(np.float32),
        "Y": np.full((m, k), np.nan, np.float32),
    },
)
"""Ordinary loads and stores in the same loop."""

IN_PLACE = Program(
    "in_place",
    loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c")
        + "%next = arith.addi %k, %c16 : index\n"
        + f"%y = tile.cast %d : {ACC} -> tensor<64x16xbf16>\n"
        + f"tile.store %y, %A[%m, %next] : tensor<64x16xbf16>, {BF16}\n" + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
)
"""Each trip writes what the next one loads."""

MOVING = Program(
    "moving",
    f"""  %c8 = arith.constant 8 : index
  %c32 = arith.constant 32 : index
  %two = arith.constant 2 : index
  %end = arith.muli %K, %two : index
  %acc, %at = scf.for %j = %c16 to %end step %c32 iter_args(%c = %zero, %k = %c0) -> ({ACC}, index) {{
"""
    + load_a("%a", "%m", "%k") + "%half = arith.divui %j, %two : index\n%row = arith.subi %half, %c8 : index\n"
    + load_b("%b", "%row", "%n") + dot("%d", "%a", "%b", "%c") + "%next = arith.addi %c16, %k : index\n"
    + f"scf.yield %d, %next : {ACC}, index\n  }}\n" + store("%acc"),
)
"""Places from a carried counter and from arithmetic on the loop's own, which starts at 16 and goes up by 32."""

DOUBLING = Program(
    "doubling",
    """  %two = arith.constant 2 : index
  %acc, %at = scf.for %j = %c0 to %K step %c16 iter_args(%c = %zero, %k = %c16) -> (tensor<64x16xf32>, index) {
"""
    + load_a("%a", "%m", "%k") + load_b("%b", "%j", "%n") + dot("%d", "%a", "%b", "%c") + "%next = arith.muli %two, %k : index\n"
    + f"scf.yield %d, %next : {ACC}, index\n  }}\n" + store("%acc"),
)
"""The place of one load is a carried value that does not grow by a constant."""

INDIRECT = Program(
    "indirect",
    loop(
        "%c = %zero",
        ACC,
        "%q = arith.divui %k, %c16 : index\n%at = tile.load %P[%q] : memref<?xi64, strided<[1]>> -> i64\n"
        "%row = arith.index_cast %at : i64 to index\n"
        + load_a("%a", "%m", "%k") + load_b("%b", "%row", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
    ", %P: memref<?xi64, strided<[1]>> [T]",
    lambda rng, m, n, k: {"P": rng.permutation(k // 16).astype(np.int64) * 16},
)
"""The place of one load is itself loaded."""

NESTED = Program(
    "nested",
    """  scf.for %row = %c0 to %M step %c64 {
"""
    + loop("%c = %zero", ACC, load_a("%a", "%row", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n")
    + store("%acc", row="%row") + "  }\n",
    grid="%bm = 1, %bn = N ceildiv 16",
    rows=200,
)
"""Several tiles a block: the pipeline starts again for each."""

TRIANGLE = Program(
    "triangle",
    """  %c4 = arith.constant 4 : index
  scf.for %row = %c0 to %M step %c64 {
  %quarter = arith.divui %row, %c4 : index
  %end = arith.minsi %quarter, %K : index
"""
    + loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%row", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n",
        upper="%end",
    )
    + store("%acc", row="%row") + "  }\n",
    grid="%bm = 1, %bn = N ceildiv 16",
    rows=264,
)
"""As nested, but the n-th tile of a block has n trips: none, one, two … (as many as there are)."""

BOTH = Program(
    "both",
    """  %c48 = arith.constant 48 : index
  %most = arith.minsi %K, %c48 : index
"""
    + loop(
        "%c = %zero, %e = %zero",
        f"{ACC}, {ACC}",
        load_a("%a", "%m", "%k")
        + f"%r = scf.for %j = %c0 to %most step %c16 iter_args(%x = %c) -> ({ACC}) {{\n"
        + load_b("%b", "%j", "%n") + dot("%d", "%a", "%b", "%x") + f"scf.yield %d : {ACC}\n}}\n"
        + load_b("%v", "%k", "%n", "%V") + f"%p = tile.cast %r : {ACC} -> tensor<64x16xbf16>\n"
        + dot("%s", "%a", "%v", "%zero") + f"%q = arith.addf %s, %r : {ACC}\n%y = tile.cast %q : {ACC} -> tensor<64x16xbf16>\n"
        + load_b("%w", "%k", "%n", "%V") + dot("%o", "%y", "%w", "%e") + f"scf.yield %r, %o : {ACC}, {ACC}\n",
        "%acc, %other",
    )
    + f"  %t = arith.addf %acc, %other : {ACC}\n" + store("%t"),
    f", %V: {BF16} [K, N]",
    lambda rng, m, n, k: {"V": matrix(rng, k, n)},
)
"""Loads and dots in a loop and in a loop inside it; the inner one reads a tile that the outer one has loaded."""

SIBLINGS = Program(
    "siblings",
    loop("%c = %zero", ACC, load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n")
    + loop(
        "%c = %acc",
        ACC,
        load_a("%a", "%m", "%k", "%A2") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n",
        "%acc2",
    )
    + store("%acc2"),
    f", %A2: {BF16} [M, K]",
    lambda rng, m, n, k: {"A2": matrix(rng, m, k)},
)
"""One loop after another; the second goes on from the first's accumulator."""

CONDITIONAL = Program(
    "conditional",
    f"""  %two = arith.constant 2 : index
  %odd = arith.remui %bm, %two : index
  %is = arith.cmpi eq, %odd, %c0 : index
  %r = scf.if %is -> ({ACC}) {{
"""
    + loop("%c = %zero", ACC, load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n") + dot("%d", "%a", "%b", "%c") + f"scf.yield %d : {ACC}\n")
    + f"    scf.yield %acc : {ACC}\n  }} else {{\n    scf.yield %zero : {ACC}\n  }}\n" + store("%r"),
    rows=200,
)
"""The loop runs in every second block."""

INNER_DOT = Program(
    "inner_dot",
    "  %two = arith.constant 2 : index\n"
    + loop(
        "%c = %zero",
        ACC,
        load_a("%a", "%m", "%k") + load_b("%b", "%k", "%n")
        + "%q = arith.divui %k, %c16 : index\n%o = arith.remui %q, %two : index\n%is = arith.cmpi eq, %o, %c1 : index\n"
        + f"%d = scf.if %is -> ({ACC}) {{\n" + dot("%e", "%a", "%b", "%c") + f"scf.yield %e : {ACC}\n}} else {{\nscf.yield %c : {ACC}\n}}\n"
        + f"scf.yield %d : {ACC}\n",
    )
    + store("%acc"),
)
"""The dot stands in a conditional inside; its operands are loaded in every trip."""

PROGRAMS = {
    program.name: program
    for program in (
        GEMM, SUM_OF_TWO, DUAL, RESCALED, CHAINED, ATTENTION, WRITTEN, LAST, STORES, IN_PLACE, MOVING, DOUBLING, INDIRECT, NESTED, TRIANGLE, BOTH, SIBLINGS,
        CONDITIONAL, INNER_DOT,
    )
}
