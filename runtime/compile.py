"""`tesela.compile`: a program as a file, as text, as a module or from Python, to a `Kernel`.

Compilation proper happens at the first launch, once for each variant (`specialize.py`); `Kernel.compile` does it ahead of time. What was
made before, in this process or another, comes from the disk cache (`cache.py`): then the program is not even parsed or traced.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..dialects.diagnostics import TeselaError, called_by_users
from ..dialects.launch_plan import LaunchPlan
from ..dialects.target import Target, get_target
from ..dialects.work import Work
from .assemble import started_ahead
from .cache import Entry, compiler_fingerprint, digest, get_cache
from .compiling import uncollected, working
from .contract import Contract
from .entries import contract_from_json, contract_to_json, read_variant, variant_entry
from .kernel import Kernel
from .launch import DUMP_VARIABLE, Variant, write_dump
from .space import pins_fault
from .specialize import Facts, contract_of, kernels_of, specialize
from .variants import Counts, Programs

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..lowering.count_work import Count


@runtime_checkable
class ModuleSource(Protocol):
    """What the Python frontend hands over: a function that is a program for given compile-time values."""

    def opened(self, **values: Any) -> Source:
        """The program; all values have defaults, or are given."""
        ...


@runtime_checkable
class OpenSource(Protocol):
    """A function whose author left compile-time values open."""

    @property
    def is_open(self) -> bool: ...

    def programs(self, values: Mapping[str, Any], pins: Mapping[str, int]) -> Sequence[tuple[str, ModuleSource, Mapping[str, int]]]:
        """(label, program, pins) of all that `values` and `pins` leave, in order of preference."""
        ...


log = logging.getLogger("tesela")


class Source:
    """A program, whose module is made when it is first asked for. `fingerprint`: a digest of all that `make` depends on; None where that
    cannot be told, and nothing is cached."""

    def __init__(self, make: Callable[[], ModuleOp], fingerprint: Callable[[], str | None]):
        self._make = make
        self.fingerprint = fingerprint
        self._module: ModuleOp | None = None

    @property
    def module(self) -> ModuleOp:
        with working:
            if self._module is None:
                with uncollected():
                    self._module = self._make()
            return self._module

    def digest(self) -> str:
        """A digest of the module's text with its places: those stand in the code, for profilers, and in messages."""
        from ..dialects.parsing import print_module

        with working:
            return digest(print_module(self.module, debuginfo=True))


@dataclass(frozen=True)
class Program:
    """What is known of a kernel without its module. `ir`: `Source.digest`, or '' where there is no cache; `is_made`: from the module itself, and not from
    the cache."""

    contract: Contract
    ir: str
    is_made: bool = False


