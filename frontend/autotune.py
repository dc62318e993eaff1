"""`@tesela.autotune`: a kernel that is launched with the compile-time values, and pinned choices of the compiler, that proved fastest.

    @tesela.autotune({"BM": [128, 64], "BN": [256, 128], "warps": [8, 4]})
    @tesela.kernel
    def gemm(A: Array[bf16, M, K], …, BM: tesela.constexpr, BN: tesela.constexpr): ...

    C = gemm(A, B)              # the first call for a class of shapes tries the candidates (runtime/autotune.py), later ones do not
    print(gemm.tuning())        # what was found, as a table

The classes: each dimension up to the same power of two, on the same device. What was found is kept in the disk cache, under the kernel's
text and all that it names, the candidates and the device; `tesela cache list --kind tuning` shows it. With
TESELA_AUTOTUNE=0 none is tried: the one that the cost model finds fastest is taken, of equals the first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..dialects.diagnostics import TeselaError
from ..runtime.space import PINS, Space, configurations, space_fault
from .kernel import KernelFunction, Program, label_of

if TYPE_CHECKING:
    from ..runtime.autotune import Candidate, Tuning

__all__ = ["TunedKernel", "autotune"]

Config = Mapping[str, Any]


class TunedKernel:
    """What `@tesela.autotune` makes. `kernel` is the kernel itself, `configs` the candidates in order."""

    def __init__(self, kernel: KernelFunction, configs: Sequence[Config], budget: float):
        self.kernel, self.configs, self.budget = kernel, tuple(configs), budget
        self.__name__ = self.name = kernel.name
        self.__doc__ = kernel.__doc__
        self.__wrapped__ = kernel.function
        self._lock = threading.RLock()
        self._guesses: dict[tuple[Any, ...], int] = {}
        self._tunings: dict[tuple[Any, ...], Tuning] = {}
        self._chosen: dict[tuple[Any, ...], Program] = {}

    def __repr__(self) -> str:
        return f"<tesela.autotune {self.name}, {len(self.configs)} candidates>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(KernelFunction, name):
            raise AttributeError(f"'TunedKernel' object has no attribute '{name}'")
        raise AttributeError(f"a tuned kernel has no {name}, which depends on the candidate: {self.name}.kernel.{name} has it, and {self.name}.tuning() shows what won")

    @property
    def tunings(self) -> tuple[Tuning, ...]:
        """What was found so far in this process, or read from the cache, in order."""
        return tuple(self._tunings.values())

    def tuning(self) -> str:
        """The same as tables."""
        return "\n".join(tuning.table() for tuning in self.tunings) or f"{self.name} has not been tuned yet\n"

    def __call__(self, *args: Any, target: str | None = None, device: str | None = None, stream: Any = None, **kwargs: Any) -> Any:
        """Launch, as the kernel itself would be with the best compile-time values; parameters that are tuned cannot be given. What is best is found for each
        `target`.

        The first call for a class of shapes takes as long as the tuning does, at most about the budget.
        """
        key = None if kwargs else (target, device, *[_quick_key(arg) for arg in args])
        found = self._chosen.get(key) if key is not None else None
        if found is None or not found.is_current():
            found, args, kwargs = self._choose(args, kwargs, target, device)
            if key is not None:
                self._chosen[key] = found
        run = found.kernel.run
        return run(*args, **kwargs) if device is None and stream is None else run(*args, device=device, stream=stream, **kwargs)

    def _choose(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], target: str | None, device: str | None
    ) -> tuple[Program, tuple[Any, ...], dict[str, Any]]:
        """The program for a call, and the arguments of its launch."""
        from ..runtime.autotune import SWITCH_VARIABLE, device_name, guess, shape_class

        for name in kwargs:
            if any(name in config for config in self.configs):
                raise self.kernel.error(name, f"{self.name}: {name} is tuned, and cannot be given", f"call {self.name}.kernel to choose it")
        args, kwargs, values = self.kernel.split(args, kwargs)
        with self._lock:
            kernel = self._first(values, target).kernel
            arrived = kernel.arrive(args, kwargs, device)
            shapes = shape_class(kernel.contract.solve(arrived.views))
            where = device_name(arrived.place)
            key = (where, target, shapes, *[(name, repr(value)) for name, value in values.items()])
            if os.environ.get(SWITCH_VARIABLE) == "0":
                if key not in self._guesses:
                    self._guesses[key] = guess(self._candidates(values, target), arrived.values, {})
                return self._program(self.configs[self._guesses[key]], values, target), args, kwargs
            tuning = self._tunings.get(key)
            if tuning is None:
                # Outputs are allocated once: tried on these, and left out again in the launch itself.
                given = {arg.name: value for arg, value in zip(kernel.contract.args, arrived.values)}
                tuning = self._tunings[key] = self._tuned(values, given, target, device, where, shapes)
            return self._program(self.configs[tuning.best], values, target), args, kwargs

    def _first(self, values: dict[str, Any], target: str | None) -> Program:
        """The program of the first candidate that is not refused while it is read."""
        failed: TeselaError | None = None
        for config in self.configs:
            try:
                return self._program(config, values, target)
            except TeselaError as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _program(self, config: Config, values: dict[str, Any], target: str | None) -> Program:
        constants, pins = self._parts(config)
        return self.kernel.program(values | constants, target, pins)

    def _parts(self, config: Config) -> tuple[dict[str, Any], dict[str, int]]:
        """A candidate's compile-time values, and its pins."""
        constants = {name: value for name, value in config.items() if name in self.kernel.constants}
        return constants, {name: value for name, value in config.items() if name not in constants}

    def _tuned(
        self, values: dict[str, Any], given: dict[str, Any], target: str | None, device: str | None, where: str, shapes: str
    ) -> Tuning:
        from ..runtime.autotune import Tuning, tune
        from ..runtime.cache import Entry, compiler_fingerprint, digest, get_cache
        from .fingerprint import dependencies

        def make() -> Tuning:
            return tune(self._candidates(values, target), (), given, device, self.budget)

        cache = get_cache()
        keys = [dependencies(self.kernel, self.kernel.bind(values | self._parts(config)[0])).key for config in self.configs] if cache else []
        if cache is None or None in keys:
            return make()
        pins = [repr(sorted(self._parts(config)[1].items())) for config in self.configs]
        key = digest("tuning", compiler_fingerprint(), where, str(target), shapes, repr(float(self.budget)), *[str(part) for part in keys], *pins)
        return cache.fetch(
            "tuning", key, lambda entry: Tuning.from_json(entry.info), make, lambda tuning: Entry(tuning.title, tuning.to_json(), {})
        )

    def _candidates(self, values: dict[str, Any], target: str | None) -> list[Candidate]:
        from ..runtime.autotune import Candidate

        return [
            Candidate(label_of(config), lambda config=config: self._program(config, values, target).kernel)
            for config in self.configs
        ]


