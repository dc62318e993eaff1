"""Products beside cuBLAS and Triton: the benchmarks `gemm`, `orders`, `decode`, `epilogue`, `fused` and `fp8` of peers.py.

GEMM is C = A·Bᵀ in bf16, unless the case says otherwise; results are of the operands' type, of 8-bit operands in bf16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounds import Case

if TYPE_CHECKING:
    from peers import Torch

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
FUSED = (
    ("dual_gemm", 8192, 4096, 8192),
    ("scaled_gemm", 8192, 8192, 8192),
    ("biased_attention", 2, 8, 4096, 128),
    ("biased_attention", 2, 8, 4096, 64),
)
FP8S = tuple((8192, 8192, 8192, exact) for exact in (False, True))
"""Extents; whether what the tensor cores sum is added up in f32 outside of them."""

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

    def triton() -> Any:
        import triton_products as programs

        rows = all(tensor.stride(0) * tensor.element_size() % 16 == 0 for tensor in (a, b, third))
        return programs.configurations(m, n, k, rows), lambda config: programs.launcher(a, b, third, order, config)

    third = torch.torch.empty_like(c)
    systems = [torch.checked(ours, c, expected, 1e-2), torch.checked(cublas, theirs, expected, 1e-2), torch.tuned("Triton", triton, third, expected, 1e-2)]
    nbytes = 2 * (m * k + n * k + m * n)
    title = f"{m}×{n}×{k}" + ("" if (order, dtype) == ("nt", "bfloat16") else f" {order} {dtype}")
    return Case(title, systems, flops=2 * m * n * k, nbytes=nbytes)


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


def fp8(torch: Torch, m: int, n: int, k: int, exact: bool) -> Case:
    """e4m3 operands with a scale for each tensor, beside cuBLASLt (torch._scaled_mm). `exact` is cuBLASLt's `use_fast_accum=False`: sums of 128 products along K,
    which the tensor cores keep 13 bits of, are added in f32."""
    import tesela
    from tesela.kernels import fused

    bf16, narrow = torch.torch.bfloat16, torch.torch.float8_e4m3fn
    a, b = torch.randn(m, k).to(narrow), torch.randn(n, k).to(narrow)
    scale_a, scale_b = (torch.torch.full((1,), value, device="cuda") for value in (0.5, 0.25))
    c, third = (torch.torch.empty(m, n, device="cuda", dtype=bf16) for _ in range(2))
    expected = a.double() @ b.double().T * 0.125
    kernel = (fused.tensor_scaled_gemm_f32 if exact else fused.tensor_scaled_gemm).compile(T=tesela.f8E4M3FN, U=tesela.bf16)
    results: list[Any] = [None]

    def theirs() -> None:
        results[0] = torch.torch._scaled_mm(a, b.T, scale_a[0], scale_b[0], out_dtype=bf16, use_fast_accum=not exact)

    def triton() -> Any:
        import triton_products as programs

        tried = programs.configurations(m, n, k, True, True)
        return tried, lambda config: programs.launcher(a, b, third, "nt", config, (scale_a, scale_b), exact)

    tolerance = 1e-2 if exact else 5e-2
    systems = [
        torch.checked(torch.system("tesela", lambda: kernel(a, b, scale_a, scale_b, c)), c, expected, tolerance),
        torch.checked_result(torch.system("cuBLASLt", theirs), results, expected, tolerance),
        torch.tuned("Triton", triton, third, expected, tolerance),
    ]
    title = f"{m}×{n}×{k}, added up {'in f32' if exact else 'by the tensor cores'}"
    return Case(title, systems, flops=2 * m * n * k, nbytes=m * k + n * k + 2 * m * n)
