"""export's bookkeeping of failures, without any export."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from harness import export
from harness.core.errors import StorageError
from harness.core.layout import ModelFolder


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
