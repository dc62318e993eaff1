"""The examples beside torch (cuBLAS, eager, torch.compile) in one run, by the method of rounds.py, on random data.

    python bench/peers.py gemm --json bench/results/gemm.json
    python bench/peers.py softmax add --small
    python bench/peers.py rows --json bench/results/rows.json
    python bench/peers.py rows --only softmax --try warps=4 BLOCK=8192,warps=16

Needs a GPU and torch. Every system's result is compared with a float64 reference before it is timed; one that is wrong is reported as
failed. GEMM is C = A·Bᵀ in bf16, unless the case says otherwise; results are of the operands' type.
Attention is forward, bf16, beside torch's scaled_dot_product_attention by cuDNN and by its own FlashAttention; a causal one counts half the operations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers_rows import ROWS, make_case
from rounds import GPU, Case, Results, Row, System, measure, need_torch

from tesela.tools.demo import example
from tesela.tools.sources import compile_source

GEMMS = (
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (16384, 4096, 7168),
    (4096, 7168, 2048),
    (512, 7168, 2048),
    (128, 7168, 2048),
    (16, 7168, 7168),
    (4096, 4096, 512),
    (4000, 4104, 4040),
)
OTHER_ORDERS = tuple(
    (*shape, order, dtype)
    for order, dtype in (("nn", "bfloat16"), ("tn", "bfloat16"), ("nt", "float16"))
    for shape in ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (4096, 7168, 2048), (512, 7168, 2048))
)
DECODES = tuple(
    (m, n, k)
    for m in (32, 64, 128, 2048, 4096)
    for n, k in (
        (6144, 4096),
        (4096, 14336),
        (14336, 4096),
        (4096, 4096),
        (10240, 8192),
        (8192, 28672),
        (8192, 8192),
        (28672, 8192),
    )
)
"""The shapes that Hexcute is measured on (arXiv 2504.16214)."""
ATTENTIONS = tuple(
    (*shape, causal)
    for causal in (False, True)
    for shape in ((4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (4, 8, 4096, 256), (16, 16, 1024, 128), (32, 16, 512, 128))
)
"""Batch, heads, length, head dimension; whether causal."""
FUSED = (
    ("dual_gemm", 8192, 4096, 8192),
    ("scaled_gemm", 8192, 8192, 8192),
    ("biased_attention", 2, 8, 4096, 128),
    ("biased_attention", 2, 8, 4096, 64),
)
SOFTMAXES = ((16384, 8192), (8192, 1024), (1823, 781))
ADDS = (2**28, 2**20, 1_000_003)
GRAPH_BYTES = 64 * 2**20
"""Cases that move less than this are launched through a CUDA graph."""


class Torch:
    """Inputs, and systems that run torch functions on a given stream."""

    def __init__(self) -> None:
        self.torch = torch = need_torch()
        self.generator = torch.Generator("cuda").manual_seed(0)
        self.streams: dict[int, Any] = {}

    def randn(self, *shape: int, dtype: Any = None) -> Any:
        return self.torch.randn(*shape, device="cuda", generator=self.generator, dtype=self.torch.float32).to(dtype or self.torch.float32)

    def system(self, name: str, function: Callable[[], object]) -> System:
        """`function` uses torch; it runs with the stream of the measurement as the current one."""

        def run(stream: int) -> None:
            if stream not in self.streams:
                # ExternalStream(0) would be a stream of torch's pool, which does not wait for the default one.
                self.streams[stream] = self.torch.cuda.ExternalStream(stream) if stream else self.torch.cuda.default_stream()
            with self.torch.cuda.stream(self.streams[stream]):
                function()

        return System(name, run)

    def checked(self, system: System, output: Any, expected: Any, tolerance: float) -> System:
        """The system, if its output is right; else one that says that it is not."""
        output.fill_(float("nan"))
        return self._checked(system, lambda: output, expected, tolerance)

    def checked_result(self, system: System, results: list[Any], expected: Any, tolerance: float) -> System:
        """As `checked`, of a system that leaves its result (or a tuple, the first of which counts) in `results`."""
        return self._checked(system, lambda: results[0][0] if isinstance(results[0], tuple) else results[0], expected, tolerance)

    def _checked(self, system: System, output: Callable[[], Any], expected: Any, tolerance: float) -> System:
        try:
            system.run(0)
            self.torch.cuda.synchronize()
            error = float(((output().double() - expected).abs().max() / expected.abs().max()).nan_to_num(float("inf")))
        except Exception as reason:  # noqa: BLE001 - whatever a contestant raises goes into the results
            problem: Exception = reason
        else:
            if error <= tolerance:
                return system
            problem = ValueError(f"wrong by {error:.3g} of the largest element")

        def failing(stream: int) -> None:
            raise problem

        return System(system.name, failing)


ORDERS = {"nt": (False, True), "nn": (False, False), "tn": (True, False)}
"""Which of A and B are stored transposed: C = A·Bᵀ, A·B, Aᵀ·B."""


def gemm(torch: Torch, m: int, n: int, k: int, order: str = "nt", dtype: str = "bfloat16") -> Case:
    from tesela.kernels import matrices

    kind = getattr(torch.torch, dtype)
    transposed = ORDERS[order]
    a = torch.randn(*((k, m) if transposed[0] else (m, k)), dtype=kind)
    b = torch.randn(*((n, k) if transposed[1] else (k, n)), dtype=kind)
    c, theirs = (torch.torch.empty(m, n, device="cuda", dtype=kind) for _ in range(2))
    kernel = {"nt": matrices.gemm_nt, "nn": matrices.gemm, "tn": matrices.gemm_tn}[order]
    ours = torch.system("tesela", lambda: kernel(a, b, c))
    left, right = a.T if transposed[0] else a, b.T if transposed[1] else b
    cublas = torch.system("cuBLAS", lambda: torch.torch.matmul(left, right, out=theirs))
    expected = left.double() @ right.double()
    systems = [torch.checked(ours, c, expected, 1e-2), torch.checked(cublas, theirs, expected, 1e-2)]
    nbytes = 2 * (m * k + n * k + m * n)
    title = f"{m}×{n}×{k}" + ("" if (order, dtype) == ("nt", "bfloat16") else f" {order} {dtype}")
    return Case(title, systems, flops=2 * m * n * k, nbytes=nbytes, graph=nbytes < GRAPH_BYTES)


def epilogue(torch: Torch, m: int, n: int, k: int) -> Case:
    """Bias and GELU in the product's epilogue, beside the plain product of the same shape."""
    from tesela.kernels import elementwise, matrices

    bf16 = torch.torch.bfloat16
    a, b, bias = torch.randn(m, k, dtype=bf16), torch.randn(n, k, dtype=bf16), torch.randn(n, dtype=bf16)
    c, d, e = (torch.torch.empty(m, n, device="cuda", dtype=bf16) for _ in range(3))
    product = a.double() @ b.double().T
    shifted = torch.torch.nn.functional.gelu(product + bias.double(), approximate="tanh")
    systems = [
        torch.checked(torch.system("tesela", lambda: matrices.linear(a, b, bias, c, ACTIVATION=elementwise.gelu)), c, shifted, 1e-2),
        torch.checked(torch.system("tesela, plain", lambda: matrices.gemm_nt(a, b, d)), d, product, 1e-2),
        torch.checked(torch.system("cuBLAS, plain", lambda: torch.torch.matmul(a, b.T, out=e)), e, product, 1e-2),
    ]
    return Case(f"{m}×{n}×{k}", systems, flops=2 * m * n * k, nbytes=2 * (m * k + n * k + m * n))


