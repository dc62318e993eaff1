"""How wide a vector may be that moves neighbouring elements of a tile to or from an array: what is known before layouts are.

A vector access must be aligned, and inside or outside of the array as a whole. Alignment comes from the argument's `align` (of its base and its
strides) and from what divides the tile's start; wholeness from what divides the array's extent and the tile's own, or from a
test, made at run time, that the whole tile is inside.
"""

from __future__ import annotations

from math import gcd

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, IntegerAttr, MemRefType, TensorType, i1
from xdsl.ir import Attribute, SSAValue

from ..dialects import tile
from ..dialects.target import Target
from ..dialects.tile_indexed import Indexed
from ..dialects.tile_types import memory_bytes, static_strides
from .divisibility import ZERO_DIVISOR, Divisibility

VECTOR_BYTES = 16
"""`ld` and `st` move 16 bytes at most (PTX ISA 9.0 §9.7.9.8)."""
BOOL_VECTOR = 4
"""Elements of i1 that one access moves at most: `v4.b8`."""


def argument_index(kernel: tile.KernelOp, array: SSAValue) -> int:
    """Which of the kernel's arguments an array is."""
    return next(index for index, value in enumerate(kernel.args) if value is array)


def argument_align(kernel: tile.KernelOp, array: SSAValue) -> int:
    """Bytes that the array's base address, and every stride but unit ones, are multiples of."""
    stated = kernel.arg_attr(argument_index(kernel, array), "align")
    assert isinstance(array.type, MemRefType)
    return stated.value.data if isinstance(stated, IntegerAttr) else memory_bytes(array.type.element_type)


def extent_divisor(kernel: tile.KernelOp, array: SSAValue, dim: int) -> int:
    """A number that divides the array's extent along `dim`, as far as the contract states it."""
    exprs = kernel.shape_exprs(argument_index(kernel, array))
    assert exprs is not None
    expr = exprs[dim]
    if expr.op == "int":
        return int(expr.value) or ZERO_DIVISOR
    return kernel.divisor(str(expr.value)) if expr.op == "sym" else 1


def vector_access(
    kernel: tile.KernelOp, facts: Divisibility, op: tile.LoadOp | tile.StoreOp | Indexed, whole: bool = False
) -> tuple[int | None, int]:
    """(the tile's dimension along which elements lie side by side, how many of them may move together): (None, 1) where no
    dimension is known to have stride 1. The number is a power of two. `whole`: for a tile that lies inside the array altogether."""
    array, dims = op.array, op.tile_dims()
    kind = array.type
    assert isinstance(kind, MemRefType)
    strides = static_strides(kind)
    unit = [position for position, dim in enumerate(dims) if dim >= 0 and strides[dim] == 1]
    if len(unit) != 1:
        return (unit[0] if unit else None), 1
    position = unit[0]
    dim = dims[position]
    if isinstance(op, Indexed) and any(
        isinstance(index.type, TensorType) and tile.shape_of(index.type)[position] != 1 for index in op.indices
    ):
        return position, 1  # neighbours along it are not at neighbouring places: an index differs, too
    size = memory_bytes(kind.element_type)
    accessed = op.accessed if isinstance(op, Indexed) else op.res.type if isinstance(op, tile.LoadOp) else op.value.type
    aligned = argument_align(kernel, array) // size
    for other, stride in enumerate(strides):
        if other != dim and stride is not None:
            aligned = gcd(aligned, stride)
    width = gcd(
        aligned,
        facts.divisor(op.indices[dim]),
        0 if whole else extent_divisor(kernel, array, dim),
        tile.shape_of(accessed)[position],
        VECTOR_BYTES // size if kind.element_type != i1 else BOOL_VECTOR,
    )
    return position, max(1, width & -width)


def vector_form(bits: int, vector: int) -> str:
    """The type of one access of `vector` elements of `bits` each as instructions spell it: 16-bit elements in pairs, 8-bit ones in fours, where there are
    so many, and predicates in bytes."""
    size = max(8, bits)
    if bits in (8, 16) and vector >= 32 // bits:
        size, vector = 32, vector * bits // 32
    return f"v{vector}.b{size}" if vector > 1 else f"b{size}"


def vector_widths(bits: int) -> list[int]:
    """How many elements one access may move, as far as their size says."""
    most = BOOL_VECTOR if bits == 1 else 8 * VECTOR_BYTES // bits
    return [1 << i for i in range(most.bit_length())]


def update_width(kernel: tile.KernelOp, facts: Divisibility, op: tile.AtomicOp, target: Target) -> tuple[int | None, int]:
    """(the dimension along which elements lie side by side, how many of them one atomic update may change): more than one where floats are added
    and their neighbours along a dimension of stride 1 have the same index, aligned. PTX has `red` and `atom` for two, four or eight, of sm_90 on (PTX ISA 9.0 §9.7.13)."""
    element = op.array.type.element_type
    if op.kind.data is not tile.AtomicKind.ADD or not target.has_clusters:
        return None, 1
    if not isinstance(element, Float32Type | Float16Type | BFloat16Type):
        return None, 1
    return vector_access(kernel, facts, op)


def vector_update(element: Attribute, vector: int, result: bool = False) -> str:
    """The instruction that adds `vector` neighbours, halves two to a register. `result`: and returns what was there."""
    name = "atom" if result else "red"
    if isinstance(element, Float32Type):
        return f"{name}.global.add.v{vector}.f32"
    pair = "bf16x2" if isinstance(element, BFloat16Type) else "f16x2"
    return f"{name}.global.add.noftz.{pair}" if vector == 2 else f"{name}.global.add.noftz.v{vector // 2}.{pair}"
