"""The examples beside torch (cuBLAS, cuDNN, eager, torch.compile) and Triton in one run, by the method of rounds.py, on random data.

    python bench/peers.py gemm --json bench/results/gemm.json
    python bench/peers.py softmax add --small
    python bench/peers.py rows --json bench/results/rows.json
    python bench/peers.py rows --only softmax --try warps=4 BLOCK=8192,warps=16

Needs a GPU and torch. Every system's result is compared with a float64 reference before it is timed; one that is wrong is reported as
failed. What is written in Triton is tuned first: a few configurations for each case, whose best takes part (triton_tuning.py); the results name it, and how far each
system is from the reference (`error`, of the largest element).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from peers_attention import ATTENTIONS, attention
from peers_products import DECODES, FP8S, FUSED, GEMMS, OTHER_ORDERS, epilogue, fp8, fused, gemm
from peers_rows import ROWS, make_case
from rounds import GPU, Case, Results, Row, System, measure, need_torch

from tesela.tools.demo import example
from tesela.tools.sources import compile_source

SOFTMAXES = ((16384, 8192), (8192, 1024), (1823, 781))
ADDS = (2**28, 2**20, 1_000_003)


class Torch:
    """Inputs, and systems that run torch functions on a given stream."""

    def __init__(self, without: Sequence[str] = ()) -> None:
        self.torch = torch = need_torch()
        self.without = without
        self.generator = torch.Generator("cuda").manual_seed(0)
        self.streams: dict[int, Any] = {}

    def randn(self, *shape: int, dtype: Any = None) -> Any:
        return self.torch.randn(*shape, device="cuda", generator=self.generator, dtype=self.torch.float32).to(dtype or self.torch.float32)

    def system(self, name: str, function: Callable[[], object]) -> System:
        """`function` uses torch; it runs with the stream of the measurement as the current one."""

        def run(stream: int) -> None:
            if stream not in self.streams:
                # ExternalStream(0) would be a stream of torch's pool, which does not wait for the default one.
                self.streams[stream] = self.torch.cuda.ExternalStream(stream) if stream else self.torch.cuda.default_stream()
            with self.torch.cuda.stream(self.streams[stream]):
                function()

        return System(name, run)

    def checked(self, system: System, output: Any, expected: Any, tolerance: float) -> System:
        """The system, if its output is right; else one that says that it is not."""
        output.fill_(float("nan"))
        return self._checked(system, lambda: output, expected, tolerance)

    def checked_result(self, system: System, results: list[Any], expected: Any, tolerance: float) -> System:
        """As `checked`, of a system that leaves its result (or a tuple, the first of which counts) in `results`."""
        return self._checked(system, lambda: results[0][0] if isinstance(results[0], tuple) else results[0], expected, tolerance)

    def _checked(self, system: System, output: Callable[[], Any], expected: Any, tolerance: float) -> System:
        try:
            system.run(0)
            self.torch.cuda.synchronize()
            error = float(((output().double() - expected).abs().max() / expected.abs().max()).nan_to_num(float("inf")))
        except Exception as reason:  # noqa: BLE001 - whatever a contestant raises goes into the results
            problem: Exception = reason
        else:
            if error <= tolerance:
                return replace(system, details={**system.details, "error": float(f"{error:.3g}")})
            problem = ValueError(f"wrong by {error:.3g} of the largest element")
        return failing(system.name, problem)

    def tuned(self, name: str, programs: Callable[[], tuple[Sequence[dict[str, Any]], Callable[[dict[str, Any]], Callable[[], object]]]], output: Any, expected: Any, tolerance: float) -> System:
        """A system in Triton: `programs` gives the configurations that are tried, and what makes the launch of one. What it raises is the system's failure."""
        if name in self.without:
            return failing(name, ValueError("left out"))
        try:
            from triton_tuning import tuned

            launch, configuration = tuned(*programs())
        except Exception as reason:  # noqa: BLE001 - as in `_checked`
            return failing(name, reason)
        system = replace(self.system(name, launch), details={"configuration": configuration})
        return self.checked(system, output, expected, tolerance)


def failing(name: str, problem: Exception) -> System:
    """A system that raises, so that the results say why it takes no part."""

    def run(stream: int) -> None:
        raise problem

    return System(name, run)


