"""The model of a loop's time: its numbers where they can be worked out by hand, and the drawings of it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import tesela
from tesela.kernels.attention import attention
from tesela.lowering.pipeline import lower_to
from tesela.passes.explain_loops import COLUMNS, describe, svg
from tesela.passes.loop_timing import LoopTiming, time_loops
from tesela.passes.machine_costs import COPY_BYTES_PER_CLOCK, DOT_DRAIN, USUAL_COPY_LATENCY
from tesela.runtime.kernel import Kernel
from tesela.runtime.specialize import specialize, usual_facts
from tesela.tools.cli import main
from tesela.tools.sources import compile_source

GEMM = Path(__file__).parent.parent / "examples" / "gemm.mlir"


def timings(kernel: Kernel, target: str = "sm_90a") -> list[LoopTiming]:
    module = specialize(kernel.module, kernel.name, usual_facts(kernel.contract))
    lower_to(module, "schedule", target)
    return time_loops(module)


def gemm(tmp_path: Path, attributes: str = "", target: str = "sm_90a") -> LoopTiming:
    text = GEMM.read_text().replace("%bn = N ceildiv 256) {", f"%bn = N ceildiv 256){attributes} {{")
    path = tmp_path / "gemm.mlir"
    path.write_text(text)
    (timing,) = timings(compile_source(path, target, None), target)
    return timing


def test_gemm_is_bound_by_the_tensor_cores(tmp_path):
    """128·256·64 multiplications, 2048 a clock; 48 KiB of copies."""
    timing = gemm(tmp_path)
    assert timing.work["tensor"] == 1024 == pytest.approx(timing.interval)
    assert timing.work["copies"] == pytest.approx(49152 / COPY_BYTES_PER_CLOCK)
    assert timing.optimal and timing.limit == "tensor cores" and timing.groups == 2
    assert timing.chain == 512  # a warpgroup's dots add to one accumulator, one after another


def test_one_stage_shows_the_latency(tmp_path):
    """Copy, wait, multiply, wait: each trip takes all of it, and the drain of the dot, which must end before its slot is filled again."""
    timing = gemm(tmp_path, " attributes {stages = 1 : i64}")
    apart = 49152 / COPY_BYTES_PER_CLOCK + USUAL_COPY_LATENCY["tma"] + 1024 + DOT_DRAIN
    assert apart <= timing.interval <= apart + 50
    assert not timing.optimal
    assert "not proven optimal, the gap is" in describe(timing)


def test_stages_never_hurt(tmp_path):
    intervals = [round(gemm(tmp_path, f" attributes {{stages = {stages} : i64}}").interval, 6) for stages in (1, 2, 3, 4)]
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[-1] < intervals[0]


def test_attention_hides_the_softmax():
    found = timings(tesela.compile(attention, "sm_90a", T=tesela.bf16, HEAD=128, BM=128, BN=128))
    assert found
    for timing in found:
        assert timing.work["tensor"] == 2048
        assert timing.work["sfu"] == pytest.approx(128 * 128 / 16, rel=0.05)  # an exp2 of each score, few others
        assert timing.bound <= timing.interval < timing.work["tensor"] + timing.work["sfu"]


def test_text_and_picture(tmp_path):
    timing = gemm(tmp_path)
    text = describe(timing)
    rows = {line.strip().split("  ")[0]: line for line in text.splitlines()}
    assert "1024 clocks a trip; tensor cores 100 %, TMA 46 %" in text
    assert "%a_channel 4 × 16384 bytes; %b_channel 4 × 32768 bytes; accumulators of 128 registers a thread" in text
    assert rows["tensor cores"].count("a") >= COLUMNS  # one letter for both warpgroups, all the time
    used = sum(rows["TMA"].count(letter) for letter in "bc")
    assert 0.4 * COLUMNS <= used <= 0.5 * COLUMNS
    picture = ElementTree.fromstring(svg(timing))
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any("async.dot, 512 clocks" in (title or "") for title in titles)


def test_copies_by_the_threads_themselves(tmp_path):
    """On sm_80 a dot is no more than an instruction of the stream that waits for it."""
    timing = gemm(tmp_path, target="sm_80")
    assert timing.work["tensor"] == 2048
    assert timing.interval >= timing.bound
    text = describe(timing)
    assert "TMA" not in text and re.search(r"^  copies +[a-z]", text, re.MULTILINE)


def test_explain_shows_and_draws_it(tmp_path, capsys):
    assert main(["explain", str(GEMM), "--target", "sm_90a", "--svg", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"\n\nLoops\n.*gemm\.mlir:\d+:3 loop: 1024 clocks a trip; tensor cores 100 %", text)
    assert [path.name for path in tmp_path.iterdir()] == ["gemm-1.svg"]
    ElementTree.parse(tmp_path / "gemm-1.svg")
    assert main(["explain", str(GEMM), "--svg", str(tmp_path / "new" / "folder")]) == 0
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["gemm-1.svg"]
    (tmp_path / "file").touch()
    assert main(["explain", str(GEMM), "--svg", str(tmp_path / "file")]) == 1
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_loop_without_dots_and_channels_says_so(tmp_path, capsys):
    assert main(["explain", str(GEMM.parent / "softmax.mlir"), "--svg", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert len(re.findall(r"softmax\.mlir:\d+:\d+ loop: it takes nothing from channels and has no dots", out)) == 2
    assert "no timeline to draw" in err and not any(tmp_path.iterdir())
