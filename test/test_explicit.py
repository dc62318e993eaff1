"""The explicit level: channels and roles written in Python give what the derived ones do; what cannot go together is an error at its line."""

# ruff: noqa
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from compiled import same
from wrong_kernels import WrongKernels

import tesela
from tesela import Array, TeselaError, bf16, f32
from tesela.dialects.diagnostics import Emitter
from tesela.dialects.parsing import parse_module
from tesela.lowering.check_barriers import CheckBarriers
from tesela.lowering.pipeline import lower_to
from tesela.passes.base import PassContext
from tesela.simulator import settings
from tesela.simulator.blocks import run_kernel

BF16 = ml_dtypes.bfloat16
M, N, K = tesela.dims("M N K")
CASES = WrongKernels()
wrong = CASES.wrong


@tesela.kernel
def derived(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
    bm, bn = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    m, n = bm * 64, bn * 64
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, 64):
        acc += A[m : m + 64, k : k + 64] @ B[n : n + 64, k : k + 64].T
    C[m : m + 64, n : n + 64] = acc


@tesela.kernel
def one_stream(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], DEPTH: tesela.constexpr = None):
    bm, bn = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    m, n = bm * 64, bn * 64
    left = tesela.channel((64, 64), bf16, depth=DEPTH)
    right = tesela.channel((64, 64), bf16, depth=DEPTH)
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, 64):
        left.put(A[m : m + 64, k : k + 64])
        right.put(B[n : n + 64, k : k + 64])
        with left.get() as a, right.get() as b:
            acc += a @ b.T
    C[m : m + 64, n : n + 64] = acc


@tesela.kernel
def ahead_by_hand(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
    """The first two trips' tiles are put before the loop, and get and release stand apart."""
    bm, bn = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    m, n = bm * 64, bn * 64
    left = tesela.channel((64, 64), bf16, depth=3)
    right = tesela.channel((64, 64), bf16, depth=3)
    for s in tesela.static_range(2):
        if s * 64 < K:
            left.put(A[m : m + 64, s * 64 : s * 64 + 64])
            right.put(B[n : n + 64, s * 64 : s * 64 + 64])
    acc = tesela.zeros((64, 64), f32)
    for k in tesela.range(0, K, 64):
        if k + 128 < K:
            left.put(A[m : m + 64, k + 128 : k + 192])
            right.put(B[n : n + 64, k + 128 : k + 192])
        a = left.get()
        b = right.get()
        acc += a @ b.T
        left.release()
        right.release()
    C[m : m + 64, n : n + 64] = acc


@tesela.kernel
def two_roles(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], DEPTH: tesela.constexpr = 3, WARPS: tesela.constexpr = 4):
    bm, bn = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    m, n = bm * 64, bn * 64
    left = tesela.channel((64, 64), bf16, depth=DEPTH)
    right = tesela.channel((64, 64), bf16, depth=DEPTH)
    with tesela.role("compute", warps=4):
        acc = tesela.zeros((64, 64), f32)
        for k in tesela.range(0, K, 64):
            with left.get() as a, right.get() as b:
                acc += a @ b.T
        C[m : m + 64, n : n + 64] = acc
    with tesela.role("load", warps=WARPS):
        for k in tesela.range(0, K, 64):
            left.put(A[m : m + 64, k : k + 64])
            right.put(B[n : n + 64, k : k + 64])


@tesela.function
def fill(channel, array, row, columns):
    """Channels may be handed to helpers."""
    for k in tesela.range(0, columns, 64):
        channel.put(array[row : row + 64, k : k + 64])


