"""What tests of the disk cache share: kernels in files of their own, run in processes of their own, and what those report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SCALE = """
import tesela
from tesela import Array, f32
from helpers import act

N = tesela.dims("N")
BIAS = 1.0


@tesela.kernel
def scale(x: Array[f32, N], y: Array[f32, N], BLOCK: tesela.constexpr = 256):
    i = tesela.grid(tesela.ceildiv(N, BLOCK)) * BLOCK
    y[i : i + BLOCK] = act(x[i : i + BLOCK]) + BIAS
"""
HELPERS = """
FACTOR = 2.0


def act(v):
    return v * FACTOR
"""
RUN = """
import json, logging, sys, threading
import numpy as np

class Count(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

lines = []
logging.getLogger("tesela").addHandler(Count())
logging.getLogger("tesela").setLevel(logging.INFO)
import tesela
{body}
words = [line.split()[0] for line in lines]
print(json.dumps(dict(
    result=result, compiled=words.count("compiled"), assembled=words.count("assembled"), lines=lines,
    xdsl="xdsl" in sys.modules, ortools="ortools" in sys.modules,
)))
"""
CALL = """
from scale import scale
result = [float(v) for v in scale(np.arange(4, dtype=np.float32), device="sim")]
"""


def write_program(folder: Path, scale: str = SCALE, helpers: str = HELPERS) -> None:
    """scale.py and helpers.py in a folder."""
    (folder / "scale.py").write_text(scale)
    (folder / "helpers.py").write_text(helpers)


def _packages() -> list[str]:
    """Where this process finds packages: some may lie in folders that only its own path names."""
    return [entry for entry in sys.path if entry and not Path(entry).resolve().is_relative_to(ROOT)]


def start(folder: Path, body: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process in a folder that runs `body`, which sets `result`, with the cache in the folder's `cache`."""
    settings = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TESELA_")},
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "tools" / "typecheck"), *_packages()]),
        "TESELA_CACHE_DIR": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",  # a file that is edited within its time stamp's unit must be read again
        **environment,
    }
    code = RUN.replace("{body}", body)
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> dict:
    """What a process of `start` reports."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def run(folder: Path, body: str = CALL, **environment: str) -> dict:
    """`start` and `finish`."""
    return finish(start(folder, body, **environment))
