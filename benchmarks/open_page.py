"""How fast report.html opens in headless Chromium: a synthetic run of 2,000 rows, or the page of a results folder.

    .venv/bin/python benchmarks/open_page.py [--rows 2000] [--page results/report.html] [--times 5]

Ready: the page is loaded, its program is through and something is painted, from the start of the navigation, as the
browser's own clock has it. Drawn: the charts of the first screen are complete. CPU: the work of the page's main thread
until then; where drawn is far above it, something else had the cores. Each opening has a fresh browser.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402 - after the path is set
from tabulate import tabulate  # noqa: E402

from harness.reporting.html.page import page  # noqa: E402
from tests.synthetic_results import many_rows  # noqa: E402

GOAL_S, GOAL_BYTES = 2.0, 8_000_000

READY = """() => {
  const [painted] = performance.getEntriesByName("first-contentful-paint");
  const [page] = performance.getEntriesByType("navigation");
  return painted && page.loadEventEnd && Math.max(painted.startTime, page.loadEventEnd);
}"""
DRAWN = """() => [...document.querySelectorAll(".plot")].filter((one) => one.getBoundingClientRect().top < innerHeight)
              .every((one) => one.querySelector(".main-svg")) && performance.now()"""


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        path = options.page or Path(folder) / "report.html"
        if options.page is None:
            path.write_text(page(many_rows(options.rows)))
        result = [_open(path) for _ in range(options.times)]
        size = path.stat().st_size
    *seconds, elements = zip(*result, strict=True)
    lines = [[f"{size / 1e6:.2f}", f"{elements[0]:,}", *(f"{statistics.median(entry):.2f}" for entry in seconds)]]
    headers = ["MB", "elements", "ready s", "drawn s", "CPU s"]
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True))
    print(f"\nMedians of {options.times}. Goal for 2,000 rows: ≤ {GOAL_S:g} s and ≤ {GOAL_BYTES / 1e6:g} MB.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--page", type=Path, help="this page instead of a synthetic one")
    parser.add_argument("--times", type=int, default=5)
    return parser.parse_args()


def _open(path: Path) -> tuple[float, float, float, int]:
    """(seconds until ready, seconds until drawn, CPU seconds until then, elements) of one opening."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tools = tab.context.new_cdp_session(tab)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(path.resolve().as_uri())
        drawn = tab.wait_for_function(DRAWN).json_value()
        ready = tab.wait_for_function(READY).json_value()
        spent = {entry["name"]: entry["value"] for entry in tools.send("Performance.getMetrics")["metrics"]}
        elements = tab.evaluate("document.getElementsByTagName('*').length")
        browser.close()
    return ready / 1e3, drawn / 1e3, spent["TaskDuration"], elements


if __name__ == "__main__":
    main()
