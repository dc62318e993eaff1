"""From a compiled variant and the arrays of a call to a launch: parameters packed, on a GPU or in the simulator.

A `Call` is what stays the same while the arrays' shapes, strides, alignment and places do: the grid, and all parameters but addresses,
scalars and tensor maps. Kernels keep one for each such combination. Its `block`s are the parameters of launches: complete when they are
made, and, unless a kernel has scalars, never changed, so that any number of threads may launch from the same one.

Host arrays go to a GPU as *spans*: all bytes between an array's lowest and highest element, so that strides stay what they are. Arrays
whose spans overlap travel as one, so that a kernel sees the same aliasing as in host memory. A span keeps its offset modulo 256
in the array that it is a view of, so that a misaligned view stays one.
"""

from __future__ import annotations

import ctypes
import logging
import math
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np

from ..dialects.diagnostics import Diagnostic, TeselaError, render
from ..dialects.launch_plan import ArrayArg, LaunchPlan, ScalarArg, TensorMap, TensorMapSpec
from . import driver
from .arrays import ELEMENT_TYPES, HOST, ArrayView, host_array, kept_offset
from .assemble import (
    PTX_FILE,
    Assembled,
    Ptxas,
    Resources,
    assemble,
    find_assembler,
    judged,
    read_messages,
    read_resources,
)
from .cache import digest, get_cache
from .entries import code_entry, read_code
from .messages import DeviceBuffer, deliver, new_buffer
from .specialize import ALIGNMENT, Facts
from .variants import Choice
from .workspace import FRESH, lend

if TYPE_CHECKING:
    from ..dialects.ptx_program import Program
    from ..simulator import RunResult

log = logging.getLogger("tesela")

SIMULATOR = -2
"""The simulator's number among device numbers; GPUs count from 0."""

SIMULATED_MULTIPROCESSORS = 132
"""How many blocks of a persistent kernel run in the simulator: as on an H200."""

MAP_ALIGNMENT = 64
"""Bytes that a tensor map is aligned to where the driver reads it (CUDA driver API, cuTensorMapEncodeTiled)."""

MAX_CACHED_MAPS = 1024
"""Tensor maps that a call keeps encoded, by address; emptied when there are more."""

DUMP_VARIABLE = "TESELA_DUMP"
"""Names a folder that gets every level of every variant, its PTX, its launch plan and its machine code, as files."""

_FORMATS = {"f64": "<d", "f32": "<f", "f16": "<e", "i64": "<q", "index": "<q", "i32": "<i", "i16": "<h", "i8": "<b", "ui8": "<B", "i1": "<B"}


