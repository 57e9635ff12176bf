"""The page's comparison: every compared row with its verdict, and only of the run that the page is of."""

from __future__ import annotations

import pytest

from harness.core.schemas import Comparison, Summary
from harness.reporting.charts.speedup_charts import MAX_CHANGES
from harness.reporting.html.comparison_section import comparison_section, is_about
from harness.reporting.html.page import page
from tests.synthetic_comparison import with_itself

CONDITIONS = "cpu, 2 threads"


@pytest.fixture(scope="module")
def compared(summary: Summary) -> Comparison:
    return with_itself(summary, "latency_p50<1ms")


def test_every_compared_row_has_its_verdict_worst_first(compared: Comparison) -> None:
    shown = comparison_section(compared, CONDITIONS)
    rows = {row.case_id: row for row in compared.rows if row.ratio is not None}
    lines = {str(line.cells[0]): line for line in shown["lines"]}
    assert set(lines) == set(rows)
    assert all(line.verdict == rows[case].verdict for case, line in lines.items())
    assert {line.fails for line in shown["lines"]} == {True, False}
    assert shown["lines"][0].fails
    assert shown["headline"].startswith(
        f"{sum(row.fails for row in compared.rows)} of {len(rows)} compared rows regressed"
    )
    assert next(title for title, _ in shown["details"]) == "Thresholds"


def test_the_chart_shows_the_worst_rows_with_their_change(compared: Comparison) -> None:
    (group,) = comparison_section(compared, CONDITIONS)["groups"]
    (plot,) = group.plots
    ratios = {row.case_id: row.ratio for row in compared.rows if row.ratio is not None}
    marks = [trace for trace in plot.data if "hovertext" in trace]
    assert len(marks) == min(MAX_CHANGES, len(ratios))
    for trace in marks:
        assert trace["x"][0] == pytest.approx(100 * (ratios[trace["y"][0]] - 1), rel=1e-4, abs=1e-4)
    low, high = plot.layout["xaxis"]["range"]
    assert low < 0 < high
    assert all(low < trace["x"][0] < high for trace in plot.data)
    assert plot.layout["yaxis"]["categoryarray"][-1] == marks[0]["y"][0]


def test_the_page_shows_it_as_a_section(compared: Comparison, summary: Summary) -> None:
    text = page(summary, comparison=compared)
    assert '<a href="#comparison">Comparison</a>' in text
    assert text.count('<span class="verdict ') == len([row for row in compared.rows if row.ratio is not None])
    assert '<span class="verdict v-slower fails">SLOWER</span>' in text
    assert 'href="#comparison"' not in page(summary)


def test_names_of_cases_stay_text(compared: Comparison, summary: Summary) -> None:
    evil = "<img src=x onerror=alert(1)>"
    rows = tuple(row.model_copy(update={"case_id": evil, "reason": evil}) for row in compared.rows)
    assert "<img" not in page(summary, comparison=compared.model_copy(update={"rows": rows}))


def test_a_comparison_of_another_run_is_known(compared: Comparison, summary: Summary) -> None:
    assert is_about(compared, summary)
    assert not is_about(compared, summary.model_copy(update={"plan_id": "another"}))
    assert not is_about(compared, summary.model_copy(update={"measured_to": "later"}))


def test_thresholds_alone_need_no_baseline(compared: Comparison, summary: Summary) -> None:
    alone = compared.model_copy(update={"baseline": None, "rows": (), "differences": ()})
    shown = comparison_section(alone, CONDITIONS)
    assert shown["groups"] == []
    assert "Thresholds" in page(summary, comparison=alone)
