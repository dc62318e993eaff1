"""No report on any program that is right, under several schedules; `bench/judge.py` does the same with more of them."""

from __future__ import annotations

from typing import Any

import pytest
from judged_programs import PROGRAMS, TARGETS

from tesela.simulator import settings

SCHEDULES: list[dict[str, Any]] = [{"policy": "latest"}, {"policy": "earliest"}, *({"seed": s} for s in range(3))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_reported(name: str, target: str) -> None:
    for options in SCHEDULES:
        with settings(races=True, **options):
            PROGRAMS[name](target)
