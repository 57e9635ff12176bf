"""The complete specification of a chart: marks, limits, scales, ticks, labels and captions (plain data).

Its kinds: dots with intervals, lines (or only points) over a number, stacked areas, stacked bars, and heat maps. Other
modules of this folder build each chart from rows; `matplotlib_drawer` and `plotly_drawer` draw any specification and
decide nothing about its content.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.schemas import Interval
from harness.reporting.charts.style import GREY, Look

Fill = Literal["solid", "tint", "hollow", "open"]
"""Fill of a marker: fp32, another precision, not ranked (grey), and not ranked where only the colour names the backend.
Of a measured load: passed, undecided, unused, failed."""

Scale = Literal["linear", "log", "log2"]

Tags = tuple[str | None, ...]
"""Model, backend, precision, batch and grade of a mark, by which the page filters; None matches every choice."""


@dataclass(frozen=True)
class Axis:
    """One axis. low, high: its ends. ticks: in its units, some maybe beyond the ends. suffix: of the ticks' labels.

    reference: where a line crosses it. band: (low, high) of a grey band.
    """

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    scale: Scale = "linear"
    suffix: str = ""
    reference: float | None = None
    band: tuple[float, float] | None = None

    def text(self, tick: float) -> str:
        """The label of a tick."""
        return f"{tick:,.12g}{self.suffix}"

    def share(self, value: float) -> float:
        """Position of a value: 0 at the low end, 1 at the high end."""
        if self.scale == "linear":
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)

    @property
    def shown(self) -> tuple[float, ...]:
        """Ticks between its ends."""
        return tuple(tick for tick in self.ticks if self.low <= tick <= self.high)


@dataclass(frozen=True)
class Mark:
    """One estimate: a marker at `value`, a bar for its interval.

    interval: drawn to scale, in the units of the axis; None without an interval, and where it is too wide to draw
    (`wide`). tail: end of the thin line (p95). singles: the values of the processes. text: beside the marker. hover:
    text under the pointer, with the few tags that plotly allows. warm: an arrow to the right, because a first start
    takes longer.
    """

    value: float
    look: Look
    fill: Fill = "solid"
    interval: Interval | None = None
    wide: bool = False
    tail: float | None = None
    singles: tuple[float, ...] = ()
    text: str = ""
    hover: str = ""
    tags: Tags = ()
    warm: bool = False

    @property
    def colour(self) -> str:
        """The backend's colour; grey where the row is not ranked."""
        return GREY if self.fill == "hollow" else self.look.colour


@dataclass(frozen=True)
class Absent:
    """Why a line has no mark, in a word or two."""

    word: str
    tags: Tags = ()


@dataclass(frozen=True)
class DotPanel:
    """One panel of dots: label of each line → its mark, the best first."""

    title: str
    axis: Axis
    lines: Mapping[str, Mark | Absent]

    @property
    def marks(self) -> list[Mark]:
        """Marks of the lines that have one."""
        return [mark for mark in self.lines.values() if isinstance(mark, Mark)]


@dataclass(frozen=True)
class Dots:
    """Dots with intervals in panels side by side.

    title: complete by itself; heading: for use below a heading that names the model. reading: the meaning of the marks;
    conditions: of the measurements. labels: the lines of all panels, in the order of the first panel, the best first.
    """

    title: str
    heading: str
    reading: str
    conditions: str
    panels: tuple[DotPanel, ...]
    labels: tuple[str, ...]
    columns: int = 3


@dataclass(frozen=True)
class Point:
    """A mark of a series at `x`; its `value` and interval are along y."""

    x: float
    mark: Mark


@dataclass(frozen=True)
class Series:
    """Points that share a look and an entry of the legend. fill: of that entry. dashes: lengths of line and gap in
    multiples of the line's width, empty for a solid line. joined: whether a line joins the points. marked: whether the
    points of a line have markers."""

    name: str
    look: Look
    fill: Fill
    points: tuple[Point, ...]
    joined: bool = True
    dashes: tuple[float, ...] = ()
    tags: Tags = ()
    marked: bool = True


