"""An exact solver for sums of small cost tables: what `infer-layouts` states its problem to.

A problem has *variables*, each with a list of candidates, and *tables*: a cost for each candidate of one variable, or for each pair of candidates of two.
Wanted is the choice of a candidate for every variable with the smallest sum. `FORBIDDEN` in a table rules the choice out.

**Elimination.** Take a variable out: for every choice of its neighbours, its best candidate is found by trying all, and the cost of that becomes one
table over the neighbours. With no variable left the sum stands there, and going back gives the choices. That is dynamic programming over the graph of
the tables (Bertelè and Brioschi 1972), exact, and as fast as the graph is like a tree; programs are much like trees. The variable with the
smallest new table goes first.

**Branching.** Where every table would be larger than `TABLE_LIMIT`, the variable with most neighbours is fixed to each of its candidates in turn, best bound
first; a branch whose bound (the sum of the smallest entries) is no better than what is known is not entered.

    a in {x, y}, b in {x, y}: cost of a (0, 5), of b (9, 0), and 7 if they differ
    out with a: for b = x the best is x, 0; for b = y it is y, 5 (x would be 7)      then b: x costs 9, y costs 5: y, y

**Ties** are lexicographic: variables in the reverse order of elimination, which depends on the problem alone, and candidates in theirs. So the
answer is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

FORBIDDEN = 1 << 44
"""A cost that no sum of real costs reaches: a choice that is not allowed."""
TABLE_LIMIT = 1 << 20
"""Entries of the largest table that elimination makes; beyond, the solver branches."""

Array = NDArray[np.int64]
C = TypeVar("C")


@dataclass(eq=False)
class Variable(Generic[C]):
    """What is to be chosen. `about`: whatever the problem's author wants to find again."""

    name: str
    candidates: list[C]
    about: Any = None
    index: int = -1


@dataclass(frozen=True, eq=False)
class Table:
    """Costs of one or two variables' candidates; `label` says what they are for, `about` what they come from."""

    variables: tuple[Variable[Any], ...]
    costs: Array
    label: str
    about: Any = None


@dataclass(frozen=True)
class Solution:
    """The candidates' numbers, by variable; `cost`, their sum. `optimal` answers are the only ones there are."""

    choice: Mapping[Variable[Any], int]
    cost: int

    @property
    def feasible(self) -> bool:
        return self.cost < FORBIDDEN

    def candidate(self, variable: Variable[C]) -> C:
        return variable.candidates[self.choice[variable]]


