"""The runtime on a GPU: cached kernels in a new process, exported ones, tuning, profiles, operators of torch."""

from __future__ import annotations

import threading
from pathlib import Path

import cache_programs
import ml_dtypes
import numpy as np
import pytest

import tesela
from tesela.runtime import driver
from tesela.runtime.arrays import DeviceArray
from tesela.runtime.profile import peaks

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parent.parent / "examples"
F32, BF16, M, N, K = tesela.f32, tesela.bf16, *tesela.dims("M N K")


@tesela.kernel(flops="2 * M * N * K")
def gemm(A: tesela.Array[BF16, M, K], B: tesela.Array[BF16, N, K], C: tesela.Array[F32, M, N], BM: tesela.constexpr, BN: tesela.constexpr):
    i, j = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(N, BN))
    acc = tesela.zeros((BM, BN), F32)
    for k in tesela.range(0, K, 64):
        acc += A[i * BM : i * BM + BM, k : k + 64] @ B[j * BN : j * BN + BN, k : k + 64].T
    C[i * BM : i * BM + BM, j * BN : j * BN + BN] = acc


@tesela.kernel
def double(x: tesela.Array[F32, N], BLOCK: tesela.constexpr):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    x[i : i + BLOCK] = x[i : i + BLOCK] * 2.0


def matrices(m, n, k):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    return a, b, a.astype(np.float32) @ b.astype(np.float32).T


def test_a_warm_process_launches_without_the_compiler(tmp_path):
    cache_programs.write_program(tmp_path)
    body = cache_programs.CALL.replace('device="sim"', 'device="cuda"')
    cold, warm = cache_programs.run(tmp_path, body), cache_programs.run(tmp_path, body)
    assert cold["result"] == warm["result"] == [1, 3, 5, 7]
    assert (cold["compiled"], cold["assembled"], cold["xdsl"]) == (1, 1, True)
    assert (warm["compiled"], warm["assembled"], warm["xdsl"]) == (0, 0, False)


def test_an_exported_kernel_runs(tmp_path):
    kernel = tesela.compile(EXAMPLES / "gemm.mlir")
    kernel.warmup((256, 128), (256, 128))
    kernel.export(tmp_path / "gemm")
    loaded = tesela.load_kernel(tmp_path / "gemm")
    for m, n, k in ((256, 256, 128), (100, 50, 77)):
        a, b, wanted = matrices(m, n, k)
        np.testing.assert_allclose(loaded(a, b, device="cuda"), wanted, rtol=1e-3, atol=1e-2)


def test_tuning(tmp_path, monkeypatch):
    monkeypatch.setenv("TESELA_CACHE", "1")
    monkeypatch.setenv("TESELA_CACHE_DIR", str(tmp_path))
    space = {"BM": [128, 64], "BN": [128, 64], "stages": [4, 50]}
    tuned = tesela.autotune(space, budget=20)(gemm)
    a, b, wanted = matrices(512, 512, 256)
    np.testing.assert_allclose(tuned(a, b, device="cuda"), wanted, rtol=1e-3, atol=1e-2)
    (tuning,) = tuned.tunings
    assert (tuning.device, tuning.unit, tuning.shapes) == (driver.current_device().name, "ms", "M≤512 K≤256 N≤512")
    costs = [trial.cost for trial in tuning.trials if trial.cost is not None]
    assert len(costs) >= 4 and tuning.trials[tuning.best].cost == min(costs) > 0
    assert "refused: the buffers take" in tuned.tuning()
    again = tesela.autotune(space, budget=20)(gemm)
    again(a, b, device="cuda")
    assert again.tunings == tuned.tunings


def test_tuning_gives_back_what_is_written_in_place():
    tuned = tesela.autotune({"BLOCK": [256, 1024]}, budget=5)(double)
    x = DeviceArray((5000,), "f32", driver.current_device().ordinal)
    start = np.arange(5000, dtype=np.float32)
    driver.copy_to_device(x.view.address, start.ctypes.data, start.nbytes)
    tuned(x)
    np.testing.assert_array_equal(x.numpy(), 2 * start)


