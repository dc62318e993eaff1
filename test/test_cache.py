"""runtime/cache.py: entries, damage, locks, the limit, disks that are full; and that a kernel is found again just when nothing it is made of changed."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import cache_programs
import numpy as np
import pytest
from cache_programs import CALL, HELPERS, SCALE, run, start, write_program

import tesela
from tesela.dialects.diagnostics import TeselaError
from tesela.dialects.parsing import parse_module
from tesela.runtime import cache as cache_module
from tesela.runtime.cache import Cache, Entry, default_folder, digest, get_cache, read_entry, write_entry

ENTRY = Entry("a title", {"numbers": [1, 2]}, {"ptx": b"text\nof lines", "cubin": bytes(range(256))})
KEY = digest("some key")

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a cache that is turned on."""
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(caplog):
    """A function that counts compilations since it was called last."""
    caplog.set_level(logging.INFO, "tesela")

    def count() -> int:
        number = sum(record.getMessage().startswith("compiled") for record in caplog.records)
        caplog.clear()
        return number

    return count


# Entries


def test_an_entry_comes_back(tmp_path):
    cache = Cache(tmp_path)
    assert cache.load("variant", KEY) is None
    assert cache.store("variant", KEY, ENTRY)
    assert cache.load("variant", KEY) == ENTRY
    assert cache.load("code", KEY) is None
    assert not list(tmp_path.rglob(".new-*"))
    assert (tmp_path / "variant").stat().st_mode & 0o077 == 0, "machine code is loaded from here"


@pytest.mark.parametrize("at", [0, 20, 90, 200, -1])
def test_a_damaged_entry_is_none_and_goes(tmp_path, caplog, at):
    cache = Cache(tmp_path)
    cache.store("variant", KEY, ENTRY)
    path = cache.path("variant", KEY)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert cache.load("variant", KEY) is None
    assert not path.exists()
    assert f"the cache's entry '{path}' is damaged; it is made anew" in caplog.text


def test_every_truncation_is_seen():
    data = write_entry(ENTRY, "variant", KEY)
    assert read_entry(data, "variant", KEY) == ENTRY
    assert not any(read_entry(data[:length], "variant", KEY) for length in range(len(data)))
    assert read_entry(data + b"\0", "variant", KEY) is None
    assert read_entry(data, "variant", digest("another")) is None, "a file that was renamed"


def test_an_entry_of_another_shape_is_made_anew(tmp_path):
    cache = Cache(tmp_path)
    cache.store("variant", KEY, Entry("t", {"other": 1}, {}))
    found = cache.fetch("variant", KEY, lambda entry: entry.info["value"], lambda: 7, lambda value: Entry("t", {"value": value}, {}))
    assert found == 7 and cache.load("variant", KEY).info == {"value": 7}


def test_the_entries_used_longest_ago_go_first(tmp_path):
    part = {"data": bytes(10_000)}
    cache = Cache(tmp_path, limit=55_000)
    keys = [digest(str(i)) for i in range(6)]
    for age, key in enumerate(keys[:5]):
        cache.store("code", key, Entry("t", None, part))
        os.utime(cache.path("code", key), (1000 + age, 1000 + age))
    cache.load("code", keys[0])  # used just now
    cache.store("code", keys[5], Entry("t", None, part))
    left = {entry.key for entry in cache.entries()}
    assert left == {keys[0], keys[3], keys[4], keys[5]}
    assert sum(entry.nbytes for entry in cache.entries()) <= 0.8 * 55_000


def test_what_killed_writers_left_is_swept(tmp_path):
    cache = Cache(tmp_path)
    cache.store("code", KEY, ENTRY)
    old, new = (cache.path("code", KEY).parent / name for name in (".new-old", ".new-new"))
    for path in (old, new):
        path.write_bytes(b"half an entry")
    os.utime(old, (0, 0))
    assert [entry.key for entry in cache.entries()] == [KEY]
    Cache(tmp_path).store("code", digest("x"), ENTRY)
    assert not old.exists() and new.exists(), "another process may be writing the new one"


