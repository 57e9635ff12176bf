"""Charts of the page as data, and its Markdown parts."""

from __future__ import annotations

import json
import math

import pytest

from harness.core.schemas import Interval, Row, Speedup, Summary
from harness.render import units
from harness.render.html.dots import NOTE, latency_plots, speedup_plots
from harness.render.html.lines import cold_plots, throughput_plots
from harness.render.html.plot import Plot, PlotGroup, hover, tags
from harness.reporting.table import Column, Table, words
from harness.reporting.writers import html as prose
from harness.reporting.writers.markdown import table_text
from tests.synthetic_results import with_baseline_grades
from tests.unit.reporting.test_tables import rows_of


def labelled(plot: Plot) -> dict[str, str]:
    """Label of a line → what stands at its marker, or why there is none."""
    return {trace["y"][0]: trace["text"][0] for trace in plot.data if "text" in trace["mode"]}


def test_dots_stand_best_first_and_void_rows_have_a_word(summary: Summary) -> None:
    panels = latency_plots(rows_of(summary, "efficientnet-lite0")).plots
    panel = next(plot for plot in panels if "void" in str(plot.data))
    order = panel.layout["yaxis"]["categoryarray"][::-1]
    found = labelled(panel)
    assert set(order) == set(found)
    assert found["torch-script fp32"] == "<i>void: PARITY_FAIL</i>"
    assert order[-1] == "torch-script fp32"
    medians = [float(found[name].replace(",", "")) for name in order[:-1]]
    assert medians == sorted(medians)


def test_the_panels_of_a_figure_have_one_kind_of_scale(summary: Summary) -> None:
    def slower(row: Row) -> Row:
        assert row.latency_ns is not None
        changed = row.latency_ns.model_copy(update={"median": row.latency_ns.median * 100})
        return row.model_copy(update={"latency_ns": changed})

    rows = [row for row in rows_of(summary, "minilm-l6") if row.grade != "F"]
    first = next(row for row in rows if row.batch_size == 1)
    for found in (rows, [slower(row) if row is first else row for row in rows]):
        kinds = {plot.layout["xaxis"].get("type") for plot in latency_plots(found).plots}
        assert kinds == ({None} if found is rows else {"log"})


def test_a_tail_far_beyond_the_medians_makes_the_scale_logarithmic(summary: Summary) -> None:
    rows = [row for row in rows_of(summary, "minilm-l6") if row.grade != "F" and row.batch_size == 1]
    latency = rows[0].latency_ns
    assert latency is not None
    late = latency.model_copy(update={"p95": max(row.latency_ns.median for row in rows if row.latency_ns) * 9})
    changed = [rows[0].model_copy(update={"latency_ns": late}), *rows[1:]]
    for found, kind in ((rows, None), (changed, "log")):
        assert {plot.layout["xaxis"].get("type") for plot in latency_plots(found).plots} == {kind}


@pytest.mark.parametrize("tail", [1, 100], ids=["linear", "logarithmic"])
def test_an_interval_of_decades_is_not_drawn_and_marked(summary: Summary, tail: float) -> None:
    row = next(row for row in rows_of(summary, "minilm-l6") if row.grade != "F")
    assert row.latency_ns is not None
    median = row.latency_ns.median
    update = {"ci95": Interval(low=median / 1e15, high=median * 1e15), "p95": median * tail}
    (plot,) = latency_plots([row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update=update)})]).plots
    assert [trace["error_x"] for trace in plot.data if "error_x" in trace] == [{"visible": False}]
    assert [trace["text"] for trace in plot.data if "text" in trace] == [[f"{units.significant(median / 1e6)} ↔"]]
    (whole,) = latency_plots([row]).plots
    assert [trace["error_x"]["type"] for trace in whole.data if "error_x" in trace] == ["data"]
    assert "↔" in NOTE


def test_what_rests_on_grade_c_or_a_warm_cache_says_so(summary: Summary) -> None:
    rows = rows_of(summary, "resnet50")
    cached = [
        row.model_copy(update={"cold_ns": row.cold_ns and row.cold_ns.model_copy(update={"compile_cached": True})})
        for row in rows
    ]
    baselines = {row.speedup.baseline for row in rows if row.speedup}
    against = [row.model_copy(update={"grade": "C"}) if row.case_id in baselines else row for row in cached]
    for found, marked in ((rows, False), (with_baseline_grades(against), True)):
        speedups, colds = speedup_plots(found, "torch-eager"), cold_plots(found, "torch-eager")
        assert speedups is not None
        assert colds is not None
        assert {"~" in text for text in texts(speedups) if text[-1].isdigit()} == {marked}
        assert any("~" in text for text in texts(colds)) == marked
        assert all(("cached" in text) == marked for text in texts(colds))
        assert ("~" in speedups.note, "~" in colds.note, "Cached:" in colds.note) == (marked,) * 3
        openvino = next(row for row in found if row.backend == "openvino")
        assert ("×" in hover(openvino), "~" in hover(openvino)) == (True, marked)


