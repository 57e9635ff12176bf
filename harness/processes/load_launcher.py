"""The load stage's side of a service process: starts it for one load case, and records why it ended early."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core import store
from harness.core.errors import StorageError
from harness.core.layout import Results
from harness.core.protocol import LoadJob
from harness.core.schemas import LoadCase, LoadFailure, Measurement
from harness.planning.load_cases import estimate_load
from harness.processes.energy_meter import ReplicationMeter
from harness.processes.launcher import Observer, Worker
from harness.processes.load_failure import save_failure
from harness.processes.pool import explain_end
from harness.processes.run_progress import RunProgress

SLACK = 3.0
"""Times the planned duration that a process may take besides the time limit of a case: services inflate under load."""


def settings_with_time_limit(load: LoadCase, measurement: Measurement) -> Measurement:
    """The plan's settings, with a time limit for everything that one process does for a load case."""
    planned_s = estimate_load([load])[1]
    return measurement.model_copy(update={"timeout_s": measurement.timeout_s + SLACK * planned_s})


def measure_load(job: LoadJob, worker: Worker, results: Results, observer: Observer) -> LoadFailure | None:
    """Run the process of a load case; returns why it ended early, or None. Raises StorageError where it could not save
    its records."""
    files = results.load(job.load.load_id)
    with store.translate_storage_errors(files.root):
        for old in (files.failure, files.log):  # they must not explain a process that never began
            old.unlink(missing_ok=True)
    outcome = worker.run(job, observer)
    store.shorten_log(files.log)
    if outcome.code == StorageError.exit_code:
        raise StorageError(
            f"The disk is full or not writable: records below {files.root} could not be written.",
            "Free some space and run the same command again; measured results are kept.",
        )
    if files.failure.is_file() and outcome.limit_s is None:
        return store.load(files.failure, LoadFailure, "make load")
    if outcome.code == 0 and outcome.limit_s is None and not outcome.absent:
        return None
    last_words = store.tail(files.log) or store.tail(worker.log)
    error, hint = explain_end(outcome, job.load.backend, job.load.max_batch, last_words)
    return save_failure(job, files, error, hint, outcome.phase, last_words)


@dataclass(frozen=True)
class LoadWatcher:
    """Shows the phase of the running load case, and reads the energy counter around replications."""

    label: str
    progress: RunProgress
    meter: ReplicationMeter | None = None
    """Of a GPU that counts its energy."""

    def started(self, pid: int) -> None:
        """The process has begun."""

    def entered(self, phase: str) -> None:
        """The process has entered a phase. The counter is read first: showing a phase takes longer."""
        if self.meter is not None:
            self.meter.entered(phase)
        self.progress.running(self.label, phase)
