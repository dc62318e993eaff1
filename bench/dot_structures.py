"""What becomes of a loop's dots (in flight, a trip late, awaited), and roles or one stream, each beside the others and what is chosen, in one run by the method of rounds.py.

    python bench/dot_structures.py --json bench/results/dot_structures.json
    python bench/dot_structures.py --case D128 64×256 --rounds 5

Needs a GPU and torch. The kernels are the same source each time; options of passes state the structure, where it is possible. It shows whether the model that
`passes/schedule_problem.py` chooses by is right. Results are compared with a float64 reference first.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ["TESELA_CACHE"] = "0"  # a cached kernel would be that of the options that made it

from attention_steps import options
from peers import Torch, record
from rounds import GPU, Case, Results, System

from tesela import bf16
from tesela.kernels.attention import attention
from tesela.kernels.matrices import gemm_nt
from tesela.runtime.compile import compile

STRUCTURES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "auto": [],
    **{dots: [("pipeline-loops", {"dots": dots})] for dots in ("in-flight", "late", "awaited")},
    "roles": [("specialize-warps", {"when": "always"}), ("persist-grid", {"when": "always"})],
    "one stream": [("specialize-warps", {"when": "never"}), ("persist-grid", {"when": "never"})],
}
"""What is stated, as options of passes."""
PRODUCTS: list[tuple[tuple[int, int, int], dict[str, int], dict[str, int]]] = [
    ((2048, 2048, 2048), {"BM": 64, "BN": 256}, {"stages": 2}),
    ((4096, 4096, 4096), {"BM": 64, "BN": 256}, {"stages": 2}),
    ((4096, 4096, 4096), {"BM": 64, "BN": 128}, {"stages": 4}),
    ((4096, 4096, 4096), {"BM": 128, "BN": 256}, {}),
    ((4096, 4096, 4096), {"BM": 64, "BN": 256}, {}),
    ((64, 4096, 8192), {"BM": 64, "BN": 64}, {}),
]
"""M, N, K; a tile's extents; pins."""
ATTENTIONS = [(4, 16, 4096, 128, False), (4, 32, 4096, 64, False), (4, 16, 4096, 128, True), (4, 32, 4096, 64, True), (4, 8, 4096, 256, False)]
"""Batches, heads, length, head dimension, causal."""


@contextmanager
def all_options(stated: list[tuple[str, dict[str, Any]]]) -> Iterator[None]:
    """Passes of these names are made with these options."""
    with ExitStack() as stack:
        for name, values in stated:
            stack.enter_context(options(name, values))
        yield


def title_of_product(shape: tuple[int, int, int], tile: dict[str, int], pins: dict[str, int]) -> str:
    return f"{'×'.join(map(str, shape))} in {tile['BM']}×{tile['BN']}" + "".join(f", {name} {value}" for name, value in pins.items())


def title_of_attention(batch: int, heads: int, length: int, head: int, causal: bool) -> str:
    return f"B{batch} H{heads} S{length} D{head}{' causal' * causal}"


def products(torch: Torch, shape: tuple[int, int, int], tile: dict[str, int], pins: dict[str, int]) -> Case:
    m, n, k = shape
    a, b = (torch.randn(rows, k, dtype=torch.torch.bfloat16) for rows in (m, n))
    c = torch.torch.empty(m, n, device="cuda", dtype=torch.torch.bfloat16)
    expected, systems = a.double() @ b.double().T, list[System]()
    for label, stated in STRUCTURES.items():
        if label not in ("late", "roles" if tile["BM"] > 64 else "one stream"):
            with all_options(stated):
                kernel = compile(gemm_nt.trace(T=bf16, **tile), "sm_90a", pins=pins or None)
                systems.append(torch.checked(torch.system(label, lambda kernel=kernel: kernel(a, b, c)), c, expected, 1e-2))
    return Case(title_of_product(shape, tile, pins), systems, flops=2 * m * n * k, nbytes=2 * (m * k + n * k + m * n))


def attentions(torch: Torch, batch: int, heads: int, length: int, head: int, causal: bool) -> Case:
    q, k, v = (torch.randn(batch * heads, length, head, dtype=torch.torch.bfloat16) for _ in range(3))
    out, scale = torch.torch.empty_like(q), head**-0.5
    sdpa = torch.torch.nn.functional.scaled_dot_product_attention
    expected = sdpa(*(x.view(batch, heads, length, head) for x in (q, k, v)), is_causal=causal).view_as(q).double()
    systems: list[System] = []
    for label, stated in STRUCTURES.items():
        if label not in ("in-flight", "roles"):
            with all_options(stated):
                kernel = compile(attention.trace(T=bf16, HEAD=head, CAUSAL=causal), "sm_90a")
                systems.append(torch.checked(torch.system(label, lambda kernel=kernel: kernel(q, k, v, out, scale)), out, expected, 1e-2))
    flops = 4 * batch * heads * length * length * head // (2 if causal else 1)
    return Case(title_of_attention(batch, heads, length, head, causal), systems, flops=flops, nbytes=8 * batch * heads * length * head)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", nargs="*", default=[""], metavar="TEXT", help="those whose titles contain one of these (default: all)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch, timer, results = Torch(), GPU(), Results("dot_structures", rounds=arguments.rounds)
    cases: list[tuple[str, Any, tuple[Any, ...]]] = [(title_of_product(*case), products, case) for case in PRODUCTS]
    cases += [(title_of_attention(*case), attentions, case) for case in ATTENTIONS]
    wanted = [(make, values) for title, make, values in cases if any(text in title for text in arguments.case)]
    record(results, (make(torch, *values) for make, values in wanted), timer, arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
