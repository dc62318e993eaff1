"""Control flow, collectives, memory and barriers in the simulator; faults and deadlocks with their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from simulator_harness import kernel, run

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.ptx_text import read_program
from tesela.simulator import Memory, Observer, launch

STORE = "mul.wide.u32 %d0, %t, 4; add.s64 %x, %x, %d0; st.global.b32 [%x], %r0;"
"""Stores %r0 to the thread's element of x."""


def per_thread(body: str, threads: int = 32, **options: Any) -> np.ndarray:
    """What every thread of a block leaves in %r0."""
    out = np.zeros(threads, np.uint32)
    run(kernel(body + STORE), out, block=(threads,), **options)
    return out


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_divergence_and_reconvergence(seed: int | None) -> None:
    """Lanes that took different ways are together again at the branch's post-dominator: the vote there sees all of them."""
    out = per_thread(
        """and.b32 %r1, %t, 1; setp.eq.s32 %p0, %r1, 0; @%p0 bra $EVEN;
        add.s32 %r0, %t, 100; bra $JOIN;
        $EVEN: add.s32 %r0, %t, 200;
        $JOIN: setp.ge.s32 %p1, %r0, 200; vote.sync.ballot.b32 %r2, %p1, 0xffffffff; add.s32 %r0, %r0, %r2;""",
        seed=seed,
    )
    lanes = np.arange(32)
    assert np.array_equal(out, np.where(lanes % 2, lanes + 100, lanes + 200) + np.uint32(0x55555555))


def test_loops_of_different_lengths() -> None:
    """Every thread counts down from its number; a nested loop inside."""
    out = per_thread(
        """mov.b32 %r0, 0; mov.b32 %r1, %t;
        $OUTER: setp.eq.s32 %p0, %r1, 0; @%p0 bra $END;
        and.b32 %r2, %r1, 3;
        $INNER: setp.eq.s32 %p1, %r2, 0; @%p1 bra $NEXT; add.s32 %r0, %r0, 1; sub.s32 %r2, %r2, 1; bra $INNER;
        $NEXT: sub.s32 %r1, %r1, 1; bra $OUTER;
        $END:""",
        threads=96,
    )
    assert out.tolist() == [sum(k & 3 for k in range(1, t + 1)) for t in range(96)]


def test_blocks_laid_out_of_order_still_reconverge() -> None:
    """The branch target stands after the join; the warp must wait there for it before it shuffles."""
    out = per_thread(
        """setp.lt.s32 %p0, %t, 7; mov.b32 %r0, 1; @%p0 bra $FAR;
        $JOIN: activemask.b32 %r1; mov.b32 %r0, %r1; bra $OUT;
        $FAR: mov.b32 %r0, 2; bra $JOIN;
        $OUT:"""
    )
    assert out.tolist() == [0xFFFFFFFF] * 32


def test_guards_and_early_exit() -> None:
    out = np.full(64, 9, np.uint32)
    run(
        kernel(
            "setp.ge.u32 %p0, %t, 40; @%p0 ret; setp.lt.u32 %p1, %t, 8; mov.b32 %r0, 1; @%p1 mov.b32 %r0, 2; @!%p1 add.s32 %r0, %r0, 4;"
            + STORE
        ),
        out,
        block=(64,),
    )
    assert out.tolist() == [2] * 8 + [5] * 32 + [9] * 24


def test_runs_of_instructions_keep_their_order() -> None:
    """Fused runs: each instruction reads what the one before wrote, overlapping stores keep the later value."""
    body = "mov.b32 %r0, 1;" + "".join(f"add.s32 %r{k + 1}, %r{k}, %r{k};" for k in range(6))
    body += "st.shared.b32 [%s], %r1; st.shared.b32 [%s], %r2; st.shared.b32 [%s], %r3; ld.shared.b32 %r7, [%s]; mul.lo.s32 %r0, %r6, %r7;"
    assert per_thread(body, shared=16).tolist() == [64 * 8] * 32
    swap = "mov.b32 %r0, 3; mov.b32 %r1, 5; mov.b32 %r2, %r0; mov.b32 %r0, %r1; mov.b32 %r1, %r2; shl.b32 %r0, %r0, 4; add.s32 %r0, %r0, %r1;"
    assert per_thread(swap).tolist() == [0x53] * 32


