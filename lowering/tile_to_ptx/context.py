"""What the lowering of every op shares: the insertion point, values, thread coordinates, parameters and integer arithmetic.

One walk rebuilds a tile kernel as a ptx kernel. Handlers, one for each op, are registered with `@lowers(Op)` and called in program order;
they find their operands with `ctx.get`, add instructions with `ctx.inst`, and hand on results with `ctx.set`.

**Registers of a tile.** A thread holds its layout's `num_values` elements in value order: 32-bit elements in b32, 64-bit ones in b64, i1 as
predicates; 16-bit elements are packed two to a b32, the lower value in the low half, and 8-bit ones four, the lowest first; where their number is odd (no
multiple of four), each has a b16 of its own, in whose low half an 8-bit element lies and whose high half says nothing.
A scalar is one register: index and i64 b64, i32 and f32 b32, f16, bf16, i16 and i8 b16, i1 a predicate.

**The prologue.** What depends only on the thread or on parameters (thread coordinates, pointers, strides) is computed once, at the top of the
kernel, whatever asks for it first: loops then find it ready. Constants print as immediates and live there too. A role has a prologue
of its own, at its top (`as_role`): thread coordinates count from its first thread, and what only one role needs is computed by it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
    TensorType,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialects import async_copy, ptx, tile
from ...dialects.array_effects import conflict
from ...dialects.device_messages import MessageSite
from ...dialects.diagnostics import TeselaError
from ...dialects.dim_expr import DimExpr
from ...dialects.launch_plan import Param, Requirement, TensorMapSpec
from ...dialects.layout import TVLayout
from ...dialects.layout_attrs import TVLayoutAttr
from ...dialects.ptx import RegType, reg
from ...dialects.ptx_isa import lookup
from ...dialects.target import Target
from ...dialects.tile_types import static_strides
from ...passes.access import argument_align
from ...passes.async_waits import flagged_tokens, wait_depths
from ...passes.divisibility import Divisibility
from .prologue import place_prologue

PROXY_FENCE = "fence.proxy.async.shared::cta"
"""What a thread has done in shared memory through the generic proxy is done before what the async proxy does there later (PTX ISA 9.0 §9.7.13.4)."""

_OF_A_ROLE = (
    "first_warp", "warps", "threads", "barrier_number", "one_warp", "issuers", "scratch_base", "scratch_bytes", "prologue", "_once", "_static", "_scopes",
    "unsynchronised", "last_barrier", "counters", "stores_under_way",
)  # fmt: skip
"""The state of a Context that each role has for itself."""

OpT = TypeVar("OpT", bound=Operation)
HANDLERS: dict[type[Operation], Callable[[Any, Any], None]] = {}


def lowers(*kinds: type[Operation]) -> Callable[[Callable[[Context, OpT], None]], Callable[[Context, OpT], None]]:
    """Registers the decorated function as the lowering of these ops."""

    def register(function: Callable[[Context, OpT], None]) -> Callable[[Context, OpT], None]:
        for kind in kinds:
            HANDLERS[kind] = function
        return function

    return register


def _power_of_two(value: int | None) -> int | None:
    """Its logarithm if it is one."""
    return value.bit_length() - 1 if value is not None and value > 0 and value & (value - 1) == 0 else None


def element_bits(kind: Attribute) -> int:
    """Bits of an element in registers; i1 is 1 (a predicate), index 64."""
    match kind:
        case Float32Type():
            return 32
        case Float8E4M3FNType() | Float8E5M2Type():
            return 8
        case Float16Type() | BFloat16Type():
            return 16
        case Float64Type() | IndexType():
            return 64
        case IntegerType():
            return kind.width.data
        case _:
            raise TypeError(f"no element type: {kind}")


def scalar_class(kind: Attribute) -> str:
    """The register class of one scalar."""
    bits = element_bits(kind)
    return "pred" if bits == 1 else f"b{max(16, bits)}"


def register_type(kind: Attribute, layout: TVLayout | None) -> RegType:
    """The registers that hold a scalar (no layout) or a thread's part of a tile."""
    if layout is None:
        return reg(scalar_class(kind))
    values = layout.num_values
    per_register = packed(kind, values)
    return reg("b32", values // per_register) if per_register > 1 else reg(scalar_class(kind), values)


def packed(kind: Attribute, n: int) -> int:
    """How many of n elements one register holds."""
    bits = element_bits(kind)
    per_register = 32 // bits if bits in (8, 16) else 1
    return per_register if n % per_register == 0 else 1


class Context:
    """The state of lowering one kernel; see the module's docstring."""

    def __init__(self, kernel: tile.KernelOp, target: Target, warps: int):
        self.kernel = kernel
        self.target = target
        self.warps = warps
        self.threads = 32 * warps
        self.first_warp = 0  # of the role whose code is made; 0 outside of roles
        self.barrier_number = 0  # the barrier of its threads; 0 is the block's own
        self.one_warp = False  # whether whole warps of the role come here, each for itself, and do nothing together
        self.most_walkers = 1  # of a role that only issues copies
        self.issuers: dict[SSAValue, int] = {}  # the warp that fills a channel, and those in lockstep with it, where several warps come here
        self.entry = Block()
        self.block = self.entry
        self.prologue: list[Operation] = []
        self.constants = self.prologue  # the kernel's, whatever role they are for
        self.state: dict[SSAValue, Any] = {}
        self.bounded: dict[SSAValue, Any] = {}  # conditions that are comparisons of places: bounds.Bounded
        self.facts = Divisibility()
        self.params: dict[str, Param] = {}
        self.requirements: dict[Requirement, None] = {}
        self.notes: dict[str, None] = {}
        self.messages: dict[MessageSite, int] = {}  # what the program may print or assert, numbered
        self.min_blocks: int | None = None  # how many blocks a multiprocessor should hold at least; None: as the assembler likes
        self.scratch_base = 0
        self.scratch_bytes = 0
        self.workspace_bytes = 0  # of one block: what blocks that share a point of the grid leave for each other
        self.location = kernel.location
        self._values: dict[SSAValue, SSAValue] = {}
        self._constants: dict[tuple[int, str], SSAValue] = {}
        self._known: dict[SSAValue, int] = {}
        self._once: dict[Any, Any] = {}
        self._static: set[SSAValue] = set()
        self._at_prologue = False
        self._scopes: list[dict[Any, SSAValue]] = [{}, {}]  # of the prologue, of the blocks round the insertion point
        self._arguments: dict[SSAValue, int] = {value: i for i, value in enumerate(kernel.args)}
        self.unsynchronised: dict[SSAValue, str] = {}  # array -> accesses ('r', 'w', 'a' for atomic) since the last barrier
        self.flagged = flagged_tokens(kernel)  # tokens that a predicate says of whether they are those of an operation
        self.waits = wait_depths(kernel)  # await or release -> groups of dots that may be under way after it
        self.last_barrier: Operation | None = None  # of all threads
        self.stores_under_way = False  # whether bulk stores must be waited for before the threads end
        self.reciprocals: dict[SSAValue, SSAValue] = {}  # divisor -> (2^32 - 1) / it, rounded down
        self.slots: dict[SSAValue, SSAValue] = {}  # channel -> the slot that its last get took, for those in lockstep with it
        self.counters: dict[tuple[SSAValue, str], SSAValue] = {}  # (channel, 'put' or 'get') -> position; control carries them

    # ---- values -------------------------------------------------------------------------------------------------

    def get(self, value: SSAValue) -> SSAValue:
        """The registers of a tile-level value."""
        return self._values[value]

    def set(self, value: SSAValue, registers: SSAValue) -> None:
        self._values[value] = registers

    def has(self, value: SSAValue) -> bool:
        return value in self._values

    def layout(self, of: SSAValue | Attribute) -> TVLayout:
        """The layout of a tile. Raises TeselaError where `infer-layouts` has not run."""
        kind = of.type if isinstance(of, SSAValue) else of
        assert isinstance(kind, TensorType)
        if not isinstance(kind.encoding, TVLayoutAttr):
            raise self.error(
                of if isinstance(of, SSAValue) else None, f"{kind} has no layout", "run infer-layouts before tile-to-ptx"
            )
        return kind.encoding.data

    def registers_of(self, kind: Attribute) -> RegType:
        """The register type of a tile-level type."""
        if isinstance(kind, async_copy.PendingType):
            kind = kind.tile
        if isinstance(kind, async_copy.TokenType):
            return reg("pred")
        if isinstance(kind, TensorType):
            return register_type(kind.element_type, self.layout(kind))
        return register_type(kind, None)

    # ---- adding ops ---------------------------------------------------------------------------------------------

    def add_op(self, op: Operation) -> None:
        """Adds `op` at the insertion point, with the location of the op being lowered."""
        op.location = self.location
        if self._at_prologue:
            self.prologue.append(op)
        else:
            self.block.add_op(op)

    def inst(
        self,
        opcode: str,
        args: Sequence[SSAValue] = (),
        results: Sequence[RegType] = (),
        imms: Sequence[int | str] = (),
        offsets: Sequence[int] | None = None,
        guard: SSAValue | None = None,
        negated: bool = False,
        init: Sequence[SSAValue] = (),
    ) -> Any:
        """Adds a `ptx.inst`; gives its result, or the tuple of its results if it has not exactly one. A scalar computation that the block
        (or one round it) has made before is not made again."""
        key = None
        if len(results) == 1 and results[0].count == 1 and guard is None and not lookup(opcode).effects:
            key = (opcode, tuple(args), tuple(imms))
            for scope in self._scopes if not self._at_prologue else self._scopes[:1]:
                if key in scope:
                    return scope[key]
        op = ptx.InstOp.make(opcode, args, results, imms, offsets, guard, negated, init)
        self.add_op(op)
        if key is not None:
            self._scopes[0 if self._at_prologue else -1][key] = op.results[0]
        return op.results[0] if len(results) == 1 else tuple(op.results)

    def const(self, value: int, cls: str = "b32") -> SSAValue:
        """A constant register: the bit pattern `value`."""
        key = (value, cls)
        found = self._constants.get(key)
        if found is None:
            op = ptx.ConstantOp.make(value, cls)
            op.location = self.kernel.location
            self.constants.append(op)
            found = self._constants[key] = op.res
            self._known[found] = value
        return found

    def known(self, value: SSAValue) -> int | None:
        """The integer that a register is known to hold."""
        return self._known.get(value)

    def pick(self, value: SSAValue, indices: Sequence[int]) -> SSAValue:
        """Registers of `value` by index."""
        count = value.type.count
        if list(indices) == list(range(count)):
            return value
        op = ptx.PickOp.make(value, indices)
        self.add_op(op)
        return op.res

    def concat(self, parts: Sequence[SSAValue]) -> SSAValue:
        """All registers of `parts`, one after another."""
        if len(parts) == 1:
            return parts[0]
        op = ptx.ConcatOp.make(parts)
        self.add_op(op)
        return op.res

    def splat(self, value: SSAValue, count: int) -> SSAValue:
        """`count` names for one register."""
        return self.pick(value, [0] * count)

    @contextmanager
    def in_prologue(self) -> Iterator[None]:
        """Ops added inside go to the top of the kernel."""
        before, self._at_prologue = self._at_prologue, True
        try:
            yield
        finally:
            self._at_prologue = before

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, computed in the prologue the first time it is asked for."""
        if key not in self._once:
            with self.in_prologue():
                self._once[key] = make()
        return self._once[key]

    @contextmanager
    def into(self, block: Block) -> Iterator[None]:
        """Ops added inside go to the end of `block`."""
        before, self.block = self.block, block
        at_prologue, self._at_prologue = self._at_prologue, False
        self._scopes.append({})
        try:
            yield
        finally:
            self.block = before
            self._scopes.pop()
            self._at_prologue = at_prologue

    @contextmanager
    def as_role(self, number: int, first_warp: int, warps: int, scratch_base: int) -> Iterator[None]:
        """What is made inside is the code of role `number`, at the end of a block of its own: `warps` warps from `first_warp`. Its prologue
        goes to the block's top."""
        saved = {name: getattr(self, name) for name in _OF_A_ROLE}
        self.first_warp, self.warps, self.threads = first_warp, warps, 32 * warps
        self.barrier_number = number + 1
        self.scratch_base, self.scratch_bytes = scratch_base, 0
        self.prologue, self._once, self._static = [], {}, set()
        self._scopes = [{key: value for scope in self._scopes for key, value in scope.items()}, {}]
        self.unsynchronised, self.last_barrier = dict(self.unsynchronised), None
        self.counters, self.stores_under_way = dict(self.counters), False
        block = self.block
        first = block.last_op
        try:
            yield
            start = block.first_op if first is None else first.next_op
            place_prologue(block, self.prologue, start)
        finally:
            needed = self.scratch_base + self.scratch_bytes
            for name, value in saved.items():
                setattr(self, name, value)
            self.scratch_bytes = max(self.scratch_bytes, needed - self.scratch_base)

    # ---- integer arithmetic on one register, folding what is known ----------------------------------------------

    def _fold(self, opcode: str, a: SSAValue, b: SSAValue, value: int | None) -> SSAValue:
        cls = a.type.cls
        if value is not None:
            bits = 64 if cls == "b64" else 32
            value &= (1 << bits) - 1
            return self.const(value - (1 << bits) if value >> (bits - 1) else value, cls)
        return self.inst(f"{opcode}{cls[1:]}" if opcode.endswith((".s", ".u", ".b")) else opcode, [a, b], [a.type])

    def _pair(self, a: SSAValue, b: SSAValue | int) -> tuple[SSAValue, int | None, int | None]:
        right = self.const(b, a.type.cls) if isinstance(b, int) else b
        return right, self._known.get(a), self._known.get(right)

    def add(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        if x == 0:
            return right
        if y == 0:
            return a
        return self._fold("add.s", a, right, x + y if x is not None and y is not None else None)

    def sub(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        if y == 0:
            return a
        return self._fold("sub.s", a, right, x - y if x is not None and y is not None else None)

    def mul(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        """The low half of a product; by a power of two, a shift."""
        right, x, y = self._pair(a, b)
        if x is not None and y is None:
            a, right, x, y = right, a, y, x
        if y == 0 or x == 0:
            return self.const(0, a.type.cls)
        if y == 1:
            return a
        if y is not None and x is None and y > 0 and y & (y - 1) == 0:
            return self.shl(a, y.bit_length() - 1)
        return self._fold("mul.lo.s", a, right, x * y if x is not None and y is not None else None)

    def and_(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        return self._fold("and.b", a, right, x & y if x is not None and y is not None else None)

    def or_(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        if y == 0:
            return a
        return self._fold("or.b", a, right, x | y if x is not None and y is not None else None)

    def xor(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        if y == 0:
            return a
        return self._fold("xor.b", a, right, x ^ y if x is not None and y is not None else None)

    def min_(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        return self._fold("min.s", a, right, min(x, y) if x is not None and y is not None else None)

    def max_(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right, x, y = self._pair(a, b)
        return self._fold("max.s", a, right, max(x, y) if x is not None and y is not None else None)

    def shl(self, a: SSAValue, by: int) -> SSAValue:
        """Shift left by a constant."""
        if by == 0:
            return a
        if (x := self._known.get(a)) is not None:
            return self._fold("shl.b", a, a, x << by)
        return self.inst(f"shl.{a.type.cls}", [a, self.const(by)], [a.type])

    def shr(self, a: SSAValue, by: int) -> SSAValue:
        """Logical shift right by a constant."""
        if by == 0:
            return a
        if (x := self._known.get(a)) is not None and x >= 0:
            return self.const(x >> by, a.type.cls)
        return self.inst(f"shr.u{a.type.cls[1:]}", [a, self.const(by)], [a.type])

    def widen(self, value: SSAValue) -> SSAValue:
        """A signed b32 as b64."""
        if value.type.cls == "b64":
            return value
        if (x := self._known.get(value)) is not None:
            return self.const(x, "b64")
        return self.inst("cvt.s64.s32", [value], [reg("b64")])

    def narrow(self, value: SSAValue) -> SSAValue:
        """The low half of a b64."""
        if value.type.cls == "b32":
            return value
        if (x := self._known.get(value)) is not None and -(1 << 31) <= x < 1 << 31:
            return self.const(x)
        return self.inst("cvt.u32.u64", [value], [reg("b32")])

    def compare(self, cmp: str, kind: str, a: SSAValue, b: SSAValue | int) -> SSAValue:
        """The predicates of `setp.CMP.KIND`, one for each register of `a` (or of `b`)."""
        right = self.const(b, a.type.cls) if isinstance(b, int) else b
        return self.inst(f"setp.{cmp}.{kind}", [a, right], [reg("pred", max(a.type.count, right.type.count))])

    def both(self, a: SSAValue | None, b: SSAValue | None) -> SSAValue | None:
        """The conjunction of two predicates; None is true."""
        if a is None or b is None:
            return b if a is None else a
        return self.inst("and.pred", [a, b], [reg("pred", max(a.type.count, b.type.count))])

    # ---- threads ------------------------------------------------------------------------------------------------

    def special(self, name: str) -> SSAValue:
        """A special register, read once."""

        def make() -> SSAValue:
            op = ptx.SpecialOp.make(name)
            self.add_op(op)
            return op.res

        return self.once(("special", name), make)

    def tid(self) -> SSAValue:
        """The thread's index in its role (in the block, outside of roles), b32."""
        return self.once("tid", lambda: self.sub(self.special("%tid.x"), 32 * self.first_warp))

    def lane(self) -> SSAValue:
        """The thread's index in its warp, b32."""
        return self.once("lane", lambda: self.and_(self.special("%tid.x"), 31))

    def warp(self) -> SSAValue:
        """The warp's index in its role, b32: broadcast from lane 0, so that the assembler knows it to be the same for the whole warp."""

        def make() -> SSAValue:
            index = self.shr(self.tid(), 5)
            return self.inst(
                "shfl.sync.idx.b32", [index, self.const(0), self.const(31), self.const(0xFFFFFFFF)], [reg("b32")]
            )

        return self.once("warp", make)

    def warpgroup(self) -> SSAValue:
        """The warpgroup's index in its role, b32."""
        return self.once("warpgroup", lambda: self.shr(self.warp(), 2))

    def thread_digit(self, weight: int, extent: int) -> SSAValue:
        """(tid / weight) % extent, b32. With 12 warps neither need be a power of two; the extent of the last digit needs no remainder."""

        def make() -> SSAValue:
            many = self.tid()
            digit = self.inst("div.u32", [many, self.const(weight)], [many.type]) if weight & (weight - 1) else self.shr(many, weight.bit_length() - 1)
            if weight * extent >= self.threads:
                return digit
            return self.inst("rem.u32", [digit, self.const(extent)], [digit.type]) if extent & (extent - 1) else self.and_(digit, extent - 1)

        return self.once(("digit", weight, extent), make)

    def thread_coord(self, layout: TVLayout, dim: int) -> SSAValue:
        """The coordinate along `dim` of the thread's value 0, b32."""

        def make() -> SSAValue:
            total = self.const(0)
            weight = 1
            for mode in layout.thread:
                if mode.stride[dim]:
                    total = self.add(total, self.mul(self.thread_digit(weight, mode.extent), mode.stride[dim]))
                weight *= mode.extent
            return total

        key = tuple((mode.extent, mode.stride[dim]) for mode in layout.thread)
        return self.once(("coord", key), make)

    def first_holder(self, layout: TVLayout) -> SSAValue | None:
        """A predicate that holds in exactly one of the threads that hold copies of the same elements; None if there are no copies."""

        def make() -> SSAValue | None:
            result = None
            weight = 1
            for mode in layout.thread:
                if mode.is_broadcast and mode.extent > 1:
                    result = self.both(result, self.compare("eq", "s32", self.thread_digit(weight, mode.extent), 0))
                weight *= mode.extent
            if weight < self.threads:
                result = self.both(result, self.compare("lt", "s32", self.tid(), weight))
            return result

        return self.once(("holder", tuple((mode.extent, mode.is_broadcast) for mode in layout.thread)), make)

    def one_thread(self) -> SSAValue:
        """A predicate that holds in the first thread of the role, or block."""
        return self.once("one thread", lambda: self.compare("eq", "s32", self.tid(), 0))

    def elected(self) -> SSAValue:
        """A predicate that holds in one lane of each warp, elected so that the assembler knows it to be one (a comparison of the thread
        index makes it guard every TMA instruction by a loop over the lanes)."""
        return self.once("elected", lambda: self.inst("elect.sync", [self.const(0xFFFFFFFF)], [reg("pred")]))

    def leader(self) -> SSAValue:
        """A predicate that holds in the elected lane of the first warp of the role, or block."""

        def make() -> SSAValue:
            result = self.both(self.elected(), self.compare("eq", "s32", self.warp(), 0))
            assert result is not None
            return result

        return self.elected() if self.one_warp else self.once("leader", make)

    def warpgroup_leader(self) -> SSAValue:
        """A predicate that holds in the elected lane of the first warp of each warpgroup."""

        def make() -> SSAValue:
            result = self.both(self.elected(), self.compare("eq", "s32", self.and_(self.warp(), 3), 0))
            assert result is not None
            return result

        return self.once("warpgroup leader", make)

    def barrier(self) -> None:
        """All threads of the role, or block, meet, and see each other's writes to shared and global memory."""
        number = self.const(self.barrier_number)
        self.inst("bar.sync", [number, self.const(self.threads)] if self.barrier_number else [number])
        self.unsynchronised.clear()
        self.last_barrier = self.block.last_op

    def fence_reads(self, before: Operation | None = None) -> None:
        """What threads have read in shared memory is done before copies that learn of it write there (`fence.proxy.async`): here, or before an operation made earlier."""
        if before is None:
            self.inst(PROXY_FENCE)
        elif not (isinstance(before.prev_op, ptx.InstOp) and before.prev_op.opcode.data == PROXY_FENCE):
            block = before.parent
            assert block is not None
            op = ptx.InstOp.make(PROXY_FENCE, [], [])
            op.location = before.location
            block.insert_op_before(op, before)

    def order_access(self, array: SSAValue, access: str) -> None:
        """Called before an access ('r', 'w', 'a') of a role's threads to an array: a barrier where an earlier access of another thread to what may be
        the same memory must come first. `conflict` says which accesses do not commute; two arrays may be the same memory unless stated `noalias`."""
        for other, earlier in self.unsynchronised.items():
            if conflict(access, earlier) and (other is array or not (self._noalias(other) or self._noalias(array))):
                self.barrier()
                break
        self.add_access(array, access)

    def add_access(self, array: SSAValue, access: str) -> None:
        """Notes accesses that no barrier has followed yet."""
        self.unsynchronised[array] = "".join(sorted({*self.unsynchronised.get(array, ""), *access}))

    def _noalias(self, array: SSAValue) -> bool:
        return self.kernel.arg_attr(self._arguments[array], "noalias") is not None

    # ---- control ------------------------------------------------------------------------------------------------

    def if_(
        self,
        condition: SSAValue,
        then: Callable[[], Sequence[SSAValue] | None],
        other: Callable[[], Sequence[SSAValue]] | None = None,
        results: Sequence[RegType] = (),
    ) -> list[SSAValue]:
        """A `ptx.if` whose regions `then` and `other` fill; each gives the values for `results`."""

        def region(fill: Callable[[], Sequence[SSAValue] | None]) -> Region:
            block = Block()
            with self.into(block):
                values = fill() or ()
                self.add_op(ptx.YieldOp.create(operands=list(values)))
            return Region(block)

        op = ptx.IfOp.make(condition, results, region(then), region(other) if other is not None else None)
        self.add_op(op)
        return list(op.results)

    def for_(
        self,
        lower: SSAValue,
        upper: SSAValue,
        step: SSAValue,
        init: Sequence[SSAValue],
        body: Callable[[SSAValue, list[SSAValue]], Sequence[SSAValue]],
    ) -> list[SSAValue]:
        """A `ptx.for`; `body` takes the counter and the carried values and gives the next ones."""
        block = Block(arg_types=[lower.type, *(value.type for value in init)])
        with self.into(block):
            values = body(block.args[0], list(block.args[1:]))
            self.add_op(ptx.YieldOp.create(operands=list(values)))
        op = ptx.ForOp.make(lower, upper, step, init, Region(block))
        self.add_op(op)
        return list(op.results)

    # ---- arrays and parameters ----------------------------------------------------------------------------------

    def _argument_name(self, array: SSAValue) -> str:
        return self.kernel.names[self._arguments[array]]

    def param(self, param: Param, cls: str) -> SSAValue:
        """The value of a kernel parameter, read once; it becomes part of the launch plan."""

        def make() -> SSAValue:
            self.params[param.name] = param
            op = ptx.ParamOp.make(param.name, cls)
            self.add_op(op)
            return op.res

        return self.once(("param", param.name), make)

    def pointer(self, array: SSAValue) -> SSAValue:
        """The array's base as a global address, b64."""
        name = self._argument_name(array)

        def make() -> SSAValue:
            generic = self.param(Param("pointer", f"p_{name}", name), "b64")
            return self.inst("cvta.to.global.u64", [generic], [reg("b64")])

        return self.once(("pointer", name), make)

    def static_stride(self, array: SSAValue, dim: int) -> int | None:
        """The array's stride along `dim` in elements, where its type states it."""
        assert isinstance(array.type, MemRefType)
        return static_strides(array.type)[dim]

    def stride(self, array: SSAValue, dim: int) -> SSAValue:
        """The array's stride along `dim` in elements, b64."""
        static = self.static_stride(array, dim)
        if static is not None:
            return self.const(static, "b64")
        name = self._argument_name(array)
        return self.param(Param("stride", f"s_{name}_{dim}", name, dim), "b64")

    def extent(self, array: SSAValue, dim: int) -> SSAValue:
        """The array's extent along `dim`, b64."""
        expr = self.kernel.shape_exprs(self._arguments[array])[dim]
        return self.dim_expr(expr)

    def shape_of_array(self, array: SSAValue) -> tuple[DimExpr, ...]:
        """The array's stated shape."""
        return self.kernel.shape_exprs(self._arguments[array]) or ()

    def dim_expr(self, expr: DimExpr) -> SSAValue:
        """The value of a dimension expression, b64, computed once."""
        return self.once(("dim", str(expr)), lambda: self._dim_expr(expr))

    def _dim_expr(self, expr: DimExpr) -> SSAValue:
        if expr.op == "int":
            return self.const(int(expr.value), "b64")
        if expr.op == "sym":
            return self.param(Param("dim", f"d_{expr.value}", str(expr.value)), "b64")
        left, right = (self.dim_expr(arg) for arg in expr.args)
        match expr.op:
            case "+":
                return self.add(left, right)
            case "-":
                return self.sub(left, right)
            case "*":
                return self.mul(left, right)
            case "min":
                return self.min_(left, right)
            case "max":
                return self.max_(left, right)
            case "floordiv":
                return self.inst("div.s64", [left, right], [reg("b64")])
            case "floordiv" | "ceildiv" if (shift := _power_of_two(self.known(right))) is not None:
                above = self.add(left, self.sub(right, 1)) if expr.op == "ceildiv" else left
                return self.inst("shr.s64", [above, self.const(shift)], [reg("b64")]) if shift else above
            case "ceildiv":
                above = self.add(left, self.sub(right, 1))
                return self.inst("div.s64", [above, right], [reg("b64")])
            case _:
                return self.inst("rem.s64", [left, right], [reg("b64")])

    def stride_align(self, array: SSAValue) -> int:
        """Bytes that the array's base address, and every stride but unit ones, are multiples of."""
        return argument_align(self.kernel, array)

    def tensormap(self, array: SSAValue, spec: TensorMapSpec) -> SSAValue:
        """The generic address of a tensor map over `array`, which becomes a parameter."""

        def make() -> str:
            name = next((param.name for param in self.params.values() if param.tensormap == spec), None)
            if name is None:
                name = f"tm_{spec.arg}_{sum(param.kind == 'tensormap' for param in self.params.values())}"
                self.params[name] = Param("tensormap", name, spec.arg, 0, spec)
            return name

        return self.tensormap_address(self.once(("name of tensormap", spec), make), spec)

    def tensormap_address(self, name: str, spec: TensorMapSpec) -> SSAValue:
        """The generic address of the tensor map that is the parameter `name`."""

        def make() -> SSAValue:
            op = ptx.ParamAddressOp.make(name)
            self.add_op(op)
            return op.res

        return self.once(("tensormap", spec), make)

    def argument_name(self, array: SSAValue) -> str:
        """The name of the kernel's argument."""
        return self._argument_name(array)

    def divisor(self, value: SSAValue) -> int:
        """A number that divides a tile-level index value."""
        return self.facts.divisor(value)

    # ---- shared memory and messages -----------------------------------------------------------------------------

    def scratch(self, nbytes: int) -> int:
        """The byte offset of a scratch region of at least `nbytes`. All users share one region: a barrier before it is written and
        one before it is read belong to each use."""
        self.scratch_bytes = max(self.scratch_bytes, nbytes)
        return self.scratch_base

    def shared_address(self, offset: int) -> SSAValue:
        """The shared-window address of byte `offset` of the block's dynamic shared memory, b32."""

        def make() -> SSAValue:
            op = ptx.SharedAddressOp.make(offset)
            self.add_op(op)
            return op.res

        return self.once_static(("shared", offset), make)

    def once_static(self, key: Any, make: Callable[[], SSAValue]) -> SSAValue:
        """As `once`; and `is_static` knows the value."""
        result = self.once(key, make)
        self._static.add(result)
        return result

    def is_static(self, value: SSAValue) -> bool:
        """Whether the value was computed in the prologue from constant addresses, so that what follows from it can be, too."""
        return value in self._static

    def require(self, requirement: Requirement) -> None:
        """What the launcher must check before it takes this variant."""
        self.requirements[requirement] = None

    def note(self, text: str) -> None:
        """What a reader of the plan should know."""
        self.notes[text] = None

    def error(self, at: Any, message: str, hint: str | None = None) -> TeselaError:
        """The error to raise, at an op or a value (or at the kernel)."""
        return TeselaError.at(at if at is not None else self.kernel, message, hint)
