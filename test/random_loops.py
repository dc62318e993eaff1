"""Random loops of loads and dots, pipelined and not: whatever is decided, the results are those of the loop as it stands, bit for bit.

Each seed gives a program (several operands and accumulators, loads at moving places, dots on loaded and on computed tiles, stores, conditionals, values
read after the loop; flat, nested, one after another or in a conditional, to bounds that the kernel computes) and a `Way` of compiling and running it: target,
stages, roles, clusters, blocks that walk the grid, blocks that share a sum, and an order of events. `examine` runs it and says what differs, and what it
has covered (loop_coverage.py). `bench/fuzz_loops.py` runs thousands.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from loop_coverage import covered, trips_class
from pipelined_programs import ACC, BF16, ORDERS, Program, dot, load_a, load_b, matrix, order, store

CONSTANTS = """  %two = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c32 = arith.constant 32 : index
  %half = arith.constant 0.5 : f32
  %h2 = arith.constant 2.0 : bf16
  %twice = tile.full %h2 : bf16 -> tensor<16x16xbf16>
  %h = tile.full %half : f32 -> tensor<64x16xf32>
"""


class _Body:
    """Writes the body of one loop."""

    def __init__(self, rng: random.Random, row: str, number: int, upper: str = "%K") -> None:
        self.rng, self.row, self.number, self.upper = rng, row, number, upper
        self.lines: list[str] = []
        self.names = 0
        self.lhs: list[str] = []
        self.rhs: list[str] = []
        self.accs = [f"%acc{number}_{i}" for i in range(rng.choice((1, 1, 2)))]
        self.carried_place = rng.random() < 0.3
        self.keeps_last = rng.random() < 0.3

    def name(self, what: str) -> str:
        self.names += 1
        return f"%{what}{self.number}_{self.names}"

    def place(self) -> str:
        """Where along K a load begins."""
        kind = self.rng.choice(("k", "k", "k", "next", "back", "half", "carried"))
        if kind == "k" or (kind == "carried" and not self.carried_place):
            return f"%k{self.number}"
        if kind == "carried":
            return f"%at{self.number}"
        found = self.name("p")
        k = f"%k{self.number}"
        if kind == "next":
            self.lines.append(f"{found} = arith.addi {k}, %c16 : index")
        elif kind == "back":
            self.lines.append(f"{found} = arith.subi %K, {k} : index")
        else:
            half = self.name("q")
            self.lines += [f"{half} = arith.divui {k}, %c32 : index", f"{found} = arith.muli {half}, %c16 : index"]
        return found

    def load(self) -> None:
        if self.rng.random() < 0.5:
            self.lhs.append(self.name("a"))
            self.lines.append(load_a(self.lhs[-1], self.row, self.place(), self.rng.choice(("%A", "%A2"))))
        else:
            self.rhs.append(self.name("b"))
            self.lines.append(load_b(self.rhs[-1], self.place(), "%n", self.rng.choice(("%B", "%B2"))))

    def step(self, kind: str | None = None) -> None:
        """Something that makes an accumulator another one."""
        which = self.rng.randrange(len(self.accs))
        acc, result = self.accs[which], self.name("d")
        kind = kind or self.rng.choice(("dot", "dot", "dot", "dot", "chain", "chain", "scaled", "conditional", "written"))
        a, b = self.rng.choice(self.lhs), self.rng.choice(self.rhs)
        if kind == "scaled":
            self.lines.append(f"{result} = arith.mulf {acc}, %h : {ACC}")
        elif kind == "chain":
            s, p = self.name("s"), self.name("x")
            self.lines += [dot(s, a, b, "%zero"), f"{p} = tile.cast {s} : {ACC} -> tensor<64x16xbf16>"]
            self.lines.append(dot(result, p, self.rng.choice(self.rhs), acc))
        elif kind == "written":
            x = self.name("x")
            self.lines += [f"{x} = arith.mulf {b}, %twice : tensor<16x16xbf16>", dot(result, a, x, acc)]
        elif kind == "conditional":
            odd, test, inner = self.name("o"), self.name("t"), self.name("d")
            self.lines += [f"{odd} = arith.remui %k{self.number}, %c32 : index", f"{test} = arith.cmpi eq, {odd}, %c0 : index"]
            self.lines += [f"{result} = scf.if {test} -> ({ACC}) {{", dot(inner, a, b, acc), f"scf.yield {inner} : {ACC}"]
            self.lines += ["} else {", f"scf.yield {acc} : {ACC}", "}"]
        else:
            self.lines.append(dot(result, a, b, acc))
        self.accs[which] = result

    def write(self, inits: list[str]) -> tuple[str, list[str]]:
        """The loop's text, and its accumulators after it."""
        # a product of a product, with a sum and an operand of its own: what can be issued a trip late
        late = f"%late{self.number}" if self.rng.random() < 0.2 else None
        carried = [f"{name} = {init}" for name, init in zip(self.accs, inits)] + ([f"{late} = %zero"] if late else [])
        kinds = [ACC] * len(carried)
        if self.carried_place:
            carried.append(f"%at{self.number} = %c0")
            kinds.append("index")
        if self.keeps_last:
            carried.append(f"%before{self.number} = %none")
            kinds.append("tensor<64x16xbf16>")
        self.lhs.append(self.name("a"))
        self.lines.append(load_a(self.lhs[-1], self.row, self.place()))
        self.rhs.append(self.name("b"))
        self.lines.append(load_b(self.rhs[-1], self.place(), "%n"))
        for _ in range(self.rng.randint(1, 6)):
            roll = self.rng.random()
            if roll < 0.3:
                self.load()
            elif roll < 0.37:
                self.lines.append(store(self.rng.choice(self.accs), "%Y", self.row, f"%k{self.number}"))
            elif roll < 0.4:
                y = self.name("y")
                self.lines.append(f"{y} = tile.cast {self.rng.choice(self.accs)} : {ACC} -> tensor<64x16xbf16>")
                self.lines.append(f"tile.store {y}, %A2[{self.row}, {self.place()}] : tensor<64x16xbf16>, {BF16}")
            else:
                self.step()
        if late is not None:
            s, p, v, result = self.name("s"), self.name("x"), self.name("v"), self.name("d")
            self.lines += [dot(s, self.lhs[0], self.rhs[0], "%zero"), f"{p} = tile.cast {s} : {ACC} -> tensor<64x16xbf16>"]
            self.lines += [load_b(v, f"%k{self.number}", "%n", "%B2"), dot(result, p, v, late)]
            self.accs.append(result)
        handed = list(self.accs)
        if self.carried_place:
            handed.append(self.name("n"))
            self.lines.append(f"{handed[-1]} = arith.addi %at{self.number}, %c16 : index")
        if self.keeps_last:
            handed.append(self.rng.choice(self.lhs))
        step = self.rng.choice(("%c16", "%c16", "%c32"))
        results = [f"%r{self.number}_{i}" for i in range(len(handed))]
        text = f"{', '.join(results)} = scf.for %k{self.number} = %c0 to {self.upper} step {step} iter_args({', '.join(carried)}) -> ({', '.join(kinds)}) {{\n"
        text += "\n".join(self.lines) + f"\nscf.yield {', '.join(handed)} : {', '.join(kinds)}\n}}\n"
        sums = results[: len(self.accs)]
        if self.keeps_last:
            text += f"%l{self.number} = tile.cast {results[-1]} : tensor<64x16xbf16> -> {ACC}\n"
            sums.append(f"%l{self.number}")
        return text, sums


