"""One program through everything: text and back, the interpreter after each pass, and the subject.

The subject is a callable that takes a module and arrays by name, and runs the module's kernel on them. `compiled` makes
the one that matters: compile for a target, run in the simulator of PTX. An `Outcome` says how it went:

- `ok`;
- `undecided`: what the program does depends on a value that is known within bounds only, so there is nothing to
  compare;
- `refused`: the compiler said in an error of its own that it cannot compile this;
- `wrong`: a result is not allowed; `fault`: the simulator found a race, a deadlock or the like, or the GPU an illegal
  access; `crash`: an exception that is no error of ours;
- `reader`: the printed module does not read back as the same; `interpreter`: the interpreter refused the program.

Only the first three are no failures, and `refused` is counted by its message.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...dialects.diagnostics import TeselaError
from ...dialects.parsing import parse_module, print_module
from ...dialects.ptx_program import Instr
from ...dialects.target import get_target
from ...dialects.tile import element_type, shape_of
from ...dialects.verify import verify_module
from ...lowering.pipeline import STAGES
from ...passes import get_pass
from ...passes.base import PassContext
from ...simulator.block_calls import find_kernel, written_arguments
from ...simulator.blocks import run_kernel
from ...simulator.bounds import Interval, allowed_results, check_results
from ...simulator.tile_arithmetic import dtype_named, is_float
from .program import Program, Rendered, render

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

INTERPRETED_STAGES = tuple(stage for stage in STAGES if stage not in ("tile", "ptx-ir"))
"""The stages of the compiler that the block interpreter can run, but for the program itself."""

FAILURES = ("wrong", "fault", "crash", "reader", "interpreter")


@dataclass(slots=True)
class Coverage:
    """What was run: operations with element types and ranks, and instructions, each with how often."""

    operations: dict[str, int] = field(default_factory=dict)
    forms: dict[str, int] = field(default_factory=dict)
    instructions: dict[str, int] = field(default_factory=dict)

    def add(self, other: Coverage) -> None:
        for mine, theirs in zip(self.parts(), other.parts()):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count

    def parts(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        return self.operations, self.forms, self.instructions


Subject = Callable[["ModuleOp", Mapping[str, np.ndarray], Coverage], None]
"""Runs a module's only kernel on arrays, in place, and adds what it used to the coverage. Raises TeselaError: `Refused`
(below) from the compiler."""


@dataclass(slots=True)
class Outcome:
    """`kind` as the module says; `stage` where it happened; `signature` is the same for the same fault of different
    programs."""

    kind: str
    stage: str = ""
    message: str = ""
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    @property
    def signature(self) -> tuple[str, str, str]:
        """The kind, the stage, and the message without names and numbers; of a wrong result only that it is one."""
        text = (
            ""
            if self.kind == "wrong"
            else re.sub(r"<[^>]*>:[\d:]+|'[^']*'|[-\d.]+|%\w+", "#", self.message.split("\n")[0])
        )
        return self.kind, self.stage, text


class CompilerRefused(Exception):
    """The compiler cannot compile the program, and said so."""


def compiled(target: str, device: str = "sim") -> Subject:
    """The program compiled for `target`, run in the simulator of PTX, or on a GPU (`device` 'cuda')."""

    def run(module: ModuleOp, arrays: Mapping[str, np.ndarray], coverage: Coverage) -> None:
        from ...runtime.compile import compile

        try:
            kernel = compile(module, target, cached=False)
            variant = kernel.variant(**arrays)
        except TeselaError as error:
            raise CompilerRefused(str(error)) from error
        for item in variant.program().entries[0].body:
            if isinstance(item, Instr):
                coverage.instructions[item.opcode] = coverage.instructions.get(item.opcode, 0) + 1
        kernel(**arrays, device=device)

    return run


# --- Arrays ---

SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -2.5, 65504.0, 1e-7, 3.0)


def fill(data: str, element: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """`data`: 'small' integers from -4 to 4, 'normal' numbers, 'bits' of any pattern, 'special' values. Integers have
    small ones for 'normal' and the ends of their range for 'special'."""
    dtype = dtype_named(element)
    if element == "i1":
        return rng.random(shape) < 0.5
    if data == "bits":
        return rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(shape)
    with np.errstate(all="ignore"):
        if is_float(dtype):
            if data == "small":
                return rng.integers(-4, 5, shape).astype(dtype)
            return (rng.standard_normal(shape) if data == "normal" else rng.choice(SPECIAL, shape)).astype(dtype)
        if data == "special":
            info = np.iinfo(dtype)
            return rng.choice(np.array([info.min, info.max, 0, 1, -1, info.min + 1, 7]).astype(dtype), shape)
        return rng.integers(-4, 5, shape).astype(dtype)


def make_arrays(program: Program, rendered: Rendered) -> dict[str, np.ndarray]:
    """The arrays of a call, the same for the same program."""
    ruler = (*program.grid, *program.trips)
    arrays = {"ruler": np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), ruler, [0] * len(ruler))}
    for position, array in enumerate(program.arrays):
        if array.own or f"%{array.name}:" not in rendered.text:
            continue
        rng = np.random.default_rng([program.seed & 0xFFFFFFFF, position])
        shape = array.shape
        if array.view == "transposed":
            arrays[array.name] = fill(array.data, array.element, shape[::-1], rng).T
        elif array.view == "sliced":
            wide = fill(array.data, array.element, tuple(2 * extent for extent in shape), rng)
            arrays[array.name] = wide[tuple(slice(1, None, 2) for _ in shape)]
        elif array.view == "repeated":
            arrays[array.name] = np.broadcast_to(fill(array.data, array.element, (1, *shape[1:]), rng), shape)
        else:
            arrays[array.name] = fill(array.data, array.element, shape, rng)
    for position, output in enumerate(rendered.outputs):
        rng = np.random.default_rng([program.seed & 0xFFFFFFFF, 1000 + position])
        arrays[output.name] = fill("small", output.element, output.shape, rng)
    return arrays


def fresh(arrays: Mapping[str, np.ndarray], outputs: Mapping[str, object]) -> dict[str, np.ndarray]:
    """The same arrays, with copies of those in `outputs`."""
    return {name: array.copy() if name in outputs else array for name, array in arrays.items()}


# --- Checking ---


def check(program: Program, subject: Subject | None, target: str = "sm_90a") -> Outcome:
    """Run a program through everything; without a subject the compiler's passes are left out."""
    rendered = render(program)
    arrays = make_arrays(program, rendered)
    return check_module(rendered.text, arrays, subject, target)


