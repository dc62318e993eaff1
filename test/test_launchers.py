"""runtime/launchers.py and torch_guard.py over real torch tensors, in host memory, that pass for ones on GPU 0; and the text of launchers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import inspect
import sys
import types
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from fake_launcher import fake_launcher, read_params

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.launch_plan import ArrayArg, LaunchPlan, Param
from tesela.runtime import arrays, driver, shortcuts, torch_guard
from tesela.runtime.contract import Contract
from tesela.runtime.kernel import Kernel
from tesela.runtime.launch import Variant
from tesela.runtime.launchers import Given, compiled, launcher_source

ROWS = LaunchPlan(
    "rows",
    "sm_80",
    (ArrayArg("x", "f32", ("M", "N"), (None, None), "r"), ArrayArg("y", "f32", ("M", "N"), (None, 1), "w")),
    ("M", "N"),
    ("M",),
    (Param("pointer", "x", "x"), Param("pointer", "y", "y"), Param("dim", "M", "M"), Param("dim", "N", "N"), Param("stride", "s", "x", 0)),
    32,
    0,
)


def test_the_text_of_a_launcher():
    pattern = [Given("array", "torch"), Given("made", "torch"), Given("scalar", dtype="bf16", offset=40), Given("array", "cupy")]
    source = launcher_source("k", pattern, 4)
    assert compiled(source) is compiled(source)
    assert "not same(" not in source, "torch's guard takes tensors of torch only"
    for text in ("a1 is not None", "a1 = make_1()", "pack_scalar(block, 40, 'bf16', check_scalar(2, a2))", "a3.strides != strides_3", "free.append(block)"):
        assert text in source, source
    assert "same(a0, a1)" in launcher_source("k", pattern[:1] * 2, 2)


def test_argument_names_that_a_launcher_uses_itself(monkeypatch):
    """A kernel's arguments may be called what they like: `a0` by name is not the first."""
    calls = []
    make = compiled(launcher_source("k", [Given("array", "torch")], 1))
    names = make.__code__.co_varnames[: make.__code__.co_argcount]
    launcher = make(**dict.fromkeys(names) | {"other": lambda *args: calls.append(args)})
    launcher(1, a0=2, launcher=3)
    assert calls == [(launcher, (1,), {"a0": 2, "launcher": 3}, None, None)]


def test_a_kernel_is_a_function_to_others():
    kernel = Kernel(Contract.of_plan(ROWS), lambda facts, target: Variant(facts, ROWS, ""))
    assert callable(kernel) and "Raises TeselaError for every wrong argument" in (Kernel.__call__.__doc__ or "")
    assert list(inspect.signature(kernel).parameters) == ["args", "device", "stream", "kwargs"]
    assert list(inspect.signature(Kernel).parameters) == ["contract", "compiler", "target"]
    with pytest.raises(TeselaError, match="argument 'x' is missing"):
        functools.partial(kernel)()


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(params=["guard", "public"])
def rows(request, torch, monkeypatch):
    """A kernel that records (x, y, M, N, stride of x) of its launches, with torch's guard and without."""
    state = types.SimpleNamespace(launches=[], long_ways=0)
    function = object()

    def launched(launcher, stream, params):
        state.launches.append(tuple(read_params(params, [ctypes.c_int64] * 5)))

    in_host_memory = arrays._view_torch
    monkeypatch.setattr(arrays, "_view_torch", lambda *args: replace(in_host_memory(*args), device=0, stream=1))
    monkeypatch.setattr(shortcuts, "_stream_reader", lambda library: lambda device: 1)
    monkeypatch.setattr(driver, "Launcher", fake_launcher(launched))
    monkeypatch.setattr(driver, "device", lambda ordinal: driver.Device(ordinal, "GPU", (8, 0), None))
    monkeypatch.setattr(driver, "activated", lambda gpu: contextlib.nullcontext())
    monkeypatch.setattr(Variant, "function", lambda self, gpu: function)
    if request.param == "public":
        monkeypatch.setattr(shortcuts, "guard", lambda tensors: torch_guard.accepts_nothing)
    bind = Contract.bind

    def counted(self, *args):
        state.long_ways += 1
        return bind(self, *args)

    monkeypatch.setattr(Contract, "bind", counted)
    return Kernel(Contract.of_plan(ROWS), lambda facts, target: Variant(facts, ROWS, "")), state


