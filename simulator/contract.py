"""A kernel's contract at a call: the values of its symbolic dimensions, and the shapes of arrays left out.

Plain Python on `DimExpr`s, so that it serves the interpreter and a launcher alike. For a kernel with `A: M×K`, `B:
N×K`, `C: M×N`:

>>> from tesela.dialects.dim_expr import DimExpr
>>> shapes = {name: tuple(map(DimExpr.parse, text.split())) for name, text in {"A": "M K", "B": "N K", "C": "M N"}.items()}
>>> dims = bind_dims(shapes, {"A": (3, 5), "B": (4, 5)})
>>> dims, array_shape(shapes["C"], dims)
({'M': 3, 'K': 5, 'N': 4}, (3, 4))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dialects.diagnostics import Diagnostic, Location, TeselaError
from ..dialects.dim_expr import DimExpr, DimExprError


def bind_dims(
    stated: Mapping[str, Sequence[DimExpr]],
    given: Mapping[str, Sequence[int]],
    divisors: Mapping[str, int] | None = None,
    at: Location | None = None,
) -> dict[str, int]:
    """The symbolic dimensions' values. `stated`: the contract's shape of each array argument; `given`: the shapes of
    those that the caller provided; `divisors`: what a dimension is stated to be a multiple of. Raises one TeselaError
    with every disagreement: a wrong rank, an extent that differs from another argument's or from a stated expression, a
    dimension that no provided array has, a wrong divisor."""
    dims: dict[str, int] = {}
    source: dict[str, str] = {}
    errors: list[Diagnostic] = []

    def error(message: str, hint: str | None = None) -> None:
        errors.append(Diagnostic("error", message, at, hint))

    for name, shape in given.items():
        exprs = stated[name]
        if len(exprs) != len(shape):
            error(f"argument '{name}' has {len(shape)} dimensions, but the kernel states {_shape_text(exprs)}")
            continue
        for axis, (expr, extent) in enumerate(zip(exprs, shape)):
            if expr.op != "sym":
                continue
            symbol = str(expr.value)
            place = f"dimension {axis} of '{name}'"
            if dims.setdefault(symbol, extent) != extent:
                error(
                    f"{place} is {extent}, but {symbol} is {dims[symbol]} by {source[symbol]}",
                    f"the kernel states '{name}' as {_shape_text(exprs)}",
                )
            source.setdefault(symbol, place)
    if not errors:
        for name, shape in given.items():
            for axis, (expr, extent) in enumerate(zip(stated[name], shape)):
                wanted = _evaluate(expr, dims, errors, at)
                if wanted is not None and wanted != extent:
                    error(f"dimension {axis} of '{name}' is {extent}, but {expr} = {wanted} is required")
        needed = {symbol for exprs in stated.values() for expr in exprs for symbol in expr.symbols()}
        for symbol in sorted(needed - set(dims)):
            holders = [
                name for name, exprs in stated.items() if any(e.op == "sym" and e.value == symbol for e in exprs)
            ]
            error(
                f"dimension {symbol} is not known",
                f"pass one of the arrays that have it: {', '.join(holders) or 'none does'}",
            )
    for symbol, divisor in (divisors or {}).items():
        if dims.get(symbol, 0) % divisor:
            error(f"{symbol} = {dims[symbol]} must be a multiple of {divisor}")
    if errors:
        # One fault can be found twice, in each array that shows it.
        raise TeselaError({(e.message, e.hint): e for e in errors}.values())
    return dims


def array_shape(exprs: Sequence[DimExpr], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an array stated as `exprs`, for one the caller did not provide. Raises TeselaError for a negative
    extent or a dimension that cannot be evaluated."""
    errors: list[Diagnostic] = []
    shape = tuple(_evaluate(expr, dims, errors, None) for expr in exprs)
    for expr, extent in zip(exprs, shape):
        if extent is not None and extent < 0:
            errors.append(Diagnostic("error", f"the extent {expr} is {extent}, it cannot be negative"))
    if errors:
        raise TeselaError(errors)
    return tuple(extent for extent in shape if extent is not None)


def grid_shape(exprs: Sequence[DimExpr], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The logical grid's extents, in the order that the kernel states them; an extent below 0 counts as 0.
    Raises TeselaError where one cannot be evaluated."""
    errors: list[Diagnostic] = []
    extents = [_evaluate(expr, dims, errors, None) for expr in exprs]
    if errors:
        raise TeselaError(errors)
    return tuple(max(extent or 0, 0) for extent in extents)


def _evaluate(expr: DimExpr, dims: Mapping[str, int], errors: list[Diagnostic], at: Location | None) -> int | None:
    """The value; None with a diagnostic in `errors`, or None where a symbol is unknown, which is reported by itself."""
    if any(symbol not in dims for symbol in expr.symbols()):
        return None
    try:
        return expr.evaluate(dims)
    except DimExprError as failure:
        errors.append(Diagnostic("error", str(failure), at))
        return None


def _shape_text(exprs: Sequence[DimExpr]) -> str:
    return f"[{', '.join(map(str, exprs))}]"
