"""The text that a kernel is compiled from: the one that it was imported from, or an error."""

from __future__ import annotations

import pytest

from tesela import TeselaError
from tesela.tools.sources import python_kernel

CHANGING = """import tesela
from tesela import Array, f32

def twice(x): return x * 2.0

@tesela.kernel
def k(x: Array[f32, 8], y: Array[f32, 8]):
    tesela.grid(1)
    y[0:8] = twice(x[0:8])
"""


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("x * 2.0", "x * 5.0", "the file has changed since twice was imported"),
        ("def twice", "# a line more\ndef twice", "the file has changed since k was imported"),
        ("def twice", "def thrice(x): return x * 3.0\ndef twice", "the file has changed since k was imported"),
        ("return x * 2.0", "return (x", "the file has changed since k was imported"),
        (CHANGING, "", "the source of k cannot be read"),
        ("x[0:8])", "x[0:8])  # the same", None),
    ],
)
def test_a_file_that_changes_after_its_import(tmp_path, old, new, error):
    """A kernel's text is read when it is compiled first: what is there by then may be another one's."""
    path = tmp_path / "changing.py"
    path.write_text(CHANGING)
    kernel = python_kernel(path, "k")
    path.write_text(CHANGING.replace(old, new))
    if error is None:
        assert "2.0" in kernel.ir()
        return
    with pytest.raises(TeselaError, match=error):
        kernel.trace()
