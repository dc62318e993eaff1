"""The programs that `bench/calibrate.py` measures with: PTX text, made so that one unit of a multiprocessor is busy and nothing else.

A probe writes clocks (`%clock64`) to memory; `Probe.figures` makes figures of them. What a probe computes is of no interest, but must not be computed at
compile time, nor left out: operands come from a parameter that nobody knows, and results go to memory where a condition holds that never does.

Every entry takes (out, data, blank, map): the addresses of the clocks and of the data, a 32-bit zero, and a tensor map of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

Clocks = list[int]
Figures = dict[str, float]

LOOPS = 32
"""Times that a rate's loop runs; its body is unrolled."""
TILE_ROWS, TILE_COLUMNS = 128, 64
TILE_BYTES = TILE_ROWS * TILE_COLUMNS * 2
"""The tile of 16-bit elements whose copies are timed."""
RING = 8
"""Tiles under way where a rate is asked for."""
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Probe:
    """One program. `clocks`: how many numbers of 64 bits each block writes; `data`: bytes of device memory; `cold`: bytes that are written between the
    preparation and the launch, so that L2 holds none of the data; `figures`: from all clocks and the milliseconds of the launch."""

    name: str
    body: str
    threads: int
    figures: Callable[[list[Clocks], float], Figures]
    clocks: int = 1
    blocks: int = 1
    every_multiprocessor: bool = False
    shared: int = 0
    data: int = MEGABYTE
    cold: bool = False
    warm_up: bool = True


HEADER = """.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 room[];
.visible .entry probe(.param .u64 p_out, .param .u64 p_data, .param .u32 p_blank, .param .align 64 .b8 p_map[128])
.maxntid {threads} .minnctapersm 1
{{
.reg .u64 %out, %data, %start, %end, %map, %at; .reg .u32 %blank, %t, %block, %zero; .reg .pred %first, %p, %q, %never;
.reg .b32 %r<512>; .reg .f32 %f<512>; .reg .b64 %d<64>;
ld.param.u64 %out, [p_out]; ld.param.u64 %data, [p_data]; ld.param.u32 %blank, [p_blank];
cvta.to.global.u64 %out, %out; cvta.to.global.u64 %data, %data; mov.b64 %map, p_map; cvta.param.u64 %map, %map;
mov.u32 %t, %tid.x; mov.u32 %block, %ctaid.x; setp.eq.u32 %first, %t, 0; setp.ne.u32 %never, %blank, 0; mov.u32 %zero, room;
mad.wide.u32 %out, %block, {clocks_bytes}, %out;
"""


def text(probe: Probe) -> str:
    """The whole PTX module of a probe."""
    return HEADER.format(threads=probe.threads, clocks_bytes=8 * probe.clocks) + probe.body + "\nret;\n}\n"


def _write(slot: int = 0) -> str:
    return f"sub.u64 %end, %end, %start; @%first st.global.u64 [%out+{8 * slot}], %end;\n"


def _looped(body: str, loops: int = LOOPS) -> str:
    return f"mov.u32 %r500, {loops};\nAGAIN:\n.pragma \"nounroll\";\n{body}\nsub.u32 %r500, %r500, 1; setp.ne.u32 %q, %r500, 0; @%q bra AGAIN;\n"


def _timed(before: str, body: str, after: str, loops: int = LOOPS) -> str:
    """A loop between two readings of the clock, all threads of the block together."""
    return f"{before}\nbar.sync 0; mov.u64 %start, %clock64;\n{_looped(body, loops)}bar.sync 0; mov.u64 %end, %clock64;\n{after}\n{_write()}"


# ---- rates of the threads' units ------------------------------------------------------------------------------------

CHAINS, UNROLLED = 8, 16


