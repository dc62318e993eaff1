"""`@tesela.kernel`: a Python function as a kernel. Its signature is read at once, its body when it is first traced or called.

    @tesela.kernel
    def add(x: Array[f32, "N"], y: Array[f32, "N"], z: Array[f32, "N"], BLOCK: tesela.constexpr = 1024):
        i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
        z[i : i + BLOCK] = x[i : i + BLOCK] + y[i : i + BLOCK]

    print(add.ir("tile"))       # the tile-level program
    z = add(x, y)               # compiled once for each set of compile-time values, then launched; z is allocated

What is best for large arrays is not for small ones. An author can leave compile-time values open, and each call takes those that the cost model finds
fastest for its extents (runtime/variants.py), unless it states them:

    @tesela.kernel(variants=[{"BM": 128, "BN": 256}, {"BM": 64, "BN": 128, "stages": 4}])
    def gemm(A: …, B: …, C: …, BM: tesela.constexpr, BN: tesela.constexpr): ...

xDSL is loaded when a kernel is traced, not when it is defined.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from ..dialects.diagnostics import Location, TeselaError, called_by_users, short
from ..dialects.dim_expr import DimExprError
from ..runtime.space import PINS, Space, configurations, pins_fault, space_fault
from .hints import similar
from .source import Capture, SourceFunction
from .types import DTYPES, Array, ArrayError, DType, caller_place, constexpr, outside_kernel
from .words import Word

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..runtime.compile import Source
    from ..runtime.kernel import Kernel
    from ..runtime.launch import Variant
    from .fingerprint import Dependencies

__all__ = ["InlineFunction", "KernelFunction", "function", "kernel"]

OF_COMPILED = ("last", "notes", "plan", "ptx", "resources", "sass", "variant")
"""Attributes of `Kernel` that a kernel function, which is compiled once for each set of compile-time values, does not have."""

REQUIRED: Any = inspect.Parameter.empty
"""The default of a parameter that has none."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: an `Array`, a `DType` (a scalar), or the class `constexpr`."""

    name: str
    annotation: Any
    default: Any = REQUIRED

    @property
    def is_constant(self) -> bool:
        """Whether its value is known when compiling."""
        return self.annotation is constexpr


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled kernel, and what it took from outside of its functions."""

    kernel: Kernel
    captures: tuple[Capture, ...]

    def is_current(self) -> bool:
        """Whether all of that is as it was; asked before each launch."""
        for capture in self.captures:
            if not capture.is_current():
                return False
        return True


class KernelFunction:
    """A kernel written in Python. `params` is its signature; `type_variables` the names that stand for element types."""

    def __init__(
        self, function: FunctionType, amounts: Mapping[str, str] | None = None, variants: Space | None = None, pins: Mapping[str, int] | None = None
    ):
        self.function = function
        self.amounts = dict(amounts or {})
        """What it states that a launch amounts to, by 'flops' and 'nbytes'."""
        self._called_with: dict[tuple[tuple[str, str], ...], dict[str, DType]] = {}
        """Values of its type variables in calls so far."""
        self.pins = dict(pins or {})
        """Choices of the compiler that its author makes, where a variant or a call does not."""
        self.__name__ = self.name = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.params = _read_signature(function)
        self.arguments = tuple(p for p in self.params if not p.is_constant)
        """The parameters that a launch passes: arrays and scalars."""
        self.constants = {p.name: p for p in self.params if p.is_constant}
        self.variants = () if variants is None else tuple(self._read_variants(variants))
        """What it leaves open, in order of preference: compile-time values and pins by name."""
        self.type_variables = tuple(
            dict.fromkeys(
                p.annotation.dtype for p in self.arguments if isinstance(p.annotation, Array) and isinstance(p.annotation.dtype, str)
            )
        )
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._lock = threading.Lock()
        # Calls that pass nothing but leading arrays and scalars find their program by the arrays' types alone.
        self._plain: dict[Any, Program] = {}
        leading = next((i for i, p in enumerate(self.params) if p.is_constant), len(self.params))
        self._plain_counts = frozenset(
            n for n in range(leading + 1) if all(p.default is REQUIRED for p in self.arguments[n:])
        )
        self._typed = [
            next(i for i, p in enumerate(self.arguments) if isinstance(p.annotation, Array) and p.annotation.dtype == variable)
            for variable in self.type_variables
        ]
        """The first array of each type variable; whether others agree the contract checks."""
        dims = {name for p in self.arguments if isinstance(p.annotation, Array) for e in p.annotation.shape for name in e.symbols()}
        for name in (p.name for p in self.params if p.name in dims or p.name in self.type_variables):
            what = "a dimension" if name in dims else "a type variable"
            raise _signature_error(function, name, f"{name} is a parameter and {what}", "rename one")

    def __repr__(self) -> str:
        return f"<tesela.kernel {self.__qualname__}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = f"; the compiled kernel has it: {self.__dict__.get('name')}.compile().{name}" if name in OF_COMPILED else ""
            raise AttributeError(f"the kernel {self.__dict__.get('__qualname__', '')} has no attribute {name!r}{hint}")

    def bind(self, values: dict[str, Any]) -> dict[str, Any]:
        """All compile-time values by name: those given, else those of the first variant, else the defaults.

        Raises TeselaError for an unknown name, a value of the wrong kind, or a missing one.
        """
        bound: dict[str, Any] = {}
        names = (*self.constants, *self.type_variables)
        for name in values:
            if name not in names:
                hint = similar(name, names) or f"it has {', '.join(names) or 'none'}"
                raise self.error(None, f"{self.name} has no compile-time parameter {name}", hint)
        for name in self.type_variables:
            value = values.get(name)
            if not isinstance(value, DType):
                found = "no value" if value is None else repr(value)
                raise self.error(None, f"{self.name}: the type variable {name} needs an element type, found {found}",
                                 f"give it: compile({name}=tesela.f32), on the command line --constant {name}=f32")
            bound[name] = value
        for name, param in self.constants.items():
            first = self.variants[0] if self.variants else {}
            value = values.get(name, first.get(name, param.default))
            if value is REQUIRED:
                raise self.error(name, f"{self.name}: the compile-time parameter {name} has no value", f"give {name}=…")
            if not _is_constant(value):
                hint = "a number, a string, an element type, a function, None, or a tuple of those"
                if isinstance(value, Word):
                    hint = f"wrap the word in a function: def {value.name}(x): return tesela.{value.name}(x)"
                raise self.error(name, f"{self.name}: {name} cannot be a compile-time value: {value!r}", hint)
            bound[name] = value
        return bound

    @called_by_users
    def trace(self, **values: Any) -> ModuleOp:
        """The tile-level module for these compile-time values: constexpr parameters, and type variables, by name.

        Raises TeselaError at the expression that is not in the language. A fresh module each time.
        """
        return self._trace(self.bind(values))[0]

    @called_by_users
    def ir(self, level: str = "tile", **values: Any) -> str:
        """The program's text at a level, 'tile', 'async', 'layout', 'schedule' or 'ptx-ir'; compile-time values as for `explain`."""
        values = self._as_called(values)
        if level != "tile":
            return self.compile(**values).ir(level)
        from ..dialects.parsing import print_module

        return print_module(self.trace(**values))

    def module(self) -> ModuleOp:
        """`trace()` with the default of every compile-time parameter: what `tesela.compile(kernel)` compiles."""
        return self.trace()

    @called_by_users
    def compile(self, target: str | None = None, *, pins: Mapping[str, int] | None = None, **values: Any) -> Kernel:
        """The compiled kernel for these compile-time values; the same object each time. `pins` as for `tesela.compile`. Values and pins that are given
        are taken out of what variants leave open."""
        return self.program(values, target, pins).kernel

    @called_by_users
    def explain(self, target: str | None = None, **values: Any) -> str:
        """What the compiler chose, value by value (`Kernel.explain`); compile-time values as for `trace`. Element types that are left out are those that
        all calls so far had."""
        return self.compile(target, **self._as_called(values)).explain()

    @called_by_users
    def export(self, folder: str | os.PathLike[str], target: str | None = None, *, archs: Sequence[str] = (), **values: Any) -> None:
        """Write the kernel with these compile-time values, as for `explain`, to a folder, for `tesela.load_kernel` (`Kernel.export`)."""
        self.compile(target, **self._as_called(values)).export(folder, archs=archs)

    @called_by_users
    def as_torch_op(self, name: str, **values: Any) -> Any:
        """Register the kernel as an operator of torch, "namespace::name", with fake tensors, for torch.compile; gives the operator. `values`: compile-time values
        that all calls have; element types that are left open are those of the tensors of each call. Raises TeselaError where torch is not installed, and for a
        kernel that cannot be traced."""
        from ..runtime.torch_op import register

        open_types = [variable for variable in self.type_variables if variable not in values]

        def typed(found: Mapping[str, str]) -> Kernel:
            types = {p.annotation.dtype: DTYPES[found[p.name]] for p in self.arguments if isinstance(p.annotation, Array) and p.name in found}
            return self.program(values | {variable: types[variable] for variable in open_types if variable in types}, None).kernel

        # What is read, written and returned is the same for all element types.
        return register(self.program(values | dict.fromkeys(open_types, DTYPES["f32"]), None).kernel, name, typed if open_types else None)

    def __call__(
        self, *args: Any, target: str | None = None, device: str | None = None, stream: Any = None, **kwargs: Any
    ) -> Any:
        """Launch on arrays and scalars; compile-time parameters may be given by name, or in their position.

        Arrays at the end that the kernel only writes may be left out, and are then allocated and returned. `target`, `device` and
        `stream` as for `tesela.compile` and `Kernel`. Raises TeselaError for a wrong kernel or wrong arguments.
        """
        try:
            plain = not kwargs and target is None and len(args) in self._plain_counts
            types: Any = None
            if plain and self._typed:
                try:
                    types = args[self._typed[0]].dtype if len(self._typed) == 1 else tuple([args[i].dtype for i in self._typed])
                except (AttributeError, IndexError):  # an array that only its interface describes, or an output that is left out
                    plain = False
            if plain and (found := self._plain.get(types)) is not None and found.is_current():
                run = found.kernel.run
                return run(*args) if device is None and stream is None else run(*args, device=device, stream=stream)
            args, kwargs, values = self.split(args, kwargs)
            program = self.program(values, target)
            if plain:
                self._plain[types] = program
            return program.kernel(*args, device=device, stream=stream, **kwargs)
        except TeselaError as error:
            raise short(error) from None

    @called_by_users
    def warmup(
        self, *args: Any, target: str | None = None, device: str | None = None, pins: Mapping[str, int] | None = None, **kwargs: Any
    ) -> Variant:
        """Compile what a call on such arguments needs, and load it on the GPU; arrays may be stated as shapes or as `tesela.ArraySpec`s, with their
        element types where the kernel leaves them open, and scalars left out. Compile-time parameters as in a call."""
        args, kwargs, values = self.split(args, kwargs)
        program = self.program(values, target, pins)
        return program.kernel.warmup(*args, device=device, **kwargs)

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """The arguments of a call as those of the launch, by position and by name, and the compile-time values."""
        values: dict[str, Any] = {}
        if self.constants:
            if len(args) > len(self.params):
                raise self.error(None, f"{self.name} has {len(self.params)} parameters, found {len(args)} arguments")
            positional = list(zip(self.params, args))
            args = tuple(value for param, value in positional if not param.is_constant)
            values = {param.name: value for param, value in positional if param.is_constant}
            for name in [name for name in kwargs if name in self.constants]:
                if name in values:
                    raise self.error(name, f"{self.name}: {name} is given twice")
                values[name] = kwargs.pop(name)
            self._check_names(kwargs)
        if self.type_variables:
            values |= self._types_of(args, kwargs)
        for param in self.arguments[len(args) :]:
            if param.default is not REQUIRED:
                kwargs.setdefault(param.name, param.default)
        return args, kwargs, values

    def _check_names(self, kwargs: dict[str, Any]) -> None:
        """Raises TeselaError for an argument by a name that the signature does not have."""
        names = (*(param.name for param in self.params), *self.type_variables)
        for name in kwargs:
            if name not in names:
                hint = similar(name, names) or f"it has {', '.join(names)}"
                raise self.error(None, f"{self.name} has no parameter {name}", hint)

    def _types_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, DType]:
        """The values of type variables: those given as `T=…`, else the element types of the arrays passed."""
        from ..runtime.arrays import as_spec, view

        given = {name: kwargs.pop(name) for name in self.type_variables if name in kwargs}
        found: dict[str, tuple[str, str]] = {}
        for param, value in (*zip(self.arguments, args), *((p, kwargs.get(p.name)) for p in self.arguments[len(args) :])):
            variable = param.annotation.dtype if isinstance(param.annotation, Array) else None
            if not isinstance(variable, str) or variable in given or value is None:
                continue
            spec = as_spec(value)
            if spec is not None and spec.dtype is None:
                continue  # another array may say
            dtype = (spec.view("") if spec is not None else view(value, f"{self.name}: {param.name}")).dtype
            if dtype not in DTYPES:
                message = f"{self.name}: {param.name} has elements of type {dtype}, which is no element type"
                raise self.error(param.name, message, f"name the type: {variable}=tesela.bf16")
            expected, first = found.setdefault(variable, (dtype, param.name))
            if dtype != expected:
                message = f"{self.name}: {param.name} has elements of type {dtype}, but {first} has {expected}"
                raise self.error(param.name, message, f"both are stated as {variable}")
        passed = {**dict(zip((param.name for param in self.arguments), args)), **kwargs}
        for param in self.arguments:
            variable = param.annotation.dtype if isinstance(param.annotation, Array) else None
            if isinstance(variable, str) and variable not in given and variable not in found and passed.get(param.name, ...) is None:
                raise self.error(param.name, f"{self.name}: argument '{param.name}' is None", f"pass an array, or name its type: {variable}=tesela.bf16")
        types = given | {name: DTYPES[dtype] for name, (dtype, _) in found.items()}
        self._called_with[tuple(sorted((name, str(dtype)) for name, dtype in types.items()))] = types
        return types

    def _as_called(self, values: dict[str, Any]) -> dict[str, Any]:
        """Compile-time values, and for element types that are left out those of the calls so far, where all had the same."""
        calls = [types for types in self._called_with.values() if all(types[name] == values[name] for name in types if name in values)]
        return calls[0] | values if len(calls) == 1 else values

    def opened(self, **values: Any) -> Source:
        """The program for these compile-time values, as `tesela.compile` takes it."""
        return Reading(self, self.bind(values)).opened()

    def program(self, values: dict[str, Any], target: str | None, pins: Mapping[str, int] | None = None) -> Program:
        """The program for these compile-time values and pins; compiled again where what it was made from has changed."""
        programs = self.programs(values, pins or {})
        key = (target, *[(*map(_key, reading.bound.values()), *sorted(pinned.items())) for _, reading, pinned in programs])
        found = self._programs.get(key)
        if found is not None and found.is_current():
            return found
        from ..runtime.compile import compile_programs

        with self._lock:
            if self._programs.get(key) is found:  # no other thread has been here
                made = compile_programs(programs, self.is_open, target)
                captures = {(id(capture.scope), capture.name): capture for _, reading, _ in programs for capture in reading.captures()}
                self._programs[key] = Program(made, tuple(captures.values()))
            return self._programs[key]

    @property
    def is_open(self) -> bool:
        """Whether its author left compile-time values open, so that calls choose."""
        return bool(self.variants)

    def programs(self, values: Mapping[str, Any], pins: Mapping[str, int]) -> list[tuple[str, Reading, dict[str, int]]]:
        """(label, program, pins) of each variant that has these values and pins, in order; or of the one program that they make."""
        if (fault := pins_fault(pins)) is not None:
            raise TeselaError.at(None, *fault)
        given = {**values, **pins}
        self._check_open(values)
        fitting = [config for config in self.variants if all(given.get(name, value) == value for name, value in config.items())] or [{}]
        found = []
        for config in fitting:
            constants = {name: value for name, value in config.items() if name in self.constants}
            pinned = {name: value for name, value in config.items() if name not in self.constants}
            found.append((label_of(config), Reading(self, self.bind(constants | dict(values))), self.pins | pinned | dict(pins)))
        return found

    def _check_open(self, values: Mapping[str, Any]) -> None:
        """Raises TeselaError where no variant has the given compile-time values, and others that variants state are left to be chosen."""
        stated = [{name: value for name, value in config.items() if name in self.constants} for config in self.variants]
        names = list(dict.fromkeys(name for config in stated for name in config))
        if not stated or all(name in values for name in names):
            return
        if not any(all(values.get(name, value) == value for name, value in config.items()) for config in stated):
            given = ", ".join(f"{name} = {values[name]!r}" for name in names if name in values)
            left = ", ".join(f"{name}=…" for name in names if name not in values)
            known = "; ".join(f"{name}: {', '.join(dict.fromkeys(repr(c[name]) for c in stated if name in c))}" for name in names if name in values)
            raise self.error(None, f"{self.name}: none of its variants has {given}", f"they have {known}; or give the others too: {left}")

    def _read_variants(self, space: Space) -> list[dict[str, Any]]:
        """The configurations of a space. Raises TeselaError for an unknown name, and for an empty space."""
        configs = configurations(space)
        if not configs or not all(configs):
            raise self.error(None, f"{self.__name__}: there are no variants", "give each name at least one value")
        for name in dict.fromkeys(name for config in configs for name in config):
            if name not in self.constants and name not in PINS:
                known = ", ".join([*self.constants, *PINS])
                raise self.error(None, f"{self.__name__}: {name} cannot be left open", f"what can: {known}")
        return configs

    def _trace(self, bound: dict[str, Any]) -> tuple[ModuleOp, tuple[Capture, ...]]:
        from .trace import trace_kernel

        try:
            return trace_kernel(self.source, self.params, bound, self.amounts)
        except TeselaError as error:
            # The error says where the user's program is wrong; how the tracer came there is of no use to them.
            raise error.with_traceback(None) from None

    @property
    def source(self) -> SourceFunction:
        """The function's source; TeselaError where it cannot be read."""
        return SourceFunction(self.function)

    def error(self, parameter: str | None, message: str, hint: str | None = None) -> TeselaError:
        """An error about a parameter of the signature, or (None) about the kernel as a whole."""
        return _signature_error(self.function, parameter, message, hint)


