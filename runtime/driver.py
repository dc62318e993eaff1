"""A thin layer over the CUDA driver API (`cuda.bindings.driver`): checked calls, devices, modules, launches, tensor maps, memory.

Nothing of CUDA is imported when this module is; `device_available` says whether the rest can be used. Every call that
fails raises a TeselaError that names the CUDA error and what was being done. Contexts are the devices' primary ones, which
torch, CuPy and JAX use as well; a thread that has none current gets its device's.

Handles (streams, events, functions, device addresses) are passed as integers or as the binding's own objects, both work.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import TensorMap

LOG_BYTES = 64 * 1024
TENSOR_MAP_BYTES = 128
"""sizeof(CUtensorMap); a kernel's parameter of this kind is aligned to 64 bytes (CUDA driver API, "CUtensorMap")."""


@lru_cache(maxsize=1)
def _start() -> tuple[Any, str]:
    """(the bindings, '') once the driver is initialised, or (None, why not)."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        return None, f"cuda-python cannot be imported ({error})"
    try:
        status = driver.cuInit(0)[0]
    except (RuntimeError, OSError) as error:  # what the bindings raise where libcuda is missing
        return None, f"the NVIDIA driver cannot be loaded ({str(error).splitlines()[0]})"
    if status != driver.CUresult.CUDA_SUCCESS:
        return None, f"cuInit failed with {status.name}"
    status, count = driver.cuDeviceGetCount()
    if status != driver.CUresult.CUDA_SUCCESS or count == 0:
        return None, "the NVIDIA driver finds no GPU"
    return driver, ""


def device_available() -> bool:
    """Whether there is a driver with at least one GPU."""
    return _start()[0] is not None


_left: tuple[Device, int] | None = None


def leave(gpu: Device, many: int) -> None:
    """In a process that was forked after the driver had been initialised, where the driver no longer works (CUDA C++ Programming Guide, "Initialization"): what
    compiling asks it is answered by what was known before, the current GPU and its number of multiprocessors; for the rest there is no GPU."""
    global _left
    _left = gpu, many


def api() -> Any:
    """The initialised `cuda.bindings.driver` module. Raises TeselaError that says why there is none."""
    if _left is not None:
        raise TeselaError.at(None, "a process that was forked to compile has no GPU")
    driver, why = _start()
    if driver is None:
        raise TeselaError.at(None, f"no GPU can be used: {why}", "run in the simulator with device='sim' (or TESELA_DEVICE=sim)")
    return driver


def check(result: tuple[Any, ...], doing: str) -> Any:
    """The value of a driver call's result: None, the one value, or a tuple. Raises TeselaError with the CUDA error's name."""
    status = result[0]
    if status != 0:
        raise _failure(status, doing)
    return result[1] if len(result) == 2 else result[1:] or None


def _failure(status: Any, doing: str) -> TeselaError:
    driver = api()
    _, text = driver.cuGetErrorString(status)
    name = getattr(status, "name", str(status))
    message = f"{doing}: {name}" + (f" ({text.decode()})" if text else "")
    return TeselaError.at(None, message, _HINTS.get(name))


_HINTS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays on the device, or use smaller ones",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "run the same call with device='sim': the simulator names the access and its source line",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "run the same call with device='sim': the simulator names the instruction and its source line",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "run the same call with device='sim': the simulator names the access and its source line",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the PTX text: install tesela[ptxas], or a newer driver",
}


def driver_version() -> tuple[int, int]:
    """The newest CUDA version that the driver supports: (13, 0)."""
    number = check(api().cuDriverGetVersion(), "asking for the driver's version")
    return number // 1000, number % 1000 // 10


def device_count() -> int:
    return check(api().cuDeviceGetCount(), "counting GPUs")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: its number, name, compute capability, and primary context."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    context: Any

    @property
    def arch(self) -> str:
        """What to assemble for: 'sm_90a', 'sm_89' …"""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if self.capability == (9, 0) else "")

    @property
    def target(self) -> str:
        """The code path that this GPU takes. Raises TeselaError for one older than sm_80."""
        if self.capability == (9, 0):
            return "sm_90a"
        if self.capability >= (8, 0):
            return "sm_80"
        raise TeselaError.at(
            None, f"{self.name} has compute capability {'{}.{}'.format(*self.capability)}, but 8.0 or newer is required", "device='sim' runs without a GPU"
        )


@cache
def device(ordinal: int) -> Device:
    """The GPU of that number. Raises TeselaError for an unknown one."""
    driver = api()
    count = device_count()
    if not 0 <= ordinal < count:
        raise TeselaError.at(None, f"there is no GPU {ordinal}: the driver finds {count}")
    handle = check(driver.cuDeviceGet(ordinal), f"opening GPU {ordinal}")
    name = check(driver.cuDeviceGetName(256, handle), "asking for a GPU's name").split(b"\0")[0].decode()
    attribute = driver.CUdevice_attribute
    capability = tuple(
        check(driver.cuDeviceGetAttribute(key, handle), "asking for the compute capability")
        for key in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    context = check(driver.cuDevicePrimaryCtxRetain(handle), f"opening the context of {name}")
    return Device(ordinal, name, capability, context)


def attribute(gpu: Device, key: Any) -> int:
    """One of `CUdevice_attribute`'s numbers for a GPU."""
    handle = check(api().cuDeviceGet(gpu.ordinal), f"opening GPU {gpu.ordinal}")
    return int(check(api().cuDeviceGetAttribute(key, handle), "asking for an attribute of a GPU"))


