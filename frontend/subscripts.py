"""Subscripts: `A[m : m + 128, k]` loads and stores tiles of an array, `x[:, None]` adds dimensions to a tile, tuples are indexed.

A tile's extent is a constant, so the two ends of a slice must differ by one. They are index values of the kernel, and the
difference is read off their definitions as sums of terms: `(m + 1) * 128` and `m * 128` are 128·m + 128 and 128·m, and what is computed in the same way
from the same values, `k // 2` in both ends, is the same term.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.traits import is_side_effect_free

from ..dialects import tile
from ..dialects.tile_indexed import COMPUTED, AtomicKind, atomic_refusal
from .operations import BUILDERS, axis_argument, builds, emit_load, store_value, tile_argument
from .types import Dim, i1, i32
from .values import ATTRIBUTES, ArrayRef, Build, Value, describe, type_attribute

if TYPE_CHECKING:
    from .trace import Tracer


@dataclass(frozen=True)
class ArraySlice:
    """A place in an array: where the tile starts, its shape, and the dimensions it covers (None: the last ones). `computed`: some of the
    starts are tiles of indices, as dialects/tile_indexed.py has them."""

    array: ArrayRef
    starts: list[SSAValue]
    shape: tuple[int, ...]
    dims: tuple[int, ...] | None
    computed: bool = False

    @property
    def all_dims(self) -> tuple[int, ...]:
        """The dimension of the array for each of the tile."""
        rank = self.array.annotation.rank
        return tuple(range(rank - len(self.shape), rank)) if self.dims is None else self.dims


def subscript(t: Tracer, node: ast.Subscript) -> Any:
    """The value of `x[…]`."""
    owner = t.eval(node.value)
    if isinstance(owner, ArrayRef):
        return _load_with_new_dimensions(t, node)
    if isinstance(owner, Value):
        return _new_dimensions(t, node, owner)
    if isinstance(owner, tuple | str):
        return _item(t, node, owner)
    raise t.error(f"{describe(owner)} cannot be indexed")


def _load_with_new_dimensions(t: Tracer, node: ast.Subscript) -> Value:
    """The tile of `array[i : i + 64, None]`: that of the slices, with a dimension of extent 1 for each None."""
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    rest = [item for item in items if not _is_new(item)]
    if len(rest) == len(items):
        return load_slice(t, array_slice(t, node))
    place = array_slice(t, _with_items(node, rest))
    if place.computed:
        raise t.error("None beside tiles of indices is not in the kernel language", "load the tile, and add the dimension to it: x[rows][:, None]", node)
    value, axis = load_slice(t, place), 0
    for item in items:
        if _is_new(item):
            value = t.b.expand(value, axis)
        axis += isinstance(item, ast.Slice) or _is_new(item)
    return value


def _is_new(item: ast.expr) -> bool:
    return isinstance(item, ast.Constant) and item.value is None


def _with_items(node: ast.Subscript, items: list[ast.expr]) -> ast.Subscript:
    subscript = ast.Subscript(node.value, ast.Tuple(items, ast.Load()), node.ctx)
    ast.copy_location(subscript.slice, node.slice)
    return ast.copy_location(subscript, node)


def load_slice(t: Tracer, place: ArraySlice) -> Value:
    """The tile at a place."""
    if place.computed:
        kind = type_attribute(place.array.dtype, place.shape)
        op = tile.LoadIndexedOp.make(place.array.ssa, place.starts, place.all_dims, kind)
        return t.b.emit(op, place.array.dtype, place.shape)
    return emit_load(t, place.array, place.starts, place.shape, None, place.dims)


def store_slice(t: Tracer, place: ArraySlice, value: Any, at: ast.AST | None) -> None:
    """Store a value, broadcast to the slice's shape, at a place; `at` is the value's expression."""
    stored = value_for(t, place, value, at).ssa
    if place.computed:
        t.b.add(tile.StoreIndexedOp.make(stored, place.array.ssa, place.starts, place.all_dims))
    else:
        t.b.add(tile.StoreOp.make(stored, place.array.ssa, place.starts, place.dims))


def value_for(t: Tracer, place: ArraySlice, value: Any, at: ast.AST | None) -> Value:
    """A value as elements of the array, broadcast to the shape of the place."""
    stored = store_value(t, place.array, value, at)
    aligned = (1,) * (len(place.shape) - len(stored.shape)) + stored.shape
    if len(aligned) != len(place.shape) or any(have not in (1, want) for have, want in zip(aligned, place.shape)):
        raise t.error(f"a value of shape {stored.shape} does not broadcast to the slice's shape {place.shape}", at=at)
    return t.b.broadcast(stored, place.shape)


def array_slice(t: Tracer, node: ast.Subscript) -> ArraySlice:
    """`array[i, j : j + 64]` as a place; an index drops its dimension, tiles of indices broadcast together by NumPy's rules."""
    array = t.eval(node.value)
    if not isinstance(array, ArrayRef):
        hint = "a tile is a value: make a new one with tesela.where" if isinstance(array, Value) else None
        raise t.error(f"{describe(array)} cannot be assigned to by slices", hint, node)
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    rank = array.annotation.rank
    if any(map(_is_new, items)):
        raise t.error("None adds a dimension to a tile that is loaded, not to a place in an array", "reshape the value that is stored", node)
    if len(items) != rank:
        raise t.error(
            f"the array {array.name} has {rank} dimension{'s' * (rank > 1)}, found {len(items)} "
            f"ind{'ices' if len(items) != 1 else 'ex'}",
            "give an index or a slice for each dimension",
            node,
        )
    starts: list[SSAValue] = []
    shape: list[int] = []
    dims: list[int] = []
    tiles: dict[int, Value] = {}
    for dim, item in enumerate(items):
        if isinstance(item, ast.Slice):
            start, extent = _slice(t, array, dim, item)
            starts.append(start)
            shape.append(extent)
            dims.append(dim)
        else:
            value = t.eval(item)
            t.b.node = item
            if isinstance(value, int) and value < 0:
                end = array.shape[dim]
                raise t.error(f"the index {value} lies before the array: indices do not count from its end", f"write {end} - {-value}" if isinstance(end, Dim) else None, item)
            if isinstance(value, Value) and value.shape:
                tiles[dim] = _index_tile(t, value)
                starts.append(value.ssa)
            else:
                starts.append(t.b.index(value, "an index").ssa)
    t.b.node = node
    if tiles:
        return _indexed(t, array, starts, dict(zip(dims, shape)), tiles)
    last = list(range(rank - len(dims), rank))
    return ArraySlice(array, starts, tuple(shape), None if dims == last else tuple(dims))


