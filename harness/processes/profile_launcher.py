"""Profiles one level of one case in a new process that does nothing else."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from harness.core import cli, store
from harness.core.errors import CaseError, FormatError, StorageError
from harness.core.host import orphans
from harness.core.layout import Results
from harness.core.protocol import (
    EVENT,
    CaseJob,
    Entered,
    GenerationCaseJob,
    Started,
    TurnJob,
)
from harness.core.safe_files import open_to_write
from harness.core.schemas import Record, Usage
from harness.core.schemas.profile_record import GenerationPhase, MemoryTimeline, ModelProfile, PartsProfile
from harness.core.text import portable
from harness.processes.launcher import Observer, process_environment
from harness.processes.monitor_handle import Monitor
from harness.reporting.charts.profile_charts import allocations
from harness.reporting.tables.profile_tables import memory_blocks
from harness.reporting.writers.markdown import blocks_text
from harness.timing.clock import now_ns

Level = Literal["count", "memory", "parts", "tokenising"]
"""`count`: figures without a measurement; `memory`: allocations of one pass; `parts`: layers and operators;
`tokenising`: preparation of texts before the model."""


class ProfileJob(Record):
    """The job of a profiling process. runs: inferences over which the parts are timed.

    phase: of generation; the job is then a GenerationCaseJob, and its case_id is the phase's (profiling/phases.py).
    """

    level: Level
    job: CaseJob | GenerationCaseJob
    runs: Annotated[int, Field(ge=1)]
    phase: GenerationPhase | None = None

    @property
    def results(self) -> Path:
        """The results folder."""
        return Path(self.job.results)


@dataclass(frozen=True)
class _ProfileWatcher:
    """Passes events of a profiling process to a monitor. record: path of the monitor's record."""

    job: TurnJob
    monitor: Monitor
    record: Path

    def started(self, pid: int) -> None:
        self.monitor.watch(self.job, pid, self.record)

    def entered(self, phase: str) -> None:
        self.monitor.phase(phase)


def profile_with_monitor(profile_job: ProfileJob, log: Path, interpreter: Path | None) -> tuple[bytes, Usage | None]:
    """(answer of a new process, the monitor's record or None without one); see profile_in_a_process.

    The monitor is for this process only: when it has ended, its record is complete.
    """
    results = Results(profile_job.results)
    record = results.profile_usage(profile_job.job.case.case_id, profile_job.job.round)
    monitor = Monitor(results.worker_log("profile-monitor"), profile_job.job.case.device)
    try:
        monitor.ready()
        answer = profile_in_a_process(profile_job, log, interpreter, _ProfileWatcher(profile_job.job, monitor, record))
        monitor.end()
    finally:
        monitor.close()
    try:
        return answer, store.load(record, Usage, "make profile") if record.is_file() else None
    except FormatError as error:
        cli.warn(f"{error.problem} {error.hint}")
        return answer, None


def profile_in_a_process(
    profile_job: ProfileJob, log: Path, interpreter: Path | None = None, observer: Observer | None = None
) -> bytes:
    """The answer of a new process, as JSON. Raises CaseError where it gives none; its log then stays.

    interpreter: the Python that has the needed libraries, if not this one. observer: receives the start of the process
    and its phases.
    """
    with store.translate_storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        handle = os.fdopen(open_to_write(log), "wb")
    orphans.adopt_descendants()
    others = orphans.children()
    with handle:
        process = subprocess.Popen(  # noqa: S603 - our own module, fixed words
            orphans.guarded(
                [str(interpreter or sys.executable), "-m", "harness.processes.profile_worker"], announced=True
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=handle,
            env=process_environment(profile_job.job.threads, own=interpreter is None),
            # Ctrl-C on the terminal reaches only this stage; it then ends the guard, which ends the other processes.
            start_new_session=True,
        )
        try:
            answer = _answer(process, profile_job, observer)
        finally:
            if process.poll() is None:
                orphans.end_group(process.pid)
            process.wait()
            orphans.kill_children(keep=others)
            if process.stdout is not None:
                process.stdout.close()
    if process.returncode == StorageError.exit_code:
        raise StorageError(
            f"The disk is full or not writable: {log.parent} could not be written.",
            "Free some space and run the same command again; profiles are kept.",
        )
    if answer is None or process.returncode != 0:
        raise CaseError(*_missing_answer(answer is None, process.returncode, profile_job, log))
    log.unlink()
    return answer


def _answer(process: subprocess.Popen[bytes], profile_job: ProfileJob, observer: Observer | None) -> bytes | None:
    """Send a process its job and read its output: the last line that is no event; None at the time limit.

    Returns when the process has ended, or has to be ended.
    """
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process was started without pipes")
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(profile_job.model_dump_json().encode() + b"\n")
        process.stdin.close()
    deadline = now_ns() + int(profile_job.job.measurement.timeout_s * 1e9)
    answer = buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, (deadline - now_ns()) / 1e9)):
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            *lines, buffer = (buffer + (chunk or b"\n")).split(b"\n")
            for line in filter(None, lines):
                event = _event(line)
                answer = line if event is None else answer
                if isinstance(event, Started) and observer is not None:
                    observer.started(event.pid)
                if isinstance(event, Entered) and observer is not None:
                    observer.entered(event.phase)
            if not chunk:
                return answer if _ended(process, deadline) else None
    return None


