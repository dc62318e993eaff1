"""The judge: runs a program in the simulator and says what is wrong with it. `docs/memory-order.md` is the law it
applies.

    reports = judge(text, grid=(4,), block=(128,), params=(x, y, n), memory=memory, shared_bytes=4096, seed=7)
    for report in reports:
        print(report)

**The API.**

* `judge(program, …, policy=, seed=, strict_isa=) -> list[Report]` takes what `launch` takes, runs the program once,
  and never raises for a fault of the program: whatever ends it early (a deadlock, an access out of bounds) is a
  report too. No report: nothing wrong was found.
* `launch(…, races=True, …)` does the same and raises `JudgedError`, whose `.reports` are these, if there are any.
* `with settings(races=True, seed=, policy=, strict_isa=):` (launcher.py) judges every launch within, also one by
  `Kernel(device="sim")`, which raises.
* `Report` (`reports.py`): `.kind` (one of `KINDS`), `.message`, `.first` and `.second` (`Access`: verb, who, where,
  op, location, line), `.missing`, `.count`.
* `Judge` is the `Observer` that does it: `launch(…, observer=Judge())`, then `.reports`.

**How.** `clocks.py` keeps what every thread knows to have happened before (vector clocks), `order.py` lets it grow by
synchronisation, `shadow.py` keeps who touched each granule of memory last, and `accesses.py` compares: an access that
conflicts with an earlier one which its thread does not know is a race, whatever the order in which the simulator
happened to run them. So one run finds what many runs by luck would not. Schedules still matter where control flow
depends on them, and adversarial ones (`policy`) run the same program in other orders. `register_watch.py` follows
registers, and what is left of barriers and bytes at the end is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Imm, Instr, Program
from . import memory
from .accesses import Accesses, is_strong
from .clocks import Clocks, joined
from .decode import TYPE_SIZE
from .faults import ProgramError
from .findings import Findings
from .grid_waits import GridWaits
from .matrix_ops import WarpgroupMma
from .observer import Observer
from .order import Order
from .register_watch import RegisterWatch
from .reports import BARRIER, BUDGET, BYTE_COUNT, Report
from .selection import WARP
from .shadow import GlobalShadow, SharedShadow
from .tensor_maps import MAP_BYTES, decode_tensor_map, element_bytes

if TYPE_CHECKING:
    from .asynchrony import Operation
    from .decode import Step
    from .machine import Machine
    from .selection import Selection

Array = NDArray[Any]
Threads = NDArray[np.intp]

AGENTS_OF_A_MACHINE = 1 << 18
"""By how much agents' numbers are raised from one machine to the next, at least."""

REGISTERS = 65536
"""Registers of a multiprocessor (CUDA C++ Programming Guide, technical specifications)."""


