"""The words of the kernel language: what a kernel may call, with signatures and meanings, for readers, editors and the tracer.

A word is declared here as a function without a body; `operations.py` says what each builds. Shapes are tuples of compile-time
integers (an integer stands for a tuple of one), `x` is a tile or a scalar of the kernel, and NumPy's rules hold for broadcasting.

**Element types.** Operands of one operation must have one element type: nothing is converted silently, `x.to(f32)` converts. Three
exceptions cannot go wrong silently: a Python number takes the type of the operand it meets (a float needs a float operand; an integer
must fit); an `index` (a grid coordinate, a loop variable, a dimension: a signed integer of 64 bits) meets an integer scalar as index,
and a tile of integers as i64; and a dimension meets a float as a number would, `total / N`. A Python number that must become a value
of the kernel on its own (a variable that a loop changes) is f32, index or i1.

The numeric rule of every operation stands in docs/numbers.md.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from typing import cast as cast_type

from .types import Array, Channel, Dim, DType, Tile, outside_kernel
from .types import ceildiv as static_ceildiv

F = TypeVar("F", bound=Callable[..., Any])
Operand = Tile | Dim | float
Extent = Dim | int
Shape = int | tuple[int, ...] | list[int]

__all__ = [
    "abs",
    "arange",
    "argmax",
    "argmin",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "ceildiv",
    "channel",
    "cos",
    "dot",
    "exp",
    "exp2",
    "expand_dims",
    "floor",
    "fma",
    "full",
    "grid",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "histogram",
    "inline_ptx",
    "iota",
    "join",
    "load",
    "log",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "pack",
    "pin",
    "print",
    "prod",
    "range",
    "reduce",
    "reshape",
    "role",
    "rsqrt",
    "sin",
    "split",
    "sqrt",
    "static_range",
    "store",
    "sum",
    "take_along_axis",
    "tanh",
    "transpose",
    "unpack",
    "where",
    "zeros",
]


class Word:
    """One word: its name, parameters and documentation. Ordinary Python that calls it gets a TeselaError, unless it has a
    meaning outside kernels too."""

    outside: Callable[..., Any] | None = None
    """What ordinary Python gets that calls the word; None for the error, which NotImplemented as its result stands for as well."""

    def __init__(self, declaration: Callable[..., Any]):
        self.name = declaration.__name__
        self.__name__ = self.name
        self.__doc__ = declaration.__doc__
        self.declaration = declaration
        parameters = [p.replace(annotation=p.empty) for p in inspect.signature(declaration).parameters.values()]
        self.signature = inspect.Signature(parameters)
        self.positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.names = tuple(p.name for p in parameters)
        self.keywords = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        self.takes_place = self.names[:1] == ("place",)
        """Whether its first argument is a place in an array, not what stands there."""

    def __repr__(self) -> str:
        return f"tesela.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.outside is not None and (result := self.outside(*args, **kwargs)) is not NotImplemented:
            return result
        raise outside_kernel(self.name)


WORDS: dict[str, Word] = {}
"""Every word by its name."""


def _word(declaration: F) -> F:
    """Make a word of its declaration. To type checkers it stays the function that it is declared as."""
    WORDS[declaration.__name__] = Word(declaration)
    return cast_type("F", WORDS[declaration.__name__])


# The grid and loops


@_word
def grid(*extents: Extent) -> Any:
    """Declare the logical grid: one block for each point of it, independent and unordered; gives this block's coordinates.

    `extents`: one to three integers or expressions of dimensions, the fastest first: `m, n = tesela.grid(ceildiv(M, 128), N)`. A
    single extent gives a single index. At most once in a kernel; without it the kernel is one block.
    """
    ...


@_word
def range(start: Operand, stop: Operand | None = None, step: Operand = 1) -> Iterator[Any]:
    """`for i in tesela.range(stop)`, `(start, stop)` or `(start, stop, step)`: a loop at run time; `i` is an index. `step` is positive: a
    constant that is not is an error, and one that turns out not to be at run time makes no trips.

    A variable that the body assigns and that is read in a later trip, or after the loop, is carried: it keeps its type.
    """
    ...


@_word
def static_range(start: int, stop: int | None = None, step: int = 1) -> Iterator[int]:
    """A loop that is unrolled when compiling: `i` is a Python integer in each copy of the body."""
    ...


# Memory


@_word
def load(array: Array, starts: Operand | tuple[Operand, ...], shape: Shape = (), *, fill: Operand | None = None, dims: Shape | None = None) -> Tile:
    """The tile of `array` that starts at element `starts`, one index for each dimension of the array.

    `shape`: the tile's extents; () gives a scalar. A tile of fewer dimensions than the array covers the last ones, or those that
    `dims` names. Past an edge it reads 0, or `fill`. `array[m : m + 128, k : k + 64]` is the same, in NumPy's words.

    (Outside of kernels `tesela.load("folder")` is `tesela.load_kernel`.)
    """
    ...


def _load_outside(*args: Any, **kwargs: Any) -> Any:
    if kwargs or len(args) != 1 or not isinstance(args[0], str | os.PathLike):
        return NotImplemented
    from ..runtime.export import load

    return load(args[0])


WORDS["load"].outside = _load_outside


@_word
def store(array: Array, starts: Operand | tuple[Operand, ...], value: Operand, *, dims: Shape | None = None) -> None:
    """Write a tile, or a scalar, to `array` from element `starts` on; past an edge nothing is written.

    `array[m : m + 128, k : k + 64] = value` is the same, and broadcasts `value`.
    """
    ...


# Atomic updates


@_word
def atomic_add(place: Operand, value: Operand) -> Tile:
    """`tesela.atomic_add(x[i : i + 64], value)` or `tesela.atomic_add(counts[index], 1)`: add to elements that other blocks, or elements of the same tile, may
    update too; gives what stood there before (0 past the edges).

    `place` is an element or a slice of an array, or an array indexed by a tile; `value` broadcasts to it. i32, i64 (they wrap), f64, f32, f16, and from
    sm_90 on bf16. Updates are relaxed: they order no other accesses. Sums of integers do not depend on their order, sums of floats do.
    """
    ...


@_word
def atomic_max(place: Operand, value: Operand) -> Tile:
    """As `atomic_add`: the larger of old and new (i32, i64, f32; NaN if either is NaN)."""
    ...


@_word
def atomic_min(place: Operand, value: Operand) -> Tile:
    """As `atomic_add`: the smaller of old and new (i32, i64, f32; NaN if either is NaN)."""
    ...


@_word
def atomic_and(place: Operand, value: Operand) -> Tile:
    """As `atomic_add`: the bits that both have (i32, i64)."""
    ...


@_word
def atomic_or(place: Operand, value: Operand) -> Tile:
    """As `atomic_add`: the bits that either has (i32, i64)."""
    ...


@_word
def atomic_xor(place: Operand, value: Operand) -> Tile:
    """As `atomic_add`: the bits that one of the two has (i32, i64)."""
    ...


@_word
def atomic_exchange(place: Operand, value: Operand) -> Tile:
    """As `atomic_add`: the new value (i32, i64, f32)."""
    ...


@_word
def atomic_cas(place: Operand, expected: Operand, value: Operand) -> Tile:
    """As `atomic_add`: `value` where the old value is `expected`, bit for bit (i32, i64, f32); it was stored where the result equals `expected`."""
    ...


# Making tiles


@_word
def zeros(shape: Shape, dtype: DType) -> Tile:
    """A tile of zeros."""
    ...


@_word
def full(shape: Shape, value: Operand, dtype: DType | None = None) -> Tile:
    """A tile of one value; a Python number needs a `dtype`."""
    ...


@_word
def arange(start: int, stop: int | None = None, step: int = 1, dtype: DType | None = None) -> Tile:
    """The tile [start, start + step, …) up to `stop`, all three compile-time integers; i32 unless `dtype` is i64."""
    ...


@_word
def iota(shape: Shape, axis: int = 0, dtype: DType | None = None) -> Tile:
    """Each element's coordinate along `axis`; i32 unless `dtype` is i64."""
    ...


