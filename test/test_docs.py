"""The generated pages and pictures are what the code says, and the programs of the others print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tesela.tools.docs import EXECUTED, PICTURES, ROOT, files
from tesela.tools.pages import blocks, run_page


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_files_are_fresh(path: Path) -> None:
    assert path.read_text() == files()[path](), "run python -m tesela.tools.docs"


def test_every_picture_is_shown() -> None:
    text = "".join((ROOT / "docs" / name).read_text() for name in ("layouts.md", "schedules.md"))
    assert {path.name for path in PICTURES.iterdir()} == {path.name for path in files() if path.parent == PICTURES}
    assert all(f"](pictures/{path.name})" in text for path in PICTURES.iterdir())


@pytest.mark.parametrize("name", EXECUTED)
def test_programs_of_the_pages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESELA_DEVICE", "sim")
    path = ROOT / "docs" / name
    assert len(list(blocks(path.read_text()))) >= 3
    wrong = run_page(path)
    assert not wrong, "\n".join(wrong)


def test_a_page_that_shows_something_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\nprint(x)\n```\n\n```text\n2\n```\n\n```python\nprint(x + 1)\n```\n")
    assert run_page(page) == ["page.md:4: the block prints\n1\nbut the page shows\n2\n"]
    page.write_text("# Page\n\n\n```python\nraise KeyError\n```\n")
    with pytest.raises(KeyError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 5
