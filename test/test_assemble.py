"""runtime/assemble.py: finding ptxas, its messages as diagnostics, its resource lines as numbers."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

import tesela
from tesela.dialects.diagnostics import Location, TeselaError
from tesela.runtime import assemble as module
from tesela.runtime.assemble import (
    Assembler,
    Ptxas,
    Resources,
    assemble,
    find_assembler,
    find_ptxas,
    read_messages,
    read_resources,
    target_of,
)
from tesela.runtime.specialize import Facts
from tesela.tools.demo import example
from tesela.tools.sources import compile_source

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.file 1 "scale.py"
.visible .entry scale(.param .u64 x, .param .u32 n)
{
  .reg .b64 %x; .reg .b32 %n, %v;
  .loc 1 7 3
  ld.param.u64 %x, [x];
  ld.param.u32 %n, [n];
  .loc 1 8 9
  ld.global.u32 %v, [%x];
  add.u32 %v, %v, %n;
  st.global.u32 [%x], %v;
  ret;
}
"""

MODULE = example("add", "mlir")
needs_ptxas = pytest.mark.skipif(not find_ptxas(), reason="needs a ptxas")


@needs_ptxas
def test_assembles_for_the_stated_target_and_reports_resources():
    done = assemble(KERNEL)
    assert done.is_cubin and done.cubin[:4] == b"\x7fELF"
    assert list(done.resources) == ["scale"]
    assert 4 <= done.registers <= 16
    assert done.spills == 0 and done.messages == []


@needs_ptxas
def test_assembles_for_a_newer_architecture_than_the_text_states():
    assert assemble(KERNEL, "sm_90").cubin != assemble(KERNEL, "sm_80").cubin


@needs_ptxas
def test_every_ptxas_found_gives_its_version():
    for assembler in find_ptxas():
        assert assembler.version()[0].isdigit()


@needs_ptxas
def test_an_error_stands_at_the_source_line_with_the_ptx_line_as_a_note():
    with pytest.raises(TeselaError) as caught:
        assemble(KERNEL.replace("add.u32 %v, %v, %n", "add.u32 %v, %w, %n"))
    messages = caught.value.diagnostics
    assert [(d.severity, d.message, d.location) for d in messages] == [
        ("error", "ptxas: Arguments mismatch for instruction 'add'", Location("scale.py", 8, 9)),
        ("error", "ptxas: Unknown symbol '%w'", Location("scale.py", 8, 9)),
    ]
    assert messages[0].notes[0].location == Location("<ptx>", 13, 3)
    assert "add.u32 %v, %w, %n" in str(caught.value)


@needs_ptxas
def test_an_error_before_any_loc_stands_in_the_ptx_text():
    with pytest.raises(TeselaError) as caught:
        assemble(".version 99.0\n.target sm_80\n")
    assert caught.value.diagnostics[0].location == Location("<ptx>", 1, 1)
    assert "Unsupported .version 99.0" in caught.value.diagnostics[0].message


@needs_ptxas
def test_unknown_architecture_is_an_error_without_a_line():
    with pytest.raises(TeselaError) as caught:
        assemble(KERNEL, "sm_80z")
    assert "sm_80z" in str(caught.value)


def test_target_of_needs_a_target_line():
    assert target_of(KERNEL) == "sm_80"
    with pytest.raises(TeselaError, match=r"<ptx>:1:1: error: the PTX text has no \.target line"):
        target_of(".version 8.0\n")


