"""check-barriers: mbarriers, their bytes and phases, and registers that change hands are used as they must be, whatever the trips. Changes nothing.

`check-async` knows channels, whose barriers are not written yet. This pass looks at what they have become at the ptx level, where a count, a number of bytes or a
parity can be wrong. It executes a kernel's control flow and its scalars for one block, all threads at once, without arrays (thread_values.py), for many choices of what
the caller states: sizes at which the kernel's loops have 0, 1, 2, … trips, up to twice the number of mbarriers that their operations go round, and two
more (slots and parities repeat then), and several tiles a block. On each walk it follows

- mbarriers: initialised once, by one thread; as many arrivals for each phase as they count; as many bytes announced as the copies that complete on
  them bring; waits for phases in their order, by the parity of a running count (barrier_protocol.py);
- what bulk copies write: read after a wait for their phase, and written again after all reads, as far as the warp that issues the copy can know, by mbarriers,
  barriers, and waits for groups of wgmmas; and after a proxy fence of those that read by themselves;
- registers: what some warpgroups take by `setmaxnreg`, others have given, and a block starts with what its threads have;
- waits: where all warps wait for others, they would for ever.

    ptx.wait_parity %slot, %parity                               warps 0 to 3 wait for phase 2 of the mbarrier at 7680
    ptx.inst "mbarrier.arrive.expect_tx…" %full, %bytes          announces 2560 bytes for its phase 2
    ptx.inst "cp.async.bulk.tensor…" %to, %map, %at, %full       brings 2048, so that phase 2 never completes: an error at the line before

Threads that a branch divides by what differs between them (roles) are walked beside one another, each as far as it can go. Conditions that depend on what arrays
hold are drawn. Blocks of a cluster do the same: what one sends to the others, it gets from them. All is drawn from the number of the walk, so that the pass says the
same each time.

What is not checked here: copies by cp.async and by threads, and races between the threads of a role (the simulator judges them as a kernel runs). A kernel with
mbarrier operations that are not modelled (`test_wait`, states, arrivals by cp.async) is passed over, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ..dialects.async_roles import LEAST_REGISTERS, MOST_REGISTERS, REGISTER_UNIT, WARPGROUP_WARPS, entry_registers
from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import ArrayArg
from ..dialects.ptx import (
    ConcatOp,
    ConditionOp,
    ConstantOp,
    ForOp,
    IfOp,
    InstOp,
    KernelOp,
    ParamAddressOp,
    ParamOp,
    PickOp,
    SharedAddressOp,
    SpecialOp,
    WaitParityOp,
    WhileOp,
    YieldOp,
    split_form,
)
from ..dialects.ptx_isa import TABLE, Row
from ..passes.base import Pass, PassContext
from ..passes.path_answers import Sizes
from .barrier_protocol import WARP, Protocol, line_of, named, warps_of
from .thread_values import Value, evaluate, wrap

PROTOCOL = frozenset(
    "mbarrier_init mbarrier_arrive mbarrier_tx tma_load cp_bulk setmaxnreg bar_sync bar_red cluster_arrive cluster_wait wgmma wgmma_commit wgmma_wait ld ldmatrix fence_proxy_async".split()
)
"""Meanings of instructions that are followed; `ld` and `cp_bulk` of shared memory only."""
UNKNOWN = frozenset("mbarrier_wait mbarrier_inval cp_async_mbarrier_arrive bar_arrive".split())
"""Meanings of instructions that are not, and that others may wait for."""


MOST_EVENTS = 4000
"""Operations of the protocol in one walk; a longer one ends there, and what it leaves undone is not looked at."""


@dataclass
class CheckBarriers(Pass):
    """Check mbarriers, bytes, phases and register budgets of ptx kernels. `walks`: for how many choices of sizes."""

    name: ClassVar[str] = "check-barriers"
    walks: int = 40

    def run(self, module: ModuleOp, context: PassContext) -> None:
        if self.walks < 1:
            raise TeselaError.at(None, f"check-barriers: walks must be positive, found {self.walks}")
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        if not kernels:
            context.emitter.note(module, "check-barriers looks at kernels of the ptx level, and there is none: run tile-to-ptx first")
        for kernel in kernels:
            code = _Code(kernel)
            if code.unknown is not None:
                context.emitter.note(code.unknown, f"check-barriers does not follow {code.unknown.opcode.data}, and passes the kernel over")
            elif code.waits:
                for number in range(self.walks):
                    _Walk(code, number).run()


# ---- what is walked -------------------------------------------------------------------------------------------------


@cache
def _row(opcode: str) -> Row | None:
    return TABLE.get(opcode)


def _follows(op: Operation) -> bool:
    """Whether an operation is one of the protocol's."""
    if isinstance(op, WaitParityOp):
        return True
    if not isinstance(op, InstOp) or (row := _row(op.opcode.data)) is None or row.meaning not in PROTOCOL:
        return False
    if row.meaning == "ld":
        return row.args.get("space") == "shared"
    if row.meaning == "fence_proxy_async":
        return row.args.get("space") != "global"
    return row.meaning != "cp_bulk" or row.args.get("from") == "global"


