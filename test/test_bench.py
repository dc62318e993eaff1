"""bench/: the measuring method over a stand-in clock, tables from results, compile times, and the runner of checks on a GPU."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tesela.runtime.assemble import find_ptxas

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture(autouse=True)
def bench_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def load(name):
    return importlib.import_module(name)


class Clock:
    """A timer whose systems take the milliseconds that their name says, slower by a tenth in each further turn."""

    def __init__(self):
        self.log: list[tuple] = []
        self.turns: dict[str, int] = {}

    def rest(self, seconds):
        self.log.append(("rest", seconds))

    def prepare(self, system, count, graph):
        def timed():
            self.log.append((system.name, count, graph))
            system.run(0)
            if count == 1:
                return float(system.name)
            self.turns[system.name] = self.turns.get(system.name, 0) + 1
            return count * float(system.name) * (1 + 0.1 * self.turns[system.name])

        return timed


def test_systems_take_turns_with_rests():
    rounds = load("rounds")
    clock = Clock()
    case = rounds.Case("c", [rounds.System(name, lambda stream: None) for name in ("2.0", "0.05")], flops=4e9, nbytes=1e9, graph=True)
    row = rounds.measure(case, clock, rounds=3, rest=0.5)
    turns = clock.log[-3 * 2 * 3 :]
    assert [entry[0] for entry in turns if entry[0] != "rest" and entry[1] > 1] == ["2.0", "0.05", "2.0", "0.05", "2.0", "0.05"]
    assert turns[:3] == [("rest", 0.5), ("2.0", 1, False), ("2.0", 10, True)]
    assert turns[3:6] == [("rest", 0.5), ("0.05", 1, False), ("0.05", 40, True)], "short launches come 40 at a time"
    assert row.systems["2.0"].samples == pytest.approx((2.4, 2.6, 2.8))
    data = row.to_json()["systems"]["2.0"]
    assert data["ms"] == pytest.approx(2.6)
    assert data["tflops"] == pytest.approx(4e9 / 2.6e-3 / 1e12)
    assert data["gbps"] == pytest.approx(1e9 / 2.6e-3 / 1e9)
    assert data["spread"] == pytest.approx(0.2 / 2.6, abs=1e-4)


@pytest.mark.parametrize(("names", "graph", "expected"), [(("0.12", "5.0"), None, True), (("1.5", "2.0"), None, False), (("0.12",), False, False), (("5.0",), True, True)])
def test_short_launches_go_through_graphs_so_that_the_host_is_not_timed(names, graph, expected):
    rounds = load("rounds")
    clock = Clock()
    rounds.measure(rounds.Case("c", [rounds.System(name, lambda stream: None) for name in names], graph=graph), clock, rounds=1)
    assert {entry[2] for entry in clock.log if entry[0] != "rest" and entry[1] > 1} == {expected}, "all systems of a case alike"


def test_a_system_that_cannot_be_captured_is_reported():
    rounds = load("rounds")

    class Capturing(Clock):
        def prepare(self, system, count, graph):
            if graph and system.name == "0.2":
                raise RuntimeError("operation not permitted when stream is capturing")
            return super().prepare(system, count, graph)

    row = rounds.measure(rounds.Case("c", [rounds.System(name, lambda stream: None) for name in ("0.2", "0.3")]), Capturing(), rounds=1)
    assert row.failed == {"0.2": "RuntimeError: operation not permitted when stream is capturing"} and list(row.systems) == ["0.3"]


def test_the_order_rotates():
    rotated = load("rounds").rotated
    orders = [rotated("abc", number) for number in range(6)]
    assert {order[0] for order in orders} == set("abc") and {order[-1] for order in orders} == set("abc")
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert rotated([], 3) == []


def test_a_system_that_fails_is_reported_and_the_others_go_on():
    rounds = load("rounds")

    def broken(stream):
        raise RuntimeError("no such kernel\nmore")

    row = rounds.measure(rounds.Case("c", [rounds.System("1.0", broken), rounds.System("3.0", lambda stream: None)]), Clock(), rounds=2)
    assert row.failed == {"1.0": "RuntimeError: no such kernel"}
    assert list(row.systems) == ["3.0"]


def results(rounds, tmp_path):
    found = rounds.Results("gemm")
    found.add(rounds.Row("8192", {"ours": rounds.Measured((1.0, 1.5, 2.0)), "cuBLAS": rounds.Measured((3.0,))}, flops=3e12))
    found.add(rounds.Row("16", {"cuBLAS": rounds.Measured((0.004,))}, flops=1e9, failed={"ours": "TeselaError: no"}))
    found.write(tmp_path / "results" / "gemm.json")
    return found


def test_results_hold_what_figures_depend_on(tmp_path):
    rounds = load("rounds")
    results(rounds, tmp_path)
    data = json.loads((tmp_path / "results" / "gemm.json").read_text())
    assert data["benchmark"] == "gemm" and data["versions"]["numpy"] and len(data["date"]) == 10
    assert data["rows"][0]["systems"]["ours"]["samples"] == [1.0, 1.5, 2.0]
    assert data["rows"][1]["failed"] == {"ours": "TeselaError: no"}


def test_tables_in_documents(tmp_path, capsys):
    rounds, tables = load("rounds"), load("tables")
    results(rounds, tmp_path)
    document = tmp_path / "README.md"
    document.write_text("# Speed\n<!-- bench results/gemm.json tflops/cuBLAS -->\nold\n<!-- end bench -->\nend\n")
    assert tables.main([str(document), "--check"]) == 1
    assert "tables are not what the results say" in capsys.readouterr().err
    assert tables.main([str(document)]) == 0
    lines = document.read_text().split("\n")
    assert lines[2:6] == [
        "| TFLOP/s | ours | cuBLAS |",
        "|---|---|---|",
        "| 8192 | **2000** (2.00×) | 1000 |",
        "| 16 | failed | 250 |",
    ]
    assert lines[-3:] == ["<!-- end bench -->", "end", ""]
    assert tables.main([str(document), "--check"]) == 0
    with pytest.raises(ValueError, match="cannot show 'km'"):
        tables.table(json.loads((tmp_path / "results" / "gemm.json").read_text()), "km")


def test_compile_times_have_all_parts():
    module = load("compile_time")
    from tesela.lowering.pipeline import PIPELINE

    times = module.medians("add", "sm_80", 1)
    assert list(times) == ["trace", "specialize", *PIPELINE, "emit", "total", *(["assemble"] if find_ptxas() else [])]
    assert times["total"] >= sum(ms for part, ms in times.items() if part not in ("total", "assemble")) * 0.99
    assert all(ms >= 0 for ms in times.values())


FAKE_CHILD = """
import json, os, sys, time
for line in sys.stdin:
    check = json.loads(line)
    n = check["shape"][0]
    if n == 1: time.sleep(60)
    if n == 2: os._exit(9)
    print("a library's banner")
    print(json.dumps({"status": "error" if n == 3 else "ok", "message": "CUDA", "pid": os.getpid()}), flush=True)
