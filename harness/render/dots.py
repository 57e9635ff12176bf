"""Dot-and-interval panels: a point for the estimate, a bar for its interval, a hair to the tail; no naked bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from harness.core.schemas import Interval
from harness.render.canvas import Margins, canvas, widest_in
from harness.render.style import FAINT, GREY, INK, RC, Look, drawing, face
from harness.render.ticks import log_ticks
from harness.render.units import significant, to_scale

ROW_IN = 0.235
"""Height of one backend's line."""

MAX_FINE_SPAN = 60
"""Largest over smallest value of a panel up to which 1, 2 and 5 of each decade have room for their labels."""

_MAX_RATIO_TICKS = 13
"""Labels that have room beside each other in a figure of one column."""

ARROW_PT = 12
"""Length of an arrow in points, from the middle of its marker."""

_BESIDE_PT = 6
"""From a marker or the end of a bar to the figure beside it, in points."""

_HIDDEN = 0.022
"""Half a marker, as a share of a panel's width."""


@dataclass(frozen=True)
class Dot:
    """One estimate.

    tail: end of the hair (p95), None for none. singles: what the estimate was made of, small dots.
    ranked: False draws it grey and hollow. mark: before its figure.
    """

    value: float
    interval: Interval | None
    look: Look
    precision: str = "fp32"
    ranked: bool = True
    tail: float | None = None
    singles: tuple[float, ...] = ()
    mark: str = ""

    @property
    def bar(self) -> Interval | None:
        """What is drawn to scale: an interval too wide to print would squeeze all others, and has arrows instead."""
        return to_scale(self.interval)


@dataclass(frozen=True)
class Panel:
    """One small multiple: label → a dot, or the word that says why there is none."""

    title: str
    dots: dict[str, Dot | str]


@dataclass(frozen=True)
class Axis:
    """The x axis and its label.

    ratio: logarithmic, shared by all panels, with a reference line at 1. log: logarithmic, each panel by itself.
    """

    label: str
    ratio: bool = False
    log: bool = False


