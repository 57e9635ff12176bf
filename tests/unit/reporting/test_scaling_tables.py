"""The tables, chart and CSV lines of several devices at once."""

from __future__ import annotations

from functools import cache

from harness.core.schemas import Summary
from harness.reporting.charts.selection import device_charts
from harness.reporting.details import devices_section, document
from harness.reporting.first_page import first_page
from harness.reporting.html.page import page
from harness.reporting.tables.scaling_tables import (
    cpus_in_words,
    device_lines,
    devices_table,
    neighbour_lines,
    neighbours_table,
    scaling_lines,
    scaling_table,
    scaling_title,
)
from harness.reporting.writers.csv import csv_tables
from harness.reporting.writers.markdown import table_text
from tests import synthetic_results as made
from tests.synthetic_devices import SLOTS, copies, neighbours


@cache
def summary() -> Summary:
    result = made.Synthetic(cases=made.matrix([made.MINILM])[:4], models=(made.MINILM,)).summary()
    names = [row.case_id for row in result.rows]
    return result.model_copy(
        update={
            "copies": {names[0]: copies(names[0], 1.25), names[1]: copies(names[1], 1.0)},
            "neighbours": neighbours(names),
        }
    )


def test_the_table_has_efficiency_interference_and_stragglers() -> None:
    first, second = table_text(scaling_table(summary())).splitlines()[4:6]
    cells = [cell.strip() for cell in first.split("|")]
    # 180 of 200 per second; the geometric mean of 1 and 1.25, times 1.002.
    assert ("200" in cells, "180" in cells, "90.0%" in cells, "1.120" in cells) == (True, True, True, True)
    assert cells[-2] == "1 together"
    assert second.split("|")[-2].strip() == ""
    note = scaling_table(summary())
    assert note is not None
    assert "2 processes failed" in note.note
    assert "near CPUs of its own" in note.conditions


def test_each_device_has_a_row() -> None:
    table = devices_table(summary())
    assert table is not None
    cells = table.cells()
    assert len(cells) == 4
    assert cells[1][-8:-6] == ["1", "8–15"]
    assert cells[1][-2] == "1.252"
    assert [
        cpus_in_words(slot.model_copy(update={"cpus": cpus})) for slot, cpus in ((SLOTS[0], ()), (SLOTS[0], (1, 3, 4)))
    ] == ["all", "1, 3–4"]


def test_the_lines_have_every_figure_unrounded() -> None:
    line = scaling_lines(summary())[0]
    assert (line["devices"], line["rounds"], line["efficiency"], line["stragglers"]) == (2, 3, 0.9, "1 together")
    assert len(device_lines(summary())) == 4
    assert device_lines(summary())[1]["straggles"] == "together"
    assert [neighbour_line["verdict"] for neighbour_line in neighbour_lines(summary())] == ["disturbed"]
    assert {"scaling", "devices", "neighbours"} <= csv_tables(summary(), []).keys()


def test_the_neighbours_have_a_verdict_and_the_time_that_the_spread_took() -> None:
    table = neighbours_table(summary())
    assert table is not None
    assert table.cells()[0][-1] == "disturbed"
    assert "60.0 s of wall time for 110 s of measuring" in table.conditions
    assert len(table.rows) == 1


def test_every_report_shows_them() -> None:
    assert scaling_title(summary()) == "2 GPUs at once"
    assert "## 2 GPUs at once" in document(summary(), {})
    assert "efficiency" in first_page(summary(), "d.md", [])
    shown = page(summary())
    assert "2 GPUs at once" in shown
    assert "A straggler has" in shown
    (chart,) = device_charts(summary())
    assert [panel.title for panel in chart.spec.panels] == ["scaling efficiency", "latency together ÷ alone"]
    assert min(mark.value for mark in chart.spec.panels[0].marks) == 90.0


def test_a_run_on_one_device_shows_nothing() -> None:
    plain = summary().model_copy(update={"copies": {}, "neighbours": None})
    assert (devices_section(plain), scaling_table(plain), devices_table(plain), neighbours_table(plain)) == (
        [],
        None,
        None,
        None,
    )
    assert device_charts(plain) == []
