"""Asynchronous copies, mbarriers, tensor copies and clusters in the simulator, under every completion policy."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from simulator_harness import MapOf, kernel, run

from tesela.dialects.diagnostics import TeselaError

POLICIES = [{"policy": "latest"}, {"policy": "earliest"}, {"seed": 0}, {"seed": 1}]
WAIT = "$W{n}: mbarrier.try_wait.parity.shared::cta.b64 %p7, [{bar}], {parity}; @!%p7 bra $W{n};"
ONE_THREAD = "setp.ne.s32 %p6, %t, 0; @%p6 bra $END;"


def wait(bar: str, parity: int | str, n: int = 0) -> str:
    return WAIT.format(n=n, bar=bar, parity=parity)


# cp.async


@pytest.mark.parametrize("options", POLICIES)
@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_of_every_size(size: int, options: dict[str, Any]) -> None:
    text = kernel(
        f"""mul.wide.u32 %d0, %t, {size}; add.s64 %d1, %y, %d0; mul.lo.s32 %r1, %t, {size}; add.s32 %r1, %r1, %s;
        cp.async.{"cg" if size == 16 else "ca"}.shared.global [%r1], [%d1], {size}; cp.async.commit_group; cp.async.wait_group 0;
        add.s64 %x, %x, %d0; """
        + {
            4: "ld.shared.b32 %r2, [%r1]; st.global.b32 [%x], %r2;",
            8: "ld.shared.b64 %d2, [%r1]; st.global.b64 [%x], %d2;",
            16: "ld.shared.v2.b64 {%d2, %d3}, [%r1]; st.global.v2.b64 [%x], {%d2, %d3};",
        }[size],
        ("x", "y"),
    )
    data = np.random.default_rng(0).integers(0, 256, 32 * size, np.uint8)
    out = np.zeros_like(data)
    run(text, out, data, shared=1024, **options)
    assert np.array_equal(out, data)


def test_partial_copies_fill_with_zeros() -> None:
    """A source size below the copy's size, and the ignore-src predicate; nothing is read beyond."""
    text = kernel(
        """and.b32 %r2, %t, 15; mul.lo.s32 %r1, %t, 16; add.s32 %r1, %r1, %s; mov.b32 %r4, -1; st.shared.v4.b32 [%r1], {%r4, %r4, %r4, %r4};
        cp.async.cg.shared.global [%r1], [%y], 16, %r2; cp.async.wait_all; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];
        mul.wide.u32 %d0, %t, 16; add.s64 %x, %x, %d0; st.global.v4.b32 [%x], {%r4, %r5, %r6, %r7};
        setp.eq.s32 %p0, %t, 3; cp.async.ca.shared.global [%r1], [%y], 4, %p0; cp.async.wait_all; ld.shared.b32 %r4, [%r1]; st.global.b32 [%x+512], %r4;""",
        ("x", "y"),
    )
    data = np.arange(1, 17, dtype=np.uint8)
    out = np.zeros((64, 16), np.uint8)
    run(text, out, data, shared=512)
    for t in range(32):
        assert out[t].tolist() == [k if k <= t % 16 else 0 for k in range(1, 17)]
        assert out[32 + t, :4].tolist() == ([0] * 4 if t == 3 else [1, 2, 3, 4])


def observed_before_and_after(options: dict[str, Any]) -> list[int]:
    text = kernel(
        """mov.b32 %r1, 111; st.shared.b32 [%s], %r1; cp.async.ca.shared.global [%s], [%x+8], 4; cp.async.commit_group;
        ld.shared.b32 %r2, [%s]; cp.async.wait_group 0; ld.shared.b32 %r3, [%s]; st.global.v2.b32 [%x], {%r2, %r3};"""
    )
    out = np.array([0, 0, 222], np.uint32)
    run(text, out, block=(1,), shared=16, **options)
    return out[:2].tolist()


def test_reading_before_the_wait_gives_the_old_value_if_the_copy_is_late() -> None:
    assert observed_before_and_after({"policy": "latest"}) == [111, 222]
    assert observed_before_and_after({"policy": "earliest"}) == [222, 222]
    assert {tuple(observed_before_and_after({"seed": s})) for s in range(8)} <= {(111, 222), (222, 222)}