@dataclass(repr=False)
class Variant:
    """One compilation of a kernel: for a target, under some facts. Machine code is made when a GPU first asks for it."""

    facts: Facts
    plan: LaunchPlan
    ptx: str
    messages: list[Diagnostic] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each step that made it."""
    strict: bool = False
    parsed: Program | None = None
    """The PTX text as data, where it is at hand."""
    dump: Path | None = None
    """What the names of the files begin with that show how it was made, if it was dumped (DUMP_VARIABLE)."""
    choice: Choice = Choice()
    """Which of the kernel's programs it was made of."""
    label: str = ""
    """The same in words, 'BM=64 BN=128 split=2'; '' where there was no choice."""
    waiting: Ptxas | None = None
    """An assembler that waits for its text."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _assembled: dict[str, Assembled] = field(default_factory=dict)
    _functions: dict[int, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Variant of {self.plan.name} for {self.plan.target}: {self.facts}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: slow paths taken and why, what was stated and could not be followed; once there is machine code, also what the assembler warns of."""
        said = [message.message for assembled in list(self._assembled.values()) for message in assembled.messages]
        return tuple(dict.fromkeys([*self.plan.notes, *[message.message for message in self.messages], *said]))

    def assembled(self, arch: str | None = None, *, quiet: bool = False) -> Assembled:
        """The machine code for `arch`, by default the plan's own target. What the assembler warns of is logged once, unless `quiet`: then the caller says it."""
        arch = arch or self.plan.target
        with self._lock:
            if arch not in self._assembled:
                start = time.perf_counter()
                waiting, self.waiting = self.waiting, None
                self._assembled[arch] = assemble_once(self.ptx, arch, f"{self.plan.name} for {arch}", self.strict, waiting)
                self.times["assemble"] = (time.perf_counter() - start) * 1e3
                if self.dump is not None:
                    self._dump_code(arch, self._assembled[arch])
                if not quiet:
                    self._warn(self._assembled[arch])
            return self._assembled[arch]

    def _warn(self, assembled: Assembled) -> None:
        if assembled.messages:
            log.warning("%s", render(assembled.messages, {PTX_FILE: self.ptx}).rstrip())

    def _dump_code(self, arch: str, assembled: Assembled) -> None:
        """Write the machine code, what the assembler said of it, and, where there is an nvdisasm, the code as text."""
        from .disassemble import disassemble, find_nvdisasm

        if self.dump is None or not assembled.is_cubin:
            return
        code = {"cubin": assembled.cubin, "log": assembled.log.encode()}
        if find_nvdisasm() is not None:
            code["sass"] = disassemble(assembled.cubin).encode()
        write_dump(self.dump, {f"{arch}.{ending}": data for ending, data in code.items()})

    def add_code(self, arch: str, assembled: Assembled) -> None:
        """Machine code that is at hand."""
        self._assembled[arch] = assembled

    def _arch(self, gpu: driver.Device) -> str:
        """What to assemble for: the GPU's own architecture; or one that is at hand and runs there, the latest first (CUDA C++ Programming
        Guide, "Binary Compatibility": a cubin runs on GPUs of its major and a later minor revision)."""
        own = arch_for(gpu, self.plan.target)
        major, minor = gpu.capability
        fitting = [arch for arch in (f"sm_{major}{earlier}" for earlier in range(minor, -1, -1)) if arch in self._assembled]
        return own if own in self._assembled or not fitting else fitting[0]

    def resources(self, arch: str | None = None) -> Resources:
        """Registers, spills and such, as the assembler reports them."""
        return self.assembled(arch).resources.get(self.plan.name, Resources())

    def sass(self, arch: str | None = None) -> str:
        """The machine code as text. Raises TeselaError without nvdisasm, or where the driver is the assembler."""
        from .disassemble import disassemble

        return disassemble(self.assembled(arch).cubin)

    def function(self, gpu: driver.Device) -> Any:
        """The loaded kernel on `gpu`, whose context must be current. Raises TeselaError where the GPU cannot run the target."""
        found = self._functions.get(gpu.ordinal)
        if found is not None:
            return found
        target = self.plan.target
        if target.endswith("a") and target != gpu.arch:
            raise TeselaError.at(
                None, f"{self.plan.name} is compiled for {target}, but {gpu.name} is {gpu.arch}", f"compile for {gpu.target}, or leave the target out"
            )
        assembled = self.assembled(self._arch(gpu))
        with self._lock:
            if gpu.ordinal not in self._functions:
                module, said = driver.load_module(assembled.image, assembled.is_cubin)
                if said:  # by the driver's compiler
                    assembled.log = said
                    assembled.messages = read_messages(said, self.ptx, self.strict)
                    assembled.resources = read_resources(said)
                    if errors := [message for message in assembled.messages if message.severity == "error"]:
                        raise TeselaError(errors)
                    self._warn(assembled)
                self._functions[gpu.ordinal] = driver.get_function(module, self.plan.name, self.plan.shared_bytes)
            return self._functions[gpu.ordinal]

    def program(self) -> Program:
        """The PTX text as data, for the simulator; read once."""
        if self.parsed is None:
            from ..dialects.ptx_text import read_program

            self.parsed = read_program(self.ptx)
        return self.parsed

    def check_dims(self, dims: Mapping[str, int]) -> None:
        """Raises TeselaError where a dimension is larger than this variant can address."""
        for need in self.plan.requirements:
            if need.kind == "max_dim" and dims.get(need.arg, 0) > need.value:
                raise TeselaError.at(
                    None, f"{self.plan.name}: {need.arg} = {dims[need.arg]}, but this variant takes at most {need.value}"
                )


def arch_for(gpu: driver.Device, target: str) -> str:
    """What code for a target is assembled for where it is made for one GPU."""
    return gpu.arch if target == gpu.arch or not gpu.arch.endswith("a") else gpu.arch[:-1]


def write_dump(stem: Path, parts: Mapping[str, bytes]) -> None:
    """Write files whose names are the stem's and an ending. Raises TeselaError where that is not possible."""
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, data in parts.items():
            stem.with_name(f"{stem.name}.{ending}").write_bytes(data)
    except OSError as error:
        raise TeselaError.at(None, f"{DUMP_VARIABLE}: cannot write to '{stem.parent}': {error.strerror}") from None


