"""The stacked bars: what they show, that nothing covers a label, and that colours tell groups apart."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from harness.core.schemas.profile_parts import Group, OperatorRow
from harness.measure.alike import Alike, alike
from harness.measure.operator_groups import BY_NAME_ALONE
from harness.measure.side_by_side import Column, by_group
from harness.render import charts
from harness.render.chart_layers import COLOURS, IDLE, layers_figure
from tests.synthetic_results import Synthetic
from tests.unit.measure.test_side_by_side import EAGER, FUSED, GRAPH, columns, parts, profiled, row
from tests.unit.reporting.test_charts import png, stands_apart


def figure() -> Figure:
    found = by_group(columns(latencies=(230.0, 110.0, None)))
    assert found is not None
    return layers_figure("resnet50, fp32, batch 1: where fused gains on eager", found, "Conditions.")


def test_bars_are_as_long_as_the_parts_and_marks_stand_at_the_latency() -> None:
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
    found = by_group([Column("e", "eager", EAGER, None), Column("s", "script", alone, None)])
    assert found is not None
    drawn = layers_figure("title", found, "Conditions.")
    bars = [(bar.get_x(), bar.get_width()) for bar in drawn.axes[0].patches if round(bar.get_y() + 0.33) == 0]
    assert bars == [(0.0, 40.0), (40.0, 110.0)]
    assert IDLE in [text.get_text() for text in drawn.legends[0].get_texts()]
    assert IDLE not in [text.get_text() for text in figure().legends[0].get_texts()]


def test_modules_whose_times_are_kernels_leave_out_the_same() -> None:
    layer = row("conv1", 40, stream_ns=90)
    kernel = OperatorRow(name="fprop", shapes="", calls=1, self_cpu_ns=0, self_device_ns=40)
    told = parts(layer, operators=(kernel,)).model_copy(update={"plain_ns": 150})
    host = told.model_copy(update={"layers": (row("conv1", 40),), "operators": ()})
    assert [Column("x", "x", found, None).kernels_alone for found in (told, host)] == [True, False]


def test_labels_stand_where_they_fit() -> None:
    (ax,) = figure().axes
    texts = [text.get_text() for text in ax.texts if text.get_text()]
    assert "attention 62.0" in texts
    assert "normalisation 40.0" not in texts  # wider than its segment, which keeps the figure alone
    assert "40.0" in texts


def test_nothing_leaves_the_figure_or_covers_another() -> None:
    stands_apart(figure())


def test_the_same_comparison_gives_the_same_picture() -> None:
    assert png(figure()) == png(figure())


def test_every_group_has_its_colour_and_no_two_look_alike() -> None:
    assert set(COLOURS) == {*get_args(Group), *BY_NAME_ALONE}
    for one, other in combinations(COLOURS.values(), 2):
        assert sum(abs(a - b) for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) > 0.3, (one, other)


def compared(number: int) -> list[Alike]:
    return alike(
        case
        for batch in range(1, number + 1)
        for case in (profiled("torch-eager", EAGER, batch_size=batch), profiled("openvino", FUSED, batch_size=batch))
    )


def test_the_first_comparisons_get_a_chart_each_named_after_their_shape() -> None:
    found = charts.of_layers(Synthetic().summary(), compared(charts.MAX_TABLES + 1))
    assert len(found) == charts.MAX_TABLES
    assert found[0].name == "resnet50-fp32-batch-1-seeded-layers"
    assert found[0].alt == "resnet50, fp32, batch 1: where openvino gains on torch-eager"
    assert len({chart.name for chart in found}) == charts.MAX_TABLES
    assert found[0].draw().axes
    assert charts.of_layers(Synthetic().summary(), alike([profiled("torch-eager", GRAPH)])) == []
