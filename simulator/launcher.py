"""Launching a kernel in the simulator: checks, parameters, and batches of blocks.

Blocks of a grid are independent, so as many as make good use of NumPy run side by side as one machine; the next batch
starts when they have finished. Kernels whose blocks may wait for each other through global memory (they contain
atomics or ordered loads) get as many blocks at once as an H200 would hold at one block per multiprocessor.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import TensorMap
from ..dialects.ptx_program import Entry, Instr, Program
from . import memory
from .control_flow import family
from .decode import Code
from .faults import ProgramError
from .machine import Machine, Shape
from .memory import Memory
from .observer import Observer
from .schedules import POLICIES, Decisions, explore
from .tensor_maps import encode_tensor_map

BATCH_THREADS = 16384
JUDGED_THREADS = 65536
"""Threads of blocks that may wait for each other and are judged together."""
MULTIPROCESSORS = 132
PORTABLE_CLUSTER = 8


@dataclass(slots=True)
class RunResult:
    """What a launch did. `executed`: thread-instructions by opcode; `blocks`: how many blocks ran."""

    blocks: int = 0
    executed: dict[str, int] = field(default_factory=dict)

    @property
    def thread_instructions(self) -> int:
        return sum(self.executed.values())


@dataclass(frozen=True)
class Settings:
    """What launches take where their caller says nothing; see `launch`."""

    races: bool = False
    seed: int | None = None
    policy: str | None = None
    strict_isa: bool = False
    observer: Observer | None = None


_NO_SETTINGS = Settings()
_settings: ContextVar[Settings] = ContextVar("simulator settings", default=_NO_SETTINGS)


@contextmanager
def settings(
    races: bool = False,
    seed: int | None = None,
    policy: str | None = None,
    strict_isa: bool = False,
    observer: Observer | None = None,
) -> Iterator[None]:
    """Within it, every launch that does not say otherwise takes these; also launches by a `Kernel`. Raises TeselaError for values that are none."""
    for name, value in (("races", races), ("strict_isa", strict_isa)):
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise TeselaError.at(None, f"{name} is {value!r}, but True or False is required")
    if seed is not None and (not hasattr(seed, "__index__") or isinstance(seed, bool)):
        raise TeselaError.at(None, f"the seed is {seed!r}, but an integer or None is required")
    token = _settings.set(Settings(races, seed, policy, strict_isa, observer))
    try:
        yield
    finally:
        _settings.reset(token)


def launch(
    program: Program | str,
    entry: str | None = None,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (1,),
    params: Sequence[int | float | TensorMap] | bytes = (),
    memory: Memory | None = None,
    shared_bytes: int = 0,
    cluster: Sequence[int] | None = None,
    seed: int | None = None,
    policy: str | None = None,
    observer: Observer | None = None,
    batch_threads: int = BATCH_THREADS,
    races: bool | None = None,
    strict_isa: bool | None = None,
    bound: int = 1,
    max_turns: int | None = None,
) -> RunResult:
    """Runs a kernel to completion.

    `program`: PTX as data or text; `entry`: the kernel's name, which may be left out where there is only one; `grid`,
    `block`, `cluster`: one to three extents, x first; the cluster defaults to what the entry declares; `params` in
    PTX order: integers (pointers, dimensions, the bits of scalars), floats (f32 for parameters of 4 bytes, f64 for
    8), tensor maps (128 bytes), or all of them as the bytes that they are packed into; `shared_bytes`: dynamic shared memory per block. `policy`: in which order threads run
    and asynchronous operations complete, one of `schedules.POLICIES`; `seed`: makes the schedule random, and the same
    for the same seed. ('random' without a seed takes seed 0; 'systematic' runs the kernel many times, each time on
    the memory as it was, with up to `bound` preemptions.) `races`: judge the program (`races.py`) by
    `docs/memory-order.md`, with `strict_isa` by the letter of the ISA; a kernel whose blocks may wait for each other
    then runs in one piece. `max_turns`: a program that has not ended after so many turns of the scheduler is stopped as
    one that never ends. What is left out is taken from `settings`.

    Raises TeselaError for a launch that does not fit the kernel, ProgramError for every fault and deadlock of the
    program, and with `races` JudgedError for whatever is reported."""
    if isinstance(program, str):
        from ..dialects.ptx_text import read_program

        program = read_program(program)
    default = _settings.get()
    seed = default.seed if seed is None else seed
    policy = default.policy if policy is None else policy
    races = default.races if races is None else races
    strict_isa = default.strict_isa if strict_isa is None else strict_isa
    observer = default.observer if observer is None else observer
    chosen = _entry(program, entry)
    shape = Shape(_triple(grid, "grid"), _triple(block, "block"), _triple(cluster or chosen.cluster or (1,), "cluster"))
    if policy is None:
        policy = "latest" if seed is None else "random"
    if policy not in POLICIES:
        raise TeselaError(f"unknown policy {policy!r}: one of {', '.join(POLICIES)} is required")
    code = Code(program, chosen)
    _check(code, chosen, shape, shared_bytes)
    if shape.grid[0] * shape.grid[1] * shape.grid[2] == 0:
        return RunResult()
    data = _pack_params(code, chosen, params)
    store = memory if memory is not None else Memory()
    size = _batch(chosen, shape, batch_threads)
    if races and _couples(chosen):
        size = max(size, _whole_clusters(JUDGED_THREADS, shape))

    def once(decisions: Decisions | None) -> RunResult:
        rng = random.Random(seed or 0) if seed is not None or policy == "random" else None
        completion = "latest" if policy == "systematic" else policy

        def run(watcher: Observer | None) -> RunResult:
            def make(blocks: range) -> Machine:
                machine = Machine(code, shape, blocks, data, store, shared_bytes, completion, rng, watcher, decisions)
                machine.max_turns = max_turns
                return machine

            return _run(code, shape, size, make)

        if not races:
            return run(observer)
        from .observer import Observers
        from .races import Judge
        from .reports import JudgedError

        judge = Judge(strict_isa)
        both = judge if observer is None else Observers([judge, observer])
        try:
            result = run(both)
        except ProgramError as error:
            judge.stopped(error)
            raise JudgedError.of(judge.reports) from None
        if judge.reports:
            raise JudgedError.of(judge.reports)
        return result

    if policy != "systematic":
        return once(None)
    before = store.snapshot()
    result = RunResult()

    def again(decisions: Decisions) -> None:
        nonlocal result
        store.restore(before)
        result = once(decisions)

    explore(again, bound)
    return result


def _run(code: Code, shape: Shape, size: int, make: Callable[[range], Machine]) -> RunResult:
    """One run of the grid, `size` blocks at a time, each time on a machine that `make` gives."""
    result = RunResult()
    count = shape.grid[0] * shape.grid[1] * shape.grid[2]
    for first in range(0, count, size):
        blocks = range(first, min(first + size, count))
        machine = make(blocks)
        machine.run()
        for step, executed in zip(code.steps, machine.counts):
            for instr in step.instrs:
                result.executed[instr.opcode] = result.executed.get(instr.opcode, 0) + executed
    result.blocks = count
    return result


def _entry(program: Program, name: str | None) -> Entry:
    if name is None and len(program.entries) == 1:
        return program.entries[0]
    found = next((e for e in program.entries if e.name == name), None)
    if found is None:
        names = ", ".join(e.name for e in program.entries) or "none"
        wanted = f"no kernel named {name!r}" if name is not None else "no kernel is named"
        raise TeselaError(f"{wanted}; the program has {names}")
    return found


def _triple(extents: Sequence[int], what: str) -> tuple[int, int, int]:
    values = tuple(int(e) for e in extents)
    if not 1 <= len(values) <= 3 or any(v < (0 if what == "grid" else 1) for v in values):
        raise TeselaError(f"the {what} {tuple(extents)} must have one to three positive extents")
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _check(code: Code, entry: Entry, shape: Shape, shared_bytes: int) -> None:
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    if threads > 1024:
        raise TeselaError(f"kernel {entry.name}: a block of {threads} threads; at most 1024 are possible")
    if entry.required_threads is not None and shape.block != entry.required_threads:
        raise TeselaError(f"kernel {entry.name} requires blocks of {entry.required_threads} threads, not {shape.block}")
    if entry.max_threads is not None:
        limit = entry.max_threads[0] * entry.max_threads[1] * entry.max_threads[2]
        if threads > limit:
            raise TeselaError(f"kernel {entry.name} allows at most {limit} threads in a block, not {threads}")
    if entry.cluster is not None and shape.cluster != entry.cluster:
        raise TeselaError(f"kernel {entry.name} requires clusters of {entry.cluster} blocks, not {shape.cluster}")
    size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
    if size > PORTABLE_CLUSTER:
        raise TeselaError(f"a cluster of {size} blocks; at most {PORTABLE_CLUSTER} are possible")
    if any(g % c for g, c in zip(shape.grid, shape.cluster)):
        raise TeselaError(f"the grid {shape.grid} is not a multiple of the cluster {shape.cluster}")
    total = code.static_shared + shared_bytes
    if total > memory.SHARED_LIMIT:
        raise TeselaError(
            f"kernel {entry.name} needs {total} bytes of shared memory ({code.static_shared} static, {shared_bytes} dynamic); "
            f"at most {memory.SHARED_LIMIT} are possible"
        )


def _pack_params(code: Code, entry: Entry, params: Sequence[int | float | TensorMap] | bytes) -> NDArray[np.uint8]:
    if isinstance(params, bytes):
        if len(params) != code.param_bytes:
            raise TeselaError(f"kernel {entry.name} takes {code.param_bytes} bytes of parameters, but {len(params)} are given")
        return np.frombuffer(params, np.uint8)
    if len(params) != len(entry.params):
        raise TeselaError(f"kernel {entry.name} takes {len(entry.params)} parameters, but {len(params)} are given")
    data = np.zeros(code.param_bytes, np.uint8)
    for declared, value in zip(entry.params, params):
        offset, size = code.param_offsets[declared.name]
        where = f"parameter {declared.name} of kernel {entry.name}"
        raw: Any
        if isinstance(value, TensorMap):
            if size != 128:
                raise TeselaError(f"{where} has {size} bytes and cannot hold a tensor map, which takes 128")
            raw = encode_tensor_map(value)
        elif isinstance(value, float):
            if size not in (4, 8):
                raise TeselaError(f"{where} is declared {declared.type}; give the bits of a number as an integer")
            raw = struct.pack("<f" if size == 4 else "<d", value)
        else:
            if declared.size and size > 8:
                raise TeselaError(f"{where} has {size} bytes; a tensor map is required, not {value!r}")
            if not -(1 << (8 * size - 1)) <= int(value) < 1 << (8 * size):
                raise TeselaError(f"{where} is declared {declared.type}, which cannot hold {int(value)}")
            raw = (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
        data[offset : offset + size] = np.frombuffer(raw, np.uint8)
    return data


def _batch(entry: Entry, shape: Shape, batch_threads: int) -> int:
    """How many blocks run side by side."""
    cluster = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
    threads = -(-shape.block[0] * shape.block[1] * shape.block[2] // 32) * 32
    blocks = max(1, batch_threads // threads)
    if _couples(entry):
        blocks = max(blocks, MULTIPROCESSORS)
    return max(1, blocks // cluster) * cluster


def _whole_clusters(threads: int, shape: Shape) -> int:
    """How many blocks have `threads` threads in all."""
    cluster = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
    return max(1, threads // (shape.block[0] * shape.block[1] * shape.block[2]) // cluster) * cluster


def _couples(entry: Entry) -> bool:
    """Whether blocks may wait for each other."""
    return any(isinstance(item, Instr) and _couples_blocks(item.opcode) for item in entry.body)


def _couples_blocks(opcode: str) -> bool:
    """Whether an instruction may be part of waiting for another block."""
    words = opcode.split(".")
    if "shared" in opcode or "mbarrier" in words:
        return False
    return family(opcode) == "atom" or "acquire" in words or "volatile" in words or "relaxed" in words