def test_clear(tmp_path):
    cache = Cache(tmp_path)
    for kind in ("variant", "code", "code"):
        cache.store(kind, digest(kind, str(time.monotonic_ns())), ENTRY)
    assert cache.clear(("code",)) == 2
    assert [entry.kind for entry in cache.entries()] == ["variant"]
    assert cache.clear() == 1 and cache.entries() == []


def test_a_cache_that_cannot_be_written_warns_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    for _ in range(2):
        assert cache.fetch("code", KEY, lambda entry: entry, lambda: 7, lambda value: ENTRY) == 7
    assert len(caplog.records) == 1
    assert caplog.text.count("the program goes on without the cache (TESELA_CACHE=0 turns it off)") == 1


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch, caplog):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "replace", full)
    cache = Cache(tmp_path)
    assert not cache.store("code", KEY, ENTRY)
    assert "No space left on device" in caplog.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "0")
    assert get_cache() is None
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TESELA_CACHE_MB", "3")
    assert (get_cache().folder, get_cache().limit) == (tmp_path, 3 << 20)
    monkeypatch.setenv("TESELA_CACHE_MB", "much")
    with pytest.raises(TeselaError, match="TESELA_CACHE_MB is 'much', but a number of megabytes is required"):
        get_cache()
    monkeypatch.delenv("TESELA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(default_folder()) == "/somewhere/tesela"


# Locks


def fetch_slowly(folder, made):
    """Fetch a value that takes a while to make; how often it was made is the length of the file `made`."""

    def make() -> int:
        with open(made, "a") as file:
            file.write("x")
        time.sleep(0.2)
        return 7

    found = Cache(folder).fetch("code", KEY, lambda entry: entry.info, make, lambda value: Entry("t", value, {}))
    assert found == 7


def test_of_threads_and_processes_one_makes_an_entry(tmp_path):
    context = multiprocessing.get_context("fork")
    arguments = (tmp_path / "cache", tmp_path / "made")
    workers = [context.Process(target=fetch_slowly, args=arguments) for _ in range(3)]
    workers += [threading.Thread(target=fetch_slowly, args=arguments) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert all(worker.exitcode == 0 for worker in workers[:3])
    assert (tmp_path / "made").read_text() == "x"


def hold(folder, ready):
    with Cache(folder).lock("code", KEY):
        ready.set()
        time.sleep(60)


def test_a_killed_process_holds_no_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(30)
    process.kill()
    process.join(30)
    start_time = time.monotonic()
    with Cache(tmp_path).lock("code", KEY, timeout=20):
        pass
    assert time.monotonic() - start_time < 10


def write_forever(folder, ready):
    cache = Cache(folder)
    for number in range(1_000_000):
        cache.store("code", digest(str(number % 50)), Entry("t", number, {"data": bytes(300_000)}))
        if number == 3:
            ready.set()


def test_a_process_killed_while_it_writes_damages_nothing(tmp_path, caplog):
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        ready = context.Event()
        process = context.Process(target=write_forever, args=(tmp_path, ready))
        process.start()
        assert ready.wait(30)
        process.kill()
        process.join(30)
        cache = Cache(tmp_path)
        entries = cache.entries()
        assert entries and all(cache.load(entry.kind, entry.key) is not None for entry in entries)
    assert "damaged" not in caplog.text


def test_who_waits_too_long_goes_on(tmp_path, caplog):
    cache = Cache(tmp_path)
    with cache.lock("code", KEY), cache.lock("code", KEY, timeout=0.05):
        pass
    assert "another process has been compiling for 0 s; this one goes on by itself" in caplog.text


# Kernels


COPY = """
tile.kernel @copy(%x: memref<?xf32, strided<[1]>> [N], %y: memref<?xf32, strided<[1]>> [N]) grid(%i = N ceildiv 32) {
  %c32 = arith.constant 32 : index
  %n = arith.muli %i, %c32 : index
  %t = tile.load %x[%n] : memref<?xf32, strided<[1]>> -> tensor<32xf32>
  tile.store %t, %y[%n] : tensor<32xf32>, memref<?xf32, strided<[1]>>
}
"""


def test_a_warm_start_imports_neither_xdsl_nor_a_solver(tmp_path):
    """For kernels from Python, from a file and from text; and the machine code is at hand as well."""
    write_program(tmp_path)
    (tmp_path / "copy.mlir").write_text(COPY)
    body = f"""
{CALL}
x = np.arange(4, dtype=np.float32)
for kernel in (tesela.compile("copy.mlir"), tesela.compile({COPY.replace("copy", "again")!r})):
    result += [float(v) for v in kernel(x, device="sim")]
    assert kernel.last.assembled().cubin[:4] == b"\\x7fELF"
"""
    cold, warm = run(tmp_path, body), run(tmp_path, body)
    assert cold["result"] == warm["result"] == [1, 3, 5, 7, 0, 1, 2, 3, 0, 1, 2, 3]
    assert (cold["compiled"], cold["assembled"], cold["xdsl"]) == (3, 2, True)
    assert (warm["compiled"], warm["assembled"], warm["xdsl"], warm["ortools"]) == (0, 0, False, False)


def test_defining_kernels_loads_neither_xdsl_nor_numpy():
    """Also kernels with variants, and tuned ones: examples/gemm.py has some."""
    body = """
import sys, tesela
sys.path.insert(0, "examples")
from gemm import gemm
tesela.autotune({"BM": [64], "warps": [4]})(gemm)
assert gemm.variants
print(*sorted({"numpy", "xdsl", "torch", "ml_dtypes"} & set(sys.modules)))
"""
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(cache_programs.ROOT / "tools" / "typecheck"), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", body], cwd=cache_programs.ROOT, env=settings, text=True, capture_output=True, check=True)
    assert done.stdout.split() == []


def test_what_a_kernel_is_made_of(tmp_path, folder, compiled, monkeypatch):
    """Another helper, global or text is compiled; what the kernel does not read is not."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    changes = [
        (SCALE, HELPERS, [1, 3, 5, 7], 1),
        (SCALE, HELPERS.replace("v * FACTOR", "v - FACTOR"), [-1, 0, 1, 2], 1),
        (SCALE, HELPERS.replace("FACTOR = 2.0", "FACTOR = 3.0"), [1, 4, 7, 10], 1),
        (SCALE.replace("BIAS = 1.0", "BIAS = 0.5"), HELPERS, [0.5, 2.5, 4.5, 6.5], 1),
        (SCALE.replace(" + BIAS", " - BIAS"), HELPERS, [-1, 1, 3, 5], 1),
        (SCALE + "\n\nOTHER = 1\n", HELPERS + "\n\ndef unused():\n    return 1\n", [1, 3, 5, 7], 0),
        (SCALE.replace("from helpers import act", "import helpers").replace("act(", "helpers.act("), HELPERS, [1, 3, 5, 7], 1),
        (SCALE.replace("from helpers import act", "import helpers").replace("act(", "helpers.act("), HELPERS.replace("2.0", "4.0"), [1, 5, 9, 13], 1),
        ("\n" + SCALE, HELPERS, [1, 3, 5, 7], 1),  # places are in the code
        (SCALE, HELPERS, [1, 3, 5, 7], 0),
    ]
    for scale, helpers, result, count in changes:
        write_program(tmp_path, scale, helpers)
        for name in ("scale", "helpers"):
            sys.modules.pop(name, None)
        found = importlib.import_module("scale").scale(np.arange(4, dtype=np.float32), device="sim")
        assert (found.tolist(), compiled()) == (result, count), (scale, helpers)
    for name in ("scale", "helpers"):
        del sys.modules[name]


def test_a_damaged_cache_of_a_kernel_is_rebuilt(tmp_path):
    write_program(tmp_path)
    run(tmp_path)
    entries = Cache(tmp_path / "cache").entries()
    for number, entry in enumerate(entries):
        entry.path.write_bytes(entry.path.read_bytes()[: 100 * number])
    found = run(tmp_path)
    assert found["result"] == [1, 3, 5, 7] and found["compiled"] == 1
    assert sum("is damaged" in line for line in found["lines"]) == len(entries) == 3
    assert run(tmp_path)["compiled"] == 0


def test_sources_are_read_again_only_if_one_changed(folder, monkeypatch):
    from tesela.runtime import cache

    reads = []
    monkeypatch.setattr(cache.Path, "read_bytes", lambda path, whole=Path.read_bytes: reads.append(path.name) or whole(path))
    files = sorted(cache._python_files(ROOT / "passes"))
    assert {Path(path).name for path, _, _ in files} == {path.name for path in (ROOT / "passes").rglob("*.py")}
    first = cache.compiler_fingerprint.__wrapped__()
    count = sum(name.endswith(".py") for name in reads)
    assert count > 100
    assert cache.compiler_fingerprint.__wrapped__() == first
    assert sum(name.endswith(".py") for name in reads) == count
    known = cache._python_files
    monkeypatch.setattr(cache, "_python_files", lambda folder: ((path, size, time + 1) for path, size, time in known(folder)))
    assert cache.compiler_fingerprint.__wrapped__() == first, "other times, the same contents"
    assert sum(name.endswith(".py") for name in reads) == 2 * count


def test_a_full_disk_does_no_harm(tmp_path):
    write_program(tmp_path)
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # a write past 100 bytes fails
    found = run(tmp_path, limit + CALL)
    assert found["result"] == [1, 3, 5, 7] and found["compiled"] == 1
    assert sum("goes on without the cache" in line for line in found["lines"]) == 1
    assert Cache(tmp_path / "cache").entries() == []
    assert run(tmp_path)["compiled"] == 1


def test_threads_and_processes_compile_each_kernel_once(tmp_path):
    """Two processes with eight threads each call two kernels, through objects of their own, at the same time."""
    write_program(tmp_path)
    (tmp_path / "copy.mlir").write_text(COPY)
    body = """
from scale import scale
result, ready = {}, threading.Barrier(8)
def call(i):
    ready.wait()
    x = np.arange(4, dtype=np.float32) + i
    copy = tesela.compile("copy.mlir")
    result[i] = [float(v) for v in (*scale(x, device="sim"), *copy(x, device="sim"))]
    copy.last.assembled()
threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    processes = [start(tmp_path, body) for _ in range(2)]
    found = [cache_programs.finish(process) for process in processes]
    for report in found:
        for i in range(8):
            x = np.arange(4) + i
            assert report["result"][str(i)] == [*(2 * x + 1), *x]
    assert sum(report["compiled"] for report in found) == 2
    assert sum(report["assembled"] for report in found) == 1
    assert not any("damaged" in line for report in found for line in report["lines"])


F32, N = tesela.f32, tesela.dims("N")
SHIFT = 1.0


def make(factor):
    @tesela.kernel
    def shifted(x: tesela.Array[F32, N], y: tesela.Array[F32, N]):
        i = tesela.grid(tesela.ceildiv(N, 32)) * 32
        y[i : i + 32] = x[i : i + 32] * factor + SHIFT

    return shifted


def test_closures_are_part_of_the_key(folder, compiled):
    x = np.ones(8, np.float32)
    for factor, count in ((2.0, 1), (3.0, 1), (2.0, 0)):
        np.testing.assert_array_equal(make(factor)(x, device="sim"), factor + np.ones(8))
        assert compiled() == count, factor


def test_what_gives_the_same_program_is_not_compiled_again(folder, compiled):
    """An integer that meets a tile of f32 is the same constant: the first key differs, the second does not."""
    x = np.ones(8, np.float32)
    make(2.0)(x, device="sim")
    make(2)(x, device="sim")
    assert compiled() == 1
    assert sorted(entry.kind for entry in get_cache().entries()) == ["program", "program", "variant"]


def test_a_captured_value_that_changes_while_the_program_runs(folder, compiled, monkeypatch):
    """Also for a program that came from the cache, and was never traced in this process."""
    x = np.ones(8, np.float32)
    make(2.0)(x, device="sim")
    kernel = make(2.0)
    np.testing.assert_array_equal(kernel(x, device="sim"), np.full(8, 3))
    assert compiled() == 1
    monkeypatch.setitem(make.__globals__, "SHIFT", 5.0)
    np.testing.assert_array_equal(kernel(x, device="sim"), np.full(8, 7))
    assert compiled() == 1


def test_a_kernel_whose_sources_changed_behind_it(folder, monkeypatch):
    """Its contract came from the cache; another variant needs the program itself, which is another one now."""
    x = np.ones(8, np.float32)
    make(2.0)(x, device="sim")
    kernel = make(2.0).compile()
    kernel(x, device="sim")
    monkeypatch.setitem(make.__globals__, "SHIFT", 5.0)
    with pytest.raises(TeselaError, match="shifted: what the kernel is made from has changed since it was compiled"):
        kernel(np.ones(9, np.float32), device="sim")


def test_another_compiler_finds_nothing(folder, compiled, monkeypatch):
    x = np.ones(8, np.float32)
    make(2.0)(x, device="sim")
    monkeypatch.setattr("tesela.runtime.compile.compiler_fingerprint", lambda: "another")
    make(2.0)(x, device="sim")
    assert compiled() == 2


def test_modules_in_memory_are_known_by_their_ir(folder, compiled):
    for _ in range(2):
        tesela.compile(parse_module(COPY)).variant()
    tesela.compile(COPY, cached=False).variant()
    assert compiled() == 2
    assert [entry.kind for entry in get_cache().entries()] == ["variant"]


def test_what_dumps_is_compiled_anew(folder, compiled, tmp_path, monkeypatch):
    tesela.compile(COPY).variant()
    monkeypatch.setenv("TESELA_DUMP", str(tmp_path / "dump"))
    tesela.compile(COPY).variant()
    assert compiled() == 2 and (tmp_path / "dump" / "copy.sm_90a.0.ptx").exists()


def test_pins_and_facts_are_part_of_the_key(folder, compiled):
    for pins, threads in ((None, 128), ({"warps": 8}, 256), ({"warps": 8}, 256)):
        assert tesela.compile(COPY, pins=pins).variant().plan.threads == threads
    assert compiled() == 2
    tesela.compile(COPY).variant(np.ones(16, np.float32))
    assert compiled() == 1


def test_strict_judges_what_the_cache_holds(folder, monkeypatch):
    """The log is kept, not the verdict: a warning of one call is an error of another that is strict."""
    variant = tesela.compile(COPY).variant()
    monkeypatch.setattr("tesela.runtime.assemble.read_resources", lambda log: {})
    assert variant.assembled().messages == []
    (entry,) = [entry for entry in get_cache().entries() if entry.kind == "code"]
    stored = get_cache().load("code", entry.key)
    get_cache().store("code", entry.key, Entry("t", {**stored.info, "log": "ptxas info : (C7510) Potential Performance Loss"}, stored.parts))
    assert [message.severity for message in tesela.compile(COPY).variant().assembled().messages] == ["warning"]
    with pytest.raises(TeselaError, match="ptxas C7510: Potential Performance Loss"):
        tesela.compile(COPY, strict=True).variant().assembled()


def test_what_may_be_pinned():
    with pytest.raises(TeselaError, match="'warp' cannot be pinned\n  hint: what can: warps, stages"):
        tesela.compile(COPY, pins={"warp": 4})
    with pytest.raises(TeselaError, match="warps is pinned to 0, but a positive integer is required"):
        tesela.compile(COPY, pins={"warps": 0})
