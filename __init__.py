"""Tesela: tile programs in, NVIDIA GPU kernels out.

The public names: the kernel language (`frontend.kernel`, `frontend.types`, `frontend.words`), `compile`, `Kernel` and `TeselaError`. Each is
loaded when it is first used: importing this package, and defining kernels, loads neither xDSL nor NumPy.
"""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dialects.diagnostics import TeselaError as TeselaError
    from .frontend.kernel import *  # noqa: F403
    from .frontend.types import *  # noqa: F403
    from .frontend.words import *  # noqa: F403
    from .runtime.compile import compile as compile
    from .runtime.kernel import Kernel as Kernel

__version__ = "0.1.0"

_LANGUAGE = (".frontend.kernel", ".frontend.types", ".frontend.words")
"""Modules all of whose `__all__` is public."""
_OTHERS = {
    "TeselaError": ".dialects.diagnostics",
    "compile": ".runtime.compile",
    "Kernel": ".runtime.kernel",
}


def _public() -> dict[str, str]:
    """Every public name and the module that has it."""
    language = {name: module for module in _LANGUAGE for name in import_module(module, __name__).__all__}
    return language | _OTHERS


def __getattr__(name: str) -> Any:
    if name == "__all__":
        # `from tesela import *` leaves Python's own range, max … alone, as NumPy's does.
        return sorted(name for name in _public() if not hasattr(builtins, name))
    # Import machinery asks for dunder names and submodules; neither must load the language.
    module = None if name.startswith("_") else _OTHERS.get(name) or _public().get(name)
    if module is None:
        raise AttributeError(f"module 'tesela' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_public()})