def test_profiles():
    kernel = gemm.compile(BM=128, BN=128)
    a, b, _ = matrices(1024, 1024, 1024)
    kernel(a, b, device="cuda")
    with tesela.profile() as p:
        for _ in range(3):
            kernel(a, b, device="cuda")
    assert [one.label for one in p.launches] == ["gemm M=1024 K=1024 N=1024"] * 3
    assert all(0 < (one.milliseconds or 0) < 100 for one in p.launches)
    assert p.launches[0].flops == 2 * 1024**3 and p.launches[0].nbytes == 1024 * 1024 * (2 + 2 + 4)
    flops, nbytes = peaks(driver.current_device().ordinal)
    assert nbytes > 1e11 and (flops is None or flops > 1e13)
    assert " %" in str(p).splitlines()[1]


def test_an_operator_of_torch():
    torch = pytest.importorskip("torch")
    op = tesela.compile(EXAMPLES / "softmax.mlir").as_torch_op("tesela_gpu_test::softmax")
    x = torch.randn(64, 500, device="cuda")
    for function in (op, torch.compile(lambda x: op(x), backend="eager", fullgraph=True)):
        torch.testing.assert_close(function(x), torch.softmax(x, 1), rtol=1e-5, atol=1e-6)


def integers(torch, *shape):
    """Small integers in bf16, whose products and sums are exact."""
    return torch.randint(-4, 5, shape, device="cuda").to(torch.bfloat16)


