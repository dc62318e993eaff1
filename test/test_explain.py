"""runtime/explain.py: the compiler's choices, as a reader sees them, are those of the code that runs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import tesela
from tesela import TeselaError
from tesela.dialects.diagnostics import Location
from tesela.dialects.launch_plan import LaunchPlan
from tesela.dialects.ptx_program import Instr
from tesela.runtime.contract import Contract
from tesela.runtime.explain import instructions
from tesela.runtime.kernel import Kernel
from tesela.runtime.launch import Variant
from tesela.runtime.specialize import Facts

EXAMPLES = Path(__file__).parent.parent / "examples"
LOAD = 13
"""The line of softmax.mlir's first load."""


PLACE = re.compile(r"(\S*:\d+:\d+)  (.*)")


def blocks(text: str) -> dict[str, list[str]]:
    """The lines below each headline; the code of a place below all of its headlines."""
    found: dict[str, list[str]] = {}
    for paragraph in text.split("\n\n")[1:]:
        lines = paragraph.splitlines()
        if lines[0] in ("Shared memory", "Schedules", "Loops") or lines[0].startswith("Layouts: "):
            continue
        heads, code = [], []
        for line in lines:
            if match := PLACE.fullmatch(line):
                heads.append(match[2])
                found.setdefault(heads[-1], [])
            elif line.startswith("  code "):
                code.append(line)
            else:
                found[heads[-1]].append(line)
        for head in heads:
            found[head] += code
    return found


def test_a_value_has_its_line_layout_and_code():
    kernel = tesela.compile(EXAMPLES / "softmax.mlir", "sm_90a")
    text = kernel.explain()
    assert text.splitlines()[0] == f"softmax for sm_90a: 4 warps, {kernel.plan().shared_bytes} bytes of shared memory"
    assert text.splitlines()[1] == "assumes: x aligned to 16, y aligned to 16, x noalias, y noalias"
    assert f"softmax.mlir:{LOAD}:5  %v = tile.load : tensor<1024xf32>\n  layout  thread [128:(4)], value [4:(1), 2:(512)]\n" in text
    assert "2 ld.global.v4.b32" in blocks(text)["%v = tile.load : tensor<1024xf32>"][1]
    assert "5 shfl.sync.bfly.b32" in blocks(text)["%piece_max = tile.reduce : f32"][0]


def test_facts_change_what_is_chosen():
    kernel = tesela.compile(EXAMPLES / "softmax.mlir", "sm_90a")
    text = kernel.explain(facts=Facts())
    assert "assumes: nothing assumed" in text and "ld.global.v4" not in text


def test_rings_and_tensor_cores():
    found = blocks(tesela.compile(EXAMPLES / "gemm.mlir").explain(target="sm_90a"))
    channel = found["%a_channel = async.channel : channel<128x64xbf16>"]
    assert re.fullmatch(r"  ring    \d buffers", channel[0]) and channel[1] == "  layout  [128:64], [64:1], swizzle<3, 3, 3>"
    assert any("wgmma.mma_async" in line for lines in found.values() for line in lines)


def test_every_instruction_is_counted_once():
    program = tesela.compile(EXAMPLES / "gemm.mlir", "sm_90a").variant().program()
    counted = sum(instructions(program).values(), Counter())
    placed = [item for entry in program.entries for item in entry.body if isinstance(item, Instr) and item.loc is not None]
    assert counted.total() == len(placed) > 100
    (place,) = [place for place, counts in instructions(program).items() if any("wgmma.mma_async" in opcode for opcode in counts)]
    assert place == Location(str(EXAMPLES / "gemm.mlir"), place.line, place.column)
    assert "tile.dot" in (EXAMPLES / "gemm.mlir").read_text().splitlines()[place.line - 1]


@pytest.mark.parametrize("target", ("sm_80", "sm_90a"))
@pytest.mark.parametrize("program", ("gemm.mlir", "softmax.mlir", "add.mlir"))
def test_shared_memory_has_one_total(program: str, target: str):
    """The rows of the table add up to what the launch plan asks for, up to the gap before what is exchanged."""
    kernel = tesela.compile(EXAMPLES / program, target)
    text, held = kernel.explain(), kernel.plan().shared_bytes
    assert f"warps, {held} bytes of shared memory" in text
    rows = re.findall(r"^  (?:mbarriers|exchanges) +(\d+) bytes$|^  %\S+ .* stages = (\d+) bytes$", text, re.MULTILINE)
    assert sum(int(a or b) for a, b in rows) == held
    assert re.findall(r"^  total +(\d+) of", text, re.MULTILINE) == ([str(held)] if held else [])


def test_code_stands_below_all_that_stand_at_its_place():
    """Every place once, with all of its operations; what was said to be the code of the first of them is that of all."""
    text = tesela.compile(EXAMPLES / "gemm.mlir").explain(target="sm_90a")
    (paragraph,) = [part for part in text.split("\n\n") if "wgmma.mma_async" in part]
    heads = [match[2] for line in paragraph.splitlines() if (match := PLACE.fullmatch(line))]
    assert any("async.dot" in head for head in heads) and f"(of all {len(heads)} above)" in paragraph
    places = [PLACE.match(part)[1] for part in text.split("\n\n") if PLACE.match(part) and " = " in part.splitlines()[0]]
    assert len(set(places)) == len(places)
    assert "tile.grid_extent" not in text and "tile.block_index" not in text


def test_values_without_names_are_told_by_what_made_them():
    from tesela.tools.sources import compile_source

    text = "".join(compile_source(str(EXAMPLES / name), "sm_90a", None).explain() for name in ("softmax.py", "gemm.py"))
    assert "a value" not in text and "a channel" not in text and re.search(r"softmax.py:22:44  the load at 22:44  1024xf32", text)
    assert re.search(r"the channel at \d+:\d+ 4 × 16384 bytes", text)


def test_a_loaded_kernel_says_why_not():
    plan = LaunchPlan("k", "sm_80", (), (), ("1",), (), 32, 0)
    kernel = Kernel(Contract.of_plan(plan), lambda facts, target: Variant(facts, plan, ""))
    with pytest.raises(TeselaError, match="k: it was loaded as PTX text, and nothing is known of how that was chosen"):
        kernel.explain()


def test_what_is_set_up_for_all_channels_stands_at_the_kernel():
    text = tesela.compile(EXAMPLES / "gemm.mlir").explain(target="sm_90a")
    (paragraph,) = [part for part in text.split("\n\n") if "prefetch.tensormap" in part]
    assert "async.roles" in paragraph and "fence.mbarrier_init" in paragraph and "async.channel" not in paragraph


M, N, K = tesela.dims("M N K")
T = tesela.dtype("T")


@tesela.kernel
def product(A: tesela.Array[T, M, K], B: tesela.Array[T, N, K], C: tesela.Array[tesela.f32, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    acc = tesela.zeros((64, 64), tesela.f32)
    for k in tesela.range(0, K, 64):
        acc = tesela.dot(A[i * 64 : i * 64 + 64, k : k + 64], B[j * 64 : j * 64 + 64, k : k + 64].T, acc)
    C[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = acc


@pytest.mark.parametrize("kind", ["f8E4M3FN", "bf16"])
def test_rows_of_matrices_are_sixteen_bytes_of_any_type(kind):
    """The proof of an ldmatrix is about these."""
    text = product.compile("sm_80", T=getattr(tesela, kind)).explain()
    assert re.search(r"banks +ldmatrix\.x4 at line \d+: 0 conflicts; each wavefront's 2\^5 words lie in 2\^5 banks", text)
