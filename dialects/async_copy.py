"""The async dialect: dataflow through shared memory made explicit.

`plan-dataflow` turns each transfer through shared memory into a *channel*: a ring of `depth` buffers, first in first out. The producer
fills the next slot, with `async.put` from an array in global memory or with `async.write` from a register tile; the consumer takes the
oldest with `async.get` and gives it back with `async.release`. Every slot that is filled is got once, and every slot that is got is released once, in
order. A dot that reads buffers returns a *pending* tile, whose value is there only after `async.await`, and a *read token*: `async.release %buf
after %token` waits until that dot has read its buffers.

Pending tiles and tokens are values like any other, so that loops carry them: a dot may add to a tile that is still pending (dots
complete in order), and a release may wait for the dot of an earlier trip. `async.ready` makes a tile that is there pending, and `async.token none` is
the token of no operation, for the trip before the first: a release after it releases nothing.

    %ca = async.channel depth 1 : !async.channel<128x64xbf16>
    async.put %ca, %A[%m, %k] : !async.channel<128x64xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    %a = async.get %ca : !async.channel<128x64xbf16> -> !async.buffer<128x64xbf16>
    …
    %p, %read = async.dot %a, %bt, %c : …
    %d = async.await %p : !async.pending<tensor<128x128xf32>>
    async.release %ca after %read : !async.channel<128x64xbf16>

Warps of a block may do different parts of this, as *roles*: async_roles.py. Results leave through buffers, too: async_store.py.

Synchronisation is derived from these: barriers, phases, byte counts and fences appear only below this level. A buffer type is our own, not a
memref: xDSL wants an affine map from a memref's layout and a swizzle has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from .async_roles import RolesOp, role_of
from .async_store import StoreOp
from .async_types import BufferType, ChannelType, PendingType, TokenType
from .layout_attrs import SharedLayoutAttr
from .op_text import parse_operand, parse_permutation, print_operand, print_permutation
from .tile import check_dot_operands, element_type, shape_of
from .tile_place import dims_property, parse_dims, parse_place, placed_dims, print_dims, print_place, verify_place


def pending_tile(kind: Attribute) -> TensorType:
    """The tile of a tensor type, or of the pending tile's."""
    return kind.tile if isinstance(kind, PendingType) else kind


def role_name(op: Operation) -> str:
    """The name of the role that an op is in; empty if in none."""
    found = role_of(op)
    return found[0].role_names[found[1]] if found is not None else ""


