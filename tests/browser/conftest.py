"""A real browser, and the page of a published run; both are skipped with the reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.schemas import Row, Summary
from harness.profiling.read_profiles import Profiled
from harness.reporting.html.page import page
from harness.reporting.html.profile_section import RunProfiles
from harness.reporting.table import text_table
from tests.synthetic_comparison import with_itself
from tests.synthetic_profiles import GRAPH, model_profile, module_tree, parts

SUMMARY = Path(__file__).parents[2] / "results/published/h200/2026-11-28/summary.json"
PROFILE_TABLES = ["### Cost", text_table([("model", "left"), ("GFLOP", "right")], [["a", "1.20"]])]
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first takes a quarter less CPU time: it has no window to draw."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium: the one that CHROMIUM names, one on the path, or playwright's own."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[dev]'")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with api.sync_playwright() as playwright:
        try:
            # Containers often run as root, where Chromium's own sandbox cannot start; the page is ours.
            result = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(
                f"no Chromium starts ({str(error).splitlines()[0]}): playwright install chromium, or set CHROMIUM"
            )
        yield result
        result.close()


@pytest.fixture(scope="session")
def published() -> Summary:
    return store.load(SUMMARY, Summary, "make aggregate")


@pytest.fixture(scope="session")
def one_model(published: Summary) -> Summary:
    """The published run with the rows of its first model alone: a third of the page, and every part of it."""
    first = published.rows[0].model
    return published.model_copy(update={"rows": tuple(row for row in published.rows if row.model == first)})


@pytest.fixture(scope="session")
def profiles(one_model: Summary) -> RunProfiles:
    """Two cases of one shape: a tree of modules deeper than a screen, and a graph."""
    first, second, *_ = (row for row in one_model.rows if row.batch_size == 1 and row.status == "measured")
    shown = ((first, parts(module_tree(blocks=12))), (second, parts(GRAPH, plain_ns=6_500)))
    return RunProfiles("profiles", [Profiled(row, model_profile(row), entry) for row, entry in shown])


@pytest.fixture(scope="session")
def address(one_model: Summary, profiles: RunProfiles, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _written(one_model, profiles, tmp_path_factory)


@pytest.fixture(scope="session")
def varied_address(one_model: Summary, profiles: RunProfiles, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same page without the rows that look like others: of each kind the first two are in it."""
    seen, kept = Counter[object](), list[Row]()
    for row in one_model.rows:
        kinds = {*_kinds(row)}
        if any(seen[kind] < 2 for kind in kinds):
            kept.append(row)
            seen.update(kinds)
    return _written(one_model.model_copy(update={"rows": tuple(kept)}), profiles, tmp_path_factory)


def _kinds(row: Row) -> Iterator[object]:
    """What makes a row look different: its setting, batch, status, grade and flags, a figure that is absent."""
    yield row.backend, row.precision, row.setting
    yield row.batch_size
    yield row.status, row.grade
    yield from (flag.name for flag in row.flags)
    if row.latency_ns is not None:
        yield "absent", *(name for name, value in row.latency_ns if value is None)


def _written(summary: Summary, profiles: RunProfiles, factory: pytest.TempPathFactory) -> str:
    path = factory.mktemp("page") / "report.html"
    compared = with_itself(summary, "latency_p50<1ms")
    path.write_text(page(summary, profile=PROFILE_TABLES, profiled=profiles, comparison=compared))
    return path.as_uri()
