"""Host time of a launch: ours beside a raw `cuLaunchKernel` on packed arguments, and torch and Triton where they are; and the parts of ours.

    python bench/launch_overhead.py --json bench/results/launch_overhead.json
    python bench/launch_overhead.py --stub      # without a GPU: over a driver that does nothing

Needs torch and a GPU, or --stub and a C compiler. A launch is timed on the host over many calls with nothing to wait for: arrays are
small, and the queue is emptied before each batch. The figure is the median over batches, systems taking turns. "packed" launches the very
kernel with the very parameters that ours ends in, with all of Python's work done before: what is above it is ours.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rounds import environment, need_torch, rotated, write_json
from stub_driver import pretend, reexec

from tesela.runtime import driver, torch_guard
from tesela.runtime.assemble import assemble
from tesela.tools.demo import example
from tesela.tools.sources import compile_source, python_kernel

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


def packed(kernel: Any) -> Callable[[], object]:
    """The latest launch of a kernel again, all of whose parameters are ready."""
    cells = dict(zip(kernel.run.__code__.co_freevars, kernel.run.__closure__))
    launch, function, blocks, configs = (cells[name].cell_contents for name in ("launch", "function", "blocks", "configs"))
    (block,), (config,) = blocks.values(), configs.values()
    return lambda: launch(config, function, block, None)


def systems(device: str) -> dict[str, Callable[[], object]]:
    """Every launch that is compared, warmed up."""
    torch = need_torch()

    x, y, z = (torch.randn(4096, device=device) for _ in range(3))
    a, b = (torch.randn(256, 256, device=device).bfloat16() for _ in range(2))
    c = torch.empty(256, 256, device=device)
    add = compile_source(example("add", "mlir"), None, "add")
    gemm = compile_source(example("gemm", "mlir"), None, "gemm")
    function = python_kernel(example("add", "python"), "add")
    for _ in range(2):
        add(x, y, z)
        gemm(a, b, c)
    found: dict[str, Callable[[], object]] = {
        "raw cuLaunchKernel": raw_launch(),
        "packed add": packed(add),
        "tesela add": lambda: add(x, y, z),
        "tesela add, a @tesela.kernel": lambda: function(x, y, z),
        "packed gemm": packed(gemm),
        "tesela gemm (tensor maps)": lambda: gemm(a, b, c),
        "tesela add, output allocated": lambda: add(x, y),
        "torch add": lambda: torch.add(x, y, out=z),
    }
    if device == "cuda":
        found |= triton_systems(x, y, z, a, b, c)
    for run in found.values():
        for _ in range(3):
            run()
    driver.synchronize()
    return found


def parts(device: str) -> dict[str, float]:
    """Microseconds of what a launch of add on three tensors does, each by itself; the fastest of many batches."""
    torch = need_torch()

    x, y, z = (torch.randn(4096, device=device) for _ in range(3))
    add = compile_source(example("add", "mlir"), None, "add")
    for _ in range(2):
        add(x, y, z)
    launcher = add.run
    cells = {name: cell.cell_contents for name, cell in zip(launcher.__code__.co_freevars, launcher.__closure__)}
    names = {**cells, "x": x, "y": y, "z": z, "add": add, "launcher": launcher, "addresses": (x.data_ptr(), y.data_ptr(), z.data_ptr())}
    config, block = next(iter(cells["configs"].values())), next(iter(cells["blocks"].values()))
    names |= {"config": config, "block": block}
    one = "x.dtype is not dtype_0 or x.shape != shape_0 or x.stride() != strides_0 or x.device != place or x.is_neg()"
    statements = {
        "three data_ptr()": "x.data_ptr(), y.data_ptr(), z.data_ptr()",
        "metadata, by torch's guard": "same(x, y, z)" if torch_guard.guard([x]) is not torch_guard.accepts_nothing else "",
        "metadata, by public functions": "; ".join(one.replace("x.", f"{name}.") for name in "xyz"),
        "block of these addresses": "blocks.get(addresses)",
        "current stream": "stream_of(gpu)",
        "cuLaunchKernelEx through ctypes": "launch(config, function, block, None)",
        "the launcher, called by itself": "launcher(x, y, z)",
        "the kernel": "add(x, y, z)",
    }
    found = {}
    for name, statement in statements.items():
        if statement:
            timer = timeit.Timer(statement, globals=names)
            samples = []
            for _ in range(100):
                driver.synchronize()
                samples.append(timer.timeit(CALLS) / CALLS * 1e6)
            found[name] = min(samples)
    return found


def triton_systems(x: Any, y: Any, z: Any, a: Any, b: Any, c: Any) -> dict[str, Callable[[], object]]:
    """Triton's launches, where Triton is installed."""
    try:
        import triton_programs
    except ImportError:
        return {}
    add, gemm = (triton_programs.Program(function) for function in (triton_programs.add, triton_programs.gemm))
    return {"Triton add": lambda: add.add(x, y, z), "Triton gemm (tensor maps)": lambda: gemm.gemm(a, b, c)}


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
    parser.add_argument("--stub", action="store_true", help="over a driver that does nothing, with tensors in host memory")
    arguments = parser.parse_args(argv)
    if arguments.stub:
        reexec()
        pretend()
    device = "cpu" if arguments.stub else "cuda"
    rows = []
    for name, samples in measure(systems(device), arguments.batches).items():
        rows.append({"system": name, "us": statistics.median(samples), "fastest_us": min(samples)})
        sys.stdout.write(f"{name:32} {rows[-1]['us']:6.2f} µs (fastest batch {rows[-1]['fastest_us']:.2f})\n")
    sys.stdout.write("\nparts of 'tesela add':\n")
    found = parts(device)
    for name, us in found.items():
        sys.stdout.write(f"{name:32} {us:6.2f} µs\n")
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "launch overhead", **environment(), "calls": CALLS, "rows": rows, "parts": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