class Reading:
    """A kernel read with some compile-time values: what it depends on, its module once it is traced, and what that took from outside."""

    def __init__(self, kernel: KernelFunction, bound: dict[str, Any]):
        self.kernel, self.bound = kernel, bound
        self._captures: tuple[Capture, ...] | None = None

    @cached_property
    def dependencies(self) -> Dependencies:
        from .fingerprint import dependencies

        return dependencies(self.kernel, self.bound)

    def opened(self, **values: Any) -> Source:
        """The program; its values are bound already."""
        assert not values
        from ..runtime.compile import Source

        return Source(self.trace, self.fingerprint)

    def trace(self) -> ModuleOp:
        module, self._captures = self.kernel._trace(self.bound)
        return module

    def fingerprint(self) -> str | None:
        """The key of all that it depends on; None where it was traced and took more from outside than was foreseen, or something else."""
        found = self.dependencies
        return None if self._captures is not None and not found.covers(self._captures) else found.key

    def captures(self) -> tuple[Capture, ...]:
        """What must be unchanged for the program to be current."""
        return self._captures if self._captures is not None else self.dependencies.changeable()


class InlineFunction:
    """What `@tesela.function` makes: a helper of kernels, inlined where it is called. A plain function can be called too; this one
    says what it is for, and ordinary Python that calls it gets an error."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise outside_kernel(self.__name__)


@overload
def kernel(function: Callable[..., Any], /) -> KernelFunction: ...


@overload
def kernel(
    *, flops: str = "", nbytes: str = "", variants: Space | None = None, pins: Mapping[str, int] | None = None
) -> Callable[[Callable[..., Any]], KernelFunction]: ...


@called_by_users
def kernel(
    function: Callable[..., Any] | None = None, /, *, flops: str = "", nbytes: str = "", variants: Space | None = None,
    pins: Mapping[str, int] | None = None, **unknown: Any,
) -> Any:  # fmt: skip
    """Decorator: make a kernel of a function. Raises TeselaError for a signature that is none.

    `flops`, `nbytes`: what a launch amounts to, as expressions of the dimensions, for `tesela.profile`: `@tesela.kernel(flops="2 * M * N * K")`.
    `variants`: what each call chooses from by its extents, as `tesela.autotune` takes a space: values of compile-time parameters, 'warps', 'stages', 'split', by
    name, all combinations of which are meant; or the configurations themselves. The first is what has preference among equals, and what stands for the kernel where
    no extents are known. `pins`: choices of the compiler that the author makes, {'warps': 8, 'stages': 3}, as for `tesela.compile`; a variant's and a call's own
    have precedence.
    """
    for fault in (pins_fault(pins or {}), None if variants is None else space_fault(variants)):
        if fault is not None:
            raise TeselaError.at(caller_place(sys._getframe(2)), *fault)
    for name in unknown:
        known = ("flops", "nbytes", "variants", "pins")
        place = caller_place(sys._getframe(2))
        raise TeselaError.at(place, f"@tesela.kernel has no argument {name}", similar(name, known) or f"it has {', '.join(known)}")
    amounts = {name: text for name, text in (("flops", flops), ("nbytes", nbytes)) if text}
    if function is None and (amounts or pins or variants is not None):
        return called_by_users(lambda function: KernelFunction(_plain(function, "kernel"), amounts, variants, pins))
    return KernelFunction(_plain(function, "kernel"))


def function(function: Callable[..., Any] | None = None) -> InlineFunction:
    """Decorator: mark a function as a helper that kernels call."""
    return InlineFunction(_plain(function, "function"))


def _plain(function: Any, decorator: str) -> FunctionType:
    if not isinstance(function, FunctionType):
        hint = f"write @tesela.{decorator}, without parentheses" if function is None else None
        raise TeselaError.at(None, f"@tesela.{decorator} takes a function defined with def, found {type(function).__name__}", hint)
    return function


def label_of(config: Mapping[str, Any]) -> str:
    """A configuration in one line: 'BM=128 warps=8'."""
    return " ".join(f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in config.items())


def _key(value: Any) -> Any:
    """What tells compile-time values apart: 1, 1.0 and True make different programs, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    return type(value), repr(value) if isinstance(value, float) else value


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, bool | int | float | str | DType | FunctionType | InlineFunction)


