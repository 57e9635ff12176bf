"""Both drawers: every mark of a specification appears, nothing leaves a figure, and bytes repeat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from harness.core import store
from harness.core.schemas import Interval, Summary
from harness.reporting.charts import matplotlib_drawer, plotly_drawer, selection, style
from harness.reporting.charts.matplotlib_drawer import image
from harness.reporting.charts.plotly_drawer import short
from harness.reporting.charts.spec import (
    Absent,
    Axis,
    DotPanel,
    Dots,
    LinePanel,
    Mark,
    Point,
    Series,
    Spec,
    label_sides,
)
from harness.reporting.charts.style import DPI, WIDTH_IN
from tests.fixtures.charting import named, of_own_models, stands_apart
from tests.synthetic_cuda import cuda_summary

CPU = ("overview", "minilm-l6-latency", "minilm-l6-throughput", "resnet50-speedup", "resnet50-cold")
GPU = (
    "overview",
    "bert-base-latency",
    "bert-base-throughput",
    "minilm-l6-speedup",
    "minilm-l6-cold",
    "minilm-l6-latency",
)
Seen = tuple[list[tuple[float, float | str]], list[str]]
"""(x, y) of every marker, and the words of every line without one."""


def panels_by_matplotlib(spec: Spec) -> list[Seen]:
    figure = matplotlib_drawer.draw(spec)
    results: list[Seen] = []
    for ax in figure.axes[: len(spec.panels)]:  # type: ignore[union-attr]
        labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        markers = [line for line in ax.lines if line.get_marker() not in ("None", "|", ".")]
        places = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in markers]  # type: ignore[index]
        named_places = [(x, labels[round(y)] if isinstance(spec, Dots) else y) for x, y in places]
        words = [text.get_text() for text in ax.texts if text.get_fontstyle() == "italic"]
        results.append(([(short(x), y if isinstance(y, str) else short(y)) for x, y in named_places], words))
    return results


def test_a_line_that_only_another_panel_has_is_not_called_unplanned() -> None:
    """A skipped case was planned, and a chart does not know which of the two it is."""
    mark = Mark(1.0, style.backend_look("a"), text="1.00")
    panels = tuple(DotPanel(name, Axis("ms", 0, 2, (0, 1, 2)), {name: mark}) for name in ("a", "b"))
    spec = Dots("Title", "Heading", "Reading.", "Conditions.", panels, ("a", "b"), 2)
    assert [words for _, words in panels_by_matplotlib(spec)] == [["not measured"], ["not measured"]]


def panels_by_plotly(spec: Spec) -> list[Seen]:
    results: list[Seen] = []
    for plot in plotly_drawer.draw(spec).plots:
        drawn = [entry for entry in plot.data if entry["x"] != [None] and "hovertext" in entry]
        places = [place for entry in drawn for place in zip(entry["x"], entry["y"], strict=True)]
        words = [
            entry["text"][0].removeprefix("<i>").removesuffix("</i>") for entry in plot.data if entry["mode"] == "text"
        ]
        results.append((places, words))
    return results


@pytest.mark.parametrize("drawn", [panels_by_matplotlib, panels_by_plotly], ids=["matplotlib", "plotly"])
@pytest.mark.parametrize("name", CPU)
def test_each_mark_of_a_specification_appears(summary: Summary, name: str, drawn: Callable[[Spec], list[Seen]]) -> None:
    spec = named(summary, name)
    result = drawn(spec)
    assert len(result) == len(spec.panels)  # type: ignore[union-attr]
    for (places, words), panel in zip(result, spec.panels, strict=True):  # type: ignore[union-attr]
        if isinstance(panel, DotPanel):
            expected = {(short(line.value), label) for label, line in panel.lines.items() if isinstance(line, Mark)}
            lost = {line.word for line in panel.lines.values() if isinstance(line, Absent)}
            assert lost <= set(words)
        else:
            expected = {(short(point.x), short(point.mark.value)) for series in panel.series for point in series.points}
        assert expected
        assert set(places) == expected


def test_both_drawers_keep_the_limits_of_the_specification(summary: Summary) -> None:
    for name in CPU:
        spec = named(summary, name)
        axes = matplotlib_drawer.draw(spec).axes
        for ax, plot, panel in zip(axes, plotly_drawer.draw(spec).plots, spec.panels, strict=False):  # type: ignore[union-attr]
            axis = panel.axis if isinstance(panel, DotPanel) else panel.x
            assert ax.get_xlim() == pytest.approx((axis.low, axis.high))
            low, high = plot.layout["xaxis"]["range"]
            ends = (low, high) if axis.scale == "linear" else (10**low, 10**high)
            assert ends == pytest.approx((axis.low, axis.high), rel=1e-4)


# --- on the page --------------------------------------------------------------------------------------------------


def test_every_point_has_the_tags_of_its_row_for_the_filters(summary: Summary) -> None:
    known = {
        (row.model, row.backend, row.precision, str(row.batch_size), row.grade or row.status) for row in summary.rows
    }
    for chart in selection.select(summary).charts:
        for trace in (trace for plot in plotly_drawer.draw(chart.spec).plots for trace in plot.data):
            assert len(trace["customdata"]) == len(trace["x"]) == len(trace["y"])
            # An entry of the legend alone has no row: it goes with its backend and precision.
            assert {tag for tag in trace["customdata"] if tag[3] is not None} <= known


def test_plots_are_json_and_names_in_them_are_text(summary: Summary) -> None:
    evil = "<img src=x>"
    hostile = summary.model_copy(
        update={"rows": tuple(row.model_copy(update={"backend": evil}) for row in summary.rows)}
    )
    for chart in selection.select(hostile).charts:
        plots = plotly_drawer.draw(chart.spec).plots
        text = json.dumps([[strip(plot.data), plot.layout] for plot in plots], allow_nan=False)
        assert "<img" not in text


def strip(traces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the tags, which the page compares and never shows."""
    return [{name: entry for name, entry in trace.items() if name != "customdata"} for trace in traces]