def place_argument(t: Tracer, node: ast.expr, word: str) -> ArraySlice:
    """The first argument of a word that changes a place in an array."""
    if isinstance(node, ast.Subscript) and isinstance(t.eval(node.value), ArrayRef):
        return array_slice(t, node)
    found = t.eval(node)
    raise t.error(f"tesela.{word} takes a place in an array, found {describe(found)}", f"write tesela.{word}(x[i : i + 16], value)", node)


def _index_tile(t: Tracer, value: Value, at: ast.AST | None = None) -> Value:
    """A tile of indices as i32 or i64; `at` is where it stands, if not all of what is traced is about it."""
    if value.dtype is i1:
        raise t.error(f"{describe(value)} is no index", "load all, and choose with tesela.where(condition, x, y)", at)
    if value.dtype.kind != "int":
        raise t.error(f"an index must be an integer, found {describe(value)}", "convert it: x.to(tesela.i32)", at)
    return value if value.dtype.bits >= 32 else t.b.cast(value, i32)


@builds("take_along_axis")
def take_along_axis(t: Tracer, x: Any, indices: Any, axis: Any) -> Value:
    word = "take_along_axis"
    x, found = tile_argument(t, x, word), tile_argument(t, indices, word, "indices")
    rank = len(x.shape)
    if len(found.shape) != rank:
        raise t.error(f"tesela.{word} takes indices of as many dimensions as the tile, {rank}, found {describe(found)}", "x[None] adds one", t.at("indices"))
    along = axis_argument(t, axis, rank)
    places = _index_tile(t, found, t.at("indices"))
    rest = [(x.shape[dim], places.shape[dim]) for dim in range(rank) if dim != along]
    if any(a != b and 1 not in (a, b) for a, b in rest):
        raise t.error(f"tesela.{word}: the shapes {x.shape} and {places.shape} do not broadcast but along axis {along}", at=t.at("indices"))
    common = [max(a, b) for a, b in rest]
    x = t.b.broadcast(x, (*common[:along], x.shape[along], *common[along:]))
    places = t.b.broadcast(places, (*common[:along], places.shape[along], *common[along:]))
    return t.b.emit(tile.GatherOp.make(x.ssa, places.ssa, along), x.dtype, places.shape)


