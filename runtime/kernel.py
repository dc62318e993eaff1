"""`Kernel`: what `tesela.compile` gives and a program calls: `gemm(A, B)` checks, specialises, compiles, launches.

A call goes through these steps; all but the first and the last are remembered for arrays of the same shapes, strides, alignment
and place:

1. arguments by position or name; an array that the kernel only writes may be left out, is then allocated and returned;
2. the contract's checks, which give the symbolic dimensions (`contract.py`);
3. the facts that a variant may assume (`specialize.py`), which of several programs is fastest (`variants.py`), and the variant, compiled at its
   first use;
4. the grid, and all parameters but addresses and scalars (`launch.Call`);
5. the launch, on the GPU that holds the arrays, on a GPU by way of copies, or in the simulator.

Later calls like an earlier one take a launcher that was generated for them (`shortcuts.py`, `launchers.py`).
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..dialects.diagnostics import TeselaError, short
from ..dialects.launch_plan import ArrayArg, LaunchPlan
from ..dialects.target import Target, get_target
from ..dialects.work import Work
from . import driver, launch
from .arrays import HOST, ArraySpec, ArrayView, allocate_like, as_spec, clear, view
from .assemble import Resources, assembled_soon
from .compiling import uncollected
from .contract import Contract, overlapping
from .launch import SIMULATOR, Call, Staging, Variant, arch_for, is_host, map_arrays, simulate, traffic
from .messages import AssertionsFailed
from .shortcuts import Launch, Shortcuts
from .specialize import ALIGNMENT, Facts, facts_of, usual_facts, weakest_facts
from .variants import Choice, Chooser, Programs, Row

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..passes.loop_timing import LoopTiming

DEVICES = ("auto", "cuda", "sim")
DEVICE_VARIABLE = "TESELA_DEVICE"
DEFAULT_TARGET = "sm_90a"
"""What is compiled for where no target is stated and no GPU asks for another."""

MAX_POINTS = 2**31 - 1
"""Points of a grid that persistent blocks can walk: they count in 32 bits."""

MAX_SHAPES = 1024
"""Combinations of shapes and the like that a kernel remembers; forgotten all at once when there are more."""


class Compiler(Protocol):
    """Makes the variant of a kernel under some facts for a target."""

    def __call__(self, facts: Facts, target: Target) -> Variant: ...


@runtime_checkable
class LevelPrinter(Protocol):
    """A compiler that also gives a variant's text at a level of the pipeline."""

    @property
    def module(self) -> ModuleOp: ...

    @property
    def pins(self) -> Mapping[str, int]: ...

    def ir(self, level: str, facts: Facts, target: Target) -> str: ...

    def lowered(self, level: str, facts: Facts, target: Target) -> ModuleOp: ...


@dataclass(slots=True)
class _Shapes:
    """What is remembered of a combination of shapes, strides, alignments and places."""

    dims: dict[str, int]
    grid: tuple[int, int, int]
    calls: dict[tuple[Any, ...], Call]


@dataclass(slots=True)
class Arrival:
    """A call whose arguments passed: `values` by position, with outputs allocated that were left out; views of its arrays; where to run."""

    values: list[Any]
    views: list[ArrayView | None]
    place: int
    left_out: list[int]
    overlaps: list[tuple[int, int]]

    def outputs(self) -> Any:
        """What the call returns."""
        made = tuple(self.values[i] for i in self.left_out)
        return None if not made else made[0] if len(made) == 1 else made


@dataclass(frozen=True, slots=True)
class _Stated:
    """What a call's arguments say without being used: facts, dimensions, bytes that are read and written."""

    facts: Facts
    dims: dict[str, int]
    nbytes: int


