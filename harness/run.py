"""run: measure every case of the plan, each in a fresh process per round, and keep the raw samples.

reads   results/plan.json, models/<model>/export.json and the files that it names
writes  results/raw/<case_id>/<round>.json, results/environments/<id>.json
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from harness.backends import backend_info
from harness.core import cli, devices, limits, store
from harness.core.errors import CasesFailedError, StorageError
from harness.core.jobs import Job
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.schemas import ExportRecord, Failed, Measured, Plan
from harness.core.timestamps import utc_now
from harness.measure.launcher import Outcome, Worker
from harness.measure.stats import median
from harness.planning.resume import Finished, finished_turns
from harness.planning.schedule import Turn, schedule
from harness.render.progress import RunProgress


def stage(arguments: Sequence[str]) -> None:
    """Measure what the plan owes and the results folder lacks."""
    parser = cli.parser("harness.run", __doc__)
    parser.add_argument("--force", action="store_true", help="measure anew what is already there")
    parser.add_argument(
        "--isolation", choices=("fork", "spawn"), default="fork", help="how a case gets its fresh process"
    )
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    results, models = Results(options.results), Models(options.models_dir)
    plan = store.load(results.plan, Plan, "make plan")
    devices.require(plan.device)
    exports = _exports(plan, models)
    with exclusive(results.lock):
        turns = schedule(plan.cases, plan.measurement.rounds, plan.measurement.seed)
        done = Finished() if options.force else finished_turns(plan, turns, exports, results)
        if options.force:
            _forget(turns, results)
        todo = [turn for turn in turns if not done.has(turn)]
        for note in done.notes:
            cli.warn(note)
        cli.say(_announcement(plan, turns, todo))
        failures = _measure_all(plan, todo, models, results, fork=options.isolation == "fork")
    if failures:
        raise CasesFailedError(
            f"{failures} of {len(todo)} processes failed; the others are measured.",
            "The report lists each with its reason; `make run` tries only the failed ones again.",
        )


def _exports(plan: Plan, models: Models) -> dict[str, ExportRecord]:
    """The export of each model of the plan, with its files checked against their hashes."""
    found = {}
    for model in plan.models:
        folder = models.folder(model.slug)
        export = store.load(folder.record, ExportRecord, "make export")
        store.check_artifacts(folder.root, export)
        found[model.name] = export
    return found


def _measure_all(plan: Plan, todo: Sequence[Turn], models: Models, results: Results, fork: bool) -> int:
    """Run every turn; returns how many failed. Workers live as long as the run."""
    threads = plan.measurement.threads or limits.threads()
    workers: dict[str, Worker] = {}
    failures = 0
    with ExitStack() as stack, RunProgress(len(todo)) as progress:
        for number, case in todo:
            label = f"round {number}  {case.case_id}"
            job = Job(
                case=case,
                round=number,
                plan_id=plan.plan_id,
                measurement=plan.measurement,
                threads=threads,
                results=str(results.root),
                models=str(models.root),
            )
            if case.backend not in workers:
                workers[case.backend] = Worker(case.backend, threads, results.worker_log(case.backend), fork)
                stack.callback(workers[case.backend].close)
            record = _measure_one(job, workers[case.backend], results, partial(progress.running, label))
            failures += isinstance(record, Failed)
            progress.finished(label, _in_words(record))
    return failures


def _measure_one(job: Job, worker: Worker, results: Results, on_phase: Callable[[str], None]) -> Measured | Failed:
    """Measure one turn; whatever happens to its process, a record of it is on disk afterwards."""
    raw, log = results.raw_file(job.case.case_id, job.round), results.log_file(job.case.case_id, job.round)
    with store.translate_storage_errors(raw):
        # The log of an earlier try as well: a process that never began must not be explained by it.
        raw.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    absent = [name for name in backend_info(job.case.backend).requires if importlib.util.find_spec(name) is None]
    outcome = Outcome(code=0, phase="start") if absent else worker.run(job, on_phase)
    if outcome.code == StorageError.exit_code:
        raise StorageError(
            f"The disk is full or not writable: {raw} could not be written.",
            "Free some space and run the same command again; what was measured is kept.",
        )
    if raw.is_file() and not outcome.timed_out:
        return store.load_raw(raw)
    error, hint = _absent_library(absent) if absent else _explain(outcome, job)
    record = Failed(
        case_id=job.case.case_id,
        round=job.round,
        plan_id=job.plan_id,
        started_at=utc_now(),
        environment_id=None,
        error=error,
        hint=hint,
        phase=outcome.phase,
        stderr_tail=store.tail(log) or store.tail(results.worker_log(job.case.backend)),
    )
    store.save_raw(raw, record)
    return record


def _explain(outcome: Outcome, job: Job) -> tuple[str, str]:
    """(error, hint) for a process that left no record."""
    if outcome.timed_out:
        return (
            f"Ended at the time limit of {job.measurement.timeout_s:g} s.",
            "Raise `measurement.timeout_s` in the configuration, or choose a smaller batch.",
        )
    if outcome.code == -9:
        return (
            "Killed by the system (signal 9), most likely out of memory.",
            f"Try a smaller batch than {job.case.batch_size} (BATCHES=…), or free memory.",
        )
    if outcome.code < 0:
        return (
            f"Crashed with signal {-outcome.code}.",
            "This is a fault in a native library: try another version of it; the log's tail may name the operator.",
        )
    return f"Ended with exit code {outcome.code} and no result.", "The log's tail below may say why."


def _absent_library(absent: Sequence[str]) -> tuple[str, str]:
    return f"{', '.join(absent)} is not installed.", f"Install it: pip install {' '.join(absent)}."


def _forget(turns: Sequence[Turn], results: Results) -> None:
    """Take away the old records first: a forced run that is interrupted must not pass them off as new."""
    for number, case in turns:
        path = results.raw_file(case.case_id, number)
        with store.translate_storage_errors(path):
            path.unlink(missing_ok=True)


def _announcement(plan: Plan, turns: Sequence[Turn], todo: Sequence[Turn]) -> str:
    kept = (
        f"; {len(turns) - len(todo)} measured before are kept (FORCE=1 measures anew)" if len(todo) < len(turns) else ""
    )
    threads = plan.measurement.threads or limits.threads()
    return f"Plan {plan.plan_id}: {len(todo)} processes to run with {threads} threads each{kept}."


def _in_words(record: Measured | Failed) -> str:
    if isinstance(record, Failed):
        return f"FAILED in {record.phase}: {record.error}"
    steady = "" if record.steady else ", not steady"
    return f"{median(record.latency_ns) / 1e6:.3g} ms  n={len(record.latency_ns)}, {record.stop}{steady}"


if __name__ == "__main__":
    cli.main(stage)
