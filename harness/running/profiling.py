"""One level of one case, profiled by a fresh process that does nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from harness.core import cli, store
from harness.core.errors import CaseError, StorageError
from harness.core.jobs import Job
from harness.core.schemas import Record
from harness.measure.launcher import process_environment

Level = Literal["count", "memory", "parts", "tokenising"]
"""`count`: what needs no measuring; `memory`: allocations of one pass; `parts`: layers and operators; `tokenising`:
what texts cost before the model sees them."""


class ProfileJob(Record):
    """What a process is to profile. runs: inferences that the parts are timed over."""

    level: Level
    job: Job
    runs: Annotated[int, Field(ge=1)]

    @property
    def results(self) -> Path:
        """The results folder."""
        return Path(self.job.results)

    @property
    def models(self) -> Path:
        """The models folder."""
        return Path(self.job.models)


def profile_in_a_process(asked: ProfileJob, log: Path, interpreter: Path | None = None) -> bytes:
    """The answer of a fresh process, as JSON. Raises CaseError where it gives none; its log then stays.

    interpreter: the Python that has the needed libraries, where it is not this one.
    """
    with store.translate_storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        handle = log.open("wb")
    with handle:
        process = subprocess.Popen(  # noqa: S603 - our own module, fixed words
            [str(interpreter or sys.executable), "-m", "harness.profile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=handle,
            env=process_environment(asked.job.threads, own=interpreter is None),
            # A session of its own, so that compilers that it starts end with it.
            start_new_session=True,
        )
        line = asked.model_dump_json().encode() + b"\n"
        try:
            answer, _ = process.communicate(line, timeout=asked.job.measurement.timeout_s)
        except subprocess.TimeoutExpired:
            answer = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode == StorageError.exit_code:
        raise StorageError(
            f"The disk is full or not writable: {log.parent} could not be written.",
            "Free some space and run the same command again; what was profiled is kept.",
        )
    if answer is None or process.returncode != 0:
        raise CaseError(*_why(answer is None, process.returncode, asked, log))
    log.unlink()
    return answer


def _why(timed_out: bool, code: int, asked: ProfileJob, log: Path) -> tuple[str, str]:
    """(problem, hint) for a process that gave no answer."""
    if timed_out:
        limit = asked.job.measurement.timeout_s
        return f"Ended at the time limit of {limit:g} s.", "Raise `measurement.timeout_s` in the configuration."
    if told := cli.told(store.tail(log)):
        return told
    ended = f"Crashed with signal {-code}." if code < 0 else f"Ended with exit code {code}."
    lines = store.tail(log).splitlines()
    last = f" {lines[-1].strip()}" if lines else ""
    return ended + last, f"The whole story stands in {log}."
