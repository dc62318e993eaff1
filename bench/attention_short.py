"""Where the time of attention over short sequences goes: tiles, slots, blocks that walk the grid or do not, each sample of each by itself, beside cuDNN.

    python bench/attention_short.py --case 32x16x512x128 --case 16x16x1024x128 --causal
    python bench/attention_short.py --slope 128            # equal tokens, 512 to 8192 keys: what a tile costs beside its trips

Two ways of launching (from the host and by a graph) and orders that rotate tell what is the kernel's from what is the method's. Needs a GPU and torch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from functools import cache
from typing import Any

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.kernels.attention import attention
from tesela.runtime.specialize import Facts

NAMES = ("k", "out", "q", "v")
FACTS = Facts(tuple((name, 16) for name in NAMES), NAMES, tuple((name, 16) for name in ("D", "HEADS", "L", "S")))
Config = tuple[int | None, int | None, tuple[tuple[str, int], ...]]
"""BM, BN, pins."""
CONFIGS: tuple[Config, ...] = (
    (None, None, ()),
    (None, None, (("persistent", 0),)),
    (None, None, (("pdl", 0),)),
    (128, 64, ()),
    (64, 128, ()),
    (64, 64, ()),
    (192, 64, ()),
    (192, 128, ()),
    (128, 96, ()),
    (128, 176, ()),
)


@cache
def kernel(head: int, causal: bool, config: Config) -> Any:
    bm, bn, pins = config
    tiles = {name: value for name, value in (("BM", bm), ("BN", bn)) if value}
    return attention.compile(pins=dict(pins), T=tesela.bf16, HEAD=head, CAUSAL=causal, **tiles)


def prepare(job: tuple[int, bool, Config]) -> str:
    try:
        kernel(*job).compile(target="sm_90a", facts=FACTS)
    except TeselaError as error:
        return f"{job}: {error.diagnostics[0].message}"
    return ""


def name(config: Config) -> str:
    bm, bn, pins = config
    return (f"{bm}x{bn}" if bm else "as it is") + "".join(f" {pin}={value}" for pin, value in pins)


def measure(shape: tuple[int, int, int, int], causal: bool, configs: list[Config], rounds: int, rest: float) -> None:
    from peers import Torch
    from rounds import GPU, rotated
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch, timer = Torch(), GPU()
    batch, heads, length, head = shape
    q, k, v = (torch.randn(batch * heads, length, head, dtype=torch.torch.bfloat16) for _ in range(3))
    out = torch.torch.empty_like(q)
    fours = [x.view(batch, heads, length, head) for x in (q, k, v)]

    def cudnn() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.torch.nn.functional.scaled_dot_product_attention(*fours, is_causal=causal)

    expected = cudnn().view_as(q).clone()
    systems = {"cuDNN": torch.system("cuDNN", cudnn)}
    for config in configs:
        ours = kernel(head, causal, config)
        label = name(config)
        system = torch.system(label, lambda ours=ours: ours(q, k, v, out, head**-0.5))
        out.fill_(float("nan"))
        try:
            system.run(0)
        except TeselaError as error:
            print(label, "fails:", str(error.diagnostics[0].message)[:80])
            continue
        torch.torch.cuda.synchronize()
        worst = float((out - expected).abs().max())
        if not worst < 2e-2:
            print(label, "is wrong by", worst)
            continue
        systems[label] = system
    flops = 4 * batch * heads * length * length * head // (2 if causal else 1)
    print(f"B{batch} H{heads} S{length} D{head}{' causal' * causal}", flush=True)
    turns = {(label, graph): timer.prepare(system, 10, graph) for label, system in systems.items() for graph in (True, False)}
    singles = {label: timer.prepare(system, 1, False) for label, system in systems.items()}
    samples: dict[Any, list[float]] = {key: [] for key in turns}
    for turn in turns.values():
        turn()
    hosts: dict[str, float] = {}
    for number in range(rounds):
        for label in rotated(list(systems), number):
            for graph in (True, False)[:: 1 - 2 * (number % 2)]:
                timer.rest(rest)
                singles[label]()
                samples[label, graph].append(turns[label, graph]() * 100)
            timer.rest(rest)
            start = time.perf_counter()
            systems[label].run(timer.stream)
            hosts[label] = (time.perf_counter() - start) * 1e6
    for label in systems:
        for graph in (True, False):
            us = samples[label, graph]
            middle = statistics.median(us)
            print(f"  {label:22} {'graph' if graph else 'host ':5} {middle:7.1f} us {flops / middle / 1e6:6.1f} TFLOP/s |", " ".join(f"{x:.0f}" for x in us), f"| host {hosts[label]:.0f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="batch x heads x length x head dimension")
    parser.add_argument("--causal", action="store_true", help="also causal")
    parser.add_argument("--slope", type=int, help="of this head dimension, the first configuration over lengths")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rest", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins after these")
    arguments = parser.parse_args()
    begun = time.monotonic()
    cases = [(tuple(map(int, text.split("x"))), list(CONFIGS)) for text in arguments.case]
    if arguments.slope:
        cases += [((16384 // length, 16, length, arguments.slope), [CONFIGS[0]]) for length in (512, 1024, 2048, 4096, 8192)]
    jobs = [(shape[3], causal, config) for causal in (False, True)[: 1 + arguments.causal] for shape, configs in cases for config in configs]
    with multiprocessing.get_context("fork").Pool() as pool:
        for said in pool.imap_unordered(prepare, dict.fromkeys(jobs)):
            if said:
                print(said[:200])
    print("compiled", round(time.monotonic() - begun, 1), "s", flush=True)
    for shape, configs in cases:
        for causal in (False, True)[: 1 + arguments.causal]:
            if time.monotonic() - begun < arguments.seconds:
                measure(shape, causal, configs, arguments.rounds, arguments.rest)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