def _read_signature(function: FunctionType) -> tuple[Parameter, ...]:
    params = []
    for param in inspect.signature(function, follow_wrapped=False).parameters.values():
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            raise _signature_error(function, param.name, "a kernel has no * or ** parameters", "name each argument")
        annotation: Any = param.annotation
        if isinstance(annotation, str):
            annotation = _evaluate(function, param.name, annotation)
        if annotation is param.empty:
            raise _signature_error(
                function, param.name, f"the parameter {param.name} has no type",
                "write Array[f32, M, N] for an array, f32 or index for a scalar, tesela.constexpr for a compile-time value",
            )
        if not isinstance(annotation, Array | DType) and annotation is not constexpr:
            known = f"an Array[…], an element type ({', '.join(DTYPES)}) or tesela.constexpr"
            text = getattr(annotation, "__name__", repr(annotation))
            hint = f"for a compile-time value write {param.name}: tesela.constexpr" if isinstance(annotation, type) else None
            raise _signature_error(function, param.name, f"the type of {param.name} must be {known}, found {text}", hint)
        if isinstance(annotation, Array) and param.default is not param.empty:
            raise _signature_error(function, param.name, f"the array {param.name} cannot have a default")
        params.append(Parameter(param.name, annotation, param.default))
    return tuple(params)


