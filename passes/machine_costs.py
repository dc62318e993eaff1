"""What things cost on the machine, in clocks of one multiprocessor: the numbers that schedules are chosen by.

Measured on an H200 at 1.98 GHz unless stated otherwise; what depends on them is speed only, never a result. `MEASURED` says which figures of
`bench/results/calibration.json`, which `bench/calibrate.py` writes, are the source of which numbers; a test compares them.
"""

from __future__ import annotations

COPY_LATENCY = {"tma": 1410, "cp.async": 704}
"""From the issue of a copy of one tile to its arrival, from HBM: for `tma` (128×64 elements of bf16) what one of twenty exceeds; for `cp.async` (16 bytes) the mean.
From L2 472 and 336. What slots must cover."""

THREADS_LATENCY = COPY_LATENCY["cp.async"]
"""Clocks until another role's threads have filled a slot: as long as a load from memory takes, which is what they do or wait for themselves."""

USUAL_COPY_LATENCY = {"tma": 1100, "cp.async": 704}
"""The mean of the same: what a trip waits for, as a rule."""

COPY_BYTES_PER_CLOCK = 105
"""What one multiprocessor can stream from L2 by TMA."""

DOT_MACS_PER_CLOCK = {"wgmma": 2048, "mma": 1024}
"""Multiplications of 16-bit operands (of others, `DotKind.macs_per_clock`): m64n256k16 in 128 clocks. Of `mma.sync` what an A100 does (its data sheet: 312 TFLOP/s on 108
multiprocessors at 1.41 GHz)."""

DOT_DRAIN = 54
"""Clocks from the last multiplication of a batch of wgmma to its completion: a batch of four m64n256k16 takes 566.5 from issue, 512.5 of them at work."""

LANES_PER_CLOCK = {"alu": 125, "sfu": 16, "convert": 63, "shuffle": 32, "shared": 8}
"""Results of one multiprocessor in a clock, over all lanes: 32-bit arithmetic (ffma), special functions (ex2), conversions to 16 bits (of two
elements at once), shuffles, and 16-byte accesses to shared memory (128 bytes)."""

FMA_LANES = 128
"""Multiplications of f32 a clock that a multiprocessor has lanes for (CUDA C++ Programming Guide, "Arithmetic Instructions")."""

BARRIER_CLOCKS = 41
"""A wait on an mbarrier whose phase is complete already; a `bar.sync` of 256 threads takes 28."""

L2_SHARED_BYTES = 34 * 2**20
"""What blocks that run at the same time may share, in all, to find it in L2 mostly: of 50 to 60 MB, beside what streams through (measured with attention:
groups of heads whose keys and values are about as large are best)."""

MEGAHERTZ = 1980.0
"""The clock that all of this is measured at."""

SUSTAINED = 0.82
"""What is left of the clock while tensor cores and shared memory work without a pause, by the limit of power: products of 2048³ to 8192³ take 1.2 to 1.25 times
their clocks at MEGAHERTZ."""

L2_BYTES_PER_CLOCK = 48
"""What each multiprocessor gets from L2 when all of them stream (fitted, as bench/survey.py times products of few rows: 64×4096×4096 by 128 blocks of 32×64 takes 12.2 µs, by 64 of 64×64 9.0; 128×256 tiles read 38 at 778 TFLOP/s, and are not limited by it; where rows
of 128 bytes straddle two lines, products of 4000×4104×4040 are limited by half of it: expected 213, 247 and 433 µs for tiles of 128×256, 256×128 and 64×256, measured 228, 252
and 451)."""

STORE_BYTES_PER_CLOCK = 32
"""What one multiprocessor writes while the others do not."""

MEMORY_BYTES_PER_CLOCK = 2150
"""What the device's memory moves for all: 4265 GB/s of a device copy."""

BLOCK_START_CLOCKS = 1000
"""From the end of one block to the first copy of the next one (estimate)."""

REFILL_CLOCKS = 160
"""From the last read of a buffer to the next copy into it: a wait for the dots, and one for an elected thread (estimate: a block that loads 37 KB ahead gets 22 bytes a clock)."""