"""


def test_checks_survive_hangs_and_deaths(tmp_path, monkeypatch):
    module = load("gpu_check")
    fake = tmp_path / "fake_child.py"
    fake.write_text(FAKE_CHILD)
    monkeypatch.setattr(module, "__file__", str(fake))
    runner = module.Runner(limit=0.5, start_limit=2.0)
    outcomes = [runner.run(module.Check("add", "sm_80", (n,))) for n in (0, 0, 1, 0, 2, 0, 3, 0)]
    runner.stop()
    assert [outcome["status"] for outcome in outcomes] == ["ok", "ok", "timeout", "ok", "died", "ok", "error", "ok"]
    pids = [outcome.get("pid") for outcome in outcomes]
    assert pids[0] == pids[1] and len({pids[0], pids[3], pids[5], pids[7]}) == 4


def test_checks_cover_both_targets_and_all_small_gemms():
    module = load("gpu_check")
    every = list(module.checks(quick=False))
    assert len(set(every)) == len(every)
    gemms = {(check.target, check.shape) for check in every if check.kernel == "gemm" and check.form == "torch" and check.source == "mlir"}
    assert sum(1 for _, shape in gemms if max(shape) <= 300 and set(shape) <= set(module.SMALL)) == 2 * 216
    assert {("sm_90a", (8192, 8192, 8192)), ("sm_80", (8192, 8192, 8192))} <= gemms
    assert set(module.checks(quick=True)) != set(every)


def test_warm_starts_by_part(monkeypatch):
    """A warm start takes less than a cold one, and imports no compiler: the benchmark fails where it does."""
    monkeypatch.setenv("TESELA_CACHE", "1")
    times = load("warm_start").measure("sim", "add", 1)
    assert list(times) == ["interpreter", "numpy", "import tesela", "define kernels", "first call", "ours", "cold first call"]
    assert 0 < times["first call"] < times["ours"] and times["first call"] < times["cold first call"]


def test_scripts_state_their_usage():
    for name in ("tables", "compile_time", "gpu_check", "gemm_sizes", "peers", "gemm_schedules", "overlapping", "launch_overhead", "first_call", "warm_start"):
        with pytest.raises(SystemExit) as caught:
            load(name).main(["--help"])
        assert caught.value.code == 0


def teardown_module():
    for name in ("rounds", "tables", "compile_time", "gpu_check", "gemm_sizes", "peers", "gemm_schedules", "overlapping", "launch_overhead", "first_call", "warm_start"):
        sys.modules.pop(name, None)


def test_the_choice_is_compared_with_the_best():
    variants, rounds = load("variants"), load("rounds")
    from tesela.dialects.work import Estimate
    from tesela.runtime.variants import Choice, Row

    labels = {name: Row(Choice(number), name, Estimate(1980.0, 1.0, 1, 1, "compute")) for number, name in enumerate(("A", "B"))}
    measured = {name: rounds.Measured((ms,)) for name, ms in (("A", 2e-3), ("B", 1e-3), ("chosen", 1.05e-3))}
    text, good = variants.show(rounds.Row("4×4", measured, flops=1e6), labels, "B")
    assert good and "chosen B, best B: 1.050×" in text and "expected     1.00, bound by compute" in text
    text, good = variants.show(rounds.Row("4×4", measured | {"chosen": measured["A"]}, flops=1e6), labels, "A")
    assert not good and "chosen A, best B: 2.000×" in text
    assert not variants.show(rounds.Row("4×4", measured, flops=1e6, failed={"C": "wrong"}), labels, "B")[1]


def test_layout_choices_are_ranked_and_pinned():
    """The solver's own choice comes first, and every way that is listed can be pinned."""
    module = load("layout_choices")
    text = module.PROGRAM.read_text()
    found = module.ways(text, "sm_90a")
    assert found[0].text == "wgmma m64n256k16 2x1 shared" and len(found) > 8
    assert [way.cost for way in found] == sorted(way.cost for way in found)
    for way in found[:2]:
        assert f'instruction = "{way.text}"' in module.pinned(text, way)


