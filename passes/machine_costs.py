"""What things cost on the machine, in clocks of one multiprocessor: the numbers that schedules are chosen by.

Measured on an H200 at 1.98 GHz unless stated otherwise; what depends on them is speed only, never a result.
"""

from __future__ import annotations

COPY_LATENCY = {"tma": 1440, "cp.async": 720}
"""From the issue of a copy of one tile to its arrival, from HBM: for `tma` (128×64 elements of bf16) the slowest of many, the mean
is 1080; for `cp.async` (16 bytes) the mean. From L2 466 and 294."""

COPY_BYTES_PER_CLOCK = 106
"""What one multiprocessor can stream from L2 by TMA."""

DOT_MACS_PER_CLOCK = {"wgmma": 2048, "mma": 1024}
"""Multiplications of 16-bit operands: m64n256k16 in 128 clocks. Of `mma.sync` what an A100 does (its data sheet: 312 TFLOP/s on 108
multiprocessors at 1.41 GHz)."""

L2_SHARE_BYTES_PER_CLOCK = 39
"""What L2 gives each multiprocessor when all load at once: 5120 bytes a clock in all (NVIDIA A100 Tensor Core GPU Architecture, "A100 L2 cache"), by 132."""

MULTICAST_FROM = 0.5
"""The part of L2_SHARE_BYTES_PER_CLOCK that a kernel asks for from which on its blocks share loads. Chosen, not measured."""