def softmax(torch: Torch, m: int, n: int) -> Case:
    x, y, z, w = torch.randn(m, n), *(torch.torch.empty(m, n, device="cuda") for _ in range(3))
    kernel = compile_source(example("softmax", "mlir"), None, "softmax")
    compiled = torch.torch.compile(lambda x, out: out.copy_(torch.torch.softmax(x, 1)), dynamic=False)
    expected = torch.torch.softmax(x.double(), 1)
    systems = [
        torch.checked(torch.system("tesela", lambda: kernel(x, y)), y, expected, 1e-5),
        torch.checked(torch.system("torch", lambda: torch.torch.softmax(x, 1, out=z)), z, expected, 1e-5),
        torch.checked(torch.system("torch.compile", lambda: compiled(x, w)), w, expected, 1e-5),
    ]

    def triton() -> Any:
        import triton_rows as programs

        return programs.configurations(n), lambda config: programs.launcher("softmax", (x, third), None, config)

    third = torch.torch.empty_like(x)
    systems.append(torch.tuned("Triton", triton, third, expected, 1e-5))
    return Case(f"{m}×{n}", systems, nbytes=8 * m * n)


def add(torch: Torch, n: int) -> Case:
    x, y, z, w = torch.randn(n), torch.randn(n), torch.torch.empty(n, device="cuda"), torch.torch.empty(n, device="cuda")
    kernel = compile_source(example("add", "mlir"), None, "add")
    expected = x.double() + y.double()
    systems = [
        torch.checked(torch.system("tesela", lambda: kernel(x, y, z)), z, expected, 1e-6),
        torch.checked(torch.system("torch", lambda: torch.torch.add(x, y, out=w)), w, expected, 1e-6),
    ]
    return Case(str(n), systems, nbytes=12 * n)


BENCHMARKS: dict[str, tuple[Callable[..., Case], tuple[Any, ...]]] = {
    "gemm": (gemm, GEMMS),
    "orders": (gemm, OTHER_ORDERS),
    "decode": (gemm, DECODES),
    "epilogue": (epilogue, ((8192, 8192, 8192),)),
    "attention": (attention, ATTENTIONS),
    "fused": (fused, FUSED),
    "fp8": (fp8, FP8S),
    "softmax": (softmax, SOFTMAXES),
    "add": (add, tuple((n,) for n in ADDS)),
    "rows": (make_case, ROWS),
}


def show(row: Row) -> str:
    """One line of figures."""
    parts = []
    for name, entry in row.to_json()["systems"].items():
        rate = f", {entry['tflops']:.0f} TFLOP/s" if "tflops" in entry else f", {entry['gbps']:.0f} GB/s"
        parts.append(f"{name} {entry['ms']:.4f} ms{rate} (±{entry['spread']:.1%})")
    parts += [f"{name} failed: {why}" for name, why in row.failed.items()]
    return f"{row.case}: {'; '.join(parts)}\n"


def record(results: Results, cases: Iterable[Case], timer: GPU, path: Path | None) -> None:
    """Measures cases one after another, each made when its turn comes; shows every row, and writes the results after it where there is a `path`."""
    for case in cases:
        sys.stdout.write(show(results.add(measure(case, timer, results.rounds))))
        sys.stdout.flush()
        if path is not None:
            results.write(path)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("benchmarks", nargs="+", choices=list(BENCHMARKS))
    parser.add_argument("--json", type=Path, help="also write the results there (one benchmark)")
    parser.add_argument("--small", action="store_true", help="the last two cases of each only")
    parser.add_argument("--only", default="", help="the cases whose arguments, joined by 'x', contain this: 4x16x4096x128xFalse, softmax")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--resume", action="store_true", help="go on where the results file ends, if it is of the same code, device and rounds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many")
    parser.add_argument("--without", nargs="+", default=[], help="systems that take no part and are not tuned: Triton")
    parser.add_argument("--try", dest="tried", nargs="+", default=[], help="of `rows` ours also with these choices, such as warps=8,BLOCK=4096")
    arguments = parser.parse_args(argv)
    if arguments.json is not None and len(arguments.benchmarks) != 1:
        parser.error("--json takes one benchmark")
    torch, timer = Torch(arguments.without), GPU()
    end = time.monotonic() + arguments.seconds
    failed = False
    for name in arguments.benchmarks:
        make, shapes = BENCHMARKS[name]
        results = Results(name, rounds=arguments.rounds)
        done = results.resume(arguments.json) if arguments.resume and arguments.json is not None else set()
        more = {"tried": arguments.tried} if name == "rows" else {}
        for shape in shapes[-2:] if arguments.small else shapes:
            named = "x".join(map(str, shape))
            if arguments.only not in named or named in done:
                continue
            if time.monotonic() > end:
                sys.stderr.write(f"peers.py: {name}: no time is left for {named} and what follows\n")
                return 2
            case = make(torch, *shape, **more)
            case = replace(case, systems=[system for system in case.systems if system.name not in arguments.without])
            row = results.add(measure(case, timer, arguments.rounds), named)
            failed |= "tesela" in row.failed
            sys.stdout.write(f"{name} {show(row)}")
            sys.stdout.flush()
            if arguments.json is not None:
                results.write(arguments.json)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
