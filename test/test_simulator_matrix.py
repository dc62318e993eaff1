"""mma and wgmma in the simulator: fragments and descriptors as the ISA draws them, every type, and asynchrony."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from simulator_harness import kernel, run

from tesela.dialects.diagnostics import TeselaError

TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
RESULTS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def small(rng: np.random.Generator, shape: tuple[int, ...], type: str) -> Any:
    """Small integers, of which every sum of products is exact in every format here."""
    low = 0 if type == "u8" else -4
    return rng.integers(low, 5, shape).astype(TYPES[type])


# mma.sync. The fragments, element by element, as in the figures of PTX ISA 9.0 §9.7.14.5: (row, column) as text of g and q.

A16 = "g,2q g,2q+1 g+8,2q g+8,2q+1 g,2q+8 g,2q+9 g+8,2q+8 g+8,2q+9"
B16 = "2q,g 2q+1,g 2q+8,g 2q+9,g"
A8 = " ".join(f"{r},4q+{k}" for h in (0, 16) for r in ("g", "g+8") for k in range(h, h + 4))
B8 = " ".join(f"4q+{k},g" for k in (0, 1, 2, 3, 16, 17, 18, 19))
FRAGMENTS: dict[tuple[str, int], tuple[str, str]] = {
    ("16", 16): (A16, B16),
    ("16", 8): (A16[: A16.index(" g,2q+8")], B16[: B16.index(" 2q+8")]),
    ("32", 8): ("g,q g+8,q g,q+4 g+8,q+4", "q,g q+4,g"),
    ("32", 4): ("g,q g+8,q", "q,g"),
    ("8", 32): (A8, B8),
    ("8", 16): (A8[: A8.index(" g,4q+16")], B8[: B8.index(" 4q+16")]),
}
D = "g,2q g,2q+1 g+8,2q g+8,2q+1"


def index(text: str) -> Any:
    """An index such as 2q+9 for each of the 32 lanes."""
    lanes = np.arange(32)
    result = np.zeros(32, int)
    for term in text.split("+"):
        letter = {"g": lanes // 4, "q": lanes % 4}.get(term[-1])
        result += int(term) if letter is None else int(term[:-1] or 1) * letter
    return result


def places(text: str) -> list[tuple[Any, Any]]:
    """[(rows, columns)] per element, each an array over the 32 lanes."""
    return [tuple(index(part) for part in entry.split(",")) for entry in text.split()]  # type: ignore[misc]


def pack(matrix: Any, text: str) -> Any:
    """A matrix as registers [lanes, registers] of u32."""
    elements = np.stack([matrix[r, c] for r, c in places(text)], axis=1)
    return np.ascontiguousarray(elements).view(np.uint32)


def unpack(registers: Any, text: str, dtype: Any) -> Any:
    elements = np.ascontiguousarray(registers).view(dtype)
    out = np.zeros((16, 8), dtype)
    for k, (r, c) in enumerate(places(text)):
        out[r, c] = elements[:, k]
    return out


MMA = [
    ("m16n8k16", "f32", "bf16", "bf16"),
    ("m16n8k16", "f32", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k8", "f32", "f16", "f16"),
    ("m16n8k8", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "tf32", "tf32"),
    ("m16n8k4", "f32", "tf32", "tf32"),
    ("m16n8k32", "s32", "s8", "s8"),
    ("m16n8k32", "s32", "u8", "s8"),
    ("m16n8k16", "s32", "s8", "u8"),
    ("m16n8k32", "f32", "e4m3", "e5m2"),
]


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize(("shape", "d", "a", "b"), MMA)
def test_mma(shape: str, d: str, a: str, b: str, tiles: int) -> None:
    """One product and several in a row (fused by the decoder), with accumulators."""
    k = int(shape.partition("k")[2])
    width = str(8 * np.dtype(TYPES[a]).itemsize)
    text_a, text_b = FRAGMENTS[width, k]
    rng = np.random.default_rng(k)
    left, right = small(rng, (tiles, 16, k), a), small(rng, (tiles, k, 8), b)
    start = small(rng, (tiles, 16, 8), "s8").astype(RESULTS[d])
    na, nb = (
        len(text_a.split()) * np.dtype(TYPES[a]).itemsize // 4,
        len(text_b.split()) * np.dtype(TYPES[b]).itemsize // 4,
    )
    nd = 2 if d == "f16" else 4
    per = na + nb + nd
    data = np.concatenate(
        [
            np.concatenate([pack(left[i], text_a), pack(right[i], text_b), pack(start[i], D)], axis=1)
            for i in range(tiles)
        ],
        axis=1,
    )
    body = f"mul.wide.u32 %d0, %t, {4 * per * tiles}; add.s64 %x, %x, %d0;"
    body += "".join(f"ld.global.b32 %m{j}, [%x+{4 * j}];" for j in range(per * tiles))
    for i in range(tiles):
        names = [f"%m{per * i + j}" for j in range(per)]
        braces = ["{" + ", ".join(part) + "}" for part in (names[:na], names[na : na + nb], names[na + nb :])]
        body += f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d} {braces[2]}, {braces[0]}, {braces[1]}, {braces[2]};"
    body += "".join(f"st.global.b32 [%x+{4 * j}], %m{j};" for j in range(per * tiles))
    run(kernel(body, registers=f".reg .b32 %m<{per * tiles}>;"), data)
    for i in range(tiles):
        got = unpack(data[:, per * i + na + nb : per * (i + 1)], D, RESULTS[d])
        want = left[i].astype(np.float64) @ right[i].astype(np.float64) + start[i].astype(np.float64)
        assert np.array_equal(got.astype(np.float64), want)


def test_mma_rounds_and_saturates() -> None:
    """Wrapping and saturating s32, truncation of tf32, canonical NaN."""
    body = """mov.b32 %r4, 0x7f7f7f7f; mov.b32 %r5, 0x7ffffff0; mov.b32 %r6, %r5; mov.b32 %r7, %r5; mov.b32 %r8, %r5;
    mma.sync.aligned.m16n8k32.row.col.SATs32.s8.s8.s32 {%r0, %r1, %r2, %r3}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%r5, %r6, %r7, %r8};
    st.global.b32 [%x], %r0;"""
    out = np.zeros(1, np.int64)
    run(kernel(body.replace("SAT", "")), out)
    assert np.uint32(out[0]) == (0x7FFFFFF0 + 32 * 127 * 127) & 0xFFFFFFFF
    run(kernel(body.replace("SAT", "satfinite.")), out)
    assert out[0] == 0x7FFFFFFF
    tf32 = """mov.b32 %r4, 0x3F803FFF; mov.b32 %r5, 0; mov.b32 %r9, 0x3F800000; setp.lt.u32 %p0, %t, 32; mov.b32 %r6, 0;
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r0, %r1, %r2, %r3}, {%r4, %r4, %r4, %r4}, {%r9, %r9}, {%r5, %r5, %r5, %r5}; st.global.b32 [%x], %r0;"""
    single = np.zeros(1, np.float32)
    run(kernel(tf32), single)
    assert single[0] == 8 * (1 + 2.0**-10), "the low 13 bits of tf32 operands do not count"
    run(kernel(tf32.replace("0x3F803FFF", "0x7FC12345")), single)
    assert single.view(np.uint32)[0] == 0x7FFFFFFF


# wgmma. Operands are laid out in a shared-memory image from the definition of the canonical layouts, which the kernel copies in.


def image_k_major(matrix: Any, span: int) -> tuple[Any, int, int]:
    """(bytes, LBO, SBO) of an operand [rows, 32 bytes of K], K-major. Swizzled: rows of `span` bytes, the 16-byte chunk c of row r at
    c ^ pattern(r); else core matrices of 8 rows by 16 bytes, K neighbours 128 bytes apart and 8-row groups 256 bytes apart."""
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(len(matrix), 2, 16)
    rows = len(raw)
    if span == 0:
        image = raw.reshape(rows // 8, 8, 2, 16).transpose(0, 2, 1, 3).reshape(-1)
        return image, 128, 256
    image = np.zeros((rows, span // 16, 16), np.uint8)
    for r in range(rows):
        pattern = {128: r % 8, 64: r // 2 % 4, 32: r // 4 % 2}[span]
        for chunk in range(2):
            image[r, chunk ^ pattern] = raw[r, chunk]
    return image.reshape(-1), 16, 8 * span


def image_mn_major(matrix: Any, span: int) -> tuple[Any, int, int]:
    """(bytes, LBO, SBO) of an operand [mn, 16] of 16-bit elements, MN-major: spans of `span` bytes along MN, 16 rows of k each; without
    swizzle core matrices of 8 k by 8 mn."""
    mn = len(matrix)
    raw = np.ascontiguousarray(matrix.T).view(np.uint8).reshape(16, mn // 8, 16)  # [k, chunk of 8 mn, bytes]
    if span == 0:
        image = raw.reshape(2, 8, mn // 8, 16).transpose(2, 0, 1, 3).reshape(-1)  # 8-mn groups outside, then 8-k groups
        return image, 128, 256
    chunks = span // 16
    spans = -(-(mn // 8) // chunks)
    image = np.zeros((spans, 16, chunks, 16), np.uint8)
    for j in range(mn // 8):
        for k in range(16):
            pattern = {128: k % 8, 64: k // 2 % 4, 32: k // 4 % 2}[span]
            image[j // chunks, k, (j % chunks) ^ pattern] = raw[k, j]
    return image.reshape(-1), 16 * span, 8 * span


MODES = {0: 0, 128: 1, 64: 2, 32: 3}


def descriptor(offset: int, leading: int, stride: int, span: int) -> int:
    """The descriptor of an operand at an offset from the shared base, which lies at 0x400."""
    return (0x400 + offset) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[span] << 62


def accumulator_places(n: int) -> tuple[Any, Any]:
    """(rows, columns) [128, n/2]: D register i of thread t is row 16w+g+8((i/2)%2), column 8(i/4)+2q+i%2."""
    t, i = np.arange(128)[:, None], np.arange(n // 2)[None]
    return 16 * (t // 32) + t % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (t % 4) + i % 2


def read_accumulators(raw: Any, n: int, d: str) -> Any:
    rows, columns = accumulator_places(n)
    out = np.zeros((64, n), RESULTS[d])
    out[rows, columns] = np.ascontiguousarray(raw).view(RESULTS[d]).reshape(128, -1)
    return out


def wgmma_kernel(
    opcode: str, registers: int, operands: str, fragments: int = 0, extra: str = "", after: str = ""
) -> str:
    """Copies the image into shared memory, loads D and the A registers, runs one wgmma and stores D."""
    braces = "{" + ", ".join(f"%e{i}" for i in range(registers)) + "}"
    return kernel(
        f"""setp.ne.s32 %p0, %t, 0; @%p0 bra $FILL; mbarrier.init.shared::cta.b64 [%s+200000], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+200000], %size; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%y], %size, [%s+200000];
        $FILL: bar.sync 0;
        $W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s+200000], 0; @!%p1 bra $W;
        mul.wide.u32 %d0, %t, {4 * registers}; add.s64 %x, %x, %d0; mul.wide.u32 %d1, %t, 16; add.s64 %z, %z, %d1;
        {" ".join(f"ld.global.b32 %e{i}, [%x+{4 * i}];" for i in range(registers))}
        {" ".join(f"ld.global.b32 %a{i}, [%z+{4 * i}];" for i in range(fragments))}
        setp.eq.s32 %p2, 0, 0; wgmma.fence.sync.aligned;
        {opcode} {braces}, {operands}; {extra}
        wgmma.commit_group.sync.aligned; {after} wgmma.wait_group.sync.aligned 0;
        {" ".join(f"st.global.b32 [%x+{4 * i}], %e{i};" for i in range(registers))}""",
        ("x", "y", "z", "size:b32", "da", "db"),
        f".reg .b32 %e<{registers}>, %a<4>;",
    )


def run_wgmma(
    opcode: str, tail: str, a: Any, b: Any, d: Any, layouts: tuple[Any, Any], fragments: Any = None, **options: Any
) -> Any:
    """D as accumulators [128, registers] of u32. `layouts`: images of A (None: in registers) and B."""
    words = opcode.split(".")
    n = int(words[4][4:].partition("k")[0])
    registers = n // 4 if words[5] == "f16" else n // 2
    pieces: list[Any] = []
    descriptors = []
    at = 0
    for layout in layouts:
        if layout is None:
            descriptors.append(0)
            continue
        image, leading, stride, span = layout
        descriptors.append(descriptor(at, leading, stride, span))
        padded = -(-len(image) // 1024) * 1024
        pieces.append(np.pad(image, (0, padded - len(image))))
        at += padded
    image = np.concatenate(pieces)
    accumulators = np.ascontiguousarray(d)
    given = np.zeros((128, 4), np.uint32) if fragments is None else np.ascontiguousarray(fragments)
    operands = ("%da" if fragments is None else "{%a0, %a1, %a2, %a3}") + f", %db, {tail}"
    text = wgmma_kernel(opcode, registers, operands, 0 if fragments is None else 4)
    scalars = [len(image), *descriptors]
    run(text, accumulators, image, given, scalars=scalars, block=(128,), shared=200016, **options)
    return accumulators


def start_accumulators(rng: np.random.Generator, n: int, d: str) -> tuple[Any, Any]:
    """(matrix, registers [128, …] of u32)"""
    matrix = rng.integers(-8, 9, (64, n)).astype(RESULTS[d])
    rows, columns = accumulator_places(n)
    return matrix, np.ascontiguousarray(matrix[rows, columns]).view(np.uint32)


SS = [
    ("m64n8k16", "f32", "bf16", "bf16"),
    ("m64n64k16", "f32", "bf16", "bf16"),
    ("m64n256k16", "f32", "f16", "f16"),
    ("m64n24k16", "f16", "f16", "f16"),
    ("m64n16k8", "f32", "tf32", "tf32"),
    ("m64n40k32", "f32", "e4m3", "e5m2"),
    ("m64n32k32", "f16", "e5m2", "e5m2"),
    ("m64n48k32", "s32", "s8", "u8"),
]


@pytest.mark.parametrize("spans", [(0, 0), (32, 32), (64, 64), (128, 128), (128, 32)])
@pytest.mark.parametrize(("shape", "d", "a", "b"), SS)
def test_wgmma_from_shared_memory(shape: str, d: str, a: str, b: str, spans: tuple[int, int]) -> None:
    n, k = int(shape[4:].split("k")[0]), int(shape.split("k")[1])
    rng = np.random.default_rng(n)
    left, right = small(rng, (64, k), a), small(rng, (n, k), b)
    start, registers = start_accumulators(rng, n, d)
    layouts = tuple((*image_k_major(m, s), s) for m, s in zip((left, right), spans))
    tail = "%p2, 1, 1, 0, 0" if a in ("bf16", "f16") else "%p2" if d == "s32" else "%p2, 1, 1"
    got = run_wgmma(f"wgmma.mma_async.sync.aligned.{shape}.{d}.{a}.{b}", tail, left, right, registers, layouts)
    want = left.astype(np.float64) @ right.astype(np.float64).T + start.astype(np.float64)
    assert np.array_equal(read_accumulators(got, n, d).astype(np.float64), want)


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize(("n", "transposed"), [(64, (1, 1)), (128, (0, 1)), (32, (1, 0)), (256, (1, 1))])
def test_wgmma_of_transposed_operands(n: int, transposed: tuple[int, int], span: int) -> None:
    rng = np.random.default_rng(n + span)
    left, right = small(rng, (64, 16), "f16"), small(rng, (n, 16), "f16")
    start, registers = start_accumulators(rng, n, "f32")
    layouts = tuple(
        (*(image_mn_major if flag else image_k_major)(m, span), span) for m, flag in zip((left, right), transposed)
    )
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"
    got = run_wgmma(opcode, f"%p2, 1, 1, {transposed[0]}, {transposed[1]}", left, right, registers, layouts)
    want = left.astype(np.float64) @ right.astype(np.float64).T + start
    assert np.array_equal(read_accumulators(got, n, "f32"), want)


@pytest.mark.parametrize("tail", ["0, 1, 1, 0, 0", "1, -1, 1, 0, 0", "1, 1, -1, 0, 0", "1, -1, -1, 0, 0"])
def test_scales(tail: str) -> None:
    """scale-d 0 overwrites, whatever stands there; scale-a and scale-b negate."""
    rng = np.random.default_rng(1)
    left, right = small(rng, (64, 16), "bf16"), small(rng, (16, 16), "bf16")
    start, registers = start_accumulators(rng, 16, "f32")
    if tail[0] == "0":
        registers[:] = 0x7FC00000
    layouts = tuple((*image_k_major(m, 128), 128) for m in (left, right))
    got = run_wgmma("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16", tail, left, right, registers, layouts)
    sign = 1 if tail.count("-") % 2 == 0 else -1
    want = sign * (left.astype(np.float64) @ right.astype(np.float64).T) + (0 if tail[0] == "0" else start)
    assert np.array_equal(read_accumulators(got, 16, "f32"), want)


@pytest.mark.parametrize(("a", "k"), [("bf16", 16), ("f16", 16), ("tf32", 8), ("e4m3", 32), ("s8", 32)])
def test_wgmma_from_registers(a: str, k: int) -> None:
    """A fragments: 16 bits row 16w+g+8((e/2)%2), k 2q+e%2+8(e/4); 8 bits row … ((e/4)%2), k 4q+e%4+16(e/8); tf32 row … (e%2), k q+4(e/2)."""
    rng = np.random.default_rng(3)
    d = "s32" if a == "s8" else "f32"
    left, right = small(rng, (64, k), a), small(rng, (32, k), a)
    start, registers = start_accumulators(rng, 32, d)
    t = np.arange(128)[:, None]
    w, g, q = t // 32, t % 32 // 4, t % 4
    if k == 16:
        e = np.arange(8)[None]
        rows, ks = 16 * w + g + 8 * (e // 2 % 2), 2 * q + e % 2 + 8 * (e // 4)
    elif k == 32:
        e = np.arange(16)[None]
        rows, ks = 16 * w + g + 8 * (e // 4 % 2), 4 * q + e % 4 + 16 * (e // 8)
    else:
        e = np.arange(4)[None]
        rows, ks = 16 * w + g + 8 * (e % 2), q + 4 * (e // 2)
    fragments = np.ascontiguousarray(left[rows, ks]).view(np.uint32)
    tail = "%p2" if a == "s8" else "%p2, 1, 1, 0" if k == 16 else "%p2, 1, 1"
    got = run_wgmma(
        f"wgmma.mma_async.sync.aligned.m64n32k{k}.{d}.{a}.{a}", tail, None, right, registers, (None, (*image_k_major(right, 128), 128)), fragments
    )  # fmt: skip
    assert np.array_equal(read_accumulators(got, 32, d), left.astype(np.float64) @ right.astype(np.float64).T + start)


def late_and_early(after: str, observe: str, **options: Any) -> Any:
    """A product of ones (16 in every element) with `after` between commit and wait and `observe` storing what it likes to x[0..1]."""
    braces = "{" + ", ".join(f"%e{i}" for i in range(4)) + "}"
    text = kernel(
        f"""mov.b32 %r1, 0x3f803f80; shl.b32 %r2, %t, 4; add.s32 %r2, %r2, %s; st.shared.v4.b32 [%r2], {{%r1, %r1, %r1, %r1}}; st.shared.v4.b32 [%r2+2048], {{%r1, %r1, %r1, %r1}}; fence.proxy.async.shared::cta; bar.sync 0;
        {" ".join(f"mov.b32 %e{i}, 0f42C80000;" for i in range(4))}
        shr.u32 %r3, %s, 4; cvt.u64.u32 %da, %r3; or.b64 %da, %da, 0x0000001000080000; add.s64 %db, %da, 128;
        wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {braces}, %da, %db, 0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;
        {after} wgmma.wait_group.sync.aligned 0; {observe} bar.sync 0; st.global.v2.b32 [%x], {{%r4, %r5}};""",
        registers=".reg .b32 %e<4>; .reg .b64 %da, %db;",
    )
    out = np.zeros(2, np.float32)
    run(text, out, block=(128,), shared=8192, **options)
    return out.tolist()


def test_accumulators_are_written_late() -> None:
    after, observe = "mov.b32 %r4, %e0;", "mov.b32 %r5, %e0;"
    assert late_and_early(after, observe, policy="latest") == [100, 16]
    assert late_and_early(after, observe, policy="earliest") == [16, 16]


def test_operands_are_read_late() -> None:
    """Shared memory that is overwritten before the wait: the product sees the new values if it runs late."""
    after = "mov.b32 %r6, 0; bar.sync 0; st.shared.v4.b32 [%r2], {%r6, %r6, %r6, %r6}; bar.sync 0;"
    observe = "mov.b32 %r4, %e0; mov.b32 %r5, 0;"
    assert late_and_early(after, observe, policy="latest") == [0, 0]
    assert late_and_early(after, observe, policy="earliest") == [16, 0]


def test_descriptors_are_read_when_it_is_issued() -> None:
    observe = "mov.b32 %r4, %e0; mov.b32 %r5, 0;"
    assert late_and_early("mov.b64 %da, 0; mov.b64 %db, 0;", observe, policy="latest") == [16, 0]


@pytest.mark.parametrize(
    ("da", "message"),
    [
        (1 << 49 | 0x40, "base offset 1; the simulator takes only 0"),
        (0x3FFF, "the descriptor 0x0000000000003fff reaches shared addresses"),
    ],
)
def test_bad_descriptors(da: int, message: str) -> None:
    text = wgmma_kernel("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", 4, "%da, %db, 0, 1, 1, 0, 0")
    buffers = [np.zeros(4096, np.uint8) for _ in range(3)]
    with pytest.raises(TeselaError, match=message):
        run(text, *buffers, scalars=[4096, da, 0x40], block=(128,), shared=200016)


def test_half_a_warpgroup_is_a_deadlock() -> None:
    text = kernel(
        "setp.ge.u32 %p0, %t, 64; @%p0 bra $E; wgmma.commit_group.sync.aligned; bra $F; $E: bar.sync 1, 96; $F:"
    )
    with pytest.raises(TeselaError, match="threads 0-63: waiting for their whole warpgroups"):
        run(text, np.zeros(1, np.uint32), block=(128,))