ARRIVAL_CLOCKS = 3500
"""A fence, an atomic operation in L2, two barriers of the block and the first of the loads, one after another, while memory is busy: fitted to products of 16 to 128 rows in 1 to 16 parts (bench/survey.py);
splitting one in two where that changes nothing else takes 2.4 to 3.9 µs more (32×8192×8192, 32×6144×4096, 16×7168×7168)."""

MEETING_CLOCKS = 1000
"""Blocks of a cluster meet, and one reads what the others have in shared memory (estimate)."""

PAIRING_CLOCKS = 2400
"""What a launch of clusters of two takes more than one of blocks: they are placed, begin and end together, and what is loaded for both arrives later (128×7168×512 by 128×64 in 8 trips takes 0.9 to 1.4 µs more
so, 1024³ 0.9 to 1.1, by four and by eight warps; fitted to those and larger ones)."""

SUM_BYTES_PER_CLOCK = 20
"""What one block writes and reads of sums in L2: few registers at a time (tiles of 128×192 in two parts took 12 µs for it)."""

L2_SHARE_BYTES_PER_CLOCK = 39
"""What L2 gives each multiprocessor when all load at once: 5120 bytes a clock in all (NVIDIA A100 Tensor Core GPU Architecture, "A100 L2 cache"), by 132."""

PARTIAL_SECTOR_COST = 3
"""How many times as long a store takes whose warps fill sectors of 32 bytes by halves: results of products in bf16, stored from registers as the
instruction leaves them. Long ones go out at 1.4 to 1.6 TB/s in all (2048³ and 8192³ on an H200, beside the same products with staged stores); what a launch stores once, at its end, costs less: the number was fitted with others to what products of few rows took."""

MEASURED: dict[str, tuple[float, str, float]] = {
    "COPY_LATENCY tma": (COPY_LATENCY["tma"], "tma_memory_slow", 0.03),
    "COPY_LATENCY cp.async": (COPY_LATENCY["cp.async"], "cp_async_memory_mean", 0.05),
    "USUAL_COPY_LATENCY tma": (USUAL_COPY_LATENCY["tma"], "tma_memory_mean", 0.05),
    "USUAL_COPY_LATENCY cp.async": (USUAL_COPY_LATENCY["cp.async"], "cp_async_memory_mean", 0.05),
    "COPY_BYTES_PER_CLOCK": (COPY_BYTES_PER_CLOCK, "tma_rate_bytes_per_clock", 0.01),
    "DOT_MACS_PER_CLOCK wgmma": (DOT_MACS_PER_CLOCK["wgmma"], "wgmma_n256_macs_per_clock", 0.01),
    "DOT_DRAIN": (DOT_DRAIN, "wgmma_n256_drain", 0.02),
    "LANES_PER_CLOCK alu": (LANES_PER_CLOCK["alu"], "fma_lanes_per_clock", 0.01),
    "LANES_PER_CLOCK sfu": (LANES_PER_CLOCK["sfu"], "ex2_lanes_per_clock", 0.01),
    "LANES_PER_CLOCK convert": (LANES_PER_CLOCK["convert"], "convert_lanes_per_clock", 0.01),
    "LANES_PER_CLOCK shuffle": (LANES_PER_CLOCK["shuffle"], "shuffle_lanes_per_clock", 0.01),
    "LANES_PER_CLOCK shared": (LANES_PER_CLOCK["shared"], "shared_lanes_per_clock", 0.02),
    "BARRIER_CLOCKS": (BARRIER_CLOCKS, "mbarrier_hit_clocks", 0.02),
    "STORE_BYTES_PER_CLOCK": (STORE_BYTES_PER_CLOCK, "store_rate_bytes_per_clock", 0.01),
    "MEGAHERTZ": (MEGAHERTZ, "megahertz", 0.01),
}
"""The number as it stands here, the figure of the calibration that it is, and by which part of it runs may differ: latencies of memory vary, rates hardly."""
