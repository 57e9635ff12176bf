"""The files running.json and exporting.json, from which a view knows that a stage is at work."""

from __future__ import annotations

import os

from harness.core import lock, store
from harness.core.layout import Results
from harness.core.schemas import Exporting, Running
from harness.core.timestamps import utc_now


class Presence:
    """The file running.json. It is written before each turn and never during one, so it disturbs no measurement."""

    def __init__(self, results: Results, plan_id: str) -> None:
        self._path = results.running
        self._plan_id = plan_id
        self._place = lock.place()
        self._started_at = utc_now()

    def turn(self, case_id: str, number: int, done: int, turns: int) -> None:
        """A turn begins; number: its round. Raises StorageError where the file cannot be written."""
        running = Running(
            plan_id=self._plan_id,
            pid=os.getpid(),
            place=self._place,
            started_at=self._started_at,
            turns=turns,
            done=done,
            case_id=case_id,
            round=number,
            since=utc_now(),
        )
        store.save(self._path, running)

    def close(self) -> None:
        """The run is over."""
        with store.translate_storage_errors(self._path):
            self._path.unlink(missing_ok=True)


class ExportPresence:
    """The file of a running export, written before each model. written: False where another export writes it."""

    def __init__(self, results: Results, plan_id: str, models: int, *, written: bool = True) -> None:
        self._written = written
        self._path = results.exporting
        self._started_at = utc_now()
        self._plan_id = plan_id
        self._models = models

    def models(self, names: str, done: int) -> None:
        """A model begins, or one of several at the same time ends. Raises StorageError where the file cannot be
        written."""
        if not self._written:
            return
        exporting = Exporting(
            plan_id=self._plan_id,
            pid=os.getpid(),
            place=lock.place(),
            started_at=self._started_at,
            models=self._models,
            done=done,
            model=names,
            since=utc_now(),
        )
        store.save(self._path, exporting)

    def close(self) -> None:
        """The stage is over."""
        if not self._written:
            return
        with store.translate_storage_errors(self._path):
            self._path.unlink(missing_ok=True)
