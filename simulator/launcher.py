"""Launching a kernel in the simulator: checks, parameters, and batches of blocks.

Blocks of a grid are independent, so as many as make good use of NumPy run side by side as one machine; the next batch starts when they have
finished. Kernels whose blocks may wait for each other through global memory (they contain atomics or ordered loads) get as
many blocks at once as an H200 would hold at one block per multiprocessor.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
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
from .machine import Machine, Observer, Shape
from .memory import Memory
from .tensor_maps import encode_tensor_map

BATCH_THREADS = 16384
MULTIPROCESSORS = 132
COMPLETIONS = ("latest", "earliest", "random")
PORTABLE_CLUSTER = 8


@dataclass(slots=True)
class RunResult:
    """What a launch did. `executed`: thread-instructions by opcode; `blocks`: how many blocks ran."""

    blocks: int = 0
    executed: dict[str, int] = field(default_factory=dict)

    @property
    def thread_instructions(self) -> int:
        return sum(self.executed.values())


def launch(
    program: Program | str,
    entry: str | None = None,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (1,),
    params: Sequence[int | float | TensorMap] = (),
    memory: Memory | None = None,
    shared_bytes: int = 0,
    cluster: Sequence[int] | None = None,
    seed: int | None = None,
    completion: str | None = None,
    observer: Observer | None = None,
    batch_threads: int = BATCH_THREADS,
) -> RunResult:
    """Runs a kernel to completion.

    `program`: PTX as data or text; `entry`: the kernel's name, which may be left out where there is only one; `grid`, `block`,
    `cluster`: one to three extents, x first; the cluster defaults to what the entry declares; `params` in PTX order: integers
    (pointers, dimensions, the bits of scalars), floats (f32 for parameters of 4 bytes, f64 for 8), tensor maps (128 bytes);
    `shared_bytes`: dynamic shared memory per block. `completion`: when asynchronous operations complete, 'latest' (the default),
    'earliest' or 'random' (the default with a seed); `seed`: makes the schedule random, and the same for the same seed.
    ('random' without a seed takes seed 0.)

    Raises TeselaError for a launch that does not fit the kernel and for every fault and deadlock of the program."""
    if isinstance(program, str):
        from ..dialects.ptx_text import read_program

        program = read_program(program)
    chosen = _entry(program, entry)
    shape = Shape(_triple(grid, "grid"), _triple(block, "block"), _triple(cluster or chosen.cluster or (1,), "cluster"))
    if completion is None:
        completion = "latest" if seed is None else "random"
    if completion not in COMPLETIONS:
        raise TeselaError(f"unknown completion policy {completion!r}: one of {', '.join(COMPLETIONS)} is required")
    code = Code(program, chosen)
    _check(code, chosen, shape, shared_bytes)
    result = RunResult()
    count = shape.grid[0] * shape.grid[1] * shape.grid[2]
    if count == 0:
        return result
    data = _pack_params(code, chosen, params)
    rng = random.Random(seed or 0) if seed is not None or completion == "random" else None
    store = memory if memory is not None else Memory()
    size = _batch(chosen, shape, batch_threads)
    for first in range(0, count, size):
        blocks = range(first, min(first + size, count))
        machine = Machine(code, shape, blocks, data, store, shared_bytes, completion, rng, observer)
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


def _pack_params(code: Code, entry: Entry, params: Sequence[int | float | TensorMap]) -> NDArray[np.uint8]:
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
    if any(isinstance(item, Instr) and _couples_blocks(item.opcode) for item in entry.body):
        blocks = max(blocks, MULTIPROCESSORS)
    return max(1, blocks // cluster) * cluster


def _couples_blocks(opcode: str) -> bool:
    """Whether an instruction may be part of waiting for another block."""
    words = opcode.split(".")
    if "shared" in opcode or "mbarrier" in words:
        return False
    return family(opcode) == "atom" or "acquire" in words or "volatile" in words or "relaxed" in words
