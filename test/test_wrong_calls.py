"""Wrong calls of kernels: one exact message each, which names the kernel and the argument, what it was, what is required, and what to do. Nothing
has been launched, or compiled, when it is raised."""

from __future__ import annotations

import inspect
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import ArraySpec, TeselaError
from tesela.runtime.kernel import Kernel

EXAMPLES = Path(__file__).parent.parent / "examples"
BF16 = ml_dtypes.bfloat16
F32, F16, I32, I8, I1, INDEX = tesela.f32, tesela.f16, tesela.i32, tesela.i8, tesela.i1, tesela.index
M, N, K = tesela.dims("M N K")
T = tesela.dtype("T")


@tesela.kernel
def gemm(A: tesela.Array[tesela.bf16, M, K], B: tesela.Array[tesela.bf16, N, K], C: tesela.Array[F32, M, N], BM: tesela.constexpr = 64):
    i, j = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BM))
    acc = tesela.zeros((BM, BM), F32)
    for k in tesela.range(0, K, 64):
        acc += A[i * BM : i * BM + BM, k : k + 64] @ B[j * BM : j * BM + BM, k : k + 64].T
    C[i * BM : i * BM + BM, j * BM : j * BM + BM] = acc


@tesela.kernel
def shift(
    x: tesela.Array[T, N],
    y: tesela.Array[T, N + 1],
    z: tesela.Array[F32, 4, tesela.noalias],
    count: I32,
    small: I8,
    flag: I1,
    at: INDEX,
    scale: F32 = 1.0,
):
    tesela.assume(N % 4 == 0)
    y[0] = x[0]
    z[0] = scale


