"""Pins: what the author fixes is obeyed and right, and what contradicts it is an error that names every requirement at its line."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from compiled import run_both, same

import tesela
from tesela import Array, TeselaError, bf16, f32
from tesela.dialects import async_copy, tile
from tesela.dialects.layout_attrs import ConvertOp
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.passes.base import PassContext
from tesela.passes.infer_layouts import InferLayouts
from tesela.passes.plan_dataflow import PlanDataflow
from tesela.simulator import settings

ROWS = "memref<?x?xbf16, strided<[?, 1]>>"
GEMM = f"""tile.kernel @k(%A: {ROWS} [M, K] {{a_attrs}}, %B: {ROWS} [N, K] {{{{align = 16}}}}, %C: memref<?x?xf32, strided<[?, 1]>> [M, N] {{{{noalias}}}})
    dims(%K = K divisible 8) where(N divisible 8) grid(%i = M ceildiv 128, %j = N ceildiv 64) attributes {{{{warps = 8 : i64}}}} {{{{
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %m = arith.muli %i, %c128 : index
  %n = arith.muli %j, %c64 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<128x64xf32>
  %acc = scf.for %k = %c0 to %K step %c64 iter_args(%c = %zero) -> (tensor<128x64xf32>) {{{{
    %a = tile.load %A[%m, %k] {{load}} : {ROWS} -> tensor<128x64xbf16>
    %b = tile.load %B[%n, %k] : {ROWS} -> tensor<64x64xbf16>
    %t = tile.transpose %b [1, 0] : tensor<64x64xbf16> -> tensor<64x64xbf16>
    %d = tile.dot %a, %t, %c {{dot}} : tensor<128x64xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
    scf.yield %d : tensor<128x64xf32>
  }}}}
  tile.store %acc, %C[%m, %n] : tensor<128x64xf32>, memref<?x?xf32, strided<[?, 1]>>
}}}}"""


def gemm(load: str = "", dot: str = "", a_attrs: str = "{align = 16}") -> str:
    return GEMM.format(load=load, dot=dot, a_attrs=a_attrs)


def inferred(text: str, target: str = "sm_90a"):
    module = parse_module(text, "k.mlir")
    context = PassContext(get_target(target))
    PlanDataflow().run(module, context)
    InferLayouts().run(module, context)
    return module


def refused(text: str, target: str = "sm_90a") -> TeselaError:
    with pytest.raises(TeselaError) as caught:
        inferred(text, target)
    return caught.value


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    ("target", "words", "whole"),
    [
        ("sm_90a", "m64n32k16 shared", "wgmma m64n32k16 2x1 shared"),
        ("sm_90a", "m64n32k16", "wgmma m64n32k16 2x1 registers"),  # so that the left operand is read once for both instructions
        ("sm_90a", "registers", "wgmma m64n64k16 2x1 registers"),
        ("sm_90a", "m64n16k16 2x1 registers", "wgmma m64n16k16 2x1 registers"),
        ("sm_90a", "1x1", "wgmma m64n64k16 1x1 shared"),
        ("sm_80", "8x1", "mma m16n8k16 8x1 registers"),
        ("sm_80", "2x2", "mma m16n8k16 2x2 registers"),
    ],
)
def test_an_instruction_is_obeyed_and_right(target, words, whole):
    text = gemm(dot=f'{{instruction = "{words}"}}')
    module = inferred(text, target)
    (dot,) = [op for op in module.walk() if isinstance(op, tile.DotOp | async_copy.DotOp)]
    assert dot.attributes["instruction"].data == whole
    rng = np.random.default_rng(0)
    arrays = {
        "A": rng.standard_normal((130, 136)).astype(ml_dtypes.bfloat16),
        "B": rng.standard_normal((72, 136)).astype(ml_dtypes.bfloat16),
        "C": np.zeros((130, 72), np.float32),
    }
    simulated, _ = run_both(text, arrays, target)
    np.testing.assert_allclose(simulated["C"], arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("attribute", "check"), [
    ("shared = #layout.shared<[128:32], [32:1, 2:4096], swizzle<2, 3, 3>>", lambda op: str(op.channel.type.layout.data).endswith("swizzle<2, 3, 3>")),
    ('copy = "cp.async"', lambda op: op.via.data == "cp.async"),
    ('copy = "ld"', lambda op: op.via.data == "ld"),
])  # fmt: skip
def test_a_way_through_shared_memory_is_obeyed_and_right(attribute, check):
    text = gemm(load=f"{{{attribute}}}")
    puts = [op for op in inferred(text).walk() if isinstance(op, async_copy.PutOp)]
    assert [check(put) for put in puts] == [True, False]
    rng = np.random.default_rng(1)
    arrays = {
        "A": rng.standard_normal((130, 72)).astype(ml_dtypes.bfloat16),
        "B": rng.standard_normal((64, 72)).astype(ml_dtypes.bfloat16),
        "C": np.zeros((130, 64), np.float32),
    }
    simulated, _ = run_both(text, arrays, "sm_90a")
    np.testing.assert_allclose(simulated["C"], arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64).T, rtol=1e-4, atol=1e-4)


VECTORS = """tile.kernel @k(%x: memref<?xf32, strided<[1]>> [N] {{align = 16}}, %y: memref<?xf32, strided<[1]>> [N]) where(N divisible 16)
    grid(%b = N ceildiv 256) attributes {{warps = 4 : i64}} {{
  %c256 = arith.constant 256 : index
  %i = arith.muli %b, %c256 : index
  %v = tile.load %x[%i] {load} : memref<?xf32, strided<[1]>> -> tensor<256xf32>
  %s = arith.addf %v, %v {add} : tensor<256xf32>
  tile.store %s, %y[%i] : tensor<256xf32>, memref<?xf32, strided<[1]>>
}}"""


def test_a_layout_is_obeyed_by_all_that_is_tied_to_it():
    text = VECTORS.format(load="", add="{layout = #layout.tv<thread [128:(1)], value [2:(128)]>}")
    module = inferred(text, "sm_80")
    (add,) = [op for op in module.walk() if op.name == "arith.addf"]
    assert str(add.results[0].type.encoding.data) == "thread [128:(1)], value [2:(128)]"
    simulated, interpreted = run_both(text, {"x": np.arange(512, dtype=np.float32), "y": np.zeros(512, np.float32)}, "sm_80")
    same(simulated["y"], interpreted["y"])
    assert not [op for op in inferred(VECTORS.format(load="", add=""), "sm_80").walk() if isinstance(op, ConvertOp)]


def test_two_layouts_for_one_value_contradict():
    text = VECTORS.format(
        load="{layout = #layout.tv<thread [128:(2)], value [2:(1)]>}", add="{layout = #layout.tv<thread [128:(1)], value [2:(128)]>}"
    )
    (error,) = refused(text, "sm_80").diagnostics
    assert "these 2 requirements on the layouts of %v contradict each other" in error.message
    assert [note.location.line for note in error.notes] == [line_of(text, "tile.load"), line_of(text, "arith.addf")]
    assert "%v has the layout thread [128:(2)], value [2:(1)]" in error.notes[0].message


def test_a_buffer_that_the_instruction_cannot_read_contradicts():
    text = gemm(load="{shared = #layout.shared<[128:72], [64:1]>}", dot='{instruction = "shared"}')
    (error,) = refused(text).diagnostics
    assert "these 3 requirements" in error.message
    assert {note.location.line for note in error.notes} == {line_of(text, "tile.load %A"), line_of(text, "tile.dot")}
    assert any(note.message == 'instruction = "shared"' for note in error.notes)
    assert any("the buffers of %a_channel lie as [128:72], [64:1]" in note.message for note in error.notes)
    assert any("wgmma reads its left operand" in note.message for note in error.notes)
    # Without any one of them there is an answer: ldmatrix reads this buffer.
    without = inferred(gemm(load="{shared = #layout.shared<[128:72], [64:1]>}"))
    (dot,) = [op for op in without.walk() if isinstance(op, async_copy.DotOp)]
    assert dot.attributes["instruction"].data == "wgmma m64n64k16 2x1 registers"
    inferred(gemm(dot='{instruction = "shared"}'))


def test_a_copy_that_cannot_be():
    text = gemm(load='{copy = "tma"}', a_attrs="{align = 4}")
    (error,) = refused(text).diagnostics
    assert "a requirement on the layouts of %a_channel cannot be met, whatever else is chosen" in error.message
    assert error.location.line == line_of(text, "tile.load %A") and len(error.notes) == 1
    assert 'via "tma", but base and strides are only known to be multiples of 4 bytes' in error.notes[0].message


@pytest.mark.parametrize(
    ("words", "target", "said"),
    [
        ("m64n512k16", "sm_90a", ""),
        ("wgmma", "sm_80", "sm_80 has no wgmma"),
        ("3x1", "sm_90a", ""),
        ("mma", "sm_90a", "the dot is asynchronous"),
    ],
)
def test_no_way_has_the_words(words, target, said):
    text = gemm(dot=f'{{instruction = "{words}"}}')
    (error,) = refused(text, target).diagnostics
    assert f'no way to compute this dot has all of the words of instruction = "{words}"' in error.message
    assert error.location.line == line_of(text, "tile.dot") and "the cheapest of" in error.hint
    assert not said or any(said in note.message for note in error.notes)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("thread [64:(1)], value [4:(64)]", "is for 64 threads, the block has 128"),
        ("thread [128:(1)], value []", "leaves elements of 256 without a holder"),
        ("thread [128:(1,0)], value [2:(0,1)]", "has 2 dimensions, the tile has 1"),
        ("thread [128:(1)], value [1000000:(1)]", "needs 1000000 registers of a thread, at most 255 are there"),
    ],
)
def test_impossible_layouts(layout, message):
    text = VECTORS.format(load=f"{{layout = #layout.tv<{layout}>}}", add="")
    (error,) = refused(text, "sm_80").diagnostics
    assert message in error.message and error.location.line == line_of(text, "tile.load")


@pytest.mark.parametrize(("attribute", "message"), [("shared = #layout.shared<[256:1]>", "'shared' is pinned"), ('copy = "tma"', "'copy' is pinned")])
def test_pins_for_shared_memory_of_what_does_not_go_there(attribute, message):
    (error,) = refused(VECTORS.format(load=f"{{{attribute}}}", add=""), "sm_90a").diagnostics
    assert message in error.message


# ---- Python ---------------------------------------------------------------------------------------------------------

M, N, K = tesela.dims("M N K")


@tesela.kernel
def pinned(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, 64):
        a = tesela.pin(A[i * 64 : i * 64 + 64, k : k + 64], shared="[64:64], [64:1], swizzle<3, 3, 3>", copy="cp.async")
        acc = tesela.pin(acc + a @ B[j * 64 : j * 64 + 64, k : k + 64].T, instruction="m64n16k16 registers")
    C[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64] = acc


@pytest.mark.parametrize("k", [8, 64, 200])
def test_pins_in_python(k):
    """Also that operands in registers are not loaded anew before the instruction has read them: the judge watches."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((64, k)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    kernel = tesela.compile(pinned, "sm_90a")
    with settings(races=True):
        kernel(a, b, c, device="sim")
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-4, atol=1e-4)
    assert "pinned     m64n16k16 registers" in kernel.explain()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("tesela.pin(x, layout='thread [3')", "layout: not a layout"),
        ("tesela.pin(x, layout='thread [128:(1,0)], value []')", "layout has 2 dimensions, the tile has 1"),
        ("tesela.pin(x, copy='fast')", "copy is one of tma, cp.async, ld"),
        ("tesela.pin(x, instruction='m64n8k16')", "instruction is a text, for the result of a dot"),
        ("tesela.pin(x, shared=3)", "shared is a layout or the text of one"),
        ("tesela.pin(x, shared='[128:0]')", "the elements [0] and [1] share one place, 0"),
        ("tesela.pin(x, shared='[64:1, 2:32]')", "the elements [32] and [64] share one place, 32"),
        ("tesela.pin(x, shared='[64:1]')", "it reaches 64, the tile is 128"),
        ("tesela.pin(x, layout='thread [128:(1)], value [2:(1000000000000)]')", "the layout is larger than any tile can be: its elements are"),
        ("tesela.pin(tesela.pin(x, copy='ld'), copy='cp.async')", "copy is pinned twice: as ld and as cp.async"),
        (
            "tesela.pin(tesela.pin(x, layout='thread [128:(1)], value []'), layout='thread [32:(1), 4:(32)], value [2:(0)]')",
            "layout is pinned twice: as thread [128:(1)], value [] and as thread [128:(1)], value [2:(0)]",
        ),
    ],
)
def test_wrong_pins_in_python(source, message, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "import tesela\nfrom tesela import Array, f32\nN = tesela.dims('N')\n\n@tesela.kernel\ndef k(a: Array[f32, N], b: Array[f32, N]):\n"
        f"    i = tesela.grid(tesela.ceildiv(N, 128)) * 128\n    x = a[i : i + 128]\n    b[i : i + 128] = {source}\n"
    )
    from tesela.tools.sources import compile_source

    with pytest.raises(TeselaError) as caught:
        compile_source(path, "sm_90a", None).ir("layout")
    assert re.search(re.escape(message), str(caught.value)) and caught.value.diagnostics[0].location.line == 9


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("acc, instruction=''", "instruction is a text, for the result of a dot, found the string ''"),
        ("tesela.pin(acc, instruction='m64n32k16'), instruction='m64n64k16'", "instruction is pinned twice: as m64n32k16 and as m64n64k16"),
    ],
)
def test_wrong_instructions_in_python(instruction, message, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "import tesela\nfrom tesela import Array, bf16, f32\nK = tesela.dims('K')\n\n@tesela.kernel\n"
        "def k(a: Array[bf16, 64, K], b: Array[bf16, K, 64], c: Array[f32, 64, 64]):\n"
        f"    acc = a[0:64, 0:64] @ b[0:64, 0:64]\n    c[0:64, 0:64] = tesela.pin({instruction})\n"
    )
    from tesela.tools.sources import compile_source

    with pytest.raises(TeselaError) as caught:
        compile_source(path, "sm_90a", None)
    assert message in str(caught.value) and caught.value.diagnostics[0].location.line == 8


