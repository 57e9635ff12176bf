"""Cold cost against gain: what a backend asks before its first answer, and what it gives from then on."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from harness.core.schemas import Row
from harness.render import ranking
from harness.render.canvas import Margins, canvas, widest_in
from harness.render.chart_dots import ARROWS, FILLS, shape_name
from harness.render.dots import ARROW_PT, arrows
from harness.render.legend import legend_width_in, side_legend
from harness.render.style import GREY, INK, RC, drawing, face, look
from harness.render.ticks import log_ticks
from harness.render.units import SECOND, to_scale
from harness.reporting.figures import until_first_answer_ns

_HEIGHT_IN = 2.35


def cold_figure(title: str, rows: Sequence[Row], baseline: str, caption: str) -> Figure:
    """Speedup against the seconds until the first answer, for the smallest and the largest shape."""
    shapes = ranking.by_shape([row for row in rows if row.cold_ns and row.speedup])
    shown = shapes if len(shapes) < 2 else [shapes[0], shapes[-1]]
    text = (
        "Load, compile and first inference of a new process; imports, ONNX export and engines not included. Upper "
        f"left is best. Bar: 95% CI of the speedup ({ARROWS}). {FILLS}"
    )
    drawn = [row for _, found in shown for row in found]
    if any(row.cold_ns and row.cold_ns.compile_cached for row in drawn):
        text += " Arrow to the right: its compile cache was warm, a first start takes longer."
    if any(map(_against_c, drawn)):
        text += f" {ranking.DOUBT} in a title: the baseline there is grade C."
    with drawing():
        entries = sorted(drawn, key=lambda row: -_ratio(row))
        limits = _ratio_limits(entries)
        widest = widest_in((_ratio_text(tick) for tick in _ratio_ticks(limits)), RC["ytick.labelsize"])
        margins = Margins(left=0.38 + widest, right=legend_width_in(entries), gap=0.17 + widest)
        figure, axes = canvas(title, (text, caption), (1, len(shown)), _HEIGHT_IN, margins)
        for ax, (shape, found) in zip(axes, shown, strict=True):
            for row in found:
                _point(ax, row)
            _scale(ax, entries, limits)
            doubt = f" {ranking.DOUBT}" if any(map(_against_c, found)) else ""
            ax.set_title(f"{shape_name(shape)}{doubt}")
        axes[0].set_ylabel(f"speedup over {baseline} fp32")
        side_legend(figure, entries, lines=False)
    return figure


def _point(ax: Axes, row: Row) -> None:
    assert row.cold_ns is not None and row.speedup is not None  # noqa: PT018, S101 - chosen by cold_figure
    style = look(row.backend)
    ranked = ranking.is_ranked(row)
    colour = style.colour if ranked else GREY
    seconds = until_first_answer_ns(row.cold_ns) / SECOND.ns
    bar = to_scale(row.speedup.ci95)
    if bar is not None:
        ax.plot([seconds, seconds], [bar.low, bar.high], color=colour, linewidth=3, alpha=0.4, solid_capstyle="butt")
    elif row.speedup.ci95 is not None:
        arrows(ax, (seconds, row.speedup.ratio), ((0, -ARROW_PT), (0, ARROW_PT)), colour)
    if row.cold_ns.compile_cached:
        arrows(ax, (seconds, row.speedup.ratio), ((ARROW_PT, 0),), colour)
    ax.plot(
        [seconds], [row.speedup.ratio], color=colour, marker=style.marker, markersize=6.5, linestyle="", zorder=3,
        markerfacecolor=face(colour, row.precision, ranked),
    )  # fmt: skip


def _against_c(row: Row) -> bool:
    return ranking.is_doubtful(row) and row.speedup is not None and row.speedup.baseline_grade == ranking.UNRANKED


def _ratio_limits(rows: Sequence[Row]) -> tuple[float, float]:
    intervals = [bar for row in rows if row.speedup and (bar := to_scale(row.speedup.ci95))]
    return _widened([*map(_ratio, rows), *(end for one in intervals for end in (one.low, one.high)), 1.0])


def _ratio_ticks(limits: tuple[float, float]) -> list[float]:
    return [tick for tick in log_ticks(*limits, 2) if limits[0] <= tick <= limits[1]]


def _ratio_text(value: float) -> str:
    return f"{value:g}×"


def _scale(ax: Axes, rows: Sequence[Row], limits: tuple[float, float]) -> None:
    """The same logarithmic scales for every panel, wide enough for all rows."""
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    seconds = [until_first_answer_ns(row.cold_ns) / SECOND.ns for row in rows if row.cold_ns]
    ax.set_xlim(*_widened(seconds))
    ax.set_ylim(*limits)
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_major_locator(FixedLocator(_ratio_ticks(limits)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _ratio_text(value)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    ax.axhline(1, color=INK, linewidth=1.0, zorder=1)
    ax.grid(axis="both")
    ax.set_xlabel("seconds until the first answer (log scale)")


def _widened(values: Sequence[float]) -> tuple[float, float]:
    """Limits that leave a tenth of the logarithmic range, and at least a fifth of the value, on either side."""
    margin = max(1.2, (max(values) / min(values)) ** 0.1)
    return min(values) / margin, max(values) * margin


def _ratio(row: Row) -> float:
    return row.speedup.ratio if row.speedup else 0.0
