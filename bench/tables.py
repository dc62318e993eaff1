"""Tables in Markdown from benchmark results, written between marks in a document.

    python bench/tables.py README.md              # rewrites the tables in place
    python bench/tables.py README.md --check      # exit status 1 if they are not what the results say

A mark names the results file, relative to the document, and what to show: `<!-- bench results/gemm.json tflops -->` begins a table and
`<!-- end bench -->` ends it. What can be shown: `ms`, `us`, `tflops`, `gbps`; with `/NAME` after it every figure is also divided by that
system's (`tflops/cuBLAS`); `launch`, of what `launch_overhead.py` measured; `compile`, of what
`compile_time.py` did; `mutants`, of what `mutants.py` counted; `agreement`, of what `agree.py` compared; `dots`, of what `dot_table.py` multiplied; `first_call` and `warm_start`, of what these measured; and
`counters`, of what `counters.py` counted. A system that failed shows as `failed`; the best of each row is set in bold. In the place of results that are not there
stands how they are made.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

MARK = re.compile(r"(<!-- bench (?P<file>\S+) (?P<shown>\S+) -->\n).*?(<!-- end bench -->)", re.DOTALL)
UNITS = {"ms": "ms", "us": "µs", "tflops": "TFLOP/s", "gbps": "GB/s"}


def figure(entry: dict[str, Any], quantity: str) -> float:
    """A system's figure in the asked quantity. Raises KeyError where the results lack it."""
    return entry["ms"] * 1e3 if quantity == "us" else entry[quantity]


def text_of(value: float) -> str:
    """At least three significant digits, without an exponent.

    >>> [text_of(v) for v in (0.01234, 1.234, 12.34, 123.4, 12345.6)]
    ['0.0123', '1.23', '12.3', '123', '12346']
    """
    if value >= 100:
        return f"{value:.0f}"
    if value >= 1:
        return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{value:.3g}"


