"""runtime/specialize.py and runtime/compile.py: contracts read off kernels, facts of calls, variants as attributes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import ArrayArg, ScalarArg
from tesela.dialects.parsing import parse_module, print_module
from tesela.dialects.verify import verify_module
from tesela.lowering.pipeline import STAGES
from tesela.runtime.arrays import view
from tesela.runtime.assemble import find_ptxas
from tesela.runtime.compile import Source, compile
from tesela.runtime.contract import overlapping
from tesela.runtime.disassemble import find_nvdisasm
from tesela.runtime.specialize import Facts, contract_of, facts_of, kernels_of, specialize, usual_facts

EXAMPLES = Path(__file__).parent.parent / "examples"
BF16 = ml_dtypes.bfloat16

SCALE = """
tile.kernel @scale(%x: memref<?xf32, strided<[1]>> [N] {align = 32 : i64}, %alpha: f32, %y: memref<?x4xf32> [N, 4] {noalias})
    dims(%n = N divisible 4) grid(%b = N ceildiv 128) {
  %c128 = arith.constant 128 : index
  %i = arith.muli %b, %c128 : index
  %c0 = arith.constant 0 : index
  %t = tile.load %x[%i] : memref<?xf32, strided<[1]>> -> tensor<128xf32>
  %u = tile.expand %t axis 1 : tensor<128xf32> -> tensor<128x1xf32>
  %s = tile.full %alpha : f32 -> tensor<128x1xf32>
  %v = arith.mulf %u, %s : tensor<128x1xf32>
  tile.store %v, %y[%i, %c0] : tensor<128x1xf32>, memref<?x4xf32>
}
tile.kernel @touch(%x: memref<?xf32, strided<[?]>> [N]) grid(%b = N) {
  %t = tile.load %x[%b] : memref<?xf32, strided<[?]>> -> tensor<1xf32>
  tile.store %t, %x[%b] : tensor<1xf32>, memref<?xf32, strided<[?]>>
}
"""


def gemm_contract():
    return compile(EXAMPLES / "gemm.mlir").contract


def facts(contract, *arrays):
    views = [None if array is None else view(array) for array in arrays]
    spans = [None if seen is None else seen.span() for seen in views]
    return facts_of(contract, views, contract.solve(views), overlapping(contract, spans))


def test_the_contract_of_an_example():
    contract = gemm_contract()
    assert contract.args == (
        ArrayArg("A", "bf16", ("M", "K"), (None, 1), "r"),
        ArrayArg("B", "bf16", ("N", "K"), (None, 1), "r"),
        ArrayArg("C", "f32", ("M", "N"), (None, 1), "w"),
    )
    assert contract.grid == ("M ceildiv 128", "N ceildiv 256")
    assert contract.signature == "gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N])"


def test_statements_accesses_and_dense_strides():
    kernels = kernels_of(parse_module(SCALE))
    scale, touch = contract_of(kernels["scale"]), contract_of(kernels["touch"])
    assert scale.args == (
        ArrayArg("x", "f32", ("N",), (1,), "r"),
        ScalarArg("alpha", "f32"),
        ArrayArg("y", "f32", ("N", "4"), (4, 1), "w", noalias=True),
    )
    assert (scale.align, scale.divisors) == ({"x": 32}, {"N": 4})
    assert touch.args[0].access == "rw"


def test_facts_of_aligned_arrays():
    a, b, c = np.zeros((256, 64), BF16), np.zeros((100, 64), BF16), np.zeros((256, 100), np.float32)
    found = facts(gemm_contract(), a, b, c)
    assert found.noalias == ("A", "B", "C")
    assert found.divisors == (("K", 16), ("M", 16), ("N", 4))
    assert found.aligned == (("A", 16), ("B", 16), ("C", 16))


def test_rows_decide_the_alignment():
    base = np.zeros((8, 72), BF16)
    found = facts(gemm_contract(), base[:, :62], base[:, :62].copy(), None)
    assert found.aligned == (("A", 16), ("B", 4))  # rows of 144 and of 124 bytes
    assert facts(gemm_contract(), base[:, :60].copy(), base[:, :60], None).aligned == (("A", 8), ("B", 16))
    # What is no more than an element says nothing.
    found = facts(gemm_contract(), base[:, :63].copy(), base[:, :63], np.zeros((8, 8), np.float32)[:, :8])
    assert found.aligned == (("B", 16), ("C", 16))


@pytest.mark.parametrize(("start", "alignment"), [(1, None), (2, 4), (4, 8), (8, 16)])
def test_where_rows_start_decides_the_alignment(start, alignment):
    base = np.zeros((8, 80), BF16)
    assert dict(facts(gemm_contract(), base[:, start : start + 64], base[:, :64], None).aligned).get("A") == alignment


def test_arrays_that_no_tensor_map_describes():
    base = np.zeros((64, 64), BF16)
    assert facts(gemm_contract(), base[::-1], base[8:], None).aligned == (("A", 8), ("B", 16))
    assert facts(gemm_contract(), base, np.broadcast_to(base[0], (5, 64)), None).aligned == (("A", 16), ("B", 8))
    assert facts(gemm_contract(), base[:, :0], base[:, :0], np.zeros((64, 64), np.float32)).aligned == (("C", 16),)


def test_strides_of_extents_of_one_do_not_count():
    row = np.zeros(80, BF16)[:63].reshape(1, 63)
    assert ("A", 16) in facts(gemm_contract(), row, np.zeros((8, 63), BF16), None).aligned


def test_a_stated_alignment_that_a_call_has_no_use_for():
    kernel = kernels_of(parse_module(SCALE))["scale"]
    contract = contract_of(kernel)
    x, y = np.zeros(0, np.float32), np.zeros((0, 4), np.float32)
    found = facts_of(contract, [view(x), None, view(y)], {"N": 0}, [])
    assert found.aligned == (("x", 1),)
    made = specialize(parse_module(SCALE), "scale", found)
    assert contract_of(kernels_of(made)["scale"]).align == {"x": 1}


def test_overlap_with_a_written_array_takes_noalias_away():
    base = np.zeros((64, 64), np.float32)
    a = base.view(BF16)[:, :64]
    found = facts(gemm_contract(), a, np.zeros((64, 64), BF16), base)
    assert found.noalias == ("B",)
    reads = facts(gemm_contract(), a, a, np.zeros((64, 64), np.float32))
    assert reads.noalias == ("A", "B", "C")


def test_specialize_states_the_facts_and_keeps_what_is_stated():
    module = parse_module(SCALE)
    before = print_module(module)
    made = specialize(module, "scale", Facts((("x", 16), ("y", 16)), ("x",), (("N", 16),)))
    verify_module(made)
    assert list(kernels_of(made)) == ["scale"]
    contract = contract_of(kernels_of(made)["scale"])
    assert contract.align == {"x": 32, "y": 16}
    assert [arg.noalias for arg in contract.args if isinstance(arg, ArrayArg)] == [True, True]
    assert contract.divisors == {"N": 16}
    assert print_module(module) == before
    assert print_module(parse_module(print_module(made))) == print_module(made)


@pytest.mark.parametrize(("stated", "found", "result"), [(8, 16, 16), (32, 16, 32), (16, 8, 8), (4, 8, 8)])
def test_alignments_combine(stated, found, result):
    made = specialize(parse_module(SCALE.replace("align = 32", f"align = {stated}")), "scale", Facts((("x", found),)))
    assert contract_of(kernels_of(made)["scale"]).align == {"x": result}


def test_divisors_combine():
    made = specialize(parse_module(SCALE.replace("divisible 4", "divisible 6")), "scale", Facts(divisors=(("N", 4),)))
    assert contract_of(kernels_of(made)["scale"]).divisors == {"N": 12}


def test_usual_facts_and_their_text():
    assert usual_facts(gemm_contract()) == Facts((("A", 16), ("B", 16), ("C", 16)), ("A", "B", "C"))
    assert str(Facts((("A", 16),), ("B",), (("K", 8),))) == "A aligned to 16, B noalias, K divisible by 8"
    assert str(Facts()) == "nothing assumed"


def test_compile_takes_paths_text_and_modules():
    path = EXAMPLES / "add.mlir"
    text = path.read_text()
    signatures = {compile(source).contract.signature for source in (path, str(path), text, parse_module(text))}
    assert signatures == {"add(x: f32[N], y: f32[N], z: f32[N])"}


def test_compile_takes_what_states_its_module():
    class Function:
        def opened(self, N="N"):
            return Source(lambda: parse_module(SCALE.replace("[N]", f"[{N}]")), lambda: None)

    assert compile(Function(), kernel="touch").name == "touch"
    assert compile(Function(), kernel="scale").contract.args[0].shape == ("N",)
    assert compile(Function(), kernel="scale", N="K").contract.args[0].shape == ("K",)
    with pytest.raises(TeselaError, match="BLOCK: only kernels written in Python have compile-time parameters"):
        compile(SCALE, kernel="touch", BLOCK=3)


@pytest.mark.parametrize(
    ("source", "kernel", "message"),
    [
        ("no/such/file.mlir", None, "error: cannot read 'no/such/file.mlir': No such file or directory"),
        (3, None, "error: an object of type int cannot be compiled\n  hint: pass a path, the text of a module, a module, or a function decorated with @tesela.kernel"),
        ("", None, "error: the text is empty\n"),
        ("examples/add.py", None, "error: 'examples/add.py' is a Python program, not a module's text\n  hint: import its kernel and pass that; "),
        (SCALE, None, "<string>:1:1: error: the module must have one tile.kernel to compile, it has 2: scale, touch"),
        (SCALE, "skale", "<string>:1:1: error: the module has no kernel 'skale'"),
        ("builtin.module {\n}\n", None, "<string>:1:1: error: the module must have one tile.kernel to compile, it has none"),
        ("tile.kernel @k(", None, "<string>:1:16: error: "),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled(source, kernel, message):
    with pytest.raises(TeselaError) as caught:
        compile(source, kernel=kernel)
    assert str(caught.value).startswith(message)


def test_unknown_targets():
    with pytest.raises(TeselaError, match="unknown target 'sm_9a'"):
        compile(EXAMPLES / "add.mlir", "sm_9a")


def test_programs_that_do_not_verify_are_rejected_with_their_lines():
    text = (EXAMPLES / "add.mlir").read_text().replace("tensor<1024xf32>\n  tile.store", "tensor<512xf32>\n  tile.store")
    with pytest.raises(TeselaError, match=r"add\.mlir:\d+:\d+: error"):
        compile(text, filename="add.mlir")


def test_dumps_of_every_level(tmp_path, monkeypatch):
    monkeypatch.setenv("TESELA_DUMP", str(tmp_path / "dump"))
    kernel = compile(EXAMPLES / "add.mlir", "sm_80")
    kernel.variant()
    kernel.variant(facts=Facts())
    levels = [f"{number}-{level}.mlir" for number, level in enumerate(STAGES)]
    endings = (*levels, "ptx", "plan.json", "facts.txt")
    assert {path.name for path in (tmp_path / "dump").iterdir()} == {f"add.sm_80.{n}.{ending}" for n in (0, 1) for ending in endings}
    text = (tmp_path / "dump" / f"add.sm_80.1.{levels[-1]}").read_text()
    assert print_module(parse_module(text)) == text
    assert (tmp_path / "dump" / "add.sm_80.1.facts.txt").read_text() == "nothing assumed\n"
    if find_ptxas():
        variant = kernel.variant()
        cubin = variant.assembled().cubin
        assert (tmp_path / "dump" / "add.sm_80.0.sm_80.cubin").read_bytes() == cubin
        assert "registers" in (tmp_path / "dump" / "add.sm_80.0.sm_80.log").read_text()
        assert (tmp_path / "dump" / "add.sm_80.0.sm_80.sass").exists() == (find_nvdisasm() is not None)
    monkeypatch.setenv("TESELA_DUMP", "/proc/no/such")
    with pytest.raises(TeselaError, match="TESELA_DUMP: cannot write to '/proc/no/such'"):
        compile(EXAMPLES / "add.mlir", "sm_80").variant()
