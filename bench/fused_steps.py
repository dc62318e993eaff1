"""What each step of the compiler brings the fused kernels: all of them, and all but one, beside the plain kernel, in one run by the method of rounds.py.

    python bench/fused_steps.py --json bench/results/fused_steps.json
    python bench/fused_steps.py --only biased_attention --steps "slots in parts"

Needs a GPU and torch. The kernel is the same source each time; a step is switched off by an option of its pass. Results are checked as peers.py does.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from attention_steps import options  # first: it rules the cache out
from peers import FUSED, Torch, fused, record
from rounds import GPU, Case, Results, System

from tesela.kernels import fused as kernels

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "slots whole": ("split-slots", {"when": "never"}),
    "one warp loads": ("tile-to-ptx", {"walkers": 1}),
    "no clusters": ("form-clusters", {"cluster": 1}),
    "nothing streamed": ("plan-dataflow", {"stream": False}),
}
"""What is left when a step is taken away: the pass and its options."""


def cases(torch: Torch, arguments: tuple[Any, ...], steps: dict[str, tuple[str, dict[str, Any]]]) -> Case:
    whole = fused(torch, *arguments)
    systems = list(whole.systems)
    for label, (name, values) in steps.items():
        importlib.reload(kernels)  # so that it is compiled again
        with options(name, values):
            systems.append(System(label, fused(torch, *arguments).systems[0].run))
    return replace(whole, systems=systems)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="the cases whose arguments, joined by 'x', contain this")
    parser.add_argument("--steps", nargs="*", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch, timer, results = Torch(), GPU(), Results("fused_steps", rounds=arguments.rounds)
    shapes = [shape for shape in FUSED if arguments.only in "x".join(map(str, shape))]
    record(results, (cases(torch, shape, {label: STEPS[label] for label in arguments.steps}) for shape in shapes), timer, arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
