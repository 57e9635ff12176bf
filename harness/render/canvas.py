"""A figure with a title above and a caption below, and nothing outside its edges.

Margins are reckoned from the width of the labels. Matplotlib's own layout engines draw every figure twice to find them,
which doubles the time of a report with dozens of charts.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import IO

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from harness.render.style import DPI, INK, RC, WIDTH_IN, drawing

_CAPTION_COLUMNS = 142
"""Characters of caption type that fit the width."""

_LINE_IN = 0.155
"""Height of a line of caption."""

_HEAD_IN = 0.36
"""Height of the figure's title."""

_EDGE_IN = 0.07


@dataclass(frozen=True)
class Margins:
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
    title: str, caption: Sequence[str], grid: tuple[int, int], height_in: float, margins: Margins
) -> tuple[Figure, list[Axes]]:
    """A figure of (rows, columns) panels, each with a drawing area `height_in` high; panels in reading order."""
    rows, columns = grid
    # A non-breaking space before each dot keeps lines from beginning with one.
    lines = [line for text in caption for line in textwrap.wrap(text.replace(" ·", "\u00a0·"), _CAPTION_COLUMNS)]
    row_in = margins.top + height_in + margins.bottom
    whole_in = _HEAD_IN + rows * row_in + len(lines) * _LINE_IN + 2 * _EDGE_IN
    width_in = (WIDTH_IN - margins.left - margins.right - (columns - 1) * margins.gap) / columns
    figure = Figure(figsize=(WIDTH_IN, whole_in))
    left, text = _EDGE_IN / WIDTH_IN, "\n".join(lines)
    figure.text(left, 1 - 0.09 / whole_in, title, ha="left", va="top", fontsize=11.5, fontweight="bold", color=INK)
    figure.text(left, _EDGE_IN / whole_in, text, ha="left", va="bottom", fontsize=7.5, color="#555555")
    axes = []
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        x_in = margins.left + column * (width_in + margins.gap)
        y_in = whole_in - _HEAD_IN - row * row_in - margins.top - height_in
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


def save(figure: Figure, file: IO[bytes]) -> None:
    """Write as PNG; the same figure gives the same bytes, so that unchanged charts stay untouched."""
    with drawing():
        figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"compress_level": 4})
