"""runtime/shortcuts.py and the torch side of arrays.py, over stand-ins for torch and for the driver."""

from __future__ import annotations

import contextlib
import sys
import types

import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan, Param, ScalarArg
from tesela.runtime import arrays, driver
from tesela.runtime.arrays import view
from tesela.runtime.contract import Contract
from tesela.runtime.kernel import Kernel
from tesela.runtime.launch import Variant

PLAN = LaunchPlan(
    "scale",
    "sm_80",
    (ArrayArg("x", "f32", ("N",), (None,), "r"), ArrayArg("y", "f32", ("N",), (None,), "w"), ScalarArg("n", "i32")),
    ("N",),
    ("N",),
    (Param("pointer", "x", "x"), Param("pointer", "y", "y"), Param("scalar", "n", "n"), Param("dim", "N", "N")),
    32,
    0,
)


class Tensor:
    """As much of a torch tensor as the runtime looks at."""

    layout = "strided"

    def __init__(self, shape, address, dtype="float32", device="cuda", index=0, strides=None):
        self.shape, self._address, self.dtype = tuple(shape), address, dtype
        self.device = types.SimpleNamespace(type=device, index=index)
        self._strides = strides or arrays.dense_strides(self.shape)

    def stride(self):
        return self._strides

    def data_ptr(self):
        return self._address

    def get_device(self):
        return self.device.index

    def element_size(self):
        return 4


@pytest.fixture
def torch(monkeypatch):
    """A module that stands for torch; it allocates at rising addresses and has one current stream."""
    module = types.ModuleType("torch")
    module.next, module.stream = 1 << 30, 5
    for name in ("float16", "bfloat16", "float32", "float64", "bool", "int8", "int16", "int32", "int64", "strided"):
        setattr(module, name, name)
    module.Tensor = Tensor

    def empty(shape, dtype="float32", device=None):
        module.next += 4096
        shape = (shape,) if isinstance(shape, int) else shape
        return Tensor(shape, module.next, dtype, device.type, device.index)

    module.empty = empty
    module.cuda = types.SimpleNamespace(current_stream=lambda index: types.SimpleNamespace(cuda_stream=module.stream))
    module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: module.stream)
    monkeypatch.setitem(sys.modules, "torch", module)
    arrays.torch_dtypes.cache_clear()
    yield module
    arrays.torch_dtypes.cache_clear()


@pytest.fixture
def kernel(monkeypatch):
    """A kernel over a driver that records launches: (x, y, n, N, stream). `long_ways` counts the calls that were checked in full."""
    import ctypes

    state = types.SimpleNamespace(launches=[], status=0, long_ways=0)

    class Launcher:
        def __init__(self, function, grid, threads, shared_bytes, params, cluster):
            self.pointers = (ctypes.c_void_p * 4).from_address(params)

        def status(self, stream):
            read = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64]
            state.launches.append((*[kind.from_address(at).value for kind, at in zip(read, self.pointers)], stream))
            status, state.status = state.status, 0
            return status

    monkeypatch.setattr(driver, "Launcher", Launcher)
    monkeypatch.setattr(driver, "device", lambda ordinal: driver.Device(ordinal, "GPU", (8, 0), None))
    monkeypatch.setattr(driver, "activated", lambda gpu: contextlib.nullcontext())
    monkeypatch.setattr(driver, "launch_failure", lambda status: TeselaError(f"launch failed with {status}"))
    monkeypatch.setattr(Variant, "function", lambda self, gpu: object())
    made = Kernel(Contract.of_plan(PLAN), lambda facts, target: Variant(facts, PLAN, ""))
    bind = made.contract.bind

    def counted(*args):
        state.long_ways += 1
        return bind(*args)

    monkeypatch.setattr(Contract, "bind", lambda self, *args: counted(*args))
    return made, state


