"""A report of 2,000 rows is a page that can be opened: benchmarks/open_page.py says how fast."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from harness.reporting.html.page import page
from tests.synthetic_results import many_rows

ROWS, MOST_BYTES = 2_000, 8_000_000


class Counted(HTMLParser):
    """Cases of the tables, and charts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cases: set[str] = set()
        self.plots = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        if tag == "tbody" and (result.get("id") or "").startswith("case-"):
            self.cases.add(result["id"] or "")
        self.plots += result.get("class") == "plot"


@pytest.fixture(scope="module")
def text() -> str:
    return page(many_rows(ROWS))


def test_it_has_every_row_and_charts(text: str) -> None:
    seen = Counted(text)
    assert len(seen.cases) == ROWS
    assert seen.plots > 0


def test_it_stays_small(text: str) -> None:
    assert len(text.encode()) <= MOST_BYTES
