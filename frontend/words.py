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
from collections.abc import Callable
from typing import Any

from .types import ceildiv as _ceildiv
from .types import outside_kernel

__all__ = [
    "abs",
    "arange",
    "argmax",
    "argmin",
    "assume",
    "broadcast_to",
    "cast",
    "ceil",
    "ceildiv",
    "cos",
    "dot",
    "exp",
    "exp2",
    "expand_dims",
    "floor",
    "fma",
    "full",
    "grid",
    "iota",
    "load",
    "log",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "prod",
    "range",
    "reshape",
    "rsqrt",
    "sin",
    "sqrt",
    "static_range",
    "store",
    "sum",
    "tanh",
    "transpose",
    "where",
    "zeros",
]


class Word:
    """One word: its name, parameters and documentation. Ordinary Python that calls it gets a TeselaError, unless it has a
    meaning outside kernels too."""

    outside: Callable[..., Any] | None = None
    """What ordinary Python gets that calls the word; None for the error."""

    def __init__(self, declaration: Callable[..., Any]):
        self.name = declaration.__name__
        self.__name__ = self.name
        self.__doc__ = declaration.__doc__
        self.declaration = declaration
        self.signature = inspect.signature(declaration)
        self.positional = tuple(
            p.name for p in self.signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
        )
        self.variadic = next((p.name for p in self.signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None)
        self.defaults = {p.name: p.default for p in self.signature.parameters.values() if p.default is not p.empty}
        self.names = tuple(self.signature.parameters)

    def __repr__(self) -> str:
        return f"tesela.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.outside is not None:
            return self.outside(*args, **kwargs)
        raise outside_kernel(self.name)


WORDS: dict[str, Word] = {}
"""Every word by its name."""


def _word(declaration: Callable[..., Any]) -> Any:
    WORDS[declaration.__name__] = Word(declaration)
    return WORDS[declaration.__name__]


# The grid and loops


@_word
def grid(*extents):
    """Declare the logical grid: one block for each point of it, independent and unordered; gives this block's coordinates.

    `extents`: one to three integers or expressions of dimensions, the fastest first: `m, n = tesela.grid(ceildiv(M, 128), N)`. A
    single extent gives a single index. At most once in a kernel; without it the kernel is one block.
    """


@_word
def range(start, stop=None, step=1):
    """`for i in tesela.range(stop)`, `(start, stop)` or `(start, stop, step)`: a loop at run time; `i` is an index. `step` is positive.

    A variable that the body assigns and that is read in a later trip, or after the loop, is carried: it keeps its type.
    """


@_word
def static_range(start, stop=None, step=1):
    """A loop that is unrolled when compiling: `i` is a Python integer in each copy of the body."""


# Memory


@_word
def load(array, starts, shape=(), *, fill=None, dims=None):
    """The tile of `array` that starts at element `starts`, one index for each dimension of the array.

    `shape`: the tile's extents; () gives a scalar. A tile of fewer dimensions than the array covers the last ones, or those that
    `dims` names. Past an edge it reads 0, or `fill`. `array[m : m + 128, k : k + 64]` is the same, in NumPy's words.
    """


@_word
def store(array, starts, value, *, dims=None):
    """Write a tile, or a scalar, to `array` from element `starts` on; past an edge nothing is written.

    `array[m : m + 128, k : k + 64] = value` is the same, and broadcasts `value`.
    """


# Making tiles


@_word
def zeros(shape, dtype):
    """A tile of zeros."""


@_word
def full(shape, value, dtype=None):
    """A tile of one value; a Python number needs a `dtype`."""


@_word
def arange(start, stop=None, step=1, dtype=None):
    """The tile [start, start + step, …) up to `stop`, all three compile-time integers; i32 unless `dtype` is i64."""


@_word
def iota(shape, axis=0, dtype=None):
    """Each element's coordinate along `axis`; i32 unless `dtype` is i64."""


# Shapes


@_word
def reshape(x, shape):
    """The same elements in row-major order under another shape; one extent may be -1."""


@_word
def transpose(x, axes=None):
    """Dimension i of the result is `axes[i]` of `x`; without `axes` the last two are swapped, as `x.T` does."""


@_word
def expand_dims(x, axis):
    """A new dimension of extent 1 at `axis`, as `x[:, None]`."""


@_word
def broadcast_to(x, shape):
    """`x` repeated along its extents of 1, and along new leading dimensions, to `shape`."""


# Elementwise


@_word
def where(condition, x, y):
    """`x` where `condition` (i1) holds, else `y`; all three broadcast. Both are computed."""


@_word
def cast(x, dtype, *, saturate=False):
    """`x` converted, rounded once to nearest even; `saturate` gives the largest finite number instead of infinity. As `x.to(dtype)`."""


@_word
def maximum(x, y):
    """The larger of two, elementwise; NaN if either is NaN."""


@_word
def minimum(x, y):
    """The smaller of two, elementwise; NaN if either is NaN."""


@_word
def fma(x, y, z):
    """x·y + z, rounded once (floats)."""


@_word
def exp(x):
    """eˣ (floats), approximate."""


@_word
def exp2(x):
    """2ˣ (floats), approximate."""


@_word
def log(x):
    """The natural logarithm (floats), approximate."""


@_word
def log2(x):
    """The logarithm to base 2 (floats), approximate."""


@_word
def sqrt(x):
    """The square root (floats), correctly rounded in f32 and f64."""


@_word
def rsqrt(x):
    """1/√x (floats), approximate."""


@_word
def tanh(x):
    """The hyperbolic tangent (floats), approximate."""


@_word
def sin(x):
    """The sine (floats), approximate, of radians."""


@_word
def cos(x):
    """The cosine (floats), approximate, of radians."""


@_word
def abs(x):
    """The absolute value; Python's `abs` is the same."""


@_word
def floor(x):
    """The largest integer not above `x`, as a float."""


@_word
def ceil(x):
    """The smallest integer not below `x`, as a float."""


# Reductions


@_word
def sum(x, axis=None, *, keepdims=False):
    """The sum along `axis` (an integer, several, or None for all). 16-bit floats are summed in f32 and rounded once."""


@_word
def prod(x, axis=None, *, keepdims=False):
    """The product along `axis`."""


@_word
def max(x, axis=None, *, keepdims=False):
    """The maximum along `axis`; NaN if any is NaN."""


@_word
def min(x, axis=None, *, keepdims=False):
    """The minimum along `axis`; NaN if any is NaN."""


@_word
def argmax(x, axis, *, keepdims=False):
    """The index (i32) of the first maximum along `axis`; NaN counts as larger than every number."""


@_word
def argmin(x, axis, *, keepdims=False):
    """The index (i32) of the first minimum along `axis`; NaN counts as smaller than every number."""


# Matrices


@_word
def dot(a, b, acc=None):
    """acc + a·b for tiles M×K and K×N, and batches of them. `acc` is f32 for f16, bf16 and f32 operands, f64 for f64, i32 for i8; without it
    it is zero. `acc + a @ b` is the same."""


# Facts


@_word
def assume(fact):
    """`tesela.assume(K % 64 == 0)`: callers promise it, launches check it, and the compiler may rely on it."""


@_word
def ceildiv(a, b):
    """a/b rounded up: of integers or dimensions anywhere, of index values and integers inside a kernel."""


ceildiv.outside = _ceildiv
