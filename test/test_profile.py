"""tesela.profile: launches in the simulator and over a stand-in for the driver, what they amount to, and the roofline."""

from __future__ import annotations

import contextlib
import threading
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from fake_launcher import fake_launcher

import tesela
from tesela import TeselaError
from tesela.dialects.launch_plan import ArrayArg, ScalarArg
from tesela.runtime import driver, launch, profile
from tesela.runtime.arrays import view
from tesela.runtime.launch import Call, Variant, traffic
from tesela.runtime.profile import Launched, Profile, roofline
from tesela.runtime.specialize import Facts

EXAMPLES = Path(__file__).parent.parent / "examples"
F32, M, N, K = tesela.f32, *tesela.dims("M N K")


@tesela.kernel(flops="2 * M * N * K", nbytes="4 * M * N")
def product(a: tesela.Array[tesela.bf16, M, K], b: tesela.Array[tesela.bf16, K, N], c: tesela.Array[F32, M, N]):
    i, j = tesela.grid(tesela.ceildiv(M, 16), tesela.ceildiv(N, 16))
    m, n = i * 16, j * 16
    acc = tesela.zeros((16, 16), F32)
    for k in tesela.range(0, K, 16):
        acc += a[m : m + 16, k : k + 16] @ b[k : k + 16, n : n + 16]
    c[m : m + 16, n : n + 16] = acc


def test_launches_in_the_simulator():
    add = tesela.compile(EXAMPLES / "add.mlir")
    x = np.ones(64, np.float32)
    add(x, x, device="sim")
    with tesela.profile() as p:
        for _ in range(3):
            add(x, x, device="sim")
        product(np.ones((5, 8), ml_dtypes.bfloat16), np.ones((8, 9), ml_dtypes.bfloat16), device="sim")
    add(x, x, device="sim")
    assert [one.label for one in p.launches] == ["add N=64"] * 3 + ["product M=5 K=8 N=9"]
    counts = {one.instructions for one in p.launches[:3]}
    assert len(counts) == 1 and min(counts) >= 64
    assert [(one.flops, one.nbytes) for one in p.launches[2:]] == [(None, 3 * 64 * 4), (2 * 5 * 8 * 9, 4 * 5 * 9)]
    head, first, second = str(p).splitlines()
    assert head.split() == ["kernel", "launches", "total", "median", "TFLOP/s", "GB/s", "of", "roofline"]
    each = counts.pop()
    assert first.split() == ["add", "N=64", "3", str(3 * each), "instr.", str(each), "instr.", "-", "-", "-"]
    assert second.startswith("product M=5 K=8 N=9") and len(first) == len(second)


def test_profiles_nest_and_see_all_threads():
    add = tesela.compile(EXAMPLES / "add.mlir")
    x = np.ones(64, np.float32)
    with tesela.profile() as outer:
        add(x, x, device="sim")
        with tesela.profile() as inner:
            thread = threading.Thread(target=lambda: add(x, x, device="sim"))
            thread.start()
            thread.join()
    assert (len(outer.launches), len(inner.launches)) == (2, 1)
    assert launch.OBSERVERS == []


@pytest.mark.parametrize(
    ("array", "access", "nbytes"),
    [
        (np.zeros((4, 8), np.float32), "r", 128),
        (np.zeros((4, 8), np.float32), "rw", 256),
        (np.zeros((8, 8), ml_dtypes.bfloat16)[::2, ::-1], "w", 64),
        (np.broadcast_to(np.float32(1), (4, 8)), "r", 4),
        (np.broadcast_to(np.zeros((1, 8), np.float32), (0, 8)), "r", 0),
        (np.zeros((0, 8), np.float32), "r", 0),
    ],
)
def test_bytes_of_arguments(array, access, nbytes):
    args = [ArrayArg("x", "f32", ("M", "N"), (None, None), access), ScalarArg("alpha", "f32")]
    assert traffic(args, [view(array), None]) == nbytes


