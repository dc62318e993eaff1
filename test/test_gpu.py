"""The driver path on a GPU: modules, launches, tensor maps, streams, graphs, host arrays, and arrays of torch and CuPy."""

from __future__ import annotations

import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import TensorMap
from tesela.runtime import driver
from tesela.runtime.arrays import DeviceArray, view
from tesela.runtime.assemble import Assembler, assemble
from tesela.runtime.compile import compile

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parent.parent / "examples"

FILL_PTX = """.version 7.8
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 x, .param .u32 v)
{
  .reg .b64 %x, %o; .reg .b32 %t, %v;
  ld.param.u64 %x, [x]; ld.param.u32 %v, [v];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %o, %t, 4; add.s64 %x, %x, %o;
  add.u32 %v, %v, %t;
  st.global.u32 [%x], %v;
  ret;
}
"""


@pytest.fixture
def gpu():
    device = driver.current_device()
    with driver.activated(device):
        yield device


@pytest.mark.parametrize("kind", ["ptxas", "driver"])
def test_load_and_launch(gpu, kind):
    import ctypes

    assembled = assemble(FILL_PTX, gpu.arch.rstrip("a")) if kind == "ptxas" else assemble(FILL_PTX, assembler=Assembler("driver"))
    module, log = driver.load_module(assembled.image, assembled.is_cubin)
    assert bool(log) == (kind == "driver")
    function = driver.get_function(module, "fill", 0)
    address = driver.allocate(128)
    values = ctypes.create_string_buffer(struct.pack("<QI", address, 5))
    base = ctypes.addressof(values)
    pointers = (ctypes.c_void_p * 2)(base, base + 8)
    assert driver.Launcher(function, (1, 1, 1), 32, 0).status(0, pointers) == 0
    driver.synchronize()
    result = np.zeros(32, np.int32)
    driver.copy_to_host(result.ctypes.data, address, 128)
    driver.free(address)
    np.testing.assert_array_equal(result, np.arange(32) + 5)


def test_errors_name_the_cuda_error_and_what_was_done(gpu):
    with pytest.raises(TeselaError, match="looking up kernel 'nothing': CUDA_ERROR_NOT_FOUND"):
        module, _ = driver.load_module(assemble(FILL_PTX, gpu.arch.rstrip("a")).image, True)
        driver.get_function(module, "nothing", 0)
    with pytest.raises(TeselaError, match=r"compiling PTX in the driver:(.|\n)*Unknown symbol"):
        driver.load_module(FILL_PTX.replace("add.u32 %v, %v", "add.u32 %v, %w").encode() + b"\0", False)
    with pytest.raises(TeselaError, match="allocating .* bytes on the device: CUDA_ERROR_OUT_OF_MEMORY"):
        driver.allocate(1 << 50)


def test_tensor_maps_are_encoded_or_rejected(gpu):
    if gpu.capability < (9, 0):
        pytest.skip("tensor maps need compute capability 9.0")
    address = driver.allocate(1 << 16)
    good = TensorMap("bf16", address, (64, 128), (128,), (64, 64), (1, 1), 128)
    assert len(driver.encode_tensor_map(good)) == driver.TENSOR_MAP_BYTES
    with pytest.raises(TeselaError, match="encoding a tensor map .*CUDA_ERROR_INVALID_VALUE"):
        driver.encode_tensor_map(TensorMap("bf16", address + 2, (64, 128), (128,), (64, 64), (1, 1), 128))
    driver.free(address)


@pytest.mark.parametrize("target", [None, "sm_80"])
def test_host_arrays_there_and_back(target):
    kernel = compile(EXAMPLES / "gemm.mlir", target)
    rng = np.random.default_rng(0)
    for m, n, k in ((257, 321, 200), (64, 64, 0), (0, 5, 7), (33, 65, 511)):
        a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
        b = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16)
        c = kernel(a, b, device="cuda")
        a, b = a.astype(np.float64), b.astype(np.float64)
        assert (np.abs(c - a @ b.T) <= k * 2.0**-23 * (np.abs(a) @ np.abs(b).T)).all()


def test_host_views_are_written_in_place():
    kernel = compile(EXAMPLES / "add.mlir")
    x = np.arange(5000, dtype=np.float32)
    kernel(x[1:4001], x[1:4001], x[1:4001], device="cuda")
    np.testing.assert_array_equal(x[1:4001], 2 * np.arange(1, 4001))
    assert x[0] == 0 and x[4001] == 4001


def test_device_arrays_of_our_own():
    kernel = compile(EXAMPLES / "add.mlir")
    x = DeviceArray((1000,), "f32", 0)
    data = np.arange(1000, dtype=np.float32)
    with driver.activated(driver.device(0)):
        driver.copy_to_device(x.view.address, data.ctypes.data, x.nbytes)
    z = kernel(x, x)
    assert isinstance(z, DeviceArray)
    np.testing.assert_array_equal(z.numpy(), 2 * data)


def test_torch_tensors_streams_and_graphs():
    torch = pytest.importorskip("torch")
    kernel = compile(EXAMPLES / "add.mlir")
    x, y = torch.randn(100_003, device="cuda"), torch.randn(100_003, device="cuda")
    assert view(x[1:]).address == x.data_ptr() + 4
    torch.testing.assert_close(kernel(x, y), x + y, rtol=0, atol=0)
    torch.testing.assert_close(kernel(x[1:], y[:-1]), x[1:] + y[:-1], rtol=0, atol=0)
    side = torch.cuda.Stream()
    z = torch.zeros_like(x)
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(1.0)
        kernel(x, y, z)
    side.synchronize()
    torch.testing.assert_close(z, 1 + y, rtol=0, atol=0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, z)
    x.fill_(3.0)
    z.zero_()
    graph.replay()
    torch.testing.assert_close(z, 3 + y, rtol=0, atol=0)


def test_torch_tensors_that_cannot_be_passed():
    torch = pytest.importorskip("torch")
    kernel = compile(EXAMPLES / "add.mlir")
    x = torch.randn(8, device="cuda")
    with pytest.raises(TeselaError, match="add: y is in host memory, but x is in GPU 0"):
        kernel(x, torch.randn(8))
    with pytest.raises(TeselaError, match=r"add: y has element type torch.complex64, but f32 is required"):
        kernel(x, torch.randn(8, dtype=torch.complex64, device="cuda"))


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy")
    kernel = compile(EXAMPLES / "add.mlir")
    x = cupy.arange(1000, dtype=cupy.float32)
    z = kernel(x, x)
    assert isinstance(z, cupy.ndarray)
    np.testing.assert_array_equal(z.get(), 2 * np.arange(1000))


def test_jax_arrays_are_read_and_not_written():
    jax = pytest.importorskip("jax")
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("JAX sees no GPU")
    kernel = compile(EXAMPLES / "add.mlir")
    x = jax.numpy.arange(1000, dtype="float32")
    z = kernel(x, x)
    np.testing.assert_array_equal(z.numpy(), 2 * np.arange(1000))
    with pytest.raises(TeselaError, match="add: z is read-only, but the kernel writes it"):
        kernel(x, x, x)