def test_split_reductions_on_many_streams():
    """Launches that overlap in time have workspaces of their own; each result is right, and the same bit for bit in each run."""
    torch = pytest.importorskip("torch")
    a, b = integers(torch, 200, 8192), integers(torch, 300, 8192)
    wanted = a.float() @ b.float().T
    random = torch.randn(200, 8192, device="cuda").to(torch.bfloat16), torch.randn(300, 8192, device="cuda").to(torch.bfloat16)
    for parts, tile in ((2, (64, 64)), (7, (128, 128)), (16, (128, 256))):
        kernel = gemm.compile(BM=tile[0], BN=tile[1], pins={"split": parts})
        streams = [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()
        results = []
        for _ in range(10):
            for stream in streams:
                with torch.cuda.stream(stream):
                    results.append(kernel(a, b))
        torch.cuda.synchronize()
        assert all(torch.equal(result, wanted) for result in results), (parts, tile)
        first = kernel(*random)
        assert all(torch.equal(kernel(*random), first) for _ in range(20)), (parts, tile)


def test_split_reductions_in_graphs():
    """Captured on a stream that has launched before and on one that has not; graphs run beside each other, and beside launches."""
    torch = pytest.importorskip("torch")
    a, b = integers(torch, 100, 8192), integers(torch, 100, 8192)
    wanted = a.float() @ b.float().T
    kernel = gemm.compile(BM=64, BN=64, pins={"split": 8})
    kernel(a, b)
    outputs = [torch.zeros(100, 100, device="cuda") for _ in range(3)]
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph, output in zip(graphs, outputs):
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(4):
                kernel(a, b, output)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(20):
        torch.cuda.synchronize()
        for output in outputs:
            output.zero_()
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            kernel(a, b, outputs[2])
        torch.cuda.synchronize()
        assert all(torch.equal(output, wanted) for output in outputs)


@pytest.mark.parametrize("shape", [(16, 7168, 7168), (1, 4096, 8192), (128, 256, 16384), (1000, 1000, 1000), (4000, 4104, 4040), (64, 64, 65536)])
def test_calls_that_choose(shape):
    """Whatever a call takes is right."""
    torch = pytest.importorskip("torch")
    m, n, k = shape
    a, b = integers(torch, m, k), integers(torch, n, k)
    from tesela.tools.sources import python_kernel

    chosen = python_kernel(EXAMPLES / "gemm.py")
    assert torch.equal(chosen(a, b), a.float() @ b.float().T)


def torch_matrices(torch, m, n, k, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(*shape, device="cuda", generator=generator).bfloat16() for shape in ((m, k), (n, k)))


def test_launchers_of_torch_tensors():
    """Later calls go through generated launchers: new memory, other shapes, views, tensors changed in place, streams, left-out outputs."""
    torch = pytest.importorskip("torch")
    kernel = gemm.compile(BM=128, BN=128)
    for seed, (m, n, k) in enumerate([(256, 128, 64), (256, 128, 64), (100, 72, 96), (256, 128, 64), (128, 128, 128), (100, 72, 96)] * 2):
        a, b = torch_matrices(torch, m, n, k, seed)
        wanted = a.float() @ b.float().T
        torch.testing.assert_close(kernel(a, b), wanted, rtol=1e-3, atol=1e-2)
        c = torch.empty_like(wanted)
        kernel(a, b, C=c)
        torch.testing.assert_close(c, wanted, rtol=1e-3, atol=1e-2)
    a, b = torch_matrices(torch, 128, 128, 256)
    c = torch.empty(128, 128, device="cuda")
    side = torch.cuda.Stream()
    for view in (a, a[:, 64:128].contiguous(), a[:, :64], a[:, 3:67], a):
        other = b[:, : view.shape[1]]
        side.wait_stream(torch.cuda.current_stream())
        c.zero_()
        side.wait_stream(torch.cuda.current_stream())
        kernel(view, other, c, stream=side)
        torch.cuda.current_stream().wait_stream(side)
        torch.testing.assert_close(c, view.float() @ other.float().T, rtol=1e-3, atol=1e-2)
        with torch.cuda.stream(side):
            kernel(view, other, c.zero_())
        side.synchronize()
        torch.testing.assert_close(c, view.float() @ other.float().T, rtol=1e-3, atol=1e-2)
    a.set_(a[:64].clone())
    with pytest.raises(tesela.TeselaError, match="M = 128, but A has M = 64"):
        kernel(a, b, c)
    assert "a0.data_ptr()" in kernel.launcher_source


def test_torch_has_the_guard_and_launches_take_the_same_way_on_a_gpu():
    torch = pytest.importorskip("torch")
    from tesela.runtime import torch_guard

    x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    guard = torch_guard.guard([x])
    assert guard is not torch_guard.accepts_nothing
    assert guard(y) and not guard(y.cpu()) and not guard(torch.zeros(65, device="cuda"))


def test_threads_launch_side_by_side():
    """Eight threads on streams of their own, each with its own arrays and scalars' blocks."""
    torch = pytest.importorskip("torch")
    kernel = double.compile(BLOCK=256)
    arrays = [torch.full((1000,), float(number + 1), device="cuda") for number in range(8)]
    torch.cuda.synchronize()
    failed = []

    def work(number):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(10):
                    kernel(arrays[number])
        except Exception as error:  # noqa: BLE001 - a thread's error is the test's
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not failed
    for number, array in enumerate(arrays):
        assert array.eq((number + 1) * 1024.0).all(), number


def test_a_captured_graph():
    torch = pytest.importorskip("torch")
    kernel = double.compile(BLOCK=256)
    x = torch.ones(1000, device="cuda")
    kernel(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x)
        kernel(x)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert x.eq(2.0**7).all()


def test_another_context_is_current():
    """A launch without a context, in a thread that has none, takes the long way once and is right."""
    torch = pytest.importorskip("torch")
    kernel = double.compile(BLOCK=256)
    x = torch.ones(1000, device="cuda")
    kernel(x)
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: (driver.check(driver.api().cuCtxSetCurrent(0), "leaving the context"), kernel(x, stream=0)))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert x.eq(4.0).all()
