"""The stacked bars: what they show, that nothing covers a label, and that colours distinguish groups."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from harness.core.schemas.profile_record import LayerGroup, OperatorRow
from harness.profiling.layers import ELEMENTWISE, MATMUL, OPERATORS
from harness.profiling.side_by_side import (
    ComparedColumn,
    ComparedProfiles,
    SideBySide,
    by_group,
    compared_profiles,
)
from harness.reporting.charts import plotly_drawer, profile_charts, selection
from harness.reporting.charts.matplotlib_drawer import draw, image
from harness.reporting.charts.profile_charts import COLOURS
from harness.reporting.charts.spec import Stacked
from harness.reporting.tables.side_by_side_table import IDLE
from tests.fixtures.charting import stands_apart
from tests.synthetic_results import Synthetic
from tests.synthetic_side_by_side import EAGER, FUSED, GRAPH, columns, parts, profiled, row

LIKE = profiled("torch-eager", EAGER).row


def together(found: SideBySide | None) -> ComparedProfiles:
    assert found is not None
    return ComparedProfiles(
        tuple(LIKE.model_copy(update={"case_id": column.case_id}) for column in found.columns), found, None
    )


def spec() -> Stacked:
    return profile_charts.by_group(together(by_group(columns(latencies=(230.0, 110.0, None)))), "Conditions.")


def figure() -> Figure:
    return draw(spec())


def test_both_drawers_draw_every_segment_every_latency_and_the_legend() -> None:
    (plot,) = plotly_drawer.draw(spec()).plots
    for place, bar in enumerate(spec().bars):
        lengths = [segment.length for segment in bar.segments]
        assert [
            entry["x"][place]
            for entry in plot.data
            if len(entry["x"]) == 3 and entry["type"] == "bar" and entry["x"][place]
        ] == lengths
        drawn = [patch.get_width() for patch in figure().axes[0].patches if round(patch.get_y() + 0.33) == place]
        assert drawn == pytest.approx(lengths)
    triangles = next(entry for entry in plot.data if entry["type"] == "scatter")
    assert triangles["x"] == [None, 110.0, 230.0]
    groups = [name for name, _ in spec().legend]
    assert groups
    assert [entry["name"] for entry in plot.data if entry["x"] == [None]] == groups
    assert [text.get_text() for text in figure().legends[0].get_texts()] == groups
    assert plot.layout.get("showlegend", True)


def test_bars_are_as_long_as_the_parts_and_marks_are_at_the_latency() -> None:
    (ax,) = figure().axes
    ends = dict.fromkeys(range(3), 0.0)
    for bar in ax.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends[place] = max(ends[place], bar.get_x() + bar.get_width())
    assert list(ends.values()) == pytest.approx([61, 102, 220])
    assert [line.get_xdata()[0] for line in ax.lines] == [110.0, 230.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fused", "graph\n110 ns", "eager\n230 ns"]


def test_kernels_alone_are_drawn_with_the_time_in_which_none_ran() -> None:
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=40)
    alone = parts(operators=(kernel,)).model_copy(update={"plain_ns": 150})
    result = by_group([ComparedColumn("e", "eager", EAGER, None), ComparedColumn("s", "script", alone, None)])
    drawn = draw(profile_charts.by_group(together(result), "Conditions."))
    bars = [(bar.get_x(), bar.get_width()) for bar in drawn.axes[0].patches if round(bar.get_y() + 0.33) == 0]
    assert bars == [(0.0, 40.0), (40.0, 110.0)]
    assert IDLE in [text.get_text() for text in drawn.legends[0].get_texts()]
    assert IDLE not in [text.get_text() for text in figure().legends[0].get_texts()]


def test_modules_whose_times_are_kernels_leave_out_the_same() -> None:
    layer = row("conv1", 40, stream_ns=90)
    kernel = OperatorRow(name="fprop", shapes="", calls=1, self_cpu_ns=0, self_device_ns=40)
    parts_profile = parts(layer, operators=(kernel,)).model_copy(update={"plain_ns": 150})
    host = parts_profile.model_copy(update={"layers": (row("conv1", 40),), "operators": ()})
    assert [ComparedColumn("x", "x", entry, None).kernels_alone for entry in (parts_profile, host)] == [True, False]


def test_labels_are_where_they_fit() -> None:
    (ax,) = figure().axes
    texts = [text.get_text() for text in ax.texts if text.get_text()]
    assert "attention 62.0" in texts
    assert "normalisation 40.0" not in texts  # wider than its segment, which keeps the figure alone
    assert "40.0" in texts


def test_nothing_leaves_the_figure_or_covers_another() -> None:
    stands_apart(figure())


def test_the_same_comparison_gives_the_same_picture() -> None:
    assert image(figure(), "png") == image(figure(), "png")


def test_every_group_has_its_colour_and_no_two_look_alike() -> None:
    assert set(COLOURS) == {*get_args(LayerGroup), MATMUL, ELEMENTWISE, OPERATORS}
    for entry, other in combinations(COLOURS.values(), 2):
        assert sum(abs(a - b) for a, b in zip(to_rgb(entry), to_rgb(other), strict=True)) > 0.3, (entry, other)


def compared(number: int) -> list[ComparedProfiles]:
    return compared_profiles(
        case
        for batch in range(1, number + 1)
        for case in (profiled("torch-eager", EAGER, batch_size=batch), profiled("openvino", FUSED, batch_size=batch))
    )


def test_the_first_comparisons_get_a_chart_each_named_after_their_shape() -> None:
    result = selection.layer_charts(Synthetic().summary(), compared(selection.MAX_TABLES + 1))
    assert len(result) == selection.MAX_TABLES
    assert result[0].name == "resnet50-fp32-batch-1-seeded-layers"
    assert result[0].spec.title == "resnet50, fp32, batch 1: where openvino gains on torch-eager"
    assert len({chart.name for chart in result}) == selection.MAX_TABLES
    assert selection.layer_charts(Synthetic().summary(), compared_profiles([profiled("torch-eager", GRAPH)])) == []
