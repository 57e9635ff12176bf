"""Draws a specification with matplotlib, as PNG and as SVG: the same specification gives the same bytes.

Margins are computed from the width of the labels. Matplotlib's own layout engines draw every figure twice for this,
which doubles the time of a report with dozens of charts.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.reporting.charts.spec import (
    Absent,
    Area,
    Areas,
    Axis,
    Bar,
    DotPanel,
    Dots,
    Heat,
    HeatPanel,
    LabelSide,
    Lines,
    Mark,
    Segment,
    Series,
    Spec,
    Stacked,
    label_sides,
)
from harness.reporting.charts.style import DPI, FAINT, GREY, INK, RC, WIDTH_IN, chart_style, marker_face, shade

_CAPTION_COLUMNS = 142
"""Characters of the caption that fit the width."""

_LINE_IN = 0.155
"""Height of a line of the caption."""

_HEAD_IN = 0.36
"""Height of the figure's title."""

_EDGE_IN = 0.07

_ROW_IN = 0.235
"""Height of one line of dots."""

_PANEL_IN = 2.35
"""Height of a panel of lines."""

_ENTRY_IN = 0.19
"""Height of a line of a legend below the panels."""
_AREAS_IN = 2.2
"""Height of a panel of areas."""

_BAR_IN = 0.46
"""Height of a stacked bar with the space around it."""

_CELL_IN = 0.34
"""Height of a cell of a heat map."""

_DARK = 0.52
"""Luminance of a cell below which white text is easier to read than black."""

_PALEST = 0.06
"""Share of the colour in the cell with the lowest value."""

ARROW_PT = 12
"""Length of an arrow in points, from the middle of its marker."""

_BESIDE_PT = 6
"""From a marker or the end of a bar to the figure beside it, in points."""

_HIDDEN = 0.022
"""Half a marker, as a share of a panel's width."""

_ROOM = 0.86
"""Largest end, as a share of a panel's width, of a bar that has its figure to its right."""

_X_LABEL_IN = 0.27
"""From the lower edge of a panel to the label of its axis, below the labels of the ticks."""

_LABEL_PT = 8.0

_SIDES: dict[LabelSide, tuple[float, float, str, str]] = {
    "right": (5, 0, "left", "center"),
    "left": (-5, 0, "right", "center"),
    "above": (0, 5, "center", "bottom"),
    "below": (0, -5, "center", "top"),
}
"""Points across and up from the middle of a marker to its text, and the text's alignment."""
_PADDING_IN = 0.06


def draw(spec: Spec, plain: bool = False) -> Figure:
    """The figure. plain: without title, explanation and conditions, for a paper with its own caption."""
    with chart_style():
        if isinstance(spec, Dots):
            return _dots(spec, plain)
        if isinstance(spec, Heat):
            return _heat(spec, plain)
        if isinstance(spec, Areas):
            return _areas(spec, plain)
        return _lines(spec, plain) if isinstance(spec, Lines) else _stacked(spec, plain)


def image(figure: Figure, form: Literal["png", "svg"]) -> bytes:
    """The file, without dates and random names, so that an unchanged chart gives the same file."""
    file = io.BytesIO()
    with chart_style():
        if form == "png":
            figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"compress_level": 4})
        else:
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


@dataclass(frozen=True)
class PanelMargins:
    """Inches around the drawing area of each panel.

    left, right: of the whole figure, for labels and a legend. gap: between neighbours, for tick labels.
    top: the panel's title. bottom: tick labels and axis label.
    """

    left: float
    right: float = 0.12
    gap: float = 0.2
    top: float = 0.3
    bottom: float = 0.44


