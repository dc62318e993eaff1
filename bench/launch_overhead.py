"""Host time of a launch: ours beside a raw `cuLaunchKernel` on packed arguments, and torch and Triton where they are.

    python bench/launch_overhead.py --json bench/results/launch_overhead.json

Needs a GPU and torch. A launch is timed on the host over many calls with nothing to wait for: arrays are small, and the queue is
emptied before each batch. The figure is the median over batches, systems taking turns.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rounds import environment, rotated, write_json

from tesela.runtime import driver
from tesela.runtime.assemble import assemble
from tesela.tools.demo import example
from tesela.tools.sources import compile_source

CALLS = 200
"""Launches in a batch: fewer than a queue holds, so that none waits for the device."""

EMPTY = """.version 7.8
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)
{
  ret;
}
"""


def raw_launch() -> Callable[[], object]:
    """cuLaunchKernel with packed arguments, on an empty kernel."""
    gpu = driver.current_device()
    assembled = assemble(EMPTY, gpu.arch.rstrip("a"))
    module, _ = driver.load_module(assembled.image, assembled.is_cubin)
    function = driver.get_function(module, "empty", 0)
    values = (ctypes.c_uint64 * 4)()
    pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(values) + 8 * i for i in range(4)))
    stream = driver.api().CUstream(0)
    launch, address = driver.api().cuLaunchKernel, ctypes.addressof(pointers)
    keep = (values, pointers, module)
    return lambda: launch(function, 8, 1, 1, 128, 1, 1, 0, stream, address, 0) and keep


def systems() -> dict[str, Callable[[], object]]:
    """Every launch that is compared, warmed up."""
    import torch

    x, y, z = (torch.randn(4096, device="cuda") for _ in range(3))
    a, b = (torch.randn(256, 256, device="cuda").bfloat16() for _ in range(2))
    c = torch.empty(256, 256, device="cuda")
    add = compile_source(example("add", "mlir"), None, "add")
    gemm = compile_source(example("gemm", "mlir"), None, "gemm")
    found: dict[str, Callable[[], object]] = {
        "raw cuLaunchKernel": raw_launch(),
        "tesela add": lambda: add(x, y, z),
        "tesela add, output allocated": lambda: add(x, y),
        "tesela gemm (tensor maps)": lambda: gemm(a, b, c),
        "torch add": lambda: torch.add(x, y, out=z),
    }
    found |= triton_systems(x, y, z)
    for run in found.values():
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    return found


def triton_systems(x: Any, y: Any, z: Any) -> dict[str, Callable[[], object]]:
    """Triton's launch of a vector add, where Triton is installed."""
    try:
        import triton
        from triton import language as tl
    except ImportError:
        return {}

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        tl.store(z + offsets, tl.load(x + offsets, inside) + tl.load(y + offsets, inside), inside)

    return {"Triton add": lambda: add[(4,)](x, y, z, 4096, BLOCK=1024)}


def measure(found: dict[str, Callable[[], object]], batches: int) -> dict[str, list[float]]:
    """Microseconds of one launch, a sample for each batch."""
    samples: dict[str, list[float]] = {name: [] for name in found}
    for number in range(batches):
        for name in rotated(list(found), number):
            run = found[name]
            driver.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            samples[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return samples


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--json", type=Path, help="also write the results there")
    arguments = parser.parse_args(argv)
    rows = []
    for name, samples in measure(systems(), arguments.batches).items():
        rows.append({"system": name, "us": statistics.median(samples), "fastest_us": min(samples)})
        sys.stdout.write(f"{name:32} {rows[-1]['us']:6.2f} µs (fastest batch {rows[-1]['fastest_us']:.2f})\n")
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "launch overhead", **environment(), "calls": CALLS, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
