"""Charts: which are drawn, that nothing leaves the figure, and that the same summary gives the same bytes."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from harness.core.schemas import Interval, Row, Summary
from harness.render import charts, style
from harness.render.chart_dots import far_apart
from harness.render.charts import Chart
from harness.render.dots import Axis, Dot, Panel, dot_figure
from harness.render.style import DPI, WIDTH_IN
from tests.synthetic_cuda import cuda_summary
from tests.synthetic_results import FakeModel, Synthetic, matrix, with_baseline_grades


def png(figure: Figure) -> bytes:
    file = io.BytesIO()
    charts.save(figure, file)
    return file.getvalue()


def test_four_charts_a_model_and_an_overview(summary: Summary) -> None:
    names = [chart.name for chart in charts.select(summary).charts]
    models = ["minilm-l6", "efficientnet-lite0", "resnet50"]
    kinds = ["latency", "throughput", "speedup", "cold"]
    assert names == ["overview", *(f"{model}-{kind}" for model in models for kind in kinds)]


def chart_named(summary: Summary, name: str) -> Chart:
    return next(chart for chart in charts.select(summary).charts if chart.name == name)


@pytest.mark.parametrize(
    "name", ["overview", "minilm-l6-latency", "minilm-l6-throughput", "resnet50-speedup", "resnet50-cold"]
)
def test_no_text_leaves_the_figure_or_covers_another(summary: Summary, name: str) -> None:
    stands_apart(chart_named(summary, name).draw())


@pytest.mark.parametrize(
    "name",
    [
        *("overview", "bert-base-latency", "bert-base-throughput", "minilm-l6-speedup", "minilm-l6-cold"),
        *("minilm-l6-latency", "resnet50-seeded-cuda-transfer-sync-latency"),
    ],
)
def test_charts_of_a_gpu_run_are_as_readable(name: str) -> None:
    stands_apart(chart_named(cuda_summary(), name).draw())


def stands_apart(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    with style.drawing():
        canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in drawn_texts(figure)]
    assert len(boxes) > 10
    for label, box in boxes:
        assert box.x0 >= 0, label
        assert box.y0 >= 0, label
        assert box.x1 <= width, label
        assert box.y1 <= height, label
    clashes = [
        (first, second)
        for place, (first, box) in enumerate(boxes)
        for second, other in boxes[place + 1 :]
        if box.x0 + 1 < other.x1 and other.x0 + 1 < box.x1 and box.y0 + 1 < other.y1 and other.y0 + 1 < box.y1
    ]
    assert clashes == []


@pytest.mark.parametrize("name", ["minilm-l6-throughput", "resnet50-cold"])
def test_the_legend_stands_beside_the_panels(summary: Summary, name: str) -> None:
    figure = chart_named(summary, name).draw()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    legend = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert max(ax.get_window_extent().x1 for ax in figure.axes) < legend.x0
    assert legend.x1 <= figure.bbox.width


def drawn_texts(figure: Figure) -> list[Text]:
    """Every text but the labels of ticks beyond an axis's ends, which matplotlib keeps and does not draw."""
    ticks: set[Text] = set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low <= tick.get_loc() <= high:
                ticks |= {tick.label1, tick.label2}
    texts = figure.findobj(Text)
    return [text for text in texts if text not in ticks and text.get_visible() and text.get_text().strip()]


