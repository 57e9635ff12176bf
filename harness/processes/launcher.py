"""The run stage's side of a worker: starts it, sends it jobs, waits without spinning, ends it at the time limit."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from harness.core import store
from harness.core.host import orphans
from harness.core.protocol import (
    EVENT,
    AnyJob,
    Ended,
    Entered,
    Event,
    Ready,
    Started,
)
from harness.core.safe_files import open_to_write
from harness.timing.clock import now_ns

START_TIMEOUT_S = 300.0
"""Importing a large library from a cold disk can take minutes; a longer import hangs."""

IMPORT = "import"
"""The phase before the worker takes jobs."""

END_TIMEOUT_S = 30.0
"""For a worker to end the processes that its case left. A slower worker is stopped or hangs, and is killed."""


@dataclass(frozen=True)
class ProcessOutcome:
    """How the process of a case ended: exit code (negative: minus the signal) and last phase.

    limit_s: the time limit that ended it; None where none did. absent: modules that the backend requires and its
    interpreter lacks; no process was started then.
    """

    code: int
    phase: str
    limit_s: float | None = None
    absent: tuple[str, ...] = ()


class Observer(Protocol):
    """Receives the progress of the running case."""

    def started(self, pid: int) -> None:
        """The process of the case has begun."""

    def entered(self, phase: str) -> None:
        """The case has entered a phase."""


@dataclass(frozen=True)
class Code:
    """A state of the user's code: the root of relative model paths, and Python's search path with Inferometer's own
    modules first."""

    root: Path
    search_path: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process of this state. The current folder is not searched: it may hold another harness."""
        return {"PYTHONPATH": os.pathsep.join(self.search_path), "PYTHONSAFEPATH": "1"}


class Worker:
    """One worker process. With fork=False each job gets a newly started interpreter instead of a fork.

    interpreter: the Python that has the backend's libraries, if not this one.
    code: the state of the user's code that it loads, if not the current folder's.
    log: receives the output before a case has a log of its own.
    variables: of its environment, besides those of this process.
    """

    def __init__(
        self,
        backend: str,
        threads: int,
        log: Path,
        fork: bool = True,
        interpreter: Path | None = None,
        code: Code | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._command = [str(interpreter or sys.executable), "-m", "harness.processes.worker", "--backend", backend]
        self._fork = fork
        self.log = log
        self._environment = {**process_environment(threads, own=interpreter is None), **variables}
        self._folder = None if code is None else code.root
        if code is not None:
            self._environment |= code.environment
        self._absent: tuple[str, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._case_pid: int | None = None

    def run(self, job: AnyJob, observer: Observer) -> ProcessOutcome:
        """Measure one case in a new process; returns when it and all processes that it started have ended."""
        orphans.adopt_descendants()
        others = orphans.children()
        outcome = self._run(job, observer)
        if self._process is None:
            # The worker has ended too, so this process has inherited the processes that were left.
            orphans.kill_children(keep=others)
        return outcome

    def start(self) -> None:
        """Start it now, unless it runs; else its first job does. A worker that does not start says why at that job."""
        if self._process is None:
            try:
                self._start()
            except EOFError:
                self._reap()
            except TimeoutError:
                self.close()

    def close(self) -> None:
        """End the worker, its running case, and all processes that they started."""
        if self._process is None:
            return
        others = orphans.children() - {self._process.pid}
        if self._case_pid is not None:
            self._kill()
        self._process.terminate()
        self._reap()
        orphans.kill_children(keep=others)

    def _run(self, job: AnyJob, observer: Observer) -> ProcessOutcome:
        try:
            if self._process is None:
                self._start()
            if self._absent:
                return ProcessOutcome(code=0, phase="start", absent=self._absent)
            self._send(job)
        except (BrokenPipeError, EOFError):
            return ProcessOutcome(code=self._reap() or 1, phase="start")
        except TimeoutError:
            self.close()
            return ProcessOutcome(code=1, phase=IMPORT, limit_s=START_TIMEOUT_S)
        return self._follow(job.measurement.timeout_s, observer)

    def _start(self) -> None:
        self._buffer = b""
        with store.translate_storage_errors(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            log = os.fdopen(open_to_write(self.log), "wb")
        with log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, fixed words
                # A worker that forks guards its cases; without a fork there is no process between case and run stage.
                self._command if self._fork else orphans.guarded([*self._command, "--once"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                # Its own session: Ctrl-C on the terminal reaches only the run stage, which then ends its workers.
                start_new_session=True,
            )
        ready = self._next(START_TIMEOUT_S)
        if not isinstance(ready, Ready):
            raise TimeoutError(f"the worker's libraries were not imported within {START_TIMEOUT_S:g} s")
        self._absent = ready.absent

    def _send(self, job: AnyJob) -> None:
        pipe = self._running().stdin
        if pipe is not None:
            pipe.write(job.model_dump_json().encode() + b"\n")
            pipe.flush()

    def _follow(self, timeout_s: float, observer: Observer) -> ProcessOutcome:
        deadline = now_ns() + int(timeout_s * 1e9)
        phase, limit_s = "start", None
        try:
            while True:
                event = self._next(END_TIMEOUT_S if limit_s else max(0.0, (deadline - now_ns()) / 1e9))
                if event is None and limit_s:
                    self.close()
                    return ProcessOutcome(code=1, phase=phase, limit_s=limit_s)
                if event is None:
                    self._kill()
                    limit_s = timeout_s
                elif isinstance(event, Started):
                    self._case_pid = event.pid
                    observer.started(event.pid)
                elif isinstance(event, Entered):
                    phase = event.phase
                    observer.entered(phase)
                elif isinstance(event, Ended):
                    self._case_pid = None
                    return ProcessOutcome(code=event.code, phase=phase, limit_s=limit_s)
        except EOFError:
            # Without a fork, the process that ended is that of the case.
            return ProcessOutcome(code=self._reap(), phase=phase, limit_s=limit_s)

    def _kill(self) -> None:
        """End the running case and all processes that it started."""
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
        """The next event; None at the time limit. Raises EOFError when the worker has ended."""
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
    """Variables that give every thread pool the same number of threads, but OpenBLAS (NumPy) only one.

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
        # Jobs and answers are UTF-8, whatever the terminal's encoding.
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), inherited])),
    }