@irdl_op_definition
class ChannelOp(IRDLOperation):
    """`async.channel depth 2 : !async.channel<128x64xbf16>`: a ring of `depth` buffers in shared memory, empty. `offset`, once
    `alloc-shared` has placed it: the byte offset of its first buffer in the block's shared memory, and `barrier` that of its mbarriers
    (one for each slot), if its puts complete on any. `lockstep N`: it moves in step with the other channels of group N, and they share
    mbarriers: wherever one is put, got or released, so are the others (`join-channels`). `parts N`: the N warpgroups that take it each read
    a part of every slot, the parts in their order, and wait for theirs and give it back by themselves (`split-slots`)."""

    name = "async.channel"
    depth = prop_def(IntegerAttr)
    lockstep = opt_prop_def(IntegerAttr)
    parts = opt_prop_def(IntegerAttr)
    offset = opt_prop_def(IntegerAttr)
    barrier = opt_prop_def(IntegerAttr)
    res = result_def(ChannelType)

    @staticmethod
    def make(tile: TensorType, depth: int = 1) -> ChannelOp:
        return ChannelOp.create(result_types=[ChannelType(tile)], properties={"depth": IntegerAttr(depth, i64)})

    def fills(self) -> list[PutOp | WriteOp]:
        """What fills its slots."""
        return [use.operation for use in self.res.uses if isinstance(use.operation, PutOp | WriteOp)]

    def takers(self) -> list[GetOp | ReleaseOp]:
        """What takes slots and gives them back."""
        return [use.operation for use in self.res.uses if isinstance(use.operation, GetOp | ReleaseOp)]

    def joins_roles(self) -> bool:
        """Whether one role fills it and another takes what it holds."""
        sides = {role_name(op) for op in (*self.fills(), *self.takers())}
        return len(sides) > 1

    @property
    def part_count(self) -> int:
        """In how many parts its slots are filled and given back."""
        return 1 if self.parts is None else self.parts.value.data

    def verify_(self) -> None:
        if self.part_count < 1 or self.part_count > 1 and self.lockstep is not None:
            raise VerifyException("slots have at least one part, and only one where channels are in lockstep")
        if self.depth.value.data < 1:
            raise VerifyException(f"a channel has at least one buffer, found depth {self.depth.value.data}")
        if any(extent < 1 for extent in self.res.type.tile.get_shape()):
            raise VerifyException("the buffers' extents must be known and positive")
        for what, side in (("filled", self.fills()), ("emptied", self.takers())):
            if len(names := {role_name(op) for op in side}) > 1:
                raise VerifyException(f"the channel is {what} by several roles, {' and '.join(sorted(names))}: their order is not determined")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" depth {self.depth.value.data}")
        for key in ("lockstep", "parts", "offset", "barrier"):
            if (value := self.properties.get(key)) is not None:
                printer.print_string(f" {key} {value.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> ChannelOp:
        properties: dict[str, Attribute] = {}
        parser.parse_keyword("depth")
        properties["depth"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        for key in ("lockstep", "parts", "offset", "barrier"):
            if parser.parse_optional_keyword(key) is not None:
                properties[key] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(result_types=[parser.parse_type()], properties=properties, attributes=attributes)


@irdl_op_definition
class PutOp(IRDLOperation):
    """`async.put %ch, %A[%m, %k] dims [0, 1] : …`: fills the channel's next slot with the tile of the array that starts there, zeros past the
    edges. `via`, once chosen: "tma", "cp.async" or "ld" (through registers). `via "tma" multicast 2`: the two blocks of a cluster ask for the
    same tile at the same time; each loads half of it and sends it to both."""

    name = "async.put"
    channel = operand_def(ChannelType)
    array = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    dims = opt_prop_def(DenseArrayBase)
    via = opt_prop_def(StringAttr)
    multicast = opt_prop_def(IntegerAttr)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def make(channel: SSAValue, array: SSAValue, indices: Sequence[SSAValue], dims: Sequence[int] | None = None) -> PutOp:
        return PutOp.create(operands=[channel, array, *indices], properties=dims_property(dims))

    def tile_dims(self) -> tuple[int, ...]:
        """For each dimension of the tile, the array's."""
        return placed_dims(self, len(self.channel.type.shape))

    def verify_(self) -> None:
        verify_place(self, self.channel.type.element, len(self.channel.type.shape))
        if self.via is not None and self.via.data not in ("tma", "cp.async", "ld"):
            raise VerifyException(f'via must be "tma", "cp.async" or "ld", found "{self.via.data}"')

        if self.multicast is not None and (self.via is None or self.via.data != "tma" or self.multicast.value.data < 2):
            raise VerifyException('only a put via "tma" is multicast, to two blocks or more')

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.channel)
        printer.print_string(", ")
        print_place(printer, self)
        print_dims(printer, self)
        if self.via is not None:
            printer.print_string(" via ")
            printer.print_attribute(self.via)
        if self.multicast is not None:
            printer.print_string(f" multicast {self.multicast.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.channel.type, self.array.type), printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> PutOp:
        channel = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        array, indices = parse_place(parser)
        properties = parse_dims(parser)
        if parser.parse_optional_keyword("via") is not None:
            properties["via"] = StringAttr(parser.parse_str_literal())
        if parser.parse_optional_keyword("multicast") is not None:
            properties["multicast"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        channel_type = parser.parse_type()
        parser.parse_punctuation(",")
        array_type = parser.parse_type()
        operands = [
            parser.resolve_operand(channel, channel_type),
            parser.resolve_operand(array, array_type),
            *(parser.resolve_operand(index, IndexType()) for index in indices),
        ]
        return cls.create(operands=operands, properties=properties, attributes=attributes)


@irdl_op_definition
class WriteOp(IRDLOperation):
    """`async.write %ch, %x : !async.channel<64x64xf16>, tensor<64x64xf16>`: fills the channel's next slot from registers."""

    name = "async.write"
    channel = operand_def(ChannelType)
    value = operand_def(TensorType)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$channel `,` $value attr-dict `:` type($channel) `,` type($value)"

    @staticmethod
    def make(channel: SSAValue, value: SSAValue) -> WriteOp:
        return WriteOp.create(operands=[channel, value])

    def verify_(self) -> None:
        if self.channel.type.shape != shape_of(self.value.type) or self.channel.type.element != element_type(self.value.type):
            raise VerifyException("the tile must have the extents and the element type that the channel carries")


@irdl_op_definition
class GetOp(IRDLOperation):
    """`async.get %ch : !async.channel<64x64xf16> -> !async.buffer<64x64xf16>`: the oldest filled slot; waits until it is filled.

    `async.get %ch later 3 : …` states that at least three puts via cp.async, into channels deeper than one, come after the one whose
    slot this is, counting also those that a condition skipped: as many groups of copies may still be under way. Without it, none may.
    """

    name = "async.get"
    channel = operand_def(ChannelType)
    later = opt_prop_def(IntegerAttr)
    res = result_def(BufferType)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def make(channel: SSAValue) -> GetOp:
        return GetOp.create(operands=[channel], result_types=[BufferType(channel.type.tile)])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.channel)
        if self.later is not None:
            printer.print_string(f" later {self.later.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.channel.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> GetOp:
        channel = parser.parse_unresolved_operand()
        properties: dict[str, Attribute] = {}
        if parser.parse_optional_keyword("later") is not None:
            properties["later"] = IntegerAttr(parser.parse_integer(allow_boolean=False, allow_negative=False), i64)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operand = parser.resolve_operand(channel, parser.parse_type())
        parser.parse_punctuation("->")
        return cls.create(
            operands=[operand], result_types=[parser.parse_type()], properties=properties, attributes=attributes
        )

    def verify_(self) -> None:
        if self.channel.type.tile != self.res.type.tile:
            raise VerifyException("the buffer has the extents, element type and layout that the channel carries")


@irdl_op_definition
class ReleaseOp(IRDLOperation):
    """`async.release %ch after %token : !async.channel<64x64xf16>`: gives the oldest slot that was got back, when all have read it (after
    `token`'s operation, if one is given; nothing is given back if it is the token of no operation)."""

    name = "async.release"
    channel = operand_def(ChannelType)
    token = opt_operand_def(TokenType)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @staticmethod
    def make(channel: SSAValue, token: SSAValue | None = None) -> ReleaseOp:
        return ReleaseOp.create(operands=[channel, *([token] if token is not None else [])])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.channel)
        if self.token is not None:
            printer.print_string(" after ")
            printer.print_ssa_value(self.token)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.channel.type)

    @classmethod
    def parse(cls, parser: Parser) -> ReleaseOp:
        channel = parser.parse_unresolved_operand()
        token = parser.parse_unresolved_operand() if parser.parse_optional_keyword("after") is not None else None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operands = [parser.resolve_operand(channel, parser.parse_type())]
        if token is not None:
            operands.append(parser.resolve_operand(token, TokenType()))
        return cls.create(operands=operands, attributes=attributes)


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """`async.transpose %b [1, 0] : !async.buffer<128x64xbf16> -> !async.buffer<64x128xbf16>`: the same bytes, dimensions renamed."""

    name = "async.transpose"
    source = operand_def(BufferType)
    permutation = prop_def(DenseArrayBase)
    res = result_def(BufferType)
    traits = traits_def(Pure())

    @staticmethod
    def make(source: SSAValue, permutation: Sequence[int]) -> TransposeOp:
        tile = source.type.tile
        shape = tile.get_shape()
        place = tile.encoding
        if isinstance(place, SharedLayoutAttr):
            place = SharedLayoutAttr.of(place.data.permute(permutation))
        result = TensorType(tile.element_type, [shape[i] for i in permutation], place)
        return TransposeOp.create(
            operands=[source],
            result_types=[BufferType(result)],
            properties={"permutation": DenseArrayBase.from_list(i64, list(permutation))},
        )

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(self.permutation.get_values())

    def verify_(self) -> None:
        shape = self.source.type.shape
        if sorted(self.order) != list(range(len(shape))):
            raise VerifyException(f"{list(self.order)} is no permutation of the {len(shape)} dimensions")
        if self.res.type.shape != tuple(shape[i] for i in self.order) or self.res.type.element != self.source.type.element:
            raise VerifyException("the result has the source's element type and its extents permuted")

    def print(self, printer: Printer) -> None:
        print_permutation(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> TransposeOp:
        source, result, properties, attributes = parse_permutation(parser)
        return cls.create(operands=[source], result_types=[result], properties=properties, attributes=attributes)


@irdl_op_definition
class ReadOp(IRDLOperation):
    """`async.read %b : !async.buffer<64x64xf16> -> tensor<64x64xf16>`: a buffer's tile into registers."""

    name = "async.read"
    source = operand_def(BufferType)
    res = result_def(TensorType)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$source attr-dict `:` type($source) `->` type($res)"

    @staticmethod
    def make(source: SSAValue, encoding: Attribute | None = None) -> ReadOp:
        tile = source.type.tile
        return ReadOp.create(
            operands=[source], result_types=[TensorType(tile.element_type, tile.get_shape(), encoding or NoneAttr())]
        )

    def verify_(self) -> None:
        if self.source.type.shape != shape_of(self.res.type) or self.source.type.element != element_type(self.res.type):
            raise VerifyException("the tile has the buffer's extents and element type")


@irdl_op_definition
class DotOp(IRDLOperation):
    """`async.dot %a, %b, %c : !async.buffer<MxK…>, !async.buffer<KxN…>, tensor<MxN…> -> !async.pending<tensor<MxN…>>, !async.token`: as
    `tile.dot`, but the buffers are read and the result is written later. The lhs may also be a register tile, and the accumulator the pending
    result of an earlier dot: dots complete in the order in which they were issued."""

    name = "async.dot"
    lhs = operand_def()
    rhs = operand_def(BufferType)
    acc = operand_def()
    res = result_def(PendingType)
    read = result_def(TokenType)
    traits = traits_def(MemoryReadEffect())

    @staticmethod
    def make(lhs: SSAValue, rhs: SSAValue, acc: SSAValue) -> DotOp:
        return DotOp.create(operands=[lhs, rhs, acc], result_types=[PendingType(pending_tile(acc.type)), TokenType()])

    def verify_(self) -> None:
        if not isinstance(self.acc.type, PendingType | TensorType):
            raise VerifyException(f"the accumulator is a tile, pending or not, found {self.acc.type}")
        if not isinstance(self.lhs.type, BufferType | TensorType):
            raise VerifyException(f"the lhs is a buffer or a tile, found {self.lhs.type}")
        a = self.lhs.type.shape if isinstance(self.lhs.type, BufferType) else shape_of(self.lhs.type)
        b, c = self.rhs.type.shape, pending_tile(self.acc.type).get_shape()
        if (len(a), len(b), len(c)) != (2, 2, 2) or a[1] != b[0] or (a[0], b[1]) != c:
            raise VerifyException(f"dot wants MxK, KxN and MxN, found {a}, {b} and {c}")
        left = self.lhs.type.element if isinstance(self.lhs.type, BufferType) else element_type(self.lhs.type)
        check_dot_operands(left, self.rhs.type.element, self.attributes)
        if self.res.type.tile != pending_tile(self.acc.type):
            raise VerifyException("the pending tile has the accumulator's type")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((value.type for value in self.operands), printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> DotOp:
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        values = parser.resolve_operands(operands, kinds, position)
        if len(values) != 3 or not isinstance(kinds[2], PendingType | TensorType):
            parser.raise_error("async.dot takes a lhs, a rhs buffer and an accumulator tile", position)
        result = PendingType(pending_tile(kinds[2]))
        return cls.create(operands=values, result_types=[result, TokenType()], attributes=attributes)


@irdl_op_definition
class AwaitOp(IRDLOperation):
    """`async.await %p : !async.pending<tensor<…>>`: the tile, once it is written."""

    name = "async.await"
    pending = operand_def(PendingType)
    res = result_def(TensorType)

    @staticmethod
    def make(pending: SSAValue) -> AwaitOp:
        return AwaitOp.create(operands=[pending], result_types=[pending.type.tile])

    def verify_(self) -> None:
        if self.pending.type.tile != self.res.type:
            raise VerifyException("the result is the pending tile")

    def print(self, printer: Printer) -> None:
        print_operand(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> AwaitOp:
        pending, attributes = parse_operand(parser, PendingType, "async.await takes a pending tile")
        return cls.create(operands=[pending], result_types=[pending.type.tile], attributes=attributes)


@irdl_op_definition
class ReadyOp(IRDLOperation):
    """`async.ready %x : tensor<…>`: a tile that is there, as a pending one: what a loop of dots that stay in flight begins with."""

    name = "async.ready"
    value = operand_def(TensorType)
    res = result_def(PendingType)
    traits = traits_def(Pure())

    @staticmethod
    def make(value: SSAValue) -> ReadyOp:
        return ReadyOp.create(operands=[value], result_types=[PendingType(value.type)])

    def verify_(self) -> None:
        if self.res.type.tile != self.value.type:
            raise VerifyException("the pending tile is the operand")

    def print(self, printer: Printer) -> None:
        print_operand(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> ReadyOp:
        value, attributes = parse_operand(parser, TensorType, "async.ready takes a tile")
        return cls.create(operands=[value], result_types=[PendingType(value.type)], attributes=attributes)


@irdl_op_definition
class TokenOp(IRDLOperation):
    """`async.token none : !async.token`, the token of no operation; `async.token here : !async.token`, that everything before it in
    program order has read its buffers, but for asynchronous dots, which have tokens of their own."""

    name = "async.token"
    event = prop_def(StringAttr)
    res = result_def(TokenType)
    traits = traits_def(MemoryReadEffect())

    @staticmethod
    def make(event: str) -> TokenOp:
        return TokenOp.create(result_types=[TokenType()], properties={"event": StringAttr(event)})

    def verify_(self) -> None:
        if self.event.data not in ("none", "here"):
            raise VerifyException(f"the event must be none or here, found {self.event.data}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.event.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> TokenOp:
        event = parser.parse_identifier()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        return cls.create(result_types=[kind], properties={"event": StringAttr(event)}, attributes=attributes)


Async = Dialect(
    "async",
    [ChannelOp, PutOp, WriteOp, GetOp, ReleaseOp, TransposeOp, ReadOp, DotOp, AwaitOp, ReadyOp, TokenOp, StoreOp, RolesOp],
    [BufferType, ChannelType, PendingType, TokenType],
)
