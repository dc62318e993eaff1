"""runtime/arrays.py: arrays of NumPy and of anything with an interface, seen as address, shape, strides and type."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.runtime.arrays import (
    HOST,
    RAW_16_BITS,
    ArrayView,
    allocate_like,
    clear,
    dense_strides,
    fits,
    host_array,
    kept_offset,
    view,
)


def test_numpy_dense():
    array = np.zeros((3, 4), np.float32)
    seen = view(array)
    assert seen.address == array.ctypes.data
    assert (seen.shape, seen.strides, seen.dtype, seen.itemsize) == ((3, 4), (4, 1), "f32", 4)
    assert seen.device == HOST and not seen.readonly and seen.stream is None
    assert seen.span() == (array.ctypes.data, array.ctypes.data + 48)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float16, "f16"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.float32, "f32"),
        (np.float64, "f64"),
        (np.bool_, "i1"),
        (np.int8, "i8"),
        (np.int16, "i16"),
        (np.int32, "i32"),
        (np.int64, "i64"),
        ("V2", RAW_16_BITS),
        (np.uint8, "ui8"),
        (np.uint16, "uint16"),
        (np.complex64, "complex64"),
        (">f4", ">f4"),
    ],
)
def test_numpy_types(dtype, name):
    assert view(np.zeros(2, dtype)).dtype == name


def test_a_saved_bfloat16_array_fits_bf16_only(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4, ml_dtypes.bfloat16))
    seen = view(np.load(tmp_path / "a.npy"))
    assert fits(seen.dtype, "bf16") and not fits(seen.dtype, "f16") and not fits(seen.dtype, "i16")
    assert fits("i64", "index") and not fits("index", "i64") and not fits("f32", "f64")


def test_views_have_strides_in_elements_and_spans_from_the_lowest_byte():
    base = np.zeros((6, 8), np.float32)
    seen = view(base[::-2, 1:5])
    assert seen.strides == (-16, 1)
    start = base.ctypes.data
    assert seen.span() == (start + (1 * 8 + 1) * 4, start + (5 * 8 + 5) * 4)
    assert view(base.T).strides == (1, 8)
    assert view(np.broadcast_to(base[0], (5, 8))).strides == (0, 1)
    assert view(np.broadcast_to(base[0], (5, 8))).readonly


def test_an_empty_array_spans_nothing():
    seen = view(np.zeros((0, 4), np.float32))
    assert seen.span() == (seen.address, seen.address)


def test_strides_between_elements_are_an_error():
    record = np.zeros(4, np.dtype([("a", np.int8), ("b", np.float32)]))
    with pytest.raises(TeselaError, match="which are no multiples of its elements' 4 bytes"):
        view(record["b"])


def test_what_is_no_array():
    with pytest.raises(TeselaError, match="gemm: A is a list, but an array is required"):
        view([1, 2], "gemm: A")


class FromDLPack:
    """A producer of host arrays through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldDLPack(FromDLPack):
    """One from before DLPack 1.0, which knows no max_version."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("producer", [FromDLPack, OldDLPack])
def test_dlpack(producer):
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[:, 1:5]
    seen = view(producer(array))
    assert (seen.address, seen.shape, seen.strides) == (array.ctypes.data, (4, 4), (6, 1))
    assert (seen.dtype, seen.itemsize, seen.device) == ("i32", 4, HOST)
    np.testing.assert_array_equal(host_array(seen), array.view(np.uint32))


def test_dlpack_read_only():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    assert view(FromDLPack(array)).readonly


class FromArrayInterface:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


def test_array_interface():
    array = np.ones(3, np.float64)
    assert view(FromArrayInterface(array)).address == array.ctypes.data


class FromCuda:
    def __init__(self, address, typestr="<f4", strides=None, readonly=False, **more):
        self.__cuda_array_interface__ = {
            "shape": (4, 6), "typestr": typestr, "data": (address, readonly), "strides": strides, "version": 3, **more,
        }  # fmt: skip


def test_cuda_array_interface(monkeypatch):
    monkeypatch.setattr("tesela.runtime.driver.ordinal_of", lambda address: 3 if address == 4096 else 0)
    seen = view(FromCuda(4096, stream=17))
    assert (seen.address, seen.strides, seen.dtype, seen.device, seen.stream) == (4096, (6, 1), "f32", 3, 17)
    seen = view(FromCuda(512, "<f2", (64, 2), True))
    assert (seen.strides, seen.dtype, seen.device, seen.readonly, seen.stream) == ((32, 1), "f16", 0, True, None)


def test_host_array_over_foreign_memory():
    buffer = (ctypes.c_int16 * 6)(*range(6))
    seen = ArrayView(ctypes.addressof(buffer) + 10, (3,), (-2,), "i16", 2, HOST, False, None, buffer)
    array = host_array(seen)
    assert array.tolist() == [5, 3, 1]
    array[0] = 9
    assert buffer[5] == 9
    clear(seen)
    assert list(buffer) == [0, 0, 2, 0, 4, 0]


def test_kept_offset_is_the_offset_into_the_base():
    base = np.zeros(400, np.uint8)
    assert kept_offset(view(base)) == 0
    assert kept_offset(view(base[2:][4:])) == 6
    assert kept_offset(view(base[300:])) == 300 - 256
    assert kept_offset(view(FromDLPack(base[2:]))) == 0


def test_allocate_like_numpy():
    made = allocate_like(np.zeros(1), (2, 3), "bf16", HOST)
    assert made.shape == (2, 3) and made.dtype == ml_dtypes.bfloat16


def test_dense_strides():
    assert dense_strides(()) == ()
    assert dense_strides((5,)) == (1,)
    assert dense_strides((2, 0, 4)) == (0, 4, 1)


def test_masked_arrays_are_refused():
    x = np.ma.masked_array(np.zeros(4, np.float32), [True, False, False, False])
    with pytest.raises(TeselaError) as caught:
        view(x, "k: x")
    (found,) = caught.value.diagnostics
    assert (found.message, found.hint) == ("k: x is a masked array, and a kernel knows no masks", "pass its data, or x.filled(value)")