@tesela.kernel
def three_roles(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N], DEPTH: tesela.constexpr = 2):
    """The left operand is doubled on its way, by a role of its own."""
    bm, bn = tesela.grid(tesela.ceildiv(M, 64), tesela.ceildiv(N, 64))
    m, n = bm * 64, bn * 64
    raw = tesela.channel((64, 64), bf16, depth=DEPTH)
    left = tesela.channel((64, 64), bf16, depth=DEPTH)
    right = tesela.channel((64, 64), bf16, depth=DEPTH)
    with tesela.role("compute", warps=4, registers=152):
        acc = tesela.zeros((64, 64), f32)
        for k in tesela.range(0, K, 64):
            with left.get() as a, right.get() as b:
                acc += a @ b.T
        C[m : m + 64, n : n + 64] = acc
    with tesela.role("scale", warps=4, registers=152):
        for k in tesela.range(0, K, 64):
            with raw.get() as a:
                left.put(a * 2)
    with tesela.role("load", warps=4, registers=24):
        fill(raw, A, m, K)
    with tesela.role("load_right", warps=4, registers=24):
        fill(right, B, n, K)


def operands(m, n, k):
    rng = np.random.default_rng(k)
    return rng.integers(-4, 5, (m, k)).astype(BF16), rng.integers(-4, 5, (n, k)).astype(BF16)


def product(kernel, a, b, target, **values):
    c = np.full((a.shape[0], b.shape[0]), np.nan, np.float32)
    with settings(races=True):
        kernel.compile(target, **values)(a, b, c, device="sim")
    return c


KERNELS = {
    "one stream": (one_stream, {}),
    "one stream, depth 1": (one_stream, {"DEPTH": 1}),
    "one stream, depth 3": (one_stream, {"DEPTH": 3}),
    "ahead by hand": (ahead_by_hand, {}),
    "two roles": (two_roles, {}),
    "two roles, depth 1": (two_roles, {"DEPTH": 1}),
    "two roles, one warp loads": (two_roles, {"WARPS": 1}),
    "three roles": (three_roles, {}),
}


@pytest.mark.parametrize("k", [0, 8, 64, 128, 192, 256, 264, 70])
@pytest.mark.parametrize("name", KERNELS)
def test_products(name, k):
    """For each number of trips round the depths; with K = 70 no array can go by TMA."""
    kernel, values = KERNELS[name]
    a, b = operands(70, 40, k)
    for target in ("sm_90a",) if "roles" in name else ("sm_90a", "sm_80"):
        found = product(kernel, a, b, target, **values)
        same(found, a.astype(np.float32) @ b.astype(np.float32).T * (2 if kernel is three_roles else 1))


@pytest.mark.parametrize("name", KERNELS)
def test_interpreted(name):
    """The program has its meaning before anything is compiled."""
    kernel, values = KERNELS[name]
    a, b = operands(64, 64, 192)
    c = np.full((64, 64), np.nan, np.float32)
    run_kernel(kernel.trace(**values), {"A": a, "B": b, "C": c})
    same(c, a.astype(np.float32) @ b.astype(np.float32).T * (2 if kernel is three_roles else 1))


def opcodes(kernel, shape=(4096, 4096), **values):
    text = kernel.compile("sm_90a", pins={"warps": 4, "split": 1, **values.pop("pins", {})}, **values).variant(shape, shape, shape).ptx
    return Counter(re.findall(r"^\s+(?:@!?%\w+ )?([a-z][\w.:]*)", text, re.MULTILINE))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_loop_by_hand_is_the_derived_one(stages):
    """Instruction by instruction: what is written by hand leaves nothing else to the compiler than what it has anyway."""
    assert opcodes(one_stream, DEPTH=stages) == opcodes(derived, pins={"stages": stages})


@pytest.mark.parametrize("known", [False, True], ids=["nothing known", "usual facts"])
@pytest.mark.parametrize("name", KERNELS)
def test_barriers_are_right(name, known):
    """What is lowered passes check-barriers: by TMA, and where nothing is known of the arrays, filled by the roles' threads."""
    kernel, values = KERNELS[name]
    module = parse_module(kernel.compile("sm_90a", **values).ir("ptx-ir")) if known else kernel.trace(**values)
    if not known:
        lower_to(module, "ptx-ir", "sm_90a")
    emitter = Emitter()
    CheckBarriers().run(module, PassContext(emitter=emitter))
    assert not emitter.diagnostics


