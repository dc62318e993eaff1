"""Running a kernel of the language at every level, judged, and comparing with what its tile program allows: what tests of single words share."""

from __future__ import annotations

from tesela.dialects.parsing import parse_module, print_module
from tesela.dialects.verify import verify_module
from tesela.simulator.blocks import run_kernel
from tesela.simulator.bounds import allowed_results, check_results
from tesela.simulator.launcher import settings

TARGETS = ("sm_90a", "sm_80")


def everywhere(kernel, arrays, constants=None, targets=TARGETS):
    """What the arrays hold after the kernel: by the interpreter, and, if it is one of the results that are allowed, compiled for each target and judged."""
    constants = constants or {}
    module = kernel.trace(**constants)
    verify_module(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    interpreted = {name: array.copy() for name, array in arrays.items()}
    run_kernel(module, interpreted)
    allowed = allowed_results(module, {name: array.copy() for name, array in arrays.items()})
    check_results(interpreted, allowed)
    results = [interpreted]
    for target in targets:
        given = {name: array.copy() for name, array in arrays.items()}
        options = {name: value for name, value in constants.items() if name != "T"}
        with settings(races=True):
            kernel(**given, **options, target=target, device="sim")
        check_results(given, allowed)
        results.append(given)
    return results


def on_gpu(kernel, arrays, constants=None):
    """Run the kernel on the GPU on copies of the arrays, and check that each result is one of those that are allowed."""
    constants = constants or {}
    allowed = allowed_results(kernel.trace(**constants), {name: array.copy() for name, array in arrays.items()})
    given = {name: array.copy() for name, array in arrays.items()}
    options = {name: value for name, value in constants.items() if name != "T"}
    kernel(**given, **options, device="cuda")
    check_results(given, allowed)
