"""Generation in reports: tables, texts, charts, CSV, thresholds and comparisons."""

from __future__ import annotations

import csv
import io

import pytest

from harness.aggregation.generation_rows import GenerationRecords, GenerationSource, generation_row
from harness.aggregation.join import blank_summary
from harness.comparison.verdicts import with_token_rows
from harness.core.errors import UsageError
from harness.core.schemas import GenerationRow, Grade, Interval, Summary
from harness.reporting import thresholds
from harness.reporting.charts import generation_charts, matplotlib_drawer, plotly_drawer, selection
from harness.reporting.charts.generation_charts import ttft_against_prompt
from harness.reporting.charts.spec import Lines
from harness.reporting.html.page import page
from harness.reporting.prose.conditions import with_short_names
from harness.reporting.prose.generation_text import generation_first, generation_section, terminal_generation
from harness.reporting.tables.generation_table import generation_table, tokens_text
from harness.reporting.writers.csv import csv_tables
from harness.reporting.writers.markdown import blocks_text
from harness.reporting.writers.prometheus import metrics_text
from tests.synthetic_generation import CASE, EXPORT, PLAN, parity, record, request


def row(batch: int = 2, prompt: int = 5, step: int = 100_000, grade: Grade = "A", **changes: object) -> GenerationRow:
    case = CASE.model_copy(
        update={
            "case_id": f"tiny-torch-eager-cpu-fp32-b{batch}-p{prompt}-n11",
            "batch_size": batch,
            "prompt_length": prompt,
            "new_tokens": 11,
        }
    )
    requests = tuple(request(place, steps=tuple(step + place + 10 * k for k in range(10))) for place in range(8))
    records = [record(number, case=case, requests=requests) for number in (1, 2)]
    source = GenerationSource(PLAN, {"tiny": EXPORT}, {}, {}, frozenset())
    result = generation_row(source, case, GenerationRecords(measured=records))
    return result.model_copy(update={"grade": grade, "flags": (), **changes})


def summary(*rows: GenerationRow) -> Summary:
    return blank_summary(PLAN, {}, "2026-11-30T00:00:00+00:00").model_copy(update={"generations": rows})


SEVERAL = summary(row(1, step=50_000), row(8, step=90_000), row(1, 50), row(8, 50, grade="C"))


def test_the_table_has_a_line_a_row_and_its_figures() -> None:
    table = generation_table([row()])
    line = dict(zip(table.headers, table.cells()[0], strict=True))
    assert (line["TTFT ms"], line["batch"], line["prompt"], line["new"]) == ("1.00", "2", "5", "11")
    assert line["ITL ms"] == "0.100"
    assert line["tokens"] == "equal"
    assert line["cache MiB"].endswith("× formula)")


def test_tokens_in_words() -> None:
    assert tokens_text(row(parity=parity(unexplained=2))) == "**wrong** (2)"
    flip = parity(free_equal=1, first_difference=7, first_margin=0.0123, first_moved=0.1)
    assert tokens_text(row(parity=flip)) == "equal to 6, margin 0.012"
    assert tokens_text(row(parity=None)) == "not compared"


def test_the_section_names_the_fastest_of_each_shape() -> None:
    text = blocks_text(generation_section(SEVERAL))
    assert "batch 1, 5 + 11 tokens: torch-eager fp32" in text
    # A row of grade C is not ranked.
    assert "batch 8, 50 + 11 tokens:" not in text
    assert "Random weights" in text
    assert generation_section(summary()) == []
    assert blocks_text(generation_first(SEVERAL)).startswith("## Generation")
    assert "torch-eager" in terminal_generation(SEVERAL)


def test_three_charts_and_both_drawers() -> None:
    charts = selection.generation_charts(SEVERAL)["tiny"]
    assert [chart.name for chart in charts] == [
        "tiny-generation-itl",
        "tiny-generation-tokens",
        "tiny-generation-ttft",
    ]
    for chart in charts:
        assert isinstance(chart.spec, Lines)
        assert matplotlib_drawer.draw(chart.spec)
        assert plotly_drawer.draw(chart.spec).plots
    itl = charts[0].spec
    assert isinstance(itl, Lines)
    assert [point.x for point in itl.panels[0].series[0].points[:4]] == [7.25, 9.75, 12.25, 14.75]


def test_the_page_has_no_empty_summary_and_shows_figures_before_charts() -> None:
    shown = page(SEVERAL)
    assert "othing is measured" not in shown
    assert "nothing measured" not in shown
    assert 'id="summary"' not in shown
    assert shown.index("<table") < shown.index('class="plot"')
    assert shown.count("greedy, end token ignored") == 1


def test_arrows_of_wide_intervals_are_explained() -> None:
    ttft = SEVERAL.generations[0].ttft_ns
    assert ttft is not None
    wide = ttft.model_copy(update={"ci95": Interval(low=1e3, high=1e9)})
    rows = (SEVERAL.generations[0].model_copy(update={"ttft_ns": wide}), *SEVERAL.generations[1:])
    for shown, expected in ((SEVERAL.generations, False), (rows, True)):
        chart = ttft_against_prompt(shown, "")
        assert chart is not None
        assert ("Arrows: interval wider than ×1.5" in chart.reading) is expected