def test_depth_left_open_is_found():
    assert opcodes(one_stream) == opcodes(derived)


def test_bits_are_the_derived_ones():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 320)).astype(BF16), rng.standard_normal((64, 320)).astype(BF16)
    want = product(derived, a, b, "sm_90a")
    for kernel in (one_stream, ahead_by_hand, two_roles):
        same(product(kernel, a, b, "sm_90a"), want)


def test_a_slot_is_read_where_it_lies():
    """No buffer but those of the channels, no copy of a tile through registers; and dots stay in flight between trips."""
    kernel = two_roles.compile("sm_90a")
    schedule = kernel.ir("schedule")
    assert schedule.count("async.channel depth 3") == 2 and "async.write" not in schedule and "async.read %" not in schedule
    assert "async.token none" in schedule and kernel.variant(*[(4096, 4096)] * 3).plan.shared_bytes <= 3 * 16384 + 3 * 16 + 64


@tesela.kernel
def beside(X: Array[f32, M, N], Y: Array[f32, M, N]):
    """What no dot reads comes into registers; the slot may be given back at once."""
    m = tesela.grid(tesela.ceildiv(M, 16)) * 16
    ch = tesela.channel((16, 64), f32, depth=2)
    for j in tesela.range(0, N, 64):
        ch.put(X[m : m + 16, j : j + 64])
        x = ch.get()
        ch.release()
        Y[m : m + 16, j : j + 64] = x + 1


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("n", [0, 64, 130, 200])
def test_without_dots(n, target):
    x = np.random.default_rng(n).standard_normal((33, n)).astype(np.float32)
    y = np.zeros_like(x)
    with settings(races=True):
        beside.compile(target)(x, y, device="sim")
    same(y, x + 1)


@pytest.mark.parametrize("kernel", [one_stream, two_roles], ids=["one stream", "two roles"])
def test_channels_too_deep_for_shared_memory(kernel):
    """Each channel by its name, its slots, the limit, and how many would fit."""
    with pytest.raises(tesela.TeselaError) as caught:
        product(kernel, *operands(64, 64, 64), "sm_90a", DEPTH=20)
    (found,) = caught.value.diagnostics
    assert re.match(r"the buffers take \d+ bytes of shared memory, a block of sm_90a can have 232448", found.message) and found.hint == "at most 14 stages fit"
    for name in ("left", "right"):
        assert any(note.message == f"%{name}: 64x64xbf16, 8192 bytes × 20 stages = 163840 bytes" for note in found.notes)
    product(kernel, *operands(64, 64, 64), "sm_90a", DEPTH=14)


def test_roles_need_sm_90():
    with pytest.raises(tesela.TeselaError, match="sm_80 has no roles"):
        product(two_roles, *operands(64, 64, 64), "sm_80")


# --- Misuse, at its line ---


@wrong
def never_given_back(A: Array[bf16, M, K], B: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=2)
    #    ^ 1 of its slots is got and never released when the kernel ends
    ch.put(A[0:64, 0:64])
    a = ch.get()
    B[0:64, 0:64] = a


@wrong
def never_got(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=2)
    #    ^ 1 of its slots is filled and never got when the kernel ends
    ch.put(A[0:64, 0:64])


@wrong
def nothing_was_put(B: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=2)
    with ch.get() as a:
    #    ^ this waits for ever: %ch is empty
        B[0:64, 0:64] = a


@wrong
def given_back_twice(A: Array[bf16, M, K], B: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=2)
    ch.put(A[0:64, 0:64])
    with ch.get() as a:
        B[0:64, 0:64] = a
    ch.release()
#   ^ no slot of %ch was got and not yet released -> release each slot once
    pass


@wrong
def no_slot_is_free(A: Array[bf16, M, K], B: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=1)
    ch.put(A[0:64, 0:64])
    ch.put(A[0:64, 64:128])
#   ^ this waits for ever: of %ch's 1 slots 1 are filled and 0 got but not released
    with ch.get() as a:
        B[0:64, 0:64] = a
    with ch.get() as a:
        B[0:64, 64:128] = a


