"""The short way through a call whose like was made before: no views, no checks, one look-up, one launch.

A call on GPU arrays of torch or CuPy is summed up in a key: of each array its element type, shape, strides, device and the low bits of
its address. An earlier call with an equal key passed every check of the contract, and took a variant and a prepared launch that fit
this one as well. What the key cannot tell is looked at each time: whether a written array overlaps another, and what
scalars hold. Whatever is out of the ordinary answers MISSED, and the call goes the long way (`kernel.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import driver
from .arrays import ArrayView, allocate_like
from .contract import Contract
from .launch import Call, Variant

MISSED = object()
"""The answer for a call that must go the long way."""

MAX_ENTRIES = 1024
"""Keys that a kernel remembers; forgotten all at once when there are more."""


def _read_torch(tensor: Any) -> tuple[int, Hashable]:
    return tensor.data_ptr(), (tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device())


def _read_cupy(array: Any) -> tuple[int, Hashable]:
    return array.data.ptr, (array.dtype, array.shape, array.strides, array.device.id)


_READERS: dict[type, Callable[[Any], tuple[int, Hashable]]] = {}
"""By the arrays' exact type: (address, everything else that matters). Filled as types are met."""


def _reader(kind: type) -> Callable[[Any], tuple[int, Hashable]] | None:
    """The reader of an array type, if it is one of the libraries that are known here."""
    found = _READERS.get(kind)
    if found is None:
        for module, name, read in (("torch", "Tensor", _read_torch), ("cupy", "ndarray", _read_cupy)):
            base = getattr(sys.modules.get(module), name, None)
            if isinstance(base, type) and issubclass(kind, base):
                found = _READERS[kind] = read
    return found


@dataclass(slots=True)
class _Entry:
    """`pairs`: (i, j, bytes before and after the address of each) of arrays that must not overlap; `makers`: outputs to allocate."""

    call: Call
    function: Any
    stream: Callable[[], int]
    pairs: tuple[tuple[int, int, int, int, int, int], ...]
    scalars: tuple[int, ...]
    makers: tuple[tuple[int, Callable[[], Any]], ...]


class Shortcuts:
    """The remembered calls of one kernel. `mask`: the low bits of an address that matter."""

    def __init__(self, contract: Contract, mask: int):
        self._contract = contract
        self._mask = mask
        self._count = len(contract.args)
        self._entries: dict[tuple[Hashable, ...], _Entry] = {}
        self.latest: Variant | None = None
        """The variant that was launched latest, the short way or the long."""

    def run(self, args: Sequence[Any]) -> Any:
        """Launch, if a like call was made before: what `Kernel.__call__` returns, or MISSED."""
        if not self._entries:
            return MISSED
        key: list[Hashable] = []
        values: list[Any] = []
        mask = self._mask
        for arg in args:
            read = _READERS.get(type(arg))
            if read is not None:
                address, rest = read(arg)
                key.append(rest)
                key.append(address & mask)
                values.append(address)
            else:
                key.append(None if arg is None else 0)
                values.append(arg)
        entry = self._entries.get(tuple(key))
        if entry is None:
            return MISSED
        made: list[Any] = []
        if entry.makers:
            values += [None] * (self._count - len(values))
            for i, make in entry.makers:
                output = make()
                address, _ = _READERS[type(output)](output)
                if address & mask:
                    return MISSED
                values[i] = address
                made.append(output)
        for i in entry.scalars:
            values[i] = self._contract.check_scalar(i, values[i])
        for i, j, low_i, high_i, low_j, high_j in entry.pairs:
            if values[i] + low_i < values[j] + high_j and values[j] + low_j < values[i] + high_i:
                return MISSED
        status = entry.call.status(entry.function, values, entry.stream())
        if status != 0:
            if status in driver.CONTEXT_ERRORS:
                return MISSED
            raise driver.launch_failure(status)
        self.latest = entry.call.variant
        if not made:
            return None
        return made[0] if len(made) == 1 else tuple(made)

    def add(
        self, args: Sequence[Any], values: Sequence[Any], views: Sequence[ArrayView | None], call: Call, function: Any
    ) -> None:
        """Remember a call that went the long way, if it is of a kind that can be found again.

        `args`: as the caller passed them, by position; `values`: the same with the outputs that were allocated.
        """
        given = [*args, *([None] * (self._count - len(args)))]
        key: list[Hashable] = []
        makers: list[tuple[int, Callable[[], Any]]] = []
        example = next((value for value, seen in zip(values, views) if seen is not None), None)
        for i, (arg, value, seen) in enumerate(zip(given, values, views)):
            if seen is None:
                entry_key: list[Hashable] = [0]
            else:
                read = _reader(type(value))
                if read is None:
                    return
                if arg is None:
                    makers.append((i, partial(allocate_like, example_of(example), seen.shape, seen.dtype, seen.device)))
                    entry_key = [None]
                else:
                    address, rest = read(arg)
                    entry_key = [rest, address & self._mask]
            if i < len(args):
                key += entry_key
        stream = _stream_reader(example)
        if stream is None:
            return
        spans = [None if seen is None else tuple(end - seen.address for end in seen.span()) for seen in views]
        pairs = []
        for i, j in self._contract.hazards:
            a, b = spans[i], spans[j]
            if a is not None and b is not None and a != (0, 0) and b != (0, 0):
                pairs.append((i, j, a[0], a[1], b[0], b[1]))
        if len(self._entries) >= MAX_ENTRIES:
            self._entries.clear()
        scalars = tuple(i for i, seen in enumerate(views) if seen is None)
        self._entries[tuple(key)] = _Entry(call, function, stream, tuple(pairs), scalars, tuple(makers))


def example_of(value: Any) -> Any:
    """An empty array of the same library and device, which keeps no memory alive."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch.empty(0, device=value.device)
    return value.ravel()[:0].copy()


def _stream_reader(example: Any) -> Callable[[], int] | None:
    """A function that gives the current stream of the library of `example` on its device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(example, torch.Tensor):
        index = example.get_device()
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # a tenth of the time of torch.cuda.current_stream
        return partial(raw, index) if raw is not None else lambda: torch.cuda.current_stream(index).cuda_stream
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(example, cupy.ndarray):
        return lambda: cupy.cuda.get_current_stream().ptr
    return None
