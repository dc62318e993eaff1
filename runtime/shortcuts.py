"""The short way through a call whose like was made before: no views, no checks of the contract, one look at the metadata, one launch.

A call on GPU arrays of torch or CuPy that went the long way (`kernel.py`) passed every check of the contract, and took a variant and a
prepared `Call`. Both fit every later call on arrays of the same types, element types, shapes, strides and device, at addresses with the
same low bits, of which the same ones overlap. For such calls a launcher is generated (`launchers.py`), which compares all that and launches. The
latest one is what a call of the kernel calls (`Kernel.run`); one that finds other arrays asks here for theirs. Whatever is out of the
ordinary goes the long way.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from .arrays import ArrayView
from .contract import Contract
from .launch import OBSERVERS, Call, Variant, pack_scalar
from .launchers import CUPY, TORCH, Given, compiled, launcher_source
from .torch_guard import guard

MAX_ENTRIES = 1024
"""Launchers that a kernel keeps; forgotten all at once when there are more."""

MAX_BLOCKS = 1024
"""Blocks of parameters, one for each combination of addresses, that a launcher keeps; forgotten all at once when there are more."""

Launch = Callable[..., Any]
"""What launches: takes what `Kernel.__call__` takes, and gives what it gives."""


class LongWay(Protocol):
    """Whom a launcher asks; the kernel."""

    def other(self, asking: Launch, args: tuple[Any, ...], named: dict[str, Any], device: str | None, stream: Any) -> Any:
        """Make a call that is not like the one that the launcher was made for."""
        ...

    def failed(self, status: int, args: tuple[Any, ...], stream: int) -> Any:
        """Deal with the driver's refusal to launch."""
        ...

    def handle(self, stream: Any) -> int:
        """The handle of a stream, of whatever kind."""
        ...


def _read_torch(tensor: Any) -> tuple[int, Hashable]:
    return tensor.data_ptr(), (type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.device, tensor.is_neg())


def _read_cupy(array: Any) -> tuple[int, Hashable]:
    return array.data.ptr, (type(array), array.dtype, array.shape, array.strides, array.device.id)


_READERS: dict[type, tuple[str, Callable[[Any], tuple[int, Hashable]]]] = {}
"""By the arrays' exact type: its library, and a function that gives (address, everything else that matters). Filled as types are met."""


def _reader(kind: type) -> tuple[str, Callable[[Any], tuple[int, Hashable]]] | None:
    """The library and reader of an array type, if it is one of those that are known here."""
    found = _READERS.get(kind)
    if found is None:
        for library, name, read in ((TORCH.name, "Tensor", _read_torch), (CUPY.name, "ndarray", _read_cupy)):
            base = getattr(sys.modules.get(library), name, None)
            if isinstance(base, type) and issubclass(kind, base):
                found = _READERS[kind] = library, read
    return found


@dataclass(slots=True)
class _Like:
    """Calls of the same metadata and low address bits. `spans`: for each hazard of the contract (i, j, the bytes before and after the address of
    each); `launchers`: by the hazards that overlap. An array that is made anew overlaps none and is not looked at."""

    spans: tuple[tuple[int, int, int, int, int, int], ...]
    launchers: dict[tuple[tuple[int, int], ...], Launch] = field(default_factory=dict)

    def overlaps(self, addresses: Sequence[int | None]) -> tuple[tuple[int, int], ...]:
        """The pairs of arrays at these addresses, by argument position, that overlap."""
        found = []
        for i, j, low_i, high_i, low_j, high_j in self.spans:
            a, b = addresses[i], addresses[j]
            if a is not None and b is not None and a + low_i < b + high_j and b + low_j < a + high_i:
                found.append((i, j))
        return tuple(found)