def current_device() -> Device:
    """The GPU of this thread's current context, or GPU 0."""
    if _left is not None:
        return _left[0]
    driver = api()
    context = check(driver.cuCtxGetCurrent(), "asking for the current context")
    if not int(context):
        return device(0)
    return device(int(check(driver.cuCtxGetDevice(), "asking for the current GPU")))


@contextmanager
def activated(gpu: Device) -> Iterator[None]:
    """Within it, `gpu`'s primary context is current in this thread; afterwards the one that was before, if any was."""
    if _left is not None:
        yield
        return
    driver = api()
    before = check(driver.cuCtxGetCurrent(), "asking for the current context")
    if int(before) == int(gpu.context):
        yield
        return
    check(driver.cuCtxSetCurrent(gpu.context), f"making the context of {gpu.name} current")
    try:
        yield
    finally:
        if int(before):
            check(driver.cuCtxSetCurrent(before), "restoring the current context")


def load_module(image: bytes, is_cubin: bool) -> tuple[Any, str]:
    """(module handle, log) of a cubin, or of PTX text ended by a zero byte, in the current context.

    The log is the driver's compiler's for PTX, in the form that `assemble.read_messages` reads. Where the driver rejects the
    PTX text, the TeselaError carries that log.
    """
    driver = api()
    if is_cubin:
        return check(driver.cuModuleLoadData(image), "loading a cubin"), ""
    option = driver.CUjit_option
    info, error = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
    options = {
        option.CU_JIT_INFO_LOG_BUFFER: info,
        option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        option.CU_JIT_ERROR_LOG_BUFFER: error,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        option.CU_JIT_LOG_VERBOSE: 1,
        option.CU_JIT_GENERATE_LINE_INFO: 1,
    }
    result = driver.cuModuleLoadDataEx(image, len(options), list(options), list(options.values()))
    log = "".join(buffer.split(b"\0", 1)[0].decode(errors="replace") for buffer in (info, error))
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise _failure(result[0], f"compiling PTX in the driver:\n{log.strip()}\n")
    return result[1], log


def get_function(module: Any, name: str, shared_bytes: int) -> Any:
    """The kernel `name` of a loaded module, allowed `shared_bytes` of dynamic shared memory."""
    driver = api()
    function = check(driver.cuModuleGetFunction(module, name.encode()), f"looking up kernel '{name}'")
    if shared_bytes > 48 * 1024:
        key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(function, key, shared_bytes), f"kernel '{name}': asking for {shared_bytes} bytes of shared memory")
    return function


@cache
def launch_entry() -> Callable[[Any, Any, Any, None], int]:
    """`cuLaunchKernelEx` itself: takes a `CUlaunchConfig *`, a `CUfunction` and a `void **` of parameters as ctypes objects, and None.

    By way of ctypes, since a launch with nothing left to convert costs a fifth of a microsecond there; the binding's own function looks at
    eleven arguments and takes about one. Without `argtypes`, which would have each object converted anew. The call lets go of the
    interpreter's lock: it waits where the device's queue is full.
    """
    api()
    library = ctypes.WinDLL("nvcuda.dll") if sys.platform == "win32" else ctypes.CDLL("libcuda.so.1")
    return library.cuLaunchKernelEx


PDL_VARIABLE = "TESELA_PDL"
"""`0`: no launch begins before the one before it in its stream has ended."""


