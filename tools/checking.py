"""Running a kernel at whatever level it is, on made-up arguments, and comparing with what its tile program allows.

`Reference` runs a module's kernel once, in the block interpreter with bounds (docs/numbers.md), on arguments made from its contract; `check` runs the
same kernel at any later level, in the block interpreter or, from the ptx level down, in the simulator, on the same arguments. `tesela
check` and `tesela-opt --check-by-running` are built on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dialects.diagnostics import TeselaError
from ..simulator.block_calls import array_arguments, array_shapes, find_kernel, infer_dims, written_arguments
from ..simulator.blocks import run_kernel
from ..simulator.bounds import allowed_results, check_results
from ..simulator.tile_arithmetic import dtype_named, dtype_of, is_float

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..dialects import tile
    from ..dialects.ptx_program import Program
    from ..dialects.target import Target

EXTENTS = (1, 5, 16, 33, 64, 130, 200)
"""Values that a symbolic dimension takes, rounded up to what the kernel states it to be a multiple of."""
MOST_BLOCKS = 300
"""Of a grid, where dimensions that number blocks can be chosen smaller."""
ALIGNMENT = 256
"""Bytes that made-up arrays start at a multiple of."""


class Reference:
    """Arguments for a module's only kernel (or the one called `name`), and what its arrays may hold after it.

    `dims`: values of symbolic dimensions, the others by `seed`; `given`: arrays by name instead of made-up ones. Raises TeselaError where the
    interpreter refuses the program, or the arrays do not fit the contract.
    """

    def __init__(
        self,
        module: ModuleOp,
        name: str | None = None,
        seed: int = 0,
        dims: Mapping[str, int] | None = None,
        given: Mapping[str, np.ndarray] | None = None,
    ):
        from ..runtime.specialize import contract_of

        kernel = find_kernel(module, name)
        self.name = kernel.sym_name.data
        self.contract = contract_of(kernel)
        rng = np.random.default_rng(seed)
        given = dict(given or {})
        known = infer_dims(kernel, given) if given else {}
        self.dims = _choose_dims(kernel, rng, {**known, **(dims or {})})
        self.arrays = {**make_arrays(kernel, self.dims, rng), **given}
        self.scalars = _make_scalars(kernel, rng)
        self.written = written_arguments(kernel)
        self.allowed = allowed_results(kernel, self._fresh(), self.scalars)

    def _fresh(self) -> dict[str, np.ndarray]:
        """The arguments' arrays, with copies of those that are written, strides and alignment kept."""
        return {name: _copy(array) if name in self.written else array for name, array in self.arrays.items()}

    def check(self, module: ModuleOp, program: Program | None = None) -> None:
        """Runs the kernel of `module`, or, at the ptx level, the program (emitted from it if not given). Raises TeselaError, one message for each
        array, with the first element that is not allowed."""
        from ..dialects import ptx

        results = self._fresh()
        lowered = [op for op in module.body.block.ops if isinstance(op, ptx.KernelOp) and op.sym_name.data == self.name]
        if lowered:
            self._simulate(module, lowered[0], program, results)
        else:
            run_kernel(module, results, self.scalars, self.name)
        check_results(results, self.allowed)

    def judged(self, module: ModuleOp, target: Target) -> TeselaError | None:
        """What the simulator reports of the tile-level `module`, compiled whole, on these arguments: races and the like; None if nothing, or
        if it does not compile."""
        from ..dialects import ptx
        from ..lowering.pipeline import PIPELINE
        from ..passes import get_pass
        from ..passes.base import PassContext
        from ..simulator import settings

        step, context = module.clone(), PassContext(target)
        try:
            for name in PIPELINE:
                get_pass(name)().run(step, context)
                context.emitter.raise_if_errors()
        except TeselaError:
            return None
        kernel = next(op for op in step.body.block.ops if isinstance(op, ptx.KernelOp) and op.sym_name.data == self.name)
        try:
            with settings(races=True):
                self._simulate(step, kernel, None, self._fresh())
        except TeselaError as error:
            return error
        return None

    def _simulate(self, module: ModuleOp, kernel: Any, program: Program | None, results: dict[str, np.ndarray]) -> None:
        from ..dialects.ptx_text import print_program
        from ..dialects.target import get_target
        from ..lowering.emit_ptx import emit
        from ..passes import get_pass
        from ..passes.base import PassContext
        from ..runtime.kernel import Kernel
        from ..runtime.launch import Variant

        if kernel.plan is None:
            raise TeselaError.at(kernel, "the kernel has no launch plan, so it cannot be launched")
        if program is None:
            if not any("regs" in op.attributes for op in kernel.walk()):
                module = module.clone()
                get_pass("assign-registers")().run(module, PassContext())
            program = emit(module)
        variant = Variant(None, kernel.plan.data, print_program(program), parsed=program)
        target = get_target(kernel.target.data)
        Kernel(self.contract, lambda facts, target: variant, target)(**results, **self.scalars, device="sim")

    def describe(self) -> str:
        """The dimensions, for messages."""
        return ", ".join(f"{name} = {value}" for name, value in self.dims.items()) or "no dimensions"