# Shapes


@_word
def reshape(x: Tile, shape: Shape) -> Tile:
    """The same elements in row-major order under another shape; one extent may be -1."""
    ...


@_word
def transpose(x: Tile, axes: Shape | None = None) -> Tile:
    """Dimension i of the result is `axes[i]` of `x`; without `axes` the last two are swapped, as `x.T` does."""
    ...


@_word
def expand_dims(x: Operand, axis: int) -> Tile:
    """A new dimension of extent 1 at `axis`, as `x[:, None]`."""
    ...


@_word
def broadcast_to(x: Operand, shape: Shape) -> Tile:
    """`x` repeated along its extents of 1, and along new leading dimensions, to `shape`."""
    ...


# Elementwise


@_word
def where(condition: Operand, x: Operand, y: Operand) -> Tile:
    """`x` where `condition` (i1) holds, else `y`; all three broadcast. Both are computed."""
    ...


@_word
def cast(x: Operand, dtype: DType, *, saturate: bool = False) -> Tile:
    """`x` converted, rounded once to nearest even; `saturate` gives the largest finite number instead of infinity. As `x.to(dtype)`."""
    ...


@_word
def maximum(x: Operand, y: Operand) -> Tile:
    """The larger of two, elementwise; NaN if either is NaN."""
    ...


