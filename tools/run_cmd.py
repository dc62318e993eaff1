"""tesela run: a program on arrays from .npy files, on a GPU or in the simulator.

    tesela run examples/gemm.mlir --in A=a.npy --in B=b.npy --out C=c.npy
    tesela run scale.mlir --in x=x.npy --scalar alpha=2.0 --out y=y.npy --device sim
    tesela run examples/gemm.py --constant BM=64 --in A=a.npy --in B=b.npy --out C=c.npy
    tesela run gemm.ptx --plan gemm.json --in A=a.npy --in B=b.npy --out C=c.npy
    tesela run examples/gemm.mlir --in A=a.npy --in B=b.npy --device sim --races --seeds 5
    tesela run k.ptx --grid 4,1,1 --block 128 --param x=x.npy --param y=zeros:f32:1000 --param n=i32:1000 --out y=y.npy

The shapes of arrays that the program writes follow from its contract. A bfloat16 array is saved and loaded as NumPy's `V2`.
PTX text states no contract: either `--plan` gives the one that `tesela compile --emit plan` wrote, or the launch is spelled out
with `--grid`, `--block` and one `--param` for each parameter, in order.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..dialects.diagnostics import TeselaError
from ..dialects.launch_plan import ArrayArg, LaunchPlan, Param, ScalarArg
from ..dialects.target import get_target
from ..runtime.arrays import ELEMENT_TYPES, RAW_16_BITS, view
from ..runtime.assemble import target_of
from ..runtime.contract import Contract
from ..runtime.kernel import DEVICES, Kernel
from ..runtime.launch import Variant
from ..runtime.specialize import Facts
from .driver import positive
from .judging import add_simulator_arguments, simulated_runs
from .sources import add_program_arguments, compile_source, pairs, read_array, read_constants, read_number

PTX_OPTIONS = {"plan": "plan", "grid": "grid", "block": "block", "shared": "shared", "cluster": "cluster", "param": "params"}
"""The options that say how PTX text is launched, and where they are kept."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_program_arguments(parser, "an .mlir file with a tile.kernel, a .py file with a @tesela.kernel, or a .ptx file")
    add("--in", dest="inputs", action="append", default=[], metavar="NAME=FILE", help="an array from an .npy file; may be repeated")
    add("--out", dest="outputs", action="append", default=[], metavar="NAME=FILE", help="save an array after the run; may be repeated")
    add("--scalar", dest="scalars", action="append", default=[], metavar="NAME=VALUE", help="a scalar argument; may be repeated")
    add("--device", choices=DEVICES, help="default: what TESELA_DEVICE says, else auto: a GPU if there is one")
    add("--target", help="the architecture to compile for (default: the GPU's own; sm_90a in the simulator)")
    add("--plan", metavar="FILE", help="for PTX: the launch plan that `tesela compile --emit plan` wrote")
    add("--grid", metavar="X,Y,Z", help="for PTX without a plan: blocks")
    add("--block", type=positive, metavar="N", help="for PTX without a plan: threads of a block")
    add("--shared", type=int, metavar="BYTES", help="for PTX without a plan: dynamic shared memory")
    add("--cluster", metavar="X,Y,Z", help="for PTX without a plan: blocks of a cluster")
    add_simulator_arguments(parser)
    add("--param", dest="params", action="append", default=[], metavar="NAME=…", help="for PTX without a plan: FILE.npy, TYPE:VALUE or zeros:TYPE:4x5")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    arrays: dict[str, Any] = {name: read_array(path) for name, path in pairs("--in", arguments.inputs)}
    scalars = {name: read_number("--scalar", name, text) for name, text in pairs("--scalar", arguments.scalars)}
    if arguments.file.endswith(".ptx"):
        if arguments.constants:
            raise TeselaError.at(None, "--constant is for kernels written in Python, and the program is PTX")
        kernel = _ptx_kernel(arguments, arrays, scalars)
    else:
        if idle := [f"--{option}" for option, name in PTX_OPTIONS.items() if getattr(arguments, name)]:
            raise TeselaError.at(None, f"{idle[0]} is for PTX text; a kernel states its launch itself", "take it out")
        kernel = compile_source(arguments.file, arguments.target, arguments.kernel, **read_constants(arguments.constants))
    outputs = dict(pairs("--out", arguments.outputs))
    known = {arg.name: arg for arg in kernel.contract.args}
    written = [arg.name for arg in kernel.contract.args if isinstance(arg, ArrayArg) and "w" in arg.access]
    for name in outputs:
        if name not in written:
            raise kernel.contract.error(f"--out {name}: the kernel writes no array of that name", f"it writes {', '.join(written)}")
    left_out = [arg.name for arg in kernel.contract.args if isinstance(arg, ArrayArg) and arg.name not in arrays and arg.access == "w"]
    arrays, result = simulated_runs(
        arguments, arrays, lambda given: kernel(**given, **scalars, device=arguments.device), stdout
    )
    arrays.update(zip(left_out, (result,) if len(left_out) == 1 else result or ()))
    for name, path in outputs.items():
        save_array(path, arrays[name])
        stdout.write(f"{name}: {known[name].dtype} {arrays[name].shape} -> {path}\n")
    if not outputs:
        stderr.write(f"note: nothing was saved; name what to save, as in --out {(written or ['NAME'])[0]}=FILE\n")
    return 0


