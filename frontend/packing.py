"""Words that put tiles side by side and take them apart, among them elements of less than a byte: join, split, pack, unpack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dialects import tile
from .operations import builds, dtype_argument, tile_argument
from .types import f16, f32, i1, i8
from .values import Value, describe

if TYPE_CHECKING:
    from .trace import Tracer

PACKED = ("i4", "u4", "e2m1")
"""Element types of four bits: signed and unsigned integers, and floats of a sign, two bits of exponent and one of mantissa (OCP MX v1.0, §5.3.3)."""


@builds("join")
def join(t: Tracer, a: Any, b: Any) -> Value:
    a, b = t.b.unify(tile_argument(t, a, "join", "a"), tile_argument(t, b, "join", "b"), "tesela.join")
    return t.b.emit(tile.JoinOp.make(a.ssa, b.ssa), a.dtype, (*a.shape, 2))


@builds("split")
def split(t: Tracer, x: Any) -> tuple[Value, Value]:
    x = tile_argument(t, x, "split")
    if len(x.shape) < 2 or x.shape[-1] != 2:
        raise t.error(f"tesela.split takes a tile whose last dimension is 2, found {describe(x)}", "reshape it: x.reshape(-1, 2)", t.at("x"))
    op = t.b.add(tile.SplitOp.make(x.ssa))
    return Value(op.results[0], x.dtype, x.shape[:-1]), Value(op.results[1], x.dtype, x.shape[:-1])


def _kind_argument(t: Tracer, kind: Any, allowed: tuple[str, ...]) -> str:
    if kind not in allowed:
        raise t.error(f"the packed type must be {', '.join(map(repr, allowed))}, found {describe(kind)}", at=t.at("kind"))
    return kind


@builds("unpack")
def unpack(t: Tracer, x: Any, kind: Any, dtype: Any) -> Value:
    x = tile_argument(t, x, "unpack")
    kind = _kind_argument(t, kind, PACKED)
    if x.dtype is not i8:
        raise t.error(f"tesela.unpack takes bytes, a tile of i8, found {describe(x)}", at=t.at("x"))
    target = dtype_argument(t, dtype) if dtype is not None else f16 if kind == "e2m1" else i8
    if target is i1 or (kind == "e2m1" and target.kind != "float"):
        raise t.error(f"{kind} does not unpack to {target.name}", f"unpack to {'tesela.f16' if kind == 'e2m1' else 'tesela.i8'}", t.at("dtype"))
    b = t.b
    if kind == "i4":
        low, high = b.binary(">>", b.binary("<<", x, 4), 4), b.binary(">>", x, 4)
    else:
        low, high = b.binary("&", x, 15), b.binary("&", b.binary(">>", x, 4), 15)
    both = join(t, low, high)
    shape = (*x.shape[:-1], 2 * x.shape[-1])
    both = b.emit(tile.ReshapeOp.make(both.ssa, shape), i8, shape)
    return b.cast(_e2m1(t, both), target) if kind == "e2m1" else b.cast(both, target)


def _e2m1(t: Tracer, code: Value) -> Value:
    """The numbers 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives, in f32, of their codes 0 … 15."""
    b = t.b
    size = b.binary("&", code, 7)
    coarse = b.select(b.binary("<", size, 6), b.binary("-", b.binary("*", size, 2), 4), b.binary("-", b.binary("*", size, 4), 16))
    twice = b.select(b.binary("<", size, 4), size, coarse)
    value = b.binary("*", b.cast(twice, f32), 0.5)
    return b.select(b.binary(">", code, 7), b.unary("-", value), value)


@builds("pack")
def pack(t: Tracer, x: Any, kind: Any) -> Value:
    x = tile_argument(t, x, "pack")
    _kind_argument(t, kind, PACKED[:2])
    if x.dtype.kind != "int" or x.dtype is i1:
        raise t.error(f"tesela.pack takes integers, found {describe(x)}", "convert them: x.to(tesela.i8)", t.at("x"))
    if x.shape[-1] % 2:
        raise t.error(f"tesela.pack takes an even number of elements along the last dimension, found {describe(x)}", at=t.at("x"))
    b = t.b
    shape = (*x.shape[:-1], x.shape[-1] // 2, 2)
    x = b.cast(x, i8)
    low, high = split(t, b.emit(tile.ReshapeOp.make(x.ssa, shape), i8, shape))
    return b.binary("|", b.binary("&", low, 15), b.binary("<<", high, 4))