def table(results: dict[str, Any], shown: str) -> str:
    """The results as a Markdown table and a line that says where and how they were measured."""
    if shown in MADE:
        return MADE[shown](results)
    quantity, _, base = shown.partition("/")
    if quantity not in UNITS:
        raise ValueError(f"cannot show '{quantity}': one of {', '.join(UNITS)} is required")
    names = list(dict.fromkeys(name for row in results["rows"] for name in (*row["systems"], *row["failed"])))
    lines = [f"| {UNITS[quantity]} | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    better = max if quantity in ("tflops", "gbps") else min
    for row in results["rows"]:
        figures = {name: figure(entry, quantity) for name, entry in row["systems"].items()}
        best = better(figures.values(), default=0.0)
        cells = []
        for name in names:
            if name not in figures:
                cells.append("failed" if name in row["failed"] else "")
                continue
            cell = text_of(figures[name])
            cell = f"**{cell}**" if figures[name] == best and len(figures) > 1 else cell
            if base in figures and name != base:
                cell += f" ({figures[name] / figures[base]:.2f}×)"
            cells.append(cell)
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    lines += ["", " ".join([f"{where(results)}; {results['method']}.", *results.get("notes", [])])]
    return "\n".join(lines) + "\n"


def where(results: dict[str, Any]) -> str:
    """Where and when it was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"{results['device']}, {results['driver']}; {versions}; {results['date']}"


def launch_table(results: dict[str, Any]) -> str:
    """Host time of a launch by system, and what is above a raw launch."""
    times = {row["system"]: row["us"] for row in results["rows"]}
    raw = times["raw cuLaunchKernel"]
    lines = ["| a launch | µs | above raw |", "|---|---|---|"]
    lines += [f"| {name} | {text_of(us)} | {us - raw:+.1f} |" for name, us in times.items()]
    lines += ["", f"{where(results)}; median of batches of {results['calls']} launches, systems in turns."]
    return "\n".join(lines) + "\n"


def compile_table(results: dict[str, Any]) -> str:
    """Milliseconds from a Python function to PTX by kernel and target, with the parts that take longest, and of the assembler after it."""
    lines = ["| ms | to PTX | budget | trace | layouts | other passes | to instructions, text | assemble |", "|---|---|---|---|---|---|---|---|"]
    emitted = ("tile-to-ptx", "overlap-waits", "assign-registers", "emit")
    for row in results["rows"]:
        times = dict(row["ms"])
        total, assemble = times.pop("total"), times.pop("assemble", None)
        trace, layouts = times.pop("trace", 0.0), times.pop("infer-layouts", 0.0)
        text = sum(times.pop(name, 0.0) for name in emitted)
        parts = (total, row["budget"], trace, layouts, sum(times.values()), text)
        cells = " | ".join(f"{part:.0f}" for part in parts)
        lines.append(f"| {row['kernel']}, {row['target']} | {cells} | {f'{assemble:.0f}' if assemble is not None else ''} |")
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines += ["", f"{versions}; {results['date']}; medians of {results['repeat']}."]
    return "\n".join(lines) + "\n"


def mutants_table(results: dict[str, Any]) -> str:
    """Mutants by kind of fault: how many were planted, reported as the right kind, and cannot do harm; and how many faults were no mutants, since they
    change nothing at their own place."""
    lines = ["| fault | mutants | reported | can do no harm | missed | passed over |", "|---|---|---|---|---|---|"]
    passed = results["passed_over"]
    kinds = {**results["kinds"], "all": results["outcomes"]}
    for kind, found in kinds.items():
        total, reported, harmless = sum(found.values()), found.get("reported", 0), found.get("equivalent", 0)
        over = sum(passed.values()) if kind == "all" else passed.get(kind, 0)
        lines.append(f"| {kind} | {total} | {reported} | {harmless} | {total - reported - harmless} | {over} |")
    raw, matter = results["reported_of_all"], results["reported_of_those_not_equivalent"]
    programs, counted = len(results["programs"]), results["programs_with_passed_over_counted"]
    in_these = "" if counted == programs else f" (counted in {counted} of the programs)"
    lines += [
        "",
        f"{raw:.1%} of all mutants are reported as the right kind, {matter:.1%} of those that can matter; {programs} programs, {results['date']}. "
        f"Passed over{in_these}: faults that change nothing at their own place on the arguments at hand, which are no mutants.",
    ]
    return "\n".join(lines) + "\n"


def agreement_table(results: dict[str, Any]) -> str:
    """The simulator against a GPU: launches of the repository's programs, and random ones, by how far they agree."""
    exact, within = results["launches_bit_for_bit"], results["launches_within_bounds"]
    random = results["random_programs"]
    count = sum(random.values())
    same, allowed = random.get("the same bits", 0), random.get("both within bounds", 0)
    undecided = random.get("refused", 0) + random.get("undecided", 0)
    lines = ["| | compared | the same bits | within bounds | disagree |", "|---|---|---|---|---|"]
    lines.append(f"| launches of the repository's programs | {results['launches']} | {exact} | {within} | {results['launches'] - exact - within} |")
    lines.append(f"| random tile programs | {count - undecided} | {same} | {allowed} | {count - undecided - same - allowed} |")
    lines += ["", f"The largest difference is {results['largest_part_of_a_bound']:.0%} of its bound. {results['device']}, {results['driver']}; {results['date']}."]
    if results["left_out"]:
        lines.append(f"Not compared, for want of time: {', '.join(results['left_out'])}.")
    return "\n".join(lines) + "\n"


def dots_table(results: dict[str, Any]) -> str:
    """The table of dots: for each types and target how many products, and the largest error as a part of its bound."""
    names = list(dict.fromkeys(line["target"] for line in results["types"]))
    found: dict[str, dict[str, str]] = {}
    for line in results["types"]:
        kind = f"{line['lhs']}·{line['rhs']} → {line['acc']}" + (f", {line['precision']}" if line["precision"] else "")
        wrong = f", **{line['wrong']} wrong**" if line["wrong"] else ""
        found.setdefault(kind, {})[line["target"]] = f"{line['products']}{wrong}; " + ("exact" if line["acc"] == "i32" and not wrong else f"{line['worst']:.1%}")
    lines = [f"| products; worst | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    lines += [f"| {kind} | {' | '.join(cells.get(name, '') for name in names)} |" for kind, cells in found.items()]
    environment = results["environment"]
    place = f"{environment['device']}, {environment['driver']}" if results["device"] == "cuda" else "in the simulator"
    lines += ["", f"{results['summary']['rows']} products, {results['summary']['wrong']} wrong; {place}; {environment['date']}."]
    return "\n".join(lines) + "\n"


def first_call_table(results: dict[str, Any]) -> str:
    """Milliseconds from a kernel that nothing is known of to its first result, by system, and the parts of ours."""
    parts = list(dict.fromkeys(part for row in results["rows"] for part in row["ms"] if part != "total"))
    lines = [f"| ms | first call | {' | '.join(parts)} |", "|---|---|" + "---|" * len(parts)]
    for row in results["rows"]:
        cells = [f"{row['ms'][part]:.0f}" if part in row["ms"] else "" for part in parts]
        lines.append(f"| {row['system']} | {row['ms']['total']:.0f} | {' | '.join(cells)} |")
    lines += ["", f"{where(results)}; medians of {results['repeat']}."]
    return "\n".join(lines) + "\n"


def warm_start_table(results: dict[str, Any]) -> str:
    """Milliseconds from the start of a process to the first result of a kernel that the disk cache knows, part by part."""
    parts = list(dict.fromkeys(part for row in results["rows"] for part in row["ms"]))
    lines = [f"| ms | {' | '.join(parts)} |", "|---|" + "---|" * len(parts)]
    for row in results["rows"]:
        lines.append(f"| {row['kernel']} | {' | '.join(format(row['ms'][part], '.0f') for part in parts)} |")
    lines += ["", f"{where(results)}; medians of {results['repeat']}."]
    return "\n".join(lines) + "\n"


def counters_table(results: dict[str, Any]) -> str:
    """What a GPU counted, and whether the simulator counts the same; and what large arrays took."""
    lines = ["| | shared loads, wavefronts | shared stores, wavefronts | global loads, sectors | global stores, sectors | conflicts of wgmma | the simulator |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in (row for row in results["rows"] if row["agree"] is not None):
        gpu = row["gpu"]
        cells = [f"{gpu[what]:.0f}" if what in gpu else "" for what in (*row["compared"], "wgmma, conflicts")]
        said = "the same" if row["agree"] else "; ".join(f"{what}: {row['simulator'].get(what, 0)}" for what in row["differing"]) or "not counted"
        lines.append(f"| {row['case']} | {' | '.join(cells)} | {said} |")
    lines += ["", "| | µs | GB/s of DRAM | L2 hits | warps resident | registers |", "|---|---|---|---|---|---|"]
    for row in (row for row in results["rows"] if row["agree"] is None):
        gpu = row["gpu"]
        rate = (gpu["DRAM bytes read"] + gpu["DRAM bytes written"]) / gpu["time, ns"]
        lines.append(f"| {row['case']} | {gpu['time, ns'] / 1e3:.0f} | {rate:.0f} | {gpu['L2 hits, %']:.0f} % | {gpu['warps resident, %']:.0f} % | {gpu['registers']:.0f} |")
    lines += ["", f"{where(results)}; under ncu, clocks as they are, caches cold."]
    return "\n".join(lines) + "\n"


MADE = {
    "launch": launch_table,
    "compile": compile_table,
    "mutants": mutants_table,
    "agreement": agreement_table,
    "dots": dots_table,
    "first_call": first_call_table,
    "warm_start": warm_start_table,
    "counters": counters_table,
}
"""What is shown otherwise than as systems side by side."""


def rewrite(document: Path) -> str:
    """The document's text with every marked table made anew."""

    def make(match: re.Match[str]) -> str:
        file = document.parent / match["file"]
        if not file.exists():
            return f"{match[1]}Not recorded yet: `python bench/all.py --part {file.stem}` on a GPU does it.\n{match[4]}"
        results = json.loads(file.read_text())
        return f"{match[1]}{table(results, match['shown'])}{match[4]}"

    return MARK.sub(make, document.read_text())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a table is not up to date")
    arguments = parser.parse_args(argv)
    stale = [path for path in arguments.documents if rewrite(path) != path.read_text()]
    for path in stale:
        if arguments.check:
            sys.stderr.write(f"{path}: tables are not what the results say; run: python bench/tables.py {path}\n")
        else:
            path.write_text(rewrite(path))
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
