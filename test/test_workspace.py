"""Memory that launches are lent: who shares it, when it grows, and how generated launchers and the long way pass it."""

from __future__ import annotations

import ctypes
import dataclasses
import threading

import pytest
import test_shortcuts
from fake_launcher import read_params
from test_shortcuts import PLAN, Tensor, fake

from tesela.dialects.launch_plan import Param
from tesela.runtime import driver, workspace
from tesela.runtime.contract import Contract
from tesela.runtime.kernel import Kernel
from tesela.runtime.launch import Variant

torch = test_shortcuts.torch  # the fixture

LENDING = dataclasses.replace(
    PLAN, params=(*PLAN.params[:2], Param("counters", "counters", ""), Param("workspace", "workspace", ""), *PLAN.params[2:]), workspace_bytes=512
)


@pytest.fixture
def device(monkeypatch):
    """A driver that allocates at rising addresses; `captures`: the capture that a stream is in. Gives what was allocated: (bytes, cleared)."""
    made: list[tuple[int, bool]] = []
    captures: dict[int, int] = {}

    def allocate(nbytes, cleared):
        made.append((nbytes, cleared))
        return (1 << 40) + len(made) * (1 << 30)

    monkeypatch.setattr(workspace, "_workspaces", {})
    monkeypatch.setattr(workspace, "_counters", {})
    monkeypatch.setattr(driver, "allocate_while_capturing", allocate)
    monkeypatch.setattr(driver, "stream_key", lambda stream: None if stream < 0 else (1, 100 + stream, captures.get(stream, 0)))
    return made, captures


def test_streams_and_captures_do_not_share(device):
    _, captures = device
    first, second = workspace.lend(1, 100, 4), workspace.lend(2, 100, 4)
    assert len({*first, *second}) == 4
    assert workspace.lend(1, 50, 4) == first
    captures[1] = 7
    captured = workspace.lend(1, 100, 4)
    assert captured == workspace.lend(1, 100, 4) and not set(captured) & set(first)
    captures[1] = 8
    assert not set(workspace.lend(1, 100, 4)) & set(captured)
    captures[1] = 0
    assert workspace.lend(1, 100, 4) == first
    assert workspace.lend(-1, 100, 4) == ()


def test_more_is_a_block_of_twice_the_size(device):
    made, _ = device
    small = workspace.lend(1, 100, 4)
    assert made == [(workspace.LEAST_BYTES, False), (workspace.LEAST_BYTES, True)]
    large = workspace.lend(1, workspace.LEAST_BYTES + 1, 4)
    assert made[2:] == [(2 * workspace.LEAST_BYTES, False)] and large[1] == small[1] and large[0] != small[0]
    workspace.lend(1, 10 * workspace.LEAST_BYTES, workspace.LEAST_BYTES)
    assert made[3:] == [(16 * workspace.LEAST_BYTES, False), (4 * workspace.LEAST_BYTES, True)]
    assert workspace.lend(1, 1, 1)[0] != small[0]


def test_threads_on_one_stream_get_the_same(device):
    found = []
    threads = [threading.Thread(target=lambda: found.append(workspace.lend(3, 1000, 10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_launches_pass_what_they_are_lent(torch, device, monkeypatch):
    """The long way first, then generated launchers, on one stream, on another, and in a capture."""
    made, captures = device
    launches = []

    def launched(launcher, stream, params):
        kinds = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64]
        launches.append((stream, *read_params(params, kinds)))

    fake(monkeypatch, launched)
    scale = Kernel(Contract.of_plan(LENDING), lambda facts, target: Variant(facts, LENDING, ""))
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    for stream, capture in ((5, 0), (5, 0), (6, 0), (6, 3), (5, 0)):
        captures[stream] = capture
        torch.stream = stream
        scale(x, y, 3)
        space, zeros = workspace.lend(stream, 64 * 512, 64)
        assert launches[-1] == (stream, 4096, 8192, zeros, space, 3, 64)
    assert "addresses += lent" in scale.launcher_source
    assert len({launch[3:5] for launch in launches}) == 3
    assert made[0] == (workspace.LEAST_BYTES, False)


def test_a_context_that_is_not_current_is_made_so(torch, device, monkeypatch):
    """What a launcher cannot be lent, the long way can: it makes the context current."""
    launches = []
    fake(monkeypatch, lambda launcher, stream, params: launches.append(stream))
    scale = Kernel(Contract.of_plan(LENDING), lambda facts, target: Variant(facts, LENDING, ""))
    x, y = Tensor((64,), 4096), Tensor((64,), 8192)
    scale(x, y, 3)
    known, asked = driver.stream_key, []
    monkeypatch.setattr(driver, "stream_key", lambda stream: asked.append(stream) or (known(stream) if len(asked) > 1 else None))
    scale(x, y, 3)
    assert launches == [5, 5] and len(asked) == 2
