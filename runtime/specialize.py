"""Launch variants: the same `tile.kernel` with more attributes, stating what a call's arrays happen to satisfy.

A call is summed up in a `Facts`: which arrays have a base address and strides that are multiples of 16 bytes, which overlap no other
that is written, which power of two (up to 16) divides each dimension. `specialize` states these facts on a clone of the kernel, as
`align`, `noalias` and `divisible`, beside what the program itself states; the compiler does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dialects.launch_plan import ArrayArg, ScalarArg
from .arrays import ArrayView
from .contract import Contract

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import SSAValue

    from ..dialects.tile import KernelOp

ALIGNMENT = 16
"""What TMA (CUDA driver API, cuTensorMapEncodeTiled) and the widest loads and stores of a thread want, in bytes."""

DIVISORS = (16, 8, 4)
"""Divisors of a dimension that are told apart; 16 elements of one byte, 8 of two and 4 of four make 16 bytes."""


@dataclass(frozen=True)
class Facts:
    """What a variant may assume: arrays by name, and (dimension, divisor) pairs; each sorted."""

    aligned: tuple[str, ...] = ()
    noalias: tuple[str, ...] = ()
    divisors: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        parts = [f"{name} aligned to {ALIGNMENT}" for name in self.aligned]
        parts += [f"{name} noalias" for name in self.noalias]
        parts += [f"{name} divisible by {divisor}" for name, divisor in self.divisors]
        return ", ".join(parts) or "nothing assumed"


def facts_of(
    contract: Contract,
    views: Sequence[ArrayView | None],
    dims: Mapping[str, int],
    overlaps: Sequence[tuple[int, int]],
) -> Facts:
    """The facts of a call. Dimensions of extent 1 have no stride to speak of; an empty array counts as unaligned, since no tensor map
    describes it."""
    aligned = []
    for arg, seen in zip(contract.args, views):
        if isinstance(arg, ArrayArg) and seen is not None and is_aligned(arg, seen):
            aligned.append(arg.name)
    touched = {position for pair in overlaps for position in pair}
    noalias = [arg.name for i, arg in enumerate(contract.args) if isinstance(arg, ArrayArg) and i not in touched]
    divisors = []
    for symbol, value in dims.items():
        divisor = next((d for d in DIVISORS if value % d == 0), 1)
        if divisor > 1:
            divisors.append((symbol, divisor))
    return Facts(tuple(sorted(aligned)), tuple(sorted(noalias)), tuple(sorted(divisors)))


def is_aligned(arg: ArrayArg, seen: ArrayView) -> bool:
    """Whether base address and all strides that are not stated to be 1 are multiples of ALIGNMENT bytes."""
    if 0 in seen.shape:
        return False
    if seen.address % ALIGNMENT:
        return False
    return all(
        required == 1 or extent == 1 or stride * seen.itemsize % ALIGNMENT == 0
        for required, stride, extent in zip(arg.strides, seen.strides, seen.shape)
    )


def usual_facts(contract: Contract) -> Facts:
    """What holds for arrays that were freshly allocated with rows of a multiple of 16 bytes, of any size."""
    names = tuple(sorted(arg.name for arg in contract.args if isinstance(arg, ArrayArg)))
    return Facts(names, names)


def kernels_of(module: ModuleOp) -> dict[str, KernelOp]:
    """The kernels of a module by name, in order."""
    from ..dialects.tile import KernelOp

    return {op.sym_name.data: op for op in module.ops if isinstance(op, KernelOp)}


def contract_of(kernel: KernelOp) -> Contract:
    """The contract that a `tile.kernel` states."""
    from xdsl.dialects.builtin import IntegerAttr, MemRefType, NoneAttr, StridedLayoutAttr

    args: list[ArrayArg | ScalarArg] = []
    align: dict[str, int] = {}
    for position, (name, value) in enumerate(zip(kernel.names, kernel.args)):
        kind = value.type
        if not isinstance(kind, MemRefType):
            args.append(ScalarArg(name, str(kind)))
            continue
        exprs = kernel.shape_exprs(position) or ()
        strides: list[int | None]
        if isinstance(kind.layout, StridedLayoutAttr):
            strides = [None if isinstance(s, NoneAttr) else s.data for s in kind.layout.strides.data]
        else:
            strides = list(_dense([int(e.value) if e.op == "int" else None for e in exprs]))
        access = _access(value)
        noalias = kernel.arg_attr(position, "noalias") is not None
        args.append(ArrayArg(name, str(kind.element_type), tuple(map(str, exprs)), tuple(strides), access, noalias))
        stated = kernel.arg_attr(position, "align")
        if isinstance(stated, IntegerAttr):
            align[name] = stated.value.data
    divisors = {symbol: kernel.divisor(symbol) for symbol in (kernel.divisors.data if kernel.divisors is not None else ())}
    grid = tuple(str(entry.data) for entry in kernel.grid.data)
    return Contract(kernel.sym_name.data, tuple(args), grid, align, divisors)


def _dense(extents: Sequence[int | None]) -> tuple[int | None, ...]:
    """Row-major strides; None above a dimension whose extent is only known at launch."""
    strides: list[int | None] = []
    step: int | None = 1
    for extent in reversed(extents):
        strides.append(step)
        step = None if step is None or extent is None else step * extent
    return tuple(reversed(strides))


def _access(array: SSAValue) -> str:
    """'r', 'w' or 'rw': the memory effects of the operations that take the array. One that nothing takes is 'r'."""
    from xdsl.traits import MemoryReadEffect, MemoryWriteEffect

    reads = writes = False
    for use in array.uses:
        reads |= use.operation.has_trait(MemoryReadEffect)
        writes |= use.operation.has_trait(MemoryWriteEffect)
    return "rw" if reads and writes else "w" if writes else "r"


def specialize(module: ModuleOp, name: str, facts: Facts) -> ModuleOp:
    """A new module that holds a clone of kernel `name` alone, with the facts stated on it. Stronger statements of the program stay."""
    from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, UnitAttr, i64

    kernel = kernels_of(module)[name].clone()
    attrs = []
    for arg, stated in zip(kernel.names, kernel.arg_attrs.data):
        entries = dict(stated.data)
        if arg in facts.aligned:
            old = entries.get("align")
            entries["align"] = IntegerAttr(max(ALIGNMENT, old.value.data if isinstance(old, IntegerAttr) else 1), i64)
        if arg in facts.noalias:
            entries["noalias"] = UnitAttr()
        attrs.append(DictionaryAttr(entries))
    kernel.properties["arg_attrs"] = ArrayAttr(attrs)
    if facts.divisors:
        divisors = dict(kernel.divisors.data) if kernel.divisors is not None else {}
        for symbol, divisor in facts.divisors:
            divisors[symbol] = IntegerAttr(math.lcm(divisor, kernel.divisor(symbol)), i64)
        kernel.properties["divisors"] = DictionaryAttr(divisors)
    result = ModuleOp([kernel])
    result.attributes.update(module.attributes)
    result.location = module.location
    return result
