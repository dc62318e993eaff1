"""`print` and run-time `assert` of kernels: what reaches the host, by the interpreter, the simulator and on a GPU."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela import Array, TeselaError, bf16, f32, i8, i32
from tesela.dialects.device_messages import BUFFER_BYTES, HEADER_BYTES, MessageSite
from tesela.simulator.blocks import run_kernel
from tesela.simulator.launcher import settings

M, N = tesela.dims("M N")
T = tesela.dtype("T")
DEVICES = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
TARGETS = ["sm_90a", "sm_80"]


def line_in(kernel, text):
    """The line of this file that `text` stands in, within a kernel."""
    lines, first = inspect.getsourcelines(kernel.function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def said(capsys):
    """What was printed, without the file's name."""
    return [line.removeprefix(f"{__file__}:") for line in capsys.readouterr().out.splitlines()]


@tesela.kernel
def talks(x: Array[T, M, N], n: i32, BLOCK: tesela.constexpr = 4):
    i, j = tesela.grid(M, 2)
    if i > 0:
        print("row", i, "of", M, "{n}", n, x[i, 0:BLOCK], x[i, 1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.uint8, ml_dtypes.float8_e4m3fn])
def test_prints(capsys, device, dtype):
    x = np.arange(15).reshape(3, 5).astype(dtype)
    with settings(races=True):
        talks(x, n=7, device=device)
    line = line_in(talks, "print(")
    expected = [f"{line} block ({i}, {j}): row {i} of 3 {{n}} 7 {x[i, :4]} {x[i, 1]}" for i in (1, 2) for j in (0, 1)]
    assert said(capsys) == expected
    names = {np.dtype(np.float32): f32, np.dtype(ml_dtypes.bfloat16): bf16, np.dtype(np.int8): i8}
    names |= {np.dtype(np.uint8): tesela.ui8, np.dtype(ml_dtypes.float8_e4m3fn): tesela.f8E4M3FN}
    run_kernel(talks.trace(T=names[np.dtype(dtype)]), {"x": x}, {"n": 7})
    assert said(capsys) == expected


@tesela.kernel
def matrices(x: Array[f32, M, N]):
    t = x[0:3, 0:5]
    tesela.print(t, t > 2)
    for k in tesela.range(3):
        tesela.print(k, t[:, None].shape, f32)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_and_loops_and_kernels_of_one_block(capsys, target):
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    matrices(x, target=target, device="sim")
    first, *rest = capsys.readouterr().out.split(f"{__file__}:")[1:]
    assert first == f"{line_in(matrices, 't > 2')}: {x} {x > 2}\n"
    assert [text.split(": ")[1] for text in rest] == [f"{k} (3, 1, 5) tesela.f32\n" for k in range(3)]


@tesela.kernel
def checks(x: Array[f32, M, N], y: Array[f32, M]):
    i = tesela.grid(M)
    row = x[i, 0:64]
    assert row < 10, "too large"
    if N > 4:
        assert row.sum() != 3
    y[i] = row.sum()


@pytest.mark.parametrize("device", DEVICES)
def test_failed_assertions_name_line_and_block(device):
    x = np.ones((4, 50), np.float32)
    assert list(checks(x, device=device)) == [50] * 4
    x[1, 40] = x[3, 0] = 11
    y = np.zeros(4, np.float32)
    with pytest.raises(TeselaError) as caught:
        checks(x, y, device=device)
    (found,) = caught.value.diagnostics
    assert found.message == "checks: assertion failed in block 1 and 1 more: too large"
    assert (found.location.file, found.location.line, found.location.column) == (__file__, line_in(checks, "too large"), 12)
    assert list(y) == [50, 60, 50, 60], "the blocks went on"
    x[2], x[2, 0] = 0, 3
    with pytest.raises(TeselaError) as caught:
        checks(x, y, device=device)
    assert [d.message for d in caught.value.diagnostics] == [
        "checks: assertion failed in block 1 and 1 more: too large",
        "checks: assertion failed in block 2: row.sum() != 3",
    ]


def test_assertions_in_the_interpreter():
    x = np.full((1, 50), 11, np.float32)
    with pytest.raises(TeselaError, match="assertion failed in block 0: too large") as caught:
        run_kernel(checks.trace(), {"x": x, "y": np.zeros(1, np.float32)})
    assert caught.value.diagnostics[0].location.line == line_in(checks, "too large")


@tesela.kernel
def floods(x: Array[f32, N]):
    i = tesela.grid(N)
    print(i, x[0:1024])


def test_messages_without_room_are_counted(capsys):
    floods(np.zeros(300, np.float32), device="sim")
    lines = [line for line in said(capsys) if "block" in line or "lost" in line]
    record = MessageSite("print", "{} {}", (("index", ()), ("f32", (1024,))), 1).record_bytes
    room = BUFFER_BYTES - HEADER_BYTES
    assert len(lines) == room // record + 1
    assert lines[-1] == f"floods: {300 * record - room} bytes of messages did not fit the buffer of {room}, and were lost"


@tesela.kernel
def floods_and_fails(x: Array[f32, N]):
    i = tesela.grid(N)
    for _ in tesela.range(0, 300):
        print(i, x[0:1024])
    assert x[i] > 1, "late"
    assert x[i] < 9, "never"


def test_an_assertion_is_not_lost_with_its_message(capsys):
    with pytest.raises(TeselaError) as caught:
        floods_and_fails(np.zeros(1, np.float32), device="sim")
    assert [d.message for d in caught.value.diagnostics] == ["floods_and_fails: assertion failed: late"]
    assert caught.value.diagnostics[0].location.line == line_in(floods_and_fails, '"late"')
    assert "were lost" in said(capsys)[-1]


def test_a_kernel_that_says_nothing_has_no_buffer():
    assert [param.kind for param in checks.compile("sm_80").variant().plan.params].count("messages") == 1

    @tesela.kernel
    def silent(x: Array[f32, N]):
        assert N is not None
        x[0] = 1.0

    plan = silent.compile("sm_80").variant().plan
    assert not plan.messages and "messages" not in {param.kind for param in plan.params}


def test_plans_with_messages_survive_json():
    plan = talks.compile("sm_80", T=f32).variant().plan
    assert len(plan.messages) == 1 and type(plan).from_json(plan.to_json()) == plan


@tesela.kernel
def in_a_product(a: Array[bf16, M, N], b: Array[bf16, M, N], c: Array[f32, M, M]):
    """Roles and a pipeline round the messages."""
    acc = tesela.zeros((128, 128), f32)
    for k in tesela.range(0, N, 64):
        acc += a[0:128, k : k + 64] @ b[0:128, k : k + 64].T
        assert acc < 1e6, "diverges"
    print("done", acc.max())
    c[0:128, 0:128] = acc


@pytest.mark.parametrize("target", TARGETS)
def test_messages_beside_roles(capsys, target):
    a = np.ones((128, 192), ml_dtypes.bfloat16)
    with settings(races=True):
        c = in_a_product(a, a, target=target, device="sim")
    assert (c == 192).all()
    assert said(capsys)[0].endswith("done 192.0")


def test_an_exported_kernel_says_the_same(capsys, tmp_path):
    talks.compile("sm_80", T=f32).export(tmp_path / "talks")
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    tesela.load_kernel(tmp_path / "talks")(x, 7, device="sim")
    first, *_ = said(capsys)
    assert first == f"{line_in(talks, 'print(')} block (1, 0): row 1 of 3 {{n}} 7 {x[1, :4]} 6.0"