@pytest.mark.parametrize(("wide", "text"), [(False, "10.0"), (True, "10.0 ↔")])
def test_an_interval_that_is_not_drawn_is_marked(wide: bool, text: str) -> None:
    interval = None if wide else Interval(low=9, high=11)
    (plot,) = plotly_drawer.draw(
        one_dot(Mark(10.0, style.backend_look("a"), interval=interval, wide=wide, text="10.0"))
    ).plots
    assert [trace["error_x"].get("type") for trace in plot.data if "error_x" in trace] == [None if wide else "data"]
    assert [trace["text"] for trace in plot.data if "text" in trace] == [[text]]


def one_dot(mark: Mark) -> Dots:
    panel = DotPanel("batch 1", Axis("ms", 0, 20, (0, 10, 20)), {"a": mark})
    return Dots("Title", "Heading", "Reading.", "Conditions.", (panel,), ("a",), 1)


# --- as a figure --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CPU)
def test_no_text_leaves_the_figure_or_covers_another(summary: Summary, name: str) -> None:
    stands_apart(matplotlib_drawer.draw(named(summary, name)))


@pytest.mark.parametrize("name", [*GPU, "resnet50-seeded-cuda-transfer-sync-latency"])
def test_charts_of_a_gpu_run_are_as_readable(name: str) -> None:
    stands_apart(matplotlib_drawer.draw(named(cuda_summary(), name)))


PUBLISHED = Path(__file__).parents[3] / "results/published/h200"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("2026-11-30-resnet50-cudnn", "resnet50-cold"),  # long names of settings, narrow panels
        ("2026-11-30-resnet50-cudnn", "resnet50-latency"),
        ("2026-11-30-load-resnet50-in-flight", "resnet50-batching"),  # four maps
        ("2026-11-30-load-resnet50-in-flight", "resnet50-load"),
        ("2026-11-30-generation-onnxruntime", "gpt2-generation-itl"),
    ],
)
def test_charts_of_published_runs_are_as_readable(folder: str, name: str) -> None:
    published = store.load(PUBLISHED / folder / "summary.json", Summary, "make aggregate")
    loads = [entry.chart for entry in selection.load_charts(published)]
    tokens = selection.all_charts(selection.generation_charts(published))
    charts = [*selection.select(published).charts, *loads, *tokens]
    stands_apart(matplotlib_drawer.draw(next(chart.spec for chart in charts if chart.name == name)))