class Kernel:
    """A kernel that can be called on arrays. Attributes: `contract`, `target` (None: each device's own)."""

    def __init__(self, contract: Contract, compiler: Compiler, target: Target | None = None):
        self.contract = contract
        self.target = target
        self._compiler = compiler
        self._variants: dict[tuple[Facts, str, Choice], Variant] = {}
        self._latest_table: Callable[[], str] | None = None
        self._shapes: dict[tuple[Any, ...], _Shapes] = {}
        self._lock = threading.Lock()
        arrays = {i: arg for i, arg in enumerate(contract.args) if isinstance(arg, ArrayArg)}
        self._array_positions = list(arrays)
        self._scalar_positions = [i for i, arg in enumerate(contract.args) if not isinstance(arg, ArrayArg)]
        self._outputs = [i for i, arg in arrays.items() if arg.access == "w"]
        self._align_mask = max([ALIGNMENT, *contract.align.values()]) - 1
        self._shortcuts = Shortcuts(contract, self._align_mask)
        self.run: Launch = self.call
        """What a call calls: `call`, or the latest launcher."""
        self.__signature__ = _call_signature()

    @property
    def name(self) -> str:
        return self.contract.name

    @property
    def module(self) -> ModuleOp | None:
        """The tile-level module; None for a kernel that was loaded without one."""
        return self._compiler.module if isinstance(self._compiler, LevelPrinter) else None

    @property
    def pins(self) -> dict[str, int]:
        """Choices of the compiler that its author or who compiled it made (of a kernel with variants, those of the first)."""
        return dict(self._compiler.pins) if isinstance(self._compiler, LevelPrinter) else {}

    def __repr__(self) -> str:
        return f"<Kernel {self.contract.signature}>"

    def call(self, *args: Any, device: str | None = None, stream: Any = None, **kwargs: Any) -> Any:
        """Launch on arrays and scalars; returns the outputs that were left out (one, or a tuple in order; None if there were none).

        `device`: 'auto' (the GPU that holds the arrays; for host arrays a GPU if there is one, else the simulator), 'cuda' or
        'sim'; by default what TESELA_DEVICE says. `stream`: a CUDA stream (an integer, or an object of torch or CuPy); by default the
        one that the arrays' library works on. On a GPU the call returns once the launch is queued, but for host arrays, which
        it waits for. Raises TeselaError for every wrong argument, before anything is launched.
        """
        try:
            return self.other(None, args, kwargs, device, stream)
        except TeselaError as error:
            raise short(error) from None

    if TYPE_CHECKING:
        __call__ = call
    else:
        __call__ = property(attrgetter("run"), doc=call.__doc__)
        """`kernel(…)` calls `kernel.run`, the latest launcher, with nothing in between: that would cost as much as a launcher's checks do."""

    def other(self, asking: Launch | None, args: tuple[Any, ...], named: dict[str, Any], device: str | None, stream: Any) -> Any:
        """A call that is none for the launcher `asking`: by another launcher, or the long way."""
        while args and args[-1] is None:  # left out; a launcher does not tell how
            args = args[:-1]
        given = args if not named else self._by_position(args, named)
        if device is None and given is not None:
            launcher = self._shortcuts.find(given)
            if launcher is not None and (launcher is not asking or named):  # which minds names, whatever the arrays
                self.run = launcher
                return launcher(*given, stream=stream)
        arrived = self.arrive(args, named, device)
        call = self.launch(arrived, None if stream is None else self.handle(stream))
        if call is not None and given is not None and not call.variant.plan.messages and arrived.place != SIMULATOR and not is_host(arrived.views):
            function = call.variant.function(driver.device(arrived.place))
            self.run = self._shortcuts.add(given, arrived.values, arrived.views, call, function, self) or self.run
        return arrived.outputs()

    def failed(self, status: int, args: tuple[Any, ...], stream: int) -> Any:
        """A launch that the driver refused: once more the long way if another context was current, which that sets right. Raises TeselaError
        for everything else."""
        if status not in driver.CONTEXT_ERRORS:
            raise driver.launch_failure(status)
        arrived = self.arrive(args, {})
        self.launch(arrived, stream)
        return arrived.outputs()

    def handle(self, stream: Any) -> int:
        """The handle of a stream: an integer, or an object of torch, CuPy or CUDA Python. Raises TeselaError for anything else."""
        if isinstance(stream, int):
            return stream
        for attribute in ("cuda_stream", "ptr"):
            if (handle := getattr(stream, attribute, None)) is not None:
                return int(handle)
        if hasattr(stream, "__cuda_stream__"):
            return int(stream.__cuda_stream__()[1])
        raise self.contract.error(f"stream is a {type(stream).__name__}, but an integer or a stream of torch or CuPy is required")

    def _by_position(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
        """Arguments by position and by name, up to the last that is given; None where the contract will have something to say."""
        index = self.contract.index
        last = max(index.get(name, -1) for name in named)
        if len(args) > len(index) or any(index.get(name, -1) < len(args) for name in named):
            return None
        return [*args, *[named.get(arg.name) for arg in self.contract.args[len(args) : last + 1]]]

    def arrive(self, args: Sequence[Any], kwargs: Mapping[str, Any], device: str | None = None) -> Arrival:
        """Look at the arguments of a call, check them, and allocate outputs that were left out."""
        contract = self.contract
        values = contract.bind(args, kwargs)
        views: list[ArrayView | None] = [None] * len(values)
        for i in self._array_positions:
            if values[i] is not None:
                views[i] = view(values[i], f"{contract.name}: {contract.args[i].name}")
        for i in self._scalar_positions:
            values[i] = contract.check_scalar(i, values[i])
        place = self._place(views, device)
        left_out = [i for i in self._outputs if values[i] is None]
        if left_out:
            dims = contract.solve(views)
            example = next((values[i] for i in self._array_positions if values[i] is not None), None)
            for i in left_out:
                home = place if example is None and place >= 0 else next((v.device for v in views if v is not None), HOST)
                values[i] = allocate_like(example, contract.output_shape(i, dims), contract.args[i].dtype, home)
                views[i] = view(values[i])
        overlaps = overlapping(contract, [seen.span() if seen is not None else None for seen in views])
        return Arrival(values, views, place, left_out, overlaps)

    def launch(self, arrived: Arrival, stream: int | None = None) -> Call | None:
        """Launch a call; None, and outputs that were left out are cleared, for a grid of no blocks."""
        if arrived.place == SIMULATOR:
            call = self._simulate(arrived)
        else:
            call = self._on_gpu(arrived, stream)
        if call is None:
            for i in arrived.left_out:
                clear(arrived.views[i])
        return call

    def variant(self, *args: Any, target: str | Target | None = None, facts: Facts | None = None, **kwargs: Any) -> Variant:
        """The compiled variant that a call on these arguments would take; without arguments, the one for arrays as they usually
        are (aligned to 16 bytes, not overlapping, any extents), or under `facts`. `target` overrides the kernel's.

        Arrays that do not exist yet are stated as shapes, `(8192, 4096)`, or as `tesela.ArraySpec`s; scalars may be left out.
        """
        wanted = self._target(target)
        if not (args or kwargs):
            return self._variant(facts or usual_facts(self.contract), wanted, Choice())
        stated = self._stated(args, kwargs)
        facts = facts or stated.facts
        with uncollected():
            return self._variant(facts, wanted, self._choose(facts, wanted, stated.dims, _multiprocessors(), stated.nbytes))

    def choices(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> str:
        """What a call on these arguments, which are as for `variant`, can choose from, with what each is expected to take, as a table (`variants.py`)."""
        stated, wanted = self._stated(args, kwargs), self._target(target)
        return self._table(stated.facts, wanted, stated.dims, _multiprocessors(), stated.nbytes)

    def expected(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> list[Row]:
        """The same as data: a row for each program and number of parts."""
        stated, wanted = self._stated(args, kwargs), self._target(target)
        if not isinstance(self._compiler, Programs):
            return []
        with self._lock:
            return self._compiler.rows(stated.facts, wanted, stated.dims, _multiprocessors(), stated.nbytes)

    def _choose(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> Choice:
        if not isinstance(self._compiler, Chooser):
            return Choice()
        with self._lock:
            return self._compiler.choose(facts, target, dims, multiprocessors, nbytes)

    def _table(self, facts: Facts, target: Target, dims: Mapping[str, int], multiprocessors: int, nbytes: int) -> str:
        if not isinstance(self._compiler, Programs):
            raise self.contract.error("it was loaded without its program, and there is nothing to choose from")
        choice = self._choose(facts, target, dims, multiprocessors, nbytes)
        with self._lock:
            rows = self._compiler.rows(facts, target, dims, multiprocessors, nbytes)
        return self._compiler.table(rows, choice, dims, multiprocessors)

    def compile(self, *args: Any, target: str | Target | None = None, facts: Facts | None = None, **kwargs: Any) -> Variant:
        """`variant`, down to machine code. Raises TeselaError where there is no assembler."""
        made = self.variant(*args, target=target, facts=facts, **kwargs)
        made.assembled()
        return made

    def warmup(self, *args: Any, device: str | None = None, **kwargs: Any) -> Variant:
        """Make ready all that a call on such arguments needs: compiled, and loaded on the current GPU, or read for the simulator. Arguments as
        for `variant`."""
        if self._chosen_device(device) == "sim" or not driver.device_available():
            made = self.variant(*args, target=self.target or DEFAULT_TARGET, **kwargs)
            made.program()
            return made
        gpu = driver.current_device()
        made = self.variant(*args, target=self.target or gpu.target, **kwargs)
        with driver.activated(gpu):
            made.function(gpu)
        return made

    def export(self, folder: str | os.PathLike[str], variants: Sequence[Variant] | None = None, archs: Sequence[str] = ()) -> None:
        """Write the kernel to a folder, for `tesela.load`: what was compiled so far, or `variants`, and always the variants for arrays as they
        usually are and for any. `archs`: more architectures to assemble for, where the code runs on them.

        Raises TeselaError where the folder cannot be written.
        """
        from .export import export

        chosen = list(self._variants.values()) if variants is None else list(variants)
        for target in dict.fromkeys(variant.plan.target for variant in chosen) or [self._target(None).name]:
            for facts in (usual_facts(self.contract), weakest_facts(self.contract)):
                chosen.append(self.variant(target=target, facts=facts))
        unique = list({id(variant): variant for variant in chosen}.values())
        works: dict[int, Work] = {}
        if isinstance(self._compiler, Programs) and self._compiler.is_open:
            for variant in unique:
                if isinstance(work := self._compiler.work(variant.choice.program, variant.facts, get_target(variant.plan.target)), Work):
                    works[id(variant)] = work
        export(self.contract, unique, folder, archs, works)

    def _stated(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Stated:
        """A call on arrays, or on what states them."""
        values = self.contract.bind(args, kwargs, ahead=True)
        views: list[ArrayView | None] = [None] * len(values)
        spans: list[tuple[int, int] | None] = [None] * len(values)
        for i in self._array_positions:
            if (spec := as_spec(values[i])) is not None:
                if any(extent < 0 for extent in spec.shape):
                    raise self.contract.error(f"{self.contract.args[i].name} has the extents {spec.shape}, but an extent is 0 or more")
                views[i] = spec.view(self.contract.args[i].dtype)
            elif values[i] is not None:
                views[i] = seen = view(values[i], f"{self.name}: {self.contract.args[i].name}")
                spans[i] = seen.span()
        dims = self.contract.solve(views)
        for i in self._outputs:  # those that were left out will be dense, aligned, and overlap nothing
            if views[i] is None:
                views[i] = ArraySpec(self.contract.output_shape(i, dims)).view(self.contract.args[i].dtype)
        facts = facts_of(self.contract, views, dims, overlapping(self.contract, spans))
        return _Stated(facts, dims, traffic(self.contract.args, views))

    def plan(self, *args: Any, **kwargs: Any) -> LaunchPlan:
        """The launch plan of `variant(...)`."""
        return self.variant(*args, **kwargs).plan

    def ir(self, level: str = "tile", *, target: str | Target | None = None, facts: Facts | None = None) -> str:
        """The module's text at a level ('tile', 'async', 'layout', 'schedule', 'ptx-ir'): of the latest launch's variant, or under `facts`.

        Raises TeselaError for an unknown level, and for a kernel that was loaded without its module.
        """
        if not isinstance(self._compiler, LevelPrinter):
            raise self.contract.error("it was loaded as PTX text and has no other level")
        facts, choice = self._of_latest(facts)
        printer = self._compiler.compiler(choice) if isinstance(self._compiler, Programs) else self._compiler
        return printer.ir(level, facts, self._target(target))

    def explain(self, *, target: str | Target | None = None, facts: Facts | None = None) -> str:
        """What the compiler chose, value by value: layouts, buffers, instructions (`explain.py`); of the latest launch's variant, or under `facts`.

        Raises TeselaError for a kernel that was loaded without its module.
        """
        from .explain import explain

        lowered, variant = self._explained(target, facts)
        table = "" if self._latest_table is None else self._latest_table() + "\n"
        return table + explain(lowered("schedule"), variant, lowered("async"))

    def timings(self, *, target: str | Target | None = None, facts: Facts | None = None) -> list[LoopTiming]:
        """The model of each innermost loop that loads tiles or multiplies: interval, bound, timeline (`passes/loop_timing.py`); of the variant that
        `explain` takes.

        Raises TeselaError for a kernel that was loaded without its module.
        """
        from ..passes.loop_timing import time_loops

        lowered, _ = self._explained(target, facts)
        return time_loops(lowered("schedule"))

    def _explained(self, target: str | Target | None, facts: Facts | None) -> tuple[Callable[[str], ModuleOp], Variant]:
        """What gives the module at a level, and the variant that is made of it."""
        compiler = self._compiler
        if not isinstance(compiler, LevelPrinter):
            raise self.contract.error("it was loaded as PTX text, and nothing is known of how that was chosen")
        chosen, choice = self._of_latest(facts)
        printer, wanted = compiler.compiler(choice) if isinstance(compiler, Programs) else compiler, self._target(target)
        return (lambda level: printer.lowered(level, chosen, wanted)), self._variant(chosen, wanted, choice)

    def _of_latest(self, facts: Facts | None) -> tuple[Facts, Choice]:
        """The facts and the choice of the latest launch's variant, or of the usual one; or `facts` and the first choice."""
        latest = self._shortcuts.latest
        if facts is not None:
            return facts, Choice()
        return (usual_facts(self.contract), Choice()) if latest is None else (latest.facts, latest.choice)

    def as_torch_op(self, name: str) -> Any:
        """Register the kernel as an operator of torch, "namespace::name", with fake tensors, for torch.compile (`torch_op.py`); gives the operator."""
        from .torch_op import register

        return register(self, name)

    @property
    def launcher_source(self) -> str:
        """The text of the function that launches calls like the latest one that was new (`launchers.py`); '' where there was none on a GPU."""
        return self._shortcuts.source

    @property
    def last(self) -> Variant:
        """The variant of the latest launch, or the usual one if there was none."""
        return self._shortcuts.latest or self.variant()

    @property
    def ptx(self) -> str:
        """The PTX text of the latest launch's variant, or of the usual one."""
        return self.last.ptx

    @property
    def resources(self) -> Resources:
        """Registers, spills and such of that variant, as the assembler reports them."""
        return self.last.resources()

    @property
    def sass(self) -> str:
        """That variant's machine code as text; needs nvdisasm."""
        return self.last.sass()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of that variant should know: slow paths taken, and why; once it is assembled, also what the assembler warns of, as spilled registers."""
        return self.last.notes

    def _target(self, target: str | Target | None) -> Target:
        if target is not None:
            return get_target(target) if isinstance(target, str) else target
        if self.target is not None:
            return self.target
        if driver.device_available():
            return get_target(driver.current_device().target)
        return get_target(DEFAULT_TARGET)

    def _chosen_device(self, device: str | None) -> str:
        """What a call, or else the environment, says about the device. Raises TeselaError for anything unknown."""
        device = usual_device(device)
        if device not in DEVICES:
            raise self.contract.error(f"unknown device '{device}'", f"it is one of {', '.join(DEVICES)}")
        return device

    def _place(self, views: Sequence[ArrayView | None], device: str | None) -> int:
        """Where to run: a GPU's number, or SIMULATOR. Raises TeselaError where the arrays and the device do not go together."""
        device = self._chosen_device(device)
        first: tuple[str, ArrayView] | None = None
        for arg, seen in zip(self.contract.args, views):
            if seen is None:
                continue
            if first is None:
                first = (arg.name, seen)
            elif seen.device != first[1].device:
                raise self.contract.error(
                    f"{arg.name} is in {seen.place}, but {first[0]} is in {first[1].place}", "move all arrays to one place"
                )
        home = first[1].device if first is not None else HOST
        if home != HOST:
            if device == "sim":
                assert first is not None
                raise self.contract.error(
                    f"{first[0]} is in {first[1].place}, but the simulator takes arrays in host memory", "copy the arrays to the host"
                )
            return home
        if in_simulator(device):
            return SIMULATOR
        return driver.current_device().ordinal

    def prepare(
        self,
        place: int,
        views: Sequence[ArrayView | None],
        addresses: Sequence[int | None] | None,
        overlaps: Sequence[tuple[int, int]],
        target: Target,
    ) -> Call | None:
        """The prepared call for these arrays, at `addresses` where those are not the views' own; None for a grid of no blocks."""
        if addresses is not None:
            views = [
                None if seen is None or at is None else replace(seen, address=at) for seen, at in zip(views, addresses)
            ]
        mask = self._align_mask
        key = (
            place,
            *[
                None if seen is None else (seen.dtype, seen.shape, seen.strides, seen.address & mask, seen.readonly)
                for seen in views
            ],
        )
        shapes = self._shapes.get(key)
        if shapes is None:
            dims = self.contract.solve(views)
            self.contract.check_alignment(views)
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            shapes = self._shapes[key] = _Shapes(dims, self.contract.blocks(dims), {})
        if 0 in shapes.grid:
            return None
        overlaps = tuple(overlaps)
        call = shapes.calls.get(overlaps)
        if call is None:
            soon = nullcontext() if place == SIMULATOR else assembled_soon(arch_for(driver.device(place), target.name))
            with uncollected(), soon:
                call = shapes.calls[overlaps] = self._bound(place, views, shapes, overlaps, target)
        return call

    def _bound(
        self, place: int, views: Sequence[ArrayView | None], shapes: _Shapes, overlaps: tuple[tuple[int, int], ...], target: Target
    ) -> Call:
        """A new prepared call: its variant chosen, and compiled if it is new too."""
        self.contract.check_noalias(overlaps)
        facts, nbytes = facts_of(self.contract, views, shapes.dims, overlaps), traffic(self.contract.args, views)
        choice = Choice()
        if isinstance(self._compiler, Chooser) and self._compiler.is_open:
            question = (facts, target, shapes.dims, _multiprocessors(place), nbytes)
            choice = self._choose(*question)
            self._latest_table = lambda: self._table(*question)
        variant = self._variant(facts, target, choice)
        variant.check_dims(shapes.dims)
        grid = shapes.grid if variant.plan.grid == self.contract.grid else replace(self.contract, grid=variant.plan.grid).blocks(shapes.dims)
        points = prod(grid)
        if variant.plan.persistent:
            if points > MAX_POINTS:
                raise self.contract.error(f"the grid has {points} points, but this variant takes at most {MAX_POINTS}")
            many = _multiprocessors(place)
            if not variant.plan.suits(grid, many):
                variant = self._variant(replace(facts, alone=True), target, choice)
                variant.check_dims(shapes.dims)
            grid = variant.plan.physical_grid(grid, many)
        early = variant.plan.programmatic and variant.plan.begins_early(prod(grid), _multiprocessors(place))
        return Call(variant, views, shapes.dims, grid, *self.contract.amounts(shapes.dims), points, early)

    def _variant(self, facts: Facts, target: Target, choice: Choice) -> Variant:
        key = (facts, target.name, choice)
        found = self._variants.get(key)
        if found is None:
            with self._lock:
                found = self._variants.get(key)
                if found is None:
                    compiler = partial(self._compiler, choice=choice) if isinstance(self._compiler, Chooser) else self._compiler
                    found = self._variants[key] = compiler(facts, target)
        return found

    def _simulate(self, arrived: Arrival) -> Call | None:
        """Launch in the simulator."""
        from ..simulator import Memory

        memory = Memory()
        addresses = map_arrays(self.contract.args, arrived.views, memory)
        target = self.target or get_target(DEFAULT_TARGET)
        call = self.prepare(SIMULATOR, arrived.views, addresses, arrived.overlaps, target)
        if call is not None:
            self._shortcuts.latest = call.variant
            simulate(call, placed(arrived.values, addresses), memory)
        return call

    def _on_gpu(self, arrived: Arrival, stream: int | None) -> Call | None:
        """Launch on a GPU."""
        views, values = arrived.views, arrived.values
        gpu = driver.device(arrived.place)
        target = self.target or get_target(gpu.target)
        with driver.activated(gpu):
            if not is_host(views):
                call = self.prepare(gpu.ordinal, views, None, arrived.overlaps, target)
                if call is not None:
                    self._shortcuts.latest = call.variant
                    addresses = [None if seen is None else seen.address for seen in views]
                    call.on_gpu(call.variant.function(gpu), placed(values, addresses), _stream(stream, views))
                return call
            self.contract.solve(views)  # before anything is copied
            staging = Staging(self.contract.args, views)
            try:
                call = self.prepare(gpu.ordinal, views, staging.addresses, arrived.overlaps, target)
                if call is not None:
                    self._shortcuts.latest = call.variant
                    try:
                        call.on_gpu(call.variant.function(gpu), placed(values, staging.addresses), _stream(stream, views))
                    except AssertionsFailed:
                        staging.copy_back()
                        raise
                    staging.copy_back()
            finally:
                staging.close()
            return call


@cache
def _call_signature() -> inspect.Signature:
    """What `inspect.signature` says of a kernel: it does not look through the property that `__call__` is."""
    whole = inspect.signature(Kernel.call)
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def _multiprocessors(place: int | None = None) -> int:
    """Of the GPU of that number (None: the current one, if there is any) or of the simulator."""
    if place == SIMULATOR or (place is None and not driver.device_available()):
        return launch.SIMULATED_MULTIPROCESSORS
    return driver.multiprocessors(driver.current_device() if place is None else driver.device(place))


def usual_device(device: str | None) -> str:
    """The device that a call names, or else the environment does, or else 'auto'."""
    return device or os.environ.get(DEVICE_VARIABLE) or "auto"


def in_simulator(device: str | None) -> bool:
    """Whether a call on host arrays that names this device (None: what the environment says) runs in the simulator."""
    device = usual_device(device)
    return device == "sim" or (device == "auto" and not driver.device_available())


def placed(values: Sequence[Any], addresses: Sequence[int | None]) -> list[float]:
    """What a launch passes, by argument position: addresses for arrays, numbers for scalars."""
    return [value if address is None else address for value, address in zip(values, addresses)]


def _stream(stream: int | None, views: Sequence[ArrayView | None]) -> int:
    """The stream's handle: as given, or the one that the arrays' library works on, or the legacy default stream."""
    if stream is None:
        return next((seen.stream for seen in views if seen is not None and seen.stream is not None), 0)
    return stream
