"""Attention forward, bf16, beside torch's scaled_dot_product_attention by cuDNN and by its own FlashAttention, and Triton: the benchmark `attention` of peers.py.

A causal one counts half the operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounds import Case

if TYPE_CHECKING:
    from peers import Torch

ATTENTIONS = tuple(
    (*shape, causal)
    for causal in (False, True)
    for shape in ((4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (4, 8, 4096, 256), (16, 16, 1024, 128), (32, 16, 512, 128))
)
"""Batch, heads, length, head dimension; whether causal."""


def attention(torch: Torch, batch: int, heads: int, length: int, head: int, causal: bool) -> Case:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from tesela.kernels.attention import attention as kernel

    bf16 = torch.torch.bfloat16
    q, k, v = (torch.randn(batch, heads, length, head, dtype=bf16) for _ in range(3))
    flat = [x.view(batch * heads, length, head) for x in (q, k, v)]
    out, scale = torch.torch.empty_like(flat[0]), head**-0.5
    sdpa = torch.torch.nn.functional.scaled_dot_product_attention
    ours = torch.system("tesela", lambda: kernel(*flat, out, scale=scale, HEAD=head, CAUSAL=causal))
    expected = _attend(torch, *flat, scale, causal)
    systems = [torch.checked(ours, out, expected, 1e-2)]
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)):

        def theirs(backend: Any = backend) -> Any:
            with sdpa_kernel(backend):
                return sdpa(q, k, v, is_causal=causal)

        systems.append(torch.system(name, theirs))

    def triton() -> Any:
        import triton_attention as programs

        return programs.configurations(head), lambda config: programs.launcher(*flat, third, scale, causal, config)

    third = torch.torch.empty_like(out)
    systems.append(torch.tuned("Triton", triton, third, expected, 1e-2))
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