def _indexed(t: Tracer, array: ArrayRef, starts: list[SSAValue], slices: dict[int, int], tiles: dict[int, Value]) -> ArraySlice:
    """A place that tiles of indices (by dimension) say. Together they have one shape; its dimensions stand where the indices do if those stand side by side,
    else first (NumPy, "Combining advanced and basic indexing"; a single integer counts as an index)."""
    together = t.b.common_shape(list(tiles.values()), "indices")
    rank = array.annotation.rank
    indexed = [dim for dim in range(rank) if dim not in slices]
    beside = indexed == list(range(indexed[0], indexed[-1] + 1))
    before = [dim for dim in slices if beside and dim < indexed[0]]
    after = [dim for dim in slices if dim not in before]
    shape = (*(slices[dim] for dim in before), *together, *(slices[dim] for dim in after))
    dims = (*before, *(COMPUTED for _ in together), *after)
    placed = list(starts)
    for dim, value in tiles.items():
        while len(value.shape) < len(together):
            value = t.b.expand(value, 0)
        for axis in range(len(before)):
            value = t.b.expand(value, axis)
        for _ in after:
            value = t.b.expand(value, len(value.shape))
        placed[dim] = value.ssa
    return ArraySlice(array, placed, shape, dims, computed=True)


def _slice(t: Tracer, array: ArrayRef, dim: int, node: ast.Slice) -> tuple[SSAValue, int]:
    """`start : stop` as the start and the extent, which must come out as a constant."""
    if node.step is not None:
        raise t.error("a slice of an array has no step", "load the whole range, or state strides in the signature", node.step)
    start: Any = 0 if node.lower is None else t.eval(node.lower)
    t.b.node = node
    lower = t.b.index(start, "the start of a slice")
    extent = _stated_extent(t, node, start)
    if extent is None:
        last = t.b.block.last_op
        stop: Any = array.shape[dim] if node.upper is None else t.eval(node.upper)
        t.b.node = node
        upper = t.b.index(stop, "the end of a slice")
        extent = difference(upper.ssa, lower.ssa)
        _erase_after(t, last)
    if extent is None:
        text = ast.unparse(node)
        raise t.error(
            f"the extent of the slice {text} of {array.name} is not known when compiling",
            "write start : start + SIZE with a constant SIZE; past the edge of the array a load reads zeros",
            node.lower or node.upper or t.b.node,
        )
    if extent < 1:
        raise t.error(f"the slice {ast.unparse(node)} of {array.name} has the extent {extent}", at=node.upper)
    return lower.ssa, extent


def _stated_extent(t: Tracer, node: ast.Slice, start: Any) -> int | None:
    """The extent of `start : start + SIZE`, which most slices are, without making the sum; None for what is written in another way."""
    match node:
        case ast.Slice(lower=ast.Name(id=name), upper=ast.BinOp(left=ast.Name(id=again), op=ast.Add(), right=ast.Name() | ast.Constant() as size)):
            if name == again and isinstance(start, Value):
                extent = t.eval(size)
                return extent if isinstance(extent, int) and not isinstance(extent, bool) else None
    return None


def _erase_after(t: Tracer, last: Operation | None) -> None:
    """Erase the arithmetic after operation `last` that nothing uses: the end of a slice serves to find its extent only."""
    op = t.b.block.last_op
    while op is not None and op is not last:
        before = op.prev_op
        if is_side_effect_free(op) and not isinstance(op, arith.ConstantOp) and not any(result.uses for result in op.results):
            op.detach()
            op.erase()
        op = before


def _new_dimensions(t: Tracer, node: ast.Subscript, x: Value) -> Value:
    """`x[:, None]`: new dimensions of extent 1."""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    axis = 0
    given = sum(1 for item in items if isinstance(item, ast.Slice))
    for item in items:
        if isinstance(item, ast.Constant) and item.value is None:
            x = t.b.expand(x, axis)
            axis += 1
        elif isinstance(item, ast.Slice) and item.lower is item.upper is item.step is None:
            axis += 1
        elif isinstance(item, ast.Constant) and item.value is Ellipsis:
            axis = len(x.shape) - (len(items) - 1 - items.index(item))
        else:
            raise t.error(
                "a tile can be indexed by ':' and None only", "slice the array when loading: A[i : i + 16, j : j + 16]", item
            )
    if axis > len(x.shape) or given > len(x.shape):
        raise t.error(f"too many indices for {describe(x)}")
    return x


