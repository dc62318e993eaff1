"""Adversarial time: in which order the simulator runs threads and completes asynchronous operations.

| policy | threads | asynchronous operations complete |
|---|---|---|
| latest (the default without a seed) | in running order | when a wait demands it, or nobody can go on without |
| earliest | in running order | at once |
| random (the default with a seed) | a random place of those ready | at random times, by an eagerness drawn once |
| systematic | every schedule that leaves the running order at most `bound` times | likewise |

The systematic policy runs the program again and again, each time with another plan. At every scheduling point of a
run there is a choice: go on in running order (0), run another of the ready places (1, 2, …), or complete the oldest
asynchronous operation first (the last). A plan says at which points to choose otherwise; a plan of n such points is a
schedule with n preemptions. Plans are tried in order of preemptions, and spread evenly over the points where there
are more than `limit` allows ("iterative context bounding", Musuvathi and Qadeer 2007: most concurrency faults need
very few preemptions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

POLICIES = ("latest", "earliest", "random", "systematic")
LIMIT = 64
"""Runs of one systematic exploration."""


class Decisions:
    """The choices of one run: `plan` maps the number of a choice to what is taken there; everywhere else 0. `sizes`
    records how many possibilities there were at each."""

    def __init__(self, plan: Mapping[int, int] | None = None):
        self.plan = dict(plan or {})
        self.sizes: list[int] = []

    def choose(self, count: int) -> int:
        """One of `count` possibilities."""
        chosen = self.plan.get(len(self.sizes), 0)
        self.sizes.append(count)
        return min(chosen, count - 1)


def explore(run: Callable[[Decisions], None], bound: int = 1, limit: int = LIMIT) -> int:
    """Runs `run` with one plan after the other, those with fewer preemptions first, at most `limit` times; gives how
    often."""
    runs = 0
    level: list[dict[int, int]] = [{}]
    for depth in range(bound + 1):
        following: list[dict[int, int]] = []
        for plan in _spread(level, limit - runs):
            decisions = Decisions(plan)
            run(decisions)
            runs += 1
            if depth < bound:
                following.extend(_extended(plan, decisions.sizes))
        level = following
    return runs


def _extended(plan: Mapping[int, int], sizes: list[int]) -> Iterator[dict[int, int]]:
    """The plans with one preemption more, later than all of the plan's."""
    for at in range(max(plan, default=-1) + 1, len(sizes)):
        for other in range(1, sizes[at]):
            yield {**plan, at: other}


def _spread(plans: list[dict[int, int]], room: int) -> list[dict[int, int]]:
    """At most `room` of the plans, evenly."""
    if len(plans) <= room:
        return plans
    return [plans[k * len(plans) // room] for k in range(max(0, room))]
