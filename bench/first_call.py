"""How long the first call of a kernel takes that nothing is known of: trace, compile, assemble, load, launch; beside Triton's.

    python bench/first_call.py --json bench/results/first_call.json
    python bench/first_call.py --stub        # without a GPU: over a driver that does nothing, with NumPy arrays

The process is warm: everything is imported, and another kernel has been compiled and launched. No disk cache is read. Every sample
makes a new kernel of the same source and calls it once, until the device is done; the figures are medians, systems taking turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rounds import environment, rotated, write_json
from stub_driver import reexec

os.environ["TESELA_CACHE"] = "0"
os.environ["TRITON_ALWAYS_COMPILE"] = "1"

from tesela.runtime import driver
from tesela.tools.demo import example
from tesela.tools.sources import python_kernel

Sample = Callable[[], dict[str, float]]
"""Make a kernel and call it once: milliseconds by part, the sum as `total`."""


def ours(name: str, arguments: tuple[Any, ...]) -> Sample:
    """A first call of an example: its parts as the variant reports them; `rest` is checking, loading, launching and waiting."""

    def sample() -> dict[str, float]:
        kernel = python_kernel(example(name, "python"), name)
        start = time.perf_counter()
        kernel(*arguments, device="cuda")
        driver.synchronize()
        total = (time.perf_counter() - start) * 1e3
        times = dict(kernel.compile().last.times)
        return {"compile": sum(times.values()) - times["assemble"], "assemble": times["assemble"], "rest": total - sum(times.values()), "total": total}

    return sample


def triton_systems(tensors: dict[str, tuple[Any, ...]]) -> dict[str, Sample]:
    """The same in Triton, where it is installed."""
    try:
        import triton_programs
    except ImportError as error:
        sys.stderr.write(f"without Triton: {error}\n")
        return {}

    def sample_of(name: str) -> Sample:
        def sample() -> dict[str, float]:
            program = triton_programs.Program(getattr(triton_programs, name))
            start = time.perf_counter()
            getattr(program, name)(*tensors[name])
            driver.synchronize()
            return {"total": (time.perf_counter() - start) * 1e3}

        return sample

    return {f"Triton {name}": sample_of(name) for name in tensors}


def operands(stub: bool) -> dict[str, tuple[Any, ...]]:
    """The arguments of each kernel: tensors on the GPU, or NumPy arrays."""
    if stub:
        import ml_dtypes
        import numpy as np

        x, a = np.ones(4096, np.float32), np.ones((256, 256), ml_dtypes.bfloat16)
        return {"add": (x, x, np.empty_like(x)), "gemm": (a, a, np.empty((256, 256), np.float32))}
    import torch

    x, y, z = (torch.randn(4096, device="cuda") for _ in range(3))
    a, b = (torch.randn(256, 256, device="cuda").bfloat16() for _ in range(2))
    return {"add": (x, y, z), "gemm": (a, b, torch.empty(256, 256, device="cuda"))}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--stub", action="store_true", help="over a driver that does nothing")
    arguments = parser.parse_args(argv)
    if arguments.stub:
        reexec()
    given = operands(arguments.stub)
    found = {f"tesela {name}": ours(name, given[name]) for name in given}
    if not arguments.stub:
        found |= triton_systems(given)
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in found}
    for number in range(-1, arguments.repeat):  # the first round warms up
        for name in rotated(list(found), number + 1):
            sample = found[name]()
            if number >= 0:
                samples[name].append(sample)
    rows = []
    for name, entries in samples.items():
        ms = {part: statistics.median(entry[part] for entry in entries) for part in entries[0]}
        rows.append({"system": name, "ms": ms})
        listed = ", ".join(f"{part} {value:.0f}" for part, value in ms.items() if part != "total")
        sys.stdout.write(f"{name:16} {ms['total']:6.0f} ms" + (f" ({listed})" if listed else "") + "\n")
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "first call", **environment(), "repeat": arguments.repeat, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
