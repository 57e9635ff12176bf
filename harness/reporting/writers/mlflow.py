"""Summary → runs for MLflow, a run for the plan and below it a run for each row with sound figures (pure); and their
log on a tracking server or in a database, which needs the extra `mlflow`, imported late."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.aggregation.grades import names_of
from harness.core.errors import UnavailableError
from harness.core.schemas import LoadRow, Row, Summary
from harness.core.timestamps import since_1970_s
from harness.reporting.csv_identity import RESTS_ON_C, Line, identity_columns, run_columns, sound_rows
from harness.reporting.figures import ANSWERS, CSV_UNITS, LOAD, LOADED, MEMORY, SPEED, columns
from harness.reporting.load_groups import is_sound
from harness.reporting.tables.cold_start_table import cold_costs
from harness.reporting.tables.energy_table import joules
from harness.reporting.tables.load_tables import load_identity_columns
from harness.reporting.tables.roofline_table import roofline_columns

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

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
        tags=_tags({**run_columns(summary), **units}),
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
    known = {**load_identity_columns(row), "threads": row.threads}
    name = str(known.pop("load_id"))
    verdicts: Line = {f"verdict_{point.point}": point.verdict for point in row.points}
    return MlflowRun(
        name=name,
        params={name: str(value) for name, value in known.items() if value is not None},
        metrics=_numbers(figures),
        tags=_tags({"load_id": name, **verdicts, **run_columns(summary)}),
    )


def _case_run(summary: Summary, row: Row, by_id: dict[str, Row]) -> MlflowRun:
    metered = summary.energies.get(row.case_id)
    figures: Line = {
        **columns((*SPEED, *ANSWERS, *MEMORY), row, CSV_UNITS),
        **cold_costs(summary, row, by_id),
        **roofline_columns(summary, row),
        **(joules(metered) if metered else {}),
        # A unit may contain characters that MLflow forbids in names, so the plan's run has the units.
        **{f"custom_{name}": value for name, value in row.custom.items() if isinstance(value, float)},
    }
    known = {**identity_columns(row), "threads": row.threads}
    grade = {name: known.pop(name) for name in ("case_id", "grade")}
    flags = " ".join(names_of(row.flags))
    doubts = {name: value for name, value in figures.items() if name.endswith(RESTS_ON_C) and value is True}
    return MlflowRun(
        name=row.case_id,
        params={name: str(value) for name, value in known.items() if value is not None},
        metrics=_numbers(figures),
        tags=_tags({**grade, "flags": flags or None, **doubts, **run_columns(summary)}),
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


DIGEST = f"{PREFIX}digest"
"""Tag with the digest of the summary, to find runs that were logged before."""

_UNLESS_SET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Without these variables MLflow reports its usage over the network, retries an unreachable server for minutes, and
prints two lines per run. It reads them at import."""


@dataclass(frozen=True)
class Logged:
    """run: id of the plan's run. cases: number of child runs added, None where the summary was logged before. files:
    names of the files added."""

    run: str
    cases: int | None
    files: tuple[str, ...]


def log_summary(summary: Summary, artifacts: Sequence[Path], uri: str, experiment: str) -> Logged:
    """Log what the server does not yet have.

    artifacts: files that go with the plan's run. Raises UnavailableError where MLflow is not installed or `uri` cannot
    be used.
    """
    client, failure = _client(uri)
    try:
        place = _experiment(client, experiment)
        if earlier := _earlier(client, place, summary.digest):
            return Logged(earlier, None, _add(client, earlier, artifacts))
        began, ended = _ms(summary.measured_from or summary.created_at), _ms(summary.measured_to or summary.created_at)
        parent = _start(client, place, parent_run(summary), began)
        runs = [*case_runs(summary), *load_runs(summary)]
        for run in runs:
            child = _start(client, place, run, began, {"mlflow.parentRunId": parent})
            client.set_terminated(child, "FINISHED", ended)
        files = _add(client, parent, artifacts)
        # Last: a run that was interrupted has no digest, and is logged again.
        client.set_tag(parent, DIGEST, summary.digest)
        client.set_terminated(parent, "FINISHED", ended)
    except failure as error:
        raise _unusable(uri, error) from error
    return Logged(parent, len(runs), files)


def _client(uri: str) -> tuple[MlflowClient, tuple[type[Exception], ...]]:
    """The client, and the exceptions that it raises where a server, database or folder fails."""
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415
        from mlflow.tracking import MlflowClient  # noqa: PLC0415
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"MLflow is not installed: {error}.", "python -m pip install '.[mlflow]', in the same environment."
        ) from error
    failure = (MlflowException, SQLAlchemyError, OSError, ModuleNotFoundError)
    try:
        return MlflowClient(tracking_uri=uri), failure
    except failure as error:
        raise _unusable(uri, error) from error


def _experiment(client: MlflowClient, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))


def _earlier(client: MlflowClient, place: str, digest: str) -> str | None:
    runs: Sequence[Run] = client.search_runs([place], f"tags.`{DIGEST}` = '{digest}'", max_results=1)
    return str(runs[0].info.run_id) if runs else None


def _add(client: MlflowClient, run_id: str, artifacts: Sequence[Path]) -> tuple[str, ...]:
    """Log the files that the run does not yet have, by name; returns their names."""
    there = {str(file.path) for file in client.list_artifacts(run_id)}
    added = [path for path in artifacts if path.name not in there]
    for path in added:
        client.log_artifact(run_id, str(path))
    return tuple(path.name for path in added)


def _start(client: MlflowClient, place: str, run: MlflowRun, began: int, tags: dict[str, str] | None = None) -> str:
    """Create a run with everything but its end; returns its id."""
    from mlflow.entities import Metric, Param  # noqa: PLC0415

    created = client.create_run(place, began, {**run.tags, **(tags or {})}, run.name)
    run_id = str(created.info.run_id)
    metrics = [Metric(name, value, began, 0) for name, value in run.metrics.items()]
    client.log_batch(run_id, metrics, [Param(name, value) for name, value in run.params.items()])
    return run_id


def _ms(date: str) -> int:
    """A date as MLflow has it: ms since 1970."""
    return round(since_1970_s(date) * 1000)


def _unusable(uri: str, error: Exception) -> UnavailableError:
    first = str(error).partition("\n")[0]
    return UnavailableError(
        f"MLflow cannot use {_without_password(uri)}: {_without_password(first)}",
        "--mlflow takes http://<host>:<port> of a server that runs, or a database: sqlite:///mlflow.db",
    )


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)
