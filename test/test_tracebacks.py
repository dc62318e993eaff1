"""Errors at users' calls: their frames, at most one of ours, and the diagnostics."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import tesela
from tesela import Array, TeselaError, f32

ROOT = Path(tesela.__file__).resolve().parent
N = tesela.dims("N")


@tesela.kernel
def double(x: Array[f32, N], y: Array[f32, N]):
    i = tesela.grid(tesela.ceildiv(N, 64)) * 64
    y[i : i + 64] = x[i : i + 64] * 2.0


@tesela.kernel
def wrong(x: Array[f32, N], y: Array[f32, N]):
    tesela.grid(1)
    y[0:64] = x[0:32]


def no_kernel(x: Array[f32, N], *rest: f32):
    pass


X, BYTES = np.zeros(64, np.float32), np.zeros(64, np.int8)
MISTAKES = {
    "a wrong kernel": lambda: wrong(X, X.copy(), device="sim"),
    "a wrong array": lambda: double(X, BYTES, device="sim"),
    "a wrong device": lambda: double(X, X.copy(), device="tpu"),
    "an unknown argument": lambda: double(X, X.copy(), BLOK=3),
    "a compiled kernel": lambda: double.compile("sm_90a")(X, BYTES, device="sim"),
    "compile": lambda: wrong.compile("sm_90a"),
    "ir": lambda: wrong.ir("tile"),
    "tesela.compile": lambda: tesela.compile(wrong, "sm_90a"),
    "a path": lambda: tesela.compile("nowhere.mlir"),
    "a signature": lambda: tesela.kernel(no_kernel),
    "a signature, with variants": lambda: tesela.kernel(variants=[{"BM": 1}])(no_kernel),
    "the decorator": lambda: tesela.kernel(variant=[]),
}


def ours(error: BaseException) -> list[str]:
    files = [Path(frame.filename).resolve() for frame in traceback.extract_tb(error.__traceback__)]
    return [file.name for file in files if file.is_relative_to(ROOT) and "test" not in file.relative_to(ROOT).parts]


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_shows_the_users_frames(mistake, monkeypatch):
    with pytest.raises(TeselaError) as caught:
        mistake()
    shown = ours(caught.value)
    assert len(shown) <= 1 and caught.value.__suppress_context__
    assert traceback.extract_tb(caught.value.__traceback__)[-1 - len(shown)].filename == __file__
    monkeypatch.setenv("TESELA_TRACEBACK", "1")
    with pytest.raises(TeselaError) as caught:
        mistake()
    assert len(ours(caught.value)) > 1 or mistake is MISTAKES["the decorator"]


def test_the_second_call_is_no_longer(monkeypatch):
    """When a launcher or a program is found at once the call comes by other ways."""
    y = np.zeros(64, np.float32)
    double(X, y, device="sim")
    with pytest.raises(TeselaError) as caught:
        double(X, BYTES, device="sim")
    assert len(ours(caught.value)) == 1