def _rate(name: str, instruction: str, kind: str) -> Probe:
    """`CHAINS` independent chains of one instruction in each of 256 threads; {x} stands for a chain's register."""
    threads = 256
    begin = "".join(f"cvt.rn.f32.u32 %f{i}, %blank; add.u32 %r{i}, %blank, %t;" for i in range(CHAINS))
    begin += "cvt.rn.f32.u32 %f100, %blank; cvt.rn.f32.u32 %f101, %t;"
    body = "\n".join(instruction.format(x=f"%{kind}{i}") for _ in range(UNROLLED) for i in range(CHAINS))
    end = "".join(f"@%never st.global.b32 [%data+{4 * i}], %{kind}{i};" for i in range(CHAINS))
    done = threads * CHAINS * UNROLLED * LOOPS
    return Probe(name, _timed(begin, body, end), threads, lambda clocks, _: {f"{name}_lanes_per_clock": done / clocks[0][0]})


def _shared_rate() -> Probe:
    threads, reads = 256, 16
    begin = "shl.b32 %r0, %t, 4; add.u32 %r0, %r0, %zero;" + "".join(f"mov.u32 %r{20 + i}, 0;" for i in range(4 * reads))
    body = "\n".join(f"ld.volatile.shared.v4.b32 {{%r{20 + 4 * i}, %r{21 + 4 * i}, %r{22 + 4 * i}, %r{23 + 4 * i}}}, [%r0+{4096 * (i % 8)}];" for i in range(reads))
    end = "".join(f"@%never st.global.b32 [%data+{4 * i}], %r{20 + i};" for i in range(4 * reads))
    done = threads * reads * LOOPS
    return Probe("shared", _timed(begin, body, end), threads, lambda clocks, _: {"shared_lanes_per_clock": done / clocks[0][0]}, shared=36864)


def _mma_rate() -> Probe:
    """mma.m16n8k16: each warp adds to eight accumulators in turn."""
    threads, each = 256, 8
    begin = "".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(4 * each)) + "".join(f"mov.u32 %r{i}, %blank;" for i in range(6))
    body = "\n".join(
        f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{regs}}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{{regs}}};"
        for i in list(range(each)) * 2
        for regs in [", ".join(f"%f{4 * i + j}" for j in range(4))]
    )
    end = "".join(f"@%never st.global.f32 [%data+{4 * i}], %f{i};" for i in range(4 * each))
    done = threads // 32 * 2 * each * LOOPS * 16 * 8 * 16
    return Probe("mma", _timed(begin, body, end), threads, lambda clocks, _: {"mma_macs_per_clock": done / clocks[0][0]})


# ---- wgmma ----------------------------------------------------------------------------------------------------------

BATCH = 4