def test_wait_group_leaves_the_newest_groups() -> None:
    """Four groups; after `wait_group 1` the last one is still under way under 'latest'."""
    body = "mov.b32 %r1, 7; st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1};"
    body += "".join(
        f"cp.async.ca.shared.global [%s+{4 * k}], [%y+{4 * k}], 4; cp.async.commit_group;" for k in range(4)
    )
    body += "cp.async.wait_group 1; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%s]; st.global.v4.b32 [%x], {%r4, %r5, %r6, %r7};"
    out = np.zeros(4, np.uint32)
    run(kernel(body, ("x", "y")), out, np.arange(1, 5, dtype=np.uint32), block=(1,), shared=16)
    assert out.tolist() == [1, 2, 3, 7]


@pytest.mark.parametrize("noinc", [True, False])
@pytest.mark.parametrize("options", POLICIES)
def test_copies_arrive_at_an_mbarrier(noinc: bool, options: dict[str, Any]) -> None:
    """With .noinc the 32 arrivals count; without, they are neutral and thread 0's own arrival completes the phase."""
    count = 32 if noinc else 1
    text = kernel(
        f"""add.s32 %r1, %s, 512; setp.eq.s32 %p0, %t, 0; @%p0 mbarrier.init.shared::cta.b64 [%r1], {count}; bar.sync 0;
        shl.b32 %r2, %t, 2; add.s32 %r3, %r2, %s; cvt.u64.u32 %d0, %r2; add.s64 %d1, %y, %d0;
        cp.async.ca.shared.global [%r3], [%d1], 4; cp.async.mbarrier.arrive{".noinc" if noinc else ""}.shared::cta.b64 [%r1]; bar.sync 0;
        {"" if noinc else "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];"} {wait("%r1", 0)}
        xor.b32 %r3, %r2, 124; add.s32 %r3, %r3, %s; ld.shared.b32 %r4, [%r3]; add.s64 %x, %x, %d0; st.global.b32 [%x], %r4;""",
        ("x", "y"),
    )
    out, data = np.zeros(32, np.uint32), np.arange(100, 132, dtype=np.uint32)
    run(text, out, data, shared=1024, **options)
    assert np.array_equal(out, data[::-1])


# mbarriers


def test_mbarrier_phases() -> None:
    """A fresh barrier passes parity 1 only; two arrivals end a phase; states name the phase in which they were given."""
    tests = "mbarrier.test_wait.parity.shared::cta.b64 %p0, [%s], 0; selp.b32 %r1, 1, 0, %p0; mbarrier.test_wait.parity.shared::cta.b64 %p0, [%s], 1; selp.b32 %r2, 2, 0, %p0; or.b32 %r1, %r1, %r2;"
    body = "mbarrier.init.shared::cta.b64 [%s], 2;"
    for k in range(5):
        body += tests + f"st.global.b32 [%x+{4 * k}], %r1;"
        body += f"mbarrier.arrive.shared::cta.b64 %d{k}, [%s];"
    for k in range(5):
        body += f"mbarrier.test_wait.shared::cta.b64 %p0, [%s], %d{k}; selp.b32 %r1, 1, 0, %p0; st.global.b32 [%x+{20 + 4 * k}], %r1;"
    out = np.zeros(10, np.uint32)
    run(kernel(body), out, block=(1,), shared=16)
    assert out[:5].tolist() == [2, 2, 1, 1, 2]
    # Five arrivals: phases 0, 0, 1, 1 are over, phase 2 is not. States compare by parity, so only the last phases mean something.
    assert out[7:10].tolist() == [1, 1, 0]


