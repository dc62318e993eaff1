"""The machine: resident blocks, their threads' places in the program, and the scheduler that moves them.

Every thread has its own place (since Volta, threads of a warp may stand at different instructions; PTX ISA 9.0 §3.1).
The scheduler keeps sets of threads by place, takes the first place in running order (`control_flow.py`), merges all
threads that stand there, of all resident blocks, and runs them together step by step until they branch, wait or exit.
So diverged threads meet again at the immediate post-dominator of their branch, loops run until the last thread has
left them, and a step costs one NumPy call however many threads take part.

Threads that cannot go on are kept aside, with what they wait for:

* *gathering*: a collective instruction (`shfl.sync`, `wgmma`) whose other lanes have not arrived;
* *barriers*: named barriers and the cluster barrier (`barriers.py`);
* *parked*: an `mbarrier.try_wait` whose phase is not complete;
* *yielded*: a loop that polls memory has gone round once; others run first.

When nobody is ready, polls run again if anything has happened since; else an asynchronous operation completes
(`asynchrony.py`); if there is none, polls run again all the same and parked waits time out, as the ISA allows
(§9.7.13.15.16, mbarrier.try_wait). If that changes nothing often enough, nothing ever will: a deadlock, reported with
all who wait and what for.

With a seed the scheduler picks places at random instead, and asynchronous operations complete at random times. An
observer (`observer.py`) sees every memory access and synchronisation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.diagnostics import Diagnostic, Location
from ..dialects.ptx_program import Instr, Program
from . import memory
from .asynchrony import Pending
from .barriers import ClusterBarrier, MBarriers, NamedBarriers
from .decode import CLASS_VIEW, VIEW_INDEX, VIEWS, Code, Step
from .faults import Divergent, Fault, OutOfBounds, ProgramError
from .memory import Memory, SharedMemory
from .observer import Observer
from .schedules import Decisions
from .selection import WARP, Selection, regular

WARPGROUP = 4 * WARP
SPIN_LIMIT = 4096
"""Loop iterations without any effect on memory after which others get a turn, whatever the loop does."""

IDLE_ROUNDS = 256
"""Rounds of polls and timed-out waits without any effect after which the program is taken to be stuck."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A launch: all in (x, y, z)."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]


@dataclass(slots=True)
class Parked:
    """Threads at an mbarrier wait: `flat` addresses of the barriers in the machine's shared memory, and the parity of
    the phase whose completion each waits for. `deny` writes the answer 'not yet' to the threads of a selection."""

    position: int
    selection: Selection
    flat: NDArray[np.int64]
    parity: NDArray[np.uint64]
    deny: Callable[[Selection], None]


def place(program: Program, instr: Instr) -> tuple[Location | None, str]:
    """The source location of an instruction and its place in the PTX, in words."""
    location = None
    if instr.loc is not None and 0 < instr.loc[0] <= len(program.files):
        location = Location(program.files[instr.loc[0] - 1], instr.loc[1], instr.loc[2])
    line = f"PTX line {instr.line}, " if instr.line is not None else ""
    return location, f" ({line}'{instr.opcode}')"


