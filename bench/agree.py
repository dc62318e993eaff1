"""The simulator against a GPU: every kernel of the repository, and random tile programs, the same bits but where a bound is stated.

    python bench/agree.py --json bench/results/agreement.json --seconds 160
    python bench/agree.py --only kernels/ --random 0
    python bench/agree.py --stub --only ptx/                # without a GPU, to try the script: a driver that runs nothing

1. In child processes without the GPU each program of `test/judged_programs.py`, for each target, runs in the simulator. Its launches are kept: the
   PTX program, its parameters, what memory held before, and what it held after.
2. In child processes on the GPU: the same PTX with the same parameters on the same memory.
3. Random tile programs (`tesela fuzz`) run on both, and are compared with each other and with what the interpreter allows (docs/numbers.md).

Every job has a time limit (SECONDS), and so has the whole (`--seconds`): when it is over the children are ended, the results say what was done, and
`left_out` what was not. Exit status 1 if anything disagrees, 2 if nothing does but something was left out.

**What must agree.** Memory must hold the same bits after a launch (all NaN count as one, N2), except where the launch executes instructions whose
results are stated within bounds only. There each array may differ by at most a bound times its largest magnitude, which `Inexact` derives from the launch:

* products on tensor cores. The simulator sums one instruction's products exactly; the hardware aligns the `k` products and the accumulator to the
  largest of them and cuts what lies `ACCUMULATOR_BITS` below it, so that one instruction errs by at most (k + 1) cuts. Errors add up along the longest
  chain of instructions that add into one accumulator. Both the chain (how often a thread executes an instruction with the same accumulators) and the
  largest term (the largest magnitudes of operands and accumulators) are observed while the launch is simulated. Example: an f32 sum of 712 products of
  bf16 normals is a chain of 45 instructions of 16; with terms below the largest result it may err by 45 · 17 · 2^-23 = 2^-13.4 of that;
* approximate functions: the ISA's error of each (`APPROXIMATE`), four times, for what is computed from it;
* roundings after an inexact result may go the other way: one unit of f32 for each operation that a thread executes, and one of the narrowest type
  that the launch converts to, since an operand rounded the other way differs by that much;
* atomic additions of floats, in any order: one unit of f32 for each that is added to one place.

A random program that differs must be allowed by the interpreter on both.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import pickle
import queue
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import stub_driver
from numpy.typing import NDArray
from rounds import environment, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from tesela.dialects.diagnostics import TeselaError  # noqa: E402
from tesela.dialects.launch_plan import TensorMap  # noqa: E402
from tesela.dialects.ptx_program import Entry, Instr  # noqa: E402
from tesela.dialects.ptx_text import print_program  # noqa: E402
from tesela.simulator import matrix_ops, settings  # noqa: E402
from tesela.simulator.decode import Step  # noqa: E402
from tesela.simulator.machine import Machine  # noqa: E402
from tesela.simulator.memory import Memory  # noqa: E402
from tesela.simulator.numbers import decode  # noqa: E402
from tesela.simulator.selection import Selection  # noqa: E402
from tesela.simulator.tensor_maps import MAP_BYTES, decode_tensor_map  # noqa: E402
from tesela.tools.mutation.launches import Recorded, Recorder  # noqa: E402

Array = NDArray[Any]

ACCUMULATOR_BITS = {"e4m3": 13, "e5m2": 13}
"""By operand type: terms are cut so many bits below the largest one of an instruction; 23 for all others (measured; `simulator/matrix_ops.py`)."""
APPROXIMATE = {
    "ex2.f32": 2.0**-22, "lg2.f32": 2.0**-22, "sqrt.f32": 2.0**-22, "rsqrt.f32": 2.0**-22, "rcp.f32": 2.0**-23, "div.f32": 2.0**-22, "sin.f32": 2.0**-20,
    "cos.f32": 2.0**-20, "tanh.f32": 2.0**-10.9, "ex2.f16": 2.0**-9.9, "ex2.f16x2": 2.0**-9.9, "tanh.f16": 2.0**-10.9, "tanh.f16x2": 2.0**-10.9,
    "ex2.bf16": 2.0**-7, "ex2.bf16x2": 2.0**-7, "tanh.bf16": 2.0**-8, "tanh.bf16x2": 2.0**-8, "rcp.f64": 2.0**-20, "rsqrt.f64": 2.0**-20,
}  # fmt: skip
"""Largest errors (PTX ISA 9.0 §9.7.3 and §9.7.4), rounded up; of lg2, sin and cos absolute ones."""
UNITS = {"f16": 2.0**-10, "f16x2": 2.0**-10, "bf16": 2.0**-7, "bf16x2": 2.0**-7, "e4m3x2": 2.0**-3, "e5m2x2": 2.0**-2}
"""A unit in the last place of narrow types, of the number itself at most."""
SECONDS = 60
"""For one job."""
CHUNK = 5
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
    bound: float = 0.0


def is_mma(instr: Instr) -> bool:
    return instr.opcode.startswith(("mma.sync.", "wgmma.mma_async."))


def approximate_error(instr: Instr) -> float:
    """Of an approximate function, else 0. Raises KeyError for one that APPROXIMATE lacks."""
    words = instr.opcode.split(".")
    return APPROXIMATE[f"{words[0]}.{words[-1]}"] if "approx" in words or "full" in words else 0.0


def adds_floats(instr: Instr) -> bool:
    """An atomic addition of floats."""
    words = instr.opcode.split(".")
    return words[0] in ("atom", "red", "cp") and "add" in words and words[-1] in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")


def inexact(entry: Entry) -> list[str]:
    """The instructions of a kernel whose results are stated within bounds only."""
    instrs = [item for item in entry.body if isinstance(item, Instr)]
    return sorted({i.opcode for i in instrs if (is_mma(i) and ".s32" not in i.opcode) or adds_floats(i) or approximate_error(i)})


class Inexact(Recorder):
    """Records launches, and of each what its bound depends on; `with inexact.measuring(): run()`."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: list[float] = []
        self._chain = 0

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        if not machine.first_block:
            self._magnitudes = {"operand": 0.0, "accumulator": 0.0}
            self._pair: list[float] = []
            self._chain = 0
            self._adds: Counter[int] = Counter()
        self._counts: dict[str, NDArray[np.int64]] = {}
        machine.watched = [any(map(is_mma, step.instrs)) for step in machine.code.steps]

    def before(self, machine: Machine, step: Step, sel: Selection) -> None:
        for instr in step.instrs:
            count = self._counts.setdefault(str(instr.operands[0]), np.zeros(machine.thread_count, np.int64))
            count[sel.threads] += 1

    def access(
        self, machine: Machine, kind: str, space: str, addresses: Array, size: int, threads: Array, values: Array | None = None
    ) -> None:
        if kind.endswith("atomic") and space == "global":
            self._adds.update(np.asarray(addresses).reshape(-1).tolist())

    def end(self, machine: Machine) -> None:
        super().end(machine)
        self._chain = max([self._chain, *(int(count.max()) for count in self._counts.values())])
        launch = self.launches[-1]
        del self.bounds[len(self.launches) - 1 :]
        largest = self._magnitudes
        ratio = max(1.0, largest["operand"] / largest["accumulator"]) if largest["accumulator"] else 1.0
        self.bounds.append(bound(launch, self._chain, ratio, max(self._adds.values(), default=0)))

    def numbers(self, raw: Array, type: str) -> Array:
        """In place of `matrix_ops.numbers`: the largest magnitude of an operand."""
        found = _numbers(raw, type)
        self._pair = [*self._pair[-1:], _largest(found)]
        return found

    def accumulate(self, product: Array, old: Array | None, type: str, saturate: bool) -> Array:
        """In place of `matrix_ops.accumulate`: the largest magnitude of a product of operands, and of a sum."""
        result = _accumulate(product, old, type, saturate)
        largest = self._magnitudes
        largest["operand"] = max(largest["operand"], self._pair[0] * self._pair[-1])
        sums = result.view(np.float32) if type == "f32" else decode(result, "f16") if type == "f16" else product
        largest["accumulator"] = max(largest["accumulator"], _largest(sums))
        return result

    @contextmanager
    def measuring(self) -> Iterator[None]:
        with (
            settings(observer=self),
            patch.object(matrix_ops, "numbers", self.numbers),
            patch.object(matrix_ops, "accumulate", self.accumulate),
        ):
            yield


