"""Helpers of the simulator's tests: kernels from a few lines of PTX, and single instructions evaluated on arrays."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tesela.dialects.launch_plan import TensorMap
from tesela.dialects.ptx_program import Program
from tesela.dialects.ptx_text import print_program, read_program
from tesela.simulator import Memory, RunResult, launch

Array = NDArray[Any]

PRELUDE = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""

_CLASSES = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}


def kernel(body: str, params: Sequence[str] = ("x",), registers: str = "", attributes: str = "") -> str:
    """A kernel named k with 64-bit parameters; a parameter "name:type" has another type, "name:map" holds a tensor map. Registers
    %r0-31 (b32), %d0-15 (b64), %h0-7 (b16), %f0-31 (b32) and %p0-7 are declared; the parameters of 64 bits are loaded into %NAME,
    the linear thread number into %t and the shared base into %s."""
    declared: list[str] = []
    loads: list[str] = []
    for param in params:
        name, _, type = param.partition(":")
        if type == "map":
            declared.append(f".param .align 64 .b8 {name}[128]")
            loads.append(f".reg .b64 %{name}; mov.b64 %{name}, {name}; cvta.param.u64 %{name}, %{name};")
        else:
            kind = type or "b64"
            declared.append(f".param .{kind} {name}")
            loads.append(f".reg .{kind} %{name}; ld.param.{kind} %{name}, [{name}];")
    return f"""{PRELUDE}
.visible .entry k({", ".join(declared)})
{attributes}
{{
  .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .b16 %h<8>; .reg .f32 %f<32>; .reg .pred %p<8>; .reg .b32 %t, %s;
  {registers}
  {" ".join(loads)}
  mov.u32 %t, %tid.x; mov.u32 %s, smem;
  {body}
  ret;
}}
"""


@dataclass
class MapOf:
    """A tensor map of a C-contiguous array as a kernel's argument; `dims` (innermost first) may be less than the array's extents."""

    array: Array
    box: tuple[int, ...]
    dims: tuple[int, ...] | None = None
    swizzle: int = 0
    dtype: str = "bf16"
    fill: str = "zero"
    steps: tuple[int, ...] | None = None

    def at(self, address: int) -> TensorMap:
        """The map with the array at an address."""
        array = self.array
        dims, steps = self.dims or array.shape[::-1], self.steps or (1,) * array.ndim
        return TensorMap(self.dtype, address, dims, array.strides[-2::-1], self.box, steps, self.swizzle, self.fill)


DEVICE = "simulator"
"""Where `run` runs; 'cuda' in the tests that check the simulator's definitions on a GPU."""


def run(
    text: str | Program,
    *arrays: Array | MapOf,
    scalars: Sequence[Any] = (),
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    shared: int = 0,
    **options: Any,
) -> RunResult:
    """Launches the only kernel of a program on arrays (mapped in place) and tensor maps, then scalars."""
    if DEVICE == "cuda":
        _run_on_gpu(text if isinstance(text, str) else print_program(text), arrays, scalars, grid, block, shared)
        return RunResult()
    memory = Memory()
    params: list[Any] = [
        a.at(memory.map_array(a.array)) if isinstance(a, MapOf) else memory.map_array(a) for a in arrays
    ]
    params += scalars
    return launch(text, grid=grid, block=block, params=params, memory=memory, shared_bytes=shared, **options)