def test_the_same_summary_gives_the_same_bytes(summary: Summary) -> None:
    first, second = (png(chart_named(summary, "resnet50-speedup").draw()) for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG")


def test_the_width_is_that_of_a_readme_at_two_pixels_a_point(summary: Summary) -> None:
    figure = chart_named(summary, "overview").draw()
    assert figure.get_figwidth() * DPI == pytest.approx(WIDTH_IN * DPI)
    assert 1600 <= WIDTH_IN * DPI <= 1700


def test_conditions_travel_with_every_figure(summary: Summary) -> None:
    for chart in charts.select(summary).charts[:5]:
        text = " ".join(" ".join(found.get_text() for found in chart.draw().texts).split()).replace("\xa0", " ")
        for part in ("Intel(R) Xeon(R)", "2 threads", "model only, one request at a time", "plan 5f0c9a7e2b11"):
            assert part in text, chart.name


def test_unranked_rows_are_grey_and_hollow(summary: Summary) -> None:
    figure = chart_named(summary, "efficientnet-lite0-latency").draw()
    panel = next(ax for ax in figure.axes if ax.get_title(loc="left") == "batch 16")
    label = [text.get_text() for text in figure.axes[0].get_yticklabels()].index("onnxruntime fp32")
    markers = [
        line for line in panel.lines if line.get_marker() not in ("None", "|", ".") and line.get_ydata()[0] == label
    ]
    assert [(line.get_color(), line.get_markerfacecolor()) for line in markers] == [(style.GREY, "white")]


def test_rows_without_a_number_say_why(summary: Summary) -> None:
    figure = chart_named(summary, "resnet50-latency").draw()
    words = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert {"failed", "missing"} <= words
    figure = chart_named(summary, "minilm-l6-latency").draw()
    assert "void: PLACEMENT" in {text.get_text() for ax in figure.axes for text in ax.texts}


def test_latency_starts_at_zero_and_speedup_shares_one_scale(summary: Summary) -> None:
    figure = chart_named(summary, "resnet50-latency").draw()
    assert {ax.get_xlim()[0] for ax in figure.axes} == {0}
    figure = chart_named(summary, "resnet50-speedup").draw()
    assert len({ax.get_xlim() for ax in figure.axes}) == 1


def test_axes_are_logarithmic_where_values_span_decades_only(summary: Summary) -> None:
    assert {ax.get_xscale() for ax in chart_named(cuda_summary(), "bert-base-latency").draw().axes} == {"log"}
    assert {ax.get_yscale() for ax in chart_named(cuda_summary(), "bert-base-throughput").draw().axes} == {"log"}
    assert {ax.get_yscale() for ax in chart_named(summary, "resnet50-throughput").draw().axes} == {"linear"}


def test_a_tail_far_beyond_the_medians_counts_as_far_apart() -> None:
    assert not far_apart([(10, 20), (14, 100)])
    assert far_apart([(10, 20), (14, 120)])
    assert not far_apart([(10, None)])
    assert not far_apart([])


def test_a_logarithmic_axis_shows_the_left_end_of_every_interval_too() -> None:
    look = style.look("onnxruntime")
    dots: dict[str, Dot | str] = {
        "wide": Dot(10.0, Interval(low=8.0, high=11.9), look, "fp32", True),
        "far": Dot(100.0, Interval(low=99.0, high=101.0), look, "fp32", True),
    }
    figure = dot_figure("t", ("m", "c"), [Panel("p", dots)], Axis("ms", log=True), 3)
    assert figure.axes[0].get_xlim()[0] < 8.0


def test_an_interval_wider_than_1_5_has_arrows_in_place_of_a_bar() -> None:
    look = style.look("onnxruntime")

    def drawn(high: float) -> tuple[int, int]:
        dots: dict[str, Dot | str] = {"a": Dot(10.0, Interval(low=9.0, high=high), look)}
        ax = dot_figure("t", ("m", "c"), [Panel("p", dots)], Axis("ms"), 1).axes[0]
        return len([line for line in ax.lines if line.get_linewidth() == 2.4]), len(arrows_of(ax))

    assert drawn(13.4) == (1, 0)
    assert drawn(13.6) == (0, 2)


def arrows_of(ax: Axes) -> list[Text]:
    return [text for text in ax.texts if isinstance(text, Annotation) and text.arrow_patch is not None]


def test_processes_far_off_are_on_the_axis() -> None:
    dots: dict[str, Dot | str] = {
        "a": Dot(10.0, Interval(low=1.0, high=99.0), style.look("onnxruntime"), singles=(10.0, 10.0, 30.0)),
        "b": Dot(12.0, Interval(low=11.9, high=12.1), style.look("openvino"), singles=(12.0, 12.0, 500.0)),
    }
    right = dot_figure("t", ("m", "c"), [Panel("p", dots)], Axis("ms"), 1).axes[0].get_xlim()[1]
    assert 48 <= right < 60


@pytest.mark.parametrize("name", ["resnet50-speedup", "resnet50-cold"])
def test_ratios_to_a_baseline_of_grade_c_are_marked_in_charts(summary: Summary, name: str) -> None:
    assert "~" not in words_of(chart_named(summary, name).draw())
    baselines = {row.speedup.baseline for row in summary.rows if row.speedup}
    rows = [row.model_copy(update={"grade": "C"}) if row.case_id in baselines else row for row in summary.rows]
    figure = chart_named(summary.model_copy(update={"rows": tuple(with_baseline_grades(rows))}), name).draw()
    stands_apart(figure)
    assert "~" in words_of(figure)
    assert "~" in " ".join(text.get_text() for text in figure.texts)  # and what it means


def words_of(figure: Figure) -> str:
    return " ".join(text.get_text() for ax in figure.axes for text in ax.findobj(Text) if text.get_text())


def test_the_start_up_chart_says_where_a_compile_cache_was_warm(summary: Summary) -> None:
    def warm(row: Row) -> Row:
        costs = row.cold_ns and row.cold_ns.model_copy(update={"compile_cached": row.backend == "torch-compile"})
        return row.model_copy(update={"cold_ns": costs})

    def drawn(found: Summary) -> tuple[int, bool]:
        figure = chart_named(found, "resnet50-cold").draw()
        said = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
        return len(arrows_of(figure.axes[0])), "its compile cache was warm" in said

    assert drawn(summary) == (0, False)
    assert drawn(summary.model_copy(update={"rows": tuple(map(warm, summary.rows))})) == (1, True)


def test_settings_that_were_tried_failed_or_are_void_do_not_cover_the_chosen_one() -> None:
    figure = chart_named(cuda_summary(), "minilm-l6-latency").draw()  # onnxruntime's `graph` failed at batch 8
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()].count("onnxruntime fp16") == 1
    figures = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert not {"failed", "missing", "not planned"} & figures
    figure = chart_named(cuda_summary(), "bert-base-latency").draw()  # tensorrt's dynamic engine is void at batch 128
    assert not any(text.get_text().startswith("void") for ax in figure.axes for text in ax.texts)