def fused(torch: Torch, kernel: str, *sizes: int) -> Case:
    """A kernel that fuses something with a product, or with attention, beside the plain kernel that does as many operations."""
    from tesela.kernels import attention, fused, matrices

    bf16 = torch.torch.bfloat16
    if kernel == "biased_attention":
        batch, heads, length, head = sizes
        q, k, v = (torch.randn(batch * heads, length, head, dtype=bf16) for _ in range(3))
        bias, scale = torch.randn(batch * heads, length, length, dtype=bf16), head**-0.5
        out, plain = torch.torch.empty_like(q), torch.torch.empty_like(q)
        views = [x.view(batch, heads, length, -1) for x in (q, k, v, bias)]
        expected = torch.torch.nn.functional.scaled_dot_product_attention(*views[:3], attn_mask=views[3]).view_as(q).double()
        mine = torch.system("tesela", lambda: fused.biased_attention(q, k, v, bias, out, scale=scale, HEAD=head))
        other = torch.system("tesela, plain", lambda: attention.attention(q, k, v, plain, scale=scale, HEAD=head))
        flops, nbytes = 4 * batch * heads * length * length * head, 2 * batch * heads * length * (4 * head + length)
        return Case(f"{kernel} {'×'.join(map(str, sizes))}", [torch.checked(mine, out, expected, 2e-2), other], flops=flops, nbytes=nbytes)
    m, n, k_extent = sizes
    a, b, c = torch.randn(m, k_extent, dtype=bf16), torch.randn(n, k_extent, dtype=bf16), torch.torch.empty(m, n, device="cuda", dtype=bf16)
    if kernel == "dual_gemm":
        up = torch.randn(n, k_extent, dtype=bf16)
        both, wide = torch.torch.cat([b, up]), torch.torch.empty(m, 2 * n, device="cuda", dtype=bf16)
        expected = torch.torch.nn.functional.silu(a.double() @ b.double().T) * (a.double() @ up.double().T)
        mine = torch.system("tesela", lambda: fused.dual_gemm(a, b, up, c))
        other = torch.system("tesela, plain", lambda: matrices.gemm_nt(a, both, wide))
    else:
        factors, d = torch.randn(m), torch.torch.empty_like(c)
        expected = (a.float() * factors[:, None]).to(bf16).double() @ b.double().T
        mine = torch.system("tesela", lambda: fused.scaled_gemm(a, b, factors, c))
        other = torch.system("tesela, plain", lambda: matrices.gemm_nt(a, b, d))
    products = 2 if kernel == "dual_gemm" else 1
    flops, nbytes = 2 * products * m * n * k_extent, 2 * (m * k_extent + products * n * k_extent + m * n)
    return Case(f"{kernel} {m}×{n}×{k_extent}", [torch.checked(mine, c, expected, 1e-2), other], flops=flops, nbytes=nbytes)