_numbers, _accumulate = matrix_ops.numbers, matrix_ops.accumulate


def _largest(numbers: Array) -> float:
    finite = np.abs(numbers[np.isfinite(numbers)])
    return float(finite.max(initial=0.0))


def bound(launch: Recorded, chain: int, ratio: float, added: int) -> float:
    """By how much of its largest magnitude an array of floats may differ (see above); 0 where nothing inexact is executed. `chain`: the longest of
    matrix instructions that add into one accumulator; `ratio`: the largest product of two operands to the largest sum; `added`: atomic additions
    to one place."""
    executed = [(i, n) for i, n in zip(launch.kernel.body, launch.executed) if isinstance(i, Instr) and n]
    mma = [i for i, _ in executed if is_mma(i) and ".s32" not in i.opcode]
    total = 0.0
    for instr in mma:
        k = int(re.findall(r"\.m\d+n\d+k(\d+)", instr.opcode)[0])
        bits = max((23 - ACCUMULATOR_BITS.get(word, 23) for word in instr.opcode.split(".")), default=0)
        unit = 2.0**-10 if ".f16.f16.f16.f16" in instr.opcode or re.search(r"k\d+\.f16\.", instr.opcode) else 2.0 ** (bits - 23)
        total = max(total, chain * (k + 1) * ratio * unit)
    total += sum(4 * error for error in {i.opcode: approximate_error(i) for i, _ in executed}.values())
    if any(adds_floats(i) for i, _ in executed):
        total += added * 2.0**-24
    if not total:
        return 0.0
    threads = math.prod(launch.grid) * math.prod(launch.block)
    rounding = sum(n for i, n in executed if re.match(r"(add|sub|mul|fma|div)\.", i.opcode) and i.opcode.endswith(".f32"))
    total += rounding / threads * 2.0**-24
    narrow = [UNITS[w] for i, _ in executed if i.opcode.startswith("cvt.r") for w in i.opcode.split(".")[2:-1] if w in UNITS]
    return total + max(narrow, default=0.0)


