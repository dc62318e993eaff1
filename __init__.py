"""Tesela: tile programs in, NVIDIA GPU kernels out.

The public names, each loaded from its module when it is first used: importing this package loads neither xDSL nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WORDS = (
    "grid range static_range load store zeros full arange iota reshape transpose expand_dims broadcast_to where cast maximum minimum fma "
    "exp exp2 log log2 sqrt rsqrt tanh sin cos abs floor ceil sum prod max min argmax argmin dot assume ceildiv"
)
_EXPORTS = {
    ".frontend.kernel": "kernel function KernelFunction",
    ".frontend.types": "Array Dim DType dims constexpr strides align noalias f16 bf16 f32 f64 i1 i8 i16 i32 i64 index",
    ".frontend.words": _WORDS,
    ".runtime.compile": "compile",
    ".runtime.kernel": "Kernel",
    ".dialects.diagnostics": "TeselaError",
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 -- strings, computed from one table


def __getattr__(name: str) -> Any:
    if (module := _MODULES.get(name)) is None:
        raise AttributeError(f"module 'tesela' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


if TYPE_CHECKING:
    from .dialects.diagnostics import TeselaError
    from .frontend.kernel import KernelFunction, function, kernel
    from .frontend.types import (
        Array,
        Dim,
        DType,
        align,
        bf16,
        constexpr,
        dims,
        f16,
        f32,
        f64,
        i1,
        i8,
        i16,
        i32,
        i64,
        index,
        noalias,
        strides,
    )
    from .frontend.words import (
        abs,
        arange,
        argmax,
        argmin,
        assume,
        broadcast_to,
        cast,
        ceil,
        ceildiv,
        cos,
        dot,
        exp,
        exp2,
        expand_dims,
        floor,
        fma,
        full,
        grid,
        iota,
        load,
        log,
        log2,
        max,
        maximum,
        min,
        minimum,
        prod,
        range,
        reshape,
        rsqrt,
        sin,
        sqrt,
        static_range,
        store,
        sum,
        tanh,
        transpose,
        where,
        zeros,
    )
    from .runtime.compile import compile
    from .runtime.kernel import Kernel
