"""Keep runs over time in a store, and show where a case began to be slower or faster.

A shift that the history alone shows is a candidate. An A/B run of the two commits around it decides it; then it is
confirmed or refuted. A change of machine, driver or library ends a series: a shift is a change within one series.

reads   results/summary.json; <store>/runs/*/run.json, decisions/*.json; with --confirm results/ab/comparison.json
writes  <store>/runs/<run_id>/{run,summary}.json, of a large run summary.parquet; decisions/<shift_id>.json,
        history.json, history.html

Exit code 1: a shift to a slower level is confirmed for the first time. 3: there is no run to add; an earlier store is
shown all the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.comparison.run_history import analyse, with_decision
from harness.core import cli, file_sums, store
from harness.core.errors import MissingInputError, RegressionError, UsageError
from harness.core.given_paths import require_folder
from harness.core.layout import Results, RunStore
from harness.core.lock import exclusive
from harness.core.parallel import without_garbage_collection
from harness.core.schemas import Comparison, Decision, History, HistoryRun, Shift
from harness.core.text import unknown_name
from harness.core.timestamps import utc_now
from harness.planning.run_store import RemoteStore, add_run, is_url, load_decisions, load_runs
from harness.reporting.html.history_page import history_page
from harness.reporting.tables.history_table import how_to_decide, terminal_history


@without_garbage_collection()
def stage(arguments: Sequence[str]) -> None:
    """Add the run of the results folder, or decide a shift; then analyse the store and write its page."""
    parser = cli.parser("harness.history", __doc__)
    parser.add_argument("--store", default="", help="folder of the store, or its URL")
    parser.add_argument("--commit", help="state of the measured code, if it is not Inferometer's checkout")
    parser.add_argument("--confirm", metavar="SHIFT", help="decide this shift by the A/B run in results/ab")
    cli.add_folders(parser, models=False)
    options = parser.parse_args(arguments)
    if not options.store:
        raise UsageError("There is no store.", "make history STORE=<folder>; a missing folder is created.")
    results = Results(options.results)
    remote = RemoteStore(options.store) if is_url(options.store) else None
    files = results.store_copy(remote.url) if remote else RunStore(cli.path(options.store.removeprefix("file://")))
    if remote is None:
        require_folder(files.root, "STORE", "<folder>")
    if Results(files.root).plan.exists():
        raise UsageError(
            f"{files.root} is a folder of results, which `make clean` empties.", "Name another: STORE=<folder>."
        )
    with store.translate_storage_errors(files.root):
        files.root.mkdir(parents=True, exist_ok=True)
    with exclusive(files.lock):
        if remote is not None:
            remote.fetch(files)
        decision = _changed(files, results, remote, options)
        runs, history = _analysed(files)
        store.save(files.history, history, indent=None)
        store.save_bytes(files.page, cli.typed_html(history_page(history, runs)).encode())
        if remote is not None and not remote.read_only:
            remote.replace(files, (files.history, files.page))
    cli.say(terminal_history(history, runs))
    cli.say(f"Page: {files.page}")
    if decision is not None:
        _end(decision.shift)
    elif not results.summary.is_file() and not (remote is not None and remote.read_only):
        raise MissingInputError(f"{results.summary} does not exist, so no run was added to the store.", "make bench")


def _changed(
    files: RunStore, results: Results, remote: RemoteStore | None, options: argparse.Namespace
) -> Decision | None:
    """Add the run, or decide a shift, here and behind the URL; returns the decision."""
    if remote is not None and remote.read_only:
        if options.confirm:
            raise UsageError(f"{remote.url} can only be read.", "Name the store where it is written: STORE=<folder>.")
        cli.say(f"{remote.url} can only be read, so nothing is added.")
        return None
    decision = _decide(files, results, options.confirm) if options.confirm else None
    new = _add(files, results, options.commit) if decision is None else [files.decision(decision.shift.shift_id)]
    if remote is not None:
        remote.create(files, new)
    return decision


def _add(files: RunStore, results: Results, commit: str | None) -> list[Path]:
    """Add the run of the results folder; returns its new files, in the order in which a reader needs them."""
    if not results.summary.is_file():
        if any(files.runs.glob("*/run.json")):
            return []  # the stage shows the store first, and then ends with this error
        raise MissingInputError(f"{results.summary} does not exist, and the store is empty.", "make bench")
    run, is_new = add_run(files, file_sums.ByModel(results.summary), commit)
    cli.say(f"Run {run.run_id} {'is added' if is_new else 'is in the store already'}: {run.machine}.")
    if commit and run.commit != commit:
        cli.warn(f"The store keeps {run.commit or 'no commit'} as its state of the code, not {commit}.")
    new = (files.packed_rows(run.run_id), files.summary(run.run_id), files.run(run.run_id))
    return [path for path in new if path.is_file()] if is_new else []


def _analysed(files: RunStore) -> tuple[list[HistoryRun], History]:
    runs, notes = load_runs(files)
    decisions, more = load_decisions(files)
    for note in (*notes, *more):
        cli.warn(note)
    return runs, analyse(runs, decisions, utc_now())


def _decide(files: RunStore, results: Results, shift_id: str) -> Decision:
    """Save what the A/B run says about a candidate. Raises UsageError where it says nothing about it."""
    _, history = _analysed(files)
    by_id = {shift.shift_id: shift for shift in history.shifts if shift.state == "candidate"}
    if shift_id not in by_id:
        raise UsageError(*unknown_name("candidate of this store", shift_id, list(by_id)))
    path: Path = results.ab.comparison
    comparison = store.load(path, Comparison, "make ab AGAINST=<commit before the shift>")
    entry = with_decision(by_id[shift_id], comparison)
    if isinstance(entry, str):
        raise UsageError(f"{path} does not decide {shift_id}: {entry}.", how_to_decide(by_id[shift_id]))
    sides = (comparison.baseline.state if comparison.baseline else None, comparison.current.state)
    decision = Decision(created_at=utc_now(), shift=entry, against=sides[0], here=sides[1])
    store.save(files.decision(shift_id), decision)
    return decision


def _end(shift: Shift) -> None:
    sentence = f"{shift.case_id}: shift {shift.shift_id} is {shift.state} ({shift.verdict})"
    if shift.state == "confirmed" and shift.ratio > 1:
        raise RegressionError(f"{sentence}.", f"It came after {shift.commits[0]}, up to {shift.commits[1]}.")
    cli.say(f"{sentence}.")


if __name__ == "__main__":
    cli.main(stage)