def check_module(
    text: str, arrays: Mapping[str, np.ndarray], subject: Subject | None, target: str = "sm_90a"
) -> Outcome:
    """The same for a module's text with one kernel, and its arrays. What it prints is not shown: blocks print in any order."""
    with contextlib.redirect_stdout(io.StringIO()):
        return _check_module(text, arrays, subject, target)


def _check_module(text: str, arrays: Mapping[str, np.ndarray], subject: Subject | None, target: str) -> Outcome:
    coverage = Coverage()

    def outcome(kind: str, stage: str, message: str = "") -> Outcome:
        return Outcome(kind, stage, message, coverage)

    try:
        module = parse_module(text)
        verify_module(module)
        printed = print_module(module)
        again = parse_module(printed)
        verify_module(again)
        if print_module(again) != printed:
            return outcome("reader", "text", "the printed module reads back as another")
    except TeselaError as error:
        return outcome("reader", "text", str(error))
    count_operations(module, coverage)
    lowered: dict[str, ModuleOp] = {}
    if subject is not None:
        # Compiling first: what cannot be compiled need not be run.
        context, step = PassContext(get_target(target)), module
        for stage in INTERPRETED_STAGES:
            step = lowered[stage] = step.clone()
            try:
                for name in STAGES[stage]:
                    get_pass(name)().run(step, context)
                    context.emitter.raise_if_errors()
            except TeselaError as error:
                return outcome("refused", stage, str(error))
            except Exception as error:  # noqa: BLE001 -- whatever escapes the compiler is what a fuzzer is for
                return outcome("crash", stage, describe(error))
    try:
        allowed = allowed_results(again, fresh(arrays, arrays_written(again)))
    except TeselaError as error:
        known_within = "known within bounds only" in str(error)
        return outcome("undecided" if known_within else "interpreter", "tile", str(error))
    if subject is None:
        return outcome("ok", "")
    for stage, there in lowered.items():
        results = fresh(arrays, allowed)
        try:
            verify_module(there)
            run_kernel(there, results)
            check_results(results, allowed)
        except TeselaError as error:
            return outcome("wrong", stage, str(error))
    results = fresh(arrays, allowed)
    try:
        subject(module, results, coverage)
    except CompilerRefused as error:
        return outcome("refused", "ptx", str(error))
    except TeselaError as error:
        return outcome("fault", "ptx", str(error))
    except Exception as error:  # noqa: BLE001 -- whatever escapes the compiler is what a fuzzer is for
        return outcome("crash", "ptx", describe(error))
    return _compare(results, allowed, "ptx", coverage)


def arrays_written(module: ModuleOp) -> set[str]:
    return written_arguments(find_kernel(module))


def _compare(
    results: Mapping[str, np.ndarray], allowed: Mapping[str, Interval], stage: str, coverage: Coverage
) -> Outcome:
    try:
        check_results(results, allowed)
    except TeselaError as error:
        return Outcome("wrong", stage, str(error), coverage)
    return Outcome("ok", "", "", coverage)


def describe(error: Exception) -> str:
    """The exception and the innermost places of ours that it came through."""
    frames = [
        f"{frame.filename.rsplit('/tesela/')[-1]}:{frame.name}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} in {frames[-1] if frames else '?'}: {error}\n  by way of {' '.join(frames[-6:])}"


def count_operations(module: ModuleOp, coverage: Coverage) -> None:
    """Adds a module's operations, and each with element type and rank of its first tile or scalar."""
    for op in module.walk():
        coverage.operations[op.name] = coverage.operations.get(op.name, 0) + 1
        kinds = [value.type for value in (*op.results, *op.operands) if not hasattr(value.type, "layout")]
        if kinds and op.name.startswith(("tile.", "arith.", "math.")):
            form = f"{op.name} {element_type(kinds[0])} rank {len(shape_of(kinds[0]))}"
            coverage.forms[form] = coverage.forms.get(form, 0) + 1