@dataclass
class Problem:
    """Variables and tables."""

    variables: list[Variable[Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def add(self, name: str, candidates: Sequence[C], about: Any = None) -> Variable[C]:
        variable = Variable(name, list(candidates), about, len(self.variables))
        self.variables.append(variable)
        return variable

    def cost(self, variable: Variable[Any], costs: Sequence[int], label: str, about: Any = None) -> None:
        """Costs of one variable's candidates."""
        if any(costs):
            self.tables.append(Table((variable,), np.array(costs, np.int64), label, about))

    def pair(self, a: Variable[Any], b: Variable[Any], costs: Sequence[Sequence[int]], label: str, about: Any = None) -> Table | None:
        """Costs of two variables' candidates, a row for each of the first's; None where there are none but zeros, or of one variable with itself."""
        table = np.array(costs, np.int64).reshape(len(a.candidates), len(b.candidates))
        if a is b:
            self.cost(a, list(map(int, np.diagonal(table))), label, about)
        elif table.any():
            self.tables.append(Table((a, b), table, label, about))
            return self.tables[-1]
        return None

    def terms(self, solution: Solution) -> list[tuple[Table, int]]:
        """What each table adds to the cost of a solution, zeros left out."""
        found = [(table, int(table.costs[tuple(solution.choice[v] for v in table.variables)])) for table in self.tables]
        return [(table, cost) for table, cost in found if cost]

    def solve(self, forbid: Iterable[tuple[Variable[Any], int]] = (), without: Iterable[Table] = ()) -> Solution:
        """The optimum, without some candidates, and as if some tables were not there. An infeasible problem's cost is FORBIDDEN or more."""
        left_out = set(map(id, without))
        factors = [_Factor(tuple(v.index for v in table.variables), table.costs) for table in self.tables if id(table) not in left_out]
        for variable, candidate in forbid:
            costs = np.zeros(len(variable.candidates), np.int64)
            costs[candidate] = FORBIDDEN
            factors.append(_Factor((variable.index,), costs))
        sizes = [len(variable.candidates) for variable in self.variables]
        cost, choice = _solve(sizes, factors, 1 << 62)
        return Solution({variable: choice[variable.index] for variable in self.variables}, cost)


@dataclass(frozen=True, eq=False)
class _Factor:
    """A table over variables, by number, in increasing order of its axes' variables or not."""

    scope: tuple[int, ...]
    costs: Array


def _solve(sizes: Sequence[int], factors: Sequence[_Factor], bound: int) -> tuple[int, dict[int, int]]:
    """The smallest sum below `bound`, and the choices; (bound, {}) if there is none."""
    touching: dict[int, dict[int, _Factor]] = {variable: {} for variable in range(len(sizes))}
    near: dict[int, set[int]] = {variable: set() for variable in touching}
    constant = 0
    for factor in factors:
        if not factor.scope:
            constant += int(factor.costs)
        for variable in factor.scope:
            touching[variable][id(factor)] = factor
            near[variable].update(factor.scope)
    for variable, others in near.items():
        others.discard(variable)
    # (entries of the table that taking it out makes, the variable's number from the end): what changes is pushed anew, and old entries are passed over
    heap = [(_entries(sizes, variable, near[variable]), -variable) for variable in touching]
    heapify(heap)
    eliminated: list[tuple[int, tuple[int, ...], Array]] = []  # variable, the neighbours, its best candidate for each of their choices
    while heap:
        entries, number = heappop(heap)
        variable = -number
        if variable not in touching or entries != _entries(sizes, variable, near[variable]):
            continue
        if entries > TABLE_LIMIT:
            return _branch(sizes, touching, constant, eliminated, bound)
        neighbours = tuple(sorted(near.pop(variable)))
        scope = (*neighbours, variable)
        total = np.zeros([sizes[v] for v in scope], np.int64)
        for key, factor in touching.pop(variable).items():
            total += _aligned(factor, scope)
            for other in factor.scope:
                if other != variable:
                    del touching[other][key]
        np.minimum(total, 2 * FORBIDDEN, out=total)  # so that sums of forbidden choices stay within 64 bits
        eliminated.append((variable, neighbours, total.argmin(axis=-1)))
        rest = _Factor(neighbours, total.min(axis=-1))
        if not neighbours:
            constant += int(rest.costs)
        for other in neighbours:
            touching[other][id(rest)] = rest
            near[other].discard(variable)
            near[other].update(neighbours)
            near[other].discard(other)
            heappush(heap, (_entries(sizes, other, near[other]), -other))
    return (constant, _go_back(eliminated, {})) if constant < bound else (bound, {})


def _entries(sizes: Sequence[int], variable: int, neighbours: set[int]) -> int:
    """Entries of a table over a variable and its neighbours; TABLE_LIMIT + 1 for all that are more."""
    entries = sizes[variable]
    for other in neighbours:
        entries *= sizes[other]
        if entries > TABLE_LIMIT:
            return TABLE_LIMIT + 1
    return entries


def _aligned(factor: _Factor, scope: tuple[int, ...]) -> Array:
    """The factor's table with an axis for each variable of `scope`, of extent 1 where it does not depend on it."""
    order = sorted(range(len(factor.scope)), key=lambda axis: scope.index(factor.scope[axis]))
    costs = factor.costs.transpose(order)
    extents = iter(costs.shape)
    return costs.reshape([next(extents) if variable in factor.scope else 1 for variable in scope])


def _branch(
    sizes: Sequence[int],
    touching: Mapping[int, Mapping[int, _Factor]],
    constant: int,
    eliminated: list[tuple[int, tuple[int, ...], Array]],
    bound: int,
) -> tuple[int, dict[int, int]]:
    """Fixes the variable with most neighbours to each of its candidates in turn."""
    left = list(touching)
    factors = list({key: factor for found in touching.values() for key, factor in found.items()}.values())
    variable = max(left, key=lambda v: (len({o for factor in touching[v].values() for o in factor.scope}), sizes[v]))
    place = {v: i for i, v in enumerate(left)}
    branches = []
    for candidate in range(sizes[variable]):
        fixed = []
        for factor in factors:
            costs = factor.costs
            if variable in factor.scope:
                costs = costs.take(candidate, axis=factor.scope.index(variable))
            fixed.append(_Factor(tuple(place[v] for v in factor.scope if v != variable), np.asarray(costs)))
        branches.append((constant + sum(int(factor.costs.min()) for factor in fixed), candidate, fixed))
    best, choices = bound, dict[int, int]()
    for least, candidate, fixed in sorted(branches, key=lambda branch: branch[:2]):
        if least >= best:
            break
        inner_sizes = [1 if v == variable else sizes[v] for v in left]
        cost, found = _solve(inner_sizes, fixed, best - constant)
        if cost + constant < best:
            best = cost + constant
            choices = {v: found[place[v]] for v in left} | {variable: candidate}
    return (best, _go_back(eliminated, choices)) if choices else (bound, {})


def _go_back(eliminated: list[tuple[int, tuple[int, ...], Array]], choices: dict[int, int]) -> dict[int, int]:
    for variable, neighbours, table in reversed(eliminated):
        choices[variable] = int(table[tuple(choices[v] for v in neighbours)])
    return choices
