"""passes/alloc_shared.py: every buffer starts where its layout must, whatever travels together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tesela.dialects import async_copy
from tesela.dialects.parsing import parse_module
from tesela.dialects.target import get_target
from tesela.lowering.pipeline import lower_to
from tesela.passes.alloc_shared import slot_stride
from tesela.runtime.compile import compile
from tesela.simulator import settings

ARRAY = "memref<?x?x{}, strided<[?, 1]>>"


def two_dots(n: int, k: int) -> str:
    """Operands of 16 bits that travel together, 16x`n` and 16x64, and then some of 8 bits whose K is transposed on the way, 64x`k`."""
    f16, i8, i32 = (ARRAY.format(t) for t in ("f16", "i8", "i32"))
    return f"""
tile.kernel @k(%a: {f16} [M, K] {{align = 16}}, %b: {f16} [N, K1] {{align = 16}}, %c: {i8} [P, Q], %d: {i8} [R, S] {{align = 16}}, %x: {f16} [U, V], %y: {i32} [W, Z]) grid(%g = 1) {{
  %o = arith.constant 0 : index
  %a0 = tile.load %a[%o, %o] : {f16} -> tensor<16x64xf16>
  %a1 = tile.transpose %a0 [1, 0] : tensor<16x64xf16> -> tensor<64x16xf16>
  %b0 = tile.load %b[%o, %o] : {f16} -> tensor<{n}x16xf16>
  %b1 = tile.transpose %b0 [1, 0] : tensor<{n}x16xf16> -> tensor<16x{n}xf16>
  %f = arith.constant 0.0 : f16
  %z = tile.full %f : f16 -> tensor<64x{n}xf16>
  %p = tile.dot %a1, %b1, %z : tensor<64x16xf16>, tensor<16x{n}xf16> -> tensor<64x{n}xf16>
  tile.store %p, %x[%o, %o] : tensor<64x{n}xf16>, {f16}
  %c0 = tile.load %c[%o, %o] : {i8} -> tensor<{k}x64xi8>
  %c1 = tile.transpose %c0 [1, 0] : tensor<{k}x64xi8> -> tensor<64x{k}xi8>
  %d0 = tile.load %d[%o, %o] : {i8} -> tensor<8x{k}xi8>
  %d1 = tile.transpose %d0 [1, 0] : tensor<8x{k}xi8> -> tensor<{k}x8xi8>
  %i = arith.constant 0 : i32
  %w = tile.full %i : i32 -> tensor<64x8xi32>
  %q = tile.dot %c1, %d1, %w : tensor<64x{k}xi8>, tensor<{k}x8xi8> -> tensor<64x8xi32>
  tile.store %q, %y[%o, %o] : tensor<64x8xi32>, {i32}
}}"""


def channels(text: str) -> Iterator[async_copy.ChannelOp]:
    module = parse_module(text)
    lower_to(module, "schedule", get_target("sm_90a"))
    yield from (op for op in module.walk() if isinstance(op, async_copy.ChannelOp))


@pytest.mark.parametrize(("n", "k"), [(1, 64), (8, 64), (8, 128), (24, 64), (64, 32)])
def test_buffers_start_where_their_swizzles_do(n, k):
    """What travels together need not be a multiple of what comes next: 2304 bytes, and then rows of 64 bytes with a pattern of 512."""
    rng = np.random.default_rng(n + k)
    a, b = rng.integers(-3, 4, (16, 64)).astype(np.float16), rng.integers(-3, 4, (n, 16)).astype(np.float16)
    c, d = rng.integers(-9, 9, (k, 64)).astype(np.int8), rng.integers(-9, 9, (8, k)).astype(np.int8)
    x, y = np.zeros((64, n), np.float16), np.zeros((64, 8), np.int32)
    with settings(races=True):
        compile(two_dots(n, k), "sm_90a")(a=a, b=b, c=c, d=d, x=x, y=y, device="sim")
    assert np.array_equal(x, (a.T.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float16))
    assert np.array_equal(y, c.T.astype(np.int32) @ d.T.astype(np.int32))
    taken: list[tuple[int, int]] = []
    for channel in channels(two_dots(n, k)):
        layout, size = channel.res.type.layout.data, channel.res.type.element.size
        stride, alignment = slot_stride(channel), layout.alignment(size)
        for slot in range(channel.depth.value.data):
            start = channel.offset.value.data + slot * stride
            assert start % alignment == 0, f"{layout} at {start}"
            taken.append((start, start + layout.size() * size))
    taken.sort()
    assert all(end <= start for (_, end), (start, _) in zip(taken, taken[1:]))
