"""Random loops of loads and dots, pipelined and not, some of them split among blocks: `python test/random_loops.py SECONDS [FIRST]` looks for one that differs.

Each seed gives a program (several operands and accumulators, loads at moving places, dots on loaded and on computed tiles, stores, conditionals;
flat, nested, one after another or in a conditional), a target, a number of stages and trips, roles, clusters, and an order of events.
"""

from __future__ import annotations

import random
import sys
import time

import numpy as np
from pipelined_programs import ACC, BF16, ORDERS, Program, dot, load_a, load_b, matrix, order, store

CONSTANTS = """  %two = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %half = arith.constant 0.5 : f32
  %h = tile.full %half : f32 -> tensor<64x16xf32>
"""


class _Body:
    """Writes the body of one loop."""

    def __init__(self, rng: random.Random, row: str, number: int) -> None:
        self.rng, self.row, self.number = rng, row, number
        self.lines: list[str] = []
        self.names = 0
        self.lhs: list[str] = []
        self.rhs: list[str] = []
        self.accs = [f"%acc{number}_{i}" for i in range(rng.choice((1, 1, 2)))]
        self.carried_place = rng.random() < 0.3
        self.keeps_last = rng.random() < 0.2

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

    def step(self) -> None:
        """Something that makes an accumulator another one."""
        which = self.rng.randrange(len(self.accs))
        acc, result = self.accs[which], self.name("d")
        kind = self.rng.choice(("dot", "dot", "dot", "dot", "chain", "scaled", "conditional"))
        a, b = self.rng.choice(self.lhs), self.rng.choice(self.rhs)
        if kind == "scaled":
            self.lines.append(f"{result} = arith.mulf {acc}, %h : {ACC}")
        elif kind == "chain":
            s, p = self.name("s"), self.name("x")
            self.lines += [dot(s, a, b, "%zero"), f"{p} = tile.cast {s} : {ACC} -> tensor<64x16xbf16>"]
            self.lines.append(dot(result, p, self.rng.choice(self.rhs), acc))
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
        carried = [f"{name} = {init}" for name, init in zip(self.accs, inits)]
        kinds = [ACC] * len(self.accs)
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
        handed = list(self.accs)
        if self.carried_place:
            handed.append(self.name("n"))
            self.lines.append(f"{handed[-1]} = arith.addi %at{self.number}, %c16 : index")
        if self.keeps_last:
            handed.append(self.rng.choice(self.lhs))
        step = self.rng.choice(("%c16", "%c16", "%c32"))
        results = [f"%r{self.number}_{i}" for i in range(len(handed))]
        text = f"{', '.join(results)} = scf.for %k{self.number} = %c0 to %K step {step} iter_args({', '.join(carried)}) -> ({', '.join(kinds)}) {{\n"
        text += "\n".join(self.lines) + f"\nscf.yield {', '.join(handed)} : {', '.join(kinds)}\n}}\n"
        sums = results[: len(self.accs)]
        if self.keeps_last:
            text += f"%l{self.number} = tile.cast {results[-1]} : tensor<64x16xbf16> -> {ACC}\n"
            sums.append(f"%l{self.number}")
        return text, sums


