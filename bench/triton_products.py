"""Matrix products in Triton, for comparison: persistent by tensor maps, and by pointers with the sum split among blocks. Importing this needs Triton.

Both walk the tiles in groups of GROUP rows, so that those under way at one time share what they read from L2. Which of the `configurations` is fastest
is measured for each case (triton_tuning.py). Loops with `warp_specialize` are not among them: Triton 3.6 fails on them for sm_90 with four warps, and makes
nothing of it with eight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from triton import language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

Configuration = dict[str, Any]


@triton.jit
def place_of(tile, rows, columns, GROUP: tl.constexpr):
    """The row and column of a tile in the grouped order."""
    group = tile // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    inside = tile % (GROUP * columns)
    return group * GROUP + inside % height, inside // height


@triton.jit
def by_maps(
    a,
    b,
    c,
    scale_a,
    scale_b,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    HALVES: tl.constexpr,
    BLOCKS: tl.constexpr,
    A_COLUMNS: tl.constexpr,
    B_COLUMNS: tl.constexpr,
    FLATTEN: tl.constexpr,
    SCALED: tl.constexpr,
    INEXACT: tl.constexpr,
):
    """A persistent block computes every BLOCKS-th tile. A_COLUMNS: A is stored as K×M; B_COLUMNS: B as N×K. HALVES: the result leaves in two
    parts, which take half of the shared memory. INEXACT: along how much of K an 8-bit product may be summed by the tensor cores alone."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    stored = tl.program_id(0) - BLOCKS
    for tile in tl.range(tl.program_id(0), rows * columns, BLOCKS, flatten=FLATTEN):
        row, column = place_of(tile, rows, columns, GROUP)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            if A_COLUMNS:
                left = a.load([step * BK, row * BM]).T
            else:
                left = a.load([row * BM, step * BK])
            if B_COLUMNS:
                right = b.load([column * BN, step * BK]).T
            else:
                right = b.load([step * BK, column * BN])
            acc = tl.dot(left, right, acc, max_num_imprecise_acc=INEXACT)
        if SCALED:
            acc *= tl.load(scale_a) * tl.load(scale_b)
        # counted apart from `tile`, so that a flattened loop may compute the next tile's place before this one is stored
        stored += BLOCKS
        row, column = place_of(stored, rows, columns, GROUP)
        if HALVES:
            first, second = acc.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
            c.store([row * BM, column * BN], first.to(c.dtype))
            c.store([row * BM, column * BN + BN // 2], second.to(c.dtype))
        else:
            c.store([row * BM, column * BN], acc.to(c.dtype))


@triton.jit
def by_pointers(
    a,
    b,
    c,
    M,
    N,
    K,
    a_m,
    a_k,
    b_k,
    b_n,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """SPLIT blocks share a tile's sum: each stores its part, [SPLIT, M, N] in all, and `add_parts` adds them up."""
    row, column = place_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    m, n = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    # Rows and columns beyond the edge read others in their stead, and are not stored.
    left = a + (m % M)[:, None] * a_m + k[None, :] * a_k
    right = b + k[:, None] * b_k + (n % N)[None, :] * b_n
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK * SPLIT)):
        inside = k < K - step * (BK * SPLIT)
        acc = tl.dot(tl.load(left, inside[None, :], 0.0), tl.load(right, inside[:, None], 0.0), acc)
        left += BK * SPLIT * a_k
        right += BK * SPLIT * b_k
    place = tl.program_id(1) * M * N + m[:, None] * N + n[None, :]
    tl.store(c + place, acc.to(c.dtype.element_ty), (m < M)[:, None] & (n < N)[None, :])


@triton.jit
def add_parts(parts, c, size, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * size + place, inside, 0.0)
    tl.store(c + place, total.to(c.dtype.element_ty), inside)


def configurations(m: int, n: int, k: int, by_tma: bool, narrow: bool = False) -> list[Configuration]:
    """What is tried for a product. `by_tma`: whether all rows begin at multiples of 16 bytes; `narrow`: 8-bit operands."""
    bk = 128 if narrow else 64

    def maps(bm: int, bn: int, stages: int, warps: int = 8, halves: bool = True, flatten: bool = True, group: int = 8) -> Configuration:
        return {
            "program": "maps", "BM": bm, "BN": bn, "BK": bk, "GROUP": group, "HALVES": halves, "FLATTEN": flatten,
            "num_stages": stages, "num_warps": warps,
        }  # fmt: skip

    def pointers(bm: int, bn: int, split: int, stages: int, warps: int, step: int = bk) -> Configuration:
        return {"program": "pointers", "BM": bm, "BN": bn, "BK": step, "GROUP": 8, "SPLIT": split, "num_stages": stages, "num_warps": warps}

    if narrow:
        return [maps(128, 256, 3), maps(128, 256, 4), maps(128, 256, 3, flatten=False), maps(256, 128, 3), maps(128, 128, 4), maps(128, 256, 3, group=16)]
    if m <= 16:
        return [pointers(16, 128, 8, 4, 4, 128), pointers(16, 64, 4, 5, 4, 128), pointers(16, 128, 4, 4, 4, 128), pointers(16, 64, 8, 4, 4, 128), pointers(16, 64, 2, 5, 4, 256), pointers(16, 128, 1, 5, 4, 128)]
    if m <= 128:
        tall = min(m, 64)
        return [
            pointers(tall, 128, 4, 4, 4), pointers(tall, 64, 4, 5, 4), pointers(tall, 128, 2, 4, 4),
            pointers(tall, 128, 1, 4, 4, 128) if m <= 64 else pointers(128, 128, 4, 4, 8),
            *([maps(64, 128, 5, 4, False), maps(128, 64, 5, 4, False)] if by_tma else [pointers(64, 64, 1, 5, 4)]),
        ]  # fmt: skip
    if not by_tma:
        return [pointers(128, 256, 1, 3, 8), pointers(128, 128, 1, 4, 4), pointers(128, 128, 1, 4, 8), pointers(128, 256, 1, 4, 8), pointers(256, 128, 1, 3, 8)]
    if triton.cdiv(m, 128) * triton.cdiv(n, 128) <= 132 * 2:
        return [maps(128, 128, 4), maps(128, 128, 5, 4, False), maps(128, 64, 5, 4, False), maps(64, 128, 5, 4, False), maps(128, 256, 3), pointers(128, 128, 2, 4, 8)]
    return [maps(128, 256, 4), maps(128, 256, 3), maps(128, 256, 4, flatten=False), maps(256, 128, 4), maps(128, 128, 4), pointers(128, 256, 1, 3, 8)]


def launcher(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, order: str, config: Configuration, scales: tuple[torch.Tensor, torch.Tensor] | None = None, exact: bool = False
) -> Callable[[], object]:
    """What launches C = A·B in a configuration; `order` as in peers.py (nt, nn, tn). `exact`: add up in f32 registers each BK of K."""
    config = dict(config)
    m, n = c.shape
    k = a.shape[0 if order == "tn" else 1]
    program, tile = config.pop("program"), (config["BM"], config["BN"], config["BK"])
    options = {name: config.pop(name) for name in ("num_stages", "num_warps")}
    tiles = triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1])
    if program == "maps":
        blocks = min(tiles, torch.cuda.get_device_properties(c.device).multi_processor_count if c.is_cuda else 4)
        columns = order == "tn", order == "nt"
        maps = (
            TensorDescriptor.from_tensor(a, [tile[2], tile[0]] if columns[0] else [tile[0], tile[2]]),
            TensorDescriptor.from_tensor(b, [tile[1], tile[2]] if columns[1] else [tile[2], tile[1]]),
            TensorDescriptor.from_tensor(c, [tile[0], tile[1] // (2 if config["HALVES"] else 1)]),
        )
        constants = {"BLOCKS": blocks, "A_COLUMNS": columns[0], "B_COLUMNS": columns[1], "SCALED": scales is not None, "INEXACT": tile[2] if exact else None}
        factors = scales or (a, a)
        return lambda: by_maps[(blocks,)](*maps, *factors, m, n, k, **config, **constants, **options)
    split = config["SPLIT"]
    a_strides = a.stride() if order != "tn" else a.stride()[::-1]
    b_strides = b.stride() if order != "nt" else b.stride()[::-1]
    target = c if split == 1 else torch.empty(split, m, n, device=c.device, dtype=torch.float32)

    def run() -> None:
        by_pointers[(tiles, split)](a, b, target, m, n, k, *a_strides, *b_strides, **config, **options)
        if split > 1:
            add_parts[(triton.cdiv(m * n, 1024),)](target, c, m * n, SPLIT=split, BLOCK=1024)

    return run
