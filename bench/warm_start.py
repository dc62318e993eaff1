"""From the start of a process to the first result of a kernel that the disk cache knows, part by part.

    python bench/warm_start.py --device cuda --json bench/results/warm_start.json
    python bench/warm_start.py --device sim        # without a GPU: the simulator is the device
    python bench/warm_start.py --stub              # without a GPU: over a driver that does nothing

Each sample is a process of its own, which notes when it has imported NumPy and `cuda.bindings.driver`, has created the GPU's context, has
imported tesela, has defined its kernels, and has the first result in host memory. `ours` is what follows the context: what a program pays for
starting with tesela instead of with the driver alone. It fails if xDSL, a solver or torch were imported on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rounds import environment, write_json
from stub_driver import reexec

ROOT = Path(__file__).resolve().parent.parent
UNWANTED = ("xdsl", "ortools", "torch")

CHILD = """
import sys, time
marks = [("interpreter", time.clock_gettime(time.CLOCK_MONOTONIC))]
def mark(name):
    marks.append((name, time.clock_gettime(time.CLOCK_MONOTONIC)))
import numpy as np
mark("numpy")
start, device = float(sys.argv[1]), sys.argv[2]
if device == "cuda":
    from cuda.bindings import driver
    mark("cuda.bindings")
    driver.cuInit(0)
    status, context = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])
    driver.cuCtxSetCurrent(context)
    mark("context")
import tesela
mark("import tesela")
from programs import KERNELS
mark("define kernels")
rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, 64, 64), np.float32)
KERNELS[sys.argv[3]](x, y, device)
mark("first call")
import json
times, before = {}, start
for name, at in marks:
    times[name], before = (at - before) * 1e3, at
unwanted = [name for name in sys.argv[4:] if name in sys.modules]
print(json.dumps(dict(times=times, unwanted=unwanted)))
"""

PROGRAMS = """
import importlib.util, pathlib, sys
import ml_dtypes

def load(name):
    spec = importlib.util.spec_from_file_location("example_" + name, pathlib.Path({examples!r}) / (name + ".py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)

add, gemm = load("add"), load("gemm")
KERNELS = dict(
    add=lambda x, y, device: add(x.reshape(-1), y.reshape(-1), device=device),
    gemm=lambda x, y, device: gemm(x.astype(ml_dtypes.bfloat16), y.astype(ml_dtypes.bfloat16), device=device),
)
"""


def sample(folder: Path, device: str, kernel: str) -> dict[str, Any]:
    """What one process reports: milliseconds of each part, and which of UNWANTED it imported."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # an installed package has bytecode
    settings |= {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]), "TESELA_CACHE_DIR": str(folder / "cache")}
    start = str(time.clock_gettime(time.CLOCK_MONOTONIC))
    command = [sys.executable, "-c", CHILD, start, device, kernel, *UNWANTED]
    done = subprocess.run(command, env=settings, text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def measure(device: str, kernel: str, repeat: int) -> dict[str, float]:
    """Medians of the parts over `repeat` warm starts; `cold` is the first call of the one that filled the cache."""
    folder = Path(tempfile.mkdtemp(prefix="tesela-warm-"))
    try:
        (folder / "programs.py").write_text(PROGRAMS.format(examples=str(ROOT / "examples")))
        cold = sample(folder, device, kernel)["times"]["first call"]
        found = [sample(folder, device, kernel) for _ in range(repeat)]
    finally:
        shutil.rmtree(folder)
    unwanted = {name for one in found for name in one["unwanted"]}
    if unwanted:
        raise SystemExit(f"a warm start imported {', '.join(sorted(unwanted))}")
    times = {part: statistics.median(one["times"][part] for one in found) for part in found[0]["times"]}
    times["ours"] = statistics.median(sum(one["times"][part] for part in ("import tesela", "define kernels", "first call")) for one in found)
    times["cold first call"] = cold
    return times


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("sim", "cuda"), default="cuda")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--stub", action="store_true", help="over a driver that does nothing")
    arguments = parser.parse_args(argv)
    if arguments.stub:
        reexec()
    rows = []
    for kernel in ("add", "gemm"):
        times = measure(arguments.device, kernel, arguments.repeat)
        rows.append({"kernel": kernel, "ms": times})
        sys.stdout.write(f"{kernel}: {times['ours']:.0f} ms above NumPy and the driver ({', '.join(f'{part} {ms:.0f}' for part, ms in times.items() if part != 'ours')})\n")
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "warm start", **environment(), "on": arguments.device, "repeat": arguments.repeat, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
