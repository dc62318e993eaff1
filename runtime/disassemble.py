"""Machine code as text and as data: what ptxas made of a kernel, for readers and for tests.

`disassemble` runs `nvdisasm` (of the `nvidia-cuda-nvdisasm` wheel, or on PATH; TESELA_NVDISASM names another). `read_sass` gives the
instructions and labels of its text, `loops` the backward branches among them, so that a test can say: in the loop that holds the HGMMAs
there is no MOV of an accumulator.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..dialects.diagnostics import TeselaError
from .assemble import wheel_executable

NVDISASM_VARIABLE = "TESELA_NVDISASM"


def find_nvdisasm() -> str | None:
    """The path of nvdisasm, or None where there is none. Raises TeselaError where TESELA_NVDISASM names no executable."""
    if named := os.environ.get(NVDISASM_VARIABLE):
        path = shutil.which(named)
        if path is None:
            raise TeselaError.at(None, f"{NVDISASM_VARIABLE} names '{named}', which is no executable file", "unset it, or correct it")
        return path
    return wheel_executable("nvidia-cuda-nvdisasm", "nvdisasm") or shutil.which("nvdisasm")


def disassemble(cubin: bytes) -> str:
    """The text of a cubin's code sections, with the source lines that instructions came of. Raises TeselaError without nvdisasm, and for what
    is no cubin."""
    path = find_nvdisasm()
    if path is None:
        raise TeselaError.at(None, "no nvdisasm was found", f"pip install nvidia-cuda-nvdisasm, or name one in {NVDISASM_VARIABLE}")
    with tempfile.TemporaryDirectory(prefix="tesela-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        done = subprocess.run([path, "-g", "-c", str(file)], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise TeselaError.at(None, f"nvdisasm ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Sass:
    """One machine instruction: `opcode` with its modifiers ('HGMMA.64x128x16.F32.BF16'), `operands` as text, `guard` ('@!P1') or ''."""

    address: int
    opcode: str
    operands: tuple[str, ...]
    guard: str = ""

    @property
    def name(self) -> str:
        """The opcode without modifiers: 'HGMMA'."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True)
class Listing:
    """A kernel's instructions in order, and for each label the index of the instruction that it stands before."""

    instructions: tuple[Sass, ...]
    labels: dict[str, int]

    def loops(self) -> list[tuple[Sass, ...]]:
        """The instructions from each backward branch's target to the branch, the shortest first. The branch to itself that ends every
        kernel is none."""
        found = []
        for end, instruction in enumerate(self.instructions):
            target = self.labels.get(_target(instruction) or "")
            if target is not None and target < end:
                found.append(self.instructions[target : end + 1])
        return sorted(found, key=len)

    def loops_with(self, name: str) -> list[tuple[Sass, ...]]:
        """The loops that hold an instruction of that name."""
        return [loop for loop in self.loops() if any(instruction.name == name for instruction in loop)]


_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:\{\s*)?(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*(?:\}\s*)?$")
_LABEL = re.compile(r"^(\.L_\w+):")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([\w$]+)")
_BRANCH_TARGET = re.compile(r"`\((\.L_\w+)\)")


def _target(instruction: Sass) -> str | None:
    if instruction.name != "BRA":
        return None
    match = _BRANCH_TARGET.search(" ".join(instruction.operands))
    return match.group(1) if match else None


def read_sass(text: str) -> dict[str, Listing]:
    """The kernels in nvdisasm's text, by name.

    >>> text = '''.section .text.k,"ax",@progbits
    ... .L_x_0:
    ...         /*0010*/    @!P0 FFMA.FTZ R1, R2, R3, R1 ;
    ...         /*0020*/         BRA `(.L_x_0) ;'''
    >>> [loop[0].opcode for loop in read_sass(text)["k"].loops()]
    ['FFMA.FTZ']
    """
    kernels: dict[str, tuple[list[Sass], dict[str, int]]] = {}
    current: tuple[list[Sass], dict[str, int]] = ([], {})
    for line in text.splitlines():
        if match := _SECTION.match(line):
            current = kernels.setdefault(match.group(1), ([], {}))
        elif match := _LABEL.match(line):
            current[1][match.group(1)] = len(current[0])
        elif match := _INSTRUCTION.match(line):
            address, guard, opcode, operands = match.groups()
            parts = tuple(part.strip() for part in operands.split(",")) if operands else ()
            current[0].append(Sass(int(address, 16), opcode, parts, guard or ""))
    return {name: Listing(tuple(found), labels) for name, (found, labels) in kernels.items()}