def _choose_dims(kernel: tile.KernelOp, rng: np.random.Generator, known: Mapping[str, int]) -> dict[str, int]:
    dims = {}
    for symbol in kernel.symbols():
        divisor = kernel.divisor(symbol)
        extent = int(rng.choice(EXTENTS))
        dims[symbol] = known.get(symbol, -(-extent // divisor) * divisor)
    coordinates = [expr.data for expr in kernel.grid.data]
    if prod(expr.evaluate(dims) for expr in coordinates) > MOST_BLOCKS:
        # Dimensions that only number blocks, batches and heads, show nothing more by being large.
        for symbol in {str(expr) for expr in coordinates} & set(dims) - set(known):
            if kernel.divisor(symbol) == 1:
                dims[symbol] = min(dims[symbol], int(rng.integers(1, 4)))
    if unknown := sorted(set(known) - set(dims)):
        raise TeselaError.at(kernel, f"the kernel has no dimension '{unknown[0]}'", f"its dimensions: {', '.join(dims) or 'none'}")
    return dims


def make_arrays(kernel: tile.KernelOp, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """An array for every array argument, random, laid out and aligned as the contract states."""
    from ..dialects.tile_types import static_strides
    from ..passes.access import argument_align

    arrays = {}
    shapes = array_shapes(kernel, dims)
    for name, (index, kind, _) in array_arguments(kernel).items():
        shape, dtype = shapes[name], dtype_of(kind.element_type)
        multiple = max(1, argument_align(kernel, kernel.args[index]) // dtype.itemsize)
        strides: list[int] = []
        step = 1
        for extent, stride in reversed(list(zip(shape, static_strides(kind)))):
            if stride is None:
                stride = -(-step // multiple) * multiple
            strides.append(stride)
            step = max(step, stride * max(extent, 1))
        arrays[name] = _laid_out(_random(shape, dtype, rng), tuple(reversed(strides)))
    return arrays


def _random(shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    return (rng.standard_normal(shape) if is_float(dtype) else rng.integers(-4, 5, shape)).astype(dtype)


def _laid_out(values: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """The values in an array with these strides (in elements) that starts at a multiple of ALIGNMENT bytes."""
    size = values.itemsize
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(values.shape, strides)) if values.size else 1
    room = np.zeros(span * size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    flat = room[start : start + span * size].view(values.dtype)
    # (as_strided names element types by their text, and types of 8 bits have none that NumPy reads.)
    result: np.ndarray = np.ndarray(values.shape, values.dtype, flat, 0, [stride * size for stride in strides])
    result[...] = values
    return result


def _copy(array: np.ndarray) -> np.ndarray:
    size = array.itemsize
    return _laid_out(array, tuple(stride // size for stride in array.strides)) if array.size else array.copy()


def _make_scalars(kernel: tile.KernelOp, rng: np.random.Generator) -> dict[str, Any]:
    arrays = array_arguments(kernel)
    scalars: dict[str, Any] = {}
    for name, argument in zip(kernel.names, kernel.args):
        if name not in arrays:
            dtype = dtype_named(str(argument.type)) if str(argument.type) != "index" else np.dtype(np.int64)
            value = rng.standard_normal() if is_float(dtype) else rng.integers(0, 2 if dtype == np.bool_ else 5)
            scalars[name] = value.item() if hasattr(value, "item") else value
    return scalars
