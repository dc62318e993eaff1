"""An exact solver for schedules: one option for every loop of a kernel, so that all fit the room there is and the sum of costs is the smallest.

Costs are tuples that are compared, and added, component by component. An option's cost is dear to know (a model of the loop is run), a lower bound of it is cheap. So:

**Branch and bound.** Loops are decided one after another, each loop's options in the order of their lower bounds. A branch is not entered if what is decided so far, with the
least that the other loops can cost, is no better than the best answer known, or if the room cannot hold it. A cost is asked for only where the bound has
not ruled the option out. **Fast path:** where the first answer costs as much as all lower bounds together, nothing else is looked at; that is so for
most loops, whose first option is one that keeps the busiest unit busy.

    loop 1: in flight, 4 slots, 192 KB, at least (0, 0)      loop 2: 2 slots, 64 KB (0, 0) or 1 slot, 32 KB (8, 0)      room 227 KB
    4 and 2 slots do not fit; 4 and 1 cost (8, 0); 3 slots of loop 1 cost (0, 300) and leave room for 2 of loop 2: (0, 300) is less

**Ties** are lexicographic: the first loop's option that stands first in its list, then the second's. **Limit:** after `MOST_COSTS` costs the search ends with the best answer
so far, which then is not proven; the sum of the lower bounds says how far it can be from the best. The limit counts costs, not time, so the answer is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_COSTS = 48
"""Costs that are asked for, at most: a cost takes some milliseconds."""

Cost = tuple[int, ...]


def plus(a: Cost, b: Cost) -> Cost:
    """The sum, component by component."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


@dataclass(eq=False)
class Option:
    """One way to do a loop. `room`: what it takes of what is shared; `least`: no component of its cost is smaller; `find`: its cost; `floor`: as `least`, but dearer to
    know, and the better the more costs are known: asked for when the option's turn comes."""

    name: str
    room: int
    least: Cost
    find: Callable[[], Cost]
    about: Any = None
    known: Cost | None = None
    floor: Callable[[], Cost] | None = None

    def cost(self) -> Cost:
        """Asked for once."""
        if self.known is None:
            self.known = self.find()
        return self.known


@dataclass(frozen=True)
class Answer:
    """The number of each loop's option, and their cost. `bound`: what no answer costs less than; `proven`: whether there is no better one; `asked`: how many costs were
    asked for."""

    choice: tuple[int, ...]
    cost: Cost
    bound: Cost
    proven: bool
    asked: int


@dataclass(eq=False)
class Search:
    """One search; `solve` runs it."""

    loops: Sequence[Sequence[Option]]
    room: int
    limit: int
    asked: int = 0
    struck: bool = False
    best: Answer | None = None
    after: list[Cost] = field(default_factory=list)
    """What the loops from each one on cost at least."""
    room_after: list[int] = field(default_factory=list)

    def run(self, zero: Cost) -> Answer | None:
        """The answer; None if nothing fits."""
        self.after, self.room_after = [zero], [0]
        for options in reversed(self.loops):
            if not options:
                return None
            least = tuple(min(option.least[i] for option in options) for i in range(len(zero)))
            self.after.insert(0, plus(least, self.after[0]))
            self.room_after.insert(0, min(option.room for option in options) + self.room_after[0])
        self._descend((), zero, 0)
        if self.best is None:
            return None
        found = self.best
        return Answer(found.choice, found.cost, self.after[0], not self.struck, self.asked)

    def _descend(self, choice: tuple[int, ...], cost: Cost, room: int) -> None:
        number = len(choice)
        if number == len(self.loops):
            if self.best is None or (cost, choice) < (self.best.cost, self.best.choice):
                self.best = Answer(choice, cost, cost, False, self.asked)
            return
        options = self.loops[number]
        for index in sorted(range(len(options)), key=lambda index: (options[index].least, index)):
            option, chosen = options[index], (*choice, index)
            taken = room + option.room
            if taken + self.room_after[number + 1] > self.room or self._hopeless(chosen, plus(cost, option.least)):
                continue
            if option.known is None:
                if option.floor is not None and self._hopeless(chosen, plus(cost, option.floor())):
                    continue
                if self.asked >= self.limit and self.best is not None:
                    self.struck = True
                    continue
                self.asked += 1
            now = plus(cost, option.cost())
            if not self._hopeless(chosen, now):
                self._descend(chosen, now, taken)

    def _hopeless(self, choice: tuple[int, ...], cost: Cost) -> bool:
        """Whether no answer that begins with these options is better than the best one known."""
        if self.best is None:
            return False
        return (plus(cost, self.after[len(choice)]), choice) > (self.best.cost, self.best.choice[: len(choice)])


def solve(loops: Sequence[Sequence[Option]], room: int, zero: Cost, limit: int = MOST_COSTS) -> Answer | None:
    """The best options within `room`, None where nothing fits. `zero`: a cost of nothing, which says how many components there are."""
    return Search(loops, room, limit).run(zero)