def dot_figure(title: str, caption: Sequence[str], panels: Sequence[Panel], axis: Axis, columns: int) -> Figure:
    """Small multiples with the same labels in the same order, fastest first."""
    labels = _order(panels, biggest_first=axis.ratio)
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    with drawing():
        lines = max(panel.title.count("\n") for panel in panels)
        margins = Margins(left=0.14 + widest_in(labels, RC["ytick.labelsize"]), top=0.3 + 0.17 * lines)
        figure, axes = canvas(title, caption, (rows, columns), ROW_IN * len(labels), margins)
        for index, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
            if axis.ratio:
                furthest = _ratio_scale(ax, panels, _MAX_RATIO_TICKS // columns)
            else:
                furthest = _log_scale(ax, panel) if axis.log else _scale(ax, panel)
            _draw(ax, panel, labels, furthest, 1 if axis.ratio else ax.get_xlim()[0])
            ax.set_yticks(range(len(labels)), labels if index % columns == 0 else [""] * len(labels))
            if index + columns >= len(panels):
                ax.set_xlabel(axis.label)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
    return figure


def _draw(ax: Axes, panel: Panel, labels: Sequence[str], furthest: float, start: float) -> None:
    """One panel on its scale. furthest: where a bar may end that has its figure to its right. start: of a word."""
    ax.set_title(panel.title)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.hlines(range(len(labels)), 0, 1, FAINT, (0, (1, 2)), transform=ax.get_yaxis_transform(), linewidth=0.5, zorder=0)
    for place, label in enumerate(labels):
        found = panel.dots.get(label, "not planned")
        if isinstance(found, Dot):
            _dot(ax, found, place, furthest)
        else:
            _text(ax, found, start, place, GREY, fontstyle="italic")


def _dot(ax: Axes, dot: Dot, place: int, furthest: float) -> None:
    """Draw one line of a panel."""
    # What reaches less far from the marker's middle would only fray its edge.
    hidden = _HIDDEN * _width(ax, dot.value)
    colour = dot.look.colour if dot.ranked else GREY
    right = dot.value
    if dot.bar is not None:
        ax.plot([dot.bar.low, dot.bar.high], [place, place], color=colour, linewidth=2.4, alpha=0.6,
                solid_capstyle="butt")  # fmt: skip
        right = max(right, dot.bar.high)
    elif dot.interval is not None:
        arrows(ax, (dot.value, place), ((-ARROW_PT, 0), (ARROW_PT, 0)), colour)
    if dot.tail is not None and dot.tail - dot.value > hidden:
        ax.plot([dot.value, dot.tail], [place, place], color=colour, linewidth=0.9, solid_capstyle="butt")
        ax.plot([dot.tail], [place], color=colour, marker="|", markersize=5, markeredgewidth=0.9)
        right = max(right, dot.tail)
    if dot.singles and max(dot.singles) - min(dot.singles) > hidden:
        below = [place + 0.33] * len(dot.singles)
        ax.plot(dot.singles, below, color=colour, marker=".", linestyle="", markersize=3.2, markeredgewidth=0)
    ax.plot(
        [dot.value], [place], color=colour, marker=dot.look.marker, markersize=5.2, linestyle="",
        markerfacecolor=face(colour, dot.precision, dot.ranked), markeredgewidth=1.0, zorder=4,
    )  # fmt: skip
    # Where the bar leaves no room before the edge, the figure stands on it.
    right = right if right <= furthest else dot.value
    beside = ARROW_PT + 2 if dot.interval is not None and dot.bar is None and right == dot.value else _BESIDE_PT
    _text(ax, f"{dot.mark}{significant(dot.value)}", right, place, INK if dot.ranked else GREY, beside=beside)


def arrows(ax: Axes, at: tuple[float, float], ways: Iterable[tuple[float, float]], colour: str) -> None:
    """From a point in data units into each way, in points: what is out there is not drawn to scale."""
    for way in ways:
        style = {"arrowstyle": "<-", "color": colour, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
        ax.annotate("", at, way, textcoords="offset points", annotation_clip=False, arrowprops=style)


def _text(
    ax: Axes, text: str, x: float, place: int, colour: str, fontstyle: str = "normal", beside: float = _BESIDE_PT
) -> None:
    ax.annotate(
        text, (x, place), (beside, 0), textcoords="offset points", va="center_baseline", fontsize=8, color=colour,
        annotation_clip=False, zorder=3, fontstyle=fontstyle,
        # White behind the figures lets gridlines end before them.
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )  # fmt: skip


def _width(ax: Axes, value: float) -> float:
    """Width of the panel in data units at a value: on a logarithmic axis a step there is a multiple of it."""
    low, high = ax.get_xlim()
    return value * math.log(high / low) if ax.get_xscale() == "log" else high - low


def _scale(ax: Axes, panel: Panel) -> float:
    """From 0, so that twice as far is twice as slow, with room for the figures; returns where that begins."""
    high = max((_right(dot) for dot in panel.dots.values() if isinstance(dot, Dot)), default=1.0)
    ax.set_xlim(0, 1.2 * high)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    return high


def _log_scale(ax: Axes, panel: Panel) -> float:
    """Decades of this panel alone, and as above."""
    dots = [dot for dot in panel.dots.values() if isinstance(dot, Dot)]
    low = _lowest(dots)
    high = max((_right(dot) for dot in dots), default=1.0)
    span = max(high / low, 1.5)
    ax.set_xscale("log")
    ax.set_xlim(low / span**0.08, high * span**0.3)
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if span < MAX_FINE_SPAN else (1,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    return high


def _ratio_scale(ax: Axes, panels: Sequence[Panel], most: int) -> float:
    """The same powers of two for all panels, at most so many, a line at 1, and as above."""
    dots = [dot for panel in panels for dot in panel.dots.values() if isinstance(dot, Dot)]
    low = min(_lowest(dots), 1)
    # As below, at the other end.
    high = max([_right(dot) for dot in dots], default=1)
    high = max(min(high, max([dot.value for dot in dots], default=1) * 4), 1)
    span = math.log2(high / low) or 1
    ax.set_xscale("log", base=2)
    ax.set_xlim(low * 2 ** (-0.06 * span - 0.05), high * 2 ** (0.22 * span + 0.05))
    ax.xaxis.set_major_locator(FixedLocator(log_ticks(*ax.get_xlim(), 2, most)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(1, color=INK, linewidth=1.0, zorder=1)
    return high


def _lowest(dots: Sequence[Dot]) -> float:
    """Left end of a logarithmic axis: of all bars and of what they were made of, within a quarter of the smallest
    value: one process far off runs out of the panel rather than squeeze all others."""
    low = min((min((dot.bar.low if dot.bar else dot.value), *dot.singles, dot.value) for dot in dots), default=1.0)
    return max(low, min((dot.value for dot in dots), default=1.0) / 4)


def _right(dot: Dot) -> float:
    furthest = max((*dot.singles, dot.bar.high if dot.bar else 0))
    return max(dot.value, dot.tail or 0, min(furthest, 4 * dot.value))


def _order(panels: Sequence[Panel], biggest_first: bool) -> list[str]:
    """Labels from best to worst by the first panel, then those that only later panels have; never drawn ones last."""
    sign = -1 if biggest_first else 1
    order: dict[str, None] = {}
    for panel in panels:
        dots = {label: dot for label, dot in panel.dots.items() if isinstance(dot, Dot)}
        order.update(dict.fromkeys(sorted(dots, key=lambda label: (sign * dots[label].value, label))))
    order.update(dict.fromkeys(sorted(label for panel in panels for label in panel.dots)))
    return list(order)
