"""Units on this host, one after the other, each in a process of its own. Needs nothing installed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from harness.core import store
from harness.core.host import orphans
from harness.core.schemas import UnitRequest
from harness.core.text import one_line
from harness.runners.runner import EndedAttempt, Requirements, Runner, archive_in, fill


class LocalRunner(Runner):
    """One unit at a time on this host."""

    name = "local"

    def __init__(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="inferometer-runner-")
        self._queue: deque[tuple[UnitRequest, Path]] = deque()
        self._running: subprocess.Popen[bytes] | None = None

    def submit(self, request: UnitRequest, files: Mapping[str, Path], requirements: Requirements) -> None:
        """Queue it; this host has what it has, and a case that cannot run says so."""
        del requirements
        self._queue.append((request, fill(Path(self._root.name), request, files)))

    def next_ended(self) -> EndedAttempt:
        """Run the first of the queue to its end."""
        request, folder = self._queue.popleft()
        command = [sys.executable, "-m", "harness.runners.execution", str(folder)]
        with (folder / "worker.log").open("wb") as log:
            self._running = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603
            code = self._running.wait()
        self._running = None
        packed = archive_in(folder, request)
        lost = None if packed is not None else _reason(code, folder / "worker.log")
        return EndedAttempt(request.unit_id, request.attempt, packed, lost)

    def close(self) -> None:
        """End the running unit."""
        if self._running is not None:
            orphans.end_group(self._running.pid)
            self._running.wait()
        self._root.cleanup()


def _reason(code: int, log: Path) -> str:
    if code < 0:
        return f"its worker was killed (signal {-code}, {signal.Signals(-code).name})"
    last = (store.tail(log).strip().splitlines() or ["no message"])[-1]
    return f"its worker ended with exit code {code}: {one_line(last)}"
