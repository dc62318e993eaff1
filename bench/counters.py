"""Hardware counters of a GPU beside the simulator's own counts: bank conflicts, wavefronts, sectors; and what memory and occupancy were.

    python bench/counters.py --json bench/results/counters.json        # needs a GPU, Nsight Compute (ncu) and a CUDA that lets it count
    python bench/counters.py --simulate                                # the simulator's counts alone
    python bench/counters.py --only transpose --large                  # what is measured on large arrays alone

Each case of SMALL is launched once under `ncu` and once in the simulator, the same program on the same arrays, and what both count must be equal: the
wavefronts in which shared memory serves the loads and stores of warps (ldmatrix and stmatrix among them), more than which their words take only where banks conflict, and
the sectors of 32 bytes that accesses to global memory touch; and wgmma must have no conflicts. Exit status 1 if something differs, 2 if ncu could not count. Cases of LARGE are measured alone: bytes of DRAM, hits of L2, the share of warps that are resident, time (under ncu: clocks as they are, caches cold).

Counters and their names: Nsight Compute documentation, "Metrics decoder" (`l1tex`: the L1 cache and shared memory; `lsu`: the unit that loads and stores; `lts`: a slice of L2).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rounds import environment, write_json

import tesela
from tesela.kernels import attention, elementwise, matrices, rows
from tesela.simulator import settings
from tesela.simulator.machine import Machine
from tesela.simulator.observer import Observer
from tesela.simulator.profile import bank_wavefronts, sectors
from tesela.tools.cli import main as command_line

BF16 = ml_dtypes.bfloat16
COMPARED = {
    "shared loads, wavefronts": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum"),
    "shared stores, wavefronts": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum", "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum"),
    "global loads, sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global stores, sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
}
"""What both count, and the GPU's counters whose sum it is: of shared memory those that go by instruction (`ldsm` and `stsm` are ldmatrix and stmatrix). The unit's
own counters, in MEASURED, also count what stands in the way of a store while TMA writes: some tens of wavefronts in thousands, never the same."""
MEASURED = {
    "shared loads, wavefronts of the unit": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared stores, wavefronts of the unit": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared loads, conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared stores, conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "ldmatrix, conflicts": "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
    "stmatrix, conflicts": "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_stsm.sum",
    "ldmatrix, wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
    "stmatrix, wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum",
    "wgmma, wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "wgmma, conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum",
    "DRAM bytes read": "dram__bytes_read.sum",
    "DRAM bytes written": "dram__bytes_write.sum",
    "L2 hits, %": "lts__t_sector_hit_rate.pct",
    "warps resident, %": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "DRAM throughput, %": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "time, ns": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
    "blocks a multiprocessor holds by registers": "launch__occupancy_limit_registers",
    "blocks a multiprocessor holds by shared memory": "launch__occupancy_limit_shared_mem",
}
WGMMA_CONFLICTS = "wgmma, conflicts"
"""The compiler proves that there are none (`tesela explain`); the simulator does not count them."""
CONFLICTS = "shared, conflicts"
"""The simulator's count of wavefronts beyond the least; the GPU's is not by instruction."""
NCU = ("/usr/local/cuda/bin/ncu",)
"""Where it is looked for beside PATH."""

Launch = Callable[[str], object]
"""Launches a kernel once on a device, 'sim' or 'cuda'."""

PATTERN = """.version 8.0
.target sm_80
.address_size 64
.visible .entry pattern(.param .b64 places, .param .b64 y)
{
  .shared .align 16 .b8 s[4096];
  .reg .b32 %t, %a, %s, %o, %z, %v<4>; .reg .b64 %p, %y, %d;
  mov.u32 %t, %tid.x; mov.u32 %s, s; mov.b32 %z, 0; shl.b32 %a, %t, 4; add.s32 %a, %a, %s;
ZEROS
  bar.sync 0; ld.param.b64 %p, [places]; ld.param.b64 %y, [y];
  mul.wide.u32 %d, %t, 4; add.s64 %p, %p, %d; ld.global.b32 %o, [%p]; add.s32 %o, %o, %s;
  ld.shared.FORM REGISTERS, [%o];
  mul.wide.u32 %d, %t, SIZE; add.s64 %y, %y, %d; st.global.FORM [%y], REGISTERS;
  ret;
}
"""
"""A warp reads SIZE bytes a lane from shared memory, each where `places` says."""


def array(*shape: int, dtype: Any = BF16) -> np.ndarray:
    """Normals, the same 64 Ki again and again: drawing as many as a large array holds would take longer than all the rest."""
    return np.resize(np.random.default_rng(0).standard_normal(2**16 - 1).astype(dtype), shape)


def product(order: str, m: int, n: int, k: int) -> Launch:
    a, b = (k, m) if order == "tn" else (m, k), (n, k) if order == "nt" else (k, n)
    kernel = {"nt": matrices.gemm_nt, "nn": matrices.gemm, "tn": matrices.gemm_tn}[order]
    return of(kernel, {"A": array(*a), "B": array(*b), "C": np.zeros((m, n), BF16)})


def attend(heads: int, length: int, head: int) -> Launch:
    q, k, v = (array(heads, length, head) for _ in range(3))
    return of(attention.attention, {"q": q, "k": k, "v": v, "out": np.zeros_like(q), "scale": head**-0.5}, HEAD=head)


def along(kernel: Any, m: int, n: int) -> Launch:
    """A kernel along the rows of a matrix."""
    x = array(m, n)
    arguments = {"x": x, "y": np.zeros_like(x)}
    if kernel is rows.layer_norm:
        arguments |= {"weight": array(n), "bias": array(n)}
    return of(kernel, arguments)


def transposed(m: int, n: int, dtype: Any) -> Launch:
    return of(elementwise.transpose, {"x": array(m, n, dtype=dtype), "y": np.zeros((n, m), dtype)})


def summed(m: int, n: int, parts: int) -> Launch:
    return of(rows.column_sum, {"x": array(m, n), "y": np.zeros((parts, n), np.float32)})


def of(kernel: Any, arguments: dict[str, Any], **constants: Any) -> Launch:
    """A launch of a kernel whose type variable T is the element type of its first array."""
    first = next(value for value in arguments.values() if isinstance(value, np.ndarray))
    element = tesela.bf16 if first.dtype == BF16 else tesela.f32
    return lambda device: kernel.compile(target="sm_90a", T=element, **constants)(**arguments, device=device)


def pattern(size: int, place: Callable[[np.ndarray], np.ndarray]) -> Launch:
    """A launch of PATTERN; `place` gives each lane's offset in shared memory."""
    words = size // 4
    registers = f"{{{', '.join(f'%v{i}' for i in range(words))}}}" if words > 1 else "%v0"
    zeros = "\n".join(f"  st.shared.v4.b32 [%a+{at}], {{%z, %z, %z, %z}};" for at in range(0, 4096, 512))
    text = PATTERN.replace("ZEROS", zeros).replace("FORM", f"v{words}.b32" if words > 1 else "b32").replace("REGISTERS", registers).replace("SIZE", str(size))

    def run(device: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tesela-") as folder:
            program, places = Path(folder) / "pattern.ptx", Path(folder) / "places.npy"
            program.write_text(text)
            np.save(places, place(np.arange(32)).astype(np.int32))
            launched = ["--grid", "1", "--block", "32", "--param", f"places={places}", "--param", "y=zeros:f32:128"]
            if command_line(["run", str(program), *launched, "--device", device]):
                raise RuntimeError("the pattern was not launched")

    return run


SMALL: dict[str, Callable[[], Launch]] = {
    "gemm A·Bᵀ 512×512×256": lambda: product("nt", 512, 512, 256),
    "gemm A·B 512×512×256": lambda: product("nn", 512, 512, 256),
    "gemm Aᵀ·B 512×512×256": lambda: product("tn", 512, 512, 256),
    "gemm A·Bᵀ 100×200×72": lambda: product("nt", 100, 200, 72),
    "attention 2×256×128": lambda: attend(2, 256, 128),
    "attention 2×384×64": lambda: attend(2, 384, 64),
    "transpose f32 512×512": lambda: transposed(512, 512, np.float32),
    "transpose bf16 512×512": lambda: transposed(512, 512, BF16),
    "transpose bf16 500×300": lambda: transposed(500, 300, BF16),
    "4 bytes a lane, every second word": lambda: pattern(4, lambda lane: 8 * lane),
    "8 bytes a lane, side by side": lambda: pattern(8, lambda lane: 8 * lane),
    "8 bytes a lane, one word for all": lambda: pattern(8, lambda lane: 0 * lane),
    "8 bytes a lane, a word for two": lambda: pattern(8, lambda lane: lane // 2 * 8),
    "8 bytes a lane, both halves the same": lambda: pattern(8, lambda lane: lane % 16 * 8),
    "8 bytes a lane, one word for each half": lambda: pattern(8, lambda lane: lane // 16 * 128),
    "16 bytes a lane, side by side": lambda: pattern(16, lambda lane: 16 * lane),
    "16 bytes a lane, one word for all": lambda: pattern(16, lambda lane: 0 * lane),
    "16 bytes a lane, a word for four": lambda: pattern(16, lambda lane: lane // 4 * 16),
    "16 bytes a lane, one word for each quarter": lambda: pattern(16, lambda lane: lane // 8 * 128),
    "softmax bf16 64×8192": lambda: along(rows.softmax, 64, 8192),
    "softmax bf16 64×1000": lambda: along(rows.softmax, 64, 1000),
    "layer_norm bf16 64×8192": lambda: along(rows.layer_norm, 64, 8192),
    "layer_norm bf16 64×1024": lambda: along(rows.layer_norm, 64, 1024),
    "column_sum bf16 512×512": lambda: summed(512, 512, 2),
    "cumsum bf16 32×4096": lambda: along(rows.cumsum, 32, 4096),
}
LARGE: dict[str, Callable[[], Launch]] = {
    "gemm A·Bᵀ 4096×4096×4096": lambda: product("nt", 4096, 4096, 4096),
    "attention 64×4096×128": lambda: attend(64, 4096, 128),
    "transpose f32 8192×8192": lambda: transposed(8192, 8192, np.float32),
    "transpose bf16 8192×8192": lambda: transposed(8192, 8192, BF16),
    "softmax bf16 16384×8192": lambda: along(rows.softmax, 16384, 8192),
    "layer_norm bf16 16384×8192": lambda: along(rows.layer_norm, 16384, 8192),
    "layer_norm bf16 16384×1024": lambda: along(rows.layer_norm, 16384, 1024),
    "column_sum bf16 16384×8192": lambda: summed(16384, 8192, 16),
}


class Counts(Observer):
    """Counts as the GPU does: for loads and for stores, wavefronts and conflicts of shared memory, and sectors of global memory."""

    def __init__(self) -> None:
        self.found = dict.fromkeys(COMPARED, 0)
        self.conflicts = 0

    def access(self, machine: Machine, kind: str, space: str, addresses: Any, size: int, threads: Any, values: Any = None) -> None:
        if space == "param" or kind not in ("load", "store") or not addresses.size:
            return
        places = addresses if addresses.ndim > 1 else addresses[None]
        for row in np.broadcast_to(places, (len(places), len(threads))):
            if space == "shared":
                _, wavefronts, least = bank_wavefronts(row % machine.shared.stride, size, threads // 32, threads % 32)
                self.found[f"shared {kind}s, wavefronts"] += wavefronts
                self.conflicts += wavefronts - least
            else:
                self.found[f"global {kind}s, sectors"] += sectors(row, size, threads // 32)[1]


def simulated(make: Callable[[], Launch]) -> dict[str, int]:
    counts = Counts()
    with settings(observer=counts):
        make()("sim")
    return {**counts.found, CONFLICTS: counts.conflicts}


def launch_all(names: Sequence[str]) -> None:
    """What runs under ncu: every case once, on the GPU."""
    for name in names:
        {**SMALL, **LARGE}[name]()("cuda")


def find_ncu() -> str | None:
    return shutil.which("ncu") or next((path for path in NCU if os.access(path, os.X_OK)), None)


def counted(ncu: str, names: Sequence[str], metrics: Sequence[str], limit: float) -> list[dict[str, str]]:
    """What ncu counts, a launch a row. Raises RuntimeError with what it said where it did not count every launch."""
    with tempfile.TemporaryDirectory(prefix="tesela-") as folder:
        log = Path(folder) / "counters.csv"
        command = [
            ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), "--metrics", ",".join(metrics),
            sys.executable, __file__, "--launch", *names,
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        text = log.read_text() if log.exists() else ""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    said = "\n".join([*(line for line in text.splitlines() if not line.startswith('"') and "PROF" not in line), ran.stdout[-500:], ran.stderr[-1500:]])
    if len(lines) < 2:
        raise RuntimeError(f"ncu counted nothing: {said.strip()}")
    found = list(csv.DictReader([lines[0], *lines[2:]]))  # the second line has the units
    if len(found) != len(names):
        raise RuntimeError(f"ncu saw {len(found)} launches ({', '.join(row['Kernel Name'] for row in found)}), not {len(names)}: {said.strip()}")
    return found


def number(text: str | None) -> float | None:
    """A counter's value; None where ncu has none ('n/a').

    >>> number("1,234"), number("n/a"), number(None)
    (1234.0, None, None)
    """
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def row_of(name: str, counters: dict[str, str], expected: dict[str, int] | None) -> dict[str, Any]:
    """A row of the results: what the GPU counted, beside what the simulator did. `agree`: whether what both count is equal; None where nothing is compared."""
    wanted = {**COMPARED, **{what: (metric,) for what, metric in MEASURED.items()}}
    gpu = {}
    for what, metrics in wanted.items():
        values = [value for metric in metrics if (value := number(counters.get(metric))) is not None]
        if len(values) == len(metrics):
            gpu[what] = sum(values)
    if expected is None:
        return {"case": name, "kernel": counters["Kernel Name"], "gpu": gpu, "simulator": None, "agree": None}
    differing = [what for what in COMPARED if what in gpu and gpu[what] != expected[what]]
    missing = [what for what in COMPARED if what not in gpu]
    if gpu.get(WGMMA_CONFLICTS):
        differing.append(WGMMA_CONFLICTS)
    return {
        "case": name, "kernel": counters["Kernel Name"], "gpu": gpu, "simulator": expected,
        "compared": list(COMPARED), "differing": differing, "not_counted": missing, "agree": not differing and not missing,
    }  # fmt: skip


def show(row: dict[str, Any]) -> str:
    gpu, expected = row["gpu"], row["simulator"] or {}
    parts = [f"{what} {gpu[what]:.0f}" + (f" ≠ {expected[what]}" if gpu[what] != expected.get(what, gpu[what]) else "") for what in gpu]
    verdict = {True: "agree", False: "DIFFER", None: "measured"}[row["agree"]]
    return f"{row['case']}: {verdict}: {'; '.join(parts)}\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--only", default="", help="cases whose names contain it")
    parser.add_argument("--small", action="store_true", help="only what is compared with the simulator")
    parser.add_argument("--large", action="store_true", help="only what is measured")
    parser.add_argument("--simulate", action="store_true", help="the simulator's counts, and no GPU")
    parser.add_argument("--seconds", type=float, default=120, help="the time limit of ncu")
    parser.add_argument("--launch", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.launch:
        launch_all(arguments.launch)
        return 0
    small = {} if arguments.large else {name: make for name, make in SMALL.items() if arguments.only in name}
    large = [] if arguments.small or arguments.simulate else [name for name in LARGE if arguments.only in name]
    expected = {name: simulated(make) for name, make in small.items()}
    if arguments.simulate:
        sys.stdout.writelines(f"{name}: {'; '.join(f'{what} {n}' for what, n in counts.items())}\n" for name, counts in expected.items())
        return 0
    ncu = find_ncu()
    if ncu is None:
        sys.stderr.write("counters.py: no ncu was found on PATH: install Nsight Compute, or see the simulator's counts with --simulate\n")
        return 2
    names = [*small, *large]
    try:
        found = counted(ncu, names, list(dict.fromkeys([*(metric for metrics in COMPARED.values() for metric in metrics), *MEASURED.values()])), arguments.seconds)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"counters.py: {error}\n")
        return 2
    results = [row_of(name, counters, expected.get(name)) for name, counters in zip(names, found, strict=True)]
    sys.stdout.writelines(show(row) for row in results)
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "counters", **environment(), "rows": results})
    return 1 if any(row["agree"] is False for row in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
