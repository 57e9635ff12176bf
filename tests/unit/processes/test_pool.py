"""Turns that have no export: their failures are saved, and samples of the same settings stay. A pool waits for its
monitor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core import store
from harness.core.errors import ExportError
from harness.core.layout import Models, Results
from harness.core.schemas import Failed
from harness.processes import pool
from harness.processes.launcher import ProcessOutcome
from harness.processes.pool import WorkerPool, save_unexported
from tests.synthetic_generation import CASE, PLAN, record
from tests.synthetic_results import RESNET, case_of, plan_of

REASON = ExportError("It failed.", "Mend it.")


def test_the_failure_of_an_export_is_saved_for_its_turns(tmp_path: Path) -> None:
    save_unexported(PLAN, (1, CASE), REASON, Results(tmp_path), store.load_generated)
    failure = store.load_generated(Results(tmp_path).raw_file(CASE.case_id, 1))
    assert isinstance(failure, Failed)
    assert (failure.phase, failure.error, failure.hint) == ("export", "It failed.", "Mend it.")


@pytest.mark.parametrize(("settings_id", "stays"), [(PLAN.settings_id, True), ("other", False)])
def test_only_samples_of_the_same_settings_stay(tmp_path: Path, settings_id: str, stays: bool) -> None:
    path = Results(tmp_path).raw_file(CASE.case_id, 1)
    store.save_raw(path, record(1).model_copy(update={"settings_id": settings_id}))
    save_unexported(PLAN, (1, CASE), REASON, Results(tmp_path), store.load_generated)
    assert isinstance(store.load_generated(path), Failed) != stays


def test_a_damaged_record_is_replaced(tmp_path: Path) -> None:
    path = Results(tmp_path).raw_file(CASE.case_id, 1)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    save_unexported(PLAN, (1, CASE), REASON, Results(tmp_path), store.load_generated)
    assert isinstance(store.load_generated(path), Failed)


@pytest.mark.parametrize("generates", [False, True])
def test_no_process_begins_before_the_monitor_can_watch_it(
    generates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Recording:
        """A monitor and a worker that note what they are asked for; the worker's process crashes."""

        log = tmp_path / "log"

        def __init__(self, *_: object) -> None:
            """Starts nothing."""

        def __getattr__(self, name: str) -> Callable[..., ProcessOutcome]:
            return lambda *_: seen.append(name) or ProcessOutcome(-9, "load")

    monkeypatch.setattr(pool, "Monitor", Recording)
    monkeypatch.setattr(pool, "Worker", Recording)
    case = case_of(RESNET, "noop", "fp32", 1)
    plan = PLAN if generates else plan_of((RESNET,), [case])
    with WorkerPool(plan, Models(tmp_path), Results(tmp_path), 1, 1, True, {}) as workers:
        record = workers.generate((1, CASE)) if generates else workers.measure((1, case))
    assert isinstance(record, Failed)
    assert seen[:2] == ["ready", "run"]
