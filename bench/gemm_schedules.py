"""One GEMM under several schedules beside cuBLAS, in one run by the method of rounds.py: with and without clusters, and shared mbarriers.

    python bench/gemm_schedules.py --json bench/results/gemm_schedules.json
    python bench/gemm_schedules.py --output bf16 --shape 8192 8192 8192

Needs a GPU and torch. The program is `examples/gemm.mlir`, C = A·Bᵀ in tiles of 128×256, which states the schedule by attributes of the kernel; with
`--output bf16` its result is rounded to what cuBLAS writes. Every result is compared with a float64 reference before it is timed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from peers import Torch, show
from rounds import GPU, Case, Results, measure

import tesela
from tesela.tools.demo import example

SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (16384, 4096, 7168), (4096, 7168, 2048))
SCHEDULES = {
    "alone, own mbarriers": "cluster = 1 : i64, join_channels = false",
    "alone": "cluster = 1 : i64",
    "pairs, own mbarriers": "cluster = 2 : i64, join_channels = false",
    "pairs": "cluster = 2 : i64",
    "fours": "cluster = 4 : i64",
    "as chosen": "",
}
"""Attributes of the kernel, by the name of the schedule."""


def program(attributes: str, output: str) -> str:
    """The example's text with these attributes and this element type of the result."""
    text = example("gemm", "mlir").read_text()
    if attributes:
        text = text.replace("ceildiv 256) {", f"ceildiv 256) attributes {{{attributes}}} {{")
    if output == "bf16":
        text = text.replace("%C: memref<?x?xf32", "%C: memref<?x?xbf16")
        store = "tile.store %acc, %C[%m, %n] : tensor<128x256xf32>, memref<?x?xf32, strided<[?, 1]>>"
        rounded = "%out = tile.cast %acc : tensor<128x256xf32> -> tensor<128x256xbf16>\n  "
        text = text.replace(store, rounded + store.replace("%acc", "%out").replace("f32", "bf16"))
    return text


def case(torch: Torch, m: int, n: int, k: int, output: str) -> Case:
    """One shape: all schedules, and cuBLAS."""
    bf16 = torch.torch.bfloat16
    a, b = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16)
    c = torch.torch.empty(m, n, device="cuda", dtype=bf16 if output == "bf16" else None)
    theirs = torch.torch.empty(m, n, device="cuda", dtype=bf16)
    expected = a.double() @ b.double().T
    systems = []
    for name, attributes in SCHEDULES.items():
        kernel = tesela.compile(program(attributes, output), "sm_90a")
        ours = torch.system(name, lambda kernel=kernel: kernel(a, b, c))
        systems.append(torch.checked(ours, c, expected, 1e-2 if output == "bf16" else 1e-4))
    cublas = torch.system("cuBLAS", lambda: torch.torch.matmul(a, b.T, out=theirs))
    systems.append(torch.checked(cublas, theirs, expected, 1e-2))
    nbytes = 2 * (m * k + n * k) + c.element_size() * m * n
    return Case(f"{m}×{n}×{k}", systems, flops=2 * m * n * k, nbytes=nbytes)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--output", choices=("f32", "bf16"), default="f32", help="the element type of the result")
    parser.add_argument("--shape", type=int, nargs=3, action="append", metavar=("M", "N", "K"), help="default: five large ones")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args(argv)
    torch, timer = Torch(), GPU()
    results = Results("gemm schedules", rounds=arguments.rounds)
    failed = False
    for shape in arguments.shape or SHAPES:
        row = results.add(measure(case(torch, *shape, arguments.output), timer, arguments.rounds))
        failed |= bool(row.failed)
        sys.stdout.write(show(row))
        sys.stdout.flush()
        if arguments.json is not None:
            results.write(arguments.json)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
