"""Charts as data: which are drawn, and that each shows the figures of its rows on a scale that fits them."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from harness.core.schemas import Interval, Parity, Row, Speedup, Summary
from harness.reporting import ranking
from harness.reporting.charts import selection, style
from harness.reporting.charts.latency_charts import far_apart, latency, overview, throughput, time_axis
from harness.reporting.charts.rows import TableRows, filter_tags, hover
from harness.reporting.charts.spec import Absent, Axis, DotPanel, Dots, Lines, Mark, Spec
from harness.reporting.charts.speedup_charts import cold_start, machines_chart, ratio_axis, speedup
from tests.fixtures.charting import named, of_own_models
from tests.synthetic_cuda import cuda_summary
from tests.synthetic_results import FakeModel, Synthetic, matrix, with_baseline_grades

LOOK = style.backend_look("onnxruntime")


def marks_of(spec: Spec) -> Iterable[Mark]:
    """Every mark of dots and lines, panel by panel; areas, stacked bars and heat maps have none."""
    if isinstance(spec, Dots):
        yield from (mark for panel in spec.panels for mark in panel.marks)
    elif isinstance(spec, Lines):
        yield from (point.mark for panel in spec.panels for series in panel.series for point in series.points)


def dots(summary: Summary, name: str) -> Dots:
    result = named(summary, name)
    assert isinstance(result, Dots)
    return result


def lines(summary: Summary, name: str) -> Lines:
    result = named(summary, name)
    assert isinstance(result, Lines)
    return result


def table_of(summary: Summary, model: str, change: Callable[[Row], Row] = lambda row: row) -> TableRows:
    rows = next(rows for key, rows in ranking.by_table(summary.rows) if key[0] == model)
    return TableRows(model, list(map(change, rows)), (), "torch-eager", "Conditions.")


def words(spec: Dots) -> set[str]:
    return {line.word for panel in spec.panels for line in panel.lines.values() if isinstance(line, Absent)}


# --- which -------------------------------------------------------------------------------------------------------


def test_four_charts_a_model_and_an_overview(summary: Summary) -> None:
    names = [chart.name for chart in selection.select(summary).charts]
    models = ["minilm-l6", "efficientnet-lite0", "resnet50"]
    assert names == ["overview", *(f"{model}-{kind}" for model in models for kind in selection.CHARTS)]


def test_a_huge_summary_gets_a_bounded_number_of_charts() -> None:
    models = tuple(FakeModel(f"m{index}", "image", "pretrained", 1e6, 1e5) for index in range(30))
    cases = matrix(models, backends=("torch-eager", "openvino"), batch_sizes=(1,), bf16=())
    result = selection.select(Synthetic(models=models, cases=cases, rounds=2, samples=20).summary())
    assert len(result.charts) <= 1 + len(selection.CHARTS) * selection.MAX_TABLES
    assert (
        result.note == f"Charts are drawn for the first {selection.MAX_TABLES} of 30 tables; the tables have every row."
    )


def test_nothing_measured_nothing_drawn(summary: Summary) -> None:
    assert selection.select(summary.model_copy(update={"rows": ()})).charts == ()


def test_one_row_has_no_chart_one_batch_no_throughput_and_a_baseline_alone_no_speedup(summary: Summary) -> None:
    table = table_of(summary, "resnet50")
    one_batch = replace(table, rows=[row for row in table.rows if row.batch_size == 1])
    assert throughput(one_batch) is None
    alone = replace(one_batch, rows=[row for row in one_batch.rows if row.speedup.baseline == row.case_id])  # type: ignore[union-attr]
    assert len(alone.rows) == 1
    assert [chart(alone) for chart in selection.CHARTS.values()] == [None] * len(selection.CHARTS)


def test_models_whose_names_read_alike_have_a_chart_each() -> None:
    alike = of_own_models(("onnx-model-59f1d0", "onnx:a/model.onnx"), ("onnx-a-model-7d2f0b", "onnx:a-model.onnx"))
    names = [chart.name for chart in selection.select(alike).charts]
    assert len(set(names)) == len(names)
    assert {"onnx-model-59f1d0-latency", "onnx-a-model-7d2f0b-latency"} < set(names)


def test_conditions_travel_with_every_chart(summary: Summary) -> None:
    for chart in selection.select(summary).charts:
        for part in ("Intel(R) Xeon(R)", "2 threads", "model only, one request at a time", "plan 5f0c9a7e2b11"):
            assert part in chart.spec.conditions, chart.name


# --- marks -------------------------------------------------------------------------------------------------------


def test_lines_are_best_first_and_rows_without_a_figure_say_why(summary: Summary) -> None:
    spec = dots(summary, "efficientnet-lite0-latency")
    panel = next(panel for panel in spec.panels if "torch-script fp32" in panel.lines)
    values = [mark.value for mark in panel.marks]
    assert values == sorted(values)
    assert list(panel.lines)[: len(values)] == [label for label, mark in panel.lines.items() if isinstance(mark, Mark)]
    assert "void: PARITY_FAIL" in words(spec)
    assert "void: PLACEMENT" in words(dots(summary, "minilm-l6-latency"))
    assert {"failed", "missing"} <= words(dots(summary, "resnet50-latency"))
    assert set(spec.labels) == {label for panel in spec.panels for label in panel.lines}
    speedups = [mark.value for mark in dots(summary, "resnet50-speedup").panels[0].marks]
    assert speedups == sorted(speedups, reverse=True)


def test_every_measured_row_of_a_table_has_its_mark_with_its_figures(summary: Summary) -> None:
    table = table_of(summary, "minilm-l6")
    marks = {mark.tags[1:]: mark for mark in marks_of(latency(table) or pytest.fail("no chart"))}
    for row in table.rows:
        if row.latency_ns is None or row.grade == "F" or row.sequence_length != table.rows[0].sequence_length:
            continue
        mark = next(mark for mark in marks_of(latency(table)) if mark.hover == hover(row))  # type: ignore[arg-type]
        assert mark.value == pytest.approx(row.latency_ns.median / 1e6)
        assert mark.singles == pytest.approx(
            [process_median / 1e6 for process_median in row.latency_ns.process_medians]
        )
        assert mark.tags == filter_tags(row)
    assert marks


def test_unranked_rows_are_grey_and_hollow(summary: Summary) -> None:
    spec = dots(summary, "efficientnet-lite0-latency")
    mark = next(panel for panel in spec.panels if panel.title == "batch 16").lines["onnxruntime fp32"]
    assert isinstance(mark, Mark)
    assert (mark.fill, mark.colour) == ("hollow", style.GREY)
    assert "Grey and hollow" in spec.reading


def test_a_legend_looks_the_same_for_points_of_every_grade(summary: Summary) -> None:
    table = table_of(summary, "minilm-l6", lambda row: row.model_copy(update={"grade": "C"}))
    spec = throughput(table)
    assert spec is not None
    assert {mark.fill for mark in marks_of(spec)} == {"open"}
    assert all(mark.colour == mark.look.colour for mark in marks_of(spec)), "the colour alone names the backend"
    assert "Hollow: flagged, not ranked." in spec.reading
    assert {entry.fill for entry in spec.legend} == {"solid", "tint"}
    assert {entry.tags[3:] for entry in spec.legend} == {(None, None)}


def test_settings_that_failed_or_are_void_do_not_cover_the_chosen_one() -> None:
    spec = dots(cuda_summary(), "minilm-l6-latency")  # onnxruntime's `graph` failed at batch 8
    assert spec.labels.count("onnxruntime fp16") == 1
    assert not {"failed", "missing"} & words(spec)
    # tensorrt's dynamic engine is void at batch 128
    assert not any(word.startswith("void") for word in words(dots(cuda_summary(), "bert-base-latency")))


@pytest.mark.parametrize(("high", "wide"), [(13.4, False), (13.6, True)])
def test_an_interval_wider_than_1_5_is_not_drawn_to_scale(summary: Summary, high: float, wide: bool) -> None:
    def stretched(row: Row) -> Row:
        latency = row.latency_ns and row.latency_ns.model_copy(update={"ci95": Interval(low=9e6, high=high * 1e6)})
        return row.model_copy(update={"latency_ns": latency})

    spec = latency(table_of(summary, "minilm-l6", stretched))
    assert spec is not None
    assert {(mark.interval is None, mark.wide) for mark in marks_of(spec)} == {(wide, wide)}
    assert ("Arrows (↔)" in spec.reading) == wide


@pytest.mark.parametrize("chart", [speedup, cold_start])
def test_a_chart_based_on_grade_c_or_a_warm_cache_says_so(
    summary: Summary, chart: Callable[[TableRows], Dots | Lines | None]
) -> None:
    def warm(row: Row) -> Row:
        costs = row.cold_ns and row.cold_ns.model_copy(update={"compile_cached": True})
        return row.model_copy(update={"cold_ns": costs})

    table = table_of(summary, "resnet50", warm)
    baselines = {row.speedup.baseline for row in table.rows if row.speedup}
    flagged = [row.model_copy(update={"grade": "C"}) if row.case_id in baselines else row for row in table.rows]
    for rows, marked in ((table.rows, False), (with_baseline_grades(flagged), True)):
        spec = chart(replace(table, rows=rows))
        assert spec is not None
        shown = [mark.text for mark in marks_of(spec)] + [panel.title[-1] for panel in spec.panels]
        assert any("~" in text for text in shown) == marked
        assert ("~" in spec.reading) == marked
        openvino = next(row for row in rows if row.backend == "openvino")
        assert ("×" in hover(openvino), "~" in hover(openvino)) == (True, marked)
    assert all(mark.warm and "cache warm" in mark.hover for mark in marks_of(cold_start(table)))  # type: ignore[arg-type]
    assert "compile cache was warm" in cold_start(table).reading  # type: ignore[union-attr]
    cold = cold_start(table_of(summary, "resnet50"))
    assert cold is not None
    assert "cache" not in cold.reading


def test_every_point_of_cold_start_has_the_number_of_its_name(summary: Summary) -> None:
    """Settings of a backend share colour and marker."""
    spec = cold_start(table_of(summary, "minilm-l6"))
    assert spec is not None
    assert [entry.name.partition(" ")[0] for entry in spec.legend] == [
        str(place + 1) for place in range(len(spec.legend))
    ]
    for panel in spec.panels:
        for series in panel.series:
            assert {point.mark.text for point in series.points} == {series.name.partition(" ")[0]}


def int8(row: Row) -> Row:
    parity = Parity.model_validate({**(row.parity.model_dump() if row.parity else {}), "top1_agreement": 0.906})
    return row.model_copy(update={"precision": "int8", "parity": parity.model_copy(update={"cosine": 0.9821})})


def test_accuracy_is_beside_int8_in_every_chart_and_beside_nothing_else(summary: Summary) -> None:
    def some(row: Row) -> Row:
        return int8(row) if row.precision == "bf16" and row.parity else row

    pretrained = table_of(summary, "minilm-l6", some)
    charts = [latency(pretrained), throughput(pretrained), speedup(pretrained), cold_start(pretrained)]
    for spec in charts:
        assert spec is not None
        labels = spec.labels if isinstance(spec, Dots) else [entry.name for entry in spec.legend]
        quantised = [label for label in labels if "int8" in label]
        assert quantised
        assert all(label.endswith("(top-1 90.6%)") for label in quantised)
        assert not any("(" in label for label in labels if "int8" not in label)
        assert "Beside int8:" in spec.reading
    # Random weights have near-tied answers, so that their agreement says nothing.
    seeded = table_of(summary, "minilm-l6", lambda row: some(row).model_copy(update={"weights": "seeded"}))
    spec = latency(seeded)
    assert spec is not None
    assert {label for label in spec.labels if "int8" in label} == {
        "torch-eager int8 (cosine 0.9821)",
        "openvino int8 (cosine 0.9821)",
    }
    titles = [panel.title for panel in overview([("minilm-l6", pretrained.rows)], "Conditions.").panels]
    assert [title.splitlines()[-1] for title in titles] == ["int8: top-1 90.6%"]


def test_the_chart_of_machines_has_the_accuracy_of_int8_beside_it(summary: Summary) -> None:
    rows = tuple(int8(row) if row.precision == "bf16" and row.parity else row for row in summary.rows)
    quantised = summary.model_copy(update={"rows": rows})
    spec = machines_chart({"a": quantised, "b": quantised})
    assert spec is not None
    assert {label.endswith("(top-1 90.6%)") or "cosine" in label for label in spec.labels if "int8" in label} == {True}
    assert "Beside int8:" in spec.reading


def test_fp8_has_its_accuracy_beside_it_and_int8_its_own(summary: Summary) -> None:
    def some(row: Row) -> Row:
        if row.precision != "bf16" or not row.parity:
            return row
        result = int8(row)
        if row.backend == "openvino" or not result.parity:
            return result
        parity = result.parity.model_copy(update={"top1_agreement": 0.953})
        return result.model_copy(update={"precision": "fp8", "parity": parity})

    rows = table_of(summary, "minilm-l6", some)
    spec = latency(rows)
    assert spec is not None
    assert {"torch-eager fp8 (top-1 95.3%)", "openvino int8 (top-1 90.6%)"} <= set(spec.labels)
    assert "Beside int8:" in spec.reading
    assert "Beside fp8:" in spec.reading
    (panel,) = overview([("minilm-l6", rows.rows)], "Conditions.").panels
    assert panel.title.splitlines()[-2:] == ["int8: top-1 90.6%", "fp8: top-1 95.3%"]


def test_names_under_the_pointer_are_text(summary: Summary) -> None:
    row = summary.rows[0].model_copy(update={"backend": "<a href='http://evil.example'>x</a>"})
    assert "&lt;a href=" in hover(row)
    assert "<a" not in hover(row)


# --- scales ------------------------------------------------------------------------------------------------------


def test_latency_begins_at_zero_and_speedup_has_one_scale_with_1_in_it(summary: Summary) -> None:
    assert {panel.axis.low for panel in dots(summary, "resnet50-latency").panels} == {0}
    (axis,) = {panel.axis for panel in dots(summary, "resnet50-speedup").panels}
    assert axis.low < 1 < axis.high
    assert axis.reference == 1


def test_an_axis_is_logarithmic_where_values_span_decades_only(summary: Summary) -> None:
    assert {panel.axis.scale for panel in dots(cuda_summary(), "bert-base-latency").panels} == {"log"}
    assert {panel.y.scale for panel in lines(cuda_summary(), "bert-base-throughput").panels} == {"log"}
    assert {panel.y.scale for panel in lines(summary, "resnet50-throughput").panels} == {"linear"}


def test_the_panels_of_a_chart_have_one_kind_of_scale(summary: Summary) -> None:
    first = table_of(summary, "minilm-l6").rows[0]

    def slower(row: Row) -> Row:
        assert first.latency_ns is not None
        late = first.latency_ns.model_copy(update={"median": first.latency_ns.median * 100})
        return row.model_copy(update={"latency_ns": late}) if row.case_id == first.case_id else row

    for change, scale in ((lambda row: row, "linear"), (slower, "log")):
        spec = latency(table_of(summary, "minilm-l6", change))
        assert spec is not None
        assert {panel.axis.scale for panel in spec.panels} == {scale}


def test_a_tail_far_beyond_the_medians_counts_as_far_apart() -> None:
    assert not far_apart([(10, 20), (14, 100)])
    assert far_apart([(10, 20), (14, 120)])
    assert not far_apart([(10, None)])
    assert not far_apart([])


def test_every_mark_is_within_its_axis(summary: Summary) -> None:
    for chart in [*selection.select(summary).charts, *selection.select(cuda_summary()).charts]:
        spec = chart.spec
        if isinstance(spec, Dots):
            results = [(mark.value, panel.axis) for panel in spec.panels for mark in panel.marks]
        else:
            assert isinstance(spec, Lines)
            points = [(point, panel) for panel in spec.panels for series in panel.series for point in series.points]
            results = [(point.x, panel.x) for point, panel in points]
            results += [(point.mark.value, panel.y) for point, panel in points]
        assert results
        assert all(axis.low <= value <= axis.high for value, axis in results), chart.name
        assert all(len(axis.shown) >= 1 for _, axis in results), chart.name


def test_a_logarithmic_axis_shows_the_left_end_of_every_interval_too() -> None:
    marks = [
        Mark(10.0, LOOK, interval=Interval(low=8.0, high=11.9)),
        Mark(100.0, LOOK, interval=Interval(low=99.0, high=101.0)),
    ]
    assert time_axis("ms", marks, log=True).low < 8.0


def test_processes_far_off_are_on_the_axis_as_far_as_they_squeeze_nothing() -> None:
    marks = [Mark(10.0, LOOK, singles=(10.0, 30.0), wide=True), Mark(12.0, LOOK, singles=(12.0, 500.0))]
    assert 48 <= time_axis("ms", marks, log=False).high < 60


def test_an_interval_over_decades_does_not_squeeze_the_others(summary: Summary) -> None:
    wild = Speedup(ratio=2, ci95=Interval(low=1e-9, high=1e9), baseline="elsewhere")
    spec = speedup(table_of(summary, "minilm-l6", lambda row: row.model_copy(update={"speedup": wild})))
    assert spec is not None
    (axis,) = {panel.axis for panel in spec.panels}
    assert 0.1 < axis.low < 1
    assert 2 < axis.high < 20


def test_a_start_up_chart_shows_whole_intervals_but_no_wide_ones(summary: Summary) -> None:
    for factor, inside in ((1.1, True), (99, False)):

        def stretched(row: Row, factor: float = factor) -> Row:
            if row.speedup is None or row.backend != "openvino":
                return row
            ends = Interval(low=row.speedup.ratio / factor, high=row.speedup.ratio * factor)
            return row.model_copy(update={"speedup": row.speedup.model_copy(update={"ci95": ends})})

        spec = cold_start(table_of(summary, "resnet50", stretched))
        assert spec is not None
        y = spec.panels[0].y
        mark = next(mark for mark in marks_of(spec) if mark.tags[1] == "openvino")
        assert (y.low < mark.value / factor and mark.value * factor < y.high) == inside
        assert mark.wide == (not inside)


def test_speedups_within_one_doubling_have_a_scale() -> None:
    axis = ratio_axis([Mark(1.43, LOOK), Mark(1.48, LOOK)])
    assert [axis.text(tick) for tick in axis.shown] == ["1×", "1.2×", "1.4×", "1.6×"]


def test_the_decades_of_an_axis_are_its_only_labels_where_more_have_no_room() -> None:
    assert list(time_axis("ms", [Mark(1.0, LOOK), Mark(90.0, LOOK)], log=True).shown) == [1, 10, 100]
    assert 2 in time_axis("ms", [Mark(1.0, LOOK), Mark(9.0, LOOK)], log=True).shown


def test_backends_keep_their_look_between_processes() -> None:
    code = (
        "from harness.reporting.charts.style import backend_look; "
        "print(backend_look('my-backend'), backend_look('openvino'))"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
    assert len({(entry.colour, entry.marker) for entry in style.LOOKS.values()}) == len(style.LOOKS)


def test_an_empty_panel_has_an_axis_and_its_words() -> None:
    panel = DotPanel("batch 1", time_axis("ms", [], log=False), {"a": Absent("failed")})
    assert panel.marks == []
    assert panel.axis == Axis("ms", 0.0, pytest.approx(1.2), panel.axis.ticks)
    assert math.isclose(panel.axis.ticks[0], 0)


def test_the_text_below_speaks_of_several_processes_only_where_there_are_several(summary: Summary) -> None:
    def reading(rows: list[Row]) -> str:
        return overview([("minilm-l6", rows)], "Conditions.").reading

    once: dict[str, object] = {"process_medians": (5e6,), "ci95": None}
    several = [row for row in summary.rows if row.model == "minilm-l6" and row.latency_ns]
    one = [
        row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update=once)})
        for row in several
        if row.latency_ns
    ]
    assert reading(several).startswith("Marker: median of process medians; bar: 95% CI over processes; small dots: ")
    assert reading(one).startswith("Marker: median of one process; tick: p95 (hidden where")
    offline = [row.model_copy(update={"mode": "offline"}) for row in one]
    assert reading(offline).startswith("Marker: wall time of all blocks by their batches.")
