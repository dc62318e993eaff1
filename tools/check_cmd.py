"""`tesela check FILE`: runs a program at every level of the compiler and compares with what the tile program allows.

For each seed the arguments are made from the kernel's contract. The tile program runs in the block interpreter with the error bounds of
docs/numbers.md; then the module runs again after every pass, at the ptx level in the simulator, and last the emitted PTX text, read back. The
first level that gives a result that is not allowed is named, with the first wrong element; but where the simulator reports a race of the program's
own, of which results differ from level to level, it is the race that is shown. With --races the simulator also judges the PTX
text, under its usual schedule and a random one.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

from ..dialects.diagnostics import Diagnostic, TeselaError
from .driver import positive
from .judging import add_race_arguments
from .sources import add_program_arguments, compile_source, pairs, read_constants

if TYPE_CHECKING:
    from ..dialects.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`tesela check`'s own arguments."""
    add_program_arguments(parser, "an .mlir file with a tile.kernel, or a .py file with a @tesela.kernel")
    parser.add_argument("--target", action="append", metavar="TARGET", help="compile for it; may be repeated (default: sm_80 and sm_90a)")
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="how many sets of arguments to try (default: %(default)s)")
    add_race_arguments(parser)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="the value of a symbolic dimension; may be repeated")


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    """Check; returns the exit status: 0 if every level agrees. Raises TeselaError, naming the level, where one does not."""
    from ..dialects.async_roles import RolesOp
    from ..dialects.ptx_text import print_program, read_program
    from ..dialects.target import get_target
    from ..lowering.emit_ptx import emit
    from ..lowering.pipeline import PIPELINE
    from ..passes import get_pass
    from ..passes.base import PassContext
    from ..runtime.specialize import Facts, specialize, usual_facts
    from ..simulator import settings
    from .checking import Reference

    kernel = compile_source(arguments.file, None, arguments.kernel, **read_constants(arguments.constants))
    module, name = kernel.module, kernel.name
    assert module is not None  # what is compiled from a source has one
    dims = _dims(arguments.dim)
    races = arguments.races or arguments.strict_isa
    count = 0
    targets = [get_target(target) for target in arguments.target or ("sm_80", "sm_90a")]
    if not arguments.target and any(isinstance(op, RolesOp) for op in module.walk()):
        for target in [target for target in targets if not target.has_mbarrier]:
            stdout.write(f"{name} {target.name}: passed over, since it has no roles\n")
            targets.remove(target)
    for target in targets:
        for what, facts in (("as it is", Facts()), ("aligned", usual_facts(kernel.contract))):
            variant = specialize(module, name, facts, kernel.pins)
            for seed in range(arguments.seeds):
                reference = Reference(variant, name, seed, dims)
                step = variant.clone()
                context = PassContext(target)
                for pass_name in PIPELINE:
                    get_pass(pass_name)().run(step, context)
                    context.emitter.raise_if_errors()
                    _compare(reference, variant, step, None, f"after {pass_name}", target, what, seed)
                again = read_program(print_program(emit(step)), "<emitted PTX>")
                schedules = (None, seed) if races else (None,)
                for schedule in schedules:
                    where = "as PTX text" if schedule is None else f"as PTX text, random schedule {schedule}"
                    with settings(races=races, seed=schedule, strict_isa=arguments.strict_isa):
                        _compare(reference, variant, step, again, where, target, what, seed)
                count += len(PIPELINE) + len(schedules)
            stdout.write(f"{name} {target.name}, {what}: {arguments.seeds} sets of arguments agree at every level\n")
    stdout.write(f"{count} runs, all as the tile program allows\n")
    return 0


def _compare(reference, variant, module, program, where: str, target: Target, what: str, seed: int) -> None:
    """Runs one level. Raises TeselaError where it gives what the tile program does not allow: the reports of the judge if it has any, since the
    result of a race is another at every level."""
    try:
        reference.check(module, program)
    except TeselaError as error:
        note = Diagnostic("note", f"with {reference.describe()} (seed {seed}), for {target.name}, {what}")
        reports = reference.judged(variant, target)
        if reports is None or any(d.message in {r.message for r in reports.diagnostics} for d in error.diagnostics):
            raise error.prefixed(f"{where}: ", [note]) from None
        found = [Diagnostic("note", f"{where}: {d.message}") for d in error.diagnostics]
        raise reports.prefixed("", [*found, note]) from None


def _dims(texts: list[str]) -> dict[str, int]:
    dims = {}
    for name, value in pairs("--dim", texts):
        if not value.isdigit():
            raise TeselaError.at(None, f"--dim {name}: '{value}' is no extent", "as in --dim M=128")
        dims[name] = int(value)
    return dims