def test_results_go_on_where_they_ended(tmp_path):
    """Rows of the same code, device and method are taken over; of another none."""
    rounds = load("rounds")
    path = tmp_path / "r.json"
    first = rounds.Results("r", rounds=3)
    first.add(rounds.Row("a", {}), "8x8")
    first.write(path)
    again = rounds.Results("r", rounds=3)
    assert again.resume(path) == {"8x8"}
    again.add(rounds.Row("b", {}), "9x9")
    again.write(path)
    assert [row["case"] for row in json.loads(path.read_text())["rows"]] == ["a", "b"]
    assert rounds.Results("r", rounds=5).resume(path) == set()
    assert rounds.Results("r", rounds=3).resume(tmp_path / "none.json") == set()
    path.write_text(path.read_text().replace(rounds.code(), "0" * 12))
    assert rounds.Results("r", rounds=3).resume(path) == set()


def test_all_parts_are_recorded_once(tmp_path, monkeypatch, capsys):
    every = load("all")
    script = tmp_path / "script.py"
    script.write_text("import pathlib, sys\nprint('ran', sys.argv[1])\npathlib.Path(sys.argv[1]).write_text('{}')\nsys.exit(int(sys.argv[2]))\n")
    parts = (every.Part("good", (str(script), "{json}", "0"), 1), every.Part("bad", (str(script), "{json}", "1"), 1), every.Part("long", (str(script), "{json}", "0"), 1e9))
    monkeypatch.setattr(every, "PARTS", parts)
    folder, packed = tmp_path / "results", tmp_path / "new" / "r.tgz"
    assert every.main(["--folder", str(folder), "--seconds", "60", "--tar", str(packed)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "left to do: bad, long"
    assert sorted(path.name for path in folder.iterdir()) == ["bad.json", "good.json", "log.txt", "parts.json"]
    with tarfile.open(packed) as tar:
        assert sorted(tar.getnames()) == ["bad.json", "good.json", "log.txt", "parts.json"]
    assert every.main(["--folder", str(folder), "--part", "good"]) == 0
    assert "good: done before" in capsys.readouterr().out
    monkeypatch.setattr(every, "code", lambda: "another")
    assert every.main(["--folder", str(folder), "--part", "good"]) == 0
    assert "good: ended with 0" in capsys.readouterr().out


def test_every_part_is_a_script_that_takes_its_arguments():
    every = load("all")
    for part in every.PARTS:
        text = (BENCH / part.command[0]).read_text()
        assert all(f'"{word}"' in text for word in part.command if word.startswith("--")), part.name
    assert {part.name for part in every.PARTS if part.command[0] == "peers.py"} <= set(re.findall(r'^    "(\w+)": \(', (BENCH / "peers.py").read_text(), re.MULTILINE))


def test_the_fastest_configuration_takes_part():
    tuning = load("triton_tuning")

    def make(config):
        if config["BM"] == 512:
            raise ValueError("too large")
        return lambda: config["BM"]

    launch, said = tuning.tuned([{"BM": 512}, {"BM": 128}, {"BM": 64}], make, lambda launch: launch())
    assert (launch(), said) == (64, "BM=64")
    with pytest.raises(ValueError, match="too large"):
        tuning.tuned([{"BM": 512}], make, lambda launch: launch())


def test_counters_that_differ_are_named():
    counters = load("counters")
    names = [name for metrics in counters.COMPARED.values() for name in metrics]
    expected = dict.fromkeys(counters.COMPARED, 0)
    seen = dict.fromkeys((*names, *counters.MEASURED.values()), "0") | {"Kernel Name": "k"}
    assert counters.row_of("c", seen, expected)["agree"]
    wrong = counters.row_of("c", seen | {names[0]: "1,024"}, expected)
    assert (wrong["agree"], wrong["differing"]) == (False, ["shared loads, wavefronts"])
    assert not counters.row_of("c", seen | {counters.MEASURED[counters.WGMMA_CONFLICTS]: "3"}, expected)["agree"]
    assert counters.row_of("c", seen | {names[0]: "n/a"}, expected)["not_counted"] == ["shared loads, wavefronts"]


def test_a_table_without_results_says_how_they_are_made(tmp_path):
    document = tmp_path / "d.md"
    document.write_text("<!-- bench none/fp8.json tflops -->\nold\n<!-- end bench -->\n")
    assert "python bench/all.py --part fp8" in load("tables").rewrite(document)
def test_random_loops_are_counted_and_few_cover_all(tmp_path, monkeypatch, capsys):
    """What a run found, resumed from its file; the few programs that cover as much; and that what is missing fails a whole run."""
    random_loops = load("fuzz_loops")
    names = sorted(random_loops.REQUIRED)
    ran: list[int] = []

    def piece(number: int) -> dict[str, object]:
        ran.append(number)
        forms = [f"{1 << seed % len(names):x}" for seed in range(number * random_loops.PIECE, (number + 1) * random_loops.PIECE)]
        covered = dict.fromkeys(names, 1)
        return {"piece": number, "seconds": 1.0, "wrong": [], "covered": covered, "forms": " ".join(forms)}

    monkeypatch.setattr(random_loops, "piece", piece)
    monkeypatch.setattr(random_loops, "ProcessPoolExecutor", lambda processes: ThreadPoolExecutor(1))
    file = tmp_path / "loops.json"
    common = ["fuzz_loops.py", "--programs", str(4 * random_loops.PIECE), "--json", str(file)]
    monkeypatch.setattr(sys, "argv", [*common, "--part", "0/2"])
    assert random_loops.main() == 0 and ran == [0, 2]
    assert "not covered: " in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", common)
    assert random_loops.main() == 0 and ran == [0, 2, 1, 3]
    found = json.loads(file.read_text())
    assert found["programs"] == 4 * random_loops.PIECE and found["missing"] == []
    assert len(found["covering"]) == random_loops.COVERED_TIMES * len(names)
    monkeypatch.setattr(random_loops, "LEAST", 5)
    assert random_loops.main() == 1