def test_one_shape_has_no_chart_over_batches_or_prompts() -> None:
    assert [chart.name for chart in selection.generation_charts(summary(row()))["tiny"]] == ["tiny-generation-itl"]


def test_the_csv_file_and_the_gauges() -> None:
    lines = list(csv.DictReader(io.StringIO(csv_tables(SEVERAL, [])["generation"])))
    assert len(lines) == 4
    assert float(lines[0]["ttft_p50_ms"]) == 1.0
    assert {"itl_p50_ms", "itl_p50_ci95_low_ms", "tokens_per_s", "itl_slope_ms", "cache_bytes"} <= lines[0].keys()
    assert b"inferometer_itl_p50_seconds{" in metrics_text(SEVERAL)


@pytest.mark.parametrize(
    ("text", "outcomes"),
    [
        ("itl_p50<1ms", ["PASS"] * 3 + ["UNKNOWN"]),
        ("tiny/torch-eager/fp32/b1/p5:itl_p50<60us", ["PASS"]),
        ("*/b8/p5*:ttft_p50<0.5ms", ["FAIL", "UNKNOWN"]),
        ("*/b1/*:ttft_p99<200ms", ["UNKNOWN"] * 2),
        ("*/p50/n11:tokens_per_s>=1/s", ["PASS", "UNKNOWN"]),
    ],
)
def test_thresholds(text: str, outcomes: list[str]) -> None:
    result = thresholds.judge(thresholds.parse(text), (), (), SEVERAL.generations)
    assert [entry.outcome for entry in result] == outcomes


def test_a_threshold_without_a_row_or_a_unit_is_refused() -> None:
    with pytest.raises(UsageError, match="matches no row of generation"):
        thresholds.judge(thresholds.parse("gpt2:itl_p50<1ms"), (), (), SEVERAL.generations)
    with pytest.raises(UsageError, match="needs a unit"):
        thresholds.parse("tokens_per_s>10")


def test_a_comparison_reads_itl_and_ttft_as_rows() -> None:
    rows = with_token_rows(summary(row())).rows
    assert [entry.case_id.rpartition(":")[2] for entry in rows] == ["itl", "ttft"]
    assert rows[1].latency_ns is not None
    assert rows[1].latency_ns.median == 1_000_000


def test_each_setting_has_a_look_of_its_own_the_same_in_every_panel_and_in_the_legend() -> None:
    default, graph = row(8), row(8, setting="graph")
    # At batch 1 only the setting that is the second at batch 8.
    chart = generation_charts.itl_against_context([row(1, setting="graph"), default, graph], "")
    assert chart is not None
    legend = {line.name: (line.look, line.dashes) for line in chart.legend}
    assert len(legend) == len(set(legend.values())) == 2
    assert len({look.marker for look, _ in legend.values()}) == 2
    assert [len(panel.series) for panel in chart.panels] == [1, 2]
    for line in (line for panel in chart.panels for line in panel.series):
        assert (line.look, line.dashes) == legend[line.name]
        assert {point.mark.look for point in line.points} == {line.look}


def test_a_model_of_a_user_has_its_short_name() -> None:
    short = with_short_names(summary(row(model="hf:./my-model")))
    assert {entry.model for entry in short.generations} == {"my-model"}


def test_contexts_of_one_prompt_fill_the_panel_and_panels_share_one_scale() -> None:
    rows = [row for row in SEVERAL.generations if row.context is not None and row.context.quarters is not None]
    long = [row.model_copy(update={"prompt_length": 1024}) for row in rows[:1]]
    chart = generation_charts.itl_against_context(long, "")
    assert chart is not None
    points = [point.x for point in chart.panels[0].series[0].points]
    assert 1000 < chart.panels[0].x.low < min(points)
    assert max(points) < chart.panels[0].x.high
    slow = [
        row.model_copy(
            update={"prompt_length": 9, "rates": row.rates.model_copy(update={"total": row.rates.total / 50})}
        )
        for row in rows
        if row.rates is not None
    ]
    rates = generation_charts.tokens_against_batch([*rows, *slow], "")
    assert rates is not None
    assert {(panel.y.scale, panel.y.label) for panel in rates.panels} == {("log", "tokens per second, log scale")}
    wide = [row.rates.model_copy(update={"total_ci95": Interval(low=1, high=9)}) for row in rows if row.rates]
    arrows = [row.model_copy(update={"rates": entry}) for row, entry in zip(rows, wide, strict=False)]
    with_arrows = generation_charts.tokens_against_batch(arrows, "")
    assert with_arrows is not None
    assert "Arrows: interval wider than ×1.5, not to scale." in with_arrows.reading
    assert "Arrows" not in rates.reading
