"""export's bookkeeping of failures, without any export."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from harness import export
from harness.core import store
from harness.core.errors import StorageError, UsageError
from harness.core.layout import ModelFolder, Results
from tests.synthetic_results import MINILM, RESNET, case_of, plan_of


def test_a_folder_that_may_only_be_read_is_no_error_where_no_failure_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    folder = ModelFolder(tmp_path)
    export._forget_failure(folder)
    folder.failure.touch()
    with pytest.raises(StorageError, match="Read-only"):
        export._forget_failure(folder)


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
