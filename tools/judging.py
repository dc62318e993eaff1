"""What `tesela run` and `tesela check` share: options that have the simulator judge a program, under several
schedules, or profile it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from ..dialects.diagnostics import TeselaError
from ..simulator.schedules import POLICIES
from .driver import natural


def add_race_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of judging."""
    add = parser.add_argument
    add(
        "--races",
        action="store_true",
        help="in the simulator: report races, missing waits and fences, deadlocks … (docs/memory-order.md)",
    )
    add("--strict-isa", action="store_true", help="judge by the letter of the PTX ISA, without the named relaxations")


def add_simulator_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tesela run` that only the simulator knows."""
    add_race_arguments(parser)
    add = parser.add_argument
    add(
        "--seeds",
        type=natural,
        default=0,
        metavar="N",
        help="in the simulator: run under N random schedules, after the usual one",
    )
    add(
        "--policy",
        choices=POLICIES,
        help="in the simulator: when asynchronous operations complete, and in which order threads run",
    )
    add(
        "--profile",
        action="store_true",
        help="in the simulator: print what each source line executes and moves, with bank conflicts and sectors",
    )


def simulated_runs(
    arguments: argparse.Namespace, arrays: dict[str, Any], call: Callable[[dict[str, Any]], Any], stdout: TextIO
) -> tuple[dict[str, Any], Any]:
    """Calls a kernel on arrays, once, or as often as the options ask, each time on copies of what they held; gives
    the arrays of the last call and its result. Prints the profile, and in how many runs nothing was reported. Raises
    TeselaError where the device is not the simulator."""
    asked = arguments.races or arguments.strict_isa or arguments.seeds or arguments.policy or arguments.profile
    if not asked:
        return arrays, call(arrays)
    from ..runtime.kernel import in_simulator

    if not in_simulator(arguments.device):
        raise TeselaError.at(
            None, "--races, --strict-isa, --seeds, --policy and --profile are for the simulator, and this would run on a GPU", "add --device sim"
        )
    from ..simulator import settings
    from ..simulator.profile import Profile

    profile = Profile() if arguments.profile else None
    races = arguments.races or arguments.strict_isa
    given, result = arrays, None
    for seed in (None, *range(arguments.seeds)):
        usual = seed is None
        given = {name: np.array(array, copy=True) for name, array in arrays.items()}
        with settings(
            races, seed, arguments.policy if usual else None, arguments.strict_isa, profile if usual else None
        ):
            result = call(given)
    if profile is not None:
        stdout.write(profile.table() + "\n")
    if races:
        runs = 1 + arguments.seeds
        stdout.write(f"nothing to report in {runs} run{'s' * (runs != 1)}\n")
    return given, result