def overlaps_launches() -> bool:
    """Whether launches may begin early at all (PDL_VARIABLE)."""
    return os.environ.get(PDL_VARIABLE) != "0"


MAX_STREAMS = 64
"""Streams whose launch configuration a Launcher keeps; forgotten all at once when there are more."""


class Launcher:
    """One kernel's launch with everything fixed but stream and parameters. `entry(config(stream), function, params, None)` launches."""

    def __init__(self, function: Any, grid: tuple[int, int, int], threads: int, shared_bytes: int, cluster: tuple[int, int, int] = (1, 1, 1), programmatic: bool = False):
        self.entry = launch_entry()
        self.function = ctypes.c_void_p(int(function))
        self.configs: dict[int, Any] = {}
        """By stream, ready to pass. Each is complete when it is put here, and never changed."""
        self._fixed = (grid, threads, shared_bytes, cluster, programmatic and overlaps_launches())

    def config(self, stream: int) -> Any:
        """The launch configuration for a stream: a pointer to a `CUlaunchConfig`, which keeps what it points to."""
        found = self.configs.get(stream)
        if found is not None:
            return found
        driver = api()
        grid, threads, shared_bytes, cluster, programmatic = self._fixed
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared_bytes
        config.hStream = driver.CUstream(stream)
        attributes = []
        if cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster
            attributes.append(attribute)
        if programmatic:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        pointer = ctypes.c_void_p(int(config.getPtr()))
        pointer.holds = config
        if len(self.configs) >= MAX_STREAMS:
            self.configs.clear()
        self.configs[stream] = pointer
        return pointer

    def status(self, stream: int, params: Any) -> int:
        """Launch on a stream; the CUresult, which is 0 for success. `params`: a ctypes array that starts with pointers to the parameters
        (as `cuLaunchKernel` wants)."""
        return self.entry(self.config(stream), self.function, params, None)


CONTEXT_ERRORS = (201, 400, 709)
"""CUDA_ERROR_INVALID_CONTEXT, _INVALID_HANDLE, _CONTEXT_IS_DESTROYED: a launch while another context, or none, was current."""


def launch_failure(status: Any) -> TeselaError:
    """The error for a launch's status, as `cuLaunchKernelEx` gave it."""
    return _failure(api().CUresult(status), "launching the kernel")


def encode_tensor_map(tensor_map: TensorMap) -> bytes:
    """The 128 bytes of a tensor map (`cuTensorMapEncodeTiled`); TeselaError where the driver rejects it."""
    driver = api()
    result = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_MAP_TYPES[tensor_map.dtype]}"),
        len(tensor_map.dims),
        tensor_map.address,
        [driver.cuuint64_t(extent) for extent in tensor_map.dims],
        # of one dimension it has no strides, but the driver refuses a null pointer
        [driver.cuuint64_t(stride) for stride in tensor_map.strides or (16,)],
        [driver.cuuint32_t(extent) for extent in tensor_map.box],
        [driver.cuuint32_t(stride) for stride in tensor_map.element_strides],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle((0, 32, 64, 128).index(tensor_map.swizzle)),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill(1 if tensor_map.fill == "nan" else 0),
    )
    encoded = check(result, f"encoding a tensor map ({tensor_map})")
    return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)


_TENSOR_MAP_TYPES = {
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "i1": "UINT8",
    "i8": "UINT8",
    "ui8": "UINT8",
    "f8E4M3FN": "UINT8",
    "f8E5M2": "UINT8",
    "i16": "UINT16",
    "i32": "INT32",
    "i64": "INT64",
}


def allocate(nbytes: int) -> int:
    """The address of `nbytes` of new device memory, aligned to at least 256 bytes."""
    return int(check(api().cuMemAlloc(max(nbytes, 1)), f"allocating {nbytes} bytes on the device"))


def free(address: int) -> None:
    check(api().cuMemFree(address), "freeing device memory")


def copy_to_device(address: int, host_address: int, nbytes: int) -> None:
    check(api().cuMemcpyHtoD(address, host_address, nbytes), f"copying {nbytes} bytes to the device")


def copy_to_host(host_address: int, address: int, nbytes: int) -> None:
    check(api().cuMemcpyDtoH(host_address, address, nbytes), f"copying {nbytes} bytes from the device")


def copy_on_device(to: int, source: int, nbytes: int) -> None:
    check(api().cuMemcpyDtoD(to, source, nbytes), f"copying {nbytes} bytes on the device")


