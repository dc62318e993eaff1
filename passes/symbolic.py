"""Scalars that depend on the caller's sizes, as linear forms; conditions between them; and what is known of these on one path. For `check-async`.

A *form* is a constant plus integer multiples of *atoms*, which stand for what is not known when the program is compiled: an argument, a
dimension, the result of an operation that is not linear. Atoms are named by structure, so that a computation which two roles both
make gives one form.

    lb + 3·step < ub      →      positive(ub - lb - 3·step)

A path through a program is a sequence of answers to such questions. `Facts` holds those given so far, and gives the ones that follow: of
`p > 0` follows `p + c > 0` for every c that is never negative. Steps of loops are such (scf.for demands positive ones), so a loop that has a
trip 3 has a trip 2, here and in every other role.

Forms are whole numbers, so multiples are compared, too, and a question and its contrary are one:

    not K > 0      →      not 2·K > 0,   -3·K + 1 > 0           32·u - 16 > 0  (K is 32·u)      ↔      u > 0
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import gcd, inf

Atom = Hashable


@dataclass(frozen=True, slots=True)
class Form:
    """`constant + Σ factor·atom`, without factors of 0, atoms in the order of their text, so that equal forms are equal."""

    constant: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()

    @staticmethod
    def of(atom: Atom) -> Form:
        return Form(0, ((atom, 1),))

    @staticmethod
    def make(constant: int, factors: dict[Atom, int]) -> Form:
        terms = [(atom, factor) for atom, factor in factors.items() if factor]
        return Form(constant, tuple(sorted(terms, key=lambda term: repr(term[0]))) if len(terms) > 1 else tuple(terms))

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __add__(self, other: Form) -> Form:
        if not other.terms:
            return Form(self.constant + other.constant, self.terms)
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        return Form.make(self.constant + other.constant, factors)

    def scaled(self, by: int) -> Form:
        return Form(self.constant * by, tuple((atom, factor * by) for atom, factor in self.terms)) if by else Form()

    def __sub__(self, other: Form) -> Form:
        return self + other.scaled(-1)

    def tightened(self) -> Form:
        """The form of factors without a common divisor that is positive for the same whole numbers: g·f + c > 0 where f + ceil(c / g) > 0."""
        common = gcd(*(factor for _, factor in self.terms))
        if common <= 1:
            return self
        return Form(-(-self.constant // common), tuple((atom, factor // common) for atom, factor in self.terms))


@dataclass(frozen=True, slots=True)
class Condition:
    """A truth value that is asked for only where the path depends on it: `positive` of a form, an opaque one (`atom`), or a combination."""

    kind: str
    """"positive", "atom", "not", "and", "or" or "xor"."""
    form: Form | None = None
    atom: Atom = None
    parts: tuple[Condition, ...] = ()


def positive(form: Form) -> Condition:
    """form > 0."""
    return Condition("positive", form)


def negation(condition: Condition) -> Condition:
    return Condition("not", parts=(condition,))


def compare(predicate: str, left: Form, right: Form) -> Condition:
    """`arith.cmpi`, by the name of its predicate. Forms are integers without bound: what wraps round is not modelled."""
    match predicate.lstrip("su") if len(predicate) == 3 else predicate:
        case "lt":
            return positive(right - left)
        case "le":
            return positive(right - left + Form(1))
        case "gt":
            return positive(left - right)
        case "ge":
            return positive(left - right + Form(1))
        case "eq" | "ne":
            both = Condition("and", parts=(positive(right - left + Form(1)), positive(left - right + Form(1))))
            return both if predicate == "eq" else negation(both)
        case _:
            raise ValueError(f"unknown predicate {predicate}")


Rest = tuple[tuple[Atom, int], ...]
"""The terms of a form whose atoms may be negative, by their common divisor: what two forms must have in common to be compared."""

Terms = tuple[tuple[Atom, int], ...]
"""All terms of a form."""

Fact = tuple[Form, int]
"""A form, and the common divisor of its rest."""


@dataclass(slots=True)
class Facts:
    """What is known on a path: forms that are positive and forms that are not, opaque truths, and atoms that are positive everywhere."""

    above: dict[Rest, dict[Terms, Fact]] = field(default_factory=dict)
    not_above: dict[Rest, dict[Terms, Fact]] = field(default_factory=dict)
    """Of forms that differ in their constant alone the one of which the others follow: a loop's trips are one fact, however many there are."""
    truths: dict[Atom, bool] = field(default_factory=dict)
    positive_atoms: set[Atom] = field(default_factory=set)

    def is_positive(self, form: Form) -> bool | None:
        """Whether form > 0; None if both are possible as far as is known."""
        form, flipped, rest, times = self._normal(form)
        if not rest:
            if self._least(form) >= 1:
                return not flipped
            if self._least(form.scaled(-1)) >= 0:
                return flipped
        # Where a fact is n·r + p, the form m·r + q, and d = n·q - m·p: n·form = m·fact + d, which is at least m + d if the fact is above 0, and at most d if it is not.
        if any(
            self._least(form.scaled(n) - fact.scaled(times)) > -times for fact, n in self.above.get(rest, {}).values()
        ):
            return not flipped
        if any(
            self._least(fact.scaled(times) - form.scaled(n)) > -n for fact, n in self.not_above.get(rest, {}).values()
        ):
            return flipped
        return None

    def learn(self, form: Form, above: bool) -> None:
        """form > 0, or not."""
        form, flipped, rest, times = self._normal(form)
        above = above != flipped
        facts = (self.above if above else self.not_above).setdefault(rest, {})
        known = facts.get(form.terms)
        if known is None or (form.constant < known[0].constant if above else form.constant > known[0].constant):
            facts[form.terms] = (form, times)

    def always_positive(self, atom: Atom) -> None:
        """The atom is at least 1 on every path."""
        if atom in self.positive_atoms:
            return
        self.positive_atoms.add(atom)
        for known, truth in ((self.above, True), (self.not_above, False)):
            forms = [form for group in known.values() for form, _ in group.values()]
            known.clear()
            for form in forms:
                self.learn(form, truth)

    def _normal(self, form: Form) -> tuple[Form, bool, Rest, int]:
        """What decides whether a form is positive: a form, whether the answer is the contrary of that form's, its rest, which begins with a positive factor, and
        the rest's common divisor (1 if there is no rest)."""
        flipped = next((factor < 0 for atom, factor in form.terms if atom not in self.positive_atoms), False)
        form = (Form(1) - form if flipped else form).tightened()
        rest = [term for term in form.terms if term[0] not in self.positive_atoms]
        times = gcd(*(factor for _, factor in rest)) or 1
        return form, flipped, tuple((atom, factor // times) for atom, factor in rest), times

    def _least(self, form: Form) -> float:
        """The least value of a form without a rest."""
        if any(factor < 0 or atom not in self.positive_atoms for atom, factor in form.terms):
            return -inf
        return form.constant + sum(factor for _, factor in form.terms)


def structure(parts: Iterable[Hashable]) -> Atom:
    """An atom for the result of an operation, from what makes it what it is."""
    return tuple(parts)
