"""`tesela run examples/gemm.mlir` against NumPy for every triple of sizes out of 0, 1, 7, 64, 129, 300: 216 runs for each target.

    python bench/gemm_sizes.py --json bench/results/gemm_sizes.json      # in the simulator
    python bench/gemm_sizes.py --device cuda

Through the command line in this process, from .npy files to an .npy file; each element must stay within the bound that rounding
explains. Exit status 1 if a run fails.
"""

from __future__ import annotations

import argparse
import io
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rounds import environment, write_json

from tesela.tools.cli import main as tesela

GEMM = Path(__file__).resolve().parent.parent / "examples" / "gemm.mlir"
SIZES = (0, 1, 7, 64, 129, 300)
TARGETS = ("sm_90a", "sm_80")


def check(m: int, n: int, k: int, target: str, device: str, folder: Path) -> str:
    """Run one triple; '' if the result is right, else what is wrong."""
    rng = np.random.default_rng((m, n, k))
    a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16)
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    said = io.StringIO()
    arguments = ["run", str(GEMM), "--in", f"A={folder}/a.npy", "--in", f"B={folder}/b.npy", "--out", f"C={folder}/c.npy"]
    status = tesela([*arguments, "--device", device, "--target", target], stdout=said, stderr=said)
    if status != 0:
        return said.getvalue()
    c = np.load(folder / "c.npy")
    if c.shape != (m, n) or c.dtype != np.float32:
        return f"C is {c.dtype} {c.shape}"
    a, b = a.astype(np.float64), b.astype(np.float64)
    # Products of bf16 are exact in f32; each of the K additions rounds or truncates once.
    wrong = ~(np.abs(c - a @ b.T) <= k * 2.0**-23 * (np.abs(a) @ np.abs(b).T))
    return f"{wrong.sum()} of {wrong.size} elements are wrong, the first at {np.argwhere(wrong)[0].tolist()}" if wrong.any() else ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: both")
    parser.add_argument("--json", type=Path, help="also write the results there")
    arguments = parser.parse_args(argv)
    failures: list[dict[str, Any]] = []
    start = time.perf_counter()
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for target in arguments.target or TARGETS:
            for m, n, k in itertools.product(SIZES, repeat=3):
                count += 1
                if wrong := check(m, n, k, target, arguments.device, Path(folder)):
                    failures.append({"target": target, "M": m, "N": n, "K": k, "message": wrong})
                    sys.stdout.write(f"{target} M={m} N={n} K={k}: {wrong}\n")
                    sys.stdout.flush()
    seconds = time.perf_counter() - start
    sys.stdout.write(f"{count} runs in {seconds:.0f} s, {len(failures)} failed\n")
    if arguments.json is not None:
        sizes = {"sizes": list(SIZES), "targets": list(arguments.target or TARGETS), "where": arguments.device}
        results = {"runs": count, "failures": failures, "seconds": round(seconds, 1)}
        write_json(arguments.json, {"benchmark": "gemm sizes", **environment(), **sizes, **results})
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