def fill_zeros(address: int, nbytes: int) -> None:
    check(api().cuMemsetD8(address, 0, nbytes), "clearing device memory")


def synchronize(stream: int | None = None) -> None:
    """Wait for a stream, or (None) for all work of the current context. Errors of earlier launches surface here."""
    driver = api()
    if stream is None:
        check(driver.cuCtxSynchronize(), "waiting for the GPU")
    else:
        check(driver.cuStreamSynchronize(stream), "waiting for a stream")


StreamKey = tuple[int, int, int]
"""(context, number of the stream, 0), or (context, handle of the stream, number of the capture that it is in)."""


class _Queries(threading.local):
    """What a thread asks the driver before each launch that needs memory, by way of ctypes, as `launch_entry`: three calls of the binding take as long as a
    launch. Nothing of it waits, so the interpreter's lock is kept."""

    def __init__(self) -> None:
        api()
        library = ctypes.WinDLL("nvcuda.dll") if sys.platform == "win32" else ctypes.PyDLL("libcuda.so.1")
        context, number, state, capture = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int(), ctypes.c_uint64()
        self.values = context, number, state, capture
        at = [ctypes.byref(value) for value in self.values]
        self.current = partial(library.cuCtxGetCurrent, at[0])
        self.number = library.cuStreamGetId
        self.capture = library.cuStreamGetCaptureInfo_v2
        self.at_number, self.at_capture = at[1], (at[2], at[3], None, None, None)


_queries: _Queries | None = None
CAPTURING = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE."""


def stream_key(stream: int) -> StreamKey | None:
    """What tells launches apart that may run at the same time: those with different keys may. None where a launch on the stream would fail for want
    of its context (CONTEXT_ERRORS). Raises TeselaError for a stream that cannot be asked, as one that a capture forbids to use."""
    global _queries
    if _queries is None:
        _queries = _Queries()
    ask, handle = _queries, ctypes.c_void_p(stream)
    context, number, state, capture = ask.values
    status = ask.current() or (0 if context.value else CONTEXT_ERRORS[0]) or ask.capture(handle, *ask.at_capture)
    if not status and state.value == CAPTURING:
        return context.value or 0, stream, capture.value  # a stream that is captured cannot be asked for its number, nor end meanwhile
    status = status or ask.number(handle, ask.at_number)
    if status in CONTEXT_ERRORS:
        return None
    if status:
        raise _failure(api().CUresult(status), "asking for a stream's number and capture")
    return context.value or 0, number.value, 0


def allocate_while_capturing(nbytes: int, cleared: bool) -> int:
    """The address of new device memory, `cleared` or not, that is ready when this returns; allowed while any stream is captured, whose graph does
    not take part in it (CUDA driver API, cuThreadExchangeStreamCaptureMode)."""
    driver = api()
    doing = "allocating memory for a launch"
    before = check(driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED), doing)
    try:
        address = allocate(nbytes)
        if cleared:
            own = check(driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)), doing)
            check(driver.cuMemsetD8Async(address, 0, nbytes, own), doing)
            check(driver.cuStreamSynchronize(own), doing)
            check(driver.cuStreamDestroy(own), doing)
    finally:
        check(driver.cuThreadExchangeStreamCaptureMode(before), doing)
    return address


class Event:
    """A point in a stream, with a time."""

    def __init__(self) -> None:
        self.handle = check(api().cuEventCreate(0), "creating an event")

    def record(self, stream: int = 0) -> None:
        check(api().cuEventRecord(self.handle, stream), "recording an event")

    def milliseconds_since(self, start: Event) -> float:
        """Device time between two recorded events, once this one was reached (it is waited for)."""
        check(api().cuEventSynchronize(self.handle), "waiting for an event")
        return float(check(api().cuEventElapsedTime(start.handle, self.handle), "reading an event's time"))

    def close(self) -> None:
        check(api().cuEventDestroy(self.handle), "destroying an event")


def multiprocessors(gpu: Device) -> int:
    """The number of multiprocessors of a GPU."""
    if _left is not None and _left[0] == gpu:
        return _left[1]
    return attribute(gpu, api().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)


def ordinal_of(address: int) -> int:
    """The number of the GPU whose memory holds `address`."""
    driver = api()
    key = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(driver.cuPointerGetAttribute(key, address), f"asking which GPU holds address {address:#x}"))
