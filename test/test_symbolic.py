"""Facts about linear forms of whole numbers, against all small numbers; and the programs whose right use of channels follows from multiples."""

from __future__ import annotations

import itertools
import random

import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.passes.symbolic import Facts, Form
from tesela.tools.sources import python_kernel

NUMBERS = range(-14, 15)
STEPS = range(1, 8)


def value(form: Form, numbers: dict[str, int]) -> int:
    return form.constant + sum(factor * numbers[str(atom)] for atom, factor in form.terms)


def drawn(rng: random.Random, atoms: str) -> Form:
    return Form.make(rng.randint(-9, 9), {atom: rng.choice((-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6)) for atom in atoms})


@pytest.mark.parametrize("seed", range(40))
def test_what_follows_holds_for_all_numbers(seed: int) -> None:
    """Two facts and a question about K and L, and a step s that is known to be positive either from the beginning or late."""
    rng = random.Random(seed)
    for _ in range(5):
        facts = Facts()
        late = rng.random() < 0.5
        if not late:
            facts.always_positive("s")
        left = [dict(zip("KLs", numbers)) for numbers in itertools.product(NUMBERS, NUMBERS, STEPS)]
        for _ in range(2):
            form, above = drawn(rng, "KLs"), rng.random() < 0.5
            agree = [numbers for numbers in left if (value(form, numbers) > 0) == above]
            if agree:
                facts.learn(form, above)
                left = agree
        if late:
            facts.always_positive("s")
        for _ in range(30):
            question = drawn(rng, rng.choice(("K", "L", "KL", "KLs")))
            if (answer := facts.is_positive(question)) is not None:
                assert all((value(question, numbers) > 0) == answer for numbers in left)


def test_of_one_unknown_all_follows() -> None:
    """Of one number, each question that one fact answers is answered."""
    rng = random.Random(0)
    answers = 0
    for _ in range(1500):
        fact, above, question = drawn(rng, "K"), rng.random() < 0.5, drawn(rng, "K")
        far = [{"K": number} for number in range(-200, 200)]
        found = {value(question, numbers) > 0 for numbers in far if (value(fact, numbers) > 0) == above}
        if fact.is_constant or not found:
            continue
        facts = Facts()
        facts.learn(fact, above)
        wanted = found.pop() if len(found) == 1 else None
        assert facts.is_positive(question) is wanted, (fact, above, question)
        answers += wanted is not None
    assert answers > 300


def test_a_trip_follows_from_a_later_one_whatever_the_factors() -> None:
    facts = Facts()
    facts.always_positive("s")
    facts.learn(Form.make(0, {"K": 2, "s": -3}), True)
    assert facts.is_positive(Form.make(0, {"K": 2})) and facts.is_positive(Form.make(0, {"K": 1, "s": -1}))
    assert facts.is_positive(Form.make(0, {"K": -1, "s": 1})) is False
    assert facts.is_positive(Form.make(0, {"K": 1, "s": -2})) is None


HEAD = """import tesela
from tesela import Array, f32, i32
M, L = tesela.dims("M L")

@tesela.kernel
def k(A: Array[f32, M, L], C: Array[f32, M, 16], start: i32):
    m = tesela.grid(tesela.ceildiv(M, 16)) * 16
    p = tesela.channel((16, 16), f32, depth=2)
"""
UNROLLED = """    with tesela.role("load", warps=4):
        for i in tesela.range(0, {end}, 16):
            p.put(A[m : m + 16, i : i + 16])
    with tesela.role("add", warps=4):
        acc = tesela.zeros((16, 16), f32)
        for i in tesela.range(0, {end}, {step}):
            for _ in tesela.static_range({step} // 16):
                acc = acc + p.get()
                p.release()
        C[m : m + 16, 0:16] = acc
"""
CONTRARY = """    acc = tesela.zeros((16, 16), f32)
    if L {first}:
        p.put(A[m : m + 16, 0:16])
    if L {second}:
        acc = acc + 1.0
    else:
        acc = acc + p.get()
        p.release()
    C[m : m + 16, 0:16] = acc
"""
NONE = """    acc = tesela.zeros((16, 16), f32)
    if L > 0:
        acc = acc + 1.0
    else:
        for i in tesela.range(0, {end}, 16):
            acc = acc + p.get()
            p.release()
    C[m : m + 16, 0:16] = acc
"""
RIGHT = {
    "twice a size that is not positive": NONE.format(end="L * 2"),
    "three times a size that is not positive": NONE.format(end="L * 3 - 2"),
    "unrolled by two": "    tesela.assume(L % 32 == 0)\n" + UNROLLED.format(end="L", step=32),
    "unrolled by three": "    tesela.assume(L % 48 == 0)\n" + UNROLLED.format(end="L", step=48),
    "unrolled by two of more": "    tesela.assume(L % 4096 == 0)\n" + UNROLLED.format(end="L", step=32),
    "unrolled up to a variable": "    end = start\n    tesela.assume(end % 32 == 0)\n" + UNROLLED.format(end="end", step=32),
    "unrolled up to the lesser of two": "    tesela.assume(L % 32 == 0)\n    end = tesela.minimum(L, 256)\n" + UNROLLED.format(end="end", step=32),
    "contraries": CONTRARY.format(first="> 512", second="<= 512"),
}
WRONG = {
    "unrolled by two of nothing known": (UNROLLED.format(end="L", step=32), "is empty"),
    "unrolled by two of less": ("    tesela.assume(L % 16 == 0)\n" + UNROLLED.format(end="L", step=32), "is empty"),
    "unrolled by three of two": ("    tesela.assume(L % 32 == 0)\n" + UNROLLED.format(end="L", step=48), "is empty"),
    "a trip where a size is 0": (NONE.format(end="L * 2 + 1"), "is empty"),
    "contraries but for one number": (CONTRARY.format(first="> 512", second="< 512"), "is empty"),
}


def compiled(tmp_path, text: str):
    path = tmp_path / "program.py"
    path.write_text(HEAD + text)
    return python_kernel(path, "k").compile("sm_90a").ir("async")


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_are_right_by_multiples_pass(tmp_path, name):
    compiled(tmp_path, RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_programs_that_are_wrong_by_multiples_do_not(tmp_path, name):
    text, message = WRONG[name]
    with pytest.raises(TeselaError, match=message):
        compiled(tmp_path, text)
