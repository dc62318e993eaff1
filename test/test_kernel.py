"""runtime/kernel.py and runtime/launch.py: calls, variants, packed parameters, staging; in the simulator and over a stand-in for the driver."""

from __future__ import annotations

import ctypes
import struct
import threading
import types

import ml_dtypes
import numpy as np
import pytest
from fake_launcher import fake_launcher

from tesela.dialects.diagnostics import Diagnostic, TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan, Param, Requirement, ScalarArg, TensorMap, TensorMapSpec
from tesela.dialects.target import get_target
from tesela.runtime import driver, launch
from tesela.runtime.arrays import view
from tesela.runtime.assemble import Assembled, Assembler
from tesela.runtime.contract import Contract
from tesela.runtime.kernel import Kernel
from tesela.runtime.launch import Call, Staging, Variant, pack_scalar
from tesela.runtime.specialize import Facts

SCALE_PTX = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry scale(.param .b64 x, .param .b64 y, .param .b64 n, .param .b64 sx, .param .b64 sy, .param .f32 alpha)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<8>; .reg .b32 %f<4>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
  mad.lo.s32 %r3, %r2, 32, %r1;
  cvt.s64.s32 %d1, %r3;
  ld.param.b64 %d2, [n];
  setp.ge.s64 %p, %d1, %d2;
  @%p bra $DONE;
  ld.param.b64 %d3, [x]; ld.param.b64 %d4, [y]; ld.param.b64 %d5, [sx]; ld.param.b64 %d6, [sy]; ld.param.b32 %f1, [alpha];
  mul.lo.s64 %d5, %d5, %d1; shl.b64 %d5, %d5, 2; add.s64 %d3, %d3, %d5;
  mul.lo.s64 %d6, %d6, %d1; shl.b64 %d6, %d6, 2; add.s64 %d4, %d4, %d6;
  ld.global.b32 %f2, [%d3];
  mul.rn.f32 %f3, %f2, %f1;
  st.global.b32 [%d4], %f3;
