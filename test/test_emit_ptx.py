"""Emission: what comes out assembles without a word from either assembler, and what the launch plan says reaches the
entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ptx_programs import RandomKernel, assemble, assemblers

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan, Param, ScalarArg, TensorMapSpec
from tesela.dialects.parsing import parse_module
from tesela.dialects.ptx import KernelOp, PlanAttr
from tesela.dialects.ptx_program import Entry, Instr, LabelDef, ParamDecl, Program
from tesela.dialects.ptx_text import print_program, read_program
from tesela.dialects.verify import verify_module
from tesela.lowering.assign_registers import assign_registers
from tesela.lowering.emit_ptx import emit, emit_text

IR = sorted((Path(__file__).parent / "ir" / "emit_ptx").glob("*.mlir"))


def program(text: str) -> Program:
    module = parse_module(text, "k.mlir")
    verify_module(module)
    for op in module.body.block.ops:
        assert isinstance(op, KernelOp)
        assign_registers(op)
    return emit(module)


def opcodes(entry: Entry) -> list[str]:
    return [
        item.opcode if isinstance(item, Instr) else "label" for item in entry.body if isinstance(item, Instr | LabelDef)
    ]


@pytest.mark.parametrize("path", [path for path in IR if path.stem != "errors"], ids=lambda path: path.stem)
def test_emitted_text_assembles_and_reads_back(path: Path) -> None:
    made = program(path.read_text())
    text = print_program(made)
    again = read_program(text)
    for entry in again.entries:
        for item in entry.body:
            if isinstance(item, Instr):
                item.line = None
    assert again == made
    for ptxas in assemblers():
        assert assemble(ptxas, text, made.target) == ""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_random_kernels_assemble(target: str) -> None:
    """Thirty kernels in one module a target; ptxas is quiet."""
    from xdsl.dialects.builtin import ModuleOp, StringAttr

    kernels = []
    for seed in range(30):
        made = RandomKernel(seed)
        made.kernel.properties["target"] = StringAttr(target)
        made.kernel.properties["sym_name"] = StringAttr(f"k{seed}")
        assign_registers(made.kernel)
        made.kernel.detach()
        kernels.append(made.kernel)
    text = emit_text(ModuleOp(kernels))
    for ptxas in assemblers():
        assert assemble(ptxas, text, target) == ""


WGMMA = """
ptx.kernel @gemm target sm_90a threads 128 shared 32768 {
  %zero = ptx.constant 0 : !ptx.reg<b32>
  %one = ptx.constant 1 : !ptx.reg<b32>
  %true = ptx.constant 1 : !ptx.reg<pred>
  %n = ptx.param "n" : !ptx.reg<b32>
  %out = ptx.param "out" : !ptx.reg<b64>
  %da = ptx.param "da" : !ptx.reg<b64>
  %z = ptx.inst "mov.b32" %zero : (!ptx.reg<b32>) -> !ptx.reg<b32 x 64>
  %r = ptx.for %i = %zero to %n step %one : !ptx.reg<b32> carried(%a = %z : !ptx.reg<b32 x 64>, %d = %da : !ptx.reg<b64>) {
    ptx.inst "wgmma.fence.sync.aligned" : () -> ()
    %b = ptx.inst "WGMMA" %a, %d, %d, %true {imms = [1, 1, 0, 0]} : (!ptx.reg<b32 x 64>, !ptx.reg<b64>, !ptx.reg<b64>, !ptx.reg<pred>) -> !ptx.reg<b32 x 64>
    %two = ptx.constant 2 : !ptx.reg<b64>
    %e = ptx.inst "add.s64" %d, %two : (!ptx.reg<b64>, !ptx.reg<b64>) -> !ptx.reg<b64>
    %c = ptx.inst "WGMMA" %b, %e, %e, %true {imms = [1, 1, 0, 0]} : (!ptx.reg<b32 x 64>, !ptx.reg<b64>, !ptx.reg<b64>, !ptx.reg<pred>) -> !ptx.reg<b32 x 64>
    ptx.inst "wgmma.commit_group.sync.aligned" : () -> ()
    ptx.inst "wgmma.wait_group.sync.aligned" {imms = [1]} : () -> ()
    ptx.yield %c, %e : !ptx.reg<b32 x 64>, !ptx.reg<b64>
  }
  ptx.inst "wgmma.wait_group.sync.aligned" {imms = [0]} : () -> ()
  ptx.inst "st.global.v4.b32" %out, %r#0 {offsets = array<i64: OFFSETS>} : (!ptx.reg<b64>, !ptx.reg<b32 x 64>) -> ()
}
""".replace("WGMMA", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16")
WGMMA = WGMMA.replace("OFFSETS", ", ".join(str(16 * i) for i in range(16))).replace("%r = ptx.for", "%r:2 = ptx.for")


def test_a_wgmma_loop_stays_asynchronous() -> None:
    """A group in flight over the back-edge: no move in the loop, and ptxas serialises nothing (it would print C7510
    to C7520)."""
    made = program(WGMMA)
    entry = made.entries[0]
    listed = opcodes(entry)
    loop = listed[listed.index("label") : len(listed) - listed[::-1].index("label")]
    assert "mov.b32" not in loop and "mov.b64" not in loop
    for ptxas in assemblers():
        output = assemble(ptxas, print_program(made), "sm_90a", "-v")
        assert "C75" not in output and "spill" in output and ", 0 bytes spill stores" in output, output


PLAN = LaunchPlan(
    name="k",
    target="sm_90a",
    args=(ArrayArg("A", "bf16", ("M", "K"), (None, 1), "r"), ScalarArg("s", "f32"), ScalarArg("b", "i1")),
    dims=("M", "K"),
    grid=("M",),
    params=(
        Param("tensormap", "m_A", "A", tensormap=TensorMapSpec("A", (1, 0), (64, 64), 128)),
        Param("pointer", "p_A", "A"),
        Param("dim", "d_M", "M"),
        Param("scalar", "a_s", "s"),
        Param("scalar", "a_b", "b"),
    ),
    threads=128,
    shared_bytes=0,
)
PLANNED = """
ptx.kernel @k target sm_90a threads 128 shared 0 {
  %s = ptx.param "a_s" : !ptx.reg<b32>
  %b = ptx.param "a_b" : !ptx.reg<b16>
  %p = ptx.param "p_A" : !ptx.reg<b64>
  ptx.inst "st.global.b32" %p, %s : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
  ptx.inst "st.global.b16" %p, %b : (!ptx.reg<b64>, !ptx.reg<b16>) -> ()
}
"""


def planned(plan: LaunchPlan, text: str = PLANNED) -> Entry:
    module = parse_module(text)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, KernelOp)
    kernel.properties["plan"] = PlanAttr(plan)
    assign_registers(kernel)
    made = emit(module)
    for ptxas in assemblers():
        assert assemble(ptxas, print_program(made), "sm_90a") == ""
    return made.entries[0]


def test_parameters_come_from_the_plan() -> None:
    """All of the plan's, in its order, also those that the body does not read."""
    entry = planned(PLAN)
    assert entry.params == [
        ParamDecl("m_A", "b8", 128, 64),
        ParamDecl("p_A", "b64"),
        ParamDecl("d_M", "b64"),
        ParamDecl("a_s", "b32"),
        ParamDecl("a_b", "b8"),
    ]
    assert opcodes(entry)[:3] == ["ld.param.b32", "ld.param.b8", "ld.param.b64"]
    assert entry.cluster is None and entry.min_blocks is None