@wrong
def put_of_another_shape(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A[0:64, 0:32])
    #      ^ the channel carries bf16[64, 64], found the slice bf16[64, 32]


@wrong
def put_of_another_type(A: Array[f32, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A[0:64, 0:64] * 2)
    #      ^ the channel carries bf16[64, 64], found the tile f32[64, 64] -> convert it: x.to(bf16)


@wrong
def put_of_an_array(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A)
    #      ^ the channel carries bf16[64, 64], found the array A -> put a slice of it: A[i : i + 64]


@wrong
def put_of_two(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A[0:64, 0:64], A[0:64, 0:64])
#   ^ put of a channel takes what goes into its next slot, found 2 arguments -> write ch.put(A[i : i + 64, j : j + 64])
    pass


@wrong
def put_by_something_else(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A[0:64, 0:64], copy="dma")
    #                          ^ copy is one of tma, cp.async, ld, found the string 'dma'


@wrong
def put_of_gathered(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A[tesela.arange(64), 0:64])
    #      ^ a put copies a slice, not elements at places of a tile -> load them, and put the tile: x = A[tesela.arange(64), 0:64]


@wrong
def depth_at_run_time(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=K)
    #                                         ^ depth is a number of buffers from 1 to 64, known when compiling, found the dimension K


@wrong
def channel_in_a_loop(A: Array[bf16, M, K]):
    for k in tesela.range(0, K, 64):
        ch = tesela.channel((64, 64), bf16)
        #    ^ a channel is made inside a run-time conditional, loop or role -> make it at the beginning of the kernel: it lives as long as its block


@wrong
def unknown_of_a_channel(A: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.puts(A[0:64, 0:64])
#   ^ a channel of bf16[64, 64] has no attribute puts -> did you mean put?
    pass


@wrong
def after_the_with(A: Array[bf16, M, K], B: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16)
    ch.put(A[0:64, 0:64])
    with ch.get() as a:
        pass
    B[0:64, 0:64] = a
    #               ^ a is the tile of a slot that was given back at the end of the with of line {line - 2} -> use it inside, or keep what you computed of it


@wrong
def another_with(A: Array[bf16, M, K]):
    with open("x") as f:
    #    ^ Python's open is not in the kernel language -> pass arrays as arguments
        pass


@wrong
def with_of_a_tile(A: Array[bf16, M, K]):
    with A[0:64, 0:64] as a:
    #    ^ with takes slots of channels, or one role -> write with ch.get() as a:, or with tesela.role('load', warps=4):
        pass


@wrong
def a_role_alone(A: Array[bf16, M, K]):
    tesela.role("load", warps=4)
#   ^ a role is the head of a with -> write with tesela.role('load', warps=4):
    pass


@wrong
def a_role_in_a_loop(A: Array[bf16, M, K]):
    for k in tesela.range(0, K, 64):
        with tesela.role("load", warps=4):
        #    ^ a role inside a helper, conditional, loop or role -> roles stand at the end of the kernel itself: they are whole warps for all of its time
            pass


@wrong
def a_role_without_warps(A: Array[bf16, M, K]):
    with tesela.role("load"):
    #    ^ a role needs its number of warps -> write tesela.role('load', warps=4)
        pass


@wrong
def two_roles_of_a_name(A: Array[bf16, M, K]):
    with tesela.role("load", warps=4):
        pass
    with tesela.role("load", warps=4):
    #                ^ there are two roles called load
        pass


@wrong
def after_the_roles(A: Array[bf16, M, K]):
    with tesela.role("load", warps=4):
        pass
    A[0:64, 0:64] = A[0:64, 64:128]
#   ^ a statement after the kernel's roles -> roles end the kernel: what comes after them belongs into one of them
    pass


@wrong
def from_another_role(A: Array[bf16, M, K]):
    with tesela.role("load", warps=4):
        x = A[0:64, 0:64]
    with tesela.role("store", warps=4):
        A[0:64, 0:64] = x
        #               ^ x is a variable of the role load -> roles meet in channels: put it into one


@wrong
def roles_that_wait_for_each_other(A: Array[bf16, M, K], B: Array[bf16, M, K]):
    ch = tesela.channel((64, 64), bf16, depth=2)
    with tesela.role("load", warps=4):
        for k in tesela.range(0, K, 64):
            ch.put(A[0:64, k : k + 64])
    #       ^ role load waits for ever: of %ch's 2 slots 2 are filled and 0 got but not released (in trip 5 of the loop at line {line - 1})
    with tesela.role("store", warps=4):
        for k in tesela.range(0, K, 128):
            with ch.get() as a:
                B[0:64, k : k + 64] = a


@pytest.mark.parametrize("kernel", CASES.kernels, ids=lambda function: function.__name__)
def test_wrong(kernel):
    CASES.check(kernel)


def test_text_with_channels_is_checked_as_python_is():
    """Who compiles the IR of a kernel whose channels cannot work gets the error that its author would get."""
    function = next(wrong for wrong in CASES.kernels if wrong.__name__ == "roles_that_wait_for_each_other")
    text = str(tesela.kernel(function).trace())
    with pytest.raises(TeselaError, match="role load waits for ever"):
        tesela.compile(text, target="sm_90a").ir("async")


# --- The kernel's own choices ---


@tesela.kernel(pins={"warps": 8, "stages": 2})
def pinned(A: Array[bf16, M, K], B: Array[bf16, N, K], C: Array[f32, M, N]):
    bm, bn = tesela.grid(tesela.ceildiv(M, 128), tesela.ceildiv(N, 128))
    m, n = bm * 128, bn * 128
    acc = tesela.zeros((128, 128), f32)
    for k in tesela.range(0, K, 64):
        acc += A[m : m + 128, k : k + 64] @ B[n : n + 128, k : k + 64].T
    C[m : m + 128, n : n + 128] = acc


def schedule(**pins):
    return pinned.compile("sm_90a", pins=pins).ir("schedule")


def test_pins_of_the_decorator_and_of_a_call():
    """Each choice is kept, and a call's comes before the decorator's."""
    text = schedule(warp_specialize=0)
    assert "warps = 8 : i64" in text and text.count("async.channel depth 2") == 2 and "async.roles" not in text
    assert schedule(stages=3, warp_specialize=0).count("async.channel depth 3") == 2
    assert "async.roles" in schedule() and "async.roles consumer(warps = 4" in schedule(warps=4, warp_specialize=1)
    walks = "tile.block_count"
    assert walks in schedule() and walks in schedule(warp_specialize=0, persistent=1) and walks not in schedule(persistent=0)
    assert "multicast 2" in schedule(cluster=2) and "multicast" not in schedule(cluster=1)


@pytest.mark.parametrize(
    "pins", [{}, {"warps": 4}, {"stages": 3}, {"cluster": 2}, {"persistent": 0}, {"persistent": 1, "warp_specialize": 0}, {"split": 2}, {"warp_specialize": 1, "warps": 4}], ids=str
)
def test_pinned_kernels_are_right(pins):
    a, b = operands(200, 136, 320)
    c = np.full((200, 136), np.nan, np.float32)
    with settings(races=True):
        pinned.compile("sm_90a", pins=pins)(a, b, c, device="sim")
    same(c, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"wraps": 4}, "'wraps' cannot be pinned"),
        ({"warps": 0}, "warps is pinned to 0, but a positive integer is required"),
        ([1], "pins are choices by name, found [1]"),
        ({"persistent": 2}, "persistent is pinned to 2, but 0 or 1 is required"),
        ({"stages": "3"}, "stages is pinned to '3', but a positive integer is required"),
    ],
)
def test_pins_that_cannot_be(pins, message):
    with pytest.raises(tesela.TeselaError) as caught:
        tesela.kernel(pins=pins)(derived.function)
    (found,) = caught.value.diagnostics
    assert found.message == message and found.location.file == __file__
    with pytest.raises(tesela.TeselaError, match=re.escape(message)):
        derived.compile("sm_90a", pins=pins)


