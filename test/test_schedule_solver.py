"""passes/schedule_solver.py: its answers are those of trying everything, it asks for few costs, and says so when it stopped early."""

from __future__ import annotations

import random
from itertools import product

from tesela.passes.schedule_solver import Answer, Cost, Option, plus, solve

ZERO = (0, 0, 0)


def random_loops(seed: int) -> list[list[Option]]:
    rng = random.Random(seed)

    def option(number: int) -> Option:
        least = tuple(rng.choice((0, 0, 1, 2)) for _ in ZERO)
        cost = plus(least, tuple(rng.choice((0, 0, 1, 3)) for _ in ZERO))
        return Option(f"way {number}", rng.randrange(1, 8), least, lambda: cost)

    return [[option(number) for number in range(rng.randrange(1, 5))] for _ in range(rng.randrange(1, 5))]


def everything(loops: list[list[Option]], room: int) -> tuple[Cost, tuple[int, ...]] | None:
    found = []
    for choice in product(*(range(len(options)) for options in loops)):
        chosen = [options[i] for options, i in zip(loops, choice)]
        if sum(option.room for option in chosen) <= room:
            cost = ZERO
            for option in chosen:
                cost = plus(cost, option.find())
            found.append((cost, choice))
    return min(found, default=None)


def test_agrees_with_trying_everything():
    outcomes = {"nothing fits": 0, "fits": 0, "not all asked": 0}
    for seed in range(400):
        loops, room = random_loops(seed), random.Random(-seed).randrange(1, 24)
        wanted, found = everything(loops, room), solve(loops, room, ZERO)
        assert (found is None) == (wanted is None)
        if found is None or wanted is None:
            outcomes["nothing fits"] += 1
            continue
        assert (found.cost, found.choice) == wanted and found.proven and found.bound <= found.cost
        outcomes["fits"] += 1
        outcomes["not all asked"] += found.asked < sum(map(len, loops))
    assert min(outcomes.values()) > 20


def test_a_first_answer_at_the_bound_is_the_only_cost_that_is_asked_for():
    def never() -> Cost:
        raise AssertionError("asked for")

    loops = [[Option("best", 1, (0, 0, 5), lambda: (0, 0, 5)), *(Option("worse", 1, (0, 0, 5 + i), never) for i in range(1, 9))]]
    assert solve(loops, 1, ZERO) == Answer((0,), (0, 0, 5), (0, 0, 5), True, 1)


def test_ties_go_to_what_stands_first():
    loops = [[Option(name, room, ZERO, lambda: (1, 0, 0)) for name, room in (("a", 9), ("b", 2), ("c", 2))] for _ in range(2)]
    found = solve(loops, 11, ZERO)
    assert found is not None and found.choice == (0, 1)  # both cannot be first


def test_the_limit_leaves_an_answer_that_is_not_proven():
    loops = [[Option(str(i), 1, ZERO, lambda i=i: (9 - i, 0, 0)) for i in range(8)] for _ in range(2)]
    found = solve(loops, 9, ZERO, limit=5)
    assert found is not None and not found.proven and found.asked == 5
    assert found.bound == ZERO < found.cost
    whole = solve([[Option(str(i), 1, ZERO, lambda i=i: (9 - i, 0, 0)) for i in range(8)] for _ in range(2)], 9, ZERO)
    assert whole is not None and whole.proven and whole.cost == (4, 0, 0) < found.cost
