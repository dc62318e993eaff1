"""The simulator against a GPU: every kernel of the repository, and random tile programs, the same bits but where a bound is stated.

    python bench/agree.py --json bench/results/agreement.json
    python bench/agree.py --only kernels/ --random 0

1. In parallel, without the GPU: each program of `test/judged_programs.py`, for each target, runs in the simulator. Its launches are kept: the PTX
   program, its parameters, what memory held before, and what it held after.
2. On the GPU, in child processes under a time limit: the same PTX with the same parameters on the same memory.
3. Random tile programs (`tesela fuzz`) run on both, and are compared with each other and with what the interpreter allows (docs/numbers.md).

**What must agree.** Memory must hold the same bits after a launch (all NaN count as one, N2), except that a program that uses one of the inexact
instructions may differ by at most `BOUNDS[type]` times the largest magnitude in the array: approximate functions (`ex2.approx`, `tanh.approx` …: the
simulator rounds the exact value), products on tensor cores (the simulator sums one instruction's products exactly; the hardware with about 24 bits),
and atomic additions of floats (in any order). A random program that differs must be allowed on both.

Exit status 1 if anything disagrees. The whole takes some minutes on 16 cores, most of it in step 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pickle
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rounds import environment, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from tesela.dialects.diagnostics import TeselaError  # noqa: E402
from tesela.dialects.launch_plan import TensorMap  # noqa: E402
from tesela.dialects.ptx_program import Entry, Instr  # noqa: E402
from tesela.dialects.ptx_text import print_program  # noqa: E402
from tesela.simulator.memory import Memory  # noqa: E402
from tesela.simulator.tensor_maps import MAP_BYTES, decode_tensor_map  # noqa: E402
from tesela.tools.mutation.launches import Recorded, record  # noqa: E402

BOUNDS = {"float32": 2.0**-15, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""By element type, relative to the largest magnitude in the array. f32: sums of up to 29 instructions of 16 products each, cut to 24 bits, of 464
terms whose magnitudes sum to about five times the largest result (29 · 5 · 2^-23 < 2^-15); 16 bits: two units in the last place of the largest."""
SECONDS = 60
"""For one job on the GPU."""
CHUNK = 20
"""Random programs in one job."""


@dataclass
class Buffer:
    """An allocation: its name, element type, and bytes before and after the launch in the simulator."""

    name: str
    dtype: str
    before: np.ndarray[Any, Any]
    after: np.ndarray[Any, Any]
    low_bits: int


@dataclass
class Job:
    """A launch to repeat on a GPU. `params`: bytes, (buffer, offset) for a pointer, or (map, buffer, offset) for a tensor map."""

    name: str
    target: str
    entry: str
    ptx: str
    image: bytes | None
    grid: tuple[int, int, int]
    threads: int
    cluster: tuple[int, int, int]
    shared: int
    params: list[Any]
    buffers: list[Buffer] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)


def inexact(entry: Entry) -> list[str]:
    """The instructions of a kernel whose results are stated within bounds only."""
    found = set()
    for item in entry.body:
        if isinstance(item, Instr):
            words = item.opcode.split(".")
            is_float = words[-1] in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
            if "approx" in words or words[0] in ("mma", "wgmma") and "mma" in item.opcode and "fence" not in words and len(words) > 5:
                found.add(item.opcode)
            elif words[0] in ("atom", "red") and "add" in words and is_float:
                found.add(item.opcode)
    return sorted(found)