def test_pins_that_no_kernel_can_have():
    """Numbers that are no numbers of warps, of blocks of a cluster, or more stages than fit, are errors at the kernel, or at its channels."""
    for pins, message in (({"warps": 5}, "warps must be 1, 2, 4, 8, 12, 16 or 32"), ({"cluster": 3}, "a cluster has 1, 2, 4 or 8 blocks"), ({"stages": 50}, "shared memory")):
        with pytest.raises(tesela.TeselaError, match=message):
            pinned.compile("sm_90a", pins=pins).warmup((128, 128), (128, 128), (128, 128), device="sim")


def test_the_example():
    """Run as its first line says."""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, str(root / "examples" / "gemm_by_hand.py")], capture_output=True, text=True, env=os.environ | {"TESELA_DEVICE": "sim"})
    assert done.returncode == 0 and done.stdout.startswith("largest error: "), done.stderr


@tesela.kernel
def plain_copy(X: Array[f32, M, N], Y: Array[f32, M, N]):
    m = tesela.grid(M)
    Y[m, 0:64] = X[m, 0:64]


@pytest.mark.parametrize(
    ("kernel", "pins", "said"),
    [
        (derived, {"cluster": 8, "warps": 4}, "no clusters of 8 blocks are formed"),
        (two_roles, {"warps": 8}, "warps = 8 is not followed: the kernel's roles are written out"),
        (two_roles, {"stages": 2}, "stages = 2 is not followed: the kernel's roles are written out"),
        (two_roles, {"warp_specialize": 0}, "warp_specialize = 0 is not followed"),
        (two_roles, {"persistent": 1}, "persistent = 1 is not followed"),
        (two_roles, {"cluster": 2}, "no clusters of 2 blocks are formed: it has roles already"),
        (two_roles, {"split": 2}, "the kernel is not split"),
        (plain_copy, {"stages": 3}, "stages = 3 is not followed: no loop fills channels"),
        (plain_copy, {"split": 2}, "the kernel is not split"),
    ],
)
def test_pins_that_are_not_followed_say_so(kernel, pins, said):
    (note,) = kernel.compile("sm_90a", pins=pins).variant().notes
    assert said in note


