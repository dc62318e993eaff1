"""passes/layout_solver.py: its answers are those of trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tesela.passes import layout_solver
from tesela.passes.layout_solver import FORBIDDEN, Problem


def random_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    problem = Problem()
    variables = [problem.add(f"v{i}", list(range(int(rng.integers(1, 4))))) for i in range(int(rng.integers(1, 8)))]
    for variable in variables:
        if rng.random() < 0.7:
            problem.cost(variable, rng.integers(0, 5, len(variable.candidates)).tolist(), "one")
    for _ in range(int(rng.integers(0, 12))):
        a, b = (variables[i] for i in rng.integers(0, len(variables), 2))
        costs = rng.integers(0, 6, (len(a.candidates), len(b.candidates)))
        costs[rng.random(costs.shape) < 0.15] = FORBIDDEN
        problem.pair(a, b, costs.tolist(), "two")
    return problem


def total(problem: Problem, choice: tuple[int, ...]) -> int:
    return sum(int(table.costs[tuple(choice[v.index] for v in table.variables)]) for table in problem.tables)


def everything(problem: Problem) -> int:
    return min(total(problem, choice) for choice in product(*(range(len(v.candidates)) for v in problem.variables)))


@pytest.mark.parametrize("limit", [1 << 20, 4, 1])
def test_agrees_with_trying_everything(monkeypatch, limit):
    """By elimination alone, and where nearly all is branching."""
    monkeypatch.setattr(layout_solver, "TABLE_LIMIT", limit)
    infeasible = 0
    for seed in range(150):
        problem = random_problem(seed)
        solution, best = problem.solve(), everything(problem)
        choice = tuple(solution.choice[v] for v in problem.variables)
        assert solution.feasible == (best < FORBIDDEN)
        infeasible += not solution.feasible
        if solution.feasible:
            assert solution.cost == best == total(problem, choice) == sum(cost for _, cost in problem.terms(solution))
    assert 0 < infeasible < 100


def test_forbidden_candidates_and_tables_left_out():
    problem = Problem()
    a, b = problem.add("a", ["x", "y"]), problem.add("b", ["x", "y"])
    problem.cost(a, [0, 5], "a")
    problem.cost(b, [9, 0], "b")
    problem.pair(a, b, [[0, 7], [7, 0]], "differ")
    best = problem.solve()
    assert (best.candidate(a), best.candidate(b), best.cost) == ("y", "y", 5)
    second = problem.solve(forbid=[(a, best.choice[a])])
    assert (second.candidate(a), second.candidate(b), second.cost) == ("x", "y", 7)
    free = problem.solve(without=[problem.tables[2]])
    assert (free.candidate(a), free.candidate(b), free.cost) == ("x", "y", 0)


def test_ties_are_lexicographic_and_repeatable():
    for seed in range(20):
        problem = random_problem(seed)
        first = problem.solve()
        assert [problem.solve().choice == first.choice for _ in range(3)] == [True] * 3
    problem = Problem()
    a, b = problem.add("a", [0, 1, 2]), problem.add("b", [0, 1, 2])
    problem.pair(a, b, [[1, 1, 0], [1, 0, 1], [0, 1, 1]], "three optima")
    assert [problem.solve().choice[v] for v in (a, b)] == [0, 2]


def test_a_thousand_variables_in_a_chain_are_solved_in_linear_time():
    import time

    problem = Problem()
    variables = [problem.add(str(i), range(4)) for i in range(2000)]
    for a, b in zip(variables, variables[1:]):
        problem.pair(a, b, [[0 if x == y else 3 for y in range(4)] for x in range(4)], "chain")
    start = time.perf_counter()
    assert problem.solve().cost == 0
    assert time.perf_counter() - start < 2
