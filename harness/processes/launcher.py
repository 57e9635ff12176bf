"""The run stage's side of a worker: start it, hand it jobs, wait without spinning, end it at the time limit."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.core import store
from harness.core.host import orphans
from harness.core.protocol import (
    EVENT,
    Ended,
    Entered,
    Event,
    Job,
    Ready,
    Started,
)
from harness.core.safe_files import open_to_write
from harness.timing.clock import now_ns

START_TIMEOUT_S = 300.0
"""Importing a large library from a cold disk can take minutes; longer means that it hangs."""

END_TIMEOUT_S = 30.0
"""For a worker to end what its case left behind. One that takes longer is stopped or hangs, and is killed."""


@dataclass(frozen=True)
class Outcome:
    """How the process of a case ended: exit code (negative: minus the signal), its last phase, whether by our limit.

    absent: modules that the backend requires and its interpreter lacks; then no process was started.
    """

    code: int
    phase: str
    timed_out: bool = False
    absent: tuple[str, ...] = ()


class Observer(Protocol):
    """Whoever wants to know how the running case gets on."""

    def started(self, pid: int) -> None:
        """Its process has begun."""

    def entered(self, phase: str) -> None:
        """It has come to a phase."""


@dataclass(frozen=True)
class Code:
    """A state of the user's code: the folder that relative paths of models start from, and where Python looks for
    modules, Inferometer's own first."""

    root: Path
    search_path: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """What a process of this state gets; without the current folder in front, which may hold another harness."""
        return {"PYTHONPATH": os.pathsep.join(self.search_path), "PYTHONSAFEPATH": "1"}


class Worker:
    """One worker process. With fork=False each job gets a freshly started interpreter instead of a fork.

    interpreter: the Python that has the backend's libraries, where it is not this one.
    code: the state of the user's code that it loads, where that is not the current folder's.
    log: what it prints before a case has a log of its own.
    """

    def __init__(
        self,
        backend: str,
        threads: int,
        log: Path,
        fork: bool = True,
        interpreter: Path | None = None,
        code: Code | None = None,
    ) -> None:
        self._command = [str(interpreter or sys.executable), "-m", "harness.processes.worker", "--backend", backend]
        self._fork = fork
        self.log = log
        self._environment = process_environment(threads, own=interpreter is None)
        self._folder = None if code is None else code.root
        if code is not None:
            self._environment |= code.environment
        self._absent: tuple[str, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._case_pid: int | None = None

    def run(self, job: Job, observer: Observer) -> Outcome:
        """Measure one case in a fresh process; returns when that and all that it started have ended."""
        orphans.adopt()
        others = orphans.children()
        outcome = self._run(job, observer)
        if self._process is None:
            # Its worker is gone as well, so that what was left came to this process.
            orphans.sweep(keep=others)
        return outcome

    def close(self) -> None:
        """End the worker and the case that it may be running, with all that they started."""
        if self._process is None:
            return
        others = orphans.children() - {self._process.pid}
        if self._case_pid is not None:
            self._kill()
        self._process.terminate()
        self._reap()
        orphans.sweep(keep=others)

    def _run(self, job: Job, observer: Observer) -> Outcome:
        try:
            if self._process is None:
                self._start()
            if self._absent:
                return Outcome(code=0, phase="start", absent=self._absent)
            self._send(job)
        except (BrokenPipeError, EOFError):
            return Outcome(code=self._reap() or 1, phase="start")
        except TimeoutError:
            self.close()
            return Outcome(code=1, phase="start", timed_out=True)
        return self._follow(job.measurement.timeout_s, observer)

    def _start(self) -> None:
        self._buffer = b""
        with store.translate_storage_errors(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            log = os.fdopen(open_to_write(self.log), "wb")
        with log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, fixed words
                # A worker that forks guards its cases; without the fork there is no process between them and this one.
                self._command if self._fork else orphans.guarded([*self._command, "--once"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                # Its own session: Ctrl-C on the terminal reaches the run stage alone, which then ends its workers.
                start_new_session=True,
            )
        ready = self._next(START_TIMEOUT_S)
        if not isinstance(ready, Ready):
            raise TimeoutError(f"the worker's libraries were not imported within {START_TIMEOUT_S:g} s")
        self._absent = ready.absent

    def _send(self, job: Job) -> None:
        pipe = self._running().stdin
        if pipe is not None:
            pipe.write(job.model_dump_json().encode() + b"\n")
            pipe.flush()

    def _follow(self, timeout_s: float, observer: Observer) -> Outcome:
        deadline = now_ns() + int(timeout_s * 1e9)
        phase, timed_out = "start", False
        try:
            while True:
                event = self._next(END_TIMEOUT_S if timed_out else max(0.0, (deadline - now_ns()) / 1e9))
                if event is None and timed_out:
                    self.close()
                    return Outcome(code=1, phase=phase, timed_out=True)
                if event is None:
                    self._kill()
                    timed_out = True
                elif isinstance(event, Started):
                    self._case_pid = event.pid
                    observer.started(event.pid)
                elif isinstance(event, Entered):
                    phase = event.phase
                    observer.entered(phase)
                elif isinstance(event, Ended):
                    self._case_pid = None
                    return Outcome(code=event.code, phase=phase, timed_out=timed_out)
        except EOFError:
            # Without the fork, the process that ends is the case's own.
            return Outcome(code=self._reap(), phase=phase, timed_out=timed_out)

    def _kill(self) -> None:
        """End the running case and all that it started."""
        orphans.end_group(self._running().pid if self._case_pid is None else self._case_pid)

    def _reap(self) -> int:
        process = self._running()
        try:
            code = process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            orphans.end_group(process.pid)
            code = process.wait()
        self._process, self._case_pid = None, None
        return code

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the worker has not been started")
        return self._process

    def _next(self, timeout_s: float | None) -> Event | None:
        """The next event; None when the time is over. Raises EOFError when the worker is gone."""
        pipe = self._running().stdout
        if pipe is None:
            raise EOFError
        descriptor = pipe.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(timeout_s):
                    return None
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    raise EOFError
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return EVENT.validate_json(line)


def process_environment(threads: int, own: bool) -> dict[str, str]:
    """Every thread pool that reads the environment gets the same number; OpenBLAS (NumPy) is kept out of the way.

    own: False for another interpreter, which must not find packages that were built for this one.
    """
    inherited = os.environ.get("PYTHONPATH") if own else None
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        # Jobs and answers are UTF-8, whatever the terminal is.
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), inherited])),
    }