@tesela.kernel
def pad(x: tesela.Array[F32, N, tesela.align(64)], y: tesela.Array[F32, N // 2, tesela.strides(None)]):
    y[0] = x[0]


@tesela.kernel
def into(x: tesela.Array[F32, N], y: tesela.Array[F32, M]):
    i = tesela.grid(N - 8)
    y[i] = x[i]


def bf16(*shape):
    return np.zeros(shape, BF16)


def f32(*shape):
    return np.zeros(shape, np.float32)


def read_only(array):
    array.flags.writeable = False
    return array


def aligned(count, offset):
    """An f32 array that starts `offset` bytes into another: in any other memory its address keeps that, modulo 256."""
    return np.zeros(4 * count + 128, np.int8)[offset : offset + 4 * count].view(np.float32)


GEMM = "it is gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N])"
SHIFT = "it is shift(x: f32[N], y: f32[N + 1], z: f32[4], count: i32, small: i8, flag: i1, at: index, scale: f32)"
OUTPUTS = "only arrays that the kernel writes and does not read may be left out"
ARRAYS = "pass a NumPy array, a torch tensor, or any array with __cuda_array_interface__ or __dlpack__"


def shifted(**changes):
    """A call of `shift` that is right but for the changes."""
    values = {"x": f32(8), "y": f32(9), "z": f32(4), "count": 1, "small": 1, "flag": True, "at": 0} | changes
    return shift(**values, device="sim")


class Stranger:
    """No array, for all that one can see."""


class OnGPU:
    """An array on a GPU, by its interface."""

    def __init__(self, shape, typestr="<f4"):
        self.dtype = np.dtype(typestr)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (1 << 20, False), "strides": None, "version": 3}


WRONG = {
    # Which arguments
    "none": (lambda: gemm(device="sim"), "gemm: argument 'A' is missing", f"{GEMM}; {OUTPUTS}"),
    "too few": (lambda: gemm(bf16(8, 64), device="sim"), "gemm: argument 'B' is missing", f"{GEMM}; {OUTPUTS}"),
    "too many": (
        lambda: gemm.compile()(bf16(8, 64), bf16(8, 64), f32(8, 8), 3, device="sim"),
        "gemm: 4 arguments were given, but it takes 3",
        GEMM,
    ),
    "a name that there is not": (
        lambda: gemm(bf16(8, 64), D=bf16(8, 64), device="sim"),
        "gemm has no parameter D",
        "it has A, B, C, BM",
    ),
    "a name that a loaded kernel has not": (
        lambda: gemm.compile()(bf16(8, 64), D=bf16(8, 64), device="sim"),
        "gemm: there is no argument 'D'",
        GEMM,
    ),
    "twice": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), A=bf16(8, 64), device="sim"),
        "gemm: argument 'A' was given twice, by position and by name",
        None,
    ),
    "a scalar missing": (
        lambda: shift(f32(8), f32(9), f32(4), 1, 1, True, device="sim"),
        "shift: argument 'at' is missing",
        f"{SHIFT}; {OUTPUTS}",
    ),
    "an output of unknown extent": (
        lambda: into(f32(16), device="sim"),
        "into: argument 'y' cannot be left out: M is the extent of no array that was given",
        "it is into(x: f32[N], y: f32[M])",
    ),
    # What is no array
    "a list": (lambda: gemm([[1.0]], bf16(8, 64), device="sim"), "gemm: A is a list, but an array is required", ARRAYS),
    "a number": (lambda: gemm(3, bf16(8, 64), device="sim"), "gemm: A is a int, but an array is required", ARRAYS),
    "an object": (lambda: gemm(Stranger(), bf16(8, 64), device="sim"), "gemm: A is a Stranger, but an array is required", ARRAYS),
    # Element types
    "another type": (
        lambda: gemm(f32(8, 64), bf16(8, 64), device="sim"),
        "gemm: A has element type f32, but bf16 is required",
        "convert it to bfloat16",
    ),
    "f16 for bf16": (
        lambda: gemm(np.zeros((8, 64), np.float16), bf16(8, 64), device="sim"),
        "gemm: A has element type f16, but bf16 is required",
        "convert it to bfloat16",
    ),
    "complex": (
        lambda: gemm(np.zeros((8, 64), np.complex64), bf16(8, 64), device="sim"),
        "gemm: A has element type complex64, but bf16 is required",
        "convert it to bfloat16",
    ),
    "an output of another type": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), np.zeros((8, 8)), device="sim"),
        "gemm: C has element type f64, but f32 is required",
        "convert it to float32",
    ),
    "two types for one variable": (
        lambda: shifted(y=np.zeros(9, np.float16)),
        "shift: y has elements of type f16, but x has f32",
        "both are stated as T",
    ),
    "a type that is none": (
        lambda: shifted(x=np.zeros(8, np.complex64), y=np.zeros(9, np.complex64)),
        "shift: x has elements of type complex64, which is no element type",
        "name the type: T=tesela.bf16",
    ),
    # Shapes
    "another rank": (
        lambda: gemm(bf16(64), bf16(8, 64), device="sim"),
        "gemm: A has 1 dimension (64,), but 2 [M, K] are required",
        None,
    ),
    "a scalar for an array": (
        lambda: gemm(np.zeros((), BF16), bf16(8, 64), device="sim"),
        "gemm: A has 0 dimensions (), but 2 [M, K] are required",
        None,
    ),
    "extents that differ": (
        lambda: gemm(bf16(8, 64), bf16(8, 63), device="sim"),
        "gemm: B has K = 63, but A has K = 64",
        "A[M, K] is (8, 64); B[N, K] is (8, 63)",
    ),
    "an output that is too small": (
        lambda: gemm(bf16(8, 64), bf16(9, 64), f32(8, 8), device="sim"),
        "gemm: C has N = 8, but B has N = 9",
        "A[M, K] is (8, 64); B[N, K] is (9, 64); C[M, N] is (8, 8)",
    ),
    "an extent that is an expression": (
        lambda: shifted(y=f32(8)),
        "shift: y has extent 8 in dimension 0, but N + 1 = 9 is required",
        "x[N] is (8,); y[N + 1] is (8,); z[4] is (4,)",
    ),
    "a fixed extent": (
        lambda: shifted(z=f32(5)),
        "shift: z has extent 5 in dimension 0, but 4 is required",
        "x[N] is (8,); y[N + 1] is (9,); z[4] is (5,)",
    ),
    "what the program assumes": (
        lambda: shifted(x=f32(6), y=f32(7)),
        "shift: N = 6 (of x), but a multiple of 4 is required",
        "the program states it; pad the array, or take the statement out",
    ),
    "a grid of less than nothing": (
        lambda: into(f32(4), f32(4), device="sim"),
        "into: the grid's coordinate 0 is N - 8 = -4, but 0 to 2147483647 is required",
        "with N = 4, M = 4",
    ),
    # Strides, places, promises
    "columns": (
        lambda: gemm(bf16(64, 8).T, bf16(8, 64), device="sim"),
        "gemm: A has stride 8 in dimension 1, but 1 is required (in elements)",
        "pass a contiguous copy, or leave that stride open in the signature: None in strides(…), in IR '?'",
    ),
    "every second": (
        lambda: shifted(x=f32(16)[::2]),
        "shift: x has stride 2 in dimension 0, but 1 is required (in elements)",
        "pass a contiguous copy, or leave that stride open in the signature: None in strides(…), in IR '?'",
    ),
    "strides that are no multiples": (
        lambda: pad(f32(8), np.zeros(24, np.int8)[:20].view(np.dtype({"names": ["a"], "formats": ["<f4"], "itemsize": 5}))["a"], device="sim"),
        "an array has strides of (5,) bytes, which are no multiples of its elements' 4 bytes",
        "pass a copy",
    ),
    "an output that shares memory": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), np.lib.stride_tricks.as_strided(f32(8), (8, 8), (0, 4)), device="sim"),
        "gemm: C has stride 0 in dimension 0 of extent 8: its elements share memory, but the kernel writes them",
        "pass an array of its own memory",
    ),
    "a read-only output": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), read_only(f32(8, 8)), device="sim"),
        "gemm: C is read-only, but the kernel writes it",
        "pass a writable copy",
    ),
    "a broadcast output": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), np.broadcast_to(np.float32(0), (8, 8)), device="sim"),
        "gemm: C is read-only, but the kernel writes it",
        "pass a writable copy",
    ),
    "an address that is not aligned": (
        lambda: pad(aligned(8, 16), f32(4), device="sim"),
        "pad: x starts at an address that is 16 modulo 64, but a multiple of 64 is required",
        "the program states it (align); pass a copy, or take the statement out (`tesela compile` states it, unless told `--assume nothing`)",
    ),
    "an overlap that is excluded": (
        lambda: (lambda base: shifted(y=base[:9], z=base[5:9]))(f32(9)),
        "shift: z overlaps y in memory, but the program states that it is noalias",
        "pass a copy, or take the statement out",
    ),
    "an array on a GPU, in the simulator": (
        lambda: shifted(x=OnGPU((8,)), y=OnGPU((9,)), z=OnGPU((4,))),
        "shift: x is in GPU 0, but the simulator takes arrays in host memory",
        "copy the arrays to the host",
    ),
    "arrays in two places": (
        lambda: shifted(y=OnGPU((9,))),
        "shift: y is in GPU 0, but x is in host memory",
        "move all arrays to one place",
    ),
    # Scalars
    "text for a number": (lambda: shifted(count="1"), "shift: count is a str, but a number is required (i32)", None),
    "an array for a number": (lambda: shifted(count=f32(2)), "shift: count is a ndarray, but a number is required (i32)", None),
    "a float for an integer": (lambda: shifted(count=1.5), "shift: count = 1.5 is a float, but an integer is required (i32)", None),
    "an integer that is too large": (
        lambda: shifted(count=2**31),
        "shift: count = 2147483648 does not fit i32, which holds -2147483648 to 2147483647",
        None,
    ),
    "an integer that is too small": (lambda: shifted(small=-129), "shift: small = -129 does not fit i8, which holds -128 to 127", None),
    "an index that is too large": (
        lambda: shifted(at=2**63),
        f"shift: at = {2**63} does not fit index, which holds {-(2**63)} to {2**63 - 1}",
        None,
    ),
    "a truth value of two": (lambda: shifted(flag=2), "shift: flag = 2 does not fit i1, which holds 0 to 1", None),
    "a complex scalar": (lambda: shifted(scale=1j), "shift: scale is a complex, but a number is required (f32)", None),
    # Compile-time values, devices, targets
    "a constant twice": (lambda: gemm(bf16(8, 64), bf16(8, 64), f32(8, 8), 64, BM=32, device="sim"), "gemm: BM is given twice", None),
    "more than there are": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), f32(8, 8), 64, 5, device="sim"),
        "gemm has 4 parameters, found 5 arguments",
        None,
    ),
    "an array for a constant": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), f32(8, 8), f32(2), device="sim"),
        "gemm: BM cannot be a compile-time value: array([0., 0.], dtype=float32)",
        "a number, a string, an element type, a function, None, or a tuple of those",
    ),
    "None for an array": (
        lambda: gemm(bf16(8, 64), None, f32(8, 8), device="sim"),
        "gemm: argument 'B' is None",
        f"{GEMM}; {OUTPUTS}",
    ),
    "None for an array, by name": (
        lambda: gemm(bf16(8, 64), B=None, device="sim"),
        "gemm: argument 'B' is None",
        f"{GEMM}; {OUTPUTS}",
    ),
    "None for an array that says a type": (
        lambda: shift(None, count=1, small=1, flag=True, at=0, device="sim"),
        "shift: argument 'x' is None",
        "pass an array, or name its type: T=tesela.bf16",
    ),
    "an unknown device": (lambda: gemm(bf16(8, 64), bf16(8, 64), device="gpu"), "gemm: unknown device 'gpu'", "it is one of auto, cuda, sim"),
    "an unknown target": (
        lambda: gemm(bf16(8, 64), bf16(8, 64), target="sm_90b", device="sim"),
        "unknown target 'sm_90b'",
        "did you mean sm_90? known targets: sm_80, sm_90, sm_90a",
    ),
    "a target that is none, of a GPU that there is": (
        lambda: gemm.compile("sm_89"),
        "unknown target 'sm_89'",
        "a GPU of compute capability 8.0 or higher runs what is compiled for sm_80, and export(archs=…) assembles it for others; known targets: sm_80, sm_90, sm_90a",
    ),
    "a quotient as an extent": (
        lambda: tesela.dims("N") / 2,
        "N / 2 is no dimension: / gives a float, and an extent is an integer",
        "write //, or tesela.ceildiv (arrays of elements smaller than a byte have their extents in elements, not in bytes)",
    ),
    "PTX as a level": (
        lambda: gemm.compile().ir("ptx"),
        "unknown level 'ptx'",
        "levels: tile, async, layout, schedule, ptx-ir; the text of the PTX is .ptx, and --emit ptx on the command line",
    ),
    "an unknown level": (
        lambda: gemm.compile().ir("assembly"),
        "unknown level 'assembly'",
        "levels: tile, async, layout, schedule, ptx-ir",
    ),
    "a shape of another rank, ahead of time": (
        lambda: gemm.warmup((8,), (8, 64), device="sim"),
        "gemm: A has 1 dimension (8,), but 2 [M, K] are required",
        None,
    ),
    "a stated type, ahead of time": (
        lambda: gemm.warmup(ArraySpec((8, 64), F16), (8, 64), device="sim"),
        "gemm: A has element type f16, but bf16 is required",
        "convert it to bfloat16",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name, monkeypatch):
    monkeypatch.setattr("tesela.runtime.driver.ordinal_of", lambda address: 0)
    monkeypatch.setattr(Kernel, "prepare", _not_too_late(Kernel.prepare))
    call, message, hint = WRONG[name]
    with pytest.raises(TeselaError) as caught:
        call()
    (found,) = caught.value.diagnostics
    assert (found.message, found.hint) == (message, hint)
    assert found.severity == "error"


def _not_too_late(prepare):
    """`Kernel.prepare` makes the checks that need addresses; past them nothing may come of a wrong call."""

    def checked(*args):
        call = prepare(*args)
        raise AssertionError(f"a wrong call was prepared: {call}")

    return checked


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("two types for one variable", "y: tesela"),
        ("a type that is none", "x: tesela"),
        ("a constant twice", "BM: tesela"),
        ("an array for a constant", "BM: tesela"),
    ],
)
def test_errors_about_a_parameter_stand_at_it(name, parameter):
    with pytest.raises(TeselaError) as caught:
        WRONG[name][0]()
    place = caught.value.diagnostics[0].location
    line = inspect.getsource(inspect.getmodule(bf16)).splitlines()[place.line - 1]
    assert place.file == __file__ and line[place.column - 1 :].startswith(parameter)


def test_right_calls_pass():
    """What the wrong ones are variations of."""
    assert gemm(bf16(8, 64), bf16(8, 64), device="sim").shape == (8, 8)
    assert shifted() is None
    assert pad(aligned(8, 0), f32(4), device="sim") is None
    assert into(f32(16), f32(16), device="sim") is None