@_word
def minimum(x: Operand, y: Operand) -> Tile:
    """The smaller of two, elementwise; NaN if either is NaN."""
    ...


@_word
def fma(x: Operand, y: Operand, z: Operand) -> Tile:
    """x·y + z, rounded once (floats)."""
    ...


@_word
def exp(x: Operand) -> Tile:
    """eˣ (floats), approximate."""
    ...


@_word
def exp2(x: Operand) -> Tile:
    """2ˣ (floats), approximate."""
    ...


@_word
def log(x: Operand) -> Tile:
    """The natural logarithm (floats), approximate."""
    ...


@_word
def log2(x: Operand) -> Tile:
    """The logarithm to base 2 (floats), approximate."""
    ...


@_word
def sqrt(x: Operand) -> Tile:
    """The square root (floats), correctly rounded in f32 and f64."""
    ...


@_word
def rsqrt(x: Operand) -> Tile:
    """1/√x (floats), approximate."""
    ...


@_word
def tanh(x: Operand) -> Tile:
    """The hyperbolic tangent (floats), approximate."""
    ...


@_word
def sin(x: Operand) -> Tile:
    """The sine (floats), approximate, of radians."""
    ...


@_word
def cos(x: Operand) -> Tile:
    """The cosine (floats), approximate, of radians."""
    ...


@_word
def abs(x: Operand) -> Tile:
    """The absolute value; Python's `abs` is the same."""
    ...


@_word
def floor(x: Operand) -> Tile:
    """The largest integer not above `x`, as a float."""
    ...


@_word
def ceil(x: Operand) -> Tile:
    """The smallest integer not below `x`, as a float."""
    ...


# Reductions


@_word
def sum(x: Tile, axis: Shape | None = None, *, keepdims: bool = False) -> Tile:
    """The sum along `axis` (an integer, several, or None for all). 16-bit floats are summed in f32 and rounded once."""
    ...


@_word
def prod(x: Tile, axis: Shape | None = None, *, keepdims: bool = False) -> Tile:
    """The product along `axis`."""
    ...


@_word
def max(x: Tile, axis: Shape | None = None, *, keepdims: bool = False) -> Tile:
    """The maximum along `axis`; NaN if any is NaN."""
    ...


@_word
def min(x: Tile, axis: Shape | None = None, *, keepdims: bool = False) -> Tile:
    """The minimum along `axis`; NaN if any is NaN."""
    ...


@_word
def argmax(x: Tile, axis: int, *, keepdims: bool = False) -> Tile:
    """The index (i32) of the first maximum along `axis`; NaN counts as larger than every number."""
    ...


@_word
def argmin(x: Tile, axis: int, *, keepdims: bool = False) -> Tile:
    """The index (i32) of the first minimum along `axis`; NaN counts as smaller than every number."""
    ...


