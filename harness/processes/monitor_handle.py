"""The monitor's process, as a stage starts it, sends it messages and ends it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

from harness.core import cli
from harness.core.protocol import End, Message, Phase, TurnJob, Watch
from harness.core.safe_files import open_to_write
from harness.core.schemas import Device
from harness.core.store import translate_storage_errors

START_S = 60.0
"""For the monitor's imports from a cold disk."""

LAST_RECORD_S = 30.0
"""For the monitor's last record on a slow disk; a monitor that takes longer is stopped or hangs."""


class Monitor:
    """A monitor process. Its records are additional evidence: without it no sample is lost."""

    def __init__(self, log: Path, device: Device = "cpu") -> None:
        with translate_storage_errors(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(open_to_write(log), "wb")
        with file:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, fixed words
                [sys.executable, "-m", "harness.processes.monitor", "--device", device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        self._asked = False
        if self._process.stdin is not None:
            # A monitor that is stopped reads nothing: a full pipe must not hold up the run.
            os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until it can watch: a short process may end while the monitor still starts. Returns also where the
        monitor has ended, or does not start in time."""
        if self._asked or self._process.stdout is None:
            return
        self._asked = True
        if select.select([self._process.stdout], [], [], START_S)[0]:
            self._process.stdout.readline()
        else:
            cli.warn(f"The monitor did not start within {START_S:g} s: the first records may miss what it sees.")

    def watch(self, job: TurnJob, pid: int, record: Path | None = None) -> None:
        """The process of a job has begun. record: path of its record, if not beside the samples of its round."""
        path = None if record is None else str(record)
        case_id = job.case.case_id
        self._send(
            Watch(
                pid=pid, case_id=case_id, round=job.round, settings_id=job.settings_id, results=job.results, record=path
            )
        )

    def phase(self, name: str) -> None:
        """The process has entered a phase."""
        self._send(Phase(phase=name))

    def end(self) -> None:
        """The process has ended."""
        self._send(End())

    def close(self) -> None:
        """End the monitor after its last record; kill it where it does not end in time."""
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

    def _send(self, message: Message) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(message.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, BlockingIOError):
            # `aggregate` then reports that no monitor watched; the samples are complete.
            return
