"""Measures on a GPU what `passes/machine_costs.py` says of it: rates of units, latencies of copies and waits.

    python bench/calibrate.py --json bench/results/calibration.json      # half a minute
    python bench/calibrate.py --only wgmma_n256 tma_latency

Each probe (calibration_probes.py) is one PTX program in a process of its own with a time limit, so that one that hangs or faults spoils no other. It runs `ROUNDS` times;
the median counts. The constants of machine_costs.py are those of the committed file (`CONSTANTS` says which is which), and a test compares them.
Needs a GPU of compute capability 9.0.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from calibration_probes import TILE_COLUMNS, Figures, Probe, named, probes, summary, text

ROUNDS = 5
LIMIT_SECONDS = 20
FLUSH_BYTES = 256 << 20
"""Written over between preparation and launch where L2 must not hold the data: several times its size."""


def run_probe(probe: Probe, rounds: int = ROUNDS) -> list[Figures]:
    """Runs a probe on the current GPU; the figures of each round."""
    import numpy as np

    from tesela.dialects.launch_plan import TensorMap
    from tesela.runtime import driver
    from tesela.runtime.assemble import assemble

    gpu = driver.current_device()
    with driver.activated(gpu):
        blocks = driver.multiprocessors(gpu) if probe.every_multiprocessor else probe.blocks
        assembled = assemble(text(probe), gpu.arch, line_info=False)
        module, _ = driver.load_module(assembled.image, assembled.is_cubin)
        function = driver.get_function(module, "probe", probe.shared)
        out, data = driver.allocate(8 * probe.clocks * blocks), driver.allocate(probe.data)
        flush = driver.allocate(FLUSH_BYTES)
        driver.fill_zeros(data, probe.data)
        rows = probe.data // (TILE_COLUMNS * 2)
        tiles = driver.encode_tensor_map(TensorMap("bf16", data, (TILE_COLUMNS, rows), (TILE_COLUMNS * 2,), (TILE_COLUMNS, 128), (1, 1), 128))
        values = [out.to_bytes(8, "little"), data.to_bytes(8, "little"), bytes(4), tiles]
        room = ctypes.create_string_buffer(len(values) * 128 + 64)
        start = -(-ctypes.addressof(room) // 64) * 64  # tensor maps are aligned to 64 bytes
        for number, value in enumerate(values):
            ctypes.memmove(start + 128 * number, value, len(value))
        pointers = (ctypes.c_void_p * len(values))(*(start + 128 * number for number in range(len(values))))
        launcher = driver.Launcher(function, (blocks, 1, 1), probe.threads, probe.shared)
        found: list[Figures] = []
        for number in range(rounds + probe.warm_up):
            if probe.cold:
                driver.fill_zeros(flush, FLUSH_BYTES)
            driver.synchronize()
            before, after = driver.Event(), driver.Event()
            before.record()
            if (status := launcher.status(0, pointers)) != 0:
                raise driver.launch_failure(status)
            after.record()
            driver.synchronize()
            clocks = np.zeros((blocks, probe.clocks), np.int64)
            driver.copy_to_host(clocks.ctypes.data, out, clocks.nbytes)
            if number >= probe.warm_up:
                found.append(probe.figures(clocks.tolist(), after.milliseconds_since(before)))
    return found


def in_child(name: str, rounds: int) -> dict[str, Any]:
    """The summary of one probe, or {"failed": why}."""
    command = [sys.executable, __file__, "--probe", name, "--rounds", str(rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {LIMIT_SECONDS} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
    return json.loads(done.stdout)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--only", nargs="*", default=[], help="these probes")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.probe is not None:
        sys.stdout.write(json.dumps(summary(run_probe(named(arguments.probe), arguments.rounds))))
        return 0
    from rounds import environment, write_json

    figures: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for probe in probes():
        if arguments.only and probe.name not in arguments.only:
            continue
        found = in_child(probe.name, arguments.rounds)
        if "failed" in found:
            failed[probe.name] = found["failed"]
            sys.stdout.write(f"{probe.name}: failed: {found['failed']}\n")
        for key, figure in found.items() if "failed" not in found else ():
            figures[key] = {name: round(value, 2) for name, value in figure.items()}
            sys.stdout.write(f"{key:34} {figure['value']:10.2f}   {figure['least']:10.2f} to {figure['most']:.2f}\n")
        sys.stdout.flush()
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "calibration", **environment(), "rounds": arguments.rounds, "figures": figures, "failed": failed})
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
