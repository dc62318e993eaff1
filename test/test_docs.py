"""The generated reference is what the code says."""

from __future__ import annotations

import pytest

from tesela.tools.docs import PAGES, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_reference_is_fresh(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run python -m tesela.tools.docs"
