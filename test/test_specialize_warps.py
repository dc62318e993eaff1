"""Kernels in roles against the same kernels of one role, unpipelined: equal bit for bit, whatever the trips, the stages, and the order of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from pipelined_programs import PROGRAMS, Program

import tesela.simulator
from tesela.runtime.compile import compile
from tesela.runtime.specialize import usual_facts

ORDERS = ("latest", "earliest", 1, 2, 3)
SPLIT = "warp_specialize = true"
WHOLE = "warp_specialize = false"
STAY = {"in_place": "the loop stores what it loads", "indirect": None}


@cache
def kernel(program: Program, stages: int | None, attributes: str):
    return compile(program.text(stages, attributes), "sm_90a")


@contextmanager
def order(which: str | int) -> Iterator[None]:
    launch = tesela.simulator.launch
    options = {"seed": which} if isinstance(which, int) else {"completion": which}
    tesela.simulator.launch = lambda *args, **kwargs: launch(*args, **kwargs, **options)
    try:
        yield
    finally:
        tesela.simulator.launch = launch


def simulate(program: Program, stages: int | None, attributes: str, trips: int, which: str | int = "latest", pad: int = 0) -> dict[str, bytes]:
    """All arrays after a run in the simulator, as bytes."""
    arrays = program.arrays(trips, pad=pad)
    with order(which):
        kernel(program, stages, attributes)(**arrays, device="sim")
    return {name: array.tobytes() for name, array in arrays.items()}


def in_roles(program: Program, stages: int | None = 4) -> str:
    """The text of the scheduled level, for arrays as they usually are."""
    made = kernel(program, stages, SPLIT)
    return made.ir("schedule", facts=usual_facts(made.contract))


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_one_role(name, stages):
    program = PROGRAMS[name]
    for number, trips in enumerate(sorted({0, 1, 2, 3, stages - 1, stages, stages + 1, 9})):
        wanted = simulate(program, 1, WHOLE, trips)
        found = simulate(program, stages, SPLIT, trips, ORDERS[number % len(ORDERS)])
        assert found == wanted, f"{trips} trips"


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_programs_split(name):
    """All whose dots read what TMA loads; one that loads what it stores stays as it is."""
    assert ("async.roles" in in_roles(PROGRAMS[name])) == (name != "in_place")
