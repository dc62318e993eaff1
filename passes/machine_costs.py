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

SHARED_BYTES_PER_CLOCK = 128
"""What a multiprocessor reads from shared memory (CUDA C++ Programming Guide, "Shared Memory": 32 banks of 4 bytes): an m64nNk16 of
`wgmma` reads 64×16 and N×16 elements, so that a narrow one takes longer than its multiplications."""

L2_BYTES_PER_CLOCK = 52
"""What each multiprocessor gets from L2 when all of them stream (estimate: 128×256 tiles read 38 at 778 TFLOP/s, and are not limited by it)."""

STORE_BYTES_PER_CLOCK = 32
"""What one multiprocessor writes (estimate)."""

MEMORY_BYTES_PER_CLOCK = 2150
"""What the device's memory moves for all: 4265 GB/s of a device copy."""

ARITHMETIC_LANES = 128
"""Elements that a multiprocessor's units for f32 take in a clock (CUDA C++ Programming Guide, "Arithmetic Instructions")."""

FUNCTION_LANES = 16
"""The same of exponentials, reciprocals, square roots."""

BLOCK_START_CLOCKS = 1000
"""From the end of one block to the first copy of the next one (estimate)."""

ARRIVAL_CLOCKS = 2000
"""A fence, an atomic operation in L2 and two barriers of the block (estimate from L2's latency)."""
