"""One export for all tests of stages, and a results folder for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.layout import Models
from tests.fixtures.stages import POLLUTING, TINY, Folder, made_once


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The tiny modules, exported once for all processes of pytest-xdist. Each gets a copy: tests compile into it."""

    def export(root: Path) -> None:
        folder = Folder(root, Models(root / "models"))
        folder.plan({"backends": ["torch-eager", "onnxruntime"]}, models=(TINY, POLLUTING))
        done = folder("export")
        assert done.returncode == 0, done.stderr

    shared = made_once(tmp_path_factory, "exports", export)
    own = tmp_path_factory.mktemp("exports")
    shutil.copytree(shared / "models", own / "models")
    return Models(own / "models")


@pytest.fixture
def folder(tmp_path: Path, exports: Models) -> Iterator[Folder]:
    """A results folder that must leave no process behind."""
    found = Folder(tmp_path, exports)
    yield found
    assert found.orphans() == []
