"""Results of the measuring method (`tesela.runtime.measure`: systems take turns) with where and when they were measured.

Ratios within one run count; absolute figures differ by some per cent between machines of one kind.

    results = Results("gemm")
    case = Case("8192x8192x8192", [System("tesela", run_ours), System("cuBLAS", run_theirs)], flops=2 * 8192**3)
    results.add(measure(case, GPU()))
    results.write("results/gemm.json")

A system's `run(stream)` launches it once on a CUDA stream (an integer). Results are plain data (`Results.to_json`): device, driver,
versions and date beside every sample; `tables.py` makes tables of them.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import platform
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tesela.runtime import driver
from tesela.runtime.measure import (
    GPU,
    GRAPH_MILLISECONDS,
    REST_SECONDS,
    ROUNDS,
    Case,
    Measured,
    Row,
    System,
    Timer,
    measure,
    rotated,
)

__all__ = ["GPU", "Case", "Measured", "Results", "Row", "System", "Timer", "environment", "measure", "need_torch", "rotated", "write_json"]

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ("dialects", "passes", "lowering", "simulator", "runtime", "frontend", "kernels")
PACKAGES = ("tesela", "xdsl", "numpy", "torch", "triton", "cuda-bindings", "nvidia-cuda-nvcc")


@dataclass
class Results:
    """All rows of one benchmark, with where and when they were measured."""

    name: str
    rows: list[Row] = field(default_factory=list)
    rounds: int = ROUNDS
    notes: list[str] = field(default_factory=list)
    known: list[dict[str, Any]] = field(default_factory=list)
    """Rows of an earlier run, which stand before those of this one."""
    arguments: list[dict[str, str]] = field(default_factory=list)

    def resume(self, path: Path) -> set[str]:
        """Take over the rows of a results file, if it measured the same code on the same device by the same method; the arguments of the cases that are done then."""
        try:
            data = json.loads(path.read_text())
        except FileNotFoundError:
            return set()
        mine = self.to_json()
        if any(data.get(key) != mine[key] for key in ("benchmark", "code", "device", "method")):
            return set()
        self.known = [row for row in data["rows"] if "arguments" in row]
        return {row["arguments"] for row in self.known}

    def add(self, row: Row, arguments: str | None = None) -> Row:
        """`arguments` name the case for `resume`."""
        self.rows.append(row)
        self.arguments.append({} if arguments is None else {"arguments": arguments})
        return row

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            **environment(),
            "method": f"median of {self.rounds} rounds in rotating order, {REST_SECONDS} s of rest before each turn; by CUDA graphs where a launch takes less than {GRAPH_MILLISECONDS} ms",
            "notes": self.notes,
            "rows": [*self.known, *(row.to_json() | named for row, named in zip(self.rows, self.arguments, strict=True))],
        }

    def write(self, path: str | Path) -> None:
        """Write as JSON; makes the folder."""
        write_json(path, self.to_json())


def need_torch() -> Any:
    """torch; ends the program with what to do where it is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        raise SystemExit("this benchmark compares with torch, which is not installed: pip install torch") from None
    return torch


def write_json(path: str | Path, data: Any) -> None:
    """Write data as a results file; makes the folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def environment() -> dict[str, Any]:
    """Device, driver, versions of what takes part, date: what a figure depends on."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found: dict[str, Any] = {"device": "no GPU", "driver": "no driver"}
    if driver.device_available():
        found = {"device": driver.current_device().name, "driver": "CUDA {}.{}".format(*driver.driver_version())}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {**found, "versions": versions, "date": date, "code": code()}


@cache
def code() -> str:
    """What is measured, in twelve digits: a hash of the package's files, which is there where git is not."""
    hashed = hashlib.sha256()
    for folder in MEASURED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            hashed.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:12]