TRIPS = """%limit = arith.index_cast %L : i64 to index
%longest = arith.muli %limit, %c16 : index
%end = arith.minsi %longest, %K : index
"""
"""A bound that the caller states: so a loop has no trips although its operands are there, and come by TMA."""
BOUND = """%quarter = arith.divui {row}, %c4 : index
%most = arith.muli %quarter, %c3 : index
%end = arith.minsi %most, %K : index
"""
"""A bound that the kernel computes: one, two, three … times 48 trips' worth of K for the tiles of 64 rows, or K."""


def random_program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    shape = rng.choice(("flat", "flat", "nested", "siblings", "conditional"))
    row = "%row" if shape == "nested" else "%m"
    bound = rng.choice((None, None, BOUND, TRIPS))
    upper = "%K" if bound is None else "%end"
    text, sums = _Body(rng, row, 0, upper).write(["%zero", "%zero"])
    if shape == "siblings":
        second, more = _Body(rng, row, 1).write([sums[0], "%zero"])
        text, sums = text + second, more
    total = sums[0]
    for i, other in enumerate(sums[1:]):
        text += f"%t{i} = arith.addf {total}, {other} : {ACC}\n"
        total = f"%t{i}"
    text += store(total, row=row)
    if bound is not None:
        text = bound.format(row=row) + text
    if shape == "nested":
        text = f"scf.for %row = %c0 to %M step %c64 {{\n{text}}}\n"
    elif shape == "conditional":
        text = f"%odd = arith.remui %bm, %two : index\n%is = arith.cmpi eq, %odd, %c0 : index\nscf.if %is {{\n{text}}}\n"
    constants = CONSTANTS + "  %h0 = arith.constant 0.0 : bf16\n  %none = tile.full %h0 : bf16 -> tensor<64x16xbf16>\n"
    return Program(
        "random",
        constants + text,
        f", %A2: {BF16} [M, K] {{align = 16, noalias}}, %B2: {BF16} [K, N], %Y: memref<?x?xf32, strided<[?, 1]>> [M, K] {{noalias}}, %L: i64",
        lambda rng, m, n, k: {
            "A2": matrix(rng, m, k),
            "B2": matrix(rng, k, n),
            "Y": np.zeros((m, k), np.float32),
        },
        "%bm = 1, %bn = N ceildiv 16" if shape == "nested" else "%bm = M ceildiv 64, %bn = N ceildiv 16",
        rows=rng.choice((72, 136, 200)) if shape == "nested" else rng.choice((64, 72)),
        align=rng.choice((2, 2, 4)),
    )


