"""tesela fuzz: random tile programs, compiled, run, and checked against the block interpreter (tools/fuzz/).

    tesela fuzz                                # a fresh seed, which is printed, for a minute
    tesela fuzz --seed 7 --count 100           # programs 7 … 106
    tesela fuzz --seed 223 --count 1 --show    # the text of one program, too
    tesela fuzz --against gpu --seconds 120    # the same programs on a GPU
    tesela fuzz --against interpreter          # text and back, and the interpreter only

A failure prints what went wrong, the command that repeats it, and the smallest program found that fails in the same
way. The exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from typing import TextIO

from .driver import natural, positive
from .fuzz.check import Coverage, Outcome, Subject, check, compiled
from .fuzz.generate import generate
from .fuzz.program import Program, render
from .fuzz.shrink import shrink

DEFAULT_SECONDS = 60.0
SIZE = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seed", type=natural, help="the first program's seed (default: a random one)")
    add("--count", type=positive, help="how many programs (default: as many as the time allows)")
    add("--seconds", type=float, help=f"stop after this time (default: {DEFAULT_SECONDS:g} if there is no count)")
    add(
        "--size", type=positive, default=SIZE, metavar="N", help=f"about how many operations a program has (default: {SIZE})"
    )
    add("--target", default="sm_90a", help="the architecture to compile for (default: sm_90a)")
    add(
        "--against",
        choices=("simulator", "gpu", "interpreter"),
        default="simulator",
        help="what runs the programs (default: simulator)",
    )
    add("--show", action="store_true", help="print the text of every program")
    add("--coverage", action="store_true", help="print which operations, forms and instructions were run")
    add(
        "--shrink-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="time to make a failing program smaller (default: 60)",
    )


def run(arguments: argparse.Namespace, stdout: TextIO, stderr: TextIO) -> int:
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 31)
    seconds = arguments.seconds
    if seconds is None:
        seconds = DEFAULT_SECONDS if arguments.count is None else float("inf")
    device = {"simulator": "sim", "gpu": "cuda"}.get(arguments.against)
    subject = compiled(arguments.target, device) if device else None
    print(f"seed {seed}, target {arguments.target}", file=stdout, flush=True)
    end = time.monotonic() + seconds
    kinds: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    total = Coverage()
    current = seed
    while time.monotonic() < end and (arguments.count is None or current < seed + arguments.count):
        program = generate(current, arguments.size)
        if arguments.show:
            print(render(program).text, file=stdout)
        outcome = check(program, subject, arguments.target)
        kinds[outcome.kind] += 1
        total.add(outcome.coverage)
        if outcome.kind == "refused":
            refused[outcome.signature[2]] += 1
        if outcome.failed and outcome.signature not in seen:
            seen.add(outcome.signature)
            _report(program, outcome, subject, arguments, stdout)
        current += 1
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "no programs", file=stdout)
    for message, count in refused.most_common():
        print(f"  refused {count}: {message}", file=stdout)
    if arguments.coverage:
        _print_coverage(total, stdout)
    return 1 if seen else 0


def _report(
    program: Program, outcome: Outcome, subject: Subject | None, arguments: argparse.Namespace, stdout: TextIO
) -> None:
    print(f"\nprogram {program.seed}: {outcome.kind} at {outcome.stage}\n{outcome.message}", file=stdout)
    size = "" if arguments.size == SIZE else f" --size {arguments.size}"
    print(
        f"repeat: tesela fuzz --seed {program.seed} --count 1 --target {arguments.target}{size}",
        file=stdout,
        flush=True,
    )

    def fails(candidate: Program) -> bool:
        return check(candidate, subject, arguments.target).signature == outcome.signature

    smaller = shrink(program, fails, arguments.shrink_seconds)
    print("\nthe smallest program found that fails in this way:\n", file=stdout)
    print(render(smaller).text, file=stdout)
    print(check(smaller, subject, arguments.target).message, file=stdout)
    for array in smaller.arrays:
        print(f"  {array.name}: {array.element} {list(array.shape)}, {array.view}, {array.data}", file=stdout)
    print(f"  grid {list(smaller.grid)}, trips {list(smaller.trips)}\n", file=stdout, flush=True)


def _print_coverage(total: Coverage, stdout: TextIO) -> None:
    for title, counts in zip(("operations", "forms", "instructions"), total.parts()):
        print(f"{title} ({len(counts)}):", file=stdout)
        for name, count in sorted(counts.items()):
            print(f"  {count:6} {name}", file=stdout)