def test_an_interval_over_decades_does_not_squeeze_the_others(summary: Summary) -> None:
    def wide(row: Row) -> Row:
        if row.case_id != "resnet50-openvino-cpu-fp32-b1" or row.speedup is None or row.speedup.ci95 is None:
            return row
        ends = row.speedup.ci95.model_copy(update={"low": 1e-5, "high": 1e5})
        return row.model_copy(update={"speedup": row.speedup.model_copy(update={"ci95": ends})})

    edited = summary.model_copy(update={"rows": tuple(wide(row) for row in summary.rows)})
    low, high = chart_named(edited, "resnet50-speedup").draw().axes[0].get_xlim()
    assert high / low < 100


def test_a_huge_summary_gets_a_bounded_number_of_charts() -> None:
    models = tuple(FakeModel(f"m{index}", "image", "pretrained", 1e6, 1e5) for index in range(30))
    cases = matrix(models, backends=("torch-eager", "openvino"), batch_sizes=(1,), bf16=())
    selection = charts.select(Synthetic(models=models, cases=cases, rounds=2, samples=20).summary())
    assert len(selection.charts) <= 1 + 4 * charts.MAX_TABLES
    assert (
        selection.note == f"Charts are drawn for the first {charts.MAX_TABLES} of 30 tables; the tables have every row."
    )


def test_nothing_measured_nothing_drawn(summary: Summary) -> None:
    assert charts.select(summary.model_copy(update={"rows": ()})).charts == ()


def test_backends_keep_their_look_between_processes() -> None:
    code = "from harness.render.style import look; print(look('my-backend'), look('openvino'))"
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
    assert len({(found.colour, found.marker) for found in style.LOOKS.values()}) == len(style.LOOKS)


def of_own_models(*names: tuple[str, str]) -> Summary:
    """A summary of models with these (slug, name)."""
    models = tuple(FakeModel(slug, "text", "pretrained", 1e6, 1e5) for slug, _ in names)
    cases = matrix(models, backends=("torch-eager", "openvino"), batch_sizes=(1,), bf16=())
    summary = Synthetic(models=models, cases=cases, rounds=2, samples=20).summary()
    full = dict(names)
    rows = tuple(row.model_copy(update={"model": full[row.model]}) for row in summary.rows)
    return summary.model_copy(update={"rows": rows})


def test_models_whose_names_read_alike_have_a_chart_each() -> None:
    alike = of_own_models(("onnx-model-59f1d0", "onnx:a/model.onnx"), ("onnx-a-model-7d2f0b", "onnx:a-model.onnx"))
    names = [chart.name for chart in charts.select(alike).charts]
    assert len(set(names)) == len(names)
    assert {"onnx-model-59f1d0-latency", "onnx-a-model-7d2f0b-latency"} < set(names)


@pytest.mark.parametrize("name", ["onnx:" + "long/" * 52 + "model.onnx", "onnx:a$_$^.onnx", "onnx:modèle ü.onnx"])
def test_no_name_of_a_model_costs_a_chart(name: str) -> None:
    found = charts.select(of_own_models(("onnx-model-59f1d0", name))).charts
    assert len(found) > 2
    for chart in found:
        assert len(chart.name) < 200
        assert png(chart.draw())


def test_the_start_up_chart_shows_whole_intervals_but_no_wide_ones(summary: Summary) -> None:
    row = next(row for row in summary.rows if row.case_id == "resnet50-openvino-cpu-fp32-b1")
    assert row.speedup is not None
    ratio = row.speedup.ratio
    for low, high, arrows in ((0.75 * ratio, 1.1 * ratio, 0), (ratio / 99, ratio * 99, 2)):
        speedup = row.speedup.model_copy(update={"ci95": Interval(low=low, high=high)})
        rows = [one.model_copy(update={"speedup": speedup}) if one is row else one for one in summary.rows]
        figure = chart_named(summary.model_copy(update={"rows": tuple(rows)}), "resnet50-cold").draw()
        bottom, top = figure.axes[0].get_ylim()
        assert (bottom < low < high < top) == (arrows == 0)
        assert len(arrows_of(figure.axes[0])) == arrows
        stands_apart(figure)


def test_speedups_within_one_doubling_have_a_scale() -> None:
    dots: dict[str, Dot | str] = {
        name: Dot(value, None, style.look(name)) for name, value in (("a", 1.43), ("b", 1.48))
    }
    figure = dot_figure("t", (), [Panel("batch 1", dots)], Axis("speedup", ratio=True), 1)
    with style.drawing():
        FigureCanvasAgg(figure).draw()
    shown = [text.get_text() for text in drawn_texts(figure)]
    assert [text for text in shown if text.endswith("×")] == ["1×", "1.2×", "1.4×", "1.6×"]