def test_mbarrier_counts_bytes() -> None:
    body = f"""mbarrier.init.shared::cta.b64 [%s], 1; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], 16; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 32;
    mbarrier.test_wait.parity.shared::cta.b64 %p0, [%s], 0; selp.b32 %r1, 1, 0, %p0;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], 16; mbarrier.test_wait.parity.shared::cta.b64 %p0, [%s], 0; selp.b32 %r2, 1, 0, %p0;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], 32; {wait("%s", 0)} st.global.v2.b32 [%x], {{%r1, %r2}};"""
    out = np.full(2, 9, np.uint32)
    run(kernel(body), out, block=(1,), shared=16)
    assert out.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [%s];", "there is no mbarrier at shared address 0x400"),
        ("mbarrier.init.shared::cta.b64 [%s], 0;", "an mbarrier cannot expect 0 arrivals"),
        ("mbarrier.init.shared::cta.b64 [%s+4], 1;", "misaligned mbarrier access"),
        ("mbarrier.init.shared::cta.b64 [%s], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 16; mbarrier.arrive.shared::cta.b64 _, [%s];", "1 arrivals at the mbarrier at shared address 0x400, which expects 0 more"),
        ("mbarrier.init.shared::cta.b64 [%s], 1; mbarrier.inval.shared::cta.b64 [%s]; mbarrier.arrive.shared::cta.b64 _, [%s];", "there is no mbarrier"),
        ("mbarrier.init.shared::cta.b64 [%s], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 0x100000;", "transaction count"),
    ],
)  # fmt: skip
def test_mbarrier_faults(body: str, message: str) -> None:
    with pytest.raises(TeselaError, match=message):
        run(kernel(body), np.zeros(1, np.uint32), block=(1,), shared=16)


@pytest.mark.parametrize("options", POLICIES)
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_a_ring_of_buffers(trips: int, options: dict[str, Any]) -> None:
    """A producer warp fills a ring of three slots by bulk copies, two consumer warps sum them: full and empty barriers, phases."""
    text = kernel(
        f"""mov.b32 %r31, %n; setp.ne.s32 %p0, %t, 0; @%p0 bra $READY;
        mbarrier.init.shared::cta.b64 [%s], 1; mbarrier.init.shared::cta.b64 [%s+8], 1; mbarrier.init.shared::cta.b64 [%s+16], 1;
        mbarrier.init.shared::cta.b64 [%s+24], 64; mbarrier.init.shared::cta.b64 [%s+32], 64; mbarrier.init.shared::cta.b64 [%s+40], 64;
        fence.mbarrier_init.release.cluster;
        $READY: bar.sync 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r0, 0; setp.lt.u32 %p0, %t, 32; @%p0 bra $PRODUCER;
        sub.s32 %r10, %t, 32; shl.b32 %r10, %r10, 2; add.s32 %r10, %r10, %s;
        $CONSUME: setp.ge.s32 %p1, %r1, %r31; @%p1 bra $SUM; shl.b32 %r4, %r2, 3; add.s32 %r4, %r4, %s;
        {wait("%r4", "%r3", 1)} shl.b32 %r5, %r2, 8; add.s32 %r5, %r5, %r10; ld.shared.b32 %r6, [%r5+256]; add.s32 %r0, %r0, %r6;
        mbarrier.arrive.shared::cta.b64 _, [%r4+24];
        add.s32 %r1, %r1, 1; add.s32 %r2, %r2, 1; setp.eq.s32 %p1, %r2, 3; @%p1 xor.b32 %r3, %r3, 1; @%p1 mov.b32 %r2, 0; bra $CONSUME;
        $PRODUCER: @%p6 bra $END; setp.ne.s32 %p1, %t, 0; @%p1 bra $END;
        $PRODUCE: setp.ge.s32 %p1, %r1, %r31; @%p1 bra $END; shl.b32 %r4, %r2, 3; add.s32 %r4, %r4, %s; xor.b32 %r7, %r3, 1;
        {wait("%r4+24", "%r7", 2)} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256; shl.b32 %r5, %r2, 8; add.s32 %r5, %r5, %s; add.s32 %r5, %r5, 256;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r5], [%y], 256, [%r4]; add.s64 %y, %y, 256;
        add.s32 %r1, %r1, 1; add.s32 %r2, %r2, 1; setp.eq.s32 %p1, %r2, 3; @%p1 xor.b32 %r3, %r3, 1; @%p1 mov.b32 %r2, 0; bra $PRODUCE;
        $SUM: sub.s32 %r1, %t, 32; mul.wide.u32 %d0, %r1, 4; add.s64 %x, %x, %d0; st.global.b32 [%x], %r0;
        $END:""",
        ("x", "y", "n:b32"),
        "setp.ne.s32 %p6, 0, 0;",
    )
    data = np.random.default_rng(2).integers(0, 1000, (8, 64), np.uint32)
    out = np.zeros(64, np.uint32)
    run(text, out, data, scalars=[trips], block=(96,), shared=1024, **options)
    assert np.array_equal(out, data[:trips].sum(0))


