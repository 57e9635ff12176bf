"""results/running.json and exporting.json: what a run measures, or an export exports, just now, for a watcher."""

from __future__ import annotations

import os

from harness.core import alive, store
from harness.core.jobs import Job
from harness.core.layout import Results
from harness.core.schemas import Exporting, Running
from harness.core.timestamps import utc_now


class Presence:
    """Written before each turn and never during one: what is measured is not disturbed by it."""

    def __init__(self, results: Results, plan_id: str) -> None:
        self._path = results.running
        self._plan_id = plan_id
        self._place = alive.place()
        self._started_at = utc_now()

    def turn(self, job: Job, done: int, turns: int) -> None:
        """A turn begins. Raises StorageError where that cannot be written."""
        running = Running(
            plan_id=self._plan_id,
            pid=os.getpid(),
            place=self._place,
            started_at=self._started_at,
            turns=turns,
            done=done,
            case_id=job.case.case_id,
            round=job.round,
            since=utc_now(),
        )
        store.save(self._path, running)

    def close(self) -> None:
        """The run is over."""
        with store.translate_storage_errors(self._path):
            self._path.unlink(missing_ok=True)


class ExportPresence:
    """Written before each model."""

    def __init__(self, results: Results, plan_id: str, models: int) -> None:
        self._path = results.exporting
        self._started_at = utc_now()
        self._plan_id = plan_id
        self._models = models

    def model(self, name: str, done: int) -> None:
        """A model begins. Raises StorageError where that cannot be written."""
        exporting = Exporting(
            plan_id=self._plan_id,
            pid=os.getpid(),
            place=alive.place(),
            started_at=self._started_at,
            models=self._models,
            done=done,
            model=name,
            since=utc_now(),
        )
        store.save(self._path, exporting)

    def close(self) -> None:
        """The stage is over."""
        with store.translate_storage_errors(self._path):
            self._path.unlink(missing_ok=True)