@tesela.kernel(pins={"warps": 8})
def pinned_by_its_decorator(X: Array[f32, M, N], Y: Array[f32, M, N]):
    m = tesela.grid(tesela.ceildiv(M, 64)) * 64
    Y[m : m + 64, 0:64] = X[m : m + 64, 0:64]


def test_pins_of_the_decorator_hold_where_a_kernel_function_is_compiled():
    """As the command line does it, too; what the call pins has precedence."""
    assert tesela.compile(pinned_by_its_decorator, "sm_90a").variant().plan.threads == 256
    assert tesela.compile(pinned_by_its_decorator, "sm_90a", pins={"warps": 4}).variant().plan.threads == 128


@tesela.kernel(variants=[{"ROWS": 64, "warps": 4}, {"ROWS": 128, "warps": 4}], pins={"warps": 8})
def pinned_by_its_variants(X: Array[f32, M, N], Y: Array[f32, M, N], ROWS: tesela.constexpr):
    m = tesela.grid(tesela.ceildiv(M, ROWS)) * ROWS
    Y[m : m + ROWS, 0:64] = X[m : m + ROWS, 0:64]


def test_pins_of_a_variant_have_precedence():
    for kernel in (pinned_by_its_variants.compile("sm_90a"), tesela.compile(pinned_by_its_variants, "sm_90a")):
        assert kernel.variant((256, 64), (256, 64)).plan.threads == 128


def test_pins_may_be_integers_of_numpy():
    assert plain_copy.compile("sm_90a", pins={"warps": np.int64(8)}).variant().plan.threads == 256
    assert plain_copy.compile("sm_90a", pins={"warps": 8}).variant().plan.threads == 256
