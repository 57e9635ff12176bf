"""Throughput against batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from harness.core.schemas import Row
from harness.render import ranking, units
from harness.render.canvas import Margins, canvas
from harness.render.chart_dots import FILLS
from harness.render.legend import legend_width_in, side_legend
from harness.render.series import labels, line_numbers
from harness.render.style import GREY, drawing, face, line_style, look

MAX_LINES = 14
MAX_LENGTHS = 3
"""Sequence lengths beside each other."""

LOG_FROM = 12
"""Largest rate over smallest from which the axis is logarithmic: on a linear one small batches lie on the floor."""

_HEIGHT_IN = 2.35


def throughput_figure(title: str, rows: Sequence[Row], caption: str) -> Figure:
    """Items per second against batch size, one panel a sequence length; dashed: less than full precision."""
    shown = [row for row in rows if row.throughput_per_s is not None]
    lengths = sorted({row.sequence_length or 0 for row in shown})[:MAX_LENGTHS]
    dots = " Dots between dashes: further settings." if any(line_numbers(shown).values()) else ""
    lines = f"Dashed lines: not fp32.{dots}"
    text = f"Items divided by the wall time of the timed loop, median over processes. {lines} {FILLS}"
    with drawing():
        margins = Margins(left=0.85, right=legend_width_in(shown), gap=0.6, top=0.3 if lengths != [0] else 0.1)
        figure, axes = canvas(title, (text, caption), (1, len(lengths)), _HEIGHT_IN, margins)
        names, numbers = labels(shown), line_numbers(shown)
        log = _spans_decades(shown)
        for ax, length in zip(axes, lengths, strict=True):
            _panel(ax, [row for row in shown if (row.sequence_length or 0) == length], names, numbers, log)
            ax.set_title(f"sequence length {length}" if length else "")
        axes[0].set_ylabel(f"{units.ITEMS[rows[0].kind]} per second{' (log scale)' if log else ''}")
        side_legend(figure, sorted(shown, key=_legend_order), lines=True)
    return figure


def _spans_decades(rows: Sequence[Row]) -> bool:
    rates = [row.throughput_per_s for row in rows if row.throughput_per_s]
    return max(rates) / min(rates) > LOG_FROM


def _panel(ax: Axes, rows: Sequence[Row], names: Mapping[str, str], numbers: Mapping[str, int], log: bool) -> None:
    lines: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.batch_size):
        lines.setdefault(names[row.case_id], []).append(row)
    for points in sorted(lines.values(), key=lambda points: _legend_order(points[-1]))[:MAX_LINES]:
        _line(ax, points, numbers[names[points[0].case_id]])
    batches = sorted({row.batch_size for row in rows})
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(_apart(batches)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(batches[0] / 1.25, batches[-1] * 1.25)
    rates = [row.throughput_per_s for row in rows if row.throughput_per_s]
    if log:
        ax.set_yscale("log")
        ax.set_ylim(min(rates) / 1.25, max(rates) * 1.25)
        ax.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.set_ylim(0, 1.08 * max(rates))
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.grid(axis="y")
    ax.set_xlabel("batch size")


def _apart(batches: Sequence[int]) -> list[int]:
    """Batch sizes whose labels do not touch on a logarithmic axis: each a twelfth of the range or more apart."""
    step = (batches[-1] / batches[0]) ** (1 / 12)
    kept: list[int] = []
    for batch in batches:
        if not kept or batch >= kept[-1] * step:
            kept.append(batch)
    return kept


def _line(ax: Axes, points: Sequence[Row], number: int) -> None:
    precision = points[0].precision
    style = look(points[0].backend)
    x = [row.batch_size for row in points]
    y = [row.throughput_per_s or 0 for row in points]
    ax.plot(x, y, color=style.colour, linestyle=line_style(precision, number), linewidth=1.4, zorder=2)
    for row, at, value in zip(points, x, y, strict=True):
        colour = style.colour if ranking.is_ranked(row) else GREY
        filled = face(colour, precision, ranking.is_ranked(row))
        ax.plot([at], [value], marker=style.marker, markersize=5.2, color=colour, markerfacecolor=filled, zorder=3)


def _legend_order(row: Row) -> tuple[int, float]:
    # The largest batch first: the legend then reads down as the line ends do.
    return (-row.batch_size, -(row.throughput_per_s or 0))
