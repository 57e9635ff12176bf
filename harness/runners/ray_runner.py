"""Units on a Ray cluster (optional extra `ray`): one host_slot each, never retried by Ray.

Every host of the cluster offers its slot: ray start --address=… --resources='{"host_slot": 1}'. num_gpus alone would
not keep a host quiet. Files travel once to each node, through Ray's object store, by their sha256.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UnavailableError
from harness.core.schemas import UnitRequest
from harness.core.text import one_line
from harness.runners.execution import execute
from harness.runners.runner import EndedAttempt, Requirements, Runner

SLOT = "host_slot"
"""Resource of which every host has one: the unit that it runs."""
POLL_S = 10.0
PATIENCE = 30
"""Polls without any host before the remaining units are given up."""


def execute_on_node(request_json: str, references: Mapping[str, Any]) -> bytes:
    """Run a unit in a task of Ray. references: by sha256, the content of each file in the object store."""
    ray = importlib.import_module("ray")
    restore_priority()
    return execute(request_json, lambda digest: ray.get(references[digest]))


def restore_priority() -> None:
    """Undo the niceness of 15 that Ray gives its workers: any other program would slow the case down.

    Raises UnavailableError where this user may not raise the priority of a process.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) <= 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        raise UnavailableError(
            "Ray runs its workers with a lower priority, and this user may not raise it again.",
            "Start every host with RAY_worker_niceness=0 ray start …",
        ) from None


class RayRunner(Runner):
    """address: of the cluster, as ray.init takes it; empty for the one that RAY_ADDRESS names or that runs here."""

    name = "ray"

    def __init__(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray = importlib.import_module("ray")
        except ImportError:
            raise UnavailableError("ray is not installed.", "pip install 'inferometer[ray]'") from None
        self._own = not self._ray.is_initialized()
        if self._own:
            try:
                self._ray.init(address=address or "auto", logging_level="ERROR", log_to_driver=False)
            except (ConnectionError, ValueError) as error:
                raise UnavailableError(
                    f"There is no Ray cluster at {address or 'this host'}: {one_line(str(error))}",
                    "ray start --head --resources='{\"host_slot\": 1}', then ADDRESS=<host>:6379.",
                ) from error
        self._files: dict[str, Any] = {}
        self._running: dict[Any, UnitRequest] = {}
        if not self._slots():
            self.close()
            raise UnavailableError(
                "No host of the Ray cluster offers a host_slot.",
                "On every host: ray start --address=<head>:6379 --resources='{\"host_slot\": 1}'",
            )

    def submit(self, request: UnitRequest, files: Mapping[str, Path], requirements: Requirements) -> None:
        """Queue it as one task."""
        for file in request.files:
            if file.sha256 not in self._files:
                self._files[file.sha256] = self._ray.put(files[file.sha256].read_bytes())
        options = {"max_retries": 0, "num_cpus": 0, "num_gpus": requirements.gpus, "resources": {SLOT: 1}}
        task = self._ray.remote(execute_on_node).options(**options)
        own = {file.sha256: self._files[file.sha256] for file in request.files}
        self._running[task.remote(request.model_dump_json(), own)] = request

    def next_ended(self) -> EndedAttempt:
        """Wait for any task."""
        for _ in range(PATIENCE):
            while self._slots():
                ended, _left = self._ray.wait(list(self._running), timeout=POLL_S)
                if ended:
                    return self._result(ended[0])
            self._ray.wait(list(self._running), timeout=POLL_S)
        raise UnavailableError(
            "Every host of the Ray cluster has left.", "Add one, and run the same command again: it goes on from here."
        )

    def close(self) -> None:
        """End all tasks, and the connection."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        if self._own:
            self._ray.shutdown()

    def _result(self, reference: Any) -> EndedAttempt:
        request = self._running.pop(reference)
        try:
            return EndedAttempt(request.unit_id, request.attempt, self._ray.get(reference), None)
        except self._ray.exceptions.RayError as error:
            first = next(iter(str(error).strip().splitlines()), "")
            lost = one_line(f"{type(error).__name__}: {first}")
            return EndedAttempt(request.unit_id, request.attempt, None, lost)

    def _slots(self) -> float:
        return float(self._ray.cluster_resources().get(SLOT, 0))
