"""Tesela: tile programs in, NVIDIA GPU kernels out.

The public names: the kernel language (`frontend.kernel`, `frontend.types`, `frontend.words`), and what compiles, keeps and launches kernels. Each is
loaded when it is first used: importing this package, and defining kernels, loads neither xDSL nor NumPy.
"""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dialects.diagnostics import TeselaError as TeselaError
    from .frontend.autotune import *  # noqa: F403
    from .frontend.kernel import *  # noqa: F403
    from .frontend.types import *  # noqa: F403
    from .frontend.words import *  # noqa: F403
    from .runtime.arrays import ArraySpec as ArraySpec
    from .runtime.compile import compile as compile
    from .runtime.export import load as load_kernel
    from .runtime.kernel import Kernel as Kernel
    from .runtime.parallel import compile_all as compile_all
    from .runtime.profile import profile as profile

__version__ = "0.1.0"

_LANGUAGE = (".frontend.autotune", ".frontend.kernel", ".frontend.types", ".frontend.words")
"""Modules all of whose `__all__` is public."""
_OTHERS = {
    "ArraySpec": ".runtime.arrays:ArraySpec",
    "Kernel": ".runtime.kernel:Kernel",
    "TeselaError": ".dialects.diagnostics:TeselaError",
    "compile": ".runtime.compile:compile",
    "compile_all": ".runtime.parallel:compile_all",
    "load_kernel": ".runtime.export:load",
    "profile": ".runtime.profile:profile",
}
"""Other public names, and the module and the name in it that each is."""


def _public() -> dict[str, str]:
    """Every public name, and what it is: `module:name`."""
    language = {name: f"{module}:{name}" for module in _LANGUAGE for name in import_module(module, __name__).__all__}
    return language | _OTHERS


if not TYPE_CHECKING:  # to type checkers a name that is none of those above is a mistake

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            # `from tesela import *` leaves Python's own range, max … alone, as NumPy's does.
            return sorted(name for name in _public() if not hasattr(builtins, name))
        # Import machinery asks for dunder names and submodules; neither must load the language.
        home = None if name.startswith("_") else _OTHERS.get(name) or _public().get(name)
        if home is None:
            raise AttributeError(f"module 'tesela' has no attribute {name!r}")
        module, _, attribute = home.partition(":")
        value = globals()[name] = getattr(import_module(module, __name__), attribute)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_public()})