# Bulk copies


@pytest.mark.parametrize("options", POLICIES)
def test_bulk_copies_there_and_back(options: dict[str, Any]) -> None:
    text = kernel(
        ONE_THREAD
        + f"""mbarrier.init.shared::cta.b64 [%s], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 64;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+16], [%y], 64, [%s]; {wait("%s", 0)}
        cp.async.bulk.global.shared::cta.bulk_group [%x], [%s+32], 48;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%x+48], [%s+16], 16;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        $END:""",
        ("x", "y"),
    )
    data = np.arange(16, dtype=np.float32)
    out = np.full(16, 0.5, np.float32)
    run(text, out, data, shared=256, **options)
    assert out.tolist() == [*range(4, 16), 0.5, 1.5, 2.5, 3.5]


def stored_after(read_wait: str, options: dict[str, Any]) -> int:
    """What a bulk store writes if its source is overwritten after the given wait."""
    text = kernel(
        f"""mov.b32 %r1, 1; mov.b32 %r2, 2; st.shared.v4.b32 [%s], {{%r1, %r1, %r1, %r1}}; fence.proxy.async.shared::cta;
        cp.async.bulk.global.shared::cta.bulk_group [%x], [%s], 16; cp.async.bulk.commit_group; {read_wait}
        st.shared.v4.b32 [%s], {{%r2, %r2, %r2, %r2}}; cp.async.bulk.wait_group 0;"""
    )
    out = np.zeros(4, np.uint32)
    run(text, out, block=(1,), shared=16, **options)
    return int(out[0])


def test_wait_group_read_frees_the_source() -> None:
    assert stored_after("cp.async.bulk.wait_group.read 0;", {"policy": "latest"}) == 1
    assert stored_after("", {"policy": "latest"}) == 2
    assert stored_after("", {"policy": "earliest"}) == 1


@pytest.mark.parametrize(("size", "offset"), [(8, 0), (16, 8)])
def test_bulk_copies_need_multiples_of_sixteen(size: int, offset: int) -> None:
    text = kernel(
        f"mov.b32 %r1, {size}; add.s64 %x, %x, {offset}; cp.async.bulk.global.shared::cta.bulk_group [%x], [%s], %r1;"
    )
    with pytest.raises(TeselaError, match="size and addresses must be multiples of 16"):
        run(text, np.zeros(16, np.uint32), block=(1,), shared=64)


def test_operations_left_at_the_end_complete() -> None:
    text = kernel(
        "mov.b32 %r1, 3; st.shared.v4.b32 [%s], {%r1, %r1, %r1, %r1}; cp.async.bulk.global.shared::cta.bulk_group [%x], [%s], 16;"
    )
    out = np.zeros(4, np.uint32)
    run(text, out, block=(1,), shared=16)
    assert out.tolist() == [3, 3, 3, 3]


# Tensor copies


def load_kernel(rank: int, nbytes: int) -> str:
    coords = ", ".join(f"%c{k}" for k in range(rank))
    return kernel(
        f"""{ONE_THREAD} mbarrier.init.shared::cta.b64 [%s], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], {nbytes};
        cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%s+1024], [%m, {{{coords}}}], [%s]; {wait("%s", 0)}
        cp.async.bulk.global.shared::cta.bulk_group [%x], [%s+1024], {nbytes}; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        $END:""",
        ("x", "m:map", *(f"c{k}:b32" for k in range(rank))),
    )


