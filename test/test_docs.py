"""The generated reference and pictures are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tesela.tools.docs import PICTURES, ROOT, files


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_files_are_fresh(path: Path) -> None:
    assert path.read_text() == files()[path](), "run python -m tesela.tools.docs"


def test_every_picture_is_shown() -> None:
    text = (ROOT / "docs" / "layouts.md").read_text()
    assert {path.name for path in PICTURES.iterdir()} == {path.name for path in files() if path.parent == PICTURES}
    assert all(f"](pictures/{path.name})" in text for path in PICTURES.iterdir())
