"""What plugins add to tables, CSV, conditions and explanations."""

from __future__ import annotations

import csv
import io

import pytest

from harness.core.host.environment import COMMIT, PLUGIN
from harness.core.schemas import CustomMetric, Summary, Unavailable
from harness.reporting.details import document
from harness.reporting.html.page import case_table
from harness.reporting.prose.conditions import (
    conditions,
    environment_table,
    run_conditions,
    shared_conditions,
    short_conditions,
)
from harness.reporting.tables import custom_metrics_table as custom
from harness.reporting.tables.latency_table import latency_columns, latency_table
from harness.reporting.tables.summary_table import COLUMNS
from harness.reporting.writers.csv import summary_text
from harness.reporting.writers.markdown import blocks_text, table_text
from tests.synthetic_results import rows_of, voided

WATTS = CustomMetric(unit="items/J", better="higher", summary="Items | joule.", plugin="pack 1.0")
HEADER = "items per joule items/J ↑"


@pytest.fixture
def plugged(summary: Summary) -> Summary:
    """The synthetic summary with a metric that half of the rows have, and OpenVINO from a plugin."""
    rows = tuple(
        row.model_copy(
            update={
                "custom": {"items_per_joule": 1234.5 if row.batch_size == 1 else Unavailable(unavailable="no power")},
                "plugin": "pack 1.0" if row.backend == "openvino" else None,
            }
        )
        if row.latency_ns is not None
        else row
        for row in summary.rows
    )
    return summary.model_copy(update={"rows": rows, "custom": {"items_per_joule": WATTS}})


def test_a_metric_is_a_column_before_the_grade(plugged: Summary) -> None:
    rows = rows_of(plugged, "resnet50")
    columns = latency_columns(rows, metrics=plugged.custom)
    assert [column.header for column in columns][-2:] == [HEADER, "grade"]
    cells = {(row.batch_size == 1, row.grade == "F"): columns[-2].cell(row) for row in rows}
    assert cells[True, False] == "1,230"
    assert cells[False, False] == "–"
    assert {text for (_, void), text in cells.items() if void} <= {"void"}
    assert HEADER in table_text(latency_table(rows, metrics=plugged.custom)).splitlines()[0]
    assert (HEADER, "num") in case_table(plugged, rows).headers


def test_a_void_row_shows_no_figure_of_a_metric(plugged: Summary) -> None:
    sound, *_ = rows_of(plugged, "resnet50")
    void = voided(sound.model_copy(update={"grade": "F"}))
    metric = latency_columns([sound, void], metrics=plugged.custom)[-2]
    assert (metric.header, metric.cell(sound), metric.cell(void)) == (HEADER, "1,230", "void")


def test_a_metric_without_a_figure_in_a_table_is_no_column_of_it(plugged: Summary) -> None:
    rows = [row for row in rows_of(plugged, "resnet50") if row.batch_size > 1]
    assert HEADER not in latency_table(rows, metrics=plugged.custom).headers


def test_csv_has_metric_and_plugin_behind_its_other_columns(summary: Summary, plugged: Summary) -> None:
    lines = list(csv.DictReader(io.StringIO(summary_text(plugged))))
    assert list(lines[0]) == [*COLUMNS, "plugin", "custom_items_per_joule [items/J]"]
    for line, row in zip(lines, plugged.rows, strict=True):
        assert line["plugin"] == (row.plugin or "")
        figure = row.custom.get("items_per_joule")
        assert line["custom_items_per_joule [items/J]"] == (str(figure) if isinstance(figure, float) else "")
    assert next(csv.reader(io.StringIO(summary_text(summary)))) == [*COLUMNS]


def test_the_guide_explains_the_metric_and_why_rows_have_none(plugged: Summary) -> None:
    absent = sum(row.latency_ns is not None and row.batch_size != 1 for row in plugged.rows)
    (line,) = custom.guide_lines(plugged)
    assert line == (
        f"**items per joule**: Items \\| joule. Higher is better; by pack 1.0. None in {absent} rows: no power."
    )
    assert line in document(plugged, {})


def test_conditions_name_the_plugin_of_the_rows_that_it_brought(plugged: Summary) -> None:
    rows = rows_of(plugged, "resnet50")
    for text in (run_conditions(plugged), short_conditions(plugged, rows)):
        assert " · plugin pack 1.0 · " in text
        assert text.count("plugin") == 1
    own = [row for row in rows if row.plugin is None]
    assert "plugin" not in conditions(plugged, own, shared_conditions(plugged))


def test_the_environment_names_it_under_its_own_name(plugged: Summary) -> None:
    name, result = next(iter(plugged.environments.items()))
    software = result.software.model_copy(update={"build": {PLUGIN: "pack 1.0"}})
    text = blocks_text([environment_table({name: result.model_copy(update={"software": software})})])
    assert [line.split("|")[1].strip() for line in text.splitlines() if "pack 1.0" in line] == ["backend's plugin"]


def test_it_says_why_the_commit_of_a_checkout_is_unknown(plugged: Summary) -> None:
    name, result = next(iter(plugged.environments.items()))
    for build, shown in (({COMMIT: "unknown: why"}, "unknown: why"), ({}, "not a git checkout")):
        software = result.software.model_copy(update={"git_commit": None, "git_dirty": None, "build": build})
        text = blocks_text([environment_table({name: result.model_copy(update={"software": software})})])
        values = {cells[1].strip(): cells[2].strip() for line in text.splitlines() if len(cells := line.split("|")) > 2}
        assert values["git commit"] == shown
        assert "build of git commit" not in values
