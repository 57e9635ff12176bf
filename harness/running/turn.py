"""One turn: a job handed to a worker, and a record of it on disk, whatever happens to its process."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core import cli, store
from harness.core.errors import StorageError
from harness.core.jobs import Job
from harness.core.layout import Results
from harness.core.schemas import Failed, Measured
from harness.core.timestamps import utc_now
from harness.measure.launcher import Observer, Outcome, Worker


def measure_turn(job: Job, worker: Worker, results: Results, observer: Observer) -> Measured | Failed:
    """Measure one case in one round. Raises StorageError when its record cannot be written."""
    case_id = job.case.case_id
    raw, log = results.raw_file(case_id, job.round), results.log_file(case_id, job.round)
    with store.translate_storage_errors(raw):
        # The log of an earlier try as well: a process that never began must not be explained by it.
        for old in (raw, log, results.usage_file(case_id, job.round)):
            old.unlink(missing_ok=True)
    outcome = worker.run(job, observer)
    store.shorten_log(log)
    if outcome.code == StorageError.exit_code:
        raise StorageError(
            f"The disk is full or not writable: {raw} could not be written.",
            "Free some space and run the same command again; what was measured is kept.",
        )
    if raw.is_file() and not outcome.timed_out:
        return store.load_raw(raw)
    last_words = store.tail(log) or store.tail(worker.log)
    error, hint = _absent_library(outcome.absent) if outcome.absent else _explain(outcome, job, last_words)
    record = Failed(
        case_id=case_id,
        round=job.round,
        settings_id=job.settings_id,
        started_at=utc_now(),
        environment_id=None,
        error=error,
        hint=hint,
        phase=outcome.phase,
        stderr_tail=last_words,
    )
    store.save_raw(raw, record)
    return record


def _explain(outcome: Outcome, job: Job, last_words: str) -> tuple[str, str]:
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
    if told := cli.told(last_words):
        return told
    return f"Ended with exit code {outcome.code} and no result.", "The log's tail below may say why."


def _absent_library(absent: Sequence[str]) -> tuple[str, str]:
    return (
        f"{', '.join(absent)} is not installed.",
        f"Install it: pip install {' '.join(absent)}; or name a Python that has it: BACKEND_PYTHONS=<backend>=<path>.",
    )
