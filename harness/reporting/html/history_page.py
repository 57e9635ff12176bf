"""history.html of a store: one line for each case and machine over all runs (pure; works without a network).

The figures are in one JSON element; the page's program draws a line when it comes into view.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from harness.core.schemas import History, HistoryRun, SeriesState, Shift
from harness.core.units import MILLISECOND, count
from harness.reporting.html import embedded
from harness.reporting.tables.history_table import changes_table, shifts_table, short_commit, visible_in_words
from harness.reporting.writers import html
from harness.statistics.estimators import median, median_interval

DIGITS = 5
"""Significant digits of a figure in the page."""


MAX_SERIES = 2_000
"""Series with a line: a page with more is larger than any file of ours may be, and no browser scrolls it."""


def history_page(history: History, runs: Sequence[HistoryRun]) -> str:
    """The whole page."""
    assets = files("harness.reporting.html").joinpath("assets")
    program = assets.joinpath("history.js").read_text(encoding="utf-8")
    style = embedded.style() + assets.joinpath("history.css").read_text(encoding="utf-8")
    shifts, changes = shifts_table(history, runs), changes_table(history, runs)
    return embedded.template("history.html.j2").render(
        title=f"History: {count(history.runs, 'run')}, {count(len(history.series), 'series', 'series')}",
        visible=" ".join(filter(None, (visible_in_words(history), _left_out(history)))),
        shifts=html.blocks([shifts]) if shifts else "",
        changes=html.blocks([changes]) if changes else "",
        data=page_data(history, runs),
        style=Markup(style),  # noqa: S704 - files of this package
        program=Markup(program),  # noqa: S704 - the same
        hashes=[embedded.sha256(program)],
    )


def page_data(history: History, runs: Sequence[HistoryRun]) -> dict[str, Any]:
    """The data that the page's program draws: runs (time, commit), and for each series its values, changes and shifts.

    A value is [index of the run, level, low end, high end] in ms; without an interval both ends are the level.
    """
    place = {run.run_id: number for number, run in enumerate(runs)}
    shifts: dict[tuple[str, str], list[Shift]] = {}
    for shift in history.shifts:
        shifts.setdefault((shift.case_id, shift.machine_key), []).append(shift)
    shown = _shown_series(history, shifts)
    by_series: dict[tuple[str, str], list[list[float]]] = {(series.case_id, series.machine_key): [] for series in shown}
    for number, run in enumerate(runs):
        for case_id, point in run.points.items():
            if (case_id, run.machine_key) not in by_series:
                continue
            level = median(point.process_medians)
            ends = median_interval(point.process_medians)
            values = (level, ends.low, ends.high) if ends else (level, level, level)
            by_series[case_id, run.machine_key].append([number, *map(_in_ms, values)])
    machines = {run.machine_key: run.machine for run in runs}
    return {
        "runs": [[run.measured_from[:16].replace("T", " "), short_commit(run.commit)] for run in runs],
        "series": [
            {
                "name": series.case_id,
                "machine": machines[series.machine_key],
                "visible": series.smallest_visible,
                "values": by_series[series.case_id, series.machine_key],
                "changes": [
                    [place[change.after_run], "\n".join(change.changes)]
                    for change in history.boundaries
                    if change.machine_key == series.machine_key and change.after_run in place
                ],
                "shifts": [
                    [place[shift.after_run], shift.state, f"{shift.ratio - 1:+.1%}"]
                    for shift in shifts.get((series.case_id, series.machine_key), ())
                    if shift.after_run in place
                ],
            }
            for series in shown
        ],
    }


def _shown_series(history: History, shifts: Collection[tuple[str, str]]) -> list[SeriesState]:
    """The series that have a line, in the order of the history."""
    if len(history.series) <= MAX_SERIES:
        return list(history.series)
    order = sorted(
        range(len(history.series)),
        key=lambda at: (history.series[at].case_id, history.series[at].machine_key) not in shifts,
    )
    return [history.series[at] for at in sorted(order[:MAX_SERIES])]


def _left_out(history: History) -> str:
    number = len(history.series)
    if number <= MAX_SERIES:
        return ""
    return f"{MAX_SERIES:,} of {number:,} series have a line here, those with shifts first; history.json has all."


def _in_ms(value_ns: float) -> float:
    value = value_ns / MILLISECOND.ns
    return round(value, DIGITS - 1 - math.floor(math.log10(value))) if value > 0 else 0.0