def texts(group: PlotGroup) -> list[str]:
    return [text for plot in group.plots for trace in plot.data for text in trace.get("text", ())]


def test_every_point_of_every_chart_names_its_row_for_the_filters(summary: Summary) -> None:
    rows = rows_of(summary, "minilm-l6")
    known = [tags(row) for row in rows]
    groups = [latency_plots(rows), throughput_plots(rows), speedup_plots(rows, "torch-eager"), cold_plots(rows, "x")]
    seen = []
    for group in groups:
        assert group is not None
        for trace in (trace for plot in group.plots for trace in plot.data):
            assert len(trace["customdata"]) == len(trace["x"]) == len(trace["y"])
            # An entry of the legend alone has no row: it goes with its backend and precision.
            seen += [tag for tag in trace["customdata"] if tag[2] is not None]
    assert all(tag in known for tag in seen)
    assert {tuple(tag) for tag in seen} == {tuple(tag) for tag in known}


def test_flagged_rows_are_hollow_and_the_legend_is_not(summary: Summary) -> None:
    rows = [row.model_copy(update={"grade": "C"}) for row in rows_of(summary, "minilm-l6")]
    group = throughput_plots(rows)
    assert group is not None
    lines = [trace for plot in group.plots for trace in plot.data if trace.get("showlegend") is False]
    entries = [trace for plot in group.plots for trace in plot.data if "name" in trace]
    assert len(lines) == len(entries) > 3
    assert {colour for trace in lines for colour in trace["marker"]["color"]} == {"page"}
    assert "page" not in {trace["marker"]["color"] for trace in entries}


def test_a_legend_of_backends_stays_whatever_precision_is_filtered(summary: Summary) -> None:
    group = cold_plots(rows_of(summary, "minilm-l6"), "torch-eager")
    assert group is not None
    entries = [trace for trace in group.plots[0].data if trace["x"] == [None]]
    assert len(entries) > 2
    for entry in entries:
        assert entry["customdata"][0][1] is None
        assert entry["marker"]["color"] == entry["line"]["color"]


def test_speedups_share_one_scale_with_1_in_it_whatever_one_interval_says(summary: Summary) -> None:
    wild = Speedup(ratio=2, ci95=Interval(low=1e-9, high=1e9), baseline="elsewhere")
    rows = [row.model_copy(update={"speedup": wild}) for row in rows_of(summary, "minilm-l6")]
    group = speedup_plots(rows, "torch-eager")
    assert group is not None
    ranges = {tuple(plot.layout["xaxis"]["range"]) for plot in group.plots}
    ((low, high),) = ranges
    assert math.log10(0.1) < low < 0 < math.log10(2) < high < math.log10(20)


def test_one_batch_size_has_no_throughput_line_and_a_baseline_alone_no_speedup(summary: Summary) -> None:
    rows = [row for row in rows_of(summary, "resnet50") if row.batch_size == 1]
    assert throughput_plots(rows) is None
    alone = [row for row in rows if row.speedup and row.speedup.baseline == row.case_id]
    assert len(alone) == 1
    assert speedup_plots(alone, "torch-eager") is None
    assert cold_plots(alone, "torch-eager") is None


def test_plots_are_json(summary: Summary) -> None:
    group = latency_plots(rows_of(summary, "resnet50"))
    assert json.loads(json.dumps([plot.data for plot in group.plots], allow_nan=False))


def test_names_under_the_pointer_are_text(summary: Summary) -> None:
    row = rows_of(summary, "resnet50")[0].model_copy(update={"backend": "<a href='http://evil.example'>x</a>"})
    assert "&lt;a href=" in hover(row)
    assert "<a" not in hover(row)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**0.315**", "<strong>0.315</strong>"),
        ("*0.315*", "<em>0.315</em>"),
        ("n<662", "n&lt;662"),
        ("[0.1, 0.2]", "[0.1, 0.2]"),
        ("`a<b`", "<code>a&lt;b</code>"),
        ("<b>x</b> *y*", "&lt;b&gt;x&lt;/b&gt; <em>y</em>"),
        ("![x](http://evil.example/x.png)*", "![x](http://evil.example/x.png)*"),
        ("[x](javascript:alert)_", "[x](javascript:alert)_"),
        ("[x](//evil.example/x)", "[x](//evil.example/x)"),
        ("[x](../x)", "[x](../x)"),
        ("[model.json](profiles/a-b1/model.json)", '<a href="profiles/a-b1/model.json">model.json</a>'),
    ],
)
def test_inline(text: str, expected: str) -> None:
    assert prose.inline(text) == expected


def test_a_table_keeps_its_pipes_and_its_alignment() -> None:
    table = Table(
        [words("backend", lambda row: row[0]), Column("ms", lambda row: row[1])], [("a|b", "1.20")], "Before."
    )
    found = prose.blocks(table_text(table))
    assert found.startswith("<p>Before.</p>")
    assert '<th scope="col" class="word">backend</th><th scope="col" class="num">ms</th>' in found
    assert '<tr><td class="word">a|b</td><td class="num">1.20</td></tr>' in found
