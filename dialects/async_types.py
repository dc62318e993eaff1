"""The types of the async dialect: buffers, channels of them, pending tiles and tokens."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from .layout_attrs import SharedLayoutAttr, shared_layout_fault


def _parse_tile(parser: AttrParser) -> TensorType:
    with parser.in_angle_brackets():
        shape, element = parser.parse_ranked_shape()
        encoding: Attribute = NoneAttr()
        if parser.parse_optional_punctuation(",") is not None:
            encoding = parser.parse_attribute()
        return TensorType(element, shape, encoding)


def _print_tile(printer: Printer, tile: TensorType) -> None:
    with printer.in_angle_brackets():
        printer.print_dimension_list(tile.get_shape())
        printer.print_string("x")
        printer.print_attribute(tile.element_type)
        if tile.encoding != NoneAttr():
            printer.print_string(", ")
            printer.print_attribute(tile.encoding)


class _TileType(ParametrizedAttribute, TypeAttribute):
    """What buffers and channels have in common: extents, an element type, and a shared layout once it is known."""

    tile: TensorType

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return [_parse_tile(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_tile(printer, self.tile)

    def verify(self) -> None:
        """That the layout, if known, gives each element a place of its own."""
        if isinstance(self.layout, SharedLayoutAttr) and (fault := shared_layout_fault(self.layout.data, self.shape)) is not None:
            raise VerifyException(f"the layout {self.layout.data} of {self.name}: {fault}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tile.get_shape()

    @property
    def element(self) -> Attribute:
        return self.tile.element_type

    @property
    def layout(self) -> Attribute:
        """The shared layout attribute, or NoneAttr before `infer-layouts`."""
        return self.tile.encoding


@irdl_attr_definition
class BufferType(_TileType):
    """`!async.buffer<128x64xbf16>`: a tile in shared memory; `!async.buffer<128x64xbf16, #layout.shared<…>>` where it lies there."""

    name = "async.buffer"
    tile: TensorType


@irdl_attr_definition
class ChannelType(_TileType):
    """`!async.channel<128x64xbf16>`: a ring of such buffers."""

    name = "async.channel"
    tile: TensorType


@irdl_attr_definition
class PendingType(ParametrizedAttribute, TypeAttribute):
    """`!async.pending<tensor<128x128xf32>>`: a register tile that an asynchronous dot is still writing."""

    name = "async.pending"
    tile: TensorType


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """`!async.token`: the event that an asynchronous operation has read its buffers."""

    name = "async.token"
