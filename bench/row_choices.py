"""Memory-bound kernels with other tiles, warps and launches than they choose, in turns and through a graph: what a choice is worth.

    python bench/row_choices.py                                   # all of CHOICES: about a minute
    python bench/row_choices.py --only column_sum --json bench/results/row_choices.json
    python bench/row_choices.py --kernel softmax bf16 16384 4096 --try warps=4 BLOCK=4096,ROWS=2

Needs a GPU and torch. A choice that is wrong, or cannot be compiled, says so. The first of each kernel is what it chooses itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from peers import Torch
from peers_rows import contest, copy, ours, title
from rounds import GPU, Case, Results, measure

CHOICES: tuple[tuple[tuple[str, str, int, int], tuple[str, ...]], ...] = (
    (
        ("column_sum", "bf16", 16384, 8192),
        (
            "pdl=0",
            "P=32",
            "P=8",
            "warps=8",
            "warps=8,P=32",
            "BM=32,BN=256,warps=8",
            "BM=32,BN=128",
            "BM=16,BN=512,warps=8",
            "BM=16,BN=512,warps=8,pdl=0",
            "BM=16,BN=256",
            "BM=16,BN=256,P=32",
            "BM=16,BN=256,pdl=0",
            "BM=32,BN=512,warps=16",
        ),
    ),
    (
        ("transpose", "bf16", 8192, 8192),
        (
            "pdl=0",
            "warps=8",
            "BM=128,BN=64",
            "BM=64,BN=128",
            "BM=128,BN=64,warps=8",
            "BM=64,BN=128,warps=8",
            "BM=128,BN=128",
            "BM=128,BN=128,warps=8",
            "BM=128,BN=128,warps=16",
            "BM=256,BN=64,warps=8",
            "BM=64,BN=256,warps=8",
        ),
    ),
    (("transpose", "f32", 8192, 8192), ("pdl=0", "warps=8", "BM=128", "BN=128", "BM=128,BN=128,warps=8")),
    (
        ("layer_norm", "bf16", 16384, 1024),
        (
            "pdl=0",
            "BLOCK=1024,warps=2",
            "BLOCK=1024,warps=1",
            "BLOCK=1024,warps=8",
            "BLOCK=1024,ROWS=2,warps=2",
            "BLOCK=1024,ROWS=2",
            "BLOCK=1024,ROWS=4",
            "BLOCK=1024,ROWS=4,warps=2",
            "BLOCK=1024,ROWS=8",
        ),
    ),
    (("layer_norm", "bf16", 16384, 8192), ("pdl=0", "BLOCK=8192,warps=16", "BLOCK=8192,warps=8", "BLOCK=8192,warps=4", "BLOCK=4096,warps=8")),
    (("softmax", "bf16", 16384, 4096), ("pdl=0", "BLOCK=4096,warps=8", "BLOCK=4096,warps=4", "BLOCK=4096,warps=16", "BLOCK=4096,ROWS=2,warps=8")),
    (("softmax", "bf16", 16384, 8192), ("pdl=0", "BLOCK=8192,warps=16", "BLOCK=8192,warps=8", "BLOCK=8192,warps=4")),
    (("softmax", "bf16", 16384, 1024), ("BLOCK=1024,ROWS=2", "BLOCK=1024,ROWS=4", "BLOCK=1024,warps=2", "BLOCK=1024,ROWS=2,warps=2")),
    (("rms_norm", "bf16", 16384, 1024), ("BLOCK=1024,ROWS=2", "BLOCK=1024,ROWS=4", "BLOCK=1024,warps=2", "BLOCK=1024,ROWS=2,warps=2")),
    (("row_sum", "bf16", 16384, 1024), ("BLOCK=1024,ROWS=2", "BLOCK=1024,ROWS=4", "BLOCK=1024,warps=2", "BLOCK=1024,ROWS=2,warps=2")),
    (("cumsum", "bf16", 16384, 1024), ("BLOCK=1024,ROWS=2", "BLOCK=1024,ROWS=4", "BLOCK=1024,warps=2", "BLOCK=1024,ROWS=2,warps=2")),
    (("rms_norm", "bf16", 16384, 8192), ("BLOCK=8192,warps=8", "BLOCK=8192,warps=16", "BLOCK=4096")),
    (("cumsum", "bf16", 16384, 8192), ("BLOCK=8192,warps=8", "BLOCK=4096", "BLOCK=8192,warps=16")),
    (("row_sum", "bf16", 16384, 8192), ("BLOCK=4096", "BLOCK=8192,warps=8")),
)
"""(kernel, element type, rows, columns), and what is tried."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="kernels whose title contains it")
    parser.add_argument("--kernel", nargs=4, metavar=("NAME", "TYPE", "ROWS", "COLUMNS"), help="this one instead of CHOICES")
    parser.add_argument("--try", dest="tried", nargs="+", default=[], metavar="CHOICE", help="with --kernel: what is tried")
    parser.add_argument("--chosen", action="store_true", help="only what each kernel chooses itself, and the copy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--json", type=Path, help="also write the results there")
    arguments = parser.parse_args(argv)
    end = time.monotonic() + arguments.seconds
    choices = CHOICES
    if arguments.kernel:
        name, dtype, m, n = arguments.kernel
        choices = (((name, dtype, int(m), int(n)), tuple(arguments.tried)),)
    torch, timer, results = Torch(), GPU(), Results("row_choices", rounds=arguments.rounds)
    for kernel, tried in choices:
        if arguments.only not in title(*kernel) or time.monotonic() > end:
            continue
        made = contest(torch, *kernel)
        systems = [*(ours(torch, made, text) for text in ("", *(() if arguments.chosen else tried))), copy(torch, made.nbytes)]
        row = results.add(measure(Case(title(*kernel), systems, nbytes=made.nbytes, graph=True), timer, arguments.rounds, deadline=end))
        sys.stdout.write(f"{row.case}\n")
        for system, entry in row.to_json()["systems"].items():
            sys.stdout.write(f"  {entry['ms'] * 1e3:8.2f} µs {entry['gbps']:6.0f} GB/s ±{entry['spread']:.1%}  {system}\n")
        sys.stdout.writelines(f"  failed: {system}: {why}\n" for system, why in row.failed.items())
        sys.stdout.flush()
        if arguments.json is not None:
            results.write(arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