class Machine:
    """Runs `blocks` (linear block numbers, whole clusters) of a launch to completion."""

    def __init__(
        self,
        code: Code,
        shape: Shape,
        blocks: range,
        params: NDArray[np.uint8],
        global_memory: Memory,
        shared_bytes: int,
        completion: str,
        rng: random.Random | None,
        observer: Observer | None,
        decisions: Decisions | None = None,
    ):
        self.code, self.shape, self.params, self.memory = code, shape, params, global_memory
        self.rng, self.observer, self.decisions = rng, observer, decisions
        self.first_block, self.block_count = blocks.start, len(blocks)
        self.block_threads = shape.block[0] * shape.block[1] * shape.block[2]
        unit = WARPGROUP if code.uses_warpgroups else WARP
        self.block_stride = -(-self.block_threads // unit) * unit
        self.cluster_size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
        count = self.thread_count = self.block_count * self.block_stride
        self.shared_bytes = shared_bytes
        self.shared = SharedMemory(self.block_count, code.static_shared + shared_bytes)
        self.block_of = np.repeat(np.arange(self.block_count), self.block_stride)
        self.shared_base = self.block_of * self.shared.stride
        self.rank_of = self.block_of % self.cluster_size
        self.rank_bits = (self.rank_of << memory.RANK_SHIFT) if self.cluster_size > 1 else np.zeros(count, np.int64)
        self.cluster_base = self.block_of // self.cluster_size * self.cluster_size * self.shared.stride
        self.alive = np.tile(np.arange(self.block_stride) < self.block_threads, self.block_count)
        self.epoch = 0
        files = {cls: np.zeros((max(1, rows), count), VIEWS[CLASS_VIEW[cls]][1]) for cls, rows in code.rows.items()}
        self.regs: list[NDArray[Any]] = [files[cls].view(dtype) for cls, dtype in VIEWS.values()]
        self.predicates = self.regs[VIEW_INDEX["pred"]]
        self._specials: dict[str, NDArray[Any]] = {}
        self._slices: dict[tuple[int, int, int], Selection] = {}
        self.ready: dict[int, list[Selection]] = {}
        self.gathering: dict[int, list[Selection]] = {}
        self.parked: list[Parked] = []
        self.yielded: list[tuple[int, Selection]] = []

        self.named = NamedBarriers(self)
        self.cluster_barrier = ClusterBarrier(self)
        self.mbarriers = MBarriers(self)
        self.pending = Pending(self, completion)
        self.progress = 0
        self._last_progress, self._idle = -1, 0
        self.turn = self._last_change = 0
        self.max_turns: int | None = None
        self._spin_progress, self._spins = -1, 0
        self.position = 0
        self.counts = [0] * len(code.steps)
        self.warp_counts: list[int] | None = None
        """Warp-instructions by position, where an observer asks for them."""
        self.watched: list[bool] | None = None
        """By position: the steps that the observer wants to see."""

    # Threads

    def select(self, threads: NDArray[np.intp]) -> Selection:
        """The Selection of ascending thread numbers."""
        key = regular(threads)
        if not isinstance(key, slice):
            return Selection(self, key, len(threads))
        slot = (key.start, key.stop, key.step)
        found = self._slices.get(slot)
        if found is None:
            found = self._slices[slot] = Selection(self, key, len(threads))
        return found

    def merge(self, selections: Sequence[Selection]) -> Selection:
        if len(selections) == 1:
            return selections[0]
        return self.select(np.sort(np.concatenate([s.threads for s in selections])))

    def without(self, selection: Selection, part: Selection) -> Selection | None:
        """`selection` less `part`, which it contains; None where nothing is left."""
        if part.count == selection.count:
            return None
        return self.select(np.setdiff1d(selection.threads, part.threads, assume_unique=True))

    def block_id(self, block: int) -> tuple[int, int, int]:
        """A resident block's %ctaid. Blocks are numbered cluster after cluster, in a cluster by rank."""
        number = self.first_block + block
        cluster, rank = divmod(number, self.cluster_size)
        (cx, cy, _), (gx, gy, _) = self.shape.cluster, self.shape.grid
        nx, ny = gx // cx, gy // cy
        x, y, z = cluster % nx, cluster // nx % ny, cluster // (nx * ny)
        cz = self.shape.cluster[2]
        return x * cx + rank % cx, y * cy + rank // cx % cy, z * cz + rank // (cx * cy)

    def thread_id(self, thread: int) -> tuple[int, int, int]:
        x, y, _ = self.shape.block
        local = thread % self.block_stride
        return local % x, local // x % y, local // (x * y)

    def describe(self, threads: NDArray[np.intp]) -> str:
        """Threads in words: by block, as ranges of linear numbers."""
        texts: list[str] = []
        blocks = np.unique(threads // self.block_stride)
        for block in blocks[:4]:
            mine = threads[threads // self.block_stride == block] % self.block_stride
            breaks = np.nonzero(np.diff(mine) != 1)[0] + 1
            runs = [(int(r[0]), int(r[-1])) for r in np.split(mine, breaks)]
            shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:8]) + (", …" if len(runs) > 8 else "")
            noun = "thread" if len(mine) == 1 else "threads"
            texts.append(f"block {self.block_id(int(block))} {noun} {shown}")
        if len(blocks) > 4:
            texts.append(f"and {len(blocks) - 4} more blocks")
        return "; ".join(texts)

    def special(self, name: str) -> NDArray[Any]:
        """A special register's value: per thread, or one for all (0-dimensional). PTX ISA 9.0 §10."""
        found = self._specials.get(name)
        if found is None:
            found = self._specials[name] = self._make_special(name)
        if name in ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
            del self._specials[name]
        return found

    def _make_special(self, name: str) -> NDArray[Any]:
        base, _, axis = name.partition(".")
        lane = np.arange(self.thread_count) % WARP
        local = np.arange(self.thread_count) % self.block_stride
        shape, axes = self.shape, "xyz"
        if axis and axis in axes:
            k = axes.index(axis)
            x, y, _ = shape.block
            if base == "%tid":
                return (local % x, local // x % y, local // (x * y))[k]
            if base == "%ntid":
                return np.array(shape.block[k])
            if base == "%nctaid":
                return np.array(shape.grid[k])
            if base == "%cluster_nctaid":
                return np.array(shape.cluster[k])
            if base == "%nclusterid":
                return np.array(shape.grid[k] // shape.cluster[k])
            ids = np.array([self.block_id(b)[k] for b in range(self.block_count)])
            if base == "%ctaid":
                return ids[self.block_of]
            if base == "%clusterid":
                return (ids // shape.cluster[k])[self.block_of]
            if base == "%cluster_ctaid":
                return (ids % shape.cluster[k])[self.block_of]
        one = np.int64(1)
        simple: dict[str, Callable[[], NDArray[Any]]] = {
            "%laneid": lambda: lane,
            "%warpid": lambda: local // WARP,
            "%nwarpid": lambda: np.array(self.block_stride // WARP),
            "%cluster_ctarank": lambda: self.rank_of,
            "%cluster_nctarank": lambda: np.array(self.cluster_size),
            "%is_explicit_cluster": lambda: np.array(int(self.cluster_size > 1)),
            "%lanemask_eq": lambda: one << lane,
            "%lanemask_lt": lambda: (one << lane) - 1,
            "%lanemask_le": lambda: (one << (lane + 1)) - 1,
            "%lanemask_gt": lambda: 0xFFFFFFFF & ~((one << (lane + 1)) - 1),
            "%lanemask_ge": lambda: 0xFFFFFFFF & ~((one << lane) - 1),
            "%smid": lambda: self.block_of,
            "%nsmid": lambda: np.array(self.block_count),
            "%gridid": lambda: np.array(0),
            "%dynamic_smem_size": lambda: np.array(self.shared_bytes),
            "%total_smem_size": lambda: np.array(self.shared.size),
            # Time is the number of steps taken: it passes, and is the same in every run.
            "%clock": lambda: np.array(sum(self.counts) & 0xFFFFFFFF),
            "%clock64": lambda: np.array(sum(self.counts)),
            "%globaltimer": lambda: np.array(sum(self.counts)),
        }
        make = simple.get(name)
        if make is None:
            raise Fault(f"the simulator does not know the special register {name}")
        return make()

    # Memory, as the meanings use it. Addresses are [n, threads] of int64 (or [n, 1]).

    def load(self, space: str, addresses: NDArray[Any], element: int, vector: int, sel: Selection) -> NDArray[Any]:
        """[n, vector, threads] unsigned integers."""
        addresses = np.broadcast_to(addresses, (addresses.shape[0], sel.count))
        if space == "generic":
            return self.generic(addresses, sel, lambda s, a, part, _: self.load(s, a, element, vector, part))
        if space == "param":
            self.observe("load", "param", addresses, element * vector, sel.threads)
            if int(addresses.min()) < 0 or int(addresses.max()) + element * vector > len(self.params):
                raise OutOfBounds(f"load of {element * vector} bytes past the end of the parameters")
            index = addresses[:, None, :, None] + (np.arange(vector) * element)[:, None, None] + np.arange(element)
            return np.ascontiguousarray(self.params[index]).view(f"u{element}")[..., 0]
        if space == "global":
            self.observe("load", "global", addresses, element * vector, sel.threads)
            return self.memory.load(addresses.astype(np.uint64), element, vector, sel.threads)
        flat = self.flatten(addresses, sel, element * vector, element * vector, "load", space == "shared::cluster")
        self.observe("load", "shared", flat, element * vector, sel.threads)
        return self.shared.load(flat, element, vector)

    def store(self, space: str, addresses: NDArray[Any], values: NDArray[Any], element: int, sel: Selection) -> None:
        """`values` is [n, vector, threads] (or [n, vector, 1]) of unsigned integers."""
        addresses = np.broadcast_to(addresses, (addresses.shape[0], sel.count))
        size = element * values.shape[1]
        if space == "generic":
            values = np.broadcast_to(values, (*values.shape[:2], sel.count))

            def store_part(s: str, a: NDArray[Any], part: Selection, where: Any) -> NDArray[Any]:
                self.store(s, a, values[..., where], element, part)
                return values[..., where]

            self.generic(addresses, sel, store_part)
            return
        self.progress += 1
        if space == "global":
            self.observe("store", "global", addresses, size, sel.threads, values)
            self.memory.store(addresses.astype(np.uint64), values, element, sel.threads)
        elif space == "param":
            raise Fault("store to a kernel parameter: parameters are read-only")
        else:
            flat = self.flatten(addresses, sel, size, size, "store", space == "shared::cluster")
            self.observe("store", "shared", flat, size, sel.threads, values)
            self.shared.store(flat, values, element)

    def observe(
        self,
        kind: str,
        space: str,
        addresses: NDArray[Any],
        size: int,
        threads: NDArray[np.intp],
        values: NDArray[Any] | None = None,
    ) -> None:
        """Tell the observer, if there is one, of accesses; see Observer.access."""
        if self.observer is not None:
            self.observer.access(self, kind, space, addresses, size, threads, values)

    def flatten(
        self, addresses: NDArray[Any], sel: Selection, size: int, align: int, verb: str, cluster: bool
    ) -> NDArray[np.int64]:
        """Shared addresses to indices into all shared memory, checked. `cluster`: other blocks of the cluster may be
        meant."""
        offsets = addresses & memory.OFFSET_MASK
        self.shared.check(offsets, size, align, sel.threads, verb)
        if self.cluster_size == 1:
            if (addresses != offsets).any():
                thread = int(sel.threads[np.argwhere(np.broadcast_to(addresses != offsets, addresses.shape))[0][1]])
                raise OutOfBounds(f"{verb} at 0x{int(addresses.max()):x}, which is no shared address", 0, thread)
            return offsets + self.shared_base[sel.key]
        rank = addresses >> memory.RANK_SHIFT
        limit = self.cluster_size - 1
        if (rank > limit).any() or (rank < 0).any():
            raise OutOfBounds(f"{verb} at a shared address of block {int(rank.max())} of the cluster, which has {limit + 1}")
        if not cluster and (rank != self.rank_of[sel.key]).any():
            at, thread = np.argwhere(rank != self.rank_of[sel.key])[0]
            raise OutOfBounds(
                f"{verb} at a shared address of another block of the cluster (0x{int(addresses[at, thread]):x})",
                int(at),
                int(sel.threads[thread]),
                "use the state space shared::cluster",
            )
        return offsets + self.cluster_base[sel.key] + rank * self.shared.stride

    def resolve(self, addresses: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Generic addresses: (addresses in their spaces, space: 0 global, 1 shared::cluster, 2 param)."""
        shared = (addresses >= memory.SHARED_WINDOW) & (addresses < memory.SHARED_WINDOW + memory.WINDOW_SIZE)
        param = (addresses >= memory.PARAM_WINDOW) & (addresses < memory.PARAM_WINDOW + memory.WINDOW_SIZE)
        local = addresses - np.where(shared, memory.SHARED_WINDOW, 0) - np.where(param, memory.PARAM_WINDOW, 0)
        return local, shared + 2 * param.astype(np.intp)

    def generic(
        self,
        addresses: NDArray[np.int64],
        sel: Selection,
        part: Callable[[str, NDArray[np.int64], Selection, Any], NDArray[Any]],
    ) -> NDArray[Any]:
        """Runs `part` on each run of threads whose generic addresses lie in one space; gives the pieces put together."""
        local, kinds = self.resolve(addresses)
        names = ("global", "shared::cluster", "param")
        if (kinds == kinds.flat[0]).all():
            return part(names[kinds.flat[0]], local, sel, slice(None))
        if (kinds != kinds[0]).any():
            raise Fault("generic addresses of one run of instructions lie in different state spaces")
        pieces = []
        order = []
        for kind in np.unique(kinds[0]):
            mask = kinds[0] == kind
            chosen = self.select(sel.threads[mask])
            pieces.append(part(names[kind], local[:, mask], chosen, np.nonzero(mask)[0]))
            order.append(np.nonzero(mask)[0])
        joined = np.concatenate(pieces, axis=-1)
        result = np.empty_like(joined)
        result[..., np.concatenate(order)] = joined
        return result

    # Scheduling

    def push(self, position: int, selection: Selection) -> None:
        self.ready.setdefault(position, []).append(selection)

    def run(self) -> None:
        """Runs all threads to their exit. Raises TeselaError for faults and deadlocks."""
        self.push(0, self.select(np.nonzero(self.alive)[0]))
        if self.observer is not None:
            self.observer.begin(self)
        try:
            while self.ready or self._find_work():
                self._run_from(*self._pick())
            self.pending.complete_all()
            if self.observer is not None:
                self.observer.end(self)
        except Fault as fault:
            raise self._error(fault) from None

    def _pick(self) -> tuple[int, Selection]:
        self.turn += 1
        if self.turn == self.max_turns:
            raise self._endless()
        if self.mbarriers.flipped:
            self._wake()
        if self.rng is not None:
            self.pending.complete_at_random(self.rng)
            position = self.rng.choice(sorted(self.ready))
        elif self.decisions is not None:
            position = self._decide(self.decisions)
        else:
            position = min(self.ready)
        return position, self.merge(self.ready.pop(position))

    def _decide(self, decisions: Decisions) -> int:
        """A systematic schedule: one of the ready places, perhaps after an asynchronous operation has completed."""
        places = sorted(self.ready)
        chosen = decisions.choose(len(places) + bool(self.pending.queue))
        if chosen < len(places):
            return places[chosen]
        self.pending.complete_one()
        if self.mbarriers.flipped:
            self._wake()
        return min(self.ready)

    def _run_from(self, position: int, sel: Selection) -> None:
        steps, ready, counts = self.code.steps, self.ready, self.counts
        watched, observer, warp_counts = self.watched, self.observer, self.warp_counts
        while True:
            if position in ready:
                sel = self.merge([sel, *ready.pop(position)])
            step = steps[position]
            self.position = position
            active = sel
            if step.guard >= 0:
                mask = self.predicates[step.guard, sel.key]
                if step.negated:
                    mask = ~mask
                if not mask.all():
                    if not mask.any():
                        position += 1
                        continue
                    active = self.select(sel.threads[mask])
            meaning = step.meaning
            if meaning.unit and (position in self.gathering or not active.is_full(meaning.unit)):
                skipped = None if active is sel else self.without(sel, active)
                arrived = self._converge(step, active)
                if arrived is None:
                    if skipped is not None:
                        self.push(position + 1, skipped)
                    return
                active = arrived
                sel = active if skipped is None else self.merge([active, skipped])
            elif step.mask is not None and not step.every_lane:
                self._check_members(step, active)
            counts[position] += active.count
            if warp_counts is not None:
                warp_counts[position] += len(active.lanes.warps)
            told = observer if watched is not None and watched[position] else None
            if told is not None:
                told.before(self, step, active)
            if not meaning.control:
                step.run(self, active)
                if told is not None:
                    told.after(self, step, active)
                position += 1
                continue
            outcome = step.run(self, active, position)
            if outcome is None:
                position += 1
                continue
            for where, part in outcome:
                self.push(where, part)
            if active is not sel:
                rest = self.without(sel, active)
                if rest is not None:
                    self.push(position + 1, rest)
            return

    def _converge(self, step: Step, active: Selection) -> Selection | None:
        """Of the threads at a collective step, those whose partners are all there; the others gather."""
        position, unit = self.position, step.meaning.unit
        waiting = self.gathering.pop(position, None)
        if waiting is not None:
            active = self.merge([active, *waiting])
        if step.mask is None or unit != WARP:
            ok = active.complete(unit)
        else:
            lanes = active.lanes
            masks = np.broadcast_to(step.mask(self, active), (1, active.count))[0]
            present = np.zeros(lanes.present.shape[0], np.uint64)
            alive = np.zeros(lanes.present.shape[0], np.uint64)
            bit = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
            present = (lanes.present * bit).sum(1, dtype=np.uint64)
            alive = (self.alive.reshape(-1, WARP)[lanes.warps] * bit).sum(1, dtype=np.uint64)
            warp = np.searchsorted(lanes.warps, active.threads // WARP)
            ok = (masks.astype(np.uint64) & alive[warp] & ~present[warp]) == 0
            self._check_members(step, active)
        if ok.all():
            return active
        self.gathering.setdefault(position, []).append(self.select(active.threads[~ok]))
        return self.select(active.threads[ok]) if ok.any() else None

    def _check_members(self, step: Step, active: Selection) -> None:
        """Whether every thread is a member of the mask with which it executes a collective step (PTX ISA 9.0 §9.7.9.6,
        shfl.sync: undefined otherwise)."""
        assert step.mask is not None
        masks = np.broadcast_to(step.mask(self, active), (1, active.count))[0].astype(np.uint64)
        own = (masks >> (active.threads % WARP).astype(np.uint64)) & np.uint64(1) == 1
        if not own.all():
            thread = int(active.threads[np.nonzero(~own)[0][0]])
            raise Divergent("a thread executes this with a member mask that does not contain its own lane", 0, thread)

    def exit(self, sel: Selection) -> None:
        """Threads end. Collectives and barriers that waited for them may now be complete."""
        if self.observer is not None:
            self.observer.exit(self, sel)
        self.alive[sel.key] = False
        self.epoch += 1
        self.progress += 1
        for position, waiting in list(self.gathering.items()):
            del self.gathering[position]
            for part in waiting:
                self.push(position, part)
        self.named.on_exit(sel)
        self.cluster_barrier.on_exit()

    def spins_too_long(self) -> bool:
        """Called at every backward branch: whether a loop keeps others waiting while it changes nothing that they
        could see."""
        if self.progress != self._spin_progress:
            self._spin_progress, self._spins = self.progress, 0
        self._spins += 1
        if self._spins < SPIN_LIMIT or not (self.ready or self.pending.queue):
            return False
        self._spins = 0
        return True

    def park(
        self,
        position: int,
        sel: Selection,
        flat: NDArray[np.int64],
        parity: NDArray[np.uint64],
        deny: Callable[[Selection], None],
    ) -> None:
        """Suspend threads at an mbarrier wait."""
        self.parked.append(Parked(position, sel, flat, parity, deny))

    def _wake(self) -> bool:
        """Parked threads whose phase has completed become ready."""
        self.mbarriers.flipped = False
        still: list[Parked] = []
        woken = False
        for entry in self.parked:
            done = self.mbarriers.phase_done(entry.flat, entry.parity)
            if not done.any():
                still.append(entry)
                continue
            woken = True
            self.push(entry.position, self.select(entry.selection.threads[done]))
            if not done.all():
                rest = self.select(entry.selection.threads[~done])
                still.append(Parked(entry.position, rest, entry.flat[~done], entry.parity[~done], entry.deny))
        self.parked = still
        return woken

    def _find_work(self) -> bool:
        """Nobody is ready: make somebody ready, or return False when all have exited."""
        if self.mbarriers.flipped and self._wake():
            return True
        if self.progress != self._last_progress:
            self._last_progress, self._idle = self.progress, 0
            self._last_change = self.turn
            if self.yielded:
                self._poll_again()
                return True
        while self.pending.complete_one():
            self.progress += 1
            if (self.mbarriers.flipped and self._wake()) or self.ready:
                return True
            if self.yielded:
                break
        if not self.yielded and not self.parked:
            if self.gathering or self.named.waiting or self.cluster_barrier.waiting:
                raise self._deadlock()
            return False
        self._idle += 1
        if self._idle > IDLE_ROUNDS:
            raise self._deadlock()
        if self.yielded:
            self._poll_again()
        else:
            waits, self.parked = self.parked, []
            for entry in waits:
                entry.deny(entry.selection)
                self.push(entry.position + 1, entry.selection)
        return True

    def _poll_again(self) -> None:
        polls, self.yielded = self.yielded, []
        for position, sel in polls:
            self.push(position, sel)

    # Errors

    def _error(self, fault: Fault) -> ProgramError:
        step = self.code.steps[self.position]
        instr = step.instrs[min(fault.at, len(step.instrs) - 1)]
        location, where = place(self.code.program, instr)
        who = ""
        if fault.thread is not None:
            block = self.block_id(fault.thread // self.block_stride)
            who = f", block {block} thread {self.thread_id(fault.thread)}"
        diagnostic = Diagnostic("error", f"{fault.message}{where}{who}", location, fault.hint)
        return ProgramError.of(diagnostic, fault.kind, instr.opcode, instr.line)

    def _endless(self) -> ProgramError:
        position = min(self.ready)
        instr = self.code.steps[position].instrs[0]
        location, where = place(self.code.program, instr)
        alive = int(self.alive.sum())
        message = f"no end: {alive} threads are still running after {self.turn} turns{where}"
        return ProgramError.of(Diagnostic("error", message, location), "deadlock", instr.opcode, instr.line)

    def _deadlock(self) -> ProgramError:
        notes: list[Diagnostic] = []
        causes: list[tuple[str, str]] = []

        def note(position: int, sel: Selection, what: str) -> None:
            location, where = place(self.code.program, self.code.steps[position].instrs[0])
            notes.append(Diagnostic("note", f"{self.describe(sel.threads)}: {what}{where}", location))

        for entry in self.parked:
            for text, threads, kind in self.mbarriers.describe(entry):
                note(entry.position, self.select(threads), text)
                causes.append((kind, f"{self.describe(threads)}: {text}"))
        for position, sels in self.gathering.items():
            step = self.code.steps[position]
            partners = "the other threads of their warps" if step.meaning.unit == WARP else "their whole warpgroups"
            for sel in sels:
                note(position, sel, f"waiting for {partners}")
                causes.append(("divergence", f"{self.describe(sel.threads)} at '{step.instrs[0].opcode}': waiting for {partners}"))
        for position, sel, text in [*self.named.describe(), *self.cluster_barrier.describe()]:
            note(position, sel, text)
            causes.append(("barrier count/phase", f"{self.describe(sel.threads)}: {text}"))
        for position, sel in self.yielded:
            note(position, sel, "polling in a loop")
        first = notes[0].location if notes else None
        waiting = sum(int(n) for n in (self.alive.sum(),))
        since = f"nothing has changed since turn {self._last_change} of {self.turn}"
        message = f"deadlock: none of {waiting} threads can go on, and {since}"
        error = ProgramError.of(Diagnostic("error", message, first, None, notes), "deadlock")
        error.also = causes
        return error
