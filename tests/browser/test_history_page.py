"""The page of a store of runs in a real browser: lines in colour, the filter, no error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.comparison.run_history import analyse
from harness.reporting.html.history_page import history_page
from tests.synthetic_history import AT, nights

COLOURS = """canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, found = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
  return [...found];
}"""
"""The opaque colours of a canvas."""
STRONG = 100
"""Difference of the channels of the accent; texts are nearly grey."""


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Any:
    runs = nights([1.0] * 15 + [1.1] * 10)
    path = tmp_path / "history.html"
    path.write_text(history_page(analyse(runs, [], AT), runs))
    tab = browser.new_page(viewport={"width": 1100, "height": 1400})
    tab.errors = []
    tab.on("console", lambda message: tab.errors.append(message.text))
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.goto(path.as_uri())
    yield tab
    tab.close()


def test_every_series_is_drawn_in_colour_and_can_be_filtered(opened: Any) -> None:
    assert opened.errors == []
    assert opened.locator(".series").count() == 3
    opened.wait_for_function("document.querySelector('.series canvas').width > 300")
    drawn = opened.locator(".series canvas").first.evaluate(COLOURS)
    assert any(len(set(colour.split(","))) > 1 for colour in drawn)
    opened.fill("#filter", "torch-eager")
    assert opened.locator(".series:not([hidden])").count() == 1
    assert opened.locator("#shown").inner_text() == "1 of 3"
    opened.locator(".series:not([hidden]) canvas").hover()
    assert "ms [" in opened.locator(".series:not([hidden]) p").inner_text()


def test_a_store_of_one_run_shows_it(browser: Any, tmp_path: Path) -> None:
    runs = nights([1.0])
    path = tmp_path / "history.html"
    path.write_text(history_page(analyse(runs, [], AT), runs))
    tab = browser.new_page(viewport={"width": 1100, "height": 1400})
    tab.goto(path.as_uri())
    tab.wait_for_function("document.querySelector('.series canvas').width > 300")
    drawn = [[*map(int, colour.split(",")[:3])] for colour in tab.locator(".series canvas").first.evaluate(COLOURS)]
    tab.close()
    assert max(max(colour) - min(colour) for colour in drawn) > STRONG


def test_the_page_uses_the_width_of_a_screen(opened: Any) -> None:
    """The page of a report has a column of links beside it; this one has none."""
    for width in (1100, 1440, 1920):
        opened.set_viewport_size({"width": width, "height": 900})
        assert opened.locator("main").bounding_box()["width"] > 0.85 * width
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
