"""What ptxas makes of our PTX, by runtime/disassemble.py: no warnings from any ptxas, no spills, and in the GEMM's main loop no moves of
accumulators and no more waits than the PTX asks for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_program import Instr, LabelDef
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.compile import compile
from tesela.runtime.disassemble import Listing, Sass, disassemble, find_nvdisasm, read_sass
from tesela.tools.sources import python_kernel

EXAMPLES = Path(__file__).parent.parent / "examples"
TARGETS = ("sm_90a", "sm_80")

needs_ptxas = pytest.mark.skipif(not find_ptxas(), reason="needs a ptxas")
needs_nvdisasm = pytest.mark.skipif(find_nvdisasm() is None or not find_ptxas(), reason="needs nvdisasm and a ptxas")


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["add", "softmax", "gemm"])
def test_every_ptxas_takes_it_without_a_warning(name, target):
    kernel = compile(EXAMPLES / f"{name}.mlir", target)
    for facts in (kernel.variant().facts, type(kernel.variant().facts)()):
        ptx = kernel.variant(facts=facts).ptx
        for assembler in find_ptxas():
            done = assemble(ptx, target, assembler=assembler, strict=True)
            assert done.messages == [] and done.spills == 0


def listing(name: str, target: str) -> Listing:
    return read_sass(compile(EXAMPLES / f"{name}.mlir", target).variant().sass())[name]


@needs_nvdisasm
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["add", "softmax", "gemm"])
def test_nothing_lives_in_local_memory(name, target):
    names = {instruction.name for instruction in listing(name, target).instructions}
    assert "EXIT" in names and not names & {"LDL", "STL"}


def ptx_loop(kernel_name: str, target: str, opcode: str) -> list[str]:
    """The opcodes of the smallest PTX loop that holds an instruction beginning with `opcode`."""
    (entry,) = compile(EXAMPLES / f"{kernel_name}.mlir", target).variant().program().entries
    labels = {item.name: i for i, item in enumerate(entry.body) if isinstance(item, LabelDef)}
    found: list[list[str]] = []
    for i, item in enumerate(entry.body):
        if isinstance(item, Instr) and item.opcode.startswith("bra"):
            target_index = labels[item.operands[0].name]
            if target_index < i:
                body = [inner.opcode for inner in entry.body[target_index:i] if isinstance(inner, Instr)]
                if any(inner.startswith(opcode) for inner in body):
                    found.append(body)
    return min(found, key=len)


def registers(text: str) -> set[int]:
    """The numbers of the general registers that an operand names."""
    return {int(number) for number in re.findall(r"(?<![A-Z])R(\d+)", text)}


@needs_nvdisasm
def test_the_wgmma_loop_moves_no_accumulators_and_waits_no_more_than_asked():
    loop = listing("gemm", "sm_90a").loops_with("HGMMA")[0]
    ptx = ptx_loop("gemm", "sm_90a", "wgmma.mma_async")
    hgmmas = [instruction for instruction in loop if instruction.name == "HGMMA"]
    assert len(hgmmas) == sum(opcode.startswith("wgmma.mma_async") for opcode in ptx)
    accumulators: set[int] = set()
    for instruction in hgmmas:
        (first,) = registers(instruction.operands[0])
        n = int(re.search(r"x(\d+)x", instruction.opcode).group(1))
        accumulators |= set(range(first, first + n // 2))
    writers = [i for i in loop if i.name != "HGMMA" and i.operands and registers(i.operands[0]) & accumulators]
    assert writers == []
    assert not [i for i in loop if i.name in ("LDL", "STL")]
    for machine, text in (("WARPGROUP.DEPBAR", "wgmma.wait_group"), ("WARPGROUP.ARRIVE", "wgmma.fence"), ("BAR.SYNC", "bar.sync")):
        found = sum(i.opcode.startswith(machine) for i in loop)
        assert found <= sum(opcode.startswith(text) for opcode in ptx), machine
    waits = sum(i.opcode.startswith("SYNCS.PHASECHK") for i in loop)
    assert 0 < waits <= sum(opcode.startswith("mbarrier.try_wait") for opcode in ptx)


@needs_nvdisasm
def test_the_mma_loop_moves_no_accumulators():
    loop = listing("gemm", "sm_80").loops_with("HMMA")[0]
    hmmas = [instruction for instruction in loop if instruction.name == "HMMA"]
    assert len(hmmas) == sum(opcode.startswith("mma.sync") for opcode in ptx_loop("gemm", "sm_80", "mma.sync"))
    accumulators = {first + j for i in hmmas for first in registers(i.operands[0]) for j in range(4)}
    moves = [i for i in loop if i.name == "MOV" or i.opcode.startswith("IMAD.MOV")]
    moved = {i.operands[0]: set().union(*map(registers, i.operands[1:])) for i in moves}
    assert not [to for to, sources in moved.items() if sources & accumulators]
    assert not [i for i in loop if i.name in ("LDL", "STL")]


def test_reading_sass():
    text = """
        .section  .text.k,"ax",@progbits
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P1 FFMA R24, R1.reuse, R2, R24 ;
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR32], R24, gsb0 ;
        /*0030*/              @UP1 BRA `(.L_x_1) ;
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
        /*0060*/                   NOP;
"""
    found = read_sass(text)["k"]
    assert found.instructions[1] == Sass(16, "FFMA", ("R24", "R1.reuse", "R2", "R24"), "@!P1")
    assert found.instructions[2].name == "HGMMA"
    (loop,) = found.loops()
    assert [instruction.name for instruction in loop] == ["FFMA", "HGMMA", "BRA"]
    assert found.loops_with("HGMMA") == [loop] and found.loops_with("LDC") == []


@needs_nvdisasm
@pytest.mark.parametrize("target", TARGETS)
def test_machine_code_names_the_lines_of_python(target):
    """What profilers and debuggers show: the file and line of the function that an instruction came of."""
    path = EXAMPLES / "gemm.py"
    kernel = python_kernel(path, "gemm").compile(target)
    lines = path.read_text().split("\n")
    places = Counter(re.findall(r'//## File "([^"]*)", line (\d+)', kernel.sass))
    assert {file for file, _ in places} == {str(path)}
    found = {lines[int(line) - 1].strip().split(" ")[0] for _, line in places}
    assert {"acc", "C[m"} <= found
    instruction = "HGMMA" if target == "sm_90a" else "HMMA"
    before = kernel.sass.split(instruction)[0]
    line = int(re.findall(r'//## File "[^"]*", line (\d+)', before)[-1])
    assert "acc += A[" in lines[line - 1], "the product of the tensor cores is on the line that states it"


@needs_nvdisasm
def test_what_is_no_cubin():
    with pytest.raises(TeselaError, match="nvdisasm ended with status"):
        disassemble(b"no cubin")


def test_no_nvdisasm(monkeypatch):
    monkeypatch.setenv("TESELA_NVDISASM", "/nowhere/nvdisasm")
    with pytest.raises(TeselaError, match="TESELA_NVDISASM names '/nowhere/nvdisasm', which is no executable file"):
        disassemble(b"")
