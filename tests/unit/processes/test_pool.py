"""Turns that have no export: their failures are saved, and samples of the same settings stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store
from harness.core.errors import ExportError
from harness.core.layout import Results
from harness.core.schemas import Failed
from harness.processes.pool import save_unexported
from tests.synthetic_generation import CASE, PLAN, record

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
