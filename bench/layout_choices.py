"""Whether the layout solver's costs rank the ways of a dot as the GPU does: a product with each way pinned, in turns, beside the cost of each.

    python bench/layout_choices.py                          # needs a GPU and torch; about a minute
    python bench/layout_choices.py --json bench/results/layout_choices.json
    python bench/layout_choices.py --list                   # the ways and their costs; needs neither

Each way differs from the others in the words of its `instruction` pin alone. The first of the list is what the solver takes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tesela.dialects.target import get_target
from tesela.passes.dot_candidates import DotCandidate, offer
from tesela.passes.layout_problem import build

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "examples" / "gemm.mlir"
SHAPE = (4096, 4096, 4096)
WIDTHS = ("n256", "n192", "n128", "n64", "n32")
"""Columns of an instruction that are timed; the solver prices all."""


def ways(text: str, target: str) -> list[DotCandidate]:
    """The ways of the program's dot that are timed, cheapest first."""
    from tesela.dialects import tile
    from tesela.dialects.parsing import parse_module
    from tesela.passes.base import PassContext
    from tesela.passes.infer_layouts import split_free_values
    from tesela.passes.plan_dataflow import PlanDataflow

    module = parse_module(text)
    PlanDataflow().run(module, PassContext(get_target(target)))
    (kernel,) = [op for op in module.walk() if isinstance(op, tile.KernelOp)]
    split_free_values(kernel)
    made = build(kernel, get_target(target))
    (dot,) = made.dots
    found = offer(dot, made.warps, get_target(target), made.lhs_place(dot)).candidates
    return [way for way in found if any(f"{width}k" in way.text for width in WIDTHS)]


def pinned(text: str, way: DotCandidate) -> str:
    """The program with a way stated for its dot."""
    marker = "tile.dot %a, %t, %c :"
    assert text.count(marker) == 1, "the program has one dot"
    return text.replace(marker, f'tile.dot %a, %t, %c {{instruction = "{way.text}"}} :')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--list", action="store_true", help="print ways and costs, and time nothing")
    arguments = parser.parse_args()
    text = PROGRAM.read_text()
    found = ways(text, "sm_90a")
    if arguments.list:
        sys.stdout.writelines(f"{way.cost:8d}  {way.text}\n" for way in found)
        return 0

    from peers import Torch
    from rounds import GPU, Case, Results, measure

    import tesela

    torch = Torch()
    m, n, k = SHAPE
    bf16 = torch.torch.bfloat16
    a, b = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16)
    expected = a.double() @ b.double().T
    systems = []
    for way in found:
        c = torch.torch.empty(m, n, device="cuda", dtype=torch.torch.float32)
        kernel = tesela.compile(pinned(text, way), "sm_90a")
        system = torch.system(way.text, lambda kernel=kernel, c=c: kernel(a, b, c))
        systems.append(torch.checked(system, c, expected, 1e-2))
    results = Results("layout_choices", notes=[f"{way.text}: {way.cost} slots a step" for way in found])
    row = results.add(measure(Case("×".join(map(str, SHAPE)), systems, flops=2 * m * n * k), GPU()))
    for way in found:
        timed = row.systems.get(way.text)
        figure = f"{row.flops / timed.milliseconds / 1e9:7.1f} TFLOP/s" if timed is not None else row.failed.get(way.text, "not run")
        sys.stdout.write(f"{way.cost:8d}  {way.text:<34}  {figure}\n")
    if arguments.json:
        results.write(arguments.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
