"""The demonstration: compiles and runs vector add, row softmax and GEMM, from IR and from Python; `python -m tesela.tools.demo`.

For each program and each source: the device, the time to compile, the instructions chosen, the largest error against float64 beside the
bound it must stay under, and PASS or FAIL. The exit status is 1 if any failed. On a GPU if there is one, else in the simulator.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import ml_dtypes
import numpy as np

from ..dialects.diagnostics import TeselaError
from ..dialects.ptx_isa import lookup
from ..dialects.ptx_program import Instr
from ..runtime import driver
from ..runtime.assemble import find_assembler
from ..runtime.launch import Variant
from .driver import Streams, guarded, parse_arguments
from .sources import compile_source

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
"""The programs' folder; installed packages are without it."""

SHOWN_UNITS = ("wgmma", "mma", "tma", "cp_async", "global", "shared", "mufu", "shuffle")
"""Units of the instruction table whose instructions say how a kernel works: the tensor cores, the ways to memory, special functions."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """One demonstration: `inputs` makes arrays by argument name, `reference` the result in float64, `bound` the largest error that
    rounding explains, elementwise."""

    name: str
    size: str
    inputs: Callable[[np.random.Generator], dict[str, Array]]
    reference: Callable[[dict[str, Array]], Array]
    bound: Callable[[dict[str, Array], Array], Array]


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _double(inputs: dict[str, Array]) -> list[Array]:
    return [array.astype(np.float64) for array in inputs.values()]


def programs() -> list[Program]:
    """The three programs, with sizes that no tile divides."""

    def normal(rng: np.random.Generator, *shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    def add_inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"x": normal(rng, 1_000_003), "y": normal(rng, 1_000_003)}

    def gemm_inputs(rng: np.random.Generator) -> dict[str, Array]:
        return {"A": normal(rng, 257, 200).astype(ml_dtypes.bfloat16), "B": normal(rng, 321, 200).astype(ml_dtypes.bfloat16)}

    def gemm_bound(inputs: dict[str, Array], result: Array) -> Array:
        a, b = _double(inputs)
        # Products of bf16 are exact in f32; each of the K additions rounds (or truncates) once.
        return a.shape[1] * 2.0**-23 * (np.abs(a) @ np.abs(b).T)

    return [
        # One rounding to nearest: half a unit in the last place.
        Program("add", "n = 1000003, f32", add_inputs, lambda i: np.add(*_double(i)), lambda i, r: 2.0**-24 * np.abs(r) + 2.0**-150),
        # exp and its argument are off by a few units in the last place, as is the sum: 2^-17 relative is generous, and tells a wrong
        # result from a right one.
        Program(
            "softmax", "1823×781, f32", lambda rng: {"x": normal(rng, 1823, 781)}, lambda i: _softmax(*_double(i)), lambda i, r: 2.0**-17 * r
        ),
        Program("gemm", "257×321×200, bf16", gemm_inputs, lambda i: _double(i)[0] @ _double(i)[1].T, gemm_bound),
    ]


def chosen_instructions(variant: Variant) -> list[str]:
    """What the PTX text uses, a line for each unit that tells how the kernel works: opcodes with how often they stand there."""
    found: dict[str, Counter[str]] = {}
    for entry in variant.program().entries:
        for instr in entry.body:
            if isinstance(instr, Instr) and not instr.opcode.startswith("ld.param"):
                found.setdefault(lookup(instr.opcode).unit, Counter())[instr.opcode] += 1
    return [
        f"{unit}: " + ", ".join(f"{count}× {opcode}" for opcode, count in found[unit].most_common(4))
        for unit in SHOWN_UNITS
        if unit in found
    ]


def example(name: str, source: str) -> Path:
    """The file of an example: `source` is 'mlir' or 'python'."""
    return EXAMPLES / f"{name}.{'py' if source == 'python' else source}"


def run_program(program: Program, source: str, device: str | None, target: str | None, stdout: TextIO) -> bool:
    """Compile, run, compare and report one program; whether it passed."""
    inputs = program.inputs(np.random.default_rng(0))
    start = time.perf_counter()
    path = example(program.name, source)
    where = f"examples/{path.name}"
    kernel = compile_source(path, target, program.name)
    variant = kernel.variant(*(inputs.get(arg.name) for arg in kernel.contract.args))
    to_ptx = time.perf_counter() - start
    times = f"{to_ptx * 1e3:.0f} ms to PTX"
    resources = ""
    try:
        assembler = find_assembler()
    except TeselaError:
        assembler = None
    if assembler is not None and assembler.kind != "driver":
        start = time.perf_counter()
        used = variant.resources()
        times += f", {(time.perf_counter() - start) * 1e3:.0f} ms in ptxas {assembler.version()}"
        resources = f"; {used.registers} registers, {used.spill_stores + used.spill_loads} bytes spilled, {variant.plan.shared_bytes} bytes shared"
    start = time.perf_counter()
    result = kernel(**inputs, device=device)
    seconds = time.perf_counter() - start
    reference = program.reference(inputs)
    error = np.abs(result.astype(np.float64) - reference)
    bound = program.bound(inputs, reference)
    passed = result.shape == reference.shape and bool(np.all(error <= bound))
    worst = np.unravel_index(np.argmax(error / np.maximum(bound, np.finfo(np.float64).tiny)), error.shape)
    stdout.write(f"{program.name} ({program.size}) from {where}: {'PASS' if passed else 'FAIL'}\n")
    stdout.write(f"  device        {describe_device(device)}, target {kernel.last.plan.target}; ran in {seconds:.2f} s\n")
    stdout.write(f"  compiled      {times}{resources}\n")
    for line in chosen_instructions(kernel.last):
        stdout.write(f"  instructions  {line}\n")
    stdout.write(f"  error         {error.max():.3g} at most against float64; nearest to its bound: {error[worst]:.3g} of {bound[worst]:.3g}\n")
    for note in kernel.notes:
        stdout.write(f"  note          {note}\n")
    stdout.flush()
    return passed


def describe_device(device: str | None) -> str:
    """The device that host arrays run on, in words."""
    if device != "sim" and driver.device_available():
        return driver.current_device().name
    return "simulator"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/demo", description="Compile and run three programs, from IR and from Python.")
    parser.add_argument("--device", choices=("auto", "cuda", "sim"), default="auto", help="default: a GPU if there is one, else the simulator")
    parser.add_argument("--target", help="default: the GPU's own; sm_90a in the simulator")
    parser.add_argument("--only", choices=[program.name for program in programs()], help="one of the programs")
    return parser


def main(argv: Sequence[str] | None = None, stdout: TextIO | None = None, stderr: TextIO | None = None) -> int:
    """Run the demonstration; 0 if everything passed."""
    streams = Streams.of(None, stdout, stderr)
    arguments = parse_arguments(make_parser(), list(sys.argv[1:] if argv is None else argv), streams)
    if isinstance(arguments, int):
        return arguments

    def action() -> int:
        if not EXAMPLES.is_dir():
            raise TeselaError.at(None, "the example programs are not installed with the package", "run tools/demo in a checkout")
        os.environ["TESELA_CACHE"] = "0"  # what is shown of compiling must have been compiled
        start = time.perf_counter()
        failed: list[str] = []
        for program in programs():
            if arguments.only not in (None, program.name):
                continue
            for source in ("mlir", "python"):
                try:
                    passed = run_program(program, source, arguments.device, arguments.target, streams.stdout)
                except TeselaError as error:
                    streams.stdout.write(f"{program.name} ({program.size}) from {source}: FAIL\n{error}\n")
                    passed = False
                if not passed:
                    failed.append(f"{program.name} ({source})")
        verdict = f"FAIL: {', '.join(failed)}" if failed else "PASS"
        streams.stdout.write(f"{verdict} in {time.perf_counter() - start:.1f} s\n")
        return 1 if failed else 0

    return guarded("tools/demo", action, streams)


if __name__ == "__main__":
    raise SystemExit(main())