def _wgmma(n: int) -> Probe:
    """Batches of four wgmma.m64nNk16 by two warpgroups: one at a time from issue to completion by the first alone, then one always under way by both."""
    regs = ", ".join(f"%f{i}" for i in range(n // 2))
    step = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{regs}}}, %d0, %d1, 1, 1, 1, 0, 0;"
    batch = "wgmma.fence.sync.aligned;\n" + f"{step}\n" * BATCH + "wgmma.commit_group.sync.aligned;\n"
    begin = "".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(n // 2))
    begin += "mov.b64 %d2, 0x4000004000010000; cvt.u64.u32 %d0, %zero; shr.u64 %d0, %d0, 4; or.b64 %d0, %d0, %d2; add.s64 %d1, %d0, 1024;\n"
    begin += "shl.b32 %r0, %t, 4; add.u32 %r0, %r0, %zero; mov.u32 %r1, %blank;"
    begin += "".join(f"st.shared.v4.b32 [%r0+{4096 * i}], {{%r1, %r1, %r1, %r1}};" for i in range(12)) + "fence.proxy.async.shared::cta; bar.sync 0;\n"
    alone = "setp.ge.u32 %p, %t, 128; @%p bra TOGETHER;\n"
    alone += "mov.u64 %start, %clock64;\n" + (batch + "wgmma.wait_group.sync.aligned 0;\n") * 4 + "mov.u64 %end, %clock64;\n" + _write(0)
    together = "TOGETHER: bar.sync 0; mov.u64 %start, %clock64;\n"
    together += _looped((batch + "wgmma.wait_group.sync.aligned 1;\n") * 2) + "wgmma.wait_group.sync.aligned 0; bar.sync 0; mov.u64 %end, %clock64;\n" + _write(1)
    end = "".join(f"@%never st.global.f32 [%data+{4 * i}], %f{i};" for i in range(n // 2))
    macs, instructions = 64 * n * 16, 2 * BATCH * LOOPS * 2

    def figures(clocks: list[Clocks], _: float) -> Figures:
        one, all_ = clocks[0]
        interval = all_ / instructions
        return {f"wgmma_n{n}_clocks": interval, f"wgmma_n{n}_macs_per_clock": macs / interval, f"wgmma_n{n}_batch": one / 4, f"wgmma_n{n}_drain": one / 4 - BATCH * interval}

    return Probe(f"wgmma_n{n}", begin + alone + together + end, 256, figures, clocks=2, shared=49152 + 1024)


# ---- barriers -------------------------------------------------------------------------------------------------------

REPEATED = 32


def _barrier(threads: int) -> Probe:
    body = _timed("", "bar.sync 0;\n" * REPEATED, "")
    return Probe(f"bar_{threads}", body, threads, lambda clocks, _: {f"bar_sync_{threads}_clocks": clocks[0][0] / REPEATED / LOOPS})


def _wait(number: int, parity: str) -> str:
    return f"W{number}: mbarrier.try_wait.parity.shared::cta.b64 %p, [%zero], {parity}; @!%p bra W{number};\n"


def _mbarrier() -> Probe:
    """Waits for a phase that is complete; then arrivals and waits in turn."""
    begin = "@%first mbarrier.init.shared.b64 [%zero], 1; bar.sync 0; @%first mbarrier.arrive.shared.b64 _, [%zero]; bar.sync 0;\n"
    hits = "mov.u64 %start, %clock64;\n" + "".join(_wait(i, "0") for i in range(REPEATED)) + "mov.u64 %end, %clock64;\n" + _write(0)
    turns = "bar.sync 0; mov.u64 %start, %clock64;\n" + "".join(
        f"@%first mbarrier.arrive.shared.b64 _, [%zero];\n{_wait(REPEATED + i, str(1 - i % 2))}" for i in range(REPEATED)
    )
    turns += "mov.u64 %end, %clock64;\n" + _write(1)
    return Probe(
        "mbarrier",
        begin + hits + turns,
        32,
        lambda clocks, _: {"mbarrier_hit_clocks": clocks[0][0] / REPEATED, "mbarrier_round_trip_clocks": clocks[0][1] / REPEATED},
        clocks=2,
        shared=1024,
    )


def _arrival() -> Probe:
    """What a block of 256 threads does to hand on its partial sums: stores, barrier, fence and atomic addition by one thread, barrier."""
    step = "st.global.v4.b32 [%at], {%blank, %blank, %blank, %blank}; bar.sync 0;\n@!%first bra J{i};\n"
    step += "fence.acq_rel.gpu; atom.add.acq_rel.gpu.global.u32 %r1, [%data], %blank;\nJ{i}: bar.sync 0;\n"
    body = "mad.wide.u32 %at, %t, 16, %data; add.u64 %at, %at, 4096; bar.sync 0;\nmov.u64 %start, %clock64;\n"
    body += "".join(step.replace("{i}", str(i)) for i in range(REPEATED)) + "mov.u64 %end, %clock64;\n" + _write()
    return Probe("arrival", body, 256, lambda clocks, _: {"arrival_clocks": clocks[0][0] / REPEATED})


# ---- copies ---------------------------------------------------------------------------------------------------------

COPIES = 128


def _tma(slot: str, barrier: str, row: str) -> str:
    return (
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {TILE_BYTES};\n"
        f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{slot}], [%map, {{%r9, {row}}}], [{barrier}];\n"
    )


def _tma_latency() -> Probe:
    """Tiles one after another, none of them in L2; then the same again, from L2. Tiles are 2 MB apart, so that no two share a page of DRAM."""
    copies = 96
    begin = "mov.u32 %r9, 0; @%first mbarrier.init.shared.b64 [%zero], 1; fence.mbarrier_init.release.cluster; bar.sync 0; @!%first bra DONE;\n"
    begin += "add.u32 %r1, %zero, 1024; mov.u32 %r3, 0;\n"
    passes = ""
    for number in range(2):
        passes += f"mov.u32 %r2, 0; mov.u32 %r500, {copies}; mov.u64 %at, %out;\nP{number}:\nmov.u64 %start, %clock64;\n" + _tma("%r1", "%zero", "%r2")
        passes += f"X{number}: mbarrier.try_wait.parity.shared::cta.b64 %p, [%zero], %r3; @!%p bra X{number};\nmov.u64 %end, %clock64; sub.u64 %end, %end, %start;\n"
        passes += f"st.global.u64 [%at+{8 * copies * number}], %end; add.u64 %at, %at, 8; xor.b32 %r3, %r3, 1; add.u32 %r2, %r2, {2 * MEGABYTE // (TILE_COLUMNS * 2)};\n"
        passes += f"sub.u32 %r500, %r500, 1; setp.ne.u32 %q, %r500, 0; @%q bra P{number};\n"

    def figures(clocks: list[Clocks], _: float) -> Figures:
        far, near = sorted(clocks[0][1:copies]), sorted(clocks[0][copies:])
        return {
            "tma_memory_mean": mean(far),
            "tma_memory_median": median(far),
            "tma_memory_slow": far[len(far) * 19 // 20],
            "tma_memory_slowest": far[-1],
            "tma_l2_mean": mean(near),
            "tma_l2_slowest": near[-1],
        }

    return Probe("tma_latency", begin + passes + "DONE:", 32, figures, clocks=2 * copies, shared=1024 + TILE_BYTES, data=copies * 2 * MEGABYTE, cold=True, warm_up=False)


def _tma_rate(every: bool) -> Probe:
    """Tiles from a part of memory that L2 holds, RING of them under way: by one block, or by one on each multiprocessor, each from its own tiles."""
    tiles, own = 512, 8
    begin = f"@!%first bra DONE;\nmov.u32 %r9, 0; mul.lo.u32 %r4, %block, {own * TILE_ROWS};\n"
    begin += "".join(f"add.u32 %r{10 + i}, %zero, {8 * i}; mbarrier.init.shared.b64 [%r{10 + i}], 1; add.u32 %r{30 + i}, %zero, {1024 + TILE_BYTES * i};\n" for i in range(RING))
    begin += "fence.mbarrier_init.release.cluster; mov.u32 %r3, 0; mov.u32 %r2, 0;\n"

    def issue(i: int) -> str:
        return f"and.b32 %r5, %r2, {own - 1}; mad.lo.u32 %r6, %r5, {TILE_ROWS}, %r4; add.u32 %r2, %r2, 1;\n" + _tma(f"%r{30 + i}", f"%r{10 + i}", "%r6")

    def wait(i: int, label: str) -> str:
        return f"{label}{i}: mbarrier.try_wait.parity.shared::cta.b64 %p, [%r{10 + i}], %r3; @!%p bra {label}{i};\n"

    fill = "".join(map(issue, range(RING)))
    drain = "".join(wait(i, "D") for i in range(RING)) + "xor.b32 %r3, %r3, 1;\n"
    round_ = "".join(wait(i, "L") + issue(i) for i in range(RING)) + "xor.b32 %r3, %r3, 1;"
    warm = fill + "".join(wait(i, "A") for i in range(RING)) + "xor.b32 %r3, %r3, 1;\n" + fill + "".join(wait(i, "B") for i in range(RING)) + "xor.b32 %r3, %r3, 1;\n"
    body = begin + warm + fill + "mov.u64 %start, %clock64;\n" + _looped(round_, tiles // RING) + "mov.u64 %end, %clock64;\n" + _write() + drain + "DONE:"
    name = "tma_rate_all" if every else "tma_rate"
    return Probe(
        name,
        body,
        32,
        lambda clocks, _: {f"{name}_bytes_per_clock": tiles * TILE_BYTES / mean(block[0] for block in clocks)},
        every_multiprocessor=every,
        shared=1024 + RING * TILE_BYTES,
        data=256 * own * TILE_BYTES if every else MEGABYTE,
    )


def _cp_async_latency() -> Probe:
    copies = 96
    body = "@!%first bra DONE;\n"
    for number in range(2):
        body += f"mov.u64 %d0, %data; mov.u32 %r500, {copies}; mov.u64 %at, %out;\nP{number}:\nmov.u64 %start, %clock64;\n"
        body += "cp.async.cg.shared.global [%zero], [%d0], 16; cp.async.commit_group; cp.async.wait_group 0; ld.volatile.shared.u32 %r1, [%zero];\n"
        body += "and.b32 %r1, %r1, %blank; cvt.u64.u32 %d1, %r1; mov.u64 %end, %clock64; add.u64 %end, %end, %d1; sub.u64 %end, %end, %start;\n"
        body += f"st.global.u64 [%at+{8 * copies * number}], %end; add.u64 %at, %at, 8; add.u64 %d0, %d0, {2 * MEGABYTE};\n"
        body += f"sub.u32 %r500, %r500, 1; setp.ne.u32 %q, %r500, 0; @%q bra P{number};\n"

    def figures(clocks: list[Clocks], _: float) -> Figures:
        far, near = sorted(clocks[0][1:copies]), sorted(clocks[0][copies:])
        return {"cp_async_memory_mean": mean(far), "cp_async_memory_slow": far[len(far) * 19 // 20], "cp_async_l2_mean": mean(near)}

    return Probe("cp_async", body + "DONE:", 32, figures, clocks=2 * copies, shared=1024, data=copies * 2 * MEGABYTE, cold=True, warm_up=False)


def _stores(every: bool) -> Probe:
    """Whole lines, 16 bytes a thread: to the same 64 KB of a block over and over, which stay in L2."""
    threads, stores = 256, 16
    begin = f"mad.wide.u32 %at, %block, {stores * threads * 16}, %data; mul.wide.u32 %d0, %t, 16; add.u64 %at, %at, %d0;\n"
    body = "\n".join(f"st.global.v4.b32 [%at+{threads * 16 * i}], {{%blank, %t, %blank, %t}};" for i in range(stores))
    loops = 128
    nbytes = threads * 16 * stores * loops
    name = "store_rate_all" if every else "store_rate"
    timed = _timed(begin, body, "", loops)
    return Probe(
        name,
        timed,
        threads,
        lambda clocks, _: {f"{name}_bytes_per_clock": nbytes / mean(block[0] for block in clocks)},
        every_multiprocessor=every,
        data=256 * stores * threads * 16,
    )


def _device_copy() -> Probe:
    """Half a gigabyte from one half of the data to the other, by every multiprocessor; the launch's time counts."""
    nbytes, threads, blocks, each = 512 * MEGABYTE, 512, 132 * 4, 8
    total = threads * blocks * 16
    rounds = nbytes // (total * each)
    body = f"mad.lo.u32 %r0, %block, {threads}, %t; mad.wide.u32 %at, %r0, 16, %data; mov.u32 %r1, {rounds};\nNEXT:\n"
    body += "".join(f"ld.global.nc.v4.b32 {{%r{10 + 4 * i}, %r{11 + 4 * i}, %r{12 + 4 * i}, %r{13 + 4 * i}}}, [%at+{total * i}];\n" for i in range(each))
    body += f"add.u64 %d0, %at, {nbytes};\n"
    body += "".join(f"st.global.v4.b32 [%d0+{total * i}], {{%r{10 + 4 * i}, %r{11 + 4 * i}, %r{12 + 4 * i}, %r{13 + 4 * i}}};\n" for i in range(each))
    body += f"add.u64 %at, %at, {total * each}; sub.u32 %r1, %r1, 1; setp.ne.u32 %q, %r1, 0; @%q bra NEXT;"
    nbytes = rounds * total * each
    return Probe("device_copy", body, threads, lambda _, ms: {"device_copy_gigabytes_per_second": 2 * nbytes / ms / 1e6}, blocks=blocks, data=1024 * MEGABYTE)


# ---- blocks and the clock -------------------------------------------------------------------------------------------


def _block_start() -> Probe:
    """Each block holds a multiprocessor for itself, and writes which one, and when it began and ended: what passes between two of them. Global time is none of a
    multiprocessor's, so its own clock is used."""
    body = "mov.u64 %start, %clock64; mov.u32 %r0, %smid; cvt.u64.u32 %d0, %r0; mov.u64 %at, %start;\n"
    body += "HOLD: mov.u64 %end, %clock64; sub.u64 %d1, %end, %start; setp.lt.u64 %p, %d1, 8000; @%p bra HOLD;\n"
    body += "@%first st.global.u64 [%out], %d0; @%first st.global.u64 [%out+8], %at; mov.u64 %end, %clock64; @%first st.global.u64 [%out+16], %end;"

    def figures(clocks: list[Clocks], _: float) -> Figures:
        by_place: dict[int, list[tuple[int, int]]] = {}
        for place, start, end in clocks:
            by_place.setdefault(place, []).append((start, end))
        gaps = [after[0] - before[1] for runs in by_place.values() for before, after in zip(sorted(runs), sorted(runs)[1:])]
        return {"block_start_clocks": median(gaps), "block_start_slowest": max(gaps)}

    return Probe("block_start", body, 384, figures, clocks=3, blocks=132 * 4, shared=200 * 1024)


def _clock() -> Probe:
    """Clocks beside global time (nanoseconds) over some 5 ms."""
    body = "mov.u64 %start, %clock64; mov.u64 %d0, %globaltimer;\n"
    body += "HOLD: mov.u64 %d1, %globaltimer; mov.u64 %end, %clock64; sub.u64 %d1, %d1, %d0; setp.lt.u64 %p, %d1, 5000000; @%p bra HOLD;\n"
    body += _write(0) + "@%first st.global.u64 [%out+8], %d1;"
    return Probe("clock", body, 32, lambda clocks, _: {"megahertz": clocks[0][0] / clocks[0][1] * 1e3}, clocks=2)


def probes() -> list[Probe]:
    """All of them, in the order in which they run."""
    return [
        _clock(),
        _rate("fma", "fma.rn.f32 {x}, {x}, %f100, %f101;", "f"),
        _rate("ex2", "ex2.approx.ftz.f32 {x}, {x};", "f"),
        _rate("convert", "cvt.rn.bf16x2.f32 %r200, {x}, %f101; mov.b32 {x}, %r200;", "f"),
        _rate("shuffle", "shfl.sync.bfly.b32 {x}, {x}, 1, 31, -1;", "r"),
        _shared_rate(),
        _mma_rate(),
        *(_wgmma(n) for n in (64, 128, 256)),
        *(_barrier(threads) for threads in (128, 256, 384)),
        _mbarrier(),
        _arrival(),
        _tma_latency(),
        _tma_rate(False),
        _tma_rate(True),
        _cp_async_latency(),
        _stores(False),
        _stores(True),
        _device_copy(),
        _block_start(),
    ]


def named(name: str) -> Probe:
    """One of them. Raises KeyError for another name."""
    return {probe.name: probe for probe in probes()}[name]


def summary(runs: list[Figures]) -> dict[str, Any]:
    """The median of each figure over several runs, with the least and the most."""
    return {key: {"value": median(values), "least": min(values), "most": max(values)} for key in runs[0] if (values := [run[key] for run in runs])}
