"""Numbered programs for both targets, random and directed, such that enough of them use every instruction row that layouts can choose.

    number modulo 11    0 … 3   random, sm_90a          7, 8   dots by wgmma: six rows each, all rows in turn in an order of the seed
                        4 … 6   random, sm_80           9      dots by other rows and arrays of more dimensions, sm_90a
                                                       10      dots on sm_80

With 5000 programs each wgmma is aimed at 11 times at least.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ...dialects.target import get_target
from ...passes.offered_rows import Offered, offered_rows
from .check import Outcome, check, compiled
from .directed import directed
from .generate import generate
from .program import Program

CYCLE, RANDOM_HOPPER, RANDOM_AMPERE, WIDE = 11, 4, 3, 2
AIMS, OTHER_AIMS = 6, 5
SIZE = 12
HOPPER, AMPERE = "sm_90a", "sm_80"


@dataclass(frozen=True, slots=True)
class Mixed:
    """A program of the mix."""

    number: int
    target: str
    program: Program
    aims: tuple[Offered, ...]


def mixed(number: int, seed: int) -> Mixed:
    """The program of a number, the same for the same seed."""
    turn, place = divmod(number, CYCLE)
    own = seed * 1_000_003 + number
    if place < RANDOM_HOPPER + RANDOM_AMPERE:
        target = HOPPER if place < RANDOM_HOPPER else AMPERE
        return Mixed(number, target, generate(own, SIZE), ())
    place -= RANDOM_HOPPER + RANDOM_AMPERE
    if place < WIDE:
        target, first, count, wide = HOPPER, (turn * WIDE + place) * AIMS, AIMS, True
    else:
        target, first, count, wide = (HOPPER, AMPERE)[place - WIDE], turn * OTHER_AIMS, OTHER_AIMS, False
    aims = tuple(_aim(target, wide, first + i, seed) for i in range(count))
    return Mixed(number, target, directed(own, aims), aims)


def _aim(target: str, wide: bool, at: int, seed: int) -> Offered:
    """The `at`-th of the rows that directed programs aim at, all of them again and again, each time in another order."""
    rows = _aimed(target, wide)
    turn, place = divmod(at, len(rows))
    order = list(range(len(rows)))
    random.Random(f"{seed} {target} {wide} {turn}").shuffle(order)
    return rows[order[place]]


@cache
def _aimed(target: str, wide: bool) -> Sequence[Offered]:
    """Rows that programs can be directed at, of wgmma (`wide`) or other."""
    return [row for row in offered_rows(get_target(target)).values() if bool(row.columns) == wide and (row.types or row.array_rank or row.bits)]


def run(number: int, seed: int) -> tuple[str, Outcome, set[str]]:
    """Checks a program against the interpreter: (target, how it went, the offered rows that its code has)."""
    found = mixed(number, seed)
    outcome = check(found.program, compiled(found.target), found.target)
    used = set(outcome.coverage.instructions) & set(offered_rows(get_target(found.target)))
    return found.target, outcome, used if outcome.kind == "ok" else set()


def all_rows() -> set[str]:
    """What layouts choose between on either target."""
    return {opcode for target in (HOPPER, AMPERE) for opcode in offered_rows(get_target(target))}
