"""Tile-level IR from the operations of the kernel language: constants, conversions, broadcasting, arithmetic, comparison.

The builder appends to `block`; each operation it makes gets the place of `node`, the expression that is being evaluated. Constants are made
once for each value and stand at the top of the kernel.

Operations are built with `.create` and cached types: xDSL's constructors cost several times as much (an operation of a kernel is
traced in about 30 µs).
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects import math as math_dialect
from xdsl.dialects.builtin import FileLineColLoc, FloatAttr, IndexType, IntAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from ..dialects import tile
from ..dialects.diagnostics import Diagnostic, Location, TeselaError
from ..dialects.dim_expr import DimExpr
from ..dialects.tile import Predicate
from ..dialects.tile_types import TOO_LARGE_HINT, too_large
from .hints import CLOSE, conversion
from .source import SourceFunction
from .types import Dim, DType, bf16, combine, f8E4M3FN, f8E5M2, f16, f32, f64, i1, i8, i64, index, ui8
from .values import ATTRIBUTES, Value, describe, is_number, number_text, type_text

NO_FASTMATH: dict[str, Attribute] = {"fastmath": arith.FastMathFlagsAttr("none")}
NO_OVERFLOW: dict[str, Attribute] = {"overflowFlags": arith.IntegerOverflowAttr("none")}

FLOAT_BINARY: dict[str, type[Operation]] = {
    "+": arith.AddfOp,
    "-": arith.SubfOp,
    "*": arith.MulfOp,
    "/": arith.DivfOp,
    "maximum": arith.MaximumfOp,
    "minimum": arith.MinimumfOp,
}
INT_BINARY: dict[str, type[Operation]] = {
    "+": arith.AddiOp,
    "-": arith.SubiOp,
    "*": arith.MuliOp,
    "//": arith.FloorDivSIOp,
    "maximum": arith.MaxSIOp,
    "minimum": arith.MinSIOp,
    "&": arith.AndIOp,
    "|": arith.OrIOp,
    "^": arith.XOrIOp,
    "<<": arith.ShLIOp,
    ">>": arith.ShRSIOp,
}
FLOAT_UNARY: dict[str, type[Operation]] = {
    "-": arith.NegfOp,
    "abs": math_dialect.AbsFOp,
    "exp": math_dialect.ExpOp,
    "exp2": math_dialect.Exp2Op,
    "log": math_dialect.LogOp,
    "log2": math_dialect.Log2Op,
    "sqrt": math_dialect.SqrtOp,
    "rsqrt": math_dialect.RsqrtOp,
    "tanh": math_dialect.TanhOp,
    "sin": math_dialect.SinOp,
    "cos": math_dialect.CosOp,
    "floor": math_dialect.FloorOp,
    "ceil": math_dialect.CeilOp,
}
FLOAT_PREDICATES = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
INT_PREDICATES = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}

MOST_BITS = 4096
"""Of a Python integer that is computed when compiling: what a program can write in a moment, and Python would compute for hours."""

PYTHON_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "maximum": lambda a, b: math.nan if a != a or b != b else max(a, b),
    "minimum": lambda a, b: math.nan if a != a or b != b else min(a, b),
}
DIM_OPS = {"+": "+", "-": "-", "*": "*", "//": "floordiv", "%": "mod", "maximum": "max", "minimum": "min"}

LARGEST = {f8E4M3FN: 448.0, f8E5M2: 57344.0, f16: 65504.0, bf16: 3.3895313892515355e38, f32: 3.4028234663852886e38, f64: sys.float_info.max}
"""The largest finite number of each float type (IEEE 754; bf16: 2¹²⁷·(2 − 2⁻⁷); 8 bits: OCP 8-bit Floating Point Specification)."""

MAX_POWER = 16


@lru_cache(maxsize=4096)
def _location(place: Location) -> FileLineColLoc:
    return FileLineColLoc(StringAttr(place.file), IntAttr(place.line), IntAttr(place.column))


def _counted(notes: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The notes, with one for a run of equal ones: a function that calls itself is called at one place, often."""
    found = []
    for note, run in itertools.groupby(notes):
        times = sum(1 for _ in run)
        found.append(note if times == 1 else dataclasses.replace(note, message=f"{note.message}, {times} times"))
    return found


