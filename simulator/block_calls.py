"""A call of a kernel in the block interpreter: finding it, and checking arrays and scalars against its contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Operation, SSAValue

from ..dialects import tile
from ..dialects.array_effects import READ, accesses_inside
from ..dialects.diagnostics import TeselaError, location_of
from ..dialects.dim_expr import DimExpr
from ..dialects.tile_types import static_strides
from . import tile_arithmetic as ta
from .contract import array_shape, bind_dims
from .tile_arithmetic import Value, dtype_of


def find_kernel(module: Operation, name: str | None = None) -> tile.KernelOp:
    """The kernel called `name` of a module, or its only one; a kernel is itself. Raises TeselaError where there is no
    such kernel, or several and no name."""
    if isinstance(module, tile.KernelOp):
        return module
    assert isinstance(module, ModuleOp)
    kernels = {op.sym_name.data: op for op in module.walk() if isinstance(op, tile.KernelOp)}
    if name is None and len(kernels) == 1:
        return next(iter(kernels.values()))
    names = ", ".join(f"@{known}" for known in kernels) or "none"
    if name is None:
        raise TeselaError.at(
            module, f"the module must have one kernel to run, found {names}", "name the kernel" if kernels else None
        )
    if name not in kernels:
        raise TeselaError.at(module, f"the module has no kernel @{name}; its kernels: {names}")
    return kernels[name]


def array_arguments(kernel: tile.KernelOp) -> dict[str, tuple[int, MemRefType, tuple[DimExpr, ...]]]:
    """Array arguments by name: index, type, stated shape."""
    arrays = {}
    for index, (name, arg) in enumerate(zip(kernel.names, kernel.args)):
        if isinstance(arg.type, MemRefType):
            arrays[name] = (index, arg.type, kernel.shape_exprs(index) or ())
    return arrays


def infer_dims(kernel: tile.KernelOp, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The values of the kernel's symbolic dimensions for `arrays` (by argument name; outputs may lack if the others
    determine them). Raises TeselaError for a name that is no array argument and for shapes that contradict the
    contract."""
    stated = {name: exprs for name, (_, _, exprs) in array_arguments(kernel).items()}
    check_names(kernel, "array", arrays, stated)
    divisors = {symbol: kernel.divisor(symbol) for symbol in kernel.symbols()}
    return bind_dims(stated, {name: array.shape for name, array in arrays.items()}, divisors, location_of(kernel))


def array_shapes(kernel: tile.KernelOp, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every array argument, by the contract, for given dimensions."""
    return {name: array_shape(exprs, dims) for name, (_, _, exprs) in array_arguments(kernel).items()}


def check_names(kernel: tile.KernelOp, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise TeselaError.at(
            kernel,
            f"kernel @{kernel.sym_name.data} has no {what} argument '{unknown[0]}'",
            f"its {what} arguments: {', '.join(known) or 'none'}",
        )


def written_arguments(kernel: tile.KernelOp) -> set[str]:
    """The names of the array arguments that the kernel stores to."""
    names = dict(zip(kernel.args, kernel.names))
    return {names[array] for array, access in accesses_inside(kernel) if access != READ and array in names}


def bind_array(kernel: tile.KernelOp, name: str, kind: MemRefType, array: np.ndarray, written: bool) -> np.ndarray:
    """The array as the interpreter uses it, checked against the argument's type."""
    dtype = dtype_of(kind.element_type)
    if array.dtype != dtype:
        if not (dtype == ta.BF16 and array.dtype == np.dtype("V2")):  # how NumPy's files hold bf16
            raise TeselaError.at(kernel, f"array '{name}' holds {array.dtype}, but {kind.element_type} is required")
        array = array.view(dtype)
    # An array without elements has no addresses, whatever strides NumPy gives it.
    for axis, wanted in enumerate(static_strides(kind) if array.size else ()):
        if wanted is not None and array.shape[axis] > 1 and array.strides[axis] != wanted * array.itemsize:
            raise TeselaError.at(
                kernel,
                f"dimension {axis} of array '{name}' has a stride of {array.strides[axis] / array.itemsize:g} elements, {kind} requires {wanted}",
            )
    if written:
        if not array.flags.writeable:
            raise TeselaError.at(kernel, f"array '{name}' is stored to, but is read-only")
        if array.size and any(stride == 0 and extent > 1 for stride, extent in zip(array.strides, array.shape)):
            raise TeselaError.at(kernel, f"array '{name}' is stored to, but repeats its elements (a stride of 0)")
    return array


def bind_scalar(kernel: tile.KernelOp, name: str, arg: SSAValue, scalars: Mapping[str, Any]) -> Value:
    if name not in scalars:
        raise TeselaError.at(kernel, f"scalar argument '{name}' of kernel @{kernel.sym_name.data} is missing")
    given, dtype = np.asarray(scalars[name]), dtype_of(arg.type)
    if given.ndim or (ta.is_float(given.dtype) and not ta.is_float(dtype)):
        raise TeselaError.at(kernel, f"scalar argument '{name}' must be {arg.type}, found {scalars[name]!r}")
    if given.dtype == dtype:
        return given
    if not ta.is_float(dtype):
        least, most = (0, 1) if dtype == ta.I1 else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        if not least <= int(given) <= most:
            raise TeselaError.at(
                kernel, f"scalar argument '{name}' must be {arg.type}, but {given} is outside {least} … {most}"
            )
        return np.asarray(int(given), dtype)
    return ta.cast(given.astype(ta.F64), dtype)