def assemble_once(ptx: str, arch: str, title: str, strict: bool, waiting: Ptxas | None = None) -> Assembled:
    """`assemble`, or what an earlier one of the same text, in this process or another, left in the cache. `waiting`: an assembler that was started ahead."""
    assembler = find_assembler()
    if waiting is not None and (waiting.assembler, waiting.arch) != (assembler, arch):
        waiting.close()
        waiting = None
    store = get_cache()
    if store is None or assembler.kind == "driver":
        return assemble(ptx, arch, assembler=assembler, strict=strict, waiting=waiting)

    def make() -> Assembled:
        nonlocal waiting
        start = time.perf_counter()
        taken, waiting = waiting, None
        made = assemble(ptx, arch, assembler=assembler, waiting=taken)
        log.info("assembled %s in %.0f ms", title, (time.perf_counter() - start) * 1e3)
        return made

    key = digest("code", assembler.identity(), arch, ptx)
    found = store.fetch("code", key, read_code, make, lambda made: code_entry(title, made))
    if waiting is not None:
        waiting.close()
    return judged(found, ptx, strict)


class LaunchObserver(Protocol):
    """Who is told of launches."""

    def launched(self, call: Call, begin: driver.Event, end: driver.Event) -> None: ...

    def simulated(self, call: Call, result: RunResult) -> None: ...


OBSERVERS: list[LaunchObserver] = []
"""Who is told now. Launchers look whether it is empty, so it is changed in place."""
_observers_lock = threading.Lock()


@contextmanager
def observed(observer: LaunchObserver) -> Iterator[None]:
    """Within it, `observer` is told of all launches of the process."""
    with _observers_lock:
        OBSERVERS.append(observer)
    try:
        yield
    finally:
        with _observers_lock:
            OBSERVERS[:] = [other for other in OBSERVERS if other is not observer]


def traffic(args: Sequence[ArrayArg | ScalarArg], views: Sequence[ArrayView | None]) -> int:
    """The bytes of arrays that are read, and of those that are written; elements that share memory (stride 0) count once."""
    total = 0
    for arg, seen in zip(args, views):
        if isinstance(arg, ArrayArg) and seen is not None:
            extents = [extent for extent, stride in zip(seen.shape, seen.strides) if stride != 0 or extent == 0]
            total += math.prod(extents) * seen.itemsize * len(arg.access)
    return total