def canvas(
    title: str, caption: Sequence[str], grid: tuple[int, int], height_in: float, margins: PanelMargins
) -> tuple[Figure, list[Axes]]:
    """A figure of (rows, columns) panels, each with a drawing area `height_in` high; panels in reading order.

    title: above, caption: paragraphs below; without them the figure is lower.
    """
    rows, columns = grid
    # A non-breaking space before each dot keeps lines from beginning with a dot.
    lines = [line for text in caption for line in textwrap.wrap(text.replace(" ·", "\u00a0·"), _CAPTION_COLUMNS)]
    head_in = _HEAD_IN if title else 0.0
    row_in = margins.top + height_in + margins.bottom
    whole_in = head_in + rows * row_in + len(lines) * _LINE_IN + 2 * _EDGE_IN
    width_in = (WIDTH_IN - margins.left - margins.right - (columns - 1) * margins.gap) / columns
    figure = Figure(figsize=(WIDTH_IN, whole_in))
    left, text = _EDGE_IN / WIDTH_IN, "\n".join(lines)
    if title:
        figure.text(left, 1 - 0.09 / whole_in, title, ha="left", va="top", fontsize=11.5, fontweight="bold", color=INK)
    if text:
        figure.text(left, _EDGE_IN / whole_in, text, ha="left", va="bottom", fontsize=7.5, color="#555555")
    axes = []
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        x_in = margins.left + column * (width_in + margins.gap)
        y_in = whole_in - head_in - row * row_in - margins.top - height_in
        axes.append(figure.add_axes((x_in / WIDTH_IN, y_in / whole_in, width_in / WIDTH_IN, height_in / whole_in)))
    return figure, axes


def widest_in(texts: Iterable[str], size_pt: float) -> float:
    """Width in inches of the widest of some labels."""
    return max((_width_in(text, size_pt) for text in texts), default=0.0)


@lru_cache(maxsize=4096)
def _width_in(text: str, size_pt: float) -> float:
    if not text.strip():
        return 0.0
    path = TextPath((0, 0), text, size=size_pt, prop=FontProperties(family=RC["font.family"]))
    return float(path.get_extents().width) / 72


def _titled(spec: Spec, plain: bool) -> tuple[str, tuple[str, ...]]:
    """Title and caption of a figure."""
    return ("", ()) if plain else (spec.title, tuple(filter(None, (spec.reading, spec.conditions))))


def _scale(ax: Axes, axis: Axis, which: Literal["x", "y"]) -> None:
    """Set limits, scale and ticks of one axis; the caller writes the label."""
    direction = ax.xaxis if which == "x" else ax.yaxis
    if axis.scale != "linear":
        ax.set(**{f"{which}scale": "log"})
    ax.set(**{f"{which}lim": (axis.low, axis.high)})
    direction.set_major_locator(FixedLocator(list(axis.shown)))
    direction.set_major_formatter(FuncFormatter(lambda value, _: axis.text(value)))
    direction.set_minor_locator(NullLocator())
    if axis.reference is not None:
        (ax.axvline if which == "x" else ax.axhline)(axis.reference, color=INK, linewidth=1.0, zorder=1)
    if axis.band is not None:
        (ax.axvspan if which == "x" else ax.axhspan)(*axis.band, color=GREY, alpha=0.2, linewidth=0, zorder=0)