def softmax(torch: Torch, m: int, n: int) -> Case:
    x, y, z, w = torch.randn(m, n), *(torch.torch.empty(m, n, device="cuda") for _ in range(3))
    kernel = compile_source(example("softmax", "mlir"), None, "softmax")
    compiled = torch.torch.compile(lambda x, out: out.copy_(torch.torch.softmax(x, 1)), dynamic=False)
    expected = torch.torch.softmax(x.double(), 1)
    systems = [
        torch.checked(torch.system("tesela", lambda: kernel(x, y)), y, expected, 1e-5),
        torch.checked(torch.system("torch", lambda: torch.torch.softmax(x, 1, out=z)), z, expected, 1e-5),
        torch.checked(torch.system("torch.compile", lambda: compiled(x, w)), w, expected, 1e-5),
    ]
    return Case(f"{m}×{n}", systems, nbytes=8 * m * n, graph=8 * m * n < GRAPH_BYTES)


def add(torch: Torch, n: int) -> Case:
    x, y, z, w = torch.randn(n), torch.randn(n), torch.torch.empty(n, device="cuda"), torch.torch.empty(n, device="cuda")
    kernel = compile_source(example("add", "mlir"), None, "add")
    expected = x.double() + y.double()
    systems = [
        torch.checked(torch.system("tesela", lambda: kernel(x, y, z)), z, expected, 1e-6),
        torch.checked(torch.system("torch", lambda: torch.torch.add(x, y, out=w)), w, expected, 1e-6),
    ]
    return Case(str(n), systems, nbytes=12 * n, graph=12 * n < GRAPH_BYTES)


