"""The chart of several machines: speed-up over the baseline backend, a panel a machine, one scale for all (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.schemas import Summary
from harness.reporting.charts.rows import common_labels, reading, speedup_mark
from harness.reporting.charts.spec import Absent, DotPanel, Dots, Mark
from harness.reporting.charts.speedup_chart import ratio_axis
from harness.reporting.prose.conditions import machine
from harness.reporting.tables.fleet_tables import across_machines

MAX_LINES = 30
MAX_MACHINES = 6
"""Lines and panels of the chart, the cases of most machines first; the table has all."""


def machines_chart(summaries: Mapping[str, Summary]) -> Dots | None:
    """The chart; None where no machine has a speed-up."""
    names = list(summaries)[:MAX_MACHINES]
    shown = [case for case in across_machines(summaries) if any(name in case.rows for name in names)][:MAX_LINES]
    panels: dict[str, dict[str, Mark | Absent]] = {name: {} for name in names}
    for case in shown:
        for name in names:
            row = case.rows.get(name)
            panels[name][case.label] = Absent("not measured") if row is None else speedup_mark(row)
    marks = [mark for panel in panels.values() for mark in panel.values() if isinstance(mark, Mark)]
    if not marks:
        return None
    columns = min(3, len(names))
    axis = ratio_axis("speed-up (log scale)", marks, 13 // columns)
    baseline = next(iter(summaries.values())).baseline_backend
    rows = [row for case in shown for row in case.rows.values()]
    first = f"Marker: median of {baseline} fp32 / median of the backend on the same machine; bar: 95% CI."
    return Dots(
        f"Speed-up over {baseline} fp32, by machine",
        f"Speed-up over {baseline} fp32, by machine",
        reading(first, rows, marks),
        " · ".join(f"{name}: {machine(summaries[name].environments)}" for name in names),
        tuple(DotPanel(name, axis, lines) for name, lines in panels.items()),
        common_labels(panels.values()),
        columns,
    )
