"""Units through Slurm, by submitit (optional extra `slurm`): one exclusive job each, never requeued by Slurm.

The folder of the jobs must lie on a disk that the nodes share. submitit pickles only the name of the function and the
unit's folder; what a node measured comes back as a file.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import UnavailableError
from harness.core.schemas import UnitRequest
from harness.core.text import one_line
from harness.runners.execution import execute_in
from harness.runners.runner import EndedAttempt, Requirements, Runner, archive_in, fill

POLL_S = 0.5
QUEUE_POLL_S = 3.0
LIMIT_MIN = 12 * 60
"""Time limit of a job; a unit is some cases and all their rounds."""


class SlurmRunner(Runner):
    """folder: for requests, files and logs, on a shared disk. partition: of Slurm; empty for its default.

    cluster: `local` starts processes on this host instead. submitit would start all of them at once, so they wait here.
    """

    name = "slurm"

    def __init__(self, folder: Path, partition: str = "", cluster: Literal["slurm", "local"] = "slurm") -> None:
        try:
            submitit: Any = importlib.import_module("submitit")
        except ImportError:
            raise UnavailableError("submitit is not installed.", "pip install 'inferometer[slurm]'") from None
        self._folder, self._cluster = folder.resolve(), cluster
        try:
            self._executor = submitit.AutoExecutor(folder=self._folder / "jobs", cluster=cluster)
        except RuntimeError as error:
            raise UnavailableError(
                f"Slurm does not answer here: {one_line(str(error))}", "Run it on a host that has sbatch."
            ) from error
        self._refused: type[Exception] = submitit.core.utils.FailedJobError
        self._partition = partition
        self._waiting: deque[tuple[UnitRequest, Path, Requirements]] = deque()
        self._running: dict[Any, tuple[UnitRequest, Path]] = {}
        self._missing: set[Any] = set()

    def submit(self, request: UnitRequest, files: Mapping[str, Path], requirements: Requirements) -> None:
        """Queue it. Slurm gets all jobs at once, and gives each a host of its own."""
        self._waiting.append((request, fill(self._folder, request, files), requirements))
        self._start()

    def next_ended(self) -> EndedAttempt:
        """Wait for any job."""
        while True:
            ended = next((job for job in self._running if job.done()), None) or self._vanished()
            if ended is not None:
                result = self._result(ended)
                self._start()
                return result
            time.sleep(POLL_S if self._cluster == "local" else QUEUE_POLL_S)

    def close(self) -> None:
        """Cancel all jobs."""
        self._waiting.clear()
        for job in self._running:
            job.cancel()
        self._running.clear()

    def _start(self) -> None:
        while self._waiting and (self._cluster == "slurm" or not self._running):
            request, folder, requirements = self._waiting.popleft()
            self._executor.update_parameters(timeout_min=LIMIT_MIN, **self._options(request, requirements))
            try:
                job = self._executor.submit(execute_in, str(folder))
            except self._refused as error:
                first = next(iter(str(error).strip().splitlines()), "")
                raise UnavailableError(
                    f"Slurm does not take the job: {one_line(first)}",
                    "`sinfo` lists the partitions: ADDRESS=<partition>.",
                ) from error
            self._running[job] = (request, folder)

    def _options(self, request: UnitRequest, requirements: Requirements) -> dict[str, Any]:
        if self._cluster == "local":
            return {"gpus_per_node": requirements.gpus}
        options: dict[str, Any] = {
            "name": request.unit_id,
            "slurm_additional_parameters": {"exclusive": True, "no_requeue": True},
        }
        if requirements.gpus:
            options["gpus_per_node"] = requirements.gpus
        if self._partition:
            options["slurm_partition"] = self._partition
        return options

    def _vanished(self) -> Any | None:
        """A job that is not in Slurm's queue any more, in two looks. submitit asks sacct, and where Slurm keeps no
        accounts it never learns that a job was killed."""
        if self._cluster == "local":
            return None
        command = ["squeue", "--noheader", "--format=%A"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Slurm's own
        if done.returncode:
            return None
        queued = set(done.stdout.split())
        missing = {job for job in self._running if job.job_id not in queued}
        lost = next(iter(missing & self._missing), None)
        self._missing = missing
        return lost

    def _result(self, job: Any) -> EndedAttempt:
        request, folder = self._running.pop(job)
        packed = archive_in(folder, request)
        if packed is not None:
            return EndedAttempt(request.unit_id, request.attempt, packed, None)
        if job in self._missing:
            self._missing.discard(job)
            lost = f"job {job.job_id} left the queue of Slurm without a result: {_state(job.job_id)}"
            return EndedAttempt(request.unit_id, request.attempt, None, lost)
        try:
            job.result()
            lost = f"job {job.job_id} ended ({job.state}) without an archive"
        except Exception as error:  # submitit raises what the job raised, or that it is gone
            last = (str(error).strip().splitlines() or [""])[-1]
            lost = one_line(f"job {job.job_id}, {job.state}: {type(error).__name__}: {last}")
        return EndedAttempt(request.unit_id, request.attempt, None, lost)


def _state(job_id: str) -> str:
    """State and exit code of a job that has just ended, by scontrol, which forgets a job after some minutes."""
    command = ["scontrol", "show", "job", job_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Slurm's own, an id
    fields = re.findall(r"\b(JobState|Reason|ExitCode)=(\S+)", done.stdout)
    return one_line(", ".join(f"{name} {value}" for name, value in fields)) or "its state is unknown"