def save_array(path: str, array: np.ndarray[Any, Any]) -> None:
    """Write an .npy file, to just that path. Raises TeselaError if it cannot be written."""
    try:
        with open(path, "wb") as file:
            np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise TeselaError.at(None, f"cannot write '{path}': {error.strerror}") from None


def _ptx_kernel(arguments: argparse.Namespace, arrays: dict[str, Any], scalars: dict[str, Any]) -> Kernel:
    """A kernel from PTX text. What `--param` gives is added to `arrays` and `scalars`."""
    try:
        ptx = Path(arguments.file).read_text(encoding="utf-8")
    except OSError as error:
        raise TeselaError.at(None, f"cannot read '{arguments.file}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise TeselaError.at(None, f"cannot read '{arguments.file}': it is not UTF-8 text") from None
    if arguments.plan is not None:
        plan = _read_plan(arguments.plan)
    else:
        plan = _spelled_plan(arguments, ptx, arrays, scalars)
    variant = Variant(Facts(), plan, ptx)
    return Kernel(Contract.of_plan(plan), lambda facts, target: variant, get_target(plan.target))


def _read_plan(path: str) -> LaunchPlan:
    try:
        return LaunchPlan.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise TeselaError.at(None, f"cannot read '{path}': {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise TeselaError.at(None, f"'{path}' is no launch plan", "write one with tesela compile --emit plan") from None


def _spelled_plan(arguments: argparse.Namespace, ptx: str, arrays: dict[str, Any], scalars: dict[str, Any]) -> LaunchPlan:
    if arguments.grid is None or arguments.block is None:
        raise TeselaError.at(
            None, f"{arguments.file} is PTX text, which does not say how to launch it", "give --plan, or --grid, --block and a --param for each parameter"
        )
    entries = re.findall(r"\.entry\s+([\w$]+)", ptx)
    name = arguments.kernel or (entries[0] if len(entries) == 1 else None)
    if name is None or name not in entries:
        raise TeselaError.at(None, f"{arguments.file} has the kernels {', '.join(entries) or '(none)'}", "name one with --kernel")
    args: list[ArrayArg | ScalarArg] = []
    params: list[Param] = []
    for param, text in pairs("--param", arguments.params):
        head, colon, rest = text.partition(":")
        if head == "zeros" or not colon:
            array = arrays[param] = _zeros(param, rest) if head == "zeros" else read_array(text)
            seen = view(array, param)
            dtype = "bf16" if seen.dtype == RAW_16_BITS else seen.dtype
            args.append(ArrayArg(param, dtype, tuple(map(str, seen.shape)), (None,) * len(seen.shape), "rw"))
            params.append(Param("pointer", param, param))
        elif head in ELEMENT_TYPES:
            scalars[param] = read_number("--param", param, rest)
            args.append(ScalarArg(param, head))
            params.append(Param("scalar", param, param))
        else:
            raise TeselaError.at(None, f"--param {param}: unknown type '{head}'", f"known: {', '.join(ELEMENT_TYPES)}")
    grid = _triple("--grid", arguments.grid)
    return LaunchPlan(
        name,
        target_of(ptx),
        tuple(args),
        (),
        tuple(map(str, grid)),
        tuple(params),
        arguments.block,
        arguments.shared or 0,
        _triple("--cluster", arguments.cluster or "1,1,1"),
    )


def _zeros(param: str, text: str) -> np.ndarray[Any, Any]:
    dtype, _, shape = text.partition(":")
    if dtype not in ELEMENT_TYPES or not re.fullmatch(r"\d+(x\d+)*", shape):
        raise TeselaError.at(None, f"--param {param}: zeros:TYPE:SHAPE is required, as in zeros:f32:128x64, found 'zeros:{text}'")
    return np.zeros(tuple(map(int, shape.split("x"))), ELEMENT_TYPES[dtype])


def _triple(option: str, text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() for part in parts):
        raise TeselaError.at(None, f"{option} {text}: one to three integers are required, as in 4,2,1")
    x, y, z = [*map(int, parts), 1, 1][:3]
    return x, y, z
