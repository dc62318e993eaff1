"""New operations of a pass, collected before they are put somewhere: each at the source location of what it comes from."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue


class NewOps:
    """Operations in order, at the location of `at`. What a pass computes of scalars is a method of a class derived from this."""

    def __init__(self, at: Operation) -> None:
        self.at = at
        self.ops: list[Operation] = []

    def put(self, op: Operation) -> None:
        """Adds an operation."""
        op.location = self.at.location
        self.ops.append(op)

    def add(self, op: Operation) -> SSAValue:
        """Adds an operation that has one result, and gives that."""
        self.put(op)
        (result,) = op.results
        return result

    def constant(self, value: int, kind: Attribute) -> SSAValue:
        """An integer or index constant."""
        return self.add(arith.ConstantOp.create(result_types=[kind], properties={"value": IntegerAttr(value, kind)}))
