"""export's bookkeeping of failures, without any export."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness import export
from harness.core import store
from harness.core.errors import BusyError, ExportError, StorageError, UsageError
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.core.schemas import Exporting, ExportRecord
from tests.synthetic_results import MINILM, RESNET, case_of, export_record, plan_of


def test_a_folder_that_may_only_be_read_is_no_error_where_no_failure_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    results = Results(tmp_path)
    own, record = results.export(RESNET.name), export_record(RESNET)
    export.keep_export(record, own, results)
    assert store.load(own.record, ExportRecord, "test") == record
    own.failure.touch()
    with pytest.raises(StorageError, match="Read-only"):
        export.keep_export(record, own, results)


def test_a_model_of_the_plan_with_nothing_to_export_is_no_unknown_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan_of((RESNET, MINILM), [case_of(RESNET, "torch-eager", "fp32", 1)])
    models = tuple(model.model_copy(update={"exported": model.name == RESNET.name}) for model in planned.models)
    results = Results(tmp_path)
    store.save(results.plan, planned.model_copy(update={"models": models}))
    folders = ["--results", str(tmp_path), "--models-dir", str(tmp_path / "models")]
    export.export([*folders, "--models", MINILM.name])
    assert f"{MINILM.name}: nothing to export" in capsys.readouterr().out
    with pytest.raises(UsageError, match="Unknown model of this plan"):
        export.export([*folders, "--models", "minilm"])


def test_results_that_are_being_measured_keep_their_export(tmp_path: Path) -> None:
    results = Results(tmp_path)
    own, record = results.export(RESNET.name), export_record(RESNET)
    export.keep_export(record, own, results)
    with exclusive(results.lock):
        export.keep_export(record, own, results)  # nothing changes
        with pytest.raises(BusyError, match=str(os.getpid())):
            export.keep_export(record.model_copy(update={"weights": "pretrained"}), own, results)
    assert store.load(own.record, ExportRecord, "test") == record


def test_a_watcher_sees_which_model_is_exported_and_nothing_once_the_stage_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []
    results = Results(tmp_path)
    store.save(results.plan, plan_of((RESNET, MINILM), [case_of(RESNET, "torch-eager", "fp32", 1)]))

    def refuse(*_arguments: object) -> None:
        shown = store.load(results.exporting, Exporting, "make export")
        seen.append((shown.model, shown.done, shown.models))
        raise ExportError("no", "nothing to do")

    monkeypatch.setattr(export, "_run_forked", refuse)
    with pytest.raises(ExportError):
        export.export(["--results", str(tmp_path), "--models-dir", str(tmp_path / "models")])
    assert seen == [(RESNET.name, 0, 2), (MINILM.name, 1, 2)]
    assert not results.exporting.exists()


@pytest.mark.parametrize("number", ["0", "65"])
def test_a_number_of_exports_out_of_range_is_refused(tmp_path: Path, number: str) -> None:
    store.save(Results(tmp_path).plan, plan_of((RESNET,), [case_of(RESNET, "torch-eager", "fp32", 1)]))
    with pytest.raises(UsageError, match=f"^{number} models cannot be exported at the same time") as caught:
        export.export(["--results", str(tmp_path), "--export-jobs", number])
    assert "EXPORT_JOBS=3" in caught.value.hint
