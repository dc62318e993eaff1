"""`inside`: the operations of some kinds that stand in another. `[op for op in root.walk() if isinstance(op, kinds)]`, at a fifth of the cost.

A pass asks such things of a whole kernel again and again. xDSL's `walk` is a generator for each region and block round an op, and its classes
are abstract ones to Python, whose `isinstance` then takes several calls where the answer is no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, overload

from xdsl.ir import Operation, Region

if TYPE_CHECKING:
    from .tile_kernel import KernelOp

A = TypeVar("A", bound=Operation)
B = TypeVar("B", bound=Operation)
C = TypeVar("C", bound=Operation)


@overload
def inside(root: Operation | Region, first: type[A]) -> list[A]: ...
@overload
def inside(root: Operation | Region, first: type[A], second: type[B]) -> list[A | B]: ...
@overload
def inside(root: Operation | Region, first: type[A], second: type[B], third: type[C]) -> list[A | B | C]: ...
def inside(root: Operation | Region, *kinds: type[Operation]) -> list[Operation]:
    """The ops of exactly these classes in `root`, itself included, in the order of `walk`."""
    found: list[Operation] = []
    if isinstance(root, Region):
        _gather(root, kinds, found)
        return found
    if type(root) in kinds:
        found.append(root)
    for region in root.regions:
        _gather(region, kinds, found)
    return found


def _gather(region: Region, kinds: tuple[type[Operation], ...], found: list[Operation]) -> None:
    for block in region.blocks:
        op = block.first_op
        while op is not None:
            if type(op) in kinds:
                found.append(op)
            if op.regions:
                for inner in op.regions:
                    _gather(inner, kinds, found)
            op = op.next_op


def kernels_in(module: Operation) -> list[KernelOp]:
    """The kernels of a module, in order."""
    from .tile_kernel import KernelOp

    return [op for region in module.regions for block in region.blocks for op in block.ops if isinstance(op, KernelOp)]
