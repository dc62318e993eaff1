"""Whether any kernel of `tesela.kernels` spills registers or has its wgmma serialised, in any variant, for any facts, by any ptxas that there is.

    python bench/assembled.py                     # all: some 20 minutes of one core
    python bench/assembled.py gemm layer_norm     # these kernels

Prints a line for each program about which an assembler has something to say (C75xx, spills, warnings), and ends with status 1 if there was one.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tesela
from tesela import kernels
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.dim_expr import DimExpr
from tesela.dialects.launch_plan import ArrayArg
from tesela.frontend.kernel import KernelFunction
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.contract import Contract
from tesela.runtime.specialize import Facts, usual_facts, weakest_facts

TARGETS = ("sm_90a", "sm_80")
TYPES = ("f16", "f32")
PINS = ("warps", "stages", "cluster")
MORE: dict[str, list[dict[str, Any]]] = {
    "attention": [{"HEAD": head, "CAUSAL": causal} for head in (64, 128) for causal in (False, True)],
}
"""Compile-time values of kernels that do not name their variants."""


@dataclass(frozen=True)
class Case:
    """A program to assemble: a kernel's compile-time values, the target, and which facts."""

    kernel: str
    values: tuple[tuple[str, Any], ...]
    target: str
    facts: str

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values)
        return f"{self.kernel}({values}) {self.target} {self.facts}"


def functions() -> dict[str, KernelFunction]:
    """The kernels by name."""
    modules = [importlib.import_module(f"tesela.kernels.{module.name}") for module in pkgutil.iter_modules(kernels.__path__)]
    return {name: found for module in modules for name, found in vars(module).items() if isinstance(found, KernelFunction)}


def cases(names: Sequence[str] = ()) -> Iterator[Case]:
    """Every kernel's variants, element types, targets and facts."""
    for name, function in functions().items():
        if names and name not in names:
            continue
        for values in MORE.get(name) or function.variants or [{}]:
            for T in TYPES if function.type_variables else [None]:
                types = {name: getattr(tesela, T if name == "T" and T else "f32") for name in function.type_variables}
                for target in TARGETS:
                    for facts in ("usual", "divisible", "weakest"):
                        yield Case(name, tuple((values | types).items()), target, facts)


def facts_of(contract: Contract, which: str) -> Facts:
    """'usual', 'divisible' (and every dimension a multiple of 16), or 'weakest'."""
    if which == "weakest":
        return weakest_facts(contract)
    shapes = [DimExpr.parse(text) for arg in contract.args if isinstance(arg, ArrayArg) for text in arg.shape]
    symbols = sorted({symbol for expr in shapes for symbol in expr.symbols()})
    return replace(usual_facts(contract), divisors=tuple((symbol, 16) for symbol in symbols) if which == "divisible" else ())


def complaints(case: Case) -> list[str]:
    """What assemblers say about the program; [] also where the compiler refuses it, as it does what no shared memory holds."""
    values = dict(case.values)
    pins = {name: values.pop(name) for name in PINS if name in values}
    compiled = functions()[case.kernel].compile(case.target, pins=pins or None, **values)
    try:
        ptx = compiled.variant(facts=facts_of(compiled.contract, case.facts)).ptx
    except TeselaError as error:
        if "shared memory" in str(error):
            return []
        raise
    return [f"{assembler.path}: {message.message}" for assembler in find_ptxas() for message in assemble(ptx, case.target, assembler=assembler).messages]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="which kernels (default: all)")
    wrong = count = 0
    for case in cases(parser.parse_args().kernels):
        count += 1
        for message in complaints(case):
            wrong += 1
            print(f"{case}: {message}", flush=True)
    print(f"{count} programs, {wrong} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