def test_special_registers() -> None:
    text = kernel(
        """mov.b32 %r1, %ctaid.x; mov.b32 %r2, %ctaid.y; mov.b32 %r3, %nctaid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
        mov.b32 %r5, %tid.y; mov.b32 %r6, %ntid.x; mad.lo.s32 %r5, %r5, %r6, %t; mov.b32 %r7, %ntid.y; mul.lo.s32 %r6, %r6, %r7;
        mad.lo.s32 %r4, %r4, %r6, %r5; mov.b32 %r8, %laneid; mov.b32 %r9, %warpid; shl.b32 %r9, %r9, 8; or.b32 %r0, %r8, %r9;
        shl.b32 %r2, %r2, 16; or.b32 %r0, %r0, %r2; mul.wide.u32 %d0, %r4, 4; add.s64 %x, %x, %d0; st.global.b32 [%x], %r0;"""
    )
    out = np.zeros((2, 3, 6, 8), np.uint32)
    run(text, out, grid=(3, 2), block=(8, 6))
    thread = np.arange(48).reshape(6, 8)
    want = (thread % 32) | ((thread // 32) << 8)
    assert np.array_equal(
        out, want[None, None] | (np.arange(2)[:, None, None, None] << 16) + np.zeros((1, 3, 1, 1), int)
    )


def test_blocks_of_broken_warps() -> None:
    """33 threads: the second warp has one lane, and collectives and barriers do not wait for the others."""
    out = per_thread(
        "st.shared.b32 [%s], %t; bar.sync 0; vote.sync.ballot.b32 %r0, 1, 0xffffffff;".replace(
            ", 1,", ", %p0,"
        ).replace("bar.sync 0;", "bar.sync 0; setp.eq.s32 %p0, 0, 0;"),
        threads=33,
        shared=16,
    )
    assert out.tolist() == [0xFFFFFFFF] * 32 + [1]


# Collectives


def shuffled(mode: str, amount: int, clamp: int) -> tuple[np.ndarray, np.ndarray]:
    text = kernel(
        f"""add.s32 %r1, %t, 100; shfl.sync.{mode}.b32 %r0|%p0, %r1, {amount}, {clamp}, 0xffffffff; selp.b32 %r2, 1, 0, %p0;
        mul.wide.u32 %d0, %t, 8; add.s64 %x, %x, %d0; st.global.v2.b32 [%x], {{%r0, %r2}};"""
    )
    out = np.zeros((32, 2), np.uint32)
    try:
        run(text, out)
    except TeselaError as error:  # the table may have no form with a predicate
        assert "must be a register" in str(error)
        run(text.replace("%r0|%p0", "%r0").replace("selp.b32 %r2, 1, 0, %p0;", "mov.b32 %r2, 7;"), out)
    return out[:, 0], out[:, 1]


@pytest.mark.parametrize(
    ("mode", "clamp"),
    [("bfly", 31), ("down", 31), ("up", 0), ("idx", 31), ("idx", 0x181F), ("down", 0x1807), ("up", 0x1800)],
)
@pytest.mark.parametrize("amount", [0, 1, 3, 16])
def test_shuffles(mode: str, amount: int, clamp: int) -> None:
    """Against the pseudocode of PTX ISA 9.0 §9.7.9.6."""
    got, flags = shuffled(mode, amount, clamp)
    for lane in range(32):
        bound, mask = clamp & 31, clamp >> 8 & 31
        most = (lane & mask) | (bound & ~mask & 31)
        least = lane & mask
        source = {
            "up": lane - amount,
            "down": lane + amount,
            "bfly": lane ^ amount,
            "idx": least | (amount & ~mask & 31),
        }[mode]
        valid = source >= most if mode == "up" else source <= most
        assert got[lane] == 100 + (source if valid else lane)
        assert flags[lane] in (int(valid), 7)


def test_votes_and_matches() -> None:
    setup = "setp.ge.s32 %p0, %t, 4; "
    for mode, want in (("any", 1), ("all", 0), ("uni", 0)):
        out = per_thread(setup + f"vote.sync.{mode}.pred %p1, %p0, 0xffffffff; selp.b32 %r0, 1, 0, %p1;")
        assert out.tolist() == [want] * 32, mode
    out = per_thread("shr.u32 %r1, %t, 3; match.any.sync.b32 %r0, %r1, 0xffffffff;")
    assert out.tolist() == [0xFF << (8 * (t // 8)) for t in range(32)]


def test_elect_and_reductions() -> None:
    out = per_thread("elect.sync _|%p0, 0xffffffff; selp.b32 %r0, 1, 0, %p0;")
    assert out.tolist() == [1] + [0] * 31
    values = "sub.s32 %r1, %t, 5; "
    for name, want in {
        "add.s32": sum(range(-5, 27)),
        "min.s32": -5,
        "max.s32": 26,
        "max.u32": -1,
        "and.b32": 0,
        "or.b32": -1,
        "xor.b32": None,
    }.items():
        out = per_thread(values + f"redux.sync.{name} %r0, %r1, 0xffffffff;")
        if want is None:
            want = int(np.bitwise_xor.reduce((np.arange(32) - 5).astype(np.int64)))
        assert out.tolist() == [want & 0xFFFFFFFF] * 32, name


def test_collectives_of_some_lanes() -> None:
    """Lanes in two branches, each with its own member mask, need not wait for each other."""
    out = per_thread(
        """setp.lt.u32 %p0, %t, 8; @%p0 bra $LOW;
        redux.sync.add.s32 %r0, %t, 0xffffff00; bra $END;
        $LOW: redux.sync.add.s32 %r0, %t, 0xff;
        $END:"""
    )
    assert out.tolist() == [sum(range(8))] * 8 + [sum(range(8, 32))] * 24


def test_matrix_moves() -> None:
    """ldmatrix and stmatrix, with and without .trans, against the row addresses and fragments of the ISA."""
    data = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            regs = ", ".join(f"%r{4 + j}" for j in range(count))
            text = kernel(
                f"""shl.b32 %r1, %t, 4; add.s32 %r1, %r1, %s; mul.wide.u32 %d0, %t, 16; add.s64 %d1, %y, %d0;
                ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d1]; st.shared.v4.b32 [%r1], {{%r4, %r5, %r6, %r7}}; bar.warp.sync 0xffffffff;
                ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{regs}}}, [%r1];
                stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r1+512], {{{regs}}}; bar.warp.sync 0xffffffff;
                ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r1+512];
                add.s64 %d1, %x, %d0; st.global.v4.b32 [%d1], {{%r4, %r5, %r6, %r7}}; st.global.v4.b32 [%d1+512], {{%r8, %r9, %r10, %r11}};""",
                ("x", "y"),
            )
            out = np.zeros((2, 32, 8), np.uint16)
            run(text, out, data, shared=1024)
            for j in range(count):
                for lane in range(32):
                    row, column = lane // 4, 2 * (lane % 4)
                    want = data[j, column : column + 2, row] if trans else data[j, row, column : column + 2]
                    assert out[0, lane, 2 * j : 2 * j + 2].tolist() == want.tolist()
            assert np.array_equal(out[1].reshape(4, 8, 8)[:count], data[:count])


def test_movmatrix() -> None:
    text = kernel(
        "mul.wide.u32 %d0, %t, 4; add.s64 %x, %x, %d0; ld.global.b32 %r0, [%x]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0; st.global.b32 [%x], %r1;"
    )
    data = np.arange(64, dtype=np.uint16).reshape(8, 8)
    out = data.copy()
    run(text, out)
    assert np.array_equal(out, data.T)


# Memory


@pytest.mark.parametrize(
    ("type", "vector"),
    [("b8", 1), ("b16", 1), ("b32", 1), ("b64", 1), ("b16", 4), ("b32", 2), ("b32", 4), ("b64", 2), ("b8", 4)],
)
@pytest.mark.parametrize("space", ["global", "shared", "generic"])
def test_loads_and_stores(space: str, type: str, vector: int) -> None:
    size = int(type[1:]) // 8
    total = size * vector
    regs = {"b8": "%h", "b16": "%h", "b32": "%r", "b64": "%d"}[type]
    names = [f"{regs}{4 + k}" for k in range(vector)]
    braces = names[0] if vector == 1 else "{" + ", ".join(names) + "}"
    suffix = f".v{vector}.{type}" if vector > 1 else f".{type}"
    word = "" if space == "generic" else f".{space}"
    body = f"mul.wide.u32 %d0, %t, {total}; add.s64 %d1, %y, %d0; add.s64 %d2, %x, %d0;"
    if space == "shared":
        body += f"mul.lo.s32 %r1, %t, {total}; add.s32 %r1, %r1, %s; ld.global{suffix} {braces}, [%d1]; st.shared{suffix} [%r1], {braces}; ld.shared{suffix} {braces}, [%r1]; st.global{suffix} [%d2], {braces};"
    else:
        body += f"ld{word}{suffix} {braces}, [%d1]; st{word}{suffix} [%d2], {braces};"
    data = np.random.default_rng(0).integers(0, 256, 32 * total, np.uint8)
    out = np.zeros_like(data)
    run(kernel(body, ("x", "y")), out, data, shared=32 * total)
    assert np.array_equal(out, data)


def test_narrow_loads_extend() -> None:
    data = np.array([0x80, 0xFF, 0x7F, 0x01], np.uint8)
    out = np.zeros(4, np.uint32)
    run(
        kernel(
            "ld.global.u8 %r0, [%y]; ld.global.s8 %r1, [%y]; ld.global.u16 %r2, [%y]; ld.global.s16 %r3, [%y]; st.global.v4.b32 [%x], {%r0, %r1, %r2, %r3};",
            ("x", "y"),
        ),
        out,
        data,
        block=(1,),
    )
    assert out.tolist() == [0x80, 0xFFFFFF80, 0xFF80, 0xFFFFFF80]


def test_generic_addresses_of_several_spaces() -> None:
    """Half of the threads load from shared memory, half from global, by one instruction."""
    text = kernel(
        """.reg .b64 %ws; cvt.u64.u32 %ws, %s; cvta.shared.u64 %ws, %ws; st.shared.b32 [%s], %r31; mov.b32 %r1, 77; st.shared.b32 [%s], %r1; bar.sync 0;
        and.b32 %r1, %t, 1; setp.eq.s32 %p0, %r1, 0; selp.b64 %d1, %ws, %y, %p0; ld.b32 %r0, [%d1];"""
        + STORE,
        ("x", "y"),
    )
    out = np.zeros(32, np.uint32)
    run(text, out, np.array([55], np.uint32), shared=16)
    assert out.tolist() == [77, 55] * 16


def test_arrays_are_used_in_place_whatever_their_strides() -> None:
    base = np.zeros((8, 10), np.uint32)
    view = base[::2, 3::3]
    memory = Memory()
    address = memory.map_array(view)
    text = kernel(
        "mul.wide.u32 %d0, %t, 12; add.s64 %x, %x, %d0; st.global.b32 [%x], 5; add.s64 %x, %x, 80; st.global.b32 [%x], 6;".replace(
            "], 5", "], %r1"
        )
        .replace("], 6", "], %r2")
        .replace("mul", "mov.b32 %r1, 5; mov.b32 %r2, 6; mul", 1)
    )
    launch(text, block=(3,), params=[address], memory=memory)
    assert base[0, 3::3].tolist() == [5, 5, 5] and base[2, 3::3].tolist() == [6, 6, 6] and base.sum() == 33
    assert memory.map_array(base[0, 1:]) % 16 == 4


@pytest.mark.parametrize(
    ("operation", "type", "function"),
    [
        ("add", "u32", lambda old, v: old + v),
        ("max", "s32", lambda old, v: np.maximum(old.view(np.int32), v.view(np.int32)).view(np.uint32)),
        ("min", "u32", np.minimum),
        ("and", "b32", np.bitwise_and),
        ("or", "b32", np.bitwise_or),
        ("xor", "b32", np.bitwise_xor),
        ("exch", "b32", lambda old, v: v),
        ("inc", "u32", lambda old, v: np.where(old >= v, np.uint32(0), old + np.uint32(1))),
        ("dec", "u32", lambda old, v: np.where((old == 0) | (old > v), v, old - np.uint32(1))),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_take_turns(space: str, operation: str, type: str, function: Any) -> None:
    """Four counters, 64 threads: each finds what the one before it left."""
    where = "%d1" if space == "global" else "%r2"
    text = kernel(
        f"""and.b32 %r1, %t, 3; mul.lo.s32 %r2, %t, 7; add.s32 %r3, %r2, 3; mul.wide.u32 %d1, %r1, 4; add.s64 %d1, %d1, %y;
        shl.b32 %r2, %r1, 2; add.s32 %r2, %r2, %s; ld.global.b32 %r4, [%d1]; st.shared.b32 [%r2], %r4; bar.sync 0;
        atom.{space}.{operation}.{type} %r0, [{where}], %r3;"""
        + STORE,
        ("x", "y"),
    )
    out, memory = np.zeros(64, np.uint32), np.array([0, 5, 100, 0xFFFFFFFF], np.uint32)
    want_memory, want = memory.copy(), np.zeros(64, np.uint32)
    for t in range(64):
        slot = slice(t % 4, t % 4 + 1)
        want[t] = want_memory[slot][0]
        want_memory[slot] = function(want_memory[slot], np.array([7 * t + 3], np.uint32))
    run(text, out, memory, block=(64,), shared=16)
    assert np.array_equal(out, want)
    if space == "global":
        assert np.array_equal(memory, want_memory)


def test_compare_and_swap_builds_a_lock() -> None:
    """32 threads of 32 warps increment a counter, unprotected but for a spin lock."""
    text = kernel(
        """and.b32 %r1, %t, 31; setp.ne.s32 %p0, %r1, 0; @%p0 ret;
        $TRY: atom.shared.cas.b32 %r2, [%s], 0, 1; setp.ne.s32 %p1, %r2, 0; @%p1 bra $TRY;
        ld.global.b32 %r3, [%x]; add.s32 %r3, %r3, 1; st.global.b32 [%x], %r3; atom.shared.exch.b32 %r2, [%s], 0;"""
    )
    for seed in (None, 1):
        out = np.zeros(1, np.uint32)
        run(text, out, block=(1024,), shared=16, seed=seed)
        assert out.tolist() == [32]


def test_reductions_in_memory() -> None:
    import ml_dtypes

    text = kernel(
        "mov.b32 %r1, 0x3f803f80; red.global.add.noftz.bf16x2 [%x], %r1; mov.b32 %f0, 0f3F000000; red.global.add.f32 [%x+4], %f0; red.global.add.u32 [%x+8], 3;".replace(
            "], 3", "], %r2"
        ).replace("red.global.add.u32", "mov.b32 %r2, 3; red.global.add.u32")
    )
    out = np.zeros(3, np.uint32)
    run(text, out, block=(64,))
    assert out[:1].view(ml_dtypes.bfloat16).astype(float).tolist() == [64, 64]
    assert out[1:2].view(np.float32)[0] == 32 and out[2] == 192


# Barriers


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_barriers_order_a_block(seed: int | None) -> None:
    """Each of 8 rounds reads what the neighbour wrote in the round before."""
    text = kernel(
        """mov.b32 %r1, %t; mov.b32 %r5, 0; shl.b32 %r2, %t, 2; add.s32 %r2, %r2, %s; add.s32 %r3, %t, 32; and.b32 %r3, %r3, 127; shl.b32 %r3, %r3, 2; add.s32 %r3, %r3, %s;
        $L: st.shared.b32 [%r2], %r1; bar.sync 0; ld.shared.b32 %r4, [%r3]; bar.sync 0; mov.b32 %r1, %r4;
        add.s32 %r5, %r5, 1; setp.lt.s32 %p0, %r5, 9; @%p0 bra $L; mov.b32 %r0, %r1;"""
        + STORE
    )
    out = np.zeros(128, np.uint32)
    run(text, out, block=(128,), shared=512, seed=seed)
    assert out.tolist() == [(t + 9 * 32) % 128 for t in range(128)]


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_named_barriers_pass_a_token(seed: int | None) -> None:
    """Producer warps arrive, consumer warps sync; and the other way round. 16 items through one slot."""
    text = kernel(
        """mov.b32 %r5, 0; mov.b32 %r0, 0; setp.lt.u32 %p0, %t, 32; @%p0 bra $CONSUMER;
        $P: bar.sync 2, 64; mul.lo.s32 %r6, %r5, 3; st.shared.b32 [%s], %r6; bar.arrive 1, 64;
        add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 16; @%p1 bra $P; bra $END;
        $CONSUMER: bar.arrive 2, 64;
        $C: bar.sync 1, 64; ld.shared.b32 %r6, [%s]; add.s32 %r0, %r0, %r6;
        add.s32 %r5, %r5, 1; setp.ge.s32 %p1, %r5, 16; @%p1 bra $END; bar.arrive 2, 64; bra $C;
        $END:"""
        + STORE
    )
    out = np.zeros(64, np.uint32)
    run(text, out, block=(64,), shared=16, seed=seed)
    assert out[:32].tolist() == [3 * sum(range(16))] * 32


def test_lanes_arrive_one_by_one_at_an_unaligned_barrier() -> None:
    """barrier.sync in two branches of one warp; barrier.arrive by the other warp; then exit instead of ret."""
    out = per_thread(
        """setp.ge.u32 %p1, %t, 32; @%p1 bra $OTHER; setp.lt.u32 %p0, %t, 7; @%p0 bra $LOW;
        st.shared.b32 [%s], 31; barrier.sync 3, 64; ld.shared.b32 %r0, [%s+4]; bra $END;
        $LOW: st.shared.b32 [%s+4], 6; barrier.sync 3, 64; ld.shared.b32 %r0, [%s]; bra $END;
        $OTHER: barrier.arrive 3, 64; exit; $END:""",
        threads=64,
        shared=16,
    )
    assert out.tolist() == [31] * 7 + [6] * 25 + [0] * 32


def test_barrier_reductions() -> None:
    setup = "setp.lt.s32 %p0, %t, 40; "
    out = per_thread(setup + "bar.red.popc.u32 %r0, 0, %p0;", threads=64)
    assert out.tolist() == [40] * 64
    for kind, want in (("and", 0), ("or", 1)):
        out = per_thread(setup + f"bar.red.{kind}.pred %p1, 0, %p0; selp.b32 %r0, 1, 0, %p1;", threads=64)
        assert out.tolist() == [want] * 64


def test_exited_threads_do_not_hold_up_a_barrier() -> None:
    out = per_thread("setp.ge.u32 %p0, %t, 32; @%p0 ret; bar.sync 0; mov.b32 %r0, 1;", threads=64)
    assert out.tolist() == [1] * 32 + [0] * 32


def test_a_barrier_with_two_counts_is_an_error() -> None:
    text = kernel("setp.lt.u32 %p0, %t, 32; @%p0 bra $A; bar.sync 1, 64; bra $E; $A: bar.sync 1, 96; $E:")
    with pytest.raises(
        TeselaError,
        match="barrier 1 is entered with a count of (64 while others wait with 96|96 while others wait with 64)",
    ):
        run(text, np.zeros(1, np.uint32), block=(64,))


# Deadlocks and faults


def test_a_missing_arrival_is_a_deadlock() -> None:
    text = kernel(
        "setp.ne.s32 %p0, %t, 0; @%p0 bra $W; mbarrier.init.shared::cta.b64 [%s], 2; $W: bar.sync 0; mbarrier.arrive.shared::cta.b64 _, [%s+0];".replace(
            "[%s+0]", "[%s]"
        ).replace("mbarrier.arrive", "setp.eq.s32 %p1, %t, 5; @%p1 mbarrier.arrive")
        + " $L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%s], 0; @!%p2 bra $L;"
    )
    with pytest.raises(TeselaError) as raised:
        run(text, np.zeros(1, np.uint32), block=(64,), shared=16)
    message = str(raised.value)
    assert "deadlock: none of 64 threads can go on" in message
    assert (
        "block (0, 0, 0) threads 0-63: waiting on the mbarrier at shared address 0x400 of block (0, 0, 0) for the phase of parity 0; "
        "1 of 2 arrivals are missing" in message
    )


def test_a_barrier_that_some_never_reach_is_a_deadlock() -> None:
    text = kernel("setp.lt.u32 %p0, %t, 32; @%p0 bra $A; bar.sync 0; bra $E; $A: bar.sync 1; $E:")
    with pytest.raises(TeselaError) as raised:
        run(text, np.zeros(1, np.uint32), block=(64,))
    assert "threads 32-63: waiting at barrier 0, where 32 of 64 have arrived" in str(raised.value)
    assert "threads 0-31: waiting at barrier 1, where 32 of 64 have arrived" in str(raised.value)


def test_a_collective_that_some_lanes_never_reach_is_a_deadlock() -> None:
    text = kernel(
        "setp.lt.u32 %p0, %t, 8; @%p0 bra $A; shfl.sync.bfly.b32 %r0, %t, 1, 31, 0xffffffff; bra $E; $A: bar.sync 0; $E:"
    )
    with pytest.raises(TeselaError) as raised:
        run(text, np.zeros(1, np.uint32))
    assert "threads 8-31: waiting for the other threads of their warps (PTX line" in str(raised.value)


def test_polling_for_what_never_comes_is_a_deadlock() -> None:
    text = kernel("$L: ld.volatile.global.b32 %r0, [%x]; setp.eq.s32 %p0, %r0, 0; @%p0 bra $L;")
    with pytest.raises(TeselaError, match="polling in a loop"):
        run(text, np.zeros(1, np.uint32))


@pytest.mark.parametrize("seed", [None, 3])
def test_polling_lets_others_run(seed: int | None) -> None:
    """Block 0 waits through global memory for block 5; lane 0 of a warp waits for lane 9."""
    text = kernel(
        """mov.b32 %r1, %ctaid.x; setp.eq.s32 %p0, %r1, 5; @%p0 bra $SET; setp.ne.s32 %p0, %r1, 0; @%p0 ret;
        $L: ld.acquire.gpu.global.b32 %r0, [%x]; setp.eq.s32 %p1, %r0, 0; @%p1 bra $L; st.global.b32 [%x+4], %r0; ret;
        $SET: setp.eq.s32 %p2, %t, 9; @%p2 bra $ONE;
        $M: ld.volatile.shared.b32 %r2, [%s]; setp.eq.s32 %p1, %r2, 0; @%p1 bra $M; mov.b32 %r3, 17; st.release.gpu.global.b32 [%x], %r3; ret;
        $ONE: mov.b32 %r3, 1; st.volatile.shared.b32 [%s], %r3;"""
    )
    out = np.zeros(2, np.uint32)
    run(text, out, grid=(6,), shared=16, seed=seed)
    assert out.tolist() == [17, 17]


def located(body: str, params: tuple[str, ...] = ("x",)) -> str:
    """A kernel whose last statements come from line 42 of a source file."""
    text = kernel(body, params).replace(".extern .shared", '.file 1 "kernel.py"\n.extern .shared')
    return text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "ld.global.b32 %r0, [%d1];",
            "load of 4 bytes out of bounds at global address 0x{past:x}: 0 bytes past the end of array (8,)",
        ),
        ("st.global.b32 [%d1], %r0;", "store of 4 bytes out of bounds at global address"),
        ("ld.global.b32 %r0, [%d2];", "misaligned load of 4 bytes at global address"),
        (
            "st.shared.b32 [%r5], %r0;",
            "store of 4 bytes out of bounds at shared address 0x410: the kernel's shared memory is 0x400 to 0x410 (16 bytes)",
        ),
        ("ld.shared.v2.b32 {{%r0, %r1}}, [%s+4];", "misaligned load of 8 bytes at shared address 0x404"),
        ("ld.shared.b32 %r0, [%r31];", "load of 4 bytes out of bounds at shared address 0x0"),
        ("atom.global.add.u32 %r0, [%d1], %r0;", "atomic operation of 4 bytes out of bounds"),
        ("trap;", "trap"),
    ],
)
def test_faults_name_their_place(body: str, message: str) -> None:
    """PTX line, opcode, source location, block and thread. Thread 3 of block 2 is at fault."""
    body = body.replace("{{", "{").replace("}}", "}")
    text = located(
        f"""mov.b32 %r2, %ctaid.x; setp.ne.s32 %p0, %r2, 2; @%p0 ret; setp.ne.s32 %p1, %t, 3; @%p1 ret;
        add.s64 %d1, %x, 32; add.s64 %d2, %x, 1; add.s32 %r5, %s, 16;
        .loc 1 42 7
        {body}"""
    )
    memory = Memory()
    address = memory.map_array(np.zeros(8, np.uint32))
    with pytest.raises(TeselaError) as raised:
        launch(text, grid=(4,), block=(32,), params=[address], memory=memory, shared_bytes=16)
    diagnostic = raised.value.diagnostics[0]
    line = next(i for i, t in enumerate(text.split("\n"), 1) if body in t)
    assert message.format(past=address + 32) in diagnostic.message
    assert f"(PTX line {line}, '{body.split()[0].rstrip(';')}'), block (2, 0, 0) thread (3, 0, 0)" in diagnostic.message
    assert str(diagnostic.location) == "kernel.py:42:7"


def test_read_only_arrays() -> None:
    array = np.zeros(4, np.uint32)
    array.flags.writeable = False
    with pytest.raises(TeselaError, match=r"store to array \(4,\) of uint32, which is read-only"):
        run(kernel("st.global.b32 [%x], %r0;"), array)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": (2048,)}, "at most 1024"),
        ({"block": (256,)}, "allows at most 128 threads in a block, not 256"),
        ({"grid": (3,), "cluster": (2,)}, r"the grid \(3, 1, 1\) is not a multiple of the cluster \(2, 1, 1\)"),
        ({"shared_bytes": 300000}, "needs 300000 bytes of shared memory"),
        ({"params": []}, "takes 1 parameters, but 0 are given"),
        ({"params": [1 << 70]}, "which cannot hold"),
        ({"policy": "soon"}, "unknown policy 'soon'"),
        ({"entry": "other"}, "no kernel named 'other'; the program has k"),
        ({"grid": (1, 1, 1, 1)}, "must have one to three positive extents"),
    ],
)
def test_launches_are_checked(options: dict[str, Any], message: str) -> None:
    text = kernel("", attributes=".maxntid 128")
    with pytest.raises(TeselaError, match=message):
        launch(text, **{"params": [0], **options})


def test_an_empty_grid_runs_nothing() -> None:
    assert launch(kernel("trap;"), grid=(0,), block=(32,), params=[0]).blocks == 0


def test_results_count_what_ran_and_observers_see_it() -> None:
    class Recorder(Observer):
        def __init__(self) -> None:
            self.seen: list[tuple[str, str, int, int]] = []
            self.fences: list[str] = []

        def access(self, machine: Any, kind: str, space: str, addresses: Any, size: int, threads: Any, values: Any = None) -> None:
            self.seen.append((kind, space, size, len(threads)))

        def sync(self, machine: Any, instr: Any, threads: Any) -> None:
            self.fences.append(instr.opcode)

    recorder = Recorder()
    out = np.zeros(64, np.uint32)
    result = run(
        kernel(
            "ld.shared.b32 %r0, [%s]; fence.proxy.async.shared::cta; setp.lt.u32 %p0, %t, 8; @%p0 atom.global.add.u32 %r0, [%x], %t;"
        ),
        out,
        block=(64,),
        shared=16,
        observer=recorder,
    )
    assert ("load", "shared", 4, 64) in recorder.seen and ("atomic", "global", 4, 8) in recorder.seen
    assert recorder.fences == ["fence.proxy.async.shared::cta"]
    assert result.executed["atom.global.add.u32"] == 8 and result.executed["fence.proxy.async.shared::cta"] == 64
    assert result.blocks == 1 and result.thread_instructions > 64 * 5


@pytest.mark.parametrize("batch", [32, 96, 4096])
def test_batches_of_blocks_do_not_change_results(batch: int) -> None:
    text = kernel(
        "mov.b32 %r1, %ctaid.x; mov.b32 %r2, %ntid.x; mad.lo.s32 %r0, %r1, %r2, %t; mul.wide.u32 %d0, %r0, 4; add.s64 %x, %x, %d0; st.global.b32 [%x], %r0;"
    )
    out = np.zeros(17 * 32, np.uint32)
    run(text, out, grid=(17,), batch_threads=batch)
    assert np.array_equal(out, np.arange(17 * 32))


def test_programs_read_back_run_the_same() -> None:
    from tesela.dialects.ptx_text import print_program

    text = kernel("shl.b32 %r0, %t, 3;" + STORE)
    first, second = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    run(text, first)
    run(print_program(read_program(text)), second)
    assert np.array_equal(first, second) and first[5] == 40
