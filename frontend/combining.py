"""Words that combine elements by a function of the program: associative_scan and reduce.

The function is traced once, for an element of the left and one of the right, into the region of a tile.scan or tile.fold. So it computes with scalars; what
depends on their values is chosen with tesela.where.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region

from ..dialects import tile
from ..dialects.diagnostics import TeselaError
from ..dialects.tile_scan import combines, function_body
from .control import in_block
from .operations import axis_argument, builds, tile_argument
from .types import DType
from .values import ATTRIBUTES, Value, describe, type_text
from .words import Word

if TYPE_CHECKING:
    from .trace import Tracer


@builds("associative_scan")
def associative_scan(t: Tracer, fn: Any, tiles: Any, axis: Any, reverse: Any, exclusive: Any, identity: Any) -> Any:
    for name, flag in (("reverse", reverse), ("exclusive", exclusive)):
        if not isinstance(flag, bool):
            raise t.error(f"{name} must be True or False, found {describe(flag)}", at=t.at(name))
    values = _tiles(t, tiles, "associative_scan")
    place = axis_argument(t, axis, len(values[0].shape))
    identities = _identities(t, values, tiles, exclusive, identity)
    body = _function(t, fn, values, isinstance(tiles, tuple), "associative_scan")
    op = tile.ScanOp.by(body, [value.ssa for value in values], place, reverse, identities)
    return _results(t, t.b.add(op), values, [value.shape for value in values], tiles)


@builds("reduce")
def reduce(t: Tracer, fn: Any, tiles: Any, axis: Any, keepdims: Any) -> Any:
    if not isinstance(keepdims, bool):
        raise t.error(f"keepdims must be True or False, found {describe(keepdims)}", at=t.at("keepdims"))
    values = _tiles(t, tiles, "reduce")
    first = values[0].shape
    axes = tuple(range(len(first))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(axis_argument(t, a, len(first)) for a in axes)
    if len(set(axes)) != len(axes):
        raise t.error(f"the axes {axes} name a dimension twice", at=t.at("axis"))
    at_fn = t.at("fn")
    for a in sorted(axes, reverse=True):  # the last first: then the elements come in row-major order
        body = _function(t, fn, values, isinstance(tiles, tuple), "reduce", at_fn)
        shape = values[0].shape[:a] + values[0].shape[a + 1 :]
        op = t.b.add(tile.FoldOp.by(body, [value.ssa for value in values], a))
        values = [Value(result, value.dtype, shape) for result, value in zip(op.results, values)]
    if keepdims:
        for i, value in enumerate(values):
            kept = t.b.broadcast(value, tuple(1 for _ in first)) if not value.shape else value
            for a in sorted(axes) if value.shape else ():
                kept = t.b.expand(kept, a)
            values[i] = kept
    return tuple(values) if isinstance(tiles, tuple) else values[0]


def _tiles(t: Tracer, tiles: Any, word: str) -> list[Value]:
    """The tiles to combine, of one shape."""
    items = tiles if isinstance(tiles, tuple) else (tiles,)
    if not items:
        raise t.error(f"tesela.{word} of no tiles", at=t.at("tiles"))
    values = [tile_argument(t, item, word, "tiles") for item in items]
    shape = t.b.common_shape(values, f"tesela.{word}")
    return [t.b.broadcast(value, shape) for value in values]


def _identities(t: Tracer, values: Sequence[Value], tiles: Any, exclusive: bool, identity: Any) -> list[Any] | None:
    if not exclusive:
        if identity is not None:
            raise t.error("identity is for exclusive scans", "write exclusive=True, or leave it out", t.at("identity"))
        return None
    items = identity if isinstance(tiles, tuple) and isinstance(identity, tuple) else (identity,)
    if identity is None or len(items) != len(values):
        wanted = "a tuple of one for each tile" if isinstance(tiles, tuple) else "one"
        found = "" if identity is None else f", found {describe(identity)}"
        hint = "give what changes nothing when it is combined: identity=0.0 of a sum, (1.0, 0.0) of (a, b) in a·h + b"
        raise t.error(f"an exclusive scan needs the identity of its function, {wanted}{found}", hint, t.at("identity"))
    found = []
    outer = t.b.node
    t.b.node = t.at("identity") or outer
    for item, value in zip(items, values):
        if isinstance(item, Value) and item.shape:
            raise t.error(f"an identity is a scalar, found {describe(item)}")
        found.append(t.b.of_dtype(item, value.dtype).ssa)
    t.b.node = outer
    return found


def _function(t: Tracer, fn: Any, values: Sequence[Value], several: bool, word: str, at: Any = None) -> Region:
    """The region of a combining function. Raises TeselaError for one that does not keep the element types, or does anything but compute."""
    at = at or t.at("fn")
    if not isinstance(fn, FunctionType | Word):
        raise t.error(f"tesela.{word} combines by a function of two elements, found {describe(fn)}", "define one outside the kernel: def f(a, b): return …", at)
    name = fn.__name__
    block = function_body([ATTRIBUTES[value.dtype] for value in values])
    for argument in block.args:
        argument.location = t.b.location(t.b.node)
    scalars = [Value(argument, value.dtype) for argument, value in zip(block.args, [*values, *values])]
    count, node = len(values), t.b.node
    operands: list[Any] = [tuple(scalars[:count]), tuple(scalars[count:])] if several else scalars

    def trace() -> Any:
        if isinstance(fn, Word):
            return t._word(fn, operands, {}, [node, node], {})
        return t._inline(node, fn, operands, {})  # type: ignore[arg-type]

    result = in_block(t, block, trace)
    _check_computes(block, name)
    given = result if several and isinstance(result, tuple) else (result,)
    if len(given) != count or (several and not isinstance(result, tuple)):
        raise t.error(f"{name} gives {describe(result)}, tesela.{word} combines {count} tile{'s' * (count > 1)}", _shape_hint(values, several), at)
    yielded = [_of_type(t, block, item, value.dtype, f"{name} gives", i, several, at) for i, (item, value) in enumerate(zip(given, values))]
    end = tile.YieldOp.create(operands=[value.ssa for value in yielded])
    end.location = t.b.location(node)
    block.add_op(end)
    return Region(block)


def _of_type(t: Tracer, block: Block, item: Any, dtype: DType, what: str, number: int, several: bool, at: Any) -> Value:
    """What the function gives for one tile, as its element type."""
    which = f"for tile {number}" if several else "for the tile"
    if isinstance(item, Value) and not item.weak and item.dtype is not dtype:
        hint = f"a combining function keeps the element types: convert with x.to(tesela.{dtype.name}) in it"
        raise t.error(f"{what} {type_text(item.dtype, item.shape)} {which}, which has elements of {dtype.name}", hint, at)
    if isinstance(item, Value) and item.shape:
        raise t.error(f"{what} {describe(item)} {which}", "it combines one element with one", at)
    return in_block(t, block, lambda: t.b.of_dtype(item, dtype))


def _shape_hint(values: Sequence[Value], several: bool) -> str:
    if not several:
        return "return one element"
    return f"it takes two tuples of {len(values)}, and returns one: return {', '.join('abcdefgh'[i % 8] for i in range(len(values)))}"


def _check_computes(block: Block, name: str) -> None:
    """Raises TeselaError at the first operation that does anything but compute with elements."""
    for op in block.ops:
        if not combines(op):
            hint = "choose with tesela.where(condition, x, y)" if isinstance(op, scf.IfOp) else "it is called for elements: do that to the tiles, before or after"
            raise TeselaError.at(op, f"{_noun(op)} in {name}, which combines elements", hint)


def _noun(op: Operation) -> str:
    if isinstance(op, scf.IfOp):
        return "a conditional on elements"
    if isinstance(op, scf.ForOp | scf.WhileOp):
        return "a loop at run time"
    return f"'{op.name}'"


def _results(t: Tracer, op: Operation, values: Sequence[Value], shapes: Sequence[tuple[int, ...]], tiles: Any) -> Any:
    made = tuple(Value(result, value.dtype, shape) for result, value, shape in zip(op.results, values, shapes))
    return made if isinstance(tiles, tuple) else made[0]
