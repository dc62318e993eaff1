"""What it saves that a launch may begin while the one before it ends (lowering/overlap_launches.py): products with it, without it, and cuBLAS.

    python bench/overlapping.py --json bench/results/overlapping.json
    python bench/overlapping.py --only 1024x1024x1024 128x7168x2048 --rounds 3

Needs a GPU and torch. C = A·Bᵀ in bf16, by the variant that each call chooses, and by every other that the model expects within `slack` of it. Small cases
are launched through CUDA graphs, as everywhere (rounds.py): a graph holds many launches one after another, each of which reads and writes the same arrays, so each waits for the one before.
Every result is compared with a float64 reference before it is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from peers import Torch, record
from rounds import GPU, Case, Results

import tesela
from tesela.kernels import matrices

SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (512, 7168, 2048), (128, 7168, 2048), (16, 7168, 7168), (4096, 4096, 512))


def case(torch: Torch, m: int, n: int, k: int, slack: float) -> Case:
    """One shape: each candidate with and without overlap, and cuBLAS."""
    bf16 = torch.torch.bfloat16
    a, b = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16)
    c, theirs = (torch.torch.empty(m, n, device="cuda", dtype=bf16) for _ in range(2))
    expected = a.double() @ b.double().T
    rows = [row for row in matrices.gemm_nt.compile(T=tesela.bf16).expected(a, b, c) if row.expected is not None]
    limit = slack * min(row.cost for row in rows)
    systems = []
    for row in (row for row in rows if row.cost <= limit):
        config = matrices.gemm_nt.variants[row.choice.program]
        constants = {name: value for name, value in config.items() if name in matrices.gemm_nt.constants}
        pins = {name: value for name, value in config.items() if name not in constants} | {"split": row.choice.parts}
        for pdl in (1, 0):
            kernel = matrices.gemm_nt.compile(pins=pins | {"pdl": pdl}, T=tesela.bf16, **constants)
            ours = torch.system(f"{row.label}{', overlapping' if pdl else ''}", lambda kernel=kernel: kernel(a, b, c))
            systems.append(torch.checked(ours, c, expected, 1e-2))
    cublas = torch.system("cuBLAS", lambda: torch.torch.matmul(a, b.T, out=theirs))
    systems.append(torch.checked(cublas, theirs, expected, 1e-2))
    nbytes = 2 * (m * k + n * k + m * n)
    return Case(f"{m}×{n}×{k}", systems, flops=2 * m * n * k, nbytes=nbytes)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--only", nargs="+", default=[], metavar="MxNxK", help="these shapes only")
    parser.add_argument("--slack", type=float, default=1.3, help="how much worse than the best a candidate may be expected to be")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args(argv)
    torch, timer = Torch(), GPU()
    results = Results("overlapping", rounds=arguments.rounds)
    shapes = [tuple(map(int, text.split("x"))) for text in arguments.only] or SHAPES
    record(results, (case(torch, m, n, k, arguments.slack) for m, n, k in shapes), timer, arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