@dataclass(frozen=True)
class Way:
    """How a program is compiled and run. `wide`: tiles of 128 rows, for two warpgroups. `multiprocessors`: of the simulated device, where blocks walk the
    grid; `tiles`: rows of tiles, so many that a block walks 1, 2 or 5 of them."""

    target: str
    stages: int
    trips: int
    pad: int
    roles: bool
    blocks: int
    split: int
    persistent: bool | None
    multiprocessors: int
    tiles: int | None
    joined: bool
    staged: bool
    early: bool
    wide: bool
    dots: str
    order: str | int

    def attributes(self, overlapped: bool) -> str:
        """Those of the kernel: as it is to be, or so that nothing overlaps and no block does more than its tile."""
        listed = {"cluster": self.blocks if overlapped and self.roles else 1, "warps": 8 if self.wide else 4, "pdl": int(self.early)}
        if self.split > 1:
            listed["split"] = self.split
        stated = {"warp_specialize": overlapped and self.roles, "join_channels": self.joined, "stage_stores": overlapped and self.staged}
        if not overlapped or self.persistent is not None:
            stated["persistent"] = overlapped and bool(self.persistent)
        words = [f'dots = "{self.dots}"'] if overlapped else []
        return ", ".join(words + [f"{name} = {value} : i64" for name, value in listed.items()] + [f"{name} = {str(value).lower()}" for name, value in stated.items()])

    def text(self, program: Program, overlapped: bool) -> str:
        text = program.text(self.stages if overlapped else 1, self.attributes(overlapped))
        return text.replace("64x16", "128x16").replace("M ceildiv 64", "M ceildiv 128").replace("%c64 = arith.constant 64", "%c64 = arith.constant 128") if self.wide else text


def random_way(seed: int, program: Program) -> Way:
    """How the program of a seed is run."""
    rng = random.Random(-1 - seed)
    stages = rng.choice((1, 2, 3, 4, 5))
    roles, nested = rng.random() < 0.5, "M ceildiv" not in program.grid
    blocks = rng.choice((1, 2, 2, 4)) if roles and not nested else 1
    persistent = None if roles and rng.random() < 0.5 else rng.random() < 0.4
    wide = rng.random() < 0.15
    tiles = rng.choice((1, 2, 5)) if persistent and not nested else None
    return Way(
        target="sm_90a" if roles else rng.choice(("sm_90a", "sm_90a", "sm_90", "sm_80")),
        stages=stages,
        trips=rng.choice((0, 0, 1, 2, 3, stages - 1, stages, stages + 1, 9)),
        pad=rng.choice((0, 8, 2, 1) if program.align == 2 else (0, 8, 2)),
        roles=roles,
        blocks=blocks,
        split=rng.choice((1, 1, 2, 3)),
        persistent=persistent,
        multiprocessors=blocks * rng.choice((1, 1, 2)),
        tiles=tiles,
        joined=rng.random() < 0.8,
        staged=rng.random() < 0.5,
        early=rng.random() < 0.7,
        wide=wide,
        order=rng.choice(ORDERS),
        dots=rng.choice(("in-flight", "in-flight", "late", "late", "awaited")),
    )