class ModuleCompiler:
    """Makes the variants of one kernel of a program, called `kernel` (None: its only one), and prints its levels. `program`: what is known of it; None: it is read
    when it is needed. `numbers` tells the dumps of a kernel's programs apart."""

    def __init__(
        self,
        source: Source,
        name: str,
        kernel: str | None = None,
        program: Program | None = None,
        strict: bool = False,
        pins: Mapping[str, int] | None = None,
        cached: bool = True,
        numbers: Iterator[int] | None = None,
    ):
        self.source, self.name, self.strict, self.pins, self.cached = source, name, strict, dict(pins or {}), cached
        self._kernel, self._program = kernel, program
        self._checked = program is not None and program.is_made
        self._numbers = numbers or itertools.count()
        self._count: tuple[Facts, Target, Count] | None = None

    @property
    def program(self) -> Program:
        """What is known of it."""
        if self._program is None:
            self._program = known_program(self.source, self._kernel, self.cached)
            self._checked = self._program.is_made
        return self._program

    def split(self, parts: int) -> ModuleCompiler:
        """The same program, in so many parts."""
        pins = self.pins | {"split": parts}
        return ModuleCompiler(self.source, self.name, self._kernel, self._program, self.strict, pins, self.cached, self._numbers)

    @property
    def module(self) -> ModuleOp:
        """The tile-level module. Raises TeselaError where it is no longer what the contract was read from."""
        with working:
            module = self.source.module
            if self._program is not None and not self._checked and self.source.digest() != self._program.ir:
                hint = "compile it again, or leave alone the functions and values that it reads"
                raise self._program.contract.error("what the kernel is made from has changed since it was compiled", hint)
            self._checked = True
            return module

    def __call__(self, facts: Facts, target: Target) -> Variant:
        store = get_cache() if self.cached else None
        dump = os.environ.get(DUMP_VARIABLE)
        if store is None or dump:
            return self._compile(facts, target, dump)
        key, title = self._key("variant", facts, target)

        def decode(entry: Entry) -> Variant:
            plan, ptx, messages = read_variant(entry)
            return Variant(facts, plan, ptx, messages, {}, self.strict)

        def encode(made: Variant) -> Entry:
            return variant_entry(title, made.plan, made.ptx, made.messages, made.times)

        start = time.perf_counter()
        variant = store.fetch("variant", key, decode, lambda: self._compile(facts, target, None), encode)
        self.forget()
        if not variant.times:
            variant.times["load"] = (time.perf_counter() - start) * 1e3
            log.debug("%s for %s comes from the cache: %s", self.name, target.name, facts)
        return variant

    def _key(self, kind: str, facts: Facts, target: Target) -> tuple[str, str]:
        """(key, title) of an entry of the cache."""
        ir = self.program.ir or self.source.digest()
        key = digest(kind, compiler_fingerprint(), ir, self.name, repr(facts), target.name, repr(sorted(self.pins.items())))
        return key, f"{self.name} for {target.name}: {facts}" + "".join(f", {name} = {value}" for name, value in self.pins.items())

    def floor(self, facts: Facts, target: Target) -> Work:
        """What `work` is not below (`lowering/count_work.py`), which takes a part of the time. Raises TeselaError for a program that cannot be compiled, as far as
        that is known then."""
        with self._under_way(facts, target) as count:
            return count.floor()

    def work(self, facts: Facts, target: Target) -> Work:
        """What a block of the program does, in counts. Raises TeselaError for a program that cannot be compiled."""
        with self._under_way(facts, target) as count:
            return count.work()

    @contextmanager
    def _under_way(self, facts: Facts, target: Target) -> Iterator[Count]:
        """The program under these facts, with whatever was done to it already, to be counted and compiled."""
        from ..lowering.count_work import Count

        with working, uncollected():
            found, self._count = self._count, None
            if found is None or found[:2] != (facts, target):
                found = facts, target, Count(specialize(self.module, self.name, facts, self.pins), target)
            yield found[2]
            self._count = found  # unless that failed half way

    def forget(self) -> None:
        """What was lowered to be counted is not needed: it is not compiled now."""
        self._count = None

    def _compile(self, facts: Facts, target: Target, dump: str | None) -> Variant:
        from ..lowering.pipeline import finish

        waiting = started_ahead()
        try:
            with self._under_way(facts, target) as count:
                done = finish(count.uncounted())
                log.info("compiled %s for %s in %.0f ms: %s", self.name, target.name, sum(done.times.values()), facts)
                stem = self._dump(Path(dump), facts, target, done.ptx, done.plan) if dump else None
        except BaseException:
            if waiting is not None:
                waiting.close()
            raise
        self.forget()
        return Variant(facts, done.plan, done.ptx, done.diagnostics, done.times, self.strict, done.program, dump=stem, waiting=waiting)

    def _dump(self, folder: Path, facts: Facts, target: Target, ptx: str, plan: LaunchPlan) -> Path:
        """Write all levels; gives what the files' names begin with."""
        from ..lowering.pipeline import STAGES

        stem = f"{self.name}.{target.name}.{next(self._numbers)}"
        texts = {f"{number}-{level}.mlir": self.ir(level, facts, target) for number, level in enumerate(STAGES)}
        texts |= {"ptx": ptx, "plan.json": json.dumps(plan.to_json(), indent=2) + "\n", "facts.txt": f"{facts}\n"}
        write_dump(folder / stem, {ending: text.encode() for ending, text in texts.items()})
        return folder / stem

    def ir(self, level: str, facts: Facts, target: Target) -> str:
        """The text of the module at a level of `lowering.pipeline.STAGES`. Raises TeselaError for an unknown level."""
        from ..dialects.parsing import print_module

        with working:
            return print_module(self.lowered(level, facts, target))

    def lowered(self, level: str, facts: Facts, target: Target) -> ModuleOp:
        """A new module at a level."""
        from ..lowering.pipeline import lower_to

        with working:
            module = specialize(self.module, self.name, facts, self.pins)
            lower_to(module, level, target)
            return module


