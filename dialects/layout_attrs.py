"""The layout dialect: layouts as attributes of tensors and buffers, and the one operation that changes a layout.

    tensor<128x64xf32, #layout.tv<thread [4:(0,2), 8:(1,0), 4:(16,0)], value [2:(0,1), 2:(8,0), 8:(0,8)]>>
    !async.buffer<128x64xbf16, #layout.shared<[128:64], [64:1], swizzle<3, 3, 3>>>
    %y = layout.convert %x : tensor<16x8xf32, #layout.tv<...>> -> tensor<16x8xf32, #layout.tv<...>>

An attribute holds one frozen object of the algebra (`tesela.dialects.layout`) in *normal form*, whatever form it was
built or written in: so attributes, and the types that carry them, are equal exactly when the layouts are equal
functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from math import prod

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Data, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .layout import LayoutError, Mode, SharedLayout, Swizzle, TVLayout


def _parse_natural(parser: AttrParser) -> int:
    return parser.parse_integer(allow_boolean=False, allow_negative=False)


def _parse_digit(parser: AttrParser) -> tuple[int, int]:
    extent = _parse_natural(parser)
    parser.parse_punctuation(":")
    return extent, _parse_natural(parser)


def _parse_modes(parser: AttrParser, keyword: str) -> tuple[Mode, ...]:
    def mode() -> Mode:
        extent = _parse_natural(parser)
        parser.parse_punctuation(":")
        return Mode(
            extent, tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, partial(_parse_natural, parser)))
        )

    parser.parse_keyword(keyword)
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, mode))


def _parse_swizzle(parser: AttrParser) -> Swizzle:
    parser.parse_keyword("swizzle")
    with parser.in_angle_brackets():
        bits = _parse_natural(parser)
        parser.parse_punctuation(",")
        base = _parse_natural(parser)
        parser.parse_punctuation(",")
        return Swizzle(bits, base, parser.parse_integer(allow_boolean=False))


@contextmanager
def _layout_body(parser: AttrParser) -> Iterator[None]:
    """The text between angle brackets; a LayoutError in it becomes a parse error at that text."""
    with parser.in_angle_brackets():
        start = parser.pos
        try:
            yield
        except LayoutError as error:
            parser.raise_error(str(error), start, parser.pos)


MAX_EXTENT = 2**24
"""What the numbers of a layout may multiply to. A tile has at most 2²⁰ elements and a block 2¹⁰ threads; what lies far above is a slip of the pen, and checks
that look at every element would take for ever."""


def check_size(layout: TVLayout | SharedLayout) -> None:
    """Raises LayoutError for a layout that is larger than any tile can be."""
    if isinstance(layout, TVLayout):
        extents = {"its threads are": layout.num_threads, "the values of a thread are": layout.num_values}
    else:
        extents = {"the places of its buffer are": layout.size()}
    for what, extent in {"its elements are": prod(layout.shape()), **extents}.items():
        if extent > MAX_EXTENT:
            raise LayoutError(f"the layout is larger than any tile can be: {what} {extent}, at most {MAX_EXTENT} are allowed")


@irdl_attr_definition
class TVLayoutAttr(Data[TVLayout]):
    """`#layout.tv<thread [...], value [...]>`: the thread-value layout of a register tile, in normal form."""

    name = "layout.tv"

    def __init__(self, data: TVLayout) -> None:
        super().__init__(data.normalized())

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(layout: TVLayout) -> TVLayoutAttr:
        """The attribute of `layout`, the same object at every call."""
        return TVLayoutAttr(layout)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TVLayout:
        with _layout_body(parser):
            thread = _parse_modes(parser, "thread")
            parser.parse_punctuation(",")
            layout = TVLayout(thread, _parse_modes(parser, "value"))
            check_size(layout)
            return layout

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")

    def verify(self) -> None:
        """Data.new bypasses the constructor, so check what every other user relies on."""
        if self.data != self.data.normalized():
            raise VerifyException(
                f"layout {self.data} is not in normal form: build attributes with TVLayoutAttr(layout)"
            )


@irdl_attr_definition
class SharedLayoutAttr(Data[SharedLayout]):
    """`#layout.shared<[...], [...], swizzle<...>>`: where each element of a tile lies, in normal form."""

    name = "layout.shared"

    def __init__(self, data: SharedLayout) -> None:
        super().__init__(data.normalized())

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(layout: SharedLayout) -> SharedLayoutAttr:
        """The attribute of `layout`, the same object at every call."""
        return SharedLayoutAttr(layout)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> SharedLayout:
        modes: list[tuple[tuple[int, int], ...]] = []
        swizzle: Swizzle | None = None
        with _layout_body(parser):
            more = True
            while more and swizzle is None:
                digits = parser.parse_optional_comma_separated_list(
                    parser.Delimiter.SQUARE, partial(_parse_digit, parser)
                )
                if digits is None:
                    swizzle = _parse_swizzle(parser)
                else:
                    modes.append(tuple(digits))
                    more = parser.parse_optional_punctuation(",") is not None
            layout = SharedLayout(tuple(modes), swizzle)
            check_size(layout)
            return layout

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")

    def verify(self) -> None:
        """Data.new bypasses the constructor, so check what every other user relies on."""
        if self.data != self.data.normalized():
            raise VerifyException(
                f"layout {self.data} is not in normal form: build attributes with SharedLayoutAttr(layout)"
            )


def shared_layout_fault(layout: SharedLayout, shape: Sequence[int]) -> str | None:
    """Why a tile of this shape cannot lie like this in shared memory; None if it can: each element needs a place, and one of its own."""
    if layout.rank != len(shape):
        return f"it has {layout.rank} dimensions, the tile has {len(shape)}"
    if not layout.covers(shape):
        return f"it reaches {'x'.join(map(str, layout.shape()))}, the tile is {'x'.join(map(str, shape))}"
    if (pair := layout.clash()) is not None:
        first, second = (f"[{', '.join(map(str, coords))}]" for coords in pair)
        return f"the elements {first} and {second} share one place, {layout.offset(pair[0])}; each needs its own"
    return None


@lru_cache(maxsize=4096)
def with_layout(tensor: TensorType, layout: TVLayout | SharedLayout) -> TensorType:
    """`tensor` with `layout` as its encoding: the same type object at every call."""
    attr = TVLayoutAttr.of(layout) if isinstance(layout, TVLayout) else SharedLayoutAttr.of(layout)
    return TensorType(tensor.element_type, tensor.shape, attr)


def tv_layout_of(type_: Attribute) -> TVLayout | None:
    """The thread-value layout that a tensor type carries, or None (no tensor, no layout yet, or another encoding)."""
    if isinstance(type_, TensorType) and isinstance(type_.encoding, TVLayoutAttr):
        return type_.encoding.data
    return None


@irdl_op_definition
class ConvertOp(IRDLOperation):
    """`layout.convert`: the same tile held in another thread-value layout.

    What it costs depends on how far elements travel (`tesela.dialects.layout.conversion_scope`): nothing, a renaming of
    registers, shuffles within warps, or a pass through shared memory.
    """

    name = "layout.convert"

    source = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, source: SSAValue, result_type: TensorType) -> None:
        super().__init__(operands=[source], result_types=[result_type])

    @classmethod
    def parse(cls, parser: Parser) -> ConvertOp:
        operand = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_punctuation("->")
        result_type = parser.parse_type()
        source = parser.resolve_operand(operand, source_type)
        return cls.create(operands=[source], result_types=[result_type], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)

    def verify_(self) -> None:
        source, result = self.source.type, self.result.type
        assert isinstance(source, TensorType) and isinstance(result, TensorType)
        if source.get_shape() != result.get_shape() or source.element_type != result.element_type:
            raise VerifyException(
                f"changes the layout only, but the tile changes too: {_plain(source)} became {_plain(result)}"
            )
        for what, type_ in (("operand", source), ("result", result)):
            if (layout := tv_layout_of(type_)) is None:
                raise VerifyException(
                    f"the {what} needs a thread-value layout, as in "
                    "tensor<16x8xf32, #layout.tv<thread [...], value [...]>>"
                )
            if not layout.covers(type_.get_shape()):
                raise VerifyException(
                    f"the {what}'s layout leaves elements of {_plain(type_)} without a holder: it reaches "
                    f"{'x'.join(map(str, layout.shape()))} ({layout})"
                )
        before, after = tv_layout_of(source), tv_layout_of(result)
        if before and after and before.num_threads != after.num_threads:
            raise VerifyException(
                f"both layouts must be for the same threads, but the operand's is for {before.num_threads} and the "
                f"result's for {after.num_threads}"
            )


def _plain(type_: TensorType) -> str:
    return f"tensor<{'x'.join([*map(str, type_.get_shape()), str(type_.element_type)])}>"


Layout = Dialect("layout", [ConvertOp], [TVLayoutAttr, SharedLayoutAttr])
