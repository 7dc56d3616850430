"""What holds for the pages that users read: each of them can be found from the page that lists its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["docs/guide", "docs/reference"])
def test_every_page_is_listed_in_its_folder(folder: str) -> None:
    listing = (ROOT / folder / "README.md").read_text()
    pages = {page.name for page in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert pages
    assert {page for page in pages if f"]({page})" not in listing} == set()