@dataclass(frozen=True)
class Outcome:
    """`wrong`: where the program of a seed differs, None if it does not. `covered`: names of what it had (loop_coverage.py)."""

    seed: int
    wrong: str | None
    covered: frozenset[str]


@contextmanager
def multiprocessors(count: int) -> Iterator[None]:
    """The simulated device has so many."""
    from tesela.runtime import launch

    with patch.object(launch, "SIMULATED_MULTIPROCESSORS", count):
        yield


def examine(seed: int) -> Outcome:
    """Runs the program of a seed: with its stages and roles against with neither, in the simulator, judged; the scheduled level against the text, in
    the interpreter; and what became of its barriers by check-barriers."""
    from tesela.dialects.parsing import parse_module
    from tesela.lowering.check_barriers import CheckBarriers
    from tesela.passes import get_pass
    from tesela.passes.base import PassContext
    from tesela.runtime.compile import compile
    from tesela.simulator.blocks import run_kernel

    program = random_program(seed)
    way = random_way(seed, program)
    rows = 128 if way.wide else 64
    if way.tiles is not None:
        program = replace(program, rows=rows * way.tiles * way.multiprocessors - rows // 2)
    steps = way.trips + 3 if "%limit" in program.body else way.trips
    runs: list[dict[str, Any]] = []
    seen: set[str] = set()
    scheduled = None
    for number in range(2):
        compiled = compile(way.text(program, number == 1), way.target)
        arrays = program.arrays(steps, seed, way.pad)
        with order("latest" if number == 0 else way.order, races=number > 0), multiprocessors(way.multiprocessors):
            compiled(**arrays, L=way.trips, device="sim")
        runs.append(arrays)
        if number == 1:
            CheckBarriers(walks=1).run(parse_module(compiled.ir("ptx-ir", facts=compiled.last.facts)), PassContext())
        scheduled = parse_module(compiled.ir("schedule", facts=compiled.last.facts))
        points = -(-program.rows // rows) if "M ceildiv" in program.grid else 1
        seen = covered(scheduled, compiled.last.plan, points, way.multiprocessors)
    assert scheduled is not None
    seen |= {f"target {way.target}", f"{way.stages} stages", f"order {way.order if isinstance(way.order, str) else 'random'}"}
    whole = parse_module(way.text(program, False))
    get_pass("split-reduction")().run(whole, PassContext())
    for module in (whole, scheduled):
        arrays = program.arrays(steps, seed, way.pad)
        run_kernel(module, arrays, {"L": way.trips})
        runs.append(arrays)
    how = "roles" if any(name.startswith("roles") for name in seen) else "one stream"
    seen |= {f"{how}: {name}" for name in trips_class(way.trips, way.stages)}
    return Outcome(seed, _difference(seed, way, runs), frozenset(seen))


def _difference(seed: int, way: Way, runs: list[dict[str, Any]]) -> str | None:
    for one, other, what in ((0, 1, "simulated"), (2, 3, "interpreted")):
        for name in runs[one]:
            if runs[one][name].tobytes() != runs[other][name].tobytes():
                return f"seed {seed}: {name} differs {what}: {way}"
    found, wanted = runs[0]["C"].astype(np.float64), runs[2]["C"].astype(np.float64)
    scale = np.abs(wanted).max(initial=1)
    if np.isfinite(scale) and not np.allclose(found, wanted, atol=0.05 * scale, rtol=0.05, equal_nan=True):
        return f"seed {seed}: simulated and interpreted disagree unpipelined: {way}"
    return None