def job_of(name: str, target: str, launch: Recorded, bound: float) -> Job:
    """A recorded launch as a job, with memory as it is now for what it must become."""
    memory, entry = launch.memory, launch.kernel
    allocations = memory._allocations
    buffers = []
    for allocation, before in zip(allocations, launch.before):
        dtype = str(allocation.owner.dtype) if isinstance(allocation.owner, np.ndarray) else "uint8"
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
        inexact(entry), bound,
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
    watcher = Inexact()
    with watcher.measuring():
        PROGRAMS[name](target)
    for k, (launch, allowed) in enumerate(zip(watcher.launches, watcher.bounds)):
        if launch.entry and 0 not in launch.grid:
            path = Path(folder) / f"{number:04}-{k}.job"
            path.write_bytes(pickle.dumps(job_of(name, target, launch, allowed)))
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
        bases, addresses = [], []
        for buffer in job.buffers:
            base = driver.allocate(max(len(buffer.before), 1) + 512)
            bases.append(base)
            addresses.append(-(-base // 256) * 256 + buffer.low_bits)
            if len(buffer.before):
                driver.copy_to_device(addresses[-1], buffer.before.ctypes.data, len(buffer.before))
        values = [_value(param, addresses, driver) for param in job.params]
        room = ctypes.create_string_buffer(len(values) * 128 + 64)
        start = -(-ctypes.addressof(room) // 64) * 64  # tensor maps are aligned to 64 bytes
        for k, value in enumerate(values):
            ctypes.memmove(start + 128 * k, value, len(value))
        pointers = (ctypes.c_void_p * len(values))(*(start + 128 * k for k in range(len(values))))
        status = driver.Launcher(function, job.grid, job.threads, job.shared, job.cluster).status(0, pointers)
        if status != 0:
            raise driver.launch_failure(status)
        driver.synchronize()
        arrays = []
        for buffer, address in zip(job.buffers, addresses):
            found = np.empty_like(buffer.before)
            if len(found):
                driver.copy_to_host(found.ctypes.data, address, len(found))
            arrays.append(compare(buffer, found, job.bound))
        for base in bases:
            driver.free(base)
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


def compare(buffer: Buffer, found: np.ndarray[Any, Any], bound: float) -> dict[str, Any]:
    """How the bytes of an array on the GPU differ from the simulator's; `bound`: by how much of the largest magnitude floats may."""
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
        both = np.isfinite(a) & np.isfinite(b)
        error = float(np.abs(a[both] - b[both]).max(initial=0.0)) / scale
        strange = int((different & ~both).sum())  # infinite or NaN on one side, or infinities of two signs
        result |= {"largest_difference": error, "bound": bound, "not_finite": strange, "agrees": error <= bound and not strange}
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
            before = {name: array.copy() for name, array in arrays.items()}  # kernels are made for the arrays' own strides, which copies lack
            kernel(**arrays, device="sim")
            simulated = {name: array.copy() for name, array in arrays.items()}
            for name, array in arrays.items():
                if array.flags.writeable:
                    array[...] = before[name]
            kernel(**arrays, device="cuda")
            same.append(all(_same_bits(simulated[name], array) for name, array in arrays.items()))

        outcome = check(generate(seed, 10), both, target)
        if outcome.failed:
            failures.append(f"program {seed} for {target}: {outcome.kind}: {outcome.message.splitlines()[0]}")
        kind = outcome.kind if outcome.failed or not same else "the same bits" if same[0] else "both within bounds"
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
            if "number" in job:
                answer = {"files": simulate(job["program"], job["target"], job["folder"], job["number"])}
            elif "file" in job:
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
    """Gives jobs to a child process and restarts it where it dies or takes too long. `jobs`: (urgency, number, job), the lowest first."""

    def __init__(self, jobs: queue.PriorityQueue[Any], answers: queue.SimpleQueue[Any]):
        super().__init__(daemon=True)
        self.jobs, self.answers = jobs, answers
        self.process: subprocess.Popen[str] | None = None
        self.over = False

    def run(self) -> None:
        while not self.over:
            job = self.jobs.get()[-1]
            if self.over or job is None:
                break
            self.answers.put((job, self.ask(job)))
        self.stop()

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self.process is None:
            command = [sys.executable, str(Path(__file__).resolve()), "--child"]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        watch.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"agrees": False, "error": f"the process died, or took more than {SECONDS} s"}
        if "error" in answer:
            process.kill()
            process.wait()
            self.process = None
        return answer

    def stop(self) -> None:
        """Ends the child, whatever it does."""
        self.over = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Run:
    """All jobs until they are done, or the time is over: `programs` and `random` are the answers, `left_out` names what has none."""

    def __init__(self, names: list[tuple[str, str]], random: int, simulating: int, on_gpu: int, seconds: float, folder: str):
        from judged_programs import TARGETS

        self.programs: list[dict[str, Any]] = []
        self.random: list[dict[str, Any]] = []
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._simulate: queue.PriorityQueue[Any] = queue.PriorityQueue()
        self._compare: queue.PriorityQueue[Any] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._open: dict[str, dict[str, Any]] = {}
        for number, (name, target) in enumerate(names):
            self._give(self._simulate, 0, {"program": name, "target": target, "folder": folder, "number": number})
        for first in range(0, random, CHUNK):
            target = TARGETS[first // CHUNK % len(TARGETS)]
            self._give(self._compare, 1, {"first": first, "count": min(CHUNK, random - first), "target": target})
        self._workers = [Worker(self._simulate, self._answers) for _ in range(simulating)]
        self._workers += [Worker(self._compare, self._answers) for _ in range(on_gpu)]
        self._end = time.monotonic() + seconds

    def _give(self, jobs: queue.PriorityQueue[Any], urgency: int, job: dict[str, Any]) -> None:
        self._open[json.dumps(job)] = job
        jobs.put((urgency, next(self._numbers), job))

    def wait(self) -> None:
        """Until all is done, or the time is over; no child is left."""
        for worker in self._workers:
            worker.start()
        while self._open:
            try:
                job, answer = self._answers.get(timeout=max(0.0, self._end - time.monotonic()))
            except queue.Empty:
                break
            del self._open[json.dumps(job)]
            self._take(job, answer)
        for worker in self._workers:
            worker.over = True
        for worker in self._workers:
            for jobs in (self._simulate, self._compare):
                jobs.put((-1, next(self._numbers), None))
            worker.stop()
        for worker in self._workers:
            worker.join(5)

    def _take(self, job: dict[str, Any], answer: dict[str, Any]) -> None:
        for file in answer.get("files", ()):
            self._give(self._compare, 0, {"file": file, "program": job["program"], "target": job["target"]})
        if "files" in answer:
            return
        if "number" in job:
            answer = answer | {"error": f"in the simulator: {answer['error']}"}
        row = {key: value for key, value in job.items() if key not in ("file", "folder", "number")} | answer
        (self.programs if "program" in job else self.random).append(row)
        if not answer["agrees"]:
            print(json.dumps(row), flush=True)

    @property
    def left_out(self) -> list[str]:
        return sorted(
            f"{job['program']} {job['target']}" if "program" in job else f"random programs {job['first']} to {job['first'] + job['count'] - 1}"
            for job in self._open.values()
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose names contain it")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="random tile programs (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=9, metavar="N", help="processes that simulate (default: %(default)s)")
    parser.add_argument("--children", type=int, default=7, metavar="N", help="processes on the GPU (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=160, metavar="S", help="end after so long, with what was done (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    parser.add_argument("--stub", action="store_true", help="try the script over a driver that runs nothing: everything disagrees")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child()
    if arguments.stub:
        stub_driver.reexec()
    from judged_programs import PROGRAMS, TARGETS

    start = time.perf_counter()
    names = [(name, target) for name in PROGRAMS for target in TARGETS if arguments.only in name]
    with tempfile.TemporaryDirectory(prefix="agree-") as folder:
        run = Run(names, arguments.random, arguments.jobs, arguments.children, arguments.seconds, folder)
        run.wait()
    found = summary(run, time.perf_counter() - start)
    print(
        f"{found['launches']} launches: {found['launches_bit_for_bit']} the same bits, {found['launches_within_bounds']} within bounds (the largest "
        f"difference {found['largest_part_of_a_bound']:.2f} of its bound)"
    )
    print(f"random programs: {found['random_programs']}; {found['disagreements']} disagreements; {found['seconds']:.0f} s")
    if run.left_out:
        print("left out: " + ", ".join(run.left_out))
    if arguments.json:
        write_json(arguments.json, found)
    return 1 if found["disagreements"] else 2 if run.left_out else 0


def summary(run: Run, seconds: float) -> dict[str, Any]:
    """The results file's contents."""
    run.programs.sort(key=lambda row: (row["program"], row["target"]))
    kinds: Counter[str] = Counter()
    for row in run.random:
        kinds.update(row.get("kinds", {"died": row["count"]}))
    bad = sum(not row["agrees"] for row in [*run.programs, *run.random])
    exact = sum(row.get("bit_for_bit", False) and row["agrees"] for row in run.programs)
    within = sum(row["agrees"] for row in run.programs) - exact
    parts = [a["largest_difference"] / a["bound"] for row in run.programs for a in row.get("arrays", ()) if a.get("bound")]
    return {
        "benchmark": "agreement",
        **environment(),
        "seconds": round(seconds, 1),
        "disagreements": bad,
        "launches": len(run.programs),
        "launches_bit_for_bit": exact,
        "launches_within_bounds": within,
        "largest_part_of_a_bound": round(max(parts, default=0.0), 4),
        "random_programs": dict(kinds),
        "left_out": run.left_out,
        "programs": run.programs,
        "random": run.random,
    }


if __name__ == "__main__":
    sys.exit(main())