@pytest.fixture
def gpu(monkeypatch):
    """A driver whose launches take 2 ms, on a GPU of 1 TFLOP/s and 100 GB/s."""
    state = types.SimpleNamespace(now=0.0, closed=0)

    class Event:
        def record(self, stream):
            self.time = state.now

        def milliseconds_since(self, start):
            return self.time - start.time

        def close(self):
            state.closed += 1

    def launched(launcher, stream, params):
        state.now += 2.0

    monkeypatch.setattr(driver, "Event", Event)
    monkeypatch.setattr(driver, "Launcher", fake_launcher(launched))
    monkeypatch.setattr(driver, "current_device", lambda: driver.Device(3, "GPU", (9, 0), None))
    monkeypatch.setattr(driver, "device", lambda ordinal: driver.Device(ordinal, "GPU", (9, 0), None))
    monkeypatch.setattr(driver, "activated", lambda gpu: contextlib.nullcontext())
    monkeypatch.setattr(profile, "peaks", lambda ordinal: (1e12, 100e9))
    return state


def test_launches_on_a_gpu(gpu):
    plan = tesela.compile(EXAMPLES / "add.mlir", "sm_80").plan()
    views = [view(np.zeros(1000, np.float32))] * 3
    bound_by_memory = Call(Variant(Facts(), plan, ""), views, {"N": 1000}, (1, 1, 1), 1_000_000, 100_000_000)
    bound_by_compute = Call(Variant(Facts(), plan, ""), views, {"N": 1}, (1, 1, 1), 1_000_000_000)
    with tesela.profile() as p:
        for call in (bound_by_memory, bound_by_memory, bound_by_compute):
            call.on_gpu(None, [0, 0, 0], 5)
    assert [one.milliseconds for one in p.launches] == [2.0] * 3 and gpu.closed == 6
    assert {one.device for one in p.launches} == {3}
    lines = [line.split() for line in str(p).splitlines()[1:]]
    assert lines[0] == ["add", "N=1000", "2", "4.000", "ms", "2.000", "ms", "0.0", "50.0", "50", "%"]
    assert lines[1] == ["add", "N=1", "1", "2.000", "ms", "2.000", "ms", "0.5", "0.0", "100", "%"], "f32 has half the peak of 16 bits"
    bound_by_memory.on_gpu(None, [0, 0, 0], 5)
    assert gpu.closed == 6, "no events outside of a profile"


def test_the_roofline_knows_what_is_multiplied():
    """Eight bits are twice as fast as sixteen; the masks and indices beside them do not count."""
    def args(*dtypes):
        return [*[ArrayArg(f"a{i}", dtype, ("N",), (1,), "r") for i, dtype in enumerate(dtypes)], ArrayArg("c", "f16", ("N",), (1,), "w"), ScalarArg("s", "i8")]

    assert [profile.operand_bytes(args(*dtypes)) for dtypes in (("bf16", "bf16"), ("f32", "i8"), ("i8", "i32"), ("f64",), ())] == [2, 4, 1, 8, 2]
    times = [roofline(Launched("k", {}, 0, 4_000_000, 0, operands=nbytes), 1e12, 1e12) for nbytes in (1, 2, 4)]
    assert times == pytest.approx([0.002, 0.004, 0.008])


def test_the_roofline():
    one = Launched("k", {}, 0, 4_000_000, 1_000_000)
    assert roofline(one, 1e12, 1e12) == pytest.approx(0.004)
    assert roofline(one, None, 1e12) == pytest.approx(0.001)
    assert roofline(Launched("k", {}, 0, None, 1000), 1e12, 1e9) == pytest.approx(0.001)
    assert str(Profile()).split() == ["kernel", "launches", "total", "median", "TFLOP/s", "GB/s", "of", "roofline"]


def test_what_a_kernel_states_is_checked_where_it_stands():
    text = (EXAMPLES / "add.mlir").read_text()
    wrong = text.replace("grid(%block = N ceildiv 1024) {", 'grid(%block = N ceildiv 1024) attributes {flops = "M * 2"} {')
    assert wrong != text
    with pytest.raises(TeselaError, match=r'flops: there is no dimension M; the kernel\'s: N\n(.*\n)*  hint: an expression of the dimensions is required, flops = "2 \* M \* N"'):
        tesela.compile(wrong)
    with pytest.raises(TeselaError, match="nbytes: cannot read"):
        tesela.compile(text.replace("grid(%block = N ceildiv 1024) {", 'grid(%block = N ceildiv 1024) attributes {nbytes = "N ^ 2"} {'))


def test_what_a_kernel_states_is_kept(tmp_path):
    kernel = product.compile()
    kernel.export(tmp_path / "product")
    assert tesela.load(tmp_path / "product").contract == kernel.contract
    assert kernel.contract.amounts({"M": 2, "N": 3, "K": 4}) == (48, 24)
