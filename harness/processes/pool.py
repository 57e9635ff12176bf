"""The worker pool of a run, and one turn of it: a case in a fresh process, its record or its failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from harness.aggregation.batch_times import batch_count, batch_ns
from harness.backends import backend_info
from harness.core import cli, store
from harness.core.errors import FormatError, InferometerError, StorageError
from harness.core.layout import Models, Results
from harness.core.protocol import CaseJob, GenerationCaseJob, TurnJob
from harness.core.schemas import Failed, Generated, GenerationCase, Measured, Plan
from harness.core.timestamps import utc_now
from harness.core.units import duration
from harness.planning.block_settings import threads_of
from harness.planning.exports import ExportReasons, Exports, export_files
from harness.planning.schedule import GenerationTurn, Turn
from harness.processes.launcher import IMPORT, Code, Observer, ProcessOutcome, Worker
from harness.processes.monitor_handle import Monitor
from harness.processes.presence import Presence
from harness.processes.run_progress import RunProgress
from harness.statistics.estimators import median

T = TypeVar("T", Measured, Generated)


def measure_turn(job: CaseJob, worker: Worker, results: Results, observer: Observer) -> Measured | Failed:
    """Measure one case in one round. Raises StorageError when its record cannot be written."""
    return _measure(job, worker, results, observer, store.load_raw)


def generate_turn(task: GenerationCaseJob, worker: Worker, results: Results, observer: Observer) -> Generated | Failed:
    """As measure_turn, for a case of generation. results: Results.of_generation of a folder."""
    return _measure(task, worker, results, observer, store.load_generated)


def _measure(
    job: TurnJob, worker: Worker, results: Results, observer: Observer, load: Callable[[Path], T | Failed]
) -> T | Failed:
    case_id = job.case.case_id
    raw, log = results.raw_file(case_id, job.round), results.log_file(case_id, job.round)
    with store.translate_storage_errors(raw):
        # Also the log of an earlier try: it must not explain a process that never began.
        for old in (raw, log, results.usage_file(case_id, job.round)):
            old.unlink(missing_ok=True)
    outcome = worker.run(job, observer)
    store.shorten_log(log)
    if outcome.code == StorageError.exit_code:
        raise StorageError(
            f"The disk is full or not writable: {raw} could not be written.",
            "Free some space and run the same command again; measured results are kept.",
        )
    if raw.is_file() and outcome.limit_s is None:
        return load(raw)
    last_words = store.tail(log) or store.tail(worker.log)
    error, hint = explain_end(outcome, job.case.backend, job.case.batch_size, last_words)
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


def explain_end(outcome: ProcessOutcome, backend: str, batch_size: int, last_words: str) -> tuple[str, str]:
    """(error, hint) for a process that left no record."""
    if outcome.absent:
        return _explain_absent_library(outcome.absent, backend)
    if outcome.limit_s is not None:
        remedy = "Raise `measurement.timeout_s` in the configuration, or choose a smaller batch."
        if outcome.phase == IMPORT:
            remedy = "Free memory, or stop what reads the disk: the libraries could not be read in that time."
        return f"Ended at the time limit of {outcome.limit_s:g} s.", remedy
    if outcome.code < 0:
        return _explain_signal(-outcome.code, batch_size)
    if error := cli.last_error(last_words):
        return error
    return f"Ended with exit code {outcome.code} and no result.", "The log's tail below may say why."


def _explain_signal(signal: int, batch_size: int) -> tuple[str, str]:
    if signal == 9:
        return (
            "Killed by the system (signal 9), most likely out of memory.",
            f"Try a smaller batch than {batch_size} (BATCHES=…), or free memory.",
        )
    if signal == 4:
        return (
            "Crashed with signal 4: a native library uses an instruction that this machine does not run.",
            "Build or install that library for this machine; for llama.cpp docs/generation.md names the options.",
        )
    return (
        f"Crashed with signal {signal}.",
        "This is a fault in a native library: try another version of it; the log's tail may name the operator.",
    )


def _explain_absent_library(absent: Sequence[str], backend: str) -> tuple[str, str]:
    """(error, hint) for a backend whose libraries its interpreter lacks."""
    extra = backend_info(backend).extra
    packages = " ".join(absent) if extra is None else f"'inferometer[{extra}]'"
    return (
        f"{', '.join(absent)} is not installed.",
        f"Install it: pip install {packages}; or name a Python that has it: BACKEND_PYTHONS=<backend>=<path>.",
    )


@dataclass(frozen=True)
class _Watcher:
    """Passes events of the running case to the monitor and the progress display."""

    job: TurnJob
    label: str
    progress: RunProgress
    monitor: Monitor
    record: Path | None = None

    def started(self, pid: int) -> None:
        self.monitor.watch(self.job, pid, self.record)

    def entered(self, phase: str) -> None:
        self.monitor.phase(phase)
        self.progress.running(self.label, phase)


class WorkerPool:
    """A worker pool that measures turns of a plan; a context manager that ends every process it started.

    interpreters: by backend, for backends whose libraries this Python does not have.
    code: the state of the user's code that is measured, if not the current folder's; label: its name.
    beside: another pool at work, whose monitor, progress display and running.json this pool shares.
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
        beside: WorkerPool | None = None,
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
        """Measure one turn and show its result."""
        number, case = turn
        job = CaseJob(
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
        self._presence.turn(job.case.case_id, job.round, self.progress.done, self.progress.total)
        label = f"round {number}  {case.case_id}{self._label}"
        watcher = _Watcher(job, label, self.progress, self._monitor)
        self._monitor.ready()
        record = measure_turn(job, self._worker(job), self._results, watcher)
        self._monitor.end()
        self.progress.finished(label, _record_text(record))
        return record

    def generate(self, turn: tuple[int, GenerationCase]) -> Generated | Failed:
        """As measure, for a turn of generation."""
        number, case = turn
        setting = backend_info(case.backend).decoder_setting(case.device, case.setting)
        task = GenerationCaseJob(
            case=case,
            round=number,
            settings_id=self._plan.settings_id,
            measurement=self._plan.measurement,
            threads=setting.threads or self._threads,
            results=str(self._results.root),
            models=str(self._models.root),
            export=str(self._results.export(case.slug).generation),
            options=self._plan.generation,
        )
        self._presence.turn(task.case.case_id, task.round, self.progress.done, self.progress.total)
        label = f"round {number}  {case.case_id}"
        results = self._results.of_generation
        watcher = _Watcher(task, label, self.progress, self._monitor, results.usage_file(case.case_id, number))
        self._monitor.ready()
        record = generate_turn(task, self._worker(task), results, watcher)
        self._monitor.end()
        self.progress.finished(label, _generated_text(record))
        return record

    def renew(self) -> None:
        """End the workers, so that the next cases do not share the memory layout of the same server."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def _worker(self, job: TurnJob) -> Worker:
        """A worker for each backend and number of threads: thread pools read the number when a library is imported."""
        backend, key = job.case.backend, (job.case.backend, job.threads)
        if key not in self._workers:
            name = backend if job.threads == self._threads else f"{backend}-{job.threads}"
            log, interpreter = self._results.worker_log(name), self._interpreters.get(backend)
            self._workers[key] = Worker(backend, job.threads, log, self._fork, interpreter, self._code)
            self._stack.callback(self._workers[key].close)
        return self._workers[key]


def _record_text(record: Measured | Failed) -> str:
    if isinstance(record, Failed):
        return f"skipped: {record.error}" if record.refused else f"FAILED in {record.phase}: {record.error}"
    steady = "" if record.steady else ", not steady"
    return f"{duration(batch_ns(record))}  n={batch_count(record)}, {record.stop}{steady}"


def _generated_text(record: Generated | Failed) -> str:
    if isinstance(record, Failed):
        return f"FAILED in {record.phase}: {record.error}"
    first = median([request.token_ns[0] - request.start_ns for request in record.requests])
    steady = "" if record.steady else ", not steady"
    if len(record.requests[0].token_ns) == 1:
        return f"first token {duration(first)}  n={len(record.requests)}{steady}"
    step = median(record.latency_ns)
    return f"first token {duration(first)}, then {duration(step)}  n={len(record.requests)}{steady}"


def split_off_unexported(plan: Plan, turns: Sequence[Turn], exports: Exports, results: Results) -> list[Turn]:
    """The turns that can be measured. Every other turn gets a failed record, and its model a warning.

    A record measured with this plan's settings stays: it counts again once the same export exists again.
    """
    reasons = ExportReasons()
    for model, error in exports.absent.items():
        cli.warn(reasons.text(f"{model} is not measured", error))
    measurable = []
    reported: set[tuple[str, str]] = set()
    for turn in turns:
        case = turn[1]
        reason = exports.reason_against(case)
        if reason is None:
            measurable.append(turn)
            continue
        if case.model not in exports.absent and (case.model, reason.problem) not in reported:
            reported.add((case.model, reason.problem))
            cli.warn(reasons.text(f"{case.model} is not measured where its ONNX file is needed", reason))
        save_unexported(plan, turn, reason, results, store.load_raw)
    return measurable


def save_unexported(
    plan: Plan,
    turn: Turn | GenerationTurn,
    reason: InferometerError,
    results: Results,
    load: Callable[[Path], Measured | Generated | Failed],
) -> None:
    """Save the failure of a turn that has no export. A record that was measured with the plan's settings stays.

    results: of generation for its turns. load: reads a raw record of the turn's kind.
    """
    number, case = turn
    path = results.raw_file(case.case_id, number)
    try:
        record = load(path) if path.is_file() else None
    except FormatError:
        record = None
    if record is not None and not isinstance(record, Failed) and record.settings_id == plan.settings_id:
        return
    failure = Failed(
        case_id=case.case_id,
        round=number,
        settings_id=plan.settings_id,
        started_at=utc_now(),
        environment_id=None,
        error=reason.problem,
        hint=reason.hint,
        phase="export",
        stderr_tail="",
    )
    store.save_raw(path, failure)
