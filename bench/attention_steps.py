"""What each step of the compiler brings attention: all of them, and all but one, beside one another in one run by the method of rounds.py.

    python bench/attention_steps.py --json bench/results/attention_steps.json
    python bench/attention_steps.py --case 4x16x4096x128 --causal --percent 0 25 50 75 100

Needs a GPU and torch. The kernel is the same source each time; a step is switched off by an option of its pass. Results are compared with those of torch first.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["TESELA_CACHE"] = "0"  # a cached kernel would be that of the options that made it

from peers import Torch, record
from rounds import GPU, Case, Results, System

from tesela import bf16
from tesela.kernels.attention import attention
from tesela.passes import get_pass
from tesela.runtime.compile import compile

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "Q from shared memory": ("plan-dataflow", {"hold": False}),
    "masks in every trip": ("split-loops", {"values": 0}),
    "the first trip masked": ("split-loops", {"guard": False}),
    "always rescaled": ("skip-identities", {"ratio": 0}),
    "maxima combined always": ("skip-identities", {"extremes": False}),
    "ptxas places the wait": ("overlap-waits", {"percent": 0}),
    "rows in order": ("persist-grid", {"fair": False}),
}
"""What is left when a step is taken away: the pass and its options."""


@contextmanager
def options(name: str, values: dict[str, Any]) -> Iterator[None]:
    """Passes of this name are made with these options."""
    kind = get_pass(name)
    with patch.object(kind, "__init__", partialmethod(kind.__init__, **values)):
        yield


def cases(torch: Torch, shape: tuple[int, int, int, int], causal: bool, steps: dict[str, tuple[str, dict[str, Any]]]) -> Case:
    batch, heads, length, head = shape
    q, k, v = (torch.randn(batch * heads, length, head, dtype=torch.torch.bfloat16) for _ in range(3))
    out, scale = torch.torch.empty_like(q), head**-0.5
    sdpa = torch.torch.nn.functional.scaled_dot_product_attention
    expected = sdpa(*(x.view(batch, heads, length, head) for x in (q, k, v)), is_causal=causal).view_as(q).double()
    systems: list[System] = []

    def add(label: str) -> None:
        kernel = compile(attention.trace(T=bf16, HEAD=head, CAUSAL=causal), "sm_90a")
        systems.append(torch.checked(torch.system(label, lambda: kernel(q, k, v, out, scale)), out, expected, 1e-2))

    add("tesela")
    for label, (name, values) in steps.items():
        with options(name, values):
            add(label)
    flops = 4 * batch * heads * length * length * head // (2 if causal else 1)
    title = f"B{batch} H{heads} S{length} D{head}{' causal' * causal}"
    return Case(title, systems, flops=flops, nbytes=8 * batch * heads * length * head)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", help="batch x heads x length x head dimension (default: 4x16x4096x128 and 4x32x4096x64)")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--percent", type=int, nargs="*", default=[], help="instead of steps: how much is held above the wait, in per cent")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    steps = {f"{percent} % before the wait": ("overlap-waits", {"percent": percent}) for percent in arguments.percent} or STEPS
    torch, timer, results = Torch(), GPU(), Results("attention_steps", rounds=arguments.rounds)
    shapes = [tuple(map(int, text.split("x"))) for text in arguments.case or ["4x16x4096x128", "4x32x4096x64"]]
    record(results, (cases(torch, shape, arguments.causal, steps) for shape in shapes), timer, arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
