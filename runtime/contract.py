"""A kernel's contract at launch: what its arguments must be, what its dimensions are, how many blocks run. Plain Python, no xDSL.

The contract comes from a `tile.kernel` (`specialize.contract_of`) or from a stored LaunchPlan (`Contract.of_plan`). Every check of a
call is here, and every message about a wrong one: it names the argument, what it was, and what is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..dialects.diagnostics import TeselaError
from ..dialects.dim_expr import DimExpr, DimExprError
from ..dialects.launch_plan import ArrayArg, LaunchPlan, ScalarArg
from .arrays import ELEMENT_TYPES, ArrayView, fits

MAX_GRID = (2**31 - 1, 65535, 65535)
"""Blocks of a grid per coordinate (CUDA C++ Programming Guide, "Compute Capabilities", technical specifications)."""

INTEGER_RANGES = {"i1": (0, 1), "ui8": (0, 255)} | {name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in (("i8", 8), ("i16", 16), ("i32", 32), ("i64", 64), ("index", 64))}
"""The least and the largest value of each integer type."""


@dataclass(frozen=True)
class Contract:
    """`align`, `divisors`: what the program states of arrays (bytes) and of symbolic dimensions, beside the arguments and the grid;
    `flops`, `nbytes`: what it states that a launch amounts to, as expressions of the dimensions, for profiles; '' where it does not."""

    name: str
    args: tuple[ArrayArg | ScalarArg, ...]
    grid: tuple[str, ...]
    align: Mapping[str, int] = field(default_factory=dict)
    divisors: Mapping[str, int] = field(default_factory=dict)
    flops: str = ""
    nbytes: str = ""

    @staticmethod
    def of_plan(plan: LaunchPlan) -> Contract:
        """The contract of one compiled variant: its requirements are what it states."""
        return Contract(
            plan.name,
            plan.args,
            plan.grid,
            {need.arg: need.value for need in plan.requirements if need.kind == "align"},
            {need.arg: need.value for need in plan.requirements if need.kind == "divisible"},
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Argument name -> its position."""
        return {arg.name: position for position, arg in enumerate(self.args)}

    @cached_property
    def shapes(self) -> tuple[tuple[DimExpr, ...] | None, ...]:
        """The stated shape of every argument; None for scalars."""
        return tuple(
            tuple(map(DimExpr.parse, arg.shape)) if isinstance(arg, ArrayArg) else None for arg in self.args
        )

    @cached_property
    def grid_exprs(self) -> tuple[DimExpr, ...]:
        return tuple(map(DimExpr.parse, self.grid))

    @cached_property
    def hazards(self) -> tuple[tuple[int, int], ...]:
        """Pairs of positions of arrays of which at least one is written: those for which overlap matters."""
        arrays = [i for i, arg in enumerate(self.args) if isinstance(arg, ArrayArg)]
        return tuple((i, j) for j in arrays for i in arrays if i < j and (_written(self.args[i]) or _written(self.args[j])))

    @cached_property
    def signature(self) -> str:
        """`gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N])`, as messages show it."""
        texts = [
            f"{arg.name}: {arg.dtype}[{', '.join(arg.shape)}]" if isinstance(arg, ArrayArg) else f"{arg.name}: {arg.dtype}"
            for arg in self.args
        ]
        return f"{self.name}({', '.join(texts)})"

    def error(self, message: str, hint: str | None = None) -> TeselaError:
        """An error about a call of this kernel."""
        return TeselaError.at(None, f"{self.name}: {message}", hint)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], ahead: bool = False) -> list[Any]:
        """The values of a call in the contract's order; None for outputs that were left out.

        Raises TeselaError for too many, unknown, doubled and missing arguments. An array that the kernel only writes may be
        left out (or passed as None); `ahead` of a call scalars may as well, which do not matter yet.
        """
        if len(args) > len(self.args):
            raise self.error(f"{len(args)} arguments were given, but it takes {len(self.args)}", f"it is {self.signature}")
        values = [*args, *([None] * (len(self.args) - len(args)))]
        for name, value in kwargs.items():
            position = self.index.get(name)
            if position is None:
                raise self.error(f"there is no argument '{name}'", f"it is {self.signature}")
            if position < len(args):
                raise self.error(f"argument '{name}' was given twice, by position and by name")
            values[position] = value
        for i, (arg, value) in enumerate(zip(self.args, values)):
            if value is None and not (arg.access == "w" if isinstance(arg, ArrayArg) else ahead):
                why = "only arrays that the kernel writes and does not read may be left out"
                what = "None" if i < len(args) or arg.name in kwargs else "missing"
                raise self.error(f"argument '{arg.name}' is {what}", f"it is {self.signature}; {why}")
        return values

    def solve(self, views: Sequence[ArrayView | None]) -> dict[str, int]:
        """The symbolic dimensions' values, from the arrays that were given (None: a scalar, or left out).

        Raises TeselaError for a wrong element type, rank, extent or stride, for a read-only array that is written, for
        extents that contradict each other, and for a dimension that is not divisible as the program states.
        """
        dims: dict[str, int] = {}
        origin: dict[str, str] = {}
        for arg, exprs, seen in zip(self.args, self.shapes, views):
            if seen is None or exprs is None or not isinstance(arg, ArrayArg):
                continue
            self._check_array(arg, seen)
            for axis, (expr, extent) in enumerate(zip(exprs, seen.shape)):
                if expr.op != "sym":
                    continue
                symbol = str(expr.value)
                if symbol not in dims:
                    dims[symbol], origin[symbol] = extent, arg.name
                elif dims[symbol] != extent:
                    raise self._contradiction(arg, axis, symbol, extent, origin[symbol], dims[symbol], views)
        for arg, exprs, seen in zip(self.args, self.shapes, views):
            if seen is None or exprs is None:
                continue
            for axis, (expr, extent) in enumerate(zip(exprs, seen.shape)):
                if expr.op == "sym":
                    continue
                required = self._evaluate(expr, dims, f"the extent of {arg.name} in dimension {axis}")
                if extent != required:
                    equation = f"{required}" if expr.op == "int" else f"{expr} = {required}"
                    raise self.error(
                        f"{arg.name} has extent {extent} in dimension {axis}, but {equation} is required", self._given(views)
                    )
        for symbol, divisor in self.divisors.items():
            if symbol in dims and dims[symbol] % divisor:
                raise self.error(
                    f"{symbol} = {dims[symbol]} (of {origin[symbol]}), but a multiple of {divisor} is required",
                    "the program states it; pad the array, or take the statement out",
                )
        return dims

    def output_shape(self, position: int, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an output that was left out. Raises TeselaError where its dimensions follow from no other argument."""
        arg, exprs = self.args[position], self.shapes[position]
        assert exprs is not None
        for expr in exprs:
            for symbol in expr.symbols():
                if symbol not in dims:
                    raise self.error(
                        f"argument '{arg.name}' cannot be left out: {symbol} is the extent of no array that was given",
                        f"it is {self.signature}",
                    )
        return tuple(self._evaluate(expr, dims, f"the extent of {arg.name}") for expr in exprs)

    def blocks(self, dims: Mapping[str, int]) -> tuple[int, int, int]:
        """The logical grid, padded with ones. Raises TeselaError where a coordinate is negative or too large to launch."""
        counts = [self._evaluate(expr, dims, "the grid") for expr in self.grid_exprs]
        for axis, (expr, count, limit) in enumerate(zip(self.grid, counts, MAX_GRID)):
            if not 0 <= count <= limit:
                given = ", ".join(f"{name} = {value}" for name, value in dims.items())
                raise self.error(f"the grid's coordinate {axis} is {expr} = {count}, but 0 to {limit} is required", f"with {given}")
        x, y, z = [*counts, 1, 1][:3]
        return x, y, z

    def amounts(self, dims: Mapping[str, int]) -> tuple[int | None, int | None]:
        """The FLOPs and the bytes that the program states for a launch; None where it states none."""
        flops, nbytes = (
            self._evaluate(DimExpr.parse(text), dims, "what it states of a launch") if text else None for text in (self.flops, self.nbytes)
        )
        return flops, nbytes

    def check_noalias(self, overlaps: Sequence[tuple[int, int]]) -> None:
        """Raises TeselaError where two arrays overlap and the program promises for one of them that it does not."""
        for first, second in overlaps:
            for position, other in ((first, second), (second, first)):
                arg = self.args[position]
                if isinstance(arg, ArrayArg) and arg.noalias:
                    raise self.error(
                        f"{arg.name} overlaps {self.args[other].name} in memory, but the program states that it is noalias",
                        "pass a copy, or take the statement out",
                    )

    def check_alignment(self, views: Sequence[ArrayView | None]) -> None:
        """Raises TeselaError where an array lacks the alignment that its elements need or the program states, at the address that the kernel
        gets."""
        for arg, seen in zip(self.args, views):
            if seen is None or not isinstance(arg, ArrayArg) or 0 in seen.shape:
                continue
            if seen.address % seen.itemsize:
                raise self.error(
                    f"{arg.name} starts at an address that is {seen.address % seen.itemsize} modulo {seen.itemsize}, but its elements have "
                    f"{seen.itemsize} bytes",
                    "a GPU reads elements at multiples of their size only; pass a copy",
                )
            align = self.align.get(arg.name, 1)
            if seen.address % align:
                raise self.error(
                    f"{arg.name} starts at an address that is {seen.address % align} modulo {align}, but a multiple of {align} is required",
                    "the program states it (align); pass a copy, or take the statement out (`tesela compile` states it, unless told `--assume nothing`)",
                )
            for axis, (required, stride, extent) in enumerate(zip(arg.strides, seen.strides, seen.shape)):
                if required != 1 and extent > 1 and stride * seen.itemsize % align:
                    raise self.error(
                        f"{arg.name} has a stride of {stride * seen.itemsize} bytes in dimension {axis}, but a multiple of {align} is required",
                        "the program states it (align); pad the rows, or take the statement out (`tesela compile` states it, unless told `--assume nothing`)",
                    )

    def check_scalar(self, position: int, value: Any) -> float:
        """The value of a scalar argument as a plain int or float. Raises TeselaError for a wrong type or an integer out of range."""
        arg = self.args[position]
        if isinstance(value, np.generic) or (hasattr(value, "item") and getattr(value, "shape", None) == ()):
            value = value.item()
        if not isinstance(value, int | float):
            raise self.error(f"{arg.name} is a {type(value).__name__}, but a number is required ({arg.dtype})")
        range_ = INTEGER_RANGES.get(arg.dtype)
        if range_ is None:
            try:
                return float(value)
            except OverflowError:
                raise self.error(f"{arg.name} is an integer of {value.bit_length()} bits, which no float holds ({arg.dtype})") from None
        if isinstance(value, float):
            raise self.error(f"{arg.name} = {value} is a float, but an integer is required ({arg.dtype})")
        low, high = range_
        if not low <= value <= high:
            raise self.error(f"{arg.name} = {value} does not fit {arg.dtype}, which holds {low} to {high}")
        return int(value)

    def _check_array(self, arg: ArrayArg, seen: ArrayView) -> None:
        if not fits(seen.dtype, arg.dtype):
            hint = f"convert it to {ELEMENT_TYPES[arg.dtype].name}" if arg.dtype in ELEMENT_TYPES else None
            raise self.error(f"{arg.name} has element type {seen.dtype}, but {arg.dtype} is required", hint)
        if len(seen.shape) != len(arg.shape):
            raise self.error(
                f"{arg.name} has {_count(len(seen.shape), 'dimension')} {_shape(seen.shape)}, but {len(arg.shape)} [{', '.join(arg.shape)}] "
                f"{'is' if len(arg.shape) == 1 else 'are'} required"
            )
        if "w" in arg.access and seen.readonly:
            raise self.error(f"{arg.name} is read-only, but the kernel writes it", "pass a writable copy")
        if 0 in seen.shape:
            return
        for axis, (required, stride, extent) in enumerate(zip(arg.strides, seen.strides, seen.shape)):
            if required is not None and stride != required and extent != 1:
                raise self.error(
                    f"{arg.name} has stride {stride} in dimension {axis}, but {required} is required (in elements)",
                    "pass a contiguous copy, or leave that stride open in the signature: None in strides(…), in IR '?'",
                )
        if "w" in arg.access and (axis := _repeated(seen)) is not None:
            raise self.error(
                f"{arg.name} has stride 0 in dimension {axis} of extent {seen.shape[axis]}: its elements share memory, but the kernel writes them",
                "pass an array of its own memory",
            )
        if "w" in arg.access and _overlaps(seen):
            raise self.error(
                f"{arg.name} has strides {_shape(seen.strides)} for extents {_shape(seen.shape)}: elements share memory, but the kernel writes them",
                "pass an array of its own memory",
            )

    def _contradiction(
        self, arg: ArrayArg, axis: int, symbol: str, extent: int, first: str, other: int, views: Sequence[ArrayView | None]
    ) -> TeselaError:
        message = f"{arg.name} has {symbol} = {extent}, but {first} has {symbol} = {other}"
        if arg.name == first:
            message = f"{arg.name} has {symbol} = {other} and {symbol} = {extent} (dimension {axis}), but they must be equal"
        return self.error(message, self._given(views))

    def _given(self, views: Sequence[ArrayView | None]) -> str:
        texts = [
            f"{arg.name}[{', '.join(arg.shape)}] is {_shape(seen.shape)}"
            for arg, seen in zip(self.args, views)
            if seen is not None and isinstance(arg, ArrayArg)
        ]
        return "; ".join(texts)

    def _evaluate(self, expr: DimExpr, dims: Mapping[str, int], what: str) -> int:
        try:
            return expr.evaluate(dims)
        except DimExprError as error:
            raise self.error(f"{what} is {expr}: {error}") from None


def overlapping(contract: Contract, spans: Sequence[tuple[int, int] | None]) -> list[tuple[int, int]]:
    """Pairs of positions whose bytes [first, end) overlap, at least one of them written."""
    pairs: list[tuple[int, int]] = []
    for first, second in contract.hazards:
        a, b = spans[first], spans[second]
        if a is not None and b is not None and a[0] < a[1] and b[0] < b[1] and a[0] < b[1] and b[0] < a[1]:
            pairs.append((first, second))
    return pairs


def _written(arg: ArrayArg | ScalarArg) -> bool:
    return isinstance(arg, ArrayArg) and "w" in arg.access


def _repeated(seen: ArrayView) -> int | None:
    """A dimension along which elements repeat in memory (stride 0), or None."""
    for axis, (stride, extent) in enumerate(zip(seen.strides, seen.shape)):
        if stride == 0 and extent > 1:
            return axis
    return None


MOST_COUNTED = 1 << 20
"""Elements whose places are looked at one by one, where strides do not tell."""


def _overlaps(seen: ArrayView) -> bool:
    """Whether two elements of an array without strides of 0 share memory. An array of more than MOST_COUNTED elements whose strides leave it open is taken to."""
    reach = 0  # elements between the first and the last along the dimensions of smaller strides
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(seen.strides, seen.shape) if extent > 1):
        if stride <= reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    if prod(seen.shape) > MOST_COUNTED:
        return True
    places = np.zeros((), np.int64)
    for stride, extent in zip(seen.strides, seen.shape):
        places = np.add.outer(places, stride * np.arange(extent))
    return len(np.unique(places)) < places.size


def _shape(shape: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