class _Code:
    """The operations of a kernel that matter: the protocol's, and what their operands and the control flow round them depend on."""

    def __init__(self, kernel: KernelOp) -> None:
        self.kernel = kernel
        self.threads = kernel.threads.value.data
        self.waits = False
        """Whether there is anything to check."""
        self.unknown: InstOp | None = None
        self.blocks: dict[Block, list[tuple[str, Operation]]] = {}
        """By block the operations that are kept, each with what it is to the walk."""
        self.computed: dict[Operation, _Computed] = {}
        self.steps: list[int] = []
        """Of the loops that are walked."""
        self.round = 1
        """How many mbarriers an operation has gone round, on the walks so far."""
        kept: set[Operation] = set()
        for op in kernel.walk():
            if isinstance(op, InstOp) and (row := _row(op.opcode.data)) is not None and row.meaning in UNKNOWN:
                self.unknown = op
            self.waits |= isinstance(op, WaitParityOp) or (isinstance(op, InstOp) and op.opcode.data.startswith(("mbarrier", "setmaxnreg")))
        if self.unknown is None and self.waits:
            self._keep([op for op in kernel.walk() if _follows(op)], kept)
            for block in (kernel.body.block, *(block for op in kept for region in op.regions for block in region.blocks)):
                self.blocks[block] = [(_kind(op), op) for op in block.ops if op in kept or isinstance(op, YieldOp | ConditionOp)]
            self.steps = sorted({step for op in kept if isinstance(op, ForOp) and (step := _constant(op.step)) is not None and step > 0})
            self.computed = {op: _Computed.of(op) for op in kept if isinstance(op, InstOp) and not _follows(op)}

    def _keep(self, roots: Iterable[Operation], kept: set[Operation]) -> None:
        work = list(roots)

        def value(wanted: SSAValue) -> None:
            if isinstance(wanted, BlockArgument):
                loop = wanted.block.parent_op()
                index = wanted.index
                match loop:
                    case ForOp():
                        work.append(loop)
                        if index > 0:
                            carry(loop, index - 1)
                    case WhileOp():
                        work.append(loop)
                        whole(loop)
                    case _:
                        pass
                return
            owner = wanted.owner
            assert isinstance(owner, Operation)
            work.append(owner)
            index = list(owner.results).index(wanted)
            if isinstance(owner, ForOp):
                carry(owner, index)
            elif isinstance(owner, IfOp):
                if (owner, index) not in carried:
                    carried.add((owner, index))
                    for region in (owner.then_region, owner.else_region):
                        if region.blocks and isinstance(last := region.block.last_op, YieldOp):
                            value(last.args[index])
            elif isinstance(owner, WhileOp):
                whole(owner)

        def carry(loop: ForOp, index: int) -> None:
            if (loop, index) in carried:
                return
            carried.add((loop, index))
            value(loop.init[index])
            last = loop.body.block.last_op
            assert isinstance(last, YieldOp)
            value(last.args[index])

        def whole(loop: WhileOp) -> None:
            if (loop, 0) in carried:
                return
            carried.add((loop, 0))
            for operand in loop.init:
                value(operand)
            for region in (loop.before, loop.after):
                last = region.block.last_op
                assert last is not None
                for operand in last.operands:
                    value(operand)

        carried: set[tuple[Operation, int]] = set()
        while work:
            op = work.pop()
            if op in kept or op is self.kernel:
                continue
            kept.add(op)
            if (parent := op.parent_op()) is not None:
                work.append(parent)
            match op:
                case ForOp():
                    for operand in (op.lower, op.upper, op.step):
                        value(operand)
                case IfOp():
                    value(op.condition)
                case WhileOp():
                    whole(op)
                case InstOp() if _row(op.opcode.data) is not None and _row(op.opcode.data).meaning == "wgmma":  # type: ignore[union-attr]
                    for operand in _descriptors(op):
                        value(operand)
                case InstOp() if _row(op.opcode.data) is not None and _row(op.opcode.data).meaning == "tma_load":  # type: ignore[union-attr]
                    to, _, _, *others = op.operands
                    for operand in (to, *others):
                        value(operand)
                case _:
                    for operand in op.operands:
                        value(operand)
        self.carried = carried


