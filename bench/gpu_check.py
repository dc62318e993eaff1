"""Correctness of the examples on a GPU: both code paths, sizes from 0 to 8192, views, and arrays of several libraries.

    python bench/gpu_check.py --json bench/results/gpu_check.json
    python bench/gpu_check.py --only gemm --target sm_90a --quick

Needs torch (arrays and float64 references on the GPU). Every check runs in a child process under a time limit: a kernel that hangs or
brings the context down is reported as such, and the checks after it go on in a new child. A result passes if every element's error
against float64 stays under the bound that rounding explains. Times are informal (a few launches, no turns); `rounds.py` measures properly.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from rounds import environment, write_json

TARGETS = ("sm_90a", "sm_80")
SMALL = (0, 1, 7, 64, 129, 300)


@dataclass(frozen=True)
class Check:
    """One launch. `source`: 'mlir' or 'python'; `form`: what the inputs are (FORMS)."""

    kernel: str
    target: str
    shape: tuple[int, ...]
    source: str = "mlir"
    form: str = "torch"

    def __str__(self) -> str:
        return f"{self.kernel} {self.target} {'x'.join(map(str, self.shape))} {self.source} {self.form}"


FORMS = ("torch", "offset", "padded", "numpy", "cupy", "jax")
"""torch: dense tensors; offset: views that start one element into a row of a larger tensor; padded: rows of a larger tensor that are
16-byte multiples; numpy: host arrays; cupy, jax: arrays of these libraries, skipped where they are missing."""


def checks(quick: bool) -> Iterator[Check]:
    """Every check, for both targets."""
    for target in TARGETS:
        for n in (0, 1, 7, 1024, 4096, 1_000_003) if quick else (0, 1, 7, 31, 1023, 1024, 1025, 4096, 1_000_003, 2**26):
            yield Check("add", target, (n,))
        for shape in ((0, 5), (1, 1), (3, 7), (1823, 781)) if quick else (
            (0, 5), (1, 1), (3, 7), (4, 1023), (4, 1024), (4, 1025), (1823, 781), (2, 100_003), (8192, 8192),
        ):  # fmt: skip
            yield Check("softmax", target, shape)
        small = (1, 7, 129, 300) if quick else SMALL
        for shape in itertools.product(small, small, (0, *small) if quick else small):
            yield Check("gemm", target, shape)
        large = [(257, 321, 200), (1024, 1024, 1024)]
        if not quick:
            large += [(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (4000, 4104, 4040), (4096, 7168, 2048)]
            large += [(512, 7168, 2048), (128, 7168, 2048), (16, 7168, 7168), (4096, 4096, 512), (1000, 1000, 511), (8192, 64, 8192)]
        for shape in large:
            yield Check("gemm", target, shape)
        for form in FORMS[1:]:
            yield Check("add", target, (1_000_003,), form=form)
            yield Check("softmax", target, (1823, 781), form=form)
            yield Check("gemm", target, (257, 321, 200), form=form)
            yield Check("gemm", target, (300, 129, 511), form=form)
        for kernel, shape in (("add", (1_000_003,)), ("softmax", (1823, 781)), ("gemm", (257, 321, 200)), ("gemm", (1024, 1024, 1024))):
            yield Check(kernel, target, shape, source="python")


class Skipped(Exception):
    """A check that cannot be made here, and why."""


class Child:
    """What runs in the child process: kernels by (name, target, source), and one check at a time."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.generator = torch.Generator("cuda").manual_seed(0)
        self.kernels: dict[tuple[str, str, str], Any] = {}

    def kernel(self, check: Check) -> Any:
        from tesela.tools.demo import example
        from tesela.tools.sources import compile_source

        key = (check.kernel, check.target, check.source)
        if key not in self.kernels:
            self.kernels[key] = compile_source(example(check.kernel, check.source), check.target, check.kernel)
        return self.kernels[key]

    def tensor(self, shape: tuple[int, ...], dtype: Any, form: str) -> Any:
        """Random normal data, as a view of something larger where the form says so."""
        torch = self.torch
        outer, last = shape[:-1], shape[-1]
        room = {"offset": last + 9, "padded": -(-last // 64) * 64 + 64}.get(form, last)
        whole = torch.randn(*outer, room, device="cuda", generator=self.generator).to(dtype)
        return whole[..., 1 : last + 1] if form == "offset" else whole[..., :last]

    def inputs(self, check: Check) -> dict[str, Any]:
        torch, shape, form = self.torch, check.shape, check.form
        if check.kernel == "gemm":
            m, n, k = shape
            return {"A": self.tensor((m, k), torch.bfloat16, form), "B": self.tensor((n, k), torch.bfloat16, form)}
        names = ("x", "y") if check.kernel == "add" else ("x",)
        return {name: self.tensor(shape, torch.float32, form) for name in names}

    def expected(self, check: Check, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """(float64 result, bound of the error), elementwise."""
        torch = self.torch
        doubles = [tensor.double() for tensor in inputs.values()]
        if check.kernel == "add":
            result = doubles[0] + doubles[1]
            return result, 2.0**-24 * result.abs() + 2.0**-150
        if check.kernel == "softmax":
            result = torch.softmax(doubles[0], 1)
            return result, 2.0**-17 * result
        a, b = doubles
        # Products of bf16 are exact in f32; each of the K additions rounds or truncates once.
        return a @ b.T, a.shape[1] * 2.0**-23 * (a.abs() @ b.abs().T)

    def convert(self, form: str, tensor: Any) -> Any:
        """The tensor as an array of another library."""
        if form == "numpy":
            host = tensor.cpu()
            if host.dtype is self.torch.bfloat16:
                import ml_dtypes

                return host.view(self.torch.int16).numpy().view(ml_dtypes.bfloat16)
            return host.numpy()
        if form == "cupy":
            try:
                import cupy
            except ImportError:
                raise Skipped("CuPy is not installed") from None
            if tensor.dtype is self.torch.bfloat16:
                raise Skipped("CuPy has no bfloat16")
            return cupy.from_dlpack(tensor)
        if form == "jax":
            try:
                import jax
            except ImportError:
                raise Skipped("JAX is not installed") from None
            if not any(device.platform == "gpu" for device in jax.devices()):
                raise Skipped("JAX sees no GPU")
            return jax.dlpack.from_dlpack(tensor.contiguous())
        return tensor

    def back(self, result: Any) -> Any:
        """A kernel's output as a float64 tensor on the GPU."""
        if isinstance(result, self.torch.Tensor):
            return result.double()
        if hasattr(result, "get"):
            result = result.get()
        elif hasattr(result, "numpy"):
            result = result.numpy()
        return self.torch.from_numpy(result.astype("float64")).cuda()

    def run(self, check: Check) -> dict[str, Any]:
        torch = self.torch
        inputs = self.inputs(check)
        expected, bound = self.expected(check, inputs)
        passed = {name: self.convert(check.form, tensor) for name, tensor in inputs.items()}
        kernel = self.kernel(check)
        start = time.perf_counter()
        result = kernel(**passed)
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        actual = self.back(result)
        outcome: dict[str, Any] = {"first_call_s": round(first, 3), "notes": list(kernel.notes)}
        if tuple(actual.shape) != tuple(expected.shape):
            return outcome | {"status": "wrong", "message": f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"}
        error = (actual - expected).abs()
        bad = ~(error <= bound)  # a NaN is bad
        count = int(bad.sum())
        outcome["worst"] = float((error / bound.clamp_min(1e-300)).nan_to_num(float("inf")).max()) if error.numel() else 0.0
        if count:
            at = [int(i) for i in bad.nonzero()[0]]
            value, wanted = float(actual[tuple(at)]), float(expected[tuple(at)])
            return outcome | {"status": "wrong", "message": f"{count} of {error.numel()} elements, the first at {at}: {value} instead of {wanted}"}
        outcome["status"] = "ok"
        if check.form == "torch" and error.numel() >= 2**20:
            ms = self.milliseconds(lambda: kernel(**passed, **{kernel.contract.args[-1].name: result}))
            outcome["ms"] = ms
            if check.kernel == "gemm":
                m, n, k = check.shape
                outcome["tflops"] = 2 * m * n * k / ms / 1e9
            else:
                outcome["gbps"] = 4 * error.numel() * (3 if check.kernel == "add" else 2) / ms / 1e6
        return outcome

    def milliseconds(self, launch: Callable[[], object]) -> float:
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        launch()
        begin.record()
        for _ in range(10):
            launch()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 10


def child() -> int:
    """Read checks as JSON lines, answer each with one. An exception that spoils the context ends the process after its answer."""
    worker = Child()
    for line in sys.stdin:
        data = json.loads(line)
        check = Check(**{**data, "shape": tuple(data["shape"])})
        fatal = False
        try:
            answer = worker.run(check)
        except Skipped as why:
            answer = {"status": "skipped", "message": str(why)}
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is this check's outcome
            from tesela.dialects.diagnostics import TeselaError

            told = isinstance(error, TeselaError)
            message = str(error) if told else "".join(traceback.format_exception(error))[-2000:]
            answer = {"status": "error", "message": message}
            fatal = "CUDA" in message
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if fatal:
            return 3
    return 0


class Runner:
    """Runs checks in children, a new one where the last has gone."""

    def __init__(self, limit: float, start_limit: float):
        self.limit, self.start_limit = limit, start_limit
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str] = queue.Queue()
        self.fresh = True

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "--child"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers = queue.Queue()
        threading.Thread(target=_pump, args=(process.stdout, self.answers), daemon=True).start()
        self.process, self.fresh = process, True
        return process

    def run(self, check: Check) -> dict[str, Any]:
        process = self.process if self.process is not None and self.process.poll() is None else self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(asdict(check)) + "\n")
            process.stdin.flush()
            line = self.answers.get(timeout=self.limit + (self.start_limit if self.fresh else 0))
        except (queue.Empty, BrokenPipeError) as reason:
            self.stop()
            if isinstance(reason, queue.Empty):
                return {"status": "timeout", "message": f"no result within {self.limit:.0f} s"}
            return {"status": "died", "message": "the process had ended"}
        if not line:
            self.stop()
            return {"status": "died", "message": f"the process ended with status {process.returncode}"}
        self.fresh = False
        answer = json.loads(line)
        if answer["status"] == "error":
            self.stop()  # the context may be spoilt; the next check gets a new one
        return answer

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _pump(stream: IO[str] | None, answers: queue.Queue[str]) -> None:
    assert stream is not None
    for line in stream:
        if line.startswith("{"):  # libraries may print to standard output, too
            answers.put(line)
    answers.put("")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, none above 1024")
    parser.add_argument("--only", help="one kernel")
    parser.add_argument("--target", choices=TARGETS, help="one target")
    parser.add_argument("--form", choices=FORMS, help="one form of inputs")
    parser.add_argument("--limit", type=float, default=60, help="seconds a check may take (default: 60)")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which the remaining checks are left out")
    parser.add_argument("--json", type=Path, help="also write the results there")
    arguments = parser.parse_args(argv)
    if arguments.child:
        return child()
    runner = Runner(arguments.limit, 120)
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    begin = time.monotonic()
    for check in checks(arguments.quick):
        if arguments.only not in (None, check.kernel) or arguments.target not in (None, check.target) or arguments.form not in (None, check.form):
            continue
        if time.monotonic() - begin > arguments.budget:
            outcome: dict[str, Any] = {"status": "left out", "message": "the time was spent"}
        else:
            outcome = runner.run(check)
        rows.append({**asdict(check), **outcome})
        counts[outcome["status"]] = counts.get(outcome["status"], 0) + 1
        if outcome["status"] != "ok" or "ms" in outcome:
            figures = ", ".join(f"{outcome[key]:.4g} {key}" for key in ("ms", "tflops", "gbps") if key in outcome)
            sys.stdout.write(f"{check}: {outcome['status']} {outcome.get('message', figures)}\n")
            sys.stdout.flush()
        if arguments.json is not None:
            write_json(arguments.json, {"benchmark": "gpu check", "counts": counts, "rows": rows})
    runner.stop()
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    sys.stdout.write(f"{len(rows)} checks in {time.monotonic() - begin:.0f} s: {summary}\n")
    if arguments.json is not None:
        write_json(arguments.json, {"benchmark": "gpu check", **environment(), "counts": counts, "rows": rows})
    return 0 if set(counts) <= {"ok", "skipped"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
