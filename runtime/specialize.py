"""Launch variants: the same `tile.kernel` with more attributes, stating what a call's arrays happen to satisfy.

A call is summed up in a `Facts`: which power of two (up to 16 bytes) divides each array's base address and strides, which arrays overlap
no other that is written, which power of two (up to 16) divides each dimension. `specialize` states these facts on a clone of the kernel, as
`align`, `noalias` and `divisible`, beside what the program itself states; the compiler does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dialects.diagnostics import TeselaError
from ..dialects.dim_expr import DimExpr, DimExprError
from ..dialects.launch_plan import ArrayArg, ScalarArg
from .arrays import ArrayView
from .contract import Contract
from .space import TRUTHS

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import SSAValue

    from ..dialects.tile import KernelOp

ALIGNMENT = 16
"""What TMA (CUDA driver API, cuTensorMapEncodeTiled) and the widest loads and stores of a thread want, in bytes."""

MAX_STRIDE = 1 << 40

DIVISORS = (16, 8, 4)
"""Divisors of a dimension that are told apart; 16 elements of one byte, 8 of two and 4 of four make 16 bytes."""


@dataclass(frozen=True)
class Facts:
    """What a variant may assume: (array, bytes) that base address and strides are multiples of, arrays that overlap no other that is
    written, and (dimension, divisor); each sorted by name. `alone`: the grid does not suit clusters of blocks (`LaunchPlan.suits`), so that blocks
    are to be by themselves, unless clusters are asked for."""

    aligned: tuple[tuple[str, int], ...] = ()
    noalias: tuple[str, ...] = ()
    divisors: tuple[tuple[str, int], ...] = ()
    alone: bool = False

    def __str__(self) -> str:
        parts = [f"{name} aligned to {nbytes}" for name, nbytes in self.aligned]
        parts += [f"{name} noalias" for name in self.noalias]
        parts += [f"{name} divisible by {divisor}" for name, divisor in self.divisors]
        parts += ["blocks alone"] if self.alone else []
        return ", ".join(parts) or "nothing assumed"

    def imply(self, other: Facts) -> bool:
        """Whether a variant under `other` is right where these hold."""
        aligned, divisors = dict(self.aligned), dict(self.divisors)
        return (
            all(nbytes == 1 or aligned.get(name, 1) % nbytes == 0 for name, nbytes in other.aligned)
            and set(other.noalias) <= set(self.noalias)
            and all(divisors.get(name, 1) % divisor == 0 for name, divisor in other.divisors)
        )

    @property
    def strength(self) -> int:
        """How much they state: a number that is larger for facts that imply others."""
        powers = [value.bit_length() - 1 for _, value in (*self.aligned, *self.divisors)]
        return sum(powers) + len(self.noalias)


def facts_of(
    contract: Contract,
    views: Sequence[ArrayView | None],
    dims: Mapping[str, int],
    overlaps: Sequence[tuple[int, int]],
) -> Facts:
    """The facts of a call. An alignment of no more than an element says nothing and is left out, unless the program states another."""
    aligned = []
    for arg, seen in zip(contract.args, views):
        if isinstance(arg, ArrayArg) and seen is not None:
            nbytes = alignment(arg, seen)
            if nbytes > seen.itemsize or arg.name in contract.align:
                aligned.append((arg.name, nbytes))
    touched = {position for pair in overlaps for position in pair}
    noalias = [arg.name for i, arg in enumerate(contract.args) if isinstance(arg, ArrayArg) and i not in touched]
    divisors = []
    for symbol, value in dims.items():
        divisor = next((d for d in DIVISORS if value % d == 0), 1)
        if divisor > 1:
            divisors.append((symbol, divisor))
    return Facts(tuple(sorted(aligned)), tuple(sorted(noalias)), tuple(sorted(divisors)))


def alignment(arg: ArrayArg, seen: ArrayView) -> int:
    """The largest power of two up to ALIGNMENT that divides the base address and all strides not stated to be 1, in bytes.

    ALIGNMENT itself only where a tensor map can describe the array, which takes no extent of 0 and positive strides below 2^40
    bytes (CUDA driver API, cuTensorMapEncodeTiled): half of it otherwise, and 1 for an empty array. Dimensions of extent 1
    have no stride to speak of.
    """
    if 0 in seen.shape:
        return 1
    strides = [
        stride * seen.itemsize
        for required, stride, extent in zip(arg.strides, seen.strides, seen.shape)
        if required != 1 and extent > 1
    ]
    found = math.gcd(ALIGNMENT, seen.address, *strides)
    return found if all(0 < stride < MAX_STRIDE for stride in strides) else min(found, ALIGNMENT // 2)


def usual_facts(contract: Contract) -> Facts:
    """What holds for arrays that were freshly allocated with rows of a multiple of 16 bytes, of any size."""
    names = sorted(arg.name for arg in contract.args if isinstance(arg, ArrayArg))
    return Facts(tuple((name, ALIGNMENT) for name in names), tuple(names))


def weakest_facts(contract: Contract) -> Facts:
    """What holds for every call: of an array that the program states to be aligned nothing either, since it may be empty."""
    return Facts(tuple((name, 1) for name in sorted(contract.align)))


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
    flops, nbytes = (_amount(kernel, name) for name in AMOUNTS)
    return Contract(kernel.sym_name.data, tuple(args), grid, align, divisors, flops, nbytes)


AMOUNTS = ("flops", "nbytes")
"""Attributes of a kernel that state what a launch amounts to, as text: `attributes {flops = "2 * M * N * K"}`."""


def _amount(kernel: KernelOp, name: str) -> str:
    """What a kernel states that a launch amounts to. Raises TeselaError for what is no expression of its dimensions."""
    from xdsl.dialects.builtin import StringAttr

    stated = kernel.attributes.get(name)
    if stated is None:
        return ""
    try:
        if not isinstance(stated, StringAttr):
            raise DimExprError(f"found {stated}, which is no text")
        unknown = [symbol for symbol in DimExpr.parse(stated.data).symbols() if symbol not in kernel.symbols()]
        if unknown:
            raise DimExprError(f"there is no dimension {unknown[0]}; the kernel's: {', '.join(kernel.symbols()) or 'none'}")
    except DimExprError as error:
        raise TeselaError.at(kernel, f"{name}: {error}", f'an expression of the dimensions is required, {name} = "2 * M * N"') from None
    return stated.data


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


def specialize(module: ModuleOp, name: str, facts: Facts, pins: Mapping[str, int] | None = None) -> ModuleOp:
    """A new module that holds a clone of kernel `name` alone, with the facts stated on it beside what the program states, and
    with `pins`, which override it."""
    from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, UnitAttr, i1, i64

    kernel = kernels_of(module)[name].clone()
    attrs = []
    aligned = dict(facts.aligned)
    for arg, stated in zip(kernel.names, kernel.arg_attrs.data):
        entries = dict(stated.data)
        found = aligned.get(arg)
        if found is not None:
            # Where the fact is weaker than what is stated, the array is empty or runs backwards: the stated holds, but is of no use.
            before = entries.get("align")
            if found == ALIGNMENT and isinstance(before, IntegerAttr):
                found = max(found, before.value.data)
            entries["align"] = IntegerAttr(found, i64)
        if arg in facts.noalias:
            entries["noalias"] = UnitAttr()
        attrs.append(DictionaryAttr(entries))
    kernel.properties["arg_attrs"] = ArrayAttr(attrs)
    if facts.divisors:
        divisors = dict(kernel.divisors.data) if kernel.divisors is not None else {}
        for symbol, divisor in facts.divisors:
            divisors[symbol] = IntegerAttr(math.lcm(divisor, kernel.divisor(symbol)), i64)
        kernel.properties["divisors"] = DictionaryAttr(divisors)
    if facts.alone:
        kernel.attributes.setdefault("cluster", IntegerAttr(1, i64))
    for choice, value in (pins or {}).items():
        kernel.attributes[choice] = IntegerAttr(-int(value), i1) if choice in TRUTHS else IntegerAttr(int(value), i64)
    result = ModuleOp([kernel])
    result.attributes.update(module.attributes)
    result.location = module.location
    return result
