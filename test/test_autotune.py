"""@tesela.autotune: the choice in the simulator and over a stand-in for a GPU's clock, what is refused, kept, and given back."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import re
import sys
import types

import numpy as np
import pytest
from fake_launcher import fake_launcher

import tesela
from tesela import TeselaError
from tesela.runtime import autotune as tuner
from tesela.runtime import driver
from tesela.runtime.autotune import Trial, Tuning, shape_class
from tesela.runtime.cache import get_cache
from tesela.runtime.launch import Variant
from tesela.runtime.progress import Progress
from tesela.tools import cache_cmd

F32, N = tesela.f32, tesela.dims("N")


@tesela.autotune({"BLOCK": [1024, 32, 128], "warps": [4, 1]})
@tesela.kernel
def add_one(x: tesela.Array[F32, N], y: tesela.Array[F32, N], BLOCK: tesela.constexpr):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    y[i : i + BLOCK] = x[i : i + BLOCK] + 1.0


@tesela.kernel
def grow(x: tesela.Array[F32, N, tesela.strides(None)], BLOCK: tesela.constexpr = 64):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    x[i : i + BLOCK] = x[i : i + BLOCK] * 2.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path))


@pytest.fixture
def tried(monkeypatch):
    """How many candidates each tuning had, in order."""
    counts = []
    run = tuner.tune

    def counted(candidates, *args, **kwargs):
        counts.append(len(candidates))
        return run(candidates, *args, **kwargs)

    monkeypatch.setattr(tuner, "tune", counted)
    return counts


def text(call) -> str:
    with pytest.raises(TeselaError) as caught:
        call()
    return str(caught.value)


def fresh(kernel, space, **options):
    return tesela.autotune(space, **options)(kernel)


def test_in_the_simulator_the_fewest_instructions_win(tried):
    tuned = fresh(add_one.kernel, {"BLOCK": [1024, 32, 128], "warps": [4, 1]})
    x = np.arange(100, dtype=np.float32)
    for n in (100, 128, 65):
        np.testing.assert_array_equal(tuned(np.resize(x, n), device="sim"), np.resize(x, n) + 1)
    assert tried == [6], "one class of shapes, tuned once"
    (tuning,) = tuned.tunings
    assert (tuning.device, tuning.shapes, tuning.unit) == ("simulator", "N≤128", "instructions")
    assert [trial.label for trial in tuning.trials][:3] == ["BLOCK=1024 warps=4", "BLOCK=1024 warps=1", "BLOCK=32 warps=4"]
    costs = [trial.cost for trial in tuning.trials if trial.cost is not None]
    assert tuning.trials[tuning.best].cost == min(costs) < max(costs)
    assert tuning.trials[tuning.best].label == "BLOCK=128 warps=1"
    lines = tuned.tuning().splitlines()
    assert lines[0].startswith("add_one on simulator, N≤128 (6 candidates in ")
    assert lines[1].split()[:5] == ["*", "BLOCK=128", "warps=1", str(int(min(costs))), "instructions"]
    tuned(np.resize(x, 129), device="sim")
    assert tried == [6, 6] and len(tuned.tunings) == 2


def test_what_is_written_in_place_is_given_back():
    tuned = fresh(grow, {"BLOCK": [64, 32, 16]})
    x = np.arange(60, dtype=np.float32)
    assert tuned(x[::-2], device="sim") is None
    wanted = np.arange(60, dtype=np.float32)
    wanted[1::2] *= 2
    np.testing.assert_array_equal(x, wanted)


def test_candidates_that_are_refused_drop_out(caplog):
    caplog.set_level(logging.INFO, "tesela")
    tuned = fresh(grow, [{"BLOCK": 64, "warps": 3}, {"BLOCK": 48}, {"BLOCK": 64}, {"BLOCK": 64, "warps": 4}])
    tuned(np.ones(10, np.float32), device="sim")
    (tuning,) = tuned.tunings
    notes = {trial.label: trial.note for trial in tuning.trials}
    assert notes["BLOCK=64 warps=3"] == "refused: warps must be 1, 2, 4, 8, 12, 16 or 32, found 3 : i64"
    assert notes["BLOCK=64 warps=4"] == "the same code as BLOCK=64"
    assert "BLOCK=64 warps=3: refused: warps must be" in caplog.text


def test_where_all_are_refused_the_first_error_stands():
    tuned = fresh(grow, {"warps": [3, 5]})
    assert "warps must be 1, 2, 4, 8, 12, 16 or 32, found 3" in text(lambda: tuned(np.ones(10, np.float32), device="sim"))


def test_wrong_calls_are_wrong_before_anything_is_tried(tried):
    tuned = fresh(grow, {"BLOCK": [64, 32]})
    assert "grow: x has element type f64, but f32 is required" in text(lambda: tuned(np.ones(10), device="sim"))
    assert "grow: BLOCK is tuned, and cannot be given\n" in text(lambda: tuned(np.ones(10, np.float32), BLOCK=3)) + "\n"
    assert tried == []


def test_the_space_is_checked_where_it_is_stated():
    assert "grow: BM cannot be tuned" in text(lambda: fresh(grow, {"BM": [1]}))
    assert "hint: what can: BLOCK, warps, stages" in text(lambda: fresh(grow, {"BM": [1]}))
    for empty in ({}, [], {"BLOCK": []}):
        assert "grow: the space to tune over is empty" in text(lambda empty=empty: fresh(grow, empty))
    assert "@tesela.autotune takes a kernel, found function" in text(lambda: fresh(lambda x: x, {"BLOCK": [1]}))


@pytest.mark.parametrize(
    ("space", "budget", "said"),
    [
        ({"BLOCK": 64}, 1.0, "the values of BLOCK in a space of choices must be a list, found 64"),
        (3, 1.0, "a space of choices is a dict of lists, or a list of configurations, found 3"),
        ("abc", 1.0, "a space of choices is a dict of lists, or a list of configurations, found 'abc'"),
        ([{"BLOCK": 64}, 3], 1.0, "a configuration is a dict of values by name, found 3"),
        ({"BLOCK": [64]}, "x", "the budget of a tuning is a number of seconds, at least 0 and at most 1000000, found 'x'"),
        ({"BLOCK": [64]}, -1, "found -1"),
        ({"BLOCK": [64]}, float("nan"), "found nan"),
        ({"BLOCK": [64]}, 10**400, "at most 1000000"),
    ],
)
def test_spaces_and_budgets_that_are_none(space, budget, said):
    assert said in text(lambda: fresh(grow, space, budget=budget))
    if isinstance(budget, float) and budget == 1.0:
        with pytest.raises(TeselaError, match=re.escape(said)):
            tesela.kernel(variants=space)(grow.function)


def test_a_longer_budget_tries_the_rest(monkeypatch, tmp_path):
    """What a short one has left out is not left out for ever: outcomes are kept by budget."""
    monkeypatch.setenv("TESELA_CACHE", str(tmp_path))
    for budget, left in ((0.0, 2), (100.0, 0), (0.0, 2)):
        tuned = fresh(grow, {"BLOCK": [64, 32, 16]}, budget=budget)
        tuned(np.ones(10, np.float32), device="sim")
        assert sum(trial.cost is None for trial in tuned.tunings[0].trials) == left


def test_what_only_a_kernel_has():
    tuned = fresh(grow, {"BLOCK": [64]})
    for name in ("explain", "ir", "compile", "export", "warmup"):
        with pytest.raises(AttributeError, match=rf"a tuned kernel has no {name}, which depends on the candidate: grow.kernel.{name} has it, and grow.tuning\(\) shows"):
            getattr(tuned, name)
    assert not hasattr(tuned, "exlpain")


def test_time_that_is_up():
    tuned = fresh(grow, {"BLOCK": [64, 32, 16]}, budget=0.0)
    tuned(np.ones(10, np.float32), device="sim")
    (tuning,) = tuned.tunings
    assert [trial.note for trial in tuning.trials] == ["not tried: the time was up", "not tried: the time was up", ""]


def test_compiling_ends_when_the_time_is_up(fake_gpu):
    """The most promising candidate is compiled and measured whatever the budget."""
    tuned = fresh(grow, {"BLOCK": [64, 32, 16]}, budget=0.0)
    tuned(np.ones(100, np.float32), device="cuda")
    (tuning,) = tuned.tunings
    assert [trial.note for trial in tuning.trials] == ["not tried: the time was up", "not tried: the time was up", ""]
    assert tuning.trials[2].cost == 5.0 and set(fake_gpu.launches) == {7}
    assert [trial.expected for trial in tuning.trials] == sorted([trial.expected for trial in tuning.trials], reverse=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(fake_gpu, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.stderr", Terminal())
    fresh(grow, {"BLOCK": [64, 32, 16]}, budget=30)(np.ones(100, np.float32), device="cuda")
    lines = sys.stderr.getvalue().split("\r\x1b[K")
    assert lines[0] == lines[-1] == "", "the line is erased at the end"
    assert any(line.startswith("tuning grow  compiled   [####################]   3/3") for line in lines)
    assert any(line.startswith("tuning grow  measured   [") and line.endswith("best so far: BLOCK=32, 0.9000 ms") for line in lines)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    fresh(grow, {"BLOCK": [64, 32]})(np.ones(100, np.float32), device="cuda")
    assert sys.stderr.getvalue() == "", "a log file gets no line"


def test_a_line_of_progress():
    progress = Progress("tuning k", 60.0, Terminal())
    progress.stage("compiled", 4)
    progress.step()
    progress.note = "x" * 200
    line = progress.line(80)
    assert line.startswith("tuning k  compiled   [#####···············]   1/4") and len(line) <= 79
    assert "s of 60 s" in line


def test_without_tuning_the_cost_model_guesses(monkeypatch, tried):
    """For the arrays at hand: few elements want small blocks. What is refused is passed over, and what is equal comes in order."""
    monkeypatch.setenv("TESELA_AUTOTUNE", "0")
    tuned = fresh(grow, [{"BLOCK": 64, "warps": 3}, {"BLOCK": 4096}, {"BLOCK": 16}])
    blocks = []
    for extent in (10, 1_000_000):
        tuned(np.ones(extent, np.float32), device="sim")
        blocks.append(tuned.configs[list(tuned._guesses.values())[-1]]["BLOCK"])
    assert blocks == [16, 4096]
    same = fresh(grow, [{"BLOCK": 64}, {"BLOCK": 64, "warps": 4}])
    same(np.ones(10, np.float32), device="sim")
    assert list(same._guesses.values()) == [0]
    refused = fresh(grow, [{"BLOCK": 64, "warps": 3}])
    assert "found 3" in text(lambda: refused(np.ones(10, np.float32), device="sim"))
    assert tried == [] and tuned.tuning() == "grow has not been tuned yet\n"


def test_a_target_is_tuned_for_itself(tried):
    tuned = fresh(grow, {"BLOCK": [64, 32]})
    x = np.ones(100, np.float32)
    for target in ("sm_80", "sm_90a", "sm_80", "sm_90a"):
        tuned(x, target=target, device="sim")
        assert list(tuned._chosen.values())[-1 if target == "sm_90a" else 0].kernel.last.plan.target == target
    assert tried == [2, 2] and x.tolist() == [16.0] * 100
    assert "unknown target 'sm_7'" in text(lambda: tuned(x, target="sm_7", device="sim"))


def test_what_is_expected_to_be_slow_is_not_assembled(fake_gpu, monkeypatch):
    """Beside the four best; the table says why."""
    monkeypatch.setattr(tuner, "GPU", lambda: LaunchingClock({f"BLOCK={block}": (1.0, 1.0) for block in (64, 32, 16, 8192, 16384, 65536)}))
    tuned = fresh(grow, {"BLOCK": [65536, 64, 32, 16, 8192, 16384]})
    tuned(np.ones(100, np.float32), device="cuda")
    (tuning,) = tuned.tunings
    notes = {trial.label: trial.note for trial in tuning.trials}
    assert notes["BLOCK=64"] == notes["BLOCK=32"] == notes["BLOCK=16"] == notes["BLOCK=8192"] == ""
    assert re.fullmatch(r"not tried: expected to take \d+\.\d times as long as the best", notes["BLOCK=65536"])
    assert notes["BLOCK=16384"] == "", "slower than the best, but not by so much"
    assert re.search(r"\* BLOCK=64 +1\.0000 ms +1\.00×  expected +\d+\.\d\d µs\n", tuning.table())


def test_what_was_found_is_kept(folder, tried):
    x = np.ones(10, np.float32)
    for _ in range(2):
        tuned = fresh(grow, {"BLOCK": [64, 16]})
        tuned(x, device="sim")
    fresh(grow, {"BLOCK": [16, 64]})(x, device="sim")
    fresh(grow, {"BLOCK": [64, 16], "warps": [1]})(x, device="sim")
    assert tried == [2, 2, 2]
    kept = [entry for entry in get_cache().entries() if entry.kind == "tuning"]
    assert len(kept) == 3
    title = get_cache().peek("tuning", kept[0].key).title
    assert title.startswith("grow on simulator, N≤16: BLOCK=16 warps=1, ")
    shown = io.StringIO()
    cache_cmd.show(get_cache(), kept[-1].key, None, shown)
    assert shown.getvalue() == tuned.tuning()


def test_a_tuning_is_data():
    tuning = Tuning("k", "GPU", "M≤8", "ms", (Trial("a", 2.0, 0.1), Trial("b", 1.0), Trial("c", note="refused: no")), 1, 3.0)
    assert Tuning.from_json(tuning.to_json()) == tuning
    assert tuning.title == "k on GPU, M≤8: b, 1.0000 ms"
    assert tuning.table() == (
        "k on GPU, M≤8 (3 candidates in 3.0 s)\n"
        "* b            1.0000 ms   1.00×\n"
        "  a            2.0000 ms   2.00×\n"
        "  c                               refused: no\n"
    )


@pytest.mark.parametrize(("extent", "up_to"), [(0, 1), (1, 1), (2, 2), (3, 4), (4096, 4096), (4097, 8192)])
def test_classes_of_shapes(extent, up_to):
    assert shape_class({"M": extent, "K": 5}) == f"M≤{up_to} K≤8"


class Clock:
    """A timer for systems whose milliseconds are given by label: the first is what single launches take, the others those of turns."""

    def __init__(self, times):
        self.times, self.log, self.graphs = times, [], set()

    def rest(self, seconds):
        self.log.append("rest")

    def prepare(self, system, count, graph):
        if graph:
            self.graphs.add(system.name)

        def timed():
            self.log.append((system.name, count))
            first, careful = self.times[system.name]
            return first if count == 1 else careful * count

        return timed


def test_on_a_gpu_the_close_ones_take_turns():
    class FakeVariant:
        def __init__(self, ptx):
            self.ptx = ptx

    class FakeCall:
        grid = (1, 1, 1)

        def __init__(self, ptx):
            self.variant = FakeVariant(ptx)

        def bound(self, function, values):
            return lambda stream: None

    clock = Clock({"a": (1.0, 1.2), "b": (1.4, 1.1), "c": (1.6, 0.1), "d": (9, 9)})
    calls = [(FakeCall(label), None) for label in "abc"] + [(FakeCall("a"), None), None]
    refused = TeselaError("too large")
    trials = tuner._timed(list("abcde"), calls, [None] * 4 + [refused], [], float("inf"), Progress("tuning", 1.0), clock)
    assert trials[0] == Trial("a", pytest.approx(1.2)) and trials[1] == Trial("b", pytest.approx(1.1))
    assert trials[2] == Trial("c", 1.6, note="launched once"), "too slow at first sight to be measured with care"
    assert trials[3:] == [Trial("d", note="the same code as a"), Trial("e", note="refused: too large")]
    turns = [entry[0] for entry in clock.log if entry != "rest" and entry[1] > 1]
    assert sorted(set(turns)) == ["a", "b"] and len(turns) == 2 * (tuner.ROUNDS + 1)


@pytest.mark.parametrize(("first", "graphs"), [(0.02, {"a", "b"}), (0.5, {"a", "b"}), (2.0, set())])
def test_short_launches_go_through_graphs(first, graphs):
    """The host takes as long for all of them."""
    calls = [(types.SimpleNamespace(grid=(1, 1, 1), variant=types.SimpleNamespace(ptx=label), bound=lambda *_: lambda stream: None), None) for label in "ab"]
    clock = Clock({"a": (first, first), "b": (first, first)})
    tuner._timed(["a", "b"], calls, [None] * 2, [], float("inf"), Progress("tuning", 1.0), clock)
    assert clock.graphs == graphs


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU whose memory is host memory, and on which a launch of `grow` doubles nothing: it is only counted."""
    state = types.SimpleNamespace(memory={}, launches=[])

    def allocate(nbytes):
        storage = ctypes.create_string_buffer(nbytes + 256)
        address = -(-ctypes.addressof(storage) // 256) * 256
        state.memory[address] = storage
        return address

    def launched(launcher, stream, params):
        state.launches.append(launcher.fixed[1][0])

    def copy(to, source, nbytes):
        ctypes.memmove(to, source, nbytes)

    monkeypatch.setattr(driver, "device_available", lambda: True)
    monkeypatch.setattr(driver, "device", lambda ordinal: driver.Device(ordinal, "Fake GPU", (8, 0), None))
    monkeypatch.setattr(driver, "current_device", lambda: driver.device(0))
    monkeypatch.setattr(driver, "activated", lambda gpu: contextlib.nullcontext())
    monkeypatch.setattr(driver, "multiprocessors", lambda gpu: 4)
    monkeypatch.setattr(driver, "allocate", allocate)
    monkeypatch.setattr(driver, "free", lambda address: state.memory.pop(address) and None)
    for name in ("copy_to_device", "copy_to_host", "copy_on_device"):
        monkeypatch.setattr(driver, name, copy)
    monkeypatch.setattr(driver, "synchronize", lambda stream=None: None)
    monkeypatch.setattr(driver, "Launcher", fake_launcher(launched))
    monkeypatch.setattr(Variant, "function", lambda self, gpu: object())
    times = {"BLOCK=64": (1.0, 1.0), "BLOCK=32": (0.9, 0.5), "BLOCK=16": (5.0, 5.0)}
    monkeypatch.setattr(tuner, "GPU", lambda: LaunchingClock(times))
    return state


class LaunchingClock(Clock):
    """A Clock that launches as well."""

    def prepare(self, system, count, graph):
        timed = super().prepare(system, count, graph)

        def launching():
            for _ in range(count):
                system.run(7)
            return timed()

        return launching


def test_host_arrays_on_a_gpu(fake_gpu):
    tuned = fresh(grow, {"BLOCK": [64, 32, 16]})
    x = np.arange(100, dtype=np.float32)
    tuned(x, device="cuda")
    (tuning,) = tuned.tunings
    assert tuning.title == "grow on Fake GPU, N≤128: BLOCK=32, 0.5000 ms"
    assert fake_gpu.launches[-1] == 4, "the winner's grid"
    assert set(fake_gpu.launches) == {2, 4, 7}
    assert fake_gpu.memory == {}
    np.testing.assert_array_equal(x, np.arange(100))


class OnGPU:
    """An array in the fake GPU's memory, by its interface; `array` is the memory."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": "<f4", "data": (array.ctypes.data, False), "strides": array.strides, "version": 3,
        }  # fmt: skip


def test_arrays_on_a_gpu_get_back_what_they_held(fake_gpu, monkeypatch):
    monkeypatch.setattr(driver, "ordinal_of", lambda address: 0)
    tuned = fresh(grow, {"BLOCK": [64, 32, 16]})
    x = np.arange(90, dtype=np.float32)

    class Writing(LaunchingClock):
        def rest(self, seconds):
            x[:] = -1  # what launches do to it

    monkeypatch.setattr(tuner, "GPU", lambda: Writing({"BLOCK=64": (1, 2), "BLOCK=32": (1, 3), "BLOCK=16": (1, 1)}))
    tuned(OnGPU(x))
    np.testing.assert_array_equal(x, np.arange(90))
    assert tuned.tunings[0].trials[tuned.tunings[0].best].label == "BLOCK=16"
    assert fake_gpu.memory == {} and fake_gpu.launches[-1] == 6