class Call:
    """A variant with everything bound but addresses, tensor maps and scalars; see the module's docstring.

    What varies from launch to launch comes as `values`, by argument position: an array's address, or a scalar's number.
    """

    def __init__(
        self,
        variant: Variant,
        views: Sequence[ArrayView | None],
        dims: Mapping[str, int],
        grid: tuple[int, int, int],
        flops: int | None = None,
        nbytes: int | None = None,
        points: int = 0,
        early: bool = True,
    ):
        self.variant = variant
        self.early = early
        """Whether launches may begin while the one before ends, if the plan provides for it."""
        self.points = points
        """Of the logical grid, each of which has its share of the launch's workspace."""
        self.grid = grid
        self.dims = dict(dims)
        self.flops = flops
        self.nbytes = traffic(variant.plan.args, views) if nbytes is None else nbytes
        """What a launch amounts to, for profiles."""
        self._launchers: dict[int, tuple[Any, driver.Launcher]] = {}
        plan = variant.plan
        index = _positions(plan)
        # A block: pointers to the parameters, then tensor maps, which want to be aligned to 64 bytes, then addresses, which are written at
        # one go, then the rest.
        order = sorted(range(len(plan.params)), key=lambda i: _BLOCK_ORDER.get(plan.params[i].kind, 2))
        end = self._data_at = -(-8 * len(order) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        offsets = [0] * len(order)
        for i in order:
            offsets[i] = end
            end += driver.TENSOR_MAP_BYTES if plan.params[i].kind == "tensormap" else 8
        self._size = max(end, 8)
        self._addressed: list[int] = []
        self.scalars: dict[int, tuple[int, str]] = {}
        """By argument position: the offset in a block, and the type. One that the plan does not pass is not there."""
        self._maps: list[tuple[int, int, Callable[[int], TensorMap]]] = []
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._constants: dict[int, int] = {}
        self._messages_at: int | None = None  # where a launch's buffer of messages goes
        template = bytearray(self._size)
        for i in order:
            param, offset = plan.params[i], offsets[i]
            position = index.get(param.arg, -1)
            if param.kind in _LENT:
                self._addressed.append(index[param.kind])
            elif param.kind == "pointer":
                self._addressed.append(position)
            elif param.kind == "scalar":
                self.scalars[position] = (offset, plan.args[position].dtype)
            elif param.kind == "messages":
                self._messages_at = offset
            elif param.kind == "tensormap":
                assert param.tensormap is not None
                self._maps.append((offset, position, _map_maker(param.tensormap, plan.args[position], views[position])))
            else:
                value = dims[param.arg] if param.kind == "dim" else stride_of(views[position], plan.args[position], param.index)
                struct.pack_into("<q", template, offset, value)
                self._constants[i] = value
        self._template = bytes(template[self._data_at :])
        self._offsets = offsets
        self._pack_pointers = struct.Struct(f"<{len(offsets)}Q").pack_into
        self._pack_addresses = struct.Struct(f"<{len(self._addressed)}Q").pack_into
        self._addresses_at = self._data_at + len(self._maps) * driver.TENSOR_MAP_BYTES

    @property
    def lends(self) -> bool:
        """Whether launches need memory of their own, whose addresses follow those of the arguments in `values`."""
        return self.variant.plan.workspace_bytes > 0

    @property
    def workspace_bytes(self) -> int:
        """Of the whole launch."""
        return self.variant.plan.workspace_bytes * self.points

    def lend(self, stream: int) -> tuple[int, ...]:
        """The addresses of that memory for a launch on a stream of the current context; none if no context is current."""
        return lend(stream, self.workspace_bytes, self.points)

    def block(self, values: Sequence[Any]) -> Any:
        """The parameters for `values`, but for scalars, which `put_scalars` puts in: a ctypes array that starts with pointers to them. It
        points into itself, and must not be copied."""
        size = self._size
        block: Any
        if self._maps:
            storage = bytearray(size + MAP_ALIGNMENT)
            start = ctypes.addressof(ctypes.c_char.from_buffer(storage))
            block = (ctypes.c_char * size).from_buffer(storage, -start % MAP_ALIGNMENT)
        else:
            block = (ctypes.c_char * size)()
        base = ctypes.addressof(block)
        self._pack_pointers(block, 0, *[base + offset for offset in self._offsets])
        block[self._data_at :] = self._template
        self._pack_addresses(block, self._addresses_at, *[values[position] for position in self._addressed])
        for offset, position, make in self._maps:
            address = int(values[position])
            key = (offset, address)
            encoded = self._encoded.get(key)
            if encoded is None:
                if len(self._encoded) >= MAX_CACHED_MAPS:
                    self._encoded.clear()
                encoded = self._encoded[key] = driver.encode_tensor_map(make(address))
            block[offset : offset + driver.TENSOR_MAP_BYTES] = encoded
        return block

    def put_scalars(self, block: Any, values: Sequence[Any]) -> None:
        """Write the scalars of `values` into a block."""
        for position, (offset, dtype) in self.scalars.items():
            pack_scalar(block, offset, dtype, values[position])

    def launcher(self, function: Any) -> driver.Launcher:
        """The launch of this call's grid for the loaded kernel of a GPU."""
        kept = self._launchers.get(id(function))
        if kept is not None:
            return kept[1]
        plan = self.variant.plan
        made = driver.Launcher(function, self.grid, plan.threads, plan.shared_bytes, plan.cluster, plan.programmatic and self.early)
        self._launchers[id(function)] = function, made  # the function is kept, so that no other gets its number
        return made

    def observed(self, launcher: driver.Launcher, block: Any, stream: int) -> int:
        """Launch between two events for each observer; the CUresult."""
        pairs = [(observer, driver.Event(), driver.Event()) for observer in tuple(OBSERVERS)]
        for _, begin, _ in pairs:
            begin.record(stream)
        status = launcher.status(stream, block)
        for observer, begin, end in pairs:
            end.record(stream)
            observer.launched(self, begin, end)
        return status

    def bound(self, function: Any, values: Sequence[Any]) -> Callable[[int], None]:
        """A launch of all this, but for the stream: nothing is left to do but to launch. Calling it raises TeselaError where that fails.
        A kernel with messages is waited for, and they are delivered."""
        launcher = self.launcher(function)

        def filled(values: Sequence[Any]) -> Any:
            block = self.block(values)
            self.put_scalars(block, values)
            return block

        ready = None if self.lends else filled(values)

        def launch(stream: int, messages: int = 0) -> None:
            block = filled([*values, *self.lend(stream)]) if ready is None else ready
            if self._messages_at is not None:
                struct.pack_into("<Q", block, self._messages_at, messages)
            status = self.observed(launcher, block, stream) if OBSERVERS else launcher.status(stream, block)
            if status != 0:
                raise driver.launch_failure(status)

        def with_messages(stream: int) -> None:
            buffer = DeviceBuffer()
            try:
                launch(stream, buffer.address)
                said = buffer.read(stream)
            finally:
                buffer.close()
            deliver(self.variant.plan, said)

        return launch if self._messages_at is None else with_messages

    def on_gpu(self, function: Any, values: Sequence[Any], stream: int) -> None:
        """Launch on the current context's GPU. Raises TeselaError where that fails."""
        self.bound(function, values)(stream)

    def simulator_params(self, values: Sequence[float], messages: int = 0) -> list[int | TensorMap]:
        """The parameters in PTX order, as `tesela.simulator.launch` wants them. `messages`: the address of the buffer of messages."""
        plan = self.variant.plan
        index = _positions(plan)
        result: list[int | TensorMap] = []
        makers = iter(self._maps)
        for i, param in enumerate(plan.params):
            position = index.get(param.arg, -1)
            if param.kind in _LENT:
                result.append(int(values[index[param.kind]]))
            elif param.kind == "pointer":
                result.append(int(values[position]))
            elif param.kind == "scalar":
                bits = bytearray(8)
                pack_scalar(bits, 0, plan.args[position].dtype, values[position])
                result.append(int.from_bytes(bits, "little"))
            elif param.kind == "messages":
                result.append(messages)
            elif param.kind == "tensormap":
                result.append(next(makers)[2](int(values[position])))
            else:
                result.append(self._constants[i])
        return result


_LENT = ("workspace", "counters")
"""Parameters whose addresses follow those of the arguments in a launch's values, in this order (workspace.py)."""
_BLOCK_ORDER = {"tensormap": 0, "pointer": 1, "workspace": 1, "counters": 1}


def _positions(plan: LaunchPlan) -> dict[str, int]:
    """Where what a parameter passes stands in a launch's values."""
    return {name: position for position, name in enumerate([*(arg.name for arg in plan.args), *_LENT])}




def stride_of(seen: ArrayView | None, arg: ArrayArg | ScalarArg, axis: int) -> int:
    """The stride to pass, in elements. Dimensions of extent 1 have none to speak of: 0 passes for any multiple."""
    assert seen is not None and isinstance(arg, ArrayArg)
    required = arg.strides[axis]
    if required is not None:
        return required
    return 0 if seen.shape[axis] <= 1 else seen.strides[axis]


def pack_scalar(buffer: Any, offset: int, dtype: str, value: float) -> None:
    """Write a scalar of `dtype` at `offset`. Floats are rounded once, to nearest even; one too large becomes infinity."""
    if dtype in ("f16", "bf16", "f32", "f8E4M3FN", "f8E5M2"):
        with np.errstate(over="ignore"):
            source = np.float64(value) if dtype in ("f16", "f32") else _round_to_odd(value)
            if dtype.startswith("f8"):  # which saturate (numbers.md N28)
                largest = ml_dtypes.finfo(ELEMENT_TYPES[dtype]).max
                source = np.clip(source, -np.float32(largest), np.float32(largest))
            data = source.astype(ELEMENT_TYPES[dtype]).tobytes()
        buffer[offset : offset + len(data)] = data
    else:
        struct.pack_into(_FORMATS[dtype], buffer, offset, value)


def _round_to_odd(value: float) -> np.float32:
    """An f32 near enough to `value` that rounding it to bf16 gives what rounding `value` itself would: inexact ones get an odd last bit.

    (ml_dtypes rounds a double twice, first to nearest f32.)
    """
    near = np.float32(value)
    if np.isfinite(near) and float(near) != value and not int(near.view(np.uint32)) & 1:
        near = np.nextafter(near, np.float32(np.inf if value > float(near) else -np.inf))
    return near


def _map_maker(spec: TensorMapSpec, arg: ArrayArg | ScalarArg, seen: ArrayView | None) -> Callable[[int], TensorMap]:
    assert seen is not None and isinstance(arg, ArrayArg)
    dims = tuple(seen.shape[axis] for axis in spec.dims)
    # A dimension of extent 1 may have any stride in its array; the map wants a multiple of 16 bytes.
    strides = tuple(
        ALIGNMENT if seen.shape[axis] <= 1 else seen.strides[axis] * seen.itemsize for axis in spec.dims[1:]
    )

    def make(address: int) -> TensorMap:
        return TensorMap(arg.dtype, address, dims, strides, spec.box, (1,) * len(dims), spec.swizzle, spec.fill)

    return make


@dataclass
class _Group:
    """Host arrays whose spans overlap: bytes [low, high) of the host, at `base` on the device once it is copied. `offset`: what
    `base` is to be modulo 256."""

    low: int
    high: int
    offset: int
    members: list[int]
    written: bool
    base: int = 0


class Staging:
    """Host arrays on a GPU for the time of one launch. `addresses` are the device's, by argument position (None for scalars)."""

    def __init__(self, args: Sequence[ArrayArg | ScalarArg], views: Sequence[ArrayView | None]):
        self.addresses: list[int | None] = [None if seen is None else 0 for seen in views]
        self._groups = _groups(args, views)
        self._allocations: list[int] = []
        try:
            for group in self._groups:
                allocation = driver.allocate(group.high - group.low + 256)
                self._allocations.append(allocation)
                group.base = allocation + group.offset
                driver.copy_to_device(group.base, group.low, group.high - group.low)
                for position in group.members:
                    seen = views[position]
                    assert seen is not None
                    self.addresses[position] = group.base + seen.address - group.low
        except TeselaError:
            self.close()
            raise

    def copy_back(self) -> None:
        """Wait for the launch, and copy what it may have written to the host."""
        driver.synchronize()
        for group in self._groups:
            if group.written:
                driver.copy_to_host(group.low, group.base, group.high - group.low)

    def close(self) -> None:
        for allocation in self._allocations:
            driver.free(allocation)
        self._allocations = []


def _groups(args: Sequence[ArrayArg | ScalarArg], views: Sequence[ArrayView | None]) -> list[_Group]:
    """Nonempty host arrays, joined where their spans overlap."""
    spans = sorted((*seen.span(), position) for position, seen in enumerate(views) if seen is not None and 0 not in seen.shape)
    groups: list[_Group] = []
    for low, high, position in spans:
        arg = args[position]
        written = isinstance(arg, ArrayArg) and "w" in arg.access
        if groups and low < groups[-1].high:
            last = groups[-1]
            last.high, last.written = max(last.high, high), last.written or written
            last.members.append(position)
        else:
            seen = views[position]
            assert seen is not None
            groups.append(_Group(low, high, (kept_offset(seen) + low - seen.address) % 256, [position], written))
    return groups


def simulate(call: Call, values: Sequence[float], memory: Any) -> RunResult:
    """Run a call in the simulator over `memory`, in which the arrays were mapped; returns what it did."""
    from ..simulator import launch

    plan = call.variant.plan
    if plan.workspace_bytes:
        fresh = np.full(call.workspace_bytes, FRESH, np.uint8)
        values = [*values, memory.map_array(fresh, "workspace"), memory.map_array(np.zeros(call.points, np.uint32), "counters")]
    said = new_buffer() if plan.messages else None
    result = launch(
        call.variant.program(),
        plan.name,
        call.grid,
        (plan.threads, 1, 1),
        call.simulator_params(values, memory.map_array(said, "messages") if said is not None else 0),
        memory,
        shared_bytes=plan.shared_bytes,
        cluster=plan.cluster,
    )
    for observer in tuple(OBSERVERS):
        observer.simulated(call, result)
    if said is not None:
        deliver(plan, said)
    return result


def map_arrays(args: Sequence[ArrayArg | ScalarArg], views: Sequence[ArrayView | None], memory: Any) -> list[int | None]:
    """Map host arrays into the simulator's memory, in place; their addresses by argument position (None for scalars). What shares memory shares it there."""
    arrays = {i: host_array(seen) for i, seen in enumerate(views) if seen is not None}
    addresses = dict(zip(arrays, memory.map_arrays(list(arrays.values()), [args[i].name for i in arrays])))
    return [addresses.get(i) for i in range(len(args))]


def is_host(views: Sequence[ArrayView | None]) -> bool:
    """Whether all arrays are in host memory (also where there are none)."""
    return all(seen is None or seen.device == HOST for seen in views)