def random_program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    shape = rng.choice(("flat", "flat", "nested", "siblings", "conditional"))
    row = "%row" if shape == "nested" else "%m"
    text, sums = _Body(rng, row, 0).write(["%zero", "%zero"])
    if shape == "siblings":
        second, more = _Body(rng, row, 1).write([sums[0], "%zero"])
        text, sums = text + second, more
    total = sums[0]
    for i, other in enumerate(sums[1:]):
        text += f"%t{i} = arith.addf {total}, {other} : {ACC}\n"
        total = f"%t{i}"
    text += store(total, row=row)
    if shape == "nested":
        text = f"scf.for %row = %c0 to %M step %c64 {{\n{text}}}\n"
    elif shape == "conditional":
        text = f"%odd = arith.remui %bm, %two : index\n%is = arith.cmpi eq, %odd, %c0 : index\nscf.if %is {{\n{text}}}\n"
    constants = CONSTANTS + "  %h0 = arith.constant 0.0 : bf16\n  %none = tile.full %h0 : bf16 -> tensor<64x16xbf16>\n"
    return Program(
        "random",
        constants + text,
        f", %A2: {BF16} [M, K] {{align = 16, noalias}}, %B2: {BF16} [K, N], %Y: memref<?x?xf32, strided<[?, 1]>> [M, K] {{noalias}}",
        lambda rng, m, n, k: {
            "A2": matrix(rng, m, k),
            "B2": matrix(rng, k, n),
            "Y": np.zeros((m, k), np.float32),
        },
        "%bm = 1, %bn = N ceildiv 16" if shape == "nested" else "%bm = M ceildiv 64, %bn = N ceildiv 16",
        rows=rng.choice((72, 136, 200)) if shape == "nested" else rng.choice((64, 72)),
        align=rng.choice((2, 2, 4)),
    )


def check(seed: int) -> str | None:
    """What is wrong with the program of a seed: None, or where it differs."""
    from tesela.dialects.parsing import parse_module
    from tesela.passes import get_pass
    from tesela.passes.base import PassContext
    from tesela.runtime.compile import compile
    from tesela.runtime.specialize import usual_facts
    from tesela.simulator.blocks import run_kernel

    rng = random.Random(-1 - seed)
    program = random_program(seed)
    target, stages = rng.choice(("sm_90a", "sm_90a", "sm_90", "sm_80")), rng.choice((2, 3, 4, 5))
    pad, trips = rng.choice((0, 8, 2, 1) if program.align == 2 else (0, 8, 2)), rng.choice((0, 1, 2, 3, stages - 1, stages, stages + 1, 9))
    roles, runs = rng.random() < 0.4, []
    split = rng.choice(("", "", ", split = 2 : i64", ", split = 3 : i64"))
    blocks = rng.choice((1, 2)) if roles else 1
    dots = rng.choice(("in-flight", "in-flight", "late", "awaited"))
    for number in (1, stages):
        apart = roles and number > 1
        clusters = f", cluster = {blocks if apart else 1} : i64"
        compiled = compile(program.text(number, f"warp_specialize = {str(apart).lower()}{clusters}{split}, dots = \"{dots}\""), target)
        arrays = program.arrays(trips, seed, pad)
        with order(rng.choice(ORDERS) if number > 1 else "latest", races=number > 1):
            compiled(**arrays, device="sim")
        runs.append(arrays)
    scheduled = parse_module(compiled.ir("schedule", facts=usual_facts(compiled.contract)))
    whole = parse_module(program.text(1, split.removeprefix(", ")))
    get_pass("split-reduction")().run(whole, PassContext())
    for module in (whole, scheduled):
        arrays = program.arrays(trips, seed, pad)
        run_kernel(module, arrays)
        runs.append(arrays)
    for one, other, what in ((0, 1, "simulated"), (2, 3, "interpreted")):
        for name in runs[one]:
            if runs[one][name].tobytes() != runs[other][name].tobytes():
                return (
                    f"seed {seed}: {name} differs {what}: {target}, {stages} stages, {trips} trips, pad {pad}, roles {roles}, "
                    f"clusters of {blocks}{split}, dots {dots}"
                )
    found, wanted = runs[0]["C"].astype(np.float64), runs[2]["C"].astype(np.float64)
    scale = np.abs(wanted).max(initial=1)
    if np.isfinite(scale) and not np.allclose(found, wanted, atol=0.05 * scale, rtol=0.05, equal_nan=True):
        return f"seed {seed}: simulated and interpreted disagree unpipelined: {target}, {trips} trips, pad {pad}"
    return None


if __name__ == "__main__":
    sys.path.insert(0, "tools/typecheck")
    end, first, done = time.time() + float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, 0
    while time.time() < end:
        if (wrong := check(first + done)) is not None:
            print(wrong, flush=True)
        done += 1
    print(f"{done} programs")
