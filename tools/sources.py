"""What command-line tools have in common: the programs they take, .mlir files and Python files with kernels in them, and NAME=VALUE options.

A Python file is executed as the module it is; what `@tesela.kernel` made in it are its kernels.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..dialects.diagnostics import Location, TeselaError
from ..frontend.autotune import TunedKernel
from ..frontend.kernel import KernelFunction
from ..frontend.types import DTYPES
from ..runtime.compile import compile
from ..runtime.kernel import Kernel


def add_program_arguments(parser: argparse.ArgumentParser, kinds: str) -> None:
    """The options that name a program; `kinds`: which files are taken."""
    parser.add_argument("file", help=kinds)
    parser.add_argument("--kernel", metavar="NAME", help="which kernel, of a file with several")
    parser.add_argument(
        "--constant", dest="constants", action="append", default=[], metavar="NAME=VALUE",
        help="a compile-time parameter of a Python kernel: a number, an element type, True, False or a word; may be repeated",
    )  # fmt: skip


def pairs(option: str, items: Sequence[str]) -> list[tuple[str, str]]:
    """The parts of NAME=VALUE options. Raises TeselaError for one without a '=' and for a name that is given twice."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not (name and equals and value):
            raise TeselaError.at(None, f"{option} {item}: NAME=… is required")
        if name in found:
            raise TeselaError.at(None, f"{option} {name} was given twice")
        found[name] = value
    return list(found.items())


def read_number(option: str, name: str, text: str) -> float:
    """An integer (also 0x…) or a float, from the command line; TeselaError for anything else."""
    for read in (lambda text: int(text, 0), float):
        try:
            return read(text)
        except ValueError:
            continue
    raise TeselaError.at(None, f"{option} {name}: '{text}' is no number")


def read_constants(items: Sequence[str]) -> dict[str, Any]:
    """The values of `--constant` options."""
    words: dict[str, Any] = {"True": True, "False": False, "None": None, **DTYPES}
    values: dict[str, Any] = {}
    for name, text in pairs("--constant", items):
        if text in words or text[0].isalpha():
            values[name] = words.get(text, text)
        else:
            values[name] = read_number("--constant", name, text)
    return values


def compile_source(path: str | Path, target: str | None, kernel: str | None, strict: bool = False, **values: Any) -> Kernel:
    """The kernel of a file, by name where there are several. `values`: compile-time parameters, for Python.

    Raises TeselaError for a file that cannot be read or run, and for every mistake in the program.
    """
    if Path(path).suffix != ".py":
        return compile(Path(path), target, kernel=kernel, strict=strict, **values)
    return compile(python_kernel(path, kernel), target, strict=strict, **values)


def python_kernel(path: str | Path, name: str | None = None) -> KernelFunction:
    """The kernel function of a Python file: its only one, or the one called `name`."""
    found = python_kernels(path)
    listed = ", ".join(found)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        held = f"{len(found)} kernels" if found else "no kernel"
        raise TeselaError.at(None, f"'{path}' has {held}", f"name one, on the command line with --kernel: {listed}" if found else "decorate a function with @tesela.kernel")
    if name not in found:
        raise TeselaError.at(None, f"'{path}' has no kernel '{name}'", f"it has: {listed}" if found else None)
    return found[name]


def _package_of(path: Path) -> str:
    """The package that a file belongs to, which then can be imported; '' if none."""
    own = Path(__file__).resolve().parent.parent
    folder = path.resolve().parent
    names: list[str] = []
    while folder != own and (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if folder == own:
        names.insert(0, __name__.split(".")[0])
    elif names and str(folder) not in sys.path:
        sys.path.append(str(folder))
    return ".".join(names)


def python_kernels(path: str | Path) -> dict[str, KernelFunction]:
    """All kernel functions of a Python file by name, in order. Raises TeselaError, at the line, where the file cannot be run."""
    path = Path(path)
    if not path.is_file():
        raise TeselaError.at(None, f"cannot read '{path}': No such file or directory")
    package = _package_of(path)
    name = f"{package}.tesela_program_{path.stem}" if package else f"tesela_program_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that what the file defines finds its module
    try:
        if package:  # so that what the file imports from its neighbours is found
            importlib.import_module(package)
        spec.loader.exec_module(module)
    except TeselaError:
        raise
    except SyntaxError as error:
        place = Location(str(path), error.lineno or 1, error.offset or 1)
        raise TeselaError.at(place, f"'{path}' is no Python program: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own program, which may raise anything
        # Python makes the path absolute before it runs the file.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.absolute()]
        place = Location(str(path), frames[-1].lineno or 1, 1) if frames else None
        raise TeselaError.at(place, f"'{path}' raised {type(error).__name__}: {error}") from None
    found = {key: value.kernel if isinstance(value, TunedKernel) else value for key, value in vars(module).items()}
    return {key: value for key, value in found.items() if isinstance(value, KernelFunction) and value.__module__ == name}


def read_array(path: str) -> np.ndarray[Any, Any]:
    """An array from an .npy file. Raises TeselaError for a file that cannot be read or is none."""
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise TeselaError.at(None, f"cannot read '{path}': {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise TeselaError.at(None, f"cannot read '{path}': it is no .npy file ({error})") from None
