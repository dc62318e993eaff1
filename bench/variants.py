"""How good the choice among variants is: all of them timed beside the one that the cost model takes, for the GEMM C = A·Bᵀ of kernels/ in bf16.

    python bench/variants.py --json bench/results/variants.json
    python bench/variants.py --only 128x7168x2048 1024x1024x1024 --slack 4

For each shape: every variant and number of parts that the model expects within `slack` times its best, and the kernel itself, which chooses. Prints what was expected
and what was measured, and how far the choice is from the best: the exit status is 1 where that is more than a tenth, or a result is wrong. Every split result is computed twice, and
must be the same bit for bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from peers import GEMMS, Torch
from rounds import GPU, Case, Measured, Results, Row, System, measure

import tesela
from tesela.kernels.matrices import gemm_nt
from tesela.runtime.variants import Row as Expected

MORE = ((32, 6144, 4096), (64, 4096, 14336), (128, 14336, 4096), (1, 7168, 7168), (64, 64, 65536))
"""Further shapes: few rows, and one long sum."""
CHOSEN = "chosen"
WORST = 1.1


def case(torch: Torch, shape: tuple[int, int, int], slack: float) -> tuple[Case, dict[str, Expected], str]:
    """The case; what was expected of each candidate by its label; the label of the choice."""
    m, n, k = shape
    bf16, function = torch.torch.bfloat16, gemm_nt
    a, b = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16)
    c, again = (torch.torch.empty(m, n, device="cuda", dtype=bf16) for _ in range(2))
    expected = a.double() @ b.double().T
    whole = function.compile(T=tesela.bf16)
    rows = [row for row in whole.expected(a, b, c) if row.expected is not None]
    limit = slack * min(row.cost for row in rows)
    systems: list[System] = [torch.checked(torch.system(CHOSEN, lambda: whole(a, b, c)), c, expected, 1e-2)]
    labels: dict[str, Expected] = {}
    for row in rows:
        if row.cost > limit:
            continue
        label = row.label
        labels[label] = row
        config = function.variants[row.choice.program]
        constants = {name: value for name, value in config.items() if name in function.constants}
        pins = {name: value for name, value in config.items() if name not in constants}
        kernel = function.compile(pins=pins | {"split": row.choice.parts}, T=tesela.bf16, **constants)
        system = torch.checked(torch.system(label, lambda kernel=kernel: kernel(a, b, c)), c, expected, 1e-2)
        kernel(a, b, again)
        torch.torch.cuda.synchronize()
        if not torch.torch.equal(c, again):
            system = System(label, _differs)
        systems.append(system)
    nbytes = 2 * (m * k + n * k + m * n)
    made = Case("×".join(map(str, shape)), systems, flops=2 * m * n * k, nbytes=nbytes)
    return made, labels, whole.last.label


def _differs(stream: int) -> None:
    raise ValueError("two runs gave different results")


def show(row: Row, labels: dict[str, Expected], chosen: str) -> tuple[str, bool]:
    """The table, and whether the choice is good."""
    best = min((measured.milliseconds, label) for label, measured in row.systems.items() if label != CHOSEN)
    own: Measured | None = row.systems.get(CHOSEN)
    lines = [f"{row.case}"]
    for label, measured in sorted(row.systems.items(), key=lambda item: item[1].milliseconds):
        microseconds = 1e3 * measured.milliseconds
        note = ""
        if label in labels and (expected := labels[label].expected) is not None:
            note = f"  expected {expected.microseconds:8.2f}, bound by {expected.bound}"
        mark = "*" if label in (CHOSEN, chosen) else " "
        rate = row.flops / measured.milliseconds / 1e9
        lines.append(f" {mark} {label:28} {microseconds:9.2f} µs {rate:6.0f} TFLOP/s ±{measured.spread:.1%}{note}")
    lines += [f"   {label:28} failed: {why}" for label, why in row.failed.items()]
    if own is None:
        return "\n".join(lines) + "\n", False
    ratio = own.milliseconds / best[0]
    lines.append(f"   chosen {chosen}, best {best[1]}: {ratio:.3f}×")
    return "\n".join(lines) + "\n\n", ratio <= WORST and not row.failed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--only", nargs="+", default=[], metavar="MxNxK", help="these shapes only")
    parser.add_argument("--slack", type=float, default=2.5, help="how much worse than the best a candidate may be expected to be")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args(argv)
    torch, timer, good = Torch(), GPU(), True
    results = Results("variants", rounds=arguments.rounds)
    shapes = [tuple(map(int, text.split("x"))) for text in arguments.only] or [*GEMMS, *MORE]
    for shape in shapes:
        made, labels, chosen = case(torch, shape, arguments.slack)
        row = results.add(measure(made, timer, arguments.rounds))
        text, right = show(row, labels, chosen)
        good &= right
        results.notes.append(f"{row.case}: chosen {chosen}")
        sys.stdout.write(text)
        sys.stdout.flush()
        if arguments.json is not None:
            results.write(arguments.json)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
