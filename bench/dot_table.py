"""The table of dots: every operand type, stored either way, many widths and K tails, on both targets, against float64.

    python bench/dot_table.py --json bench/results/dots.json              # in the simulator: about half an hour on one core
    python bench/dot_table.py --device cuda --json bench/results/dots-gpu.json

A row is a product C = A·B of one kernel, of random operands whose products fill the accumulator's range. It is right if every element is
within the bound of docs/numbers.md N37 of the product in float64; of integers, if it is equal. With `--device cuda` the rows are shared
among processes, each with a time limit, so that a kernel that hangs costs one process. Exit status 1 if a row is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rounds import environment, write_json

from tesela.dialects.diagnostics import TeselaError
from tesela.runtime.compile import compile

TARGETS = ("sm_90a", "sm_80")
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "ui8": np.uint8,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2, "i32": np.int32,
}  # fmt: skip
TYPES = (
    ("f16", "f16", "f32", ""), ("bf16", "bf16", "f32", ""), ("f16", "f16", "f16", ""), ("f32", "f32", "f32", "tf32"),
    ("f8E4M3FN", "f8E4M3FN", "f32", ""), ("f8E5M2", "f8E5M2", "f32", ""), ("f8E4M3FN", "f8E5M2", "f32", ""), ("f8E5M2", "f8E4M3FN", "f16", ""),
    ("i8", "i8", "i32", ""), ("ui8", "ui8", "i32", ""), ("i8", "ui8", "i32", ""), ("f32", "f32", "f32", ""), ("f64", "f64", "f64", ""),
)  # fmt: skip
"""(left, right, accumulator, precision)."""
WIDTHS = (64, 128, 192, 256, 24, 40, 48, 96)
K_TAILS = ((64, 128), (64, 152), (40, 88))
"""(the tile's K, the product's)."""
ORDERS = (("mk", "nk"), ("mk", "kn"), ("km", "nk"), ("km", "kn"))
"""How A and B are stored: the dimensions from the slowest to the contiguous one. "mk" and "nk" have K contiguous."""
PROCESS_SECONDS = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table; `tile`: its extents M, N, K, `batch` products of them at once."""

    target: str
    lhs: str
    rhs: str
    acc: str
    precision: str
    a: str
    b: str
    tile: tuple[int, int, int]
    k: int
    batch: int = 0

    def __str__(self) -> str:
        kind = f"{self.lhs}·{self.rhs}→{self.acc}" + (f" as {self.precision}" if self.precision else "")
        return f"{self.target} {kind} {self.a} {self.b} {'x'.join(map(str, self.tile))} K {self.k}" + (f" batch {self.batch}" if self.batch else "")


def cases() -> Iterator[Case]:
    """The whole table, and batched products of each type."""
    for target, (lhs, rhs, acc, precision), (a, b), n, (tile_k, k) in product(TARGETS, TYPES, ORDERS, WIDTHS, K_TAILS):
        yield Case(target, lhs, rhs, acc, precision, a, b, (64, n, tile_k), k)
    for target, (lhs, rhs, acc, precision), (a, b) in product(TARGETS, TYPES, ORDERS):
        yield Case(target, lhs, rhs, acc, precision, a, b, (32, 24, 40), 72, 3)


