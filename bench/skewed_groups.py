"""What a product with an epilogue gains where one warpgroup of a block begins later than the other, so that one's epilogue runs beside the other's products.

    python bench/skewed_groups.py 8192x8192x8192

The second warpgroup spins for some clocks before its first tile: a line put into the PTX, to measure what an order between warpgroups would bring before the
compiler derives one. Needs a GPU and torch.
"""

from __future__ import annotations

import re
import statistics
import sys
from typing import Any

import tesela
from tesela.kernels import matrices
from tesela.kernels.elementwise import gelu
from tesela.runtime.specialize import Facts

SPIN = """  {{ .reg .pred %wp; .reg .b32 %wt, %w0;  mov.u32 %wt, %tid.x;  shr.u32 %wt, %wt, 7;  setp.ne.u32 %wp, %wt, 1;  mov.u32 %w0, %clock;
  @%wp bra $SPUN;
$SPIN:
  mov.u32 %wt, %clock;  sub.u32 %wt, %wt, %w0;  setp.lt.u32 %wp, %wt, {clocks};  @%wp bra $SPIN;
$SPUN: }}"""


def delayed(ptx: str, clocks: int) -> str:
    lines = ptx.split("\n")
    begin = next(i for i, line in enumerate(lines) if re.match(r"\s*\$LOOP\d+:", line))
    return "\n".join([*lines[:begin], SPIN.format(clocks=clocks), *lines[begin:]])


def facts(*names: str) -> Facts:
    return Facts(tuple((name, 16) for name in names), names, tuple((dim, 16) for dim in "KMN"))


def main() -> int:
    from peers import Torch
    from rounds import GPU, rotated

    torch, timer = Torch(), GPU()
    for text in sys.argv[1:] or ["8192x8192x8192"]:
        m, n, k = map(int, text.split("x"))
        bf16 = torch.torch.bfloat16
        a, b, bias = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16), torch.randn(n, dtype=bf16)
        c = torch.torch.empty(m, n, device="cuda", dtype=bf16)
        systems: dict[str, Any] = {"cuBLAS": torch.system("", lambda: torch.torch.matmul(a, b.T, out=c))}
        plain = torch.torch.matmul(a, b.T)
        expected = {"plain": plain, "gelu": torch.torch.nn.functional.gelu(plain.float() + bias.float(), approximate="tanh")}
        for name in ("plain", "gelu"):
            for clocks in (0, 1500, 3000, 5000):
                tile = {"T": tesela.bf16, "BM": 128, "BN": 256, "BK": 64}
                if name == "plain":
                    kernel = matrices.gemm_nt.compile(**tile)
                    variant, run = kernel.compile(target="sm_90a", facts=facts("A", "B", "C")), lambda kernel=kernel: kernel(a, b, c)
                else:
                    kernel = matrices.linear.compile(ACTIVATION=gelu, **tile)
                    variant, run = kernel.compile(target="sm_90a", facts=facts("A", "C", "W", "bias")), lambda kernel=kernel: kernel(a, b, bias, c)
                if clocks:
                    variant.ptx = delayed(variant.ptx, clocks)
                    variant.waiting, variant._assembled, variant._functions = None, {}, {}  # noqa: SLF001 - the text is another one
                label = f"{name} {clocks}"
                systems[label] = torch.system(label, run)
                c.fill_(float("nan"))
                systems[label].run(0)
                torch.torch.cuda.synchronize()
                worst = float((c.float() - expected[name].float()).abs().max() / expected[name].float().abs().max())
                print(label, "used" if variant._functions else "NOT USED", f"off by {worst:.1e}", flush=True)  # noqa: SLF001
        turns = {label: timer.prepare(system, 8, False) for label, system in systems.items()}
        samples: dict[str, list[float]] = {label: [] for label in systems}
        for number in range(7):
            for label in rotated(list(systems), number):
                timer.rest(0.05)
                samples[label].append(turns[label]() / 8)
        for label, taken in samples.items():
            ms = statistics.median(taken)
            print(f"{text} {label:12} {ms:.4f} ms {2 * m * n * k / ms / 1e9:.1f} |", " ".join(f"{x:.3f}" for x in taken), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
