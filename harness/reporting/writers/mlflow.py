"""Summary → runs for MLflow: a run for the plan, and below it a run for each row with sound figures (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from harness.core.schemas import LoadRow, Row, Summary
from harness.reporting.csv_identity import RESTS_ON_C, Line, sound_rows, where, who
from harness.reporting.figures import ANSWERS, CSV_UNITS, LOAD, LOADED, MEMORY, SPEED, columns
from harness.reporting.load_groups import is_sound
from harness.reporting.tables.cold_start_table import cold_costs
from harness.reporting.tables.energy_table import joules
from harness.reporting.tables.load_tables import who_loaded
from harness.reporting.tables.roofline_table import against_limits

PREFIX = "inferometer."
"""Prefix of our tags, among the tags of MLflow and of other programs."""


@dataclass(frozen=True)
class MlflowRun:
    """Name, params, metrics and tags of one run."""

    name: str
    params: dict[str, str]
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def parent_run(summary: Summary) -> MlflowRun:
    """The run of the plan: the conditions that its cases share."""
    units: Line = {f"custom_{name}_unit": metric.unit for name, metric in summary.custom.items()}
    left_out = len(summary.rows) - len(sound_rows(summary))
    return MlflowRun(
        name=f"{summary.title} {summary.plan_id}",
        params={"config": summary.config, "baseline_backend": summary.baseline_backend, "rounds": str(summary.rounds)},
        metrics={"cases": float(len(summary.rows)), "cases_not_logged": float(left_out)},
        tags=_tags({**where(summary), **units}),
    )


def case_runs(summary: Summary) -> list[MlflowRun]:
    """Every row of the latency tables with sound figures; metrics are named and counted as in the CSV files."""
    by_id = {row.case_id: row for row in summary.rows}
    return [_case_run(summary, row, by_id) for row in sound_rows(summary)]


def load_runs(summary: Summary) -> list[MlflowRun]:
    """Every load case with sound figures; the metrics of a load are below its name, as `r45/load_achieved_per_s`."""
    return [_load_run(summary, row) for row in summary.loads if is_sound(row)]


def _load_run(summary: Summary, row: LoadRow) -> MlflowRun:
    figures = dict(columns(LOAD, row, CSV_UNITS))
    for point in row.points:
        figures |= {f"{point.point}/{name}": value for name, value in columns(LOADED, point, CSV_UNITS).items()}
    known = {**who_loaded(row), "threads": row.threads}
    name = str(known.pop("load_id"))
    verdicts: Line = {f"verdict_{point.point}": point.verdict for point in row.points}
    return MlflowRun(
        name=name,
        params={name: str(value) for name, value in known.items() if value is not None},
        metrics=_numbers(figures),
        tags=_tags({"load_id": name, **verdicts, **where(summary)}),
    )


def _case_run(summary: Summary, row: Row, by_id: dict[str, Row]) -> MlflowRun:
    metered = summary.energies.get(row.case_id)
    figures: Line = {
        **columns((*SPEED, *ANSWERS, *MEMORY), row, CSV_UNITS),
        **cold_costs(summary, row, by_id),
        **against_limits(summary, row),
        **(joules(metered) if metered else {}),
        # A unit may contain characters that MLflow forbids in names, so the plan's run has the units.
        **{f"custom_{name}": value for name, value in row.custom.items() if isinstance(value, float)},
    }
    known = {**who(row), "threads": row.threads}
    grade = {name: known.pop(name) for name in ("case_id", "grade")}
    flags = " ".join(dict.fromkeys(flag.name for flag in row.flags))
    doubts = {name: value for name, value in figures.items() if name.endswith(RESTS_ON_C) and value is True}
    return MlflowRun(
        name=row.case_id,
        params={name: str(value) for name, value in known.items() if value is not None},
        metrics=_numbers(figures),
        tags=_tags({**grade, "flags": flags or None, **doubts, **where(summary)}),
    )


def _numbers(line: Line) -> dict[str, float]:
    """The figures that are finite numbers. A bool is an int in Python, but no figure."""
    return {
        name: float(value)
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _tags(line: Line) -> dict[str, str]:
    return {f"{PREFIX}{name}": str(value) for name, value in line.items() if value is not None}
