"""Arrays of other libraries, seen as address, shape, strides and element type, without copies.

`view` takes NumPy arrays, torch tensors, whatever has `__cuda_array_interface__` (CuPy, Numba …) or `__dlpack__` (JAX and others).
No library but NumPy is imported: torch tensors are recognised through `sys.modules`. bfloat16 is `ml_dtypes.bfloat16` in NumPy; a
NumPy array of dtype `V2`, which is what a saved bfloat16 array is when loaded, passes for bf16 (`fits`).

`allocate_like` makes an output of the same library on the same device as an input; `DeviceArray` serves where that library
cannot be asked for one.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from ..dialects.diagnostics import TeselaError

HOST = -1
"""`ArrayView.device` of an array in host memory; others are the GPU's number."""

ELEMENT_TYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "ui8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
}
"""Element types of kernels as NumPy's: i1 is a byte that is 0 or 1, index is 64 bits."""

RAW_16_BITS = "raw 16-bit"
"""The element type of NumPy arrays of dtype V2."""

_BY_NUMPY = {dtype: name for name, dtype in ELEMENT_TYPES.items() if name != "index"} | {np.dtype("V2"): RAW_16_BITS}


@dataclass(slots=True)
class ArrayView:
    """An array as a kernel sees it. `strides` count elements; `dtype` is an element type's name ('f32'), or, of a type that no
    kernel takes, NumPy's name; `stream` is the CUDA stream that the array's library works on, None if it has none to state;
    `owner` keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: int
    readonly: bool
    stream: int | None
    owner: Any

    def span(self) -> tuple[int, int]:
        """The bytes [first, end) that the elements lie in; first == end for an empty array."""
        low = high = 0
        for extent, stride in zip(self.shape, self.strides):
            if extent == 0:
                return self.address, self.address
            if stride < 0:
                low += (extent - 1) * stride
            else:
                high += (extent - 1) * stride
        return self.address + low * self.itemsize, self.address + (high + 1) * self.itemsize

    @property
    def place(self) -> str:
        return "host memory" if self.device == HOST else f"GPU {self.device}"


@dataclass(frozen=True)
class ArraySpec:
    """An array that need not exist yet, to compile for. `dtype`: an element type ('bf16'), by default what the kernel declares; `strides` in
    elements, by default dense; `align`: what divides its address, in bytes."""

    shape: tuple[int, ...]
    dtype: str | None = None
    strides: tuple[int, ...] | None = None
    align: int = 256

    def view(self, declared: str) -> ArrayView:
        """It as an array whose kernel declares the element type `declared`."""
        dtype = str(getattr(self.dtype, "name", None) or self.dtype or declared)
        itemsize = ELEMENT_TYPES[dtype].itemsize if dtype in ELEMENT_TYPES else 1
        strides = dense_strides(self.shape) if self.strides is None else tuple(self.strides)
        return ArrayView(self.align, tuple(self.shape), strides, dtype, itemsize, HOST, False, None, None)


def as_spec(value: Any) -> ArraySpec | None:
    """An ArraySpec, or a shape, as an ArraySpec; None for anything else."""
    if isinstance(value, ArraySpec):
        return value
    is_shape = isinstance(value, tuple | list) and all(isinstance(extent, int) and not isinstance(extent, bool) for extent in value)
    return ArraySpec(tuple(value)) if is_shape else None


def fits(found: str, declared: str) -> bool:
    """Whether an array of element type `found` may be passed where a kernel declares `declared`."""
    return found == declared or (found == RAW_16_BITS and declared == "bf16") or (declared == "index" and found == "i64")


def view(value: Any, name: str = "the argument") -> ArrayView:
    """See an array. Raises TeselaError for what is no array; `name` is how the message calls it."""
    if type(value) is np.ndarray:
        return _view_numpy(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _view_torch(value, torch, name)
    if isinstance(value, DeviceArray):
        return value.view
    if isinstance(value, np.ma.MaskedArray):
        raise TeselaError.at(None, f"{name} is a masked array, and a kernel knows no masks", "pass its data, or x.filled(value)")
    if isinstance(value, np.ndarray):
        return _view_numpy(value)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None and not _is_jax(value):
        try:
            return _view_cuda_interface(interface, value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TeselaError.at(None, f"the __cuda_array_interface__ of {name} is none: {type(error).__name__}: {error}", "it must follow version 3 of the protocol") from None
    if _is_jax_tracer(value):
        hint = "call kernels outside of jax.jit, grad and vmap, on arrays: a kernel is no primitive of JAX"
        raise TeselaError.at(None, f"{name} is a value that JAX is tracing, and has no memory yet", hint)
    if hasattr(value, "__dlpack__"):
        return _view_dlpack(value, name)
    if hasattr(value, "__array_interface__"):
        return _view_numpy(np.asarray(value))
    raise TeselaError.at(
        None,
        f"{name} is a {type(value).__name__}, but an array is required",
        "pass a NumPy array, a torch tensor, or any array with __cuda_array_interface__ or __dlpack__",
    )


def _view_numpy(array: np.ndarray[Any, Any]) -> ArrayView:
    itemsize = array.itemsize
    dtype = _BY_NUMPY.get(array.dtype)
    strides = array.strides
    if itemsize > 1:
        if all(stride % itemsize == 0 for stride in strides):
            strides = tuple(stride // itemsize for stride in strides)
        else:
            raise TeselaError.at(
                None,
                f"an array has strides of {array.strides} bytes, which are no multiples of its elements' {itemsize} bytes",
                "pass a copy",
            )
    return ArrayView(
        array.ctypes.data,
        array.shape,
        strides,
        dtype if dtype is not None else str(array.dtype),
        itemsize,
        HOST,
        not array.flags.writeable,
        None,
        array,
    )


@cache
def torch_dtypes() -> dict[Any, tuple[str, int]]:
    import torch

    names = {
        "float16": "f16",
        "bfloat16": "bf16",
        "float32": "f32",
        "float64": "f64",
        "float8_e4m3fn": "f8E4M3FN",
        "float8_e5m2": "f8E5M2",
        "uint8": "ui8",
        "bool": "i1",
        "int8": "i8",
        "int16": "i16",
        "int32": "i32",
        "int64": "i64",
    }
    # an older torch may lack some
    return {getattr(torch, theirs): (ours, ELEMENT_TYPES[ours].itemsize) for theirs, ours in names.items() if hasattr(torch, theirs)}


def _view_torch(tensor: Any, torch: Any, name: str) -> ArrayView:
    known = torch_dtypes().get(tensor.dtype)
    dtype, itemsize = known if known is not None else (str(tensor.dtype), tensor.element_size())
    place = tensor.device
    if tensor.is_neg():
        message = f"{name} is a torch tensor whose elements are to be negated when they are read (is_neg), but a plain one is required"
        raise TeselaError.at(None, message, "pass tensor.resolve_neg()")
    if tensor.layout is not torch.strided:
        raise TeselaError.at(None, f"{name} is a tensor of layout {tensor.layout}, but a strided one is required", "pass a dense tensor")
    if place.type == "cuda":
        index = place.index
        stream = torch.cuda.current_stream(index).cuda_stream
    elif place.type == "cpu":
        index, stream = HOST, None
    else:
        raise TeselaError.at(None, f"{name} is a torch tensor on '{place}', but 'cuda' or 'cpu' is required", "move it with .cuda() or .cpu()")
    try:
        address = 0 if _is_fake(tensor) else tensor.data_ptr()
    except RuntimeError:  # of a functional transform
        address = 0
    if address == 0 and tensor.numel():
        hint = "where torch traces or transforms, take an operator: kernel.as_torch_op('mine::name')"
        raise TeselaError.at(None, f"{name} is a tensor that stands for another, as torch.compile and vmap pass them, and has no memory of its own", hint)
    return ArrayView(address, tuple(tensor.shape), tensor.stride(), dtype, itemsize, index, False, stream, tensor)


def _is_fake(tensor: Any) -> bool:
    """Whether a tensor has a shape and no elements (torch warns where such a one is asked for its address)."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def _view_cuda_interface(interface: dict[str, Any], owner: Any) -> ArrayView:
    """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, version 3."""
    kind = np.dtype(interface["typestr"])
    dtype = _BY_NUMPY.get(kind, str(kind))
    shape = tuple(interface["shape"])
    address, readonly = interface["data"]
    strides = interface.get("strides")
    if strides is None:
        strides = dense_strides(shape)
    else:
        strides = tuple(stride // kind.itemsize for stride in strides)
    stream = interface.get("stream")
    if stream is None and (cupy := sys.modules.get("cupy")) is not None and isinstance(owner, cupy.ndarray):
        stream = cupy.cuda.get_current_stream().ptr
    from . import driver

    return ArrayView(address, shape, strides, dtype, kind.itemsize, driver.ordinal_of(address) if address else driver.current_device().ordinal, readonly, stream, owner)


def _is_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _is_jax_tracer(value: Any) -> bool:
    core = sys.modules.get("jax.core")
    return core is not None and isinstance(value, core.Tracer)


class _DLTensor(ctypes.Structure):
    """DLTensor of DLPack (dlpack.h)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack (dlpack.h), since version 1.0."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_DL_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_DL_TYPES = {  # (DLDataTypeCode, bits)
    (2, 16): "f16",
    (4, 16): "bf16",
    (2, 32): "f32",
    (2, 64): "f64",
    (6, 8): "i1",
    (0, 8): "i8",
    (1, 8): "ui8",
    (10, 8): "f8E4M3FN",
    (12, 8): "f8E5M2",
    (0, 16): "i16",
    (0, 32): "i32",
    (0, 64): "i64",
}
_DL_CODES = ("int", "uint", "float", "opaque", "bfloat", "complex", "bool")


_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _view_dlpack(value: Any, name: str) -> ArrayView:
    """Through `__dlpack__`: on a GPU the producer orders its work before what we launch on the legacy default stream (stream=1).
    The unconsumed capsule owns the memory; its destructor gives it back."""
    device_type, _ = value.__dlpack_device__()
    on_gpu = device_type in (_DL_CUDA, _DL_CUDA_MANAGED)
    keywords = {"stream": 1} if on_gpu else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **keywords)
    except TypeError:  # a producer from before DLPack 1.0
        capsule = value.__dlpack__(**keywords)
    readonly = _is_jax(value)  # JAX arrays are immutable, whatever their capsule says
    label = _capsule_name(capsule)
    pointer = _capsule_pointer(capsule, label)
    if label == b"dltensor_versioned":
        managed = _Versioned.from_address(pointer)
        tensor, readonly = managed.tensor, readonly or bool(managed.flags & _DL_READ_ONLY)
    else:
        tensor = _DLTensor.from_address(pointer)
    if tensor.device_type not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED):
        raise TeselaError.at(None, f"{name} lives on a device of DLPack type {tensor.device_type}, but a CUDA GPU or the host is required")
    if tensor.lanes != 1:
        raise TeselaError.at(None, f"{name} has vectors of {tensor.lanes} lanes for elements, but plain elements are required")
    rank = tensor.ndim
    shape = tuple(tensor.shape[:rank])
    strides = tuple(tensor.strides[:rank]) if tensor.strides else dense_strides(shape)
    code = _DL_CODES[tensor.code] if tensor.code < len(_DL_CODES) else "type"
    dtype = _DL_TYPES.get((tensor.code, tensor.bits), f"{code}{tensor.bits}")
    address = (tensor.data or 0) + tensor.byte_offset
    itemsize = max(tensor.bits // 8, 1)
    return ArrayView(
        address, shape, strides, dtype, itemsize, tensor.device_id if on_gpu else HOST, readonly, 1 if on_gpu else None, (value, capsule)
    )


def kept_offset(seen: ArrayView) -> int:
    """The low 8 bits that the address of a host array keeps in any other memory: its offset into the array that it is a view of.

    Where in host memory that base array happens to lie does not matter, so that a kernel takes the same variant each time.
    """
    root = seen.owner
    if not isinstance(root, np.ndarray):
        return 0
    while isinstance(root.base, np.ndarray):
        root = root.base
    return (seen.address - root.__array_interface__["data"][0]) % 256


def host_array(seen: ArrayView) -> np.ndarray[Any, Any]:
    """A host array as a NumPy array over the same memory: the array itself if it is one, else one of raw elements."""
    if isinstance(seen.owner, np.ndarray):
        return seen.owner
    low, high = seen.span()
    strides = tuple(stride * seen.itemsize for stride in seen.strides)
    if low == high:
        return np.empty(seen.shape, f"u{seen.itemsize}")
    raw = (ctypes.c_uint8 * (high - low)).from_address(low)
    array = np.ndarray(seen.shape, f"u{seen.itemsize}", raw, seen.address - low, strides)
    array.flags.writeable = not seen.readonly
    return array


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


class DeviceArray:
    """A dense array in a GPU's memory that this library allocated; `numpy()` copies it to the host, and libraries that read
    `__cuda_array_interface__` take it as it is."""

    def __init__(self, shape: tuple[int, ...], dtype: str, ordinal: int):
        from . import driver

        self.view: ArrayView
        kind = ELEMENT_TYPES[dtype]
        self.nbytes = math.prod(shape) * kind.itemsize
        gpu = driver.device(ordinal)
        with driver.activated(gpu):
            address = driver.allocate(self.nbytes)
        self.view = ArrayView(address, shape, dense_strides(shape), dtype, kind.itemsize, ordinal, False, None, None)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = ELEMENT_TYPES[self.view.dtype]
        return {"shape": self.view.shape, "typestr": kind.str, "data": (self.view.address, False), "strides": None, "version": 3}

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in host memory, once all work on the device is done."""
        from . import driver

        result = np.empty(self.view.shape, ELEMENT_TYPES[self.view.dtype])
        with driver.activated(driver.device(self.view.device)):
            driver.synchronize()
            driver.copy_to_host(result.ctypes.data, self.view.address, self.nbytes)
        return result

    def __del__(self) -> None:
        if not hasattr(self, "view") or sys.is_finalizing():
            return
        from . import driver

        with driver.activated(driver.device(self.view.device)):
            driver.free(self.view.address)


def allocate_like(example: Any, shape: tuple[int, ...], dtype: str, device: int) -> Any:
    """A new dense array, uninitialised, of `example`'s library on the same device: torch, CuPy or NumPy, else a DeviceArray.

    `example` None means NumPy for the host and DeviceArray for a GPU.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(example, torch.Tensor):
        theirs = next(key for key, (ours, _) in torch_dtypes().items() if ours == ("i64" if dtype == "index" else dtype))
        return torch.empty(shape, dtype=theirs, device=example.device)
    if device == HOST:
        return np.empty(shape, ELEMENT_TYPES[dtype])
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(example, cupy.ndarray):
        with cupy.cuda.Device(device):
            return cupy.empty(shape, ELEMENT_TYPES[dtype])
    return DeviceArray(shape, dtype, device)


def clear(seen: ArrayView | None) -> None:
    """Fill a dense array with zeros."""
    if seen is None or 0 in seen.shape:
        return
    if seen.device == HOST:
        host_array(seen).fill(0)
        return
    from . import driver

    low, high = seen.span()
    with driver.activated(driver.device(seen.device)):
        driver.fill_zeros(low, high - low)
