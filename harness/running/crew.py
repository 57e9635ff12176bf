"""Everything that lives as long as a run: a worker per backend, the monitor, the progress display, running.json."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.core.jobs import Job
from harness.core.layout import Models, Results
from harness.core.schemas import Failed, Measured, Plan
from harness.measure.launcher import Code, Worker
from harness.measure.typical import batch_ns, batches
from harness.planning.exports import export_files
from harness.planning.schedule import Turn
from harness.planning.settings import threads_of
from harness.render.progress import RunProgress
from harness.running.monitoring import Monitor
from harness.running.presence import Presence
from harness.running.turn import measure_turn


@dataclass(frozen=True)
class _Watcher:
    """Passes on what a worker says about the running case."""

    job: Job
    label: str
    progress: RunProgress
    monitor: Monitor

    def started(self, pid: int) -> None:
        self.monitor.watch(self.job, pid)

    def entered(self, phase: str) -> None:
        self.monitor.phase(phase)
        self.progress.running(self.label, phase)


class Crew:
    """Measures turns of a plan; a context manager that ends every process it started.

    interpreters: by backend, for those whose libraries this Python does not have.
    code: the state of the user's code that is measured, where that is not the current folder's; label: its name.
    beside: another crew that is at work already, whose monitor, progress display and running.json this one shares.
    """

    def __init__(
        self,
        plan: Plan,
        models: Models,
        results: Results,
        threads: int,
        turns: int,
        fork: bool,
        interpreters: Mapping[str, Path],
        *,
        code: Code | None = None,
        label: str = "",
        beside: Crew | None = None,
    ) -> None:
        self._plan = plan
        self._models = models
        self._results = results
        self._threads = threads
        self._fork = fork
        self._interpreters = interpreters
        self._code = code
        self._label = f"  {label}" if label else ""
        self._beside = beside
        self._workers: dict[tuple[str, int], Worker] = {}
        self._stack = ExitStack()
        self._monitor: Monitor
        self._presence: Presence
        self.progress: RunProgress = RunProgress(turns) if beside is None else beside.progress

    def __enter__(self) -> Self:
        if self._beside is not None:
            self._monitor, self._presence = self._beside._monitor, self._beside._presence
            return self
        self._monitor = Monitor(self._results.worker_log("monitor"), self._plan.device)
        self._stack.callback(self._monitor.close)
        self._presence = Presence(self._results, self._plan.plan_id)
        self._stack.callback(self._presence.close)
        self._stack.enter_context(self.progress)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def measure(self, turn: Turn) -> Measured | Failed:
        """Measure one turn and show how it ended."""
        number, case = turn
        job = Job(
            case=case,
            round=number,
            settings_id=self._plan.settings_id,
            measurement=self._plan.measurement,
            threads=threads_of(case, self._threads),
            results=str(self._results.root),
            models=str(self._models.root),
            export=str(export_files(case.slug, self._results, self._models).record),
            engines=self._plan.engines,
        )
        self._presence.turn(job, self.progress.done, self.progress.total)
        label = f"round {number}  {case.case_id}{self._label}"
        watcher = _Watcher(job, label, self.progress, self._monitor)
        record = measure_turn(job, self._worker(job), self._results, watcher)
        self._monitor.end()
        self.progress.finished(label, _in_words(record))
        return record

    def renew(self) -> None:
        """End the workers: what the layout of one server's memory brings to all its cases ends with it."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def _worker(self, job: Job) -> Worker:
        """One for each number of threads: thread pools take theirs when a library is imported."""
        backend, key = job.case.backend, (job.case.backend, job.threads)
        if key not in self._workers:
            name = backend if job.threads == self._threads else f"{backend}-{job.threads}"
            log, interpreter = self._results.worker_log(name), self._interpreters.get(backend)
            self._workers[key] = Worker(backend, job.threads, log, self._fork, interpreter, self._code)
            self._stack.callback(self._workers[key].close)
        return self._workers[key]


def _in_words(record: Measured | Failed) -> str:
    if isinstance(record, Failed):
        return f"FAILED in {record.phase}: {record.error}"
    steady = "" if record.steady else ", not steady"
    return f"{batch_ns(record) / 1e6:.3g} ms  n={batches(record)}, {record.stop}{steady}"
