"""The block interpreter at the async level: first in first out, and every misuse is an error."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.dialects.verify import verify_module
from tesela.simulator.blocks import run_kernel

BF16 = ml_dtypes.bfloat16
CH, BUF, ARR, TILE = "!async.channel<4xi32>", "!async.buffer<4xi32>", "memref<?xi32>", "tensor<4xi32>"


def run_body(body: str, x: np.ndarray | None = None) -> np.ndarray:
    """`body` sees %x, %y (arrays), %i0, %i4, %i8, %i12 (indices) and %v (a tile of 7); gives y."""
    module = parse_module(f"""
tile.kernel @k(%x: {ARR} [N], %y: {ARR} [N]) dims(%N = N) grid(%i = 1) {{
  %i0 = arith.constant 0 : index
  %i4 = arith.constant 4 : index
  %i8 = arith.constant 8 : index
  %i12 = arith.constant 12 : index
  %c7 = arith.constant 7 : i32
  %v = tile.full %c7 : i32 -> {TILE}
{body}
}}""")
    verify_module(module)
    x = np.arange(16, dtype=np.int32) if x is None else x
    y = np.full(len(x), -1, np.int32)
    run_kernel(module, {"x": x, "y": y})
    return y


def channel(depth: int) -> str:
    return f"%ch = async.channel depth {depth} : {CH}\n"


def put(at: str) -> str:
    return f"async.put %ch, %x[{at}] : {CH}, {ARR}\n"


def get(name: str) -> str:
    return f"{name} = async.get %ch : {CH} -> {BUF}\n"


def read_to(buffer: str, at: str) -> str:
    name = f"%r{buffer[1:]}{at[1:]}"
    return f"{name} = async.read {buffer} : {BUF} -> {TILE}\ntile.store {name}, %y[{at}] : {TILE}, {ARR}\n"


RELEASE = f"async.release %ch : {CH}\n"
WRITE = f"async.write %ch, %v : {CH}, {TILE}\n"


def test_a_channel_is_first_in_first_out():
    body = channel(2) + put("%i4") + put("%i0") + get("%a") + get("%b") + read_to("%a", "%i0") + read_to("%b", "%i4")
    assert run_body(body + RELEASE + RELEASE).tolist() == [4, 5, 6, 7, 0, 1, 2, 3] + [-1] * 8


def test_a_ring_is_used_again_and_fills_zeros_past_the_edge():
    body = channel(1)
    for name, source, target in [("%a", "%i0", "%i8"), ("%b", "%i12", "%i0"), ("%c", "%i4", "%i4")]:
        body += put(source) + get(name) + read_to(name, target) + RELEASE
    found = run_body(body, np.arange(14, dtype=np.int32))
    assert found.tolist() == [12, 13, 0, 0, 4, 5, 6, 7, 0, 1, 2, 3, -1, -1]


def test_writes_from_registers_keep_their_place_in_the_queue():
    body = (
        channel(2)
        + WRITE
        + put("%i0")
        + get("%a")
        + read_to("%a", "%i0")
        + RELEASE
        + get("%b")
        + read_to("%b", "%i4")
        + RELEASE
    )
    assert run_body(body).tolist()[:8] == [7, 7, 7, 7, 0, 1, 2, 3]


@pytest.mark.parametrize("trips", [0, 1, 2, 4])
def test_a_pipelined_loop(trips):
    body = (
        channel(2)
        + """
  %more = tile.cmp sgt %N, %i0 : index -> i1
  scf.if %more {
    async.put %ch, %x[%i0] : !async.channel<4xi32>, memref<?xi32>
  }
  scf.for %k = %i0 to %N step %i4 {
    %next = arith.addi %k, %i4 : index
    %another = tile.cmp slt %next, %N : index -> i1
    scf.if %another {
      async.put %ch, %x[%next] : !async.channel<4xi32>, memref<?xi32>
    }
    %b = async.get %ch : !async.channel<4xi32> -> !async.buffer<4xi32>
    %t = async.read %b : !async.buffer<4xi32> -> tensor<4xi32>
    async.release %ch : !async.channel<4xi32>
    %u = arith.addi %t, %t : tensor<4xi32>
    tile.store %u, %y[%k] : tensor<4xi32>, memref<?xi32>
  }
