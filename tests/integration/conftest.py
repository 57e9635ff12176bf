"""One export for all tests of stages, and a results folder for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.layout import Models
from tests.fixtures.stages import POLLUTING, TINY, Folder


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The tiny modules, exported once."""
    root = tmp_path_factory.mktemp("exports")
    folder = Folder(root, Models(root / "models"))
    folder.plan({"backends": ["torch-eager", "onnxruntime"]}, models=(TINY, POLLUTING))
    done = folder("export")
    assert done.returncode == 0, done.stderr
    return folder.models


@pytest.fixture
def folder(tmp_path: Path, exports: Models) -> Iterator[Folder]:
    """A results folder that must leave no process behind."""
    found = Folder(tmp_path, exports)
    yield found
    assert found.orphans() == []
