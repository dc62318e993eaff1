"""What editors and type checkers see of the kernel language: kernels check without complaint, and mistakes are found where they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYRIGHT = Path(sys.executable).parent / "pyright"

RIGHT = '''
import math
import tesela
from tesela import Array, Channel, Tile, bf16, f32, i32, index
from tesela.kernels import elementwise

M, N, K = tesela.dims("M N K")
T = tesela.dtype("T")


@tesela.function
def relu(x: Tile) -> Tile:
    return tesela.maximum(x, 0)


@tesela.kernel
def everything(
    x: Array[bf16, M, N], w: Array[T, N, K], idx: Array[i32, M], counts: Array[i32, 16], y: Array[f32, M, K], scale: f32, n: index,
    BM: tesela.constexpr = 64, ACT: tesela.constexpr = relu, FLAG: tesela.constexpr = False,
):
    tesela.assume(N % 8 == 0)
    i, j = tesela.grid(tesela.ceildiv(M, BM), tesela.ceildiv(K, 64))
    acc = tesela.zeros((BM, 64), f32)
    rows = idx[i * BM : i * BM + BM]
    for k in tesela.range(0, N, 64):
        acc += x[rows, k : k + 64] @ w[k : k + 64, j * 64 : j * 64 + 64].to(bf16)
    total = 0.0
    for s in tesela.static_range(3):
        total += acc.sum() * s
    if FLAG:
        acc = tesela.where(acc > 0, acc, -math.inf)
    old = tesela.atomic_add(counts[rows & 15], 1)
    a, b = tesela.split(tesela.join(acc, acc))
    assert acc.max() < 1e30, "overflow"
    print("block", i, acc[:, None].shape, old.sum(), tesela.histogram(rows, 16).argmax(0))
    z = tesela.inline_ptx("ex2.approx.ftz.f32 $0, $1;", a + b, result=f32)
    m = i32(i) if total > 0 else i32(n)
    while m > 3:
        m = m - 1
    y[i * BM : i * BM + BM, j * 64 : j * 64 + 64] = ACT(z * scale).to(y.dtype) + f32(m)
    tesela.store(y, (i, j), tesela.load(y, (i, j), (BM, 64), fill=0.0).T)


@tesela.function
def then(first, second):
    return first[0] * second[0], second[0] * first[1] + second[1]


@tesela.function
def fill(ch: Channel, x: Array[bf16, M, N], m: index) -> None:
    for k in tesela.range(0, N, 64):
        ch.put(x[m : m + 64, k : k + 64], copy="tma")


@tesela.kernel(pins={"stages": 2})
def by_hand(x: Array[bf16, M, N], y: Array[f32, M, N], z: Array[f32, M]):
    m = tesela.grid(tesela.ceildiv(M, 64)) * 64
    ch = tesela.channel((64, 64), bf16, depth=3)
    with tesela.role("work", warps=4):
        for k in tesela.range(0, N, 64):
            with ch.get() as a:
                decay, drive = tesela.associative_scan(then, (a.to(f32), a.to(f32)), axis=1, reverse=True)
                y[m : m + 64, k : k + 64] = decay + drive
                z[m : m + 64] = tesela.reduce(then, (decay, drive), 1)[1]
    with tesela.role("load", warps=4):
        fill(ch, x, m)


kernel = everything.compile("sm_90a", T=bf16)
print(kernel.ptx, kernel.resources.registers, everything.ir())
elementwise.add([1], [2], BLOCK=64, device="sim")
'''

WRONG = '''
import tesela
from tesela import Array, f32

N = tesela.dims("N")


@tesela.kernel
def mistakes(x: Array[f32, N]):
    a = tesela.zeross((4,), f32)  # wrong
    b = tesela.zeros((4,))  # wrong
    c = x[0:4].summ()  # wrong
    d = tesela.atomic_add(x[0])  # wrong
    e = tesela.inline_ptx("neg.f32 $0, $1;", x[0:4])  # wrong
    ch = tesela.channel((4, 4))  # wrong
    good = tesela.channel((4, 4), f32)
    good.puts(x[0:4])  # wrong
    good.put(x[0:4], copy="dma")  # wrong
    with good as f:  # wrong
        pass
    tesela.associative_scan(max, a)  # wrong
    tesela.role("load", warp=4)  # wrong
    for i in tesela.range():  # wrong
        tesela.store(x, i, b, dim=0)  # wrong


mistakes.compiled("sm_80")  # wrong
'''


@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not installed")
@pytest.mark.parametrize("text", [RIGHT, WRONG], ids=["right", "wrong"])
def test_a_type_checker_knows_the_language(text, tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(text)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / "tools" / "typecheck")], "pythonVersion": "3.11"}))
    found = subprocess.run([str(PYRIGHT), "--outputjson", "-p", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    errors = [d for d in json.loads(found.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    lines = [d["range"]["start"]["line"] for d in errors]
    wrong = [number for number, line in enumerate(text.splitlines()) if line.endswith("# wrong")]
    assert sorted(set(lines)) == wrong, "\n".join(f"{d['range']['start']['line']}: {d['message']}" for d in errors)
