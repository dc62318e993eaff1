"""bench/agree.py as far as it needs no GPU: jobs hold all that a launch needs, and differences are measured and bounded right."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).parent.parent / "bench"
sys.path.insert(0, str(BENCH))

import agree  # noqa: E402

from tesela.dialects.launch_plan import TensorMap  # noqa: E402
from tesela.dialects.ptx_text import read_program  # noqa: E402
from tesela.simulator import Memory, launch  # noqa: E402


@pytest.mark.parametrize(("name", "target"), [("kernels/linear", "sm_90a"), ("kernels/softmax", "sm_80"), ("ptx/gemm_wgmma", "sm_90a")])
def test_a_job_holds_all_that_a_launch_needs(name: str, target: str, tmp_path: Path) -> None:
    """What is written to the file is launched again, elsewhere in memory: it leaves what it left."""
    (file,) = agree.simulate(name, target, str(tmp_path), 0)
    job: agree.Job = pickle.loads(Path(file).read_bytes())
    memory = Memory()
    memory.alloc(12345)
    arrays = [buffer.before.copy() for buffer in job.buffers]
    addresses = [memory._add(array, buffer.low_bits, buffer.name) for array, buffer in zip(arrays, job.buffers)]
    params = []
    for param in job.params:
        if isinstance(param, bytes):
            params.append(int.from_bytes(param, "little"))
        elif len(param) == 2:
            params.append(addresses[param[0]] + param[1])
        else:
            t, number, offset = param
            params.append(TensorMap(t.dtype, addresses[number] + offset, t.dims, t.strides, t.box, t.element_strides, t.swizzle, t.fill))
    launch(read_program(job.ptx), job.entry, job.grid, (job.threads,), params, memory, job.shared, job.cluster)
    assert any((buffer.before != buffer.after).any() for buffer in job.buffers)
    for buffer, array in zip(job.buffers, arrays):
        found = agree.compare(buffer, array, 0.0)
        assert found["agrees"] and found["different"] == 0


def buffer(after: np.ndarray, dtype: str) -> agree.Buffer:
    raw = after.view(np.uint8).reshape(-1)
    return agree.Buffer("x", dtype, np.zeros_like(raw), raw.copy(), 0)


def test_differences_are_bounded() -> None:
    a = np.array([1.0, -4.0, np.nan, 0.5], np.float32)
    b = a.copy()
    b[3] += 2.0**-14  # of a largest magnitude of 4: 2^-16
    b.view(np.uint32)[2] ^= 1  # another NaN
    found = agree.compare(buffer(a, "float32"), b.view(np.uint8), 2.0**-15)
    assert found["different"] == 1 and found["agrees"] and found["largest_difference"] == 2.0**-16
    assert not agree.compare(buffer(a, "float32"), b.view(np.uint8), 0.0)["agrees"]
    b[3] += 2.0**-10
    assert not agree.compare(buffer(a, "float32"), b.view(np.uint8), 2.0**-15)["agrees"]
    b = a.copy()
    b[0] = np.inf
    assert not agree.compare(buffer(a, "float32"), b.view(np.uint8), 2.0**-15)["agrees"]


def test_integers_have_no_bound() -> None:
    a = np.arange(8, dtype=np.int32)
    assert agree.compare(buffer(a, "int32"), a.view(np.uint8), 2.0**-15)["agrees"]
    assert not agree.compare(buffer(a, "int32"), (a + 1).view(np.uint8), 2.0**-15)["agrees"]


def test_inexact_instructions_are_known() -> None:
    def kinds(line: str) -> list[str]:
        text = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{ .reg .b32 %a<9>; .reg .b64 %d; {line} }}"
        return agree.inexact(read_program(text).entries[0])

    assert kinds("ex2.approx.ftz.f32 %a0, %a1;") and kinds("red.global.add.f32 [%d], %a0;")
    assert kinds("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%a0,%a1,%a2,%a3}, {%a0,%a1,%a2,%a3}, {%a4,%a5}, {%a0,%a1,%a2,%a3};")
    assert not kinds("add.rn.f32 %a0, %a1, %a2;") and not kinds("red.global.add.u32 [%d], %a0;") and not kinds("bar.sync 0;")


def bound_of(name: str, target: str) -> float:
    watcher = agree.Inexact()
    with watcher.measuring():
        agree_programs()[name](target)
    return watcher.bounds[0]


def agree_programs() -> dict[str, Any]:
    from judged_programs import PROGRAMS

    return PROGRAMS


def test_bounds_come_from_the_launch() -> None:
    """A product of 13 instructions of k = 16 (K = 200), each of which may lose 17 cuts of the largest term; nothing for a kernel that is exact."""
    chain, cuts = 13, 17
    least = chain * cuts * 2.0**-23
    assert least <= bound_of("ptx/gemm_wgmma", "sm_90a") <= 2 * least
    assert bound_of("kernels/column_sum", "sm_80") == 0
    assert 4 * 2.0**-22 < bound_of("ptx/row_softmax", "sm_80") < 2.0**-16


def test_a_run_ends_in_time_and_says_what_is_left(tmp_path: Path) -> None:
    import time

    start = time.monotonic()
    run = agree.Run([("ptx/vector_add", "sm_80")], 5, 1, 1, 0.2, str(tmp_path))
    run.wait()
    assert time.monotonic() - start < 5
    assert run.left_out == ["ptx/vector_add sm_80", "random programs 0 to 4"]
    assert all(worker.process is None or worker.process.poll() is not None for worker in run._workers)


def test_the_table_in_documents() -> None:
    from tables import agreement_table

    found = {"launches": 3, "launches_bit_for_bit": 2, "launches_within_bounds": 1, "largest_part_of_a_bound": 0.25, "left_out": ["a sm_80"]}
    random = {"the same bits": 5, "both within bounds": 2, "wrong": 1, "refused": 3}
    text = agreement_table({**found, "random_programs": random, "device": "a GPU", "driver": "CUDA 13", "date": "2026-01-01"})
    assert "programs | 3 | 2 | 1 | 0 |" in text and "random tile programs | 8 | 5 | 2 | 1 |" in text
    assert "25% of its bound" in text and "want of time: a sm_80" in text
