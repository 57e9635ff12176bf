"""Where the time goes, as stacked bars: a bar a backend, a segment a group of layers, a mark the measured latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from harness.measure.side_by_side import Column, Line, SideBySide
from harness.render import units
from harness.render.canvas import Margins, canvas, widest_in
from harness.render.style import GREY, INK, RC, WIDTH_IN, drawing
from harness.render.units import TimeUnit
from harness.reporting.tables.side_by_side import IDLE

COLOURS: Mapping[str, str] = {
    "attention": "#332288",
    "mlp": "#CC6677",
    "convolution": "#88CCEE",
    "linear": "#DDCC77",
    "normalisation": "#117733",
    "embedding": "#882255",
    "activation": "#44AA99",
    "pooling": "#999933",
    "layout": "#AA4499",
    "matmul": "#EE8866",
    "elementwise": "#6699CC",
    "other": "#DDDDDD",
    "operators": "#8C8C8C",
}
"""Paul Tol's muted scheme (personal.sron.nl/~pault), told apart with every common colour blindness, two of his others
for kernels, and greys for what is not told. A group keeps its colour and its place in the bar in every figure."""

_BAR_IN = 0.46
"""Height of a bar with the space around it."""

_LABEL_PT = 8.0
_PADDING_IN = 0.06


def layers_figure(title: str, found: SideBySide, caption: str) -> Figure:
    """The groups of a comparison, each backend's fastest first."""
    unit = units.time_unit(column.parts_ns for column in found.columns)
    order = list(COLOURS)
    lines = sorted(found.lines, key=lambda line: order.index(line.name))
    longest = max(max(_end_ns(column), column.latency_ns or 0) for column in found.columns) / unit.ns
    with drawing():
        names = [*(line.name for line in lines), *([IDLE] if _gaps(found) else [])]
        labels = [_label(column, unit) for column in found.columns]
        left = 0.2 + widest_in((text for label in labels for text in label.splitlines()), RC["ytick.labelsize"])
        right = 0.75 + widest_in(names, RC["legend.fontsize"])
        margins = Margins(left=left, right=right, top=0.08)
        height = max(_BAR_IN * len(found.columns), 0.17 * (len(names) + 1))
        figure, (ax,) = canvas(title, (_MARKS, caption), (1, 1), height, margins)
        ax.set_xlim(0, longest * 1.02)
        ax.set_ylim(len(found.columns) - 0.5, -0.5)
        ax.set_yticks(range(len(found.columns)), labels)
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        ax.grid(axis="x")
        ax.set_xlabel(f"time of one inference ({unit.name})")
        inch = (WIDTH_IN - left - right) / (longest * 1.02)
        for place, column in enumerate(found.columns):
            _bar(ax, place, [(line, line.times_ns[place]) for line in lines], unit, inch)
            _idle(ax, place, column, unit)
            _latency(ax, place, column, unit)
        entries = [_entry(line.name, COLOURS[line.name]) for line in lines]
        idle = [Patch(facecolor="white", edgecolor=GREY, linestyle=":", label=IDLE)] if _gaps(found) else []
        figure.legend(
            handles=[*entries, *idle], loc="center left", handlelength=1.2, handleheight=1.0,
            bbox_to_anchor=(1 - (right - 0.12) / WIDTH_IN, 0.58), borderaxespad=0, borderpad=0,
        )  # fmt: skip
    return figure


_MARKS = (
    "Segments: self times by each backend's own profiler, in a pass of its own; a kernel that fuses several modules "
    "counts for the group of its product. Triangle: the median latency measured without a profiler."
)


def _label(column: Column, unit: TimeUnit) -> str:
    measured = "" if column.latency_ns is None else f"\n{units.in_unit(column.latency_ns, unit)} {unit.name}"
    return column.name + measured


def _entry(name: str, colour: str) -> Patch:
    return Patch(facecolor=colour, edgecolor="white", label=name)


def _gaps(found: SideBySide) -> bool:
    return any(column.idle_ns for column in found.columns)


def _end_ns(column: Column) -> int:
    return column.parts_ns + column.idle_ns


def _idle(ax: Axes, place: int, column: Column, unit: TimeUnit) -> None:
    width, start = column.idle_ns / unit.ns, column.parts_ns / unit.ns
    if width:
        ax.barh(place, width, 0.66, left=start, color="white", edgecolor=GREY, linestyle=":", linewidth=0.8)


def _bar(ax: Axes, place: int, segments: Sequence[tuple[Line, int | None]], unit: TimeUnit, inch: float) -> None:
    """inch: the width of one unit of time, which says what label fits."""
    start = 0.0
    for line, spent in segments:
        if spent is None:
            continue
        width, colour = spent / unit.ns, COLOURS[line.name]
        ax.barh(place, width, 0.66, left=start, color=colour, edgecolor="white", linewidth=0.8)
        figure = units.in_unit(spent, unit)
        text = next((text for text in (f"{line.name} {figure}", figure) if _fits(text, width * inch)), "")
        ink = "white" if _luminance(colour) < 0.4 else INK
        ax.text(start + width / 2, place, text, ha="center", va="center", fontsize=_LABEL_PT, color=ink)
        start += width


def _latency(ax: Axes, place: int, column: Column, unit: TimeUnit) -> None:
    """Above the bar, where it covers no figure."""
    if column.latency_ns is not None:
        ax.plot([column.latency_ns / unit.ns], [place - 0.4], marker="v", markersize=5, color=INK, clip_on=False)


def _fits(text: str, width_in: float) -> bool:
    return widest_in([text], _LABEL_PT) + _PADDING_IN <= width_in


def _luminance(colour: str) -> float:
    """Relative luminance, linear in the channels as they are stored: enough to choose black or white ink."""
    red, green, blue = to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