LONGEST_BUDGET = 10**6


def autotune(
    space: Space, *, budget: float = 60.0
) -> Callable[[KernelFunction], TunedKernel]:
    """Decorator over `@tesela.kernel`. `space`: the values to try by name, all combinations of which are candidates, or the candidates themselves.

    Names are compile-time parameters of the kernel, or what `tesela.compile` can pin: 'warps', 'stages', 'split', 'cluster'. `budget`: seconds for one class of
    shapes, after which what is not tried yet is left out. Raises TeselaError for an unknown name and for an empty space.
    """

    if (fault := space_fault(space)) is not None:
        raise TeselaError.at(None, *fault)
    if not isinstance(budget, int | float) or isinstance(budget, bool) or not 0 <= budget <= LONGEST_BUDGET:
        raise TeselaError.at(None, f"the budget of a tuning is a number of seconds, at least 0 and at most {LONGEST_BUDGET}, found {budget!r}")

    def decorate(kernel: KernelFunction) -> TunedKernel:
        if not isinstance(kernel, KernelFunction):
            raise TeselaError(f"@tesela.autotune takes a kernel, found {type(kernel).__name__}: write it above @tesela.kernel")
        configs = configurations(space)
        if not configs or not all(configs):
            raise kernel.error(None, f"{kernel.name}: the space to tune over is empty", "give each name at least one value")
        for name in dict.fromkeys(name for config in configs for name in config):
            if name not in kernel.constants and name not in PINS:
                known = ", ".join([*kernel.constants, *PINS])
                raise kernel.error(None, f"{kernel.name}: {name} cannot be tuned", f"what can: {known}")
        return TunedKernel(kernel, configs, budget)

    return decorate


def _quick_key(arg: Any) -> Any:
    """What of an argument decides which program is launched: shape and element type; a scalar's value does not."""
    shape = getattr(arg, "shape", None)
    if shape is None:
        return type(arg)
    dtype = getattr(arg, "dtype", None)  # an array that states itself through the interface alone has none
    return shape, arg.__cuda_array_interface__["typestr"] if dtype is None else dtype