def attention(torch: Torch, batch: int, heads: int, length: int, head: int, causal: bool) -> Case:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from tesela.kernels.attention import attention as kernel

    bf16 = torch.torch.bfloat16
    q, k, v = (torch.randn(batch, heads, length, head, dtype=bf16) for _ in range(3))
    flat = [x.view(batch * heads, length, head) for x in (q, k, v)]
    out, scale = torch.torch.empty_like(flat[0]), head**-0.5
    sdpa = torch.torch.nn.functional.scaled_dot_product_attention
    ours = torch.system("tesela", lambda: kernel(*flat, out, scale=scale, HEAD=head, CAUSAL=causal))
    systems = [torch.checked(ours, out, _attend(torch, *flat, scale, causal), 1e-2)]
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)):

        def theirs(backend: Any = backend) -> Any:
            with sdpa_kernel(backend):
                return sdpa(q, k, v, is_causal=causal)

        systems.append(torch.system(name, theirs))
    flops = 4 * batch * heads * length * length * head // (2 if causal else 1)
    title = f"B{batch} H{heads} S{length} D{head}{' causal' * causal}"
    return Case(title, systems, flops=flops, nbytes=8 * batch * heads * length * head)


def _attend(torch: Torch, q: Any, k: Any, v: Any, scale: float, causal: bool) -> Any:
    """The reference in float64, head by head and some rows at a time (all scores at once would not fit)."""
    result = torch.torch.empty(q.shape, device=q.device, dtype=torch.torch.float64)
    length = q.shape[1]
    for head in range(len(q)):
        keys, values = k[head].double(), v[head].double()
        for row in range(0, length, 2048):
            scores = q[head, row : row + 2048].double() @ keys.T * scale
            if causal:
                places = torch.torch.arange(length, device=q.device)
                scores.masked_fill_(places[None, :] > places[row : row + 2048, None], float("-inf"))
            result[head, row : row + 2048] = torch.torch.softmax(scores, 1) @ values
    return result


BENCHMARKS: dict[str, tuple[Callable[..., Case], tuple[Any, ...]]] = {
    "gemm": (gemm, GEMMS),
    "orders": (gemm, OTHER_ORDERS),
    "decode": (gemm, DECODES),
    "epilogue": (epilogue, ((8192, 8192, 8192),)),
    "attention": (attention, ATTENTIONS),
    "fused": (fused, FUSED),
    "softmax": (softmax, SOFTMAXES),
    "add": (add, tuple((n,) for n in ADDS)),
    "rows": (make_case, ROWS),
}


def show(row: Row) -> str:
    """One line of figures."""
    parts = []
    for name, entry in row.to_json()["systems"].items():
        rate = f", {entry['tflops']:.0f} TFLOP/s" if "tflops" in entry else f", {entry['gbps']:.0f} GB/s"
        parts.append(f"{name} {entry['ms']:.4f} ms{rate} (±{entry['spread']:.1%})")
    parts += [f"{name} failed: {why}" for name, why in row.failed.items()]
    return f"{row.case}: {'; '.join(parts)}\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("benchmarks", nargs="+", choices=list(BENCHMARKS))
    parser.add_argument("--json", type=Path, help="also write the results there (one benchmark)")
    parser.add_argument("--small", action="store_true", help="the last two cases of each only")
    parser.add_argument("--only", default="", help="the cases whose arguments, joined by 'x', contain this: 4x16x4096x128xFalse, softmax")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--try", dest="tried", nargs="+", default=[], help="of `rows` ours also with these choices, such as warps=8,BLOCK=4096")
    arguments = parser.parse_args(argv)
    if arguments.json is not None and len(arguments.benchmarks) != 1:
        parser.error("--json takes one benchmark")
    torch, timer = Torch(), GPU()
    failed = False
    for name in arguments.benchmarks:
        make, shapes = BENCHMARKS[name]
        results = Results(name, rounds=arguments.rounds)
        more = {"tried": arguments.tried} if name == "rows" else {}
        for shape in shapes[-2:] if arguments.small else shapes:
            if arguments.only not in "x".join(map(str, shape)):
                continue
            row = results.add(measure(make(torch, *shape, **more), timer, arguments.rounds))
            failed |= "tesela" in row.failed
            sys.stdout.write(f"{name} {show(row)}")
            sys.stdout.flush()
            if arguments.json is not None:
                results.write(arguments.json)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