def _run_on_gpu(
    text: str,
    arrays: Sequence[Array | MapOf],
    scalars: Sequence[Any],
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
) -> None:
    """The same on a GPU: arrays are copied there and back. Blocks have one dimension."""
    from tesela.runtime import driver
    from tesela.runtime.assemble import assemble

    gpu = driver.current_device()
    entry = read_program(text).entries[0]
    if 0 in grid:
        return
    with driver.activated(gpu):
        module, _ = driver.load_module(assemble(text, gpu.arch, line_info=False).image, True)
        held: list[tuple[Array, int]] = []
        values: list[bytes] = []
        for argument in arrays:
            array = argument.array if isinstance(argument, MapOf) else argument
            address = driver.allocate(max(256, array.nbytes))
            driver.copy_to_device(address, array.ctypes.data, array.nbytes)
            held.append((array, address))
            value = (
                driver.encode_tensor_map(argument.at(address))
                if isinstance(argument, MapOf)
                else struct.pack("<Q", address)
            )
            values.append(value)
        for declared, scalar in zip(entry.params[len(arrays) :], scalars, strict=True):
            size = {"b64": 8, "b32": 4, "b16": 2}[declared.type]
            values.append((int(scalar) & ((1 << (8 * size)) - 1)).to_bytes(size, "little"))
        buffer = ctypes.create_string_buffer(len(values) * 128 + 64)
        base = -(-ctypes.addressof(buffer) // 64) * 64  # tensor maps are aligned to 64 bytes
        pointers = (ctypes.c_void_p * len(values))(*(base + 128 * k for k in range(len(values))))
        for k, value in enumerate(values):
            ctypes.memmove(base + 128 * k, value, len(value))
        function = driver.get_function(module, entry.name, shared)
        x, y, z = (*grid, 1, 1)[:3]
        status = driver.Launcher(function, (x, y, z), block[0], shared).status(0, pointers)
        if status != 0:
            raise driver.launch_failure(status)
        driver.synchronize()
        for array, address in held:
            if array.flags.writeable and array.nbytes:
                driver.copy_to_host(array.ctypes.data, address, array.nbytes)
            driver.free(address)


def evaluate(code: str, inputs: Sequence[Any], output: Any, registers: str = "", **options: Any) -> Array:
    """Runs `code` once per element of the inputs, which it finds in %a, %b, %c, %e (predicates for boolean arrays), and gives
    the array of what it leaves in %d (a predicate for output bool)."""
    arrays = [np.ascontiguousarray(a) for a in inputs]
    count = max(len(a) for a in arrays)
    arrays = [np.ascontiguousarray(np.broadcast_to(a, count)) for a in arrays]
    result = np.zeros(count, np.uint32 if output is bool else output)
    lines: list[str] = [registers]
    for name, array in zip("abce", arrays):
        size = array.dtype.itemsize
        load = f"mul.wide.u32 %o, %i, {size}; add.s64 %q, %q, %o; ld.global.{'u8' if size == 1 else f'b{8 * size}'}"
        if array.dtype == bool:
            lines.append(f".reg .pred %{name}; ld.param.b64 %q, [{name}]; {load} %w, [%q]; setp.ne.s32 %{name}, %w, 0;")
        else:
            lines.append(f".reg .{_CLASSES[size]} %{name}; ld.param.b64 %q, [{name}]; {load} %{name}, [%q];")
    size = result.dtype.itemsize
    if output is bool:
        lines.append(f".reg .pred %d; .reg .b32 %v; {code} selp.b32 %v, 1, 0, %d;")
        stored = "%v"
    else:
        lines.append(f".reg .{_CLASSES[size]} %d; {code}")
        stored = "%d"
    lines.append(
        f"mul.wide.u32 %o, %i, {size}; ld.param.b64 %q, [z]; add.s64 %q, %q, %o; st.global.b{8 * size} [%q], {stored};"
    )
    body = "\n  ".join(lines)
    params = ", ".join(f".param .b64 {name}" for name in [*"abce"[: len(arrays)], "z"])
    text = f"""{PRELUDE}
.visible .entry k({params}, .param .b32 n)
{{
  .reg .b32 %i, %n, %w; .reg .b64 %o, %q; .reg .pred %stop;
  mov.u32 %i, %ctaid.x; mad.lo.s32 %i, %i, 128, 0; mov.u32 %w, %tid.x; add.s32 %i, %i, %w; ld.param.b32 %n, [n];
  setp.ge.u32 %stop, %i, %n; @%stop bra $END;
  {body}
$END:
  ret;
}}
"""
    blocks = -(-count // 128)
    run(text, *arrays, result, scalars=[count], grid=(blocks,), block=(128,), **options)
    return result.astype(bool) if output is bool else result


FLOATS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        0.1,
        -3.25,
        1e-40,
        -1e-45,
        3e38,
        -3e38,
        np.inf,
        -np.inf,
        np.nan,
        2.0**-126,
        65504.0,
        1e5,
        2.0**-24,
    ],
    np.float32,
)
"""Numbers at which float rules differ: zeros of both signs, subnormals, extremes, infinities, NaN."""


def pairs(values: Array) -> tuple[Array, Array]:
    """All ordered pairs of `values` as two arrays."""
    return np.repeat(values, len(values)), np.tile(values, len(values))


def same_floats(got: Array, want: Array) -> bool:
    """Bit for bit the same, where all NaN count as one."""
    raw = np.dtype(f"u{got.dtype.itemsize}")
    bits = got.view(raw) == np.ascontiguousarray(want).view(raw)
    with np.errstate(invalid="ignore"):
        nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    return bool((bits | nan).all())
