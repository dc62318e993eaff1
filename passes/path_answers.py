"""Paths through a program whose sizes are unknown: sequences of answers to the questions that its control flow asks. For `check-async`.

Whether a loop has another trip and whether a condition holds are questions. What follows from earlier answers (symbolic.py) is not asked again; the rest is
answered both ways, and each sequence of answers is a path, which is walked from its start:

    walk([])            asks:  K > 0?  yes,  K - 64 > 0?  yes,  …            the longest path: each question is answered with yes
    walk([yes, no])     the last yes becomes a no: K > 0, and not K - 64 > 0
    walk([no])          not K > 0

`explore` goes through all of them, deepest first, up to a number of paths and to an effort; where there are more, it draws as many again by a fixed seed.

Some sequences of answers contradict one another in ways that linear forms do not show: min, max and quotients of sizes are unknowns of their own here. `Sizes` draws
numbers for what is unknown instead, so that every answer follows. (`check-barriers` goes that way always.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .symbolic import Condition, Facts, Form

MORE = 0.75
"""How often a question is answered with yes at random: most ask whether there is another trip."""


class Answers:
    """The answers of one path: given ones first, then `choice`'s, or yes."""

    def __init__(self, given: list[bool], choice: random.Random | None = None) -> None:
        self.given = list(given)
        self.choice = choice
        self.asked = 0
        self.facts = Facts()
        self._loops: list[tuple[Form, Form, int]] = []
        """Of the loops met so far: upper minus lower bound, step, and trips that are walked at most."""

    def limit(self, distance: Form, step: Form, trips: int) -> None:
        """A loop from 0 up to `distance` by `step` has no more than so many trips, unless it is known already to have more."""
        self._loops.append((distance, step, trips))

    def suppose(self, form: Form) -> None:
        """form > 0, unless it is known whether: the path goes on as if that had been the answer."""
        if self.facts.is_positive(form) is None and not any(_past(*loop, form) for loop in self._loops):
            self.facts.learn(form, True)

    def known(self, condition: Condition) -> bool | None:
        """The answer, if it follows from earlier ones; nothing is asked."""
        parts = [self.known(part) for part in condition.parts]
        match condition.kind:
            case "not":
                return None if parts[0] is None else not parts[0]
            case "and":
                return False if False in parts else None if None in parts else True
            case "or":
                return True if True in parts else None if None in parts else False
            case "xor":
                return None if None in parts else parts[0] != parts[1]
            case "positive":
                assert condition.form is not None
                return self.facts.is_positive(condition.form)
            case _:
                return self.facts.truths.get(condition.atom)

    def holds(self, condition: Condition) -> bool:
        """The answer to a question: what follows from earlier answers, else the next answer there is to try, yes first."""
        match condition.kind:
            case "not":
                return not self.holds(condition.parts[0])
            case "and":
                return all(self.holds(part) for part in condition.parts)
            case "or":
                return any(self.holds(part) for part in condition.parts)
            case "xor":
                return self.holds(condition.parts[0]) != self.holds(condition.parts[1])
            case "positive":
                assert condition.form is not None
                known = self.facts.is_positive(condition.form)
                if known is None:
                    known = not any(_past(*loop, condition.form) for loop in self._loops) and self._answer()
                    self.facts.learn(condition.form, known)
                return known
            case _:
                if condition.atom not in self.facts.truths:
                    self.facts.truths[condition.atom] = self._answer()
                return self.facts.truths[condition.atom]

    def _answer(self) -> bool:
        if self.asked == len(self.given):
            self.given.append(self.choice is None or self.choice.random() < MORE)
        self.asked += 1
        return self.given[self.asked - 1]


class Sizes:
    """Numbers for what a program does not know, drawn from the number of a walk. `steps`: of its loops; `slots`: of its deepest ring;
    `numbers`: that it compares sizes with."""

    def __init__(self, number: int, steps: Sequence[int], slots: int, numbers: Sequence[int] = ()) -> None:
        self.numbers = [limit for limit in numbers if limit > 1]
        self.rng = random.Random(number)
        self.number, self.steps, self.slots = number, list(steps) or [1], slots
        self.blocks = self.rng.choice((1, 1, 2, 3))

    def trips(self) -> int:
        """Of a loop: each number up to where slots and parities repeat, in turns; some more first."""
        most = 2 * self.slots + 2
        if self.number == 0:
            return most + 10
        return (self.number - 1) % (most + 1) if self.rng.random() < 0.7 else self.rng.randint(0, most)

    def extent(self) -> int:
        """Of an array: so that a loop over it has such a number of trips, the last of them sometimes not whole; or a small one."""
        step = self.rng.choice(self.steps)
        if self.numbers and self.number and self.rng.random() < 0.3:
            return max(0, self.rng.choice(self.numbers) + self.rng.choice((-1, 0, 1, step, 2 * step)))
        if self.number and self.rng.random() < 0.2:
            return self.rng.randint(1, 2 * step)
        return max(0, self.trips() * step - self.rng.choice((0, 0, 1, step // 2)))


def explore(walk: Callable[[Answers], int], most: int, effort: int) -> tuple[int, bool]:
    """Walks paths, up to `most` and to an effort, and as many more at random where there are more. `walk` gives the effort that a path took. How many were walked, and whether these
    were all."""
    given: list[bool] = []
    walked = spent = 0
    while walked < most and spent < effort:
        answers = Answers(given)
        spent += walk(answers)
        walked += 1
        given = answers.given
        while given and not given[-1]:
            given.pop()
        if not given:
            return walked, True
        given[-1] = False
    choice = random.Random(0)
    drawn = spent = 0
    while drawn < most and spent < effort:
        spent += walk(Answers([], choice))
        drawn += 1
    return walked + drawn, False


def _past(distance: Form, step: Form, trips: int, form: Form) -> bool:
    """Whether `form > 0` asks for a trip after the last one that is walked, of a loop from 0 up to `distance`: distance - k·step, k ≥ trips."""
    beyond = distance - step.scaled(trips) - form
    if step.is_constant:
        return beyond.is_constant and beyond.constant >= 0
    (atom, factor), *others = step.terms
    more = dict(beyond.terms).get(atom, 0) // factor
    return more >= 0 and beyond == step.scaled(more)