def _item(t: Tracer, node: ast.Subscript, owner: tuple[Any, ...] | str) -> Any:
    """An item, or a slice, of a tuple or string."""
    position = node.slice
    if isinstance(position, ast.Slice):
        at: Any = slice(*(None if part is None else t.eval(part) for part in (position.lower, position.upper, position.step)))
    else:
        at = t.eval(position)
    if not isinstance(at, int | slice):
        raise t.error(f"a tuple is indexed by integers known when compiling, found {describe(at)}", at=position)
    try:
        return owner[at]
    except (IndexError, TypeError, ValueError) as error:
        raise t.error(f"{describe(owner)}: {error}") from None


def difference(high: SSAValue, low: SSAValue) -> int | None:
    """`high - low` where both are the same sum of terms but for a constant; None otherwise."""
    number = _Numbers()
    terms = _affine(high, number)
    for term, factor in _affine(low, number).items():
        terms[term] = terms.get(term, 0) - factor
    constant = terms.pop(None, 0)
    return None if any(terms.values()) else constant


class _Numbers:
    """Numbers of values: equal for what is computed in the same way from the same, as the two `i // 2` of `i // 2 : i // 2 + 16` are."""

    def __init__(self) -> None:
        self._values: dict[SSAValue, int] = {}
        self._ways: dict[Any, int] = {}

    def __call__(self, value: SSAValue) -> int:
        if value not in self._values:
            op = value.op if isinstance(value, OpResult) else None
            way: Any = value
            if op is not None and not op.regions and is_side_effect_free(op):
                attributes = (frozenset(op.properties.items()), frozenset(op.attributes.items()))
                way = (op.name, *attributes, value.index, value.type, *map(self, op.operands))  # type: ignore[union-attr]
            self._values[value] = self._ways.setdefault(way, len(self._ways))
        return self._values[value]


def _affine(value: SSAValue, number: _Numbers, depth: int = 32) -> dict[int | None, int]:
    """An index as a sum of factor·term, terms by their numbers; the term None is 1. Sums of narrower integers count as if they did not wrap: an end that has
    wrapped is no end of the slice, whose extent is what its text says."""
    op = value.op if isinstance(value, OpResult) else None
    match op:
        case tile.CastOp() if depth and _widens(op):
            return _affine(op.source, number, depth - 1)
        case arith.ConstantOp():
            return {None: op.value.value.data}  # type: ignore[union-attr]
        case arith.AddiOp() | arith.SubiOp() if depth:
            terms = _affine(op.lhs, number, depth - 1)
            sign = 1 if isinstance(op, arith.AddiOp) else -1
            for term, factor in _affine(op.rhs, number, depth - 1).items():
                terms[term] = terms.get(term, 0) + sign * factor
            return terms
        case arith.MuliOp() if depth:
            sides = [_affine(side, number, depth - 1) for side in (op.lhs, op.rhs)]
            for scale, other in (sides, sides[::-1]):
                if set(scale) == {None}:
                    return {term: factor * scale[None] for term, factor in other.items()}
    return {number(value): 1}


def _widens(op: tile.CastOp) -> bool:
    """Whether it extends the sign of an integer, which keeps its value."""
    widths = [64 if isinstance(x.type, IndexType) else x.type.width.data if isinstance(x.type, IntegerType) else 0 for x in (op.source, op.res)]
    return 1 < widths[0] <= widths[1]



# Atomic updates


def _atomic(kind: AtomicKind) -> Build:
    def build(t: Tracer, place: Any, value: Any, expected: Any = None) -> Value:
        if kind is AtomicKind.CAS:
            value, expected = expected, value  # in the order of the word's arguments
        if not isinstance(place, ArraySlice):
            raise t.error(f"tesela.atomic_{kind} takes a place in an array as its first argument")
        array = place.array
        if (reason := atomic_refusal(kind, ATTRIBUTES[array.dtype])) is not None:
            raise t.error(f"tesela.atomic_{kind} on the array {array.name}: {reason}", at=t.at("place"))
        operand = value_for(t, place, value, t.at("value")).ssa
        old = None if kind is not AtomicKind.CAS else value_for(t, place, expected, t.at("expected")).ssa
        op = tile.AtomicOp.make(kind, operand, array.ssa, place.starts, place.all_dims, old)
        return t.b.emit(op, array.dtype, place.shape)

    return build


for _kind in AtomicKind:
    BUILDERS[f"atomic_{_kind}"] = _atomic(_kind)