def _arrows(ax: Axes, at: tuple[float, float], directions: Iterable[tuple[float, float]], colour: str) -> None:
    """Arrows from a point in data units in each direction, in points; what lies beyond is not drawn to scale."""
    for direction in directions:
        style = {"arrowstyle": "<-", "color": colour, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
        ax.annotate("", at, direction, textcoords="offset points", annotation_clip=False, arrowprops=style)


# --- dots ---------------------------------------------------------------------------------------------------------


def _dots(spec: Dots, plain: bool) -> Figure:
    """Panels with the same labels in the same order."""
    columns = min(spec.columns, len(spec.panels))
    rows = math.ceil(len(spec.panels) / columns)
    lines = max(panel.title.count("\n") for panel in spec.panels)
    margins = PanelMargins(left=0.14 + 1.03 * widest_in(spec.labels, RC["ytick.labelsize"]), top=0.3 + 0.17 * lines)
    figure, axes = canvas(*_titled(spec, plain), (rows, columns), _ROW_IN * len(spec.labels), margins)
    for index, (ax, panel) in enumerate(zip(axes, spec.panels, strict=False)):
        _dot_panel(ax, panel, spec.labels)
        ax.set_yticks(range(len(spec.labels)), spec.labels if index % columns == 0 else [""] * len(spec.labels))
    _x_labels(figure, axes[: len(spec.panels)], [panel.axis.label for panel in spec.panels], columns)
    for ax in axes[len(spec.panels) :]:
        ax.set_axis_off()
    return figure


def _x_labels(figure: Figure, axes: Sequence[Axes], labels: Sequence[str], columns: int) -> None:
    """The labels below the lowest panels; the label that all share appears once: several would touch each other."""
    if len(set(labels)) > 1:
        for ax, label in list(zip(axes, labels, strict=True))[-columns:]:
            ax.set_xlabel(label)
        return
    last = axes[-1].get_position()
    right = max(ax.get_position().x1 for ax in axes)
    middle, below = (axes[0].get_position().x0 + right) / 2, last.y0 - _X_LABEL_IN / figure.get_figheight()
    axes[0].set_xlabel(labels[0])
    axes[0].xaxis.set_label_coords(middle, below, transform=figure.transFigure)


def _dot_panel(ax: Axes, panel: DotPanel, labels: Sequence[str]) -> None:
    ax.set_title(panel.title)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    _scale(ax, panel.axis, "x")
    ax.grid(axis="x")
    ax.hlines(range(len(labels)), 0, 1, FAINT, (0, (1, 2)), transform=ax.get_yaxis_transform(), linewidth=0.5, zorder=0)
    start = panel.axis.low if panel.axis.reference is None else panel.axis.reference
    for place, label in enumerate(labels):
        mark = panel.lines.get(label, Absent("not measured"))
        if isinstance(mark, Mark):
            _dot(ax, mark, place, panel.axis)
        else:
            _text(ax, mark.word, start, place, GREY, fontstyle="italic")


def _dot(ax: Axes, mark: Mark, place: int, axis: Axis) -> None:
    """Draw one line of a panel."""
    # Marks closer to the marker's middle than this would only blur the marker's edge.
    hidden = _HIDDEN * _width(axis, mark.value)
    colour, right = mark.colour, mark.value
    if mark.interval is not None:
        ends = [mark.interval.low, mark.interval.high]
        ax.plot(ends, [place, place], color=colour, linewidth=2.4, alpha=0.6, solid_capstyle="butt")
        right = max(right, mark.interval.high)
    elif mark.wide:
        _arrows(ax, (mark.value, place), ((-ARROW_PT, 0), (ARROW_PT, 0)), colour)
    if mark.tail is not None and mark.tail - mark.value > hidden:
        ax.plot([mark.value, mark.tail], [place, place], color=colour, linewidth=0.9, solid_capstyle="butt")
        ax.plot([mark.tail], [place], color=colour, marker="|", markersize=5, markeredgewidth=0.9)
        right = max(right, mark.tail)
    if mark.singles and max(mark.singles) - min(mark.singles) > hidden:
        below = [place + 0.33] * len(mark.singles)
        ax.plot(mark.singles, below, color=colour, marker=".", linestyle="", markersize=3.2, markeredgewidth=0)
    ax.plot(
        [mark.value], [place], color=colour, marker=mark.look.marker, markersize=5.2, linestyle="",
        markerfacecolor=marker_face(mark.look.colour, mark.fill), markeredgewidth=1.0, zorder=4,
    )  # fmt: skip
    # Where the bar leaves no room before the edge, the figure is on the bar; an arrow keeps its length.
    right = right if _share(axis, right) <= _ROOM else mark.value
    drawn_pt = (_share(axis, right) - _share(axis, mark.value)) * ax.get_position().width * WIDTH_IN * 72
    beside = max(_BESIDE_PT, ARROW_PT + 2 - drawn_pt) if mark.wide else _BESIDE_PT
    _text(ax, mark.text, right, place, INK if mark.fill != "hollow" else GREY, beside=beside)


def _share(axis: Axis, value: float) -> float:
    """Position of a value in its panel: 0 at the left edge, 1 at the right edge."""
    return axis.share(value)


def _text(
    ax: Axes, text: str, x: float, place: int, colour: str, fontstyle: str = "normal", beside: float = _BESIDE_PT
) -> None:
    ax.annotate(
        text, (x, place), (beside, 0), textcoords="offset points", va="center_baseline", fontsize=8, color=colour,
        annotation_clip=False, zorder=3, fontstyle=fontstyle,
        # A white background of the figures interrupts the gridlines.
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )  # fmt: skip


def _width(axis: Axis, value: float) -> float:
    """Width of the panel in data units at a value; on a logarithmic axis it is proportional to the value."""
    return axis.high - axis.low if axis.scale == "linear" else value * math.log(axis.high / axis.low)


# --- lines --------------------------------------------------------------------------------------------------------


def _lines(spec: Lines, plain: bool) -> Figure:
    """Panels in a row, and the legend to their right or below them."""
    widest = max(widest_in(map(panel.y.text, panel.y.shown), RC["ytick.labelsize"]) for panel in spec.panels)
    legend = 0.68 + widest_in((series.name for series in spec.legend), RC["legend.fontsize"])
    columns = max(1, min(len(spec.legend), int(WIDTH_IN / legend))) if spec.below else 1
    right, below = (0.12, _ENTRY_IN * math.ceil(len(spec.legend) / columns)) if spec.below else (legend, 0.0)
    top = 0.3 if any(panel.title for panel in spec.panels) else 0.1
    margins = PanelMargins(left=0.38 + widest, right=right, gap=0.17 + widest, top=top, bottom=0.44 + below)
    figure, axes = canvas(*_titled(spec, plain), (1, len(spec.panels)), _PANEL_IN, margins)
    for ax, panel in zip(axes, spec.panels, strict=True):
        ax.set_title(panel.title)
        _scale(ax, panel.x, "x")
        _scale(ax, panel.y, "y")
        ax.grid(axis="y" if panel.series[0].joined else "both")
        for series in panel.series:
            _series(ax, series)
        for point, side in label_sides(panel):
            across, up, *how = _SIDES[side]
            ax.annotate(
                point.mark.text, (point.x, point.mark.value), (across, up), textcoords="offset points", ha=how[0],
                va=how[1], fontsize=_LABEL_PT, color=INK, zorder=1.5,
                # A white edge interrupts the gridlines and the line of the baseline, which are below it.
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )  # fmt: skip
    _x_labels(figure, axes, [panel.x.label for panel in spec.panels], len(axes))
    axes[0].set_ylabel(spec.panels[0].y.label)
    handles, names = [_entry(entry) for entry in spec.legend], [entry.name for entry in spec.legend]
    under = (_EDGE_IN / WIDTH_IN, axes[0].get_position().y0 - 0.46 / figure.get_figheight())
    figure.legend(
        handles, names, loc="upper left" if spec.below else "center left",
        bbox_to_anchor=under if spec.below else (1 - (right - 0.1) / WIDTH_IN, 0.58), ncols=columns, handlelength=2.6,
        labelspacing=0.4 if spec.below else 0.7, borderaxespad=0, borderpad=0,
    )  # fmt: skip
    return figure


def _series(ax: Axes, series: Series) -> None:
    if series.joined:
        values = [point.mark.value for point in series.points]
        x = [point.x for point in series.points]
        ax.plot(x, values, color=series.look.colour, linestyle=_style(series), linewidth=1.4, zorder=2)
        if not series.marked:
            return
    for point in series.points:
        mark = point.mark
        at = (point.x, mark.value)
        if mark.interval is not None:
            ends = [mark.interval.low, mark.interval.high]
            ax.plot([point.x] * 2, ends, color=mark.colour, linewidth=3, alpha=0.4, solid_capstyle="butt")
        elif mark.wide:
            _arrows(ax, at, ((0, -ARROW_PT), (0, ARROW_PT)), mark.colour)
        if mark.warm:
            _arrows(ax, at, ((ARROW_PT, 0),), mark.colour)
        ax.plot(
            [point.x], [mark.value], color=mark.colour, marker=mark.look.marker, linestyle="", zorder=3,
            markersize=5.2 if series.joined else 6.5, markerfacecolor=marker_face(mark.look.colour, mark.fill),
        )  # fmt: skip


def _style(series: Series) -> Any:
    return (0, series.dashes) if series.dashes else "-"


def _entry(series: Series) -> Line2D:
    return Line2D(
        [], [], color=series.look.colour, marker=series.look.marker, markersize=5, linewidth=1.4,
        linestyle=_style(series) if series.joined else "", markerfacecolor=marker_face(series.look.colour, series.fill),
    )  # fmt: skip


# --- heat maps ----------------------------------------------------------------------------------------------------


def _heat(spec: Heat, plain: bool) -> Figure:
    """Panels, each with its own columns: as many side by side as have room for the texts of their cells."""
    widest = max(widest_in(panel.y, RC["ytick.labelsize"]) for panel in spec.panels)
    aside = 0.38 + widest
    cells = max(_cells_in(panel) for panel in spec.panels)
    columns = max(1, min(len(spec.panels), int((WIDTH_IN - PanelMargins.right) / (aside + cells))))
    room = (WIDTH_IN - PanelMargins.right) / columns - aside
    titles = [_wrapped(panel.title, room, RC["axes.titlesize"]) for panel in spec.panels]
    top = 0.3 + 0.17 * max(title.count("\n") for title in titles)
    height = _CELL_IN * max(len(panel.y) for panel in spec.panels)
    grid = (math.ceil(len(spec.panels) / columns), columns)
    figure, axes = canvas(*_titled(spec, plain), grid, height, PanelMargins(left=aside, gap=aside, top=top))
    for index, (ax, panel, title) in enumerate(zip(axes, spec.panels, titles, strict=False)):
        ax.set_title(title)
        _heat_panel(ax, panel, spec.colour)
        if index % columns == 0:
            ax.set_ylabel(panel.y_label)
        if index + columns >= len(spec.panels):
            ax.set_xlabel(panel.x_label)
    for ax in axes[len(spec.panels) :]:
        ax.set_axis_off()
    return figure


def _cells_in(panel: HeatPanel) -> float:
    """The width in inches that the texts of a panel's cells need; bold text is a tenth wider."""
    widest = widest_in((cell.text for line in panel.cells for cell in line), _LABEL_PT)
    return len(panel.x) * (1.1 * widest + _PADDING_IN)


def _wrapped(title: str, room: float, size: float) -> str:
    """A bold title in lines that `room` inches hold."""
    characters = max(1, int(len(title) * room / (1.15 * widest_in([title], size) or room)))
    return "\n".join(textwrap.wrap(title, characters, break_long_words=False)) or title


def _heat_panel(ax: Axes, panel: HeatPanel, colour: str) -> None:
    low, high = min(panel.values, default=0.0), max(panel.values, default=0.0)
    ax.set_xlim(-0.5, len(panel.x) - 0.5)
    ax.set_ylim(len(panel.y) - 0.5, -0.5)
    ax.set_xticks(range(len(panel.x)), panel.x)
    ax.set_yticks(range(len(panel.y)), panel.y)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for row, line in enumerate(panel.cells):
        for column, cell in enumerate(line):
            share = 0.0 if cell.value is None else _PALEST + (1 - _PALEST) * (cell.value - low) / ((high - low) or 1.0)
            painted = shade(colour, share)
            box = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=painted, edgecolor="white", linewidth=1.2)
            ax.add_patch(box)
            if cell.chosen:
                inner = (column - 0.45, row - 0.43)
                ax.add_patch(Rectangle(inner, 0.9, 0.86, facecolor="none", edgecolor=INK, linewidth=1.3, zorder=3))
            ink = GREY if cell.value is None else "white" if _luminance(painted) < _DARK else INK
            ax.text(
                column, row, cell.text, ha="center", va="center", fontsize=_LABEL_PT, color=ink,
                fontweight="bold" if cell.strong else "normal", fontstyle="italic" if cell.value is None else "normal",
            )  # fmt: skip


