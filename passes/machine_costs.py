"""What things cost on the machine, in clocks of one multiprocessor: the numbers that schedules are chosen by.

Measured on an H200 at 1.98 GHz unless stated otherwise; what depends on them is speed only, never a result.
"""

from __future__ import annotations

COPY_LATENCY = {"tma": 1440, "cp.async": 720}
"""From the issue of a copy of one tile to its arrival, from HBM: for `tma` (128×64 elements of bf16) the slowest of many; for `cp.async` (16 bytes) the mean.
From L2 466 and 294. What slots must cover."""

USUAL_COPY_LATENCY = {"tma": 1080, "cp.async": 720}
"""The mean of the same: what a trip waits for, as a rule."""

COPY_BYTES_PER_CLOCK = 106
"""What one multiprocessor can stream from L2 by TMA."""

DOT_MACS_PER_CLOCK = {"wgmma": 2048, "mma": 1024}
"""Multiplications of 16-bit operands (of others, `DotKind.macs_per_clock`): m64n256k16 in 128 clocks. Of `mma.sync` what an A100 does (its data sheet: 312 TFLOP/s on 108
multiprocessors at 1.41 GHz)."""

DOT_DRAIN = 55
"""Clocks from the last multiplication of a batch of wgmma to its completion: a batch of four m64n256k16 takes 567 from issue, 512 of them at work."""

LANES_PER_CLOCK = {"alu": 119, "sfu": 15.8, "convert": 57, "shuffle": 32, "shared": 8}
"""Results of one multiprocessor in a clock, over all lanes: 32-bit arithmetic (ffma), special functions (ex2), conversions to 16 bits (of two
elements at once), shuffles, and 16-byte accesses to shared memory (128 bytes)."""

FMA_LANES = 128
"""Multiplications of f32 a clock that a multiprocessor has lanes for (CUDA C++ Programming Guide, "Arithmetic Instructions")."""

BARRIER_CLOCKS = 45
"""A wait on an mbarrier whose phase is complete already; a `bar.sync` of 256 threads takes 29."""

L2_SHARED_BYTES = 34 * 2**20
"""What blocks that run at the same time may share, in all, to find it in L2 mostly: of 50 to 60 MB, beside what streams through (measured with attention:
groups of heads whose keys and values are about as large are best)."""

MEGAHERTZ = 1980.0
"""The clock that all of this is measured at."""

SUSTAINED = 0.82
"""What is left of the clock while tensor cores and shared memory work without a pause, by the limit of power: products of 2048³ to 8192³ take 1.2 to 1.25 times
their clocks at MEGAHERTZ."""

L2_BYTES_PER_CLOCK = 52
"""What each multiprocessor gets from L2 when all of them stream (estimate: 128×256 tiles read 38 at 778 TFLOP/s, and are not limited by it; where rows
of 128 bytes straddle two lines, products of 4000×4104×4040 are limited by half of it: expected 213, 247 and 433 µs for tiles of 128×256, 256×128 and 64×256, measured 228, 252
and 451)."""

STORE_BYTES_PER_CLOCK = 32
"""What one multiprocessor writes (estimate)."""

MEMORY_BYTES_PER_CLOCK = 2150
"""What the device's memory moves for all: 4265 GB/s of a device copy."""

BLOCK_START_CLOCKS = 1000
"""From the end of one block to the first copy of the next one (estimate)."""

REFILL_CLOCKS = 160
"""From the last read of a buffer to the next copy into it: a wait for the dots, and one for an elected thread (estimate: a block that loads 37 KB ahead gets 22 bytes a clock)."""

ARRIVAL_CLOCKS = 5500
"""A fence, an atomic operation in L2, two barriers of the block and the first of the loads, one after another, while memory is busy: splitting a product of few rows in two where that changes
nothing else took 2.4 to 3.9 µs more (32×8192×8192, 32×6144×4096, 16×7168×7168)."""

MEETING_CLOCKS = 1000
"""Blocks of a cluster meet, and one reads what the others have in shared memory (estimate)."""

SUM_BYTES_PER_CLOCK = 20
"""What one block writes and reads of sums in L2: few registers at a time (tiles of 128×192 in two parts took 12 µs for it)."""

L2_SHARE_BYTES_PER_CLOCK = 39
"""What L2 gives each multiprocessor when all load at once: 5120 bytes a clock in all (NVIDIA A100 Tensor Core GPU Architecture, "A100 L2 cache"), by 132."""

PARTIAL_SECTOR_COST = 5
"""How many times as long a store takes whose warps fill sectors of 32 bytes by halves: results of products in bf16, stored from registers as the
instruction leaves them, went out at 1.4 to 1.6 TB/s in all (2048³ and 8192³ on an H200, beside the same products with staged stores)."""