@called_by_users
def compile(
    source: str | os.PathLike[str] | ModuleOp | ModuleSource | Any,
    target: str | Target | None = None,
    *,
    kernel: str | None = None,
    filename: str | None = None,
    strict: bool = False,
    pins: Mapping[str, int] | None = None,
    cached: bool = True,
    **values: Any,
) -> Kernel:
    """A callable kernel.

    `source`: the path of an .mlir file, the text of a module (a string that holds 'tile.kernel'), a module, or a kernel
    function of the Python frontend. `target`: 'sm_90a', 'sm_80' …; None leaves it to the GPU of each launch. `kernel` names one of a
    module's kernels, `filename` what errors in a text call it. `strict`: what the assembler warns of, serialised tensor core
    instructions or spilled registers, is an error. `pins`: choices that the compiler is not to make, {'warps': 8, 'stages': 3, 'cluster': 2}. `cached`:
    False leaves the disk cache alone, for programs that are compiled once only. `values`: compile-time parameters of a kernel function. Raises TeselaError with all errors of the program.
    """
    check_pins(pins or {})
    if isinstance(source, OpenSource) and source.is_open:
        return compile_programs(source.programs(values, pins or {}), True, target, strict, cached)
    opened = open_source(source, filename, **values)
    stated = {**getattr(source, "pins", {}), **(pins or {})}  # a kernel function states some itself
    return _kernel([("", lambda: opened, stated)], False, target, kernel, strict, cached)


def compile_programs(
    programs: Sequence[tuple[str, ModuleSource, Mapping[str, int]]],
    is_open: bool,
    target: str | Target | None = None,
    strict: bool = False,
    cached: bool = True,
) -> Kernel:
    """A callable kernel that takes, for each call, the program that is fastest for its extents (variants.py): (label, program, pins), in order of
    preference. They have one contract but for the grid. `is_open`: whether there is a choice; otherwise there is one program."""
    for _, _, pins in programs:
        check_pins(pins)
    return _kernel([(label, partial(open_source, source), pins) for label, source, pins in programs], is_open, target, None, strict, cached)


def _kernel(
    programs: Sequence[tuple[str, Callable[[], Source], Mapping[str, int]]],
    is_open: bool,
    target: str | Target | None,
    kernel: str | None,
    strict: bool,
    cached: bool,
) -> Kernel:
    chosen = get_target(target) if isinstance(target, str) else target
    numbers = itertools.count()
    opened = [cache(open_) for _, open_, _ in programs]
    pins = [pinned for _, _, pinned in programs]
    first = known_program(opened[0](), kernel, cached)
    name = first.contract.name

    def compiler(number: int) -> ModuleCompiler:
        return ModuleCompiler(opened[number](), name, kernel, first if number == 0 else None, strict, pins[number], cached, numbers)

    def identity() -> str | None:
        keys = [open_().fingerprint() for open_ in opened]
        return None if None in keys else digest(name, kernel or "", repr(pins), *map(str, keys))

    makers = [(label, partial(compiler, number)) for number, (label, _, _) in enumerate(programs)]
    stored = StoredCounts(name, identity) if cached and is_open else None
    return Kernel(first.contract, Programs(name, makers, is_open, stored), chosen)