def test_texts_of_points_avoid_markers_and_each_other() -> None:
    axis = Axis("s", 0, 10, (0, 5, 10))
    points = [Point(x, Mark(y, style.backend_look("a"), text="1")) for x, y in ((5, 5), (5.6, 5), (4.4, 5))]
    series = tuple(Series("a", style.backend_look("a"), "solid", (point,), joined=False) for point in points)
    placed = [side for _, side in label_sides(LinePanel("", axis, axis, series))]
    assert placed == ["above", "right", "left"]


@pytest.mark.filterwarnings("error")
def test_a_letter_that_the_font_lacks_is_drawn_without_a_word_on_the_terminal() -> None:
    figure = Figure()
    figure.text(0.5, 0.5, "模型")
    assert image(figure, "png")


@pytest.mark.parametrize("name", ["minilm-l6-throughput", "resnet50-cold"])
def test_the_legend_is_beside_the_panels(summary: Summary, name: str) -> None:
    figure = matplotlib_drawer.draw(named(summary, name))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    legend = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert max(ax.get_window_extent().x1 for ax in figure.axes) < legend.x0
    assert legend.x1 <= figure.bbox.width


@pytest.mark.parametrize("wide", [True, False])
def test_arrows_are_drawn_in_place_of_a_bar(wide: bool) -> None:
    interval = None if wide else Interval(low=9.0, high=11.0)
    (ax,) = matplotlib_drawer.draw(one_dot(Mark(10.0, style.backend_look("a"), interval=interval, wide=wide))).axes
    bars = [line for line in ax.lines if line.get_linewidth() == 2.4]
    assert (len(bars), len(arrows_of(ax))) == ((0, 2) if wide else (1, 0))


def arrows_of(ax: Axes) -> list[Text]:
    return [text for text in ax.texts if isinstance(text, Annotation) and text.arrow_patch is not None]


@pytest.mark.parametrize("form", ["png", "svg"])
def test_the_same_summary_gives_the_same_bytes(summary: Summary, form: Any) -> None:
    first, second = (image(matplotlib_drawer.draw(named(summary, "resnet50-speedup")), form) for _ in range(2))
    assert first == second


def test_an_svg_is_xml_without_a_date_or_a_reference_to_elsewhere(summary: Summary) -> None:
    content = image(matplotlib_drawer.draw(named(summary, "resnet50-cold")), "svg")
    root = ElementTree.fromstring(content)  # noqa: S314 - written by this process
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<dc:date>" not in content
    links = [value for entry in root.iter() for name, value in entry.attrib.items() if name.endswith("href")]
    assert links
    assert all(link.startswith("#") for link in links)


@pytest.mark.parametrize("name", CPU)
def test_a_plain_figure_has_no_title_and_no_caption(summary: Summary, name: str) -> None:
    spec = named(summary, name)
    whole, plain = matplotlib_drawer.draw(spec), matplotlib_drawer.draw(spec, plain=True)
    texts = [[text.get_text() for text in figure.texts] for figure in (whole, plain)]
    assert texts[0][0] == spec.title
    assert " ".join(texts[0][1].split()).replace("\xa0", " ").startswith(" ".join(spec.reading.split()))
    assert texts[1] == []
    assert plain.get_figheight() < whole.get_figheight()
    stands_apart(plain)


def test_the_width_is_that_of_a_readme_at_two_pixels_a_point(summary: Summary) -> None:
    figure = matplotlib_drawer.draw(named(summary, "overview"))
    assert figure.get_figwidth() * DPI == pytest.approx(WIDTH_IN * DPI)
    assert 1600 <= WIDTH_IN * DPI <= 1700


@pytest.mark.parametrize("name", ["onnx:" + "long/" * 52 + "model.onnx", "onnx:a$_$^.onnx", "onnx:modèle ü.onnx"])
def test_no_name_of_a_model_costs_a_chart(name: str) -> None:
    charts = selection.select(of_own_models(("onnx-model-59f1d0", name))).charts
    assert len(charts) > 2
    for chart in charts:
        assert len(chart.name) < 200
        assert image(matplotlib_drawer.draw(chart.spec), "png").startswith(b"\x89PNG")
