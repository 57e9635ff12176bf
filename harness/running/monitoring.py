"""The run stage's side of the monitor: start it, tell it what runs, go on without it when it is gone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from harness.core import cli
from harness.core.jobs import Job
from harness.core.regular import open_to_write
from harness.core.schemas import Device
from harness.core.store import translate_storage_errors
from harness.core.watching import End, Message, Phase, Watch

LAST_RECORD_S = 30.0
"""For the monitor's last record on a slow disk; one that takes longer is stopped or hangs."""


class Monitor:
    """A monitor process. Its records are a witness beside the samples: without it nothing is lost but the witness."""

    def __init__(self, log: Path, device: Device = "cpu") -> None:
        with translate_storage_errors(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(open_to_write(log), "wb")
        with file:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, fixed words
                [sys.executable, "-m", "harness.monitor", "--device", device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        if self._process.stdin is not None:
            # A monitor that is stopped reads nothing: a full pipe must not hold up the run.
            os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until it can see: a process that is short is over before a monitor that just starts. No wait for one
        that ended instead."""
        if self._process.stdout is not None:
            self._process.stdout.readline()

    def watch(self, job: Job, pid: int, record: Path | None = None) -> None:
        """The process of a job has begun. record: where its record goes, if not beside the samples of its round."""
        path = None if record is None else str(record)
        case_id = job.case.case_id
        self._tell(
            Watch(
                pid=pid, case_id=case_id, round=job.round, settings_id=job.settings_id, results=job.results, record=path
            )
        )

    def phase(self, name: str) -> None:
        """It has come to a phase."""
        self._tell(Phase(phase=name))

    def end(self) -> None:
        """It has ended."""
        self._tell(End())

    def close(self) -> None:
        """End the monitor when it has written its last record; one that does not answer is killed."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._process.stdin.close()
        try:
            self._process.wait(LAST_RECORD_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            cli.warn(f"The monitor did not end within {LAST_RECORD_S:g} s and was killed: its last record is missing.")
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _tell(self, message: Message) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(message.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, BlockingIOError):
            # Aggregate then says that nobody watched; the samples themselves are unharmed.
            return