# --- areas --------------------------------------------------------------------------------------------------------


def _areas(spec: Areas, plain: bool) -> Figure:
    """One panel, and the legend to its right."""
    shown = [*spec.areas, *([spec.outline] if spec.outline else [])]
    right = 0.5 + widest_in((area.name for area in shown), RC["legend.fontsize"])
    margins = PanelMargins(left=0.7, right=right, top=0.15)
    figure, (ax,) = canvas(*_titled(spec, plain), (1, 1), _AREAS_IN, margins)
    _scale(ax, spec.x, "x")
    _scale(ax, spec.y, "y")
    below: Sequence[float] = [0.0] * (len(spec.areas[0].tops) + 1)
    for area in spec.areas:
        tops = _lasting(area)
        ax.fill_between(range(len(tops)), tops, below, step="post", color=area.colour, linewidth=0, label=area.name)
        below = tops
    if spec.outline:
        heights = _lasting(spec.outline)
        ax.step(
            range(len(heights)), heights, where="post", color=spec.outline.colour, linewidth=1.2,
            label=spec.outline.name,
        )  # fmt: skip
    ax.grid(axis="y")
    ax.set_xlabel(spec.x.label)
    ax.set_ylabel(spec.y.label)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), handlelength=1.2, borderaxespad=0)
    place, height, text = spec.peak
    late = place > len(spec.areas[0].tops) / 2
    ax.annotate(
        text, (place + late, height), (-3 if late else 3, 5), textcoords="offset points", color=INK, fontsize=8.5,
        ha="right" if late else "left", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip
    return figure


def _lasting(area: Area) -> list[float]:
    """Its heights, the last one twice: a step lasts until the next one, and so does the last."""
    return [*area.tops, area.tops[-1]]


# --- stacked bars -------------------------------------------------------------------------------------------------


def _stacked(spec: Stacked, plain: bool) -> Figure:
    names = [*(name for name, _ in spec.legend), *filter(None, [spec.idle])]
    labels = ["\n".join(filter(None, (bar.label, bar.figure))) for bar in spec.bars]
    left = 0.2 + widest_in((text for label in labels for text in label.splitlines()), RC["ytick.labelsize"])
    right = 0.75 + widest_in(names, RC["legend.fontsize"])
    height = max(_BAR_IN * len(spec.bars), 0.17 * (len(names) + 1))
    figure, (ax,) = canvas(*_titled(spec, plain), (1, 1), height, PanelMargins(left=left, right=right, top=0.08))
    _scale(ax, spec.axis, "x")
    ax.set_ylim(len(spec.bars) - 0.5, -0.5)
    ax.set_yticks(range(len(spec.bars)), labels)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.set_xlabel(spec.axis.label)
    inch = (WIDTH_IN - left - right) / (spec.axis.high - spec.axis.low)
    for place, bar in enumerate(spec.bars):
        _bar(ax, place, bar, inch)
    entries = [Patch(facecolor=colour, edgecolor="white", label=name) for name, colour in spec.legend]
    idle = [Patch(facecolor="white", edgecolor=GREY, linestyle=":", label=spec.idle)] if spec.idle else []
    figure.legend(
        handles=[*entries, *idle], loc="center left", handlelength=1.2, handleheight=1.0,
        bbox_to_anchor=(1 - (right - 0.12) / WIDTH_IN, 0.58), borderaxespad=0, borderpad=0,
    )  # fmt: skip
    return figure


def _bar(ax: Axes, place: int, bar: Bar, inch: float) -> None:
    """Draw a bar. inch: the width of one unit of the axis, which decides which label fits."""
    start = 0.0
    for segment in bar.segments:
        ax.barh(place, segment.length, 0.66, left=start, color=segment.colour, edgecolor="white", linewidth=0.8)
        ink = "white" if _luminance(segment.colour) < 0.4 else INK
        middle = start + segment.length / 2
        ax.text(middle, place, _fitting(segment, inch), ha="center", va="center", fontsize=_LABEL_PT, color=ink)
        start += segment.length
    if bar.idle:
        ax.barh(place, bar.idle, 0.66, left=start, color="white", edgecolor=GREY, linestyle=":", linewidth=0.8)
    if bar.latency is not None:
        # Above the bar, where the mark covers no figure.
        ax.plot([bar.latency], [place - 0.4], marker="v", markersize=5, color=INK, clip_on=False)


def _fitting(segment: Segment, inch: float) -> str:
    room = segment.length * inch - _PADDING_IN
    return next((text for text in segment.labels if widest_in([text], _LABEL_PT) <= room), "")


def _luminance(colour: str) -> float:
    """Relative luminance, linear in the stored channels: accurate enough to choose black or white text."""
    red, green, blue = to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