def program(case: Case) -> str:
    """The kernel of a case: one block for each tile of C, a loop over K."""
    size = dict(zip("mnk", case.tile))
    depth = f"{case.batch}x" if case.batch else ""
    start = {"m": "%m", "n": "%n", "k": "%k"}

    def array(element: str, dims: str) -> str:
        extents = "?x" * len(dims) if not case.batch else "?x?x?x"
        return f"memref<{extents}{element}, strided<[{'?, ' * (extents.count('?') - 1)}1]>>"

    def tile_type(element: str, dims: str) -> str:
        return f"tensor<{depth}{'x'.join(str(size[d]) for d in dims)}x{element}>"

    def load(name: str, element: str, dims: str, wanted: str) -> str:
        at = ", ".join([*(["%c0"] if case.batch else []), *(start[d] for d in dims)])
        text = f"%{name}0 = tile.load %{name.upper()}[{at}] : {array(element, dims)} -> {tile_type(element, dims)}\n    "
        if dims == wanted:
            return text.replace(f"%{name}0 =", f"%{name} =")
        order = "[0, 2, 1]" if case.batch else "[1, 0]"
        return text + f"%{name} = tile.transpose %{name}0 {order} : {tile_type(element, dims)} -> {tile_type(element, wanted)}"

    def shape(dims: str) -> str:
        return f"[{', '.join(([str(case.batch)] if case.batch else []) + list(dims.upper()))}]"

    acc = tile_type(case.acc, "mn")
    zero = "0" if case.acc == "i32" else "0.0"
    precision = f'{{precision = "{case.precision}"}} ' if case.precision else ""
    at = "%c0, %m, %n" if case.batch else "%m, %n"
    return f"""
tile.kernel @product(%A: {array(case.lhs, case.a)} {shape(case.a)}, %B: {array(case.rhs, case.b)} {shape(case.b)}, %C: {array(case.acc, "mn")} {shape("mn")})
    dims(%K = K) grid(%bm = M ceildiv {size["m"]}, %bn = N ceildiv {size["n"]}) {{
  %c0 = arith.constant 0 : index
  %tm = arith.constant {size["m"]} : index
  %tn = arith.constant {size["n"]} : index
  %tk = arith.constant {size["k"]} : index
  %m = arith.muli %bm, %tm : index
  %n = arith.muli %bn, %tn : index
  %f0 = arith.constant {zero} : {case.acc}
  %zero = tile.full %f0 : {case.acc} -> {acc}
  %sum = scf.for %k = %c0 to %K step %tk iter_args(%c = %zero) -> ({acc}) {{
    {load("a", case.lhs, case.a, "mk")}
    {load("b", case.rhs, case.b, "kn")}
    %d = tile.dot %a, %b, %c {precision}: {tile_type(case.lhs, "mk")}, {tile_type(case.rhs, "kn")} -> {acc}
    scf.yield %d : {acc}
  }}
  tile.store %sum, %C[{at}] : {acc}, {array(case.acc, "mn")}
}}"""