class Builder:
    """See the module. `source` is the function whose text `node` belongs to."""

    def __init__(self, source: SourceFunction, entry: Block, symbols: Sequence[str]):
        self.source = source
        self.node: ast.AST = source.tree
        self.entry = entry
        self.block = entry
        self.calls: list[tuple[SourceFunction, ast.AST]] = []
        """The calls of helper functions that lead to `source`."""
        self._constants: dict[tuple[DType, str], SSAValue] = {}
        self._last_constant: Operation | None = None
        self._symbols = symbols
        self._dims: dict[str, SSAValue] = {}
        self._dims_at = len(entry.args)
        self._locations: dict[tuple[str, int, int], FileLineColLoc] = {}

    # Places and errors

    def error(self, message: str, hint: str | None = None, at: ast.AST | None = None) -> TeselaError:
        """The error at `at`, or at the current expression, with a note for each call of a helper that led there."""
        notes = [
            Diagnostic("note", f"in {callee.name}, called here", caller.place(call))
            for (caller, call), callee in zip(reversed(self.calls), reversed([*(s for s, _ in self.calls[1:]), self.source]))
        ]
        return TeselaError.at(self.source.place(at if at is not None else self.node), message, hint, _counted(notes))

    def location(self, node: ast.AST) -> FileLineColLoc:
        """The location attribute of a node."""
        key = (self.source.file, node.lineno, node.col_offset)  # type: ignore[attr-defined]
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = _location(self.source.place(node))
        return found

    # Emission

    def add(self, op: Operation) -> Operation:
        """Append an operation, at the place of the current expression."""
        op.location = self.location(self.node)
        self.block.add_op(op)
        return op

    def emit(self, op: Operation, dtype: DType, shape: tuple[int, ...] = (), weak: bool = False, nonneg: bool = False) -> Value:
        """Append an operation of one result, and give the result. Raises TeselaError for a tile of too many elements."""
        if reason := too_large(shape):
            raise self.error(reason, TOO_LARGE_HINT)
        return Value(self.add(op).results[0], dtype, shape, weak, nonneg)

    def constant(self, number: Any, dtype: DType) -> Value:
        """A scalar constant. Raises TeselaError for a number that the type does not have."""
        if dtype is ui8 and isinstance(number, int):
            if not 0 <= number <= 255:
                raise self.error(f"the number {number_text(number)} does not fit ui8 (0 … 255)")
            return self.cast(self.constant(number - (number >> 7 << 8), i8), ui8)  # constants are signless
        key = (dtype, number if isinstance(number, int) else repr(number))  # 0.0 and -0.0 are equal
        ssa = self._constants.get(key)
        if ssa is None:
            op = self._constant_op(number, dtype)
            op.location = self.location(self.node)
            if self._last_constant is not None:
                self.entry.insert_op_after(op, self._last_constant)
            elif self.entry.first_op is not None:
                self.entry.insert_op_before(op, self.entry.first_op)
            else:
                self.entry.add_op(op)
            self._last_constant = op
            ssa = self._constants[key] = op.results[0]
        return Value(ssa, dtype, nonneg=dtype is index and number >= 0)

    def _constant_op(self, number: Any, dtype: DType) -> Operation:
        kind = ATTRIBUTES[dtype]
        if dtype.kind == "float":
            if abs(number) > LARGEST[dtype] and (isinstance(number, int) or math.isfinite(number)):
                raise self.error(f"the number {number_text(number)} is past the largest finite {dtype.name}, {LARGEST[dtype]:.6g}")
            number = float(number)
            if not math.isfinite(number):
                return tile.ConstantOp.make(number, kind)
            return arith.ConstantOp.create(result_types=[kind], properties={"value": FloatAttr(number, kind)})  # type: ignore[call-overload]
        if isinstance(number, float):
            raise self.error(f"the float {number} meets {dtype.name}", "write an integer, or convert with x.to(f32)")
        low, high = (0, 1) if dtype is i1 else (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
        if not low <= number <= high:
            raise self.error(f"the number {number_text(number)} does not fit {dtype.name} ({low} … {high})")
        # i1 true is printed and parsed as -1, its signed value.
        attribute = IntegerAttr(-int(number) if dtype is i1 else int(number), kind)  # type: ignore[call-overload]
        op = arith.ConstantOp.create(result_types=[kind], properties={"value": attribute})
        op.results[0].name_hint = f"c{number}" if dtype is index and number >= 0 else None
        return op

    def erase_unused_constants(self) -> None:
        """Erase constants that only discarded attempts have used."""
        for ssa in self._constants.values():
            if not ssa.uses and isinstance(ssa, OpResult):
                ssa.op.detach()
                ssa.op.erase()
        self._constants.clear()

    def check_symbols(self, expr: DimExpr) -> None:
        """TeselaError for a dimension that is not of the kernel's signature."""
        for name in expr.symbols():
            if name not in self._symbols:
                near = difflib.get_close_matches(name, self._symbols, 1, CLOSE)
                hint = f"did you mean {near[0]}? " if near else ""
                raise self.error(
                    f"the dimension {name} is the extent of no argument of the kernel",
                    f"{hint}the signature has {', '.join(self._symbols) or 'none'}",
                )

    def dim(self, dim: Dim) -> Value:
        """The index value of a dimension or an expression of some."""
        self.check_symbols(dim.expr)
        return self._dim_expr(dim.expr)

    def _dim_expr(self, expr: DimExpr) -> Value:
        if expr.op == "int":
            return self.constant(int(expr.value), index)
        if expr.op == "sym":
            name = str(expr.value)
            ssa = self._dims.get(name)
            if ssa is None:
                ssa = self.entry.insert_arg(IndexType(), self._dims_at + len(self._dims))
                ssa.name_hint = name
                ssa.location = self.location(self.node)
                self._dims[name] = ssa
            return Value(ssa, index, nonneg=True)
        left, right = (self._dim_expr(arg) for arg in expr.args)
        match expr.op:
            case "floordiv":
                return self.arithmetic("//", left, right)
            case "mod":
                return self.arithmetic("%", left, right)
            case "ceildiv":
                return self.ceildiv(left, right)
            case "min" | "max":
                return self.arithmetic("minimum" if expr.op == "min" else "maximum", left, right)
            case _:
                return self.arithmetic(expr.op, left, right)

    def used_dims(self) -> list[str]:
        """The dimensions that the finished body reads; the block arguments of the others are erased."""
        for name, ssa in list(self._dims.items()):
            if not ssa.uses:
                self.entry.erase_arg(ssa)  # type: ignore[arg-type]
                del self._dims[name]
        return list(self._dims)

    # Conversions

    def value(self, x: Any, what: str = "the operand") -> Value:
        """`x` as a value of the kernel: a dimension as index, a Python number by its default type (f32, index, i1)."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Dim):
            return self.dim(x)
        if is_number(x):
            return self.constant(x, default_dtype(x))
        raise self.error(f"{what} must be a tile, a scalar or a number, found {describe(x)}")

    def index(self, x: Any, what: str) -> Value:
        """`x` as an index; scalars of integer types are widened."""
        if isinstance(x, int) and not isinstance(x, bool):
            return self.constant(x, index)
        if isinstance(x, Dim):
            return self.dim(x)
        if isinstance(x, Value) and not x.shape and x.dtype.kind in ("int", "index"):
            return self.cast(x, index)
        hint = "index by a tile of places: x[start + tesela.arange(16)]" if isinstance(x, Value) and x.shape else None
        raise self.error(f"{what} must be an index or an integer, found {describe(x)}", hint)

    def cast(self, x: Value, dtype: DType, saturate: bool = False) -> Value:
        """`x` in another element type; `x` itself where it has it."""
        if x.dtype is dtype:
            return Value(x.ssa, dtype, x.shape, nonneg=x.nonneg) if x.weak else x
        if dtype is index and x.shape:
            raise self.error("a tile of index is not in the language", "use i64")
        op = tile.CastOp.make(x.ssa, ATTRIBUTES[dtype], saturate)
        return self.emit(op, dtype, x.shape)

    def of_dtype(self, x: Any, dtype: DType) -> Value:
        """A Python number, dimension or weak value as `dtype`; any other value must have it already."""
        if isinstance(x, Value) and not x.weak:
            if x.dtype is not dtype:
                raise self.error(f"{dtype.name} is required, found {describe(x)}", f"convert it: x.to({dtype.name})")
            return x
        if isinstance(x, Value):
            self._check_weak(x.dtype.kind, dtype, describe(x))
            return self.cast(x, dtype)
        if isinstance(x, Dim):
            if dtype.kind not in ("float", "index"):
                hint = "compare it with a number" if dtype is i1 else f"convert it, where it fits: tesela.{dtype.name}({x})"
                raise self.error(f"{dtype.name} is required, found {describe(x)}, an index", hint)
            return self.cast(self.dim(x), dtype)
        if is_number(x):
            whole = f"write {int(x)}, or " if isinstance(x, float) and x.is_integer() else ""
            self._check_weak(default_dtype(x).kind, dtype, describe(x), whole)
            return self.constant(x, dtype)
        raise self.error(f"{dtype.name} is required, found {describe(x)}")

    def _check_weak(self, kind: str, dtype: DType, what: str, instead: str = "") -> None:
        if kind == "float" and dtype.kind != "float":
            raise self.error(f"{what}, a float, meets {dtype.name}", f"{instead}convert the integer operand: x.to(f32)")
        if (kind == "bool") != (dtype is i1):
            raise self.error(f"{what} meets {dtype.name}", "convert with x.to(…), or compare with a number to get i1")

    def unify(self, a: Any, b: Any, what: str) -> tuple[Value, Value]:
        """Both operands of `what` as values of one type and shape, by the rules of words.py."""
        a, b = self.unify_dtypes(a, b, what)
        if a.shape != b.shape:
            shape = self.common_shape([a, b], what)
            a, b = self.broadcast(a, shape), self.broadcast(b, shape)
        return a, b

    def unify_dtypes(self, a: Any, b: Any, what: str) -> tuple[Value, Value]:
        """Both operands as values of one element type."""
        kinds = {x.dtype.kind for x in (a, b) if isinstance(x, Value) and not x.weak}
        if kinds and "float" not in kinds:
            a, b = (self.dim(x) if isinstance(x, Dim) else x for x in (a, b))
        a_open, b_open = (not isinstance(x, Value) or x.weak for x in (a, b))
        if a_open and b_open:
            defaults = [default_dtype(x) for x in (a, b)]
            weak = any(isinstance(x, Value) for x in (a, b))
            dtype = f32 if f32 in defaults else (index if index in defaults else i1)
            values = [self.of_dtype(x, dtype) for x in (a, b)]
            return tuple(Value(v.ssa, dtype, (), weak, v.nonneg) for v in values)  # type: ignore[return-value]
        if a_open:
            return self.of_dtype(a, b.dtype), b
        if b_open:
            return a, self.of_dtype(b, a.dtype)
        if a.dtype is b.dtype:
            return a, b
        if {a.dtype.kind, b.dtype.kind} == {"index", "int"}:
            wide = i64 if (a if b.dtype is index else b).shape else index
            return self.cast(a, wide), self.cast(b, wide)
        raise self.error(
            f"{what} of {type_text(a.dtype, a.shape)} and {type_text(b.dtype, b.shape)}: the element types differ",
            conversion(a.dtype, b.dtype),
        )

    # Shapes

    def common_shape(self, values: Iterable[Value], what: str) -> tuple[int, ...]:
        """The shape that these broadcast to by NumPy's rule. Raises TeselaError naming all shapes."""
        shapes = [value.shape for value in values]
        rank = max(map(len, shapes))
        result: list[int] = []
        for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes)):
            wide = {extent for extent in extents if extent != 1}
            if len(wide) > 1:
                texts = " and ".join(str(shape) for shape in shapes if shape)
                raise self.error(
                    f"{what}: the shapes {texts} do not broadcast",
                    "aligned at the last dimension, extents must be equal or 1; x[:, None] adds a dimension",
                )
            result.append(wide.pop() if wide else 1)
        return tuple(result)

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        """`x` repeated to `shape`, which it broadcasts to."""
        if x.shape == shape:
            return x
        if not x.shape:
            x = self.cast(x, i64) if x.dtype is index else x  # there are no tiles of index
            return self.emit(tile.FullOp.make(x.ssa, shape), x.dtype, shape)
        while len(x.shape) < len(shape):
            x = self.expand(x, 0)
        return x if x.shape == shape else self.emit(tile.BroadcastOp.make(x.ssa, shape), x.dtype, shape)

    def expand(self, x: Value, axis: int) -> Value:
        """A new dimension of extent 1; a scalar becomes a tile of one element."""
        if not x.shape:
            return self.broadcast(x, (1,))
        return self.emit(tile.ExpandOp.make(x.ssa, axis), x.dtype, (*x.shape[:axis], 1, *x.shape[axis:]))

    # Arithmetic

    def binary(self, op: str, a: Any, b: Any) -> Any:
        """`a op b` of anything the language lets one write there."""
        if is_number(a) and is_number(b):
            return self._python(op, a, b)
        if op == "**":
            return self._power(a, b)
        if op in DIM_OPS and not isinstance(a, Value) and not isinstance(b, Value):
            if all(isinstance(x, Dim) or (isinstance(x, int) and not isinstance(x, bool)) for x in (a, b)):
                return combine(DIM_OPS[op], a, b)
        for x in (a, b):
            if not isinstance(x, Value | Dim) and not is_number(x):
                raise self.error(
                    f"'{op}' takes tiles, scalars and numbers, found {describe(x)}",
                    "load a tile of it first" if type(x).__name__ == "ArrayRef" else None,
                )
        if op in FLOAT_PREDICATES:
            return self.compare(op, *self.unify(a, b, f"'{op}'"))
        return self.arithmetic(op, *self.unify(a, b, f"'{op}'"))

    def _python(self, op: str, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            sizes = abs(a).bit_length(), abs(b).bit_length()
            bits = {"**": (sizes[0] - 1) * b, "<<": sizes[0] + b if a else 0, "*": sum(sizes) - 1 if a and b else 0}.get(op, 0)
            if bits > MOST_BITS:
                raise self.error(f"'{op}' of the Python numbers {number_text(a)} and {number_text(b)} has more than {MOST_BITS} bits")
        try:
            return PYTHON_BINARY[op](a, b)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.error(f"'{op}' of the Python numbers {number_text(a)} and {number_text(b)}: {error}") from None

    def arithmetic(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` of two values of one type and shape."""
        weak = a.weak and b.weak
        if a.dtype.kind == "float":
            cls = FLOAT_BINARY.get(op)
            if cls is None:
                hints = {
                    "//": "write tesela.floor(x / y)",
                    "%": "write x - tesela.floor(x / y) * y",
                }
                raise self.error(f"'{op}' is not defined on {a.dtype.name}", hints.get(op, "convert to an integer type"))
            return self.emit(
                cls.create(operands=[a.ssa, b.ssa], result_types=[a.type], properties=NO_FASTMATH), a.dtype, a.shape, weak
            )
        if a.dtype is ui8:
            raise self.error(f"'{op}' is not defined on ui8", "convert first: x.to(i32)")
        if op == "/":
            raise self.error(f"'/' is not defined on {a.dtype.name}", "write x // y, or convert to a float: x.to(f32) / y")
        if a.dtype is i1 and op not in ("&", "|", "^"):
            raise self.error(f"'{op}' is not defined on i1", "convert first: x.to(i32); for logic use & | ^ ~")
        if op == "%":
            return self._modulo(a, b)
        properties = NO_OVERFLOW if op in ("+", "-", "*", "<<") else {}
        nonneg = a.nonneg and b.nonneg and op not in ("-", "<<", "^")
        cls = arith.DivSIOp if op == "//" and nonneg else INT_BINARY[op]
        result = cls.create(operands=[a.ssa, b.ssa], result_types=[a.type], properties=properties)
        return self.emit(result, a.dtype, a.shape, weak, nonneg)

    def _modulo(self, a: Value, b: Value) -> Value:
        """Python's remainder, which has the sign of the divisor (arith.remsi has the dividend's)."""
        if a.nonneg and b.nonneg:
            op = arith.RemSIOp.create(operands=[a.ssa, b.ssa], result_types=[a.type])
            return self.emit(op, a.dtype, a.shape, nonneg=True)
        quotient = self.arithmetic("//", a, b)
        result = self.arithmetic("-", a, self.arithmetic("*", quotient, b))
        return Value(result.ssa, result.dtype, result.shape, nonneg=b.nonneg)

    def ceildiv(self, a: Value, b: Value) -> Value:
        """The quotient rounded up."""
        if a.dtype.kind not in ("int", "index"):
            raise self.error(f"ceildiv takes integers, found {describe(a)}")
        op = arith.CeilDivSIOp.create(operands=[a.ssa, b.ssa], result_types=[a.type])
        return self.emit(op, a.dtype, a.shape, nonneg=a.nonneg and b.nonneg)

    def _power(self, a: Any, b: Any) -> Value:
        hint = f"an exponent is an integer from 0 to {MAX_POWER}, 0.5 or -0.5, known when compiling; use tesela.exp2(y * tesela.log2(x))"
        x = self.value(a)
        if b == 0.5 or b == -0.5:
            return self.unary("sqrt" if b == 0.5 else "rsqrt", x)
        if not isinstance(b, int) or isinstance(b, bool) or not 0 <= b <= MAX_POWER:
            raise self.error(f"'**' with {describe(b)} as exponent", hint)
        if b == 0:
            return self.broadcast(self.of_dtype(1, x.dtype), x.shape)
        result: Value | None = None
        square = x
        while b:
            if b & 1:
                result = square if result is None else self.arithmetic("*", result, square)
            b >>= 1
            if b:
                square = self.arithmetic("*", square, square)
        assert result is not None
        return result

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` as i1."""
        if a.dtype is i1 and op not in ("==", "!="):
            raise self.error(f"'{op}' is not defined on i1", "convert first: x.to(i32)")
        if a.dtype is ui8 and op not in ("==", "!="):
            raise self.error(f"'{op}' is not defined on ui8", "convert first: x.to(i32)")
        predicates = FLOAT_PREDICATES if a.dtype.kind == "float" else INT_PREDICATES
        return self.emit(tile.CmpOp.make(Predicate(predicates[op]), a.ssa, b.ssa), i1, a.shape)

    def unary(self, op: str, x: Any) -> Any:
        """`-x`, `abs` or a function of one float."""
        if isinstance(x, Dim):
            x = self.dim(x)
        x = self.value(x)
        if x.dtype.kind == "float":
            cls = FLOAT_UNARY[op]
            result = cls.create(operands=[x.ssa], result_types=[x.type], properties=NO_FASTMATH)
            return self.emit(result, x.dtype, x.shape, x.weak)
        if x.dtype is ui8:
            raise self.error(f"{op!r} is not defined on ui8", "convert first: x.to(i32)")
        if x.dtype is not i1 and op == "-":
            zero = self.broadcast(self.constant(0, x.dtype), x.shape)
            return self.arithmetic("-", zero, x)
        if x.dtype is not i1 and op == "abs":
            result = math_dialect.AbsIOp.create(operands=[x.ssa], result_types=[x.type])
            return self.emit(result, x.dtype, x.shape)
        raise self.error(f"{op!r} is not defined on {x.dtype.name}", "convert first: x.to(f32)")

    def invert(self, x: Any) -> Value:
        """`~x`: every bit flipped."""
        x = self.value(x)
        if x.dtype.kind == "float":
            raise self.error(f"'~' is not defined on {x.dtype.name}")
        ones = self.constant(True if x.dtype is i1 else -1, x.dtype)
        return self.arithmetic("^", x, self.broadcast(ones, x.shape))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where the condition holds, else `b`; all of one shape."""
        op = tile.SelectOp.make(condition.ssa, a.ssa, b.ssa)
        return self.emit(op, a.dtype, a.shape, nonneg=a.nonneg and b.nonneg)

    def extents(self, shape: Any, at: ast.AST | None = None) -> tuple[int, ...]:
        """A tile's shape: compile-time integers."""
        items: Sequence[Any] = shape if isinstance(shape, tuple) else (shape,)
        for item in items:
            if not isinstance(item, int) or isinstance(item, bool):
                raise self.error(
                    f"a tile's extents must be known when compiling, found {describe(item)}",
                    "use an integer or a tesela.constexpr parameter; a load past the edge of an array reads zeros",
                    at,
                )
            if item < 1:
                raise self.error(f"a tile's extents must be positive, found {describe(item)}", at=at)
            if reason := too_large((item,)):
                raise self.error(reason, TOO_LARGE_HINT, at)
        return tuple(items)


def default_dtype(x: Any) -> DType:
    """The type of a Python number, a dimension or a value where nothing else decides it."""
    if isinstance(x, Value):
        return x.dtype
    if isinstance(x, bool):
        return i1
    return f32 if isinstance(x, float) else index
