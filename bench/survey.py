"""Which tile, number of parts and order of operands is fastest for products with few rows: everything plausible, timed beside cuBLAS, with what the model expects.

    python bench/survey.py 32x6144x4096 64x6144x4096
    python bench/survey.py --list                        # the columns of the tables

A fast look, for finding what variants a kernel should offer and where the model (dialects/work.py) is wrong: few rounds, hardly any rest. `variants.py` measures the choice that comes of it. Programs are
compiled by as many processes as there are cores first, into the disk cache.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.work import estimate
from tesela.kernels import matrices
from tesela.runtime.specialize import Facts

Config = tuple[int, int, int, tuple[tuple[str, int], ...]]
"""BM, BN, BK, pins."""
TILES: list[str] = []
PARTS = [1, 2, 3, 4, 6, 8, 11, 16]
SMALL = (
    (32, 64, (("stages", 8),)), (48, 64, (("stages", 8),)), (64, 64, (("stages", 6),)), (64, 64, (("stages", 8),)), (80, 64, (("stages", 6),)), (96, 64, (("stages", 6),)),
    (112, 64, (("stages", 6),)), (128, 64, (("stages", 4),)), (128, 64, (("warps", 8),)),
)  # fmt: skip
PLAIN = (
    (128, 256, 64, ()), (256, 128, 64, ()), (128, 224, 64, ()), (128, 192, 64, ()), (192, 192, 64, (("warps", 12),)), (192, 176, 64, (("warps", 12),)), (192, 168, 64, (("warps", 12),)), (128, 128, 64, ()), (128, 128, 64, (("cluster", 4),)),
    (128, 112, 64, ()), (128, 96, 64, ()), (128, 80, 64, ()), (128, 48, 64, ()), (128, 64, 64, (("warps", 8),)), (128, 64, 64, (("warps", 4), ("stages", 6))), (64, 256, 64, (("stages", 2),)), (64, 256, 64, (("warps", 8),)),
    (64, 128, 64, (("warps", 8),)), (64, 128, 64, (("warps", 8), ("cluster", 4))), (64, 128, 64, (("stages", 4),)), (64, 64, 64, (("stages", 6),)), (128, 128, 128, ()),
)  # fmt: skip
FACTS = (Facts((("A", 16), ("B", 16), ("C", 16)), ("A", "B", "C"), (("K", 16), ("M", 16), ("N", 16))),)


def configs(m: int, n: int, k: int) -> list[Config]:
    """What is tried for a shape, but for parts."""
    found: list[Config] = []
    if m <= 128:
        found += [(bm, *rest) for bm in sorted({min(m, 64), m}) for rest in SMALL if bm <= m]
    if m > 64:
        found += PLAIN
    return list(dict.fromkeys((*config[:3], (*config[3], *more)) for config in found for more in MORE if not TILES or f"{config[0]}x{config[1]}" in TILES))


MORE: list[tuple[tuple[str, int], ...]] = [()]
"""Further pins that each configuration is tried with."""


def parts_of(config: Config, m: int, n: int, k: int) -> list[int]:
    """Numbers of parts that are tried."""
    bm, bn, bk, _ = config
    points, trips = -(-m // bm) * -(-n // bn), -(-k // bk)
    return [parts for parts in PARTS if parts == 1 or (trips >= 3 * parts and 60 <= points * parts <= 132 * 8)]


@cache
def kernel(config: Config, parts: int) -> Any:
    bm, bn, bk, pins = config
    return matrices.gemm_nt.compile(pins={**dict(pins), "split": parts}, T=tesela.bf16, BM=bm, BN=bn, BK=bk)


def prepare(job: tuple[Config, int]) -> str:
    try:
        for facts in FACTS:
            kernel(*job).compile(target="sm_90a", facts=facts)
    except TeselaError as error:
        return f"{job}: {error.diagnostics[0].message}"
    return ""


def name(config: Config) -> str:
    bm, bn, bk, pins = config
    return f"{bm}x{bn}x{bk}{''.join(key[0] + str(value) for key, value in pins)}"


def survey(m: int, n: int, k: int, rounds: int) -> str:
    from peers import Torch
    from rounds import GPU, System

    torch, timer = Torch(), GPU()
    bf16 = torch.torch.bfloat16
    a, b, c, theirs = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16), *(torch.torch.empty(m, n, device="cuda", dtype=bf16) for _ in range(2))
    torch.torch.matmul(a, b.T, out=theirs)
    scale = float(theirs.abs().max())
    systems = {("cuBLAS", 0): System("cuBLAS", torch.system("", lambda: torch.torch.matmul(a, b.T, out=theirs)).run)}
    whole = matrices.gemm_nt.compile(T=tesela.bf16)
    systems["chosen", 0] = torch.system("", lambda: whole(a, b, c))
    expected: dict[Any, float] = {}
    nbytes = 2 * (m * k + n * k + m * n)
    for config in configs(m, n, k):
        single = kernel(config, 1)
        work = single._compiler.work(0, FACTS[0], single._target("sm_90a"))
        if isinstance(work, TeselaError):
            continue
        for parts in parts_of(config, m, n, k):
            made = kernel(config, parts)
            systems[name(config), parts] = torch.system("", lambda made=made: made(a, b, c))
            expected[name(config), parts] = estimate(work, {"M": m, "N": n, "K": k}, 132, nbytes, parts).microseconds
    times: dict[Any, list[float]] = {}
    turns = {}
    count = 20
    for key, system in systems.items():
        c.fill_(float("nan"))
        try:
            system.run(0)
            torch.torch.cuda.synchronize()
            if key[0] != "cuBLAS" and not float((c - theirs).abs().max()) <= 0.02 * scale:
                print(f"   {key} is wrong")
                continue
            turns[key] = timer.prepare(system, count, True)
        except Exception as error:  # noqa: BLE001 - says what failed
            print(f"   {key}: {type(error).__name__} {str(error)[:200]}")
    for _ in range(rounds):
        for key, turn in turns.items():
            timer.rest(0.002)
            turn()
            times.setdefault(key, []).append(1e3 * turn() / count)
    found = {key: statistics.median(value) for key, value in times.items()}
    lines, last = [], ""
    for key in (key for key in found if key[1]):
        if key[0] != last:
            lines.append(f" {key[0]}")
            last = key[0]
        lines[-1] += f" {key[1]}:{found[key]:.1f}"
    print("\n".join([f"{m}x{n}x{k}", *lines]))
    sys.stdout.flush()
    best = sorted((key for key in found if key[1]), key=found.__getitem__)
    fastest = ", ".join(f"{key[0]}/{key[1]} {found[key]:.2f} ({expected[key]:.1f})" for key in best[:6])
    return (
        f"{m}x{n}x{k}: floor {nbytes / 4.265e6:.1f} cuBLAS {found['cuBLAS', 0]:.2f} chosen {whole.last.label} {found['chosen', 0]:.2f}\n  {fastest}"
    )


def look(shapes: Sequence[tuple[int, int, int]], rounds: int) -> None:
    """Only what each call chooses, beside cuBLAS."""
    from peers import Torch
    from rounds import GPU, System

    torch, timer = Torch(), GPU()
    bf16, worst = torch.torch.bfloat16, 0.0
    whole = matrices.gemm_nt.compile(T=tesela.bf16)
    for m, n, k in shapes:
        a, b, c, theirs = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16), *(torch.torch.empty(m, n, device="cuda", dtype=bf16) for _ in range(2))
        ours = torch.system("", lambda a=a, b=b, c=c: whole(a, b, c))
        peer = System("", torch.system("", lambda a=a, b=b, out=theirs: torch.torch.matmul(a, b.T, out=out)).run)
        turns = [timer.prepare(system, 20, True) for system in (ours, peer)]
        label = whole.last.label
        expected = next(row.expected.microseconds for row in whole.expected(a, b, c) if row.label == label and row.expected is not None)
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for which, turn in enumerate(turns):
                timer.rest(0.01)
                turn()
                times[which].append(1e3 * turn() / 20)
        wrong = float((c - theirs).abs().max()) > 0.02 * float(theirs.abs().max())
        mine, other = (statistics.median(found) for found in times)
        worst = max(worst, mine / other)
        print(f"{m}x{n}x{k}: {label} {mine:.2f} ({expected:.1f}) cuBLAS {other:.2f} {other / mine:.3f}{' WRONG' if wrong else ''}")
        sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shapes", nargs="*", metavar="MxNxK")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further shape after so long")
    parser.add_argument("--prepare", action="store_true", help="only compile")
    parser.add_argument("--pdl", action="store_true", help="also without overlapping launches")
    parser.add_argument("--alone", action="store_true", help="also without clusters")
    parser.add_argument("--look", action="store_true", help="only what is chosen, beside cuBLAS; without shapes, of all with few rows")
    parser.add_argument("--parts", nargs="*", type=int, default=[], help="only these numbers of parts")
    parser.add_argument("--tiles", nargs="*", default=[], metavar="BMxBN", help="only these tiles")
    arguments = parser.parse_args(argv)
    if arguments.alone:
        MORE.append((("cluster", 1),))
    if arguments.pdl:
        MORE.append((("pdl", 0),))
    TILES.extend(arguments.tiles)
    PARTS[:] = arguments.parts or PARTS
    begin = time.monotonic()
    if arguments.look:
        from peers import DECODES

        look([tuple(map(int, text.split("x"))) for text in arguments.shapes] or [shape for shape in DECODES if shape[0] <= 128], arguments.rounds)
        return 0
    shapes = [tuple(map(int, text.split("x"))) for text in arguments.shapes]
    jobs = dict.fromkeys((config, parts) for shape in shapes for config in configs(*shape) for parts in parts_of(config, *shape))
    with multiprocessing.get_context("fork").Pool() as pool:
        for said in pool.imap_unordered(prepare, jobs, chunksize=2):
            if said:
                print(said[:160])
    print(f"{len(jobs)} programs in {time.monotonic() - begin:.1f} s")
    if arguments.prepare:
        return 0
    summary: list[str] = []
    for shape in shapes:
        if time.monotonic() - begin < arguments.seconds:
            summary.append(survey(*shape, arguments.rounds))
    print("\n".join(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