"""
    )
    x = np.arange(4 * trips, dtype=np.int32)
    assert run_body(body, x).tolist() == (2 * x).tolist()


@pytest.mark.parametrize(
    "body, message",
    [
        (get("%a"), "the channel is empty"),
        (put("%i0") + get("%a") + get("%b"), "the channel is empty"),
        (put("%i0") + put("%i0"), "the channel is full: of its 1 slots 1 are filled and 0 got but not released"),
        (
            put("%i0") + get("%a") + put("%i4"),
            "the channel is full: of its 1 slots 0 are filled and 1 got but not released",
        ),
        (WRITE + WRITE, "the channel is full"),
        (RELEASE, "no slot of the channel was got and not yet released"),
        (put("%i0") + RELEASE, "no slot of the channel was got"),
        (put("%i0") + get("%a") + RELEASE + RELEASE, "no slot of the channel was got"),
        (put("%i0") + get("%a") + RELEASE + read_to("%a", "%i0"), "the buffer is read after its slot was released"),
        (put("%i0"), "1 slots of the channel were filled and never got"),
        (put("%i0") + get("%a"), "1 slots of the channel were got and never released"),
        (
            put("%i0") + f"tile.store %v, %x[%i0] : {TILE}, {ARR}\n" + get("%a") + RELEASE,
            "the array changed between the put that filled this slot and this get",
        ),
    ],
)
def test_misuse_of_a_channel(body, message):
    with pytest.raises(TeselaError, match=r"^<string>:\d+:\d+: error: " + message):
        run_body(channel(1) + body)


def test_a_store_elsewhere_does_not_disturb_a_put():
    body = (
        channel(1)
        + put("%i0")
        + f"tile.store %v, %x[%i8] : {TILE}, {ARR}\n"
        + get("%a")
        + read_to("%a", "%i0")
        + RELEASE
    )
    assert run_body(body).tolist()[:4] == [0, 1, 2, 3]


def test_a_channel_made_anew_in_a_loop_must_be_drained():
    body = f"""
  scf.for %k = %i0 to %i8 step %i4 {{
    %ch = async.channel depth 1 : {CH}
    async.put %ch, %x[%k] : {CH}, {ARR}
  }}
"""
    with pytest.raises(TeselaError, match="were filled and never got"):
        run_body(body)


DOT = """
tile.kernel @gemm(%A: memref<?x?xbf16, strided<[?, 1]>> [M, K], %B: memref<?x?xbf16, strided<[?, 1]>> [N, K],
                  %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) dims(%K = K) grid(%i = M ceildiv 8, %j = N ceildiv 8) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %m = arith.muli %i, %c8 : index
  %n = arith.muli %j, %c8 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<8x8xf32>
  %ca = async.channel depth 1 : !async.channel<8x16xbf16>
  %cb = async.channel depth 1 : !async.channel<8x16xbf16>
  %acc = scf.for %k = %c0 to %K step %c16 iter_args(%c = %zero) -> (tensor<8x8xf32>) {
    async.put %ca, %A[%m, %k] : !async.channel<8x16xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    async.put %cb, %B[%n, %k] : !async.channel<8x16xbf16>, memref<?x?xbf16, strided<[?, 1]>>
    %a = async.get %ca : !async.channel<8x16xbf16> -> !async.buffer<8x16xbf16>
    %b = async.get %cb : !async.channel<8x16xbf16> -> !async.buffer<8x16xbf16>
    %bt = async.transpose %b [1, 0] : !async.buffer<8x16xbf16> -> !async.buffer<16x8xbf16>
    %p, %read = async.dot %a, %bt, %c : !async.buffer<8x16xbf16>, !async.buffer<16x8xbf16>, tensor<8x8xf32>
    END
    scf.yield %d : tensor<8x8xf32>
  }
  tile.store %acc, %C[%m, %n] : tensor<8x8xf32>, memref<?x?xf32, strided<[?, 1]>>
}"""
AWAIT = "%d = async.await %p : !async.pending<tensor<8x8xf32>>\n"
RELEASE_A, RELEASE_B = (f"async.release %{c} : !async.channel<8x16xbf16>\n" for c in ("ca", "cb"))
AFTER_A, AFTER_B = (f"async.release %{c} after %read : !async.channel<8x16xbf16>\n" for c in ("ca", "cb"))


def run_dot(end: str, k: int = 40) -> tuple[np.ndarray, np.ndarray]:
    module = parse_module(DOT.replace("END", end))
    verify_module(module)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (12, k)).astype(BF16), rng.integers(-8, 8, (9, k)).astype(BF16)
    c = np.full((12, 9), np.nan, np.float32)
    run_kernel(module, {"A": a, "B": b, "C": c})
    return c, a.astype(float) @ b.astype(float).T


@pytest.mark.parametrize(
    "end",
    [
        AWAIT + RELEASE_A + RELEASE_B,
        AFTER_A + AFTER_B + AWAIT,
        AFTER_A + RELEASE_B + AWAIT,
        AWAIT + AFTER_B + RELEASE_A,
    ],
)
@pytest.mark.parametrize("k", [0, 1, 16, 40])
def test_asynchronous_dots(end, k):
    found, wanted = run_dot(end, k)
    assert found.tolist() == wanted.tolist()  # small integers: exact


@pytest.mark.parametrize("end", [RELEASE_A + AFTER_B + AWAIT, RELEASE_B + AWAIT + RELEASE_A])
def test_a_buffer_released_under_a_running_dot(end):
    with pytest.raises(TeselaError, match="released while an asynchronous dot may still read it"):
        run_dot(end)


def test_a_pending_tile_carried_round_a_loop():
    # Each trip awaits the dot of the trip before and releases its slots after that dot's token.
    text = """