class Judge(Observer):
    """Watches a launch; `reports` is what it found. `strict`: by the letter of the ISA (docs/memory-order.md)."""

    def __init__(self, strict: bool = False):
        self.strict = strict
        self.findings = Findings()
        self._everywhere: GlobalShadow | None = None
        self._base = 0
        self._now = 1
        self._op: Operation | None = None

    @property
    def reports(self) -> list[Report]:
        return self.findings.reports

    def stopped(self, error: ProgramError) -> None:
        """The program could not go on: its end becomes reports."""
        self.findings.stopped(error)

    # The machine

    def begin(self, machine: Machine) -> None:
        steps = machine.code.steps
        instrs = [i for s in steps for i in s.instrs]
        waits = [
            int(op.bits) for i in instrs if ".wait_group" in i.opcode for op in i.operands[:1] if isinstance(op, Imm)
        ]
        clocks = self.clocks = Clocks(machine, max([1, *waits]), self._now)
        granule, everywhere, atomics = _granules(instrs, _element_of_maps(machine))
        if self._everywhere is None:
            spans = machine.memory.spans()
            first = min((low for low, _ in spans), default=memory.GLOBAL_BASE) // 256 * 256
            last = max((high for _, high in spans), default=first)
            self._everywhere = GlobalShadow(first, last - first, everywhere)
        shared = SharedShadow(len(machine.shared.data), granule, clocks, atomics)
        self.findings.start(machine, clocks, shared, self._everywhere)
        self.order = Order(machine, clocks, self.findings, self.strict)
        self.accesses = Accesses(machine, clocks, self.findings, shared, self._everywhere, self.order, self._base)
        self.registers = RegisterWatch(machine, self.findings.registers)
        self._exit_rows: dict[int, Array] = {}
        ending = ("cp.async.bulk", "cp.reduce", "st.async", "setmaxnreg")
        self._ends_matter = machine.cluster_size > 1 or any(i.opcode.startswith(ending) for i in instrs)
        self._asked: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """By block and warp: the setmaxnreg that the warp executed, (registers a thread, position) each."""
        self._collective = [s.meaning.unit == WARP and not s.meaning.control for s in steps]
        if self.strict:
            self._collective = [s.instrs[0].opcode.startswith("bar.warp.sync") for s in steps]
        self._maxnreg = [s.instrs[0].opcode.startswith("setmaxnreg") for s in steps]
        self.grid_waits = GridWaits(machine, self.findings)
        machine.watched = [any(w) for w in zip(self._collective, self._maxnreg, self.registers.watched, self.grid_waits.watched)]

    def end(self, machine: Machine) -> None:
        self._now = self.clocks.now
        self._base += max(AGENTS_OF_A_MACHINE, 4 * machine.thread_count)
        self._count_barriers(machine)

    def before(self, machine: Machine, step: Step, sel: Selection) -> None:
        position = machine.position
        if self.registers.watched[position]:
            self.registers.before(position, sel, self.clocks.tick())
        if self._maxnreg[position]:
            self._setmaxnreg(machine, step.instrs[0], sel)
        if self.grid_waits.watched[position]:
            self.grid_waits.before(position, sel.threads)

    def after(self, machine: Machine, step: Step, sel: Selection) -> None:
        position = machine.position
        if self.registers.watched[position]:
            self.registers.after(position, sel)
        if self._collective[position]:
            self.clocks.meet_in_warps(sel.threads)

    # Memory, fences, asynchronous operations

    def access(
        self,
        machine: Machine,
        kind: str,
        space: str,
        addresses: Array,
        size: int,
        threads: Threads,
        values: Array | None = None,
    ) -> None:
        if space != "param" and addresses.size:
            self.accesses.access(self._op, kind, space, addresses, size, threads, values)

    def sync(self, machine: Machine, instr: Instr, threads: Threads) -> None:
        words = instr.opcode.split(".")
        if words[0] == "wgmma":
            self.registers.fenced(threads, self.clocks.tick())
        else:
            self.order.fence(words, threads)

    def issued(self, machine: Machine, operation: Operation) -> None:
        self.accesses.issued(operation)
        if isinstance(operation, WarpgroupMma):
            self.registers.issued(operation, machine.position, operation.note.time)

    def working(self, machine: Machine, operation: Operation | None) -> None:
        self._op = operation

    def committed(self, machine: Machine, kind: str, owners: Threads) -> None:
        self.order.committed(kind, owners)

    def waited(self, machine: Machine, kind: str, owners: Threads, newest: int, read: bool) -> None:
        complete = self.order.waited(kind, owners, newest, read)
        self.registers.waited(list(complete), list(complete.values()))

    # Barriers

    def blocks_sync(self, machine: Machine, sel: Selection) -> None:
        self.order.blocks_sync(sel)

    def barrier_arrive(self, machine: Machine, block: int, number: int, threads: Threads) -> None:
        self.order.barrier_arrive(block, number, threads)

    def barrier_complete(self, machine: Machine, block: int, number: int, waiting: Sequence[Selection]) -> None:
        self.order.barrier_complete(block, number, waiting)

    def cluster_arrive(self, machine: Machine, sel: Selection, relaxed: bool) -> None:
        self.order.cluster_arrive(sel, relaxed)

    def cluster_complete(self, machine: Machine, cluster: int) -> None:
        self.order.cluster_complete(cluster)

    def cluster_pass(self, machine: Machine, sel: Selection) -> None:
        self.order.cluster_pass(sel)

    def mbarrier_init(self, machine: Machine, flat: Array, threads: Threads) -> None:
        times = np.array([[self.findings.event()]])
        self.accesses.shared_access("store", self.accesses.mbarrier_words(flat), times, threads, None, False)
        self.order.mbarrier_init(flat)

    def mbarrier_touch(self, machine: Machine, flat: Array, threads: Threads) -> None:
        self.accesses.mbarrier_touch(flat, threads)

    def mbarrier_arrive(self, machine: Machine, flat: Array, threads: Threads) -> None:
        if self._op is not None:
            self.accesses.async_signal(flat, self._op)
            self.order.async_arrive(flat, self._op)
        else:
            self.order.mbarrier_arrive(flat, threads)

    def mbarrier_phase(self, machine: Machine, flat: Array) -> None:
        self.order.mbarrier_phase(flat)

    def mbarrier_pass(self, machine: Machine, flat: Array, parity: Array, threads: Threads) -> None:
        self.order.mbarrier_pass(flat, parity, threads)

    # Ends

    def exit(self, machine: Machine, sel: Selection) -> None:
        self.grid_waits.exit(sel.threads)
        if not self._ends_matter:
            return
        accesses, clocks = self.accesses, self.clocks
        time = clocks.tick()
        blocks, counts = sel.blocks
        for block, count in zip(blocks.tolist(), counts.tolist()):
            base = block * machine.block_stride
            threads = sel.threads[sel.threads // machine.block_stride == block]
            self._exit_rows[block] = joined(self._exit_rows.get(block), clocks.publish(threads, time))
            if int(machine.alive[base : base + machine.block_stride].sum()) == count:
                accesses.block_ends(block, self._exit_rows[block])
                self._check_budget(machine, block)

    def _setmaxnreg(self, machine: Machine, instr: Instr, sel: Selection) -> None:
        asked = instr.operands[0]
        if isinstance(asked, Imm):
            for warp in sel.lanes.warps.tolist():
                of_block = self._asked.setdefault(warp * WARP // machine.block_stride, {})
                of_block.setdefault(warp, []).append((asked.bits, machine.position))

    def _check_budget(self, machine: Machine, block: int) -> None:
        """setmaxnreg moves registers between the warpgroups of a block; all warps of one must execute the same, and what is asked for in the end must
        be there (PTX ISA 9.0 §9.7.19.5). A block has what its threads start with: .maxnreg, or what fits on a multiprocessor."""
        asked = self._asked.get(block)
        if not asked:
            return
        name, threads = machine.block_id(block), machine.block_threads
        declared = machine.code.entry.max_registers
        entry = min(255, REGISTERS // threads) // 8 * 8 if declared is None else -(-declared // 8) * 8
        warps = range(block * machine.block_stride // WARP, (block * machine.block_stride + threads) // WARP)
        for first in warps[::4]:
            group = [asked.get(warp, []) for warp in warps[first - warps[0] : first - warps[0] + 4]]
            if any(one != group[0] for one in group):
                place = next(position for one in group for _, position in one)
                each = "; ".join(", ".join(str(count) for count, _ in one) or "none" for one in group)
                self._over_budget(f"the warps of a warpgroup of block {name} execute different setmaxnreg ({each}); all must execute the same", name, place, each)
                return
        wanted = [asked[warp][-1][0] if warp in asked else entry for warp in warps]
        total = WARP * sum(wanted)
        if total > entry * threads:
            place = max(one[-1] for one in asked.values())[1]
            each = ", ".join(map(str, wanted))
            text = f"the warps of block {name} ask for {total} registers in all by setmaxnreg (per thread of each warp: {each}); a block of {threads} threads "
            self._over_budget(f"{text}has {entry * threads}", name, place, f"{total} registers")

    def _over_budget(self, text: str, name: Any, position: int, what: str) -> None:
        self.findings.report(BUDGET, "budget", text, self.findings.access("asks for", f"block {name}", what, (position, 0)))

    def _count_barriers(self, machine: Machine) -> None:
        """mbarriers must be left with complete phases: no bytes outstanding, no arrivals missing in a phase that has
        begun."""
        for barrier in self.order.phases:
            state = machine.mbarriers.state(barrier)
            if state is None:
                continue
            name = self.findings.mbarrier(barrier)
            block = machine.block_id(barrier // machine.shared.stride)
            pending, expected, missing = state
            if missing:
                more = (
                    f"{missing} bytes are expected that never came"
                    if missing > 0
                    else f"{-missing} bytes came that were not expected"
                )
                self.findings.report(
                    BYTE_COUNT,
                    ("bytes", barrier % machine.shared.stride),
                    f"mbarrier {name} of block {block} at the end: {more}",
                )
            elif pending != expected:
                self.findings.report(
                    BARRIER,
                    ("arrivals", barrier % machine.shared.stride),
                    f"mbarrier {name} of block {block} is left with {pending} of {expected} arrivals missing in a phase "
                    "that had begun",
                )


def judge(
    program: Program | str,
    *args: Any,
    seed: int | None = None,
    policy: str | None = None,
    strict_isa: bool = False,
    **options: Any,
) -> list[Report]:
    """Runs a program once, as `launch` does with the same arguments, and gives what was found. Raises TeselaError
    only for a launch that does not fit the kernel and for text that is no PTX."""
    from .launcher import launch

    watcher = Judge(strict_isa)
    try:
        launch(program, *args, seed=seed, policy=policy, observer=watcher, races=False, **options)
    except ProgramError as error:
        watcher.stopped(error)
    return watcher.reports


def _element_of_maps(machine: Machine) -> int:
    """The size of the smallest element of a tensor map among the parameters; 1 where maps may lie elsewhere."""
    sizes = []
    for offset, size in machine.code.param_offsets.values():
        if size == MAP_BYTES:
            sizes.append(element_bytes(decode_tensor_map(machine.params[offset : offset + size].tobytes()).dtype))
    return min(sizes, default=1)


def _granules(instrs: Sequence[Instr], element: int) -> tuple[int, int, bool]:
    """(granule of shared memory, of global memory, whether shared memory is updated atomically) of a program whose
    tensor maps have elements of at least `element` bytes."""
    shared, everywhere, atomics = 16, 16, False
    for instr in instrs:
        words = instr.opcode.split(".")
        if words[0] == "mbarrier":
            shared = min(shared, 8)
        if words[0] not in ("ld", "st", "atom", "red", "cp"):
            continue
        vector = next((int(w[1]) for w in words if w in ("v2", "v4")), 1)
        size = TYPE_SIZE.get(words[-1], 1) * vector
        if words[0] == "cp":
            size = 16
            if words[1:3] in (["async", "ca"], ["async", "cg"]):
                size = next((int(op.bits) for op in instr.operands[2:3] if isinstance(op, Imm)), 4)
                if len(instr.operands) > 3:
                    everywhere = min(everywhere, 2)  # a register may ask for less of the source
            if "tensor" in words:
                everywhere = min(everywhere, element)
        generic = not any(w.startswith(("shared", "global", "param")) for w in words)
        if generic or any(w.startswith("shared") for w in words):
            shared = min(shared, size)
            atomics = atomics or words[0] in ("atom", "red") or is_strong(instr.opcode)
        if generic or "global" in words:
            everywhere = min(everywhere, size)
    return shared, everywhere, atomics