def test_the_cluster_comes_from_the_plan() -> None:
    assert planned(replace(PLAN, cluster=(2, 1, 1))).cluster == (2, 1, 1)


def test_min_blocks_is_stated_where_asked() -> None:
    text = PLANNED.rstrip() + " {min_blocks = 2 : i64}\n"
    assert planned(PLAN, text).min_blocks == 2


def test_a_parameter_that_the_plan_lacks() -> None:
    with pytest.raises(TeselaError, match="the kernel's plan has no parameter 'a_s'"):
        planned(replace(PLAN, params=PLAN.params[:3]))


def test_only_used_registers_are_declared() -> None:
    """Unused results of picks and of dead constants take no declaration; declarations are dense where names are."""
    made = program("""
ptx.kernel @k target sm_80 threads 32 shared 0 {
  %c = ptx.constant 7 : !ptx.reg<b32>
  %x = ptx.param "x" : !ptx.reg<b32>
  %v = ptx.concat %x, %x : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<b32 x 2>
  %p = ptx.param "p" : !ptx.reg<b64>
  ptx.inst "st.global.b32" %p, %x : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
}""")
    assert made.entries[0].registers == {"%r0": "b32", "%rd0": "b64"}


def test_kernels_of_a_module_share_header_and_shared_memory() -> None:
    text = """
ptx.kernel @NAME target sm_80 threads 32 shared 64 {
  %s = ptx.shared_address 0 : !ptx.reg<b32>
  ptx.inst "st.shared.b32" %s, %s : (!ptx.reg<b32>, !ptx.reg<b32>) -> ()
}"""
    made = program(text.replace("NAME", "a") + text.replace("NAME", "b"))
    assert [entry.name for entry in made.entries] == ["a", "b"] and len(made.shared) == 1
    for ptxas in assemblers():
        assert assemble(ptxas, print_program(made), "sm_80") == ""


def test_locations_become_loc() -> None:
    """Each instruction of an op has the op's place; a file name that ptxas could not read is left out."""
    module = parse_module(PLANNED, "dir/k.mlir")
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, KernelOp)
    assign_registers(kernel)
    made = emit(module)
    places = [item.loc for item in made.entries[0].body if isinstance(item, Instr)]
    assert made.files == ["dir/k.mlir"] and places[0] == (1, 3, 3) and places[3] == (1, 6, 3)
    odd = parse_module(PLANNED, "größe.mlir")
    assign_registers(odd.body.block.first_op)  # type: ignore[arg-type]
    assert emit(odd).files == []


def test_an_if_with_one_empty_branch_branches_round_the_other() -> None:
    """The branch that does nothing costs no jump of its own."""
    text = """
ptx.kernel @k target sm_80 threads 32 shared 0 {
  %x = ptx.param "x" : !ptx.reg<b32>
  %p = ptx.param "p" : !ptx.reg<b64>
  %c = ptx.inst "setp.lt.s32" %x, %x : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  ptx.if %c { ptx.yield } else {
    ptx.inst "st.global.b32" %p, %x : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
    ptx.inst "st.global.b32" %p, %x : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
    ptx.inst "st.global.b32" %p, %x : (!ptx.reg<b64>, !ptx.reg<b32>) -> ()
    ptx.yield
  }
}"""
    entry = program(text).entries[0]
    branches = [item for item in entry.body if isinstance(item, Instr) and item.opcode == "bra"]
    assert len(branches) == 1 and not branches[0].negated and branches[0].guard == "%p0"


def test_names_that_ptx_cannot_spell() -> None:
    module = parse_module(PLANNED.replace("@k", '@"k-1"'))
    assign_registers(module.body.block.first_op)  # type: ignore[arg-type]
    with pytest.raises(TeselaError, match="'k-1' is no name in PTX"):
        emit(module)
