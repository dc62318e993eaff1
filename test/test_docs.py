"""The generated pages are what the code says, and the programs of the others print what they show."""

from __future__ import annotations

import pytest

from tesela.tools.docs import EXECUTED, INDEX, PAGES, REFERENCE, index_page
from tesela.tools.pages import blocks, run_page


@pytest.mark.parametrize("name", PAGES)
def test_reference_is_fresh(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run python -m tesela.tools.docs"


def test_index_is_fresh() -> None:
    assert INDEX.read_text() == index_page(), "run python -m tesela.tools.docs"


@pytest.mark.parametrize("name", EXECUTED)
def test_programs_of_the_pages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESELA_DEVICE", "sim")
    path = REFERENCE.parent / name
    assert len(list(blocks(path.read_text()))) >= 3
    wrong = run_page(path)
    assert not wrong, "\n".join(wrong)


def test_a_page_that_shows_something_else(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\nprint(x)\n```\n\n```text\n2\n```\n\n```python\nprint(x + 1)\n```\n")
    assert run_page(page) == ["page.md:4: the block prints\n1\nbut the page shows\n2\n"]
    page.write_text("# Page\n\n\n```python\nraise KeyError\n```\n")
    with pytest.raises(KeyError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 5