tile.kernel @k(%A: memref<?x?xf16, strided<[?, 1]>> [M, K], %B: memref<?x?xf16, strided<[?, 1]>> [K, N],
               %C: memref<?x?xf32, strided<[?, 1]>> [M, N]) dims(%K = K) grid(%i = 1) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %f0 = arith.constant 0.0 : f32
  %zero = tile.full %f0 : f32 -> tensor<8x8xf32>
  %ca = async.channel depth 2 : !async.channel<8x8xf16>
  %cb = async.channel depth 2 : !async.channel<8x8xf16>
  async.put %ca, %A[%c0, %c0] : !async.channel<8x8xf16>, memref<?x?xf16, strided<[?, 1]>>
  async.put %cb, %B[%c0, %c0] : !async.channel<8x8xf16>, memref<?x?xf16, strided<[?, 1]>>
  %a0 = async.get %ca : !async.channel<8x8xf16> -> !async.buffer<8x8xf16>
  %b0 = async.get %cb : !async.channel<8x8xf16> -> !async.buffer<8x8xf16>
  %p0, %t0 = async.dot %a0, %b0, %zero : !async.buffer<8x8xf16>, !async.buffer<8x8xf16>, tensor<8x8xf32>
  %p, %t = scf.for %k = %c8 to %K step %c8 iter_args(%q = %p0, %u = %t0) -> (!async.pending<tensor<8x8xf32>>, !async.token) {
    async.put %ca, %A[%c0, %k] : !async.channel<8x8xf16>, memref<?x?xf16, strided<[?, 1]>>
    async.put %cb, %B[%k, %c0] : !async.channel<8x8xf16>, memref<?x?xf16, strided<[?, 1]>>
    %a = async.get %ca : !async.channel<8x8xf16> -> !async.buffer<8x8xf16>
    %b = async.get %cb : !async.channel<8x8xf16> -> !async.buffer<8x8xf16>
    %c = async.await %q : !async.pending<tensor<8x8xf32>>
    %p1, %t1 = async.dot %a, %b, %c : !async.buffer<8x8xf16>, !async.buffer<8x8xf16>, tensor<8x8xf32>
    async.release %ca after %u : !async.channel<8x8xf16>
    async.release %cb after %u : !async.channel<8x8xf16>
    scf.yield %p1, %t1 : !async.pending<tensor<8x8xf32>>, !async.token
  }
  %d = async.await %p : !async.pending<tensor<8x8xf32>>
  async.release %ca after %t : !async.channel<8x8xf16>
  async.release %cb after %t : !async.channel<8x8xf16>
  tile.store %d, %C[%c0, %c0] : tensor<8x8xf32>, memref<?x?xf32, strided<[?, 1]>>
}"""
    module = parse_module(text)
    verify_module(module)
    rng = np.random.default_rng(0)
    for k in (8, 16, 40):
        a, b = rng.integers(-8, 8, (8, k)).astype(np.float16), rng.integers(-8, 8, (k, 8)).astype(np.float16)
        c = np.zeros((8, 8), np.float32)
        run_kernel(module, {"A": a, "B": b, "C": c})
        assert c.tolist() == (a.astype(float) @ b.astype(float)).tolist()


def test_encodings_are_ignored():
    text = """
