"""The meaning of each operation that only computes, one row each; `blocks.py` runs programs of them.

`MEANINGS` maps an operation's name to a function that takes the operation once, when a program is decoded, and returns
the function from operand values to the result's value. What an operation refuses at run time it raises as `Refused`;
the interpreter adds the place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Operation

from ..dialects import tile
from ..dialects.tile import element_type, shape_of
from . import tile_arithmetic as ta
from .tile_arithmetic import Value, cast, dtype_of, in_f32

Function = Callable[..., Value]
Meaning = Callable[[Operation], Function]


class Refused(Exception):
    """A program did something that has no meaning; the message says what, and the hint what to do."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.message, self.hint = message, hint


def _not_zero(function: Function, what: str) -> Function:
    """`function` with a check of its divisor (N23)."""

    def checked(a: Value, b: Value) -> Value:
        if not np.all(b):
            raise Refused(f"{what} by zero", "select another divisor before dividing where it may be zero")
        return function(a, b)

    return checked


def _signed_remainder(a: Value, b: Value) -> Value:
    return np.asarray(np.fmod(a, b))


_FLOATS: dict[type[Operation], Function] = {
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    arith.NegfOp: np.negative,
    arith.MaximumfOp: ta.maximum,
    arith.MinimumfOp: ta.minimum,
    arith.MaxnumfOp: ta.maximum_number,
    arith.MinnumfOp: ta.minimum_number,
    math.SqrtOp: np.sqrt,
    math.AbsFOp: np.abs,
    math.CeilOp: np.ceil,
    math.FloorOp: np.floor,
    math.FmaOp: ta.fma,
}
"""Operations on f32 and f64, and on 16-bit floats by way of f32 (N8)."""

_APPROXIMATED: dict[type[Operation], Function] = {
    math.ExpOp: ta.exp,
    math.Exp2Op: ta.exp2,
    math.LogOp: ta.log,
    math.Log2Op: ta.log2,
    math.RsqrtOp: ta.rsqrt,
    math.TanhOp: ta.tanh,
    math.SinOp: ta.sin,
    math.CosOp: ta.cos,
}
"""Operations on f32 and 16-bit floats that the machine approximates (N14 to N20)."""

_INTEGERS: dict[type[Operation], Function] = {
    arith.AddiOp: np.add,
    arith.SubiOp: np.subtract,
    arith.MuliOp: np.multiply,
    arith.DivSIOp: _not_zero(ta.divide, "division"),
    arith.DivUIOp: _not_zero(ta.on_unsigned(np.floor_divide), "division"),
    arith.RemSIOp: _not_zero(_signed_remainder, "remainder of a division"),
    arith.RemUIOp: _not_zero(ta.on_unsigned(np.remainder), "remainder of a division"),
    arith.FloorDivSIOp: _not_zero(np.floor_divide, "division"),
    arith.CeilDivSIOp: _not_zero(ta.divide_up, "division"),
    arith.CeilDivUIOp: _not_zero(ta.on_unsigned(ta.divide_up_unsigned), "division"),
    arith.ShLIOp: ta.shift_left,
    arith.ShRUIOp: ta.shift_right,
    arith.ShRSIOp: ta.shift_right_signed,
    arith.MaxSIOp: np.maximum,
    arith.MinSIOp: np.minimum,
    arith.MaxUIOp: ta.on_unsigned(np.maximum),
    arith.MinUIOp: ta.on_unsigned(np.minimum),
    math.AbsIOp: np.abs,
}

_BITWISE: dict[type[Operation], Function] = {
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
}
"""The only arithmetic that i1 takes (N25)."""

_ARITH_PREDICATES = {
    arith.CmpiOp: ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"),
    arith.CmpfOp: (
        "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
    ),
}  # fmt: skip
"""The predicates of arith by their number (MLIR, arith dialect)."""


def _operand_type(op: Operation) -> np.dtype:
    return dtype_of(element_type(op.operands[0].type))


def _float_meaning(function: Function) -> Meaning:
    def decode(op: Operation) -> Function:
        return in_f32(function) if ta.is_narrow(_operand_type(op)) else function

    return decode


def _approximated_meaning(function: Function) -> Meaning:
    def decode(op: Operation) -> Function:
        if _operand_type(op) == ta.F64:
            raise Refused(f"'{op.name}' is not defined on f64", "cast the operand to f32")
        return function

    return decode


