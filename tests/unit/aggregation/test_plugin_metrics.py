"""Metrics that installed packages bring: found, checked, computed for measured rows, and their absence explained."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.aggregation.plugin_metrics import (
    GROUP,
    Installed,
    Metric,
    installed_metrics,
    with_custom,
)
from harness.core import store
from harness.core.errors import MalformedFileError
from harness.core.schemas import Row, Summary, Unavailable
from tests.fixtures.plugins import write_metadata, write_plugin
from tests.synthetic_results import Synthetic, eventful

HEAD = "from harness.aggregation.plugin_metrics import Metric\n"
FINE = f"{HEAD}M = Metric(lambda row: 1.0, 'items', 'lower', 'One.')\n"


@pytest.fixture(scope="module")
def summary() -> Summary:
    return Synthetic(change=eventful).summary()


def having(summary: Summary, value: Callable[[Row], Any]) -> Summary:
    return with_custom(summary, {"mine": Installed(Metric(value, "GB", "lower", "Mine."), "pack 1.0")})


def test_a_metric_is_listed_with_its_package(site: Path) -> None:
    write_plugin(site, "metric_fine", FINE, {GROUP: {"one_more": "metric_fine:M"}})
    result, problems = installed_metrics()
    assert (list(result), result["one_more"].plugin, problems) == (["one_more"], "metric_fine 1.0", [])


BROKEN = {
    "raises": ("raise OSError('gone')\n", "OSError: gone."),
    "leaves": ("raise SystemExit(1)\n", "SystemExit: 1."),
    "of_no_kind": ("M = len\n", "it gives builtin_function_or_method and no Metric."),
    "no_function": (f"{HEAD}M = Metric(3, 'items', 'lower', 'One.')\n", "it needs a function, a unit"),
    "no_unit": (f"{HEAD}M = Metric(len, '', 'lower', 'One.')\n", "it needs a function, a unit"),
    "two_lines": (f"{HEAD}M = Metric(len, 'items', 'lower', 'One.\\nTwo.')\n", "a summary of one line."),
    "no_direction": (f"{HEAD}M = Metric(len, 'items', 'up', 'One.')\n", "better is 'up' and not `lower` or `higher`."),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_failed_metric_is_named_and_harms_no_other(site: Path, kind: str) -> None:
    code, words = BROKEN[kind]
    write_plugin(site, f"metric_beside_{kind}", FINE, {GROUP: {"fine": f"metric_beside_{kind}:M"}})
    write_plugin(site, f"metric_{kind}", code, {GROUP: {"broken": f"metric_{kind}:M"}})
    result, (problem,) = installed_metrics()
    assert list(result) == ["fine"]
    assert problem.startswith(f"The metric `broken` of metric_{kind} 1.0 cannot be used: ")
    assert words in problem


def test_names_that_tables_could_not_bear_or_two_packages_have_are_refused(site: Path) -> None:
    write_plugin(site, "metric_a", FINE, {GROUP: {"Mine": "metric_a:M", "twice": "metric_a:M"}})
    write_plugin(site, "metric_b", FINE, {GROUP: {"twice": "metric_b:M"}})
    write_metadata(site, "metric_torn", f"[{GROUP}]\nno equals sign\n")
    result, problems = installed_metrics()
    assert result == {}
    assert problems == [
        "The plugin metric_torn 1.0 cannot be used: its entry_points.txt is not readable.",
        "The metric `Mine` of metric_a 1.0 cannot be used: a name has small letters, digits and single underscores.",
        "The metric `twice` of metric_a 1.0 cannot be used: metric_b 1.0 has one of that name as well.",
        "The metric `twice` of metric_b 1.0 cannot be used: metric_a 1.0 has one of that name as well.",
    ]


def test_measured_rows_get_their_figure_and_others_none(summary: Summary) -> None:
    result = having(summary, lambda row: row.batch_size * 2)
    assert {row.status for row in result.rows} == {"measured", "failed", "skipped", "missing"}
    for row in result.rows:
        assert row.custom == (
            {"mine": float(row.batch_size * 2)} if row.status == "measured" and row.grade != "F" else {}
        )
    assert result.custom["mine"].model_dump() == {
        "unit": "GB", "better": "lower", "summary": "Mine.", "plugin": "pack 1.0",
    }  # fmt: skip


def leave(_row: Row) -> float:
    sys.exit(3)


def test_a_metric_changes_no_row(summary: Summary) -> None:
    def change(row: Row) -> float:
        row.checks.clear()
        row.artifacts["mine"] = "x"
        return 1.0

    before = summary.model_dump_json()
    changed = having(summary, change)
    assert summary.model_dump_json() == before
    assert [row.checks for row in changed.rows] == [row.checks for row in summary.rows]
    assert any(row.checks for row in changed.rows)


GIVEN = {
    "why not": (lambda row: Unavailable(unavailable="no power"), "no power"),
    "exception": (lambda row: row.absent, "AttributeError: 'Row' object has no attribute 'absent'"),
    "exit": (leave, "SystemExit: 3"),
    "nan": (lambda row: float("nan"), "the metric gave nan"),
    "infinity": (lambda row: float("inf"), "the metric gave inf"),
    "nothing": (lambda row: None, "the metric gave NoneType and no number"),
    "text": (lambda row: "3", "the metric gave str and no number"),
    "truth": (lambda row: True, "the metric gave bool and no number"),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_no_figure_is_a_reason_and_the_file_can_be_read_back(summary: Summary, tmp_path: Path, kind: str) -> None:
    value, words = GIVEN[kind]
    result = having(summary, value)
    reasons = {row.custom["mine"] for row in result.rows if row.status == "measured" and row.grade != "F"}
    assert reasons == {Unavailable(unavailable=words)}
    store.save(tmp_path / "summary.json", result)
    assert store.load(tmp_path / "summary.json", Summary, "make aggregate").digest == result.digest


def test_a_summary_from_before_there_were_metrics_is_read(summary: Summary, tmp_path: Path) -> None:
    data = summary.model_dump(mode="json")
    del data["custom"]
    for row in data["rows"]:
        del row["custom"], row["plugin"]
    path = tmp_path / "summary.json"
    assert store.parse(path, json.dumps(data).encode(), Summary, "make aggregate").digest == summary.digest
    with pytest.raises(MalformedFileError, match="custom"):
        store.parse(path, json.dumps({**data, "custom": {"mine": {}}}).encode(), Summary, "make aggregate")