@dataclass(frozen=True)
class LinePanel:
    """One panel of series, in the order of the legend."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]


LabelSide = Literal["right", "left", "above", "below"]

_BESIDE: dict[LabelSide, tuple[float, float]] = {
    "right": (0.07, 0),
    "left": (-0.07, 0),
    "above": (0, 0.065),
    "below": (0, -0.065),
}
"""From a marker to the middle of its short text, as shares of a panel of usual size."""

_CLEAR = (0.06, 0.055)
"""Distance, as shares of the panel, at which texts and markers do not touch."""


def label_sides(panel: LinePanel) -> list[tuple[Point, LabelSide]]:
    """Where the short text of each single point is: the first side on which it covers no marker and no other text."""
    points = [point for series in panel.series if not series.joined for point in series.points if point.mark.text]
    at = {id(point): (panel.x.share(point.x), panel.y.share(point.mark.value)) for point in points}
    placed: list[tuple[Point, LabelSide]] = []
    texts: list[tuple[float, float]] = []
    for point in points:
        x, y = at[id(point)]
        taken = [*texts, *(place for key, place in at.items() if key != id(point))]
        middles: dict[LabelSide, tuple[float, float]] = {side: (x + dx, y + dy) for side, (dx, dy) in _BESIDE.items()}
        side = max(middles, key=lambda side: _clearance(middles[side], taken))
        placed.append((point, side))
        texts.append(middles[side])
    return placed


def _clearance(middle: tuple[float, float], taken: Sequence[tuple[float, float]]) -> float:
    """Distance to the nearest other thing in multiples of what is needed, at most 1; 0 outside of the panel."""
    if not all(0.03 < share < 0.97 for share in middle):
        return 0.0
    return min([1.0, *(max(abs(middle[axis] - other[axis]) / _CLEAR[axis] for axis in (0, 1)) for other in taken)])


@dataclass(frozen=True)
class Lines:
    """Series over a number, in panels that share a legend. title, heading, reading, conditions: as in Dots."""

    title: str
    heading: str
    reading: str
    conditions: str
    panels: tuple[LinePanel, ...]
    legend: tuple[Series, ...]
    """A series for each name, in the order of the legend."""
    below: bool = False
    """Where a drawer puts the legend if it can choose: below the panels, for long names."""


@dataclass(frozen=True)
class Area:
    """An area above those before it. tops: height of its upper edge after each change, constant until the next one."""

    name: str
    colour: str
    tops: tuple[float, ...]


@dataclass(frozen=True)
class Areas:
    """Stacked areas over a series of changes, the lowest first. title, heading, reading, conditions: as in Dots.

    outline: a line without an area; None without one. peak: (number of the change, height, text) of the highest point.
    """

    title: str
    heading: str
    reading: str
    conditions: str
    x: Axis
    y: Axis
    areas: tuple[Area, ...]
    outline: Area | None
    peak: tuple[int, float, str]


@dataclass(frozen=True)
class Segment:
    """A part of a bar. labels: possible labels, the longest first; the first that fits is written."""

    name: str
    colour: str
    length: float
    labels: tuple[str, ...] = ()
    hover: str = ""


@dataclass(frozen=True)
class Bar:
    """One stacked bar. figure: below its label. idle: the rest from the segments up to the latency, drawn empty.
    latency: drawn as a triangle; None where it is unknown."""

    label: str
    figure: str
    segments: tuple[Segment, ...]
    idle: float = 0.0
    idle_hover: str = ""
    latency: float | None = None
    latency_hover: str = ""
    tags: Tags = ()


@dataclass(frozen=True)
class Stacked:
    """Stacked bars, from the top. title, heading, reading, conditions: as in Dots. order: names of segments, in the
    order of every bar. legend: (name, colour) of each group of segments. idle: the legend's name for the rest of a
    bar, empty without one."""

    title: str
    heading: str
    reading: str
    conditions: str
    axis: Axis
    bars: tuple[Bar, ...]
    order: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]
    idle: str = ""


@dataclass(frozen=True)
class HeatCell:
    """A cell. value: None where there is none, with the reason in `text`. chosen: drawn with a frame. strong: bold."""

    value: float | None
    text: str
    hover: str = ""
    chosen: bool = False
    strong: bool = False


@dataclass(frozen=True)
class HeatPanel:
    """One panel: cells[row][column], rows from the top. tags: of all its cells."""

    title: str
    x_label: str
    y_label: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    cells: tuple[tuple[HeatCell, ...], ...]
    tags: Tags = ()

    @property
    def values(self) -> list[float]:
        """Values of the cells that have one."""
        return [cell.value for line in self.cells for cell in line if cell.value is not None]


@dataclass(frozen=True)
class Heat:
    """Heat maps. Each panel has colours of its own, from its lowest to its highest value. title, heading, reading,
    conditions: as in Dots. colour: of the highest value; the lowest is nearly white."""

    title: str
    heading: str
    reading: str
    conditions: str
    panels: tuple[HeatPanel, ...]
    colour: str


Spec = Dots | Lines | Areas | Stacked | Heat


MAX_FINE_SPAN = 60
"""Largest ratio of the ends at which the labels of 1, 2 and 5 of each decade have room."""


LONG_DECADES = 45
"""Number of decades times the length of the last label above which only every second label has room."""


def axis_from_zero(label: str, high: float, room: float, most: int = 4, suffix: str = "") -> Axis:
    """A linear axis from 0, so that lengths are proportional to values. room: its length in multiples of `high`."""
    end = room * high or 1.0
    return Axis(label, 0.0, end, tuple(even_ticks(0.0, end, most)), suffix=suffix)


def even_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 of a decade between the ends, including 0, in at most `most` steps."""
    rough = (high - low) / most
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough * (1 - 1e-9))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{place * step:.6g}") for place in places]


