"""Random programs of loops, conditionals and integer arithmetic: traced and run by the block interpreter they must leave what Python leaves.

The same text is executed by Python, where `tesela.range` is `range`, and traced as a kernel. It exercises which variables a loop carries and
a conditional merges, the types that Python numbers get, and the division and remainder of negative numbers.
"""

from __future__ import annotations

import importlib.util
import random
import textwrap

import numpy as np
import pytest

from tesela.dialects.verify import verify_module
from tesela.simulator.blocks import run_kernel

VARIABLES = ("a", "b", "c", "d")
HEAD = """
import tesela
from tesela import Array, i64, index

@tesela.kernel
def program(out: Array[i64, "N"], p: index, q: index):
"""


class Generator:
    """Writes a random program over the variables and the inputs p and q; every loop ends."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.counters = 0
        self.loops: list[str] = []

    def expression(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.3:
            return r.choice([*VARIABLES, "p", "q", *self.loops, str(r.randint(-9, 9))])
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        kind = r.randrange(8)
        if kind < 4:
            return f"({left} {'+-*+'[kind]} {right})"
        if kind == 4:
            return f"({left} {r.choice(['//', '%'])} {r.choice([2, 3, -4, 7])})"
        if kind == 5:
            return f"({left} if {self.condition(depth - 1)} else {right})"
        return f"{r.choice(['min', 'max'])}({left}, {right})" if kind == 6 else f"abs({left})"

    def condition(self, depth: int = 1) -> str:
        r = self.random
        simple = f"{self.expression(depth)} {r.choice(['<', '<=', '==', '!=', '>', '>='])} {self.expression(depth)}"
        if depth and r.random() < 0.3:
            other = self.condition(0)
            return f"({simple}) {r.choice(['and', 'or'])} ({other})"
        return f"not {simple}" if r.random() < 0.1 else simple

    def assignment(self) -> str:
        r = self.random
        if r.random() < 0.2:
            x, y = r.sample(VARIABLES, 2)
            return f"{x}, {y} = {y}, {self.expression()} % 1009"
        if r.random() < 0.2:
            return f"{r.choice(VARIABLES)} {r.choice(['+=', '-='])} {self.expression(1)} % 101"
        return f"{r.choice(VARIABLES)} = {self.expression()} % 1009" if r.random() < 0.8 else f"{r.choice(VARIABLES)} = {r.randint(0, 9)}"

    def block(self, depth: int) -> str:
        return "\n".join(self.statement(depth) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth: int) -> str:
        r = self.random
        kind = r.randrange(6) if depth else 5
        if kind == 0:
            text = f"if {self.condition()}:\n{textwrap.indent(self.block(depth - 1), '    ')}"
            if r.random() < 0.3:
                text += f"\nelif {self.condition()}:\n{textwrap.indent(self.block(depth - 1), '    ')}"
            return text if r.random() < 0.4 else f"{text}\nelse:\n{textwrap.indent(self.block(depth - 1), '    ')}"
        if kind in (1, 2, 3):
            self.counters += 1
            name = f"k{self.counters}"
            words = {1: "tesela.range", 2: "range", 3: "tesela.static_range"}
            stop = str(r.randint(0, 3)) if kind == 3 else r.choice(["3", "p % 4", "abs(a) % 3", "0"])
            bounds = stop if kind == 3 or r.random() < 0.6 else f"{r.randint(-2, 2)}, {stop}, {r.randint(1, 2)}"
            self.loops.append(name)
            body = self.block(depth - 1)
            self.loops.pop()
            return f"for {name} in {words[kind]}({bounds}):\n{textwrap.indent(body, '    ')}"
        if kind == 4:
            self.counters += 1
            name = f"n{self.counters}"
            body = textwrap.indent(f"{self.block(depth - 1)}\n{name} += 1", "    ")
            return f"{name} = 0\nwhile {name} < {r.randint(0, 3)} and {self.condition(0)}:\n{body}"
        return self.assignment()

    def program(self) -> str:
        start = "\n".join(f"{name} = {self.random.choice(['p', 'q', str(self.random.randint(0, 5))])}" for name in VARIABLES)
        ends = "\n".join(f"out[{i}] = i64({name})" for i, name in enumerate(VARIABLES))
        body = "\n".join(self.block(2) for _ in range(3))
        return f"{start}\n{body}\n{ends}\n"


class PythonRange:
    """What stands for the module `tesela` when Python runs the text."""

    range = static_range = staticmethod(range)


def by_python(body: str, p: int, q: int) -> list[int]:
    out = [0] * len(VARIABLES)
    exec(body, {"tesela": PythonRange, "i64": int, "out": out, "p": p, "q": q})
    return out


def by_tracer(body: str, path, inputs) -> list[list[int]]:
    path.write_text(HEAD + textwrap.indent(body, "    "))
    spec = importlib.util.spec_from_file_location("random_program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    traced = module.program.trace()
    verify_module(traced)
    results = []
    for p, q in inputs:
        out = np.zeros(len(VARIABLES), np.int64)
        run_kernel(traced, {"out": out}, {"p": p, "q": q})
        results.append(out.tolist())
    return results


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed, tmp_path):
    body = Generator(seed).program()
    inputs = [(0, 0), (5, 2), (3, -7)]
    assert by_tracer(body, tmp_path / "program.py", inputs) == [by_python(body, p, q) for p, q in inputs], body