@pytest.mark.parametrize("layout", ["[128:64], [64:0]", "[128:32], [64:1]", "[64:64], [64:1]"])
def test_a_pinned_buffer_gives_each_element_a_place_of_its_own(layout):
    """Both where it is pinned and in the type of a buffer that is written by hand."""
    error = refused(gemm(load=f"{{shared = #layout.shared<{layout}>}}"))
    expected = "it reaches 64x64" if "128" not in layout else "share one place"
    assert expected in str(error) and error.diagnostics[0].location.line == line_of(gemm(load="{shared"), "{shared")
    text = f"func.func private @f(!async.buffer<128x64xbf16, #layout.shared<{layout}>>)"
    with pytest.raises(TeselaError, match=expected):
        parse_module(text, "k.mlir")


@tesela.kernel
def transposed(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], PLACE: tesela.constexpr):
    m = tesela.grid(tesela.ceildiv(M, 64)) * 64
    acc = tesela.zeros((64, 32), f32)
    for k in tesela.range(0, K, 16):
        acc += A[m : m + 64, k : k + 16] @ tesela.pin(B[0:32, k : k + 16], shared=PLACE).T
    C[m : m + 64, 0:32] = acc


@pytest.mark.parametrize(("target", "place"), [("sm_80", "[32:24], [16:1]"), ("sm_80", "[32:1], [16:32]"), ("sm_90a", "[32:16], [16:1], swizzle<1, 3, 3>")])
def test_a_place_of_a_tile_that_is_read_transposed(target, place):
    """The view has the tile's place with its dimensions exchanged."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, 70)).astype(ml_dtypes.bfloat16) for rows in (130, 30))
    c = np.zeros((130, 30), np.float32)
    with settings(races=True):
        transposed(a, b, c, PLACE=place, target=target, device="sim")
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, atol=1e-4)
