"""What the scheduler chose for each loop, out of what, what came second, and what a better schedule would need.

    examples/gemm.mlir:13:3 loop: dots in flight, 4 slots
      by         the best of 16 ways, proven; 1 of them was run in the model
      interval   1024 clocks a trip, and no schedule takes less than 1024
      holds      196736 of 232448 bytes of shared memory
      runner-up  dots in flight, 5 slots does not fit; dots awaited, 4 slots: as long, but a warpgroup alone would take 11 % more
      better     nothing

For a program just before `pipeline-loops`, which is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..dialects.async_roles import RolesOp
from ..dialects.diagnostics import nearest_location
from ..dialects.inside import kernels_in
from .pipeline_loops import PipelineLoops
from .schedule_problem import NOTHING, LoopProblem, ScheduleProblem, Way, decide, option_of
from .schedule_solver import Cost, Option, solve

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..dialects.target import Target

UNLIMITED = 1 << 40
"""More shared memory than anything takes."""


def explain(module: ModuleOp, target: Target) -> list[str]:
    """The lines for all loops of a module's kernels."""
    lines: list[str] = []
    for kernel in kernels_in(module):
        problem = PipelineLoops().problem(kernel, target)
        decide(problem)
        for number, loop in enumerate(problem.loops):
            lines += _loop(problem, number, loop)
    return lines


def other_roles(module: ModuleOp, other: ModuleOp, target: Target) -> list[str]:
    """What a kernel's loops would take with roles where it has none, and in one stream where it has some. `module`, `other`: just before `pipeline-loops`, the way
    that was chosen and the other one, which may be the same where the other is not possible."""
    lines: list[str] = []
    for kernel, changed in zip(kernels_in(module), kernels_in(other)):
        has = [any(isinstance(op, RolesOp) for op in each.body.block.ops) for each in (kernel, changed)]
        problems = [PipelineLoops().problem(each, target) for each in (kernel, changed)]
        if has[0] == has[1] or not all(problem.loops for problem in problems):
            continue
        for problem in problems:
            decide(problem)
        more = problems[1].clocks() / max(1.0, problems[0].clocks()) - 1
        chosen, else_ = ("one warp loads, the others compute", "in one stream") if has[0] else ("one stream", "with a warp that loads, and one block at a time,")
        lines.append(f"roles: {chosen}; {else_} the loops would take {abs(more):.0%} {'more' if more >= 0 else 'less'}".replace("%", " %"))
    return lines


def _loop(problem: ScheduleProblem, number: int, loop: LoopProblem) -> list[str]:
    answer, way = problem.answer, problem.chosen(number)
    assert answer is not None
    count = sum(len(options) for options in problem.options)
    lines = [f"{nearest_location(loop.loop.op) or '?'} loop: {way}"]
    if answer.proven:
        which = "the only way" if count == 1 else f"the best of {count} ways, proven"
    else:
        gap = answer.cost[0] - answer.bound[0]
        which = f"the best that was found of {count} ways; no other is better by more than {gap} % of the kernel's clocks"
    lines.append(f"  by         {which}; {answer.asked} of them {'was' if answer.asked == 1 else 'were'} run in the model")
    if loop.stated is not None:
        lines.append(f"  pinned     stages = {loop.stated}")
    if loop.bound is not None:
        lines.append(f"  interval   {loop.interval(way):.0f} clocks a trip, and no schedule takes less than {loop.bound:.0f}")
    registers = f", {way.structure.registers} registers a thread for dots under way" if way.structure.registers else ""
    lines.append(f"  holds      {loop.room(way)} of {problem.room} bytes of shared memory{registers}")
    lines.append(f"  runner-up  {_runner_up(problem, number)}")
    return [*lines, f"  better     {_better(problem, number, loop)}"]


def _runner_up(problem: ScheduleProblem, number: int) -> str:
    """What the loop would be if not what it is, and why that is worse."""
    assert problem.answer is not None
    others = [list(options) for options in problem.options]
    del others[number][problem.answer.choice[number]]
    second = solve(others, problem.room, NOTHING)
    if second is None:
        return "no other way fits"
    way = others[number][second.choice[number]].about
    changed = _changes(problem, others, second.choice, number)
    return f"{way}{changed}: {_worse(second.cost, problem.answer.cost)}"


def _changes(problem: ScheduleProblem, options: Sequence[Sequence[Option]], choice: Sequence[int], number: int) -> str:
    """What other loops become beside it."""
    changed = [
        f"{nearest_location(loop.loop.op) or 'another loop'} with {options[other][choice[other]].name}"
        for other, loop in enumerate(problem.loops)
        if other != number and options[other][choice[other]].about is not problem.chosen(other)
    ]
    return f" ({', '.join(changed)})" if changed else ""


def _worse(cost: Cost, than: Cost) -> str:
    """How a cost is worse than another: by the first component that differs."""
    if cost[0] != than[0]:
        return f"{cost[0] - than[0]} % of the kernel's clocks more"
    if cost[1] != than[1]:
        return f"as long, but it would wait {cost[1] - than[1]} clocks more if copies came a trip late"
    if cost[2] != than[2]:
        return f"as long, but a warpgroup that has the multiprocessor to itself takes {cost[2] - than[2]} % more"
    return "as long" if cost[3] == than[3] else f"as long, with {cost[3] - than[3]} bytes more of shared memory"


def _better(problem: ScheduleProblem, number: int, loop: LoopProblem) -> str:
    """What the next better schedule of the kernel would need."""
    assert problem.answer is not None
    chosen = problem.chosen(number)
    needs: list[str] = []
    roomy = solve(problem.options, UNLIMITED, NOTHING)
    if roomy is not None and roomy.cost[:3] < problem.answer.cost[:3]:
        way = problem.options[number][roomy.choice[number]].about
        if way is not chosen:
            more = sum(options[i].room for options, i in zip(problem.options, roomy.choice)) - problem.room
            needs.append(f"{way}, with {more} bytes more of shared memory; what is chosen is {_worse(problem.answer.cost, roomy.cost)}")
    for structure in loop.too_large:
        larger = [option_of(problem, loop, Way(structure, way.stages)) for way in loop.ways if way.stages > 1]
        options = [larger if other == number else each for other, each in enumerate(problem.options)]
        found = solve(options, problem.room, NOTHING) if larger else None
        if found is not None and found.cost < problem.answer.cost:
            registers = structure.registers - problem.register_limit
            needs.append(f"{larger[found.choice[number]].about}, with {registers} registers more of each thread; what is chosen is {_worse(problem.answer.cost, found.cost)}")
    return "; ".join(needs) or "nothing that is looked at"