$DONE:
  ret;
}
"""
SCALE = LaunchPlan(
    "scale",
    "sm_80",
    (ArrayArg("x", "f32", ("N",), (None,), "r"), ArrayArg("y", "f32", ("N",), (None,), "w"), ScalarArg("alpha", "f32")),
    ("N",),
    ("N ceildiv 32",),
    (
        Param("pointer", "x", "x"),
        Param("pointer", "y", "y"),
        Param("dim", "n", "N"),
        Param("stride", "sx", "x", 0),
        Param("stride", "sy", "y", 0),
        Param("scalar", "alpha", "alpha"),
    ),
    32,
    0,
)


class Recorder:
    """A compiler that makes the same code under all facts, and remembers which were asked for."""

    def __init__(self, plan: LaunchPlan, ptx: str):
        self.plan, self.ptx = plan, ptx
        self.asked: list[Facts] = []

    def __call__(self, facts, target):
        self.asked.append(facts)
        return Variant(facts, self.plan, self.ptx)


@pytest.fixture
def scale():
    compiler = Recorder(SCALE, SCALE_PTX)
    return Kernel(Contract.of_plan(SCALE), compiler, get_target("sm_80")), compiler


def text(call) -> str:
    with pytest.raises(TeselaError) as caught:
        call()
    return str(caught.value)


def test_an_output_that_was_left_out_is_allocated_and_returned(scale):
    kernel, _ = scale
    x = np.arange(100, dtype=np.float32)
    y = kernel(x, alpha=0.5, device="sim")
    np.testing.assert_array_equal(y, x / 2)
    assert kernel(x, y, 3.0, device="sim") is None
    np.testing.assert_array_equal(y, x * 3)


def test_views_are_read_and_written_in_place(scale):
    kernel, _ = scale
    base = np.arange(300, dtype=np.float32)
    out = np.zeros((40, 2), np.float32)
    kernel(base[299:99:-5], out[:, 1], 2.0, device="sim")
    np.testing.assert_array_equal(out[:, 1], 2 * base[299:99:-5])
    assert not out[:, 0].any()
    np.testing.assert_array_equal(base, np.arange(300))
    np.testing.assert_array_equal(kernel(np.broadcast_to(np.float32(3), (50,)), alpha=2, device="sim"), np.full(50, 6))


def test_one_variant_serves_all_arrays_of_its_facts(scale):
    kernel, compiler = scale
    for n in (64, 64, 128, 96):
        kernel(np.ones(n, np.float32), alpha=1, device="sim")
    assert len(compiler.asked) == 1
    # Where the contract leaves the stride open, a stride of one element of 4 bytes is no multiple of 8 or 16.
    assert compiler.asked[0] == Facts((), ("x", "y"), (("N", 16),))
    kernel(np.ones(65, np.float32), alpha=1, device="sim")
    kernel(np.ones((64, 4), np.float32)[:, 0], alpha=1, device="sim")
    assert compiler.asked[1:] == [Facts((), ("x", "y")), Facts((("x", 16),), ("x", "y"), (("N", 16),))]


def test_an_array_passed_twice_takes_the_variant_without_noalias(scale):
    kernel, compiler = scale
    x = np.arange(64, dtype=np.float32)
    kernel(x, x, 2.0, device="sim")
    np.testing.assert_array_equal(x, 2 * np.arange(64))
    assert compiler.asked[0].noalias == ()


def test_no_blocks_no_launch_and_outputs_of_zeros():
    plan = LaunchPlan(
        "fill", "sm_80", (ArrayArg("x", "f32", ("K",), (None,), "r"), ArrayArg("y", "f32", ("4",), (None,), "w")), (), ("K",), (), 32, 0
    )
    compiler = Recorder(plan, "no PTX at all")
    kernel = Kernel(Contract.of_plan(plan), compiler, get_target("sm_80"))
    np.testing.assert_array_equal(kernel(np.zeros(0, np.float32), device="sim"), np.zeros(4))
    assert compiler.asked == []


def test_wrong_calls_name_the_kernel_and_the_argument(scale):
    kernel, compiler = scale
    x = np.zeros(8, np.float32)
    assert text(lambda: kernel([1], alpha=1)).startswith("error: scale: x is a list, but an array is required")
    assert text(lambda: kernel(x, np.zeros(9, np.float32), 1.0, device="sim")) == (
        "error: scale: y has N = 9, but x has N = 8\n  hint: x[N] is (8,); y[N] is (9,)"
    )
    assert text(lambda: kernel(x, alpha=1, device="tpu")) == "error: scale: unknown device 'tpu'\n  hint: it is one of auto, cuda, sim"
    assert compiler.asked == []


def test_the_environment_chooses_the_device(scale, monkeypatch):
    kernel, _ = scale
    monkeypatch.setenv("TESELA_DEVICE", "gpu")
    assert "unknown device 'gpu'" in text(lambda: kernel(np.zeros(8, np.float32), alpha=1))


def test_cuda_without_a_gpu_says_why(scale, monkeypatch):
    kernel, _ = scale
    monkeypatch.setattr(driver, "_start", lambda: (None, "the NVIDIA driver finds no GPU"))
    assert text(lambda: kernel(np.zeros(8, np.float32), alpha=1, device="cuda")) == (
        "error: no GPU can be used: the NVIDIA driver finds no GPU\n"
        "  hint: run in the simulator with device='sim' (or TESELA_DEVICE=sim)"
    )
    np.testing.assert_array_equal(kernel(np.ones(8, np.float32), alpha=2), np.full(8, 2))


class OnGPU:
    """A GPU array by its interface alone."""

    def __init__(self, address, n, stream=None):
        self.__cuda_array_interface__ = {
            "shape": (n,), "typestr": "<f4", "data": (address, False), "strides": None, "version": 3, "stream": stream,
        }  # fmt: skip


def test_arrays_in_different_places(scale, monkeypatch):
    kernel, _ = scale
    monkeypatch.setattr(driver, "ordinal_of", lambda address: address >> 20)
    near, far = OnGPU(1 << 20, 8), OnGPU(2 << 20, 8)
    assert text(lambda: kernel(near, far, 1.0)) == "error: scale: y is in GPU 2, but x is in GPU 1\n  hint: move all arrays to one place"
    assert "y is in GPU 2, but x is in host memory" in text(lambda: kernel(np.zeros(8, np.float32), far, 1.0))
    assert text(lambda: kernel(near, near, 1.0, device="sim")) == (
        "error: scale: x is in GPU 1, but the simulator takes arrays in host memory\n  hint: copy the arrays to the host"
    )


def test_a_variant_that_cannot_address_an_array(scale):
    plan = LaunchPlan(**{**{f: getattr(SCALE, f) for f in SCALE.__slots__}, "requirements": (Requirement("max_dim", "N", 100),)})
    kernel = Kernel(Contract.of_plan(plan), Recorder(plan, SCALE_PTX), get_target("sm_80"))
    kernel(np.zeros(100, np.float32), alpha=1, device="sim")
    assert text(lambda: kernel(np.zeros(101, np.float32), alpha=1, device="sim")) == (
        "error: scale: N = 101, but this variant takes at most 100"
    )


def test_variants_ahead_of_time(scale):
    kernel, compiler = scale
    assert kernel.plan() == SCALE and kernel.ptx == SCALE_PTX and kernel.notes == ()
    assert compiler.asked == [Facts((("x", 16), ("y", 16)), ("x", "y"))]
    kernel.variant(np.zeros(64, np.float32), alpha=1.0)
    kernel(np.zeros(64, np.float32), alpha=1.0, device="sim")
    assert len(compiler.asked) == 2
    assert text(lambda: kernel.ir("tile")) == "error: scale: it was loaded as PTX text and has no other level"


def test_threads_compile_a_variant_once(scale):
    kernel, compiler = scale
    results: dict[int, np.ndarray] = {}
    start = threading.Barrier(8)

    def call(i: int) -> None:
        start.wait()
        results[i] = kernel(np.full(64, i, np.float32), alpha=2.0, device="sim")

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[i] == 2 * i).all() for i in range(8))
    assert len(compiler.asked) == 1


@pytest.mark.parametrize(
    ("dtype", "value", "data"),
    [
        ("f32", 1.1, struct.pack("<f", 1.1)),
        ("f64", 1.1, struct.pack("<d", 1.1)),
        ("f16", 1.1, struct.pack("<e", 1.1)),
        ("bf16", 1.1, np.array(1.1, ml_dtypes.bfloat16).tobytes()),
        ("bf16", 1.00390625 + 2**-40, b"\x81\x3f"),  # just above a tie: rounded once, up
        ("f32", 1e39, struct.pack("<f", float("inf"))),
        ("i32", -5, struct.pack("<i", -5)),
        ("i64", -5, struct.pack("<q", -5)),
        ("index", 2**40, struct.pack("<q", 2**40)),
        ("i16", -5, struct.pack("<h", -5)),
        ("i8", -5, struct.pack("<b", -5)),
        ("i1", 1, b"\1"),
    ],
)
def test_scalars_are_packed_by_their_type(dtype, value, data):
    buffer = bytearray(16)
    pack_scalar(buffer, 4, dtype, value)
    assert bytes(buffer) == b"\0" * 4 + data + b"\0" * (12 - len(data))


TMA = LaunchPlan(
    "tma",
    "sm_90a",
    (ArrayArg("A", "bf16", ("M", "K"), (None, 1), "r"), ScalarArg("flag", "i1")),
    ("M", "K"),
    ("M",),
    (
        Param("scalar", "flag", "flag"),
        Param("tensormap", "tm", "A", tensormap=TensorMapSpec("A", (1, 0), (64, 128), 128)),
        Param("dim", "k", "K"),
        Param("pointer", "a", "A"),
    ),
    128,
    1024,
)


def prepared(array: np.ndarray) -> Call:
    dims = Contract.of_plan(TMA).solve([view(array), None])
    return Call(Variant(Facts(), TMA, ""), [view(array), None], dims, (array.shape[0], 1, 1))


def test_parameters_for_the_simulator():
    call = prepared(np.zeros((200, 96), ml_dtypes.bfloat16)[:, :70])
    tensor_map = TensorMap("bf16", 4096, (70, 200), (192,), (64, 128), (1, 1), 128)
    assert call.simulator_params([4096, 1]) == [1, tensor_map, 70, 4096]


@pytest.fixture
def fake_gpu(monkeypatch):
    """Device memory that is host memory, and launches that are recorded: (grid, threads, shared bytes, stream, parameters)."""
    gpu = types.SimpleNamespace(memory={}, launches=[], encoded=[])

    def allocate(nbytes):
        storage = ctypes.create_string_buffer(nbytes + 256)
        address = -(-ctypes.addressof(storage) // 256) * 256
        gpu.memory[address] = storage
        return address

    def launched(launcher, stream, params):
        function, grid, threads, shared_bytes, *_ = launcher.fixed
        gpu.launches.append((grid, threads, shared_bytes, stream, function(params)))

    def encode(tensor_map):
        gpu.encoded.append(tensor_map)
        return bytes([len(gpu.encoded)]) * 128

    monkeypatch.setattr(driver, "allocate", allocate)
    monkeypatch.setattr(driver, "free", lambda address: gpu.memory.pop(address) and None)
    monkeypatch.setattr(driver, "copy_to_device", lambda to, source, n: ctypes.memmove(to, source, n) and None)
    monkeypatch.setattr(driver, "copy_to_host", lambda to, source, n: ctypes.memmove(to, source, n) and None)
    monkeypatch.setattr(driver, "synchronize", lambda stream=None: None)
    monkeypatch.setattr(driver, "Launcher", fake_launcher(launched))
    monkeypatch.setattr(driver, "encode_tensor_map", encode)
    return gpu


def read_params(sizes):
    """A kernel function that returns the bytes of its parameters, each read through its pointer."""

    def function(params):
        pointers = (ctypes.c_void_p * len(sizes)).from_address(params)
        return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes)], list(pointers)

    return function


def test_parameters_for_a_gpu(fake_gpu):
    call = prepared(np.zeros((200, 96), ml_dtypes.bfloat16))
    function = read_params((1, 128, 8, 8))
    call.on_gpu(function, [4096, 1], 7)
    call.on_gpu(function, [4096, 0], 7)
    call.on_gpu(function, [8192, 1], 7)
    first, second, third = fake_gpu.launches
    assert first[:4] == ((200, 1, 1), 128, 1024, 7)
    assert first[4][0] == [b"\1", b"\1" * 128, struct.pack("<q", 96), struct.pack("<q", 4096)]
    assert second[4][0] == [b"\0", b"\1" * 128, struct.pack("<q", 96), struct.pack("<q", 4096)]
    assert third[4][0] == [b"\1", b"\2" * 128, struct.pack("<q", 96), struct.pack("<q", 8192)]
    assert first[4][1][1] % 64 == 0, "a tensor map must be aligned to 64 bytes"
    assert [tensor_map.address for tensor_map in fake_gpu.encoded] == [4096, 8192]


ARGS = (ArrayArg("x", "f32", ("N",), (None,), "r"), ArrayArg("y", "f32", ("N",), (None,), "w"), ScalarArg("alpha", "f32"))


def test_staging_copies_spans_there_and_back(fake_gpu):
    x = np.arange(20, dtype=np.float32)
    y = np.zeros(40, np.float32)
    views = [view(x[::-1]), view(y[1::2]), None]
    staging = Staging(ARGS, views)
    on_device = np.ctypeslib.as_array((ctypes.c_float * 20).from_address(staging.addresses[0] - 19 * 4))
    np.testing.assert_array_equal(on_device, x)
    assert staging.addresses[1] % 256 == 4, "y[1::2] starts 4 bytes into y"
    ctypes.c_float.from_address(staging.addresses[1] + 8).value = 5.0
    ctypes.c_float.from_address(staging.addresses[0]).value = 7.0
    staging.copy_back()
    staging.close()
    assert y[3] == 5.0 and np.count_nonzero(y) == 1
    np.testing.assert_array_equal(x, np.arange(20))
    assert fake_gpu.memory == {}


def test_overlapping_arrays_are_staged_as_one(fake_gpu):
    x = np.arange(32, dtype=np.float32)
    staging = Staging(ARGS, [view(x[:20]), view(x[10:30]), None])
    assert staging.addresses[1] - staging.addresses[0] == 40
    assert len(fake_gpu.memory) == 1
    ctypes.c_float.from_address(staging.addresses[1]).value = -1.0
    staging.copy_back()
    assert x[10] == -1.0 and x[30] == 30.0
    staging.close()


def test_empty_arrays_are_not_staged(fake_gpu):
    empty = view(np.zeros(0, np.float32))
    staging = Staging(ARGS, [empty, empty, None])
    assert fake_gpu.memory == {} and staging.addresses == [0, 0, None]


def test_code_for_another_architecture_is_refused(scale):
    plan = LaunchPlan(**{**{f: getattr(SCALE, f) for f in SCALE.__slots__}, "target": "sm_90a"})
    ampere = driver.Device(0, "NVIDIA A100", (8, 0), None)
    assert text(lambda: Variant(Facts(), plan, "").function(ampere)) == (
        "error: scale is compiled for sm_90a, but NVIDIA A100 is sm_80\n  hint: compile for sm_80, or leave the target out"
    )


def test_targets_of_devices():
    def device(*capability):
        return driver.Device(0, "GPU", capability, None)

    assert [device(*c).target for c in ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))] == [
        "sm_80", "sm_80", "sm_80", "sm_90a", "sm_80", "sm_80",
    ]  # fmt: skip
    assert [device(*c).arch for c in ((8, 9), (9, 0), (10, 0))] == ["sm_89", "sm_90a", "sm_100"]
    assert text(lambda: device(7, 5).target) == (
        "error: GPU has compute capability 7.5, but 8.0 or newer is required\n  hint: device='sim' runs without a GPU"
    )


def test_what_the_assembler_warns_of_is_logged_once(caplog, monkeypatch):
    warning = Diagnostic("warning", "ptxas C7510: serialised")
    monkeypatch.setattr(launch, "assemble", lambda *args, **kwargs: Assembled(b"", True, Assembler("path"), "", [warning]))
    monkeypatch.setattr(driver, "load_module", lambda image, is_cubin: (None, ""))
    monkeypatch.setattr(driver, "get_function", lambda module, name, shared_bytes: name)
    variant = Variant(Facts(), SCALE, SCALE_PTX)
    device = driver.Device(0, "GPU", (8, 0), None)
    assert variant.notes == SCALE.notes
    for _ in range(2):
        assert variant.function(device) == variant.function(device) == "scale"
        variant.resources()
    assert [record.getMessage() for record in caplog.records] == ["warning: ptxas C7510: serialised"]
    assert variant.notes == (*SCALE.notes, "ptxas C7510: serialised")
