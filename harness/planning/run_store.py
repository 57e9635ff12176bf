"""Reads and writes a store of runs over time: runs are added by id and never overwritten."""

from __future__ import annotations

from pathlib import Path

from harness.comparison.run_history import run_of
from harness.core import store
from harness.core.errors import InferometerError, MalformedFileError, MissingInputError
from harness.core.layout import RunStore
from harness.core.schemas import Decision, HistoryRun, Summary

HOW = "make history STORE=<folder>"


def add_run(files: RunStore, summary: Summary, commit: str | None) -> tuple[HistoryRun, bool]:
    """Add a run; returns its record, and False where the store has it already.

    Raises MissingInputError for a summary without a measured row, and MalformedFileError where the store has other
    results under the same id.
    """
    run = run_of(summary, commit)
    if run is None:
        raise MissingInputError("The summary has no measured row, so there is nothing to add.", "make bench")
    same = next((one for one in load_runs(files)[0] if _identity(one) == _identity(run)), None)
    if same is not None and same.points == run.points:
        return same, False
    if same is not None:
        raise MalformedFileError(
            f"{files.run(same.run_id)} has other results of the same run: a run in the store is never overwritten.",
            "Measure again (make bench FORCE=1), or use another store.",
        )
    store.save_summary(files.summary(run.run_id), summary)
    store.save(files.run(run.run_id), run, indent=None)
    return run, True


def _identity(run: HistoryRun) -> tuple[str, ...]:
    """What two records of one run share, whatever name its code was given."""
    return (run.plan_id, run.machine_key, run.measured_from, run.measured_to)


def load_runs(files: RunStore) -> tuple[list[HistoryRun], list[str]]:
    """Every run in the store, in order of time, and a note for each file that cannot be read."""
    runs: list[HistoryRun] = []
    notes: list[str] = []
    for path in sorted(files.runs.glob("*/run.json")):
        try:
            runs.append(store.load(path, HistoryRun, HOW))
        except InferometerError as error:
            notes.append(f"{error.problem} {error.hint}")
    return sorted(runs, key=lambda run: (run.measured_from, run.run_id)), notes


def load_decisions(files: RunStore) -> tuple[list[Decision], list[str]]:
    """Every decision in the store, and a note for each file that cannot be read."""
    found: list[Decision] = []
    notes: list[str] = []
    for path in sorted(files.decisions.glob("*.json")):
        try:
            found.append(store.load(path, Decision, f"{HOW} CONFIRM=<shift>"))
        except InferometerError as error:
            notes.append(f"{error.problem} {error.hint}")
    return found, notes


def is_store(folder: Path) -> bool:
    """Whether a folder is a store of runs."""
    return RunStore(folder).runs.is_dir()


def baseline_in(files: RunStore, current: Summary) -> str:
    """The id of the latest run of the same machine and configuration before the current one.

    Raises MissingInputError where the store has none.
    """
    own = run_of(current, None)
    runs, _ = load_runs(files)
    if own is not None:
        earlier = [
            run
            for run in runs
            if (run.machine_key, run.config) == (own.machine_key, own.config) and run.measured_from < own.measured_from
        ]
        if earlier:
            return earlier[-1].run_id
    raise MissingInputError(
        f"{files.root} has no earlier run of this machine and configuration.", f"Add runs to it: {HOW}."
    )