def _kind(op: Operation) -> str:
    """What an operation is to the walk: the end of a block, control, an instruction of the protocol, or something that computes."""
    if isinstance(op, YieldOp | ConditionOp):
        return "end"
    if isinstance(op, ForOp | IfOp | WhileOp | WaitParityOp):
        return op.name
    return "protocol" if _follows(op) else "inst" if isinstance(op, InstOp) else "compute"


@dataclass(frozen=True, slots=True)
class _Computed:
    """An instruction that only computes: its row, operands, and how many registers one of the `count` instructions takes of each."""

    row: Row | None
    args: tuple[SSAValue, ...]
    widths: tuple[int, ...]
    count: int
    guard: SSAValue | None
    negated: bool
    init: tuple[SSAValue, ...]
    results: tuple[SSAValue, ...]
    registers: int
    """Of the result, if it is one."""

    @staticmethod
    def of(op: InstOp) -> _Computed:
        form, count = op.form()
        args, guard, init = op.segments()
        _, sources, _ = split_form(form)
        registers = op.results[0].type.count if len(op.results) == 1 else 0  # type: ignore[attr-defined]
        return _Computed(_row(op.opcode.data), args, tuple(source.registers for source in sources), count, guard, op.negated is not None, init, tuple(op.results), registers)


def _constant(value: SSAValue) -> int | None:
    return value.owner.value.value.data if isinstance(value.owner, ConstantOp) else None


def _descriptors(op: InstOp) -> list[SSAValue]:
    """The operands of a wgmma that name shared memory."""
    return [arg for arg in op.segments()[0] if arg.type.data == ("b64", 1)]  # type: ignore[attr-defined]


# ---- one walk -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Wait:
    """What a task waits for. `culprit`: the operation to blame where it is for ever, if another than the wait itself."""

    op: Operation
    mask: np.ndarray
    ready: Callable[[], bool]
    why: Callable[[], str]
    culprit: Callable[[], TeselaError | None] = lambda: None


Steps = Generator[_Wait, None, list[Value]]


@dataclass(eq=False)
class _Task:
    steps: Generator[_Wait, None, Any]
    waits: _Wait | None = None
    done: bool = False


@dataclass(eq=False)
class _Rendezvous:
    """A named barrier, or the cluster's: the threads that have come since all had."""

    arrived: np.ndarray
    masks: list[np.ndarray] = field(default_factory=list)
    holds: int = 0
    """Threads that have come with a predicate that holds (`bar.red`)."""
    unknown: int = 0
    """Threads that have come with one that is not known."""
    totals: list[int] = field(default_factory=list)
    """Of each meeting so far, the threads whose predicate held."""


class _TooLong(Exception):
    """A walk has gone on for MOST_EVENTS."""


class _Caller(Sizes):
    """What the caller states, and which block it is."""

    def __init__(self, code: _Code, number: int) -> None:
        super().__init__(number, code.steps, code.round)
        self.values: dict[str, int] = {}
        self.kinds = {param.name: param.kind for param in code.kernel.plan.data.params} if code.kernel.plan is not None else {}

    def of(self, name: str) -> int:
        """A parameter's value, or a special register's."""
        if name not in self.values:
            self.values[name] = self._drawn(name)
        return self.values[name]

    def _drawn(self, name: str) -> int:
        match self.kinds.get(name, name.partition(".")[0]):
            case "%nctaid" | "%nclusterid":
                return self.blocks if name.endswith(".x") else 1
            case "%ctaid" | "%clusterid":
                return self.rng.randrange(self.of(name.replace("ctaid", "nctaid").replace("clusterid", "nclusterid")))
            case "stride" | "pointer" | "messages" | "workspace" | "counters":
                return 1 << 20
            case _:
                return self.extent()

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values.items() if value != 1 << 20)


