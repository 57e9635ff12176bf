"""The legend beside line and point figures: one entry a backend and precision, in the order of what it means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.core.schemas import Row
from harness.render.canvas import widest_in
from harness.render.series import labels, line_numbers
from harness.render.style import RC, WIDTH_IN, face, line_style, look


def side_legend(figure: Figure, rows: Iterable[Row], lines: bool) -> None:
    """Entries for the rows' backends, in the order of the rows, to the right of all panels."""
    found = list(rows)
    names, numbers = labels(found), line_numbers(found)
    entries = {names[row.case_id]: row for row in found}
    handles = [
        Line2D(
            [], [], color=look(row.backend).colour, marker=look(row.backend).marker, markersize=5,
            linestyle=line_style(row.precision, numbers[label]) if lines else "", linewidth=1.4,
            markerfacecolor=face(look(row.backend).colour, row.precision),
        )
        for label, row in entries.items()
    ]  # fmt: skip
    place = (1 - (legend_width_in(found) - 0.1) / WIDTH_IN, 0.58)
    figure.legend(
        handles, list(entries), loc="center left", bbox_to_anchor=place, handlelength=2.6, labelspacing=0.7,
        borderaxespad=0, borderpad=0,
    )  # fmt: skip


def legend_width_in(rows: Sequence[Row]) -> float:
    """Inches that side_legend needs to the right of the panels."""
    return 0.68 + widest_in(labels(rows).values(), RC["legend.fontsize"])
