"""Computation held above waits for wgmmas: the same bits however much of it is, and where ptxas then puts the exponentials of attention."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tesela import bf16
from tesela.kernels.attention import attention
from tesela.lowering.overlap_waits import OverlapWaits
from tesela.runtime.assemble import assemble, find_ptxas
from tesela.runtime.compile import compile
from tesela.runtime.disassemble import Sass, disassemble, find_nvdisasm, read_sass
from tesela.runtime.specialize import Facts
from tesela.simulator.launcher import settings

TILES = {64: (192, 128), 128: (128, 128), 256: (128, 64)}
"""Rows of queries and of keys, by head dimension: three warpgroups for the first, two for the others."""


def test_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 300, 64)).astype(ml_dtypes.bfloat16) for _ in range(3))
    results, texts = [], set()
    for percent in (0, 20, 50, 100, -1):
        monkeypatch.setattr(OverlapWaits, "__init__", lambda self, percent=percent: setattr(self, "percent", percent))
        kernel = compile(attention.trace(T=bf16, HEAD=64, BM=128, BN=64), "sm_90a")
        out = np.zeros_like(q)
        with settings(races=True):
            kernel(q, k, v, out, 0.125, device="sim")
        results.append(out)
        texts.add(kernel.variant().ptx)
    assert len(texts) >= 3, "the options make no difference"
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(np.uint16), other.view(np.uint16))


def ptx(head: int, causal: bool, rows: int = 0) -> str:
    rows, columns = rows or TILES[head][0], TILES[head][1]
    names = ("k", "out", "q", "v")
    facts = Facts(tuple((name, 16) for name in names), names, (("D", 16), ("HEADS", 16), ("L", 16), ("S", 16)))
    kernel = attention.compile("sm_90a", T=bf16, HEAD=head, CAUSAL=causal, BM=rows, BN=columns)
    return kernel.variant(facts=facts).ptx


def main_loop(text: str) -> tuple[Sass, ...]:
    """The loop with the most HGMMAs whose masks are gone."""
    loops = read_sass(disassemble(assemble(text).cubin))["attention"].loops_with("HGMMA")
    most = max(sum(op.name == "HGMMA" for op in loop) for loop in loops if len(loop) < 700)
    return min((loop for loop in loops if sum(op.name == "HGMMA" for op in loop) == most), key=len)


@pytest.mark.skipif(not find_ptxas(), reason="needs a ptxas")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head", TILES)
def test_every_ptxas_takes_attention_without_a_warning(head, causal):
    for assembler in find_ptxas():
        assert assemble(ptx(head, causal), "sm_90a", assembler=assembler, strict=True).messages == []


@pytest.mark.skipif(find_nvdisasm() is None or not find_ptxas(), reason="needs nvdisasm and a ptxas")
def test_exponentials_come_before_the_wait():
    """In the main loop, which has no masks, half of the exponentials stand between the two waits, and the rest after the second."""
    loop = main_loop(ptx(128, causal=True))
    assert not any(op.name == "SEL" and "-INF" in "".join(op.operands) for op in loop)
    waits = [place for place, op in enumerate(loop) if op.opcode == "WARPGROUP.DEPBAR.LE"]
    assert len(waits) == 2
    exponentials = [place for place, op in enumerate(loop) if op.name == "MUFU"]
    between = sum(waits[0] < place < waits[1] for place in exponentials)
    assert len(exponentials) == 66 and 28 <= between <= 40
    multiplications = [place for place, op in enumerate(loop) if op.name == "FMUL"]
    branch = next(place for place in range(waits[1], len(loop)) if loop[place].name == "BRA")
    assert sum(place > branch for place in multiplications) >= 64, "warps can leave out the rescaling"


@pytest.mark.skipif(find_nvdisasm() is None or not find_ptxas(), reason="needs nvdisasm and a ptxas")
@pytest.mark.parametrize(("rows", "held"), [(128, 0), (192, 66)])
def test_two_warpgroups_whose_exponentials_take_as_long_as_their_dots_hold_none(rows, held):
    """Three hold all of them above the second wait."""
    loop = main_loop(ptx(64, causal=False, rows=rows))
    first, second = (place for place, op in enumerate(loop) if op.opcode == "WARPGROUP.DEPBAR.LE")
    assert sum(first < place < second for place, op in enumerate(loop) if op.name == "MUFU") == held
