"""check-async walks past the numbers that a program compares its counters and sizes with: what happens there only is found, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tesela import TeselaError
from tesela.dialects.diagnostics import Emitter
from tesela.passes.base import PassContext
from tesela.passes.check_async import CheckAsync
from tesela.tools.sources import python_kernel

HEAD = """import tesela
from tesela import Array, f32
M, L = tesela.dims("M L")

@tesela.kernel
def k(A: Array[f32, M, L], C: Array[f32, M, 16]):
    m = tesela.grid(tesela.ceildiv(M, 16)) * 16
    p = tesela.channel((16, 16), f32, depth=1)
"""
ROLES = """    with tesela.role("load", warps=4):
        for i in tesela.range(0, {loaded}, 16):
            p.put(A[m : m + 16, i : i + 16])
    with tesela.role("add", warps=4):
        acc = tesela.zeros((16, 16), f32)
        for i in tesela.range(0, {added}, 16):
            acc = acc + p.get()
            {release}
        {after}
        C[m : m + 16, 0:16] = acc
"""
ALONE = """    acc = tesela.zeros((16, 16), f32)
    n = 0
    for i in tesela.range(0, L, 16):
        p.put(A[m : m + 16, i : i + 16])
        acc = acc + p.get()
        n = n + 1
        {release}
    C[m : m + 16, 0:16] = acc
"""


def roles(loaded: str = "L", added: str = "L", release: str = "p.release()", after: str = "pass") -> str:
    return HEAD + ROLES.format(loaded=loaded, added=added, release=release, after=after)


FAULTS = {
    "not given back in the eleventh trip": roles(release="if i != 160:\n                p.release()"),
    "got once more where the size is large": roles(after="if L > 512:\n            acc = acc + p.get()\n            p.release()"),
    "more loaded than added beyond a size": roles(added="tesela.minimum(L, 512)"),
    "less loaded than added beyond a size": roles(loaded="tesela.minimum(L, 512)"),
    "not given back by a count": HEAD + ALONE.format(release="if n < 10:\n            p.release()"),
    "not given back by a quotient": HEAD + ALONE.format(release="if i // 16 < 11:\n            p.release()"),
    "not given back by a remainder": HEAD + ALONE.format(release="if i % 176 < 160:\n            p.release()"),
    "not given back by a larger count": HEAD + ALONE.format(release="if n < 40:\n            p.release()"),
    "not given back by a quotient of larger parts": roles(release="if i // 64 < 11:\n                p.release()"),
    "not given back by a shift": roles(release="if i >> 6 < 11:\n                p.release()"),
    "not given back from a sum of numbers on": roles(release="if abs(i - 640) < 160 or i < 700:\n                p.release()"),
    "not given back after hundreds of trips": roles(release="if i != 6400:\n                p.release()"),
}


def checked(tmp_path: Path, text: str) -> Emitter:
    (tmp_path / "program.py").write_text(text)
    emitter = Emitter()
    CheckAsync().run(python_kernel(tmp_path / "program.py", "k").trace(), PassContext(emitter=emitter))
    return emitter


@pytest.mark.parametrize("name", FAULTS)
def test_what_happens_late(tmp_path, name):
    with pytest.raises(TeselaError, match=r"waits for ever|when the kernel ends"):
        checked(tmp_path, FAULTS[name])


MULTIPLES = """    acc = tesela.zeros((16, 16), f32)
    if L > 0:
        p.put(A[m : m + 16, 0:16])
        acc = acc + p.get()
        p.release()
    else:
        for i in tesela.range(0, L * 2, 16):
            acc = acc + p.get()
    C[m : m + 16, 0:16] = acc
"""
"""Where L is not positive, neither is 2·L."""


EITHER = "if i < 1600 or i >= 1600:\n                p.release()"
NEITHER = "if not (i > 30 and L < 20 and i != 64):\n                p.release()"
"""If there is a trip with i > 30, L is larger than that."""
LARGER = "if (16 if i < 160 else 32) + max(i, 3) > 7:\n                p.release()"


@pytest.mark.parametrize("text", [HEAD + MULTIPLES, roles(), roles(release=EITHER), roles(release=NEITHER), roles(release=LARGER), roles(loaded="tesela.minimum(L, 512)", added="tesela.minimum(L, 512)"), HEAD + ALONE.format(release="p.release()")])
def test_right_programs_pass(tmp_path, text):
    assert not [d for d in checked(tmp_path, text).diagnostics if d.severity == "error"]


def test_numbers_too_large_to_walk_to(tmp_path):
    """What happens after so many trips is not looked at, and that is said."""
    after = "acc = tesela.where(L > 100000, acc + 1, acc)"
    assert not checked(tmp_path, roles(after=after)).diagnostics  # no matter of channels
    released = "if i < 1000000:\n                p.release()\n            else:\n                p.release()"
    (note,) = checked(tmp_path, roles(release=released)).diagnostics
    assert note.severity == "note" and "walks 500 trips" in note.message and "may change after 62500" in note.message