def _integer_meaning(function: Function) -> Meaning:
    def decode(op: Operation) -> Function:
        if _operand_type(op) == ta.I1:
            raise Refused(f"'{op.name}' is not defined on i1", "cast the operands to i32")
        return function

    return decode


def _constant(op: Operation) -> Function:
    assert isinstance(op, arith.ConstantOp)
    kind, value = op.result.type, op.value
    dtype = dtype_of(element_type(kind))
    if isinstance(value, FloatAttr):
        held = cast(np.asarray(value.value.data, ta.F64), dtype)
    elif isinstance(value, IntegerAttr):
        held = _integers([value.value.data], dtype).reshape(())
    elif isinstance(value, DenseIntOrFPElementsAttr):
        values = list(value.get_values())
        flat = cast(np.asarray(values, ta.F64), dtype) if ta.is_float(dtype) else _integers(values, dtype)
        held = flat.reshape(shape_of(kind)) if flat.size > 1 else np.broadcast_to(flat.reshape(()), shape_of(kind))
    else:
        raise Refused(f"a constant holds a number or dense<…> numbers, found {value}")
    return lambda: held


def _integers(values: list[int], dtype: np.dtype) -> Value:
    """Integers as MLIR writes them, signed or not, in `dtype`."""
    if dtype == ta.I1:
        return np.asarray([value & 1 for value in values], dtype)
    bits = 8 * dtype.itemsize
    return np.asarray([(value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for value in values], dtype)


def _nonfinite_constant(op: Operation) -> Function:
    assert isinstance(op, tile.ConstantOp)
    held = np.asarray(op.number, ta.F64).astype(dtype_of(op.res.type))
    return lambda: held


def _arith_compare(op: Operation) -> Function:
    assert isinstance(op, arith.CmpiOp | arith.CmpfOp)
    if isinstance(op.lhs.type, tile.TensorType):
        raise Refused(f"'{op.name}' compares scalars only", "compare tiles with tile.cmp")
    name = _ARITH_PREDICATES[type(op)][op.predicate.value.data]
    if isinstance(op, arith.CmpiOp):
        if name.startswith("u"):
            return lambda a, b: ta.compare("s" + name[1:], ta.unsigned(a), ta.unsigned(b))
    elif name in ("true", "false"):
        return lambda a, b: np.asarray(name == "true")
    elif name in ("ord", "uno"):
        return lambda a, b: np.asarray((np.isnan(a) | np.isnan(b)) == (name == "uno"))
    return lambda a, b: ta.compare(name, a, b)


def _compare(op: Operation) -> Function:
    assert isinstance(op, tile.CmpOp)
    name = op.predicate.data.value
    return lambda a, b: ta.compare(name, a, b)


def _select(op: Operation) -> Function:
    return lambda condition, a, b: np.where(condition, a, b)


def _cast(op: Operation) -> Function:
    assert isinstance(op, tile.CastOp)
    dtype, saturate = dtype_of(element_type(op.res.type)), op.saturate is not None
    return lambda x: cast(x, dtype, saturate)


def _index_cast(op: Operation) -> Function:
    dtype = dtype_of(element_type(op.results[0].type))
    return lambda x: cast(x, dtype)


def _reduce(op: Operation) -> Function:
    assert isinstance(op, tile.ReduceOp)
    kind, axis = op.kind.data.value, op.axis.value.data
    if _operand_type(op) == ta.I1:
        raise Refused("tile.reduce is not defined on i1", "cast the tile to i32")
    return lambda x: ta.reduce(kind, x, axis)


def _scan(op: Operation) -> Function:
    assert isinstance(op, tile.ScanOp) and op.kind is not None
    kind, axis, exclusive = op.kind.data.value, op.axis.value.data, op.exclusive is not None
    if op.reverse is not None:
        return lambda x: np.flip(ta.scan(kind, np.flip(x, axis), axis, exclusive), axis)
    return lambda x: ta.scan(kind, x, axis, exclusive)


_ACCUMULATORS = {
    "f16": ("f32", "f16"), "bf16": ("f32",), "f32": ("f32",), "f64": ("f64",), "i8": ("i32",), "ui8": ("i32",),
    "f8E4M3FN": ("f32", "f16"), "f8E5M2": ("f32", "f16"),
}  # fmt: skip


def check_dot(op: Operation, operand: object, accumulator: object) -> None:
    """Raise Refused for element types that N37 does not define."""
    if str(accumulator) not in _ACCUMULATORS.get(str(operand), ()):
        raise Refused(
            f"'{op.name}' of {operand} with an accumulator of {accumulator} is not defined",
            "; ".join(f"{kind} takes {' or '.join(wide)}" for kind, wide in _ACCUMULATORS.items()),
        )


def dot_precision(op: Operation) -> str | None:
    """The attribute `precision` of a dot."""
    stated = op.attributes.get("precision")
    return stated.data if isinstance(stated, StringAttr) else None


def _dot(op: Operation) -> Function:
    check_dot(op, element_type(op.operands[0].type), element_type(op.operands[2].type))
    precision = dot_precision(op)
    return lambda a, b, acc: ta.dot(a, b, acc, precision)


def _assume(op: Operation) -> Function:
    assert isinstance(op, tile.AssumeOp)

    def checked(x: Value) -> Value:
        if (reason := op.violated_by(int(x))) is not None:
            raise Refused(f"an assumption does not hold: {reason}")
        return x

    return checked


def _histogram(op: Operation) -> Function:
    (bins,) = shape_of(op.results[0].type)
    return lambda x: np.bincount(x[(x >= 0) & (x < bins)], minlength=bins).astype(np.int32)


def _gather(op: Operation) -> Function:
    assert isinstance(op, tile.GatherOp)
    axis, extent = op.along, shape_of(op.source.type)[op.along]

    def gather(x: Value, index: Value) -> Value:
        inside = (index >= 0) & (index < extent)
        return np.where(inside, np.take_along_axis(x, np.where(inside, index, 0), axis), np.zeros((), x.dtype))

    return gather


def _join(op: Operation) -> Function:
    return lambda a, b: np.stack([a, b], axis=-1)


def _transpose(op: Operation) -> Function:
    assert isinstance(op, tile.TransposeOp)
    order = op.order
    return lambda x: x.transpose(order)


def _to_shape(function: Callable[[Value, tuple[int, ...]], Value]) -> Meaning:
    def decode(op: Operation) -> Function:
        shape = shape_of(op.results[0].type)
        return lambda x: function(x, shape)

    return decode


def _iota(op: Operation) -> Function:
    assert isinstance(op, tile.IotaOp)
    shape, axis = shape_of(op.res.type), op.axis.value.data
    line = np.arange(shape[axis], dtype=dtype_of(element_type(op.res.type)))
    held = np.broadcast_to(line.reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape)
    return lambda: held


def _same(op: Operation) -> Function:
    return lambda x: x


MEANINGS: dict[str, Meaning] = {
    **{op.name: _float_meaning(function) for op, function in _FLOATS.items()},
    **{op.name: _approximated_meaning(function) for op, function in _APPROXIMATED.items()},
    **{op.name: _integer_meaning(function) for op, function in _INTEGERS.items()},
    **{op.name: lambda op, function=function: function for op, function in _BITWISE.items()},
    arith.ConstantOp.name: _constant,
    arith.CmpiOp.name: _arith_compare,
    arith.CmpfOp.name: _arith_compare,
    arith.SelectOp.name: _select,
    arith.IndexCastOp.name: _index_cast,
    tile.ConstantOp.name: _nonfinite_constant,
    tile.CmpOp.name: _compare,
    tile.SelectOp.name: _select,
    tile.CastOp.name: _cast,
    tile.ReduceOp.name: _reduce,
    tile.ScanOp.name: _scan,
    tile.DotOp.name: _dot,
    tile.AssumeOp.name: _assume,
    tile.HistogramOp.name: _histogram,
    tile.GatherOp.name: _gather,
    tile.JoinOp.name: _join,
    tile.TransposeOp.name: _transpose,
    tile.ReshapeOp.name: _to_shape(np.reshape),
    tile.ExpandOp.name: _to_shape(np.reshape),
    tile.BroadcastOp.name: _to_shape(np.broadcast_to),
    tile.FullOp.name: _to_shape(np.broadcast_to),
    tile.IotaOp.name: _iota,
    # Layouts say who holds an element, not what it is. By its text, since the simulator must not know the layout algebra that it judges.
    "layout.convert": _same,
}
"""Operation name -> meaning. Values may be views of one another: nothing writes into a value."""
