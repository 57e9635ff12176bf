"""history.html of a store: one line for each case and machine over all runs (pure; works without a network).

The figures are in one JSON element; the page's program draws a line when it comes into view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.core.schemas import History, HistoryRun
from harness.reporting.html import embedded
from harness.reporting.tables.history_table import changes_table, shifts_table, short_commit, visible_in_words
from harness.reporting.units import MILLISECOND, count
from harness.reporting.writers import html
from harness.statistics.estimators import median, median_interval

DIGITS = 5
"""Significant digits of a figure in the page."""


def history_page(history: History, runs: Sequence[HistoryRun]) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("harness.reporting.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}
    assets = files("harness.reporting.html").joinpath("assets")
    program = assets.joinpath("history.js").read_text(encoding="utf-8")
    style = embedded.style() + assets.joinpath("history.css").read_text(encoding="utf-8")
    shifts, changes = shifts_table(history, runs), changes_table(history, runs)
    return environment.get_template("history.html.j2").render(
        title=f"History: {count(history.runs, 'run')}, {count(len(history.series), 'series', 'series')}",
        visible=visible_in_words(history),
        shifts=html.blocks([shifts]) if shifts else "",
        changes=html.blocks([changes]) if changes else "",
        data=page_data(history, runs),
        style=Markup(style),  # noqa: S704 - files of this package
        program=Markup(program),  # noqa: S704 - the same
        hashes=[embedded.sha256(program)],
    )


def page_data(history: History, runs: Sequence[HistoryRun]) -> dict[str, Any]:
    """What the page's program draws: runs (time, commit), and for each series its values, changes and shifts.

    A value is [index of the run, level, low end, high end] in ms; without an interval both ends are the level.
    """
    place = {run.run_id: number for number, run in enumerate(runs)}
    by_series: dict[tuple[str, str], list[list[float]]] = {}
    for number, run in enumerate(runs):
        for case_id, point in run.points.items():
            level = median(point.process_medians)
            ends = median_interval(point.process_medians)
            values = (level, ends.low, ends.high) if ends else (level, level, level)
            by_series.setdefault((case_id, run.machine_key), []).append([number, *map(_in_ms, values)])
    machines = {run.machine_key: run.machine for run in runs}
    return {
        "runs": [[run.measured_from[:16].replace("T", " "), short_commit(run.commit)] for run in runs],
        "series": [
            {
                "name": one.case_id,
                "machine": machines[one.machine_key],
                "visible": one.smallest_visible,
                "values": by_series.get((one.case_id, one.machine_key), []),
                "changes": [
                    [place[change.after_run], "\n".join(change.changes)]
                    for change in history.boundaries
                    if change.machine_key == one.machine_key and change.after_run in place
                ],
                "shifts": [
                    [place[shift.after_run], shift.state, f"{shift.ratio - 1:+.1%}"]
                    for shift in history.shifts
                    if (shift.case_id, shift.machine_key) == (one.case_id, one.machine_key) and shift.after_run in place
                ],
            }
            for one in history.series
        ],
    }


def _in_ms(value_ns: float) -> float:
    value = value_ns / MILLISECOND.ns
    return round(value, DIGITS - 1 - math.floor(math.log10(value))) if value > 0 else 0.0
