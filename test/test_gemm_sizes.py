"""`tesela run examples/gemm.mlir` computes from .npy files what NumPy computes: 24 of the 216 triples of sizes, for both targets.

`bench/gemm_sizes.py` runs all 216; its outcome is recorded in bench/results/gemm_sizes.json.
"""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIZES = (0, 1, 7, 64, 129, 300)

# Two in three of the 36 pairs of M and N, each with a K such that every size occurs in every place.
TRIPLES = [
    (m, n, SIZES[(i + 2 * j) % 6]) for (i, m), (j, n) in itertools.product(enumerate(SIZES), repeat=2) if (i + j) % 3 != 2
]


def test_the_triples_are_24_and_have_every_size_everywhere():
    assert len(set(TRIPLES)) == 24
    assert all({triple[axis] for triple in TRIPLES} == set(SIZES) for axis in range(3))


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(("m", "n", "k"), TRIPLES)
def test_gemm(m, n, k, target, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    assert importlib.import_module("gemm_sizes").check(m, n, k, target, "sim", tmp_path) == ""


def test_the_recorded_run_of_all_triples_found_nothing():
    recorded = json.loads((ROOT / "bench" / "results" / "gemm_sizes.json").read_text())
    assert recorded["runs"] == 2 * len(SIZES) ** 3 and recorded["failures"] == []
