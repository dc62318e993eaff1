"""Hand-made faulty programs: each is reported as the right kind, at the right lines, under every schedule; and put
right, it is not reported.

A file of `ptx/faults` holds both programs. `//+ TEXT` stands where the right program has TEXT, `X //= TEXT` where it
has TEXT for X, `X //-` where it has nothing. `// first` and `// second` mark the lines of the two accesses of the
report (`// either`: both sides, in whichever order they happened; `// both`: one instruction is both), `// expect:`
names its kind (two, where the order in which they happened decides).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesela.dialects.launch_plan import TensorMap
from tesela.simulator import Memory, Report, judge

FAULTS = sorted((Path(__file__).parent / "ptx" / "faults").glob("*.ptx"))
SCHEDULES: list[dict[str, Any]] = [{"policy": "latest"}, {"policy": "earliest"}, *({"seed": s} for s in range(3))]
MARKS = ("first", "second", "either", "both")


def put_right(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        if line.endswith("//-"):
            continue
        line = re.sub(r"//\+ ", "", line)
        lines.append(re.sub(r"^.*//= ", "", line))
    return "\n".join(lines)


def reports(text: str, **options: Any) -> list[Report]:
    launch = re.search(r"// launch: grid (\d+), block (\d+)", text)
    assert launch is not None
    memory = Memory()
    x = memory.map_array(np.zeros(8129, np.uint32), "x")
    tile = np.zeros((32, 32), np.float32)
    params: list[Any] = [x]
    if "map[128]" in text:
        params.append(TensorMap("f32", memory.map_array(tile, "tile"), (32, 32), (128,), (32, 32), (1, 1), 0))
    grid, block = map(int, launch.groups())
    return judge(text, grid=(grid,), block=(block,), params=params, memory=memory, shared_bytes=16384, **options)


def marked(text: str) -> dict[str, set[int]]:
    """The lines with each mark."""
    found: dict[str, set[int]] = {mark: set() for mark in MARKS}
    for number, line in enumerate(text.split("\n"), 1):
        for mark in MARKS:
            if re.search(rf"// {mark}\b", line):
                found[mark].add(number)
    return found


def fits(report: Report, kind: str, lines: dict[str, set[int]]) -> bool:
    first = report.first.line if report.first is not None else None
    second = report.second.line if report.second is not None else None
    if report.kind not in kind.split(", "):
        return False
    if report.kind == "deadlock":
        return True
    if lines["both"]:
        return {first} == {second} == lines["both"]
    if lines["either"]:
        return {first, second} == lines["either"]
    return (not lines["first"] or first in lines["first"]) and (not lines["second"] or second in lines["second"])


@pytest.mark.parametrize("path", FAULTS, ids=lambda p: p.stem)
def test_faults_are_reported(path: Path) -> None:
    text = path.read_text()
    kind = re.search(r"// expect: (.*)", text)
    assert kind is not None
    for options in SCHEDULES:
        found = reports(text, **options)
        assert any(fits(r, kind[1], marked(text)) for r in found), (
            "\n".join(map(str, found)) or f"nothing under {options}"
        )


@pytest.mark.parametrize("path", FAULTS, ids=lambda p: p.stem)
def test_programs_put_right_are_not(path: Path) -> None:
    text = put_right(path.read_text())
    for options in SCHEDULES:
        assert not [str(r) for r in reports(text, **options)]