tile.kernel @k(%x: memref<?xf32> [N], %y: memref<?xf32> [N]) grid(%i = 1) {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0] : memref<?xf32> -> tensor<4xf32, "some layout">
  %w = arith.addf %v, %v : tensor<4xf32, "some layout">
  tile.store %w, %y[%c0] : tensor<4xf32, "some layout">, memref<?xf32>
}"""
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run_kernel(parse_module(text), {"x": x, "y": y})
    assert y.tolist() == (2 * x).tolist()


def test_layout_conversions_keep_the_values():
    text = """
tile.kernel @k(%x: memref<?xf32> [N], %y: memref<?xf32> [N]) grid(%i = 1) {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0] : memref<?xf32> -> tensor<32xf32, #layout.tv<thread [32:(1)], value []>>
  %w = layout.convert %v : tensor<32xf32, #layout.tv<thread [32:(1)], value []>> -> tensor<32xf32, #layout.tv<thread [16:(2)], value [2:(1)]>>
  tile.store %w, %y[%c0] : tensor<32xf32, #layout.tv<thread [16:(2)], value [2:(1)]>>, memref<?xf32>
}"""
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run_kernel(parse_module(text), {"x": x, "y": y})
    assert y.tolist() == x.tolist()


def roles(consumer: str, producer: str) -> str:
    return f"async.roles consumer(warps = 4) {{\n{consumer}}}, producer(warps = 4) {{\n{producer}}}\n"


def test_roles_meet_in_channels():
    """The producer is ahead by as many slots as there are, and both go on in turns."""
    puts = "".join(put(at) for at in ("%i4", "%i0", "%i12", "%i8"))
    gets = "".join(get(name) + read_to(name, at) + RELEASE for name, at in (("%a", "%i0"), ("%b", "%i4"), ("%c", "%i8"), ("%d", "%i12")))
    for depth in (1, 2, 5):
        assert run_body(channel(depth) + roles(gets, puts)).tolist() == [4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11]


def test_roles_in_loops():
    put_loop = f"scf.for %k = %i0 to %i12 step %i4 {{\n{put('%k')}}}\n"
    get_loop = f"scf.for %k = %i0 to %i12 step %i4 {{\n{get('%a')}{read_to('%a', '%k')}{RELEASE}}}\n"
    assert run_body(channel(1) + roles(get_loop, put_loop)).tolist() == [*range(12), -1, -1, -1, -1]


def test_roles_that_wait_for_each_other_are_a_deadlock():
    text = channel(1) + roles(get("%a") + get("%b") + RELEASE + RELEASE, put("%i0") + put("%i4"))
    with pytest.raises(TeselaError) as caught:
        run_body(text)
    error = caught.value.diagnostics[0]
    assert error.message == "deadlock: consumer and producer wait for ever"
    consumer, producer = error.notes
    assert consumer.message.startswith("role consumer: the channel is empty")
    assert producer.message.startswith("role producer: the channel is full: of its 1 slots 0 are filled and 1 got but not released")
    assert consumer.location is not None and producer.location is not None and consumer.location.line < producer.location.line


def test_a_role_that_never_fills_is_a_deadlock():
    with pytest.raises(TeselaError, match="deadlock: consumer waits for ever"):
        run_body(channel(1) + roles(get("%a") + RELEASE, f"%no = arith.constant false\nscf.if %no {{\n{put('%i0')}}}\n"))


def test_a_role_that_takes_too_little_is_an_error():
    with pytest.raises(TeselaError, match="1 slots of the channel were filled and never got"):
        run_body(channel(2) + roles(get("%a") + RELEASE, put("%i0") + put("%i4")))