SERIALISED = (
    "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma "
    "instructions reading accumulator registers in the function 'k'\n"
)
SPILLED = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    48 bytes stack frame, 60 bytes spill stores, 72 bytes spill loads
ptxas info    : Used 255 registers, used 3 barriers, 48 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 16.548 ms
"""


@pytest.mark.parametrize(("strict", "severity"), [(False, "warning"), (True, "error")])
def test_serialised_wgmma_and_spills_are_warnings_or_errors(strict: bool, severity: str):
    messages = read_messages(SERIALISED + SPILLED, KERNEL, strict)
    assert [d.severity for d in messages] == [severity] * 2
    assert messages[0].message.startswith("ptxas C7514: Potential Performance Loss: wgmma.mma_async instructions are serialized")
    assert messages[1].message == "kernel k: registers are spilled to local memory: 60 bytes stored, 72 bytes loaded"


WGMMA = """.file 1 "gemm.mlir"
.visible .entry other() {
  .loc 1 2 1
  wgmma.mma_async.sync.aligned.m64n8k16 a;
}
.visible .entry k(
  .param .u64 p)
{
  .loc 1 5 1
  wgmma.fence.sync.aligned;
  .loc 1 9 3
  wgmma.mma_async.sync.aligned.m64n8k16 a;
  wgmma.mma_async.sync.aligned.m64n8k16 b;
  .loc 1 12 3
  wgmma.mma_async.sync.aligned.m64n8k16 c;
}
"""


def test_serialised_wgmma_and_spills_stand_at_the_dots_and_at_the_kernel():
    serialised, spilled = read_messages(SERIALISED + SPILLED, WGMMA)
    assert serialised.location == Location("gemm.mlir", 9, 3)
    assert [(note.message, note.location) for note in serialised.notes] == [("the kernel's wgmma are also of this dot", Location("gemm.mlir", 12, 3))]
    assert spilled.location == Location("gemm.mlir", 5, 1)


@needs_ptxas
def test_a_dot_whose_sums_are_read_without_a_wait_is_named():
    """What ptxas says of a compiled kernel that lacks its waits."""
    gemm = example("gemm", "mlir")
    ptx = compile_source(gemm, "sm_90a", "gemm").variant(facts=Facts()).ptx
    assert assemble(ptx, "sm_90a").messages == []
    (message,) = assemble(re.sub(r" *wgmma\.wait_group.*\n", "", ptx), "sm_90a").messages
    dot = next(number for number, text in enumerate(gemm.read_text().splitlines(), 1) if "tile.dot" in text)
    assert message.message.startswith("ptxas C75") and message.location.line == dot


def test_plain_information_is_no_message():
    assert read_messages(SPILLED.replace("60 bytes", "0 bytes").replace("72 bytes", "0 bytes"), KERNEL) == []


def test_the_log_of_the_drivers_compiler_reads_alike():
    log = "ptxas application ptx input, line 13; error   : Unknown symbol '%w'\nptxas fatal   : Ptx assembly aborted due to errors\n"
    (message,) = read_messages(log, KERNEL)
    assert (message.severity, message.location) == ("error", Location("scale.py", 8, 9))


def test_resources():
    assert read_resources(SPILLED) == {
        "k": Resources(registers=255, spill_stores=60, spill_loads=72, stack=48, static_shared=1024, barriers=3)
    }


def test_the_environment_names_an_assembler_that_comes_first(tmp_path, monkeypatch):
    fake = tmp_path / "ptxas"
    fake.write_text("#!/bin/sh\necho 'release 1.2, V1.2.3'\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TESELA_PTXAS", str(fake))
    assert find_assembler() == Assembler("environment", str(fake))
    assert find_assembler().version() == "1.2.3"


def test_the_environment_names_no_file(monkeypatch):
    monkeypatch.setenv("TESELA_PTXAS", "/nowhere/ptxas")
    with pytest.raises(TeselaError, match="TESELA_PTXAS names '/nowhere/ptxas', which is no executable file"):
        find_assembler()


def test_an_assembler_that_fails_silently_is_an_error(tmp_path, monkeypatch):
    fake = tmp_path / "ptxas"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(TeselaError, match="ptxas ended with status 3 and wrote no cubin"):
        assemble(KERNEL, assembler=Assembler("path", str(fake)))


def test_order_of_assemblers(monkeypatch):
    wheel, path = Assembler("wheel", "/w/ptxas"), Assembler("path", "/p/ptxas")
    monkeypatch.setattr("tesela.runtime.driver.device_available", lambda: True)
    monkeypatch.setattr(module, "_each_ptxas", lambda: iter([wheel, path]))
    assert find_assembler() == wheel
    monkeypatch.setattr(module, "_each_ptxas", lambda: iter([path]))
    assert find_assembler() == Assembler("driver")
    monkeypatch.setattr("tesela.runtime.driver.device_available", lambda: False)
    assert find_assembler() == path
    monkeypatch.setattr(module, "_each_ptxas", lambda: iter([]))
    with pytest.raises(TeselaError, match="no assembler for PTX was found"):
        find_assembler()


def test_the_drivers_compiler_gives_no_cubin():
    done = assemble(KERNEL, assembler=Assembler("driver"))
    assert not done.is_cubin and done.image == KERNEL.encode() + b"\0"
    with pytest.raises(TeselaError, match="no ptxas was found"):
        _ = done.cubin


@needs_ptxas
def test_an_assembler_that_was_started_ahead():
    """The same code, the same complaint; also where another process still has the way by which the text comes open."""
    assembler, wrong = find_ptxas()[0], KERNEL.replace("ret;", "rett;")
    waiting, unneeded, other = (Ptxas(assembler, "sm_90a") for _ in range(3))
    assert waiting._input is not None
    held = os.dup(waiting._input.fileno())
    assert assemble(KERNEL, "sm_90a", assembler=assembler, waiting=waiting).image == assemble(KERNEL, "sm_90a", assembler=assembler).image
    os.close(held)
    said = []
    for started in (other, None):
        with pytest.raises(TeselaError) as caught:
            assemble(wrong, "sm_90a", assembler=assembler, waiting=started)
        said.append(caught.value.diagnostics)
    assert said[0] == said[1]
    unneeded.close()
    assert unneeded._process.returncode != 0 and not Path(unneeded._folder.name).exists()


@needs_ptxas
def test_what_was_started_ahead_is_taken_or_ended(monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "0")
    started = []
    monkeypatch.setattr("tesela.runtime.compile.started_ahead", lambda: started.append(module.started_ahead()) or started[-1])
    with module.assembled_soon("sm_80"):
        variant = tesela.compile(MODULE, "sm_80").variant()
    assert variant.waiting is started[0] is not None
    assert variant.assembled().is_cubin and variant.waiting is None and started[0]._process.returncode == 0
    with module.assembled_soon("sm_80"):
        other = tesela.compile(MODULE, "sm_80").variant()
    assert other.assembled("sm_90").is_cubin and started[1]._process.returncode != 0
    tesela.compile(MODULE, "sm_80").variant()
    assert started[2] is None
    monkeypatch.setattr("tesela.lowering.pipeline.finish", lambda lowering: 1 / 0)
    with module.assembled_soon("sm_80"), pytest.raises(ZeroDivisionError):
        tesela.compile(MODULE, "sm_80").variant()
    assert started[3]._process.returncode != 0