def operands(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """A and B as they are stored; M and N end inside the tile."""
    m, n, _ = case.tile
    extent = {"m": m - 4, "n": n - 8, "k": case.k}
    rng = np.random.default_rng(case.k + n)

    def one(element: str, dims: str) -> np.ndarray:
        shape = (*([case.batch] if case.batch else []), *(extent[d] for d in dims))
        if element in ("i8", "ui8"):
            ends = np.iinfo(NUMPY[element])
            return rng.integers(ends.min, ends.max + 1, shape).astype(NUMPY[element])
        return rng.standard_normal(shape).astype(NUMPY[element])

    return one(case.lhs, case.a), one(case.rhs, case.b)


def excess(case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """The largest error in units of the bound of N37: right if at most 1. Of integers 0, or infinity."""
    left = a if case.a == "mk" else a.swapaxes(-1, -2)
    right = b if case.b == "kn" else b.swapaxes(-1, -2)
    if case.acc == "i32":
        return 0.0 if np.array_equal(c, left.astype(np.int64) @ right.astype(np.int64)) else np.inf
    left, right = left.astype(np.float64), right.astype(np.float64)
    exact, total = left @ right, np.abs(left) @ np.abs(right)
    keeps = {"f32": 22 if case.precision else 24, "f64": 52, "f16": 22, "bf16": 22}.get(case.lhs, 13)  # float64 itself rounds, too
    bound = (case.k + 1) * 2.0**-keeps * total
    if case.acc == "f16":
        bound = bound + (case.k / 8 + 2) * (2.0**-10 * total + 2.0**-24)
    if case.precision:
        bound = bound + 2.1 * 2.0**-10 * total
    return float(np.max(np.abs(c.astype(np.float64) - exact) / bound))


def run(case: Case, device: str = "sim") -> dict[str, Any]:
    """The case's row: how far off it is, or the error that it raised."""
    a, b = operands(case)
    before = time.perf_counter()
    row: dict[str, Any] = asdict(case) | {"tile": list(case.tile)}
    try:
        kernel = compile(program(case), case.target)
        found = kernel(a, b, device=device)
        row |= {"excess": excess(case, a, b, found), "notes": list(kernel.notes)}
    except TeselaError as error:
        row |= {"excess": np.inf, "error": str(error)}
    return row | {"right": row["excess"] <= 1, "seconds": round(time.perf_counter() - before, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows here")
    parser.add_argument("--device", default="sim", help="sim or cuda (default: sim)")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th row from I on (default: all)")
    parser.add_argument("--processes", type=int, default=0, help="share the rows among so many processes")
    arguments = parser.parse_args()
    if arguments.processes:
        return _share(arguments)
    first, step = map(int, arguments.part.split("/"))
    rows = []
    for case in list(cases())[first::step]:
        if arguments.device != "sim" and case.target == "sm_80" and case.batch == 0 and case.tile[1] in (24, 48, 192):
            continue  # a GPU has the time for a part of the path that is not its own
        rows.append(run(case, arguments.device))
        if not rows[-1]["right"]:
            print(case, rows[-1].get("error", rows[-1]["excess"]), flush=True)
    wrong = sum(not row["right"] for row in rows)
    print(f"{len(rows)} products, {wrong} wrong", flush=True)
    if arguments.json:
        summary = {"rows": len(rows), "wrong": wrong, "seconds": round(sum(row["seconds"] for row in rows), 1)}
        write_json(arguments.json, {"environment": environment(), "device": arguments.device, "part": arguments.part, "summary": summary, "types": _by_types(rows),
                                    "wrong": [row for row in rows if not row["right"]]})  # fmt: skip
    return int(wrong > 0)


def _by_types(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each target and types: how many products, how many were wrong, and the largest error as a part of its bound."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in ("target", "lhs", "rhs", "acc", "precision")), []).append(row)
    return [
        dict(zip(("target", "lhs", "rhs", "acc", "precision"), key))
        | {"products": len(some), "wrong": sum(not row["right"] for row in some), "worst": round(max(row["excess"] for row in some), 4)}
        for key, some in found.items()
    ]


def _share(arguments: argparse.Namespace) -> int:
    """Runs the parts of the table in processes of their own, each with a time limit."""
    command = [sys.executable, __file__, "--device", arguments.device]
    count = arguments.processes
    running = []
    for i in range(count):
        output = ["--json", f"{arguments.json}.{i}"] if arguments.json else []
        running.append(subprocess.Popen([*command, "--part", f"{i}/{count}", *output]))
    limit = time.monotonic() + PROCESS_SECONDS * (2 if arguments.device == "cuda" else 20)
    failed = 0
    for child in running:
        try:
            failed |= child.wait(max(1.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            print("a process ran out of time", flush=True)
            failed = 1
    if arguments.json:
        _merge(arguments.json, count, arguments.device)
    return int(failed != 0)


def _merge(path: str, count: int, device: str) -> None:
    """The results of the processes in one file; `missing` are those that left none."""
    found = {i: json.loads(part.read_text()) for i in range(count) if (part := Path(f"{path}.{i}")).exists()}
    types: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in (line for part in found.values() for line in part["types"]):
        key = tuple(line[name] for name in ("target", "lhs", "rhs", "acc", "precision"))
        known = types.setdefault(key, {**line, "products": 0, "wrong": 0, "worst": 0.0})
        known |= {"products": known["products"] + line["products"], "wrong": known["wrong"] + line["wrong"], "worst": max(known["worst"], line["worst"])}
    summary = {name: round(sum(part["summary"][name] for part in found.values()), 1) for name in ("rows", "wrong", "seconds")}
    missing = [i for i in range(count) if i not in found]
    write_json(path, {"environment": environment(), "device": device, "missing": missing, "summary": summary, "types": list(types.values()),
                      "wrong": [row for part in found.values() for row in part["wrong"]]})  # fmt: skip
    for i in found:
        Path(f"{path}.{i}").unlink()


if __name__ == "__main__":
    sys.exit(main())