class Shortcuts:
    """The launchers of one kernel. `mask`: the low bits of an address that matter."""

    def __init__(self, contract: Contract, mask: int):
        self._contract = contract
        self._mask = mask
        self._count = len(contract.args)
        self._likes: dict[tuple[Hashable, ...], _Like] = {}
        self.latest: Variant | None = None
        """The variant that was launched latest, the short way or the long."""
        self.source = ""
        """The text of the launcher that was made latest."""

    def _key(self, args: Sequence[Any]) -> tuple[tuple[Hashable, ...], list[int | None]] | None:
        """What sums up a call's arguments, and its arrays' addresses by position; None for arrays of another library."""
        key: list[Hashable] = []
        addresses: list[int | None] = [None] * self._count
        try:
            for i, (arg, shape) in enumerate(zip(args, self._contract.shapes, strict=False)):
                if arg is None or shape is None:
                    key.append(None if arg is None else 0)
                    continue
                reader = _reader(type(arg))
                if reader is None:
                    return None
                address, rest = reader[1](arg)
                key += (rest, address & self._mask)
                addresses[i] = address
        except (AttributeError, RuntimeError):  # a sparse tensor has no strides, one under a transform of torch no memory
            return None
        return tuple(key), addresses

    def find(self, args: Sequence[Any]) -> Launch | None:
        """The launcher of an earlier call like this one, if there is one."""
        if not self._likes or len(args) > self._count or (found := self._key(args)) is None:
            return None
        key, addresses = found
        like = self._likes.get(key)
        return like.launchers.get(like.overlaps(addresses)) if like is not None else None

    def add(self, args: Sequence[Any], values: Sequence[Any], views: Sequence[ArrayView | None], call: Call, function: Any, way: LongWay) -> Launch | None:
        """A launcher of a call that went the long way, if it is of a kind that can be told again.

        `args`: as the caller passed them, by position; `values`: the same with the outputs that were allocated.
        """
        found = self._key(args)
        example = next((value for value, seen in zip(values, views) if seen is not None), None)
        known = None if example is None else _reader(type(example))
        if found is None or known is None:
            return None
        gpu = example.get_device() if known[0] == TORCH.name else example.device.id
        key, addresses = found
        pattern: list[Given] = []
        constants: dict[str, Any] = {}
        tensors: list[Any] = []
        for i, (value, seen) in enumerate(zip(values, views)):
            if seen is None:
                offset, dtype = call.scalars.get(i, (None, self._contract.args[i].dtype))
                pattern.append(Given("scalar", dtype=dtype, offset=offset))
                continue
            reader = _reader(type(value))
            if reader is None:
                return None
            if i >= len(args) or args[i] is None:
                constants[f"make_{i}"] = _maker(reader[0], value)
                pattern.append(Given("made", reader[0]))
            else:
                strides = value.stride() if reader[0] == TORCH.name else value.strides
                pattern.append(Given("array", reader[0]))
                tensors.append(value)
                named = {"type": type(value), "dtype": value.dtype, "shape": value.shape, "strides": strides}
                constants |= {f"{what}_{i}": known for what, known in named.items()}
        like = self._likes.get(key)
        if like is None:
            if len(self._likes) >= MAX_ENTRIES:
                self._likes.clear()
            like = self._likes[key] = _Like(self._spans(views))
        self.source = launcher_source(self._contract.name, pattern, len(args), call.lends)
        blocks = _Blocks(self._mask, like, call, [i for i, seen in enumerate(views) if seen is not None], addresses, len(views))
        prepared = call.launcher(function)
        common = {
            "other": way.other, "same": guard(tensors), "place": example.device, "gpu": gpu, "blocks": blocks.made,
            "new_block": blocks.block, "new_pool": blocks.pool, "fresh_block": blocks.fresh, "stream_of": _stream_reader(known[0]), "handle": way.handle, "configs": prepared.configs,
            "new_config": prepared.config, "launch": prepared.entry, "function": prepared.function, "observers": OBSERVERS,
            "observed": partial(call.observed, prepared), "failed": way.failed, "state": self, "variant": call.variant,
            "check_scalar": self._contract.check_scalar, "pack_scalar": pack_scalar, "lend": call.lend, **_PACK,
        }  # fmt: skip
        launcher = like.launchers[blocks.overlaps] = compiled(self.source)(**constants, **common)
        return launcher

    def _spans(self, views: Sequence[ArrayView | None]) -> tuple[tuple[int, int, int, int, int, int], ...]:
        spans = [None if seen is None else tuple(end - seen.address for end in seen.span()) for seen in views]
        found = []
        for i, j in self._contract.hazards:
            a, b = spans[i], spans[j]
            if a is not None and b is not None and a != (0, 0) and b != (0, 0):
                found.append((i, j, a[0], a[1], b[0], b[1]))
        return tuple(found)


