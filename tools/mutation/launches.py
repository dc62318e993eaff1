"""Launches recorded as they happen in the simulator, to be repeated with the same program or another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dialects.ptx_program import Entry, Instr, Program
from ...simulator import Memory, Observer, settings
from ...simulator.machine import Machine


@dataclass
class Recorded:
    """A launch: everything that `simulator.launch` takes, what memory held before it, and how often each instruction of the entry's body (by
    position) was executed by a thread."""

    program: Program
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    params: bytes
    shared_bytes: int
    memory: Memory
    before: Sequence[np.ndarray[Any, Any]]
    executed: list[int] = field(default_factory=list)
    steps: int = 0

    @property
    def kernel(self) -> Entry:
        return next(entry for entry in self.program.entries if entry.name == self.entry)


class Recorder(Observer):
    """Keeps the launches that it sees."""

    def __init__(self) -> None:
        self.launches: list[Recorded] = []
        self._executed: Counter[int] = Counter()

    def begin(self, machine: Machine) -> None:
        if machine.first_block:
            return  # a later batch of blocks
        code, shape = machine.code, machine.shape
        self._executed = Counter()
        memory = machine.memory
        self.launches.append(
            Recorded(
                code.program, code.entry.name, shape.grid, shape.block, shape.cluster, machine.params.tobytes(), machine.shared_bytes, memory,
                memory.snapshot(),
            )
        )  # fmt: skip

    def end(self, machine: Machine) -> None:
        for step, count in zip(machine.code.steps, machine.counts):
            for instr in step.instrs:
                self._executed[id(instr)] += count
        launch = self.launches[-1]
        launch.steps += machine.turn
        body = launch.kernel.body
        launch.executed = [self._executed[id(item)] if isinstance(item, Instr) else 0 for item in body]


def record(run: Callable[[], object]) -> list[Recorded]:
    """All launches that `run` makes in the simulator, in order."""
    recorder = Recorder()
    with settings(observer=recorder):
        run()
    return recorder.launches
