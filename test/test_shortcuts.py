"""runtime/shortcuts.py and the torch side of arrays.py, over stand-ins for torch and for the driver."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake_launcher import fake_launcher, read_params

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan, Param, ScalarArg
from tesela.runtime import arrays, driver, shortcuts
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


Device = namedtuple("Device", ("type", "index"))


class Tensor:
    """As much of a torch tensor as the runtime looks at."""

    layout = "strided"
    negative = False

    def __init__(self, shape, address, dtype="float32", device="cuda", index=0, strides=None):
        self.shape, self._address, self.dtype = tuple(shape), address, dtype
        self.device = Device(device, index)
        self._strides = strides or arrays.dense_strides(self.shape)

    def stride(self):
        return self._strides

    def data_ptr(self):
        return self._address

    def get_device(self):
        return self.device.index

    def element_size(self):
        return 4

    def is_neg(self):
        return self.negative


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
    module.empty_strided = lambda shape, strides, dtype, device: empty(shape, dtype, device)
    module.cuda = types.SimpleNamespace(current_stream=lambda index: types.SimpleNamespace(cuda_stream=module.stream))
    module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: module.stream)
    monkeypatch.setitem(sys.modules, "torch", module)
    arrays.torch_dtypes.cache_clear()
    yield module
    arrays.torch_dtypes.cache_clear()


def fake(monkeypatch, launched):
    """A driver whose launches come to `launched`."""
    function = object()
    monkeypatch.setattr(driver, "Launcher", fake_launcher(launched))
    monkeypatch.setattr(driver, "device", lambda ordinal: driver.Device(ordinal, "GPU", (8, 0), None))
    monkeypatch.setattr(driver, "activated", lambda gpu: contextlib.nullcontext())
    monkeypatch.setattr(driver, "launch_failure", lambda status: TeselaError(f"launch failed with {status}"))
    monkeypatch.setattr(Variant, "function", lambda self, gpu: function)


@pytest.fixture
def kernel(monkeypatch):
    """A kernel over a driver that records launches: (x, y, n, N, stream). `long_ways` counts the calls that were checked in full."""
    state = types.SimpleNamespace(launches=[], status=0, long_ways=0)

    def launched(launcher, stream, params):
        kinds = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64]
        state.launches.append((*read_params(params, kinds), stream))
        status, state.status = state.status, 0
        return status

    fake(monkeypatch, launched)
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
    """Calls whose arrays overlap take another variant than those whose do not; each the long way once."""
    scale, state = kernel
    cases = ((8192, 1), (4096 + 256, 1), (4096 + 240, 2), (4096 - 256, 2), (4096 - 240, 2), (4096, 2), (4096 + 256, 2), (4096, 2))
    for address, long_ways in cases:
        scale(Tensor((64,), 4096), Tensor((64,), address), 3)
        assert state.long_ways == long_ways, address
        assert state.launches[-1][:2] == (4096, address)
        assert scale.last.facts.noalias == (() if abs(address - 4096) < 256 else ("x", "y"))


def test_metadata_that_changes_in_place(torch, kernel):
    """A tensor that was launched on may have another shape, element type or memory the next time."""
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    x._address = 4096 + 1024
    scale(x, y, 3)
    assert state.launches[-1][:2] == (5120, 8192) and state.long_ways == 1
    x.shape = y.shape = (32,)
    scale(x, y, 3)
    assert state.launches[-1] == (5120, 8192, 3, 32, 5) and state.long_ways == 2
    x.negative = True
    with pytest.raises(TeselaError, match="x is a torch tensor whose elements are to be negated when they are read"):
        scale(x, y, 3)
    x.negative, x.dtype = False, "float16"
    with pytest.raises(TeselaError, match="x has element type f16"):
        scale(x, y, 3)


def test_more_blocks_than_are_kept(torch, kernel, monkeypatch):
    scale, state = kernel
    monkeypatch.setattr(shortcuts, "MAX_BLOCKS", 4)
    for number in range(20):
        scale(Tensor((64,), 4096), Tensor((64,), 8192 + 256 * (number % 7)), number)
        assert state.launches[-1][:3] == (4096, 8192 + 256 * (number % 7), number)
    assert state.long_ways == 1


def test_threads_launch_side_by_side(torch, kernel):
    """Each launch sees its own parameters, although all share the blocks."""
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, -1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: [scale(x, Tensor((64,), 8192 + 256 * number), number) for _ in range(200)], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert state.long_ways == 1
    wanted = Counter((4096, 8192 + 256 * number, number, 64, 5) for number in range(8) for _ in range(200))
    assert Counter(state.launches[1:]) == wanted


@pytest.mark.parametrize("value", [True, 3.0, None, 2**31, -(2**31) - 1, "3", 1j])
def test_scalars_that_the_contract_refuses(torch, kernel, value):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    if value is True:
        scale(x, y, value)
        assert state.launches[-1][2] == 1
        return
    with pytest.raises(TeselaError, match="n"):
        scale(x, y, value)
    assert len(state.launches) == 1


FLOATS = LaunchPlan(
    "floats",
    "sm_80",
    (ArrayArg("x", "f32", ("N",), (None,), "rw"), *(ScalarArg(name, name) for name in ("f64", "f32", "bf16", "i64"))),
    ("N",),
    ("N",),
    (Param("pointer", "x", "x"), *(Param("scalar", name, name) for name in ("f64", "f32", "bf16", "i64"))),
    32,
    0,
)


def test_scalars_are_packed_as_the_long_way_does(torch, monkeypatch):
    """To the bit: what is too large for f32 becomes infinity, and zeros keep their sign."""
    seen = []

    def launched(launcher, stream, params):
        seen.append(read_params(params, [ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_uint64]))

    fake(monkeypatch, launched)
    kernel = Kernel(Contract.of_plan(FLOATS), lambda facts, target: Variant(facts, FLOATS, ""))
    x = Tensor((64,), 4096)
    numbers = [0.0, -0.0, 1 / 3, 3.4028235677973366e38, 3.5e38, -1e300, float("inf"), float("nan"), 1e-46, 7, True, 2**53 + 1]
    for number in numbers:
        kernel(x, number, number, number, int(number) if abs(number) < 2**63 else 0)
    fast, seen[:] = list(seen), []
    assert "pack_f32(block" in kernel.launcher_source
    for number in numbers:
        slow = Kernel(Contract.of_plan(FLOATS), lambda facts, target: Variant(facts, FLOATS, ""))
        slow(x, number, number, number, int(number) if abs(number) < 2**63 else 0)
    assert fast == seen and len(set(map(tuple, seen))) == len(numbers)


def test_scalars_are_checked_every_time(torch, kernel):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    with pytest.raises(TeselaError, match="n = 2147483648 does not fit i32"):
        scale(x, y, 2**31)
    with pytest.raises(TeselaError, match="n is a str, but a number is required"):
        scale(x, y, "3")
    with pytest.raises(TeselaError, match="argument 'n' is missing"):
        scale(x, y)
    assert len(state.launches) == 1


def test_outputs_that_are_left_out_are_new_each_time(torch, kernel):
    scale, state = kernel
    x = Tensor((64,), 4096)
    made = [scale(x, None, 3) for _ in range(3)]
    assert state.long_ways == 1
    assert len({tensor.data_ptr() for tensor in made}) == 3
    assert [launch[1] for launch in state.launches] == [tensor.data_ptr() for tensor in made]


def test_calls_with_names_and_streams(torch, kernel):
    scale, state = kernel
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    for _ in range(2):
        scale(x, n=3, y=y)
        scale(x, y, 4, stream=7)
        scale(x, y, 5, stream=types.SimpleNamespace(cuda_stream=8))
    assert state.long_ways == 1
    assert [launch[2:] for launch in state.launches] == [(3, 64, 5), (4, 64, 7), (5, 64, 8)] * 2
    for wrong, message in (({"y": y, "m": 3}, "no argument 'm'"), ({"x": x, "n": 3}, "given twice"), ({"y": y}, "'n' is missing")):
        with pytest.raises(TeselaError, match=message):
            scale(x, **wrong)
    with pytest.raises(TeselaError, match="stream is a str"):
        scale(x, y, 3, stream="seven")
    with pytest.raises(TeselaError, match="4 arguments were given"):
        scale(x, y, 3, 4)


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