_PACK = {f"pack_{name}": struct.Struct(f"<{code}").pack_into for name, code in (("i32", "i"), ("i64", "q"), ("f32", "f"), ("f64", "d"))}


class _Blocks:
    """The blocks of parameters of one launcher, by the addresses of its arrays in order, and of what a launch is lent. `made` holds them, or where the kernel has
    scalars lists of those not in use. Addresses are let in if their low bits and overlaps are those of the call at `example`."""

    def __init__(self, mask: int, like: _Like, call: Call, positions: Sequence[int], example: Sequence[int | None], count: int):
        self.made: dict[tuple[int, ...], Any] = {}
        self.overlaps = like.overlaps(example)
        self._mask, self._like, self._call, self._positions, self._count = mask, like, call, positions, count
        self._given = [example[i] is not None for i in positions]
        self._bits = [0 if example[i] is None else (example[i] or 0) & mask for i in positions]

    def _lets_in(self, addresses: tuple[int, ...]) -> bool:
        if any(address & self._mask != bits for address, bits in zip(addresses, self._bits)):
            return False
        given = [address if given else None for address, given in zip(addresses, self._given)]
        if self._like.overlaps(self._by_position(given)) != self.overlaps:
            return False
        if len(self.made) >= MAX_BLOCKS:
            self.made.clear()
        return True

    def _by_position(self, addresses: Sequence[int | None]) -> list[int | None]:
        """Addresses by argument position."""
        values: list[int | None] = [None] * self._count
        for i, address in zip(self._positions, addresses):
            values[i] = address
        return values

    def fresh(self, addresses: tuple[int, ...]) -> Any:
        """A block that nobody else has."""
        return self._call.block([*self._by_position(addresses), *addresses[len(self._positions) :]])

    def block(self, addresses: tuple[int, ...]) -> Any:
        """The block of addresses that came for the first time; None if they are not let in."""
        if not self._lets_in(addresses):
            return None
        block = self.made[addresses] = self.fresh(addresses)
        return block

    def pool(self, addresses: tuple[int, ...]) -> list[Any] | None:
        """The same for a kernel with scalars: a list of blocks."""
        return self.made.setdefault(addresses, []) if self._lets_in(addresses) else None


def _maker(library: str, value: Any) -> Callable[[], Any]:
    """A function that makes arrays like a dense one, of its library, on its device; it keeps no memory alive."""
    if library == TORCH.name:
        # empty_strided takes a quarter less time than empty to read its arguments
        return partial(sys.modules[library].empty_strided, tuple(value.shape), value.stride(), dtype=value.dtype, device=value.device)
    cupy, shape, dtype, device = sys.modules[library], value.shape, value.dtype, value.device

    def make() -> Any:
        with device:
            return cupy.empty(shape, dtype)

    return make


def _stream_reader(library: str) -> Callable[[int], int]:
    """A function that gives the current stream of a library on a device."""
    module = sys.modules[library]
    if library == CUPY.name:
        return lambda device: module.cuda.get_current_stream().ptr
    raw = getattr(module._C, "_cuda_getCurrentRawStream", None)  # a tenth of the time of torch.cuda.current_stream
    return raw if raw is not None else lambda device: module.cuda.current_stream(device).cuda_stream
