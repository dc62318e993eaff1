"""Execution without a GPU: PTX programs run on NumPy, thread by thread (`machine.py` says how), and a block interpreter for the
levels above. Imports only `dialects`, and of it neither the layout algebra nor any layout of the instruction table: fragment,
descriptor and swizzle maps are written here a second time, from the ISA, so that the simulator can judge the compiler.

    memory = Memory()
    x, y = memory.map_array(a), memory.map_array(b)
    launch(text, grid=(8,), block=(128,), params=(x, y, len(a)), memory=memory, races=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .launcher import RunResult, launch, settings
    from .memory import Memory
    from .observer import Observer
    from .races import judge
    from .reports import JudgedError, Report

__all__ = ["JudgedError", "Memory", "Observer", "Report", "RunResult", "judge", "launch", "settings"]

_HOMES = {
    "JudgedError": "reports",
    "Memory": "memory",
    "Observer": "observer",
    "Report": "reports",
    "RunResult": "launcher",
    "judge": "races",
    "launch": "launcher",
    "settings": "launcher",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{home}", __name__), name)