def test_torch_tensors_as_views(torch):
    seen = view(Tensor((3, 4), 4096, "bfloat16", index=2, strides=(8, 1)))
    assert (seen.address, seen.shape, seen.strides, seen.dtype, seen.itemsize) == (4096, (3, 4), (8, 1), "bf16", 2)
    assert (seen.device, seen.stream) == (2, 5)
    assert view(Tensor((3,), 4096, device="cpu")).device == arrays.HOST
    assert view(Tensor((3,), 4096, "complex64")).dtype == "complex64"
    with pytest.raises(TeselaError, match="is a torch tensor on '.*mps.*', but 'cuda' or 'cpu' is required"):
        view(Tensor((3,), 4096, device="mps"))
    made = arrays.allocate_like(Tensor((3,), 4096), (5,), "bf16", 0)
    assert made.shape == (5,) and made.dtype == "bfloat16" and made.device.type == "cuda"


def test_the_second_like_call_takes_the_short_way(torch, kernel):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    torch.stream = 9
    scale(Tensor((64,), 4096 + 512), y, -4)
    assert state.long_ways == 1
    assert state.launches == [(4096, 8192, 3, 64, 5), (4608, 8192, -4, 64, 9)]
    assert scale.last.plan is PLAN


@pytest.mark.parametrize(
    "other",
    [
        Tensor((65,), 4096),
        Tensor((64,), 4096 + 4),
        Tensor((64,), 4096, strides=(2,)),
        Tensor((64,), 4096, index=1),
    ],
)
def test_what_the_key_tells_apart(torch, kernel, other):
    scale, state = kernel
    scale(Tensor((64,), 4096), Tensor((64,), 1 << 16), 3)
    like = Tensor(other.shape, 1 << 16, index=other.device.index)
    scale(other, like, 3)
    assert state.long_ways == 2 and len(state.launches) == 2


def test_another_element_type_is_still_rejected(torch, kernel):
    scale, _ = kernel
    scale(Tensor((64,), 4096), Tensor((64,), 8192), 3)
    with pytest.raises(TeselaError, match="x has element type f16, but f32 is required"):
        scale(Tensor((64,), 4096, "float16"), Tensor((64,), 8192), 3)


def test_overlap_is_looked_at_every_time(torch, kernel):
    scale, state = kernel
    for address, long_ways in ((8192, 1), (4096 + 256, 1), (4096 + 240, 2), (4096 - 256, 2), (4096 - 240, 3), (4096, 4)):
        scale(Tensor((64,), 4096), Tensor((64,), address), 3)
        assert state.long_ways == long_ways, address


def test_scalars_are_checked_every_time(torch, kernel):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    with pytest.raises(TeselaError, match="n = 2147483648 does not fit i32"):
        scale(x, y, 2**31)
    with pytest.raises(TeselaError, match="n is a str, but a number is required"):
        scale(x, y, "3")
    assert state.long_ways == 1 and len(state.launches) == 1


def test_outputs_that_are_left_out_are_new_each_time(torch, kernel):
    scale, state = kernel
    x = Tensor((64,), 4096)
    made = [scale(x, None, 3) for _ in range(3)]
    assert state.long_ways == 1
    assert len({tensor.data_ptr() for tensor in made}) == 3
    assert [launch[1] for launch in state.launches] == [tensor.data_ptr() for tensor in made]


def test_calls_with_words_go_the_long_way(torch, kernel):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    for _ in range(2):
        scale(x, y=y, n=3)
        scale(x, y, 3, stream=7)
    assert state.long_ways == 4
    assert [launch[-1] for launch in state.launches] == [5, 7, 5, 7]


def test_a_context_that_is_not_current_is_made_so(torch, kernel):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    state.status = 201
    scale(x, y, 3)
    assert state.long_ways == 2 and len(state.launches) == 3
    state.status = 700
    with pytest.raises(TeselaError, match="launch failed with 700"):
        scale(x, y, 3)
    assert state.long_ways == 2
