"""Generated launchers: for each way a kernel is called a Python function that does nothing but what differs from call to call.

A launch costs a few microseconds in the driver, and as much again in a launcher written for all kernels, which loops over arguments, asks
what each is, and packs what it may pack. So a kernel gets a function written for it, for the number and kinds of its arguments, as text that
is compiled once. For `softmax(x, y)` on two torch tensors it reads

    def make(type_0, dtype_0, …, launch, …):
        def launcher(a0=None, a1=None, /, *more, device=None, stream=None, **named):
            try:
                if more or named or device is not None or not same(a0, a1) and (
                    type(a0) is not type_0 or a0.dtype is not dtype_0 or a0.shape != shape_0 or a0.stride() != strides_0
                    or a0.device != place or a0.is_neg()
                    or … a1 …
                ):
                    return other(launcher, (a0, a1, *more), named, device, stream)
                addresses = (a0.data_ptr(), a1.data_ptr(), )
            except (AttributeError, RuntimeError):
                return other(launcher, (a0, a1, *more), named, device, stream)
            block = blocks.get(addresses)
            if block is None:
                block = new_block(addresses)
                if block is None:
                    return other(launcher, (a0, a1, *more), named, device, stream)
            if stream is None:
                stream = stream_of(gpu)
            elif type(stream) is not int:
                stream = handle(stream)
            config = configs.get(stream) or new_config(stream)
            status = launch(config, function, block, None) if not observers else observed(block, stream)
            if status:
                return failed(status, (a0, a1), stream)
            state.latest = variant
            return None
        return launcher

`make` is called for each combination of types, shapes, strides and device that the kernel met, and gives a launcher for it (a closure).
**What a launcher takes for granted** is what `shortcuts.py` found true of a call with the very same metadata; and all of it is compared
each time, since a tensor's shape, strides, element type and memory can be changed in place. `same` does so in one call where torch has such a
function (`torch_guard.py`); what it does not accept, the conditions after it may. What depends on addresses, their
alignment and whether a written array overlaps another, was looked at when the block of parameters for these very addresses was made.
Blocks are complete when others see them and are never changed; scalars are the exception: then `blocks` holds, for each combination
of addresses, a list of blocks that are not in use. So nothing is locked, and threads launch side by side.

`Kernel.launcher_source` shows the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .contract import INTEGER_RANGES

F32_MAX = 3.4028234663852886e38
INVALID_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT."""


@dataclass(frozen=True)
class Library:
    """How a launcher looks at the arrays of a library. In the texts {i} stands for the argument's number. `checks`: conditions under which
    an array is not like the one remembered; `address`: where its memory is."""

    name: str
    checks: tuple[str, ...]
    address: str


TORCH = Library(
    "torch",
    (
        "type(a{i}) is not type_{i}",
        "a{i}.dtype is not dtype_{i}",
        "a{i}.shape != shape_{i}",
        "a{i}.stride() != strides_{i}",
        "a{i}.device != place",
        "a{i}.is_neg()",
    ),
    "a{i}.data_ptr()",
)
CUPY = Library(
    "cupy",
    (
        "type(a{i}) is not type_{i}",
        "a{i}.dtype != dtype_{i}",
        "a{i}.shape != shape_{i}",
        "a{i}.strides != strides_{i}",
        "a{i}.device != place",
    ),
    "a{i}.data.ptr",
)
LIBRARIES = {library.name: library for library in (TORCH, CUPY)}


@dataclass(frozen=True)
class Given:
    """One argument of a pattern. `kind`: 'array' of `library`; 'made' of it for an output that is left out; or 'scalar' of element type
    `dtype`, at `offset` in a block (None: no parameter passes it)."""

    kind: str
    library: str = ""
    dtype: str = ""
    offset: int | None = None