def job_of(name: str, target: str, launch: Recorded) -> Job:
    """A recorded launch as a job, with memory as it is now for what it must become."""
    memory, entry = launch.memory, launch.kernel
    allocations = memory._allocations
    buffers = []
    for allocation, before in zip(allocations, launch.before):
        dtype = str(allocation.owner.dtype) if allocation.owner is not None else "uint8"
        buffers.append(Buffer(allocation.label, dtype, before, allocation.data.copy(), allocation.address % 256))
    params: list[Any] = []
    offset = 0
    for declared in entry.params:
        size = declared.size or {"b64": 8, "b32": 4, "b16": 2, "b8": 1}[declared.type]
        offset = -(-offset // (declared.align or min(size, 8))) * (declared.align or min(size, 8))
        raw = launch.params[offset : offset + size]
        offset += size
        if size == MAP_BYTES:
            tensor_map = decode_tensor_map(raw)
            params.append((tensor_map, *_place(memory, tensor_map.address)))
        elif size == 8 and (place := _place(memory, struct.unpack("<Q", raw)[0])) is not None:
            params.append(place)
        else:
            params.append(raw)
    text = print_program(launch.program)
    return Job(
        name, target, launch.entry, text, _assembled(text), launch.grid, launch.block[0], launch.cluster, launch.shared_bytes, params, buffers,
        inexact(entry),
    )  # fmt: skip


def _place(memory: Memory, address: int) -> Any:
    for number, allocation in enumerate(memory._allocations):
        if allocation.address <= address <= allocation.end:
            return number, address - allocation.address
    return None


def _assembled(text: str) -> bytes | None:
    """Machine code where there is an assembler that needs no GPU."""
    from tesela.runtime.assemble import assemble

    try:
        found = assemble(text, "sm_90a", line_info=False)
    except TeselaError:
        return None
    return found.image if found.is_cubin else None


def simulate(name: str, target: str, folder: str, number: int) -> list[str]:
    """Runs a program in the simulator and writes its jobs; gives their files."""
    from judged_programs import PROGRAMS

    files = []
    launches = record(lambda: PROGRAMS[name](target))
    for k, launch in enumerate(launches):
        if launch.entry and 0 not in launch.grid:
            path = Path(folder) / f"{number:04}-{k}.job"
            path.write_bytes(pickle.dumps(job_of(name, target, launch)))
            files.append(str(path))
    return files


# --- On the GPU ---


def run_job(job: Job) -> dict[str, Any]:
    """Runs a job on the current GPU and compares."""
    from tesela.runtime import driver
    from tesela.runtime.assemble import assemble

    gpu = driver.current_device()
    with driver.activated(gpu):
        image = job.image if job.image is not None else assemble(job.ptx, gpu.arch, line_info=False).image
        module, _ = driver.load_module(image, job.image is not None)
        function = driver.get_function(module, job.entry, job.shared)
        addresses = []
        for buffer in job.buffers:
            base = driver.allocate(max(len(buffer.before), 1) + 512)
            addresses.append(-(-base // 256) * 256 + buffer.low_bits)
            if len(buffer.before):
                driver.copy_to_device(addresses[-1], buffer.before.ctypes.data, len(buffer.before))
        values = [_value(param, addresses, driver) for param in job.params]
        room = ctypes.create_string_buffer(len(values) * 128 + 64)
        start = -(-ctypes.addressof(room) // 64) * 64  # tensor maps are aligned to 64 bytes
        for k, value in enumerate(values):
            ctypes.memmove(start + 128 * k, value, len(value))
        pointers = (ctypes.c_void_p * len(values))(*(start + 128 * k for k in range(len(values))))
        status = driver.Launcher(function, job.grid, job.threads, job.shared, ctypes.addressof(pointers), job.cluster).status(0)
        if status != 0:
            raise driver.launch_failure(status)
        driver.synchronize()
        arrays = []
        for buffer, address in zip(job.buffers, addresses):
            found = np.empty_like(buffer.before)
            if len(found):
                driver.copy_to_host(found.ctypes.data, address, len(found))
            arrays.append(compare(buffer, found, bool(job.inexact)))
    good = all(array["agrees"] for array in arrays)
    exact = all(array["different"] == 0 for array in arrays)
    return {"agrees": good, "bit_for_bit": exact, "inexact": job.inexact, "arrays": [a for a in arrays if a["different"] or not a["agrees"]]}


def _value(param: Any, addresses: list[int], driver: Any) -> bytes:
    if isinstance(param, bytes):
        return param
    *maps, number, offset = param
    address = addresses[number] + offset
    if not maps:
        return struct.pack("<Q", address)
    t: TensorMap = maps[0]
    return driver.encode_tensor_map(TensorMap(t.dtype, address, t.dims, t.strides, t.box, t.element_strides, t.swizzle, t.fill))


def compare(buffer: Buffer, found: np.ndarray[Any, Any], bounded: bool) -> dict[str, Any]:
    """How the bytes of an array on the GPU differ from the simulator's."""
    import ml_dtypes

    result: dict[str, Any] = {"array": buffer.name, "type": buffer.dtype, "elements": 0, "different": 0, "agrees": True}
    dtype = np.dtype(getattr(ml_dtypes, buffer.dtype, None) or buffer.dtype)
    size = dtype.itemsize
    whole = len(found) // size * size
    mine, theirs = (data[:whole].view(f"u{size}") if size in (1, 2, 4, 8) else data for data in (buffer.after, found))
    result["elements"] = len(mine)
    different = mine != theirs
    if dtype.kind not in "fV" or not different.any():
        result["different"] = int(different.sum())
        result["agrees"] = not different.any()
        return result
    a, b = (data[:whole].view(dtype).astype(np.float64) for data in (buffer.after, found))
    different &= ~(np.isnan(a) & np.isnan(b))
    result["different"] = int(different.sum())
    if different.any():
        finite = np.abs(a[np.isfinite(a)])
        scale = max(float(finite.max(initial=0.0)), 1e-30)
        with np.errstate(invalid="ignore"):
            error = float(np.nanmax(np.where(different, np.abs(a - b), 0)) / scale)
        strange = bool((np.isfinite(a) != np.isfinite(b)).any())
        bound = BOUNDS.get(buffer.dtype, 0.0) if bounded else 0.0
        result |= {"largest_difference": error, "bound": bound, "agrees": error <= bound and not strange}
    return result


def run_random(first: int, count: int, target: str) -> dict[str, Any]:
    """Random tile programs on both."""
    from tesela.runtime.compile import compile
    from tesela.tools.fuzz.check import CompilerRefused, check
    from tesela.tools.fuzz.generate import generate

    kinds: Counter[str] = Counter()
    failures: list[str] = []
    for seed in range(first, first + count):
        same: list[bool] = []

        def both(module: Any, arrays: Any, coverage: Any, same: list[bool] = same) -> None:
            try:
                kernel = compile(module, target, cached=False)
                kernel.variant(**arrays)
            except TeselaError as error:
                raise CompilerRefused(str(error)) from error
            simulated = {name: np.array(array, copy=True) for name, array in arrays.items()}
            kernel(**simulated, device="sim")
            kernel(**arrays, device="cuda")
            same.append(all(_same_bits(simulated[name], array) for name, array in arrays.items()))

        outcome = check(generate(seed, 10), both, target)
        if outcome.failed:
            failures.append(f"program {seed} for {target}: {outcome.kind}: {outcome.message.splitlines()[0]}")
        kind = outcome.kind if not same else "the same bits" if same[0] else "both within bounds"
        kinds[kind] += 1
    return {"agrees": not failures, "kinds": dict(kinds), "failures": failures}


def _same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    raw = f"u{a.dtype.itemsize}"
    equal = np.ascontiguousarray(a).view(raw) == np.ascontiguousarray(b).view(raw)
    if a.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            equal |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool(equal.all())


def child() -> int:
    """Does the jobs that come as lines, one JSON line each."""
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if "file" in job:
                answer = run_job(pickle.loads(Path(job["file"]).read_bytes()))
            else:
                answer = run_random(job["first"], job["count"], job["target"])
        except TeselaError as error:
            answer = {"agrees": False, "error": str(error)}
        print(json.dumps(answer), flush=True)
        if "error" in answer:
            return 1  # the context may be lost
    return 0


class Worker(threading.Thread):
    """Gives jobs to a child process and restarts it where it dies or takes too long."""

    def __init__(self, jobs: queue.SimpleQueue[dict[str, Any] | None], answers: queue.SimpleQueue[Any]):
        super().__init__(daemon=True)
        self.jobs, self.answers = jobs, answers

    def run(self) -> None:
        process: subprocess.Popen[str] | None = None
        while (job := self.jobs.get()) is not None:
            if process is None:
                command = [sys.executable, str(Path(__file__).resolve()), "--child"]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert process.stdin is not None and process.stdout is not None
            watch = threading.Timer(SECONDS, process.kill)
            watch.start()
            try:
                process.stdin.write(json.dumps(job) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            watch.cancel()
            answer = json.loads(line) if line else {"agrees": False, "error": f"the process died, or took more than {SECONDS} s"}
            if "error" in answer:
                process.kill()
                process.wait()
                process = None
            self.answers.put((job, answer))
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose names contain it")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="random tile programs (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=14, metavar="N", help="processes that simulate (default: %(default)s)")
    parser.add_argument("--children", type=int, default=6, metavar="N", help="processes on the GPU (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child()
    from judged_programs import PROGRAMS, TARGETS

    start = time.perf_counter()
    names = [(name, target) for name in PROGRAMS for target in TARGETS if arguments.only in name]
    jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    workers = [Worker(jobs, answers) for _ in range(arguments.children)]
    for worker in workers:
        worker.start()
    given = 0
    for first in range(0, arguments.random, CHUNK):
        for_target = TARGETS[first // CHUNK % len(TARGETS)]
        jobs.put({"first": first, "count": min(CHUNK, arguments.random - first), "target": for_target})
        given += 1
    failed: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="agree-") as folder:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            running = {pool.submit(simulate, name, target, folder, k): (name, target) for k, (name, target) in enumerate(names)}
            for done in as_completed(running):
                name, target = running[done]
                try:
                    files = done.result()
                except TeselaError as error:
                    failed.append({"program": name, "target": target, "agrees": False, "error": f"in the simulator: {error}"})
                    continue
                for file in files:
                    jobs.put({"file": file, "program": name, "target": target})
                    given += 1
        programs, random = list(failed), []
        for _ in range(given):
            job, answer = answers.get()
            row = {key: value for key, value in job.items() if key != "file"} | answer
            (programs if "file" in job else random).append(row)
            if not answer["agrees"]:
                print(json.dumps(row), flush=True)
        for _ in workers:
            jobs.put(None)
        for worker in workers:
            worker.join()
    programs.sort(key=lambda row: (row["program"], row["target"]))
    kinds: Counter[str] = Counter()
    for row in random:
        kinds.update(row.get("kinds", {"died": row["count"]}))
    bad = sum(not row["agrees"] for row in [*programs, *random])
    exact = sum(row.get("bit_for_bit", False) for row in programs)
    largest = max((a.get("largest_difference", 0.0) / a["bound"] for row in programs for a in row.get("arrays", ()) if a.get("bound")), default=0.0)
    print(f"{len(programs)} launches: {exact} the same bits, {len(programs) - exact - bad} within bounds (the largest difference {largest:.2f} of its bound)")
    print(f"random programs: {dict(kinds)}; {bad} disagreements; {time.perf_counter() - start:.0f} s")
    if arguments.json:
        results = {
            "benchmark": "agreement",
            **environment(),
            "seconds": round(time.perf_counter() - start, 1),
            "disagreements": bad,
            "launches": len(programs),
            "launches_bit_for_bit": exact,
            "largest_part_of_a_bound": round(largest, 4),
            "random_programs": dict(kinds),
            "bounds": BOUNDS,
            "programs": programs,
            "random": random,
        }
        write_json(arguments.json, results)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