class StoredCounts:
    """What was counted of a kernel's programs, in the disk cache. `identity`: a digest of all that they are made of; None where that cannot be told."""

    def __init__(self, name: str, identity: Callable[[], str | None]):
        self.name, self._identity = name, identity

    def load(self, facts: Facts, target: Target) -> Counts:
        """What is known under these facts."""
        store, key = get_cache(), self._find_key(facts, target)
        found = None if store is None or key is None else store.find("work", key, lambda entry: Counts.from_json(entry.info))
        return found or Counts()

    def save(self, facts: Facts, target: Target, counts: Counts) -> None:
        """Keep what is known, unless what the programs are made of changed while they were counted."""
        store, key = get_cache(), self._find_key(facts, target)
        if store is not None and key is not None:
            store.store("work", key, Entry(f"{self.name} for {target.name}: {facts}", counts.to_json(), {}))

    def _find_key(self, facts: Facts, target: Target) -> str | None:
        identity = self._identity()
        return None if identity is None else digest("work", compiler_fingerprint(), identity, repr(facts), target.name)


def check_pins(pins: Mapping[str, int]) -> None:
    """Raises TeselaError for a choice that cannot be pinned, or a value that is no positive integer."""
    if (fault := pins_fault(pins)) is not None:
        raise TeselaError.at(None, *fault)


def known_program(source: Source, kernel: str | None, cached: bool) -> Program:
    """What is known of a program, from the disk cache if that may be."""
    return read_program(source, kernel) if cached else _make_program(source, kernel, False)


def read_program(source: Source, kernel: str | None) -> Program:
    """The contract of a source's kernel called `kernel`, or of its only one; from the cache, if it was seen before."""
    store = get_cache()
    fingerprint = source.fingerprint() if store is not None else None
    if store is None or fingerprint is None:
        return _make_program(source, kernel, False)
    key = digest("program", compiler_fingerprint(), fingerprint, kernel or "")

    def decode(entry: Entry) -> Program:
        return Program(contract_from_json(entry.info["contract"]), entry.info["ir"])

    def encode(made: Program) -> Entry | None:
        if source.fingerprint() != fingerprint:  # it changed while it was read
            return None
        return Entry(made.contract.signature, {"contract": contract_to_json(made.contract), "ir": made.ir}, {})

    return store.fetch("program", key, decode, lambda: _make_program(source, kernel, True), encode)


def _make_program(source: Source, kernel: str | None, with_digest: bool) -> Program:
    from ..lowering.pipeline import select_kernel

    with working:
        name = select_kernel(source.module, kernel)
        return Program(contract_of(kernels_of(source.module)[name]), source.digest() if with_digest else "", True)


def open_source(source: Any, filename: str | None = None, **values: Any) -> Source:
    """The program of any kind of source that `compile` takes; files are read, but nothing is parsed or traced yet."""
    if isinstance(source, ModuleSource):
        return source.opened(**values)
    if values:
        named = ", ".join(values)
        raise TeselaError.at(None, f"{named}: only kernels written in Python have compile-time parameters", "take it out")
    xdsl = sys.modules.get("xdsl.dialects.builtin")
    if xdsl is not None and isinstance(source, xdsl.ModuleOp):
        return Source(lambda: _verified(source), lambda: None)
    if not isinstance(source, str | os.PathLike):
        raise TeselaError.at(
            None,
            f"an object of type {type(source).__name__} cannot be compiled",
            "pass a path, the text of a module, a module, or a function decorated with @tesela.kernel",
        )
    if isinstance(source, str) and ("tile.kernel" in source or "\n" in source):
        name, text = filename or "<string>", source
    else:
        name = filename or os.fspath(source)
        if not name:
            raise TeselaError.at(None, "the text is empty", "pass a path, or the text of a module")
        if name.endswith(".py"):
            hint = "import its kernel and pass that; on the command line, `tesela compile` takes the file"
            raise TeselaError.at(None, f"'{name}' is a Python program, not a module's text", hint)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise TeselaError.at(None, f"cannot read '{name}': {error.strerror}") from None
        except UnicodeDecodeError:
            raise TeselaError.at(None, f"cannot read '{name}': it is not UTF-8 text") from None
    return Source(lambda: _parsed(text, name), lambda: digest("mlir", name, text))


def _verified(module: ModuleOp) -> ModuleOp:
    from ..dialects.verify import verify_module

    verify_module(module)
    return module


def _parsed(text: str, name: str) -> ModuleOp:
    from ..dialects.diagnostics import source_text
    from ..dialects.parsing import parse_module

    with source_text(name, text):
        return _verified(parse_module(text, name))