def decade_axis(label: str, low: float, high: float, suffix: str = "") -> Axis:
    """A logarithmic axis with 1, 2 and 5 of each decade where they have room, else 1 alone if two of them are in it."""
    ticks = log_ticks(low, high, 10)
    powers = [tick for tick in ticks if math.isclose(math.log10(tick), round(math.log10(tick)), abs_tol=1e-9)]
    if high / low >= MAX_FINE_SPAN and sum(low <= power <= high for power in powers) > 1:
        ticks = powers
        if math.log10(high / low) * len(f"{high:,.0f}") > LONG_DECADES:
            ticks = [power for power in powers if round(math.log10(power)) % 2 == 0]
    return Axis(label, low, high, tuple(ticks), "log", suffix)


MAX_DOUBLED_SPAN = 1e5
MOST_LONG = 5
"""Labels as long as 100,000,000× that have room side by side."""


def doubling_axis(label: str, low: float, high: float, most: int | None = None) -> Axis:
    """A logarithmic axis of ratios: powers of two, over a wide span powers of ten. most: number of labels that have
    room."""
    if high / low > MAX_DOUBLED_SPAN:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        every = math.ceil(len(powers) / min(most or MOST_LONG, MOST_LONG))
        return Axis(label, low, high, tuple(10.0**power for power in powers if power % every == 0), "log", "×")
    return Axis(label, low, high, tuple(log_ticks(low, high, 2, most)), "log2", "×")


def widened_limits(values: Sequence[float]) -> tuple[float, float]:
    """Limits that leave a tenth of the logarithmic range, and at least a fifth of the value, on either side."""
    margin = max(1.2, (max(values) / min(values)) ** 0.1)
    return min(values) / margin, max(values) * margin


def log_ticks(low: float, high: float, base: int, most: int | None = None) -> list[float]:
    """Powers of two, or 1, 2 and 5 of each decade; even steps where fewer than three of these lie between two different
    ends, because a single tick shows no scale. Some ticks lie beyond the ends. low: above 0.

    most: number of labels that have room; of more powers of two only every second, third, … is kept, and always 1.
    """
    steps = (1,) if base == 2 else (1, 2, 5)
    powers = range(math.floor(math.log(low, base)) - 1, math.ceil(math.log(high, base)) + 1)
    every = 1 if most is None else max(1, math.ceil((math.log2(high / low) + 1) / most))
    ticks = [step * float(base) ** power for power in powers if power % every == 0 for step in steps]
    return _even(low, high) if low < high and sum(low <= tick <= high for tick in ticks) < 3 else ticks


def _even(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 of a decade, three to eight between the ends."""
    rough = (high - low) / 3
    decade = 10.0 ** math.floor(math.log10(rough))
    step = max(factor * decade for factor in (1, 2, 5) if factor * decade <= rough)
    places = range(math.floor(low / step), math.ceil(high / step) + 1)
    return [float(f"{place * step:.6g}") for place in places if place > 0]
