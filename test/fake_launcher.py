"""A stand-in for `driver.Launcher`: launches come to a Python function, which reads the parameters where the driver would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


def fake_launcher(launched: Callable[[Any, int, int], int | None]) -> type:
    """A class to put in the place of `driver.Launcher`. A launch calls `launched(launcher, stream, address of the pointers to the
    parameters)`, whose result is the status (None: success); `launcher.fixed` is what it was made with."""

    class Launcher:
        def __init__(self, *fixed: Any):
            self.fixed = fixed
            self.function = fixed[0]
            self.configs: dict[int, Any] = {}

        def config(self, stream: int) -> Any:
            return self.configs.setdefault(stream, ("config", stream))

        def entry(self, config: Any, function: Any, params: Any, extra: None) -> int:
            assert function is self.function and extra is None
            return launched(self, config[1], ctypes.addressof(params)) or 0

        def status(self, stream: int, params: Any) -> int:
            return self.entry(self.config(stream), self.function, params, None)

    return Launcher


def read_params(address: int, kinds: list[Any]) -> list[Any]:
    """The values of a launch's parameters, of these ctypes types."""
    pointers = (ctypes.c_void_p * len(kinds)).from_address(address)
    return [kind.from_address(at).value for kind, at in zip(kinds, pointers)]