def test_torch_has_the_guard(torch):
    """Where it is missing all works, but more slowly; this says so for the torch that is installed."""
    assert torch_guard.guard([torch.zeros(2)]) is not torch_guard.accepts_nothing


def test_tensors_of_the_same_metadata(torch, rows):
    kernel, state = rows
    held = [torch.zeros(8, 16) for _ in range(6)]
    for x, y in zip(held[:3], held[3:]):
        kernel(x, y)
        assert state.launches[-1] == (x.data_ptr(), y.data_ptr(), 8, 16, 16)
    with torch.inference_mode():
        x, y = torch.zeros(8, 16), torch.zeros(8, 16)
        kernel(x, y)
    with torch.no_grad(), torch.autocast("cpu"):
        kernel(x, held[3])
    assert state.launches[-1] == (x.data_ptr(), held[3].data_ptr(), 8, 16, 16)
    assert state.long_ways == 1, "modes of torch do not matter"


def test_a_launch_runs_nothing_but_its_launcher(torch, rows):
    """Of our Python: slowness that creeps in would go unseen."""
    kernel, state = rows
    x, y = torch.zeros(8, 16), torch.zeros(8, 16)
    kernel(x, y)
    kernel(x, y)
    frames = []
    sys.setprofile(lambda frame, event, argument: frames.append((Path(frame.f_code.co_filename).parent.name, frame.f_code.co_name)) if event == "call" else None)
    try:
        kernel(x, y)
    finally:
        sys.setprofile(None)
    ours = [(folder, name) for folder, name in frames if folder != "test"]
    assert ours in ([("", "launcher")], [("", "launcher"), ("runtime", "accepts_nothing")])
    assert len(state.launches) == 3


def test_a_tensor_that_changes_in_place(torch, rows):
    """Every launch sees the tensor as it is then."""
    kernel, state = rows
    x, y = torch.zeros(16, 16), torch.zeros(16, 16)

    def launch():
        kernel(x, y)
        assert state.launches[-1] == (x.data_ptr(), y.data_ptr(), *x.shape, x.stride(0))

    launch()
    x.t_()
    launch()
    x.t_()
    launch()
    x.set_(torch.zeros(64, 16))
    y.resize_(64, 16)
    launch()
    x.set_(torch.zeros(64, 32)[:, :16])
    launch()
    x.as_strided_((64, 16), (16, 1))
    launch()
    x.data = torch.zeros(64, 16)
    launch()
    assert state.long_ways == 4, "four kinds of metadata"
    x.data = torch.zeros(64, 16, dtype=torch.float16)
    with pytest.raises(TeselaError, match="x has element type f16, but f32 is required"):
        kernel(x, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda torch, x: x.half(), "element type f16"),
        (lambda torch, x: x[:4], "x has M = 4|y has M = 8, but x has M = 4"),
        (lambda torch, x: x.reshape(-1), "1 dimension"),
        (lambda torch, x: torch._neg_view(x), "negated when they are read"),
        (lambda torch, x: x.to_sparse(), "layout torch.sparse_coo"),
        (lambda torch, x: x.to_sparse_csr(), "layout torch.sparse_csr"),
        (lambda torch, x: x.to("meta"), "on 'meta'"),
        (lambda torch, x: 3, "is a int, but an array is required"),
        (lambda torch, x: None, "argument 'x' is None"),
    ],
)
def test_what_is_wrong_is_still_refused(torch, rows, change, message):
    kernel, state = rows
    x, y = torch.zeros(8, 16), torch.zeros(8, 16)
    kernel(x, y)
    with pytest.raises(TeselaError, match=message):
        kernel(change(torch, x), y)
    with pytest.raises(TeselaError, match="stride 0|has stride 1 in dimension 1|stride 8 in dimension 1"):
        kernel(x, torch.zeros(16, 8).T)
    kernel(x, y)
    assert len(state.launches) == 2


