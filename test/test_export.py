"""Ahead of time: kernels compiled for shapes, exported to a folder and loaded without a compiler, and several compiled at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import cache_programs
import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import ArraySpec, TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan
from tesela.dialects.target import get_target
from tesela.runtime import driver
from tesela.runtime.assemble import Assembled, Assembler, find_ptxas
from tesela.runtime.contract import Contract
from tesela.runtime.export import FORMAT, ExportedVariants, canonical, load, runs_on
from tesela.runtime.launch import Variant
from tesela.runtime.parallel import attempt_all
from tesela.runtime.specialize import Facts

EXAMPLES = Path(__file__).parent.parent / "examples"
F32, N, M = tesela.f32, *tesela.dims("N M")
T = tesela.dtype("T")


@tesela.kernel
def scale(x: tesela.Array[T, M, N], y: tesela.Array[T, M, N], factor: F32, BLOCK: tesela.constexpr = 64):
    i, m = tesela.grid(tesela.ceildiv(N, BLOCK), M)
    y[m, i * BLOCK : i * BLOCK + BLOCK] = (x[m, i * BLOCK : i * BLOCK + BLOCK].to(F32) * factor).to(y.dtype)


def text(call) -> str:
    with pytest.raises(TeselaError) as caught:
        call()
    return str(caught.value)


# For shapes


def test_shapes_stand_for_arrays():
    kernel = tesela.compile(EXAMPLES / "gemm.mlir")
    a, b = np.zeros((64, 128), ml_dtypes.bfloat16), np.zeros((32, 128), ml_dtypes.bfloat16)
    assert kernel.variant(a.shape, b.shape) is kernel.variant(a, b)
    assert kernel.variant(A=a.shape, B=b) is kernel.variant(a, b)
    odd = kernel.variant((64, 127), (32, 127)).facts
    assert odd == Facts((("C", 16),), ("A", "B", "C"), (("M", 16), ("N", 16)))
    assert dict(kernel.variant(ArraySpec((64, 128), align=4), b.shape).facts.aligned)["A"] == 4
    assert dict(kernel.variant(ArraySpec((64, 128), strides=(132, 1)), b.shape).facts.aligned)["A"] == 8


def test_what_is_wrong_with_a_shape():
    kernel = tesela.compile(EXAMPLES / "gemm.mlir")
    assert text(lambda: kernel.variant((64, 128), (32, 129))).startswith("error: gemm: B has K = 129, but A has K = 128")
    assert text(lambda: kernel.variant(ArraySpec((64, 128), "f16"), (32, 128))).startswith("error: gemm: A has element type f16, but bf16 is required")
    assert text(lambda: kernel.variant((64,), (32, 128))).startswith("error: gemm: A has 1 dimension (64,), but 2 [M, K] are required")


def test_scalars_do_not_matter_before_the_call():
    made = scale.warmup(ArraySpec((4, 64), "bf16"), device="sim")
    x = np.ones((4, 64), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(scale(x, factor=3.0, device="sim").astype(np.float32), np.full((4, 64), 3))
    assert scale.compile(T=tesela.bf16).last is made
    assert made.parsed is not None, "what the simulator reads is at hand"
    assert text(lambda: scale.warmup((4, 64))).splitlines()[0].endswith("scale: the type variable T needs an element type, found no value")


def test_warmup_takes_compile_time_parameters_and_pins():
    usual = scale.warmup(ArraySpec((4, 64), "f32"), device="sim")
    pinned = scale.warmup(ArraySpec((4, 64), F32), BLOCK=32, pins={"warps": 1}, device="sim")
    assert (usual.plan.grid, usual.plan.threads) == (("N ceildiv 64", "M"), 128)
    assert (pinned.plan.grid, pinned.plan.threads) == (("N ceildiv 32", "M"), 32)


# Export


@pytest.fixture
def exported(tmp_path):
    kernel = tesela.compile(EXAMPLES / "gemm.mlir", "sm_90a")
    kernel.compile((128, 64), (64, 64))
    kernel.export(tmp_path / "gemm.kernel")
    return tmp_path / "gemm.kernel"


def test_an_exported_kernel_comes_back(exported):
    kernel = tesela.load(exported)
    assert kernel.contract.signature == "gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N])"
    assert kernel.module is None
    rng = np.random.default_rng(0)
    for m, n, k, aligned, divisible in ((128, 64, 64, True, True), (100, 60, 64, True, False), (7, 9, 33, False, False)):
        a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
        wanted = a.astype(np.float32) @ b.astype(np.float32).T
        np.testing.assert_allclose(kernel(a, b, device="sim"), wanted, rtol=1e-3, atol=1e-3)
        facts = kernel.last.facts
        assert (bool(facts.aligned), bool(facts.divisors)) == (aligned, divisible)
    np.testing.assert_array_equal(kernel(a[::-1], a, device="sim"), kernel(a, a, device="sim")[::-1])
    assert kernel.last.assembled().cubin[:4] == b"\x7fELF"
    assert kernel.resources.registers > 0
    assert text(lambda: kernel.ir("tile")) == "error: gemm: it was loaded as PTX text and has no other level"


def test_the_manifest_is_for_other_launchers_too(exported):
    manifest = json.loads((exported / "manifest.json").read_text())
    assert [sorted(variant) for variant in manifest["variants"]] == [["cubins", "facts", "plan", "ptx"]] * 3
    files = {variant["ptx"]["file"] for variant in manifest["variants"]} | {c["file"] for v in manifest["variants"] for c in v["cubins"]}
    assert {path.name for path in exported.iterdir()} == files | {"manifest.json"}
    assert manifest["variants"][0]["plan"]["threads"] == tesela.load(exported).variant((128, 64), (64, 64)).plan.threads


def test_loading_needs_no_compiler(exported, tmp_path):
    body = f"""
