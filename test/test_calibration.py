"""The machine's costs are those that `bench/calibrate.py` measured, and its probes are programs that assemble."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tesela.dialects.ptx_isa import UNITS
from tesela.passes.machine_costs import MEASURED
from tesela.runtime.assemble import assemble, find_ptxas

BENCH = Path(__file__).parent.parent / "bench"
sys.path.insert(0, str(BENCH))

from calibration_probes import probes, summary, text  # noqa: E402

CALIBRATION = json.loads((BENCH / "results" / "calibration.json").read_text())


@pytest.mark.parametrize("name", MEASURED)
def test_constants_are_those_of_the_committed_run(name):
    value, figure, tolerance = MEASURED[name]
    assert value == pytest.approx(CALIBRATION["figures"][figure]["value"], rel=tolerance)


def test_the_run_is_whole():
    assert CALIBRATION["failed"] == {} and "H200" in CALIBRATION["device"]
    found = CALIBRATION["figures"]
    assert {figure for _, figure, _ in MEASURED.values()} <= set(found)
    for probe in probes():
        if probe.blocks == 1 and not probe.every_multiprocessor:
            expected = probe.figures([[1000 + i for i in range(probe.clocks)]], 1.0)
            assert set(expected) <= set(found), probe.name


def test_names_are_probes_once():
    names = [probe.name for probe in probes()]
    assert len(names) == len(set(names))


def test_figures_from_clocks():
    """A batch of four wgmma and then one always under way: 567 clocks, of which 4·128 are work."""
    (probe,) = (probe for probe in probes() if probe.name == "wgmma_n256")
    figures = probe.figures([[4 * 567, 512 * 128]], 1.0)
    assert figures["wgmma_n256_clocks"] == 128 and figures["wgmma_n256_macs_per_clock"] == 2048 and figures["wgmma_n256_drain"] == 55
    assert summary([{"a": 1.0}, {"a": 5.0}, {"a": 2.0}]) == {"a": {"value": 2.0, "least": 1.0, "most": 5.0}}


@pytest.mark.skipif(not find_ptxas(), reason="no ptxas")
@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_probes_assemble_and_keep_their_work(probe):
    """Nothing is spilled or serialised; what is counted is in the text, and stays since its results may be stored."""
    assembled = assemble(text(probe), "sm_90a", line_info=False)
    assert assembled.messages == [] and assembled.spills == 0


def test_the_instruction_table_says_the_same():
    """Whole clocks of one warp's instruction on a quarter of the multiprocessor, and latencies."""
    figures = {name: figure["value"] for name, figure in CALIBRATION["figures"].items()}
    for unit, rate in (("fma", "fma"), ("mufu", "ex2"), ("cvt", "convert"), ("shuffle", "shuffle")):
        assert UNITS[unit].issue == round(32 / (figures[f"{rate}_lanes_per_clock"] / 4)), unit
    for unit, figure in (("tma", "tma_l2_mean"), ("wgmma", "wgmma_n64_batch"), ("barrier", "bar_sync_256_clocks")):
        assert UNITS[unit].latency == pytest.approx(figures[figure], rel=0.03), unit
    assert UNITS["wgmma"].issue == round(figures["wgmma_n64_clocks"])