def test_other_tensors_take_another_launcher(torch, rows):
    kernel, state = rows
    x, y = torch.zeros(8, 16), torch.zeros(8, 16)
    others = [torch.nn.Parameter(torch.zeros(8, 16)), torch.zeros(16, 8).T, torch.zeros(8, 17)[:, 1:], torch.zeros(1, 16).expand(8, 16), x]
    for _ in range(3):
        for other in others:
            kernel(other, y)
            assert state.launches[-1] == (other.data_ptr(), y.data_ptr(), 8, 16, other.stride(0))
    assert state.long_ways == len(others)


def test_memory_is_not_kept(torch, rows):

    kernel, _ = rows
    x, y = torch.zeros(8, 16), torch.zeros(8, 16)
    kernel(x, y)
    kernel(x)
    alive = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert [one() for one in alive] == [None, None]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig (cuda.h)."""

    _fields_ = (("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint))  # fmt: skip


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute (cuda.h), with a cluster's dimensions for its value."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("cluster", ctypes.c_uint * 3), ("rest", ctypes.c_uint * 13))


@pytest.mark.parametrize(("cluster", "early", "allowed"), [((1, 1, 1), False, True), ((2, 1, 1), False, True), ((2, 1, 1), True, True), ((1, 1, 1), True, True), ((1, 1, 1), True, False)])
def test_what_the_driver_sees(monkeypatch, cluster, early, allowed):
    """`driver.Launcher` calls a C function: the configuration, the function, pointers to the parameters, and no more."""
    bindings = pytest.importorskip("cuda.bindings.driver")
    seen = []

    def launched(config, function, params, extra):
        read = LaunchConfig.from_address(config)
        attributes = [LaunchAttribute.from_address(read.attributes + i * ctypes.sizeof(LaunchAttribute)) for i in range(read.count)]
        clusters = [(attribute.id, *attribute.cluster[: 3 if attribute.id == 4 else 1]) for attribute in attributes]
        seen.append((*read.grid, *read.block, read.shared, read.stream, clusters, function, extra, read_params(params, [ctypes.c_uint64, ctypes.c_int32])))
        return 7

    pointer = ctypes.c_void_p
    callback = ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 4)(launched)
    entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(callback, pointer).value)  # as of a library: without argument types
    entry.argtypes = None
    monkeypatch.setattr(driver, "api", lambda: bindings)
    monkeypatch.setattr(driver, "launch_entry", lambda: entry)
    monkeypatch.setenv(driver.PDL_VARIABLE, str(int(allowed)))
    launcher = driver.Launcher(1 << 40, (2**31 - 1, 3, 4), 96, 229504, cluster, early)
    block = (ctypes.c_char * 32)()
    base = ctypes.addressof(block)
    block[:] = b"".join(value.to_bytes(8, "little") for value in (base + 16, base + 24, 2**63 + 1, 5))
    gc.collect()
    assert [launcher.status(stream, block) for stream in (0, 2**40 + 1, 0)] == [7] * 3
    clusters = [] if cluster == (1, 1, 1) else [(4, *cluster)]  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    clusters += [(6, 1)] if early and allowed else []  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    wanted = (2**31 - 1, 3, 4, 96, 1, 1, 229504)
    assert seen == [(*wanted, stream, clusters, 1 << 40, None, [2**63 + 1, 5]) for stream in (None, 2**40 + 1, None)]
    monkeypatch.setattr(driver, "MAX_STREAMS", 2)
    assert len(launcher.configs) == 2 and launcher.status(9, block) == 7 and list(launcher.configs) == [9]
