"""Smaller modules of IR, at any level: kernels and operations taken out, regions put in the place of their operations, numbers and shapes made smaller.

An operation that is taken out leaves its uses to another value of the same type: one of its operands (of a loop: what the loop started from), a
constant, or one that was computed before. What is tried is always text that parses, and that verifies if the input did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    BFloat16Type,
    DenseIntOrFPElementsAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from ...dialects.diagnostics import TeselaError
from ...dialects.parsing import parse_module, print_module
from ...dialects.verify import verify_module
from .search import Search

FLOATS = (BFloat16Type, Float16Type, Float32Type, Float64Type)


class NoValue(Exception):
    """There is nothing that could stand for a result."""


def check(text: str) -> None:
    """Raises TeselaError for text that is no module, or does not verify."""
    verify_module(parse_module(text))


class Reducer:
    """Passes over IR. `verified`: whether candidates must verify."""

    def __init__(self, verified: bool):
        self.verified = verified
        self.passes = (self.drop_kernels, self.drop_operations, self.open_regions, self.drop_attributes, self.smaller_constants, self.smaller_shapes)

    def text(self, module: ModuleOp) -> str | None:
        """A module's text, if it may be tried."""
        try:
            return self.checked(print_module(module))
        except TeselaError:
            return None

    def checked(self, text: str) -> str | None:
        try:
            module = parse_module(text)
            if self.verified:
                verify_module(module)
        except TeselaError:
            return None
        return text

    def drop_kernels(self, search: Search) -> bool:
        count = len(list(parse_module(search.text).body.block.ops))
        start = search.text

        def without(dropped: Sequence[int]) -> str | None:
            module = parse_module(start)
            ops = list(module.body.block.ops)
            for number in dropped:
                ops[number].detach()
            return self.text(module) if len(dropped) < count else None

        return search.subsets(range(count), without)

    def drop_operations(self, search: Search) -> bool:
        start = search.text
        numbers = [k for k, op in enumerate(parse_module(start).walk()) if _removable(op)]

        def without(dropped: Sequence[int]) -> str | None:
            module = parse_module(start)
            ops = list(module.walk())
            try:
                for number in sorted(dropped, reverse=True):
                    _take_out(ops[number])
            except NoValue:
                return None
            return self.text(module)

        # The last operations first: what nobody uses any more goes easily.
        return search.subsets(numbers[::-1], without)

    def open_regions(self, search: Search) -> bool:
        """The body of a loop or a branch in its place."""

        def change(op: Operation) -> Iterator[Callable[[Operation], None]]:
            for number in range(len(op.regions)):
                yield lambda target, number=number: _open(target, number)

        return self._each_op(search, change)

    def drop_attributes(self, search: Search) -> bool:
        def change(op: Operation) -> Iterator[Callable[[Operation], None]]:
            for name in op.attributes:
                yield lambda target, name=name: _without_attribute(target, name)

        return self._each_op(search, change)

    def smaller_constants(self, search: Search) -> bool:
        def change(op: Operation) -> Iterator[Callable[[Operation], None]]:
            if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
                value = op.value.value.data
                for smaller in (0, 1, value // 2):
                    if 0 <= smaller < value:
                        yield lambda target, smaller=smaller: _set_constant(target, smaller)

        return self._each_op(search, change)

    def smaller_shapes(self, search: Search) -> bool:
        """Every extent that stands in a type, everywhere at once: as constants and in attributes too."""
        extents = {int(n) for shape in re.findall(r"<((?:\d+x)+)", search.text) for n in shape.split("x") if n}
        taken = False
        for extent in sorted(extents, reverse=True):
            for smaller in (1, 16, extent // 2):
                if smaller < extent:
                    taken |= search.attempt(self.checked(_replaced(search.text, extent, smaller)))
        return taken

    def _each_op(self, search: Search, change: Callable[[Operation], Iterator[Callable[[Operation], None]]]) -> bool:
        """Tries changes of single operations, from the last to the first: what a change moves comes after it."""
        taken = False
        number = len(list(parse_module(search.text).walk()))
        while number:
            number -= 1
            ops = list(parse_module(search.text).walk())
            if number >= len(ops):
                continue
            for apply in change(ops[number]):
                module = parse_module(search.text)
                try:
                    apply(list(module.walk())[number])
                except NoValue:
                    continue
                if search.attempt(self.text(module)):
                    taken = True
                    break
        return taken


def _removable(op: Operation) -> bool:
    parent = op.parent_op()
    return parent is not None and not isinstance(parent, ModuleOp) and not op.has_trait(IsTerminator) and not _settled(op)


def _settled(op: Operation) -> bool:
    """A constant of zero that somebody uses: it may stand for what was taken out."""
    return isinstance(op, arith.ConstantOp) and op.value == _zero(op.result.type) and bool(op.result.uses)


def _take_out(op: Operation) -> None:
    """Removes an operation. Raises NoValue where nothing can stand for a result that is used."""
    for number, result in enumerate(op.results):
        if result.uses:
            result.replace_all_uses_with(_substitute(op, result, number))
    op.detach()
    op.drop_all_references()


def _substitute(op: Operation, result: SSAValue, number: int) -> SSAValue:
    kind = result.type
    alike = [operand for operand in op.operands if operand.type == kind]
    if alike:
        # The results of a loop stand in the order of what it starts from, which comes last among its operands.
        results = [k for k, other in enumerate(op.results) if other.type == kind]
        return alike[max(0, len(alike) - len(results) + results.index(number))] if len(alike) >= len(results) else alike[0]
    zero = _zero(kind)
    if zero is not None:
        constant = arith.ConstantOp(zero, kind)
        assert op.parent is not None
        op.parent.insert_op_before(constant, op)
        return constant.result
    return _earlier(op, kind)


def _zero(kind: Attribute) -> Attribute | None:
    """The value of a constant of zeros, if there is one of this type."""
    if isinstance(kind, IntegerType | IndexType):
        return IntegerAttr(0, kind)
    if isinstance(kind, FLOATS):
        return FloatAttr(0.0, kind)
    if isinstance(kind, TensorType | VectorType) and kind.has_static_shape():
        if isinstance(kind.element_type, FLOATS):
            return DenseIntOrFPElementsAttr.from_list(kind, [0.0])
        if isinstance(kind.element_type, IntegerType | IndexType):
            return DenseIntOrFPElementsAttr.from_list(kind, [0])
    return None


def _earlier(op: Operation, kind: Attribute) -> SSAValue:
    """A value of a type that was computed before an operation. Raises NoValue."""
    here: Operation | None = op
    while here is not None and not isinstance(here, ModuleOp):
        block = here.parent
        if block is None:
            break
        before = here.prev_op
        while before is not None:
            for value in before.results:
                if value.type == kind:
                    return value
            before = before.prev_op
        for argument in block.args:
            if argument.type == kind:
                return argument
        here = block.parent_op()
    raise NoValue


def _open(op: Operation, number: int) -> None:
    """Puts what is in a region of one block in the place of its operation. Raises NoValue where arguments or results cannot be had."""
    parent = op.parent_op()
    region = op.regions[number]
    if parent is None or isinstance(parent, ModuleOp) or len(region.blocks) != 1:
        raise NoValue
    block: Block = region.block
    end = block.last_op
    given = list(end.operands) if end is not None and end.has_trait(IsTerminator) else []
    if [value.type for value in given] != [result.type for result in op.results]:
        raise NoValue
    used: dict[Attribute, int] = {}
    for argument in block.args:
        alike = [operand for operand in op.operands if operand.type == argument.type]
        at = used.get(argument.type, 0)
        used[argument.type] = at + 1
        argument.replace_all_uses_with(alike[min(at, len(alike) - 1)] if alike else _earlier(op, argument.type))
    given = list(end.operands) if given and end is not None else []
    if end is not None and end.has_trait(IsTerminator):
        end.detach()
    assert op.parent is not None
    for inner in list(block.ops):
        inner.detach()
        op.parent.insert_op_before(inner, op)
    for result, value in zip(op.results, given):
        result.replace_all_uses_with(value)
    op.detach()
    op.drop_all_references()


def _without_attribute(op: Operation, name: str) -> None:
    del op.attributes[name]


def _set_constant(op: Operation, value: int) -> None:
    assert isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr)
    op.properties["value"] = IntegerAttr(value, op.value.type)


def _replaced(text: str, old: int, new: int) -> str:
    """The text with a number in place of another, wherever it stands for itself."""
    return re.sub(rf"(?<![\w.%@#]){old}(?=x|\b)(?![.\d])|(?<=x){old}(?=x)", str(new), text)
