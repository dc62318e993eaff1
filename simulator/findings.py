"""From what the judge notices to reports: who, where, at which line, and what order is missing, in words."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.ptx_program import Instr
from .clocks import BULK_READ, MBARRIER, WGMMA, Clocks
from .copies import ThreadCopy
from .faults import ProgramError
from .machine import place
from .reports import EXIT, IN_FLIGHT, MISSING_PROXY_FENCE, MISSING_WAIT, RACE, UNINITIALISED, Access, Report
from .selection import WARP
from .shadow import GlobalShadow, SharedShadow

if TYPE_CHECKING:
    from .asynchrony import Operation
    from .machine import Machine

Array = NDArray[Any]
Threads = NDArray[np.intp]

MAX_SHOWN = 4096
"""Conflicting elements of one access that are looked at; more of the same would say the same."""
MAX_REPORTS = 64
"""Reports kept; what comes after them is counted in `dropped`."""

_NOW = {
    "load": "reads",
    "store": "writes",
    "atomic": "updates",
    "mbarrier": "uses",
    "async load": "reads",
    "async store": "writes",
    "async atomic": "updates",
}
_PAST = {"reads": "read", "writes": "wrote", "updates": "updated", "initialises": "initialised"}


class Findings:
    """The reports of a launch, and the words for them."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.dropped = 0
        self._index: dict[Any, Report] = {}
        self._times: list[int] = []
        self._steps: list[tuple[int, int]] = []

    def start(self, machine: Machine, clocks: Clocks, shared: SharedShadow, everywhere: GlobalShadow) -> None:
        """From now on it is about this machine."""
        self.machine, self.clocks, self.shared, self.everywhere = machine, clocks, shared, everywhere

    # Events: what was accessed at which time

    def event(self, rows: int = 1) -> int:
        """The first of `rows` new times, for accesses by the instructions of the step at work."""
        time = self.clocks.tick(rows)
        self._times.append(time)
        self._steps.append((self.machine.position, rows))
        return time

    def locate(self, time: int) -> tuple[int, int]:
        """(position, instruction within the step) of the access at a time."""
        at = bisect_right(self._times, time) - 1
        position, rows = self._steps[at]
        return position, min(time - self._times[at], rows - 1)

    def instr(self, position: int | None = None, row: int = 0) -> Instr:
        """The instruction at a position (the one at work)."""
        instrs = self.machine.code.steps[self.machine.position if position is None else position].instrs
        return instrs[min(row, len(instrs) - 1)]

    # Words

    def access(self, verb: str, who: str, where: str, at: tuple[int, int] | None = None) -> Access:
        position, row = at if at is not None else (self.machine.position, 0)
        instr = self.instr(position, row)
        location, _ = place(self.machine.code.program, instr)
        return Access(verb, who, where, instr.opcode, location, instr.line)

    def threads(self, threads: Threads) -> str:
        """Threads of one block in words."""
        m = self.machine
        block = int(threads[0]) // m.block_stride
        mine = np.unique(threads[threads // m.block_stride == block]) % m.block_stride
        warps = np.unique(mine // WARP)
        named = f"warp {warps[0]}" if len(warps) == 1 else f"warps {ranges(warps)}"
        noun = "thread" if len(mine) == 1 else "threads"
        return f"{named} ({noun} {ranges(mine)}) of block {m.block_id(block)}"

    def agent(self, agent: int) -> str:
        """An agent in words."""
        m = self.machine
        if agent < 0:
            return "a thread of a block that ran before"
        if agent < m.thread_count:
            return self.threads(np.array([agent]))
        if agent < 2 * m.thread_count:
            return f"the cp.async of {self.threads(np.array([agent - m.thread_count]))}"
        a = self.clocks.agents
        kind, key = a.kinds[agent - a.first], a.keys[agent - a.first]
        if kind == MBARRIER:
            return f"the copy that signals the mbarrier {self.mbarrier(key)}"
        if kind == WGMMA:
            return f"the wgmma of {self.threads(np.arange(key * 4 * WARP, (key + 1) * 4 * WARP))}"
        return f"the bulk copy of {self.threads(np.array([key]))}"

    def agents(self, agents: Array) -> str:
        first = int(agents[0])
        return self.threads(agents) if 0 <= first < self.machine.thread_count else self.agent(first)

    def mbarrier(self, flat: int) -> str:
        return self._shared_text(flat, flat, span=False)

    def where(self, granules: Array, space: str) -> str:
        """Addresses in words: variable and bytes, or array and bytes."""
        low = int(granules.min())
        if space == "global":
            g = self.everywhere
            low = low * g.granule + g.first
            found = self.machine.memory.find(low)
            if found is None:
                return f"global 0x{low:x}"
            high = min(int(granules.max()) * g.granule + g.first, found.end - g.granule)
            return f"{found.label} bytes {low - found.address}..{high - found.address + g.granule - 1}"
        size, stride = self.shared.granule, self.machine.shared.stride
        mine = granules[granules * size // stride == low * size // stride]
        return self._shared_text(low * size, int(mine.max()) * size + size - 1)

    def _shared_text(self, low: int, high: int, span: bool = True) -> str:
        m = self.machine
        block, offset = divmod(low, m.shared.stride)
        name, base = "shared", 0
        for variable, at in m.code.shared_offsets.items():
            if base <= at <= offset:
                name, base = variable, at
        text = f"{name}+{offset - base}" + (f"..{high - low + offset - base}" if span else "")
        return text if m.cluster_size == 1 else f"{text} of block {m.block_id(block)}"

    # Reports

    def report(
        self,
        kind: str,
        key: Any,
        message: str,
        first: Access | None = None,
        second: Access | None = None,
        missing: str = "",
        count: int = 1,
    ) -> None:
        """Adds a report, or counts one of the same kind and key."""
        found = self._index.get((kind, key))
        if found is not None:
            found.count += count
        elif len(self.reports) == MAX_REPORTS:
            self.dropped += 1
        else:
            report = self._index[kind, key] = Report(kind, message, first, second, missing, count)
            self.reports.append(report)

    def stopped(self, error: ProgramError) -> None:
        """The program could not go on; its end becomes reports, the causes of a deadlock first."""
        diagnostic = error.diagnostics[0]
        for kind, message in error.also:
            self.report(kind, message, message)
        first = Access("fails", "", "", error.opcode, diagnostic.location, error.line) if error.opcode else None
        report = Report(error.kind, diagnostic.message, first, None, diagnostic.hint or "", 1, tuple(diagnostic.notes))
        self.reports.append(report)

    def uninitialised(self, granules: Array, index: Any, who: str, kind: str = "reads") -> None:
        """Memory that nobody has written is read. `index`: which elements of `granules`."""
        row = int(index[-2][0]) if len(index) > 1 else 0
        first = self.access(kind, who, self.where(granules[index], "shared"), (self.machine.position, row))
        message = f"{first.who} {kind} {first.where}, which nobody has written"
        self.report(
            UNINITIALISED, (self.instr(None, row).line, self.machine.position), message, first, None, "", len(index[0])
        )

    def registers(self, what: str, threads: Threads, names: list[str], other: tuple[int, int] | None) -> None:
        """What the register watch tells; see RegisterWatch."""
        shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        verb = {"uninitialised": "reads", "read": "reads", "write": "writes", "fence": "gives to wgmma"}[what]
        one = threads[threads // WARP == threads[0] // WARP]
        first = self.access(verb, self.threads(one), shown or "registers")
        second = None if other is None else self.access("uses", "the wgmma", shown, other)
        key = (self.machine.position, other, what)
        if what == "uninitialised":
            self.report(UNINITIALISED, key, f"{first.who} reads {shown}, which it has not assigned", first)
        elif what == "fence":
            if other is not None:
                second = self.access("accesses", "an instruction", shown, other)
            self.report(
                IN_FLIGHT,
                key,
                f"{first.who} gives {first.where} to wgmma, and no wgmma.fence comes between what accessed them "
                "before and the wgmma",
                first,
                second,
            )
        else:
            self.report(
                IN_FLIGHT,
                key,
                f"{first.who} {verb} {shown}, which a wgmma in flight still uses: no wgmma.wait_group that covers it "
                "comes between",
                first,
                second,
            )

    def conflict(
        self,
        kind: str,
        space: str,
        granules: Array,
        rows: Array,
        threads: Threads,
        agents: Array,
        times: Array,
        verb: str,
    ) -> None:
        """Accesses of threads (now) with earlier ones, of agents, that they do not know: 1-d arrays. `verb`: what the
        agents do."""
        mine = _NOW[kind]
        groups: dict[Any, list[int]] = {}
        for i in range(min(len(times), MAX_SHOWN)):
            groups.setdefault((self.locate(int(times[i])), int(rows[i])), []).append(i)
        for (other, row), chosen in groups.items():
            index = np.array(chosen)
            agent = int(agents[index[0]])
            # One warp and one other warp make the example.
            index = index[
                (threads[index] // WARP == threads[index[0]] // WARP) & (agents[index] // WARP == agent // WARP)
            ]
            where, text = self.where(granules[index], space), self.agents(agents[index])
            first = self.access(mine, self.threads(threads[index]), where, (self.machine.position, row))
            second = self.access(verb, text, where, other)
            what, missing = self._missing(agent, int(times[index[0]]), int(threads[index[0]]))
            self.report(
                what,
                (self.machine.position, row, other, verb),
                f"{first.who} {mine} {where}; {text} {_PAST[verb]} it, and {missing}",
                first,
                second,
                "",
                len(chosen),
            )

    def _missing(self, agent: int, time: int, thread: int) -> tuple[str, str]:
        """(kind, the missing order in words) for a thread that comes after an agent's access."""
        m, clocks = self.machine, self.clocks
        warp = f"warp {thread % m.block_stride // WARP}"
        if agent < m.thread_count:
            return RACE, f"nothing orders that before what {warp} does"
        unknown = f"{warp} does not know it to be complete: its thread must wait for it, and a barrier must follow"
        if agent < 2 * m.thread_count:
            owner = agent - m.thread_count
            if owner == thread:
                return MISSING_WAIT, f"{warp} has not waited for it with cp.async.wait_group"
            waited = clocks.copied[owner] >= time
            return RACE if waited or owner // clocks.width != thread // clocks.width else MISSING_WAIT, unknown
        a = clocks.agents
        kind, key = a.kinds[agent - a.first], a.keys[agent - a.first]
        far = int(a.cluster[agent - a.first]) != thread // clocks.width
        if far:
            return RACE, f"nothing orders that before what {warp} does"
        if kind == MBARRIER:
            return (
                MISSING_WAIT,
                f"{warp} has not waited for the phase of mbarrier {self.mbarrier(key)} that it completes",
            )
        if kind == WGMMA:
            if thread // (4 * WARP) == key:
                return MISSING_WAIT, f"{warp} has not waited for it with wgmma.wait_group"
            return RACE, f"nothing orders its completion before what {warp} does"
        wait = "cp.async.bulk.wait_group.read" if kind == BULK_READ else "cp.async.bulk.wait_group"
        if key == thread:
            return MISSING_WAIT, f"{warp} has not waited for it with {wait}"
        return MISSING_WAIT, unknown

    def async_conflict(
        self,
        op: Operation,
        kind: str,
        space: str,
        granules: Array,
        thread: int,
        agent: int,
        agents: Array,
        times: Array,
        verb: str,
        fence: bool,
    ) -> None:
        """An operation's access with those of agents that its issuer, `thread`, did not know when it issued it.
        `fence`: it knew them, but their threads had not made them visible to the async proxy."""
        m = self.machine
        mine = _NOW[kind]
        who = self.agent(agent)
        groups: dict[Any, list[int]] = {}
        for i, time in enumerate(times[:MAX_SHOWN].tolist()):
            groups.setdefault(self.locate(time), []).append(i)
        for other, chosen in groups.items():
            index = np.array(chosen)
            culprit = int(agents[index[0]])
            where, text = self.where(granules[index], space), self.agents(agents[index])
            first = self.access(mine, who, where)
            second = self.access(verb, text, where, other)
            near = 0 <= culprit < m.thread_count and culprit // m.block_stride == thread // m.block_stride
            since = int(times[index[0]]) > op.note.time
            if fence:
                what, missing = MISSING_PROXY_FENCE, "no fence.proxy.async of its own thread comes after that"
            elif since and near:
                what, missing = MISSING_WAIT, "had not waited for the operation to be complete"
            elif culprit >= m.thread_count and not isinstance(op, ThreadCopy):
                what = self._missing(culprit, int(times[index[0]]), thread)[0]
                missing = (
                    f"{self.threads(np.array([thread]))} did not know that to be complete when it issued the operation"
                )
            else:
                what, missing = (
                    RACE,
                    f"nothing orders that before {self.threads(np.array([thread]))} issued the operation",
                )
            self.report(
                what,
                (m.position, 0, other, verb),
                f"{who} {mine} {where}; {text} {_PAST[verb]} it, and {missing}",
                first,
                second,
                "",
                len(index),
            )

    def left_behind(self, block: int, agent: int, time: int) -> None:
        """A block ends (or has ended) which an agent may still touch."""
        m = self.machine
        name = m.block_id(block)
        other = self.access("touches", self.agent(agent), f"shared memory of block {name}", self.locate(time))
        first = self.access("ends", f"block {name}", "")
        thread = agent < m.thread_count
        self.report(
            EXIT if thread or m.cluster_size > 1 else MISSING_WAIT,
            (block if m.cluster_size > 1 else 0, self.locate(time)),
            f"block {name} ends, but nothing orders that after {other.who} touches its shared memory",
            first,
            other,
            "let all blocks of the cluster meet at barrier.cluster (arrive, then wait) before they end"
            if thread
            else "wait for the operation before the block ends",
        )


def ranges(numbers: Array) -> str:
    """Ascending numbers as ranges."""
    breaks = np.nonzero(np.diff(numbers) != 1)[0] + 1
    runs = [(int(r[0]), int(r[-1])) for r in np.split(numbers, breaks)]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:6]) + (", …" if len(runs) > 6 else "")
