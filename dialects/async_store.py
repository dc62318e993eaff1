"""async.store: a register tile goes to memory by way of shared memory, part by part, and the block goes on meanwhile.

Registers as a dot leaves them are spread badly for memory: each thread has two neighbouring elements here and there. So a part of the tile is written
to a buffer, from where TMA stores it as whole rows; the next part goes to the next buffer of the channel while that one is read. The
buffers are the store's own: nobody puts or gets there.

    async.store %x, %C[%m, %n] through %out : tensor<128x256xbf16>, memref<?x?xbf16, strided<[?, 1]>>, !async.channel<128x64xbf16>

means what `tile.store` means. When it is done the tile has been read, but memory may be written later: by the end of the kernel.
"""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, IndexType, MemRefType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from .async_types import ChannelType
from .tile_memory import StoreOp as TileStoreOp
from .tile_place import parse_dims, parse_place, placed_dims, print_dims, print_place, verify_place
from .tile_types import shape_of


@irdl_op_definition
class StoreOp(IRDLOperation):
    """`async.store %x, %C[%m, %n] dims [0, 1] through %ch : tensor<…>, memref<…>, !async.channel<…>`; see the module's docstring. The channel's
    extents divide the tile's. Its buffers take turns, from the first one for each tile, and there are no more of them than parts."""

    name = "async.store"
    value = operand_def(TensorType)
    array = operand_def(MemRefType)
    channel = operand_def(ChannelType)
    indices = var_operand_def(IndexType)
    dims = opt_prop_def(DenseArrayBase)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def replacing(store: TileStoreOp, channel: SSAValue) -> StoreOp:
        """The op that does what `store` does, through `channel`."""
        properties = {} if store.dims is None else {"dims": store.dims}
        op = StoreOp.create(operands=[store.value, store.array, channel, *store.indices], properties=properties, attributes=store.attributes)
        op.location = store.location
        return op

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's."""
        return placed_dims(self, len(shape_of(self.value.type)))

    def parts(self) -> int:
        """Into how many parts the channel's extents divide the tile's."""
        count = 1
        for whole, part in zip(shape_of(self.value.type), self.channel.type.shape):
            count *= whole // part
        return count

    def verify_(self) -> None:
        tile, channel = self.value.type, self.channel.type
        rank = len(shape_of(tile))
        verify_place(self, tile.element_type, rank)
        if tile.element_type != channel.element:
            raise VerifyException(f"the channel carries {channel.element}, the tile's elements are {tile.element_type}")
        if len(channel.shape) != rank or any(whole % part for whole, part in zip(shape_of(tile), channel.shape)):
            raise VerifyException(f"the channel's extents must divide the tile's, found {list(channel.shape)} and {list(shape_of(tile))}")
        depth = self.channel.owner.depth.value.data if hasattr(self.channel.owner, "depth") else 1
        if depth > self.parts():
            raise VerifyException(f"the channel has {depth} buffers, and the tile has {self.parts()} parts")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        print_place(printer, self)
        print_dims(printer, self)
        printer.print_string(" through ")
        printer.print_ssa_value(self.channel)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.value.type, self.array.type, self.channel.type), printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        array, indices = parse_place(parser)
        properties = parse_dims(parser)
        parser.parse_keyword("through")
        channel = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds = [parser.parse_type()]
        for _ in range(2):
            parser.parse_punctuation(",")
            kinds.append(parser.parse_type())
        operands = [
            *(parser.resolve_operand(operand, kind) for operand, kind in zip((value, array, channel), kinds)),
            *(parser.resolve_operand(index, IndexType()) for index in indices),
        ]
        return cls.create(operands=operands, properties=properties, attributes=attributes)