kernel = tesela.load({str(exported)!r})
import ml_dtypes
a = np.ones((16, 32), ml_dtypes.bfloat16)
kernel.last.assembled()
result = kernel(a, a, device="sim").tolist()[0][0]
missing = [name for name in sys.modules if name.startswith(("tesela.passes", "tesela.lowering", "tesela.dialects.tile"))]
assert not missing, missing
"""
    found = cache_programs.run(tmp_path, body)
    assert (found["result"], found["xdsl"], found["compiled"], found["assembled"]) == (32.0, False, 0, 0)


def test_exporting_again_replaces_what_was_there(exported):
    before = len(list(exported.iterdir()))
    tesela.compile(EXAMPLES / "gemm.mlir", "sm_90a").export(exported)
    assert len(list(exported.iterdir())) == before - 2


def test_more_architectures(tmp_path):
    kernel = tesela.compile(EXAMPLES / "add.mlir", "sm_80")
    kernel.export(tmp_path / "add", archs=("sm_89", "sm_90"))
    cubins = {path.name for path in (tmp_path / "add").glob("*.cubin")}
    assert cubins == {f"add.{n}.{arch}.cubin" for n in (0, 1) for arch in ("sm_80", "sm_89", "sm_90")}


def test_a_kernel_function_with_its_compile_time_values(tmp_path):
    scale.export(tmp_path / "scale", "sm_80", T=tesela.f32, BLOCK=32)
    loaded = tesela.load_kernel(tmp_path / "scale")
    x = np.ones((3, 70), np.float32)
    np.testing.assert_array_equal(loaded(x, factor=2.0, device="sim"), 2 * x)
    assert {variant.plan.grid for variant in loaded._compiler.variants} == {("N ceildiv 32", "M")}
    assert scale.explain("sm_80", T=tesela.f32).startswith("scale for sm_80: 4 warps")


def test_folders_that_hold_no_kernel(exported, tmp_path):
    missing = tmp_path / "no"
    assert text(lambda: load(missing)) == (
        f"error: cannot read '{missing / 'manifest.json'}': No such file or directory\n  hint: name a folder that Kernel.export wrote"
    )
    manifest = exported / "manifest.json"
    good = manifest.read_text()
    for wrong in ("", "[]", "{}"):
        manifest.write_text(wrong)
        assert text(lambda: load(exported)) == f"error: '{manifest}' is no manifest of a kernel\n  hint: export the kernel again"
    nothing_given = json.loads(good)
    nothing_given["variants"][0]["plan"]["args"] = []
    for wrong in (good.replace('"args"', '"arguments"'), good.replace('"plan"', '"plans"'), json.dumps(nothing_given)):
        assert wrong != good
        manifest.write_text(wrong)
        assert text(lambda: load(exported)) == f"error: '{manifest}' is damaged: its SHA-256 is not what it states\n  hint: export the kernel again"
    manifest.write_text(good.replace(f'"format": {FORMAT}', '"format": 0'))
    assert text(lambda: load(exported)) == f"error: '{exported}' has format 0, but {FORMAT} is required\n  hint: export the kernel again"
    rewritten = json.loads(good.replace('"file": "gemm.0.ptx"', '"file": "../gemm.0.ptx"'))
    del rewritten["sha256"]
    manifest.write_text(json.dumps(rewritten | {"sha256": hashlib.sha256(canonical(rewritten)).hexdigest()}))
    assert "names the file '../gemm.0.ptx', which is not in the folder" in text(lambda: load(exported))
    manifest.write_text(good)
    (exported / "gemm.0.ptx").write_text("ret;")
    assert text(lambda: load(exported)) == (
        f"error: '{exported / 'gemm.0.ptx'}' is damaged: its SHA-256 is not what the manifest states\n  hint: export the kernel again"
    )
    kernel = tesela.compile(EXAMPLES / "add.mlir")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert text(lambda: kernel.export(tmp_path / "full")) == (
        f"error: '{tmp_path / 'full'}' is no exported kernel, and not empty\n  hint: name another folder"
    )
    assert "cannot write to" in text(lambda: kernel.export(tmp_path / "full" / "file" / "x"))


# Which variant


PLAN = LaunchPlan("k", "sm_80", (ArrayArg("x", "f32", ("N",), (None,), "r"),), ("N",), ("N",), (), 32, 0)


def variant(target="sm_80", **facts) -> Variant:
    plan = LaunchPlan(**{**{f: getattr(PLAN, f) for f in PLAN.__slots__}, "target": target})
    return Variant(Facts(**{name: tuple(value.items()) if isinstance(value, dict) else value for name, value in facts.items()}), plan, "")


def test_the_strongest_variant_that_holds():
    general, aligned = variant(), variant(aligned={"x": 16})
    divisible, hopper = variant(aligned={"x": 16}, divisors={"N": 16}), variant("sm_90a")
    choose = ExportedVariants(Contract.of_plan(PLAN), [general, divisible, aligned, hopper])
    sm_80, sm_90a = get_target("sm_80"), get_target("sm_90a")
    assert choose(Facts(), sm_80) is general
    assert choose(Facts((("x", 8),)), sm_80) is general
    assert choose(Facts((("x", 16),)), sm_80) is aligned
    assert choose(Facts((("x", 16),), (), (("N", 4),)), sm_80) is aligned
    assert choose(Facts((("x", 16),), (), (("N", 16),)), sm_80) is divisible
    assert choose(Facts((("x", 16),)), sm_90a) is hopper
    lone = ExportedVariants(Contract.of_plan(PLAN), [hopper])
    assert text(lambda: lone(Facts(), sm_80)) == (
        "error: k: it was exported for sm_90a, and no variant runs on sm_80 with nothing assumed\n  hint: export more variants"
    )


def test_what_runs_where():
    assert [runs_on("sm_80", arch) for arch in ("sm_80", "sm_89", "sm_90a", "sm_75")] == [True, True, True, False]
    assert [runs_on("sm_90a", arch) for arch in ("sm_90a", "sm_90", "sm_100a")] == [True, False, False]


def test_machine_code_at_hand_is_taken(monkeypatch):
    """A cubin for an earlier GPU of the same generation is as good as one for this; others are not."""
    loaded = []
    monkeypatch.setattr(driver, "load_module", lambda image, is_cubin: (loaded.append(image), "")[0:2])
    monkeypatch.setattr(driver, "get_function", lambda module, name, nbytes: object())
    monkeypatch.setattr("tesela.runtime.launch.assemble", lambda ptx, arch, **options: Assembled(arch.encode(), True, Assembler("wheel")))
    for capability, image in (((8, 9), b"86"), ((8, 6), b"86"), ((8, 0), b"sm_80"), ((9, 0), b"sm_90"), ((12, 0), b"sm_120")):
        made = variant()
        made.add_code("sm_86", Assembled(b"86", True, Assembler("wheel")))
        made.function(driver.Device(0, "GPU", capability, None))
        assert loaded.pop() == image


# Several at a time


def test_several_kernels_at_a_time(caplog):
    caplog.set_level(logging.INFO, "tesela")
    add = tesela.compile(EXAMPLES / "add.mlir")
    gemm = tesela.compile(EXAMPLES / "gemm.mlir")
    jobs = [lambda: add.compile((64,), (64,)), lambda: gemm.compile((64, 64), (64, 64))] * 3
    made = tesela.compile_all(jobs, threads=4)
    assert [variant.plan.name for variant in made] == ["add", "gemm"] * 3
    assert made[0] is made[2] and made[1] is made[3]
    assert sum(record.getMessage().startswith("compiled") for record in caplog.records) == 2
    assert tesela.compile_all([]) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_compile_ahead(caplog, tmp_path, monkeypatch):
    """They leave in the cache what this process then finds; a job that is wrong is wrong here."""
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.DEBUG, "tesela")
    kernels = [tesela.compile(EXAMPLES / f"{name}.mlir", "sm_90a") for name in ("add", "softmax", "gemm")]
    made = tesela.compile_all([kernel.compile if find_ptxas() else kernel.variant for kernel in kernels], processes=2)
    assert [variant.plan.name for variant in made] == ["add", "softmax", "gemm"]
    said = [record.getMessage().split()[0] for record in caplog.records if "sm_90a" in record.getMessage()]
    assert said.count("compiled") == said.count("assembled") == 0
    assert sum("comes from the cache" in record.getMessage() for record in caplog.records) == 3

    def fail():
        raise TeselaError("this is wrong")

    assert text(lambda: tesela.compile_all([kernels[0].variant, fail], processes=2)) == "error: this is wrong"


def test_what_a_forked_process_knows_of_the_gpu(monkeypatch):
    gpu = driver.Device(0, "GPU", (9, 0), None)
    monkeypatch.setattr(driver, "_left", None)
    driver.leave(gpu, 132)
    assert driver.current_device() is gpu and driver.multiprocessors(gpu) == 132
    with driver.activated(gpu), pytest.raises(TeselaError, match="forked to compile has no GPU"):
        driver.synchronize()


def test_all_errors_of_several_kernels():
    def fail(name):
        raise TeselaError(f"{name} is wrong")

    jobs = [lambda: fail("first"), lambda: 7, lambda: fail("second")]
    assert text(lambda: tesela.compile_all(jobs)) == "error: first is wrong\nerror: second is wrong"
    outcomes = attempt_all(jobs)
    assert outcomes[1] == 7 and str(outcomes[2]) == "error: second is wrong"


@pytest.mark.parametrize(
    ("archs", "said"),
    [
        ("sm_90", "archs is a text, 'sm_90', but several architectures are required\n  hint: write archs=('sm_90',)"),
        (("foo",), "'foo' is no architecture"),
        ((90,), "90 is no architecture"),
        (("sm_75",), "nothing that is exported runs on sm_75: it is for sm_80\n  hint: compile for an earlier target"),
    ],
)
def test_architectures_that_cannot_be_had(tmp_path, archs, said):
    kernel = tesela.compile(EXAMPLES / "add.mlir", "sm_80")
    kernel.warmup((64,), (64,), (64,), device="sim")
    assert said in text(lambda: kernel.export(tmp_path / "k", archs=archs))
    assert not (tmp_path / "k").exists()
