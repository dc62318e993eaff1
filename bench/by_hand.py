"""Channels and roles by hand beside the derived ones, and the selective scan beside what it moves: one table.

    python bench/by_hand.py

Needs torch and a GPU. Systems take turns, as rounds.py has it. The product by hand is examples/gemm_by_hand.py, one block for each tile of the result; the derived one is the same source without
channels, as it comes and with what the other leaves out (no walk over the grid, no clusters, stores from registers).
"""

from __future__ import annotations

import sys
from pathlib import Path

from rounds import need_torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))


def main() -> None:
    """Prints the table."""
    torch = need_torch()
    import gemm as derived
    import gemm_by_hand as by_hand

    from tesela.kernels import recurrent

    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty(n, n, device="cuda")
    tile = {"BM": 128, "BN": 256}
    plain = {"cluster": 1, "persistent": 0}
    systems = {
        "by hand": by_hand.gemm_by_hand.compile("sm_90a"),
        "derived": derived.gemm.compile("sm_90a", **tile),
        "derived, one block for each tile": derived.gemm.compile("sm_90a", pins=plain, **tile),
    }
    times: dict[str, list[float]] = {name: [] for name in systems}
    for name, kernel in systems.items():
        kernel(a, b, c)
        wanted = a[:256].float() @ b.float().T
        print(f"{name}: largest difference {(c[:256] - wanted).abs().max():.3g}")
    for _ in range(8):
        for name, kernel in systems.items():
            times[name].append(_seconds(torch, lambda kernel=kernel: kernel(a, b, c), 5))
    for name, found in times.items():
        print(f"{name}: {2 * n**3 / sorted(found)[len(found) // 2] / 1e12:.0f} TFLOP/s")
    batch, time, channels, states = 8, 4096, 4096, 16
    x = torch.randn(batch, time, channels, device="cuda", dtype=torch.bfloat16)
    delta = torch.rand_like(x) * 0.2
    rates, skip = -torch.rand(channels, states, device="cuda") - 0.5, torch.randn(channels, device="cuda")
    enter, leave = (torch.randn(batch, time, states, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    y = torch.empty_like(x)
    found = []
    for _ in range(8):
        found.append(_seconds(torch, lambda: recurrent.selective_scan(x, delta, rates, enter, leave, skip, y), 3))
    seconds = sorted(found)[len(found) // 2]
    print(f"selective scan {batch}×{time}×{channels}×{states} bf16: {seconds * 1e3:.2f} ms, {3 * x.numel() * 2 / seconds / 1e9:.0f} GB/s of x, delta and y, "
          f"{x.numel() * states / seconds / 1e9:.0f} G states/s")


def _seconds(torch, call, count: int) -> float:
    """Seconds of one of `count` calls on the GPU."""
    call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / count / 1e3


if __name__ == "__main__":
    main()