def _evaluate(function: FunctionType, name: str, text: str) -> Any:
    """The value of an annotation that is text (from __future__ import annotations)."""
    variables = dict(function.__globals__)
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            variables[free] = cell.cell_contents
        except ValueError:  # assigned later in the enclosing function
            continue
    try:
        return eval(text, variables)
    except TeselaError as error:
        raise _signature_error(function, name, error.diagnostics[0].message, error.diagnostics[0].hint) from None
    except (NameError, AttributeError, TypeError, SyntaxError, ArrayError, DimExprError) as error:
        hint = 'write the names of dimensions as text, Array[f32, "M", "N"], or define them: M, N = tesela.dims("M N")'
        raise _signature_error(function, name, f"the type of {name} cannot be read: {error}", hint) from None


def _signature_error(function: FunctionType, parameter: str | None, message: str, hint: str | None = None) -> TeselaError:
    """An error at a parameter, or at the function's name."""
    code = function.__code__
    place = Location(code.co_filename, code.co_firstlineno, 1)
    try:
        source = SourceFunction(function)
    except TeselaError:
        return TeselaError.at(place, message, hint)
    nodes = {arg.arg: arg for arg in ast.walk(source.tree.args) if isinstance(arg, ast.arg)}
    return TeselaError.at(source.place(nodes.get(parameter or "", source.tree)), message, hint)


