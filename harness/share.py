"""Export the results to other programs: CSV files, a file for Prometheus, and on request runs in MLflow.

reads   results/summary.json, profiles/<case_id>/{model,parts}.json; with --mlflow report.html too
writes  results/tables/*.csv, metrics.prom, written/share.json; with --mlflow a run for the plan and one for each
        case, elsewhere
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from harness.core import (
    cli,
    file_sums,
    store,
)
from harness.core.layout import Results
from harness.core.schemas import Summary
from harness.core.units import count
from harness.profiling.read_profiles import profiled_rows
from harness.reporting.html.page import is_made_from
from harness.reporting.writers.csv import NAMES, csv_tables
from harness.reporting.writers.mlflow import log_summary
from harness.reporting.writers.prometheus import metrics_text


def stage(arguments: Sequence[str]) -> None:
    """Read, convert to the other formats, write."""
    parser = cli.parser("harness.share", __doc__)
    cli.add_folders(parser, models=False)
    parser.add_argument("--mlflow", metavar="URI", default="", help="log to this MLflow server or database too")
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "inferometer")
    parser.add_argument("--experiment", default=experiment, help="MLflow's experiment (%(default)s)")
    options = parser.parse_args(arguments)
    results = Results(options.results)
    summary = file_sums.load_summary(results.summary)
    tables = csv_tables(summary, profiled_rows(summary, results, cli.warn))
    files = {results.table(name): text.encode() for name, text in tables.items()}
    file_sums.save(results, "share", {**files, results.metrics: metrics_text(summary)})
    _remove_others(tables, results)
    cli.say(f"Tables: {count(len(tables), 'file')} in {results.tables}")
    cli.say(f"Metrics: {results.metrics}")
    if options.mlflow:
        _log(summary, results, options.mlflow, options.experiment)


def _remove_others(tables: dict[str, str], results: Results) -> None:
    """Remove tables of an earlier run that this run does not have."""
    for name in NAMES - tables.keys():
        results.table(name).unlink(missing_ok=True)


def _log(summary: Summary, results: Results, uri: str, experiment: str) -> None:
    artifacts = [results.summary]
    file_sums.check(results, "report", [results.report_page], "make report")
    if is_made_from(store.read_bytes(results.report_page, "make report"), summary):
        artifacts.append(results.report_page)
    else:
        cli.warn(f"{results.report_page} is of another summary: left out of MLflow. `make report` makes one of this.")
    logged = log_summary(summary, artifacts, uri, experiment)
    if logged.cases is not None:
        cli.say(f"MLflow: run {logged.run} and {count(logged.cases, 'run')} below it, in the experiment {experiment}")
    elif logged.files:
        cli.say(f"MLflow: {', '.join(logged.files)} added to run {logged.run}, which has the same figures.")
    else:
        cli.say(f"MLflow: nothing to log: run {logged.run} has the same.")


if __name__ == "__main__":
    cli.main(stage)