class _Walk:
    """One walk through a kernel."""

    def __init__(self, code: _Code, number: int) -> None:
        self.code = code
        self.sizes = _Caller(code, number)
        self.threads = code.threads
        self.values: dict[SSAValue, Value] = {}
        self.protocol = Protocol(code.threads)
        self.tasks: list[_Task] = []
        self.meetings: dict[Any, _Rendezvous] = {}
        entry = entry_registers(code.threads)
        self.registers = np.full(code.threads // WARP, entry)
        self.budget = entry * (code.threads // WARP)
        self.seen: dict[Operation, set[int]] = {}
        """The mbarriers that an operation has gone round."""
        self.events = 0
        self.control: dict[str, Callable[[Any, np.ndarray], Steps]] = {
            "ptx.for": self._for,
            "ptx.if": self._if,
            "ptx.while": self._while,
            "ptx.wait_parity": self._wait_parity,
        }

    def run(self) -> None:
        """Raises TeselaError for what is wrong, with the sizes at which it is."""
        try:
            self._run()
        except _TooLong:
            pass
        except TeselaError as error:
            first = error.diagnostics[0]
            raise TeselaError.at(first.location, f"{first.message} ({self.sizes})" if str(self.sizes) else first.message, first.hint) from None
        self.code.round = max([self.code.round, *map(len, self.seen.values())])

    def _run(self) -> None:
        everybody = np.ones(self.threads, bool)
        self.tasks.append(_Task(self._block(self.code.kernel.body.block, everybody)))
        while any(not task.done for task in self.tasks):
            moved = False
            for task in reversed(self.tasks):  # roles that copy come last as a rule, and a read that does not wait should find what they copy
                if task.done or (task.waits is not None and not task.waits.ready()):
                    continue
                moved = True
                task.waits = next(task.steps, None)
                task.done = task.waits is None
            if not moved:
                raise self._stuck()
        self.protocol.finish()

    def _stuck(self) -> TeselaError:
        waits = [task.waits for task in self.tasks if task.waits is not None and not task.done and task.waits.op is not None]
        waits = [wait for wait in waits if wait.why()]
        for wait in waits:
            if (error := wait.culprit()) is not None:
                return error
        first, *others = waits
        also = "".join(f"; {named(wait.mask)}{line_of(wait.op)}: {wait.why()}" for wait in others)
        verb = "waits" if len(warps_of(first.mask)) == 1 else "wait"
        return TeselaError.at(first.op, f"{named(first.mask)} {verb} for ever: {first.why()}{also}")

    # -- control

    def _block(self, block: Block, mask: np.ndarray) -> Steps:
        """Walks a block with the threads of the mask; gives what its terminator hands on."""
        for kind, op in self.code.blocks.get(block, ()):
            if kind == "inst":
                self._instruction(self.code.computed[op])
            elif kind == "compute":
                self._compute(op)
            elif kind == "protocol":
                assert isinstance(op, InstOp)
                yield from self._protocol(op, mask)
            elif kind == "end":
                return [self.values.get(value) for value in op.operands]
            else:
                yield from self.control[kind](op, mask)
        return []

    def _for(self, op: ForOp, mask: np.ndarray) -> Steps:
        body = op.body.block
        lower, upper, step = (_uniform(self.values.get(value), mask) for value in (op.lower, op.upper, op.step))
        carried = [self.values.get(value) for value in op.init]
        if lower is None or upper is None or step is None:
            lower, upper, step = 0, self.sizes.trips(), 1
        for counter in range(lower, upper, max(step, 1)):
            self.values[body.args[0]] = counter
            self.values.update(zip(body.args[1:], carried))
            carried = yield from self._block(body, mask)
        self.values.update(zip(op.res, carried))
        return []

    def _while(self, op: WhileOp, mask: np.ndarray) -> Steps:
        before, after = op.before.block, op.after.block
        handed = [self.values.get(value) for value in op.init]
        while True:
            self.values.update(zip(before.args, handed))
            test, *handed = yield from self._block(before, mask)
            if not self._holds(test, mask, 0.8):
                break
            self.values.update(zip(after.args, handed))
            handed = yield from self._block(after, mask)
        self.values.update(zip(op.res, handed))
        return []

    def _holds(self, test: Value, mask: np.ndarray, often: float = 0.5) -> bool:
        """A condition that all threads of the mask share, or any of them; one that is not known is drawn."""
        if test is None:
            return self.sizes.rng.random() < often
        return bool(test[mask].any()) if isinstance(test, np.ndarray) else bool(test)

    def _if(self, op: IfOp, mask: np.ndarray) -> Steps:
        test = self.values.get(op.condition)
        if isinstance(test, np.ndarray) and (test[mask].all() or not test[mask].any()):
            test = bool(test[mask].all())
        if not isinstance(test, np.ndarray):
            region = op.then_region if self._holds(test, mask) else op.else_region
            handed = (yield from self._block(region.block, mask)) if region.blocks else []
            self.values.update(zip(op.res, handed))
            return []
        branches = [(op.then_region, mask & test), (op.else_region, mask & ~test)]
        branches = [(region, part) for region, part in branches if region.blocks]
        results: list[list[Value]] = [[] for _ in branches]
        if len(branches) > 1 and any(_may_wait(region.block) for region, _ in branches):
            tasks = []
            for place, (region, part) in enumerate(branches):

                def run(place: int = place, block: Block = region.block, part: np.ndarray = part) -> Steps:
                    results[place] = yield from self._block(block, part)
                    return []

                tasks.append(_Task(run()))
            self.tasks += tasks
            yield _Wait(op, mask, lambda: all(task.done for task in tasks), lambda: "")
        else:
            for place, (region, part) in enumerate(branches):
                results[place] = yield from self._block(region.block, part)
        if op.res and len(results) == 2:
            for result, yes, no in zip(op.res, *results):
                self.values[result] = None if yes is None or no is None or isinstance(yes, tuple) else np.where(test, yes, no)
        return []

    # -- values

    def _compute(self, op: Operation) -> None:
        match op:
            case ConstantOp():
                value = op.value.value.data
                bits = {"pred": 1, "b16": 16, "b32": 32, "b64": 64}[op.res.type.cls]  # type: ignore[attr-defined]
                self.values[op.res] = bool(value & 1) if bits == 1 else wrap(value, bits)
            case SharedAddressOp():
                self.values[op.res] = op.offset.value.data
            case ParamOp():
                self.values[op.res] = self.sizes.of(op.param.data)
            case SpecialOp():
                self.values[op.res] = self._special(op.register.data)
            case PickOp():
                source = self._registers(op.source)
                picked = [source[index] for index in op.indices.get_values()]
                self.values[op.res] = picked[0] if len(picked) == 1 else tuple(picked)
            case ConcatOp():
                parts = [register for part in op.parts for register in self._registers(part)]
                self.values[op.res] = parts[0] if len(parts) == 1 else tuple(parts)
            case _:
                for result in op.results:
                    self.values[result] = None

    def _special(self, name: str) -> Value:
        tid = np.arange(self.threads)
        match name:
            case "%tid.x":
                return tid
            case "%laneid":
                return tid % WARP
            case "%ntid.x":
                return self.threads
            case "%tid.y" | "%tid.z" | "%cluster_ctarank" | "%cluster_ctaid.x" | "%cluster_ctaid.y" | "%cluster_ctaid.z":
                return 0
            case _ if "ctaid" in name or "clusterid" in name:
                return self.sizes.of(name)
            case _:
                return None

    def _registers(self, value: SSAValue) -> tuple[Value, ...]:
        count = value.type.count  # type: ignore[attr-defined]
        found = self.values.get(value)
        if count == 1:
            return (found,)
        return found if isinstance(found, tuple) else (found,) * count

    def _instruction(self, op: _Computed) -> None:
        row = op.row
        if row is not None and row.meaning == "elect":
            self.values[op.results[0]] = np.arange(self.threads) % WARP == 0
            return
        if op.guard is not None:
            taken = self.values.get(op.guard)
            if isinstance(taken, np.ndarray) or taken is None:
                row = None
            elif bool(taken) == op.negated:
                self.values.update((result, self.values.get(value)) for result, value in zip(op.results, op.init))
                return
        if row is None or not op.registers:
            self.values.update((result, None) for result in op.results)
            return
        if op.count == 1 and op.widths == (1,) * len(op.args):
            found = [evaluate(row, [self.values.get(arg) for arg in op.args])]
        else:
            given = [self._registers(arg) for arg in op.args]
            found = []
            for number in range(op.count):
                one = []
                for width, registers in zip(op.widths, given):
                    at = number * width if len(registers) > width else 0
                    part = registers[at : at + width]
                    one.append(part[0] if width == 1 else part)
                found.append(evaluate(row, one))
        self.values[op.results[0]] = found[0] if op.registers == 1 else tuple(found) if len(found) == op.registers else None

    # -- the protocol

    def _number_at(self, op: Operation, value: SSAValue, mask: np.ndarray, what: str) -> int:
        """What the threads of the mask all have. Raises TeselaError where it is not known, or not the same."""
        return self._known(op, _uniform(self._registers(value)[0], mask), what)

    def _address(self, op: InstOp, value: SSAValue, mask: np.ndarray, what: str) -> int:
        """The shared address in `value`, with the op's offset."""
        return self._known(op, _uniform(self._addresses(op, value), mask), what)

    def _known(self, op: Operation, found: int | None, what: str) -> int:
        if found is None:
            raise TeselaError.at(op, f"check-barriers cannot tell {what}", "let it depend on constants, on thread indices and on counters of trips alone")
        return found

    def _addresses(self, op: InstOp, value: SSAValue, number: int = 0) -> Value:
        """The address in register `number` of `value`, with its offset."""
        offsets = list(op.offsets.get_values()) if op.offsets is not None else [0]
        found = self._registers(value)
        base = found[number] if number < len(found) else found[0]
        return None if base is None else base + offsets[number if number < len(offsets) else 0]

    def _wait_parity(self, op: WaitParityOp, mask: np.ndarray) -> Steps:
        """Warpgroups may wait for mbarriers of their own."""
        found = self.values.get(op.barrier)
        addresses = np.broadcast_to(self._known(op, None, "the mbarrier's address") if found is None else found, mask.shape)
        for address in np.unique(addresses[mask]):
            yield from self._wait_at(op, int(address), mask & (addresses == address))
        return []

    def _wait_at(self, op: WaitParityOp, address: int, mask: np.ndarray) -> Steps:
        address += op.offset.value.data if isinstance(op.offset, IntegerAttr) else 0
        parity = self._number_at(op, op.phase, mask, "the parity")
        self._count()
        self.seen.setdefault(op, set()).add(address)
        phase = self.protocol.begin_wait(op, address, parity, mask)
        barrier = self.protocol.barriers[address]

        def why() -> str:
            if barrier.bytes:
                return f"phase {phase} of the mbarrier at {address} lacks {barrier.bytes} bytes"
            return f"phase {phase} of the mbarrier at {address} has {barrier.count - barrier.pending} of {barrier.count} arrivals"

        def culprit() -> TeselaError | None:
            return self.protocol.bytes_wrong(barrier) if barrier.bytes and not barrier.pending else None

        if barrier.phase <= phase:
            yield _Wait(op, mask, lambda: barrier.phase > phase, why, culprit)
        self.protocol.end_wait(address, phase, mask)
        return []

    def _protocol(self, op: InstOp, mask: np.ndarray) -> Steps:
        row = _row(op.opcode.data)
        assert row is not None
        mask = self._guarded(op, mask)
        if not mask.any():
            return []
        args = op.segments()[0]
        self._count()
        match row.meaning:
            case "mbarrier_init":
                address = self._address(op, args[0], mask, "the mbarrier's address")
                self.protocol.init(op, address, self._number_at(op, args[1], mask, "how many arrivals the mbarrier counts"), mask)
            case "mbarrier_arrive" | "mbarrier_tx":
                self._arrive(op, row, args, mask)
            case "tma_load" | "cp_bulk":
                self._copy(op, row, args, mask)
            case "wgmma":
                starts = [(self.values[arg] & 0x3FFF) << 4 for arg in _descriptors(op) if self.values.get(arg) is not None]
                for part in _by(mask, WARP * WARPGROUP_WARPS):
                    self.protocol.read(op, {int(np.broadcast_to(start, mask.shape)[part][0]) for start in starts}, part, True)
            case "fence_proxy_async":
                self.protocol.fence(mask)
            case "wgmma_commit":
                self.protocol.commit(mask)
            case "wgmma_wait":
                self.protocol.wait_groups(_imm(op), mask)
            case "ld" | "ldmatrix":
                for number in range(op.repeats()):
                    address = self._addresses(op, args[0], number)
                    if address is not None and self.protocol.fills:
                        for part in _by(mask, WARP) if isinstance(address, np.ndarray) else [mask]:
                            self.protocol.read(op, np.unique(np.broadcast_to(address, mask.shape)[part]), part, False)
            case "bar_sync":
                which, count = self._named_barrier(op, args, mask)
                yield from self._meet(op, ("bar", which), count, mask)
            case "bar_red":
                *named_by, predicate = args
                which, count = self._named_barrier(op, named_by, mask)
                yield from self._reduce(op, row, ("bar", which), count, predicate, mask)
            case "cluster_wait":
                yield from self._meet(op, "cluster", self.threads, mask)
            case "setmaxnreg":
                yield from self._set_registers(op, row, mask)
            case _:
                pass
        return []

    def _count(self) -> None:
        self.events += 1
        if self.events > MOST_EVENTS:
            raise _TooLong

    def _guarded(self, op: InstOp, mask: np.ndarray) -> np.ndarray:
        guard = op.segments()[1]
        if guard is None:
            return mask
        taken = self.values.get(guard)
        if isinstance(taken, tuple):
            return mask
        if taken is None:
            taken = self._holds(None, mask)
        taken = np.broadcast_to(taken, mask.shape)
        return mask & (~taken if op.negated is not None else taken)

    def _arrive(self, op: InstOp, row: Row, args: tuple[SSAValue, ...], mask: np.ndarray) -> None:
        found = self._addresses(op, args[0])
        if found is None:
            self._known(op, None, "the mbarrier's address")
        addresses = np.broadcast_to(found, mask.shape)
        expects = row.meaning == "mbarrier_tx" or bool(row.args.get("expect_tx"))
        for address in np.unique(addresses[mask]):
            those = mask & (addresses == address)
            self.seen.setdefault(op, set()).add(int(address))
            number = self._number_at(op, args[1], those, "how many bytes, or arrivals") if len(args) > 1 else 1
            if row.meaning == "mbarrier_tx" and row.args["kind"] == "complete_tx":
                self.protocol.announce(op, int(address), -number * int(those.sum()))
                continue
            if expects:
                self.protocol.announce(op, int(address), number * int(those.sum()))
            if row.meaning == "mbarrier_arrive":
                self.protocol.arrive(op, int(address), int(those.sum()) * (1 if expects else number), those)

    def _copy(self, op: InstOp, row: Row, args: tuple[SSAValue, ...], mask: np.ndarray) -> None:
        if row.meaning == "tma_load":
            to, tensormap, _, barrier, *more = args
            nbytes = self._box_bytes(op, tensormap)
        else:
            to, _, size, barrier, *more = args
            nbytes = self._number_at(op, size, mask, "how many bytes are copied")
        copies = 1
        if row.args.get("multicast"):
            copies = self._number_at(op, more[0], mask, "the blocks that a copy is sent to").bit_count()
        if mask.sum() > 1:
            raise TeselaError.at(op, f"{int(mask.sum())} threads issue the copy, each for itself", "let one thread issue it")
        start = self._address(op, to, mask, "where the copy writes")
        address = self._number_at(op, barrier, mask, "the mbarrier's address")
        self.seen.setdefault(op, set()).add(address)
        self.protocol.copy(op, start, nbytes, copies, address, mask)

    def _box_bytes(self, op: InstOp, tensormap: SSAValue) -> int:
        """What one copy through a tensor map writes: its whole box."""
        plan = self.code.kernel.plan
        if plan is not None and isinstance(made := tensormap.owner, ParamAddressOp):
            for param in plan.data.params:
                if param.name == made.param.data and param.tensormap is not None:
                    kinds = {arg.name: arg.dtype for arg in plan.data.args if isinstance(arg, ArrayArg)}
                    bits = re.match(r"[a-z]+(\d+)", kinds[param.tensormap.arg])
                    assert bits is not None
                    return int(np.prod(param.tensormap.box)) * max(1, int(bits[1]) // 8)
        raise TeselaError.at(op, "check-barriers cannot tell which tensor map the copy goes through", "name a parameter of the launch plan")

    def _named_barrier(self, op: InstOp, args: Sequence[SSAValue], mask: np.ndarray) -> tuple[int, int]:
        """The number of a barrier, and how many threads meet at it: all of the block where that is not stated."""
        which = self._number_at(op, args[0], mask, "the barrier's number")
        return which, self._number_at(op, args[1], mask, "the barrier's threads") if len(args) > 1 else self.threads

    def _reduce(self, op: InstOp, row: Row, which: Any, count: int, predicate: SSAValue, mask: np.ndarray) -> Steps:
        """A barrier that tells all its threads in how many of them a predicate holds. Of those where it is not known, in none, all or some: that is drawn, once
        for the meeting, so that all who meet are told the same."""
        place = self._place(which)
        if (test := self._registers(predicate)[0]) is None:
            place.unknown += int(mask.sum())
        else:
            place.holds += int((mask & np.broadcast_to(test, mask.shape)).sum())
        number = len(place.totals)
        yield from self._meet(op, which, count, mask)
        total = place.totals[number]
        self.values[op.results[0]] = {"and": total == count, "or": total > 0, "popc": total}[row.args["op"]]
        return []

    def _place(self, which: Any) -> _Rendezvous:
        return self.meetings.setdefault(which, _Rendezvous(np.zeros(self.threads, bool)))

    def _meet(self, op: InstOp, which: Any, count: int, mask: np.ndarray) -> Steps:
        """Waits until `count` threads have come."""
        place = self._place(which)
        place.arrived |= mask
        place.masks.append(mask)
        if place.arrived.sum() >= count:
            self.protocol.meet(place.masks)
            rng, unknown = self.sizes.rng, place.unknown
            place.totals.append(place.holds + (rng.choice((0, rng.randint(0, unknown), unknown)) if unknown else 0))
            place.arrived, place.masks, place.holds, place.unknown = np.zeros(self.threads, bool), [], 0, 0
            return []
        number = len(place.totals)
        what = f"barrier {which[1]}" if isinstance(which, tuple) else "the cluster's barrier"
        yield _Wait(op, mask, lambda: len(place.totals) > number, lambda: f"of {what}'s {count} threads {int(place.arrived.sum())} have come")
        return []

    def _set_registers(self, op: InstOp, row: Row, mask: np.ndarray) -> Steps:
        wanted, warps = _imm(op), warps_of(mask)
        if len(warps) % WARPGROUP_WARPS or warps[0] % WARPGROUP_WARPS:
            raise TeselaError.at(op, f"registers change for {named(mask)}, whole warpgroups of {WARPGROUP_WARPS} warps are required")
        if not LEAST_REGISTERS <= wanted <= MOST_REGISTERS or wanted % REGISTER_UNIT:
            raise TeselaError.at(op, f"registers must be a multiple of {REGISTER_UNIT} from {LEAST_REGISTERS} to {MOST_REGISTERS}, found {wanted}")
        now = int(self.registers[warps].max())
        if (wanted > now) != (row.args["direction"] == "inc") and wanted != now:
            raise TeselaError.at(op, f"asks for {wanted} registers a thread by '{row.args['direction']}', where {named(mask)} have {now}")

        def fits() -> bool:
            return self.registers.sum() - self.registers[warps].sum() + wanted * len(warps) <= self.budget

        def why() -> str:
            total = self.registers.sum() - self.registers[warps].sum() + wanted * len(warps)
            return (
                f"with {wanted} registers for each of their threads the block's sum to {WARP * total}, and it starts with {WARP * self.budget} "
                f"({self.threads} threads of {self.budget * WARP // self.threads})"
            )

        if not fits():
            yield _Wait(op, mask, fits, why)
        self.registers[warps] = wanted
        return []


def _imm(op: InstOp) -> int:
    assert op.imms is not None
    value = op.imms.data[0]
    assert isinstance(value, IntegerAttr)
    return value.value.data


def _by(mask: np.ndarray, threads: int) -> Iterable[np.ndarray]:
    """The mask in parts of so many threads: its warps, or warpgroups."""
    for start in range(0, len(mask), threads):
        part = np.zeros_like(mask)
        part[start : start + threads] = mask[start : start + threads]
        if part.any():
            yield part


def _uniform(value: Value, mask: np.ndarray) -> int | None:
    """The number that all threads of the mask have; None where they differ, or it is not known."""
    if isinstance(value, np.ndarray):
        distinct = np.unique(value[mask])
        return int(distinct[0]) if len(distinct) == 1 else None
    return None if value is None else int(value)


def _may_wait(block: Block) -> bool:
    """Whether a block waits for others."""
    return any(isinstance(op, WaitParityOp) or (isinstance(op, InstOp) and op.opcode.data.startswith(("bar", "setmaxnreg"))) for op in block.walk())
