"""Helpers of the simulator's tests: kernels from a few lines of PTX, and single instructions evaluated on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tesela.dialects.ptx_program import Program
from tesela.dialects.ptx_text import read_program
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


def run(
    text: str | Program,
    *arrays: Array,
    scalars: Sequence[Any] = (),
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    shared: int = 0,
    **options: Any,
) -> RunResult:
    """Launches the only kernel of a program on arrays (mapped in place), then scalars."""
    memory = Memory()
    params = [memory.map_array(a) for a in arrays] + list(scalars)
    return launch(text, grid=grid, block=block, params=params, memory=memory, shared_bytes=shared, **options)


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


def program(text: str) -> Program:
    return read_program(text)


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


def bits(values: Mapping[str, int] | Sequence[int], dtype: Any = np.uint32) -> Array:
    return np.array(values, dtype)
