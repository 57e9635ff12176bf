"""“How to read this” explains what the report has, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store, units
from harness.core.schemas import Interval, Summary
from harness.reporting import ranking
from harness.reporting.details import document
from harness.reporting.html.page import page
from harness.reporting.prose.guide import guide
from tests.synthetic_results import Synthetic

PUBLISHED = Path(__file__).parents[3] / "results/published/h200"


def test_a_report_of_generation_explains_no_column_of_latencies() -> None:
    text = guide(
        store.load(PUBLISHED / "2026-11-30-generation-onnxruntime/summary.json", Summary, "make aggregate"), False
    )
    assert "**grade**" in text
    for absent in ("**median**", "**p90", "**speed-up**", "**rel. L2**", "**peak MiB**", "**cold start**", "**bold**"):
        assert absent not in text


def test_rates_accuracy_and_rounds_are_those_of_the_rows() -> None:
    run = store.load(PUBLISHED / "2026-11-30-resnet50-cudnn/summary.json", Summary, "make aggregate")
    text = guide(run, False)
    assert "1 to 2 rounds of each case" in text
    assert "**images/s**" in text
    assert "**cosine**" in text
    assert "top-1" not in text
    fp32 = run.model_copy(update={"rows": tuple(row for row in run.rows if row.precision == "fp32")})
    assert "**cosine**" not in guide(fp32, False)
    assert "**file MiB**" not in guide(fp32, False)


@pytest.mark.parametrize("occurs", [False, True])
def test_the_mark_of_wide_intervals_is_explained_only_where_it_occurs(summary: Summary, occurs: bool) -> None:
    row = next(row for row in summary.rows if row.speedup and row.latency_ns and row.grade == "A")
    assert row.latency_ns
    high = row.latency_ns.median * (4 if occurs else 1.01)
    timed = row.latency_ns.model_copy(update={"ci95": Interval(low=row.latency_ns.median, high=high)})
    alone = summary.model_copy(update={"rows": (row.model_copy(update={"latency_ns": timed, "speedup": None}),)})
    for text in (document(alone, {}), page(alone, with_plots=False)):
        assert text.count(units.WIDE) == (2 if occurs else 0), "the interval and its explanation"
        assert ("is more than 1.5 times the lower one" in text) is occurs


def test_marks_of_rows_are_explained_only_where_a_row_has_them(summary: Summary) -> None:
    text = guide(summary, False)
    for mark in ("**bold**", "*Italics*", f"**{ranking.DOUBT}**", "**speed-up**", "**p90"):
        assert mark in text
    good = [row for row in summary.rows if row.grade in ("A", "B") and row.speedup and not ranking.is_doubtful(row)]
    for rows, absent in (
        (good, ("*Italics*", f"**{ranking.DOUBT}**")),
        (good[:1], ("**bold**", "*Italics*", f"**{ranking.DOUBT}**")),
        ([row.model_copy(update={"speedup": None}) for row in good], ("**speed-up**",)),
    ):
        shorter = guide(summary.model_copy(update={"rows": tuple(rows)}), False)
        assert "**median**" in shorter
        assert [mark for mark in absent if mark in shorter] == []


def test_a_run_without_a_measured_row_explains_nothing() -> None:
    empty = Synthetic(change=lambda _case, _record: None).summary()
    assert guide(empty, False) == ""
    for text in (document(empty, {}), page(empty, with_plots=False)):
        assert "How to read this" not in text