@_word
def cumsum(x: Tile, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Tile:
    """Running sums along `axis`: element i is the sum of elements 0 … i; with `exclusive` of those before i, 0 for the first; with
    `reverse` from the last element to the first."""
    ...


@_word
def cumprod(x: Tile, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Tile:
    """Running products along `axis`; with `exclusive` of the elements before each, 1 for the first."""
    ...


@_word
def cummax(x: Tile, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Tile:
    """Running maxima along `axis`, NaN from the first NaN on; with `exclusive` of the elements before each, the least value for the first."""
    ...


@_word
def cummin(x: Tile, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Tile:
    """Running minima along `axis`, NaN from the first NaN on; with `exclusive` of the elements before each, the greatest value for the first."""
    ...


@_word
def associative_scan(
    fn: Callable[[Any, Any], Any], tiles: Any, axis: int, *, reverse: bool = False, exclusive: bool = False, identity: Any = None
) -> Any:
    """Running results along `axis` of combining neighbours by `fn`, which must be associative: element i is fn(… fn(fn(x₀, x₁), x₂) …, xᵢ).

    `tiles`: a tile, of which `fn(a, b)` combines an element of the left and one of the right; or a tuple of tiles of one shape (they broadcast), for which a
    and b are tuples, and so is what `fn` returns and what the scan gives. `fn` keeps the element types, and only computes: `tesela.where`
    chooses. It need not be commutative. `reverse`: from the last element to the first, which is on the left then. `exclusive`: of the elements
    before each, and `identity` for the first, which must change nothing: `tesela.associative_scan(linear, (a, b), 1, exclusive=True, identity=(1.0, 0.0))`.
    """
    ...


@_word
def reduce(fn: Callable[[Any, Any], Any], tiles: Any, axis: Shape | None = None, *, keepdims: bool = False) -> Any:
    """All elements along `axis` (an integer, several, or None for all, in row-major order) combined by `fn` as in `associative_scan`, in their order:
    `key, place = tesela.reduce(larger, (x, places), 1)`. Of a tuple of tiles it gives a tuple."""
    ...


@_word
def histogram(x: Tile, bins: int) -> Tile:
    """How often each of 0 … `bins` - 1 occurs in the tile `x` of i32: a tile of `bins` counts (i32). Other values are not counted."""
    ...


@_word
def take_along_axis(x: Tile, indices: Tile, axis: int = -1) -> Tile:
    """Elements of the tile `x` along `axis`, each picked by an index of its own: y[r, c] = x[r, indices[r, c]] along axis 1, as NumPy's (`tl.gather`).

    `indices`: a tile of integers, with as many dimensions as `x`; but along `axis` the two broadcast. The result has the shape of the indices, so broadcast,
    and the elements of `x`. An index below zero or past the extent is outside of the tile, and gives zero, as in an array; NumPy counts negative ones from
    the end, and refuses others.
    """
    ...


# Pairs, and elements of less than a byte


@_word
def join(a: Operand, b: Operand) -> Tile:
    """The pairs of two tiles, along a new last dimension of extent 2."""
    ...


@_word
def split(x: Tile) -> tuple[Tile, Tile]:
    """The two tiles that `join` made pairs of: x[…, 0] and x[…, 1]."""
    ...


@_word
def unpack(x: Tile, kind: str, dtype: DType | None = None) -> Tile:
    """The elements of four bits that bytes (a tile of i8) hold, two each, the low half first; the last dimension is twice as long.

    `kind`: 'i4' (-8 … 7) and 'u4' (0 … 15), as i8 unless `dtype` says otherwise; 'e2m1' (±0, ½, 1, 1½, 2, 3, 4, 6), as f16.
    """
    ...


@_word
def pack(x: Tile, kind: str) -> Tile:
    """The inverse of `unpack` for integers ('i4', 'u4'): two elements to a byte, of each the low four bits."""
    ...


# Matrices


@_word
def dot(a: Tile, b: Tile, acc: Tile | None = None, *, precision: str | None = None) -> Tile:
    """acc + a·b for tiles M×K and K×N, and batches of them. `acc` is f32 for f16, bf16, f32 and 8-bit floats (or f16 for f16 and 8-bit
    floats), f64 for f64, i32 for i8 and ui8; without it it is zero, of the first of these. f8E4M3FN may meet f8E5M2, and i8 ui8. `acc + a @ b`
    is the same. f32 operands are multiplied as they are, by fma; with precision="tf32" tensor cores multiply their upper 19 bits."""
    ...


# Choices of the compiler


@_word
def pin(x: Tile, *, layout: Any = None, shared: Any = None, copy: str | None = None, instruction: str | None = None) -> Tile:
    """`x`, with choices about it taken away from the compiler. Only speed can change; what contradicts a pin is an error that names it.

    `layout`: which thread holds which element, of `x` and of all that must be held alike (what it is added to, what a loop carries it as):
    `"thread [128:(1)], value [2:(128)]"`, or a `tesela.dialects.layout.TVLayout`. `shared`: how `x` lies in shared memory on its way into
    a dot: `"[128:64], [64:1], swizzle<3, 3, 3>"`, or a `SharedLayout`. `copy`: how a loaded tile gets there, "tma", "cp.async" or "ld".
    `instruction`: words that the way of a dot must have, as `tesela explain` writes them: `tesela.pin(acc + a @ b, instruction="m64n128k16 2x1")`.
    """
    ...


# The explicit level


@_word
def channel(shape: Shape, dtype: DType, *, depth: int | None = None, shared: Any = None) -> Channel:
    """A ring of buffers in shared memory, first in first out, made at the beginning of a kernel: `ch = tesela.channel((128, 64), bf16, depth=3)`.

    `ch.put(A[m : m + 128, k : k + 64])` fills the next slot from an array (by TMA or cp.async where it can; `copy="tma"` insists), `ch.put(x)` from a tile. `ch.get()` is
    the oldest filled slot as a tile, and `ch.release()` gives it back; `with ch.get() as a:` does both. Every slot that is filled is got once and given back
    once, whatever path the kernel takes: what cannot be is an error at its line. A dot reads a slot where it lies; anything else reads it into registers.
    `depth`: how many buffers; left open, the compiler finds it. Where a loop puts, gets and releases in each trip it fills ahead as far as there are
    buffers. `shared`: how a buffer lies, as for `pin`.
    """
    ...


@_word
def role(name: str, *, warps: int | None = None, registers: int | None = None) -> Any:
    """`with tesela.role("load", warps=4, registers=24):` a program of its own for so many warps of the block, at the same time as the other roles', at the
    end of a kernel. Roles meet in channels only: one role fills a channel, one takes from it. What was computed before is known in all of them.
    `registers` of each thread (24 to 256 in steps of 8, of whole groups of four warps), for all roles or for none."""
    ...


# While a kernel runs


@_word
def print(*values: Any) -> None:
    """`tesela.print("x is", x)`, or Python's `print`: one line for each block that comes here, with the file's line, the block's coordinates, and the
    values (texts, numbers, scalars and tiles). The call of such a kernel waits for it.

    `assert condition, "text"` of something known only at run time is checked there: where it fails, of a tile in any element, the call raises a
    TeselaError with the text, the line and the block.
    """
    ...


# Single instructions


@_word
def inline_ptx(text: str, *operands: Operand, result: Any) -> Any:
    """Instructions of PTX for each element: `tesela.inline_ptx("lg2.approx.f32 $0, $1;", x, result=f32)`.

    `result`: the element type of the result, or a tuple of those of several; `$0` … are the results, then the operands, which broadcast together; `%name` is a
    register of the text's own. Instructions are separated by `;`, checked against the instruction table, and must have no effects. Elements of 8
    bits stand in 16, i8 by its sign and others with zeros above; i1 in a predicate.
    """
    ...


# Facts


@_word
def assume(fact: Any) -> None:
    """`tesela.assume(K % 64 == 0)` of a dimension: callers promise it, launches check it, and the compiler may rely on it.

    `tesela.assume(start % 8 == 0)` and `tesela.assume(0 <= start < 4096)` of a variable, an integer scalar such as one that was loaded: the compiler relies on it from
    there on, for wide accesses and for TMA; the interpreter checks it, compiled code does not.
    """
    ...


@_word
def ceildiv(a: Operand, b: Operand) -> Any:
    """a/b rounded up: of integers or dimensions anywhere, of index values and integers inside a kernel."""
    ...


WORDS["ceildiv"].outside = static_ceildiv