def load_box(
    array: Any, coords: tuple[int, ...], box: tuple[int, ...], options: dict[str, Any] | None = None, **kind: Any
) -> Any:
    """The bytes of a box in shared memory, as uint16."""
    source = MapOf(array, box, **kind)
    steps = source.steps or (1,) * len(box)
    shape = [box[0], *(-(-b // e) for b, e in zip(box[1:], steps[1:]))]
    nbytes = int(np.prod(shape)) * array.dtype.itemsize
    out = np.zeros(nbytes // 2, np.uint16)
    run(load_kernel(len(box), nbytes), out, source, scalars=coords, shared=1024 + nbytes, **(options or {}))
    return out


def expected_box(
    array: Any, coords: tuple[int, ...], box: tuple[int, ...], dims: tuple[int, ...], fill: int, steps: tuple[int, ...]
) -> Any:
    """The same from the definition: element by element, dense, innermost first."""
    extents = [box[0], *(-(-b // e) for b, e in zip(box[1:], steps[1:]))]
    result = []
    for place in itertools.product(*(range(e) for e in reversed(extents))):
        at = [c + p * (s if d else 1) for d, (c, p, s) in enumerate(zip(coords, place[::-1], steps))]
        inside = all(0 <= a < n for a, n in zip(at, dims))
        result.append(int(array[tuple(at[::-1])]) if inside else fill)
    return np.array(result, np.uint16)


@pytest.mark.parametrize(
    ("shape", "box", "coords"),
    [
        ((40,), (16,), (8,)),
        ((40,), (16,), (32,)),
        ((10, 24), (8, 4), (8, 3)),
        ((10, 24), (16, 8), (-8, -3)),
        ((10, 24), (16, 8), (16, 7)),
        ((10, 24), (8, 2), (24, 0)),
        ((10, 24), (8, 2), (0, 12)),
        ((3, 5, 16), (8, 4, 2), (8, 2, -1)),
        ((2, 3, 4, 8), (8, 3, 2, 2), (0, -1, 2, 1)),
        ((2, 2, 3, 3, 8), (8, 2, 2, 2, 1), (0, 1, 2, -1, 1)),
    ],
)
def test_tensor_loads(shape: tuple[int, ...], box: tuple[int, ...], coords: tuple[int, ...]) -> None:
    array = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint16).reshape(shape)
    got = load_box(array, coords, box)
    assert np.array_equal(got, expected_box(array, coords, box, shape[::-1], 0, (1,) * len(shape)))


@pytest.mark.parametrize("options", POLICIES)
@pytest.mark.parametrize("span", [32, 64, 128])
def test_swizzled_loads(span: int, options: dict[str, Any]) -> None:
    """16-byte chunk c of the row at byte b sits at c XOR the row-pattern bits: 128 B c^(r%8), 64 B c^(r/2%4), 32 B c^(r/4%2)."""
    columns = span // 2
    array = np.arange(24 * columns, dtype=np.uint16).reshape(24, columns)
    got = load_box(array, (0, 2), (columns, 16), options, swizzle=span).reshape(16, span // 16, 8)
    for row in range(16):
        pattern = {128: row % 8, 64: row // 2 % 4, 32: row // 4 % 2}[span]
        for chunk in range(span // 16):
            assert got[row, chunk ^ pattern].tolist() == array[2 + row, 8 * chunk : 8 * chunk + 8].tolist()


def test_fill_and_element_strides() -> None:
    array = np.arange(1, 241, dtype=np.uint16).reshape(10, 24)
    nan = load_box(array, (16, 8), (16, 4), fill="nan")
    assert np.array_equal(nan, expected_box(array, (16, 8), (16, 4), (24, 10), 0x7FF7, (1, 1)))
    steps = load_box(array, (8, -1), (8, 7), steps=(1, 2))
    assert np.array_equal(steps, expected_box(array, (8, -1), (8, 7), (24, 10), 0, (1, 2))) and len(steps) == 8 * 4
    wide = np.arange(32, dtype=np.float32).reshape(4, 8)
    filled = load_box(wide, (4, 0), (8, 1), dtype="f32", fill="nan").view(np.uint32)
    assert filled[:4].view(np.float32).tolist() == [4, 5, 6, 7] and filled[4:].tolist() == [0x7FF77FF7] * 4


def store_box(
    array: Any,
    coords: tuple[int, ...],
    box: tuple[int, ...],
    reduce: str = "",
    options: dict[str, Any] | None = None,
    **kind: Any,
) -> None:
    """Stores a box of 1000, 1001, … (uint16 or the map's type) to the array."""
    rank = len(box)
    count = int(np.prod(box))
    opcode = f"cp{'.reduce' if reduce else ''}.async.bulk.tensor.{rank}d.global.shared::cta.{reduce + '.' if reduce else ''}tile.bulk_group"
    coords_text = ", ".join(f"%c{k}" for k in range(rank))
    nbytes = count * array.dtype.itemsize
    text = kernel(
        f"""{ONE_THREAD} mbarrier.init.shared::cta.b64 [%s], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], {nbytes};
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+1024], [%x], {nbytes}, [%s]; {wait("%s", 0)}
        {opcode} [%m, {{{coords_text}}}], [%s+1024]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        $END:""",
        ("x", "m:map", *(f"c{k}:b32" for k in range(rank))),
    )
    source = np.arange(1000, 1000 + count).astype(array.dtype)
    run(text, source, MapOf(array, box, **kind), scalars=coords, shared=1024 + nbytes, **(options or {}))


@pytest.mark.parametrize("options", POLICIES)
def test_stores_are_clipped(options: dict[str, Any]) -> None:
    array = np.zeros((6, 32), np.uint16)
    store_box(array, (16, 4), (16, 4), options=options)
    want = np.zeros_like(array)
    want[4:, 16:] = np.arange(1000, 1064).reshape(4, 16)[:2]
    assert np.array_equal(array, want)
    store_box(array, (40, 0), (16, 4))
    store_box(array, (0, 9), (16, 4))
    assert np.array_equal(array, want), "starts past the end write nothing"


def test_a_store_writes_whole_units_of_sixteen_bytes() -> None:
    """67 columns in rows of 72: columns 67 to 71 of the rows are overwritten, as on the hardware."""
    array = np.zeros((4, 72), np.uint16)
    store_box(array, (64, 1), (16, 2), dims=(67, 4))
    assert np.count_nonzero(array[1]) == 8 and array[1, 64:].tolist() == list(range(1000, 1008))
    assert np.count_nonzero(array[0]) == np.count_nonzero(array[3]) == 0


def test_tensor_reductions() -> None:
    array = np.full((4, 8), 0.5, np.float32)
    store_box(array, (4, 1), (4, 2), "add", dtype="f32")
    want = np.full((4, 8), 0.5, np.float32)
    want[1:3, 4:] += np.arange(1000, 1008, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(array, want)
    half = np.full((2, 8), 1.5, ml_dtypes.bfloat16)
    store_box(half, (0, 0), (8, 2), "add")
    source = np.arange(1000, 1016).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(half.reshape(-1), (source + np.float32(1.5)).astype(ml_dtypes.bfloat16))


def test_illegal_boxes_are_faults() -> None:
    array = np.zeros((8, 32), np.uint16)
    with pytest.raises(
        TeselaError, match="the innermost coordinate 3 is 6 bytes into a row, which is not a multiple of 16"
    ):
        load_box(array, (3, 0), (8, 1))
    with pytest.raises(TeselaError, match=r"a tensor store at coordinates \(0, -1\): negative starts"):
        store_box(array, (0, -1), (8, 2))
    with pytest.raises(TeselaError, match="which is not a multiple of 128"):
        run_misplaced(array)
    with pytest.raises(TeselaError, match="strides .* must be multiples of 16 bytes"):
        load_box(np.zeros((4, 7), np.uint16), (0, 0), (8, 1))
    with pytest.raises(TeselaError, match="more than the swizzle span of 64"):
        load_box(array, (0, 0), (40, 1), swizzle=64)


def run_misplaced(array: Any) -> None:
    text = load_kernel(2, 16).replace("[%s+1024], [%m", "[%s+1040], [%m")
    run(text, np.zeros(8, np.uint16), MapOf(array, (8, 1)), scalars=(0, 0), shared=2048)


def test_wrong_byte_counts_hang() -> None:
    text = load_kernel(2, 32)  # the box has 16 bytes
    with pytest.raises(TeselaError, match="0 of 1 arrivals are missing and 16 bytes outstanding"):
        run(text, np.zeros(16, np.uint16), MapOf(np.zeros((8, 32), np.uint16), (8, 1)), scalars=(0, 0), shared=2048)


def test_maps_are_edited_in_the_kernel() -> None:
    """A copy of a map in shared memory gets another address, extent and stride, and is published to global memory."""
    text = kernel(
        f"""shl.b32 %r1, %t, 2; cvt.u64.u32 %d0, %r1; add.s64 %d1, %m, %d0; ld.b32 %r2, [%d1]; add.s32 %r3, %s, %r1; st.shared.b32 [%r3], %r2; bar.warp.sync 0xffffffff;
        elect.sync _|%p0, 0xffffffff; @!%p0 bra $FILLED; mov.b32 %r4, 3; mov.b64 %d3, 64;
        tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%s], %y;
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%s], 1, %r4;
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%s], 0, %d3;
        $FILLED: bar.warp.sync 0xffffffff;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%z], [%s], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%z], 128; @!%p0 bra $END;
        mbarrier.init.shared::cta.b64 [%s+512], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+512], 64; mov.b32 %r5, 0;
        cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%s+1024], [%z, {{%r5, %r5}}], [%s+512]; {wait("%s+512", 0)}
        cp.async.bulk.global.shared::cta.bulk_group [%x], [%s+1024], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        $END:""",
        ("x", "y", "z", "m:map"),
    )
    out, other = np.zeros((4, 8), np.uint16), np.arange(128, dtype=np.uint16).reshape(4, 32)
    slot = np.zeros(128, np.uint8)
    run(text, out, other, slot, MapOf(np.zeros((9, 16), np.uint16), (8, 4)), shared=2048)
    want = other[:, :8].copy()
    want[3] = 0  # the new extent is 3
    assert np.array_equal(out, want) and slot.any()


# Clusters

CLUSTER = ".reqnctapercluster 2, 1, 1"


@pytest.mark.parametrize("options", POLICIES)
def test_blocks_of_a_cluster_exchange_through_shared_memory(options: dict[str, Any]) -> None:
    text = kernel(
        """mov.b32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; mov.b32 %r3, %clusterid.x; shl.b32 %r4, %t, 2; add.s32 %r4, %r4, %s; mapa.shared::cluster.u32 %r5, %r4, %r2;
        mul.lo.s32 %r6, %r1, 100; add.s32 %r6, %r6, %t; st.shared.b32 [%r4], %r6; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        ld.shared::cluster.b32 %r7, [%r5]; add.s32 %r8, %r7, 1000; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        st.shared::cluster.b32 [%r5], %r8; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ld.shared.b32 %r0, [%r4];
        mov.b32 %r9, %ctaid.x; mov.b32 %r10, %ntid.x; mad.lo.s32 %r9, %r9, %r10, %t; mul.wide.u32 %d0, %r9, 4; add.s64 %x, %x, %d0; st.global.b32 [%x], %r0;""",
        attributes=CLUSTER,
    )
    out = np.zeros((6, 64), np.uint32)
    run(text, out, grid=(6,), block=(64,), shared=256, **options)
    rank = np.arange(6)[:, None] % 2
    assert np.array_equal(out, 1000 + 100 * rank + np.arange(64))


@pytest.mark.parametrize("options", POLICIES)
def test_remote_arrivals_and_async_stores(options: dict[str, Any]) -> None:
    text = kernel(
        f"""mov.b32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; mapa.shared::cluster.u32 %r3, %s, %r2; setp.ne.s32 %p0, %t, 0; @%p0 bra $R;
        mbarrier.init.shared::cta.b64 [%s], 2; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 8;
        $R: barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned; @%p0 bra $W;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3]; add.s32 %r4, %r1, 40; add.s32 %r5, %r1, 50;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3+64], %r4, [%r3]; st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3+68], %r5, [%r3];
        $W: {wait("%s", 0)} ld.shared.v2.b32 {{%r6, %r7}}, [%s+64]; mul.wide.u32 %d0, %r1, 8; add.s64 %x, %x, %d0; st.global.v2.b32 [%x], {{%r6, %r7}};
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;""",
        attributes=CLUSTER,
    )
    out = np.zeros((2, 2), np.uint32)
    run(text, out, grid=(2,), block=(32,), shared=256, **options)
    assert out.tolist() == [[41, 51], [40, 50]]


@pytest.mark.parametrize("options", POLICIES)
def test_multicast_writes_and_signals_every_block(options: dict[str, Any]) -> None:
    """Block 0 loads one box for both; each block waits on its own barrier. Also a bulk copy into the peer's shared memory."""
    text = kernel(
        f"""mov.b32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; setp.ne.s32 %p0, %t, 0; @%p0 bra $R; mbarrier.init.shared::cta.b64 [%s], 1; mbarrier.init.shared::cta.b64 [%s+8], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 64; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+8], 16;
        $R: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @%p0 bra $W; mov.b16 %h0, 3; mov.b32 %r3, 8; mov.b32 %r4, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra $P;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%s+1024], [%m, {{%r3, %r4}}], [%s], %h0;
        $P: {wait("%s", 0, 1)} mapa.shared::cluster.u32 %r5, %s, %r2; mov.b32 %r6, 16;
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5+2048], [%s+1024], %r6, [%r5+8];
        $W: {wait("%s", 0, 2)} {wait("%s+8", 0, 3)} setp.gt.u32 %p2, %t, 15; @%p2 bra $END; shl.b32 %r7, %t, 2; add.s32 %r7, %r7, %s; ld.shared.b32 %r8, [%r7+1024]; mul.wide.u32 %d0, %t, 4; mul.wide.u32 %d1, %r1, 128; add.s64 %x, %x, %d0; add.s64 %x, %x, %d1; st.global.b32 [%x], %r8;
        setp.gt.u32 %p2, %t, 3; @%p2 bra $END; ld.shared.b32 %r8, [%r7+2048]; st.global.b32 [%x+64], %r8;
        $END: barrier.cluster.arrive; barrier.cluster.wait;""",
        ("x", "m:map"),
        attributes=CLUSTER,
    )
    array = np.arange(6 * 24, dtype=np.uint16).reshape(6, 24)
    out = np.zeros((2, 2, 32), np.uint16)
    run(text, out, MapOf(array, (8, 4)), grid=(2,), shared=4096, **options)
    for rank in range(2):
        assert np.array_equal(out[rank, 0].reshape(4, 8), array[1:5, 8:16])
        assert out[rank, 1, :8].tolist() == array[1, 8:16].tolist()


def test_another_block_needs_the_cluster_space() -> None:
    text = kernel("mapa.shared::cluster.u32 %r1, %s, 1; ld.shared.b32 %r0, [%r1];", attributes=CLUSTER)
    with pytest.raises(TeselaError, match="load at a shared address of another block of the cluster") as raised:
        run(text, np.zeros(1, np.uint32), grid=(2,), shared=16)
    assert "use the state space shared::cluster" in str(raised.value)
    text = kernel("mapa.shared::cluster.u32 %r1, %s, 5; ld.shared::cluster.b32 %r0, [%r1];", attributes=CLUSTER)
    with pytest.raises(TeselaError, match="block 5 of the cluster, which has 2"):
        run(text, np.zeros(1, np.uint32), grid=(2,), shared=16)


def test_a_block_that_never_arrives_holds_up_its_cluster() -> None:
    text = kernel(
        "mov.b32 %r1, %cluster_ctarank; setp.eq.s32 %p0, %r1, 0; @%p0 bra $A; bar.sync 1, 64; $A: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        attributes=CLUSTER,
    )
    with pytest.raises(TeselaError) as raised:
        run(text, np.zeros(1, np.uint32), grid=(2,))
    assert "waiting at the cluster barrier, where 32 threads have not arrived" in str(raised.value)


def test_hints_do_nothing() -> None:
    text = kernel(
        """griddepcontrol.wait; setmaxnreg.inc.sync.aligned.u32 240; createpolicy.fractional.L2::evict_first.b64 %d1, 1.0; prefetch.tensormap [%m];
        mov.b32 %r2, 0; cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%m, {%r2, %r2}]; fence.proxy.async; fence.acq_rel.gpu; membar.gl; nanosleep.u32 20; griddepcontrol.launch_dependents; mov.b32 %r1, 4; st.global.b32 [%x], %r1;""",
        ("x", "m:map"),
    )
    out = np.zeros(1, np.uint32)
    run(text, out, MapOf(np.zeros((4, 8), np.uint16), (8, 1)), block=(128,))
    assert out[0] == 4


@pytest.mark.parametrize("count", [0, 20, 36, 264])
def test_register_counts_are_checked(count: int) -> None:
    with pytest.raises(TeselaError, match="a multiple of 8 from 24 to 256"):
        run(kernel(f"setmaxnreg.dec.sync.aligned.u32 {count};"), np.zeros(1, np.uint32))