def launcher_source(name: str, pattern: Sequence[Given], given: int, lends: bool = False) -> str:
    """The text of `make` for a kernel called `name`, of whose arguments the first `given` are passed. `lends`: whether a launch needs memory of its own,
    which depends on the stream (workspace.py)."""
    arguments = [f"a{i}" for i in range(given)]
    again = f"return other(launcher, ({', '.join([*arguments, '*more'])}), named, device, stream)"
    unlike = ["more", "named", "device is not None"]
    checks: list[str] = []
    arrays: list[str] = []
    makes: list[str] = []
    addresses: list[str] = []
    scalars: list[str] = []
    constants: list[str] = []
    for i, one in enumerate(pattern):
        if one.kind == "scalar":
            unlike.append(f"a{i} is None")
            scalars += _scalar_lines(i, one)
            continue
        if one.kind == "made":
            if i < given:
                unlike.append(f"a{i} is not None")
            makes.append(f"a{i} = make_{i}()")
            constants.append(f"make_{i}")
        else:
            arrays.append(f"a{i}")
            checks.append(" or ".join(LIBRARIES[one.library].checks).format(i=i))
            constants += [f"{what}_{i}" for what in ("type", "dtype", "shape", "strides")]
        addresses.append(LIBRARIES[one.library].address.format(i=i))
    condition = " or ".join(unlike)
    looks = [f"            if {condition}:"]
    if arrays:
        guard = f"not same({', '.join(arrays)}) and " if all(one.library == TORCH.name for one in pattern if one.kind == "array") else ""
        looks = [f"            if {condition} or {guard}(", *[f"                {'or ' if n else ''}{check}" for n, check in enumerate(checks)], "            ):"]
    made = [f"a{i}" for i, one in enumerate(pattern) if one.kind == "made"]
    found, kind = ("free", "pool") if scalars else ("block", "block")
    lines = [
        f"def make({', '.join([*constants, *COMMON])}):",
        f"    def launcher({''.join(f'{a}=None, ' for a in arguments)}{'/, ' if arguments else ''}*more, device=None, stream=None, **named):",
        f'        """{name}: {", ".join(_said(i, one) for i, one in enumerate(pattern))}"""',
        "        try:",
        *looks,
        f"                {again}",
        *[f"            {line}" for line in makes],
        f"            addresses = ({''.join(f'{address}, ' for address in addresses)})",
        "        except (AttributeError, RuntimeError):",
        f"            {again}",
    ]
    at_stream = ["        if stream is None:", "            stream = stream_of(gpu)", "        elif type(stream) is not int:", "            stream = handle(stream)"]
    if lends:
        lines += [
            *at_stream,
            "        lent = lend(stream)",
            "        if not lent:",
            f"            return failed({INVALID_CONTEXT}, ({''.join(f'{a}, ' for a in arguments)}), stream)",
            "        addresses += lent",
        ]
    lines += [
        f"        {found} = blocks.get(addresses)",
        f"        if {found} is None:",
        f"            {found} = new_{kind}(addresses)",
        f"            if {found} is None:",
        f"                {again}",
        *(() if lends else at_stream),
    ]
    if scalars:
        lines += [
            "        try:",
            "            block = free.pop()",
            "        except IndexError:",
            "            block = fresh_block(addresses)",
            *[f"        {line}" for line in scalars],
        ]
    lines += [
        "        config = configs.get(stream) or new_config(stream)",
        "        status = launch(config, function, block, None) if not observers else observed(block, stream)",
    ]
    if scalars:
        lines.append("        free.append(block)")
    result = "None" if not made else made[0] if len(made) == 1 else f"({', '.join(made)})"
    lines += [
        "        if status:",
        f"            return failed(status, ({''.join(f'{a}, ' for a in arguments)}), stream)",
        "        state.latest = variant",
        f"        return {result}",
        "    return launcher",
    ]
    return "\n".join(lines) + "\n"


COMMON = (
    "other", "same", "place", "gpu", "blocks", "new_block", "new_pool", "fresh_block", "stream_of", "handle", "configs", "new_config", "launch", "function", "observers",
    "observed", "failed", "state", "variant", "check_scalar", "pack_scalar", "pack_i32", "pack_i64", "pack_f32", "pack_f64", "lend",
)  # fmt: skip
"""What every launcher is made with; see `shortcuts.py`."""

_PACKERS = {"i32": "pack_i32", "i64": "pack_i64", "index": "pack_i64", "f32": "pack_f32", "f64": "pack_f64"}


def _scalar_lines(i: int, one: Given) -> list[str]:
    """Check a scalar and put it into the block: at once where it is a plain number that fits, else by the contract's and the packer's rules."""
    checked = f"check_scalar({i}, a{i})"
    if one.offset is None:
        return [checked]
    slow = f"pack_scalar(block, {one.offset}, {one.dtype!r}, {checked})"
    packer = _PACKERS.get(one.dtype)
    if packer is None:
        return [slow]
    if one.dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[one.dtype]
        fits = f"type(a{i}) is int and {low} <= a{i} <= {high}"
    else:
        fits = f"type(a{i}) is float" + (f" and {-F32_MAX!r} <= a{i} <= {F32_MAX!r}" if one.dtype == "f32" else "")
    return [f"if {fits}:", f"    {packer}(block, {one.offset}, a{i})", "else:", f"    {slow}"]


def _said(i: int, one: Given) -> str:
    if one.kind == "scalar":
        return f"a{i} a number ({one.dtype})"
    return f"a{i} {'made' if one.kind == 'made' else 'an array'} by {one.library}"


@lru_cache(maxsize=1024)
def compiled(source: str) -> Any:
    """The function that a text from `launcher_source` defines; compiled once."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<tesela launcher>", "exec"), namespace)
    return namespace["make"]