def _ended(process: subprocess.Popen[bytes], deadline_ns: int) -> bool:
    try:
        process.wait(max(0.0, (deadline_ns - now_ns()) / 1e9))
    except subprocess.TimeoutExpired:
        return False
    return True


def _event(line: bytes) -> Started | Entered | None:
    try:
        event = EVENT.validate_json(line)
    except ValidationError:
        return None
    return event if isinstance(event, Started | Entered) else None


def _missing_answer(timed_out: bool, code: int, profile_job: ProfileJob, log: Path) -> tuple[str, str]:
    """(problem, hint) for a process that gave no answer."""
    if timed_out:
        limit = profile_job.job.measurement.timeout_s
        return f"Ended at the time limit of {limit:g} s.", "Raise `measurement.timeout_s` in the configuration."
    if error := cli.last_error(store.tail(log)):
        return portable(error[0]), portable(error[1])
    ended = f"Crashed with signal {-code}." if code < 0 else f"Ended with exit code {code}."
    lines = store.tail(log).splitlines()
    last = f" {lines[-1].strip()}" if lines else ""
    return ended + last, f"Full log: {log}."


def memory_of(results: Results, case_id: str) -> MemoryTimeline | None:
    """The record; None where the backend's library reports no allocations, or an older version profiled the case."""
    path = results.memory_profile(case_id)
    return store.load(path, MemoryTimeline, "make profile") if path.is_file() else None


def memory_text(results: Results, case_id: str) -> str:
    """The section for parts.md; empty without a record."""
    timeline = memory_of(results, case_id)
    chart = results.memory_chart(case_id)
    return "" if timeline is None else blocks_text(memory_blocks(timeline, chart.name if chart.is_file() else None))


def forget_usage(results: Results, case_id: str) -> None:
    """Remove the monitor's records of earlier repeats; an earlier profile may have had more repeats."""
    for path in results.profile(case_id).glob("*.usage.json"):
        with store.translate_storage_errors(path):
            path.unlink()


def memory_files(results: Results, case_id: str) -> tuple[str, ...]:
    """Draw the chart where the pass allocated something; returns the names of all files about memory."""
    timeline = memory_of(results, case_id)
    if timeline is None:
        return ()
    names = [results.memory_profile(case_id).name, *([timeline.snapshot] if timeline.snapshot else [])]
    if not timeline.at_ns:
        return tuple(names)
    from harness.reporting.charts.matplotlib_drawer import draw, image  # noqa: PLC0415 - other profiles have no chart

    figure, chart = draw(allocations(f"Memory in one pass: {case_id}", timeline)), results.memory_chart(case_id)
    store.save_bytes(chart, image(figure, "png"))
    store.save_bytes(chart.with_suffix(".svg"), image(figure, "svg"))
    return (*names, chart.name, chart.with_suffix(".svg").name)


def write_events(results: Results, model: ModelProfile, parts: PartsProfile | None, text: str) -> None:
    """Write the case's event file, so that `tensorboard --logdir results/profiles` shows one run per case. Does nothing
    where TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    from harness.reporting.writers.tensorboard import event_file  # noqa: PLC0415 - TensorBoard is no dependency

    store.save_bytes(results.profile_events(model.case_id), event_file(model, parts, text))
